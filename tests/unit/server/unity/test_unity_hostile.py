"""Hostile requests to Unity Catalog's API: each is answered with a typed error, and leaves nothing behind."""

from __future__ import annotations

import copy
import json
import random
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalog import CallError
from deltalog.server.unity.errors import NotServedError, ResourceNotFoundError
from deltalog.server.unity.router import ROUTER
from deltalog.transactions.unity.locations import canonical_location, location_of
from tests.support.server import Served, served
from tests.support.server.unity import COLUMNS, PROTOCOL, Table, Unity, now_ms

SCHEMA = "/delta/v1/catalogs/main/schemas/s"
TYPES = {
    400: {"BadRequestException", "InvalidParameterValueException", "UnsupportedTableFormatException"},
    404: {"NotFoundException", "NoSuchCatalogException", "NoSuchSchemaException", "NoSuchTableException"},
    409: {"AlreadyExistsException", "CommitVersionConflictException", "UpdateRequirementConflictException"},
    413: {"BadRequestException"},
    429: {"ResourceExhaustedException", "TooManyRequestsException"},
}
VALUES: list[Any] = [
    None, True, 0, -1, 1, 10**30, -(2**63), 1.5, "", " ", "x", "x" * 300, "\x00", "\ud800", "é\u202e", "a.b", "a/b",
    "..", [], [[]], {}, {"a": 1}, [None], "MANAGED", "EXTERNAL", "READ", "2026-11-20T10:00:00Z", "file:///etc", "s3://b/k",
    "../../etc/passwd", "add-commit", "set-properties", "assert-etag",
]  # fmt: skip


def _deep(depth: int) -> str:
    return '{"type":"struct","fields":[' * depth + "]}" * depth


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"requirements":' + b"[" * 100_000,
        b'{"updates":[{"action":"set-columns","columns":' + _deep(500).encode() + b"}],\"requirements\":[]}",
        b'{"updates":[{"action":"set-columns","columns":' + _deep(50_000).encode() + b"}],\"requirements\":[]}",
        b'{"requirements":[{"type":"assert-table-uuid","uuid":"' + b"x" * 100_000 + b'"}],"updates":[]}',
        b'{"requirements":[{"type":"assert-table-uuid","uuid":"\\ud800"}],"updates":[]}',
        json.dumps({"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": 1}}] * 10}).encode(),
        json.dumps({"requirements": [], "updates": [{"action": "set-table-comment", "comment": ""}] * 10_000}).encode(),
    ],
)  # fmt: skip
def test_bodies_are_read_within_bounds(unity: Unity, body: bytes) -> None:
    table = unity.new_table()
    for path in (table.path, f"{SCHEMA}/tables", "/tables", "/schemas", f"{table.path}/metrics"):
        found = unity.ask("POST", path, body)
        assert found.status == 400, (path, found)
        assert found.kind in TYPES[400]


def test_a_schema_is_not_parsed_deeply(unity: Unity) -> None:
    staged = unity.ok("POST", f"{SCHEMA}/staging-tables", {"name": "deep"})
    table = Table(unity, "s", "deep", staged)
    request = json.dumps(table.first()).replace(json.dumps(COLUMNS), _deep(400))
    found = unity.ask("POST", f"{SCHEMA}/tables", request.encode())
    assert found.error == (400, "InvalidParameterValueException")


def test_a_body_that_is_too_large(unity: Unity) -> None:
    found = unity.ask("POST", f"{SCHEMA}/tables", b" " * (5 << 20))
    assert found.error == (413, "BadRequestException")


def test_a_comment_has_a_limit(unity: Unity) -> None:
    table = unity.new_table()
    for text, status in (("x" * 65_536, 200), ("x" * 65_537, 400), ("é" * 40_000, 400)):
        assert table.update({"action": "set-table-comment", "comment": text}).status == status


