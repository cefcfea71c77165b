"""`DeltaTable.cleanup_log` deletes log files beyond the retention, and keeps what time travel within it needs."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from deltalog import DeltaTable, UnsupportedFeatureError
from deltalog.log.cleanup import CleanupReport, clean_up, decide_files
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import LOG_DIRECTORY, checksum_path, commit_name, compaction_name, log_path
from deltalog.protocol.retention import DAY_MS
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import Call, CountingStore, Fault, FaultyStore, nth
from tests.support.core import ICT, NOW, SCHEMA, Clock, environment, ids, memory, objects, rows

MIDNIGHT = NOW // DAY_MS * DAY_MS
V2 = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}
BEFORE = {"delta.enableExpiredLogCleanup": "false"}  # the tests decide when


def table_of_days(
    days: Sequence[float],
    checkpoints: Sequence[int] = (),
    *,
    store: MemoryStore | None = None,
    enable_at: int | None = None,
    properties: Mapping[str, str] | None = None,
) -> tuple[MemoryStore, Clock, DeltaTable]:
    """A table with one-row commits at the given numbers of ``days`` before today's midnight; afterwards the clock shows
    NOW."""
    clock = Clock()
    store = store or memory(clock)
    store._clock_ms = clock
    table: DeltaTable | None = None
    for version, day in enumerate(days):
        clock.now_ms = MIDNIGHT - int(day * DAY_MS)
        if table is None:
            table = DeltaTable.create(
                store, SCHEMA, properties={**BEFORE, **(properties or {})}, environment=environment(clock), data=rows(0)
            )
        elif version == enable_at:
            table.enable_in_commit_timestamps()
        else:
            table.append(rows(version))
        if version in checkpoints:
            table.checkpoint()
    assert table is not None
    clock.now_ms = NOW
    return store, clock, table


def commits(store: MemoryStore) -> list[int]:
    return sorted(int(n[:20]) for n in store.list_names(LOG_DIRECTORY) if n[20:] == ".json")


def checkpoints(store: MemoryStore) -> list[int]:
    return sorted({int(n[:20]) for n in store.list_names(LOG_DIRECTORY) if ".checkpoint." in n})


DAYS = [60, 50, 45, 40, 31, 29, 10, 1]
CLOCKS: dict[str, dict[str, str]] = {"ict": ICT, "file times": {}}


@pytest.mark.parametrize("clock_kind", CLOCKS)
@pytest.mark.parametrize(
    ("points", "first"),
    [
        # Version 4 is 31 days old: it is the last commit at or before the cut-off, and has a checkpoint.
        ([2, 4, 6], 4),
        ([1, 3, 6], 3),
        ([1], 1),
        ([5, 6], None),  # no commit is old enough
        ([], None),
        ([0, 7], 0),
    ],
)
def test_the_newest_checkpoint_at_or_before_the_cut_off_is_where_the_log_begins(
    clock_kind: str, points: list[int], first: int | None
) -> None:
    store, _, table = table_of_days(DAYS, points, properties=CLOCKS[clock_kind])
    report = table.cleanup_log()
    kept_from = first or 0
    assert (report.first_version, report.cutoff_ms) == (first, MIDNIGHT - 30 * DAY_MS)
    assert commits(store) == list(range(kept_from, len(DAYS)))
    assert checkpoints(store) == [version for version in points if version >= kept_from]
    assert report.unreachable == ((0, first - 1) if first else None)
    fresh = DeltaTable.open(store)
    for version in range(kept_from, len(DAYS)):
        assert ids(fresh, version=version) == list(range(version + 1))
        assert fresh.version_at(MIDNIGHT - DAYS[version] * DAY_MS).version == version


def test_a_commit_exactly_at_midnight_is_old_enough() -> None:
    _, _, table = table_of_days([40, 30, 29], [1], properties=ICT)
    assert table.cleanup_log().first_version == 1
    _, _, table = table_of_days([40, 30 - 1 / 86_400_000, 29], [1], properties=ICT)
    assert table.cleanup_log().first_version is None


@pytest.mark.parametrize(
    ("property_text", "first"), [("interval 45 days", 2), ("interval 1 week", 6), ("interval 100 days", None)]
)
def test_the_retention_is_the_tables(property_text: str, first: int | None) -> None:
    _, _, table = table_of_days(DAYS, [2, 6], properties={**ICT, "delta.logRetentionDuration": property_text})
    assert table.cleanup_log(dry_run=True).first_version == first
    assert table.cleanup_log(dry_run=True, retention=datetime.timedelta(days=8)).first_version == 6


# ------------------------------------------------------------------------------------------ which clock decides


def touch(store: MemoryStore, times: dict[int, int]) -> None:
    """Change the modification times of commit files, as copying a table does."""
    for version, time_ms in times.items():
        path = log_path(commit_name(version))
        data, _ = store._objects[path]
        store._objects[path] = (data, time_ms)


def test_a_copy_with_old_file_times_loses_nothing_of_a_table_with_in_commit_timestamps() -> None:
    """A restored backup keeps the old file times, so a clean-up that goes by file times, as in other engines, would
    delete even today's commits."""
    store, _, table = table_of_days([3, 2, 1], [1], properties=ICT)
    touch(store, dict.fromkeys(range(3), MIDNIGHT - 90 * DAY_MS))
    assert table.cleanup_log().deleted == ()


