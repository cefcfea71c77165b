"""SQL expressions of a table, over Arrow rows: CHECK constraints, invariants, generated and default columns. Pure.

    expression = compile_expression("CAST(ts AS DATE)", schema)
    expression.evaluate(table)

sqlglot parses, in Spark's dialect; each node is looked up by name and nothing is evaluated as code. What is not known
here to mean the same as in Spark is refused, by name.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.errors import CallError
from deltalog.expressions.functions import (
    arithmetic,
    casts,
    coercion,
    comparisons,
    conditional,
    logic,
    nodes,
    registry,
    text,
    types,
)
from deltalog.expressions.functions.nodes import Node, Rows
from deltalog.expressions.functions.types import refuse
from deltalog.expressions.predicate_sql import sql_tree
from deltalog.expressions.predicates import Column, comparable, find, values_of
from deltalog.protocol import limits
from deltalog.protocol.char_varchar import char_length
from deltalog.protocol.schema import DataType, DecimalType, StructField, StructType

# Such a cast cuts or pads, and the parser drops the number.
_SIZED_TEXT = re.compile(r"\b(?:var)?char(?:acter)?\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that fits a schema: its text, the type of its values, the columns that it looks at."""

    text: str
    data_type: DataType
    columns: tuple[tuple[str, ...], ...]
    _node: Node

    def evaluate(self, table: pa.Table) -> Any:
        """A value for each row of a table with these columns, as an Arrow array.

        Raises pyarrow.ArrowInvalid where Spark's ANSI mode has an error too: overflow, division by zero, a cast that
        loses; and for a few values that only Spark can tell (UPPER of text beyond ASCII).
        """
        values = {path: values_of(path, table) for path in self.columns}
        rows = Rows(values, table.num_rows)
        try:
            return rows.array(self._node.run(rows))
        except RecursionError:
            raise pa.ArrowInvalid("the expression is nested too deeply") from None


def compile_expression(
    text: str, schema: StructType, wanted: DataType | None = None, now: datetime.datetime | None = None
) -> Expression:
    """The expression over the columns of ``schema``; with ``wanted``, cast to that type.

    ``now``: what CURRENT_TIMESTAMP and CURRENT_DATE are; without it they are refused. Raises CallError for what cannot
    be parsed, names no column, or is not supported.
    """
    try:
        compiler = _Compiler(schema, now)
        node = compiler.node(_parse(text))
        if wanted is not None:
            node = casts.cast(node, wanted)
        if node.steps > limits.MAX_EXPRESSION_STEPS:
            raise CallError(f"the number of its steps {limits.over('MAX_EXPRESSION_STEPS', node.steps)}")
    except RecursionError:
        raise CallError(f"The expression {text[:60]!r}… is nested too deeply.") from None
    except CallError as error:
        raise CallError(f"The expression {text[:1000]!r}: {str(error).rstrip('.')}.") from None
    return Expression(text, node.data_type, tuple(compiler.columns), node)


def equal_to_column(expression: Expression, column: StructField) -> Expression:
    """Whether a column is what an expression says, null being equal to null. Raises CallError for types that cannot
    be compared."""
    path, char = (column.name,), char_length([column])
    # What is generated for a char(n) is padded when it is stored.
    generated = expression._node if char is None else comparisons.as_char(expression._node, char)
    condition = comparisons.compare("<=>", nodes.column(path, column.data_type, char), generated)
    paths = tuple(dict.fromkeys((path, *expression.columns)))
    return Expression(expression.text, condition.data_type, paths, condition)


def _parse(text: str) -> Any:
    if len(text) > limits.MAX_EXPRESSION_CHARS:
        raise CallError(f"its length {limits.over('MAX_EXPRESSION_CHARS', len(text))}")
    # Engines disagree on what a backslash in a text means, and versions of Spark do.
    if "\\" in text:
        raise refuse("a backslash")
    if _SIZED_TEXT.search(text):
        raise refuse("CHAR(n) and VARCHAR(n)")
    return sql_tree(text, _dialect(), "it")


