"""Tokens of an OpenID Connect issuer on this machine, whose keys change, or which is down, slow or hostile."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from deltalog import CallError
from deltalog.server.access import jwks
from deltalog.server.access.authentication import AuthenticationSettings
from deltalog.server.access.jwks import KeyLimits, KeySet
from deltalog.server.access.oidc import OidcIssuer, OidcSettings
from deltalog.server.access.principals import NotAuthenticatedError, NotIdentifiedYetError, Principal, Scope
from deltalog.server.serve import Settings
from tests.support.server.access import (
    CATALOGS,
    Issuer,
    bearer,
    free_port,
    jwk,
    reply,
    rsa_key,
    serving,
)
from tests.support.server.certificates import LOCAL, authority


def answer(handler: BaseHTTPRequestHandler, document: Any, status: int = 200, headers: Any = None) -> bool:
    reply(handler, document, status, headers)
    return True


LIMITS = KeyLimits(refresh_seconds=600, max_age_seconds=86400, retry_seconds=10, fetch_seconds=5, fetch_bytes=1 << 20)


def settings_of(issuer: Issuer, **more: Any) -> OidcSettings:
    return OidcSettings(**{"issuer": issuer.url, "audience": "deltalog", "retry_seconds": 0, **more})


def identified(issuer: Issuer, *tokens: str, **more: Any) -> list[Principal]:
    """The principals of tokens, one after the other."""

    async def run() -> list[Principal]:
        made = OidcIssuer(settings_of(issuer, **more))
        try:
            return [await made.principal_of(each) for each in tokens]
        finally:
            made.close()

    return asyncio.run(run())


def refused(issuer: Issuer, token: str, match: str | None = None, **more: Any) -> None:
    with pytest.raises(NotAuthenticatedError, match=match) as raised:
        identified(issuer, token, **more)
    assert token not in str(raised.value)


# ------------------------------------------------------------------------------------------------ tokens


def test_a_token_says_who_calls(issuer: Issuer, tmp_path: Path) -> None:
    oidc = settings_of(issuer, prefix="sso:", admin_groups=("sso:admins",), scope="WRITE")
    with serving(tmp_path / "catalog.db", Settings(authentication=AuthenticationSettings(oidc=oidc))) as server:
        assert server.status(issuer.token(groups=["ops", "\n", 7])) == 200
        found = server.exchanges[-1].principal
        assert found == Principal("sso:alice", frozenset({"sso:ops"}), Scope.WRITE, credential="OpenID Connect")
        assert server.status(issuer.token(groups="admins")) == 200
        assert server.exchanges[-1].principal is not None and server.exchanges[-1].principal.is_admin
        assert server.status() == 403
        status, headers, body = server.ask(CATALOGS, bearer(issuer.token(aud="other")), method="GET")
        assert status == 401 and "audience" in body["message"] and "invalid_token" in headers["www-authenticate"]


def test_the_claims_that_name_principal_and_groups(issuer: Issuer) -> None:
    token = issuer.token(email="a@example", realm_access={"roles": ["x", "y"]})
    (found,) = identified(
        issuer, token, principal_claim="email", groups_claim="realm_access.roles", admins=("a@example",)
    )
    assert (found.name, found.groups, found.is_admin) == ("a@example", frozenset({"x", "y"}), True)
    refused(issuer, token, "preferred_username", principal_claim="preferred_username")
    (found,) = identified(
        issuer, issuer.token(**cast(Any, {"https://x.example/g": ["a"]})), groups_claim="https://x.example/g"
    )
    assert found.groups == {"a"}


def test_an_address_that_the_issuer_has_not_verified_names_nobody(issuer: Issuer) -> None:
    for verified in (False, "true", 1, None):
        claims = {} if verified is None else {"email_verified": verified}
        token = issuer.token(email="a@example", **cast(Any, claims))
        if verified is None:
            assert identified(issuer, token, principal_claim="email")[0].name == "a@example"
        else:
            refused(issuer, token, "not verified", principal_claim="email")
            assert identified(issuer, token)[0].name == "alice"


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256"])
def test_algorithms_of_public_keys(algorithm: str, issuer: Issuer) -> None:
    if algorithm == "ES256":
        issuer.rotate("ec", key=ec.generate_private_key(ec.SECP256R1()))
    token = issuer.token(algorithm=algorithm)
    assert identified(issuer, token, algorithms=(algorithm,))[0].name == "alice"
    if algorithm not in ("RS256", "ES256"):
        refused(issuer, token, "algorithm")


@dataclass(frozen=True)
class _Away:
    """A time that is this many seconds after the token is made."""

    seconds: int


WRONG_CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"exp": _Away(-40)}, "expired"),
    "no exp": ({"exp": None}, "lacks"),
    "exp is text": ({"exp": "soon"}, "claims is invalid"),
    "exp is infinite": ({"exp": float("inf")}, "claims is invalid"),
    "not yet valid": ({"nbf": _Away(60)}, "not valid yet"),
    "issued in the future": ({"iat": _Away(60)}, "not valid yet"),
    "another audience": ({"aud": "other"}, "audience"),
    "no audience": ({"aud": None}, "audience|lacks"),
    "audiences without it": ({"aud": ["a", "b"]}, "audience"),
    "another issuer": ({"iss": "https://evil.example"}, "issuer"),
    "issuer with a slash": ({"iss": "SELF/"}, "issuer"),
    "no issuer": ({"iss": None}, "issuer|lacks"),
    "no subject": ({"sub": None}, "sub"),
    "empty subject": ({"sub": ""}, "sub"),
    "control characters": ({"sub": "a\x1b[31m"}, "sub"),
    "long subject": ({"sub": "x" * 300}, "sub"),
    "a group": ({"sub": "group:admins"}, "sub"),
    "groups are no list": ({"groups": {"a": 1}}, "groups"),
    "many groups": ({"groups": ["g"] * 1001}, "groups"),
}


@pytest.mark.parametrize(("claims", "reason"), WRONG_CLAIMS.values(), ids=WRONG_CLAIMS)
def test_a_token_with_wrong_claims_is_refused(claims: dict[str, Any], reason: str, issuer: Issuer) -> None:
    given = {name: issuer.url + "/" if value == "SELF/" else value for name, value in claims.items()}
    now = int(time.time())
    given = {name: now + value.seconds if isinstance(value, _Away) else value for name, value in given.items()}
    refused(issuer, issuer.token(**given), reason)


def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    now = int(time.time())
    late, early = issuer.token(exp=now - 20), issuer.token(nbf=now + 20, iat=now + 20)
    assert len(identified(issuer, late, early)) == 2
    refused(issuer, late, "expired", leeway_seconds=5)


def encoded(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def unsigned(issuer: Issuer, header: dict[str, Any], signature: str = "") -> str:
    claims = {"iss": issuer.url, "aud": "deltalog", "sub": "root", "exp": int(time.time()) + 300}
    return f"{encoded(header)}.{encoded(claims)}.{signature}"


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, 1, ["RS256"]])
def test_a_token_without_a_signature_is_refused(algorithm: Any, issuer: Issuer) -> None:
    refused(issuer, unsigned(issuer, {"alg": algorithm, "kid": "first"}))
    assert issuer.requests == []


def test_a_public_key_is_no_secret_of_hmac(issuer: Issuer) -> None:
    public = issuer.keys["first"].public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    for secret in (
        public.public_bytes(serialization.Encoding.PEM, form),
        public.public_bytes(serialization.Encoding.DER, form),
        json.dumps(jwk(issuer.keys["first"], "first")).encode(),
    ):
        text = unsigned(issuer, {"alg": "HS256", "kid": "first"})[:-1]
        made = base64.urlsafe_b64encode(hmac.new(secret, text.encode(), hashlib.sha256).digest()).rstrip(b"=").decode()
        refused(issuer, f"{text}.{made}", "algorithm")
    with pytest.raises(CallError, match="algorithms"):
        OidcIssuer(settings_of(issuer, algorithms=("HS256",)))
    with pytest.raises(CallError, match="algorithms"):
        OidcIssuer(settings_of(issuer, algorithms=("none",)))


def test_a_symmetric_key_of_the_issuer_is_not_used(issuer: Issuer) -> None:
    secret = base64.urlsafe_b64encode(b"s" * 32).rstrip(b"=").decode()
    issuer.more_keys = [{"kty": "oct", "kid": "oct", "k": secret, "alg": "RS256"}]
    refused(issuer, jwt.encode({"sub": "root"}, b"s" * 32, "HS256", headers={"kid": "oct"}), "algorithm")
    refused(issuer, unsigned(issuer, {"alg": "RS256", "kid": "oct"}, "AAAA"), "key")


def test_keys_that_a_token_brings_are_not_used(issuer: Issuer) -> None:
    other = Issuer()
    try:
        other.rotate("first", key=rsa_key("of another issuer"))
        mine = other.keys["first"]
        for header in (
            {"jku": f"{other.url}/keys"},
            {"x5u": f"{other.url}/keys"},
            {"jwk": jwk(mine, "first")},
            {"x5c": ["MII"]},
        ):
            claims = {"iss": issuer.url, "aud": "deltalog", "sub": "root", "exp": int(time.time()) + 300}
            refused(issuer, jwt.encode(claims, mine, "RS256", headers={"kid": "first", **header}), "signature")
            genuine = issuer.token(headers=header)
            assert identified(issuer, genuine)[0].name == "alice"
        assert other.requests == []
    finally:
        other.close()


@pytest.mark.parametrize(
    "kid", ["../../etc/passwd", "http://127.0.0.1/keys", "first\x00", "' OR 1=1", "", "x" * 300, 7]
)
def test_a_strange_kid_finds_no_key(kid: Any, issuer: Issuer) -> None:
    refused(issuer, unsigned(issuer, {"alg": "RS256", "kid": kid}, "AAAA"))
    assert set(issuer.requests) <= {"/.well-known/openid-configuration", "/keys"}


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"crit": []}])
def test_extensions_that_must_be_understood_are_refused(header: dict[str, Any], issuer: Issuer) -> None:
    refused(issuer, issuer.token(headers=header))


def test_a_signature_of_other_claims_is_refused(issuer: Issuer) -> None:
    head, claims, signature = issuer.token().split(".")
    other = encoded({"iss": issuer.url, "aud": "deltalog", "sub": "root", "exp": int(time.time()) + 300})
    refused(issuer, f"{head}.{other}.{signature}", "signature")
    refused(issuer, f"{head}.{claims}.{signature[:-8]}AAAAAAAA", "signature")
    refused(issuer, f"{head}.{claims}.", "signature")


@pytest.mark.parametrize(
    "text",
    ["..", "a.b.c", "é.é.é", "." * 10_000, "x" * 20_000 + "..", "e30.e30.", "W10.W10.", encoded({"alg": 1}) + ".e30.",
     base64.urlsafe_b64encode(b"[" * 9000).decode() + ".e30.",
     base64.urlsafe_b64encode(b"\xff\xfe").decode() + ".e30."],
)  # fmt: skip
def test_what_is_no_token_is_refused_at_once(text: str, issuer: Issuer) -> None:
    refused(issuer, text)
    assert issuer.requests == []


def test_claims_that_nest_too_deeply_are_refused(issuer: Issuer) -> None:
    key = issuer.keys["first"]
    payload = ('{"a":' * 2000 + "1" + "}" * 2000).encode()
    token = jwt.api_jws.encode(payload, key, "RS256", headers={"kid": "first"})
    refused(issuer, token)


# -------------------------------------------------------------------------------------------------- keys


def test_keys_are_fetched_once_and_again_when_they_change(issuer: Issuer) -> None:
    async def run() -> None:
        made = OidcIssuer(settings_of(issuer))
        try:
            await asyncio.gather(*(made.principal_of(issuer.token()) for _ in range(20)))
            assert issuer.requests == ["/.well-known/openid-configuration", "/keys"]
            old = issuer.token()
            issuer.rotate("second", keep=True)
            await asyncio.gather(*(made.principal_of(issuer.token()) for _ in range(20)))
            await made.principal_of(old)
            assert len(issuer.requests) == 4
            issuer.rotate("third")
            await made.principal_of(issuer.token())
            with pytest.raises(NotAuthenticatedError):
                await made.principal_of(old)  # its key was withdrawn
        finally:
            made.close()

    asyncio.run(run())


def test_unknown_keys_are_asked_for_at_a_bounded_rate(issuer: Issuer) -> None:
    async def run() -> None:
        clock = [100.0]
        keys = KeySet(issuer.url, "", LIMITS, clock_s=lambda: clock[0])
        try:
            await keys.find("first", "RS256")
            for number in range(50):
                clock[0] += 1
                with pytest.raises(NotAuthenticatedError):
                    await keys.find(f"unknown {number}", "RS256")
            assert len(issuer.requests) == 2 + 2 * 5
        finally:
            keys.close()

    asyncio.run(run())


def test_a_slow_issuer_holds_up_few_callers_with_unknown_keys_and_none_with_known_ones(issuer: Issuer) -> None:
    async def run() -> None:
        made = OidcIssuer(settings_of(issuer, fetch_seconds=1))
        await made.principal_of(issuer.token())
        issuer.answer = silent
        unknown = issuer.token(headers={"kid": "unknown"})
        asked = [asyncio.ensure_future(made.principal_of(unknown)) for _ in range(100)]
        await asyncio.sleep(0)
        assert sum(each.done() for each in asked) == 36
        assert (await made.principal_of(issuer.token())).name == "alice"
        assert sum(each.done() for each in asked) == 36
        await asyncio.wait(asked)
        made.close()

    asyncio.run(run())


def test_an_issuer_that_is_down_does_not_stop_known_keys_before_they_are_too_old(issuer: Issuer) -> None:
    async def run() -> None:
        clock = [100.0]
        keys = KeySet(issuer.url, "", LIMITS, clock_s=lambda: clock[0])
        try:
            assert await keys.find("first", "RS256")
            issuer.answer = lambda handler: answer(handler, {}, 503)
            for _ in range(20):
                clock[0] += 3600
                assert await keys.find("first", "RS256")
            clock[0] += 5 * 3600
            with pytest.raises(NotIdentifiedYetError):
                await keys.find("first", "RS256")
            issuer.answer = lambda handler: False
            clock[0] += 11
            assert await keys.find("first", "RS256")
            issuer.rotate("second")
            clock[0] += 601
            with pytest.raises(NotAuthenticatedError):
                await keys.find("first", "RS256")  # withdrawn keys are forgotten at the next refresh
        finally:
            keys.close()

    asyncio.run(run())


def test_an_issuer_that_was_never_there_is_said_and_tried_again(issuer: Issuer, tmp_path: Path) -> None:
    issuer.answer = lambda handler: answer(handler, {}, 500)
    settings = Settings(authentication=AuthenticationSettings(oidc=settings_of(issuer)))
    with serving(tmp_path / "catalog.db", settings) as server:
        status, headers, _ = server.ask("/StartTransaction", bearer(issuer.token()))
        assert status == 503 and headers["retry-after"]
        assert server.ask("/health", method="GET")[0] == 200
        issuer.answer = lambda handler: False
        assert server.status(issuer.token()) == 200


def drip(handler: BaseHTTPRequestHandler, first: bytes, ended: list[bool] | None = None) -> bool:
    handler.wfile.write(first)
    for _ in range(200):
        handler.wfile.write(b"a")
        handler.wfile.flush()
        time.sleep(0.02)
    if ended is not None:
        ended.append(True)
    return True


def endless(handler: BaseHTTPRequestHandler) -> bool:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    while True:
        handler.wfile.write(b" " * 65536)


@pytest.mark.parametrize("first", [b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\nX: ", b"HTTP/1.0 "])
def test_a_fetch_ends_although_the_issuer_goes_on(first: bytes, issuer: Issuer) -> None:
    ended: list[bool] = []
    issuer.answer = lambda handler: drip(handler, first, ended)
    with pytest.raises(jwks.FetchError):
        jwks.fetch_json(f"{issuer.url}/keys", 0.2, 1 << 20)
    assert ended == []


def test_keys_are_fetched_by_tls_from_issuers_whose_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ca.issue("issuer", alternatives=LOCAL))
    issuer = Issuer(context)
    try:
        with pytest.raises(NotIdentifiedYetError):
            identified(issuer, issuer.token())
        assert issuer.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(ca.file))
        assert identified(issuer, issuer.token())[0].name == "alice"
        ended: list[bool] = []
        issuer.answer = lambda handler: drip(handler, b"HTTP/1.0 200 OK\r\n\r\n", ended)
        with pytest.raises(jwks.FetchError):
            jwks.fetch_json(f"{issuer.url}/keys", 0.2, 1 << 20)
        assert ended == []
    finally:
        issuer.close()


def silent(handler: BaseHTTPRequestHandler) -> bool:
    time.sleep(2)
    return True


HOSTILE: dict[str, Callable[[BaseHTTPRequestHandler], bool]] = {
    "a slow body": lambda handler: drip(handler, b"HTTP/1.0 200 OK\r\n\r\n"),
    "slow headers": lambda handler: drip(handler, b"HTTP/1.0 200 OK\r\nX: "),
    "a slow status": lambda handler: drip(handler, b"HTTP/1.0 "),
    "silence": silent,
    "without end": endless,
    "large": lambda handler: answer(handler, b"[" + b" " * (1 << 20) + b"]"),
    "no JSON": lambda handler: answer(handler, b"<html>"),
    "nested": lambda handler: answer(handler, b"[" * 100_000),
    "a list": lambda handler: answer(handler, []),
    "no keys": lambda handler: answer(handler, {"keys": {}}),
    "many keys": lambda handler: answer(handler, {"keys": [{}] * 101}),
    "no HTTP": lambda handler: drip(handler, b"SSH-2.0-OpenSSH\r\n"),
    "an error": lambda handler: answer(handler, {}, 404),
    "a redirect": lambda handler: answer(handler, {}, 302, {"Location": "/elsewhere"}),
    "a redirect to a file": lambda handler: answer(handler, {}, 301, {"Location": "file:///etc/passwd"}),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", ["/.well-known/openid-configuration", "/keys"])
@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_issuer_costs_little(
    hostile: Callable[[BaseHTTPRequestHandler], bool], where: str, issuer: Issuer
) -> None:
    issuer.answer = lambda handler: handler.path == where and hostile(handler)
    with pytest.raises(NotIdentifiedYetError):
        identified(issuer, issuer.token(), fetch_seconds=0.2)
    assert "/elsewhere" not in issuer.requests


@pytest.mark.parametrize(
    "document", [{"issuer": "https://evil.example"}, {"issuer": None}, {"jwks_uri": None},
                 {"jwks_uri": "file:///etc/passwd"}, {"jwks_uri": "http://evil.example/keys"}, {"jwks_uri": ["a"]},
                 {"jwks_uri": "ftp://127.0.0.1/keys"}],
)  # fmt: skip
def test_a_discovery_document_that_is_wrong_is_not_followed(document: dict[str, Any], issuer: Issuer) -> None:
    issuer.document = document
    with pytest.raises(NotIdentifiedYetError):
        identified(issuer, issuer.token())
    assert issuer.requests == ["/.well-known/openid-configuration"]


def test_an_issuer_that_is_not_there(issuer: Issuer) -> None:
    with pytest.raises(NotIdentifiedYetError):
        identified(issuer, issuer.token(), jwks_url=f"http://127.0.0.1:{free_port()}/keys")


def test_the_address_of_the_keys_may_be_configured(issuer: Issuer) -> None:
    assert identified(issuer, issuer.token(), jwks_url=f"{issuer.url}/keys")[0].name == "alice"
    assert issuer.requests == ["/keys"]


def test_a_token_without_kid_is_accepted_if_only_one_key_fits(issuer: Issuer) -> None:
    def without(key: Any) -> str:
        claims = {"iss": issuer.url, "aud": "deltalog", "sub": "alice", "exp": int(time.time()) + 300}
        return jwt.encode(claims, key, "RS256")

    assert identified(issuer, without(issuer.keys["first"]))[0].name == "alice"
    issuer.rotate("ec", keep=True, key=ec.generate_private_key(ec.SECP256R1()))
    assert identified(issuer, without(issuer.keys["first"]))[0].name == "alice"
    issuer.rotate("second", keep=True)
    refused(issuer, without(issuer.keys["first"]), "key")


def test_keys_for_other_purposes_are_left_out() -> None:
    good, small = rsa_key("first"), rsa.generate_private_key(65537, 1024)
    curve = ec.generate_private_key(ec.SECP384R1())
    given: list[Any] = [
        jwk(good, "a"),
        jwk(good, "encrypts", use="enc"),
        jwk(good, "signs", key_ops=["sign"]),
        jwk(good, "strange operations", key_ops=7),
        jwk(small, "small"),
        jwk(good, "private", d="AQAB"),
        jwk(good, "broken", n="!"),
        jwk(good, "empty", n=""),
        jwk(good, ["a"], alg="RS256"),  # type: ignore[arg-type]
        {"kty": "RSA", "kid": "nothing"},
        {"kty": "oct", "kid": "oct", "k": "AAAA"},
        {"kty": "unknown"},
        jwk(good, "for another", alg="RS512"),
        jwk(curve, "ec"),
        7,
    ]
    found = {each.kid: each for each in jwks.keys_of({"keys": given})}
    assert set(found) == {"a", "for another", "ec"}
    assert found["a"].fits("RS256") and not found["a"].fits("ES256") and not found["for another"].fits("RS256")
    assert found["ec"].fits("ES384") and not found["ec"].fits("ES256")


@pytest.mark.parametrize(
    "url", ["http://issuer.example", "file:///etc", "ftp://x", "https://user:secret@x", "https://", "x", "",
            "https://x/\n", "https://x/ y", "https://[::1", "https://x/#a", "http://127.0.0.1.evil.example"],
)  # fmt: skip
def test_an_issuer_must_have_a_safe_address(url: str) -> None:
    for more in ({"issuer": url}, {"issuer": "https://a.example", "jwks_url": url or "x"}):
        with pytest.raises(CallError) as raised:
            OidcIssuer(OidcSettings(**cast(Any, {"audience": "a", **more})))
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize("wrong", [{"audience": ""}, {"algorithms": ()}, {"scope": "root"}])
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CallError):
        OidcIssuer(OidcSettings(**{"issuer": "https://a.example", "audience": "a", **wrong}))


def test_the_event_loop_does_not_wait_for_the_issuer(issuer: Issuer) -> None:
    issuer.answer = silent

    async def run() -> None:
        made = OidcIssuer(settings_of(issuer, fetch_seconds=0.5))
        asked = asyncio.ensure_future(made.principal_of(issuer.token()))
        steps = 0
        while not asked.done():
            await asyncio.sleep(0.001)
            steps += 1
        assert isinstance(asked.exception(), NotIdentifiedYetError) and steps > 10
        made.close()

    asyncio.run(run())
