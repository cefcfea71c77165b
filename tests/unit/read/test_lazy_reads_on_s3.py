"""Lazy reads of a table on S3: polars, DuckDB and Arrow get its rows, and their filters save requests."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from deltalog import DeltaTable
from tests.support.s3 import Proxy, Request, Server, proxied

DAYS = ("a", "b", "c", "d")


@pytest.fixture
def seen(ministack: Server) -> Iterator[tuple[Proxy, DeltaTable]]:
    """A table with 4 files of 10 rows in 4 partitions; one of the files has a deletion vector for the row 5."""
    with proxied(ministack) as (proxy, server):
        url = f"s3://{server.bucket()}/a table"
        fields = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.string())])
        properties = {"delta.enableDeletionVectors": "true"}
        table = DeltaTable.create(url, fields, partition_by=["day"], properties=properties, **server.options())
        for number, day in enumerate(DAYS):
            numbers = range(number * 10, number * 10 + 10)
            table.append(pa.table([numbers, [f"n{each}" for each in numbers], [day] * 10], schema=fields))
        table.delete("id = 5")
        yield proxy, DeltaTable.open(url, **server.options())


def _by_arrow(table: DeltaTable, most: int, day: str) -> pa.Table:
    return table.to_pyarrow_dataset().to_table(
        columns=["id", "day"], filter=(ds.field("id") < most) & (ds.field("day") >= day)
    )


def _by_polars(table: DeltaTable, most: int, day: str) -> pa.Table:
    pl: Any = pytest.importorskip("polars")
    found = table.scan_polars().filter(pl.col("id") < most, pl.col("day") >= day).select("id", "day")
    return found.collect().to_arrow()


def _by_duckdb(table: DeltaTable, most: int, day: str) -> pa.Table:
    duckdb: Any = pytest.importorskip("duckdb")
    found = table.to_duckdb(duckdb.connect()).filter(f"id < {most} and day >= '{day}'")
    return found.project("id, day").to_arrow_table()


WAYS = [_by_arrow, _by_polars, _by_duckdb]


@pytest.mark.parametrize("read", WAYS)
def test_rows_and_the_requests_that_filters_save(
    seen: tuple[Proxy, DeltaTable], read: Callable[[DeltaTable, int, str], pa.Table]
) -> None:
    proxy, table = seen
    assert sorted(read(table, 100, "")["id"].to_pylist()) == [each for each in range(40) if each != 5]
    # The statistics rule out the last two files, and the partition values the first one.
    with proxy.counted() as requests:
        found = read(table, 15, "b")
    assert sorted(zip(found["id"].to_pylist(), found["day"].to_pylist(), strict=True)) == [
        (each, "b") for each in range(10, 15)
    ]
    assert _data_files(requests) == {f"a table/{path}" for path in _paths(table, "b")}


def _data_files(requests: Sequence[Request]) -> set[str]:
    """The keys of the data files that were requested, without the bucket."""
    return {each.key.partition("/")[2] for each in requests if each.key.endswith(".parquet")}


def _paths(table: DeltaTable, day: str) -> list[str]:
    paths: list[str] = table.snapshot().scan(where=f"day = '{day}'").files()["path"].to_pylist()
    return paths


def test_limits_and_joins(seen: tuple[Proxy, DeltaTable]) -> None:
    pl: Any = pytest.importorskip("polars")
    duckdb: Any = pytest.importorskip("duckdb")
    proxy, table = seen
    with proxy.counted() as requests:
        assert table.scan_polars().head(3).collect().height == 3
    assert len(_data_files(requests)) == 1
    with duckdb.connect() as connection:
        relation = table.to_duckdb(connection)
        joined = relation.set_alias("l").join(relation.set_alias("r"), "l.id = r.id + 10").project("l.id")
        assert joined.aggregate("count(*), min(id)").fetchall() == [(29, 10)]
    assert table.scan_polars().join(table.scan_polars(), on="id").select(pl.len()).collect().item() == 39


@pytest.mark.parametrize("filtered", [False, True])
def test_a_dataset_reaches_other_processes(seen: tuple[Proxy, DeltaTable], filtered: bool) -> None:
    dataset = seen[1].to_pyarrow_dataset()
    dataset = dataset.filter(ds.field("id") < 12) if filtered else dataset
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.files == dataset.files and all(path.startswith("s3://") for path in copy.files)
    assert copy.filter(ds.field("day") == "b").count_rows() == (2 if filtered else 10)


def test_a_missing_file_is_named(seen: tuple[Proxy, DeltaTable]) -> None:
    _, table = seen
    (gone,) = _paths(table, "c")
    table.snapshot().reader.store.delete(gone)
    for read in WAYS:
        with pytest.raises(Exception, match=gone.rpartition("/")[2]):
            read(table, 100, "")
