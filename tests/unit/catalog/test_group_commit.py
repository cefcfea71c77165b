"""Changes that threads make at the same time share transactions, and each has the outcome that it would have alone."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deltalog.catalog.group_commit import Execute, GroupCommit
from deltalog.catalog.records import Proposal, Ratification, StatusFilter, touched
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.catalog.sqlite_file import SQLiteFile
from deltalog.errors import CoordinatorError, OperationTimeoutError
from deltalog.testing.coordinator_cases import commit, proposal, table, transaction
from tests.support.waiting import until

RATIFIED = Ratification.RATIFIED
THREADS = 8


class Trace:
    """Records what the connections of a catalog execute. ``transactions``: for each COMMIT, whether it waited for the
    disk.
    """

    def __init__(self) -> None:
        self.transactions: list[bool] = []
        self._waits = False

    def __call__(self, statement: str) -> None:
        if statement.startswith("PRAGMA synchronous = "):
            self._waits = statement.endswith("FULL")
        elif statement == "COMMIT":
            self.transactions.append(self._waits)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    found, real = Trace(), SQLiteFile._connect

    def connect(self: SQLiteFile, mode: str) -> sqlite3.Connection:
        connection = real(self, mode)
        connection.set_trace_callback(found)
        return connection

    monkeypatch.setattr(SQLiteFile, "_connect", connect)
    return found


@pytest.fixture
def catalog(tmp_path: Path, trace: Trace) -> SQLiteCoordinator:
    catalog = SQLiteCoordinator(tmp_path / "catalog.db")
    for number in range(THREADS):
        catalog.register(table(number), 0)
    trace.transactions.clear()
    return catalog


class Together:
    """Calls that wait while a change is in progress, in the order in which they were added."""

    def __init__(self, catalog: SQLiteCoordinator, pool: ThreadPoolExecutor) -> None:
        self._waiting = catalog._file._group._waiting
        self._pool = pool

    def add(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        count = len(self._waiting)
        future = self._pool.submit(call, *arguments)
        until(lambda: len(self._waiting) > count or future.done())
        return future


@contextlib.contextmanager
def together(catalog: SQLiteCoordinator, *, durable: bool = True) -> Iterator[Together]:
    """Hold the calls that the block adds, and make all of them when the block ends."""
    begun, over = threading.Event(), threading.Event()

    def hold(execute: Execute) -> None:
        begun.set()
        over.wait(60)

    with ThreadPoolExecutor(4 * THREADS) as pool:
        held = pool.submit(catalog._file.write, hold, durable=durable)
        assert begun.wait(60)
        try:
            yield Together(catalog, pool)
        finally:
            over.set()
        held.result(60)


def test_changes_that_wait_share_one_transaction(catalog: SQLiteCoordinator, trace: Trace) -> None:
    with together(catalog) as calls:
        done = [calls.add(catalog.ratify, proposal({f"id-{n}": 1})) for n in range(THREADS)]
    assert [each.result() for each in done] == [RATIFIED] * THREADS
    assert trace.transactions == [True]
    assert SQLiteCoordinator(catalog.path).cut() == {f"id-{n}": 1 for n in range(THREADS)}


def test_a_change_alone_waits_for_nobody(catalog: SQLiteCoordinator, trace: Trace) -> None:
    for version in range(1, 4):
        before = threading.active_count()
        assert catalog.ratify(proposal({"id-1": version})) is RATIFIED
        assert threading.active_count() == before
    assert trace.transactions == [True] * 3


def test_of_proposals_for_one_version_the_first_that_waited_wins(catalog: SQLiteCoordinator) -> None:
    with together(catalog) as calls:
        done = [calls.add(catalog.ratify, proposal({"id-1": 1}, f"{n}")) for n in range(4)]
        following = calls.add(catalog.ratify, proposal({"id-1": 2}, "5"))
    assert [each.result() for each in done] == [RATIFIED] + [Ratification.MOVED] * 3
    assert following.result() is RATIFIED
    head = catalog.head("id-1")
    assert head is not None and [each.txn_id for each in head.unpublished] == ["txn-0", "txn-5"]


def test_an_error_of_one_leaves_the_others(catalog: SQLiteCoordinator, trace: Trace) -> None:
    def wrong(execute: Execute) -> None:
        execute("UPDATE tables SET version = 77")
        raise ZeroDivisionError

    def refused(execute: Execute) -> None:
        execute("INSERT INTO tables VALUES (NULL)")

    with together(catalog) as calls:
        first = calls.add(catalog.ratify, proposal({"id-0": 1}))
        errors = [calls.add(catalog._file.write, make) for make in (wrong, refused)]
        last = calls.add(catalog.ratify, proposal({"id-1": 1}))
    assert first.result() is last.result() is RATIFIED
    with pytest.raises(ZeroDivisionError):
        errors[0].result()
    with pytest.raises(CoordinatorError, match="Nothing was changed") as error:
        errors[1].result()
    assert not isinstance(error.value, OperationTimeoutError)
    assert catalog.cut() == {"id-0": 1, "id-1": 1, **{f"id-{n}": 0 for n in range(2, THREADS)}}
    assert len(trace.transactions) == 3  # the transaction of the block, and one for each change that has an effect


def test_what_does_not_fit_on_the_disk_leaves_what_does(catalog: SQLiteCoordinator) -> None:
    before = transaction("t")
    catalog.insert(before)
    with catalog._file.connection() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 5}")
    with together(catalog) as calls:
        small = [calls.add(catalog.ratify, proposal({"id-0": 1}))]
        large = calls.add(catalog.put_parts, touched(before, 2000), {"a": b"x" * 1_000_000})
        small.append(calls.add(catalog.ratify, proposal({"id-1": 1})))
    assert [each.result() for each in small] == [RATIFIED] * 2
    with pytest.raises(CoordinatorError, match="Free space") as error:
        large.result()
    assert not isinstance(error.value, OperationTimeoutError)
    assert (catalog.transaction("t"), catalog.parts("t")) == (before, {})


def test_a_commit_that_fails_is_unknown_to_all_of_it(catalog: SQLiteCoordinator) -> None:
    """The kernel refuses to extend SQLite's write-ahead log, to simulate a broken disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(OperationTimeoutError), together(catalog) as calls:
            done = [
                calls.add(catalog.ratify, Proposal({f"id-{n}": tuple(commit(v) for v in range(1, 30))}))
                for n in range(3)
            ]
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(f"{catalog.path}-wal"), limits[1]))
        errors = [each.exception() for each in done]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [type(each) for each in errors] == [OperationTimeoutError] * 3
    assert len({id(each) for each in errors}) == 3
    cut = catalog.cut()
    assert {cut[f"id-{n}"] for n in range(3)} in ({0}, {29})
    assert catalog.ratify(proposal({"id-5": 1})) is RATIFIED


