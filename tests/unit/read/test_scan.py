from __future__ import annotations

import datetime
import decimal
import gc
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import CallError, DeltaTable, Predicate, SchemaMismatchError, col
from deltalog.errors import InvalidDataFileError
from deltalog.schema import variant_to_python
from deltalog.testing.stores import CountingStore
from tests.benchmarks.planning import PlanTable, build
from tests.support.core import (
    SCHEMA,
    environment,
    memory,
    put_variant_table,
    rows,
)
from tests.support.core.strategies import examples

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


@pytest.mark.parametrize("where", [None, "id = 2", col("id").isin([2]), "id + 1 = 3", "upper(name) LIKE '%2'"])
def test_a_scan_is_pickled_with_its_condition(tmp_path: Path, where: Predicate | str | None) -> None:
    table = DeltaTable.create(tmp_path / "t", SCHEMA, environment=environment(), data=rows(1, 2))
    scan = table.snapshot().scan(["name"], where=where)
    copy = pickle.loads(pickle.dumps(scan))
    assert (copy.where, copy.origin) == (scan.where, scan.origin)
    assert copy.to_arrow() == scan.to_arrow() and copy.to_arrow().num_rows == (2 if where is None else 1)


def test_the_condition_as_text(tmp_path: Path) -> None:
    snapshot = DeltaTable.create(tmp_path / "t", SCHEMA, environment=environment()).snapshot()
    assert snapshot.scan().where_text is None
    assert snapshot.scan(where="ID = 2 and name like 'a%'").where_text == "((id = 2) AND (name LIKE 'a%'))"
    assert (
        snapshot.scan(where=~(col("name") == "it's")).where_text == snapshot.scan(where="name <> 'it\\'s'").where_text
    )
    assert snapshot.scan(where=col("id").isin(range(1001))).where_text is None


def test_columns_in_the_order_asked_for() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    assert table.snapshot().scan(["name", "ID"]).to_arrow().to_pylist() == [{"name": "n1", "id": 1}]
    with pytest.raises(SchemaMismatchError, match="no column 'nope'"):
        table.snapshot().scan(["nope"])
    with pytest.raises(CallError, match="columns twice: id"):
        table.snapshot().scan(["id", "name", "ID"])


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


def test_a_scan_is_lazy_and_reads_few_files_ahead() -> None:
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    for i in range(40):
        table.append(rows(i))
    snapshot = table.snapshot()
    snapshot.files()
    with store.counted() as calls:
        batches: Any = snapshot.scan().batches()
    assert calls.of() == 0
    with store.counted() as calls:
        next(batches)
        batches.close()
    assert 1 <= calls.of("open_input") == calls.of() < 10


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
        "b": False, "y": "\0é".encode(), "f": 0.10000000149011612, "v": 1,
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


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(min_size=1, max_size=8), st.integers(0, 3)), min_size=1, max_size=12))
def test_rows_survive_any_partition_values(drawn: list[tuple[str | None, int]]) -> None:
    schema = pa.schema([("p", pa.string()), ("q", pa.int64()), ("v", pa.int64())])
    table = DeltaTable.create(memory(), schema, partition_by=["p", "q"], environment=environment())
    given_rows = [{"p": p, "q": q, "v": v} for v, (p, q) in enumerate(drawn)]
    table.append(pa.Table.from_pylist(given_rows, schema=schema))
    assert table.snapshot().scan().to_arrow().sort_by("v").to_pylist() == given_rows
    assert table.snapshot().num_files == len(set(drawn))


def test_files_of_another_layout_are_read_by_what_the_log_says() -> None:
    """The directory of a file is only a convention and does not determine partition values."""
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


# ---------------------------------------------------------------------------------- other tools, memory, threads


def many_files(count: int = 20, rows_each: int = 1000) -> DeltaTable:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    for i in range(count):
        first = i * rows_each
        ids = range(first, first + rows_each)
        table.append(pa.table({"id": ids, "name": [f"n{i}" for i in ids]}, schema=SCHEMA))
    return table


def test_polars_duckdb_and_pandas_take_a_scan() -> None:
    duckdb, pandas, polars = (pytest.importorskip(name) for name in ("duckdb", "pandas", "polars"))
    scan = many_files().snapshot().scan(where="id >= 500")
    total = sum(range(500, 20_000))
    assert polars.DataFrame(scan)["id"].sum() == total
    rows_found = duckdb.from_arrow(scan).aggregate("count(*), sum(id), max(name)").fetchall()
    assert rows_found == [(19_500, total, "n9999")]
    assert pandas.DataFrame.from_arrow(scan)["id"].sum() == total
    assert scan.to_pandas()["id"].sum() == total


def test_empty_results_keep_their_schema_in_other_tools() -> None:
    polars = pytest.importorskip("polars")
    scan = many_files(2).snapshot().scan(["name"], where="id < 0")
    assert polars.DataFrame(scan).schema == {"name": polars.String}
    assert pa.table(scan) == pa.table({"name": []}, schema=pa.schema([SCHEMA.field("name")]))


