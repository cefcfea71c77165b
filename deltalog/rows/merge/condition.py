"""Splits the condition of a merge, and finds the pairs of rows for which the condition is true. Pure.

Equalities between the two sides become join keys for Arrow. The remaining conjuncts are evaluated block by block, on
the pairs with equal keys, or on all pairs if there are no keys.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import FALSE, combined, row_numbers
from deltalog.errors import CallError
from deltalog.expressions.bind import Binder, bind
from deltalog.expressions.bound import Bound, columns_of
from deltalog.expressions.compile import CompiledExpression, null_if_empty
from deltalog.expressions.evaluate import matches
from deltalog.expressions.functions.comparisons import equality
from deltalog.expressions.functions.types import BINARY, BOOLEAN, DATE, INTEGRAL, STRING, TIMESTAMP, TIMESTAMP_NTZ
from deltalog.expressions.relations import Relation, Relations, conjuncts, flat_columns, joined, restored
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import And, Comparison, Expression, In, Literal, Name
from deltalog.lazy_arrow import pc
from deltalog.protocol.char_varchar import char_length
from deltalog.protocol.schema import DataType, DecimalType
from deltalog.rows.merge.chunked_rows import ChunkedRows
from deltalog.rows.merge.keys import Key, KeyValues, SourceKeys, key_columns, zero_of

_MAX_PAIRS = 1 << 18  # number of pairs on which a condition is evaluated at once
_OWN = (STRING, DATE, TIMESTAMP, TIMESTAMP_NTZ, BOOLEAN, BINARY)


@dataclass(frozen=True, slots=True)
class MergeCondition:
    """The condition of a merge as a conjunction: join keys, and conditions on the target, on the source and on both."""

    target: Relation
    source: Relation
    keys: Sequence[Key]
    of_target: Bound | None
    of_source: Bound | None
    of_pairs: Bound | None
    target_parts: Sequence[Expression]

    @classmethod
    def from_expression(
        cls,
        tree: Expression,
        target: Relation,
        source: Relation,
        now: datetime.datetime,
        empties: frozenset[str] = frozenset(),
    ) -> MergeCondition:
        """``empties``: target columns that store empty values as null, so that with ``<=>`` an empty source value
        matches null. Raises CallError for unsupported expressions and non-boolean ones."""
        relations = Relations((target, source))
        resolved = relations.resolved(tree)
        bound_condition(resolved, relations, now)  # check the whole condition, as the caller wrote it
        sides = {target.flat(n): 0 for n in target.schema.names} | {source.flat(n): 1 for n in source.schema.names}
        parts: dict[frozenset[int], list[Expression]] = {}
        keys: list[Key] = []
        for part in conjuncts(resolved):
            key = _key(part, relations, sides, target, now, empties)
            if key is not None:
                keys.append(key)
            else:
                parts.setdefault(_sides(part, sides), []).append(part)
        of_source = [*parts.get(frozenset(), ()), *parts.get(frozenset((1,)), ())]
        of_target = parts.get(frozenset((0,)), [])
        return cls(
            target,
            source,
            tuple(keys),
            _bound(of_target, relations, now),
            _bound(of_source, relations, now),
            _bound(parts.get(frozenset((0, 1)), []), relations, now),
            [restored(each, target) for each in of_target],
        )

    @property
    def columns(self) -> set[str]:
        """The flat names of the columns that the condition reads."""
        found = {path[0] for key in self.keys for side in (key.target, key.source) for path in side.columns}
        for bound in (self.of_target, self.of_source, self.of_pairs):
            found |= set() if bound is None else {column.path[0] for column in columns_of(bound)}
        return found

    def on_target(self, values: Sequence[KeyValues]) -> Expression | None:
        """A condition on the target alone that is true for every row that may match; None if there is none. ``values``:
        for each key, the values in the source."""
        schema = self.target.schema
        parts = [each for each in self.target_parts if is_bindable(each, schema)]
        for key, found in zip(self.keys, values, strict=True):
            part = _values_of_key(key, found, schema)
            if part is not None and is_bindable(part, schema):
                parts.append(part)
        return joined(parts)

    def target_keys(self, rows: pa.Table) -> dict[str, Any]:
        """The key columns of ``rows``, which are rows of the target with flat column names. Raises CallError for a row
        without a value."""
        return key_columns(self.keys, [key.target for key in self.keys], rows)

    def pairs(self, rows: pa.Table, source: ChunkedRows, keys: SourceKeys) -> Iterator[tuple[Any, Any]]:
        """Pairs of row numbers (target, source) for which the condition is true, in the order of the target's rows.
        ``rows``: rows of the target, with flat names. ``keys``: the keys of the source rows that may match the target
        rows. Memory: all pairs of source and target rows with equal keys. Raises CallError."""
        for some, others in self._candidates(rows, keys):
            if self.of_pairs is None:
                yield some, others
                continue
            names = {column.path[0] for column in columns_of(self.of_pairs)}
            both = side_by_side(rows, some, source, others, names)
            true = pc.fill_null(matches(self.of_pairs, both), FALSE)
            yield some.filter(true), others.filter(true)

    def _candidates(self, rows: pa.Table, keys: SourceKeys) -> Iterator[tuple[Any, Any]]:
        numbers = None  # numbers of the rows that may match; None: all
        if self.of_target is not None:
            true = pc.fill_null(matches(self.of_target, rows), FALSE)
            if not pc.all(true).as_py():
                numbers, rows = row_numbers(rows.num_rows).filter(true), rows.filter(true)
        if not rows.num_rows or not keys.num_rows:
            return
        if self.keys:
            found, others = keys.pairs(self.target_keys(rows))
            found = found if numbers is None else numbers.take(found)
            for start in range(0, len(found), _MAX_PAIRS):
                yield found.slice(start, _MAX_PAIRS), others.slice(start, _MAX_PAIRS)
            return
        numbers = row_numbers(rows.num_rows) if numbers is None else numbers
        others = combined(keys.rows.column("s"))
        step = max(1, _MAX_PAIRS // len(others))
        for start in range(0, len(numbers), step):
            some = numbers.slice(start, step)
            for at in range(0, len(others), _MAX_PAIRS):
                beside = others.slice(at, _MAX_PAIRS)
                left = pc.take(some, _repeated(len(some), len(beside)))
                yield left, pa.concat_arrays([beside] * len(some))


def bound_condition(tree: Expression, relations: Relations, now: datetime.datetime) -> Bound:
    """Bind a resolved condition. Raises CallError."""
    try:
        return Binder(relations.schema, now).condition(tree)
    except RecursionError:
        raise CallError("The condition is nested too deeply. For many values of a column, use IN or isin.") from None


def side_by_side(rows: pa.Table, some: Any, others: ChunkedRows, beside: Any, names: set[str]) -> pa.Table:
    """A table of row pairs: the rows of ``rows`` at the indices ``some`` as left columns, and the rows of ``others`` at
    the indices ``beside`` as right columns. Only the columns in ``names`` are included."""
    left = rows.select([name for name in rows.schema.names if name in names]).take(some)
    right = others.take(beside, [name for name in others.rows.schema.names if name in names])
    columns = [*left.columns, *right.columns]
    if not columns:
        return pa.table({"": pa.nulls(len(some))})
    return pa.Table.from_arrays(columns, names=[*left.schema.names, *right.schema.names])


def _bound(parts: Sequence[Expression], relations: Relations, now: datetime.datetime) -> Bound | None:
    tree = joined(parts)
    return None if tree is None else bound_condition(tree, relations, now)


def _sides(tree: Expression, sides: dict[str, int]) -> frozenset[int]:
    return frozenset(sides[name] for name in flat_columns(tree) if name in sides)


def _key(
    part: Expression,
    relations: Relations,
    sides: dict[str, int],
    target: Relation,
    now: datetime.datetime,
    empties: frozenset[str],
) -> Key | None:
    if not isinstance(part, Comparison) or part.operator not in ("=", "<=>"):
        return None
    left, right = part.left, part.right
    if (_sides(left, sides), _sides(right, sides)) == (frozenset((1,)), frozenset((0,))):
        left, right = right, left
    if (_sides(left, sides), _sides(right, sides)) != (frozenset((0,)), frozenset((1,))):
        return None
    binders = [Binder(relations.schema, now), Binder(relations.schema, now)]
    nodes = [binder.node(tree) for binder, tree in zip(binders, (left, right), strict=True)]
    one, other, kind = equality(part.operator, *nodes)
    if pa.types.is_null(kind) or (part.operator == "<=>" and zero_of(kind) is None):
        return None
    text = shown(part)
    compiled = [
        CompiledExpression(text, node.data_type, tuple(binder.columns), node)
        for binder, node in zip(binders, (one, other), strict=True)
    ]
    column = restored(left, target)
    if part.operator == "<=>" and isinstance(column, Name) and column.path[0] in empties:
        compiled[1] = null_if_empty(compiled[1])
    return Key(compiled[0], compiled[1], kind, part.operator == "<=>", column)


def _repeated(count: int, times: int) -> Any:
    """The integers 0, …, ``count`` - 1 in order, each repeated ``times`` times."""
    numbers = row_numbers(count * times)
    return pc.divide(numbers, times)


def is_bindable(tree: Expression, schema: Any) -> bool:
    """Whether a condition can be bound to the schema, and can therefore be used for data skipping."""
    try:
        bind(tree, schema)
    except CallError:
        return False
    return True


def _values_of_key(key: Key, values: KeyValues, schema: Any) -> Expression | None:
    """The condition that the target column of ``key`` equals one of the source's ``values``."""
    name = key.column
    if not isinstance(name, Name) or len(name.path) > 1:
        return None
    column = schema.field(name.path[0])
    if char_length([column]) is not None or not _are_alike(column.data_type, key.source.data_type):
        return None
    if key.null_safe or not (values.is_complete or len(values.found)):
        return None
    try:
        found = values.found.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    if values.is_complete:
        return In(name, tuple(found))
    return And(Comparison(">=", name, Literal(found[0])), Comparison("<=", name, Literal(found[1])))


def _are_alike(target: DataType, source: DataType) -> bool:
    if target in INTEGRAL and source in INTEGRAL:
        return True
    return target == source and (target in _OWN or isinstance(target, DecimalType))
