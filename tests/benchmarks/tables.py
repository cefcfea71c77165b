"""The measured tables: synthetic logs, the same on every machine, written directly rather than by commits.

Only the logs exist: there are no data files, and the measured calls read none. The logs look like delta-spark's: each
commit has a line of commitInfo and a line of add with statistics of eight columns, each version has a ``.crc``, and
checkpoints are compressed with snappy and mix the rows of different actions.
"""

from __future__ import annotations

import datetime
import json
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.actions import BEGIN_MS, FILE_BYTES, ROWS, SmallActions, text_uuid, to_json
from tests.benchmarks.livefiles import ADDS, FilesTable

GENERATOR = 5  # part of the name of the cache directory; increase this number when the generated tables change
DAY_MS = 86_400_000
COLUMNS = (
    ("id", "long"),
    ("event_time", "timestamp"),
    ("customer", "string"),
    ("country", "string"),
    ("amount", "double"),
    ("quantity", "integer"),
    ("note", "string"),
    ("date", "date"),
)
NEW_COLUMNS = (("id", "long"), ("name", "string"), ("amount", "double"))
BATCH_ROWS = 100
_LINKS = 50_000  # hard links to one file; ext4 allows 65,000


@dataclass(frozen=True)
class LogTable:
    """A log in which each commit adds one file.

    ``file_times``: ``true`` sets each commit file's modification time to the commit's time; ``copied`` sets the times
    as ``cp -r`` would after the last commit, one file every millisecond. ``checkpoints``: whether the log has
    checkpoints (every n/10 versions, before each requested version, and near the end).
    """

    name: str
    size: int
    ict: bool = True
    file_times: str = "true"
    checkpoints: bool = True
    checksums: bool = True

    @property
    def description(self) -> str:
        clock = "in-commit timestamps from version 0" if self.ict else "no in-commit timestamps"
        times = "file times agree" if self.file_times == "true" else "file times of a copy made later"
        points = f"{len(self.checkpoint_versions())} classic checkpoints" if self.checkpoints else "no checkpoint"
        checksums = "a .crc each" if self.checksums else "no .crc"
        return f"{self.size:,} commits of one add each, {clock}, {times}, {checksums}, {points}"

    @property
    def fingerprint(self) -> str:
        """A key that changes when the table must be generated again."""
        return json.dumps(asdict(self))

    @property
    def small_actions(self) -> SmallActions:
        return SmallActions(self.name, COLUMNS, "date", self.ict)

    def write(self, root: Path) -> None:
        _write_log(self, root / "_delta_log")

    def questions(self, call: str) -> list[dict[str, Any]]:
        """Questions to ask: for each, the arguments of the call, and the fields that a correct answer contains."""
        if call == "history":
            return [{"ask": [], "right": {"commits": self.size, "newest": self.size - 1}}]
        asked = []
        for instant in instants(self.size) if call in ("resolve", "version_at", "travel") else ():
            version, at_ms = instant["version"], instant["timestamp_ms"]
            # Each version adds one file, so the number of files identifies the version.
            asked.append({"ask": [at_ms], "right": {"files": version + 1} if call == "travel" else version})
        return asked

    def checkpoint_versions(self) -> list[int]:
        """Ascending. Before each requested version, there is a checkpoint at the version where delta.checkpointInterval
        = 10 would have put the last one."""
        if not self.checkpoints:
            return []
        regular = range(self.size // 10, self.size, max(self.size // 10, 10))
        near = (q["version"] // 10 * 10 for q in instants(self.size))
        return sorted({v for v in (*regular, *near, (self.size - 1) // 10 * 10) if v > 0})


@dataclass(frozen=True)
class LongLog:
    """A log with so many commits that it has to be written compactly: each add has statistics of only one column, and
    many versions share one ``.crc`` through hard links; the last version has its own."""

    name: str
    size: int
    interval: int  # the checkpoint interval; ten commits follow the last checkpoint

    @property
    def description(self) -> str:
        return f"{self.size:,} commits of one add each, in-commit timestamps, a checkpoint every {self.interval:,}"

    @property
    def fingerprint(self) -> str:
        """A key that changes when the table must be generated again."""
        return json.dumps(asdict(self))

    def write(self, root: Path) -> None:
        from tests.benchmarks.latency.logs import Log, objects

        shared, links = "", 0
        tip = f"_delta_log/{self.size - 1:020d}.crc"
        for key, data, at_ms in objects(Log(self.name, self.size, self.interval)):
            path = f"{root}/{key}"
            if key.endswith(".crc") and shared and links < _LINKS and key != tip:
                os.link(shared, path)
                links += 1
                continue
            if key.endswith(".crc"):
                shared, links = path, 1
            Path(path).write_bytes(data)
            os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def questions(self, call: str) -> list[dict[str, Any]]:
        """The arguments and the expected result of each use of a call."""
        return [{"ask": [each["timestamp_ms"]], "right": each["version"]} for each in instants(self.size)]


@dataclass(frozen=True)
class NewTable:
    """The table has only version 0: three columns, no partitions, no rows."""

    name: str
    ict: bool = True
    checkpoint_interval: int = 1_000_000
    size: int = 1

    @property
    def description(self) -> str:
        clock = "in-commit timestamps" if self.ict else "no in-commit timestamps"
        return f"just created, {clock}, a checkpoint each {self.checkpoint_interval:,} commits"

    @property
    def fingerprint(self) -> str:
        """A key that changes when the table must be generated again."""
        return json.dumps(asdict(self))

    def write(self, root: Path) -> None:
        small = SmallActions(self.name, NEW_COLUMNS, "", self.ict, checkpoint_interval=self.checkpoint_interval)
        info = {**small.commit_info(0, BEGIN_MS, 0), "operation": "CREATE TABLE", "operationParameters": {}}
        lines = [{"commitInfo": info}, {"protocol": small.protocol()}, {"metaData": small.metadata()}]
        log = root / "_delta_log"
        (log / f"{0:020d}.json").write_text("".join(to_json(line) + "\n" for line in lines))
        (log / f"{0:020d}.crc").write_bytes(small.checksum(0, BEGIN_MS, 0, 0))

    def questions(self, call: str) -> list[dict[str, Any]]:
        """Writers are not asked questions, because the log itself shows whether their writes were correct."""
        return []


TABLES: dict[str, LogTable | LongLog | FilesTable | NewTable] = {
    table.name: table
    for table in (
        NewTable("new"),
        NewTable("new-checkpoints", checkpoint_interval=10),
        NewTable("new-noict", ict=False),
        NewTable("new-noict-checkpoints", ict=False, checkpoint_interval=10),
        LogTable("ict1", 1, checkpoints=False),
        LogTable("noict1", 1, ict=False, checkpoints=False),
        LogTable("ict10", 10, checkpoints=False),
        LogTable("ict100", 100),
        LogTable("ict100-copied", 100, file_times="copied"),
        LogTable("ict100-nocrc", 100, checksums=False),
        LogTable("ict1k", 1_000),
        LogTable("ict10k", 10_000),
        LogTable("ict10k-copied", 10_000, file_times="copied"),
        LogTable("ict10k-nocrc", 10_000, checksums=False),
        LogTable("ict100k", 100_000),
        LongLog("ict1m", 1_000_011, 100_000),
        LogTable("noict10", 10, ict=False, checkpoints=False),
        LogTable("noict100", 100, ict=False),
        LogTable("noict1k", 1_000, ict=False),
        LogTable("noict10k", 10_000, ict=False),
        FilesTable("files2k", 2_000),
        FilesTable("files4k", 4_000),
        FilesTable("files2k-parts", 2_000, "parts"),
        FilesTable("files2k-sidecars", 2_000, "sidecars"),
        FilesTable("files2k-deltalog", 2_000, "deltalog"),
        FilesTable("files2k-nocrc", 2_000, checksums=False),
        FilesTable("commits20", 20 * ADDS, "commits"),
        FilesTable("commits40", 40 * ADDS, "commits"),
        FilesTable("changes100", 100, "changes", checksums=False),
        FilesTable("files100k", 100_000),
        FilesTable("files250k", 250_000),
        FilesTable("files500k", 500_000),
        FilesTable("files1m", 1_000_000),
        FilesTable("files1m-parts", 1_000_000, "parts"),
        FilesTable("files1m-sidecars", 1_000_000, "sidecars"),
        FilesTable("files1m-deltalog", 1_000_000, "deltalog"),
        FilesTable("files1m-nocrc", 1_000_000, checksums=False),
        FilesTable("commits1k", 1_000 * ADDS, "commits"),
        FilesTable("commits2k", 2_000 * ADDS, "commits"),
        FilesTable("commits4k", 4_000 * ADDS, "commits"),
        FilesTable("changes10k", 10_000, "changes", checksums=False),
    )
}


def obtain(name: str, directory: Path) -> Path:
    """The root of a generated table, which is created on first use. An incomplete table is generated again."""
    table = TABLES[name]
    root = directory / f"v{GENERATOR}" / name
    done = root.parent / f"{name}.json"
    wanted = table.fingerprint
    if done.exists() and done.read_text() == wanted:
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.with_suffix(".hint").unlink(missing_ok=True)
    (root / "_delta_log").mkdir(parents=True)
    table.write(root)
    done.write_text(wanted)
    return root


def restore(root: Path, size: int, used: Path) -> None:
    """A measurement added commits and data files to a log of ``size`` versions; move them into ``used``."""
    log, aside = root / "_delta_log", Path(tempfile.mkdtemp(dir=used))
    for directory in root.glob("date=*"):
        directory.rename(aside / directory.name)
    with os.scandir(log) as entries:
        named = [(e.path, e.name.lstrip(".")[:20]) for e in entries]  # Hadoop writes .<name>.crc files
    for path, version in named:
        if version.isdecimal() and int(version) >= size:
            os.rename(path, aside / os.path.basename(path))
    hint, kept = log / "_last_checkpoint", root.with_suffix(".hint")
    if kept.exists():
        shutil.copyfile(kept, hint)
    else:
        hint.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------ generated logs


def commit_times(count: int) -> list[int]:
    """The commit times of versions 0 to count - 1; they increase in steps of between 1 ms and several hours."""
    chance = random.Random(20240101)
    scale = min(1.0, 20_000 / count)  # all of them in the past
    times, at_ms = [], BEGIN_MS
    for _ in range(count):
        times.append(at_ms)
        draw = chance.random()
        gap_ms = 1 if draw < 0.05 else chance.random() * (7_200_000 if draw > 0.98 else 120_000)
        at_ms += max(1, int(gap_ms * scale * 8))
    return times


def instants(size: int) -> list[dict[str, int]]:
    """Timestamps, each with the version that a reader must find; a timestamp is that of a commit, or 1 ms before that
    of the next commit."""
    times = commit_times(size)
    asked = []
    for number, share in enumerate((0.5, 0.31, 0.77, 0.96)):
        version = min(int(size * share) + 4, size - 2)
        at_ms = times[version] if number % 2 == 0 else times[version + 1] - 1
        asked.append({"version": version, "timestamp_ms": at_ms})
    return asked


def _day(number: int) -> str:
    return (datetime.date(2024, 1, 1) + datetime.timedelta(days=number % 200)).isoformat()


def add_body(number: int, at_ms: int) -> dict[str, Any]:
    """An add action, as delta-spark writes it."""
    day = _day(number)
    path = f"date={day}/part-{number % 200:05d}-{text_uuid(f'file {number}')}.c000.snappy.parquet"
    customer, note = text_uuid(f"c{number}")[:18], text_uuid(f"n{number}")
    stats = {
        "numRecords": 100_000 + number % 1000,
        "minValues": {
            "id": number * 100_000,
            "event_time": f"{day}T00:00:{number % 60:02d}.000Z",
            "customer": f"0{customer}",
            "country": "AD",
            "amount": round(number % 97 + 0.01, 2),
            "quantity": 1,
            "note": f"0{note}",
        },
        "maxValues": {
            "id": number * 100_000 + 99_999,
            "event_time": f"{day}T23:59:{number % 60:02d}.000Z",
            "customer": f"f{customer}",
            "country": "ZW",
            "amount": round(number % 97 + 999.99, 2),
            "quantity": 40 + number % 60,
            "note": f"f{note}",
        },
        "nullCount": {
            "id": 0, "event_time": 0, "customer": 0, "country": number % 7, "amount": number % 11, "quantity": 0,
            "note": number % 5000,
        },
    }  # fmt: skip
    return {
        "path": path,
        "partitionValues": {"date": day},
        "size": FILE_BYTES + number % 4096,
        "modificationTime": at_ms,
        "dataChange": True,
        "stats": to_json(stats),
    }


def arrow_schema() -> pa.Schema:
    """The columns, for those writers that need a schema."""
    types = {
        "long": pa.int64(), "timestamp": pa.timestamp("us", "UTC"), "string": pa.string(), "double": pa.float64(),
        "integer": pa.int32(), "date": pa.date32(),
    }  # fmt: skip
    return pa.schema([(name, types[kind]) for name, kind in COLUMNS])


def small_batch() -> pa.Table:
    """The rows that are appended to a NewTable."""
    numbers = range(BATCH_ROWS)
    names, amounts = [f"name {n}" for n in numbers], [n / 2 for n in numbers]
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": names, "amount": amounts})


def log_batch() -> pa.Table:
    """The rows, all of one day, that are appended to a LogTable."""
    day = datetime.date(2024, 1, 1)
    row = {
        "id": 1, "event_time": datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc), "customer": "c",
        "country": "AD", "amount": 0.5, "quantity": 1, "note": "n", "date": day,
    }  # fmt: skip
    return pa.Table.from_pylist([row] * BATCH_ROWS, arrow_schema())


def _write_log(table: LogTable, log: Path) -> None:
    small = table.small_actions
    times = commit_times(table.size)
    checkpoints = set(table.checkpoint_versions())
    adds: list[dict[str, Any]] = []
    size_bytes = 0
    for version, at_ms in enumerate(times):
        add = add_body(version, at_ms)
        adds.append(add)
        size_bytes += add["size"]
        lines = [{"commitInfo": small.commit_info(version, at_ms)}]
        if version == 0:
            lines += [{"protocol": small.protocol()}, {"metaData": small.metadata()}]
        lines.append({"add": add})
        path = log / f"{version:020d}.json"
        path.write_bytes("".join(to_json(line) + "\n" for line in lines).encode())
        file_ms = at_ms if table.file_times == "true" else times[-1] + DAY_MS + version
        os.utime(path, ns=(file_ms * 1_000_000, file_ms * 1_000_000))
        if table.checksums:
            checksum = small.checksum(version, at_ms, version + 1, size_bytes)
            (log / f"{version:020d}.crc").write_bytes(checksum)
        if version in checkpoints:
            _write_checkpoint(table, log, version, adds, hint=version == max(checkpoints))


def _write_checkpoint(table: LogTable, log: Path, version: int, adds: Sequence[dict[str, Any]], hint: bool) -> None:
    """One Parquet file, whose rows are in an order that is unrelated to the order of the commits, as in Spark's
    checkpoints."""
    rows = [{**add, "dataChange": False, "partitionValues": list(add["partitionValues"].items())} for add in adds]
    actions = [*table.small_actions.rows(), *(("add", row) for row in rows)]
    random.Random(version).shuffle(actions)
    arrays = []
    for field in ROWS:
        values = [body if name == field.name else None for name, body in actions]
        arrays.append(pa.array(values, field.type))
    path = log / f"{version:020d}.checkpoint.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=ROWS), path, compression="snappy")
    if hint:
        body = {
            "version": version, "size": len(actions), "sizeInBytes": path.stat().st_size, "numOfAddFiles": len(adds)
        }  # fmt: skip
        for target in (log / "_last_checkpoint", log.parent.with_suffix(".hint")):
            target.write_text(to_json(body))


def new_add(number: int) -> dict[str, Any]:
    """The add action of the ``number``-th measured commit; no table contains it yet."""
    return add_body(50_000_000 + number, BEGIN_MS)
