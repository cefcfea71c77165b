"""The public DeltaTable: methods, handles, and the number of store calls of each method."""

from __future__ import annotations

import datetime
import itertools
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from deltalog import (
    CallError,
    DeltaTable,
    InvalidTimestampError,
    TableExistsError,
    TableNotFoundError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from deltalog.storage.fs import LocalStore
from deltalog.testing.stores import CallCounts, CountingStore
from tests.support.core import ICT, NOW, SCHEMA, Clock, environment, ids, memory, rows, tree


def ten_versions(store: Any, clock: Clock, **options: Any) -> DeltaTable:
    """Version v is committed 1000 * v ms after NOW, and has v files."""
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock), **options)
    for i in range(1, 10):
        clock.now_ms = NOW + 1000 * i
        table.append(rows(i))
    return table


# --------------------------------------------------------------------------------------------- open and create


@pytest.mark.parametrize("kind", ["path", "text", "url", "memory", "store"])
def test_a_table_is_where_its_location_says(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "dir with space" / "é%20#?"
    location: Any = {
        "path": place,
        "text": str(place),
        "url": place.as_uri(),
        "memory": "memory://test-table-open",
        "store": LocalStore(place),
    }[kind]
    assert DeltaTable.exists(location) is False
    with pytest.raises(TableNotFoundError):
        DeltaTable.open(location)
    created = DeltaTable.create(location, SCHEMA, environment=environment(), data=rows(1))
    assert DeltaTable.exists(location) is True
    opened = DeltaTable.open(location)
    assert opened.url == created.url and opened.version == created.version == 0
    assert ids(opened) == [1]
    if kind != "memory":
        assert opened.url == str(place) and (place / "_delta_log").is_dir()
    assert "version=0" in repr(opened)


def test_opening_nothing_makes_nothing(tmp_path: Path) -> None:
    for name in ("absent", "absent/deeper"):
        assert not DeltaTable.exists(tmp_path / name)
    (tmp_path / "file").write_text("x")
    with pytest.raises(TableNotFoundError):
        DeltaTable.open(tmp_path / "file")
    assert tree(tmp_path) == ["file"]


def test_a_table_is_created_once(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, SCHEMA, environment=environment(), data=rows(1))
    before = tree(tmp_path)
    with pytest.raises(TableExistsError, match=str(tmp_path)):
        DeltaTable.create(tmp_path, SCHEMA, environment=environment(), data=rows(2))
    assert tree(tmp_path) == before


def test_a_table_among_files_that_were_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "_delta_log").mkdir()
    DeltaTable.create(tmp_path, SCHEMA, environment=environment(), data=rows(1))
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert ids(DeltaTable.open(tmp_path)) == [1]


@pytest.mark.parametrize("options", [{"key": "x"}, {"anything": 1}])
def test_options_that_do_not_apply(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CallError, match="do not apply"):
        DeltaTable.open(tmp_path, **options)


# ------------------------------------------------------------------------------------------------ snapshots


def test_options_given_together() -> None:
    store = memory()
    clock = Clock()
    DeltaTable.create(store, SCHEMA, environment=environment(clock))
    assert DeltaTable.open(store, storage_options={}).version == 0
    assert DeltaTable.open(store, storage_options=None).version == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage_options": {"key": "a"}}, r"\['key'\] do not apply to a local path"),
        ({"key": "a", "storage_options": {"key": "b"}}, "key: given both by itself and in storage_options"),
        ({"storage_options": "key"}, "a mapping from names to values; got str"),
    ],
)
def test_options_given_together_that_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    for call in (DeltaTable.open, DeltaTable.exists, deltalog.open_store, deltalog.check):
        with pytest.raises(CallError, match=message):
            call(tmp_path, **options)


