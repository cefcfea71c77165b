"""Variants are written and kept by every verb."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import CallError, Dataset, DeltaTable, SchemaMismatchError, col
from deltalog.errors import InvalidPropertyError
from deltalog.protocol.schema import VARIANT, ArrayType
from deltalog.schema import (
    PrimitiveType,
    StructField,
    StructType,
    variant_from_json,
    variant_from_python,
    variant_to_python,
)
from tests.support.core import action, environment, memory

LONG = PrimitiveType("long")
SCHEMA = StructType((StructField("id", LONG), StructField("v", VARIANT)))
SHREDDED = {"delta.enableVariantShredding": "true"}
KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "change feed": {"delta.enableChangeDataFeed": "true"},
    "mapped": {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"},
    "shredded": SHREDDED,
    "shredded and mapped by id": {**SHREDDED, "delta.columnMapping.mode": "id", "delta.enableChangeDataFeed": "true"},
}
VALUES: list[Any] = [{"a": 1, "b": "x"}, [1, None], None, "text", {"a": 2.5}, {"a": 3, "b": None, "c": [{}]}]


@pytest.fixture
def store() -> Any:
    return memory()


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, store: Any) -> DeltaTable:
    """A table with VALUES; the row with id 2 has no variant."""
    created = DeltaTable.create(store, SCHEMA, properties=KINDS[request.param], environment=environment())
    rows = [
        {"id": number, "v": None if value is None else variant_from_python(value)}
        for number, value in enumerate(VALUES)
    ]
    created.append(pa.Table.from_pylist(rows))
    return created


def values(table: DeltaTable, **which: Any) -> dict[int, Any]:
    found = table.snapshot(**which).scan().to_arrow().sort_by("id").to_pylist()
    return {row["id"]: variant_to_python(row["v"]) for row in found}


def stats(store: Any, version: int) -> Any:
    add = action(store, version, "add")
    assert add is not None
    return json.loads(add["stats"])


EXPECTED = dict(enumerate(VALUES))


def test_rows_are_changed(table: DeltaTable) -> None:
    assert values(table) == EXPECTED
    table.delete("id = 1")
    expected = {key: value for key, value in EXPECTED.items() if key != 1}
    assert values(table) == expected
    table.update(new_values={"v": {"new": [1, "y"]}}, where="id = 0")
    table.update({"v": """parse_json('{"sql": 1}')"""}, where="id = 3")
    table.update({"id": "id + 10"}, where="v IS NULL")
    expected = {
        **{key: value for key, value in expected.items() if key != 2},
        12: None,
        0: {"new": [1, "y"]},
        3: {"sql": 1},
    }
    assert values(table) == expected
    source = pa.table({"id": [0, 20, 21], "v": ['"merged"', "[1.5]", None]})
    table.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
    expected |= {0: "merged", 20: [1.5], 21: None}
    assert values(table) == expected
    before = table.snapshot().version
    table.optimize.compact()
    assert values(table) == values(table, version=before) == expected
    table.restore(1)
    assert values(table) == EXPECTED
    table.overwrite(pa.table({"id": [0, 5], "v": ["0", "5"]}), where="id IN (0, 5)")
    assert values(table) == {**EXPECTED, 0: 0, 5: 5}
    table.overwrite(pa.table({"id": [1], "v": ["{}"]}))
    assert values(table) == {1: {}}


@pytest.mark.parametrize("kind", ["change feed", "shredded and mapped by id"])
def test_the_change_feed_has_variants(store: Any, kind: str) -> None:
    table = DeltaTable.create(store, SCHEMA, properties=KINDS[kind], environment=environment())
    table.append(pa.table({"id": [1, 2], "v": ['{"a": 1}', "2"]}))
    table.update(new_values={"v": "new"}, where="id = 1")
    table.delete("id = 2")
    changes = table.changes(from_version=1).to_arrow().to_pylist()
    found = [(each["_change_type"], each["id"], variant_to_python(each["v"])) for each in changes]
    assert sorted(found, key=str) == [
        ("delete", 2, 2),
        ("insert", 1, {"a": 1}),
        ("insert", 2, 2),
        ("update_postimage", 1, "new"),
        ("update_preimage", 1, {"a": 1}),
    ]


def test_variants_are_shredded_where_the_property_is_on(tmp_path: Any) -> None:
    table = DeltaTable.create(tmp_path / "t", SCHEMA, environment=environment())
    rows = pa.table({"id": [1, 2], "v": ['{"a": 1, "b": [1.5]}', '{"a": 2}']})
    table.append(rows)
    table.set_properties(SHREDDED)
    table.append(rows)
    table.set_properties({"delta.enableVariantShredding": "false"})
    table.append(rows)
    kinds = [
        "typed_value" in str(pq.read_schema(tmp_path / "t" / path).field("v").type)
        for path in (action_of(tmp_path / "t", version)["path"] for version in (1, 3, 5))
    ]
    assert kinds == [False, True, False]
    protocol = table.snapshot().protocol
    for features in (protocol.reader_features, protocol.writer_features):
        assert {"variantType", "variantShredding"} <= set(features or ())
    for version in (1, 3, 5):
        found = json.loads(action_of(tmp_path / "t", version)["stats"])
        assert found == {
            "numRecords": 2,
            "minValues": {"id": 1},
            "maxValues": {"id": 2},
            "nullCount": {"id": 0, "v": 0},
        }
    assert values(table) == {1: {"a": 1, "b": [1.5]}, 2: {"a": 2}}
    assert table.snapshot().scan().to_arrow().num_rows == 6
    table.delete("id = 1")
    assert values(table) == {2: {"a": 2}}


def action_of(path: Any, version: int) -> Any:
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return next(json.loads(line)["add"] for line in lines if "add" in json.loads(line))


def test_shredding_needs_no_variants_in_the_table(store: Any) -> None:
    table = DeltaTable.create(
        store, StructType((StructField("id", LONG),)), properties=SHREDDED, environment=environment()
    )
    table.append(pa.table({"id": [1]}))
    assert {"variantType", "variantShredding"} <= set(table.snapshot().protocol.reader_features or ())
    with pytest.raises(InvalidPropertyError, match="enableVariantShredding"):
        table.set_properties({"delta.enableVariantShredding": "perhaps"})


def test_the_preview_features_stay(store: Any) -> None:
    properties = {
        "delta.feature.variantType-preview": "supported",
        "delta.feature.variantShredding-preview": "supported",
    }
    table = DeltaTable.create(store, SCHEMA, properties=properties, environment=environment())
    table.append(pa.table({"id": [1], "v": ["1"]}))
    table.set_properties(SHREDDED)
    table.append(pa.table({"id": [2], "v": ['{"a": 1}']}))
    listed = set(table.snapshot().protocol.writer_features or ())
    assert {name for name in listed if name.startswith("variant")} == {
        "variantType-preview",
        "variantShredding-preview",
    }
    assert values(table) == {1: 1, 2: {"a": 1}}


def test_statistics_have_null_counts_and_no_bounds(store: Any) -> None:
    schema = StructType((*SCHEMA.fields, StructField("s", StructType((StructField("v", VARIANT),)))))
    table = DeltaTable.create(store, schema, environment=environment())
    row = {"id": 1, "v": variant_from_python(1), "s": {"v": None}}
    table.append(
        pa.Table.from_pylist(
            [row, {"id": 2, "v": None, "s": None}, {**row, "id": 3, "s": {"v": variant_from_json("null")}}]
        )
    )
    assert stats(store, 1) == {
        "numRecords": 3,
        "minValues": {"id": 1},
        "maxValues": {"id": 3},
        "nullCount": {"id": 0, "v": 1, "s": {"v": 2}},
    }
    for where, found in (("v IS NULL", [2]), ("s.v IS NOT NULL", [3]), ("is_variant_null(s.v)", [3])):
        assert table.snapshot().scan(["id"], where=where).to_arrow()["id"].to_pylist() == found


def test_records_and_staged_rows(store: Any) -> None:
    schema = StructType((*SCHEMA.fields, StructField("l", ArrayType(VARIANT))))
    data = Dataset(store, schema=schema, environment=environment())
    records = [
        {"id": 1, "v": {"a": [1, "x"]}, "l": [1, "x", None]},
        {"id": 2, "v": "text", "l": None},
        {"id": 3, "v": variant_from_json("[]"), "l": [variant_from_json("2")]},
        {"id": 4},
        pa.RecordBatch.from_pydict({"id": [5], "v": ["[5]"], "l": [["{}"]]}),
    ]
    data.stream_write_records(records)
    rows = data.latest().scan(variants="json").to_arrow().sort_by("id").to_pylist()
    assert [(row["v"], row["l"]) for row in rows] == [
        ('{"a":[1,"x"]}', ["1", '"x"', None]),
        ('"text"', None),
        ("[]", ["2"]),
        (None, None),
        ("[5]", ["{}"]),
    ]
    data.write(pa.table({"id": [6], "v": ["6"]}))
    table = data.table()
    table.commit_staged([table.stage(pa.table({"id": [7], "v": ["7"]}))])
    assert table.snapshot().scan(["v"], where="id > 5", variants="json").to_arrow().sort_by("v")["v"].to_pylist() == [
        "6",
        "7",
    ]
    with pytest.raises(SchemaMismatchError, match="cannot be a variant: it contains a set"):
        data.stream_write_records([{"id": 8, "v": {1}}])


def test_the_rows_of_one_table_are_rows_of_another(store: Any, tmp_path: Any) -> None:
    table = DeltaTable.create(
        store, SCHEMA, data=pa.table({"id": [1, 2], "v": ["[1]", None]}), environment=environment()
    )
    rows = table.snapshot().scan().to_arrow()
    other = DeltaTable.create(tmp_path / "t", SCHEMA, data=rows)
    other.append(table.snapshot().scan(variants="json").to_arrow())
    assert other.snapshot().scan(["v"], variants="json").to_arrow()["v"].to_pylist() == ["[1]", None] * 2
    other.overwrite(rows, overwrite_schema=True)
    assert other.snapshot().schema == SCHEMA and values(other) == {1: [1], 2: None}
    other.overwrite(pa.table({"v": ["[1]"]}), overwrite_schema=True)
    assert str(other.snapshot().schema) == "struct<v:string>"


EXTENSION = {"ARROW:extension:name": "arrow.parquet.variant"}


def test_columns_are_added_by_arrows_extension_type(store: Any) -> None:
    table = DeltaTable.create(store, StructType((StructField("id", LONG),)), environment=environment())
    kind = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary())])
    schema = pa.schema([("id", pa.int64()), pa.field("v", kind, metadata=EXTENSION)])
    rows = pa.Table.from_pylist([{"id": 1, "v": variant_from_python([1])}], schema=schema)
    table.append(rows, merge_schema=True)
    assert table.snapshot().schema == SCHEMA and values(table) == {1: [1]}
    assert "variantType" in (table.snapshot().protocol.reader_features or ())
    merged = pa.Table.from_pylist(
        [{"id": 1, "w": variant_from_python("new")}], schema=schema.set(1, schema.field(1).with_name("w"))
    )
    (table.merge(merged, "target.id = source.id").with_schema_evolution().when_matched_update_all().execute())
    assert table.snapshot().scan(variants="json").to_arrow().to_pylist() == [{"id": 1, "v": "[1]", "w": '"new"'}]


def test_a_clone_and_a_checkpoint(tmp_path: Any) -> None:
    table = DeltaTable.create(
        tmp_path / "t", SCHEMA, properties=SHREDDED, data=pa.table({"id": [1], "v": ['{"a": 1}']})
    )
    table.clone(tmp_path / "clone")
    clone = DeltaTable.open(tmp_path / "clone", allowed_paths=[str(tmp_path / "t")])
    clone.append(pa.table({"id": [2], "v": ["2"]}))
    table.checkpoint()
    assert values(DeltaTable.open(tmp_path / "t")) == {1: {"a": 1}}
    assert values(clone) == {1: {"a": 1}, 2: 2}


REFUSED: dict[str, Any] = {
    "= of variant": lambda t: t.delete("v = v"),
    "cannot be compared": lambda t: t.delete(col("v") == 1),
    "IN of variant|cannot be compared": lambda t: t.delete("v IN (1)"),
    "< of variant|cannot be compared": lambda t: t.update({"id": "1"}, where="v < 5"),
    "= of variant ": lambda t: t.merge(pa.table({"v": ["1"]}), "target.v = source.v").when_matched_delete().execute(),
    "cannot be clustered": lambda t: t.cluster_by(["v"]),
    "variant": lambda t: t.optimize.z_order(["v"]),
    "CAST from string to variant": lambda t: t.update({"v": "'text'"}),
    "is not a value for column v": lambda t: t.update(new_values={"v": {1}}),
    "Column v is variant in the table and long in the data. Pass variants as JSON": lambda t: t.append(
        pa.table({"v": [1]})
    ),
    "not JSON": lambda t: t.append(pa.table({"v": ["{"]})),
    "not JSON ": lambda t: (
        t.merge(pa.table({"id": [1], "v": ["{"]}), "target.id = source.id").when_matched_update_all().execute()
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_variants_cannot_be_is_refused(says: str, store: Any) -> None:
    table = DeltaTable.create(store, SCHEMA, data=pa.table({"id": [1], "v": ["1"]}), environment=environment())
    with pytest.raises((CallError, SchemaMismatchError), match=says.strip()):
        REFUSED[says](table)
    assert table.snapshot().version == 0


def test_a_variant_partitions_and_clusters_no_table(store: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="variant cannot partition"):
        DeltaTable.create(store, SCHEMA, partition_by=["v"])
    with pytest.raises(CallError, match="cannot be clustered"):
        DeltaTable.create(store, SCHEMA, cluster_by=["v"])


def test_partitioned_tables_hold_variants(store: Any) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["id"], properties=SHREDDED, environment=environment())
    table.append(pa.table({"id": [1, 2, 1], "v": ['{"a": 1}', "2", '{"a": 3}']}))
    table.overwrite(pa.table({"id": [2], "v": ["[]"]}), partitions="dynamic")
    found = table.snapshot().scan(variants="json").to_arrow().to_pylist()
    assert sorted((row["id"], row["v"]) for row in found) == [(1, '{"a":1}'), (1, '{"a":3}'), (2, "[]")]


def test_constraints_on_variants(store: Any) -> None:
    table = DeltaTable.create(store, SCHEMA, data=pa.table({"id": [1], "v": ["1"]}), environment=environment())
    table.add_constraint("known", "v IS NOT NULL")
    with pytest.raises(Exception, match="known"):
        table.append(pa.table({"id": [2], "v": pa.nulls(1)}))
    table.add_constraint("plain", "to_json(v) <> '{}'")
    with pytest.raises(Exception, match="plain"):
        table.append(pa.table({"id": [2], "v": ["{}"]}))
    table.append(pa.table({"id": [2], "v": ["[]"]}))
    assert values(table) == {1: 1, 2: []}
