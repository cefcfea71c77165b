"""DELETE and UPDATE on Spark's executors: statistics rule out files, a job finds the rows in the other files, and
further jobs write new files. No row reaches the driver.
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
from spark_ext.reading.scan import OUTCOME, STAYS, ExtraColumns, scan
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
    """The rows of a table that a statement may change, in the version that its transaction reads."""

    spark: SparkSession
    table: deltalog.DeltaTable
    transaction: deltalog.Transaction
    alias: str | None
    #: The files that can contain rows that the statement may change, as found by ``Transaction.find_files``, which also
    #: declared the read.
    files: pa.Table
    #: The same files, for scans.
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
        """The rows of all files that can contain a row for which ``where`` is true. Cost: as
        ``Transaction.find_files``, and a read of the deletion vectors of these files."""
        snapshot = transaction.snapshot
        assert snapshot is not None
        files = transaction.find_files(where)
        found = file_entries.of_files(snapshot, files, each_once=False)
        return cls(
            spark, table, transaction, alias, files, found, Layout.of(snapshot), Storage.of(spark, snapshot)
        )  # fmt: skip

    def read(self, chosen: Sequence[Entry], extra: ExtraColumns = ExtraColumns()) -> DataFrame:  # noqa: B008
        """The rows of the chosen files; their columns can be qualified with the alias of the table."""
        return self._qualified(scan(self.spark, self.layout, chosen, self.storage, extra=extra))

    def nothing(self) -> DataFrame:
        """An empty DataFrame with the columns of ``read``, to resolve expressions."""
        return self._qualified(scan(self.spark, self.layout, (), self.storage))

    def _qualified(self, frame: DataFrame) -> DataFrame:
        return frame if self.alias is None else frame.alias(self.alias)

    def found(self, where: Any) -> Found:
        """The positions of the rows that the function ``where`` selects from a DataFrame; these rows get outcome 0."""
        return row_positions.positions(where(self.read(self.entries, ExtraColumns(positions=True))), self.entries)

    def can_select_again(self, expressions: Sequence[Expression | None]) -> bool:
        """Whether a second query with the same conditions can be used to select the rows of the first query again. This
        is possible if the conditions are certain to select the same rows again and the session reports the digest by
        which this is checked."""
        return pruning.is_repeatable(expressions) and not counts_are_not_sent(self.spark)

    def entries_at(self, positions: Mapping[int, BitMap64]) -> list[Entry]:
        """Entries that select only the given positions, which are keyed by file number."""
        return [self.entries[number]._replace(dropped=None, kept=found) for number, found in positions.items()]

    def removal(self, positions: Mapping[int, BitMap64] | None, adds_only: bool = False) -> Removal:
        """The removal, not yet staged, of the rows at these positions, or of all files as a whole if ``positions`` is
        None. Raises as ``RowRemoval``."""
        found = deltalog.engine.RowRemoval(self.transaction, self.files, positions, adds_only=adds_only)
        return Removal(self, found, positions or {})


@dataclass
class Removal:
    """The rows that a statement removes or changes, and the other rows of their files."""

    rows: Rows
    found: deltalog.engine.RowRemoval
    positions: Mapping[int, BitMap64]
    #: A condition that selects the same rows in their files, which is much cheaper than a selection by position; None
    #: if there is no such condition.
    again: Column | None = None
    #: The digest of the rows.
    digest: int = 0
    extra: ExtraColumns = field(init=False)

    def __post_init__(self) -> None:
        self.extra = ExtraColumns(row_tracking=self.found.kept_columns)

    @property
    def tracked(self) -> tuple[str, ...]:
        """The columns of data files that store row ids and row commit versions; empty if row tracking is off."""
        return self.found.kept_columns or ()

    @property
    def marks(self) -> tuple[int, int] | None:
        """The number and the digest of the selected rows if ``removed(with_ids=True)`` and ``rewritten`` select rows by
        evaluating the condition ``again``, in which case they also return FILE and ROW; None if these methods select
        rows by position."""
        if self.again is None or self.tracked:
            return None
        return sum(map(len, self.positions.values())), self.digest

    def removed(self, with_ids: bool = False) -> DataFrame:
        """The removed rows. ``with_ids``: whether to include the ``tracked`` columns."""
        if self.again is not None and not (with_ids and self.tracked):
            return self._read([*self.found.whole, *self.found.partly]).where(self.again)
        chosen = [self.rows.entries[number] for number in self.found.whole]
        chosen += self.rows.entries_at({number: self.positions[number] for number in self.found.partly})
        return self.rows.read(chosen, self.extra if with_ids else ExtraColumns())

    def at(self, positions: Mapping[int, BitMap64], with_ids: bool = False) -> DataFrame:
        """The removed rows at the given positions, which are keyed by file number. ``with_ids``: as for ``removed``."""
        return self.rows.read(self.rows.entries_at(positions), self.extra if with_ids else ExtraColumns())

    def rewritten(self, outcomes: Mapping[int, Mapping[int, BitMap64]], deleted: Collection[int] = ()) -> DataFrame:
        """All rows of those files in which some rows stay or change, with the column OUTCOME. ``outcomes``: positions,
        keyed by outcome (except STAYS) and file number. ``deleted``: the outcomes whose rows are deleted."""
        chosen, numbers = [], self.rewritten_files(outcomes, deleted)
        if self.marks is not None:
            outcome = F.when(self.again, F.lit(0)).otherwise(F.lit(STAYS))
            return self._read(numbers).select("*", outcome.alias(OUTCOME))
        for number in numbers:
            own = {outcome: of_files[number] for outcome, of_files in outcomes.items() if number in of_files}
            chosen.append(self.rows.entries[number]._replace(outcomes=own))
        return self.rows.read(chosen, replace(self.extra, outcomes=tuple(outcomes)))

    def rewritten_files(
        self, outcomes: Mapping[int, Mapping[int, BitMap64]], deleted: Collection[int] = ()
    ) -> list[int]:
        """The indices in ``self.rows.entries`` of the files that ``rewritten`` reads."""
        changed = {number for each, of_files in outcomes.items() if each not in deleted for number in of_files}
        return sorted({*self.found.partly, *changed})

    def _read(self, numbers: Sequence[int]) -> DataFrame:
        return self.rows.read([self.rows.entries[number] for number in numbers], ExtraColumns(positions=True))

    def kept(self) -> DataFrame:
        """The rows that remain in files from which other rows are removed."""
        if self.again is not None and not self.tracked:
            return self._read(self.found.partly).where(~F.coalesce(self.again, F.lit(False)))
        return self.rows.read(list(self._kept()), self.extra)

    def _kept(self) -> Iterator[Entry]:
        for number in self.found.partly:
            entry = self.rows.entries[number]
            matched = self.positions[number]
            yield entry._replace(dropped=matched if entry.dropped is None else entry.dropped | matched)


def delete(
    spark: SparkSession, table: deltalog.DeltaTable, condition: Expression | None, alias: str | None = None
) -> WriteResult:
    """Delete the rows for which ``condition`` is true; None: all rows.

    Raises CallError, InvalidActionError for an append-only table, CommitConflictError, RowCountError, JobFailedError,
    StoreError, and Spark's own errors. Cost: unless the condition is on partition columns only, a job that reads its
    columns in the files that can have such rows; without deletion vectors, a job that rewrites the files with such
    rows.
    """
    parameters = {"predicate": json.dumps(["true" if condition is None else text_of(condition)])}
    return _Change(spark, table, alias, condition, "DELETE", parameters).run(_deleted)


def update(
    spark: SparkSession,
    table: deltalog.DeltaTable,
    condition: Expression | None,
    sets: Mapping[str, Expression],
    alias: str | None = None,
) -> WriteResult:
    """Update columns in the rows for which ``condition`` is true; None: in all rows. ``sets``: the new values, computed
    from the old row, keyed by column or struct field.

    Generated columns that are not set explicitly are recomputed. Raises as ``delete``, ConstraintViolationError,
    SchemaMismatchError. Cost: as ``delete``, and a job that writes the new rows; with the change data feed another job.
    """
    parameters = {} if condition is None else {"predicate": json.dumps([text_of(condition)])}
    assigned = Assignments(targets(sets, table.snapshot().schema, alias))

    def staged(rows: Rows, removal: Removal, files: ChangedFiles) -> dict[str, int]:
        if removal.found.is_empty:  # invalid new values are an error even if no row matches
            files.new_rows(new_values(rows.nothing(), files, assigned, ()), (), is_inserted=False)
            return {}
        return _updated(removal, files, assigned)

    return _Change(spark, table, alias, condition, "UPDATE", parameters).run(staged)


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
        both = rewritten_rows.from_one_scan(rewritten, files, {0: sets}, tracked, named, marks is not None)
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
    """Changed rows, in the table's types, without the generated columns, which must be computed again. Row ids are
    kept; the rows' commit version becomes that of the new file. ``column_of``: returns the old value of a column, or
    None if the rows lack that column. ``mark``: the value of MARK. Raises SchemaMismatchError."""
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
    """A DELETE or an UPDATE."""

    spark: SparkSession
    table: deltalog.DeltaTable
    alias: str | None
    condition: Expression | None
    operation: str
    parameters: Mapping[str, str]

    def run(self, stage: Any) -> WriteResult:
        """Find the rows, call ``stage`` to stage the change (even if no row matches), and commit."""
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
        """The reads of this table by subqueries in the condition."""
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
            rows.nothing().where(condition).schema  # noqa: B018 - resolves the condition, over Spark Connect too
            return rows, rows.removal({})
        found = rows.found(lambda frame: frame.where(condition))
        removal = rows.removal(found.rows.get(0, {}))
        if rows.can_select_again([self.condition]):
            removal.again, removal.digest = condition, found.digests.get(0, 0)
        return rows, removal


def not_committed(transaction: deltalog.Transaction, reason: str) -> WriteResult:
    """The result of an update or delete that had nothing to commit."""
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
    """Commit what is staged. ``num_rows``: the number of new rows. Raises as ``Transaction.commit``."""
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
