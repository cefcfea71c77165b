"""AWS signatures: boto3 with access keys of the catalog, and requests that were changed after they were signed."""

from __future__ import annotations

import datetime
import hashlib
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from deltalog import CallError, TransactionManager
from deltalog.server.access import issued, sigv4, token_text
from deltalog.server.access.authentication import AuthenticationSettings, server_key
from deltalog.server.access.grants import GrantChange, Grants
from deltalog.server.access.principals import Head, NotAuthenticatedError, Scope
from deltalog.server.access.privileges import Kind, Privilege
from deltalog.server.access.sigv4 import SigV4Settings
from deltalog.server.access.token_lookup import TokenSettings
from deltalog.server.serve import Settings
from deltalog.transactions.unity.documents import CATALOG_ACCESS_KEY
from tests.support.server import SCHEMA
from tests.support.server.access import CATALOGS, START, Serving, bearer, serving

KEY = "k3y-of-the-server-with-32-chars-or-more"
ONCE = Config(retries={"total_max_attempts": 1})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("signed")
    (made / "sigv4.key").write_text(f"{KEY}\n")
    return made


@pytest.fixture(scope="module")
def manager(place: Path) -> TransactionManager:
    made = TransactionManager(str(place / "catalog.db"))
    made.create_table("bank.a", str(place / "a"), SCHEMA, partition_by=["day"])
    return made


def settings_of(place: Path, **more: Any) -> Settings:
    sigv4_settings = SigV4Settings(str(place / "sigv4.key"), **more)
    return Settings(authentication=AuthenticationSettings(TokenSettings(cache_seconds=0), sigv4=sigv4_settings))


@pytest.fixture(scope="module")
def server(place: Path, manager: TransactionManager) -> Iterator[Serving]:
    with serving(manager, settings_of(place)) as made:
        yield made


@pytest.fixture
def key(manager: TransactionManager) -> issued.Issued:
    return issued.issue(manager.coordinator, "etl", groups=["ops"], is_admin=True, server_key=KEY.encode())


def client(server: Serving, key: issued.Issued, secret: str | None = None, region: str = "eu-central-1") -> Any:
    return boto3.client(
        "lakeformation", endpoint_url=server.url, region_name=region, aws_access_key_id=key.id,
        aws_secret_access_key=secret or key.secret, config=ONCE,
    )  # fmt: skip


def principal_name(server: Serving) -> str | None:
    found = server.last().principal
    return None if found is None else found.name


