"""Cases about reading values of all types, from files and as partition values."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from deltalog.conformance.builder import TableBuilder
from deltalog.conformance.case import READING, REFERENCE, Case, Row, Rows
from deltalog.conformance.cases.common import Cases

UTC = datetime.timezone.utc
_case = Cases("read", READING, "action-reconciliation")


def cases() -> Iterator[Case]:
    yield from _types()
    yield from _partitions()


# -------------------------------------------------------------------------------------- column types


_D = decimal.Decimal
# For each type, its Arrow type and the values of a column; every column also contains a null.
TYPES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "long": (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "integer": (pa.int32(), [0, 2**31 - 1, -(2**31)]),
    "short": (pa.int16(), [0, 2**15 - 1, -(2**15)]),
    "byte": (pa.int8(), [0, 127, -128]),
    "double": (pa.float64(), [0.0, 1.5, -1e300, 5e-324, float("inf"), float("-inf"), float("nan")]),
    "float": (pa.float32(), [0.0, 1.5, -0.25, float("inf"), float("nan")]),
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", " ", "a", "ü", "日本", "\u0000", "a\nb", "\U0001f600", "x" * 5000]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\xfe", b"abc"]),
    "date": (pa.date32(), [datetime.date(1970, 1, 1), datetime.date(2025, 2, 28), datetime.date(1900, 3, 1)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(2025, 1, 15, 12, 0, 0, 123456, UTC),
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        ],
    ),
    "small-decimal": (pa.decimal128(5, 2), [_D("0.00"), _D("999.99"), _D("-999.99")]),
    "medium-decimal": (pa.decimal128(18, 6), [_D("123456789012.654321"), _D("-0.000001")]),
    "large-decimal": (pa.decimal128(38, 10), [_D("1234567890123456789012345678.0123456789"), _D("-1.5000000000")]),
    "array": (pa.list_(pa.int64()), [[], [1], [1, None, 3]]),
    "array-of-arrays": (pa.list_(pa.list_(pa.string())), [[], [[]], [["a"], None, ["b", None]]]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": None}]),
    "struct-of-struct": (pa.struct([("a", pa.struct([("b", pa.int64())]))]), [{"a": {"b": 1}}, {"a": None}]),
    "array-of-structs": (pa.list_(pa.struct([("a", pa.int64())])), [[{"a": 1}, None, {"a": None}], []]),
}


def _with_number(values: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"id": number, "v": value} for number, value in enumerate([*values, None])]


def _types() -> Iterator[Case]:
    for name, (kind, values) in TYPES.items():
        rows = _with_number(values)

        def build(table: TableBuilder, kind: pa.DataType = kind, rows: list[dict[str, Any]] = rows) -> None:
            schema = pa.schema([("id", pa.int64()), ("v", kind)])
            table.commit(table.protocol(), table.metadata(schema), table.add(rows))

        yield _case(
            f"type-{name}", f"A column of the type {name}", build, Rows(rows), section="schema-serialization-format"
        )
    maps: list[dict[str, Any]] = [{"id": 0, "v": [("a", 1), ("b", None)]}, {"id": 1, "v": []}, {"id": 2, "v": None}]

    def mapped(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("v", pa.map_(pa.string(), pa.int64()))])
        table.commit(table.protocol(), table.metadata(schema), table.add(maps))

    yield _case("type-map", "A column of the type map", mapped, Rows(maps), section="map-type")

    def many(table: TableBuilder) -> None:
        schema = pa.schema([(f"c{n}", pa.int64()) for n in range(120)])
        table.commit(table.protocol(), table.metadata(schema), table.add([{f"c{n}": n for n in range(120)}]))

    yield _case("many-columns", "A table of 120 columns", many, Rows([{f"c{n}": n for n in range(120)}]))


# --------------------------------------------------------------------------------------- partition values


_PARTITIONS: dict[str, tuple[pa.DataType, list[tuple[str | None, Any]]]] = {
    "string": (pa.string(), [("a", "a"), ("A", "A"), ("ü", "ü"), ("a b", "a b"), ("x/y=z", "x/y=z"), ("100%", "100%")]),
    "long": (pa.int64(), [("0", 0), ("-5", -5), ("9223372036854775807", 2**63 - 1)]),
    "integer": (pa.int32(), [("7", 7), ("-2147483648", -(2**31))]),
    "boolean": (pa.bool_(), [("true", True), ("false", False)]),
    "date": (pa.date32(), [("2025-01-15", datetime.date(2025, 1, 15)), ("1969-12-31", datetime.date(1969, 12, 31))]),
    "decimal": (pa.decimal128(7, 2), [("1.50", _D("1.50")), ("-12345.67", _D("-12345.67"))]),
    "double": (pa.float64(), [("1.5", 1.5), ("-0.25", -0.25)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            ("2025-01-15 12:00:00", datetime.datetime(2025, 1, 15, 12, tzinfo=UTC)),
            ("2025-01-15 12:00:00.123456", datetime.datetime(2025, 1, 15, 12, 0, 0, 123456, UTC)),
        ],
    ),
    "timestamp-iso": (
        pa.timestamp("us", "UTC"),
        [("2025-01-15T12:00:00.123456Z", datetime.datetime(2025, 1, 15, 12, 0, 0, 123456, UTC))],
    ),
    "binary": (pa.binary(), [("abc", b"abc")]),
}


def _partitions() -> Iterator[Case]:
    section = "partition-value-serialization"
    for name, (kind, values) in _PARTITIONS.items():

        def build(table: TableBuilder, kind: pa.DataType = kind, values: list[tuple[Any, Any]] = values) -> None:
            schema = pa.schema([("id", pa.int64()), ("p", kind)])
            files = [table.add([{"id": n}], {"p": text}) for n, (text, _) in enumerate([*values, (None, None)])]
            table.commit(table.protocol(), table.metadata(schema, ["p"]), *files)

        rows: list[Row] = [{"id": n, "p": value} for n, (_, value) in enumerate([*values, (None, None)])]
        yield _case(
            f"partition-{name}", f"Partition values of the type {name}, and null", build, Rows(rows), section=section
        )

    def empty(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        table.commit(table.protocol(), table.metadata(schema, ["p"]), table.add([{"id": 0}], {"p": ""}))

    yield _case(
        "partition-empty-text",
        "An empty string is a null partition value",
        empty,
        Rows([{"id": 0, "p": None}]),
        section=section,
    )
    two: list[dict[str, Any]] = [{"id": 0, "p": "a", "q": 1}, {"id": 1, "p": "a", "q": 2}, {"id": 2, "p": None, "q": 1}]

    def pair(table: TableBuilder) -> None:
        schema = pa.schema([("p", pa.string()), ("id", pa.int64()), ("q", pa.int32())])
        files = [table.add([{"id": row["id"]}], {"p": row["p"], "q": str(row["q"])}) for row in two]
        table.commit(table.protocol(), table.metadata(schema, ["p", "q"]), *files)

    yield _case(
        "partition-two-columns",
        "Two partition columns, one on each side of another column",
        pair,
        Rows(two),
        section=section,
    )

    def contradicting(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        add = table.add([{"id": 0}], {"p": "right"}, path="p=wrong/part-0.parquet")
        table.commit(table.protocol(), table.metadata(schema, ["p"]), add)

    yield _case(
        "partition-directory-contradicts",
        "The partition value in a directory name is ignored",
        contradicting,
        Rows([{"id": 0, "p": "right"}]),
        section="data-files",
        rule="partition-directory-differs",
    )

    def inside(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        rows = pa.table({"id": pa.array([0], pa.int64()), "p": pa.array(["stale"])})
        table.commit(table.protocol(), table.metadata(schema, ["p"]), table.add(rows, {"p": "right"}))

    yield _case(
        "partition-column-in-file",
        "A file also contains the partition column: the value in the log is used",
        inside,
        Rows([{"id": 0, "p": "right"}]),
        section=section,
        basis=REFERENCE,
    )
