from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltalog
import spark_ext
import spark_ext.writing.job_files
import spark_ext.writing.local_job
from deltalog.storage.fs import LocalStore
from tests.spark.settings import since
from tests.spark.tables import action, data_files, litter, rows, schema, versions
from tests.support.core.other_writers import declared_afterwards

NOT_NULL = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":false,"metadata":{}},'
    '{"name":"p","type":"string","nullable":false,"metadata":{}},'
    '{"name":"st","type":{"type":"struct","fields":[{"name":"a","type":"integer","nullable":false,"metadata":{}}]},'
    '"nullable":true,"metadata":{}},'
    '{"name":"ar","type":{"type":"array","elementType":"integer","containsNull":false},"nullable":true,"metadata":{}}'
    "]}"
)


def write(df: Any) -> spark_ext.Writer:
    return spark_ext.write(df)


# --- calls that are refused before anything is written


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replaceWhere": "id = 1"}, "replaceWhere needs mode"),
        ({"partitionOverwriteMode": "dynamic"}, "partitionOverwriteMode needs mode"),
        ({"partitionOverwriteMode": "some"}, "Known: static, dynamic"),
        ({"overwriteSchemas": "true"}, "Unknown write option 'overwriteSchemas'"),
        ({"mergeSchema": "yes"}, "mergeSchema is 'yes', but must be true or false"),
        ({"txnAppId": "a", "txnVersion": -1}, "txnVersion is -1"),
        ({"txnAppId": "a"}, "belong together"),
        ({"txnVersion": 1}, "belong together"),
        ({"txnAppId": "", "txnVersion": 1}, "txnAppId is empty"),
        ({"maxRecordsPerFile": "many"}, "maxRecordsPerFile is 'many'"),
        ({"compression": "zip"}, "compression is 'zip'. Known: none"),
        ({"overwriteSchema": True}, "needs mode"),
    ],
)
def test_options_that_cannot_be_meant(spark: Any, table: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(deltalog.CallError, match=message):
        write(spark.range(1)).options(**options).save(table)
    assert not os.path.exists(table)


def test_contradicting_options_modes_and_places(spark: Any, table: str) -> None:
    writer = write(spark.range(1))
    with pytest.raises(deltalog.CallError, match="exclude each other"):
        writer.mode("overwrite").options(mergeSchema=True, overwriteSchema=True).save(table)
    with pytest.raises(deltalog.CallError, match="Unknown write mode 'upsert'"):
        writer.mode("upsert")
    with pytest.raises(deltalog.CallError, match="column names"):
        writer.partitionBy(spark.range(1).id)
    with pytest.raises(deltalog.CallError, match="is in this Python process"):
        write(spark.range(1)).save("memory://somewhere")
    with pytest.raises(deltalog.CallError, match="No store for scheme 'nowhere'"):
        write(spark.range(1)).save("nowhere://bucket/table")


def test_the_default_mode_is_error_also_by_its_other_name(spark: Any, table: str) -> None:
    write(spark.range(1)).mode("errorifexists").save(table)
    for writer in (write(spark.range(1)), write(spark.range(1)).mode("ErrorIfExists")):
        with pytest.raises(deltalog.TableExistsError):
            writer.save(table)
    assert versions(table) == [0]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select 1 a, null v", "Column v has the type void.*Cast its NULLs to a type"),
        ("select 1 a, array(null) v", r"Column v\.element has the type void"),
        ("select 1 a, named_struct('x', null) v", r"Column v\.x has the type void"),
        ("select 1 a, interval '1' day v", "Column v has the type interval day"),
        pytest.param(
            "select 1 a, make_interval(1) v", "Column v has the type interval", marks=since("4.0", "intervals")
        ),
        pytest.param(
            "select 1 a, 'x' collate UTF8_LCASE v", "collations are not supported", marks=since("4.0", "collations")
        ),
        ("select 1 a, 2 A", "the column 'A' more than once"),
        ("select 1 a, 2 `b c`", "'b c' contains one of"),
        ("select 1 a, named_struct('x', 1, 'X', 2) v", "the column 'v.X' more than once"),
    ],
)
def test_columns_that_a_table_cannot_have(spark: Any, table: str, query: str, message: str) -> None:
    with pytest.raises(deltalog.SchemaMismatchError, match=message):
        write(spark.sql(query)).save(table)
    assert not os.path.exists(table)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["nope"], "'nope' is not among the columns"),
        (["a", "a"], "names a column twice"),
        (["a", "b", "st"], "cannot partition"),
        (["st"], "cannot partition"),
    ],
)
def test_partition_columns_that_cannot_be(spark: Any, table: str, columns: list[str], message: str) -> None:
    df = spark.sql("select 1 a, 2 b, named_struct('x', 1) st")
    with pytest.raises(deltalog.SchemaMismatchError, match=message):
        write(df).partitionBy(columns).save(table)
    with pytest.raises(deltalog.SchemaMismatchError, match="Every column is a partition column"):
        write(df.select("a", "b")).partitionBy("a", "b").save(table)
    with pytest.raises(deltalog.UnsupportedFeatureError, match="binary"):
        write(spark.sql("select 1 a, X'ff' b")).partitionBy("b").save(table)
    assert not os.path.exists(table)