def test_a_copy_with_new_file_times_is_cleaned_all_the_same() -> None:
    store, _, table = table_of_days(DAYS, [3], properties=ICT)
    touch(store, dict.fromkeys(range(len(DAYS)), NOW))
    assert table.cleanup_log().first_version == 3
    assert commits(store) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(("points", "first"), [([1, 3, 5], 3), ([1, 5], 1), ([5], None)])
def test_in_commit_timestamps_that_were_enabled_late(points: list[int], first: int | None) -> None:
    """The kind of time that time travel uses for a commit also decides whether the commit has expired, and time travel
    before and after the enablement is unchanged."""
    store, _, table = table_of_days(DAYS, points, enable_at=3)
    asked = [MIDNIGHT - int(day * DAY_MS) for day in DAYS]
    before = {at: table.version_at(at).version for at in asked}
    assert table.cleanup_log().first_version == first
    fresh = DeltaTable.open(store)
    for at, version in before.items():
        if version >= (first or 0):
            assert fresh.version_at(at).version == version


def test_a_log_never_begins_where_that_would_change_a_time() -> None:
    """Readers adjust file times to be strictly increasing from the first commit on. The clock was an hour fast for
    versions 0 and 1, so readers adjust the times of versions 2 and 3. Without the earlier commits, the times of
    versions 2 and 3 would jump back."""
    store, _, table = table_of_days(DAYS, [1, 2, 3, 4])
    at = MIDNIGHT - 40 * DAY_MS
    touch(store, {0: at, 1: at + 3_600_000, 2: at, 3: at + 1, 4: at + 7_200_000, 5: at + 20 * DAY_MS})
    before = {version: DeltaTable.open(store).history()[7 - version].timestamp_ms for version in range(8)}
    assert before[2] == at + 3_600_001 and before[3] == at + 3_600_002
    table = DeltaTable.open(store, environment=environment(Clock(NOW - 5 * DAY_MS)))
    assert table.cleanup_log(dry_run=True, retention=datetime.timedelta(days=30)).first_version == 4
    for version in (4,):
        store.delete(log_path(f"{version:020d}.checkpoint.parquet"))
    report = table.cleanup_log(retention=datetime.timedelta(days=30))
    assert report.first_version == 1
    after = {entry.version: entry.timestamp_ms for entry in DeltaTable.open(store).history()}
    assert after == {version: before[version] for version in range(1, 8)}


