"""Loading a version from a listing."""

from __future__ import annotations

import pytest

from deltalog import DeltaTable, Snapshot, StoreError, UnsupportedFeatureError
from deltalog.errors import InvalidCheckpointError, InvalidCommitError
from deltalog.log.loader import UnreadSnapshot, load, load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import checkpoint_path, checksum_path, commit_path
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore
from tests.support.core import ICT, NOW, SCHEMA, Clock, environment, info_action, memory, put_commit, rows


def table_of(store: MemoryStore, versions: int, **properties: str) -> DeltaTable:
    table = DeltaTable.create(store, SCHEMA, properties=properties, environment=environment())
    for number in range(1, versions):
        table.append(rows(number))
    return table


def test_every_version_of_a_listing() -> None:
    store = memory()
    table_of(store, 4)
    reader = LogReader(store)
    listing = reader.list_from()
    assert [load(reader, listing, version).version for version in range(4)] == [0, 1, 2, 3]
    assert load(reader, listing).version == load_latest(reader).version == 3


def test_a_sound_checksum_costs_two_small_reads_and_no_commit() -> None:
    inner = memory()
    store = CountingStore(inner)
    table_of(inner, 4, **ICT)
    reader = LogReader(store)
    listing = reader.list_from()
    with store.counted() as calls:
        found = load(reader, listing)
    assert calls.of() == calls.of("get") == 2
    assert found.cache.known_commits == () and found.cache.known_totals is not None
    assert found.recorded_ict_ms == Snapshot(found).in_commit_timestamp_ms


def test_a_listing_from_a_hint_is_widened_where_its_checkpoint_cannot_be_read() -> None:
    store = memory()
    table = table_of(store, 6, **{"delta.checkpointInterval": "100"})
    table.checkpoint()
    store.put(checkpoint_path(5), b"")
    for version in range(6):
        store.delete(f"_delta_log/{version:020d}.crc")
    reader = LogReader(store)
    found = load(reader, reader.list_from(5))
    assert (found.version, found.segment.checkpoint, found.cache.totals.num_files) == (5, None, 5)
    store.delete(commit_path(0))
    with pytest.raises(InvalidCheckpointError, match=r"5\.checkpoint"):
        load_latest(reader)


def opened_twice(count: int, properties: dict[str, str] | None = None) -> tuple[CountingStore, DeltaTable, DeltaTable]:
    """A writer's handle on a table of ``count`` versions, and a reader's handle that has loaded the latest version and
    its files."""
    store = CountingStore(memory())
    writer = DeltaTable.create(store, SCHEMA, properties=properties or {}, environment=environment())
    for version in range(1, count):
        writer.append(rows(version))
    reader = DeltaTable.open(store)
    assert reader.snapshot().files().num_rows == count - 1
    return store, writer, reader


def test_versions_of_other_writers_are_read_from_their_commits_alone() -> None:
    store, writer, reader = opened_twice(4, {"delta.checkpointInterval": "3"})
    for version in range(4, 9):
        writer.append(rows(version))
        removed = writer.delete(f"id = {version - 3}").version
    with store.counted() as calls:
        snapshot = reader.snapshot()
        assert snapshot.version == removed
    assert calls.of("list_from") == calls.of("open_input") == calls.of("get", "*.crc") == 0
    assert calls.of("get") == 10
    fresh = DeltaTable.open(store).snapshot()
    assert snapshot.log.segment.checkpoint == fresh.log.segment.checkpoint
    with store.counted() as calls:
        assert sorted(snapshot.files()["path"].to_pylist()) == sorted(fresh.files()["path"].to_pylist())
    assert calls.of("open_input") == 1  # the calls of the new handle
    assert (snapshot.num_files, snapshot.size_bytes) == (fresh.num_files, fresh.size_bytes)
    assert snapshot.in_commit_timestamp_ms == fresh.in_commit_timestamp_ms


@pytest.mark.parametrize("limits", [{"MAX_NEW_COMMITS": 2}, {"MAX_NEW_BYTES": 100}, {"MAX_TAIL": 5}])
def test_many_or_large_commits_are_not_read_one_by_one(limits: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in limits.items():
        monkeypatch.setattr(f"deltalog.log.loader.{name}", limit)
    store, writer, reader = opened_twice(4)
    for version in range(4, 8):
        writer.append(rows(version))
    with store.counted() as calls:
        assert reader.snapshot().version == 7
    assert calls.of("list_from") == calls.of("get", "*.crc") == 1


def test_a_table_that_was_replaced_is_read_whole() -> None:
    store, _, reader = opened_twice(4)
    inner = store.inner
    for meta in inner.list_from("_delta_log"):
        inner.delete(f"_delta_log/{meta.name}")
    other = DeltaTable.create(store, SCHEMA, environment=environment(Clock(NOW + 10**6)))
    for version in range(1, 7):
        other.append(rows(version + 100))
    assert reader.snapshot().metadata.id == other.snapshot().metadata.id
    assert reader.snapshot().version == 6


def test_a_commit_that_cannot_be_read_is_refused_as_when_the_table_is_opened() -> None:
    store, writer, reader = opened_twice(4)
    writer.append(rows(4))
    store.inner.put(commit_path(4), b"{broken")
    store.inner.delete(checksum_path(4))
    with pytest.raises(InvalidCommitError):
        reader.snapshot()
    with pytest.raises(InvalidCommitError):
        DeltaTable.open(store)


def test_a_feature_that_a_new_version_needs_is_refused() -> None:
    store, _, reader = opened_twice(4)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}
    put_commit(store.inner, 4, info_action(NOW + 10**6), {"protocol": protocol})
    with pytest.raises(UnsupportedFeatureError):
        reader.snapshot()


def test_an_unread_version_is_read_at_its_first_use_and_fails_as_reading_does() -> None:
    class Away(MemoryStore):
        is_away = False

        def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
            if self.is_away:
                raise StoreError("away", path=directory)
            return super().list_names(directory, start, limit=limit)

    store = Away("memory://unread")
    table_of(store, 3)
    snapshot = Snapshot(UnreadSnapshot(LogReader(store), 1))
    store.is_away = True
    assert (snapshot.version, snapshot.url) == (1, store.url)
    with pytest.raises(StoreError, match="away"):
        _ = snapshot.metadata
    store.is_away = False
    assert snapshot.num_files == 1 and snapshot.log is snapshot.log
