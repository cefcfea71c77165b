"""The server's responses match its OpenAPI description, for requests that succeed and for generated ones."""

from __future__ import annotations

import json
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase
from jsonschema import Draft202012Validator

from deltalog import DeltaTable
from tests.support.server import Served, add, served
from tests.support.server.described import World, populate, with_known
from tests.support.server.unity import ROOT, now_ms

pytest.importorskip("schemathesis", reason="needs Python 3.11 or newer")

import schemathesis
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

TOKEN = "t" * 32
HEADERS = {"authorization": f"Bearer {TOKEN}"}
# Checks that are left out. Acceptance of valid data: objects that generated requests name do not exist, and names and #
# locations must meet conditions that JSON Schema cannot express. Rejection of invalid data: unknown members are #
# ignored, as Unity Catalog's clients need, and lengths are limited in bytes. The other checks need headers or links
# that # the description does not have.
NOT_CHECKED = {"positive_data_acceptance", "negative_data_rejection", "use_after_free", "ensure_resource_availability"}
DELTA = f"{ROOT}/delta/v1/catalogs/main/schemas/s"


class Checked:
    """A client that checks each response against the description."""

    def __init__(self, server: Served, headers: dict[str, str]) -> None:
        self.server = server
        self.headers = headers
        self.document = self.ask_plain("GET", "/openapi.json")[1]
        self.seen: set[tuple[str, str]] = set()

    def ask_plain(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = self.server.connection()
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, self.headers)
            answer = connection.getresponse()
            received = answer.read()
            return answer.status, json.loads(received) if received else None
        finally:
            connection.close()

    def ok(self, method: str, path: str, template: str, body: Any = None) -> Any:
        """Send a request that must succeed. ``template``: its path in the description."""
        status, received = self.ask_plain(method, path, body)
        operation = self.document["paths"][template][method.lower()]
        assert status in (200, 204), (method, path, received)
        response = operation["responses"][str(status)]
        if "content" in response:
            schema = response["content"]["application/json"]["schema"]
            root = {"allOf": [schema], "components": self.document["components"]}
            problems = [each.message for each in Draft202012Validator(root).iter_errors(received)]
            assert problems == [], (method, path)
        else:
            assert received is None
        if body is not None:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            root = {"allOf": [schema], "components": self.document["components"]}
            assert [each.message for each in Draft202012Validator(root).iter_errors(body)] == []
        self.seen.add((method, template))
        return received


def _served(place: Path, *, token: bool) -> Iterator[tuple[Served, World]]:
    (place / "lake").mkdir()
    options = place / "storage.json"
    options.write_text(json.dumps({"by_location": {str(place / "lake"): {}}}))
    more = ["--warehouse", str(place / "warehouse"), "--storage-options-file", str(options)]
    env = {"DELTALOG_SERVER_TOKEN": TOKEN} if token else {}
    with served(place / "catalog.db", *more, "--set=recovery.every_seconds=0", env=env, log=place / "log") as server:
        yield server, populate(server, place, HEADERS if token else None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, World]]:
    yield from _served(tmp_path_factory.mktemp("described"), token=True)


@pytest.fixture(scope="module")
def open_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, World]]:
    """A world whose server needs no token."""
    yield from _served(tmp_path_factory.mktemp("described"), token=False)


