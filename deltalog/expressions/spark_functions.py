"""Spark's operators and functions over Arrow columns, as far as both agree to the last bit. Pure.

A ``Node`` is a typed expression that gives values for rows. The types of results are Spark's, in ANSI mode as Spark 4
has it: overflow, division by zero and a cast that loses are errors of the row. What cannot be had so from Arrow is
refused here with CallError when the node is made, never approximated. Timestamps count in UTC.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.arrow_arrays import FALSE, scalar
from deltalog.errors import CallError, InvalidTimestampError
from deltalog.expressions.comparison import COMPARISONS, FLOAT_COMPARISONS, ValueSet
from deltalog.protocol.char_varchar import padded
from deltalog.protocol.schema import DataType, DecimalType, PrimitiveType, type_to_arrow
from deltalog.protocol.timestamps import parse_iso

BOOLEAN, STRING, BINARY, VOID = (PrimitiveType(n) for n in ("boolean", "string", "binary", "void"))
BYTE, SHORT, INTEGER, LONG = (PrimitiveType(n) for n in ("byte", "short", "integer", "long"))
FLOAT, DOUBLE = PrimitiveType("float"), PrimitiveType("double")
DATE, TIMESTAMP, TIMESTAMP_NTZ = (PrimitiveType(n) for n in ("date", "timestamp", "timestamp_ntz"))
INTEGRAL: tuple[DataType, ...] = (BYTE, SHORT, INTEGER, LONG)
FLOATING: tuple[DataType, ...] = (FLOAT, DOUBLE)
_BY_WIDTH = (*INTEGRAL, *FLOATING)
_TEMPORAL: tuple[DataType, ...] = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_DIGITS: Mapping[DataType, int] = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 20}
_MAX_PRECISION = 38
# Two decimals, or a decimal and a whole number, are compared in this one, which holds all of them.
_ANY_DECIMAL = pa.decimal256(76, 38)
_MICROS = pa.timestamp("us")


@dataclass(frozen=True, slots=True)
class Rows:
    """The leaf columns that an expression looks at, by path of names, and the number of rows."""

    columns: Mapping[tuple[str, ...], Any]
    length: int

    def where(self, chosen: Any) -> Rows:
        """The rows for which a boolean array is true."""
        kept = {path: values.filter(chosen) for path, values in self.columns.items()}
        return Rows(kept, pc.sum(chosen, min_count=0).as_py() or 0)

    def array(self, values: Any) -> Any:
        """Values of these rows as an array; a scalar is that of every row."""
        return pa.repeat(values, self.length) if isinstance(values, pa.Scalar) else values


NO_ROWS = Rows({}, 0)


@dataclass(frozen=True, slots=True)
class Node:
    """A typed expression. ``run`` gives an array, or a scalar for all rows; it raises pyarrow.ArrowInvalid for a row
    that has no value, which only nodes that ``can_fail`` do."""

    data_type: DataType
    run: Callable[[Rows], Any]
    can_fail: bool = False
    value: Any = None  # of a literal
    is_literal: bool = False
    steps: int = 1  # kernels that run, those of other nodes included as often as they are used
    char: int | None = None  # n of a column char(n), whose values are padded to n characters
    is_constant: bool = False  # of literals only


def refuse(what: str) -> CallError:
    """The error for what is not supported."""
    return CallError(f"{what} is not supported")


def literal(value: Any, data_type: DataType) -> Node:
    """A constant. Raises CallError for a value outside its type."""
    arrow = type_to_arrow(data_type)
    try:
        held = pa.nulls(1, arrow)[0] if value is None else scalar(value, arrow)
    except (pa.ArrowException, OverflowError, ValueError):
        raise CallError(f"the literal {value} is no {data_type}") from None
    return Node(data_type, lambda rows: held, value=value, is_literal=True, is_constant=True)


NULL = literal(None, VOID)


def number(text: str) -> Node:
    """A numeric literal without suffix: integer, long or decimal by its digits; double with an exponent."""
    if "e" in text.lower():
        return literal(float(text), DOUBLE)
    value = decimal.Decimal(text)
    if re.fullmatch(r"-?\d+", text) and -(2**63) <= value < 2**63:
        whole = int(text)
        return literal(whole, INTEGER if -(2**31) <= whole < 2**31 else LONG)
    return literal(value, _decimal_of(value))


def _decimal_of(value: decimal.Decimal) -> DecimalType:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    return _decimal(max(len(digits), scale), scale)


def _decimal(precision: int, scale: int) -> DecimalType:
    """Above 38 digits Spark gives up some of the scale, or the value: refused."""
    if precision > _MAX_PRECISION:
        raise refuse(f"decimal({precision},{scale}), of more than {_MAX_PRECISION} digits,")
    return DecimalType(precision, scale)


def column(path: tuple[str, ...], data_type: DataType, char: int | None = None) -> Node:
    """The values of a column; ``char``: n, of a column char(n)."""
    if char is not None:
        return Node(data_type, lambda rows: padded(rows.columns[path], char), char=char)
    return Node(data_type, lambda rows: rows.columns[path])


def _made(data_type: DataType, kernel: Callable[..., Any], *nodes: Node, can_fail: bool = False) -> Node:
    """A kernel over the values of nodes."""
    fails = can_fail or any(node.can_fail for node in nodes)
    constant = all(node.is_constant for node in nodes)
    steps = _steps(*nodes)
    return Node(data_type, lambda rows: kernel(*(n.run(rows) for n in nodes)), fails, steps=steps, is_constant=constant)


def _steps(*nodes: Node) -> int:
    return 1 + sum(node.steps for node in nodes)


def _where(node: Node, rows: Rows, chosen: Any) -> Any:
    """Values of a node that other rows than the chosen ones do not need, and must not fail for."""
    if not node.can_fail:
        return node.run(rows)
    mask = pc.fill_null(rows.array(chosen), False)
    some = rows.where(mask)
    return pc.replace_with_mask(pa.nulls(rows.length, type_to_arrow(node.data_type)), mask, some.array(node.run(some)))


def _fits(node: Node, *kinds: DataType) -> bool:
    return node.data_type in kinds


def is_number(data_type: DataType) -> bool:
    return data_type in _BY_WIDTH or isinstance(data_type, DecimalType)


# ------------------------------------------------------------------------------------------------- logic


def conjunction(left: Node, right: Node) -> Node:
    """AND; the right side is looked at only where the left one is not false."""
    left, right = _boolean("AND", left), _boolean("AND", right)

    def run(rows: Rows) -> Any:
        first = left.run(rows)
        return pc.and_kleene(first, _where(right, rows, pc.fill_null(first, True)))

    return Node(BOOLEAN, run, left.can_fail or right.can_fail, steps=_steps(left, right))


def disjunction(left: Node, right: Node) -> Node:
    """OR; the right side is looked at only where the left one is not true."""
    left, right = _boolean("OR", left), _boolean("OR", right)

    def run(rows: Rows) -> Any:
        first = left.run(rows)
        return pc.or_kleene(first, _where(right, rows, pc.invert(pc.fill_null(first, False))))

    return Node(BOOLEAN, run, left.can_fail or right.can_fail, steps=_steps(left, right))


def negation(node: Node) -> Node:
    """NOT."""
    return _made(BOOLEAN, pc.invert, _boolean("NOT", node))


def _boolean(what: str, node: Node) -> Node:
    if _fits(node, VOID):
        return literal(None, BOOLEAN)
    if not _fits(node, BOOLEAN):
        raise refuse(f"{what} of {node.data_type}")
    return node


def is_null(node: Node) -> Node:
    """IS NULL."""
    return _made(BOOLEAN, pc.is_null, node)


def is_boolean(node: Node, wanted: bool) -> Node:
    """IS TRUE, IS FALSE."""
    truth = _boolean("IS TRUE", node)
    return _made(BOOLEAN, lambda values: pc.fill_null(values if wanted else pc.invert(values), False), truth)


# -------------------------------------------------------------------------------------------- comparison


def compare(operator: str, left: Node, right: Node) -> Node:
    """``= != < <= > >= <=>``; NaN equals itself and is the greatest number."""
    left, right, wide = _comparable(operator, *_equally_long(operator, left, right))
    null_safe = operator == "<=>"
    kernel = (FLOAT_COMPARISONS if pa.types.is_floating(wide) else COMPARISONS)["=" if null_safe else operator]

    def run(one: Any, other: Any) -> Any:
        one, other = _as(one, wide), _as(other, wide)
        return _null_safe_equal(kernel, one, other) if null_safe else kernel(one, other)

    return _made(BOOLEAN, run, left, right)


def _null_safe_equal(equal: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(pc.fill_null(equal(one, other), False), both_null)


def _as(values: Any, wide: pa.DataType) -> Any:
    # Whole numbers become the nearest float, as in Spark.
    return values if values.type == wide else values.cast(wide, safe=not pa.types.is_floating(wide))


def _equally_long(what: str, left: Node, right: Node) -> tuple[Node, Node]:
    """Two sides of a comparison, the shorter one padded with blanks where Spark does: char(n) beside a literal, or
    beside another char(n)."""
    if left.char is None and right.char is None:
        return left, right
    widths = [_width(node) for node in (left, right)]
    if any(node.is_constant and not node.is_literal and _fits(node, STRING) for node in (left, right)):
        raise refuse(f"{what} of char(n) and a text that is computed of literals")
    if None in widths:
        return left, right
    width = max(w for w in widths if w is not None)
    return _padded_to(left, width), _padded_to(right, width)


def _width(node: Node) -> int | None:
    return len(node.value) if node.is_literal and isinstance(node.value, str) else node.char


def _padded_to(node: Node, width: int) -> Node:
    return literal(node.value.ljust(width), STRING) if node.is_literal else as_char(node, width)


def as_char(node: Node, width: int) -> Node:
    """Texts as a column char(n) stores them."""
    return replace(_made(STRING, lambda values: padded(values, width), node), char=width, is_constant=False)


def without_char(what: str, *nodes: Node) -> None:
    """Raise CallError for a column char(n), which Spark compares there without padding."""
    if any(node.char is not None for node in nodes):
        raise refuse(f"{what} of char(n)")


def is_in(value: Node, choices: Sequence[Node]) -> Node:
    """IN: literals are looked up together, in one pass over the rows."""
    without_char("IN with columns", *choices)
    if value.char is not None:
        if any(_width(choice) is None for choice in choices):
            raise refuse("IN of char(n) and anything but text literals")
        width = max(value.char, *(len(choice.value) for choice in choices))
        value, choices = _padded_to(value, width), [_padded_to(choice, width) for choice in choices]
    sets: dict[tuple[int, pa.DataType], tuple[Node, list[Any]]] = {}
    found: list[Node] = []
    for choice in choices:
        left, right, wide = _comparable("=", value, choice)
        if right.is_literal and right.value is not None:
            _, values = sets.setdefault((id(left) if left is not value else 0, wide), (left, []))
            values.append(_as(right.run(NO_ROWS), wide))
        else:
            found.append(compare("=", value, choice))
    for (_, wide), (left, values) in sets.items():
        found.append(_looked_up(left, values, wide))
    return reduce(disjunction, found)


def _looked_up(value: Node, choices: Sequence[Any], wide: pa.DataType) -> Node:
    array = pa.concat_arrays([pa.repeat(choice, 1) for choice in choices])
    values = ValueSet.of_array(array)
    return _made(
        BOOLEAN,
        lambda rows: values.contains(pa.repeat(rows, 1))[0] if isinstance(rows, pa.Scalar) else values.contains(rows),
        _made(value.data_type, lambda found: _as(found, wide), value),
    )


def _comparable(operator: str, left: Node, right: Node) -> tuple[Node, Node, pa.DataType]:
    one, other = left.data_type, right.data_type
    for node in (left, right):
        if not isinstance(node.data_type, (PrimitiveType, DecimalType)) or str(node.data_type) == "variant":
            raise refuse(f"{operator} of {node.data_type}")
    if one == VOID or other == VOID:
        typed = other if one == VOID else one
        return left, right, type_to_arrow(BOOLEAN if typed == VOID else typed)
    if is_number(one) and is_number(other) and one != other and (DecimalType in (type(one), type(other))):
        if one in FLOATING or other in FLOATING:
            return _decimal_literal_as_double(left), _decimal_literal_as_double(right), pa.float64()
        return left, right, _ANY_DECIMAL
    left, right, shared = common(operator, left, right)
    return left, right, type_to_arrow(shared)


def _decimal_literal_as_double(node: Node) -> Node:
    if not isinstance(node.data_type, DecimalType):
        return node
    if not node.is_literal:
        raise refuse(f"{node.data_type} together with a floating-point number")
    return literal(float(node.value), DOUBLE)


def common(what: str, *nodes: Node) -> Any:
    """Nodes, text literals among them read as the others' type, and after them the one type that holds all."""
    kinds = {node.data_type for node in nodes if node.data_type != VOID}
    typed = kinds - {STRING}
    if STRING in kinds and typed:
        target = _widest(what, typed)
        nodes = tuple(_read_text(what, node, target) if _fits(node, STRING) else node for node in nodes)
        kinds = {node.data_type for node in nodes if node.data_type != VOID}
    return (*nodes, _widest(what, kinds))


