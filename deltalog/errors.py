"""The tree of error classes, grouped by what the caller can do about the error. Pure.

    DeltaLogError
    ├── CallError (ValueError)              change the call
    │   ├── InvalidTimestampError           naive, out of range or not a point in time
    │   ├── InvalidPropertyError            a table property that cannot be set to this value
    │   ├── SchemaMismatchError             the data does not fit the table
    │   ├── ConstraintViolationError        rows that the table does not allow
    │   ├── InvalidActionError              an action that must not be committed
    │   │   └── FilesCommittedError         the table has the files already
    │   ├── UnsafeStoreError                the store cannot promise exclusive creation
    │   ├── BlobTableRequiredError          a stream of bytes, for a table of rows
    │   ├── RowTableRequiredError           a stream of records, for a table of blobs
    │   ├── MissingRecordsError             None instead of records; an empty stream is a write without rows
    │   └── UnpartitionedTableRequiredError  a stream of records, for a partitioned table
    ├── NotFoundError (LookupError)         name something that exists
    │   ├── EntityNotFoundError             no such catalog, or it has no such table or transaction
    │   │   ├── CatalogNotFoundError        the server has no such catalog
    │   │   └── SchemaNotFoundError         the catalog has no such schema
    │   ├── TableNotFoundError
    │   │   └── EmptyDatasetError           nothing has been written there yet
    │   ├── VersionNotFoundError
    │   └── TimestampOutOfRangeError
    ├── TableExistsError
    ├── TableReplacedError                  read the new table; repeat the call if it is meant for that
    ├── RowCountError                       check that writer and committer use the same storage; nothing was committed
    ├── UnsupportedFeatureError             use a client that supports the feature
    ├── FeatureDropIncompleteError          do what its cause says, and repeat the call
    ├── CorruptTableError                   repair the table
    │   ├── InvalidCommitError
    │   ├── MissingVersionError
    │   ├── InvalidCheckpointError
    │   ├── InvalidEnablementError
    │   ├── MissingInCommitTimestampError
    │   ├── InvalidDataFileError
    │   └── UnsafePathError
    ├── CommitConflictError                 read the table again and plan again
    │   ├── MetadataChangedError
    │   ├── ProtocolChangedError
    │   ├── ConcurrentAppendError
    │   ├── ConcurrentDeleteReadError
    │   ├── ConcurrentDeleteDeleteError
    │   ├── ConcurrentTransactionError
    │   └── VersionConflictError            the latest version is not the expected one
    ├── TransactionStateError               the state of the transaction does not allow the call
    │   ├── TransactionCanceledError        start another one; ``conflicts`` has the reason, if any
    │   │   └── TransactionAbortedError
    │   ├── TransactionCommittedError
    │   │   └── ChangeAfterCommitError      start another one: the change is not part of the committed one
    │   └── TransactionCommitInProgressError
    ├── ConcurrentModificationError         the same call again can succeed; nothing was changed
    │   ├── TransactionContentionError
    │   └── ObjectBeingDeletedError         use another name, or wait until the clean-up has deleted it
    ├── TimestampAheadError                 correct the clock, or restart the table's timestamps
    ├── UnpublishedCommitsError             publish the table's ratified commits; nothing was committed
    ├── ResourceNotReadyError               the table cannot take part in transactions yet
    │   └── CatalogBehindLogError           the log has commits that the catalog lacks: run tables resync
    ├── CommitAttemptsExhaustedError        try again later; nothing was committed
    ├── CommitStateUnknownError             call resolve(); never repeat the commit blindly
    └── StoreError (OSError)                check the store
        ├── CoordinatorError                the database of a catalog refused or failed
        │   ├── CatalogRequestError         the server of a catalog refused a request: see its type and status
        │   └── OperationTimeoutError       it did not answer: query the outcome of the call
        ├── UnansweredRequestError          a request to DynamoDB got no answer: check what it changed
        ├── CommitTableError                the DynamoDB table of a commit protocol is invalid
        ├── ObjectNotFoundError (FileNotFoundError)
        └── PathExistsError (FileExistsError)

Every class has a stable ``code`` for scripts; codes are added, never renamed. Messages say what happened, where, and
what to do. Any other information that a program may need is in attributes, which are passed to ``__init__`` by keyword.

Every class has an ``outcome``, as defined by ``Outcome``. It is NOTHING_COMMITTED except for

    UNKNOWN           CommitStateUnknownError, OperationTimeoutError, UnansweredRequestError
    PARTLY_COMMITTED  FeatureDropIncompleteError
    COMMITTED         FilesCommittedError, TransactionCommittedError
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from deltalog.commit_result import CommitResult
else:

    def dataclass_transform(**_):
        """The decorator of typing, which Python 3.10 lacks. Only type checkers need it."""
        return lambda kind: kind


class Outcome(enum.Enum):
    """What an error says about whether the call's change was committed.

    NOTHING_COMMITTED: the commit is not in the log and will not be. The call can be repeated, and files written for it
    can be deleted. UNKNOWN: the commit may be in the log, or a pending request may still put it there. Determine the
    outcome before repeating the call, and delete no file. PARTLY_COMMITTED: only the first of the call's commits is in
    the log; repeating the call makes the remaining commits. COMMITTED: an earlier call has committed the change, and
    this call changed nothing.
    """

    NOTHING_COMMITTED = "nothing committed"
    UNKNOWN = "unknown"
    PARTLY_COMMITTED = "partly committed"
    COMMITTED = "committed"


@dataclass_transform(eq_default=False, kw_only_default=True)
class _Annotated:
    """The base class of errors, whose annotated attributes are passed to ``__init__`` by keyword, as in a dataclass. An
    attribute with a value in the class is optional. The module dataclasses itself would compile several functions for
    each class, which takes longer than everything else in this module."""

    _facts = tuple[str, ...]()  # the names of these attributes

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        super().__init_subclass__()
        own = [name for name, hint in cls.__annotations__.items() if kw_only and "ClassVar" not in str(hint)]
        inherited = [name for base in reversed(cls.__mro__[1:]) for name in vars(base).get("_facts", ())]
        cls._facts = tuple(dict.fromkeys((*inherited, *own)))


class DeltaLogError(_Annotated, Exception, kw_only=False):
    """The root of all errors that deltalog raises on purpose."""

    code: ClassVar[str] = "DELTALOG_ERROR"
    outcome: ClassVar[Outcome] = Outcome.NOTHING_COMMITTED
    message: str

    def __init__(self, message: str, **facts: Any) -> None:
        kind, names = type(self), self._facts
        unknown = [name for name in facts if name not in names]
        if unknown:
            raise TypeError(f"{kind.__name__} got an unexpected keyword argument {unknown[0]!r}")
        missing = [name for name in names if name not in facts and not hasattr(kind, name)]
        if missing:
            raise TypeError(f"{kind.__name__} is missing the keyword argument {missing[0]!r}")
        self.message = message
        vars(self).update((name, facts[name] if name in facts else getattr(kind, name)) for name in names)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def facts(self) -> dict[str, Any]:
        """The attributes that were passed by keyword, keyed by name."""
        return {name: getattr(self, name) for name in self._facts}

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(type(self), **self.facts), (self.message,))


class CallError(DeltaLogError, ValueError):
    """The call is invalid, for example because of its arguments or the state of the table."""

    code = "INVALID_CALL"


class InvalidTimestampError(CallError):
    """The timestamp is not a point in time: it is naive or unparsable, or its year is outside 1 to 9999."""

    code = "INVALID_TIMESTAMP"


class InvalidPropertyError(CallError):
    """A table property has a name that must not be set, or a value that is not allowed. ``key``: its name."""

    code = "INVALID_PROPERTY"
    key: str | None = None


class SchemaMismatchError(CallError):
    """The data, or a new schema, does not fit the table's schema."""

    code = "SCHEMA_MISMATCH"


