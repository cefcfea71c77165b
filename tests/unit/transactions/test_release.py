"""Releasing a table from its catalog for access by path. Whatever fails and whoever writes concurrently, the table
stays complete, whether it is still managed or already released, and no acknowledged write is lost."""

from __future__ import annotations

import contextlib
import functools
import itertools

import pytest

from deltalog import DeltaTable
from deltalog.catalog.dynamodb import DynamoDBCoordinator
from deltalog.catalog.records import Marking, Proposal, Ratification
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import (
    CallError,
    CatalogBehindLogError,
    DeltaLogError,
    EntityNotFoundError,
    FeatureDropIncompleteError,
    ObjectBeingDeletedError,
    OperationTimeoutError,
    Outcome,
    ProtocolChangedError,
    ResourceNotReadyError,
    StoreError,
    TransactionCanceledError,
    UnsupportedFeatureError,
)
from deltalog.protocol import features
from deltalog.protocol.paths import commit_path
from deltalog.storage.registry import open_store
from deltalog.testing import coordinators
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator
from deltalog.testing.recording import quiet
from deltalog.testing.stores import POSSIBLE_FAULTS, Fault, FaultyStore, SimulatedKill, no_faults, nth
from deltalog.transactions import VirtualObject
from deltalog.transactions.managed_tables import ManagedTables
from tests.support.restored import OnSQLite
from tests.support.s3.dynamodb import new_table
from tests.support.transactions import A, B, Clock, Meddling, bank, content, environment, manager_of, rows

CATALOG_ID = "deltalog.catalogId"
ICT = "delta.enableInCommitTimestamps"
START = [(1, 100), (2, 50)]
KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER)


@pytest.fixture(params=["memory", "sqlite", "dynamodb", pytest.param("postgresql", marks=pytest.mark.long)])
def new_coordinator(request, tmp_path):
    if request.param == "memory":
        return MemoryCoordinator
    if request.param == "sqlite":
        numbers = itertools.count()
        return lambda: SQLiteCoordinator(tmp_path / f"{next(numbers)}.db")
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql").coordinator
    server = request.getfixturevalue("ministack")
    return lambda: DynamoDBCoordinator(new_table(server, "catalog"), server.options())


@pytest.fixture
def is_slow(request):
    return "dynamodb" in request.node.name


@pytest.fixture
def manager():
    return bank()


def url_of(manager, name=A):
    return next(table.url for table in manager.list_tables() if table.name == name)


def by_path(url):
    return DeltaTable.open(url, environment=environment(Clock()))


def staged(url):
    return open_store(url).list_names("_delta_log/_staged_commits")


def interrupted(manager, method="drop", fault=Fault.KILL_BEFORE):
    """A release that a process began but did not complete. Returns the path of the table."""
    url = url_of(manager)
    with pytest.raises(SimulatedKill):
        manager_of(FaultyCoordinator(manager.coordinator, nth(1, fault, method=method))).release_table(A)
    return url


# -------------------------------------------------------------------------------------------- the effects of a release


def test_a_released_table_is_read_and_written_by_its_path(new_coordinator, tmp_path):
    manager = bank(new_coordinator(), root=tmp_path)
    url = url_of(manager)
    manager.table(A).append(rows((3, 7)))
    manager.release_table(A)
    assert [table.name for table in manager.list_tables()] == [B]
    table = by_path(url)
    snapshot = table.snapshot()
    assert (content(table), snapshot.version) == ([*START, (3, 7)], 2)
    assert not features.is_catalog_managed(snapshot.protocol)
    assert {"inCommitTimestamp", "vacuumProtocolCheck"} <= set(features.writer_features(snapshot.protocol))
    assert snapshot.in_commit_timestamps_enabled
    assert CATALOG_ID not in snapshot.metadata.configuration
    assert table.history()[0].operation == "DROP FEATURE"
    assert table.append(rows((4, 8))).version == 3
    assert table.delete("id = 1").version == 4
    assert table.set_properties({ICT: "false"}).version == 5
    assert content(by_path(url)) == [(2, 50), (3, 7), (4, 8)]
    assert staged(url) == []
    assert open_store(url).head(f"_delta_log/{2:020d}.crc") is not None
    assert by_path(url).check(deep=True).findings == ()


