"""Statements of spark_ext.sql on tables by name in the session's catalog."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from spark_ext.parse.table_references import Statement, tokens_of
from tests.spark.tables import rows, versions


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A catalog with the tables sales, shop.sales (both with two versions, partitioned by p) and `odd name`."""
    place = tmp_path_factory.mktemp("names")
    spark_ext.use_catalog(spark, str(place / "catalog.db"))
    for name, first in (("sales", 0), ("shop.sales", 10), ("`odd ``name`", 20)):
        rows = "id", "id % 2 AS p", "named_struct('id', id + 100) AS sales"
        for begin in (first, first + 4):
            writer = spark_ext.write(spark.range(begin, begin + 4).selectExpr(*rows)).partitionBy("p")
            writer = writer.option("path", str(place / f"table {first}")) if begin == first else writer.mode("append")
            writer.saveAsTable(name)
    yield place
    spark_ext.use_catalog(spark, None)


def asked(spark: Any, query: str, *args: Any, **frames: Any) -> list[tuple[Any, ...]]:
    return rows(spark_ext.sql(spark, query, *args, **frames))


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("select count(*) from sales", 8),
        ("select min(id) from default.sales", 0),
        ("select min(id) from `shop`.`sales` where p = 0", 10),
        ("select max(id) from `odd ``name`", 27),
        ("select count(*) from sales version as of 0", 4),
        ("select count(*) from sales for system_version as of 0 x", 4),
        ("select count(*) from `sales@v0`", 4),
        ("select max(s.id) from shop.sales timestamp as of '9999-01-01' s", None),
        ("select sum(sales.id) from sales where sales.id > 5", 13),
        ("select max(sales.sales.id) from sales where sales.id = 3", 103),
        ("select count(*) from sales tablesample (100 percent) where sales.id < 3", 3),
        ("select count(*) from sales tablesample (100 percent) repeatable (1) as s where s.id < 3", 3),
        ("select count(*) from sales a join sales b on a.id = b.id + 1", 7),
        ("select count(*) from sales, shop.sales s where sales.id + 10 = s.id", 8),
        ("select count(*) from (sales join shop.sales s on sales.id + 10 = s.id)", 8),
        ("select count(*) from sales left anti join `odd ``name` o on sales.id = o.id", 8),
        ("select count(*) from sales where id in (select id - 10 from shop.sales where sales.id = 105)", 0),
        ("select count(*) from sales s where exists (select 1 from shop.sales where sales.id = s.id + 10)", 8),
        ("with sales as (select 1 as id) select count(*) from sales", 1),
        ("with Sales as (select 1 as id) select count(*) from sales", 1),
        ("with sales as (select * from sales where id > 4) select count(*) from sales", 3),
        ("with sales(x) as (select id from sales), b as (table sales) select sum(x) from b", 28),
        ("with sales (select 5 as id) select id from sales", 5),
        ("select (select count(*) from (with sales as (select 1) select * from sales)) + count(*) from sales", 9),
        ("with a as (with sales as (select 1 x) select * from sales) select count(*) from a, sales", 8),
        ("with sales as (select 1 x) select count(*) from shop.sales", 8),
        ("(with sales as (select 1 x) table sales) union all select count(*) from sales order by x desc limit 1", 8),
        ("select max(n) from sales lateral view explode(array(1, 2)) e as n", 2),
        ("select count(*) from sales pivot (max(id) for p in (0, 1))", 8),
        ("from sales select max(id)", 7),
        ("select max(id) from (table shop.sales)", 17),
        ("select extract(year from sales.d) from (select date'2026-01-01' as d from sales) as sales limit 1", 2026),
        ("select sum(sales) from (select id as sales from sales)", 28),
        ("select count(distinct x.sales), '{' from {frame} x", 2),
        ("describe sales", "id"),
        ("desc table extended shop.sales", "id"),
        ("describe history sales limit 1", 1),
        ("describe detail shop.sales", "delta"),
        ("show columns from shop.sales", "id"),
    ],
)
def test_queries(spark: Any, catalog: Path, query: str, answer: Any) -> None:
    if answer is None:
        with pytest.raises(deltalog.TimestampOutOfRangeError):
            spark_ext.sql(spark, query)
        return
    frames = {"frame": spark.sql("select explode(array(1, 2)) as sales")} if "{frame}" in query else {}
    assert spark_ext.sql(spark, query.replace("'{'", "1") if frames else query, **frames).collect()[0][0] == answer


