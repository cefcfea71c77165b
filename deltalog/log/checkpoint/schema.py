"""Converts the actions of a version to checkpoint rows, with one column per kind of action and one action per row.
Pure.

Spec: PROTOCOL.md#checkpoint-schema, #v2-spec, #checkpoint-metadata, #checkpoint-metadata-tags, #v1-spec,
#sidecar-file-information.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from deltalog.arrow_arrays import FALSE, booleans, combined, empty, int64s, strings, strings_map
from deltalog.errors import CorruptTableError
from deltalog.log import file_statistics
from deltalog.log.file_statistics import Leaf
from deltalog.log.file_tables import FILES, TOMBSTONES, camel
from deltalog.log.replay import State
from deltalog.protocol import column_mapping
from deltalog.protocol.actions import Sidecar
from deltalog.protocol.properties import (
    CHECKPOINT_STATS_AS_JSON,
    CHECKPOINT_STATS_AS_STRUCT,
)
from deltalog.protocol.retention import transaction_cutoff_ms, unexpired_transactions

_STRING_LIST = pa.list_(pa.field("element", pa.string()))
_NARROW = {"offset": pa.int32(), "size_in_bytes": pa.int32()}
# Substrings of the paths of those columns that have few distinct values. For other columns, a dictionary encoding only
# costs time and space.
_FEW_VALUES = (
    ".partitionValues", ".nullCount.", ".tags.", ".numRecords", ".storageType", ".clusteringProvider",
    ".defaultRowCommitVersion",
)  # fmt: skip


class CheckpointSchema:
    """Converts the actions of one version to checkpoint rows.

    ``v2``: include the actions that only V2 checkpoints have. ``now_ms``, in milliseconds since 1970: transactions that
    have expired by then (delta.setTransactionRetentionDuration) are left out; transactions without lastUpdated never
    expire.
    """

    def __init__(self, state: State, now_ms: int, *, v2: bool = False) -> None:
        self._state = state
        self._v2 = v2
        configuration = state.metadata.configuration
        self._mapping = column_mapping.mode_of(configuration)
        schema = state.metadata.schema
        self._partitioned = [schema.field(name) for name in state.metadata.partition_columns]
        self._as_text = CHECKPOINT_STATS_AS_JSON.read(configuration)
        self._as_struct = CHECKPOINT_STATS_AS_STRUCT.read(configuration)
        self.leaves: Sequence[Leaf] | None = _indexed_leaves(state) if self._as_struct else None
        self._transaction_cutoff_ms = transaction_cutoff_ms(configuration, now_ms)

    @property
    def file_columns(self) -> list[str]:
        """The columns of FILES that ``adds`` needs. Excludes ``stats`` if statistics are written only as structs, to
        avoid converting the structs of the last checkpoint to text."""
        return [name for name in FILES.names if name != "stats" or self._as_text]

    @cached_property
    def file_actions(self) -> pa.Schema:
        """The schema of a sidecar."""
        rows = self.adds(empty(FILES)), self.removes(empty(TOMBSTONES))
        return pa.schema([field for table in rows for field in table.schema])

    @cached_property
    def whole(self) -> pa.Schema:
        """The schema of the checkpoint, including the columns of its sidecars, because some readers take the whole
        schema from the top-level file."""
        small = {field.name: field for field in self.small(0).schema}
        files = list(self.file_actions)
        return pa.schema([small.pop("txn"), *files, *small.values()])

    def adds(self, files: pa.Table) -> pa.Table:
        """Checkpoint rows for live files (columns of FILES, and ``stats_parsed`` if that column exists). Raises
        CorruptTableError for a partition value that does not match the type of its column."""
        files = file_statistics.with_text(files) if self._as_text else files
        columns = _action_columns(files.select([name for name in files.schema.names if name in self.file_columns]))
        if self.leaves is not None:
            columns["stats_parsed"] = _parsed_statistics(files, self.leaves)
            values = {
                column_mapping.physical_name(column, self._mapping): file_statistics.partition_values(
                    files, column, self._mapping
                )
                for column in self._partitioned
            }
            if values:
                columns["partitionValues_parsed"] = _struct(values)
        return pa.table({"add": _struct(columns)})

    def removes(self, tombstones: pa.Table) -> pa.Table:
        """Checkpoint rows for tombstones (schema TOMBSTONES)."""
        return pa.table({"remove": _struct(_action_columns(tombstones))})

    def small(self, version: int, sidecars: Sequence[Sidecar] = (), tags: Mapping[str, str] | None = None) -> pa.Table:
        """Checkpoint rows of ``version`` for the actions other than file actions."""
        arrays = dict(self._state_arrays)
        if self._v2:
            arrays["checkpointMetadata"] = _struct({"version": int64s([version]), "tags": strings_map([tags])})
            arrays["sidecar"] = _sidecars(sidecars)
        schema = pa.schema([(name, array.type) for name, array in arrays.items()])
        return pa.concat_tables([widened(pa.table({name: array}), schema) for name, array in arrays.items()])

    @cached_property
    def _state_arrays(self) -> dict[str, pa.StructArray]:
        return {
            "txn": self._transactions(),
            "metaData": self._metadata(),
            "protocol": self._protocol(),
            "domainMetadata": self._domains(),
        }

    def _transactions(self) -> pa.StructArray:
        rows = unexpired_transactions(self._state.transactions.values(), self._transaction_cutoff_ms)
        return _struct(
            {
                "appId": strings([t.app_id for t in rows]),
                "version": int64s([t.version for t in rows]),
                "lastUpdated": int64s([t.last_updated for t in rows]),
            }
        )

    def _domains(self) -> pa.StructArray:
        rows = [domain for domain in self._state.domains.values() if not domain.removed]
        return _struct(
            {
                "domain": strings([d.domain for d in rows]),
                "configuration": strings([d.configuration for d in rows]),
                "removed": booleans([d.removed for d in rows]),
            }
        )

    def _protocol(self) -> pa.StructArray:
        protocol = self._state.protocol
        return _struct(
            {
                "minReaderVersion": int64s([protocol.min_reader_version]).cast(pa.int32()),
                "minWriterVersion": int64s([protocol.min_writer_version]).cast(pa.int32()),
                "readerFeatures": _string_list(protocol.reader_features),
                "writerFeatures": _string_list(protocol.writer_features),
            }
        )

    def _metadata(self) -> pa.StructArray:
        metadata = self._state.metadata
        provider = {
            "provider": strings([metadata.format.provider]), "options": strings_map([metadata.format.options])
        }  # fmt: skip
        return _struct(
            {
                "id": strings([metadata.id]),
                "name": strings([metadata.name]),
                "description": strings([metadata.description]),
                "format": _struct(provider),
                "schemaString": strings([metadata.schema_string]),
                "partitionColumns": _string_list(metadata.partition_columns),
                "configuration": strings_map([metadata.configuration]),
                "createdTime": int64s([metadata.created_time]),
            }
        )


def widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """``rows`` with all columns of ``schema``; missing ones are null."""
    names = set(rows.schema.names)
    columns = [rows[f.name] if f.name in names else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def with_dictionary(paths: Iterable[str]) -> list[str]:
    """The dotted paths of the checkpoint columns that become smaller with dictionary encoding."""
    return [path for path in paths if any(part in path for part in _FEW_VALUES)]


def _struct(columns: Mapping[str, Any]) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _string_list(texts: Sequence[str] | None) -> pa.ListArray:
    """An array with a single element: a list or null."""
    if texts is None:
        return pa.nulls(1, _STRING_LIST)
    offsets = int64s([0, len(texts)]).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, strings(list(texts)), type=_STRING_LIST)


def _action_columns(rows: pa.Table) -> dict[str, Any]:
    """The columns of rows of FILES or TOMBSTONES, renamed to the protocol's field names. In a checkpoint, dataChange is
    false."""
    columns = {camel(name): _camel_struct(combined(rows.column(name))) for name in rows.schema.names}
    return {**columns, "dataChange": pa.repeat(FALSE, rows.num_rows)}


def _camel_struct(values: Any) -> Any:
    """Deletion vector descriptors with the protocol's field names and integer widths; other values are unchanged."""
    if not pa.types.is_struct(values.type):
        return values
    children = [
        child.cast(_NARROW.get(f.name, f.type)) for f, child in zip(values.type.fields, values.flatten(), strict=True)
    ]
    fields = [pa.field(camel(f.name), child.type) for f, child in zip(values.type.fields, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())


def _indexed_leaves(state: State) -> Sequence[Leaf]:
    try:
        clustered_by = state.clustering_columns
    # The next write or CLUSTER BY reports an invalid domain; the checkpoint stores it unchanged.
    except CorruptTableError:
        clustered_by = ()
    return file_statistics.indexed_leaves(state.metadata, clustered_by)


def _parsed_statistics(files: pa.Table, leaves: Sequence[Leaf]) -> pa.StructArray:
    source = _best_statistics(files, leaves)
    flat = file_statistics.statistics_of_files(files.select([source]), leaves)
    columns = {name: combined(flat.column(name)) for name in ("numRecords", "tightBounds")}
    columns |= file_statistics.nested(flat, leaves, lambda leaf: leaf.physical)
    absent = combined(files.column(source)).is_null()
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=absent)


