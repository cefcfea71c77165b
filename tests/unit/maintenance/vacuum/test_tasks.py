"""A vacuum that runs in tasks finds and deletes the same files as a vacuum in one process, even if tasks are repeated
or lost."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltalog import DeltaTable, StoreError
from deltalog.maintenance.vacuum.decisions import VacuumReport
from deltalog.maintenance.vacuum.path_hashes import shared_hash
from deltalog.maintenance.vacuum.ranges import PathSample
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from tests.support.core import Clock, environment, memory, rows
from tests.support.vacuum_tables import create

DAY = 86_400_000
NOW = 1_800_000_000_000
NAMES = (
    "x.parquet", ".x.parquet.crc", "y.parquet", ".y.parquet.crc", ".hidden", "_mine", "part-1.parquet",
    "Part-1.PARQUET", ".gone.crc", "_change_data", "_delta_index_1",
)  # fmt: skip
DIRECTORIES = (
    "", "p=1", "p=2", "P=1", "p=2/q=a", "p=2/q=b", "p=3", "_own", "nested", "nested/p=1", "nested/p=2", "z/y/x",
)  # fmt: skip


def inline(work: Callable[[bytes, str], bytes], inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
    """Run each task with a pickled copy of ``work``, as if it ran in another process."""
    assert what in ("list the files", "delete files")
    for number, given in enumerate(inputs):
        yield pickle.loads(pickle.dumps(work))(given, f"{number:05d}-0")


def test_a_hash_is_the_same_in_every_process() -> None:
    assert [shared_hash(name) for name in ("", "a", "é")] == [0, 0x61, 0xA9C3]
    assert shared_hash("abcdefghi") == int.from_bytes(b"abcdefghi", "little") % (2**61 - 1)
    assert 0 <= shared_hash("\udcff" * 300) < 2**61


def test_ranges_begin_at_directories_or_within_large_ones() -> None:
    sample = PathSample()
    for number in range(40):
        sample.add([f"p={number % 10}/{name:03d}" for name in range(100)])
    sample.add(["_delta_log/x"])
    assert sample.bounds(5) == ["p=2/", "p=4/", "p=6/", "p=8/"]
    flat = PathSample()
    for start in range(0, 100_000, 1_000):
        flat.add([f"{name:06d}" for name in range(start, start + 1_000)])
    assert len(flat.bounds(4)) == 3 and all(abs(int(b) - 25_000 * n) < 500 for n, b in enumerate(flat.bounds(4), 1))
    assert flat.bounds(1) == PathSample().bounds(9) == []


# ------------------------------------------------------------- tasks decide as a vacuum in one process does


def tree(rng: random.Random, root: Path, clock: Clock) -> DeltaTable:
    """A table with files of several versions and unrelated files, most of them old."""
    table = create(str(root), clock, {"delta.enableDeletionVectors": "true"})
    for number in range(rng.randrange(1, 6)):
        table.append(rows(10 * number, 10 * number + 1))
        if rng.random() < 0.4:
            table.delete(f"id = {10 * number}")
        if rng.random() < 0.3:
            table.overwrite(rows(number))
        clock.now_ms += rng.choice((1, DAY, 5 * DAY))
    for directory in rng.sample(DIRECTORIES, rng.randrange(2, len(DIRECTORIES))):
        (root / directory).mkdir(parents=True, exist_ok=True)
        for name in rng.sample(NAMES, rng.randrange(len(NAMES))):
            if not (root / directory / name).is_dir():
                (root / directory / name).write_bytes(b"x" * rng.randrange(3))
    for path in rng.sample([*table.snapshot().files()["path"].to_pylist()], 1):
        (root / f".{path}.crc").write_bytes(b"c")
        (root / path.upper()).write_bytes(b"c")
    if rng.random() < 0.6:
        log = root / rng.choice(("nested", "p=2", "z")) / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        (log / f"{0:020d}.json").write_bytes(b"{}")
    outside = root.parent / "outside"
    (outside / "below").mkdir(parents=True, exist_ok=True)
    (outside / "below" / "x.parquet").write_bytes(b"x")
    for link in rng.sample(("p=2/link", "link", "p=9"), 2):
        if (root / link).parent.is_dir() and not (root / link).exists():
            (root / link).symlink_to(outside)
    (root / "odd\x01name").write_bytes(b"x")
    os.link(root / "odd\x01name", root / "hard")
    (root / os.fsdecode(b"undecodable\xff")).write_bytes(b"x")
    for path in sorted(root.rglob("*"), reverse=True):
        age_ms = rng.choice((0, 3 * DAY, 100 * DAY, 100 * DAY, 100 * DAY))
        if "_delta_log" not in path.parts:
            at_s = (clock.now_ms - age_ms) / 1000
            os.utime(path, (at_s, at_s), follow_symlinks=False)
    return table


@pytest.mark.parametrize("seed", range(25))
def test_they_find_what_one_process_finds(tmp_path: Path, seed: int) -> None:
    rng, clock = random.Random(seed), Clock(NOW)
    table = tree(rng, tmp_path / "t", clock)
    for hours in (None, 0, 24 * 4):
        expected = table.vacuum(hours, enforce_retention_duration=False)
        for tasks in (1, 2, rng.randrange(3, 40)):
            found = table.vacuum(hours, enforce_retention_duration=False, run_tasks=inline, num_tasks=tasks)
            assert found.to_json() == expected.to_json(), tasks
    before = {path for path in tmp_path.rglob("*") if not path.is_dir() or path.is_symlink()}
    # The commits VACUUM START and VACUUM END do not change which files the log names.
    report = table.vacuum(0, dry_run=False, enforce_retention_duration=False, run_tasks=inline, num_tasks=7)
    gone = before - {path for path in tmp_path.rglob("*") if not path.is_dir() or path.is_symlink()}
    assert {str(path.relative_to(tmp_path / "t")) for path in gone} == {*report.paths}
    assert (tmp_path / "outside" / "below" / "x.parquet").exists() and report.paths
    assert table.snapshot().scan().to_arrow().num_rows > 0
    assert table.vacuum(0, enforce_retention_duration=False, run_tasks=inline).paths == ()


# ----------------------------------------------------------------------------------- attempts and lost results


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return memory(clock)


@pytest.fixture
def table(store: MemoryStore, clock: Clock) -> DeltaTable:
    """A table with 40 old files that no version names."""
    table = create(store, clock)
    for number in range(40):
        store.put(f"p={number % 4}/{number}", b"123")
    clock.now_ms += 30 * DAY
    return table


def here(work: Any, inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
    return (work(given, "0-0") for given in inputs)


def vacuumed(table: DeltaTable, run: Any, **options: Any) -> VacuumReport:
    return table.vacuum(dry_run=False, run_tasks=run, num_tasks=3, **options)


def test_a_task_that_runs_again_counts_the_same(table: DeltaTable) -> None:
    def twice(work: Any, inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
        for given in inputs:
            work(given, "0-0")
            yield work(given, "0-1")

    report = vacuumed(table, twice)
    assert len(report.paths) == 40 and report.size_bytes == 120 and report.commits == (1, 2)
    entry = table.history(1)[0]
    assert (entry.operation, entry.operation_metrics["numDeletedFiles"]) == ("VACUUM END", "40")


@pytest.mark.parametrize("lost", ["list the files", "delete files"])
def test_lost_answers_are_an_error(table: DeltaTable, store: MemoryStore, lost: str) -> None:
    def losing(work: Any, inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
        answers = [work(given, "0-0") for given in inputs]
        return iter(answers[1:] if what == lost else answers)

    for number in range(3):
        store.put(f"q={number}/x", b"")
    with pytest.raises(StoreError, match=r"\d of \d tasks answered|answered for 0"):
        vacuumed(table, losing)
    assert vacuumed(table, here).kept


def test_repeated_answers_are_an_error(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    for number in range(3):
        table.append(rows(number))
    store.put("0", b"")
    clock.now_ms += 30 * DAY

    def repeating(work: Any, inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
        answers = [*here(work, inputs, what)]
        return iter([answers[0]] * len(answers))

    assert table.vacuum(run_tasks=here, num_tasks=3).paths == ("0",)
    with pytest.raises(StoreError, match="Nothing was deleted"):
        vacuumed(table, repeating)
    assert table.version == 3


def test_an_executor_that_does_not_see_the_table_is_an_error(tmp_path: Path) -> None:
    table = create(str(tmp_path / "t"), Clock(NOW))
    create(str(tmp_path / "other"), Clock(NOW))
    for seen in ("nowhere", "other"):

        def elsewhere(work: Any, inputs: Iterable[bytes], what: str, seen: str = seen) -> Iterator[bytes]:
            tasks = replace(work.__self__, store=LocalStore(tmp_path / seen))
            return (getattr(tasks, work.__name__)(given, "0-0") for given in inputs)

        os.utime(tmp_path / "other" / "_delta_log" / f"{0:020d}.json", (1, 1))
        with pytest.raises(StoreError, match="does not see the same version 0 of the table as the driver"):
            table.vacuum(run_tasks=elsewhere)

    def other_hashes(work: Any, inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
        return here(replace(work.__self__, probe=7).look, inputs, what)

    with pytest.raises(StoreError, match="hash names differently"):
        table.vacuum(run_tasks=other_hashes)


def test_what_is_committed_after_the_listing_stays(store: MemoryStore, clock: Clock) -> None:
    """Other writers commit between the listing of files and the reading of the log, and between that reading and the
    deletion. A Hadoop checksum file is kept with its data file."""
    table = create(store, clock)
    first, second = table.stage(rows(7)), table.stage(rows(8))
    path = first.files[0].path
    store.put(f".{path}.crc", b"c")
    store.put(path.upper(), b"c")
    clock.now_ms += 30 * DAY
    other = DeltaTable.open(store, environment=environment(clock))

    def meanwhile(work: Any, inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
        answers = [*here(work, inputs, what)] if what == "list the files" else []
        if answers:
            other.commit_staged([first])
        return iter(answers) if answers else here(work, inputs, what)

    report = table.vacuum(run_tasks=meanwhile)
    assert report.paths == (second.files[0].path,)
    assert report.kept == {
        "the latest version needs it": 1, "a version within the retention needs it": 1, "hidden": 1,
        "needed if names are compared ignoring case": 1,
    }  # fmt: skip


def test_a_failed_deletion_is_recorded_and_the_next_vacuum_goes_on(table: DeltaTable, store: MemoryStore) -> None:
    def failing(work: Any, inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
        for given in inputs:
            yield work(given, "0-0")
            if what == "delete files":
                raise StoreError("The store is full.", path="x")

    seen: list[tuple[int, int]] = []
    from deltalog.maintenance.vacuum import tasks as vacuum_tasks

    at_once, vacuum_tasks._IN_A_TASK = vacuum_tasks._IN_A_TASK, 15
    try:
        with pytest.raises(StoreError, match="stopped after deleting at least 15 of 40 files"):
            vacuumed(table, failing, progress=lambda done, of: seen.append((done, of)))
        assert seen == [(15, 40)] and table.history(1)[0].operation_parameters == {"status": "FAILED"}
        report = vacuumed(table, here, progress=lambda done, of: seen.append((done, of)))
    finally:
        vacuum_tasks._IN_A_TASK = at_once
    assert len(report.paths) == 25 and seen[1:] == [(15, 25), (25, 25)]


def test_links_and_writes_since_the_listing(tmp_path: Path) -> None:
    """A directory that became a symbolic link, and a file that was rewritten, are kept and not counted."""
    clock, root = Clock(NOW), tmp_path / "t"
    table = create(str(root), clock)
    for name in ("a/1", "b/2", "c"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"1")
        os.utime(root / name, (1, 1))

    def meanwhile(work: Any, inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
        if what == "delete files":
            (root / "a").rename(tmp_path / "a")
            (root / "a").symlink_to(tmp_path / "a")
            (root / "c").write_bytes(b"12")
        return inline(work, inputs, what)

    assert vacuumed(table, meanwhile).paths == ("b/2",)
    assert (tmp_path / "a" / "1").exists() and (root / "c").exists() and not (root / "b").exists()


def test_a_vacuum_by_the_log_deletes_by_tasks(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.overwrite(rows(3))
    clock.now_ms += 30 * DAY
    asked: list[str] = []

    def run(work: Any, inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
        asked.append(what)
        return here(work, inputs, what)

    assert len(vacuumed(table, run, full=False).paths) == 1 and asked == ["delete files"]
