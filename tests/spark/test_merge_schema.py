"""``mergeSchema``: added columns, widened types, and untyped NULLs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.tables import action, rows, versions

WIDENING = {"delta.enableTypeWidening": "true"}
# (the table's type, the data's type): the type pairs for which delta-spark widens the table's type when it merges
# schemas, and the pairs for which it does not.
WIDENED = [
    ("tinyint", "smallint"), ("smallint", "int"), ("int", "bigint"), ("float", "double"), ("date", "timestamp_ntz"),
    ("decimal(5,2)", "decimal(10,4)"),
]  # fmt: skip
KEPT = [("int", "double"), ("int", "decimal(20,2)"), ("bigint", "double"), ("string", "int"), ("double", "bigint")]


def row(spark: Any, types: list[str]) -> Any:
    """A row with a column of each type: c0, c1, …"""
    values = [f"CAST({_literal(each)} AS {each}) AS c{number}" for number, each in enumerate(types)]
    return spark.sql(f"SELECT {', '.join(values)}")


def _literal(data_type: str) -> str:
    return "date'2026-01-02'" if data_type in ("date", "timestamp_ntz") else "7"


def merged(df: Any, table: str, **options: Any) -> spark_ext.WriteResult:
    return spark_ext.write(df).mode("append").options(mergeSchema=True, **options).save(table)


def test_types_are_widened_where_the_table_allows_it(spark: Any, table: str) -> None:
    narrow, wide = (row(spark, list(types)) for types in zip(*WIDENED, strict=True))
    spark_ext.write(narrow).options(**WIDENING).save(table)
    merged(wide, table)
    merged(narrow, table)  # merging narrower data does not narrow the columns
    read = spark_ext.read(spark).load(table)
    assert [f.dataType for f in read.schema.fields] == [f.dataType for f in wide.schema.fields]
    first, *others = rows(read)
    assert len(others) == 2 and all(other == first for other in others)
    (metadata,) = action(table, 1, "metaData")
    names = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
    for column, types in zip(json.loads(metadata["schemaString"])["fields"], WIDENED, strict=True):
        (change,) = column["metadata"]["delta.typeChanges"]
        assert (change["fromType"], change["toType"]) == tuple(names.get(each, each) for each in types)
    assert action(table, 2, "metaData") == []


def test_types_are_kept_where_they_may_not_change(spark: Any, tmp_path: Any) -> None:
    for properties, pairs in ((WIDENING, KEPT), ({}, [("int", "bigint"), *KEPT])):
        before, after = (row(spark, list(types)) for types in zip(*pairs, strict=True))
        table = str(tmp_path / f"table{len(properties)}")
        spark_ext.write(before).options(**properties).save(table)
        with pytest.raises(deltalog.SchemaMismatchError) as raised:
            merged(after, table)
        assert str(raised.value).count("- column c") == len(pairs) and versions(table) == [0]


def test_types_are_widened_at_every_depth_and_in_rows_that_are_moved(spark: Any, table: str) -> None:
    before = "SELECT id, named_struct('x', CAST(id AS INT)) AS st, array(CAST(id AS SMALLINT)) AS ar FROM range(4)"
    spark_ext.write(spark.sql(before).coalesce(1)).options(**WIDENING).save(table)
    wide = "SELECT 2L AS id, named_struct('x', 5000000000, 'y', 'new') AS st, array(70000) AS ar"
    writer = spark_ext.write(spark.sql(wide)).mode("overwrite")
    result = writer.options(mergeSchema=True, replaceWhere="id >= 2").save(table)
    assert (result.num_copied_rows, result.num_removed_rows) == (2, 2)
    found = spark_ext.read(spark).load(table).selectExpr("id", "st.x", "st.y", "ar[0]")
    assert sorted(rows(found)) == [(0, 0, None, 0), (1, 1, None, 1), (2, 5000000000, "new", 70000)]
    assert found.schema["x"].dataType.simpleString() == "bigint"


def test_nulls_without_a_type_are_nulls_of_the_column(spark: Any, table: str) -> None:
    spark_ext.write(spark.sql("SELECT 1L AS id, 'a' AS s, named_struct('x', 1) AS st")).save(table)
    spark_ext.write(spark.sql("SELECT 2L AS id, NULL AS S, NULL AS st")).mode("append").save(table)
    assert sorted(rows(spark_ext.read(spark).load(table).select("id", "s", "st.x"))) == [(1, "a", 1), (2, None, None)]
    with pytest.raises(deltalog.SchemaMismatchError, match="Column other has the type void"):
        merged(spark.sql("SELECT 3L AS id, NULL AS other"), table)
