"""The number of rows that a job counted must equal the number of rows in its files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import deltalog
import spark_ext
import spark_ext.writing.local_job
from spark_ext.writing.job_files import collect
from spark_ext.writing.row_count import counts_are_not_sent
from tests.spark.tables import data_files, litter, rows, versions

ROWS = "select id, cast(id % 2 as int) p from range(0, 20, 1, 4)"


def _all_gone(files: list[Path]) -> None:
    for file in files:
        file.unlink()


def _one_gone(files: list[Path]) -> None:
    files[0].unlink()


def _one_twice(files: list[Path]) -> None:
    shutil.copy(files[0], files[0].with_name(files[0].name.replace("c000", "c001")))


def _fewer_rows(files: list[Path]) -> None:
    data = pq.ParquetFile(files[0]).read()
    pq.write_table(data.slice(1), files[0])


def _cut(files: list[Path]) -> None:
    for file in files:
        os.truncate(file, file.stat().st_size - 5)


def _emptied(files: list[Path]) -> None:
    for file in files:
        os.truncate(file, 0)


Damage = Callable[[list[Path]], None]


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> Callable[[Damage], None]:
    """A function that arranges for ``damage`` to be called with the files of the next job once the job has ended."""

    def prepare(damage: Damage) -> None:
        def collected(directory: str, *more: Any) -> Any:
            damage(sorted(Path(directory).rglob("part-*.parquet")))
            return collect(directory, *more)

        monkeypatch.setattr(spark_ext.writing.local_job, "collect", collected)

    return prepare


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(
    ("damage", "found"), [(_all_gone, 0), (_one_gone, None), (_one_twice, None), (_fewer_rows, 19)]
)
def test_rows_that_are_not_found_are_not_committed(
    spark: Any, table: str, damaged: Callable[[Damage], None], damage: Damage, found: int | None, partitioned: bool
) -> None:
    df = spark.sql(ROWS)
    spark_ext.write(df).partitionBy(["p"] if partitioned else []).save(table)
    before = data_files(table)
    damaged(damage)
    for mode in ("overwrite", "append"):
        with pytest.raises(deltalog.errors.RowCountError, match="20 rows were written, but the") as error:
            spark_ext.write(df).mode(mode).save(table)
        assert error.value.written == 20 and error.value.found != 20
        assert found in (None, error.value.found)
    other = table + "_created"
    with pytest.raises(deltalog.errors.RowCountError):
        spark_ext.write(df).save(other)
    assert not os.path.exists(other)
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []
    assert rows(spark_ext.read(spark).load(table)) == rows(df)


@pytest.mark.parametrize("damage", [_cut, _emptied])
def test_damaged_files_are_not_committed(
    spark: Any, table: str, damaged: Callable[[Damage], None], damage: Damage
) -> None:
    df = spark.sql(ROWS)
    spark_ext.write(df).save(table)
    before = data_files(table)
    damaged(damage)
    with pytest.raises(deltalog.errors.InvalidDataFileError, match=r"part-0000.*not a Parquet file"):
        spark_ext.write(df).mode("overwrite").save(table)
    assert versions(table) == [0] and data_files(table) == before


def test_what_a_job_counts(spark: Any, tmp_path: Path) -> None:
    """Data without rows, DataFrames that already have an observation, and adaptive plans."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    mine = Observation("mine")
    frames = {
        "none": (spark.range(3).where("id > 5"), 0),
        "no partitions": (spark.createDataFrame([], "id long, p int"), 0),
        "observed": (spark.range(7).observe(mine, F.count(F.lit(1)).alias("rows")), 7),
        "joined": (spark.range(50).join(spark.range(20, 90), "id").distinct().orderBy("id"), 30),
        "limited": (spark.range(0, 90, 1, 3).limit(11), 11),
    }
    for name, (df, count) in frames.items():
        result = spark_ext.write(df).save(str(tmp_path / name))
        assert result.num_rows == count
        assert spark_ext.write(df).mode("overwrite").save(str(tmp_path / name)).num_rows == count
    if not counts_are_not_sent(spark):
        assert mine.get == {"rows": 7}


