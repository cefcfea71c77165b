"""Columns with many distinct values are written without a dictionary, all other columns with one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.parquet.dictionaries import dictionary_columns
from deltalog.parquet.file_writer import FileColumns, write_file
from deltalog.protocol.schema import StructType
from tests.support.core import memory

COUNT = 20_000
ROWS = pa.table(
    {
        "unique": range(COUNT),
        "few": [n % 50 for n in range(COUNT)],
        "half": [n // 2 for n in range(COUNT)],
        "text": [f"t{n % 100}" for n in range(COUNT)],
        "ids": [f"id {n}" for n in range(COUNT)],
        "nulls": pa.nulls(COUNT, pa.int64()),
        "mostly": [None if n % 100 else n for n in range(COUNT)],
        "flag": [n % 2 == 0 for n in range(COUNT)],
        "inside": [{"few": n % 7, "unique": n, "deep": {"text": "x"}} for n in range(COUNT)],
        "items": [["a", "b"]] * COUNT,
        "map": pa.array([[("k", {"v": 1})]] * COUNT, pa.map_(pa.string(), pa.struct([("v", pa.int64())]))),
    }
)


def test_the_columns_are_chosen_by_their_values() -> None:
    chosen = dictionary_columns(ROWS)
    assert isinstance(chosen, list)
    assert {"few", "half", "text", "nulls", "flag", "inside.few", "inside.deep.text", "items.list.element"} <= set(
        chosen
    )
    assert not {"unique", "ids", "mostly", "inside.unique"} & set(chosen)
    assert dictionary_columns(ROWS.slice(0, 100)) is True


def test_files_have_dictionaries_for_these_and_hold_the_same_rows() -> None:
    store = memory()
    schema = StructType.from_arrow(ROWS.schema)
    rows = ROWS.cast(schema.to_arrow())
    write_file(store, "x.parquet", rows, FileColumns(schema, frozenset()))
    file = pq.ParquetFile(pa.BufferReader(store.get("x.parquet")))
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    found = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert found == {
        "few", "half", "text", "nulls", "inside.few", "inside.deep.text",
        "items.list.element", "map.key_value.key", "map.key_value.value.v",
    }  # fmt: skip
    assert file.read().to_pylist() == ROWS.to_pylist()
