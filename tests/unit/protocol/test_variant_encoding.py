from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog.errors import CallError
from deltalog.protocol.variant import check, to_json
from deltalog.schema import variant_from_json, variant_from_python, variant_to_python
from tests.support.core.strategies import examples

UTC = datetime.timezone.utc
ID = uuid.UUID("f24f9b64-81fa-49d1-b74e-8c09a6e31c56")
EMPTY = b"\x01\x00\x00"


def round_trip(value: Any) -> Any:
    variant = variant_from_python(value)
    check(variant["metadata"], variant["value"])
    return variant_to_python(variant)


# The bytes are those of Spark 4.2's parse_json; tests/interop/test_interop_variants.py compares more of them.
BYTES: dict[str, tuple[bytes, bytes]] = {
    "null": (EMPTY, b"\x00"),
    "true": (EMPTY, b"\x04"),
    "false": (EMPTY, b"\x08"),
    "-128": (EMPTY, b"\x0c\x80"),
    "128": (EMPTY, b"\x10\x80\x00"),
    "32768": (EMPTY, b"\x14\x00\x80\x00\x00"),
    "2147483648": (EMPTY, b"\x18\x00\x00\x00\x80\x00\x00\x00\x00"),
    "9223372036854775808": (EMPTY, b"\x28\x00" + (2**63).to_bytes(16, "little")),
    "1.50": (EMPTY, b"\x20\x02\x96\x00\x00\x00"),
    "1e0": (EMPTY, b"\x1c\x00\x00\x00\x00\x00\x00\xf0\x3f"),
    '"é"': (EMPTY, b"\x09\xc3\xa9"),
    '[1, "x"]': (EMPTY, b"\x03\x02\x00\x02\x04\x0c\x01\x05x"),
    '{"b": 1, "a": {"b": 2}}': (
        b"\x01\x02\x00\x01\x02ba",
        b"\x02\x02\x01\x00\x02\x00\x09\x0c\x01\x02\x01\x00\x00\x02\x0c\x02",
    ),
    "{}": (EMPTY, b"\x02\x00\x00"),
    "[]": (EMPTY, b"\x03\x00\x00"),
}


@pytest.mark.parametrize("text", BYTES)
def test_json_has_the_bytes_of_spark(text: str) -> None:
    assert variant_from_json(text) == dict(zip(("metadata", "value"), BYTES[text], strict=True))


VALUES: list[Any] = [
    None, True, False, 0, -1, 127, 128, -32769, 2**31, -(2**63), 2**63, 10**37, 0.5, -0.0, math.inf, "",
    "x" * 63, "é" * 40,
    b"", b"\x00\xff", ID, decimal.Decimal("-1.50"), decimal.Decimal("0." + "0" * 37 + "1"), decimal.Decimal("9" * 38),
    datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.time(23, 59, 59, 999_999),
    datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), [], {}, [[[None]]],
    {"b": [1, {"a": None}], "a": "x"}, {str(number): number for number in range(300)}, list(range(300)),
    {"x" * 300: ["y" * 70_000] * 2},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_python_values_of_every_type(value: Any) -> None:
    found = round_trip(value)
    assert found == value and type(found) is (
        decimal.Decimal if value in (2**63, 10**37) and value is not True else type(value)
    )


def test_other_spellings_of_values() -> None:
    assert round_trip((1, bytearray(b"a"), memoryview(b"b"))) == [1, b"a", b"b"]
    assert round_trip(np.int16(7)) == 7 and round_trip(np.float32(0.5)) == 0.5 and round_trip(np.bool_(True)) is True
    assert round_trip(decimal.Decimal("1E+3")) == 1000 and round_trip(decimal.Decimal("0E+90")) == 0
    here = datetime.datetime(2020, 1, 1, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=5)))
    assert round_trip(here) == datetime.datetime(2020, 1, 1, tzinfo=UTC)
    assert math.isnan(round_trip(math.nan))


deep: Any = 1
for _ in range(201):
    deep = [deep]
REFUSED: dict[str, tuple[Any, str]] = {
    "a set": ({1}, "contains a set"),
    "a name that is not text": ({1: 2}, "not text"),
    "an integer of too many digits": (10**38, "more than 38 digits"),
    "a very large integer": (1 << 4000, "more than 38 digits"),
    "a decimal of too many digits": (decimal.Decimal("1." + "1" * 38), "more than 38 digits"),
    "a decimal of too large an exponent": (decimal.Decimal("1E+999999"), "more than 38 digits"),
    "no decimal": (decimal.Decimal("NaN"), "the decimal NaN"),
    "half of a surrogate pair": ("\ud800", "surrogate"),
    "such a name": ({"\ud800": 1}, "surrogate"),
    "a time with a zone": (datetime.time(1, tzinfo=UTC), "time zone"),
    "too much depth": (deep, "deeper than 200"),
    "too many bytes": (bytes(1 << 24), "at most 16777216"),
    "too many bytes together": (["x" * (1 << 23)] * 3, "at most 16777216"),
    "an object of another library": (np.datetime64("2020-01-01"), "datetime64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_no_variant_can_have_are_refused(name: str) -> None:
    value, says = REFUSED[name]
    with pytest.raises(CallError, match=says):
        variant_from_python(value)


NO_JSON: dict[str, tuple[str, str]] = {
    "nothing": ("", "not JSON"),
    "two values": ("1 2", "not JSON"),
    "a word": ("abc", "not JSON"),
    "a constant of Python": ("NaN", "NaN is not a number"),
    "an infinite number": ("[-Infinity]", "-Infinity is not a number"),
    "a name twice": ('{"a": 1, "a": 2}', "'a' twice"),
    "an object that ends early": ('{"a": 1', "not JSON"),
    "half of a surrogate pair": ('"\\ud800"', "surrogate"),
    "too much depth": ("[" * 100_000, "deeper than 200"),
    "some depth": ("[" * 202 + "]" * 202, "deeper than 200"),
}


@pytest.mark.parametrize("name", NO_JSON)
def test_text_that_is_not_json_is_refused(name: str) -> None:
    text, says = NO_JSON[name]
    with pytest.raises(CallError, match=says):
        variant_from_json(text)


def test_numbers_of_json() -> None:
    for text, value in {
        "0.1": decimal.Decimal("0.1"),
        "-0.10": decimal.Decimal("-0.10"),
        "1" * 38: decimal.Decimal("1" * 38),
        "1" * 39: float("1" * 39),
        "0." + "1" * 38: decimal.Decimal("0." + "1" * 38),
        "0." + "1" * 39: float("0." + "1" * 39),
        "1E2": 100.0,
        "1e999": math.inf,
        "9" * 5000: math.inf,
        "-9223372036854775808": -(2**63),
    }.items():
        found = variant_to_python(variant_from_json(text))
        assert (found, type(found)) == (value, type(value)), text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
)


@settings(max_examples=examples(100), deadline=None)
@given(JSON, st.booleans())
def test_any_json_is_the_same_after_a_round_trip(value: Any, is_ascii: bool) -> None:
    variant = variant_from_json(json.dumps(value, ensure_ascii=is_ascii))
    check(variant["metadata"], variant["value"])
    assert variant_to_python(variant) == value
    assert json.loads(to_json(variant["metadata"], variant["value"])) == value
    assert variant_from_python(value) == variant
