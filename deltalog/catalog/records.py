"""The records of tables and transactions in a catalog, and the calls allowed in each state. Pure.

A transaction is ACTIVE until it is decided: a commit makes it COMMIT_IN_PROGRESS and then COMMITTED; a cancel, a
conflict or its idle timeout makes it ABORTED. Both are final. The current time is always passed as an argument. The age
of a transaction never decreases, even if a clock is set back.

Spec: the Transaction API of AWS Lake Formation; PROTOCOL.md#catalog-managed-tables for ratified commits.
"""

from __future__ import annotations

import enum
import hashlib
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
# If a commit takes longer than this time, other processes treat the committing process as dead.
COMMIT_LEASE_MS = 60 * 1000
# The prefix of the ids of vacuums, which distinguishes them from transaction ids (UUIDs).
VACUUM_ID = "vacuum-"
# The kinds of documents that name external tables, by full name, and the ids of dropped tables: those whose files stay,
# and those whose files are being deleted; and the ids of staged tables.
EXTERNAL, RETIRED, DROPPED, STAGING = "external", "retired", "dropped", "staging"
# The kind of the documents with the owners and grants of objects; ``access_key`` gives the key for a table.
ACCESS = "access"
# Databases cannot store lone surrogates.
_ID = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]+")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
# The limit for the length of an id, and of each of the two parts of a name: a sort key of DynamoDB has at most 1,024
# bytes and contains both.
_MOST_BYTES = 255


class TransactionType(str, enum.Enum):
    """Whether a transaction may write. A read-only transaction need not be committed."""

    READ_AND_WRITE = "READ_AND_WRITE"
    READ_ONLY = "READ_ONLY"


class TransactionStatus(str, enum.Enum):
    """The state of a transaction; see the module docstring."""

    ACTIVE = "ACTIVE"
    COMMIT_IN_PROGRESS = "COMMIT_IN_PROGRESS"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"

    @property
    def is_final(self) -> bool:
        """Whether the transaction is decided."""
        return self in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)


class StatusFilter(str, enum.Enum):
    """The filters of ``list_transactions``. COMPLETED: the transaction was committed or aborted. ACTIVE: not yet
    decided."""

    ALL = "ALL"
    COMPLETED = "COMPLETED"
    ACTIVE = "ACTIVE"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"

    @property
    def statuses(self) -> frozenset[TransactionStatus]:
        """The transaction statuses that the filter selects."""
        return _FILTERS[self]


_FILTERS: Mapping[StatusFilter, frozenset[TransactionStatus]] = {
    StatusFilter.ALL: frozenset(TransactionStatus),
    StatusFilter.COMPLETED: frozenset({TransactionStatus.COMMITTED, TransactionStatus.ABORTED}),
    StatusFilter.ACTIVE: frozenset({TransactionStatus.ACTIVE, TransactionStatus.COMMIT_IN_PROGRESS}),
    StatusFilter.COMMITTED: frozenset({TransactionStatus.COMMITTED}),
    StatusFilter.ABORTED: frozenset({TransactionStatus.ABORTED}),
}


class Isolation(str, enum.Enum):
    """SNAPSHOT: all reads see one instant, and no concurrent commit may conflict with the writes. SERIALIZABLE: in
    addition, no concurrent commit to any table may conflict with the transaction's reads."""

    SNAPSHOT = "SNAPSHOT"
    SERIALIZABLE = "SERIALIZABLE"


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transaction as stored by the coordinator.

    ``pins``: the versions of the tables at the transaction's instant, keyed by table id; None before the transaction's
    first read. ``versions``: by table id, the last version that the transaction committed to the table. ``reason``: why
    the transaction was aborted. ``revision`` counts the changes to this catalog record; a write replaces the record
    only if the revision is unchanged. ``idle_timeout_ms``: how long the transaction may be idle; None in records of
    earlier versions of deltalog. ``looks``: for an aborted transaction, how many clean-up passes have examined it so
    far.
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
        """The sort key of listings."""
        return self.start_ms, self.id


