"""Rows that Spark finds in the files of a table, as bitmaps of their positions.

Executors make the bitmaps, 4 KiB for 32,768 rows of a file that have at least one; only these reach the driver.
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

# The rows of one bitmap of Spark's.
_ROWS = 32_768
# In rows that are selected again by what they were found by: see ``mark``.
MARK = "__deltalog_mark"


def mark() -> Column:
    """A number for a row with FILE and ROW; those of all rows of an outcome together, by XOR, are its digest. The last
    part of the file's name stands for the file: Spark spells the others in two ways."""
    return F.expr(f"xxhash64(substring_index({FILE}, '/', -1), {ROW})")


@dataclass(frozen=True)
class Found:
    """Positions by outcome and by the number of the file. ``digests``: by outcome, as ``mark`` has them."""

    rows: Mapping[int, dict[int, BitMap64]]
    digests: Mapping[int, int]
    num_faults: int


def positions(found: DataFrame, entries: Sequence[Entry]) -> Found:
    """The positions of rows, as those of the outcome 0, by the numbers of their files among ``entries``. ``found``:
    with FILE and ROW, each row once.

    Raises RowCountError for a row that is there twice, and Spark's own errors. Memory: the bitmaps. Cost: a job, with a
    row for each bitmap as its result.
    """
    return outcomes(found.withColumn(OUTCOME, F.lit(0)), entries)


def outcomes(found: DataFrame, entries: Sequence[Entry], faults: Column | None = None) -> Found:
    """As ``positions``, by OUTCOME. ``faults``: how many rows of a group cannot be changed."""
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
                f"{key}: Spark found {num_rows} rows in a part of the file, and {len(rows)} different positions of "
                "rows. Nothing was committed; check that the table's files have one path each.",
                written=int(num_rows),
                found=len(rows),
            )
        by_outcome.setdefault(outcome, {}).setdefault(numbers[key], BitMap64()).update(rows)
        digests[outcome] = digests.get(outcome, 0) ^ digest
    return Found(by_outcome, digests, num_faults)


def _decoded(bitmap: bytes, first: int) -> BitMap64:
    """A bitmap of Spark, lowest bit first, as positions from ``first`` on."""
    flags = pa.Array.from_buffers(pa.bool_(), 8 * len(bitmap), [None, pa.py_buffer(bitmap)])
    numbers: Any = pc.add(pc.indices_nonzero(flags).cast(pa.uint64()), pa.scalar(first, pa.uint64()))
    values = array.array("Q")
    values.frombytes(memoryview(numbers.buffers()[1])[8 * numbers.offset : 8 * (numbers.offset + len(numbers))])
    return BitMap64(values)
