"""CURRENT_TIMESTAMP in conditions and constraints: each statement reads the environment's clock once."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import CallError, ConstraintViolationError, DeltaTable
from deltalog.environment import Environment

UTC = dt.timezone.utc
NOW = dt.datetime(2026, 11, 26, 12, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])


def rows(*days_ago: int) -> pa.Table:
    moments = [NOW - dt.timedelta(days=n) for n in days_ago]
    return pa.table({"id": days_ago, "at": moments, "day": [each.date() for each in moments]}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """A table with one file for each row; each reading of its clock advances the clock by ten minutes."""
    ticks = itertools.count()

    def clock_ms() -> int:
        return int(NOW.timestamp() * 1000) + 600_000 * next(ticks)

    made = DeltaTable.create(str(tmp_path / "t"), SCHEMA, environment=Environment(clock_ms=clock_ms))
    for days_ago in (0, 89, 91, 400):
        made.append(rows(days_ago))
    return made


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.snapshot().scan(["id"]).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    "where",
    [
        "at < current_timestamp() - INTERVAL 90 DAYS",
        "at < now() - INTERVAL '90' DAY",
        "at < CURRENT_TIMESTAMP - INTERVAL '2160' HOURS",
        "current_timestamp() - INTERVAL 90 DAYS > at",
        "day < current_date() - INTERVAL 90 DAYS",
        "day < date_sub(current_date(), 90)",
        "day < current_date - 90",
        "at < date_sub(current_date(), 90)",
        "datediff(current_date(), day) > 90",
        "current_timestamp() - at > INTERVAL 90 DAYS",
        "at + INTERVAL 90 DAYS < current_timestamp()",
        "NOT (at >= current_timestamp() - INTERVAL 3 MONTHS + INTERVAL 2 DAYS)",
    ],
)
def test_rows_older_than_90_days_are_deleted(table: DeltaTable, where: str) -> None:
    assert sorted(table.snapshot().scan(["id"], where=where).to_arrow()["id"].to_pylist()) == [91, 400]
    table.delete(where)
    assert ids(table) == [0, 89]


@pytest.mark.parametrize(
    "where",
    [
        "at < current_timestamp() - INTERVAL 90 DAYS",
        "day < current_date() - 90",
        "at < current_date() - INTERVAL 90 DAYS",
        "at BETWEEN now() - INTERVAL 500 DAYS AND now() - INTERVAL 90 DAYS",
    ],
)
def test_files_are_skipped_by_what_is_computed_of_the_clock(table: DeltaTable, where: str) -> None:
    assert table.snapshot().scan(where=where).files().num_rows == 2


def test_all_uses_of_the_clock_in_a_statement_are_one_instant(table: DeltaTable) -> None:
    scan = table.snapshot().scan(where="now() = current_timestamp() AND id = 0")
    assert scan.to_arrow().num_rows == 1
    table.update({"at": "current_timestamp()"}, where="at <= current_timestamp() AND id = 0 OR now() <> now()")
    assert ids(table) == [0, 89, 91, 400]
    logged = table.history()[0].operation_parameters["predicate"]
    found = table.snapshot().scan(["at"], where="id = 0").to_arrow()["at"].to_pylist()[0]
    assert found.isoformat(sep=" ") in logged  # also in the log


def test_a_merge_knows_one_instant(table: DeltaTable) -> None:
    source = pa.table({"id": pa.array([0, 400], pa.int32())})
    merge = table.merge(source, "target.id = source.id AND target.at < now() - INTERVAL 1 DAY")
    merge.when_matched_update({"day": "current_date()"}, predicate="target.at < current_timestamp() - INTERVAL 90 DAYS")
    merge.execute()
    found = table.snapshot().scan(["id"], where="day >= DATE '2026-11-26'").to_arrow()["id"].to_pylist()
    assert sorted(found) == [0, 400]


def test_a_column_of_that_name_is_the_column(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), pa.schema([("current_date", pa.int32())]))
    table.append(pa.table({"current_date": pa.array([1, 2], pa.int32())}))
    assert table.snapshot().scan(where="current_date = 2").to_arrow().num_rows == 1
    with pytest.raises(CallError, match=r"cannot be compared|together"):
        table.snapshot().scan(where="current_date = current_date()")


def test_constraints_know_the_clock(table: DeltaTable) -> None:
    table.add_constraint("past", "at <= current_timestamp() + INTERVAL 1 DAY")
    with pytest.raises(ConstraintViolationError, match="past"):
        table.append(rows(-2))
    table.append(rows(3))