def _best_statistics(files: pa.Table, leaves: Sequence[Leaf]) -> str:
    """The checkpoint column from which statistics are read: the structs, which need no parsing, unless the JSON text
    covers leaf columns or files that the structs do not."""
    names = files.schema.names
    if "stats_parsed" not in names or "stats" not in names:
        return "stats_parsed" if "stats_parsed" in names else "stats"
    parsed, text = files.column("stats_parsed"), files.column("stats")
    complete = all(
        file_statistics.has_field(parsed.type, (group, *leaf.physical)) for leaf in leaves for group in leaf.groups
    )
    return "stats_parsed" if complete and parsed.null_count <= text.null_count else "stats"


def _sidecars(sidecars: Sequence[Sidecar]) -> pa.StructArray:
    return _struct(
        {
            "path": strings([s.path for s in sidecars]),
            "sizeInBytes": int64s([s.size_in_bytes for s in sidecars]),
            "modificationTime": int64s([s.modification_time for s in sidecars]),
            "tags": strings_map([s.tags for s in sidecars]),
        }
    )


def json_lines(rows: pa.Table) -> Iterator[bytes]:
    """Checkpoint rows as the lines of a JSON checkpoint, with statistics as text."""
    for name in rows.schema.names:
        column = rows.column(name)
        actions = combined(column.filter(column.is_valid()))
        if not len(actions):
            continue
        fields = [field.name for field in actions.type.fields]
        columns = dict(zip(fields, actions.flatten(), strict=True))
        parsed = columns.pop("stats_parsed", None)
        columns.pop("partitionValues_parsed", None)
        if parsed is not None and "stats" not in columns:
            columns["stats"] = file_statistics.as_json(parsed)
        maps = [key for key, values in columns.items() if pa.types.is_map(values.type)]
        for body in pa.table(columns).to_pylist():
            body.update((key, dict(body[key])) for key in maps if body[key] is not None)
            yield msgspec.json.encode({name: _without_nulls(body)})


def _without_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """The body without null fields: a null in a checkpoint row means that the field is absent. Null values inside maps
    are kept."""
    present = {key: value for key, value in body.items() if value is not None}
    if "deletionVector" in present:
        present["deletionVector"] = _without_nulls(present["deletionVector"])
    if "format" in present:
        present["format"] = {**present["format"], "options": dict(present["format"]["options"])}
    return present
