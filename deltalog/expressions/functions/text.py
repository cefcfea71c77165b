"""String functions. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import combined, if_else, scalar
from deltalog.expressions.functions.casts import cast
from deltalog.expressions.functions.nodes import (
    Node,
    any_true,
    apply_growing_kernel,
    apply_kernel,
    check_type,
    constant,
    fits,
    text_bytes,
)
from deltalog.expressions.functions.types import BINARY, BOOLEAN, INTEGER, STRING, refuse
from deltalog.lazy_arrow import pc


def ascii_only(kernel: Callable[[Any], Any]) -> Callable[..., Node]:
    """A case mapping that refuses non-ASCII strings, because other engines map non-ASCII characters differently."""

    def run(values: Any) -> Any:
        if any_true(pc.invert(pc.string_is_ascii(values))):
            raise pa.ArrowInvalid("UPPER, LOWER and INITCAP support only ASCII strings")
        return kernel(values)

    def make(name: str, node: Node) -> Node:
        check_type(name, node, STRING)
        return apply_kernel(STRING, run, node, can_fail=True)

    return make


def length(name: str, node: Node) -> Node:
    check_type(name, node, STRING, BINARY)
    kernel = pc.utf8_length if fits(node, STRING) else pc.binary_length
    return apply_kernel(INTEGER, lambda values: kernel(values).cast(pa.int32()), node)


def trim(kernel: Callable[..., Any]) -> Callable[..., Node]:
    def make(name: str, node: Node) -> Node:
        check_type(name, node, STRING)
        return apply_kernel(STRING, lambda values: kernel(values, characters=" "), node)

    return make


def substring(name: str, node: Node, position: Node, length: Node | None = None) -> Node:
    """SUBSTRING: positions start at 1, negative positions count from the end, and 0 means 1."""
    check_type(name, node, STRING)
    start = constant(name, position, INTEGER)
    start = start - 1 if start > 0 else start
    size = None if length is None else constant(name, length, INTEGER)
    if size is not None and size <= 0:
        return _slice(node, 0, 0)
    stop = None if size is None else start + size
    return _slice(node, start, None if stop is not None and start < 0 <= stop else stop)


def _slice(node: Node, start: int, stop: int | None) -> Node:
    return apply_kernel(STRING, lambda values: pc.utf8_slice_codeunits(values, start=start, stop=stop), node)


def left(name: str, node: Node, length: Node) -> Node:
    check_type(name, node, STRING)
    return _slice(node, 0, max(0, constant(name, length, INTEGER)))


def right(name: str, node: Node, length: Node) -> Node:
    check_type(name, node, STRING)
    size = max(0, constant(name, length, INTEGER))
    return _slice(node, -size, None) if size else _slice(node, 0, 0)


def pad(kernel: Callable[..., Any]) -> Callable[..., Node]:
    """LPAD and RPAD with a single pad character; longer strings are truncated at the end."""

    def make(name: str, node: Node, width: Node, padding: Node | None = None) -> Node:
        check_type(name, node, STRING)
        size = max(0, constant(name, width, INTEGER))
        character = " " if padding is None else constant(name, padding, STRING)
        if len(character) != 1:
            raise refuse(f"The function {name} with {len(character)} characters to pad with")
        cut, most = _slice(node, 0, size), int(len(character.encode()) * size)

        def bytes_of(count: int, values: Any) -> int:
            return count * most + text_bytes(values)

        return apply_growing_kernel(lambda values: kernel(values, width=size, padding=character), bytes_of, cut)

    return make


def replaced(name: str, node: Node, search: Node, by: Node | None = None) -> Node:
    """REPLACE: replaces every occurrence of a string."""
    check_type(name, node, STRING)
    text, other = constant(name, search, STRING), "" if by is None else constant(name, by, STRING)
    if not text:
        return node
    longer = max(0, len(other.encode()) - len(text.encode()))

    def bytes_of(count: int, values: Any) -> int:
        if not longer:
            return 0
        found = pc.count_substring(values, pattern=text)
        number = found.as_py() if isinstance(found, pa.Scalar) else pc.sum(found.cast(pa.int64())).as_py()
        return text_bytes(values) + int(number or 0) * longer

    return apply_growing_kernel(
        lambda values: pc.replace_substring(values, pattern=text, replacement=other), bytes_of, node
    )


def position(name: str, node: Node, search: Node) -> Node:
    """INSTR: the position of the first occurrence of a string, counted in characters from 1; 0 if it does not occur."""
    check_type(name, node, STRING)
    text = constant(name, search, STRING)
    if not text:
        raise refuse(f"The function {name} of an empty string")

    def run(values: Any) -> Any:
        is_one = isinstance(values, pa.Scalar)
        parts = pc.split_pattern(pa.repeat(values, 1) if is_one else values, pattern=text, max_splits=1)
        before = pc.add(pc.utf8_length(pc.list_element(parts, 0)), 1)
        is_found = pc.greater(pc.list_value_length(parts), 1)
        found = pc.if_else(is_found, before, scalar(0, before.type)).cast(pa.int32())
        return found[0] if is_one else found

    return apply_kernel(INTEGER, run, node)


def holds(kernel: Callable[..., Any]) -> Callable[..., Node]:
    """STARTSWITH, ENDSWITH and CONTAINS with a literal as the second argument."""

    def make(name: str, node: Node, search: Node) -> Node:
        check_type(name, node, STRING)
        text = constant(name, search, STRING)
        return apply_kernel(BOOLEAN, lambda values: kernel(values, pattern=text), node)

    return make


def reverse(name: str, node: Node) -> Node:
    """REVERSE: the characters in reverse order."""
    check_type(name, node, STRING)
    return apply_kernel(STRING, pc.utf8_reverse, node)


def repeat(name: str, node: Node, times: Node) -> Node:
    """REPEAT; the result is empty if the count is below 1."""
    check_type(name, node, STRING)
    count = max(0, constant(name, times, INTEGER))
    return apply_growing_kernel(
        lambda values: pc.binary_repeat(values, count), lambda _, values: text_bytes(values) * count, node
    )


def title(values: Any) -> Any:
    """INITCAP: the first letter of each blank-separated word in upper case, the others in lower case."""
    is_one = isinstance(values, pa.Scalar)
    words = pc.split_pattern(pa.repeat(values, 1) if is_one else combined(values), pattern=" ")
    capital = pa.ListArray.from_arrays(words.offsets, pc.ascii_capitalize(words.values), mask=words.is_null())
    found = pc.binary_join(capital, " ")
    return found[0] if is_one else found


def concat_ws(name: str, separator: Node, *nodes: Node) -> Node:
    """CONCAT_WS: non-null strings joined by a separator; null if the separator is null."""
    check_type(name, separator, STRING)
    parts = [cast(node, STRING) for node in nodes]

    def run(between: Any, *values: Any) -> Any:
        # Arrow's null_handling="skip" drops rows whose values are all null.
        text = pa.scalar(None, pa.string())
        for value in values:
            longer = pc.binary_join_element_wise(text, value, between, null_handling="emit_null")
            text = if_else(pc.is_null(text), value, if_else(pc.is_null(value), text, longer))
        return if_else(pc.is_null(between), between, pc.fill_null(text, ""))

    return apply_growing_kernel(run, _joined_bytes(len(parts)), separator, *parts)


def concat(*nodes: Node) -> Node:
    """CONCAT and ``||``: null if a part is null; numbers and dates are converted to strings as by CAST."""
    parts = [cast(node, STRING) for node in nodes]
    kernel = functools.partial(_joined, "")
    return apply_growing_kernel(kernel, _joined_bytes(0), *parts)


def _joined(separator: str, *values: Any) -> Any:
    return pc.binary_join_element_wise(*values, separator, null_handling="emit_null")


def _joined_bytes(separators: int) -> Callable[..., int]:
    """A function that returns the total size in bytes of joined strings, plus ``separators`` times the size of the
    first string."""

    def bytes_of(count: int, *values: Any) -> int:
        sizes = [text_bytes(each) * (count if isinstance(each, pa.Scalar) else 1) for each in values]
        return sum(sizes) + separators * sizes[0] if sizes else 0

    return bytes_of
