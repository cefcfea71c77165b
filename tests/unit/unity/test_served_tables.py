"""DeltaTable and UnityCatalog as clients of ``deltalog serve``, a process that works on the same catalog."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import (
    CallError,
    DeltaTable,
    Environment,
    TableExistsError,
    TableNotFoundError,
    TransactionManager,
    UnityCatalog,
    deltalake,
)
from deltalog.catalog.store import ManagedStore
from deltalog.deltalake import writer
from deltalog.errors import CatalogRequestError, DeltaLogError, EntityNotFoundError
from deltalog.storage.s3.connections import Answer, Connections
from deltalog.unity import messages, opening
from deltalog.unity.calls import DeltaCalls
from deltalog.unity.names import parse_name
from deltalog.unity.preview import PreviewCalls
from deltalog.unity_catalog import catalogs
from tests.support.cli import run
from tests.support.server import Served, served

SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def running(place: Path) -> Iterator[Served]:
    TransactionManager(str(place / "catalog.db")).create_table("s.first", str(place / "first"), SCHEMA)
    with served(place / "catalog.db", "--warehouse", str(place / "lake"), "--catalog-name", "main") as server:
        yield server


@pytest.fixture
def options(running: Served) -> dict[str, Any]:
    return {"unity_catalog_url": running.url}


@pytest.fixture
def catalog(options: dict[str, Any]) -> UnityCatalog:
    return UnityCatalog("main", **options)


def test_a_table_through_every_kind_of_commit(place: Path, options: dict[str, Any]) -> None:
    address = "uc://main.s.events"
    table = DeltaTable.create(address, pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), **options)
    table.append(pa.table({"id": [4], "name": ["d"]}))
    table.delete("id = 2")
    table.set_properties({"owner": "me"})
    table.add_columns(pa.schema([("extra", pa.int64())]))
    table.overwrite(pa.table({"id": [7], "name": ["x"], "extra": [1]}))
    again = DeltaTable.open(address, **options)
    assert again.version == 5
    assert ids(again) == [7]
    of_catalog = TransactionManager(str(place / "catalog.db")).table("s.events")
    assert of_catalog.version == 5
    of_catalog.append(pa.table({"id": [8], "name": ["y"], "extra": [2]}))
    table.append(pa.table({"id": [9], "name": ["z"], "extra": [3]}))
    assert ids(again) == [7, 8, 9]
    assert sorted(again.snapshot(version=2).scan().to_arrow()["id"].to_pylist()) == [1, 3, 4]


def test_schemas_and_tables_by_name(catalog: UnityCatalog, options: dict[str, Any], place: Path) -> None:
    assert catalogs(**options) == ["main"]
    catalog.create_schema("lists", comment="for a test")
    assert "lists" in catalog.schemas()
    table = catalog.create_table("lists.a", rows(1, 2), properties={"owner": "me"})
    assert ids(catalog.table("lists.a")) == [1, 2]
    assert catalog.exists("lists.a") and not catalog.exists("lists.b")
    described = catalog.describe("lists.a")
    assert described.table_type == "MANAGED"
    assert described.properties["owner"] == "me"
    with pytest.raises(TableExistsError):
        catalog.create_table("main.lists.a", rows(3))
    catalog.rename_table("lists.a", "b")
    assert [found.name for found in catalog.tables("lists")] == ["b"]
    assert ids(catalog.table("lists.b")) == [1, 2]
    with pytest.raises(TableNotFoundError):
        table.append(rows(3))
    catalog.drop_table("lists.b")
    assert not catalog.exists("lists.b")
    with pytest.raises(TableNotFoundError):
        catalog.table("lists.b")
    catalog.drop_schema("lists")
    assert "lists" not in catalog.schemas()
    with pytest.raises(EntityNotFoundError):
        catalog.create_table("lists.a", rows(1))
    with pytest.raises(CallError, match="not in the catalog main"):
        catalog.table("other.s.t")


def test_an_external_table_is_registered_and_written_by_its_log(
    catalog: UnityCatalog, options: dict[str, Any], place: Path
) -> None:
    outside = DeltaTable.create(place / "outside", rows(1))
    table = catalog.register_table("s.outside", str(place / "outside"))
    assert table.snapshot().reader.authority.is_log
    table.append(rows(2))
    outside.append(rows(3))
    assert ids(DeltaTable.open("uc://main.s.outside", **options)) == [1, 2, 3]
    by_its_name = deltalake.DeltaTable("uc://main.s.outside", storage_options=options)
    assert by_its_name.table_uri == f"file://{outside.url}/"
    assert by_its_name.to_pyarrow_dataset().count_rows() == 3
    catalog.drop_table("s.outside")
    assert ids(outside) == [1, 2, 3]


def test_the_catalog_is_told_of_the_metadata_of_an_external_table(
    catalog: UnityCatalog, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"first": "1", "gone": "1", "delta.enableInCommitTimestamps": "true"}
    DeltaTable.create(place / "told", rows(1), properties=properties)
    table = catalog.register_table("s.told", str(place / "told"))
    before = catalog.describe("s.told").etag
    table.append(rows(2))
    assert catalog.describe("s.told").etag == before
    with monkeypatch.context() as patched:
        patched.setattr(DeltaCalls, "update", _refused)
        assert table.set_properties({"owner": "me"}).version == 2
    assert "owner" not in catalog.describe("s.told").properties
    pickle.loads(pickle.dumps(table)).unset_properties(["gone"])
    table.add_columns(pa.schema([("extra", pa.int64())]))
    table.set_table(description="hello")
    table.set_domain_metadata("my.domain", '{"a": 1}')
    found = catalog.describe("s.told")
    assert [field["name"] for field in found.columns["fields"]] == ["id", "extra"]
    assert (found.properties["owner"], found.properties["first"]) == ("me", "1")
    assert "gone" not in found.properties
    assert found.last_commit_version == table.version == 6
    assert found.last_commit_timestamp_ms == table.snapshot().timestamp_ms
    assert found.properties["delta.feature.domainMetadata"] == "supported"
    assert table.snapshot().reader.authority.is_log


def _refused(*_: object, **__: object) -> None:
    raise CatalogRequestError("not now", path="here")


def test_a_later_change_of_an_external_table_may_be_told_first(catalog: UnityCatalog, place: Path) -> None:
    table = DeltaTable.create(place / "late", rows(1))
    catalog.register_table("s.late", str(place / "late"))
    ahead = messages.UpdateTable(
        requirements=(messages.AssertTableUuid(uuid=catalog.describe("s.late").table_uuid),),
        updates=(
            messages.SetProperties(updates={"owner": "later"}),
            messages.UpdateSnapshotVersion(last_commit_version=9, last_commit_timestamp_ms=1),
        ),
    )
    catalog._client.update_table(parse_name("main.s.late", ""), ahead)
    catalog.table("s.late").set_properties({"owner": "earlier"})
    assert catalog.describe("s.late").properties["owner"] == "later"
    assert table.snapshot().metadata.configuration["owner"] == "earlier"


def test_writers_at_once(options: dict[str, Any]) -> None:
    address, failed = "uc://main.s.busy", list[BaseException]()
    DeltaTable.create(address, SCHEMA, **options)

    def write(start: int) -> None:
        try:
            table = DeltaTable.open(address, **options)
            for number in range(5):
                table.append(rows(start + number))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    table = DeltaTable.open(address, **options)
    assert table.version == 20
    assert ids(table) == sorted(100 * writer + number for writer in range(4) for number in range(5))
    times = [entry.in_commit_timestamp_ms or 0 for entry in table.history()]
    assert times == sorted(times, reverse=True) and len(set(times)) == len(times)
    assert table.check().findings == ()


def test_the_older_calls(options: dict[str, Any], running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without the UC Delta API: the same table is used through the older calls."""
    address = "uc://main.s.older"
    newer = DeltaTable.create(address, rows(1), **options)
    monkeypatch.setitem(opening._older_until_ms, (f"{running.url}/api/2.1/unity-catalog", "main"), 1 << 60)
    table = DeltaTable.open(address, **options)
    store = table.snapshot().reader.store
    assert isinstance(store, ManagedStore) and isinstance(store.coordinator.calls, PreviewCalls)
    table.append(rows(2))
    newer.append(rows(3))
    table.append(rows(4))
    table.set_properties({"owner": "me"})
    assert ids(newer) == ids(table) == [1, 2, 3, 4]
    assert newer.snapshot().metadata.configuration["owner"] == "me"
    with pytest.raises(DeltaLogError):
        table.overwrite(rows(9), expected_version=1)


