"""A table's rules for its rows: which constraints to check, and which columns to fill in. Pure.

CHECK constraints, column invariants and generated columns are checked on every new row. Absent columns are generated or
filled with their default value, identity columns get their values, the lengths of char(n) and varchar(n) columns are
enforced, and char(n) values are padded. A condition must be true; null counts as a violation, as PROTOCOL.md defines
for both constraints and invariants.
Spec: PROTOCOL.md#check-constraints, #column-invariants, #generated-columns, #default-columns, #identity-columns.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from deltalog.errors import CallError, ConstraintViolationError, UnsupportedFeatureError
from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.protocol import features, partitions
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.char_varchar import SIZED_KEY, Length, declared, length_of, padded
from deltalog.protocol.column_metadata import DEFAULT_KEY, GENERATION_KEY, INVARIANT_KEY
from deltalog.protocol.properties import CONSTRAINT_PREFIX
from deltalog.protocol.schema import DataType, StructField, StructType, columns_by_path

if TYPE_CHECKING:
    from deltalog.expressions import compile as expressions
    from deltalog.expressions.functions import types as expression_types
    from deltalog.write import identity_values
else:
    lazy_modules(
        __name__,
        "deltalog.write.identity_values",
        expressions="deltalog.expressions.compile",
        expression_types="deltalog.expressions.functions.types",
    )

_MAX_SHOWN = 100  # maximum number of characters of an expression or value in a message
T = TypeVar("T")


class Check(msgspec.Struct, frozen=True):
    """A condition that every row must satisfy, and its name in messages.

    ``generates``: the column that must equal the expression ``text``; empty if ``text`` is the condition itself.
    """

    name: str
    text: str
    condition: expressions.CompiledExpression
    generates: str = ""


@dataclass(frozen=True, slots=True)
class TableRules:
    """The rules that a table defines for new rows. Engines that write rows themselves get these rules from
    ``Transaction.row_writer.rules()``. An object without rules is falsy."""

    #: The URL of the table, for error messages.
    table: str = ""
    #: Conditions that every row must satisfy: CHECK constraints, invariants, generated columns.
    checks: tuple[Check, ...] = ()
    #: Keyed by column: the default or generation expression that computes the column if it is absent.
    fillings: Mapping[str, expressions.CompiledExpression] = field(default_factory=dict)
    #: The lengths of char and varchar columns.
    lengths: Mapping[str, Length] = field(default_factory=dict)
    #: The generator of identity values; None if there are no identity columns, or if the rows already contain the
    #: values.
    identities: identity_values.IdentityValues | None = field(default=None, compare=False)
    #: Partition columns in which an empty string is stored as null. The expressions in ``fillings`` already take that
    #: into account.
    null_if_empty: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.checks or self.fillings or self.lengths or self.identities)

    @property
    def filled(self) -> frozenset[str]:
        """The columns that are filled in if the data lacks them."""
        return frozenset(self.fillings) | (frozenset() if self.identities is None else self.identities.names)

    @property
    def demands(self) -> tuple[frozenset[tuple[str, str]], Mapping[str, Length]]:
        """A value for comparing rules: it is equal for rules that check the same conditions and lengths."""
        return frozenset((check.name, check.text) for check in self.checks), self.lengths

    @property
    def columns(self) -> list[str]:
        """The top-level columns that the rules read."""
        found = dict.fromkeys(path[0] for check in self.checks for path in check.condition.columns)
        identities = () if self.identities is None else self.identities.names
        return list({**found, **dict.fromkeys(self.lengths), **dict.fromkeys(identities)})

    def applied(self, rows: pa.Table, absent: Collection[str], is_new: bool = False) -> pa.Table:
        """Fill in the ``absent`` columns (null in ``rows``), truncate and pad char and varchar values, and check all
        rules. ``rows`` must have the types of the table's columns. ``is_new``: whether the rows are new to the table;
        if so, identity columns get values. Raises ConstraintViolationError, SchemaMismatchError for values in a
        GENERATED ALWAYS identity column."""
        if is_new and self.identities is not None:
            rows = self._identified(rows, self.identities, absent)
        rows = self._sized(rows, [name for name in self.lengths if name not in absent])
        # Defaults come before generated columns, whose expressions may use them.
        for name, expression in self.fillings.items():
            if name in absent:
                rows = _replaced(rows, name, self._values(expression, rows, f"column {name}"))
        rows = self._sized(rows, [name for name in self.lengths if name in absent])
        self.check(rows)
        return rows

    @staticmethod
    def _identified(rows: pa.Table, identities: identity_values.IdentityValues, absent: Collection[str]) -> pa.Table:
        identities.check_given(name for name in rows.schema.names if name not in absent)
        for name in identities.names:
            if name in absent:
                rows = _replaced(rows, name, identities.generated(name, rows.num_rows))
            else:
                identities.note(name, rows.column(name))
        return rows

    def _sized(self, rows: pa.Table, names: Iterable[str]) -> pa.Table:
        for name in names:
            rows = _replaced(rows, name, self._fitted(_whole(rows, name), name, self.lengths[name]))
        return rows

    def check(self, rows: pa.Table) -> None:
        """Raise ConstraintViolationError unless every row satisfies the rules."""
        for name, length in self.lengths.items():
            self._check_length(_whole(rows, name), name, length)
        self.check_all((rows,))

    def check_all(self, tables: Iterable[pa.Table]) -> None:
        """Like ``check``, for several Arrow tables, without checking declared lengths (char and varchar). The error
        reports how many rows violate the first condition that is violated."""
        broken_check, total, example = None, 0, ""
        for rows in tables:
            for check in self.checks if broken_check is None else (broken_check,):
                holds = self._values(check.condition, rows, check.name, check.text)
                broken = pc.invert(pc.fill_null(holds, False))
                count = pc.sum(broken, min_count=0).as_py() or 0
                if count and broken_check is None:
                    broken_check, example = check, _example(rows, broken, check.condition)
                total += count
                if broken_check is not None:
                    break
        if broken_check is not None:
            raise self._violation(broken_check.name, broken_check.text, total, example)

    def _values(
        self, expression: expressions.CompiledExpression, rows: pa.Table, what: str, text: str | None = None
    ) -> Any:
        try:
            return expression.evaluate(rows)
        except (pa.ArrowException, OverflowError) as error:
            shown = expression.text if text is None else text
            raise ConstraintViolationError(
                f"{self.table}: {what} ({_short(shown)}) cannot be evaluated for a row: {error}. Correct the rows.",
                constraint=what,
                expression=shown,
                violations=None,
            ) from None

    def _fitted(self, values: Any, name: str, length: Length) -> Any:
        bare = pc.utf8_rtrim(values, characters=" ")
        self._check_length(bare, name, length)
        cut = pc.utf8_slice_codeunits(values, 0, length.limit)
        return padded(cut, length.limit) if length.padded else cut

    def _check_length(self, values: Any, name: str, length: Length) -> None:
        longer = pc.fill_null(pc.greater(pc.utf8_length(values), length.limit), False)
        count = pc.sum(longer, min_count=0).as_py() or 0
        if count:
            example = f"{name}={_shown(values.filter(longer)[0].as_py())}"
            raise self._violation(f"column {name}", length.text, count, example)

    def _violation(self, name: str, text: str, count: int, example: str) -> ConstraintViolationError:
        rows = "1 row violates" if count == 1 else f"{count} rows violate"
        return ConstraintViolationError(
            f"{self.table}: {rows} {name} ({_short(text)}), for example {example}. Nothing was committed. Correct the "
            "rows.",
            constraint=name,
            expression=text,
            violations=count,
        )


NO_RULES = TableRules()


def _whole(rows: pa.Table, name: str) -> Any:
    return rows.column(name).combine_chunks()


def _replaced(rows: pa.Table, name: str, values: Any) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), values)


def _example(rows: pa.Table, broken: Any, condition: expressions.CompiledExpression) -> str:
    first = rows.filter(broken).slice(0, 1)
    names = dict.fromkeys(path[0] for path in condition.columns)
    return ", ".join(f"{name}={_shown(first.column(name)[0].as_py())}" for name in names) or "any"


def _shown(value: Any) -> str:
    return _short(repr(value) if isinstance(value, (str, bytes)) else str(value))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


# ------------------------------------------------------------------------------------ from table metadata


# A table has no rules if it has no constraints and its schema string contains none of these keys.
_RULE_KEYS = (INVARIANT_KEY, GENERATION_KEY, DEFAULT_KEY, SIZED_KEY)


def rules_of(metadata: Metadata, protocol: Protocol, table: str, clock_ms: Callable[[], int]) -> TableRules:
    """The rules of a table. ``clock_ms``: returns the value of CURRENT_TIMESTAMP for constraints and defaults, in
    milliseconds since 1970.

    Raises UnsupportedFeatureError for an unsupported expression, with the column or constraint.
    """
    partitioned_by = metadata.partition_columns
    empties = partitions.null_if_empty(metadata.schema, partitioned_by) if partitioned_by else frozenset[str]()
    constrained = any(key.startswith(CONSTRAINT_PREFIX) for key in metadata.configuration)
    if not constrained and not any(key in metadata.schema_string for key in _RULE_KEYS):
        return TableRules(null_if_empty=empties) if empties else NO_RULES
    schema = metadata.schema
    supported = features.writer_features(protocol)
    now = datetime.datetime.fromtimestamp(clock_ms() / 1000, datetime.timezone.utc)
    checks = [*_constraints(metadata, schema, table, now), *_invariants(schema, table, now)]
    fillings: dict[str, expressions.CompiledExpression] = {}
    defaults = _columns_with(schema, DEFAULT_KEY) if "allowColumnDefaults" in supported else []
    for column in defaults:
        name = f"the default of column {column.name}"
        source = _Source("allowColumnDefaults", name, column.metadata[DEFAULT_KEY])
        compiled = source.compiled(table, StructType(()), column.data_type, now)
        fillings[column.name] = expressions.null_if_empty(compiled) if column.name in empties else compiled
    if "generatedColumns" in supported:
        for column in _columns_with(schema, GENERATION_KEY):
            name = f"the generation expression of column {column.name}"
            source = _Source("generatedColumns", name, column.metadata[GENERATION_KEY])
            expression = source.compiled(table, schema, column.data_type)
            if column.name in empties:
                expression = expressions.null_if_empty(expression)
            fillings[column.name] = expression
            condition = source.guarded(table, partial(expressions.equal_to_column, expression, column))
            checks.append(Check(name, expression.text, condition, column.name))
    return TableRules(table, tuple(checks), fillings, dict(_lengths(schema)), null_if_empty=empties)


def constraint(name: str, text: str, schema: StructType, now: datetime.datetime) -> Check:
    """A CHECK constraint. ``now``: the time to use as CURRENT_TIMESTAMP. Raises CallError if the expression is not
    supported or not a condition."""
    condition = _condition(text, schema, f"The constraint {name} ({_short(text)})", now)
    return Check(f"the CHECK constraint {name}", text, condition)


def _condition(text: str, schema: StructType, what: str, now: datetime.datetime) -> expressions.CompiledExpression:
    compiled = expressions.compile_expression(text, schema, now=now)
    if compiled.data_type != expression_types.BOOLEAN:
        raise CallError(f"{what} is of type {compiled.data_type}, not a condition.")
    return compiled


class _Source(msgspec.Struct, frozen=True):
    """An expression in a table's metadata. ``name``: the name of the expression in error messages."""

    feature: str
    name: str
    text: Any

    def compiled(
        self,
        table: str,
        schema: StructType,
        wanted: DataType | None = None,
        now: datetime.datetime | None = None,
    ) -> expressions.CompiledExpression:
        return self.guarded(table, partial(expressions.compile_expression, str(self.text), schema, wanted, now))

    def guarded(self, table: str, make: Callable[[], T]) -> T:
        try:
            return make()
        except CallError as error:
            raise UnsupportedFeatureError(
                f"{table}: {self.name} is not supported, so no rows can be written. {error} Write the table with a "
                "client that supports the expression; reading is not affected.",
                features=(self.feature,),
            ) from None


