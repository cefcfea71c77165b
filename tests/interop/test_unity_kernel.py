"""The Delta kernel, by its own Unity Catalog module, and deltalog write and read the same tables of the server."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from tests.support.unity_clients import (
    CATALOG,
    JavaError,
    Jvm,
    Kernel,
    KernelTable,
    OfficialClient,
    UnityServer,
    unity_server,
)
from tests.support.unity_clients.hand_written import HandWritten, add_commit, local, update

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
# Properties that Unity Catalog's own server requires too; the server of deltalog only suggests them.
VECTORS = {"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": "v2"}
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnityServer]:
    with unity_server(tmp_path_factory.mktemp("unity")) as made:
        yield made


@pytest.fixture(scope="module")
def official(unity_jvm: Jvm, server: UnityServer) -> OfficialClient:
    made = OfficialClient(unity_jvm, server.url)
    made.schemas.createSchema(made.general("CreateSchema", {"name": "s", "catalog_name": CATALOG}))
    return made


@pytest.fixture(scope="module")
def kernel(unity_jvm: Jvm, server: UnityServer, official: OfficialClient) -> Iterator[Kernel]:
    made = Kernel(unity_jvm, server.url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def manager(server: UnityServer) -> deltalog.TransactionManager:
    return server.manager()


@pytest.fixture
def name() -> str:
    return f"{CATALOG}.s.k{next(_NUMBERS)}"


def ours(manager: deltalog.TransactionManager, name: str) -> deltalog.DeltaTable:
    return manager.table(name.removeprefix(f"{CATALOG}."))


def rows(*ids: int, day: str = "mon") -> list[dict[str, Any]]:
    return [{"id": each, "day": day} for each in ids]


def arrow(*ids: int, day: str = "mon") -> pa.Table:
    return pa.table({"id": list(ids), "day": [day] * len(ids)}, schema=SCHEMA)


def ids(found: Any) -> list[int]:
    if isinstance(found, deltalog.DeltaTable):
        found = found.snapshot().scan().to_arrow().to_pylist()
    return sorted(row["id"] for row in found)


def agree(kernel: Kernel, table: KernelTable, manager: deltalog.TransactionManager, version: int | None = None) -> Any:
    """The rows of a version, after a check that both engines read the same ones."""
    mine = ours(manager, f"{CATALOG}.{table.schema}.{table.name}").snapshot(version)
    theirs = kernel.load(table, version=version)
    assert theirs.version == mine.version and theirs.timestamp_ms == mine.timestamp_ms
    read = sorted(theirs.rows(), key=str)
    assert read == sorted(mine.scan().to_arrow().to_pylist(), key=str)
    return read


# ------------------------------------------------------------------------------------------------ creation


@pytest.mark.parametrize("follows", [True, False], ids=["as required", "by its defaults"])
def test_a_table_is_created(kernel: Kernel, manager: deltalog.TransactionManager, name: str, follows: bool) -> None:
    table = kernel.create(name, SCHEMA, follows=follows, properties={"custom.owner": "a team"})
    snapshot = kernel.load(table, version=0)
    assert snapshot.version == 0 and snapshot.column_names == ["id", "day"] and snapshot.rows() == []
    assert {"catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"} <= snapshot.features
    assert snapshot.properties["io.unitycatalog.tableId"] == table.table_id
    assert kernel.find(name) == table
    mine = ours(manager, name)
    assert mine.version == 0 and mine.snapshot().metadata.configuration["custom.owner"] == "a team"
    assert mine.snapshot().timestamp_ms == snapshot.timestamp_ms
    assert mine.append(arrow(1)).version == 1 and ids(kernel.load(table).rows()) == [1]


def test_partitioned_and_clustered_tables_are_created(
    kernel: Kernel, manager: deltalog.TransactionManager, official: OfficialClient, name: str
) -> None:
    """The kernel's createTable does not tell the server about partition columns."""
    table = kernel.create(name, SCHEMA, partition_by=["day"])
    answer = official.tables.loadTable(CATALOG, "s", table.name)
    assert answer["metadata"]["partition-columns"] == ["day"]
    assert kernel.load(table).append([{"id": 1}], partition={"day": "tue"}) == 1
    ours(manager, name).append(arrow(2))
    assert agree(kernel, table, manager) == [{"id": 1, "day": "tue"}, {"id": 2, "day": "mon"}]

    clustered = kernel.create(f"{name}_c", SCHEMA, cluster_by=["id"])
    properties = official.tables.loadTable(CATALOG, "s", clustered.name)["metadata"]["properties"]
    assert properties["delta.clusteringColumns"] == '[["id"]]'
    assert properties["delta.feature.clustering"] == "supported"
    kernel.load(clustered).cluster_by(["day"])
    properties = official.tables.loadTable(CATALOG, "s", clustered.name)["metadata"]["properties"]
    assert properties["delta.clusteringColumns"] == '[["day"]]'


