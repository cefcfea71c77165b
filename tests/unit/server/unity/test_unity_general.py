"""Unity Catalog's general API: catalogs, schemas, tables, credentials and the older commits, over HTTP."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, StoreError, TableExistsError, TransactionManager
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.unity import external_logs
from deltalog.transactions.unity.settings import UnitySettings
from tests.support.server import served
from tests.support.server.unity import COLUMNS, Table, Unity

INVALID = (400, "InvalidParameterValueException")
BAD = (400, "BadRequestException")
NOT_SERVED = (404, "NotFoundException")


@pytest.fixture
def table(unity: Unity) -> Table:
    return unity.new_table()


@pytest.fixture
def schema(unity: Unity) -> str:
    name = f"s{uuid.uuid4().hex[:12]}"
    unity.ok("POST", "/schemas", {"name": name, "catalog_name": "main"})
    return name


def external(name: str, schema: str, **changes: Any) -> dict[str, Any]:
    columns = [{"name": "id", "type_text": "bigint", "type_name": "LONG", "type_json": '"long"', "position": 0}]
    return {
        "name": name, "catalog_name": "main", "schema_name": schema, "table_type": "EXTERNAL",
        "data_source_format": "DELTA", "columns": columns, "storage_location": f"s3://bucket/{schema}/{name}",
        **changes,
    }  # fmt: skip


# --------------------------------------------------------------------------------------- metastore, catalogs


def test_the_metastore_has_the_id_of_the_catalog(unity: Unity, manager: TransactionManager) -> None:
    assert unity.ok("GET", "/metastore_summary") == {"metastore_id": manager.coordinator.catalog_id}


def test_there_is_one_catalog(unity: Unity) -> None:
    found = unity.ok("GET", "/catalogs")
    assert [each["name"] for each in found["catalogs"]] == ["main"]
    assert unity.ok("GET", "/catalogs/main") == found["catalogs"][0]
    found = unity.ask("GET", "/catalogs/other")
    assert (found.error, found.body["error_code"]) == ((404, "NoSuchCatalogException"), "CATALOG_NOT_FOUND")
    assert unity.ask("POST", "/catalogs", {"name": "other"}).error == NOT_SERVED
    assert unity.ask("PATCH", "/catalogs/main", {"comment": "x"}).error == NOT_SERVED
    assert unity.ask("DELETE", "/catalogs/main").error == NOT_SERVED
    assert unity.ask("GET", "/catalogs?max_results=-1").error == BAD


# ---------------------------------------------------------------------------------------------------- schemas


def test_a_schema_is_created_changed_and_deleted(unity: Unity) -> None:
    name = f"s{uuid.uuid4().hex[:12]}"
    request = {"name": name, "catalog_name": "main", "comment": "mine", "properties": {"a": "1"}}
    made = unity.ok("POST", "/schemas", request)
    assert (made["full_name"], made["comment"], made["properties"]) == (f"main.{name}", "mine", {"a": "1"})
    assert unity.ok("GET", f"/schemas/main.{name}") == made
    assert unity.ask("POST", "/schemas", request).error == (409, "AlreadyExistsException")
    changed = unity.ok("PATCH", f"/schemas/main.{name}", {"comment": "ours"})
    assert (changed["comment"], changed["properties"], changed["schema_id"]) == ("ours", {"a": "1"}, made["schema_id"])
    assert unity.ask("PATCH", f"/schemas/main.{name}", {"new_name": "x"}).error == NOT_SERVED
    table = unity.new_table(schema=name)
    found = unity.ask("DELETE", f"/schemas/main.{name}?force=true")
    assert found.error == INVALID
    assert "has tables" in found.body["message"]
    unity.ok("DELETE", table.path)
    unity.ok("DELETE", f"/schemas/main.{name}")
    assert unity.ask("GET", f"/schemas/main.{name}").error == (404, "NoSuchSchemaException")
    assert unity.ask("DELETE", f"/schemas/main.{name}").error == (404, "NoSuchSchemaException")


def test_a_schema_with_tables_of_deltalog_exists(unity: Unity, manager: TransactionManager, place: Any) -> None:
    name = f"s{uuid.uuid4().hex[:12]}"
    assert unity.ask("GET", f"/schemas/main.{name}").status == 404
    manager.create_table(f"{name}.t", str(place / name), pa.schema([("id", pa.int64())]))
    assert unity.ok("GET", f"/schemas/main.{name}")["name"] == name
    assert name in _all(unity, "/schemas?catalog_name=main", "schemas", 7)
    assert unity.ask("POST", "/schemas", {"name": name, "catalog_name": "main"}).status == 409
    assert unity.ok("PATCH", f"/schemas/main.{name}", {"comment": "x"})["comment"] == "x"
    found = unity.ok("GET", f"/tables/main.{name}.t")
    assert found["columns"][0]["type_json"] == '{"name":"id","type":"long","nullable":true,"metadata":{}}'


@pytest.mark.parametrize(
    "request_",
    [
        {"catalog_name": "main"},
        {"name": "x"},
        {"name": "", "catalog_name": "main"},
        {"name": "a.b", "catalog_name": "main"},
        {"name": "a/b", "catalog_name": "main"},
        {"name": "x" * 256, "catalog_name": "main"},
        {"name": "x", "catalog_name": "main", "properties": {"a": 1}},
    ],
)
def test_a_schema_needs_a_name(unity: Unity, request_: dict[str, Any]) -> None:
    assert unity.ask("POST", "/schemas", request_).error == BAD


def _all(unity: Unity, path: str, member: str, at_once: int) -> list[str]:
    """The names in all pages of a listing."""
    names: list[str] = []
    token = ""
    for _ in range(1000):
        found = unity.ok("GET", f"{path}&max_results={at_once}{token}")
        assert len(found[member]) <= at_once
        names += [each["name"] for each in found[member]]
        if not found["next_page_token"]:
            return names
        token = f"&page_token={found['next_page_token']}"
    raise AssertionError("the pages do not end")


def test_schemas_are_listed_in_pages(unity: Unity, manager: TransactionManager, place: Any) -> None:
    base = f"p{uuid.uuid4().hex[:12]}"
    names = [f"{base}{suffix}" for suffix in ("", "-a", "0", "A", "é")]
    for number, name in enumerate(names):
        if number % 2:
            manager.create_table(f"{name}.t", str(place / name), pa.schema([("id", pa.int64())]))
            manager.create_table(f"{name}.u", str(place / f"{name}u"), pa.schema([("id", pa.int64())]))
        else:
            unity.ok("POST", "/schemas", {"name": name, "catalog_name": "main"})
    for at_once in (1, 2, 50):
        found = [name for name in _all(unity, "/schemas?catalog_name=main", "schemas", at_once) if base in name]
        assert sorted(found) == sorted(names)


# ----------------------------------------------------------------------------------------------------- tables


def test_a_managed_table_is_shown(unity: Unity, table: Table) -> None:
    found = unity.ok("GET", f"/tables/main.s.{table.name}")
    assert found["columns"][1] == {
        "name": "day",
        "type_text": "string",
        "type_json": json.dumps(COLUMNS["fields"][1], separators=(",", ":")),
        "type_name": "STRING",
        "position": 1,
        "nullable": True,
        "comment": "the day",
        "partition_index": 0,
    }
    assert (found["table_type"], found["data_source_format"], found["table_id"]) == ("MANAGED", "DELTA", table.id)
    assert (found["catalog_name"], found["schema_name"], found["name"]) == ("main", "s", table.name)
    assert found["storage_location"] == table.location
    assert found["properties"] == table.load()["metadata"]["properties"]
    unity.ok("DELETE", f"/tables/main.s.{table.name}")
    assert unity.ask("GET", f"/tables/main.s.{table.name}").error == (404, "NoSuchTableException")


def test_types_are_named(unity: Unity) -> None:
    nested = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": False, "metadata": {}}]}
    kinds = [
        ("decimal(10,2)", "DECIMAL", "decimal(10,2)"), ("binary", "BINARY", "binary"), ("short", "SHORT", "smallint"),
        ({"type": "array", "elementType": nested, "containsNull": True}, "ARRAY", "array<struct<x:int>>"),
        ({"type": "map", "keyType": "string", "valueType": "timestamp", "valueContainsNull": False}, "MAP",
         "map<string,timestamp>"),
    ]  # fmt: skip
    fields = [{"name": f"c{n}", "type": kind, "nullable": True, "metadata": {}} for n, (kind, _, _) in enumerate(kinds)]
    sent = json.loads(json.dumps(fields).replace("elementType", "element-type").replace("containsNull", "contains-null")
                      .replace("keyType", "key-type").replace("valueType", "value-type")
                      .replace("valueContainsNull", "value-contains-null"))  # fmt: skip
    name = f"t{uuid.uuid4().hex[:12]}"
    staging = unity.ok("POST", "/delta/v1/catalogs/main/schemas/s/staging-tables", {"name": name})
    table = Table(unity, "s", name, staging)
    request = table.first(schema={"type": "struct", "fields": fields}, partitionColumns=[])
    created = unity.ok(
        "POST",
        "/delta/v1/catalogs/main/schemas/s/tables",
        {**request, "columns": {"type": "struct", "fields": sent}},
    )
    assert created["metadata"]["columns"]["fields"] == sent
    found = unity.ok("GET", f"/tables/main.s.{name}")["columns"]
    assert [(each["type_name"], each["type_text"]) for each in found] == [(kind, text) for _, kind, text in kinds]
    assert (found[0]["type_precision"], found[0]["type_scale"]) == (10, 2)


def test_tables_are_listed_in_pages(unity: Unity, schema: str) -> None:
    names = [f"t{n}" for n in range(5)]
    for name in names[:3]:
        unity.new_table(name, schema)
    for name in names[3:]:
        unity.ok("POST", "/tables", external(name, schema))
    path = f"/tables?catalog_name=main&schema_name={schema}"
    for at_once in (1, 2, 5, 50):
        assert _all(unity, path, "tables", at_once) == names
    assert unity.ok("GET", path)["next_page_token"] is None
    assert unity.ok("GET", f"{path}&max_results=0")["tables"] == unity.ok("GET", path)["tables"]
    token = unity.ok("GET", f"{path}&max_results=1")["next_page_token"]
    for wrong in (f"{token}x", "e30", "%00", "%C3%A9", "%FF"):
        assert unity.ask("GET", f"{path}&page_token={wrong}").error == BAD
    assert unity.ask("GET", f"/tables?catalog_name=main&schema_name=s&page_token={token}").error == BAD


def test_a_damaged_table_is_listed_without_its_columns(unity: Unity, schema: str) -> None:
    table = unity.new_table("broken", schema)
    unity.new_table("whole", schema)
    shutil.rmtree(table.root)
    found = unity.ok("GET", f"/tables?catalog_name=main&schema_name={schema}")["tables"]
    assert [each["name"] for each in found] == ["broken", "whole"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/tables?catalog_name=main", BAD),
        ("/tables?schema_name=s", BAD),
        ("/tables?catalog_name=none&schema_name=s", (404, "NoSuchCatalogException")),
        ("/tables?catalog_name=main&schema_name=none", (404, "NoSuchSchemaException")),
        ("/tables?catalog_name=main&schema_name=s&max_results=x", BAD),
        ("/tables/main.s", BAD),
        ("/tables/main.s.a.b", BAD),
        ("/tables/main.none.t", (404, "NoSuchSchemaException")),
        ("/tables/none.s.t", (404, "NoSuchCatalogException")),
        ("/schemas?catalog_name=none", (404, "NoSuchCatalogException")),
        ("/schemas", BAD),
    ],
)
def test_listings_refuse(unity: Unity, path: str, error: tuple[int, str]) -> None:
    assert unity.ask("GET", path).error == error


# ------------------------------------------------------------------------------------------- external tables


def test_an_external_table_is_registered(unity: Unity, schema: str) -> None:
    request = external("t", schema, comment="c", properties={"a": "1"})
    made = unity.ok("POST", "/tables", request)
    assert made["columns"] == request["columns"]
    assert (made["storage_location"], made["comment"], made["properties"]) == (
        request["storage_location"], "c", {"a": "1"},
    )  # fmt: skip
    assert unity.ok("GET", f"/tables/main.{schema}.t") == made
    path = f"/delta/v1/catalogs/main/schemas/{schema}/tables/t"
    assert unity.ask("GET", path).error == (400, "UnsupportedTableFormatException")  # its log cannot be read
    assert unity.ask("HEAD", path).status == 204
    assert unity.ok("GET", f"{path}/credentials?operation=READ") == {"storage-credentials": []}
    vended = unity.ok("POST", "/temporary-table-credentials", {"table_id": made["table_id"], "operation": "READ"})
    assert vended["url"] == request["storage_location"]
    assert vended.keys() == {"url", "expiration_time"}
    assert unity.ask("POST", "/tables", request).error == (409, "AlreadyExistsException")
    assert unity.ask("POST", f"{path}/rename", {"new-name": "u"}).status == 204
    assert unity.ok("GET", f"/tables/main.{schema}.u")["table_id"] == made["table_id"]
    unity.ok("DELETE", f"/tables/main.{schema}.u")
    assert unity.ask("GET", f"/tables/main.{schema}.u").status == 404


def test_an_external_delta_table_is_loaded_and_updated(unity: Unity, schema: str) -> None:
    protocol = {"min-reader-version": 1, "min-writer-version": 2}
    request = {
        "name": "t", "location": "s3://bucket/t", "table-type": "EXTERNAL", "columns": COLUMNS, "protocol": protocol,
        "properties": {"a": "1"}, "last-commit-timestamp-ms": 7, "partition-columns": ["day"], "comment": "c",
    }  # fmt: skip
    path = f"/delta/v1/catalogs/main/schemas/{schema}/tables"
    made = unity.ok("POST", path, request)
    assert unity.ok("GET", f"{path}/t") == made
    assert "commits" not in made
    assert "latest-table-version" not in made
    metadata = made["metadata"]
    assert metadata["table-type"] == "EXTERNAL"
    assert metadata["properties"]["delta.minWriterVersion"] == "2"
    assert metadata["properties"]["a"] == "1"
    requirement = {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}
    etag = {"type": "assert-etag", "etag": metadata["etag"]}
    updates = [
        {"action": "set-properties", "updates": {"b": "2"}},
        {"action": "remove-properties", "removals": ["a"]},
        {"action": "set-table-comment", "comment": "d"},
        {"action": "set-protocol", "protocol": {"min-reader-version": 1, "min-writer-version": 4}},
        {"action": "set-partition-columns", "partition-columns": []},
        {"action": "set-domain-metadata", "updates": {"delta.clustering": {"clusteringColumns": [["id"]]}}},
        {"action": "update-metadata-snapshot-version", "last-commit-version": 3, "last-commit-timestamp-ms": 9},
    ]
    changed = unity.ok("POST", f"{path}/t", {"requirements": [requirement, etag], "updates": updates})["metadata"]
    assert (changed["last-commit-version"], changed["last-commit-timestamp-ms"]) == (3, 9)
    assert changed["properties"]["delta.clusteringColumns"] == '[["id"]]'
    assert (changed["properties"]["b"], "a" in changed["properties"]) == ("2", False)
    found = unity.ask("POST", f"{path}/t", {"requirements": [requirement, etag], "updates": updates})
    assert found.error == (409, "UpdateRequirementConflictException")
    for update in ({"action": "set-latest-backfilled-version", "latest-published-version": 1},):
        found = unity.ask("POST", f"{path}/t", {"requirements": [requirement], "updates": [update]})
        assert found.error == INVALID
    managed = {**request, "name": "u", "protocol": {**protocol, "min-reader-version": 3, "min-writer-version": 7,
               "reader-features": ["catalogManaged"], "writer-features": ["catalogManaged"]}}  # fmt: skip
    assert unity.ask("POST", path, managed).error == INVALID


def test_an_external_delta_table_is_loaded_from_its_log(unity: Unity, schema: str, place: Any) -> None:
    tmp_path = place / "warehouse" / schema
    rows = pa.table({"id": [1], "day": ["mon"]})
    DeltaTable.create(str(tmp_path / "t"), rows.schema, partition_by=["day"], data=rows, properties={"a": "1"})
    unity.ok("POST", "/tables", external("t", schema, storage_location=f"file://{tmp_path / 't'}", columns=None))
    found = unity.ok("GET", f"/delta/v1/catalogs/main/schemas/{schema}/tables/t")
    metadata = found["metadata"]
    assert [each["name"] for each in metadata["columns"]["fields"]] == ["id", "day"]
    assert (metadata["partition-columns"], metadata["properties"]["a"]) == (["day"], "1")
    assert "delta.minReaderVersion" in metadata["properties"]
    assert "latest-table-version" not in found
    info = unity.ok("GET", f"/tables/main.{schema}.t")
    assert [each["name"] for each in info["columns"]] == ["id", "day"]
    shutil.rmtree(tmp_path / "t")
    listed = unity.ok("GET", f"/tables?catalog_name=main&schema_name={schema}")["tables"]
    assert [(each["name"], each["columns"]) for each in listed] == [("t", [])]  # its log is not read


def test_no_log_is_read_at_a_place_that_only_a_client_has_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would read with credentials of its own."""
    opened = []

    def read(reader: Any) -> Any:
        opened.append(reader.store.url)
        raise StoreError("no", path="")

    monkeypatch.setattr(external_logs, "load_latest", read)
    settings = UnitySettings(readable=("s3a://lake/a",))
    tables = TransactionManager(MemoryCoordinator()).unity_tables(settings)
    tables.create_schema("s", None, {})
    for number, url in enumerate(["s3://lake/ab", "s3://lake/a/t", "gs://lake/a/t", "s3://else/t"]):
        tables.register_external(f"s.t{number}", url, "DELTA", None, {}, [], None, ())
        tables.load(f"s.t{number}")
        tables.listed(f"s.t{number}")
    assert opened == ["s3://lake/a/t"]


