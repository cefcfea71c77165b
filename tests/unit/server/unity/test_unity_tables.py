"""The calls of the UC Delta API on managed tables, over HTTP."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from deltalog import DeltaTable, TransactionManager, UnsupportedFeatureError
from tests.support.server.unity import COLUMNS, PROTOCOL, READER, WRITER, Table, Unity, now_ms

SCHEMA = "/delta/v1/catalogs/main/schemas/s"


@pytest.fixture
def table(unity: Unity) -> Table:
    return unity.new_table()


def staged(unity: Unity, name: str = "") -> Table:
    name = name or f"t{uuid.uuid4().hex[:12]}"
    return Table(unity, "s", name, unity.ok("POST", f"{SCHEMA}/staging-tables", {"name": name}))


# ------------------------------------------------------------------------------------------------------ config


def test_config_lists_what_is_served(unity: Unity) -> None:
    found = unity.ok("GET", "/delta/v1/config?catalog=main&protocol-versions=1.0")
    assert found["protocol-version"] == "1.0"
    table = "/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
    assert set(found["endpoints"]) == {
        "POST /v1/catalogs/{catalog}/schemas/{schema}/staging-tables",
        "POST /v1/catalogs/{catalog}/schemas/{schema}/tables",
        *(f"{method} {table}" for method in ("GET", "POST", "DELETE", "HEAD")),
        f"POST {table}/rename",
        f"GET {table}/credentials",
        f"POST {table}/metrics",
        "GET /v1/staging-tables/{table_id}/credentials",
        "GET /v1/temporary-path-credentials",
    }


@pytest.mark.parametrize("versions", ["1.0", "1.7", "3.4,1.0", "1.1,2.3"])
def test_config_takes_a_common_version(unity: Unity, versions: str) -> None:
    found = unity.ok("GET", f"/delta/v1/config?catalog=main&protocol-versions={versions}")
    assert found["protocol-version"] == "1.0"


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("catalog=main", (400, "InvalidParameterValueException")),
        ("protocol-versions=1.0", (400, "InvalidParameterValueException")),
        ("catalog=main&protocol-versions=one", (400, "InvalidParameterValueException")),
        ("catalog=main&protocol-versions=2.0", (400, "InvalidParameterValueException")),
        ("catalog=other&protocol-versions=1.0", (404, "NoSuchCatalogException")),
    ],
)
def test_config_refuses(unity: Unity, query: str, error: tuple[int, str]) -> None:
    assert unity.ask("GET", f"/delta/v1/config?{query}").error == error


def test_config_names_the_versions_it_supports(unity: Unity) -> None:
    found = unity.ask("GET", "/delta/v1/config?catalog=main&protocol-versions=2.0")
    assert "1.0" in found.body["error"]["message"]


# ----------------------------------------------------------------------------------------------------- staging


def test_a_staged_table_has_an_id_and_a_place(unity: Unity) -> None:
    found = unity.ok("POST", f"{SCHEMA}/staging-tables", {"name": "new"})
    assert str(uuid.UUID(found["table-id"])) == found["table-id"]
    assert found["table-type"] == "MANAGED"
    assert found["location"].startswith("file:///")
    assert found["location"].endswith(f"/{found['table-id']}")
    assert found["storage-credentials"] == []
    assert found["required-protocol"] == PROTOCOL
    assert found["required-properties"] == {
        "delta.enableInCommitTimestamps": "true",
        "io.unitycatalog.tableId": found["table-id"],
    }
    assert set(found["suggested-protocol"]["writer-features"]) == {"deletionVectors", "v2Checkpoint"}
    assert found["suggested-properties"]["delta.checkpointPolicy"] == "v2"
    assert unity.ok("GET", f"/delta/v1/staging-tables/{found['table-id']}/credentials") == {"storage-credentials": []}
    assert unity.ask("GET", f"{SCHEMA}/tables/new").error == (404, "NoSuchTableException")


def test_a_name_is_not_reserved_by_staging(unity: Unity) -> None:
    one, two = staged(unity, "twice"), staged(unity, "twice")
    assert (one.id, one.location) != (two.id, two.location)
    assert unity.ask("POST", f"{SCHEMA}/tables", two.first()).status == 200
    assert unity.ask("POST", f"{SCHEMA}/tables", one.first()).error == (409, "AlreadyExistsException")
    assert unity.ask("POST", f"{SCHEMA}/staging-tables", {"name": "twice"}).error == (409, "AlreadyExistsException")
    assert two.load()["metadata"]["table-uuid"] == two.id


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        (f"{SCHEMA}/staging-tables", {}, (400, "BadRequestException")),
        (f"{SCHEMA}/staging-tables", {"name": ""}, (400, "BadRequestException")),
        (f"{SCHEMA}/staging-tables", {"name": "a.b"}, (400, "BadRequestException")),
        (f"{SCHEMA}/staging-tables", {"name": 7}, (400, "BadRequestException")),
        (f"{SCHEMA}/staging-tables", b"{", (400, "BadRequestException")),
        ("/delta/v1/catalogs/main/schemas/none/staging-tables", {"name": "t"}, (404, "NoSuchSchemaException")),
        ("/delta/v1/catalogs/none/schemas/s/staging-tables", {"name": "t"}, (404, "NoSuchSchemaException")),
    ],
)
def test_staging_refuses(unity: Unity, path: str, body: Any, error: tuple[int, str]) -> None:
    assert unity.ask("POST", path, body).error == error


def test_credentials_of_no_staging_table(unity: Unity, table: Table) -> None:
    path = "/delta/v1/staging-tables/{}/credentials"
    for table_id in (uuid.uuid4(), "x"):
        assert unity.ask("GET", path.format(table_id)).error == (404, "NoSuchTableException")
    # The creator of a table may go on with the credentials of its staging table.
    assert unity.ok("GET", path.format(table.id)) == {"storage-credentials": []}
    unity.ok("DELETE", table.path)
    assert unity.ask("GET", path.format(table.id)).error == (404, "NoSuchTableException")


# ------------------------------------------------------------------------------------------------ createTable


def test_a_staged_table_becomes_a_table(unity: Unity) -> None:
    table = staged(unity)
    created = unity.ok("POST", f"{SCHEMA}/tables", table.first(configuration={"x": "1"}))
    metadata = created["metadata"]
    assert created == table.load()
    assert (created["commits"], created["latest-table-version"]) == ([], 0)
    assert (metadata["table-uuid"], metadata["table-type"]) == (table.id, "MANAGED")
    assert metadata["location"] == table.location
    assert (metadata["columns"], metadata["partition-columns"]) == (COLUMNS, ["day"])
    assert (metadata["last-commit-version"], metadata["last-commit-timestamp-ms"]) == (0, table.last_ms)
    assert metadata["created-time"] <= metadata["updated-time"] <= now_ms()
    assert metadata["properties"] == {
        "delta.enableInCommitTimestamps": "true",
        "io.unitycatalog.tableId": table.id,
        "x": "1",
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
        **{f"delta.feature.{name}": "supported" for name in {*READER, *WRITER}},
        "delta.lastUpdateVersion": "0",
        "delta.lastCommitTimestamp": str(table.last_ms),
    }


def test_a_table_is_created_once(unity: Unity) -> None:
    table = staged(unity)
    request = table.first()
    created = unity.ok("POST", f"{SCHEMA}/tables", request)
    assert unity.ok("POST", f"{SCHEMA}/tables", request) == created  # the answer to the first may have been lost
    found = unity.ask("POST", f"{SCHEMA}/tables", {**request, "name": f"{table.name}2"})
    assert found.error == (400, "InvalidParameterValueException")
    assert "already created" in found.body["error"]["message"]
    assert unity.ask("GET", f"{SCHEMA}/tables/{table.name}2").status == 404


@pytest.mark.parametrize("form", ["file:{0}", "file://{0}/", "{0}"])
def test_a_location_may_have_another_form(unity: Unity, form: str) -> None:
    table = staged(unity)
    unity.ok("POST", f"{SCHEMA}/tables", {**table.first(), "location": form.format(table.root)})


def test_what_a_request_leaves_out_is_that_of_the_log(unity: Unity) -> None:
    table = staged(unity)
    request = table.first(configuration={"x": "1"})
    del request["partition-columns"], request["domain-metadata"], request["properties"]["x"], request["columns"]
    created = unity.ok("POST", f"{SCHEMA}/tables", request)
    assert created["metadata"]["partition-columns"] == ["day"]
    assert created["metadata"]["properties"]["x"] == "1"


def test_domain_metadata_is_projected(unity: Unity) -> None:
    protocol = {**PROTOCOL, "writer-features": [*WRITER, "clustering", "domainMetadata"]}
    clustering = {"clusteringColumns": [["id"]]}
    domain = {"domain": "delta.clustering", "configuration": json.dumps(clustering), "removed": False}
    table = staged(unity)
    request = table.first(protocol, [domain], partitionColumns=[])
    wrong = {**request, "domain-metadata": {"delta.clustering": {"clusteringColumns": [["day"]]}}}
    assert unity.ask("POST", f"{SCHEMA}/tables", wrong).error == (400, "InvalidParameterValueException")
    created = unity.ok("POST", f"{SCHEMA}/tables", request)
    assert created["metadata"]["properties"]["delta.clusteringColumns"] == '[["id"]]'


def _without(names: list[str], name: str) -> list[str]:
    return [each for each in names if each != name]


@pytest.mark.parametrize("missing", WRITER)
def test_a_required_feature_is_missed(unity: Unity, missing: str) -> None:
    protocol = {
        **PROTOCOL, "reader-features": _without(READER, missing), "writer-features": _without(WRITER, missing),
    }  # fmt: skip
    found = unity.ask("POST", f"{SCHEMA}/tables", staged(unity).first(protocol))
    assert found.error == (400, "InvalidParameterValueException")
    assert missing in found.body["error"]["message"]


@pytest.mark.parametrize("key", ["delta.enableInCommitTimestamps", "io.unitycatalog.tableId"])
def test_a_required_property_is_missed(unity: Unity, key: str) -> None:
    found = unity.ask("POST", f"{SCHEMA}/tables", staged(unity).first(configuration={key: "false"}))
    assert found.error == (400, "InvalidParameterValueException")
    assert key in found.body["error"]["message"]


@pytest.mark.parametrize(
    "change",
    [
        {"last-commit-timestamp-ms": 5},
        {"columns": {"type": "struct", "fields": COLUMNS["fields"][:1]}},
        {"columns": {"type": "struct", "fields": [{"name": "id", "type": "nothing", "nullable": 1}]}},
        {"partition-columns": ["id"]},
        {"protocol": {**PROTOCOL, "writer-features": [*WRITER, "appendOnly"]}},
        {"properties": {}},
        {"more": {"x": "2"}},
        {"more": {"delta.feature.appendOnly": "supported"}},
        {"domain-metadata": {"delta.clustering": {"clusteringColumns": []}}},
        {"uniform": {"iceberg": {"metadata-location": "x", "converted-delta-version": 0}}},
    ],
)
def test_a_request_must_agree_with_version_0(unity: Unity, change: dict[str, Any]) -> None:
    table = staged(unity)
    request = table.first(configuration={"x": "1"})
    change = {"properties": {**request["properties"], **change["more"]}} if "more" in change else change
    found = unity.ask("POST", f"{SCHEMA}/tables", {**request, **change})
    assert found.error == (400, "InvalidParameterValueException")
    unity.ok("POST", f"{SCHEMA}/tables", request)  # nothing was changed by the refusal


def test_version_0_must_be_there_alone(unity: Unity) -> None:
    table = staged(unity)
    request = table.first(write=False)
    found = unity.ask("POST", f"{SCHEMA}/tables", request)
    assert found.error == (400, "InvalidParameterValueException")
    table = staged(unity)
    request = table.first()
    (table.log / f"{1:020d}.json").write_text("{}\n")
    assert unity.ask("POST", f"{SCHEMA}/tables", request).error == (400, "InvalidParameterValueException")
    (table.log / f"{0:020d}.json").write_text("not json\n")
    (table.log / f"{1:020d}.json").unlink()
    assert unity.ask("POST", f"{SCHEMA}/tables", request).error == (400, "InvalidParameterValueException")


@pytest.mark.parametrize("key", ["name", "location", "table-type", "protocol", "properties"])
def test_a_member_of_the_request_is_missing(unity: Unity, key: str) -> None:
    request = staged(unity).first()
    del request[key]
    assert unity.ask("POST", f"{SCHEMA}/tables", request).error == (400, "BadRequestException")


@pytest.mark.parametrize("location", ["file:///elsewhere/x", "s3://bucket/x", "/tmp"])
def test_a_location_was_not_staged(unity: Unity, location: str) -> None:
    found = unity.ask("POST", f"{SCHEMA}/tables", {**staged(unity).first(), "location": location})
    assert found.error == (404, "NoSuchTableException")


def test_create_names_what_is_missing(unity: Unity) -> None:
    request = staged(unity).first()
    found = unity.ask("POST", "/delta/v1/catalogs/main/schemas/none/tables", request)
    assert found.error == (404, "NoSuchSchemaException")
    found = unity.ask("POST", "/delta/v1/catalogs/none/schemas/s/tables", request)
    assert found.error == (404, "NoSuchSchemaException")


# -------------------------------------------------------------------------------------------------- loadTable


def test_load_lists_unpublished_commits_newest_first(table: Table) -> None:
    before = table.load()["metadata"]
    made = []
    for _ in range(3):
        add = table.stage()
        assert table.update(add).status == 200
        table.version, table.last_ms = add["commit"]["version"], add["commit"]["timestamp"]
        made.append(add["commit"])
    found = table.load()
    assert found["commits"] == made[::-1]
    assert found["latest-table-version"] == 3
    assert found["metadata"]["etag"] == before["etag"]  # rows do not change it
    assert found["metadata"]["last-commit-version"] == 0
    assert found["metadata"]["updated-time"] >= before["updated-time"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{SCHEMA}/tables/none", "NoSuchTableException"),
        ("/delta/v1/catalogs/main/schemas/none/tables/t", "NoSuchSchemaException"),
        ("/delta/v1/catalogs/none/schemas/s/tables/t", "NoSuchSchemaException"),
    ],
)
def test_load_names_what_is_missing(unity: Unity, path: str, kind: str) -> None:
    assert unity.ask("GET", path).error == (404, kind)
    kind = "NoSuchTableException"
    assert unity.ask("HEAD", path).status == 404
    assert unity.ask("DELETE", path).error == (404, kind)
    assert unity.ask("GET", f"{path}/credentials?operation=READ").error == (404, kind)
    assert unity.ask("POST", f"{path}/rename", {"new-name": "x"}).error == (404, kind)
    update = {"requirements": [{"type": "assert-table-uuid", "uuid": "x"}], "updates": [_comment("c")]}
    assert unity.ask("POST", path, update).error == (404, kind)
    assert unity.ask("POST", f"{path}/metrics", {"table-id": "x"}).error == (404, kind)


def _comment(text: str) -> dict[str, Any]:
    return {"action": "set-table-comment", "comment": text}


# ------------------------------------------------------------------------------------------------ credentials


def test_a_table_on_a_local_disk_needs_no_credentials(unity: Unity, table: Table) -> None:
    for operation in ("READ", "READ_WRITE"):
        found = unity.ok("GET", f"{table.path}/credentials?operation={operation}")
        assert found == {"storage-credentials": []}
    for query in ("", "?operation=WRITE", "?operation=READ&operation=READ"):
        found = unity.ask("GET", f"{table.path}/credentials{query}")
        assert found.error == (400, "BadRequestException")


def test_path_credentials(unity: Unity, table: Table) -> None:
    path = "/delta/v1/temporary-path-credentials"
    assert unity.ok("GET", f"{path}?location=s3://b/x&operation=READ_WRITE") == {"storage-credentials": []}
    assert unity.ask("GET", f"{path}?location=s3://b/x").error == (400, "BadRequestException")
    assert unity.ask("GET", f"{path}?operation=READ").error == (400, "BadRequestException")
    for place in (table.location, f"{table.location}/x", str(table.root.parent), "file:///"):
        found = unity.ask("GET", f"{path}?location={place}&operation=READ")
        assert found.error == (400, "InvalidParameterValueException")


# ---------------------------------------------------------------------------------------------------- metrics


def _report(table_id: str, **changes: Any) -> dict[str, Any]:
    histogram = {"sorted-bin-boundaries": [0, 10], "file-counts": [1, 2], "total-bytes": [5, 30], "commit-version": 1}
    report = {"num-files-added": 3, "file-size-histogram": {**histogram, **changes}}
    return {"table-id": table_id, "report": {"commit-report": report}}


def test_metrics_are_taken(unity: Unity, table: Table) -> None:
    found = unity.ask("POST", f"{table.path}/metrics", _report(table.id))
    assert (found.status, found.body) == (204, None)
    assert unity.ask("POST", f"{table.path}/metrics", {"table-id": table.id}).status == 204


@pytest.mark.parametrize(
    "changes",
    [
        {"file-counts": [1]},
        {"total-bytes": [1, 2, 3]},
        {"sorted-bin-boundaries": [1, 10]},
        {"sorted-bin-boundaries": [0, 0]},
    ],
)
def test_metrics_must_fit(unity: Unity, table: Table, changes: dict[str, Any]) -> None:
    found = unity.ask("POST", f"{table.path}/metrics", _report(table.id, **changes))
    assert found.error == (400, "InvalidParameterValueException")


def test_metrics_name_their_table(unity: Unity, table: Table) -> None:
    found = unity.ask("POST", f"{table.path}/metrics", _report(str(uuid.uuid4())))
    assert found.error == (400, "InvalidParameterValueException")
    assert unity.ask("POST", f"{table.path}/metrics", b"[]").error == (400, "BadRequestException")
    assert unity.ask("POST", f"{table.path}/metrics", {}).error == (400, "InvalidParameterValueException")


# -------------------------------------------------------------------------------------------------- lifecycle


def test_a_table_exists_until_it_is_dropped(unity: Unity, table: Table) -> None:
    table.commit()
    found = unity.ask("HEAD", table.path)
    assert (found.status, found.body) == (204, None)
    found = unity.ask("DELETE", table.path)
    assert (found.status, found.body) == (204, None)
    assert unity.ask("HEAD", table.path).status == 404
    assert unity.ask("DELETE", table.path).error == (404, "NoSuchTableException")
    found = unity.ask("POST", f"{SCHEMA}/tables", {**table.first(write=False), "name": table.name})
    assert found.error == (404, "NoSuchTableException")  # its place is not used again


def test_a_table_is_renamed(unity: Unity, table: Table) -> None:
    other, new = unity.new_table(), f"{table.name}_new"
    before = table.load()
    assert unity.ask("POST", f"{table.path}/rename", {"new-name": other.name}).error == (409, "AlreadyExistsException")
    assert unity.ask("POST", f"{table.path}/rename", {"new-name": "a.b"}).error == (400, "BadRequestException")
    assert unity.ask("POST", f"{table.path}/rename", {}).error == (400, "BadRequestException")
    found = unity.ask("POST", f"{table.path}/rename", {"new-name": new})
    assert (found.status, found.body) == (204, None)
    assert unity.ask("GET", table.path).error == (404, "NoSuchTableException")
    assert unity.ok("GET", f"{SCHEMA}/tables/{new}") == before
    table.path = f"{SCHEMA}/tables/{new}"
    assert table.commit()["latest-table-version"] == 1
    assert unity.new_table(table.name).id != table.id


# ---------------------------------------------------------------------------------------- the same tables here


def test_deltalog_reads_and_writes_what_another_client_wrote(
    unity: Unity, manager: TransactionManager, table: Table
) -> None:
    table.commit()
    mine = manager.table(f"s.{table.name}")
    assert mine.snapshot().scan().to_arrow()["id"].to_pylist() == [1]
    mine.append(mine.snapshot().scan().to_arrow())
    found = table.load()
    assert (found["latest-table-version"], found["commits"]) == (2, [])
    table.version, table.last_ms = 2, found["metadata"]["updated-time"]
    table.commit()
    assert sorted(mine.snapshot().scan().to_arrow()["id"].to_pylist()) == [1, 1, 3]
    with pytest.raises(UnsupportedFeatureError):
        DeltaTable.open(str(table.root))


def test_a_change_of_metadata_by_deltalog_is_shown(manager: TransactionManager, table: Table) -> None:
    before = table.load()["metadata"]
    manager.table(f"s.{table.name}").set_properties({"x": "1"})
    found = table.load()
    assert found["metadata"]["properties"]["x"] == "1"
    assert found["metadata"]["etag"] != before["etag"]
    assert found["metadata"]["last-commit-version"] == found["latest-table-version"] == 1
    assert found["metadata"]["last-commit-timestamp-ms"] == found["metadata"]["updated-time"]
