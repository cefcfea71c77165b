from __future__ import annotations

import datetime
import decimal
import json
import struct
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog.errors import InvalidDataFileError
from deltalog.protocol.variant import to_json, unshred
from deltalog.schema import variant_to_python
from tests.support.core.strategies import examples

UTC = datetime.timezone.utc
EMPTY = b"\x01\x00\x00"
ID = uuid.UUID("f24f9b64-81fa-49d1-b74e-8c09a6e31c56")


def names(*fields: str, width: int = 1) -> bytes:
    """Variant metadata with these field names."""
    texts = [name.encode() for name in fields]
    ends = [sum(map(len, texts[:i])) for i in range(len(texts) + 1)]
    numbers = b"".join(n.to_bytes(width, "little") for n in (len(texts), *ends))
    return bytes([1 | (width - 1) << 6]) + numbers + b"".join(texts)


def python(value: bytes, metadata: bytes = EMPTY) -> Any:
    return variant_to_python({"metadata": metadata, "value": value})


def primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind << 2]) + data


MICROS = -62_135_596_800_000_000  # year 1
MOMENT = datetime.datetime(1, 1, 1)
PRIMITIVES: list[tuple[bytes, Any, str]] = [
    (primitive(0), None, "null"),
    (primitive(1), True, "true"),
    (primitive(2), False, "false"),
    (primitive(3, b"\x80"), -128, "-128"),
    (primitive(4, struct.pack("<h", -32768)), -32768, "-32768"),
    (primitive(5, struct.pack("<i", 2**31 - 1)), 2**31 - 1, "2147483647"),
    (primitive(6, struct.pack("<q", -(2**63))), -(2**63), "-9223372036854775808"),
    (primitive(7, struct.pack("<d", 0.1)), 0.1, "0.1"),
    (primitive(7, struct.pack("<d", float("inf"))), float("inf"), '"Infinity"'),
    (primitive(7, struct.pack("<d", float("-inf"))), float("-inf"), '"-Infinity"'),
    (primitive(8, b"\x02" + struct.pack("<i", -1234)), decimal.Decimal("-12.34"), "-12.34"),
    (primitive(9, b"\x12" + struct.pack("<q", 1)), decimal.Decimal("0." + "0" * 17 + "1"), "0." + "0" * 17 + "1"),
    (
        primitive(10, b"\x26" + (10**38 - 1).to_bytes(16, "little", signed=True)),
        decimal.Decimal("0." + "9" * 38),
        "0." + "9" * 38,
    ),
    (primitive(11, struct.pack("<i", -719162)), datetime.date(1, 1, 1), '"0001-01-01"'),
    (primitive(12, struct.pack("<q", MICROS)), MOMENT.replace(tzinfo=UTC), '"0001-01-01 00:00:00+00:00"'),
    (
        primitive(13, struct.pack("<q", MICROS + 500_000)),
        MOMENT.replace(microsecond=500_000),
        '"0001-01-01 00:00:00.5"',
    ),
    (primitive(14, struct.pack("<f", 1.5)), 1.5, "1.5"),
    (primitive(14, struct.pack("<f", 1.1)), struct.unpack("<f", struct.pack("<f", 1.1))[0], "1.1"),
    (primitive(15, struct.pack("<I", 2) + b"\x00\xff"), b"\x00\xff", '"AP8="'),
    (primitive(16, struct.pack("<I", 2) + "é".encode()), "é", '"é"'),
    (primitive(17, struct.pack("<q", 86_399_999_999)), datetime.time(23, 59, 59, 999_999), '"23:59:59.999999"'),
    (
        primitive(18, struct.pack("<q", -1)),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        '"1969-12-31 23:59:59.999999999+00:00"',
    ),
    (
        primitive(19, struct.pack("<q", 1_500)),
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1),
        '"1970-01-01 00:00:00.0000015"',
    ),
    (primitive(20, ID.bytes), ID, f'"{ID}"'),
    (b"\x01", "", '""'),
    (b"\x19" + b'q"\\\n\x00x', 'q"\\\n\x00x', '"q\\"\\\\\\n\\u0000x"'),
]


@pytest.mark.parametrize(("value", "expected", "text"), PRIMITIVES)
def test_values_of_every_type(value: bytes, expected: Any, text: str) -> None:
    found = python(value)
    assert (found, type(found)) == (expected, type(expected))
    assert to_json(EMPTY, value) == text


def test_not_a_number() -> None:
    value = primitive(7, struct.pack("<d", float("nan")))
    assert python(value) != python(value)
    assert to_json(EMPTY, value) == '"NaN"'


