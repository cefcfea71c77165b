"""Tables that are deleted, re-created, rolled back or restored while a handle is open: no acknowledged write is lost,
no commit begins a log without the versions before it, and no file of the old table gets into the new one.

``tests/simulation/test_lost_tables.py`` tests these losses at every store call of every public method.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CommitStateUnknownError, Dataset, DeltaLogError, DeltaTable, TableNotFoundError
from deltalog.errors import Outcome, TableReplacedError
from deltalog.log.checkpoint.last_checkpoint import read_hint
from deltalog.protocol.paths import checksum_path, commit_path
from deltalog.storage import LogStore
from deltalog.storage.base import PutOutcome
from deltalog.storage.memory import MemoryStore
from deltalog.storage.wrapped import WrappedStore
from deltalog.testing.stores import Call, CountingStore, Fault, FaultyStore, nth
from tests.support.core import SCHEMA, Clock, environment, ids, rows
from tests.support.places import OTHER as _OTHER
from tests.support.places import FarStore, Place, opened, place_of
from tests.support.rounds import RoundStore
from tests.support.s3 import Server

_number = itertools.count()


@pytest.fixture(params=["memory", "far", "disk", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "s3":
        from deltalog.storage.s3.store import S3Store  # the environment of the quick tests has no botocore

        server: Server = request.getfixturevalue("ministack")
        store = server.store()
        yield Place(store, lambda: S3Store(store.url, **server.options()))
        return
    yield place_of(request.param, tmp_path)


# ------------------------------------------------------------------------------------------------ dropped


def _staged_before(table: DeltaTable) -> Callable[[], Any]:
    staged = table.stage(rows(8))
    return lambda: table.commit_staged([staged])


def _transaction_before(table: DeltaTable) -> Callable[[], Any]:
    transaction = table.transaction()
    transaction.write(rows(8).to_reader())
    return lambda: transaction.commit()


def _merge(table: DeltaTable) -> Any:
    merge = table.merge(rows(0, 9), "target.id = source.id")
    return merge.when_matched_update_all().when_not_matched_insert_all().execute()


#: Keyed by name: a preparation that runs before the table is lost, and the call to make after the loss.
VERBS: dict[str, Callable[[DeltaTable], Callable[[], Any]]] = {
    "append": lambda table: lambda: table.append(rows(8)),
    "append of a stream": lambda table: lambda: table.append(rows(8).to_reader()),
    "append with a new column": lambda table: lambda: table.append(rows(8), merge_schema=True),
    "overwrite": lambda table: lambda: table.overwrite(rows(8)),
    "overwrite where": lambda table: lambda: table.overwrite(rows(0), where="id = 0"),
    "delete": lambda table: lambda: table.delete("id = 0"),
    "delete all": lambda table: lambda: table.delete(),
    "update": lambda table: lambda: table.update({"name": "'x'"}, "id = 0"),
    "merge": lambda table: lambda: _merge(table),
    "set properties": lambda table: lambda: table.set_properties({"custom.a": "1"}),
    "add columns": lambda table: lambda: table.add_columns(pa.schema([("more", pa.int64())])),
    "restore": lambda table: lambda: table.restore(0),
    "compact": lambda table: lambda: table.optimize.compact(),
    "checkpoint": lambda table: lambda: table.checkpoint(),
    "Dataset.write": lambda table: lambda: Dataset(table).write(rows(8)),
    "stream_write_records": lambda table: lambda: Dataset(table).stream_write_records([{"id": 8}]),
    "commit_staged": _staged_before,
    "a transaction": _transaction_before,
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_commits_to_a_table_that_was_deleted(place: Place, verb: str) -> None:
    table = opened(place)
    call = VERBS[verb](table)
    place.drop()
    for _ in range(2):
        with pytest.raises(TableNotFoundError) as caught:
            call()
            table.flush()
        assert caught.value.outcome is Outcome.NOTHING_COMMITTED
        if verb in ("a transaction", "commit_staged"):
            break
    assert [name for name in place.names() if name.startswith("_delta_log/")] == []
    assert DeltaTable.create(place.reach(), _OTHER).version == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("schema", "commits"), [(SCHEMA, 2), (_OTHER, 5)])
def test_no_verb_changes_a_table_that_took_the_place_of_its_own(
    place: Place, verb: str, schema: pa.Schema, commits: int
) -> None:
    table = opened(place)
    call = VERBS[verb](table)
    place.drop()
    new = place.create(schema, commits)
    before = place.names()
    if verb == "checkpoint":  # the checkpoint is computed from the table that is there now
        call()
        assert DeltaTable.open(place.reach()).version == commits
        return
    with pytest.raises(TableReplacedError) as caught:
        call()
    assert caught.value.version == 2 and caught.value.outcome is Outcome.NOTHING_COMMITTED
    table.flush()
    if verb != "commit_staged":  # its files are kept
        assert place.names() == before
    found = DeltaTable.open(place.reach()).snapshot()
    assert (found.version, found.schema) == (commits, new.snapshot().schema)
    assert found.scan().to_arrow().num_rows == commits


def test_after_the_error_the_handle_is_at_the_table_that_is_there(place: Place) -> None:
    table = opened(place)
    place.drop()
    place.create(SCHEMA, 2)
    with pytest.raises(TableReplacedError, match=r"version 2 was read.*another table was created there"):
        table.append(rows(8))
    assert table.append(rows(9)).version == 3
    assert ids(DeltaTable.open(place.reach())) == [0, 1, 9]


def test_a_busy_writer_looks_at_its_table_again(place: Place) -> None:
    """Each commit of a writer also refreshes that writer's handle."""
    table = opened(place, 5)
    place.drop()
    for number in range(3):
        with pytest.raises(TableNotFoundError):
            table.append(rows(number))
    assert place.commits() == []


