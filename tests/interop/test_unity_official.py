"""Unity Catalog's own Java client makes every call of the server, and tells its errors apart by their types."""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from tests.support.unity_clients import CATALOG, Jvm, OfficialClient, UnityError, UnityServer, unity_server
from tests.support.unity_clients.hand_written import FIELDS, HandWritten, add_commit, local, update

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnityServer]:
    with unity_server(tmp_path_factory.mktemp("unity")) as made:
        yield made


@pytest.fixture(scope="module")
def client(unity_jvm: Jvm, server: UnityServer) -> OfficialClient:
    made = OfficialClient(unity_jvm, server.url)
    made.schemas.createSchema(made.general("CreateSchema", {"name": "s", "catalog_name": CATALOG}))
    return made


@pytest.fixture
def name() -> str:
    return f"t{next(_NUMBERS)}"


def stage(client: OfficialClient, name: str) -> Any:
    request = client.delta("DeltaCreateStagingTableRequest", {"name": name})
    return client.tables.createStagingTable(CATALOG, "s", request)


def create(client: OfficialClient, table: HandWritten, name: str, **changed: Any) -> Any:
    request = client.delta("DeltaCreateTableRequest", table.request(name, **changed))
    return client.tables.createTable(CATALOG, "s", request)


def load(client: OfficialClient, name: str) -> Any:
    return client.tables.loadTable(CATALOG, "s", name)


def change(client: OfficialClient, name: str, table: HandWritten, *updates: Any, etag: str | None = None) -> Any:
    request = client.delta("DeltaUpdateTableRequest", update(table.table_id, *updates, etag=etag))
    return client.tables.updateTable(CATALOG, "s", name, request)


def created(client: OfficialClient, name: str, **more: Any) -> HandWritten:
    table = HandWritten.of(stage(client, name), **more)
    table.write_version_0()
    create(client, table, name)
    return table


def fails(status: int, kind: str, call: Callable[[], Any]) -> UnityError:
    with pytest.raises(UnityError) as caught:
        call()
    assert (caught.value.status, caught.value.type) == (status, kind), caught.value
    assert caught.value.message
    return caught.value


def set_properties(**values: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": values}


# --------------------------------------------------------------------------------------------- configuration


def test_configuration(client: OfficialClient) -> None:
    answer = client.configuration.getConfig(CATALOG, "1.0")
    assert answer["protocol-version"] == "1.0"
    table = "/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
    assert set(answer["endpoints"]) >= {
        "POST /v1/catalogs/{catalog}/schemas/{schema}/staging-tables",
        "POST /v1/catalogs/{catalog}/schemas/{schema}/tables",
        *(f"{method} {table}" for method in ("GET", "POST", "DELETE", "HEAD")),
        f"POST {table}/rename",
        f"GET {table}/credentials",
        f"POST {table}/metrics",
        "GET /v1/staging-tables/{table_id}/credentials",
    }
    assert client.configuration.getConfig(CATALOG, "1.7,2.3")["protocol-version"] == "1.0"


def test_configuration_of_what_there_is_not(client: OfficialClient) -> None:
    fails(404, "NoSuchCatalogException", lambda: client.configuration.getConfig("nothing", "1.0"))
    error = fails(400, "InvalidParameterValueException", lambda: client.configuration.getConfig(CATALOG, "2.0"))
    assert error.message and "1.0" in error.message
    fails(400, "InvalidParameterValueException", lambda: client.configuration.getConfig(CATALOG, "one"))


# ------------------------------------------------------------------------------------------------- creation


def test_a_table_is_staged_and_created(client: OfficialClient, server: UnityServer, name: str) -> None:
    staged = stage(client, name)
    assert staged["table-type"] == "MANAGED" and staged["storage-credentials"] == []
    assert uuid.UUID(staged["table-id"]) and staged["table-id"] in staged["location"]
    assert staged["required-properties"]["io.unitycatalog.tableId"] == staged["table-id"]
    assert "catalogManaged" in staged["required-protocol"]["reader-features"]
    fails(404, "NoSuchTableException", lambda: load(client, name))
    table = HandWritten.of(
        staged,
        properties={"custom.owner": "a team"},
        writer=["domainMetadata", "clustering"],
        domains={"delta.clustering": {"clusteringColumns": [["id"]]}},
        comment="a table",
    )
    table.write_version_0()
    answer = create(client, table, name)
    assert answer == load(client, name)
    assert answer["commits"] == [] and answer["latest-table-version"] == 0
    metadata = answer["metadata"]
    assert metadata["table-uuid"] == table.table_id and metadata["table-type"] == "MANAGED"
    assert local(metadata["location"]) == local(table.location)
    assert metadata["columns"] == {"type": "struct", "fields": FIELDS}
    assert metadata["last-commit-version"] == 0 and metadata["last-commit-timestamp-ms"] == table.time_ms
    assert metadata["etag"] and metadata["created-time"] and metadata["updated-time"]
    properties = metadata["properties"]
    assert properties["custom.owner"] == "a team" and properties["io.unitycatalog.tableId"] == table.table_id
    assert properties["delta.feature.catalogManaged"] == "supported"
    assert properties["delta.feature.clustering"] == "supported"
    assert (properties["delta.minReaderVersion"], properties["delta.minWriterVersion"]) == ("3", "7")
    assert json.loads(properties["delta.clusteringColumns"]) == [["id"]]
    assert properties["delta.lastUpdateVersion"] == "0"
    assert properties["delta.lastCommitTimestamp"] == str(table.time_ms)
    ours = server.manager().table(f"s.{name}")
    assert ours.version == 0 and ours.snapshot().metadata.description == "a table"


def test_columns_of_all_kinds_come_back(client: OfficialClient, name: str) -> None:
    element = {"type": "array", "elementType": "decimal(10,2)", "containsNull": False}
    fields = [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "price", "type": "decimal(38,18)", "nullable": True, "metadata": {"comment": "in €"}},
        {"name": "prices", "type": element, "nullable": True, "metadata": {}},
        {
            "name": "by name",
            "type": {"type": "map", "keyType": "string", "valueType": element, "valueContainsNull": True},
            "nullable": True,
            "metadata": {"elementType": "not a type", "n": 1, "deep": {"x": [1, 2], "y": None}},
        },
        {
            "name": "inner",
            "type": {"type": "struct", "fields": [{"name": "a", "type": "date", "nullable": True, "metadata": {}}]},
            "nullable": True,
            "metadata": {},
        },
    ]
    table = HandWritten.of(stage(client, name), fields=fields)
    table.write_version_0()
    sent = json.loads(
        json.dumps(fields[:3]).replace("elementType", "element-type").replace("containsNull", "contains-null")
    )
    hyphenated = {"type": "array", "element-type": "decimal(10,2)", "contains-null": False}
    sent.append(
        {
            **fields[3],
            "type": {"type": "map", "key-type": "string", "value-type": hyphenated, "value-contains-null": True},
        }
    )
    sent.append(fields[4])
    answer = create(client, table, name, columns={"type": "struct", "fields": sent})
    assert answer["metadata"]["columns"] == {"type": "struct", "fields": sent}