class ConstraintViolationError(CallError):
    """New rows violate a CHECK constraint, an invariant, a generated column, a declared length, or the condition of an
    overwrite.

    ``constraint``: the name of the constraint; ``expression``: its SQL text; ``violations``: the number of rows that
    violate it (None if the expression cannot be evaluated for some row).
    """

    code = "CONSTRAINT_VIOLATION"
    constraint: str
    expression: str
    violations: int | None


class InvalidActionError(CallError):
    """A staged action would make the table invalid. ``path``: the file concerned, if any."""

    code = "INVALID_ACTION"
    path: str | None = None


class FilesCommittedError(InvalidActionError):
    """A version of the table has already added one of the files to be committed or discarded. The error has the
    ``path`` of the file, and the ``version`` that added the file (None if the file was found in a snapshot, not in a
    commit)."""

    code = "FILES_COMMITTED"
    outcome = Outcome.COMMITTED
    path: str
    version: int | None


class UnsafeStoreError(CallError):
    """The store does not ensure that only one of several writers can create an object, so commits could be lost."""

    code = "UNSAFE_STORE"


class BlobTableRequiredError(CallError):
    """A stream of bytes can be written only to a table of blobs, not to a table whose rows are in Parquet files."""

    code = "BLOB_TABLE_REQUIRED"


