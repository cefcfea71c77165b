"""Tables that another engine has clustered: writes work as usual and keep the clustering columns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from deltalog import DeltaTable, SchemaMismatchError
from deltalog.protocol.actions import DomainMetadata
from deltalog.schema import StructType
from tests.support.core import environment, memory

COLUMNS = {f"c{number}": pa.array([number]) for number in range(40)}
DOMAIN = "delta.clustering"


def rows(**more: pa.Array) -> pa.Table:
    return pa.table({**COLUMNS, "s": pa.array([{"x": 7, "y": 8}]), **more})


def clustered(*columns: list[str], mapped: bool = False) -> DeltaTable:
    properties = {"delta.feature.clustering": "supported"}
    if mapped:
        properties["delta.columnMapping.mode"] = "name"
    table = DeltaTable.create(memory(), rows().schema, properties=properties, environment=environment())
    with table.transaction() as transaction:
        schema = transaction.schema
        stored = [
            [_stored(schema, path) for path in [column[: depth + 1] for depth in range(len(column))]]
            for column in columns
        ]
        text = json.dumps({"clusteringColumns": stored, "domainName": DOMAIN})
        transaction.metadata_changes.stage_domain(DomainMetadata(domain=DOMAIN, configuration=text, removed=False))
        transaction.commit("CLUSTER BY")
    return table


def _stored(schema: StructType, path: list[str]) -> str:
    field = schema.field(path[0])
    for name in path[1:]:
        field = field.data_type.field(name)  # type: ignore[union-attr]
    return str(field.metadata.get("delta.columnMapping.physicalName", path[-1]))


@pytest.mark.parametrize("mapped", [False, True])
def test_clustering_columns_always_have_statistics(mapped: bool) -> None:
    table = clustered(["s", "x"], ["c2"], mapped=mapped)
    assert table.snapshot().clustering_columns == (("s", "x"), ("c2",))
    table.append(rows())
    statistics = table.snapshot().statistics(["s", "c0"])
    assert statistics["min_values"].to_pylist() == [{"s": {"x": 7, "y": None}, "c0": 0}]
    table.append(rows())
    table.delete("c0 = 0")
    assert table.snapshot().clustering_columns == (("s", "x"), ("c2",))
    table.set_properties({"delta.dataSkippingNumIndexedCols": "-1"})
    table.append(rows())
    assert table.snapshot().statistics(["s"])["min_values"].to_pylist() == [{"s": {"x": 7, "y": 8}}]


@pytest.mark.parametrize("mapped", [False, True])
def test_a_schema_without_the_clustering_columns_is_refused(mapped: bool) -> None:
    table = clustered(["c2"], mapped=mapped)
    with pytest.raises(SchemaMismatchError, match=r"clustered by c2, and the new schema lacks one of these"):
        table.overwrite(rows().drop_columns(["c2"]), overwrite_schema=True)
    with pytest.raises(SchemaMismatchError, match=r"clustered by c2, and a clustered table cannot have partition"):
        table.transaction().set_schema(table.snapshot().schema, ["c1"])
    table.overwrite(rows().drop_columns(["c1"]), overwrite_schema=True)
    assert table.snapshot().clustering_columns == (("c2",),)
