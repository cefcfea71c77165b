"""Plans a write: the transaction, and the schema and the partition columns of the table after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext.reading.read_versions import Read, reads_of
from spark_ext.session.defaults import PROPERTY_DEFAULTS
from spark_ext.types import from_spark
from spark_ext.writing import physical_columns, replace_where, row_rules
from spark_ext.writing.file_rows import check_unique, problems, stored_schema
from spark_ext.writing.targets import NewTable, Target
from spark_ext.writing.write_options import WriteRequest

# Properties that a table keeps when it is replaced: readers of its earlier and later versions depend on them.
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


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A planned write: the schema of the data, and the table after the write. ``replacement``: the rows that the data
    replaces, where a condition selects them; ``is_checked_again``: deltalog checks the new rows by it too.
    ``beside``: columns of the files after those of the table. ``as_changes``: the files are change data files."""

    transaction: deltalog.Transaction
    data: deltalog.StructType
    target: deltalog.StructType
    partition_columns: list[str]
    replacement: deltalog.Replacement | None = None
    is_checked_again: bool = False
    beside: tuple[deltalog.StructField, ...] = ()
    as_changes: bool = False

    @property
    def is_mapped(self) -> bool:
        """Whether the table has column mapping, so that files have physical names and ids."""
        return physical_columns.is_mapped(self.transaction)

    @property
    def has_variants(self) -> bool:
        """Whether the table has variants, at any depth."""
        return _has_variant(self.target)

    @property
    def stored_columns(self) -> deltalog.StructType:
        """The columns of data files, under their physical names."""
        fields = [field for field in self.target.fields if field.name not in self.partition_columns]
        held = deltalog.StructType(tuple(fields))
        stored = physical_columns.stored_schema(held) if self.is_mapped else held
        return deltalog.StructType((*stored.fields, *self.extra_columns))

    @property
    def extra_columns(self) -> tuple[deltalog.StructField, ...]:
        """The columns of the files that the table does not have."""
        if self.change_column is None:
            return self.beside
        return (*self.beside, deltalog.StructField(self.change_column, deltalog.PrimitiveType("string")))

    @property
    def change_column(self) -> str | None:
        """The column by which the files are change data files too, where they have to be."""
        return None if self.replacement is None else self.replacement.change_column

    @property
    def stored_partition_columns(self) -> list[str]:
        """The partition columns under the names that paths and the log have for them."""
        if self.is_mapped:
            return physical_columns.stored_names(self.target, self.partition_columns)
        return self.partition_columns


def _has_variant(data_type: Any) -> bool:
    if isinstance(data_type, deltalog.StructType):
        return any(_has_variant(field.data_type) for field in data_type.fields)
    if isinstance(data_type, deltalog.ArrayType):
        return _has_variant(data_type.element_type)
    if isinstance(data_type, deltalog.MapType):
        return _has_variant(data_type.key_type) or _has_variant(data_type.value_type)
    return str(data_type) == "variant"


def data_schema(df: DataFrame) -> deltalog.StructType:
    """The schema of a DataFrame as a table stores it. Raises SchemaMismatchError."""
    data = stored_schema(from_spark(df.schema))
    check_unique(data)
    return data


def creation(request: WriteRequest, spark: SparkSession, target: Target, data: deltalog.StructType) -> WritePlan:
    """A write that creates the table."""
    if "expectedVersion" in request.options:
        raise deltalog.CallError(f"There is no table at {target.url}, but expectedVersion names a version of it.")
    columns = request.partition_by or ()
    _check_dynamic(request, columns)
    defaults = request.defaults.properties
    try:
        new = NewTable(data, columns, request.cluster_by or (), {**defaults, **request.properties})
        transaction = target.create(spark, request.storage, new)
    except deltalog.InvalidPropertyError as error:
        key = error.key
        if key is None or key not in defaults or key in request.properties:
            raise
        setting = PROPERTY_DEFAULTS + key.removeprefix("delta.")
        message = f"{setting} in this session sets a default for new tables that deltalog cannot apply. {error.message}"
        raise deltalog.InvalidPropertyError(message, key=key) from error
    if request.description is not None:
        transaction.set_metadata(description=request.description)
    names = [data.field(name).name for name in columns]
    return WritePlan(transaction, data, transaction.schema, names)