def test_what_is_replaced_while_rows_are_read_takes_no_commit(place: Place) -> None:
    table = opened(place)

    def stream() -> Iterator[pa.RecordBatch]:
        yield from rows(7).to_batches()
        place.drop()
        place.create(_OTHER, 2)
        yield from rows(8).to_batches()

    with pytest.raises(TableReplacedError):
        table.append(pa.RecordBatchReader.from_batches(SCHEMA, stream()))
    found = DeltaTable.open(place.reach()).snapshot()
    assert found.version == 2 and found.scan().to_arrow()["other"].to_pylist() == ["0", "1"]


def test_what_is_deleted_while_records_are_read_takes_no_commit(place: Place) -> None:
    table = opened(place)

    def records() -> Iterator[dict[str, int]]:
        yield {"id": 7}
        place.drop()
        yield {"id": 8}

    with pytest.raises(TableNotFoundError):
        Dataset(table).stream_write_records(records())
    assert place.commits() == []


# ------------------------------------------------------------------------------------------------ rolled back


def rolled_back(place: Place) -> DeltaTable:
    """A handle whose version 2 was rolled back together with the table; afterwards another process committed a
    different version 2."""
    table = opened(place, 1)
    copy = place.copy()
    table.append(rows(1))
    table.flush()
    place.restore(copy)
    other = DeltaTable.open(place.reach())
    assert other.append(rows(777)).version == 2
    other.flush()
    return table


def test_a_handle_does_not_take_the_commit_of_another_for_its_own(place: Place) -> None:
    table = rolled_back(place)
    assert ids(table) == [0, 777]


def test_an_overwrite_after_a_roll_back_replaces_all_rows(place: Place) -> None:
    table = rolled_back(place)
    table.overwrite(rows(3))
    assert ids(table) == ids(DeltaTable.open(place.reach())) == [3]


def test_a_delete_after_a_roll_back_deletes_all_rows(place: Place) -> None:
    table = rolled_back(place)
    table.delete("id >= 0")
    assert ids(table) == ids(DeltaTable.open(place.reach())) == []


def test_rows_of_a_version_that_was_rolled_back_are_not_written(place: Place) -> None:
    table = opened(place, 1)
    copy = place.copy()
    table.append(rows(1))
    read = table.snapshot().scan().to_arrow()
    table.flush()
    place.restore(copy)
    DeltaTable.open(place.reach()).append(rows(777))
    with pytest.raises(TableReplacedError, match="version 2 is now another commit"):
        table.overwrite(read)
    assert ids(table) == [0, 777]


def test_an_append_after_a_roll_back_loses_nothing(place: Place) -> None:
    table = rolled_back(place)
    with contextlib.suppress(TableReplacedError):
        table.append(rows(8))
    assert set(ids(DeltaTable.open(place.reach()))) >= {0, 777}
    table.append(rows(9))
    assert {0, 777, 9} <= set(ids(DeltaTable.open(place.reach())))


