"""Every public call with one wrong argument at a time either succeeds or raises a DeltaLogError, and the table can
still be opened.

The methods and parameters come from ``inspect.signature``, so new methods and parameters are tested without a change to
this module.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import inspect
import math
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltalog
from deltalog import (
    Dataset,
    DeltaLogError,
    DeltaTable,
    Scan,
    Snapshot,
    StagedFiles,
    Transaction,
    TransactionManager,
    col,
    open_store,
)
from deltalog.protocol.actions import AddCDCFile
from deltalog.read.changes import Changes
from deltalog.schema import StructField, StructType
from deltalog.transactions import AddObject, VirtualObject
from deltalog.write_contract.stream import StreamWriter
from tests.support.core import environment, tree

ROWS = pa.table({"i": [1, 2], "s": ["a", "b"]})
SCHEMA = StructType.from_arrow(ROWS.schema)
PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableInCommitTimestamps": "true",
}


class Text(str):
    """A subclass of str."""


class Odd:
    """A wrong argument whose ``repr`` raises an error, too."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _no_function() -> None:
    """Takes no argument."""


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "5": lambda: 5,
    "-1": lambda: -1,
    "2**63": lambda: 2**63,
    "10**40": lambda: 10**40,
    "1.5": lambda: 1.5,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "empty text": lambda: "",
    "text": lambda: "x",
    "NUL": lambda: "\0",
    "half a character": lambda: "a\ud800b",
    "text of a subclass": lambda: Text("x"),
    "bytes": lambda: b"x",
    "list": list,
    "list of None": lambda: [None],
    "list of numbers": lambda: [5],
    "list of text": lambda: ["x"],
    "tuple": tuple,
    "mapping": dict,
    "mapping of text": lambda: {"a": "b"},
    "mapping of numbers": lambda: {1: 2},
    "set": lambda: {1},
    "iterator": lambda: iter([]),
    "object": object,
    "without text": Odd,
    "class": lambda: Odd,
    "function": lambda: _no_function,
    "naive time": lambda: datetime.datetime(2026, 1, 1),
    "time": lambda: datetime.datetime(1, 1, 1, tzinfo=datetime.timezone.utc),
    "date": lambda: datetime.date(2026, 1, 1),
    "duration": lambda: datetime.timedelta(days=-1),
    "longest duration": lambda: datetime.timedelta.max,
    "decimal": lambda: decimal.Decimal("NaN"),
    "path": lambda: Path("x"),
    "rows": lambda: ROWS,
    "Arrow schema": lambda: pa.schema([]),
    "Arrow type": lambda: pa.int64(),
    "Arrow array": lambda: pa.array([1]),
    "NumPy number": lambda: np.int64(3),
    "NumPy array": lambda: np.array([1, 2]),
    "predicate": lambda: col("i") == 1,
    "field": lambda: StructField("x", 5),  # type: ignore[arg-type]
}  # fmt: skip


@dataclass
class World:
    """Creates a new table for each call that changes something."""

    root: Path

    @property
    def place(self) -> Path:
        return self.root / "t"

    def table(self) -> DeltaTable:
        return DeltaTable.open(self.place, environment=environment())

    def manager(self) -> TransactionManager:
        return TransactionManager(str(self.root / "catalog.db"))


def _parquet(root: Path) -> Path:
    (root / "i=1").mkdir(parents=True, exist_ok=True)
    pq.write_table(ROWS.select(["s"]), root / "i=1" / "x.parquet")
    return root


