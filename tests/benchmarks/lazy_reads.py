"""Lazy reads compared with deltalake, polars.scan_delta and DuckDB: ``python -m tests.benchmarks.lazy_reads [--rows N]
[--processes N] [--quick]``.

Each query of each system runs in its own processes; the systems alternate. A process opens the table and runs the query
five times; the first run is not counted, and the reported figure is the median of the others. The benchmark prints
medians over processes, of wall time and of CPU time, and the ratio to the fastest of the other systems. All systems
must find the same number of rows and the same sum.

The floors are the same engines on a list of files that was made beforehand, without any package for Delta tables: the
files that may have a row of the result. They also read deleted rows. ``--floors`` measures only deltalog and the
floors.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("k", pa.int32()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
TABLES = {"plain": 10, "vectors": 10, "2000 files": 2000}  # by the number of files
QUERIES = ("full", "two columns", "filter")
OURS = ("scan_polars", "to_duckdb", "to_pyarrow_dataset", "scan")
OTHERS = ("polars.scan_delta", "deltalake dataset", "deltalake dataset in DuckDB", "deltalake QueryBuilder")
# The floor of each of ours: the engine on the bare files.
FLOORS = {
    "scan_polars": "polars on files",
    "to_duckdb": "DuckDB on files",
    "to_pyarrow_dataset": "Arrow on files",
    "scan": "Arrow on files",
}
_REPEATS = 4


def _rows(start: int, count: int) -> pa.Table:
    ids = pa.array(range(start, start + count), pa.int64())
    scattered = pc.bit_wise_and(pc.multiply(ids, 2654435761), (1 << 20) - 1)
    names = pc.binary_join_element_wise("name-", pc.bit_wise_and(scattered, (1 << 17) - 1).cast(pa.string()), "")
    at = pc.add(pc.multiply(ids, 1000), 1_600_000_000_000_000).cast(pa.timestamp("us", "UTC"))
    small = pc.bit_wise_and(scattered, 1023).cast(pa.int32())
    return pa.table([ids, pc.divide(scattered.cast(pa.float64()), 1 << 20), small, names, at], schema=SCHEMA)


def build(directory: Path, name: str, rows: int) -> Path:
    """The table ``name`` in ``directory``; it is created if it does not exist."""
    from deltalog import DeltaTable

    path = directory / f"{name.replace(' ', '-')}-{rows}"
    if not (path / "_done").exists():
        vectors = name == "vectors"
        table = DeltaTable.create(path, SCHEMA, properties={"delta.enableDeletionVectors": "true"} if vectors else {})
        step = max(1, rows // TABLES[name])
        for start in range(0, rows, step):
            table.append(_rows(start, min(step, rows - start)))
        if vectors:
            table.delete("id % 97 = 0")
        table.checkpoint()
        (path / "_done").touch()
    return path


def _bounds(rows: int) -> tuple[int, int]:
    """The ids of 0.1 % of the rows."""
    return rows // 2, rows // 2 + rows // 1000 - 1


def _query(system: str, path: str, query: str, rows: int) -> Callable[[], pa.Table]:
    """A function that opens the table, runs the query and returns Arrow data."""
    low, high = _bounds(rows)
    columns = ["id", "x"] if query == "two columns" else None
    if system in FLOORS.values():
        return _floor(system, path, columns, (low, high) if query == "filter" else None)
    selected = ", ".join(columns or ["*"])
    sql = f"SELECT {selected} FROM t" + (f" WHERE id BETWEEN {low} AND {high}" if query == "filter" else "")
    if system in ("scan_polars", "polars.scan_delta"):
        import polars as pl

        def by_polars() -> pa.Table:
            if system == "scan_polars":
                from deltalog import DeltaTable

                frame = DeltaTable.open(path).scan_polars()
            else:
                frame = pl.scan_delta(path)
            if columns:
                frame = frame.select(columns)
            if query == "filter":
                frame = frame.filter(pl.col("id").is_between(low, high))
            return frame.collect().to_arrow()

        return by_polars
    if system in ("to_duckdb", "deltalake dataset in DuckDB"):
        import duckdb

        connection = duckdb.connect()

        def by_duckdb() -> pa.Table:
            if system == "to_duckdb":
                from deltalog import DeltaTable

                relation = DeltaTable.open(path).to_duckdb(connection)
            else:
                from deltalake import DeltaTable as OtherTable

                relation = connection.from_arrow(OtherTable(path).to_pyarrow_dataset())
            if query == "filter":
                relation = relation.filter(f"id BETWEEN {low} AND {high}")
            return relation.project(selected).to_arrow_table()

        return by_duckdb
    if system == "scan":
        from deltalog import DeltaTable

        where = f"id BETWEEN {low} AND {high}" if query == "filter" else None
        return lambda: DeltaTable.open(path).to_pyarrow_table(columns, where)
    if system == "deltalake QueryBuilder":
        from deltalake import DeltaTable as OtherTable
        from deltalake import QueryBuilder

        return lambda: pa.table(QueryBuilder().register("t", OtherTable(path)).execute(sql).read_all())
    import pyarrow.dataset as ds

    condition = (ds.field("id") >= low) & (ds.field("id") <= high) if query == "filter" else None

    def by_dataset() -> pa.Table:
        if system == "to_pyarrow_dataset":
            from deltalog import DeltaTable

            dataset = DeltaTable.open(path).to_pyarrow_dataset()
        else:
            from deltalake import DeltaTable as OtherTable

            dataset = OtherTable(path).to_pyarrow_dataset()
        found: pa.Table = dataset.to_table(columns=columns, filter=condition)
        return found

    return by_dataset


def _floor(
    system: str, path: str, columns: Sequence[str] | None, bounds: tuple[int, int] | None
) -> Callable[[], pa.Table]:
    """A function that reads the bare files in which the query may find rows; the files are listed beforehand."""
    from deltalog import DeltaTable

    snapshot = DeltaTable.open(path).snapshot()
    where = None if bounds is None else f"id BETWEEN {bounds[0]} AND {bounds[1]}"
    files = [snapshot.file_path(name) for name in snapshot.scan(where=where).files()["path"].to_pylist()]
    if system == "polars on files":
        import polars as pl

        def by_polars() -> pa.Table:
            frame = pl.scan_parquet(files)
            if columns:
                frame = frame.select(columns)
            if bounds:
                frame = frame.filter(pl.col("id").is_between(*bounds))
            return frame.collect().to_arrow()

        return by_polars
    if system == "DuckDB on files":
        import duckdb

        connection = duckdb.connect()

        def by_duckdb() -> pa.Table:
            relation = connection.read_parquet(files)
            if where:
                relation = relation.filter(where)
            return relation.project(", ".join(columns or ["*"])).to_arrow_table()

        return by_duckdb
    import pyarrow.dataset as ds

    condition = (ds.field("id") >= bounds[0]) & (ds.field("id") <= bounds[1]) if bounds else None

    def by_arrow() -> pa.Table:
        found: pa.Table = ds.dataset(files, schema=SCHEMA, format="parquet").to_table(columns, condition)
        return found

    return by_arrow


def run(system: str, path: str, query: str, rows: int, repeats: int) -> dict[str, Any]:
    """The figures of one process."""
    call = _query(system, path, query, rows)
    found: dict[str, Any] = {}
    times: list[tuple[float, float]] = []
    for number in range(repeats + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        if number:
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
        found = {"rows": result.num_rows, "sum": pc.sum(result["id"]).as_py()}
        del result
    found["seconds"], found["cpu_seconds"] = (statistics.median(each[at] for each in times) for at in (0, 1))
    return found


def compare(
    directory: Path,
    rows: int,
    processes: int,
    repeats: int = _REPEATS,
    tables: Sequence[str] = tuple(TABLES),
    *,
    only_floors: bool = False,
) -> Iterator[dict[str, Any]]:
    """The medians of each system, query by query. Raises AssertionError if a system finds other rows."""
    floors = tuple(dict.fromkeys(FLOORS.values()))
    for table in tables:
        path = build(directory, table, rows)
        for query in QUERIES:
            # deltalake's datasets refuse tables with deletion vectors.
            others = [name for name in OTHERS if table != "vectors" or "dataset" not in name]
            systems = [*OURS, *([] if only_floors else others), *floors]
            found: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
            for _ in range(processes):
                for system in systems:
                    found[system].append(_in_process(system, str(path), query, rows, repeats))
            compared = [*OURS, *others] if table == "vectors" else systems
            answers = {(each["rows"], each["sum"]) for name in compared for each in found.get(name, ())}
            assert len(answers) == 1, (table, query, found)
            for system, runs in found.items():
                yield {
                    "table": table,
                    "query": query,
                    "system": system,
                    "rows": runs[0]["rows"],
                    "seconds": statistics.median(each["seconds"] for each in runs),
                    "cpu_seconds": statistics.median(each["cpu_seconds"] for each in runs),
                }


def _in_process(*arguments: Any) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.lazy_reads", "--one", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments}: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few rows, one process; checks only")
    parser.add_argument("--floors", action="store_true", help="only deltalog and the floors")
    parser.add_argument("--only", default=",".join(TABLES), help="names of tables, separated by commas")
    parser.add_argument("--tables", type=Path, help="the directory of the generated tables, which are kept there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run(*json.loads(options.one))))
        return
    rows, processes = (20_000, 1) if options.quick else (options.rows, options.processes)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(os.fspath(options.tables or scratch))
        directory.mkdir(parents=True, exist_ok=True)
        print(
            "| table | query | system | wall | CPU | to the best other: wall | CPU | to the floor: wall | CPU |\n"
            "|---|---|---|---|---|---|---|---|---|"
        )
        group: list[dict[str, Any]] = []
        for each in compare(directory, rows, processes, tables=options.only.split(","), only_floors=options.floors):
            if group and (group[0]["table"], group[0]["query"]) != (each["table"], each["query"]):
                _print(group)
                group = []
            group.append(each)
        _print(group)


def _print(group: Sequence[dict[str, Any]]) -> None:
    by_system = {each["system"]: each for each in group}
    others = [each for each in group if each["system"] in OTHERS]
    for each in group:
        figures = [f"{each[key]:.3f}" for key in ("seconds", "cpu_seconds")]
        floor = by_system.get(FLOORS.get(each["system"], ""))
        for compared in (others, [floor] if floor else []):
            for key in ("seconds", "cpu_seconds"):
                figures.append(f"{each[key] / min(one[key] for one in compared):.2f}" if compared else "-")
        print(f"| {each['table']} | {each['query']} | {each['system']} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
