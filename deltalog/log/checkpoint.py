"""Writes classic checkpoints: the whole state of a version in one Parquet file.

Spec: PROTOCOL.md#classic-checkpoint, #checkpoint-schema.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.errors import InvalidCheckpointError, StoreError
from deltalog.log import statistics
from deltalog.log.checkpoint_rows import camel
from deltalog.log.columns import combined, strings_map
from deltalog.log.last_checkpoint import encode_hint
from deltalog.log.segment import Checkpoint
from deltalog.log.snapshot import Snapshot
from deltalog.log.statistics import Leaf
from deltalog.spec import column_mapping
from deltalog.spec.actions import Metadata, Protocol
from deltalog.spec.paths import LAST_CHECKPOINT, LogFileKind, checkpoint_path, log_path
from deltalog.spec.properties import (
    CHECKPOINT_STATS_AS_JSON,
    CHECKPOINT_STATS_AS_STRUCT,
    DELETED_FILE_RETENTION_MS,
)
from deltalog.spec.schema import StructType
from deltalog.storage.base import FileMeta, PutOutcome

_GROUP_ROWS = 100_000
_STRING_LIST = pa.list_(pa.field("element", pa.string()))


def write_checkpoint(snapshot: Snapshot, clock_ms: int) -> Checkpoint:
    """Write the checkpoint of a snapshot and point ``_last_checkpoint`` at it.

    ``clock_ms`` judges which tombstones are still within delta.deletedFileRetentionDuration. The hint is
    written only after the checkpoint was read back whole. Raises StoreError. Cost: the snapshot's files, 2 PUTs,
    1 ranged GET.
    """
    retention_ms = DELETED_FILE_RETENTION_MS.read(snapshot.metadata.configuration)
    tombstones = snapshot.tombstones(clock_ms - retention_ms)
    files = snapshot.files()
    buffer = io.BytesIO()
    rows_written = _write(buffer, checkpoint_tables(snapshot, files, tombstones))
    data = buffer.getvalue()
    path = checkpoint_path(snapshot.version)
    store = snapshot.reader.store
    outcome = store.put_if_absent(path, data)
    # Only a doubtful answer needs a look: it may be another writer's file that lies there, or none.
    meta = FileMeta(path, len(data), None) if outcome is PutOutcome.COMMITTED else store.head(path)
    if meta is None:
        raise StoreError(f"{store.location(path)}: the store did not answer; the checkpoint is not there.", path=path)
    # Another writer's checkpoint of this version holds the same state, so whatever is there now is kept.
    with pq.ParquetFile(store.open_input(path)) as written:
        rows = written.metadata.num_rows
    if outcome is PutOutcome.COMMITTED and rows != rows_written:
        raise InvalidCheckpointError(
            f"{store.location(path)} has {rows} rows instead of {rows_written}.", version=snapshot.version
        )
    store.put(log_path(LAST_CHECKPOINT), encode_hint(snapshot.version, rows, meta.size_bytes or 0, files.num_rows))
    name = path.rsplit("/", 1)[-1]
    return Checkpoint(snapshot.version, LogFileKind.CLASSIC_CHECKPOINT, (name,))


def _write(buffer: io.BytesIO, tables: Iterable[pa.Table]) -> int:
    writer, rows = None, 0
    for table in tables:
        if writer is None:
            writer = pq.ParquetWriter(
                buffer, table.schema, compression="zstd", use_dictionary=False, write_page_checksum=True
            )
        writer.write_table(table, row_group_size=table.num_rows)
        rows += table.num_rows
    assert writer is not None
    writer.close()
    return rows


def checkpoint_tables(snapshot: Snapshot, files: pa.Table, tombstones: pa.Table) -> Iterator[pa.Table]:
    """A row per action, a struct column per kind of action; in parts of one schema, so that statistics are parsed
    a part at a time. Pure."""
    small = {
        "protocol": _protocols([snapshot.protocol]),
        "metaData": _metadatas([snapshot.metadata]),
        "txn": _transactions(snapshot),
        "domainMetadata": _domains(snapshot),
    }
    large = {"add": (files, _add_columns(snapshot)), "remove": (tombstones, _action_columns)}
    types = {name: array.type for name, array in small.items()}
    types |= {name: _struct(columns(rows.slice(0, 0))).type for name, (rows, columns) in large.items()}
    schema = pa.schema([(n, types[n]) for n in ("txn", "add", "remove", "metaData", "protocol", "domainMetadata")])
    waiting = [_rows(schema, name, array) for name, array in small.items()]
    for name, (rows, columns) in large.items():
        for start in range(0, rows.num_rows, _GROUP_ROWS):
            waiting.append(_rows(schema, name, _struct(columns(rows.slice(start, _GROUP_ROWS)))))
            yield pa.concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)


def _rows(schema: pa.Schema, name: str, array: pa.StructArray) -> pa.Table:
    """Actions of one kind, the other columns null."""
    columns = [array if field.name == name else pa.nulls(len(array), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _struct(columns: Mapping[str, Any]) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _action_columns(rows: pa.Table) -> dict[str, Any]:
    """Rows of FILES or TOMBSTONES under the protocol's names. dataChange is false in a checkpoint."""
    columns = {camel(name): _camel_struct(combined(rows.column(name))) for name in rows.schema.names}
    return {**columns, "dataChange": pa.repeat(False, rows.num_rows)}


