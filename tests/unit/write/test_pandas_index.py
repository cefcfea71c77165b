"""The index of a pandas DataFrame becomes a column if it has a name, and is left out otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from deltalog import CallError, Dataset, DeltaTable

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
FRAME = pd.DataFrame({"a": [1, 2, 3, 4], "b": list("wxyz")})
ROWS = [{"a": 1, "b": "w"}, {"a": 2, "b": "x"}, {"a": 4, "b": "z"}]
UNNAMED: dict[str, Callable[[], Any]] = {
    "filtered": lambda: FRAME[FRAME.a != 3],
    "sorted": lambda: FRAME[FRAME.a != 3].sort_values("a", ascending=False),
    "text": lambda: FRAME[FRAME.a != 3].set_axis(["p", "q", "r"]),
    "several": lambda: FRAME[FRAME.a != 3].set_axis(pd.MultiIndex.from_tuples([(1, "p"), (1, "q"), (2, "p")])),
    "table": lambda: pa.Table.from_pandas(FRAME[FRAME.a != 3]),
    "stream": lambda: pa.Table.from_pandas(FRAME[FRAME.a != 3]).to_reader(1),
}


def _merged(table: DeltaTable, data: Any) -> Any:
    merge = table.merge(data, "target.a = source.a").with_schema_evolution()
    return merge.when_not_matched_insert_all().execute()


VERBS: dict[str, Callable[[DeltaTable, Any], Any]] = {
    "append": lambda table, data: table.append(data),
    "append, merge_schema": lambda table, data: table.append(data, merge_schema=True),
    "overwrite": lambda table, data: table.overwrite(data),
    "overwrite, overwrite_schema": lambda table, data: table.overwrite(data, overwrite_schema=True),
    "overwrite, where": lambda table, data: table.overwrite(data, where="a > 0"),
    "merge": _merged,
    "stage": lambda table, data: table.commit_staged([table.stage(data)]),
    "Dataset.write": lambda table, data: Dataset(table).write(data),
    "records": lambda table, data: Dataset(table).stream_write_records(data),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("index", UNNAMED)
def test_an_index_without_a_name_is_dropped(tmp_path: Path, index: str, verb: str) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA)
    VERBS[verb](table, UNNAMED[index]())
    table = DeltaTable.open(tmp_path)
    assert table.schema.names == ["a", "b"]
    assert table.to_pyarrow_table().sort_by("a").to_pylist() == ROWS


def test_new_tables_have_no_such_column(tmp_path: Path) -> None:
    Dataset(tmp_path / "d").write(UNNAMED["filtered"]())
    table = DeltaTable.create(tmp_path / "c", SCHEMA, data=UNNAMED["filtered"]())
    assert DeltaTable.open(tmp_path / "d").schema.names == table.schema.names == ["a", "b"]


@pytest.mark.parametrize("keys", [[1, 2, 3, 4], [2, 4, 6, 8], [7, 1, 3, 2], [4, 3, 2, 1]], ids=str)
def test_an_index_with_a_name_is_a_column(tmp_path: Path, keys: list[int]) -> None:
    """A named index becomes a column, even a RangeIndex, which pandas omits from the Arrow stream."""
    frame = FRAME.assign(a=keys).set_index("a")
    table = DeltaTable.create(tmp_path, SCHEMA, data=frame)
    assert table.to_pyarrow_table().to_pylist() == [{"a": key, "b": b} for key, b in zip(keys, "wxyz", strict=True)]
    Dataset(tmp_path / "new").write(frame)
    assert sorted(DeltaTable.open(tmp_path / "new").schema.names) == ["a", "b"]


def test_of_several_levels_those_with_a_name_are_columns(tmp_path: Path) -> None:
    index = pd.MultiIndex.from_arrays([[5, 6, 7, 8], list("pqrs")], names=["a", None])
    Dataset(tmp_path).write(FRAME[["b"]].set_axis(index))
    assert DeltaTable.open(tmp_path).to_pyarrow_table().sort_by("a").to_pylist() == [
        {"b": b, "a": a} for a, b in zip([5, 6, 7, 8], "wxyz", strict=True)
    ]


def test_a_stream_is_read_once_even_so(tmp_path: Path) -> None:
    table, stream = DeltaTable.create(tmp_path, SCHEMA), UNNAMED["stream"]()
    table.append(stream)
    with pytest.raises(CallError, match="read before"):
        table.append(stream)


def test_a_column_of_that_name_that_is_no_index_stays(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("__index_level_0__", pa.int64())])
    frame = pd.DataFrame({"a": [1], "b": ["x"], "__index_level_0__": [5]})
    table = DeltaTable.create(tmp_path, schema, data=frame)
    table.append(pa.table({"__index_level_0__": [6]}))
    assert sorted(table.to_pyarrow_table()["__index_level_0__"].to_pylist()) == [5, 6]
