"""Coordinator: the interface between a catalog and the database that stores its records.

The guarantees of a coordinator:

- **One decision.** At most one of the proposals for the same version of a table is ratified. A proposal is ratified as
  a whole, with the change of its transaction's record, or has no effect.
- **No gap.** The versions of a table are ratified in sequence.
- **Bounded clock.** A commit whose in-commit timestamp is more than ``most_ahead_ms`` ahead of ``clock_ms`` is not
  ratified, because no later commit of the table could have an earlier timestamp.
- **One owner.** A proposal or record that carries the number of a table's last marking takes effect only if that is
  still the last one. So a clean-up detects every use before its marking, and later uses detect the marking.
- **Fresh.** The changes of a call are visible to all calls, in any process, that begin after it has returned.
- **Durable.** Completed changes survive a crash of the machine (or are as durable as the service promises), except
  changes whose loss only causes work to be repeated: ``published``, ``delete_parts``, and ``replace`` if the record is
  undecided. The surviving changes are always a prefix of all changes.
- **Honest.** An exception other than OperationTimeoutError means that nothing changed. After an OperationTimeoutError,
the change may have taken effect, or may take effect later.

deltalog.testing.CoordinatorTests tests these guarantees: subclass it for a new coordinator.

Spec: PROTOCOL.md#catalog-responsibilities, #getting-ratified-commits-from-the-catalog.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltalog import metrics
from deltalog.catalog.records import (
    Document,
    DocumentChange,
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
    """The interface of coordinators; the module docstring lists the guarantees. All methods raise CoordinatorError if
    the database fails, and OperationTimeoutError if it does not respond.

    Each method runs as one atomic transaction of the database.
    """

    url: str
    if_behind = (
        "Run deltalog tables resync, or TransactionManager.resync(), which show the difference and bring the catalog "
        "up to its logs."
    )
    if_log_is_ahead = (
        "If the catalog was restored from a backup, commits are missing here: deltalog tables resync --dry-run shows "
        "which. If the table was being released, run deltalog tables release again, and open it by its path."
    )
    to_publish = "Publish the remaining commits first, with TransactionManager.publish or deltalog tables publish."
    most_ahead_ms: int = MOST_AHEAD_MS
    #: Whether clients read staged commits at times of their own, so that these are kept for a while after their
    #: publication. Known since the catalog was opened, or since the last call of ``published``.
    keeps_staged_commits: bool = False
    #: Opens the same coordinator in another process, with the caller's options; None if another process cannot open it.
    reopen: Callable[[], Coordinator] | None = None

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        metrics.measure_coordinator(cls, Coordinator)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.reopen is None:
            raise CallError(f"The catalog {self.url} cannot be pickled: it was not opened by its URL.")
        return self.reopen, ()

    def clock_ms(self) -> int:
        """The clock against which in-commit timestamps are checked; by default, this machine's clock."""
        return time.time_ns() // 1_000_000

    def check_time(self, table: str, in_commit_timestamp_ms: int) -> None:
        """Refuse an in-commit timestamp that is too far ahead of the clock. ``table``: the id or URL of the table, for
        the message. Raises TimestampAheadError. Cost: none."""
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
        """Run ``check_time`` on all commits of a proposal. Every implementation of ``ratify`` must call this method
        first."""
        for table_id, commits in proposal.commits.items():
            for commit in commits:
                self.check_time(table_id, commit.in_commit_timestamp_ms)

    @property
    @abstractmethod
    def catalog_id(self) -> str:
        """The id of this catalog, assigned at its creation. The id is stored in the properties of every managed
        table."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections. The coordinator remains usable and opens new connections when needed."""

    # --------------------------------------------------------------------------------------------- tables

    @abstractmethod
    def register(self, table: TableRecord, version: int, documents: Sequence[DocumentChange] = ()) -> bool:
        """Add a table whose latest version is ``version``, which is already published, and change documents. Returns
        False and changes nothing if another table has the same name or id, or a URL that equals, contains or lies below
        the URL of ``table``, or if a document does not have the expected revision."""

    @abstractmethod
    def drop(
        self, table_id: str, version: int, marks: int | None = None, documents: Sequence[DocumentChange] = ()
    ) -> bool:
        """Delete a table and its head, and change documents. Returns False and changes nothing if the head is not at
        ``version``, if the table has unpublished commits (these would be lost), if ``marks`` is set and differs from
        the number of the table's last marking, or if a document does not have the expected revision."""

    @abstractmethod
    def rename(self, table_id: str, name: str, documents: Sequence[DocumentChange] = ()) -> bool:
        """Change the name of a table, and documents. Returns False and changes nothing if the table is not registered,
        if a table has that name, or if a document does not have the expected revision."""

    @abstractmethod
    def table(self, name: str) -> TableRecord | None:
        """The table with a given full name; None if the catalog contains no such table."""

    @abstractmethod
    def table_with_id(self, table_id: str) -> TableRecord | None:
        """The table with a given id; None if the catalog contains no such table."""

    @abstractmethod
    def tables(self, after: str = "", limit: int = 1000) -> list[TableRecord]:
        """At most ``limit`` tables, ordered by name: the first ones whose names sort after ``after``."""

    # ------------------------------------------------------------------------------------ heads of tables

    @abstractmethod
    def head(self, table_id: str) -> Head | None:
        """The head of a table; None if it is not registered."""

    @abstractmethod
    def cut(self) -> dict[str, int]:
        """The latest versions of all tables at one instant, keyed by table id."""

    @abstractmethod
    def ratify(self, proposal: Proposal) -> Ratification:
        """Accept all commits of a proposal or none. Repeating a ratified proposal returns DECIDED or MOVED. Raises
        TimestampAheadError."""

    @abstractmethod
    def published(self, table_id: str, version: int) -> None:
        """Record that all commits up to ``version`` are in ``_delta_log``, then read ``keeps_staged_commits`` again.
        Idempotent."""

    @abstractmethod
    def keep_staged_commits(self) -> None:
        """Set ``keeps_staged_commits``, also for all who open the catalog later. Idempotent."""

    # ----------------------------------------------------------------------------------------- documents

    @abstractmethod
    def document(self, kind: str, key: str) -> Document | None:
        """A document; None if there is none."""

    @abstractmethod
    def documents(self, kind: str, after: str = "", limit: int = 1000) -> list[Document]:
        """At most ``limit`` documents of a kind after the key ``after``, ordered by key."""

    @abstractmethod
    def change_documents(self, changes: Sequence[DocumentChange], free_names: Sequence[str] = ()) -> bool:
        """Make all changes or none. Returns False and changes nothing if a document does not have the expected
        revision, or if a table has one of ``free_names``."""

    # -------------------------------------------------------------------------------------------- marks

    @abstractmethod
    def marks(self, table_id: str) -> Marks:
        """The markings of a table; empty if the table is not registered."""

    @abstractmethod
    def mark(self, table_id: str, number: int, marking: Marking) -> bool:
        """Store a marking. Returns False and changes nothing if ``number`` is not the next number, or if the table is
        not registered."""

    @abstractmethod
    def remark(self, table_id: str, number: int, marking: Marking | None) -> None:
        """Replace or delete a stored marking. Does nothing if the marking does not exist."""

    # --------------------------------------------------------------------------------------- transactions

    @abstractmethod
    def insert(self, record: TransactionRecord) -> bool:
        """Store a new transaction. Returns False if the id already exists."""

    @abstractmethod
    def transaction(self, transaction_id: str) -> TransactionRecord | None:
        """The current record of a transaction; None if there is none."""

    @abstractmethod
    def replace(self, record: TransactionRecord) -> bool:
        """Replace the stored record of a transaction. Returns False unless the revision of the stored record directly
        precedes the revision of ``record``."""

    @abstractmethod
    def transactions(
        self, statuses: frozenset[TransactionStatus], after: tuple[int, str] | None = None, limit: int = 1000
    ) -> list[TransactionRecord]:
        """At most ``limit`` transactions that have one of the given states and follow ``after`` in the order of (start,
        id)."""

    def uncleaned(self, after: tuple[int, str] | None = None, limit: int = 1000) -> list[TransactionRecord]:
        """At most ``limit`` decided transactions after ``after``, ordered by (start, id); those whose parts have all
        been deleted, by ``delete_parts`` without keys, are left out. The result may include other transactions: the
        default implementation returns all decided transactions; coordinators that track parts override this method."""
        return self.transactions(StatusFilter.COMPLETED.statuses, after, limit)

    @abstractmethod
    def delete(self, transaction_id: str) -> None:
        """Delete a transaction and its parts."""

    # --------------------------------------------------------------------------- parts of transactions

    @abstractmethod
    def put_parts(
        self, record: TransactionRecord, parts: Mapping[str, bytes], marks: Mapping[str, int] | None = None
    ) -> bool:
        """Atomically store parts of a transaction by key, replacing existing ones, and store the transaction's record
        as in ``replace``. Returns False in the cases in which ``replace`` does, or if a number in ``marks`` (keyed by
        table id) is not that of the table's last marking. Parts can have any size."""

    @abstractmethod
    def parts(self, transaction_id: str, prefix: str = "") -> dict[str, bytes]:
        """The parts whose keys start with ``prefix``, ordered by key."""

    @abstractmethod
    def delete_parts(self, transaction_id: str, keys: Sequence[str] | None = None) -> None:
        """Delete the parts whose keys are in ``keys``; by default, delete all parts. Missing parts are ignored."""