def test_a_name_that_is_taken(kernel: Kernel, name: str) -> None:
    staged = kernel.stage(*name.split("."))
    first = kernel.create(name, SCHEMA)
    with pytest.raises(JavaError) as caught:
        kernel.create(name, SCHEMA, staged=staged)
    assert "AlreadyExistsException" in str(caught.value)
    assert kernel.find(name) == first
    with pytest.raises(JavaError) as caught:
        kernel.stage(*name.split("."))
    assert "AlreadyExistsException" in str(caught.value)


def test_tables_that_are_not_there(kernel: Kernel, name: str) -> None:
    with pytest.raises(JavaError) as caught:
        kernel.find(name)
    assert caught.value.type == "NoSuchTableException"
    table = kernel.create(name, SCHEMA)
    other = KernelTable(table.catalog, table.schema, table.name, "0" * 8 + table.table_id[8:], table.location)
    with pytest.raises(JavaError) as caught:
        kernel.load(other)
    assert "InvalidTargetTableException" in caught.value.types


def test_the_metastore(kernel: Kernel) -> None:
    assert kernel.metastore() == kernel.metastore() != ""


# ------------------------------------------------------------------------------------------- writes and reads


def test_rows_and_properties_are_committed_and_published(
    kernel: Kernel, manager: deltalog.TransactionManager, official: OfficialClient, name: str
) -> None:
    table = kernel.create(name, SCHEMA)
    assert kernel.append(table, rows(1, 2)) == 1
    assert kernel.load(table).set_properties({"custom.x": "1"}) == 2
    assert kernel.append(table, [{"id": 3, "day": None}]) == 3
    snapshot = kernel.load(table)
    assert snapshot.version == 3 and snapshot.properties["custom.x"] == "1" and ids(snapshot.rows()) == [1, 2, 3]
    log = local(table.location) / "_delta_log"
    answer = official.tables.loadTable(CATALOG, "s", table.name)
    assert answer["latest-table-version"] == 3
    assert answer["metadata"]["last-commit-version"] == 2  # the last one that changed metadata
    mine = ours(manager, name)
    assert mine.version == 3 and ids(mine) == [1, 2, 3]
    assert mine.snapshot().metadata.configuration["custom.x"] == "1"
    assert snapshot.publish().version == 3
    assert all((log / f"{version:020}.json").exists() for version in range(4))
    # With its next commit the kernel reports what is published.
    assert kernel.append(table, rows(4)) == 4
    commits = official.tables.loadTable(CATALOG, "s", table.name)["commits"]
    assert [each["version"] for each in commits] in ([4], [])
    agree(kernel, table, manager)


def test_versions_and_times(kernel: Kernel, manager: deltalog.TransactionManager, name: str) -> None:
    table = kernel.create(name, SCHEMA)
    mine = ours(manager, name)
    for version in range(1, 7):
        if version % 2:
            assert kernel.append(table, rows(version)) == version
        else:
            assert mine.append(arrow(version)).version == version
        if version == 3:
            kernel.load(table).publish()
    times = [mine.snapshot(version).timestamp_ms for version in range(7)]
    assert times == sorted(set(times))
    for version, at in enumerate(times):
        assert ids(agree(kernel, table, manager, version)) == list(range(1, version + 1))
        found = kernel.load(table, timestamp_ms=at)
        assert found.version == version == mine.version_at(at_ms(at)).version
        assert ids(found.rows()) == list(range(1, version + 1))
        if version:
            assert (
                kernel.load(table, timestamp_ms=at - 1).version == version - 1 == mine.version_at(at_ms(at - 1)).version
            )
    with pytest.raises(JavaError):
        kernel.load(table, timestamp_ms=times[-1] + 1)
    with pytest.raises(JavaError) as caught:
        kernel.load(table, version=7)
    assert caught.value.type == "IllegalArgumentException"


