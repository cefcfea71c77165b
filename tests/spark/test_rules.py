"""Constraints, generated columns and defaults in writes by Spark: filled in, checked, or refused before the job."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from deltalog.schema import PrimitiveType, StructField, StructType

LONG, DATE, TIMESTAMP = PrimitiveType("long"), PrimitiveType("date"), PrimitiveType("timestamp")


def create(table: str, *columns: StructField, **options: Any) -> deltalog.DeltaTable:
    return deltalog.DeltaTable.create(table, StructType(columns), **options)


def stored(table: str) -> list[dict[str, Any]]:
    return sorted(deltalog.DeltaTable.open(table).snapshot().scan().to_arrow().to_pylist(), key=str)


def test_conditions_are_kept(spark: Any, table: str) -> None:
    invariant = json.dumps({"expression": {"expression": "b < 10 OR b IS NULL"}})
    handle = create(table, StructField("a", LONG), StructField("b", LONG, True, {"delta.invariants": invariant}))
    handle.add_constraint("positive", "a > 0")
    spark_ext.write(spark.sql("SELECT 1L a, 2L b UNION ALL SELECT 2L, NULL")).mode("append").save(table)
    for query, name in [
        ("SELECT 1L a, 10L b", "invariant of column b"),
        ("SELECT -1L a, 1L b", "CHECK constraint positive"),
        ("SELECT CAST(NULL AS BIGINT) a, 1L b", "CHECK constraint positive"),
    ]:
        with pytest.raises(deltalog.ConstraintViolationError, match=name) as refused:
            spark_ext.write(spark.sql(query)).mode("append").save(table)
        assert refused.value.expression in ("a > 0", "b < 10 OR b IS NULL")
    assert [row["a"] for row in stored(table)] == [1, 2]


def test_absent_columns_are_filled_in(spark: Any, table: str) -> None:
    create(
        table,
        StructField("at", TIMESTAMP),
        StructField("day", DATE, False, {"delta.generationExpression": "CAST(at AS DATE)"}),
        StructField("n", LONG, False, {"CURRENT_DEFAULT": "40 + 2"}),
        StructField("m", LONG, True, {"delta.generationExpression": "n + 1L"}),
        partition_by=["day"],
    )
    spark_ext.write(spark.sql("SELECT TIMESTAMP'2026-01-02 23:59:00' at")).mode("append").save(table)
    spark_ext.write(spark.sql("SELECT TIMESTAMP'2026-01-03 00:00:00' at, 1L n, 2L m")).mode("append").save(table)
    assert [(row["day"], row["n"], row["m"]) for row in stored(table)] == [
        (dt.date(2026, 1, 2), 42, 43),
        (dt.date(2026, 1, 3), 1, 2),
    ]
    shown = spark_ext.read(spark).load(table).schema
    assert [dict(shown[name].metadata) for name in ("day", "m")] == [{}, {}], "of no use in another table"
    for wrong in ("3L", "CAST(NULL AS BIGINT)"):
        with pytest.raises(deltalog.ConstraintViolationError, match="generation expression of column m"):
            spark_ext.write(spark.sql(f"SELECT now() at, 1L n, {wrong} m")).mode("append").save(table)


def test_times_count_in_the_zone_of_the_session(spark: Any, table: str, zone: Any) -> None:
    generated = {"delta.generationExpression": "CAST(at AS DATE)"}
    create(table, StructField("at", TIMESTAMP), StructField("day", DATE, True, generated))
    zone("Asia/Tokyo")
    spark_ext.write(spark.sql("SELECT TIMESTAMP'2026-01-02 01:00:00' at")).mode("append").save(table)
    assert [row["day"] for row in stored(table)] == [dt.date(2026, 1, 2)]


def test_what_is_not_supported_is_refused_before_the_job(spark: Any, table: str) -> None:
    generated = {"delta.generationExpression": "java_method('java.lang.System', 'lineSeparator')"}
    create(table, StructField("a", LONG), StructField("b", PrimitiveType("string"), True, generated))
    with pytest.raises(deltalog.UnsupportedFeatureError, match="java_method") as refused:
        spark_ext.write(spark.sql("SELECT raise_error('the job ran') a").selectExpr("CAST(a AS BIGINT) a")).mode(
            "append"
        ).save(table)
    assert refused.value.features == ("generatedColumns",)
    assert stored(table) == []


def test_overwrite_replaces_rows_by_rows_that_keep_the_rules(spark: Any, table: str) -> None:
    handle = create(table, StructField("a", LONG), data=pa.table({"a": pa.array([1], pa.int64())}))
    handle.add_constraint("positive", "a > 0")
    spark_ext.write(spark.sql("SELECT 2L a")).mode("overwrite").save(table)
    with pytest.raises(deltalog.ConstraintViolationError):
        spark_ext.write(spark.sql("SELECT -2L a")).mode("overwrite").save(table)
    assert stored(table) == [{"a": 2}]
