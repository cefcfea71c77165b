"""``python -m tests.benchmarks.server_soak --minutes 60``: a bank on a server, while server, database and clients are
killed.

The accounts are rows of several tables of one catalog. Some clients transfer money from one table to another, in
transactions of their own process or through the server's transaction calls; others transfer money within one table
through Unity Catalog's API. Each client writes down the transfers that were acknowledged. Further clients compact the
tables and compute sums. The exit code is 1 unless afterwards every acknowledged transfer is in the tables, no transfer
is there in part, no money was lost or created, the timestamps of all commits increase, the doctor finds nothing, and
the server's memory has stayed within its limit. ``--catalog postgresql`` kills the database too.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import http.client
import itertools
import json
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import deltalog
from deltalog.doctor.check import check as examine
from deltalog.errors import CoordinatorError, DeltaLogError
from tests.benchmarks.unity_server import Server as Running

SCHEMA = pa.schema([("transfer", pa.string()), ("amount", pa.int64())])
TABLES = ("a", "b", "c", "d")
INITIAL = 1_000
MOST_RSS_MIB = 600
_START_SECONDS = 300


@dataclass
class Report:
    """``acknowledged``: the number of acknowledged transfers by kind of client. ``kills``: the number of kills by what
    was killed. ``rss_mib``: the server's memory at even intervals, across its restarts.
    """

    acknowledged: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    rss_mib: list[float] = field(default_factory=list)
    sums: int = 0
    compactions: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    root: Path
    catalog: str
    url: str

    def manager(self) -> deltalog.TransactionManager:
        """Wait while the database is down."""
        while True:
            try:
                return deltalog.TransactionManager(self.catalog)
            except CoordinatorError as error:
                self.note("refused", f"opening: {type(error).__name__}")
                time.sleep(0.2)

    def note(self, kind: str, text: str) -> None:
        """Append a line to the notes of a process. The notes survive if the process is killed."""
        file = os.open(self.root / "notes" / f"{kind}-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{text}\n".encode())
        os.close(file)

    def noted(self, kind: str) -> list[str]:
        files = (self.root / "notes").glob(f"{kind}-*")
        return [line for file in files for line in file.read_text().splitlines()]


def rows(transfer: str, *amounts: int) -> pa.Table:
    return pa.table({"transfer": [transfer] * len(amounts), "amount": list(amounts)}, schema=SCHEMA)


# ------------------------------------------------------------------------------------------------ the clients


def in_process(place: Place, chance: random.Random) -> Callable[[str], None]:
    """Transactions of the client's own process, which uses the catalog without the server."""
    manager = place.manager()

    def transfer(name: str) -> None:
        (one, two), amount = chance.sample(TABLES, 2), chance.randint(1, 100)
        with manager.transaction() as transaction:
            transaction.table(f"bank.{one}").append(rows(name, -amount))
            transaction.table(f"bank.{two}").append(rows(name, amount))
            transaction.commit()

    return transfer


class Calls:
    """The server's calls over HTTP."""

    def __init__(self, url: str) -> None:
        self._netloc = urllib.parse.urlsplit(url).netloc

    def __call__(self, operation: str, **members: Any) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._netloc, timeout=60)
        try:
            connection.request("POST", f"/{operation}", json.dumps(members))
            response = connection.getresponse()
            data = response.read()
            if response.status >= 300:
                raise OSError(f"{operation}: {response.status} {data[:200]!r}")
            found: dict[str, Any] = json.loads(data or b"{}")
            return found
        finally:
            connection.close()


def served(place: Place, chance: random.Random) -> Callable[[str], None]:
    """Transactions through the server's calls."""
    call = Calls(place.url)

    def transfer(name: str) -> None:
        tables, amount = chance.sample(TABLES, 2), chance.randint(1, 100)
        started = call("StartTransaction")["TransactionId"]
        for table, value in zip(tables, (-amount, amount), strict=True):
            path = place.root / table / f"served-{uuid.uuid4()}.parquet"
            pq.write_table(rows(name, value), path)
            data = path.read_bytes()
            etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
            added = {"Uri": str(path), "ETag": etag, "Size": len(data)}
            call(
                "UpdateTableObjects", TransactionId=started, DatabaseName="bank", TableName=table,
                WriteOperations=[{"AddObject": added}],
            )  # fmt: skip
        if call("CommitTransaction", TransactionId=started)["TransactionStatus"] != "COMMITTED":
            raise OSError("the commit is in progress")

    return transfer


