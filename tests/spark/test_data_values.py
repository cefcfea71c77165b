"""Values that a table cannot store unchanged: empty partition values become null, and structs with two fields of the
same name are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from deltalog.schema import PrimitiveType, StructField, StructType

LONG, TEXT = PrimitiveType("long"), PrimitiveType("string")
ID = StructField("id", LONG)


def create(table: str, *columns: StructField, by: str = "p") -> deltalog.DeltaTable:
    return deltalog.DeltaTable.create(table, StructType(columns), partition_by=[by])


def stored(table: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = deltalog.DeltaTable.open(table).snapshot().scan(list(columns)).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


EMPTY = "SELECT 1L id, '' p"
VERBS: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda spark, table: spark_ext.write(spark.sql(EMPTY)).mode("append").save(table),
    "replaceWhere": lambda spark, table: (
        spark_ext.write(spark.sql(EMPTY)).mode("overwrite").option("replaceWhere", "id = 1").save(table)
    ),
    "update": lambda spark, table: spark_ext.DeltaTable.forPath(spark, table).update(set={"p": "trim(' ')"}),
    "merge insert": lambda spark, table: merge(spark, table, 9),
    "merge update": lambda spark, table: merge(spark, table, 0),
    "SQL": lambda spark, table: spark_ext.sql(spark, f"INSERT INTO deltalog.`{table}` {EMPTY}"),
}


def merge(spark: Any, table: str, key: int) -> None:
    builder = spark_ext.DeltaTable.forPath(spark, table).alias("t")
    source = spark.sql(f"SELECT {key}L id, '' p").alias("s")
    builder.merge(source, "t.id = s.id").whenMatchedUpdate(set={"p": "s.p"}).whenNotMatchedInsertAll().execute()


@pytest.mark.parametrize("verb", VERBS)
def test_rules_take_an_empty_partition_value_as_null(spark: Any, table: str, verb: str) -> None:
    constrained = create(f"{table}/c", ID, StructField("p", TEXT))
    constrained.append(spark_rows := deltalog_rows([(0, "x")]))
    constrained.add_constraint("there", "p IS NOT NULL")
    with pytest.raises(deltalog.ConstraintViolationError, match="CHECK constraint there"):
        VERBS[verb](spark, f"{table}/c")
    assert stored(f"{table}/c", "id", "p") == [(0, "x")]
    required = create(f"{table}/n", ID, StructField("p", TEXT, nullable=False))
    required.append(spark_rows)
    with pytest.raises(deltalog.SchemaMismatchError, match="column p is NOT NULL"):
        VERBS[verb](spark, f"{table}/n")
    assert stored(f"{table}/n", "id", "p") == [(0, "x")]
    free = create(f"{table}/f", ID, StructField("p", TEXT))
    free.append(spark_rows)
    VERBS[verb](spark, f"{table}/f")
    assert {p for _, p in stored(f"{table}/f", "id", "p")} in ({None}, {"x", None})


def deltalog_rows(rows: list[tuple[int, str]]) -> Any:
    return pa.table({"id": [key for key, _ in rows], "p": [p for _, p in rows]})


def test_replaced_rows_are_not_added_again(spark: Any, table: str) -> None:
    create(table, ID, StructField("p", TEXT)).append(deltalog_rows([(0, "x")]))
    write = spark_ext.write(spark.sql(EMPTY)).mode("overwrite")
    for _ in range(2):
        with pytest.raises(deltalog.ConstraintViolationError, match="outside of the replaced rows"):
            write.option("replaceWhere", "p = ''").save(table)
    for _ in range(2):
        write.option("replaceWhere", "p IS NULL").save(table)
    assert stored(table, "id", "p") == [(0, "x"), (1, None)]


def test_generated_and_default_partition_values(spark: Any, table: str) -> None:
    generated = StructField("p", TEXT, True, {"delta.generationExpression": "trim(x)"})
    create(table, ID, StructField("x", TEXT), generated)
    spark_ext.write(spark.sql("SELECT 1L id, ' ' x")).mode("append").save(table)
    spark_ext.write(spark.sql("SELECT 2L id, ' ' x, '' p")).mode("append").save(table)
    spark_ext.DeltaTable.forPath(spark, table).update("id = 1", {"x": "'  '"})
    assert stored(table, "id", "p") == [(1, None), (2, None)]
    with pytest.raises(deltalog.ConstraintViolationError, match="generation expression"):
        spark_ext.write(spark.sql("SELECT 2L id, 'a' x, '' p")).mode("append").save(table)
    default = StructField("p", TEXT, False, {"CURRENT_DEFAULT": "''"})
    handle = deltalog.DeltaTable.create(
        f"{table}/d",
        StructType((ID, default)),
        partition_by=["p"],
        properties={"delta.feature.allowColumnDefaults": "supported"},
    )
    with pytest.raises(deltalog.SchemaMismatchError, match="column p is NOT NULL"):
        spark_ext.write(spark.sql("SELECT 1L id")).mode("append").save(f"{table}/d")
    assert handle.version == 0


SHAPES = {
    "s": "named_struct({0}, 1L, {1}, 2L)",
    "l": "array(named_struct({0}, 1L, {1}, 2L))",
    "m": "map('k', named_struct({0}, 1L, {1}, 2L))",
    "d": "named_struct('in', named_struct({0}, 1L, {1}, 2L))",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_field_is_there_twice(spark: Any, table: str, shape: str) -> None:
    once = SHAPES[shape].format("'Name'", "'b'")
    spark_ext.write(spark.sql(f"SELECT 1L id, {once} {shape}")).save(table)
    for names in (("'Name'", "'name'"), ("'name'", "'Name'")):
        twice = spark.sql(f"SELECT 1L id, {SHAPES[shape].format(*names)} {shape}")
        for option in ("mergeSchema", "optimizeWrite"):
            with pytest.raises(deltalog.SchemaMismatchError, match="more than once"):
                spark_ext.write(twice).mode("append").option(option, True).save(table)
        with pytest.raises(deltalog.SchemaMismatchError, match="more than once"):
            spark_ext.write(twice).mode("overwrite").option("overwriteSchema", True).save(table)
        with pytest.raises(deltalog.SchemaMismatchError, match="more than once"):
            builder = spark_ext.DeltaTable.forPath(spark, table).alias("t").merge(twice.alias("s"), "t.id = s.id")
            builder.whenMatchedUpdateAll().execute()
    assert deltalog.DeltaTable.open(table).version == 0
