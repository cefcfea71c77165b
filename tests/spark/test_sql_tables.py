"""CREATE TABLE, REPLACE TABLE and INSERT in spark_ext.sql."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import action, rows, versions

PARTITIONED = "create table {t} (id bigint, s string default 'none', p string) using delta partitioned by (p)"


def run(spark: Any, t: str, query: str, *args: Any, **frames: Any) -> Any:
    return spark_ext.sql(spark, query.replace("{t}", f"deltalog.`{t}`"), *args, **frames)


def read(spark: Any, t: str) -> list[tuple[Any, ...]]:
    return rows(spark_ext.read(spark).load(t))


def test_a_table_is_created(spark: Any, table: str) -> None:
    query = """CREATE TABLE {t} (
        id BIGINT NOT NULL COMMENT 'the key', twice bigint generated always as (id * 2),
        v VARCHAR(3) DEFAULT 'a,b', st struct<a: int, b: array<int>>, pq date
    ) USING deltalog PARTITIONED BY (pq) COMMENT "it's a table"
    TBLPROPERTIES ('delta.enableChangeDataFeed' = true, delta.feature.allowColumnDefaults = 'supported', own = :x)"""
    done = run(spark, table, query, {"x": "y"})
    assert (done.columns, done.collect()) == ([], [])
    made = deltalog.DeltaTable.open(table).snapshot()
    fields = [(f.name, str(f.data_type), f.nullable) for f in made.schema.fields]
    assert fields[:3] == [("id", "long", False), ("twice", "long", True), ("v", "string", True)]
    assert made.schema.field("id").metadata["comment"] == "the key"
    assert made.schema.field("v").metadata["CURRENT_DEFAULT"] == "'a,b'"
    assert (made.partition_columns, made.metadata.description) == (("pq",), "it's a table")
    assert made.metadata.configuration["own"] == "y"
    run(spark, table, "insert into {t} (id, pq) values (1, date'2026-01-01'), (2, null)")
    assert [row[:3] for row in read(spark, table)] == [(1, 2, "a,b"), (2, 4, "a,b")]
    with pytest.raises(deltalog.TableExistsError):
        run(spark, table, "create table {t} (id int)")
    run(spark, table, "create table if not exists {t} (id int)")
    assert versions(table) == [0, 1]
    run(spark, table, "create or replace table {t} (n int) tblproperties ('delta.appendOnly' = 'false')")
    assert (read(spark, table), spark_ext.read(spark).load(table).columns) == ([], ["n"])
    assert action(table, 2, "commitInfo")[0]["operation"] == "CREATE OR REPLACE TABLE"


def test_a_table_is_created_from_a_query(spark: Any, table: str) -> None:
    query = """create table {t} using delta partitioned by (p) comment 'made'
        tblproperties ('delta.appendOnly' = 'false')
        as with a as (select 1L as id, :p as p) select * from a"""
    run(spark, table, query, {"p": "x"})
    made = deltalog.DeltaTable.open(table).snapshot()
    assert (read(spark, table), made.partition_columns) == ([(1, "x")], ("p",))
    assert (made.metadata.description, made.metadata.configuration["delta.appendOnly"]) == ("made", "false")
    run(spark, table, "create table if not exists {t} as select 1 as other")
    with pytest.raises(deltalog.TableExistsError):
        run(spark, table, "create table {t} as select 1 as other")
    run(spark, table, "create or replace table {t} comment 'again' as select id + 1 as id from {t}")
    assert (read(spark, table), versions(table)) == ([(2,)], [0, 1])
    assert deltalog.DeltaTable.open(table).snapshot().metadata.description == "again"
    run(spark, table, "replace table {t} as select * from {frame}", None, frame=spark.range(3))
    assert read(spark, table) == [(0,), (1,), (2,)]
    with pytest.raises(deltalog.TableNotFoundError):
        run(spark, f"{table}2", "replace table {t} as select 1 as id")
    with pytest.raises(deltalog.TableNotFoundError):
        run(spark, f"{table}2", "replace table {t} (id int)")


@pytest.fixture
def catalog(spark: Any, tmp_path: Path) -> Iterator[Path]:
    with session_of(spark, {"spark.deltalog.catalog": str(tmp_path / "catalog.db")}):
        yield tmp_path


def test_tables_with_names(spark: Any, catalog: Path) -> None:
    place = catalog / "people"
    spark_ext.sql(spark, f"create table shop.people (id int, s string) using delta location '{place}'")
    spark_ext.sql(spark, "insert into shop.people select 1, 'a'")
    spark_ext.sql(spark, "insert into shop.people(s, id) values ('b', 2)")
    spark_ext.sql(spark, "insert into shop.people by name select 'c' as s, 3 as id")
    assert rows(spark_ext.sql(spark, "select * from shop.people")) == [(1, "a"), (2, "b"), (3, "c")]
    other = catalog / "other"
    spark_ext.sql(
        spark, f"create table other using deltalog location '{other}' as select * from shop.people version as of 1"
    )
    assert rows(spark_ext.sql(spark, "select * from other")) == [(1, "a")]
    spark_ext.sql(spark, "create or replace table other as select 7 as n")
    assert rows(spark_ext.sql(spark, "select * from other")) == [(7,)]
    with pytest.raises(deltalog.TableExistsError):
        spark_ext.sql(spark, "create table other (n int) using delta")
    spark_ext.sql(spark, "create table plain using parquet as select n from other")
    assert rows(spark.table("plain")) == [(7,)]
    spark.sql("drop table plain")


def test_rows_are_inserted(spark: Any, table: str) -> None:
    run(spark, table, PARTITIONED + " tblproperties ('delta.feature.allowColumnDefaults' = 'supported')")
    assert run(spark, table, "INSERT INTO TABLE {t} VALUES (1, 'a', 'x'), (2, DEFAULT, 'y')").collect() == []
    run(spark, table, "with q as (select 3 as id) insert into {t} (id, p) select id, 'x' from q")
    run(spark, table, "insert into {t} partition (p = 'z') select 4, :s", {"s": "d"})
    assert read(spark, table) == [(1, "a", "x"), (2, "none", "y"), (3, "none", "x"), (4, "d", "z")]
    run(spark, table, "insert overwrite {t} partition (p = 'x') values (5, 'e')")
    run(spark, table, "insert into {t} replace where id = 4 select 4, 'f', 'z'")
    assert read(spark, table) == [(2, "none", "y"), (4, "f", "z"), (5, "e", "x")]
    with session_of(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        run(spark, table, "insert overwrite {t} select 6, 'g', 'y'")
    assert read(spark, table) == [(4, "f", "z"), (5, "e", "x"), (6, "g", "y")]
    run(spark, table, "insert with schema evolution into {t} by name select 7L as id, 'q' as p, 1 as n")
    assert read(spark, table)[-1] == (7, "none", "q", 1)
    run(spark, table, "insert overwrite table {t} table {frame}", None, frame=spark.sql("select 8, 'h', 'x', 2"))
    assert read(spark, table) == [(8, "h", "x", 2)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("create table {t} (id)", "The type of a column is missing"),
        ("create table {t} (id int first)", "position of a column.*line 1, column "),
        ("create table {t} (id bigint generated always as identity)", "identity column"),
        ("create table {t} (id bigint generated by default as identity)", "identity column"),
        ("create table {t} (id int) using parquet", "USING parquet"),
        ("create table {t} (id int) clustered by (id) into 2 buckets", "CLUSTERED is not supported"),
        ("create table {t} like other", "CREATE TABLE LIKE"),
        ("create table {t} shallow clone other", "source of a clone must be a deltalog table"),
        ("create or replace table {t} deep clone delta.`/x`", "A clone cannot replace a table"),
        ("create table {t} (id int) as select 1", "leave out the list of columns"),
        ("create table {t} (id int) location '/x'", "cannot have a LOCATION"),
        ("create or replace table if not exists {t} (id int)", "IF NOT EXISTS cannot follow"),
        ("create table {t} (id int) nonsense", "Unexpected 'nonsense'"),
    ],
)
def test_tables_that_are_not_created(spark: Any, table: str, query: str, message: str) -> None:
    with pytest.raises((deltalog.CallError, deltalog.UnsupportedFeatureError), match=message):
        run(spark, table, query)
    assert versions(table) == []


def test_rows_that_are_not_inserted(spark: Any, table: str) -> None:
    run(spark, table, "create table {t} (id int, s string)")
    for query, message in {
        "insert into {t} values (1)": "has 2 columns",
        "insert into {t} (id) values (1, 2)": "INSERT lists 1 columns",
        "insert into {t} (id, ID) values (1, 2)": "inserted twice",
        "insert into {t} (id, nope) values (1, 2)": "nope",
        "insert into {t} partition (nope = 1) values (1, 2)": "no column nope",
        "insert overwrite {t} replace where id = 1 values (1, 'a')": "REPLACE WHERE needs INSERT INTO",
        "insert into {t} replace where id = 1 values (2, 'a')": "",
        "insert into {t} values (3000000000, 'a')": "new value of column id",
        "insert into {t}": "query is missing",
        "explain insert into {t} select 1, 'a'": "INSERT cannot write",
        "from {t} insert overwrite {t} select id, s": "INSERT cannot write",
    }.items():
        with pytest.raises(Exception, match=message):
            run(spark, table, query).collect()
    assert versions(table) == [0]
