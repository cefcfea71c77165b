"""What polars, DuckDB and Arrow's datasets read from a table, compared with ``Scan``."""

from __future__ import annotations

import datetime
import decimal
import math
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from deltalog import CallError, DeltaTable
from deltalog.errors import InvalidDataFileError
from deltalog.parquet.plain_files import PlainFiles
from deltalog.read.duckdb_relation import deleted_bits
from deltalog.read.snapshot import Snapshot
from deltalog.schema import PrimitiveType, StructField
from deltalog.storage.fs import LocalStore

UTC = datetime.timezone.utc


def with_polars(snapshot: Snapshot) -> pa.Table:
    return snapshot.scan_polars().collect().to_arrow()


def with_dataset(snapshot: Snapshot) -> pa.Table:
    return snapshot.to_pyarrow_dataset().to_table()


def with_duckdb(snapshot: Snapshot) -> pa.Table:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return snapshot.to_duckdb(connection).to_arrow_table()


READERS = [with_polars, with_dataset, with_duckdb]


def rows_of(table: pa.Table) -> list[str]:
    """Rows as text, in any order; NaN equals itself."""
    return sorted(map(repr, table.to_pylist()))


@pytest.fixture
def plain_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Collects the results of ``PlainFiles.find``; fails if one of them is None, which means that deltalog itself has
    to read the file."""
    judged: list[Any] = []
    find = PlainFiles.find

    def remembered(self: PlainFiles, store: Any, path: str) -> Any:
        judged.append(find(self, store, path))
        return judged[-1]

    monkeypatch.setattr(PlainFiles, "find", remembered)
    yield judged
    assert judged and None not in judged


COLUMNS = {
    "long": (pa.int64(), [1, -(2**63), None]),
    "int": (pa.int32(), [1, 2**31 - 1, None]),
    "short": (pa.int16(), [1, -5, None]),
    "byte": (pa.int8(), [1, -128, None]),
    "double": (pa.float64(), [1.5, math.nan, None]),
    "float": (pa.float32(), [1.5, -0.0, None]),
    "text": (pa.string(), ["a b", "ä/%20'\"", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "blob": (pa.binary(), [b"x", b"\x01", None]),
    "price": (pa.decimal128(20, 3), [decimal.Decimal("1.250"), decimal.Decimal("-12345678901234567.001"), None]),
    "day": (pa.date32(), [datetime.date(2024, 2, 29), datetime.date(1, 1, 1), None]),
    "at": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(2024, 1, 1, 1, 2, 3, 4, UTC), datetime.datetime(1500, 1, 1, tzinfo=UTC), None],
    ),
    "local": (
        pa.timestamp("us"),
        [datetime.datetime(2024, 1, 1, 1, 2, 3, 4), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), None],
    ),
}
NESTED = {
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        [{"a": 1, "b": ["x", None]}, {"a": None, "b": []}, None],
    ),
    "list": (pa.list_(pa.struct([("z", pa.float64())])), [[{"z": math.nan}, None], [], None]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("k", 1), ("l", None)], [], None]),
}


def typed(columns: dict[str, tuple[Any, Any]]) -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


@pytest.mark.parametrize("read", READERS)
def test_columns_of_every_type(tmp_path: Path, read: Callable[[Snapshot], pa.Table], plain_only: list[Any]) -> None:
    data = typed(COLUMNS | NESTED)
    table = DeltaTable.create(tmp_path, data.schema)
    table.append(data)
    table.append(data.slice(1, 1))
    snapshot = table.snapshot()
    assert rows_of(read(snapshot)) == rows_of(snapshot.scan().to_arrow())
    assert read(snapshot).num_rows == 4


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", COLUMNS)
def test_partition_columns_of_every_type(tmp_path: Path, read: Callable[[Snapshot], pa.Table], name: str) -> None:
    data = typed({name: COLUMNS[name]}).append_column("id", pa.array([1, 2, 3]))
    table = DeltaTable.create(tmp_path / "o'dd [1] %41 *", data.schema, partition_by=[name])
    table.append(data)
    snapshot = table.snapshot()
    got = read(snapshot)
    assert rows_of(got) == rows_of(snapshot.scan().to_arrow())
    value = snapshot.scan([name]).to_arrow().to_pylist()
    assert sorted(map(repr, got.select([name]).to_pylist())) == sorted(map(repr, value))
    frame = snapshot.scan_polars()
    assert sorted(frame.filter(pl.col(name).is_null()).collect()["id"]) == [
        row["id"] for row in data.to_pylist() if row[name] is None
    ]
    assert frame.select("id").collect().height == frame.filter(pl.col("id") < 9).collect().height == 3


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_deleted_rows(tmp_path: Path, read: Callable[[Snapshot], pa.Table], vectors: str) -> None:
    data = pa.table({"id": range(1000), "part": [number % 3 for number in range(1000)]})
    properties = {"delta.enableDeletionVectors": vectors}
    table = DeltaTable.create(tmp_path, data.schema, partition_by=["part"], properties=properties)
    table.append(data)
    table.append(data.slice(0, 10))
    table.delete("id % 7 = 0 and part <> 1")
    for version in range(table.version + 1):
        snapshot = table.snapshot(version)
        assert rows_of(read(snapshot)) == rows_of(snapshot.scan().to_arrow()), version
    left = [row["id"] for row in table.snapshot().scan().to_arrow().to_pylist() if row["id"] > 500]
    assert sorted(table.scan_polars().filter(pl.col("id") > 500).collect()["id"]) == sorted(left)
    assert (
        table.scan_polars().head(7).collect().to_arrow().to_pylist()
        == table.snapshot().scan().to_arrow(limit=7).to_pylist()
    )
    assert sorted(table.to_pyarrow_dataset().to_table(filter=ds.field("id") > 500)["id"].to_pylist()) == sorted(left)
    duck = table.to_duckdb(duckdb.connect()).filter("id > 500").project("id").fetchall()
    assert sorted(id for (id,) in duck) == sorted(left)


@pytest.mark.parametrize("read", READERS)
def test_changed_columns(tmp_path: Path, read: Callable[[Snapshot], pa.Table]) -> None:
    table = DeltaTable.create(tmp_path, pa.schema([("id", pa.int32()), ("s", pa.struct([("a", pa.int64())]))]))
    table.append(pa.table({"id": pa.array([1], pa.int32()), "s": [{"a": 1}]}))
    table.add_columns([StructField("more", PrimitiveType("string"))])
    table.add_columns([StructField("s.b", PrimitiveType("double"))])
    table.append(pa.table({"id": pa.array([2], pa.int32()), "s": [{"a": 1, "b": 2.0}], "more": ["x"]}))
    table.set_properties({"delta.enableTypeWidening": "true"})
    table.set_column("id", data_type=PrimitiveType("long"))
    table.append(pa.table({"id": [2**40], "s": [{"a": 1, "b": 2.0}], "more": ["x"]}))
    table.set_properties({"delta.columnMapping.mode": "name"})
    table.rename_column("more", "less")
    for version in range(table.version + 1):
        snapshot = table.snapshot(version)
        got = read(snapshot)
        assert rows_of(got) == rows_of(snapshot.scan().to_arrow()), version
        assert got.column_names == snapshot.schema.names


@pytest.mark.parametrize("read", READERS)
def test_tables_without_files_and_without_rows(tmp_path: Path, read: Callable[[Snapshot], pa.Table]) -> None:
    data = typed(COLUMNS)
    table = DeltaTable.create(tmp_path, data.schema)
    assert read(table.snapshot()).num_rows == 0
    assert read(table.snapshot()).column_names == data.column_names
    table.append(data)
    table.delete("true")
    assert read(table.snapshot()).num_rows == 0


def test_filters_on_files_that_share_some_partition_values(tmp_path: Path) -> None:
    data = pa.table({"id": range(8), "a": ["x"] * 8, "b": [0.1, None] * 4, "c": [math.nan, -0.0, 0.0, 1.0] * 2})
    table = DeltaTable.create(tmp_path, data.schema, partition_by=["a", "b", "c"])
    table.append(data)
    everything = pl.DataFrame(table.snapshot().scan().to_arrow())
    for condition in (pl.col("id") > 2, pl.col("b") == 0.1, pl.col("a") == "x", pl.col("c").is_nan(), pl.col("c") == 0):
        want = everything.filter(condition)
        assert rows_of(table.scan_polars().filter(condition).collect().to_arrow()) == rows_of(want.to_arrow())
        assert want.height


@pytest.mark.parametrize("more", [(), ("*",), ("^f.*$",)])
def test_names_that_readers_take_for_something_else(tmp_path: Path, more: tuple[str, ...]) -> None:
    names = ["a", "file_row_number", "filename", "file_index", 'quo"te', "a.b", "ünï", "x%20y"]
    names += more
    data = pa.table({name: [1, 2] for name in names})
    table = DeltaTable.create(tmp_path, data.schema, properties={"delta.enableDeletionVectors": "true"})
    table.append(data)
    table.append(pa.table({name: [3, 4] for name in names}))
    table.delete("`x%20y` = 3")
    want = rows_of(table.snapshot().scan().to_arrow())
    for read in READERS:
        assert rows_of(read(table.snapshot())) == want
    for name in names[:8]:
        assert table.scan_polars().filter(pl.col(name) > 1).select(name).collect().height == 2
        found = table.to_pyarrow_dataset().to_table(columns=[name], filter=ds.field(name) > 1)
        assert found.num_rows == 2, name


# ------------------------------------------------------------------------------------------ what is pushed down


@pytest.fixture
def hundred(tmp_path: Path) -> DeltaTable:
    """100 files of ten rows each."""
    table = DeltaTable.create(tmp_path, pa.schema([("id", pa.int64()), ("part", pa.string())]), partition_by=["part"])
    for start in range(0, 1000, 100):
        ids = range(start, start + 100)
        table.append(pa.table({"id": ids, "part": [f"p{number % 100 // 10}" for number in ids]}))
    return table


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []
    find, open_input = PlainFiles.find, LocalStore.open_input

    def found(self: PlainFiles, store: Any, path: str) -> Any:
        paths.append(path)
        return find(self, store, path)

    monkeypatch.setattr(PlainFiles, "find", found)
    monkeypatch.setattr(LocalStore, "open_input", open_input)
    return paths


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        (pl.col("id") == 555, 1),
        (pl.col("id").is_between(550, 569), 2),
        ((pl.col("id") > 980) & (pl.col("part") == "p9"), 1),
        ((pl.col("id") < 5) | (pl.col("id") >= 995), 2),
        ((pl.col("id") < 5) | (pl.col("id") % 1000 >= 995), 100),
        ((pl.col("id") < 5) & (pl.col("id") % 2 == 0), 1),
        (pl.col("part").str.starts_with("p9"), 10),
        (pl.col("id").is_in([5, 555, None, 9999]), 2),
        (pl.col("part").is_in(["p1", "p2"]) & (pl.col("id") < 100), 2),
        (pl.col("id").is_null(), 0),
        (~(pl.col("id") > 9), 1),
        (pl.col("id") * 2 < 10, 100),
    ],
)
def test_filters_of_polars_skip_files(
    hundred: DeltaTable, condition: pl.Expr, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = opened(monkeypatch)
    everything = pl.DataFrame(hundred.snapshot().scan())
    got = hundred.scan_polars().filter(condition).collect()
    assert got.sort("id").equals(everything.filter(condition).sort("id"))
    assert len(paths) == files


def test_a_number_of_rows_reads_the_first_files(hundred: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = opened(monkeypatch)
    everything = pl.DataFrame(hundred.snapshot().scan())
    assert hundred.scan_polars().head(15).collect().equals(everything.head(15))
    assert len(paths) < 10
    # The limit is applied before the filter, so the filter may find nothing in the limited rows.
    got = hundred.scan_polars().head(15).filter(pl.col("id") == everything["id"][500]).collect()
    assert got.height == 0
    assert hundred.scan_polars().filter(pl.col("id") >= 500).head(15).collect().height == 15
    assert hundred.scan_polars().slice(990, 20).collect().height == 10
    assert hundred.scan_polars().head(0).collect().height == 0


def test_other_queries_of_polars(hundred: DeltaTable) -> None:
    frame = hundred.scan_polars()
    assert frame.select(pl.len()).collect().item() == 1000
    assert frame.group_by("part").agg(pl.col("id").sum()).collect(engine="streaming").height == 10
    assert frame.join(frame, on="id").select(pl.len()).collect().item() == 1000
    assert frame.select("part").unique().collect().height == 10
    assert frame.collect_schema() == {"id": pl.Int64, "part": pl.String}
    half = hundred.snapshot().scan_polars(["id"], where="id % 2 = 0").filter(pl.col("id") < 10).collect()
    assert sorted(half["id"]) == [0, 2, 4, 6, 8]


def test_filters_of_datasets_skip_fragments(hundred: DeltaTable) -> None:
    dataset = hundred.to_pyarrow_dataset()
    assert len(list(dataset.get_fragments())) == 100
    id, part = ds.field("id"), ds.field("part")
    for condition, files in (
        (id == 555, 1),
        ((id >= 550) & (id < 570), 2),
        ((part == "p3") & (id > 900), 1),
        (part.isin(["p1", "p2"]), 20),
        (id.is_null(), 0),
        (part.is_null(), 0),
    ):
        assert len(list(dataset.get_fragments(condition))) == files, condition
        want = hundred.snapshot().scan().to_arrow().filter(condition)
        assert rows_of(dataset.to_table(filter=condition)) == rows_of(want)


def test_datasets_that_deltalog_reads(hundred: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    hundred.set_properties({"delta.columnMapping.mode": "name"})
    hundred.rename_column("part", "place")
    dataset = hundred.to_pyarrow_dataset()
    assert isinstance(dataset, ds.FileSystemDataset) and len(dataset.files) == 100
    everything = hundred.snapshot().scan().to_arrow()
    condition = (ds.field("id") >= 550) & (ds.field("id") < 570)
    paths: list[str] = []
    open_input = LocalStore.open_input

    def remembered(self: LocalStore, path: str) -> Any:
        paths.append(path)
        return open_input(self, path)

    monkeypatch.setattr(LocalStore, "open_input", remembered)
    assert rows_of(dataset.to_table(filter=condition)) == rows_of(everything.filter(condition))
    assert len({path for path in paths if path.endswith(".parquet")}) == 2
    assert dataset.count_rows() == 1000 and dataset.count_rows(filter=condition) == 20
    assert dataset.head(3).num_rows == 3
    assert (
        dataset.to_table(columns={"twice": ds.field("id") * 2})["twice"].to_pylist()[0]
        == 2 * everything["id"][0].as_py()
    )
    assert rows_of(dataset.filter(condition).to_table()) == rows_of(everything.filter(condition))
    assert dataset.filter(condition).filter(ds.field("place") == "p5").count_rows() == 10
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=["place"], filter=condition)) == 20
    assert pickle.loads(pickle.dumps(dataset)).count_rows() == 1000
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("id") < 5).collect().height == 5
    rows = duckdb.connect().from_arrow(dataset).filter("id < 5 and place = 'p0'").fetchall()
    assert sorted(rows) == [(number, "p0") for number in range(5)]


def test_a_dataset_that_deltalog_reads_never_gives_the_rows_of_its_files(tmp_path: Path) -> None:
    table = DeltaTable.create(
        tmp_path, pa.schema([("id", pa.int64())]), properties={"delta.enableDeletionVectors": "true"}
    )
    table.append(pa.table({"id": range(10)}))
    table.delete("id = 3")
    dataset = table.to_pyarrow_dataset()
    assert dataset.count_rows() == 9
    with pytest.raises(CallError, match="deltalog reads the files"):
        ds.dataset([dataset])
    # This call bypasses ``scanner`` and goes directly into pyarrow's C++ code.
    with pytest.raises(InvalidDataFileError, match="deltalog reads the files"):
        dataset.sort_by("id").to_table()
    with pytest.raises(CallError, match="deltalog reads the files"):
        list(dataset.get_fragments())
    with pytest.raises(CallError, match="deltalog reads the files"):
        dataset.replace_schema(dataset.schema)


# -------------------------------------------------------------------------------------- files of other writers


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98, 1.0])
def test_the_bits_of_deleted_rows(rows: int, share: float) -> None:
    chance = random.Random(rows)
    # A vector may also name rows that the file does not have.
    deleted = {row for row in range(rows + 5) if chance.random() < share}
    bits = deleted_bits(BitMap64(deleted), rows)
    shown = duckdb.execute("SELECT CAST(CAST(? AS BLOB) AS BIT)::VARCHAR", [bits]).fetchall()[0][0]
    padded = (rows + 7) // 8 * 8
    assert shown == "".join("1" if row in deleted and row < rows else "0" for row in range(padded))


@pytest.mark.parametrize(
    "condition",
    ["x > 5", "x = 'nan'", "x <= 10", "x between 5 and 'inf'", "x >= 'nan'", "not (x < 5)", "x in (1, 'nan')"],
)
def test_duckdb_finds_nan_that_bounds_leave_out(tmp_path: Path, condition: str) -> None:
    """pyarrow's bounds leave NaN out, and DuckDB alone would skip the rows, or keep rows that do not match."""
    data = pa.table({"x": [1.0, math.nan, 10.0, None], "id": [1, 2, 3, 4]})
    table = DeltaTable.create(tmp_path, data.schema)
    table.append(data)
    (file,) = tmp_path.glob("*.parquet")
    pq.write_table(data, file)
    connection = duckdb.connect()
    connection.register("memory_rows", data)
    want = sorted(connection.sql(f"SELECT id FROM memory_rows WHERE {condition}").fetchall())
    assert sorted(table.to_duckdb(connection).filter(condition).project("id").fetchall()) == want


