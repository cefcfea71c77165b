"""Reads a data file as Arrow: the table's columns, in batches of bounded size.

Spec: PROTOCOL.md#delta-data-type-to-parquet-type-mappings, #reader-requirements-for-column-mapping,
#reader-requirements-for-type-widening, #consistency-between-table-metadata-and-data-files.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from deltalog.arrow_arrays import row_numbers, scalar, uint64s
from deltalog.errors import DeltaLogError, InvalidDataFileError, ObjectNotFoundError
from deltalog.lazy_arrow import pc, pq
from deltalog.lazy_names import lazy_modules
from deltalog.parallel import both, opened_ahead
from deltalog.parquet import datetime_rebase
from deltalog.parquet.column_ranges import expect_columns, has_small_footer
from deltalog.parquet.datetime_rebase import Calendars
from deltalog.parquet.footers import READ_ERRORS, open_parquet
from deltalog.protocol import column_mapping, partitions
from deltalog.protocol.actions import AddFile, DeletionVector
from deltalog.protocol.arrow_types import as_micros, plain_layout
from deltalog.protocol.char_varchar import char_length, padded
from deltalog.protocol.column_mapping import Lookup, Mode
from deltalog.protocol.row_tracking import RowTrackingColumn
from deltalog.protocol.schema import (
    VARIANT,
    VARIANT_TEXT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    type_to_arrow,
)
from deltalog.storage.base import LogStore
from deltalog.storage.remote import parallel_gets
from deltalog.storage.table_files import TableFiles

if TYPE_CHECKING:
    import pyroaring

    from deltalog.parquet import variant_shredding
    from deltalog.protocol import deletion_vectors, variant
else:
    lazy_modules(
        __name__,
        "pyroaring",
        "deltalog.parquet.variant_shredding",
        "deltalog.protocol.deletion_vectors",
        "deltalog.protocol.variant",
    )

T = TypeVar("T")

MAX_BATCH_ROWS = 1 << 17
_BATCH_BYTES = 16 << 20
# Consecutive row groups of up to this total size are fetched together, so that a file with many small row groups needs
# few requests.
_FETCH_BYTES = 32 << 20
# Row groups of up to this total decompressed size are announced to a remote store together.
_EXPECTED_BYTES = 512 << 20
# For files up to this size, using threads and reading ahead takes several times as long as decoding the file.
_SMALL_FILE_BYTES = 64 << 10
_BY_NAME = column_mapping.lookup("none")

# A run of row groups: its first row, its number of rows, and the indexes of the row groups.
_Run = tuple[int, int, list[int]]


@dataclass(frozen=True, slots=True)
class DataFile:
    """What the log records about a data file and its rows."""

    path: str
    partition_values: Mapping[str, str | None]
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    size: int | None = None

    @classmethod
    def from_add(cls, add: AddFile) -> DataFile:
        """A live file of which all live rows are read."""
        vector, base_row_id, version = add.deletion_vector, add.base_row_id, add.default_row_commit_version
        return cls(add.path, add.partition_values, vector, base_row_id, version, add.size)


class FileLayout(msgspec.Struct, frozen=True, dict=True):
    """The columns to read from each file, including partition columns, and the column mapping.

    ``tracking``: the row tracking columns, which follow the other columns.
    """

    schema: StructType
    partition_columns: Sequence[str]
    mapping: Mode = "none"
    tracking: Sequence[RowTrackingColumn] = ()

    @functools.cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches."""
        tracked = [pa.field(column.name, pa.int64(), False) for column in self.tracking]
        return pa.schema([*self.schema.to_arrow(), *tracked])


class Reading(msgspec.Struct, frozen=True):
    """How stored values are converted to the table's types: ``lookup`` matches fields, and ``calendars`` rebases dates
    and timestamps.

    ``exact``, for new rows: raise an error for fractions of a microsecond, for text that is not UTF-8, and for struct
    fields that the type lacks or that occur twice.
    """

    lookup: Lookup = _BY_NAME
    calendars: Calendars = datetime_rebase.GREGORIAN
    exact: bool = False