def test_partition_columns(client: OfficialClient, name: str) -> None:
    table = created(client, name, partition_columns=["day"])
    assert load(client, name)["metadata"]["partition-columns"] == ["day"]
    assert table.partition_columns == ["day"]


def test_what_cannot_be_staged(client: OfficialClient, name: str) -> None:
    created(client, name)
    fails(409, "AlreadyExistsException", lambda: stage(client, name))
    request = client.delta("DeltaCreateStagingTableRequest", {"name": name})
    for place in ((CATALOG, "nowhere"), ("nothing", "s")):
        fails(404, "NoSuchSchemaException", partial(client.tables.createStagingTable, *place, request))
    wrong = client.delta("DeltaCreateStagingTableRequest", {"name": "a.b"})
    with pytest.raises(UnityError) as caught:
        client.tables.createStagingTable(CATALOG, "s", wrong)
    assert caught.value.status == 400


def test_staging_tables_of_one_name(client: OfficialClient, name: str) -> None:
    first, second = (HandWritten.of(stage(client, name)) for _ in range(2))
    assert first.table_id != second.table_id and first.location != second.location
    for table in (first, second):
        table.write_version_0()
    create(client, second, name)
    fails(409, "AlreadyExistsException", lambda: create(client, first, name))
    assert load(client, name)["metadata"]["table-uuid"] == second.table_id
    create(client, first, f"{name}_other")
    fails(400, "InvalidParameterValueException", lambda: create(client, first, f"{name}_third"))


def test_staging_credentials(client: OfficialClient, name: str) -> None:
    staged = stage(client, name)
    answer = client.credentials.getStagingTableCredentials(client.uuid(staged["table-id"]))
    assert answer["storage-credentials"] == []  # files on this machine need none
    unknown = client.uuid(str(uuid.uuid4()))
    fails(404, "NoSuchTableException", lambda: client.credentials.getStagingTableCredentials(unknown))


WRONG_CREATIONS: dict[str, tuple[int, str, Callable[[HandWritten], dict[str, Any]]]] = {
    "another location": (404, "NoSuchTableException", lambda t: {"location": t.location + "x"}),
    "another id": (
        400,
        "InvalidParameterValueException",
        lambda t: {"properties": {**t.properties, "io.unitycatalog.tableId": str(uuid.uuid4())}},
    ),
    "without the id": (
        400,
        "InvalidParameterValueException",
        lambda t: {"properties": {k: v for k, v in t.properties.items() if k != "io.unitycatalog.tableId"}},
    ),
    "a property that the log lacks": (
        400,
        "InvalidParameterValueException",
        lambda t: {"properties": {**t.properties, "delta.appendOnly": "true"}},
    ),
    "without a feature": (
        400,
        "InvalidParameterValueException",
        lambda t: {
            "protocol": {
                "min-reader-version": 3,
                "min-writer-version": 7,
                "reader-features": ["vacuumProtocolCheck"],
                "writer-features": ["vacuumProtocolCheck", "inCommitTimestamp"],
            }
        },
    ),
    "an old protocol": (
        400,
        "InvalidParameterValueException",
        lambda t: {"protocol": {"min-reader-version": 1, "min-writer-version": 2}},
    ),
    "other columns": (
        400,
        "InvalidParameterValueException",
        lambda t: {"columns": {"type": "struct", "fields": FIELDS[:1]}},
    ),
    "other partition columns": (400, "InvalidParameterValueException", lambda t: {"partition_columns": ["day"]}),
    "another timestamp": (
        400,
        "InvalidParameterValueException",
        lambda t: {"last_commit_timestamp_ms": t.time_ms + 1},
    ),
    "a domain that the log lacks": (
        400,
        "InvalidParameterValueException",
        lambda t: {"domain_metadata": {"delta.clustering": {"clusteringColumns": [["id"]]}}},
    ),
}