def test_versions_that_the_catalog_managed_are_read_by_path_too(manager):
    url = url_of(manager)
    manager.table(A).append(rows((3, 7)))
    manager.table(A).checkpoint()
    manager.release_table(A)
    table = by_path(url)
    table.append(rows((4, 8)))
    assert [content(table, version) for version in range(4)] == [
        START, [*START, (3, 7)], [*START, (3, 7)], [*START, (3, 7), (4, 8)],
    ]  # fmt: skip
    assert [entry.version for entry in table.history()] == [3, 2, 1, 0]


def test_a_released_table_can_be_registered_again(manager):
    url = url_of(manager)
    manager.release_table(A)
    by_path(url).append(rows((3, 7)))
    table = manager.register_table("bank.again", url)
    assert table.append(rows((4, 8))).version == 4
    assert content(table) == [*START, (3, 7), (4, 8)]
    with pytest.raises(UnsupportedFeatureError):
        by_path(url)
    manager.release_table("bank.again")
    assert content(by_path(url)) == [*START, (3, 7), (4, 8)]


def test_another_catalog_takes_a_released_table_over(manager):
    url, other = url_of(manager), manager_of(MemoryCoordinator())
    manager.drop_table(A)
    with pytest.raises(ResourceNotReadyError, match="Release it from that catalog first"):
        other.register_table(A, url)
    manager.register_table(A, url)
    manager.release_table(A)
    assert content(other.register_table(A, url)) == START


def test_commits_that_were_not_published_are(manager):
    unnoted = FaultyCoordinator(
        manager.coordinator, lambda call: Fault.FAIL_BEFORE if call.method == "published" else None
    )
    writer, url = manager_of(unnoted).table(A), url_of(manager)
    for number in (3, 4):
        writer.append(rows((number, 1)))
        open_store(url).delete(commit_path(number - 2))  # as if the commits had not been published
    manager.release_table(A)
    assert content(by_path(url)) == [*START, (3, 1), (4, 1)]
    assert [entry.version for entry in by_path(url).history()] == [3, 2, 1, 0]


def test_names_of_no_table(manager):
    for name, error in (("bank.x", EntityNotFoundError), ("a.", CallError), (7, CallError)):
        with pytest.raises(error):
            manager.release_table(name)
    manager.release_table(A)
    with pytest.raises(EntityNotFoundError):
        manager.release_table(A)


# -------------------------------------------------------------------------------------- clients with an open handle


def test_whoever_has_it_open_through_the_catalog_is_told_its_path(manager):
    url, other = url_of(manager), manager_of(manager.coordinator)
    handle, transaction = other.table(A), other.transaction()
    transaction.table(A).append(rows((5, 5)))
    transaction.table(B).append(rows((5, 5)))
    manager.release_table(A)
    with pytest.raises(ResourceNotReadyError, match=f"released or dropped. Open {url} by its path"):
        handle.append(rows((6, 6)))
    with pytest.raises(ResourceNotReadyError, match=f"Open {url} by its path"):
        transaction.commit()
    transaction.cancel()
    assert (content(by_path(url)), content(other.table(B))) == (START, [])
    for use in (lambda: other.table(A), lambda: other.transaction().table(A)):
        with pytest.raises(EntityNotFoundError):
            use()