def test_a_plan_on_a_version_that_was_rolled_back_is_not_committed(place: Place) -> None:
    table = opened(place, 1)
    copy = place.copy()
    table.append(rows(1))
    transaction = table.transaction()
    transaction.remove_all_files()
    transaction.write(rows(3).to_reader())
    table.flush()
    place.restore(copy)
    DeltaTable.open(place.reach()).append(rows(777))
    with pytest.raises(TableReplacedError, match="an older copy replaced it"):
        transaction.commit()
    assert ids(DeltaTable.open(place.reach())) == [0, 777]


def test_a_table_of_as_many_versions_is_not_mistaken(place: Place) -> None:
    table = opened(place)
    place.drop()
    place.create(_OTHER, 2)
    assert table.snapshot().schema.names == ["other"] and table.snapshot(1).schema.names == ["other"]
    assert table.history(1)[0].version == 2
    table.set_properties({"custom.a": "1"})
    found = DeltaTable.open(place.reach()).snapshot()
    assert found.schema.names == ["other"] and found.metadata.configuration == {"custom.a": "1"}
    assert table.snapshot(1).scan().to_arrow().to_pydict() == {"other": ["0"]}


def test_a_restored_copy_with_the_same_commits_is_the_same_table(place: Place) -> None:
    table = opened(place)
    place.restore(place.copy())
    table.append(rows(8))
    assert table.version == 3 and ids(table) == ids(DeltaTable.open(place.reach())) == [0, 1, 8]


# ------------------------------------------------------------------------------------- during a commit and clean-up


class At(WrappedStore[LogStore]):
    """Calls a function before or after the commit of a version."""

    def __init__(self, inner: LogStore, version: int, before: Any = None, after: Any = None) -> None:
        super().__init__(inner)
        self._path, self._before, self._after = commit_path(version), before, after

    def put_if_absent(self, path: str, data: bytes) -> Any:
        if path == self._path and self._before is not None:
            before, self._before = self._before, None
            before()
        outcome = self.inner.put_if_absent(path, data)
        if path == self._path and self._after is not None:
            after, self._after = self._after, None
            after()
        return outcome