def test_what_only_the_catalog_has_is_limited(unity: Unity) -> None:
    """Each load and each listing answers it."""
    schema = f"big{uuid.uuid4().hex[:8]}"
    unity.ok("POST", "/schemas", {"name": schema, "catalog_name": "main"})
    table, path = unity.new_table(), f"/delta/v1/catalogs/main/schemas/{schema}/tables"
    external = {
        "name": "e", "location": f"s3://bucket/{schema}", "table-type": "EXTERNAL", "columns": COLUMNS,
        "protocol": {"min-reader-version": 1, "min-writer-version": 2}, "properties": {}, "last-commit-timestamp-ms": 7,
    }  # fmt: skip
    large, invalid = {"k": "x" * 400_000}, (400, "InvalidParameterValueException")
    assert unity.ask("POST", path, {**external, "properties": large}).error == invalid
    uid = unity.ok("POST", path, external)["metadata"]["table-uuid"]
    updates = [
        {"action": "set-properties", "updates": large},
        {"action": "set-domain-metadata", "updates": {"d": large}},
    ]
    for update in updates:
        request = {"requirements": [{"type": "assert-table-uuid", "uuid": uid}], "updates": [update]}
        assert unity.ask("POST", f"{path}/e", request).error == invalid
    before = table.load()
    for _ in range(2):  # below the limit each, and above it together
        found = table.update({"action": "set-properties", "updates": {uuid.uuid4().hex: "x" * 200_000}})
    assert found.error == invalid
    assert len(json.dumps(table.load())) < len(json.dumps(before)) + 210_000
    assert unity.ask("PATCH", f"/schemas/main.{schema}", {"properties": large}).error == invalid
    made = {"name": f"{schema}2", "catalog_name": "main", "properties": large}
    assert unity.ask("POST", "/schemas", made).error == invalid


def test_names_have_no_backticks_around_them(unity: Unity) -> None:
    """They would be read as quotes: no address names such a table."""
    bad = (400, "BadRequestException")
    table = unity.new_table()
    assert unity.ask("POST", "/schemas", {"name": "`z`", "catalog_name": "main"}).error == bad
    assert unity.ask("POST", f"{SCHEMA}/staging-tables", {"name": "`n`"}).error == bad
    assert unity.ask("POST", f"{table.path}/rename", {"new-name": "`n`"}).error == bad
    assert unity.ask("GET", f"{SCHEMA}/tables/%60{table.name}%60").error == bad


def _mutated(chosen: random.Random, value: Any) -> Any:
    """A JSON value with one part replaced, removed or duplicated."""
    if isinstance(value, dict) and value and chosen.random() < 0.8:
        key = chosen.choice(list(value))
        made = dict(value)
        if chosen.random() < 0.15:
            del made[key]
        else:
            made[key] = _mutated(chosen, made[key])
        return made
    if isinstance(value, list) and value and chosen.random() < 0.8:
        number = chosen.randrange(len(value))
        if chosen.random() < 0.2:
            return [*value, value[number]]
        return [_mutated(chosen, each) if at == number else each for at, each in enumerate(value)]
    return chosen.choice(VALUES)


@pytest.mark.parametrize("seed", range(6))
def test_no_request_makes_the_server_fail(unity: Unity, seed: int) -> None:
    chosen = random.Random(seed)
    table = unity.new_table()
    staged = unity.ok("POST", f"{SCHEMA}/staging-tables", {"name": f"fuzz{seed}"})
    create = Table(unity, "s", f"fuzz{seed}", staged).first()
    add = table.stage({"metaData": table.metadata(configuration={"x": "1"})})
    update = {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.id}, {"type": "assert-etag", "etag": "x"}],
        "updates": [
            add, {"action": "set-properties", "updates": {"x": "1"}}, {"action": "set-columns", "columns": COLUMNS},
            {"action": "set-protocol", "protocol": PROTOCOL}, {"action": "remove-properties", "removals": ["y"]},
            {"action": "set-latest-backfilled-version", "latest-published-version": 0},
            {"action": "set-domain-metadata", "updates": {"d": {}}}, {"action": "set-table-comment", "comment": "c"},
        ],
    }  # fmt: skip
    commit = {key.replace("-", "_"): value for key, value in add["commit"].items()}
    preview = {"table_id": table.id, "table_uri": table.location, "commit_info": commit, "latest_backfilled_version": 0}
    external = {
        "name": "e", "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL", "columns": [{"name": "a"}],
        "data_source_format": "DELTA", "storage_location": "s3://b/e", "properties": {"a": "b"},
    }  # fmt: skip
    asked: list[tuple[str, str, Any]] = [
        ("POST", f"{SCHEMA}/tables", create),
        ("POST", table.path, update),
        ("POST", f"{table.path}/rename", {"new-name": "fuzzed"}),
        ("POST", f"{table.path}/metrics", {"table-id": table.id, "report": {"commit-report": {"num-files-added": 1}}}),
        ("POST", f"{SCHEMA}/staging-tables", {"name": "x"}),
        ("POST", "/delta/preview/commits", preview),
        ("GET", "/delta/preview/commits", {"table_id": table.id, "table_uri": table.location, "start_version": 0}),
        ("POST", "/tables", external),
        ("POST", "/schemas", {"name": "fuzz", "catalog_name": "main", "properties": {"a": "b"}}),
        ("POST", "/temporary-table-credentials", {"table_id": table.id, "operation": "READ"}),
        ("POST", "/temporary-path-credentials", {"url": "s3://b/x", "operation": "PATH_READ"}),
    ]
    for _ in range(80):
        method, path, body = chosen.choice(asked)
        body = copy.deepcopy(body)
        for _ in range(chosen.randrange(1, 4)):
            body = _mutated(chosen, body)
        found = unity.ask(method, path, json.dumps(body).encode())
        if found.status in (200, 204):
            continue
        assert found.kind in TYPES[found.status], (method, path, body, found)
        assert "Traceback" not in str(found.body)


