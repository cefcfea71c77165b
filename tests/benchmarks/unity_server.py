"""``python -m tests.benchmarks.unity_server``: the Unity Catalog server under load; see docs/benchmarks.md.

One server process with a SQLite catalog, on one disk (``--below``), and clients that speak HTTP, each with a connection
of its own. Afterwards every acknowledged commit must be in the tables; the exit code is 1 if not, and never depends on
times.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.server import Served, served
from tests.support.server.unity import ROOT, Table, Unity


@dataclass(frozen=True)
class Effort:
    clients: tuple[int, ...] = (1, 8, 32)
    commits: int = 960
    tables: int = 1000
    calls: int = 100_000


QUICK = Effort(clients=(1, 4), commits=24, tables=10, calls=400)


@dataclass
class Row:
    """One figure. ``p50_ms``, ``p99_ms``: the times of single calls; ``mib``: the server's memory afterwards."""

    name: str
    per_second: float
    p50_ms: float
    p99_ms: float
    mib: float


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Client:
    """A connection that stays open."""

    def __init__(self, server: Served) -> None:
        where = urllib.parse.urlsplit(server.url)
        assert where.hostname
        self._connection = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
        self.times_ms: list[float] = []

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        start = time.perf_counter()
        self._connection.request(method, f"{ROOT}{path}", data)
        answer = self._connection.getresponse()
        received = answer.read()
        self.times_ms.append((time.perf_counter() - start) * 1000)
        return answer.status, json.loads(received) if received else None


def measure(effort: Effort, below: str | None) -> Report:
    report = Report()
    with tempfile.TemporaryDirectory(dir=below) as directory:
        place = Path(directory)
        options = ("--warehouse", str(place / "w"), "--log-level", "error", "--max-connections", "64")
        with served(place / "catalog.db", *options) as server:
            unity = Unity(server)
            unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
            for count in effort.clients:
                _commits(report, unity, count, effort.commits, shared=False)
            for count in effort.clients[1:]:
                _commits(report, unity, count, effort.commits // 4, shared=True)
            tables = [unity.new_table() for _ in range(effort.tables)]
            _loads(report, server, "loadTable of {0:,} tables, first time", tables, 1, effort.tables)
            for count in effort.clients:
                _loads(report, server, f"loadTable of {{0:,}} tables, {count} clients", tables, count, effort.tables)
            _loads(report, server, f"{effort.calls:,} calls", tables, 4, effort.calls)
    return report


def _commits(report: Report, unity: Unity, count: int, commits: int, *, shared: bool) -> None:
    """Commits of rows by ``count`` clients, each to a table of its own or all to one. Clients do not publish."""
    server, tables = unity.server, [unity.new_table() for _ in range(1 if shared else count)]
    lock, done = threading.Lock(), {table.id: 0 for table in tables}

    def work(client: Client, number: int) -> None:
        table = tables[number % len(tables)]
        for _ in range(commits // count):
            while True:
                with lock:
                    mine = Table(unity, table.schema, table.name, {"table-id": table.id, "location": table.location})
                    mine.version, mine.last_ms = table.version, table.last_ms
                add = mine.stage(rows=False)
                requirement = {"type": "assert-table-uuid", "uuid": table.id}
                status, _ = client.ask("POST", table.path, {"requirements": [requirement], "updates": [add]})
                commit = add["commit"]
                with lock:
                    if status == 200:
                        done[table.id] += 1
                        table.version = max(table.version, commit["version"])
                        table.last_ms = max(table.last_ms, commit["timestamp"])
                if status == 200:
                    break
                if status not in (400, 409):  # 400: its timestamp is not after that of a commit in between
                    report.wrong.append(f"a commit was answered {status}")
                    return
                client.times_ms.pop()
                found = client.ask("GET", table.path)[1]
                client.times_ms.pop()
                with lock:
                    table.version = max(table.version, found["latest-table-version"])
                    table.last_ms = max(table.last_ms, found["metadata"]["updated-time"])

    name = f"commits, {count} clients, {'one table' if shared else 'a table each'}"
    _run(report, server, name, count, work)
    for table in tables:
        version = table.load()["latest-table-version"]
        if version != done[table.id]:
            report.wrong.append(f"{name}: {done[table.id]} commits were acknowledged, but the version is {version}")


def _loads(report: Report, server: Served, name: str, tables: Sequence[Table], count: int, calls: int) -> None:
    def work(client: Client, number: int) -> None:
        for at in range(number, calls, count):
            table = tables[at % len(tables)]
            status, found = client.ask("GET", table.path)
            if status != 200 or found["metadata"]["table-uuid"] != table.id:
                report.wrong.append(f"{table.path} was answered {status}")

    _run(report, server, name.format(len(tables)), count, work)


def _run(report: Report, server: Served, name: str, count: int, work: Callable[[Client, int], None]) -> None:
    clients = [Client(server) for _ in range(count)]
    threads = [threading.Thread(target=work, args=(client, number)) for number, client in enumerate(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    times_ms = sorted(each for client in clients for each in client.times_ms)
    p99_ms = times_ms[min(len(times_ms) - 1, len(times_ms) * 99 // 100)]
    report.rows.append(Row(name, len(times_ms) / seconds, median(times_ms), p99_ms, _resident_mib(server)))


def _resident_mib(server: Served) -> float:
    """The server's memory; 0 where there is no /proc."""
    file = Path(f"/proc/{server.process.pid}/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.unity_server", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="checks only")
    parser.add_argument("--below", metavar="DIR", help="the directory of the tables")
    parser.add_argument("--json", metavar="OUT", help="write the figures")
    chosen = parser.parse_args(arguments)
    report = measure(QUICK if chosen.quick else Effort(), chosen.below)
    for row in report.rows:
        times = f"p50 {row.p50_ms:7.2f} ms   p99 {row.p99_ms:7.2f} ms"
        print(f"{row.name:44} {row.per_second:8.0f}/s   {times}   {row.mib:5.0f} MiB")
    for wrong in report.wrong:
        print(f"WRONG: {wrong}")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(asdict(report), indent=2))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
