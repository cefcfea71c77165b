"""Coordinator: the interface between a catalog and the database that stores its records.

What every coordinator guarantees:

- **One decision.** Of any number of proposals that name the same version of a table at most one is ratified; a
  proposal is ratified as a whole, with the change of its transaction's record, or leaves no trace.
- **No gap.** A table's versions are ratified one after the other.
- **Bounded clock.** A commit whose in-commit timestamp is more than ``most_ahead_ms`` ahead of ``clock_ms`` is not
  ratified: no later commit of the table could have an earlier one.
- **One owner.** A proposal or a record that carries the number of a table's last marking takes effect only if that
  is still the last one. So a clean-up detects every use that precedes its marking, and later uses detect the marking.
- **Fresh.** The changes of a call are visible to every call that begins after it has returned, in every process.
- **Durable.** What a call has returned survives a crash of the machine (or is as durable as the service promises),
  except for changes whose loss only repeats work: those of ``published`` and ``delete_parts``, and of a ``replace`` by
  a record that is not yet decided. The changes that survive a crash are always a prefix of those that were made.
- **Honest.** An exception other than OperationTimeoutError means that nothing was changed. After an
  OperationTimeoutError the change may have taken effect, or may later.

deltalog.testing.CoordinatorTests tests these guarantees: subclass it for a new coordinator.

Spec: PROTOCOL.md#catalog-responsibilities, #getting-ratified-commits-from-the-catalog.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltalog.catalog.records import (
    Head,
    Marking,
    Marks,
    Proposal,
    Ratification,
    StatusFilter,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
)
from deltalog.errors import CallError, TimestampAheadError
from deltalog.protocol.timestamps import describe

MOST_AHEAD_MS = 60 * 60 * 1000


class Coordinator(ABC):
    """See the module for what is guaranteed. All methods raise CoordinatorError when the database fails, and
    OperationTimeoutError when it does not answer.

    Members: one transaction of the database each, since databases differ in how they make one atomic.
    """

    url: str
    most_ahead_ms: int = MOST_AHEAD_MS
    #: Opens the same coordinator in another process, with the caller's options; None if that is not possible.
    reopen: Callable[[], Coordinator] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.reopen is None:
            raise CallError(f"The catalog {self.url} cannot be pickled: it was not opened by its URL.")
        return self.reopen, ()

    def clock_ms(self) -> int:
        """The clock that in-commit timestamps are compared with: that of this machine."""
        return time.time_ns() // 1_000_000

    def check_time(self, table: str, in_commit_timestamp_ms: int) -> None:
        """Refuse an in-commit timestamp that is too far ahead of the clock. ``table``: its id or its URL, for the
        message. Raises TimestampAheadError. Cost: none."""
        now_ms = self.clock_ms()
        if in_commit_timestamp_ms > now_ms + self.most_ahead_ms:
            raise TimestampAheadError(
                f"{table}: the catalog {self.url} does not ratify a commit whose in-commit timestamp, "
                f"{describe(in_commit_timestamp_ms)}, is more than {self.most_ahead_ms / 1000:g} s ahead of its clock, "
                f"{describe(now_ms)}. Nothing was committed. If the clock of the machine that wrote the commit is "
                "wrong, correct it. If the table's last commit already has such a time, call "
                "TransactionManager.restart_timestamps(name) or run 'deltalog tables restart-timestamps': the table's "
                "timestamps then continue from the current time.",
                in_commit_timestamp_ms=in_commit_timestamp_ms,
                clock_ms=now_ms,
            )

    def check_times(self, proposal: Proposal) -> None:
        """``check_time`` of all commits of a proposal; each ``ratify`` begins with it."""
        for table_id, commits in proposal.commits.items():
            for commit in commits:
                self.check_time(table_id, commit.in_commit_timestamp_ms)

    @property
    @abstractmethod
    def catalog_id(self) -> str:
        """The id that this catalog was given when it was made; it marks the tables that it manages."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections. The coordinator remains usable, and opens new ones."""

    # --------------------------------------------------------------------------------------------- tables

    @abstractmethod
    def register(self, table: TableRecord, version: int) -> bool:
        """Add a table whose latest version is ``version``, and published. Returns False, with nothing changed, if
        another table has the name or the id, or its URL is the same or nested with this one."""

    @abstractmethod
    def drop(self, table_id: str, version: int, marks: int | None = None) -> bool:
        """Delete a table and its head. Returns False, with nothing changed, if its head is not at ``version``, or it
        has unpublished commits, which would be lost; or if ``marks`` is given and is not its last marking."""

    @abstractmethod
    def table(self, name: str) -> TableRecord | None:
        """The table of a full name."""

    @abstractmethod
    def tables(self, after: str = "", limit: int = 1000) -> list[TableRecord]:
        """Tables in the order of their names, after ``after``, at most ``limit``."""

    # ---------------------------------------------------------------------------------------------- heads

    @abstractmethod
    def head(self, table_id: str) -> Head | None:
        """The head of a table; None for one that is not registered."""

    @abstractmethod
    def cut(self) -> dict[str, int]:
        """The version of every table at one instant."""

    @abstractmethod
    def ratify(self, proposal: Proposal) -> Ratification:
        """Accept all commits of a proposal, or none. Repeating one that was ratified returns DECIDED or MOVED. Raises
        TimestampAheadError."""

    @abstractmethod
    def published(self, table_id: str, version: int) -> None:
        """Record that all commits up to ``version`` are in ``_delta_log``. Idempotent."""

    # -------------------------------------------------------------------------------------------- marks

    @abstractmethod
    def marks(self, table_id: str) -> Marks:
        """The markings of a table; none of one that is not registered."""

    @abstractmethod
    def mark(self, table_id: str, number: int, marking: Marking) -> bool:
        """Store a marking with the number after the last. Returns False, with nothing changed, if ``number`` is
        another, or the table is not registered."""

    @abstractmethod
    def remark(self, table_id: str, number: int, marking: Marking | None) -> None:
        """Replace a stored marking, or delete it; succeeds if it is not stored."""

    # --------------------------------------------------------------------------------------- transactions

    @abstractmethod
    def insert(self, record: TransactionRecord) -> bool:
        """Store a new transaction. Returns False if the id exists."""

    @abstractmethod
    def transaction(self, transaction_id: str) -> TransactionRecord | None:
        """The current record of a transaction; None if there is none."""

    @abstractmethod
    def replace(self, record: TransactionRecord) -> bool:
        """Replace the record of the revision before. Returns False if that is not the current one."""

    @abstractmethod
    def transactions(
        self, statuses: frozenset[TransactionStatus], after: tuple[int, str] | None = None, limit: int = 1000
    ) -> list[TransactionRecord]:
        """Transactions in some states, in the order of (start, id), after ``after``, at most ``limit``."""

    def uncleaned(self, after: tuple[int, str] | None = None, limit: int = 1000) -> list[TransactionRecord]:
        """Decided transactions whose parts were not all deleted by a ``delete_parts`` without keys; in the order of
        (start, id), after ``after``, at most ``limit``. May include others: this default returns all decided ones, and
        a coordinator that tracks the parts overrides it."""
        return self.transactions(StatusFilter.COMPLETED.statuses, after, limit)

    @abstractmethod
    def delete(self, transaction_id: str) -> None:
        """Delete a transaction and its parts."""

    # -------------------------------------------------------------------------- what a transaction collects

    @abstractmethod
    def put_parts(
        self, record: TransactionRecord, parts: Mapping[str, bytes], marks: Mapping[str, int] | None = None
    ) -> bool:
        """Store parts of a transaction by key, replacing those of the same key, and its record as ``replace`` does;
        both or neither. Returns False if ``replace`` would, or if one of ``marks``, by table id, is not the last
        marking. A part can have any size."""

    @abstractmethod
    def parts(self, transaction_id: str, prefix: str = "") -> dict[str, bytes]:
        """The parts whose keys begin with ``prefix``, by key, in order."""

    @abstractmethod
    def delete_parts(self, transaction_id: str, keys: Sequence[str] | None = None) -> None:
        """Delete parts, all of them without ``keys``; absent parts are ignored."""
