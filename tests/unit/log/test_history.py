"""The in-commit timestamp rules for readers: version by time, explanations, history."""

from __future__ import annotations

import datetime
import math
import os
import random
import shutil
import sys
import threading
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import CallError, CommitAt, DeltaTable, TimestampOutOfRangeError, VersionNotFoundError
from deltalog.errors import InvalidEnablementError, MissingInCommitTimestampError, MissingVersionError
from deltalog.log.checkpoint.writer import write_checkpoint
from deltalog.log.history import LogHistory
from deltalog.log.loader import load, load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import checksum_path, commit_path
from deltalog.protocol.timestamp_search import PROBES
from deltalog.protocol.timestamps import monotonised
from deltalog.storage import LogStore
from deltalog.storage.fs import LocalStore
from deltalog.storage.wrapped import WrappedStore
from deltalog.testing.stores import CountingStore
from tests.support.cli import run
from tests.support.core import (
    ICT,
    NOW,
    SCHEMA,
    TIMESTAMP_KEY,
    VERSION_KEY,
    Clock,
    action,
    environment,
    ict_log,
    info,
    info_action,
    lines,
    memory,
    metadata_action,
    protocol_action,
    put_commit,
    rows,
)
from tests.support.core.strategies import examples
from tests.support.generated_log import GeneratedLog
from tests.support.rounds import RoundStore

HOUR = 3_600_000


def table_with(times: list[int], *, ict: bool = True, enable_after: int | None = None) -> tuple[DeltaTable, LogStore]:
    """A table whose version v is committed when the clock shows times[v]; the files have the same times."""
    clock = Clock(times[0])
    store = memory(clock)
    env = environment(clock)
    table = DeltaTable.create(store, SCHEMA, properties=ICT if ict else {}, environment=env)
    for version, now in enumerate(times[1:], 1):
        clock.now_ms = now
        if version == enable_after:
            table.enable_in_commit_timestamps()
        else:
            table.append(rows(version))
    return table, store


def versions(table: DeltaTable, *times: int, **clamp: str) -> list[int]:
    return [table.version_at(t, **clamp).version for t in times]


@pytest.mark.parametrize("ict", [True, False])
def test_exact_one_before_one_after_and_between(ict: bool) -> None:
    table, _ = table_with([1000, 2000, 3000, 4000], ict=ict)
    assert versions(table, 1000, 2000, 3000, 4000) == [0, 1, 2, 3]
    assert versions(table, 1001, 2001, 3001) == [0, 1, 2]
    assert versions(table, 1999, 2999, 3999) == [0, 1, 2]
    assert versions(table, 1500, 2500, 3500) == [0, 1, 2]
    found = table.version_at(2500)
    assert found == CommitAt(1, 2000, "in-commit" if ict else "file-modification")


@pytest.mark.parametrize("ict", [True, False])
def test_before_the_first_and_after_the_last(ict: bool) -> None:
    table, store = table_with([1000, 2000, 3000], ict=ict)
    for timestamp, option in ((999, 'before="earliest"'), (-(10**12), "earliest"), (3001, 'after="latest"')):
        with pytest.raises(TimestampOutOfRangeError) as caught:
            table.version_at(timestamp)
        error = caught.value
        assert (error.requested_ms, error.earliest_ms, error.latest_ms) == (timestamp, 1000, 3000)
        assert option in str(error) and store.url in str(error)
        assert "1000 ms (1970-01-01T00:00:01.000Z), version 0" in str(error)
        assert "3000 ms (1970-01-01T00:00:03.000Z), version 2" in str(error)
        with pytest.raises(TimestampOutOfRangeError):
            table.snapshot(timestamp=timestamp)
    assert versions(table, 999, -(10**12), before="earliest") == [0, 0]
    assert versions(table, 3001, 2**62, after="latest") == [2, 2]
    assert versions(table, 1000, 2500, 3000, before="earliest", after="latest") == [0, 1, 2]


def test_the_bounds_in_the_message_are_valid_answers() -> None:
    table, _ = table_with([1000, 2000, 3000])
    with pytest.raises(TimestampOutOfRangeError) as caught:
        table.version_at(1)
    assert versions(table, caught.value.earliest_ms, caught.value.latest_ms) == [0, 2]


@pytest.mark.parametrize("option", [{"before": "first"}, {"after": "error "}, {"before": None}])
def test_other_clamps_are_refused(option: dict[str, Any]) -> None:
    table, _ = table_with([1000])
    with pytest.raises(CallError, match="before must be"):
        table.version_at(1000, **option)


