"""Writes classic checkpoints: the whole state of a version in one Parquet file.

Spec: PROTOCOL.md#classic-checkpoint, #checkpoint-schema.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.errors import InvalidCheckpointError, StoreError
from deltalog.log.columns import strings_map
from deltalog.log.last_checkpoint import encode_hint
from deltalog.log.reader import camel
from deltalog.log.replay import FILES, TOMBSTONES
from deltalog.log.segment import Checkpoint
from deltalog.log.snapshot import Snapshot
from deltalog.spec.actions import Metadata, Protocol
from deltalog.spec.paths import LAST_CHECKPOINT, LogFileKind, checkpoint_path, log_path
from deltalog.spec.properties import DELETED_FILE_RETENTION_MS
from deltalog.storage.base import FileMeta, PutOutcome

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
    table = checkpoint_table(snapshot, files, tombstones)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", row_group_size=100_000, use_dictionary=False)
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
    if outcome is PutOutcome.COMMITTED and rows != table.num_rows:
        raise InvalidCheckpointError(
            f"{store.location(path)} has {rows} rows instead of {table.num_rows}.", version=snapshot.version
        )
    store.put(log_path(LAST_CHECKPOINT), encode_hint(snapshot.version, rows, meta.size_bytes or 0, files.num_rows))
    name = path.rsplit("/", 1)[-1]
    return Checkpoint(snapshot.version, LogFileKind.CLASSIC_CHECKPOINT, (name,))


def checkpoint_table(snapshot: Snapshot, files: pa.Table, tombstones: pa.Table) -> pa.Table:
    """A row per action, a struct column per kind of action. Pure."""
    small = [
        ("protocol", _protocols([snapshot.protocol])),
        ("metaData", _metadatas([snapshot.metadata])),
        ("txn", _transactions(snapshot)),
        ("domainMetadata", _domains(snapshot)),
    ]
    blocks: list[tuple[str, pa.StructArray]] = [block for block in small if len(block[1])]
    types = {name: array.type for name, array in small}
    for name, rows, schema in (("add", files, FILES), ("remove", tombstones, TOMBSTONES)):
        struct = _action_struct(rows, schema)
        types[name] = struct.type
        if len(struct):
            blocks.append((name, struct))
    schema = pa.schema(
        [pa.field(n, types[n]) for n in ("txn", "add", "remove", "metaData", "protocol", "domainMetadata")]
    )
    return pa.concat_tables(
        pa.Table.from_arrays(
            [array if field.name == name else pa.nulls(len(array), field.type) for field in schema],
            schema=schema,
        )
        for name, array in blocks
    )


def _action_struct(rows: pa.Table, schema: pa.Schema) -> pa.StructArray:
    """Rows of FILES or TOMBSTONES under the protocol's names. dataChange is false in a checkpoint."""
    rows = rows.combine_chunks()
    fields, children = [], []
    for column in schema:
        values = rows.column(column.name)
        values = values.chunk(0) if values.num_chunks else pa.nulls(0, column.type)
        values = _camel_struct(values)
        fields.append(pa.field(camel(column.name), values.type))
        children.append(values)
    fields.append(pa.field("dataChange", pa.bool_()))
    children.append(pa.repeat(False, rows.num_rows))
    return pa.StructArray.from_arrays(children, fields=fields)


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
