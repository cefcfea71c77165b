"""One server has tables on two S3 services that accept different keys, and on a local disk. Every call, and recovery,
uses the storage options of the rule for the table's location.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable, TransactionManager
from tests.support.s3 import Proxy, Server, proxied
from tests.support.server import AT_ONCE, SCHEMA, Served, served
from tests.support.server.unity import Unity
from tests.support.waiting import until

ROWS = pa.table({"id": [1, 2], "day": ["mon", "tue"]})
SECRETS = ("id-of-the-lake", "secret-of-the-lake", "id-of-the-vault", "secret-of-the-vault")
_DENIED = b"<Error><Code>AccessDenied</Code><Message>No.</Message></Error>"
TABLES = "/api/deltalog/v1/tables"


@dataclass
class Stores:
    """``lake`` and ``vault``: locations on the two services; ``local``: a directory."""

    server: Served
    lake: str
    vault: str
    local: Path
    proxies: dict[str, Proxy]
    options: dict[str, Any]
    log: Path
    answers: list[str]

    def location(self, kind: str, name: str) -> str:
        return {"lake": f"{self.lake}/{name}", "vault": f"{self.vault}/{name}", "local": str(self.local / name)}[kind]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, received = self.server.ask(method, path, body)
        self.answers.append(json.dumps(received))
        return status, received

    def keys_at(self, kind: str) -> set[str]:
        """The ids of the keys with which the requests to a service were signed."""
        heads = [{name.lower(): value for name, value in each.headers.items()} for each in self.proxies[kind].requests]
        return {head["authorization"].partition("Credential=")[2].partition("/")[0] for head in heads}

    def put(self, kind: str, location: str, name: str) -> dict[str, Any]:
        """Put a data file of the table at a location, and return its AddObject."""
        body = io.BytesIO()
        pq.write_table(pa.table({"id": [7]}), body)
        data, uri = body.getvalue(), f"{location}/{name}"
        if kind == "local":
            Path(uri).parent.mkdir(parents=True, exist_ok=True)
            Path(uri).write_bytes(data)
            etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        else:
            options = self.options["by_location"][location.rpartition("/")[0]]
            client = boto3.client(
                "s3",
                endpoint_url=options["endpoint_url"],
                region_name="us-east-1",
                aws_access_key_id=options["key"],
                aws_secret_access_key=options["secret"],
            )
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            etag = client.put_object(Bucket=bucket, Key=key, Body=data)["ETag"]
        return {"Uri": uri, "ETag": etag, "Size": len(data), "PartitionValues": ["mon"]}


def _only(key: str, url: str) -> Any:
    """The rule for a service that has one bucket and accepts one key."""
    path = f"/{url.removeprefix('s3://').partition('/')[0]}"

    def rule(request: Any, forward: Any) -> Any:
        head = {name.lower(): value for name, value in request.headers.items()}
        is_known = f"Credential={key}/" in head.get("authorization", "") and request.target.startswith(path)
        return forward() if is_known else (403, [("Content-Type", "application/xml")], _DENIED)

    return rule


@pytest.fixture(scope="module")
def stores(moto: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    place = tmp_path_factory.mktemp("stores")
    local = place / "local"
    local.mkdir()
    with contextlib.ExitStack() as stack:
        lake, vault = f"s3://{moto.bucket()}/lake", f"s3://{moto.bucket()}/vault"
        proxies, by_location, toml = {}, dict[str, Any](), ""
        for kind, url in (("lake", lake), ("vault", vault)):
            proxies[kind], through = stack.enter_context(proxied(moto))
            proxies[kind].rule = _only(f"id-of-the-{kind}", url)
            endpoint = f"http://127.0.0.1:{through.port}"
            key, secret = f"id-of-the-{kind}", f"secret-of-the-{kind}"
            by_location[url] = {
                "key": key, "secret": secret, "endpoint_url": endpoint, "client_kwargs": {"region_name": "us-east-1"},
            }  # fmt: skip
            (place / f"{kind}.key").write_text(f"{key}\n")
            (place / f"{kind}.key").chmod(0o600)
            toml += (
                f'[storage.options.by_location."{url}"]\n'
                f'endpoint_url = "{endpoint}"\nkey = {{file = "{place / kind}.key"}}\n'
                f'secret = {{env = "SECRET_OF_{kind.upper()}"}}\nclient_kwargs = {{region_name = "us-east-1"}}\n'
            )
        toml += f'[storage.options.by_location."{local}"]\n'
        config = place / "server.toml"
        config.write_text(f'[unity]\nwarehouse = "{vault}/warehouse"\n[recovery]\nevery_seconds = 1\n{toml}')
        env = {f"SECRET_OF_{kind.upper()}": f"secret-of-the-{kind}" for kind in proxies}
        server = stack.enter_context(served(place / "catalog.db", "--config", str(config), env=env, log=place / "log"))
        Unity(server).ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        yield Stores(server, lake, vault, local, proxies, {"by_location": by_location}, place / "log", [])


def test_tables_of_three_stores_in_one_server(stores: Stores) -> None:
    for kind in ("lake", "vault", "local"):
        location = stores.location(kind, "t")
        DeltaTable.create(location, SCHEMA, partition_by=["day"], storage_options=stores.options)
        status, made = stores.ask("POST", TABLES, {"name": f"s.{kind}", "location": location})
        assert (status, made.get("version")) == (200, 1), made
    client = stores.server.client(config=AT_ONCE)
    id_ = client.start_transaction()["TransactionId"]
    for kind in ("lake", "vault", "local"):
        added = stores.put(kind, stores.location(kind, "t"), "day=mon/a.parquet")
        table = {"DatabaseName": "s", "TableName": kind}
        client.update_table_objects(**table, TransactionId=id_, WriteOperations=[{"AddObject": added}])
    assert client.commit_transaction(TransactionId=id_)["TransactionStatus"] == "COMMITTED"
    for kind in ("lake", "vault", "local"):
        (partition,) = client.get_table_objects(DatabaseName="s", TableName=kind)["Objects"]
        assert [each["Uri"] for each in partition["Objects"]] == [f"{stores.location(kind, 't')}/day=mon/a.parquet"]
    assert stores.keys_at("lake") == {"id-of-the-lake"}
    assert stores.keys_at("vault") == {"id-of-the-vault"}


@pytest.mark.long
def test_managed_tables_lie_in_the_warehouse_of_their_rule(stores: Stores) -> None:
    options = {"unity_catalog_url": stores.server.url, **stores.options["by_location"][stores.vault]}
    table = DeltaTable.create("uc://main.s.managed", ROWS, **options)
    table.append(ROWS)
    table.flush()
    assert DeltaTable.open("uc://main.s.managed", **options).version == 1
    assert table.url.startswith(f"{stores.vault}/warehouse/")
    assert stores.keys_at("vault") == {"id-of-the-vault"}


@pytest.mark.long
def test_recovery_publishes_with_the_keys_of_the_location(stores: Stores) -> None:
    location = stores.location("lake", "late")
    DeltaTable.create(location, SCHEMA, partition_by=["day"], storage_options=stores.options)
    assert stores.ask("POST", TABLES, {"name": "s.late", "location": location})[0] == 200
    manager = TransactionManager(str(stores.log.parent / "catalog.db"), **stores.options)
    proxy = stores.proxies["lake"]
    published = f"late/_delta_log/{2:020d}.json"

    def without_publication(request: Any, forward: Any) -> Any:
        is_held = request.method == "PUT" and request.target.partition("?")[0].endswith(published)
        return (503, [], b"") if is_held else passed(request, forward)

    passed = proxy.rule
    proxy.rule = without_publication
    try:
        manager.table("s.late").append(ROWS)
        assert stores.ask("GET", f"{TABLES}/s.late")[1]["version"] == 2
    finally:
        proxy.rule = passed
    until(lambda: not stores.ask("GET", f"{TABLES}/s.late")[1]["unpublished"])
    assert stores.keys_at("lake") == {"id-of-the-lake"}


def test_no_store_is_opened_that_has_no_rule(stores: Stores) -> None:
    bucket = stores.lake.removeprefix("s3://").partition("/")[0]
    before = {kind: len(proxy.requests) for kind, proxy in stores.proxies.items()}
    for location in (
        f"s3://{bucket}/other", f"s3://{bucket}/lake", f"s3://{bucket}/lakes/t", f"s3://{bucket}/lake/../other",
        f"s3://{bucket}/lake/%2e%2e/other", f"s3://{bucket}", "s3://another/lake/t", f"gs://{bucket}/lake/t",
        f"https://{bucket}/lake/t", f"s3://user:password@{bucket}/lake/t", f"{stores.vault}/warehouse",
        f"{stores.vault}/warehouse/__unitystorage/tables/t",
    ):  # fmt: skip
        status, refused = stores.ask("POST", TABLES, {"name": "s.attack", "location": location})
        assert (status, refused["error"]["type"]) == (400, "InvalidParameterValueException"), (location, refused)
    assert before["lake"] == len(stores.proxies["lake"].requests)
    # the same location with another scheme has the same rule
    assert stores.ask("POST", TABLES, {"name": "s.none", "location": f"s3a://{bucket}/lake/none"})[0] == 404


def test_failures_of_a_store_tell_no_key(stores: Stores) -> None:
    def refused(request: Any, forward: Any) -> Any:
        said = f"<Error><Code>AccessDenied</Code><Message>{' '.join(SECRETS[:2])}</Message></Error>"
        return 403, [("Content-Type", "application/xml")], said.encode()

    proxy = stores.proxies["lake"]
    passed, proxy.rule = proxy.rule, refused
    try:
        status, received = stores.ask("POST", TABLES, {"name": "s.fails", "location": stores.location("lake", "x")})
        assert (status, received["error"]["type"]) == (500, "InternalServerErrorException")
    finally:
        proxy.rule = passed
    os.kill(stores.server.process.pid, signal.SIGHUP)  # a reload logs its outcome
    stores.ask("GET", "/health")
    said = "\n".join([stores.log.read_text(), *stores.answers])
    for secret in SECRETS:
        assert secret not in said