def test_a_table_is_opened_by_its_class(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", SCHEMA, data=rows(1, 2))
    table = DeltaTable(str(tmp_path / "t"), storage_options={})
    assert (table.version, table.schema) == (0, table.snapshot().schema)
    assert table.to_pyarrow_table() == table.snapshot().scan().to_arrow() and ids(table) == [1, 2]
    assert table.to_pandas()["id"].tolist() == [1, 2]
    with pytest.raises(TableNotFoundError):
        DeltaTable(tmp_path / "absent")
    for refused in (lambda: DeltaTable(tmp_path / "t", version=0), lambda: DeltaTable(tmp_path / "t", 0)):
        with pytest.raises(CallError, match=r"takes storage_options and nothing else"):
            refused()


def test_versions_times_and_the_latest() -> None:
    clock = Clock()
    table = ten_versions(memory(clock), clock, properties=ICT)
    assert table.snapshot().version == 9
    assert [table.snapshot(v).num_files for v in range(10)] == list(range(10))
    assert table.snapshot(timestamp=NOW + 3500).version == 3
    assert table.snapshot(timestamp="2026-09-21T14:13:24Z").version == 4
    aware = datetime.datetime.fromtimestamp((NOW + 5000) / 1000, datetime.timezone.utc)
    assert table.snapshot(timestamp=aware).version == 5
    tokyo = aware.astimezone(datetime.timezone(datetime.timedelta(hours=9)))
    assert table.version_at(tokyo) == table.version_at(aware) == table.version_at(NOW + 5000)
    assert table.version_at(aware + datetime.timedelta(microseconds=999)).version == 5
    assert table.version_at(aware - datetime.timedelta(microseconds=1)).version == 4


@pytest.mark.parametrize("version", [-1, 10, 2**63])
def test_versions_that_do_not_exist(version: int) -> None:
    clock = Clock()
    table = ten_versions(memory(clock), clock)
    with pytest.raises(VersionNotFoundError, match="Versions 0 to 9") as caught:
        table.snapshot(version)
    assert (caught.value.version, caught.value.earliest, caught.value.latest) == (version, 0, 9)


def test_a_version_and_a_time_at_once() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    with pytest.raises(CallError, match="not both"):
        table.snapshot(0, NOW)


def test_a_naive_time_is_refused_everywhere() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    naive = datetime.datetime(2026, 11, 20, 10)
    for call in (table.version_at, table.explain_timestamp, lambda t: table.snapshot(timestamp=t)):
        with pytest.raises(InvalidTimestampError, match="no time zone"):
            call(naive)
        with pytest.raises(InvalidTimestampError):
            call("2026-11-20 10:00:00")


def test_a_snapshot_never_changes() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    before = table.snapshot()
    table.overwrite(rows(2, 3))
    assert (before.version, before.num_files) == (0, 1)
    assert before.scan().to_arrow().to_pylist() == rows(1).to_pylist()


def test_a_handle_sees_what_others_did() -> None:
    store = memory()
    mine = DeltaTable.create(store, SCHEMA, environment=environment())
    other = DeltaTable.open(store, environment=environment())
    other.append(rows(1))
    assert mine.version == 0
    assert mine.snapshot().version == mine.version == 1
    mine.append(rows(2))
    assert ids(other) == [1, 2] and other.version == 2


@pytest.mark.parametrize("commits", [0, 1, 3, 5])
def test_a_table_that_was_made_anew_behind_a_handle_is_not_torn(commits: int, tmp_path: Path) -> None:
    """A handle of the old table must not write its next version to the new table's log, and must not write rows with
    the old schema."""
    old = DeltaTable.create(tmp_path / "t", SCHEMA, environment=environment())
    for i in range(3):
        old.append(rows(i))
    old.snapshot()
    shutil.rmtree(tmp_path / "t")
    new = DeltaTable.create(tmp_path / "t", pa.schema([("other", pa.string())]), environment=environment())
    for _ in range(commits):
        new.append(pa.table({"other": ["x"]}))
    with pytest.raises(deltalog.DeltaLogError):
        old.append(rows(8))
    found = DeltaTable.open(tmp_path / "t").snapshot()
    assert found.scan().to_arrow().to_pylist() == [{"other": "x"}] * commits


def test_a_table_that_was_removed_behind_a_handle(tmp_path: Path) -> None:
    old = DeltaTable.create(tmp_path / "t", SCHEMA, environment=environment())
    old.append(rows(1))
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(deltalog.DeltaLogError):
        old.append(rows(2))
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_threads_may_share_a_handle(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, properties=ICT)
    failures: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for i in range(5):
                table.append(rows(start + i))
                table.snapshot().files()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert ids(DeltaTable.open(tmp_path)) == sorted(100 * n + i for n in range(4) for i in range(5))
    times = [e.timestamp_ms for e in table.history()]
    assert len(times) == 21 and all(a > b for a, b in itertools.pairwise(times) if a and b)


def test_a_copy_of_a_table_answers_alike(tmp_path: Path) -> None:
    clock = Clock()
    table = ten_versions(tmp_path / "t", clock, properties=ICT)
    shutil.copytree(tmp_path / "t", tmp_path / "copy", copy_function=shutil.copyfile)
    copy = DeltaTable.open(tmp_path / "copy")
    assert [e.timestamp_ms for e in copy.history()] == [e.timestamp_ms for e in table.history()]
    for version in range(10):
        assert copy.snapshot(timestamp=NOW + 1000 * version).num_files == version
    copy.append(rows(10))
    assert ids(table) == list(range(1, 10))


def test_times_out_of_range_through_every_door() -> None:
    clock = Clock()
    table = ten_versions(memory(clock), clock, properties=ICT)
    for timestamp in (NOW - 1, NOW + 9001):
        for call in (table.version_at, lambda t: table.snapshot(timestamp=t)):
            with pytest.raises(TimestampOutOfRangeError) as caught:
                call(timestamp)
            assert (caught.value.earliest_ms, caught.value.latest_ms) == (NOW, NOW + 9000)
    assert table.version_at(NOW - 1, before="earliest").version == 0
    assert table.version_at(NOW + 9001, after="latest").version == 9
    assert table.snapshot(timestamp=NOW + 9001, after="latest").version == 9
    assert table.snapshot(timestamp=0, before="earliest").version == 0
    for wrong in ({"after": "latest"}, {"timestamp": 0, "before": "first"}):
        with pytest.raises(CallError, match=r"before and after|before must be one of"):
            table.snapshot(**wrong)
    with pytest.raises(TimestampOutOfRangeError, match='pass before="earliest" to version_at or snapshot'):
        table.snapshot(timestamp=0, after="latest")


# --------------------------------------------------------------------------------------------------- the costs


def summary(calls: CallCounts) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (method, _), count in calls.items():
        counts[method] = counts.get(method, 0) + count
    return counts


@pytest.fixture
def counted() -> tuple[CountingStore, DeltaTable]:
    clock = Clock()
    store = CountingStore(memory(clock))
    return store, ten_versions(store, clock, properties=ICT)


def test_the_cost_of_opening(counted: tuple[CountingStore, DeltaTable]) -> None:
    store, _ = counted
    with store.counted() as calls:
        DeltaTable.open(store)
    assert summary(calls) == {"get": 3, "list_from": 1, "head": 1}
    # The GETs read the hint, the version checksum and the beginning of that version's commit; the HEAD returns the
    # metadata by which the commit file is recognized later.


def test_the_cost_of_asking_for_a_table(counted: tuple[CountingStore, DeltaTable]) -> None:
    store, _ = counted
    with store.counted() as calls:
        DeltaTable.exists(store)
    assert calls.of() <= 5


def test_the_cost_of_creating() -> None:
    store = CountingStore(memory())
    with store.counted() as calls:
        DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))
    assert calls.of("list_from") == 1 and calls.of("open_output") == 1
    assert calls.of("put_if_absent") == 1 and calls.of("put", "*.crc") == calls.of("put") == 1
    assert calls.of() == 4


