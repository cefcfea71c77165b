"""A version as a pyarrow dataset: its files, with what the log records about their rows.

A dataset reads the files itself; therefore it only supports tables whose files need no further processing: no deletion
vectors, no column mapping, no widened types. Tables whose files need more are read by deltalog's scan.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs

from deltalog.arrow_arrays import combined
from deltalog.deltalake.arrow import with_large_types
from deltalog.deltalake.filters import FilePruningPredicateType, condition
from deltalog.deltalake.fs.fs_handler import DeltaStorageHandler
from deltalog.protocol import column_mapping, features, limits
from deltalog.protocol import partitions as partition_values
from deltalog.read.file_bounds import has_exact_bounds
from deltalog.read.snapshot import Snapshot
from deltalog.storage.fs import LocalStore

# Reader features that still allow files to be read directly: the files have the table's columns and only its rows.
PLAIN_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_MOST_STATISTICS = 100_000  # attaching the bounds of more columns would take seconds


def _dataset() -> Any:
    """pyarrow.dataset, which loads pandas where pandas is installed: half a second that most programs do not need."""
    import pyarrow.dataset

    return pyarrow.dataset


def is_plain(snapshot: Snapshot) -> bool:
    """Whether the files of a version contain exactly the rows and columns of that version."""
    return set(features.reader_features(snapshot.protocol)) <= PLAIN_FEATURES


def guarantees(snapshot: Snapshot, files: pa.Table, schema: pa.Schema) -> list[tuple[str, Any]]:
    """For each file, its path and the conditions that all its rows satisfy: its partition values, and those bounds in
    its statistics that other readers may rely on (``deltalog.read.file_bounds``)."""
    paths = [urllib.parse.unquote(path) for path in files["path"].to_pylist()]
    parts = list(_partitions(snapshot, files, schema))
    bounds = _bounds(snapshot, files, schema)
    return [
        (path, _joined([*part, *bounds.get(logged, ())]))
        for path, logged, part in zip(paths, files["path"].to_pylist(), parts, strict=True)
    ]


def _joined(expressions: Sequence[Any]) -> Any:
    found = _dataset().scalar(True)
    for index, each in enumerate(expressions):
        found = each if index == 0 else found & each
    return found


def _partitions(snapshot: Snapshot, files: pa.Table, schema: pa.Schema) -> Iterator[list[Any]]:
    ds, mapping = _dataset(), column_mapping.mode_of(snapshot.metadata.configuration)
    columns = [snapshot.schema.field(name) for name in snapshot.partition_columns]
    for each in files["partition_values"].to_pylist():
        texts = dict(each or ())
        found = []
        for column in columns:
            text = texts.get(column_mapping.physical_name(column, mapping))
            value = partition_values.parse(text, column.data_type, column.name)
            field = ds.field(column.name)
            found.append(
                field.is_null() if value is None else field == pa.scalar(value, schema.field(column.name).type)
            )
        yield found


def _bounds(snapshot: Snapshot, files: pa.Table, schema: pa.Schema) -> dict[str, list[Any]]:
    names = [
        name
        for name in snapshot.schema.names
        if name not in snapshot.partition_columns
        and name in schema.names
        and has_exact_bounds(snapshot.schema.field(name))
    ]
    if not names or files.num_rows * len(names) > _MOST_STATISTICS:
        return {}
    statistics = snapshot.statistics(names)
    wanted = set(files["path"].to_pylist())
    lows, highs, nulls = (combined(statistics[name]) for name in ("min_values", "max_values", "null_count"))
    counts = statistics["num_records"].to_pylist()
    found: dict[str, list[Any]] = {}
    paths = snapshot.files(["path"])["path"].to_pylist()
    values = {
        name: tuple(
            pc.struct_field(group, name) if name in [f.name for f in group.type.fields] else pa.nulls(len(paths))
            for group in (lows, highs, nulls)
        )
        for name in names
    }
    for index, path in enumerate(paths):
        if path in wanted:
            found[path] = list(_of_file(values, index, counts[index], schema))
    return found


def _of_file(values: dict[str, Any], index: int, rows: int | None, schema: pa.Schema) -> Iterator[Any]:
    ds = _dataset()
    for name, (low, high, null_count) in values.items():
        field, kind = ds.field(name), schema.field(name).type
        nulls = null_count[index].as_py()
        if rows is not None and nulls == rows and rows > 0:
            yield field.is_null()
            continue
        bounds = []
        if low[index].is_valid:
            bounds.append(field >= low[index].cast(kind))
        if high[index].is_valid:
            bounds.append(field <= _rounded_up(high[index].cast(kind)))
        for bound in bounds:
            yield bound if nulls == 0 else bound | field.is_null()


def _rounded_up(high: Any) -> Any:
    """An upper bound that also holds if the writer truncated it, as writers truncate times to milliseconds."""
    if not pa.types.is_timestamp(high.type) or high.value is None:
        return high
    return pa.scalar(high.value + 1_000, pa.int64()).cast(high.type)


def filesystem_of(snapshot: Snapshot, sizes: dict[str, int]) -> Any:
    """The file system to which the paths in ``guarantees`` refer."""
    store = snapshot.reader.store
    if isinstance(store, LocalStore) and all(size >= 0 for size in sizes.values()):
        return pa_fs.SubTreeFileSystem(store.url, pa_fs.LocalFileSystem())
    return pa_fs.PyFileSystem(DeltaStorageHandler.from_store(store, sizes))


def of_table(
    table: Any,
    where: FilePruningPredicateType | None,
    filesystem: Any,
    read_options: Any,
    schema: pa.Schema | None,
    as_large_types: bool,
) -> Any:
    """The dataset of ``DeltaTable._table``. ``where``: a condition that selects the files to include; ``read_options``:
    options for reading Parquet files; ``schema``: the schema of the dataset, by default that of the table."""
    ds, snapshot = _dataset(), table.snapshot
    if schema is None:
        schema = snapshot.schema.to_arrow()
        schema = with_large_types(schema) if as_large_types else schema
    if not is_plain(snapshot):
        scan = snapshot.scan(where=condition(where, snapshot.schema))
        return ds.InMemoryDataset(scan.to_arrow().cast(schema))
    if filesystem is None:
        filesystem = filesystem_of(snapshot, table.get_add_file_sizes())
    format = ds.ParquetFileFormat(
        read_options=read_options,
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(
            pre_buffer=True, thrift_container_size_limit=limits.MAX_FOOTER_ITEMS
        ),
    )
    fragments = [
        format.make_fragment(path, filesystem=filesystem, partition_expression=known)
        for path, known in table.dataset_partitions(schema, where)
    ]
    for name in format.read_options.dictionary_columns or ():
        index = schema.get_field_index(name)
        field = schema.field(index)
        schema = schema.set(index, field.with_type(pa.dictionary(pa.int32(), field.type)))
    return ds.FileSystemDataset(fragments, schema, format, filesystem)
