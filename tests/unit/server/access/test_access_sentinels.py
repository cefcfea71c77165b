"""Callers' credentials are in no log, response, metric, error, pickle or repr, and in no list of processes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import pickle
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from deltalog import TransactionManager
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import CoordinatorError
from deltalog.server.access import issued, token_text
from deltalog.server.access.authentication import Authentication, AuthenticationSettings
from deltalog.server.access.oidc import OidcSettings
from deltalog.server.access.principals import Head, NotAuthenticatedError, SharedToken
from deltalog.server.access.sigv4 import SigV4Settings
from deltalog.server.access.token_lookup import TokenSettings
from deltalog.server.exchange import Exchange
from deltalog.server.limits import Limits
from deltalog.server.observe.settings import AuditSettings, MetricsSettings
from deltalog.server.quotas import Quotas
from deltalog.server.settings import Settings
from tests.support.cli import run
from tests.support.server import served
from tests.support.server.access import CATALOGS, START, Issuer, bearer, serving

KEY = "SENTINELkey0SENTINELkey0SENTINELkey0"
SHARED = "SENTINELshared0SENTINELshared0"
PATHS = [START, CATALOGS, "/nothing", "/metrics", "/api/2.1/unity-catalog/tables?x=%00"]


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """All log records at DEBUG level, formatted."""
    caplog.set_level(logging.DEBUG)
    caplog.handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    yield lambda: caplog.text


def settings_of(tmp_path: Path, issuer: Issuer) -> Settings:
    (tmp_path / "sigv4.key").write_text(KEY)
    return Settings(
        token=SHARED,
        audit=AuditSettings(str(tmp_path / "audit"), access_file=str(tmp_path / "access")),
        metrics=MetricsSettings(True, port=0),
        limits=Limits(quotas=Quotas(failures_per_second=0)),
        authentication=AuthenticationSettings(
            TokenSettings(cache_seconds=0, guesses=10_000),
            oidc=OidcSettings(issuer.url, "deltalog", retry_seconds=0),
            sigv4=SigV4Settings(str(tmp_path / "sigv4.key")),
        ),
    )


def members(exchange: Exchange) -> str:
    """All attributes of a request's exchange, including those that its repr leaves out."""
    return repr([getattr(exchange, each.name) for each in dataclasses.fields(exchange)])


def parts_of(token: str) -> list[str]:
    """A token, and the parts of it that are enough to misuse it."""
    if token_text.looks_like_token(token) and len(token) > 60:
        return [token, token[18:]]
    return [token, token.rpartition(".")[2]] if "." in token else [token]


def test_no_answer_and_no_log_has_a_token(tmp_path: Path, issuer: Issuer, records: Callable[[], str]) -> None:
    coordinator = SQLiteCoordinator(tmp_path / "catalog.db")
    right = [
        SHARED,
        str(issued.issue(coordinator, "etl").secret),
        str(issued.issue(coordinator, "etl", is_admin=True).secret),
        issuer.token(),
    ]
    revoked = issued.issue(coordinator, "etl")
    issued.revoke(coordinator, [revoked.id])
    wrong = [
        SHARED + "0", token_text.new_token().text, right[1][:-1] + "_", str(revoked.secret),
        issuer.token(aud="other"), issuer.token(exp=1), issuer.token()[:-10] + "A" * 10,
        "dlog_SENTINELmalformed", "SENTINEL.SENTINEL.SENTINEL", "SENTINELé\xff",
    ]  # fmt: skip
    said = []
    with serving(tmp_path / "catalog.db", settings_of(tmp_path, issuer)) as server:
        for token in right + wrong:
            for path in PATHS:
                for headers in (bearer(token), {"X-Amz-Security-Token": token}):
                    for method, body in (("GET", b""), ("POST", b"{}")):
                        status, *answer = server.ask(path, headers, method=method, body=body)
                        if path == START and method == "POST":
                            assert (status in (401, 403)) == (token in wrong), (status, token)
                        said.append(repr(answer))
        assert server.server.metrics_url is not None
        with urllib.request.urlopen(server.server.metrics_url, timeout=60) as metrics:
            said.append(metrics.read().decode())
        assert "deltalog_server" in said[-1]
        said += [repr(each) for each in server.exchanges] + [members(each) for each in server.exchanges]
        said += [repr(server.server), repr(server.server._authentication), repr(server.server._settings)]
    logs = [(tmp_path / name).read_text() for name in ("audit", "access")]
    assert all(logs) and "etl" in logs[0]
    text = "\n".join([*said, *logs, records()])
    assert "uvicorn" in text and "principal" in text
    for token in right + wrong:
        for part in parts_of(token):
            assert part not in text
    assert KEY not in text


