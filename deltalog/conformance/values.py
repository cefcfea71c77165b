"""The canonical form of rows, which can be compared and written as JSON regardless of the engine. Pure.

A row is a JSON object. null, booleans, integers, strings, structs (objects) and arrays are represented as in JSON; all
other values are strings: floats in the form of Python's ``repr``, decimals with their scale, binary in hexadecimal,
dates as ``2025-01-15``, timestamps in UTC as ``2025-01-15T12:00:00.000000Z``, timestamps without time zone without the
``Z``. A map is represented as an array of pairs that is sorted by the JSON text of the keys, and a variant as JSON
text.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltalog.conformance import variant_bytes
from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import pyarrow as pa
else:
    # An engine's own environment, where rows become JSON, may have no pyarrow.
    lazy_modules(__name__, pa="pyarrow")

_TIME = "_commit_timestamp"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def canonical(value: Any) -> Any:
    """The canonical form of a Python value, as in ``pyarrow.Table.to_pylist``."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, datetime.datetime):
        zone = "" if value.tzinfo is None else "Z"
        value = value if value.tzinfo is None else value.astimezone(datetime.timezone.utc)
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + zone
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): canonical(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        items = [canonical(each) for each in value]
        pairs = [isinstance(each, tuple) and len(each) == 2 for each in value]
        return sorted(items, key=_text) if pairs and all(pairs) else items
    raise TypeError(f"a value of type {type(value).__name__} is not allowed in a conformance case: {value!r}")


def canonical_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows in canonical form, sorted by their JSON."""
    return sorted(({str(key): canonical(value) for key, value in row.items()} for row in rows), key=_text)


def rows_of(found: Any, variants: Collection[str] = ()) -> list[dict[str, Any]]:
    """Convert the rows returned by an engine: an object with ``__arrow_c_stream__``, or a list of dictionaries.
    ``variants``: the columns that are variants or contain them."""
    if isinstance(found, (list, tuple)):
        return canonical_rows(with_variants(found, variants))
    table = found if isinstance(found, pa.Table) else pa.table(found)
    for at, field in enumerate(table.schema):
        if field.type != (plain := _plain(field.type)):
            table = table.set_column(at, pa.field(field.name, plain), table.column(at).cast(plain))
    return canonical_rows(with_variants(table.to_pylist(), variants))


def with_variants(rows: Iterable[Mapping[str, Any]], columns: Collection[str]) -> list[Mapping[str, Any]]:
    """The rows with each variant in the given columns as canonical JSON text. A variant may be given as a struct of
    ``metadata`` and ``value``, which is binary, or as JSON text."""
    if not columns:
        return list(rows)
    return [{key: _variants(value) if key in columns else value for key, value in row.items()} for row in rows]


def _variants(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {"metadata", "value"}:
            # Binary is hexadecimal text if the engine's process has sent the rows as JSON.
            found = {key: part if isinstance(part, bytes) else bytes.fromhex(part) for key, part in value.items()}
            return _spelled(variant_bytes.decode(**found))
        return {key: _variants(each) for key, each in value.items()}
    if isinstance(value, str):
        return json_text(value)
    if isinstance(value, tuple):
        return tuple(_variants(each) for each in value)
    return [_variants(each) for each in value] if isinstance(value, list) else value


def json_text(text: str) -> str:
    """JSON in one spelling: sorted keys, no blanks, numbers that are not integers in the shortest decimal form."""
    try:
        return _spelled(json.loads(text, parse_float=decimal.Decimal))
    except ValueError:
        return text


def _spelled(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(key)}:{_spelled(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelled, value)) + "]"
    if isinstance(value, float) and math.isfinite(value):
        value = decimal.Decimal(repr(value))
    if isinstance(value, decimal.Decimal):
        text = format(value.normalize(), "f")
        return text if "." in text else text + ".0"
    if isinstance(value, bytes):
        return _text(base64.b64encode(value).decode())
    return _text(value if value is None or isinstance(value, (bool, int, str)) else str(value))


def changes_of(found: Any, with_timestamps: bool) -> list[dict[str, Any]]:
    """Convert the change data feed returned by an engine, like ``rows_of``. The column ``_commit_timestamp`` is left
    out, or is in ms."""
    if isinstance(found, (list, tuple)):
        rows = [{name: row[name] for name in row if with_timestamps or name != _TIME} for row in found]
        return canonical_rows({**row, _TIME: _to_ms(row[_TIME])} if _TIME in row else row for row in rows)
    table = found if isinstance(found, pa.Table) else pa.table(found)
    if not with_timestamps:
        return rows_of(table.select([name for name in table.column_names if name != _TIME]))
    ms = table[_TIME].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return rows_of(table.set_column(table.column_names.index(_TIME), _TIME, ms))


def _to_ms(value: Any) -> Any:
    """A time, or the canonical form of one, in ms; other values as they are."""
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
    if not isinstance(value, datetime.datetime):
        return value
    zoned = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
    return (zoned - _EPOCH) // datetime.timedelta(milliseconds=1)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type with all timestamps in microseconds, the finest unit of Python's datetime. A cast of values to this type
    fails if it would lose digits."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return kind


def difference(found: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> str | None:
    """A message that describes how two lists of canonical rows differ; None if they are equal apart from their
    order."""
    here, there = Counter(map(_text, found)), Counter(map(_text, expected))
    if here == there:
        return None
    extra, missing = list((here - there).elements()), list((there - here).elements())
    parts = []
    if missing:
        parts.append(f"{len(missing)} rows are missing, such as {missing[0]}")
    if extra:
        parts.append(f"{len(extra)} rows are unexpected, such as {extra[0]}")
    return f"of {len(expected)} rows, " + "; ".join(parts)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
