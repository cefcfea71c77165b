"""Adding, renaming, dropping and widening columns; a table's name; domain metadata."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, SchemaMismatchError
from deltalog.errors import MetadataChangedError
from deltalog.protocol.column_mapping import MAX_ID_KEY, MODE_KEY
from deltalog.protocol.column_metadata import ID_KEY, PHYSICAL_NAME_KEY
from deltalog.schema import DecimalType, PrimitiveType, StructField, StructType
from tests.support.core import SCHEMA, action, environment, ids, info, memory, rows

LONG = PrimitiveType("long")
MAPPED = {MODE_KEY: "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
PERSON = pa.struct([("first", pa.string()), ("homes", pa.list_(pa.struct([("street", pa.string())])))])
PEOPLE = pa.table({"id": [1], "p": pa.array([{"first": "Ann", "homes": [{"street": "High St"}]}], PERSON)})


def create(data: pa.Table, properties: dict[str, str] | None = None, **options: Any) -> DeltaTable:
    return DeltaTable.create(
        memory(), data.schema, properties=properties, data=data, environment=environment(), **options
    )


def read(table: DeltaTable, **which: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.snapshot(**which).scan().to_arrow().to_pylist()
    return found


def store(table: DeltaTable) -> Any:
    return table._handle.reader.store


# --------------------------------------------------------------------------------------------------- add


@pytest.mark.parametrize("properties", [{}, MAPPED], ids=["plain", "mapped"])
def test_adding_columns(properties: dict[str, str]) -> None:
    table = create(PEOPLE, properties)
    result = table.add_columns(
        pa.schema([("n", pa.int32()), ("p.last", pa.string()), ("p.homes.element.no", pa.int8())])
    )
    assert result.version == 1
    assert read(table) == [
        {"id": 1, "p": {"first": "Ann", "homes": [{"street": "High St", "no": None}], "last": None}, "n": None}
    ]
    assert info(store(table), 1)["operation"] == "ADD COLUMNS"
    logged = json.loads(info(store(table), 1)["operationParameters"]["columns"])
    assert [each["column"]["name"] for each in logged] == ["n", "p.last", "p.homes.element.no"]
    assert logged[1]["column"] == {"name": "p.last", "type": "string", "nullable": True, "metadata": {}}
    more = {"id": 2, "p": {"first": "Bo", "homes": [], "last": "Li"}, "n": 3}
    table.append(pa.Table.from_pylist([more], schema=table.snapshot().schema.to_arrow()))
    assert more in read(table)


def test_adding_brings_features_and_ids() -> None:
    table = create(rows(1), MAPPED)
    table.add_columns(pa.schema([("t", pa.timestamp("us")), ("s", pa.struct([("x", pa.int64())]))]))
    assert "timestampNtz" in (table.snapshot().protocol.reader_features or ())
    added = table.snapshot().schema.field("s")
    assert added.metadata[ID_KEY] == 4 and table.snapshot().metadata.configuration[MAX_ID_KEY] == "5"


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (StructField("n", LONG, False), "NOT NULL"),
        (StructField("ID", LONG), "already"),
        (StructField("n", LONG, True, {"CURRENT_DEFAULT": "1"}), "a default"),
        (StructField("n", LONG, True, {"delta.generationExpression": "id"}), "a generation expression"),
        (StructField("p.first", LONG), "already"),
        (StructField("nope.x", LONG), "no column nope"),
        (StructField("id.x", LONG), "reaches long"),
        (StructField("p.homes.x", LONG), r"reaches array.*\.element"),
        (StructField("a b", LONG), "column mapping"),
        (StructField("a.", LONG), "not the path"),
        (StructField("`a", LONG), "not the path"),
    ],
    ids=lambda value: value.name if isinstance(value, StructField) else "",
)
def test_columns_that_cannot_be_added(column: StructField, why: str) -> None:
    table = create(PEOPLE)
    with pytest.raises((SchemaMismatchError, CallError), match=why):
        table.add_columns([column])
    with pytest.raises(CallError, match="at least one column"):
        table.add_columns([])
    assert table.version == 0


# ---------------------------------------------------------------------------------------- rename and drop


def test_renaming_a_column_moves_no_data() -> None:
    table = create(PEOPLE, MAPPED)
    table.rename_column("p.first", "given name")
    table.rename_column("p.homes.element.street", "road")
    table.rename_column("id", "key")
    table.rename_column("p", "person")
    assert read(table) == [{"key": 1, "person": {"given name": "Ann", "homes": [{"road": "High St"}]}}]
    assert read(table, version=0) == PEOPLE.to_pylist()
    body = info(store(table), 1)
    assert body["operation"] == "RENAME COLUMN"
    assert body["operationParameters"] == {"oldColumnPath": "p.first", "newColumnPath": "p.`given name`"}
    assert action(store(table), 1, "add") is None
    table.append(table.snapshot().scan().to_arrow())
    assert read(table) == 2 * [{"key": 1, "person": {"given name": "Ann", "homes": [{"road": "High St"}]}}]


def test_names_can_change_places() -> None:
    table = create(pa.table({"a": [1], "b": [2]}), MAPPED)
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        table.rename_column(old, new)
    assert read(table) == [{"b": 1, "a": 2}]


def test_a_partition_column_is_renamed_with_the_partitioning() -> None:
    table = create(rows(1, 2), MAPPED, partition_by=["name"])
    table.rename_column("name", "label")
    assert table.snapshot().partition_columns == ("label",)
    table.append(pa.table({"id": [3], "label": ["n1"]}))
    assert sorted(row["id"] for row in table.snapshot().scan(where="label = 'n1'").to_arrow().to_pylist()) == [1, 3]


def test_dropped_columns_do_not_come_back() -> None:
    table = create(PEOPLE.append_column("x", pa.array([5])), MAPPED)
    table.drop_columns(["x", "p.first"])
    assert info(store(table), 1)["operation"] == "DROP COLUMNS"
    assert json.loads(info(store(table), 1)["operationParameters"]["columns"]) == ["x", "p.first"]
    gone = {"id": 1, "p": {"homes": [{"street": "High St"}]}}
    assert read(table) == [gone]
    table.add_columns(pa.schema([("x", pa.int64()), ("p.first", pa.string())]))
    assert read(table) == [{"id": 1, "p": {"homes": [{"street": "High St"}], "first": None}, "x": None}]
    assert read(table, version=0)[0]["x"] == 5
    assert table.snapshot().metadata.configuration[MAX_ID_KEY] == "8"  # six before, two new ones


def test_both_need_column_mapping() -> None:
    table = create(PEOPLE)
    for change in (lambda: table.rename_column("id", "key"), lambda: table.drop_columns(["id"])):
        with pytest.raises(CallError, match="requires column mapping"):
            change()


REFUSED: list[tuple[Callable[[DeltaTable], object], str]] = [
    (lambda t: t.rename_column("nope", "x"), "no column nope"),
    (lambda t: t.rename_column("id", "NAME"), "already"),
    (lambda t: t.rename_column("id", ""), "empty name"),
    (lambda t: t.drop_columns(["nope"]), "no column nope"),
    (lambda t: t.drop_columns(["part"]), "is a partition column"),
    (lambda t: t.drop_columns(["s.x"]), "only column"),
    (lambda t: t.drop_columns(["id", "name", "s"]), "Only partition columns"),
    (lambda t: t.drop_columns([]), "at least one column"),
    (lambda t: t.drop_columns("id"), "columns must be a list of text or .*; got 'id'"),
]


@pytest.mark.parametrize(("change", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_changes_of_names_that_are_refused(change: Callable[[DeltaTable], object], why: str) -> None:
    data = rows(1).append_column("part", pa.array([1])).append_column("s", pa.array([{"x": 1}]))
    table = create(data, MAPPED, partition_by=["part"])
    with pytest.raises(CallError, match=why):
        change(table)
    assert table.version == 0


@pytest.mark.parametrize(
    ("metadata", "properties"),
    [
        ({}, {"delta.constraints.positive": "id > 0"}),
        ({}, {"delta.constraints.odd": "pmod(`id`, 2) = 1"}),
        ({}, {"delta.constraints.what": "this is ( not sql"}),
        ({"delta.generationExpression": "ID + 1"}, {}),
        ({"delta.invariants": json.dumps({"expression": {"expression": "id IS NOT NULL"}})}, {}),
    ],
    ids=["constraint", "in backticks", "unreadable", "generated", "invariant"],
)
def test_columns_that_expressions_speak_of(metadata: dict[str, str], properties: dict[str, str]) -> None:
    from deltalog.alter import alterations

    table = create(rows(1), {**MAPPED, **WIDENING})
    with table.transaction() as transaction:
        other = StructField("other", LONG, True, metadata)
        transaction.set_schema(StructType((*transaction.schema.fields, other)))
        transaction.metadata_changes._replace_configuration({**transaction.metadata.configuration, **properties})
        for change in (
            lambda: alterations.rename_column(transaction, "id", "key", None),
            lambda: alterations.drop_columns(transaction, ["id"], None),
            lambda: alterations.set_column(transaction, "id", None, None, DecimalType(20, 0), None),
        ):
            with pytest.raises(SchemaMismatchError, match="depends on id"):
                change()


def test_the_property_that_names_columns_follows() -> None:
    table = create(PEOPLE, {**MAPPED, "delta.dataSkippingStatsColumns": "id, p.first"})
    table.rename_column("p", "the person")
    key = "delta.dataSkippingStatsColumns"
    assert table.snapshot().metadata.configuration[key] == "id,`the person`.first"
    table.set_properties({key: "`the person`, ID"})
    table.rename_column("the person", "who")
    table.drop_columns(["id"])
    assert table.snapshot().metadata.configuration[key] == "who"


# -------------------------------------------------------------------------------------------- set_column


def test_comments_and_nulls() -> None:
    schema = StructType(
        (StructField("id", LONG, False), StructField("s", StructType((StructField("x", LONG, False),))))
    )
    table = DeltaTable.create(memory(), schema, environment=environment())
    table.set_column("id", nullable=True, comment="the key")
    table.set_column("s.x", nullable=True)
    found = table.snapshot().schema
    assert found.field("id") == StructField("id", LONG, True, {"comment": "the key"})
    assert found.field("s").data_type == StructType((StructField("x", LONG, True),))
    assert info(store(table), 1)["operation"] == "CHANGE COLUMN"
    table.set_column("id", comment="")
    assert table.snapshot().schema.field("id").metadata == {}
    assert table.set_column("id", nullable=True).skipped and table.version == 3
    with pytest.raises(SchemaMismatchError, match="cannot become NOT NULL"):
        table.set_column("id", nullable=False)


WIDER: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.int8(), 7, pa.int16(), 7),
    (pa.int8(), 7, pa.int64(), 7),
    (pa.int16(), -7, pa.int32(), -7),
    (pa.int32(), 2**31 - 1, pa.int64(), 2**31 - 1),
    (pa.int32(), 2**31 - 1, pa.float64(), float(2**31 - 1)),
    (pa.int8(), 3, pa.decimal128(12, 2), Decimal("3.00")),
    (pa.int64(), 2**63 - 1, pa.decimal128(20, 0), Decimal(2**63 - 1)),
    (pa.float32(), 1.5, pa.float64(), 1.5),
    (pa.decimal128(5, 2), Decimal("1.25"), pa.decimal128(7, 4), Decimal("1.2500")),
    (pa.date32(), dt.date(2026, 1, 2), pa.timestamp("us"), dt.datetime(2026, 1, 2)),
]


@pytest.mark.parametrize(
    ("old", "value", "new", "after"), WIDER, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_wider_types(old: pa.DataType, value: Any, new: pa.DataType, after: Any) -> None:
    data = pa.table({"id": [1], "v": pa.array([value], old), "part": pa.array([value], old)})
    table = create(data, WIDENING, partition_by=["part"])
    for name in ("v", "part"):
        table.set_column(name, data_type=new)
    assert read(table) == [{"id": 1, "v": after, "part": after}]
    table.append(table.snapshot().scan().to_arrow())
    assert read(table) == 2 * [{"id": 1, "v": after, "part": after}]
    assert read(table, version=0) == data.to_pylist()
    assert table.snapshot().scan(where=f"v = {_literal(after)} AND part = {_literal(after)}").to_arrow().num_rows == 2
    names = [str(StructType.from_arrow(pa.schema([("x", kind)])).fields[0].data_type) for kind in (old, new)]
    history = table.snapshot().schema.field("v").metadata["delta.typeChanges"]
    assert history == [{"fromType": names[0], "toType": names[1]}]
    assert "typeWidening" in (table.snapshot().protocol.reader_features or ())


def _literal(value: Any) -> str:
    return f"timestamp_ntz'{value}'" if isinstance(value, dt.datetime) else str(value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int64(), pa.int32()), (pa.int64(), pa.float64()), (pa.int32(), pa.float32()), (pa.int32(), pa.string()),
        (pa.int32(), pa.decimal128(9, 0)), (pa.int32(), pa.decimal128(11, 2)), (pa.int64(), pa.decimal128(19, 0)),
        (pa.decimal128(5, 2), pa.decimal128(5, 3)), (pa.decimal128(5, 2), pa.decimal128(4, 2)),
        (pa.decimal128(5, 2), pa.decimal128(6, 4)), (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.float64(), pa.float32()), (pa.string(), pa.binary()), (pa.int32(), pa.list_(pa.int32())),
        (pa.struct([("x", pa.int32())]), pa.struct([("y", pa.int32())])),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_are_not_wider(old: pa.DataType, new: pa.DataType) -> None:
    table = create(pa.table({"v": pa.array([None], old)}), WIDENING)
    with pytest.raises(SchemaMismatchError):
        table.set_column("v", data_type=new)
    assert table.version == 0


def test_types_inside_others_are_recorded_at_the_field_above() -> None:
    kinds = [
        pa.struct([("m", pa.map_(key, pa.list_(value))), ("l", pa.list_(pa.struct([("x", value)])))])
        for key, value in ((pa.int8(), pa.float32()), (pa.int32(), pa.float64()))
    ]
    value = {"m": [(1, [1.5, None])], "l": [{"x": 0.5}, None]}
    table = create(pa.table({"s": pa.array([value], kinds[0])}), WIDENING)
    table.set_column("s", data_type=kinds[1])
    assert read(table) == [{"s": value}]
    struct = table.snapshot().schema.field("s")
    assert struct.metadata == {} and isinstance(struct.data_type, StructType)
    assert struct.data_type.field("m").metadata["delta.typeChanges"] == [
        {"fromType": "byte", "toType": "integer", "fieldPath": "key"},
        {"fromType": "float", "toType": "double", "fieldPath": "value.element"},
    ]
    assert struct.data_type.field("l").metadata == {}
    assert "delta.typeChanges" in table.snapshot().metadata.schema_string.split('"name":"x"')[1]
    table.append(pa.table({"s": pa.array([value], kinds[1])}))
    assert read(table) == 2 * [{"s": value}]


def test_types_stay_while_widening_is_off() -> None:
    table = create(pa.table({"v": pa.array([1], pa.int32())}))
    with pytest.raises(SchemaMismatchError, match="enableTypeWidening"):
        table.set_column("v", data_type=LONG)
    table.set_properties(WIDENING)
    table.set_column("v", data_type=LONG)
    table.set_properties({"delta.enableTypeWidening": "false"})
    with pytest.raises(SchemaMismatchError, match="enableTypeWidening"):
        table.set_column("v", data_type=DecimalType(20, 0))
    assert read(table) == [{"v": 1}]


@pytest.mark.parametrize(
    ("old", "new", "widens"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(5, 2), pa.decimal128(7, 3), True),
        (pa.int32(), pa.float64(), False),
        (pa.int32(), pa.decimal128(12, 0), False),
        (pa.int64(), pa.float64(), False),
    ],
    ids=str,
)
def test_merging_widens_numbers_of_one_kind_where_that_is_on(old: pa.DataType, new: pa.DataType, widens: bool) -> None:
    for properties, allowed in ((WIDENING, widens), ({}, False)):
        table = create(pa.table({"v": pa.array([1], old)}), properties)
        more = pa.table({"v": pa.array([2], new)})
        if not allowed:
            with pytest.raises(SchemaMismatchError, match="Column v"):
                table.append(more, merge_schema=True)
            continue
        table.append(more, merge_schema=True)
        assert [row["v"] for row in sorted(read(table), key=lambda row: row["v"])] == [1, 2]
        assert len(table.snapshot().schema.field("v").metadata["delta.typeChanges"]) == 1
        with pytest.raises(SchemaMismatchError):
            table.append(pa.table({"v": pa.array(["x"])}))


# ------------------------------------------------------------------------------- the table, domains, conflicts


def test_name_and_description() -> None:
    table = DeltaTable.create(memory(), SCHEMA, name="old", description="kept", environment=environment())
    table.set_table(name="new")
    assert (table.snapshot().metadata.name, table.snapshot().metadata.description) == ("new", "kept")
    assert table.set_table(name="new").skipped


def test_domains_of_ones_own() -> None:
    table = create(rows(1))
    table.set_domain_metadata("my.domain", {"a": [1]})
    table.set_domain_metadata("other", "any text")
    assert {d.domain: d.configuration for d in table.snapshot().domain_metadata} == {
        "my.domain": '{"a":[1]}', "other": "any text",
    }  # fmt: skip
    assert "domainMetadata" in (table.snapshot().protocol.writer_features or ())
    table.remove_domain_metadata("my.domain")
    again = DeltaTable.open(store(table))
    assert [d.domain for d in again.snapshot().domain_metadata] == ["other"]
    assert table.remove_domain_metadata("my.domain").skipped
    for name in ("delta.rowTracking", "delta.mine", ""):
        with pytest.raises(CallError):
            table.set_domain_metadata(name, "{}")
        with pytest.raises(CallError):
            table.remove_domain_metadata(name or "delta.rowTracking")


def test_two_changes_of_the_columns_at_once_are_a_conflict() -> None:
    table = create(rows(1), MAPPED)
    other = DeltaTable.open(store(table))
    with table.transaction() as transaction:
        other.add_columns(pa.schema([("mine", pa.int64())]))
        transaction.set_schema(StructType((*transaction.schema.fields, StructField("theirs", LONG))))
        with pytest.raises(MetadataChangedError):
            transaction.commit("ADD COLUMNS")
    assert other.snapshot().schema.names == ["id", "name", "mine"] and ids(other) == [1]


def test_an_append_that_was_planned_before_a_rename_fails() -> None:
    table = create(rows(1), MAPPED)
    other = DeltaTable.open(store(table))
    with table.transaction() as transaction:
        transaction.write(pa.RecordBatchReader.from_batches(SCHEMA, rows(2).to_batches()))
        other.rename_column("name", "label")
        with pytest.raises(MetadataChangedError):
            transaction.commit("WRITE")
    assert PHYSICAL_NAME_KEY in other.snapshot().schema.field("label").metadata and ids(other) == [1]


@pytest.mark.parametrize("properties", [{}, MAPPED])
def test_columns_have_a_place(properties: dict[str, str]) -> None:
    table = create(PEOPLE, properties)
    column = StructField("a", LONG), StructField("b", LONG), StructField("p.last", PrimitiveType("string"))
    table.add_columns(column, after={"a": None, "b": "ID", "p.last": "first"})
    assert table.schema.names == ["a", "id", "b", "p"]
    assert table.snapshot().scan().to_arrow().schema.field("p").type[1].name == "last"
    parameters = json.loads(info(table._handle.reader.store, 1)["operationParameters"]["columns"])
    assert [each.get("position") for each in parameters] == ["FIRST", "AFTER ID", "AFTER first"]
    table.set_column("a", after="p")
    table.set_column("p.homes.element.street", comment="with a number", first=True)
    table.set_column("p.homes", first=True)
    assert table.schema.names == ["id", "b", "p", "a"]
    assert read(table) == [
        {"id": 1, "b": None, "p": {"homes": [{"street": "High St"}], "first": "Ann", "last": None}, "a": None}
    ]
    before = table.version
    assert table.set_column("a", after="P").skipped and table.version == before


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: t.add_columns([StructField("a", LONG)], after={"a": "nope"}), "cannot follow nope"),
        (lambda t: t.add_columns([StructField("a", LONG)], after={"b": None}), "not one of the columns to add"),
        (lambda t: t.set_column("id", after="nope"), "cannot follow nope"),
        (lambda t: t.set_column("id", after="id"), "no other column with this name"),
        (lambda t: t.set_column("p.first", after="id"), "cannot follow id"),
        (lambda t: t.set_column("id", first=True, after="p"), "two positions"),
        (lambda t: t.set_column("nope", first=True), "no column nope"),
    ],
)
def test_places_that_are_none(change: Callable[[DeltaTable], object], why: str) -> None:
    table = create(PEOPLE)
    with pytest.raises(CallError, match=why):
        change(table)
    assert table.version == 0