PLAIN, EXACT = Reading(), Reading(exact=True)


def read_file(
    files: TableFiles, file: DataFile, layout: FileLayout, only: pyroaring.BitMap64 | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the columns of ``layout`` from a file that the log names, without deleted rows.

    Partition values come from the log; columns that the file lacks are null. ``only``: positions of the rows to read.
    Batches have at most MAX_BATCH_ROWS rows and about 16 MiB, and are never empty. Row groups without selected rows are
    not read. Raises InvalidDataFileError, UnsafePathError, StoreError. Cost: 1 GET of the footer and some for the
    columns of each row group; 1 more for a deletion vector in a file.
    """
    yield from open_file(files, file, layout, only).batches()


def open_file(
    files: TableFiles, file: DataFile, layout: FileLayout, only: pyroaring.BitMap64 | None = None
) -> OpenFile:
    """The first half of ``read_file``, which mostly waits for the store: reads the footer and the deletion vector. The
    method ``batches`` of the returned object is the second half of ``read_file``. Threads can open several files ahead
    of the file that is being read. Raises as ``read_file``."""
    store, path = files.find(file.path)
    vector = file.deletion_vector

    def request() -> Any:
        with naming(store, path):
            return store.open_input(path)

    if store.is_remote and vector is not None:
        deleted, source = both(functools.partial(read_vector, files, vector), request, vector.storage_type != "i")
    else:
        deleted = pyroaring.BitMap64() if vector is None else read_vector(files, vector)
        source = request()
    opened = OpenFile(store, path, source, file, layout, deleted, only)
    if not store.is_remote or has_small_footer(source):
        opened.read_footer()
    return opened


class OpenFile:
    """An open data file. The last bytes of the file, including the footer if it is small, are kept in memory.
    ``batches`` closes it."""

    def __init__(
        self,
        store: LogStore,
        path: str,
        source: Any,
        file: DataFile,
        layout: FileLayout,
        deleted: pyroaring.BitMap64,
        only: pyroaring.BitMap64 | None,
    ) -> None:
        self.layout = layout
        self._store = store
        self._path = path
        self._source = source
        self._file = file
        self._deleted = deleted
        self._only = only
        self._is_large = file.size is None or file.size > _SMALL_FILE_BYTES
        self._parquet: Any = None

    def read_footer(self) -> None:
        """Read the footer, and announce to the open file which columns of the first row groups will be read. Raises as
        ``read_file``."""
        try:
            with naming(self._store, self._path):
                # In nanoseconds, the default, INT96 would wrap around outside the years 1677 to 2262.
                parquet = open_parquet(self._source, coerce_int96_timestamp_unit="us", pre_buffer=self._is_large)
                self._assemble = Assembly(parquet, self._file, self.layout)
                self._runs = _runs(parquet.metadata, self._deleted, self._only)
                self._parquet = parquet
                self._announced = self._expect(0, ahead=True)
        except BaseException:
            self._source.close()
            raise

    @property
    def live_rows(self) -> int:
        """The number of rows according to the footer, minus the deleted rows. Raises as ``read_file``."""
        if self._parquet is None:
            self.read_footer()
        rows: int = self._parquet.metadata.num_rows
        return rows - self._deleted.range_cardinality(0, rows)

    def batches(self, by_threads: bool = True, most_rows: int = MAX_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """See ``read_file``. ``by_threads``: let Arrow's threads decode a large file. If False, the caller's thread
        decodes the file, which needs less memory when several files are read concurrently. ``most_rows``: the maximum
        number of rows per batch. No reference to a batch is kept once the caller asks for the next one."""
        deleted, only = self._deleted, self._only
        if self._parquet is None:
            self.read_footer()
        with naming(self._store, self._path), contextlib.closing(self._source), self._parquet:
            for start, rows, stored in self._stored(by_threads, most_rows):
                positions = _positions(start, rows, deleted, only)
                if positions is None or len(positions):
                    batch = self._assemble(start, rows, stored)
                    if positions is not None:
                        batch = batch.take(positions)
                    del stored
                    yield batch
                    del batch

    def placed(self, by_threads: bool = True, most_rows: int = MAX_BATCH_ROWS) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All rows of the row groups that contain a selected row, including deleted and unselected rows, batch by
        batch, each with the position of its first row in the file. ``by_threads``, ``most_rows``: as for ``batches``.
        Raises as ``read_file``."""
        if self._parquet is None:
            self.read_footer()
        with naming(self._store, self._path), contextlib.closing(self._source), self._parquet:
            for start, rows, stored in self._stored(by_threads, most_rows):
                batch = self._assemble(start, rows, stored)
                del stored
                yield start, batch
                del batch

    def _stored(self, by_threads: bool, most_rows: int) -> Iterator[tuple[int, int, pa.RecordBatch | None]]:
        """For each batch: the number of its first row in the file, its number of rows, and its stored columns (None if
        no column is read)."""
        parquet, names = self._parquet, self._assemble.stored_names
        padding_bytes = sum(char_length([column]) or 0 for column in self.layout.schema)
        size = min(most_rows, _batch_rows(parquet.metadata, padding_bytes))
        for number, (start, rows, groups) in enumerate(self._runs):
            if not names:
                for position in range(start, start + rows, size):
                    yield position, min(size, start + rows - position), None
                continue
            if number == self._announced:
                self._announced = self._expect(number, ahead=False)
            threads = self._is_large and by_threads
            for batch in parquet.iter_batches(size, row_groups=groups, columns=names, use_threads=threads):
                count = batch.num_rows
                yield start, count, batch
                del batch
                start += count

    def _expect(self, number: int, ahead: bool) -> int:
        """Announce the byte ranges of the columns in the runs from ``number`` on, so that they can be prefetched.
        Returns the number of the first run that has not been announced."""
        if not self._store.is_remote:
            return len(self._runs)
        metadata, end, size_bytes = self._parquet.metadata, number, 0
        groups: list[int] = []
        while end < len(self._runs) and (end == number or size_bytes < _EXPECTED_BYTES):
            groups += self._runs[end][2]
            size_bytes += sum(metadata.row_group(group).total_byte_size for group in self._runs[end][2])
            end += 1
        expect_columns(self._source, metadata, groups, self._assemble.stored_names, ahead=ahead)
        return end


def read_files(
    files: TableFiles,
    requests: Iterable[tuple[DataFile, FileLayout, pyroaring.BitMap64 | None]],
    read: Callable[[OpenFile], Iterator[T]],
) -> Iterator[T]:
    """Run ``read`` on several files in order. ``requests``: the arguments for ``open_file``, one tuple per file.
    Threads run ``read`` on a few files ahead of the one that the caller consumes. On a remote store, up to 32 more
    files are opened in the meantime; of these, only what ``open_file`` reads is in memory."""
    return opened_ahead(
        requests, lambda request: open_file(files, *request), lambda _, file: read(file), parallel_gets(files.store)
    )


class naming:
    """Converts errors that are raised while a file is read into errors that name the file. This context manager is a
    class because a generator would be slower."""

    __slots__ = ("_path", "_store")

    def __init__(self, store: LogStore, path: str) -> None:
        self._store = store
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ObjectNotFoundError):
            raise InvalidDataFileError(
                f"{self._store.url}: the data file {self._path} is missing, but the log names it. It was deleted by "
                "hand, or by VACUUM if this is an old version; restore it, or read a version that does not need it.",
                path=self._path,
            ) from error
        if isinstance(error, InvalidDataFileError) and error.path is None:
            raise _unreadable(self._store, self._path, error) from error
        if isinstance(error, READ_ERRORS) and not isinstance(error, DeltaLogError):
            raise _unreadable(self._store, self._path, error) from error


