"""Tests the configuration file of a server: error messages, secrets by reference, and --check-config."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import socket
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltalog import CallError, TransactionManager
from deltalog.server import config, config_checks
from deltalog.server.config import Config, Configuration, parse, read, settings_of
from tests.support.cli import run
from tests.support.server import served
from tests.support.server.certificates import issue
from tests.support.server.configuration_page import PAGE, page

SECRET = "a-secret-of-32-characters-0123456789"


def wrong(tmp_path: Path, text: str | bytes) -> str:
    """The message with which a configuration is refused."""
    file = tmp_path / "server.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CallError) as raised:
        Configuration(file, {})
    message = str(raised.value)
    assert "server.toml" in message
    return message.replace(f"{file}: ", "").replace(str(file), "FILE")


# ------------------------------------------------------------------------------------------- what is refused

REFER = 'secrets do not belong in this file: give {file = "…"} or {env = "…"}.'
SECTIONS = ", ".join(sorted(each.name for each in dataclasses.fields(Config)))
WRONG = {
    "[listen]\nhots = 'x'": "[listen] has no key hots; did you mean host?.",
    "[lisen]\n": "there is no section [lisen]; did you mean listen?.",
    "host = 'x'": f"there is no section [host]; known are {SECTIONS}.",
    "listen = 5": "listen must be a section, [listen].",
    "[[listen]]\nport = 5": "listen must be a section, [listen].",
    "[listen]\nport = '5'": "[listen] port: expected an integer, got text.",
    "[listen]\nport = 5.5": "[listen] port: expected an integer, got a number.",
    "[listen]\nport = true": "[listen] port: expected an integer, got true or false.",
    "[listen]\nport = 65536": "[listen] port: must be 0 to 65,535.",
    "[listen]\nport = {a = 1}": "[listen] port: expected an integer, got a table.",
    "[listen]\nhost = ['x']": "[listen] host: expected text, got a list.",
    "[listen]\nhost = 1979-05-27": "[listen] host: expected text, got date.",
    "[limits]\nthreads = 0": "[limits] threads: must be 1 to 1,000,000,000,000.",
    "[limits]\nrequest_seconds = inf": "[limits] request_seconds: must be 0.1 to 1,000,000,000.",
    "[limits]\nrequest_seconds = nan": "[limits] request_seconds: must be 0.1 to 1,000,000,000.",
    "[limits]\nbody_seconds = -1": "[limits] body_seconds: must be 0.1 to 1,000,000,000.",
    "[unity]\nreadable = [5]": "[unity] readable[0]: expected text, got an integer.",
    "[process]\nlog_level = 'debug'": "[process] log_level: invalid enum value 'debug'.",
    "[process]\ndrain_seconds = 'x'": "[process] drain_seconds: expected a number or nothing, got text.",
    "[storage.options]\nsecret = 'x'": f"[storage] options.secret: {REFER}",
    "[storage.options.by_location.'s3://a']\nkey = 'x'": f"[storage] options.by_location.s3://a.key: {REFER}",
    "[storage]\noptions = 5": "[storage] options: expected a table, got an integer.",
    "[listen]\nport = 5\nport = 6": "FILE is not valid TOML: Cannot overwrite a value (at end of document).",
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_wrong_configurations(text: str, message: str, tmp_path: Path) -> None:
    assert wrong(tmp_path, text) == message


@pytest.mark.parametrize(
    "text",
    [
        # Nobody would be served.
        *(f"[limits]\n{name}_seconds = 0" for name in ("header", "body", "response")),
        *(f"[tokens]\n{name} = 0" for name in ("guesses", "guess_seconds", "lookup_seconds")),
        *(f"[oidc]\nissuer = 'https://a'\naudience = 'b'\n{name} = 0" for name in ("fetch_bytes", "max_age_seconds")),
        "[sigv4]\nkey_file = 'k'\nwindow_seconds = 0",
        # No rate would be limited, because it is forgotten at once.
        "[limits.quotas]\ncalls_per_second = 1\nremembered = 0",
        # The threads that wait for so long would end.
        "[recovery]\nevery_seconds = 1e10",
        *(f"[process]\n{name}_seconds = 1e10" for name in ("watch", "drain", "end")),
    ],
)
def test_numbers_that_cannot_work(text: str, tmp_path: Path) -> None:
    assert "must be" in wrong(tmp_path, text)


def test_all_wrong_keys_are_named_at_once(tmp_path: Path) -> None:
    found = wrong(tmp_path, "[listen]\na = 1\nb = 2\n[limts]\n[tokens]\ntoken = 'x'").splitlines()
    assert len(found) == 4 and "use token_file" in found[-1]
    found = wrong(tmp_path, "[listen]\nport = 'x'\n[limits]\nthreads = -1\nrequests = -1").splitlines()
    assert len(found) == 3


HOSTILE = {
    "deep lists": "[listen]\nhost = " + "[" * 20_000,
    "deep closed lists": "[unity]\nreadable = " + "[" * 5_000 + "]" * 5_000,
    "deep tables": "a = " + "{b = " * 9_000,
    "a long dotted key": ".".join(["a"] * 30_000) + " = 1",
    "a long integer": "[listen]\nport = " + "9" * 60_000,
    "a large integer": "[listen]\nport = " + "9" * 4_000,
    "a large file": "#" * 100_000,
    "many sections": "".join(f"[s{number}]\n" for number in range(5_000)),
    "no UTF-8": b"\xff\xfe",
    "a NUL": b"[listen]\nhost = '\x00'",
    "a long name": "[" + "x" * 60_000 + "]",
    "an escape in a name": '["\\u001b[2J"]',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_configurations(text: str | bytes, tmp_path: Path) -> None:
    """No hostile configuration takes long to refuse, and no message is long or has control characters."""
    for line in wrong(tmp_path, text).splitlines():
        assert len(line) < 500 and line.isprintable()


@pytest.mark.parametrize("place", ["none.toml", "directory", "/dev/zero"])
def test_files_that_cannot_be_read(place: str, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(CallError, match=r"cannot be read|larger than"):
        parse(tmp_path / place)


def test_a_message_does_not_quote_a_secret_in_the_wrong_place(tmp_path: Path) -> None:
    for text in (
        f"[tokens]\ntoken = '{SECRET}'",
        f"[tokens]\ntoken_file = ['{SECRET}']",
        f"[tokens]\ntoken_file = {SECRET}",
        f"[storage.options]\nsecret = '{SECRET}'",
        f"[listen]\nport = '{SECRET}'",
        f"[listen]\nport = 'x' {SECRET}",
        f"[tokens]\ntoken = '{SECRET}",
    ):
        assert SECRET not in wrong(tmp_path, text)


# ---------------------------------------------------------------------------------------------- the settings


def test_every_key_can_be_set_and_reaches_its_settings(tmp_path: Path) -> None:
    """For every section and key, a value that is written as TOML reaches the settings unchanged."""
    given = sample(Config)
    given["process"]["log_level"] = "error"
    file = tmp_path / "server.toml"
    file.write_text("\n".join(f"{name} = {toml_of(value)}" for name, value in given.items()))
    assert json.loads(msgspec.json.encode(Configuration(file, {}).config)) == given


def sample(kind: Any) -> Any:
    """A valid value of a type, as in JSON."""
    parts = [each for each in typing.get_args(kind) if each is not type(None)]
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {each.name: sample(hints[each.name]) for each in dataclasses.fields(kind)}
    if typing.get_origin(kind) is tuple:
        return [sample(parts[0])]
    if typing.get_origin(kind) is typing.Literal:
        return parts[-1]
    if typing.get_origin(kind) is dict:
        return {"anon": True}
    return sample(parts[0]) if parts else {bool: True, int: 3000, float: 3000.5, str: "x"}[kind]


def toml_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_of(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_of, value))}]"
    return json.dumps(value)


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[limits]\nthreads = 5\nrequests = 6\n")
    found = Configuration(file, {"limits": {"threads": 7}}).config
    assert (found.limits.threads, found.limits.requests) == (7, 6)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("limits.threads=3", {"limits": {"threads": 3}}),
        ("unity.warehouse=s3://lake/w", {"unity": {"warehouse": "s3://lake/w"}}),
        ('unity.readable=["a"]', {"unity": {"readable": ["a"]}}),
        ("unity.catalog=a\nb = 5", {"unity": {"catalog": "a\nb = 5"}}),
        ("unity.catalog=5\nb = 5", {"unity": {"catalog": "5\nb = 5"}}),
        ("tokens.token_file=", {"tokens": {"token_file": ""}}),
    ],
)
def test_settings_of_the_command_line(text: str, found: dict[str, Any]) -> None:
    assert config.set_of(text) == found


@pytest.mark.parametrize(
    "text", ["", "limits", "limits=3", "limits.=3", ".a=3", "limits.threads", "storage.options.key=x"]
)
def test_wrong_settings_of_the_command_line(text: str) -> None:
    with pytest.raises(CallError):
        config.set_of(text)


def no_file(file: Path) -> dict[str, Any]:
    raise AssertionError(file)


def test_secrets_come_from_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.delenv("DELTALOG_SERVER_TOKEN", raising=False)
    monkeypatch.setenv("MY_TOKEN", f"{SECRET}-2")
    assert settings_of(read({}, "x")).token is None
    assert settings_of(read({"tokens": {"token_env": "MY_TOKEN"}}, "x")).token == f"{SECRET}-2"
    both = {"token_file": str(tmp_path / "token"), "token_env": "MY_TOKEN"}
    assert settings_of(read({"tokens": both}, "x")).token == SECRET
    with pytest.raises(CallError, match="cannot be read"):
        settings_of(read({"tokens": {"token_file": str(tmp_path / "none")}}, "x"))
    given = {
        "key": {"env": "MY_TOKEN"},
        "secret": {"file": str(tmp_path / "token")},
        "endpoint_url": "http://x",
        "by_location": {"s3://a/": {"secret": {"file": str(tmp_path / "token")}}},
    }
    found = read({"storage": {"options": given}}, "x")
    assert config.storage_options_of(found.storage, no_file) == {
        "key": f"{SECRET}-2",
        "secret": SECRET,
        "endpoint_url": "http://x",
        "by_location": {"s3://a/": {"secret": SECRET}},
    }
    assert SECRET not in json.dumps(config.shown(found)) and "MY_TOKEN" in json.dumps(config.shown(found))
    monkeypatch.delenv("MY_TOKEN")
    with pytest.raises(CallError, match="MY_TOKEN is not set"):
        config.storage_options_of(found.storage, no_file)


# --------------------------------------------------------------------------------------------- --check-config


def checked(tmp_path: Path, text: str, *options: str, status: int = 0) -> dict[str, Any]:
    (tmp_path / "server.toml").write_text(text)
    done = run("serve", "--config", tmp_path / "server.toml", "--check-config", *options, "--json")
    assert done.status == status, done.err + done.out
    found: dict[str, Any] = json.loads(done.out)
    assert found["ok"] is (status == 0)
    return found


def test_a_right_configuration_is_shown_without_secrets(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    token.chmod(0o600)
    pair = issue(tmp_path, "server", days=(-1, 300))
    text = f"""