class RowTableRequiredError(CallError):
    """A stream of records cannot be written to a table of blobs."""

    code = "ROW_TABLE_REQUIRED"


class MissingRecordsError(CallError):
    """``None`` was passed instead of records."""

    code = "MISSING_RECORDS"


class UnpartitionedTableRequiredError(CallError):
    """A stream of records cannot be written to a partitioned table, because that would take more than one pass."""

    code = "UNPARTITIONED_TABLE_REQUIRED"


class NotFoundError(DeltaLogError, LookupError):
    """The requested object does not exist."""

    code = "NOT_FOUND"


class EntityNotFoundError(NotFoundError):
    """There is no such catalog, or it has no table with this name or no transaction with this id."""

    code = "ENTITY_NOT_FOUND"


class CatalogNotFoundError(EntityNotFoundError):
    """The server has no catalog with this name."""

    code = "CATALOG_NOT_FOUND"


class SchemaNotFoundError(EntityNotFoundError):
    """The catalog has no schema with this name."""

    code = "SCHEMA_NOT_FOUND"


class TableNotFoundError(NotFoundError):
    """There is no Delta log at the location."""

    code = "TABLE_NOT_FOUND"


class EmptyDatasetError(TableNotFoundError):
    """A ``Dataset`` has no version yet: nothing has been written to its location."""

    code = "EMPTY_DATASET"


class VersionNotFoundError(NotFoundError):
    """The version does not exist or can no longer be rebuilt. ``earliest``, ``latest``: the first and the last version
    that can be rebuilt."""

    code = "VERSION_NOT_FOUND"
    version: int
    earliest: int | None
    latest: int | None


class TimestampOutOfRangeError(NotFoundError):
    """The timestamp is outside the history. Its attributes are ``requested_ms``, ``earliest_ms`` and ``latest_ms``."""

    code = "TIMESTAMP_OUT_OF_RANGE"
    requested_ms: int
    earliest_ms: int
    latest_ms: int


class TableExistsError(DeltaLogError):
    """A table already exists at the location of the new table."""

    code = "TABLE_EXISTS"


class TableReplacedError(DeltaLogError):
    """The table is no longer the one that was read: it was deleted and created again, or replaced by an older copy of
    itself. ``version``: the version that was read. Nothing was committed. The handle's next call reads the new
    table."""

    code = "TABLE_REPLACED"
    version: int


class RowCountError(DeltaLogError):
    """The files contain a different number of rows than their writer reported. The attributes ``written`` and ``found``
    contain the two row counts."""

    code = "ROW_COUNT"
    written: int
    found: int


class UnsupportedFeatureError(DeltaLogError):
    """The table needs a protocol version or feature that deltalog does not support. Has ``features``."""

    code = "UNSUPPORTED_FEATURE"
    features: tuple[str, ...]


class FeatureDropIncompleteError(DeltaLogError):
    """``drop_feature`` has prepared the table in ``version`` but not dropped the ``feature``; or ``release_table`` has
    dropped it, but the catalog still has the table. ``__cause__``: the error that prevented the next step."""

    code = "FEATURE_DROP_INCOMPLETE"
    outcome = Outcome.PARTLY_COMMITTED
    feature: str
    version: int


class CorruptTableError(DeltaLogError):
    """A file of the table violates the protocol."""

    code = "CORRUPT_TABLE"


class InvalidCommitError(CorruptTableError):
    """A commit file is empty, torn or not JSON, or has duplicate fields."""

    code = "INVALID_COMMIT"
    version: int | None = None
    path: str | None = None


class MissingVersionError(CorruptTableError):
    """The commit file of ``version`` is missing although later ones exist."""

    code = "MISSING_VERSION"
    version: int


class InvalidCheckpointError(CorruptTableError):
    """The checkpoint of ``version`` cannot be read and the commits before it no longer exist."""

    code = "INVALID_CHECKPOINT"
    version: int


class InvalidEnablementError(CorruptTableError):
    """The enablement properties for in-commit timestamps contradict each other or the log."""

    code = "INVALID_ENABLEMENT"


class MissingInCommitTimestampError(CorruptTableError):
    """The commit of ``version`` lacks the required ``inCommitTimestamp``."""

    code = "MISSING_IN_COMMIT_TIMESTAMP"
    version: int


