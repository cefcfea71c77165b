"""deltalog: the Delta Lake transaction log in Python, with in-commit timestamps at its heart."""

import importlib
import typing

from deltalog.errors import (
    BlobTableRequiredError,
    CallError,
    CatalogBehindLogError,
    ChangeAfterCommitError,
    CommitAttemptsExhaustedError,
    CommitConflictError,
    CommitStateUnknownError,
    CommitTableError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentModificationError,
    ConcurrentTransactionError,
    ConstraintViolationError,
    CoordinatorError,
    CorruptTableError,
    DeltaLogError,
    EmptyDatasetError,
    EntityNotFoundError,
    FeatureDropIncompleteError,
    FilesCommittedError,
    InvalidActionError,
    InvalidCheckpointError,
    InvalidCommitError,
    InvalidDataFileError,
    InvalidEnablementError,
    InvalidPropertyError,
    InvalidTimestampError,
    MetadataChangedError,
    MissingInCommitTimestampError,
    MissingRecordsError,
    MissingVersionError,
    NotFoundError,
    ObjectBeingDeletedError,
    ObjectNotFoundError,
    OperationTimeoutError,
    Outcome,
    PathExistsError,
    ProtocolChangedError,
    ResourceNotReadyError,
    RowCountError,
    RowTableRequiredError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
    TimestampAheadError,
    TimestampOutOfRangeError,
    TransactionAbortedError,
    TransactionCanceledError,
    TransactionCommitInProgressError,
    TransactionCommittedError,
    TransactionContentionError,
    TransactionStateError,
    UnansweredRequestError,
    UnpartitionedTableRequiredError,
    UnsafePathError,
    UnsafeStoreError,
    UnsupportedFeatureError,
    VersionConflictError,
    VersionNotFoundError,
)
from deltalog.version import VERSION as __version__

if typing.TYPE_CHECKING:
    from deltalog.catalog.coordinator import Coordinator
    from deltalog.catalog.records import Isolation, StatusFilter, TableRecord, TransactionStatus, TransactionType
    from deltalog.catalog.store import CatalogBehindLogWarning
    from deltalog.commit.loop import ClockDriftWarning
    from deltalog.commit.prepared import IsolationLevel
    from deltalog.commit_result import CommitResult
    from deltalog.dataset import Dataset
    from deltalog.doctor.check import check
    from deltalog.doctor.findings import CheckReport, Finding
    from deltalog.environment import Environment, RetryPolicy
    from deltalog.expressions.columns import col
    from deltalog.expressions.parser_steps import with_counted_steps
    from deltalog.expressions.tree import Predicate
    from deltalog.log.cleanup import CleanupDecision, CleanupReport
    from deltalog.log.commit_summary import AddedFileSummary, CommitSummary
    from deltalog.log.history_entries import CommitEntry, TimestampExplanation
    from deltalog.maintenance.optimize.optimizer import TableOptimizer
    from deltalog.maintenance.optimize.plan import OptimizeReport
    from deltalog.maintenance.restore import RestoreResult
    from deltalog.maintenance.vacuum.decisions import VacuumedFile, VacuumReport
    from deltalog.parquet.footers import open_parquet
    from deltalog.parquet.variant import variant_to_python
    from deltalog.protocol.actions import AddFile, DeletionVector, Metadata, Protocol
    from deltalog.protocol.identity_columns import identity_column
    from deltalog.protocol.leftovers import LeftoverKind, job_directory_name, leftover_kind
    from deltalog.protocol.schema import (
        ArrayType,
        DataType,
        DecimalType,
        MapType,
        PrimitiveType,
        StructField,
        StructType,
    )
    from deltalog.protocol.schema_enforcement import holds_all, merge_schemas, names_twice
    from deltalog.protocol.timestamps import CommitAt, Enablement
    from deltalog.read.changes import ChangeFile, Changes
    from deltalog.read.scan import Scan
    from deltalog.read.snapshot import Snapshot
    from deltalog.read.stream_offsets import StreamOffset
    from deltalog.read.table_stream import StreamFile, StreamReader, TableStream
    from deltalog.rows.merge.builder import TableMerger
    from deltalog.rows.replacement import Replacement
    from deltalog.rows.row_removal import RowRemoval
    from deltalog.storage.base import FileMeta, LogStore, PutOutcome, UnsafeStoreWarning
    from deltalog.storage.dynamodb.lease_commits import DynamoCommit
    from deltalog.storage.dynamodb.spark_log_store import S3DynamoDBCommit
    from deltalog.storage.dynamodb.tables import CommitTable, create_commit_table, describe_commit_table
    from deltalog.storage.registry import open_store
    from deltalog.table import DeltaTable
    from deltalog.transactions.ledger import TransactionDescription, TransactionPage
    from deltalog.transactions.manager import TransactionManager, VirtualObject
    from deltalog.transactions.resync import Resync
    from deltalog.transactions.resync_plan import TableResync
    from deltalog.transactions.table_objects import AddObject, DeleteObject, ObjectPage, TableObject
    from deltalog.transactions.transaction import ManagedTransaction
    from deltalog.write.table_rules import TableRules
    from deltalog.write.transaction import Transaction
    from deltalog.write_contract.staging import StagedFiles, WriteOptions
    from deltalog.write_contract.stream import StreamWriter

