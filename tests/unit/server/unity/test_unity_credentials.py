"""Credentials that the server vends: rules in a file, static keys, and roles limited to a location."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from deltalog import CallError
from deltalog.errors import StoreError
from deltalog.server.unity import sts
from deltalog.server.unity.credentials import AssumeRole, Static, Vendor, read_rules
from tests.support.s3 import Server
from tests.support.server import Served, served
from tests.support.server.unity import PROTOCOL, Table, Unity

SECRET = "static-secret-of-the-lake"
KEYS = {"s3.access-key-id": "AKIA", "s3.secret-access-key": SECRET}
ROLE = "arn:aws:iam::123456789012:role/tables"


def rules(*given: dict[str, Any]) -> bytes:
    return json.dumps(given).encode()


def role(prefix: str = "s3://vault/", **more: Any) -> dict[str, Any]:
    return {"kind": "assume-role", "prefix": prefix, "role-arn": ROLE, **more}


# ------------------------------------------------------------------------------------------------- the file


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"not json but " + SECRET.encode(),
        rules({"kind": "other", "prefix": "s3://x"}),
        rules({"kind": "static", "config": KEYS}),
        rules({"kind": "static", "prefix": "s3://x", "config": {"secret": SECRET}}),
        rules({"kind": "static", "prefix": "s3://x", "config": KEYS, "more": SECRET}),
        rules(role("gs://x")),
        rules({**role(), "duration-seconds": 60}),
    ],
)
def test_a_wrong_file_is_refused_without_its_secrets(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "credentials.json"
    file.write_bytes(content)
    with pytest.raises(CallError) as raised:
        read_rules(file)
    assert SECRET not in str(raised.value)
    assert "credentials.json" in str(raised.value)


def test_a_missing_file_stops_the_server_from_starting(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deltalog.cli.main", "serve", str(tmp_path / "c.db"), "--set"]
    rules = f"credentials.rules_file={tmp_path / 'none'}"
    ended = subprocess.run([*command, rules], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert "none cannot be read" in ended.stderr


def test_rules_do_not_show_their_secrets(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    file.write_bytes(
        rules({"kind": "static", "prefix": "s3://x", "config": KEYS}, role(**{"secret-access-key": SECRET}))
    )
    assert SECRET not in repr(read_rules(file))
    made = Vendor(read_rules(file)).vend("s3://x/t", "READ")
    assert SECRET not in repr(made)
    assert made[0].config["s3.secret-access-key"] == SECRET


# -------------------------------------------------------------------------------------------------- the rules


def test_the_longest_prefix_counts() -> None:
    made = [Static(prefix=prefix, config={"s3.access-key-id": prefix}) for prefix in ("s3://a/", "s3://a/b", "s3a://c")]
    vendor = Vendor(made)
    for location, expected in (
        ("s3://a/x", "s3://a/"),
        ("s3://a/b", "s3://a/b"),
        ("s3://a/b/c", "s3://a/b"),
        ("s3://a/bc", "s3://a/"),
        ("s3://c/x", "s3a://c"),
        ("s3a://a/b/c", "s3://a/b"),
    ):
        (found,) = vendor.vend(location, "READ")
        assert (found.prefix, found.config["s3.access-key-id"]) == (location, expected)
    assert vendor.vend("s3://ab/x", "READ") == vendor.vend("file:///a", "READ") == []
    assert Vendor([*made, Static(prefix="s3://a/own", config={})]).vend("s3://a/own/x", "READ") == []


def test_keys_of_a_role_are_kept_for_half_of_their_time() -> None:
    now, asked = [1_000_000], []

    def assume(rule: AssumeRole, location: str, operation: Any) -> tuple[dict[str, str], int]:
        asked.append((location, operation))
        return {"s3.session-token": str(len(asked))}, now[0] + 1_000_000

    vendor = Vendor([AssumeRole(prefix="s3://vault", role_arn=ROLE)], assume, lambda: now[0])
    for location, operation in (("s3://vault/a", "READ"), ("s3://vault/b", "READ"), ("s3://vault/a", "READ_WRITE")):
        for _ in range(2):
            vendor.vend(location, operation)  # type: ignore[arg-type]
    assert asked == [("s3://vault/a", "READ"), ("s3://vault/b", "READ"), ("s3://vault/a", "READ_WRITE")]
    now[0] += 499_999
    assert vendor.vend("s3://vault/a", "READ")[0].config["s3.session-token"] == "1"
    now[0] += 1
    (found,) = vendor.vend("s3://vault/a", "READ")
    assert (found.config["s3.session-token"], found.expiration_time_ms) == ("4", now[0] + 1_000_000)


def test_a_policy_is_limited_to_a_location_and_an_operation() -> None:
    read, write = (json.loads(sts.policy_for("s3://b/p/t", each)) for each in ("READ", "READ_WRITE"))
    for policy in (read, write):
        objects, listing, keys = policy["Statement"]
        assert objects["Resource"] == ["arn:aws:s3:::b/p/t/*"]
        assert listing["Resource"] == ["arn:aws:s3:::b"]
        assert listing["Condition"] == {"StringLike": {"s3:prefix": ["p/t/*"]}}
        assert keys["Condition"] == {"StringLike": {"kms:ViaService": "s3.*.amazonaws.com"}}
    actions = {"s3:PutObject", "s3:DeleteObject"}
    assert not actions & set(read["Statement"][0]["Action"])
    assert actions <= set(write["Statement"][0]["Action"])
    odd = json.loads(sts.policy_for("s3://b/a*b?c$d", "READ"))
    assert odd["Statement"][0]["Resource"] == ["arn:aws:s3:::b/a${*}b${?}c${$}d/*"]
    for wrong in ("s3://*/t", "s3://b?/t", "s3://", "gs://b/x", "s3://b/a/../c", "s3:///b/x", "s3://b//x"):
        with pytest.raises(CallError):
            sts.policy_for(wrong, "READ")


# -------------------------------------------------------------------------------------------- over HTTP, on S3


@pytest.fixture(scope="module")
def lake(moto: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Unity, Served, str, Path]]:
    """A server with a warehouse on S3: static keys below ``lake``, keys of a role below ``vault``."""
    place = tmp_path_factory.mktemp("lake")
    options, bucket = moto.options(), moto.bucket()
    file, log = place / "credentials.json", place / "log"
    keys = {"access-key-id": options["key"], "secret-access-key": options["secret"]}
    made = role(f"s3://{bucket}/warehouse", **keys, **{"endpoint-url": options["endpoint_url"], "region": "us-east-1"})
    file.write_bytes(rules({"kind": "static", "prefix": f"s3://{bucket}/lake", "config": KEYS}, made))
    given = [f"--option={name}={options[name]}" for name in ("key", "secret", "endpoint_url")]
    given += ["--option=client_kwargs.region_name=us-east-1", "--warehouse", f"s3://{bucket}/warehouse"]
    with served(
        place / "catalog.db", *given, f"--set=credentials.rules_file={file}", "--set=recovery.every_seconds=0", log=log
    ) as server:
        unity = Unity(server)
        unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        yield unity, server, bucket, log


def _client(moto: Server, config: dict[str, str]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=moto.options()["endpoint_url"],
        region_name="us-east-1",
        aws_access_key_id=config["s3.access-key-id"],
        aws_secret_access_key=config["s3.secret-access-key"],
        aws_session_token=config["s3.session-token"],
    )


def test_a_table_on_s3_is_created_with_vended_keys(lake: Any, moto: Server, tmp_path: Path) -> None:
    unity, _, bucket, log = lake
    staged = unity.ok("POST", "/delta/v1/catalogs/main/schemas/s/staging-tables", {"name": "t"})
    assert staged["location"] == f"s3://{bucket}/warehouse/__unitystorage/tables/{staged['table-id']}"
    assert staged["required-protocol"] == PROTOCOL
    (vended,) = staged["storage-credentials"]
    assert (vended["prefix"], vended["operation"]) == (staged["location"], "READ_WRITE")
    again = unity.ok("GET", f"/delta/v1/staging-tables/{staged['table-id']}/credentials")
    assert again == {"storage-credentials": [vended]}
    older = unity.ok(
        "POST", "/temporary-table-credentials", {"table_id": staged["table-id"], "operation": "READ_WRITE"}
    )
    assert older["aws_temp_credentials"]["session_token"] == vended["config"]["s3.session-token"]
    assert older["expiration_time"] == vended["expiration-time-ms"]
    # The log is written with the vended keys.
    table = Table(unity, "s", "t", {**staged, "location": f"file://{tmp_path / 't'}"})
    request = table.first()
    key = f"warehouse/__unitystorage/tables/{staged['table-id']}/_delta_log/{0:020d}.json"
    s3 = _client(moto, vended["config"])
    s3.put_object(Bucket=bucket, Key=key, Body=(table.log / f"{0:020d}.json").read_bytes())
    path = "/delta/v1/catalogs/main/schemas/s/tables"
    for location in (staged["location"].replace("s3://", "s3a://"),):
        unity.ok("POST", path, {**request, "location": location})
    (read,) = unity.ok("GET", f"{path}/t/credentials?operation=READ")["storage-credentials"]
    assert read["operation"] == "READ"
    assert read["config"]["s3.session-token"] != vended["config"]["s3.session-token"]
    # A commit is staged with them, ratified, and published by the server.
    add = table.stage(rows=False)
    name, base = add["commit"]["file-name"], key.rpartition("/")[0]
    data = (table.log / "_staged_commits" / name).read_bytes()
    s3.put_object(Bucket=bucket, Key=f"{base}/_staged_commits/{name}", Body=data)
    assert table.update(add).body["commits"] == [add["commit"]]
    published = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
    assert table.update(published).body["commits"] == []
    assert s3.get_object(Bucket=bucket, Key=f"{base}/{1:020d}.json")["Body"].read() == data
    assert unity.ok("GET", "/tables/main.s.t")["storage_location"] == staged["location"]
    unity.ok("DELETE", f"{path}/t")
    for each in (vended, read):
        for name in ("s3.secret-access-key", "s3.session-token"):
            assert each["config"][name] not in log.read_text()


def test_static_keys_are_vended(lake: Any) -> None:
    unity, _, bucket, log = lake
    for operation in ("READ", "READ_WRITE"):
        found = unity.ok(
            "GET", f"/delta/v1/temporary-path-credentials?location=s3://{bucket}/lake/x&operation={operation}"
        )
        (vended,) = found["storage-credentials"]
        assert (vended["prefix"], vended["operation"], vended["config"]) == (f"s3://{bucket}/lake/x", operation, KEYS)
    found = unity.ok("POST", "/temporary-path-credentials", {"url": f"s3://{bucket}/lake/x", "operation": "PATH_READ"})
    assert found["aws_temp_credentials"]["access_key_id"] == "AKIA"
    assert SECRET not in log.read_text()


def test_a_role_that_cannot_be_assumed(moto: Server) -> None:
    endpoint = f"http://127.0.0.1:{moto.port}"
    keys: dict[str, Any] = {"access_key_id": "id", "secret_access_key": SECRET, "region": "us-east-1"}
    good = AssumeRole(prefix="s3://vault", role_arn=ROLE, endpoint_url=endpoint, **keys)
    assert sts.assume(good, "s3://vault/t", "READ")[0].keys() == {
        "s3.access-key-id", "s3.secret-access-key", "s3.session-token",
    }  # fmt: skip
    for wrong in (
        AssumeRole(prefix="s3://vault", role_arn=ROLE, endpoint_url="http://127.0.0.1:9", **keys),
        AssumeRole(prefix="s3://vault", role_arn="x", endpoint_url=endpoint, **keys),
    ):
        with pytest.raises(StoreError) as raised:
            sts.assume(wrong, "s3://vault/t", "READ")
        assert SECRET not in str(raised.value)
        assert raised.value.__cause__ is None
    assert issubclass(ClientError, Exception)
