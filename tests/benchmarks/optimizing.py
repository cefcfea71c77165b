"""Compaction and Z-order compared with deltalake and delta-spark: ``python -m tests.benchmarks.optimizing [--quick]``.

Each operation runs in a separate process on a fresh copy of a table. For each operation the benchmark prints the wall
and CPU time, the peak memory above that of the process before the operation, the number and size of the new files, and
the bytes that must still be read for conditions on each of two columns. The systems must agree on the number of rows
and on the sums of their values.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.benchmarks.row_changes import Peak, answer

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.float64()), ("x", pa.int64()), ("y", pa.int64()), ("name", pa.string())]
)
OPERATIONS = ("compact", "z-order")
SYSTEMS = ("deltalog", "deltalake", "delta-spark")
#: Medians of these are printed. CPU time covers this process, not a JVM.
FIGURES = ("seconds", "processor_seconds", "peak_mib")
_RANGE = 1_000_000
#: Each condition selects 1 % of the rows.
CONDITIONS = tuple(f"{name} >= {at} AND {name} < {at + _RANGE // 100}" for name in "xy" for at in (0, 410_000, 990_000))


def _rows(first: int, count: int) -> pa.Table:
    """Rows with ``count`` consecutive ids from ``first`` on, and with random numbers that depend only on the ids."""
    ids = pa.array(range(first, first + count), pa.int64())
    x, y = (
        pc.floor(pc.multiply(pc.random(count, initializer=2 * first + which), float(_RANGE))).cast(pa.int64())
        for which in range(2)
    )
    last_digits = pc.subtract(ids, pc.multiply(pc.divide(ids, 1000), 1000)).cast(pa.string())
    names = pc.binary_join_element_wise("name of ", last_digits, "")
    return pa.table([ids, pc.divide(ids.cast(pa.float64()), 2.0), x, y, names], schema=SCHEMA)


def build(path: Path, files: int, rows_of_file: int) -> None:
    """A table of ``files`` files, in one commit."""
    from deltalog import DeltaTable

    table = DeltaTable.create(path, SCHEMA)
    with table.transaction() as transaction:
        for number in range(files):
            transaction.write(_rows(number * rows_of_file, rows_of_file).to_reader())
        transaction.commit("WRITE")


def call(system: str, operation: str, path: str, target: int) -> Callable[[], Any]:
    """A function that runs the operation. Its measured time excludes imports, the start of a session and the opening of
    the table."""
    if system == "delta-spark":
        from tests.benchmarks.sessions import with_delta_spark

        sizes = ("maxFileSize", "minFileSize")
        spark = with_delta_spark(**{f"spark.databricks.delta.optimize.{name}": str(target) for name in sizes})
        order = " ZORDER BY (x, y)" if operation == "z-order" else ""
        spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()
        return lambda: spark.sql(f"OPTIMIZE delta.`{path}`{order}").collect()
    table: Any
    if system == "deltalake":
        import deltalake

        table = deltalake.DeltaTable(path)
    else:
        from deltalog import DeltaTable

        table = DeltaTable.open(path)
    if operation == "compact":
        return lambda: table.optimize.compact(target_size=target)
    return lambda: table.optimize.z_order(["x", "y"], target_size=target)


def _child(system: str, operation: str, path: str, target: int) -> None:
    run = call(system, operation, path, target)
    with Peak() as peak:
        started, worked = time.perf_counter(), time.process_time()
        run()
        seconds, worked = time.perf_counter() - started, time.process_time() - worked
    found = {
        "seconds": seconds,
        "processor_seconds": worked,
        "peak_mib": peak.most_mib - peak.before_mib,
        "answer": answer(path),
        **layout(path),
    }
    print(json.dumps(found))


def layout(path: str) -> dict[str, Any]:
    """The number of files, their total size in bytes, and the average share of these bytes that must be read for a
    condition in CONDITIONS."""
    from deltalog import DeltaTable

    snapshot = DeltaTable.open(path).snapshot()
    left = [sum(snapshot.scan(where=each).files()["size"].to_pylist()) for each in CONDITIONS]
    return {
        "files": snapshot.num_files,
        "bytes": snapshot.size_bytes,
        "read_part": statistics.mean(left) / snapshot.size_bytes,
    }


def measure(system: str, operation: str, path: Path, target: int) -> dict[str, Any]:
    """One run in a separate process, on a copy of the table."""
    copy = path.with_name("copy")
    shutil.copytree(path, copy, copy_function=os.link)
    try:
        done = subprocess.run(
            [
                sys.executable, "-m", "tests.benchmarks.optimizing",
                "--child", system, operation, str(copy), str(target),
            ],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    finally:
        shutil.rmtree(copy)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(
    place: Path, operation: str, made: tuple[int, int, int], repeats: int, systems: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The medians of each system. ``made``: the number of files of the table, the number of rows in each file, and the
    number of files after the operation. Raises AssertionError if they disagree on the rows."""
    from deltalog import DeltaTable

    path = place / operation
    files, rows_of_file, new_files = made
    build(path, files, rows_of_file)
    target = DeltaTable.open(path).snapshot().size_bytes // new_files
    found, answers = [], {}
    for system in systems:
        runs = [measure(system, operation, path, target) for _ in range(repeats)]
        answers[system] = [round(value, 1) for value in runs[0]["answer"]]
        figures = {name: statistics.median(run[name] for run in runs) for name in FIGURES}
        others = {name: runs[0][name] for name in ("files", "bytes", "read_part")}
        found.append({"operation": operation, "system": system, **figures, **others})
    assert len({tuple(each) for each in answers.values()}) == 1, (operation, answers)
    shutil.rmtree(path)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="files to compact, into a hundredth of their number")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows to Z-order")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--quick", action="store_true", help="200 files and 100,000 rows once: a check, not figures")
    parser.add_argument("--directory", default=None)
    parser.add_argument("--child", nargs=4)
    chosen = parser.parse_args()
    if chosen.child:
        system, operation, path, target = chosen.child
        _child(system, operation, path, int(target))
        return
    files, rows, repeats = (200, 100_000, 1) if chosen.quick else (chosen.files, chosen.rows, chosen.repeats)
    systems = tuple(chosen.systems.split(","))
    with tempfile.TemporaryDirectory(dir=chosen.directory) as place:
        for operation, made in (("compact", (files, 1000, files // 100)), ("z-order", (40, rows // 40, 40))):
            for each in compare(Path(place), operation, made, repeats, systems):
                print(
                    f"{operation}, {each['system']}: {each['seconds']:.2f} s, {each['processor_seconds']:.2f} s of "
                    f"the processors, {each['peak_mib']:.0f} MiB, "
                    f"{each['files']:,} files, {each['bytes']:,} bytes, {each['read_part']:.1%} for a condition",
                    flush=True,
                )


if __name__ == "__main__":
    main()
