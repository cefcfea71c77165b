"""The contents of a file cache, what it passes to the next version's cache, and threads that share a cache without
affecting each other."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from deltalog import DeltaTable
from deltalog.log.file_cache import NewCheckpoint
from deltalog.log.file_cache import __file__ as cache_file
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import LogSnapshot
from deltalog.log.snapshot import __file__ as snapshot_file
from deltalog.protocol.codec import CommitActions
from deltalog.testing.stores import CountingStore
from tests.support.core import SCHEMA, environment, ids, memory, rows


def shared_snapshot() -> LogSnapshot:
    """The snapshot of a handle after its own appends combines the files of an earlier version with the commits since
    then."""
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    table.snapshot().files()
    table.append(rows(2))
    table.append(rows(3))
    return table._handle.latest.log


def next_commit(snapshot: LogSnapshot) -> CommitActions:
    return CommitActions(snapshot.version + 1, None, False, None, None, [], [], [], [], [])


READS: dict[str, Callable[[LogSnapshot], Any]] = {
    "after": lambda snapshot: snapshot.after(next_commit(snapshot), None).cache.files().num_rows,
    "through": lambda snapshot: snapshot.through(LogReader(snapshot.reader.store)).cache.files().num_rows,
    "on_checkpoint": lambda snapshot: (
        snapshot.on_checkpoint(
            NewCheckpoint(snapshot.segment.checkpoint, None)  # type: ignore[arg-type]
        ).cache.known_totals
    ),
    "files": lambda snapshot: snapshot.cache.files().num_rows,
    "some files": lambda snapshot: snapshot.cache.files(["path"]).num_rows,
    "totals": lambda snapshot: snapshot.cache.totals,
    "known totals": lambda snapshot: snapshot.cache.known_totals,
    "timestamps": lambda snapshot: snapshot.known_in_commit_timestamps,
    "tombstones": lambda snapshot: snapshot.cache.tombstones(0).num_rows,
}


def lines_of_snapshot(step: Callable[[], None]) -> Callable[..., Any]:
    """A trace function that calls ``step`` before every line that is executed in the modules of the snapshot and its
    cache."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in (snapshot_file, cache_file):
            return None
        if event == "line":
            step()
        return trace

    return trace


def interleaved(read: Callable[[], Any], at: int, other: Callable[[], object]) -> tuple[Any, bool]:
    """The result of ``read`` if another thread runs ``other`` before the ``at``-th line that ``read`` executes; and
    whether ``read`` executes that many lines."""
    lines = iter(range(at + 1))
    reached: list[bool] = []

    def step() -> None:
        if next(lines, None) == at:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            reached.append(True)

    before = sys.gettrace()
    sys.settrace(lines_of_snapshot(step))
    try:
        return read(), bool(reached)
    finally:
        sys.settrace(before)


def interleavings(read: Callable[[LogSnapshot], Any], other: Callable[[LogSnapshot], object]) -> Iterator[Any]:
    for at in range(200):
        snapshot = shared_snapshot()
        found, reached = interleaved(partial(read, snapshot), at, partial(other, snapshot))
        yield found
        if not reached:
            return
    raise AssertionError("the read has no end")


@pytest.mark.parametrize("name", list(READS))
def test_files_that_another_thread_loads_between_any_two_lines_change_no_answer(name: str) -> None:
    read = READS[name]
    expected = read(shared_snapshot())
    found = list(interleavings(read, lambda snapshot: snapshot.cache.files()))
    assert len(found) > 2 or name in ("timestamps",)
    assert found == [expected] * len(found)


def test_threads_may_share_a_handle_and_its_snapshots() -> None:
    interval = sys.getswitchinterval()
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(0))
    errors: list[BaseException] = []
    start = threading.Barrier(5)

    def appends(first: int) -> None:
        try:
            start.wait()
            for number in range(first, first + 15):
                result = table.append(rows(number))
                assert table.version >= result.version
        except BaseException as error:
            errors.append(error)

    def reads() -> None:
        try:
            start.wait()
            for _ in range(150):
                seen = table._handle.latest
                assert seen.files().num_rows == seen.version + 1 == seen.num_files
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=appends, args=(n * 100,)) for n in (1, 2)]
    threads += [threading.Thread(target=reads) for _ in range(3)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors, errors
    assert ids(table) == [0, *range(100, 115), *range(200, 215)]


def test_an_older_snapshot_keeps_the_files_that_it_has_read() -> None:
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))
    older = table.snapshot()
    assert older.files().num_rows == 1
    table.append(rows(2))
    newer = table._handle.latest
    assert newer.files().num_rows == 2
    with store.counted() as calls:
        assert (older.files().num_rows, newer.files().num_rows) == (1, 2)
        assert (older.num_files, newer.num_files) == (1, 2)
    assert calls.of() == 0


def test_after_many_commits_the_files_are_read_again_and_are_the_same() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(0))
    table.snapshot().files()
    for number in range(1, 70):
        table.append(rows(number))
    paths = table._handle.latest.files()["path"].to_pylist()
    assert sorted(paths) == sorted(DeltaTable.open(store).snapshot().files()["path"].to_pylist())
    assert len(paths) == 70


def test_a_snapshot_of_the_log_cannot_be_changed() -> None:
    snapshot = shared_snapshot()
    for field in dataclasses.fields(snapshot):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(snapshot, field.name, None)
