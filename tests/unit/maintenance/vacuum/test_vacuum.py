"""Vacuum on a local disk and in memory: which files are deleted and kept, and what the log records."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import (
    CallError,
    CommitStateUnknownError,
    CorruptTableError,
    DeltaTable,
    StoreError,
    TransactionManager,
    UnsupportedFeatureError,
    VacuumReport,
)
from deltalog.errors import ResourceNotReadyError, UnsafePathError
from deltalog.maintenance.vacuum.decisions import Need, Stay
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore, Fault, FaultyStore, nth
from tests.support.core import (
    NOW,
    SCHEMA,
    Clock,
    add_action,
    environment,
    ids,
    info,
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

HOUR, DAY = 3_600_000, 86_400_000
WEEK = 7 * DAY
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return memory(clock)


def delete(table: DeltaTable, hours: float | None = None, **options: Any) -> VacuumReport:
    return table.vacuum(hours, dry_run=False, **options)


# ------------------------------------------------------------------------------------------------ retention


def test_files_go_when_their_removal_is_older_than_the_retention(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    first = live(table)
    clock.now_ms += DAY
    table.overwrite(rows(3))
    removed_ms = clock.now_ms
    clock.now_ms = removed_ms + WEEK
    assert delete(table).paths == () and table.version == 1
    clock.now_ms = removed_ms + WEEK + 1
    dry = table.vacuum()
    assert dry.dry_run and set(dry.paths) == first and files(store) == first | live(table) and table.version == 1
    report = delete(table)
    assert set(report.paths) == first and files(store) == live(table) and ids(table) == [3]
    assert report.size_bytes == dry.size_bytes > 0 and (report.version, report.commits) == (1, (2, 3))
    assert dict(report.deleted) == {"removed from the table before the retention": 1}
    assert dict(report.kept) == {Need.LATEST.value: 1}
    assert delete(table).paths == () and table.version == 3


def test_a_dry_run_is_the_default_and_changes_nothing(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    store.put("leftover", b"1234")
    clock.now_ms += 2 * WEEK
    before = dict(store._objects)
    report = table.vacuum()
    assert report.dry_run and report.paths == ("leftover",) and report.size_bytes == 4 and report.commits == ()
    assert store._objects == before


def test_a_retention_below_the_tables_needs_consent(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock, {"delta.deletedFileRetentionDuration": "interval 2 days"})
    table.overwrite(rows(3))
    clock.now_ms += DAY + HOUR
    with pytest.raises(CallError, match=r"24 hours is shorter than the table's retention of 48 hours") as caught:
        table.vacuum(24)
    for name in ("enforce_retention_duration=False", "--below-retention", "retentionDurationCheck.enabled"):
        assert name in caught.value.message
    assert table.vacuum(48).paths == ()
    report = delete(table, 24, enforce_retention_duration=False)
    assert len(report.paths) == 1 and report.retention_ms == DAY and ids(table) == [3]


@pytest.mark.parametrize("hours", [-1, float("nan"), float("inf"), -0.1, 1e300])
def test_impossible_retentions(store: MemoryStore, clock: Clock, hours: float) -> None:
    with pytest.raises(CallError, match="retention_hours"):
        create(store, clock).vacuum(hours, enforce_retention_duration=False)


@pytest.mark.parametrize("hours", ["1", True, [1]])
def test_retentions_of_other_types(store: MemoryStore, clock: Clock, hours: Any) -> None:
    with pytest.raises(CallError, match="retention_hours"):
        create(store, clock).vacuum(hours, enforce_retention_duration=False)


def test_uncommitted_files_stay_for_a_day_even_without_a_retention(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    staged = table.stage(rows(7))
    table.overwrite(rows(3))
    clock.now_ms += HOUR
    report = delete(table, 0, enforce_retention_duration=False)
    assert len(report.paths) == 1  # the overwritten file
    assert report.kept[Stay.UNCOMMITTED.value] == 1
    table.commit_staged([staged])
    assert ids(table) == [3, 7]
    table.stage(rows(8))
    clock.now_ms += DAY + 1
    report = delete(table, 0, enforce_retention_duration=False)
    assert report.deleted == {"a data file that no version names": 1} and ids(table) == [3, 7]


def test_every_version_within_the_retention_can_be_read(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock, VECTORS | FEED)
    expected, times = {0: ids(table)}, {0: clock.now_ms}
    for day in range(1, 15):
        clock.now_ms += DAY
        (table.append if day % 3 else table.overwrite)(rows(10 * day, 10 * day + 1))
        table.delete(f"id = {10 * day}")
        for version in (table.version - 1, table.version):
            expected[version], times[version] = ids(table, version=version), clock.now_ms
    report = delete(table)
    assert report.paths
    at_cutoff = max(version for version, time_ms in times.items() if time_ms <= report.cutoff_ms)
    fresh = DeltaTable.open(store, environment=environment(clock))
    for version in range(at_cutoff, max(expected) + 1):
        assert ids(fresh, version=version) == expected[version]
        if version > at_cutoff:
            fresh.changes(version, version).to_arrow()


def test_tombstones_that_checkpoints_lack_do_not_matter(store: MemoryStore, clock: Clock) -> None:
    """A checkpoint drops the tombstones that have expired under the table's retention; a vacuum's retention may be
    longer."""
    table = create(store, clock, {"delta.deletedFileRetentionDuration": "interval 1 hours"})
    table.overwrite(rows(3))
    clock.now_ms += DAY
    table.checkpoint()
    clock.now_ms += WEEK
    assert DeltaTable.open(store).snapshot().log.cache.tombstones(0).num_rows == 0
    assert delete(table, 24 * 30).paths == () and ids(table, version=0) == [1, 2]
    assert len(delete(table).paths) == 1


def test_tombstones_count_by_their_own_times_too(store: MemoryStore, clock: Clock) -> None:
    """The writer's clock was ahead: by the commit's timestamp, the tombstone has already expired, but by its
    deletionTimestamp, it has not."""
    table = create(store, clock)
    path = next(iter(live(table)))
    clock.now_ms += DAY
    put_commit(store, 1, info_action(), remove_action(path, deletionTimestamp=clock.now_ms + DAY))
    clock.now_ms += WEEK + HOUR
    assert table.vacuum().paths == () and table.vacuum().kept == {Need.EARLIER.value: 1}
    clock.now_ms += DAY
    assert table.vacuum().paths == (path,)


def test_a_restored_file_is_live_again(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.overwrite(rows(3))
    clock.now_ms += 2 * WEEK
    table.restore(0)
    assert delete(table).paths == () and ids(table) == [1, 2]


# ------------------------------------------------------------------ deletion vectors and change data files


def test_vectors_stay_with_their_files(store: MemoryStore, clock: Clock) -> None:
    many = pa.table({"id": list(range(5_000)), "name": ["x"] * 5_000}, schema=SCHEMA)
    table = DeltaTable.create(store, SCHEMA, properties=VECTORS, data=many, environment=environment(clock))
    for number in (3, 7):  # each delete replaces the file's deletion vector, and none is inline
        clock.now_ms += DAY
        table.delete(f"id % {number} = 0")
    vectors = {path for path in files(store) if path.endswith(".bin")}
    assert len(vectors) == 2
    clock.now_ms += WEEK - HOUR
    assert delete(table).paths == ()
    clock.now_ms += 2 * HOUR
    report = delete(table)
    assert len(report.paths) == 1 and set(report.paths) < vectors
    assert len(ids(DeltaTable.open(store))) == sum(1 for i in range(5_000) if i % 3 and i % 7)


def test_change_files_go_with_their_commits(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock, FEED)
    clock.now_ms += DAY
    table.delete("id = 1")
    changes = {path for path in files(store) if path.startswith("_change_data/")}
    assert len(changes) == 1
    clock.now_ms += WEEK
    assert not changes & set(delete(table).paths)
    clock.now_ms += 1
    assert changes < set(delete(table).paths)


def test_a_young_change_file_has_a_reason_of_its_own(store: MemoryStore, clock: Clock) -> None:
    """A vacuum does not read commits from before the retention, and one of them may name the file, so the file does not
    count as unreferenced."""
    table = create(store, clock, FEED)
    clock.now_ms += HOUR
    table.delete("id = 1")
    store.put("left-over.parquet", b"x")
    clock.now_ms += HOUR
    kept = table.vacuum(0, enforce_retention_duration=False).kept
    assert (kept[Stay.YOUNG_CHANGES.value], kept[Stay.UNCOMMITTED.value]) == (1, 1)


def test_a_change_file_that_is_older_than_its_commit_stays(store: MemoryStore, clock: Clock) -> None:
    put_commit(store, 0, info_action(), protocol_action(), metadata_action(FEED))
    store.put("_change_data/cdc-0.parquet", b"x")
    clock.now_ms += 2 * WEEK
    cdc = {"cdc": {"path": "_change_data/cdc-0.parquet", "partitionValues": {}, "size": 1, "dataChange": False}}
    put_commit(store, 1, info_action(), cdc)
    table = DeltaTable.open(store, environment=environment(clock))
    clock.now_ms += DAY
    assert table.vacuum().kept == {Need.CHANGES.value: 1}
    clock.now_ms += WEEK
    assert table.vacuum().paths == ("_change_data/cdc-0.parquet",)


# ----------------------------------------------------------------------------------- file names and locations


def by_hand(store: Any, clock: Clock, *paths: str, partition_by: tuple[str, ...] = ()) -> DeltaTable:
    """A table with an add action for each path."""
    actions = [add_action(path, partitionValues=dict.fromkeys(partition_by, "1")) for path in paths]
    put_commit(store, 0, info_action(), protocol_action(), metadata_action(partition_by=partition_by), *actions)
    table = DeltaTable.open(store, environment=environment(clock))
    clock.now_ms += 2 * WEEK
    return table


@pytest.mark.parametrize(
    ("named", "stored"),
    [
        ("a%20b.parquet", "a b.parquet"),
        ("a%2520b.parquet", "a%20b.parquet"),
        ("name=%C3%A9/x.parquet", "name=é/x.parquet"),
        ("a%20b.parquet", "a%20b.parquet"),  # a path from a writer that does not percent-encode
        ("name=1%2F2/x.parquet", "name=1/2/x.parquet"),
        ("A.parquet", "a.parquet"),  # case-insensitive disks
        ("name=caf%C3%A9/x", "name=cafe\u0301/x"),  # disks that normalize names
        ("memory://{root}/x%20y.parquet", "x y.parquet"),
        ("memory://elsewhere/deep/x.parquet", "other/x.parquet"),  # the location might be this table under another name
        ("s3://bucket/x%20y.parquet", "x y.parquet"),
        ("file:/data/t/../x.parquet", "x.parquet"),
        ("a#b?c.parquet", "a#b?c.parquet"),
        ("_hidden/x.parquet", "_hidden/x.parquet"),
    ],
)
def test_a_file_stays_however_the_log_names_it(store: MemoryStore, clock: Clock, named: str, stored: str) -> None:
    store.put(stored, b"x")
    store.put("unneeded.parquet", b"x")
    table = by_hand(store, clock, named.replace("{root}", store.url.removeprefix("memory://")))
    assert delete(table).paths == ("unneeded.parquet",)
    assert files(store) == {stored}


@pytest.mark.parametrize("named", ["a/../x.parquet", "x%FF.parquet", "a\\x.parquet", "./x.parquet", "a//x", "%2e%2e/x"])
def test_nothing_goes_while_a_file_is_not_known(store: MemoryStore, clock: Clock, named: str) -> None:
    store.put("x.parquet", b"x")
    table = by_hand(store, clock, named)
    before = dict(store._objects)
    with pytest.raises(UnsafePathError, match=r"Nothing was deleted"):
        delete(table)
    assert store._objects == before


def test_vectors_by_absolute_path_stay(store: MemoryStore, clock: Clock) -> None:
    vector = {
        "storageType": "p",
        "pathOrInlineDv": f"{store.url}/v.bin",
        "offset": 1,
        "sizeInBytes": 3,
        "cardinality": 1,
    }
    adds = [
        add_action("x", deletionVector=vector),
        add_action("y", deletionVector={**vector, "pathOrInlineDv": "s3://b/w.bin"}),
    ]
    protocol = protocol_action("deletionVectors", reader=3, reader_features=["deletionVectors"])
    put_commit(store, 0, info_action(), protocol, metadata_action(), *adds)
    for name in ("x", "y", "v.bin", "w.bin", "z.bin"):
        store.put(name, b"x")
    table = DeltaTable.open(store, environment=environment(clock))
    clock.now_ms += 2 * WEEK
    assert table.vacuum().paths == ("z.bin",)


def test_an_unknown_kind_of_vector_is_refused(store: MemoryStore, clock: Clock) -> None:
    vector = {"storageType": "q", "pathOrInlineDv": "v.bin", "offset": 1, "sizeInBytes": 3, "cardinality": 1}
    protocol = protocol_action("deletionVectors", reader=3, reader_features=["deletionVectors"])
    put_commit(store, 0, info_action(), protocol, metadata_action(), add_action("x", deletionVector=vector))
    with pytest.raises(CorruptTableError, match="Invalid enum value"):
        DeltaTable.open(store, environment=environment(clock)).vacuum()


HIDDEN = ["_x", ".x", "_x/y", "a/_x", "a/.x/y", "_blobs/x", "_delta_log_old/x", "_temporary/0/x.parquet"]


@pytest.mark.parametrize("path", HIDDEN)
def test_hidden_files_stay(store: MemoryStore, clock: Clock, path: str) -> None:
    store.put(path, b"x")
    assert by_hand(store, clock).vacuum().paths == ()


@pytest.mark.parametrize(
    "path",
    ["x", "a/b/c", "_delta_index/x", "_change_data/x", "_name=1/x", "name=1/x", f".{uuid.UUID(int=1)}.tmp", "é b%20"],
)
def test_others_go(store: MemoryStore, clock: Clock, path: str) -> None:
    store.put(path, b"x")
    schema = pa.schema([("id", pa.int64()), ("_name", pa.string())])
    put_commit(store, 0, info_action(), protocol_action(), metadata_action(schema=schema, partition_by=("_name",)))
    table = DeltaTable.open(store, environment=environment(clock))
    clock.now_ms += 2 * WEEK
    assert delete(table).paths == (path,) and files(store) == set()


def test_partition_directories_of_another_column_are_hidden(store: MemoryStore, clock: Clock) -> None:
    store.put("_other=1/x", b"x")
    assert by_hand(store, clock).vacuum().kept == {Stay.HIDDEN.value: 1}


def test_checksums_of_hadoop_go_with_their_files(store: MemoryStore, clock: Clock) -> None:
    for name in ("x", ".x.crc", "y", ".y.crc", ".gone.crc", "a/.z.crc"):
        store.put(name, b"x")
    report = by_hand(store, clock, "y").vacuum()
    assert report.paths == (".gone.crc", ".x.crc", "a/.z.crc", "x")


def test_tables_below_the_root_are_left_alone(store: MemoryStore, clock: Clock) -> None:
    put_commit(store, 0, info_action(), protocol_action(), metadata_action())
    for path in ("a/b/_delta_log/00000000000000000000.json", "a/b/x.parquet", "a/b/c/x.parquet", "a/bc", "a/y"):
        store.put(path, b"x")
    table = DeltaTable.open(store, environment=environment(clock))
    clock.now_ms += 2 * WEEK
    report = delete(table)
    assert report.paths == ("a/bc", "a/y") and report.kept == {Stay.OTHER_TABLE.value: 3}


def test_the_log_is_never_touched(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    for name in ("stray.parquet", "_sidecars/x.parquet", "_staged_commits/x.json", f".{uuid.UUID(int=1)}.tmp"):
        store.put(f"_delta_log/{name}", b"x")
    clock.now_ms += 10 * WEEK
    store.put("x", b"")
    clock.now_ms += 2 * WEEK
    log = {path for path in store._objects if path.startswith("_delta_log/")}
    assert delete(table).paths == ("x",)
    assert log < {*store._objects}


def test_stores_without_times_keep_their_files(
    store: MemoryStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("x", b"")
    table = by_hand(store, clock)
    walk = MemoryStore.walk

    def timeless(self: MemoryStore, enters: Any, **options: Any) -> Any:
        import msgspec

        return (msgspec.structs.replace(entry, modification_time_ms=None) for entry in walk(self, enters))

    monkeypatch.setattr(MemoryStore, "walk", timeless)
    assert table.vacuum().kept == {Stay.NO_TIME.value: 1}


# ------------------------------------------------------------------------------------------------ local disk


class Disk:
    """A table on a local disk; its data files, and the unrelated files in its directory, have old file times."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock(NOW)
        self.table = create(str(root), self.clock)

    def put(self, path: str, data: bytes = b"x") -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return target

    def age(self, days: float = 100) -> None:
        at = (NOW - days * DAY) / 1000
        for path in [self.root, *self.root.rglob("*")]:
            os.utime(path, (at, at), follow_symlinks=False)

    def vacuum(self, **options: Any) -> VacuumReport:
        return delete(self.table, **options)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "table")