# --- properties and partitioning of an existing table


def test_properties_are_for_creation(spark: Any, table: str) -> None:
    with pytest.raises(deltalog.errors.InvalidPropertyError):
        write(spark.range(1)).option("delta.checkpointInterval", "often").save(table)
    assert not os.path.exists(table)
    write(spark.range(1)).option("delta.checkpointInterval", 5).save(table)
    write(spark.range(1)).mode("append").option("delta.checkpointInterval", 5).save(table)
    with pytest.raises(deltalog.errors.InvalidPropertyError, match=r"has '5'.*set_properties"):
        write(spark.range(1)).mode("append").option("delta.checkpointInterval", 6).save(table)
    assert versions(table) == [0, 1]


def test_an_append_only_table_is_not_overwritten(spark: Any, table: str) -> None:
    write(spark.range(1)).option("delta.appendOnly", True).save(table)
    with pytest.raises(deltalog.errors.InvalidActionError, match="append-only"):
        write(spark.range(1)).mode("overwrite").save(table)
    write(spark.range(1)).mode("append").save(table)
    assert versions(table) == [0, 1]


def test_partition_by_must_be_the_tables(spark: Any, table: str) -> None:
    df = spark.range(4).selectExpr("id", "id % 2 as p", "id % 3 as q")
    write(df).partitionBy("p", "q").save(table)
    for columns in (["p"], ["q", "p"], ["id"], []):
        with pytest.raises(deltalog.SchemaMismatchError, match="is partitioned by \\(p, q\\)"):
            write(df).mode("append").partitionBy(columns).save(table)
    write(df).mode("append").partitionBy("P", "Q").save(table)
    assert rows(spark_ext.read(spark).load(table)) == sorted(rows(df) * 2)


# --- schemas


def test_columns_by_name_in_any_order_and_case_and_absent_ones_null(spark: Any, table: str) -> None:
    write(spark.sql("select 1L id, 'a' s, 1 i, cast(1 as smallint) h, 1.5D f")).save(table)
    write(spark.sql("select cast(7 as tinyint) H, cast(8 as tinyint) I, 'b' S, 2L Id")).mode("append").save(table)
    write(spark.sql("select cast(9 as smallint) i, 3L id")).mode("append").save(table)
    back = spark_ext.read(spark).load(table)
    assert back.columns == ["id", "s", "i", "h", "f"]
    assert rows(back) == [(1, "a", 1, 1, 1.5), (2, "b", 8, 7, None), (3, None, 9, None, None)]
    for path in data_files(table):
        assert pq.read_schema(Path(table, path)).names == ["id", "s", "i", "h", "f"]


