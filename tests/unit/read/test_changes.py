from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import (
    CallError,
    CorruptTableError,
    DeltaTable,
    SchemaMismatchError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from deltalog.errors import InvalidCommitError, InvalidDataFileError
from deltalog.protocol.codec import decode_commit
from deltalog.protocol.paths import checksum_path, commit_path
from deltalog.read.changes import plan
from tests.support.core import (
    ICT,
    NOW,
    SCHEMA,
    Clock,
    add_action,
    environment,
    info_action,
    memory,
    put_commit,
    remove_action,
    rows,
)

CDF = {"delta.enableChangeDataFeed": "true"}


def commit(*actions: dict[str, Any]) -> Any:
    import json

    return decode_commit("\n".join(map(json.dumps, actions)).encode(), 3)


def vector(text: str) -> dict[str, Any]:
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 1, "cardinality": 1}


def test_change_files_tell_the_changes_alone() -> None:
    cdc = {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}}
    assert [(p.file.path, p.kind) for p in plan(commit(add_action("a"), remove_action("b"), cdc))] == [("c", None)]


def test_without_change_files_added_and_removed_files_do() -> None:
    actions = [add_action("a"), remove_action("b"), add_action("same", dataChange=False)]
    assert [(p.file.path, p.kind) for p in plan(commit(*actions))] == [("a", "insert"), ("b", "delete")]


def test_a_file_whose_deletion_vector_changed_is_read_for_the_difference() -> None:
    (planned,) = plan(
        commit(remove_action("a", deletionVector=vector("x")), add_action("a", deletionVector=vector("y")))
    )
    assert planned.kind == "difference"
    assert planned.before is not None and planned.after is not None
    assert (planned.before.path_or_inline_dv, planned.after.path_or_inline_dv) == ("x", "y")


