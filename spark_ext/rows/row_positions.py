"""The positions of rows that Spark finds in the files of a table, as bitmaps.

Executors build the bitmaps: 4 KiB for each block of 32,768 rows of a file in which at least one row matches. Only the
bitmaps reach the driver.
"""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading.file_entries import Entry
from spark_ext.reading.scan import FILE, OUTCOME, ROW
from spark_ext.session import paths
from spark_ext.session.jobs import cancelled_with_its_caller

# The number of rows that a bitmap of bitmap_construct_agg covers.
_ROWS = 32_768
# The name of the column that contains ``mark``, in rows that the conditions select for the second time.
MARK = "__deltalog_mark"


def mark() -> Column:
    """A hash of the FILE and ROW of a row. The XOR of the hashes of all rows with the same outcome is the digest of
    this outcome. Only the last segment of the path is hashed, because Spark spells the other segments in two ways."""
    return F.expr(f"xxhash64(substring_index({FILE}, '/', -1), {ROW})")


@dataclass(frozen=True)
class Found:
    """The rows that a job found."""

    #: Row positions, keyed by outcome and then by file number.
    rows: Mapping[int, dict[int, BitMap64]]
    #: For each outcome, the XOR of the ``mark`` values of its rows.
    digests: Mapping[int, int]
    #: The number of found rows that the operation is not allowed to change.
    num_faults: int


def positions(found: DataFrame, entries: Sequence[Entry]) -> Found:
    """The positions of the rows in ``found``; all rows get outcome 0. File numbers are indices into ``entries``.
    ``found``: rows with FILE and ROW, without duplicates.

    Raises RowCountError for a repeated row, and Spark's own errors. Memory: the bitmaps. Cost: a job that returns one
    row per bitmap.
    """
    return outcomes(found.withColumn(OUTCOME, F.lit(0)), entries)


def outcomes(found: DataFrame, entries: Sequence[Entry], faults: Column | None = None) -> Found:
    """Like ``positions``, but for rows with an OUTCOME column: separate positions for each outcome. ``faults``: an
    aggregate that counts the rows that cannot be changed."""
    bits = F.expr(f"bitmap_construct_agg({ROW} % {_ROWS})").alias("bits")
    counted = F.count(F.lit(1)).alias("num_rows")
    wrong = (F.lit(0) if faults is None else faults).alias("faults")
    groups = found.groupBy(OUTCOME, FILE, F.expr(f"{ROW} div {_ROWS}").alias("at"))
    job = groups.agg(bits, counted, wrong, F.bit_xor(mark()).alias("digest"))
    numbers = {key: number for number, entry in enumerate(entries) for key in paths.file_keys(entry.path)}
    by_outcome: dict[int, dict[int, BitMap64]] = {}
    digests: dict[int, int] = {}
    num_faults = 0
    answers = cancelled_with_its_caller(found.sparkSession, job.collect)
    for outcome, key, at, bitmap, num_rows, wrong_rows, digest in answers:
        num_faults += wrong_rows
        rows = _decoded(bytes(bitmap), int(at) * _ROWS)
        if len(rows) != num_rows:
            raise deltalog.errors.RowCountError(
                f"{key}: Spark found {num_rows} rows in a part of the file, but {len(rows)} distinct row positions. "
                "Nothing was committed; check that the log lists every file under one path.",
                written=int(num_rows),
                found=len(rows),
            )
        by_outcome.setdefault(outcome, {}).setdefault(numbers[key], BitMap64()).update(rows)
        digests[outcome] = digests.get(outcome, 0) ^ digest
    return Found(by_outcome, digests, num_faults)


def _decoded(bitmap: bytes, first: int) -> BitMap64:
    """The positions of the set bits in a bitmap from Spark (lowest bit first), counted from ``first``."""
    flags = pa.Array.from_buffers(pa.bool_(), 8 * len(bitmap), [None, pa.py_buffer(bitmap)])
    numbers: Any = pc.add(pc.indices_nonzero(flags).cast(pa.uint64()), pa.scalar(first, pa.uint64()))
    values = array.array("Q")
    values.frombytes(memoryview(numbers.buffers()[1])[8 * numbers.offset : 8 * (numbers.offset + len(numbers))])
    return BitMap64(values)
