"""Functions that damage the variants in data files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog import DeltaTable
from deltalog.schema import PrimitiveType, StructField, StructType
from tests.support.doctor.damaged_tables import Damage, case, rewrite_rows

_EMPTY = b"\x01\x00\x00"
_VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
_SHREDDED = pa.struct([pa.field("metadata", pa.binary(), False), ("value", pa.binary()), ("typed_value", pa.int64())])
_TEXT = pa.struct([("metadata", pa.binary()), ("value", pa.string())])


def with_variants(path: Path) -> DeltaTable:
    """Version 0 adds a file with three variants."""
    schema = StructType((StructField("id", PrimitiveType("long")), StructField("v", PrimitiveType("variant"))))
    rows = pa.table({"id": [1, 2, 3], "v": ["1", '{"a": [2]}', None]})
    return DeltaTable.create(path, schema, data=rows)


def _with(values: list[Any], kind: pa.DataType) -> Any:
    """Damage: store other values in the column ``v`` of the data file."""
    return rewrite_rows(lambda rows: rows.set_column(1, "v", pa.array(values, kind)))


VARIANTS: list[Damage] = [
    case(
        "a shredded variant without the feature",
        with_variants,
        _with([{"metadata": _EMPTY, "value": None, "typed_value": 1}] * 2 + [None], _SHREDDED),
        "variant-shredded-without-feature",
    ),
    case(
        "a variant that is text",
        with_variants,
        _with([{"metadata": _EMPTY, "value": "1"}] * 2 + [None], _TEXT),
        "data-column-type-differs",
    ),
    case(
        "a variant whose value ends early",
        with_variants,
        _with([{"metadata": _EMPTY, "value": b"\x18\x00"}] * 2 + [None], _VARIANT),
        "variant-value-malformed",
        deep=True,
    ),
    case(
        "a variant without its metadata",
        with_variants,
        _with([{"metadata": b"", "value": b"\x00"}] * 2 + [None], _VARIANT),
        "variant-value-malformed",
        deep=True,
    ),
]  # fmt: skip
