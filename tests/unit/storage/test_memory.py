"""MemoryStore keeps the guarantees of a LogStore."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog.storage.memory import MemoryStore
from deltalog.storage.registry import open_store
from deltalog.testing.store_contract import LogStoreTests


class TestMemoryStore(LogStoreTests):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


def test_stamps_with_the_clock_it_was_given():
    now = [1_000]
    store = MemoryStore(clock_ms=lambda: now[0])
    store.put_if_absent("a", b"")
    now[0] = 2_000
    store.put("b", b"")
    assert [meta.modification_time_ms for meta in store.list_from("")] == [1_000, 2_000]


def test_a_caller_cannot_change_what_is_stored():
    store = MemoryStore()
    data: Any = bytearray(b"abc")
    store.put_if_absent("a", data)
    store.put("b", data)
    data[0] = 0
    assert store.get("a") == store.get("b") == b"abc"


def test_a_name_means_the_same_store_in_one_process():
    open_store("memory://test-memory/one").put("a", b"1")
    assert open_store("memory://test-memory/one/").get("a") == b"1"
    assert open_store("memory://test-memory/two").head("a") is None
