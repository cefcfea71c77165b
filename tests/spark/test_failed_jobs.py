"""Jobs that fail, are interrupted, or leave something behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
import spark_ext.writer
from spark_ext.files import collect
from tests.spark.tables import data_files, litter, versions

ROOT = Path(__file__).resolve().parents[2]

INTERRUPTED = """
import os, signal, sys, threading, time
from tests.support.spark.session import connect_session, plain_session
import spark_ext
table, kind = sys.argv[1:]
spark = connect_session() if kind == "connect" else plain_session()
spark_ext.write(spark.range(5).selectExpr("id", "id p")).partitionBy("p").save(table)
before = sorted(os.listdir(table))
def fire():
    while not any("_temporary" in parent and "part-" in "".join(files) for parent, _, files in os.walk(table)):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=fire).start()
try:
    spark_ext.write(spark.range(0, 40_000_000, 1, 8).selectExpr("id", "id div 100000 as p")).mode("append").save(table)
except KeyboardInterrupt:
    from pyspark import SparkContext
    end, status = time.monotonic() + 20, SparkContext._active_spark_context.statusTracker()
    while status.getActiveJobsIds() and time.monotonic() < end:
        time.sleep(0.1)
    print("jobs", len(status.getActiveJobsIds()), "same", sorted(os.listdir(table)) == before)
    print("rows", spark_ext.read(spark).load(table).count())
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["classic", pytest.param("connect", marks=pytest.mark.long)])
def test_an_interrupted_write_ends_its_job_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "table"), kind],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["jobs 0 same True", "rows 5"], done.stderr[-2000:]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are Linux's")
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


@pytest.mark.parametrize("partitioned", [False, True])
def test_what_a_straggler_leaves_is_no_part_of_the_job(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    def late(directory: str, *args: Any) -> Any:
        attempt = Path(directory, "_temporary", "0", "_temporary", "attempt_1", "p=1")
        attempt.mkdir(parents=True)
        (attempt / "part-00007-late.snappy.parquet").write_bytes(b"PAR1")
        return collect(directory, *args)

    monkeypatch.setattr(spark_ext.writer, "collect", late)
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
