"""The measurements. Each consists of one call for each system, and all its calls must return the same answer."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalog
import spark_ext
from tests.benchmarks.spark.changes import STATEMENTS, statement_calls
from tests.benchmarks.spark.tables import Shape, files_of_version, obtain, shapes

OURS, DELTA, PARQUET = SYSTEMS = ("deltalog", "delta-spark", "parquet")
# The schema that a reader of plain Parquet files must be given.
_PARQUET_SCHEMA = "id long, value long, amount double, text string"
_PARTITIONS = 200


@dataclass(frozen=True)
class Measurement:
    """``calls``: the call of each system that takes part; its answer is compared with ``answer``.

    ``delta_factor``: delta-spark should take this multiple of deltalog's time; None if their calls do not do the same
    work. ``near_parquet``: whether deltalog should take at most 1.05 times as long as plain Parquet, plus 0.2 s for
    each of the ``writes`` of a call. ``limit_s``: the longest time that deltalog should take. ``is_long``: a call takes
    so long that the first call of a session counts too.
    """

    key: str
    title: str
    answer: object
    calls: Mapping[str, Callable[[], object]]
    delta_factor: float | None = 1.0
    near_parquet: bool = False
    writes: int = 1
    limit_s: float | None = None
    is_long: bool = False


_READS = ("load", "first", "count", "filter", "sum")
KEYS = (
    "append", "append:partitioned", "append:tiny",
    *(f"{table}:{what}" for table in ("files2k", "files100k") for what in _READS),
    *(f"{table}:{what}" for table in ("travel2k", "travel10k") for what in ("load", "count", "sum")),
    "vectors:sum",
    *(f"{way}:{what}" for way in ("changes", "rewrites") for what in STATEMENTS),
)  # fmt: skip
# These measurements take many minutes, and run only on request.
RARE = ("files100k:sum",)
_MUCH_FASTER = 3.0
_LOAD_LIMIT_S = 3.0


def measurement(key: str, spark: Any, tables: Path, scratch: Path, quick: bool) -> Measurement:
    """The measurement of a key. Creates the table for this measurement, if it does not exist yet."""
    group, _, what = key.partition(":")
    if group == "append":
        return _append(what, spark, scratch, quick)
    if group in ("changes", "rewrites"):
        shape = shapes(quick)["changes"]
        table = obtain(tables, shape)
        title, count, calls = statement_calls(spark, what, table, shape, group == "changes")
        return Measurement(key, f"{shape.rows:,} rows, {title}", count, calls, is_long=not quick)
    shape = shapes(quick)[group.replace("travel", "commits")]
    path = str(obtain(tables, shape))
    if group.startswith("travel"):
        return _travel(key, what, spark, path, shape)
    return _read(key, what, spark, path, shape)


# --- reading


def _loads(spark: Any, path: str) -> dict[str, Callable[[], Any]]:
    return {
        OURS: lambda: spark_ext.read(spark).load(path),
        DELTA: lambda: spark.read.format("delta").load(path),
        PARQUET: lambda: spark.read.schema(_PARQUET_SCHEMA).parquet(path),
    }


def _read(key: str, what: str, spark: Any, path: str, shape: Shape) -> Measurement:
    loads = _loads(spark, path)
    low = shape.rows // 2
    high = low + max(shape.rows // 100, 1)
    if what == "load":
        # delta-spark lists the files of the version only when the first action needs them.
        calls = {system: _reading(load, lambda df: len(df.columns)) for system, load in loads.items()}
        return Measurement(key, f"load of {shape.files:,} files: schema", 4, calls, None, limit_s=_LOAD_LIMIT_S)
    if what == "first":
        calls = {system: _reading(load, lambda df: len(df.take(1))) for system, load in loads.items()}
        return Measurement(key, f"load of {shape.files:,} files: first row", 1, calls, _MUCH_FASTER)
    if what == "count":
        query = "select count(*) from {}"
        calls = {
            OURS: lambda: _scalar(spark_ext.sql(spark, query.format(f"deltalog.`{path}`"))),
            DELTA: lambda: _scalar(spark.sql(query.format(f"delta.`{path}`"))),
            PARQUET: lambda: loads[PARQUET]().count(),
        }
        return Measurement(key, f"count(*) of {shape.files:,} files", shape.rows, calls, _MUCH_FASTER)
    if what == "filter":
        condition = f"id >= {low} and id < {high}"
        frames = {**loads, OURS: lambda: spark_ext.read(spark).where(condition).load(path)}
        calls = {
            system: _reading(load, lambda df: _scalar(df.where(condition).agg({"value": "count"})))
            for system, load in frames.items()
        }
        return Measurement(key, f"1 % of {shape.files:,} files by a sorted column", high - low, calls, _MUCH_FASTER)
    live = [each for each in range(shape.rows) if not shape.deletes_every or each % shape.deletes_every]
    total = sum(each % 5 for each in live)
    calls = {
        system: _reading(load, lambda df: _scalar(df.agg({"value": "sum"})))
        for system, load in loads.items()
        if not (shape.deletes_every and system == PARQUET)
    }
    deleted = shape.rows - len(live)
    title = f"sum of a column, {shape.files:,} files" + (f", {deleted:,} of {shape.rows:,} deleted" if deleted else "")
    return Measurement(key, title, total, calls, is_long=shape.files > 10_000)


def _reading(load: Callable[[], Any], use: Callable[[Any], object]) -> Callable[[], object]:
    return lambda: use(load())


def _scalar(df: Any) -> Any:
    """The value in a DataFrame of one row and one column."""
    return df.collect()[0][0]


def _travel(key: str, what: str, spark: Any, path: str, shape: Shape) -> Measurement:
    """Time travel to the middle version: its schema, its number of rows according to the log, or a sum that reads its
    files. For comparison, Spark reads the same files as plain Parquet from a separate directory, which is the least
    work with which this version can be read."""
    version = shape.commits // 2
    commit = deltalog.DeltaTable.open(path).history(shape.commits - version + 1)[-1]
    assert commit.version == version, commit
    when = spark.sql(f"select cast(timestamp_millis({commit.timestamp_ms}) as string) as t").first()["t"]
    rows = version * shape.rows_per_file
    title = f"time travel on {shape.commits:,} commits"
    loads: dict[str, Callable[[], Any]] = {
        OURS: lambda: spark_ext.read(spark).option("timestampAsOf", when).load(path),
        DELTA: lambda: spark.read.format("delta").option("timestampAsOf", when).load(path),
    }
    if what == "load":
        calls = {system: _reading(load, lambda df: len(df.columns)) for system, load in loads.items()}
        # As above, the files are listed by the DataFrame's first action; until then, delta-spark has read only the
        # schema of the version.
        return Measurement(key, f"{title}: schema", 4, calls, None, limit_s=_LOAD_LIMIT_S)
    if what == "count":
        query = f"select count(*) from {{}} timestamp as of '{when}'"
        calls = {
            OURS: lambda: _scalar(spark_ext.sql(spark, query.format(f"deltalog.`{path}`"))),
            DELTA: lambda: _scalar(spark.sql(query.format(f"delta.`{path}`"))),
        }
        return Measurement(key, f"{title}: count(*)", rows, calls, _MUCH_FASTER)
    copy = str(files_of_version(Path(path), version))
    loads[PARQUET] = lambda: spark.read.schema(_PARQUET_SCHEMA).parquet(copy)
    calls = {system: _reading(load, lambda df: _scalar(df.agg({"value": "sum"}))) for system, load in loads.items()}
    total = sum(each % 5 for each in range(rows))
    return Measurement(key, f"{title}: sum over {version:,} files", total, calls, _MUCH_FASTER)


# --- writing


def _append(what: str, spark: Any, scratch: Path, quick: bool) -> Measurement:
    numbers = itertools.count()

    def fresh() -> Iterator[str]:
        while True:
            path = scratch / f"table-{next(numbers)}"
            yield str(path)
            shutil.rmtree(path, ignore_errors=True)

    places = fresh()
    if what == "tiny":
        return _tiny(spark, places, 3 if quick else 100)
    rows = 2_000 if quick else 10_000_000
    df = spark.range(rows).selectExpr(
        "id", "id % 1000 as customer", "id / 7 as amount", "cast(id % 100 as int) as quantity",
        "concat('a note on ', id) as note", f"cast(id * 31 % {_PARTITIONS} as int) as part",
    )  # fmt: skip
    by = ["part"] if what else []
    calls = {
        OURS: lambda: spark_ext.write(df).partitionBy(*by).save(next(places)).num_rows,
        DELTA: lambda: _saved(df.write.format("delta").partitionBy(*by).save(next(places)), rows),
        PARQUET: lambda: _saved(df.write.partitionBy(*by).parquet(next(places)), rows),
    }
    title = f"append of {rows:,} rows" + (f" into {_PARTITIONS} partitions" if by else "")
    return Measurement(f"append:{what}" if what else "append", title, rows, calls, near_parquet=True)


def _saved(_: None, rows: int) -> int:
    return rows


def _tiny(spark: Any, places: Iterator[str], count: int) -> Measurement:
    one = spark.range(1).coalesce(1)

    def ours() -> int:
        path = next(places)
        return [spark_ext.write(one).mode("append").save(path).version for _ in range(count)][-1]

    def delta() -> int:
        path = next(places)
        for _ in range(count):
            one.write.format("delta").mode("append").save(path)
        return count - 1

    def parquet() -> int:
        path = next(places)
        for _ in range(count):
            one.write.mode("append").parquet(path)
        return count - 1

    calls = {OURS: ours, DELTA: delta, PARQUET: parquet}
    title = f"{count} appends of one row"
    return Measurement(
        "append:tiny", title, count - 1, calls, _MUCH_FASTER, near_parquet=True, writes=count, is_long=count > 10
    )