NOTHING = {"numTargetRowsInserted": "0", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": "0"}


@pytest.mark.parametrize(
    ("operation", "metrics", "files"),
    [
        ("MERGE", NOTHING, 0),
        ("MERGE", {**NOTHING, "numTargetRowsDeleted": "1"}, 2),
        ("MERGE", {"numTargetRowsInserted": "0"}, 2),
        ("MERGE", None, 2),
        ("WRITE", NOTHING, 2),
    ],
)
def test_a_merge_that_only_rewrote_files_changed_no_row(operation: str, metrics: Any, files: int) -> None:
    info = info_action(operation=operation, operationMetrics=metrics)
    assert len(plan(commit(info, add_action("a"), remove_action("b")))) == files


def table(clock: Clock) -> DeltaTable:
    return DeltaTable.create(memory(clock), SCHEMA, environment=environment(clock), properties=CDF)


def test_batches_are_bounded_and_say_which_commit_they_are_of() -> None:
    clock = Clock()
    made = table(clock)
    many = pa.table({"id": range(300_000), "name": ["n"] * 300_000}, schema=SCHEMA)
    clock.now_ms += 1000
    made.append(many)
    batches = list(made.changes(1).batches())
    assert max(batch.num_rows for batch in batches) <= 1 << 17
    found = pa.Table.from_batches(batches)
    assert found["id"].to_pylist() == list(range(300_000))
    assert set(found["_change_type"].to_pylist()) == {"insert"}
    assert set(found["_commit_version"].to_pylist()) == {1}
    assert {t.timestamp() * 1000 for t in found["_commit_timestamp"].unique().to_pylist()} == {clock.now_ms}


def test_two_times_between_the_same_two_commits_have_no_changes() -> None:
    clock = Clock()
    made = table(clock)
    start = clock.now_ms
    clock.now_ms += 1000
    made.append(rows(1))
    between = made.changes(from_timestamp=start + 100, to_timestamp=start + 200)
    assert list(between.versions) == [] and between.to_arrow().num_rows == 0
    assert made.changes(from_timestamp=start + 100, to_timestamp=start + 1000).to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(CallError, match="empty"):
        made.changes(1, 0)


def test_a_range_that_ends_after_the_latest_version() -> None:
    clock = Clock()
    made = table(clock)
    made.append(rows(1))
    latest = made.history()[0].timestamp_ms
    assert latest is not None and made.changes(1, to_timestamp=latest).to_arrow()["id"].to_pylist() == [1]
    ends: tuple[Any, ...] = ({"to_version": 2}, {"to_timestamp": latest + 1}, {"to_timestamp": latest + 10**9})
    for end in ends:
        with pytest.raises((VersionNotFoundError, TimestampOutOfRangeError)) as refused:
            made.changes(1, **end)
        assert "clamp" not in str(refused.value)
        assert made.changes(1, **end, allow_out_of_range=True).to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(TimestampOutOfRangeError, match="allow_out_of_range=True"):
        made.changes(1, to_timestamp=latest + 1)
    first = made.history()[-1].timestamp_ms
    assert first is not None
    for allowed in (False, True):
        with pytest.raises(TimestampOutOfRangeError, match="before the first"):
            made.changes(0, to_timestamp=first - 1, allow_out_of_range=allowed)


def test_a_range_that_begins_after_the_latest_version() -> None:
    clock = Clock()
    made = table(clock)
    made.append(rows(1))
    later = made.history()[0].timestamp_ms
    assert later is not None
    ends: Any
    begin: Any
    for ends in ({}, {"to_version": 9}, {"to_timestamp": later + 5}):
        assert made.changes(0, **ends, allow_out_of_range=True).to_arrow()["_commit_version"].to_pylist() == [1]
        for begin in ({"from_version": 2}, {"from_version": 7}, {"from_timestamp": later + 1}):
            nothing = made.changes(**begin, **ends, allow_out_of_range=True)
            assert list(nothing.versions) == [] and nothing.to_arrow().num_rows == 0
            assert nothing.arrow_schema == made.changes(0).arrow_schema
            with pytest.raises((VersionNotFoundError, TimestampOutOfRangeError, CallError)):
                made.changes(**begin, **ends)
    with pytest.raises(CallError, match=r"empty: it begins at 1 and ends at 0\.$"):
        made.changes(1, 0, allow_out_of_range=True)
    with pytest.raises(CallError, match=r"begins at 2 and ends at 1\..* allow_out_of_range=True .*allowOutOfRange"):
        made.changes(2)
    with pytest.raises(VersionNotFoundError):
        made.changes(-1, allow_out_of_range=True)
    without = DeltaTable.create(memory(), SCHEMA)
    with pytest.raises(CallError, match="feed was off at version 0"):
        without.changes(1, allow_out_of_range=True).to_arrow()


def test_columns_are_those_of_the_latest_version() -> None:
    made = table(Clock())
    made.append(rows(1))
    made.append(pa.table({"id": [2], "name": ["n2"], "later": [True]}), merge_schema=True)
    found = made.changes(0, 1).to_arrow()
    assert found.schema.names == ["id", "name", "later", "_change_type", "_commit_version", "_commit_timestamp"]
    assert found["later"].to_pylist() == [None]
    assert pa.table(made.changes(1)).sort_by("id")["later"].to_pylist() == [None, True]


def test_a_schema_that_old_rows_do_not_fit_is_refused_with_the_version() -> None:
    made = table(Clock())
    made.append(rows(1))
    made.overwrite(pa.table({"id": ["text"]}), overwrite_schema=True)
    for first in (0, 1):
        with pytest.raises(SchemaMismatchError, match=f"rows of version {first} do not fit them: the type of id"):
            made.changes(first).to_arrow()
    assert {r["id"] for r in made.changes(2).to_arrow().to_pylist() if r["_change_type"] == "insert"} == {"text"}


def test_where_columns_are_not_mapped_only_a_later_begin_is_advised() -> None:
    """Even a range that ends before the schema change is refused, because change data feeds always use the latest
    columns."""
    made = table(Clock())
    made.append(rows(1))
    made.overwrite(pa.table({"id": ["text"]}), overwrite_schema=True)
    for last in (1, 2):
        with pytest.raises(SchemaMismatchError, match="begin the range after that schema change"):
            made.changes(0, last).to_arrow()


def test_the_feed_must_be_on_from_the_first_version_to_the_last() -> None:
    made = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    made.set_properties(CDF)
    made.append(rows(2))
    made.set_properties({"delta.enableChangeDataFeed": "false"})
    assert made.changes(1, 2).to_arrow()["id"].to_pylist() == [2]
    for first, last, off in ((0, 2, 0), (1, 3, 3)):
        with pytest.raises(CallError, match=f"off at version {off}"):
            made.changes(first, last).to_arrow()


def test_a_change_file_that_is_gone_is_named() -> None:
    made = table(Clock())
    made.append(rows(1))
    store = made._handle.reader.store
    cdc = {"cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 1, "dataChange": False}}
    put_commit(store, 2, info_action(), add_action("x"), cdc)
    with pytest.raises(InvalidDataFileError, match=r"_change_data/c\.parquet is missing"):
        DeltaTable.open(store).changes(2).to_arrow()


def test_change_files_give_partition_values_from_the_log() -> None:
    made = DeltaTable.create(memory(), SCHEMA, partition_by=["name"], environment=environment(), properties=CDF)
    store = made._handle.reader.store
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2], "_change_type": ["update_preimage", "update_postimage"]}), sink)
    store.put("_change_data/c", sink.getvalue().to_pybytes())
    cdc = {"cdc": {"path": "_change_data/c", "partitionValues": {"name": "p"}, "size": 1, "dataChange": False}}
    put_commit(store, 1, info_action(), add_action("x", partitionValues={"name": "p"}), cdc)
    found = DeltaTable.open(store).changes(1).to_arrow().select(["id", "name", "_change_type"]).to_pylist()
    assert found == [
        {"id": 1, "name": "p", "_change_type": "update_preimage"},
        {"id": 2, "name": "p", "_change_type": "update_postimage"},
    ]