@dataclass(frozen=True, slots=True)
class RatifiedCommit:
    """A commit that the catalog has accepted as ``version`` of a table.

    ``file``: the name of the commit's file in ``_delta_log/_staged_commits``, required until the commit is published.
    ``modified_ms``: the modification time of that file, if its writer reported one. ``changes_metadata``: whether the
    commit changes more than the table's rows: its protocol, its metadata or its domains.
    """

    version: int
    file: str
    in_commit_timestamp_ms: int
    size_bytes: int
    txn_id: str
    modified_ms: int | None = None
    changes_metadata: bool = False

    @property
    def modification_time_ms(self) -> int:
        """``modified_ms``, or the in-commit timestamp if the writer of the file reported no time."""
        return self.in_commit_timestamp_ms if self.modified_ms is None else self.modified_ms


@dataclass(frozen=True, slots=True)
class Head:
    """The latest version of a table. ``version``: the last ratified version. ``unpublished``: the commits up to
    ``version`` that are not recorded as published, in ascending order without gaps. ``metadata_version``,
    ``metadata_ms``: the last commit that changed metadata, and its in-commit timestamp; None if the catalog does not
    know. They are not compared."""

    version: int
    unpublished: tuple[RatifiedCommit, ...] = ()
    metadata_version: int | None = field(default=None, compare=False)
    metadata_ms: int | None = field(default=None, compare=False)

    @property
    def published_version(self) -> int:
        return self.version - len(self.unpublished)

    def commit(self, version: int) -> RatifiedCommit | None:
        """The unpublished commit of a version, or None."""
        number = version - self.published_version - 1
        return self.unpublished[number] if 0 <= number < len(self.unpublished) else None


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table of a catalog. ``name``: ``database.table``. ``table_id``: identifies this registration of the table, and
    is never used for another one. ``url``: its canonical root."""

    table_id: str
    name: str
    url: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class Document:
    """A small text that a catalog stores under a key, apart from its tables. ``revision``: counts the changes, from
    1."""

    kind: str
    key: str
    content: str
    revision: int


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """A change of a document. ``revision``: the revision that the document must have; 0: it must not exist.
    ``content``: the new content; None deletes the document (or, for revision 0, only checks that there is none)."""

    kind: str
    key: str
    revision: int
    content: str | None


@dataclass(frozen=True, slots=True)
class Marking:
    """The objects of a table that a clean-up deletes, keyed by path below the root: objects that the clean-up may be
    deleting now, and objects that it has already deleted. ``transaction_id``: the id of the aborted transaction that
    left the objects behind, or the id of a vacuum."""

    transaction_id: str
    made_ms: int
    deleting: tuple[str, ...]
    deleted: tuple[str, ...] = ()

    @property
    def is_of_vacuum(self) -> bool:
        return self.transaction_id.startswith(VACUUM_ID)


@dataclass(frozen=True, slots=True)
class Marks:
    """The markings of a table, as stored in the catalog and keyed by marking number. ``last``: the highest number ever
    used, 0 before the first; numbers are not reused."""

    last: int = 0
    markings: Mapping[int, Marking] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Commits to ratify together or not at all.

    ``commits``: the commits of each table, keyed by table id, with consecutive versions that begin directly after the
    head on which the commits are based. ``unmoved``: the heads that must be unchanged, by table id. ``before``: the
    current record of the transaction, which is compared by revision; ``after``: its replacement; both None for a single
    commit outside a transaction. ``marks``: for each table id, the number of the last marking that the added files were
    checked against. ``documents``: changes of documents that take effect with the commits.
    """

    commits: Mapping[str, tuple[RatifiedCommit, ...]]
    unmoved: Mapping[str, int] = field(default_factory=dict)
    before: TransactionRecord | None = None
    after: TransactionRecord | None = None
    marks: Mapping[str, int] = field(default_factory=dict)
    documents: tuple[DocumentChange, ...] = ()

    def __post_init__(self) -> None:
        for table, commits in self.commits.items():
            versions = [commit.version for commit in commits]
            if not versions or versions != list(range(versions[0], versions[0] + len(versions))):
                raise CallError(f"Proposed commits must not have gaps; got versions {versions} of the table {table}.")

    @property
    def expected(self) -> dict[str, int]:
        """For each table, the version that its head must have for the proposal to be ratified."""
        return {**self.unmoved, **{table: commits[0].version - 1 for table, commits in self.commits.items()}}


