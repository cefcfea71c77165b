from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaLogError, DeltaTable
from deltalog.protocol.paths import commit_path
from tests.support.core import SCHEMA, environment, ids, info, memory, objects, rows


@pytest.fixture
def store() -> Any:
    return memory()


@pytest.fixture
def table(store: Any) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))


def test_setting_and_unsetting(store: Any, table: DeltaTable) -> None:
    table.set_properties({"a": "b", "c": "d"}, user_metadata="why")
    table.unset_properties(["a"])
    assert info(store, 1)["operation"] == "SET TBLPROPERTIES" and info(store, 1)["userMetadata"] == "why"
    assert json.loads(info(store, 1)["operationParameters"]["properties"]) == {"a": "b", "c": "d"}
    assert info(store, 2)["operation"] == "UNSET TBLPROPERTIES"
    assert table.snapshot().metadata.configuration == {"c": "d"}
    assert ids(table) == [1] and store.head(commit_path(2)) is not None


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()], ids=str)
def test_partition_values_beyond_the_calendar(kind: pa.DataType, store: Any) -> None:
    """Delta has the years 1 to 9999."""
    schema = pa.schema([("p", kind), ("v", pa.int64())])
    table = DeltaTable.create(store, schema, partition_by=["p"], environment=environment())
    before = objects(store)
    with pytest.raises(DeltaLogError, match="p"):
        table.append(pa.table({"p": pa.array([2**30 if pa.types.is_date(kind) else 2**62], kind), "v": [1]}))
    assert objects(store) == before
