"""Tables of a Unity Catalog on S3: Spark's scans and the tasks that write use the keys that the catalog issues; the
session itself has no keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.support.s3 import Proxy, Server, proxied
from tests.support.server import served


@pytest.fixture
def proxy(ministack: Server) -> Iterator[tuple[Proxy, Server]]:
    with proxied(ministack) as found:
        yield found


@pytest.fixture
def options(ministack: Server, proxy: tuple[Proxy, Server], tmp_path: Path) -> Iterator[dict[str, Any]]:
    given, bucket, file = ministack.options(), ministack.bucket(), tmp_path / "credentials.json"
    rule = {
        "kind": "assume-role",
        "prefix": f"s3://{bucket}/warehouse",
        "role-arn": "arn:aws:iam::000000000000:role/tables",
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
        deltalog.UnityCatalog("main", unity_catalog_url=server.url).create_schema("s")
        yield {
            "unity_catalog_url": server.url,
            "endpoint_url": f"http://127.0.0.1:{proxy[1].port}",
            "client_kwargs": {"region_name": "us-east-1"},
        }


def test_executors_use_the_keys_of_the_catalog(
    spark: Any, options: dict[str, Any], proxy: tuple[Proxy, Server]
) -> None:
    address = "uc://main.s.events"
    spark_ext.write(spark.range(10)).storage_options(**options).save(address)
    spark_ext.write(spark.range(10, 15)).storage_options(**options).mode("append").save(address)
    frame = spark_ext.read(spark).storage_options(**options).load(address)
    assert sorted(row["id"] for row in frame.collect()) == [*range(15)]
    table = spark_ext.DeltaTable.forPath(spark, address, storage_options=options)
    table.delete("id < 5")
    assert deltalog.DeltaTable.open(address, **options).to_pyarrow_table().num_rows == 10
    headers = [{name.lower(): value for name, value in request.headers.items()} for request in proxy[0].requests]
    assert headers and all(each.get("x-amz-security-token") for each in headers)
    assert not any("testing-key-id" in each["authorization"] for each in headers)