def test_no_variant_is_none() -> None:
    assert variant_to_python(None) is None


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_offsets_of_every_width(width: int) -> None:
    offsets = b"".join(n.to_bytes(width, "little") for n in (2, 0, 4))
    ids = b"".join(n.to_bytes(width, "little") for n in (1, 0))
    header = bytes([((width - 1) << 2 | (width - 1)) << 2 | 2])
    # "b" is stored after "a": fields are ordered by name, but values may be in any order.
    value = header + b"\x02" + ids + offsets + b"\x0c\x01" + b"\x0c\x02"
    assert python(value, names("b", "a", width=width)) == {"a": 2, "b": 1}
    array = (
        bytes([(width - 1) << 2 | 3]) + b"\x02" + b"".join(n.to_bytes(width, "little") for n in (0, 1, 2)) + b"\x00\x04"
    )
    assert python(array) == [None, True]


LAUGHS = b"\x00"
for _ in range(40):
    # Both elements of each array are at the same offset, so a full decoding would produce 2**40 nested values.
    LAUGHS = b"\x0f\x02" + struct.pack("<3I", 0, 0, len(LAUGHS)) + LAUGHS
MALFORMED = {
    "nothing": b"",
    "an unknown type": primitive(21),
    "a number that ends early": b"\x18\x00",
    "a string that ends early": primitive(16, struct.pack("<I", 2**32 - 1)),
    "a short string that ends early": b"\xfdx",
    "text that is no UTF-8": b"\x05\xff",
    "an object with a name that is not there": b"\x02\x01\x07\x00\x01\x00",
    "an array that ends early": b"\x13\xff\xff\xff\xff",
    "an object that ends early": b"\x42\xff\xff\xff\x7f",
    "an element outside": b"\x03\x01\x09\x01\x00",
    "a decimal of a scale that no decimal has": primitive(8, b"\xff\x01\x00\x00\x00"),
    "a date after the year 9999": primitive(11, struct.pack("<i", 2**31 - 1)),
    "a timestamp after the year 9999": primitive(12, struct.pack("<q", 2**63 - 1)),
    "a time after midnight": primitive(17, struct.pack("<q", 86_400_000_000)),
    "elements that overlap": LAUGHS,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_values_are_refused(name: str) -> None:
    for read in (python, lambda value: to_json(EMPTY, value)):
        with pytest.raises(InvalidDataFileError, match="malformed"):
            read(MALFORMED[name])


@pytest.mark.parametrize("metadata", [b"", b"\x01", b"\x02\x00\x00", b"\xc1\xff\xff\xff\xff", b"\x01\x01\x00\x09a"])
def test_malformed_metadata_is_refused(metadata: bytes) -> None:
    with pytest.raises(InvalidDataFileError, match="malformed"):
        python(b"\x00", metadata)


def test_deep_values_are_refused_instead_of_ending_the_process() -> None:
    value = b"\x00"
    for _ in range(5000):
        value = b"\x0f\x01" + struct.pack("<2I", 0, len(value)) + value
    with pytest.raises(InvalidDataFileError, match="deeper"):
        python(value)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=40), st.sampled_from([EMPTY, names("a", "b"), names(*"abcdefgh", width=3)]))
def test_any_bytes_are_a_variant_or_refused(value: bytes, metadata: bytes) -> None:
    try:
        found = python(value, metadata)
        text = to_json(metadata, value)
    except InvalidDataFileError:
        return
    assert (json.loads(text) is None) == (found is None)


# -------------------------------------------------------------------------------------------- shredded variants


def rebuilt(rows: list[Any], typed: pa.DataType, metadata: bytes = EMPTY) -> list[Any]:
    """The values reconstructed from ``value`` and ``typed_value``."""
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)])
    column = pa.array([None if row is None else {"metadata": metadata, **row} for row in rows], kind)
    return [None if v is None else python(v, metadata) for v in unshred(column)]


MOMENTS = [datetime.datetime(1960, 1, 2, 3, 4, 5, 678_901)]
ZONED = [moment.replace(tzinfo=UTC) for moment in MOMENTS]
TYPED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128]),
    (pa.int16(), [-32768]),
    (pa.int32(), [2**31 - 1]),
    (pa.int64(), [-(2**63)]),
    (pa.float32(), [1.5]),
    (pa.float64(), [0.1]),
    (pa.decimal128(9, 2), [decimal.Decimal("-1234567.89")]),
    (pa.decimal128(18, 2), [decimal.Decimal("1234567890123456.78")]),
    (pa.decimal128(38, 38), [decimal.Decimal("0." + "9" * 38)]),
    (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    (pa.time64("us"), [datetime.time(23, 59, 59, 999_999)]),
    (pa.timestamp("us", "UTC"), ZONED),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("ns", "UTC"), ZONED),
    (pa.timestamp("ns"), MOMENTS),
    (pa.string(), ["", "short", "x" * 63, "x" * 64]),
    (pa.large_string(), ["é"]),
    (pa.binary(), [b"", b"\x00\xff"]),
    (pa.dictionary(pa.int32(), pa.string()), ["again", "again"]),
]


