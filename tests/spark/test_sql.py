from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from tests.spark.tables import history, rows

ONE = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture(scope="module")
def t(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Versions 0, 1 and 2 with as many rows, at 2026-01-01, -02 and -03 00:00 UTC."""
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
    frame = spark.range(3)
    assert first(spark, "select count(*) from {frame}", frame=frame) == 3
    with pytest.raises(Exception, match="deltalog"):
        spark_ext.sql(spark, "select * from other.deltalog.`x`")


def test_frames_and_references_together(spark: Any, t: str) -> None:
    taken = spark.range(5)
    query = f"select count(*) from {{t0}} join deltalog.`{t}` d using (id)"
    assert first(spark, query, t0=taken) == 2


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select deltalog.`{t}`.id from deltalog.`{t}`", "Give the table an alias"),
        ("insert into deltalog.`{t}` select 1", "can only be read here"),
        ("delete from deltalog.`{t}`", "statements cannot use"),
        ("create temp view v as select * from deltalog.`{t}`", "statements cannot use"),
        ("with a as (select 1L id) insert into deltalog.`{t}` select * from a", "can only be read here"),
        ("from deltalog.`{t}` insert overwrite deltalog.`{t}` select id", "can only be read here"),
        ("select * from deltalog.`{t}` timestamp as of current_timestamp() - interval 1 day", "into parentheses"),
        ("select * from deltalog.`{t}` timestamp as of", "no value after it"),
        ("select * from deltalog.`{t}` timestamp as of (now()", "is not closed"),
        ("select * from deltalog.`{t}` version as of :v", "marker :v .* is not in args"),
        ("select * from deltalog.`{t}` version as of x", "versionAsOf is 'x'"),
    ],
)
def test_what_cannot_be_done_says_so(spark: Any, t: str, query: str, message: str) -> None:
    with pytest.raises(deltalog.CallError, match=message):
        spark_ext.sql(spark, query.replace("{t}", t))


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