def test_names_are_shared_by_all_kinds_of_tables(unity: Unity, schema: str, manager: Any, place: Any) -> None:
    unity.ok("POST", "/tables", external("t", schema))
    staging = f"/delta/v1/catalogs/main/schemas/{schema}/staging-tables"
    assert unity.ask("POST", staging, {"name": "t"}).error == (409, "AlreadyExistsException")
    table = Table(unity, schema, "u", unity.ok("POST", staging, {"name": "u"}))
    request = {**table.first(), "name": "t"}
    assert unity.ask("POST", staging.replace("staging-tables", "tables"), request).status == 409
    unity.ok("POST", staging.replace("staging-tables", "tables"), {**request, "name": "u"})
    assert unity.ask("POST", "/tables", external("u", schema)).error == (409, "AlreadyExistsException")
    assert unity.ask("POST", f"{table.path}/rename", {"new-name": "t"}).error == (409, "AlreadyExistsException")
    with pytest.raises(TableExistsError):
        manager.create_table(f"{schema}.t", str(place / f"{schema}t"), pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"table_type": "VIEW"}, NOT_SERVED),
        ({"storage_location": None}, INVALID),
        ({"storage_location": "relative/path"}, INVALID),
        ({"storage_location": "s3://"}, INVALID),
        ({"storage_location": "s3://b/" + "x" * 5000}, INVALID),
        ({"storage_location": "s3:///b/t"}, INVALID),
        ({"storage_location": "file:t"}, INVALID),
        ({"storage_location": "http://169.254.169.254/latest"}, INVALID),
        ({"storage_location": "memory://t"}, INVALID),
        ({"data_source_format": "EXCEL"}, BAD),
        ({"name": ""}, BAD),
        ({"columns": 7}, BAD),
        ({"catalog_name": "none"}, (404, "NoSuchCatalogException")),
        ({"schema_name": "none"}, (404, "NoSuchSchemaException")),
        ({"table_type": "MANAGED"}, (404, "NoSuchTableException")),
    ],
)
def test_tables_refuse(unity: Unity, schema: str, changes: dict[str, Any], error: tuple[int, str]) -> None:
    assert unity.ask("POST", "/tables", {**external("t", schema), **changes}).error == error