@pytest.mark.parametrize("method", ["published", "drop"])
def test_nothing_is_committed_through_the_catalog_after_the_release_is_ratified(manager, method):
    """Tested before the release is published, and before the catalog removes the table."""
    stale, open_ = manager_of(manager.coordinator), manager_of(manager.coordinator)
    handle, transaction = stale.table(A), open_.transaction()
    transaction.table(A).append(rows((5, 5)))
    transaction.table(B).append(rows((5, 5)))
    prepared = handle.transaction()
    prepared.write(rows((6, 6)).to_reader())
    url = interrupted(manager, method)
    with pytest.raises(ProtocolChangedError):
        prepared.commit()
    with pytest.raises(TransactionCanceledError) as caught:
        transaction.commit()
    assert isinstance(caught.value.conflicts[0], ProtocolChangedError)
    later = stale.transaction()
    uses = {
        "append": lambda: handle.append(rows((6, 6))),
        "properties": lambda: handle.set_properties({"custom.x": "1"}),
        "transaction": lambda: later.table(A).append(rows((6, 6))),
    }
    for name, use in uses.items():
        with pytest.raises(ResourceNotReadyError, match=rf"was released from the catalog .* open {url}"):
            use()
        assert stale.ratified(A)[1].version == 1, name
    assert (content(handle), content(later.table(A))) == (START, START)  # they read what exists
    assert content(manager.table(B)) == []
    manager.release_table(A)
    assert content(by_path(url)) == START
    assert by_path(url).append(rows((3, 7))).version == 2


def test_other_clients_are_refused_too(manager):
    url = interrupted(manager)
    store, last = open_store(url), by_path(url).snapshot().in_commit_timestamp_ms
    file = f"{2:020d}.client.json"
    info = f'{{"commitInfo":{{"inCommitTimestamp":{last + 1},"timestamp":1,"operation":"WRITE","txnId":"t"}}}}\n'
    store.put(f"_delta_log/_staged_commits/{file}", info.encode())
    with pytest.raises(ResourceNotReadyError, match="was released"):
        manager.propose_commit(A, 2, file)
    assert manager.ratified(A)[1].version == 1


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize(("method", "number"), [("head", 1), ("head", 2), ("head", 3), ("marks", 1), ("ratify", 1)])
def test_a_commit_that_comes_first_is_kept(manager, method, number, dies):
    """In each case, another process commits at one of the calls that precede the ratification of the release; the
    committing process may die before it publishes the commit."""
    url = url_of(manager)
    dead = nth(1, Fault.KILL_AFTER, method="ratify") if dies else no_faults

    def commit():
        with contextlib.suppress(SimulatedKill):
            manager_of(FaultyCoordinator(manager.coordinator, dead)).table(A).append(rows((7, 7)))

    manager_of(Meddling(manager.coordinator, method, commit, number)).release_table(A)
    assert content(by_path(url)) == [*START, (7, 7)]
    assert [entry.operation for entry in by_path(url).history()][:2] == ["DROP FEATURE", "WRITE"]


def test_a_transaction_over_several_tables_wins_or_is_cancelled(manager):
    url, other = url_of(manager), manager_of(manager.coordinator)
    statuses = []

    def transfer():
        with other.transaction() as transaction:
            transaction.table(A).delete("id = 1")
            transaction.table(B).append(rows((1, 100)))
            statuses.append(transaction.commit())

    manager_of(Meddling(manager.coordinator, "ratify", transfer)).release_table(A)
    assert statuses == ["COMMITTED"]
    assert (content(by_path(url)), content(manager.table(B))) == ([(2, 50)], [(1, 100)])


def test_two_calls_at_once(new_coordinator, is_slow):
    """A second, complete release runs before each store call of the first one."""
    calls = [(method, number) for method in ("head", "marks", "ratify", "published", "drop") for number in (1, 2, 3)]
    for method, number in [("ratify", 1), ("drop", 1)] if is_slow else calls:
        manager = bank(new_coordinator())
        url = url_of(manager)
        manager.table(A).append(rows((3, 7)))
        second = functools.partial(manager_of(manager.coordinator).release_table, A)
        with quiet():
            manager_of(Meddling(manager.coordinator, method, second, number)).release_table(A)
        assert [table.name for table in manager.list_tables()] == [B], (method, number)
        assert [entry.operation for entry in by_path(url).history()] == [
            "DROP FEATURE",
            "WRITE",
            "CREATE TABLE AS SELECT",
        ]
        assert content(by_path(url)) == [*START, (3, 7)]