class Ratification(enum.Enum):
    """The outcome of a proposal. Unless its outcome is RATIFIED, the proposal had no effect."""

    RATIFIED = "ratified"
    MOVED = "moved"  # the latest version (head) of a table is not the expected one
    MARKED = "marked"  # the heads are as expected, but a clean-up has marked objects of one of the tables
    DECIDED = "decided"  # the transaction's record was changed by another process
    CHANGED = "changed"  # the heads are as expected, but a document does not have the expected revision


# --------------------------------------------------------------------------- states in which a call is allowed


class Call(enum.Enum):
    """The calls of a transaction whose result depends on the transaction's state."""

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
# None: the call is not refused; it proceeds or returns the transaction's state.
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
    """Check that the state of a transaction allows a call.

    Raises TransactionCommitInProgressError, TransactionCommittedError, TransactionCanceledError,
    ConcurrentModificationError; CallError for a change in a read-only transaction.
    """
    if record.status is TransactionStatus.ACTIVE:
        if call in _WRITES and record.type is TransactionType.READ_ONLY:
            raise CallError(f"Transaction {record.id} is read-only: {call.value} requires READ_AND_WRITE.")
        return
    in_progress, committed, aborted = _REFUSALS[call]
    if record.status is TransactionStatus.COMMIT_IN_PROGRESS:
        if in_progress is not None:
            raise in_progress(
                f"Transaction {record.id} is being committed: it is too late for {call.value}. Call "
                "describe_transaction for its outcome.",
                transaction_id=record.id,
            )
    elif record.status is TransactionStatus.COMMITTED:
        if committed is not None:
            raise committed(
                f"Transaction {record.id} is committed: it is too late for {call.value}. Start another one.",
                transaction_id=record.id,
            )
    elif aborted is not None:
        raise aborted(
            f"Transaction {record.id} is aborted ({record.reason or 'cancelled'}): {call.value} is not possible. "
            "Start another one.",
            transaction_id=record.id,
        )


# ---------------------------------------------------------------------------------- transitions between states


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
    """Set the time of the last activity to now, or leave it unchanged if the clock went backwards."""
    return _next(record, last_activity_ms=max(now_ms, record.last_activity_ms))


def pinned(record: TransactionRecord, pins: Mapping[str, int], now_ms: int) -> TransactionRecord:
    """Set the versions that the transaction reads."""
    return replace(touched(record, now_ms), pins=dict(pins))


