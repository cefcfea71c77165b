"""``--option`` and ``commit-table``: the command line on S3 and DynamoDB."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from deltalog import DeltaTable
from deltalog.cli import commands
from deltalog.cli.options import parse_options
from tests.support.cli import Cli, Ran
from tests.support.core import rows
from tests.support.s3 import Server, free_port
from tests.support.s3.dynamodb import new_table


def options(server: Server, **more: str) -> list[str]:
    given = {
        "key": "testing-key-id",
        "secret": "testing-secret-key",
        "endpoint_url": f"http://127.0.0.1:{server.port}",
        "client_kwargs.region_name": "us-east-1",
        **more,
    }
    return [word for name, value in given.items() for word in ("--option", f"{name}={value}")]


def document(ran: Ran) -> dict[str, object]:
    assert (ran.status, ran.err) == (0, "")
    found: dict[str, object] = json.loads(ran.out)
    return found


@pytest.mark.parametrize("kind", ["", "dynamo", "s3-dynamodb"])
def test_a_table_on_s3(cli: Cli, ministack: Server, kind: str) -> None:
    commit: dict[str, Any] = {"commit": f"{kind}:{new_table(ministack, kind)}"} if kind else {}
    url = f"s3://{ministack.bucket()}/events"
    DeltaTable.create(url, rows(1).schema, data=rows(1, 2), **{**commit, **ministack.options()})
    given = options(ministack, **commit)
    assert document(cli("info", url, "--json", *given))["num_rows"] == 2
    assert len(cli("rows", url, "--json", *given).out.splitlines()) == 2
    assert document(cli("enable-ict", url, "--json", *given))["committed"] is True
    assert DeltaTable.open(url, **{**commit, **ministack.options()}).version == 1


def test_every_command_that_takes_a_table_or_a_catalog_takes_options(cli: Cli) -> None:
    for command in commands.app.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        shown = cli(name, "--help", env={"COLUMNS": "200"}).out
        takes_one = re.search(r"\b(TABLE|CATALOG|WHAT)(\.\.\.)?[ }]", shown)
        assert ("--option" in shown) == bool(takes_one), name


def test_options_end_with_the_command(cli: Cli, late: Path) -> None:
    refused = cli("info", late, "--json", "--option", "anon=true")
    assert refused.status == 1 and "['anon'] do not apply to a local path" in refused.err
    assert cli("info", late, "--json").status == 0


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (["a=b=c"], {"a": "b=c"}),
        (["anon=true", "use_ssl=false", "x=null"], {"anon": True, "use_ssl": False, "x": None}),
        (["max_concurrency=5", "x=1.5", "y=5s"], {"max_concurrency": 5, "x": 1.5, "y": "5s"}),
        (["key=12345678", "secret=0", "token=true"], {"key": "12345678", "secret": "0", "token": "true"}),
        (
            ["client_kwargs.region_name=r", "client_kwargs.verify=false"],
            {"client_kwargs": {"region_name": "r", "verify": False}},
        ),
        (["client_kwargs.aws_access_key_id=123"], {"client_kwargs": {"aws_access_key_id": "123"}}),
        (['config_kwargs={"read_timeout": 3}'], {"config_kwargs": {"read_timeout": 3}}),
        (["a=", "a=2"], {"a": 2}),
    ],
)
def test_values_are_json_where_they_look_like_it(given: list[str], parsed: dict[str, object]) -> None:
    assert parse_options(given) == parsed


@pytest.mark.parametrize(
    "given",
    [["SENTINEL"], ["=SENTINEL"], ["a..b=SENTINEL"], ["a-b=SENTINEL"], ["x={SENTINEL"], ["a=SENTINEL", "a.b=1"]],
)
def test_what_is_no_option_is_refused_without_its_value(cli: Cli, given: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        parse_options(given)
    ran = cli("info", "s3://bucket/t", *[word for text in given for word in ("--option", text)])
    assert ran.status == 2 and "--option" in ran.err
    assert "SENTINEL" not in ran.out + ran.err


@pytest.mark.parametrize("name", ["self", "url", "create", "environment", "idle_timeout", "filesystem"])
@pytest.mark.parametrize("command", ["info TABLE", "txn list CATALOG", "commit-table show NAME"])
def test_what_is_a_parameter_of_a_call_is_no_option(command: str, name: str, cli: Cli, late: Path) -> None:
    words = [str(late) if word == "TABLE" else str(late / "catalog.db") if word == "CATALOG" else word
             for word in command.split()]  # fmt: skip
    refused = cli(*words, "--option", f"{name}=SENTINEL", "--json")
    assert (refused.status, json.loads(refused.err)["code"]) == (2, "USAGE")
    assert name in refused.err and "SENTINEL" not in refused.err


@pytest.mark.parametrize("place", ["info s3://bucket/t", "txn list dynamodb:catalog", "info s3://b/t driver=obstore"])
@pytest.mark.parametrize("name", ["client_kwargs", "config_kwargs"])
def test_an_option_that_is_a_dictionary(place: str, name: str, cli: Cli) -> None:
    words = [word for each in place.split() for word in (["--option", each] if "=" in each else [each])]
    refused = cli(*words, "--option", f"{name}=5", "--json")
    assert (refused.status, json.loads(refused.err)["code"]) == (1, "INVALID_CALL")
    assert f"option {name} must be a dictionary" in refused.err


def test_a_refusal_repeats_no_secret(cli: Cli) -> None:
    given = {"key": "SENTINEL-key", "secret": "SENTINEL-secret", "config_kwargs.connect_timeout": "1"}
    ran = cli("info", "s3://bucket/t", "--json", *options(Server("none", free_port()), **given))
    assert (ran.status, ran.out) == (1, "")
    assert json.loads(ran.err)["code"] == "STORE_ERROR" and "SENTINEL" not in ran.err


@pytest.mark.parametrize("kind", ["dynamo", "s3-dynamodb"])
def test_a_commit_table_is_created_and_shown(cli: Cli, ministack: Server, kind: str) -> None:
    name, given = f"cli-{kind}-{free_port()}", options(ministack)
    absent = cli("commit-table", "show", name, "--kind", kind, "--json", *given)
    assert absent.status == 1 and json.loads(absent.err)["code"] == "COMMIT_TABLE"
    made = document(cli("commit-table", "create", name, "--kind", kind, "--json", *given))
    assert made == {"name": name, "kind": kind, "status": "ACTIVE", "expires": True, "created": True}
    shown = cli("commit-table", "show", name, "--kind", kind, *given)
    assert f"commit='{kind}:{name}'" in shown.out and "old items expire" in shown.out
    other = {"dynamo": "s3-dynamodb", "s3-dynamodb": "dynamo"}[kind]
    assert cli("commit-table", "create", name, "--kind", other, *given).status == 1


def test_a_commit_table_takes_no_options_of_s3_alone(cli: Cli) -> None:
    ran = cli("commit-table", "create", "locks", "--option", "kind=x", "--option", "default_block_size=5")
    assert ran.status == 1 and "['default_block_size', 'kind'] do not apply to DynamoDB" in ran.err