@pytest.mark.parametrize("what", WRONG_CREATIONS)
def test_what_version_0_does_not_say_is_not_created(client: OfficialClient, name: str, what: str) -> None:
    status, kind, changed = WRONG_CREATIONS[what]
    table = HandWritten.of(stage(client, name))
    table.write_version_0()
    fails(status, kind, lambda: create(client, table, name, **changed(table)))
    fails(404, "NoSuchTableException", lambda: load(client, name))
    create(client, table, name)  # and what it says is


def test_a_table_without_version_0_is_not_created(client: OfficialClient, name: str) -> None:
    table = HandWritten.of(stage(client, name))
    fails(400, "InvalidParameterValueException", lambda: create(client, table, name))
    table.write_version_0()
    create(client, table, name)


def test_a_version_0_without_the_features_is_not_created(client: OfficialClient, name: str) -> None:
    staged = stage(client, name)
    table = HandWritten(staged["table-id"], staged["location"], reader=[], writer=["inCommitTimestamp"])
    table.write_version_0()
    asked = HandWritten.of(staged).request(name, last_commit_timestamp_ms=table.time_ms)
    request = client.delta("DeltaCreateTableRequest", asked)
    fails(400, "InvalidParameterValueException", lambda: client.tables.createTable(CATALOG, "s", request))


# ------------------------------------------------------------------------------------------ load, exist, drop


def test_what_cannot_be_loaded(client: OfficialClient, name: str) -> None:
    fails(404, "NoSuchTableException", lambda: load(client, name))
    fails(404, "NoSuchSchemaException", lambda: client.tables.loadTable(CATALOG, "nowhere", name))
    fails(404, "NoSuchSchemaException", lambda: client.tables.loadTable("nothing", "s", name))


def test_tables_exist_or_not(client: OfficialClient, name: str) -> None:
    created(client, name)
    assert client.tables.tableExists(CATALOG, "s", name) is None
    with pytest.raises(UnityError) as caught:
        client.tables.tableExists(CATALOG, "s", f"{name}x")
    assert caught.value.status == 404


def test_a_table_is_renamed(client: OfficialClient, server: UnityServer, name: str) -> None:
    table, other = created(client, name), f"{name}_b"
    created(client, other)
    rename = lambda new: client.delta("DeltaRenameTableRequest", {"new-name": new})  # noqa: E731
    fails(409, "AlreadyExistsException", lambda: client.tables.renameTable(CATALOG, "s", name, rename(other)))
    assert client.tables.renameTable(CATALOG, "s", name, rename(f"{name}_a")) is None
    assert load(client, f"{name}_a")["metadata"]["table-uuid"] == table.table_id
    fails(404, "NoSuchTableException", lambda: load(client, name))
    fails(404, "NoSuchTableException", lambda: client.tables.renameTable(CATALOG, "s", name, rename("z")))
    assert server.manager().table(f"s.{name}_a").version == 0
    change(client, f"{name}_a", table, add_commit(table.stage(1)))
    created(client, name)  # the old name is free


def test_a_table_is_dropped(client: OfficialClient, server: UnityServer, name: str) -> None:
    table = created(client, name)
    assert client.tables.deleteTable(CATALOG, "s", name) is None
    fails(404, "NoSuchTableException", lambda: load(client, name))
    fails(404, "NoSuchTableException", lambda: client.tables.deleteTable(CATALOG, "s", name))
    with pytest.raises(deltalog.DeltaLogError):
        server.manager().table(f"s.{name}")
    again = created(client, name)
    assert again.table_id != table.table_id
    fails(409, "UpdateRequirementConflictException", lambda: change(client, name, table, add_commit(again.stage(1))))


def test_table_credentials(client: OfficialClient, name: str) -> None:
    created(client, name)
    ask = client.credentials.getTableCredentials
    for operation in ("READ", "READ_WRITE"):
        assert ask(client.operation(operation), CATALOG, "s", name)["storage-credentials"] == []
        wrong = (client.operation(operation), CATALOG, "s", f"{name}x")
        fails(404, "NoSuchTableException", partial(ask, *wrong))


def test_metrics(client: OfficialClient, name: str) -> None:
    table = created(client, name)
    histogram = {"sorted-bin-boundaries": [0, 1024], "file-counts": [1, 2], "total-bytes": [10, 5000]}
    report = {
        "num-files-added": 3,
        "num-bytes-added": 5010,
        "num-files-removed": 0,
        "num-rows-inserted": 7,
        "file-size-histogram": {**histogram, "commit-version": 1},
    }
    send = lambda body: client.tables.reportMetrics(  # noqa: E731
        CATALOG, "s", name, client.delta("DeltaReportMetricsRequest", body)
    )
    assert send({"table-id": table.table_id, "report": {"commit-report": report}}) is None
    assert send({"table-id": table.table_id}) is None
    fails(400, "InvalidParameterValueException", lambda: send({"table-id": str(uuid.uuid4())}))
    uneven = {**histogram, "file-counts": [1]}
    wrong = {"table-id": table.table_id, "report": {"commit-report": {"file-size-histogram": uneven}}}
    fails(400, "InvalidParameterValueException", lambda: send(wrong))


