from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import DeltaTable, InvalidDataFileError, SchemaMismatchError
from deltalog.testing.stores import CountingStore
from tests.core_env import SCHEMA, environment, memory, rows

UTC = datetime.timezone.utc


def test_all_rows_in_the_schema_of_the_table() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    table.append(rows(1, 2))
    table.append(rows(3))
    scan = table.snapshot().scan()
    assert scan.arrow_schema == SCHEMA
    assert scan.to_arrow().schema == SCHEMA
    assert sorted(r["id"] for r in scan.to_arrow().to_pylist()) == [1, 2, 3]
    assert scan.files().num_rows == 2


def test_columns_in_the_order_asked_for() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    assert table.snapshot().scan(["name", "ID"]).to_arrow().to_pylist() == [{"name": "n1", "id": 1}]
    with pytest.raises(SchemaMismatchError, match="no column 'nope'"):
        table.snapshot().scan(["nope"])


def test_an_empty_table_has_a_schema() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    assert table.snapshot().scan().to_arrow() == SCHEMA.empty_table()
    assert pa.table(table.snapshot().scan(["name"])).schema.names == ["name"]


def test_a_scan_can_be_read_again_and_stays_at_its_version() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    scan = table.snapshot().scan()
    table.append(rows(2))
    assert scan.to_arrow().num_rows == scan.to_arrow().num_rows == 1


def test_a_scan_is_an_arrow_stream() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1, 2))
    assert pa.table(table.snapshot().scan()).to_pylist() == rows(1, 2).to_pylist()
    frame = table.snapshot().scan().to_pandas()
    assert list(frame["id"]) == [1, 2]


def test_a_scan_is_lazy_and_reads_a_file_at_a_time() -> None:
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for i in range(3):
        table.append(rows(i))
    snapshot = table.snapshot()
    snapshot.files()
    with store.counted() as calls:
        batches = snapshot.scan().batches()
    assert calls.of() == 0
    with store.counted() as calls:
        next(batches)
    assert calls.of("open_input") == calls.of() == 1


def test_a_data_file_that_was_deleted_by_hand() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))
    (path,) = table.snapshot().files()["path"].to_pylist()
    store.delete(path)
    with pytest.raises(InvalidDataFileError, match=f"{path} is missing"):
        table.snapshot().scan().to_arrow()


def test_partitioned_rows_come_back_with_their_types() -> None:
    schema = pa.schema(
        [
            ("s", pa.string()), ("i", pa.int16()), ("d", pa.date32()), ("t", pa.timestamp("us", "UTC")),
            ("n", pa.timestamp("us")), ("x", pa.decimal128(38, 10)), ("b", pa.bool_()), ("y", pa.binary()),
            ("f", pa.float32()), ("v", pa.int64()),
        ]
    )  # fmt: skip
    full: dict[str, Any] = {
        "s": "a/b=c d%é\n\"'", "i": -5, "d": datetime.date(1, 1, 1),
        "t": datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "n": datetime.datetime(1, 1, 1, 0, 0, 0, 1), "x": decimal.Decimal("1234567890123456789012345678.0123456789"),
        "b": False, "y": b"\x00\xff", "f": 0.10000000149011612, "v": 1,
    }  # fmt: skip
    nothing: dict[str, Any] = {**dict.fromkeys(schema.names), "v": 2}
    table = DeltaTable.create(
        memory(), schema, partition_by=[n for n in schema.names if n != "v"], environment=environment()
    )
    table.append(pa.Table.from_pylist([full, nothing], schema=schema))
    found = table.snapshot().scan().to_arrow()
    assert found.schema == schema
    assert found.sort_by("v").to_pylist() == [full, nothing]


def test_the_empty_text_of_a_partition_column_is_null() -> None:
    table = DeltaTable.create(memory(), SCHEMA, partition_by=["name"], environment=environment())
    table.append(pa.table({"id": [1, 2], "name": ["", None]}, schema=SCHEMA))
    assert table.snapshot().num_files == 1
    assert {r["name"] for r in table.snapshot().scan().to_arrow().to_pylist()} == {None}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(min_size=1, max_size=8), st.integers(0, 3)), min_size=1, max_size=12))
def test_rows_survive_any_partition_values(drawn: list[tuple[str | None, int]]) -> None:
    schema = pa.schema([("p", pa.string()), ("q", pa.int64()), ("v", pa.int64())])
    table = DeltaTable.create(memory(), schema, partition_by=["p", "q"], environment=environment())
    given_rows = [{"p": p, "q": q, "v": v} for v, (p, q) in enumerate(drawn)]
    table.append(pa.Table.from_pylist(given_rows, schema=schema))
    assert table.snapshot().scan().to_arrow().sort_by("v").to_pylist() == given_rows
    assert table.snapshot().num_files == len(set(drawn))


def test_files_of_another_layout_are_read_by_what_the_log_says() -> None:
    """The directory is only a convention."""
    store = memory()
    table = DeltaTable.create(store, SCHEMA, partition_by=["name"], environment=environment())
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2]}), sink)
    store.put("anywhere/name=wrong/x.parquet", sink.getvalue().to_pybytes())
    with table.transaction() as transaction:
        transaction.add_parquet_files([("anywhere/name=wrong/x.parquet", {"name": "right"})])
        transaction.commit()
    assert table.snapshot().scan().to_arrow().to_pylist() == [{"id": 1, "name": "right"}, {"id": 2, "name": "right"}]


def test_older_files_lack_newer_columns() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    table.append(pa.table({"id": [2], "name": ["n2"], "extra": [2.5]}), merge_schema=True)
    found = table.snapshot().scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": 1, "name": "n1", "extra": None}, {"id": 2, "name": "n2", "extra": 2.5}]
    assert table.snapshot(0).scan().to_arrow().to_pylist() == [{"id": 1, "name": "n1"}]


HOSTILE = """
import sys
from deltalog import AddFile, DeltaTable
table = DeltaTable.open(sys.argv[1])
(file,) = table.snapshot().files().to_pylist()
with table.transaction() as txn:
    add = {"path": file["path"], "partition_values": {}, "size": file["size"], "modification_time": 1}
    txn.add(AddFile(**add, data_change=False, stats=sys.argv[2]))
    txn.commit()
print(table.snapshot().scan(where="id = 2").to_arrow().num_rows)
"""


@pytest.mark.parametrize(
    "stats",
    [
        "null",
        " null",
        "7",
        "{} null",
        '{"minValues":null}',
    ],
)
def test_statistics_that_are_no_object_prove_nothing(stats: str, tmp_path: Path) -> None:
    """In a process of its own: Arrow's JSON reader does not survive a null in place of an object."""
    DeltaTable.create(tmp_path, SCHEMA, environment=environment(), data=rows(1, 2))
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, str(tmp_path), stats], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr
