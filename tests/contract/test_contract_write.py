"""Dataset.Write of the write contract: the metadata of each version, and that no version changes another."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, Dataset, DeltaTable, SchemaMismatchError, Snapshot
from deltalog.errors import InvalidCommitError
from deltalog.protocol.paths import commit_path
from deltalog.storage import LogStore
from deltalog.testing.stores import CountingStore
from tests.support.core import (
    ICT,
    NOW,
    SCHEMA,
    Clock,
    add_action,
    environment,
    ids,
    info,
    info_action,
    memory,
    overtaken,
    put_commit,
    rows,
)

NESTED = {"run": {"id": 7, "tags": ["a", None, True], "share": 0.1}, "": "ä\u2028\U0001f600"}


def data_files(store: LogStore, directory: str = "") -> list[str]:
    return [meta.name for meta in store.list_from(directory) if not meta.name.startswith("_")]


def test_a_write_is_the_version_after_the_latest(table: DeltaTable) -> None:
    for version in (1, 2, 3):
        snapshot = Dataset(table).write(rows(version))
        assert isinstance(snapshot, Snapshot)
        assert (snapshot.version, table.snapshot().version) == (version, version)
    assert ids(table) == [1, 2, 3]


@pytest.mark.parametrize(("given", "kept"), [(None, {}), ({}, {}), (NESTED, NESTED)], ids=["none", "empty", "nested"])
def test_metadata_is_in_every_commit_as_it_was_given(store: LogStore, given: Any, kept: Any) -> None:
    dataset = Dataset(store, environment=environment())
    for version in range(2):
        assert dataset.write(rows(version), given).commit_summary.metadata == kept
        assert info(store, version)["deltalog"] == {"parent": version - 1 if version else None, "metadata": kept}


def test_metadata_is_a_copy(table: DeltaTable) -> None:
    given: dict[str, Any] = {"list": [1]}
    writer_sees = Dataset(table).write(rows(1), given)
    given["list"].append(2)
    assert writer_sees.commit_summary.metadata == {"list": [1]}


def _loop() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    return loop


NOT_JSON = {
    "not a number": {"a": float("nan")},
    "infinite": {"a": [float("inf")]},
    "key": {"a": {1: "one"}},
    "tuple": {"a": (1, 2)},
    "bytes": {"a": b"1"},
    "object": {"a": object()},
    "surrogate": {"a": "\ud800"},
    "loop": _loop(),
    "no mapping": ["a"],
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_metadata_that_is_no_json_is_refused_before_anything_is_asked_of_the_store(name: str) -> None:
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA)
    blobs = DeltaTable.create_for_blobs(store.sibling("memory://blobs-of-the-contract-" + name.replace(" ", "-")))
    with store.counted() as calls:
        for call in (
            lambda: Dataset(table).write(rows(1), NOT_JSON[name]),  # type: ignore[arg-type]
            lambda: Dataset(table).stream_write_records([{"id": 1}], NOT_JSON[name]),  # type: ignore[arg-type]
            lambda: table.commit_staged([], NOT_JSON[name]),  # type: ignore[arg-type]
            lambda: Dataset(blobs).stream_write(NOT_JSON[name]),  # type: ignore[arg-type]
            lambda: Dataset(blobs).write(b"1", NOT_JSON[name]),  # type: ignore[arg-type]
        ):
            with pytest.raises(CallError, match="metadata"):
                call()
    assert not calls


def test_the_parent_is_the_version_before_whoever_wrote_it(table: DeltaTable, store: LogStore) -> None:
    DeltaTable.open(store, environment=environment()).append(rows(1))
    assert Dataset(table).write(rows(2)).commit_summary.parent == 1
    assert [summary.parent for summary in Dataset(table).snapshots()] == [None, 0, 1]


def test_the_parent_is_named_anew_when_another_writer_comes_first(store: LogStore) -> None:
    DeltaTable.create(store, SCHEMA, data=rows(0))
    mine = overtaken(store, lambda: DeltaTable.open(store).append(rows(1)))
    snapshot = Dataset(DeltaTable.open(mine, environment=environment())).write(rows(2), retry_count=1)
    assert (snapshot.version, snapshot.commit_summary.parent, info(store, 2)["deltalog"]["parent"]) == (2, 1, 1)


def test_a_commit_that_names_another_parent_is_not_believed(table: DeltaTable, store: LogStore) -> None:
    put_commit(store, 1, {"commitInfo": {"timestamp": NOW, "inCommitTimestamp": NOW + 9, "deltalog": {"parent": 5}}})
    with pytest.raises(InvalidCommitError, match="names version 5 as its parent"):
        _ = table.snapshot().commit_summary


def test_earlier_versions_stay_byte_by_byte(table: DeltaTable, store: LogStore) -> None:
    seen: dict[str, str] = {}
    for version in range(1, 13):  # beyond a checkpoint
        for path, digest in seen.items():
            assert hashlib.sha256(store.get(path)).hexdigest() == digest, path
        snapshot = Dataset(table).write(rows(version))
        for path in (commit_path(version), snapshot.commit_summary.files[0].path):
            seen[path] = hashlib.sha256(store.get(path)).hexdigest()
    assert len(seen) == 24


def test_a_commit_summary_has_every_field_that_is_required() -> None:
    clock = Clock()
    table = DeltaTable.create(memory(clock), SCHEMA, properties=ICT, environment=environment(clock))
    clock.now_ms += 5000
    snapshot = Dataset(table).write(rows(1, 2, 3), {"by": "me"})
    summary = snapshot.commit_summary
    assert (summary.version, summary.parent, summary.created_ms) == (1, 0, NOW + 5000)
    assert summary.created_ms == snapshot.in_commit_timestamp_ms
    assert (summary.metadata, summary.row_count, summary.operation) == ({"by": "me"}, 3, "WRITE")
    assert summary.txn_id and snapshot.metadata.id and snapshot.metadata.format.provider == "parquet"
    (file,) = summary.files
    assert file.size_bytes == len(table.snapshot().reader.store.get(file.path))


def test_a_commit_summary_read_again_is_the_same(table: DeltaTable, store: LogStore) -> None:
    written = [
        Dataset(table).write(rows(1), {"n": 1}, checksum="sha256").commit_summary,
        Dataset(table).write(rows(2, 3)).commit_summary,
    ]
    again = DeltaTable.open(store)
    assert Dataset(again).snapshots()[1:] == written == [again.snapshot(version).commit_summary for version in (1, 2)]


def test_rows_that_no_file_counts_are_unknown_and_not_none_at_all(table: DeltaTable, store: LogStore) -> None:
    put_commit(store, 1, info_action(NOW + 1), add_action("uncounted.parquet"))
    put_commit(store, 2, info_action(NOW + 2), add_action("a", stats='{"numRecords":2}'), add_action("b"))
    put_commit(store, 3, info_action(NOW + 3), add_action("c", stats='{"numRecords":2}'))
    put_commit(store, 4, info_action(NOW + 4))
    assert [summary.row_count for summary in Dataset(table).snapshots()] == [0, None, None, 2, 0]


def test_statistics_are_those_of_the_file_as_it_was_encoded(store: LogStore) -> None:
    schema = pa.schema([("n", pa.int64()), ("none", pa.string()), ("flag", pa.bool_()), ("raw", pa.binary())])
    table = DeltaTable.create(store, schema)
    given = pa.table({"n": [3, None, 1], "none": [None] * 3, "flag": [True] * 3, "raw": [b"a"] * 3}, schema=schema)
    (file,) = Dataset(table).write(given).commit_summary.files
    assert file.statistics is not None and file.row_count == 3
    assert file.statistics["minValues"] == {"n": 1} and file.statistics["maxValues"] == {"n": 3}
    assert file.statistics["nullCount"] == {"n": 1, "none": 3, "flag": 0, "raw": 0}


def test_a_checksum_is_that_of_the_bytes_that_were_stored(any_store: LogStore) -> None:
    table = DeltaTable.create(any_store, SCHEMA, partition_by=["name"])
    files = Dataset(table).write(rows(1, 2, 3), checksum="sha256").commit_summary.files
    assert len(files) == 3
    for file in files:
        assert file.sha256 == hashlib.sha256(any_store.get(file.path)).hexdigest()
    assert all(file.sha256 is None for file in Dataset(table).write(rows(4)).commit_summary.files)


def test_a_checksum_survives_a_checkpoint(table: DeltaTable, store: LogStore) -> None:
    sha256 = Dataset(table).write(rows(1), checksum="sha256").commit_summary.files[0].sha256
    table.checkpoint()
    tags = DeltaTable.open(store).snapshot().files(["tags"])["tags"].to_pylist()
    assert [dict(each) for each in tags] == [{"deltalog.sha256": sha256}]


def test_a_write_of_bytes_is_one_unit(blobs: DeltaTable) -> None:
    for data in (b"", b"one", bytearray(b"two"), memoryview(b"three")):
        snapshot = Dataset(blobs).write(data)
        assert snapshot.commit_summary.row_count == 1
        assert Dataset(blobs).open_blob().read() == bytes(data)
    assert sorted(blobs.snapshot().scan().to_arrow()["size"].to_pylist()) == [0, 3, 3, 5]


def test_a_write_without_rows_is_a_version_too(table: DeltaTable) -> None:
    summary = Dataset(table).write(rows(), {"empty": True}).commit_summary
    assert (summary.version, summary.row_count, summary.files) == (1, 0, ())


def test_a_write_that_does_not_fit_leaves_nothing(table: DeltaTable, store: LogStore) -> None:
    with pytest.raises(SchemaMismatchError):
        Dataset(table).write(pa.table({"other": [1]}))
    assert table.snapshot().version == 0 and data_files(store) == []


@pytest.mark.parametrize(
    "options",
    [
        {"retries": 3},
        {"retry_count": -1},
        {"retry_count": True},
        {"expected_parent": "1"},
        {"retry_jitter": 2},
        {"retry_jitter": None},
        {"retry_jitter": True},
        {"retry_jitter": math.nan},
        {"retry_base_delay_ms": -1},
        {"retry_base_delay_ms": "1"},
        {"retry_base_delay_ms": math.nan},
        {"retry_max_delay_ms": math.inf},
        {"retry_max_delay_ms": None},
        {"timestamp_column": 5},
        {"checksum": "md5"},
    ],
    ids=str,
)
def test_options_that_are_none_are_refused(table: DeltaTable, options: dict[str, Any]) -> None:
    with pytest.raises(CallError):
        Dataset(table).write(rows(1), **options)
    assert table.snapshot().version == 0


# ------------------------------------------------------------------------------------------------------ timestamps

TIMES = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))])


def times(*micros: int | None) -> pa.Table:
    return pa.table({"id": list(range(len(micros))), "at": list(micros), "local": list(micros)}, schema=TIMES)


@pytest.mark.parametrize("column", ["at", "local"])
def test_smallest_and_largest_time_of_the_declared_column(store: LogStore, column: str) -> None:
    table = DeltaTable.create(store, TIMES)
    summary = Dataset(table).write(times(5_000_001, None, -7), timestamp_column=column).commit_summary
    assert (summary.timestamp_column, summary.min_timestamp_us, summary.max_timestamp_us) == (column, -7, 5_000_001)


def test_times_are_not_guessed(store: LogStore) -> None:
    table = DeltaTable.create(store, TIMES)
    summary = Dataset(table).write(times(1, 2)).commit_summary
    assert (summary.timestamp_column, summary.min_timestamp_us, summary.max_timestamp_us) == (None, None, None)


@pytest.mark.parametrize("given", [times(None, None), times().drop_columns(["at"])], ids=["nulls", "absent"])
def test_rows_without_a_time_count_for_nothing(store: LogStore, given: pa.Table) -> None:
    summary = Dataset(DeltaTable.create(store, TIMES)).write(given, timestamp_column="at").commit_summary
    assert (summary.min_timestamp_us, summary.max_timestamp_us) == (None, None)


def test_times_of_another_unit_and_zone_are_those_that_are_stored(store: LogStore) -> None:
    table = DeltaTable.create(store, TIMES)
    given = pa.table({"at": pa.array([1_000, 2_000], pa.timestamp("ns", "Europe/Berlin"))})
    summary = Dataset(table).write(given, timestamp_column="at").commit_summary
    assert (summary.min_timestamp_us, summary.max_timestamp_us) == (1, 2)


@pytest.mark.parametrize("column", ["id", "absent"])
def test_a_column_that_has_no_times_is_refused(store: LogStore, column: str) -> None:
    with pytest.raises(CallError):
        Dataset(DeltaTable.create(store, TIMES)).write(times(1), timestamp_column=column)