@pytest.mark.parametrize(
    ("table_type", "data_type"),
    [
        ("smallint", "int"),
        ("double", "bigint"),
        ("decimal(10,2)", "decimal(10,3)"),
        ("decimal(10,2)", "decimal(10,1)"),
        ("string", "int"),
        ("timestamp", "timestamp_ntz"),
        ("timestamp", "date"),
    ],
)
def test_no_cast_that_could_lose_a_value_or_needs_a_time_zone(
    spark: Any, table: str, table_type: str, data_type: str
) -> None:
    write(spark.sql(f"select cast(null as {table_type}) v, 1 a")).save(table)
    with pytest.raises(deltalog.SchemaMismatchError, match=r"column v is .* in the table and .* in the data"):
        write(spark.sql(f"select cast(null as {data_type}) v, 1 a")).mode("append").save(table)
    with pytest.raises(deltalog.SchemaMismatchError, match="column v"):
        df = spark.sql(f"select cast(null as {data_type}) v, 1 a")
        write(df).mode("append").option("mergeSchema", True).save(table)
    assert versions(table) == [0]


def test_nested_fields_go_by_name(spark: Any, table: str) -> None:
    first = "named_struct('x', 1, 'y', 'one', 'z', true)"
    write(spark.sql(f"select 1 id, {first} st, array({first}) ar, map('k', {first}) m")).save(table)
    other = "named_struct('Y', 'two', 'X', cast(2 as tinyint))"
    write(spark.sql(f"select 2 id, {other} st, array({other}, null) ar, map('k', {other}) m")).mode("append").save(
        table
    )
    write(spark.sql(f"select 3 id, cast(null as struct<y:string>) st, array({other}) ar")).mode("append").save(table)
    back = rows(spark_ext.read(spark).load(table), "id")
    assert tuple(back[1][1]) == (2, "two", None)
    assert [item and tuple(item) for item in back[1][2]] == [(2, "two", None), None]
    assert tuple(back[1][3]["k"]) == (2, "two", None)
    assert back[2][1] is None and back[2][3] is None
    bad = spark.sql("select 4 id, array(named_struct('x', 'text', 'w', 1)) ar")
    with pytest.raises(deltalog.SchemaMismatchError) as error:
        write(bad).mode("append").save(table)
    assert "column ar.element.x is integer in the table and string in the data" in str(error.value)
    assert "column ar.element.w is integer in the data and does not exist" in str(error.value)


def test_merge_schema_adds_columns_also_inside_structs(spark: Any, table: str) -> None:
    write(spark.sql("select 1 id, named_struct('x', 1) st")).save(table)
    df = spark.sql("select 2 id, named_struct('y', 'new', 'x', 2) st, timestamp_ntz'2026-01-01 00:00:00' added")
    write(df).mode("append").option("mergeSchema", "true").save(table)
    back = spark_ext.read(spark).load(table)
    assert back.schema.simpleString() == "struct<id:int,st:struct<x:int,y:string>,added:timestamp_ntz>"
    assert [tuple(r[1]) for r in rows(back, "id")] == [(1, None), (2, "new")]
    assert "timestampNtz" in action(table, 1, "protocol")[0]["readerFeatures"]
    write(spark.sql("select 3 id")).mode("append").option("mergeSchema", "true").save(table)
    assert action(table, 2, "metaData") == []


def test_overwrite_schema_replaces_schema_and_partitioning(spark: Any, table: str) -> None:
    write(spark.sql("select 1 id, 'x' p")).partitionBy("p").option("delta.checkpointInterval", 7).save(table)
    with pytest.raises(deltalog.SchemaMismatchError, match="overwriteSchema"):
        write(spark.sql("select 'text' id, 'x' p")).mode("overwrite").save(table)
    df = spark.sql("select 'text' id, 5 q, 1.5D v")
    write(df).mode("overwrite").option("overwriteSchema", True).partitionBy("q").save(table)
    back = spark_ext.read(spark).load(table)
    assert back.schema.simpleString() == "struct<id:string,q:int,v:double>" and rows(back) == [("text", 5, 1.5)]
    metadata = action(table, 1, "metaData")[0]
    assert metadata["partitionColumns"] == ["q"] and metadata["configuration"] == {"delta.checkpointInterval": "7"}
    write(df).mode("overwrite").option("overwriteSchema", True).save(table)
    assert action(table, 2, "metaData")[0]["partitionColumns"] == []
    assert rows(spark_ext.read(spark).option("versionAsOf", 0).load(table)) == [(1, "x")]