def test_a_clock_that_is_slow_deletes_nothing() -> None:
    _, clock, table = table_of_days(DAYS, [3], properties=ICT)
    clock.now_ms = MIDNIGHT - 70 * DAY_MS
    assert table.cleanup_log().deleted == ()


# --------------------------------------------------------------------------------------- deleted and kept files


def test_each_kind_of_file() -> None:
    names = [
        *(f"{version:020d}{end}" for version in range(5) for end in (".json", ".crc", ".checkpoint.parquet")),
        f"{1:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
        f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
        f"{1:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
        f".{1:020d}.json.crc", f".{3:020d}.json.crc",
        compaction_name(0, 1), compaction_name(3, 4), compaction_name(4, 5),
        "_last_checkpoint", "._last_checkpoint.crc", ".x.tmp", "stranger", f"{1:020d}.json.bak",
    ]  # fmt: skip
    files = decide_files(names, 3)
    assert sorted(file.path for file in files) == sorted(map(log_path, names))
    kept = {file.path.removeprefix("_delta_log/") for file in files if not file.deleted}
    assert kept == {
        *(name for name in names if name[:20] in (f"{3:020d}", f"{4:020d}") and "compacted" not in name),
        compaction_name(4, 5), f".{3:020d}.json.crc",
        "_last_checkpoint", "._last_checkpoint.crc", ".x.tmp", "stranger", f"{1:020d}.json.bak",
    }  # fmt: skip
    deleted = [file.path for file in files if file.deleted]
    versions = [int(path.removeprefix("_delta_log/").lstrip(".")[:20]) for path in deleted]
    assert versions == sorted(versions)
    assert all(file.reason for file in files)
    assert not any(file.deleted for file in decide_files(names, None))


def report_without_mode(report: CleanupReport) -> dict[str, Any]:
    return {key: value for key, value in report.to_json().items() if key != "dry_run"}


@pytest.mark.parametrize("properties", [ICT, {}, {**V2, **ICT}], ids=["ict", "file times", "v2"])
def test_a_dry_run_says_what_the_real_one_does_and_does_nothing(properties: dict[str, str]) -> None:
    store, _, table = table_of_days(DAYS, [1, 3, 6], properties=properties)
    before = objects(store)
    said = table.cleanup_log(dry_run=True)
    assert objects(store) == before
    done = table.cleanup_log()
    assert report_without_mode(said) == report_without_mode(done) and said.dry_run and not done.dry_run
    assert before.keys() - objects(store).keys() == set(done.deleted)
    assert {f.path for f in said.files if not f.deleted} == {p for p in objects(store) if p.startswith("_delta_log/")}
    assert json.dumps(said.to_json()) and "versions 0 to 2" in str(said) and "would be deleted" in str(said)
    again = table.cleanup_log()
    assert again.deleted == () and again.unreachable is None


def test_sidecars_go_with_the_last_checkpoint_that_names_them() -> None:
    store, clock, table = table_of_days(DAYS, properties={**V2, **ICT})
    table.checkpoint(sidecar_rows=3)
    young = DeltaTable.open(store)
    kept_names = set(store.list_names("_delta_log/_sidecars"))
    assert len(kept_names) == 3
    for age_days, name in ((40, "old"), (1.5, "of yesterday"), (0.5, "new")):
        clock.now_ms = MIDNIGHT - int(age_days * DAY_MS)
        store.put(f"_delta_log/_sidecars/{name}.parquet", b"")
        store.put(f"_delta_log/_sidecars/{name}.txt", b"somebody's notes")
    clock.now_ms = NOW
    report = table.cleanup_log()
    others = {"new.parquet", "new.txt", "of yesterday.txt", "old.txt"}
    assert set(store.list_names("_delta_log/_sidecars")) == kept_names | others
    reasons = {fate.path.rsplit("/", 1)[-1]: fate.reason for fate in report.files}
    assert "names it" in reasons[min(kept_names)] and "younger" in reasons["new.parquet"]
    assert young.snapshot().files().num_rows == len(DAYS)


