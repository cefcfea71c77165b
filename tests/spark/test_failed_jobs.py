"""Jobs that fail, are interrupted, or leave files behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import functions as F

import deltalog
import spark_ext
import spark_ext.writing.local_job
from spark_ext.writing.job_files import collect
from tests.spark.settings import IS_CONNECT, since
from tests.spark.tables import data_files, litter, versions

ROOT = Path(__file__).resolve().parents[2]

INTERRUPTED = """
import os, signal, sys, threading, time
from tests.support.spark.session import connect_session, plain_session
import spark_ext
table, kind = sys.argv[1:]
spark = connect_session() if kind == "connect" else plain_session()
spark_ext.write(spark.range(5)).save(table)
before = sorted(os.listdir(table))
def fire():
    while not any("_temporary" in parent and "part-" in "".join(files) for parent, _, files in os.walk(table)):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=fire).start()
try:
    slow = spark.range(0, 8000, 1, 8).where("java_method('java.lang.Thread', 'sleep', 10L) is null")
    spark_ext.write(slow).mode("append").save(table)
except KeyboardInterrupt:
    from pyspark import SparkContext
    end, status = time.monotonic() + 20, SparkContext._active_spark_context.statusTracker()
    while status.getActiveJobsIds() and time.monotonic() < end:
        time.sleep(0.1)
    print("jobs", len(status.getActiveJobsIds()), "same", sorted(os.listdir(table)) == before)
    print("rows", spark_ext.read(spark).load(table).count())
os._exit(0)
"""


MINE, OTHER = ("connect", "classic") if IS_CONNECT else ("classic", "connect")


@pytest.mark.parametrize("kind", [MINE, pytest.param(OTHER, marks=pytest.mark.long)])
def test_an_interrupted_write_ends_its_job_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "table"), kind],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    # A crashing JVM prints to its standard output.
    assert done.stdout.splitlines()[-2:] == ["jobs 0 same True", "rows 5"], done.stdout[:2000] + done.stderr[-2000:]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are Linux's")
@pytest.mark.classic("the test limits the size of the JVM's files")
def test_a_full_disk_is_an_error_of_the_store(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(3)).save(table)
    before, jvm = data_files(table), spark.sparkContext._gateway.proc.pid
    limits = resource.prlimit(jvm, resource.RLIMIT_FSIZE)
    resource.prlimit(jvm, resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(deltalog.StoreError, match=r"File too large\. Nothing was committed") as raised:
            spark_ext.write(spark.range(0, 1_000_000, 1, 1)).mode("append").save(table)
    finally:
        resource.prlimit(jvm, resource.RLIMIT_FSIZE, limits)
    assert raised.value.path == raised.value.facts["path"] and raised.value.__cause__ is not None
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []
    assert spark_ext.write(spark.range(3)).mode("append").save(table).version == 1


def _worker_dies(spark: Any) -> Any:
    return spark.range(3).select(F.udf(lambda _: os._exit(1), "long")("id").alias("id"))


def _fills_the_memory(spark: Any) -> Any:
    # The expression is a constant, so the driver computes it: a task that runs out of memory would end this process,
    # which is also the executor. Spark versions before 4.2 do not compute the constant on the driver, so this case is
    # skipped for them.
    return spark.range(1).selectExpr("length(repeat('x', 2000000000)) as id", "concat(repeat('x', 2000000000)) as a")


def _is_cancelled(spark: Any) -> Any:
    context = SparkContext._active_spark_context  # also the context of a Spark Connect server in this process

    def when_it_runs() -> None:
        while not context.statusTracker().getActiveJobsIds():
            time.sleep(0.05)
        context.cancelAllJobs()

    threading.Thread(target=when_it_runs).start()
    return spark.range(2).select(F.udf(lambda _: time.sleep(20), "long")("id").alias("id"))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (_worker_dies, "a Python worker died"),
        pytest.param(
            _fills_the_memory, "out of memory", marks=since("4.2", "errors of jobs that exhaust the driver's memory")
        ),
        (_is_cancelled, "it was cancelled"),
    ],
)
def test_a_job_that_spark_cannot_carry_out(spark: Any, table: str, rows: Any, reason: str) -> None:
    spark_ext.write(spark.range(3)).save(table)
    before = data_files(table)
    with pytest.raises(spark_ext.JobFailedError, match=f"{reason} .*Nothing was committed") as raised:
        spark_ext.write(rows(spark)).mode("append").options(mergeSchema=True, expectedVersion=0).save(table)
    assert raised.value.reason == reason and raised.value.__cause__ is not None
    assert raised.value.outcome is deltalog.errors.Outcome.NOTHING_COMMITTED
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []


# Error messages of the query itself that look like those of a full disk, a lack of memory or a cancelled job.
WORDS = "java.io.IOException: No space left on device, java.lang.OutOfMemoryError, [SPARK_JOB_CANCELLED]"


def test_errors_of_the_query_are_sparks_own(spark: Any, table: str) -> None:
    def raises(number: int) -> int:
        raise ValueError(words)

    words = WORDS
    with pytest.raises((PythonException, Py4JJavaError), match=r"ValueError: java\.io\.IOException: No space left"):
        spark_ext.write(spark.range(3).select(F.udf(raises, "long")("id").alias("id"))).save(table)
    assert not os.path.exists(table)


@since("4.0", "error classes for expressions that fail in a task")
def test_errors_of_expressions_are_sparks_own(spark: Any, table: str) -> None:
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        spark_ext.write(spark.range(3).selectExpr(f"cast(concat('{WORDS}', id) as int) id")).save(table)
    assert not os.path.exists(table)


@pytest.mark.parametrize("partitioned", [False, True])
def test_what_a_straggler_leaves_is_no_part_of_the_job(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    def late(directory: str, *args: Any) -> Any:
        attempt = Path(directory, "_temporary", "0", "_temporary", "attempt_1", "p=1")
        attempt.mkdir(parents=True)
        (attempt / "part-00007-late.snappy.parquet").write_bytes(b"PAR1")
        return collect(directory, *args)

    monkeypatch.setattr(spark_ext.writing.local_job, "collect", late)
    writer = spark_ext.write(spark.range(4).selectExpr("id", "id % 2 as p"))
    result = (writer.partitionBy("p") if partitioned else writer).save(table)
    assert (result.version, result.num_rows) == (0, 4) and litter(table) == []
    assert spark_ext.read(spark).load(table).count() == 4


def test_methods_of_sparks_own_reader_and_writer(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(3)).format("delta").save(table)
    assert spark_ext.read(spark).format("Delta").load(table).count() == 3
    for call in (
        lambda: spark_ext.write(spark.range(1)).format("parquet"),
        lambda: spark_ext.read(spark).format("iceberg"),
        lambda: spark_ext.write(spark.range(1)).mode("append").saveAsTable("t"),
        lambda: spark_ext.write(spark.range(1)).insertInto("t", overwrite=True),
        lambda: spark_ext.write(spark.range(1)).parquet(table),
        lambda: spark_ext.read(spark).table("t"),
        lambda: spark_ext.read(spark).schema("id long"),
    ):
        with pytest.raises(deltalog.CallError, match=r"Delta table|by path"):
            call()
    assert not hasattr(spark_ext.write(spark.range(1)), "no_such_thing")
    assert not hasattr(spark_ext.read(spark), "no_such_thing")
