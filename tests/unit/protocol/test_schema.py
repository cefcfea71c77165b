from __future__ import annotations

import json

import pytest
from hypothesis import given

from deltalog import (
    ArrayType,
    CorruptTableError,
    DecimalType,
    MapType,
    PrimitiveType,
    SchemaMismatchError,
    StructField,
    StructType,
    merge_schemas,
)
from deltalog.protocol import schema
from tests.support.core import strategies

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")


def struct(**columns: object) -> StructType:
    return StructType(tuple(StructField(name, each) for name, each in columns.items()))  # type: ignore[arg-type]


@given(strategies.schemas((*strategies.STORED, "variant"), metadata=True))
def test_schemas_survive_their_json(table: StructType) -> None:
    text = table.to_json()
    assert StructType.from_json(text) == table
    assert StructType.from_json(text).to_json() == text
    assert StructType.from_json(json.dumps(json.loads(text), indent=1)) == table


def test_the_json_is_sparks() -> None:
    text = (
        '{"type":"struct","fields":['
        '{"name":"a","type":"long","nullable":true,"metadata":{}},'
        '{"name":"d","type":"decimal(10,2)","nullable":false,"metadata":{"comment":"c"}},'
        '{"name":"l","type":{"type":"array","elementType":"string","containsNull":false},"nullable":true,"metadata":{}},'
        '{"name":"m","type":{"type":"map","keyType":"string","valueType":"date","valueContainsNull":true},'
        '"nullable":true,"metadata":{}},'
        '{"name":"é","type":{"type":"struct","fields":['
        '{"name":"x","type":"timestamp_ntz","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}'
    )
    parsed = StructType.from_json(text)
    assert parsed.names == ["a", "d", "l", "m", "é"]
    assert parsed.field("d") == StructField("d", DecimalType(10, 2), False, {"comment": "c"})
    assert parsed.field("l").data_type == ArrayType(STRING, False)
    assert parsed.field("m").data_type == MapType(STRING, PrimitiveType("date"), True)
    assert parsed.to_json() == text


def test_lenient_spellings_are_read() -> None:
    text = '{"type":"struct","fields":[{"name":"a","type":"decimal"},{"name":"b","type":"decimal( 5 , 1 )"}]}'
    parsed = StructType.from_json(text)
    assert [f.data_type for f in parsed] == [DecimalType(10, 0), DecimalType(5, 1)]
    assert all(f.nullable and f.metadata == {} for f in parsed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "7",
        "[]",
        '"long"',
        '{"type":"array","elementType":"long","containsNull":true}',
        '{"type":"struct"}',
        '{"type":"struct","fields":[{"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a"}]}',
        '{"type":"struct","fields":[{"name":"a","type":"int64"}]}',
        '{"type":"struct","fields":[{"name":"a","type":{"type":"set"}}]}',
        '{"type":"struct","fields":[{"name":"a","type":7}]}',
        '{"type":"struct","fields":["a"]}',
        '{"type":"struct","fields":{}, "x":1',
    ],
)
def test_what_is_not_a_delta_schema_is_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match="schemaString"):
        StructType.from_json(text)


@pytest.mark.parametrize("depth", [200, 100_000])
def test_endless_nesting_is_refused(depth: int) -> None:
    deep = '{"type":"array","containsNull":true,"elementType":' * depth + '"long"' + "}" * depth
    with pytest.raises(CorruptTableError):
        StructType.from_json('{"type":"struct","fields":[{"name":"a","type":' + deep + "}]}")


def test_columns_are_found_whatever_their_case() -> None:
    table = struct(Id=LONG, name=STRING)
    assert table.field("ID").name == "Id"
    assert table.find("nope") is None
    with pytest.raises(SchemaMismatchError, match=r"no column 'nope'\. Columns: Id, name"):
        table.field("nope")
    twins = struct(a=LONG, A=STRING)
    assert (twins.field("a").data_type, twins.field("A").data_type) == (LONG, STRING)


def test_leaves_go_through_structs_only() -> None:
    table = struct(a=LONG, s=struct(x=struct(y=STRING), l=ArrayType(struct(z=LONG))), m=MapType(STRING, LONG))
    assert [".".join(path) for path, _ in schema.leaves(table)] == ["a", "s.x.y", "s.l", "m"]


@pytest.mark.parametrize(
    "column",
    [
        PrimitiveType("variant"),
        ArrayType(PrimitiveType("variant")),
        MapType(PrimitiveType("variant"), LONG),
        MapType(LONG, ArrayType(struct(x=PrimitiveType("variant")))),
    ],
)
def test_types_are_found_at_any_depth(column: object) -> None:
    assert schema.uses_type(struct(a=column), "variant")
    assert not schema.uses_type(struct(a=LONG, d=DecimalType(3, 1)), "variant")


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a;b", "a{", "a}", "a(", "a)", "a\nb", "a\tb", "a=b"])
@pytest.mark.parametrize("nest", [lambda s: s, lambda s: struct(o=s), lambda s: struct(o=ArrayType(s))])
def test_names_that_files_cannot_have(name: str, nest: object) -> None:
    with pytest.raises(SchemaMismatchError, match="Rename it"):
        schema.check_column_names(nest(struct(**{name: LONG})))  # type: ignore[operator]


@pytest.mark.parametrize(
    "nest", [lambda s: s, lambda s: struct(o=s), lambda s: struct(m=MapType(s, LONG)), lambda s: struct(l=ArrayType(s))]
)
def test_names_that_differ_in_case_only(nest: object) -> None:
    with pytest.raises(SchemaMismatchError, match="the same name up to case"):
        schema.check_column_names(nest(struct(a=LONG, A=LONG)))  # type: ignore[operator]


def test_a_name_used_twice() -> None:
    with pytest.raises(SchemaMismatchError, match="same name"):
        schema.check_column_names(StructType((StructField("a", LONG), StructField("a", LONG))))


def test_data_that_fits() -> None:
    table = struct(a=LONG, s=struct(x=LONG, y=STRING), l=ArrayType(LONG))
    schema.check_writable(table, table)
    schema.check_writable(table, struct(A=LONG))  # the rest is null
    schema.check_writable(table, struct(s=struct(Y=STRING)))
    schema.check_writable(table, struct(a=PrimitiveType("void")))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (struct(a=STRING), r"Column a is long in the table and string in the data.*Cast it to long"),
        (struct(a=PrimitiveType("float")), r"Column a is long in the table and float"),
        (struct(b=LONG), r"columns that the table has not: b\..*merge_schema=True"),
        (struct(s=struct(z=LONG)), r"the table has not: s\.z"),
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
        schema.check_writable(table, data)


def test_a_not_null_column_must_come() -> None:
    table = StructType((StructField("a", LONG, False), StructField("b", LONG)))
    with pytest.raises(SchemaMismatchError, match="Column a is NOT NULL and missing"):
        schema.check_writable(table, struct(b=LONG))


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