def _widest(what: str, kinds: set[DataType]) -> DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    if not kinds:
        return VOID
    if kinds <= set(_BY_WIDTH):
        widest = max(kinds, key=_BY_WIDTH.index)
        # An integer has more digits than a float.
        return DOUBLE if widest == FLOAT else widest
    if kinds <= {DATE, TIMESTAMP, TIMESTAMP_NTZ}:
        return TIMESTAMP if TIMESTAMP in kinds else TIMESTAMP_NTZ
    if kinds <= {*INTEGRAL} | {k for k in kinds if isinstance(k, DecimalType)}:
        sizes = [(k.precision, k.scale) if isinstance(k, DecimalType) else (_DIGITS[k], 0) for k in kinds]
        scale = max(s for _, s in sizes)
        return _decimal(max(p - s for p, s in sizes) + scale, scale)
    raise refuse(f"{what} of {' and '.join(sorted(map(str, kinds)))} together")


def _read_text(what: str, node: Node, target: DataType) -> Node:
    """A text literal beside a value of another type, which Spark reads as that type."""
    text = node.value if node.is_literal else None
    if isinstance(text, str):
        if target in INTEGRAL and re.fullmatch(r"[+-]?\d{1,19}", text):
            return literal(int(text), LONG)
        if target in _TEMPORAL:
            return moment(text, target)
        if target == BOOLEAN and text.lower() in ("true", "false"):
            return literal(text.lower() == "true", BOOLEAN)
    raise refuse(f"{what} of string and {target} together")


