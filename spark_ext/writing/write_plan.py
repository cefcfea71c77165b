"""Plans a write: its transaction, with the schema and the partition columns that the table has after the write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext.reading.read_versions import Read, reads_of
from spark_ext.results import WriteResult
from spark_ext.session.defaults import PROPERTY_DEFAULTS
from spark_ext.session.paths import is_unity_address
from spark_ext.types import from_spark
from spark_ext.writing import replace_where, row_rules
from spark_ext.writing.data_schema import check_unique, has_void, problems, stored_schema, typed
from spark_ext.writing.new_files import NewFiles
from spark_ext.writing.targets import NewTable, Target
from spark_ext.writing.write_options import WriteRequest, parameter_text

# Properties that a table keeps when it is replaced, since readers of its earlier versions depend on them.
_KEPT = (
    "delta.columnMapping.",
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestamp",
    "delta.enableRowTracking",
    "delta.rowTracking.",
    "deltalog.",
    "ucTableId",
    "io.unitycatalog.",
)
# Properties that the server of a Unity Catalog can require of every table that it manages.
_REQUIRED = ("delta.enableDeletionVectors", "delta.checkpointPolicy", "delta.checkpoint.")


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A write, with everything planned that can be planned before its rows are computed."""

    #: The DataFrame. Untyped NULL columns have the types of the table's columns.
    rows: DataFrame
    #: The caller's request, with the session's settings.
    request: WriteRequest
    #: The root of the table.
    url: str
    #: The schema of ``rows``, as a table stores it.
    data: deltalog.schema.StructType
    #: The files to write. The transaction that adds these files uses the schema and the properties that the table has
    #: after the write.
    files: NewFiles
    #: With ``replaceWhere``: the rows of the table that the write replaces.
    replacement: deltalog.engine.Replacement | None = None
    #: Whether deltalog, in addition to Spark, checks that the new rows satisfy ``replaceWhere``.
    is_checked_again: bool = False

    @property
    def transaction(self) -> deltalog.Transaction:
        """The transaction that commits the write."""
        return self.files.transaction

    @property
    def creates_table(self) -> bool:
        """Whether the write creates the table."""
        return self.transaction.snapshot is None

    @property
    def change_column(self) -> str | None:
        """The extra column with which the data files also serve as change data files; None if they do not serve as
        such."""
        return None if self.replacement is None else self.replacement.change_column

    @property
    def replaces_partitions(self) -> bool:
        """Whether the write is a dynamic partition overwrite. As in Spark, an unpartitioned table is overwritten as a
        whole."""
        dynamic = self.request.options.get("partitionOverwriteMode") and not self.creates_table
        return bool(self.request.mode == "overwrite" and dynamic and self.files.partition_columns)

    @property
    def optimizes(self) -> bool:
        """Whether rows are shuffled into fewer files. The option takes precedence, then the session's setting, then the
        table's property, as in delta-spark."""
        if "optimizeWrite" in self.request.options:
            return bool(self.request.options["optimizeWrite"])
        return self.transaction.metadata.configuration.get("delta.autoOptimize.optimizeWrite", "").lower() == "true"

    @property
    def changes_anything(self) -> bool:
        """Whether there is something to commit after the job's files have been staged. As in delta-spark, a write makes
        no commit if it adds and removes no rows and makes no other changes."""
        transaction, staged = self.transaction, self.transaction.staged
        if transaction.snapshot is None or staged.adds or staged.removes or "txnAppId" in self.request.options:
            return True
        return transaction.metadata != transaction.snapshot.metadata

    @property
    def operation(self) -> str:
        """The operation, as delta-spark names it in the history."""
        return f"{self.request.statement} AS SELECT" if self.request.statement else "WRITE"

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the operation, as delta-spark records them."""
        request, partition_by = self.request, parameter_text(self.files.partition_columns)
        if request.statement is not None:
            properties = parameter_text(dict(request.properties))
            parameters: dict[str, Any] = {"partitionBy": partition_by, "isManaged": "false", "properties": properties}
            if request.cluster_by:
                parameters["clusterBy"] = parameter_text(request.cluster_by)
            return parameters
        parameters = {"mode": request.mode_name, "partitionBy": partition_by}
        if request.options.get("overwriteSchema"):
            parameters["canOverwriteSchema"] = True
        if request.options.get("mergeSchema"):
            parameters["canMergeSchema"] = True
        if request.options.get("replaceWhere"):
            parameters["predicate"] = request.options["replaceWhere"]
        elif self.replaces_partitions:
            parameters["isDynamicPartitionOverwrite"] = True
        return parameters


def plan_write(df: DataFrame, request: WriteRequest, target: Target, must_exist: bool) -> WritePlan | WriteResult:
    """Open the table, or begin to create it, and plan the write. Returns the result if there is nothing to write: the
    mode is ``ignore`` and the table exists, or the table has already recorded the ``txnVersion``. ``request``: includes
    the session's settings. ``must_exist``: as for ``save``. Raises as ``Writer.save``.

    Cost: as ``DeltaTable.open`` and ``DeltaTable.transaction``; with ``replaceWhere`` as ``Replacement``.
    """
    table = target.existing(df.sparkSession, request.storage)
    if table is not None and has_void(df) and not request.options.get("overwriteSchema"):
        df = typed(df, table.snapshot().schema)
    data = stored_schema(from_spark(df.schema))
    check_unique(data)
    if table is None:
        if must_exist:
            raise deltalog.TableNotFoundError(f"There is no table at {target.url}. Create it first.")
        plan = _creation(df, request, target, data)
    elif request.mode == "error":
        raise deltalog.TableExistsError(
            f"There is a table at {table.url}, and the mode is error. Use mode('append') or mode('overwrite')."
        )
    elif request.mode == "ignore":
        return ignored(table)
    else:
        plan = _change(df, request, table, data)
    recorded = record_transaction(request, plan.transaction)
    if recorded is not None:
        assert plan.transaction.latest is not None
        return WriteResult(plan.transaction.latest.version, False, recorded)
    return plan


def ignored(table: deltalog.DeltaTable) -> WriteResult:
    """The result of a write with mode ``ignore`` to an existing table."""
    return WriteResult(table.version, False, "mode ignore: there is a table")


def _creation(df: DataFrame, request: WriteRequest, target: Target, data: deltalog.schema.StructType) -> WritePlan:
    """A write that creates the table."""
    if "expectedVersion" in request.options:
        raise deltalog.CallError(f"There is no table at {target.url}, but expectedVersion names a version of it.")
    columns = request.partition_by or ()
    _check_dynamic(request, columns)
    defaults = request.defaults.properties
    try:
        new = NewTable(data, columns, request.cluster_by or (), {**defaults, **request.properties})
        transaction = target.create(df.sparkSession, request.storage, new)
    except deltalog.errors.InvalidPropertyError as error:
        key = error.key
        if key is None or key not in defaults or key in request.properties:
            raise
        setting = PROPERTY_DEFAULTS + key.removeprefix("delta.")
        message = f"{setting} in this session sets a default for new tables that deltalog cannot apply. {error.message}"
        raise deltalog.errors.InvalidPropertyError(message, key=key) from error
    if request.description is not None:
        transaction.set_metadata(description=request.description)
    url = transaction.reader.store.url if is_unity_address(target.url) else target.url
    return WritePlan(df, request, url, data, NewFiles.in_transaction(transaction))


def _change(
    df: DataFrame, request: WriteRequest, table: deltalog.DeltaTable, data: deltalog.schema.StructType
) -> WritePlan:
    """A write to an existing table."""
    expected = request.options.get("expectedVersion")
    reads = _reads(df, table) if expected is None else ()
    transaction = table.transaction(reads=reads, expected_version=expected)
    snapshot = transaction.snapshot
    assert snapshot is not None
    if request.statement is None:
        _check_properties(request, snapshot)
    is_append_only = snapshot.metadata.configuration.get("delta.appendOnly", "").lower() == "true"
    if request.mode == "overwrite" and is_append_only:
        raise deltalog.errors.InvalidActionError(
            f"{table.url} is append-only (delta.appendOnly=true) and cannot be overwritten. Use mode('append')."
        )
    if request.options.get("overwriteSchema"):
        names = [data.field(name).name for name in request.partition_by or ()]
        _check_dynamic(request, names)
        # A SQL statement replaces the whole table, including its clustering columns.
        others = None if request.statement is None else ()
        set_layout(transaction, data, names, others if request.cluster_by is None else request.cluster_by)
        if request.statement is not None:
            replace_properties(transaction, {**request.defaults.properties, **request.properties})
        if request.description is not None:
            transaction.set_metadata(description=request.description)
        return WritePlan(df, request, table.url, data, NewFiles.in_transaction(transaction))
    names = list(snapshot.partition_columns)
    _check_dynamic(request, names)
    _check_partitioning(request, table.url, names)
    _check_clustering(request, snapshot)
    _fit(transaction, data, bool(request.options.get("mergeSchema")))
    replacement = _replacement(request, df.sparkSession, transaction, names)
    is_checked_again = (
        replacement is not None
        and request.defaults.checks_replacing_rows
        and replace_where.may_differ(df.sparkSession, replacement, snapshot.schema)
    )
    files = NewFiles.in_transaction(transaction, _change_columns(replacement))
    return WritePlan(df, request, table.url, data, files, replacement, is_checked_again)


def _change_columns(replacement: deltalog.engine.Replacement | None) -> tuple[deltalog.schema.StructField, ...]:
    if replacement is None or replacement.change_column is None:
        return ()
    return (deltalog.schema.StructField(replacement.change_column, deltalog.schema.PrimitiveType("string")),)


def _reads(df: DataFrame, table: deltalog.DeltaTable) -> Sequence[Read]:
    """Like ``reads_of``. A constant that does not fit its column causes the error here already, when Spark plans the
    DataFrame."""
    try:
        return reads_of(df, table)
    except deltalog.CallError as error:
        found = row_rules.REFUSAL.search(str(error))
        if found is None:
            raise
        raise deltalog.SchemaMismatchError(f"The data does not fit the table at {table.url}: {found[1]}.") from error


def record_transaction(request: WriteRequest, transaction: deltalog.Transaction) -> str | None:
    """Stage the ``txnVersion`` of the write request, if the request contains one. Returns the reason why nothing is
    written if the table has already recorded this version."""
    snapshot, app_id = transaction.latest, request.options.get("txnAppId")
    if app_id is None:
        return None
    version = request.options["txnVersion"]
    recorded = None if snapshot is None else snapshot.transaction_version(app_id)
    if recorded is not None and version <= recorded:
        return f"txnVersion {version} of {app_id!r} is written already (the table has {recorded})"
    transaction.set_transaction(app_id, version)
    return None


def set_layout(
    transaction: deltalog.Transaction,
    schema: deltalog.schema.StructType,
    partition_columns: Sequence[str],
    clustering_columns: Sequence[str] | None,
) -> None:
    """Stage the columns of a replaced table. ``clustering_columns``: None keeps the present ones. Raises
    SchemaMismatchError."""
    snapshot, changes = transaction.snapshot, transaction.metadata_changes
    assert snapshot is not None
    if clustering_columns is not None and snapshot.clustering_columns:
        changes.set_clustering(())  # clustering columns cannot be dropped
    if schema != snapshot.schema or list(partition_columns) != list(snapshot.partition_columns):
        transaction.set_schema(schema, partition_by=partition_columns)
    if clustering_columns:
        changes.set_clustering(clustering_columns)


def replace_properties(transaction: deltalog.Transaction, wanted: Mapping[str, str]) -> None:
    """Stage the table properties of a replaced table. Those in ``_KEPT`` stay, and in a table that a catalog manages
    also those in ``_REQUIRED``."""
    is_managed = "catalogManaged" in (transaction.protocol.writer_features or ())
    kept = (*_KEPT, *(_REQUIRED if is_managed else ()))
    dropped = [key for key in transaction.metadata.configuration if key not in wanted and not key.startswith(kept)]
    transaction.unset_properties(dropped)
    transaction.set_properties(wanted)


def _fit(transaction: deltalog.Transaction, data: deltalog.schema.StructType, merges: bool) -> None:
    """Raise SchemaMismatchError for data that does not fit the table. ``merges``: whether the schemas are merged
    first."""
    unmerged: deltalog.SchemaMismatchError | None = None
    if merges:
        try:
            transaction.merge_schema(data)
        except deltalog.SchemaMismatchError as error:
            unmerged = error
    found = list(problems(transaction.schema, data, merges, ""))
    if found:
        url = transaction.reader.store.url
        raise deltalog.SchemaMismatchError(
            f"The data does not fit the table at {url}:\n" + "\n".join(f"- {each}" for each in found)
        )
    if unmerged is not None:
        raise unmerged


def _replacement(
    request: WriteRequest, spark: SparkSession, transaction: deltalog.Transaction, partition_columns: Sequence[str]
) -> deltalog.engine.Replacement | None:
    where = request.options.get("replaceWhere")
    if not where:
        return None
    replacement = deltalog.engine.Replacement(transaction, where)
    replace_where.check(spark, replacement)
    request.defaults.check_replaced_by(replacement.columns, partition_columns)
    return replacement


def _check_dynamic(request: WriteRequest, partition_columns: Sequence[str]) -> None:
    if partition_columns and request.mode == "overwrite":
        request.defaults.check_dynamic(request.options)


def _check_partitioning(request: WriteRequest, url: str, names: Sequence[str]) -> None:
    given = names if request.partition_by is None else request.partition_by
    if [name.lower() for name in given] != [name.lower() for name in names]:
        raise deltalog.SchemaMismatchError(
            f"partitionBy({', '.join(given)}) differs from the table at {url}, which is partitioned by "
            f"({', '.join(names)}). Leave partitionBy out, or replace the table with mode('overwrite') and "
            "option('overwriteSchema', True)."
        )


def _check_clustering(request: WriteRequest, snapshot: deltalog.Snapshot) -> None:
    if request.cluster_by is None:
        return
    names = [".".join(column) for column in snapshot.clustering_columns]
    if [name.replace("`", "").lower() for name in request.cluster_by] != [name.lower() for name in names]:
        raise deltalog.SchemaMismatchError(
            f"clusterBy({', '.join(request.cluster_by)}) differs from the table at {snapshot.url}, which is clustered "
            f"by ({', '.join(names)}). Leave clusterBy out, or change the columns with "
            "DeltaTable.open(path).cluster_by([…])."
        )


def _check_properties(request: WriteRequest, snapshot: deltalog.Snapshot) -> None:
    for key, value in request.properties.items():
        current = snapshot.metadata.configuration.get(key)
        if current != value:
            raise deltalog.errors.InvalidPropertyError(
                f"The option {key!r} is a table property, and the table at {snapshot.url} exists and has "
                f"{current!r}. A write sets properties only where it creates the table; use "
                f"DeltaTable.open(path).set_properties({{{key!r}: {value!r}}})."
            )