def test_boto3_calls_with_an_access_key(server: Serving, key: issued.Issued, manager: TransactionManager) -> None:
    needed = frozenset({Privilege.USE_CATALOG, Privilege.USE_SCHEMA, Privilege.SELECT})
    Grants(manager.coordinator).grant(Kind.CATALOG, CATALOG_ACCESS_KEY, [GrantChange("group:ops", needed)])
    lakeformation = client(server, key)
    id_ = lakeformation.start_transaction(TransactionType="READ_AND_WRITE")["TransactionId"]
    principal = server.last().principal
    assert principal is not None
    assert (principal.name, principal.groups, principal.scope) == ("etl", frozenset({"ops"}), Scope.WRITE)
    assert principal.credential == f"access key {key.id}"
    names = {"DatabaseName": "bank", "TableName": "a"}
    assert lakeformation.get_table_objects(**names, TransactionId=id_)["Objects"] == []
    assert lakeformation.extend_transaction(TransactionId=id_)["ResponseMetadata"]["HTTPStatusCode"] == 200
    described = lakeformation.describe_transaction(TransactionId=id_)["TransactionDescription"]
    assert described["TransactionStatus"] == "ACTIVE"
    assert any(each["TransactionId"] == id_ for each in lakeformation.list_transactions()["Transactions"])
    assert lakeformation.cancel_transaction(TransactionId=id_)["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_boto3_is_refused_with_a_wrong_secret_or_key(server: Serving, key: issued.Issued) -> None:
    other = issued.Issued("DLAK" + "A" * 16, key.credential, key.secret)
    for lakeformation in (client(server, key, "wrong"), client(server, other)):
        with pytest.raises(lakeformation.exceptions.AccessDeniedException):
            lakeformation.start_transaction()
        assert server.last().principal is None  # the principal is not recorded until the signature is verified


def test_a_revoked_or_expired_access_key_is_refused(server: Serving, manager: TransactionManager) -> None:
    lives = issued.issue(
        manager.coordinator, "etl", expires=datetime.timedelta(seconds=30), server_key=KEY.encode(),
        clock_ms=lambda: int(time.time() * 1000) - 20_000,
    )  # fmt: skip
    over = issued.issue(
        manager.coordinator, "etl", expires=datetime.timedelta(seconds=10), server_key=KEY.encode(),
        clock_ms=lambda: int(time.time() * 1000) - 20_000,
    )  # fmt: skip
    client(server, lives).start_transaction()
    issued.revoke(manager.coordinator, [lives.id])
    for each in (lives, over):
        with pytest.raises(ClientError, match="AccessDenied"):
            client(server, each).start_transaction()


def test_tokens_are_accepted_beside_signatures(server: Serving, manager: TransactionManager, place: Path) -> None:
    token = str(issued.issue(manager.coordinator, "other").secret)
    assert server.status(token) == 200 and server.status() == 403
    lakeformation = boto3.client(
        "lakeformation", endpoint_url=server.url, region_name="eu-central-1", aws_access_key_id="any",
        aws_secret_access_key="any", aws_session_token=token, config=ONCE,
    )  # fmt: skip
    lakeformation.start_transaction()
    assert principal_name(server) == "other"


def test_without_the_setting_no_signature_is_accepted(place: Path, manager: TransactionManager, key: Any) -> None:
    with serving(manager, Settings()) as server, pytest.raises(ClientError, match="AccessDenied"):
        client(server, key).start_transaction()


def test_regions_are_limited_if_configured(place: Path, manager: TransactionManager, key: issued.Issued) -> None:
    with serving(manager, settings_of(place, regions=("eu-west-1",))) as server:
        client(server, key, region="eu-west-1").start_transaction()
        with pytest.raises(ClientError, match="another service or region"):
            client(server, key).start_transaction()


# ------------------------------------------------------------------------------- requests other than what was signed


class Signed:
    """A request that is signed with botocore's signer and changed afterwards."""

    def __init__(self, server: Serving, key: issued.Issued, **more: Any) -> None:
        self.server = server
        self.path, self.method, self.body = START, more.pop("method", "POST"), more.pop("body", b"{}")
        self.path = more.pop("path", START)
        at = more.pop("at_s", time.time())
        host = urllib.parse.urlsplit(server.url).netloc
        request = AWSRequest(self.method, server.url + self.path, {"Host": host, **more.pop("headers", {})}, self.body)
        signer = SigV4Auth(Credentials(key.id, key.secret), more.pop("service", "lakeformation"), "eu-central-1")
        stamp = datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        request.context["timestamp"] = stamp
        request.headers["X-Amz-Date"] = stamp
        text = signer.string_to_sign(request, signer.canonical_request(request))
        signer._inject_signature_to_request(request, signer.signature(text, request))
        self.headers = [(name.lower(), value) for name, value in request.headers.items()]

    def set(self, name: str, value: str | None) -> None:
        self.headers = [each for each in self.headers if each[0] != name] + ([] if value is None else [(name, value)])

    def get(self, name: str) -> str:
        return dict(self.headers)[name]

    def sub(self, pattern: str, text: str) -> None:
        changed = re.sub(pattern, text, self.get("authorization"))
        assert changed != self.get("authorization")
        self.set("authorization", changed)

    def status(self) -> int:
        headers = [(name, value) for name, value in self.headers if name != "host"]
        where = urllib.parse.urlsplit(self.server.url)
        import http.client

        connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=60)
        try:
            connection.putrequest(self.method, self.path, skip_host=True)
            for name, value in [("host", self.get("host")), *headers]:
                connection.putheader(name, value)
            connection.putheader("content-length", str(len(self.body)))
            connection.endheaders(self.body)
            return connection.getresponse().status
        finally:
            connection.close()


def changed_body(signed: Signed) -> None:
    signed.body = b'{"TransactionType": "READ_ONLY"}'


def changed_path(signed: Signed) -> None:
    signed.path = "/ListTransactions"


def changed_query(signed: Signed) -> None:
    signed.path = f"{START}?a=b"


def changed_host(signed: Signed) -> None:
    signed.set("host", "localhost")


