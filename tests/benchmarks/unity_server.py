"""``python -m tests.benchmarks.unity_server``: the load that a Unity Catalog server carries; see docs/benchmarks.md.

``deltalog serve`` runs as a process of its own, with SQLite, and everything is on one local disk (``--below``). Clients
are threads of other processes. Afterwards every commit must be in its table; the exit code is 1 if one is not, and
never depends on times.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import http.client
import json
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import deltalog
from deltalog.protocol.paths import commit_path, staged_commit_name, staged_commit_path
from deltalog.unity import messages, rules
from deltalog.unity.http import HttpClient

ROOT = messages.ROOT
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
ROWS = pa.table({"id": list(range(100)), "value": [1.0] * 100}, schema=SCHEMA)
# Leave out the checkpoint that is due at every tenth commit.
PROPERTIES = {"delta.checkpointInterval": "1000000"}
# The clients of a measurement are spread over at most this many processes.
PROCESSES = 4
_START_SECONDS = 120
ADD = {"path": "", "partitionValues": {}, "size": 1000, "modificationTime": 0, "dataChange": True}


@dataclass(frozen=True)
class Effort:
    """``appends``, ``commits``, ``loads``: how many each measurement makes, by all clients together. ``tables``: how
    many tables are loaded one after another. ``calls``: after how many calls the memory is measured, in ``samples``
    equal parts."""

    clients: tuple[int, ...] = (1, 8, 32)
    appends: int = 480
    commits: int = 1_600
    loads: int = 3_200
    tables: int = 1_000
    calls: int = 100_000
    samples: int = 10


QUICK = Effort(clients=(2,), appends=4, commits=8, loads=8, tables=4, calls=80, samples=2)


@dataclass
class Row:
    """One figure. Times are those that the callers see, in ms; ``cpu_ms``: the CPU time of the server for one
    operation."""

    title: str
    clients: int
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float


@dataclass
class Sample:
    """The resident memory of the server after a number of calls."""

    calls: int
    rss_mib: float


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)
    memory: list[Sample] = field(default_factory=list)
    requests_of_append: float = 0
    wrong: list[str] = field(default_factory=list)

    def check(self, what: str, found: Any, right: Any) -> None:
        if found != right:
            self.wrong.append(f"{what}: right {right}, got {found}")


# ------------------------------------------------------------------------------------------------- the server


class Place:
    """A catalog, its tables, and the server's process. ``committed``: the number of commits to each table."""

    def __init__(self, root: Path, catalog: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        """``catalog``: the URL of the catalog; default: a SQLite file below ``root``. ``options``: storage options."""
        self.root = root
        self.catalog = catalog or str(root / "catalog.db")
        self.manager = deltalog.TransactionManager(self.catalog, **(options or {}))
        self.options_file = root / "options.json"
        self.options_file.write_text(json.dumps(dict(options or {})))
        self.committed: collections.Counter[str] = collections.Counter()

    def tables(self, count: int) -> list[str]:
        """Create new tables. Returns their names in the schema ``b``."""
        names = [f"t{uuid.uuid4().hex}" for _ in range(count)]
        for name in names:
            self.manager.create_table(f"b.{name}", str(self.root / name), SCHEMA, properties=PROPERTIES)
        return names

    @contextlib.contextmanager
    def served(self, env: Mapping[str, str] | None = None) -> Iterator[Server]:
        from tests.support.server import served

        options = (
            "--warehouse", str(self.root / "lake"), "--storage-options-file", str(self.options_file),
            "--set", "limits.requests=256",  # more than there are clients: a refused call would end the measurement
        )  # fmt: skip
        with served(self.catalog, *options, env=env, log=self.root / "server.log") as running:
            yield Server(running.url, running.process.pid)

    def check(self, report: Report) -> None:
        """Check that the catalog and the log have every commit."""
        self.manager.recover()
        for name, count in self.committed.items():
            snapshot = self.manager.table(f"b.{name}").snapshot()
            report.check(f"version of {name}", snapshot.version, count)
            report.check(f"files of {name}", snapshot.num_files, count)
            report.check(f"published commits of {name}", (self.root / name / commit_path(count)).exists(), True)


@dataclass(frozen=True)
class Server:
    url: str
    pid: int

    def cpu_s(self) -> float:
        """The CPU time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Caller:
    """Sends requests over one connection."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=120)
        self._connection.connect()

    def ask(self, method: str, path: str, body: bytes | None = None, status: int = 200) -> bytes:
        """Returns the body of the response, which must have the status."""
        self._connection.request(method, ROOT + path, body, {"content-type": "application/json"} if body else {})
        response = self._connection.getresponse()
        data = response.read()
        if response.status != status:
            raise AssertionError(f"{method} {path} was answered by {response.status}: {data[:500]!r}")
        return data

    def load(self, name: str) -> messages.LoadedTable:
        return msgspec.json.decode(self.ask("GET", path_of(name)), type=messages.LoadedTable)

    def close(self) -> None:
        self._connection.close()


def path_of(name: str) -> str:
    return f"/delta/v1/catalogs/main/schemas/b/tables/{name}"


class Commits:
    """Commits to one table without an engine: staged files, and the requests that propose them. Each proposal reports
    that the commit before is published."""

    def __init__(self, loaded: messages.LoadedTable) -> None:
        self.table_id = loaded.metadata.table_uuid
        self.root = Path(loaded.metadata.location.removeprefix("file://"))
        self.last = loaded.latest_table_version or 0
        self._last_ms = loaded.metadata.last_commit_timestamp_ms or 0
        (self.root / staged_commit_path("")).mkdir(parents=True, exist_ok=True)

    def stage(self) -> tuple[messages.Commit, bytes]:
        """Stage the next commit. Returns it and the request."""
        self.last += 1
        self._last_ms = ict_ms = max(self._last_ms + 1, time.time_ns() // 1_000_000)
        txn_id = str(uuid.uuid4())
        info = {"inCommitTimestamp": ict_ms, "timestamp": ict_ms, "operation": "WRITE", "txnId": txn_id}
        add = {**ADD, "path": f"part-{self.last}.parquet", "modificationTime": ict_ms, "stats": '{"numRecords":1}'}
        data = "\n".join(json.dumps(each) for each in ({"commitInfo": info}, {"add": add})).encode()
        file = staged_commit_name(self.last, txn_id)
        (self.root / staged_commit_path(file)).write_bytes(data)
        commit = messages.Commit(
            version=self.last, timestamp=ict_ms, file_name=file, file_size=len(data), file_modification_timestamp=ict_ms
        )
        before = self.last - 1 or None
        return commit, msgspec.json.encode(rules.proposal(self.table_id, commit, (), None, before))

    def publish(self, commit: messages.Commit) -> None:
        """Publish an accepted commit."""
        with contextlib.suppress(FileExistsError):  # the server was faster
            os.link(self.root / staged_commit_path(commit.file_name), self.root / commit_path(commit.version))


# ------------------------------------------------------------------------------------------------- the clients

# A function of (URL, tables, operations, a call that waits for the others) that prepares its work, waits, and returns
# the times of its operations in seconds, and how many requests it has sent.
Meet = Callable[[], object]
Work = Callable[[str, Sequence[str], int, Meet], tuple[list[float], int]]


def appends(url: str, names: Sequence[str], count: int, meet: Meet) -> tuple[list[float], int]:
    """Appends by deltalog's client."""
    (name,) = names
    table = deltalog.DeltaTable.open(f"uc://main.b.{name}", unity_catalog_url=url)
    meet()
    before = _Counted.of_thread()
    seconds = [_timed(lambda: table.append(ROWS)) for _ in range(count)]
    return seconds, _Counted.of_thread() - before


def commits(url: str, names: Sequence[str], count: int, meet: Meet) -> tuple[list[float], int]:
    """updateTable with commits that were staged before: the server's part of a commit."""
    (name,) = names
    caller = Caller(url)
    prepared = Commits(caller.load(name))
    staged = [prepared.stage() for _ in range(count)]
    meet()
    seconds = []
    for commit, body in staged:
        seconds.append(_timed(lambda body=body: caller.ask("POST", path_of(name), body)))  # type: ignore[misc]
        prepared.publish(commit)
    caller.close()
    return seconds, count


def loads(url: str, names: Sequence[str], count: int, meet: Meet) -> tuple[list[float], int]:
    """loadTable of the tables in turn."""
    caller = Caller(url)
    meet()
    seconds = [_timed(lambda n=n: caller.ask("GET", path_of(names[n % len(names)]))) for n in range(count)]  # type: ignore[misc]
    caller.close()
    return seconds, count


def mixed(url: str, names: Sequence[str], count: int, meet: Meet) -> tuple[list[float], int]:
    """Calls of every kind: of 20, 14 loadTable and 2 commits."""
    caller, seconds = Caller(url), []
    tables: dict[str, Commits] = {}
    meet()
    for number in range(count):
        name, kind = names[number // 20 % len(names)], number % 20
        if kind in (0, 10):
            if name not in tables:
                tables[name] = Commits(caller.load(name))
            commit, body = tables[name].stage()
            seconds.append(_timed(lambda body=body, name=name: caller.ask("POST", path_of(name), body)))  # type: ignore[misc]
            tables[name].publish(commit)
            continue
        method, path, status = {
            1: ("HEAD", path_of(name), 204),
            2: ("GET", f"{path_of(name)}/credentials?operation=READ", 200),
            3: ("GET", "/tables?catalog_name=main&schema_name=b&max_results=10", 200),
            4: ("GET", path_of(f"absent{number}"), 404),
        }.get(kind, ("GET", path_of(names[number % len(names)]), 200))
        seconds.append(_timed(lambda m=method, p=path, s=status: caller.ask(m, p, status=s)))  # type: ignore[misc]
    caller.close()
    return seconds, count


def _timed(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


class _Counted(threading.local):
    """The requests that the client has sent in this thread."""

    sent = 0

    @classmethod
    def of_thread(cls) -> int:
        return _counted.sent


_counted = _Counted()


def _prepare() -> None:
    """In every process of clients: count the requests, and write down where the process is if it crashes."""
    faulthandler.enable()
    send = HttpClient.send

    def counted(self: HttpClient, *given: Any, **named: Any) -> Any:
        _counted.sent += 1
        return send(self, *given, **named)

    HttpClient.send = counted  # type: ignore[method-assign]


def _process(
    work: Work, url: str, groups: Sequence[Sequence[str]], count: int, place: Path
) -> tuple[float, float, list[float], int]:
    """One thread for each group of tables. When all are ready, the process creates a file in ``place``, and waits for
    the file ``go``. Returns begin, end, the times, and the number of requests."""
    begun: list[float] = []

    def wait() -> None:
        (place / uuid.uuid4().hex).touch()
        end = time.monotonic() + _START_SECONDS
        while not (place / "go").exists() and time.monotonic() < end:
            time.sleep(0.005)

    threads = threading.Barrier(len(groups), wait, 2 * _START_SECONDS)

    def one(names: Sequence[str]) -> tuple[list[float], int]:
        try:
            found = work(url, names, count, threads.wait)
        except BaseException:
            threads.abort()
            raise
        begun.append(time.monotonic() - sum(found[0]))
        return found

    with ThreadPoolExecutor(len(groups)) as pool:
        results = list(pool.map(one, groups))
    seconds = [each for times, _ in results for each in times]
    return min(begun), time.monotonic(), seconds, sum(requests for _, requests in results)


def run(
    report: Report, server: Server, title: str, work: Work, groups: Sequence[Sequence[str]], total: int
) -> tuple[Row, int]:
    """Let one client work on each group of tables, ``total`` operations in all. Returns the figure, which is added to
    the report, and the number of requests."""
    count = max(1, total // len(groups))
    processes = min(PROCESSES, len(groups))
    spawn = multiprocessing.get_context("spawn")
    # Processes that die must not leave the others waiting, as they do at a barrier of multiprocessing.
    with (
        tempfile.TemporaryDirectory() as directory,
        ProcessPoolExecutor(processes, mp_context=spawn, initializer=_prepare) as pool,
    ):
        place = Path(directory)
        runs = [pool.submit(_process, work, server.url, groups[n::processes], count, place) for n in range(processes)]
        while len(list(place.iterdir())) < processes:
            for each in runs:
                if each.done():
                    each.result()
            time.sleep(0.005)
        (place / "go").touch()
        before_s = server.cpu_s()
        found = [each.result() for each in runs]
        cpu_s = server.cpu_s() - before_s
    took_s = max(end for _, end, _, _ in found) - min(begin for begin, *_ in found)
    seconds = [each for _, _, times, _ in found for each in times]
    row = _row(title, len(groups), seconds, took_s, cpu_s)
    report.rows.append(row)
    return row, sum(requests for *_, requests in found)


def _row(title: str, clients: int, seconds: list[float], took_s: float, cpu_s: float) -> Row:
    ordered = sorted(seconds)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] * 1000 for share in (0.5, 0.99))
    return Row(title, clients, len(ordered) / took_s, p50, p99, cpu_s / len(ordered) * 1000)


# ------------------------------------------------------------------------------------------------ measurements


def rates(place: Place, effort: Effort, report: Report) -> None:
    """Appends of our client, the server's part of commits, and loads, by several clients, each with its own table;
    appends of all clients to one table."""
    names = place.tables(max(effort.clients))
    with place.served() as server:
        for clients in effort.clients:
            groups = [[name] for name in names[:clients]]
            _, requests = run(report, server, "append by deltalog's client", appends, groups, effort.appends)
            each = max(1, effort.appends // clients)
            report.requests_of_append = requests / (each * clients)
            place.committed.update({name: each for (name,) in groups})
        for clients in effort.clients[-2:]:
            run(report, server, "append to one table", appends, [names[:1]] * clients, effort.appends // 4)
            place.committed[names[0]] += max(1, effort.appends // 4 // clients) * clients
        for clients in effort.clients:
            groups = [[name] for name in names[:clients]]
            run(report, server, "updateTable with a commit", commits, groups, effort.commits)
            place.committed.update({name: max(1, effort.commits // clients) for (name,) in groups})
        for clients in effort.clients:
            run(report, server, "loadTable", loads, [[name] for name in names[:clients]], effort.loads)


def many_tables(place: Place, effort: Effort, report: Report) -> None:
    """loadTable of many tables by a server that was just started, and again; the memory of the server."""
    names = place.tables(effort.tables)
    with place.served() as server:
        report.memory.append(Sample(0, server.rss_mib()))
        title = f"loadTable of {effort.tables:,} tables"
        run(report, server, f"{title}, for the first time", loads, [names], effort.tables)
        run(report, server, f"{title}, again", loads, [names], effort.tables)
        clients = min(8, max(effort.clients))
        groups = [names[n::clients] for n in range(clients)]
        part = effort.calls // effort.samples
        for number in range(1, effort.samples + 1):
            row, calls = run(report, server, "", mixed, groups, part)
            report.rows.pop()
            report.memory.append(Sample(calls * number, server.rss_mib()))
        row.title = "calls of all kinds (1 of 10 a commit)"
        report.rows.append(row)
    each = part // clients
    for group in groups:
        done = collections.Counter(group[number // 20 % len(group)] for number in range(each) if number % 20 in (0, 10))
        place.committed.update({name: effort.samples * count for name, count in done.items()})


def measure(place: Place, effort: Effort) -> Report:
    report = Report()
    rates(place, effort, report)
    many_tables(place, effort, report)
    place.check(report)
    return report


def markdown(report: Report) -> str:
    lines = ["| | clients | per second | p50 ms | p99 ms | CPU ms of the server |", "|---|---:|---:|---:|---:|---:|"]
    for each in report.rows:
        lines.append(
            f"| {each.title} | {each.clients} | {each.per_second:,.0f} | {each.p50_ms:,.1f} | {each.p99_ms:,.1f} | "
            f"{each.cpu_ms:,.2f} |"
        )
    if report.memory:
        lines += ["", "| calls | memory of the server, MiB |", "|---:|---:|"]
        lines += [f"| {each.calls:,} | {each.rss_mib:,.1f} |" for each in report.memory]
    return "\n".join(lines)


def finish(report: Any, shown: str, file: Path | None, note: str = "") -> int:
    """Print a report, a dataclass with the faults in ``wrong``, and write it to a file. ``shown``: the report as a
    page; ``note``: follows the load of the machine. Returns the exit code.
    """
    if file:
        file.write_text(json.dumps(asdict(report), indent=1))
    print(f"load {os.getloadavg()[0]:.1f}{note}\n")
    print(shown)
    for each in report.wrong:
        print(f"WRONG: {each}", file=sys.stderr)
    return int(bool(report.wrong))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.unity_server", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few operations of each kind: checks, not figures")
    parser.add_argument("--below", type=Path, help="the directory to work in (default: the one for temporary files)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to this file")
    chosen = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(dir=chosen.below))
    try:
        report = measure(Place(root), QUICK if chosen.quick else Effort())
    finally:
        shutil.rmtree(root)
    note = f"; an append takes {report.requests_of_append:.1f} requests"
    return finish(report, markdown(report), chosen.json, note)


if __name__ == "__main__":
    sys.exit(main())