def test_a_table_of_two_eras() -> None:
    table, store = table_with([1000, 2000, 3000, 4000, 5000], ict=False, enable_after=3)
    enabled = table.snapshot().enablement
    assert enabled is not None and (enabled.version, enabled.timestamp_ms) == (3, 4000)
    assert versions(table, 1000, 1999, 2000, 3000, 3999) == [0, 0, 1, 2, 2]
    assert versions(table, 4000, 4001, 4999, 5000) == [3, 3, 3, 4]
    assert [table.version_at(t).clock for t in (3999, 4000)] == ["file-modification", "in-commit"]
    assert [e.clock for e in table.history()] == ["in-commit"] * 2 + ["file-modification"] * 3
    assert [e.timestamp_ms for e in table.history()] == [5000, 4000, 3000, 2000, 1000]
    assert store.head(commit_path(0)) is not None


def without_beginning(table: DeltaTable, store: LogStore, first: int) -> DeltaTable:
    """Make the log begin at a checkpoint of version ``first``, by deleting the commits up to that version,
    inclusive."""
    write_checkpoint(table.snapshot(version=first).log, NOW, new_uuid=lambda: str(uuid.uuid4()))
    for version in range(first + 1):
        store.delete(commit_path(version))
        store.delete(checksum_path(version))
    return DeltaTable.open(store)


@pytest.mark.parametrize("kind", ["in-commit timestamps", "file times", "enabled before", "enabled after"])
def test_a_log_that_begins_at_a_checkpoint_without_its_commit(kind: str) -> None:
    enable_after = {"enabled before": 1, "enabled after": 5}.get(kind)
    table, store = table_with(
        [1000, 2000, 3000, 4000, 5000, 6000, 7000], ict=kind == "in-commit timestamps", enable_after=enable_after
    )
    table = without_beginning(table, store, 3)
    assert versions(table, 5000, 5999, 6000, 7000) == [4, 4, 5, 6]
    assert versions(table, 1000, 4999, before="earliest") == [4, 4]
    with pytest.raises(TimestampOutOfRangeError, match="version 4") as caught:
        table.version_at(4000)
    assert (caught.value.earliest_ms, caught.value.latest_ms) == (5000, 7000)
    assert [entry.version for entry in table.history()] == [6, 5, 4]
    explanation = table.explain_timestamp(6500)
    assert explanation.answer is not None and explanation.answer.version == 5
    assert explanation.next_commit is not None and explanation.next_commit.version == 6
    assert (explanation.earliest.version, explanation.latest.version) == (4, 6)
    assert table.snapshot(timestamp=6000).version == 5
    assert table.snapshot(version=3).scan().to_arrow().num_rows == len({1, 2, 3} - {enable_after})
    with pytest.raises(VersionNotFoundError, match="Versions 3 to 6 can be read"):
        table.snapshot(version=2)
    report = table.cleanup_log(retention=datetime.timedelta(0))
    # The time of the log's first commit is lost, so the clean-up deletes nothing.
    assert report.first_version is None and not report.deleted
    assert table.append(rows(9)).version == 7


@pytest.mark.parametrize("ict", [True, False])
def test_the_changes_of_a_log_that_begins_at_a_checkpoint_without_its_commit(ict: bool) -> None:
    table, store = table_with([1000, 2000, 3000, 4000, 5000, 6000], ict=ict)
    table.set_properties({"delta.enableChangeDataFeed": "true"})
    for number in (7, 8, 9):
        table.append(rows(number))
    table = without_beginning(table, store, 7)
    found = table.changes(from_timestamp=table.version_at(0, before="earliest").timestamp_ms).to_arrow()
    assert sorted(zip(found["id"].to_pylist(), found["_commit_version"].to_pylist(), strict=True)) == [(8, 8), (9, 9)]


@pytest.mark.parametrize("ict", [True, False])
def test_a_table_of_which_only_a_checkpoint_is_left(ict: bool, tmp_path: Any) -> None:
    clock = Clock(NOW)
    store = LocalStore(str(tmp_path))
    table = DeltaTable.create(
        store, SCHEMA, properties=ICT if ict else {}, environment=environment(clock), data=rows(1)
    )
    table = without_beginning(table, store, 0)
    assert table.snapshot().scan().to_arrow().num_rows == 1 and table.history() == []
    with pytest.raises(VersionNotFoundError, match="no timestamp can name a version"):
        table.version_at(NOW)
    assert table.cleanup_log().first_version is None
    for command in ("info", "history", "timeline"):
        done = run(command, tmp_path, *(["-o", tmp_path / "page.html"] if command == "timeline" else []))
        assert done.status == 0, (command, done.err)
    if ict:
        with pytest.raises(MissingVersionError):  # no lower bound for the next commit's time is known
            table.append(rows(2))
    else:
        assert table.append(rows(2)).version == 1