@pytest.mark.parametrize("values", [{"name": "n1"}, None])
def test_a_remove_without_partition_values_is_refused_where_rows_have_some(values: dict[str, str] | None) -> None:
    made = DeltaTable.create(
        memory(), SCHEMA, partition_by=["name"], environment=environment(), properties=CDF, data=rows(1)
    )
    store = made._handle.reader.store
    (path,) = made.snapshot().files()["path"].to_pylist()
    put_commit(store, 1, info_action(), remove_action(path, **({"partitionValues": values} if values else {})))
    changes = DeltaTable.open(store).changes(1)
    if values:
        assert changes.to_arrow()["name"].to_pylist() == ["n1"]
        return
    with pytest.raises(InvalidCommitError, match=r"00001\.json removes .* without partitionValues.* name ") as caught:
        changes.to_arrow()
    assert caught.value.facts["version"] == 1


@pytest.mark.parametrize(("ict", "readable"), [((2**63 - 1) // 1000, True), ((2**63 - 1) // 1000 + 1, False)])
def test_a_commit_time_that_microseconds_cannot_hold_is_an_error(ict: int, readable: bool) -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, properties={**CDF, **ICT}, data=rows(1), environment=environment())
    first = store.get(commit_path(0))
    store.put(
        commit_path(0), first.replace(f'"inCommitTimestamp":{NOW}'.encode(), f'"inCommitTimestamp":{ict}'.encode())
    )
    store.delete(checksum_path(0))
    changes = DeltaTable.open(store).changes(table.version)
    if readable:
        assert changes.to_arrow()["_commit_timestamp"].cast(pa.int64()).to_pylist() == [ict * 1000]
        return
    with pytest.raises(CorruptTableError, match=f"version 0 was committed at {ict} ms"):
        changes.to_arrow()