def one_bit(signed: Signed) -> None:
    value = signed.get("authorization")
    signed.set("authorization", value[:-1] + ("0" if value[-1] != "0" else "1"))


def upper_signature(signed: Signed) -> None:
    signed.sub("Signature=(.*)", "Signature=" + signed.get("authorization").split("Signature=")[1].upper())


def another_date(signed: Signed) -> None:
    signed.set("x-amz-date", "2020" + signed.get("x-amz-date")[4:])


def another_second(signed: Signed) -> None:
    date = signed.get("x-amz-date")
    signed.set("x-amz-date", date[:-2] + ("0" if date[-2] != "0" else "1") + "Z")


CHANGES: dict[str, Callable[[Signed], None]] = {
    "body": changed_body,
    "path": changed_path,
    "query": changed_query,
    "host": changed_host,
    "a bit of the signature": one_bit,
    "upper case": upper_signature,
    "date": another_date,
    "second": another_second,
    "no date": lambda signed: signed.set("x-amz-date", None),
    "date in other digits": lambda signed: signed.set("x-amz-date", signed.get("x-amz-date").replace("T", "t")),
    "not a date": lambda signed: signed.set("x-amz-date", signed.get("x-amz-date")[:9] + "996199Z"),
    "unsigned host": lambda signed: signed.sub("SignedHeaders=host;", "SignedHeaders="),
    "unsigned header": lambda signed: signed.set("x-amz-target", "Other"),
    "hash of another body": lambda signed: signed.set("x-amz-content-sha256", hashlib.sha256(b"x").hexdigest()),
    "unsigned body": lambda signed: signed.set("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
    "signed chunks": lambda signed: signed.set("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
    "missing header": lambda signed: signed.sub("SignedHeaders=host;", "SignedHeaders=host;x-a;"),
    "headers twice": lambda signed: signed.sub("SignedHeaders=host;", "SignedHeaders=host;host;"),
    "headers in another order": lambda signed: signed.sub(
        "SignedHeaders=host;x-amz-date", "SignedHeaders=x-amz-date;host"
    ),
    "another region": lambda signed: signed.sub("eu-central-1", "eu-west-1"),
    "another service": lambda signed: signed.sub("lakeformation", "s3"),
    "another algorithm": lambda signed: signed.sub("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"),
    "an unknown algorithm": lambda signed: signed.sub("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256X"),
    "no signature": lambda signed: signed.sub(", Signature=.*", ""),
    "long": lambda signed: signed.sub("Signature=", "X=" + "x" * 20_000 + ", Signature="),
}


def test_a_request_as_it_was_signed_is_accepted(server: Serving, key: issued.Issued) -> None:
    assert Signed(server, key).status() == 200
    assert Signed(server, key, body=b'{"TransactionType": "READ_ONLY"}').status() == 200
    with_hash = {"X-Amz-Content-SHA256": hashlib.sha256(b"{}").hexdigest(), "X-Amz-Target": "A  b", "X-Other": "c"}
    assert Signed(server, key, headers=with_hash).status() == 200
    assert Signed(server, key, method="GET", path=f"{CATALOGS}?max_results=1&page_token=", body=b"").status() == 200


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_request_that_was_changed_is_refused(
    change: Callable[[Signed], None], server: Serving, key: issued.Issued
) -> None:
    request = Signed(server, key)
    change(request)
    assert request.status() == 403


@pytest.mark.parametrize("change", [one_bit, changed_path, changed_host, another_second, CHANGES["unsigned header"]])
def test_a_request_that_states_its_hash_is_refused_if_it_was_changed(
    change: Callable[[Signed], None], server: Serving, key: issued.Issued
) -> None:
    request = Signed(server, key, headers={"X-Amz-Content-SHA256": hashlib.sha256(b"{}").hexdigest()})
    change(request)
    assert request.status() == 403


def test_a_signed_hash_of_another_body_is_refused(server: Serving, key: issued.Issued) -> None:
    request = Signed(server, key, headers={"X-Amz-Content-SHA256": hashlib.sha256(b"{}").hexdigest()})
    request.body = b'{"TransactionType": "READ_ONLY"}'
    assert request.status() == 403
    with_signed = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    assert Signed(server, key, headers=with_signed).status() == 403


@pytest.mark.parametrize(("offset_s", "status"), [(-880, 200), (-920, 403), (880, 200), (920, 403)])
def test_a_signature_is_accepted_for_fifteen_minutes(
    offset_s: float, status: int, server: Serving, key: issued.Issued
) -> None:
    assert Signed(server, key, at_s=time.time() + offset_s).status() == status


def test_a_signature_of_another_service_is_refused(server: Serving, key: issued.Issued) -> None:
    assert Signed(server, key, service="s3").status() == 403


def test_a_wrong_signature_is_not_saved_by_another_credential(server: Serving, key: issued.Issued) -> None:
    assert server.ask(START, {**bearer("x" * 30), "X-Amz-Date": "20200101T000000Z"})[0] == 403


def test_a_body_in_chunks_is_checked_as_a_whole(server: Serving, key: issued.Issued) -> None:
    import http.client

    for body, status in ((b"{}", 200), (b"{ }", 403)):
        request = Signed(server, key)
        where = urllib.parse.urlsplit(server.url)
        connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=60)
        pieces = (body[at : at + 1] for at in range(len(body)))
        connection.request(
            "POST", START, pieces, {**dict(request.headers), "Transfer-Encoding": "chunked"}, encode_chunked=True
        )
        assert connection.getresponse().status == status
        connection.close()


# ------------------------------------------------------------------------------------------------ pure


def head_of(headers: dict[str, str]) -> Head:
    return Head("POST", START, b"", headers)


@pytest.mark.parametrize(
    "text",
    [
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 ",
        "AWS4-HMAC-SHA256 Credential=DLAKAAAAAAAAAAAAAAAA/20261127/e/s/aws4_request",
        "AWS4-HMAC-SHA256 Credential=../20261127/e/s/aws4_request, SignedHeaders=host, Signature=" + "0" * 64,
        "AWS4-HMAC-SHA256 " * 2000,
        "AWS4-HMAC-SHA256 Credential=DLAKAAAAAAAAAAAAAAAA/20261127/e/s/aws4_request, SignedHeaders="
        + ";" * 4096 + ", Signature=" + "0" * 64,
    ],
)  # fmt: skip
def test_a_malformed_header_is_refused(text: str) -> None:
    headers = {"authorization": text, "host": "a", "x-amz-date": "20261127T000000Z"}
    with pytest.raises(NotAuthenticatedError):
        sigv4.signature_of(head_of(headers), SigV4Settings(""), 1795737600.0)


def test_the_published_example_of_aws() -> None:
    """The example of AWS's reference, with the secret that it uses."""
    secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    headers = {
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "host": "iam.amazonaws.com",
        "x-amz-date": "20150830T123600Z",
        "authorization": "AWS4-HMAC-SHA256 Credential=DLAKIOSFODNN7EXAMPLE/20150830/us-east-1/iam/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
    }
    headers["authorization"] = headers["authorization"].replace("DLAKIOSFODNN7EXAMPLE", "DLAK" + "A" * 16)
    request = Head("GET", "/", b"Action=ListUsers&Version=2010-05-08", headers)
    at = datetime.datetime(2015, 8, 30, 12, 36, tzinfo=datetime.timezone.utc).timestamp()
    signature = sigv4.signature_of(request, SigV4Settings("", services=("iam",)), at)
    assert signature.is_by(secret, hashlib.sha256(b"").hexdigest())
    assert not signature.is_by(secret, hashlib.sha256(b"x").hexdigest())
    assert secret not in repr(signature) and "5d672d" not in repr(signature)


def test_the_secret_depends_on_everything_that_it_is_derived_from() -> None:
    made = {
        token_text.secret_access_key(key, id_, salt)
        for key in (b"a" * 32, b"b" * 32)
        for id_ in ("DLAK" + "A" * 16, "DLAK" + "B" * 16)
        for salt in ("0" * 32, "1" * 32)
    }
    assert len(made) == 8 and all(len(each) == 43 for each in made)
    assert token_text.is_access_key_id(token_text.new_access_key_id())


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 31, b"\xff" * 40, "é".encode() * 40])
def test_a_weak_key_of_the_server_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(CallError) as raised:
        server_key(tmp_path / "key")
    assert content.decode("latin-1") not in str(raised.value) or not content
    with pytest.raises(CallError, match="cannot be read"):
        server_key(tmp_path / "nothing")
