"""Makes every store call of every operation fail once, with every fault that the call can have.

    totals, failures = sweep(OPERATIONS)
    assert not failures, failures[0]

An operation is one row of OPERATIONS. The operation runs on small tables (with and without in-commit timestamps):
alone, on a handle that another writer has overtaken, and against another writer that commits just before it. The first
run has no faults and counts the store calls. Then the operation runs once for each call and each possible fault of this
call, once for each call as the first call at which the store is down, and once for each file creation whose response is
lost before the store goes down. After each run, delayed requests arrive, and then:

- the independent checker judges the log, with the results of the caller;
- ``CommitStateUnknownError.resolve()`` agrees with the log;
- a new process can read all rows and commit, and so can the handle that encountered the fault, unless its process died.

``pairs`` runs operations with two random faults each.
"""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalog.testing.recording import (
    quiet,
)
from deltalog.testing.stores import POSSIBLE_FAULTS, Call, Fault
from tests.support.simulation.sweep_bench import Bench, Case
from tests.support.simulation.sweep_operations import OPERATIONS, Swept

#: Half of the combinations of TABLES and SETTINGS; each table and each setting occurs in at least one of them.
HALF = (("plain", "alone"), ("timed", "behind"), ("timed", "raced"))
_UNANSWERED = (Fault.LOST_ACK, Fault.OWN_EXISTS, Fault.LATE, Fault.UNKNOWN_NOT_WRITTEN)


@dataclass
class SweepTotals:
    """Sums over cases."""

    cases: int = 0
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: collections.Counter[str] = field(default_factory=collections.Counter)
    # For each operation: the number of store calls that it makes without faults, summed over all tables and settings.
    calls: dict[str, int] = field(default_factory=dict)

    def merge(self, other: SweepTotals) -> None:
        self.cases += other.cases
        self.outcomes += other.outcomes
        self.faults += other.faults
        for name, calls in other.calls.items():
            self.calls[name] = self.calls.get(name, 0) + calls

    def line(self) -> str:
        """The summary line of a report."""
        outcomes = " ".join(f"{name}={count}" for name, count in sorted(self.outcomes.items()))
        return f"cases={self.cases} operations={len(self.calls)} calls={sum(self.calls.values())} {outcomes}"


def sweep(
    operations: Sequence[Swept] = (), combinations: Sequence[tuple[str, str]] = (), every: int = 1
) -> tuple[SweepTotals, list[str]]:
    """Run every case of ``operations`` (by default of all operations). Returns the numbers of cases, outcomes and
    calls, and a description of each failed case. ``combinations`` limits the tables and settings; an operation that
    supports none of them runs with its first combination. ``every``: run only every n-th case."""
    totals, failures = SweepTotals(), list[str]()
    for operation in operations or OPERATIONS:
        places = [(table, setting) for table in operation.tables for setting in operation.settings]
        chosen = [each for each in places if each in combinations] if combinations else places
        for table, setting in chosen or places[:1]:
            untouched = _run(Case(operation, table, setting), totals, failures)
            totals.calls[operation.name] = totals.calls.get(operation.name, 0) + len(untouched.calls)
            for case in itertools.islice(_cases(Case(operation, table, setting), untouched.calls), None, None, every):
                _run(case, totals, failures, untouched.answer)
    return totals, failures


def pairs(operations: Sequence[Swept], seed: int, number: int) -> tuple[SweepTotals, list[str]]:
    """Run ``number`` cases with two faults each, drawn by ``seed``."""
    totals, failures, rng = SweepTotals(), list[str](), random.Random(f"pairs/{seed}")
    untouched: dict[tuple[str, str, str], Bench] = {}
    for _ in range(number):
        operation = rng.choice(operations)
        case = Case(operation, rng.choice(operation.tables), rng.choice(operation.settings))
        key = (operation.name, case.table, case.setting)
        if key not in untouched:
            untouched[key] = _run(case, SweepTotals(), failures)
        calls = untouched[key].calls
        if not calls:
            continue
        first, second = rng.randrange(len(calls)), rng.randrange(len(calls) + 4)
        faults = {first + 1: rng.choice(POSSIBLE_FAULTS[calls[first].method])}
        # The first fault may change which call the second fault hits; therefore the second fault is of a kind that can
        # occur in most calls.
        faults.setdefault(second + 1, rng.choice(POSSIBLE_FAULTS["put_if_absent"]))
        drawn = Case(operation, case.table, case.setting, tuple(sorted(faults.items())))
        _run(drawn, totals, failures, untouched[key].answer)
    return totals, failures


def _cases(base: Case, calls: Sequence[Call]) -> Iterator[Case]:
    for number, call in enumerate(calls, 1):
        for fault in POSSIBLE_FAULTS[call.method]:
            yield Case(base.operation, base.table, base.setting, ((number, fault),))
        yield Case(base.operation, base.table, base.setting, outage=number)
        for fault in _UNANSWERED if call.method == "put_if_absent" else ():
            yield Case(base.operation, base.table, base.setting, ((number, fault),), outage=number + 1)


def _run(case: Case, totals: SweepTotals, failures: list[str], expected: Any = None) -> Bench:
    with quiet():
        bench = Bench(case)
        bench.run()
        wrong = bench.judge(expected)
    totals.cases += 1
    totals.outcomes[bench.record.outcome] += 1
    totals.faults.update(fault.value for fault in bench.store.injected.elements())
    if wrong:
        failures.append("\n  ".join([str(case), *wrong, f"outcome: {bench.record.outcome} {bench.record.error}"]))
    return bench
