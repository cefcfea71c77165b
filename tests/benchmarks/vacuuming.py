"""Vacuum compared with deltalake and delta-spark: ``python -m tests.benchmarks.vacuuming [--files N] [--quick]``.

The table has N empty files in 100 partitions. A tenth of the files were removed before the retention period began, and
another tenth were never committed. A dry run and a deleting run execute in separate processes, after opening the table.
For each run, the wall time, the CPU time, and the peak memory beyond what the process used before the run are printed.
The systems must list, and delete, the same number of files. In the Spark (``local[2]``) measurements, the sessions have
already read the table's log. The CPU time includes the JVM, whose memory is not measured. delta-spark deletes files in
parallel tasks, which is not its default.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.benchmarks.row_changes import Peak

SYSTEMS = ("deltalog", "deltalake", "deltalog on executors", "delta-spark")
ON_SPARK = SYSTEMS[2:]
MODES = ("dry run", "deletion")
_FIGURES = ("seconds", "cpu_seconds", "peak_mib")
_PARTITIONS = 100
_OLD_S = 10 * 86_400
_TICKS_IN_S = os.sysconf("SC_CLK_TCK")
_encode = msgspec.json.Encoder().encode


def _paths(kind: int, count: int) -> Iterator[str]:
    for number in range(count):
        unique = uuid.UUID(int=(kind << 100) + number * 0x9E3779B97F4A7C15 % 2**90)
        yield f"p={number % _PARTITIONS}/part-{number % 200:05d}-{unique}-c000.snappy.parquet"


def counts(files: int) -> dict[int, int]:
    """The number of files of each kind: live, removed, and not named by any version."""
    return {0: files - 2 * (files // 10), 1: files // 10, 2: files // 10}


def build(path: Path, files: int) -> None:
    """A table with ``files`` files below its root."""
    from deltalog import DeltaTable

    log = path / "_delta_log"
    log.mkdir(parents=True)
    old_ms = (time.time_ns() // 1_000_000_000 - _OLD_S) * 1000
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("p", "integer"))
    ]
    metadata = {
        "id": str(uuid.UUID(int=1)), "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["p"],
        "schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": {}, "createdTime": old_ms,
    }  # fmt: skip
    held = counts(files)
    _write(log, 0, old_ms, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}])
    _write(log, 1, old_ms, (_add(each, old_ms) for kind in (0, 1) for each in _paths(kind, held[kind])))
    DeltaTable.open(path).checkpoint()
    _write(log, 2, old_ms, (_remove(each, old_ms) for each in _paths(1, held[1])))
    for number in range(_PARTITIONS):
        (path / f"p={number}").mkdir()
    for kind, count in held.items():
        _make(path, _paths(kind, count))


def _write(log: Path, version: int, at_ms: int, actions: Iterable[dict[str, Any]]) -> None:
    name = log / f"{version:020d}.json"
    with open(name, "wb") as file:
        file.write(
            _encode({"commitInfo": {"timestamp": at_ms, "operation": "WRITE", "operationParameters": {}}}) + b"\n"
        )
        file.writelines(_encode(action) + b"\n" for action in actions)
    os.utime(name, (at_ms / 1000, at_ms / 1000))


def _add(path: str, at_ms: int) -> dict[str, Any]:
    values = {"p": path.partition("/")[0][2:]}
    body = {"path": path, "partitionValues": values, "size": 0, "modificationTime": at_ms, "dataChange": True}
    return {
        "add": {**body, "stats": '{"numRecords":100,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}'}
    }


def _remove(path: str, at_ms: int) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": at_ms, "dataChange": True}}


def _make(path: Path, names: Iterable[str]) -> None:
    old = time.time() - _OLD_S
    for name in names:
        os.close(os.open(path / name, os.O_CREAT | os.O_WRONLY))
        os.utime(path / name, (old, old))


def _restore_table(path: Path, files: int) -> None:
    """Restore the files that a benchmark run with deletions has deleted."""
    for commit in sorted((path / "_delta_log").iterdir()):
        if commit.name[:20].isdigit() and int(commit.name[:20]) > 2:
            commit.unlink()
    held = counts(files)
    for kind in (1, 2):
        _make(path, _paths(kind, held[kind]))


def call(system: str, mode: str, path: str) -> Callable[[], Any]:
    """The vacuum, ready to run. When called, it returns the paths of the files that were deleted or, in a dry run,
    would be."""
    dry = mode == "dry run"
    if system == "deltalake":
        import deltalake

        theirs = deltalake.DeltaTable(path)
        return lambda: theirs.vacuum(dry_run=dry, full=True)
    if system in ON_SPARK:
        return _call_on_spark(system, dry, path)
    from deltalog import DeltaTable

    table = DeltaTable.open(path)
    return lambda: table.vacuum(dry_run=dry).paths


def _call_on_spark(system: str, dry: bool, path: str) -> Callable[[], Any]:
    from tests.benchmarks.sessions import with_delta_spark, without_jars

    if system == "delta-spark":
        spark = with_delta_spark(**{"spark.databricks.delta.vacuum.parallelDelete.enabled": "true"})
        spark.sql(f"SELECT count(*) FROM delta.`{path}`").collect()
        return lambda: spark.sql(f"VACUUM delta.`{path}`{' DRY RUN' if dry else ''}").collect()
    from deltalog import DeltaTable
    from spark_ext.maintenance.vacuum import vacuumed

    spark, table = without_jars(), DeltaTable.open(path)
    spark.range(1).collect()
    return lambda: vacuumed(spark, table, None, dry, True, True, True).paths


def tree_cpu_seconds() -> float:
    """CPU time of this process and of all its descendants, including those that have ended."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry))
            ticks[int(entry)] = sum(map(int, fields[11:15]))
    waiting, found = [os.getpid()], 0
    while waiting:
        process = waiting.pop()
        found += ticks.get(process, 0)
        waiting += children.get(process, [])
    return found / _TICKS_IN_S


