"""Tests the reload of a running server, on SIGHUP and when watched files change, and which changes it refuses."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import signal
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deltalog import TransactionManager
from deltalog.server.config import Configuration
from deltalog.server.reload import Reloader, states_of
from deltalog.server.serve import Server
from deltalog.server.settings import Settings
from tests.support.cli import run
from tests.support.server import Served, running, served
from tests.support.server.certificates import Pair, issue
from tests.support.waiting import until

OLD, NEW = "0123456789abcdef-old", "0123456789abcdef-new"
START = "/StartTransaction"
IN_EFFECT, REFUSED = "is in effect", "refused; the previous one stays in effect"
WATCHING = "[process]\nwatch_seconds = 0.05\n[recovery]\nevery_seconds = 0\n"
NOT_WATCHING = "[process]\nwatch_seconds = 0\n[recovery]\nevery_seconds = 0\n"


def bearing(server: Served, token: str) -> int:
    return server.ask("POST", START, {}, {"Authorization": f"Bearer {token}"})[0]


class Place:
    """A directory with a configuration, and the log of the server that has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.catalog = directory / "catalog.db"
        self.config = directory / "server.toml"
        self.log = directory / "log"
        self.on_hangup: Callable[[], None] | None = None

    def write(self, *sections: str) -> list[str]:
        self.config.write_text("\n".join(sections))
        return ["--config", str(self.config)]

    def count(self, what: str) -> int:
        return sum(what in line for line in self.log.read_text().splitlines())

    def hang_up(self, server: Served, outcome: str = IN_EFFECT) -> None:
        """Send SIGHUP, or do as if it was sent, and wait for the outcome."""
        before = self.count(outcome)
        if self.on_hangup is None:
            server.process.send_signal(signal.SIGHUP)
        else:
            self.on_hangup()
        until(lambda: self.count(outcome) > before)

    @contextlib.contextmanager
    def in_thread(self, *sections: str, **above: dict[str, Any]) -> Iterator[Served]:
        """A server in this process. ``above``: what the command line would set."""
        self.write(*sections)
        source = Configuration(self.config, {"catalog": {"url": str(self.catalog)}, "listen": {"port": 0}, **above})
        made = Server(TransactionManager(str(self.catalog)), source.settings(), source)
        self.on_hangup = made._process.on_hangup
        handler, logger = logging.FileHandler(self.log), logging.getLogger("deltalog")
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            with running(made):
                yield Served(made.url, None)  # type: ignore[arg-type]
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)
            handler.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# ----------------------------------------------------------------------------------------- the configuration


def test_limits_and_the_log_level_change_on_hangup(place: Place) -> None:
    options = place.write(NOT_WATCHING, "[limits]\nbody_bytes = 2048\nthreads = 2\nrequests = 2")
    with served(place.catalog, *options, log=place.log) as server:
        assert server.ask("POST", START, b" " * 3000 + b"{}")[0] == 413
        place.write(NOT_WATCHING, "[limits]\nbody_bytes = 4096\nthreads = 3\nrequests = 30\nheader_bytes = 2048")
        place.hang_up(server)
        assert server.ask("POST", START, b" " * 3000 + b"{}")[0] == 200
        assert server.ask("POST", START, b" " * 5000 + b"{}")[0] == 413
        assert server.ask("POST", START, {}, {"X-Long": "x" * 4000})[0] in (400, 431)
        place.write('[process]\nlog_level = "error"')
        server.process.send_signal(signal.SIGHUP)
        until(lambda: server.ask("POST", START, b" " * 5000 + b"{}")[0] == 200)
        lines = place.count("UnknownOperation")
        assert server.ask("POST", "/Nothing", {})[0] == 404
        assert place.count("UnknownOperation") == lines