def test_links_are_neither_followed_nor_deleted(disk: Disk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.parquet").write_bytes(b"x")
    disk.put("a/x")
    (disk.root / "linked").symlink_to(outside)
    (disk.root / "a" / "deep").symlink_to(outside)
    (disk.root / "precious").symlink_to(outside / "precious.parquet")
    (disk.root / "dangling").symlink_to("nowhere")
    os.utime(outside / "precious.parquet", (1, 1))
    disk.age()
    report = disk.vacuum()
    assert report.paths == ("a/x",) and report.kept[Stay.LINK.value] == 4 and report.directories == ()
    assert (outside / "precious.parquet").exists() and (disk.root / "precious").is_symlink()


def test_a_directory_that_becomes_a_link_is_not_followed(disk: Disk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    disk.put("a/b/x")
    disk.put("a/y")
    disk.age()
    shutil.copytree(disk.root / "a", outside, copy_function=shutil.copy2)
    store = disk.table._handle.reader.store
    listed = [entry for entry in store.walk(lambda directory: True) if entry.path.startswith("a/")]
    shutil.move(disk.root / "a", tmp_path / "moved")
    (disk.root / "a").symlink_to(outside)
    assert store.remove([*listed, *reversed(listed)]) == []
    assert tree(outside) == tree(tmp_path / "moved") == ["b/", "b/x", "y"]


def test_a_file_that_was_written_again_stays(disk: Disk) -> None:
    path = disk.put("x")
    disk.age()
    store = disk.table._handle.reader.store
    listed = [entry for entry in store.walk(lambda directory: True) if entry.path == "x"]
    path.write_bytes(b"y")
    assert store.remove(listed) == [] and path.exists()


def test_hard_links_lose_one_name(disk: Disk, tmp_path: Path) -> None:
    os.link(disk.put("x"), tmp_path / "other")
    disk.age()
    assert disk.vacuum().paths == ("x",)
    assert (tmp_path / "other").read_bytes() == b"x"


def test_special_files_and_mounts_stay(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(disk.root / "pipe")
    disk.put("mounted/x")
    disk.age()
    real = os.path.realpath(disk.root)
    monkeypatch.setattr("deltalog.storage.fs.mount_points_below", lambda path: frozenset({f"{real}/mounted"}))
    report = disk.vacuum()
    assert report.paths == () and report.kept[Stay.SPECIAL.value] == 2 and (disk.root / "mounted/x").exists()


def test_odd_names_stay(disk: Disk) -> None:
    for name in (b"a\nb", b"a\\b", b"\xff.parquet", b"a\x7f"):
        Path(os.fsdecode(os.path.join(os.fsencode(disk.root), name))).write_bytes(b"x")
    disk.put("é ü%41#?;:'\".parquet")
    disk.age()
    report = disk.vacuum()
    assert report.paths == ("é ü%41#?;:'\".parquet",) and report.kept[Stay.ODD_NAME.value] == 4
    json.dumps(report.to_json())


def test_directories_go_when_they_are_empty(disk: Disk) -> None:
    disk.put("a/b/x")
    disk.put("a/c/_hidden")
    disk.put("d/e/y")
    for name in ("empty/deep", "_hidden/empty", "g/_hidden_too"):
        (disk.root / name).mkdir(parents=True)
    disk.age()
    (disk.root / "young").mkdir()
    report = disk.vacuum()
    assert report.paths == ("a/b/x", "d/e/y") and set(report.directories) == {"a/b", "d/e", "d", "empty/deep", "empty"}
    left = [path for path in tree(disk.root) if path.endswith("/") and not path.startswith("_delta_log")]
    assert left == ["_hidden/", "_hidden/empty/", "a/", "a/c/", "g/", "g/_hidden_too/", "young/"]


def test_a_table_reached_through_a_link(disk: Disk, tmp_path: Path) -> None:
    """Absolute paths in the log may begin with the table's real path, or with a path through the symbolic link."""
    named = {disk.put(f"{name}.parquet"): name for name in ("real", "link")}
    disk.put("unneeded.parquet")
    (tmp_path / "link").symlink_to(disk.root)
    actions = [add_action(f"file:{tmp_path}/table/real.parquet"), add_action(f"{tmp_path}/link/link.parquet")]
    put_commit(disk.table._handle.reader.store, 1, info_action(), *actions)
    disk.age()
    table = DeltaTable.open(str(tmp_path / "link"), environment=environment(disk.clock))
    assert delete(table).paths == ("unneeded.parquet",)
    assert all(path.exists() for path in named)


def test_the_protocol_is_checked(disk: Disk) -> None:
    disk.put("x")
    disk.age()
    store = disk.table._handle.reader.store
    put_commit(store, 1, info_action(), protocol_action("appendOnly", "featureOfTomorrow", reader=1))
    with pytest.raises(UnsupportedFeatureError, match="featureOfTomorrow"):
        disk.vacuum()
    assert (disk.root / "x").exists()


def test_vacuum_protocol_check_is_supported(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    table.add_feature("vacuumProtocolCheck")
    table.overwrite(rows(3))
    clock.now_ms += 2 * WEEK
    assert len(delete(table).paths) == 1


# --------------------------------------------------------------------------------------------------- the log


def test_what_the_log_records(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    store.put("a/x", b"12345")
    clock.now_ms += 2 * WEEK
    report = delete(table, 24 * 10)
    start, end = (info(store, version) for version in report.commits)
    assert start["operation"] == "VACUUM START" and end["operation"] == "VACUUM END"
    assert start["operationParameters"] == {
        "retentionCheckEnabled": "true", "specifiedRetentionMillis": "864000000", "defaultRetentionMillis": "604800000",
    }  # fmt: skip
    assert start["operationMetrics"] == {"numFilesToDelete": "1", "sizeOfDataToDelete": "5"}
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"] == {"numDeletedFiles": "1", "numVacuumedDirectories": "2"}
    assert [entry.operation for entry in table.history(2)] == ["VACUUM END", "VACUUM START"]
    assert ids(table) == [1, 2] and start["isBlindAppend"] and end["isBlindAppend"]


def test_a_failure_is_recorded_and_a_second_call_goes_on(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    for number in range(5):
        store.put(f"x{number}", b"1")
    clock.now_ms += 2 * WEEK
    failing = FaultyStore(store, nth(3, Fault.FAIL_BEFORE, method="delete", path="x*"))
    with pytest.raises(StoreError, match=r"call it again") as caught:
        delete(DeltaTable.open(failing, environment=environment(clock)))
    assert caught.value.path == "x2" and len(files(store)) == 4
    assert info(store, 2)["operationParameters"] == {"status": "FAILED"}
    assert delete(table).paths == ("x2", "x3", "x4") and ids(table) == [1, 2]


@pytest.mark.parametrize("number", range(1, 40))
@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER])
def test_a_kill_at_any_call(store: MemoryStore, clock: Clock, number: int, fault: Fault) -> None:
    table = create(store, clock, VECTORS)
    table.append(rows(3))
    table.delete("id = 1")
    table.overwrite(rows(4))
    for name in ("x", "y"):
        store.put(name, b"1")
    clock.now_ms += 2 * WEEK
    expected = live(table)
    if not is_killed_at(number, fault, store, clock, delete):
        assert number > 15
    fresh = DeltaTable.open(store, environment=environment(clock))
    delete(fresh)
    assert files(store) == expected and ids(fresh) == [4]


def test_progress_is_reported(store: MemoryStore, clock: Clock) -> None:
    for number in range(2_500):
        store.put(f"x{number}", b"")
    seen: list[tuple[int, int]] = []
    table = by_hand(store, clock)
    delete(table, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1000, 2500), (2000, 2500), (2500, 2500)]


# ------------------------------------------------------------------------------------------------- other writers


def test_a_file_that_is_committed_meanwhile_stays(store: MemoryStore, clock: Clock) -> None:
    """Another process commits an old staged file after the vacuum has decided to delete this file and before the
    deletion starts."""
    table = create(store, clock)
    staged = table.stage(rows(7))
    store.put("leftover", b"")
    clock.now_ms += 2 * WEEK
    other = DeltaTable.open(store, environment=environment(clock))
    waiting = [lambda: other.commit_staged([staged])]

    def before(call: Any) -> None:
        if call.method == "put_if_absent" and waiting:
            waiting.pop()()

    report = delete(DeltaTable.open(FaultyStore(store, before=before), environment=environment(clock)))
    assert report.paths == ("leftover",) and ids(other) == [1, 2, 7]


def test_a_file_that_is_committed_between_the_listing_and_the_log_stays(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    staged = table.stage(rows(7))
    clock.now_ms += 2 * WEEK

    class Slow(FaultyStore):
        def walk(self, enters: Any, **options: Any) -> Any:
            yield from [*super().walk(enters, **options)]
            DeltaTable.open(store, environment=environment(clock)).commit_staged([staged])

    report = delete(DeltaTable.open(Slow(store), environment=environment(clock)))
    assert report.paths == () and report.version == 0 and ids(DeltaTable.open(store)) == [1, 2, 7]
    assert report.kept[Need.EARLIER.value] == 1


def test_a_file_whose_commit_is_unknown_stays(store: MemoryStore, clock: Clock) -> None:
    create(store, clock)
    lossy = FaultyStore(store)
    table = DeltaTable.open(lossy, environment=environment(clock))
    staged = table.stage(rows(7))
    lossy.decide = lambda call: Fault.LATE if call.method == "put_if_absent" else None
    with pytest.raises(CommitStateUnknownError):
        table.commit_staged([staged])
    lossy.decide = lambda call: None
    clock.now_ms += 2 * WEEK
    assert table.vacuum().kept[Need.UNSETTLED.value] == 1
    assert DeltaTable.open(store, environment=environment(clock)).vacuum().paths == (staged.files[0].path,)


def test_other_writers_commit_at_the_same_time(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    store.put("leftover", b"")
    clock.now_ms += 2 * WEEK
    other = DeltaTable.open(store, environment=environment(clock))
    works = [lambda: other.set_properties({"a": "b"}), lambda: other.overwrite(rows(8)), lambda: other.append(rows(9))]

    def before(call: Any) -> None:
        if call.method == "put_if_absent" and works:
            works.pop()()

    report = delete(DeltaTable.open(FaultyStore(store, before=before), environment=environment(clock)))
    assert report.paths == ("leftover",) and ids(other) == [8] and works == []
    assert table.snapshot().version == 5


def test_tables_of_catalogs_and_transactions_are_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "t"), SCHEMA, data=rows(1))
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    manager.register_table("db.t", str(tmp_path / "t"))
    with pytest.raises(ResourceNotReadyError, match=r"managed by the catalog.*TransactionManager\.vacuum"):
        DeltaTable.open(f"catalog:{tmp_path}/catalog.db#db.t").vacuum()
    with manager.transaction() as transaction, pytest.raises((CallError, ResourceNotReadyError), match="vacuum"):
        transaction.table("db.t").vacuum()


def test_the_cost(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    for number in range(4):
        table.append(rows(number + 10))
    store.put("x", b"")
    clock.now_ms += 2 * WEEK
    counting = CountingStore(store)
    other = DeltaTable.open(counting, environment=environment(clock))
    with counting.counted() as calls:
        other.vacuum()
    assert calls.of("walk") == 1 and calls.of("put*") == calls.of("delete") == 0
    with counting.counted() as calls:
        delete(other)
    assert calls.of("delete") == 1 and calls.of("put_if_absent") == 2


def test_the_report_as_text_and_json(store: MemoryStore, clock: Clock) -> None:
    table = create(store, clock)
    store.put("x", b"123")
    clock.now_ms += 2 * WEEK
    report = table.vacuum()
    text = str(report)
    assert "1 would be deleted, 3 bytes; 1 stay" in text and "1: no version names it" in text
    assert "1: the latest version needs it" in text
    body = json.loads(json.dumps(report.to_json()))
    assert body["files"] == [{"path": "x", "size_bytes": 3, "reason": "no version names it"}]
    assert body["kept"] == {"the latest version needs it": 1} and body["dry_run"] is True


def test_stores_that_cannot_list_all_depths_are_refused(store: MemoryStore, clock: Clock, monkeypatch: Any) -> None:
    from deltalog.storage.base import LogStore

    table = create(store, clock)
    monkeypatch.setattr(MemoryStore, "walk", LogStore.walk)
    with pytest.raises(CallError, match="cannot list files at all depths"):
        table.vacuum()


def test_a_local_root_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        list(LocalStore(tmp_path / "absent").walk(lambda directory: True))
