"""Reads rows of existing files by position: searches for rows that match a condition, scans files for a join, and
copies rows into new files together with changed rows.

Spec: PROTOCOL.md#deletion-vectors, #row-tracking.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
from pyroaring import BitMap64

from deltalog.arrow_arrays import FALSE, combined, uint64s
from deltalog.expressions.bound import Bound, columns_of
from deltalog.expressions.evaluate import matches
from deltalog.lazy_arrow import pc
from deltalog.log.file_tables import add_actions
from deltalog.parallel import THREADS, both, opened_ahead, read_ahead
from deltalog.parquet.file_reader import DataFile, FileLayout, OpenFile, open_file, read_files, read_vector
from deltalog.protocol import column_mapping, row_tracking
from deltalog.protocol.actions import AddFile
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.remote import parallel_gets
from deltalog.write.partition_files import num_writers

T = TypeVar("T")

# The minimum and the maximum for the number of bytes that one thread copies into new files; between them, the number is
# the total divided by the number of threads.
_LEAST_STREAM_BYTES, _MOST_STREAM_BYTES = 8 << 20, 32 << 20
# The number of rows per batch in joins and copies. A reading thread uses several times the memory of one batch.
_BATCH_ROWS = 1 << 16
# Two limits: the total file size in bytes above which threads read ahead while the caller writes, and the number of
# batches that those threads read ahead.
_LEAST_BYTES, _AHEAD = 1 << 20, 2


@dataclass(frozen=True, slots=True)
class FileMatch:
    """The rows of a file that match a condition.

    ``rows``: the number of rows in the Parquet file. ``deleted``: positions of rows that the deletion vector already
    deletes. ``matched``: positions of live rows that match.
    """

    file: AddFile
    rows: int
    deleted: BitMap64
    matched: BitMap64

    @property
    def kept(self) -> BitMap64:
        """The positions of the rows that remain live."""
        return in_range(0, self.rows) - self.deleted - self.matched


# ---------------------------------------------------------------------------------------------- positions


def bitmap(positions: Any) -> BitMap64:
    """Convert row positions, an Arrow column of 64-bit integers, to a bitmap."""
    numbers, values = combined(positions), array("Q")
    values.frombytes(memoryview(numbers.buffers()[1])[8 * numbers.offset : 8 * (numbers.offset + len(numbers))])
    return BitMap64(values)


def in_range(start: int, end: int) -> BitMap64:
    """The integers from ``start`` (inclusive) to ``end`` (exclusive)."""
    numbers = BitMap64()
    numbers.add_range(start, end)
    return numbers


def _positions(verdict: pa.Array, start: int) -> BitMap64:
    found = pc.indices_nonzero(verdict)
    if len(found) == len(verdict):
        return in_range(start, start + len(verdict))
    return bitmap(pc.add(found, pa.scalar(start, pa.uint64())))


def _chosen(batch: pa.RecordBatch, start: int, positions: BitMap64) -> pa.RecordBatch:
    """The rows of a batch at these positions. ``start``: the position of the batch's first row in the file."""
    some = in_range(start, start + batch.num_rows) & positions
    if len(some) == batch.num_rows:
        return batch
    if not some:
        return batch.slice(0, 0)
    return batch.take(pc.subtract(uint64s(some.to_array()), pa.scalar(start, pa.uint64())))


# ---------------------------------------------------------------------------------------------- searching


def search_files(snapshot: Snapshot, files: pa.Table, bound: Bound) -> Iterator[FileMatch]:
    """The rows of each file that match a condition. Cost: the GETs of the condition's columns and of the deletion
    vectors."""
    names = dict.fromkeys(column.path[0] for column in columns_of(bound))
    by_threads = files.num_rows < num_writers()

    def search(file: AddFile, deleted: BitMap64, opened: OpenFile) -> Iterator[FileMatch]:
        matched, rows = BitMap64(), 0
        for batch in _releasing_memory(opened.batches(by_threads)):
            table = pa.Table.from_batches([batch])
            verdict = pc.fill_null(matches(bound, table), FALSE)
            matched |= _positions(verdict, rows)
            rows += batch.num_rows
        yield FileMatch(file, rows, deleted, matched - deleted)

    return _read_with_vectors(snapshot, files, list(names), search)


