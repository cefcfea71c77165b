from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from tests.spark.tables import history, rows, versions

ONE = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture(scope="module")
def t(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table whose versions 0, 1 and 2 have 0, 1 and 2 rows, committed on 2026-01-01, -02 and -03 at 00:00 UTC."""
    path = str(tmp_path_factory.mktemp("sql") / "ta`ble@home")
    history(path, ONE.schema, [None, ONE, ONE], [1_767_225_600_000, 1_767_312_000_000, 1_767_398_400_000])
    return path.replace("`", "``")


def first(spark: Any, query: str, *args: Any, **frames: Any) -> Any:
    return spark_ext.sql(spark, query, *args, **frames).collect()[0][0]


@pytest.mark.parametrize(
    ("clause", "count"),
    [
        ("", 2),
        ("version as of 1", 1),
        ("VERSION AS OF '1'", 1),
        ("FOR SYSTEM_VERSION AS OF 0", 0),
        ("FOR VERSION AS OF 1 AS x", 1),
        ("TIMESTAMP AS OF '2026-01-02'", 1),
        ('TIMESTAMP AS OF "2026-01-02" x', 1),
        ("TIMESTAMP AS OF r'2026-01-02'", 1),
        ("FOR SYSTEM_TIME AS OF '2026-01-01T23:59:59.999Z' AS x", 0),
        ("TIMESTAMP AS OF timestamp'2026-01-02 00:00:00'", 1),
        ("TIMESTAMP AS OF date'2026-01-02'", 1),
        ("TIMESTAMP AS OF (date'2026-01-03' - interval 1 day)", 1),
        ("TIMESTAMP AS OF to_timestamp('02.01.2026', 'dd.MM.yyyy') x WHERE x.id = 1", 1),
        ("TIMESTAMP /* a */ AS -- b\n OF '2026-01-02'", 1),
        ("TIMESTAMP AS OF :moment", 1),
        ("VERSION AS OF :version where id = :id", 1),
        ("tablesample (100 percent)", 2),
    ],
)
def test_clauses(spark: Any, t: str, clause: str, count: int) -> None:
    args = {"moment": "2026-01-02", "version": 1, "id": 1}
    used = {name: value for name, value in args.items() if f":{name}" in clause}
    assert first(spark, f"select count(*) from deltalog.`{t}` {clause}", used or None) == count


def test_moments_outside_of_the_history(spark: Any, t: str) -> None:
    early, late = (f"select count(*) from deltalog.`{t}` TIMESTAMP AS OF '{year}'" for year in (2020, 2030))
    with pytest.raises(deltalog.TimestampOutOfRangeError, match=r"can_return_last_commit=True of spark_ext\.sql"):
        spark_ext.sql(spark, late, can_return_earliest_commit=True)
    assert first(spark, late, can_return_last_commit=True) == 2
    with pytest.raises(deltalog.TimestampOutOfRangeError, match="can_return_earliest_commit=True"):
        spark_ext.sql(spark, early, can_return_last_commit=True)
    assert first(spark, early, can_return_earliest_commit=True) == 0
    last = f"select max(id) from deltalog.`{t}` TIMESTAMP AS OF '2030'"
    both = f"select ({last}), count(*) from deltalog.`{t}` version as of 1"
    assert rows(spark_ext.sql(spark, both, can_return_last_commit=True)) == [(1, 1)]


def test_a_path_with_a_suffix_inside_the_backticks(spark: Any, t: str) -> None:
    assert first(spark, f"select count(*) from `deltalog`.`{t}@v1`") == 1
    assert first(spark, f"select count(*) from Deltalog . `{t}@20260102000000000` x") == 1
    with pytest.raises(deltalog.CallError, match="as its suffix"):
        spark_ext.sql(spark, f"select * from deltalog.`{t}@v1` version as of 1")


def test_several_references_are_each_at_their_version(spark: Any, t: str) -> None:
    query = f"""
      with old as (select * from deltalog.`{t}` version as of 0)
      select (select count(*) from old), count(*), max(b.id)
      from deltalog.`{t}` a, deltalog.`{t}` version as of 1 b left join deltalog.`{t}` c on b.id = c.id
    """
    assert rows(spark_ext.sql(spark, query)) == [(0, 4, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "'from deltalog.`x`'",
        "'it''s deltalog.`x` {t0} {'",
        r"'back\\' || ' \' deltalog.`x` '",
        '"deltalog.`x` }"',
        "r'\\'",
        "'a' -- deltalog.`x` ' \n",
        "'a' /* deltalog.`x` ' /* nested */ deltalog.`y` */",
        "'`' || '{{t0}}'",
    ],
)
def test_strings_and_comments_are_left_alone(spark: Any, t: str, text: str) -> None:
    expected = spark.sql(f"select {text}").collect()[0][0]
    row = spark_ext.sql(spark, f"select {text}, count(*) from deltalog.`{t}` version as of 1").collect()[0]
    assert (row[0], row[1]) == (expected, 1)


def test_queries_without_a_reference_go_through_unchanged(spark: Any) -> None:
    assert first(spark, "select '{x}' || :a", {"a": "y"}) == "{x}y"
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        spark_ext.sql(spark, "select * from deltalog.`x` where 'open")
    frame = spark.range(3)
    assert first(spark, "select count(*) from {frame}", frame=frame) == 3
    with pytest.raises(Exception, match="deltalog"):
        spark_ext.sql(spark, "select * from other.deltalog.`x`")


def test_frames_and_references_together(spark: Any, t: str) -> None:
    taken = spark.range(5)
    query = f"select count(*) from {{t0}} join deltalog.`{t}` d using (id)"
    assert first(spark, query, t0=taken) == 2


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("(select count(*) from {t})", 2),
        ("with a as (select * from {t}) select count(*) from a", 2),
        ("from {t} select count(*)", 2),
        ("select count(*) from (table {t})", 2),
        ("select count(*) from ({t} a join {t} b on a.id = b.id)", 4),
        ("select count(*) from range(3) r, {t} version as of 1 t where r.id = t.id", 1),
        ("select count(*) from {t} a join {t} b using (id), {t} c", 8),
        ("select (select count(*) from {t}) + 1 where exists (table {t})", 3),
        ("select extract(year from deltalog.`day`) from (select date'2026-01-01' as day from {t}) deltalog", 2026),
        ("select min(delta.`id`) from {t} delta order by min(delta.`id`)", 1),
        ("select count(*) from delta.`{p}` version as of 1", 1),
        ("select count(*) from `delta`.`{p}@v0`", 0),
        ("describe {t} version as of 1", "id"),
        ("describe table extended {t}", "id"),
        ("describe query select 1 as x from {t}", "x"),
        ("desc {t} id", "col_name"),
        ("show columns from {t}", "id"),
        ("show columns in {t}", "id"),
        ("select count(*) -- from {t} \\\n from deltalog.`nowhere` 'x\n from {t};", 2),
    ],
)
def test_queries(spark: Any, t: str, query: str, answer: Any) -> None:
    assert first(spark, query.replace("{t}", f"deltalog.`{t}`").replace("{p}", t)) == answer


def test_explain_is_of_the_query(spark: Any, t: str) -> None:
    plan = first(spark, f"explain formatted select id from deltalog.`{t}`")
    assert "Scan parquet" in plan


def test_temporary_views(spark: Any, t: str) -> None:
    done = spark_ext.sql(spark, f"create temp view `v 1` as select * from deltalog.`{t}` version as of 1; -- done")
    assert done.collect() == [] and done.columns == []
    assert rows(spark.sql("select * from `v 1`")) == [(1,)]
    with pytest.raises(Exception, match="ALREADY_EXISTS"):
        spark_ext.sql(spark, f"create temporary view `v 1` as table deltalog.`{t}`")
    named = "create or replace temp view `v 1` (`a b` comment 'the first', c)"
    spark_ext.sql(spark, f"{named} as select id, :x from deltalog.`{t}`", {"x": "{}"})
    found = spark.table("`v 1`")
    assert rows(found) == [(1, "{}"), (1, "{}")] and found.columns == ["a b", "c"]
    assert found.schema["a b"].metadata["comment"] == "the first"
    spark_ext.sql(spark, f"create global temporary view v2 as select * from deltalog.`{t}`")
    assert spark.table("global_temp.v2").count() == 2
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        spark_ext.sql(spark, f"create temp view v3 as insert into x select * from deltalog.`{t}`")
    spark.catalog.dropTempView("`v 1`")
    spark.catalog.dropGlobalTempView("v2")


def test_other_tables_are_written(spark: Any, t: str) -> None:
    spark_ext.sql(spark, f"create table made using parquet as select * from deltalog.`{t}` version as of 1")
    spark_ext.sql(spark, f"with a as (select * from deltalog.`{t}`) insert into made select id + 1 from a")
    spark_ext.sql(spark, f"insert into table made table deltalog.`{t}` version as of 1")
    spark_ext.sql(spark, f"from deltalog.`{t}` insert into made select id + 2 where id > 0")
    assert rows(spark.table("made")) == [(1,), (1,), (2,), (2,), (3,), (3,)]
    spark_ext.sql(spark, f"insert overwrite made select * from delta.`{t}`")
    assert rows(spark.table("made")) == [(1,), (1,)]
    spark_ext.sql(spark, f"create table like_it like deltalog.`{t}`")
    assert spark.table("like_it").columns == ["id"]
    spark.sql("drop table made")
    spark.sql("drop table like_it")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select {t}.id from {t}", "Give the table an alias"),
        ("explain insert into {t} select 1", "INSERT cannot write"),
        ("from {t} insert overwrite {t} select id", "INSERT cannot write"),
        ("create view v as select * from {t}", "CREATE TEMPORARY VIEW"),
        ("create temp view v comment 'x' as select * from {t}", "can only have a list of columns"),
        ("create temp view if not exists v as select * from {t}", "can only have a list of columns"),
        ("explain create temp view v as select * from {t}", "cannot store"),
        ("create temp function f() returns long return select max(id) from {t}", "cannot store"),
        ("cache table v as select * from {t}", "createOrReplaceTempView"),
        ("drop table delta.`{p}`", "cannot drop a table by path"),
        ("explain drop table delta.`{p}`", "DROP statements"),
        ("begin select * from {t}; end", "one at a time"),
        ("describe detail {t} limit 1", "cannot be followed by limit 1"),
        ("describe history {t} limit x", "cannot be followed by limit x"),
        ("select * from {t}.x", "followed by a dot"),
        ("select * from {t} timestamp as of current_timestamp() - interval 1 day", "in parentheses"),
        ("select * from {t} timestamp as of", "no value after it"),
        ("select * from {t} timestamp as of (now()", "is not closed"),
        ("select * from {t} version as of :v", "marker :v .* is not in args"),
        ("select * from {t} version as of x", "versionAsOf is 'x'"),
    ],
)
def test_what_cannot_be_done_says_so(spark: Any, t: str, query: str, message: str) -> None:
    before = versions(t.replace("``", "`"))
    with pytest.raises(deltalog.CallError, match=message):
        spark_ext.sql(spark, query.replace("{t}", f"deltalog.`{t}`").replace("{p}", t))
    assert versions(t.replace("``", "`")) == before


def test_versions_and_moments_outside_of_the_history(spark: Any, t: str, tmp_path: Path) -> None:
    for point in ("version as of 9", "version as of -1"):
        with pytest.raises(deltalog.VersionNotFoundError):
            spark_ext.sql(spark, f"select * from deltalog.`{t}` {point}")
    for point in ("'2025-12-31'", "(timestamp'2026-01-03 00:00:00' + interval 1 millisecond)", "current_timestamp()"):
        with pytest.raises(deltalog.TimestampOutOfRangeError) as error:
            spark_ext.sql(spark, f"select * from deltalog.`{t}` timestamp as of {point}")
        assert (error.value.earliest_ms, error.value.latest_ms) == (1_767_225_600_000, 1_767_398_400_000)
    for point in ("'now'", "'10:00'", "1767312000", "-1", "cast(null as timestamp)"):
        with pytest.raises(deltalog.InvalidTimestampError):
            spark_ext.sql(spark, f"select * from deltalog.`{t}` timestamp as of {point}")
    with pytest.raises(deltalog.TableNotFoundError):
        spark_ext.sql(spark, f"select * from deltalog.`{tmp_path}/none`")


def test_the_session_time_zone_counts(spark: Any, t: str, zone: Any) -> None:
    zone("Asia/Tokyo")
    assert first(spark, f"select count(*) from deltalog.`{t}` timestamp as of '2026-01-02 09:00:00'") == 1
    assert first(spark, f"select count(*) from deltalog.`{t}` timestamp as of '2026-01-02 08:59:59.999'") == 0
    assert first(spark, f"select count(*) from deltalog.`{t}` timestamp as of timestamp'2026-01-02 09:00:00'") == 1
