"""Functions of text. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.expressions.functions.casts import cast
from deltalog.expressions.functions.nodes import Node, any_true, check_type, constant, fits, made
from deltalog.expressions.functions.types import BINARY, INTEGER, STRING


def ascii_only(kernel: Callable[[Any], Any]) -> Callable[..., Node]:
    """Case is mapped alike everywhere for ASCII only."""

    def run(values: Any) -> Any:
        if any_true(pc.invert(pc.string_is_ascii(values))):
            raise pa.ArrowInvalid("UPPER and LOWER are supported for ASCII text only")
        return kernel(values)

    def make(name: str, node: Node) -> Node:
        check_type(name, node, STRING)
        return made(STRING, run, node, can_fail=True)

    return make


def length(name: str, node: Node) -> Node:
    check_type(name, node, STRING, BINARY)
    kernel = pc.utf8_length if fits(node, STRING) else pc.binary_length
    return made(INTEGER, lambda values: kernel(values).cast(pa.int32()), node)


def trim(kernel: Callable[..., Any]) -> Callable[..., Node]:
    def make(name: str, node: Node) -> Node:
        check_type(name, node, STRING)
        return made(STRING, lambda values: kernel(values, characters=" "), node)

    return make


def substring(name: str, node: Node, position: Node, length: Node | None = None) -> Node:
    """Counted from 1, or from the end when negative; 0 is 1."""
    check_type(name, node, STRING)
    start = constant(name, position, INTEGER)
    start = start - 1 if start > 0 else start
    size = None if length is None else constant(name, length, INTEGER)
    if size is not None and size <= 0:
        return _slice(node, 0, 0)
    stop = None if size is None else start + size
    return _slice(node, start, None if stop is not None and start < 0 <= stop else stop)


def _slice(node: Node, start: int, stop: int | None) -> Node:
    return made(STRING, lambda values: pc.utf8_slice_codeunits(values, start=start, stop=stop), node)


def left(name: str, node: Node, length: Node) -> Node:
    check_type(name, node, STRING)
    return _slice(node, 0, max(0, constant(name, length, INTEGER)))


def right(name: str, node: Node, length: Node) -> Node:
    check_type(name, node, STRING)
    size = max(0, constant(name, length, INTEGER))
    return _slice(node, -size, None) if size else _slice(node, 0, 0)


def concat(*nodes: Node) -> Node:
    """CONCAT and ``||``: null where a part is; numbers and dates as CAST writes them."""
    parts = [cast(node, STRING) for node in nodes]
    return made(STRING, lambda *values: pc.binary_join_element_wise(*values, "", null_handling="emit_null"), *parts)