def committing(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    return replace(touched(record, now_ms), status=TransactionStatus.COMMIT_IN_PROGRESS)


def active_again(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    """Make a transaction active again after other writers won every one of its commit attempts."""
    return replace(touched(record, now_ms), status=TransactionStatus.ACTIVE)


def committed(record: TransactionRecord, versions: Mapping[str, int], now_ms: int) -> TransactionRecord:
    return replace(_ended(record, now_ms), status=TransactionStatus.COMMITTED, versions=dict(versions))


def aborted(record: TransactionRecord, reason: str, now_ms: int) -> TransactionRecord:
    return replace(_ended(record, now_ms), status=TransactionStatus.ABORTED, reason=reason)


def cleaned(record: TransactionRecord, passes: int) -> TransactionRecord:
    """Set the number of clean-up passes of an aborted transaction."""
    return replace(record, looks=passes, revision=record.revision + 1)


def overdue(record: TransactionRecord, now_ms: int, idle_timeout_ms: int) -> str | None:
    """The reason why a transaction must be aborted now: it was idle for too long, or its commit takes too long. None if
    it need not be aborted. ``idle_timeout_ms``: the idle timeout that applies if the record contains none."""
    idle_ms = now_ms - record.last_activity_ms
    timeout_ms = idle_timeout_ms if record.idle_timeout_ms is None else record.idle_timeout_ms
    if record.status is TransactionStatus.ACTIVE and idle_ms > timeout_ms:
        return f"idle for more than {timeout_ms / 1000:g} s"
    if record.status is TransactionStatus.COMMIT_IN_PROGRESS and idle_ms > COMMIT_LEASE_MS:
        return f"its commit was not ratified within {COMMIT_LEASE_MS / 1000:g} s"
    return None


def _ended(record: TransactionRecord, now_ms: int) -> TransactionRecord:
    return replace(touched(record, now_ms), end_ms=max(now_ms, record.start_ms))


def _next(record: TransactionRecord, *, last_activity_ms: int) -> TransactionRecord:
    return replace(record, last_activity_ms=last_activity_ms, revision=record.revision + 1)


# ------------------------------------------------------------------------------------------------------ names


def check_transaction_id(transaction_id: object) -> str:
    """Raises CallError unless it is text of 1 to 255 bytes without blanks."""
    if not _fits(_ID, transaction_id):
        raise CallError(
            f"A transaction id must be text of 1 to {_MOST_BYTES} bytes without blanks; got {transaction_id!r}."
        )
    assert isinstance(transaction_id, str)
    return transaction_id


def id_for(new: str, starter: str | None) -> str:
    """The id of a transaction that is started for a principal. It contains a hash of the UUID and the principal, so
    that whether a principal started the transaction can be checked without its record, but the principal cannot be read
    from the id. ``new``: a new UUID. ``starter``: the principal; None: no particular one.
    """
    return new if starter is None else f"{new}.{_mark_of(new, starter)}"


def is_started_for(transaction_id: str, starter: str) -> bool:
    """Whether a transaction was started for a principal, according to its id."""
    new, _, mark = transaction_id.partition(".")
    return mark == _mark_of(new, starter)


def _mark_of(new: str, starter: str) -> str:
    return hashlib.sha256(f"{new} {starter}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def access_key(table_id: str) -> str:
    """The key of the document with the owner and the grants of a table."""
    return f"table {table_id}"


def is_table_id(text: str) -> bool:
    """Whether a text can be the id of a table: a UUID in its usual form."""
    return bool(_UUID.fullmatch(text))


def table_name(database: object, table: object) -> str:
    """``database.table``. Raises CallError unless both are text of 1 to 255 bytes on one line, and the database
    has no dot."""
    for what, name in (("database", database), ("table", table)):
        if not _fits(_NAME, name):
            raise CallError(f"The name of a {what} must be text of 1 to {_MOST_BYTES} bytes on one line; got {name!r}.")
    if "." in str(database):
        raise CallError(f"The name of a database must not contain a dot; got {database!r}.")
    return f"{database}.{table}"


def are_nested(url: str, other: str) -> bool:
    """Whether two canonical roots are equal or one lies below the other."""
    first, second = sorted((f"{url.rstrip('/')}/", f"{other.rstrip('/')}/"), key=len)
    return second.startswith(first)


def nested_with(url: str, tables: Iterable[TableRecord]) -> TableRecord | None:
    """The first table whose root equals or contains ``url``, or lies below it; None if there is none."""
    return next((table for table in tables if are_nested(url, table.url)), None)


def metadata_mark(head: Head, commits: Iterable[RatifiedCommit]) -> tuple[int | None, int | None]:
    """The ``metadata_version`` and ``metadata_ms`` of a head after these commits."""
    for commit in commits:
        if commit.changes_metadata:
            head = Head(commit.version, (), commit.version, commit.in_commit_timestamp_ms)
    return head.metadata_version, head.metadata_ms


def _fits(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and bool(pattern.fullmatch(text)) and len(text.encode()) <= _MOST_BYTES


def check_table_name(name: object) -> str:
    """The full name of a table; if the database is missing, it is ``default``. Raises CallError."""
    if not isinstance(name, str):
        raise CallError(f"The name of a table must be text, such as 'sales.orders'; got {name!r}.")
    database, dot, table = name.partition(".")
    return table_name(database, table) if dot else table_name("default", database)