def test_every_call_succeeds_as_it_is_described(world: tuple[Served, World]) -> None:
    server, known = world
    client, table = Checked(server, HEADERS), known.managed
    delta, schema = f"{ROOT}/delta/v1/catalogs/{{catalog}}/schemas/{{schema}}", f"{ROOT}/schemas"
    one, named = f"{delta}/tables/{{table}}", f"{ROOT}/tables/{{full_name}}"
    for path in ("/health", "/health/live", "/health/ready", "/openapi.json", f"{ROOT}/metastore_summary"):
        client.ok("GET", path, path)
    client.ok("GET", f"{ROOT}/catalogs?max_results=5", f"{ROOT}/catalogs")
    client.ok("GET", f"{ROOT}/catalogs/main", f"{ROOT}/catalogs/{{name}}")
    client.ok("GET", f"{schema}?catalog_name=main", schema)
    client.ok("POST", schema, schema, {"name": "more", "catalog_name": "main", "properties": {"a": "b"}})
    client.ok("GET", f"{schema}/main.bank", f"{schema}/{{full_name}}")
    client.ok("PATCH", f"{schema}/main.more", f"{schema}/{{full_name}}", {"comment": "c"})
    client.ok("DELETE", f"{schema}/main.more", f"{schema}/{{full_name}}")
    for kind, name in (("catalog", "main"), ("schema", "main.s"), ("table", "main.s.csv")):
        template = f"{ROOT}/permissions/{{securable_type}}/{{full_name}}"
        change = {"changes": [{"principal": "ann", "add": ["SELECT"]}]}
        client.ok("PATCH", f"{ROOT}/permissions/{kind}/{name}", template, change)
        client.ok("GET", f"{ROOT}/permissions/{kind}/{name}", template)
    client.ok("GET", f"{ROOT}/delta/v1/config?catalog=main&protocol-versions=1.0", f"{ROOT}/delta/v1/config")
    staged = client.ok("POST", f"{DELTA}/staging-tables", f"{delta}/staging-tables", {"name": "walked"})
    credentials = f"{ROOT}/delta/v1/staging-tables/{{table_id}}/credentials"
    client.ok("GET", credentials.format(table_id=staged["table-id"]), credentials)
    made = type(table)(table.unity, "s", "walked", staged)
    client.ok("POST", f"{DELTA}/tables", f"{delta}/tables", made.first())
    client.ok("GET", f"{DELTA}/tables/managed", one)
    client.ok("HEAD", f"{DELTA}/tables/managed", one)
    requirement = {"type": "assert-table-uuid", "uuid": table.id}
    client.ok("POST", f"{DELTA}/tables/managed", one, {"requirements": [requirement], "updates": [known.staged]})
    client.ok("GET", f"{DELTA}/tables/managed/credentials?operation=READ", f"{one}/credentials")
    client.ok("POST", f"{DELTA}/tables/managed/metrics", f"{one}/metrics", {"table-id": table.id})
    path_credentials = f"{ROOT}/delta/v1/temporary-path-credentials"
    client.ok("GET", f"{path_credentials}?operation=READ&location=s3://b/new", path_credentials)
    client.ok("POST", f"{DELTA}/tables/walked/rename", f"{one}/rename", {"new-name": "renamed"})
    client.ok("DELETE", f"{DELTA}/tables/renamed", one)
    template = f"{ROOT}/staging-tables"
    client.ok("POST", template, template, {"name": "general", "catalog_name": "main", "schema_name": "s"})
    external = {
        "name": "walked", "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL",
        "data_source_format": "CSV", "columns": [], "storage_location": "s3://b/walked",
    }  # fmt: skip
    client.ok("POST", f"{ROOT}/tables", f"{ROOT}/tables", external)
    client.ok("GET", f"{ROOT}/tables?catalog_name=main&schema_name=s&max_results=2", f"{ROOT}/tables")
    for name in ("managed", "csv", "delta"):
        client.ok("GET", f"{ROOT}/tables/main.s.{name}", named)
    client.ok("DELETE", f"{ROOT}/tables/main.s.walked", named)
    template = f"{ROOT}/temporary-table-credentials"
    client.ok("POST", template, template, {"table_id": table.id, "operation": "READ_WRITE"})
    template = f"{ROOT}/temporary-path-credentials"
    client.ok("POST", template, template, {"url": "s3://b/new", "operation": "PATH_READ"})
    template, place = f"{ROOT}/delta/preview/commits", {"table_id": table.id, "table_uri": table.location}
    client.ok("GET", template, template, {**place, "start_version": 0})
    client.ok("POST", template, template, {**place, "latest_backfilled_version": 2})
    _walk_own(client, known)
    _walk_lake_formation(client, known)
    every = {(method.upper(), path) for path, each in client.document["paths"].items() for method in each}
    not_served = {("POST", f"{ROOT}/catalogs"), ("PATCH", f"{ROOT}/catalogs/{{name}}")}
    not_served |= {("DELETE", f"{ROOT}/catalogs/{{name}}")}
    assert every - client.seen == not_served


def _walk_own(client: Checked, known: World) -> None:
    tables, one = "/api/deltalog/v1/tables", "/api/deltalog/v1/tables/{name}"
    location = str(known.lake / "walked")
    DeltaTable.create(location, pa.table({"id": [1]}))
    client.ok("GET", f"{tables}?schema=s&max_results=2", tables)
    for name in ("s.own", "s.dropped"):
        client.ok("POST", tables, tables, {"name": name, "location": location})
        client.ok("GET", f"{tables}/{name}", one)
        client.ok("POST", f"{tables}/{name}/publish", f"{one}/publish")
        if name == "s.own":
            client.ok("POST", f"{tables}/{name}/release", f"{one}/release")
    client.ok("GET", f"{tables}/s.csv", one)
    client.ok("DELETE", f"{tables}/s.dropped", one)
    client.ok("POST", "/api/deltalog/v1/resync", "/api/deltalog/v1/resync", {"dry_run": True})


