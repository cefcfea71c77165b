"""Casts operands of different types to a common type, as Spark does in ANSI mode. Pure."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from typing import Any

import pyarrow as pa

from deltalog.errors import CallError, InvalidTimestampError
from deltalog.expressions.functions.nodes import Node, apply_kernel, fits, literal
from deltalog.expressions.functions.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGRAL,
    LONG,
    MICROS,
    STRING,
    TEMPORAL,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    arrow_of,
    refuse,
    widest,
)
from deltalog.protocol.schema import DataType, DecimalType
from deltalog.protocol.timestamps import parse_iso


def common(what: str, *nodes: Node) -> Any:
    """Returns the nodes, with string literals converted to the type of the other nodes, followed by the type that can
    represent the values of all nodes."""
    kinds = {node.data_type for node in nodes if node.data_type != VOID}
    typed = kinds - {STRING}
    if STRING in kinds and typed:
        target = widest(what, typed)
        nodes = tuple(_read_text(what, node, target) if fits(node, STRING) else node for node in nodes)
        kinds = {node.data_type for node in nodes if node.data_type != VOID}
    return (*nodes, widest(what, kinds))


def _read_text(what: str, node: Node, target: DataType) -> Node:
    """A string literal that is compared with a value of another type: Spark reads it as that type."""
    text = node.value if node.is_literal else None
    if isinstance(text, str):
        if target in INTEGRAL and re.fullmatch(r"[+-]?\d{1,19}", text):
            return literal(int(text), LONG)
        if target in TEMPORAL:
            return moment(text, target)
        if target == BOOLEAN and text.lower() in ("true", "false"):
            return literal(text.lower() == "true", BOOLEAN)
    raise refuse(f"{what} of string and {target} together")


def moment(text: str, data_type: DataType) -> Node:
    """A date or timestamp literal; UTC if it names no zone. Raises CallError."""
    try:
        if data_type == DATE:
            return literal(_plain_date(text), DATE)
        found = parse_iso(text)
    except (ValueError, InvalidTimestampError):
        raise CallError(f"{text!r} is not a {data_type} of the form yyyy-MM-dd[ HH:mm:ss[.ffffff]]") from None
    if data_type == TIMESTAMP:
        return literal(found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc), TIMESTAMP)
    if found.tzinfo is not None:
        raise refuse(f"a zone in the timestamp_ntz {text!r}")
    return literal(found, TIMESTAMP_NTZ)


def _plain_date(text: str) -> datetime.date:
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        raise ValueError(text)
    return datetime.date.fromisoformat(text)


def decimal_literal_as_double(node: Node) -> Node:
    if not isinstance(node.data_type, DecimalType):
        return node
    if not node.is_literal:
        raise refuse(f"{node.data_type} together with a floating-point number")
    return literal(float(node.value), DOUBLE)


def widened(node: Node, data_type: DataType) -> Node:
    """Cast a node to a wider type; an integer becomes the nearest floating-point number."""
    if node.data_type == data_type:
        return node
    arrow = arrow_of(data_type)
    if fits(node, DATE) and data_type == TIMESTAMP:
        return apply_kernel(data_type, lambda values: values.cast(MICROS).cast(arrow), node, can_fail=True)
    return replace(apply_kernel(data_type, lambda values: as_type(values, arrow), node), value=node.value)


def as_type(values: Any, wide: pa.DataType) -> Any:
    # Integers become the nearest float, as in Spark.
    return values if values.type == wide else values.cast(wide, safe=not pa.types.is_floating(wide))