def test_a_change_that_must_be_durable_joins_no_transaction_that_is_not(
    catalog: SQLiteCoordinator, trace: Trace
) -> None:
    catalog.ratify(proposal({"id-1": 1}))
    trace.transactions.clear()
    with together(catalog, durable=False) as calls:
        notes = [calls.add(catalog.published, "id-1", 1)]
        decision = calls.add(catalog.ratify, proposal({"id-2": 1}))
        notes.append(calls.add(catalog.delete_parts, "none"))
    assert decision.result() is RATIFIED
    assert [each.result() for each in notes] == [None, None]
    assert trace.transactions == [False, True]


def test_a_change_whose_turn_does_not_come_is_not_made_later(tmp_path: Path) -> None:
    catalog = SQLiteCoordinator(tmp_path / "catalog.db", busy_seconds=0.05)
    catalog.register(table(1), 0)
    with together(catalog) as calls:
        late = calls.add(catalog.ratify, proposal({"id-1": 1}))
        with pytest.raises(CoordinatorError, match=r"locked.*Try again"):
            late.result(60)
    assert catalog.cut() == {"id-1": 0}


def test_threads_of_a_locked_file_all_learn_that_nothing_changed(tmp_path: Path) -> None:
    catalog = SQLiteCoordinator(tmp_path / "catalog.db", busy_seconds=0.2)
    catalog.register(table(1), 0)
    holder = sqlite3.connect(catalog.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(4) as pool:
        errors = [pool.submit(catalog.ratify, proposal({"id-1": 1})).exception() for _ in range(4)]
    assert [type(each) for each in errors] == [CoordinatorError] * 4
    holder.execute("ROLLBACK")
    holder.close()
    assert catalog.ratify(proposal({"id-1": 1})) is RATIFIED


def test_an_interrupted_thread_leaves_the_changes_of_the_others(catalog: SQLiteCoordinator) -> None:
    begun, over = threading.Event(), threading.Event()

    def interrupted(execute: Execute) -> None:
        execute("UPDATE tables SET version = 77")
        begun.set()
        over.wait(60)
        raise KeyboardInterrupt

    raised: list[BaseException] = []

    def lead() -> None:
        try:
            catalog._file.write(interrupted)
        except KeyboardInterrupt as error:
            raised.append(error)

    thread = threading.Thread(target=lead)
    thread.start()
    assert begun.wait(60)
    with ThreadPoolExecutor(THREADS) as pool:
        calls = Together(catalog, pool)
        done = [calls.add(catalog.ratify, proposal({f"id-{n}": 1})) for n in range(THREADS)]
        over.set()
        assert [each.result(60) for each in done] == [RATIFIED] * THREADS
    thread.join()
    assert len(raised) == 1
    assert set(catalog.cut().values()) == {1}


def test_a_thread_that_is_interrupted_before_it_begins_lets_others_make_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = SQLiteCoordinator(tmp_path / "catalog.db", busy_seconds=0.5)

    def interrupted(self: GroupCommit, first: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(GroupCommit, "_lead", interrupted)
        with pytest.raises(KeyboardInterrupt):
            catalog.register(table(0), 0)
    assert catalog.register(table(1), 0)
    assert set(catalog.cut()) == {"id-1"}


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_fork_while_another_thread_waits_can_make_changes(catalog: SQLiteCoordinator) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, catalog.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(catalog.ratify, proposal({"id-0": 1}))
        until(lambda: catalog._file._group._leader is not None)
        child = os.fork()
        if child == 0:
            try:
                made = catalog.ratify(proposal({"id-1": 1}, "child"))
                os._exit(0 if made is RATIFIED else 1)
            except BaseException:
                os._exit(2)
        holder.communicate("end\n", timeout=60)
        assert waiting.result(60) is RATIFIED
    assert os.waitpid(child, 0)[1] == 0
    assert (catalog.cut()["id-0"], catalog.cut()["id-1"]) == (1, 1)


def test_many_threads_take_turns(catalog: SQLiteCoordinator, trace: Trace) -> None:
    """No thread starves, and no version that a thread committed is lost."""
    each, order = 25, collections.deque[int]()

    def commits(number: int) -> None:
        for version in range(1, each + 1):
            assert catalog.ratify(proposal({f"id-{number}": version})) is RATIFIED
            order.append(number)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(commits, range(THREADS)))
    assert set(catalog.cut().values()) == {each}
    assert len(trace.transactions) <= THREADS * each


# ---------------------------------------------------------------------------------------------------- kills

KILLED = """
import os, sys, threading
from deltalog.catalog.records import *
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.testing.coordinator_cases import commit, table, transaction

catalog, who = SQLiteCoordinator(sys.argv[1]), sys.argv[2]
# A commit takes long enough that others wait, as on a disk with a real wait.
real = catalog._file._commit
group = catalog._file._group
group._commit = lambda changes, durable: real(counted(changes), durable)
most = 0

def counted(changes):
    global most
    count = 0
    for each in changes:
        count += 1
        yield each
    if count > most:
        most = count
        os.write(1, f"together {most}\\n".encode())

def work(number):
    ids = [f"id-{2 * number}", f"id-{2 * number + 1}"]
    version = catalog.cut()[ids[0]]
    while True:
        version += 1
        before = transaction(f"{who}-{number}-{version}")
        assert catalog.insert(before)
        commits = {table_id: (commit(version, who),) for table_id in ids}
        made = Proposal(commits, {}, before, committed(before, dict.fromkeys(ids, version), 2000))
        assert catalog.ratify(made) is Ratification.RATIFIED
        os.write(1, f"{number} {version}\\n".encode())

for number in range(int(sys.argv[3])):
    threading.Thread(target=work, args=(number,), daemon=True).start()
threading.Event().wait()
"""


def test_a_kill_amid_changes_of_many_threads_loses_nothing_that_was_acknowledged(tmp_path: Path, is_long: bool) -> None:
    catalog = SQLiteCoordinator(tmp_path / "catalog.db")
    for number in range(2 * THREADS):
        catalog.register(table(number), 0)
    chance, acknowledged, together = random.Random(7), dict.fromkeys(range(THREADS), 0), 0
    for who in range(12 if is_long else 3):
        command = [sys.executable, "-c", KILLED, catalog.path, f"{who}", f"{THREADS}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randint(4 * THREADS, 12 * THREADS))]
        time.sleep(chance.random() * 0.01)
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.read().splitlines()
        process.communicate()
        for line in lines:
            name, value = line.split()
            if name == "together":
                together = max(together, int(value))
            else:
                acknowledged[int(name)] = int(value)
        cut, decided = catalog.cut(), catalog.transactions(StatusFilter.COMMITTED.statuses, limit=100_000)
        versions = collections.Counter(frozenset(each.versions.items()) for each in decided)
        for number, seen in acknowledged.items():
            first, second = f"id-{2 * number}", f"id-{2 * number + 1}"
            assert cut[first] == cut[second] in (seen, seen + 1)
            for table_id in (first, second):
                head = catalog.head(table_id)
                assert head is not None
                assert [each.version for each in head.unpublished] == list(range(1, head.version + 1))
            for version in range(1, cut[first] + 1):
                assert versions.pop(frozenset({(first, version), (second, version)})) == 1
            acknowledged[number] = cut[first]
        assert not versions
    assert together > 1  # some kills interrupted transactions that several threads shared