class InvalidDataFileError(CorruptTableError):
    """A data file named by the log is missing or cannot be read."""

    code = "INVALID_DATA_FILE"
    path: str | None = None


class UnsafePathError(CorruptTableError):
    """A ``path`` in the log points outside the table."""

    code = "UNSAFE_PATH"
    path: str


class CommitConflictError(DeltaLogError):
    """Another writer's commit conflicts with this one; nothing was committed.

    ``winning_version`` and ``winning_operation``: the version and the operation of the other commit. ``read_version``:
    the version on which this commit was planned (None if unknown). ``path`` and ``partition_values``: those of the file
    that caused the conflict, if any. ``retryable``: whether the operation can succeed if the table is read and the
    commit planned again, as ``DeltaTable.retrying`` does.
    """

    code = "COMMIT_CONFLICT"
    winning_version: int | None
    winning_operation: str | None
    read_version: int | None = None
    path: str | None = None
    partition_values: Mapping[str, str | None] | None = None
    retryable: bool = True


class MetadataChangedError(CommitConflictError):
    """The winning commit changed schema, partitioning or properties."""

    code = "METADATA_CHANGED"


class ProtocolChangedError(CommitConflictError):
    """The winning commit changed the protocol."""

    code = "PROTOCOL_CHANGED"


class ConcurrentAppendError(CommitConflictError):
    """The winning commit added files that this transaction would have read."""

    code = "CONCURRENT_APPEND"


class ConcurrentDeleteReadError(CommitConflictError):
    """The winning commit removed files that this transaction read."""

    code = "CONCURRENT_DELETE_READ"


class ConcurrentDeleteDeleteError(CommitConflictError):
    """The winning commit removed a file that this transaction also removes."""

    code = "CONCURRENT_DELETE_DELETE"


class ConcurrentTransactionError(CommitConflictError):
    """The winning commit contains a transaction identifier (txn) for the same application id."""

    code = "CONCURRENT_TRANSACTION"


class VersionConflictError(CommitConflictError):
    """``expected_parent``, the version that this commit was to follow, is no longer the latest version, because another
    writer committed.

    ``winning_version``: the version that the other writer committed, or the latest one; None if there is no table yet.
    """

    code = "VERSION_CONFLICT"
    expected_parent: int | None


class TransactionStateError(DeltaLogError):
    """The state of a transaction does not allow the call. Has ``transaction_id``."""

    code = "TRANSACTION_STATE"
    transaction_id: str


class TransactionCanceledError(TransactionStateError):
    """The transaction is aborted. ``conflicts``: the conflicts that caused the abort, if this call aborted the
    transaction."""

    code = "TRANSACTION_CANCELED"
    conflicts: Sequence[CommitConflictError] = ()


class TransactionAbortedError(TransactionCanceledError):
    """The transaction was aborted earlier and accepts no more changes."""

    code = "TRANSACTION_ABORTED"


class TransactionCommittedError(TransactionStateError):
    """The transaction is already committed; this cannot be undone."""

    code = "TRANSACTION_COMMITTED"
    outcome = Outcome.COMMITTED


class ChangeAfterCommitError(TransactionCommittedError):
    """The transaction was committed before this change was made; the change is not part of it. Start another
    transaction."""

    code = "CHANGE_AFTER_COMMIT"
    outcome = Outcome.NOTHING_COMMITTED


class TransactionCommitInProgressError(TransactionStateError):
    """Another call is already committing this transaction."""

    code = "TRANSACTION_COMMIT_IN_PROGRESS"


class ConcurrentModificationError(DeltaLogError):
    """Another call changed the same record at the same time. This call changed nothing."""

    code = "CONCURRENT_MODIFICATION"
    transaction_id: str | None = None


class TransactionContentionError(ConcurrentModificationError):
    """In every attempt to commit, other writers committed first; the transaction is still active."""

    code = "TRANSACTION_CONTENTION"


class ObjectBeingDeletedError(ConcurrentModificationError):
    """The clean-up of an aborted transaction is deleting or has deleted the object. Until the clean-up has finished,
    the object cannot be registered or added, and its table cannot be dropped. Nothing was changed. The error has the
    attributes ``path`` (relative to the table) and ``transaction_id``."""

    code = "OBJECT_BEING_DELETED"
    path: str
    transaction_id: str


class TimestampAheadError(DeltaLogError):
    """An in-commit timestamp is too far ahead of the catalog's clock to be ratified; nothing was committed. Attributes:
    ``in_commit_timestamp_ms`` and ``clock_ms``."""

    code = "TIMESTAMP_AHEAD"
    in_commit_timestamp_ms: int
    clock_ms: int


