"""Kernels and deltalog commit to one table of the server, one after the other and concurrently, also while the server
is killed."""

from __future__ import annotations

import collections
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import deltalog
from tests.support.unity_clients import (
    CATALOG,
    JavaError,
    Jvm,
    Kernel,
    KernelTable,
    OfficialClient,
    UnityServer,
    unity_server,
)
from tests.support.unity_clients.hand_written import local

SCHEMA = pa.schema([("id", pa.int64()), ("writer", pa.int64())])
# The kernel raises this if it could not tell whether its commit was ratified, and gave up.
UNKNOWN = {"CommitStateUnknownException"}
# The kernel asks its caller to load the table again, or did not reach the server in time.
AGAIN = {"ConcurrentWriteException", "MaxCommitRetryLimitReachedException", "UncheckedIOException", "IOException"}
# The kernel says this if, of two commits that won over its own, the first is published and the second is not.
NOT_PUBLISHED = "should be greater than the previous commit attempt version"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnityServer]:
    with unity_server(tmp_path_factory.mktemp("unity")) as made:
        yield made


@pytest.fixture(scope="module")
def official(unity_jvm: Jvm, server: UnityServer) -> OfficialClient:
    made = OfficialClient(unity_jvm, server.url)
    made.schemas.createSchema(made.general("CreateSchema", {"name": "s", "catalog_name": CATALOG}))
    return made


def test_commits_in_turn(unity_jvm: Jvm, server: UnityServer, official: OfficialClient) -> None:
    kernel = Kernel(unity_jvm, server.url)
    table = kernel.create(f"{CATALOG}.s.turn", SCHEMA)
    mine = server.manager().table("s.turn")
    for version in range(1, 25):
        if version % 2:
            assert kernel.append(table, [{"id": version, "writer": 0}]) == version
        else:
            assert mine.append(pa.table({"id": [version], "writer": [1]}, schema=SCHEMA)).version == version
        if version % 7 == 0:
            kernel.load(table).publish()
    assert sorted(row["id"] for row in kernel.load(table).rows()) == list(range(1, 25))
    check_log(official, mine, table, 24)


class Writers:
    """Writers of one table. Each row has an id of its own; what each writer knows of its commits is recorded."""

    def __init__(self, unity_jvm: Jvm, server: UnityServer, name: str, kernels: int, others: int, each: int) -> None:
        self.server, self.name, self.each = server, name, each
        self._kernels = [Kernel(unity_jvm, server.url) for _ in range(kernels)]
        self.table = self._kernels[0].create(f"{CATALOG}.s.{name}", SCHEMA)
        self._others = others
        self.committed: dict[int, int] = {}  # row id -> version
        self.unknown: set[int] = set()
        self.failures: list[BaseException] = []
        self._lock = threading.Lock()

    def run(self) -> None:
        threads = [threading.Thread(target=self._kernel, args=(number,)) for number in range(len(self._kernels))]
        first = len(self._kernels)
        threads += [threading.Thread(target=self._deltalog, args=(first + number,)) for number in range(self._others)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def ids_of(self, writer: int) -> range:
        return range(writer * 1000, writer * 1000 + self.each)

    def _kernel(self, writer: int) -> None:
        kernel = self._kernels[writer]
        try:
            for row in self.ids_of(writer):
                self._append(kernel, writer, row)
        except BaseException as error:
            self.failures.append(error)

    def _append(self, kernel: Kernel, writer: int, row: int) -> None:
        deadline = time.monotonic() + 240
        while True:
            try:
                version = kernel.load(self.table).append([{"id": row, "writer": writer}], max_retries=3)
            except JavaError as error:
                if set(error.types) & UNKNOWN or self._was_in_doubt(error):
                    # Whether the row is there settles it: each row is committed by one writer only.
                    if self._is_there(kernel, row):
                        self.unknown.add(row)
                        return
                elif not set(error.types) & AGAIN and NOT_PUBLISHED not in str(error):
                    raise
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05 + random.random() / 10)
            else:
                with self._lock:
                    self.committed[row] = version
                return

    def _was_in_doubt(self, error: JavaError) -> bool:
        """Whether the last attempt may have been ratified: no answer came, or one that was not a refusal."""
        return "MaxCommitRetryLimitReachedException" in error.types or "UncheckedIOException" in error.types

    def _is_there(self, kernel: Kernel, row: int) -> bool:
        deadline = time.monotonic() + 240
        while True:
            try:
                return any(found["id"] == row for found in kernel.load(self.table).rows())
            except JavaError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _deltalog(self, writer: int) -> None:
        try:
            for row in self.ids_of(writer):
                self._append_ours(writer, row)
        except BaseException as error:
            self.failures.append(error)

    def _append_ours(self, writer: int, row: int) -> None:
        """Append a row with deltalog's own client of the server. Its outcome is unknown only if the server is down for
        too long."""
        address, data = f"uc://{CATALOG}.s.{self.name}", pa.table({"id": [row], "writer": [writer]}, schema=SCHEMA)
        deadline = time.monotonic() + 240
        while True:
            try:
                done = deltalog.DeltaTable.open(address, unity_catalog_url=self.server.url).append(data)
            except deltalog.CommitStateUnknownError:
                if self._is_there(self._kernels[0], row):
                    self.unknown.add(row)
                    return
            except deltalog.DeltaLogError:
                if time.monotonic() > deadline:
                    raise
            else:
                with self._lock:
                    self.committed[row] = done.version
                return
            time.sleep(0.05 + random.random() / 10)

    def check(self, official: OfficialClient) -> None:
        """No commit is lost, applied twice or torn, and the timestamps increase."""
        wanted = {row for writer in range(len(self._kernels) + self._others) for row in self.ids_of(writer)}
        assert set(self.committed) | self.unknown == wanted
        mine = self.server.manager().table(f"s.{self.name}")
        version = mine.version
        found = collections.Counter(row["id"] for row in mine.snapshot().scan().to_arrow().to_pylist())
        assert found == collections.Counter(wanted), (wanted ^ set(found), found.most_common(3))
        assert version == len(wanted) and len(set(self.committed.values())) == len(self.committed)
        assert sorted(row["id"] for row in self._kernels[0].load(self.table).rows()) == sorted(wanted)
        check_log(official, mine, self.table, version)
        for kernel in self._kernels:
            kernel.close()


