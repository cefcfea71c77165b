"""What a version consists of, in the forms that deltalake returns: file actions, partitions, deletion vectors,
history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.arrow_arrays import combined
from deltalog.log.file_statistics import indexed_leaves
from deltalog.log.history_entries import CommitEntry
from deltalog.protocol import column_mapping
from deltalog.protocol import partitions as partition_values
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.schema import type_to_arrow
from deltalog.read.snapshot import Snapshot

_GROUPS = {"null_count": "null_count", "min": "min_values", "max": "max_values"}


def add_actions(snapshot: Snapshot, flatten: bool) -> pa.Table:
    """A row for each file."""
    leaves = indexed_leaves(snapshot.metadata, snapshot.clustering_columns)
    files, statistics = snapshot.files(), snapshot.statistics(list(dict.fromkeys(leaf.path[0] for leaf in leaves)))
    columns = {
        "path": files["path"],
        "size_bytes": files["size"],
        "modification_time": files["modification_time"],
        "num_records": statistics["num_records"],
    }
    fields = [pa.field(name, pa.string() if name == "path" else pa.int64()) for name in columns]
    arrays: list[Any] = list(columns.values())
    groups = {name: combined(statistics[source]) for name, source in _GROUPS.items()}
    if snapshot.partition_columns:
        groups["partition"] = _partition_struct(files, snapshot)
    for name, group in groups.items():
        if not group.type.num_fields:
            continue
        for path, values in _flat(name, group) if flatten else [(name, group)]:
            fields.append(pa.field(path, values.type))
            arrays.append(values)
    return pa.Table.from_arrays([combined(pa.chunked_array([a]) if isinstance(a, pa.Array) else a) for a in arrays],
                                schema=pa.schema(fields))  # fmt: skip


def _flat(above: str, group: Any) -> Iterator[tuple[str, Any]]:
    for field, values in zip(group.type.fields, group.flatten(), strict=True):
        if pa.types.is_struct(field.type):
            yield from _flat(f"{above}.{field.name}", values)
        else:
            yield f"{above}.{field.name}", values


def _partition_struct(files: pa.Table, snapshot: Snapshot) -> Any:
    texts = files["partition_values"].to_pylist()
    arrays, fields = [], []
    for name, key, data_type in _partition_columns(snapshot):
        values = [partition_values.parse(dict(each or ()).get(key), data_type, name) for each in texts]
        arrays.append(pa.array(values, type_to_arrow(data_type)))
        fields.append(pa.field(name, arrays[-1].type))
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _partition_columns(snapshot: Snapshot) -> list[tuple[str, str, Any]]:
    mapping = column_mapping.mode_of(snapshot.metadata.configuration)
    found = []
    for name in snapshot.partition_columns:
        column = snapshot.schema.field(name)
        found.append((name, column_mapping.physical_name(column, mapping), column.data_type))
    return found


def partitions(files: pa.Table, snapshot: Snapshot) -> set[frozenset[tuple[str, str | None]]]:
    """The partition values of files, as text, keyed by column name."""
    columns = _partition_columns(snapshot)
    found = set()
    for each in files["partition_values"].to_pylist():
        values = dict(each or ())
        found.add(frozenset((name, values.get(key) or None) for name, key, _ in columns))
    return found


_LIVE = pa.list_(pa.field("item", pa.bool_(), False))
SELECTION = pa.schema([pa.field("filepath", pa.large_string()), pa.field("selection_vector", _LIVE)])


def deletion_vectors(snapshot: Snapshot) -> pa.RecordBatchReader:
    """A row for each file with a deletion vector: the location of the file, and for each row of the file whether that
    row is live."""
    files = snapshot.files()
    files = files.filter(pc.is_valid(combined(files["deletion_vector"])))
    scan = snapshot.scan()

    def batches() -> Iterator[pa.RecordBatch]:
        counts = snapshot_rows(snapshot, files)
        for path, vector, rows in zip(
            files["path"].to_pylist(), files["deletion_vector"].to_pylist(), counts, strict=True
        ):
            deleted = scan.deleted_positions(DeletionVector(**vector))
            length = max(rows or 0, (deleted[len(deleted) - 1] + 1) if len(deleted) else 0)
            live = pa.repeat(pa.scalar(True), length).to_numpy(zero_copy_only=False).copy()
            live[list(deleted)] = False
            vectors = pa.ListArray.from_arrays(
                pa.array([0, length], pa.int32()), pa.array(live), type=SELECTION.field(1).type
            )
            location = snapshot.file_path(path)
            uri = location if "://" in location else f"file://{location}"
            yield pa.RecordBatch.from_arrays([pa.array([uri], pa.large_string()), vectors], schema=SELECTION)

    return pa.RecordBatchReader.from_batches(SELECTION, batches())


def snapshot_rows(snapshot: Snapshot, files: pa.Table) -> list[int | None]:
    """The number of rows in each file, including deleted rows; None if the statistics of the file do not contain the
    number."""
    every = snapshot.files(["path"])["path"].to_pylist()
    numbers = dict(zip(every, snapshot.statistics([])["num_records"].to_pylist(), strict=True))
    return [numbers.get(path) for path in files["path"].to_pylist()]


def commit_info(entry: CommitEntry) -> dict[str, Any]:
    """The commitInfo of a commit. Metrics that the commit stores as text are converted back to numbers. For a commit
    without commitInfo, the result contains the commit's time."""
    found = dict(entry.commit_info)
    metrics = found.get("operationMetrics")
    if isinstance(metrics, dict) and str(found.get("engineInfo", "")).startswith("deltalog/"):
        found["operationMetrics"] = {name: _number(value) for name, value in metrics.items()}
    if found.get("timestamp") is None and entry.timestamp_ms is not None:
        found["timestamp"] = entry.timestamp_ms
    return found


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value
