"""``python -m tests.benchmarks.spark_loading FILES``: a table of so many files loaded in Spark, and one row of it read.

deltalog, delta-spark and plain Parquet in turn, in one session of one JVM. Prints JSON: the seconds of the first call,
the least and the median of the others, and the Spark jobs that loading ran. delta-spark's cache of logs is emptied
before each call; its ``load`` reads no list of files, so that the read of a row is what compares.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import deltalog

ROWS = 10
_LINKS = 20_000  # of one file; file systems allow some 65,000


def make(table: str, count: int) -> None:
    """A table of so many small files, which share their bytes."""
    data = pa.table({"id": pa.array(range(ROWS), pa.int64()), "text": [f"text {i}" for i in range(ROWS)]})
    transaction = deltalog.DeltaTable.create_transaction(table, deltalog.StructType.from_arrow(data.schema))
    first = Path()
    for number in range(count):
        path = Path(table) / f"part-{number:05d}-{uuid.UUID(int=number)}-c000.snappy.parquet"
        if number % _LINKS == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(data, path)
            first = path
        else:
            os.link(first, path)
        size = first.stat().st_size
        transaction.add(
            deltalog.AddFile(
                path=path.name, partition_values={}, size=size, modification_time=1_700_000_000_000, data_change=True
            )
        )
    transaction.commit("WRITE")


def measure(table: str, repeats: int, check: bool) -> dict[str, Any]:
    from tests.support.spark.session import delta_session, stop_sessions

    # The tests' sessions do without the second compiler; here it runs, as in production.
    spark = delta_session(**{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"})
    import spark_ext

    systems: dict[str, Callable[[], Any]] = {
        "deltalog": lambda: spark_ext.read(spark).load(table),
        "delta-spark": lambda: spark.read.format("delta").load(table),
        "parquet": lambda: spark.read.schema("id long, text string").parquet(table),
    }
    tracker = spark.sparkContext.statusTracker()
    found: dict[str, dict[str, Any]] = {name: {"load": [], "row": []} for name in systems}
    for _ in range(repeats + 1):
        for name, load in systems.items():
            spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
            jobs, begin = set(tracker.getJobIdsForGroup()), time.perf_counter()
            df = load()
            loaded = time.perf_counter()
            found[name]["jobs"] = len(set(tracker.getJobIdsForGroup()) - jobs)
            assert len(df.limit(1).collect()) == 1
            found[name]["load"].append(loaded - begin)
            found[name]["row"].append(time.perf_counter() - begin)
            if check:
                found[name]["rows"] = df.count()
    stop_sessions()
    for values in found.values():
        for call in ("load", "row"):
            first, *others = values[call]
            seconds = {"first": first, "least": min(others), "median": statistics.median(others)}
            values[call] = {key: round(value, 3) for key, value in seconds.items()}
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_loading", description=__doc__)
    parser.add_argument("files", type=int)
    parser.add_argument("--repeats", type=int, default=5, help="after the first; default: %(default)s")
    parser.add_argument("--check", action="store_true", help="count the rows, too")
    parser.add_argument("--below", type=Path, help="the directory of the table (default: that for temporary files)")
    chosen = parser.parse_args(arguments)
    root = tempfile.mkdtemp(dir=chosen.below)
    try:
        make(f"{root}/table", chosen.files)
        print(json.dumps({"files": chosen.files, **measure(f"{root}/table", chosen.repeats, chosen.check)}))
    finally:
        shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
