"""Which files of a snapshot can hold a row that a predicate keeps: by partition values and by statistics.

Spec: PROTOCOL.md#per-file-statistics. A file is dropped only when its bounds prove that no row matches; what
is absent, unreadable or not known to be sound proves nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from deltalog.errors import DeltaLogError
from deltalog.read.predicates import (
    And,
    Bound,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    columns_of,
    compare,
    find,
    matches,
)
from deltalog.spec import column_mapping, partitions
from deltalog.spec.arrow import type_to_arrow
from deltalog.spec.column_mapping import Mode
from deltalog.spec.schema import ArrayType, DataType, DecimalType, MapType, StructType
from deltalog.spec.timestamps import parse_iso

_BOUNDED = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp", "timestamp_ntz"}
)


def prune(
    files: pa.Table, predicate: Predicate, schema: StructType, partition_columns: Sequence[str], mapping: Mode
) -> pa.Table:
    """The rows of ``files`` (schema FILES) that may hold a matching row. ``predicate`` is bound to ``schema``.

    Partition values are judged first; statistics are parsed only for the files that remain, and only the
    columns that the predicate names.
    """
    partitioned = set(partition_columns)
    by_partition = _PartitionJudge(files, schema, partitioned, mapping)
    files = files.filter(pc.fill_null(by_partition.may_match(predicate), True))
    bounded = [find(c, schema) for c in columns_of(predicate) if c.path[0] not in partitioned]
    if not bounded or files.num_rows == 0:
        return files
    by_statistics = _StatisticsJudge(files, schema, partitioned, mapping, bounded)
    return files.filter(pc.fill_null(by_statistics.may_match(predicate), True))


class _PartitionJudge:
    """Folds a predicate into a verdict for each file: true or null (may match), false (cannot).

    Partition values are known exactly, so a leaf on them is evaluated, and unknown means no match; a leaf on
    another column proves nothing.
    """

    def __init__(self, files: pa.Table, schema: StructType, partitioned: set[str], mapping: Mode) -> None:
        self.files = files
        self.schema = schema
        self.partitioned = partitioned
        self.mapping = mapping
        self._values: dict[str, Any] = {}

    def may_match(self, predicate: Predicate) -> Any:
        """Leaves are folded with AND and OR; negations were pushed into them by ``bind``."""
        if isinstance(predicate, And):
            return pc.and_kleene(self.may_match(predicate.left), self.may_match(predicate.right))
        if isinstance(predicate, Or):
            return pc.or_kleene(self.may_match(predicate.left), self.may_match(predicate.right))
        return self.leaf(predicate)

    def leaf(self, predicate: Predicate) -> Any:
        """The verdict on a predicate without AND and OR."""
        if isinstance(predicate, Constant):
            return pa.repeat(bool(predicate.value), self.files.num_rows)
        names = {column.path[0] for column in columns_of(predicate)}
        if not names <= self.partitioned:
            return pa.nulls(self.files.num_rows, pa.bool_())
        table = pa.table({name: self.values(name) for name in names})
        return pc.fill_null(matches(predicate, table, self.schema), False)

    def values(self, name: str) -> Any:
        """Typed values of a partition column, one for each file."""
        if name not in self._values:
            column = self.schema.field(name)
            physical = column_mapping.physical_name(column, self.mapping)
            texts = pc.map_lookup(self.files["partition_values"].combine_chunks(), physical, "first")
            distinct = texts.dictionary_encode() if isinstance(texts, pa.Array) else texts
            parsed = [partitions.parse(t, column.data_type, name) for t in distinct.dictionary.to_pylist()]
            typed = pa.array(parsed, type_to_arrow(column.data_type))
            self._values[name] = typed.take(distinct.indices)
        return self._values[name]


class _StatisticsJudge(_PartitionJudge):
    """Bounds of data columns, and partition values beside them for predicates that mix the two."""

    def __init__(
        self, files: pa.Table, schema: StructType, partitioned: set[str], mapping: Mode, bounded: Sequence[Bound]
    ) -> None:
        super().__init__(files, schema, partitioned, mapping)
        self.unknown = pa.nulls(files.num_rows, pa.bool_())
        self.statistics = Statistics(files["stats"].combine_chunks(), bounded, mapping)

    def leaf(self, predicate: Predicate) -> Any:
        columns = columns_of(predicate)
        if not columns or columns[0].path[0] in self.partitioned:
            return super().leaf(predicate)
        column, verdict = columns[0], None
        if isinstance(predicate, Comparison):
            verdict = self._comparison(predicate)
        elif isinstance(predicate, In):
            verdict = self._is_in(predicate)
        elif isinstance(predicate, StartsWith):
            verdict = self._starts_with(predicate)
        elif isinstance(predicate, IsNull):
            nulls = self.statistics.null_count(column)
            verdict = None if nulls is None else pc.greater(nulls, 0)
        elif isinstance(predicate, Not) and isinstance(predicate.operand, IsNull):
            verdict = self._has_values(column)
        return self.unknown if verdict is None else verdict

    def _comparison(self, predicate: Comparison) -> Any:
        low, high = self.statistics.bounds(predicate.column)
        data_type = find(predicate.column, self.schema).data_type
        value, operator = predicate.value, predicate.operator
        is_float = str(data_type) in ("float", "double")
        if is_float and (value != value or operator in (">", ">=", "!=")):
            return self._has_values(predicate.column)  # NaN may hide above the upper bound
        if low is None or high is None:
            return self._has_values(predicate.column)
        at_most = compare(low, "<=", value, data_type)
        at_least = compare(high, ">=", value, data_type)
        if operator == "=":
            verdict = pc.and_kleene(at_most, at_least)
        elif operator == "!=":
            only = pc.and_kleene(compare(low, "=", value, data_type), compare(high, "=", value, data_type))
            exact = str(data_type) not in ("string", "timestamp", "timestamp_ntz")  # those bounds may be widened
            verdict = pc.invert(only) if exact else self.unknown
        elif operator == "<":
            verdict = compare(low, "<", value, data_type)
        elif operator == "<=":
            verdict = at_most
        elif operator == ">":
            verdict = compare(high, ">", value, data_type)
        else:
            verdict = at_least
        return _and(verdict, self._has_values(predicate.column))

    def _is_in(self, predicate: In) -> Any:
        verdict: Any = pa.repeat(False, len(self.unknown))
        for value in predicate.values:
            if value is not None:
                verdict = pc.or_kleene(verdict, self.leaf(Comparison("=", predicate.column, value)))
        return verdict

    def _starts_with(self, predicate: StartsWith) -> Any:
        low, high = self.statistics.bounds(predicate.column)
        if low is None or high is None or not predicate.prefix:
            return None
        length = len(predicate.prefix)
        cut_low, cut_high = pc.utf8_slice_codeunits(low, 0, length), pc.utf8_slice_codeunits(high, 0, length)
        return pc.and_kleene(pc.less_equal(cut_low, predicate.prefix), pc.greater_equal(cut_high, predicate.prefix))

    def _has_values(self, column: Column) -> Any:
        """False where every row is null: no comparison is true there."""
        nulls = self.statistics.null_count(column)
        rows = self.statistics.num_records
        return None if nulls is None or rows is None else pc.less(nulls, rows)


def _and(left: Any, right: Any) -> Any:
    return left if right is None else pc.and_kleene(left, right)


class Statistics:
    """Bounds and null counts of a few columns, parsed from the statistics JSON of files."""

    def __init__(self, texts: Any, bounded: Sequence[Bound], mapping: Mode) -> None:
        self.mapping = mapping
        self.bounded = {
            b.column.path: b for b in bounded if not isinstance(b.data_type, (StructType, ArrayType, MapType))
        }
        self.rows = len(texts)
        self.table = self._parse(texts)

    @property
    def num_records(self) -> Any:
        return self.table.column("numRecords").combine_chunks() if "numRecords" in self.table.schema.names else None

    def null_count(self, column: Column) -> Any:
        """Nulls of each file; None when the column has no counts."""
        return self._leaf("nullCount", column)

    def bounds(self, column: Column) -> tuple[Any, Any]:
        """Lower and upper bound of each file in the column's type; (None, None) when it can have none."""
        bound = self.bounded.get(column.path)
        if bound is None:
            return None, None
        low, high = self._leaf("minValues", column), self._leaf("maxValues", column)
        if low is None or high is None:
            return None, None
        return _typed(low, bound.data_type, upper=False), _typed(high, bound.data_type, upper=True)

    def _leaf(self, group: str, column: Column) -> Any:
        bound = self.bounded.get(column.path)
        if bound is None or group not in self.table.schema.names:
            return None
        values = self.table.column(group).combine_chunks()
        for name in self._physical(bound):
            index = values.type.get_field_index(name)
            if index < 0:
                return None
            values = values.flatten()[index]
        return values

    def _physical(self, bound: Bound) -> tuple[str, ...]:
        return tuple(column_mapping.physical_name(field, self.mapping) for field in bound.fields)

    def _schema(self) -> pa.Schema:
        """Only what is asked for; everything else in the JSON is passed over while parsing."""
        limits: dict[str, Any] = {}
        counts: dict[str, Any] = {}
        for bound in self.bounded.values():
            path = self._physical(bound)
            _put(counts, path, pa.int64())
            if str(bound.data_type) in _BOUNDED or isinstance(bound.data_type, DecimalType):
                _put(limits, path, _stored_type(bound.data_type))
        groups = [("minValues", limits), ("maxValues", limits), ("nullCount", counts)]
        fields = [pa.field(name, _struct(tree)) for name, tree in groups if tree]
        return pa.schema([pa.field("numRecords", pa.int64()), *fields])

    def _parse(self, texts: Any) -> pa.Table:
        schema = self._schema()
        texts = pc.utf8_trim_whitespace(pc.fill_null(texts, ""))
        # Only objects: Arrow's reader does not survive a null in the place of one.
        blank = pc.if_else(pc.starts_with(texts, "{"), texts, "{}")
        # Text with a line feed would fall apart into two rows.
        blank = pc.if_else(pc.match_substring(blank, "\n"), "{}", blank)
        try:
            return _parse_lines(blank, schema)
        except (pa.ArrowException, ValueError):
            return self._parse_each(blank, schema)

    def _parse_each(self, texts: Any, schema: pa.Schema) -> pa.Table:
        """One by one, when some file's statistics are not as the schema says: that file proves nothing."""
        rows = []
        for text in texts.to_pylist():
            try:
                rows.append(_parse_lines(pa.array([text]), schema))
            except (pa.ArrowException, ValueError):
                rows.append(pa.Table.from_pylist([{}], schema=schema))
        return pa.concat_tables(rows)