def _constraints(metadata: Metadata, schema: StructType, table: str, now: datetime.datetime) -> Iterator[Check]:
    for key, text in metadata.configuration.items():
        if key.startswith(CONSTRAINT_PREFIX):
            name = key.removeprefix(CONSTRAINT_PREFIX)
            source = _Source("checkConstraints", f"the CHECK constraint {name}", text)
            yield source.guarded(table, partial(constraint, name, text, schema, now))


def _invariants(schema: StructType, table: str, now: datetime.datetime) -> Iterator[Check]:
    for path, column in columns_by_path(schema):
        if INVARIANT_KEY not in column.metadata:
            continue
        name, text = ".".join(path), column.metadata[INVARIANT_KEY]
        source = _Source("invariants", f"the invariant of column {name}", text)
        yield source.guarded(table, partial(_invariant, name, text, schema, now))


def expression_of_invariant(text: Any) -> str:
    """The SQL text of a column's invariant, from the column's metadata. Raises CallError."""
    try:
        return str(json.loads(text)["expression"]["expression"])
    except (ValueError, KeyError, TypeError):
        raise CallError(f"It is {_short(repr(text))}, not an expression as JSON.") from None


def _invariant(name: str, text: Any, schema: StructType, now: datetime.datetime) -> Check:
    expression = expression_of_invariant(text)
    return Check(f"the invariant of column {name}", expression, _condition(expression, schema, "It", now))


def _columns_with(schema: StructType, key: str) -> list[StructField]:
    return [column for column in schema.fields if key in column.metadata]


def _lengths(schema: StructType) -> Iterator[tuple[str, Length]]:
    for column in _columns_with(schema, SIZED_KEY):
        length = length_of(column)
        if length is None:
            raise UnsupportedFeatureError(
                f"Column {column.name} is declared {declared(column)}. Nested char and varchar columns cannot be "
                "written.",
                features=("char/varchar",),
            )
        yield column.name, length