@pytest.mark.parametrize("read", READERS)
def test_files_in_other_types_are_converted(tmp_path: Path, read: Callable[[Snapshot], pa.Table]) -> None:
    moments = [datetime.datetime(1500, 1, 1), datetime.datetime(2024, 1, 1, 2, 3)]
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("text", pa.string())])
    table = DeltaTable.create(tmp_path, schema)
    utc = pa.array(moments, pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    table.append(pa.table([pa.array([1, 2]), utc, ["a", "b"]], schema=schema))
    want = rows_of(table.snapshot().scan().to_arrow())
    (file,) = tmp_path.glob("*.parquet")
    naive = pa.array(moments, pa.timestamp("us"))
    stored = pa.table({"TEXT": ["a", "b"], "at": naive, "id": pa.array([1, 2], pa.int32())})
    for options in ({}, {"use_deprecated_int96_timestamps": True}):
        pq.write_table(stored, file, **options)
        assert rows_of(read(table.snapshot())) == want


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("version", [b"2.4.8", b"3.5.0"])
def test_the_calendar_of_old_spark_is_rebased(
    tmp_path: Path, read: Callable[[Snapshot], pa.Table], version: bytes
) -> None:
    data = pa.table({"day": pa.array([-300_000, 20_000], pa.date32())})
    table = DeltaTable.create(tmp_path, data.schema)
    table.append(data)
    (file,) = tmp_path.glob("*.parquet")
    pq.write_table(data.replace_schema_metadata({b"org.apache.spark.version": version}), file)
    rows = table.snapshot().scan().to_arrow()
    assert rows.equals(data) == (version == b"3.5.0")
    assert rows_of(read(table.snapshot())) == rows_of(rows)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    (file,) = tmp_path.glob("*.parquet")
    frame = table.scan_polars()
    file.unlink()
    with pytest.raises(Exception, match=f"{file.name} is missing"):
        frame.collect()
    with pytest.raises(InvalidDataFileError, match=f"{file.name} is missing"):
        table.to_pyarrow_dataset().to_table()


def test_stores_that_are_no_disk() -> None:
    data = typed(COLUMNS | NESTED)
    table = DeltaTable.create("memory://lazy-reads", data.schema, partition_by=["text"])
    table.append(data)
    for read in READERS:
        assert rows_of(read(table.snapshot())) == rows_of(table.snapshot().scan().to_arrow())


# -------------------------------------------------------------------------------------------- pandas and Arrow


def test_columns_conditions_and_limits(hundred: DeltaTable) -> None:
    assert hundred.to_pandas(["id"], where="id < 3").to_dict("list") == {"id": [0, 1, 2]}
    assert hundred.to_pyarrow_table(["id"], where="id < 3").to_pydict() == {"id": [0, 1, 2]}
    scan = hundred.snapshot().scan(["id"])
    whole = scan.to_arrow()
    for limit in (0, 1, 10, 11, 999, 5000):
        assert scan.to_arrow(limit).equals(whole.slice(0, limit))
        assert sum(batch.num_rows for batch in scan.batches(limit)) == min(limit, 1000)
        assert len(scan.to_pandas(limit)) == min(limit, 1000)
    with pytest.raises(CallError, match="limit"):
        scan.batches(-1)


def test_a_filter_by_position_has_the_columns_of_the_table(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2, 3], "y": [30, 20, 10], "f": pa.array([0.0, 0.0, 1.0], pa.float32())})
    table = DeltaTable.create(tmp_path, rows.schema, partition_by=["f"], data=rows)
    dataset = table.to_pyarrow_dataset()
    assert dataset.to_table(columns=["y"], filter=ds.field(0) > 2).to_pydict() == {"y": [10]}
    assert sorted(dataset.to_table(columns=["x"], filter=ds.field(1) > 15)["x"].to_pylist()) == [1, 2]
