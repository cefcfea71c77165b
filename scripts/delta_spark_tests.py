"""Runs delta-spark's own Python tests against spark_ext: the folder python/delta/tests of a checkout of delta-io/delta.

    python scripts/delta_spark_tests.py FOLDER [--connect] [-k TEXT] [--json FILE]

The script replaces the package ``delta`` with spark_ext, and redirects ``df.write.format("delta")``,
``spark.read.format("delta")`` and ``spark.sql`` to ``spark_ext.write``, ``read`` and ``sql``. Nothing else changes:
results and errors come from spark_ext. docs/spark-parity.md lists the tests that differ; the exit code is 0 if exactly
these tests differ.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import types
import unittest
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "spark-parity.md"
# A line of docs/spark-parity.md that explains why tests differ: | `file::name`, … | why |
_EXPLAINED = re.compile(r"`(test_\w+\.py(?:::\w+)?)`")
_FORMATS = ("delta", "deltalog")
_inside = threading.local()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="python/delta/tests of a checkout of delta-io/delta")
    parser.add_argument("-k", metavar="TEXT", default="", help="run only tests whose file::name contains this text")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the outcomes of the tests to this file")
    parser.add_argument("--connect", action="store_true", help="run over Spark Connect")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.chdir(tempfile.mkdtemp(prefix="delta-spark-tests-"))
    stand_in(given.connect)
    outcomes: dict[str, str] = {}
    for file in sorted(given.folder.glob("test_*.py")):
        try:
            tests = [test for test in _tests_of(file) if given.k in f"{file.name}::{test._testMethodName}"]
        except Exception as error:
            outcomes[f"{file.name}::import"] = f"error: {error!r}"
            continue
        outcomes |= {f"{file.name}::{test._testMethodName}": "" for test in tests}
        if tests:
            _note(outcomes, file.name, unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(tests)))
    return _judged(outcomes, bool(given.k), given.json)


def _tests_of(file: Path) -> Iterator[unittest.TestCase]:
    name = f"delta.tests.{file.stem}"
    module = sys.modules.get(name)
    if module is None:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)

    def flat(suite: Any) -> Iterator[unittest.TestCase]:
        for each in suite:
            if isinstance(each, unittest.TestCase):
                yield each
            else:
                yield from flat(each)

    yield from flat(unittest.defaultTestLoader.loadTestsFromModule(module))


def _note(outcomes: dict[str, str], file: str, result: unittest.TestResult) -> None:
    for name in outcomes:
        if name.startswith(f"{file}::"):
            outcomes[name] = "passed"
    for kind, found in (("failed", result.failures), ("error", result.errors)):
        for test, text in found:
            method = getattr(test, "_testMethodName", None)
            for name in [f"{file}::{method}"] if method else [name for name in outcomes if name.startswith(file)]:
                outcomes[name] = f"{kind}: {text.strip().splitlines()[-1]}"
    for test, why in result.skipped:
        outcomes[f"{file}::{test._testMethodName}"] = f"skipped: {why}"


def _judged(outcomes: dict[str, str], is_part: bool, report: Path | None) -> int:
    explained = set(_EXPLAINED.findall(PAGE.read_text(encoding="utf-8")))
    differing = {name for name, outcome in outcomes.items() if outcome != "passed"}
    unexplained = {name for name in differing if not {name, name.partition("::")[0]} & explained}
    solved = {each for each in explained if not is_part and "::" in each and outcomes.get(each) == "passed"}
    if report is not None:
        report.write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
    print(f"\n{len(outcomes) - len(differing)} of {len(outcomes)} tests pass.")
    for name in sorted(differing):
        print(f"  {'UNEXPLAINED ' if name in unexplained else ''}{name}  {outcomes[name][:200]}")
    for name in sorted(solved):
        print(f"  {name} passes, and docs/spark-parity.md says that it differs")
    return 1 if unexplained or solved else 0


def stand_in(is_connect: bool) -> None:
    """Replace ``delta`` and its modules with spark_ext, and redirect Spark's calls for the format ``delta``."""
    import spark_ext

    def module(name: str, **members: Any) -> types.ModuleType:
        made = types.ModuleType(name)
        vars(made).update(members)
        sys.modules[name] = made
        return made

    package = module("delta", DeltaTable=spark_ext.DeltaTable)
    package.__path__ = []
    names = ("DeltaTable", "DeltaTableBuilder", "DeltaMergeBuilder", "DeltaOptimizeBuilder", "IdentityGenerator")
    members = {name: getattr(spark_ext, name) for name in names if hasattr(spark_ext, name)}
    package.tables = module("delta.tables", **members)  # type: ignore[attr-defined]
    package.exceptions = module("delta.exceptions")  # type: ignore[attr-defined]
    testing = module("delta.testing")
    testing.__path__ = []
    module("delta.testing.utils", DeltaTestCase=_test_case(is_connect))
    module("delta.tests").__path__ = []
    _route(is_connect)


