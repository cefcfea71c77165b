"""Python programs of third parties use the server: Unity Catalog's SDK, polars and deltalake. Paths of managed tables
are refused by engines that do not ask the catalog."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import deltalog
from tests.support.spark import DeltaSpark
from tests.support.unity_clients import CATALOG, Jvm, OfficialClient, UnityError, UnityServer, unity_server
from tests.support.unity_clients.hand_written import FIELDS, HandWritten, local
from tests.support.unity_clients.sdk import Sdk

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnityServer]:
    with unity_server(tmp_path_factory.mktemp("unity")) as made:
        yield made


@pytest.fixture(scope="module")
def sdk(server: UnityServer) -> Sdk:
    made = Sdk(server.url)
    schema = made.client.models.CreateSchema(name="s", catalog_name=CATALOG)
    made.call("SchemasApi", lambda api: api.create_schema(schema))
    return made


@pytest.fixture
def name() -> str:
    return f"p{next(_NUMBERS)}"


def managed(server: UnityServer, name: str) -> HandWritten:
    """A managed table with version 0, created without a client."""
    status, staged, _ = server.ask("POST", f"/delta/v1/catalogs/{CATALOG}/schemas/s/staging-tables", {"name": name})
    assert status == 200
    table = HandWritten.of(staged)
    table.write_version_0()
    status, answer, _ = server.ask("POST", f"/delta/v1/catalogs/{CATALOG}/schemas/s/tables", table.request(name))
    assert status == 200, answer
    return table


def external(sdk: Sdk, server: UnityServer, name: str) -> deltalog.DeltaTable:
    place = server.place / "elsewhere" / name
    table = deltalog.DeltaTable.create(
        str(place), SCHEMA, data=pa.table({"id": [1, 2], "day": ["mon", "tue"]}, schema=SCHEMA)
    )
    models = sdk.client.models
    columns = [
        models.ColumnInfo(
            name=field["name"],
            type_text={"long": "bigint"}.get(field["type"], field["type"]),
            type_name=field["type"].upper(),
            type_json=json.dumps(field),
            position=position,
            nullable=True,
        )
        for position, field in enumerate(FIELDS)
    ]
    request = models.CreateTable(
        name=name,
        catalog_name=CATALOG,
        schema_name="s",
        table_type="EXTERNAL",
        data_source_format="DELTA",
        columns=columns,
        storage_location=place.as_uri(),
    )
    made = sdk.call("TablesApi", lambda api: api.create_table(request))
    assert made.table_type == "EXTERNAL" and made.storage_location == place.as_uri()
    return table


# --------------------------------------------------------------------------------------- Unity Catalog's SDK


def test_the_sdk_lists_catalogs_and_schemas(sdk: Sdk, name: str) -> None:
    models = sdk.client.models
    catalogs = sdk.call("CatalogsApi", lambda api: api.list_catalogs())
    assert [each.name for each in catalogs.catalogs] == [CATALOG]
    assert sdk.call("CatalogsApi", lambda api: api.get_catalog(CATALOG)).name == CATALOG
    made = models.CreateSchema(name=name, catalog_name=CATALOG, comment="new", properties={"a": "1"})
    answer = sdk.call("SchemasApi", lambda api: api.create_schema(made))
    assert (answer.full_name, answer.comment, answer.properties) == (f"{CATALOG}.{name}", "new", {"a": "1"})
    names: list[str] = []
    token = None
    while True:
        page = sdk.call("SchemasApi", methodcaller("list_schemas", CATALOG, 1, token))
        names.extend(each.name for each in page.schemas)
        token = page.next_page_token
        if not token:
            break
    assert {name, "s"} <= set(names) and len(names) == len(set(names))
    sdk.call("SchemasApi", lambda api: api.delete_schema(f"{CATALOG}.{name}"))
    with pytest.raises(sdk.client.exceptions.NotFoundException):
        sdk.call("SchemasApi", lambda api: api.get_schema(f"{CATALOG}.{name}"))
    with pytest.raises(sdk.client.exceptions.NotFoundException):
        sdk.call("CatalogsApi", lambda api: api.get_catalog("nothing"))


def test_the_sdk_shows_and_changes_grants(sdk: Sdk) -> None:
    models = sdk.client.models
    kind, words = models.SecurableType.SCHEMA, [models.Privilege.USE_SCHEMA, models.Privilege.SELECT]
    given = models.PermissionsChange(principal="alice@example.com", add=words, remove=[])
    request = models.UpdatePermissions(changes=[given])
    answer = sdk.call("GrantsApi", lambda api: api.update(kind, f"{CATALOG}.s", request))
    assert [(each.principal, each.privileges) for each in answer.privilege_assignments] == [
        ("alice@example.com", [models.Privilege.SELECT, models.Privilege.USE_SCHEMA])
    ]
    shown = sdk.call("GrantsApi", lambda api: api.get(kind, f"{CATALOG}.s", principal="alice@example.com"))
    assert shown == answer
    taken = models.PermissionsChange(principal="alice@example.com", add=[], remove=words)
    request = models.UpdatePermissions(changes=[taken])
    assert sdk.call("GrantsApi", lambda api: api.update(kind, f"{CATALOG}.s", request)).privilege_assignments == []
    with pytest.raises(sdk.client.exceptions.NotFoundException):
        sdk.call("GrantsApi", lambda api: api.get(models.SecurableType.TABLE, f"{CATALOG}.s.none"))


def test_the_sdk_finds_and_deletes_tables(sdk: Sdk, server: UnityServer, name: str) -> None:
    table = managed(server, name)
    found = sdk.call("TablesApi", lambda api: api.get_table(f"{CATALOG}.s.{name}"))
    assert (found.table_id, found.table_type, found.data_source_format) == (table.table_id, "MANAGED", "DELTA")
    assert [(each.name, each.type_name) for each in found.columns] == [("id", "LONG"), ("day", "STRING")]
    assert local(found.storage_location) == local(table.location)
    external(sdk, server, f"{name}_e")
    listed = sdk.call("TablesApi", lambda api: api.list_tables(CATALOG, "s", 50))
    assert {name, f"{name}_e"} <= {each.name for each in listed.tables}
    credential = sdk.client.models.GenerateTemporaryTableCredential(table_id=table.table_id, operation="READ")
    answer = sdk.call("TemporaryCredentialsApi", lambda api: api.generate_temporary_table_credentials(credential))
    assert answer.aws_temp_credentials is None
    for each in (name, f"{name}_e"):
        sdk.call("TablesApi", methodcaller("delete_table", f"{CATALOG}.s.{each}"))
        with pytest.raises(sdk.client.exceptions.NotFoundException):
            sdk.call("TablesApi", methodcaller("get_table", f"{CATALOG}.s.{each}"))


def test_the_sdk_commits_by_the_older_calls(sdk: Sdk, server: UnityServer, name: str) -> None:
    table = managed(server, name)
    models = sdk.client.models
    first, second = table.stage(1), table.stage(2)

    def commit(staged: dict[str, Any] | None = None, **more: Any) -> Any:
        info = None
        if staged is not None:
            info = models.DeltaCommitInfo(**{key.replace("-", "_"): value for key, value in staged.items()})
        body = models.DeltaCommit(table_id=table.table_id, table_uri=table.location, commit_info=info, **more)
        return sdk.call("DeltaCommitsApi", lambda api: api.commit(body))

    def latest() -> list[int]:
        path = f"/delta/v1/catalogs/{CATALOG}/schemas/s/tables/{name}"
        answer = server.ask("GET", path)[1]
        return [answer["latest-table-version"], *(each["version"] for each in answer["commits"])]

    commit(first)
    commit(second)
    commit(second)  # sent again
    assert latest() == [2, 2, 1]
    with pytest.raises(sdk.client.exceptions.ApiException) as caught:
        commit(table.stage(2))
    assert caught.value.status == 409
    with pytest.raises(sdk.client.exceptions.BadRequestException):
        commit({**table.stage(3), "file-size": 1})
    table.publish(first)
    commit(latest_backfilled_version=1)
    assert latest() == [2, 2] and server.manager().table(f"s.{name}").version == 2
    # The SDK leaves out the bodies of GET requests, so no server can answer this call.
    body = models.DeltaGetCommits(table_id=table.table_id, table_uri=table.location, start_version=0)
    with pytest.raises(sdk.client.exceptions.BadRequestException):
        sdk.call("DeltaCommitsApi", lambda api: api.get_commits(body))


def test_a_token_is_demanded(unity_jvm: Jvm, tmp_path: Path) -> None:
    token = "a-token-of-32-characters-or-more"
    with unity_server(tmp_path, env={"DELTALOG_SERVER_TOKEN": token}) as server:
        for wrong in ("wrong", None):
            other = Sdk(server.url, wrong)
            with pytest.raises(other.client.exceptions.UnauthorizedException):
                other.call("CatalogsApi", lambda api: api.list_catalogs())
        good = Sdk(server.url, token)
        assert good.call("CatalogsApi", lambda api: api.list_catalogs()).catalogs
        with pytest.raises(UnityError) as caught:
            OfficialClient(unity_jvm, server.url, "wrong").configuration.getConfig(CATALOG, "1.0")
        assert (caught.value.status, caught.value.type) == (401, "NotAuthorizedException")
        assert token not in caught.value.body
        official = OfficialClient(unity_jvm, server.url, token)
        assert official.configuration.getConfig(CATALOG, "1.0")["protocol-version"] == "1.0"
        catalog = pl.Catalog(server.url, bearer_token=token, require_https=False)
        assert [each.name for each in catalog.list_catalogs()] == [CATALOG]
    assert token not in server.log.read_text()


# ------------------------------------------------------------------------------------------- polars, deltalake


@pytest.fixture
def catalog(server: UnityServer) -> pl.Catalog:
    return pl.Catalog(server.url, require_https=False)


def test_polars_finds_tables(sdk: Sdk, server: UnityServer, catalog: pl.Catalog, name: str) -> None:
    table = managed(server, name)
    external(sdk, server, f"{name}_e")
    assert [each.name for each in catalog.list_catalogs()] == [CATALOG]
    assert "s" in [each.name for each in catalog.list_namespaces(CATALOG)]
    tables = {each.name: each for each in catalog.list_tables(CATALOG, "s")}
    assert tables[name].table_id == table.table_id and tables[name].table_type == "MANAGED"
    info = catalog.get_table_info(CATALOG, "s", name)
    assert info.get_polars_schema() == {"id": pl.Int64, "day": pl.String}
    assert local(str(info.storage_location)) == local(table.location)


def test_polars_scans_a_table_by_its_name(sdk: Sdk, server: UnityServer, catalog: pl.Catalog, name: str) -> None:
    table = external(sdk, server, name)
    table.append(pa.table({"id": [3], "day": ["wed"]}, schema=SCHEMA))
    assert sorted(catalog.scan_table(CATALOG, "s", name).collect()["id"]) == [1, 2, 3]
    assert sorted(catalog.scan_table(CATALOG, "s", name, delta_table_version=0).collect()["id"]) == [1, 2]


def test_polars_asks_for_credentials_in_the_query(server: UnityServer, sdk: Sdk, name: str) -> None:
    """The request that polars sends, whose parameters are in the query; polars itself does not show whether it
    succeeds."""
    table = managed(server, name)
    path = f"/temporary-table-credentials?table_id={table.table_id}&operation=READ"
    status, answer, _ = server.ask("POST", path)
    assert status == 200 and answer["expiration_time"] > 0 and not answer.get("aws_temp_credentials")


def test_polars_refuses_a_managed_table(server: UnityServer, sdk: Sdk, catalog: pl.Catalog, name: str) -> None:
    """Its reader, deltalake, opens the path, which the feature catalogManaged forbids."""
    managed(server, name)
    with pytest.raises(Exception, match=r"(?i)catalog.?managed"):
        catalog.scan_table(CATALOG, "s", name).collect()


def test_deltalake_refuses_the_path(server: UnityServer, sdk: Sdk, name: str) -> None:
    path = str(local(managed(server, name).location))
    with pytest.raises(Exception, match="catalog-managed table"):
        deltalake.DeltaTable(path)
    with pytest.raises(Exception, match="catalog-managed table"):
        deltalake.write_deltalake(path, pa.table({"id": [9], "day": ["x"]}), mode="append")
    assert server.manager().table(f"s.{name}").version == 0


def test_delta_spark_refuses_the_path(delta: DeltaSpark, server: UnityServer, sdk: Sdk, name: str) -> None:
    path = local(managed(server, name).location)
    before = sorted(path.rglob("*"))
    for access in (
        lambda: delta.spark.read.format("delta").load(str(path)).count(),
        lambda: delta.spark.range(3).write.format("delta").mode("append").save(str(path)),
    ):
        with pytest.raises(Exception, match="catalogManagedTablePathBasedAccessNotAllowed"):
            access()
    assert sorted(path.rglob("*")) == before
