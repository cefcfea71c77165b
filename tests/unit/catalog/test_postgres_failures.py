"""A catalog in PostgreSQL whose server stops, restarts, hangs or loses connections: each call reports the right
outcome, or that the outcome is unknown.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deltalog.catalog.postgresql import PostgresCoordinator
from deltalog.catalog.postgresql_server import PostgresSettings
from deltalog.catalog.records import DocumentChange, Head, Proposal, Ratification, committed, touched
from deltalog.errors import CoordinatorError, OperationTimeoutError
from deltalog.testing.coordinator_cases import commit, marking, proposal, table, transaction
from tests.support.postgresql import Postgres, running, standby_of
from tests.support.postgresql.proxy import Cut, Message, Proxy, pass_on, proxied
from tests.support.waiting import until

RATIFIED, MOVED = Ratification.RATIFIED, Ratification.MOVED


class Place:
    """A catalog with two handles: one connects through a proxy, with the application name ``victim``; the other
    bypasses the proxy.
    """

    def __init__(self, server: Postgres, proxy: Proxy) -> None:
        self.server, self.proxy = server, proxy
        url = server.url()
        self.beside = PostgresCoordinator(url)
        # Without encryption, the first message of a connection is the only one without a letter.
        over = url.replace(f":{server.port}/", f":{proxy.port}/")
        self.through = PostgresCoordinator(f"{over}&sslmode=disable&gssencmode=disable&application_name=victim")

    def begin(self) -> None:
        """Bring the catalog into the state with which each test begins."""
        self.proxy.rule = pass_on
        self.server.empty(self.beside._server.schema)
        for number in (1, 2):
            self.beside.register(table(number), 0)
        self.beside.insert(transaction("t"))
        self.through.tables()
        self.proxy.clear()


@pytest.fixture(scope="module")
def line(postgresql: Postgres) -> Iterator[Place]:
    with proxied(postgresql.port) as proxy:
        found = Place(postgresql, proxy)
        yield found
        found.beside.close()
        found.through.close()


@pytest.fixture
def place(line: Place) -> Iterator[Place]:
    line.begin()
    yield line
    line.proxy.rule = pass_on


def of_several(place: Place) -> tuple[Callable[[], Any], Callable[[], bool]]:
    before = transaction("t")
    made = Proposal(
        {"id-1": (commit(1),), "id-2": (commit(1),)}, {}, before, committed(before, {"id-1": 1, "id-2": 1}, 2000)
    )
    return lambda: place.through.ratify(made) is RATIFIED, lambda: _all_or_none(place)


def _all_or_none(place: Place) -> bool:
    cut, record = place.beside.cut(), place.beside.transaction("t")
    assert record is not None
    assert cut in ({"id-1": 0, "id-2": 0}, {"id-1": 1, "id-2": 1})
    assert record.status.is_final is (cut["id-1"] == 1)
    head = place.beside.head("id-1")
    assert head is not None and len(head.unpublished) == cut["id-1"]
    return cut["id-1"] == 1


def of_one(place: Place) -> tuple[Callable[[], Any], Callable[[], bool]]:
    made = proposal({"id-1": 1})
    return lambda: place.through.ratify(made) is RATIFIED, lambda: place.beside.cut() == {"id-1": 1, "id-2": 0}


def of_register(place: Place) -> tuple[Callable[[], Any], Callable[[], bool]]:
    return (
        lambda: place.through.register(table(3), 0, [DocumentChange("k", "a", 0, "1")]),
        lambda: (
            (place.beside.table("sales.t0003") is not None, place.beside.document("k", "a") is not None) == (True, True)
        ),
    )


def of_drop(place: Place) -> tuple[Callable[[], Any], Callable[[], bool]]:
    return lambda: place.through.drop("id-1", 0), lambda: place.beside.table("sales.t0001") is None


def of_parts(place: Place) -> tuple[Callable[[], Any], Callable[[], bool]]:
    record = touched(transaction("t"), 2000)

    def is_done() -> bool:
        assert bool(place.beside.parts("t")) is (place.beside.transaction("t") == record)
        return place.beside.transaction("t") == record

    return lambda: place.through.put_parts(record, {"a": b"x" * 100, "b": b""}), is_done


def of_document(place: Place) -> tuple[Callable[[], Any], Callable[[], bool]]:
    return (
        lambda: place.through.change_documents([DocumentChange("k", "a", 0, "1")]),
        lambda: place.beside.document("k", "a") is not None,
    )


def of_mark(place: Place) -> tuple[Callable[[], Any], Callable[[], bool]]:
    return lambda: place.through.mark("id-1", 1, marking("a")), lambda: place.beside.marks("id-1").last == 1


def of_replace(place: Place) -> tuple[Callable[[], Any], Callable[[], bool]]:
    record = touched(transaction("t"), 2000)
    return lambda: place.through.replace(record), lambda: place.beside.transaction("t") == record


_OTHERS = (of_parts, of_register, of_drop, of_document, of_mark, of_replace)
DEEDS = [of_one, of_several, *(pytest.param(deed, marks=pytest.mark.long) for deed in _OTHERS)]
# Changes that are one statement: whether the server received it is unknown once it was sent.
AT_ONCE = (of_one, of_document, of_replace)


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_a_connection_that_is_cut_at_any_message_leaves_no_wrong_answer(place: Place, deed: Any, is_long: bool) -> None:
    """The connection is cut before the n-th message, in either direction, and no new connection can be opened during
    the call.
    """
    assert deed(place)[0]()
    count, outcomes = len(place.proxy.messages), list[tuple[str, bool]]()
    for number in range(1, count + 1):
        if is_long or number % 8 == 1 or number > count - 2:
            outcomes.append(cut_before(place, deed, number))
    assert ("unknown", True) in outcomes
    assert ("failed", False) in outcomes or deed in AT_ONCE
    assert {outcome for outcome, _ in outcomes} <= {"unknown", "failed", "done"}


def cut_before(place: Place, deed: Any, number: int) -> tuple[str, bool]:
    """Cut the connection before the n-th message of a call. Returns the outcome of the call, and whether it took
    effect.
    """
    place.begin()
    seen: list[Message] = []

    def rule(message: Message) -> None:
        seen.append(message)
        if len(seen) >= number:
            raise Cut

    call, is_done = deed(place)
    place.proxy.rule = rule
    try:
        outcome = "done" if call() else "refused"
    except OperationTimeoutError:
        outcome = "unknown"
    except CoordinatorError:
        outcome = "failed"
    place.proxy.rule = pass_on
    place.server.end_sessions("victim")  # the server may still be working on what it received
    took_effect = bool(is_done())
    if outcome in ("failed", "done"):
        assert took_effect is (outcome == "done")
    assert place.through.cut() == place.beside.cut()  # the next call opens a connection of its own
    if not took_effect:
        assert deed(place)[0]()
    return outcome, took_effect


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_a_session_that_ended_while_it_was_idle_changes_no_answer(place: Place, deed: Any) -> None:
    assert place.server.end_sessions("victim") == 1
    call, is_done = deed(place)
    assert call() and is_done()


def test_an_answer_that_is_lost_after_the_commit_is_unknown(place: Place) -> None:
    call, is_done = of_several(place)
    is_committing: list[bool] = []

    def rule(message: Message) -> None:
        if message.is_commit:
            is_committing.append(True)
        if not message.is_from_client and is_committing:
            raise Cut

    place.proxy.rule = rule
    with pytest.raises(OperationTimeoutError, match="may or may not have taken effect"):
        call()
    place.proxy.rule = pass_on
    assert is_done()
    assert place.through.ratify(proposal({"id-1": 2})) is RATIFIED


def test_a_session_that_is_ended_while_it_commits_is_unknown(place: Place) -> None:
    """The server ends the session after it has received the whole change except its COMMIT."""
    call, is_done = of_several(place)

    def rule(message: Message) -> None:
        if message.is_commit:
            assert place.server.end_sessions("victim") == 1

    place.proxy.rule = rule
    with pytest.raises(OperationTimeoutError, match="may or may not have taken effect"):
        call()
    place.proxy.rule = pass_on
    assert not is_done()
    assert call() and is_done()


def test_a_session_that_is_ended_while_it_waits_for_a_lock_is_repeated(place: Place) -> None:
    call, is_done = of_several(place)
    outcomes: list[object] = []
    with place.server.connect() as holder:
        holder.execute("BEGIN")
        schema = place.beside._server.schema
        holder.execute(f"SELECT FROM {schema}.tables WHERE table_id = 'id-1' FOR UPDATE")
        thread = threading.Thread(target=lambda: outcomes.append(call()))
        thread.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'victim' AND wait_event_type = 'Lock'"
        until(lambda: place.server.execute(waiting))
        assert place.server.end_sessions("victim") == 1
        holder.execute("ROLLBACK")
    thread.join()
    assert outcomes == [True] and is_done()


# ------------------------------------------------------------------------------------------ servers that stop


@pytest.fixture(scope="module")
def own() -> Iterator[Postgres]:
    """A server for tests that stop it."""
    with running() as server:
        yield server


def moves_on(catalog: PostgresCoordinator) -> int:
    """Ratify the next version. Returns it."""
    version = catalog.cut()["id-1"] + 1
    assert catalog.ratify(proposal({"id-1": version})) is RATIFIED
    return version


STOPS = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
    "killed": signal.SIGKILL,
}


@pytest.mark.parametrize("how", STOPS)
def test_a_server_that_restarts_is_used_again_without_a_new_process(own: Postgres, how: str) -> None:
    catalog = own.coordinator()
    catalog.register(table(1), 0)
    last = moves_on(catalog)
    own.stop(STOPS[how])
    for call in (catalog.cut, lambda: catalog.ratify(proposal({"id-1": last + 1}))):
        with pytest.raises(CoordinatorError, match="cannot be reached") as failed:
            call()
        assert not isinstance(failed.value, OperationTimeoutError)
    own.start()
    assert catalog.cut() == {"id-1": last}  # the acknowledged commits are there
    assert moves_on(catalog) == last + 1
    catalog.close()


@pytest.mark.parametrize(
    "how", ["killed", pytest.param("immediate", marks=pytest.mark.long), pytest.param("fast", marks=pytest.mark.long)]
)
def test_writers_during_a_stop_lose_nothing_and_are_told_nothing_wrong(own: Postgres, how: str) -> None:
    """Each of several writers commits to its own table while the server is stopped and started."""
    catalog = own.coordinator()
    for number in range(4):
        catalog.register(table(number), 0)
    over = threading.Event()
    told: list[list[tuple[int, str]]] = [[] for _ in range(4)]

    def write(who: int) -> None:
        version = 0
        while not over.is_set():
            before = transaction(f"{who}-{version}-{len(told[who])}")
            try:
                catalog.insert(before)
                after = committed(before, {f"id-{who}": version + 1}, 2000)
                made = Proposal({f"id-{who}": (commit(version + 1, before.id),)}, {}, before, after)
                outcome = catalog.ratify(made).value
            except OperationTimeoutError:
                outcome = "unknown"
            except CoordinatorError:
                outcome = "failed"
            told[who].append((version + 1, outcome))
            while outcome == "unknown" or outcome == "failed":
                try:
                    now = catalog.cut()[f"id-{who}"]
                except CoordinatorError:
                    time.sleep(0.05)
                    continue
                assert now == version or (outcome == "unknown" and now == version + 1), (version, outcome, now)
                version, outcome = now, ""
            version += outcome == "ratified"

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for each in threads:
        each.start()
    try:
        time.sleep(0.5)
        own.stop(STOPS[how])
        time.sleep(0.2)
        own.start()
        time.sleep(0.5)
    finally:
        over.set()
        for each in threads:
            each.join()
    assert all(any(outcome != "ratified" for _, outcome in each) for each in told)
    for who in range(4):
        head = catalog.head(f"id-{who}")
        assert head is not None
        ratified = [version for version, outcome in told[who] if outcome == "ratified"]
        assert set(ratified) <= {each.version for each in head.unpublished}
        assert len(set(ratified)) == len(ratified)
        assert ratified[-1] == head.version or told[who][-1][1] != "ratified"
    catalog.close()


def test_a_server_that_hangs_costs_its_caller_a_bounded_time(own: Postgres) -> None:
    catalog = own.coordinator(settings=PostgresSettings(answer_seconds=0.5, connect_seconds=2))
    catalog.register(table(1), 0)
    pids = [pid for (pid,) in own.execute("SELECT pid FROM pg_stat_activity WHERE usename = %s", own.user)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(OperationTimeoutError, match="no answer within"):
            catalog.cut()
        assert catalog.cut() == {"id-1": 0}  # over a new connection
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert moves_on(catalog) == 1
    catalog.close()


def test_a_ratification_without_an_answer_is_unknown(place: Place) -> None:
    hasty = PostgresCoordinator(place.through.url, settings=PostgresSettings(answer_seconds=0.5))
    hasty.cut()
    is_over = threading.Event()

    def rule(message: Message) -> None:
        if not message.is_from_client:
            is_over.wait(20)

    place.proxy.rule = rule
    with pytest.raises(OperationTimeoutError, match="no answer within"):
        hasty.ratify(proposal({"id-1": 1}))
    is_over.set()
    hasty.close()
    assert place.beside.cut()["id-1"] == 1


def test_a_writer_that_was_stopped_in_the_middle_of_a_change_holds_up_its_table_only_for_a_while(place: Place) -> None:
    slow = PostgresCoordinator(place.through.url, settings=PostgresSettings(idle_seconds=1))
    slow.cut()
    is_asleep, is_over = threading.Event(), threading.Event()

    def rule(message: Message) -> None:
        if message.text.startswith("\nUPDATE"):  # the first message after the locks were taken
            is_asleep.set()
            is_over.wait(20)

    place.proxy.rule = rule
    before = transaction("t")
    made = Proposal({"id-1": (commit(1, "slow"),)}, {}, before, committed(before, {"id-1": 1}, 2000))
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(slow.ratify(made))
        except CoordinatorError as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert is_asleep.wait(10)
    assert place.beside.ratify(proposal({"id-2": 1})) is RATIFIED  # at once: another table
    assert place.beside.ratify(proposal({"id-1": 1}, "other")) is RATIFIED  # after the server ended the other session
    is_over.set()
    thread.join()
    assert outcomes[0] is MOVED or isinstance(outcomes[0], CoordinatorError)
    head = place.beside.head("id-1")
    assert head is not None and [each.txn_id for each in head.unpublished] == ["txn-other"]


def test_a_lock_that_is_not_let_go_is_an_error_and_nothing_changes(postgresql: Postgres) -> None:
    catalog = postgresql.coordinator(settings=PostgresSettings(lock_seconds=0.2))
    catalog.register(table(1), 0)
    catalog.register(table(2), 0)
    with postgresql.connect() as holder:
        holder.execute("BEGIN")
        schema = catalog._server.schema
        holder.execute(f"SELECT FROM {schema}.tables WHERE table_id = 'id-1' FOR UPDATE")
        for versions in ({"id-1": 1}, {"id-1": 1, "id-2": 1}):
            with pytest.raises(CoordinatorError, match=r"Nothing was changed\. Another process held") as failed:
                catalog.ratify(proposal(versions))
            assert not isinstance(failed.value, OperationTimeoutError)
        assert catalog.cut() == {"id-1": 0, "id-2": 0}  # reads do not wait for locks
        assert catalog.ratify(proposal({"id-2": 1})) is RATIFIED  # commits to other tables do not wait either
        holder.execute("ROLLBACK")
    assert catalog.ratify(proposal({"id-1": 1})) is RATIFIED
    catalog.close()


def test_a_server_that_accepts_no_changes_says_so(postgresql: Postgres) -> None:
    catalog = postgresql.coordinator()
    catalog.register(table(1), 0)
    with_options = PostgresCoordinator(f"{catalog.url}&options=-c%20default_transaction_read_only%3Don")
    for call in (
        lambda: with_options.ratify(proposal({"id-1": 1})),
        lambda: with_options.insert(transaction("t")),
    ):
        with pytest.raises(CoordinatorError, match=r"Nothing was changed\. It accepts no changes") as failed:
            call()
        assert not isinstance(failed.value, OperationTimeoutError)
    assert with_options.head("id-1") == Head(0)
    for each in (catalog, with_options):
        each.close()


def test_too_many_connections_are_an_error_without_effect(own: Postgres) -> None:
    catalog = own.coordinator()
    catalog.register(table(1), 0)
    own.execute(f"ALTER ROLE {own.user} CONNECTION LIMIT 1")
    try:
        with pytest.raises(CoordinatorError, match="too many connections"):
            PostgresCoordinator(catalog.url)
        assert moves_on(catalog) == 1
    finally:
        own.execute(f"ALTER ROLE {own.user} CONNECTION LIMIT -1")
    catalog.close()


def test_all_connections_of_a_process_in_use_are_an_error_without_effect(postgresql: Postgres) -> None:
    catalog = postgresql.coordinator(settings=PostgresSettings(connections=1, lock_seconds=0.1))
    catalog.register(table(1), 0)
    with catalog._server._borrowed(), pytest.raises(CoordinatorError, match="All 1 connections of this process"):
        catalog.cut()
    assert catalog.cut() == {"id-1": 0}
    catalog.close()


# --------------------------------------------------------------------------------------------------- standbys


@pytest.mark.long
def test_a_standby_is_refused_until_it_is_the_primary() -> None:
    """When the primary is killed, a synchronous standby has all acknowledged changes."""
    with running() as primary, standby_of(primary) as standby:
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        url = primary.url()
        both = url.replace("@127.0.0.1:", f"@127.0.0.1:{standby.port},127.0.0.1:")
        catalog = PostgresCoordinator(both)
        catalog.register(table(1), 0)
        last = [moves_on(catalog) for _ in range(5)][-1]
        alone = url.replace(f":{primary.port}/", f":{standby.port}/")
        for create in (True, False):
            with pytest.raises(CoordinatorError, match="is on a standby"):
                PostgresCoordinator(alone, create=create)
        with pytest.raises(CoordinatorError, match="on a standby"):
            PostgresCoordinator(alone.replace("schema=catalog", "schema=other"))
        primary.stop(signal.SIGKILL)
        with pytest.raises(CoordinatorError, match="cannot be reached") as failed:
            catalog.cut()
        assert not isinstance(failed.value, OperationTimeoutError)
        standby.execute("SELECT pg_promote()")
        assert catalog.cut() == {"id-1": last}
        assert moves_on(catalog) == last + 1
        catalog.close()


@pytest.mark.parametrize("versions", [{"id-1": 1}, {"id-1": 1, "id-2": 1}], ids=["at once", "two steps"])
def test_a_commit_that_no_synchronous_standby_confirmed_is_unknown(own: Postgres, versions: dict[str, int]) -> None:
    """If the statement is cancelled, the server stops waiting for its standby, and warns."""
    catalog = own.coordinator()
    for number in (1, 2):
        catalog.register(table(number), 0)
    outcomes: list[object] = []

    def ratify() -> None:
        try:
            outcomes.append(catalog.ratify(proposal(versions)))
        except OperationTimeoutError as error:
            outcomes.append(error.message)

    thread = threading.Thread(target=ratify)
    own.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
    own.execute("SELECT pg_reload_conf()")
    try:
        until(lambda: own.execute("SHOW synchronous_standby_names") == [("absent",)])
        time.sleep(0.3)  # the server's processes read its configuration one after the other
        thread.start()
        waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        until(lambda: own.execute(f"SELECT pg_cancel_backend(pid) {waiting}"))
        thread.join()
        assert "only with a warning" in str(outcomes[0])
        catalog.published("id-1", 0)  # this call does not wait for the standby
    finally:
        own.execute("ALTER SYSTEM RESET synchronous_standby_names")
        own.execute("SELECT pg_reload_conf()")
        thread.join()
    assert catalog.cut() == {"id-1": 0, "id-2": 0, **versions}
    catalog.close()


# ------------------------------------------------------------------------------------------------ round trips


def test_a_change_takes_few_round_trips(place: Place) -> None:
    """docs/store-calls.md has these numbers."""
    before, through = transaction("t"), place.through
    made = {
        "ratify one": (lambda: through.ratify(proposal({"id-1": 1})), 1),
        "ratify several": (
            lambda: through.ratify(
                Proposal({"id-1": (commit(2),), "id-2": (commit(1),)}, {}, before, committed(before, {"id-1": 2}, 2000))
            ),
            2,
        ),
        "ratify what moved": (lambda: through.ratify(proposal({"id-1": 1})), 2),
        "head": (lambda: through.head("id-1"), 1),
        "cut": (through.cut, 1),
        "published": (lambda: through.published("id-1", 1), 1),
        "insert": (lambda: through.insert(transaction("u")), 1),
        "replace": (lambda: through.replace(touched(transaction("u"), 2000)), 1),
        "put_parts": (lambda: through.put_parts(touched(touched(transaction("u"), 2000), 3000), {"a": b"1"}), 2),
        "parts": (lambda: through.parts("u"), 1),
        "change_documents": (lambda: through.change_documents([DocumentChange("k", "a", 0, "1")]), 1),
        "register": (lambda: through.register(table(3), 0), 2),
    }
    for name, (call, wanted) in made.items():
        place.proxy.clear()
        assert call() is not False, name
        assert (name, place.proxy.round_trips()) == (name, wanted)
    assert place.proxy.connections == 0