def test_the_cost_of_the_latest_snapshot(counted: tuple[CountingStore, DeltaTable]) -> None:
    store, table = counted
    with store.counted() as calls:
        snapshot = table.snapshot()
        _ = (snapshot.version, snapshot.schema, snapshot.num_files, snapshot.size_bytes, snapshot.timestamp_ms)
    assert summary(calls) == {"head": 2}
    DeltaTable.open(store, environment=environment(Clock(NOW + 20_000))).append(rows(10))
    with store.counted() as calls:
        assert table.snapshot().version == 10
    # The HEAD requests look for the next version, for the one after it, and for its checkpoint; before and after the
    # commit is read, they check that the known version still belongs to this table.
    assert calls.of("head") == 6 and calls.of("get") == 1 and calls.of() == 7


def test_the_cost_of_an_old_snapshot(counted: tuple[CountingStore, DeltaTable]) -> None:
    store, table = counted
    with store.counted() as calls:
        snapshot = table.snapshot(4)
    assert calls.of("head") == 3 and calls.of("list_from") == 1
    assert calls.of("get") == 2  # the GETs of the version checksum and of the beginning of the commit
    with store.counted() as calls:
        snapshot.files()
    assert calls.of("get", "*.json") <= 6
    with store.counted() as calls:
        again = table.snapshot(4)
        assert again.files().equals(snapshot.files())
    assert summary(calls) == {"head": 2}  # a snapshot that is still referenced is returned again