class UnpublishedCommitsError(DeltaLogError):
    """The catalog accepts no further commit of a table until its ratified commits have been published. Nothing was
    committed: publish them, then repeat the commit."""

    code = "UNPUBLISHED_COMMITS"


class ResourceNotReadyError(DeltaLogError):
    """The table is not managed by the catalog, or lacks a feature that transactions need."""

    code = "RESOURCE_NOT_READY"


class CatalogBehindLogError(ResourceNotReadyError):
    """The log of a table has versions that its catalog lacks, for example after the catalog was restored from a backup.
    Nothing was written. The attribute ``version`` is the latest version in the catalog."""

    code = "CATALOG_BEHIND_LOG"
    version: int


class CommitAttemptsExhaustedError(DeltaLogError):
    """Other writers won every attempt; nothing was committed."""

    code = "COMMIT_ATTEMPTS_EXHAUSTED"


class CommitStateUnknownError(DeltaLogError):
    """The store did not acknowledge the commit, so it is unknown whether the commit is in the log.

    ``version`` and ``txn_id`` identify the attempt. ``resolve()`` asks the store again: it returns the CommitResult if
    the commit landed, and None if the version is still free or was committed by another writer. If the version is free,
    the request may still be in flight, so do not commit the same change again before the time limit of that request has
    passed. No data file is deleted.
    """

    code = "COMMIT_STATE_UNKNOWN"
    outcome = Outcome.UNKNOWN
    version: int
    txn_id: str

    def __init__(
        self, message: str, *, version: int, txn_id: str, resolve: Callable[[], CommitResult | None] | None = None
    ) -> None:
        super().__init__(message, version=version, txn_id=txn_id)
        self._resolve = resolve  # not one of ``facts``, because it cannot be pickled

    def resolve(self) -> CommitResult | None:
        """Query the store again. Cost: at most 1 GET. Raises StoreError if it still does not answer."""
        if self._resolve is None:
            raise CallError(
                f"{self} This copy of the error came from another process and has lost its store: "
                f"look for txnId {self.txn_id} in version {self.version} instead."
            )
        return self._resolve()


class StoreError(DeltaLogError, OSError):
    """The store refused the request or failed, and the request had no effect.

    ``path``: the path of the object, or the name of the database or table. ``service_code``: the error code of the
    service, if it returned one.
    """

    code = "STORE_ERROR"
    path: str | None = None
    service_code: str | None = None


class UnansweredRequestError(StoreError):
    """A request to DynamoDB got no response in time: its change may have taken effect, or may take effect later."""

    code = "UNANSWERED_REQUEST"
    outcome = Outcome.UNKNOWN


class CommitTableError(StoreError):
    """The DynamoDB ``table`` of a commit protocol is missing, has a different key schema, or disagrees with the log."""

    code = "COMMIT_TABLE"
    table: str


class CoordinatorError(StoreError):
    """The database of a catalog refused the request or failed, and nothing was changed. ``path``: its name."""

    code = "COORDINATOR"


class CatalogRequestError(CoordinatorError):
    """The server of a catalog refused a request, and nothing was changed. ``error_type``: the type of the error, as the
    server names it; None if its response has none. ``status``: the status of the response; 0 if the response was not
    one of the catalog's API."""

    code = "CATALOG_REQUEST"
    error_type: str | None = None
    status: int = 0


class OperationTimeoutError(CoordinatorError):
    """The database of a catalog did not answer in time: the change may have taken effect, or may do so later."""

    code = "OPERATION_TIMEOUT"
    outcome = Outcome.UNKNOWN


class ObjectNotFoundError(StoreError, FileNotFoundError):
    """There is no object at this ``path``."""

    code = "OBJECT_NOT_FOUND"
    path: str


class PathExistsError(StoreError, FileExistsError):
    """An object already exists at the path of a new one; the existing object is unchanged. Has ``path``."""

    code = "PATH_EXISTS"


class ClockDriftWarning(UserWarning):
    """The last commit's in-commit timestamp is far ahead of this machine's clock."""

    # If warnings are turned into errors, this warning is raised before the request is sent.
    outcome: ClassVar[Outcome] = Outcome.NOTHING_COMMITTED


class CatalogBehindLogWarning(UserWarning):
    """The log of a table contains versions that the table's catalog does not have."""


class UnsafeStoreWarning(UserWarning):
    """A table is written on a store without exclusive creation, because the caller asserted that there is only one
    writer."""
