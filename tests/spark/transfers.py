"""Transfers between three tables of a catalog, in transactions, by Spark jobs and by a plain Python process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import deltalog

TABLES = ("bank.a", "bank.b", "bank.c")
SCHEMA = pa.schema([("account", pa.int64()), ("amount", pa.int64())])
ACCOUNTS, EACH = 4, 100
TOTAL = len(TABLES) * ACCOUNTS * EACH
_PATIENCE_S = 120

# Subtracts an amount from an account in one table, and adds it to the same account in another table.
Move = Callable[[deltalog.DeltaTable, deltalog.DeltaTable, int, int], None]


@dataclass
class Outcome:
    """The outcomes of a writer's attempts: ``moved`` transfers were committed, and ``conflicts`` transfers were aborted
    and repeated."""

    moved: int = 0
    conflicts: int = 0


def make_bank(manager: deltalog.TransactionManager, root: Path) -> None:
    rows = {"account": list(range(ACCOUNTS)), "amount": [EACH] * ACCOUNTS}
    for name in TABLES:
        manager.create_table(name, str(root / name), SCHEMA, data=pa.table(rows, schema=SCHEMA))


def rendezvous(root: Path, name: str, count: int) -> None:
    """Wait until ``count`` writers, in the same or in different processes, have reached this point."""
    (root / f"ready-{name}").touch()
    deadline = time.monotonic() + _PATIENCE_S
    while len(list(root.glob("ready-*"))) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} waited for the other writers in vain")
        time.sleep(0.01)


def transfer(
    manager: deltalog.TransactionManager,
    pair: tuple[str, str],
    rounds: int,
    seed: int,
    move: Move,
    meet: Callable[[], None],
) -> Outcome:
    """Commit this number of transfers from one table to another; transfers that conflict are repeated. ``meet`` is
    called when the first transfer is ready to be committed."""
    chance, outcome, first = random.Random(seed), Outcome(), True
    while outcome.moved < rounds:
        with manager.transaction() as transaction:
            source, target = (transaction.table(name) for name in pair)
            move(source, target, chance.randrange(ACCOUNTS), chance.randint(1, 9))
            if first:
                meet()
                first = False
            try:
                transaction.commit()
            except deltalog.errors.TransactionCanceledError as error:
                assert error.conflicts, error
                outcome.conflicts += 1
            else:
                outcome.moved += 1
    return outcome


def move_in_python(source: deltalog.DeltaTable, target: deltalog.DeltaTable, account: int, amount: int) -> None:
    for table, change in ((source, -amount), (target, amount)):
        (row,) = table.snapshot().scan(where=f"account = {account}").to_arrow().to_pylist()
        table.delete(f"account = {account}")
        table.append(pa.table({"account": [account], "amount": [row["amount"] + change]}, schema=SCHEMA))


def python_process(catalog: str, root: str, pair: tuple[str, str], rounds: int, seed: int) -> Outcome:
    """The program that runs in the process without Spark."""
    chance = random.Random(seed)

    def move(source: deltalog.DeltaTable, target: deltalog.DeltaTable, account: int, amount: int) -> None:
        move_in_python(source, target, account, amount)
        time.sleep(chance.uniform(0, 0.3))  # leaves time for Spark, which is slower, to commit too

    meet = lambda: rendezvous(Path(root), "python", 3)  # noqa: E731
    return transfer(deltalog.TransactionManager(catalog), pair, rounds, seed, move, meet)


def total(tables: list[deltalog.DeltaTable]) -> int:
    return sum(sum(each.snapshot().scan().to_arrow()["amount"].to_pylist()) for each in tables)


def time_of(entry: deltalog.CommitEntry) -> int:
    assert entry.timestamp_ms is not None
    return entry.timestamp_ms


def totals_through_time(manager: deltalog.TransactionManager) -> list[int]:
    """The total over all tables at the time of every commit."""
    tables = {name: manager.table(name) for name in TABLES}
    times = [[time_of(entry) for entry in table.history()] for table in tables.values()]
    begin = max(newest_first[-1] for newest_first in times)
    found = []
    for ms in sorted({ms for newest_first in times for ms in newest_first if ms >= begin}):
        cut = manager.consistent_cut(ms)
        amounts = [tables[name].snapshot(version).scan().to_arrow()["amount"] for name, version in cut.items()]
        found.append(sum(sum(column.to_pylist()) for column in amounts))
    return found


def spark_move(spark: Any) -> Move:
    import spark_ext

    def move(source: deltalog.DeltaTable, target: deltalog.DeltaTable, account: int, amount: int) -> None:
        for table, change in ((source, -amount), (target, amount)):
            before = spark_ext.read(spark).load(table)
            changed = f"case when account = {account} then amount + {change} else amount end as amount"
            spark_ext.write(before.selectExpr("account", changed).coalesce(1)).mode("overwrite").save(table)

    return move