def test_an_external_table_does_not_lie_in_a_managed_one(unity: Unity, schema: str, table: Table) -> None:
    for place in (table.location, f"{table.location}/x", str(table.root.parent)):
        assert unity.ask("POST", "/tables", external("t", schema, storage_location=place)).error == INVALID


def test_an_external_table_does_not_lie_where_managed_ones_are_created(unity: Unity, schema: str, place: Path) -> None:
    """Whether there are managed tables yet or not."""
    staged = unity.ok("POST", f"/delta/v1/catalogs/main/schemas/{schema}/staging-tables", {"name": "x"})
    places = (place / "warehouse", place, place / "warehouse/__unitystorage", staged["location"])
    for location in map(str, places):
        request = external("t", schema, storage_location=location)
        assert unity.ask("POST", "/tables", request).error == INVALID
    unity.ok("POST", "/tables", external("t", schema, storage_location=str(place / "warehouse/other")))


def test_an_external_table_around_managed_ones(place: Path, tmp_path: Path) -> None:
    """It was registered before the catalog had this warehouse."""
    options = (tmp_path / "c.db", "--set=recovery.every_seconds=0")
    around = external("around", "s", storage_location=str(tmp_path))
    with served(*options) as server:
        unity = Unity(server)
        unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        table_id = unity.ok("POST", "/tables", around)["table_id"]
    with served(*options, "--warehouse", str(tmp_path / "w")) as server:
        unity, path = Unity(server), "/delta/v1/catalogs/main/schemas/s"
        refused = unity.ask("POST", f"{path}/staging-tables", {"name": "t"})
        assert refused.error == INVALID
        assert "s.around" in refused.body["message"]
        assert unity.ask("GET", f"{path}/tables/around/credentials?operation=READ_WRITE").error == INVALID
        asked = {"table_id": table_id, "operation": "READ"}
        assert unity.ask("POST", "/temporary-table-credentials", asked).error == INVALID
        unity.ok("DELETE", f"{path}/tables/around")
        unity.new_table("t")


