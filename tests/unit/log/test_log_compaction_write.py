"""`DeltaTable.compact_log` writes one file that is equivalent to a range of commits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import CallError, DeltaTable, Snapshot
from deltalog.errors import MissingVersionError
from deltalog.log.segment import Compaction
from deltalog.protocol.paths import commit_path, compaction_name, log_path
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore
from tests.support.core import (
    ICT,
    NOW,
    SCHEMA,
    add_action,
    environment,
    info_action,
    memory,
    metadata_action,
    protocol_action,
    put_commit,
    remove_action,
    rows,
)
from tests.support.core.strategies import examples


def lines(store: MemoryStore, start: int, end: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.get(log_path(compaction_name(start, end))).splitlines()]


def as_in_the_protocol() -> MemoryStore:
    """The example in PROTOCOL.md, with versions 0 to 3 before it."""
    store = memory()
    put_commit(store, 0, info_action(), protocol_action(), metadata_action(), add_action("f1"))
    for version in (1, 2, 3):
        put_commit(store, version, info_action())
    put_commit(store, 4, info_action(), add_action("f2"), remove_action("f1"))
    put_commit(
        store, 5, info_action(), add_action("f3"), add_action("f4"), {"txn": {"appId": "3ae45b72", "version": 4389}}
    )
    put_commit(store, 6, info_action(), remove_action("f3"), {"txn": {"appId": "3ae45b72", "version": 4390}})
    return store


def test_the_example_of_the_protocol() -> None:
    store = as_in_the_protocol()
    assert DeltaTable.open(store, environment=environment()).compact_log(4, 6) == (4, 6)
    expected = [
        add_action("f2"), add_action("f4"), remove_action("f1"), remove_action("f3"),
        {"txn": {"appId": "3ae45b72", "version": 4390}},
    ]  # fmt: skip
    assert sorted(lines(store, 4, 6), key=str) == sorted(expected, key=str)


def test_what_is_left_out_and_what_is_kept() -> None:
    store = memory()
    domain = {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": True}}
    put_commit(store, 0, info_action(), protocol_action("domainMetadata"), metadata_action())
    put_commit(
        store, 1, info_action(), domain, add_action("a", ofTheFuture=1),
        {"cdc": {"path": "_change_data/x", "partitionValues": {}, "size": 1, "dataChange": False}},
        {"unheardOf": {"x": 1}},
    )  # fmt: skip
    put_commit(store, 2, info_action(), metadata_action({"k": "v"}), add_action("b"))
    DeltaTable.open(store, environment=environment()).compact_log(1, 2)
    kept = lines(store, 1, 2)
    assert kept == [domain, add_action("a", ofTheFuture=1), metadata_action({"k": "v"}), add_action("b")]


def state(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        sorted(str(row) for row in snapshot.files().to_pylist()),
        sorted(str(row) for row in snapshot.log.cache.tombstones(0).to_pylist()),
        snapshot.metadata.to_json(),
        snapshot.protocol.to_json(),
        {t.app_id: t.version for t in snapshot.set_transactions},
        sorted((d.to_json() for d in snapshot.domain_metadata), key=str),
    )


_steps = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "txn", "domain", "undomain", "metadata"]), st.integers(0, 3)),
        max_size=4, unique_by=lambda each: ("file", each[1]) if each[0] in ("add", "remove") else each,
    ),
    min_size=2, max_size=6,
)  # fmt: skip


def _action(kind: str, number: int, version: int) -> dict[str, Any]:
    if kind == "add":
        return add_action(f"f{number}", size=version)
    if kind == "remove":
        return remove_action(f"f{number}", size=version)
    if kind == "txn":
        return {"txn": {"appId": f"a{number}", "version": version}}
    if kind == "metadata":
        return metadata_action({"k": str(version)})
    removed = kind == "undomain"
    return {"domainMetadata": {"domain": f"d{number}", "configuration": str(version), "removed": removed}}


@settings(max_examples=examples(80), deadline=None)
@given(_steps, st.data())
def test_any_range_of_any_log_means_the_same(steps: list[list[tuple[str, int]]], data: st.DataObject) -> None:
    store = memory()
    put_commit(store, 0, info_action(), protocol_action("domainMetadata"), metadata_action())
    for version, step in enumerate(steps, 1):
        actions = [_action(kind, number, version) for kind, number in step]
        if sum("metaData" in action for action in actions) > 1:
            actions = [action for action in actions if "metaData" not in action]
        named = {}
        for action in actions:
            if "domainMetadata" in action:
                named[action["domainMetadata"]["domain"]] = action
        actions = [a for a in actions if "domainMetadata" not in a] + list(named.values())
        put_commit(store, version, info_action(), *actions)
    expected = state(DeltaTable.open(store).snapshot())
    start = data.draw(st.integers(0, len(steps) - 1))
    end = data.draw(st.integers(start + 1, len(steps)))
    DeltaTable.open(store, environment=environment()).compact_log(start, end)
    counting = CountingStore(store)
    snapshot = DeltaTable.open(counting).snapshot()
    assert state(snapshot) == expected
    assert snapshot.log.segment.compactions == (Compaction(start, end),)
    assert counting.calls.of("get", f"*{end:020d}.compacted.json") >= 1


def test_by_default_it_is_of_the_commits_after_the_checkpoint() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, properties=ICT, environment=environment())
    assert table.compact_log() is None  # a single commit cannot be compacted
    table.append(rows(1))
    table.checkpoint()
    table.append(rows(2))
    assert table.compact_log() is None
    table.append(rows(3))
    assert table.compact_log() == (2, 3)
    counting = CountingStore(store)
    found = DeltaTable.open(counting).snapshot()
    assert found.files().num_rows == 3 and found.in_commit_timestamp_ms == NOW + 3
    assert counting.calls.of("get", commit_path(2)) == 0


def test_what_it_asks_of_the_store() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for number in range(5):
        table.append(rows(number))
    counting = CountingStore(store)
    table = DeltaTable.open(counting, environment=environment())
    with counting.counted() as calls:
        table.compact_log(1, 5)
    assert calls.of("put_if_absent") == 1 and calls.of("get") == 5
    assert calls.of("head") == 2 + 1 and calls.of("list_from") == 0


def test_one_that_is_there_stays() -> None:
    store = as_in_the_protocol()
    store.put(log_path(compaction_name(4, 6)), b"another writer's\n")
    DeltaTable.open(store, environment=environment()).compact_log(4, 6)
    assert store.get(log_path(compaction_name(4, 6))) == b"another writer's\n"


@pytest.mark.parametrize(("start", "end"), [(3, 3), (3, 2), (-1, 2), (1, 9)])
def test_a_range_that_is_none(start: int, end: int) -> None:
    with pytest.raises(CallError):
        DeltaTable.open(as_in_the_protocol(), environment=environment()).compact_log(start, end)


def test_commits_that_are_gone() -> None:
    store = as_in_the_protocol()
    table = DeltaTable.open(store, environment=environment())
    store.delete(commit_path(2))
    with pytest.raises(MissingVersionError, match=f"{2:020d}"):
        table.compact_log(1, 4)
    assert store.head(log_path(compaction_name(1, 4))) is None