def test_misleading_file_times_change_nothing_where_in_commit_timestamps_count(tmp_path: Any) -> None:
    clock = Clock(NOW)
    table = DeltaTable.create(tmp_path / "t", SCHEMA, properties=ICT, environment=environment(clock))
    for i in range(1, 6):
        clock.now_ms += HOUR
        table.append(rows(i))
    expected = [e.timestamp_ms for e in table.history()]
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "t", copy)
    for index, name in enumerate(sorted(os.listdir(copy / "_delta_log"), reverse=True)):
        os.utime(copy / "_delta_log" / name, (index, index))
    copied = DeltaTable.open(copy)
    assert [e.timestamp_ms for e in copied.history()] == expected
    assert versions(copied, *(NOW + i * HOUR for i in range(6))) == [0, 1, 2, 3, 4, 5]
    assert versions(copied, *(NOW + i * HOUR - 1 for i in range(1, 6))) == [0, 1, 2, 3, 4]


def test_times_before_the_enablement_never_reach_beyond_it() -> None:
    """In the log of a copied table, all file times are later than the enablement, so no timestamp resolves to the
    commits before the enablement."""
    clock = Clock()
    store = memory(clock)
    later = NOW + 10 * HOUR
    ict_log(
        store, clock, [later, later + 1, later + 2, later + 3], [None, None, NOW, NOW + 5],
        version="2", timestamp=str(NOW),
    )  # fmt: skip
    table = DeltaTable.open(store)
    assert versions(table, NOW, NOW + 4, NOW + 5) == [2, 2, 3]
    with pytest.raises(TimestampOutOfRangeError) as caught:
        table.version_at(NOW - 1)
    assert caught.value.earliest_ms == NOW
    assert table.version_at(NOW - 1, before="earliest").version == 0
    assert [e.version for e in table.history()] == [3, 2, 1, 0]


def test_file_times_are_made_increasing() -> None:
    clock = Clock()
    store = memory(clock)
    ict_log(store, clock, [5000, 4000, 4000, 9000, 100], [None] * 5)
    table = DeltaTable.open(store)
    assert [e.timestamp_ms for e in table.history()] == [9001, 9000, 5002, 5001, 5000]
    assert [e.file_modification_time_ms for e in table.history()] == [100, 9000, 4000, 4000, 5000]
    assert versions(table, 5000, 5001, 5002, 8999, 9000, 9001) == [0, 1, 2, 2, 3, 4]


def test_only_file_times_before_the_enablement_are_made_increasing() -> None:
    clock = Clock()
    store = memory(clock)
    ict_log(store, clock, [5000, 4000, 10, 20], [None, None, 7000, 7001], version="2", timestamp="7000")
    assert [e.timestamp_ms for e in DeltaTable.open(store).history()] == [7001, 7000, 5001, 5000]


# ------------------------------------------------------------------------------------------- shortened logs


def shortened(upto: int) -> DeltaTable:
    """Ten commits, with in-commit timestamps enabled in version 3 and a checkpoint at 5; the first ``upto`` commits are
    deleted."""
    table, store = table_with([1000 * (v + 1) for v in range(6)], ict=False, enable_after=3)
    table.checkpoint()
    clock = table._handle.environment.clock_ms
    for version in range(6, 10):
        clock.now_ms = 1000 * (version + 1)  # type: ignore[attr-defined]
        table.append(rows(version))
    for version in range(upto):
        store.delete(commit_path(version))
        store.delete(checksum_path(version))
    return DeltaTable.open(store)


@pytest.mark.parametrize("upto", [1, 2, 3, 4, 5])
def test_a_shortened_log_begins_at_its_checkpoint(upto: int) -> None:
    table = shortened(upto)
    assert versions(table, 6000, 6999, 7000, 10_000) == [5, 5, 6, 9]
    for timestamp in (5999, 4000, 3999, 1):
        with pytest.raises(TimestampOutOfRangeError) as caught:
            table.version_at(timestamp)
        assert (caught.value.earliest_ms, caught.value.latest_ms) == (6000, 10_000)
        assert table.version_at(timestamp, before="earliest") == CommitAt(5, 6000, "in-commit")
    assert table.snapshot(timestamp=6000).num_files == 4
    assert [e.version for e in table.history()] == list(range(9, upto - 1, -1))


def test_a_log_whose_commit_files_are_all_gone() -> None:
    table, store = table_with([1000, 2000], ict=False)
    table.checkpoint()
    for version in (0, 1):
        store.delete(commit_path(version))
        store.delete(checksum_path(version))
    with pytest.raises(VersionNotFoundError, match="no timestamp can name a version"):
        DeltaTable.open(store).version_at(1000)


# ------------------------------------------------------------------------------ cases that the log cannot resolve


