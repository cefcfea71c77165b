"""Random damages to tables of a catalog: ratified, staged and published commits."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltalog import CheckReport
from deltalog.doctor.check import examine
from deltalog.doctor.progress import silent
from deltalog.log.authority import Authority
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import LOG_DIRECTORY, STAGED_COMMITS_DIRECTORY, commit_path, staged_commit_path
from deltalog.testing.coordinators import FaultyCoordinator
from deltalog.testing.stores import Fault, nth
from tests.support.transactions import A, Clock, bank, environment, manager_of, rows


@dataclass
class ManagedTable:
    """A table of a catalog with ``last`` + 1 versions. ``is_noted``: whether the catalog knows that the last version is
    published."""

    manager: Any
    last: int

    @property
    def store(self) -> Any:
        return self.manager._tables.store(self.manager._tables.record(A))

    def check(self) -> CheckReport:
        reader = LogReader(self.store, authority=Authority(self.manager.coordinator.url))
        return examine(reader, True, silent, environment(Clock()))


def managed_table(chance: random.Random, is_noted: bool) -> ManagedTable:
    manager = bank()
    last = chance.randrange(1, 6)
    for number in range(1, last):
        manager.table(A).append(rows((number + 10, chance.randrange(100))))
    if is_noted:
        manager.table(A).append(rows((3, 7)))
    else:
        unnoted = FaultyCoordinator(manager.coordinator, nth(1, Fault.FAIL_BEFORE, method="published"))
        manager_of(unnoted).table(A).append(rows((3, 7)))
    return ManagedTable(manager, last)


def _another_published_commit(table: ManagedTable, chance: random.Random) -> str:
    inner = table.store.inner
    inner.put(commit_path(table.last), inner.get(commit_path(chance.randrange(table.last))))
    return "published-commit-differs"


def _a_lost_ratified_commit(table: ManagedTable, chance: random.Random) -> str:
    inner = table.store.inner
    for name in inner.list_names(STAGED_COMMITS_DIRECTORY):
        inner.delete(staged_commit_path(name))
    inner.delete(commit_path(table.last))
    return "staged-commit-missing"


def _another_ratified_commit(table: ManagedTable, chance: random.Random) -> str:
    inner = table.store.inner
    names = [name for name in inner.list_names(STAGED_COMMITS_DIRECTORY) if name.startswith(f"{table.last:020d}")]
    paths = [commit_path(table.last), *map(staged_commit_path, names)]
    lines = [json.loads(line) for line in inner.get(paths[0]).splitlines()]
    lines[0]["commitInfo"]["note"] = "x" * chance.randrange(1, 99)
    for path in paths:
        inner.put(path, "".join(json.dumps(line) + "\n" for line in lines).encode())
    return "ratified-commit-differs"


def _commits_beside_the_catalog(table: ManagedTable, chance: random.Random) -> str:
    inner = table.store.inner
    for version in range(table.last + 1, table.last + chance.randrange(2, 5)):
        inner.put(commit_path(version), inner.get(commit_path(table.last)))
    return "catalog-behind-log"


def _lost_published_commits(table: ManagedTable, chance: random.Random) -> str:
    inner = table.store.inner
    for version in range(chance.randrange(1, table.last + 1), table.last + 1):
        inner.delete(commit_path(version))
    for name in inner.list_names(LOG_DIRECTORY):
        if name.endswith(".crc"):
            inner.delete(f"{LOG_DIRECTORY}/{name}")
    return "published-commit-missing"


# Each damage, and whether the catalog must know that the last version is published.
CATALOG_DAMAGES: dict[str, tuple[Callable[[ManagedTable, random.Random], str], bool]] = {
    "another published commit": (_another_published_commit, False),
    "a lost ratified commit": (_a_lost_ratified_commit, False),
    "another ratified commit": (_another_ratified_commit, False),
    "commits beside the catalog": (_commits_beside_the_catalog, True),
    "lost published commits": (_lost_published_commits, True),
}
