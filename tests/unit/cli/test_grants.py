"""``deltalog grants``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltalog import TransactionManager
from tests.support.cli import Cli
from tests.support.server import SCHEMA


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """The file of a catalog with the table sales.orders."""
    made = tmp_path / "catalog.db"
    TransactionManager(str(made)).create_table("sales.orders", str(tmp_path / "orders"), SCHEMA)
    return made


def listed(cli: Cli, catalog: Path, *options: str) -> dict[str, tuple[str | None, dict[str, list[str]]]]:
    lines = cli("grants", "list", catalog, "--json", *options).out.splitlines()
    return {each["on"]: (each["owner"], each["grants"]) for each in map(json.loads, lines)}


def test_privileges_are_granted_listed_and_taken_back(cli: Cli, catalog: Path) -> None:
    done = cli("grants", "add", catalog, "alice", "USE CATALOG", "use_schema")
    assert (done.status, done.out.strip()) == (0, "alice has USE CATALOG, USE SCHEMA on the catalog.")
    assert cli("grants", "add", catalog, "group:team", "SELECT", "--on", "sales").status == 0
    done = cli("grants", "add", catalog, "alice", "MODIFY", "--on", "sales.orders", "--json")
    assert json.loads(done.out) == {"on": "table sales.orders", "owner": None, "grants": {"alice": ["MODIFY"]}}
    assert listed(cli, catalog) == {
        "catalog": (None, {"alice": ["USE CATALOG", "USE SCHEMA"]}),
        "schema sales": (None, {"group:team": ["SELECT"]}),
        "table sales.orders": (None, {"alice": ["MODIFY"]}),
    }
    assert listed(cli, catalog, "--on", "sales") == {"schema sales": (None, {"group:team": ["SELECT"]})}
    shown = cli("grants", "list", catalog).out
    assert "group:team" in shown
    assert "the table sales.orders" in shown
    done = cli("grants", "remove", catalog, "alice", "MODIFY", "--on", "sales.orders")
    assert done.out.strip() == "alice has no privileges of its own on the table sales.orders."


def test_an_owner_is_given_and_taken(cli: Cli, catalog: Path) -> None:
    assert (
        cli("grants", "owner", catalog, "carol", "--on", "sales.orders").out.strip()
        == "carol owns the table sales.orders."
    )
    assert listed(cli, catalog)["table sales.orders"] == ("carol", {})
    assert cli("grants", "owner", catalog, "--nobody", "--on", "sales.orders").status == 0
    assert listed(cli, catalog)["table sales.orders"] == (None, {})


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("add", "x", "CREATE TABLE", "--on", "sales.orders"), "cannot be granted on a table"),
        (("add", "x", "READ VOLUME"), "privileges are"),
        (("add", "x\ny", "SELECT"), "name of a principal"),
        (("add", "x", "SELECT", "--on", "none"), "no schema none"),
        (("add", "x", "SELECT", "--on", "sales.none"), "no table sales.none"),
        (("owner", "x", "--nobody"), "either a PRINCIPAL or --nobody"),
    ],
)
def test_grants_refuse(cli: Cli, catalog: Path, words: tuple[str, ...], reason: str) -> None:
    command, *more = words
    done = cli("grants", command, catalog, *more)
    assert done.status != 0
    assert reason in " ".join(done.err.split())
    assert listed(cli, catalog) == {}
