"""Queries whose WHERE clause skips files, or that are answered from the log, return the same result as a scan of the
whole table."""

from __future__ import annotations

import os
import random
import urllib.parse
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import rows

SEED, COUNT = 11, 24  # of random queries
KINDS = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("n", pa.int32()),
        ("s", pa.struct([("n", pa.int32())])),
        ("c", pa.string()),
    ]
)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two tables of 12 files in three partitions, with some null values of n and c."""
    found = []
    for seed in (1, 2):
        choose, path = random.Random(seed), str(tmp_path_factory.mktemp("pruned") / "table")
        table = deltalog.DeltaTable.create(path, KINDS, partition_by=["p"])
        for first in range(0, 40, 10):
            data = [
                {
                    "id": first + i,
                    "p": choose.choice(["a", "b", None]),
                    "n": choose.choice([first, first + i, None]),
                    "s": {"n": first + i},
                    "c": choose.choice(["x", "it's", None]),
                }
                for i in range(10)
            ]
            table.append(pa.Table.from_pylist(data, KINDS))
        found.append(path)
    return found


def part(choose: random.Random, alias: str) -> str:
    dot, number = alias and alias + ".", choose.randrange(-2, 42)
    return choose.choice(
        [
            *(f"{dot}id {op} {number}" for op in ("=", "<", ">=", "<>")),
            *(f"{dot}n {op} {number}" for op in ("=", "<=", ">", "<=>")),
            *(f"{dot}p = 'a'", f"{dot}p in ('b', 'z')", f"{dot}p is null", f"{dot}p is not null", f"{dot}p <> 'a'"),
            *(f"{dot}s.n > {number}", f"not {dot}n = {number}", f"{dot}n is null", f"{dot}id between {number} and 30"),
            *(f'{dot}c = "x"', f"{dot}c = 'it''s'", f"{dot}c like 'it%'", f"{number} < {dot}id", "1 = 1", "1 > 2"),
            *(f"coalesce({dot}n, 5) = 5", f"{dot}id % 2 = 0", f"{dot}p = :p", f"{dot}id > :low"),
            f"exists (select 1 from {{1}} e where e.n = {number} and e.id < 20)",
            f"{dot}id in (select id from {{1}} where p = 'a' and n > {number})",
        ]
    )


def where(choose: random.Random, *aliases: str) -> str:
    parts = [part(choose, choose.choice(aliases)) for _ in range(choose.randrange(4))]
    text = " and ".join(choose.choice([each, f"({each})", f"({each} or {each})", f"not ({each})"]) for each in parts)
    return f" where {text}" if parts else ""


def query(choose: random.Random) -> str:
    """Over the tables {0} and {1}."""
    joins = ["join", "left join", "right join", "full join", "cross join", ","]
    join, second = choose.choice([*joins, "semi join", "anti join"]), choose.choice(joins)
    on = choose.choice([" on x.n = y.n", " using (id)", " on x.id = y.id + 10"])
    bare = ("cross join", ",")
    seen = ["x"] if join in ("semi join", "anti join") else ["x", "y"]
    columns = ", ".join(f"{each}.id" for each in seen)
    both = f"{{0}} x {join} {{1}} as y{'' if join in bare else on}"
    third = f"{second} {{0}} z{'' if second in bare else ' on z.id = x.n'}"
    alone = where(choose, "", "x") if choose.random() < 0.5 else where(choose, "x")
    lateral = "lateral (select max(n) m from {1} y where y.id < x.id and y.p = 'a') z"
    return choose.choice(
        [
            f"select id, n, s.n as m from {{0}} x{alone}",
            f"select p, count(*), min(n) from {{0}} x{alone} group by p having count(*) > 1",
            f"select {columns} from {both}{where(choose, *seen)}",
            f"select {columns} from {both}{where(choose, *seen)}",
            f"select {columns}, z.id from {both} {third}{where(choose, *seen, 'z')}",
            f"with a as (select * from {{0}} x{alone}) select id from a{where(choose, '', 'a')}",
            f"select id from {{0}} x{alone} union all select id from {{1}} x{alone} except select 3",
            f"select count(*) from {{0}} x{alone}",
            f"select count(*) as `how many` from {{0}}{where(choose, '')}",
            f"select max(p), min(x.p) m from {{0}} x{alone}",
            f"select distinct p from {{0}}{where(choose, '')} order by p",
            f"select x.id, m from {{0}} x, {lateral}{where(choose, 'x')}",
            f"select id, row_number() over (order by id) from {{0}} x{alone}",
            f"select id from (select * from {{0}} x{alone} order by id limit 5){where(choose, '')}",
            "select a from {0} as x(a, p, id, s, b) where id = 3 and p is null",
            f"from {{0}} x select id, n{alone}",
        ]
    )


def test_random_queries(spark: Any, paths: list[str]) -> None:
    choose = random.Random(SEED)
    args = {"p": "a", "low": 7}
    whole = [f"whole{i}" for i in range(2)]
    for name, path in zip(whole, paths, strict=True):
        spark_ext.read(spark).load(path).createOrReplaceTempView(name)
    compared = 0
    for _ in range(COUNT):
        text = query(choose)
        used = {name: value for name, value in args.items() if f":{name}" in text} or None
        try:
            expected = [str(row) for row in spark.sql(text.format(*whole), used).collect()]
        except Exception:
            continue  # an ambiguous column name, for example
        found = spark_ext.sql(spark, text.format(*(f"deltalog.`{path}`" for path in paths)), used)
        assert sorted(map(str, found.collect())) == sorted(expected), text
        compared += 1
    assert compared > COUNT * 2 // 3


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("select * from {} where id = 3 and p = 'a'", ["id = 3 and p = 'a'"]),
        ("select * from {} where id >= 30", ["id >= 30"]),
        ("select x.id from {} x left join {} y using (id) where x.id < 10 and y.p is null", ["id < 10", None]),
        ("select x.id from {} x join {} y on x.id = y.id where x.id < 10 and y.p = 'b'", ["id < 10", "p = 'b'"]),
        ("with a as (select * from {} where s.n = 12) select id from a where p = 'a'", ["s.n = 12"]),
        ("select * from {} where p = :p and id < :low", ["p = 'a' and id < 7"]),
        ("select * from {} where p = 'a' /* and id = 3 */ -- and id = 3", ["p = 'a'"]),
    ],
)
def test_files_that_are_left_out(spark: Any, paths: list[str], text: str, kept: list[str | None]) -> None:
    used = {"p": "a", "low": 7} if ":p" in text else None
    found = spark_ext.sql(spark, text.replace("{}", f"deltalog.`{paths[0]}`"), used)
    snapshot = deltalog.DeltaTable.open(paths[0]).snapshot()
    files = {name for where in kept for name in snapshot.scan(where=where).files()["path"].to_pylist()}
    assert {urllib.parse.unquote(os.path.basename(each)) for each in found.inputFiles()} == {
        os.path.basename(each) for each in files
    }


def test_answers_from_the_log(spark: Any, paths: list[str]) -> None:
    table = f"deltalog.`{paths[0]}`"
    for text in (
        "select count(*) from {}",
        "select count(*) as `n` from {} x where x.p = 'a' and p is not null",
        "select min(p), max(p) as m from {}",
        "select distinct p from {} where p <> 'a'",
        "select max(p) from {} where p in ('a', 'b') limit 1",
    ):
        found = spark_ext.sql(spark, text.format(table))
        assert found.inputFiles() == [], text
        expected = spark.sql(text.format("{whole}"), whole=spark_ext.read(spark).load(paths[0]))
        assert rows(found) == rows(expected) and found.dtypes == expected.dtypes, text
    plan = spark_ext.sql(spark, f"explain select count(*) from {table} where p = 'a'").first()[0]
    assert "FileScan parquet" in plan
    for text in (
        "select count(p) from {}",
        "select count(*) from {} where n = 3",
        "select count(*) from {} where rand() < 2",
        "select count(*) + 1 from {}",
        "select max(id) from {}",
        "select p, count(*) from {} group by p",
        "select distinct p from {} where input_file_name() like '%parquet'",
        "select distinct p from {} where length(p) = 1 and rand() < 2",
    ):
        assert spark_ext.sql(spark, text.format(table)).inputFiles(), text


def test_text_that_sessions_read_in_several_ways(spark: Any, paths: list[str]) -> None:
    table = f"deltalog.`{paths[0]}`"
    with session_of(spark, {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}):
        assert spark_ext.sql(spark, f'select id from {table} where p = "p"').count() > 0
        assert spark_ext.sql(spark, f'select count(*) from {table} where p = "p"').first()[0] > 0


def test_what_was_counted_counts_as_read(spark: Any, table: str) -> None:
    spark_ext.write(spark.sql("select 1L id, 'a' p")).partitionBy("p").save(table)
    counted = spark_ext.sql(spark, f"select count(*) as id, 'z' as p from deltalog.`{table}`")
    alone = spark_ext.sql(spark, f"select count(*) as id from deltalog.`{table}`").selectExpr("id", "'z' as p")
    spark_ext.write(spark.sql("select 2L id, 'a' p")).mode("append").save(table)
    for df in (counted, alone):
        with pytest.raises(deltalog.CommitConflictError):
            spark_ext.write(df).mode("append").save(table)