def test_sidecars_of_a_checkpoint_that_cannot_be_read_stay() -> None:
    store, clock, table = table_of_days(DAYS, properties={**V2, **ICT})
    clock.now_ms = MIDNIGHT - 40 * DAY_MS
    store.put("_delta_log/_sidecars/whose.parquet", b"")
    store.put(f"_delta_log/{7:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet", b"PAR1")
    clock.now_ms = NOW
    assert table.cleanup_log().deleted == ()


def test_a_checkpoint_that_cannot_be_read_is_no_place_to_begin() -> None:
    store, _, table = table_of_days(DAYS, [1, 3], properties=ICT)
    path = log_path(f"{3:020d}.checkpoint.parquet")
    store.put(path, store.get(path)[:-20])
    assert table.cleanup_log().first_version == 1
    assert ids(DeltaTable.open(store), version=3) == [0, 1, 2, 3]


def test_a_checkpoint_whose_commit_is_gone_is_no_place_to_begin() -> None:
    """The checkpoint does not contain the in-commit timestamp; only the commit does."""
    store, _, table = table_of_days(DAYS, [1, 3], properties=ICT)
    store.delete(log_path(commit_name(3)))
    assert table.cleanup_log().first_version is None


# ----------------------------------------------------------------------------------------------------- refusals


def test_protected_checkpoints_go_all_at_once_or_not_at_all() -> None:
    protection = {"delta.feature.checkpointProtection": "supported"}
    for protected, first in (("4", None), ("3", 3), ("0", 3)):
        properties = {**ICT, **protection, "delta.requireCheckpointProtectionBeforeVersion": protected}
        _, _, table = table_of_days(DAYS, [1, 3], properties=properties)
        report = table.cleanup_log()
        assert report.first_version == first
        assert ("checkpointProtection" in report.reason) == (first is None)


def test_a_table_with_features_that_are_not_known_is_left_alone() -> None:
    store, _, _ = table_of_days(DAYS, [1, 3], properties=ICT)
    path = log_path(commit_name(7))
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["ofTheFuture"]}}
    store.put(path, store.get(path) + json.dumps(protocol).encode() + b"\n")
    store.delete(checksum_path(7))
    before = objects(store)
    with pytest.raises(UnsupportedFeatureError, match="ofTheFuture"):
        DeltaTable.open(store, environment=environment()).cleanup_log()
    assert objects(store) == before


# ------------------------------------------------------------------------------------------------- interruptions


def test_an_interruption_at_any_delete_leaves_a_log_that_can_be_read_and_cleaned() -> None:
    _, _, table = table_of_days(DAYS, [1, 3, 6], properties={**V2, **ICT})
    total = len(table.cleanup_log(dry_run=True).deleted)
    assert total == 7  # the files of commits 0 to 2, their version checksums, and the checkpoint of version 1
    left = None
    for number in range(1, total + 1):
        for fault in (Fault.FAIL_BEFORE, Fault.KILL_AFTER):
            store, clock, _ = table_of_days(DAYS, [1, 3, 6], properties={**V2, **ICT})
            faulty = FaultyStore(store, nth(number, fault, method="delete", path="*"))
            with pytest.raises(BaseException, match=r"injected|killed|fault"):
                DeltaTable.open(faulty, environment=environment(clock)).cleanup_log()
            fresh = DeltaTable.open(store, environment=environment(clock))
            assert ids(fresh) == list(range(len(DAYS)))
            for version in range(3, len(DAYS)):
                assert ids(fresh, version=version) == list(range(version + 1))
                assert fresh.version_at(MIDNIGHT - DAYS[version] * DAY_MS).version == version
            fresh.cleanup_log()
            now_left = sorted(len(path) for path in objects(store) if path.startswith("_delta_log/"))
            assert left in (None, now_left)
            left = now_left


