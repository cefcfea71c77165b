"""DELETE, UPDATE and MERGE in spark_ext.sql."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from spark_ext.parse.cursor import Cursor, literal, with_literals
from spark_ext.parse.table_references import Statement, tokens_of
from tests.spark.settings import session_of
from tests.spark.tables import action, rows, versions


@pytest.fixture
def t(spark: Any, table: str) -> str:
    """A table with the rows (1, a), (2, b), (3, c)."""
    frame = spark.createDataFrame([(1, "a"), (2, "b"), (3, "c")], "id long, s string").coalesce(1)
    spark_ext.write(frame).option("delta.enableDeletionVectors", "true").save(table)
    return table


def run(spark: Any, t: str, query: str, *args: Any, **frames: Any) -> Any:
    return spark_ext.sql(spark, query.replace("{t}", f"delta.`{t}`"), *args, **frames)


def read(spark: Any, t: str) -> list[tuple[Any, ...]]:
    return rows(spark_ext.read(spark).load(t))


def test_rows_are_deleted(spark: Any, t: str) -> None:
    done = run(spark, t, "-- a comment\nDELETE FROM {t} AS x WHERE x.s = :s or id = :id;", {"s": "it's \\ b", "id": 2})
    assert (done.columns, done.collect()) == (["num_affected_rows"], [(1,)])
    assert run(spark, t, "delete from {t} where id > ?", [7]).collect() == [(0,)]
    assert read(spark, t) == [(1, "a"), (3, "c")]
    assert action(t, 1, "commitInfo")[0]["operation"] == "DELETE"
    assert run(spark, t, "delete from {t}").collect() == [(2,)]
    assert (read(spark, t), versions(t)) == ([], [0, 1, 2])


def test_rows_are_updated(spark: Any, t: str) -> None:
    query = "update {t} x set s = case when x.id = 1 then 'x, y' else s end, id = (id + 10) where x.id < 3"
    assert run(spark, t, query).collect() == [(2,)]
    assert read(spark, t) == [(3, "c"), (11, "x, y"), (12, "b")]
    assert run(spark, t, "UPDATE {t} SET s = default").collect() == [(3,)]
    assert {row[1] for row in read(spark, t)} == {None}


def test_a_table_of_the_catalog(spark: Any, t: str, tmp_path: Path) -> None:
    catalog = str(tmp_path / "catalog.db")
    with session_of(spark, {"spark.deltalog.catalog": catalog}):
        spark_ext.write(spark_ext.read(spark).load(t)).option("path", str(tmp_path / "named")).saveAsTable(
            "shop.people"
        )
        assert spark_ext.sql(spark, "delete from shop.people where people.id = 1").collect() == [(1,)]
        assert spark_ext.sql(spark, "update shop.people set people.s = 'z' where id = 2").collect() == [(1,)]
        merged = "merge into shop.people using (select 2 as id) q on people.id = q.id when matched then delete"
        assert spark_ext.sql(spark, merged).collect() == [(1, 0, 1, 0)]
        assert rows(spark_ext.sql(spark, "select * from shop.people")) == [(3, "c")]


@pytest.mark.parametrize(
    "source",
    [
        "(select id + 1 as id, s from {t}) as s",
        "(select id + 1, s from {t}) s(id, s)",
        "changes s",
        "changes as s",
        "{frame} s",
        "{t} VERSION AS OF 0 as s",
    ],
)
def test_sources_of_a_merge(spark: Any, t: str, source: str) -> None:
    frame = spark.sql("select * from values (2L, 'a'), (3L, 'b'), (4L, 'c') as v(id, s)")
    frame.createOrReplaceTempView("changes")
    is_itself = "VERSION" in source
    query = f"""MERGE INTO {{t}} AS t USING {source} ON t.id = s.id
        WHEN MATCHED AND s.s = 'a' THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.s = concat(t.s, s.s)
        WHEN NOT MATCHED THEN INSERT *"""
    frames = {"frame": frame} if "{frame}" in source else {}
    done = run(spark, t, query, None, **frames)
    assert done.columns == ["num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"]
    assert done.collect() == [(3, 2, 1, 0) if is_itself else (3, 1, 1, 1)]
    assert read(spark, t) == ([(2, "bb"), (3, "cc")] if is_itself else [(1, "a"), (3, "cb"), (4, "c")])
    spark.catalog.dropTempView("changes")


def test_all_clauses_of_a_merge(spark: Any, t: str) -> None:
    spark.sql("select * from values (1L, 'x'), (9L, 'y'), (8L, 'z') as v(id, s)").createOrReplaceTempView("source")
    query = """merge into {t} using source on {t}.id = source.id
        when matched and source.s = 'x' then update set *
        when not matched by target and source.id = 9 then insert (id, s) values (source.id, default)
        when not matched and case when source.id = 8 then true end then insert (s, id) values ('(' || source.s, 80)
        when not matched by source and t.id = 2 then delete
        when not matched by source then update set s = 'left'"""
    query = query.replace("{t} using", "{t} t using").replace("{t}.id", "t.id")
    assert run(spark, t, query).collect() == [(5, 2, 1, 2)]
    assert rows(spark_ext.read(spark).load(t)) == [(1, "x"), (3, "left"), (9, None), (80, "(z")]
    evolving = """merge with schema evolution into {t} t using (select 1L as id, 'w' as s, 5 as n) q on t.id = q.id
        when matched then update set *"""
    assert run(spark, t, evolving).collect() == [(1, 1, 0, 0)]
    assert spark_ext.read(spark).load(t).columns == ["id", "s", "n"]
    nothing = "merge into {t} t using source on t.id = source.id and false when matched then delete"
    assert run(spark, t, nothing).collect() == [(0, 0, 0, 0)]
    spark.catalog.dropTempView("source")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("delete from {t} where id in (select 1)", r"condition of DELETE has a subquery.*line 1, column \d+"),
        ("update {t} set s = (select 'x')", "value of s has a subquery"),
        ("update {t} set s = 'a', S = 'b'", "S is set twice"),
        ("update {t} set s", "Expected = at the end"),
        ("update {t} set s = where id = 1", "The value of s is missing"),
        ("update {t} set nope = 1", "There is no column nope"),
        ("delete from {t} where id = 1 limit 1) x", "Unexpected"),
        ("delete from {t} version as of 0", "Unexpected|SQL cannot"),
        ("merge into {t} t using {t} s on t.id = s.id", "Expected WHEN"),
        ("merge into {t} t using {t} s on t.id = s.id when matched then insert *", "Expected UPDATE"),
        ("merge into {t} t using {t} s on t.id = s.id when not matched then delete", "Expected INSERT"),
        ("merge into {t} t using {t} s on t.id = s.id when not matched by source then update set *", "Expected a name"),
        (
            "merge into {t} t using {t} s on true when not matched then insert (id) values (1, 2)",
            "1 columns but 2 values",
        ),
        ("merge into {t} t using {t} s on true when not matched then insert (id, ID) values (1, 2)", "inserted twice"),
        ("merge into {t} t using {t} s on t.id in (select 1) when matched then delete", "has a subquery"),
        ("merge into {t} t using {t} s on t.id = s.id when matched then delete\n or more", "line 2, column 2"),
    ],
)
def test_errors_say_where(spark: Any, t: str, query: str, message: str) -> None:
    with pytest.raises(deltalog.CallError, match=message):
        run(spark, t, query)
    assert versions(t) == [0]


def test_arguments_become_literals(spark: Any) -> None:
    given = {
        "a": "it's \\n {x}",
        "b": decimal.Decimal("1.50"),
        "c": datetime.date(2026, 1, 31),
        "d": datetime.datetime(2026, 1, 31, 10, tzinfo=datetime.timezone.utc),
        "e": 2**40,
        "f": 1.5e-7,
        "g": None,
        "h": True,
        "i": datetime.datetime(2026, 1, 31, 10),
    }
    types = [
        field.dataType.simpleString() for field in spark.sql("select :a, :b, :c, :d, :e, :f, :g, :h, :i", given).schema
    ]
    ours = spark.sql("select " + ", ".join(literal(value, name) for name, value in given.items()))
    found = [field.dataType.simpleString() for field in ours.schema]
    assert found[1] == "decimal(3,2)" and types[1] in (found[1], "decimal(10,2)")  # Spark Connect 4.0: decimal(10,2)
    assert [*found[:1], *found[2:8]] == [*types[:1], *types[2:8]]
    assert tuple(ours.collect()[0])[:3] == ("it's \\n {x}", decimal.Decimal("1.50"), datetime.date(2026, 1, 31))
    with pytest.raises(deltalog.CallError, match="argument z is a list"):
        literal([1], "z")
    tokens = tokens_of("delete from t where a = ? and b = ?")
    assert tokens is not None
    with pytest.raises(deltalog.CallError, match="more markers"):
        with_literals(Statement("delete from t where a = ? and b = ?", tokens), [1])


def test_a_cursor_stops_outside_of_parentheses_and_case(spark: Any) -> None:
    text = "case when a then [1, 2] else f(b, c) end , x.when when"
    tokens = tokens_of(text)
    assert tokens is not None
    cursor = Cursor(spark, Statement(text, tokens))
    assert cursor.until(",", "when") == "case when a then [1, 2] else f(b, c) end"
    cursor.expect(",")
    assert cursor.until(",", "when") == "x.when"