@pytest.mark.parametrize(("kind", "values"), TYPED, ids=[str(kind) for kind, _ in TYPED])
def test_typed_values_of_every_type(kind: pa.DataType, values: list[Any]) -> None:
    rows = [*({"typed_value": value} for value in values), {"value": b"\x05x"}, {"value": b"\x00"}, {}, None]
    assert rebuilt(rows, kind) == [*values, "x", None, None, None]


def test_uuids() -> None:
    assert rebuilt([{"typed_value": ID.bytes}], pa.binary(16)) == [ID]


def group(typed: pa.DataType) -> pa.DataType:
    return pa.struct([("value", pa.binary()), ("typed_value", typed)])


ONE, TWO = b"\x0c\x01", b"\x0c\x02"


def test_arrays_of_arrays() -> None:
    kind = pa.list_(group(pa.list_(group(pa.int8()))))
    inner = [{"typed_value": 1}, {"value": b"\x05x"}, {}]
    rows = [{"typed_value": [{"typed_value": inner}, {"value": ONE}, {"typed_value": []}]}, {"typed_value": []}, None]
    assert rebuilt(rows, kind) == [[[1, "x", None], 1, []], [], None]


def test_arrays_of_many_elements() -> None:
    rows = [{"typed_value": [{"typed_value": f"{i:030d}"} for i in range(70_000)]}]
    assert rebuilt(rows, pa.list_(group(pa.string()))) == [[f"{i:030d}" for i in range(70_000)]]


def test_objects_with_fields_that_are_absent_null_or_of_another_type() -> None:
    kind = pa.struct([("b", group(pa.int8())), ("é", group(pa.string()))])
    metadata = names("é", "b", "rest")
    rest = b"\x02\x01\x02\x00\x02" + TWO
    rows = [
        {"typed_value": {"b": {"typed_value": 1}, "é": {"typed_value": "x"}}},
        {"typed_value": {"b": {"value": b"\x00"}, "é": {}}, "value": rest},
        {"typed_value": {"b": {}, "é": {}}},
        {"value": b"\x05x"},
        {"value": b"\x02\x01\x01\x00\x02" + ONE},
    ]
    found = rebuilt(rows, kind, metadata)
    assert found == [{"b": 1, "é": "x"}, {"b": None, "rest": 2}, {}, "x", {"b": 1}]
    assert list(found[0]) == ["b", "é"]


def test_a_field_that_is_stored_twice_is_the_typed_one() -> None:
    rest = b"\x02\x01\x00\x00\x02" + TWO
    rows = [{"typed_value": {"a": {"typed_value": 1}}, "value": rest}]
    assert rebuilt(rows, pa.struct([("a", group(pa.int8()))]), names("a")) == [{"a": 1}]


def test_objects_of_many_fields() -> None:
    fields = [f"field{i:04d}" for i in range(300)]
    kind = pa.struct([(name, group(pa.int64())) for name in fields])
    rows = [{"typed_value": {name: {"typed_value": i} for i, name in enumerate(fields)}}]
    expected = {name: i for i, name in enumerate(fields)}
    assert rebuilt(rows, kind, names(*fields, width=2)) == [expected]


def test_slices_and_nulls_that_hide_values() -> None:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.list_(group(pa.int8())))])
    rows = [{"metadata": EMPTY, "typed_value": [{"typed_value": i}] * i} for i in range(5)]
    column = pa.array(rows, kind)
    expected = [[i] * i for i in range(5)]
    assert [python(v or b"") for v in unshred(column[2:4])] == expected[2:4]
    hidden = pa.StructArray.from_arrays(
        [column.field(i) for i in range(3)], fields=list(kind), mask=pa.array([i == 3 for i in range(5)])
    )
    assert [None if v is None else python(v) for v in unshred(hidden)] == [*expected[:3], None, expected[4]]


REFUSED: dict[str, tuple[Any, pa.DataType]] = {
    "a field that the metadata lacks": (
        {"typed_value": {"a": {"typed_value": 1}}},
        pa.struct([("a", group(pa.int8()))]),
    ),
    "a rest that is no object": ({"typed_value": {"a": {}}, "value": ONE}, pa.struct([("a", group(pa.int8()))])),
    "a type that no variant has": ({"typed_value": 1}, pa.uint8()),
    "no metadata": ({"metadata": None, "typed_value": 1}, pa.int8()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_shredded_values_that_contradict_themselves_are_refused(name: str) -> None:
    row, kind = REFUSED[name]
    with pytest.raises(InvalidDataFileError, match="malformed"):
        rebuilt([row], kind)
