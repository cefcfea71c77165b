"""deltalog: the Delta Lake transaction log in Python, with in-commit timestamps at its heart.

This module has the names for everyday use. Submodules have the others: ``deltalog.errors``, ``deltalog.schema``
(columns and types), ``deltalog.results`` (what results contain), ``deltalog.transactions`` and ``deltalog.catalog``
(several tables), ``deltalog.storage`` (stores), ``deltalog.engine`` (for engines that write data files themselves),
``deltalog.testing`` and ``deltalog.conformance`` (test kits).
"""

import typing

from deltalog import errors
from deltalog.errors import (
    CallError,
    CommitConflictError,
    CommitStateUnknownError,
    ConstraintViolationError,
    CorruptTableError,
    DeltaLogError,
    InvalidTimestampError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    TimestampOutOfRangeError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from deltalog.lazy_names import lazy_names
from deltalog.version import VERSION as __version__

if typing.TYPE_CHECKING:
    from deltalog import catalog, engine, results, schema, storage, transactions
    from deltalog.commit_result import CommitResult
    from deltalog.dataset import Dataset
    from deltalog.doctor.check import check
    from deltalog.doctor.findings import CheckReport
    from deltalog.environment import Environment, RetryPolicy
    from deltalog.expressions.columns import col
    from deltalog.expressions.tree import Predicate
    from deltalog.log.cleanup import CleanupReport
    from deltalog.log.history_entries import CommitEntry, TimestampExplanation
    from deltalog.maintenance.optimize.optimizer import OptimizeOptions, TableOptimizer
    from deltalog.maintenance.optimize.plan import OptimizeReport
    from deltalog.maintenance.restore import RestoreResult
    from deltalog.maintenance.vacuum.decisions import VacuumReport
    from deltalog.protocol.timestamps import CommitAt
    from deltalog.read.changes import Changes
    from deltalog.read.scan import Scan
    from deltalog.read.snapshot import Snapshot
    from deltalog.read.table_stream import TableStream
    from deltalog.rows.merge.builder import TableMerger
    from deltalog.storage.dynamodb.lease_commits import DynamoCommit
    from deltalog.storage.dynamodb.spark_log_store import S3DynamoDBCommit
    from deltalog.storage.registry import open_store
    from deltalog.table import DeltaTable
    from deltalog.transactions.manager import TransactionManager
    from deltalog.unity_catalog import UnityCatalog
    from deltalog.write.transaction import Transaction
    from deltalog.write_contract.staging import StagedFiles, WriteOptions

__all__ = [
    "CallError",
    "Changes",
    "CheckReport",
    "CleanupReport",
    "CommitAt",
    "CommitConflictError",
    "CommitEntry",
    "CommitResult",
    "CommitStateUnknownError",
    "ConstraintViolationError",
    "CorruptTableError",
    "Dataset",
    "DeltaLogError",
    "DeltaTable",
    "DynamoCommit",
    "Environment",
    "InvalidTimestampError",
    "OptimizeOptions",
    "OptimizeReport",
    "Predicate",
    "RestoreResult",
    "RetryPolicy",
    "S3DynamoDBCommit",
    "Scan",
    "SchemaMismatchError",
    "Snapshot",
    "StagedFiles",
    "StoreError",
    "TableExistsError",
    "TableMerger",
    "TableNotFoundError",
    "TableOptimizer",
    "TableStream",
    "TimestampExplanation",
    "TimestampOutOfRangeError",
    "Transaction",
    "TransactionManager",
    "UnityCatalog",
    "UnsupportedFeatureError",
    "VacuumReport",
    "VersionNotFoundError",
    "WriteOptions",
    "__version__",
    "catalog",
    "check",
    "col",
    "engine",
    "errors",
    "open_store",
    "results",
    "schema",
    "storage",
    "transactions",
]
# `import deltalog` loads only this module and ``deltalog.errors``. Other public names are imported at their first use,
# so `deltalog --version` does not load pyarrow, and a program without a catalog does not load the transactions package.
_MODULES = {
    "Changes": "deltalog.read.changes",
    "CheckReport": "deltalog.doctor.findings",
    "CleanupReport": "deltalog.log.cleanup",
    "CommitAt": "deltalog.protocol.timestamps",
    "CommitEntry": "deltalog.log.history_entries",
    "CommitResult": "deltalog.commit_result",
    "Dataset": "deltalog.dataset",
    "DeltaTable": "deltalog.table",
    "DynamoCommit": "deltalog.storage.dynamodb.lease_commits",
    "Environment": "deltalog.environment",
    "OptimizeOptions": "deltalog.maintenance.optimize.optimizer",
    "OptimizeReport": "deltalog.maintenance.optimize.plan",
    "Predicate": "deltalog.expressions.tree",
    "RestoreResult": "deltalog.maintenance.restore",
    "RetryPolicy": "deltalog.environment",
    "S3DynamoDBCommit": "deltalog.storage.dynamodb.spark_log_store",
    "Scan": "deltalog.read.scan",
    "Snapshot": "deltalog.read.snapshot",
    "StagedFiles": "deltalog.write_contract.staging",
    "TableMerger": "deltalog.rows.merge.builder",
    "TableOptimizer": "deltalog.maintenance.optimize.optimizer",
    "TableStream": "deltalog.read.table_stream",
    "TimestampExplanation": "deltalog.log.history_entries",
    "Transaction": "deltalog.write.transaction",
    "TransactionManager": "deltalog.transactions.manager",
    "UnityCatalog": "deltalog.unity_catalog",
    "VacuumReport": "deltalog.maintenance.vacuum.decisions",
    "WriteOptions": "deltalog.write_contract.staging",
    "check": "deltalog.doctor.check",
    "col": "deltalog.expressions.columns",
    "open_store": "deltalog.storage.registry",
    "catalog": "deltalog.catalog",
    "engine": "deltalog.engine",
    "results": "deltalog.results",
    "schema": "deltalog.schema",
    "storage": "deltalog.storage",
    "transactions": "deltalog.transactions",
}

if not typing.TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
