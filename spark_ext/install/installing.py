"""``install`` and ``uninstall``."""

from __future__ import annotations

import importlib
import sys
import threading
import weakref
from typing import Any

from pyspark.sql import SparkSession

from spark_ext.delta_table import DeltaTable
from spark_ext.install import readers, sessions, streams, writers
from spark_ext.install.delta_modules import Modules
from spark_ext.install.errors import translated
from spark_ext.install.patches import Patches, inside
from spark_ext.maintenance.optimize import DeltaOptimizeBuilder
from spark_ext.rows.merge_builder import DeltaMergeBuilder
from spark_ext.session import spark_names
from spark_ext.session.settings import is_connect
from spark_ext.stream.calls import add_calls_of
from spark_ext.writing.table_builder import DeltaTableBuilder

_CLASSIC, _CONNECT = "pyspark.sql", "pyspark.sql.connect"
_lock = threading.RLock()
_installed: _Installation | None = None


def install(spark: SparkSession | None = None, *, modules: bool = True) -> None:
    """Make programs written for delta-spark run unchanged in this process, until ``uninstall``.

    ``format("delta")`` and ``format("deltalog")`` of ``spark.read``, ``df.write``, ``readStream`` and ``writeStream``,
    ``spark.sql``, ``spark.table``, ``writeTo``, ``saveAsTable``, ``insertInto``, ``toTable`` and
    ``spark.catalog.tableExists`` and ``listTables`` reach deltalog for Delta tables; all other calls go to Spark as
    before. In sessions without ``use_catalog``, table names are those of Spark's own catalog. Errors are also instances
    of the classes that delta-spark raises: ``AnalysisException``, ``delta.exceptions.ConcurrentAppendException`` and so
    on.

    ``spark``: an existing session; all other sessions of the process, including later ones, are also covered. A session
    that is configured for delta-spark's catalog gets Spark's own catalog instead. ``modules``: ``from delta.tables
    import DeltaTable`` and ``delta.exceptions`` are those of spark_ext, even if the package delta-spark is installed;
    False leaves that package alone. Call ``install`` before a program imports ``delta``. A second call has no effect.
    Cost: none; for a session 1 command.
    """
    global _installed
    with _lock:
        if _installed is None:
            _installed = _Installation(modules)
        if spark is not None:
            _installed.cover(spark)


def uninstall(spark: SparkSession | None = None) -> None:
    """Undo ``install``: PySpark's classes and the modules named ``delta`` are again as they were before the
    installation. Existing columns, views and DataFrames keep working. ``spark``: for symmetry. Cost: none."""
    global _installed
    with _lock:
        if _installed is not None:
            installed, _installed = _installed, None
            installed.undo()


class _Installation:
    def __init__(self, modules: bool) -> None:
        self._patches = Patches()
        self._kinds: set[str] = set()
        self._changed: list[weakref.ref[SparkSession]] = []
        self._modules = Modules() if modules else None
        try:
            self._install()
        except BaseException:
            self.undo()
            raise

    def _install(self) -> None:
        if self._modules is not None:
            self._modules.add()
        spark_names.use_by_default(streams.prepare)
        for kind in (DeltaTable, DeltaMergeBuilder, DeltaOptimizeBuilder, DeltaTableBuilder):
            self._translate(kind)
        self._patch(_CLASSIC)
        if f"{_CONNECT}.session" in sys.modules:
            self._patch(_CONNECT)
        self._patches.method(SparkSession.Builder, "getOrCreate", self._created)

    def cover(self, spark: SparkSession) -> None:
        """Patch the classes of a session."""
        self._patch(_CONNECT if is_connect(spark) else _CLASSIC)
        with inside():
            if sessions.without_their_catalog(spark):
                self._changed.append(weakref.ref(spark))

    def undo(self) -> None:
        """Put everything back."""
        self._patches.undo()
        spark_names.use_by_default(None)
        if self._modules is not None:
            self._modules.remove()
        for reference in self._changed:
            spark = reference()
            if spark is not None and not _is_stopped(spark):
                sessions.with_their_catalog(spark)

    def _created(self, original: Any, builder: Any) -> SparkSession:
        spark: SparkSession = original(builder)
        self.cover(spark)
        return spark

    def _made(self, original: Any, spark: SparkSession, *args: Any, **options: Any) -> None:
        original(spark, *args, **options)
        self.cover(spark)

    def _patch(self, package: str) -> None:
        if package in self._kinds:
            return
        self._kinds.add(package)

        def module(name: str) -> Any:
            return importlib.import_module(f"{package}.{name}")

        batch, session = module("readwriter"), module("session").SparkSession
        readers.add(self._patches, batch.DataFrameReader)
        writers.add(self._patches, batch.DataFrameWriter, batch.DataFrameWriterV2)
        sessions.add(self._patches, session, module("catalog").Catalog)
        add_calls_of(package)
        stream = module("streaming.readwriter")
        streams.add(self._patches, stream.DataStreamReader, stream.DataStreamWriter)
        if package == _CLASSIC:
            self._patches.method(session, "__init__", self._made)

    def _translate(self, kind: Any) -> None:
        """Let the methods of a spark_ext class raise errors that are also errors of delta-spark."""
        for name, member in list(vars(kind).items()):
            if name.startswith("_"):
                continue
            if isinstance(member, classmethod):
                self._patches.class_method(kind, name, _with_errors)
            elif callable(member):
                self._patches.method(kind, name, _with_errors)


def _with_errors(original: Any, *args: Any, **options: Any) -> Any:
    with translated(), inside():
        return original(*args, **options)


def _is_stopped(spark: SparkSession) -> bool:
    try:
        spark.conf.get("spark.sql.session.timeZone")
    except Exception:
        return True
    return False