def _unreadable(store: LogStore, path: str, error: BaseException) -> InvalidDataFileError:
    return InvalidDataFileError(
        f"{store.url}: the data file {path} cannot be read: {error} Restore it, or read a version without it.",
        path=path,
    )


def _runs(metadata: Any, deleted: pyroaring.BitMap64, only: pyroaring.BitMap64 | None) -> list[_Run]:
    """The runs of consecutive row groups that are read together."""
    runs: list[_Run] = []
    position, size = 0, 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows = group.num_rows
        end = position + rows
        if not 0 <= rows <= metadata.num_rows - position:
            raise ValueError(f"row group {number} has {rows} rows, but the file has {metadata.num_rows}.")
        wanted = (
            rows - deleted.range_cardinality(position, end) if only is None else only.range_cardinality(position, end)
        )
        if wanted:
            size += group.total_byte_size
            if runs and sum(runs[-1][:2]) == position and size <= _FETCH_BYTES:
                start, before, groups = runs[-1]
                runs[-1] = (start, before + rows, [*groups, number])
            else:
                runs.append((position, rows, [number]))
                size = group.total_byte_size
        position = end
    return runs


def _batch_rows(metadata: pq.FileMetaData, padding_bytes: int) -> int:
    """The number of rows that fill _BATCH_BYTES, if a row takes as many bytes as in the first row group plus
    ``padding_bytes``."""
    if metadata.num_row_groups == 0:
        return MAX_BATCH_ROWS
    group = metadata.row_group(0)
    held = max(1, group.num_rows)
    rows: int = _BATCH_BYTES * held // max(1, group.total_byte_size + padding_bytes * held)
    return max(1, min(MAX_BATCH_ROWS, rows))


