"""The operations whose store calls ``sweep`` makes fail; OPERATIONS has one row for each.

A new public method of ``DeltaTable`` needs a row here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.commit_result import CommitResult
from deltalog.dataset import Dataset
from deltalog.environment import Environment
from deltalog.errors import TableNotFoundError
from deltalog.log.file_tables import add_actions
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.storage.registry import open_store
from deltalog.table import DeltaTable
from deltalog.testing.recording import seeded_environment
from deltalog.testing.stores import FaultyStore
from tests.support.simulation.scheduler import START_MS

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.string()), ("p", pa.string())])
ENABLE = "delta.enableInCommitTimestamps"
#: ``alone``: no other writer commits; ``behind``: another writer has committed since the handle was opened; ``raced``:
#: another writer commits between the reads of the operation and its own commit.
SETTINGS = ("alone", "behind", "raced")
TABLES = ("plain", "timed")


@dataclass(frozen=True)
class Swept:
    """A row of OPERATIONS. ``run`` is called with the handle, and with the commit's token if the method accepts one.

    ``declared``: the values of fields of ``checker.Operation`` that the operation declares. ``reads``: the operation
    only reads, and faults must not change its result. ``opens``: whether the operation is called with the store and the
    environment instead of a handle. ``tables``, ``settings``: those with which the operation can run; ``new``: whether
    the operation creates the table. ``properties``: table properties, in addition to the usual ones; ``setup``: a
    function that prepares the tables.
    """

    name: str
    run: Callable[..., Any]
    declared: Mapping[str, Any] = field(default_factory=dict)
    reads: bool = False
    opens: bool = False
    new: bool = False
    tables: Sequence[str] = TABLES
    settings: Sequence[str] = SETTINGS
    properties: Mapping[str, str] = field(default_factory=dict)
    setup: Callable[[DeltaTable], Any] | None = None


def example_rows(name: str) -> pa.Table:
    start = sum(name.encode()) * 10
    return pa.table({"x": [start, start + 1, start + 2], "y": ["", None, name], "p": ["a", "a", name]}, SCHEMA)


def _create_with_rows(store: LogStore, environment: Environment, token: str) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, partition_by=["p"], data=example_rows("one"), environment=environment)


def create(store: LogStore, environment: Environment, token: str) -> CommitResult:
    with DeltaTable.create_transaction(store, SCHEMA, partition_by=["p"], environment=environment) as transaction:
        transaction.write(example_rows("one").to_reader())
        return transaction.commit("CREATE TABLE AS SELECT", user_metadata=token)


def _convert(store: FaultyStore, environment: Environment, token: str) -> DeltaTable:
    """Convert one existing file, with one thread so that the calls come in a fixed order."""
    with store.inner.open_output("p=one/x.parquet") as file:
        pq.write_table(example_rows("one").drop_columns("p"), file)
    return DeltaTable.convert(store, user_metadata=token, environment=environment)


@functools.cache
def _cloned() -> LogStore:
    """An in-memory table to clone, with one file and two versions."""
    store = open_store("memory://cloned-by-the-sweep")
    environment = seeded_environment("cloned", lambda: START_MS)
    DeltaTable.create(store, SCHEMA, partition_by=["p"], environment=environment, data=example_rows("a").slice(0, 2))
    return store


def _clone(store: LogStore, environment: Environment, token: str) -> DeltaTable:
    return DeltaTable.open(_cloned(), environment=environment).clone(store, user_metadata=token)


def _open(store: FaultyStore, environment: Environment, token: str) -> Any:
    table = DeltaTable.open(store, environment=environment)
    return table.version, sorted(table.snapshot().files()["path"].to_pylist())


def _exists(store: FaultyStore, environment: Environment, token: str) -> Any:
    return DeltaTable.exists(store)


def _not_there(store: FaultyStore, environment: Environment, token: str) -> Any:
    try:
        DeltaTable.open(store, environment=environment)
    except TableNotFoundError:
        return "not there"
    return "there"


def _unpartitioned(table: DeltaTable) -> None:
    """Remove all files and the partition columns of a table, because a clustered table has no partition columns."""
    with table.transaction() as transaction:
        transaction.remove_all_files()
        transaction.set_schema(transaction.schema, [])
        transaction.commit()


def _remove_one(table: DeltaTable, token: str) -> CommitResult:
    with table.transaction() as transaction:
        assert transaction.snapshot is not None
        transaction.remove(sorted(transaction.snapshot.files()["path"].to_pylist())[:1])
        return transaction.commit("DELETE", user_metadata=token)


def _replace_one(table: DeltaTable, token: str) -> CommitResult:
    with table.transaction() as transaction:
        assert transaction.snapshot is not None
        transaction.remove(sorted(transaction.snapshot.files()["path"].to_pylist())[:1])
        transaction.write(example_rows("new").to_reader())
        return transaction.commit("UPDATE", user_metadata=token)


def _latest(table: DeltaTable, token: str) -> Any:
    snapshot = table.snapshot()
    return snapshot.version, sorted(map(repr, snapshot.scan().to_arrow().to_pylist()))


def _first(table: DeltaTable, token: str) -> Any:
    snapshot = table.snapshot(version=1)
    return snapshot.version, sorted(snapshot.scan(where="x > 0").to_arrow()["x"].to_pylist())


def _delete_some(table: DeltaTable, token: str) -> CommitResult:
    """Delete one of the two rows in some of the files, so that these files are rewritten or get deletion vectors."""
    return table.delete("x = 3220 or x = 3461", user_metadata=token)


def _update_some(table: DeltaTable, token: str) -> CommitResult:
    """Update one row in each of two files."""
    return table.update({"x": "x + 0"}, "x = 3220 or x = 3461", user_metadata=token)


def _merge_some(table: DeltaTable, token: str) -> CommitResult:
    """Delete one row and update another, in two files, and insert one."""
    source = pa.table({"x": [3220, 3461, 5], "y": ["", "m", "m"], "p": ["a", "b", "b"]}, SCHEMA)
    return (
        table.merge(source, "target.x = source.x", user_metadata=token)
        .when_matched_delete("source.p = 'a'")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )


def _compact(table: DeltaTable, token: str) -> CommitResult:
    """Compact three partitions, with one thread so that the calls come in a fixed order."""
    return table.optimize.compact(max_concurrent_tasks=1, user_metadata=token).commits[0]


def _purge(table: DeltaTable, token: str) -> CommitResult:
    return table.optimize.purge(max_concurrent_tasks=1, user_metadata=token).commits[0]


def _without_statistics(table: DeltaTable) -> CommitResult:
    """Add one file without statistics, with one thread so that the calls come in a fixed order."""
    with table.transaction() as transaction:
        add = add_actions(table.snapshot().files())[0]
        transaction.add(msgspec.structs.replace(add, stats=None, data_change=False), known=True)
        return transaction.commit("WRITE")


def _z_order(table: DeltaTable, token: str) -> CommitResult:
    return table.optimize.z_order(["x", "y"], max_concurrent_tasks=1, user_metadata=token).commits[0]


def _as_result(snapshot: Snapshot) -> CommitResult:
    return CommitResult(snapshot.version, 0, snapshot.in_commit_timestamp_ms, 1, "")


def _write(table: DeltaTable, token: str) -> CommitResult:
    return _as_result(Dataset(table).write(example_rows("new"), {"token": token}, checksum="sha256"))


def _write_again(table: DeltaTable, token: str) -> CommitResult:
    return _as_result(
        Dataset(table).write(example_rows("new"), {"token": token}, expected_parent=table.version, retry_count=3)
    )


def _commit_staged(table: DeltaTable, token: str) -> CommitResult:
    staged = [table.stage(example_rows(name)) for name in ("new", "newer")]
    return _as_result(table.commit_staged(staged, {"token": token}))


def _first_records(store: LogStore, environment: Environment, token: str) -> CommitResult:
    dataset = Dataset(store, schema=SCHEMA, environment=environment)
    return _as_result(dataset.stream_write_records(example_rows("one").to_batches(), {"token": token}, retry_count=1))


def _first_blob(store: LogStore, environment: Environment, token: str) -> CommitResult:
    with Dataset(store, environment=environment).stream_write({"token": token}, checksum="sha256") as writer:
        writer.write(b"one")
        return _as_result(writer.commit())


_ANY = {"may_change": ["schemaString", "configuration", "name", "description", "protocol"]}
_MAPPED = {"delta.columnMapping.mode": "name"}
_WIDER = pa.table({"x": [1], "y": [""], "p": ["a"], "z": [1.5]})
_HERE = pa.table({"x": [5, 6], "y": ["", ""], "p": ["a", "a"]}, SCHEMA)
_ONE: Mapping[str, Any] = {"removes": []}
_FIRST: dict[str, Any] = {"opens": True, "new": True, "tables": ["plain"], "settings": ["alone", "raced"]}
_SETTING: Mapping[str, Any] = {"adds": [], "removes": []}
_CHANGED_FEED = {"delta.enableChangeDataFeed": "true"}

#: Each row of this list is one operation; to sweep a new method, add a row.
OPERATIONS: tuple[Swept, ...] = (
    Swept("create", _create_with_rows, _ONE, **_FIRST),
    Swept("create by a transaction", create, _ONE, opens=True, new=True, tables=["plain"], settings=["raced"]),
    Swept("convert", _convert, _ONE, **_FIRST),
    Swept("clone", _clone, _ONE, **_FIRST),
    Swept("append", lambda table, token: table.append(example_rows("new"), user_metadata=token), _ONE),
    Swept(
        "append once",
        lambda table, token: table.append(example_rows("new"), user_metadata=token, txn=("app", 7)),
        _ONE,
    ),
    Swept(
        "append with a new column",
        lambda table, token: table.append(_WIDER, merge_schema=True, user_metadata=token),
        {**_ONE, "may_change": ["schemaString"]},
    ),
    Swept("write", _write, _ONE),
    Swept("write, retried", _write_again, _ONE, settings=["behind", "raced"]),
    Swept("commit_staged", _commit_staged, _ONE),
    Swept("stream_write_records, the first ones", _first_records, _ONE, **_FIRST),
    Swept("stream_write, the first bytes", _first_blob, _ONE, **_FIRST),
    Swept(
        "overwrite",
        lambda table, token: table.overwrite(example_rows("new"), user_metadata=token),
        {"removes_all": True},
    ),
    Swept(
        "overwrite with another schema",
        lambda table, token: table.overwrite(_WIDER, overwrite_schema=True, user_metadata=token),
        {"removes_all": True, "may_change": ["schemaString"]},
    ),
    Swept("remove a file", _remove_one, {"adds": []}),
    Swept("replace a file", _replace_one),
    Swept(
        "set properties",
        lambda table, token: table.set_properties({"custom.a": "1"}, user_metadata=token),
        {**_SETTING, "properties": {"custom.a": "1"}},
    ),
    Swept(
        "unset properties",
        lambda table, token: table.unset_properties(["custom.b"], user_metadata=token),
        {**_SETTING, "properties": {"custom.b": None}},
        properties={"custom.b": "1"},
    ),
    Swept(
        "enable in-commit timestamps",
        lambda table, token: table.enable_in_commit_timestamps(),
        {**_SETTING, "properties": {ENABLE: "true"}},
        tables=["plain"],
    ),
    Swept(
        "disable in-commit timestamps",
        lambda table, token: table.disable_in_commit_timestamps(),
        {**_SETTING, "properties": {ENABLE: "false"}},
        tables=["timed"],
    ),
    Swept("overwrite where", lambda table, token: table.overwrite(_HERE, where="p = 'a'", user_metadata=token)),
    Swept(
        "overwrite partitions",
        lambda table, token: table.overwrite(_HERE, partitions="dynamic", user_metadata=token),
    ),
    Swept("delete", _delete_some),
    Swept("delete with vectors", _delete_some, properties={"delta.enableDeletionVectors": "true"}),
    Swept("delete with a change feed", _delete_some, properties=_CHANGED_FEED),
    Swept("update", _update_some),
    Swept("update with vectors", _update_some, properties={"delta.enableDeletionVectors": "true"}),
    Swept("update with a change feed", _update_some, properties=_CHANGED_FEED),
    Swept("merge", _merge_some),
    Swept("merge with vectors", _merge_some, properties={"delta.enableDeletionVectors": "true"}),
    Swept("merge with a change feed", _merge_some, properties=_CHANGED_FEED),
    Swept("optimize", _compact),
    Swept("optimize with row ids", _compact, properties={"delta.enableRowTracking": "true"}),
    Swept(
        "optimize: purge",
        _purge,
        properties={"delta.enableDeletionVectors": "true"},
        setup=lambda table: table.delete("x = 3220 or x = 3461"),
    ),
    Swept(
        "compute_statistics",
        lambda table, token: table.compute_statistics(user_metadata=token),
        setup=_without_statistics,
    ),
    Swept("optimize: Z-order", _z_order, tables=["plain"]),
    Swept(
        "append with row ids",
        lambda table, token: table.append(example_rows("new"), user_metadata=token),
        _ONE,
        properties={"delta.enableRowTracking": "true"},
    ),
    Swept("add_constraint", lambda table, token: table.add_constraint("c", "x > 0", user_metadata=token), _ANY),
    Swept(
        "drop_constraint",
        lambda table, token: table.drop_constraint("c", user_metadata=token),
        _ANY,
        setup=lambda table: table.add_constraint("c", "x > 0"),
    ),
    Swept(
        "add_columns",
        lambda table, token: table.add_columns(pa.schema([("w", pa.int64())]), user_metadata=token),
        _ANY,
    ),
    Swept(
        "rename_column",
        lambda table, token: table.rename_column("x", "x2", user_metadata=token),
        _ANY,
        properties=_MAPPED,
    ),
    Swept(
        "drop_columns",
        lambda table, token: table.drop_columns(["x"], user_metadata=token),
        _ANY,
        properties=_MAPPED,
    ),
    Swept(
        "cluster_by",
        lambda table, token: table.cluster_by(["x"], user_metadata=token),
        {**_SETTING, **_ANY},
        setup=_unpartitioned,
    ),
    Swept("set_column", lambda table, token: table.set_column("x", comment="a number", user_metadata=token), _ANY),
    Swept("set_table", lambda table, token: table.set_table(description="swept", user_metadata=token), _ANY),
    Swept(
        "set_domain_metadata",
        lambda table, token: table.set_domain_metadata("mine", "1", user_metadata=token),
        {**_SETTING, **_ANY},
    ),
    Swept(
        "remove_domain_metadata",
        lambda table, token: table.remove_domain_metadata("mine", user_metadata=token),
        {**_SETTING, **_ANY},
        setup=lambda table: table.set_domain_metadata("mine", "1"),
    ),
    Swept("add_feature", lambda table, token: table.add_feature("v2Checkpoint", user_metadata=token), _ANY),
    Swept("restore", lambda table, token: table.restore(1, user_metadata=token).commit, _ANY),
    Swept(
        "retrying",
        lambda table, token: table.retrying(lambda again: again.delete("x = 3220", user_metadata=token)),
    ),
    Swept("upgrade_protocol", lambda table, token: table.upgrade_protocol(1, 4, user_metadata=token), _ANY),
    Swept("checkpoint", lambda table, token: table.checkpoint(), settings=["alone", "behind"]),
    Swept("compact_log", lambda table, token: table.compact_log(), settings=["alone", "behind"]),
    Swept("cleanup_log", lambda table, token: table.cleanup_log().first_version, settings=["alone", "behind"]),
    Swept("generate", lambda table, token: table.generate(), settings=["alone", "behind"]),
    Swept("open", _open, opens=True, reads=True, settings=["alone"]),
    Swept("exists", _exists, opens=True, reads=True, settings=["alone"]),
    Swept("open what is not there", _not_there, opens=True, new=True, reads=True, tables=["plain"], settings=["alone"]),
    Swept("snapshot", _latest, reads=True, settings=["alone", "behind"]),
    Swept("latest", lambda table, token: table.snapshot().version, reads=True, settings=["alone", "behind"]),
    Swept("snapshots", lambda table, token: Dataset(table).snapshots(), reads=True, settings=["alone", "behind"]),
    Swept("snapshot of a version", _first, reads=True, settings=["alone", "behind"]),
    Swept(
        "snapshot of a time",
        lambda table, token: table.snapshot(timestamp=table.history()[1].timestamp_ms).version,
        reads=True,
        settings=["alone", "behind"],
    ),
    Swept(
        "version_at",
        lambda table, token: table.version_at(START_MS + 500, before="earliest", after="latest").version,
        reads=True,
        settings=["alone", "behind"],
    ),
    Swept(
        "explain_timestamp",
        lambda table, token: table.explain_timestamp(START_MS + 500).to_json(),
        reads=True,
        settings=["alone"],
    ),
    Swept(
        "history",
        lambda table, token: [entry.version for entry in table.history()],
        reads=True,
        settings=["alone", "behind"],
    ),
    Swept(
        "changes",
        lambda table, token: table.changes(1).to_arrow().num_rows,
        reads=True,
        settings=["alone"],
        properties=_CHANGED_FEED,
    ),
)
