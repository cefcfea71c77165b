"""Tables on S3: Unity Catalog's client and the kernel use the keys that the server asks STS for, and renew them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from tests.support.s3 import Proxy, Server, proxied
from tests.support.unity_clients import CATALOG, Jvm, Kernel, OfficialClient, UnityServer, in_front_of, unity_server

SCHEMA = pa.schema([("id", pa.int64())])
ROLE = "arn:aws:iam::123456789012:role/tables"
TABLE = f"{CATALOG}.s.t"


@pytest.fixture
def store(moto: Server) -> Iterator[tuple[Proxy, Server]]:
    with proxied(moto) as found:
        yield found


@pytest.fixture
def server(moto: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UnityServer]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    given, bucket, file = moto.options(), moto.bucket(), tmp_path / "credentials.json"
    rule = {
        "kind": "assume-role",
        "prefix": f"s3://{bucket}/warehouse",
        "role-arn": ROLE,
        "region": "us-east-1",
        "endpoint-url": given["endpoint_url"],
        "access-key-id": given["key"],
        "secret-access-key": given["secret"],
    }
    file.write_text(json.dumps([rule]))
    stores = [f"--option={name}={given[name]}" for name in ("key", "secret", "endpoint_url")]
    stores += ["--option=client_kwargs.region_name=us-east-1", f"--set=credentials.rules_file={file}"]
    with unity_server(tmp_path, *stores, warehouse=f"s3://{bucket}/warehouse") as made:
        yield made


def hadoop(through: Server, **more: str) -> dict[str, str]:
    return {
        "fs.s3a.endpoint": f"http://127.0.0.1:{through.port}",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.attempts.maximum": "2",
        "fs.s3a.change.detection.mode": "none",
        **more,
    }


def test_the_kernel_writes_with_the_keys_of_a_role(
    unity_jvm: Jvm, server: UnityServer, store: tuple[Proxy, Server], moto: Server
) -> None:
    proxy, through = store
    official = OfficialClient(unity_jvm, server.url)
    official.schemas.createSchema(official.general("CreateSchema", {"name": "s", "catalog_name": CATALOG}))
    with in_front_of(server) as (calls, url):
        # With this setting all credentials count as about to expire, so each use of them asks for new ones.
        kernel = Kernel(
            unity_jvm, url, hadoop=hadoop(through, **{"fs.unitycatalog.renewal.leadTimeMillis": "86400000"})
        )
        table = kernel.create(TABLE, SCHEMA)
        assert table.location.startswith("s3://")
        assert kernel.append(table, [{"id": 1}, {"id": 2}]) == 1  # still with the staging table's credentials
        assert kernel.find(TABLE) == table
        assert kernel.append(table, [{"id": 3}]) == 2
        assert kernel.load(table).publish().version == 2
        assert sorted(row["id"] for row in kernel.load(table).rows()) == [1, 2, 3]
        asked = [request.target for request in calls.requests if "credentials" in request.target]
        kernel.close()
    assert sum("/staging-tables/" in each for each in asked) >= 2, asked
    assert sum("/tables/t/credentials" in each for each in asked) >= 2, asked
    headers = [{name.lower(): value for name, value in request.headers.items()} for request in proxy.requests]
    assert headers and all(each.get("x-amz-security-token") for each in headers)
    assert not any(moto.options()["key"] in each["authorization"] for each in headers)
    options: dict[str, Any] = {
        "unity_catalog_url": server.url,
        "endpoint_url": moto.options()["endpoint_url"],
        "client_kwargs": {"region_name": "us-east-1"},
    }
    mine = deltalog.DeltaTable.open(f"uc://{TABLE}", **options)
    assert sorted(mine.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
    mine.append(pa.table({"id": [4]}))
    other = Kernel(unity_jvm, server.url, hadoop=hadoop(through))
    assert sorted(row["id"] for row in other.load(other.find(TABLE)).rows()) == [1, 2, 3, 4]
    other.close()


def test_credentials_of_all_calls(unity_jvm: Jvm, server: UnityServer, store: tuple[Proxy, Server]) -> None:
    client = OfficialClient(unity_jvm, server.url)
    client.schemas.createSchema(client.general("CreateSchema", {"name": "s", "catalog_name": CATALOG}))
    kernel = Kernel(unity_jvm, server.url, hadoop=hadoop(store[1]))
    table = kernel.create(TABLE, SCHEMA)
    kernel.close()
    for operation in ("READ", "READ_WRITE"):
        answer = client.credentials.getTableCredentials(client.operation(operation), CATALOG, "s", "t")
        [found] = answer["storage-credentials"]
        assert found["operation"] == operation and found["expiration-time-ms"] > 0
        assert table.location == found["prefix"].rstrip("/") or table.location.startswith(
            found["prefix"].rstrip("/") + "/"
        )
        assert set(found["config"]) == {"s3.access-key-id", "s3.secret-access-key", "s3.session-token"}
        request = client.general(
            "GenerateTemporaryTableCredential", {"table_id": table.table_id, "operation": operation}
        )
        older = client.older_credentials.generateTemporaryTableCredentials(request)
        assert older["aws_temp_credentials"]["session_token"] and older["expiration_time"] > 0
    secrets = [*found["config"].values(), older["aws_temp_credentials"]["secret_access_key"]]
    log = server.log.read_text()
    assert not any(secret in log for secret in secrets)