def test_a_table_that_is_dropped_meanwhile_is_not_said_to_be_released(manager):
    url = url_of(manager)
    meddled = Meddling(manager.coordinator, "ratify", lambda: manager.drop_table(A))
    with pytest.raises(EntityNotFoundError, match=r"was dropped .* and not released"):
        manager_of(meddled).release_table(A)
    with pytest.raises(UnsupportedFeatureError):
        by_path(url)
    assert staged(url) == []


# ------------------------------------------------------------------------------------------------- clean-ups


def table_id(manager, name=A):
    return next(table.table_id for table in manager.list_tables() if table.name == name)


def test_a_clean_up_that_may_be_deleting_comes_first(manager):
    """Writers that access the table by path would not check the markings of the clean-up."""
    id_, coordinator = table_id(manager), manager.coordinator
    marking = Marking("transaction", Clock().now_ms, ("x.parquet",))
    coordinator.mark(id_, 1, marking)
    with pytest.raises(ObjectBeingDeletedError, match="cannot leave the catalog now"):
        manager.release_table(A)
    coordinator.remark(id_, 1, None)
    meddled = Meddling(coordinator, "ratify", lambda: coordinator.mark(id_, 2, marking))
    with pytest.raises(ObjectBeingDeletedError):
        manager_of(meddled).release_table(A)
    assert manager.ratified(A)[1].version == 0
    assert manager.table(A).append(rows((3, 7))).version == 1


def test_a_clean_up_that_begins_after_the_ratification_deletes_nothing(manager):
    url, name = url_of(manager), "late.parquet"
    transaction = manager.transaction()
    transaction.table(A)
    manager.delete_objects_on_cancel(transaction.id, A, [VirtualObject(f"{url}/{name}")])
    interrupted(manager)
    open_store(url).put(name, b"of a writer by path")
    transaction.cancel()
    assert open_store(url).head(name) is not None
    with pytest.raises(ResourceNotReadyError, match="was released"):
        manager.vacuum(A, 0, dry_run=False, enforce_retention_duration=False)
    manager.recover()
    assert open_store(url).head(name) is not None


# -------------------------------------------------------------------------------------- faults, crashes and recovery


class _Tables(ManagedTables):
    """The managed tables as one process accesses them; ``decide`` chooses the faults of its store calls."""

    def __init__(self, manager, decide):
        super().__init__(manager.coordinator, manager._environment, {})
        self._decide, self.made = decide, []

    def plain_store(self, url):
        self.made.append(FaultyStore(super().plain_store(url), self._decide))
        return self.made[-1]


class Process:
    """A process with a fault at one of its calls to the catalog or to a store; if the fault kills the process, every
    later call fails."""

    def __init__(self, coordinator, step=0, fault=None):
        self.calls = []
        self._step, self._fault, self._parts = step, fault, []
        self.manager = manager_of(FaultyCoordinator(coordinator, self._decide))
        self.manager._tables = _Tables(self.manager, self._decide)

    def _decide(self, call):
        self.calls.append(call.method)
        if self._fault in KILLS and len(self.calls) > self._step:
            raise SimulatedKill("this process is dead")
        return self._fault if len(self.calls) == self._step else None

    def release(self):
        with quiet():
            self.manager.release_table(A)

    def land(self):
        """Let the late request arrive."""
        for part in (self.manager.coordinator, *self.manager._tables.made):
            part.land()


def with_work_to_do(coordinator):
    """A table with a ratified commit that is not published."""
    manager = bank(coordinator)
    unlucky = FaultyCoordinator(coordinator, nth(1, Fault.KILL_AFTER, method="ratify"))
    with pytest.raises(SimulatedKill):
        manager_of(unlucky).table(A).append(rows((3, 7)))
    return manager


def calls_of_a_release(coordinator):
    with_work_to_do(coordinator)
    process = Process(coordinator)
    process.release()
    return process.calls


