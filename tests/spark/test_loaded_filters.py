"""Filters on the DataFrame that `load` returned use the log to skip files."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import deltalog
import spark_ext
from spark_ext.reading import column_text, reader
from tests.spark.settings import since
from tests.spark.tables import data_files, make_raw, rows, vector
from tests.spark.test_where import ARROW, condition, write


@pytest.fixture(autouse=True, params=["planned", "deferred"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small tables, whose DataFrames have a plan from the beginning, and large tables, whose DataFrames get a plan when
    it is needed."""
    if request.param == "deferred":
        monkeypatch.setattr(reader, "_MOST_AT_ONCE", 1)
    return str(request.param)


def ruin_all_but(table: str, name: str) -> None:
    """Replace the contents of all data files whose paths do not contain ``name`` with bytes that are not Parquet."""
    for path in data_files(table):
        if name not in path:
            Path(table, path).write_bytes(b"not parquet")


def ids(df: Any) -> list[int]:
    return sorted(row["id"] for row in df.select("id").collect())


def make_files(table: str, count: int = 40, properties: dict[str, str] | None = None) -> None:
    """Create a table whose files have ten ids each; ``day`` and ``name`` follow from the number of the file."""
    fields = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("name", pa.string())])
    deltalog.DeltaTable.create(table, fields, properties=properties or {})
    for number in range(count):
        deltalog.DeltaTable.open(table).append(
            pa.table(
                [
                    pa.array(range(number * 10, number * 10 + 10), pa.int64()),
                    pa.array([dt.date(2026, 1, 1) + dt.timedelta(days=number)] * 10),
                    pa.array([f"n{number:03d}"] * 10),
                ],
                schema=fields,
            )
        )


@pytest.fixture
def one_readable(table: str) -> str:
    """A table of 40 files; only the file with the ids 70 to 79 can be read."""
    make_files(table)
    (found,) = (
        deltalog.DeltaTable.open(table).snapshot().scan(where=deltalog.col("id") == 75).files()["path"].to_pylist()
    )
    ruin_all_but(table, found)
    return table


COLUMNS = [
    ("id", lambda df: F.col("id") == 75),
    ("of the frame", lambda df: df.id == 75),
    ("brackets", lambda df: (df["id"] > 73) & (df["id"] <= 76) & (F.col("name") != "x")),
    ("in", lambda df: F.col("id").isin(75, 76)),
    ("name", lambda df: df.name == "n007"),
    ("prefix", lambda df: F.col("name").startswith("n007")),
    ("date", lambda df: F.col("day") == dt.date(2026, 1, 8)),
    ("between", lambda df: F.col("id").between(75, 76)),
    ("text", lambda df: F.expr("id = 75")),
]


def test_sql_text(spark: Any, one_readable: str) -> None:
    df = spark_ext.read(spark).load(one_readable)
    assert ids(df.where("id = 75")) == [75]
    assert ids(df.filter("name = 'n007' and id % 2 = 0")) == [70, 72, 74, 76, 78]
    assert ids(df.where("id >= 70").where("id < 80")) == list(range(70, 80))
    assert ids(df.select("id", "name").where("id = 75").where("name = 'n007'")) == [75]
    assert df.where("id = -1").collect() == []
    with pytest.raises(Exception, match=r"(?i)parquet"):
        df.where("id = 85").collect()


@pytest.mark.parametrize("make", [each for _, each in COLUMNS], ids=[name for name, _ in COLUMNS])
@since("4.0", "Columns whose text is unambiguous")
def test_columns(spark: Any, one_readable: str, make: Any) -> None:
    df = spark_ext.read(spark).load(one_readable)
    assert 75 in ids(df.where(make(df))) and set(ids(df[make(df)])) <= set(range(70, 80))


def test_columns_of_the_frame_stay_usable(spark: Any, one_readable: str) -> None:
    df = spark_ext.read(spark).load(one_readable)
    found = df.where("id = 75")
    assert found.select(df.id, df["name"]).collect() == [(75, "n007")]
    assert found.where(df.name == "n007").withColumn("more", df.id + 1).collect()[0]["more"] == 76
    assert found.columns == df.columns and found.schema == df.schema


def test_the_version_is_kept(spark: Any, table: str) -> None:
    make_files(table, 3)
    df = spark_ext.read(spark).load(table)
    spark_ext.write(df.where("id = 75").union(spark.sql("select 5L, date'2026-01-01', 'new'"))).mode("append").save(
        table
    )
    assert df.where("id = 5").count() == 1
    assert spark_ext.read(spark).load(table).where("id = 5").count() == 2
    assert spark_ext.read(spark).option("versionAsOf", 1).load(table).where("id = 15").count() == 0


def test_the_table_of_delta_table(spark: Any, one_readable: str) -> None:
    assert ids(spark_ext.DeltaTable.forPath(spark, one_readable).toDF().where("id = 75")) == [75]