def test_a_managed_table_is_created_by_the_general_api(unity: Unity, schema: str) -> None:
    request = {"name": "t", "catalog_name": "main", "schema_name": schema}
    staged = unity.ok("POST", "/staging-tables", request)
    table = Table(unity, schema, "t", {"table-id": staged["id"], "location": staged["staging_location"]})
    table.first()
    made = unity.ok(
        "POST", "/tables", external("t", schema, table_type="MANAGED", storage_location=table.location, comment="c")
    )
    assert (made["table_id"], made["comment"]) == (table.id, "c")
    assert table.commit()["latest-table-version"] == 1


# ------------------------------------------------------------------------------------------------ credentials


def test_temporary_credentials(unity: Unity, table: Table) -> None:
    path = "/temporary-table-credentials"
    found = unity.ok("POST", path, {"table_id": table.id, "operation": "READ"})
    assert (found["url"], found.keys()) == (table.location, {"url", "expiration_time"})
    assert unity.ok("POST", f"{path}?table_id={table.id}&operation=READ")["url"] == table.location
    staged = unity.ok("POST", "/delta/v1/catalogs/main/schemas/s/staging-tables", {"name": uuid.uuid4().hex})
    found = unity.ok("POST", path, {"table_id": staged["table-id"], "operation": "READ_WRITE"})
    assert found["url"] == staged["location"]
    missing = {"table_id": str(uuid.uuid4()), "operation": "READ"}
    assert unity.ask("POST", path, missing).error == (404, "NoSuchTableException")
    for wrong in ({"table_id": table.id}, {"table_id": table.id, "operation": "UNKNOWN_TABLE_OPERATION"}):
        assert unity.ask("POST", path, wrong).error == BAD
    path = "/temporary-path-credentials"
    assert unity.ok("POST", path, {"url": "s3://b/x", "operation": "PATH_CREATE_TABLE"})["url"] == "s3://b/x"
    assert unity.ask("POST", path, {"url": "s3://b/x", "operation": "READ"}).error == BAD
    assert unity.ask("POST", path, {"url": table.location, "operation": "PATH_READ"}).error == INVALID


