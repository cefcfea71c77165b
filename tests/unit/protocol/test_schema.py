from __future__ import annotations

import json

import pytest
from hypothesis import given

from deltalog import CorruptTableError, SchemaMismatchError
from deltalog.protocol import arrow_types, schema
from deltalog.schema import ArrayType, DecimalType, MapType, PrimitiveType, StructField, StructType
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


@pytest.mark.parametrize("name", [*sorted(arrow_types.PRIMITIVES), "interval"])
def test_schemas_have_the_types_for_which_there_is_an_arrow_type(name: str) -> None:
    fields = [{"name": "c", "type": name, "nullable": True, "metadata": {}}]
    text = json.dumps({"type": "struct", "fields": fields})
    if name in arrow_types.PRIMITIVES:
        found = StructType.from_json(text)
        assert found.to_json() == json.dumps(json.loads(text), separators=(",", ":"))
        assert found.to_arrow().types == [arrow_types.PRIMITIVES[name]]
    else:
        with pytest.raises(CorruptTableError, match="unknown type"):
            StructType.from_json(text)


def test_the_names_of_types_are_those_of_arrow_types() -> None:
    assert arrow_types.PRIMITIVES.keys() == schema._PRIMITIVES
