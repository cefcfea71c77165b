"""DeltaTable with addresses in a Unity Catalog: open, read, every kind of commit, create."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from tests.support.unity.http import UnityServer

ADDRESS = "uc://main.s.events"
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist())


@pytest.fixture
def table(server: UnityServer, options: dict[str, Any]) -> DeltaTable:
    return DeltaTable.create(ADDRESS, ROWS, **options)


def test_create_writes_version_0_and_registers_it(server: UnityServer, table: DeltaTable) -> None:
    made = server.model.tables["main", "s", "events"]
    assert table.version == 0
    assert table.url == made.location.removeprefix("file://")
    assert made.properties["io.unitycatalog.tableId"] == made.uuid
    assert [field["name"] for field in made.columns["fields"]] == ["id", "name"]
    assert made.last_timestamp == table.snapshot().in_commit_timestamp_ms
    assert set(made.protocol.writer_features or ()) >= {"catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"}
    assert not server.model.staged
    assert server.model.violations == []


def test_open_reads_what_the_server_has(server: UnityServer, table: DeltaTable, options: dict[str, Any]) -> None:
    opened = DeltaTable.open(ADDRESS, **options)
    assert ids(opened) == [1, 2, 3]
    assert server.authorizations == {"Bearer dapi-secret"}


def test_every_kind_of_commit(server: UnityServer, table: DeltaTable, options: dict[str, Any]) -> None:
    table.append(pa.table({"id": [4], "name": ["d"]}))
    table.delete("id = 2")
    table.update({"name": "'z'"}, where="id = 1")
    (
        table.merge(pa.table({"id": [1, 9], "name": ["y", "n"]}), "target.id = source.id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    table.set_properties({"delta.appendOnly": "false", "owner": "me"})
    table.add_columns(pa.schema([("extra", pa.int64())]))
    made = server.model.tables["main", "s", "events"]
    assert made.properties["owner"] == "me"
    assert [field["name"] for field in made.columns["fields"]] == ["id", "name", "extra"]
    assert made.latest == table.version == 6
    assert made.commits == []
    table.unset_properties(["owner"])
    assert "owner" not in made.properties
    table.overwrite(pa.table({"id": [7], "name": ["x"], "extra": [1]}))
    assert server.model.violations == []
    again = DeltaTable.open(ADDRESS, **options)
    assert again.version == made.latest == 8
    assert ids(again) == [7]
    assert ids_at(again, 4) == [1, 3, 4, 9]


def ids_at(table: DeltaTable, version: int) -> list[int]:
    return sorted(table.snapshot(version=version).scan().to_arrow()["id"].to_pylist())
