"""``DeltaTable`` with the names and signatures of delta-spark's ``delta.tables.DeltaTable``: programs for delta-spark
run after a change of the import.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

import deltalog
from spark_ext import arguments
from spark_ext.errors import ArgumentTypeError, explained
from spark_ext.maintenance.optimize import DeltaOptimizeBuilder
from spark_ext.maintenance.vacuum import vacuumed
from spark_ext.reading import log_frames
from spark_ext.reading.reader import frame, timestamp_ms
from spark_ext.results import WriteResult
from spark_ext.rows import delete_update
from spark_ext.rows.merge_builder import DeltaMergeBuilder, merge_of
from spark_ext.session import names, paths, stores
from spark_ext.session.paths import Location
from spark_ext.writing.assignments import Expression
from spark_ext.writing.table_builder import DeltaTableBuilder, Kind

_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_LITE = "spark.databricks.delta.vacuum.lite.enabled"
# The columns that delta-spark's RESTORE returns.
_RESTORED = (
    "table_size_after_restore bigint, num_of_files_after_restore bigint, num_removed_files bigint, "
    "num_restored_files bigint, removed_files_size bigint, restored_files_size bigint"
)
_PARQUET = re.compile(r"parquet\.`((?:[^`]|``)+)`", re.IGNORECASE)
_BY_PATH = re.compile(r"(?:delta|deltalog)\.`((?:[^`]|``)+)`", re.IGNORECASE)


class DeltaTable:
    """A Delta table, from ``forPath`` or ``forName``.

    Conditions and values are SQL text or Spark Columns. Every method that changes the table makes one commit on top of
    its latest version, or none. Spark's executors read and write rows.

    The methods have the names and parameters of delta-spark's class ``DeltaTable``, so programs written for delta-spark
    run with this class.
    """

    def __init__(self, spark: SparkSession, table: deltalog.DeltaTable, alias: str | None = None) -> None:
        """Used by ``forPath`` and ``forName``."""
        self._spark = spark
        self._table = table
        self._alias = alias

    # ------------------------------------------------------------------------------------------ finding tables

    @classmethod
    def forPath(
        cls,
        sparkSession: SparkSession,
        path: Location,
        hadoopConf: Mapping[str, str] | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> DeltaTable:
        """The table at a path, or at an address in a catalog (``catalog:<catalog>#<name>``). ``storage_options``: as
        for ``Reader.storage_options``. Use these options instead of ``hadoopConf``: in ``hadoopConf``, settings for the
        store of this path raise CallError, and all other settings are ignored. Raises TableNotFoundError, CallError.
        Cost: as ``deltalog.DeltaTable.open``."""
        _check_hadoop(path, hadoopConf or {})
        return cls(sparkSession, paths.open_table(sparkSession, path, storage=stores.checked(storage_options or {})))

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """The table with a name in the session's catalog (``spark_ext.use_catalog``), or at ``delta.`path```. Raises
        TableNotFoundError, CallError. Cost: as ``forPath``."""
        by_path = _BY_PATH.fullmatch(tableOrViewName) if isinstance(tableOrViewName, str) else None
        if by_path is not None:
            return cls.forPath(sparkSession, by_path[1].replace("``", "`"))
        return cls.forPath(sparkSession, names.address_of(sparkSession, tableOrViewName))

    @classmethod
    def isDeltaTable(
        cls, sparkSession: SparkSession, identifier: Location, *, storage_options: Mapping[str, Any] | None = None
    ) -> bool:
        """Whether a table exists at a path. Raises CallError. Cost: as ``forPath``."""
        try:
            cls.forPath(sparkSession, identifier, storage_options=storage_options)
        except deltalog.TableNotFoundError:
            return False
        return True

    # ------------------------------------------------------------------------------------------ creating tables

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder[DeltaTable]:
        """A builder that creates a table; its ``execute`` raises TableExistsError if the table exists. Cost: none
        before ``execute``."""
        return cls._builder(sparkSession, "CREATE TABLE")

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder[DeltaTable]:
        """A builder that creates a table but leaves an existing table unchanged. Cost: none before ``execute``."""
        return cls._builder(sparkSession, "CREATE TABLE IF NOT EXISTS")

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder[DeltaTable]:
        """A builder that replaces a table including its rows; its ``execute`` raises TableNotFoundError if no table
        exists. Cost: none before ``execute``."""
        return cls._builder(sparkSession, "REPLACE TABLE")

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> DeltaTableBuilder[DeltaTable]:
        """A builder that replaces or creates a table. Cost: none before ``execute``."""
        return cls._builder(sparkSession, "CREATE OR REPLACE TABLE")

    @classmethod
    def _builder(cls, spark: SparkSession | None, kind: Kind) -> DeltaTableBuilder[DeltaTable]:
        session = SparkSession.getActiveSession() if spark is None else spark
        if session is None:
            raise deltalog.CallError("There is no active SparkSession. Pass one.")
        return DeltaTableBuilder(session, kind, lambda table: cls(session, table))

    @classmethod
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | spark_types.StructType | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> DeltaTable:
        """Convert a directory of Parquet files to a Delta table in place. ``identifier``: ``parquet.`path```.
        ``partitionSchema``: the partition columns, as SQL (``"day date, n int"``) or a schema; by default they are
        inferred. If the directory already has a log, the table is opened.

        Raises and costs as ``deltalog.DeltaTable.convert``, which reads the footers on the driver.
        """
        found = _PARQUET.fullmatch(identifier) if isinstance(identifier, str) else None
        if found is None:
            raise deltalog.CallError(
                f"convertToDelta takes a directory as parquet.`path`, not {identifier!r}. For a table of Spark's "
                "catalog use its directory."
            )
        given = stores.checked(storage_options or {})
        url = paths.checked_root(found[1].replace("``", "`"), given)
        table = deltalog.DeltaTable.convert(
            url,
            partition_by=None if partitionSchema is None else _schema_of(sparkSession, partitionSchema),
            mode="ignore",
            **paths.storage_of(sparkSession, url, given),
        )
        return cls(sparkSession, table)

    # ------------------------------------------------------------------------------------------------- reading

    def toDF(self) -> DataFrame:
        """The rows of the latest version. Cost: as ``Reader.load``."""
        rows = frame(self._spark, self._table.snapshot())
        return rows if self._alias is None else rows.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table, with an alias that conditions and values can use to qualify its columns. Cost: none."""
        if not isinstance(aliasName, str) or not aliasName:
            raise deltalog.CallError(f"An alias must be a non-empty string, not {aliasName!r}.")
        return DeltaTable(self._spark, self._table, aliasName)

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits, newest first, like ``spark_ext.history``."""
        return log_frames.history(self._spark, self._table, limit)

    def detail(self) -> DataFrame:
        """One row that describes the latest version, like ``spark_ext.detail``."""
        return log_frames.detail(self._spark, self._table)

    # ----------------------------------------------------------------------------------------------- changing rows

    def delete(self, condition: Expression | None = None) -> WriteResult:
        """Delete the rows for which ``condition`` is true; None: all rows.

        Files in which all rows match are removed without being rewritten. In other files, matching rows are marked in
        deletion vectors if delta.enableDeletionVectors is true; otherwise the remaining rows are copied to new files. A
        condition (SQL text) that uses only partition columns is evaluated from the log alone. If no row matches there
        is no commit, and ``committed`` is false. Raises CallError, InvalidActionError for an append-only table,
        CommitConflictError, JobFailedError, StoreError, RowCountError, and Spark's errors for the condition. Cost: the
        log; a Spark job that reads the condition's columns in the files that can have matching rows; without deletion
        vectors a second job.
        """
        _check("delete", condition)
        with explained(f"DELETE from {self._table.url}"):
            return delete_update.delete(self._spark, self._table, condition, self._alias)

    def update(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> WriteResult:
        """Update columns in the rows for which ``condition`` is true; None: in all rows.

        ``set``: the new values, computed from the old row, keyed by the name of a column or struct field (``a.b``). A
        value is cast to the type of its column; if the value does not fit, the job fails. Generated columns that are
        not set explicitly are recomputed, and rows keep their row ids. Raises as ``delete``, ConstraintViolationError,
        SchemaMismatchError. Cost: as ``delete``, and a Spark job that writes the new rows; with the change data feed
        another one.
        """
        if set is not None:
            _check("update", condition)
        sets = arguments.values("set", set)
        with explained(f"UPDATE of {self._table.url}"):
            return delete_update.update(self._spark, self._table, condition, sets, self._alias)

    def merge(self, source: DataFrame, condition: Expression) -> DeltaMergeBuilder:
        """Merge a source into the table: change matched rows and insert others, in one commit.

        Add clauses to the returned builder, then call its ``execute``. ``condition``: whether a row of the source
        matches a row of the table. Columns that exist on both sides must be qualified with aliases:
        ``table.alias("t").merge(rows.alias("s"), "t.id = s.id")``. Raises CallError. Cost: none before ``execute``.
        """
        return merge_of(self._spark, self._table, source, condition, self._alias)

    # ------------------------------------------------------------------------------------- versions and files

    def restoreToVersion(self, version: int) -> DataFrame:
        """Restore an earlier version by a new commit. Returns a row of metrics, as delta-spark names them. Raises and
        costs as ``deltalog.DeltaTable.restore``."""
        return self._restored(self._table.restore(arguments.whole("version", version)))

    def restoreToTimestamp(self, timestamp: Any) -> DataFrame:
        """Like ``restoreToVersion``, for the version that was current at a time: a string in the session time zone, or
        an aware datetime. Also raises InvalidTimestampError."""
        _check_moment(timestamp)
        return self._restored(self._table.restore(timestamp=timestamp_ms(self._spark, timestamp, "timestamp")))

    def vacuum(
        self, retentionHours: float | None = None, *, full: bool | None = None, onExecutors: bool | None = None
    ) -> DataFrame:
        """Delete the files that no version within the retention needs. Returns a DataFrame without rows, as
        delta-spark does.

        ``spark.databricks.delta.retentionDurationCheck.enabled`` set to false allows a retention shorter than the
        table's. ``full=False`` is VACUUM LITE; by default, the setting ``spark.databricks.delta.vacuum.lite.enabled``
        decides; if that is unset, the vacuum is full. ``onExecutors``: whether tasks of Spark jobs list and delete the
        files. The default is the setting ``spark.deltalog.vacuum.executors``; if that is unset, tasks are used only for
        tables on S3 with at least 500,000 files.

        Raises and costs as ``deltalog.DeltaTable.vacuum`` with ``dry_run=False``; with tasks also
        UnsupportedFeatureError, StoreError if an executor cannot access the table, and Spark's errors for a job.
        """
        checks, by_conf = vacuum_options(self._spark)
        vacuumed(
            self._spark, self._table, retentionHours, False, checks, by_conf if full is None else full, onExecutors
        )
        return self._spark.createDataFrame([], "path string")

    def optimize(self) -> DeltaOptimizeBuilder:
        """A builder whose ``executeCompaction`` and ``executeZOrderBy`` rewrite files without changing rows. Cost: none
        before these."""
        return DeltaOptimizeBuilder(self._spark, self._table)

    def generate(self, mode: str) -> None:
        """Write symlink manifests, for engines that do not read the log. ``mode``: ``symlink_format_manifest``. Raises
        and costs as ``deltalog.DeltaTable.generate``."""
        if arguments.text("mode", mode).lower() != "symlink_format_manifest":
            raise deltalog.CallError(f"generate takes the mode symlink_format_manifest, not {mode!r}.")
        self._table.generate()

    def clone(
        self, target: str, isShallow: bool = False, replace: bool = False, properties: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Clone the latest version to a path. A deep clone copies the files on the driver; with ``isShallow`` the clone
        refers to them by absolute paths. Raises UnsupportedFeatureError for ``replace``. Raises and costs as
        ``deltalog.DeltaTable.clone``."""
        return self._cloned(target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Like ``clone``, for a version."""
        arguments.whole("version", version)
        return self._cloned(target, isShallow, replace, properties, version=version)

    def cloneAtTimestamp(
        self,
        timestamp: Any,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Like ``clone``, for the version that was current at a time: a string in the session time zone, or an aware
        datetime."""
        _check_moment(timestamp)
        at_ms = timestamp_ms(self._spark, timestamp, "timestamp")
        return self._cloned(target, isShallow, replace, properties, timestamp=at_ms)

    def _cloned(
        self, target: str, shallow: bool, replace: bool, properties: Mapping[str, str] | None, **point: Any
    ) -> DeltaTable:
        arguments.text("target", target)
        arguments.flag("isShallow", shallow)
        if arguments.flag("replace", replace):
            raise _refused(
                "clone with replace",
                "the history of the target would mix two tables",
                "clone to another path",
            )
        return DeltaTable(self._spark, cloned(self._spark, self._table, target, shallow, properties, None, **point))

    # ---------------------------------------------------------------------------------------------- protocol

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Increase the protocol versions, which adds the features that they imply. Versions are never lowered. Raises
        and costs as ``deltalog.DeltaTable.upgrade_protocol``."""
        arguments.whole("readerVersion", readerVersion, "an integer")
        arguments.whole("writerVersion", writerVersion, "an integer")
        self._table.upgrade_protocol(readerVersion, writerVersion)

    def addFeatureSupport(self, featureName: str) -> None:
        """Add a table feature, and the features that it requires. Raises and costs as
        ``deltalog.DeltaTable.add_feature``."""
        arguments.text("featureName", featureName)
        try:
            self._table.add_feature(featureName)
        except deltalog.errors.InvalidPropertyError as error:
            message = f"{error.message} (delta-spark calls this DELTA_UNSUPPORTED_FEATURES_IN_CONFIG.)"
            raise deltalog.errors.InvalidPropertyError(message, key=error.key) from None

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Drop a table feature. Raises CallError if ``truncateHistory`` is true. Raises and costs as
        ``deltalog.DeltaTable.drop_feature``, which requires that no version in the log uses a reader feature."""
        arguments.text("featureName", featureName)
        if truncateHistory is not None and arguments.flag("truncateHistory", truncateHistory):
            raise deltalog.CallError(
                "truncateHistory deletes versions, which is a separate call in deltalog: drop the feature once, wait "
                "for the retention, call deltalog.DeltaTable.open(url).cleanup_log(), and drop it again."
            )
        self._table.drop_feature(featureName)

    def _restored(self, done: deltalog.RestoreResult) -> DataFrame:
        files = (done.files_after, done.removed_files, done.added_files)
        row = (done.bytes_after, *files, done.removed_bytes, done.added_bytes)
        return self._spark.createDataFrame([row], _RESTORED)


def _check(verb: str, condition: Any) -> None:
    if condition is not None:
        arguments.expression(f"The condition of {verb}", condition)


def _check_hadoop(path: Location, settings: Mapping[str, str]) -> None:
    """Raise CallError for Hadoop settings of the path's file system, since deltalog opens the store itself."""
    scheme = "s3a" if stores.bucket_of(paths.url_of(path)) else "file"
    ours = [name for name in settings if not name.startswith("fs.") or name.split(".")[1] == scheme]
    if ours:
        raise deltalog.CallError(
            f"hadoopConf has {ours[0]}, a setting of Hadoop, and deltalog opens the store itself. Use "
            "storage_options, or the session's spark.hadoop.fs.s3a.* settings."
        )


def _check_moment(timestamp: Any) -> None:
    if not isinstance(timestamp, datetime.datetime):
        arguments.text("timestamp", timestamp)


def vacuum_options(spark: SparkSession) -> tuple[bool, bool]:
    """The session's settings for VACUUM: whether the retention is checked, and whether VACUUM is full or LITE."""
    checks = str(spark.conf.get(_RETENTION_CHECK, "true")).strip().lower() != "false"
    lite = str(spark.conf.get(_LITE, "false")).strip().lower() == "true"
    return checks, not lite


def cloned(
    spark: SparkSession,
    table: deltalog.DeltaTable,
    target: str,
    shallow: bool,
    properties: Mapping[str, str] | None,
    storage: Mapping[str, Any] | None,
    **point: Any,
) -> deltalog.DeltaTable:
    """Clone a table to a path or ``delta.`path```. ``storage``: the storage options for the clone. ``point``:
    ``version``, or ``timestamp`` in milliseconds since 1970. Raises CallError, and as ``deltalog.DeltaTable.clone``."""
    by_path = _BY_PATH.fullmatch(target) if isinstance(target, str) else None
    url = target if by_path is None else by_path[1].replace("``", "`")
    if not isinstance(url, str) or not (os.path.isabs(url) or ":/" in url):
        raise deltalog.CallError(f"The target of a clone must be an absolute path or an S3 URL, not {target!r}.")
    root = paths.checked_root(url, storage)
    options = paths.storage_of(spark, root, storage)
    return table.clone(root, shallow=shallow, properties=dict(properties or {}), **point, **options)


def _schema_of(spark: SparkSession, columns: str | spark_types.StructType) -> deltalog.schema.StructType:
    if not isinstance(columns, (str, spark_types.StructType)):
        raise ArgumentTypeError(
            f"partitionSchema must be SQL such as 'day date', or a Spark StructType, not {columns!r}."
        )
    with explained(f"partitionSchema {columns!r} is not a list of columns"):
        schema = spark.createDataFrame([], columns).schema if isinstance(columns, str) else columns
    return deltalog.schema.StructType.from_json(schema.json())


def _refused(name: str, why: str, instead: str) -> deltalog.UnsupportedFeatureError:
    return deltalog.UnsupportedFeatureError(
        f"{name} is not supported by spark_ext: {why}. Instead, {instead}.", features=(name,)
    )
