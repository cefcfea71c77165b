"""Keeps rows that do not fit in memory in unnamed temporary files. The operating system deletes the temporary files
when the process ends, even if it is killed.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import for_ipc
from deltalog.errors import StoreError
from deltalog.lazy_arrow import pc


class SpilledRows:
    """Record batches with the same schema, which are written in sequence and then read in any order.

    The file is in the directory of Python's ``tempfile`` (TMPDIR) and has no name, so that the operating system deletes
    it when the last reference to its rows is dropped or the process is killed. Batches are memory-mapped rather than
    copied, so the operating system can evict them.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Raises StoreError."""
        self.schema = schema
        self._count = 0
        self._mapped: pa.RecordBatchFileReader | None = None
        try:
            self._file = tempfile.TemporaryFile(prefix="deltalog-")  # noqa: SIM115
            self._writer = pa.ipc.new_file(self._file, schema)
        except OSError as error:
            raise _full(error) from error

    def add(self, batch: pa.RecordBatch) -> int:
        """Write a batch. Returns its number. Raises StoreError."""
        try:
            self._writer.write_batch(for_ipc(batch))
        except OSError as error:
            raise _full(error) from error
        self._count += 1
        return self._count - 1

    def batch(self, number: int) -> pa.RecordBatch:
        """Return a batch. No rows can be added after the first read."""
        if self._mapped is None:
            try:
                self._writer.close()
                self._file.flush()
                memory = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError as error:
                raise _full(error) from error
            self._file.close()
            self._mapped = pa.ipc.open_file(pa.py_buffer(memory))
        return self._mapped.get_batch(number)

    def table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches([self.batch(number) for number in range(self._count)], schema=self.schema)


def _full(error: OSError) -> StoreError:
    return StoreError(
        f"Rows that do not fit in memory cannot be written to the temporary directory {tempfile.gettempdir()}: "
        f"{error}. Nothing was committed. Free space there, or set TMPDIR to another directory.",
        path=tempfile.gettempdir(),
    )


class HashPartitions:
    """Rows in temporary files, grouped by the number of their hash partition."""

    def __init__(self, schema: pa.Schema, count: int) -> None:
        self._rows = SpilledRows(schema)
        self._batches: list[list[int]] = [[] for _ in range(count)]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._rows.schema

    @property
    def count(self) -> int:
        """The number of partitions."""
        return len(self._batches)

    def add(self, rows: pa.Table, numbers: Any) -> None:
        """Add rows to partitions. ``numbers``: for each row, the number of its partition. Memory: that of a second copy
        of the rows. Raises StoreError."""
        if not rows.num_rows:
            return
        order = pc.sort_indices(numbers)
        rows, runs = rows.take(order).combine_chunks(), pc.run_end_encode(numbers.take(order))
        start = 0
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            batches = rows.slice(start, end - start).to_batches()
            self._batches[number] += [self._rows.add(batch) for batch in batches]
            start = end

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The batches of a partition, in insertion order."""
        return map(self._rows.batch, self._batches[number])
