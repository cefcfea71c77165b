"""A lite vacuum deletes the files that the log records as removed, and raises an error if the log is incomplete."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from deltalog import DeltaTable, StoreError, VacuumReport, VersionNotFoundError
from deltalog.maintenance.vacuum.decisions import Stay
from deltalog.maintenance.vacuum.removed_files import LAST_VACUUM
from deltalog.storage.base import Entry, EntryKind
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore, Fault, FaultyStore, nth
from tests.support.core import (
    NOW,
    Clock,
    add_action,
    environment,
    ids,
    info_action,
    memory,
    metadata_action,
    protocol_action,
    put_commit,
    remove_action,
    rows,
    tree,
)
from tests.support.vacuum_tables import create, files, is_killed_at, live

DAY = 86_400_000
WEEK = 7 * DAY
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return memory(clock)


def lite(table: DeltaTable, hours: float | None = None, **options: Any) -> VacuumReport:
    return table.vacuum(hours, dry_run=False, full=False, **options)


def done_up_to(store: Any) -> int | None:
    try:
        found: dict[str, int] = json.loads(store.get(LAST_VACUUM))
    except StoreError:
        return None
    return found["latestCommitVersionOutsideOfRetentionWindow"]


# ------------------------------------------------------------------------------------------- what is deleted


@pytest.mark.parametrize(("properties", "part"), [(VECTORS, "deletion_vector"), (FEED, "_change_data/")])
def test_it_deletes_what_was_removed_and_nothing_else(
    store: MemoryStore, clock: Clock, properties: dict[str, str], part: str
) -> None:
    table = create(store, clock, properties)
    for number in (1, 3):
        table.append(rows(10 + number))
        table.delete(f"id = {number}")
    table.overwrite(rows(3))
    store.put("stray.parquet", b"x")
    clock.now_ms += WEEK + DAY
    full, dry = table.vacuum(), table.vacuum(full=False)
    assert dry.dry_run and not dry.full and full.full and files(store) == {*full.paths, *live(table)}
    assert set(dry.paths) == {*full.paths} - {"stray.parquet"} and dry.size_bytes == full.size_bytes - 1
    assert any(part in path for path in dry.paths)
    report = lite(table)
    assert report.paths == dry.paths and files(store) == {"stray.parquet", *live(table)} and ids(table) == [3]
    assert [entry.operation for entry in table.history(2)] == ["VACUUM END", "VACUUM START"]
    assert lite(table).paths == () and table.vacuum().paths == ("stray.parquet",)


def test_files_within_the_retention_stay(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.overwrite(rows(3))
    clock.now_ms += WEEK
    assert lite(table).paths == () and done_up_to(store) == 0
    table.overwrite(rows(4))
    clock.now_ms += DAY
    assert len(lite(table).paths) == 1 and ids(table, version=1) == [3] and done_up_to(store) == 1


def test_a_restored_file_stays_and_goes_when_it_is_removed_again(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.overwrite(rows(3))
    table.restore(0)
    clock.now_ms += 2 * WEEK
    assert len(lite(table).paths) == 1 and ids(table) == [1, 2] and done_up_to(store) == 2
    table.overwrite(rows(5))
    clock.now_ms += 2 * WEEK
    assert len(lite(table).paths) == 1 and ids(table) == [5] and table.vacuum().paths == ()


def removing(store: Any, clock: Clock, *paths: str, live: tuple[str, ...] = ()) -> DeltaTable:
    """A table whose log contains remove actions for these paths."""
    added = [add_action(path) for path in (*paths, *live)]
    put_commit(store, 0, info_action(), protocol_action(), metadata_action(), *added)
    removes = [remove_action(path, deletionTimestamp=clock.now_ms) for path in paths]
    put_commit(store, 1, info_action(), *removes)
    clock.now_ms += 2 * WEEK
    return DeltaTable.open(store, environment=environment(clock))


@pytest.mark.parametrize(
    ("named", "stored"),
    [("a%20b.parquet", "a b.parquet"), ("a%20b.parquet", "a%20b.parquet"), ("memory://{root}/x%20y", "x y")],
)
def test_paths_are_decoded(store: MemoryStore, clock: Clock, named: str, stored: str) -> None:
    store.put(stored, b"x")
    named = named.replace("{root}", store.url.removeprefix("memory://"))
    assert lite(removing(store, clock, named)).paths == (stored,) and files(store) == set()


@pytest.mark.parametrize(
    ("named", "stored"),
    [
        ("_delta_log/x.parquet", "_delta_log/x.parquet"),
        ("_hidden/x", "_hidden/x"),
        ("a/.x", "a/.x"),
        ("inner/x", "inner/x"),
        ("inner/deep/x", "inner/deep/x"),
        ("A.parquet", "A.parquet"),
        ("s3://elsewhere/y.parquet", "y.parquet"),
        ("b/../x.parquet", "x.parquet"),
        ("%2e%2e/x.parquet", "x.parquet"),
        ("a%5Cb", "a\\b"),
    ],
)
def test_what_a_full_vacuum_keeps_stays(store: MemoryStore, clock: Clock, named: str, stored: str) -> None:
    store.put("removed.parquet", b"x")
    store.put(stored, b"x")
    store.put("inner/_delta_log/00000000000000000000.json", b"x")
    removes = ("removed.parquet", named) if ".." not in named and "%2e" not in named else ("removed.parquet",)
    table = removing(store, clock, *removes, live=("a.parquet", "s3://elsewhere/y.parquet"))
    assert table.vacuum(full=False).paths == ("removed.parquet",)
    assert stored not in table.vacuum().paths or ".." in named or "%2e" in named


def test_paths_that_are_not_known_are_left_out(store: MemoryStore, clock: Clock) -> None:
    for path in ("x.parquet", "removed.parquet"):
        store.put(path, b"x")
    table = removing(store, clock, "b/../x.parquet", "removed.parquet", "%FF")
    assert lite(table).paths == ("removed.parquet",) and files(store) == {"x.parquet"}


def test_links_other_tables_and_checksums_on_a_disk(tmp_path: Path) -> None:
    root, outside, clock = tmp_path / "t", tmp_path / "outside", Clock(NOW)
    table = removing(LocalStore(root), clock, "p=1/x", "linked/x", "link", "inner/x", "gone", "x" * 300, "p=1/x/y")
    for path in ("p=1/x", "p=1/.x.crc", ".gone.crc", "p=1/.other.crc", "inner/x"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")
    (root / "inner" / "_delta_log").mkdir()
    outside.mkdir()
    (outside / "x").write_bytes(b"x")
    (root / "linked").symlink_to(outside)
    (root / "link").symlink_to(outside / "x")
    for each in [outside / "x", *root.rglob("*")]:
        os.utime(each, ((clock.now_ms - 100 * DAY) / 1000,) * 2, follow_symlinks=False)
    report = lite(table)
    assert report.paths == (".gone.crc", "p=1/.x.crc", "p=1/x") and report.directories == ()
    assert report.kept == {Stay.LINK.value: 1, Stay.OTHER_TABLE.value: 1}
    assert (outside / "x").exists() and (root / "link").is_symlink() and (root / "p=1").is_dir()


def test_what_is_below_a_mount_point_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(NOW)
    table = removing(LocalStore(tmp_path), clock, "mounted/x", "beside/x")
    for path in ("mounted/x", "beside/x"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_bytes(b"x")
    for each in tmp_path.rglob("*"):
        os.utime(each, (1, 1))
    real = os.path.realpath(tmp_path)
    monkeypatch.setattr("deltalog.storage.fs.mount_points_below", lambda path: frozenset({f"{real}/mounted"}))
    assert lite(table).paths == ("beside/x",)


_MOUNTED = """
mount --bind "$2/outside" "$2/t/mounted" && mount --bind "$2/outside/x" "$2/t/file" || exit 77
exec "$1" -c '
import json, sys
from deltalog import DeltaTable
from tests.support.core import NOW, Clock, environment
table = DeltaTable.open(sys.argv[1] + "/t", environment=environment(Clock(NOW + 14 * 86_400_000)))
print(json.dumps(table.vacuum(dry_run=False, full=sys.argv[2] == "full").paths))
' "$2" "$3"
"""


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_real_mounts_of_the_same_disk_stay(tmp_path: Path, mode: str) -> None:
    """A directory and a file outside the table are bind-mounted into it, and hide files that could be deleted."""
    root = tmp_path / "t"
    removing(LocalStore(root), Clock(NOW), "mounted/x", "beside/x", "file")
    for path in ("t/mounted/x", "t/mounted/y", "t/beside/x", "t/file", "outside/x", "outside/deep/y"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    for each in tmp_path.rglob("*"):
        os.utime(each, (1, 1))
    command = ["sh", "-c", _MOUNTED, "sh", sys.executable, str(tmp_path), mode]
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"mounts are not allowed: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["beside/x"]
    assert tree(tmp_path / "outside") == ["deep/", "deep/y", "x"]
    assert {"file", "mounted/", "mounted/x", "mounted/y"} <= {*tree(root)} and "beside/x" not in tree(root)


# ----------------------------------------------------------------------------- start of the next vacuum


def test_the_next_one_begins_after_the_last(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    for number in range(5):
        table.overwrite(rows(number))
    clock.now_ms += 2 * WEEK
    assert len(lite(table).paths) == 5 and done_up_to(store) == 5
    table.checkpoint()
    table.overwrite(rows(9))
    clock.now_ms += 2 * WEEK
    counting = CountingStore(store)
    other = DeltaTable.open(counting, environment=environment(clock))
    other.snapshot()
    with counting.counted() as calls:
        assert len(lite(other).paths) == 1
    assert not any(calls.of("get", f"*{version:020}.json") for version in range(6))
    assert calls.of("walk") == 0 and calls.of("delete") == 1
    assert done_up_to(store) == 8


def cleaned(store: MemoryStore, clock: Clock) -> DeltaTable:
    """A table whose log begins at version 3."""
    table = create(store, clock)
    for number in range(3):
        table.overwrite(rows(number))
    table.checkpoint()
    for version in range(3):
        store.delete(f"_delta_log/{version:020}.json")
    table.overwrite(rows(7))
    clock.now_ms += 2 * WEEK
    return DeltaTable.open(store, environment=environment(clock))


def test_a_log_that_does_not_reach_back_is_refused(store: MemoryStore, clock: Clock) -> None:
    table = cleaned(store, clock)
    before = dict(store._objects)
    for dry_run in (True, False):
        with pytest.raises(VersionNotFoundError, match=r"since version 0, but version 0 is not.*full=True") as caught:
            table.vacuum(full=False, dry_run=dry_run)
        assert caught.value.version == 0 and store._objects == before
    store.put(LAST_VACUUM, b'{"latestCommitVersionOutsideOfRetentionWindow":1}')
    with pytest.raises(VersionNotFoundError, match="since version 2, the first after the last vacuum"):
        lite(table)
    store.put(LAST_VACUUM, b'{"latestCommitVersionOutsideOfRetentionWindow":2}')
    assert len(lite(table).paths) == 4  # three of these files have tombstones in the checkpoint


def test_a_full_one_lets_later_ones_go_on(store: MemoryStore, clock: Clock) -> None:
    table = cleaned(store, clock)
    assert len(table.vacuum(dry_run=False).paths) == 4 and done_up_to(store) == 4
    table.overwrite(rows(8))
    clock.now_ms += 2 * WEEK
    assert len(lite(table).paths) == 1


def test_a_log_within_the_retention_has_nothing_to_delete(store: MemoryStore, clock: Clock) -> None:
    table = cleaned(store, clock)
    assert lite(table, 24 * 365).paths == () and done_up_to(store) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"x", b"[" * 100_000, b'{"latestCommitVersionOutsideOfRetentionWindow":null}',
     b'{"latestCommitVersionOutsideOfRetentionWindow":"1"}', b'{"latestCommitVersionOutsideOfRetentionWindow":-1}',
     b'{"latestCommitVersionOutsideOfRetentionWindow":99}', b"\xff"],
)  # fmt: skip
def test_records_that_say_nothing_are_as_none(store: MemoryStore, clock: Clock, content: bytes) -> None:
    table = create(store, clock)
    table.overwrite(rows(3))
    store.put(LAST_VACUUM, content)
    clock.now_ms += 2 * WEEK
    assert len(lite(table).paths) == 1 and done_up_to(store) == 1


def test_the_record_never_goes_back(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.overwrite(rows(3))
    clock.now_ms += DAY
    table.overwrite(rows(4))
    clock.now_ms += 10
    lite(table, 0, enforce_retention_duration=False)
    clock.now_ms += WEEK
    assert done_up_to(store) == 2
    lite(table, 24 * 7.5)
    assert done_up_to(store) == 2


# -------------------------------------------------------------------------------------- what must be repeated


def test_files_that_only_their_age_keeps_are_considered_again(store: MemoryStore, clock: Clock) -> None:
    """In a copied table, the removed files are newer than the commits that removed them."""
    table = create(store, clock)
    removed = live(table)
    table.overwrite(rows(3))
    clock.now_ms += 2 * WEEK
    store._objects.update(dict.fromkeys(removed, (b"x", clock.now_ms)))
    for full in (False, True):
        assert table.vacuum(dry_run=False, full=full).kept[Stay.YOUNG.value] == 1 and done_up_to(store) is None
    clock.now_ms += 2 * WEEK
    assert set(lite(table).paths) == removed and done_up_to(store) == 1


def test_tombstones_of_a_clock_that_was_ahead_are_considered_again(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    (path,) = live(table)
    clock.now_ms += DAY
    put_commit(store, 1, info_action(), remove_action(path, deletionTimestamp=clock.now_ms + DAY))
    clock.now_ms += WEEK + 1
    assert lite(table).paths == () and done_up_to(store) is None
    clock.now_ms += DAY
    assert lite(table).paths == (path,) and done_up_to(store) == 1


def test_a_file_that_is_committed_meanwhile_stays(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.overwrite(rows(3))
    clock.now_ms += 2 * WEEK
    other = DeltaTable.open(store, environment=environment(clock))
    waiting = [lambda: other.restore(0)]

    def before(call: Any) -> None:
        if call.method == "put_if_absent" and waiting:
            waiting.pop()()

    report = lite(DeltaTable.open(FaultyStore(store, before=before), environment=environment(clock)))
    assert report.paths == () and ids(other) == [1, 2] and done_up_to(store) is None


@pytest.mark.parametrize("number", range(1, 45))
@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER])
def test_a_kill_at_any_call(store: MemoryStore, clock: Clock, number: int, fault: Fault) -> None:
    table = create(store, clock, VECTORS)
    table.append(rows(3))
    table.delete("id = 1")
    table.overwrite(rows(4))
    clock.now_ms += 2 * WEEK
    expected = live(table)
    if not is_killed_at(number, fault, store, clock, lite):
        assert number > 20
    fresh = DeltaTable.open(store, environment=environment(clock))
    lite(fresh)
    assert files(store) == expected and ids(fresh) == [4]


def test_a_failure_is_done_again(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    for number in range(4):
        table.overwrite(rows(number))
    clock.now_ms += 2 * WEEK
    failing = FaultyStore(store, nth(3, Fault.FAIL_BEFORE, method="delete", path="part-*"))
    with pytest.raises(StoreError, match=r"call it again"):
        lite(DeltaTable.open(failing, environment=environment(clock)))
    assert done_up_to(store) is None
    assert len(lite(table).paths) == 2 and files(store) == live(table)


def test_a_record_that_cannot_be_written_is_no_error(store: MemoryStore, clock: Clock, caplog: Any) -> None:
    table = create(store, clock)
    table.overwrite(rows(3))
    clock.now_ms += 2 * WEEK
    failing = FaultyStore(store, nth(1, Fault.FAIL_BEFORE, method="put", path=LAST_VACUUM))
    assert len(lite(DeltaTable.open(failing, environment=environment(clock))).paths) == 1
    assert done_up_to(store) is None and "the next lite vacuum will read more commits" in caplog.text
    assert lite(table).paths == () and done_up_to(store) == 1


# ------------------------------------------------------------------------------------------------ the rest


def test_the_report_says_that_it_was_lite(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    clock.now_ms += 2 * WEEK
    assert "lite" in str(table.vacuum(full=False)) and "lite" not in str(table.vacuum())
    assert table.vacuum(full=False).to_json()["full"] is False


def test_entries_lead_through_no_link(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    store.put("a/b", b"12")
    (tmp_path / "t" / "through").symlink_to(tmp_path / "t" / "a")
    os.mkfifo(tmp_path / "t" / "pipe")
    found = store.entries(["a", "a/b", "through", "through/b", "pipe", "a/b/c", f"{uuid.UUID(int=1)}/x", "n" * 300])
    assert [(entry.path, entry.kind) for entry in found] == [
        ("a", EntryKind.DIRECTORY), ("a/b", EntryKind.FILE), ("through", EntryKind.LINK), ("pipe", EntryKind.OTHER),
    ]  # fmt: skip
    walked = {entry.path: entry for entry in store.walk(lambda directory: True)}
    assert {entry.path: entry for entry in found} == walked
    assert isinstance(found[0], Entry)