# -------------------------------------------------------------------------------------------------- commits


def test_commits_are_ratified_and_published(client: OfficialClient, server: UnityServer, name: str) -> None:
    table = created(client, name)
    before = load(client, name)
    commits = [table.stage(version) for version in (1, 2, 3)]
    for commit in commits:
        answer = change(client, name, table, add_commit(commit))
        assert answer["latest-table-version"] == commit["version"]
    assert answer == load(client, name)
    assert [each["version"] for each in answer["commits"]] == [3, 2, 1]
    assert answer["commits"] == commits[::-1]
    assert answer["metadata"]["etag"] == before["metadata"]["etag"]
    assert answer["metadata"]["last-commit-version"] == 0
    ours = server.manager().table(f"s.{name}")
    assert ours.version == 3
    for commit in commits[:2]:
        table.publish(commit)
    reported = {"action": "set-latest-backfilled-version", "latest-published-version": 2}
    answer = change(client, name, table, reported)
    assert [each["version"] for each in answer["commits"]] == [3] and answer["latest-table-version"] == 3
    assert change(client, name, table, reported) == answer
    fourth = table.stage(4)
    table.publish(commits[2])
    both = change(client, name, table, add_commit(fourth), {**reported, "latest-published-version": 3})
    assert both["commits"] == [fourth] and both["metadata"]["etag"] == before["metadata"]["etag"]


def test_a_report_of_what_is_not_published(client: OfficialClient, name: str) -> None:
    table = created(client, name)
    commit = table.stage(1)
    change(client, name, table, add_commit(commit))
    reported = {"action": "set-latest-backfilled-version", "latest-published-version": 9}
    fails(400, "InvalidParameterValueException", lambda: change(client, name, table, reported))
    # If a client reports as published a version that is only ratified, the server must not forget the commit.
    with contextlib.suppress(UnityError):
        change(client, name, table, {**reported, "latest-published-version": 1})
    answer = load(client, name)
    published = table.log / f"{1:020}.json"
    assert answer["commits"] == [commit] or published.exists()
    assert answer["latest-table-version"] == 1


def test_a_commit_that_is_sent_again(client: OfficialClient, name: str) -> None:
    table = created(client, name)
    first, other = table.stage(1), table.stage(1)
    change(client, name, table, add_commit(first))
    answer = change(client, name, table, add_commit(first))
    assert answer["latest-table-version"] == 1 and answer["commits"] == [first]
    fails(409, "CommitVersionConflictException", lambda: change(client, name, table, add_commit(other)))
    change(client, name, table, add_commit(table.stage(2)))
    assert change(client, name, table, add_commit(first))["latest-table-version"] == 2
    fails(409, "CommitVersionConflictException", lambda: change(client, name, table, add_commit(other)))
    assert [each["version"] for each in load(client, name)["commits"]] == [2, 1]


def test_metadata_moves_with_its_commit(client: OfficialClient, server: UnityServer, name: str) -> None:
    table = created(client, name)
    before = load(client, name)["metadata"]
    table.properties = {**table.properties, "custom.x": "1"}
    commit = table.stage(1, {"metaData": table.metadata})
    answer = change(client, name, table, add_commit(commit), set_properties(**{"custom.x": "1"}), etag=before["etag"])
    metadata = answer["metadata"]
    assert metadata["properties"]["custom.x"] == "1" and metadata["etag"] != before["etag"]
    assert metadata["last-commit-version"] == 1
    assert metadata["last-commit-timestamp-ms"] == commit["timestamp"]
    assert metadata["properties"]["delta.lastUpdateVersion"] == "1"
    assert server.manager().table(f"s.{name}").snapshot().metadata.configuration["custom.x"] == "1"
    # The old etag is no longer accepted, not even for a commit of rows.
    stale = table.stage(2)
    fails(
        409,
        "UpdateRequirementConflictException",
        lambda: change(client, name, table, add_commit(stale), etag=before["etag"]),
    )
    assert change(client, name, table, add_commit(stale), etag=metadata["etag"])["latest-table-version"] == 2