def check_log(official: OfficialClient, mine: deltalog.DeltaTable, table: KernelTable, latest: int) -> None:
    """All versions are there, each is one whole commit of its own, and the in-commit timestamps increase."""
    answer = official.tables.loadTable(CATALOG, table.schema, table.name)
    assert mine.version == latest == answer["latest-table-version"]
    times = [mine.snapshot(version).timestamp_ms for version in range(latest + 1)]
    assert times == sorted(set(times))
    log = local(table.location) / "_delta_log"
    unpublished = {each["version"]: log / "_staged_commits" / each["file-name"] for each in answer["commits"]}
    assert list(unpublished) == list(range(latest, latest - len(unpublished), -1))
    transactions = set()
    for version in range(latest + 1):
        published = log / f"{version:020}.json"
        if version in unpublished and published.exists():
            assert published.read_bytes() == unpublished[version].read_bytes()
        actions = [json.loads(line) for line in unpublished.get(version, published).read_bytes().splitlines()]
        info = actions[0]["commitInfo"]
        assert info["inCommitTimestamp"] == times[version]
        transactions.add(info["txnId"])
    assert len(transactions) == latest + 1
    assert mine.check().ok


def test_writers_at_once(unity_jvm: Jvm, server: UnityServer, official: OfficialClient) -> None:
    writers = Writers(unity_jvm, server, "at_once", kernels=2, others=2, each=8)
    writers.run()
    assert not writers.unknown  # nothing was lost on the way
    writers.check(official)


@pytest.mark.long
def test_servers_are_killed(unity_jvm: Jvm, tmp_path: Path) -> None:
    """200 commits of 8 writers, two of them kernels, while the server is killed 20 times."""
    with unity_server(tmp_path, "--set=recovery.every_seconds=2") as server:
        official = OfficialClient(unity_jvm, server.url)
        official.schemas.createSchema(official.general("CreateSchema", {"name": "s", "catalog_name": CATALOG}))
        writers = Writers(unity_jvm, server, "killed", kernels=2, others=6, each=25)
        ended = threading.Event()
        kills: list[int] = []

        def kill() -> None:
            chance = random.Random(7)
            for number in range(20):
                while len(writers.committed) < 9 * number + 5:
                    if ended.wait(0.02):
                        return
                time.sleep(chance.random() / 5)  # while requests of the writers are in progress
                server.kill()
                kills.append(len(writers.committed))
                server.start()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            writers.run()
        finally:
            ended.set()
            killer.join()
        writers.check(official)
        assert len(kills) == 20
