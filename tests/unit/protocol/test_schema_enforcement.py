from __future__ import annotations

import pytest
from hypothesis import given

from deltalog import SchemaMismatchError
from deltalog.protocol import schema_enforcement
from deltalog.schema import ArrayType, DecimalType, MapType, PrimitiveType, StructField, StructType, merge_schemas
from tests.support.core import strategies

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")


def struct(**columns: object) -> StructType:
    return StructType(tuple(StructField(name, each) for name, each in columns.items()))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a;b", "a{", "a}", "a(", "a)", "a\nb", "a\tb", "a=b"])
@pytest.mark.parametrize("nest", [lambda s: s, lambda s: struct(o=s), lambda s: struct(o=ArrayType(s))])
def test_names_that_files_cannot_have(name: str, nest: object) -> None:
    with pytest.raises(SchemaMismatchError, match="Rename it"):
        schema_enforcement.check_column_names(nest(struct(**{name: LONG})))  # type: ignore[operator]


@pytest.mark.parametrize(
    "nest", [lambda s: s, lambda s: struct(o=s), lambda s: struct(m=MapType(s, LONG)), lambda s: struct(l=ArrayType(s))]
)
def test_names_that_differ_in_case_only(nest: object) -> None:
    with pytest.raises(SchemaMismatchError, match="the same name up to case"):
        schema_enforcement.check_column_names(nest(struct(a=LONG, A=LONG)))  # type: ignore[operator]


def test_a_name_used_twice() -> None:
    with pytest.raises(SchemaMismatchError, match="same name"):
        schema_enforcement.check_column_names(StructType((StructField("a", LONG), StructField("a", LONG))))


def test_data_that_fits() -> None:
    table = struct(a=LONG, s=struct(x=LONG, y=STRING), l=ArrayType(LONG))
    schema_enforcement.check_writable(table, table)
    schema_enforcement.check_writable(table, struct(A=LONG))  # the rest is null
    schema_enforcement.check_writable(table, struct(s=struct(Y=STRING)))
    schema_enforcement.check_writable(table, struct(a=PrimitiveType("void")))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (struct(a=STRING), r"Column a is long in the table and string in the data.*Cast it to long"),
        (struct(a=PrimitiveType("float")), r"Column a is long in the table and float"),
        (struct(b=LONG), r"columns that the table lacks: b\..*merge_schema=True"),
        (struct(s=struct(z=LONG)), r"that the table lacks: s\.z"),
        (struct(s=LONG), r"Column s is struct<x:long> in the table and long"),
        (struct(l=ArrayType(STRING)), r"Column l\.element is long"),
        (struct(m=MapType(LONG, LONG)), r"Column m\.key is string"),
        (struct(m=MapType(STRING, STRING)), r"Column m\.value is long"),
        (struct(d=DecimalType(10, 3)), r"decimal\(10,2\) in the table and decimal\(10,3\)"),
    ],
)
def test_data_that_does_not_fit_names_the_column_and_both_types(data: StructType, says: str) -> None:
    table = struct(a=LONG, s=struct(x=LONG), l=ArrayType(LONG), m=MapType(STRING, LONG), d=DecimalType(10, 2))
    with pytest.raises(SchemaMismatchError, match=says):
        schema_enforcement.check_writable(table, data)


def test_a_not_null_column_must_come() -> None:
    table = StructType((StructField("a", LONG, False), StructField("b", LONG)))
    with pytest.raises(SchemaMismatchError, match="Column a is NOT NULL and missing"):
        schema_enforcement.check_writable(table, struct(b=LONG))


def test_merging_appends_new_columns_as_nullable() -> None:
    table = StructType((StructField("a", LONG, False, {"comment": "c"}), StructField("s", struct(x=LONG))))
    data = StructType(
        (
            StructField("new", STRING, False, {"comment": "n"}),
            StructField("S", struct(y=STRING, x=LONG)),
            StructField("A", LONG),
        )
    )
    merged = merge_schemas(table, data)
    assert merged.field("a") == StructField("a", LONG, False, {"comment": "c"})
    assert merged.field("s").data_type == struct(x=LONG, y=STRING)
    assert merged.field("new") == StructField("new", STRING, True, {"comment": "n"})
    assert merged.names == ["a", "s", "new"]
    assert merge_schemas(merged, data) == merged


def test_merging_goes_into_arrays_and_maps() -> None:
    table = struct(l=ArrayType(struct(x=LONG), False), m=MapType(STRING, struct(x=LONG), False))
    data = struct(l=ArrayType(struct(y=LONG)), m=MapType(STRING, struct(y=LONG)))
    assert merge_schemas(table, data) == struct(
        l=ArrayType(struct(x=LONG, y=LONG), False), m=MapType(STRING, struct(x=LONG, y=LONG), False)
    )


def test_merging_refuses_another_type() -> None:
    with pytest.raises(SchemaMismatchError, match=r"a is long in the table and string"):
        merge_schemas(struct(a=LONG), struct(a=STRING))


@given(strategies.schemas(), strategies.schemas())
def test_a_merged_schema_takes_both(table: StructType, data: StructType) -> None:
    try:
        merged = merge_schemas(table, data)
    except SchemaMismatchError:
        return
    assert merged.names[: len(table.names)] == table.names
    assert merge_schemas(merged, table) == merged and merge_schemas(merged, data) == merged
