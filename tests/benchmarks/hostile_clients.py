"""``python -m tests.benchmarks.hostile_clients``: how much hostile clients slow down the other clients; see
docs/benchmarks.md.

The server runs in a separate process. A well-behaved client loads a table and commits to it at a steady pace, over one
connection; another process makes one kind of attack after the other on the server, over real sockets. Phases with and
without the attack alternate, and the client's times are compared. The exit code is 1 if a call of the client fails, if
a commit is missing afterwards, or if the server's memory grows beyond its limits; it never depends on times.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from deltalog.protocol.paths import staged_commit_name, staged_commit_path
from deltalog.server.access.principals import Head, Identified, NotAuthenticatedError, Principal, bearer_tokens
from deltalog.server.limits import Limits
from deltalog.server.quotas import Quotas
from deltalog.server.serve import Server
from deltalog.server.settings import Settings
from deltalog.transactions.manager import TransactionManager
from deltalog.transactions.unity.settings import UnitySettings
from deltalog.unity import messages, rules
from tests.benchmarks.unity_server import ADD, ROOT, Commits, Place, finish, path_of
from tests.benchmarks.unity_server import Server as Running

QUOTAS = Quotas(
    calls_per_second=100,
    burst=50,
    concurrent_calls=4,
    pending_bytes=8 << 20,
    processors=0.2,
    failures_per_second=20,
    failure_burst=20,
)
# The maximum growth of the server's memory during all attacks: its limit on bodies, and what calls need to process
# them.
MOST_GROWTH_MIB = 400
_PAUSE_S = 0.01


@dataclass(frozen=True)
class Effort:
    """``seconds``: the length of each phase, with or without an attack. ``tables``: the number of tables in the
    catalog.
    """

    rounds: int = 3
    seconds: float = 5
    tables: int = 1_000
    idle: int = 3_000
    slow: int = 200
    threads: int = 4


QUICK = Effort(rounds=1, seconds=0.5, tables=20, idle=100, slow=20, threads=2)


@dataclass
class Row:
    """The times of the well-behaved client, in ms. ``attempts``: how often the attack was made."""

    attack: str
    quiet_p50_ms: float
    quiet_p99_ms: float
    p50_ms: float
    p99_ms: float
    attempts: int

    @property
    def ratio(self) -> float:
        return self.p99_ms / self.quiet_p99_ms


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def check(self, what: str, found: Any, right: Any) -> None:
        if found != right:
            self.wrong.append(f"{what}: expected {right}, got {found}")


# ------------------------------------------------------------------------------------------------- the server


class Names:
    """The token of a request is the name of its principal."""

    async def identify(self, head: Head) -> Identified:
        name = bearer_tokens(head.headers)[0]
        if name not in ("good", "hostile"):
            raise NotAuthenticatedError("The token is wrong.")
        return Identified(Principal(name, is_admin=True))


def serve(catalog: str, warehouse: str, *, quotas: bool) -> None:
    limits = Limits(quotas=QUOTAS if quotas else Quotas(), header_seconds=5, body_seconds=5, response_seconds=5)
    settings = Settings(port=0, limits=limits, unity=UnitySettings(warehouse=warehouse))
    server = Server(TransactionManager(catalog), settings)
    server._app._authenticator = Names()  # the command itself would use the tokens of the configuration
    print(server.url, flush=True)
    server.run(is_process=True)


@contextlib.contextmanager
def served(place: Place, quotas: bool) -> Iterator[Running]:
    command = [sys.executable, "-m", "tests.benchmarks.hostile_clients", "--serve", str(place.catalog), str(place.root)]
    with (place.root / "server.log").open("w") as log:
        process = subprocess.Popen(
            command + ([] if quotas else ["--no-quotas"]), stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        yield Running(process.stdout.readline().strip(), process.pid)
    finally:
        process.terminate()
        process.wait(60)


# ------------------------------------------------------------------------------------------------ the attacks


@dataclass(frozen=True)
class Target:
    host: str
    port: int
    table: str
    table_id: str
    root: str
    slow: int
    idle: int

    def open(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=10)

    def request(self, method: str, path: str, body: bytes = b"", length: int | None = None) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer hostile\r\n"
        size = len(body) if length is None else length
        return f"{head}Content-Length: {size}\r\n\r\n".encode() + body

    def ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> int:
        connection.request(method, path, body, {"authorization": "Bearer hostile"})
        response = connection.getresponse()
        response.read()
        return response.status

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=10)


WRONG = b"GET /api/2.1/unity-catalog/catalogs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer wrong\r\n\r\n"
Attack = Callable[[Target, threading.Event, Callable[[], object]], None]
LISTING = f"{ROOT}/tables?catalog_name=main&schema_name=b"
PREDICATES = (
    "struct(" * 400 + "id" + ")" * 400 + " is not null",
    "not " * 1500 + "id = 1",
    "(" * 3000 + "id = 1" + ")" * 3000,
    " and ".join(["id = 1"] * 500),
    "case when " * 200 + "id = 1" + " then 1 end = 1" * 200,
)


def dripping(target: Target, over: threading.Event, count: Callable[[], object], begin: bytes) -> None:
    """Many connections that send one byte now and then."""
    sockets: list[socket.socket] = []
    while not over.wait(0.1):
        while len(sockets) < target.slow and not over.is_set():
            with contextlib.suppress(OSError):
                sockets.append(target.open())
                sockets[-1].sendall(begin)
                count()
        for each in list(sockets):
            try:
                each.sendall(b"x")
            except OSError:
                each.close()
                sockets.remove(each)
    for each in sockets:
        each.close()


def slow_headers(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    dripping(target, over, count, b"POST /StartTransaction HTTP/1.1\r\nX-Slow: ")


def slow_bodies(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    dripping(target, over, count, target.request("POST", "/StartTransaction", length=100_000))


def unread_responses(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    """Connections that request long responses and do not read them."""
    sockets: list[socket.socket] = []
    while not over.wait(0.1):
        while len(sockets) < target.slow // 4 and not over.is_set():
            with contextlib.suppress(OSError):
                each = socket.socket()
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                each.settimeout(10)
                each.connect((target.host, target.port))
                each.sendall(target.request("GET", LISTING) * 20)
                sockets.append(each)
                count()
        for each in list(sockets):
            each.setblocking(False)
            try:
                if each.send(b"\r\n") == 0:
                    raise OSError
            except BlockingIOError:
                pass
            except OSError:
                each.close()
                sockets.remove(each)
    for each in sockets:
        each.close()


def idle_connections(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    sockets: list[socket.socket] = []
    while not over.wait(0.001):
        if len(sockets) < target.idle:
            with contextlib.suppress(OSError):
                sockets.append(target.open())
                count()
    for each in sockets:
        each.close()


def repeated(target: Target, over: threading.Event, count: Callable[[], object], *asked: tuple[str, str, Any]) -> None:
    """One request after the other, whatever the responses are."""
    connection = target.connection()
    for method, path, body in itertools.cycle(asked):
        if over.is_set():
            break
        try:
            target.ask(connection, method, path, body)
            count()
        except (OSError, http.client.HTTPException):
            connection.close()
    connection.close()


def giant_bodies(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    long = json.dumps({"DatabaseName": "x" * 4_000_000, "TableName": "t"}).encode()
    repeated(target, over, count, ("POST", "/GetTableObjects", long), ("POST", "/GetTableObjects", b" " * (6 << 20)))


def hostile_json(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    many = json.dumps({"Objects": [{}] * 1_000_000, "DatabaseName": "a", "TableName": "t"}).encode()
    repeated(
        target, over, count,
        ("POST", "/StartTransaction", b"[" * 100_000),
        ("POST", "/DeleteObjectsOnCancel", many),
        ("POST", path_below(target.table), b'{"updates":' + b"[" * 50_000),
    )  # fmt: skip


def predicates(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    asked = [
        ("POST", "/GetTableObjects", json.dumps({"DatabaseName": "b", "TableName": target.table, **where}).encode())
        for where in ({"PartitionPredicate": each} for each in PREDICATES)
    ]
    repeated(target, over, count, *asked)


def listings(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    repeated(target, over, count, ("GET", LISTING, None), ("GET", f"{ROOT}/schemas?catalog_name=main", None))


def large_commits(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    """Proposals of a large staged commit, which the server must read before it can refuse it."""
    file = staged_commit_name(1, str(uuid.uuid4()))
    path = Path(target.root) / staged_commit_path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    info = {"commitInfo": {"inCommitTimestamp": 1, "timestamp": 1, "operation": "WRITE", "txnId": "x"}}
    adds = ({"add": {**ADD, "path": f"part-{number}.parquet"}} for number in range(20_000))
    data = "\n".join(json.dumps(each) for each in (info, *adds)).encode()
    path.write_bytes(data)
    commit = messages.Commit(
        version=1, timestamp=time.time_ns() // 1_000_000, file_name=file, file_size=len(data),
        file_modification_timestamp=1,
    )  # fmt: skip
    body = msgspec.json.encode(rules.proposal(target.table_id, commit, (), None, None))
    repeated(target, over, count, ("POST", path_below(target.table), body))


def wrong_tokens(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    while not over.is_set():
        with contextlib.suppress(OSError), target.open() as connection:
            connection.sendall(WRONG)
            connection.recv(1000)
            count()


def cancellations(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    """Requests whose connections are reset at once."""
    while not over.is_set():
        with contextlib.suppress(OSError), target.open() as connection:
            connection.sendall(target.request("GET", LISTING))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            count()
        time.sleep(0.002)


def half_closed(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    """Requests whose client shuts down the sending side of the connection, and closes it only after a while."""
    sockets: list[socket.socket] = []
    while not over.wait(0.005):
        with contextlib.suppress(OSError):
            connection = target.open()
            connection.sendall(target.request("GET", LISTING))
            connection.shutdown(socket.SHUT_WR)
            sockets.append(connection)
            count()
        if len(sockets) > target.slow:
            sockets.pop(0).close()
    for each in sockets:
        each.close()


def no_http(target: Target, over: threading.Event, count: Callable[[], object]) -> None:
    while not over.is_set():
        with contextlib.suppress(OSError), target.open() as connection:
            connection.sendall(b"\x16\x03\x01\x00\xff" * 100 + b"\r\n\r\n")
            connection.recv(1000)
            count()
        time.sleep(0.002)


# The attacks, each with the number of threads that make it; 0: several threads.
ATTACKS: dict[str, tuple[Attack, int]] = {
    "headers, a byte at a time": (slow_headers, 1),
    "bodies, a byte at a time": (slow_bodies, 1),
    "responses that are not read": (unread_responses, 1),
    "idle connections": (idle_connections, 1),
    "bodies of 4 and 6 MiB": (giant_bodies, 0),
    "deep and long JSON": (hostile_json, 0),
    "predicates that nest": (predicates, 0),
    "listings of all tables": (listings, 0),
    "proposals of large commits": (large_commits, 0),
    "wrong tokens": (wrong_tokens, 0),
    "requests that are reset": (cancellations, 0),
    "half-closed connections": (half_closed, 1),
    "bytes that are not HTTP": (no_http, 0),
}


def path_below(table: str) -> str:
    return f"{ROOT}{path_of(table)}"


def attack(name: str, target: Target, threads: int, begun: Any, over: Any, made: Any) -> None:
    """The attacking process. It runs at a low priority (nice), so that it takes no CPU time that the server needs."""
    os.nice(15)
    function, count = ATTACKS[name]
    ended, lock, total = threading.Event(), threading.Lock(), itertools.count(1)

    def one() -> None:
        with lock:
            made.value = next(total)

    workers = [
        threading.Thread(target=function, args=(target, ended, one), daemon=True) for _ in range(count or threads)
    ]
    for each in workers:
        each.start()
    begun.set()
    over.wait()
    ended.set()
    for each in workers:
        each.join(15)


# ------------------------------------------------------------------------------------------------- measurement


class Good:
    """The well-behaved client."""

    def __init__(self, url: str, table: str) -> None:
        self._netloc = urllib.parse.urlsplit(url).netloc
        self._table = table
        self._connection = self._connected()
        self._commits = Commits(msgspec.json.decode(self._ask("GET", path_of(table)), type=messages.LoadedTable))

    @property
    def version(self) -> int:
        return self._commits.last

    def _connected(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._netloc, timeout=60)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        for attempt in range(5):
            try:
                self._connection.request(method, ROOT + path, body, {"authorization": "Bearer good"})
                response = self._connection.getresponse()
                data = response.read()
            except (OSError, http.client.HTTPException):
                # The server has closed the connection: among very many connections, it had been idle longest.
                self._connection.close()
                if attempt == 4:
                    raise
                continue
            if response.status != 200:
                raise AssertionError(f"{method} {path} was answered by {response.status}: {data[:500]!r}")
            return data
        raise AssertionError

    def work(self, seconds: float) -> list[float]:
        """Load and commit alternately; returns the times of the calls in ms."""
        times: list[float] = []
        end = time.monotonic() + seconds
        for number in itertools.count():
            if time.monotonic() >= end:
                return times
            staged = self._commits.stage() if number % 2 else None
            begun = time.perf_counter()
            if staged is None:
                self._ask("GET", path_of(self._table))
            else:
                self._ask("POST", path_of(self._table), staged[1])
            times.append((time.perf_counter() - begun) * 1000)
            if staged is not None:
                self._commits.publish(staged[0])
            time.sleep(_PAUSE_S)
        raise AssertionError


def quantiles(times: list[float]) -> tuple[float, float]:
    ordered = sorted(times)
    return ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def measure(place: Place, effort: Effort, quotas: bool, only: list[str]) -> Report:
    report, spawn = Report(), multiprocessing.get_context("spawn")
    good_table, bad_table = place.tables(effort.tables)[:2]
    with served(place, quotas) as server:
        where = urllib.parse.urlsplit(server.url)
        good = Good(server.url, good_table)
        bad = Good(server.url, bad_table)._commits
        target = Target(
            where.hostname or "", where.port or 0, bad_table, bad.table_id, str(bad.root), effort.slow, effort.idle
        )
        good.work(effort.seconds)
        report.rss_mib.append(server.rss_mib())
        for name in only or ATTACKS:
            quiet: list[tuple[float, float]] = []
            loud: list[tuple[float, float]] = []
            attempts = 0
            for _ in range(effort.rounds):
                quiet.append(quantiles(good.work(effort.seconds)))
                begun, over, made = spawn.Event(), spawn.Event(), spawn.Value("i", 0)
                process = spawn.Process(
                    target=attack, args=(name, target, effort.threads, begun, over, made), daemon=True
                )
                process.start()
                begun.wait(60)
                end = time.monotonic() + 30
                while not made.value and time.monotonic() < end:
                    time.sleep(0.05)
                time.sleep(min(1, effort.seconds))
                loud.append(quantiles(good.work(effort.seconds)))
                over.set()
                process.join(60)
                attempts += made.value
            p50, p99 = (median(each[n] for each in loud) for n in (0, 1))
            q50, q99 = (median(each[n] for each in quiet) for n in (0, 1))
            report.rows.append(Row(name, q50, q99, p50, p99, attempts))
            report.rss_mib.append(server.rss_mib())
            if not attempts:
                report.wrong.append(f"{name}: the attack was not made")
            print(f"{name}: p99 {q99:.1f} -> {p99:.1f} ms, {attempts} attempts", file=sys.stderr, flush=True)
        if max(report.rss_mib) - report.rss_mib[0] > MOST_GROWTH_MIB:
            report.wrong.append(f"the server grew: {report.rss_mib}")
        place.committed[good_table] = good.version
    snapshot = place.manager.table(f"b.{good_table}").snapshot()
    report.check("version", snapshot.version, good.version)
    report.check("files", snapshot.num_files, good.version)
    return report


def markdown(report: Report) -> str:
    lines = ["| attack | attempts | p50 ms, quiet | p50 ms | p99 ms, quiet | p99 ms | ratio |", "|---|" + "---:|" * 6]
    for each in report.rows:
        lines.append(
            f"| {each.attack} | {each.attempts:,} | {each.quiet_p50_ms:.1f} | {each.p50_ms:.1f} | "
            f"{each.quiet_p99_ms:.1f} | {each.p99_ms:.1f} | {each.ratio:.1f} |"
        )
    sizes = ", ".join(f"{each:.0f}" for each in report.rss_mib)
    return "\n".join([*lines, "", f"Memory of the server after each attack, MiB: {sizes}"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.hostile_clients", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="short phases and few clients, for a check instead of measurements"
    )
    parser.add_argument("--below", type=Path, help="the directory to work in (default: the one for temporary files)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to this file")
    parser.add_argument("--no-quotas", action="store_true", help="without limits per caller")
    parser.add_argument("--only", action="append", default=[], choices=list(ATTACKS), help="one attack; repeatable")
    parser.add_argument("--seconds", type=float, help="the length of each phase")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.serve:
        serve(*chosen.serve, quotas=not chosen.no_quotas)
        return 0
    effort = QUICK if chosen.quick else Effort()
    if chosen.seconds:
        effort = replace(effort, seconds=chosen.seconds)
    root = Path(tempfile.mkdtemp(dir=chosen.below))
    try:
        report = measure(Place(root), effort, not chosen.no_quotas, chosen.only)
    finally:
        shutil.rmtree(root)
    return finish(report, markdown(report), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
