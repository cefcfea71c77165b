"""DeltaTable by the addresses of a catalog that ``deltalog serve`` serves: another process, one state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, TransactionManager
from tests.support.server import Served, served

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
ADDRESS = "uc://main.s.events"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    place = tmp_path_factory.mktemp("served")
    manager = TransactionManager(str(place / "catalog.db"))
    manager.create_table("s.first", str(place / "first"), pa.schema([("id", pa.int64())]))
    with served(place / "catalog.db", "--warehouse", str(place / "lake"), "--catalog-name", "main") as running:
        yield running, place


def test_a_table_through_every_kind_of_commit(server: tuple[Served, Path]) -> None:
    running, place = server
    options: dict[str, Any] = {"unity_catalog_url": running.url}
    table = DeltaTable.create(ADDRESS, ROWS, **options)
    table.append(pa.table({"id": [4], "name": ["d"]}))
    table.delete("id = 2")
    table.set_properties({"owner": "me"})
    table.add_columns(pa.schema([("extra", pa.int64())]))
    table.overwrite(pa.table({"id": [7], "name": ["x"], "extra": [1]}))
    again = DeltaTable.open(ADDRESS, **options)
    assert again.version == 5
    assert again.to_pyarrow_table()["id"].to_pylist() == [7]
    of_catalog = TransactionManager(str(place / "catalog.db")).table("s.events")
    assert of_catalog.version == 5
    assert of_catalog.to_pyarrow_table()["id"].to_pylist() == [7]
    of_catalog.append(pa.table({"id": [8], "name": ["y"], "extra": [2]}))
    table.append(pa.table({"id": [9], "name": ["z"], "extra": [3]}))
    assert sorted(again.to_pyarrow_table()["id"].to_pylist()) == [7, 8, 9]
