"""What a catalog keeps of tables and transactions, and which calls a transaction allows in which state. Pure.

A transaction is ACTIVE until one call decides: commit, by way of COMMIT_IN_PROGRESS, to COMMITTED; cancel, a conflict
or too long a silence to ABORTED. Both ends are final. Nothing here knows a clock: times are handed in, and one that
went backwards never makes a transaction younger.

Spec: the Transaction API of AWS Lake Formation; PROTOCOL.md#catalog-managed-tables for ratified commits.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from deltalog.errors import (
    CallError,
    ChangeAfterCommitError,
    ConcurrentModificationError,
    TransactionAbortedError,
    TransactionCanceledError,
    TransactionCommitInProgressError,
    TransactionCommittedError,
    TransactionStateError,
)

IDLE_TIMEOUT_MS = 30 * 60 * 1000
# How long a commit may be silent before others take its process for dead.
COMMIT_LEASE_MS = 60 * 1000
# Half a surrogate pair is text that nothing can store.
_ID = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]+")
_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
# Of an id, and of each part of a name. A key of DynamoDB has 1,024 bytes, and both parts of a name are in one.
_MOST_BYTES = 255


class TransactionType(str, enum.Enum):
    """What a transaction may do. One that only reads need not be committed."""

    READ_AND_WRITE = "READ_AND_WRITE"
    READ_ONLY = "READ_ONLY"


class TransactionStatus(str, enum.Enum):
    """How far a transaction is; see the module."""

    ACTIVE = "ACTIVE"
    COMMIT_IN_PROGRESS = "COMMIT_IN_PROGRESS"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"

    @property
    def is_final(self) -> bool:
        """Whether it is decided, for good."""
        return self in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)


class StatusFilter(str, enum.Enum):
    """What ``list_transactions`` may ask for. COMPLETED: committed or aborted. ACTIVE: not yet decided."""

    ALL = "ALL"
    COMPLETED = "COMPLETED"
    ACTIVE = "ACTIVE"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"

    @property
    def statuses(self) -> frozenset[TransactionStatus]:
        """The states that fit."""
        return _FILTERS[self]


_FILTERS: Mapping[StatusFilter, frozenset[TransactionStatus]] = {
    StatusFilter.ALL: frozenset(TransactionStatus),
    StatusFilter.COMPLETED: frozenset({TransactionStatus.COMMITTED, TransactionStatus.ABORTED}),
    StatusFilter.ACTIVE: frozenset({TransactionStatus.ACTIVE, TransactionStatus.COMMIT_IN_PROGRESS}),
    StatusFilter.COMMITTED: frozenset({TransactionStatus.COMMITTED}),
    StatusFilter.ABORTED: frozenset({TransactionStatus.ABORTED}),
}


class Isolation(str, enum.Enum):
    """SNAPSHOT: every read is of one instant, and what is written must not clash with what others wrote meanwhile.
    SERIALIZABLE: nor may anything that was read have changed, in whatever table."""

    SNAPSHOT = "SNAPSHOT"
    SERIALIZABLE = "SERIALIZABLE"


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transaction as the coordinator keeps it.

    ``pins``: the version of each table, by table id, at the one instant that this transaction reads; None before its
    first read. ``versions``: what a committed one left behind, the last version by table id. ``reason``: why it was
    aborted. ``revision`` counts the changes of this record: it is replaced only if the revision is unchanged.
    ``idle_timeout_ms``: how long it may be silent; None in records of a deltalog that did not keep it. ``looks``: how
    often a clean-up has gone through all that an aborted one left.
    """

    id: str
    type: TransactionType
    status: TransactionStatus
    start_ms: int
    last_activity_ms: int
    isolation: Isolation = Isolation.SNAPSHOT
    end_ms: int | None = None
    pins: Mapping[str, int] | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    revision: int = 0
    idle_timeout_ms: int | None = None
    looks: int = 0

    @property
    def key(self) -> tuple[int, str]:
        """The order of listings."""
        return self.start_ms, self.id


@dataclass(frozen=True, slots=True)
class RatifiedCommit:
    """A commit of a table that the catalog has accepted as its ``version``.

    ``file``: its name in ``_delta_log/_staged_commits``, needed until it is published.
    """

    version: int
    file: str
    in_commit_timestamp_ms: int
    size_bytes: int
    txn_id: str


