"""The verb update, which changes rows.

Spec: PROTOCOL.md#add-cdc-file, #deletion-vectors, #row-tracking, #generated-columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from deltalog.commit_result import CommitResult
from deltalog.expressions.assign import Assignment, assigned, assignments
from deltalog.expressions.sql import at_one_instant
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Predicate
from deltalog.log.file_tables import add_actions
from deltalog.protocol import row_tracking
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.schema import StructType
from deltalog.rows import matched_rows, rewrite
from deltalog.rows.matched_rows import FileChange
from deltalog.write import write_steps
from deltalog.write.commit_info import UserMetadata
from deltalog.write.data_files import conformed
from deltalog.write.table_rules import TableRules
from deltalog.write.transaction import Transaction, skipped


def update(
    transaction: Transaction,
    updates: Mapping[str, Any],
    new_values: Mapping[str, Any],
    where: Predicate | str | None,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Set new values in the rows for which ``where`` is true (None: in all rows); the changes are staged and
    committed."""
    if write_steps.is_recorded(transaction, txn):
        return skipped(transaction)
    where = at_one_instant(where, transaction.row_writer.now())
    changed = _RowUpdate.compile(transaction, updates, new_values)
    matching = rewrite.plan(transaction, where)
    if matching.is_empty and txn is None:
        return skipped(transaction)
    metrics = _stage(transaction, matching, changed) if not matching.is_empty else {"numUpdatedRows": 0}
    if txn is not None:
        transaction.set_transaction(*txn)
    parameters = {} if where is None else {"predicate": canonical_json([shown(where)])}
    return transaction.commit("UPDATE", parameters, metrics, user_metadata)


def _stage(transaction: Transaction, matching: rewrite.Deletion, changed: _RowUpdate) -> dict[str, int]:
    """Stage the deletion of the old rows, and stage the new files that contain the updated and copied rows. Returns the
    operation metrics, with delta-spark's names."""
    snapshot = transaction.snapshot
    assert snapshot is not None
    metrics = rewrite.stage_removal(transaction, matching)
    updated = metrics.pop("numDeletedRows", None)
    changes = [FileChange(file, BitMap64(), None) for file in add_actions(matching.whole)]
    for each in matching.matches:
        kept = BitMap64() if matching.by_vectors else each.kept
        changes.append(FileChange(each.file, kept, each.matched, each.rows))
    rows = None if updated is None else updated + matching.num_moved_rows
    written = matched_rows.moved_rows(snapshot, changes, changed.new_rows)
    adds = transaction.row_writer.write_updates(written, rows, changed.rules)
    rewrite.stage_new_files(transaction, adds, metrics)
    metrics["numCopiedRows"] = matching.num_moved_rows
    if updated is not None:
        metrics["numUpdatedRows"] = updated
    if rewrite.has_change_data_feed(transaction):
        old_rows = matched_rows.matching_rows(snapshot, matching.whole, matching.matches)
        rewrite.stage_changes(transaction, changed.changes(old_rows), metrics)
    return metrics


@dataclass(frozen=True, slots=True)
class _RowUpdate:
    """Computes updated rows. ``recomputed``: the generated columns to which the update does not assign a value.
    ``commit_versions``: the data file column with row commit versions; None without row tracking."""

    schema: StructType
    assigned: Sequence[Assignment]
    recomputed: Sequence[str]
    rules: TableRules
    commit_versions: str | None

    @classmethod
    def compile(cls, transaction: Transaction, updates: Mapping[str, Any], new_values: Mapping[str, Any]) -> _RowUpdate:
        """Raises CallError, and UnsupportedFeatureError for an unsupported table rule."""
        found = assignments(updates, new_values, transaction.schema, transaction.row_writer.now())
        rules, own = transaction.row_writer.rules(), {each.path[0] for each in found}
        if rules.identities is not None:
            rules.identities.check_assigned(own)
        generated = [check.generates for check in rules.checks if check.generates and check.generates not in own]
        columns = row_tracking.kept_columns(transaction.metadata.configuration, transaction.reader.store.url)
        versions = next((column.name for column in columns if not column.counted), None)
        return cls(transaction.schema, found, generated, rules, versions)

    def updated(self, batch: pa.RecordBatch) -> pa.Table:
        """The updated rows of a batch, with the row tracking columns of the batch."""
        old = pa.Table.from_batches([batch])
        others = old.schema.names[len(self.schema.names) :]
        new = assigned(old, self.assigned).drop_columns([*self.recomputed, *others])
        rows = conformed(new, self.schema, self.rules)
        return matched_rows.with_row_ids(rows, old, others, self.commit_versions)

    def new_rows(self, batch: pa.RecordBatch, _: int) -> Sequence[pa.RecordBatch]:
        """The new rows, in the order of the old rows."""
        batches: Sequence[pa.RecordBatch] = self.updated(batch).to_batches()
        return batches

    def changes(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The old and the new rows, each batch with its change type."""
        for batch in batches:
            yield "update_preimage", batch
            for new in self.updated(batch).to_batches():
                yield "update_postimage", new
