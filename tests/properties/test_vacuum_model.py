"""Compares vacuum with a model, on random tables, with random unrelated files in the table directories, and at random
times. The model replays the JSON of the log itself, without the library. No file that a version within the retention
period needs may be deleted; every other old file must be deleted.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaLogError, DeltaTable
from deltalog.storage.memory import MemoryStore
from deltalog.testing.recording import log_of
from tests.support.core import Clock, environment, memory
from tests.support.vacuum_model import VacuumModel

HOUR, DAY = 3_600_000, 86_400_000
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
BESIDE = [
    "stray.parquet", "part=a/stray.parquet", "part=a/.stray.parquet.crc", "_change_data/cdc-stray.parquet", "_own/kept",
    ".hidden", "nested/_delta_log/00000000000000000000.json", "nested/x.parquet", "deep/er/file", "_delta_index/x",
]  # fmt: skip
ACTIONS = ("append", "append", "overwrite", "delete", "delete", "update", "restore", "checkpoint", "beside")
STAYS = {"_own/kept", ".hidden", "nested/_delta_log/00000000000000000000.json", "nested/x.parquet"}


def step(rng: random.Random, table: DeltaTable, store: MemoryStore, clock: Clock) -> None:
    start = rng.randrange(1_000) * 1_000
    data = pa.table({"id": range(start, start + 300), "part": [rng.choice("ab") for _ in range(300)]}, schema=SCHEMA)
    action = rng.choice(ACTIONS)
    if action == "append":
        table.append(data)
    elif action == "overwrite":
        table.overwrite(data)
    elif action == "delete":
        table.delete(f"id % {rng.randrange(2, 9)} = 0")
    elif action == "update":
        table.update({"id": "id + 1"}, f"id % {rng.randrange(2, 9)} = 1")
    elif action == "restore":
        table.restore(rng.randrange(table.version + 1), ignore_missing_files=True)
    elif action == "checkpoint":
        table.checkpoint()
    else:
        store.put(rng.choice(BESIDE), b"x")


def everything(store: MemoryStore) -> dict[str, int]:
    return {path: time_ms for path, (_, time_ms) in store._objects.items() if not path.startswith("_delta_log/")}


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n < 6 else pytest.mark.long) for n in range(300)])
def test_vacuum_beside_a_model(seed: int) -> None:
    run(seed)


def test_files_are_deleted() -> None:
    assert run(300) > 0


def run(seed: int) -> int:
    """A random table with random vacuums, each checked. Returns the number of files that the vacuums deleted."""
    rng = random.Random(seed)
    clock = Clock()
    store = memory(clock)
    hours = rng.choice((1, 30, 24 * 7))
    properties = {
        "delta.enableDeletionVectors": rng.choice(("true", "false")),
        "delta.enableChangeDataFeed": rng.choice(("true", "false")),
        "delta.enableInCommitTimestamps": rng.choice(("true", "false")),
        "delta.deletedFileRetentionDuration": f"interval {hours} hours",
        "delta.checkpointInterval": rng.choice(("3", "10")),
    }
    partition_by = rng.choice(((), ("part",)))
    table = DeltaTable.create(
        store, SCHEMA, properties=properties, partition_by=partition_by, environment=environment(clock)
    )
    deleted = 0
    for _ in range(rng.randrange(5, 25)):
        clock.now_ms += rng.choice((1, HOUR, 10 * HOUR, 3 * DAY))
        step(rng, table, store, clock)
        if rng.random() < 0.3:
            deleted += vacuum_once(rng, store, clock, hours)
    clock.now_ms += rng.choice((HOUR, 40 * DAY))
    return deleted + vacuum_once(rng, store, clock, hours)


def in_this_process(work: Any, inputs: Any, what: str) -> Any:
    return (work(given, "0-0") for given in inputs)


def vacuum_once(rng: random.Random, store: MemoryStore, clock: Clock, hours: int) -> int:
    """One vacuum, checked. Returns the number of files that the vacuum deleted."""
    given = rng.choice((None, 0, hours, 3 * hours))
    retention_ms = HOUR * (hours if given is None else given)
    model, before = VacuumModel(log_of(store)), everything(store)
    table = DeltaTable.open(store, environment=environment(clock))
    cutoff_ms = clock.now_ms - retention_ms
    rows_before = readable(table, model, cutoff_ms)
    full, lite = (table.vacuum(given, enforce_retention_duration=False, full=full) for full in (True, False))
    by_tasks = table.vacuum(
        given, enforce_retention_duration=False, run_tasks=in_this_process, num_tasks=rng.randrange(1, 9)
    )
    assert by_tasks.to_json() == full.to_json()
    assert set(lite.paths) <= set(full.paths)
    assert set(full.paths) & model.removed_before(cutoff_ms) <= set(lite.paths)
    is_full = rng.random() < 0.5
    report = table.vacuum(given, dry_run=False, enforce_retention_duration=False, full=is_full)
    assert report.paths == (full if is_full else lite).paths
    after = everything(store)
    assert before.keys() - after.keys() == set(report.paths) and after.keys() <= before.keys()
    needed = model.needed(cutoff_ms)
    assert not needed & set(report.paths)
    at_cutoff = {path for path, time_ms in model.tombstones.items() if time_ms == cutoff_ms}
    for path in after.keys() - needed - STAYS - at_cutoff if is_full else ():
        # Checkpoints omit expired tombstones, so after a checkpoint, a file whose tombstone has expired looks as if it
        # had never been committed.
        is_named = model.tombstones.get(path, 0) > clock.now_ms - HOUR * hours
        assert before[path] >= cutoff_ms or (not is_named and before[path] > clock.now_ms - DAY), path
    assert sum(report.kept.values()) == len(after) or not is_full
    fresh = DeltaTable.open(store, environment=environment(clock))
    assert readable(fresh, model, cutoff_ms) == rows_before
    return len(report.paths)


def readable(table: DeltaTable, model: VacuumModel, cutoff_ms: int) -> dict[int, list[int]]:
    """For each version within the retention, the ids of its rows."""
    found = {}
    for version in range(model.current(cutoff_ms), max(model.live) + 1):
        try:
            found[version] = sorted(table.snapshot(version).scan(["id"]).to_arrow()["id"].to_pylist())
        except DeltaLogError:
            found[version] = [-1]  # an earlier vacuum with a shorter retention deleted its files
    return found
