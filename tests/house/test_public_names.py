"""Each public name is exported by one module, whose ``__all__`` is sorted and complete."""

from __future__ import annotations

import ast
import collections
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import deltalog
from tests.support.public_names import HOMES


@pytest.fixture(params=[*HOMES, "spark_ext"])
def face(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "spark_ext":
        pytest.importorskip("pyspark")
    return importlib.import_module(request.param)


def test_all_names_are_sorted_and_there(face: ModuleType) -> None:
    names = list(face.__all__)
    assert names == sorted(names) and len(set(names)) == len(names)
    for name in names:
        assert getattr(face, name) is not None, name


def test_nothing_public_is_left_out(face: ModuleType) -> None:
    here = {
        name
        for name, value in vars(face).items()
        if not name.startswith("_") and not inspect.ismodule(value) and not hasattr(value, "compiler_flag")
    }
    assert here - set(face.__all__) <= {"lazy_names"}


def test_each_name_has_one_home() -> None:
    homes = collections.Counter(name for home in HOMES[1:] for name in _names(home))
    assert [name for name, count in homes.items() if count > 1 or name in deltalog.__all__] == []


def _names(home: str) -> list[str]:
    return list(importlib.import_module(home).__all__)


def test_a_star_import_gives_them() -> None:
    scope: dict[str, object] = {}
    exec("from deltalog import *", scope)
    assert set(deltalog.__all__) <= set(scope)


@pytest.mark.parametrize(
    "home", ["deltalog", "deltalog.catalog", "deltalog.conformance", "deltalog.storage", "deltalog.transactions"]
)
def test_names_are_imported_from_where_type_checkers_see_them(home: str) -> None:
    module = importlib.import_module(home)
    [block] = [
        node
        for node in ast.parse(inspect.getsource(module)).body
        if ast.unparse(node).startswith("if typing.TYPE_CHECKING:")
    ]
    assert isinstance(block, ast.If)
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {
        alias.name: f"deltalog.{alias.name}" if node.module == "deltalog" else node.module
        for node in imports
        for alias in node.names
    }
    assert seen == module._MODULES


def test_the_core_runs_without_the_extras(tmp_path: Path) -> None:
    """If only the mandatory dependencies can be imported, tables can still be written, read and queried with SQL
    text."""
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'click', 'pydantic', 'pyspark', 's3fs', 'boto3', 'uvicorn'):\n"
        "    sys.modules[name] = None\n"
        "import pyarrow as pa, deltalog\n"
        f"table = deltalog.DeltaTable.create({str(tmp_path)!r}, pa.schema([('x', pa.int64())]))\n"
        "table.append(pa.table({'x': [1, 2]}))\n"
        "print(table.snapshot().scan(where='x > 1').to_arrow()['x'].to_pylist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[2]"


def test_the_core_imports_neither_spark_nor_a_cloud_sdk_nor_pandas_nor_a_parser() -> None:
    heavy = ["pyspark", "delta", "boto3", "botocore", "s3fs", "fsspec", "obstore", "aiohttp", "pandas", "rich", "typer"]
    heavy.append("sqlglot")  # importing it takes a third of a second, and only parsing SQL text needs it
    code = (
        f"import sys; from deltalog import *; print(sorted(set({heavy!r}) & {{m.split('.')[0] for m in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_an_import_leaves_out_what_most_programs_do_not_use() -> None:
    """For a fast start-up, each of these modules is imported at its first use, not when a table is opened."""
    modules = {
        deltalog._MODULES[name] for name in ("Dataset", "DynamoCommit", "S3DynamoDBCommit", "TransactionManager")
    }
    for home in (deltalog.catalog, deltalog.transactions, deltalog.storage):
        modules |= set(home._MODULES.values())
    modules -= {"deltalog.storage.base", "deltalog.catalog.records"}
    code = f"import sys; from deltalog import DeltaTable; print(*({modules!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
