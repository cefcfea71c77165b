from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, SchemaMismatchError
from deltalog.errors import InvalidActionError
from tests.support.core import ICT, SCHEMA, environment, ids, info, lines, memory, objects, rows


@pytest.fixture
def store() -> Any:
    return memory()


@pytest.fixture
def table(store: Any) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))


def test_overwriting(store: Any, table: DeltaTable) -> None:
    table.append(rows(2))
    table.overwrite(rows(3))
    assert ids(table) == [3] and ids(table, version=1) == [1, 2]
    body = info(store, 2)
    assert body["operationParameters"]["mode"] == "Overwrite" and body["isBlindAppend"] is False
    assert body["operationMetrics"]["numRemovedFiles"] == "2"
    assert len([line for line in lines(store, 2) if "remove" in line]) == 2


def test_overwriting_the_schema_keeps_properties_and_timestamps(store: Any) -> None:
    table = DeltaTable.create(store, SCHEMA, properties={**ICT, "owner": "me"}, environment=environment(), data=rows(1))
    with pytest.raises(SchemaMismatchError, match="overwrite_schema=True"):
        table.overwrite(pa.table({"id": ["text"]}))
    result = table.overwrite(pa.table({"id": ["text"], "new": [1]}), overwrite_schema=True)
    assert result.in_commit_timestamp_ms is not None
    snapshot = table.snapshot()
    assert snapshot.metadata.configuration == {**ICT, "owner": "me"} and snapshot.schema.names == ["id", "new"]
    assert snapshot.scan().to_arrow().to_pylist() == [{"id": "text", "new": 1}]
    assert table.snapshot(0).scan().to_arrow().to_pylist() == rows(1).to_pylist()


def test_overwriting_the_schema_needs_the_partition_columns() -> None:
    table = DeltaTable.create(memory(), SCHEMA, partition_by=["name"], environment=environment())
    with pytest.raises(SchemaMismatchError):
        table.overwrite(pa.table({"id": [1]}), overwrite_schema=True)


def test_overwriting_with_nothing(table: DeltaTable) -> None:
    table.overwrite(rows())
    assert ids(table) == []


def test_overwriting_once_by_application(table: DeltaTable) -> None:
    table.overwrite(rows(5), txn=("app", 1))
    assert table.overwrite(rows(6), txn=("app", 1)).skipped
    assert ids(table) == [5]


def test_an_append_only_table_is_not_overwritten(store: Any, table: DeltaTable) -> None:
    table.set_properties({"delta.appendOnly": "true"})
    before = objects(store)
    with pytest.raises(InvalidActionError, match="append-only"):
        table.overwrite(rows(2))
    assert objects(store) == before
    table.append(rows(2))
    assert ids(table) == [1, 2]
