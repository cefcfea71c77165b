"""Authentication by client certificates."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from deltalog import CallError, TransactionManager
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.server.access import issued
from deltalog.server.access.authentication import AuthenticationSettings
from deltalog.server.access.certificates import CertificateRule, CertificateSettings, Membership
from deltalog.server.access.principals import NotAuthenticatedError, Principal, Scope
from deltalog.server.serve import Settings, check
from deltalog.server.tls import Tls
from tests.support.server.access import CATALOGS, START, Serving, bearer, serving
from tests.support.server.certificates import LOCAL, Authority, authority

RULE = CertificateSettings(
    group="OU", memberships=(Membership("writers", ("etl", "other")),), admins=("root",), scope="write"
)
NOT_AFTER = "Nov 27 16:00:00 2026 GMT"
AT = 1795795200.0


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ca"))


def settings_of(ca: Authority, rule: CertificateSettings | None = RULE) -> Settings:
    tls = Tls(*ca.issue("server", {NameOID.COMMON_NAME: "server"}, LOCAL), ca.file)
    return Settings(tls=tls, authentication=AuthenticationSettings(certificates=rule))


@pytest.fixture(scope="module")
def server(ca: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    manager = TransactionManager(str(tmp_path_factory.mktemp("served") / "catalog.db"))
    with serving(manager, settings_of(ca)) as made:
        yield made


def test_a_certificate_says_who_calls(ca: Authority, server: Serving) -> None:
    subject = {NameOID.COMMON_NAME: "etl", NameOID.ORGANIZATIONAL_UNIT_NAME: "ops"}
    assert server.ask(START, context=ca.client("etl", subject=subject))[0] == 200
    groups = frozenset({"ops", "writers"})
    assert server.exchanges[-1].principal == Principal("etl", groups, Scope.WRITE, credential="certificate")
    assert server.ask(START, context=ca.client("root", subject={NameOID.COMMON_NAME: "root"}))[0] == 200
    assert server.exchanges[-1].principal == Principal(
        "root", frozenset(), Scope.WRITE, is_admin=True, credential="certificate"
    )


def test_a_certificate_that_names_nobody_is_refused(ca: Authority, server: Serving) -> None:
    context = ca.client("nobody", subject={NameOID.ORGANIZATION_NAME: "x"})
    status, headers, body = server.ask(CATALOGS, method="GET", context=context)
    assert status == 401 and "CN" in body["message"] and headers["www-authenticate"]


def test_certificates_of_others_are_no_proof(ca: Authority, server: Serving, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(ca.file))
    context.load_cert_chain(*authority(tmp_path).issue("etl", {NameOID.COMMON_NAME: "etl"}))
    before = len(server.exchanges)
    for each in (context, ca.client(), ca.client("old", subject={NameOID.COMMON_NAME: "etl"}, days=-0.5)):
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            server.ask(START, context=each)
    assert len(server.exchanges) == before


def test_a_token_counts_more_than_the_certificate_that_carries_it(ca: Authority, server: Serving) -> None:
    coordinator = server.server._manager.coordinator
    token = str(issued.issue(coordinator, "alice").secret)
    context = ca.client("proxy", subject={NameOID.COMMON_NAME: "proxy"})
    assert server.ask(START, bearer(token), context=context)[0] == 200
    assert server.exchanges[-1].principal is not None and server.exchanges[-1].principal.name == "alice"
    # A wrong token is refused, even if the certificate would be accepted.
    assert server.ask(START, bearer(token[:-1]), context=context)[0] == 403
    assert server.ask(START, context=context)[0] == 200


def test_each_connection_has_its_own_certificate(ca: Authority, server: Serving) -> None:
    names = [f"user{number}" for number in range(8)]
    for name in names * 2:
        assert server.ask(START, context=ca.client(name, subject={NameOID.COMMON_NAME: name}))[0] == 200
        assert server.exchanges[-1].principal is not None and server.exchanges[-1].principal.name == name


def test_requests_on_one_connection_are_of_one_principal(ca: Authority, server: Serving) -> None:
    where = urllib.parse.urlsplit(server.url)
    context = ca.client("etl", subject={NameOID.COMMON_NAME: "etl"})
    connection = http.client.HTTPSConnection("127.0.0.1", where.port, timeout=60, context=context)
    for _ in range(3):
        connection.request("POST", START, b"{}")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
    connection.close()


def test_certificates_may_be_optional(ca: Authority, tmp_path: Path) -> None:
    rule = CertificateSettings(required=False)
    token = str(issued.issue(SQLiteCoordinator(tmp_path / "catalog.db"), "alice").secret)
    with serving(tmp_path / "catalog.db", settings_of(ca, rule)) as server:
        assert server.ask(START, context=ca.client())[0] == 403
        assert server.ask(START, bearer(token), context=ca.client())[0] == 200
        assert server.ask(START, context=ca.client("etl", subject={NameOID.COMMON_NAME: "etl"}))[0] == 200
        context = ssl.create_default_context(cafile=str(ca.file))
        context.load_cert_chain(*authority(tmp_path).issue("etl", {NameOID.COMMON_NAME: "etl"}))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            server.ask(START, context=context)


def test_without_the_setting_a_certificate_only_opens_the_connection(ca: Authority, tmp_path: Path) -> None:
    with serving(tmp_path / "catalog.db", settings_of(ca, None)) as server:
        context = ca.client("etl", subject={NameOID.COMMON_NAME: "etl"})
        assert server.ask(START, context=context)[0] == 200
        assert server.exchanges[-1].principal == Principal("anonymous", is_admin=True)


def test_principals_by_certificates_need_an_authority() -> None:
    with pytest.raises(CallError, match="--tls-client-ca"):
        check(Settings(authentication=AuthenticationSettings(certificates=RULE)))


# ------------------------------------------------------------------------------------------------------- the rule


def certificate(*subject: tuple[str, str], alternatives: Any = ()) -> dict[str, Any]:
    return {"subject": tuple((each,) for each in subject), "subjectAltName": alternatives, "notAfter": NOT_AFTER}


ALTERNATIVES = (("DNS", "etl.example"), ("email", "etl@example"), ("URI", "spiffe://example/etl"))


@pytest.mark.parametrize(
    ("principal", "name"),
    [("CN", "etl"), ("DNS", "etl.example"), ("email", "etl@example"), ("URI", "spiffe://example/etl")],
)
def test_the_part_that_names_the_principal(principal: str, name: str) -> None:
    rule = CertificateRule(CertificateSettings(principal))
    found = rule.principal_of(certificate(("commonName", "etl"), alternatives=ALTERNATIVES), AT - 1)
    assert found == Principal(name, credential="certificate")


@pytest.mark.parametrize(
    "subject",
    [
        (),
        (("organizationName", "etl"),),
        (("commonName", "etl"), ("commonName", "root")),
        (("commonName", ""),),
        (("commonName", "root\x00.example"),),
        (("commonName", " root"),),
        (("commonName", "x" * 256),),
    ],
)
def test_an_ambiguous_subject_names_nobody(subject: Any) -> None:
    with pytest.raises(NotAuthenticatedError):
        CertificateRule(RULE).principal_of(certificate(*subject), AT - 1)


def test_several_alternative_names_name_nobody() -> None:
    several = certificate(alternatives=(("DNS", "a"), ("DNS", "b")))
    with pytest.raises(NotAuthenticatedError):
        CertificateRule(CertificateSettings("DNS")).principal_of(several, AT - 1)


def test_a_group_whose_name_cannot_be_one_is_refused() -> None:
    with pytest.raises(NotAuthenticatedError, match="group"):
        subject = certificate(("commonName", "etl"), ("organizationalUnitName", "\n"))
        CertificateRule(RULE).principal_of(subject, AT - 1)


def test_a_certificate_expires_while_its_connection_is_open() -> None:
    rule = CertificateRule(RULE)
    rule.principal_of(certificate(("commonName", "etl")), AT - 1)
    with pytest.raises(NotAuthenticatedError, match="expired"):
        rule.principal_of(certificate(("commonName", "etl")), AT)
    assert ssl.cert_time_to_seconds(NOT_AFTER) == AT and time.time() > 0


@pytest.mark.parametrize("wrong", [{"principal": "O"}, {"group": "CN"}, {"scope": "root"}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CallError):
        CertificateRule(CertificateSettings(**wrong))


def test_the_names_of_the_alternatives_are_those_of_the_tls_library(ca: Authority, tmp_path: Path) -> None:
    rule = CertificateSettings("URI")
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier("spiffe://example/etl"), x509.DNSName("etl")]
    with serving(tmp_path / "catalog.db", settings_of(ca, rule)) as server:
        assert server.ask(START, context=ca.client("uri", alternatives=names))[0] == 200
        assert server.exchanges[-1].principal is not None
        assert server.exchanges[-1].principal.name == "spiffe://example/etl"