def test_a_table_is_replaced_by_one_commit(client: OfficialClient, name: str) -> None:
    table = created(
        client,
        name,
        properties={"custom.old": "1"},
        writer=["domainMetadata", "clustering"],
        domains={"delta.clustering": {"clusteringColumns": [["id"]]}},
    )
    etag = load(client, name)["metadata"]["etag"]
    fields = [
        {"name": "n", "type": "string", "nullable": True, "metadata": {}},
        {"name": "p", "type": "string", "nullable": True, "metadata": {}},
    ]
    table.fields, table.partition_columns, table.comment = fields, ["p"], "replaced"
    table.properties = {k: v for k, v in table.properties.items() if k != "custom.old"} | {"custom.new": "2"}
    table.writer = [*table.writer, "appendOnly"]
    removed = {"domainMetadata": {"domain": "delta.clustering", "configuration": "{}", "removed": True}}
    commit = table.stage(1, {"protocol": table.protocol}, {"metaData": table.metadata}, removed)
    protocol = table.request("x")["protocol"]
    answer = change(
        client,
        name,
        table,
        {"action": "set-columns", "columns": {"type": "struct", "fields": fields}},
        {"action": "set-partition-columns", "partition-columns": ["p"]},
        {"action": "set-protocol", "protocol": protocol},
        {"action": "set-table-comment", "comment": "replaced"},
        set_properties(**{"custom.new": "2"}),
        {"action": "remove-properties", "removals": ["custom.old"]},
        {"action": "remove-domain-metadata", "domains": ["delta.clustering"]},
        add_commit(commit),
        etag=etag,
    )
    metadata = answer["metadata"]
    assert metadata["columns"]["fields"] == fields and metadata["partition-columns"] == ["p"]
    properties = metadata["properties"]
    assert properties["custom.new"] == "2" and "custom.old" not in properties
    assert properties["delta.feature.appendOnly"] == "supported" and "delta.clusteringColumns" not in properties
    assert metadata["table-uuid"] == table.table_id and answer["latest-table-version"] == 1


def test_domains_of_clustering_and_row_tracking(client: OfficialClient, name: str) -> None:
    table = created(client, name, writer=["domainMetadata", "clustering", "rowTracking"])
    clustering, tracking = {"clusteringColumns": [["day"]]}, {"rowIdHighWaterMark": 41}
    domain = lambda key, value: {  # noqa: E731
        "domainMetadata": {"domain": key, "configuration": json.dumps(value), "removed": False}
    }
    commit = table.stage(1, domain("delta.clustering", clustering), domain("delta.rowTracking", tracking))
    updates = {"delta.clustering": clustering, "delta.rowTracking": tracking}
    answer = change(client, name, table, add_commit(commit), {"action": "set-domain-metadata", "updates": updates})
    properties = answer["metadata"]["properties"]
    assert json.loads(properties["delta.clusteringColumns"]) == [["day"]]
    assert properties["delta.rowTracking.rowIdHighWaterMark"] == "41"


def test_a_comment_and_properties_of_the_catalog_alone(client: OfficialClient, server: UnityServer, name: str) -> None:
    table = created(client, name)
    before = load(client, name)["metadata"]
    change(client, name, table, {"action": "set-table-comment", "comment": "for the catalog"})
    answer = change(client, name, table, set_properties(owner="a team", other="x"))
    assert answer["latest-table-version"] == 0 and answer["commits"] == []
    assert answer["metadata"]["properties"]["owner"] == "a team"
    assert answer["metadata"]["etag"] != before["etag"]
    answer = change(client, name, table, {"action": "remove-properties", "removals": ["other"]})
    assert "other" not in answer["metadata"]["properties"]
    found = client.older_tables.getTable(f"{CATALOG}.s.{name}", False, False)
    assert found["comment"] == "for the catalog"
    assert "owner" not in server.manager().table(f"s.{name}").snapshot().metadata.configuration


Wrong = Callable[[HandWritten], tuple[dict[str, Any], ...]]
COMMENT = {"action": "set-table-comment", "comment": "a"}
WRONG_UPDATES: dict[str, Wrong] = {
    "version 0": lambda t: (add_commit({**t.stage(1), "version": 0}),),
    "a version below zero": lambda t: (add_commit({**t.stage(1), "version": -1}),),
    "no timestamp": lambda t: (add_commit({**t.stage(1), "timestamp": 0}),),
    "an empty file": lambda t: (add_commit({**t.stage(1), "file-size": 0}),),
    "another size": lambda t: (add_commit({**t.stage(1), "file-size": 1}),),
    "another timestamp": lambda t: (add_commit({**t.stage(1), "timestamp": t.time_ms + 99}),),
    "a timestamp that is not later": lambda t: (add_commit(t.stage(1, time_ms=t.time_ms)),),
    "a file that is not there": lambda t: (add_commit({**t.stage(1), "file-name": f"{1:020}.{uuid.uuid4()}.json"}),),
    "a file of another version": lambda t: (add_commit({**t.stage(2), "version": 1}),),
    "a file elsewhere": lambda t: (add_commit({**t.stage(1), "file-name": f"../{0:020}.json"}),),
    "two actions of one type": lambda t: (COMMENT, COMMENT),
    "one property set and removed": lambda t: (
        set_properties(x="1"),
        {"action": "remove-properties", "removals": ["x"]},
    ),
    "a derived property": lambda t: (set_properties(**{"delta.minReaderVersion": "3"}),),
    "a derived feature": lambda t: (set_properties(**{"delta.feature.appendOnly": "supported"}),),
    "a property of the log without a commit": lambda t: (set_properties(**{"delta.appendOnly": "true"}),),
    "the table's id": lambda t: ({"action": "remove-properties", "removals": ["io.unitycatalog.tableId"]},),
    "columns without a commit": lambda t: (
        {"action": "set-columns", "columns": {"type": "struct", "fields": FIELDS[:1]}},
    ),
    "a protocol without a commit": lambda t: ({"action": "set-protocol", "protocol": t.request("x")["protocol"]},),
    "properties that the commit does not set": lambda t: (add_commit(t.stage(1)), set_properties(**{"delta.x": "1"})),
    "columns that the commit does not set": lambda t: (
        add_commit(t.stage(1)),
        {"action": "set-columns", "columns": {"type": "struct", "fields": FIELDS[:1]}},
    ),
    "an action of external tables": lambda t: (
        {"action": "update-metadata-snapshot-version", "last-commit-version": 1, "last-commit-timestamp-ms": 1},
    ),
    "nothing": lambda t: (),
}


