"""Rows with columns and partitions of every possible type, including extreme values and nulls."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = dt.timezone.utc
PERSON = pa.struct([("name", pa.string()), ("address", pa.struct([("street", pa.string()), ("no", pa.int32())]))])
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False, None]),
    "tiny": (pa.int8(), [-128, 127, None]),
    "small": (pa.int16(), [-32768, 32767, None]),
    "whole": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "big": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "real": (pa.float32(), [-1.5, float("inf"), None]),
    "exact": (pa.float64(), [1e300, float("nan"), None]),
    "money": (pa.decimal128(10, 2), [Decimal("-12345678.90"), Decimal("0.01"), None]),
    "wide": (pa.decimal128(38, 18), [Decimal("12345678901234567890.123456789012345678"), Decimal(0), None]),
    "words": (pa.string(), ["ä€😀 " + "long " * 20, "", None]),
    "raw": (pa.binary(), [b"\x00\xff", b"", None]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), dt.datetime(2026, 11, 20, 1, 2, 3, 456_789, UTC), None],
    ),
    "person": (
        PERSON,
        [{"name": "Ann", "address": {"street": "High St", "no": 7}}, {"name": None, "address": None}, None],
    ),
    "numbers": (pa.list_(pa.int32()), [[1, None, 3], [], None]),
    "pairs": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], [], None]),
    "people": (pa.list_(PERSON), [[{"name": "Bo", "address": None}, None], [], None]),
    "deep": (pa.map_(pa.string(), pa.list_(pa.float64())), [[("x", [1.0, None])], [("y", None)], None]),
}
ROWS = pa.table({name: pa.array(values, kind) for name, (kind, values) in COLUMNS.items()})
PARTITIONABLE = ["flag", "tiny", "small", "whole", "big", "real", "money", "words", "day", "moment"]
