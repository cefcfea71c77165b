"""Does the work of the demo: one commit per month, in-commit timestamps turned on halfway, two copies, and TIMESTAMP AS
OF in all three tables.

Spark and spark_ext read and write the rows, DeltaTable reads and writes the log, and ``deltalog timeline`` writes the
pages. Spark computes the printed row counts from the results of TIMESTAMP AS OF.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

import spark_ext
from deltalog import DeltaLogError, DeltaTable, TimestampOutOfRangeError
from examples.flights.answers import Answer, Comparison, Month, as_expected
from examples.flights.preparation import (
    ARCHIVE,
    COPY,
    COPY_PAGE,
    PAGE,
    SPARK_LOG,
    TABLE,
    DemoNotPossibleError,
)
from examples.flights.report import Report

# A fixed file time, as some archive tools set it.
_ARCHIVE_DATE = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour timestamp"
)


def run(data: Path, path: Path, months: int, report: Report) -> None:
    """Run the demo with the flights in ``data``, in a prepared directory. Raises errors of deltalog and Spark."""
    started = time.monotonic()
    with _extracted(data) as csv, _spark(path / SPARK_LOG, report) as spark:
        written, enabled_at = write(spark, csv, path / TABLE, months, report)
        copy_twice(path, report)
        compared = compare(spark, path, written, report)
    explain(path, compared, enabled_at, report)
    make_pages(path)
    report.end(compared, enabled_at, path, time.monotonic() - started)
    if not as_expected(compared, enabled_at):
        raise DemoNotPossibleError("An answer differs from the written rows. Please report this with the output above.")


def write(spark: SparkSession, csv: Path, target: Path, months: int, report: Report) -> tuple[list[Month], int]:
    """Write one commit per month and, halfway, a commit that turns in-commit timestamps on.

    Returns the months and the version of the enabling commit.
    """
    flights = spark.read.csv(f"file:{csv}", schema=_COLUMNS, header=True, nullValue="NA", mode="FAILFAST").cache()
    rows: list[int] = []
    versions: list[int] = []
    enabled_at = 0
    with report.progress("Writing the months", months) as advance:
        for number, name in enumerate(_MONTHS[:months], start=1):
            result = (
                spark_ext.write(flights.where(f"month = {number}").coalesce(1))
                .mode("append")
                .partitionBy("carrier")
                .option("userMetadata", f"{name} 2013")
                .save(str(target))
            )
            versions.append(result.version)
            rows.append(result.num_rows)
            report.wrote(name, result)
            advance()
            if number == months // 2:
                enabled = DeltaTable.open(target).enable_in_commit_timestamps()
                enabled_at = enabled.version
                report.enabled(enabled.version, enabled.timestamp_ms)
    flights.unpersist()
    commits = {entry.version: entry for entry in DeltaTable.open(target).history()}
    written = []
    for index, version in enumerate(versions):
        at = commits[version].timestamp_ms
        assert at is not None
        written.append(Month(_MONTHS[index], version, at, commits[version].clock, sum(rows[: index + 1])))
    return written, enabled_at


def copy_twice(path: Path, report: Report) -> None:
    """Make two copies: one with current file times, and one whose files all have the same old date."""
    shutil.copytree(path / TABLE, path / COPY, copy_function=shutil.copyfile)
    shutil.copytree(path / TABLE, path / ARCHIVE, copy_function=shutil.copyfile)
    date = _ARCHIVE_DATE.timestamp()
    for parent, _, files in os.walk(path / ARCHIVE):
        for file in files:
            os.utime(os.path.join(parent, file), (date, date))
    report.copied()


def compare(spark: SparkSession, path: Path, written: Sequence[Month], report: Report) -> list[Comparison]:
    """Query TIMESTAMP AS OF for every month in the original and both copies, and count the rows with Spark."""
    questions = [(path / name, month.timestamp_ms) for month in written for name in (TABLE, COPY, ARCHIVE)]
    with (
        report.progress(
            "Reading each month by its time with Spark, in the table and its copies", len(questions)
        ) as advance,
        # Planning a query occupies one core, so two queries run at a time.
        ThreadPoolExecutor(max_workers=2) as pool,
    ):
        answers = []
        for answer in pool.map(lambda question: ask(spark, *question), questions):
            answers.append(answer)
            advance()
    return [Comparison(month, *answers[3 * i : 3 * i + 3]) for i, month in enumerate(written)]


def ask(spark: SparkSession, table: Path, timestamp_ms: int) -> Answer:
    """The version that was current at the given time, and its row count."""
    instant = _EPOCH + datetime.timedelta(milliseconds=timestamp_ms)
    reader = spark_ext.read(spark).option("timestampAsOf", instant)
    try:
        version = reader.snapshot(str(table)).version
        return Answer(version, reader.load(str(table)).count())
    except TimestampOutOfRangeError as error:
        return Answer(None, None, error.message)


def explain(path: Path, compared: Sequence[Comparison], enabled_at: int, report: Report) -> None:
    """Print the answers side by side, and explain one answer from before and one from after in-commit timestamps were
    enabled."""
    report.answers(compared)
    before = [each.month for each in compared if each.month.version < enabled_at]
    after = [each.month for each in compared if each.month.version >= enabled_at]
    for name, month in ((ARCHIVE, before[0]), (COPY, after[0])):
        report.explained(name, month, str(DeltaTable.open(path / name).explain_timestamp(month.timestamp_ms)))


def make_pages(path: Path) -> None:
    """The timelines of the table and of its copy."""
    for table, page in ((TABLE, PAGE), (COPY, COPY_PAGE)):
        command = [sys.executable, "-m", "deltalog.cli.main", "timeline", "--no-check", "-o", str(path / page)]
        done = subprocess.run([*command, "--", str(path / table)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise DeltaLogError(f"deltalog timeline {path / table} failed:\n{done.stderr.strip()}")


@contextlib.contextmanager
def _extracted(archive: Path) -> Iterator[Path]:
    """Extract the CSV file from its zip archive, because Spark cannot read zip archives."""
    with tempfile.TemporaryDirectory(prefix="deltalog-demo-") as directory, zipfile.ZipFile(archive) as opened:
        yield Path(opened.extract("flights.csv", directory))


@contextlib.contextmanager
def _spark(log: Path, report: Report) -> Iterator[SparkSession]:
    """A local Spark session without additional jars; the output of the JVM goes to a file."""
    report.step("Starting Spark, without a Delta jar")
    builder = SparkSession.builder.appName("deltalog demo").master("local[*]")
    for key, value in {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    os.environ.pop("SPARK_REMOTE", None)  # otherwise the session builder would use its value as the master
    try:
        with _errors_into(log):
            session = builder.getOrCreate()
    except Exception as error:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise DemoNotPossibleError(f"Spark did not start: {error}\n{tail}\nThe whole log: {log}") from error
    try:
        yield session
    finally:
        session.stop()


@contextlib.contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Redirect the standard error of processes started in the block, such as Spark's JVM, to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
