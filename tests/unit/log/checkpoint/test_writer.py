from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable, Snapshot, StoreError
from deltalog.engine import AddFile
from deltalog.log.checkpoint.last_checkpoint import read_hint
from deltalog.log.checkpoint.writer import write_checkpoint
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import checkpoint_path, commit_path
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore, Fault, FaultyStore, nth
from tests.benchmarks import livefiles
from tests.benchmarks.livefiles import CHECKPOINT, TAIL, FilesTable
from tests.support.core import (
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
    """A table that has actions and features of every kind."""
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
    return Snapshot(load_latest(LogReader(store)))


def everything(snapshot: Snapshot, keep_after_ms: int) -> dict[str, Any]:
    return {
        "protocol": json.loads(json.dumps(snapshot.protocol.to_json())),
        "metadata": json.loads(json.dumps(snapshot.metadata.to_json())),
        "transactions": sorted((t.app_id, t.version, t.last_updated) for t in snapshot.set_transactions),
        "domains": [d.to_json() for d in snapshot.domain_metadata],
        "files": sorted(snapshot.files().to_pylist(), key=lambda row: row["path"]),
        "tombstones": sorted(snapshot.log.cache.tombstones(keep_after_ms).to_pylist(), key=lambda row: row["path"]),
    }


def test_a_checkpoint_holds_the_whole_state() -> None:
    store = memory()
    before = busy(store)
    write_checkpoint(before.log, NOW)
    after = Snapshot(load_latest(LogReader(store)))
    assert after.log.segment.checkpoint_version == 1 and after.log.segment.commits == ()
    assert everything(after, NOW - WEEK) == everything(before, NOW - WEEK)
    assert [row["path"] for row in everything(after, NOW - WEEK)["tombstones"]] == ["a"]
    # A checkpoint that is written from the first one and a later commit has the same content.
    store.delete(commit_path(0))
    put_commit(store, 2, info_action(NOW + 2))
    second = Snapshot(load_latest(LogReader(store)))
    write_checkpoint(second.log, NOW)
    assert everything(Snapshot(load_latest(LogReader(store))), NOW - WEEK) == everything(before, NOW - WEEK)


def test_a_row_for_each_action_and_a_struct_for_each_kind() -> None:
    store = memory()
    write_checkpoint(busy(store).log, NOW)
    table = pq.read_table(pa.BufferReader(store.get(checkpoint_path(1))))
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
    kept = Snapshot(load_latest(LogReader(store))).log.cache.tombstones(-1)
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
    found = Snapshot(load_latest(LogReader(store)))
    assert found.log.segment.checkpoint_version == 1
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


# ----------------------------------------------------------------------------------------------------------- V2

V2 = {"delta.checkpointPolicy": "v2"}
V2_FEATURES = (*FEATURES, "v2Checkpoint")
FORMS: dict[str, dict[str, Any]] = {
    "parquet": {"top_level": "parquet"},
    "json": {"top_level": "json"},
    "parquet with sidecars": {"top_level": "parquet", "sidecar_rows": 2},
    "json with sidecars": {"top_level": "json", "sidecar_rows": 1},
}


def busy_v2(**properties: str) -> tuple[MemoryStore, Snapshot]:
    """A table that has actions and features of every kind, and V2 checkpoints."""
    store = memory()
    busy(store)
    put_commit(
        store, 2, info_action(NOW + 2),
        protocol_action(*V2_FEATURES, reader=3, reader_features=["deletionVectors", "v2Checkpoint"]),
        metadata_action({**ICT, **V2, **properties}, partition_by=("name",)),
        add_action("with all", partitionValues={"name": "é"}, stats=STATS, tags={"t": None}),
    )  # fmt: skip
    return store, Snapshot(load_latest(LogReader(store)))


STATS = '{"numRecords":3,"tightBounds":false,"minValues":{"id":1},"maxValues":{"id":7},"nullCount":{"id":2}}'
FORM_OF_STATISTICS = {
    "both": {},
    "text": {"delta.checkpoint.writeStatsAsStruct": "false"},
    "structs": {"delta.checkpoint.writeStatsAsJson": "false"},
}


@pytest.mark.parametrize("statistics", FORM_OF_STATISTICS)
@pytest.mark.parametrize("form", FORMS)
def test_a_v2_checkpoint_holds_the_whole_state(form: str, statistics: str) -> None:
    store, before = busy_v2(**FORM_OF_STATISTICS[statistics])
    write_checkpoint(before.log, NOW, **FORMS[form])
    names = [name for name in store.list_names("_delta_log") if ".checkpoint." in name]
    assert len(names) == 1 and re.fullmatch(r"\d{20}\.checkpoint\.[0-9a-f-]{36}\." + form.split()[0], names[0])
    sidecars = store.list_names("_delta_log/_sidecars")
    assert bool(sidecars) == ("sidecars" in form)
    after = Snapshot(load_latest(LogReader(store)))
    assert after.log.segment.checkpoint is not None and after.log.segment.commits == ()
    expected, found = everything(before, NOW - WEEK), everything(after, NOW - WEEK)
    for files in (expected["files"], found["files"]):
        for row in files:
            row["stats"] = row["stats"] and json.loads(row["stats"])
    # The statistics structs contain a field for every column; the field is null if the value is unknown.
    if statistics == "structs":
        assert all(row["stats"].pop("numRecords", 0) is not None for row in found["files"] if row["stats"])
        assert all(row["stats"].pop("numRecords", 0) is not None for row in expected["files"] if row["stats"])
        for files in (expected["files"], found["files"]):
            for row in files:
                row["stats"] = {k: v for k, v in (row["stats"] or {}).items() if v != {}} or None
    assert found == expected
    assert (
        after.statistics().sort_by("num_records").to_pylist() == before.statistics().sort_by("num_records").to_pylist()
    )


def test_what_a_v2_checkpoint_says_of_itself() -> None:
    store, snapshot = busy_v2()
    write_checkpoint(snapshot.log, NOW, sidecar_rows=2)
    (name,) = (name for name in store.list_names("_delta_log") if ".checkpoint." in name)
    rows = pq.read_table(pa.BufferReader(store.get(f"_delta_log/{name}"))).to_pylist()
    kinds = sorted(key for row in rows for key, body in row.items() if body is not None)
    assert kinds == sorted(
        ["checkpointMetadata", "metaData", "protocol", "txn", "txn", "domainMetadata", *["sidecar"] * 2]
    )
    (about,) = (row["checkpointMetadata"] for row in rows if row["checkpointMetadata"])
    named = [row["sidecar"] for row in rows if row["sidecar"]]
    sizes = {name: len(store.get(f"_delta_log/_sidecars/{name}")) for name in store.list_names("_delta_log/_sidecars")}
    assert {each["path"]: each["sizeInBytes"] for each in named} == sizes
    assert about["version"] == 2 and dict(about["tags"]) == {
        "numOfAddFiles": "3", "sidecarNumActions": "4", "sidecarSizeInBytes": str(sum(sizes.values()))
    }  # fmt: skip
    hint = json.loads(store.get("_delta_log/_last_checkpoint"))
    assert read_hint(store.get("_delta_log/_last_checkpoint")) == 2
    assert (hint["size"], hint["numOfAddFiles"]) == (len(rows) + 4, 3)
    assert hint["v2Checkpoint"] == {
        "path": name, "sizeInBytes": len(store.get(f"_delta_log/{name}")), "modificationTime": NOW
    }  # fmt: skip
    assert hint["sizeInBytes"] == hint["v2Checkpoint"]["sizeInBytes"] + sum(sizes.values())
    schema = pq.read_schema(pa.BufferReader(store.get(f"_delta_log/_sidecars/{named[0]['path']}")))
    assert schema.names == ["add", "remove"]


@pytest.mark.parametrize(("files", "sidecars"), [(0, 0), (1, 0), (10, 0), (11, 2), (20, 2), (21, 3)])
def test_more_file_actions_than_one_sidecar_holds_go_into_sidecars(files: int, sidecars: int) -> None:
    store = memory()
    put_commit(
        store, 0, info_action(), protocol_action("v2Checkpoint", reader=3, reader_features=["v2Checkpoint"]),
        metadata_action(V2), *(add_action(f"f{n}") for n in range(files)),
    )  # fmt: skip
    write_checkpoint(load_latest(LogReader(store)), NOW, sidecar_rows=10)
    assert len(store.list_names("_delta_log/_sidecars")) == sidecars
    assert Snapshot(load_latest(LogReader(store))).num_files == files


@pytest.mark.parametrize(("policy", "features"), [("v2", ()), ("classic", ("v2Checkpoint",))])
def test_it_takes_both_the_policy_and_the_feature(policy: str, features: tuple[str, ...]) -> None:
    store = memory()
    protocol = protocol_action(*features, reader=3 if features else 1, reader_features=list(features) or None)
    put_commit(store, 0, info_action(), protocol, metadata_action({"delta.checkpointPolicy": policy}))
    write_checkpoint(load_latest(LogReader(store)), NOW)
    assert store.head(checkpoint_path(0)) is not None


@pytest.mark.slow
def test_a_failure_at_any_call_leaves_nothing_that_is_taken_for_a_checkpoint() -> None:
    methods = {"open_output": "*_sidecars*", "put_if_absent": "*.checkpoint.*", "open_input": "*", "put": "*_last*"}
    for form in FORMS.values():
        for method, path in methods.items():
            for number in range(1, 7):
                inner, before = busy_v2()
                expected = everything(before, NOW - WEEK)
                faulty = FaultyStore(inner, nth(number, Fault.FAIL_BEFORE, method=method, path=path))
                try:
                    write_checkpoint(load_latest(LogReader(faulty)), NOW, **form)
                except StoreError:
                    assert inner.head("_delta_log/_last_checkpoint") is None
                    if method in ("open_output", "put_if_absent"):
                        assert Snapshot(load_latest(LogReader(inner))).log.segment.checkpoint is None
                    if method == "open_output":
                        assert inner.list_names("_delta_log/_sidecars") == []
                else:
                    assert sum(faulty.injected.values()) == 0
                assert everything(Snapshot(load_latest(LogReader(inner))), NOW - WEEK) == expected


def test_a_transaction_older_than_the_retention_is_left_out() -> None:
    store = memory()
    put_commit(
        store, 0, info_action(), protocol_action(),
        metadata_action({"delta.setTransactionRetentionDuration": "interval 1 day"}),
        {"txn": {"appId": "old", "version": 1, "lastUpdated": NOW - 86_400_000}},
        {"txn": {"appId": "new", "version": 1, "lastUpdated": NOW - 86_399_999}},
        {"txn": {"appId": "timeless", "version": 1}},
    )  # fmt: skip
    write_checkpoint(load_latest(LogReader(store)), NOW)
    found = Snapshot(load_latest(LogReader(store)))
    assert found.log.segment.checkpoint is not None
    assert sorted(t.app_id for t in found.set_transactions) == ["new", "timeless"]


# ----------------------------------------------------------------------------------------- writing as a stream


@pytest.mark.parametrize("damaged", [(2,), (1, 2)])
def test_what_cannot_be_read_is_passed_over_by_the_next_checkpoint(damaged: tuple[int, ...]) -> None:
    """The footers are intact, so the damage is detected only after half of the files have been written."""
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for number in range(1, 4):
        table.append(rows(number))
        table.checkpoint()
    store.delete(checkpoint_path(3))
    for version in damaged:
        store.put(checkpoint_path(version), torn_in_the_middle(store.get(checkpoint_path(version))))
    fresh = DeltaTable.open(store, environment=environment())
    fresh.checkpoint()
    found = Snapshot(load_latest(LogReader(store)))
    assert found.log.segment.checkpoint_version == 3 and found.files().num_rows == 3


def torn_in_the_middle(data: bytes) -> bytes:
    """A Parquet file with an intact footer and small intact actions (protocol, metaData); only the pages of the path
    column are damaged."""
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    group = metadata.row_group(0)
    (chunk,) = (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "add.path")
    at = chunk.data_page_offset + chunk.total_compressed_size - 12
    return data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + 8]) + data[at + 8 :]