# -------------------------------------------------------------------------------------------- preview commits


def _commit(table: Table, add: Any, **more: Any) -> dict[str, Any]:
    commit = {key.replace("-", "_"): value for key, value in add["commit"].items()}
    return {"table_id": table.id, "table_uri": table.location, "commit_info": commit, **more}


def test_the_older_commits_are_those_of_the_table(unity: Unity, table: Table) -> None:
    path = "/delta/preview/commits"
    asked = {"table_id": table.id, "table_uri": table.location, "start_version": 0}
    assert unity.ok("GET", path, asked) == {"commits": [], "latest_table_version": 0}
    made = []
    for number in range(3):
        add = table.stage()
        assert unity.ok("POST", path, _commit(table, add, metadata={"description": "not read"})) == {}
        assert unity.ok("POST", path, _commit(table, add)) == {}
        table.version, table.last_ms = number + 1, add["commit"]["timestamp"]
        made.append(_commit(table, add)["commit_info"])
    assert unity.ok("GET", path, asked) == {"commits": made, "latest_table_version": 3}
    found = unity.ok("GET", path, {**asked, "start_version": 2, "end_version": 2})
    assert found == {"commits": [made[1]], "latest_table_version": 3}
    other = table.stage(version=3)
    assert unity.ask("POST", path, _commit(table, other)).error == (409, "CommitVersionConflictException")
    assert unity.ask("POST", path, _commit(table, table.stage(version=5))).error == INVALID
    table.publish(1, made[0]["file_name"])
    report = {"table_id": table.id, "table_uri": table.location, "latest_backfilled_version": 1}
    assert unity.ok("POST", path, report) == {}
    assert unity.ok("GET", path, asked)["commits"] == made[1:]
    assert [each["version"] for each in table.load()["commits"]] == [3, 2]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"table_id": str(uuid.uuid4())}, (404, "NoSuchTableException")),
        ({"table_uri": "s3://bucket/other"}, INVALID),
        ({"table_uri": None}, BAD),
        ({"start_version": -1}, INVALID),
        ({"end_version": 1, "start_version": 2}, INVALID),
        ({"start_version": "0"}, BAD),
    ],
)
def test_older_commits_refuse(unity: Unity, table: Table, changes: Any, error: tuple[int, str]) -> None:
    request = {"table_id": table.id, "table_uri": table.location, "start_version": 0, **changes}
    assert unity.ask("GET", "/delta/preview/commits", request).error == error
    if "start_version" not in changes:
        del request["start_version"]
        found = unity.ask("POST", "/delta/preview/commits", {**request, "latest_backfilled_version": 0})
        assert found.error == error


