from __future__ import annotations

import json
from typing import Any

import pytest

from deltalog import (
    CallError,
    CorruptTableError,
    DeltaTable,
    Snapshot,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from deltalog.engine import AddFile
from deltalog.errors import (
    InvalidCheckpointError,
    InvalidCommitError,
    InvalidEnablementError,
    MissingInCommitTimestampError,
    MissingVersionError,
    UnsafePathError,
)
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import checkpoint_path, checksum_path, commit_path
from deltalog.storage import LogStore
from deltalog.storage.fs import LocalStore
from deltalog.testing.stores import CountingStore
from tests.support.core import (
    ICT,
    NOW,
    SCHEMA,
    TIMESTAMP_KEY,
    VERSION_KEY,
    Clock,
    add_action,
    environment,
    info_action,
    memory,
    metadata_action,
    overtaken,
    protocol_action,
    put_commit,
    remove_action,
    rows,
)


def snapshot(store: LogStore) -> Snapshot:
    return Snapshot(load_latest(LogReader(store)))


def paths(found: Snapshot) -> list[str]:
    return sorted(found.files()["path"].to_pylist())


def hand_made(store: LogStore, *more: list[dict[str, Any]], properties: dict[str, str] | None = None) -> Snapshot:
    put_commit(store, 0, info_action(), protocol_action(), metadata_action(properties), add_action("a"))
    for version, actions in enumerate(more, 1):
        put_commit(store, version, info_action(), *actions)
    return snapshot(store)


def test_a_state_from_commits() -> None:
    store = memory()
    found = hand_made(
        store,
        [add_action("b", size=5), {"txn": {"appId": "app", "version": 3, "lastUpdated": 9}}],
        [remove_action("a"), {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}],
    )
    assert (found.version, found.num_files, found.size_bytes, paths(found)) == (2, 1, 5, ["b"])
    assert found.schema.names == ["id", "name"] and found.partition_columns == ()
    assert found.protocol.to_json() == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert found.metadata.id == metadata_action()["metaData"]["id"]
    assert [(t.app_id, t.version, t.last_updated) for t in found.set_transactions] == [("app", 3, 9)]
    assert (found.transaction_version("app"), found.transaction_version("x")) == (3, None)
    assert [d.domain for d in found.domain_metadata] == ["d"]
    assert not found.in_commit_timestamps_enabled and found.enablement is None
    assert found.in_commit_timestamp_ms is None
    assert store.url in repr(found) and "version=2" in repr(found)


def test_no_log_is_no_table() -> None:
    with pytest.raises(TableNotFoundError):
        snapshot(memory())


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_log_without_a_state(missing: str) -> None:
    store = memory()
    actions = [a for a in (info_action(), protocol_action(), metadata_action()) if missing not in a]
    put_commit(store, 0, *actions)
    with pytest.raises(CorruptTableError, match=f"{store.url}: there is no {missing} action"):
        snapshot(store)


def test_a_reader_feature_that_is_not_known_is_refused_also_from_a_checksum() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    table.append(rows(1))
    foreign = protocol_action("fooBar", reader=3, reader_features=["fooBar"])
    put_commit(store, 2, info_action(txnId="x"), foreign)
    with pytest.raises(UnsupportedFeatureError, match="fooBar"):
        snapshot(store)
    crc = json.loads(store.get(checksum_path(1)))
    store.put(checksum_path(2), json.dumps({**crc, "txnId": "x", **foreign}).encode())
    with pytest.raises(UnsupportedFeatureError, match="fooBar"):
        snapshot(store)


# ------------------------------------------------------------------------------------------- the checksum


def test_a_checksum_saves_reading_the_log() -> None:
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for i in range(5):
        table.append(rows(i))
    with store.counted() as calls:
        found = snapshot(store)
        assert (found.version, found.num_files) == (5, 5)
    assert found.size_bytes == sum(table.snapshot().files()["size"].to_pylist())
    assert calls.of("get", "*.json") == 1 and calls.of("get", "*.crc") == 1 and calls.of("list_from") == 1


@pytest.mark.parametrize("damage", ["torn", "stale", "foreign", "gone"])
def test_a_checksum_that_is_not_of_this_commit_changes_nothing(damage: str) -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    table.append(rows(1))
    table.append(rows(2))
    good = store.get(checksum_path(2))
    if damage == "torn":
        store.put(checksum_path(2), good[:-10])
    elif damage == "stale":
        store.put(checksum_path(2), store.get(checksum_path(1)))
    elif damage == "foreign":
        store.put(checksum_path(2), json.dumps({**json.loads(good), "txnId": "other", "numFiles": 99}).encode())
    else:
        store.delete(checksum_path(2))
    found = snapshot(store)
    assert (found.version, found.num_files) == (2, 2)


REPEATED = pytest.mark.xfail(strict=True, reason="an add of a live file with dataChange=true counts twice")


@pytest.mark.parametrize("data_change", [False, pytest.param(True, marks=REPEATED)])
def test_totals_agree_with_the_files_whatever_a_commit_says_again(data_change: bool) -> None:
    """A file that is added again (with other statistics, or by a repeated job) is still counted once."""
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    table.append(rows(1))
    (file,) = table.snapshot().files().to_pylist()
    again = add_action(file["path"], size=file["size"], dataChange=data_change, stats=file["stats"])["add"]
    with table.transaction() as transaction:
        transaction.add(AddFile.from_json(again))
        transaction.commit("ANALYZE")
    for found in (table.snapshot(), snapshot(store)):
        assert found.num_files == found.files().num_rows == 1
        assert found.size_bytes == file["size"]


def test_what_another_writer_moved_counts_where_the_files_are_in_memory() -> None:
    """A handle with the list of files in memory knows whether a file that a commit adds with dataChange=false was
    already live."""
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for number in range(4):
        table.append(rows(number))
    assert table.snapshot().files().num_rows == 4
    other = DeltaTable.open(store, environment=environment())
    other.optimize.compact()
    version = table.append(rows(9)).version
    assert store.head(checksum_path(version)) is not None
    assert table.snapshot().num_files == snapshot(store).num_files == snapshot(store).files().num_rows == 2


@REPEATED
def test_totals_agree_when_another_writer_repeats_itself() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    table.append(rows(1))
    (file,) = table.snapshot().files().to_pylist()
    repeat = add_action(file["path"], size=file["size"])
    mine = overtaken(store, lambda: put_commit(store, 2, info_action(), repeat))
    table = DeltaTable.open(mine, environment=environment())
    assert table.append(rows(2)).version == 3
    for found in (table.snapshot(), snapshot(store)):
        assert found.num_files == found.files().num_rows == 2


# --------------------------------------------------------------------------------------- times and enablement


def test_the_time_of_a_version_without_in_commit_timestamps_is_the_files() -> None:
    clock = Clock(5_000)
    store = memory(clock)
    assert hand_made(store).timestamp_ms == 5_000


def test_the_time_of_a_version_with_in_commit_timestamps_is_its_own() -> None:
    store = memory(Clock(5_000))
    put_commit(store, 0, info_action(77), protocol_action("inCommitTimestamp"), metadata_action(ICT))
    found = snapshot(store)
    assert (found.timestamp_ms, found.in_commit_timestamp_ms, found.enablement) == (77, 77, None)
    assert found.in_commit_timestamps_enabled


@pytest.mark.parametrize("alias", ["inCommitTimestamps", "inCommitTimestamp-preview", "inCommitTimestamps-preview"])
def test_aliases_of_the_feature_are_read(alias: str) -> None:
    store = memory()
    put_commit(store, 0, info_action(77), protocol_action(alias), metadata_action(ICT))
    assert snapshot(store).timestamp_ms == 77
    assert DeltaTable.open(store).version_at(77).clock == "in-commit"


def test_a_commit_that_lacks_its_time_is_named() -> None:
    store = memory()
    put_commit(store, 0, info_action(None), protocol_action("inCommitTimestamp"), metadata_action(ICT))
    found = snapshot(store)
    with pytest.raises(MissingInCommitTimestampError, match="version 0"):
        _ = found.timestamp_ms


def test_the_property_without_the_feature_means_nothing() -> None:
    store = memory(Clock(5_000))
    put_commit(store, 0, info_action(77), protocol_action(), metadata_action(ICT))
    assert snapshot(store).timestamp_ms == 5_000


@pytest.mark.parametrize(
    "pair",
    [
        {VERSION_KEY: "0"},
        {TIMESTAMP_KEY: "0"},
        {VERSION_KEY: "9", TIMESTAMP_KEY: "0"},
        {VERSION_KEY: "x", TIMESTAMP_KEY: "0"},
    ],
)
def test_a_broken_pair_stops_travel_but_not_reading(pair: dict[str, str]) -> None:
    store = memory()
    put_commit(store, 0, info_action(77), protocol_action("inCommitTimestamp"), metadata_action({**ICT, **pair}))
    found = snapshot(store)
    assert found.num_files == 0
    with pytest.raises(InvalidEnablementError):
        _ = found.enablement


def test_a_broken_pair_does_not_matter_while_they_are_off() -> None:
    store = memory()
    put_commit(store, 0, info_action(), protocol_action("inCommitTimestamp"), metadata_action({VERSION_KEY: "9"}))
    assert snapshot(store).enablement is None


def test_a_version_whose_commit_was_cleaned_up_has_no_file_time() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    table.checkpoint()
    store.delete(commit_path(0))
    with pytest.raises(MissingVersionError, match="version 0 no longer exists, so its time is unknown"):
        _ = snapshot(store).timestamp_ms


# ------------------------------------------------------------------------------------------- broken checkpoints


def with_checkpoints(store: LogStore, at: tuple[int, ...] = (2, 4), upto: int = 6) -> DeltaTable:
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for i in range(1, upto + 1):
        table.append(rows(i))
        if i in at:
            table.checkpoint()
    for version in range(upto + 1):
        store.delete(checksum_path(version))
    return table


@pytest.mark.parametrize("damage", [b"", b"PAR1garbagePAR1", None])
@pytest.mark.parametrize("broken", [(4,), (2, 4)])
def test_a_broken_checkpoint_is_passed_over(damage: bytes | None, broken: tuple[int, ...]) -> None:
    store = memory()
    expected = paths(with_checkpoints(store).snapshot())
    for version in broken:
        whole = store.get(checkpoint_path(version))
        store.put(checkpoint_path(version), whole[: len(whole) // 2] if damage is None else damage)
    found = snapshot(store)
    assert (found.version, paths(found)) == (6, expected)


def test_a_checkpoint_that_breaks_after_its_state_was_read_is_passed_over_too() -> None:
    store = memory()
    with_checkpoints(store)
    found = snapshot(store)
    store.put(checkpoint_path(4), b"")
    assert found.num_files == 6


def test_a_broken_checkpoint_that_nothing_can_replace_is_named() -> None:
    store = memory()
    with_checkpoints(store)
    for version in range(5):
        store.delete(commit_path(version))
    store.put(checkpoint_path(2), b"")
    store.put(checkpoint_path(4), b"")
    with pytest.raises(InvalidCheckpointError, match=r"4\.checkpoint\.parquet"):
        snapshot(store)


def test_the_state_in_a_checkpoint_is_that_of_the_commits() -> None:
    one, two = memory(), memory()
    with_checkpoints(one, at=())
    with_checkpoints(two, at=(3, 6))
    a, b = snapshot(one), snapshot(two)
    assert b.log.segment.checkpoint_version == 6 and a.log.segment.checkpoint_version == -1
    assert a.num_files == b.num_files and a.size_bytes == b.size_bytes
    assert a.schema == b.schema and a.protocol == b.protocol


# ------------------------------------------------------------------------------------------- older versions


def test_every_version_from_any_place() -> None:
    store = memory()
    table = with_checkpoints(store)
    for version in range(7):
        assert table.snapshot(version).num_files == version
        assert DeltaTable.open(store).snapshot(version).num_files == version


def test_the_versions_that_a_clean_up_left() -> None:
    store = memory()
    with_checkpoints(store)
    for version in range(4):
        store.delete(commit_path(version))
    store.delete(checkpoint_path(2))
    table = DeltaTable.open(store)
    assert [table.snapshot(v).num_files for v in (4, 5, 6)] == [4, 5, 6]
    with pytest.raises(VersionNotFoundError, match="Versions 4 to 6") as caught:
        table.snapshot(3)
    assert (caught.value.earliest, caught.value.latest) == (4, 6)


def test_a_torn_commit_in_the_middle_is_named_when_it_is_needed() -> None:
    store = memory()
    with_checkpoints(store)
    data = store.get(commit_path(5))
    store.put(commit_path(5), data[:-20])
    with pytest.raises(InvalidCommitError, match=r"00000000000000000005\.json is torn"):
        snapshot(store).files()
    store.delete(commit_path(6))
    store.delete(commit_path(5))
    assert snapshot(store).num_files == 4


# ------------------------------------------------------------------------------------------------ file paths


def test_where_data_files_lie(tmp_path: Any) -> None:
    store = LocalStore(tmp_path)
    found = hand_made(store)
    assert found.file_path("p=a%20b/x.parquet") == str(tmp_path / "p=a b" / "x.parquet")
    with pytest.raises(UnsafePathError):
        found.file_path("../x.parquet")


def test_the_next_version_is_built_without_the_store() -> None:
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    table.append(rows(1))
    table.snapshot().files()
    table.append(rows(2))
    with store.counted() as calls:
        found = table.snapshot()
        assert found.files().num_rows == 2
    assert calls.of() == calls.of("head") == 2


def test_versions_follow_one_another() -> None:
    store = memory()
    found = hand_made(store, [])
    with pytest.raises(ValueError, match="does not follow"):
        found.log.after(LogReader(store).commit(0), None)


def test_now_is_not_needed_for_reading() -> None:
    clock = Clock(NOW)
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock))
    before = clock.readings
    table.snapshot().files()
    assert clock.readings == before


def test_columns_of_the_files_by_name() -> None:
    store = memory()
    put_commit(store, 0, info_action(NOW), protocol_action(), metadata_action(), add_action("a"), add_action("b"))
    DeltaTable.open(store).checkpoint()
    put_commit(store, 1, info_action(NOW + 1), remove_action("a"))
    snapshot = DeltaTable.open(store).snapshot()
    assert snapshot.files(["size", "path"]).to_pylist() == snapshot.files().select(["size", "path"]).to_pylist()
    with pytest.raises(CallError, match="no column 'min'"):
        snapshot.files(["min"])