def test_paths_names_and_sparks_own_tables_together(spark: Any, catalog: Path) -> None:
    spark.range(3).createOrReplaceTempView("mine")
    try:
        query = f"select count(*) from sales, mine, deltalog.`catalog:{catalog}/catalog.db#shop.sales` version as of 0"
        assert asked(spark, query) == [(96,)]
        assert asked(spark, "select max(mine.id) from mine") == [(2,)]
    finally:
        spark.catalog.dropTempView("mine")
    spark_ext.sql(spark, "create temp view kept as select sales.id from sales where sales.p = 1")
    assert rows(spark.table("kept")) == [(1,), (3,), (5,), (7,)]
    spark.catalog.dropTempView("kept")
    spark_ext.sql(spark, "create table made using parquet as select id from sales version as of 0")
    spark_ext.sql(spark, "insert into made select id from shop.sales where p = :p and id < 13", {"p": 0})
    assert rows(spark.table("made")) == [(0,), (1,), (2,), (3,), (10,), (12,)]
    spark.sql("drop table made")


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("select * from sales where sales.id = 5", "id = 5"),
        ("select * from sales where p = 1", "p = 1"),
        ("select s.id from sales s join shop.sales using (p) where s.id > 100", None),
        # The qualifier takes precedence over the struct of the same name.
        ("select * from sales where sales.id < 3", "id < 3"),
        ("with sales as (select * from sales where id < 3) select * from sales where p = 1", "id < 3"),
    ],
)
def test_files_that_are_left_out(spark: Any, catalog: Path, query: str, kept: str | None) -> None:
    found = {urllib.parse.unquote(os.path.basename(each)) for each in spark_ext.sql(spark, query).inputFiles()}
    if kept is None:
        other = deltalog.DeltaTable.open(f"catalog:{catalog}/catalog.db#shop.sales").snapshot().files()
        assert found <= {os.path.basename(each) for each in other["path"].to_pylist()}
        return
    snapshot = deltalog.DeltaTable.open(f"catalog:{catalog}/catalog.db#sales").snapshot()
    files = snapshot.scan(where=kept).files()["path"].to_pylist()
    assert found == {os.path.basename(each) for each in files} and len(files) < len(snapshot.files())


def test_what_both_have_is_an_error(spark: Any, catalog: Path) -> None:
    spark.range(3).createOrReplaceTempView("sales")
    try:
        with pytest.raises(deltalog.CallError, match=r"sales is a table of the catalog .* also a table"):
            spark_ext.sql(spark, "select * from sales")
        assert asked(spark, "select count(*) from default.sales") == [(8,)]
        assert asked(spark, "with sales as (select 1) select count(*) from sales") == [(1,)]
        assert asked(spark, f"select count(*) from deltalog.`catalog:{catalog}/catalog.db#sales`") == [(8,)]
    finally:
        spark.catalog.dropTempView("sales")
    spark.sql("create table sales (x int) using parquet")
    try:
        for query in ("select * from default.sales", "insert into sales values (1)", "drop table sales"):
            with pytest.raises(deltalog.CallError, match="also a table or a view of Spark"):
                spark_ext.sql(spark, query)
        assert asked(spark, "select count(*) from spark_catalog.default.sales") == [(0,)]
    finally:
        spark.sql("drop table sales")


def test_names_that_the_catalog_does_not_know_are_sparks(spark: Any, catalog: Path) -> None:
    for query in ("select * from nothing", "select * from shop.nothing", "select * from Sales", "table shop.nothing"):
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark_ext.sql(spark, query)
    spark.range(3).write.parquet(str(catalog / ("x" * 200) / ("y" * 100)))
    assert asked(spark, f"select count(*) from parquet.`{catalog}/{'x' * 200}/{'y' * 100}`") == [(3,)]
    spark_ext.use_catalog(spark, None)
    try:
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark_ext.sql(spark, "select * from sales")
    finally:
        spark_ext.use_catalog(spark, str(catalog / "catalog.db"))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("from sales insert into shop.sales select id", "INSERT cannot write the table shop.sales"),
        ("create table sales (id long)", "A table sales already exists at"),
        ("create view v as select * from sales", "CREATE TEMPORARY VIEW"),
        ("cache table v as select * from sales", "createOrReplaceTempView"),
        ("select * from sales version as of 9", "9"),
        ("select * from sales timestamp as of current_timestamp() - interval 1 day", "in parentheses"),
    ],
)
def test_what_cannot_be_done_says_so(spark: Any, catalog: Path, query: str, message: str) -> None:
    with pytest.raises(deltalog.DeltaLogError, match=message):
        spark_ext.sql(spark, query)
    assert versions(str(catalog / "table 0")) == [0, 1] and versions(str(catalog / "table 10")) == [0, 1]