@pytest.mark.parametrize(
    "path",
    [
        "/tables/main.s.%00", "/tables/main.s.%F0%9F%98%80", "/tables/main.s.a%2Fb", "/tables/main.s.%ED%A0%80",
        f"/tables/main.s.{'x' * 5000}", "/tables/../../etc/passwd", f"{SCHEMA}/tables/a%2F..%2Fb",
        f"{SCHEMA}/tables/%2E%2E",
        "/schemas/main.%20", "/catalogs/%00", "/delta/v1/staging-tables/%2E%2E/credentials",
        "/tables?catalog_name=main&schema_name=s&page_token=" + "x" * 5000,
        "/tables?" + "&".join(f"a{n}=1" for n in range(1000)),
        "/schemas?catalog_name=main&catalog_name=main",
    ],
)  # fmt: skip
def test_odd_paths_are_refused(unity: Unity, path: str) -> None:
    found = unity.ask("GET", path)
    assert found.status in (400, 404), found
    assert found.kind in TYPES[found.status]


def test_paths_find_their_endpoints() -> None:
    endpoint, parts = ROUTER.find("GET", "/delta/v1/catalogs/c/schemas/s%2Ft/tables/t%20u")
    assert (endpoint.name.split()[0], parts) == ("GET", {"catalog": "c", "schema": "s/t", "table": "t u"})
    for path in ("", "/", "//", "/tables/", "/delta/v1/catalogs//schemas/s/tables/t"):
        with pytest.raises(ResourceNotFoundError):
            ROUTER.find("GET", path)
    with pytest.raises(NotServedError):
        ROUTER.find("GET", "/functions/a/b/c/d")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/data/t", "/data/t"),
        ("file:///data/a b", "/data/a b"),
        ("file:///data/50%25?", "/data/50%"),
        ("/data/../t/", "/t"),
        ("file:/data/t", "/data/t"),
        ("file:///data/a%20b", "/data/a b"),
        ("s3a://bucket/t/", "s3://bucket/t"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
    ],
)
def test_locations_have_one_form(given: str, expected: str) -> None:
    assert canonical_location(given) == expected
    assert canonical_location(location_of(expected)) == expected


@pytest.mark.parametrize(
    "given",
    [
        "", "t", "./t", "s3://", "s3:/b/t", "file://host/t", "S3://b/t", "s3://b/a b", "s3://b/\ud800", "/a\0b",
        "file:t", "file:./t", "s3:///b/t", "s3://b//t", "s3://b/../t", "s3://b/./t", "s3://b/%2e%2E/t", "s3://b/.",
    ],
)  # fmt: skip
def test_other_texts_are_no_locations(given: str) -> None:
    with pytest.raises(CallError):
        canonical_location(given)