@pytest.mark.parametrize("what", WRONG_UPDATES)
def test_what_cannot_be_changed(client: OfficialClient, name: str, what: str) -> None:
    table = created(client, name)
    before = load(client, name)
    fails(
        400,
        "InvalidParameterValueException",
        lambda: change(client, name, table, *WRONG_UPDATES[what](table)),
    )
    assert load(client, name) == before
    assert change(client, name, table, add_commit(table.stage(1)))["latest-table-version"] == 1


def test_commits_of_versions_ahead(client: OfficialClient, name: str) -> None:
    table = created(client, name)
    with pytest.raises(UnityError) as caught:
        change(client, name, table, add_commit(table.stage(3)))
    assert caught.value.status in (400, 409)
    assert load(client, name)["latest-table-version"] == 0


def test_a_commit_that_takes_the_table_from_the_catalog(client: OfficialClient, name: str) -> None:
    table = created(client, name)
    table.reader = [each for each in table.reader if each != "catalogManaged"]
    table.writer = [each for each in table.writer if each != "catalogManaged"]
    commit = table.stage(1, {"protocol": table.protocol})
    request = {"action": "set-protocol", "protocol": table.request("x")["protocol"]}
    fails(400, "InvalidParameterValueException", lambda: change(client, name, table, add_commit(commit), request))


def test_requirements(client: OfficialClient, name: str) -> None:
    table = created(client, name)
    other = HandWritten(str(uuid.uuid4()), table.location)
    fails(409, "UpdateRequirementConflictException", lambda: change(client, name, other, COMMENT))
    fails(409, "UpdateRequirementConflictException", lambda: change(client, name, table, COMMENT, etag="wrong"))
    without = client.delta("DeltaUpdateTableRequest", {"requirements": [], "updates": [COMMENT]})
    fails(
        400,
        "InvalidParameterValueException",
        lambda: client.tables.updateTable(CATALOG, "s", name, without),
    )
    fails(404, "NoSuchTableException", lambda: change(client, f"{name}x", table, COMMENT))


def test_commits_beyond_the_limit_are_published_by_the_server(client: OfficialClient, name: str) -> None:
    """A client that never publishes does not keep others from committing to the table."""
    table = created(client, name)
    for version in range(1, 131):
        change(client, name, table, add_commit(table.stage(version)))
    answer = load(client, name)
    assert answer["latest-table-version"] == 130 and len(answer["commits"]) <= 110
    assert (table.log / f"{1:020}.json").exists()


# ------------------------------------------------------------------------------------------- external tables


def external(client: OfficialClient, server: UnityServer, name: str) -> tuple[Any, deltalog.DeltaTable]:
    schema = pa.schema([("id", pa.int64())])
    place = server.place / "elsewhere" / name
    table = deltalog.DeltaTable.create(str(place), schema, data=pa.table({"id": [1, 2]}))
    request = {
        "name": name,
        "location": place.as_uri(),
        "table-type": "EXTERNAL",
        "columns": {"type": "struct", "fields": FIELDS[:1]},
        "protocol": {"min-reader-version": 1, "min-writer-version": 7, "writer-features": ["inCommitTimestamp"]},
        "properties": {},
        "last-commit-timestamp-ms": 1,
    }
    made = client.delta("DeltaCreateTableRequest", request)
    return client.tables.createTable(CATALOG, "s", made), table


def test_an_external_table(client: OfficialClient, server: UnityServer, name: str) -> None:
    answer, table = external(client, server, name)
    assert answer["metadata"]["table-type"] == "EXTERNAL" and not answer.get("commits")
    assert local(answer["metadata"]["location"]) == local(load(client, name)["metadata"]["location"])
    assert "delta.feature.catalogManaged" not in answer["metadata"]["properties"]
    assert client.tables.tableExists(CATALOG, "s", name) is None
    fails(409, "AlreadyExistsException", lambda: stage(client, name))
    client.tables.deleteTable(CATALOG, "s", name)
    assert table.snapshot().scan().to_arrow().num_rows == 2  # its files are not the catalog's


def test_a_managed_table_at_a_place_of_ones_own(client: OfficialClient, server: UnityServer, name: str) -> None:
    place = server.place / "elsewhere" / name
    table = HandWritten(str(uuid.uuid4()), place.as_uri())
    table.write_version_0()
    fails(404, "NoSuchTableException", lambda: create(client, table, name))


# ---------------------------------------------------------------------------------------- the general calls


def test_the_metastore(client: OfficialClient) -> None:
    answer = client.metastores.summary()
    assert answer["metastore_id"] and answer == client.metastores.summary()


