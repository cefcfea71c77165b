"""Typed expressions over Arrow columns, with exactly Spark's results. Pure.

A ``Node`` computes values for rows. Result types and errors are as in Spark 4 in ANSI mode: overflow, division by zero
and lossy casts are errors. What Arrow cannot compute exactly is refused with CallError when the node is built, never
approximated. Timestamps are UTC.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import scalar
from deltalog.errors import CallError
from deltalog.expressions.functions.types import INTEGER, LONG, STRING, VOID, arrow_of, decimal_of, refuse
from deltalog.lazy_arrow import pc
from deltalog.protocol import limits
from deltalog.protocol.arrow_types import is_encoded_variant
from deltalog.protocol.char_varchar import padded
from deltalog.protocol.schema import DataType


@dataclass(frozen=True, slots=True)
class Rows:
    """The values of the leaf columns that an expression reads, keyed by path (a tuple of field names), and the number
    of rows."""

    columns: Mapping[tuple[str, ...], Any]
    length: int
    _created_bytes: list[int] = field(default_factory=lambda: [0], compare=False, repr=False)  # also of subsets

    def charge(self, size: int) -> None:
        """Count the bytes of strings that are about to be created. Raises pyarrow.ArrowInvalid above the cap: a short
        expression can request more memory than exists."""
        self._created_bytes[0] += size
        created = self._created_bytes[0]
        if created > limits.MAX_TEXT_BYTES and created > limits.MAX_TEXT_BYTES + 16 * sum(
            each.nbytes for each in self.columns.values()
        ):
            raise pa.ArrowInvalid(
                f"the size in bytes of the strings it creates {limits.over('MAX_TEXT_BYTES', created)}"
            )

    def where(self, chosen: Any) -> Rows:
        """The rows for which a boolean array is true."""
        kept = {path: values.filter(chosen) for path, values in self.columns.items()}
        return Rows(kept, pc.sum(chosen, min_count=0).as_py() or 0, self._created_bytes)

    def array(self, values: Any) -> Any:
        """Convert values to an array with one element per row; a scalar is repeated for every row."""
        if not isinstance(values, pa.Scalar):
            return values
        self.charge(text_bytes(values) * self.length)
        return pa.repeat(values, self.length)


def text_bytes(values: Any) -> int:
    """The total size in bytes of strings, binaries or variants, in an array or a scalar; 0 for other types."""
    kind = values.type
    if isinstance(values, pa.StructScalar) and is_encoded_variant(kind):
        return sum(map(len, values.as_py().values())) if values.is_valid else 0
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return 0
    if isinstance(values, pa.Scalar):
        return 0 if not values.is_valid else values.as_buffer().size
    return pc.sum(pc.binary_length(values).cast(pa.int64()), min_count=0).as_py() or 0


NO_ROWS = Rows({}, 0)


@dataclass(frozen=True, slots=True)
class Node:
    """A typed expression. ``run`` returns an array, or a scalar that is the value of all rows. ``run`` raises
    pyarrow.ArrowInvalid if the value of a row cannot be computed; only nodes with ``can_fail`` do so."""

    data_type: DataType
    run: Callable[[Rows], Any]
    can_fail: bool = False
    value: Any = None  # for a literal
    is_literal: bool = False
    steps: int = 1  # number of kernels that run; a node that is used twice counts twice
    char: int | None = None  # n of a char(n) column, whose values are padded to n characters
    is_constant: bool = False  # consists of literals only


def literal(value: Any, data_type: DataType) -> Node:
    """A constant. Raises CallError for a value outside its type."""
    arrow = arrow_of(data_type)
    try:
        held = pa.nulls(1, arrow)[0] if value is None else scalar(value, arrow)
    except (pa.ArrowException, OverflowError, ValueError):
        raise CallError(f"the literal {value} is not a {data_type}") from None
    return Node(data_type, lambda rows: held, value=value, is_literal=True, is_constant=True)


NULL = literal(None, VOID)


def number(value: int | decimal.Decimal) -> Node:
    """A numeric literal without suffix: integer, long or decimal, depending on its digits."""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return literal(value, INTEGER if -(2**31) <= value < 2**31 else LONG)
    exact = decimal.Decimal(value)
    return literal(exact, decimal_of(exact))


def column(path: tuple[str, ...], data_type: DataType, char: int | None = None) -> Node:
    """The values of a column; ``char``: n of a char(n) column."""
    if char is not None:
        return Node(data_type, lambda rows: padded(rows.columns[path], char), char=char)
    return Node(data_type, lambda rows: rows.columns[path])


def apply_kernel(data_type: DataType, kernel: Callable[..., Any], *nodes: Node, can_fail: bool = False) -> Node:
    """Apply a kernel to the values of nodes."""
    fails = can_fail or any(node.can_fail for node in nodes)
    constant = all(node.is_constant for node in nodes)
    steps = steps_of(*nodes)
    return Node(data_type, lambda rows: kernel(*(n.run(rows) for n in nodes)), fails, steps=steps, is_constant=constant)


def apply_growing_kernel(kernel: Callable[..., Any], size: Callable[..., int], *nodes: Node) -> Node:
    """Apply a kernel to strings; its result can be far larger than its input. ``size`` computes an upper bound for the
    size of the result in bytes; it gets the number of rows (1 if all values are scalars) and the values."""

    def run(rows: Rows) -> Any:
        values = [node.run(rows) for node in nodes]
        count = 1 if all(isinstance(each, pa.Scalar) for each in values) else rows.length
        rows.charge(size(count, *values))
        return kernel(*values)

    constant = all(node.is_constant for node in nodes)
    return Node(STRING, run, can_fail=True, steps=steps_of(*nodes), is_constant=constant)


def steps_of(*nodes: Node) -> int:
    return 1 + sum(node.steps for node in nodes)


def run_where(node: Node, rows: Rows, chosen: Any) -> Any:
    """The values of a node, evaluated for the chosen rows only; the values of other rows are unused and must not cause
    errors."""
    if not node.can_fail:
        return node.run(rows)
    mask = pc.fill_null(rows.array(chosen), False)
    some = rows.where(mask)
    return pc.replace_with_mask(pa.nulls(rows.length, arrow_of(node.data_type)), mask, some.array(node.run(some)))


def fits(node: Node, *kinds: DataType) -> bool:
    return node.data_type in kinds


def any_true(found: Any) -> bool:
    """Whether any of the given values is true; also accepts a single scalar."""
    if isinstance(found, pa.Scalar):
        return found.as_py() is True
    return bool(pc.any(found, min_count=0).as_py())


def check_type(name: str, node: Node, *kinds: DataType) -> None:
    if not fits(node, *kinds):
        raise refuse(f"The function {name} of {node.data_type}")


def constant(name: str, node: Node, kind: DataType) -> Any:
    if not (node.is_literal and node.data_type == kind) or node.value is None:
        raise refuse(f"The function {name} with an argument that is not a {kind} literal")
    return node.value
