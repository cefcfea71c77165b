"""The verbs that replace rows: all, those for which a condition is true, or those of partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from deltalog.commit_result import CommitResult
from deltalog.errors import CallError
from deltalog.expressions.tree import Predicate
from deltalog.operations import rewrite, writes
from deltalog.operations.input_streams import as_reader
from deltalog.operations.replacement import Replacement
from deltalog.operations.transaction import Transaction, UserMetadata, skipped
from deltalog.protocol.schema import StructType


def replacing(
    data: Any,
    where: Predicate | str | None,
    partitions: Literal["dynamic"] | None,
    overwrite_schema: bool,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> Callable[[Transaction], CommitResult]:
    """The verb that the arguments of ``DeltaTable.overwrite`` select, to be called with a transaction. Raises
    CallError."""
    if (where is not None) + (partitions is not None) + overwrite_schema > 1:
        raise CallError("where=, partitions= and overwrite_schema= exclude each other: give at most one.")
    if partitions not in (None, "dynamic"):
        raise CallError(f"partitions can be 'dynamic' or None, not {partitions!r}.")
    if where is not None:
        return lambda transaction: replace_where(transaction, data, where, user_metadata, txn)
    if partitions is not None:
        return lambda transaction: replace_partitions(transaction, data, user_metadata, txn)
    return lambda transaction: overwrite(transaction, data, overwrite_schema, user_metadata, txn)


def overwrite(
    transaction: Transaction,
    data: Any,
    overwrite_schema: bool,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Stage and commit rows that replace all rows."""
    if writes.is_recorded(transaction, txn):
        return skipped(transaction)
    if overwrite_schema:
        reader = as_reader(data)
        transaction.set_schema(StructType.from_arrow(reader.schema))
    else:
        reader = writes.fitting(transaction, data)
    transaction.remove_all_files()
    metrics = {**writes.write(transaction, reader), **_removed_rows(transaction)}
    return writes.commit_write(transaction, "Overwrite", metrics, user_metadata, txn)


def replace_where(
    transaction: Transaction,
    data: Any,
    where: Predicate | str,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Stage and commit rows that replace those for which ``where`` is true."""
    if writes.is_recorded(transaction, txn):
        return skipped(transaction)
    reader = writes.fitting(transaction, data)
    replacement = Replacement(transaction, where)
    matching = rewrite.matching(transaction, reader, where)
    if replacement.change_column:
        adds, rows = transaction.row_writer.write_inserts(matching)
    else:
        adds, rows = transaction.row_writer.write(matching, filled=True)
    transaction.staged.add_written(adds)
    if not rows and replacement.is_empty and txn is None:
        return skipped(transaction)
    metrics = replacement.stage(rows)
    return writes.commit_write(transaction, "Overwrite", metrics, user_metadata, txn, predicate=replacement.where)


def replace_partitions(
    transaction: Transaction, data: Any, user_metadata: UserMetadata, txn: tuple[str, int] | None
) -> CommitResult:
    """Stage and commit rows that replace all rows of the partitions that they belong to."""
    if writes.is_recorded(transaction, txn):
        return skipped(transaction)
    rewrite.check_replaces_partitions(transaction)
    reader = writes.fitting(transaction, data)
    written = writes.write(transaction, reader)
    transaction.replace_partitions()
    if not transaction.staged.adds and txn is None:
        return skipped(transaction)
    metrics = {**written, **transaction.staged.metrics(), **_removed_rows(transaction)}
    return writes.commit_write(transaction, "Overwrite", metrics, user_metadata, txn, isDynamicPartitionOverwrite=True)


def _removed_rows(transaction: Transaction) -> dict[str, str]:
    """The metric numDeletedRows of an overwrite that removes whole files; empty where a file has no statistics."""
    rows = transaction.staged.removed_rows
    return {} if rows is None else {"numDeletedRows": str(rows)}