def _add_columns(snapshot: Snapshot) -> Callable[[pa.Table], dict[str, Any]]:
    """From live files to the fields of add: statistics in the forms that the table's properties ask for."""
    configuration, schema = snapshot.metadata.configuration, snapshot.schema
    mapping = column_mapping.mode_of(configuration)
    partitioned = [schema.field(name) for name in snapshot.partition_columns]
    data_schema = StructType(tuple(column for column in schema if column not in partitioned))
    leaves = statistics.indexed_leaves(data_schema, mapping, configuration)
    as_text, as_struct = (p.read(configuration) for p in (CHECKPOINT_STATS_AS_JSON, CHECKPOINT_STATS_AS_STRUCT))

    def columns(files: pa.Table) -> dict[str, Any]:
        found = _action_columns(files)
        if as_struct:
            found["stats_parsed"] = _parsed_statistics(files, leaves)
            values = {
                column_mapping.physical_name(c, mapping): statistics.partition_values(files, c, mapping)
                for c in partitioned
            }
            if values:
                found["partitionValues_parsed"] = _struct(values)
        if not as_text:
            del found["stats"]
        return found

    return columns


def _parsed_statistics(files: pa.Table, leaves: Sequence[Leaf]) -> pa.StructArray:
    flat = statistics.of_files(files, leaves)
    columns = {name: combined(flat.column(name)) for name in ("numRecords", "tightBounds")}
    columns |= statistics.nested(flat, leaves, lambda leaf: leaf.physical)
    absent = combined(files.column("stats")).is_null()
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=absent)


def _camel_struct(values: Any) -> Any:
    """Deletion vectors with the protocol's names and widths."""
    if not pa.types.is_struct(values.type):
        return values
    narrow = {"offset": pa.int32(), "size_in_bytes": pa.int32()}
    children = [
        child.cast(narrow.get(f.name, f.type)) for f, child in zip(values.type.fields, values.flatten(), strict=True)
    ]
    fields = [pa.field(camel(f.name), child.type) for f, child in zip(values.type.fields, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())


def _protocols(protocols: Sequence[Protocol]) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        [
            pa.array([p.min_reader_version for p in protocols], pa.int32()),
            pa.array([p.min_writer_version for p in protocols], pa.int32()),
            pa.array([p.reader_features for p in protocols], _STRING_LIST),
            pa.array([p.writer_features for p in protocols], _STRING_LIST),
        ],
        names=["minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"],
    )


def _metadatas(metadatas: Sequence[Metadata]) -> pa.StructArray:
    formats = pa.StructArray.from_arrays(
        [
            pa.array([m.format.provider for m in metadatas]),
            strings_map([m.format.options for m in metadatas]),
        ],
        names=["provider", "options"],
    )
    return pa.StructArray.from_arrays(
        [
            pa.array([m.id for m in metadatas], pa.string()),
            pa.array([m.name for m in metadatas], pa.string()),
            pa.array([m.description for m in metadatas], pa.string()),
            formats,
            pa.array([m.schema_string for m in metadatas], pa.string()),
            pa.array([m.partition_columns for m in metadatas], _STRING_LIST),
            strings_map([m.configuration for m in metadatas]),
            pa.array([m.created_time for m in metadatas], pa.int64()),
        ],
        names=[
            "id", "name", "description", "format", "schemaString", "partitionColumns", "configuration", "createdTime"
        ],
    )  # fmt: skip


def _transactions(snapshot: Snapshot) -> pa.StructArray:
    rows = snapshot.set_transactions
    return pa.StructArray.from_arrays(
        [
            pa.array([t.app_id for t in rows], pa.string()),
            pa.array([t.version for t in rows], pa.int64()),
            pa.array([t.last_updated for t in rows], pa.int64()),
        ],
        names=["appId", "version", "lastUpdated"],
    )


def _domains(snapshot: Snapshot) -> pa.StructArray:
    rows = snapshot.domain_metadata
    return pa.StructArray.from_arrays(
        [
            pa.array([d.domain for d in rows], pa.string()),
            pa.array([d.configuration for d in rows], pa.string()),
            pa.array([d.removed for d in rows], pa.bool_()),
        ],
        names=["domain", "configuration", "removed"],
    )
