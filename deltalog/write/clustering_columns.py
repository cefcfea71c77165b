"""Decides by which columns a table can be clustered. Pure.

Spec: PROTOCOL.md#writer-requirements-for-clustered-table, #per-file-statistics.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from deltalog.arrow_arrays import FALSE
from deltalog.errors import CallError, SchemaMismatchError
from deltalog.expressions.bind import find_fields
from deltalog.lazy_arrow import pc
from deltalog.log.file_statistics import Leaf, column_name, statistics_of_files
from deltalog.protocol import column_mapping
from deltalog.protocol.actions import Metadata
from deltalog.protocol.column_paths import Path, parse_path, path_text
from deltalog.protocol.schema import StructType

#: The table feature.
FEATURE = "clustering"
#: The limit of delta-spark.
MOST_COLUMNS = 4


def clustering_paths(columns: Sequence[str | Sequence[str]], metadata: Metadata) -> tuple[Path, ...]:
    """Resolve clustering columns to paths in the schema. Raises CallError for unknown or duplicate columns, too many
    columns, and columns without bounds in statistics, and SchemaMismatchError for a partitioned table."""
    if isinstance(columns, str):
        raise CallError(f"Pass the clustering columns as a list: [{columns!r}].")
    if columns and metadata.partition_columns:
        raise SchemaMismatchError(
            f"The table is partitioned by {', '.join(metadata.partition_columns)}, and a clustered table cannot have "
            "partition columns. Omit the clustering columns."
        )
    if len(columns) > MOST_COLUMNS:
        raise CallError(f"A table is clustered by at most {MOST_COLUMNS} columns; got {len(columns)}.")
    schema = metadata.schema
    paths = tuple(_canonical(parse_path(column), schema) for column in columns)
    twice = next((path for number, path in enumerate(paths) if path in paths[:number]), None)
    if twice is not None:
        raise CallError(f"The column {path_text(twice)} is named twice.")
    for path in paths:
        leaf = _leaf(path, schema, "none")
        if isinstance(leaf.data_type, StructType) or "minValues" not in leaf.groups:
            raise CallError(
                f"A table cannot be clustered by {path_text(path)}: statistics have no bounds for columns of type "
                f"{leaf.data_type}."
            )
    return paths


def _canonical(path: Path, schema: StructType) -> Path:
    return tuple(field.name for field in find_fields(path, schema))


def _leaf(path: Path, schema: StructType, mode: column_mapping.Mode) -> Leaf:
    return Leaf.from_fields(find_fields(path, schema), mode)


def check_statistics(files: pa.Table, metadata: Metadata, paths: Sequence[Path], table: str) -> None:
    """Raise CallError if a column has no bounds in some file, unless all values of the column in that file are null."""
    mode = column_mapping.mode_of(metadata.configuration)
    leaves = [_leaf(path, metadata.schema, mode) for path in paths]
    if not leaves:
        return
    statistics = statistics_of_files(files, leaves)
    for path, leaf in zip(paths, leaves, strict=True):
        low, nulls = (statistics.column(column_name(group, leaf)) for group in ("minValues", "nullCount"))
        is_null = pc.fill_null(pc.equal(nulls, statistics.column("numRecords")), FALSE)
        without = files.filter(pc.and_(pc.is_null(low), pc.invert(is_null)))
        if without.num_rows:
            raise CallError(
                f"{table}: {without.num_rows} files lack statistics of {path_text(path)}, the first is "
                f"{without['path'][0]}. Clustering columns need statistics in every file. Compute them "
                "(compute_statistics), with more indexed columns (delta.dataSkippingNumIndexedCols) if needed, or "
                "omit the column."
            )
