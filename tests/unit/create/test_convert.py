"""Converting a directory of Parquet files to a table: the table has exactly these files, with their rows, columns and
partitions."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import CallError, DeltaTable, SchemaMismatchError, TableExistsError
from deltalog.create import convert
from deltalog.errors import InvalidDataFileError, InvalidPropertyError, RowCountError
from deltalog.testing.stores import CountingStore
from tests.support.core import ICT, environment, info, memory, objects, tree

ROWS = pa.table({"id": [1, 2], "name": ["a", None]})


def put(root: Path, path: str, rows: pa.Table = ROWS, **options: Any) -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, target, **options)
    return target


def rows_of(table: DeltaTable) -> list[dict[str, Any]]:
    return sorted(table.to_pyarrow_table().to_pylist(), key=str)


def errors(table: DeltaTable) -> list[str]:
    return [str(each) for each in table.check(deep=True).findings if each.severity != "info"]


def test_a_directory_becomes_a_table_where_it_is(tmp_path: Path) -> None:
    put(tmp_path, "b.parquet")
    put(tmp_path, "a.parquet", pa.table({"id": [3]}))
    before = {name: (tmp_path / name).read_bytes() for name in ("a.parquet", "b.parquet")}
    table = DeltaTable.convert(tmp_path, name="t", description="d", properties=ICT, user_metadata="why")
    assert [(f.name, str(f.data_type), f.nullable) for f in table.schema] == [
        ("id", "long", True), ("name", "string", True),
    ]  # fmt: skip
    assert rows_of(table) == sorted([{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": None}], key=str)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    found = table.history()[0]
    assert (table.version, found.operation, found.user_metadata) == (0, "CONVERT", "why")
    assert found.operation_parameters == {
        "numFiles": "2", "partitionedBy": "[]", "collectStats": "true", "sourceFormat": "parquet",
    }  # fmt: skip
    assert found.operation_metrics == {"numConvertedFiles": "2"}
    snapshot = table.snapshot()
    assert snapshot.in_commit_timestamps_enabled and (snapshot.metadata.name, snapshot.metadata.description) == (
        "t",
        "d",
    )
    statistics = dict(zip(*(snapshot.files([n])[n].to_pylist() for n in ("path", "stats")), strict=True))
    assert json.loads(statistics["a.parquet"]) == {
        "numRecords": 1, "minValues": {"id": 3}, "maxValues": {"id": 3}, "nullCount": {"id": 0, "name": 1},
    }  # fmt: skip
    table.append(pa.table({"id": [4]}))
    assert errors(table) == []


def test_partitions_of_directories_are_typed_by_their_values(tmp_path: Path) -> None:
    put(tmp_path, "n=7/big=5000000000/day=2026-11-20/word=a%3Ab/mixed=1/x.parquet")
    put(tmp_path, "n=007/big=1/day=__HIVE_DEFAULT_PARTITION__/word=/mixed=2026-11-20/x.parquet")
    table = DeltaTable.convert(tmp_path)
    assert table.snapshot().partition_columns == ("n", "big", "day", "word", "mixed")
    assert [str(table.schema.field(name).data_type) for name in ("n", "big", "day", "word", "mixed")] == [
        "integer", "long", "date", "string", "string",
    ]  # fmt: skip
    got = table.snapshot().scan(["n", "big", "day", "word", "mixed"]).to_arrow().to_pylist()
    assert sorted({tuple(row.values()) for row in got}, key=str) == [
        (7, 1, None, None, "2026-11-20"), (7, 5000000000, datetime.date(2026, 11, 20), "a:b", "1"),
    ]  # fmt: skip
    values = [dict(each) for each in table.snapshot().files(["partition_values"])["partition_values"].to_pylist()]
    assert {each["n"] for each in values} == {"7"}
    assert table.snapshot().scan(where="day = '2026-11-20'").to_arrow().num_rows == 2
    assert errors(table) == []


def test_partitions_have_the_types_given(tmp_path: Path) -> None:
    put(tmp_path, "p=01/q=1.50/x.parquet")
    wanted = pa.schema([("q", pa.decimal128(4, 1)), ("p", pa.string())])
    table = DeltaTable.convert(tmp_path, partition_by=wanted)
    assert rows_of(table)[0] | {"id": 0} == {"id": 0, "name": "a", "p": "01", "q": decimal.Decimal("1.5")}
    assert table.snapshot().partition_columns == ("p", "q")


@pytest.mark.parametrize(
    ("partition_by", "told"),
    [
        (["p"], "partition columns p, q, but partition_by has p"),
        ([], "has none"),
        (pa.schema([("p", pa.int64()), ("q", pa.date32())]), "Choose another type for q"),
        (["p", "p"], "has p, p"),
    ],
)
def test_partitions_other_than_the_directories_are_refused(tmp_path: Path, partition_by: Any, told: str) -> None:
    put(tmp_path, "p=1/q=b/x.parquet")
    before = tree(tmp_path)
    with pytest.raises(SchemaMismatchError, match=told):
        DeltaTable.convert(tmp_path, partition_by=partition_by)
    assert tree(tmp_path) == before
    assert DeltaTable.convert(tmp_path, partition_by=["q", "p"]).snapshot().partition_columns == ("p", "q")


def test_what_is_hidden_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, "_p=1/x.parquet")
    for hidden in ("_p=1/_x.parquet", "_p=1/.y.parquet", "_staging/z.parquet", ".tmp/deep/er/w.parquet"):
        put(tmp_path, hidden)
    (tmp_path / "_SUCCESS").write_bytes(b"")
    table = DeltaTable.convert(tmp_path)
    assert table.snapshot().files(["path"])["path"].to_pylist() == ["_p=1/x.parquet"]
    assert table.snapshot().partition_columns == ("_p",)


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside = put(tmp_path, "outside/x.parquet")
    root = tmp_path / "t"
    put(root, "a.parquet")
    for link, target in (("b.parquet", outside), ("c", outside.parent)):
        (root / link).symlink_to(target)
        with pytest.raises(InvalidDataFileError, match=f"{link} is a symbolic link") as caught:
            DeltaTable.convert(root)
        assert caught.value.path == link and not (root / "_delta_log").exists()
        (root / link).unlink()
    (root / "_linked").symlink_to(outside.parent)
    assert DeltaTable.convert(root).snapshot().num_files == 1


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ("p=2/y/x.parquet", "directory 'y' does not have the form"),
        ("q=2/x.parquet", "partition columns q by its directories"),
        ("x.parquet", "partition columns p by its directories, but x.parquet has none|has the partition columns none"),
        ("p=1/p=2/x.parquet", "'p' twice"),
        ("p=1/=2/x.parquet", "'' as the name"),
        ("p=%ff/x.parquet", "not in a valid partition directory"),
        ("p=1/inner/_delta_log/0.json", "p=1/inner is a Delta table"),
        ("p=1/back\\slash.parquet", "the log cannot represent"),
    ],
)
def test_what_has_no_place_is_refused(tmp_path: Path, other: str, told: str) -> None:
    put(tmp_path, "p=1/x.parquet")
    put(tmp_path, other)
    with pytest.raises(InvalidDataFileError, match=told):
        DeltaTable.convert(tmp_path)
    assert not (tmp_path / "_delta_log").exists()


def test_directories_that_are_no_partitions_are_only_directories(tmp_path: Path) -> None:
    put(tmp_path, "2026/a.parquet")
    put(tmp_path, "2027/11/b c%.parquet")
    table = DeltaTable.convert(tmp_path)
    assert table.snapshot().partition_columns == () and len(rows_of(table)) == 4


def test_a_file_that_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet")
    (tmp_path / "README.txt").write_text("hello")
    with pytest.raises(InvalidDataFileError, match=r"README\.txt cannot be added") as caught:
        DeltaTable.convert(tmp_path)
    assert caught.value.path == "README.txt"
    assert not (tmp_path / "_delta_log").exists()


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (pa.table({"id": pa.array([1], pa.int32())}), "Column id is integer in b.parquet, but long in files before"),
        (pa.table({"s": [{"x": "t"}]}), "Column s.x is string in b.parquet, but long"),
        (pa.table({"l": [[1.5]]}), "Column l.element is double"),
        (pa.table({"ID": [1]}), "same name up to case"),
        (pa.table({"u": pa.array([1], pa.uint64())}), "b.parquet cannot be added to a table: Column u"),
        (pa.table({"v": pa.nulls(1)}), "Column v of b.parquet has no type"),
        (pa.table({"a b": [1]}), "column mapping"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(tmp_path: Path, other: pa.Table, told: str) -> None:
    put(tmp_path, "a.parquet", pa.table({"id": [1], "s": [{"x": 1}], "l": [[1]]}))
    put(tmp_path, "b.parquet", other)
    with pytest.raises(SchemaMismatchError, match=told):
        DeltaTable.convert(tmp_path)
    assert not (tmp_path / "_delta_log").exists()


def test_columns_of_all_files_are_merged(tmp_path: Path) -> None:
    put(
        tmp_path,
        "a.parquet",
        pa.table({"s": [{"x": 1}], "l": [[{"q": 1}]], "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))}),
    )
    put(tmp_path, "b.parquet", pa.table({"new": [1.5], "s": [{"y": "t"}], "l": [[{"r": True}]]}))
    table = DeltaTable.convert(tmp_path)
    assert str(table.schema) == (
        "struct<s:struct<x:long,y:string>,l:array<struct<q:long,r:boolean>>,m:map<string,long>,new:double>"
    )
    assert rows_of(table)[1]["s"] == {"x": None, "y": "t"}


def test_types_of_other_writers(tmp_path: Path) -> None:
    when = datetime.datetime(2026, 11, 20, 12)
    put(
        tmp_path,
        "a.parquet",
        pa.table({"t": pa.array([when], pa.timestamp("us"))}),
        use_deprecated_int96_timestamps=True,
        store_schema=False,
    )
    table = DeltaTable.convert(tmp_path)
    assert str(table.schema) == "struct<t:timestamp>"
    assert rows_of(table) == [{"t": when.replace(tzinfo=datetime.timezone.utc)}]
    other = tmp_path / "other"
    put(
        other,
        "a.parquet",
        pa.table({"t": pa.array([when], pa.timestamp("us")), "d": pa.array(["x"]).dictionary_encode()}),
    )
    local = DeltaTable.convert(other)
    assert str(local.schema) == "struct<t:timestamp_ntz,d:string>"
    assert "timestampNtz" in (local.snapshot().protocol.writer_features or ())


def test_a_partition_column_in_a_file_must_agree(tmp_path: Path) -> None:
    put(tmp_path, "p=1/a.parquet", pa.table({"id": [1, 2], "p": [1, 1]}))
    put(tmp_path, "p=__HIVE_DEFAULT_PARTITION__/a.parquet", pa.table({"id": [3], "p": pa.nulls(1, pa.int64())}))
    put(tmp_path, "p=5/none.parquet", pa.table({"id": pa.array([], pa.int64()), "p": pa.array([], pa.int64())}))
    wrong = put(tmp_path, "p=2/a.parquet", pa.table({"id": [4, 5], "p": [2, 3]}))
    with pytest.raises(InvalidDataFileError, match=r"p=2/a.parquet .* does not prove that all values equal '2'"):
        DeltaTable.convert(tmp_path)
    put(tmp_path, "p=2/a.parquet", pa.table({"id": [4], "p": [2]}), write_statistics=False)
    with pytest.raises(InvalidDataFileError, match=r"p=2/a.parquet"):
        DeltaTable.convert(tmp_path)
    wrong.unlink()
    table = DeltaTable.convert(tmp_path)
    assert rows_of(table) == [{"id": 1, "p": 1}, {"id": 2, "p": 1}, {"id": 3, "p": None}]


def test_names_of_any_kind_by_column_mapping(tmp_path: Path) -> None:
    put(tmp_path, "p q=1/a.parquet", pa.table({"a b": [1], "s": [{"x,y": 2}]}))
    with pytest.raises(CallError, match="mapped by id"):
        DeltaTable.convert(tmp_path, properties={"delta.columnMapping.mode": "id"})
    table = DeltaTable.convert(tmp_path, properties={"delta.columnMapping.mode": "name"})
    assert rows_of(table) == [{"a b": 1, "s": {"x,y": 2}, "p q": 1}]
    table.rename_column("a b", "c")
    table.append(pa.table({"c": [2], "s": [{"x,y": 3}], "p q": pa.array([1], pa.int32())}))
    assert {row["c"] for row in rows_of(table)} == {1, 2}


def test_row_ids_from_the_first_version(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet")
    put(tmp_path, "b.parquet")
    table = DeltaTable.convert(tmp_path, properties={"delta.enableRowTracking": "true"})
    assert sorted(table.snapshot().scan(["_metadata.row_id"]).to_arrow().column(0).to_pylist()) == [0, 1, 2, 3]


def test_a_table_that_exists(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet")
    table = DeltaTable.convert(tmp_path)
    put(tmp_path, "b.parquet")
    with pytest.raises(TableExistsError):
        DeltaTable.convert(tmp_path)
    assert DeltaTable.convert(tmp_path, mode="ignore").version == 0
    assert len(rows_of(table)) == 2


def test_nothing_to_convert(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_bytes(b"")
    with pytest.raises(CallError, match="no Parquet files"):
        DeltaTable.convert(tmp_path)
    put(tmp_path, "a.parquet")
    with pytest.raises(InvalidPropertyError):
        DeltaTable.convert(tmp_path, properties={"delta.nope": "1"})
    assert not (tmp_path / "_delta_log").exists()


def test_a_file_that_is_written_meanwhile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.parquet")
    real = convert._columns

    def late(*arguments: Any) -> Any:
        found = real(*arguments)
        put(tmp_path, "late.parquet")
        return found

    monkeypatch.setattr(convert, "_columns", late)
    with pytest.raises(InvalidDataFileError, match=r"late\.parquet was written or removed"):
        DeltaTable.convert(tmp_path)
    assert not list(tmp_path.glob("_delta_log/*.json"))
    assert (tmp_path / "a.parquet").exists() and (tmp_path / "late.parquet").exists()


def test_rows_are_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.parquet")
    real = convert._columns

    def swapped(*arguments: Any) -> Any:
        found = real(*arguments)
        put(tmp_path, "a.parquet", ROWS.slice(0, 1))
        return found

    monkeypatch.setattr(convert, "_columns", swapped)
    with pytest.raises(RowCountError):
        DeltaTable.convert(tmp_path)
    assert (tmp_path / "a.parquet").exists()


def test_costs_in_store_calls() -> None:
    inner = memory()
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink)
    for number in range(3):
        inner.put(f"p={number}/x.parquet", sink.getvalue().to_pybytes())
    store = CountingStore(inner)
    table = DeltaTable.convert(store, environment=environment())
    assert len(rows_of(table)) == 6 and info(inner, 0)["operation"] == "CONVERT"
    assert {name for name in objects(inner) if name.endswith(".json")} == {"_delta_log/00000000000000000000.json"}
    calls = store.calls
    assert (calls.of("walk"), calls.of("head", "p=*"), calls.of("put_if_absent"), calls.of("delete")) == (2, 3, 1, 0)
