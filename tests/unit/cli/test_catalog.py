"""``deltalog txn`` and ``deltalog tables``; ``deltalog serve`` is in tests/unit/server."""

from __future__ import annotations

import datetime
import json
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import DeltaTable, Environment, TransactionManager
from tests.support.cli import Cli
from tests.support.restored import OnSQLite

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """The file of a catalog that contains the table bank.a with two rows."""
    made = tmp_path / "catalog.db"
    TransactionManager(str(made)).create_table("bank.a", str(tmp_path / "a"), ROWS.schema, data=ROWS)
    return made


def started(cli: Cli, catalog: Path, *options: str) -> str:
    done = cli("txn", "start", catalog, *options)
    assert done.status == 0
    return done.out.strip()


def test_a_transaction_goes_on_from_process_to_process(cli: Cli, catalog: Path) -> None:
    transaction = started(cli, catalog)
    TransactionManager(str(catalog)).transaction(transaction).table("bank.a").append(ROWS)
    assert cli("txn", "extend", catalog, transaction).status == 0
    done = cli("txn", "commit", catalog, transaction, "--json")
    described = json.loads(done.out)
    assert (done.status, described["status"], described["type"]) == (0, "COMMITTED", "READ_AND_WRITE")
    assert described["start_ms"] <= described["end_ms"]
    assert cli("txn", "commit", catalog, transaction).status == 0
    assert TransactionManager(str(catalog)).table("bank.a").snapshot().scan().to_arrow().num_rows == 4


def test_a_cancelled_transaction_says_why_it_ended(cli: Cli, catalog: Path) -> None:
    transaction = started(cli, catalog, "--read-only")
    assert "READ_ONLY" in cli("txn", "describe", catalog, transaction).out
    assert "ABORTED" in cli("txn", "cancel", catalog, transaction).out
    assert json.loads(cli("txn", "describe", catalog, transaction, "--json").out)["reason"] == "cancelled"
    done = cli("txn", "commit", catalog, transaction, "--json")
    assert (done.status, json.loads(done.err)["code"]) == (1, "TRANSACTION_CANCELED")


def test_transactions_are_listed_by_state(cli: Cli, catalog: Path) -> None:
    made = [started(cli, catalog) for _ in range(3)]
    cli("txn", "cancel", catalog, made[0])
    active = [json.loads(line) for line in cli("txn", "list", catalog, "--status", "active", "--json").out.splitlines()]
    assert [each["transaction_id"] for each in active] == made[1:]
    everything = cli("txn", "list", catalog).out
    assert all(each in everything for each in made) and "ABORTED" in everything
    limited = cli("txn", "list", catalog, "--limit", "2", "--json").out.splitlines()
    assert [json.loads(line)["transaction_id"] for line in limited] == made[:2]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["describe", "unknown"], "ENTITY_NOT_FOUND"),
        (["commit", "no id"], "INVALID_CALL"),
        (["list", "--status", "open"], "INVALID_CALL"),
    ],
)
def test_refusals_have_their_codes(arguments: list[str], code: str, cli: Cli, catalog: Path) -> None:
    done = cli("txn", arguments[0], catalog, *arguments[1:], "--json")
    assert (done.status, json.loads(done.err)["code"]) == (1, code)


@pytest.mark.parametrize(
    "command",
    [
        "txn start CATALOG",
        "txn list CATALOG",
        "txn describe CATALOG t",
        "txn commit CATALOG t",
        "txn cancel CATALOG t",
        "txn extend CATALOG t",
        "tables list CATALOG",
        "tables drop CATALOG bank.a",
        "tables release CATALOG bank.a",
        "tables publish CATALOG bank.a",
        "tables recover CATALOG",
        "tables restart-timestamps CATALOG bank.a",
    ],
)
def test_a_mistyped_catalog_is_named_and_not_made(command: str, cli: Cli, tmp_path: Path) -> None:
    typo = tmp_path / "typo.db"
    done = cli(*(str(typo) if each == "CATALOG" else each for each in command.split()), "--json")
    error = json.loads(done.err)
    assert (done.status, error["code"]) == (1, "ENTITY_NOT_FOUND")
    assert f"no catalog at {typo}" in error["message"]
    assert list(tmp_path.iterdir()) == []


