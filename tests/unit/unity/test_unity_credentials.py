"""Credentials that the server of a Unity Catalog issues for tables on S3: used for every request, renewed before they
expire, and never shown."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, Environment, StoreError
from deltalog.storage.s3.connections import Connections
from deltalog.unity import messages
from deltalog.unity.rules import credential_at
from tests.support.s3 import Answer, Proxy, Request, Server, proxied
from tests.support.s3.rules import error_document
from tests.support.unity.http import UnityServer
from tests.support.unity.model import Model, Refused

ADDRESS = "uc://main.s.events"
HOUR_MS = 3_600_000
_USED = re.compile(r"Credential=([^/]+)/")


@dataclass
class Vault:
    """Issues credentials for S3, and decides for each request to the store whether the credential that signed it
    permits it."""

    now_ms: int = 1_800_000_000_000
    life_ms: int | None = HOUR_MS
    may_write: bool = True
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    known: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    used: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def issue(self, location: str, operation: str) -> tuple[messages.StorageCredential, ...]:
        self.asked.append(operation)
        if operation == "READ_WRITE" and not self.may_write:
            raise Refused(403, "PermissionDeniedException", "MODIFY is needed")
        number = next(self.numbers)
        key, token = f"VENDED{number:04d}", f"token-{number}-verysecret"
        expires = None if self.life_ms is None else self.now_ms + self.life_ms
        self.known[key] = token, operation, expires or 1 << 60
        config = {
            "s3.access-key-id": key,
            "s3.secret-access-key": f"hidden-{number}-verysecret",
            "s3.session-token": token,
        }
        return (
            messages.StorageCredential(
                prefix=location,
                operation="READ" if operation == "READ" else "READ_WRITE",
                expiration_time_ms=expires,
                config=dict(config),
            ),
        )

    def rule(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        headers = {name.lower(): value for name, value in request.headers.items()}
        found = _USED.search(headers.get("authorization", ""))
        key = found[1] if found else ""
        self.used.append(key)
        token, operation, expires = self.known.get(key, ("", "", 0))
        if headers.get("x-amz-security-token") != token or not token:
            return self._refuse(key, 403, "InvalidAccessKeyId")
        if self.now_ms >= expires or key in self.revoked:
            return self._refuse(key, 400, "ExpiredToken")
        if operation == "READ" and request.method not in ("GET", "HEAD"):
            return self._refuse(key, 403, "AccessDenied")
        return forward()

    def _refuse(self, key: str, status: int, code: str) -> Answer:
        self.refused.append(code)
        return error_document(status, code)


@pytest.fixture
def vault() -> Vault:
    return Vault()


@pytest.fixture
def s3(moto: Server, vault: Vault) -> Iterator[tuple[Proxy, Server]]:
    with proxied(moto) as (proxy, through):
        proxy.rule = vault.rule
        yield proxy, through


@pytest.fixture
def server(moto: Server, vault: Vault) -> Iterator[UnityServer]:
    model = Model(f"s3://{moto.bucket()}/lake")
    model.credentials = vault.issue
    with UnityServer(model, token="dapi-secret").running() as running:
        yield running


@pytest.fixture
def options(
    server: UnityServer, s3: tuple[Proxy, Server], vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    return {
        "unity_catalog_url": server.url,
        "unity_catalog_token": "dapi-secret",
        "endpoint_url": f"http://127.0.0.1:{s3[1].port}",
        "client_kwargs": {"region_name": "us-east-1"},
        "environment": Environment(clock_ms=lambda: vault.now_ms, sleep=lambda seconds: None),
    }


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


def test_every_request_is_signed_with_them(server: UnityServer, options: dict[str, Any], vault: Vault) -> None:
    table = DeltaTable.create(ADDRESS, rows(1), **options)
    table.append(rows(2))
    assert ids(DeltaTable.open(ADDRESS, **options)) == [1, 2]
    table.flush()
    assert vault.refused == []
    assert server.model.violations == []
    assert server.model.tables["main", "s", "events"].commits == []


@pytest.mark.parametrize("extra", [{}, {"use_ssl": False}], ids=["direct", "botocore"])
def test_those_to_write_are_asked_for_before_the_first_write(
    options: dict[str, Any], vault: Vault, extra: dict[str, Any]
) -> None:
    options = {**options, **extra}
    DeltaTable.create(ADDRESS, rows(1), **options).flush()
    vault.asked.clear()
    table = DeltaTable.open(ADDRESS, **options)
    assert ids(table) == [1]
    assert table.version == 0
    assert vault.asked == ["READ"]
    table.append(rows(2))
    table.append(rows(3))
    table.flush()
    assert ids(table) == [1, 2, 3]
    assert vault.asked == ["READ", "READ_WRITE"]
    operations = [vault.known[key][1] for key in vault.used]
    assert "READ" in operations
    assert vault.refused == []


def test_they_are_renewed_before_they_expire(server: UnityServer, options: dict[str, Any], vault: Vault) -> None:
    table = DeltaTable.create(ADDRESS, rows(1), **options)
    table.flush()
    before = server.of("GET", "credentials")
    for hour in range(1, 4):
        vault.now_ms += HOUR_MS - 60_000  # within the last five minutes of their life
        table.append(rows(hour + 1))
        table.flush()
        assert server.of("GET", "credentials") == before + hour
    assert ids(table) == [1, 2, 3, 4]
    assert vault.refused == []


@pytest.mark.parametrize("sent", [b'"expiration-time-ms":null,', b""], ids=["null", "absent"])
def test_some_do_not_expire(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, options: dict[str, Any], vault: Vault, sent: bytes
) -> None:
    table = DeltaTable.create(ADDRESS, rows(1), **options)
    table.flush()
    exchange = Connections.exchange

    def unlimited(self: Connections, *arguments: Any, **named: Any) -> Any:
        found = exchange(self, *arguments, **named)
        return dataclasses.replace(found, body=re.sub(rb'"expiration-time-ms":[0-9]+,', sent, found.body))

    monkeypatch.setattr(Connections, "exchange", unlimited)
    vault.life_ms = None
    table = DeltaTable.open(ADDRESS, **options)
    table.append(rows(2))
    asked = server.of("GET", "credentials")
    vault.now_ms += 1000 * HOUR_MS
    table.append(rows(3))
    table.flush()
    assert server.of("GET", "credentials") == asked
    vault.revoked.update(vault.known)
    table.append(rows(4))
    table.flush()
    assert ids(table) == [1, 2, 3, 4]
    assert "ExpiredToken" in vault.refused


def test_keys_that_no_header_can_have(options: dict[str, Any], server: UnityServer) -> None:
    DeltaTable.create(ADDRESS, rows(1), **options).flush()
    config = {"s3.access-key-id": "a\nb", "s3.secret-access-key": "s"}
    server.model.credentials = lambda location, operation: (
        messages.StorageCredential(prefix=location, operation="READ", config=dict(config)),
    )
    with pytest.raises(StoreError, match=r"are not those of S3\. Check"):
        DeltaTable.open(ADDRESS, **options)


def test_a_scan_that_takes_longer_than_their_life(options: dict[str, Any], vault: Vault) -> None:
    table = DeltaTable.create(ADDRESS, rows(0), **options)
    for number in range(1, 80):
        table.append(rows(number))
    table.flush()
    found = list[int]()
    before = len(vault.known)
    for batch in DeltaTable.open(ADDRESS, **options).snapshot().scan().batches():
        found += batch["id"].to_pylist()
        vault.now_ms += HOUR_MS // 32
    assert sorted(found) == list(range(80))
    assert len(vault.known) > before + 1  # they were renewed while rows were read


def test_revoked_ones_are_replaced(server: UnityServer, options: dict[str, Any], vault: Vault) -> None:
    table = DeltaTable.create(ADDRESS, rows(1), **options)
    table.flush()
    vault.revoked.update(vault.known)
    vault.now_ms += 5_000
    table.append(rows(2))
    table.flush()
    assert ids(table) == [1, 2]
    assert "ExpiredToken" in vault.refused


def test_a_large_file_is_uploaded_with_them(options: dict[str, Any], vault: Vault) -> None:
    table = DeltaTable.create(ADDRESS, rows(1).schema.append(pa.field("blob", pa.binary())), **options)
    blob = os.urandom(34 << 20)
    table.append(pa.table({"id": [1], "blob": [blob]}))
    table.flush()
    assert table.to_pyarrow_table()["blob"].to_pylist() == [blob]
    assert vault.refused == []


def test_a_caller_who_may_only_read(server: UnityServer, options: dict[str, Any], vault: Vault) -> None:
    DeltaTable.create(ADDRESS, rows(1), **options).flush()
    vault.may_write = False
    vault.asked.clear()
    table = DeltaTable.open(ADDRESS, **options)
    assert ids(table) == [1]
    assert vault.asked == ["READ"]
    with pytest.raises(
        StoreError, match=r"the catalog issues no credentials to write to .*: MODIFY is needed"
    ) as raised:
        table.append(rows(2))
    assert "READ" in vault.asked
    assert vault.refused == []
    assert "verysecret" not in str(raised.value)
    assert "dapi-secret" not in str(raised.value)
    assert server.model.tables["main", "s", "events"].latest == 0


def test_they_travel_with_a_pickle(server: UnityServer, options: dict[str, Any], vault: Vault) -> None:
    table = DeltaTable.create(ADDRESS, rows(1), **{**options, "environment": Environment()})
    vault.now_ms = Environment().clock_ms()
    table = DeltaTable.open(ADDRESS, **{**options, "environment": Environment()})
    asked = server.of("GET", "credentials")
    assert ids(pickle.loads(pickle.dumps(table))) == [1]
    assert server.of("GET", "credentials") == asked
    table.append(rows(2))
    table.flush()
    vault.asked.clear()
    copy = pickle.loads(pickle.dumps(table))
    copy.append(rows(3))
    copy.flush()
    assert ids(copy) == [1, 2, 3]
    assert vault.asked == []


def test_the_callers_own_credentials_come_first(
    server: UnityServer, options: dict[str, Any], moto: Server, vault: Vault
) -> None:
    DeltaTable.create(ADDRESS, rows(1), **options).flush()
    asked = server.of("GET", "credentials")
    assert ids(DeltaTable.open(ADDRESS, **{**options, **moto.options()})) == [1]
    assert server.of("GET", "credentials") == asked


def test_a_place_without_credentials(server: UnityServer, options: dict[str, Any], vault: Vault) -> None:
    DeltaTable.create(ADDRESS, rows(1), **options).flush()
    server.model.credentials = lambda location, operation: ()
    with pytest.raises(CallError, match="issued no credentials"):
        DeltaTable.open(ADDRESS, **options)


def test_the_longest_prefix_counts() -> None:
    def credential(prefix: str, key: str = "k") -> messages.StorageCredential:
        config = {"s3.access-key-id": key, "s3.secret-access-key": "s"}
        return messages.StorageCredential(prefix=prefix, operation="READ", expiration_time_ms=0, config=dict(config))

    given = [credential("s3://b/"), credential("s3://b/lake/t/"), credential("s3://b/lake"), credential("s3://b/la")]
    found = credential_at(given, "s3a://b/lake/t")
    assert found is given[1]
    assert credential_at(given, "s3://b/lake2") is given[0]
    assert credential_at(given[1:], "s3://b/lake2") is None
    assert "the-key" not in repr(credential("s3://b", "the-key"))