def test_a_wrong_configuration_is_refused_and_the_earlier_stays(place: Place) -> None:
    with place.in_thread(NOT_WATCHING, "[limits]\nbody_bytes = 2048") as server:
        for wrong in ("[limits]\nbody_bytes = 'x'", "[limits", "[listen]\nhost = '0.0.0.0'", "[tls]\nkey_file='x'"):
            place.write(wrong)
            place.hang_up(server, REFUSED)
            assert server.ask("POST", START, b" " * 3000 + b"{}")[0] == 413
        place.config.unlink()
        place.hang_up(server, REFUSED)
        assert server.ask("POST", START, {})[0] == 200
        place.write(NOT_WATCHING, "[limits]\nbody_bytes = 4096")
        place.hang_up(server)
        assert server.ask("POST", START, b" " * 3000 + b"{}")[0] == 200


def test_what_needs_a_restart_is_said(place: Place) -> None:
    with place.in_thread(NOT_WATCHING) as server:
        place.write(NOT_WATCHING, f'[unity]\nwarehouse = "{place.directory}/w"\n[catalog]\nurl = "other.db"')
        place.hang_up(server)
        assert place.count("unity.warehouse has changed in the configuration") == 1
        assert place.count("[catalog] has changed in the configuration") == 0  # the command line overrides it
        place.write(NOT_WATCHING, '[catalog]\nmost_ahead_seconds = 5\n[audit]\nfile = "x"')
        place.hang_up(server)
        assert place.count("[catalog] has changed") == place.count("audit has changed") == 1
        assert server.ask("POST", START, {})[0] == 200


