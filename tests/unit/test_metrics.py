"""``deltalog.metrics``: compares the events that listeners get with counts that are made in another way."""

from __future__ import annotations

import collections
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CommitConflictError, DeltaTable, Environment, RetryPolicy, TransactionManager, metrics
from deltalog.errors import CommitStateUnknownError, ObjectNotFoundError
from deltalog.metrics import CatalogCall, Commit, Counters, StoreCall, TransactionCommit, Upkeep, listen, listening
from deltalog.storage.base import PutOutcome
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.storage.wrapped import WrappedStore

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
METHODS = (
    *("put_if_absent", "put_stream_if_absent", "put", "get", "list_from", "list_names", "head", "etag", "delete"),
    *("link_if_absent", "get_many", "get_many_with_meta", "head_many", "remove", "sync", "open_input", "find_names"),
)


class Outermost:
    """Counts the calls of a class's methods with the profiler, except those that another of these methods makes in the
    same thread.
    """

    def __init__(self, cls: type, names: tuple[str, ...]) -> None:
        inner = [getattr(cls, name).__wrapped__ for name in names if hasattr(getattr(cls, name), "__wrapped__")]
        self._codes = {each.__code__: each.__name__ for each in inner}
        self._depth = threading.local()
        self._lock = threading.Lock()
        self.counts: collections.Counter[str] = collections.Counter()

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        name = self._codes.get(frame.f_code)
        if name is None or event not in ("call", "return"):
            return
        depth = getattr(self._depth, "value", 0) + (1 if event == "call" else -1)
        self._depth.value = depth
        if event == "call" and depth == 1:
            with self._lock:
                self.counts[name] += 1


def test_the_calls_of_threads_are_counted_as_often_as_the_profiler_sees_them(tmp_path):
    tables = [DeltaTable.create(str(tmp_path / f"t{number}"), ROWS.schema) for number in range(4)]
    seen, counters = Outermost(LocalStore, METHODS), Counters()

    def work(table: DeltaTable) -> None:
        sys.setprofile(seen)
        try:
            for _ in range(5):
                table.append(ROWS)
        finally:
            sys.setprofile(None)

    with listening(counters), ThreadPoolExecutor(4) as pool:
        list(pool.map(work, tables))
    found = {name: count for name, count in counters.calls("store").items() if name in METHODS}
    assert found == dict(seen.counts) and sum(found.values()) > 100
    totals = counters.totals()
    assert totals["commits"] == totals["attempts"] == 20
    assert totals["store_calls"] == sum(counters.calls("store").values())


def test_nothing_is_reported_after_the_end_and_nothing_changes_without_listeners(tmp_path):
    counters = Counters()
    end = listen(counters)
    table = DeltaTable.create(str(tmp_path), ROWS.schema)
    end()
    end()
    before = counters.totals()
    table.append(ROWS)
    assert counters.totals() == before and not metrics.has_listeners()


def test_a_wrapped_store_is_counted_once():
    counters = Counters()
    store = WrappedStore(WrappedStore(MemoryStore("memory://counted-once")))
    with listening(counters):
        store.put_if_absent("a", b"1")
        store.get("a")
        with pytest.raises(ObjectNotFoundError):
            store.get("b")
    assert counters.calls("store") == {"put_if_absent": 1, "get": 2}
    assert counters.totals()["store_errors"] == 1


def test_the_stores_of_users_are_counted_too():
    class Mine(MemoryStore):
        def get(self, path: str, length: int | None = None) -> bytes:
            return super().get(path, length)

    events: list[Any] = []
    store = Mine("memory://mine")
    with listening(events.append):
        store.put("a", b"1")
        store.get("a")
        store.get_many(["a", "a"])
    found = [(each.method, each.objects) for each in events]
    assert found[:2] == [("put", 1), ("get", 1)] and found[2:] in ([("get_many", 2)], [("get", 1)] * 2)


