"""A common representation of rows from any engine, so that results can be compared and stored as JSON."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa


def plain_rows(table: pa.Table) -> list[list[Any]]:
    """The rows of an Arrow table as sorted lists of JSON values, in column order.

    Timestamps become ISO strings in UTC with microseconds; timestamps without a zone become such strings, but without
    an offset. Dates become ISO strings; decimals, binary values (as hex), NaN and infinities also become strings. Maps
    become lists of pairs, sorted by key.
    """
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        field = table.schema.field(name)
        columns.append([_plain(value, field.type) for value in column.to_pylist()])
    rows = [list(row) for row in zip(*columns, strict=True)]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [[_plain(k, kind.key_type), _plain(v, kind.item_type)] for k, v in value]
        return sorted(pairs, key=json.dumps)
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(dt.timezone.utc)
        return value.isoformat(timespec="microseconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