Call = tuple[Callable[..., Any], dict[str, Any]]
CALLS: dict[type, dict[str, Callable[[World], Call]]] = {
    DeltaTable: {
        "open": lambda w: (DeltaTable.open, {"url": w.place}),
        "exists": lambda w: (DeltaTable.exists, {"url": w.place}),
        "create": lambda w: (DeltaTable.create, {"url": w.root / "new", "schema": SCHEMA}),
        "create_for_blobs": lambda w: (DeltaTable.create_for_blobs, {"url": w.root / "new"}),
        "create_transaction": lambda w: (
            lambda **given: DeltaTable.create_transaction(**given).commit(),
            {"url": w.root / "new", "schema": SCHEMA},
        ),
        "convert": lambda w: (DeltaTable.convert, {"url": _parquet(w.root / "new")}),
        "clone": lambda w: (w.table().clone, {"target": w.root / "new"}),
        "snapshot": lambda w: (w.table().snapshot, {}),
        "version_at": lambda w: (w.table().version_at, {"timestamp": 0}),
        "explain_timestamp": lambda w: (
            lambda **given: str(w.table().explain_timestamp(**given)),
            {"timestamp": 0},
        ),
        "history": lambda w: (w.table().history, {}),
        "changes": lambda w: (
            lambda **given: list(w.table().changes(**given).batches()),
            {"from_version": 0},
        ),
        "transaction": lambda w: (w.table().transaction, {}),
        "retrying": lambda w: (w.table().retrying, {"work": lambda table: table.version}),
        "append": lambda w: (w.table().append, {"data": ROWS}),
        "stage": lambda w: (w.table().stage, {"data": ROWS}),
        "commit_staged": lambda w: (w.table().commit_staged, {"staged": []}),
        "discard_staged": lambda w: (w.table().discard_staged, {"staged": []}),
        "overwrite": lambda w: (w.table().overwrite, {"data": ROWS}),
        "merge": lambda w: (
            lambda **given: w.table().merge(**given).when_matched_delete().execute(),
            {"source": ROWS, "predicate": "target.i = source.i"},
        ),
        "delete": lambda w: (w.table().delete, {"where": "i = 1"}),
        "set_properties": lambda w: (w.table().set_properties, {"properties": {"a": "b"}}),
        "unset_properties": lambda w: (w.table().unset_properties, {"keys": ["a"]}),
        "add_constraint": lambda w: (w.table().add_constraint, {"name": "c", "expression": "i > 0"}),
        "drop_constraint": lambda w: (w.table().drop_constraint, {"name": "c"}),
        "enable_in_commit_timestamps": lambda w: (w.table().enable_in_commit_timestamps, {}),
        "disable_in_commit_timestamps": lambda w: (w.table().disable_in_commit_timestamps, {}),
        "add_columns": lambda w: (w.table().add_columns, {"columns": pa.schema([("n", pa.int64())])}),
        "rename_column": lambda w: (w.table().rename_column, {"old": "s", "new": "r"}),
        "drop_columns": lambda w: (w.table().drop_columns, {"columns": ["s"]}),
        "cluster_by": lambda w: (w.table().cluster_by, {"columns": ["i"]}),
        "set_column": lambda w: (w.table().set_column, {"column": "s"}),
        "set_table": lambda w: (w.table().set_table, {}),
        "set_domain_metadata": lambda w: (w.table().set_domain_metadata, {"domain": "d", "configuration": "x"}),
        "remove_domain_metadata": lambda w: (w.table().remove_domain_metadata, {"domain": "d"}),
        "add_feature": lambda w: (w.table().add_feature, {"name": "appendOnly"}),
        "drop_feature": lambda w: (w.table().drop_feature, {"name": "checkConstraints"}),
        "restore": lambda w: (w.table().restore, {"version": 0}),
        "checkpoint": lambda w: (w.table().checkpoint, {}),
        "compute_statistics": lambda w: (w.table().compute_statistics, {}),
        "compact_log": lambda w: (w.table().compact_log, {}),
        "cleanup_log": lambda w: (w.table().cleanup_log, {"dry_run": True}),
    },
    Snapshot: {
        "transaction_version": lambda w: (w.table().snapshot().transaction_version, {"app_id": "a"}),
        "files": lambda w: (w.table().snapshot().files, {}),
        "statistics": lambda w: (w.table().snapshot().statistics, {}),
        "file_path": lambda w: (w.table().snapshot().file_path, {"add_path": "x"}),
        "scan": lambda w: (lambda **given: w.table().snapshot().scan(**given).to_arrow(), {}),
    },
    Scan: {
        "files": lambda w: (w.table().snapshot().scan().files, {}),
        "batches": lambda w: (lambda **given: list(w.table().snapshot().scan().batches(**given)), {}),
        "to_arrow": lambda w: (w.table().snapshot().scan().to_arrow, {}),
        "to_pandas": lambda w: (w.table().snapshot().scan().to_pandas, {}),
    },
    Dataset: {
        "__init__": lambda w: (lambda **given: Dataset(**given).write(ROWS), {"url": w.root / "new"}),
        "table": lambda w: (Dataset(w.place).table, {}),
        "latest": lambda w: (Dataset(w.place).latest, {}),
        "snapshots": lambda w: (Dataset(w.place).snapshots, {}),
        "snapshot": lambda w: (Dataset(w.place).snapshot, {"version": 0}),
        "write": lambda w: (Dataset(w.root / "new").write, {"data": ROWS}),
        "stream_write": lambda w: (Dataset(w.root / "new").stream_write, {}),
        "stream_write_records": lambda w: (
            Dataset(w.root / "new", schema=SCHEMA).stream_write_records,
            {"records": [{"i": 1}]},
        ),
    },
    TransactionManager: {
        "__init__": lambda w: (TransactionManager, {"url": str(w.root / "another.db")}),
        "create_table": lambda w: (
            w.manager().create_table,
            {"name": "new", "url": str(w.root / "new"), "schema": SCHEMA},
        ),
        "create_transaction": lambda w: (
            w.manager().create_transaction,
            {"name": "new", "url": str(w.root / "new"), "schema": SCHEMA},
        ),
        "register_table": lambda w: (w.manager().register_table, {"name": "new", "url": str(w.place)}),
        "drop_table": lambda w: (w.manager().drop_table, {"name": "m"}),
        "release_table": lambda w: (w.manager().release_table, {"name": "m"}),
        "list_tables": lambda w: (w.manager().list_tables, {}),
        "table": lambda w: (w.manager().table, {"name": "m"}),
        "publish": lambda w: (w.manager().publish, {"name": "m"}),
        "restart_timestamps": lambda w: (w.manager().restart_timestamps, {"name": "m"}),
        "consistent_cut": lambda w: (w.manager().consistent_cut, {"timestamp": 0}),
        "transaction": lambda w: (w.manager().transaction, {}),
        "start_transaction": lambda w: (w.manager().start_transaction, {}),
        "commit_transaction": lambda w: (w.manager().commit_transaction, {"transaction_id": "x"}),
        "cancel_transaction": lambda w: (w.manager().cancel_transaction, {"transaction_id": "x"}),
        "extend_transaction": lambda w: (w.manager().extend_transaction, {"transaction_id": "x"}),
        "describe_transaction": lambda w: (w.manager().describe_transaction, {"transaction_id": "x"}),
        "list_transactions": lambda w: (w.manager().list_transactions, {}),
        "delete_objects_on_cancel": lambda w: (
            w.manager().delete_objects_on_cancel,
            {
                "transaction_id": w.manager().start_transaction(),
                "name": "m",
                "objects": [VirtualObject(str(w.root / "m" / "x.parquet"))],
            },
        ),
        "update_table_objects": lambda w: (
            w.manager().update_table_objects,
            {"name": "m", "operations": [AddObject(str(w.root / "m" / "x.parquet"), "x", 1)]},
        ),
        "get_table_objects": lambda w: (w.manager().get_table_objects, {"name": "m"}),
        "recover": lambda w: (w.manager().recover, {}),
    },
    StructType: {
        "field": lambda w: (SCHEMA.field, {"name": "i"}),
        "find": lambda w: (SCHEMA.find, {"name": "i"}),
        "to_json": lambda w: (SCHEMA.to_json, {}),
        "from_json": lambda w: (StructType.from_json, {"text": SCHEMA.to_json()}),
        "from_arrow": lambda w: (StructType.from_arrow, {"schema": ROWS.schema}),
        "to_arrow": lambda w: (SCHEMA.to_arrow, {}),
    },
    StagedFiles: {
        "to_json": lambda w: (w.table().stage(ROWS).to_json, {}),
        "from_json": lambda w: (StagedFiles.from_json, {"text": "{}"}),
    },
    StreamWriter: {
        "write": lambda w: (_blobs(w).stream_write().write, {"data": b"x"}),
        "commit": lambda w: (_blobs(w).stream_write().commit, {}),
        "abort": lambda w: (_blobs(w).stream_write().abort, {}),
        "close": lambda w: (_blobs(w).stream_write().close, {}),
    },
    Changes: {
        "batches": lambda w: (lambda **given: list(w.table().changes(0).batches(**given)), {}),
        "to_arrow": lambda w: (w.table().changes(0).to_arrow, {}),
        "files": lambda w: (w.table().changes(0).files, {}),
    },
}
# Calls on a transaction before its commit; it must be possible to open the table after each of them.
STAGING: dict[str, Callable[[World], dict[str, Any]]] = {
    "add": lambda w: {"files": w.table().stage(ROWS).files[0], "known": False},
    "add_parquet_files": lambda w: {"files": []},
    "write": lambda w: {"reader": ROWS.to_reader()},
    "remove": lambda w: {"paths": []},
    "remove_all_files": lambda w: {},
    "find_files": lambda w: {},
    "remove_files": lambda w: {"files": w.table().snapshot().files()},
    "replace_partitions": lambda w: {},
    "read_whole_table": lambda w: {},
    "declare_read": lambda w: {"where": "true"},
    "check_conflicts": lambda w: {},
    "add_cdc": lambda w: {"files": AddCDCFile(path="x", partition_values={}, size=1, data_change=False)},
    "set_schema": lambda w: {"schema": SCHEMA},
    "merge_schema": lambda w: {"data": SCHEMA},
    "set_properties": lambda w: {"properties": {"a": "b"}},
    "unset_properties": lambda w: {"keys": ["a"]},
    "set_metadata": lambda w: {},
    "set_domain_metadata": lambda w: {"domain": "d", "configuration": "x"},
    "remove_domain_metadata": lambda w: {"domain": "d"},
    "set_transaction": lambda w: {"app_id": "a", "version": 1},
    "set_commit_annotations": lambda w: {"annotations": {}},
    "commit": lambda w: {},
    "abort": lambda w: {},
}
FUNCTIONS: dict[str, Callable[[World], Call]] = {
    "open_store": lambda w: (open_store, {"url": w.place}),
    "merge_schemas": lambda w: (deltalog.schema.merge_schemas, {"table": SCHEMA, "data": SCHEMA}),
    "Replacement": lambda w: (deltalog.engine.Replacement, {"transaction": w.table().transaction(), "where": "true"}),
    "variant_from_python": lambda w: (deltalog.schema.variant_from_python, {"value": 1}),
    "variant_from_json": lambda w: (deltalog.schema.variant_from_json, {"text": "1"}),
    "variant_to_python": lambda w: (
        deltalog.schema.variant_to_python,
        {"variant": {"metadata": b"\1\0\0", "value": b"\0"}},
    ),
}
# Internal methods, each with valid arguments listed here.
INTERNAL = {
    DeltaTable: {"__init__", "advance"},
    Snapshot: {"__init__", "as_time_travel"},
    Scan: {"__init__", "deleted_positions"},
    StreamWriter: {"__init__"},
    Changes: {"__init__"},
    TransactionManager: {"ratified", "propose_commit", "confirm_published", "resync"},
}  # fmt: skip


