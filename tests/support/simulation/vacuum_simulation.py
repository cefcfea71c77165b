"""Seeded schedules, with faults, in which full and lite vacuums run concurrently with operations on rows.

    result = run_vacuum_schedule(seed=7)
    assert not result.violations, result.report()

Like ``row_simulation``, but its judge of rows also reads files that were deleted. A vacuum's commits have no token, so
the log's checker does not check these schedules. The invariants of files:

====  =======================================================================================================
V1    Needed: at each vacuum, every file exists that a version within the retention needs for its rows or its change
      data feed.
V2    Complete: after a final full vacuum, days later, only files of the latest version remain, and files
      that do not belong to the table: hidden files, and another table.
V3    By the log: after a final lite vacuum, which runs before the full vacuum, no file that a commit removed exists;
      files that no commit named still exist.
====  =======================================================================================================
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from typing import Any

from deltalog.errors import (
    CommitStateUnknownError,
    InvalidDataFileError,
    ObjectNotFoundError,
    StoreError,
    VersionNotFoundError,
)
from deltalog.storage.base import LogStore
from deltalog.storage.wrapped import WrappedStore
from deltalog.table import DeltaTable
from deltalog.testing.checker import Violation
from deltalog.testing.recording import log_of, quiet, seeded_environment
from tests.support.simulation.row_simulation import DAY_MS, PARTITIONS, RowSimulation, drawn
from tests.support.simulation.rows import Plan
from tests.support.simulation.scheduler import Client
from tests.support.simulation.simulation import ScheduleResult
from tests.support.vacuum_model import VacuumModel

#: The operations of clients, with their weights.
VACUUM_KINDS: Mapping[str, int] = {
    "append": 8,
    "delete": 12,
    "update": 8,
    "overwrite": 4,
    "replace partitions": 4,
    "optimize": 6,
    "restore": 3,
    "checkpoint": 3,
    "clean up log": 1,
    "vacuum": 16,
}
_STRAY = "p=a/stray.parquet"
_FOREIGN = frozenset({"_own/kept", ".hidden", "nested/_delta_log/00000000000000000000.json", "nested/x.parquet"})


class Graveyard(WrappedStore[LogStore]):
    """A store that keeps deleted files for the judge."""

    def __init__(self, inner: LogStore, buried: dict[str, bytes]) -> None:
        super().__init__(inner)
        self._buried = buried

    def delete(self, path: str) -> None:
        with contextlib.suppress(ObjectNotFoundError):
            self._buried[path] = self.inner.get(path)
        self.inner.delete(path)


class VacuumSimulation(RowSimulation):
    """Simulates one schedule with vacuums; the options are those of RowSimulation. With a retention of 0 hours, a
    schedule contains no restores: a file may be lost if it is restored while a vacuum deletes it, see
    docs/maintenance.md."""

    def __init__(self, seed: int, *, kinds: Mapping[str, int] = VACUUM_KINDS, **options: Any) -> None:
        self._hours = random.Random(f"{seed}/vacuums").choice((0, 24))
        self._buried: dict[str, bytes] = {}
        self._bounds_of_vacuums: list[int] = []
        self._old_version = 0
        chosen = {kind: often for kind, often in kinds.items() if self._hours or kind != "restore"}
        super().__init__(seed, kinds=chosen, wrap=lambda store: Graveyard(store, self._buried), **options)
        self._refusals = (*self._refusals, InvalidDataFileError)

    def _properties(self) -> dict[str, str]:
        # Checkpoints drop tombstones that are days old, so a lite vacuum has to read the commits instead.
        return {**super()._properties(), "delta.deletedFileRetentionDuration": "interval 1 hours"}

    def _prepare(self) -> int:
        versions = super()._prepare()
        self._common.is_remote = self._remote
        return versions

    def _fill(self, table: DeltaTable, rng: random.Random) -> None:
        """Write versions that are days old and restore one of them; write versions of today; and add files that no
        version names."""
        for number in range(3):
            table.append(drawn(rng, 100 * (number + 1), 4, 0.0))
        table.delete("v <= 1")
        table.overwrite(drawn(rng, 500, 3, 0.0))
        restored = rng.choice((2, 4))
        table.restore(restored, user_metadata="restored")
        self.plans["restored"] = Plan("restore", version=restored)
        for path in (*_FOREIGN, _STRAY):
            self.shared.put(path, b"x")
        self._old_version = table.version
        self.scheduler._now_ms += 5 * DAY_MS
        table.append(drawn(rng, 700, 4, 0.0))
        table.checkpoint()
        table.delete(f"p = '{rng.choice(PARTITIONS[:2])}'")

    # ---------------------------------------------------------------------------- clients of the simulation

    def _change_files(self, client: Client, table: DeltaTable, kind: str) -> None:
        if kind == "vacuum":
            self._record(client, kind, lambda record: self._vacuum(client, table))
        else:
            super()._change_files(client, table, kind)

    def _vacuum(self, client: Client, table: DeltaTable) -> None:
        """A vacuum may fail, but must not do any damage."""
        full = client.random.random() < 0.5
        try:
            with contextlib.suppress(StoreError, CommitStateUnknownError, VersionNotFoundError):
                table.vacuum(self._hours, False, enforce_retention_duration=False, full=full)
        finally:
            self._bounds_of_vacuums.append(self._old_version if self._hours else max(log_of(self.shared)))

    # -------------------------------------------------------------------------------- judging the schedules

    def _content(self, path: str) -> bytes:
        return self._buried[path] if path not in self.shared.paths() else super()._content(path)

    def _first_readable(self) -> int:
        return max(super()._first_readable(), *self._bounds_of_vacuums, 0)

    def _judge(self) -> list[Violation]:
        crashed = [record for record in self.records if record.outcome == "crashed"]
        found = [Violation("I16", f"{each.kind} {each.token} raised {each.error}") for each in crashed]
        return found or self._judge_files() or self._judge_rows()

    def _judge_files(self) -> list[Violation]:
        model, found = VacuumModel(self._history().log), list[Violation]()
        for version in {self._old_version, *self._bounds_of_vacuums} if self._bounds_of_vacuums else ():
            if version >= self._first_readable() and (gone := model.since(version) - self.shared.paths()):
                found.append(Violation("V1", f"{sorted(gone)} are deleted, but a later version needs them", version))
        if found:
            return found
        kept = dict(self.shared._objects)
        later = seeded_environment(f"{self.seed}/later", lambda: self.scheduler.time_ms() + 3 * DAY_MS)
        with quiet():
            found += self._judge_last(DeltaTable.open(self._common, environment=later), model)
        self.shared._objects.update(kept)
        return found

    def _judge_last(self, table: DeltaTable, model: VacuumModel) -> list[Violation]:
        found: list[Violation] = []
        latest, removed = max(model.live), set().union(*model.removed.values(), *model.changes.values())
        table.checkpoint()  # after the checkpoint, the snapshot no longer contains the expired tombstones
        is_there = _STRAY in self._data()
        with contextlib.suppress(VersionNotFoundError):  # the log was cleaned up
            table.vacuum(0, False, enforce_retention_duration=False, full=False)
            if left := removed & self._data() - model.live[latest]:
                found.append(Violation("V3", f"a lite vacuum leaves {sorted(left)}"))
            if is_there and _STRAY not in self._data():
                found.append(Violation("V3", "a lite vacuum deletes what no commit removed"))
        table.vacuum(0, False, enforce_retention_duration=False)
        if self._data() != model.live[latest] | _FOREIGN:
            wrong = sorted(self._data() ^ (model.live[latest] | _FOREIGN))
            found.append(Violation("V2", f"a full vacuum leaves or deletes {wrong}"))
        return found

    def _data(self) -> set[str]:
        return {path for path in self.shared.paths() if not path.startswith("_delta_log/")}


def run_vacuum_schedule(seed: int, **options: Any) -> ScheduleResult:
    """Run and judge one schedule; options as in VacuumSimulation."""
    return VacuumSimulation(seed, **options).run()
