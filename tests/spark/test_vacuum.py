"""VACUUM by Spark's tasks: DeltaTable.vacuum(onExecutors=True), the session's setting, and SQL."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from deltalog.maintenance.vacuum.tasks import packed, unpacked
from deltalog.storage.fs import LocalStore
from spark_ext.maintenance.vacuum import EXECUTORS, _runner
from spark_ext.session.bytes_job import parallelism
from tests.spark.settings import IS_CONNECT, session_of
from tests.spark.tables import action, data_files, rows, versions

UNCHECKED = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
ON_EXECUTORS = {EXECUTORS: "true"}


@pytest.fixture
def t(spark: Any, table: str, tmp_path: Path) -> str:
    """A table to which three appends wrote four partitions; the files of the first append were removed again. The
    directory also contains files that do not belong to the table. All files are old."""
    for start in (0, 10, 20):
        frame = spark.range(start, start + 10).selectExpr("id", "id % 4 AS p").coalesce(1)
        spark_ext.write(frame).mode("append").partitionBy("p").save(table)
    spark_ext.DeltaTable.forPath(spark, table).delete("id < 10")
    root, outside = Path(table), tmp_path / "outside"
    beside = ("stray", "p=1/stray", "p=9/q=8/stray", "nested/_delta_log/0.json", "nested/p=1/x", "_own/x", ".hidden")
    for name in beside:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"12345")
    outside.mkdir()
    (outside / "kept").write_bytes(b"1")
    (root / "p=2" / "link").symlink_to(outside)
    os.link(outside / "kept", root / "p=3" / "hard")
    for path in root.rglob("*"):
        if "_delta_log" not in path.relative_to(root).parts[:1] and not path.is_symlink():
            os.utime(path, (1_000_000_000, 1_000_000_000))
    return table


def readable(spark: Any, t: str) -> dict[int, list[Any]]:
    """The rows of the versions that can still be read after a vacuum without retention."""
    latest = deltalog.DeltaTable.open(t)
    found = {latest.version: sorted(latest.snapshot().scan(["id"]).to_arrow()["id"].to_pylist())}
    assert rows(spark_ext.read(spark).load(t).select("id")) == [(each,) for each in found[latest.version]]
    return found


def test_tasks_delete_what_the_driver_would(spark: Any, t: str, tmp_path: Path) -> None:
    expected = deltalog.DeltaTable.open(t).vacuum(0, enforce_retention_duration=False)
    before = data_files(t)
    assert {"stray", "p=1/stray", "p=9/q=8/stray", "p=3/hard"} < {*expected.paths} and len(expected.paths) == 8
    with session_of(spark, {**UNCHECKED, **ON_EXECUTORS}):
        found = spark_ext.sql(spark, f"VACUUM delta.`{t}` RETAIN 0 HOURS DRY RUN").collect()
        assert sorted(row["path"] for row in found) == [f"{t}/{path}" for path in expected.paths]
        assert data_files(t) == before
        assert spark_ext.sql(spark, f"VACUUM delta.`{t}` RETAIN 0 HOURS").collect() == [(t,)]
    assert {*before} - {*data_files(t)} == {*expected.paths}
    assert (tmp_path / "outside" / "kept").read_bytes() == b"1" and (Path(t) / "p=2" / "link").is_symlink()
    assert not (Path(t) / "p=9").exists() and (Path(t) / "nested" / "p=1" / "x").exists()
    start, end = (action(t, version, "commitInfo")[0] for version in versions(t)[-2:])
    assert start["operation"] == "VACUUM START" and start["operationMetrics"] == {
        "numFilesToDelete": "8", "sizeOfDataToDelete": str(expected.size_bytes)
    }  # fmt: skip
    assert end["operationParameters"] == {"status": "COMPLETED"} and end["operationMetrics"]["numDeletedFiles"] == "8"
    assert sum(map(len, readable(spark, t).values())) == 20


def test_when_tasks_vacuum(spark: Any, t: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def runner(*given: Any) -> Any:
        asked.append("")
        return _runner(*given)

    monkeypatch.setattr("spark_ext.maintenance.vacuum._runner", runner)
    changing = spark_ext.DeltaTable.forPath(spark, t)
    changing.vacuum()
    with session_of(spark, ON_EXECUTORS):
        changing.vacuum(onExecutors=False)
        assert asked == []
        changing.vacuum()
        assert len(asked) == 1
    monkeypatch.setattr("spark_ext.maintenance.vacuum._MANY_FILES", 5)
    changing.vacuum()
    assert len(asked) == 1  # on a local disk, a single process is faster
    with session_of(spark, {EXECUTORS: "maybe"}), pytest.raises(deltalog.CallError, match="true or false"):
        changing.vacuum()


@pytest.mark.classic("Spark Connect has its own descriptions of jobs")
def test_jobs_say_what_they_do(spark: Any, t: str) -> None:
    spark.sparkContext.setJobDescription("mine")
    try:
        spark_ext.DeltaTable.forPath(spark, t).vacuum(onExecutors=True)
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    finally:
        spark.sparkContext.setJobDescription(None)
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = {jobs.apply(number).description().toString() for number in range(jobs.size())}
    assert {f"Some(VACUUM {t}: list the files, job 1)", f"Some(VACUUM {t}: delete files, job 1)"} <= found


def by_tasks(spark: Any, t: str, change: Any, **options: Any) -> deltalog.VacuumReport:
    """A vacuum without a retention period, whose tasks run ``change(function)`` instead of their usual function."""
    run = _runner(spark, t, parallelism(spark))
    table = deltalog.DeltaTable.open(t)
    return table.vacuum(
        0,
        dry_run=False,
        enforce_retention_duration=False,
        run_tasks=lambda work, inputs, what: run(change(work, what), inputs, what),
        **options,
    )


def test_executors_must_see_the_disk_of_the_table(spark: Any, t: str, tmp_path: Path) -> None:
    before = data_files(t)

    def elsewhere(work: Any, what: str) -> Any:
        return replace(work.__self__, store=LocalStore(tmp_path / "no such disk")).look

    with pytest.raises(deltalog.StoreError, match="an executor does not see the same version 3 of the table"):
        by_tasks(spark, t, elsewhere)
    assert data_files(t) == before and versions(t) == [0, 1, 2, 3]


def test_a_failed_task_is_recorded(spark: Any, t: str) -> None:
    def failing(work: Any, what: str) -> Any:
        if what != "delete files":
            return work

        def fail(given: bytes, attempt: str) -> bytes:
            from deltalog import StoreError

            work(given, attempt)
            raise StoreError("The disk is gone.")

        return fail

    with pytest.raises(deltalog.StoreError, match=r"stopped after deleting at least 0 of 8 files.*The disk is gone"):
        by_tasks(spark, t, failing)
    assert action(t, versions(t)[-1], "commitInfo")[0]["operationParameters"] == {"status": "FAILED"}
    assert "stray" not in data_files(t) and sum(map(len, readable(spark, t).values())) == 20


@contextmanager
def cancelled_when(spark: Any, happened: Any) -> Iterator[None]:
    """While the block runs, wait until the condition holds, then cancel all jobs of the session."""

    def cancel() -> None:
        while not happened():
            time.sleep(0.05)
        _ = spark.interruptAll() if IS_CONNECT else spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=cancel)
    thread.start()
    yield
    thread.join()


def test_a_killed_job_and_a_second_vacuum(spark: Any, t: str) -> None:
    expected = deltalog.DeltaTable.open(t).vacuum(0, enforce_retention_duration=False).paths

    def slow(work: Any, what: str) -> Any:
        if what != "delete files":
            return work

        def half(given: bytes, attempt: str) -> bytes:
            import time

            files = unpacked(given)
            work(packed(files.of(range(len(files) // 2))), attempt)
            time.sleep(600)
            return b""

        return half

    gone = Path(t) / expected[3]
    with cancelled_when(spark, lambda: not gone.exists()), pytest.raises(Exception, match=r"(?i)cancel|interrupt"):
        by_tasks(spark, t, slow)
    left = [path for path in expected if (Path(t) / path).exists()]
    assert left == [*expected[4:]]
    report = by_tasks(spark, t, lambda work, what: work)
    assert [*report.paths] == left and sum(map(len, readable(spark, t).values())) == 20
    assert {action(t, version, "commitInfo")[0]["operation"] for version in versions(t)[-4:]} == {
        "VACUUM START", "VACUUM END",
    }  # fmt: skip