# -------------------------------------------------------------------------------------------- access, memory


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server with a token, and its log."""
    place = tmp_path_factory.mktemp("guarded")
    options = ("--warehouse", str(place / "w"), "--set=recovery.every_seconds=0")
    token = {"DELTALOG_SERVER_TOKEN": "t" * 32}
    with served(place / "catalog.db", *options, env=token, log=place / "log") as server:
        yield server, place / "log"


def test_only_who_has_the_token_is_told_anything(guarded: tuple[Served, Path]) -> None:
    server, log = guarded
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {'t' * 32}"}):
        unity = Unity(server, headers)
        for path in ("/catalogs", "/functions", "/nothing", "/delta/v1/config?catalog=main&protocol-versions=1.0"):
            assert unity.ask("GET", path).error == (401, "NotAuthorizedException")
    allowed = Unity(server, {"Authorization": f"Bearer {'t' * 32}"})
    assert allowed.ask("GET", "/catalogs").status == 200
    found = Unity(server, {"Authorization": f"Bearer {'t' * 32}", "Origin": "http://a.example"}).ask("GET", "/catalogs")
    assert found.error == (403, "PermissionDeniedException")
    assert "t" * 32 not in log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_requests_for_many_names_leave_nothing_in_memory(guarded: tuple[Served, Path]) -> None:
    server, _ = guarded
    unity = Unity(server, {"Authorization": f"Bearer {'t' * 32}"})
    unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})

    def ask(times: int) -> None:
        for _ in range(times):
            name = f"{uuid.uuid4()}{'x' * 200}"
            assert unity.ask("GET", f"/tables/main.s.{name}").status == 404
            location = f"s3://{name[:50]}/{name}"
            create = {
                "name": name, "location": location, "table-type": "MANAGED", "columns": COLUMNS, "protocol": PROTOCOL,
                "properties": {}, "last-commit-timestamp-ms": now_ms(),
            }  # fmt: skip
            assert unity.ask("POST", f"{SCHEMA}/tables", create).status == 404
            assert (
                unity.ask("GET", f"/delta/v1/temporary-path-credentials?location={location}&operation=READ").status
                == 200
            )

    ask(100)
    before = _resident(server)
    ask(500)
    assert _resident(server) - before < 8 << 20


def _resident(server: Served) -> int:
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


# ------------------------------------------------------------------------------------- commits that nobody can read


def _schema_string(data_type: str) -> str:
    return '{"type":"struct","fields":[{"name":"id","nullable":true,"metadata":{},"type":' + data_type + "}]}"


def _array(depth: int) -> str:
    return '{"type":"array","containsNull":true,"elementType":' * depth + '"long"' + "}" * depth


BAD_SCHEMAS = {
    "text": "junk", "unknown type": _schema_string('"quux"'), "300 levels": _schema_string(_array(300)),
    "5000 levels": _schema_string(_array(5000)),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_SCHEMAS)
def test_a_schema_that_cannot_be_read_is_not_committed(unity: Unity, case: str) -> None:
    table = unity.new_table()
    before = table.load()
    bad = {**table.metadata(), "schemaString": BAD_SCHEMAS[case], "partitionColumns": []}
    assert table.update(table.stage({"metaData": bad}, rows=False)).error == (400, "InvalidParameterValueException")
    assert table.load() == before
    assert table.commit()["latest-table-version"] == 1
    new = Table(unity, "s", f"n{uuid.uuid4().hex}", unity.ok("POST", f"{SCHEMA}/staging-tables", {"name": "n"}))
    request = {**new.first(), "columns": None}
    first = new.log / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    lines[2]["metaData"].update(schemaString=BAD_SCHEMAS[case], partitionColumns=[])
    good = first.read_text()
    first.write_text("".join(json.dumps(each) + "\n" for each in lines))
    asked = {**request, "partition-columns": []}
    assert unity.ask("POST", f"{SCHEMA}/tables", asked).error == (400, "InvalidParameterValueException")
    first.write_text(good)
    unity.ok("POST", f"{SCHEMA}/tables", request)


@pytest.mark.parametrize(
    "case", ["partition", "twins", "twice", "outside", "sidecar", "clustering"],
)  # fmt: skip
def test_a_commit_that_cannot_be_read_is_refused(unity: Unity, case: str) -> None:
    table = unity.new_table()
    add = {"path": "a", "partitionValues": {"day": "x"}, "size": 1, "modificationTime": 1, "dataChange": True}
    column = {"name": "DAY", "type": "string", "nullable": True, "metadata": {}}
    twins = {"type": "struct", "fields": [*COLUMNS["fields"], column]}
    deep = '{"clusteringColumns":' + "[" * 100_000 + "]" * 100_000 + "}"
    actions: dict[str, list[Any]] = {
        "partition": [{"metaData": table.metadata(partitionColumns=["none"])}],
        "twins": [{"metaData": table.metadata(schema=twins)}],
        "twice": [{"add": add}, {"add": add}],
        "outside": [{"add": {**add, "path": "../a"}}],
        "sidecar": [{"sidecar": {"path": "a", "sizeInBytes": 1, "modificationTime": 1}}],
        "clustering": [{"domainMetadata": {"domain": "delta.clustering", "configuration": deep, "removed": False}}],
    }
    found = table.update(table.stage(*actions[case], rows=False))
    if case == "clustering":  # no JSON for deltalog, and so not shown
        assert found.status == 200
    else:
        assert found.error == (400, "InvalidParameterValueException")
        assert table.load()["latest-table-version"] == 0
    table.load()