def test_a_changed_file_of_storage_options_needs_a_restart_and_this_is_said(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    key, other = place.directory / "key", place.directory / "options.json"
    key.write_text("old")
    other.write_text("{}")
    place.write(WATCHING, f'[storage]\noptions_file = "{other}"\noptions.key = {{file = "{key}"}}')
    source = Configuration(place.config, {})
    for text in ("newer", "newest"):
        key.write_text(text)
        source.settings()
        source.accept()
        source.accept()
    assert caplog.messages == [f"{key}, of [storage], has changed: this takes effect when the server is restarted"] * 2


def test_settings_of_tokens_change_on_hangup(place: Place) -> None:
    made = run("tokens", "create", str(place.catalog), "--principal", "root", "--admin", "--json")
    token = json.loads(made.out)["token"]
    with place.in_thread(NOT_WATCHING, "[tokens]\ncache_seconds = 3600") as server:
        assert bearing(server, token) == 200
        run("tokens", "revoke", str(place.catalog), token.split("_")[1][:12])
        assert bearing(server, token) == 200
        place.write(NOT_WATCHING, "[tokens]\ncache_seconds = 0")
        place.hang_up(server)
        assert bearing(server, token) == 403


def test_the_command_line_overrides_a_changed_file(place: Place) -> None:
    with place.in_thread(NOT_WATCHING, limits={"body_bytes": 2048}) as server:
        place.write(NOT_WATCHING, "[limits]\nbody_bytes = 4096")
        place.hang_up(server)
        assert server.ask("POST", START, b" " * 3000 + b"{}")[0] == 413


def test_many_hangups_under_load_lose_no_call(place: Place) -> None:
    (place.directory / "token").write_text(OLD)
    token = f'[tokens]\ntoken_file = "{place.directory}/token"\n'
    options = place.write(NOT_WATCHING, token)
    with served(place.catalog, *options, log=place.log) as server, ThreadPoolExecutor(4) as threads:
        over = threading.Event()

        def call() -> set[int]:
            found = set()
            while not over.is_set():
                found.add(bearing(server, OLD))
            return found

        asked = [threads.submit(call) for _ in range(4)]
        for number in range(300):
            place.write(NOT_WATCHING, token, f"[limits]\nthreads = {4 + number % 5}")
            server.process.send_signal(signal.SIGHUP)
        place.write(NOT_WATCHING, token, "[limits]\nbody_bytes = 1024")
        server.process.send_signal(signal.SIGHUP)
        bearer = {"Authorization": f"Bearer {OLD}"}
        until(lambda: server.ask("POST", START, b" " * 2000 + b"{}", bearer)[0] == 413)
        over.set()
        assert [each.result() for each in asked] == [{200}] * 4
        assert len(os.listdir(f"/proc/{server.process.pid}/task")) < 100  # threads of earlier limits have ended


# ---------------------------------------------------------------------------------------------------- secrets


def test_a_token_is_replaced_when_its_file_changes(place: Place) -> None:
    token = place.directory / "token"
    token.write_text(OLD)
    with place.in_thread(WATCHING, f'[tokens]\ntoken_file = "{token}"') as server:
        assert (bearing(server, OLD), bearing(server, NEW)) == (200, 403)
        token.write_text(NEW)
        until(lambda: bearing(server, NEW) == 200)
        assert bearing(server, OLD) == 403
        token.write_text("short")
        until(lambda: place.count(REFUSED) == 1)
        token.unlink()
        until(lambda: place.count(REFUSED) == 2)
        assert bearing(server, NEW) == 200
    assert OLD not in place.log.read_text() and NEW not in place.log.read_text()


def test_a_mounted_directory_is_replaced_by_its_link(place: Place) -> None:
    """Kubernetes replaces the link ``..data`` to a directory; the files themselves are links through it."""
    for name, token in (("1", OLD), ("2", NEW)):
        (place.directory / name).mkdir()
        (place.directory / name / "token").write_text(token)
        os.utime(place.directory / name / "token", (1_700_000_000, 1_700_000_000))
    data = place.directory / "..data"
    data.symlink_to("1")
    (place.directory / "token").symlink_to("..data/token")
    with place.in_thread(WATCHING, f'[tokens]\ntoken_file = "{place.directory}/token"') as server:
        assert bearing(server, OLD) == 200
        (place.directory / "new").symlink_to("2")
        (place.directory / "new").rename(data)
        until(lambda: bearing(server, NEW) == 200)
        assert bearing(server, OLD) == 403


def test_rules_of_credentials_are_replaced(place: Place) -> None:
    rules, external = place.directory / "rules.json", place.directory / "external"
    rules.write_text("[]")
    with place.in_thread(WATCHING, f'[credentials]\nrules_file = "{rules}"') as server:
        root = "/api/2.1/unity-catalog"
        assert server.ask("POST", f"{root}/schemas", {"name": "s", "catalog_name": "main"})[0] in (200, 201)
        table = {"name": "t", "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL"}
        table |= {"data_source_format": "DELTA", "storage_location": "s3://lake/t"}
        status, made = server.ask("POST", f"{root}/tables", {**table, "columns": []})
        assert status in (200, 201), (made, external)
        wanted = {"table_id": made["table_id"], "operation": "READ"}
        before = server.ask("POST", f"{root}/temporary-table-credentials", wanted)
        config = '{"s3.access-key-id": "AKID", "s3.secret-access-key": "x"}'
        rules.write_text(f'[{{"kind": "static", "prefix": "s3://lake/", "config": {config}}}]')
        until(lambda: place.count(IN_EFFECT) == 1)
        after = server.ask("POST", f"{root}/temporary-table-credentials", wanted)
        assert "AKID" not in str(before) and "AKID" in str(after)
        rules.write_text("[{")
        until(lambda: place.count(REFUSED) == 1)
        assert server.ask("POST", f"{root}/temporary-table-credentials", wanted)[0] == after[0]


# ------------------------------------------------------------------------------------------------------- TLS


def https(server: Served, authority: Pair, client: Pair | None = None) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=authority.certificate_file)
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if client is not None:
        context.load_cert_chain(client.certificate_file, client.key_file)
    port = urllib.parse.urlsplit(server.url).port
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)


def answers(server: Served, authority: Pair, client: Pair | None = None) -> bool:
    connection = https(server, authority, client)
    try:
        connection.request("GET", "/health/live")
        return connection.getresponse().status == 200
    except (ssl.SSLError, ConnectionError):
        return False
    finally:
        connection.close()


