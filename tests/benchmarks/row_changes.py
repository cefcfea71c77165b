"""Merges, updates and deletes compared with deltalake: ``python -m tests.benchmarks.row_changes [--rows N] [--repeats
N]``.

Each operation runs in separate processes on fresh copies of a table of ten partitions. The operation is measured twice.
In one process it is the first call that is made at all. In another process it follows the same operation on a small
table, so that all code is already imported: deltalog's SQL parser is imported at its first use, deltalake's when
deltalake is imported. The benchmark prints the time of the call; the time of the first call, including the import of
the package and the opening of the table; how much the first call raises the peak memory of the process; and the number
and sums of the resulting rows, which must be the same for both systems.
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
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.float64()), ("name", pa.string())])
PARTITIONS, FILES = 10, 40
OPERATIONS = ("merge spread", "merge one partition", "update", "delete")
FLOOR = "floor"  # pyarrow alone: reads the files that a merge reads, and writes their rows again
SYSTEMS = ("deltalog", "deltalog, vectors", "deltalake")  # deltalake does not write deletion vectors
FIGURES = ("seconds", "cpu_seconds", "first_seconds", "peak_mib")
_SMALL = 1000  # number of rows in the small table on which the operation runs first
_VECTORS = {"delta.enableDeletionVectors": "true"}


def _rows(numbers: Any, add: float = 0.0) -> pa.Table:
    """Rows with these numbers as ids; the hundreds digit of an id is its partition."""
    ids = pa.array(numbers, pa.int64())
    hundreds = pc.divide(pc.subtract(ids, pc.multiply(pc.divide(ids, 1000), 1000)), 1000 // PARTITIONS)
    columns = [ids, hundreds.cast(pa.string()), pc.add(ids.cast(pa.float64()), add)]
    return pa.Table.from_arrays(
        [*columns, pc.binary_join_element_wise("name of ", ids.cast(pa.string()), "")], schema=SCHEMA
    )


def build(path: Path, rows: int, vectors: bool) -> None:
    """A table with ``rows`` rows, whose files are spread over all partitions."""
    from deltalog import DeltaTable

    DeltaTable.create(path, SCHEMA, partition_by=["p"], properties=_VECTORS if vectors else {})
    step = max(1, rows * PARTITIONS // FILES)
    for start in range(0, rows, step):
        DeltaTable.open(path).append(_rows(range(start, min(rows, start + step))))


def source(operation: str, rows: int) -> pa.Table:
    """Source rows for 1 % of the table; one in ten is new."""
    wanted = rows // 100
    old, new = wanted - wanted // 10, wanted // 10
    if operation == "merge one partition":  # the ids 200 to 299 of each thousand
        at = [1000 * (n // 100) + 200 + n % 100 for n in range(rows // PARTITIONS)]
        chosen = at[:: max(1, len(at) // old)][:old]
        return _rows(chosen + [rows // 1000 * 1000 + 1000 * (1 + n // 100) + 200 + n % 100 for n in range(new)], 0.5)
    chosen = list(range(0, rows, rows // old))[:old]
    return _rows(chosen + list(range(rows, rows + new)), 0.5)


def join_on(operation: str) -> str:
    extra = " AND target.p = source.p AND target.p = '2'" if operation == "merge one partition" else ""
    return f"target.id = source.id{extra}"


def condition() -> str:
    return "id % 1000 = 7"


def call(system: str, operation: str, path: str, given: pa.Table) -> Callable[[], Any]:
    """A function that runs the operation on an open table."""
    if system == FLOOR:
        parts = sorted(Path(path).glob("p=2" if operation == "merge one partition" else "p=*"))
        return lambda: copied_by_pyarrow(parts)
    if system == "deltalake":
        import deltalake

        table: Any = deltalake.DeltaTable(path)
        merge: Any = lambda: table.merge(given, join_on(operation), source_alias="source", target_alias="target")  # noqa: E731
    else:
        from deltalog import DeltaTable

        table = DeltaTable.open(path)
        merge = lambda: table.merge(given, join_on(operation))  # noqa: E731
    if operation == "update":
        if system == "deltalake":
            return lambda: table.update(updates={"v": "v + 0.5"}, predicate=condition())
        return lambda: table.update({"v": "v + 0.5"}, condition())
    if operation == "delete":
        return lambda: table.delete(condition())
    return lambda: merge().when_matched_update_all().when_not_matched_insert_all().execute()


def copied_by_pyarrow(parts: list[Path]) -> None:
    """Write the rows of each partition to one new file, with two threads."""

    def copy(part: Path) -> None:
        files = [pq.ParquetFile(each, pre_buffer=True) for each in part.glob("*.parquet")]
        with pq.ParquetWriter(part / "floor", files[0].schema_arrow, use_dictionary=False) as writer:
            for file in files:
                for batch in file.iter_batches(1 << 16, use_threads=False):
                    writer.write_batch(batch)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(copy, parts))


def _resident_mib() -> float:
    text = Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


class Peak:
    """The peak resident memory of the process, sampled every 5 ms."""

    def __enter__(self) -> Peak:
        self.before_mib = self.most_mib = _resident_mib()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            self.most_mib = max(self.most_mib, _resident_mib())

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _child(system: str, operation: str, path: str, rows: int, small: str | None) -> None:
    """One run. ``small``: a small table on which the operation runs first in this process; None to skip this first
    run."""
    given = {
        at: source(operation, number) if "merge" in operation else SCHEMA.empty_table()
        for at, number in ((path, rows), (small, _SMALL))
        if at
    }
    if small:
        call(system, operation, small, given[small])()
    begin = time.perf_counter()
    run = call(system, operation, path, given[path])
    with Peak() as peak:
        started, cpu_before = time.perf_counter(), time.process_time()
        run()
        ended, cpu_seconds = time.perf_counter(), time.process_time() - cpu_before
    found = {
        "seconds": ended - started,
        "cpu_seconds": cpu_seconds,
        "with_import_seconds": ended - begin,
        "peak_mib": peak.most_mib - peak.before_mib,
        "answer": answer(path),
    }
    print(json.dumps(found))


def answer(path: str) -> list[float]:
    """The number of rows, and the sums of two columns."""
    from deltalog import DeltaTable

    found = DeltaTable.open(path).snapshot().scan(["id", "v"]).to_arrow()
    return [found.num_rows, pc.sum(found["id"]).as_py(), pc.sum(found["v"]).as_py()]


def measure(system: str, operation: str, path: Path, rows: int) -> dict[str, Any]:
    """Measure two runs, each in a separate process on a copy of the table: in one run the operation is the first call
    of its process, in the other it follows another call. Returns times, memory, and the resulting rows."""
    first, later = (_run(system, operation, path, rows, after_another) for after_another in (False, True))
    assert first["answer"] == later["answer"], (system, operation)
    return {**later, "first_seconds": first["with_import_seconds"], "peak_mib": first["peak_mib"]}


def _run(system: str, operation: str, path: Path, rows: int, after_another: bool) -> dict[str, Any]:
    copy, small = path.with_name("copy"), path.with_name("small copy")
    shutil.copytree(path, copy, copy_function=os.link)
    more = []
    if after_another:
        shutil.copytree(path.with_name(f"small {path.name}"), small)
        more = ["--after", str(small)]
    try:
        done = subprocess.run(
            [
                sys.executable, "-m", "tests.benchmarks.row_changes",
                "--child", system, operation, str(copy), "--rows", str(rows), *more,
            ],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    finally:
        shutil.rmtree(copy)
        shutil.rmtree(small, ignore_errors=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def compare(place: Path, rows: int, repeats: int, operations: tuple[str, ...] = OPERATIONS) -> Iterator[dict[str, Any]]:
    """The medians of each operation and system. Raises AssertionError if the systems disagree on the rows."""
    for vectors in (False, True):
        build(place / f"vectors-{vectors}", rows, vectors)
        build(place / f"small vectors-{vectors}", _SMALL, vectors)
    for operation in operations:
        systems = (*SYSTEMS, FLOOR) if "merge" in operation else SYSTEMS
        runs: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
        for _ in range(repeats):  # alternating, so that other load on the machine affects all systems equally
            for system in systems:
                path = place / f"vectors-{system.endswith('vectors')}"
                runs[system].append(measure(system, operation, path, rows))
        for system, of_system in runs.items():
            figures = {name: statistics.median(run[name] for run in of_system) for name in FIGURES}
            yield {"operation": operation, "system": system, **figures, "rows": of_system[0]["answer"][0]}
        answers = {system: [round(value, 1) for value in runs[system][0]["answer"]] for system in SYSTEMS}
        assert len({tuple(each) for each in answers.values()}) == 1, (operation, answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="100,000 rows once: a check, not figures")
    parser.add_argument("--directory", default=None)
    parser.add_argument("--operation", choices=OPERATIONS, action="append", help="run only this one; may be repeated")
    parser.add_argument("--child", nargs=3)
    parser.add_argument("--after", metavar="TABLE")
    chosen = parser.parse_args()
    if chosen.child:
        system, operation, path = chosen.child
        _child(system, operation, path, chosen.rows, chosen.after)
        return
    rows, repeats = (100_000, 1) if chosen.quick else (chosen.rows, chosen.repeats)
    with tempfile.TemporaryDirectory(dir=chosen.directory) as place:
        for each in compare(Path(place), rows, repeats, tuple(chosen.operation or OPERATIONS)):
            name = f"{each['operation']}, {each['system']}"
            took = f"{each['seconds']:.2f} s, CPU {each['cpu_seconds']:.2f} s, {each['peak_mib']:.0f} MiB"
            took += f", first call with import and opening {each['first_seconds']:.2f} s"
            print(f"{name}: {took}, {each['rows']:,} rows, load {os.getloadavg()[0]:.0f}", flush=True)


if __name__ == "__main__":
    main()