def change(request: WriteRequest, df: DataFrame, table: deltalog.DeltaTable, data: deltalog.StructType) -> WritePlan:
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
        raise deltalog.InvalidActionError(
            f"{table.url} is append-only (delta.appendOnly=true) and cannot be overwritten. Use mode('append')."
        )
    if request.options.get("overwriteSchema"):
        names = [data.field(name).name for name in request.partition_by or ()]
        _check_dynamic(request, names)
        # A statement replaces the table as a whole, its clustering columns included.
        others = None if request.statement is None else ()
        set_layout(transaction, data, names, others if request.cluster_by is None else request.cluster_by)
        if request.statement is not None:
            replace_properties(transaction, {**request.defaults.properties, **request.properties})
        if request.description is not None:
            transaction.set_metadata(description=request.description)
        return WritePlan(transaction, data, transaction.schema, names)
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
    return WritePlan(transaction, data, transaction.schema, names, replacement, is_checked_again)


def _reads(df: DataFrame, table: deltalog.DeltaTable) -> Sequence[Read]:
    """As ``reads_of``. Constants that do not fit fail already when Spark plans the rows."""
    try:
        return reads_of(df, table)
    except deltalog.CallError as error:
        found = row_rules.REFUSAL.search(str(error))
        if found is None:
            raise
        raise deltalog.SchemaMismatchError(f"The data does not fit the table at {table.url}: {found[1]}.") from error


def recorded_transaction(request: WriteRequest, plan: WritePlan) -> str | None:
    """For a txnVersion that is recorded already: the reason that nothing is written. Else it is staged."""
    snapshot, app_id = plan.transaction.latest, request.options.get("txnAppId")
    if app_id is None:
        return None
    version = request.options["txnVersion"]
    recorded = None if snapshot is None else snapshot.transaction_version(app_id)
    if recorded is not None and version <= recorded:
        return f"txnVersion {version} of {app_id!r} is written already (the table has {recorded})"
    plan.transaction.set_transaction(app_id, version)
    return None


def set_layout(
    transaction: deltalog.Transaction,
    schema: deltalog.StructType,
    partition_columns: Sequence[str],
    clustering_columns: Sequence[str] | None,
) -> None:
    """Stage the columns of a table that is replaced; ``clustering_columns`` None: it stays clustered as it is. Raises
    SchemaMismatchError."""
    snapshot, changes = transaction.snapshot, transaction.metadata_changes
    assert snapshot is not None
    if clustering_columns is not None and snapshot.clustering_columns:
        changes.set_clustering(())  # else columns of it could not be dropped
    if schema != snapshot.schema or list(partition_columns) != list(snapshot.partition_columns):
        transaction.set_schema(schema, partition_by=partition_columns)
    if clustering_columns:
        changes.set_clustering(clustering_columns)


def replace_properties(transaction: deltalog.Transaction, wanted: Mapping[str, str]) -> None:
    """The properties of a table that is replaced, but for those of features that it keeps."""
    dropped = [key for key in transaction.metadata.configuration if key not in wanted and not key.startswith(_KEPT)]
    transaction.unset_properties(dropped)
    transaction.set_properties(wanted)


def _fit(transaction: deltalog.Transaction, data: deltalog.StructType, merges: bool) -> None:
    """Raise SchemaMismatchError for data that does not fit the table, after adding what ``merges`` allows."""
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
) -> deltalog.Replacement | None:
    where = request.options.get("replaceWhere")
    if not where:
        return None
    replacement = deltalog.Replacement(transaction, where)
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
            raise deltalog.InvalidPropertyError(
                f"The option {key!r} is a table property, and the table at {snapshot.url} exists and has "
                f"{current!r}. A write sets properties only where it creates the table; use "
                f"DeltaTable.open(path).set_properties({{{key!r}: {value!r}}})."
            )
