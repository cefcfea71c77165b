"""Reading small files together gives the same rows as reading each file alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog.engine import DeletionVector
from deltalog.errors import InvalidDataFileError, UnsafePathError
from deltalog.parquet import small_files
from deltalog.parquet.file_reader import DataFile, FileLayout, read_file
from deltalog.parquet.small_files import read_small_files
from deltalog.protocol.row_tracking import RowTrackingColumn
from deltalog.protocol.schema import StructType
from deltalog.storage.base import LogStore
from deltalog.storage.fs import LocalStore
from deltalog.storage.table_files import TableFiles
from deltalog.testing.stores import Fault, FaultyStore, nth
from tests.support.core import memory

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("f", pa.float64())])
#: Variations that other writers' files may have: narrower types, additional or missing columns, another order of
#: columns, dictionaries, old calendars.
OLDER: list[pa.Table] = [
    pa.table({"id": pa.array([1, None], pa.int32()), "s": ["x", "y"]}),
    pa.table({"S": ["p"], "ID": [4]}),
    pa.table({"other": [1, 2, 3]}),
    pa.table({"id": [5], "s": pa.array(["x"]).dictionary_encode(), "f": [1.5]}),
    pa.table({"id": pa.array([], pa.int64()), "s": pa.array([], pa.string())}),
]


def put(store: LogStore, number: int, rows: pa.Table, **options: Any) -> DataFile:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    data = sink.getvalue().to_pybytes()
    store.put(f"{number}.parquet", data)
    return DataFile(f"{number}.parquet", {}, size=len(data))


def usual(start: int, rows: int) -> pa.Table:
    return pa.table(
        {
            "id": range(start, start + rows),
            "s": [f"name {n % 7}" for n in range(rows)],
            "f": [n / 3 for n in range(rows)],
        },
        SCHEMA,
    )


def one_by_one(files: TableFiles, wanted: Sequence[DataFile], layout: FileLayout) -> pa.Table:
    found = [batch for file in wanted for batch in read_file(files, file, layout)]
    return pa.Table.from_batches(found, layout.arrow_schema)


def together(
    files: TableFiles, wanted: Sequence[DataFile], layout: FileLayout
) -> tuple[list[pa.RecordBatch], list[int]]:
    counted: list[int] = []
    found = list(read_small_files(files, wanted, layout, counted.append))
    pa.Table.from_batches(found, layout.arrow_schema).validate(full=True)
    return found, counted


@pytest.mark.parametrize("seed", range(8))
def test_files_of_any_kind_give_their_rows_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, store = random.Random(seed), memory()
    monkeypatch.setattr(small_files, "SMALL_BYTES", 20_000)
    monkeypatch.setattr(small_files, "_MOST_FILES", 7)
    wanted, rows = [], []
    for number in range(40):
        kind = chance.choice(["usual", "usual", "usual", "older", "large", "groups", "deleted"])
        table = usual(100 * number, chance.choice([0, 1, 90]))
        if kind == "older":
            table = chance.choice(OLDER)
        elif kind == "large":
            table = usual(100 * number, 3000)
        file = put(store, number, table, row_group_size=20 if kind == "groups" else None)
        if kind == "deleted" and table.num_rows:
            file = DataFile(file.path, {}, DeletionVector("i", "", 0, 0), size=file.size)
        wanted.append(file)
        rows.append(table.num_rows)
    files = TableFiles(store)
    for names in (["id", "s", "f"], ["f"], ["later"]):
        schema = pa.schema(
            [pa.field(name, SCHEMA.field(name).type if name in SCHEMA.names else pa.int8()) for name in names]
        )
        layout = FileLayout(StructType.from_arrow(schema), ())
        found, counted = together(files, wanted, layout)
        assert pa.Table.from_batches(found, layout.arrow_schema) == one_by_one(files, wanted, layout)
        assert counted == rows and len(found) < len(wanted)


def test_alike_files_are_one_batch_and_those_of_other_calendars_are_not() -> None:
    store = memory()
    schema = pa.schema([("d", pa.date32())])
    old = {"org.apache.spark.version": "2.4.0"}
    days = pa.table({"d": pa.array([-200_000], pa.date32())})
    wanted = [put(store, number, days) for number in range(5)]
    wanted += [put(store, number, days.replace_schema_metadata(old)) for number in range(5, 8)]
    layout = FileLayout(StructType.from_arrow(schema), ())
    found, counted = together(TableFiles(store), wanted, layout)
    assert [batch.num_rows for batch in found] == [5, 3] and counted == [1] * 8
    assert pa.Table.from_batches(found) == one_by_one(TableFiles(store), wanted, layout)
    assert len(set(pa.Table.from_batches(found)["d"].to_pylist())) == 2


def test_row_ids_are_those_of_each_file() -> None:
    store = memory()
    tracking = (RowTrackingColumn("_metadata.row_id", "_id", True),)
    layout = FileLayout(StructType.from_arrow(SCHEMA), (), tracking=tracking)
    wanted = []
    for number in range(4):
        file = put(store, number, usual(0, 3))
        wanted.append(DataFile(file.path, {}, base_row_id=10 * number, size=file.size))
    found, _ = together(TableFiles(store), wanted, layout)
    assert pa.Table.from_batches(found) == one_by_one(TableFiles(store), wanted, layout)
    assert pa.Table.from_batches(found)["_metadata.row_id"].to_pylist()[-1] == 32


def test_a_size_in_the_log_that_is_too_small_is_no_limit() -> None:
    store = memory()
    wanted = [DataFile(put(store, number, usual(number, 50)).path, {}, size=9) for number in range(3)]
    layout = FileLayout(StructType.from_arrow(SCHEMA), ())
    found, counted = together(TableFiles(store), wanted, layout)
    assert pa.Table.from_batches(found) == one_by_one(TableFiles(store), wanted, layout) and counted == [50] * 3


def test_few_bytes_that_are_many_rows_are_read_in_batches() -> None:
    store = memory()
    rows = pa.table({"id": pa.repeat(pa.scalar(7, pa.int64()), 400_000)})
    wanted = [put(store, number, rows) for number in range(2)]
    assert max(file.size or 0 for file in wanted) < small_files.SMALL_BYTES
    found, counted = together(TableFiles(store), wanted, FileLayout(StructType.from_arrow(rows.schema), ()))
    assert counted == [400_000] * 2 and max(batch.num_rows for batch in found) <= 1 << 17


@pytest.mark.parametrize("damage", ["cut", "gone", "text"])
def test_a_file_that_cannot_be_read_is_named(damage: str) -> None:
    store = memory()
    wanted = [put(store, number, usual(number, 50)) for number in range(6)]
    if damage == "gone":
        store.delete("3.parquet")
    else:
        store.put("3.parquet", store.get("3.parquet")[:-20] if damage == "cut" else b"PAR1")
    with pytest.raises(InvalidDataFileError, match=r"3\.parquet") as caught:
        together(TableFiles(store), wanted, FileLayout(StructType.from_arrow(SCHEMA), ()))
    assert caught.value.path == "3.parquet"


def test_a_failure_of_the_store_is_tried_again_file_by_file() -> None:
    inner = memory()
    wanted = [put(inner, number, usual(number, 5)) for number in range(3)]
    store = FaultyStore(inner, nth(1, Fault.FAIL_BEFORE, method="get"))
    found, _ = together(TableFiles(store), wanted, FileLayout(StructType.from_arrow(SCHEMA), ()))
    assert sum(batch.num_rows for batch in found) == 15


def test_links_out_of_the_table_are_refused(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "table"))
    wanted = [put(store, number, usual(number, 5)) for number in range(3)]
    (tmp_path / "table" / "1.parquet").rename(tmp_path / "elsewhere.parquet")
    (tmp_path / "table" / "1.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(UnsafePathError):
        together(TableFiles(store), wanted, FileLayout(StructType.from_arrow(SCHEMA), ()))