@pytest.fixture(params=["memory", "disk"])
def near(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A local store."""
    return place_of(request.param, tmp_path)


def test_a_commit_at_the_moment_of_a_deletion_is_withdrawn(near: Place) -> None:
    opened(near)
    table = DeltaTable.open(At(near.reach(), 3, before=near.drop))
    with pytest.raises(TableNotFoundError):
        table.append(rows(8))
    assert near.commits() == []


def test_a_commit_at_the_moment_of_a_replacement_stays_where_readers_see_it(near: Place) -> None:
    """The commit must not be deleted: between a check and the deletion, another writer may commit the next version, and
    the deletion would leave a gap in the log."""
    opened(near)

    def replace() -> None:
        near.drop()
        near.create(_OTHER, 2)

    table = DeltaTable.open(At(near.reach(), 3, before=replace))
    with pytest.raises(CommitStateUnknownError, match="replaced at the moment of the commit") as caught:
        table.append(rows(8))
    assert isinstance(caught.value.__cause__, TableReplacedError) and caught.value.outcome is Outcome.UNKNOWN
    found = caught.value.resolve()
    assert found is not None and found.version == 3
    assert near.commits() == ["00", "01", "02", "03"]
    with pytest.raises(TableReplacedError):
        table.append(rows(9))


def test_a_commit_that_nobody_can_read_is_withdrawn(near: Place) -> None:
    """The new table has fewer versions, so the commit would leave a gap between them and its own version."""
    opened(near)

    def replace() -> None:
        near.drop()
        near.create(_OTHER, 1)

    table = DeltaTable.open(At(near.reach(), 3, before=replace))
    with pytest.raises(TableReplacedError):
        table.append(rows(8))
    assert near.commits() == ["00", "01"]
    assert DeltaTable.open(near.reach()).snapshot().scan().to_arrow().to_pydict() == {"other": ["0"]}


class Following(WrappedStore[LogStore]):
    """Runs ``follow``, such as a commit of another writer, right before a commit file is deleted."""

    def __init__(self, inner: LogStore, follow: Callable[[], Any]) -> None:
        super().__init__(inner)
        self._follow = follow

    def delete(self, path: str) -> None:
        if path.endswith(".json"):
            self._follow()
        self.inner.delete(path)


def test_no_writer_can_follow_a_commit_that_is_deleted(near: Place) -> None:
    opened(near)

    def replace() -> None:
        near.drop()
        near.create(SCHEMA, 2)

    def follow() -> None:
        DeltaTable.open(near.reach()).append(rows(9))

    table = DeltaTable.open(Following(At(near.reach(), 3, before=replace), follow))
    with pytest.raises(CommitStateUnknownError):
        table.append(rows(8))
    follow()
    assert near.commits() == ["00", "01", "02", "03", "04"]
    assert DeltaTable.open(near.reach()).snapshot().files().num_rows == 4


def test_a_commit_that_another_one_follows_is_not_withdrawn(near: Place) -> None:
    opened(near)

    def replace() -> None:
        near.drop()
        near.create(SCHEMA, 2)

    def follow() -> None:
        DeltaTable.open(near.reach()).append(rows(9))

    table = DeltaTable.open(At(near.reach(), 3, replace, follow))
    with pytest.raises(CommitStateUnknownError) as caught:
        table.append(rows(8))
    assert isinstance(caught.value.__cause__, TableReplacedError)
    found = caught.value.resolve()
    assert found is not None and found.version == 3
    assert near.commits() == ["00", "01", "02", "03", "04"]


def test_a_commit_that_went_with_its_table_is_an_error(near: Place) -> None:
    opened(near)
    table = DeltaTable.open(At(near.reach(), 3, after=near.drop))
    with pytest.raises(TableNotFoundError):
        table.append(rows(8))
    assert near.commits() == []


def test_a_commit_of_another_table_in_its_place_is_not_deleted(near: Place) -> None:
    opened(near)

    def replace() -> None:
        near.drop()
        near.create(_OTHER, 3)

    table = DeltaTable.open(At(near.reach(), 3, after=replace))
    with pytest.raises(TableReplacedError):
        table.append(rows(8))
    assert DeltaTable.open(near.reach()).snapshot().scan().to_arrow().num_rows == 3


def test_a_commit_that_was_rolled_back_is_not_taken_for_the_one_that_has_its_version(near: Place) -> None:
    opened(near)

    def roll_back() -> None:
        near.reach().delete(commit_path(3))
        DeltaTable.open(near.reach()).append(rows(7))

    table = DeltaTable.open(At(near.reach(), 3, after=roll_back))
    with pytest.raises(TableReplacedError):
        table.append(rows(8))
    assert ids(table) == ids(DeltaTable.open(near.reach())) == [0, 1, 7]


# -------------------------------------------------------------------------------------- replaced while it is read


def _replaced_at(place: Place, path: str) -> FaultyStore:
    """A store that, right before a certain file is read, replaces the table with another table that has the same number
    of versions."""
    waiting = [path]

    def before(call: Call) -> None:
        if call.method == "get" and call.path in waiting:
            waiting.clear()
            place.drop()
            place.create(_OTHER, 2)

    return FaultyStore(place.reach(), before=before)


def _without_checksums(place: Place) -> None:
    for version in range(3):
        place.reach().delete(checksum_path(version))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_table_that_is_replaced_while_it_is_opened_is_not_mixed(near: Place, version: int) -> None:
    opened(near)
    _without_checksums(near)
    snapshot = DeltaTable.open(_replaced_at(near, commit_path(version))).snapshot()
    assert snapshot.scan().to_arrow().to_pydict() == {"other": ["0", "1"]}
    assert snapshot.metadata.id == DeltaTable.open(near.reach()).snapshot().metadata.id


@pytest.mark.parametrize("version", [0, 1])
def test_files_of_a_table_that_took_the_place_of_this_one_are_not_read(near: Place, version: int) -> None:
    opened(near)
    snapshot = DeltaTable.open(_replaced_at(near, commit_path(version))).snapshot()
    with pytest.raises(TableReplacedError, match="while version 2 was read"):
        snapshot.files()


@pytest.mark.parametrize("version", [0, 1])
def test_a_log_compaction_has_no_commits_of_another_table(near: Place, version: int) -> None:
    opened(near)
    table = DeltaTable.open(_replaced_at(near, commit_path(version)))
    with pytest.raises(TableReplacedError, match="compacted"):
        table.compact_log()
    assert not any("compacted" in name for name in near.names())


def test_the_history_of_a_table_that_was_deleted_is_not_empty(near: Place) -> None:
    opened(near)

    def before(call: Call) -> None:
        if call.method.startswith("list") and is_armed:
            near.drop()

    is_armed = False
    table = DeltaTable.open(FaultyStore(near.reach(), before=before))
    is_armed = True
    with pytest.raises((TableReplacedError, TableNotFoundError)):
        table.history()


def test_a_look_after_the_commit_that_fails_is_no_error(near: Place) -> None:
    opened(near)
    store = FaultyStore(near.reach())
    table = DeltaTable.open(store)
    # The first two HEADs refresh the handle, and one more precedes the commit.
    store.decide = nth(5, Fault.FAIL_BEFORE, method="head")
    assert table.append(rows(8)).version == 3
    assert store.injected[Fault.FAIL_BEFORE] == 1 and ids(table) == [0, 1, 8]


def test_a_commit_that_is_not_answered_is_not_sent_again_to_another_table(place: Place) -> None:
    """The request that got no response may still reach the store, so the error says that the outcome is unknown."""
    table = opened(place)
    table.flush()

    class Silent(WrappedStore[LogStore]):
        def put_if_absent(self, path: str, data: bytes) -> Any:
            if path != commit_path(3):
                return self.inner.put_if_absent(path, data)
            sent.append(path)
            place.drop()
            return PutOutcome.UNKNOWN

    sent: list[str] = []
    table = DeltaTable.open(Silent(place.reach()), environment=environment())
    with pytest.raises(CommitStateUnknownError) as caught:
        table.append(rows(8))
    assert isinstance(caught.value.__cause__, TableNotFoundError)
    assert len(sent) == 1 and place.commits() == []


def test_clean_up_of_the_version_that_a_handle_knows_is_no_replacement(place: Place) -> None:
    table = opened(place)
    other = DeltaTable.open(place.reach())
    for number in range(3):
        other.append(rows(10 + number))
    other.checkpoint()
    other.flush()
    for version in range(5):
        for path in (commit_path(version), checksum_path(version)):
            place.reach().delete(path)
    table.append(rows(8))
    assert ids(table) == ids(DeltaTable.open(place.reach())) == [0, 1, 8, 10, 11, 12]


def test_a_checkpoint_in_the_background_is_not_written_beside_another_table() -> None:
    """If the checkpoint remained, readers of the new table would start from it."""
    shared = FarStore(f"memory://lost-{next(_number)}")
    place = Place(shared, lambda: shared)
    table = DeltaTable.create(shared, SCHEMA, properties={"delta.checkpointInterval": "2"})
    table.append(rows(0))
    table.flush()

    class Slow(WrappedStore[LogStore]):
        """Replaces the table before its .crc is written."""

        def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
            if path == checksum_path(2):
                place.drop()
                place.create(_OTHER, 1)
                return
            self.inner.put(path, data, durable=durable)

    writer = DeltaTable.open(Slow(shared))
    writer.append(rows(1))
    writer.flush()
    assert not any("checkpoint" in name for name in place.names())
    assert DeltaTable.open(shared).snapshot().schema.names == ["other"]
    with pytest.raises(DeltaLogError):
        read_hint(shared.get("_delta_log/_last_checkpoint"))


# ---------------------------------------------------------------------------------- numbers of requests


class During(WrappedStore[LogStore]):
    """Calls a function once, right before it writes an object whose name contains a given string."""

    def __init__(self, inner: LogStore, part: str, event: Callable[[], Any]) -> None:
        super().__init__(inner)
        self._part, self._event = part, event

    def _look(self, path: str) -> None:
        if self._part in path:
            self._part = "\n"
            self._event()

    def put_if_absent(self, path: str, data: bytes) -> Any:
        self._look(path)
        return self.inner.put_if_absent(path, data)

    def put_stream_if_absent(self, path: str, write: Any) -> Any:
        def complete(file: Any) -> None:
            write(file)
            self._look(path)

        return self.inner.put_stream_if_absent(path, complete)


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("by", ["a commit", "the verb"])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_checkpoint_is_deleted_again_where_its_table_is_lost_meanwhile(
    place: Place, policy: str, by: str, is_new: bool
) -> None:
    table = opened(place)
    table.set_properties({"delta.checkpointPolicy": policy, "delta.checkpointInterval": "4"})
    table.flush()

    def lose() -> None:
        place.drop()
        if is_new:
            place.create(_OTHER, 5)

    table = DeltaTable.open(During(place.reach(), ".checkpoint.", lose))
    if by == "a commit":
        table.append(rows(8))
        table.flush()
    else:
        with pytest.raises(TableReplacedError, match="while a checkpoint of version 3"):
            table.checkpoint(sidecar_rows=1)
    assert not any("checkpoint" in name or "sidecar" in name for name in place.names())
    if is_new:
        assert DeltaTable.open(place.reach()).snapshot().scan().to_arrow().num_rows == 5
    else:
        assert place.commits() == []


def test_a_log_compaction_is_deleted_again_where_its_table_is_lost_meanwhile(place: Place) -> None:
    opened(place)

    def replace() -> None:
        place.drop()
        place.create(_OTHER, 3)

    with pytest.raises(TableReplacedError, match=r"while .*compacted.* was written"):
        DeltaTable.open(During(place.reach(), ".compacted.", replace)).compact_log()
    assert not any("compacted" in name for name in place.names())
    assert DeltaTable.open(place.reach()).snapshot().scan().to_arrow().num_rows == 3


def test_a_checkpoint_stays_where_others_have_gone_on_and_deleted_its_commit(place: Place) -> None:
    """Another writer's log cleanup may have kept only the log from this checkpoint on."""
    opened(place)

    def go_on() -> None:
        other = DeltaTable.open(place.reach())
        other.append(rows(7))
        other.checkpoint()
        for version in range(3):
            place.reach().delete(commit_path(version))

    DeltaTable.open(During(place.reach(), "2.checkpoint.", go_on)).checkpoint()
    assert any(name.endswith("02.checkpoint.parquet") for name in place.names())
    assert ids(DeltaTable.open(place.reach())) == [0, 1, 7]


def test_the_look_is_made_beside_the_upload() -> None:
    """A warm append takes two rounds of requests: the write of its rows together with a HEAD, then the commit."""
    inner = MemoryStore(f"memory://lost-{next(_number)}")
    table = DeltaTable.create(inner, SCHEMA, environment=environment())
    store = RoundStore(inner)
    table = DeltaTable.open(store, environment=environment())
    for number in range(3):
        with store.counted():
            table.append(rows(number))
        table.flush()
        assert store.rounds == 2


def test_a_look_is_one_request_for_each_append_and_for_each_lost_race() -> None:
    clock = Clock()
    store = CountingStore(FarStore(f"memory://lost-{next(_number)}", clock_ms=clock))
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock))
    table.flush()
    with store.counted() as calls:
        table.append(rows(1))
        table.flush()
    # One HEAD before the commit, and one in the background after it.
    assert calls.of("head") == calls.of("head", commit_path(0)) == 1 + 1
    DeltaTable.open(store.inner, environment=environment(clock)).append(rows(2))
    table.flush()
    with store.counted() as calls:
        assert table.append(rows(3)).version == 3
        table.flush()
    # One HEAD of the commit file after it was written, and one of the winner's commit file.
    assert calls.of("head", commit_path(1)) == 2 + 1 and calls.of("head") == 2 + 2


@pytest.mark.parametrize("passed_ms", [1_999, 2_000])
def test_a_look_counts_for_two_seconds(passed_ms: int) -> None:
    clock = Clock()

    class Slow(FarStore):
        def open_output(self, path: str) -> Any:
            clock.now_ms += passed_ms  # the upload takes this long
            return super().open_output(path)

    store = CountingStore(Slow(f"memory://lost-{next(_number)}", clock_ms=clock))
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock))
    table.flush()
    with store.counted() as calls:
        table.overwrite(rows(1))
        table.flush()
    assert calls.of("head") == (3 if passed_ms < 2_000 else 4)


def test_a_look_that_fails_is_made_again() -> None:
    store = FaultyStore(FarStore(f"memory://lost-{next(_number)}"))
    table = DeltaTable.create(store, SCHEMA)
    table.flush()
    store.decide = nth(1, Fault.FAIL_BEFORE, method="head")
    heads: list[Call] = []
    store._before = lambda call: heads.append(call) if call.method == "head" else None
    assert table.append(rows(1)).version == 1
    table.flush()
    assert len(heads) == 2 + 1  # the last HEAD was sent in the background, after the commit