def moment(text: str, data_type: DataType) -> Node:
    """A date or timestamp literal; in UTC where it names no zone. Raises CallError."""
    try:
        if data_type == DATE:
            return literal(_plain_date(text), DATE)
        found = parse_iso(text)
    except (ValueError, InvalidTimestampError):
        raise CallError(f"{text!r} is no {data_type} of the form yyyy-MM-dd[ HH:mm:ss[.ffffff]]") from None
    if data_type == TIMESTAMP:
        return literal(found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc), TIMESTAMP)
    if found.tzinfo is not None:
        raise refuse(f"a zone in the timestamp_ntz {text!r}")
    return literal(found, TIMESTAMP_NTZ)


def _plain_date(text: str) -> datetime.date:
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        raise ValueError(text)
    return datetime.date.fromisoformat(text)


def like(node: Node, pattern: Node) -> Node:
    """LIKE with a literal pattern of % and _, which both cross line breaks."""
    if not (_fits(node, STRING) and pattern.is_literal and isinstance(pattern.value, str)):
        raise refuse("LIKE of anything but a string and a literal pattern")
    marks = {"%": ".*", "_": "."}
    regex = "".join(marks.get(c) or re.escape(c) for c in pattern.value)
    return _made(BOOLEAN, lambda values: pc.match_substring_regex(values, rf"(?s)\A{regex}\z"), node)


