"""From a listing to a version."""

from __future__ import annotations

import pytest

from deltalog import DeltaTable, InvalidCheckpointError, Snapshot, StoreError
from deltalog.log.loader import UnreadSnapshot, load, load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import checkpoint_path, commit_path
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore
from tests.support.core import ICT, SCHEMA, environment, memory, rows


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