@pytest.mark.classic("Spark Connect sends the row count with the response or not at all")
def test_a_count_that_does_not_come(spark: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark drops job events if its event queue is full; without a time limit, waiting for the observation would never
    end."""
    monkeypatch.setattr(spark_ext.writing.row_count, "_WAIT_S", 0.2)
    monkeypatch.setattr(spark_ext.writing.row_count.RowCount, "observe", lambda self, frame: _never_told(self, frame))
    with pytest.raises(deltalog.StoreError, match="did not report within"):
        spark_ext.write(spark.range(3)).save(table)
    assert not os.path.exists(table)


def _never_told(count: Any, frame: Any) -> Any:
    from pyspark.sql import functions as F

    frame.observe(count._observation, F.count(F.lit(1)).alias("rows"))  # no job with this observation ever runs
    return frame


def test_where_spark_tells_no_count_it_counts_the_files(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests the code for clients of Spark Connect 3.5, which do not receive counts."""
    monkeypatch.setattr(spark_ext.writing.row_count.RowCount, "_metrics", lambda self: {})
    df = spark.sql(ROWS)
    for partition_by in ([], ["p"]):
        assert spark_ext.write(df).partitionBy(partition_by).save(f"{table}{partition_by}").num_rows == 20
    assert spark_ext.write(df.limit(0)).save(table).num_rows == 0


_OTHER_DISK = """
import json, sys
import deltalog, spark_ext
from pyspark.sql import SparkSession
table, java_home = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[1,1,512]").config("spark.executor.memory", "512m")
    .config("spark.executorEnv.JAVA_HOME", java_home).config("spark.ui.enabled", "false")
    .config("spark.driver.host", "localhost").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
told = []
for mode in ("overwrite", "append"):
    try:
        told.append(spark_ext.write(spark.range(9)).mode(mode).save(table).version)
    except deltalog.errors.RowCountError as error:
        told.append([error.written, error.found])
print(json.dumps(told))
spark.stop()
"""


@pytest.mark.long
def test_executors_with_another_disk(tmp_path: Path) -> None:
    """In the executor's process, a different file system is mounted at the table's directory."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"]).returncode:
        pytest.skip("this machine lets nobody make a mount namespace")
    table = tmp_path / "shared" / "table"
    deltalog.DeltaTable.create(str(table), deltalog.schema.StructType.from_json(_LONG))
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    real = shutil.which("java")
    java.write_text(
        f'#!/bin/sh\nexec unshare -rm sh -c \'mount -t tmpfs none "{table.parent}" && exec {real} "$@"\' java "$@"\n'
    )
    java.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", _OTHER_DISK, str(table), str(java.parent.parent)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_SCALA_VERSION": "2.13"},
        cwd=tmp_path,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [[9, 0], [9, 0]], done.stderr[-2000:]
    assert versions(str(table)) == [0] and sorted(os.listdir(table)) == ["_delta_log"]


_RETRIED = """
import json, os, sys, time
import deltalog, spark_ext
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
table = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "localhost").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.speculation", "true").config("spark.speculation.interval", "50ms")
    .config("spark.speculation.multiplier", "1.1").config("spark.speculation.quantile", "0.3")
    .config("spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version", "2").getOrCreate()
)
def once(number):
    context = TaskContext.get()
    if number % 7 == 6 and context.attemptNumber() == 0:
        open(f"{table}_failed_{context.stageId()}_{context.partitionId()}", "w").close()
        raise ValueError("the first attempt of each task fails")
    time.sleep(0.01 * (context.partitionId() == 1))
    return number
column = udf(once, "long")("id").alias("id")
ids = spark.range(0, 100, 1, 4)
for df in (ids.select(column), ids.repartition(3).select(column), ids.select(column).distinct()):
    spark_ext.write(df.selectExpr("id", "id % 5 as p")).partitionBy("p").mode("overwrite").save(table)
    found = deltalog.DeltaTable.open(table).snapshot().scan(["id"]).to_arrow()["id"].to_pylist()
    assert sorted(found) == list(range(100)), found
spark.stop()
"""


@pytest.mark.long
def test_tasks_that_are_retried_count_once(tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    done = subprocess.run(
        [sys.executable, "-c", _RETRIED, table],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert versions(table) == [0, 1, 2] and len(list(tmp_path.glob("table_failed_*"))) >= 10


_LONG = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