def test_the_kernel_reads_what_deltalog_changed(
    kernel: Kernel, manager: deltalog.TransactionManager, name: str
) -> None:
    """Rows that deltalog wrote, with deletion vectors, in a table that the kernel created."""
    table = kernel.create(name, SCHEMA, properties=VECTORS)
    mine = ours(manager, name)
    kernel.append(table, rows(*range(10)))
    mine.append(arrow(*range(10, 20), day="tue"))
    mine.delete("id % 5 = 0")
    assert mine.snapshot().files()["deletion_vector"].null_count < 2
    assert ids(agree(kernel, table, manager)) == [each for each in range(20) if each % 5]
    mine.update({"day": "'wed'"}, "id = 7")
    assert {"id": 7, "day": "wed"} in agree(kernel, table, manager)
    source = arrow(7, 100, day="thu")
    mine.merge(
        source, "t.id = s.id", target_alias="t", source_alias="s"
    ).when_matched_delete().when_not_matched_insert_all().execute()
    found = agree(kernel, table, manager)
    assert {"id": 100, "day": "thu"} in found and 7 not in ids(found)
    before = mine.version
    assert kernel.append(table, rows(200)) == before + 1
    mine.optimize.compact()
    assert 200 in ids(agree(kernel, table, manager))
    assert mine.check().ok


def test_a_checkpoint_of_deltalog_is_read(kernel: Kernel, manager: deltalog.TransactionManager, name: str) -> None:
    table = kernel.create(name, SCHEMA, properties=VECTORS)
    mine = ours(manager, name)
    for each in range(12):
        mine.append(arrow(each)) if each % 2 else kernel.append(table, rows(each))
    mine.delete("id = 3")
    manager.publish(name.removeprefix(f"{CATALOG}."))
    mine.checkpoint()
    kernel.append(table, rows(50))
    assert ids(agree(kernel, table, manager)) == [0, 1, 2, *range(4, 12), 50]


def test_columns_are_added_by_both(kernel: Kernel, manager: deltalog.TransactionManager, name: str) -> None:
    """The kernel changes the schema of tables with column mapping, but it does not write rows into them."""
    table = kernel.create(name, SCHEMA, properties={"delta.columnMapping.mode": "name"})
    mine = ours(manager, name)
    mine.append(arrow(1))
    assert kernel.load(table).add_column("by_kernel") == 2
    mine.add_columns(pa.schema([("by_deltalog", pa.int64())]))
    mine.append(pa.table({"id": [2], "day": ["tue"], "by_kernel": [20], "by_deltalog": [21]}))
    assert kernel.load(table).column_names == ["id", "day", "by_kernel", "by_deltalog"]
    assert {"id": 2, "day": "tue", "by_kernel": 20, "by_deltalog": 21} in agree(kernel, table, manager)
    mine.rename_column("by_kernel", "renamed")
    assert {"id": 1, "day": "mon", "renamed": None, "by_deltalog": None} in agree(kernel, table, manager)


def test_row_tracking(
    kernel: Kernel, manager: deltalog.TransactionManager, official: OfficialClient, name: str
) -> None:
    """Each append of the kernel moves the high-water mark of row tracking, and its request says so."""
    table = kernel.create(name, SCHEMA, properties={"delta.enableRowTracking": "true"})
    etag = official.tables.loadTable(CATALOG, "s", table.name)["metadata"]["etag"]
    mine = ours(manager, name)
    kernel.append(table, rows(1, 2))
    mine.append(arrow(3))
    kernel.append(table, rows(4))
    metadata = official.tables.loadTable(CATALOG, "s", table.name)["metadata"]
    assert metadata["properties"]["delta.rowTracking.rowIdHighWaterMark"] == "3" and metadata["etag"] == etag
    assert sorted(mine.snapshot().files()["base_row_id"].to_pylist()) == [0, 2, 3]
    agree(kernel, table, manager)


def test_a_table_of_deltalog_is_read_and_written_by_the_kernel(
    kernel: Kernel, manager: deltalog.TransactionManager, server: UnityServer, name: str
) -> None:
    """A table that deltalog created in its catalog, without the server."""
    short = name.removeprefix(f"{CATALOG}.")
    place = str(server.place / "by_deltalog" / short)
    mine = manager.create_table(short, place, SCHEMA, data=arrow(1, 2), properties=VECTORS)
    table = kernel.find(name)
    mine.delete("id = 1")
    assert agree(kernel, table, manager) == [{"id": 2, "day": "mon"}]
    assert kernel.append(table, rows(3)) == 2
    assert kernel.load(table).publish().version == 2
    assert ids(mine) == [2, 3] and mine.check().ok


def test_a_place_with_a_blank_is_read(
    kernel: Kernel, manager: deltalog.TransactionManager, server: UnityServer, name: str
) -> None:
    """The kernel reads there. It cannot write there, because it names its data files by absolute paths that it encodes
    twice."""
    short = name.removeprefix(f"{CATALOG}.")
    manager.create_table(short, str(server.place / "by deltalog é" / short), SCHEMA, data=arrow(1, 2))
    assert ids(agree(kernel, kernel.find(name), manager)) == [1, 2]


# ------------------------------------------------------------------------------------------------- conflicts