def test_catalogs(client: OfficialClient) -> None:
    found = client.catalogs.listCatalogs(None, None)
    assert [each["name"] for each in found["catalogs"]] == [CATALOG]
    assert client.catalogs.getCatalog(CATALOG)["name"] == CATALOG
    with pytest.raises(UnityError) as caught:
        client.catalogs.getCatalog("nothing")
    assert caught.value.status == 404


def test_schemas(client: OfficialClient, name: str) -> None:
    made = client.general("CreateSchema", {"name": name, "catalog_name": CATALOG, "comment": "new"})
    answer = client.schemas.createSchema(made)
    assert (answer["full_name"], answer["comment"]) == (f"{CATALOG}.{name}", "new")
    assert client.schemas.getSchema(f"{CATALOG}.{name}")["name"] == name
    with pytest.raises(UnityError) as caught:
        client.schemas.createSchema(made)
    assert caught.value.status == 409
    names = pages(lambda token: client.schemas.listSchemas(CATALOG, 1, token), "schemas")
    assert {name, "s"} <= set(names) and len(names) == len(set(names))
    client.schemas.deleteSchema(f"{CATALOG}.{name}", False)
    with pytest.raises(UnityError) as caught:
        client.schemas.getSchema(f"{CATALOG}.{name}")
    assert caught.value.status == 404


def test_a_schema_with_tables_is_deleted_only_by_force(client: OfficialClient, name: str) -> None:
    client.schemas.createSchema(client.general("CreateSchema", {"name": name, "catalog_name": CATALOG}))
    request = client.delta("DeltaCreateStagingTableRequest", {"name": "t"})
    table = HandWritten.of(client.tables.createStagingTable(CATALOG, name, request))
    table.write_version_0()
    client.tables.createTable(CATALOG, name, client.delta("DeltaCreateTableRequest", table.request("t")))
    with pytest.raises(UnityError) as caught:
        client.schemas.deleteSchema(f"{CATALOG}.{name}", False)
    assert caught.value.status in (400, 409)
    assert client.tables.tableExists(CATALOG, name, "t") is None


def test_tables_by_the_older_calls(client: OfficialClient, server: UnityServer, name: str) -> None:
    table = created(client, name, partition_columns=["day"])
    full = f"{CATALOG}.s.{name}"
    found = client.older_tables.getTable(full, False, False)
    assert (found["table_id"], found["table_type"]) == (table.table_id, "MANAGED")
    assert (found["catalog_name"], found["schema_name"], found["name"]) == (CATALOG, "s", name)
    assert found["data_source_format"] == "DELTA" and local(found["storage_location"]) == local(table.location)
    columns = {each["name"]: each for each in found["columns"]}
    assert columns["id"]["type_name"] == "LONG" and columns["id"]["position"] == 0
    assert columns["day"]["partition_index"] == 0 and columns["day"]["comment"] == "a weekday"
    assert json.loads(columns["id"]["type_json"]) == FIELDS[0]
    assert found["properties"]["delta.feature.catalogManaged"] == "supported"
    external(client, server, f"{name}_e")
    names = pages(lambda token: client.older_tables.listTables(CATALOG, "s", 2, token), "tables")
    assert {name, f"{name}_e"} <= set(names) and len(names) == len(set(names))
    with pytest.raises(UnityError) as caught:
        client.older_tables.getTable(f"{CATALOG}.s.{name}x", False, False)
    assert caught.value.status == 404
    client.older_tables.deleteTable(full)
    fails(404, "NoSuchTableException", lambda: load(client, name))


def test_an_external_table_by_the_older_calls(client: OfficialClient, server: UnityServer, name: str) -> None:
    place = server.place / "elsewhere" / name
    deltalog.DeltaTable.create(str(place), pa.schema([("id", pa.int64())]))
    column = {"name": "id", "type_text": "bigint", "type_name": "LONG", "position": 0, "nullable": True}
    column["type_json"] = json.dumps(FIELDS[0])
    request = {
        "name": name,
        "catalog_name": CATALOG,
        "schema_name": "s",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "columns": [column],
        "storage_location": place.as_uri(),
        "comment": "elsewhere",
    }
    answer = client.older_tables.createTable(client.general("CreateTable", request))
    assert answer["table_type"] == "EXTERNAL" and answer["comment"] == "elsewhere"
    assert load(client, name)["metadata"]["table-type"] == "EXTERNAL"


def test_older_credentials(client: OfficialClient, name: str) -> None:
    table, staged = created(client, name), stage(client, f"{name}_b")
    for table_id in (table.table_id, staged["table-id"]):
        request = client.general("GenerateTemporaryTableCredential", {"table_id": table_id, "operation": "READ"})
        answer = client.older_credentials.generateTemporaryTableCredentials(request)
        assert answer.get("aws_temp_credentials") is None
    unknown = {"table_id": str(uuid.uuid4()), "operation": "READ"}
    request = client.general("GenerateTemporaryTableCredential", unknown)
    with pytest.raises(UnityError) as caught:
        client.older_credentials.generateTemporaryTableCredentials(request)
    assert caught.value.status == 404


