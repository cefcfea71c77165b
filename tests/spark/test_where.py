"""Conditions skip files before Spark plans a scan, and row counts come from the log."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import deltalog
import spark_ext
from deltalog import col
from spark_ext.reading import log_counts, pruning
from tests.spark.settings import session_of
from tests.spark.tables import make, rows, schema

UTC = dt.timezone.utc
START = dt.datetime(2026, 3, 7, 22)
ARROW = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("small", pa.int16()),
        pa.field("amount", pa.decimal128(12, 3)),
        pa.field("single", pa.float32()),
        pa.field("ratio", pa.float64()),
        pa.field("name", pa.string()),
        pa.field("flag", pa.bool_()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("inner", pa.struct([("n", pa.int32())])),
        pa.field("p", pa.int32()),
        pa.field("q", pa.string()),
        pa.field("t", pa.timestamp("us", "UTC")),
    ]
)
NAMES = ["a", "A", "ab", "b", "é", "z%", "a_b", "10", "2026-03-08", "zz", ""]
WORDS = ["'a'", "'ab'", "'A'", "'é'", "'b'", "'2026-03-08'", "'10'", "''"]


def row(choose: random.Random, number: int) -> dict[str, Any]:
    """A row whose values depend on ``number``: rows with similar numbers have similar values, so each file has
    different statistics."""
    hours = dt.timedelta(hours=number * 1.3 + choose.random())
    values: dict[str, Any] = {
        "id": number * 10 + choose.randrange(5),
        "small": number - 20,
        "amount": decimal.Decimal(number * 333 - 5000).scaleb(-3),
        "single": choose.choice([number / 10, 0.1, 0.3, 0.7, float("nan"), -0.0]),
        "ratio": choose.choice([number / 7, 0.1, float("nan"), -0.0, float("inf")]),
        "name": NAMES[(number // 4) % len(NAMES)],
        "flag": number % 16 < 8,
        "day": (START + hours).date(),
        "at": (START + hours).replace(tzinfo=UTC),
        "local": START + hours,
        "inner": {"n": number // 3},
    }
    nulls = {
        name: None if choose.random() < 0.15 or (number // 8 == 2 and name != "id") else values[name] for name in values
    }
    keys: dict[str, Any] = {"p": choose.choice([1, 2, None]), "q": choose.choice(["a", "B c", None]), "t": None}
    if number // 8 != 3:
        keys["t"] = dt.datetime(2026, 3, 8, choose.choice([3, 9]), tzinfo=UTC)
    return nulls | keys


def write(table: str) -> None:
    choose = random.Random(5)
    made = deltalog.DeltaTable.create(table, ARROW, partition_by=["p", "q", "t"])
    for first in range(0, 80, 8):
        made.append(pa.Table.from_pylist([row(choose, first + i % 8) for i in range(16)], ARROW))


def literals(choose: random.Random) -> Iterator[tuple[str, str]]:
    """Pairs of a column and a literal that can be compared with it."""
    number = choose.randrange(80)
    moment = START + dt.timedelta(hours=choose.randrange(-5, 110))
    text = choose.choice(
        [str(moment), f"{moment}Z", f"{moment}.5-05:00", str(moment.date()), f"{moment:%Y-%m-%dT%H:%M:%S}"]
    )
    yield "id", choose.choice([str(number * 10), f"{number * 10}.5", f"-{number}", "5L", "9" * 18])
    yield "small", choose.choice([str(number - 20), "40000", "3.5"])
    yield "AMOUNT", choose.choice(["1.5", f"{number * 0.333:.3f}", "20", "-4.8", "1.23456"])
    yield "single", choose.choice(["0.1", "0.3", "0.7", "3", "0", "16777217"])
    yield "ratio", choose.choice(["0.1", "3", "0.0", "-0.0", f"{number}", "1.5"])
    yield "name", choose.choice(WORDS)
    yield "day", choose.choice([f"DATE'{moment.date()}'", f"'{moment.date()}'"])
    yield "at", choose.choice([f"TIMESTAMP'{text}'", f"'{text}'", f"DATE'{moment.date()}'", f"timestamp_ntz'{moment}'"])
    yield (
        "local",
        choose.choice([f"TIMESTAMP_NTZ'{moment}'", f"'{moment}'", f"TIMESTAMP'{text}'", f"DATE'{moment.date()}'"]),
    )
    yield "inner.`n`", str(number // 3)
    yield "p", choose.choice(["1", "2", "3"])
    yield "q", choose.choice(["'a'", "'B c'", "'x'"])
    yield "t", choose.choice([f"'2026-03-08 {choose.choice(['03', '09'])}:00:00'", f"TIMESTAMP'{text}'", f"'{text}'"])


def condition(choose: random.Random, depth: int = 2) -> str:
    kind = choose.random()
    if depth and kind < 0.45:
        one, two = condition(choose, depth - 1), condition(choose, depth - 1)
        return choose.choice([f"({one} and {two})", f"({one} or {two})", f"not ({one})", f"({one}) AND ({two})"])
    name, literal = choose.choice(list(literals(choose)))
    other = dict(literals(choose))[name]
    operator = choose.choice(["=", "<", "<=", ">", ">=", "!=", "<>", "<=>", "=="])
    forms = [f"{name} {operator} {literal}"] * 8 + [
        f"{literal} {operator} {name}",
        f"{name} in ({literal}, {other})",
        f"{name} not in ({literal}, {other}, null)",
        f"{name} between {literal} and {other}",
        f"{name} not between {literal} and {other}",
        f"{name} is null",
        f"{name} is not null",
        f"{name} = {name}",
        f"coalesce({name} = {literal}, true)",
        choose.choice(["name like 'a%'", "name like '%b'", "name not like 'a%'", "q like 'B%'", "name like 'a_b%'"]),
        choose.choice(["flag", "not flag", "flag = true", "flag is true", "!flag"]),
        choose.choice(
            ["year(at) = 2026", "cast(at as date) = '2026-03-08'", "hour(t) = 3", "p + 1 = 2", "q || 'x' = 'ax'"]
        ),
        choose.choice(["name = 'a' 'b'", 'name = "a"', "name = 'it''s'", "id = 1 /* and */", "name = r'a'", "1 = 1"]),
    ]
    return choose.choice(forms)


@pytest.mark.parametrize(
    "zone, seed, settings",
    [
        ("UTC", 1, {}),
        ("America/New_York", 2, {}),
        ("Asia/Kolkata", 3, {"spark.sql.ansi.enabled": "false"}),
        ("Pacific/Kiritimati", 4, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}),
    ],
)
def test_no_file_with_a_row_is_left_out(spark: Any, table: str, zone: str, seed: int, settings: dict[str, str]) -> None:
    write(table)
    choose = random.Random(seed)
    snapshot = deltalog.DeltaTable.open(table).snapshot()
    conditions = [condition(choose) for _ in range(150)]
    with session_of(spark, {"spark.sql.session.timeZone": zone, **settings}):
        df = spark_ext.read(spark).load(table)
        found = [F.coalesce(F.expr(text), F.lit(False)).alias(f"c{at}") for at, text in enumerate(conditions)]
        matched = df.select(F.input_file_name().alias("file"), *found).collect()
    holders = [urllib.parse.unquote(urllib.parse.urlsplit(each["file"]).path) for each in matched]
    pruned = counted = 0
    for at, text in enumerate(conditions):
        having = {file for file, each in zip(holders, matched, strict=True) if each[f"c{at}"]}
        where = pruning.predicate(snapshot, [text])
        read = {snapshot.file_path(name) for name in snapshot.scan(where=where).files()["path"].to_pylist()}
        assert having <= read, text
        pruned += len(set(holders) - having) > 0 and read == having
        number = log_counts.num_records(snapshot, [text])
        assert number in (None, sum(each[f"c{at}"] for each in matched)), text
        counted += number is not None
    # For many of the tested conditions, pruning keeps exactly the files with matching rows.
    assert pruned > 15 and counted > 5
    assert any("DATE" in text or "TIMESTAMP" in text for text in conditions)


@pytest.mark.parametrize(
    "where",
    [
        ["id between 200 and 215"],
        ["name = 'b'", "p = 1"],
        [col("id") < 40, "ratio > 1"],
        ["t < '2026-03-01'"],
        ["upper(name) = 'AB' and id > 300"],
    ],
)
def test_rows_are_those_of_the_filter_in_spark(spark: Any, table: str, where: list[Any]) -> None:
    write(table)
    whole, reader = spark_ext.read(spark).load(table), spark_ext.read(spark)
    expected = whole
    for each in where:
        reader = reader.where(each)
        expected = expected.where(each if isinstance(each, str) else "id < 40")
    df = reader.load(table)
    assert df.schema == whole.schema
    assert sorted(map(str, df.collect())) == sorted(map(str, expected.collect()))
    assert len(df.inputFiles()) < len(whole.inputFiles())
    assert reader.count(table) == expected.count()


def test_files_are_left_out_in_every_layout(spark: Any, table: str) -> None:
    files = [(f"x{i}/{i}.parquet", {"p": str(i)}, pa.table({"id": pa.array([i], pa.int64())})) for i in range(50)]
    make(table, schema(id="long", p="integer"), files, ["p"])
    df = spark_ext.read(spark).where("p in (3, 30)").load(table)
    assert rows(df) == [(3, 3), (30, 30)] and len(df.inputFiles()) == 2
    assert rows(spark_ext.read(spark).where("p > 100").load(table)) == []
    assert spark_ext.read(spark).where("p > 100").load(table).schema == df.schema


def test_conditions_that_spark_refuses(spark: Any, table: str) -> None:
    write(table)
    reader = spark_ext.read(spark)
    for wrong in ("nothing = 1", "id +", "p = 1 and ("):
        with pytest.raises(Exception, match=r"UNRESOLVED_COLUMN|PARSE_SYNTAX_ERROR"):
            spark_ext.read(spark).where(wrong).load(table).collect()
    with pytest.raises(deltalog.CallError, match="where takes SQL text or a predicate"):
        reader.where(F.col("id") > 1)
    with pytest.raises(deltalog.CallError, match="cannot be combined with readChangeFeed"):
        reader.where("id = 1").option("readChangeFeed", True).option("startingVersion", 0).load(table)
    with pytest.raises(deltalog.CallError, match="cannot be written as SQL"):
        spark_ext.read(spark).where(col("id").isin(range(2000))).load(table)


def test_a_version_of_the_past(spark: Any, table: str) -> None:
    write(table)
    reader = spark_ext.read(spark).option("versionAsOf", 3).where("id >= 0")
    assert reader.count(table) == reader.load(table).count() < spark_ext.read(spark).where("id >= 0").count(table)


def test_what_was_read_is_what_the_condition_covers(spark: Any, table: str) -> None:
    """A write of rows that were read with a condition conflicts only with new rows that satisfy the condition."""
    deltalog.DeltaTable.create(table, pa.schema([("id", pa.int64()), ("n", pa.int64())])).append(
        pa.table({"id": [1, 2], "n": [0, 0]})
    )
    for added, fails in ((100, False), (3, True)):
        df = spark_ext.read(spark).where("id < 50").load(table)
        deltalog.DeltaTable.open(table).append(pa.table({"id": [added], "n": [1]}))
        write = spark_ext.write(df.selectExpr("id + 1000 as id", "n")).mode("append")
        if fails:
            with pytest.raises(deltalog.CommitConflictError):
                write.save(table)
        else:
            assert write.save(table).committed


def test_cast_to_the_timestamp_type_of_the_session(spark: Any, table: str) -> None:
    at = pa.array([dt.datetime(2026, 3, 8, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    deltalog.DeltaTable.create(table, pa.schema([("at", at.type)])).append(pa.table({"at": at}))
    with session_of(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        found = spark_ext.read(spark).where("at = cast('2026-03-08 00:00:00+02:00' as timestamp)").load(table)
        assert found.count() == 1  # the cast drops the zone


def test_text_in_a_list_beside_a_time_without_zone(spark: Any, table: str) -> None:
    data = pa.table({"id": [1], "at": pa.array([dt.datetime(2026, 3, 8)], pa.timestamp("us"))})
    deltalog.DeltaTable.create(table, data.schema, partition_by=["at"]).append(data)
    with session_of(spark, {"spark.sql.ansi.enabled": "false"}):
        reader = spark_ext.read(spark).where("not at in ('2026-03-08')")
        assert reader.load(table).count() == 1  # compared as strings, '2026-03-08' and '2026-03-08 00:00:00' differ


def test_rows_are_counted_without_opening_a_file(spark: Any, table: str) -> None:
    write(table)
    opened = deltalog.DeltaTable.open(table)
    whole = spark_ext.read(spark).load(table)
    number, by_p = whole.count(), rows(whole.groupBy("p", "q", "t").count())
    for name in opened.snapshot().files()["path"].to_pylist():
        with open(opened.snapshot().file_path(name), "r+b") as file:
            file.truncate(3)
    reader = spark_ext.read(spark)
    assert reader.count(table) == number
    partitions = reader.partitions(table)
    assert partitions.columns == ["p", "q", "t", "num_records"]
    assert partitions.schema.fields[:3] == whole.schema.fields[-3:]
    assert rows(partitions) == by_p
    assert spark_ext.read(spark).where("p = 1 and q is not null").count(table) == sum(
        count for p, q, _, count in by_p if p == 1 and q is not None
    )
    least = partitions.agg(F.min("t"), F.max("p")).first()
    assert (least[1], least[0]) == (2, min(each[2] for each in by_p if each[2]))


def test_rows_that_the_log_does_not_count_are_counted_by_spark(spark: Any, table: str) -> None:
    one = pa.table({"id": pa.array([1, 2], pa.int64())})
    make(table, schema(id="long", p="integer"), [(f"p={i}/a.parquet", {"p": str(i)}, one) for i in range(2)], ["p"])
    opened = deltalog.DeltaTable.open(table)
    assert log_counts.num_records(opened.snapshot()) is None  # the files have no statistics
    assert spark_ext.read(spark).count(table) == 4
    assert rows(spark_ext.read(spark).where("id = 1").partitions(table)) == [(0, 1), (1, 1)]


def test_deleted_rows_are_not_counted(spark: Any, table: str) -> None:
    data = pa.table({"id": pa.array(range(100), pa.int64()), "p": pa.array([i % 2 for i in range(100)], pa.int32())})
    opened = deltalog.DeltaTable.create(
        table, data.schema, partition_by=["p"], properties={"delta.enableDeletionVectors": "true"}
    )
    opened.append(data)
    opened.delete("id < 30 or id = 71")
    opened.delete("p = 0 and id > 89")
    assert log_counts.num_records(opened.snapshot(), ["p = 1"]) == 34
    assert spark_ext.read(spark).count(table) == spark_ext.read(spark).load(table).count() == 64
    assert rows(spark_ext.read(spark).partitions(table)) == [(0, 30), (1, 34)]


def test_partition_column_with_the_name_of_the_count(spark: Any, table: str) -> None:
    data = pa.table({"id": [1, 2, 3], "Num_records": [7, 7, 8]})
    deltalog.DeltaTable.create(table, data.schema, partition_by=["Num_records"]).append(data)
    found = spark_ext.sql(spark, f"select distinct num_records from deltalog.`{table}`")
    assert rows(found) == [(7,), (8,)]
    with pytest.raises(deltalog.CallError, match="partition column num_records"):
        spark_ext.read(spark).partitions(table)
