"""A catalog that ``deltalog serve`` serves, with its tables on S3: the client has nothing but the server's address, and
uses the keys of a role that the server asks STS for."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, UnityCatalog
from tests.support.s3 import Proxy, Server, proxied
from tests.support.server import served

ROLE = "arn:aws:iam::123456789012:role/tables"


@pytest.fixture
def proxy(moto: Server) -> Iterator[tuple[Proxy, Server]]:
    with proxied(moto) as found:
        yield found


@pytest.fixture
def options(moto: Server, proxy: tuple[Proxy, Server], tmp_path: Path, monkeypatch: Any) -> Iterator[dict[str, Any]]:
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
    stores += ["--option=client_kwargs.region_name=us-east-1", "--warehouse", f"s3://{bucket}/warehouse"]
    with served(
        tmp_path / "catalog.db", *stores, f"--set=credentials.rules_file={file}", "--set=recovery.every_seconds=0"
    ) as server:
        UnityCatalog("main", unity_catalog_url=server.url).create_schema("s")
        yield {
            "unity_catalog_url": server.url,
            "endpoint_url": f"http://127.0.0.1:{proxy[1].port}",
            "client_kwargs": {"region_name": "us-east-1"},
        }


def test_a_table_on_s3(options: dict[str, Any], proxy: tuple[Proxy, Server]) -> None:
    rows = pa.table({"id": [1, 2]})
    table = DeltaTable.create("uc://main.s.t", rows, **options)
    table.append(pa.table({"id": [3]}))
    table.delete("id = 1")
    table.flush()
    again = DeltaTable.open("uc://main.s.t", **options)
    assert again.version == 2
    assert sorted(again.to_pyarrow_table()["id"].to_pylist()) == [2, 3]
    assert pickle.loads(pickle.dumps(again)).to_pyarrow_table().num_rows == 2
    assert again.url.startswith("s3://")
    headers = [{name.lower(): value for name, value in request.headers.items()} for request in proxy[0].requests]
    assert headers and all(each.get("x-amz-security-token") for each in headers)
    assert not any("testing-key-id" in each["authorization"] for each in headers)
    UnityCatalog("main", **options).drop_table("s.t")
    assert not DeltaTable.exists("uc://main.s.t", **options)