def test_the_cost_of_a_snapshot_at_a_time(counted: tuple[CountingStore, DeltaTable]) -> None:
    store, table = counted
    with store.counted() as calls:
        assert table.snapshot(timestamp=NOW + 4500).version == 4
    assert calls.of("list_from") == 1 and calls.of("head") == 3
    assert calls.of("get") <= 1 + 8 + 2  # of the latest commit, of up to 8 commits that are searched, and of version 4


def test_the_cost_of_explaining(counted: tuple[CountingStore, DeltaTable]) -> None:
    store, table = counted
    with store.counted() as calls:
        table.explain_timestamp(NOW + 4500)
    assert calls.of("list_from") == 1 and calls.of("get") <= 10


def test_the_cost_of_files(counted: tuple[CountingStore, DeltaTable]) -> None:
    store, _ = counted
    snapshot = DeltaTable.open(store).snapshot()
    with store.counted() as calls:
        snapshot.files()
    assert calls.of("get", "*.json") == 10  # one GET for each commit file, because the table has no checkpoint
    assert calls.of("head") == 1 and calls.of() == 11  # checks that it is still the same table
    with store.counted() as calls:
        snapshot.files()
    assert calls.of() == 0


def test_the_cost_of_files_after_a_checkpoint(counted: tuple[CountingStore, DeltaTable]) -> None:
    store, table = counted
    table.checkpoint()
    snapshot = DeltaTable.open(store).snapshot()
    with store.counted() as calls:
        assert snapshot.files().num_rows == 9
    assert calls.of("open_input", "*.checkpoint.parquet") == 1
    assert calls.of("head") == 1 and calls.of() == 2  # checks that it is still the same table


def test_the_cost_of_a_checkpoint(counted: tuple[CountingStore, DeltaTable]) -> None:
    store, table = counted
    table.snapshot().files()
    with store.counted() as calls:
        table.checkpoint()
    assert calls.of("put_if_absent") == 1 and calls.of("put") == 1 and calls.of("open_input") == 1


@pytest.mark.parametrize("verb", ["set", "disable"])
def test_the_cost_of_changing_properties(verb: str, counted: tuple[CountingStore, DeltaTable]) -> None:
    store, table = counted
    with store.counted() as calls:
        if verb == "set":
            table.set_properties({"owner": "me"})
        else:
            table.disable_in_commit_timestamps()
    # The HEAD requests: those of the refresh, those before and after the commit, and those before and after a
    # checkpoint.
    assert calls.of("put_if_absent", "*.json") == 1 and calls.of("head") == 2 + 1 + 2 + 2


def test_the_cost_of_enabling() -> None:
    clock = Clock()
    store = CountingStore(memory(clock))
    table = ten_versions(store, clock)
    with store.counted() as calls:
        table.enable_in_commit_timestamps()
    assert calls.of("list_from") == 1  # every file time before it
    assert calls.of("head") == 2 + 1 + 2 + 2 and calls.of("put_if_absent", "*.json") == 1


def test_a_scan_of_no_columns_reads_no_data(counted: tuple[CountingStore, DeltaTable]) -> None:
    _, table = counted
    assert table.snapshot().scan([]).to_arrow().schema == pa.schema([])


def test_names_are_those_of_the_package() -> None:
    assert deltalog.DeltaTable is DeltaTable and deltalog.__version__