# -------------------------------------------------------------------------------------------- arithmetic


def arithmetic(operator: str, left: Node, right: Node) -> Node:
    """``+ - * / % DIV`` of numbers."""
    for node in (left, right):
        if not is_number(node.data_type):
            raise refuse(f"{operator} of {left.data_type} and {right.data_type}")
    kinds = {left.data_type, right.data_type}
    if any(isinstance(k, DecimalType) for k in kinds):
        if not kinds & set(FLOATING):
            return _decimal_arithmetic(operator, left, right)
        left, right = _decimal_literal_as_double(left), _decimal_literal_as_double(right)
    wide = _widest(operator, {left.data_type, right.data_type})
    if operator == "/":
        return _made(DOUBLE, _divide, widened(left, DOUBLE), widened(right, DOUBLE), can_fail=True)
    if wide in FLOATING:
        if operator not in _FLOAT_KERNELS:
            raise refuse(f"{operator} of {left.data_type} and {right.data_type}")
        return _made(wide, _FLOAT_KERNELS[operator], widened(left, wide), widened(right, wide))
    if operator == "DIV":
        return _made(LONG, pc.divide_checked, widened(left, LONG), widened(right, LONG), can_fail=True)
    return _made(wide, _INTEGER_KERNELS[operator], widened(left, wide), widened(right, wide), can_fail=True)


def _decimal_arithmetic(operator: str, left: Node, right: Node) -> Node:
    if operator not in ("+", "-", "*"):
        raise refuse(f"{operator} of {left.data_type} and {right.data_type}")
    left, right = _as_decimal(left), _as_decimal(right)
    one, other = left.data_type, right.data_type
    assert isinstance(one, DecimalType) and isinstance(other, DecimalType)
    if operator == "*":
        result = _decimal(one.precision + other.precision + 1, one.scale + other.scale)
    else:
        scale = max(one.scale, other.scale)
        result = _decimal(max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale)
    arrow, kernel = type_to_arrow(result), _INTEGER_KERNELS[operator]
    return _made(result, lambda a, b: kernel(a, b).cast(arrow), left, right)


def _as_decimal(node: Node) -> Node:
    if isinstance(node.data_type, DecimalType):
        return node
    if node.is_literal:
        value = decimal.Decimal(node.value)
        return literal(value, _decimal_of(value))
    return widened(node, DecimalType(_DIGITS[node.data_type], 0))


def widened(node: Node, data_type: DataType) -> Node:
    """A node as a wider type; whole numbers become the nearest float."""
    if node.data_type == data_type:
        return node
    arrow = type_to_arrow(data_type)
    if _fits(node, DATE) and data_type == TIMESTAMP:
        return _made(data_type, lambda values: values.cast(_MICROS).cast(arrow), node, can_fail=True)
    return replace(_made(data_type, lambda values: _as(values, arrow), node), value=node.value)


def _divide(left: Any, right: Any) -> Any:
    if _any(pc.and_kleene(pc.equal(right, 0.0), pc.is_valid(left))):
        raise pa.ArrowInvalid("divide by zero")
    return pc.divide(left, right)


def _any(found: Any) -> bool:
    """Whether one of the values, or the only one, is true."""
    if isinstance(found, pa.Scalar):
        return found.as_py() is True
    return bool(pc.any(found, min_count=0).as_py())