def _positions(start: int, rows: int, deleted: pyroaring.BitMap64, only: pyroaring.BitMap64 | None) -> pa.Array | None:
    """The positions, relative to the batch, of the rows to read; None if all rows are read."""
    wanted = pyroaring.BitMap64()
    wanted.add_range(start, start + rows)
    if only is not None:
        wanted &= only
    wanted -= deleted
    if len(wanted) == rows:
        return None
    return pc.subtract(uint64s(wanted.to_array()), pa.scalar(start, pa.uint64()))


class Assembly:
    """Combines the stored columns, the partition values and the row tracking columns of one file."""

    def __init__(self, parquet: Any, file: DataFile, layout: FileLayout) -> None:
        self._file = file
        self._layout = layout
        self._schema = layout.arrow_schema
        self._reading = Reading(
            column_mapping.lookup(layout.mapping), datetime_rebase.file_calendars(parquet.metadata.metadata or {})
        )
        fields = list(parquet.schema_arrow)
        partitioned = {name.lower() for name in layout.partition_columns}
        self._partitions = {
            column.name: partition_value(file, column, layout.mapping)
            for column in layout.schema
            if column.name.lower() in partitioned
        }
        find = self._reading.lookup(fields)
        found = {c.name: find(c) for c in layout.schema if c.name not in self._partitions}
        self._stored = {name: fields[index].name for name, index in found.items() if index is not None}
        held = {field.name for field in fields}
        self._tracked = {c.name: c.stored_as for c in layout.tracking if c.stored_as in held}

    @property
    def stored_names(self) -> list[str]:
        """The columns to read, by their names in the file."""
        return list(dict.fromkeys((*self._stored.values(), *filter(None, self._tracked.values()))))

    def __call__(self, start: int, rows: int, stored: pa.RecordBatch | None) -> pa.RecordBatch:
        held = {} if stored is None else dict(zip(reversed(stored.schema.names), reversed(stored.columns), strict=True))
        columns = [self._column(column, rows, held) for column in self._layout.schema]
        tracked = [self._tracking(column, start, rows, held) for column in self._layout.tracking]
        if not columns and not tracked:
            # A batch without columns can only get its number of rows from a struct array.
            return pa.RecordBatch.from_struct_array(pa.repeat(pa.scalar({}, pa.struct([])), rows))
        return pa.RecordBatch.from_arrays([*columns, *tracked], schema=self._schema)

    def _column(self, column: StructField, rows: int, stored: Mapping[str, Any]) -> pa.Array:
        values = self._values(column, rows, stored)
        width = char_length([column])
        return values if width is None else padded(values, width)

    def _values(self, column: StructField, rows: int, stored: Mapping[str, Any]) -> pa.Array:
        name = self._stored.get(column.name)
        if name is not None and stored:
            return conform(stored[name], column.data_type, self._reading)
        arrow = self._schema.field(column.name).type
        if column.name in self._partitions:
            return pa.repeat(scalar(self._partitions[column.name], arrow), rows)
        return pa.nulls(rows, arrow)

    def _tracking(self, column: RowTrackingColumn, start: int, rows: int, stored: Mapping[str, Any]) -> pa.Array:
        name = self._tracked.get(column.name)
        kept = None if name is None or not stored else stored[name].cast(pa.int64())
        if kept is not None and not kept.null_count:
            return kept
        file = self._file
        base = file.base_row_id if column.counted else file.default_row_commit_version
        if base is None:
            missing = "baseRowId" if column.counted else "defaultRowCommitVersion"
            raise InvalidDataFileError(
                f"The log has no {missing} for the file {file.path}, which row tracking needs. To backfill it, disable "
                "delta.enableRowTracking and enable it again.",
                path=file.path,
            )
        if column.counted:
            fresh = pc.add(row_numbers(rows), pa.scalar(base + start, pa.int64()))
        else:
            fresh = pa.repeat(scalar(base, pa.int64()), rows)
        return fresh if kept is None else pc.coalesce(kept, fresh)


