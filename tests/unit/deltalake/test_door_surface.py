"""``deltalog.deltalake`` exports every public name of deltalake 1.6, with the same parameters and defaults."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import deltalog.deltalake as door

real = pytest.importorskip("deltalake", minversion="1.6")
_MODULES = ("", ".exceptions", ".schema", ".table", ".transaction", ".writer", ".query", ".fs", ".warnings")
_CLASSES = (
    "DeltaTable", "Metadata", "Field", "Schema", "QueryBuilder", "WriterProperties", "ColumnProperties",
    "BloomFilterProperties", "CommitProperties", "PostCommitHookProperties", "Transaction",
)  # fmt: skip
_IN_TABLE = ("TableMerger", "TableAlterer", "TableOptimizer", "ProtocolVersions", "DeltaTableConfig")


def public(found: object) -> set[str]:
    return {name for name in dir(found) if not name.startswith("_")}


def names_of(module: str) -> set[str]:
    found = importlib.import_module(f"deltalake{module}")
    names = getattr(found, "__all__", None)
    own = names if names is not None else [
        name for name in public(found) if getattr(getattr(found, name), "__module__", "").startswith("deltalake")
    ]  # fmt: skip
    return set(own)


@pytest.mark.parametrize("module", _MODULES)
def test_every_public_name_is_here(module: str) -> None:
    ours = importlib.import_module(f"deltalog.deltalake{module}")
    private = {"RawDeltaTable", "PyMergeBuilder", "PyQueryBuilder", "BaseDeltaStorageHandler"}  # of the compiled module
    missing = {name for name in names_of(module) if not hasattr(ours, name)} - private
    assert missing == set()


def pairs():
    for name in _CLASSES:
        yield name, getattr(real, name), getattr(door, name)
    for name in _IN_TABLE:
        table = importlib.import_module("deltalake.table")
        yield name, getattr(table, name), getattr(importlib.import_module("deltalog.deltalake.table"), name)
    for name in ("PrimitiveType", "ArrayType", "MapType", "StructType"):
        yield name, getattr(importlib.import_module("deltalake.schema"), name), getattr(door.schema, name)


PAIRS = {name: (theirs, ours) for name, theirs, ours in pairs()}


@pytest.mark.parametrize("name", PAIRS)
def test_every_member_is_here(name: str) -> None:
    theirs, ours = PAIRS[name]
    given = vars(ours) if not hasattr(ours, "__dataclass_fields__") else {**vars(ours), **ours.__dataclass_fields__}
    missing = {each for each in public(theirs) if not hasattr(ours, each) and each not in given}
    assert missing == set()


def parameters(function: object) -> dict[str, tuple[object, str]]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return {name: (each.kind, repr(each.default)) for name, each in signature.parameters.items() if name != "self"}


def calls():
    for name, (theirs, ours) in PAIRS.items():
        for member in sorted(public(theirs) & public(ours)):
            one, other = inspect.getattr_static(theirs, member), inspect.getattr_static(ours, member)
            if inspect.isfunction(one) or isinstance(one, (staticmethod, classmethod)):
                del one, other
                yield f"{name}.{member}", getattr(theirs, member), getattr(ours, member)
        if name in ("DeltaTable", "WriterProperties", "ColumnProperties", "CommitProperties"):
            yield name, theirs.__init__, ours.__init__
    for name in ("write_deltalake", "convert_to_deltalake"):
        yield name, getattr(real, name), getattr(door, name)


@pytest.mark.parametrize(("name", "theirs", "ours"), [pytest.param(*each, id=each[0]) for each in calls()])
def test_every_call_has_the_same_parameters(name: str, theirs: object, ours: object) -> None:
    try:
        wanted = parameters(theirs)
    except ValueError:
        pytest.skip("a call of the compiled module, whose signature is unknown")
    found = parameters(ours)
    assert list(found)[: len(wanted)] == list(wanted)
    assert {name: each for name, each in found.items() if name in wanted} == wanted


def test_table_features_are_the_same() -> None:
    theirs = {name for name in dir(real.TableFeatures) if not name.startswith("_")}
    assert {each.name for each in door.TableFeatures} == theirs


def test_importing_deltalog_does_not_import_the_door_and_the_door_needs_no_deltalake() -> None:
    program = (
        "import sys, deltalog, deltalog.table\n"
        "assert not any(name.startswith('deltalog.deltalake') for name in sys.modules)\n"
        "import deltalog.deltalake\n"
        "assert not {'deltalake', 'arro3.core', 'pandas', 'duckdb', 'sqlglot'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
