"""A process is killed before and after the effect of every step; then other processes continue, and one of them runs
recovery.

Every call of a store or of the coordinator is a step. After each step, a reader of the coordinator must see the
transaction completely or not at all, and other writers must be able to commit. Recovery then commits or aborts the
transaction; a second recovery changes nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools

import pytest

from deltalog.catalog.dynamodb import DynamoDBCoordinator
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import DeltaLogError, TransactionCanceledError
from deltalog.testing import coordinators
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator
from deltalog.testing.recording import file_action, quiet, seeded_environment
from deltalog.testing.stores import POSSIBLE_FAULTS, Fault, FaultyStore, SimulatedKill
from tests.support.s3.dynamodb import new_table
from tests.support.simulation.bank import Bank, SimulatedManager, paths_of
from tests.support.simulation.transaction_judge import ClientTransaction, judge, total_amount

A, B = NAMES = ("bank.a", "bank.b")
# With these coordinators, test only every n-th step; with the in-memory coordinator, and with --long, test all steps.
SAMPLED = {"dynamodb": 12, "sqlite": 5}
KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER)
#: Calls that change nothing, so that dying before them and dying after them have the same effect.
READS = {*coordinators.READS, "get", "head", "list_from"}
MINUTE_MS = 60_000
NEVER = 10**9


@functools.cache
def prepared() -> Bank:
    return Bank(MemoryCoordinator(), lambda: 1_750_000_000_000, names=NAMES, files_per_table=2)


class World:
    """Two tables, a clock, and processes that die after a given number of steps."""

    def __init__(self, coordinator) -> None:
        self.now_ms = 1_760_000_000_000
        self.bank = Bank(coordinator, self.time_ms, names=NAMES, like=prepared())
        self.client_transactions: list[ClientTransaction] = []
        self.reads: list[tuple[str, dict[str, frozenset[str]]]] = []
        self._numbers = itertools.count()

    def time_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def process(self, dies_at: int = NEVER, how: Fault = Fault.KILL_BEFORE) -> Process:
        return Process(self, dies_at, how)

    def look(self) -> None:
        """Let a reader in its own process read all tables in one consistent state, and record what it read."""
        self.reads.append(("reader", self.bank.sums(self.process().manager)))

    def outsiders(self) -> None:
        """Check that another transaction across both tables, and a writer to one of them, can commit."""
        manager = self.process().manager
        self.transfer(manager).outcomes.add("committed")
        client_transaction = ClientTransaction(
            f"single-{next(self._numbers)}", "outsider", is_transaction=False, complete=True
        )
        self.client_transactions.append(client_transaction)
        table = manager.table(B)
        path = min(paths_of(table))
        self.write(client_transaction, B, table, [total_amount(frozenset([path]))], [path])
        client_transaction.outcomes.add("committed")

    def transfer(self, manager, end="commit", client_transaction=None, parts=1) -> ClientTransaction:
        transaction = manager.transaction()
        client_transaction = client_transaction or ClientTransaction("", "client")
        client_transaction.token = transaction.id
        self.client_transactions.append(client_transaction)
        a, b = transaction.table(A), transaction.table(B)
        path = max(paths_of(a))
        self.write(client_transaction, A, a, [total_amount(frozenset([path])) - 1], [path])
        for _ in range(parts):
            self.write(client_transaction, B, b, [1] if _ == 0 else [0], [])
        client_transaction.complete = True
        getattr(transaction, end)()
        return client_transaction

    def write(self, client_transaction, name, table, amounts, removes) -> None:
        adds = [f"amount-{amount}-{next(self._numbers):04d}" for amount in amounts]
        client_transaction.change(name, adds, removes)
        with table.transaction() as transaction:
            transaction.remove(removes)
            transaction.add(*(file_action(path, self.now_ms) for path in adds))
            transaction.commit(user_metadata=client_transaction.token)

    def judged(self) -> list[str]:
        manager = self.process().manager
        with quiet():
            left = self.bank.left(manager)
        found = judge(self.bank.world(client_transactions=self.client_transactions, reads=self.reads, left=left))
        return [str(violation) for violation in found]


class Process:
    """Dies at a step, before or after the step takes effect."""

    def __init__(self, world: World, dies_at: int, how: Fault) -> None:
        self.steps = 0
        self.log: list[str] = []
        self._world, self._dies_at, self._how = world, dies_at, how
        environment = seeded_environment(f"process {next(world._numbers)}", world.time_ms)
        stores = {url: FaultyStore(store, self._decide) for url, store in world.bank.stores.items()}
        coordinator = FaultyCoordinator(world.bank.coordinator, self._decide)
        self.manager = SimulatedManager(coordinator, environment, stores.__getitem__)

    def _decide(self, call) -> Fault | None:
        self.steps += 1
        self.log.append(call.method)
        if self.steps > self._dies_at and self._how in KILLS:
            raise SimulatedKill("this process is dead")
        if self.steps < self._dies_at:
            return None
        return Fault.KILL_BEFORE if call.method in READS and self._how in KILLS else self._how

    @property
    def parts(self):
        return [self.manager.coordinator, *map(self.manager._tables.plain_store, self._world.bank.stores)]

    def land(self) -> None:
        """Let the late request arrive."""
        for part in self.parts:
            part.land()


@pytest.fixture(params=["memory", "sqlite", "dynamodb", pytest.param("postgresql", marks=pytest.mark.long)])
def new_coordinator(request, tmp_path):
    """A function that creates empty coordinators. Every schedule in this file runs with each kind of coordinator."""
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
def every(request, is_long):
    return 1 if is_long else next((n for name, n in SAMPLED.items() if name in request.node.name), 1)


def commits(world, process):
    """stage, ratify, publish, and the hooks and the cleanup that follow."""
    client_transaction = ClientTransaction("", "client")
    world.transfer(process.manager, client_transaction=client_transaction, parts=2)
    client_transaction.outcomes.add("committed")


def cancels(world, process):
    client_transaction = ClientTransaction("", "client")
    world.transfer(process.manager, "cancel", client_transaction)
    client_transaction.outcomes.add("aborted")


def dies(world, number, method="ratify", how=Fault.KILL_AFTER):
    """Run a transfer in a process that dies at the n-th call of a method."""
    process = world.process()
    seen = itertools.count(1)
    decide = process._decide

    def at(call):
        decide(call)
        if call.method == method and next(seen) == number:
            process._dies_at = process.steps
            return how
        return None

    for part in process.parts:
        part.decide = at
    with pytest.raises(SimulatedKill):
        world.transfer(process.manager)


def recovers(world, process):
    """Recovery after processes died with commits that are ratified, staged or partly published, and with open
    transactions."""
    process.manager.recover(datetime.timedelta(days=365))


def leave_much_to_do(world):
    dies(world, 1)  # ratified, nothing published
    dies(world, 2, "put_if_absent", Fault.KILL_AFTER)  # staged
    dies(world, 2, "put_parts", Fault.KILL_AFTER)  # open, with a part
    dies(world, 5, "put_if_absent", Fault.KILL_BEFORE)  # partly published
    transaction = world.process().manager.transaction()
    world.client_transactions.append(ClientTransaction(transaction.id, "client", complete=False))
    world.write(world.client_transactions[-1], A, transaction.table(A), [0], [])
    world.now_ms += 31 * MINUTE_MS


def singles(world, process):
    """A commit of one table."""
    table = process.manager.table(A)
    client_transaction = ClientTransaction("one", "client", is_transaction=False, complete=True)
    world.client_transactions.append(client_transaction)
    path = min(paths_of(table))
    world.write(client_transaction, A, table, [total_amount(frozenset([path]))], [path])
    client_transaction.outcomes.add("committed")


DEEDS = {"commit": commits, "cancel": cancels, "recover": recovers, "single": singles}


def steps_of(deed, coordinator) -> list[str]:
    """The calls that an operation makes if no process dies."""
    world = World(coordinator)
    with quiet():
        if deed is recovers:
            leave_much_to_do(world)
        process = world.process()
        deed(world, process)
    assert world.judged() == []
    return process.log


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DEEDS)
def test_whoever_dies_wherever_with_nobody_else_about(name):
    die_everywhere(name, MemoryCoordinator, with_outsiders=False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DEEDS)
@pytest.mark.timeout(900)
def test_whoever_dies_wherever(new_coordinator, name, is_slow, every):
    # Dying before a read leaves the same state as dying after the previous change. Therefore the runs with DynamoDB,
    # whose requests are slow, leave out deaths before reads.
    die_everywhere(name, new_coordinator, with_outsiders=True, at_reads=not is_slow, every=every)


def die_everywhere(name, new_coordinator, *, with_outsiders, at_reads=True, every=1):
    deed = DEEDS[name]
    calls = steps_of(deed, new_coordinator())
    assert len(calls) >= {"commit": 25, "cancel": 12, "recover": 20, "single": 8}[name]
    versions = set()
    for step, method in enumerate(calls, 1):
        if (method in READS and not at_reads) or step % every:
            continue
        for how in KILLS[:1] if method in READS else KILLS:
            world = World(new_coordinator())
            with quiet():
                if deed is recovers:
                    leave_much_to_do(world)
                process = world.process(step, how)
                with contextlib.suppress(SimulatedKill):
                    deed(world, process)
                world.look()
                if with_outsiders:
                    world.outsiders()
                    world.look()
                world.now_ms += 31 * MINUTE_MS
                world.process().manager.recover(datetime.timedelta(days=365))
                world.look()
            assert world.judged() == [], (step, how, calls[step - 1 :])
            versions.add(tuple(len(world.bank.log(table)) for table in NAMES))
    if name == "commit":
        assert len(versions) == 2  # wholly or not at all


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", range(1, 60, 3))
def test_recovery_that_dies_again_and_again_gets_there(step):
    world = World(MemoryCoordinator())
    with quiet():
        leave_much_to_do(world)
        for number in range(1, step):
            process = world.process(number, KILLS[number % 2])
            try:
                process.manager.recover(datetime.timedelta(days=365))
            except SimulatedKill:
                world.look()
        world.process().manager.recover(datetime.timedelta(days=365))
    assert world.judged() == []


@pytest.mark.sampled(2)
@pytest.mark.timeout(900)
def test_a_conflict_with_an_outsider_at_every_step_is_all_or_nothing(new_coordinator, every):
    """Another writer commits to one of the tables, at each step in turn; the transaction is rebased, or refused as a
    whole."""
    for step in range(1, len(steps_of(commits, MemoryCoordinator())) + 1, every):
        world = World(new_coordinator())
        process = world.process()
        decide, done = process._decide, list[int]()

        def at(call, process=process, decide=decide, done=done, world=world, step=step):
            if process.steps + 1 == step and not done:
                done.append(step)
                world.outsiders()
                world.look()
            return decide(call)

        for part in process.parts:
            part.decide = at
        client_transaction = ClientTransaction("", "client")
        with quiet():
            try:
                world.transfer(process.manager, client_transaction=client_transaction, parts=2)
                client_transaction.outcomes.add("committed")
            except TransactionCanceledError:
                client_transaction.outcomes.add("aborted")
            except DeltaLogError as error:
                raise AssertionError(step) from error
            world.now_ms += 31 * MINUTE_MS
            world.process().manager.recover(datetime.timedelta(days=365))
            world.look()
        assert done and world.judged() == [], step


@pytest.mark.sampled(4)
@pytest.mark.parametrize("late_is", ["before others", "after recovery"])
@pytest.mark.parametrize("name", ["commit", "cancel", "single"])
def test_a_fault_at_every_call(name, late_is):
    """Whether a request fails, takes effect late, or loses its answer (with or without taking effect), the reported
    outcome is correct."""
    possible = {**POSSIBLE_FAULTS, **coordinators.COORDINATOR_FAULTS}
    possible["head"] = possible["delete"] = (Fault.FAIL_BEFORE,)  # both have this method
    for step, method in enumerate(steps_of(DEEDS[name], MemoryCoordinator()), 1):
        for fault in sorted(set(possible[method]) - set(KILLS), key=str):
            world = World(MemoryCoordinator())
            process = world.process(step, fault)
            with quiet():
                with contextlib.suppress(DeltaLogError):
                    DEEDS[name](world, process)
                world.look()
                if late_is == "before others":
                    process.land()
                world.outsiders()
                world.now_ms += 31 * MINUTE_MS
                world.process().manager.recover(datetime.timedelta(days=365))
                process.land()
                world.process().manager.recover(datetime.timedelta(days=365))
                world.look()
            assert world.judged() == [], (step, fault, method)
