"""Random histories in which a backup is taken at a random point and restored later; every acknowledged write must still
exist after the restore."""

from __future__ import annotations

import contextlib
import itertools
import random
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from deltalog.errors import CatalogBehindLogError, CatalogBehindLogWarning, TransactionStateError
from tests.support.restored import InMemory
from tests.support.transactions import A, B, Clock, bank, content, manager_of, rows

SEEDS = 60


@dataclass
class World:
    """What clients did: ``rows``: acknowledged rows, keyed by table; ``open``: active transactions and their rows."""

    random: random.Random
    manager: Any
    clock: Clock
    rows: dict[str, set[int]] = field(default_factory=lambda: {A: {1, 2}, B: set()})
    open: dict[str, dict[str, int]] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(100))

    def step(self) -> None:
        self.clock.pass_(seconds=self.random.randint(0, 90))
        choices: list[Callable[[], None]] = [
            self.append,
            self.append,
            self.delete,
            self.transfer,
            self.begin,
            self.go_on,
        ]
        choices += [self.commit, self.commit, self.cancel, self.maintain]
        self.random.choice(choices)()

    def append(self) -> None:
        name, number = self.random.choice([A, B]), next(self.numbers)
        self.manager.table(name).append(rows((number, 0)))
        self.rows[name].add(number)

    def delete(self) -> None:
        name = self.random.choice([A, B])
        if self.rows[name]:
            number = self.random.choice(sorted(self.rows[name]))
            self.manager.table(name).delete(f"id = {number}")
            self.rows[name].discard(number)

    def transfer(self) -> None:
        self.begin([A, B])
        self.end(list(self.open)[-1])

    def begin(self, names: list[str] | None = None) -> None:
        id_ = self.manager.start_transaction()
        self.open[id_] = {}
        for name in names or self.random.choice([[A], [B], [A, B]]):
            self.write(id_, name)

    def write(self, id_: str, name: str) -> None:
        number = next(self.numbers)
        try:
            self.manager.transaction(id_).table(name).append(rows((number, 0)))
            self.open[id_][name] = number
        except TransactionStateError:  # the transaction is overdue, or was lost by the restore
            del self.open[id_]

    def go_on(self) -> None:
        if self.open:
            id_ = self.random.choice(list(self.open))
            for name in {A, B} - self.open[id_].keys():
                self.write(id_, name)
                return

    def commit(self) -> None:
        if self.open:
            self.end(self.random.choice(list(self.open)))

    def end(self, id_: str) -> None:
        added = self.open.pop(id_)
        try:
            self.manager.commit_transaction(id_)
        except TransactionStateError:
            return
        for name, number in added.items():
            self.rows[name].add(number)

    def cancel(self) -> None:
        if self.open:
            id_ = self.random.choice(list(self.open))
            del self.open[id_]
            with contextlib.suppress(TransactionStateError):
                self.manager.cancel_transaction(id_)

    def maintain(self) -> None:
        what = self.random.choice(["recover", "checkpoint", "idle"])
        if what == "recover":
            self.manager.recover()
        elif what == "checkpoint":
            self.manager.table(A).checkpoint()
        else:
            self.clock.pass_(minutes=self.random.choice([5, 40]))

    def check(self) -> None:
        fresh = manager_of(self.manager.coordinator, self.clock)
        for name, expected in self.rows.items():
            assert {number for number, _ in content(fresh.table(name))} == expected, name


def in_the_restored_catalog(world: World, known: set[str]) -> None:
    """Calls that clients make before the resync. These calls must neither take permanent effect nor do any damage."""
    for _ in range(world.random.randint(0, 4)):
        world.clock.pass_(seconds=world.random.choice([1, 3600]))
        call: Callable[[], Any] = world.random.choice([
            world.manager.recover,
            lambda: world.manager.cancel_transaction(world.random.choice(sorted(known))) if known else None,
            world.append,
        ])  # fmt: skip
        with contextlib.suppress(CatalogBehindLogError, TransactionStateError):
            call()


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_what_was_acknowledged_outlives_a_restore(first: int) -> None:
    for seed in range(first, first + 10):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CatalogBehindLogWarning)
            run(seed)


def run(seed: int) -> None:
    kept, clock = InMemory(), Clock()
    world = World(random.Random(seed), bank(kept.coordinator, clock, f"memory://{uuid.uuid4()}"), clock)
    for _ in range(world.random.randint(0, 12)):
        world.step()
    restore = kept.backup()
    for _ in range(world.random.randint(0, 12)):
        world.step()
    at_backup = {each.transaction_id for each in manager_of(restore()).list_transactions("ACTIVE").transactions}
    known = at_backup - world.open.keys()
    clock.pass_(seconds=1)
    world.manager = manager_of(restore(), clock)
    # Clients treat a transaction as ended if the backup does not contain it.
    world.open = {id_: added for id_, added in world.open.items() if id_ in at_backup}
    in_the_restored_catalog(world, known)
    planned = world.manager.resync(dry_run=True)
    done = world.manager.resync()
    assert planned == done, seed
    assert not any(each.problem for each in done.tables)
    assert world.manager.resync().is_in_step
    world.check()
    for _ in range(8):
        world.step()
    clock.pass_(hours=1)
    world.manager.recover()
    world.check()