@dataclass(frozen=True, slots=True)
class Head:
    """How far a table is: ``version`` is the last one ratified, ``unpublished`` those of which the catalog does not
    know that they are in ``_delta_log``, in ascending order and without a gap, up to ``version``."""

    version: int
    unpublished: tuple[RatifiedCommit, ...] = ()

    @property
    def published_version(self) -> int:
        return self.version - len(self.unpublished)

    def commit(self, version: int) -> RatifiedCommit | None:
        """The ratified commit of a version, where it is among the unpublished."""
        number = version - self.published_version - 1
        return self.unpublished[number] if 0 <= number < len(self.unpublished) else None


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table that the catalog manages. ``name`` is ``database.table``; ``table_id`` never changes and is never used
    again; ``url`` is its root; a place is always spelled in one way."""

    table_id: str
    name: str
    url: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class Marking:
    """Objects of a table that one clean-up deletes, by their paths below its root: those that it may be deleting
    now, and those that it has deleted. ``transaction_id``: the aborted transaction that left them."""

    transaction_id: str
    made_ms: int
    deleting: tuple[str, ...]
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Marks:
    """The markings of a table that are kept, by number. ``last``: the highest number that was ever given, 0 before the
    first; none is given twice."""

    last: int = 0
    markings: Mapping[int, Marking] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Commits that are to be ratified together, or not at all.

    ``commits``: by table id, without a gap from the version after the head on which they were built. ``unmoved``: by
    table id, heads that must be unchanged. ``before``, ``after``: the transaction's record as it must be
    found, by its revision, and as it is left; both None for a commit of one table outside any transaction. ``marks``:
    by table id, the last marking that the added files were compared with.
    """

    commits: Mapping[str, tuple[RatifiedCommit, ...]]
    unmoved: Mapping[str, int] = field(default_factory=dict)
    before: TransactionRecord | None = None
    after: TransactionRecord | None = None
    marks: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table, commits in self.commits.items():
            versions = [commit.version for commit in commits]
            if not versions or versions != list(range(versions[0], versions[0] + len(versions))):
                raise CallError(f"Commits are proposed without a gap; got versions {versions} of the table {table}.")

    @property
    def expected(self) -> dict[str, int]:
        """The head that each table must have."""
        return {**self.unmoved, **{table: commits[0].version - 1 for table, commits in self.commits.items()}}


class Ratification(enum.Enum):
    """What became of a proposal. In all cases but the first nothing was changed."""

    RATIFIED = "ratified"
    MOVED = "moved"  # a head is not where it was expected
    MARKED = "marked"  # nothing of that, but a clean-up has marked objects of a table since
    DECIDED = "decided"  # the transaction's record is not as expected: another process decided


# ----------------------------------------------------------------------------------------------- what is allowed


class Call(enum.Enum):
    """The calls whose answer depends on the state of the transaction."""

    COMMIT = "commit"
    CANCEL = "cancel"
    EXTEND = "extend"
    READ = "read"
    WRITE = "write"
    DELETE_OBJECTS_ON_CANCEL = "delete_objects_on_cancel"


_IN_PROGRESS, _COMMITTED, _CANCELED = (
    TransactionCommitInProgressError,
    TransactionCommittedError,
    TransactionCanceledError,
)
# None: the call goes ahead, or is answered with what the state is.
_Refusal = type[TransactionStateError] | type[ConcurrentModificationError] | None
_REFUSALS: Mapping[Call, tuple[_Refusal, _Refusal, _Refusal]] = {
    #                               COMMIT_IN_PROGRESS           COMMITTED   ABORTED
    Call.COMMIT: (None, None, _CANCELED),
    Call.CANCEL: (_IN_PROGRESS, _COMMITTED, None),
    Call.EXTEND: (_IN_PROGRESS, _COMMITTED, _CANCELED),
    Call.READ: (None, _COMMITTED, _CANCELED),
    Call.WRITE: (_IN_PROGRESS, ChangeAfterCommitError, TransactionAbortedError),
    Call.DELETE_OBJECTS_ON_CANCEL: (ConcurrentModificationError, _COMMITTED, _CANCELED),
}
_WRITES = frozenset({Call.WRITE, Call.DELETE_OBJECTS_ON_CANCEL})


def check_allowed(record: TransactionRecord, call: Call) -> None:
    """Raise what a call meets in the state that a transaction is in.

    Raises TransactionCommitInProgressError, TransactionCommittedError, TransactionCanceledError,
    ConcurrentModificationError; CallError for a change in a read-only transaction.
    """
    if record.status is TransactionStatus.ACTIVE:
        if call in _WRITES and record.type is TransactionType.READ_ONLY:
            raise CallError(f"Transaction {record.id} is read-only: {call.value} needs one of READ_AND_WRITE.")
        return
    in_progress, committed, aborted = _REFUSALS[call]
    if record.status is TransactionStatus.COMMIT_IN_PROGRESS:
        if in_progress is not None:
            raise in_progress(
                f"Transaction {record.id} is being committed: {call.value} comes too late. Call describe_transaction "
                "for its outcome.",
                transaction_id=record.id,
            )
    elif record.status is TransactionStatus.COMMITTED:
        if committed is not None:
            raise committed(
                f"Transaction {record.id} is committed: {call.value} comes too late. Start another one.",
                transaction_id=record.id,
            )
    elif aborted is not None:
        raise aborted(
            f"Transaction {record.id} is aborted ({record.reason or 'cancelled'}): {call.value} is not possible. "
            "Start another one.",
            transaction_id=record.id,
        )


