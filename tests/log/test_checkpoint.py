from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import AddFile, DeltaTable, Snapshot
from deltalog.log.checkpoint import checkpoint_tables, write_checkpoint
from deltalog.log.last_checkpoint import read_hint
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import load_latest
from deltalog.spec.paths import checkpoint_path, commit_path
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore, Fault, FaultyStore, nth
from tests.core_env import (
    ICT,
    NOW,
    SCHEMA,
    Clock,
    add_action,
    environment,
    info_action,
    memory,
    metadata_action,
    protocol_action,
    put_commit,
    remove_action,
    rows,
)

WEEK = 7 * 86_400_000
UNIQUE = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
VECTOR = {**UNIQUE, "sizeInBytes": 40, "cardinality": 6}
FEATURES = ("inCommitTimestamp", "deletionVectors", "domainMetadata")


def busy(store: MemoryStore) -> Snapshot:
    """A table with something of everything."""
    put_commit(
        store, 0, info_action(NOW), protocol_action(*FEATURES, reader=3, reader_features=["deletionVectors"]),
        metadata_action({**ICT, "x": "y"}, partition_by=("name",)),
        add_action("a", partitionValues={"name": "n"}, stats='{"numRecords":1}', tags={"t": "u"}),
        add_action("b", partitionValues={"name": None}, baseRowId=7, defaultRowCommitVersion=0, clusteringProvider="c"),
        add_action("old", partitionValues={"name": ""}),
    )  # fmt: skip
    put_commit(
        store, 1, info_action(NOW + 1),
        remove_action("a", partitionValues={"name": "n"}, extendedFileMetadata=True),
        add_action("a", partitionValues={"name": "n"}, deletionVector=VECTOR),
        remove_action("old", deletionTimestamp=NOW - WEEK - 5, size=3),
        {"txn": {"appId": "app", "version": 3, "lastUpdated": 9}},
        {"txn": {"appId": "bare", "version": 1}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        {"domainMetadata": {"domain": "gone", "configuration": "", "removed": True}},
        {"unknownAction": {"x": 1}},
    )  # fmt: skip
    return load_latest(LogReader(store))


def everything(snapshot: Snapshot, keep_after_ms: int) -> dict[str, Any]:
    return {
        "protocol": json.loads(json.dumps(snapshot.protocol.to_json())),
        "metadata": json.loads(json.dumps(snapshot.metadata.to_json())),
        "transactions": sorted((t.app_id, t.version, t.last_updated) for t in snapshot.set_transactions),
        "domains": [d.to_json() for d in snapshot.domain_metadata],
        "files": sorted(snapshot.files().to_pylist(), key=lambda row: row["path"]),
        "tombstones": sorted(snapshot.tombstones(keep_after_ms).to_pylist(), key=lambda row: row["path"]),
    }


def test_a_checkpoint_holds_the_whole_state() -> None:
    store = memory()
    before = busy(store)
    write_checkpoint(before, NOW)
    after = load_latest(LogReader(store))
    assert after.segment.checkpoint_version == 1 and after.segment.commits == ()
    assert everything(after, NOW - WEEK) == everything(before, NOW - WEEK)
    assert [row["path"] for row in everything(after, NOW - WEEK)["tombstones"]] == ["a"]
    # and so does a checkpoint that is made from it
    store.delete(commit_path(0))
    put_commit(store, 2, info_action(NOW + 2))
    second = load_latest(LogReader(store))
    write_checkpoint(second, NOW)
    assert everything(load_latest(LogReader(store)), NOW - WEEK) == everything(before, NOW - WEEK)


def test_a_row_for_each_action_and_a_struct_for_each_kind() -> None:
    snapshot = busy(memory())
    table = pa.concat_tables(checkpoint_tables(snapshot, snapshot.files(), snapshot.tombstones(NOW - WEEK)))
    assert table.schema.names == ["txn", "add", "remove", "metaData", "protocol", "domainMetadata"]
    present = {name: len(table) - table[name].null_count for name in table.schema.names}
    assert present == {"txn": 2, "add": 2, "remove": 1, "metaData": 1, "protocol": 1, "domainMetadata": 1}
    assert len(table) == sum(present.values())
    assert all(row["dataChange"] is False for row in table["add"].to_pylist() if row)
    deletion_vector = table.schema.field("add").type.field("deletionVector").type
    assert {f.name for f in deletion_vector.fields} >= set(VECTOR)
    assert deletion_vector.field("sizeInBytes").type == pa.int32()


def test_tombstones_expire_by_the_property() -> None:
    store = memory()
    put_commit(
        store, 0, info_action(), protocol_action(),
        metadata_action({"delta.deletedFileRetentionDuration": "interval 1 hour"}),
        *(add_action(n) for n in "abc"),
    )  # fmt: skip
    put_commit(
        store, 1, info_action(),
        remove_action("a", deletionTimestamp=NOW - 3_600_000), remove_action("b", deletionTimestamp=NOW - 3_599_999),
        {"remove": {"path": "c", "dataChange": True}},
    )  # fmt: skip
    write_checkpoint(load_latest(LogReader(store)), NOW)
    kept = load_latest(LogReader(store)).tombstones(-1)
    assert kept["path"].to_pylist() == ["b"]


def test_the_hint_names_what_was_written() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    table.append(rows(1))
    table.append(rows(2))
    table.checkpoint()
    hint = store.get("_delta_log/_last_checkpoint")
    body = json.loads(hint)
    assert read_hint(hint) == 2
    written = pq.ParquetFile(pa.BufferReader(store.get(checkpoint_path(2))))
    assert body["size"] == written.metadata.num_rows == 4
    assert body["sizeInBytes"] == len(store.get(checkpoint_path(2)))
    assert body["numOfAddFiles"] == 2


@pytest.mark.parametrize("local", [True, False])
def test_due_checkpoints_are_written_and_used(local: bool, tmp_path: Any) -> None:
    inner = LocalStore(tmp_path) if local else memory()
    store = CountingStore(inner)
    table = DeltaTable.create(store, SCHEMA, properties={"delta.checkpointInterval": "3"}, environment=environment())
    for i in range(1, 8):
        table.append(rows(i))
    listing = LogReader(store).list_from()
    assert [c.version for c in listing.checkpoints] == [3, 6]
    with store.counted() as calls:
        assert DeltaTable.open(store).version == 7
    assert calls.of("get", "*.json") <= 2


def test_a_checkpoint_of_the_first_version_is_not_due() -> None:
    store = memory()
    DeltaTable.create(store, SCHEMA, properties={"delta.checkpointInterval": "1"}, environment=environment())
    assert not LogReader(store).list_from().checkpoints


def test_another_writers_checkpoint_is_kept() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    table.append(rows(1))
    table.checkpoint()
    first = store.get(checkpoint_path(1))
    table.checkpoint()
    DeltaTable.open(store).checkpoint()
    assert store.get(checkpoint_path(1)) == first


def test_a_hint_is_written_after_the_checkpoint_only() -> None:
    inner = memory()
    table = DeltaTable.create(inner, SCHEMA, environment=environment())
    table.append(rows(1))
    store = FaultyStore(inner, nth(1, Fault.KILL_AFTER, method="put_if_absent", path="*.checkpoint.parquet"))
    with pytest.raises(BaseException, match="killed"):
        DeltaTable.open(store).checkpoint()
    assert inner.head("_delta_log/_last_checkpoint") is None
    assert DeltaTable.open(inner).snapshot().num_files == 1


def test_a_large_table_keeps_its_order_of_columns_and_its_files() -> None:
    store = memory()
    put_commit(store, 0, info_action(), protocol_action(), metadata_action())
    table = DeltaTable.open(store, environment=environment())
    with table.transaction() as transaction:
        for i in range(3_000):
            transaction.add(
                AddFile(path=f"f{i}", partition_values={}, size=i, modification_time=i, data_change=True, stats=None)
            )
        transaction.commit()
    table.checkpoint()
    found = load_latest(LogReader(store))
    assert found.segment.checkpoint_version == 1
    assert found.files().sort_by("size")["path"].to_pylist() == [f"f{i}" for i in range(3_000)]
    assert found.size_bytes == sum(range(3_000))


def test_checkpointing_does_not_change_what_a_handle_sees() -> None:
    clock = Clock()
    store = memory(clock)
    table = DeltaTable.create(store, SCHEMA, properties=ICT, environment=environment(clock))
    table.append(rows(1))
    before = table.snapshot()
    table.checkpoint()
    after = table.snapshot()
    assert (after.version, after.timestamp_ms, after.num_files) == (before.version, before.timestamp_ms, 1)
    table.append(rows(2))
    assert table.snapshot().in_commit_timestamp_ms == NOW + 2