__all__ = [
    "AddFile",
    "AddObject",
    "AddedFileSummary",
    "ArrayType",
    "BlobTableRequiredError",
    "CallError",
    "CatalogBehindLogError",
    "CatalogBehindLogWarning",
    "ChangeAfterCommitError",
    "ChangeFile",
    "Changes",
    "CheckReport",
    "CleanupDecision",
    "CleanupReport",
    "ClockDriftWarning",
    "CommitAt",
    "CommitAttemptsExhaustedError",
    "CommitConflictError",
    "CommitEntry",
    "CommitResult",
    "CommitStateUnknownError",
    "CommitSummary",
    "CommitTable",
    "CommitTableError",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentModificationError",
    "ConcurrentTransactionError",
    "ConstraintViolationError",
    "Coordinator",
    "CoordinatorError",
    "CorruptTableError",
    "DataType",
    "Dataset",
    "DecimalType",
    "DeleteObject",
    "DeletionVector",
    "DeltaLogError",
    "DeltaTable",
    "DynamoCommit",
    "EmptyDatasetError",
    "Enablement",
    "EntityNotFoundError",
    "Environment",
    "FeatureDropIncompleteError",
    "FileMeta",
    "FilesCommittedError",
    "Finding",
    "InvalidActionError",
    "InvalidCheckpointError",
    "InvalidCommitError",
    "InvalidDataFileError",
    "InvalidEnablementError",
    "InvalidPropertyError",
    "InvalidTimestampError",
    "Isolation",
    "IsolationLevel",
    "LeftoverKind",
    "LogStore",
    "ManagedTransaction",
    "MapType",
    "Metadata",
    "MetadataChangedError",
    "MissingInCommitTimestampError",
    "MissingRecordsError",
    "MissingVersionError",
    "NotFoundError",
    "ObjectBeingDeletedError",
    "ObjectNotFoundError",
    "ObjectPage",
    "OperationTimeoutError",
    "OptimizeReport",
    "Outcome",
    "PathExistsError",
    "Predicate",
    "PrimitiveType",
    "Protocol",
    "ProtocolChangedError",
    "PutOutcome",
    "Replacement",
    "ResourceNotReadyError",
    "RestoreResult",
    "Resync",
    "RetryPolicy",
    "RowCountError",
    "RowRemoval",
    "RowTableRequiredError",
    "S3DynamoDBCommit",
    "Scan",
    "SchemaMismatchError",
    "Snapshot",
    "StagedFiles",
    "StatusFilter",
    "StoreError",
    "StreamFile",
    "StreamOffset",
    "StreamReader",
    "StreamWriter",
    "StructField",
    "StructType",
    "TableExistsError",
    "TableMerger",
    "TableNotFoundError",
    "TableObject",
    "TableOptimizer",
    "TableRecord",
    "TableReplacedError",
    "TableResync",
    "TableRules",
    "TableStream",
    "TimestampAheadError",
    "TimestampExplanation",
    "TimestampOutOfRangeError",
    "Transaction",
    "TransactionAbortedError",
    "TransactionCanceledError",
    "TransactionCommitInProgressError",
    "TransactionCommittedError",
    "TransactionContentionError",
    "TransactionDescription",
    "TransactionManager",
    "TransactionPage",
    "TransactionStateError",
    "TransactionStatus",
    "TransactionType",
    "UnansweredRequestError",
    "UnpartitionedTableRequiredError",
    "UnsafePathError",
    "UnsafeStoreError",
    "UnsafeStoreWarning",
    "UnsupportedFeatureError",
    "VacuumReport",
    "VacuumedFile",
    "VersionConflictError",
    "VersionNotFoundError",
    "VirtualObject",
    "WriteOptions",
    "__version__",
    "check",
    "col",
    "create_commit_table",
    "describe_commit_table",
    "holds_all",
    "identity_column",
    "job_directory_name",
    "leftover_kind",
    "merge_schemas",
    "names_twice",
    "open_parquet",
    "open_store",
    "variant_to_python",
    "with_counted_steps",
]

