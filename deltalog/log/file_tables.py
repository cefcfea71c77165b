"""Converts file actions to rows of Arrow tables, and back. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from deltalog.arrow_arrays import STRINGS_MAP, booleans, int64s, nulls, strings, strings_map
from deltalog.protocol.actions import AddFile, DeletionVector, RemoveFile

DELETION_VECTOR = pa.struct(
    [
        pa.field("storage_type", pa.string()),
        pa.field("path_or_inline_dv", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("size_in_bytes", pa.int64()),
        pa.field("cardinality", pa.int64()),
        pa.field("max_row_index", pa.int64()),
    ]
)
# The schema of live files, one file per row. The columns are named like the fields of the add action, in snake case.
# Sizes are in bytes, times in milliseconds since 1970.
FILES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("partition_values", STRINGS_MAP),
        pa.field("size", pa.int64()),
        pa.field("modification_time", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("tags", STRINGS_MAP),
        pa.field("deletion_vector", DELETION_VECTOR),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("clustering_provider", pa.string()),
    ]
)
# The schema of tombstones, one tombstone per row. The columns are the fields of the remove action that checkpoints
# store.
TOMBSTONES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("deletion_timestamp", pa.int64()),
        pa.field("extended_file_metadata", pa.bool_()),
        pa.field("partition_values", STRINGS_MAP),
        pa.field("size", pa.int64()),
        pa.field("deletion_vector", DELETION_VECTOR),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
    ]
)


def camel(name: str) -> str:
    """The protocol's name for a snake-case column: ``base_row_id`` becomes baseRowId."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def files_table(adds: Sequence[AddFile]) -> pa.Table:
    """Add actions as rows of schema FILES."""
    columns = [
        strings([a.path for a in adds]),
        strings_map([a.partition_values for a in adds]),
        int64s([a.size for a in adds]),
        int64s([a.modification_time for a in adds]),
        strings([a.stats for a in adds]),
        strings_map([a.tags for a in adds]),
        _vectors([a.deletion_vector for a in adds]),
        int64s([a.base_row_id for a in adds]),
        int64s([a.default_row_commit_version for a in adds]),
        strings([a.clustering_provider for a in adds]),
    ]
    return pa.Table.from_arrays(columns, schema=FILES)


def tombstones_table(removes: Sequence[RemoveFile]) -> pa.Table:
    """Remove actions as rows of schema TOMBSTONES."""
    columns = [
        strings([r.path for r in removes]),
        int64s([r.deletion_timestamp for r in removes]),
        booleans([r.extended_file_metadata for r in removes]),
        strings_map([r.partition_values for r in removes]),
        int64s([r.size for r in removes]),
        _vectors([r.deletion_vector for r in removes]),
        int64s([r.base_row_id for r in removes]),
        int64s([r.default_row_commit_version for r in removes]),
    ]
    return pa.Table.from_arrays(columns, schema=TOMBSTONES)


def _vectors(vectors: Sequence[DeletionVector | None]) -> pa.Array:
    if not any(vectors):
        return nulls(len(vectors), DELETION_VECTOR)
    present = [v or _NO_VECTOR for v in vectors]
    columns = [
        strings([v.storage_type for v in present]),
        strings([v.path_or_inline_dv for v in present]),
        int64s([v.offset for v in present]),
        int64s([v.size_in_bytes for v in present]),
        int64s([v.cardinality for v in present]),
        int64s([v.max_row_index for v in present]),
    ]
    absent = booleans([v is None for v in vectors])
    return pa.StructArray.from_arrays(columns, fields=list(DELETION_VECTOR.fields), mask=absent)


_NO_VECTOR = DeletionVector("i", "", 0, 0)


def add_actions(files: pa.Table) -> list[AddFile]:
    """Rows of schema FILES as add actions."""
    columns = [files.column(name).to_pylist() for name in FILES.names]
    return [
        AddFile(
            path=path,
            partition_values=dict(values or ()),
            size=size,
            modification_time=time_ms,
            data_change=False,
            stats=stats,
            tags=None if tags is None else dict(tags),
            deletion_vector=None if vector is None else DeletionVector(**vector),
            base_row_id=row_id,
            default_row_commit_version=row_version,
            clustering_provider=provider,
        )
        for path, values, size, time_ms, stats, tags, vector, row_id, row_version, provider in zip(
            *columns, strict=True
        )
    ]


def remove_actions(files: pa.Table, deletion_timestamp_ms: int, data_change: bool = True) -> list[RemoveFile]:
    """Remove actions for live files (schema FILES). ``data_change``: False if other files of the table contain the same
    rows."""
    return [
        RemoveFile(
            path=a.path,
            deletion_timestamp=deletion_timestamp_ms,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=a.partition_values,
            size=a.size,
            tags=a.tags,
            deletion_vector=a.deletion_vector,
            base_row_id=a.base_row_id,
            default_row_commit_version=a.default_row_commit_version,
        )
        for a in add_actions(files)
    ]
