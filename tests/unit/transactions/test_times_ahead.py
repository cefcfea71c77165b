"""In-commit timestamps far ahead of the clock: which of them a catalog refuses to ratify, and how a table recovers from
one."""

from __future__ import annotations

import datetime
import json
import time
import uuid
import warnings

import pytest

from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import CallError, ClockDriftWarning, CoordinatorError, CorruptTableError, TimestampAheadError
from deltalog.protocol.timestamps import LARGEST_MS
from deltalog.table import DeltaTable
from deltalog.testing.coordinators import MemoryCoordinator, WrappedCoordinator
from tests.support.transactions import SCHEMA, A, B, Clock, bank, content, manager_of, rows

pytestmark = pytest.mark.filterwarnings("ignore::deltalog.commit.loop.ClockDriftWarning")

HOUR_MS = 3_600_000
YEAR_2100_MS = 4_102_444_800_000
AHEAD = [YEAR_2100_MS, LARGEST_MS]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def record_of(manager, name=A):
    return next(table for table in manager.list_tables() if table.name == name)


def staged(manager, ict_ms, name=A):
    """A commit by another client, staged as the next version. Returns the version of the staged commit and the name of
    its file."""
    record, head = manager.ratified(name)
    version = head.version + 1
    info = {"inCommitTimestamp": ict_ms, "timestamp": 1, "operation": "WRITE", "operationParameters": {}, "txnId": "t"}
    file = f"{version:020d}.{uuid.uuid4()}.json"
    store = manager._tables.plain_store(record.url)
    store.put_if_absent(f"_delta_log/_staged_commits/{file}", json.dumps({"commitInfo": info}).encode() + b"\n")
    return version, file


def poison(manager, ict_ms, name=A):
    """Ratify a commit with this timestamp, as a catalog without a limit would."""
    bound, manager.coordinator.most_ahead_ms = manager.coordinator.most_ahead_ms, 2**64
    manager.propose_commit(name, *staged(manager, ict_ms, name))
    manager.coordinator.most_ahead_ms = bound


@pytest.fixture(params=["sqlite", "memory"])
def manager(request, tmp_path):
    catalog = SQLiteCoordinator(tmp_path / "catalog.db") if request.param == "sqlite" else MemoryCoordinator()
    return bank(catalog, now_ms, root=tmp_path)


@pytest.mark.parametrize("ict_ms", AHEAD)
def test_a_commit_of_another_client_is_refused(manager, ict_ms):
    with pytest.raises(TimestampAheadError, match="restart_timestamps") as error:
        manager.propose_commit(A, *staged(manager, ict_ms))
    assert error.value.in_commit_timestamp_ms == ict_ms
    manager.table(A).append(rows((3, 7)))
    assert len(content(manager.table(A))) == 3


@pytest.mark.parametrize(("bound_ms", "allowed"), [(None, False), (3 * HOUR_MS, True)])
def test_a_writer_whose_clock_is_wrong_commits_nothing(manager, bound_ms, allowed):
    if bound_ms is not None:
        manager.coordinator.most_ahead_ms = bound_ms
    fast = manager_of(manager.coordinator, lambda: now_ms() + 2 * HOUR_MS)
    before = fast.table(A).snapshot().version
    if allowed:
        fast.table(A).append(rows((3, 7)))
    else:
        with pytest.raises(TimestampAheadError, match="clock"):
            fast.table(A).append(rows((3, 7)))
    assert manager.table(A).snapshot().version == before + allowed


def test_how_far_is_given_with_the_manager(tmp_path):
    manager = manager_of(str(tmp_path / "catalog.db"), most_ahead=datetime.timedelta(hours=5))
    assert manager.coordinator.most_ahead_ms == 5 * HOUR_MS


@pytest.mark.parametrize("ict_ms", [*AHEAD, LARGEST_MS - 1])
def test_a_transaction_does_not_carry_the_time_of_one_table_to_another(manager, ict_ms):
    poison(manager, ict_ms)
    transaction = manager.transaction()
    with pytest.raises((TimestampAheadError, CorruptTableError), match="restart_timestamps"):
        for name in (B, A):
            transaction.table(name).append(rows((3, 7)))
        transaction.commit()
    assert manager.describe_transaction(transaction.id).status == "ACTIVE"
    assert manager.table(B).snapshot().version == 0
    manager.table(B).append(rows((4, 8)))
    assert manager.table(B).history()[0].timestamp_ms < now_ms() + HOUR_MS


def test_only_the_commit_of_a_transaction_judges_its_times(manager):
    poison(manager, YEAR_2100_MS)
    transaction = manager.transaction()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClockDriftWarning)
        transaction.table(A).append(rows((3, 7)))
    with pytest.raises(TimestampAheadError):
        transaction.commit()


@pytest.mark.parametrize("ict_ms", AHEAD)
def test_a_table_that_is_only_read_does_not_pass_its_time_on(manager, ict_ms):
    poison(manager, ict_ms)
    with manager.transaction(isolation="SERIALIZABLE") as transaction:
        content(transaction.table(A))
        transaction.table(B).append(rows((4, 8)))
        transaction.commit()
    assert manager.table(B).history()[0].timestamp_ms < now_ms() + HOUR_MS