def _child(system: str, mode: str, path: str) -> None:
    run = call(system, mode, path)
    with Peak() as peak:
        started, started_cpu = time.perf_counter(), tree_cpu_seconds()
        found = run()
        seconds, cpu_seconds = time.perf_counter() - started, tree_cpu_seconds() - started_cpu
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "peak_mib": peak.most_mib - peak.before_mib,
                "files": len(found),
            }
        )
    )


def measure(system: str, mode: str, path: Path, files: int) -> dict[str, Any]:
    """One run in a separate process. Raises AssertionError if other files are left afterwards."""
    command = [sys.executable, "-m", "tests.benchmarks.vacuuming", "--child", system, mode, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{mode}, {system}: {done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    left = sum(len(os.listdir(path / f"p={number}")) for number in range(_PARTITIONS))
    held = counts(files)
    if system != "delta-spark" or mode == "dry run":  # after a deletion, delta-spark returns no paths
        assert result["files"] == held[1] + held[2], (system, mode, result)
    assert left == (files if mode == "dry run" else held[0]), (system, mode, left)
    if mode != "dry run":
        _restore_table(path, files)
    return result


def compare(place: Path, files: int, repeats: int, systems: tuple[str, ...] = SYSTEMS) -> Iterator[dict[str, Any]]:
    """The medians of each mode and system."""
    path = place / "vacuumed"
    build(path, files)
    for mode in MODES:
        for system in systems:
            runs = [measure(system, mode, path, files) for _ in range(repeats)]
            figures = {name: statistics.median(run[name] for run in runs) for name in _FIGURES}
            yield {"mode": mode, "system": system, "files": runs[0]["files"], **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--quick", action="store_true", help="2,000 files once: a check, not figures")
    parser.add_argument("--directory", default=None)
    parser.add_argument("--child", nargs=3)
    chosen = parser.parse_args()
    if chosen.child:
        _child(*chosen.child)
        return
    files, repeats = (2_000, 1) if chosen.quick else (chosen.files, chosen.repeats)
    with tempfile.TemporaryDirectory(dir=chosen.directory) as place:
        for each in compare(Path(place), files, repeats, tuple(chosen.systems.split(","))):
            memory = "" if each["system"] in ON_SPARK else f", {each['peak_mib']:.0f} MiB"
            print(
                f"{each['mode']}, {each['system']}: {each['seconds']:.2f} s, {each['cpu_seconds']:.2f} s CPU{memory}",
                flush=True,
            )


if __name__ == "__main__":
    main()
