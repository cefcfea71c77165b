"""DELETE and UPDATE on Spark's executors: files are left out by their statistics, Spark finds the rows of the others,
and jobs write new files. No row reaches the driver.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading import file_entries, pruning
from spark_ext.reading.file_entries import Entry
from spark_ext.reading.file_schema import Layout
from spark_ext.reading.read_versions import Read, reads_of
from spark_ext.reading.reader import frame as frame_of
from spark_ext.reading.scan import OUTCOME, STAYS, Beside, scan
from spark_ext.reading.table_columns import named
from spark_ext.results import WriteResult
from spark_ext.rows import rewritten_rows, row_positions
from spark_ext.rows.changed_files import CHANGE_TYPE, ChangedFiles
from spark_ext.rows.row_positions import MARK, Found
from spark_ext.session.jobs import lost_session_explained
from spark_ext.session.stores import Storage
from spark_ext.writing.assignments import Assignments, Expression, as_column, changed, targets, text_of
from spark_ext.writing.row_count import RowCount, counts_are_not_sent
from spark_ext.writing.write_options import WriteRequest
from spark_ext.writing.write_plan import record_transaction


@dataclass
class Rows:
    """The rows of a table that may change, in the version that a transaction has read.

    ``files``: those that can have such a row, as rows of ``Transaction.find_files``, which has declared the read;
    ``entries``: the same as Spark reads them.
    """

    spark: SparkSession
    table: deltalog.DeltaTable
    transaction: deltalog.Transaction
    alias: str | None
    files: pa.Table
    entries: Sequence[Entry]
    layout: Layout
    storage: Storage

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        table: deltalog.DeltaTable,
        transaction: deltalog.Transaction,
        alias: str | None,
        where: deltalog.Predicate | None,
    ) -> Rows:
        """Cost: as ``Transaction.find_files``, and the deletion vectors of these files."""
        snapshot = transaction.snapshot
        assert snapshot is not None
        files = transaction.find_files(where)
        found = file_entries.of_files(snapshot, files, each_once=False)
        return cls(
            spark, table, transaction, alias, files, found, Layout.of(snapshot), Storage.of(spark, snapshot)
        )  # fmt: skip

    def read(self, chosen: Sequence[Entry], beside: Beside = Beside()) -> DataFrame:  # noqa: B008
        """The rows of entries; columns can be qualified with the alias."""
        return self._qualified(scan(self.spark, self.layout, chosen, self.storage, beside=beside))

    def nothing(self) -> DataFrame:
        """As ``read``, of no entry: for expressions that are only resolved."""
        return self._qualified(scan(self.spark, self.layout, (), self.storage))

    def _qualified(self, frame: DataFrame) -> DataFrame:
        return frame if self.alias is None else frame.alias(self.alias)

    def found(self, where: Any) -> Found:
        """The positions of rows, as those of the outcome 0. ``where``: from a DataFrame with positions to the rows in
        question."""
        return row_positions.positions(where(self.read(self.entries, Beside(positions=True))), self.entries)

    def can_select_again(self, expressions: Sequence[Expression | None]) -> bool:
        """Whether rows that were found by conditions can be selected by them again, in another query: where they are
        the same ones surely, and Spark tells the digest of those that it selects."""
        return pruning.is_repeatable(expressions) and not counts_are_not_sent(self.spark)

    def entries_at(self, positions: Mapping[int, BitMap64]) -> list[Entry]:
        """The entries with the rows at these positions alone, by the numbers of their files."""
        return [self.entries[number]._replace(dropped=None, kept=found) for number, found in positions.items()]

    def removal(self, positions: Mapping[int, BitMap64] | None, adds_only: bool = False) -> Removal:
        """The removal of rows, ready to be staged. Raises as ``RowRemoval``."""
        found = deltalog.RowRemoval(self.transaction, self.files, positions, adds_only=adds_only)
        return Removal(self, found, positions or {})


@dataclass
class Removal:
    """Rows that are removed or changed, and what their files hold besides. ``again``: selects these rows in their
    files, at a fraction of the cost of their positions; ``digest``: of the rows."""

    rows: Rows
    found: deltalog.RowRemoval
    positions: Mapping[int, BitMap64]
    again: Column | None = None
    digest: int = 0
    beside: Beside = field(init=False)

    def __post_init__(self) -> None:
        self.beside = Beside(row_tracking=self.found.kept_columns)

    @property
    def tracked(self) -> tuple[str, ...]:
        """The columns of files that keep row ids and commit versions."""
        return self.found.kept_columns or ()

    @property
    def marks(self) -> tuple[int, int] | None:
        """The number of rows and their digest, where ``removed(with_ids=True)`` and ``rewritten`` select them again,
        with FILE and ROW."""
        if self.again is None or self.tracked:
            return None
        return sum(map(len, self.positions.values())), self.digest

    def removed(self, with_ids: bool = False) -> DataFrame:
        """The rows that are removed."""
        if self.again is not None and not (with_ids and self.tracked):
            return self._read([*self.found.whole, *self.found.partly]).where(self.again)
        chosen = [self.rows.entries[number] for number in self.found.whole]
        chosen += self.rows.entries_at({number: self.positions[number] for number in self.found.partly})
        return self.rows.read(chosen, self.beside if with_ids else Beside())

    def at(self, positions: Mapping[int, BitMap64], with_ids: bool = False) -> DataFrame:
        """Some of the rows that are removed, by the numbers of their files."""
        return self.rows.read(self.rows.entries_at(positions), self.beside if with_ids else Beside())

    def rewritten(self, outcomes: Mapping[int, Mapping[int, BitMap64]], deleted: Collection[int] = ()) -> DataFrame:
        """All rows of the files of which some rows stay or change, with OUTCOME. ``outcomes``: positions by the numbers
        of their files, for each outcome but STAYS; those in ``deleted`` leave no row."""
        chosen, numbers = [], self.rewritten_files(outcomes, deleted)
        if self.marks is not None:
            outcome = F.when(self.again, F.lit(0)).otherwise(F.lit(STAYS))
            return self._read(numbers).select("*", outcome.alias(OUTCOME))
        for number in numbers:
            own = {outcome: of_files[number] for outcome, of_files in outcomes.items() if number in of_files}
            chosen.append(self.rows.entries[number]._replace(outcomes=own))
        return self.rows.read(chosen, replace(self.beside, outcomes=tuple(outcomes)))

    def rewritten_files(
        self, outcomes: Mapping[int, Mapping[int, BitMap64]], deleted: Collection[int] = ()
    ) -> list[int]:
        """The numbers of the files that ``rewritten`` reads."""
        changed = {number for each, of_files in outcomes.items() if each not in deleted for number in of_files}
        return sorted({*self.found.partly, *changed})

    def _read(self, numbers: Sequence[int]) -> DataFrame:
        return self.rows.read([self.rows.entries[number] for number in numbers], Beside(positions=True))

    def kept(self) -> DataFrame:
        """The other rows of files of which some rows are removed."""
        if self.again is not None and not self.tracked:
            return self._read(self.found.partly).where(~F.coalesce(self.again, F.lit(False)))
        return self.rows.read(list(self._kept()), self.beside)

    def _kept(self) -> Iterator[Entry]:
        for number in self.found.partly:
            entry = self.rows.entries[number]
            matched = self.positions[number]
            yield entry._replace(dropped=matched if entry.dropped is None else entry.dropped | matched)


def delete(
    spark: SparkSession, table: deltalog.DeltaTable, condition: Expression | None, alias: str | None = None
) -> WriteResult:
    """Delete the rows for which a condition is true; None: all rows.

    Raises CallError, InvalidActionError for an append-only table, CommitConflictError, RowCountError, JobFailedError,
    StoreError, and Spark's own errors. Cost: a job that reads the condition's columns of the files that can have such a
    row, unless it is on partition columns only; without deletion vectors a job that rewrites the files with such rows.
    """
    parameters = {"predicate": json.dumps(["true" if condition is None else text_of(condition)])}
    change = _Change(spark, table, alias, condition, "DELETE", parameters)
    return change.made(_deleted)


def update(
    spark: SparkSession,
    table: deltalog.DeltaTable,
    condition: Expression | None,
    sets: Mapping[str, Expression],
    alias: str | None = None,
) -> WriteResult:
    """Give columns new values in the rows for which a condition is true; None: in all rows. ``sets``: by column, or by
    field of a struct, the new value, computed from the old row.

    Generated columns that are not set are computed again. Raises as ``delete``, ConstraintViolationError,
    SchemaMismatchError. Cost: as ``delete``, and a job that writes the new rows; with the change data feed another one.
    """
    parameters = {} if condition is None else {"predicate": json.dumps([text_of(condition)])}
    assigned = Assignments(targets(sets, table.snapshot().schema, alias))

    def staged(rows: Rows, removal: Removal, files: ChangedFiles) -> dict[str, int]:
        if removal.found.is_empty:  # new values must not be right by chance
            files.new_rows(new_values(rows.nothing(), files, assigned, ()), (), is_inserted=False)
            return {}
        return _updated(removal, files, assigned)

    return _Change(spark, table, alias, condition, "UPDATE", parameters).made(staged)


def _deleted(rows: Rows, removal: Removal, files: ChangedFiles) -> dict[str, int]:
    """Stage a deletion. Returns the operation metrics."""
    if removal.found.is_empty:
        return {}
    metrics = removal.found.stage()
    if removal.found.num_moved_rows:
        moved = files.old_rows(removal.kept(), removal.tracked)
        files.write(moved, removal.found.num_moved_rows, removal.tracked)
        metrics["numCopiedRows"] = removal.found.num_moved_rows
    if removal.found.needs_change_files:
        changes = removal.removed().withColumn(CHANGE_TYPE, F.lit("delete"))
        metrics["numAddedChangeFiles"] = len(
            files.write(files.old_rows(changes, [CHANGE_TYPE]), removal.found.num_rows, [CHANGE_TYPE], as_changes=True)
        )
    return metrics


def _updated(removal: Removal, files: ChangedFiles, sets: Assignments) -> dict[str, int]:
    """Stage an update. Returns the operation metrics."""
    found, tracked = removal.found, removal.tracked
    metrics = found.stage()
    updated = metrics.pop("numDeletedRows", None)
    marks, carried, mark, count = removal.marks, tracked, None, None
    if marks is not None:
        mark, carried, count = row_positions.mark(), (*tracked, MARK), RowCount(MARK)

    def updated_rows() -> DataFrame:
        old = removal.removed(with_ids=True)
        return files.new_rows(new_values(old, files, sets, tracked, mark=mark), carried, is_inserted=False)

    if found.num_moved_rows and not found.has_change_feed:
        total = None if updated is None else updated + found.num_moved_rows
        rewritten = removal.rewritten({0: removal.positions})
        both = rewritten_rows.of(rewritten, files, {0: sets}, tracked, named, marks is not None)
        if both is None:
            kept = removal.kept()
            kept = kept if marks is None else kept.withColumn(MARK, F.lit(None).cast("bigint"))
            both = updated_rows().union(files.old_rows(kept, carried))
        files.write(both, total, tracked, count=count)
    else:
        if found.num_moved_rows:
            files.write(files.old_rows(removal.kept(), tracked), found.num_moved_rows, tracked)
        new = updated_rows()
        if found.has_change_feed:
            new = new.withColumn(CHANGE_TYPE, F.lit("update_postimage"))
        adds = files.write(new, updated, (*tracked, *([CHANGE_TYPE] if found.has_change_feed else [])), count=count)
        if found.has_change_feed:
            before = removal.removed().withColumn(CHANGE_TYPE, F.lit("update_preimage"))
            changes = files.write(files.old_rows(before, [CHANGE_TYPE]), updated, [CHANGE_TYPE], as_changes=True)
            metrics["numAddedChangeFiles"] = len(adds) + len(changes)
    if marks is not None and count is not None:
        files.check_found(marks, count)
    metrics["numCopiedRows"] = found.num_moved_rows
    if updated is not None:
        metrics["numUpdatedRows"] = updated
    return metrics


def new_values(
    old: DataFrame,
    files: ChangedFiles,
    sets: Assignments,
    tracked: Sequence[str],
    column_of: Callable[[str], Column | None] = named,
    mark: Column | None = None,
) -> DataFrame:
    """The new rows, in the table's types, without generated columns that have to be computed again. The commit version
    of a changed row is that of its new file. ``column_of``: the old value of a column; None where the rows do not have
    it. ``mark``: what the rows have as MARK. Raises SchemaMismatchError."""
    if files.rules.identities is not None:
        files.rules.identities.check_assigned(sets.columns)
    recomputed = {check.generates for check in files.rules.checks if check.generates} - sets.columns
    carried = []
    if tracked:
        carried += [named(tracked[0]), F.lit(None).cast("bigint").alias(tracked[1])]
    if mark is not None:
        carried.append(mark.alias(MARK))
    return changed(old, files.schema.fields, sets, carried, files.url, column_of, recomputed)


@dataclass
class _Change:
    """A statement that changes rows which a condition selects."""

    spark: SparkSession
    table: deltalog.DeltaTable
    alias: str | None
    condition: Expression | None
    operation: str
    parameters: Mapping[str, str]

    def made(self, stage: Any) -> WriteResult:
        """Find the rows, ``stage`` the change, which may be of no row, commit."""
        with lost_session_explained(self.table.url):
            request = WriteRequest(mode="append").with_defaults_of(self.spark)
            transaction = self.table.transaction(reads=self._reads())
        with transaction:
            with lost_session_explained(self.table.url):
                recorded = record_transaction(request, transaction)
                if recorded is not None:
                    return not_committed(transaction, recorded)
                rows, removal = self._removal(transaction)
                files = ChangedFiles(transaction, request, self.table.url)
            with files.removed_on_errors():
                with lost_session_explained(self.table.url):
                    metrics = stage(rows, removal, files)
                    if removal.found.is_empty and "txnAppId" not in request.options:
                        return not_committed(transaction, "no row matches")
                    metrics["numAddedFiles"], metrics["numAddedBytes"] = files.num_files, files.num_bytes
                rows = metrics.get("numUpdatedRows", 0)
                return committed(
                    self.spark, request, transaction, self.operation, self.parameters, metrics, files, rows
                )

    def _reads(self) -> Sequence[Read]:
        """What a subquery of the condition reads."""
        if self.condition is None or "select" not in text_of(self.condition).lower():
            return ()
        frame = frame_of(self.spark, self.table.snapshot())
        aliased = frame if self.alias is None else frame.alias(self.alias)
        return reads_of(aliased.where(as_column(self.condition, "The condition")), self.table)

    def _removal(self, transaction: deltalog.Transaction) -> tuple[Rows, Removal]:
        snapshot = transaction.snapshot
        assert snapshot is not None
        where, is_exact = None, self.condition is None
        if isinstance(self.condition, str):
            try:
                where, is_exact = pruning.exact_predicate(snapshot, [self.condition], self.alias), True
            except pruning.ConditionError:
                where = pruning.predicate(snapshot, [self.condition], self.alias)
        rows = Rows.of(self.spark, self.table, transaction, self.alias, where)
        if is_exact:
            return rows, rows.removal(None)
        condition = as_column(self.condition, "The condition")
        if not rows.entries:
            rows.nothing().where(condition).schema  # noqa: B018 - resolves it, also with Spark Connect
            return rows, rows.removal({})
        found = rows.found(lambda frame: frame.where(condition))
        removal = rows.removal(found.rows.get(0, {}))
        if rows.can_select_again([self.condition]):
            removal.again, removal.digest = condition, found.digests.get(0, 0)
        return rows, removal


def not_committed(transaction: deltalog.Transaction, reason: str) -> WriteResult:
    """The result where there is nothing to do."""
    latest = transaction.latest
    assert latest is not None
    return WriteResult(latest.version, False, reason)


def committed(
    spark: SparkSession,
    request: WriteRequest,
    transaction: deltalog.Transaction,
    operation: str,
    parameters: Mapping[str, str],
    metrics: Mapping[str, int],
    files: ChangedFiles,
    num_rows: int,
) -> WriteResult:
    """Commit what is staged. ``num_rows``: new ones. Raises as ``Transaction.commit``."""
    removed = transaction.staged.removes
    result = transaction.commit(operation, parameters, metrics, request.options.get("userMetadata"))
    if request.defaults.gives_transaction({}):
        with contextlib.suppress(Exception):  # the change is committed
            request.defaults.forget_transaction(spark)
    of_merge = [metrics[name] for name in ("numTargetRowsUpdated", "numTargetRowsDeleted") if name in metrics]
    return WriteResult(
        version=result.version,
        committed=True,
        num_files=files.num_files,
        num_rows=num_rows,
        num_bytes=files.num_bytes,
        num_removed_files=len(removed),
        num_removed_rows=sum(of_merge) if of_merge else metrics.get("numDeletedRows", metrics.get("numUpdatedRows")),
        num_copied_rows=metrics.get("numCopiedRows", metrics.get("numTargetRowsCopied", 0)),
        timestamp_ms=result.timestamp_ms,
        in_commit_timestamp_ms=result.in_commit_timestamp_ms,
        txn_id=result.txn_id,
        operation_metrics=dict(metrics),
    )
