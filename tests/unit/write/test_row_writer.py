from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from deltalog import CallError, ConstraintViolationError, DeltaTable, SchemaMismatchError
from deltalog.errors import RowCountError
from deltalog.protocol import deletion_vectors
from deltalog.storage.memory import MemoryStore
from deltalog.testing import CountingStore
from deltalog.write.transaction import Transaction
from tests.support.core import SCHEMA, environment, memory, objects, rows


@pytest.fixture
def store() -> MemoryStore:
    return memory()


@pytest.fixture
def transaction(store: MemoryStore) -> Iterator[Transaction]:
    table = DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))
    with table.transaction() as transaction:
        yield transaction


def held(store: MemoryStore, path: str) -> pa.Table:
    return pq.read_table(io.BytesIO(store.get(path)))


def data_files(store: MemoryStore) -> set[str]:
    return {path for path in objects(store) if not path.startswith("_delta_log")}


def test_new_rows_become_files_that_are_owned_and_not_staged(store: MemoryStore, transaction: Transaction) -> None:
    writer = transaction.row_writer
    (add,), number = writer.write(rows(2, 3).to_batches())
    assert number == 2 and held(store, add.path).to_pylist() == rows(2, 3).to_pylist()
    assert writer.written_paths == (add.path,) and transaction.staged.adds == []
    assert writer.discard() == [] and add.path not in data_files(store)


def test_files_that_are_released_are_the_callers(store: MemoryStore, transaction: Transaction) -> None:
    (mine,), _ = transaction.row_writer.write(rows(2).to_batches())
    transaction.row_writer.release()
    transaction.row_writer.own(["theirs.parquet"])
    (last,), _ = transaction.row_writer.write(rows(3).to_batches())
    assert transaction.row_writer.written_paths == ("theirs.parquet", last.path)
    transaction.abort()
    assert mine.path in data_files(store) and last.path not in data_files(store)


def test_rows_that_do_not_fit_leave_no_file(store: MemoryStore, transaction: Transaction) -> None:
    before = data_files(store)
    wrong = pa.table({"id": ["x"]}).to_batches()
    with pytest.raises(SchemaMismatchError):
        transaction.row_writer.write(iter([*rows(2).to_batches(), *wrong]))
    assert data_files(store) == before and transaction.row_writer.written_paths == ()


def test_rows_are_written_as_the_table_will_be(store: MemoryStore, transaction: Transaction) -> None:
    transaction.set_schema(transaction.schema, partition_by=["name"])
    adds, _ = transaction.row_writer.write(rows(2, 3).to_batches())
    assert sorted(add.partition_values["name"] or "" for add in adds) == ["n2", "n3"]
    assert held(store, adds[0].path).column_names == ["id"]


def test_inserted_rows_say_so(store: MemoryStore, transaction: Transaction) -> None:
    (add,), number = transaction.row_writer.write_inserts(rows(2).to_batches())
    assert number == 1 and held(store, add.path)["_change_type"].to_pylist() == ["insert"]


def test_change_files(store: MemoryStore, transaction: Transaction) -> None:
    kinds = [("delete", rows(1)), ("insert", rows(2))]
    changes = [(kind, batch) for kind, each in kinds for batch in each.to_batches()]
    (file,) = transaction.row_writer.write_changes(changes)
    assert file.path.startswith("_change_data/") and transaction.staged.cdc == []
    assert held(store, file.path)["_change_type"].to_pylist() == ["delete", "insert"]


def test_copies_are_not_checked_and_new_rows_are(transaction: Transaction) -> None:
    transaction.metadata_changes.set_constraint("positive", "id > 5")
    assert len(transaction.row_writer.write_copies([rows(1).to_batches()], 1)) == 1
    with pytest.raises(RowCountError, match="2 rows of rewritten files must be kept, but 1 were read"):
        transaction.row_writer.write_copies([rows(1).to_batches()], 2)
    with pytest.raises(ConstraintViolationError):
        transaction.row_writer.write(rows(1).to_batches())


def test_deletion_vectors(store: MemoryStore, transaction: Transaction) -> None:
    before = data_files(store)
    vectors = [BitMap64([1, 5]), BitMap64(range(0, 100_000, 3))]
    small, large = transaction.row_writer.write_deletion_vectors(vectors)
    path = deletion_vectors.relative_path(large)
    assert path == deletion_vectors.relative_path(small) and data_files(store) == {*before, path}
    # delta-spark's VACUUM fails on an inline deletion vector, so both deletion vectors are stored in files.
    assert (small.storage_type, large.storage_type) == ("u", "u")
    assert transaction.row_writer.written_paths == (path,)


def test_written_rows_are_checked_again_where_the_rules_have_changed() -> None:
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    with table.transaction() as transaction:
        writer = transaction.row_writer
        adds, _ = writer.write(rows(1).to_batches())
        with store.counted() as calls:
            writer.check((), adds)
            transaction.set_properties({"a": "b"})
            writer.check((), adds)
        assert calls.of("get") + calls.of("open_input") == 0
        transaction.metadata_changes.set_constraint("positive", "id > 5")
        with pytest.raises(ConstraintViolationError):
            writer.check((), adds)


@pytest.mark.parametrize("ended", ["abort", "commit"])
def test_nothing_is_written_for_a_transaction_that_has_ended(ended: str, transaction: Transaction) -> None:
    getattr(transaction, ended)()
    for part in ("row_writer", "staged", "metadata_changes"):
        with pytest.raises(CallError, match="has ended"):
            getattr(transaction, part)


def test_rows_that_come_partition_by_partition_are_split_as_others() -> None:
    schema = pa.schema([("p", pa.string()), ("q", pa.int64()), ("n", pa.int64())])
    parts = [("a", 1), (None, 1), ("b", None), ("a", 1), ("a", 2)]
    listed: list[dict[str, Any]] = [
        {"p": p, "q": q, "n": 2000 * at + n} for at, (p, q) in enumerate(parts) for n in range(2000)
    ]
    for given in (listed, listed[::2] + listed[1::2], sorted(listed, key=lambda row: row["n"] % 7)):
        table = DeltaTable.create(memory(), schema, partition_by=["p", "q"], environment=environment())
        table.append(pa.Table.from_pylist(given, schema=schema))
        assert table.snapshot().files().num_rows == 4
        found = table.snapshot().scan().to_arrow().to_pylist()
        assert sorted(found, key=lambda row: row["n"]) == listed