def test_an_older_commit_has_something_to_say(unity: Unity, table: Table) -> None:
    request = {"table_id": table.id, "table_uri": table.location}
    assert unity.ask("POST", "/delta/preview/commits", request).error == INVALID
    iceberg = {"metadata_location": "x", "converted_delta_version": 1, "converted_delta_timestamp": "yesterday"}
    request = _commit(table, table.stage(), uniform={"iceberg": iceberg})
    assert unity.ask("POST", "/delta/preview/commits", request).error == INVALID


# ------------------------------------------------------------------------------------------------- not served


@pytest.mark.parametrize(
    "path",
    ["/functions", "/volumes", "/models", "/models/x/versions/1", "/external-locations",
     "/credentials/x", "/temporary-volume-credentials"],
)  # fmt: skip
def test_what_is_not_served_says_so(unity: Unity, path: str) -> None:
    for method in ("GET", "POST"):
        found = unity.ask(method, path)
        assert found.error == NOT_SERVED
        assert "this server has no" in found.body["error"]["message"]
        assert path.split("/")[1] in found.body["message"]


def test_unknown_paths_and_methods(unity: Unity) -> None:
    for path in ("/", "/nothing", "/tables/a/b/c", "/delta/v1", "/delta/v1/catalogs/main/schemas/s/tables//"):
        assert unity.ask("GET", path).error == (404, "NotFoundException")
    assert unity.ask("PUT", "/schemas", {}).error == NOT_SERVED
    assert unity.ask("PATCH", "/delta/v1/catalogs/main/schemas/s/tables/t", {}).error == NOT_SERVED
