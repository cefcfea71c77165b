from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import spark_ext
from tests.spark import guide
from tests.spark.central import Central
from tests.spark.tables import field, make_raw, rows, struct_of, vector


class TestCentral(Central):
    """On Spark Connect."""


def test_the_session_is_a_connect_client(spark: Any) -> None:
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    assert type(spark.range(1)).__module__ == "pyspark.sql.connect.dataframe"


def test_the_examples_of_the_pages_run(spark: Any, tmp_path: Path) -> None:
    assert guide.run_pipeline(spark, tmp_path) >= 6
    assert guide.run(spark, tmp_path) >= 10


def test_deletion_vectors_and_their_changes(spark: Any, table: str) -> None:
    deleted = sorted(random.Random(3).sample(range(5000), 3000))
    data = pa.table({"id": pa.array(range(5000), pa.int64())})
    files = [
        ("p=1/a b.parquet", {"p": "1"}, data, vector("", deleted)),
        ("p=1/_hidden.parquet", {"p": "1"}, data.slice(0, 3), vector("", [1])),
        ("x/whole.parquet", {"p": None}, data.slice(0, 1)),
    ]
    feed = {"delta.enableChangeDataFeed": "true"}
    make_raw(table, [field("id", "long"), field("p", "integer")], files, ["p"], feed)
    left = sorted([(i, 1) for i in set(range(5000)) - set(deleted)] + [(0, 1), (2, 1)])
    df = spark_ext.read(spark).load(table)
    assert rows(df.where("p = 1")) == left and df.count() == len(left) + 1
    changes = spark_ext.read_changes(spark, table, 0)
    assert rows(changes.where("p = 1 and _change_type = 'insert'").select("id", "p")) == left


def test_columns_that_are_mapped_by_id(spark: Any, table: str) -> None:
    def stored(number: int, name: str, kind: Any) -> Any:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    inner = pa.struct([stored(4, "y", pa.int32()), stored(3, "x", pa.string())])
    kinds = pa.schema([stored(2, "a", pa.list_(inner)), stored(1, "b", pa.int64())])
    data = pa.table([pa.array([[{"y": 1, "x": "one"}], None]), pa.array([10, 20])], schema=kinds)
    person = struct_of(field("name", "string", id=3, physical="x"), field("no", "long", id=4, physical="y"))
    people = {"type": "array", "elementType": person, "containsNull": True}
    fields = [field("id", "long", id=1, physical="a"), field("all", people, id=2, physical="b")]
    make_raw(table, fields, [("f.parquet", {}, data)], (), {"delta.columnMapping.mode": "id"})
    before = spark.conf.get("spark.sql.parquet.fieldId.read.enabled")
    df = spark_ext.read(spark).load(table)
    assert rows(df, "id") == [(10, [("one", 1)]), (20, None)]
    assert rows(df.where("id = 10").selectExpr("all[0].name as name", "all[0].no as no")) == [("one", 1)]
    assert spark.conf.get("spark.sql.parquet.fieldId.read.enabled") == before