def _blobs(world: World) -> Dataset:
    with contextlib.suppress(deltalog.TableExistsError):
        DeltaTable.create_for_blobs(world.root / "blobs")
    return Dataset(world.root / "blobs")


def _public(kind: type) -> set[str]:
    return {
        name
        for name, member in vars(kind).items()
        if (not name.startswith("_") or name == "__init__")
        and (inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod)))
    }


# Methods of these classes that have no entry in a table above get strings for their required parameters.
OWNERS: dict[type, Callable[[World], Any]] = {
    DeltaTable: World.table,
    Snapshot: lambda w: w.table().snapshot(),
    Scan: lambda w: w.table().snapshot().scan(),
    Dataset: lambda w: Dataset(w.place),
    TransactionManager: World.manager,
    Changes: lambda w: w.table().changes(0),
    StreamWriter: lambda w: _blobs(w).stream_write(),
}


def _unlisted(kind: type, name: str) -> Callable[[World], Call]:
    parameters = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = {each.name: "x" for each in parameters if each.default is each.empty and each.kind not in kinds}
    return lambda world: (getattr(OWNERS[kind](world), name), needed)


for _kind in OWNERS:
    for _name in sorted(_public(_kind) - INTERNAL.get(_kind, set()) - CALLS[_kind].keys() - {"__init__"}):
        CALLS[_kind][_name] = _unlisted(_kind, _name)