def partition_value(file: DataFile, column: StructField, mode: Mode) -> Any:
    """The value that the log records for a partition column of a file. Raises CorruptTableError."""
    name = column_mapping.physical_name(column, mode)
    values = file.partition_values
    folded = {key.lower(): text for key, text in values.items()}
    text = values[name] if name in values else folded.get(name.lower())
    return partitions.parse(text, column.data_type, column.name)


def read_vector(files: TableFiles, vector: DeletionVector) -> pyroaring.BitMap64:
    """The positions deleted by a deletion vector. Cost: 1 GET unless it is inline or deletes nothing."""
    if vector.cardinality == 0:
        return pyroaring.BitMap64()  # empty vectors from delta-spark have no bitmap
    named = deletion_vectors.file_of(vector)
    if named is None:
        return deletion_vectors.from_inline(vector)
    # A path that is derived from an encoded UUID contains no percent-encoding; only an absolute path is
    # percent-encoded.
    store, path = files.find(named)
    try:
        return deletion_vectors.from_file(store.get(path, deletion_vectors.needed_bytes(vector)), vector)
    except ObjectNotFoundError as error:
        raise InvalidDataFileError(
            f"{store.url}: the deletion vector file {path} is missing. Without it, deleted rows would be returned; "
            "restore it.",
            path=path,
        ) from error


