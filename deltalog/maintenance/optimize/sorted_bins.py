"""Rewrites files in Z-order, in bounded memory.

The key columns are sampled to divide the Z-order into ranges. As the files are read, rows are assigned to ranges, and
spilled to temporary files if they exceed MEMORY_BYTES. Each new file contains the rows of consecutive ranges, and each
range is sorted separately.

Spec: PROTOCOL.md#writer-requirements-for-clustered-table (clusteringProvider).
"""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from deltalog.arrow_arrays import for_ipc, int64s
from deltalog.lazy_arrow import pc
from deltalog.log.file_tables import add_actions
from deltalog.maintenance.optimize.plan import in_cube
from deltalog.maintenance.optimize.rewritten_bins import BinWriter, Rewritten
from deltalog.maintenance.optimize.z_order import Curve, quantiles, range_numbers, values_of
from deltalog.parallel import mapped
from deltalog.parquet.file_reader import FileLayout
from deltalog.protocol.actions import AddFile
from deltalog.protocol.schema import StructType

#: The size of the rows that are held in memory before they are spilled.
MEMORY_BYTES = 32 << 20
#: The maximum size of the rows that are sorted together.
RANGE_BYTES = 12 << 20
_SAMPLE_ROWS = 200_000
_MOST_RANGES = 1023
_RANGE_BITS = 10
# If the files have at most this total size, one thread reads all of them.
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ZOrder:
    """Rewrites the files of a bin, in Z-order of ``columns`` (paths in the schema), into files of about
    ``target_bytes``. ``cube``: for a clustered table, the clustering columns as JSON text; the new files then form one
    cube."""

    columns: Sequence[tuple[str, ...]]
    target_bytes: int
    threads: int
    cube: str | None = None

    def __call__(self, writer: BinWriter, files: pa.Table) -> Rewritten:
        """Memory: about MEMORY_BYTES, plus twice RANGE_BYTES per thread. Raises as ``BinWriter.rewrite``. Cost: the
        GETs of the key columns, then of all columns, 1 PUT for each new file; temporary files up to the size of the
        rows."""
        adds = add_actions(files)
        curve, places, rows = self._sampled(writer, adds, self.columns)
        if not rows:
            writer.check_rows(files, [0], 0)
            return Rewritten((), 0)
        count = max(1, min(rows, round(sum(add.size for add in adds) / self.target_bytes)))
        with tempfile.TemporaryDirectory(prefix="deltalog-z-order-") as directory:
            ranges = _Ranges(directory, curve, places, rows, count)
            counted = list(mapped(_chunks(adds), lambda some: self._routed(writer, some, ranges), self.threads, 0))
            made = list(
                mapped(
                    ranges.of_files(),
                    lambda numbers: writer.write_rows(lambda: ranges.sorted(numbers), adds[0].partition_values),
                    self.threads,
                    0,
                )
            )
        new = [add for each in made for add in each.adds]
        if self.cube is not None:
            new = in_cube(new, writer.new_uuid(), self.cube)
        written = Rewritten(new, sum(each.rows for each in made))
        writer.check_rows(files, [number for each in counted for number in each], written.rows)
        return written

    def _sampled(
        self, writer: BinWriter, adds: Sequence[AddFile], paths: Sequence[tuple[str, ...]]
    ) -> tuple[Curve, pa.Array, int]:
        """The Z-order curve, the positions of sampled rows on it, and the total number of rows."""
        schema = writer.write.schema
        fields = tuple(schema.field(name) for name in dict.fromkeys(path[0] for path in paths))
        layout = FileLayout(StructType(fields), (), writer.read.mapping)
        total = writer.live_rows_by_log(adds)
        step = max(1, (total or 16 * _SAMPLE_ROWS) // _SAMPLE_ROWS)

        def sample(some: Sequence[AddFile]) -> tuple[int, list[list[pa.Array]]]:
            counted: list[int] = []
            found: list[list[pa.Array]] = []
            before = 0
            for batch in writer.batches(some, layout, counted):
                at = int64s(range(-before % step, batch.num_rows, step))
                found.append([values_of(batch, path).take(at) for path in paths])
                before += batch.num_rows
            return sum(counted), found

        rows, samples = 0, list[list[pa.Array]]()
        for count, found in mapped(_chunks(adds), sample, self.threads, 0):
            rows += count
            samples += found
        if not samples:
            return Curve(paths, (), 1, ()), int64s([]), rows
        columns = [pa.concat_arrays(each) for each in zip(*samples, strict=True)]
        curve = Curve.from_samples(paths, columns)
        return curve, curve.numbers(columns), rows

    def _routed(self, writer: BinWriter, adds: Sequence[AddFile], ranges: _Ranges) -> list[int]:
        counted: list[int] = []
        for piece in writer.conformed(writer.batches(adds, writer.read, counted)):
            ranges.add(piece)
        return counted


def _chunks(adds: Sequence[AddFile]) -> Iterator[list[AddFile]]:
    chunk: list[AddFile] = []
    for add in adds:
        chunk.append(add)
        if sum(each.size for each in chunk) >= _CHUNK_BYTES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class _Ranges:
    """Buffers the rows of each range of the sort order in memory, and spills them to temporary files. Threads may share
    the object."""

    def __init__(self, directory: str, curve: Curve, sample: pa.Array, rows: int, files: int) -> None:
        self._directory = directory
        self._curve = curve
        self._sample = sample
        self._rows = rows
        self._num_files = files
        self._lock = threading.Lock()
        self._bounds: pa.Array | None = None
        self._held: dict[int, list[pa.Table]] = {}
        self._held_bytes = 0
        self._spilled: dict[int, pa.RecordBatchFileWriter] = {}

    def add(self, rows: pa.Table) -> None:
        """Assign rows to their ranges."""
        with self._lock:
            if self._bounds is None:
                self._bounds = self._cut(rows.nbytes / max(1, rows.num_rows))
        place = self._curve.of_rows(rows)
        number = range_numbers(place, self._bounds, _RANGE_BITS)
        order = pc.array_sort_indices(number)
        table = rows.append_column(_PLACE, place).take(order)
        counts = pc.value_counts(number).to_pylist()
        parts: list[tuple[int, pa.Table]] = []
        start = 0
        for each in sorted(counts, key=lambda each: each["values"]):
            parts.append((each["values"], table.slice(start, each["counts"])))
            start += each["counts"]
        with self._lock:
            for range_number, part in parts:
                self._held.setdefault(range_number, []).append(part)
            self._held_bytes += table.nbytes
            if self._held_bytes > MEMORY_BYTES:
                self._spill()

    def _cut(self, row_bytes: float) -> pa.Array:
        """The bounds of ranges of the sort order, each with about RANGE_BYTES of rows; the number of ranges is a
        multiple of the number of new files."""
        of_file = max(1, round(self._rows * row_bytes / self._num_files / RANGE_BYTES + 0.5))
        self._num_files = min(self._num_files, _MOST_RANGES)
        return quantiles(self._sample, min(_MOST_RANGES // self._num_files, of_file) * self._num_files)

    def _spill(self) -> None:
        for number, tables in self._held.items():
            table = pa.concat_tables(tables).combine_chunks()
            if number not in self._spilled:
                path = os.path.join(self._directory, str(number))
                options = pa.ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)
                self._spilled[number] = pa.ipc.new_file(path, table.schema, options=options)
            for batch in table.to_batches(max_chunksize=1 << 16):
                self._spilled[number].write_batch(for_ipc(batch))
        self._held, self._held_bytes = {}, 0

    def of_files(self) -> list[list[int]]:
        """For each new file, in order: the numbers of the Z-order ranges that it contains. Call this method only after
        all rows have been added."""
        for spilled in self._spilled.values():
            spilled.close()
        present = sorted({*self._held, *self._spilled})
        count = min(self._num_files, len(present))
        cuts = [number * len(present) // count for number in range(count + 1)]
        return [present[start:end] for start, end in itertools.pairwise(cuts)]

    def sorted(self, numbers: Sequence[int]) -> Iterator[pa.Table]:
        """The rows of the given ranges, sorted. A range that is much larger than others, for example because many rows
        are equal, is sorted in parts."""
        for number in numbers:
            for rows in self._parts(number):
                yield rows.take(pc.array_sort_indices(rows.column(_PLACE).combine_chunks())).drop_columns([_PLACE])

    def _parts(self, number: int) -> Iterator[pa.Table]:
        held: list[pa.Table] = []
        for table in self._tables(number):
            held.append(table)
            if sum(each.nbytes for each in held) > 4 * RANGE_BYTES:
                yield pa.concat_tables(held)
                held = []
        if held:
            yield pa.concat_tables(held)

    def _tables(self, number: int) -> Iterator[pa.Table]:
        if number in self._spilled:
            with pa.OSFile(os.path.join(self._directory, str(number))) as file:
                reader = pa.ipc.open_file(file)
                for batch in range(reader.num_record_batches):
                    yield pa.Table.from_batches([reader.get_batch(batch)])
        yield from self._held.get(number, ())


_PLACE = "\0place"
