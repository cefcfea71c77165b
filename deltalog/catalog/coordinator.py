"""Coordinator: the one seam between a catalog and the database that it keeps its records in.

What every coordinator guarantees:

- **One decision.** Of any number of proposals that name the same version of a table at most one is ratified; a
  proposal is ratified as a whole, with the change of its transaction's record, or leaves no trace.
- **No gap.** A table's versions are ratified one after the other.
- **Bounded clock.** A commit whose in-commit timestamp is more than ``most_ahead_ms`` ahead of ``clock_ms`` is not
  ratified: no later commit of the table could have an earlier one.
- **One owner.** A proposal or a record that carries the number of a table's last marking takes effect only while that
  is still the last one. So a clean-up sees every use of an object before it marks it, and later uses see the marking.
- **Fresh.** The changes of a call are visible to every call that begins after it has returned, in every process.
- **Durable.** What a call has returned survives a crash of the machine (or is kept as the service promises), but for
  records whose loss only repeats work: those of ``published`` and ``delete_parts``, and of
  a ``replace`` by a record that is not yet decided. What outlives a crash is always a beginning of what was done.
- **Honest.** An exception other than OperationTimeoutError means that nothing was changed. After an
  OperationTimeoutError the change may be there, or come later.

deltalog.testing.CoordinatorTests holds these sentences as tests: subclass it for a new coordinator.
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

    Members: one transaction of a database each, as the engines of a catalog differ in how they make one atomic.
    """

    url: str
    most_ahead_ms: int = MOST_AHEAD_MS
    #: How another process gets the same coordinator, with all that the caller gave to open it; None where none can.
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
        """Let go of connections. The coordinator can be used again, and opens new ones."""

    # --------------------------------------------------------------------------------------------- tables

    @abstractmethod
    def register(self, table: TableRecord, version: int) -> bool:
        """Take over a table whose ``version`` is its latest, and published. False, and nothing changed, where the
        name or the id is that of another table, or the URL is another's, lies below it or around it."""

    @abstractmethod
    def drop(self, table_id: str, version: int, marks: int | None = None) -> bool:
        """Forget a table and its head. False, and nothing changed, when its head is not at ``version`` or something
        of it is unpublished, which could not be found any more; or when its last marking is not ``marks``, where that
        is given."""

    @abstractmethod
    def table(self, name: str) -> TableRecord | None:
        """The table of a full name."""

    @abstractmethod
    def tables(self, after: str = "", limit: int = 1000) -> list[TableRecord]:
        """Tables by name, from the one after ``after`` on, at most ``limit``."""

    # ---------------------------------------------------------------------------------------------- heads

    @abstractmethod
    def head(self, table_id: str) -> Head | None:
        """How far a table is; None for one that is not registered."""

    @abstractmethod
    def cut(self) -> dict[str, int]:
        """The version of every table, all of one instant."""

    @abstractmethod
    def ratify(self, proposal: Proposal) -> Ratification:
        """Accept all commits of a proposal, or none. Repeating one that was ratified gives DECIDED or MOVED. Raises
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
        """Keep a marking as the one after the last. False, and nothing changed, when ``number`` is not that, or the
        table is not registered."""

    @abstractmethod
    def remark(self, table_id: str, number: int, marking: Marking | None) -> None:
        """Replace a stored marking, or delete it; succeeds if it is not stored."""

    # --------------------------------------------------------------------------------------- transactions

    @abstractmethod
    def insert(self, record: TransactionRecord) -> bool:
        """Keep a new transaction. False when there is one of this id."""

    @abstractmethod
    def transaction(self, transaction_id: str) -> TransactionRecord | None:
        """The last record of a transaction."""

    @abstractmethod
    def replace(self, record: TransactionRecord) -> bool:
        """Put a record in the place of that with the revision before it. False when that is not the last one."""

    @abstractmethod
    def transactions(
        self, statuses: frozenset[TransactionStatus], after: tuple[int, str] | None = None, limit: int = 1000
    ) -> list[TransactionRecord]:
        """Transactions in some states by (start, id), from the one after ``after`` on, at most ``limit``."""

    def uncleaned(self, after: tuple[int, str] | None = None, limit: int = 1000) -> list[TransactionRecord]:
        """Decided transactions whose parts were not all deleted by a ``delete_parts`` without keys; by (start, id),
        from the one after ``after`` on, at most ``limit``. Others may be among them: this default returns all decided
        ones, and a coordinator that tracks the parts overrides it."""
        return self.transactions(StatusFilter.COMPLETED.statuses, after, limit)

    @abstractmethod
    def delete(self, transaction_id: str) -> None:
        """Forget a transaction and its parts."""

    # -------------------------------------------------------------------------- what a transaction collects

    @abstractmethod
    def put_parts(
        self, record: TransactionRecord, parts: Mapping[str, bytes], marks: Mapping[str, int] | None = None
    ) -> bool:
        """Keep parts of a transaction by key, new ones and in the place of those of the same key, and its record as
        ``replace`` does; both or neither. False when the record is not the last one, or one of ``marks``, the last
        marking by table id, is not the last. A part has any size."""

    @abstractmethod
    def parts(self, transaction_id: str, prefix: str = "") -> dict[str, bytes]:
        """The parts whose keys begin with ``prefix``, by key, in order."""

    @abstractmethod
    def delete_parts(self, transaction_id: str, keys: Sequence[str] | None = None) -> None:
        """Delete parts, all of them without ``keys``; absent parts are ignored."""
