"""Data skipping: from partition values and statistics, decides which files of a snapshot may contain a row that matches
a predicate. Pure.

Spec: PROTOCOL.md#per-file-statistics. A file is skipped only if its bounds prove that no row matches; a statistic that
is missing, unreadable or possibly inexact proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.arrow_arrays import FALSE, TRUE, ZERO, combined, int64s, scalar
from deltalog.expressions.bound import (
    Bound,
    BoundAnd,
    BoundColumn,
    BoundComparison,
    BoundConstant,
    BoundIn,
    BoundIsNull,
    BoundNot,
    BoundOr,
    BoundStartsWith,
    ColumnCondition,
    columns_of,
    complement,
    leaves_of,
)
from deltalog.expressions.comparison import compare
from deltalog.expressions.functions.nodes import Rows
from deltalog.expressions.tree import Comparison, In, Literal, Name, Predicate
from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.log import file_statistics
from deltalog.log.file_statistics import Group, Leaf
from deltalog.protocol import partitions
from deltalog.protocol.char_varchar import upper_bound
from deltalog.protocol.column_mapping import Mode
from deltalog.protocol.schema import DecimalType, StructField, StructType, type_to_arrow

if TYPE_CHECKING:
    from deltalog.expressions import bind as binding
    from deltalog.expressions import evaluate as evaluation
else:
    lazy_modules(__name__, binding="deltalog.expressions.bind", evaluation="deltalog.expressions.evaluate")

_NUMBER = "\0number"
_MANY, _SAMPLE = 2048, 512


def statistics_leaves(
    predicate: Bound, schema: StructType, partition_columns: Sequence[str], mapping: Mode
) -> list[Leaf]:
    """The leaf columns whose statistics ``prune`` reads. ``predicate`` is bound to ``schema``."""
    conditions = [each.column for each in leaves_of(predicate) if isinstance(each, ColumnCondition)]
    leaves = [
        Leaf.from_fields(binding.find_fields(column.path, schema), mapping)
        for column in conditions
        if column.path[0] not in partition_columns and not isinstance(column.data_type, StructType)
    ]
    return list(dict.fromkeys(leaves))


def prune(
    files: pa.Table, predicate: Bound, schema: StructType, partition_columns: Sequence[str], mapping: Mode
) -> pa.Table:
    """The rows of ``files`` that may contain a matching row. ``predicate`` is bound to ``schema``.

    ``files``: a table with the columns partition_values, and stats or stats_parsed. Partition values are checked first;
    statistics are parsed only for the remaining files and only for the predicate's columns. Raises CorruptTableError
    for a partition value that does not match the type of its column.
    """
    partitioned = set(partition_columns)
    by_partition = _PartitionVerdicts(files, schema, partitioned, mapping)
    files = _filtered(files, by_partition.may_match(predicate))
    leaves = statistics_leaves(predicate, schema, partition_columns, mapping)
    if not leaves or files.num_rows == 0:
        return files

    def verdicts(some: pa.Table, statistics: pa.Table) -> Any:
        return _StatisticsVerdicts(some, schema, partitioned, mapping, leaves, statistics).may_match(predicate)

    # Parsing only the bounds is faster than parsing all statistics. If the bounds exclude fewer than three quarters of
    # the first files, they are not used for the other files.
    first = files.slice(0, _SAMPLE)
    bounds = file_statistics.bounds_of_files(first, leaves) if files.num_rows >= _MANY else None
    if bounds is not None and _filtered(first, verdicts(first, bounds)).num_rows <= _SAMPLE // 4:
        bounds = file_statistics.bounds_of_files(files, leaves)
        files = files if bounds is None else _filtered(files, verdicts(files, bounds))
    return _filtered(files, verdicts(files, file_statistics.statistics_of_files(files, leaves)))


def _filtered(files: pa.Table, may_match: Any) -> pa.Table:
    """The rows of ``files`` for which ``may_match`` is true or null."""
    mask = pc.fill_null(may_match, TRUE)
    return files if pc.all(mask, min_count=0).as_py() else files.filter(mask)


def split(
    files: pa.Table, predicate: Bound, schema: StructType, partition_columns: Sequence[str], mapping: Mode
) -> tuple[pa.Table, pa.Table]:
    """Split ``files`` into two groups: the files of which all rows match according to partition values or statistics,
    and all other files.

    Deletion vectors need not be considered, because a condition that is true for all rows of a file is also true for
    its live rows.
    """
    numbered = files.append_column(_NUMBER, int64s(list(range(files.num_rows))))
    others = prune(numbered, complement(predicate), schema, partition_columns, mapping)[_NUMBER]
    is_other = pc.is_in(numbered[_NUMBER], value_set=others.combine_chunks())
    return files.filter(pc.invert(is_other)), files.filter(is_other)


def in_partitions(rows: Sequence[tuple[str | None, ...]], columns: Sequence[StructField]) -> Predicate:
    """A predicate that is true for the rows of these partitions and no others. ``rows``: the serialized values of
    ``columns`` for each partition, as in the log.

    The depth of the predicate's tree is the number of columns plus the logarithm of the number of partitions.
    """
    column = columns[0]
    below: dict[str | None, list[tuple[str | None, ...]]] = {}
    for row in rows:
        below.setdefault(row[0], []).append(row[1:])
    partitions_here: list[Predicate] = []
    for text, rest in below.items():
        value = partitions.parse(text, column.data_type, column.name)
        here: Predicate = Comparison("<=>", Name((column.name,)), Literal(value))
        partitions_here.append(here & in_partitions(rest, columns[1:]) if len(columns) > 1 else here)
    while len(partitions_here) > 1:
        pairs = zip_longest(partitions_here[::2], partitions_here[1::2])
        partitions_here = [left if right is None else left | right for left, right in pairs]
    return partitions_here[0] if partitions_here else In(Name((column.name,)), ())


class _PartitionVerdicts:
    """Evaluates a predicate for each file: true or null if a row may match, false if none can.

    Partition values are exact, so a condition on partition columns is evaluated on them directly, and the result NULL
    means that no row matches. The verdict on a condition on any other column is null (unknown), and therefore excludes
    no file.
    """

    def __init__(self, files: pa.Table, schema: StructType, partitioned: set[str], mapping: Mode) -> None:
        self.files = files
        self.schema = schema
        self.partitioned = partitioned
        self.mapping = mapping
        self.unknown = pa.nulls(files.num_rows, pa.bool_())
        self._values: dict[str, Any] = {}

    def may_match(self, predicate: Bound) -> Any:
        """Combine the verdicts on conditions with AND and OR; ``bind`` has already pushed negations down to the
        conditions."""
        if isinstance(predicate, BoundAnd):
            return pc.and_kleene(self.may_match(predicate.left), self.may_match(predicate.right))
        if isinstance(predicate, BoundOr):
            return pc.or_kleene(self.may_match(predicate.left), self.may_match(predicate.right))
        return self.leaf(predicate)

    def leaf(self, predicate: Bound) -> Any:
        """The verdict on a condition, that is, a predicate without AND and OR."""
        if isinstance(predicate, BoundConstant):
            return pa.repeat(TRUE if predicate.value else FALSE, self.files.num_rows)
        columns = columns_of(predicate)
        if not {column.path[0] for column in columns} <= self.partitioned:
            return self.unknown
        rows = Rows({column.path: combined(self.values(column.path[0])) for column in columns}, self.files.num_rows)
        try:
            return pc.fill_null(evaluation.evaluate(predicate.node, rows), FALSE)
        except (pa.ArrowInvalid, OverflowError):
            return self.unknown  # evaluation fails for a partition that other conditions may exclude

    def values(self, name: str) -> Any:
        """The typed values of a partition column, one per file."""
        if name not in self._values:
            self._values[name] = file_statistics.partition_values(self.files, self.schema.field(name), self.mapping)
        return self._values[name]


class _StatisticsVerdicts(_PartitionVerdicts):
    """Like _PartitionVerdicts, but also uses the statistics of data columns; predicates may mix both kinds of
    columns."""

    def __init__(
        self,
        files: pa.Table,
        schema: StructType,
        partitioned: set[str],
        mapping: Mode,
        leaves: Sequence[Leaf],
        statistics: pa.Table,
    ) -> None:
        super().__init__(files, schema, partitioned, mapping)
        self.leaves = {leaf.path: leaf for leaf in leaves}
        self.statistics = statistics

    def leaf(self, predicate: Bound) -> Any:
        inner = predicate.operand if isinstance(predicate, BoundNot) else predicate
        if not isinstance(inner, ColumnCondition) or inner.column.path[0] in self.partitioned:
            return super().leaf(predicate)
        verdict = None
        if isinstance(predicate, BoundComparison):
            verdict = self._comparison(predicate)
        elif isinstance(predicate, BoundIn):
            verdict = self._is_in(predicate)
        elif isinstance(predicate, BoundStartsWith):
            verdict = self._starts_with(predicate)
        elif isinstance(predicate, BoundIsNull):
            verdict = pc.greater(self._column("nullCount", predicate.column), ZERO)
        elif isinstance(inner, BoundIsNull):
            verdict = self._has_values(inner.column)
        return self.unknown if verdict is None else verdict

    def _comparison(self, predicate: BoundComparison) -> Any:
        low, high = self._bounds(predicate)
        data_type = predicate.column.data_type
        value, operator = predicate.value, predicate.operator
        is_float = str(data_type) in ("float", "double")
        if is_float and (value != value or operator in (">", ">=", "!=")):
            return self._has_values(predicate.column)  # the upper bound may leave out NaN
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
        return pc.and_kleene(verdict, self._has_values(predicate.column))

    def _is_in(self, predicate: BoundIn) -> Any:
        low, high = self._bounds(predicate)
        between = predicate.value_set.any_between(low, high)
        if predicate.value_set.has_nan:
            between = scalar(None, pa.bool_())  # bounds may ignore NaN
        return pc.and_kleene(between, self._has_values(predicate.column))

    def _starts_with(self, predicate: BoundStartsWith) -> Any:
        if not predicate.prefix:
            return None
        low, high = self._bounds(predicate)
        length = len(predicate.prefix)
        cut_low, cut_high = pc.utf8_slice_codeunits(low, 0, length), pc.utf8_slice_codeunits(high, 0, length)
        between = pc.and_kleene(pc.less_equal(cut_low, predicate.prefix), pc.greater_equal(cut_high, predicate.prefix))
        return pc.and_kleene(between, self._has_values(predicate.column))

    def _has_values(self, column: BoundColumn) -> Any:
        """False if the column is null in every row, because then no comparison is true."""
        return pc.less(self._column("nullCount", column), self.statistics.column("numRecords").combine_chunks())

    def _bounds(self, predicate: BoundComparison | BoundIn | BoundStartsWith) -> tuple[Any, Any]:
        """The lower and upper bounds of each file, widened to undo any truncation or rounding by the writer of the
        file."""
        column = predicate.column
        low, high = self._column("minValues", column), self._column("maxValues", column)
        data_type = self.leaves[column.path].data_type if column.path in self.leaves else None
        if str(data_type) in ("timestamp", "timestamp_ntz"):
            overflows = pc.greater(high, _LATEST.cast(high.type))
            return low, pc.add(pc.if_else(overflows, pa.nulls(len(high), high.type), high), _MILLISECOND)
        if isinstance(data_type, DecimalType):
            return _decimals(low, data_type, upper=False), _decimals(high, data_type, upper=True)
        return low, high if predicate.width is None else upper_bound(high, predicate.width)

    def _column(self, group: Group, column: BoundColumn) -> Any:
        leaf = self.leaves.get(column.path)
        if leaf is None or group not in leaf.groups:
            kind = pa.int64() if group == "nullCount" else type_to_arrow(column.data_type)
            return pa.nulls(len(self.unknown), kind)
        return self.statistics.column(file_statistics.column_name(group, leaf)).combine_chunks()


# In microseconds; adding a millisecond to a later time would overflow. pa.scalar is not used, because it imports
# pandas.
_LATEST, _MILLISECOND = scalar(2**63 - 2000, pa.int64()), scalar(1000, pa.int64()).cast(pa.duration("us"))


def _decimals(values: Any, data_type: DecimalType, upper: bool) -> Any:
    """The bounds widened by more than the rounding error of a double, because the writer may have computed them as
    doubles."""
    values = values.cast(pa.float64())
    slack = pc.add(pc.multiply(pc.abs(values), 1e-15), 10.0**-data_type.scale)
    widened = pc.add(values, slack) if upper else pc.subtract(values, slack)
    limit = 10.0 ** (38 - data_type.scale) * 0.9
    bounded = pc.if_else(pc.less(pc.abs(widened), limit), widened, None)
    return bounded.cast(pa.decimal256(76, 38), safe=False)