def _walk_lake_formation(client: Checked, known: World) -> None:
    def call(name: str, body: Any) -> Any:
        return client.ok("POST", f"/{name}", f"/{name}", body)

    table, bank = {"DatabaseName": "bank", "TableName": "a"}, known.lake.parent / "bank"
    id_ = call("StartTransaction", {"TransactionType": "READ_AND_WRITE"})["TransactionId"]
    call("ExtendTransaction", {"TransactionId": id_})
    made = add(bank, "day=mon/walked.parquet", 1, 2)
    gone = {"Uri": made["AddObject"]["Uri"]}
    call("DeleteObjectsOnCancel", {**table, "TransactionId": id_, "Objects": [gone]})
    call("UpdateTableObjects", {**table, "TransactionId": id_, "WriteOperations": [made]})
    assert call("CommitTransaction", {"TransactionId": id_}) == {"TransactionStatus": "COMMITTED"}
    assert call("GetTableObjects", table)["Objects"]
    call("GetTableObjects", {**table, "QueryAsOfTime": now_ms() / 1000, "PartitionPredicate": "day = 'mon'"})
    call("DescribeTransaction", {"TransactionId": id_})
    other = call("StartTransaction", {})["TransactionId"]
    call("CancelTransaction", {"TransactionId": other})
    call("ListTransactions", {"StatusFilter": "ALL", "MaxResults": 2})


def _generated(
    world: tuple[Served, World], mode: Any, examples: int, *, known: bool, token: bool, every: int = 1
) -> Counter[int]:
    """Send requests generated from the description of each ``every``-th call: no server error, no other status, no
    other body. Returns how often there was each status."""
    server, has = world
    headers = HEADERS if token else {}
    document = Checked(server, headers).document
    schema = schemathesis.openapi.from_dict(with_known(document, has) if known else document)
    schema.config.update(base_url=server.url)
    load_all_checks()
    excluded = [each for each in CHECKS.get_all() if each.__name__ in NOT_CHECKED]
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    # First the calls that need objects which other calls remove.
    operations.sort(key=lambda each: (each.method == "delete", "release" in each.path or "Cancel" in each.path))
    statuses: Counter[int] = Counter()
    for operation in operations[::every]:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.path_parameters):
            continue  # the call has no input that could be invalid

        @hypothesis.settings(
            max_examples=examples, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            response = case.call(headers=headers)
            statuses[response.status_code] += 1
            case.validate_response(response, excluded_checks=excluded, headers=headers)

        ask()
    assert {status for status in statuses if status >= 500} == set()
    assert statuses[400] and statuses[404]
    assert not known or statuses[200] > len(operations) // every // 3
    return statuses


def test_generated_requests_are_answered_as_described(world: tuple[Served, World]) -> None:
    _generated(world, GenerationMode.POSITIVE, 3, known=True, token=True, every=4)


@pytest.mark.long
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("known", [True, False])
def test_many_generated_requests(world: tuple[Served, World], mode: Any, known: bool) -> None:
    _generated(world, mode, 100 if known else 25, known=known, token=True)


@pytest.mark.long
def test_generated_requests_without_a_token(open_world: tuple[Served, World]) -> None:
    _generated(open_world, GenerationMode.POSITIVE, 50, known=True, token=False)


def test_without_the_token_nothing_else_is_answered(world: tuple[Served, World]) -> None:
    server, _ = world
    assert server.ask("GET", "/openapi.json", headers={"x-amz-security-token": TOKEN})[0] == 200
    document = Checked(server, HEADERS).document
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            asked = urllib.parse.quote(path.replace("{securable_type}", "table").replace("{", "").replace("}", ""))
            connection = server.connection()
            connection.request(method.upper(), asked, b"{}", {"authorization": "Bearer wrong"})
            status = connection.getresponse().status
            connection.close()
            expected = 200 if operation.get("security") == [] else 401 if path.startswith("/api/") else 403
            assert (path, method, status) == (path, method, expected)