def _read_with_vectors(
    snapshot: Snapshot,
    files: pa.Table,
    columns: Sequence[str],
    read: Callable[[AddFile, BitMap64, OpenFile], Iterator[T]],
) -> Iterator[T]:
    """Call ``read`` for each file, in order, with the file's deleted positions. The ``OpenFile`` that ``read`` receives
    also returns the rows that the deletion vector deletes."""
    layout = layout_of(snapshot, StructType(tuple(snapshot.schema.field(name) for name in columns)))
    found, openers = snapshot.reader.files, parallel_gets(snapshot.reader.store)

    def begin(file: AddFile) -> tuple[BitMap64, OpenFile]:
        vector, whole = file.deletion_vector, DataFile(file.path, file.partition_values, size=file.size)
        return both(
            lambda: BitMap64() if vector is None else read_vector(found, vector),
            lambda: open_file(found, whole, layout),
            openers > 0 and vector is not None,
        )

    batches = files.to_batches(max_chunksize=1000)
    adds = (file for batch in batches for file in add_actions(pa.Table.from_batches([batch])))
    return opened_ahead(adds, begin, lambda file, begun: read(file, *begun), openers, _readers(openers))


def _readers(openers: int) -> int:
    """The number of files that are decoded in parallel. More threads than processors would only use more memory."""
    return THREADS if openers else num_writers()


def _releasing_memory(items: Iterator[T]) -> Iterator[T]:
    """The batches of a file. After each batch, the reading thread releases the memory that Arrow's allocator caches for
    the thread, which is several times the size of the batch."""
    for item in items:
        yield item
        del item
        pa.default_memory_pool().release_unused()


@dataclass(frozen=True, slots=True)
class ScannedBatch:
    """A batch of live rows of one file. ``number``: the index of the file in the scan. ``start`` and ``end``: the range
    of positions in the Parquet file that the batch was read from. ``positions``: the positions of ``rows`` if some rows
    of the range are deleted, else None."""

    number: int
    file: AddFile
    deleted: BitMap64
    start: int
    positions: Any
    rows: pa.RecordBatch
    end: int

    def positions_of(self, rows: Any) -> Any:
        """The positions that some rows of this batch have in the Parquet file. ``rows``: indices of rows in this
        batch."""
        if self.positions is None:
            return pc.add(rows, pa.scalar(self.start, pa.int64())).cast(pa.uint64())
        return self.positions.take(rows)

    def without_rows(self) -> ScannedBatch:
        return replace(self, positions=None, rows=None)


def scan_files(snapshot: Snapshot, files: pa.Table, columns: Sequence[str]) -> Iterator[ScannedBatch]:
    """The live rows of files, in order; batches may be empty. The ``end`` of a file's last batch is the number
    of rows in the file. Cost: the GETs of these columns and of the deletion vectors."""

    by_threads = files.num_rows < num_writers()

    def read(file: AddFile, deleted: BitMap64, opened: OpenFile) -> Iterator[ScannedBatch]:
        start = 0
        for batch in _releasing_memory(opened.batches(by_threads, _BATCH_ROWS)):
            end = start + batch.num_rows
            positions, rows = None, batch
            if deleted.range_cardinality(start, end):
                positions = uint64s((in_range(start, end) - deleted).to_array())
                rows = batch.take(pc.subtract(positions, pa.scalar(start, pa.uint64())))
            yield ScannedBatch(-1, file, deleted, start, positions, rows, end)
            start = end

    number, last = -1, None
    for batch in _read_with_vectors(snapshot, files, columns, read):
        if batch.file is not last:
            number, last = number + 1, batch.file
        yield replace(batch, number=number)


# ---------------------------------------------------------------------------------------------- reading


def partition_of(file: AddFile) -> list[tuple[str, str]]:
    """A sort key that groups files by partition."""
    return sorted((name, value or "") for name, value in file.partition_values.items())


def matching_rows(snapshot: Snapshot, whole: pa.Table, partly: Sequence[FileMatch]) -> Iterator[pa.RecordBatch]:
    """First all live rows of the files ``whole`` (schema FILES), then the matching rows of the files ``partly``."""
    layout = layout_of(snapshot, snapshot.schema)
    requests = itertools.chain(
        ((DataFile.from_add(file), layout, None) for file in add_actions(whole)),
        ((_without_vector(each.file), layout, each.matched) for each in partly),
    )
    return read_files(snapshot.reader.files, requests, OpenFile.batches)


def _without_vector(file: AddFile) -> DataFile:
    """A live file without its deletion vector, for reads at positions that are known to be live."""
    return replace(DataFile.from_add(file), deletion_vector=None)


def layout_of(
    snapshot: Snapshot, schema: StructType, tracking: Sequence[row_tracking.RowTrackingColumn] = ()
) -> FileLayout:
    """The FileLayout with which these columns are read from the table's files."""
    mapping = column_mapping.mode_of(snapshot.metadata.configuration)
    return FileLayout(schema, snapshot.partition_columns, mapping, tracking)


# ---------------------------------------------------------------------------------------------- moving