def test_a_registered_table_that_is_gone(spark: Any, catalog: Path, tmp_path: Path) -> None:
    manager = deltalog.TransactionManager(str(catalog / "catalog.db"))
    manager.create_table("gone", str(tmp_path / "gone"), spark_ext.from_spark(spark.range(1).schema))
    try:
        (tmp_path / "gone").rename(tmp_path / "elsewhere")
        with pytest.raises(deltalog.TableNotFoundError, match="gone"):
            spark_ext.sql(spark, "select * from gone")
    finally:
        (tmp_path / "elsewhere").rename(tmp_path / "gone")
        manager.drop_table("gone")


# --- table names in statements, compared with Spark's parser

_STATEMENTS = [
    "select a, b.c from t1 a join s.t2 on a.x = t2.y, t3 where exists (select 1 from t4) order by a, t5",
    "with t1 as (select * from t1), t2 as (select * from t1) select * from t2, t3, (with t3 as (table t4) table t3)",
    "with t1 as (select 1), t2 as (select 2) select * from t1 union select * from t2 union all (select * from t3)",
    "with a (x, y) as (select 1, 2 from t1) from a, t2 select x",
    "select * from t1 lateral view explode(array(1)) t2 as t3, t4",
    "select * from t1 left semi join t2 using (a, b) cross join lateral (select * from t3 where t3.a = t1.b) t4",
    "select extract(year from t1), trim(both 'x' from t2), substring(t3 from 1 for 2) from t4",
    "select a is distinct from t1 from t2",
    "select * from range(3) t1, t2",
    "select * from values (1, 2), (3, 4) as t1(a, b), t2",
    "select sum(a) over (partition by t1, t2 order by t3), t4 from t5 window w as (order by t6), v as (order by t7)",
    "select * from t1 pivot (sum(a) for b in ('x', 'y')) group by grouping sets ((a), (t2))",
    "select * from t1 tablesample (10 percent) x, t2 tablesample (5 rows), t3",
    "from t1 insert into t2 select a insert into t3 select b, t4 where c",
    "select * from (t1 join t2 on true), ((t3)), (select * from t4) t5",
    "select * from t1 where a in (select b from t2 where c > all_of) and d = any_of group by e, t3 having f limit 3",
    "select t1.*, t2.a.b from s.t1, s.t2 natural join t3 full outer join t4 on t3.x = t4.x, t5",
    "select `from`, 'from t1' from `t 2` -- from t3\n, /* t4 */ t5",
    "select * from t1 a except select * from t2 intersect (table t3)",
    "values (1, (select max(a) from t1)), (2, 3)",
    "insert into t1 (a, b) select a, b from t2",
    "insert overwrite table s.t1 partition (p = 1) select * from t2",
    "select a as overwrite, b as into, c as update, t1.x from t2 as t1",
    "select transform(a, b) using 'cat' as (c, d) from t1",
    "select /*+ broadcast(t1) */ * from t2 t1, t3",
    "select * from t2, deltalog.`t3`, t4",
    "select case when a then (select b from t1) else c end, if(d, e, t2) from t3 sort by t4, t5",
    "select interval 1 day, a from t1 for version as of 3 x, t2 version as of 4",
    "select * from t1 cluster by a, t2",
    "select * from t1 |> where a > 1 |> join t2 using (b) |> select c, t3",
]


def _by_spark(spark: Any, text: str) -> set[str] | None:
    """Table names in the parser's plan, without CTEs; None for text that this version of Spark cannot parse."""
    catalyst = spark._jvm.org.apache.spark.sql.catalyst
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except Exception:
        return None
    text = catalyst.analysis.CTESubstitution.apply(plan).toString()
    return {".".join(found.split(", ")) for found in re.findall(r"UnresolvedRelation \[([^\]]*)\]", text)}


@pytest.mark.classic("the test calls Spark's parser in the JVM")
def test_names_are_where_spark_has_them(spark: Any) -> None:
    compared = 0
    for text in _STATEMENTS:
        expected = _by_spark(spark, text)
        if expected is None:
            continue
        tokens = tokens_of(text)
        assert tokens is not None
        statement = Statement(text, tokens)
        found = {name.removeprefix("default.") for name, _ in statement.other_names}
        found |= {f"deltalog.{reference.path}" for reference in statement.references}
        assert found == expected, text
        compared += 1
    assert compared > len(_STATEMENTS) * 3 // 4
