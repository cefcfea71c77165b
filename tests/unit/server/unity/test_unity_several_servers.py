"""Three servers of one catalog in PostgreSQL, while the servers and the database are killed and restarted."""

from __future__ import annotations

import collections
import json
import random
import signal
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import deltalog
from deltalog.server.recovery_lease import LEASE
from deltalog.transactions.unity.settings import UnitySettings
from tests.support.postgresql import Postgres, running
from tests.support.unity_clients.server import CATALOG, UnityServer

pytestmark = pytest.mark.long
SCHEMA = pa.schema([("id", pa.int64()), ("writer", pa.int64())])
WRITERS, SECONDS = 8, 240


class Site:
    """A catalog with three servers, and writers that use any of them."""

    def __init__(self, place: Path, database: Postgres) -> None:
        self.database, self.catalog = database, database.url()
        self.servers = [
            UnityServer(
                place / f"server{number}",
                "--set=recovery.every_seconds=1",
                catalog=self.catalog,
                warehouse=str(place / "warehouse"),
            )
            for number in range(3)
        ]
        for each in self.servers:
            each.place.mkdir(parents=True, exist_ok=True)
            each.start()
        self.manager = deltalog.TransactionManager(self.catalog)
        self.committed: dict[str, dict[int, int]] = collections.defaultdict(dict)
        self.unknown: set[int] = set()
        self.failures: list[BaseException] = []

    def stop(self) -> None:
        for each in self.servers:
            each.stop()
        self.manager.coordinator.close()

    def open(self, name: str, chance: random.Random) -> deltalog.DeltaTable:
        return deltalog.DeltaTable.open(f"uc://{CATALOG}.s.{name}", unity_catalog_url=chance.choice(self.servers).url)

    def write(self, writer: int, names: list[str], count: int) -> None:
        chance = random.Random(writer)
        try:
            for number in range(count):
                self._append(writer * 1000 + number, writer, chance.choice(names), chance)
        except BaseException as error:
            self.failures.append(error)

    def _append(self, row: int, writer: int, name: str, chance: random.Random) -> None:
        data, deadline = pa.table({"id": [row], "writer": [writer]}, schema=SCHEMA), time.monotonic() + SECONDS
        while True:
            try:
                self.committed[name][row] = self.open(name, chance).append(data).version
                return
            except deltalog.CommitStateUnknownError:
                if self._is_there(row, name, chance):
                    self.unknown.add(row)
                    return
            except deltalog.DeltaLogError:
                assert time.monotonic() < deadline
            time.sleep(chance.random() / 10)

    def _is_there(self, row: int, name: str, chance: random.Random) -> bool:
        """Whether a commit of unknown outcome took effect. Its request is no longer in progress: each server that could
        have received it answers, or was restarted.
        """
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return row in self.open(name, chance).to_pyarrow_table()["id"].to_pylist()
            except deltalog.DeltaLogError:
                assert time.monotonic() < deadline
                time.sleep(0.1)


@pytest.mark.parametrize("kills_database", [False, True], ids=["servers", "servers and database"])
def test_servers_of_one_catalog_are_killed(tmp_path: Path, kills_database: bool) -> None:
    names, each = ["a", "b"], 15
    with running() as database:
        site = Site(tmp_path, database)
        try:
            site.manager.unity_tables(UnitySettings(warehouse=str(tmp_path / "warehouse"))).create_schema("s", None, {})
            for name in names:
                deltalog.DeltaTable.create(f"uc://{CATALOG}.s.{name}", SCHEMA, unity_catalog_url=site.servers[0].url)
            writers = [threading.Thread(target=site.write, args=(who, names, each)) for who in range(WRITERS)]
            for thread in writers:
                thread.start()
            chance, kills = random.Random(5), 0
            while any(thread.is_alive() for thread in writers) and kills < 12:
                time.sleep(0.3 + chance.random())
                if kills_database and kills % 4 == 2:
                    database.stop(chance.choice([signal.SIGINT, signal.SIGQUIT, signal.SIGKILL]))
                    database.start()
                else:
                    server = chance.choice(site.servers)
                    server.kill()
                    server.start()
                kills += 1
            for thread in writers:
                thread.join()
            if site.failures:
                raise site.failures[0]
            assert kills >= 6
            check(site, names, each)
        finally:
            site.stop()


def check(site: Site, names: list[str], each: int) -> None:
    """Check that no commit is lost, applied twice or applied in part, and that the timestamps increase."""
    wanted = {writer * 1000 + number for writer in range(WRITERS) for number in range(each)}
    found: list[int] = []
    site.manager.recover()
    for name in names:
        table = site.manager.table(f"s.{name}")
        rows = table.to_pyarrow_table()["id"].to_pylist()
        assert table.version == len(rows)
        versions = site.committed[name]
        assert len(set(versions.values())) == len(versions) and versions.keys() <= set(rows)
        times = [table.snapshot(version).timestamp_ms for version in range(table.version + 1)]
        assert times == sorted(set(times))
        url = next(record.url for record in site.manager.list_tables() if record.name == f"s.{name}")
        log = Path(url.removeprefix("file://")) / "_delta_log"
        ids = set()
        for version in range(table.version + 1):
            actions = [json.loads(line) for line in (log / f"{version:020}.json").read_bytes().splitlines()]
            assert sum("add" in action for action in actions) == (version > 0)
            ids.add(actions[0]["commitInfo"]["txnId"])
        assert len(ids) == table.version + 1
        assert table.check().ok
        found += rows
    assert collections.Counter(found) == collections.Counter(wanted)
    assert {row for versions in site.committed.values() for row in versions} | site.unknown == wanted
    holders = {site.manager.coordinator.document(*LEASE).content for _ in range(3)}  # type: ignore[union-attr]
    assert len(holders) == 1
