"""Writers and a reader on one local table, killed again and again. Run by test_kill.py:

    python crash_worker.py <table> <directory for records> <kills> <seed> <seconds>

This process imports everything once, starts no thread, and forks the clients; so a new one costs no import.
Each client writes what it is about to do and how it ended to a file of its own: what it wrote before a SIGKILL
stays, because the kernel has it. Prints one line of JSON when it is done.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from deltalog import DeltaTable
from deltalog.errors import CommitAttemptsExhaustedError, CommitConflictError, CommitStateUnknownError, StoreError
from deltalog.testing.checker import Operation

WRITERS = 4
ROWS = 3
SCHEMA = pa.schema([pa.field("x", pa.int64())])
ENABLE = "delta.enableInCommitTimestamps"
# Calls of the kernel at which a client may kill itself: between any two of them the disk looks different.
POINTS = ("open", "write", "fsync", "link", "replace", "unlink", "mkdir")


def rows_of(token: str) -> list[int]:
    """The values that an operation writes. They name it, so every row tells where it came from."""
    client, number = re.findall(r"\d+", token)
    return [int(client) * 1_000_000 + int(number) * 10 + n for n in range(ROWS)]


class Journal:
    """Lines that survive a SIGKILL of this process."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._write = os.write  # not counted as one of the points

    def add(self, line: str) -> None:
        self._write(self._descriptor, line.encode() + b"\n")


def kill_at(number: int, after: bool) -> None:
    """Let this process kill itself at the ``number``-th call of one of POINTS, before or after its effect."""
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


def write(root: str, records: str, client: str, rng: random.Random) -> None:
    """One writer: operations until the end of its life, or until the file ``stop`` is there."""
    journal = Journal(f"{records}/{client}.jsonl")
    plan = (rng.randrange(1, 40), rng.random() < 0.5) if rng.random() < 0.75 else None
    table = DeltaTable.open(root)
    if plan is not None:
        kill_at(*plan)
    number = 0
    while not os.path.exists(f"{records}/stop"):
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
    """What to do next. Declares in the record what it will be."""
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


def read(root: str, records: str, client: str, rng: random.Random) -> None:
    """A reader: looks at the latest version over and over, with a new handle or an old one."""
    journal = Journal(f"{records}/{client}.jsonl")
    table = DeltaTable.open(root)
    while not os.path.exists(f"{records}/stop"):
        invoked = time.monotonic_ns()
        try:
            if rng.random() < 0.5:
                table = DeltaTable.open(root)
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


def fork(body: Callable[..., None], *args: Any) -> int:
    """A child that runs ``body``. It never returns to the caller's code."""
    child = os.fork()
    if child:
        return child
    try:
        body(*args)
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    raise AssertionError


def create(root: str) -> None:
    DeltaTable.create(root, SCHEMA, properties={"delta.checkpointInterval": "7"})


def clients(root: str, records: str, seed: int) -> Iterator[int]:
    """Process ids of ever new writers."""
    number = 0
    while True:
        number += 1
        yield fork(write, root, records, f"w{number}", random.Random(f"{seed}/{number}"))


def main(root: str, records: str, kills: int, seed: int, seconds: float) -> None:
    rng = random.Random(seed)
    pa.array(rows_of("w1-1"))  # looks for pandas, which takes longer than a client lives
    deadline = time.monotonic() + seconds
    _, status = os.waitpid(fork(create, root), 0)
    assert status == 0
    reader = fork(read, root, records, "r1", random.Random(f"{seed}/reader"))
    supply = clients(root, records, seed)
    alive = {next(supply) for _ in range(WRITERS)}
    done = {"timed": 0, "at a point": 0, "failed": 0}
    while done["timed"] + done["at a point"] < kills and time.monotonic() < deadline:
        time.sleep(rng.expovariate(1 / 0.03))
        for child in sorted(alive):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                alive.remove(child)
                done["at a point" if os.WIFSIGNALED(status) else "failed"] += 1
        if len(alive) == WRITERS:
            victim = rng.choice(sorted(alive))
            os.kill(victim, signal.SIGKILL)
            _, status = os.waitpid(victim, 0)
            alive.remove(victim)
            done["timed"] += 1
        while len(alive) < WRITERS:
            alive.add(next(supply))
    with open(f"{records}/stop", "w"):
        pass
    for child in [*alive, reader]:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            done["at a point"] += 1
        elif status:
            done["failed"] += 1
    print(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
