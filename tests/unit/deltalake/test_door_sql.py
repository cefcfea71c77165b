"""Conditions in the SQL of deltalake's programs: each selects the rows that it selects in deltalake."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from deltalog import deltalake as door

real = pytest.importorskip("deltalake", minversion="1.6")

UTC = datetime.timezone.utc
TIMES = [
    datetime.datetime(2026, 1, 1, 5),
    datetime.datetime(2026, 1, 2),
    datetime.datetime(2026, 1, 3, 7, 8, 9, 123456),
]
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "s": ["abc", "xbc", "a-b"],
        "d": [each.date() for each in TIMES],
        "t": pa.array(TIMES, pa.timestamp("us", "UTC")),
        "n": pa.array(TIMES, pa.timestamp("us")),
    }
)


def left_by(package, path, condition: str) -> list[int]:
    """The rows that a deletion leaves."""
    package.write_deltalake(str(path), ROWS)
    table = package.DeltaTable(str(path))
    table.delete(condition)
    return sorted(pa.table(table.to_pyarrow_table()).column("id").to_pylist())


@pytest.mark.parametrize(
    "condition",
    [
        "t >= '2026-01-02'",
        "'2026-01-02' <= t",
        "t >= '2026-01-02 00:00:00' AND s > 'a'",
        "NOT t < '2026-01-02T00:00:00'",
        "t BETWEEN '2026-01-02' AND '2026-01-03'",
        "t IN ('2026-01-02', '2026-01-04')",
        "date_trunc('day', t) = '2026-01-03'",
        "n >= '2026-01-02'",
        "d >= '2026-01-02'",
        "d < current_date",
        "d < CURRENT_DATE()",
        "cast(id AS varchar) = '1'",
        "cast(id AS text) = '1'",
        "CAST(id AS VARCHAR(10)) = '1' OR id::char = '2'",
        "s::varchar = 'abc' AND s <> 'cast(id AS varchar)'",
        "starts_with(s, 'a') AND ends_with(s, 'c')",
        "strpos(s, 'b') = 2",
        "position('b' IN s) = 2",
        "substring(s FROM 2 FOR 1) = 'b' AND substring(s FROM 3) = 'c'",
        "extract(YEAR FROM t) = 2026 AND extract(day FROM t) = 2",
        "extract(hour FROM t) = 5 OR date_part('minute', t) = 8",
        "extract(second FROM t) = 9",
        "date_part('second', t) = 9",
        "extract(doy FROM d) = 2 OR extract(week FROM d) = 2",
        "date_part('quarter', d) = 1 AND date_part('month', d) = 1",
    ],
)
def test_conditions_select_what_they_select_in_deltalake(tmp_path, condition) -> None:
    assert left_by(door, tmp_path / "door", condition) == left_by(real, tmp_path / "real", condition)


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("t >= timestamp '2026-01-02 00:00:00'", [1]),
        ("t >= cast('2026-01-02' AS timestamp)", [1]),
        ("t IN (timestamp '2026-01-02 00:00:00')", [1, 3]),
        ("n >= timestamp '2026-01-02 00:00:00'", [1]),
        ("t < now() AND n < '2026-01-02'", [2, 3]),
        ("t > current_timestamp", [1, 2, 3]),
    ],
)
def test_conditions_that_the_deletions_of_deltalake_refuse(tmp_path, condition, left) -> None:
    assert left_by(door, tmp_path / "door", condition) == left


def test_times_without_a_zone_are_utc_in_every_condition(tmp_path) -> None:
    door.write_deltalake(tmp_path, ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    table = door.DeltaTable(tmp_path)
    assert pa.table(table.scan(predicate="t >= '2026-01-02'")).num_rows == 2
    assert len(table.file_uris(file_pruning_predicate="t > '2026-01-03 07:08:10'")) == 0
    assert pa.table(table.load_cdf(predicate="t >= '2026-01-02' AND t < current_timestamp")).num_rows == 2
    table.update(predicate="t < '2026-01-02'", updates={"s": "CASE WHEN t < '2026-01-02' THEN 'old' END"})
    door.write_deltalake(tmp_path, ROWS.slice(2), mode="overwrite", predicate="t > '2026-01-03'")
    table = door.DeltaTable(tmp_path)
    merging = table.merge(ROWS, "s.id = t.id AND t.t >= '2026-01-02'", source_alias="s", target_alias="t")
    merging = merging.when_matched_delete("s.t >= '2026-01-03' AND s.t < now()")
    merging = merging.when_matched_update({"s": "'new'"})
    merging = merging.when_not_matched_insert({"id": "10 * s.id"}, "t < '2026-01-02'")
    merging.when_not_matched_by_source_update({"s": "'older'"}, "t.t < '2026-01-02'").execute()
    found = table.to_pyarrow_table().sort_by("id").select(["id", "s"]).to_pylist()
    assert found == [{"id": 1, "s": "older"}, {"id": 2, "s": "new"}, {"id": 10, "s": None}]


def test_the_message_of_an_ordinary_table_names_the_missing_offset(tmp_path) -> None:
    from deltalog import DeltaTable, col
    from deltalog.errors import CallError

    door.write_deltalake(tmp_path, ROWS)
    table = DeltaTable.open(tmp_path)
    with pytest.raises(CallError, match=r"offset is missing. For UTC, write '2026-01-02T00:00:00Z'\."):
        table.delete("t >= '2026-01-02'")
    with pytest.raises(CallError, match=r"^'2026-01-02 00:00:00' cannot.* write '2026-01-02T00:00:00Z'\."):
        table.delete(col("t") >= datetime.datetime(2026, 1, 2))
    with pytest.raises(CallError, match=r"has no zone. Write '2026-01-02T00:00:00'\."):
        table.delete("n >= '2026-01-02T00:00:00Z'")


def value_of(package, path, expression: str) -> str | None:
    package.write_deltalake(str(path), ROWS.slice(0, 1))
    table = package.DeltaTable(str(path))
    table.update(updates={"s": f"cast(({expression}) AS string)"})
    (value,) = pa.table(table.to_pyarrow_table()).column("s").to_pylist()
    return value


@pytest.mark.parametrize(
    ("expression", "here", "there"),
    [
        ("concat('a', NULL)", None, "a"),
        ("greatest(1, NULL)", "1", None),
        ("cast(t AS bigint)", "1767243600", "1767243600000000"),
        ("t", "2026-01-01 05:00:00", "2026-01-01T05:00:00Z"),
        ("substr('hello', 0, 2)", "he", "h"),
        ("substr('hello', -2)", "lo", "hello"),
        ("left('hello', -1)", "", "hell"),
        ("round(2.5)", "3", "3.0"),
        ("floor(1.5)", "1", "1.0"),
        ("7 DIV 2 + 0 * unix_micros(t)", "3", ""),
        ("dayofweek(t) - 1", "4", ""),
        ("unix_seconds(t)", "1767243600", ""),
    ],
)
def test_the_values_that_differ_are_those_of_the_page(tmp_path, expression, here, there) -> None:
    """``there``: empty for what deltalake refuses."""
    assert value_of(door, tmp_path / "door", expression) == here
    if there == "":
        with pytest.raises(real.exceptions.DeltaError):
            value_of(real, tmp_path / "real", expression)
    else:
        assert value_of(real, tmp_path / "real", expression) == there


def test_a_quotient_of_integers_has_a_fraction(tmp_path) -> None:
    assert left_by(door, tmp_path / "door", "7 / 2 = 3.5") == []
    assert left_by(real, tmp_path / "real", "7 / 2 = 3") == []
