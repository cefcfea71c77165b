"""Tables can be pickled and sent to other processes and to an engine's tasks."""

from __future__ import annotations

import functools
import multiprocessing
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import (
    CallError,
    Dataset,
    DeltaTable,
    Environment,
    RetryPolicy,
    TableNotFoundError,
    TransactionManager,
    open_store,
)
from deltalog.storage.memory import MemoryStore
from tests.support.core import environment

ROWS = pa.table({"id": [1, 2]})


def append(table: DeltaTable, number: int) -> int:
    return table.append(pa.table({"id": [number]})).version


def ids(table: DeltaTable, version: int | None = None) -> list[int]:
    return sorted(table.snapshot(version).scan().to_arrow()["id"].to_pylist())


@pytest.fixture(scope="module")
def other_process() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_a_table_is_written_and_read_by_another_process(
    tmp_path: Path, other_process: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the other process has a different working directory
    table = DeltaTable.create("t", ROWS.schema, data=ROWS)
    assert other_process.submit(append, table, 3).result() == 1
    assert other_process.submit(ids, table).result() == ids(table) == [1, 2, 3]
    assert other_process.submit(ids, table, 0).result() == [1, 2]


def test_a_managed_table_is_ratified_from_another_process(tmp_path: Path, other_process: ProcessPoolExecutor) -> None:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    manager.create_table("t", str(tmp_path / "t"), ROWS.schema)
    table = DeltaTable.open(f"catalog:{tmp_path / 'catalog.db'}#t")
    assert other_process.submit(append, table, 3).result() == table.version + 1
    assert ids(table) == [3]
    with manager.transaction() as transaction:
        inside = transaction.table("t")
        with pytest.raises(CallError, match="opened in a transaction cannot be pickled"):
            pickle.dumps(inside)
        transaction.cancel()


def test_a_copy_is_at_the_latest_version_and_keeps_its_settings(tmp_path: Path) -> None:
    own = Environment(retry=RetryPolicy(max_attempts=7))
    table = DeltaTable.create(tmp_path / "t", ROWS.schema, data=ROWS, environment=own)
    bytes_of = pickle.dumps(table)
    table.append(ROWS)
    copy = pickle.loads(bytes_of)
    assert (type(copy), copy.version, copy.url) == (DeltaTable, 1, table.url)
    assert copy._handle.environment == own
    dataset = Dataset(tmp_path / "d", schema=ROWS.schema)
    assert pickle.loads(pickle.dumps(dataset)).write(ROWS).version == dataset.latest().version == 0


def test_a_snapshot_is_the_same_version(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "t", ROWS.schema, data=ROWS)
    first = table.snapshot()
    table.append(ROWS)
    copy = pickle.loads(pickle.dumps(first))
    assert copy.version == 0 and copy.metadata == first.metadata
    assert copy.scan(where="id > 1").to_arrow()["id"].to_pylist() == [2]
    assert pickle.loads(pickle.dumps(first.scan(["id"], where="id > 1"))).to_arrow()["id"].to_pylist() == [2]


def test_allowed_paths_travel(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", ROWS.schema)
    clone = DeltaTable.open(tmp_path / "t", allowed_paths=[str(tmp_path / "source")])
    assert pickle.loads(pickle.dumps(clone))._handle.reader.files.allowed_paths == (str(tmp_path / "source"),)


def test_what_cannot_travel_says_so(tmp_path: Path) -> None:
    DeltaTable.create("memory://travels", ROWS.schema, data=ROWS)
    assert ids(pickle.loads(pickle.dumps(DeltaTable.open("memory://travels")))) == [1, 2]
    unnamed = DeltaTable.create(MemoryStore(), ROWS.schema)
    with pytest.raises(CallError, match="cannot be pickled"):
        pickle.dumps(unnamed)
    bytes_of = pickle.dumps(DeltaTable.create(tmp_path / "t", ROWS.schema))
    (tmp_path / "t" / "_delta_log").rename(tmp_path / "gone")
    with pytest.raises(TableNotFoundError):
        pickle.loads(bytes_of)


def test_options_travel_with_the_table() -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    store = open_store("/travels/t", filesystem=memory, unsafe_single_writer=True)
    DeltaTable.create(store, ROWS.schema, data=ROWS, environment=environment())
    assert ids(DeltaTable.open(pickle.loads(pickle.dumps(store)))) == [1, 2]


def test_no_text_of_a_store_shows_its_options():
    from deltalog import open_store

    secret = "very-secret-value"
    store = open_store("s3://bucket/t", key=secret, secret=secret, endpoint_url="http://127.0.0.1:9")
    assert secret not in repr(store) + repr(store.reopen) + repr(vars(store))
    assert isinstance(store.reopen, functools.partial) and secret in repr(store.reopen.keywords)
