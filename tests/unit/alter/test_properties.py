from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaLogError, DeltaTable
from deltalog.log.file_statistics import leaves_of
from deltalog.protocol.column_mapping import mode_of
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
    """Delta supports the years 1 to 9999."""
    schema = pa.schema([("p", kind), ("v", pa.int64())])
    table = DeltaTable.create(store, schema, partition_by=["p"], environment=environment())
    before = objects(store)
    with pytest.raises(DeltaLogError, match="p"):
        table.append(pa.table({"p": pa.array([2**30 if pa.types.is_date(kind) else 2**62], kind), "v": [1]}))
    assert objects(store) == before


# ------------------------------------------------------------------------------ the columns that have statistics

NAMED = "delta.dataSkippingStatsColumns"
PERSON = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.int64()),
        ("who", pa.struct([("Name", pa.string()), ("age", pa.int64())])),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)
PEOPLE = pa.table(
    {"id": [1, 2], "p": [0, 0], "who": [{"Name": "Ann", "age": 3}, {"Name": "Bob", "age": 4}], "raw": [b"", b""],
     "tags": [[], []]},
    schema=PERSON,
)  # fmt: skip


def with_bounds(table: DeltaTable) -> set[str]:
    """The columns with min/max statistics in the newest file; nested fields have dotted names."""
    snapshot = table.snapshot()
    bounds = json.loads(snapshot.files()["stats"].to_pylist()[-1]).get("minValues", {})
    names = {
        leaf.physical: ".".join(leaf.path)
        for leaf in leaves_of(snapshot.schema, mode_of(snapshot.metadata.configuration))
    }
    return {names[path] for path in _paths(bounds)}


def _paths(bounds: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in bounds.items():
        yield from ((name, *below) for below in _paths(value)) if isinstance(value, dict) else [(name,)]


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
@pytest.mark.parametrize(
    ("named", "expected"),
    [("id", {"id"}), ("who", {"who.Name", "who.age"}), ("ID, `WHO`.name", {"id", "who.Name"}), ("", set())],
)
def test_new_files_have_statistics_of_the_named_columns(
    store: Any, mapping: str, named: str, expected: set[str]
) -> None:
    properties = {NAMED: named, "delta.dataSkippingNumIndexedCols": "1", "delta.columnMapping.mode": mapping}
    table = DeltaTable.create(store, PERSON, partition_by=["p"], properties=properties)
    table.append(PEOPLE)
    (row,) = table.snapshot().files().to_pylist()
    assert json.loads(row["stats"])["numRecords"] == 2
    assert with_bounds(table) == expected
    assert not table.snapshot().scan(where="id > 2").files().num_rows or "id" not in expected


def test_updates_and_overwrites_obey_it_too(store: Any) -> None:
    table = DeltaTable.create(store, PERSON, properties={NAMED: "who.age"}, data=PEOPLE)
    table.update({"id": "id + 1"})
    assert with_bounds(table) == {"who.age"}
    table.set_properties({NAMED: "id"})
    table.overwrite(PEOPLE)
    assert with_bounds(table) == {"id"}
    table.unset_properties([NAMED])
    table.overwrite(PEOPLE)
    assert with_bounds(table) == {"id", "p", "who.Name", "who.age"}


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("nothing", "no column"),
        ("who.height", "height"),
        ("p", "partitions the table"),
        ("raw", "of type binary"),
        ("tags", "of type array"),
        ("id, ID", "id is named twice"),
        ("who, who.age", "who.age is named twice"),
        ("`id", "not a list of columns"),
    ],
)
def test_columns_that_cannot_have_statistics(store: Any, named: str, why: str) -> None:
    with pytest.raises(DeltaLogError, match=why) as failure:
        DeltaTable.create(store, PERSON, partition_by=["p"], properties={NAMED: named})
    assert failure.value.code == "INVALID_PROPERTY" and NAMED in str(failure.value)
    table = DeltaTable.create(store, PERSON, partition_by=["p"])
    with pytest.raises(DeltaLogError, match=why):
        table.set_properties({NAMED: named})
    assert table.version == 0


def test_a_value_of_another_writer_does_not_stop_other_changes(store: Any) -> None:
    table = DeltaTable.create(store, PERSON, partition_by=["p"])
    lines = [json.loads(line) for line in store.get(commit_path(0)).splitlines()]
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    metadata["configuration"] = {NAMED: "nothing, id"}
    store.put_if_absent(commit_path(1), json.dumps({"metaData": metadata}).encode())
    table = DeltaTable.open(store)
    table.set_properties({"owner": "somebody"})
    table.append(PEOPLE)
    assert with_bounds(table) == {"id"}
