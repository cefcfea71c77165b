"""Writes of rows that were read from the same table: commits that others have made since the read are kept, or cause a
conflict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import deltalog
import spark_ext
from deltalog import CommitConflictError, DeltaTable
from deltalog.errors import ConcurrentAppendError
from tests.spark.settings import session_of
from tests.spark.tables import data_files, litter, rows

START = "select 1L id, 'a' p, date'2026-01-01' d union all select 2L, 'b', date'2026-01-02'"


@pytest.fixture
def start(spark: Any, table: str) -> str:
    spark_ext.write(spark.sql(START)).partitionBy("p", "d").save(table)
    return table


def others_append(table: str, p: str = "a") -> None:
    import datetime

    day = [datetime.date(2026, 1, 2 if p == "b" else 1)]
    DeltaTable.open(table).append(pa.table({"id": pa.array([9], pa.int64()), "p": [p], "d": day}))


def ids(table: str) -> list[int]:
    return sorted(DeltaTable.open(table).snapshot().scan(["id"]).to_arrow()["id"].to_pylist())


def load(spark: Any, table: Any, **options: Any) -> Any:
    return spark_ext.read(spark).options(**options).load(table)


SHAPES: dict[str, Any] = {
    "itself": lambda spark, df: df,
    "computed": lambda spark, df: df.selectExpr("id + 10 as id", "p", "d"),
    "joined": lambda spark, df: spark.range(5).join(df, "id"),
    "union": lambda spark, df: spark.sql(START).unionByName(df),
    "grouped": lambda spark, df: df.groupBy("p", "d").agg(F.sum("id").alias("id")),
    "in a subquery": lambda spark, df: spark.sql(
        "select * from {new} where id in (select id from {old})", new=spark.sql(START), old=df
    ),
    "a view": lambda spark, df: (df.createOrReplaceTempView("seen"), spark.table("seen").where("id > 0"))[1],
    "cached": lambda spark, df: df.cache().where("id > 0"),
    "read twice": lambda spark, df: df.alias("x").join(df.alias("y"), "id").select("id", "x.p", "y.d"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_overwrite_conflicts_with_rows_that_came_since_the_read(spark: Any, start: str, shape: str) -> None:
    df = SHAPES[shape](spark, load(spark, start))
    others_append(start)
    before = data_files(start)
    with pytest.raises(ConcurrentAppendError, match=r"version 1 .* after version 0, on which this commit") as e:
        spark_ext.write(df).mode("overwrite").save(start)
    assert (e.value.read_version, e.value.winning_version) == (0, 1)
    assert ids(start) == [1, 2, 9] and data_files(start) == before and litter(start) == []


@pytest.mark.parametrize(
    "options", [{"replaceWhere": "p = 'a'"}, {"partitionOverwriteMode": "dynamic"}, {"overwriteSchema": True}]
)
def test_other_kinds_of_overwrites(spark: Any, start: str, options: dict[str, Any]) -> None:
    df = load(spark, start).where("p = 'a'")
    others_append(start)
    with pytest.raises(CommitConflictError):
        spark_ext.write(df).mode("overwrite").options(**options).save(start)
    assert ids(start) == [1, 2, 9]


def test_the_handle_that_was_read(spark: Any, start: str) -> None:
    handle = DeltaTable.open(start)
    df = load(spark, handle).selectExpr("id + 10 as id", "p", "d")
    others_append(start)
    with pytest.raises(CommitConflictError):
        spark_ext.write(df).mode("overwrite").save(handle)

    def work(each: DeltaTable) -> None:
        spark_ext.write(load(spark, each).selectExpr("id + 10 as id", "p", "d")).mode("overwrite").save(each)

    handle.retrying(work)
    assert ids(start) == [11, 12, 19]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "condition",
    [
        "p = 'b'",
        "d = '2026-01-02'",
        "d >= date'2026-01-02' and id > 0",
        "p = 'b' and p = 'b' and d is not null",
        "p = 'b' and upper(p) = 'B'",
    ],
)
def test_jobs_on_different_partitions_do_not_conflict(spark: Any, start: str, condition: Any) -> None:
    df = load(spark, start).where(condition).selectExpr("id + 10 as id", "p", "d")
    others_append(start, "a")
    spark_ext.write(df).mode("overwrite").option("partitionOverwriteMode", "dynamic").save(start)
    assert ids(start) == [1, 9, 12]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "condition",
    ["p = 'b' or id < 5", "p != 'a'", "p = string(d) or p = 'b'", "lower(p) = 'b'", "not p = 'a'", "d < now()"],
)
def test_a_condition_that_is_not_understood_reads_all(spark: Any, start: str, condition: str) -> None:
    df = load(spark, start).where(condition).where("id = 2")
    others_append(start, "a")
    with pytest.raises(ConcurrentAppendError):
        spark_ext.write(df).mode("overwrite").option("partitionOverwriteMode", "dynamic").save(start)


def test_a_column_that_has_taken_another_ones_name(spark: Any, start: str) -> None:
    df = load(spark, start).selectExpr("id", "'b' as p", "d").where("p = 'b'")
    others_append(start, "a")
    with pytest.raises(ConcurrentAppendError):
        spark_ext.write(df).mode("overwrite").option("partitionOverwriteMode", "dynamic").save(start)


def test_an_append_of_rows_that_were_read(spark: Any, start: str) -> None:
    df = load(spark, start).where("p = 'a'")
    others_append(start, "b")
    spark_ext.write(df).mode("append").save(start)
    assert ids(start) == [1, 1, 2, 9]
    info = DeltaTable.open(start).snapshot().reader.commits([2])[0].commit_info
    assert info is not None and info.body["isBlindAppend"] is False
    with pytest.raises(ConcurrentAppendError):
        spark_ext.write(df).mode("append").save(start)


def test_an_empty_table_that_was_read(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(0)).save(table)
    df = load(spark, table).union(spark.range(3))
    spark_ext.write(spark.range(7, 8)).mode("append").save(table)
    with pytest.raises(ConcurrentAppendError):
        spark_ext.write(df).mode("overwrite").save(table)
    assert ids(table) == [7]


def test_versions_that_were_named_are_put_back(spark: Any, start: str) -> None:
    others_append(start)
    spark_ext.write(load(spark, start, versionAsOf=0)).mode("overwrite").save(start)
    assert ids(start) == [1, 2]
    others_append(start)
    spark_ext.write(spark_ext.sql(spark, f"select * from deltalog.`{start}` VERSION AS OF 0")).mode("append").save(
        start
    )
    assert ids(start) == [1, 1, 2, 2, 9]


def test_the_version_that_a_caller_expects(spark: Any, start: str) -> None:
    kept = spark.createDataFrame(load(spark, start).collect(), "id long, p string, d date")
    others_append(start)
    write = spark_ext.write(kept).mode("overwrite")
    with pytest.raises(deltalog.errors.VersionConflictError, match="version 0 was expected"):
        write.option("expectedVersion", 0).save(start)
    assert write.option("expectedVersion", 1).save(start).version == 2
    assert ids(start) == [1, 2]
    for wrong in ("latest", -1):
        with pytest.raises(deltalog.CallError, match="expectedVersion"):
            write.option("expectedVersion", wrong)
    with pytest.raises(deltalog.CallError, match="no table"):
        write.option("expectedVersion", 0).save(start + "-other")


def test_files_of_the_table_that_were_read_by_another_way(spark: Any, start: str, tmp_path: Path) -> None:
    raw = spark.read.parquet(f"file:{start}").select("id", "p", "d")
    with pytest.raises(deltalog.CallError, match="its version is unknown"):
        spark_ext.write(raw).mode("overwrite").save(start)
    spark_ext.write(raw).mode("overwrite").option("expectedVersion", 0).save(start)
    other = str(tmp_path / "other")
    spark.sql(START).write.parquet(f"file:{other}")
    mixed = spark.read.parquet(f"file:{other}").join(load(spark, start).select("id"), "id")
    assert spark_ext.write(mixed).mode("overwrite").save(start).version == 2
    spark_ext.write(spark.read.parquet(f"file:{other}")).mode("append").save(start)
    assert ids(start) == [1, 1, 2, 2]


def test_files_of_the_table_that_were_read_as_a_table_of_the_session(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(2)).save(table)
    with session_of(spark, {"spark.sql.sources.useV1SourceList": ""}):
        of_new_source = spark.read.parquet(f"file:{table}")
        with pytest.raises(deltalog.CallError, match="its version is unknown"):
            spark_ext.write(of_new_source).mode("overwrite").save(table)
    spark.sql(f"create table of_session using parquet location 'file:{table}'")
    try:
        with pytest.raises(deltalog.CallError, match="its version is unknown"):
            spark_ext.write(spark.table("of_session")).mode("overwrite").save(table)
    finally:
        spark.sql("drop table of_session")
    assert ids(table) == [0, 1]


_REDACTED = "spark.sql.redaction.string.regex"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "settings",
    [
        *({"spark.sql.maxPlanStringLength": length} for length in ("0", "30", "50", "900")),
        {"spark.sql.debug.maxToStringFields": "0"},
        *({_REDACTED: pattern} for pattern in ("(?s).*", "Analyzed", "Filter", "deltalog", "[a-z-]{60}")),
    ],
    ids=repr,
)
def test_settings_that_hide_what_was_read(spark: Any, table: str, settings: dict[str, str]) -> None:
    spark_ext.write(spark.range(0)).save(table)
    df = load(spark, table).union(spark.range(3))
    spark_ext.write(spark.range(7, 8)).mode("append").save(table)
    with session_of(spark, settings):
        write = spark_ext.write(df).mode("overwrite")
        with pytest.raises(deltalog.CallError, match="does not show in this session"):
            write.save(table)
        assert ids(table) == [7] and litter(table) == []
        assert write.option("expectedVersion", 1).save(table).version == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("pattern", ["[A-Za-z0-9/+=]{40}", "(?i)url|key|secret|token|password", "[0-9]{4}"])
def test_redaction_that_leaves_what_was_read(spark: Any, start: str, pattern: str) -> None:
    df = load(spark, start)
    with session_of(spark, {_REDACTED: pattern}):
        assert spark_ext.write(df).mode("overwrite").save(start).version == 1
        with pytest.raises(ConcurrentAppendError):
            spark_ext.write(df).mode("append").save(start)


@pytest.mark.parametrize("p", ["R AND D", "R#1 AND D#2", "(R) AND (D)"])
def test_conditions_on_text_that_looks_like_a_condition(spark: Any, table: str, p: str) -> None:
    spark_ext.write(spark.sql(START).replace("a", p)).partitionBy("p", "d").save(table)
    df = load(spark, table).where(F.col("p") == p).where("id > 0")
    others_append(table, p)
    with pytest.raises(ConcurrentAppendError):
        spark_ext.write(df).mode("append").save(table)


def test_a_cast_that_overflows(spark: Any, table: str) -> None:
    spark_ext.write(spark.sql("select 1L id, cast(44 as byte) b")).partitionBy("b").save(table)
    df = load(spark, table)
    DeltaTable.open(table).append(pa.table({"id": pa.array([9], pa.int64()), "b": pa.array([44], pa.int8())}))
    errors = {"false": (ConcurrentAppendError, "version 1"), "true": (deltalog.CallError, "CAST_OVERFLOW")}
    for ansi, (error, said) in errors.items():
        with session_of(spark, {"spark.sql.ansi.enabled": ansi}), pytest.raises(error, match=said):
            spark_ext.write(df.where("b = cast(300 as byte)")).mode("append").save(table)


def test_a_date_that_python_has_not(spark: Any, start: str) -> None:
    assert spark_ext.write(load(spark, start).where("d > date'0000-01-01'")).mode("overwrite").save(start).version == 1


def test_a_table_that_is_read_by_a_link(spark: Any, start: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(start)
    df = load(spark, str(tmp_path / "link"))
    others_append(start)
    with pytest.raises(ConcurrentAppendError):
        spark_ext.write(df).mode("overwrite").save(start)


def test_a_table_and_another_one_made_from_it(spark: Any, start: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    df = load(spark, start)
    spark_ext.write(df).save(other)
    others_append(start)
    spark_ext.write(df).mode("overwrite").save(other)
    assert rows(load(spark, other).select("id")) == [(1,), (2,)]


def test_in_a_transaction_over_tables(spark: Any, tmp_path: Path) -> None:
    manager = deltalog.TransactionManager(str(tmp_path / "catalog.db"))
    manager.create_table("d.t", str(tmp_path / "managed"), spark_ext.from_spark(spark.range(1).schema))
    address = f"catalog:{tmp_path}/catalog.db#d.t"
    spark_ext.write(spark.range(2)).mode("append").save(address)
    outside = load(spark, address)
    with manager.transaction() as txn:
        table = txn.table("d.t")
        spark_ext.write(spark.range(5, 6)).mode("append").save(table)
        with pytest.raises(CommitConflictError):
            spark_ext.write(outside).mode("overwrite").save(table)
        spark_ext.write(load(spark, table).where("id > 0")).mode("overwrite").save(table)
        txn.commit()
    assert ids(address) == [1, 5]
    with manager.transaction() as txn:
        changed = load(spark, txn.table("d.t")).selectExpr("id * 2 as id")
        spark_ext.write(spark.range(100, 101)).mode("append").save(address)
        spark_ext.write(changed).mode("overwrite").save(txn.table("d.t"))
        with pytest.raises(deltalog.errors.TransactionCanceledError):
            txn.commit()
    assert ids(address) == [1, 5, 100]