def test_the_first_table_makes_the_catalog(cli: Cli, tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "b", ROWS.schema, data=ROWS)
    assert cli("tables", "register", tmp_path / "new.db", "bank.b", tmp_path / "b").status == 0
    assert len(cli("tables", "list", tmp_path / "new.db", "--json").out.splitlines()) == 1


def test_names_of_tables_are_whole_on_a_narrow_terminal(
    cli: Cli, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = cli("tables", "list", catalog).out
    assert all(word in out for word in ("Name", "Unpublished", "bank.a")), out


def test_a_transaction_is_started_with_its_idle_timeout(cli: Cli, catalog: Path) -> None:
    transaction = started(cli, catalog, "--idle-timeout", "0.001")
    time.sleep(0.01)
    assert json.loads(cli("tables", "recover", catalog, "--json").out)["aborted"] == 1
    ended = json.loads(cli("txn", "describe", catalog, transaction, "--json").out)
    assert ended["reason"] == "idle for more than 0.001 s"


def test_a_table_is_registered_listed_and_dropped(cli: Cli, catalog: Path, tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "b", ROWS.schema, data=ROWS)
    done = cli("tables", "register", catalog, "bank.b", tmp_path / "b", "--json")
    assert done.status == 0 and json.loads(done.out)["version"] == 1
    listed = [json.loads(line) for line in cli("tables", "list", catalog, "--json").out.splitlines()]
    assert [(each["name"], each["url"]) for each in listed] == [
        ("bank.a", str(tmp_path / "a")),
        ("bank.b", str(tmp_path / "b")),
    ]
    assert str(tmp_path / "b") in cli("tables", "list", catalog).out
    again = cli("tables", "register", catalog, "bank.b", tmp_path / "b", "--json")
    assert (again.status, json.loads(again.err)["code"]) == (1, "TABLE_EXISTS")
    assert cli("tables", "drop", catalog, "bank.b").status == 0
    assert (tmp_path / "b/_delta_log/00000000000000000001.json").exists()
    assert cli("tables", "drop", catalog, "bank.b").status == 1


def test_publishing_and_recovering_say_what_they_did(cli: Cli, catalog: Path) -> None:
    assert json.loads(cli("tables", "publish", catalog, "bank.a", "--json").out)["published"] == 0
    assert "at version 0" in cli("tables", "publish", catalog, "bank.a").out
    transaction = started(cli, catalog)
    cli("txn", "cancel", catalog, transaction)
    assert json.loads(cli("tables", "recover", catalog, "--retention-days", "0", "--json").out)["aborted"] == 0
    assert "0 commits published" in cli("tables", "recover", catalog).out


def test_tls_needs_both_of_its_files(cli: Cli, catalog: Path) -> None:
    done = cli("serve", catalog, "--tls-cert", "certificate.pem", "--json")
    assert (done.status, json.loads(done.err)["code"]) == (2, "USAGE")


def test_without_uvicorn_serving_says_what_to_install(cli: Cli, catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "deltalog.server.serve", raising=False)
    monkeypatch.delattr("deltalog.server.serve", raising=False)
    done = cli("serve", catalog, "--json")
    assert done.status == 1 and "deltalog[server]" in json.loads(done.err)["message"]


def test_help_names_the_extra_that_is_needed(cli: Cli) -> None:
    assert "deltalog[server]" in cli("serve", "--help").out


@pytest.mark.parametrize(
    "command",
    [
        "info TABLE",
        "files TABLE",
        "rows TABLE",
        "history TABLE",
        "resolve TABLE --timestamp-ms 1 --before earliest",
        "timeline TABLE -o -",
        "enable-ict TABLE",
        "restore TABLE --version 0 --dry-run",
        "checkpoint TABLE",
        "cleanup TABLE --dry-run",
    ],
)
def test_every_command_takes_the_address_of_a_table(command: str, cli: Cli, catalog: Path) -> None:
    done = cli(*(f"catalog:{catalog}#bank.a" if each == "TABLE" else each for each in command.split()))
    assert (done.status, done.err) == (0, "")


def test_a_table_is_read_through_its_catalog(cli: Cli, catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"catalog:{catalog}#bank.a"
    with monkeypatch.context() as patch:
        patch.setattr("deltalog.catalog.committer.publish", lambda *_: 0)
        TransactionManager(str(catalog)).table("bank.a").append(ROWS)
    assert len(cli("rows", address, "--json").out.splitlines()) == 4
    refused = cli("compact", address, "--json")
    assert refused.status == 1 and "deltalog tables publish" in json.loads(refused.err)["message"]
    assert cli("tables", "publish", catalog, "bank.a").status == 0
    assert cli("compact", address).status == 0
    unknown = cli("rows", f"catalog:{catalog}#bank.b", "--json")
    assert (unknown.status, json.loads(unknown.err)["code"]) == (1, "TABLE_NOT_FOUND")


@pytest.mark.parametrize("command", ["txn start", "txn list", "tables register", "tables list", "serve"])
def test_every_command_takes_storage_options(command: str, cli: Cli) -> None:
    assert "--option" in cli(*command.split(), "--help").out


def test_a_released_table_is_used_by_its_path(cli: Cli, catalog: Path, tmp_path: Path) -> None:
    done = cli("tables", "release", catalog, "bank.a", "--json")
    url = json.loads(done.out)["url"]
    assert (json.loads(done.out)["name"], cli("history", url).status) == ("bank.a", 0)
    again = cli("tables", "release", catalog, "bank.a", "--json")
    assert (again.status, json.loads(again.err)["code"]) == (1, "ENTITY_NOT_FOUND")
    cli("tables", "register", catalog, "bank.a", url)
    assert f"read and write it by its path, {url}" in " ".join(cli("tables", "release", catalog, "bank.a").out.split())
    assert cli("tables", "list", catalog, "--json").out == ""


@pytest.mark.filterwarnings("ignore::deltalog.errors.ClockDriftWarning")
def test_times_that_are_ahead_are_restarted(cli: Cli, catalog: Path) -> None:
    refused = cli("tables", "restart-timestamps", catalog, "bank.a", "--json")
    assert (refused.status, json.loads(refused.err)["code"]) == (1, "INVALID_CALL")
    ahead = Environment(clock_ms=lambda: time.time_ns() // 1_000_000 + 86_400_000)
    manager = TransactionManager(str(catalog), environment=ahead, most_ahead=datetime.timedelta(days=2))
    manager.table("bank.a").append(ROWS)
    done = cli("tables", "restart-timestamps", catalog, "bank.a", "--json")
    assert (json.loads(done.out)["restartedAt"], json.loads(done.out)["version"]) == (2, 2)
    TransactionManager(str(catalog)).table("bank.a").append(ROWS)


def test_a_restored_catalog_is_brought_up_to_its_logs(cli: Cli, catalog: Path, tmp_path: Path) -> None:
    kept = OnSQLite(tmp_path)
    assert "agree" in cli("tables", "resync", catalog).out
    restore = kept.backup()
    manager = TransactionManager(str(catalog))
    manager.table("bank.a").append(ROWS)
    with manager.transaction() as transaction:
        transaction.table("bank.a").append(ROWS)
        transaction.commit()
    restore().close()
    planned = cli("tables", "resync", catalog, "--dry-run")
    assert planned.status == 0 and "bank.a: 2 commits would be added to the catalog, versions 1 to 2." in planned.out
    done = cli("tables", "resync", catalog)
    assert "2 commits added to the catalog" in done.out and f"{transaction.id} is recorded as committed" in done.out
    assert TransactionManager(str(catalog)).table("bank.a").snapshot().version == 2
    again = json.loads(cli("tables", "resync", catalog, "--json").out)
    assert again["in_step"] is True and again["tables"][0]["added"] == 0
    (tmp_path / "a" / "_delta_log" / f"{2:020d}.json").unlink()
    failed = cli("tables", "resync", catalog)
    assert failed.status == 1 and "the log is older than the catalog" in failed.out
    assert cli("tables", "resync", catalog, "--keep-log", "bank.a").status == 0
    table = TransactionManager(str(catalog)).table("bank.a")
    assert table.snapshot(version=1).num_files == table.snapshot().num_files
    # The table is registered anew, and its new id is committed to the log.
    assert [entry.operation for entry in table.history()][:2] == ["SET TBLPROPERTIES", "WRITE"]
