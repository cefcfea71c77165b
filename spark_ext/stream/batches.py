"""Batches with ``format("deltalog")``: a slow path for programs that can only name a format.

A single task reads all rows with deltalog, so ``spark_ext.read`` is much faster than this source; in an append, tasks
stage files with deltalog, and the driver commits them once.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

import deltalog
from spark_ext.stream.options import BatchOptions, SinkOptions
from spark_ext.stream.sink import chained, check_metadata, discard, prepare, stage
from spark_ext.stream.source import arrow_schema, fitted
from spark_ext.types import from_spark

_OPERATORS = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
# The types of columns whose values mean the same to Spark and to deltalog.
_VALUES: dict[str, type] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    "date": datetime.date,
    "string": str,
}
# A comparison: the name of its class, the column, the value.
_Comparison = tuple[str, Sequence[str], Any]


class BatchReader(DataSourceReader):
    """The rows of a version."""

    def __init__(self, options: BatchOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._version = options.snapshot().version
        self._comparisons: list[_Comparison] = []

    def partitions(self) -> Sequence[InputPartition]:
        """One task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, read in a task."""
        snapshot, wanted = self._options.table.open().snapshot(version=self._version), arrow_schema(self._schema)
        found = [_predicate(each) for each in self._comparisons]
        where = reduce(operator.and_, found) if found else None
        for batch in snapshot.scan(where=where).batches():
            yield batch if batch.schema.equals(wanted) else fitted(batch, wanted)


class FilteringReader(BatchReader):
    """A reader to which Spark passes filters, for Spark 4.1 and newer with
    ``spark.sql.python.filterPushdown.enabled``."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Use the comparisons in a condition to skip files and rows. Spark applies all filters again."""
        schema = self._options.table.open().snapshot(version=self._version).schema
        for each in filters:
            kind, value = type(each).__name__, getattr(each, "value", None)
            field = schema.find(each.attribute[0]) if len(getattr(each, "attribute", ())) == 1 else None
            wanted = None if field is None else _VALUES.get(str(field.data_type))
            if kind in _OPERATORS and wanted is not None and type(value) is wanted:
                self._comparisons.append((kind, each.attribute, value))
        return filters


def _predicate(of: _Comparison) -> deltalog.Predicate:
    kind, names, value = of
    column = deltalog.col("`" + names[0].replace("`", "``") + "`")
    found: deltalog.Predicate = _OPERATORS[kind](column, value)
    return found


class _Appends:
    """An append: one commit, or none."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._new_columns = prepare(options, schema, for_stream=False)

    def commit(self, messages: Sequence[Any]) -> None:
        """Commit what the tasks have staged, and the columns that the table lacks. Raises as
        ``Transaction.commit``."""
        staged = [message.files for message in messages if message is not None]
        table = self._options.table.open()
        if self._new_columns is None and not any(each.files for each in staged):
            return
        try:
            with table.transaction() as transaction:
                if self._new_columns is not None:
                    transaction.merge_schema(self._new_columns)
                check_metadata(transaction, staged, "the rows were written. Nothing was committed; write them again")
                for each in staged:
                    transaction.add(*each.files, known=True)
                effect = transaction.staged.metrics()
                metrics = {
                    "numFiles": effect["numFiles"],
                    "numOutputRows": sum(each.row_count for each in staged),
                    "numOutputBytes": effect["numOutputBytes"],
                }
                parameters = {"mode": "Append", "partitionBy": "[]"}
                transaction.commit("WRITE", parameters, metrics, self._options.user_metadata)
        except deltalog.DeltaLogError as error:
            if error.outcome is not deltalog.errors.Outcome.UNKNOWN:  # otherwise the commit may refer to the files
                discard(table, staged)
            raise

    def abort(self, messages: Sequence[Any]) -> None:
        """Remove the files of a job with a failed task, best effort. If all tasks have succeeded, a commit may have
        been attempted, and nothing is removed."""
        if any(message is None for message in messages):
            staged = [message.files for message in messages if message is not None]
            if staged:
                discard(self._options.table.open(), staged)


class BatchWriter(_Appends, datasource.DataSourceArrowWriter):
    """Stages the rows of a batch in tasks, each of which receives its rows as Arrow batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        first = next(iterator, None)
        if first is None:
            return stage(self._options.table, iter(()), from_spark(self._schema).to_arrow(), self._new_columns)
        return stage(self._options.table, chained(first, iterator), first.schema, self._new_columns)