@pytest.mark.parametrize("number", range(1, 15))
@pytest.mark.parametrize("clock_kind", CLOCKS)
def test_two_clean_ups_at_once(clock_kind: str, number: int) -> None:
    """Before each request of one cleanup, another cleanup runs completely."""
    store, clock, _ = table_of_days(DAYS, [1, 3, 6], properties=CLOCKS[clock_kind])
    calls = 0

    def another_first(call: Call) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            DeltaTable.open(store, environment=environment(clock)).cleanup_log()

    table = DeltaTable.open(store, environment=environment(clock))
    clean_up(LogReader(FaultyStore(store, before=another_first)), NOW)
    assert commits(store) == list(range(3, len(DAYS))) and checkpoints(store) == [3, 6]
    assert ids(table) == list(range(len(DAYS)))


# -------------------------------------------------------------------------------- automatic clean-up, and its cost


def automatic(enabled: str, age_days: float = 60) -> MemoryStore:
    store, _, table = table_of_days([age_days, 50, 45, 40], [2], properties={**ICT, "delta.checkpointInterval": "5"})
    table.set_properties({"delta.enableExpiredLogCleanup": enabled})
    table.append(rows(9))
    return store


def test_it_happens_after_a_checkpoint_where_it_is_not_turned_off() -> None:
    assert commits(automatic("true")) == [2, 3, 4, 5]
    assert commits(automatic("false")) == [0, 1, 2, 3, 4, 5]


def test_a_young_table_is_not_asked() -> None:
    clock = Clock()
    store = CountingStore(memory(clock))
    properties = {**ICT, "delta.checkpointInterval": "2"}
    table = DeltaTable.create(store, SCHEMA, properties=properties, environment=environment(clock))
    table.append(rows(1))
    with store.counted() as calls:
        table.append(rows(2))
    assert calls.of("put", "*_last_checkpoint") == 1
    assert calls.of("list_from") + calls.of("list_names") == 0


def test_it_happens_once_a_day_for_each_handle() -> None:
    inner, clock, _ = table_of_days([60, 50], properties={**ICT, "delta.checkpointInterval": "1"})
    store = CountingStore(inner)
    table = DeltaTable.open(store, environment=environment(clock))
    table.set_properties({"delta.enableExpiredLogCleanup": "true"})
    for number, listings in ((1, 0), (2, 0)):
        with store.counted() as calls:
            table.append(rows(number))
        assert calls.of("list_from", "_delta_log*") + calls.of("list_names", "_delta_log*") == listings
    clock.now_ms += DAY_MS
    with store.counted() as calls:
        table.append(rows(3))
    assert calls.of("list_from", "_delta_log*") + calls.of("list_names", "_delta_log*") == 3


def test_a_clean_up_that_fails_is_not_the_commits_error(caplog: pytest.LogCaptureFixture) -> None:
    inner, clock, _ = table_of_days([60, 50, 45], [1], properties={**ICT, "delta.checkpointInterval": "4"})
    DeltaTable.open(inner, environment=environment(clock)).set_properties({"delta.enableExpiredLogCleanup": "true"})
    store = FaultyStore(inner, nth(1, Fault.FAIL_BEFORE, method="delete", path="*"))
    table = DeltaTable.open(store, environment=environment(clock))
    with caplog.at_level(logging.WARNING, logger="deltalog"):
        for number in range(3):
            table.append(rows(number))
    assert table.version == 6 and sum(store.injected.values()) == 1
    assert any("log clean-up" in record.getMessage() for record in caplog.records)


def test_what_it_asks_of_the_store() -> None:
    inner, clock, _ = table_of_days(
        [*range(200, 100, -1)], [50, 60], properties={**ICT, "delta.checkpointInterval": "1000"}
    )
    store = CountingStore(inner)
    table = DeltaTable.open(store, environment=environment(clock))
    with store.counted() as calls:
        report = table.cleanup_log()
    assert calls.of("delete") == len(report.deleted) == 2 * 60 + 1
    assert calls.of("list_from") + calls.of("list_names") == 3
    assert calls.of("get", "*.json") <= 9 + 1 and calls.of("open_input") <= 3
