"""Concurrency in the write contract: a linear history, conflicts, retries, and many writers that stage files for one
commit."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import (
    CallError,
    CommitConflictError,
    ConstraintViolationError,
    Dataset,
    DeltaTable,
    SchemaMismatchError,
    StagedFiles,
    TransactionManager,
)
from deltalog.errors import MetadataChangedError, TransactionCanceledError, VersionConflictError
from deltalog.schema import StructType
from deltalog.storage import LogStore
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore, FaultyStore
from tests.support.core import ICT, SCHEMA, Clock, environment, ids, info, memory, overtaken, rows


def appended(store: LogStore, number: int) -> Callable[[], object]:
    """Append a row as another writer."""
    return lambda: DeltaTable.open(store, environment=environment()).append(rows(number))


def rivals(store: LogStore, count: int) -> FaultyStore:
    """The store, on which another writer wins the race against each of the first ``count`` commits."""
    return overtaken(store, *(appended(store, 100 + number) for number in range(count)))


def is_linear(table: DeltaTable) -> bool:
    summaries = Dataset(table).snapshots()
    numbers = [summary.version for summary in summaries]
    times = [summary.created_ms or 0 for summary in summaries]
    parents = [summary.parent for summary in summaries]
    return numbers == list(range(len(numbers))) and parents == [None, *numbers[:-1]] and times == sorted(set(times))


@pytest.fixture
def place() -> MemoryStore:
    """A table at version 0."""
    store = memory()
    DeltaTable.create(store, SCHEMA, properties=ICT, environment=environment())
    return store


# ------------------------------------------------------------------------------------------------------- conflicts


@pytest.mark.parametrize("verb", ["write", "records", "staged"])
def test_a_version_that_another_writer_took_is_a_conflict(any_store: LogStore, verb: str) -> None:
    DeltaTable.create(any_store, SCHEMA, properties=ICT, environment=environment())
    table = DeltaTable.open(rivals(any_store, 1), environment=environment())
    with pytest.raises(VersionConflictError) as caught:
        if verb == "write":
            Dataset(table).write(rows(1))
        elif verb == "records":
            Dataset(table).stream_write_records([{"id": 1}])
        else:
            table.commit_staged([table.stage(rows(1))])
    assert isinstance(caught.value, CommitConflictError)
    assert (caught.value.expected_parent, caught.value.winning_version, caught.value.winning_operation) == (
        0,
        1,
        "WRITE",
    )
    assert ids(DeltaTable.open(any_store)) == [100]


def test_look_at_the_latest_version_and_write_again(place: MemoryStore) -> None:
    table = DeltaTable.open(rivals(place, 1), environment=environment())
    with pytest.raises(VersionConflictError):
        Dataset(table).write(rows(1))
    assert table.snapshot().version == 1
    assert Dataset(table).write(rows(1), expected_parent=1).version == 2
    assert ids(table) == [1, 100] and is_linear(table)


def test_a_handle_that_lost_looks_again_even_where_looking_costs_a_request() -> None:
    class FarStore(MemoryStore):
        is_remote = True

    store = FarStore("memory://far-contract")
    clock = Clock()
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock))
    DeltaTable.open(store, environment=environment(clock)).append(rows(100))
    with pytest.raises(VersionConflictError):
        Dataset(table).write(rows(1))
    assert Dataset(table).write(rows(2)).version == 2 and ids(table) == [2, 100]


def test_an_expected_parent_that_is_not_the_latest_is_a_conflict_before_data_is_written(place: MemoryStore) -> None:
    appended(place, 1)()
    store = CountingStore(place)
    table = DeltaTable.open(store, environment=environment())
    for parent in (0, 2):
        with store.counted() as calls, pytest.raises(VersionConflictError) as caught:
            Dataset(table).write(rows(2), expected_parent=parent)
        assert caught.value.expected_parent == parent and caught.value.winning_version == 1
        assert {method for method, _ in calls} == {"head"}
    assert Dataset(table).write(rows(2), expected_parent=1).commit_summary.parent == 1


def test_an_expected_parent_that_is_gone_by_the_time_of_the_commit_is_a_conflict(place: MemoryStore) -> None:
    table = DeltaTable.open(place, environment=environment())

    def interrupted() -> Any:
        yield {"id": 1}
        appended(place, 100)()

    with pytest.raises(VersionConflictError):
        Dataset(table).stream_write_records(interrupted(), expected_parent=0)
    assert ids(table) == [100]


def test_alone_nobody_ever_conflicts(table: DeltaTable) -> None:
    for number in range(25):
        Dataset(table).write(rows(number), expected_parent=number)
    assert is_linear(table) and len(Dataset(table).snapshots()) == 26


def test_append_follows_what_others_commit(place: MemoryStore) -> None:
    """An append succeeds even if other writers commit in the meantime."""
    table = DeltaTable.open(rivals(place, 3), environment=environment())
    assert table.append(rows(1)).version == 4


# ---------------------------------------------------------------------------------------------- retries of commits


def waiting(sleeps: list[float], draw: float = 1.0, **changes: Any) -> Any:
    return environment(sleep=lambda seconds: sleeps.append(seconds * 1000), random=lambda: draw, **changes)


def test_nothing_is_retried_unless_asked_for(place: MemoryStore) -> None:
    sleeps: list[float] = []
    with pytest.raises(VersionConflictError):
        Dataset(DeltaTable.open(rivals(place, 1), environment=waiting(sleeps))).write(rows(1))
    assert sleeps == []


def test_a_retry_writes_no_data_again_and_names_the_new_parent(place: MemoryStore) -> None:
    store = CountingStore(place)
    table = DeltaTable.open(rivals_on(store, place, 5), environment=environment())
    with store.counted() as calls:
        snapshot = Dataset(table).write(rows(1), {"kept": True}, retry_count=5)
    assert (snapshot.version, snapshot.commit_summary.parent, snapshot.commit_summary.metadata) == (
        6,
        5,
        {"kept": True},
    )
    assert calls.of("open_output") == 1 and calls.of("put_if_absent") == 6
    assert ids(table) == [1, 100, 101, 102, 103, 104] and is_linear(table)


def rivals_on(mine: LogStore, theirs: LogStore, count: int) -> FaultyStore:
    return overtaken(mine, *(appended(theirs, 100 + number) for number in range(count)))


def test_a_retry_keeps_the_id_of_the_transaction_and_the_time_grows(place: MemoryStore) -> None:
    sent: list[tuple[str, int]] = []

    class Watched(MemoryStore):
        def put_if_absent(self, path: str, data: bytes) -> Any:
            if b"mine" in data:
                first = data.splitlines()[0].decode()
                sent.append((first.split('"txnId":"')[1][:36], int(first.split('"inCommitTimestamp":')[1][:13])))
            return super().put_if_absent(path, data)

    store = Watched("memory://watched")
    DeltaTable.create(store, SCHEMA, properties=ICT, environment=environment())
    table = DeltaTable.open(rivals_on(store, store, 2), environment=environment())
    snapshot = Dataset(table).write(rows(1), {"mine": True}, retry_count=2)
    assert len(sent) == 3 and len({txn_id for txn_id, _ in sent}) == 1
    assert [ict for _, ict in sent] == sorted({ict for _, ict in sent})
    assert snapshot.commit_summary.txn_id == sent[0][0] and snapshot.commit_summary.created_ms == sent[-1][1]


@pytest.mark.parametrize(
    ("options", "draw", "waits"),
    [
        ({}, 1.0, [10, 20, 40, 80]),
        ({}, 0.25, [2.5, 5, 10, 20]),
        ({"retry_jitter": 0}, 0.25, [10, 20, 40, 80]),
        ({"retry_jitter": 0.5}, 0.0, [5, 10, 20, 40]),
        ({"retry_base_delay_ms": 1000}, 1.0, [1000, 2000, 2000, 2000]),
        ({"retry_base_delay_ms": 4, "retry_max_delay_ms": 10}, 1.0, [4, 8, 10, 10]),
    ],
    ids=str,
)
def test_waits_grow_to_their_limit_with_a_share_of_chance(
    place: MemoryStore, options: dict[str, Any], draw: float, waits: list[float]
) -> None:
    sleeps: list[float] = []
    table = DeltaTable.open(rivals(place, 4), environment=waiting(sleeps, draw))
    Dataset(table).write(rows(1), retry_count=4, **options)
    assert sleeps == pytest.approx(waits)


@pytest.mark.parametrize("retry_count", [1, 3])
def test_when_retries_are_exhausted_it_is_the_same_conflict(place: MemoryStore, retry_count: int) -> None:
    store = CountingStore(place)
    table = DeltaTable.open(rivals_on(store, place, 10), environment=environment())
    with store.counted() as calls, pytest.raises(VersionConflictError) as caught:
        Dataset(table).write(rows(1), retry_count=retry_count)
    assert calls.of("put_if_absent") == retry_count + 1
    assert caught.value.winning_version == retry_count + 1
    assert 1 not in ids(DeltaTable.open(place))


def test_an_expected_parent_that_is_old_takes_one_retry(place: MemoryStore) -> None:
    appended(place, 100)()
    table = DeltaTable.open(place, environment=environment())
    assert Dataset(table).write(rows(1), expected_parent=0, retry_count=1).commit_summary.parent == 1
    table = DeltaTable.open(rivals(place, 1), environment=environment())
    with pytest.raises(VersionConflictError):
        Dataset(table).write(rows(2), expected_parent=0, retry_count=1)


def test_no_retry_makes_good_what_another_writer_changed_of_the_table(place: MemoryStore) -> None:
    def constrain() -> None:
        DeltaTable.open(place, environment=environment()).add_constraint("positive", "id > 0")

    DeltaTable.open(place, environment=environment()).add_constraint("small", "id < 1000")
    table = DeltaTable.open(overtaken(place, constrain), environment=environment())
    with pytest.raises(MetadataChangedError):
        Dataset(table).write(rows(-1), retry_count=5)
    assert ids(DeltaTable.open(place)) == []


# ---------------------------------------------------------------------------------------------------- many writers


def test_threads_that_write_at_once_make_one_line(store: LogStore) -> None:
    dataset = Dataset(store, schema=SCHEMA)
    dataset.write(rows(0))

    def write_some(worker: int) -> None:
        mine = Dataset(store)
        for number in range(8):
            mine.write(rows(worker * 100 + number), {"worker": worker}, retry_count=10_000, retry_max_delay_ms=5)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(write_some, range(1, 7)))
    table = dataset.table()
    assert ids(table) == sorted([0, *(worker * 100 + number for worker in range(1, 7) for number in range(8))])
    assert is_linear(table)


def write_in_a_process(url: str, worker: int, count: int) -> None:
    for number in range(count):
        Dataset(url, schema=SCHEMA).write(rows(worker * 100 + number), retry_count=10_000, retry_max_delay_ms=20)


def stage_in_a_process(url: str, worker: int) -> str:
    return DeltaTable.open(url).stage(rows(worker), checksum="sha256").to_json()


def processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def test_processes_that_write_at_once_the_first_version_too_make_one_line(tmp_path: Path) -> None:
    with processes(3) as pool:
        for done in [pool.submit(write_in_a_process, str(tmp_path / "table"), worker, 12) for worker in range(3)]:
            done.result()
    table = DeltaTable.open(tmp_path / "table")
    assert ids(table) == sorted(worker * 100 + number for worker in range(3) for number in range(12))
    assert is_linear(table) and len(Dataset(table).snapshots()) == 36


def test_blobs_that_are_streamed_at_once_are_a_version_each(store: LogStore) -> None:
    DeltaTable.create_for_blobs(store, properties=ICT)

    def stream(worker: int) -> int:
        with Dataset(DeltaTable.open(store)).stream_write(retry_count=10_000, retry_max_delay_ms=5) as writer:
            for _ in range(50):
                writer.write(bytes([worker]) * 100)
            return writer.commit().version

    with ThreadPoolExecutor(6) as threads:
        versions = list(threads.map(stream, range(6)))
    table = DeltaTable.open(store)
    assert sorted(versions) == [1, 2, 3, 4, 5, 6] and is_linear(table)
    for worker, version in enumerate(versions):
        assert Dataset(table).open_blob(version=version).read() == bytes([worker]) * 5000


# --------------------------------------------------------------------------------------------------------- staging


def test_threads_stage_and_one_commit_makes_it_one_version(any_store: LogStore) -> None:
    table = DeltaTable.create(any_store, SCHEMA)
    with ThreadPoolExecutor(8) as threads:
        staged = list(threads.map(lambda number: table.stage(rows(number)), range(16)))
    assert table.snapshot().version == 0 and ids(table) == []
    snapshot = table.commit_staged(staged, {"shards": 16})
    assert (snapshot.version, snapshot.commit_summary.row_count, len(snapshot.commit_summary.files)) == (1, 16, 16)
    assert ids(table) == list(range(16)) and snapshot.commit_summary.metadata == {"shards": 16}


def test_processes_stage_and_one_commit_makes_it_one_version(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    table = DeltaTable.create(url, SCHEMA)
    with processes(2) as pool:
        described = list(pool.map(stage_in_a_process, [url] * 6, range(6)))
    snapshot = table.commit_staged(map(StagedFiles.from_json, described))
    assert ids(table) == list(range(6)) and all(file.sha256 for file in snapshot.commit_summary.files)


def test_a_description_of_staged_files_survives_the_journey(table: DeltaTable) -> None:
    staged = table.stage(rows(1, 2), checksum="sha256")
    assert pickle.loads(pickle.dumps(staged)) == StagedFiles.from_json(staged.to_json()) == staged


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": [{}], "table": {}}', "null"])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(CallError, match="not a description"):
        StagedFiles.from_json(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [("row_count", -1), ("row_count", "2"), ("timestamp_column", 1), ("first_us", 0.5), ("files", 1)],
)
def test_a_description_with_a_wrong_field_is_refused(table: DeltaTable, field: str, value: Any) -> None:
    body = json.loads(table.stage(rows(1)).to_json())
    with pytest.raises(CallError, match="not a description"):
        StagedFiles.from_json(json.dumps({**body, field: value}))


def test_files_that_were_staged_for_another_table_are_refused(table: DeltaTable) -> None:
    staged = DeltaTable.create(memory(), SCHEMA, properties=ICT).stage(rows(1))
    with pytest.raises(CallError, match="another table"):
        table.commit_staged([staged])
    assert table.snapshot().version == 0


def test_a_description_that_leads_out_of_the_table_is_refused(table: DeltaTable) -> None:
    text = table.stage(rows(1)).to_json()
    assert '"path":"part-' in text
    with pytest.raises(CallError):
        table.commit_staged([StagedFiles.from_json(text.replace('"path":"', '"path":"../'))])
    assert table.snapshot().version == 0


def test_after_a_conflict_what_is_staged_is_committed_again_for_one_request(place: MemoryStore) -> None:
    store = CountingStore(place)
    table = DeltaTable.open(rivals_on(store, place, 1), environment=environment())
    staged = table.stage(rows(1))
    with pytest.raises(VersionConflictError):
        table.commit_staged([staged])
    with store.counted() as calls:
        assert table.commit_staged([staged]).version == 2
    assert calls.of("open_output") == 0 and calls.of("put_if_absent") == 1
    assert ids(table) == [1, 100]


def test_files_staged_twice_are_refused(table: DeltaTable) -> None:
    staged = table.stage(rows(1))
    with pytest.raises(CallError, match="twice"):
        table.commit_staged([staged, staged])


def test_times_of_all_that_is_staged_are_those_of_the_version(store: LogStore) -> None:
    table = DeltaTable.create(store, pa.schema([("at", pa.timestamp("us", "UTC"))]))
    parts = [[5, 7], [None], [-1]]
    staged = [table.stage(pa.table({"at": part}, schema=table.snapshot().schema.to_arrow()), timestamp_column="at")
              for part in parts]  # fmt: skip
    summary = table.commit_staged(staged).commit_summary
    assert (summary.min_timestamp_us, summary.max_timestamp_us, summary.row_count) == (-1, 7, 4)


def test_rows_staged_under_other_rules_are_checked_under_those_that_hold(table: DeltaTable, store: LogStore) -> None:
    staged = table.stage(rows(-1))
    table.set_properties({"mine": "1"})  # the metadata changes, but the constraints stay the same
    table.commit_staged([staged])
    staged = table.stage(rows(-2))
    table.delete()
    table.add_constraint("positive", "id > 0")
    with pytest.raises(MetadataChangedError):
        table.commit_staged([staged])
    with pytest.raises(ConstraintViolationError):
        table.stage(rows(-3))
    assert ids(table) == []


def test_rows_that_were_checked_when_they_were_staged_are_read_again_only_where_the_table_changed(
    place: MemoryStore,
) -> None:
    store = CountingStore(place)
    table = DeltaTable.open(store, environment=environment())
    table.add_constraint("positive", "id > 0")
    for changed in (False, True):
        staged = table.stage(rows(1))
        if changed:
            table.set_properties({"mine": "1"})
        with store.counted() as calls:
            table.commit_staged([staged])
        assert calls.of("open_input") == int(changed)


def test_files_are_staged_with_columns_that_their_commit_adds(table: DeltaTable) -> None:
    more = pa.table({"id": [1, 2], "more": [0.5, None]})
    columns = StructType.from_arrow(more.schema)
    before = table.version
    with pytest.raises(SchemaMismatchError):
        table.stage(more)
    parts = [table.stage(more, new_columns=columns), table.stage(rows(3), new_columns=columns)]
    staged = [StagedFiles.from_json(part.to_json()) for part in parts]
    with pytest.raises(MetadataChangedError):  # the table lacks the column
        table.commit_staged(staged)
    assert table.version == before
    with table.transaction() as transaction:
        transaction.merge_schema(columns)
        for each in staged:
            assert each.table == transaction.metadata
            transaction.add(*each.files, known=True)
        transaction.commit("WRITE")
    found = table.snapshot().scan(["id", "more"]).to_arrow().to_pylist()
    assert sorted((row["id"], row["more"]) for row in found) == [(1, 0.5), (2, None), (3, None)]
    assert table.version == before + 1
    table.commit_staged([table.stage(more, new_columns=columns)])  # nothing is new any more


def test_files_are_not_staged_for_columns_whose_names_in_files_would_differ(store: LogStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties={"delta.columnMapping.mode": "name"})
    more = pa.table({"id": [1], "more": [0.5]})
    with pytest.raises(CallError, match="Add the columns first"):
        table.stage(more, new_columns=StructType.from_arrow(more.schema))
    assert not [meta for meta in store.list_from("") if meta.name.endswith(".parquet")]


def test_what_is_discarded_is_gone(table: DeltaTable, store: LogStore) -> None:
    staged = [table.stage(rows(number)) for number in range(3)]
    assert table.discard_staged(staged) == []
    assert not [meta for meta in store.list_from("") if meta.name.startswith("part-")]


def test_staging_for_a_partitioned_table_keeps_its_partitions(store: LogStore) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["name"])
    snapshot = table.commit_staged([table.stage(rows(1, 2)), table.stage(rows(2))])
    assert (
        len(snapshot.commit_summary.files) == 3 and info(store, 1)["operationParameters"]["partitionBy"] == '["name"]'
    )
    assert snapshot.scan(where="name = 'n2'").to_arrow()["id"].to_pylist() == [2, 2]


def test_inside_a_transaction_over_tables_the_parent_is_strict_too(tmp_path: Path) -> None:
    catalog = TransactionManager(str(tmp_path / "catalog.db"))
    catalog.create_table("db.t", str(tmp_path / "t"), pa.schema([("id", pa.int64())]))
    with catalog.transaction() as transaction:
        Dataset(transaction.table("db.t")).write(pa.table({"id": [1]}))
        catalog.table("db.t").append(pa.table({"id": [1]}))
        with pytest.raises(TransactionCanceledError) as caught:
            transaction.commit()
    assert [type(conflict) for conflict in caught.value.conflicts] == [VersionConflictError]
    assert catalog.table("db.t").snapshot().version == 1
