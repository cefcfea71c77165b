"""``python -m tests.benchmarks.transactions``: transactions over several tables; see docs/benchmarks.md.

Compared calls alternate, and everything is on one disk (``--below``). The tables' contents are compared with what was
written; the exit code is 1 if they are wrong, and never depends on times. ``--dynamodb`` measures with a coordinator in
an emulator of DynamoDB instead of SQLite: the numbers of calls are meaningful, but the times are those of an emulator.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import deltalog
from deltalog.catalog.locate import open_coordinator
from deltalog.catalog.records import Proposal, Ratification, RatifiedCommit
from deltalog.protocol.paths import staged_commit_name, staged_commit_path
from deltalog.testing.coordinators import WrappedCoordinator

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
ROWS = pa.table({"id": list(range(100)), "value": [1.0] * 100}, schema=SCHEMA)
# Leave out the checkpoint that is due at every tenth commit.
PROPERTIES = {"delta.checkpointInterval": "1000000"}
ICT = {"delta.enableInCommitTimestamps": "true"}
TABLES = (1, 2, 10)


@dataclass(frozen=True)
class Effort:
    rounds: int = 40
    each_process: int = 40
    unpublished: int = 10_000
    processes: int = 4


QUICK = Effort(rounds=3, each_process=3, unpublished=30, processes=2)


@dataclass
class Row:
    """One figure. ``ms``: the median time of one operation; ``calls``, ``fsyncs``: how many of these one operation
    makes (None: not counted)."""

    title: str
    ms: float
    per_second: float
    calls: int | None = None
    fsyncs: int | None = None


@dataclass
class Report:
    coordinator: str
    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def check(self, what: str, found: Any, right: Any) -> None:
        if found != right:
            self.wrong.append(f"{what}: right {right}, got {found}")


class Counting(WrappedCoordinator):
    """Counts the calls."""

    calls = 0
    _lock = threading.Lock()

    def _pass(self, method: str, about: str, action: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls += 1
        return action()


class Catalog:
    """A catalog with tables ``b.t0``, ``b.t1`` and so on in a directory, and the rows appended to each."""

    def __init__(self, url: str, root: Path, options: dict[str, Any]) -> None:
        self.url, self.root, self.options = url, root, options
        self.coordinator = Counting(open_coordinator(url, **options))
        self.manager = deltalog.TransactionManager(self.coordinator)
        self.appended: collections.Counter[str] = collections.Counter()

    def tables(self, count: int) -> list[str]:
        """Create new tables. Returns their names."""
        names = [f"b.{uuid.uuid4().hex}" for _ in range(count)]
        for name in names:
            self.manager.create_table(name, str(self.root / name), SCHEMA, properties=PROPERTIES)
        return names

    def append(self, names: Sequence[str]) -> None:
        with self.manager.transaction() as transaction:
            for name in names:
                transaction.table(name).append(ROWS)
            transaction.commit()
        self.appended.update(names)

    def check(self, report: Report) -> None:
        """Check that every commit exists exactly once, and that no commit is still unpublished."""
        for name, count in self.appended.items():
            table = self.manager.table(name)
            report.check(f"files of {name}", table.snapshot().num_files, count)
            report.check(f"version of {name}", table.version, count)
            report.check(f"unpublished of {name}", self.manager.publish(name), 0)


@contextlib.contextmanager
def counted_fsyncs() -> Iterator[collections.Counter[str]]:
    """fsyncs of data files and log files; those that SQLite makes itself are not counted."""
    counts: collections.Counter[str] = collections.Counter()
    real = os.fsync

    def fsync(fd: Any) -> None:
        counts["fsync"] += 1
        real(fd)

    os.fsync = fsync
    try:
        yield counts
    finally:
        os.fsync = real


def one_writer(catalog: Catalog, effort: Effort, report: Report) -> None:
    """Separate commits to one table, without a catalog and with one; they alternate with transactions."""
    plain = deltalog.DeltaTable.create(catalog.root / "plain", SCHEMA, properties={**PROPERTIES, **ICT})
    (single,) = catalog.tables(1)
    managed = catalog.manager.table(single)
    groups = {count: catalog.tables(count) for count in TABLES}
    kinds: dict[str, Callable[[], Any]] = {
        "append to a plain table": lambda: plain.append(ROWS),
        "append to a managed table": lambda: managed.append(ROWS),
    }
    for count, names in groups.items():
        tables = "1 table" if count == 1 else f"{count} tables"
        kinds[f"transaction over {tables}"] = lambda names=names: catalog.append(names)  # type: ignore[misc]
    seconds: dict[str, list[float]] = {title: [] for title in kinds}
    for number in range(1 + effort.rounds):
        for title, work in kinds.items():
            begun = time.perf_counter()
            work()
            if number:  # the first run opens files and connections that later runs reuse
                seconds[title].append(time.perf_counter() - begun)
    for title, work in kinds.items():
        before = catalog.coordinator.calls
        with counted_fsyncs() as counts:
            work()
        calls = catalog.coordinator.calls - before
        report.rows.append(row(title, seconds[title], calls=calls, fsyncs=counts["fsync"]))
    done = effort.rounds + 2
    report.check("version of the plain table", plain.version, done)
    report.check("version of the managed table", managed.version, done)
    report.check("transactions", sum(catalog.appended.values()), done * sum(TABLES))
    catalog.check(report)


def row(title: str, seconds: Sequence[float], **counted: int) -> Row:
    return Row(title, median(seconds) * 1000, len(seconds) / sum(seconds), **counted)


def many_writers(catalog: Catalog, effort: Effort, report: Report) -> None:
    """Each process commits transactions that change two tables: first every process has its own two tables, then all
    processes share two."""
    count, shared = effort.processes, catalog.tables(2)
    for title, groups in (
        (f"{count} processes, 2 tables each", [catalog.tables(2) for _ in range(count)]),
        (f"{count} processes, the same 2 tables", [shared] * count),
    ):
        spawn = multiprocessing.get_context("spawn")
        barrier = spawn.Barrier(count)
        with ProcessPoolExecutor(count, mp_context=spawn, initializer=_meet_at, initargs=(barrier,)) as pool:
            place = catalog.url, str(catalog.root), catalog.options
            runs = [pool.submit(_process, *place, names, effort.each_process) for names in groups]
            found = [run.result() for run in runs]
        took = max(ended for _, ended, _ in found) - min(begun for begun, _, _ in found)
        seconds = [each for *_, times in found for each in times]
        report.rows.append(Row(title, median(seconds) * 1000, len(seconds) / took))
        for names in groups:
            catalog.appended.update(dict.fromkeys(names, effort.each_process))
    catalog.check(report)


def _meet_at(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


_barrier: Any = None


def _process(
    url: str, root: str, options: dict[str, Any], names: Sequence[str], amount: int
) -> tuple[float, float, list[float]]:
    catalog, seconds = Catalog(url, Path(root), options), []
    for name in names:
        catalog.manager.table(name)
    _barrier.wait()
    begun = time.monotonic()
    for _ in range(amount):
        started = time.monotonic()
        while True:
            with contextlib.suppress(deltalog.errors.TransactionContentionError):
                catalog.append(names)
                break
        seconds.append(time.monotonic() - started)
    return begun, time.monotonic(), seconds


def recovery(catalog: Catalog, effort: Effort, report: Report) -> None:
    """Commits that were ratified but never published. Measures a read before their publication, the publication itself,
    and a read after it."""
    (name,) = catalog.tables(1)
    ratify_only(catalog, name, effort.unpublished)

    def read(what: str) -> None:
        manager = deltalog.TransactionManager(open_coordinator(catalog.url, **catalog.options))
        begun = time.perf_counter()
        snapshot = manager.table(name).snapshot()
        files = snapshot.num_files
        seconds = time.perf_counter() - begun
        report.rows.append(Row(f"first reader, {effort.unpublished:,} commits {what}", seconds * 1000, 1 / seconds))
        report.check(f"files, {what}", (snapshot.version, files), (effort.unpublished, effort.unpublished))

    read("unpublished")
    begun = time.perf_counter()
    done = catalog.manager.recover()
    seconds = time.perf_counter() - begun
    title = f"recover() of {effort.unpublished:,} unpublished commits"
    report.rows.append(Row(title, seconds * 1000, effort.unpublished / seconds))
    report.check("published", done["published"], effort.unpublished)
    report.check("published again", catalog.manager.recover()["published"], 0)
    read("published")


def ratify_only(catalog: Catalog, name: str, count: int) -> None:
    """The state left by writers that crash before they publish."""
    (record,) = (each for each in catalog.manager.list_tables() if each.name == name)
    base_ms = catalog.manager.table(name).snapshot().timestamp_ms
    commits = []
    for version in range(1, count + 1):
        ict_ms, txn_id = base_ms + version, str(uuid.uuid4())
        info = {"inCommitTimestamp": ict_ms, "timestamp": ict_ms, "operation": "WRITE", "txnId": txn_id}
        add = {
            "path": f"part-{version}.parquet", "partitionValues": {}, "size": 1000, "modificationTime": ict_ms,
            "dataChange": True, "stats": '{"numRecords":1}',
        }  # fmt: skip
        data = "\n".join(json.dumps(each) for each in ({"commitInfo": info}, {"add": add})).encode()
        file = staged_commit_name(version, txn_id)
        path = Path(record.url) / staged_commit_path(file)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        commits.append(RatifiedCommit(version, file, ict_ms, len(data), txn_id))
    at_once = 50  # commits in a proposal: DynamoDB accepts at most 100 changes at once
    for start in range(0, count, at_once):
        proposal = Proposal({record.table_id: tuple(commits[start : start + at_once])})
        assert catalog.coordinator.ratify(proposal) is Ratification.RATIFIED


def measure(catalog: Catalog, effort: Effort) -> Report:
    report = Report(type(catalog.coordinator.inner).__name__)
    one_writer(catalog, effort, report)
    many_writers(catalog, effort, report)
    recovery(catalog, effort, report)
    return report


def markdown(report: Report) -> str:
    lines = ["| | ms | per second | coordinator calls | fsyncs of files |", "|---|---:|---:|---:|---:|"]
    for each in report.rows:
        counts = ("" if number is None else str(number) for number in (each.calls, each.fsyncs))
        lines.append(f"| {each.title} | {each.ms:,.1f} | {each.per_second:,.1f} | {' | '.join(counts)} |")
    return "\n".join(lines)


@contextlib.contextmanager
def emulated() -> Iterator[tuple[str, dict[str, Any]]]:
    """A catalog in ministack."""
    from deltalog.storage.dynamodb.tables import create_commit_table
    from tests.support.s3 import running

    with tempfile.TemporaryDirectory() as scratch, running("ministack", Path(scratch) / "log") as server:
        name = f"catalog-{uuid.uuid4().hex}"
        create_commit_table(name, "catalog", **server.options())
        yield f"dynamodb:{name}", server.options()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.transactions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few operations of each kind: checks, not figures")
    parser.add_argument("--dynamodb", action="store_true", help="use an emulator of DynamoDB instead of SQLite")
    parser.add_argument("--below", type=Path, help="the directory to work in (default: the one for temporary files)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to this file")
    chosen = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(dir=chosen.below))
    sqlite: contextlib.nullcontext[tuple[str, dict[str, Any]]] = contextlib.nullcontext((str(root / "catalog.db"), {}))
    try:
        with emulated() if chosen.dynamodb else sqlite as (url, options):
            report = measure(Catalog(url, root, options), QUICK if chosen.quick else Effort())
    finally:
        shutil.rmtree(root)
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(report), indent=1))
    note = " in an emulator: times are the emulator's" if chosen.dynamodb else ""
    print(f"{report.coordinator}{note}; load {os.getloadavg()[0]:.1f}\n\n{markdown(report)}")
    for each in report.wrong:
        print(f"WRONG: {each}", file=sys.stderr)
    return int(bool(report.wrong))


if __name__ == "__main__":
    sys.exit(main())
