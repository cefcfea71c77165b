"""A catalog with two tables of bank accounts, and a clock that the test sets."""

from __future__ import annotations

import datetime
import random
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog.catalog.coordinator import Coordinator
from deltalog.environment import Environment, RetryPolicy
from deltalog.table import DeltaTable
from deltalog.testing.coordinators import MemoryCoordinator, WrappedCoordinator
from deltalog.transactions.manager import TransactionManager

SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
A, B = "bank.a", "bank.b"
START_MS = 1_760_000_000_000


class Clock:
    """A clock in milliseconds that the test sets."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def pass_(self, **amount: float) -> None:
        self.now_ms += datetime.timedelta(**amount) // datetime.timedelta(milliseconds=1)


def environment(clock: Callable[[], int], **retry: Any) -> Environment:
    """An environment that does not actually sleep."""
    return Environment(clock_ms=clock, sleep=lambda seconds: None, retry=RetryPolicy(**retry))


def manager_of(coordinator: str | Coordinator, clock: Callable[[], int] | None = None, **options: Any) -> Any:
    """A new manager, like one in another process."""
    retry = options.pop("retry", {})
    return TransactionManager(coordinator, environment=environment(clock or Clock(), **retry), **options)


def bank(
    coordinator: str | Coordinator | None = None,
    clock: Callable[[], int] | None = None,
    root: str | Path | None = None,
    **options: Any,
) -> Any:
    """A transaction manager with two tables, in memory by default: A with the rows (1, 100) and (2, 50), and B, which
    is empty."""
    manager = manager_of(MemoryCoordinator() if coordinator is None else coordinator, clock, **options)
    root = f"memory://{uuid.uuid4()}" if root is None else root
    manager.create_table(A, f"{root}/a", SCHEMA, data=rows((1, 100), (2, 50)))
    manager.create_table(B, f"{root}/b", SCHEMA)
    return manager


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"id": [each for each, _ in pairs], "amount": [amount for _, amount in pairs]}, SCHEMA)


def content(table: DeltaTable, version: int | None = None) -> list[tuple[int, int]]:
    found = table.snapshot(version).scan().to_arrow().to_pydict()
    return sorted(zip(found["id"], found["amount"], strict=True))


class Meddling(WrappedCoordinator):
    """A coordinator that runs an action once, before the n-th call of a method."""

    def __init__(self, inner: Coordinator, method: str, what: Callable[[], object], number: int = 1) -> None:
        super().__init__(inner)
        self._method, self._what, self._left = method, what, number

    def _pass(self, method: str, about: str, action: Callable[[], Any]) -> Any:
        if method == self._method:
            self._left -= 1
            if self._left == 0:
                self._what()
        return action()


def shuffled(items: Iterable[Any], seed: int) -> list[Any]:
    found = list(items)
    random.Random(seed).shuffle(found)
    return found
