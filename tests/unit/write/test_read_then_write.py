"""A read followed by a write that depends on it: commits that others make in between are kept, or cause a conflict."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltalog
from deltalog import CallError, CommitConflictError, DeltaTable
from deltalog.errors import ConcurrentAppendError, VersionConflictError

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int64())])


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"id": [i for i, _ in pairs], "day": [d for _, d in pairs]}, SCHEMA)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A table with the days 1 and 2, one file for each, at version 2."""
    table = DeltaTable.create(str(tmp_path / "table"), SCHEMA)
    table.append(rows((1, 1), (2, 1)))
    table.append(rows((5, 2)))
    return table.url


def ids(url: str) -> list[int]:
    return sorted(DeltaTable.open(url).snapshot().scan(["id"]).to_arrow()["id"].to_pylist())


def others_append(url: str, day: int) -> None:
    DeltaTable.open(url).append(rows((9, day)))


FORMS: dict[str, Callable[[Any], Any]] = {
    "table": lambda scan: scan.to_arrow(),
    "scan": lambda scan: scan,
    "reader": lambda scan: pa.RecordBatchReader.from_stream(scan),
    "batches": lambda scan: pa.Table.from_batches(scan.batches()),
    "computed": lambda scan: (t := scan.to_arrow()).set_column(0, "id", pa.array([7] * t.num_rows, pa.int64())),
    "filtered": lambda scan: scan.to_arrow().filter(pa.compute.field("id") > 0).combine_chunks(),
}
WRITES: dict[str, Callable[[DeltaTable, Any], Any]] = {
    "overwrite": lambda table, data: table.overwrite(data),
    "where": lambda table, data: table.overwrite(data, where="day = 1"),
    "partitions": lambda table, data: table.overwrite(data, overwrite_schema=True),
    "append": lambda table, data: table.append(data),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("write", WRITES)
def test_rows_that_came_since_the_read_are_a_conflict(url: str, form: str, write: str) -> None:
    mine = DeltaTable.open(url)
    data = FORMS[form](mine.snapshot().scan(where="day = 1"))
    others_append(url, day=1)
    with pytest.raises(ConcurrentAppendError, match=r"version 3 .* after version 2, on which this commit") as e:
        WRITES[write](mine, data)
    assert (e.value.winning_version, e.value.read_version, e.value.retryable) == (3, 2, True)
    assert ids(url) == [1, 2, 5, 9] and DeltaTable.open(url).version == 3


def test_other_rows_are_no_conflict(url: str) -> None:
    mine = DeltaTable.open(url)
    read = mine.snapshot().scan(where="day = 1").to_arrow()
    others_append(url, day=2)
    assert mine.overwrite(read.slice(0, 1), where="day = 1").version == 4
    assert ids(url) == [1, 5, 9]
    with pytest.raises(CommitConflictError):
        mine.overwrite(read, where="day = 1")  # the rows were read before the last write through this handle


def test_rows_that_are_gone_since_the_read(url: str) -> None:
    mine = DeltaTable.open(url)
    read = mine.snapshot().scan(where="day = 1").to_arrow()
    DeltaTable.open(url).delete("id = 1")
    with pytest.raises(CommitConflictError, match=r"version 3 \(DELETE\).* after version 2"):
        mine.append(read)
    assert ids(url) == [2, 5]


def test_an_append_of_rows_that_were_read_is_not_blind(url: str) -> None:
    table = DeltaTable.open(url)
    table.append(table.snapshot().scan().to_arrow())
    table.append(rows((7, 1)))
    found = [table.snapshot(version).reader.commits([version])[0].commit_info for version in (3, 4)]
    assert [info.body["isBlindAppend"] for info in found if info is not None] == [False, True]


def test_retrying_reads_again(url: str) -> None:
    table, attempts = DeltaTable.open(url), list[Any]()

    def work(each: DeltaTable) -> None:
        read = each.snapshot().scan(where="day = 1").to_arrow()
        if not attempts:
            others_append(url, day=1)
        attempts.append(read.num_rows)
        each.overwrite(
            pa.table({"id": pa.compute.add(read["id"], 10), "day": read["day"]}).cast(read.schema), where="day = 1"
        )

    table.retrying(work)
    assert attempts == [2, 3] and ids(url) == [5, 11, 12, 19]


def test_a_version_that_was_named_is_put_back(url: str) -> None:
    """As in delta-spark, rows that were read from an old version may be written regardless of later commits."""
    table = DeltaTable.open(url)
    old = table.snapshot(version=1)
    at = table.snapshot(timestamp=old.timestamp_ms)
    latest = table.snapshot(version=2)
    assert [each.scan().origin for each in (old, at, latest)] == [None] * 3
    here = table.snapshot().scan().origin
    assert here is not None
    moved = [pickle.loads(pickle.dumps(each)) for each in (latest, table.snapshot())]
    assert [each.scan().origin for each in moved] == [None, here]
    table.overwrite(old.scan().to_arrow())
    assert ids(url) == [1, 2]


def test_the_version_that_a_caller_expects(url: str) -> None:
    table = DeltaTable.open(url)
    data = pa.table(table.snapshot().scan().to_arrow().to_pydict(), SCHEMA)
    others_append(url, day=1)
    for write in (table.overwrite, table.append):
        with pytest.raises(VersionConflictError, match=r"version 2 was expected .* version 3 is") as e:
            write(data, expected_version=2)
        assert (e.value.expected_parent, e.value.winning_version, e.value.read_version) == (2, 3, 2)
    with pytest.raises(VersionConflictError):
        table.delete("day = 1", expected_version=2)
    with pytest.raises(CallError, match="expected_version"):
        table.append(data, expected_version="2")  # type: ignore[arg-type]
    with table.transaction(expected_version=3) as transaction:
        transaction.write(data.to_batches())
        others_append(url, day=7)
        with pytest.raises(VersionConflictError, match="another writer committed version") as e:
            transaction.commit()
    assert e.value.winning_version == 4
    read = table.snapshot().scan().to_arrow()
    table.set_properties({"delta.checkpointInterval": "20"})
    others_append(url, day=1)
    # ``expected_version`` overrides the version at which the rows were read.
    assert table.overwrite(read, expected_version=6).version == 7
    assert ids(url) == [1, 2, 5, 9, 9]


def test_rows_of_other_tables_follow_from_nothing_here(url: str, tmp_path: Path) -> None:
    other = DeltaTable.create(str(tmp_path / "other"), SCHEMA, data=DeltaTable.open(url).snapshot().scan().to_arrow())
    read = other.snapshot().scan().to_arrow()
    other.append(rows((3, 3)))
    others_append(url, day=1)
    assert DeltaTable.open(url).overwrite(read).version == 4
    copy = str(tmp_path / "copy")
    shutil.copytree(url, copy)
    read = DeltaTable.open(url).snapshot().scan().to_arrow()
    others_append(url, day=1)
    others_append(copy, day=1)
    assert DeltaTable.open(copy).overwrite(read).version == 6


def test_a_table_that_is_read_by_a_link(url: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(url)
    for read, written in [(str(tmp_path / "link"), url), (url, str(tmp_path / "link"))]:
        rows_read = DeltaTable.open(read).snapshot().scan().to_arrow()
        others_append(url, day=1)
        with pytest.raises(ConcurrentAppendError):
            DeltaTable.open(written).overwrite(rows_read)


def test_where_rows_come_from_is_not_stored(url: str) -> None:
    table = DeltaTable.open(url)
    table.overwrite(table.snapshot().scan().to_arrow())
    for path in table.snapshot().files()["path"].to_pylist():
        assert b"deltalog.read" not in (pq.ParquetFile(Path(url, path)).metadata.metadata or {})
        assert b"deltalog.read" not in Path(url, path).read_bytes()


def test_a_run_that_is_recorded_since_the_read_is_skipped(url: str) -> None:
    table = DeltaTable.open(url)
    read = table.snapshot().scan().to_arrow()
    table.append(rows(), txn=("job", 1))
    assert table.overwrite(read, txn=("job", 1)).skipped


def test_a_log_that_no_longer_tells_what_came_since(url: str) -> None:
    table = DeltaTable.open(url)
    read = table.snapshot().scan().to_arrow()
    others_append(url, day=1)
    others_append(url, day=1)
    DeltaTable.open(url).checkpoint()
    for version in (0, 1, 2, 3):
        Path(url, "_delta_log", f"{version:020}.json").unlink()
    with pytest.raises(CommitConflictError, match="read from version 2, the latest version is 4") as e:
        DeltaTable.open(url).overwrite(read)
    assert (e.value.read_version, e.value.winning_version) == (2, 4)
    with pytest.raises(CallError, match="cannot be decoded"):
        table.overwrite(read.replace_schema_metadata({b"deltalog.read": b"?"}))


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_isolation_levels(url: str, level: str) -> None:
    """At WriteSerializable a blind append may be ordered after the write, so its rows are kept."""
    table = DeltaTable.open(url)
    table.set_properties({"delta.isolationLevel": level})
    read = table.snapshot().scan().to_arrow()
    others_append(url, day=1)
    if level == "Serializable":
        with pytest.raises(ConcurrentAppendError):
            table.overwrite(read.slice(0, 1))
    else:
        table.overwrite(read.slice(0, 1))
        assert ids(url) == [1, 9]


def test_in_a_transaction_over_tables(tmp_path: Path) -> None:
    manager = deltalog.TransactionManager(str(tmp_path / "catalog.db"))
    manager.create_table("d.t", str(tmp_path / "managed"), SCHEMA)
    address = f"catalog:{tmp_path}/catalog.db#d.t"
    DeltaTable.open(address).append(rows((1, 1)))
    outside = DeltaTable.open(address).snapshot().scan().to_arrow()
    with manager.transaction() as txn:
        table = txn.table("d.t")
        table.append(rows((2, 1)))
        inside = table.snapshot().scan().to_arrow()
        with pytest.raises(CommitConflictError):  # the rows read outside the transaction do not include its changes
            table.overwrite(outside)
        table.overwrite(inside.slice(0, 2))
        txn.commit()
    assert ids(address) == [1, 2]
    with pytest.raises(CommitConflictError):  # the rows read inside the transaction are based on version 1
        DeltaTable.open(address).overwrite(inside)
    with manager.transaction() as txn:
        read = txn.table("d.t").snapshot().scan().to_arrow()
        txn.table("d.t").overwrite(read.slice(0, 1))
        DeltaTable.open(address).append(rows((3, 1)))
        with pytest.raises(deltalog.errors.TransactionCanceledError):
            txn.commit()
    assert ids(address) == [1, 2, 3]
