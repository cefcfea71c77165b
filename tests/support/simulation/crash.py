"""Writers and readers that are real processes on a real store, repeatedly killed and stopped.

    report = run_kills("/tmp/some/table", Path("/tmp/records"), kills=300, seed=1)
    assert not report.problems, report.problems[0]

A zygote process (this module, run as a program) imports everything once and then forks the clients, so that a new
client does not repeat the imports; the zygote starts no threads. Some clients are killed by SIGKILL at random times,
others kill themselves between two system calls, and some are stopped by SIGSTOP and continue after others have
overtaken them. Each client writes to its own file what it is about to do, and afterwards the result; the file survives
the client's death. The log is verified by the independent checker (``deltalog.testing.checker``). Needs ``os.fork``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.errors import CommitAttemptsExhaustedError, CommitConflictError, CommitStateUnknownError, StoreError
from deltalog.storage.base import LogStore
from deltalog.storage.registry import open_store
from deltalog.table import DeltaTable
from deltalog.testing.checker import check, parse_commit, replay
from deltalog.testing.history import History, Operation, Read, Sighting
from deltalog.testing.recording import log_of, version_of
from tests.support.simulation import ROOT

ROWS = 3
SCHEMA = pa.schema([pa.field("x", pa.int64())])
ENABLE = "delta.enableInCommitTimestamps"
# System calls at which a client may kill itself; all of these calls change the disk.
POINTS = ("open", "write", "fsync", "link", "replace", "unlink", "mkdir")
_LOG_FILE = re.compile(r"\d{20}\.(json|crc|checkpoint\.parquet)|_last_checkpoint")


@dataclass(frozen=True)
class Plan:
    """The plan of the zygote. ``pause_seconds``: the mean time between two kills. ``stop_seconds``: how long a client
    remains stopped; 0: no client is stopped. ``points``: whether clients also kill themselves between system calls.
    ``options``: options of the store."""

    url: str
    records: str
    kills: int
    seed: int
    seconds: float
    writers: int = 4
    pause_seconds: float = 0.03
    stop_seconds: float = 0.0
    points: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class KillReport:
    """The statistics of a run, and the list ``problems`` of the problems that it found, violations first."""

    kills: dict[str, int]
    outcomes: dict[str, int]
    landed: int  # operations that were committed although their client was killed
    versions: int
    reads: int
    sightings: int
    enabled_at: int | None
    log_files: list[str]
    problems: list[str]
    seconds: float

    @property
    def killed(self) -> int:
        return self.kills["timed"] + self.kills["at a point"]

    def line(self) -> str:
        """The summary line of a report."""
        hidden = sum(name.startswith(".") for name in self.log_files)
        return (
            f"kills={self.killed} (timed {self.kills['timed']}, at a point {self.kills['at a point']}) "
            f"stops={self.kills['stopped']} in_flight={self.outcomes['killed']} (landed {self.landed}) "
            f"versions={self.versions} acked={self.outcomes['ok']} failed={self.outcomes['failed']} "
            f"unknown={self.outcomes['unknown']} reads={self.reads} sightings={self.sightings} "
            f"hidden_leftovers={hidden} violations={len(self.problems)} seconds={self.seconds:.1f}"
        )


def run_kills(
    url: str,
    records: Path,
    *,
    kills: int,
    seed: int,
    seconds: float = 0.0,
    pause_seconds: float = 0.03,
    stop_seconds: float = 0.0,
    points: bool = True,
    **options: Any,
) -> KillReport:
    """Create a table at ``url``, kill writers until ``kills`` is reached, and check the log. ``records`` is an empty
    directory. ``seconds`` is a time limit; by default it grows with ``kills``."""
    started = time.monotonic()
    limit = seconds or max(60.0, kills * 0.3)
    plan = Plan(
        url,
        str(records),
        kills,
        seed,
        limit,
        pause_seconds=pause_seconds,
        stop_seconds=stop_seconds,
        points=points,
        options=options,
    )
    store = open_store(url, **options)
    watcher = Watcher(store)
    watcher.start()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.simulation.crash"],
            cwd=ROOT,
            input=json.dumps(asdict(plan)),
            capture_output=True,
            text=True,
            timeout=limit + 120,
        )
    finally:
        watcher.stopped.set()
        watcher.join()
    if done.returncode != 0:
        raise RuntimeError(f"the clients could not be run: {done.stderr[-2000:]}")
    report = judge(store, records, json.loads(done.stdout), watcher.sightings)
    if done.stderr:
        report.problems.append(f"a client printed {done.stderr[-500:]}")
    report.seconds = time.monotonic() - started
    return report


# ------------------------------------------------------------------------------------------------------- the judge


class Watcher(threading.Thread):
    """Reads each commit file as soon as it appears, so that a partly written file would be detected."""

    def __init__(self, store: LogStore) -> None:
        super().__init__(daemon=True)
        self.sightings: list[Sighting] = []
        self.stopped = threading.Event()
        self._store = store

    def run(self) -> None:
        following = 0
        while not self.stopped.is_set():
            with contextlib.suppress(StoreError):
                names = self._store.list_names("_delta_log", f"{following:020d}.json")
                versions = [v for name in names if (v := version_of(f"_delta_log/{name}")) is not None]
                for version in range(following, max(versions, default=-1) + 1):
                    with contextlib.suppress(StoreError):  # the checker reports missing versions
                        data = self._store.get(f"_delta_log/{version:020d}.json")
                        self.sightings.append(Sighting(time.monotonic_ns(), version, data))
                following = max(following, *versions) + 1 if versions else following
            time.sleep(0.001)


def judge(store: LogStore, records: Path, kills: dict[str, int], sightings: list[Sighting]) -> KillReport:
    """Compare the log with the journals of the clients."""
    operations, reads, problems = _journals(records)
    metas = store.list_from("_delta_log")
    log_files = sorted(meta.name for meta in metas)
    times = {version_of(f"_delta_log/{m.name}"): m.modification_time_ms or 0 for m in metas}
    data_files = frozenset(meta.name for meta in store.list_from(""))
    history = History(
        log_of(store),
        operations,
        reads,
        sightings,
        modification_times_ms={v: ms for v, ms in times.items() if v is not None},
        initial=1,
        data_files=data_files,
    )
    problems[:0] = map(str, check(history))
    if not problems:
        problems += _leftovers(log_files) + _read_back(store, history)
    if kills["failed"]:
        problems.append(f"{kills['failed']} clients ended with an error")
    landed = {parse_commit(version, data).token for version, data in history.log.items()}
    states = replay(history.log)
    return KillReport(
        kills,
        {o: sum(each.outcome == o for each in operations) for o in ("ok", "failed", "unknown", "killed")},
        sum(each.outcome == "killed" and each.token in landed for each in operations),
        len(history.log),
        len(reads),
        len(sightings),
        next((version for version, state in sorted(states.items()) if state.ict_active), None),
        log_files,
        problems,
        0.0,
    )


def _journals(records: Path) -> tuple[list[Operation], list[Read], list[str]]:
    """The clients' journals: operations (only the last line for each counts), reads, and errors of readers."""
    operations: dict[str, Operation] = {}
    reads: list[Read] = []
    errors: list[str] = []
    for path in sorted(records.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if path.name.startswith("w"):
                operation = Operation.from_json(line)
                operations[operation.token] = operation
                continue
            seen = json.loads(line)
            if "error" in seen:
                errors.append(f"a reader met {seen['error']}")
            else:
                reads.append(Read(**{**seen, "files": frozenset(seen["files"])}))
    return list(operations.values()), reads, errors


def _leftovers(log_files: list[str]) -> list[str]:
    """Every remaining file must be a log file or have a hidden name."""
    strange = [name for name in log_files if not _LOG_FILE.fullmatch(name) and not name.startswith(".")]
    return [f"{name} was left in the log" for name in strange]


def _read_back(store: LogStore, history: History) -> list[str]:
    """Check that data files are complete, that versions are readable, and that the next commit and checkpoint
    succeed."""
    problems: list[str] = []
    states = replay(history.log)
    rows: dict[str, list[int]] = {}
    for version, data in history.log.items():
        commit = parse_commit(version, data)
        for path in commit.paths("add"):
            with store.open_input(path) as source, pq.ParquetFile(source) as file:
                rows[path] = file.read()["x"].to_pylist()
            if rows[path] != rows_of(commit.token or ""):
                problems.append(f"version {version} names a file with other rows")
    table = DeltaTable.open(store)
    some = {max(states), *random.Random(0).sample(sorted(states), min(20, len(states)))}
    for version in sorted(some):
        found = table.snapshot(version)
        if frozenset(found.files()["path"].to_pylist()) != states[version].files:
            problems.append(f"version {version} has other files when it is read back")
        expected = sorted(x for path in states[version].files for x in rows[path])
        if sorted(found.scan().to_arrow()["x"].to_pylist()) != expected:
            problems.append(f"version {version} has other rows when it is read back")
    if table.append(pa.table({"x": pa.array([-1], pa.int64())})).version != max(states) + 1:
        problems.append("the next commit is not the next version")
    table.checkpoint()
    if -1 not in DeltaTable.open(store).snapshot().scan().to_arrow()["x"].to_pylist():
        problems.append("the next commit cannot be read")
    return problems


def rows_of(token: str) -> list[int]:
    """The values in the rows that an operation writes. The values identify the operation, so each row shows which
    operation wrote it."""
    client, number = re.findall(r"\d+", token)
    return [int(client) * 1_000_000 + int(number) * 10 + n for n in range(ROWS)]


# -------------------------------------------------------------------------------------------- the client processes


class Journal:
    """A journal whose lines survive a SIGKILL of this process."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._write = os.write  # not counted as a point

    def add(self, line: str) -> None:
        self._write(self._descriptor, line.encode() + b"\n")


def kill_at(number: int, after: bool) -> None:
    """Make this process kill itself at the ``number``-th call of a function in POINTS, before or after its effect."""
    left = [number]

    def hooked(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*args, **options)
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for name in POINTS:
        setattr(os, name, hooked(getattr(os, name)))


def write(plan: Plan, client: str, rng: random.Random) -> None:
    """One writer, which runs operations until its time limit has passed or the file ``stop`` exists."""
    journal = Journal(f"{plan.records}/{client}.jsonl")
    point = (rng.randrange(1, 40), rng.random() < 0.5) if rng.random() < 0.75 else None
    table = DeltaTable.open(plan.url, **plan.options)
    if point is not None and plan.points:
        kill_at(*point)
    number = 0
    while not os.path.exists(f"{plan.records}/stop"):
        number += 1
        record = Operation(f"{client}-{number}", client, "", time.monotonic_ns())
        run = choose(table, rng, record)
        journal.add(record.to_json())
        try:
            result = run()
            record.outcome, record.version = "ok", result.version
            record.txn_id, record.ict_ms = result.txn_id, result.in_commit_timestamp_ms
        except CommitStateUnknownError as error:
            record.outcome, record.error = "unknown", str(error)
        except (CommitConflictError, CommitAttemptsExhaustedError, StoreError) as error:
            record.outcome, record.error = "failed", type(error).__name__
        except Exception as error:
            record.outcome, record.error = "crashed", f"{type(error).__name__}: {error}"
        record.returned = time.monotonic_ns()
        journal.add(record.to_json())


def choose(table: DeltaTable, rng: random.Random, record: Operation) -> Callable[[], Any]:
    """Choose the next operation and write it to the journal."""
    draw, token = rng.random(), record.token
    data = pa.table({"x": rows_of(token)}, SCHEMA)
    if draw < 0.70:
        record.kind, record.removes = "append", []
        return lambda: table.append(data, user_metadata=token)
    if draw < 0.82:
        record.kind = "overwrite"
        record.removes_all = True
        return lambda: table.overwrite(data, user_metadata=token)
    if draw < 0.92:
        record.kind, record.adds = "remove", []
        return lambda: remove_one(table, rng, token)
    if draw < 0.97 or table.version < 20:
        record.kind, record.adds, record.removes = "property", [], []
        record.properties = {f"custom.{record.client}": token}
    else:
        record.kind, record.adds, record.removes = "enable", [], []
        record.properties = {ENABLE: "true"}
    properties = {k: v for k, v in record.properties.items() if v is not None}
    return lambda: table.set_properties(properties, user_metadata=token)


def remove_one(table: DeltaTable, rng: random.Random, token: str) -> Any:
    with table.transaction() as transaction:
        assert transaction.snapshot is not None
        live = sorted(transaction.snapshot.files()["path"].to_pylist())
        transaction.remove(rng.sample(live, min(1, len(live))))
        return transaction.commit("DELETE", user_metadata=token)


def read(plan: Plan, client: str, rng: random.Random) -> None:
    """A reader: repeatedly reads the latest version, with a new or an old handle."""
    journal = Journal(f"{plan.records}/{client}.jsonl")
    table = DeltaTable.open(plan.url, **plan.options)
    while not os.path.exists(f"{plan.records}/stop"):
        invoked = time.monotonic_ns()
        try:
            if rng.random() < 0.5:
                table = DeltaTable.open(plan.url, **plan.options)
            snapshot = table.snapshot()
            seen = {
                "version": snapshot.version,
                "files": snapshot.files()["path"].to_pylist(),
                "ict_ms": snapshot.in_commit_timestamp_ms,
                "configuration": dict(snapshot.metadata.configuration),
            }
        except Exception as error:
            seen = {"error": f"{type(error).__name__}: {error}"}
        journal.add(json.dumps({"client": client, "invoked": invoked, "returned": time.monotonic_ns(), **seen}))
        time.sleep(0.01)


# ------------------------------------------------------------------------------------------------------ the zygote


def fork(body: Callable[..., None], *args: Any) -> int:
    """Fork a child process; the child runs ``body`` and never returns to the caller's code."""
    child = os.fork()
    if child:
        return child
    try:
        body(*args)
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def create(plan: Plan) -> None:
    DeltaTable.create(plan.url, SCHEMA, properties={"delta.checkpointInterval": "7"}, **plan.options)


def clients(plan: Plan) -> Iterator[int]:
    """Start new writers endlessly; yields their process ids."""
    number = 0
    while True:
        number += 1
        yield fork(write, plan, f"w{number}", random.Random(f"{plan.seed}/{number}"))


class Fire:
    """The running writers, and how they are killed and stopped."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.done = {"timed": 0, "at a point": 0, "failed": 0, "stopped": 0}
        self._random = random.Random(plan.seed)
        self._supply = clients(plan)
        self._alive: set[int] = set()
        self._stopped: dict[int, float] = {}  # process id -> the time when it continues

    @property
    def kills(self) -> int:
        return self.done["timed"] + self.done["at a point"]

    def step(self) -> None:
        """Wait a moment, then kill or stop a client, and start new ones."""
        while len(self._alive) < self.plan.writers:
            self._alive.add(next(self._supply))
        time.sleep(self._random.expovariate(1 / self.plan.pause_seconds))
        self._bury()
        self._wake(time.monotonic())
        awake = sorted(self._alive - set(self._stopped))
        if len(self._alive) < self.plan.writers or not awake:
            return
        victim = self._random.choice(awake)
        # One stop for every four kills, so that a short run has some.
        is_due = self.done["timed"] >= 4 * (self.done["stopped"] + 1)
        if self.plan.stop_seconds and not self._stopped and is_due:
            os.kill(victim, signal.SIGSTOP)
            self._stopped[victim] = time.monotonic() + self.plan.stop_seconds
            self.done["stopped"] += 1
            return
        os.kill(victim, signal.SIGKILL)
        _, status = os.waitpid(victim, 0)
        self._alive.discard(victim)
        self.done["timed" if os.WTERMSIG(status) == signal.SIGKILL else "failed"] += 1

    def end(self) -> None:
        """Tell the remaining writers to stop, and wait until they have stopped."""
        self._wake(float("inf"))
        for child in self._alive:
            _, status = os.waitpid(child, 0)
            self._count(status)

    def _bury(self) -> None:
        for child in sorted(self._alive):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                self._alive.remove(child)
                self._stopped.pop(child, None)
                self._count(status)

    def _wake(self, now: float) -> None:
        for child, at in list(self._stopped.items()):
            if at <= now:
                os.kill(child, signal.SIGCONT)
                del self._stopped[child]

    def _count(self, status: int) -> None:
        if os.WIFSIGNALED(status):
            self.done["at a point"] += 1
        elif status:
            self.done["failed"] += 1


# The packages whose modules deltalog imports when an operation needs them.
_OF_CLIENTS = (
    "deltalog.alter", "deltalog.commit", "deltalog.create", "deltalog.expressions", "deltalog.log",
    "deltalog.maintenance", "deltalog.parquet", "deltalog.protocol", "deltalog.read", "deltalog.rows", "deltalog.write",
)  # fmt: skip


def main(plan: Plan) -> dict[str, int]:
    # Import everything that the clients need before forking, because importing takes longer than a client runs.
    pa.array(rows_of("w1-1"))  # imports pandas
    for package in _OF_CLIENTS:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    open_store(plan.url, **plan.options)
    deadline = time.monotonic() + plan.seconds
    _, status = os.waitpid(fork(create, plan), 0)
    if status:
        raise RuntimeError("the table could not be made")
    reader = fork(read, plan, "r1", random.Random(f"{plan.seed}/reader"))
    fire = Fire(plan)
    while fire.kills < plan.kills and time.monotonic() < deadline:
        fire.step()
    Path(plan.records, "stop").touch()
    fire.end()
    _, status = os.waitpid(reader, 0)
    fire.done["failed"] += bool(status)
    return fire.done


if __name__ == "__main__":
    print(json.dumps(main(Plan(**json.load(sys.stdin)))))
