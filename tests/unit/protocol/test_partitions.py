from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltalog import CorruptTableError, SchemaMismatchError
from deltalog.protocol import partitions
from deltalog.protocol.schema import ArrayType
from deltalog.schema import DecimalType, PrimitiveType, StructField, StructType
from tests.support.core import strategies

UTC = datetime.timezone.utc
_floats32 = st.floats(width=32)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(min_size=1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "byte": st.integers(-128, 127),
    "float": _floats32,
    "double": st.floats(),
    "boolean": st.booleans(),
    "binary": st.text(min_size=1).map(str.encode),  # only text, because readers decode a partition value as UTF-8
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b and type(a) is type(b))


@pytest.mark.parametrize("name", sorted(VALUES))
@given(data=st.data())
def test_values_survive_their_text(name: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[name])
    text = partitions.serialize(value, PrimitiveType(name))
    assert isinstance(text, str) and text
    assert same(partitions.parse(text, PrimitiveType(name), "p"), value)


@given(st.data())
def test_decimals_survive_their_text(data: st.DataObject) -> None:
    kind = data.draw(strategies.decimals)
    unscaled = data.draw(st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1))
    value = decimal.Decimal(unscaled).scaleb(-kind.scale, context=decimal.Context(prec=76))
    text = partitions.serialize(value, kind)
    assert text is not None and "E" not in text
    parsed = partitions.parse(text, kind, "p")
    assert parsed == value and parsed.as_tuple().exponent == -kind.scale


@given(st.datetimes(timezones=st.timezones(), min_value=datetime.datetime(2, 1, 1)))
@example(datetime.datetime(2, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=14))))
def test_timestamps_are_written_in_utc(moment: datetime.datetime) -> None:
    text = partitions.serialize(moment, PrimitiveType("timestamp"))
    assert text is not None and text.endswith("Z") and len(text) == 27
    assert partitions.parse(text, PrimitiveType("timestamp"), "p") == moment.astimezone(UTC)


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (None, "long", None),
        ("", "string", None),
        (True, "boolean", "true"),
        (b"\x00A\xc3\xbf", "binary", "\x00A\xff"),
        (datetime.date(1, 2, 3), "date", "0001-02-03"),
        (datetime.datetime(1, 2, 3, tzinfo=UTC), "timestamp", "0001-02-03T00:00:00.000000Z"),
        (datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "timestamp", "9999-12-31T23:59:59.999999Z"),
        (datetime.datetime(1, 2, 3, 4, 5, 6), "timestamp_ntz", "0001-02-03 04:05:06"),
        (datetime.datetime(1, 2, 3, 4, 5, 6, 7), "timestamp_ntz", "0001-02-03 04:05:06.000007"),
        (decimal.Decimal("1E+3"), "decimal", "1000"),
    ],
)
def test_the_text_of_values(value: Any, name: str, text: str | None) -> None:
    kind = DecimalType(10, 0) if name == "decimal" else PrimitiveType(name)
    assert partitions.serialize(value, kind) == text


def test_binary_values_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="in hex"):
        partitions.serialize(b"\x00\xff", PrimitiveType("binary"))


@pytest.mark.parametrize("name", sorted(VALUES))
@pytest.mark.parametrize("text", [None, ""])
def test_nothing_and_the_empty_text_are_null(name: str, text: str | None) -> None:
    assert partitions.parse(text, PrimitiveType(name), "p") is None


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("2021-01-01 10:00:00", "timestamp", datetime.datetime(2021, 1, 1, 10, tzinfo=UTC)),
        ("2021-01-01 10:00:00.5", "timestamp", datetime.datetime(2021, 1, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("2021-01-01T10:00:00+02:00", "timestamp", datetime.datetime(2021, 1, 1, 8, tzinfo=UTC)),
        ("2021-01-01", "timestamp_ntz", datetime.datetime(2021, 1, 1)),
        ("2021-01-01 00:00:00", "date", datetime.date(2021, 1, 1)),
        ("TRUE", "boolean", True),
        ("NaN", "double", math.nan),
        ("-Infinity", "double", -math.inf),
        ("1.0E10", "double", 1e10),
        ("\xe9", "binary", "\xe9".encode()),
    ],
)
def test_spellings_of_other_writers(text: str, name: str, value: Any) -> None:
    assert same(partitions.parse(text, PrimitiveType(name), "p"), value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x", "long"),
        ("1.5", "integer"),
        ("yes", "boolean"),
        ("2021-13-01", "date"),
        ("2021-01-01", "long"),
        ("noon", "timestamp"),
        ("0001-01-01 00:00:00+14:00", "timestamp"),
        ("x", "double"),
    ],
)
def test_text_of_another_type_names_the_column(text: str, name: str) -> None:
    with pytest.raises(CorruptTableError, match=f"of column p is not a {name}") as caught:
        partitions.parse(text, PrimitiveType(name), "p")
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["x", "", "1e99"])
def test_decimals_that_are_none(text: str) -> None:
    if not text:
        assert partitions.parse(text, DecimalType(5, 2), "p") is None
        return
    with pytest.raises(CorruptTableError, match="column p"):
        partitions.parse(text, DecimalType(5, 2), "p")


