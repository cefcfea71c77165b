"""The functions, keyed by SQL name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deltalog.expressions.functions.arithmetic import absolute, arithmetic, is_nan, rounded, sign, square_root, to_whole
from deltalog.expressions.functions.casts import cast
from deltalog.expressions.functions.conditional import case, coalesce, extreme, null_if
from deltalog.expressions.functions.dates import (
    date_format,
    date_trunc,
    day_of_week,
    days_between,
    last_day,
    parsed,
    part,
    shifted,
    since_epoch,
    trunc,
    weekday,
)
from deltalog.expressions.functions.intervals import add_months
from deltalog.expressions.functions.logic import is_null, negation
from deltalog.expressions.functions.nested import (
    array_contains,
    element_at,
    get,
    map_contains_key,
    map_part,
    named_struct,
    size,
)
from deltalog.expressions.functions.nodes import Node
from deltalog.expressions.functions.patterns import regex_like
from deltalog.expressions.functions.text import (
    ascii_only,
    concat,
    concat_ws,
    holds,
    left,
    length,
    pad,
    position,
    repeat,
    replaced,
    reverse,
    right,
    substring,
    title,
    trim,
)
from deltalog.expressions.functions.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    refuse,
)
from deltalog.expressions.functions.variants import is_variant_null, parse_json, to_json, variant_get
from deltalog.lazy_arrow import pc
from deltalog.protocol.schema import DataType


def call(name: str, arguments: Sequence[Node]) -> Node:
    """Call a function by its SQL name. Raises CallError for an unsupported function and for wrong arguments."""
    function = _FUNCTIONS.get(name.lower())
    if function is None:
        instead = _ELSEWHERE.get(name.lower())
        raise refuse(f"The function {name}", "" if instead is None else f". Write {instead}")
    low, high, make = function
    if not low <= len(arguments) <= high:
        raise refuse(f"The function {name} with {len(arguments)} arguments")
    return make(name.lower(), *arguments)


# Functions of other engines, each with what has the same meaning here.
_ELSEWHERE: Mapping[str, str] = {
    "starts_with": "startswith(…)",
    "ends_with": "endswith(…)",
    "strpos": "instr(…)",
    "btrim": "trim(…)",
    "array_has": "array_contains(…)",
    "array_length": "size(…)",
    "regexp_match": "rlike(…)",
    "to_char": "date_format(…)",
    "date_part": "year(…), month(…) or another function for a part of a time",
    "extract": "year(…), month(…) or another function for a part of a time",
}


def _cast_to(data_type: DataType) -> tuple[int, int, Callable[..., Node]]:
    return 1, 1, lambda name, node: cast(node, data_type)


_ALL_PARTS = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_CLOCK = (TIMESTAMP, TIMESTAMP_NTZ)
# For each function: the minimum and maximum number of arguments, and the Python function that builds the node.
_FUNCTIONS: Mapping[str, tuple[int, int, Callable[..., Node]]] = {
    "year": (1, 1, part(pc.year, *_ALL_PARTS)),
    "month": (1, 1, part(pc.month, *_ALL_PARTS)),
    "day": (1, 1, part(pc.day, *_ALL_PARTS)),
    "dayofmonth": (1, 1, part(pc.day, *_ALL_PARTS)),
    "dayofweek": (1, 1, part(day_of_week, *_ALL_PARTS)),
    "dayofyear": (1, 1, part(pc.day_of_year, *_ALL_PARTS)),
    "weekofyear": (1, 1, part(pc.iso_week, *_ALL_PARTS)),
    "quarter": (1, 1, part(pc.quarter, *_ALL_PARTS)),
    "hour": (1, 1, part(pc.hour, *_CLOCK)),
    "minute": (1, 1, part(pc.minute, *_CLOCK)),
    "second": (1, 1, part(pc.second, *_CLOCK)),
    "date_trunc": (2, 2, date_trunc),
    "trunc": (2, 2, trunc),
    "date_format": (2, 2, date_format),
    "to_date": (1, 2, parsed(DATE)),
    "to_timestamp": (1, 2, parsed(TIMESTAMP)),
    "weekday": (1, 1, part(weekday, *_ALL_PARTS)),
    "last_day": (1, 1, last_day),
    **dict.fromkeys(("date_add", "dateadd"), (2, 2, shifted(pc.add_checked))),
    "date_sub": (2, 2, shifted(pc.subtract_checked)),
    **dict.fromkeys(("datediff", "date_diff"), (2, 2, days_between)),
    "unix_seconds": (1, 1, since_epoch(1_000_000)),
    "unix_millis": (1, 1, since_epoch(1_000)),
    "unix_micros": (1, 1, since_epoch(1)),
    "upper": (1, 1, ascii_only(pc.utf8_upper)),
    "ucase": (1, 1, ascii_only(pc.utf8_upper)),
    "lower": (1, 1, ascii_only(pc.utf8_lower)),
    "lcase": (1, 1, ascii_only(pc.utf8_lower)),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), (1, 1, length)),
    "trim": (1, 1, trim(pc.utf8_trim)),
    "ltrim": (1, 1, trim(pc.utf8_ltrim)),
    "rtrim": (1, 1, trim(pc.utf8_rtrim)),
    "substring": (2, 3, substring),
    "substr": (2, 3, substring),
    "left": (2, 2, left),
    "right": (2, 2, right),
    "lpad": (2, 3, pad(pc.utf8_lpad)),
    "rpad": (2, 3, pad(pc.utf8_rpad)),
    "replace": (2, 3, replaced),
    "instr": (2, 2, position),
    **dict.fromkeys(("locate", "position"), (2, 2, lambda name, part, node: position(name, node, part))),
    "startswith": (2, 2, holds(pc.starts_with)),
    "endswith": (2, 2, holds(pc.ends_with)),
    "contains": (2, 2, holds(pc.match_substring)),
    "reverse": (1, 1, reverse),
    "repeat": (2, 2, repeat),
    "initcap": (1, 1, ascii_only(title)),
    "concat_ws": (1, 100, concat_ws),
    "concat": (1, 100, lambda name, *nodes: concat(*nodes)),
    "abs": (1, 1, absolute),
    "floor": (1, 1, to_whole(pc.floor)),
    "ceil": (1, 1, to_whole(pc.ceil)),
    "ceiling": (1, 1, to_whole(pc.ceil)),
    "round": (1, 2, rounded("half_towards_infinity")),
    "bround": (1, 2, rounded("half_to_even")),
    "sqrt": (1, 1, square_root),
    "sign": (1, 1, sign),
    "signum": (1, 1, sign),
    "greatest": (2, 100, extreme(">")),
    "least": (2, 100, extreme("<")),
    "mod": (2, 2, lambda name, left, right: arithmetic("%", left, right)),
    "pmod": (2, 2, lambda name, left, right: arithmetic("PMOD", left, right)),
    "coalesce": (1, 100, lambda name, *nodes: coalesce(*nodes)),
    "nvl": (2, 2, lambda name, *nodes: coalesce(*nodes)),
    "ifnull": (2, 2, lambda name, *nodes: coalesce(*nodes)),
    "nvl2": (3, 3, lambda name, node, value, other: case([(negation(is_null(node)), value)], other)),
    "nullif": (2, 2, lambda name, left, right: null_if(left, right)),
    "isnull": (1, 1, lambda name, node: is_null(node)),
    "isnotnull": (1, 1, lambda name, node: negation(is_null(node))),
    "isnan": (1, 1, is_nan),
    **dict.fromkeys(("size", "cardinality"), (1, 1, size)),
    "element_at": (2, 2, element_at),
    "get": (2, 2, get),
    "array_contains": (2, 2, array_contains),
    "map_contains_key": (2, 2, map_contains_key),
    "map_keys": (1, 1, map_part(of_keys=True)),
    "map_values": (1, 1, map_part(of_keys=False)),
    "named_struct": (2, 200, named_struct),
    "parse_json": (1, 1, parse_json(is_try=False)),
    "try_parse_json": (1, 1, parse_json(is_try=True)),
    "to_json": (1, 1, to_json),
    "is_variant_null": (1, 1, is_variant_null),
    "variant_get": (3, 3, variant_get(is_try=False)),
    "try_variant_get": (3, 3, variant_get(is_try=True)),
    "add_months": (2, 2, add_months),
    **dict.fromkeys(("rlike", "regexp", "regexp_like"), (2, 2, lambda name, node, pattern: regex_like(node, pattern))),
    "date": _cast_to(DATE),
    "timestamp": _cast_to(TIMESTAMP),
    "string": _cast_to(STRING),
    "boolean": _cast_to(BOOLEAN),
    "binary": _cast_to(BINARY),
    "tinyint": _cast_to(BYTE),
    "smallint": _cast_to(SHORT),
    "int": _cast_to(INTEGER),
    "bigint": _cast_to(LONG),
    "float": _cast_to(FLOAT),
    "double": _cast_to(DOUBLE),
}