@functools.cache
def faults():
    """Every call that a release makes, with every fault that this call can have."""
    possible = {**POSSIBLE_FAULTS, **coordinators.COORDINATOR_FAULTS}
    possible["head"], possible["delete"] = (Fault.FAIL_BEFORE, Fault.KILL_BEFORE), (Fault.FAIL_BEFORE, *KILLS)
    calls = calls_of_a_release(MemoryCoordinator())
    assert {"head", "marks", "ratify", "published", "drop", "put_if_absent", "delete"} <= set(calls) and len(calls) > 20
    return [(step, method, fault) for step, method in enumerate(calls, 1) for fault in possible.get(method, ())]


def check_state(manager, url, expected):
    """Check that the table is complete: either managed by the catalog, or released and opened by its path. Returns
    whether the table has been released."""
    if A in [table.name for table in manager.list_tables()]:
        assert content(manager_of(manager.coordinator).table(A)) == expected
        return False
    table = by_path(url)
    assert not features.is_catalog_managed(table.snapshot().protocol)
    assert content(table) == expected
    return True


def test_a_fault_at_every_call():
    """The reported error is correct, the table is complete, and the next call completes the release."""
    seen = set()
    for step, method, fault in faults():
        coordinator, what = MemoryCoordinator(), (step, method, fault)
        manager = with_work_to_do(coordinator)
        url, process = url_of(manager), Process(coordinator, step, fault)
        outcome: Outcome | str | None = None
        try:
            process.release()
        except SimulatedKill:
            outcome = "killed"
        except DeltaLogError as error:
            outcome = error.outcome
        is_gone = check_state(manager, url, [*START, (3, 7)])
        if outcome is None:
            assert is_gone, what
        elif outcome is Outcome.NOTHING_COMMITTED:
            assert manager.ratified(A)[1].version == 1, what
        elif outcome is Outcome.PARTLY_COMMITTED:
            assert manager.ratified(A)[1].version == 2, what
        seen.add(outcome)
        with quiet(), contextlib.suppress(EntityNotFoundError):
            manager_of(coordinator).release_table(A)
        assert check_state(manager, url, [*START, (3, 7)]), what
        operations = [entry.operation for entry in by_path(url).history()]
        assert operations == ["DROP FEATURE", "WRITE", "CREATE TABLE AS SELECT"], what
        assert by_path(url).append(rows((4, 8))).version == 3, what
        process.land()
        assert content(by_path(url)) == [*START, (3, 7), (4, 8)], what
    assert {None, "killed", Outcome.NOTHING_COMMITTED} <= seen


@pytest.mark.sampled(2)
def test_a_process_that_is_killed_at_every_call_of_each_coordinator(new_coordinator, is_slow, is_long):
    """Afterwards clients write through the catalog and recover; each acknowledged row exists once."""
    kills = [each for each in faults() if each[2] in KILLS]
    for step, method, fault in kills[:: 6 if is_slow and not is_long else 1]:
        coordinator, what = new_coordinator(), (step, method, fault)
        manager = with_work_to_do(coordinator)
        url, expected = url_of(manager), [*START, (3, 7)]
        with contextlib.suppress(SimulatedKill):
            Process(coordinator, step, fault).release()
        check_state(manager, url, expected)
        with quiet():
            try:
                manager_of(coordinator).table(A).append(rows((4, 8)))
                expected.append((4, 8))
            except (EntityNotFoundError, ResourceNotReadyError) as error:
                assert isinstance(error, EntityNotFoundError) or url in str(error), what
            manager_of(coordinator).recover()
            check_state(manager, url, expected)
            with contextlib.suppress(EntityNotFoundError):
                manager_of(coordinator).release_table(A)
        assert check_state(manager, url, expected), what
        assert staged(url) == [] or fault is Fault.KILL_BEFORE or method != "ratify", what


@pytest.mark.parametrize("method", ["published", "drop"])
def test_recovery_completes_a_release(manager, method):
    url = interrupted(manager, method)
    if method == "drop":  # the unfinished drop is not detected until a client writes
        by_path(url).append(rows((3, 7)))
    expected = content(by_path(url))
    manager.recover()
    assert [table.name for table in manager.list_tables()] == [B]
    assert content(by_path(url)) == expected
    manager.recover()