def test_nested_types_have_no_text() -> None:
    with pytest.raises(CorruptTableError, match="cannot be a partition column"):
        partitions.parse("x", ArrayType(PrimitiveType("long")), "p")


TABLE = StructType(
    (
        StructField("Year", PrimitiveType("integer")),
        StructField("l", ArrayType(PrimitiveType("long"))),
        StructField("v", PrimitiveType("variant")),
        StructField("x", PrimitiveType("string")),
    )
)


def test_partition_columns_take_the_names_of_the_schema() -> None:
    assert partitions.check_partition_columns(TABLE, ["YEAR"]) == ("Year",)
    assert partitions.check_partition_columns(TABLE, []) == ()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["nope"], "column 'nope' is not among"),
        (["l"], "cannot partition"),
        (["v"], "cannot partition"),
        (["Year", "x", "year"], "twice"),
    ],
)
def test_columns_that_cannot_partition(columns: list[str], says: str) -> None:
    with pytest.raises(SchemaMismatchError, match=says):
        partitions.check_partition_columns(TABLE, columns)


def test_one_column_is_left_for_the_data() -> None:
    with pytest.raises(SchemaMismatchError, match="at least one must remain"):
        partitions.check_partition_columns(StructType(TABLE.fields[:1]), ["Year"])


@pytest.mark.parametrize(
    ("values", "directory"),
    [
        ({}, ""),
        ({"a": "1", "b": "x y"}, "a=1/b=x%20y"),
        ({"a": None}, "a=__HIVE_DEFAULT_PARTITION__"),
        ({"a": "../b"}, "a=..%2Fb"),
        ({"a": "50%"}, "a=50%25"),
        ({"a": "x\ny\x00"}, "a=x%0Ay%00"),
        ({"a": "10:00"}, "a=10%3A00"),
        ({"a": "é"}, "a=é"),
    ],
)
def test_directories(values: dict[str, str | None], directory: str) -> None:
    assert partitions.directory(values) == directory


@given(st.dictionaries(st.sampled_from("ab"), st.none() | st.text(min_size=1), min_size=1))
def test_a_directory_never_leaves_the_table(values: dict[str, str | None]) -> None:
    segments = partitions.directory(values).split("/")
    assert len(segments) == len(values)
    for segment, name in zip(segments, values, strict=True):
        assert segment.startswith(f"{name}=") and "\\" not in segment and segment not in (".", "..")
        assert not any(ord(c) < 32 or ord(c) == 127 for c in segment)


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        ("byte", "128"), ("short", "-32769"), ("integer", "2147483648"), ("long", str(2**63)), ("long", "9" * 5000),
        ("long", "1_0"), ("long", "٣"), ("long", "1.0"), ("double", "1_0"), ("double", "0x1"), ("float", "1e"),
        ("date", "20260101"), ("date", "2026-W01-1"), ("date", "2026-01-01x"), ("date", "2026-02-30"),
    ],
)  # fmt: skip
def test_what_only_python_takes_for_a_value_is_refused(data_type: str, text: str) -> None:
    with pytest.raises(CorruptTableError, match="is not a"):
        partitions.parse(text, PrimitiveType(data_type), "p")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1_0", "123456789.00", "1e99999999"])
def test_decimals_that_the_type_cannot_hold_are_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match="is not a"):
        partitions.parse(text, DecimalType(10, 2), "p")


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        ("byte", "-128", -128), ("long", str(-(2**63)), -(2**63)), ("integer", " 5 ", 5), ("long", "+7", 7),
        ("double", "1.0E300", 1e300), ("double", ".5", 0.5), ("float", "-Infinity", float("-inf")),
        ("date", "2026-01-02 03:04:05", datetime.date(2026, 1, 2)), ("date", "0001-01-01", datetime.date(1, 1, 1)),
    ],
)  # fmt: skip
def test_the_forms_that_writers_use_are_read(data_type: str, text: str, value: object) -> None:
    assert partitions.parse(text, PrimitiveType(data_type), "p") == value
