"""A catalog is backed up while processes commit, restored after more commits, and brought up to date from the logs by
``deltalog tables resync``: no acknowledged commit is lost, and no transaction is applied in part.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import TransactionManager
from tests.support.cli import run
from tests.support.waiting import until

SCHEMA = pa.schema([("id", pa.int64())])
A, B = "bank.a", "bank.b"
# After each committed transaction, prints a line with its number to acknowledge it.
WRITER = f"""
import sys
import pyarrow as pa
from deltalog import TransactionManager
from deltalog.errors import DeltaLogError

manager, first = TransactionManager(sys.argv[1]), int(sys.argv[2])
for number in range(first, first + 1_000_000):
    row = pa.table({{"id": [number]}}, schema=pa.schema([("id", pa.int64())]))
    try:
        with manager.transaction() as transaction:
            transaction.table({A!r}).append(row)
            transaction.table({B!r}).append(row)
            transaction.commit()
    except DeltaLogError:
        continue
    print(number, flush=True)
"""


@contextlib.contextmanager
def writing(catalog: str, place: Path, count: int = 2) -> Iterator[Callable[[], list[int]]]:
    """Run processes that commit to both tables until they are killed at the end of the block; yields a function that
    returns the numbers that they have acknowledged.
    """
    files = [place / f"acknowledged-{number}" for number in range(count)]
    processes = []
    for number, file in enumerate(files):
        command = [sys.executable, "-c", WRITER, catalog, str(number * 10_000_000)]
        with file.open("w") as output:
            processes.append(subprocess.Popen(command, stdout=output, env=dict(os.environ)))

    def acknowledged() -> list[int]:
        # A line that was cut by a kill has no line feed.
        lines = [line for file in files for line in file.read_text().splitlines(keepends=True)]
        return [int(line) for line in lines if line.endswith("\n")]

    try:
        yield acknowledged
    finally:
        for process in processes:
            process.kill()
            process.wait()


def by_shell(catalog: Path, backup: Path) -> None:
    program = shutil.which("sqlite3")
    if program is None:
        pytest.skip("the program sqlite3 is not installed")
    subprocess.run([program, str(catalog), ".timeout 30000", f".backup {backup}"], check=True, timeout=60)


def by_vacuum(catalog: Path, backup: Path) -> None:
    with contextlib.closing(sqlite3.connect(catalog, timeout=30)) as connection:
        connection.execute("VACUUM INTO ?", [str(backup)])


def by_api(catalog: Path, backup: Path) -> None:
    with contextlib.closing(sqlite3.connect(catalog)) as source, contextlib.closing(sqlite3.connect(backup)) as target:
        source.backup(target)


def resynced(catalog: str) -> Any:
    """The report of ``deltalog tables resync``."""
    return json.loads(run("tables", "resync", catalog, "--json").out)


def numbers(manager: TransactionManager, name: str) -> list[int]:
    found: list[int] = manager.table(name).snapshot().scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def check_nothing_is_lost(catalog: str, acknowledged: list[int]) -> None:
    done = resynced(catalog)
    assert sum(table["added"] for table in done["tables"]) > 0
    manager = TransactionManager(catalog)
    manager.recover()
    both = numbers(manager, A)
    assert both == numbers(manager, B)
    assert len(both) == len(set(both))
    assert set(acknowledged) <= set(both)
    with manager.transaction() as transaction:  # and the tables can be written again
        for name in (A, B):
            transaction.table(name).append(pa.table({"id": [-1]}, schema=SCHEMA))
        transaction.commit()
    assert numbers(manager, A) == sorted([*both, -1]) == numbers(manager, B)


@pytest.mark.parametrize(
    "back_up", [by_shell, *(pytest.param(each, marks=pytest.mark.long) for each in (by_vacuum, by_api))]
)
def test_sqlite_is_backed_up_while_commits_run(tmp_path: Path, back_up: Callable[[Path, Path], None]) -> None:
    catalog, backup = tmp_path / "catalog.db", tmp_path / "catalog.backup"
    manager = TransactionManager(str(catalog))
    for name in (A, B):
        manager.create_table(name, str(tmp_path / name), SCHEMA)
    with writing(str(catalog), tmp_path) as acknowledged:
        until(lambda: len(acknowledged()) >= 5, 120)
        back_up(catalog, backup)
        more = len(acknowledged()) + 5
        until(lambda: len(acknowledged()) >= more, 120)
    manager.coordinator.close()
    for file in tmp_path.glob("catalog.db*"):  # the disk is lost
        file.unlink()
    shutil.copy(backup, catalog)
    check_nothing_is_lost(str(catalog), acknowledged())