def test_no_answer_and_no_log_has_a_secret_access_key(
    tmp_path: Path, issuer: Issuer, records: Callable[[], str]
) -> None:
    key = issued.issue(SQLiteCoordinator(tmp_path / "catalog.db"), "etl", server_key=KEY.encode())
    with serving(tmp_path / "catalog.db", settings_of(tmp_path, issuer)) as server:
        logging.getLogger("botocore").setLevel(logging.WARNING)  # the client's own log contains its signature
        logging.getLogger("urllib3").setLevel(logging.WARNING)
        try:
            for secret in (key.secret, "wrong"):
                client = boto3.client(
                    "lakeformation", endpoint_url=server.url, region_name="eu-central-1", aws_access_key_id=key.id,
                    aws_secret_access_key=secret, config=Config(retries={"total_max_attempts": 1}),
                )  # fmt: skip
                sent: list[Any] = []
                client.meta.events.register("before-send", functools.partial(_keep, sent))
                with contextlib.suppress(ClientError):
                    client.start_transaction()
                signature = sent[0].headers["Authorization"].decode().rpartition("=")[2]
                server.last()
                text = records() + repr(server.exchanges) + "".join(map(members, server.exchanges))
                assert len(signature) == 64 and signature not in text
                assert str(key.secret) not in text and KEY not in text and key.id in text
        finally:
            for name in ("botocore", "urllib3"):
                logging.getLogger(name).setLevel(logging.NOTSET)


def _keep(sent: list[Any], request: Any, **_: Any) -> None:
    sent.append(request)


def test_no_error_has_what_the_request_brought(tmp_path: Path, issuer: Issuer, records: Callable[[], str]) -> None:
    settings = settings_of(tmp_path, issuer)
    token = token_text.new_token().text

    class Failing(SQLiteCoordinator):
        def document(self, kind: str, key: str) -> Any:
            if kind == issued.CREDENTIAL:
                raise CoordinatorError("the database is gone", path="catalog")
            return super().document(kind, key)

    coordinator = Failing(tmp_path / "catalog.db")
    authentication = Authentication(coordinator, settings.authentication, shared=SHARED)
    brought = [
        {"authorization": f"Bearer {token}"},
        {"authorization": f"Bearer {issuer.token(aud='other')}"},
        {"authorization": "Bearer SENTINELtoken.SENTINELtoken.SENTINELtoken"},
        {"authorization": "Bearer SENTINELtoken", "x-amz-security-token": "SENTINELother"},
        {"authorization": "AWS4-HMAC-SHA256 Credential=SENTINEL/SENTINEL, Signature=SENTINEL"},
    ]
    for headers in brought:
        head = Head("POST", START, b"token=SENTINELquery", headers)
        with pytest.raises((NotAuthenticatedError, CoordinatorError)) as raised:
            asyncio.run(authentication.identify(head))
        error = raised.value
        shown = [str(error), repr(error), "".join(traceback.format_exception(error)), repr(head), records()]
        shown += [repr(pickle.dumps(error)), repr(pickle.loads(pickle.dumps(error)))]
        text = "\n".join(shown)
        for value in headers.values():
            secret = value.partition(" ")[2] or value
            assert secret not in text
        assert "SENTINELquery" not in text
    authentication.close()


def test_no_repr_has_a_secret(tmp_path: Path, issuer: Issuer) -> None:
    coordinator = SQLiteCoordinator(tmp_path / "catalog.db")
    settings = settings_of(tmp_path, issuer)
    made = issued.issue(coordinator, "etl")
    key = issued.issue(coordinator, "etl", server_key=KEY.encode())
    token = token_text.new_token()
    shared = SharedToken(SHARED)
    text = "\n".join(map(repr, [settings, made, key, token, shared, vars(shared), list(issued.issued(coordinator))]))
    for secret in (SHARED, made.secret, key.secret, token.text, KEY):
        assert str(secret) not in text


def test_no_list_of_processes_has_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SHARED)
    catalog = tmp_path / "catalog.db"
    token = run("tokens", "create", catalog, "--principal", "etl").out.split()[-1]
    log = tmp_path / "log"
    with served(catalog, "--token-file", str(tmp_path / "token"), "--log-level", "info", log=log) as server:
        for each in (token, SHARED):
            assert server.ask("POST", START, {}, bearer(each))[0] == 200
            assert server.ask("POST", START, {}, bearer(each + "0"))[0] == 403
        listed = Path(f"/proc/{server.process.pid}/cmdline")
        if listed.exists():
            assert b"serve" in listed.read_bytes() and SHARED.encode() not in listed.read_bytes()
    assert "403" in log.read_text()
    assert token not in log.read_text() and SHARED not in log.read_text()


def test_a_token_given_by_mistake_is_not_repeated(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.db"
    manager = TransactionManager(str(catalog))
    made = issued.issue(manager.coordinator, "etl")
    for text in (str(made.secret)[:-1] + "_", str(made.secret) + "x", "dlog_" + "S" * 80):
        done = run("tokens", "revoke", catalog, text, "--json")
        assert done.status == 1 and text not in done.out + done.err and str(made.secret)[18:] not in done.err
    done = run("tokens", "revoke", catalog, made.secret, "--json")
    assert done.status == 0 and "other users" in done.err and str(made.secret) not in done.out + done.err
    assert issued.find(manager.coordinator, made.id) is None