def test_not_null_is_kept_at_every_depth(spark: Any, table: str) -> None:
    deltalog.DeltaTable.create(table, deltalog.schema.StructType.from_json(NOT_NULL), partition_by=["p"])
    good = "select 1L id, 'x' p, named_struct('a', 1) st, array(1) ar"
    write(spark.sql(good)).mode("append").save(table)
    for query, column in (
        ("select cast(null as bigint) id, 'x' p, named_struct('a', 1) st", "id"),
        ("select 1L id, cast(null as string) p, named_struct('a', 1) st", "p"),
        ("select 1L id, '' p, named_struct('a', 1) st", "p"),
        ("select 1L id, 'x' p, named_struct('a', cast(null as int)) st", "a"),
        ("select 1L id, 'x' p, cast(null as struct<a: int>) st", "st.a"),
        ("select id, 'x' p, if(id = 0, named_struct('a', 1), null) st from range(2)", "st.a"),
        ("select 1L id, 'x' p, named_struct('a', 1) st, array(1, null) ar", "element"),
    ):
        with pytest.raises(deltalog.SchemaMismatchError, match=f"column {column} is NOT NULL in the table"):
            write(spark.sql(query)).mode("append").save(table)
    with pytest.raises(deltalog.SchemaMismatchError, match="column p is string NOT NULL in the table and missing"):
        write(spark.sql("select 1L id, named_struct('a', 1) st")).mode("append").save(table)
    with pytest.raises(deltalog.SchemaMismatchError, match=r"column st\.a is .* NOT NULL in the table and missing"):
        write(spark.sql("select 1L id, 'x' p")).mode("append").save(table)
    assert versions(table) == [0, 1] and litter(table) == [] and len(data_files(table)) == 1
    back = spark_ext.read(spark).load(table)
    assert back.schema.json() == spark_ext.to_spark(deltalog.schema.StructType.from_json(NOT_NULL)).json()
    assert rows(back.select("id", "p", "ar")) == [(1, "x", [1])]