for _name in sorted(_public(Transaction) - STAGING.keys() - {"__init__"}):
    STAGING[_name] = lambda w: {}


def test_nothing_is_listed_that_is_not_there() -> None:
    for kind, calls in CALLS.items():
        assert calls.keys() <= _public(kind), kind
    assert STAGING.keys() <= _public(Transaction)


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """An in-memory directory if the system has one; syncing thousands of files to disk would take most of the time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as path:
        yield Path(path)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("wrong")
    table = DeltaTable.create(root / "t", SCHEMA, properties=PROPERTIES, environment=environment())
    table.append(ROWS)
    return root


def _parameters(call: Any, base: dict[str, Any]) -> list[str]:
    found = inspect.signature(call).parameters
    names = [name for name, each in found.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return list(dict.fromkeys([*base, *(name for name in names if name != "self")]))


_SHARE = 3
# Parameters that accept a function of the caller; errors that this function raises reach the caller unchanged.
_OWN = {name: {"class", "function"} for name in ("work", "widens", "run_tasks")}
_OPTIONS = tuple(deltalog.WriteOptions.__annotations__)


class Sweep:
    """Makes the calls and records those with a wrong outcome."""

    def __init__(self, template: Path, path: Path) -> None:
        self._template, self._path = template, path
        self._number = 0
        self.faults: list[str] = []
        self.calls = self.accepted = 0
        self.world = self._fresh()

    def _fresh(self) -> World:
        self._number += 1
        root = self._path / str(self._number)
        shutil.copytree(self._template, root)
        return World(root)

    def __call__(self, label: str, make: Callable[[World], Call], parameter: str, wrong: str) -> None:
        before = tree(self.world.root)
        value = WRONG[wrong]()
        self.calls += 1
        what = f"{label}({parameter}={wrong})"
        try:
            call, base = make(self.world)
            call(**{**base, parameter: value})
        except DeltaLogError as error:
            left = [
                name for name in tree(self.world.place) if name not in before and name.endswith((".parquet", ".json"))
            ]
            del left
            if not str(error):
                self.faults.append(f"{what}: no message")
        except Exception as error:
            self.faults.append(f"{what}: {type(error).__name__}: {str(error)[:100]}")
        else:
            self.accepted += 1
        if tree(self.world.root) != before:
            self._look(what)
            self.world = self._fresh()

    def _look(self, what: str) -> None:
        places: list[Any] = [log.parent for log in self.world.root.glob("*/_delta_log") if any(log.glob("*.json"))]
        catalog = self.world.root / "catalog.db"
        managed = {record.url: record.name for record in self.world.manager().list_tables()} if catalog.exists() else {}
        for place in places:
            name = managed.get(str(place))
            try:
                allowed = [str(self.world.place)]  # which a shallow clone names
                table = (
                    DeltaTable.open(place, allowed_paths=allowed) if name is None else self.world.manager().table(name)
                )
                table.snapshot().scan().to_arrow()
            except Exception as error:
                self.faults.append(f"{what} leaves a table that cannot be read: {type(error).__name__}: {error}")


def _stage(name: str, world: World) -> Call:
    def call(**given: Any) -> None:
        with world.table().transaction() as transaction:
            if name in ("add", "add_cdc"):
                files = given.pop("files")
                getattr(transaction, name)(files, **given)
            else:
                getattr(transaction, name)(**given)
            if name not in ("commit", "abort"):
                transaction.commit()

    return call, STAGING[name](world)


CASES = [
    *((kind, name) for kind, calls in CALLS.items() for name in calls),
    *((Transaction, name) for name in STAGING),
    *((None, name) for name in FUNCTIONS),
]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_one_wrong_argument(
    kind: type | None,
    name: str,
    template: Path,
    memory_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(memory_path)
    sweep = Sweep(template, memory_path / "w")
    if kind is None:
        label, make = name, FUNCTIONS[name]
        parameters = _parameters(FUNCTIONS[name](sweep.world)[0], {})
    elif kind is Transaction:
        label, make = f"Transaction.{name}", lambda world: _stage(name, world)
        parameters = _parameters(getattr(kind, name), STAGING[name](sweep.world))
    else:
        label, make = f"{kind.__name__}.{name}", CALLS[kind][name]
        parameters = _parameters(getattr(kind, name), {})
        given = inspect.signature(getattr(kind, name)).parameters.values()
        if any(each.kind is each.VAR_KEYWORD and "WriteOptions" in str(each.annotation) for each in given):
            parameters += _OPTIONS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for parameter in parameters:
            values = sorted(WRONG.keys() - _OWN.get(parameter, set()))
            # Every value is tested with at least one parameter, and every parameter with several values.
            if not request.config.getoption("--long"):
                values = values[len(label + parameter) % _SHARE :: _SHARE]
            for wrong in values:
                sweep(label, make, parameter, wrong)
    assert not sweep.faults, f"{len(sweep.faults)} of {sweep.calls}:\n" + "\n".join(sweep.faults)