def test_a_stale_snapshot_of_the_kernel_is_rebased(
    kernel: Kernel, manager: deltalog.TransactionManager, name: str
) -> None:
    table = kernel.create(name, SCHEMA)
    stale = kernel.load(table)
    ours(manager, name).append(arrow(1))
    ours(manager, name).append(arrow(2))
    assert stale.append(rows(3)) == 3
    assert ids(agree(kernel, table, manager)) == [1, 2, 3]


def test_a_winner_that_is_not_published(
    kernel: Kernel, official: OfficialClient, manager: deltalog.TransactionManager, name: str
) -> None:
    """The kernel cannot see the commit that won over its own until that is published: it says so, and commits after it
    has loaded the table again."""
    table = kernel.create(name, SCHEMA)
    stale = kernel.load(table)
    winner = HandWritten(table.table_id, table.location, time_ms=stale.timestamp_ms).stage(1)
    request = official.delta("DeltaUpdateTableRequest", update(table.table_id, add_commit(winner)))
    official.tables.updateTable(CATALOG, "s", table.name, request)
    published = local(table.location) / "_delta_log" / f"{1:020}.json"
    if published.exists():  # by the server
        assert stale.append(rows(1)) == 2
    else:
        with pytest.raises(JavaError) as caught:
            stale.append(rows(1))
        assert caught.value.type == "ConcurrentWriteException"
        assert kernel.load(table).publish().version == 1
        assert stale.append(rows(1)) == 2
    assert ids(agree(kernel, table, manager)) == [1]


def test_metadata_that_changed_meanwhile(kernel: Kernel, manager: deltalog.TransactionManager, name: str) -> None:
    table = kernel.create(name, SCHEMA)
    stale, mine = kernel.load(table), ours(manager, name)
    mine.set_properties({"custom.x": "1"})
    with pytest.raises(JavaError) as caught:
        stale.append(rows(1))
    assert caught.value.type == "MetadataChangedException"
    with mine.transaction() as transaction:
        assert kernel.load(table).set_properties({"custom.x": "2"}) == 2
        transaction.set_properties({"custom.y": "1"})
        with pytest.raises(deltalog.DeltaLogError):
            transaction.commit()
    assert mine.snapshot().metadata.configuration["custom.x"] == "2"
    assert agree(kernel, table, manager) == []


def test_a_transaction_over_two_tables_and_a_commit_of_the_kernel(
    kernel: Kernel, manager: deltalog.TransactionManager, name: str
) -> None:
    """They conflict as two of deltalog's own writers do; if the commit of the transaction fails, neither table has any
    part of it."""
    tables = [kernel.create(f"{name}_{which}", SCHEMA) for which in "ab"]
    short = [f"s.{table.name}" for table in tables]
    for table in tables:
        kernel.append(table, rows(1))
    with manager.transaction() as transaction:
        transaction.table(short[0]).append(arrow(2))
        transaction.table(short[1]).append(arrow(2))
        assert kernel.append(tables[0], rows(3)) == 2  # an append does not conflict with an append
        transaction.commit()
    assert [ids(agree(kernel, table, manager)) for table in tables] == [[1, 2, 3], [1, 2]]
    with manager.transaction() as transaction:
        transaction.table(short[0]).append(arrow(4))
        transaction.table(short[1]).append(arrow(4))
        kernel.load(tables[1]).set_properties({"delta.appendOnly": "true"})
        with pytest.raises(deltalog.DeltaLogError):
            transaction.commit()
    assert [ids(agree(kernel, table, manager)) for table in tables] == [[1, 2, 3], [1, 2]]


def test_a_transaction_of_an_application_is_committed_once(
    kernel: Kernel, manager: deltalog.TransactionManager, name: str
) -> None:
    table = kernel.create(name, SCHEMA)
    stale = kernel.load(table)
    assert kernel.load(table).append(rows(1), application=("a stream", 7)) == 1
    kernel.load(table).publish()
    with pytest.raises(JavaError) as caught:
        stale.append(rows(1), application=("a stream", 7))
    assert caught.value.type == "ConcurrentTransactionException"
    assert ids(agree(kernel, table, manager)) == [1]
    assert ours(manager, name).snapshot().transaction_version("a stream") == 7


def test_a_table_that_was_replaced_under_the_kernel(
    kernel: Kernel, manager: deltalog.TransactionManager, official: OfficialClient, name: str
) -> None:
    table = kernel.create(name, SCHEMA)
    stale = kernel.load(table)
    official.tables.deleteTable(CATALOG, "s", table.name)
    again = kernel.create(name, SCHEMA)
    with pytest.raises(JavaError):
        stale.append(rows(1), max_retries=0)
    assert kernel.load(again).rows() == [] and ours(manager, name).version == 0


def at_ms(value: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(value / 1000, datetime.timezone.utc)
