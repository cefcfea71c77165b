"""``deltalog tokens``; what servers accept is in tests/unit/server/access."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.server.access import issued, token_text
from tests.support.cli import Cli

DAY_MS = 86_400_000


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def created(cli: Cli, catalog: Path, *options: Any) -> Any:
    done = cli("tokens", "create", catalog, "--json", *options)
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_a_token_is_shown_once_and_then_listed_and_revoked(cli: Cli, catalog: Path) -> None:
    made = created(cli, catalog, "--principal", "etl", "--group", "ops", "--group", "dev", "--label", "nightly")
    token = made.pop("token")
    assert token_text.id_of(token) == made["id"]
    found = issued.find(SQLiteCoordinator(catalog), made["id"])
    assert found is not None and found.digest == token_text.digest_of(token)
    assert (made["kind"], made["principal"], made["groups"]) == ("token", "etl", ["dev", "ops"])
    assert (made["scope"], made["is_admin"], made["label"]) == ("WRITE", False, "nightly")
    assert made["expires_ms"] - made["created_ms"] == 90 * DAY_MS
    listed = cli("tokens", "list", catalog, "--json")
    assert json.loads(listed.out) == made
    table = cli("tokens", "list", catalog).out
    assert made["id"] in table and "nightly" in table and token[18:] not in table
    assert json.loads(cli("tokens", "revoke", catalog, made["id"], "--json").out) == made
    assert cli("tokens", "list", catalog, "--json").out == ""
    done = cli("tokens", "revoke", catalog, made["id"], "--json")
    assert (done.status, json.loads(done.err)["code"]) == (1, "ENTITY_NOT_FOUND")


def test_the_text_for_people_ends_with_the_token(cli: Cli, catalog: Path) -> None:
    done = cli("tokens", "create", catalog, "--principal", "root", "--admin", "--expires", "never")
    assert token_text.id_of(done.out.split("\n")[-2]) is not None
    assert "never" in done.out and "Administrator" in done.out


def test_scopes_and_expiry(cli: Cli, catalog: Path) -> None:
    made = created(cli, catalog, "--principal", "a", "--scope", "read", "--expires", "12h")
    assert made["scope"] == "READ" and made["expires_ms"] - made["created_ms"] == DAY_MS // 2
    made = created(cli, catalog, "--principal", "a", "--admin", "--expires", "never")
    assert made["scope"] == "ADMIN" and made["is_admin"] and made["expires_ms"] is None
    assert created(cli, catalog, "--principal", "a", "--admin", "--scope", "read")["scope"] == "READ"
    for wrong in (["--scope", "root"], ["--expires", "soon"], ["--group", ""], ["--principal", ""]):
        done = cli("tokens", "create", catalog, "--principal", "a", *wrong)
        assert done.status == 1, done.out
    assert cli("tokens", "create", catalog).status == 2


def test_a_secret_is_written_to_a_new_file_that_only_its_owner_can_read(
    cli: Cli, catalog: Path, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    done = cli("tokens", "create", catalog, "--principal", "a", "--output", file, "--json")
    token = file.read_text().strip()
    assert token_text.id_of(token) == json.loads(done.out)["id"] and token not in done.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    done = cli("tokens", "create", catalog, "--principal", "a", "-o", file)
    assert done.status == 1 and file.read_text().strip() == token
    assert len(list(issued.issued(SQLiteCoordinator(catalog)))) == 1
    done = cli("tokens", "create", catalog, "--principal", "", "-o", tmp_path / "other")
    assert done.status == 1 and not (tmp_path / "other").exists()


def test_an_access_key_needs_the_key_of_the_server(cli: Cli, catalog: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32 + "\n")
    made = created(cli, catalog, "--principal", "a", "--aws", "--key-file", key)
    found = issued.find(SQLiteCoordinator(catalog), made["id"])
    assert made["kind"] == "access key" and found is not None and found.salt is not None
    assert made["secret_access_key"] == token_text.secret_access_key(b"k" * 32, made["id"], found.salt)
    assert "access key" in cli("tokens", "list", catalog, "--json").out
    for options in (["--aws"], ["--key-file", key]):
        assert cli("tokens", "create", catalog, "--principal", "a", *options).status == 2
    key.write_text("short")
    assert cli("tokens", "create", catalog, "--principal", "a", "--aws", "--key-file", key).status == 1
    assert cli("tokens", "create", catalog, "--principal", "a", "--aws", "--key-file", tmp_path / "no").status == 1


def test_several_are_revoked_at_once(cli: Cli, catalog: Path) -> None:
    ids = [created(cli, catalog, "--principal", name)["id"] for name in ("a", "a", "b", "c")]
    assert "2 tokens" in cli("tokens", "revoke", catalog, "--principal", "a").out
    assert json.loads(cli("tokens", "list", catalog, "--principal", "b", "--json").out)["id"] == ids[2]
    assert cli("tokens", "revoke", catalog, *ids[2:]).status == 0
    assert "0 tokens" in cli("tokens", "revoke", catalog, "--expired").out
    assert cli("tokens", "revoke", catalog).status == 2


def test_a_catalog_is_created_only_with_its_first_token(cli: Cli, catalog: Path) -> None:
    for command in (["list", catalog], ["revoke", catalog, "x" * 12]):
        done = cli("tokens", *command, "--json")
        assert (done.status, json.loads(done.err)["code"]) == (1, "ENTITY_NOT_FOUND")
    assert not catalog.exists()
    created(cli, catalog, "--principal", "a")
    assert catalog.exists()