@pytest.mark.parametrize("body", [None, {}, {"inCommitTimestamp": "7"}, {"inCommitTimestamp": -7}])
def test_a_commit_without_its_time_is_refused_by_name(body: dict[str, Any] | None) -> None:
    table, store = table_with([1000, 2000, 3000, 4000, 5000])
    kept = [line for line in lines(store, 2) if "commitInfo" not in line]
    put_commit(store, 2, *([] if body is None else [{"commitInfo": body}]), *kept)
    table = DeltaTable.open(store)
    with pytest.raises(MissingInCommitTimestampError, match="version 2 has no") as caught:
        table.version_at(3000)
    assert caught.value.version == 2
    entries = {e.version: e for e in table.history()}
    assert entries[2].timestamp_ms is None and entries[2].clock == "in-commit"
    assert [entries[v].timestamp_ms for v in (0, 1, 3, 4)] == [1000, 2000, 4000, 5000]


def test_a_torn_commit_keeps_its_place_in_the_history() -> None:
    table, store = table_with([1000, 2000, 3000])
    store.put(commit_path(1), b'{"commitInfo":{"inCommi')
    entry = table.history()[1]
    assert (entry.version, entry.timestamp_ms, entry.operation) == (1, None, None)


@pytest.mark.parametrize(
    "pair", [{VERSION_KEY: "1"}, {TIMESTAMP_KEY: "2000"}, {VERSION_KEY: "9", TIMESTAMP_KEY: "2000"}]
)
def test_a_broken_pair_is_refused_wherever_times_count(pair: dict[str, str]) -> None:
    store = memory()
    put_commit(store, 0, info_action(NOW), protocol_action("inCommitTimestamp"), metadata_action({**ICT, **pair}))
    table = DeltaTable.open(store)
    for call in (table.version_at, table.explain_timestamp, lambda t: table.snapshot(timestamp=t)):
        with pytest.raises(InvalidEnablementError, match="Repair"):
            call(NOW)
    with pytest.raises(InvalidEnablementError, match="Repair"):
        table.history()
    assert table.snapshot().num_files == 0


@pytest.mark.parametrize("pair", [{VERSION_KEY: "1"}, {TIMESTAMP_KEY: "2000"}, {VERSION_KEY: "x", TIMESTAMP_KEY: "y"}])
def test_the_repair_that_the_message_names_works(pair: dict[str, str]) -> None:
    clock = Clock()
    store = memory(clock)
    put_commit(store, 0, info_action(NOW), protocol_action("inCommitTimestamp"), metadata_action({**ICT, **pair}))
    table = DeltaTable.open(store, environment=environment(clock))
    table.disable_in_commit_timestamps()
    result = table.enable_in_commit_timestamps()
    enabled = table.snapshot().enablement
    assert enabled is not None
    assert (enabled.version, enabled.timestamp_ms) == (2, result.in_commit_timestamp_ms)
    assert table.version_at(enabled.timestamp_ms).version == 2


def test_after_disabling_every_commit_is_judged_by_its_file() -> None:
    table, store = table_with([1000, 2000, 3000])
    table.disable_in_commit_timestamps()
    entries = table.history()
    assert {e.clock for e in entries} == {"file-modification"}
    assert entries[1].in_commit_timestamp_ms == 3000  # still in the commit, but not in effect
    assert "inCommitTimestamp" not in info(store, 3)


def test_commit_info_that_is_not_first_is_tolerated() -> None:
    clock = Clock()
    store = memory(clock)
    ict_log(store, clock, [1, 2, 3], [1000, 2000, 3000])
    put_commit(store, 1, {"txn": {"appId": "a", "version": 1}}, info_action(2000))
    table = DeltaTable.open(store)
    assert versions(table, 1999, 2000) == [0, 1]


# ----------------------------------------------------------------------------------------------- store calls


@pytest.mark.parametrize("count", [1, 2, 9, 33, 500])
def test_the_cost_of_finding_a_version(count: int) -> None:
    clock = Clock()
    inner = memory(clock)
    ict_log(inner, clock, list(range(count)), [1000 + 10 * v for v in range(count)])
    store = CountingStore(inner)
    table = DeltaTable.open(store)
    # Makes the totals known, so that the next commit writes a version checksum.
    assert table.snapshot().num_files == count
    table.append(rows(1))
    for timestamp in (1000, 1000 + 5 * count, 1000 + 10 * count - 10):
        with store.counted() as calls:
            table.version_at(timestamp, after="latest")
        # The HEADs check whether there is a new version, and whether the log still contains its first version.
        assert calls.of("head") <= 3
        assert calls.of("get", "*.json") <= PROBES * math.ceil(math.log(count + 1, 5))
        assert calls.of() == calls.of("head") + calls.of("get", "*.json")


def test_the_cost_of_history() -> None:
    table, inner = table_with([1000 * (v + 1) for v in range(20)])
    store = CountingStore(inner)
    table = DeltaTable.open(store)
    with store.counted() as calls:
        assert len(table.history(5)) == 5
    # The sizes and times of five commits, and whether there is a new version.
    assert calls.of("get", "*.json") <= 6 and calls.of("list_from") == 0 and calls.of("head") <= 5 + 2
    with store.counted() as calls:
        assert len(table.history()) == 20
    assert calls.of("get", "*.json") <= 21 and calls.of("list_from") <= 2