[catalog]
url = "{tmp_path}/catalog.db"
[listen]
port = 0
[tokens]
token_file = "{token}"
[tls]
certificate_file = "{pair.certificate_file}"
key_file = "{pair.key_file}"
client_ca_file = "{pair.certificate_file}"
[storage.options]
secret = {{file = "{token}"}}
"""
    found = checked(tmp_path, text)
    assert (found["problems"], found["warnings"]) == ([], [])
    assert found["configuration"]["tls"]["key_file"] == str(pair.key_file)
    assert found["configuration"]["limits"]["threads"] == 16
    assert SECRET not in json.dumps(found)
    assert not (tmp_path / "catalog.db").exists()
    shown = run("serve", "--config", tmp_path / "server.toml", "--check-config")
    assert shown.status == 0 and "[listen]\n" in shown.out and "The configuration is valid." in shown.out
    assert SECRET not in shown.out


def test_everything_that_is_wrong_is_found(tmp_path: Path) -> None:
    old = issue(tmp_path, "old", days=(-9, -1))
    later = issue(tmp_path, "later", days=(1, 9))
    soon = issue(tmp_path, "soon", days=(-1, 3))
    caller = issue(tmp_path, "caller", usage="client")
    (tmp_path / "short").write_text("short")
    (tmp_path / "rules.json").write_text("{}")
    url = f'[catalog]\nurl = "{tmp_path}/catalog.db"\n[listen]\nport = 0\n'

    def tls(certificate: Path, key: Path) -> str:
        return f'{url}[tls]\ncertificate_file = "{certificate}"\nkey_file = "{key}"\n'

    for text, problem in (
        (tls(old.certificate_file, old.key_file), "certificate has expired"),
        (tls(later.certificate_file, later.key_file), "not yet valid"),
        (tls(caller.certificate_file, caller.key_file), "purpose"),
        (tls(old.certificate_file, soon.key_file), "is not the private key of the certificate"),
        (tls(old.key_file, old.key_file), "are not a certificate and its private key"),
        (tls(tmp_path / "none", old.key_file), "[tls] certificate_file"),
        (f'{url}[tls]\nkey_file = "{old.key_file}"', "both certificate_file and key_file"),
        (f'{url}[tokens]\ntoken_file = "{tmp_path}/short"', "16 printable"),
        (f'{url}[tokens]\ntoken_file = "{tmp_path}/none"', "none cannot be read"),
        (f'{url}[credentials]\nrules_file = "{tmp_path}/rules.json"', "not a list of rules"),
        ('[listen]\nport = 0', "no catalog is given"),
        (f'{url}host = "192.0.2.1"\n[tokens]\ntoken_env = "HOME"', "cannot listen on 192.0.2.1"),
        (f'{url}[storage.options]\nsecret = {{env = "NOT_SET"}}', "NOT_SET is not set"),
        (f'{url}[storage]\noptions_file = "{tmp_path}/short"', "short is not JSON"),
        (f'{url}[audit]\nfile = "{tmp_path}/none/audit"', "none does not exist"),
        (f'{url}[audit]\nfil = "x"', "did you mean file"),
        (f'{url}[metrics]\nport = 70000', "must be 0 to 65,535"),
        (f'{url}[limts]', "did you mean limits"),
    ):  # fmt: skip
        problems = checked(tmp_path, text, status=1)["problems"]
        assert any(problem in each for each in problems), (problem, problems)
    assert "expires in 2 days" in checked(tmp_path, tls(soon.certificate_file, soon.key_file))["warnings"][0]


def test_an_address_for_others_needs_tokens_of_the_catalog(tmp_path: Path) -> None:
    text = f'[catalog]\nurl = "{tmp_path}/catalog.db"\n[listen]\nport = 0\nhost = "0.0.0.0"'
    assert "Unless the catalog has tokens" in checked(tmp_path, text)["warnings"][-1]
    TransactionManager(str(tmp_path / "catalog.db"))
    assert "reachable from other machines" in checked(tmp_path, text, "--check-catalog", status=1)["problems"][0]


def test_how_callers_prove_who_they_are_is_checked(tmp_path: Path) -> None:
    url = f'[catalog]\nurl = "{tmp_path}/catalog.db"\n[listen]\nport = 0\n'
    (tmp_path / "key").write_text("short")
    for text, problem in (
        ("[certificates]", "needs TLS with the certificate authority of the clients"),
        ("[certificates]\nprincipal = 'X'", "must be one of CN"),
        ("[oidc]\nissuer = 'https://x'", "missing required field audience"),
        ("[oidc]\nissuer = 'x'\naudience = 'y'", "URLs of an issuer"),
        (f"[sigv4]\nkey_file = '{tmp_path}/key'", "key"),
        (
            "[[certificates.memberships]]\ngroup = 'a'\nmember = ['b']",
            "has no key memberships[0].member; did you mean members",
        ),
        ("[limits.quotas]\nburst = 'x'", "[limits] quotas.burst: expected an integer, got text"),
        ("[limits.quotas]\nburst = -1", "[limits] quotas.burst: must be 0 to"),
    ):
        problems = checked(tmp_path, url + text, status=1)["problems"]
        assert problem in problems[0], problems


def test_what_may_be_wrong_is_a_warning(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    token.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = f'[catalog]\nurl = "x.db"\n[listen]\nport = {taken.getsockname()[1]}\n[tokens]\ntoken_file = "{token}"'
        warnings = checked(tmp_path, text)["warnings"]
    assert len(warnings) == 2
    assert "every user of the machine can read" in warnings[0] and "is in use" in warnings[1]


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "a b"])
def test_a_catalog_that_clients_could_not_name_is_refused(name: str, tmp_path: Path) -> None:
    text = f'[catalog]\nurl = "x.db"\n[listen]\nport = 0\n[unity]\nwarehouse = ""\ncatalog = "{name}"'
    assert "[unity] catalog: clients could not name" in checked(tmp_path, text, status=1)["problems"][0]


def test_an_empty_warehouse_is_none(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[unity]\nwarehouse = ""')
    assert settings_of(Configuration(file, {}).config).unity.warehouse is None


@pytest.mark.parametrize("name", ["create", "idle_timeout"])
def test_what_is_no_storage_option_is_refused(name: str, tmp_path: Path) -> None:
    text = f'[catalog]\nurl = "x.db"\n[listen]\nport = 0\n[storage.options]\n{name} = 5'
    problems = checked(tmp_path, text, status=1)["problems"]
    assert problems == [f"[storage] options: {name}: there are no storage options of these names."]


def test_more_connections_than_the_process_may_have_are_warned_about(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    try:
        file = tmp_path / "server.toml"
        file.write_text("[catalog]\nurl = 'c.db'\n[listen]\nport = 0\n[limits]\nconnections = 113")
        found = json.loads(run("serve", "--config", file, "--check-config", "--json").out)
        assert found["ok"]
        assert any(
            "113, but the limit on open files permits this process only 112" in each for each in found["warnings"]
        )
        found = json.loads(
            run("serve", "--config", file, "--check-config", "--set", "limits.connections=112", "--json").out
        )
        assert not any("open files" in each for each in found["warnings"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_catalog_is_asked_if_wanted(tmp_path: Path) -> None:
    text = f'[catalog]\nurl = "{tmp_path}/catalog.db"\n[listen]\nport = 0'
    checked(tmp_path, text)
    assert "no catalog at" in checked(tmp_path, text, "--check-catalog", status=1)["problems"][0]
    assert not (tmp_path / "catalog.db").exists()
    TransactionManager(str(tmp_path / "catalog.db"))
    checked(tmp_path, text, "--check-catalog")


def test_a_file_that_configures_all_serves(tmp_path: Path) -> None:
    """A server needs only its configuration. The path of the catalog in it is relative to the working directory."""
    (tmp_path / "server.toml").write_text(f'[catalog]\nurl = "{tmp_path}/catalog.db"\n[listen]\nport = 1')
    wrong_name = run("serve", "--config", tmp_path / "server.toml", "--set", "unity.catlog=x", "--json")
    assert wrong_name.status == 2 and "did you mean catalog" in wrong_name.err
    no_catalog = run("serve", "--json")
    assert no_catalog.status == 2 and "No catalog is given" in no_catalog.err
    options = ("--config", str(tmp_path / "server.toml"), "--option=secret=abcdefgh", "--option=key=abcdefgh")
    with served(tmp_path / "other.db", *options, log=tmp_path / "log") as server:
        assert server.ask("GET", "/health/ready")[0] == 200
        text = (tmp_path / "log").read_text()
    assert (tmp_path / "other.db").exists() and not (tmp_path / "catalog.db").exists()
    # Secrets on the command line are warned about.
    assert "list the arguments of its processes" in text and "abcdefgh" not in text


# ------------------------------------------------------------------------------------------------- the page


def test_the_page_names_every_key() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.support.server.configuration_page"


def test_the_checks_need_no_environment(tmp_path: Path) -> None:
    """The checks start no server, so the port is free afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    given = {"listen": {"port": port}, "catalog": {"url": os.fspath(tmp_path / "c.db")}}
    assert config_checks.check(None, given, no_file).ok
    socket.create_server(("127.0.0.1", port)).close()
