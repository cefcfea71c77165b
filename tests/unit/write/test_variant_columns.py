"""The forms in which callers pass variants, at every depth."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltalog.errors import SchemaMismatchError
from deltalog.protocol.schema import VARIANT, ArrayType, MapType
from deltalog.schema import (
    PrimitiveType,
    StructField,
    StructType,
    variant_from_json,
    variant_from_python,
    variant_to_python,
)
from deltalog.write.variant_columns import encoded, interpreted

STRING = PrimitiveType("string")
TABLE = StructType((StructField("v", VARIANT),))
KIND = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary())])
EXTENSION = {"ARROW:extension:name": "arrow.parquet.variant"}
ONE, TWO = variant_from_python({"a": 1}), variant_from_python("x")


def python(values: Any) -> list[Any]:
    return [variant_to_python(each) for each in values.to_pylist()]


def through(values: Any, field: pa.Field | None = None) -> Any:
    """The variants of a column of callers' rows, in the form in which they are stored."""
    field = field or pa.field("v", values.type)
    batch = pa.RecordBatch.from_arrays([values], schema=pa.schema([field]))
    assert interpreted(batch.schema, TABLE) == TABLE
    found = encoded(batch, TABLE).column(0)
    assert found.type == KIND
    return found


VIEWS = pa.struct([("value", pa.binary_view()), ("metadata", pa.binary_view())])
LARGE = pa.struct([("value", pa.large_binary()), ("metadata", pa.large_binary())])


@pytest.mark.parametrize("kind", [KIND, VIEWS, LARGE], ids=["scan", "views", "large"])
def test_structs_of_metadata_and_value(kind: pa.DataType) -> None:
    values = pa.array([ONE, None, TWO], KIND)
    if kind != KIND:
        parts = [values.field(name).cast(kind.field(name).type) for name in ("value", "metadata")]
        values = pa.StructArray.from_arrays(parts, fields=list(kind.fields), mask=values.is_null())
    assert python(through(values)) == [{"a": 1}, None, "x"]
    assert python(through(values.slice(2))) == ["x"]


def test_structs_whose_parts_are_null_are_absent_variants() -> None:
    values = pa.array(
        [{"metadata": None, "value": None}, ONE], pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    )
    found = through(values)
    assert found.null_count == 1 and python(found) == [None, {"a": 1}]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_json_text(kind: pa.DataType) -> None:
    texts = pa.array(['{"a": [1, null]}', None, "null", '"x"'])
    values = texts.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else texts.cast(kind)
    found = through(values)
    assert python(found) == [{"a": [1, None]}, None, None, "x"]
    assert found.is_valid().to_pylist() == [True, False, True, True]
    assert found[2].as_py() == variant_from_json("null")


def test_values_that_are_all_null() -> None:
    assert through(pa.nulls(2)).null_count == 2


def test_arrows_extension_type_by_its_name() -> None:
    found = through(pa.array([ONE, None], KIND), pa.field("v", KIND, metadata=EXTENSION))
    assert python(found) == [{"a": 1}, None]
    shredded = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    rows = [{"metadata": b"\x01\x00\x00", "typed_value": 7}, {"metadata": b"\x01\x00\x00", "value": b"\x05x"}, None]
    assert python(through(pa.array(rows, shredded), pa.field("v", shredded, metadata=EXTENSION))) == [7, "x", None]


def test_a_schema_with_the_extension_type_has_a_variant() -> None:
    inner = pa.field("v", KIND, metadata=EXTENSION)
    schema = pa.schema(
        [
            inner,
            pa.field("s", pa.struct([inner])),
            pa.field("l", pa.list_(pa.field("element", KIND, metadata=EXTENSION))),
        ]
    )
    assert StructType.from_arrow(schema).fields == (
        StructField("v", VARIANT),
        StructField("s", StructType((StructField("v", VARIANT),))),
        StructField("l", ArrayType(VARIANT)),
    )


NESTED = StructType(
    (
        StructField("s", StructType((StructField("v", VARIANT), StructField("n", PrimitiveType("long"))))),
        StructField("l", ArrayType(VARIANT)),
        StructField("m", MapType(STRING, VARIANT)),
        StructField("t", STRING),
    )
)


def test_variants_at_every_depth() -> None:
    schema = pa.schema(
        [
            ("s", pa.struct([("V", pa.string()), ("n", pa.int8())])),
            ("l", pa.large_list(KIND)),
            ("m", pa.map_(pa.string(), pa.string())),
            ("t", pa.string()),
        ]
    )
    rows = [
        {"s": {"V": "[1]", "n": 1}, "l": [ONE, None], "m": [("k", "{}")], "t": "{}"},
        {"s": None, "l": None, "m": None, "t": None},
        {"s": {"V": None, "n": 2}, "l": [], "m": [("k", None), ("j", "1.5")], "t": "x"},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    types = [str(each.data_type) for each in interpreted(schema, NESTED).fields]
    assert types == ["struct<V:variant,n:byte>", "array<variant>", "map<string,variant>", "string"]
    for start in (0, 1):
        found = encoded(batch.slice(start), NESTED).to_pylist()
        assert (
            found
            == [
                {
                    "s": {"V": variant_from_json("[1]"), "n": 1},
                    "l": [ONE, None],
                    "m": [("k", variant_from_json("{}"))],
                    "t": "{}",
                },
                {"s": None, "l": None, "m": None, "t": None},
                {"s": {"V": None, "n": 2}, "l": [], "m": [("k", None), ("j", variant_from_json("1.5"))], "t": "x"},
            ][start:]
        )


def test_values_that_null_lists_hide_are_not_read() -> None:
    lists = pa.Array.from_buffers(
        pa.list_(pa.string()),
        2,
        [pa.py_buffer(b"\x02"), pa.array([0, 1, 2], pa.int32()).buffers()[1]],
        children=[pa.array(["no JSON", "1"])],
    )
    batch = pa.RecordBatch.from_arrays([lists], ["l"])
    assert [len(each or []) for each in encoded(batch, NESTED).to_pydict()["l"]] == [0, 1]


REFUSED: dict[str, tuple[Any, str]] = {
    "no JSON": (pa.array(["{", '{"a": 1}']), r"Column v .* '\{' .* not JSON"),
    "a name twice": (pa.array(['{"a": 1, "a": 2}']), "'a' twice"),
    "no variant": (
        pa.array([{"metadata": b"\x01\x00\x00", "value": b"\xff"}], KIND),
        "Column v .* not a variant: it ends early",
    ),
    "no metadata": (pa.array([{"metadata": b"", "value": b"\x00"}], KIND), "Column v .* not a variant"),
    "one part": (
        pa.array(
            [{"metadata": b"\x01\x00\x00", "value": None}],
            pa.struct([("metadata", pa.binary()), ("value", pa.binary())]),
        ),
        "its value is null",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_variant_is_refused_with_its_column(name: str) -> None:
    values, says = REFUSED[name]
    with pytest.raises(SchemaMismatchError, match=says):
        encoded(pa.RecordBatch.from_arrays([values], ["v"]), TABLE)


def test_other_types_are_not_variants() -> None:
    for kind in (
        pa.int64(),
        pa.struct([("a", pa.int64())]),
        pa.struct([("metadata", pa.binary()), ("value", pa.string())]),
    ):
        assert interpreted(pa.schema([("v", kind)]), TABLE).fields[0].data_type != VARIANT
    assert interpreted(pa.schema([("v", pa.string())]), TABLE, texts=False).fields[0].data_type == STRING
    assert interpreted(pa.schema([("v", KIND)]), None).fields[0].data_type != VARIANT