# `import deltalog` reads this module and the errors; what else is public is imported when it is first used, so that
# `deltalog --version` does not wait for pyarrow, nor a program without a catalog for transactions.
_MODULES = {
    "AddFile": "deltalog.protocol.actions",
    "AddObject": "deltalog.transactions.table_objects",
    "AddedFileSummary": "deltalog.log.commit_summary",
    "ArrayType": "deltalog.protocol.schema",
    "CatalogBehindLogWarning": "deltalog.catalog.store",
    "ChangeFile": "deltalog.read.changes",
    "Changes": "deltalog.read.changes",
    "CheckReport": "deltalog.doctor.findings",
    "CleanupDecision": "deltalog.log.cleanup",
    "CleanupReport": "deltalog.log.cleanup",
    "ClockDriftWarning": "deltalog.commit.loop",
    "CommitAt": "deltalog.protocol.timestamps",
    "CommitEntry": "deltalog.log.history_entries",
    "CommitResult": "deltalog.commit_result",
    "CommitSummary": "deltalog.log.commit_summary",
    "CommitTable": "deltalog.storage.dynamodb.tables",
    "Coordinator": "deltalog.catalog.coordinator",
    "DataType": "deltalog.protocol.schema",
    "Dataset": "deltalog.dataset",
    "DecimalType": "deltalog.protocol.schema",
    "DeleteObject": "deltalog.transactions.table_objects",
    "DeletionVector": "deltalog.protocol.actions",
    "DeltaTable": "deltalog.table",
    "DynamoCommit": "deltalog.storage.dynamodb.lease_commits",
    "Enablement": "deltalog.protocol.timestamps",
    "Environment": "deltalog.environment",
    "FileMeta": "deltalog.storage.base",
    "Finding": "deltalog.doctor.findings",
    "Isolation": "deltalog.catalog.records",
    "IsolationLevel": "deltalog.commit.prepared",
    "LeftoverKind": "deltalog.protocol.leftovers",
    "LogStore": "deltalog.storage.base",
    "ManagedTransaction": "deltalog.transactions.transaction",
    "MapType": "deltalog.protocol.schema",
    "Metadata": "deltalog.protocol.actions",
    "OptimizeReport": "deltalog.maintenance.optimize.plan",
    "ObjectPage": "deltalog.transactions.table_objects",
    "Predicate": "deltalog.expressions.tree",
    "PrimitiveType": "deltalog.protocol.schema",
    "Protocol": "deltalog.protocol.actions",
    "PutOutcome": "deltalog.storage.base",
    "Replacement": "deltalog.rows.replacement",
    "RowRemoval": "deltalog.rows.row_removal",
    "RestoreResult": "deltalog.maintenance.restore",
    "Resync": "deltalog.transactions.resync",
    "RetryPolicy": "deltalog.environment",
    "S3DynamoDBCommit": "deltalog.storage.dynamodb.spark_log_store",
    "Scan": "deltalog.read.scan",
    "Snapshot": "deltalog.read.snapshot",
    "StagedFiles": "deltalog.write_contract.staging",
    "StatusFilter": "deltalog.catalog.records",
    "StreamFile": "deltalog.read.table_stream",
    "StreamOffset": "deltalog.read.stream_offsets",
    "StreamReader": "deltalog.read.table_stream",
    "StreamWriter": "deltalog.write_contract.stream",
    "StructField": "deltalog.protocol.schema",
    "StructType": "deltalog.protocol.schema",
    "TableMerger": "deltalog.rows.merge.builder",
    "TableOptimizer": "deltalog.maintenance.optimize.optimizer",
    "TableObject": "deltalog.transactions.table_objects",
    "TableRecord": "deltalog.catalog.records",
    "TableResync": "deltalog.transactions.resync_plan",
    "TableRules": "deltalog.write.table_rules",
    "TableStream": "deltalog.read.table_stream",
    "TimestampExplanation": "deltalog.log.history_entries",
    "Transaction": "deltalog.write.transaction",
    "TransactionDescription": "deltalog.transactions.ledger",
    "TransactionManager": "deltalog.transactions.manager",
    "TransactionPage": "deltalog.transactions.ledger",
    "TransactionStatus": "deltalog.catalog.records",
    "TransactionType": "deltalog.catalog.records",
    "UnsafeStoreWarning": "deltalog.storage.base",
    "VacuumReport": "deltalog.maintenance.vacuum.decisions",
    "VacuumedFile": "deltalog.maintenance.vacuum.decisions",
    "VirtualObject": "deltalog.transactions.manager",
    "WriteOptions": "deltalog.write_contract.staging",
    "check": "deltalog.doctor.check",
    "col": "deltalog.expressions.columns",
    "create_commit_table": "deltalog.storage.dynamodb.tables",
    "describe_commit_table": "deltalog.storage.dynamodb.tables",
    "holds_all": "deltalog.protocol.schema_enforcement",
    "identity_column": "deltalog.protocol.identity_columns",
    "job_directory_name": "deltalog.protocol.leftovers",
    "leftover_kind": "deltalog.protocol.leftovers",
    "merge_schemas": "deltalog.protocol.schema_enforcement",
    "names_twice": "deltalog.protocol.schema_enforcement",
    "open_parquet": "deltalog.parquet.footers",
    "open_store": "deltalog.storage.registry",
    "variant_to_python": "deltalog.parquet.variant",
    "with_counted_steps": "deltalog.expressions.parser_steps",
}

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
