"""Records and fixtures for the tests of coordinators."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

import pytest

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import (
    Marking,
    Proposal,
    Ratification,
    RatifiedCommit,
    TableRecord,
    TransactionRecord,
    TransactionType,
    started,
)

RATIFIED, MOVED, DECIDED = Ratification.RATIFIED, Ratification.MOVED, Ratification.DECIDED
MARKED = Ratification.MARKED
ODD = ["with space", "100%_", "a'b\"c;--", "ünï", "\uff5e", "\U0001f600", "a\\b", "#", ".", "a/b", "A", "a"]
_NUMBERS = itertools.count(1)
T = TypeVar("T")


def table(number: int) -> TableRecord:
    return TableRecord(f"id-{number}", f"sales.t{number:04d}", f"file:///data/t{number}", 1_700_000_000_000 + number)


def commit(version: int, who: str = "") -> RatifiedCommit:
    """A RatifiedCommit with a unique file name."""
    file = f"{version:020d}.{next(_NUMBERS)}-{who}.json"
    return RatifiedCommit(version, file, 1_700_000_000_000 + version, 1234, f"txn-{who}")


def proposal(versions: dict[str, int], who: str = "", unmoved: dict[str, int] | None = None) -> Proposal:
    """A proposal that contains one commit for each table."""
    return Proposal({table_id: (commit(version, who),) for table_id, version in versions.items()}, unmoved or {})


def marking(*names: str) -> Marking:
    return Marking("t", 1_700_000_000_000, names, ("gone",))


def transaction(transaction_id: str, start_ms: int = 1000) -> TransactionRecord:
    return started(transaction_id, TransactionType.READ_AND_WRITE, start_ms)


def pages(get: Callable[[T | None], list[T]]) -> list[T]:
    """The items of all pages; each page is requested with the token of the previous page."""
    found: list[T] = []
    while page := get(found[-1] if found else None):
        found += page
    return found


class CoordinatorCases:
    """The fixtures of ``CoordinatorTests``."""

    #: The numbers of threads and rounds in tests of races.
    threads = 16
    rounds = 20

    @pytest.fixture
    def coordinator(self) -> Coordinator:
        raise NotImplementedError("override the fixture 'coordinator'")

    @pytest.fixture
    def another(self, coordinator: Coordinator) -> Coordinator:
        """A second handle on the same catalog, opened as another process would open it."""
        return coordinator
