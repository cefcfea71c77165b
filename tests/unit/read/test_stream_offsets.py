"""Which files belong to the next batch: every file exactly once, whatever the limits are and however often a stream
restarts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog import CallError
from deltalog.engine import AddFile, StreamOffset
from deltalog.protocol.actions import RemoveFile
from deltalog.protocol.codec import CommitActions
from deltalog.read.stream_offsets import (
    StreamRules,
    VersionFiles,
    advance,
    commits_between,
    new_files,
    resumed,
    selected,
)

TABLE = "a table"


def offset_at(version: int, index: int = 0, initial: bool = False) -> StreamOffset:
    return StreamOffset(TABLE, version, index, initial)


def files(version: int, *sizes: int, initial: bool = False, whole: bool = False) -> VersionFiles:
    return VersionFiles(version, initial, len(sizes), lambda first: sizes[first:], whole)


@pytest.mark.parametrize(
    ("max_files", "max_bytes", "end"),
    [
        (None, None, offset_at(7)),
        (1, None, offset_at(4, 1, True)),
        (2, None, offset_at(5, 0)),
        (3, None, offset_at(6, 1)),
        (None, 1, offset_at(4, 1, True)),
        (None, 10, offset_at(4, 1, True)),
        (None, 11, offset_at(5, 0)),
        (3, 20, offset_at(5, 0)),
        (99, 999, offset_at(7)),
    ],
)
def test_limits(max_files: int | None, max_bytes: int | None, end: StreamOffset) -> None:
    versions = [files(4, 10, 10, initial=True), files(5), files(6, 10, 10)]
    found = advance(offset_at(4, 0, True), versions, max_files, max_bytes)
    # Versions that add no files are skipped, so the version at which a batch ends may be later than the last version of
    # whose files it reads any.
    assert found == end or (end == offset_at(5, 0) and found == offset_at(6, 0))


def test_no_version_is_read_that_is_not_needed() -> None:
    def versions():
        yield files(0, 1, 1)
        raise AssertionError("the next version was read")

    assert advance(offset_at(0), versions(), 1) == offset_at(0, 1)


def test_the_changes_of_a_commit_are_one_step() -> None:
    versions = [files(1, 5, 5, 5, whole=True), files(2, 5, whole=True)]
    assert advance(offset_at(1), versions, 1) == offset_at(2, 0)
    assert advance(offset_at(1), versions, None, 1) == offset_at(2, 0)


Sizes = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6)


@given(Sizes, st.booleans(), st.booleans(), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 20)), min_size=1))
def test_batches_have_every_file_once_in_order(
    sizes: list[list[int]], initial: bool, whole: bool, limits: list[tuple[int, int]]
) -> None:
    versions = [files(v, *each, initial=initial and v == 0, whole=whole) for v, each in enumerate(sizes)]
    start, last = offset_at(0, 0, initial), offset_at(len(sizes))
    found: list[tuple[int, int]] = []
    for turn in range(100):
        max_files, max_bytes = limits[turn % len(limits)]
        # Plan as another process would: it receives offsets as JSON, and cannot read versions before that of its first
        # offset.
        begin = StreamOffset.from_json(json.loads(json.dumps(start.to_json())))
        there = [each for each in versions if each.version >= begin.version]
        end = advance(begin, there, max_files, max_bytes)
        assert begin.is_before(end)
        batch = [(v.version, index) for v in there for index in selected(begin, end, v)]
        read = list(commits_between(begin, end))
        assert {v for v, _ in batch} <= {*read, *([0] if begin.is_initial else [])}
        assert whole or len(batch) <= max_files
        found += batch
        start = end
        if end == last:
            break
    assert found == [(v, index) for v, each in enumerate(sizes) for index in range(len(each))]


def test_the_first_batch_is_repeated_from_where_it_began() -> None:
    def began(version: int, initial: bool, found: StreamOffset) -> StreamOffset:
        return StreamOffset(TABLE, found.version, found.index, found.is_initial, version, initial)

    again = began(7, True, offset_at(7, 0, True))  # by now, the table has newer versions
    end = advance(began(4, True, offset_at(4, 0, True)), [files(4, 1, 1, 1, initial=True)], 2)
    assert end.to_json() == began(4, True, offset_at(4, 2, True)).to_json()
    assert resumed(again, StreamOffset.from_json(end.to_json())) == offset_at(4, 0, True)
    # Later batches begin where the previous batch ended, whatever the end offset of that batch states about the start
    # of the stream.
    assert resumed(end, began(9, True, offset_at(10))) == end
    start = began(5, False, offset_at(5))  # a stream that begins with the next commit, and has not read anything yet
    assert resumed(start, began(8, False, offset_at(9))) == start
    assert resumed(start, offset_at(9)) == start
    assert resumed(offset_at(5), end) == offset_at(5)


def test_offsets_of_others_are_refused() -> None:
    with pytest.raises(CallError, match="new checkpoint and startingVersion"):
        StreamOffset.from_json({"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 2, "index": -1})
    with pytest.raises(CallError, match="not an offset"):
        StreamOffset.from_json({**offset_at(1).to_json(), "index": True})
    with pytest.raises(CallError, match="names file 3"):
        advance(offset_at(1, 3), [files(1, 5)])
    with pytest.raises(CallError, match="before it begins"):
        commits_between(offset_at(2), offset_at(1))


def commit(adds: int = 0, removes: int = 0, data_change: bool = True) -> CommitActions:
    added = [
        AddFile(path=f"a{n}", partition_values={}, size=1, modification_time=0, data_change=data_change)
        for n in range(adds)
    ]
    removed = [RemoveFile(path=f"r{n}", data_change=data_change) for n in range(removes)]
    return CommitActions(3, None, False, None, None, added, removed, [], [])


@pytest.mark.parametrize(
    ("rules", "of_append", "of_delete", "of_update"),
    [
        (StreamRules(), 2, "ignoreDeletes", "skipChangeCommits"),
        (StreamRules(ignore_deletes=True), 2, 0, "skipChangeCommits"),
        (StreamRules(skip_change_commits=True), 2, 0, 0),
        (StreamRules(ignore_changes=True), 2, 0, 2),
    ],
)
def test_commits_that_remove_rows(rules: StreamRules, of_append: int, of_delete: object, of_update: object) -> None:
    assert len(new_files(commit(2), rules, "t")) == of_append
    assert new_files(commit(1, 1, data_change=False), rules, "t") == []
    for expected, found in ((of_delete, commit(0, 1)), (of_update, commit(2, 1))):
        if isinstance(expected, int):
            assert len(new_files(found, rules, "t")) == expected
        else:
            with pytest.raises(CallError, match=str(expected)):
                new_files(found, rules, "t")