@dataclass(frozen=True, slots=True)
class FileChange:
    """The rows of a file that are to be written into new files. ``kept``: positions of live rows to copy unchanged.
    ``changed``: positions of live rows that get new values; None if all of them do. ``rows``: the number of rows in the
    Parquet file, 0 if unknown. ``at``: the number of changed rows in all files before this one; undefined if
    ``changed`` is None for one of those files."""

    file: AddFile
    kept: BitMap64
    changed: BitMap64 | None
    rows: int = 0
    at: int = 0

    @property
    def written_bytes(self) -> int:
        """The approximate number of bytes that these rows occupy in the file."""
        if self.changed is None or not self.rows:
            return self.file.size
        return self.file.size * (len(self.kept) + len(self.changed)) // self.rows


def with_row_ids(new: pa.Table, old: pa.Table, names: Sequence[str], commit_versions: str | None) -> pa.Table:
    """``new`` with the row tracking columns ``names`` of ``old``. Row ids are kept; the column ``commit_versions``
    becomes null, so that readers use the commit version of the new file. Spec: PROTOCOL.md#row-tracking."""
    for name in names:
        values = old.column(name)
        new = new.append_column(name, pa.nulls(len(values), values.type) if name == commit_versions else values)
    return new


#: Computes new rows from a batch of old rows and the index of the batch's first row among all changed rows.
#: Called from several threads.
NewRows = Callable[[pa.RecordBatch, int], Iterable[pa.RecordBatch]]


def moved_rows(
    snapshot: Snapshot, changes: Sequence[FileChange], new_rows: NewRows | None = None, columns: Sequence[str] = ()
) -> list[Iterator[pa.RecordBatch]]:
    """The rows to write; they include row ids and commit versions if the table tracks rows. Each file is read once,
    partition by partition. Each returned stream can be read by its own thread; if there are several, each contains
    files of one partition. ``columns``: the columns to read if no file has rows to copy unchanged (``kept``); empty:
    all columns. Cost: the GETs of the files."""
    kept = row_tracking.kept_columns(snapshot.metadata.configuration, snapshot.url)
    schema = snapshot.schema
    if columns and not any(each.kept for each in changes):
        schema = StructType(tuple(field for field in schema if field.name in columns))
    layout = layout_of(snapshot, schema, kept)
    streams = _in_streams(sorted(changes, key=lambda each: partition_of(each.file)))
    found, openers = snapshot.reader.files, parallel_gets(snapshot.reader.store)
    readers, is_one = _readers(openers), len(streams) == 1
    if not is_one:
        openers = openers // num_writers()
    by_threads = is_one and sum(each.file.size for each in changes) >= _LEAST_BYTES

    def begin(change: FileChange) -> OpenFile:
        if change.changed is None:
            return open_file(found, DataFile.from_add(change.file), layout)
        return open_file(found, _without_vector(change.file), layout, change.kept | change.changed)

    def rows(some: Sequence[FileChange]) -> Iterator[pa.RecordBatch]:
        if openers or (by_threads and not _writes_most(some)):
            parts = opened_ahead(some, begin, _parts, openers, readers, 1)
        else:
            parts = (part for change in some for part in _parts(change, begin(change)))
            if by_threads:
                parts = read_ahead(parts, _AHEAD)
        for moved, old, at in parts:
            yield moved
            del moved
            if new_rows is not None and old.num_rows:
                yield from new_rows(old, at)
            del old

    return [rows(some) for some in streams]


def _parts(change: FileChange, opened: OpenFile) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, int]]:
    """For each batch: the kept rows, the changed rows, and the number of changed rows before the batch."""
    kept, changed = change.kept, change.changed
    if changed is None:
        for batch in _releasing_memory(opened.batches(False, _BATCH_ROWS)):
            yield batch.slice(0, 0), batch, change.at
        return
    for start, batch in _releasing_memory(opened.placed(False, _BATCH_ROWS)):
        at = change.at + changed.range_cardinality(0, start)
        part = _chosen(batch, start, kept), _chosen(batch, start, changed), at
        del batch
        yield part
        del part


def _writes_most(changes: Sequence[FileChange]) -> bool:
    """Whether most of the bytes that are read are also written to new files."""
    return 2 * sum(each.written_bytes for each in changes) > sum(each.file.size for each in changes)


def _in_streams(changes: Sequence[FileChange]) -> list[list[FileChange]]:
    """Split files, ordered by partition, into streams for parallel writers. A small rewrite uses only one stream."""
    threads = num_writers()
    total = sum(each.written_bytes for each in changes)
    most = max(_LEAST_STREAM_BYTES, min(_MOST_STREAM_BYTES, total // threads))
    if threads == 1 or total < 2 * most:
        return [list(changes)]
    streams: list[list[FileChange]] = []
    held_bytes, partition = 0, None
    for change in changes:
        if not streams or partition_of(change.file) != partition or held_bytes >= most:
            streams.append([])
            held_bytes, partition = 0, partition_of(change.file)
        streams[-1].append(change)
        held_bytes += change.written_bytes
    return streams