def test_path_credentials(client: OfficialClient, server: UnityServer, name: str) -> None:
    place, managed = (server.place / "elsewhere" / name).as_uri(), created(client, name).location
    read_write = client.operation("READ_WRITE")
    assert client.credentials.getTemporaryPathCredentials(place, read_write)["storage-credentials"] == []
    call = client.credentials.getTemporaryPathCredentials
    fails(400, "InvalidParameterValueException", lambda: call(managed, read_write))
    request = {"url": place, "operation": "PATH_READ"}
    answer = client.older_credentials.generateTemporaryPathCredentials(
        client.general("GenerateTemporaryPathCredential", request)
    )
    assert answer.get("aws_temp_credentials") is None
    within = client.general("GenerateTemporaryPathCredential", {**request, "url": managed})
    with pytest.raises(UnityError) as caught:
        client.older_credentials.generateTemporaryPathCredentials(within)
    assert caught.value.status == 400


def test_a_schema_is_changed(client: OfficialClient, name: str) -> None:
    client.schemas.createSchema(client.general("CreateSchema", {"name": name, "catalog_name": CATALOG}))
    changed = client.general("UpdateSchema", {"comment": "other", "properties": {"owner": "me"}})
    answer = client.schemas.updateSchema(f"{CATALOG}.{name}", changed)
    assert (answer["comment"], answer["properties"]) == ("other", {"owner": "me"})
    assert client.schemas.getSchema(f"{CATALOG}.{name}")["comment"] == "other"
    with pytest.raises(UnityError) as caught:
        client.schemas.updateSchema(f"{CATALOG}.{name}x", changed)
    assert caught.value.status == 404


def test_catalogs_are_not_changed(client: OfficialClient) -> None:
    with pytest.raises(UnityError) as caught:
        client.catalogs.updateCatalog(CATALOG, client.general("UpdateCatalog", {"comment": "other"}))
    assert caught.value.status in (400, 404, 501) and caught.value.message


def test_a_table_is_staged_by_the_older_call(client: OfficialClient, name: str) -> None:
    request = {"catalog_name": CATALOG, "schema_name": "s", "name": name}
    staged = client.older_tables.createStagingTable(client.general("CreateStagingTable", request))
    assert staged["name"] == name and staged["id"] in staged["staging_location"]
    assert client.credentials.getStagingTableCredentials(client.uuid(staged["id"]))["storage-credentials"] == []


def test_older_commits(client: OfficialClient, name: str) -> None:
    table = created(client, name)
    first, second = table.stage(1), table.stage(2)
    by = {"table_id": table.table_id, "table_uri": table.location}

    def snake(commit: dict[str, Any]) -> dict[str, Any]:
        return {key.replace("-", "_"): value for key, value in commit.items()}

    def commit(**body: Any) -> Any:
        return client.older_commits.commit(client.general("DeltaCommit", {**by, **body}))

    def ask(**body: Any) -> Any:
        return client.older_commits.getCommits(client.general("DeltaGetCommits", {**by, "start_version": 0, **body}))

    assert (ask().get("commits") or []) == [] and ask()["latest_table_version"] == 0
    commit(commit_info=snake(first))
    commit(commit_info=snake(first))  # sent again
    commit(commit_info=snake(second))
    answer = ask()
    assert sorted(answer["commits"], key=lambda each: each["version"]) == [snake(first), snake(second)]
    assert answer["latest_table_version"] == 2
    assert [each["version"] for each in ask(start_version=2)["commits"]] == [2]
    assert [each["version"] for each in ask(end_version=1)["commits"]] == [1]
    with pytest.raises(UnityError) as caught:
        commit(commit_info=snake(table.stage(2)))
    assert caught.value.status == 409
    table.publish(first)
    commit(latest_backfilled_version=1)
    assert [each["version"] for each in ask()["commits"]] == [2]
    assert load(client, name)["latest-table-version"] == 2  # one state
    unknown = client.general("DeltaGetCommits", {**by, "table_id": str(uuid.uuid4()), "start_version": 0})
    with pytest.raises(UnityError) as caught:
        client.older_commits.getCommits(unknown)
    assert caught.value.status == 404


NOT_SERVED: dict[str, Callable[[OfficialClient], Any]] = {
    "functions": lambda client: client.functions.listFunctions(CATALOG, "s", None, None),
    "volumes": lambda client: client.volumes.listVolumes(CATALOG, "s", None, None),
    "models": lambda client: client.models.listRegisteredModels(CATALOG, "s", None, None),
    "credentials": lambda client: client.storage_credentials.listCredentials(None, None, None),
    "external-locations": lambda client: client.external_locations.listExternalLocations(None, None),
}


@pytest.mark.parametrize("what", NOT_SERVED)
def test_what_is_not_served_says_so(client: OfficialClient, what: str) -> None:
    with pytest.raises(UnityError) as caught:
        NOT_SERVED[what](client)
    assert caught.value.status in (404, 501) and caught.value.message and what in caught.value.message


def pages(ask: Callable[[str | None], Any], members: str) -> list[str]:
    """The names in all pages of a list."""
    names: list[str] = []
    token = None
    for _ in range(1000):
        answer = ask(token)
        names.extend(each["name"] for each in answer.get(members) or [])
        token = answer.get("next_page_token")
        if token is None:
            return names
    raise AssertionError("the pages do not end")
