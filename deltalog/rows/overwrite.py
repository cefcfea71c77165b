"""The verbs that replace all rows, the rows that match a condition, or the rows of whole partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.errors import CallError, SchemaMismatchError
from deltalog.expressions.tree import Predicate
from deltalog.protocol.schema import StructType
from deltalog.rows import rewrite
from deltalog.rows.replacement import Replacement
from deltalog.write import write_steps
from deltalog.write.commit_info import UserMetadata
from deltalog.write.input_streams import as_reader
from deltalog.write.transaction import Transaction, skipped


def replacing(
    data: Any,
    where: Predicate | str | None,
    partitions: Literal["dynamic"] | None,
    columns: Columns,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> Callable[[Transaction], CommitResult]:
    """Select the verb that matches the arguments of ``DeltaTable.overwrite``, and return it as a function of a
    transaction. Raises CallError."""
    if where is not None and partitions is not None:
        raise CallError("where= and partitions= are mutually exclusive. Pass one of them.")
    if partitions not in (None, "dynamic"):
        raise CallError(f"partitions must be 'dynamic' or None, not {partitions!r}.")
    columns.check(replaces_all=where is None and partitions is None, where=where)
    if where is not None:
        return lambda transaction: replace_where(transaction, data, where, user_metadata, txn, columns)
    if partitions is not None:
        return lambda transaction: replace_partitions(transaction, data, columns, user_metadata, txn)
    return lambda transaction: overwrite(transaction, data, columns, user_metadata, txn)


@dataclass(frozen=True, slots=True)
class Columns:
    """How an overwrite changes the table's columns. ``merged``: add the columns that are only in the data.
    ``replaced``: replace the columns with the data's columns. ``partition_by``: the new partition columns; None keeps
    them."""

    merged: bool = False
    replaced: bool = False
    partition_by: Sequence[str] | None = None

    def check(self, replaces_all: bool, where: object) -> None:
        """Raise CallError for contradictory arguments."""
        if self.merged and self.replaced:
            raise CallError("merge_schema= and overwrite_schema= are mutually exclusive. Pass one of them.")
        if self.replaced and not replaces_all and where is None:
            raise CallError(
                "partitions= and overwrite_schema= are mutually exclusive: rows in other partitions keep the old "
                "columns."
            )
        if self.partition_by is not None and not (self.replaced and replaces_all):
            raise CallError("partition_by= requires overwrite_schema=True and an overwrite of all rows.")

    def reader(self, transaction: Transaction, data: Any) -> pa.RecordBatchReader:
        """Change the table's columns, and return the rows as a stream with these columns. Raises CallError,
        SchemaMismatchError."""
        if not self.replaced:
            return write_steps.fitting(transaction, data, self.merged)
        reader = as_reader(data)
        if self.partition_by and transaction.metadata_changes.clustering_columns:
            raise CallError(
                f"{transaction.reader.store.url} is clustered, and a clustered table cannot have partition columns. "
                "Call cluster_by without columns first."
            )
        # Text can replace a variant; the form in which a scan returns variants does not.
        columns = write_steps.columns_of(reader.schema, transaction.schema, texts=False)
        transaction.set_schema(columns, self.partition_by)
        return reader

    def reader_keeping_rows(self, transaction: Transaction, data: Any) -> pa.RecordBatchReader:
        """Like ``reader``, but for an overwrite that keeps other rows, and therefore must not drop a column. Raises
        SchemaMismatchError if ``replaced`` is set and the data lacks a column of the table."""
        if not self.replaced:
            return write_steps.fitting(transaction, data, self.merged)
        reader = as_reader(data)
        given = StructType.from_arrow(reader.schema)
        lost = next((name for name in transaction.schema.names if given.find(name) is None), None)
        if lost is not None:
            raise SchemaMismatchError(
                f"{transaction.reader.store.url}: the data lacks the column {lost}. Rows that where= leaves in the "
                "table have values in it, which overwrite_schema=True would drop. Add the column to the data, or use "
                "merge_schema=True."
            )
        return write_steps.fitting(transaction, reader, merge=True)


KEEP_COLUMNS = Columns()


def overwrite(
    transaction: Transaction,
    data: Any,
    columns: Columns,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Stage and commit rows that replace all rows."""
    if write_steps.is_recorded(transaction, txn):
        return skipped(transaction)
    reader = columns.reader(transaction, data)
    transaction.remove_all_files()
    metrics = {**write_steps.write(transaction, reader), **_removed_rows(transaction)}
    return write_steps.commit_write(transaction, "Overwrite", metrics, user_metadata, txn)


def replace_where(
    transaction: Transaction,
    data: Any,
    where: Predicate | str,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
    columns: Columns = KEEP_COLUMNS,
) -> CommitResult:
    """Stage and commit rows that replace the rows for which ``where`` is true."""
    if write_steps.is_recorded(transaction, txn):
        return skipped(transaction)
    reader = columns.reader_keeping_rows(transaction, data)
    replacement = Replacement(transaction, where)
    matching = rewrite.matching(transaction, reader, replacement.condition)
    if replacement.change_column:
        adds, rows = transaction.row_writer.write_inserts(matching)
    else:
        adds, rows = transaction.row_writer.write(matching, filled=True)
    transaction.staged.add_written(adds)
    if not (rows or transaction.metadata_changes.changed_metadata) and replacement.is_empty and txn is None:
        return skipped(transaction)
    metrics = replacement.stage(rows)
    return write_steps.commit_write(transaction, "Overwrite", metrics, user_metadata, txn, predicate=replacement.where)


def replace_partitions(
    transaction: Transaction,
    data: Any,
    columns: Columns,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Stage and commit rows that replace all rows in their partitions."""
    if write_steps.is_recorded(transaction, txn):
        return skipped(transaction)
    rewrite.check_replaces_partitions(transaction)
    reader = columns.reader(transaction, data)
    written = write_steps.write(transaction, reader)
    transaction.replace_partitions()
    if not (transaction.staged.adds or transaction.metadata_changes.changed_metadata) and txn is None:
        return skipped(transaction)
    metrics = {**written, **transaction.staged.metrics(), **_removed_rows(transaction)}
    return write_steps.commit_write(
        transaction, "Overwrite", metrics, user_metadata, txn, isDynamicPartitionOverwrite=True
    )


def _removed_rows(transaction: Transaction) -> dict[str, str]:
    """The metric numDeletedRows of an overwrite that removes whole files; empty if a file has no statistics."""
    rows = transaction.staged.removed_rows
    return {} if rows is None else {"numDeletedRows": str(rows)}
