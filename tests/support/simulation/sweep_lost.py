"""Runs each operation of the sweep once for each of its store calls. Right before that call, the operation's table is
deleted, or replaced by another table with the same number of versions.

    cases, failures = sweep_lost(OPERATIONS, "deleted", far=False)
    assert not failures, failures[0]

After each run, no log of another table may contain a commit of the operation, every error must be a declared one, and a
new process must read the expected data. On a remote store a check of the log remains valid for two seconds; changes
that other processes make between the check and the commit are not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from deltalog.errors import CommitStateUnknownError, DeltaLogError
from deltalog.protocol.paths import LOG_DIRECTORY
from deltalog.table import DeltaTable
from deltalog.testing.recording import WatchedStore, log_of, quiet, seeded_environment, version_of
from deltalog.testing.stores import Call, FaultyStore, no_faults
from tests.support.simulation.scheduler import START_MS
from tests.support.simulation.sweep_bench import _prepared
from tests.support.simulation.sweep_operations import Swept

EVENTS = ("deleted", "created again")
_OTHER = pa.schema([("other", pa.string())])


def sweep_lost(operations: Sequence[Swept], event: str, far: bool) -> tuple[int, list[str]]:
    """Run each operation once for each of its store calls, with the table lost (``event``) right before that call.
    Returns the number of runs, and a description of each failed run. Operations that do not start with an open handle
    are left out."""
    cases, failures = 0, list[str]()
    for operation in operations:
        number, is_over = 1, operation.opens or operation.new
        while not is_over:
            with quiet():
                run = _Run(operation, number, event, far)
                run.run()
                wrong = run.judge()
            is_over = run.fired is None
            cases += 1
            if wrong:
                failures.append(f"{operation.name}, {event} before call {number}, far={far}: {run.outcome}; {wrong}")
            number += 1
    return cases, failures


class _Run:
    """One run. ``fired``: the number of the store call before which the table was deleted or replaced; None if the
    operation makes fewer calls."""

    def __init__(self, operation: Swept, number: int, event: str, far: bool) -> None:
        self.operation, self.number, self.event, self.far = operation, number, event, far
        self.fired: int | None = None
        self.outcome = ""
        self._now = 0
        self._looked: int | None = None  # the number of the call that is the first HEAD of a commit file
        self._is_armed = False
        self._txn_ids: list[str] = []
        prepared = _prepared("plain", tuple(sorted(operation.properties.items())), operation.setup)
        self.versions = len(log_of(prepared))
        self.shared = WatchedStore(self._clock_ms, lambda: self._now, prepared)
        self.store = FaultyStore(self.shared, no_faults, before=self._before, now=lambda: self._now)
        self.store.is_remote = far
        seeded = seeded_environment("client", self._clock_ms)

        def new_uuid() -> str:
            self._txn_ids.append(seeded.new_uuid())
            return self._txn_ids[-1]

        environment = replace(seeded, new_uuid=new_uuid, background=False)
        self.table = DeltaTable.open(self.store, environment=environment)

    def run(self) -> None:
        self._is_armed, self._now = True, 0
        try:
            self.operation.run(self.table, "swept")
            self.outcome = "ok"
        except CommitStateUnknownError:
            self.outcome = "unknown"
        except DeltaLogError as error:
            self.outcome = f"failed: {type(error).__name__}"
        except Exception as error:
            self.outcome = f"crashed: {error!r}"
        self._is_armed = False

    def judge(self) -> str:
        """The problems of the run; empty if there are none."""
        if self.outcome.startswith("crashed"):
            return "no error of this library"
        if self.fired is None:
            return "" if self.outcome == "ok" else "the operation fails by itself"
        landed = [int(each.at) for each in self.shared.sightings if self._is_mine(each.data) and each.at >= self.fired]
        is_excused = self.outcome == "unknown" or (self.far and self._looked is not None and self._looked < self.fired)
        if landed and is_excused:
            return ""
        if landed and self.outcome == "ok":
            return "a commit is acknowledged that followed another table"
        log = log_of(self.shared)
        if any(map(self._is_mine, log.values())):
            return f"its commit is in the log: {sorted(log)}"
        if self.event == "deleted":
            in_log = [path for path in self.shared.paths() if path.startswith(LOG_DIRECTORY)]
            left = [path for path in in_log if ".json" in path or ".checkpoint." in path]
            return f"it left {left}" if left else ""
        found = DeltaTable.open(self.shared).snapshot()
        seen: Any = (found.version, found.schema.names, found.scan().to_arrow().num_rows)
        expected = (self.versions - 1, ["other"], self.versions - 1)
        return "" if seen == expected and len(log) == self.versions else f"the table there has {seen}, not {expected}"

    def _is_mine(self, data: bytes) -> bool:
        return any(each.encode() in data for each in self._txn_ids)

    def _before(self, call: Call) -> None:
        self._now += 1
        if not self._is_armed:
            return
        if self._now == self.number:
            self.fired = self._now
            self._lose()
        if self._looked is None and call.method == "head" and version_of(call.path) is not None:
            self._looked = self._now

    def _lose(self) -> None:
        for path in list(self.shared.paths()):
            self.shared.delete(path)
        if self.event == "created again":
            table = DeltaTable.create(self.shared, _OTHER, environment=seeded_environment("other", self._clock_ms))
            for number in range(1, self.versions):
                table.append(pa.table({"other": [str(number)]}))

    def _clock_ms(self) -> int:
        return START_MS + 1000 + self._now