def test_listings_and_files_are_measured_without_the_time_of_their_caller(tmp_path):
    events: list[StoreCall] = []
    store = LocalStore(str(tmp_path))
    with listening(events.append):  # type: ignore[arg-type]
        with store.open_output("a.parquet") as file:
            file.write(b"x" * 10)
            assert events == []
        assert [each.method for each in events] == ["open_output"]
        list(store.walk(lambda _: True))
        with pytest.raises(ZeroDivisionError), store.open_output("b.parquet"):
            _ = 1 / 0
    assert [(each.method, each.error) for each in events] == [
        ("open_output", None), ("walk", None), ("open_output", "ZeroDivisionError"),
    ]  # fmt: skip
    assert not (tmp_path / "b.parquet").exists()


def test_conflicts_and_rebases(tmp_path):
    events: list[Any] = []
    table = DeltaTable.create(str(tmp_path), ROWS.schema)
    table.append(ROWS)
    other = DeltaTable.open(str(tmp_path))
    with listening(events.append):
        appending, removing = table.transaction(), table.transaction()
        appending.write(ROWS)
        removing.remove_all_files()
        other.delete("id = 1")
        appending.commit("WRITE")
        with pytest.raises(CommitConflictError):
            removing.commit("DELETE")
    commits = [each for each in events if isinstance(each, Commit)]
    assert [(each.outcome, each.version, each.attempts, each.rebased) for each in commits[:2]] == [
        ("committed", 2, 1, 0), ("committed", 3, 2, 1),
    ]  # fmt: skip
    assert commits[2].outcome == "conflict" and commits[2].error is not None


class Silent(MemoryStore):
    """A store that does not answer when a commit is written."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return PutOutcome.UNKNOWN if path.endswith("1.json") else super().put_if_absent(path, data)


def test_an_unknown_outcome():
    events: list[Any] = []
    policy = RetryPolicy(settle_attempts=3, retry_base_delay_ms=0)
    table = DeltaTable.create(Silent("memory://silent"), ROWS.schema, environment=Environment(retry=policy))
    with listening(events.append), pytest.raises(CommitStateUnknownError):
        table.append(ROWS)
    (commit,) = [each for each in events if isinstance(each, Commit)]
    assert (commit.outcome, commit.version, commit.resent) == ("unknown", 1, 3)


def test_a_listener_that_raises_is_logged_once_and_stops_nothing(tmp_path, caplog):
    counters = Counters()

    def failing(_: metrics.Event) -> None:
        raise ValueError("broken")

    with listening(failing), listening(counters):
        DeltaTable.create(str(tmp_path), ROWS.schema).append(ROWS)
    assert counters.totals()["commits"] == 2
    assert [each.getMessage() for each in caplog.records if each.name == "deltalog.metrics"] == [
        "a listener failed; its further errors are not logged"
    ]


def test_a_catalog_its_transactions_and_its_upkeep(tmp_path):
    events: list[Any] = []
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    for name in ("d.a", "d.b"):
        manager.create_table(name, str(tmp_path / name), ROWS.schema)
    with listening(events.append):
        with manager.transaction() as transaction:
            transaction.table("d.a").append(ROWS)
            transaction.table("d.b").append(ROWS)
            transaction.commit()
        manager.recover()
    (commit,) = [each for each in events if isinstance(each, TransactionCommit)]
    assert commit.outcome == "committed" and sorted(commit.versions.values()) == [1, 1] and commit.attempts == 1
    ratified = [each for each in events if isinstance(each, CatalogCall) and each.method == "ratify"]
    assert len(ratified) == 1 and set(ratified[0].arguments[0].commits) == set(commit.versions)
    upkeep = [each for each in events if isinstance(each, Upkeep)]
    assert [each.kind for each in upkeep].count("publication") == 2 and upkeep[-1].kind == "recovery"
    assert all(each.catalog.endswith("catalog.db") for each in events if isinstance(each, CatalogCall))