def test_a_limit_of_the_history() -> None:
    table, _ = table_with([1000, 2000, 3000])
    assert [e.version for e in table.history(2)] == [2, 1]
    assert [e.version for e in table.history(99)] == [2, 1, 0]
    for limit in (0, -1):
        with pytest.raises(CallError, match="limit"):
            table.history(limit)


@pytest.mark.parametrize("broken", [False, True])
def test_commits_that_are_read_ahead_do_not_hide_later_ones(broken: bool) -> None:
    """An open handle reads the last commits and at the same time checks for later ones."""
    _, store = table_with([1000, 2000, 3000])
    rounds = RoundStore(store)
    table, other = DeltaTable.open(rounds), DeltaTable.open(store)
    with rounds.counted():
        assert [e.version for e in table.history(2)] == [2, 1]
    assert rounds.rounds == 1
    other.append(rows(3))
    if broken:  # the commit read ahead is invalid, but not needed for the answer
        store.put(commit_path(1), b"{")
    with rounds.counted():
        assert [e.version for e in table.history(2)] == [3, 2]
    with rounds.counted():
        assert [e.version for e in table.history(1)] == [3]
    assert rounds.rounds == 1


# ------------------------------------------------------------------------------------------------ a reference


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_log_against_looking_at_every_commit(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    enabling = data.draw(st.none() | st.integers(0, count - 1))
    file_times = data.draw(st.lists(st.integers(1000, 1100), min_size=count, max_size=count))
    steps = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    icts: list[int | None] = [
        None if enabling is None or v < enabling else 1050 + sum(steps[: v + 1]) for v in range(count)
    ]
    clock = Clock()
    store = memory(clock)
    has_pair = enabling is not None and enabling > 0
    pair = {"version": str(enabling), "timestamp": str(icts[enabling])} if has_pair and enabling is not None else {}
    ict_log(store, clock, file_times, icts, **pair)
    table = DeltaTable.open(store)

    by_file = list(range(count if enabling is None else enabling))
    adjusted = dict(zip(by_file, monotonised([file_times[v] for v in by_file]), strict=True))
    times = {v: adjusted[v] if v in adjusted else icts[v] for v in range(count)}
    assert {e.version: e.timestamp_ms for e in table.history()} == times
    for timestamp in {*range(995, 1170, 7), *times.values(), *(t + 1 for t in times.values() if t)}:
        assert timestamp is not None
        later_era = enabling is not None and (not by_file or timestamp >= (icts[enabling] or 0))
        candidates = [v for v in range(count) if (v not in adjusted) is later_era]
        passed = [v for v in candidates if (times[v] or 0) <= timestamp]
        found = table.version_at(timestamp, before="earliest", after="latest")
        assert found.version == (passed[-1] if passed else candidates[0])
        assert found.timestamp_ms == times[found.version]
        explained = table.explain_timestamp(timestamp)
        if explained.answer is None:
            assert explained.refusal is not None
            with pytest.raises(TimestampOutOfRangeError):
                table.version_at(timestamp)
        else:
            assert explained.answer == found and explained.refusal is None


def beside_the_listing(inner: LogStore, is_remote: bool) -> None:
    """For every relevant timestamp, the search that reads few commits agrees with a listing of the whole log."""
    store = RemoteStore(inner) if is_remote else inner
    reader = LogReader(store)
    latest = load_latest(reader)
    listed = LogHistory(reader)
    instants = {ms + more for ms in (commit_time(inner, v) for v in listed.listing.commits) for more in (-1, 0, 1)}
    for timestamp_ms in sorted({*instants, 0, 2**60}):
        for clamps in ({}, {"before": "earliest", "after": "latest"}):
            expected = outcome(listed, timestamp_ms, clamps)
            assert outcome(LogHistory(reader, latest), timestamp_ms, clamps) == expected


def outcome(history: LogHistory, timestamp_ms: int, clamps: dict[str, str]) -> object:
    try:
        return history.version_at(timestamp_ms, **clamps)
    except (TimestampOutOfRangeError, VersionNotFoundError) as error:
        return str(error)


def commit_time(store: LogStore, version: int) -> int:
    body = info(store, version)
    return int(body.get("inCommitTimestamp") or 0)


class RemoteStore(WrappedStore[LogStore]):
    def __init__(self, inner: LogStore) -> None:
        super().__init__(inner)
        self.is_remote = self.lists_in_pages = True


@pytest.mark.parametrize("is_remote", [True, False])
@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_few_reads_give_the_answer_of_the_listing(is_remote: bool, data: st.DataObject) -> None:
    """The search and the listing also agree on a log whose beginning was deleted, that has gaps, or that begins at a
    checkpoint whose commit was deleted."""
    count = data.draw(st.integers(2, 40), "commits")
    steps = data.draw(st.lists(st.integers(1, 30), min_size=count, max_size=count), "steps")
    enabling = data.draw(st.just(0) | st.integers(0, count - 1), "enabling")
    icts: list[int | None] = [
        1000 + sum(steps[: version + 1]) if version >= enabling else None for version in range(count)
    ]
    clock = Clock()
    store = memory(clock)
    pair = {"version": str(enabling), "timestamp": str(icts[enabling])} if enabling else {}
    ict_log(store, clock, [500 + version for version in range(count)], icts, **pair)
    checkpoints = data.draw(st.sets(st.integers(0, count - 1), max_size=3), "checkpoints")
    for version in checkpoints:
        snapshot = load(LogReader(store), LogReader(store).list_from(), version)
        write_checkpoint(snapshot, NOW, new_uuid=lambda: str(uuid.uuid4()))
    begin = data.draw(st.sampled_from([0, *checkpoints]), "begin")
    gone = {*range(begin), *data.draw(st.sets(st.integers(0, count - 1), max_size=2), "gone")}
    for version in gone - {count - 1}:
        store.delete(commit_path(version))
    try:
        load_latest(LogReader(store))
    except MissingVersionError:
        return  # this log cannot be read at all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deltalog.log.reader._SHORT", data.draw(st.sampled_from([0, 1000]), "short"))
        patch.setattr("deltalog.protocol.timestamp_search.PROBES", 3)
        beside_the_listing(store, is_remote)


def test_a_checkpoint_that_is_not_where_the_interval_expects_it_is_found_by_a_listing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    inner = memory(clock)
    store = CountingStore(inner)
    ict_log(inner, clock, list(range(40)), [1000 + 10 * version for version in range(40)])
    snapshot = load(LogReader(store), LogReader(store).list_from(), 15)
    write_checkpoint(snapshot, NOW, new_uuid=lambda: str(uuid.uuid4()))
    monkeypatch.setattr("deltalog.log.reader._SHORT", 0)
    table = DeltaTable.open(store)
    with store.counted() as calls:
        assert table.snapshot(version=18).files().num_rows == 19
    assert calls.of("get", "*.json") == 3
    assert calls.of("head", "*.json") <= 2 + 2  # checks, after the reads, that the table is still the same


@pytest.mark.parametrize("enabling", [True, False])
def test_commits_that_land_after_the_latest_version_was_read_are_not_judged_by_its_properties(enabling: bool) -> None:
    _, inner = table_with([1000, 2000, 3000], ict=not enabling)
    history = LogHistory(LogReader(inner), load_latest(LogReader(inner)))
    clock = Clock(5000)
    other = DeltaTable.open(inner, environment=environment(clock))
    other.append(rows(7))
    clock.now_ms = 9000
    if enabling:
        other.enable_in_commit_timestamps()
    else:
        other.disable_in_commit_timestamps()
    assert [entry.version for entry in history.entries()] == [2, 1, 0]
    assert None not in [entry.timestamp_ms for entry in history.entries()]
    assert history.version_at(9500, after="latest").version == 2
    assert [found.version for found in history.bounds()] == [0, 2]


def test_a_handle_reads_old_versions_of_a_log_that_was_cleaned_since_it_was_opened() -> None:
    table, inner = table_with([1000 * version for version in range(1, 11)])
    write_checkpoint(table.snapshot(version=6).log, NOW, new_uuid=lambda: str(uuid.uuid4()))
    for version in range(6):
        inner.delete(commit_path(version))
        inner.delete(checksum_path(version))
    assert table.snapshot(version=7).files().num_rows == 7
    assert table.snapshot(timestamp=9500).files().num_rows == 8
    with pytest.raises(VersionNotFoundError):
        table.snapshot(version=5)


def test_a_log_that_is_cleaned_while_it_is_searched_is_searched_in_what_is_left() -> None:
    clock = Clock()
    inner = memory(clock)
    ict_log(inner, clock, list(range(60)), [1000 + 10 * version for version in range(60)])
    write_checkpoint(DeltaTable.open(inner).snapshot(version=40).log, NOW, new_uuid=lambda: str(uuid.uuid4()))

    class Cleaned(RemoteStore):
        left = 0

        def get(self, path: str, length: int | None = None) -> bytes:
            self.left -= 1
            if self.left == 0:
                for version in range(40):
                    inner.delete(commit_path(version))
            return super().get(path, length)

    for calls in range(1, 40):
        store = Cleaned(inner)
        saved = {version: inner.get(commit_path(version)) for version in range(40)}
        table = DeltaTable.open(store)
        store.left = calls
        try:
            assert table.version_at(1255).version == 25
        except TimestampOutOfRangeError as error:
            assert error.earliest_ms == 1400
        assert table.version_at(1455).version == 45
        for version, body in saved.items():
            inner.put(commit_path(version), body)


def test_versions_whose_commits_are_gone_are_read_again() -> None:
    """If a version has a ``.crc``, the commits are read only when the version's files are needed; by then, the commits
    may have been deleted by clean-up."""
    clock = Clock()
    inner = memory(clock)
    writer = DeltaTable.create(inner, SCHEMA, properties=ICT, environment=environment(clock))
    for version in range(1, 9):
        writer.append(rows(version))
    table = DeltaTable.open(inner)
    held, latest = table.snapshot(version=7), table.snapshot()
    write_checkpoint(writer.snapshot(version=6).log, NOW)
    for version in range(6):
        inner.delete(commit_path(version))
        inner.delete(checksum_path(version))
    for snapshot in (held, latest):
        with pytest.raises(MissingVersionError, match="no longer exists"):
            snapshot.files()
    assert table.snapshot(version=7).files().num_rows == 7
    assert table.snapshot().files().num_rows == 8


@pytest.mark.parametrize("at_once", [100, 7])
def test_a_time_is_not_resolved_in_a_gap_that_clean_up_makes(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is cleaned up while it is listed in pages: all commits at once, or some before each page."""
    monkeypatch.setattr("deltalog.log.reader._VERSIONS_IN_PAGE", 10)
    monkeypatch.setattr("deltalog.log.reader.LIST_PAGE", 25)

    class Cleaned(RemoteStore):
        begin, calls, deleted = 0, 0, 0

        def list_from(self, *args: Any, **kwargs: Any) -> Any:
            with lock:
                self.calls += 1
                if 0 < self.begin <= self.calls:
                    for version in range(self.deleted, min(self.deleted + at_once, 100)):
                        self.inner.delete(commit_path(version))
                    self.deleted += at_once
            return super().list_from(*args, **kwargs)

    lock, answers = threading.Lock(), set[object]()
    for begin in range(1, 16):
        clock = Clock()
        inner = memory(clock)
        ict_log(inner, clock, [1000 + 10 * version for version in range(120)], [None] * 120)
        write_checkpoint(load(LogReader(inner), LogReader(inner).list_from(), 100), NOW)
        store = Cleaned(inner)
        table = DeltaTable.open(store)
        store.begin, store.calls = begin, 0
        try:
            answers.add(table.version_at(1000 + 10 * 75).version)
        except (TimestampOutOfRangeError, VersionNotFoundError) as error:
            answers.add(type(error))
    assert 75 in answers and TimestampOutOfRangeError in answers
    assert answers <= {75, TimestampOutOfRangeError, VersionNotFoundError}


@pytest.mark.skipif(sys.platform != "linux", reason="threads are watched in /proc")
@pytest.mark.parametrize(("commits", "rounds"), [(100_000, 6), (1_000_000, 7)])
def test_the_rounds_of_time_travel_in_long_logs(commits: int, rounds: int) -> None:
    chance = random.Random(commits)
    jitter = [chance.randrange(50_000) for _ in range(1_000)]
    log = GeneratedLog(commits + 9, 1_000, lambda version: NOW + 60_000 * version + jitter[version % 1_000])
    store = RoundStore(log)
    with store.counted():
        table = DeltaTable.open(store, environment=environment())
    assert store.rounds <= 3
    for version in (0, 1, 17, commits // 2, commits - 1_500, commits - 5, chance.randrange(commits)):
        with store.counted():
            assert table.version_at(log.time_of(version)).version == version
        assert store.rounds <= rounds and store.requests <= 40
        with store.counted():
            assert table.snapshot(timestamp=log.time_of(version)).version == version
        assert store.rounds <= rounds + 2 and store.requests <= 48
    with store.counted():
        entries = table.history(20)
    assert [entry.version for entry in entries] == list(range(commits + 9, commits - 11, -1))
    assert store.rounds <= 3 and store.requests <= 24


# ------------------------------------------------------------------------------------------------ explanations


def test_an_explanation_in_words_and_for_scripts() -> None:
    table, store = table_with([1000, 2000, 3000, 4000, 5000], ict=False, enable_after=3)
    before, after = table.explain_timestamp(2500), table.explain_timestamp(4500)
    text = str(before)
    for part in (
        store.url,
        "2500 ms (1970-01-01T00:00:02.500Z)",
        "on since version 3, 4000 ms",
        "file modification times",
        "candidates: versions 0 to 2",
        "version 1, committed at 2000 ms",
        "version 2 at 3000 ms",
        "1000 ms (1970-01-01T00:00:01.000Z), version 0",
        "can differ in a copy",
    ):
        assert part in text
    assert "in-commit timestamps; candidates: versions 3 to 4" in str(after)
    assert "copy" not in str(after)
    body = before.to_json()
    assert body["answer"] == {
        "version": 1, "timestamp_ms": 2000, "timestamp": "1970-01-01T00:00:02.000Z", "clock": "file-modification",
    }  # fmt: skip
    assert body["enablement"] == {"version": 3, "timestamp_ms": 4000}
    assert (body["candidates"], body["next_commit"]["version"], body["refusal"]) == ([0, 2], 2, None)


def test_an_explanation_of_a_refusal() -> None:
    table, _ = table_with([1000, 2000])
    found = table.explain_timestamp(5)
    assert found.answer is None and found.refusal is not None and "before the first commit" in found.refusal
    assert ("Refused", found.refusal) in found.facts() and f"\nRefused   {found.refusal}\n" in str(found)
    assert found.to_json()["answer"] is None
    late = table.explain_timestamp(2**60)
    assert late.refusal is not None and "after the last commit" in late.refusal
    assert "since version 0" in str(late)


def test_an_explanation_without_in_commit_timestamps() -> None:
    table, _ = table_with([1000, 2000], ict=False)
    text = str(table.explain_timestamp(1500))
    assert "off: the time of every commit" in text and "enable in-commit timestamps to get answers that last" in text


# ---------------------------------------------------------------------------------------- history entries


def test_what_an_entry_tells(tmp_path: Any) -> None:
    clock = Clock(NOW)
    table = DeltaTable.create(tmp_path, SCHEMA, properties=ICT, environment=environment(clock))
    clock.now_ms = NOW + 5
    result = table.append(rows(1, 2), user_metadata={"run": 7}, txn=("app", 1))
    entry = table.history(1)[0]
    assert (entry.version, entry.timestamp_ms, entry.clock) == (1, NOW + 5, "in-commit")
    assert (entry.operation, entry.user_metadata, entry.txn_id) == ("WRITE", '{"run": 7}', result.txn_id)
    assert entry.operation_parameters["mode"] == "Append" and entry.operation_metrics["numOutputRows"] == "2"
    assert (entry.read_version, entry.is_blind_append, entry.isolation_level) == (0, True, "Serializable")
    assert entry.in_commit_timestamp_ms == entry.commit_info_timestamp_ms == NOW + 5
    assert entry.engine_info is not None and entry.engine_info.startswith("deltalog")
    file = tmp_path / "_delta_log" / "00000000000000000001.json"
    assert entry.size_bytes == file.stat().st_size
    assert entry.file_modification_time_ms == file.stat().st_mtime_ns // 1_000_000
    body = entry.to_json()
    assert body["timestamp"] == "2026-09-21T14:13:20.005Z" and body["operation"] == "WRITE"


def test_entries_of_other_writers_are_taken_as_they_are() -> None:
    store = memory()
    odd: dict[str, Any] = {"operation": 7, "operationParameters": [1], "userMetadata": {"a": 1}, "timestamp": "x"}
    put_commit(store, 0, {"commitInfo": odd}, protocol_action(), metadata_action())
    put_commit(store, 1, {"commitInfo": {"isBlindAppend": "yes", "readVersion": "0", "timestamp": True}})
    put_commit(store, 2, {"txn": {"appId": "a", "version": 1}})
    newest, middle, oldest = DeltaTable.open(store).history()
    assert (oldest.operation, oldest.operation_parameters, oldest.user_metadata) == (None, {}, None)
    assert oldest.commit_info_timestamp_ms is None
    assert (middle.is_blind_append, middle.read_version, middle.commit_info_timestamp_ms) == (None, None, None)
    assert newest.commit_info == {} and newest.timestamp_ms == NOW + 2


def test_the_file_times_are_asked_for_once_where_a_listing_lacks_them(tmp_path: Any) -> None:
    store = CountingStore(LocalStore(tmp_path))
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for i in range(12):
        table.append(rows(i))
    with store.counted() as calls:
        table.version_at(2**60, after="latest")
    assert calls.of("list_from") == 1 and calls.of("head") <= 2


def test_the_enabling_commit_in_the_log() -> None:
    table, store = table_with([1000, 2000, 3000], ict=False, enable_after=2)
    body = action(store, 2, "metaData")
    assert body is not None and body["configuration"][VERSION_KEY] == "2"
    assert table.version_at(3000) == CommitAt(2, 3000, "in-commit")


def test_a_pair_that_contradicts_its_commit_is_named() -> None:
    """The enablement timestamp must be the enabling commit's own; with another value, the commits before the enablement
    cannot be found."""
    clock = Clock()
    store = memory(clock)
    ict_log(store, clock, [100, 200, 300, 400], [None, None, 1000, 2000], version="2", timestamp="50")
    table = DeltaTable.open(store)
    with pytest.raises(InvalidEnablementError):
        table.version_at(150)
    assert table.version_at(2000).version == 3