@pytest.mark.filterwarnings("ignore::deltalog.errors.CatalogBehindLogWarning")
def test_writes_by_path_before_the_catalog_has_removed_the_table(manager):
    url = interrupted(manager)
    handle = manager_of(manager.coordinator).table(A)
    by_path(url).append(rows((3, 7)))
    with pytest.raises(ResourceNotReadyError, match="was released") as caught:
        handle.append(rows((4, 8)))
    assert not isinstance(caught.value, CatalogBehindLogError)
    found = manager.resync()
    problems = [table.problem for table in found.tables if table.name == A]
    assert "has released the table from its catalog" in problems[0]
    assert manager.ratified(A)[1].version == 1
    manager.release_table(A)
    assert content(by_path(url)) == [*START, (3, 7)]


@pytest.mark.filterwarnings("ignore::deltalog.errors.CatalogBehindLogWarning")
def test_a_catalog_that_is_restored_from_before_the_release(tmp_path):
    kept = OnSQLite(tmp_path)
    manager = bank(kept.coordinator, root=tmp_path)
    url, restore = url_of(manager), kept.backup()
    manager.table(A).append(rows((3, 7)))
    manager.release_table(A)
    by_path(url).append(rows((4, 8)))
    restored = manager_of(restore())
    with pytest.raises(CatalogBehindLogError):
        restored.table(A).append(rows((5, 9)))
    problems = [table.problem for table in restored.resync().tables if table.name == A]
    assert f"Version 2 of {url} has released the table from its catalog" in problems[0]
    restored.drop_table(A)
    assert content(by_path(url)) == [*START, (3, 7), (4, 8)]


class _Forgetful(Meddling):
    """A coordinator that does not answer proposals; a proposal arrives late or never."""

    def __init__(self, inner, arrives):
        super().__init__(inner, "", lambda: None)
        self.arrives, self.proposals = arrives, []

    def ratify(self, proposal: Proposal) -> Ratification:
        self.proposals.append(proposal)
        if self.arrives == "at once":
            self.inner.ratify(proposal)
        raise OperationTimeoutError("no answer", path="catalog")


def test_an_answer_that_is_lost_is_found_out(manager):
    url, forgetful = url_of(manager), _Forgetful(manager.coordinator, "at once")
    manager_of(forgetful).release_table(A)
    assert len(forgetful.proposals) == 1
    assert (content(by_path(url)), staged(url)) == (START, [])


def test_a_proposal_that_arrives_late_releases_the_table_once(manager):
    url, forgetful = url_of(manager), _Forgetful(manager.coordinator, "later")
    with pytest.raises(OperationTimeoutError, match="Call release_table again") as caught:
        manager_of(forgetful).release_table(A)
    assert caught.value.outcome is Outcome.UNKNOWN
    assert content(manager.table(A)) == START
    late = [manager.coordinator.ratify(proposal) for proposal in forgetful.proposals]
    assert late == [Ratification.RATIFIED, *[Ratification.MOVED] * (len(late) - 1)]
    manager.release_table(A)
    assert by_path(url).snapshot().version == 1
    assert content(by_path(url)) == START


def test_what_fails_after_the_ratification_says_that_the_release_is_not_complete(manager):
    url = url_of(manager)
    broken = FaultyCoordinator(manager.coordinator, lambda call: Fault.FAIL_BEFORE if call.method == "drop" else None)
    with pytest.raises(FeatureDropIncompleteError, match="Call release_table again") as caught, quiet():
        manager_of(broken).release_table(A)
    assert (caught.value.feature, caught.value.version) == ("catalogManaged", 1)
    assert isinstance(caught.value.__cause__, StoreError)
    manager.release_table(A)
    assert content(by_path(url)) == START


def test_a_log_that_is_ahead_of_the_catalog_is_not_released(manager):
    store = open_store(url_of(manager))
    store.put(commit_path(1), store.get(commit_path(0)))
    with pytest.raises(CatalogBehindLogError):
        manager.release_table(A)
    assert store.head(commit_path(2)) is None
