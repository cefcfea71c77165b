"""A version as a pyarrow dataset: its files, with what the log records about their rows.

A dataset reads the files itself; therefore it only supports tables whose files need no further processing: no deletion
vectors, no column mapping, no widened types. Tables whose files need further processing are read by deltalog's scan.
"""

from __future__ import annotations

import urllib.parse
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from deltalog.deltalake.arrow import with_large_types
from deltalog.deltalake.filters import FilePruningPredicateType, condition
from deltalog.deltalake.fs.fs_handler import DeltaStorageHandler
from deltalog.protocol import features, limits
from deltalog.read.arrow_dataset import Guarantees
from deltalog.read.snapshot import Snapshot
from deltalog.storage.fs import LocalStore
from deltalog.write.task_files import storage_of

# Reader features that still allow files to be read directly: the files have the table's columns and only its rows.
PLAIN_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
# Attaching the bounds of a column to a file takes 20 microseconds. If a table has more bounds than this, only those of
# its first columns are attached.
_MOST_BOUNDS = 100_000


def _dataset() -> Any:
    """pyarrow.dataset, which loads pandas where pandas is installed: half a second that most programs do not need."""
    import pyarrow.dataset

    return pyarrow.dataset


def is_plain(snapshot: Snapshot) -> bool:
    """Whether the files of a version contain exactly the rows and columns of that version."""
    return set(features.reader_features(snapshot.protocol)) <= PLAIN_FEATURES


def guarantees(snapshot: Snapshot, where: FilePruningPredicateType | None, schema: pa.Schema) -> list[tuple[str, Any]]:
    """For each file that may have rows for which ``where`` is true: its path, and the condition that all its rows
    satisfy, from its partition values and its statistics (``deltalog.read.file_bounds``)."""
    names = [name for name in snapshot.schema.names if name in schema.names]
    scan = snapshot.scan(names, condition(where, snapshot.schema))
    known, files = Guarantees(scan, schema), [*scan.files_with_bounds()]
    columns = _MOST_BOUNDS // max(len(files), 1)
    return [(urllib.parse.unquote(file.path), known.of_file(file, bounds[:columns])) for file, bounds in files]


def filesystem_of(snapshot: Snapshot, sizes: dict[str, int]) -> Any:
    """The pyarrow file system in which the paths returned by ``guarantees`` are valid."""
    store = storage_of(snapshot.reader.store)
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
    """The pyarrow dataset of ``table``, a ``RawDeltaTable``. ``where``: a condition that selects the files to include;
    ``read_options``: options for reading Parquet files; ``schema``: the schema of the dataset, by default that of the
    table."""
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
