from __future__ import annotations

import datetime
import decimal
import json
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog.errors import InvalidDataFileError
from deltalog.protocol import limits
from deltalog.protocol.variant import check, to_json
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


FLOATS = [
    (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-1.25, "-1.25"), (123456.789, "123456.789"), (9999999.0, "9999999.0"),
    (1e7, "1.0E7"), (12345678.9, "1.23456789E7"), (0.001, "0.001"), (0.00099, "9.9E-4"), (1e300, "1.0E300"),
    (5e-324, "4.9E-324"), (1.7976931348623157e308, "1.7976931348623157E308"), (100.0, "100.0"), (0.05, "0.05"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), FLOATS)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    found = to_json(EMPTY, primitive(7, struct.pack("<d", value)))
    assert float(found) == value and (found == text or value == 5e-324)


def test_decimals_are_written_without_zeros_at_their_end() -> None:
    for scale, unscaled, text in ((2, 150, "1.5"), (2, 100, "1"), (0, 100, "100"), (3, 0, "0"), (1, -20, "-2")):
        assert to_json(EMPTY, primitive(8, bytes([scale]) + struct.pack("<i", unscaled))) == text


def test_escapes_are_written_as_spark_writes_them() -> None:
    text = "\x0b\x1f\\u001f\\\n"
    value = bytes([len(text) << 2 | 1]) + text.encode()
    assert to_json(EMPTY, value) == '"\\u000B\\u001F\\\\u001f\\\\\\n"'
    assert json.loads(to_json(EMPTY, value)) == text


def test_a_long_name_that_is_repeated_often_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    item = b"\x02\x01\x00\x00\x01\x00"
    ends = b"".join((len(item) * n).to_bytes(2, "little") for n in range(201))
    value = b"\x07\xc8" + ends + item * 200
    metadata = names("n" * 1000, width=2)
    assert len(to_json(metadata, value)) > 200_000
    monkeypatch.setattr(limits, "MAX_VARIANT_TEXT_CHARS", 100_000)
    with pytest.raises(InvalidDataFileError, match="MAX_VARIANT_TEXT_CHARS"):
        to_json(metadata, value)


def test_a_long_string_that_is_shared_by_many_elements_is_refused() -> None:
    text = primitive(16, struct.pack("<I", 1000) + b"x" * 1000)
    shared = b"\x0f\x02" + struct.pack("<3I", 0, 0, len(text)) + text
    with pytest.raises(InvalidDataFileError, match="overlap"):
        python(shared)


UNFIT = {
    "an object whose names are not in order": (b"\x02\x02\x01\x00\x00\x01\x02\x00\x00", "not in order"),
    "an object with a name twice": (b"\x02\x02\x00\x00\x00\x01\x02\x00\x00", "not unique"),
    "bytes after the value": (b"\x00\x00", "belong to no value"),
    "a gap between elements": (b"\x03\x02\x00\x02\x03\x00\x00\x00", "offset"),
    "a wrong last offset": (b"\x03\x01\x00\x02\x00\x00", "last offset"),
    "an element outside": (b"\x03\x01\x09\x01\x00", "ends early"),
    "a name that is not there": (b"\x02\x01\x07\x00\x01\x00", "name that its metadata lacks"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_values_that_other_readers_would_misread_do_not_pass_the_check(name: str) -> None:
    value, says = UNFIT[name]
    with pytest.raises(ValueError, match=says):
        check(names("a", "b"), value)


def test_values_that_python_cannot_represent_pass_the_check() -> None:
    check(EMPTY, primitive(11, struct.pack("<i", 2**31 - 1)))
    check(EMPTY, primitive(12, struct.pack("<q", 2**63 - 1)))
    for value in (b"\x00\x00", b"\x03\x01\x00\x02\x00\x00"):
        check(EMPTY, value, is_strict=False)
    with pytest.raises(ValueError, match="early"):
        check(EMPTY, b"\x18\x00", is_strict=False)
    with pytest.raises(ValueError, match="at most"):
        check(EMPTY, primitive(15, struct.pack("<I", 1 << 24) + bytes(1 << 24)))


@pytest.mark.parametrize(("value", "expected", "text"), PRIMITIVES)
def test_values_of_every_type_pass_the_check(value: bytes, expected: Any, text: str) -> None:
    check(EMPTY, value)
