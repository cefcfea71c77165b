"""Many real processes write to one table, and race to create the same key: no commit is lost, and only one process
creates the key.

    report = run_writers("/tmp/some/table", Path("/tmp/records"), processes=8, commits=50)
    assert not report.problems
    assert race_for_keys("/tmp/elsewhere", Path("/tmp/records"), clients=32, rounds=500) == []

As in ``crash``, a zygote (``python -m tests.support.simulation.writers``) imports everything once and then forks. Needs
``os.fork``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog.storage.base import PutOutcome
from deltalog.storage.registry import open_store
from deltalog.table import DeltaTable
from deltalog.testing.checker import check
from deltalog.testing.history import History, Operation
from deltalog.testing.recording import carry_out, log_of
from tests.support.simulation import ROOT

SCHEMA = pa.schema([pa.field("x", pa.int64())])


@dataclass(frozen=True)
class Plan:
    """The plan of the zygote: Run ``clients`` processes, each of which performs the operation ``kind`` ("append" or
    "create") ``rounds`` times."""

    kind: str
    url: str
    records: str
    clients: int
    rounds: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class WritersReport:
    """``problems`` is empty if every commit of every process is in the log, once."""

    commits: int
    versions: int
    problems: list[str]
    seconds: float

    def line(self) -> str:
        """The summary line of a report."""
        return (
            f"commits={self.commits} versions={self.versions} problems={len(self.problems)} "
            f"seconds={self.seconds:.1f} commits_per_second={self.commits / self.seconds:.1f}"
        )


def run_writers(
    url: str, records: Path, *, processes: int = 8, commits: int = 50, timeout: float = 1000, **options: Any
) -> WritersReport:
    """Create a table at ``url`` and let every process append ``commits`` times. ``records``: an empty directory, in
    which the processes record their operations."""
    store = open_store(url, **options)
    DeltaTable.create(store, SCHEMA)
    started = time.monotonic()
    problems = _run(Plan("append", url, str(records), processes, commits, options), timeout)
    seconds = time.monotonic() - started
    operations = [Operation.from_json(line) for path in records.iterdir() for line in path.read_text().splitlines()]
    log = log_of(store)
    problems += map(str, check(History(log, operations, initial=1)))
    problems += [f"{o.token} was not committed: {o.outcome} {o.error}" for o in operations if o.outcome != "ok"]
    if sorted(log) != list(range(1 + processes * commits)):
        problems.append(f"the log has {len(log)} versions instead of {1 + processes * commits}")
    found = sorted(DeltaTable.open(store).snapshot().scan().to_arrow()["x"].to_pylist())
    if found != list(range(processes * commits)):
        problems.append(f"the table has {len(found)} rows, {len(set(found))} of them different")
    return WritersReport(len(operations), len(log), problems, seconds)


def race_for_keys(
    url: str, records: Path, *, clients: int = 32, rounds: int = 500, timeout: float = 600, **options: Any
) -> list[str]:
    """Let all clients create the same key at the same time, ``rounds`` times. Returns the problems: keys for which no
    client or several clients reported success, and keys that do not contain the bytes of the successful client."""
    problems = _run(Plan("create", url, str(records), clients, rounds, options), timeout)
    told = {path.name: path.read_text().split() for path in records.iterdir()}
    store = open_store(url, **options)
    for number in range(rounds):
        winners = [name for name, outcomes in told.items() if outcomes[number] == PutOutcome.COMMITTED.value]
        others = {outcomes[number] for outcomes in told.values()} - {o.value for o in PutOutcome}
        if others or len(winners) > 1:
            problems.append(f"round {number} has the winners {winners}, and answers {sorted(others)}")
            continue
        holder = store.get(_key(number)).decode()
        unsure = [name for name, outcomes in told.items() if outcomes[number] == PutOutcome.UNKNOWN.value]
        if holder not in (winners or unsure):
            problems.append(f"round {number}: {holder} has the key, and {winners or unsure} got success")
    return problems


def _run(plan: Plan, timeout: float) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.simulation.writers"],
        cwd=ROOT,
        input=json.dumps(asdict(plan)),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return [f"a process said {done.stderr[-800:]}"] if done.returncode or done.stderr else []


# --------------------------------------------------------------------------------------------------- the processes


def append(plan: Plan, client: int, barrier: Any) -> None:
    table = DeltaTable.open(plan.url, **plan.options)
    records = []
    barrier.wait()
    for number in range(plan.rounds):
        record = Operation(f"{client}-{number}", str(client), "append", time.monotonic_ns(), removes=[])
        data = pa.table({"x": pa.array([client * plan.rounds + number], pa.int64())})
        carry_out(record, lambda record, data=data: table.append(data, user_metadata=record.token))  # type: ignore[misc]
        record.returned = time.monotonic_ns()
        records.append(record.to_json())
    Path(plan.records, str(client)).write_text("\n".join(records))


def create(plan: Plan, client: int, barrier: Any) -> None:
    store = open_store(plan.url, **plan.options)
    outcomes = []
    for number in range(plan.rounds):
        barrier.wait()
        outcomes.append(store.put_if_absent(_key(number), str(client).encode()).value)
    Path(plan.records, str(client)).write_text(" ".join(outcomes))


def _key(number: int) -> str:
    return f"_delta_log/{number:020d}.json"


def main(plan: Plan) -> int:
    # Before forking, import the modules that the writers' calls need, so that no child process imports them again.
    pa.array([1])
    open_store(plan.url, **plan.options)
    barrier = multiprocessing.get_context("fork").Barrier(plan.clients)
    body: Callable[[Plan, int, Any], None] = {"append": append, "create": create}[plan.kind]
    children = []
    for client in range(plan.clients):
        child = os.fork()
        if not child:
            try:
                body(plan, client, barrier)
                os._exit(0)
            except BaseException as error:
                barrier.abort()
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
                os._exit(1)
        children.append(child)
    return max(os.waitpid(child, 0)[1] for child in children)


if __name__ == "__main__":
    sys.exit(bool(main(Plan(**json.load(sys.stdin)))))