@pytest.mark.parametrize("case", ["vectors", "parts", "odd names"])
def test_every_layout(spark: Any, table: str, case: str) -> None:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("id", "long"), ("p", "integer"))]
    files: list[Any] = []
    for number in range(50):
        data = pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())})
        name = {"odd names": f"p q%20[{number}] é.parquet", "parts": f"x{number}/f.parquet"}.get(
            case, f"f{number}.parquet"
        )
        more = [vector("", [0, 5])] if case == "vectors" and number % 2 else []
        files.append((name, {"p": str(number % 20)}, data, *more))
    make_raw(table, fields, files, ["p"])
    df = spark_ext.read(spark).load(table)
    assert ids(df.where("id in (71, 75, 82)")) == ([71, 82] if case == "vectors" else [71, 75, 82])
    assert ids(df.where("p = 3 and id < 100")) == [i for i in range(30, 40) if case != "vectors" or i % 5]
    assert df.where("id > 480").count() == (17 if case == "vectors" else 19)


def test_rows_are_those_of_spark(spark: Any, table: str) -> None:
    write(table)
    choose = random.Random(11)
    df = spark_ext.read(spark).load(table)
    plain = df.limit(10_000)
    plain.createOrReplaceTempView("plain_rows")
    for _ in range(15):
        text = condition(choose)
        expected = spark.sql(f"select id, name from plain_rows where {text}")
        assert str(rows(df.where(text).select("id", "name"), "id")) == str(rows(expected, "id")), text


def test_a_cached_frame_is_not_read_again(spark: Any, table: str) -> None:
    make_files(table, 4)
    df = spark_ext.read(spark).load(table).cache()
    assert df.count() == 40
    for path in data_files(table):
        Path(table, path).write_bytes(b"not parquet")
    assert ids(df.where("id = 5")) == [5]
    assert ids(df.select("id").where(df.id == 15)) == [15]
    df.unpersist()


def test_a_frame_without_a_plan_is_a_data_frame(spark: Any, table: str) -> None:
    make_files(table, 4)
    df = spark_ext.read(spark).load(table)
    assert isinstance(df, DataFrame) and df.columns == ["id", "day", "name"] and df.schema.names == df.columns
    few = df.where("id < 15")
    assert few.withColumn("next", few.id + 1).select(df.id, "next").count() == 15
    assert df.count() == 40 and df.select("name").distinct().count() == 4 and df.where(df.id > 35).count() == 4
    joined = df.where("id < 3").join(spark.range(2, 9).withColumnRenamed("id", "other"), df.id == F.col("other"))
    assert joined.select(df.name).collect() == [("n000",)]
    other = spark_ext.read(spark).load(table)
    assert df.join(other, df.id == other.id).select(df.id, other.name).count() == 40
    assert df.union(other).where("id = 5").count() == 2 and df.alias("a").where("a.id = 5").count() == 1
    df.where("id = 7").createOrReplaceTempView("one_of_table")
    assert spark.sql("select name from one_of_table").collect() == [("n000",)]
    assert len(df.where("id = 7").toPandas()) == 1 and df.limit(3).count() == 3 and not df.isEmpty()
    assert spark_ext.write(df.where("id = 7")).save(table + "2").num_rows == 1


@pytest.mark.classic("Connect analyzes a condition when rows are computed")
def test_a_condition_is_checked_at_once(spark: Any, table: str) -> None:
    make_files(table, 2)
    df = spark_ext.read(spark).load(table)
    for wrong in ("nothing = 1", "id = = 1"):
        with pytest.raises(AnalysisException):
            df.where(wrong)


HOSTILE = [
    lambda: F.col("name") == F.lit("a' OR 'a'='a"),
    lambda: F.col("name") == F.lit("\\' , id)"),
    lambda: F.col("name") == F.lit('x", "'),
    lambda: F.upper("name") == "N007",
    lambda: F.col("id") + 1 == 76,
    lambda: F.coalesce(F.col("name"), F.lit("n007")) == "n007",
    lambda: F.col("id") == 75.0,
    lambda: F.lit(True),
    lambda: ~((F.col("id") == 75) & (F.upper("name") == "N007")),
    lambda: F.when(F.col("id") == 75, True).otherwise(False),
]


def test_columns_that_are_not_understood_skip_nothing(spark: Any, table: str) -> None:
    make_files(table, 10)
    df = spark_ext.read(spark).load(table)
    plain = df.limit(1000)
    for make in HOSTILE:
        assert ids(df.where(make())) == ids(plain.where(make())), repr(make())


def test_filters_after_one_that_is_not_understood_skip_files(spark: Any, one_readable: str) -> None:
    df = spark_ext.read(spark).load(one_readable)
    first = df.where(F.upper("name") == "N007")
    assert ids(first.where("id = 75")) == [75] and ids(first.select("id").where("id >= 70").where("id < 72")) == [
        70,
        71,
    ]
    assert ids(df.where("id = 75").where(F.upper("name") == "N007").where("name = 'n007'")) == [75]
    assert first.where("id = 75").select(df.id, df["name"]).collect() == [(75, "n007")]


def test_text_of_columns(spark: Any) -> None:
    schema = deltalog.schema.StructType.from_arrow(ARROW)
    found = column_text.sql_text((F.col("id") == 7) & (F.upper("name") == "A") & F.col("amount").isin(1, 2), schema)
    assert found == "(((`id` = 7) AND unknown()) AND (`amount` IN (1, 2)))" or found == (
        "(((`id` == 7) AND unknown()) AND (`amount` IN (1, 2)))"
    )
    assert column_text.sql_text(F.col("amount") == 1.5, schema) == "unknown()"
    assert column_text.sql_text(F.col("nothing") == 1, schema) == "unknown()"
    assert column_text.sql_text("id = 7", schema) is None