def test_what_is_in_memory_stays_there_and_what_is_not_is_not_read() -> None:
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for number in range(1, 4):
        table.append(rows(number))
    DeltaTable.open(store, environment=environment()).checkpoint()
    table = DeltaTable.open(store, environment=environment())
    table.append(rows(4))
    with store.counted() as calls:
        table.checkpoint()
    assert calls.of("open_input", "*3.checkpoint.parquet") == 2  # the adds and the removes
    assert table.snapshot().log.cache.known_totals is not None and table.snapshot().num_files == 4
    assert "_files" not in vars(table.snapshot())
    table.snapshot().files()
    with store.counted() as calls:
        table.checkpoint()
    assert calls.of("open_input", "*3.checkpoint.parquet") == 0
    assert table.snapshot().files().num_rows == 4


MEASURED = """
import sys
import pyarrow as pa
from deltalog import DeltaTable
DeltaTable.open(sys.argv[1]).checkpoint()
print(pa.default_memory_pool().max_memory())
"""


@pytest.mark.long
def test_the_memory_that_it_takes_is_not_that_of_the_table(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak of Arrow's memory in a separate process is compared with the memory that the whole list of files would
    need."""
    # The rows of the base checkpoint are read in batches of this size.
    monkeypatch.setattr(livefiles, "ROW_GROUP", 20_000)
    (tmp_path / "_delta_log").mkdir()
    FilesTable("measured", 300_000).write(tmp_path)
    files = DeltaTable.open(tmp_path).snapshot().files().nbytes
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, check=True, timeout=300
    )
    written = (tmp_path / checkpoint_path(CHECKPOINT + TAIL)).stat().st_size
    assert int(done.stdout) < 0.9 * files and int(done.stdout) < 5 * written