def conform(values: Any, data_type: DataType, reading: Reading = PLAIN) -> Any:
    """Convert stored values to a type of the table: match struct fields by name or id, fill absent fields with null,
    and widen numbers.

    Raises pyarrow.ArrowInvalid or ArrowNotImplementedError if this is not possible without loss, InvalidDataFileError
    for malformed variants.
    """
    wanted = type_to_arrow(data_type)
    types = pa.types
    if data_type in (VARIANT, VARIANT_TEXT):
        binary = _conform_variant(values)
        return binary if data_type == VARIANT else _variant_text(binary)
    if data_type == VOID:
        return pa.nulls(len(values))
    values = plain_layout(values)
    if isinstance(data_type, StructType) and types.is_struct(values.type):
        return _conform_struct(values, data_type, reading)
    if isinstance(data_type, MapType) and types.is_map(values.type):
        keys = conform(values.keys, data_type.key_type, reading)
        items = conform(values.items, data_type.value_type, reading)
        entries = pa.StructArray.from_arrays([keys, items], fields=[wanted.key_field, wanted.item_field])
        return with_child(values, wanted, entries)
    if isinstance(data_type, ArrayType) and types.is_list(values.type):
        return with_child(values, wanted, conform(values.values, data_type.element_type, reading))
    if types.is_date32(values.type):
        return reading.calendars.dates(values).cast(wanted)
    if types.is_timestamp(values.type) and types.is_timestamp(wanted):
        return _conform_timestamp(values, wanted, reading)
    values = values if values.type == wanted else values.cast(wanted)
    if reading.exact and types.is_string(wanted):
        values.validate(full=True)  # Arrow would write invalid UTF-8 unchanged, and readers reject it
    return values


def _conform_timestamp(values: Any, wanted: Any, reading: Reading) -> Any:
    micros = as_micros(values, reading.exact)
    if wanted.tz is None:
        return micros.cast(wanted)
    # In Delta, a timestamp stored without a time zone (INT96, or marked as not adjusted to UTC) is in UTC.
    return reading.calendars.timestamps(micros.cast(wanted), int96=values.type.tz is None)


def _conform_struct(values: Any, data_type: StructType, reading: Reading) -> Any:
    wanted = type_to_arrow(data_type)
    if reading.exact:
        _check_fields(values.type, data_type)
    find = reading.lookup(list(values.type.fields))
    children = values.flatten()
    conformed = []
    for column in data_type.fields:
        index = find(column)
        if index is None:
            conformed.append(pa.nulls(len(values), type_to_arrow(column.data_type)))
        else:
            conformed.append(conform(children[index], column.data_type, reading))
    if not conformed:
        return pa.nulls(len(values), wanted)
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(conformed, fields=list(wanted.fields), mask=mask)


def _check_fields(stored: pa.StructType, data_type: StructType) -> None:
    """Raise pyarrow.ArrowInvalid if a struct in the file has a field that the table's type lacks, or has a field twice,
    because values would be lost."""
    wanted, found = {column.name.lower() for column in data_type.fields}, set[str]()
    for field in stored.fields:
        name = field.name.lower()
        if name in found or name not in wanted:
            why = "two fields" if name in found else "a field"
            raise pa.ArrowInvalid(f"the struct has {why} {field.name!r}{' up to case' if name in found else ''}")
        found.add(name)


def with_child(values: Any, wanted: pa.DataType, child: Any) -> Any:
    """``values`` (a list or map array) as type ``wanted`` with another child array but the same offsets and nulls. Null
    entries may have hidden values."""
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(wanted, len(values), [validity, offsets], offset=values.offset, children=[child])


def _conform_variant(values: Any) -> Any:
    """A variant column in the binary encoding, converted from shredded or unshredded storage."""
    wanted = type_to_arrow(VARIANT)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if not pa.types.is_struct(values.type):
        raise InvalidDataFileError(f"It has {values.type} where the table has a variant.")
    stored = {field.name: index for index, field in enumerate(values.type.fields)}
    metadata = values.field(stored["metadata"]).cast(pa.binary())
    if "typed_value" in stored:
        value = pa.array(variant_shredding.unshred(values), pa.binary())
    else:
        value = values.field(stored["value"]).cast(pa.binary())
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays([metadata, value], fields=list(wanted.fields), mask=mask)


def _variant_text(values: Any) -> pa.Array:
    metadata, value = (values.field(i).to_pylist() for i in range(2))
    present = values.is_valid().to_pylist()
    rows = ((m or b"", v or b"") if there else None for m, v, there in zip(metadata, value, present, strict=True))
    return pa.array(variant.texts(rows), pa.string())
