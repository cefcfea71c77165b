"""Counts rows from the log alone, without opening data files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

import deltalog
from spark_ext.reading import file_entries, pruning
from spark_ext.reading.file_schema import Layout
from spark_ext.reading.table_columns import exact, named, typed

NUM_RECORDS = "num_records"


def num_records(snapshot: deltalog.Snapshot, conditions: Sequence[str] = ()) -> int | None:
    """The number of rows that satisfy all ``conditions`` (SQL text). None if the log does not determine the number of
    rows, because a file has no row count or a condition is not a simple condition on partition columns. Cost: as
    ``Snapshot.statistics``."""
    found = _counted(snapshot, conditions)
    return None if found is None else int(pc.sum(found[NUM_RECORDS], min_count=0).as_py())


def by_partition(
    spark: SparkSession, snapshot: deltalog.Snapshot, conditions: Sequence[str] = (), with_counts: bool = True
) -> DataFrame | None:
    """One row for each combination of partition values that has rows: the partition columns, with the table's names and
    types, and if ``with_counts``, the number of rows. Values count as distinct if the log spells them differently.
    Cost, and cases in which the result is None: as for ``num_records``."""
    found = _counted(snapshot, conditions)
    if found is None:
        return None
    layout = Layout.of(snapshot)
    fields = layout.partition_fields
    totals: dict[tuple[str | None, ...], int] = {}
    values = file_entries.values_of(found["partition_values"].combine_chunks())
    for each, count in zip(values, found[NUM_RECORDS].to_pylist(), strict=True):
        row = tuple(file_entries.value(each, field.name) for field in fields)
        totals[row] = totals.get(row, 0) + count
    names = [f"__deltalog_value_{i}" for i in range(len(fields))]
    types = [spark_types.StructField(name, spark_types.StringType()) for name in names]
    schema = spark_types.StructType([*types, spark_types.StructField(NUM_RECORDS, spark_types.LongType(), False)])
    local = spark.createDataFrame([(*row, count) for row, count in totals.items() if count], schema)
    shown = {layout.physical_name(field): layout.shown[field.name] for field in layout.schema.fields}
    columns = [exact(typed(name, f), f.dataType, shown[f.name]) for name, f in zip(names, fields, strict=True)]
    return local.select(*columns, *([named(NUM_RECORDS)] if with_counts else ()))


def _counted(snapshot: deltalog.Snapshot, conditions: Sequence[str]) -> pa.Table | None:
    """The partition values and the number of rows of each file."""
    try:
        where = pruning.exact_predicate(snapshot, conditions)
    except pruning.ConditionError:
        return None
    files = snapshot.files(["path", "partition_values", "deletion_vector"])
    files = files.append_column("num_records", snapshot.statistics([])["num_records"])
    if file_entries.has_double_names(snapshot, files["path"].to_pylist()):
        return None
    if where is not None:
        kept = snapshot.scan(where=where).files()["path"].combine_chunks()
        files = files.filter(pc.is_in(files["path"], value_set=kept))
    deleted = pc.fill_null(pc.struct_field(files["deletion_vector"], "cardinality"), 0)
    counts = pc.subtract(files["num_records"], deleted)
    if counts.null_count or (len(counts) and pc.min(counts).as_py() < 0):
        return None
    return pa.table({"partition_values": files["partition_values"], NUM_RECORDS: counts})