# ------------------------------------------------------------------------------------------------ the changes


def started(
    transaction_id: str,
    kind: TransactionType,
    now_ms: int,
    isolation: Isolation = Isolation.SNAPSHOT,
    idle_timeout_ms: int | None = None,
) -> TransactionRecord:
    return TransactionRecord(
        transaction_id,
        kind,
        TransactionStatus.ACTIVE,
        now_ms,
        now_ms,
        isolation,
        idle_timeout_ms=idle_timeout_ms,
    )


def touched(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    """Active as of now. A clock that went back changes nothing."""
    return _next(record, last_activity_ms=max(now_ms, record.last_activity_ms))


def pinned(record: TransactionRecord, pins: Mapping[str, int], now_ms: int) -> TransactionRecord:
    """With the instant that it reads."""
    return replace(touched(record, now_ms), pins=dict(pins))


def committing(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    return replace(touched(record, now_ms), status=TransactionStatus.COMMIT_IN_PROGRESS)


def active_again(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    """After a commit that lost too many races: nothing is decided, and it can be tried again."""
    return replace(touched(record, now_ms), status=TransactionStatus.ACTIVE)


def committed(record: TransactionRecord, versions: Mapping[str, int], now_ms: int) -> TransactionRecord:
    return replace(_ended(record, now_ms), status=TransactionStatus.COMMITTED, versions=dict(versions))


def aborted(record: TransactionRecord, reason: str, now_ms: int) -> TransactionRecord:
    return replace(_ended(record, now_ms), status=TransactionStatus.ABORTED, reason=reason)


def looked(record: TransactionRecord, looks: int) -> TransactionRecord:
    """Of an aborted transaction: the number of times that its leftovers were checked."""
    return replace(record, looks=looks, revision=record.revision + 1)


def overdue(record: TransactionRecord, now_ms: int, idle_timeout_ms: int) -> str | None:
    """Why a transaction has to be aborted now, or None: it was silent for too long, or the process that was
    committing it was. ``idle_timeout_ms``: for a record that has none."""
    silent_ms = now_ms - record.last_activity_ms
    most_ms = idle_timeout_ms if record.idle_timeout_ms is None else record.idle_timeout_ms
    if record.status is TransactionStatus.ACTIVE and silent_ms > most_ms:
        return f"idle for more than {most_ms / 1000:g} s"
    if record.status is TransactionStatus.COMMIT_IN_PROGRESS and silent_ms > COMMIT_LEASE_MS:
        return f"its commit was not ratified within {COMMIT_LEASE_MS / 1000:g} s"
    return None


def _ended(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    return replace(touched(record, now_ms), end_ms=max(now_ms, record.start_ms))


def _next(record: TransactionRecord, *, last_activity_ms: int) -> TransactionRecord:
    return replace(record, last_activity_ms=last_activity_ms, revision=record.revision + 1)


# -------------------------------------------------------------------------------------------------- the names


def check_transaction_id(transaction_id: object) -> str:
    """Raises CallError for what cannot be the id of a transaction: text of 1 to 255 bytes without blanks."""
    if not _fits(_ID, transaction_id):
        raise CallError(f"A transaction id is text of 1 to {_MOST_BYTES} bytes without blanks; got {transaction_id!r}.")
    assert isinstance(transaction_id, str)
    return transaction_id


def table_name(database: object, table: object) -> str:
    """``database.table``. Raises CallError where one of them is no name: text of 1 to 255 bytes on one line,
    and without a dot in that of the database."""
    for what, name in (("database", database), ("table", table)):
        if not _fits(_NAME, name):
            raise CallError(f"The name of a {what} is text of 1 to {_MOST_BYTES} bytes on one line; got {name!r}.")
    if "." in str(database):
        raise CallError(f"The name of a database has no dot in it; got {database!r}.")
    return f"{database}.{table}"


def are_nested(url: str, other: str) -> bool:
    """Whether one of two roots lies below the other, or they are the same; both spelled as a catalog does."""
    first, second = sorted((f"{url.rstrip('/')}/", f"{other.rstrip('/')}/"), key=len)
    return second.startswith(first)


def nested_with(url: str, tables: Iterable[TableRecord]) -> TableRecord | None:
    """The first of some tables whose root is, or lies below, or lies around a root."""
    return next((table for table in tables if are_nested(url, table.url)), None)


def _fits(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and bool(pattern.fullmatch(text)) and len(text.encode()) <= _MOST_BYTES


def check_table_name(name: object) -> str:
    """The full name of a table: one without a database is of ``default``. Raises CallError."""
    if not isinstance(name, str):
        raise CallError(f"The name of a table is text, as 'sales.orders'; got {name!r}.")
    database, dot, table = name.partition(".")
    return table_name(database, table) if dot else table_name("default", database)
