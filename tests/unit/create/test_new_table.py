from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, SchemaMismatchError
from tests.support.core import ICT, SCHEMA, action, environment, info, lines, memory, objects, rows, tree


@pytest.fixture
def store() -> Any:
    return memory()


@pytest.fixture
def table(store: Any) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))


def test_the_first_commit(store: Any) -> None:
    DeltaTable.create(
        store, SCHEMA, partition_by=["NAME"], properties={"owner": "me", **ICT}, name="t", description="d",
        environment=environment(),
    )  # fmt: skip
    assert [next(iter(line)) for line in lines(store, 0)] == ["commitInfo", "protocol", "metaData"]
    meta = action(store, 0, "metaData")
    assert meta is not None
    assert (meta["name"], meta["description"], meta["partitionColumns"]) == ("t", "d", ["name"])
    assert meta["configuration"] == {"owner": "me", **ICT} and meta["format"]["provider"] == "parquet"
    assert [f["name"] for f in json.loads(meta["schemaString"])["fields"]] == ["id", "name"]
    assert info(store, 0)["operation"] == "CREATE TABLE"


def test_a_plain_table_needs_nothing_special(store: Any) -> None:
    DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1, 2))
    assert action(store, 0, "protocol") == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert info(store, 0)["operation"] == "CREATE TABLE AS SELECT"
    assert info(store, 0)["operationMetrics"]["numOutputRows"] == "2"
    assert "readVersion" not in info(store, 0)


@pytest.mark.parametrize(
    ("schema", "partition_by"),
    [
        (pa.schema([("a b", pa.int64())]), []),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), []),
        (pa.schema([("a", pa.uint64())]), []),
        (SCHEMA, ["nope"]),
        (SCHEMA, ["id", "name"]),
        (pa.schema([("a", pa.decimal128(5, -2))]), []),
    ],
)
def test_schemas_that_cannot_be(schema: pa.Schema, partition_by: list[str], store: Any) -> None:
    with pytest.raises(SchemaMismatchError):
        DeltaTable.create(store, schema, partition_by=partition_by, environment=environment())
    assert objects(store) == {}


def test_rows_that_do_not_fit_create_nothing(tmp_path: Any) -> None:
    root = tmp_path / "t"
    with pytest.raises(SchemaMismatchError):
        DeltaTable.create(root, SCHEMA, environment=environment(), data=pa.table({"id": ["x"]}))
    assert tree(tmp_path) == []
