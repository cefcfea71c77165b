"""Values of rows as JSON values. Pure."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from typing import Any


def plain_json(value: Any) -> Any:
    """Convert types that JSON lacks to strings: ISO text for times, exact decimals, base64 for binary values, "NaN",
    and lists of pairs for maps whose keys are not strings."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            return [[plain_json(key), plain_json(each)] for key, each in value.items()]
        return {key: plain_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(each) for each in value]
    return str(value)


def value_of(scalar: Any) -> Any:
    """The value of a scalar of Arrow. If Python cannot represent it, as a time after the year 9999: the stored number
    and its type as text."""
    try:
        return scalar.as_py(maps_as_pydicts="lossy")
    except (ValueError, OverflowError):
        return f"{getattr(scalar, 'value', '…')} {scalar.type}"