def _test_case(is_connect: bool) -> type:
    if is_connect:
        from pyspark.testing.connectutils import ReusedConnectTestCase as Base
    else:
        from pyspark.testing.sqlutils import ReusedSQLTestCase as Base

    import spark_ext

    class DeltaTestCase(Base):  # type: ignore[misc]
        """Stands in for delta-spark's class of this name, without its jar."""

        @classmethod
        def conf(cls) -> Any:
            conf = super().conf()
            conf.set("spark.app.name", cls.__name__)
            conf.set("spark.master", "local[2]")
            conf.set("spark.ui.enabled", "false")
            conf.set("spark.sql.shuffle.partitions", "5")
            conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "5")
            conf.set("spark.sql.warehouse.dir", os.path.join(os.getcwd(), "warehouse"))
            return conf

        @classmethod
        def setUpClass(cls) -> None:
            super().setUpClass()
            spark_ext.use_catalog(cls.spark, os.path.join(os.getcwd(), "catalog.db"))

        def setUp(self) -> None:
            super().setUp()
            self.tempPath = tempfile.mkdtemp()
            self.tempFile = os.path.join(self.tempPath, "tempFile")

        def tearDown(self) -> None:
            super().tearDown()
            shutil.rmtree(self.tempPath, ignore_errors=True)

        @contextlib.contextmanager
        def tempTable(self) -> Iterator[str]:
            name = "table_" + uuid.uuid4().hex
            with self.table(name):
                yield name

    return DeltaTestCase


class _Recorded:
    """Records the calls on a reader or writer, and replays them on spark_ext's if the format is delta, otherwise on
    Spark's."""

    def __init__(self, native: Any, ours: Any) -> None:
        self._native, self._ours = native, ours
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._format: str | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return getattr(self._native(), name)

        def call(*args: Any, **options: Any) -> Any:
            if name == "format":
                self._format = args[0] if args else options["source"]
                return self
            if name in ("save", "load", "saveAsTable", "insertInto"):
                self._unpack(options)
            if name in ("mode", "option", "options", "partitionBy", "clusterBy", "schema", "bucketBy", "sortBy"):
                self._calls.append((name, args, options))
                return self
            return getattr(self._replayed(), name)(*args, **options)

        return call

    def _unpack(self, options: dict[str, Any]) -> None:
        """Convert arguments of ``save`` to separate calls."""
        for name in ("format", "mode", "partitionBy"):
            value = options.pop(name, None)
            if value is not None:
                getattr(self, name)(value)

    def _replayed(self) -> Any:
        is_ours = self._format in _FORMATS
        made = self._ours() if is_ours else self._native()
        if self._format is not None and not is_ours:
            made = made.format(self._format)
        for name, args, options in self._calls:
            made = getattr(made, name)(*args, **options)
        return made


def _route(is_connect: bool) -> None:
    import spark_ext

    if is_connect:
        from pyspark.sql.connect.dataframe import DataFrame
        from pyspark.sql.connect.session import SparkSession
    else:
        from pyspark.sql import SparkSession
        from pyspark.sql.classic.dataframe import DataFrame

    native_write, native_read, native_sql = DataFrame.write.fget, SparkSession.read.fget, SparkSession.sql

    def write(df: Any) -> Any:
        return _Recorded(lambda: native_write(df), lambda: spark_ext.write(df))

    def read(spark: Any) -> Any:
        return _Recorded(lambda: native_read(spark), lambda: spark_ext.read(spark))

    @functools.wraps(native_sql)
    def sql(spark: Any, query: Any, *args: Any, **options: Any) -> Any:
        if getattr(_inside, "sql", False):
            return native_sql(spark, query, *args, **options)
        _inside.sql = True
        try:
            return spark_ext.sql(spark, query, *args, **options)
        finally:
            _inside.sql = False

    DataFrame.write, SparkSession.read, SparkSession.sql = property(write), property(read), sql


if __name__ == "__main__":
    sys.exit(main())