def test_a_certificate_is_replaced_and_connections_stay(place: Place) -> None:
    old, new = issue(place.directory, "old"), issue(place.directory, "new")
    files = place.directory / "tls.pem", place.directory / "tls.key"
    old.install(*files)
    with place.in_thread(WATCHING, f'[tls]\ncertificate_file = "{files[0]}"\nkey_file = "{files[1]}"') as server:
        stays = https(server, old)
        stays.request("GET", "/health/live")
        assert stays.getresponse().read()
        assert answers(server, old) and not answers(server, new)
        files[0].write_bytes(new.certificate_file.read_bytes())  # only one of the two files is replaced
        until(lambda: place.count(REFUSED) == 1)
        assert place.count("is not the private key of the certificate") == 1
        assert answers(server, old) and not answers(server, new)
        files[1].write_bytes(new.key_file.read_bytes())
        until(lambda: answers(server, new))
        assert not answers(server, old)
        stays.request("GET", "/health/live")
        assert stays.getresponse().status == 200
        stays.close()


def test_the_authority_of_callers_is_replaced(place: Place) -> None:
    server_pair = issue(place.directory, "server")
    authorities = [issue(place.directory, f"ca{number}", is_authority=True) for number in (1, 2)]
    clients = [issue(place.directory, f"client{number}", each) for number, each in enumerate(authorities)]
    authority = place.directory / "callers.pem"
    authority.write_bytes(authorities[0].certificate_file.read_bytes())
    tls = f'[tls]\ncertificate_file = "{server_pair.certificate_file}"\nkey_file = "{server_pair.key_file}"\n'
    with place.in_thread(WATCHING, tls, f'client_ca_file = "{authority}"') as server:
        assert [answers(server, server_pair, each) for each in (None, *clients)] == [False, True, False]
        authority.write_bytes(authorities[1].certificate_file.read_bytes())
        until(lambda: answers(server, server_pair, clients[1]))
        assert [answers(server, server_pair, each) for each in (None, *clients)] == [False, False, True]
        authority.write_text("no certificate")
        until(lambda: place.count(REFUSED) == 1)
        assert [answers(server, server_pair, each) for each in (None, *clients)] == [False, False, True]


# ------------------------------------------------------------------------------------------------ the reloader


class Stub:
    """A source of settings that fails with an unexpected exception."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.read = threading.Semaphore(0)
        self.seen = states_of(self.files())

    def settings(self) -> str:
        self.read.release()
        if self.file.read_text() == "defect":
            raise RuntimeError("a defect")
        return self.file.read_text()

    reread = settings

    def accept(self) -> None:
        return

    def files(self) -> list[str]:
        return [str(self.file)]


def test_a_defect_in_reloading_does_not_end_it(tmp_path: Path) -> None:
    source = Stub(tmp_path / "file")
    source.file.write_text("1")
    applied: list[str] = []
    reloader = Reloader(source, applied.append, 0.02)
    reloader.start()
    try:
        source.file.write_text("defect")
        assert source.read.acquire(timeout=60)
        source.file.write_text("another")
        until(lambda: applied[-1:] == ["another"])
        applied.clear()
        reloader.ask()
        until(lambda: applied == ["another"])
    finally:
        reloader.close()


def test_a_file_that_changes_before_the_server_runs_is_noticed(place: Place) -> None:
    token = place.directory / "token"
    token.write_text(OLD)
    place.write(WATCHING, f'[tokens]\ntoken_file = "{token}"')
    source = Configuration(place.config, {})
    settings = source.settings()
    token.write_text(NEW)
    applied: list[Settings] = []
    reloader = Reloader(source, applied.append, 0.02)
    reloader.start()
    try:
        until(lambda: bool(applied))
    finally:
        reloader.close()
    assert (settings.token, applied[0].token) == (OLD, NEW)