@pytest.mark.parametrize("ict_ms", [*AHEAD, LARGEST_MS - 1])
def test_times_go_on_from_now_when_they_are_restarted(manager, ict_ms):
    table = manager.table(A)
    poison(manager, ict_ms)
    with pytest.raises((TimestampAheadError, CorruptTableError), match="restart_timestamps"):
        table.append(rows((3, 7)))
    restarted = manager.restart_timestamps(A)
    table.append(rows((3, 7)))
    with manager.transaction() as transaction:
        for name in (A, B):
            transaction.table(name).append(rows((4, 8)))
        transaction.commit()
    for seen in (table, manager_of(manager.coordinator, now_ms).table(A)):
        assert content(seen) == [(1, 100), (2, 50), (3, 7), (4, 8)]
        times = [entry.timestamp_ms for entry in reversed(seen.history())]
        assert times == sorted(times)
        assert times[-1] <= now_ms()
        assert seen.version_at(times[restarted]).version == restarted
        assert content(seen, seen.version_at(times[restarted + 1]).version) == [(1, 100), (2, 50), (3, 7)]
        assert seen.version_at(times[0]).version == 0
    assert manager.consistent_cut(now_ms())[A] == table.version
    table.checkpoint()
    table.append(rows((5, 9)))
    assert len(content(manager_of(manager.coordinator, now_ms).table(A))) == 5


class _Interrupted(WrappedCoordinator):
    """Raises KeyboardInterrupt after a proposal took effect and before its answer arrives."""

    def ratify(self, proposal):
        super().ratify(proposal)
        raise KeyboardInterrupt


def test_an_interrupt_after_the_ratification_leaves_the_commit(manager):
    poison(manager, YEAR_2100_MS)
    with pytest.raises(KeyboardInterrupt):
        manager_of(_Interrupted(manager.coordinator), now_ms).restart_timestamps(A)
    manager.table(A).append(rows((3, 7)))
    assert content(manager_of(manager.coordinator, now_ms).table(A)) == [(1, 100), (2, 50), (3, 7)]


class _GoneAfterRatification(WrappedCoordinator):
    """A coordinator that answers no call after a ratification."""

    is_gone = False

    def _pass(self, method, about, action):
        if self.is_gone:
            raise CoordinatorError(f"no {method}", path="catalog")
        result = super()._pass(method, about, action)
        self.is_gone = method == "ratify"
        return result


def test_what_fails_after_the_ratification_does_not_make_the_commit_an_error(manager):
    poison(manager, YEAR_2100_MS)
    assert manager_of(_GoneAfterRatification(manager.coordinator), now_ms).restart_timestamps(A) == 2
    file = staged(manager, now_ms() + 1)  # version 2 may be of this millisecond
    _, head = manager_of(_GoneAfterRatification(manager.coordinator), now_ms).propose_commit(A, *file)
    assert head.version == 3 == manager.ratified(A)[1].version


def test_times_that_are_not_ahead_are_not_restarted(manager):
    with pytest.raises(CallError, match="not ahead"):
        manager.restart_timestamps(A)
    assert manager.table(A).snapshot().version == 0


@pytest.mark.parametrize("ict_ms", AHEAD)
def test_a_table_is_registered_when_its_times_are_right(tmp_path, ict_ms):
    place = str(tmp_path / "plain")
    DeltaTable.create(place, SCHEMA, properties={"delta.enableInCommitTimestamps": "true"}, data=rows((1, 1)))
    info = {"inCommitTimestamp": ict_ms, "timestamp": 1, "operation": "WRITE", "operationParameters": {}, "txnId": "t"}
    (tmp_path / "plain/_delta_log" / f"{1:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    manager = manager_of(str(tmp_path / "catalog.db"), now_ms)
    with pytest.raises(TimestampAheadError, match="disable_in_commit_timestamps"):
        manager.register_table("bank.c", place)
    assert manager.list_tables() == []
    DeltaTable.open(place).disable_in_commit_timestamps()
    manager.register_table("bank.c", place).append(rows((2, 2)))
    assert content(manager.table("bank.c")) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("ict_ms", [LARGEST_MS, LARGEST_MS - 1])
def test_a_plain_table_at_the_last_of_all_times_says_how_to_go_on(tmp_path, ict_ms):
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties={"delta.enableInCommitTimestamps": "true"})
    info = {"inCommitTimestamp": ict_ms, "timestamp": 1, "operation": "WRITE", "operationParameters": {}, "txnId": "t"}
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    with pytest.raises(CorruptTableError, match="Disable"):
        for _ in range(LARGEST_MS - ict_ms + 1):
            table = DeltaTable.open(str(tmp_path))
            table.append(rows((1, 1)))
    table.disable_in_commit_timestamps()
    table.enable_in_commit_timestamps()
    table.append(rows((2, 2)))
    last_ms = table.history()[0].timestamp_ms
    assert last_ms is not None and last_ms < now_ms() + HOUR_MS


def test_a_coordinator_of_a_clock_of_its_own_judges_by_that(monkeypatch):
    coordinator, clock = MemoryCoordinator(), Clock(now_ms())
    monkeypatch.setattr(coordinator, "clock_ms", lambda: now_ms() - 2 * HOUR_MS)
    with pytest.raises(TimestampAheadError):
        bank(coordinator, clock).table(A).append(rows((3, 7)))