def answering_older(monkeypatch: pytest.MonkeyPatch, *parts: str) -> list[str]:
    """Requests to paths with one of these parts are answered as by a server, or a proxy, that does not know them. The
    list gets the path of each request."""
    exchange, asked = Connections.exchange, list[str]()

    def answered(self: Connections, method: str, target: str, *arguments: Any, **named: Any) -> Answer:
        asked.append(target)
        if any(part in target for part in parts):
            return Answer(404, {"content-type": "text/plain", "content-length": "18"}, b"404 page not found")
        return exchange(self, method, target, *arguments, **named)

    monkeypatch.setattr(Connections, "exchange", answered)
    return asked


def calls_of(table: DeltaTable) -> type[object]:
    store = table.snapshot().reader.store
    assert isinstance(store, ManagedStore)
    return type(store.coordinator.calls)


def test_a_proxy_without_its_server_does_not_change_the_calls(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "uc://main.s.behind"
    DeltaTable.create(address, rows(1), **options)
    for known in (False, True):
        with monkeypatch.context() as patched:
            answering_older(patched, "/")
            with pytest.raises(DeltaLogError):
                DeltaTable.open(address, **options)
        assert calls_of(DeltaTable.open(address, **options)) is DeltaCalls, known
    with monkeypatch.context() as patched:
        answering_older(patched, "/delta/v1/")  # the configuration is known, so this is no older server
        with pytest.raises(CatalogRequestError, match="404"):
            DeltaTable.open(address, **options)


def test_that_a_server_is_older_is_remembered_for_a_while(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, now_ms = "uc://main.s.while", [1_000_000]
    environment = Environment(clock_ms=lambda: now_ms[0])
    DeltaTable.create(address, rows(1), **options)
    with monkeypatch.context() as patched:
        asked = answering_older(patched, "/delta/v1/")
        for _ in range(2):
            before = len([path for path in asked if "/delta/v1/" in path])
            assert calls_of(DeltaTable.open(address, environment=environment, **options)) is PreviewCalls
        assert before == len([path for path in asked if "/delta/v1/" in path]) > 0
    assert calls_of(DeltaTable.open(address, environment=environment, **options)) is PreviewCalls
    now_ms[0] += 3_600_000
    assert calls_of(DeltaTable.open(address, environment=environment, **options)) is DeltaCalls


def test_a_failure_of_the_older_calls_asks_for_the_newer_ones(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, running: Served
) -> None:
    address = "uc://main.s.upgraded"
    DeltaTable.create(address, rows(1), **options)
    monkeypatch.setitem(opening._older_until_ms, (f"{running.url}/api/2.1/unity-catalog", "main"), 1 << 60)
    answering_older(monkeypatch, "/delta/preview/")
    assert calls_of(DeltaTable.open(address, **options)) is DeltaCalls


def test_maintenance_is_left_to_the_catalog(options: dict[str, Any]) -> None:
    address = "uc://main.s.kept"
    table = DeltaTable.create(address, rows(1), **options)
    table.append(rows(2))
    for act in (table.vacuum, table.cleanup_log, table.optimize.compact):
        with pytest.raises(CallError, match="unless it permits"):
            act()
    table.checkpoint()
    permitted = DeltaTable.open(address, **options, unity_catalog_permits_maintenance=True)
    assert len(permitted.optimize.compact().commits) == 1
    permitted.vacuum(dry_run=True)
    assert ids(table) == [1, 2]


def test_transactions_over_several_tables_are_refused_by_name() -> None:
    for url in ("uc://main", "http://127.0.0.1:8080"):
        with pytest.raises(CallError, match="no transactions over several tables"):
            TransactionManager(url)


def test_the_command_line(options: dict[str, Any], running: Served) -> None:
    DeltaTable.create("uc://main.s.lines", rows(1), **options).append(rows(2))
    for given, env in (
        ([f"--option=unity_catalog_url={running.url}"], {}),
        ([], {"UNITY_CATALOG_URL": running.url}),
    ):
        ran = run("history", "uc://main.s.lines", "--json", *given, env=env)
        assert ran.status == 0, ran.err
        assert [json.loads(line)["version"] for line in ran.out.splitlines()] == [1, 0]
    assert run("check", "uc://main.s.lines", *given, env=env).status == 0
    refused = run("vacuum", "uc://main.s.lines", env=env)
    assert refused.status != 0
    assert "unless it permits" in refused.err


def test_deltalakes_api(options: dict[str, Any]) -> None:
    DeltaTable.create("uc://main.s.lake", rows(1), **options)
    writer.write_deltalake("uc://main.s.lake", rows(2), mode="append", storage_options=options)
    found = deltalake.DeltaTable("uc://main.s.lake", storage_options=options)
    assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert found.version() == 1


def test_what_changes_in_the_log_changes_in_the_catalog(catalog: UnityCatalog) -> None:
    data = pa.table({"id": [1, 2], "p": ["a", "b"]})
    table = catalog.create_table("s.changes", data, partition_by=["p"], description="hello")
    table.append(pa.table({"id": [3], "p": ["a"]}))
    table.restore(version=0)
    table.set_table(description="other")
    table.set_domain_metadata("my.domain", '{"a": 1}')
    table.remove_domain_metadata("my.domain")
    table.set_properties({"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"})
    table.rename_column("id", "ident")
    table.update({"ident": "ident + 10"}, where="ident = 1")
    described = catalog.describe("s.changes")
    assert [field["name"] for field in described.columns["fields"]] == ["ident", "p"]
    assert described.partition_columns == ("p",)
    assert described.properties["delta.columnMapping.mode"] == "name"
    assert described.properties["delta.feature.columnMapping"] == "supported"
    assert described.last_commit_version == table.version - 1  # the update changed rows only
    assert sorted(table.to_pyarrow_table()["ident"].to_pylist()) == [2, 11]
    assert {"delta.lastUpdateVersion", "delta.feature.columnMapping"}.isdisjoint(
        table.snapshot().metadata.configuration
    )


@pytest.mark.parametrize(
    "configuration",
    [
        "plain text",
        '{"b":10000000000000000000000000}',
        '{"b":1e400}',
        '{"b":NaN}',
        '{"b":"\\ud800"}',
        '{"b":[-Infinity]}',
    ],
    ids=["text", "integer", "exponent", "nan", "surrogate", "infinity"],
)
def test_domains_that_json_does_not_carry(catalog: UnityCatalog, configuration: str) -> None:
    name = f"s.domain_{len(configuration)}"
    table = catalog.create_table(name, SCHEMA)
    table.set_domain_metadata("my.domain", configuration)
    table.set_domain_metadata("my.other", '{"a": [1.5, -9223372036854775808]}')
    assert configuration in [each.configuration for each in table.snapshot().domain_metadata]
    table.remove_domain_metadata("my.domain")
    assert catalog.describe(name).last_commit_version == 3


def test_clustering_and_row_tracking(catalog: UnityCatalog) -> None:
    properties = {"delta.enableRowTracking": "true"}
    table = catalog.create_table("s.clustered", SCHEMA, cluster_by=["id"], properties=properties)
    for number in range(11):
        table.append(rows(number))
    described = catalog.describe("s.clustered")
    assert described.properties["delta.clusteringColumns"] == '[["id"]]'
    assert described.properties["delta.rowTracking.rowIdHighWaterMark"] == "10"
    assert described.last_commit_version == 0
    assert (Path(table.url) / "_delta_log" / "00000000000000000010.checkpoint.parquet").exists()
    assert table.check().findings == ()
    assert pickle.loads(pickle.dumps(table)).to_pyarrow_table().num_rows == 11


def test_what_the_catalog_requires_stays(catalog: UnityCatalog) -> None:
    table = catalog.create_table("s.required", SCHEMA)
    refused: list[Callable[[], object]] = [
        lambda: table.set_properties({"io.unitycatalog.tableId": "x"}),
        lambda: table.unset_properties(["io.unitycatalog.tableId"]),
        table.disable_in_commit_timestamps,
        lambda: table.drop_feature("catalogManaged"),
        lambda: catalog.create_table("s.other", SCHEMA, properties={"io.unitycatalog.tableId": "x"}),
        lambda: catalog.create_table("s.other", SCHEMA, properties={"delta.enableInCommitTimestamps": "false"}),
        lambda: DeltaTable.open(table.url),
    ]
    for call in refused:
        with pytest.raises(DeltaLogError):
            call()
    assert table.version == 0
    assert not catalog.exists("s.other")
