"""The page of several tables: for tables of a catalog, its versions at every instant are those of consistent_cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, Environment, TimestampOutOfRangeError, TransactionManager
from deltalog.presentation.tables_page import page_data, tables_of
from tests.support.cli import MINUTE, START, Cli, Clock
from tests.unit.cli.test_timeline import HOSTILE, Elements, data_of, resolved

MONEY = pa.schema([("id", pa.int64()), ("amount", pa.int64())])


def row(number: int) -> pa.Table:
    return pa.table({"id": [number], "amount": [number]}, schema=MONEY)


@pytest.fixture
def bank(tmp_path: Path) -> TransactionManager:
    """Two tables that transactions change together, with several commits in each, and one that is created later."""
    clock = Clock()
    manager = TransactionManager(str(tmp_path / "bank.db"), environment=clock.environment())
    manager.create_table("bank.checking", str(tmp_path / "checking"), MONEY, data=row(7))
    clock.now += MINUTE
    manager.create_table("bank.savings", str(tmp_path / "savings"), MONEY)
    for number in range(3):
        clock.now += MINUTE
        with manager.transaction() as transaction:
            transaction.table("bank.checking").append(row(number))
            transaction.table("bank.checking").delete(f"id = {number}")
            transaction.table("bank.savings").append(row(number))
            transaction.commit()
        clock.now += MINUTE
        manager.table("bank.savings").append(row(100 + number))
    clock.now += MINUTE
    manager.create_table("bank.late", str(tmp_path / "late"), MONEY)
    return manager


def cut(data: Any, ms: int) -> dict[str, int]:
    """The versions of the tables at an instant, as the page's script finds them in the page's data; without the tables
    that have none."""
    found = {}
    for table in data["tables"]:
        numbered = {**table, "commits": [{"version": -1}]}  # an instant after the last commit is not refused
        at = resolved(numbered, ms)
        if at is None:
            continue
        parts = {version: (part, count) for version, _, part, count in table["transactions"]}
        part, count = parts.get(at[0], (1, 1))
        found[table["name"]] = at[0] if part == count else at[0] - part
    return found


def instants(data: Any) -> list[int]:
    times = {commit[1] for table in data["tables"] for commit in table["commits"]}
    return sorted({time + shift for time in times for shift in (-MINUTE // 2, -1, 0, 1, MINUTE // 2)})


def test_the_versions_are_those_of_consistent_cut(bank: TransactionManager) -> None:
    data = page_data("bank", list(tables_of(bank)))
    assert [table["name"] for table in data["tables"]] == ["bank.checking", "bank.late", "bank.savings"]
    assert any(part < count for table in data["tables"] for _, _, part, count in table["transactions"])
    compared = 0
    for ms in instants(data):
        found = cut(data, ms)
        for name in ("bank.checking", "bank.late", "bank.savings"):
            try:
                expected = bank.consistent_cut(ms, [name])[name]
            except TimestampOutOfRangeError:
                assert name not in found, (name, ms)
            else:
                assert found[name] == expected, (name, ms)
                compared += 1
    assert compared > 60


def test_commits_of_a_transaction_are_marked(bank: TransactionManager) -> None:
    data = page_data("bank", list(tables_of(bank)))
    ids = {table["name"]: {id_ for _, id_, _, _ in table["transactions"]} for table in data["tables"]}
    assert len(ids["bank.checking"]) == 3 and ids["bank.checking"] == ids["bank.savings"] and not ids["bank.late"]


def test_all_tables_are_read_as_of_one_instant(bank: TransactionManager) -> None:
    """Commits that are made while the tables are read are in no table."""
    reading = tables_of(bank)
    first = next(reading)
    bank.table("bank.savings").append(row(1))
    bank.create_table("bank.newer", f"{Path(first.history.latest.url).parent}/newer", MONEY)
    rest = {each.name: each.history.latest.version for each in reading}
    assert rest == {"bank.late": 0, "bank.savings": 6}


def test_the_command(cli: Cli, bank: TransactionManager, tmp_path: Path) -> None:
    catalog, target = f"catalog:{tmp_path / 'bank.db'}", tmp_path / "page.html"
    ran = cli("timeline", catalog, "-o", target, "--json")
    assert json.loads(ran.out)["commits"] == 15
    data = data_of(target.read_text())
    assert (data["title"], len(data["tables"])) == ("bank.db", 3)
    assert all(table["check"]["error"] == 0 for table in data["tables"])
    some = cli("timeline", f"{catalog}#bank.late", f"{catalog}#bank.savings", "--no-check", "--limit", 2, "-o", "-")
    data = data_of(some.out)
    assert [(table["name"], len(table["commits"]), table["left_off"]) for table in data["tables"]] == [
        ("bank.late", 1, 0), ("bank.savings", 2, 5),
    ]  # fmt: skip
    assert data["tables"][0]["check"] is None
    one = cli("timeline", f"{catalog}#bank.late", "--no-check", "-o", "-")
    assert "commits" in data_of(one.out)  # the page of a single table
    missing = cli("timeline", f"{catalog}#bank.late", f"{catalog}#bank.none", "-o", "-", "--json")
    assert (missing.status, json.loads(missing.err)["code"]) == (1, "ENTITY_NOT_FOUND")


def test_tables_without_a_catalog(cli: Cli, late: Path, tmp_path: Path) -> None:
    """Each table by its own clock: file times, and in-commit timestamps from the enablement on."""
    other = tmp_path / "other"
    DeltaTable.create(other, MONEY, name=HOSTILE, environment=Environment(clock_ms=lambda: START)).append(
        row(1), user_metadata=HOSTILE
    )
    text = cli("timeline", late, other, late, "-o", "-", "--no-check").out
    data = data_of(text)
    assert [table["name"] for table in data["tables"]] == [str(late), str(other)]
    assert [table["catalog"] for table in data["tables"]] == [None, None]
    table = DeltaTable.open(late)
    for minute in range(5):
        ms = START + minute * MINUTE + 30_000
        assert cut(data, ms).get(str(late)) == table.version_at(ms, after="latest").version
    assert [tag for tag, _ in Elements(text).elements].count("script") == 2


def test_an_empty_catalog_has_no_page(cli: Cli, tmp_path: Path) -> None:
    TransactionManager(str(tmp_path / "empty.db"))
    ran = cli("timeline", f"catalog:{tmp_path / 'empty.db'}", "-o", tmp_path / "page.html")
    assert ran.status == 1 and "has no tables" in ran.err and not (tmp_path / "page.html").exists()
