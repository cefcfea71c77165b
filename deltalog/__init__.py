"""deltalog: the Delta Lake transaction log in Python, with in-commit timestamps at its heart."""

from deltalog.errors import (
    CallError,
    CommitAttemptsExhaustedError,
    CommitConflictError,
    CommitStateUnknownError,
    CommitTableError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConstraintViolationError,
    CorruptTableError,
    DeltaLogError,
    InvalidActionError,
    InvalidCheckpointError,
    InvalidCommitError,
    InvalidDataFileError,
    InvalidEnablementError,
    InvalidPropertyError,
    InvalidTimestampError,
    MetadataChangedError,
    MissingInCommitTimestampError,
    MissingVersionError,
    NotThereError,
    ObjectNotFoundError,
    ProtocolChangedError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    TimestampOutOfRangeError,
    UnsafePathError,
    UnsafeStoreError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from deltalog.log.cleanup import CleanupReport, FileFate
from deltalog.log.history import CommitEntry, TimestampExplanation
from deltalog.log.snapshot import Snapshot
from deltalog.read.changes import ChangeFile, Changes
from deltalog.read.predicates import Predicate, col
from deltalog.read.scan import Scan
from deltalog.spec.actions import AddFile, DeletionVector, Metadata, Protocol
from deltalog.spec.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    merge_schemas,
)
from deltalog.spec.timestamps import CommitAt, Enablement
from deltalog.spec.variant import variant_to_python
from deltalog.storage.base import FileMeta, LogStore, PutOutcome, UnsafeStoreWarning
from deltalog.storage.commit_tables import CommitTable, create_commit_table, describe_commit_table
from deltalog.storage.dynamodb import DynamoCommit
from deltalog.storage.registry import open_store
from deltalog.storage.s3_dynamodb import S3DynamoDBCommit
from deltalog.table import DeltaTable
from deltalog.version import VERSION as __version__
from deltalog.write.commit import ClockDriftWarning, CommitResult, Environment, RetryPolicy
from deltalog.write.conflicts import IsolationLevel
from deltalog.write.restore import RestoreResult
from deltalog.write.transaction import Transaction

__all__ = [
    "AddFile",
    "ArrayType",
    "CallError",
    "ChangeFile",
    "Changes",
    "CleanupReport",
    "ClockDriftWarning",
    "CommitAt",
    "CommitAttemptsExhaustedError",
    "CommitConflictError",
    "CommitEntry",
    "CommitResult",
    "CommitStateUnknownError",
    "CommitTable",
    "CommitTableError",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentTransactionError",
    "ConstraintViolationError",
    "CorruptTableError",
    "DataType",
    "DecimalType",
    "DeletionVector",
    "DeltaLogError",
    "DeltaTable",
    "DynamoCommit",
    "Enablement",
    "Environment",
    "FileFate",
    "FileMeta",
    "InvalidActionError",
    "InvalidCheckpointError",
    "InvalidCommitError",
    "InvalidDataFileError",
    "InvalidEnablementError",
    "InvalidPropertyError",
    "InvalidTimestampError",
    "IsolationLevel",
    "LogStore",
    "MapType",
    "Metadata",
    "MetadataChangedError",
    "MissingInCommitTimestampError",
    "MissingVersionError",
    "NotThereError",
    "ObjectNotFoundError",
    "Predicate",
    "PrimitiveType",
    "Protocol",
    "ProtocolChangedError",
    "PutOutcome",
    "RestoreResult",
    "RetryPolicy",
    "S3DynamoDBCommit",
    "Scan",
    "SchemaMismatchError",
    "Snapshot",
    "StoreError",
    "StructField",
    "StructType",
    "TableExistsError",
    "TableNotFoundError",
    "TimestampExplanation",
    "TimestampOutOfRangeError",
    "Transaction",
    "UnsafePathError",
    "UnsafeStoreError",
    "UnsafeStoreWarning",
    "UnsupportedFeatureError",
    "VersionNotFoundError",
    "__version__",
    "col",
    "create_commit_table",
    "describe_commit_table",
    "merge_schemas",
    "open_store",
    "variant_to_python",
]
