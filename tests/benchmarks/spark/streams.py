"""Measures streams from table to table, compared with delta-spark and plain Parquet: ``python -m
tests.benchmarks.spark.streams``.

For each system it measures two rates: micro-batches per second, with one one-row file in each batch, and rows per
second, with large files in a few batches.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import deltalog
import spark_ext
from tests.benchmarks.sessions import with_delta_spark
from tests.support.spark import stop_sessions

_COLUMNS = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("text", pa.string())])
_DDL = "id long, amount double, text string"


@dataclass(frozen=True)
class Way:
    """``start`` begins a query from the input to a location, and ``count`` reads back the rows."""

    name: str
    source: Callable[[Any, Path, int], Any]
    sink: Callable[[Any, str, str], Any]
    count: Callable[[Any, str], int]


def _source(kind: str) -> Callable[[Any, Path, int], Any]:
    def read(spark: Any, table: Path, files: int) -> Any:
        reader = spark.readStream.format(kind).option("maxFilesPerTrigger", files)
        return (reader.schema(_DDL) if kind == "parquet" else reader).load(str(table))

    return read


def _sink(kind: str) -> Callable[[Any, str, str], Any]:
    return lambda frame, path, checkpoint: (
        frame.writeStream.format(kind).option("checkpointLocation", checkpoint).option("path", path)
    )


def _for_each_batch(frame: Any, path: str, checkpoint: str) -> Any:
    write = spark_ext.stream_writer(path, "benchmark")

    def each(df: Any, batch_id: int) -> None:
        write(df, batch_id)

    return frame.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)


def _count(kind: str) -> Callable[[Any, str], int]:
    return lambda spark, path: int(spark.read.format(kind).load(path).count())


WAYS = (
    Way("parquet to parquet", _source("parquet"), _sink("parquet"), _count("parquet")),
    Way("delta-spark to delta-spark", _source("delta"), _sink("delta"), _count("delta")),
    Way("deltalog to deltalog", _source("deltalog"), _sink("deltalog"), _count("delta")),
    Way("deltalog to parquet", _source("deltalog"), _sink("parquet"), _count("parquet")),
    Way("parquet to deltalog", _source("parquet"), _sink("deltalog"), _count("delta")),
    Way("parquet to foreachBatch", _source("parquet"), _for_each_batch, _count("delta")),
)


def _table(path: Path, files: int, rows: int) -> None:
    table = deltalog.DeltaTable.create(path, _COLUMNS)
    for number in range(files):
        first = number * rows
        ids = range(first, first + rows)
        data = {"id": ids, "amount": [each / 3 for each in ids], "text": [f"text {each % 1000}" for each in ids]}
        table.append(pa.table(data, _COLUMNS))


def _run(spark: Any, way: Way, table: Path, scratch: Path, files_at_once: int, rows: int) -> float:
    """Seconds from the start of a query to its end. Checks the number of rows in the output."""
    place = Path(tempfile.mkdtemp(dir=scratch))
    output = str(place / "output")
    began_s = time.monotonic()
    query = way.sink(way.source(spark, table, files_at_once), output, str(place / "checkpoint"))
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    taken_s = time.monotonic() - began_s
    found = way.count(spark, output)
    assert found == rows, f"{way.name}: {found} rows, {rows} expected"
    return taken_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark.streams", description=__doc__)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rows", type=int, default=500_000, help="rows of each of the 8 large files")
    given = parser.parse_args()
    spark = with_delta_spark(**{"spark.sql.shuffle.partitions": "2"})
    spark_ext.register(spark)
    with tempfile.TemporaryDirectory(prefix="deltalog-streams-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        small, warm, large = scratch / "small", scratch / "warm", scratch / "large"
        _table(small, given.batches, 1)
        _table(warm, 3, 1)
        _table(large, 8, given.rows)
        print("| | micro-batches/s | rows/s |\n| --- | --- | --- |")
        for way in WAYS:
            _run(spark, way, warm, scratch, 1, 3)
            batches_s = _run(spark, way, small, scratch, 1, given.batches)
            rows_s = _run(spark, way, large, scratch, 4, 8 * given.rows)
            print(f"| {way.name} | {given.batches / batches_s:.1f} | {8 * given.rows / rows_s:,.0f} |", flush=True)
    stop_sessions()


if __name__ == "__main__":
    main()