def test_char_and_varchar_keep_their_length(spark: Any, table: str) -> None:
    from pyspark.sql import types as t

    declared = t.StructType(
        [
            t.StructField("c", t.StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": "char(4)", "comment": "four"}),
            t.StructField("v", t.StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
        ]
    )
    assert spark_ext.from_spark(t.StructType([t.StructField("c", t.CharType(4), True, {"comment": "four"})])) == (
        spark_ext.from_spark(t.StructType([declared["c"]]))
    )
    deltalog.DeltaTable.create(table, spark_ext.from_spark(declared))
    write(spark.createDataFrame([("ab", "x  "), (None, "xyz  ")], "c string, v string")).mode("append").save(table)
    back = spark_ext.read(spark).load(table)
    assert sorted(map(tuple, back.collect()), key=str) == [("ab  ", "x  "), (None, "xyz")]
    assert back.schema["c"].metadata == declared["c"].metadata
    for row in [("abcde", "x"), ("a", "wxyz")]:
        with pytest.raises(deltalog.ConstraintViolationError, match="has a longer value") as refused:
            write(spark.createDataFrame([row], "c string, v string")).mode("append").save(table)
        told = (refused.value.constraint, refused.value.expression)
        with pytest.raises(deltalog.ConstraintViolationError) as by_deltalog:
            deltalog.DeltaTable.open(table).append(pa.table({"c": [row[0]], "v": [row[1]]}))
        assert told == (by_deltalog.value.constraint, by_deltalog.value.expression)
    assert versions(table) == [0, 1]


def test_char_is_compared_padded_in_conditions_and_by_readers(spark: Any, table: str) -> None:
    key, text = "__CHAR_VARCHAR_TYPE_STRING", deltalog.schema.PrimitiveType("string")
    plain = deltalog.schema.StructType((deltalog.schema.StructField("c", text),))
    deltalog.DeltaTable.create(table, plain, data=pa.table({"c": ["a", "b ", "c  x  "]}))
    declared = deltalog.schema.StructType((deltalog.schema.StructField("c", text, True, {key: "char(4)"}),))
    table_of_others = declared_afterwards(Path(table), declared)
    table_of_others.add_constraint("known", "c <> 'zz'")
    write(spark.createDataFrame([("a",), ("y ",)], "c string")).mode("append").save(table)
    with pytest.raises(deltalog.ConstraintViolationError):
        write(spark.createDataFrame([("zz",)], "c string")).mode("append").save(table)
    back = spark_ext.read(spark).load(table)
    assert sorted(row.c for row in back.collect()) == ["a   ", "a   ", "b   ", "c  x  ", "y   "]
    for where in ("c = 'a'", "c IN ('a', 'x')", "c < 'b'", "c = 'a      '"):
        assert back.where(where).count() == 2 == table_of_others.snapshot().scan(where=where).to_arrow().num_rows, where


# --- partitions


def test_the_name_that_means_null_is_refused_as_a_value(spark: Any, table: str) -> None:
    df = spark.createDataFrame([(1, "__HIVE_DEFAULT_PARTITION__")], "id int, p string")
    with pytest.raises(deltalog.SchemaMismatchError, match="as a partition value means NULL"):
        write(df).partitionBy("p").save(table)
    assert not os.path.exists(table)
    write(df).save(table)  # in a data column, this string has no special meaning
    assert rows(spark_ext.read(spark).load(table)) == rows(df)


def test_numbers_and_times_as_partition_values(spark: Any, table: str, zone: Any) -> None:
    zone("America/New_York")
    df = spark.sql(
        """select * from values
          (1, cast(-7 as tinyint), 9223372036854775807L, double('NaN'), 1e20D, timestamp_ntz'2026-11-01 01:30:00.5',
           timestamp'1969-12-31 23:59:59.999999Z', cast(0 as decimal(38,18)), date'0001-01-01'),
          (2, null, -1L, -1.5D, double('-Infinity'), timestamp_ntz'1500-01-01 00:00:00',
           timestamp'1500-01-01 00:00:00Z', cast('1E-18' as decimal(38,18)), date'9999-12-31')
          as t(id, b, l, n, f, ntz, ts, dec, d)"""
    )
    write(df).partitionBy("b", "l", "n", "f", "ntz", "ts", "dec", "d").save(table)
    assert str(rows(spark_ext.read(spark).load(table), "id")) == str(rows(df, "id"))
    values = sorted((a["partitionValues"] for a in action(table, 0, "add")), key=lambda v: v["l"], reverse=True)
    assert values[0]["ts"] == "1969-12-31T23:59:59.999999Z" and values[0]["dec"] == "0.000000000000000000"
    assert values[1]["ts"] == "1500-01-01T00:00:00.000000Z" and values[1]["dec"] == "0.000000000000000001"
    assert values[0]["ntz"] == "2026-11-01 01:30:00.5" and values[1]["b"] is None
    arrow = deltalog.DeltaTable.open(table).snapshot().scan(["id", "f", "l"]).to_arrow().sort_by("id").to_pylist()
    assert arrow == [{"id": 1, "f": 1e20, "l": 2**63 - 1}, {"id": 2, "f": float("-inf"), "l": -1}]


# --- files


def test_files_without_rows_are_not_committed(spark: Any, table: str) -> None:
    df = spark.range(0, 8, 1, 4).where("id >= 6")
    result = write(df).save(table)
    assert result.num_files == 1 and len(data_files(table)) == 1
    assert rows(spark_ext.read(spark).load(table)) == [(6,), (7,)]


def test_session_settings_do_not_reach_the_files(spark: Any, table: str) -> None:
    settings = {
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.caseSensitive": "true",
    }
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        write(spark.sql("select date'1500-02-28' d, array(1) ar, timestamp'2026-01-01 00:00:00' ts")).save(table)
        write(spark.sql("select date'1500-02-28' D")).mode("append").save(table)
        assert {key: spark.conf.get(key) for key in settings} == settings
    finally:
        for key, value in before.items():
            _ = spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    arrow = deltalog.DeltaTable.open(table).snapshot().scan(["d", "ar"]).to_arrow()
    assert {str(d) for d in arrow["d"].to_pylist()} == {"1500-02-28"}
    for path in data_files(table):
        columns = [pq.ParquetFile(Path(table, path)).schema.column(i) for i in range(3)]
        assert [c.path for c in columns] == ["d", "ar.list.element", "ts"]
        assert columns[2].physical_type == "INT64"


def test_settings_on_the_session_where_spark_takes_no_options(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Use the code for Spark 3.5 to 4.1 with the installed Spark.
    monkeypatch.setattr(spark_ext.writing.local_job, "TIMESTAMP_SETTING_AS_OPTION", (99, 0))
    key = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(key, "TIMESTAMP_MILLIS")
    try:
        slow = spark.range(4).selectExpr("id", "timestamp'2026-01-01 00:00:00.123456' as ts")
        errors: list[BaseException] = []

        def run(name: str) -> None:
            try:
                write(slow).save(str(tmp_path / name))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(f"t{i}",)) for i in range(3)]
        for thread in threads:
            thread.start()
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        assert errors == [] and spark.conf.get(key) == "TIMESTAMP_MILLIS"
        for i in range(3):
            for path in data_files(str(tmp_path / f"t{i}")):
                column = pq.ParquetFile(tmp_path / f"t{i}" / path).schema.column(1)
                assert "timeUnit=microseconds" in str(column.logical_type)
        with pytest.raises(Exception, match="broken"):
            write(spark.sql("select raise_error('broken') x, 1 a").selectExpr("cast(x as int) x", "a")).save(
                str(tmp_path / "bad")
            )
        assert spark.conf.get(key) == "TIMESTAMP_MILLIS"
    finally:
        spark.conf.unset(key)
    write(slow).save(str(tmp_path / "unset"))
    assert spark.conf.get(key, None) is None


def test_data_files_are_durable_before_the_commit_names_them(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, link = os.fsync, os.link

    def recording_fsync(descriptor: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def recording_link(source: Any, target: Any, **options: Any) -> None:
        events.append(f"link {target}")
        link(source, target, **options)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "link", recording_link)
    write(spark.range(4).selectExpr("id", "id % 2 as p")).partitionBy("p").save(table)
    commit = next(i for i, event in enumerate(events) if event.endswith("00000000000000000000.json"))
    before = events[:commit]
    files = [os.path.join(table, path) for path in data_files(table)]
    assert len(files) >= 2
    for path in files:
        assert before.count(path) == 1
        parent = os.path.dirname(path)
        while len(parent) >= len(table):
            assert parent in before
            parent = os.path.dirname(parent)
    assert os.path.dirname(table) in before


@pytest.mark.parametrize("name", ["100%25 é,a=b", "[q]{w}*?\\"])
def test_tables_with_odd_names(spark: Any, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    for _ in range(2):
        write(spark.range(3)).mode("append").save(path)
    write(spark.range(3).selectExpr("id", "id % 2 as p")).partitionBy("p").save(path + "/parts")
    write(spark.range(3).selectExpr("id", "id % 2 as p")).mode("append").save(path + "/parts")
    assert rows(spark_ext.read(spark).load(path)) == [(0,), (0,), (1,), (1,), (2,), (2,)]
    assert spark_ext.read(spark).load(path + "/parts").count() == 6
    assert rows(spark_ext.sql(spark, f"select count(*) from deltalog.`{path}`")) == [(6,)]


def test_a_file_url_and_a_column_that_has_the_directory_keys_name(spark: Any, tmp_path: Path) -> None:
    write(spark.sql("select 1 id, 'x' deltalog_write, 2 p")).partitionBy("p").save((tmp_path / "a b").as_uri())
    assert rows(spark_ext.read(spark).load(str(tmp_path / "a b"))) == [(1, "x", 2)]


# --- other writers, lost responses


def test_concurrent_commits_are_judged_at_the_end(spark: Any, table: str, tmp_path: Path) -> None:
    write(spark.range(2)).save(table)
    paths, marker = list(sys.path), str(tmp_path / "done")

    def intrude(value: int) -> int:
        """Spark's Python worker calls this function after the write has read the table and before it commits."""
        sys.path[:0] = paths
        import pyarrow

        import deltalog as other

        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return value
        other.DeltaTable.open(table).append(pyarrow.table({"id": pyarrow.array([100], pyarrow.int64())}))
        return value

    from pyspark.sql.functions import udf

    df = spark.range(10, 12).select(udf(intrude, "long")("id").alias("id"))
    result = write(df).mode("append").save(table)
    assert (result.version, versions(table)) == (2, [0, 1, 2])
    os.unlink(marker)
    before = data_files(table)
    with pytest.raises(deltalog.errors.ConcurrentAppendError):
        write(df).mode("overwrite").save(table)
    assert versions(table) == [0, 1, 2, 3]
    assert len(data_files(table)) == len(before) + 1 and litter(table) == []
    assert rows(spark_ext.read(spark).load(table)) == [(0,), (1,), (10,), (11,), (100,), (100,)]
    os.unlink(marker)
    created = str(tmp_path / "created")

    def create(value: int) -> int:
        sys.path[:0] = paths
        import pyarrow

        import deltalog as other

        if not other.DeltaTable.exists(created):
            other.DeltaTable.create(created, pyarrow.schema([("id", pyarrow.int64())]))
        return value

    racing = spark.range(0, 2, 1, 1).select(udf(create, "long")("id").alias("id"))
    with pytest.raises(deltalog.TableExistsError):
        write(racing).mode("append").save(created)
    assert data_files(created) == [] and os.listdir(created) == ["_delta_log"]


def test_when_the_outcome_is_unknown_no_file_is_removed(
    spark: Any, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spark.range(2)).save(table)
    put, target = LocalStore.put_if_absent, "00000000000000000001.json"

    def silent(self: LocalStore, path: str, data: bytes) -> Any:
        """The store executes the commit, and then stops responding."""
        outcome = put(self, path, data)
        if not path.endswith(target):
            return outcome
        monkeypatch.setattr(LocalStore, "get", fail)
        monkeypatch.setattr(LocalStore, "head", fail)
        monkeypatch.setattr(LocalStore, "list_from", fail)
        return type(outcome).UNKNOWN

    def fail(self: LocalStore, *args: Any, **options: Any) -> Any:
        raise deltalog.StoreError("no answer", path=table)

    monkeypatch.setattr(LocalStore, "put_if_absent", silent)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(deltalog.CommitStateUnknownError) as error:
        write(spark.range(2, 5)).mode("append").save(table)
    monkeypatch.undo()
    resolved = error.value.resolve()
    assert resolved is not None and resolved.version == 1
    assert rows(spark_ext.read(spark).load(table)) == [(i,) for i in range(5)]


def test_a_lost_answer_is_found_to_be_our_commit(spark: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put = LocalStore.put_if_absent

    def lossy(self: LocalStore, path: str, data: bytes) -> Any:
        return type(outcome).UNKNOWN if (outcome := put(self, path, data)) and path.endswith("0.json") else outcome

    monkeypatch.setattr(LocalStore, "put_if_absent", lossy)
    result = write(spark.range(2)).save(table)
    monkeypatch.undo()
    assert result.committed and versions(table) == [0]
    assert rows(spark_ext.read(spark).load(table)) == [(0,), (1,)]


def test_what_was_written_is_what_deltalog_itself_can_extend(spark: Any, table: str) -> None:
    write(spark.range(3).selectExpr("id", "cast(id as string) as p")).partitionBy("p").save(table)
    more = pa.table({"id": pa.array([7], pa.int64()), "p": ["new/one"]})
    deltalog.DeltaTable.open(table).append(more)
    write(spark.sql("select 8L id, 'x' p")).mode("append").save(table)
    back = spark_ext.read(spark).load(table)
    assert rows(back) == [(0, "0"), (1, "1"), (2, "2"), (7, "new/one"), (8, "x")]
    assert schema(id="long", p="string") == deltalog.DeltaTable.open(table).snapshot().schema


def test_narrower_types_are_cast_and_wider_ones_refused(spark: Any, table: str) -> None:
    wide = "l long, d double, e decimal(10,2), n timestamp_ntz, a array<long>, s struct<x: double>, p long"
    spark.createDataFrame([], wide).createOrReplaceTempView("wide")
    write(spark.table("wide")).partitionBy("p").save(table)
    before = deltalog.DeltaTable.open(table).snapshot().schema
    narrow = (
        "SELECT 1 l, float(0.1) d, cast(3.25 AS decimal(5,2)) e, date'2020-01-02' n, array(1, NULL) a,"
        " named_struct('x', 7) s, smallint(5) p"
    )
    write(spark.sql(narrow)).mode("append").save(table)
    (row,) = deltalog.DeltaTable.open(table).snapshot().scan().to_arrow().to_pylist()
    assert row == {
        "l": 1,
        "d": float(np.float32(0.1)),
        "e": Decimal("3.25"),
        "n": datetime.datetime(2020, 1, 2),
        "a": [1, None],
        "s": {"x": 7.0},
        "p": 5,
    }
    assert deltalog.DeltaTable.open(table).snapshot().schema == before
    lossy = {"l": "1.5D", "d": "1L", "e": "cast(1 AS decimal(10,3))", "p": "cast(1 AS decimal(19,0))"}
    for name, value in lossy.items():
        with pytest.raises(deltalog.SchemaMismatchError, match=f"column {name} is "):
            write(spark.sql(f"SELECT {value} {name}")).mode("append").save(table)
    assert versions(table) == [0, 1]


# --- partial overwrites


def stored_ids(table: str) -> list[int]:
    return sorted(deltalog.DeltaTable.open(table).snapshot().scan(["id"]).to_arrow()["id"].to_pylist())


def test_partitions_are_replaced(spark: Any, table: str) -> None:
    frame = "SELECT id, CASE WHEN id % 2 = 0 THEN 'a' WHEN id % 3 = 0 THEN NULL ELSE 'b' END AS p FROM range(12)"
    write(spark.sql(frame)).partitionBy("p").save(table)
    new = spark.sql("SELECT 100L AS id, 'a' AS p UNION ALL SELECT 101L, 'c'")
    result = write(new).mode("overwrite").option("partitionOverwriteMode", "dynamic").save(table)
    assert result.committed and stored_ids(table) == [1, 3, 5, 7, 9, 11, 100, 101]
    (info,) = action(table, 1, "commitInfo")
    removed = action(table, 1, "remove")
    assert (result.num_removed_files, result.num_removed_rows) == (len(removed), 6)
    told = {
        name: int(info["operationMetrics"][name]) for name in ("numRemovedFiles", "numRemovedBytes", "numDeletedRows")
    }
    assert [*told.values()] == [len(removed), sum(file["size"] for file in removed), 6]
    new = spark.sql("SELECT 200L AS id, CAST(NULL AS STRING) AS p")
    write(new).mode("overwrite").option("replaceWhere", "p IS NULL OR p = 'c'").save(table)
    assert stored_ids(table) == [1, 5, 7, 11, 100, 200]
    (info,) = action(table, 2, "commitInfo")
    assert info["operationParameters"]["predicate"] == "p IS NULL OR p = 'c'"
    assert info["operationMetrics"]["numDeletedRows"] == "3"
    nothing = write(new.limit(0)).mode("overwrite").option("partitionOverwriteMode", "dynamic").save(table)
    assert not nothing.committed


def test_a_job_makes_no_checksum_files(spark: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    collect = spark_ext.writing.job_files.collect

    def looked_at(directory: str, *rest: Any) -> Any:
        found.extend(path.name for path in Path(directory).rglob("*") if path.is_file())
        return collect(directory, *rest)

    monkeypatch.setattr(spark_ext.writing.local_job, "collect", looked_at)
    result = spark_ext.write(spark.range(6).selectExpr("id", "id % 3 as p")).partitionBy("p").save(table)
    assert len(found) == result.num_files and all(name.endswith(".parquet") for name in found)
    # After this, other writes of the session still create checksum files.
    spark.range(1).coalesce(1).write.parquet(f"{table}-plain")
    assert any(name.endswith(".crc") for name in os.listdir(f"{table}-plain"))


def test_an_append_sends_one_statement_beside_its_job(spark: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_ext.write(spark.range(3)).save(table)
    sent: list[str] = []
    sql = type(spark).sql

    def counted(self: Any, query: str, *args: Any, **more: Any) -> Any:
        sent.append(query)
        return sql(self, query, *args, **more)

    monkeypatch.setattr(type(spark), "sql", counted)
    assert spark_ext.write(spark.range(2)).mode("append").save(table).version == 1
    asked = [each for each in sent if each != "SET"]  # Spark Connect before 4.2 lists its settings with SET
    assert len(asked) == 1 and asked[0].startswith("explain extended")