def _parse_lines(texts: Any, schema: pa.Schema) -> pa.Table:
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    parsed = pj.read_json(pa.BufferReader(lines), pj.ReadOptions(block_size=1 << 24), options)
    if parsed.num_rows != len(texts):
        raise ValueError("rows were lost")
    return parsed


def _put(tree: dict[str, Any], path: tuple[str, ...], leaf: pa.DataType) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = leaf


def _struct(tree: Any) -> pa.DataType:
    if not isinstance(tree, dict):
        return tree
    return pa.struct([pa.field(name, _struct(child)) for name, child in tree.items()])


def _stored_type(data_type: DataType) -> pa.DataType:
    """How the JSON holds a bound: numbers as numbers, dates and timestamps as text."""
    name = str(data_type)
    if name in ("byte", "short", "integer", "long"):
        return pa.int64()
    if name in ("float", "double") or isinstance(data_type, DecimalType):
        return pa.float64()
    return pa.string()


def _typed(values: Any, data_type: DataType, upper: bool) -> Any:
    """Bounds as values of the column's type, widened by what their text leaves out; null where unreadable."""
    name = str(data_type)
    if name in ("date", "timestamp", "timestamp_ntz"):
        return _each(values, lambda text: _temporal(text, name, upper), type_to_arrow(data_type))
    if isinstance(data_type, DecimalType):
        return _decimals(values, data_type, upper)
    return values


def _each(values: Any, convert: Callable[[str], Any], arrow: pa.DataType) -> Any:
    encoded = values.dictionary_encode()
    return pa.array([convert(text) for text in encoded.dictionary.to_pylist()], arrow).take(encoded.indices)


def _temporal(text: str, name: str, upper: bool) -> Any:
    try:
        moment = parse_iso(text)
        if name == "date":
            return moment.date()
        if name == "timestamp":
            moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)
        else:
            moment = moment.replace(tzinfo=None)
        return moment + datetime.timedelta(milliseconds=1) if upper else moment
    except (DeltaLogError, OverflowError):
        return None


def _decimals(values: Any, data_type: DecimalType, upper: bool) -> Any:
    """The JSON number went through a double: widen by more than that can have lost."""
    slack = pc.add(pc.multiply(pc.abs(values), 1e-15), 10.0**-data_type.scale)
    widened = pc.add(values, slack) if upper else pc.subtract(values, slack)
    limit = 10.0 ** (38 - data_type.scale) * 0.9
    bounded = pc.if_else(pc.less(pc.abs(widened), limit), widened, None)
    return bounded.cast(pa.decimal256(76, 38), safe=False)
