"""Log compaction files replace the commits that they cover, and are ignored if they may be wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deltalog import DeltaTable, Snapshot
from deltalog.errors import MissingVersionError
from deltalog.log.segment import Compaction, choose_segment, parse_names
from deltalog.protocol.paths import commit_name, commit_path, compaction_name, log_path
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore
from tests.support.core import (
    ICT,
    NOW,
    add_action,
    info_action,
    memory,
    metadata_action,
    protocol_action,
    put_commit,
    remove_action,
)

COMPACTED = [
    remove_action("a"),
    add_action("c"),
    {"txn": {"appId": "app", "version": 2}},
    {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}},
    metadata_action({**ICT, "k": "new"}),
]


def log() -> MemoryStore:
    store = memory()
    domain = {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}
    put_commit(
        store, 0, info_action(NOW), protocol_action("inCommitTimestamp", "domainMetadata"), metadata_action(ICT),
        add_action("a"), domain,
    )  # fmt: skip
    put_commit(store, 1, info_action(NOW + 1), add_action("b"), {"txn": {"appId": "app", "version": 1}})
    put_commit(
        store, 2, info_action(NOW + 2), remove_action("a"), remove_action("b"), metadata_action({**ICT, "k": "new"})
    )
    put_commit(store, 3, info_action(NOW + 3), add_action("c"), {"txn": {"appId": "app", "version": 2}},
               {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}})  # fmt: skip
    put_commit(store, 4, info_action(NOW + 4), add_action("e"))
    return store


def compact(store: MemoryStore, start: int, end: int, *actions: dict[str, Any]) -> None:
    data = b"".join(json.dumps(action).encode() + b"\n" for action in actions)
    store.put(log_path(compaction_name(start, end)), data)


def state(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        sorted(snapshot.files()["path"].to_pylist()), snapshot.metadata.to_json(), snapshot.protocol.to_json(),
        {t.app_id: t.version for t in snapshot.set_transactions}, snapshot.domain_metadata,
        snapshot.in_commit_timestamp_ms,
        sorted(snapshot.log.cache.tombstones(0)["path"].to_pylist()),
    )  # fmt: skip


@pytest.mark.parametrize("version", [3, 4])
def test_the_state_is_that_of_the_commits_and_those_are_not_read(version: int) -> None:
    expected = state(DeltaTable.open(log()).snapshot(version))
    store = log()
    compact(store, 1, 3, *COMPACTED, remove_action("b"))
    counting = CountingStore(store)
    snapshot = DeltaTable.open(counting).snapshot(version)
    assert state(snapshot) == expected
    read = {path for call, path in counting.calls if call == "get"}
    assert log_path(compaction_name(1, 3)) in read and not read & {commit_path(1), commit_path(2)}


def test_time_travel_into_the_range_reads_its_commits() -> None:
    store = log()
    compact(store, 1, 3, *COMPACTED, remove_action("b"))
    table = DeltaTable.open(store)
    assert sorted(table.snapshot(2).files()["path"].to_pylist()) == []
    assert table.version_at(NOW + 2).version == 2
    assert [entry.version for entry in table.history()] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("content", [b"", b"{", b'{"add":{"path":1}}\n'])
def test_one_that_cannot_be_read_is_passed_over(content: bytes) -> None:
    expected = state(DeltaTable.open(log()).snapshot())
    store = log()
    store.put(log_path(compaction_name(1, 3)), content)
    assert state(DeltaTable.open(store).snapshot()) == expected


def test_a_gap_stays_an_error() -> None:
    store = log()
    compact(store, 1, 3, *COMPACTED)
    store.delete(commit_path(2))
    with pytest.raises(MissingVersionError, match=r"00000000000000000002\.json"):
        DeltaTable.open(store)


@pytest.mark.parametrize(
    ("compactions", "chosen"),
    [
        ([(2, 4)], [(2, 4)]),
        ([(2, 4), (2, 7)], [(2, 7)]),
        ([(1, 3), (2, 4), (4, 6)], [(1, 3), (4, 6)]),
        ([(0, 3)], []),  # the compaction begins before the first commit after the checkpoint
        ([(5, 12)], []),  # ends after the version
        ([(6, 6), (9, 8)], []),  # a range of one, and a reversed range
    ],
)
def test_which_are_chosen(compactions: list[tuple[int, int]], chosen: list[tuple[int, int]]) -> None:
    names = [commit_name(v) for v in range(12)]
    names += [f"{0:020d}.checkpoint.parquet", *(compaction_name(*c) for c in compactions)]
    segment = choose_segment(parse_names(names), "t", 10)
    assert segment.compactions == tuple(Compaction(*c) for c in chosen)
    assert segment.commits == tuple(range(1, 11))