def test_batches_come_in_the_order_of_the_files() -> None:
    table = many_files(30, 10)
    snapshot = table.snapshot()
    store = table._handle.reader.store
    files = [pq.read_table(store.open_input(path))["id"].to_pylist() for path in snapshot.files()["path"].to_pylist()]
    assert [batch["id"].to_pylist() for batch in snapshot.scan().batches()] == files


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("deltalog-read")]


def test_a_scan_that_is_left_early_leaves_no_thread() -> None:
    batches = many_files().snapshot().scan().batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert readers() == []
    stream = pa.RecordBatchReader.from_stream(many_files().snapshot().scan())
    stream.read_next_batch()
    del stream
    gc.collect()
    assert readers() == []


def test_an_error_in_a_file_ends_the_scan() -> None:
    table = many_files()
    snapshot = table.snapshot()
    paths = snapshot.files()["path"].to_pylist()
    table._handle.reader.store.put(paths[7], b"damaged")
    found = list[Any]()
    with pytest.raises(InvalidDataFileError, match=paths[7]):
        found.extend(snapshot.scan().batches())
    assert len(found) == 7
    with pytest.raises(InvalidDataFileError, match=paths[7]):
        snapshot.scan().to_arrow()
    assert readers() == []


def test_memory_is_bounded_by_batches_not_by_files() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    for first in range(0, 4_000_000, 1_000_000):
        ids = pa.array(range(first, first + 1_000_000))
        table.append(pa.table({"id": ids, "name": pa.repeat(pa.scalar("x" * 20), 1_000_000)}, schema=SCHEMA))
    snapshot = table.snapshot()
    snapshot.files()
    before, most, whole = pa.total_allocated_bytes(), 0, 0
    for batch in snapshot.scan().batches():
        whole += batch.nbytes
        most = max(most, pa.total_allocated_bytes() - before)
    assert whole > 120_000_000
    assert most < whole / 2


# ------------------------------------------------------------------------------------- row tracking and variants


def test_row_tracking_is_asked_for_by_name_and_only_where_it_is_on() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
    with pytest.raises(CallError, match="row tracking, which is off"):
        table.snapshot().scan(["_metadata.row_id"])
    with pytest.raises(SchemaMismatchError, match=r"no column '_metadata\.other'"):
        table.snapshot().scan(["_metadata.other"])


def test_a_column_of_the_table_that_has_such_a_name_is_that_column() -> None:
    store = memory()
    schema = pa.schema([("_metadata.row_id", pa.string())])
    table = DeltaTable.create(store, schema, environment=environment(), data=pa.table({"_metadata.row_id": ["mine"]}))
    assert table.snapshot().scan(["_metadata.row_id"]).to_arrow().to_pylist() == [{"_metadata.row_id": "mine"}]


def test_variants_can_be_binary_or_json() -> None:
    store = memory()
    put_variant_table(store)
    snapshot = DeltaTable.open(store).snapshot()
    assert snapshot.scan(variants="json").arrow_schema.field("v").type == pa.string()
    assert snapshot.scan(["v"], where="id < 9", variants="json").to_arrow()["v"].to_pylist() == ["[7]", None]
    assert snapshot.scan(["v"], where="v IS NULL", variants="json").to_arrow()["v"].to_pylist() == [None]
    assert [variant_to_python(v) for v in snapshot.scan().to_arrow()["v"].to_pylist()] == [[7], None]
    with pytest.raises(CallError, match="'binary' or 'json'"):
        snapshot.scan(variants="text")  # type: ignore[arg-type]


HOSTILE = """
import sys
from deltalog import DeltaTable
from deltalog.engine import AddFile
table = DeltaTable.open(sys.argv[1])
(file,) = table.snapshot().files().to_pylist()
with table.transaction() as txn:
    add = {"path": file["path"], "partition_values": {}, "size": file["size"], "modification_time": 1}
    txn.add(AddFile(**add, data_change=False, stats=sys.argv[2]))
    txn.commit()
print(table.snapshot().scan(where="id = 2").to_arrow().num_rows)
"""


@pytest.mark.sampled(3)
@pytest.mark.slow
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
    """Runs in a separate process, because Arrow's JSON reader crashes on a null in place of an object."""
    DeltaTable.create(tmp_path, SCHEMA, environment=environment(), data=rows(1, 2))
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, str(tmp_path), stats], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


PLANNED = """
import sys
import pyarrow as pa
from deltalog import DeltaTable
found = DeltaTable.open(sys.argv[1]).snapshot().scan(where="region = 7 AND id < 1000000").files()
print(pa.default_memory_pool().max_memory(), found.num_rows)
"""


def test_the_memory_of_a_plan_is_that_of_its_sidecars_and_result(tmp_path: Path) -> None:
    """Arrow's peak memory in a separate process, compared with the memory for the whole list of files."""
    build(tmp_path, PlanTable(120_000, "both", sidecar_rows=3_000))
    whole = DeltaTable.open(tmp_path).snapshot().files().nbytes
    done = subprocess.run([sys.executable, "-c", PLANNED, str(tmp_path)], capture_output=True, text=True, check=True)
    most, found = map(int, done.stdout.split())
    assert found == 20 and most < whole / 3