@functools.cache
def _dialect() -> Any:
    """Spark's dialect without its table of functions: sqlglot rewrites calls, we want them as they are written."""
    from sqlglot.dialects.spark import Spark

    base: Any = Spark
    kept = {name: parser for name, parser in base.Parser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST")}
    rules = {"FUNCTIONS": {}, "FUNCTION_PARSERS": kept, "NO_PAREN_FUNCTIONS": {}, "STRICT_CAST": True}
    return type("DeltalogExpressions", (base,), {"Parser": type("Parser", (base.Parser,), rules)})


class _Compiler:
    """From the parser's tree to nodes, noting the columns on the way."""

    def __init__(self, schema: StructType, now: datetime.datetime | None) -> None:
        self._schema = schema
        self._now = now
        self.columns: dict[tuple[str, ...], None] = {}

    def node(self, tree: Any) -> Node:
        compile_kind = _kinds().get(type(tree))
        if compile_kind is None:
            raise refuse(_words(tree))
        parts, make = compile_kind
        strange = [key for key, value in tree.args.items() if value and key not in parts]
        if strange:
            raise refuse(f"{_words(tree)} (with {', '.join(strange)})")
        _check_precedence(tree)
        return make(self, tree)

    def column(self, path: tuple[str, ...], tree: Any) -> Node:
        if self._schema.find(path[0]) is None and len(path) == 1 and not tree.this.args.get("quoted"):
            moment = self._moment(path[0])
            if moment is not None:
                return moment
        bound = comparable(find(Column(path), self._schema))
        self.columns.setdefault(bound.column.path)
        return nodes.column(bound.column.path, bound.data_type, bound.char_length)

    def call(self, tree: Any) -> Node:
        name = str(tree.this)
        if not tree.expressions:
            moment = self._moment(name)
            if moment is not None:
                return moment
        return registry.call(name, [self.node(each) for each in tree.expressions])

    def _moment(self, name: str) -> Node | None:
        """CURRENT_TIMESTAMP and its like, if ``name`` is one of them."""
        folded = name.lower()
        if folded not in ("current_timestamp", "now", "current_date", "curdate"):
            return None
        if self._now is None:
            raise refuse(f"The function {name}, whose value is another one each time,")
        if folded in ("current_timestamp", "now"):
            return nodes.literal(self._now, types.TIMESTAMP)
        return nodes.literal(self._now.date(), types.DATE)

    def in_list(self, tree: Any) -> Node:
        return comparisons.is_in(self.node(tree.this), [self.node(each) for each in tree.expressions])

    def between(self, tree: Any) -> Node:
        value, low, high = self.node(tree.this), self.node(tree.args["low"]), self.node(tree.args["high"])
        comparisons.without_char("BETWEEN", value, low, high)
        return logic.conjunction(comparisons.compare(">=", value, low), comparisons.compare("<=", value, high))

    def is_(self, tree: Any) -> Node:
        from sqlglot import exp

        value, what = self.node(tree.this), tree.expression
        if isinstance(what, exp.Null):
            return logic.is_null(value)
        if isinstance(what, exp.Boolean):
            return logic.is_boolean(value, bool(what.this))
        raise refuse(_words(tree))

    def like(self, tree: Any) -> Node:
        found = comparisons.like(self.node(tree.this), self.node(tree.expression))
        return logic.negation(found) if tree.args.get("negate") else found

    def case(self, tree: Any) -> Node:
        subject = None if tree.this is None else self.node(tree.this)
        branches = []
        for branch in tree.args["ifs"]:
            condition = self.node(branch.this)
            if subject is not None:
                condition = comparisons.compare("=", subject, condition)
            branches.append((condition, self.node(branch.args["true"])))
        default = tree.args.get("default")
        return conditional.case(branches, nodes.NULL if default is None else self.node(default))

    def if_(self, tree: Any) -> Node:
        default = tree.args.get("false")
        if default is None:
            raise refuse("IF with two arguments")
        return conditional.case([(self.node(tree.this), self.node(tree.args["true"]))], self.node(default))

    def negative(self, tree: Any) -> Node:
        # Spark reads the sign with the number: the least of a type has no positive counterpart.
        return self._number(tree.this, "-") or arithmetic.negative(self.node(tree.this))

    def literal(self, tree: Any) -> Node:
        if tree.is_string:
            return nodes.literal(str(tree.this), types.STRING)
        return nodes.number(str(tree.this))

    def cast(self, tree: Any) -> Node:
        from sqlglot import exp

        suffixed = self._number(tree, "")
        if suffixed is not None:
            return suffixed
        wanted, inner = _data_type(tree.to), tree.this
        # DATE '2026-01-01' arrives as a cast, like CAST('2026-01-01' AS DATE).
        if isinstance(inner, exp.Literal) and inner.is_string:
            if wanted in (types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ):
                return coercion.moment(str(inner.this), wanted)
            if isinstance(wanted, DecimalType) and _NUMBER.fullmatch(str(inner.this)):
                return casts.cast(nodes.number(str(inner.this)), wanted)
        return casts.cast(self.node(inner), wanted)

    def _number(self, tree: Any, sign: str) -> Node | None:
        """A number as it is written, after a sign; with a suffix such as 5L, which arrives as a cast."""
        from sqlglot import exp

        inner = tree.this if isinstance(tree, exp.Cast) else tree
        if not isinstance(inner, exp.Literal) or inner.is_string:
            return None
        text = f"{sign}{inner.this}"
        if inner is tree:
            return nodes.number(text)
        wanted = _data_type(tree.to)
        if wanted in types.INTEGRAL and _WHOLE.fullmatch(text):
            return nodes.literal(int(text), wanted)
        if wanted in types.FLOATING:
            return nodes.literal(float(text), wanted)
        return None


_WHOLE = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?")


def _check_precedence(tree: Any) -> None:
    """Refuse what the parser and Spark group in different ways, such as ``a = b < c`` and ``a || b + c``."""
    kind = type(tree).__name__
    if kind in _COMPARISONS:
        loose: frozenset[str] = _COMPARISONS | {"And", "Or", "Not"}
    elif kind == "DPipe":
        loose = frozenset({"Add", "Sub"})
    elif kind in ("Add", "Sub"):
        loose = frozenset({"DPipe"})
    else:
        return
    parts = (tree.this, tree.args.get("expression"), tree.args.get("low"), tree.args.get("high"))
    if any(type(part).__name__ in loose for part in parts):
        raise refuse(f"{_words(tree)} without parentheses")


_COMPARISONS = frozenset({"EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ", "Is", "In", "Between", "Like"})


def _path(tree: Any) -> tuple[str, ...]:
    from sqlglot import exp

    if isinstance(tree, exp.Dot) and isinstance(tree.expression, exp.Identifier):
        return (*_path(tree.this), tree.expression.name)
    if isinstance(tree, exp.Column):
        return tuple(part.name for part in tree.parts)
    raise refuse(_words(tree))


def _words(tree: Any) -> str:
    """What a part of an expression is called in a message."""
    try:
        return repr(tree.sql(dialect="spark")[:200])
    except Exception:
        return type(tree).__name__


def _data_type(tree: Any) -> DataType:
    from sqlglot import exp

    name = tree.this.value if hasattr(tree.this, "value") else str(tree.this)
    sizes = [str(each.this) for each in tree.expressions or () if isinstance(each, exp.DataTypeParam)]
    if name == "DECIMAL" and len(sizes) in (1, 2) and all(size.isdigit() for size in sizes):
        precision, scale = int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0
        if 1 <= precision <= 38 and scale <= precision:
            return DecimalType(precision, scale)
    found = _TYPES.get(name)
    if found is None or tree.expressions:
        raise refuse(f"CAST to {_words(tree)}")
    return found


_TYPES: Mapping[str, DataType] = {
    "BOOLEAN": types.BOOLEAN,
    "TINYINT": types.BYTE,
    "SMALLINT": types.SHORT,
    "INT": types.INTEGER,
    "BIGINT": types.LONG,
    "FLOAT": types.FLOAT,
    "DOUBLE": types.DOUBLE,
    "TEXT": types.STRING,
    "DATE": types.DATE,
    "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMPTZ": types.TIMESTAMP,
    "TIMESTAMPLTZ": types.TIMESTAMP,
    "TIMESTAMPNTZ": types.TIMESTAMP_NTZ,
}

_Make = Callable[[_Compiler, Any], Node]


@functools.cache
def _kinds() -> Mapping[type, tuple[frozenset[str], _Make]]:
    """For each kind of tree: the parts that it may have, and what makes a node of it."""
    from sqlglot import exp

    def binary(make: Callable[[Node, Node], Node]) -> _Make:
        return lambda compiler, tree: make(compiler.node(tree.this), compiler.node(tree.expression))

    def comparison(operator: str) -> _Make:
        return binary(functools.partial(comparisons.compare, operator))

    def of_numbers(operator: str) -> _Make:
        return binary(functools.partial(arithmetic.arithmetic, operator))

    two = ("this", "expression")
    found: dict[str, tuple[tuple[str, ...], _Make]] = {
        "Paren": (("this",), lambda compiler, tree: compiler.node(tree.this)),
        "And": (two, binary(logic.conjunction)),
        "Or": (two, binary(logic.disjunction)),
        "Not": (("this",), lambda compiler, tree: logic.negation(compiler.node(tree.this))),
        "EQ": (two, comparison("=")),
        "NEQ": (two, comparison("!=")),
        "LT": (two, comparison("<")),
        "LTE": (two, comparison("<=")),
        "GT": (two, comparison(">")),
        "GTE": (two, comparison(">=")),
        "NullSafeEQ": (two, comparison("<=>")),
        "Is": (two, _Compiler.is_),
        "In": (("this", "expressions"), _Compiler.in_list),
        "Between": (("this", "low", "high"), _Compiler.between),
        "Like": ((*two, "negate"), _Compiler.like),
        "Add": (two, of_numbers("+")),
        "Sub": (two, of_numbers("-")),
        "Mul": (two, of_numbers("*")),
        "Div": ((*two, "safe", "typed"), of_numbers("/")),
        "IntDiv": (two, of_numbers("DIV")),
        "Mod": (two, of_numbers("%")),
        "DPipe": ((*two, "safe"), binary(text.concat)),
        "Neg": (("this",), _Compiler.negative),
        "Literal": (("this", "is_string"), _Compiler.literal),
        "Boolean": (
            ("this",),
            lambda compiler, tree: nodes.literal(bool(tree.this), types.BOOLEAN),
        ),
        "Null": ((), lambda compiler, tree: nodes.NULL),
        "Cast": (("this", "to"), _Compiler.cast),
        "Case": (("this", "ifs", "default"), _Compiler.case),
        "If": (("this", "true", "false"), _Compiler.if_),
        "Column": (("this", "table", "db", "catalog"), lambda compiler, tree: compiler.column(_path(tree), tree)),
        "Dot": (two, lambda compiler, tree: compiler.column(_path(tree), tree)),
        "Anonymous": (("this", "expressions"), _Compiler.call),
    }
    return {getattr(exp, name): (frozenset(parts), make) for name, (parts, make) in found.items()}