def by_unity(place: Place, chance: random.Random) -> Callable[[str], None]:
    """Commits to one table by Unity Catalog's API."""

    def transfer(name: str) -> None:
        table = deltalog.DeltaTable.open(f"uc://main.bank.{chance.choice(TABLES)}", unity_catalog_url=place.url)
        amount = chance.randint(1, 100)
        table.append(rows(name, -amount, amount))

    return transfer


TRANSFERS = {"in process": in_process, "served": served, "unity": by_unity}


def transfers(place: Place, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    transfer = TRANSFERS[kind](place, chance)
    while True:
        name = f"{kind}/{uuid.uuid4()}"
        try:
            transfer(name)
        except (DeltaLogError, OSError, http.client.HTTPException) as error:
            place.note("refused", f"{kind}: {type(error).__name__}")
            time.sleep(0.2)  # no server, or a conflict: the transfer may have been made
        else:
            place.note("acknowledged", name)


def sums(place: Place, _: str, seed: int) -> None:
    """Sum up all tables as of one instant."""
    manager = place.manager()
    while True:
        time.sleep(5 + seed % 3)
        try:
            transaction = manager.transaction(transaction_type="READ_ONLY")
            total = sum(
                sum(transaction.table(f"bank.{name}").to_pyarrow_table()["amount"].to_pylist()) for name in TABLES
            )
            transaction.cancel()
        except (DeltaLogError, OSError) as error:
            place.note("refused", f"sums: {type(error).__name__}")
            continue
        place.note("sums", f"{total}")


def compacts(place: Place, _: str, seed: int) -> None:
    manager, chance = place.manager(), random.Random(seed)
    while True:
        time.sleep(4)
        try:
            manager.table(f"bank.{chance.choice(TABLES)}").optimize.compact()
        except (DeltaLogError, OSError) as error:
            place.note("refused", f"compaction: {type(error).__name__}")
            continue
        place.note("compactions", "1")


CLIENTS: tuple[tuple[Callable[[Place, str, int], None], str], ...] = (
    (transfers, "in process"),
    (transfers, "served"),
    (transfers, "served"),
    (transfers, "unity"),
    (sums, "sums"),
    (compacts, "compaction"),
)


# ------------------------------------------------------------------------------------------------- the run


class Service:
    """The server process, which is restarted after each kill."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        port = str(urllib.parse.urlsplit(self._place.url).port)
        command = [sys.executable, "-m", "deltalog.cli.main", "serve", self._place.catalog, "--port", port]
        with (self._place.root / "server.log").open("ab") as log:
            command += ["--warehouse", str(self._place.root / "lake"), "--set", "recovery.every_seconds=5"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        call, end = Calls(self._place.url), time.monotonic() + _START_SECONDS
        while True:
            try:
                call("StartTransaction")
                return
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise
                time.sleep(0.1)

    def rss_mib(self) -> float:
        assert self._process is not None
        return Running("", self._process.pid).rss_mib()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def quiet_port() -> int:
    """A free port outside the range of client ports. A client that tries to connect while the server does not run could
    otherwise be given this port, connect to itself, and occupy the port.
    """
    for port in random.sample(range(15_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


@contextlib.contextmanager
def catalog_of(kind: str, root: Path) -> Iterator[tuple[str, Callable[[], None] | None]]:
    """The URL of a new catalog, and a function that kills and restarts its database."""
    if kind == "sqlite":
        yield str(root / "catalog.db"), None
        return
    import signal

    from tests.support import postgresql

    with postgresql.running() as database:

        def kill() -> None:
            database.stop(signal.SIGKILL)
            database.start()

        yield database.url(), kill


def soak(place: Place, minutes: float, seed: int, kill_database: Callable[[], None] | None, report: Report) -> None:
    chance, spawn = random.Random(seed), multiprocessing.get_context("spawn")
    (place.root / "notes").mkdir()
    manager = place.manager()
    for name in TABLES:
        manager.create_table(f"bank.{name}", str(place.root / name), SCHEMA).append(rows("initial", INITIAL))
    service = Service(place)
    service.start()

    def started(number: int) -> Any:
        work, kind = CLIENTS[number]
        process = spawn.Process(target=work, args=(place, kind, chance.randrange(1 << 30)), daemon=True)
        process.start()
        return process

    clients = [started(number) for number in range(len(CLIENTS))]
    end = time.monotonic() + 60 * minutes
    sampled = killed = time.monotonic()
    try:
        while time.monotonic() < end:
            time.sleep(0.2)
            if time.monotonic() > sampled + 60 * minutes / 100:
                sampled = time.monotonic()
                report.rss_mib.append(service.rss_mib())
            for number, process in enumerate(clients):
                if not process.is_alive():
                    report.wrong.append(f"the client {CLIENTS[number][1]} ended with {process.exitcode}")
                    clients[number] = started(number)
            if time.monotonic() < killed:
                continue
            killed = time.monotonic() + chance.uniform(5, 15)
            what = chance.choices(("client", "server", "database"), (5, 2, 2 if kill_database else 0))[0]
            report.kills[what] = report.kills.get(what, 0) + 1
            if what == "client":
                number = chance.randrange(len(clients))
                clients[number].kill()
                clients[number].join()
                clients[number] = started(number)
            elif what == "server":
                service.kill()
                service.start()
            elif kill_database is not None:
                kill_database()
    finally:
        for process in clients:
            process.kill()
            process.join()
        service.kill()
    judge(place, report)


def judge(place: Place, report: Report) -> None:
    """Check the tables after the run."""
    manager = place.manager()
    manager.recover()
    found: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
    for name in TABLES:
        table = manager.table(f"bank.{name}")
        data = table.to_pyarrow_table()
        for transfer, amount in zip(data["transfer"].to_pylist(), data["amount"].to_pylist(), strict=True):
            found[transfer].append((name, amount))
        times = [each.in_commit_timestamp_ms for each in reversed(table.history())]
        report.commits += len(times)
        if any(one is None or two is None or one >= two for one, two in itertools.pairwise(times)):
            report.wrong.append(f"{name}: the timestamps do not increase")
        checked = examine(f"catalog:{place.catalog}#bank.{name}")
        wrong = [f"{each.rule}: {each.message}" for each in checked.findings if each.severity != "info"]
        report.wrong += [f"{name}: {each}" for each in wrong[:5]]
    initial = found.pop("initial")
    if sorted(initial) != [(name, INITIAL) for name in TABLES]:
        report.wrong.append(f"the initial amounts are {initial}")
    for transfer, parts in found.items():
        tables = {table for table, _ in parts}
        right = 1 if transfer.startswith("unity") else 2
        if len(parts) != 2 or sum(amount for _, amount in parts) != 0 or len(tables) != right:
            report.wrong.append(f"{transfer} is there only in part: {parts}")
    acknowledged = place.noted("acknowledged")
    report.acknowledged = dict(collections.Counter(each.partition("/")[0] for each in acknowledged))
    report.wrong += [f"{each} was acknowledged but is lost" for each in acknowledged if each not in found]
    totals = place.noted("sums")
    report.sums, report.compactions = len(totals), len(place.noted("compactions"))
    report.wrong += [f"a sum was {each}" for each in totals if int(each) != INITIAL * len(TABLES)]
    if max(report.rss_mib, default=0) > MOST_RSS_MIB:
        report.wrong.append(f"the server had {max(report.rss_mib):.0f} MiB")
    print(dict(collections.Counter(place.noted("refused"))), file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.server_soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--catalog", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--below", type=Path, help="the directory to work in (default: the one for temporary files)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to this file")
    chosen = parser.parse_args(arguments)
    root, report, is_done = Path(tempfile.mkdtemp(dir=chosen.below)), Report(), False
    try:
        with catalog_of(chosen.catalog, root) as (catalog, kill_database):
            place = Place(root, catalog, f"http://127.0.0.1:{quiet_port()}")
            soak(place, chosen.minutes, chosen.seed, kill_database, report)
            is_done = True
    finally:
        if report.wrong or not is_done:
            print(f"see {root}", file=sys.stderr)
        else:
            shutil.rmtree(root)
    print(f"{chosen.minutes:g} minutes on {chosen.catalog}; kills: {dict(report.kills)}")
    print(f"{report.acknowledged} transfers were acknowledged; {report.commits:,} commits, all in order")
    print(f"{report.sums} sums, {report.compactions} compactions")
    if report.rss_mib:
        tenth = max(1, len(report.rss_mib) // 10)
        shown = ", ".join(f"{max(report.rss_mib[n : n + tenth]):.0f}" for n in range(0, len(report.rss_mib), tenth))
        print(f"memory of the server, MiB, maximum in each tenth of the run: {shown}")
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(report), indent=1))
    for each in report.wrong[:50]:
        print(f"WRONG: {each}", file=sys.stderr)
    return int(bool(report.wrong))


if __name__ == "__main__":
    sys.exit(main())
