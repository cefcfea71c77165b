"""Which type changes count as type widening, and how the schema records them."""

from __future__ import annotations

import pytest

from deltalog import SchemaMismatchError, UnsupportedFeatureError
from deltalog.protocol import widening
from deltalog.protocol.widening import TYPE_CHANGES_KEY
from deltalog.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType

SHORT, INT, LONG, DOUBLE, STRING = map(PrimitiveType, ("short", "integer", "long", "double", "string"))
# The types to which each type can be widened, except decimals, as listed in PROTOCOL.md, "Type Widening".
WIDER = {
    "byte": {"short", "integer", "long", "double"},
    "short": {"integer", "long", "double"},
    "integer": {"long", "double"},
    "float": {"double"},
    "date": {"timestamp_ntz"},
}
NAMES = (
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
    "boolean",
)


@pytest.mark.parametrize("narrow", NAMES)
def test_the_protocols_table(narrow: str) -> None:
    found = {wide for wide in NAMES if widening.is_widening(PrimitiveType(narrow), PrimitiveType(wide))}
    assert found == WIDER.get(narrow, set())


@pytest.mark.parametrize(
    ("narrow", "wide", "allowed"),
    [
        (DecimalType(10, 2), DecimalType(12, 2), True),
        (DecimalType(10, 2), DecimalType(12, 4), True),
        (DecimalType(10, 2), DecimalType(11, 4), False),  # fewer digits before the point
        (DecimalType(10, 2), DecimalType(12, 1), False),
        (DecimalType(10, 2), DecimalType(10, 2), False),
        (INT, DecimalType(10, 0), True),
        (INT, DecimalType(11, 2), False),
        (SHORT, DecimalType(12, 2), True),
        (LONG, DecimalType(20, 0), True),
        (LONG, DecimalType(19, 0), False),
        (DOUBLE, DecimalType(38, 10), False),
        (ArrayType(INT), DecimalType(38, 0), False),
    ],
)
def test_decimals(narrow: DataType, wide: DataType, allowed: bool) -> None:
    assert widening.is_widening(narrow, wide) is allowed


def test_merging_schemas_does_not_turn_whole_numbers_into_others() -> None:
    assert widening.is_widening_of_its_kind(SHORT, LONG) and not widening.is_widening_of_its_kind(INT, DOUBLE)
    assert not widening.is_widening_of_its_kind(INT, DecimalType(20, 0))
    assert widening.is_widening_of_its_kind(PrimitiveType("float"), DOUBLE)
    assert not widening.is_widening_of_its_kind(LONG, INT)


def test_a_change_is_added_to_the_history() -> None:
    once = widening.with_type_changes(StructField("c", INT), SHORT)
    assert once.metadata == {TYPE_CHANGES_KEY: [{"fromType": "short", "toType": "integer"}]}
    twice = widening.with_type_changes(StructField("c", LONG, metadata=once.metadata), INT)
    assert [each["toType"] for each in twice.metadata[TYPE_CHANGES_KEY]] == ["integer", "long"]
    same = StructField("c", LONG)
    assert widening.with_type_changes(same, LONG) is same
    assert widening.with_type_changes(same, PrimitiveType("void")) is same


def test_changes_inside_collections_have_paths_and_those_inside_structs_belong_to_the_fields() -> None:
    column = StructField("c", MapType(STRING, ArrayType(LONG)))
    changed = widening.with_type_changes(column, MapType(STRING, ArrayType(INT)))
    assert changed.metadata[TYPE_CHANGES_KEY] == [
        {"fromType": "integer", "toType": "long", "fieldPath": "value.element"}
    ]
    before, after = (
        StructType((StructField("s", ArrayType(StructType((StructField("x", each),)))), StructField("k", STRING)))
        for each in (INT, LONG)
    )
    recorded = widening.recorded(before, after)
    assert TYPE_CHANGES_KEY not in recorded.field("s").metadata
    inner = recorded.field("s").data_type.element_type.field("x")  # type: ignore[union-attr]
    assert inner.metadata[TYPE_CHANGES_KEY] == [{"fromType": "integer", "toType": "long"}]
    assert recorded.field("k") == after.field("k")


def test_a_nested_type_grows_and_names_of_its_fields_stay() -> None:
    before = StructType((StructField("a", ArrayType(SHORT)), StructField("m", MapType(SHORT, PrimitiveType("void")))))
    wanted = StructType((StructField("a", ArrayType(LONG)), StructField("m", MapType(INT, STRING))))
    assert widening.widened(before, wanted, "c") == wanted


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (LONG, INT, r"of c cannot change from long to integer"),
        (ArrayType(LONG), ArrayType(INT), r"of c\.element cannot change"),
        (MapType(STRING, LONG), MapType(LONG, LONG), r"of c\.key cannot change"),
        (StructType((StructField("x", LONG),)), StructType((StructField("x", INT),)), r"of c\.x cannot change"),
        (StructType((StructField("x", LONG),)), StructType((StructField("y", LONG),)), r"has the fields x.*c\.y"),
        (ArrayType(LONG), LONG, r"of c cannot change from array<long> to long"),
    ],
)
def test_a_type_that_is_not_wider_is_refused_by_its_path(before: DataType, after: DataType, says: str) -> None:
    with pytest.raises(SchemaMismatchError, match=says):
        widening.widened(before, after, "c")


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        ({"fromType": "short", "toType": "long"}, True),
        ({"fromType": "short", "toType": "long", "tableVersion": 3}, True),
        ({"fromType": "decimal(5,2)", "toType": "decimal(10, 4)"}, True),
        ({"fromType": "integer", "toType": "integer"}, True),
        ({"fromType": "char(3)", "toType": "string"}, True),
        ({"fromType": "long", "toType": "integer"}, False),
        ({"fromType": "long", "toType": "decimal(19,0)"}, False),
        ({"fromType": "string", "toType": "long"}, False),
        ({"fromType": "quaternion", "toType": "long"}, False),
        ({"fromType": "short"}, False),
        ({"fromType": {"type": "array"}, "toType": "long"}, False),
        ("short", False),
    ],
)
def test_recorded_changes_are_checked(change: object, is_read: bool) -> None:
    inner = StructType((StructField("b", LONG, metadata={TYPE_CHANGES_KEY: [change]}),))
    schema = StructType((StructField("a", ArrayType(inner)),))
    if is_read:
        widening.check_recorded_changes(schema, "table")
        return
    with pytest.raises(UnsupportedFeatureError, match=r"table: the schema records the type change .* of a\.element\.b"):
        widening.check_recorded_changes(schema, "table")


@pytest.mark.parametrize("history", [{"fromType": "long", "toType": "integer"}, "no list", 5])
def test_a_history_that_is_no_list_is_refused(history: object) -> None:
    schema = StructType((StructField("a", LONG, metadata={TYPE_CHANGES_KEY: history}),))
    with pytest.raises(UnsupportedFeatureError):
        widening.check_recorded_changes(schema, "table")