def _remainder(left: Any, right: Any) -> Any:
    """With the sign of the dividend. By -1 it is 0, which the quotient of the least number would hide."""
    one = scalar(1, right.type)
    right = pc.if_else(pc.equal(right, scalar(-1, right.type)), one, right)
    return pc.subtract(left, pc.multiply(pc.divide_checked(left, right), right))


def _positive_remainder(left: Any, right: Any) -> Any:
    found = _remainder(left, right)
    return pc.if_else(pc.less(found, scalar(0, found.type)), _remainder(pc.add(found, right), right), found)


_FLOAT_KERNELS: Mapping[str, Callable[[Any, Any], Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_INTEGER_KERNELS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "%": _remainder,
    "PMOD": _positive_remainder,
}


def negative(node: Node) -> Node:
    """The minus sign before a value."""
    if not is_number(node.data_type):
        raise refuse(f"- of {node.data_type}")
    kernel = pc.negate if node.data_type in FLOATING else pc.negate_checked
    return _made(node.data_type, kernel, node, can_fail=node.data_type in INTEGRAL)


# --------------------------------------------------------------------------------------------- branching


def case(branches: Sequence[tuple[Node, Node]], otherwise: Node) -> Node:
    """CASE WHEN; a value is looked at only where its condition is the first that is true."""
    conditions = [condition for condition, _ in branches]
    for condition in conditions:
        if not _fits(condition, BOOLEAN):  # not even NULL
            raise refuse(f"CASE WHEN of {condition.data_type}")
    *values, data_type = common("CASE", *(value for _, value in branches), otherwise)
    values = [_as_type(value, data_type) for value in values]

    def run(rows: Rows) -> Any:
        todo: Any = pa.repeat(FALSE, rows.length)
        todo = pc.invert(todo)
        result: Any = pa.nulls(rows.length, type_to_arrow(data_type))
        for condition, value in zip(conditions, values, strict=False):
            here = pc.and_(todo, pc.fill_null(rows.array(_where(condition, rows, todo)), False))
            result = pc.if_else(here, _where(value, rows, here), result)
            todo = pc.and_not(todo, here)
        return pc.if_else(todo, _where(values[-1], rows, todo), result)

    inner = (*conditions, *values)
    constant = all(node.is_constant for node in inner)
    return Node(data_type, run, any(node.can_fail for node in inner), steps=_steps(*inner), is_constant=constant)


def coalesce(*nodes: Node) -> Node:
    """The first value that is not null; later ones are looked at only where it is needed."""
    first, *others = nodes
    return case([(negation(is_null(node)), node) for node in (first, *others[:-1])], others[-1]) if others else first


def null_if(left: Node, right: Node) -> Node:
    """The first value, or null where both are equal."""
    without_char("NULLIF", left, right)
    return case([(compare("=", left, right), literal(None, left.data_type))], left)


def _as_type(node: Node, data_type: DataType) -> Node:
    if node.data_type == VOID and data_type != VOID:
        return literal(None, data_type)
    if isinstance(data_type, DecimalType) and node.data_type != data_type:
        arrow = type_to_arrow(data_type)
        return _made(data_type, lambda values: values.cast(arrow), node)
    return widened(node, data_type)


# -------------------------------------------------------------------------------------------------- casts


def cast(node: Node, wanted: DataType) -> Node:
    """CAST in ANSI mode, between types where nothing is left to an engine's taste."""
    have = node.data_type
    if have == wanted:
        return node
    if node.is_literal and node.value is None:
        return literal(None, wanted)
    if isinstance(wanted, DecimalType):
        return _cast_to_decimal(node, wanted)
    kernel = _CASTS.get((have, wanted))
    if kernel is not None:
        return _made(wanted, kernel, node, can_fail=True)
    if have in _BY_WIDTH and wanted in _BY_WIDTH:
        return _cast_number(node, wanted)
    if have in INTEGRAL and wanted == STRING:
        return _made(STRING, lambda values: values.cast(pa.string()), node)
    if have == STRING and wanted in INTEGRAL:
        arrow = type_to_arrow(wanted)
        return _made(wanted, lambda values: _text_to_integer(values, arrow), node, can_fail=True)
    if isinstance(have, DecimalType) and wanted == DOUBLE and node.is_literal:
        return literal(float(node.value), DOUBLE)
    raise refuse(f"CAST from {have} to {wanted}")


def _cast_number(node: Node, wanted: DataType) -> Node:
    arrow = type_to_arrow(wanted)
    if wanted in FLOATING:
        return _made(wanted, lambda values: values.cast(arrow, safe=False), node)
    if node.data_type in FLOATING:
        return _made(wanted, lambda values: _finite(values).cast(arrow), node, can_fail=True)
    return _made(wanted, lambda values: values.cast(arrow), node, can_fail=True)


def _finite(values: Any) -> Any:
    if _any(pc.invert(pc.is_finite(values))):
        raise pa.ArrowInvalid("a number that is not finite is no whole number")
    return pc.trunc(values)


def _cast_to_decimal(node: Node, wanted: DecimalType) -> Node:
    arrow = type_to_arrow(wanted)
    if node.is_literal and (node.data_type in INTEGRAL or isinstance(node.data_type, DecimalType)):
        value = decimal.Decimal(node.value)
        exact = -int(value.as_tuple().exponent) <= wanted.scale
        if exact:
            return literal(value, wanted)
    have = node.data_type
    source = DecimalType(_DIGITS[have], 0) if have in INTEGRAL else have
    if isinstance(source, DecimalType) and source.scale <= wanted.scale:
        through = type_to_arrow(source)
        return _made(wanted, lambda values: values.cast(through).cast(arrow), node, can_fail=True)
    raise refuse(f"CAST from {node.data_type} to {wanted}")


# What Spark takes away around a text before it reads a number.
_BLANKS = "".join(map(chr, (*range(0x21), 0x7F)))


def _text_to_integer(values: Any, wanted: pa.DataType) -> Any:
    bare = pc.utf8_trim(values, characters=_BLANKS)
    if _any(pc.invert(pc.match_substring_regex(bare, r"\A[+-]?[0-9]+\z"))):
        raise pa.ArrowInvalid("a text is no whole number")
    return pc.utf8_ltrim(bare, characters="+").cast(wanted)


def _text_to_date(values: Any) -> Any:
    bare = pc.utf8_trim(values, characters=_BLANKS)
    if _any(pc.invert(pc.match_substring_regex(bare, r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"))):
        raise pa.ArrowInvalid("a text is no date of the form yyyy-MM-dd")
    return bare.cast(pa.date32())


def _timestamp_to_text(values: Any) -> Any:
    text = _in_common_years(values.cast(_MICROS)).cast(pa.string())
    return pc.utf8_rtrim(pc.utf8_rtrim(text, characters="0"), characters=".")


def _in_common_years(values: Any) -> Any:
    """Values as they are; other years are written in ways of their own by each engine."""
    year = pc.year(values)
    if _any(pc.or_(pc.less(year, 1), pc.greater(year, 9999))):
        raise pa.ArrowInvalid("a year outside 1 to 9999 is not written as text")
    return values


_CASTS: Mapping[tuple[DataType, DataType], Callable[[Any], Any]] = {
    (DATE, TIMESTAMP): lambda values: values.cast(_MICROS).cast(pa.timestamp("us", "UTC")),
    (DATE, TIMESTAMP_NTZ): lambda values: values.cast(_MICROS),
    (TIMESTAMP, DATE): lambda values: _floor(values, "day").cast(pa.date32()),
    (TIMESTAMP_NTZ, DATE): lambda values: _floor(values, "day").cast(pa.date32()),
    (TIMESTAMP, TIMESTAMP_NTZ): lambda values: values.cast(_MICROS),
    (TIMESTAMP_NTZ, TIMESTAMP): lambda values: values.cast(pa.timestamp("us", "UTC")),
    (DATE, STRING): lambda values: _in_common_years(values).cast(pa.string()),
    (TIMESTAMP, STRING): _timestamp_to_text,
    (TIMESTAMP_NTZ, STRING): _timestamp_to_text,
    (BOOLEAN, STRING): lambda values: values.cast(pa.string()),
    (STRING, DATE): _text_to_date,
    (BOOLEAN, BYTE): lambda values: values.cast(pa.int8()),
    (BOOLEAN, SHORT): lambda values: values.cast(pa.int16()),
    (BOOLEAN, INTEGER): lambda values: values.cast(pa.int32()),
    (BOOLEAN, LONG): lambda values: values.cast(pa.int64()),
}


def _floor(values: Any, unit: str) -> Any:
    wall = values.cast(_MICROS) if pa.types.is_timestamp(values.type) else values
    return pc.floor_temporal(wall, unit=unit)


# ---------------------------------------------------------------------------------------------- functions


def call(name: str, arguments: Sequence[Node]) -> Node:
    """A function by its name in SQL. Raises CallError for one that is not supported, and for wrong arguments."""
    function = _FUNCTIONS.get(name.lower())
    if function is None:
        raise refuse(f"The function {name}")
    low, high, make = function
    if not low <= len(arguments) <= high:
        raise refuse(f"The function {name} with {len(arguments)} arguments")
    return make(name.lower(), *arguments)


def _takes(name: str, node: Node, *kinds: DataType) -> None:
    if not _fits(node, *kinds):
        raise refuse(f"The function {name} of {node.data_type}")


def _constant(name: str, node: Node, kind: DataType) -> Any:
    if not (node.is_literal and node.data_type == kind) or node.value is None:
        raise refuse(f"The function {name} with an argument that is no {kind} literal")
    return node.value


def _part(kernel: Callable[[Any], Any], *kinds: DataType) -> Callable[..., Node]:
    def make(name: str, node: Node) -> Node:
        _takes(name, node, *kinds)
        wall = _MICROS if node.data_type != DATE else pa.date32()
        return _made(INTEGER, lambda values: kernel(values.cast(wall)).cast(pa.int32()), node)

    return make


def _day_of_week(values: Any) -> Any:
    return pc.day_of_week(values, count_from_zero=False, week_start=7)


_UNITS = {
    "year": ("year", "yyyy", "yy"),
    "quarter": ("quarter",),
    "month": ("month", "mm", "mon"),
    "week": ("week",),
}
_TIME_UNITS = {
    "day": ("day", "dd"),
    "hour": ("hour",),
    "minute": ("minute",),
    "second": ("second",),
    "millisecond": ("millisecond",),
    "microsecond": ("microsecond",),
}


def _unit(name: str, node: Node, known: Mapping[str, Sequence[str]]) -> str:
    text = _constant(name, node, STRING)
    for unit, spellings in known.items():
        if text.lower() in spellings:
            return unit
    raise refuse(f"The function {name} with the unit {text!r}")


def _date_trunc(name: str, unit: Node, node: Node) -> Node:
    _takes(name, node, DATE, TIMESTAMP)
    arrow_unit, arrow = _unit(name, unit, {**_UNITS, **_TIME_UNITS}), type_to_arrow(TIMESTAMP)
    moments = cast(node, TIMESTAMP)
    return _made(TIMESTAMP, lambda values: _floor(values, arrow_unit).cast(arrow), moments)


def _trunc(name: str, node: Node, unit: Node) -> Node:
    _takes(name, node, DATE, TIMESTAMP)
    arrow_unit = _unit(name, unit, _UNITS)
    return _made(DATE, lambda values: _floor(values, arrow_unit), cast(node, DATE))


# In Java a run of one letter is one thing: MMMM is a name, not twice a number.
_PATTERN = re.compile(r"([A-Za-z])\1*|.", re.DOTALL)
_STRFTIME = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_PLAIN = "-/:._ ,0123456789"


def _date_format(name: str, node: Node, pattern: Node) -> Node:
    _takes(name, node, *_TEMPORAL)
    text = _constant(name, pattern, STRING)
    parts = [match[0] for match in _PATTERN.finditer(text)]
    if not all(part in _STRFTIME or part in _PLAIN for part in parts):
        raise refuse(f"The function {name} with the pattern {text!r}")
    form = "".join(_STRFTIME.get(part, part) for part in parts)

    def run(values: Any) -> Any:
        whole = _floor(_in_common_years(values.cast(_MICROS)), "second").cast(pa.timestamp("s"))
        return pc.strftime(whole, format=form, locale="C")

    return _made(STRING, run, node, can_fail=True)


def _ascii(kernel: Callable[[Any], Any]) -> Callable[..., Node]:
    """Case is mapped alike everywhere for ASCII only."""

    def run(values: Any) -> Any:
        if _any(pc.invert(pc.string_is_ascii(values))):
            raise pa.ArrowInvalid("UPPER and LOWER are supported for ASCII text only")
        return kernel(values)

    def make(name: str, node: Node) -> Node:
        _takes(name, node, STRING)
        return _made(STRING, run, node, can_fail=True)

    return make


def _length(name: str, node: Node) -> Node:
    _takes(name, node, STRING, BINARY)
    kernel = pc.utf8_length if _fits(node, STRING) else pc.binary_length
    return _made(INTEGER, lambda values: kernel(values).cast(pa.int32()), node)


def _trim(kernel: Callable[..., Any]) -> Callable[..., Node]:
    def make(name: str, node: Node) -> Node:
        _takes(name, node, STRING)
        return _made(STRING, lambda values: kernel(values, characters=" "), node)

    return make


def _substring(name: str, node: Node, position: Node, length: Node | None = None) -> Node:
    """Counted from 1, or from the end when negative; 0 is 1."""
    _takes(name, node, STRING)
    start = _constant(name, position, INTEGER)
    start = start - 1 if start > 0 else start
    size = None if length is None else _constant(name, length, INTEGER)
    if size is not None and size <= 0:
        return _slice(node, 0, 0)
    stop = None if size is None else start + size
    return _slice(node, start, None if stop is not None and start < 0 <= stop else stop)


def _slice(node: Node, start: int, stop: int | None) -> Node:
    return _made(STRING, lambda values: pc.utf8_slice_codeunits(values, start=start, stop=stop), node)


def _left(name: str, node: Node, length: Node) -> Node:
    _takes(name, node, STRING)
    return _slice(node, 0, max(0, _constant(name, length, INTEGER)))


def _right(name: str, node: Node, length: Node) -> Node:
    _takes(name, node, STRING)
    size = max(0, _constant(name, length, INTEGER))
    return _slice(node, -size, None) if size else _slice(node, 0, 0)


def concat(*nodes: Node) -> Node:
    """CONCAT and ``||``: null where a part is; numbers and dates as CAST writes them."""
    parts = [cast(node, STRING) for node in nodes]
    return _made(STRING, lambda *values: pc.binary_join_element_wise(*values, "", null_handling="emit_null"), *parts)


def _abs(name: str, node: Node) -> Node:
    if not is_number(node.data_type):
        raise refuse(f"The function {name} of {node.data_type}")
    integral = node.data_type in INTEGRAL
    return _made(node.data_type, pc.abs_checked if integral else pc.abs, node, can_fail=integral)


def _rounded(kernel: Callable[[Any], Any]) -> Callable[..., Node]:
    def make(name: str, node: Node) -> Node:
        _takes(name, node, *_BY_WIDTH)
        if node.data_type in INTEGRAL:
            return widened(node, LONG)
        return _made(LONG, lambda values: _finite(kernel(values)).cast(pa.int64()), node, can_fail=True)

    return make


def _is_nan(name: str, node: Node) -> Node:
    _takes(name, node, *FLOATING)
    return _made(BOOLEAN, lambda values: pc.fill_null(pc.is_nan(values), False), node)


def _cast_to(data_type: DataType) -> tuple[int, int, Callable[..., Node]]:
    return 1, 1, lambda name, node: cast(node, data_type)


_ALL_PARTS = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_CLOCK = (TIMESTAMP, TIMESTAMP_NTZ)
# The least and the greatest number of arguments, and what makes the node.
_FUNCTIONS: Mapping[str, tuple[int, int, Callable[..., Node]]] = {
    "year": (1, 1, _part(pc.year, *_ALL_PARTS)),
    "month": (1, 1, _part(pc.month, *_ALL_PARTS)),
    "day": (1, 1, _part(pc.day, *_ALL_PARTS)),
    "dayofmonth": (1, 1, _part(pc.day, *_ALL_PARTS)),
    "dayofweek": (1, 1, _part(_day_of_week, *_ALL_PARTS)),
    "dayofyear": (1, 1, _part(pc.day_of_year, *_ALL_PARTS)),
    "weekofyear": (1, 1, _part(pc.iso_week, *_ALL_PARTS)),
    "quarter": (1, 1, _part(pc.quarter, *_ALL_PARTS)),
    "hour": (1, 1, _part(pc.hour, *_CLOCK)),
    "minute": (1, 1, _part(pc.minute, *_CLOCK)),
    "second": (1, 1, _part(pc.second, *_CLOCK)),
    "date_trunc": (2, 2, _date_trunc),
    "trunc": (2, 2, _trunc),
    "date_format": (2, 2, _date_format),
    "to_date": _cast_to(DATE),
    "upper": (1, 1, _ascii(pc.utf8_upper)),
    "ucase": (1, 1, _ascii(pc.utf8_upper)),
    "lower": (1, 1, _ascii(pc.utf8_lower)),
    "lcase": (1, 1, _ascii(pc.utf8_lower)),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), (1, 1, _length)),
    "trim": (1, 1, _trim(pc.utf8_trim)),
    "ltrim": (1, 1, _trim(pc.utf8_ltrim)),
    "rtrim": (1, 1, _trim(pc.utf8_rtrim)),
    "substring": (2, 3, _substring),
    "substr": (2, 3, _substring),
    "left": (2, 2, _left),
    "right": (2, 2, _right),
    "concat": (1, 100, lambda name, *nodes: concat(*nodes)),
    "abs": (1, 1, _abs),
    "floor": (1, 1, _rounded(pc.floor)),
    "ceil": (1, 1, _rounded(pc.ceil)),
    "ceiling": (1, 1, _rounded(pc.ceil)),
    "mod": (2, 2, lambda name, left, right: arithmetic("%", left, right)),
    "pmod": (2, 2, lambda name, left, right: arithmetic("PMOD", left, right)),
    "coalesce": (1, 100, lambda name, *nodes: coalesce(*nodes)),
    "nvl": (2, 2, lambda name, *nodes: coalesce(*nodes)),
    "ifnull": (2, 2, lambda name, *nodes: coalesce(*nodes)),
    "nullif": (2, 2, lambda name, left, right: null_if(left, right)),
    "isnull": (1, 1, lambda name, node: is_null(node)),
    "isnotnull": (1, 1, lambda name, node: negation(is_null(node))),
    "isnan": (1, 1, _is_nan),
    "date": _cast_to(DATE),
    "timestamp": _cast_to(TIMESTAMP),
    "string": _cast_to(STRING),
    "tinyint": _cast_to(BYTE),
    "smallint": _cast_to(SHORT),
    "int": _cast_to(INTEGER),
    "bigint": _cast_to(LONG),
    "float": _cast_to(FLOAT),
    "double": _cast_to(DOUBLE),
}
