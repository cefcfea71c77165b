"""Functions of variants: from JSON text and back, and the values inside them. Pure."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from deltalog.errors import CallError, InvalidDataFileError
from deltalog.expressions.functions import casts
from deltalog.expressions.functions.nested import nested
from deltalog.expressions.functions.nodes import Node, Rows, column, constant, fits, literal
from deltalog.expressions.functions.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TYPE_NAMES,
    VOID,
    refuse,
)
from deltalog.protocol import variant, variant_encoding
from deltalog.protocol.schema import VARIANT, DataType, DecimalType, type_to_arrow

_ARROW = type_to_arrow(VARIANT)
_PATH = re.compile(r"""\$(?:\.[^.\[]+|\[[0-9]+\]|\['[^']*'\]|\["[^"]*"\])*""")
_STEP = re.compile(r"""\.([^.\[]+)|\[([0-9]+)\]|\['([^']*)'\]|\["([^"]*)"\]""")
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_PLACE = ("",)
_TYPES: dict[type, DataType] = {
    bool: BOOLEAN,
    int: LONG,
    float: DOUBLE,
    str: STRING,
    bytes: BINARY,
    datetime.date: DATE,
}


def parse_json(is_try: bool) -> Callable[..., Node]:
    """PARSE_JSON: JSON text as a variant. ``is_try``: TRY_PARSE_JSON, which gives null for text that is not JSON."""

    def make(name: str, node: Node) -> Node:
        if fits(node, VOID):
            return literal(None, VARIANT)
        if not fits(node, STRING):
            raise refuse(f"The function {name} of {node.data_type}")
        return nested(VARIANT, lambda values: _parsed(values, is_try), node, can_fail=not is_try)

    return make


def _parsed(values: Any, is_try: bool) -> Any:
    found: list[tuple[bytes, bytes] | None] = []
    for text in values.to_pylist():
        try:
            found.append(None if text is None else variant_encoding.encoded_json(text))
        except ValueError as error:
            if not is_try:
                raise pa.ArrowInvalid(f"{text[:100]!r} cannot be a variant: {error}") from None
            found.append(None)
    parts = [pa.array([(each or (b"", b""))[part] for each in found], pa.binary()) for part in (0, 1)]
    mask = pa.array([each is None for each in found], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(_ARROW.fields), mask=mask)


def to_json(name: str, node: Node) -> Node:
    """TO_JSON of a variant: its JSON text, with timestamps in UTC."""
    _check(name, node)

    def run(values: Any) -> Any:
        try:
            return pa.array(variant.texts(_pairs(values)), pa.string())
        except InvalidDataFileError as error:
            raise pa.ArrowInvalid(error.message) from None

    return nested(STRING, run, node, can_fail=True)


def is_variant_null(name: str, node: Node) -> Node:
    """IS_VARIANT_NULL: whether a variant is the value null of JSON; false if there is no variant."""
    _check(name, node)

    def run(values: Any) -> Any:
        return pa.array([each is not None and each[1][:1] == variant.NULL for each in _pairs(values)], pa.bool_())

    return nested(BOOLEAN, run, node)


def _check(name: str, node: Node) -> None:
    if node.data_type != VARIANT:
        raise refuse(f"The function {name} of {node.data_type}")


def _pairs(values: Any) -> list[tuple[bytes, bytes] | None]:
    """The metadata and the value of each variant."""
    metadata, found = (values.field(name).to_pylist() for name in ("metadata", "value"))
    present = values.is_valid().to_pylist()
    rows = zip(present, metadata, found, strict=True)
    return [(one or b"", other or b"") if there else None for there, one, other in rows]


# ------------------------------------------------------------------------------------------ values inside


def variant_get(is_try: bool) -> Callable[..., Node]:
    """VARIANT_GET: the value at a path, cast to a type; null if there is none. ``is_try``: TRY_VARIANT_GET, which gives
    null for a value that cannot be cast."""

    def make(name: str, node: Node, path: Node, kind: Node) -> Node:
        _check(name, node)
        steps, wanted = _steps(name, constant(name, path, STRING)), _type_named(name, constant(name, kind, STRING))
        return nested(wanted, lambda values: _got(values, steps, wanted, is_try), node, can_fail=True)

    return make


def _steps(name: str, path: str) -> list[str | int]:
    if _PATH.fullmatch(path) is None:
        raise refuse(f"The function {name} with the path {path[:100]!r}")
    found = _STEP.findall(path)
    return [int(index) if index else field or quoted or other for field, index, quoted, other in found]


def _type_named(name: str, text: str) -> DataType:
    match = _DECIMAL.fullmatch(text.strip().lower())
    if match is not None and 0 <= int(match[2]) <= int(match[1]) <= 38 and int(match[1]):
        return DecimalType(int(match[1]), int(match[2]))
    found = TYPE_NAMES.get(text.strip().lower())
    if found is None:
        raise refuse(f"The function {name} with the type {text[:100]!r}")
    return found


def _got(values: Any, steps: list[str | int], wanted: DataType, is_try: bool) -> Any:
    arrow = type_to_arrow(wanted)
    by_type: dict[DataType, tuple[list[int], list[Any]]] = {}
    for row, each in enumerate(_pairs(values)):
        found = None if each is None else _inside(each, steps)
        if found is None:
            continue
        if isinstance(found, (dict, list)):
            if wanted != STRING:
                _fail(found, wanted, is_try)
                continue
            found = variant.json_text(found)
        kind, value = _typed(found)
        rows, items = by_type.setdefault(kind, ([], []))
        rows.append(row)
        items.append(value)
    order: list[int | None] = [None] * len(values)
    parts = [pa.nulls(0, arrow)]
    for kind, (rows, items) in by_type.items():
        start = sum(map(len, parts))
        parts.append(_cast(pa.array(items, type_to_arrow(kind)), kind, wanted, is_try))
        for number, row in enumerate(rows):
            order[row] = start + number
    return pa.concat_arrays(parts).take(pa.array(order, pa.int64()))


def _inside(pair: tuple[bytes, bytes], steps: list[str | int]) -> Any:
    try:
        found = variant.decoded_text(*pair)
    except InvalidDataFileError as error:
        raise pa.ArrowInvalid(error.message) from None
    for step in steps:
        if isinstance(step, int):
            found = found[step] if isinstance(found, list) and step < len(found) else None
        else:
            found = found.get(step) if isinstance(found, dict) else None
    return found


def _typed(value: Any) -> tuple[DataType, Any]:
    """The type of a scalar value, and the value without zeros at the end of a decimal."""
    if isinstance(value, decimal.Decimal):
        value = value.normalize(variant.EXACT) if value else decimal.Decimal(0)
        exponent = value.as_tuple().exponent
        return DecimalType(38, max(0, -exponent if isinstance(exponent, int) else 0)), value
    if isinstance(value, datetime.datetime):
        return (TIMESTAMP_NTZ if value.tzinfo is None else TIMESTAMP), value
    found = _TYPES.get(type(value))
    if found is None:  # such as 32-bit floats, and timestamps with nanoseconds
        raise pa.ArrowInvalid(f"VARIANT_GET of the value {value} is not supported")
    return found, value


def _cast(values: Any, have: DataType, wanted: DataType, is_try: bool) -> Any:
    try:
        node = casts.try_cast(column(_PLACE, have), wanted)
    except CallError as error:
        raise pa.ArrowInvalid(str(error)) from None
    rows = Rows({_PLACE: values}, len(values))
    found = rows.array(node.run(rows))
    if found.null_count:
        _fail(values[found.is_null().index(True).as_py()].as_py(), wanted, is_try)
    return found


def _fail(value: Any, wanted: DataType, is_try: bool) -> None:
    if not is_try:
        raise pa.ArrowInvalid(f"the variant {str(value)[:100]} cannot be cast to {wanted}")
