"""The verb merge, which merges the rows of a source into a table.

Spec: PROTOCOL.md#add-cdc-file, #deletion-vectors, #row-tracking, #generated-columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import combined
from deltalog.commit_result import CommitResult
from deltalog.errors import CallError, RowCountError
from deltalog.expressions.relations import Relation, any_of, restored
from deltalog.expressions.sql import as_predicate
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Expression, Predicate
from deltalog.lazy_arrow import pc
from deltalog.protocol import features, row_tracking
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot
from deltalog.rows import matched_rows, rewrite
from deltalog.rows.matched_rows import NewRows, in_range
from deltalog.rows.merge.clauses import Clause, CompiledClause, Compiler, check_clauses, entries
from deltalog.rows.merge.condition import MergeCondition, is_bindable
from deltalog.rows.merge.keys import SourceKeys
from deltalog.rows.merge.row_matching import INSERT_ROWS, Found, Sides, TargetScan, numbers_of
from deltalog.rows.merge.schema_evolution import columns_to_merge
from deltalog.rows.merge.source import PreparedSource, SourceRows
from deltalog.write import write_steps
from deltalog.write.commit_info import UserMetadata
from deltalog.write.data_files import conformed
from deltalog.write.identity_values import Marks
from deltalog.write.table_rules import TableRules
from deltalog.write.transaction import Transaction, skipped

# The maximum number of rows of a spilled source in a merge without join keys, which compares all pairs of rows.
_MAX_UNKEYED = 1 << 18


@dataclass(frozen=True, slots=True)
class Merge:
    """The arguments of a merge."""

    source: Any
    predicate: Predicate | str
    source_alias: str
    target_alias: str
    clauses: Sequence[Clause]
    evolves: bool = False


def merge(
    transaction: Transaction, asked: Merge, user_metadata: UserMetadata, txn: tuple[str, int] | None
) -> CommitResult:
    """Stage and commit a merge."""
    check_clauses(asked.clauses)
    if write_steps.is_recorded(transaction, txn):
        return skipped(transaction)
    plan = _Plan.compile(transaction, asked)
    found = plan.find_rows(transaction)
    if found.is_empty and txn is None and transaction.metadata_changes.changed_metadata is None:
        return skipped(transaction)
    metrics = plan.stage(transaction, found)
    if txn is not None:
        transaction.set_transaction(*txn)
    parameters = {
        "predicate": canonical_json([shown(asked.predicate)]),
        "matchedPredicates": canonical_json(entries(asked.clauses, "matched")),
        "notMatchedPredicates": canonical_json(entries(asked.clauses, "not matched")),
        "notMatchedBySourcePredicates": canonical_json(entries(asked.clauses, "not matched by source")),
    }
    return transaction.commit("MERGE", parameters, metrics, user_metadata)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A compiled merge. ``schema``: the table's schema after the merge; the schema in ``sides.target`` is the one
    before the merge. ``marks``: the high-water marks of identity columns before the merge."""

    sides: Sides
    rules: TableRules
    commit_versions: str | None
    schema: StructType
    marks: Marks

    @classmethod
    def compile(cls, transaction: Transaction, asked: Merge) -> _Plan:
        removes = any(clause.action != "insert" for clause in asked.clauses)
        if transaction.snapshot is None:
            raise CallError("There are no rows to merge into: this transaction creates the table.")
        if removes:
            rewrite.check_removable(transaction)
        features.check_writable(transaction.protocol, transaction.reader.store.url)
        if asked.source_alias.lower() == asked.target_alias.lower():
            raise CallError(f"Source and target have the same alias, {asked.source_alias!r}. Give another one.")
        rows = SourceRows.read(asked.source, transaction.schema)
        target = Relation(asked.target_alias, transaction.schema)
        source = Relation(asked.source_alias, rows.schema)
        if asked.evolves:
            transaction.merge_schema(columns_to_merge(asked.clauses, target, source.schema), keeps_types=True)
        now, rules = transaction.row_writer.now(), transaction.row_writer.rules()
        predicate = as_predicate(asked.predicate, now)
        if predicate is None:
            raise CallError("A merge needs a predicate, such as 'target.id = source.id'.")
        condition = MergeCondition.from_expression(predicate, target, source, now, rules.null_if_empty)
        compiler = Compiler(target, source, rules, now, transaction.schema, asked.evolves)
        compiled = list(enumerate(map(compiler, asked.clauses)))
        columns = row_tracking.kept_columns(transaction.metadata.configuration, transaction.reader.store.url)
        sides = Sides(
            PreparedSource.prepare(rows, source, condition.keys, condition.of_source),
            target,
            condition,
            [(n, each) for n, each in compiled if each.clause.group == "matched"],
            [(n, each) for n, each in compiled if each.clause.group == "not matched by source"],
            [each for _, each in compiled if each.clause.group == "not matched"],
        )
        if rows.is_spilled and not condition.keys:
            _check_unkeyed(sides.source)
        commit_versions = next((column.name for column in columns if not column.counted), None)
        marks = {} if rules.identities is None else rules.identities.marks
        return cls(sides, rules, commit_versions, transaction.schema, marks)

    # --------------------------------------------------------------------------- finding the target rows

    def _where(self) -> Expression | None:
        """A condition that is true for every target row that the merge depends on; None if it depends on all rows."""
        on = self.sides.condition.on_target(self.sides.source.values)
        if on is None:
            return None
        parts = [on]
        for _, clause in self.sides.by_source:
            if clause.condition is None:
                return None
            parts.append(restored(clause.condition.expression, self.sides.target))
            if not is_bindable(parts[-1], self.sides.target.schema):
                return None
        return any_of(parts)

    def find_rows(self, transaction: Transaction) -> Found:
        """Find the rows that change, and record what was read for conflict detection. Memory: as ``TargetScan``."""
        snapshot = transaction.snapshot
        assert snapshot is not None
        files = transaction.find_files(as_bound(self._where()))
        scan = TargetScan(self.sides)
        scan.add(matched_rows.scan_files(snapshot, files, self.sides.columns))
        found = scan.result(rewrite.has_vectors(transaction), files)
        # Give the memory of the joins back to the system before changed rows are read.
        pa.default_memory_pool().release_unused()
        return found

    # ------------------------------------------------------------------------------------------- staging

    def stage(self, transaction: Transaction, found: Found) -> dict[str, int]:
        """Stage the removal of the old rows, and the new files that contain the new rows. Returns the operation
        metrics, with delta-spark's names. Raises RowCountError if the number of rows written differs from the number
        found."""
        snapshot = transaction.snapshot
        assert snapshot is not None
        if found.deletion.is_empty:
            effect = dict.fromkeys(rewrite.METRICS, 0)
        else:
            effect = rewrite.stage_removal(transaction, found.deletion)
        num_updated, num_moved = found.changed.num_rows, found.deletion.num_moved_rows
        adds = []
        if num_updated or num_moved:
            streams = matched_rows.moved_rows(
                snapshot, found.changes(), self._new_rows_of(found), self._read_for_updates(snapshot)
            )
            adds += transaction.row_writer.write_updates(streams, num_updated + num_moved, self.rules)
        if found.num_inserted:
            inserted, written = transaction.row_writer.write(self._inserted_rows(found), filled=True)
            if written != found.num_inserted:
                raise RowCountError(
                    f"{snapshot.url}: {found.num_inserted} rows of the source should be inserted, but {written} were "
                    "written. Nothing was committed. Check that no other thread changes the source.",
                    written=written,
                    found=found.num_inserted,
                )
            adds += inserted
        rewrite.stage_new_files(transaction, adds, effect)
        if rewrite.has_change_data_feed(transaction) and not found.deletion.is_empty:
            rewrite.stage_changes(transaction, self._changes(snapshot, found), effect)
        return self._metrics(found, effect)

    def _new_rows_of(self, found: Found) -> NewRows:
        def new_rows(old: pa.RecordBatch, at: int) -> Iterator[pa.RecordBatch]:
            for _, new in self._updates(old, found, at):
                yield from new.to_batches()

        return new_rows

    def _read_for_updates(self, snapshot: Snapshot) -> Sequence[str]:
        """The columns of the target whose values determine the new rows; at least one column."""
        target = self.sides.target
        names = target.schema.names
        if self.schema != target.schema:
            return names
        clauses = [each for _, each in (*self.sides.matched, *self.sides.by_source)]
        read = [name for name in names if any(each.reads(name, target.flat(name)) for each in clauses)]
        return read or [*snapshot.partition_columns, *names][:1]

    def _updates(self, batch: pa.RecordBatch, found: Found, at: int) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Tables of old rows, each paired with the table of the corresponding new rows. The tables contain the row
        tracking columns if the rows that were read contain them. Columns that were not read are null. ``at``: the index
        in ``found.changed`` of the batch's first row."""
        clauses = dict((*self.sides.matched, *self.sides.by_source))
        rows, chosen = self._with_all_columns(pa.Table.from_batches([batch])), found.changed.slice(at, batch.num_rows)
        numbers, source = combined(chosen.column("clause")), combined(chosen.column("source"))
        present = sorted(pc.unique(numbers).to_pylist())
        for number in present:
            old, beside = rows, source
            if len(present) > 1:
                mask = pc.equal(numbers, number)
                old, beside = rows.filter(mask), source.filter(mask)
            yield old, self._new_rows(clauses[number], old, beside)

    def _with_all_columns(self, rows: pa.Table) -> pa.Table:
        fields = self.sides.target.schema.to_arrow()
        if rows.schema.names[: len(fields)] == fields.names:
            return rows
        held = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns = {each.name: held.pop(each.name, None) for each in fields}
        absent = {each.name: pa.nulls(rows.num_rows, each.type) for each in fields if columns[each.name] is None}
        return pa.table({**columns, **absent, **held})

    def _new_rows(self, clause: CompiledClause, old: pa.Table, source: Any) -> pa.Table:
        names = self.sides.target.schema.names
        others = old.schema.names[len(names) :]
        own = old.select(names)
        flat = self.sides.target.flat_table(own)
        if self.schema != self.sides.target.schema:
            own = conformed(own, self.schema)
        if clause.clause.group == "matched":
            rows = self.sides.source.rows
            beside = rows.take(source, clause.source_columns(rows.rows.schema.names))
            for name in beside.schema.names:
                flat = flat.append_column(name, beside.column(name))
        new = clause.updated(own, flat, self.schema, self.rules)
        return matched_rows.with_row_ids(new, old, others, self.commit_versions)

    def _inserted_rows(self, found: Found) -> Iterator[pa.RecordBatch]:
        """The rows to insert. Each call generates the same values for identity columns."""
        if self.rules.identities is not None:
            self.rules.identities.reset_to(self.marks)
        rows = self.sides.source.rows.rows
        for clause, numbers in found.inserts:
            for start in range(0, rows.num_rows if numbers else 0, INSERT_ROWS):
                some = numbers_of(numbers & in_range(start, start + INSERT_ROWS))
                if len(some):
                    flat = rows.slice(start, INSERT_ROWS).take(pc.subtract(some, start))
                    yield from clause.inserted(flat, self.schema, self.rules).to_batches()

    def _changes(self, snapshot: Snapshot, found: Found) -> Iterator[tuple[str, pa.RecordBatch]]:
        at = 0
        for batch in matched_rows.matching_rows(snapshot, found.no_files, found.updated):
            for old, new in self._updates(batch, found, at):
                yield from (("update_preimage", batch) for batch in old.to_batches())
                yield from (("update_postimage", batch) for batch in new.to_batches())
            at += batch.num_rows
        for batch in matched_rows.matching_rows(snapshot, found.no_files, found.deleted):
            yield "delete", batch
        yield from (("insert", batch) for batch in self._inserted_rows(found))

    def _metrics(self, found: Found, effect: Mapping[str, int]) -> dict[str, int]:
        counts = {"update": {"matched": 0, "not matched by source": 0}}
        counts["delete"] = dict(counts["update"])
        for number, clause in (*self.sides.matched, *self.sides.by_source):
            counts[clause.clause.action][clause.clause.group] += found.counts.get(number, 0)
        updated, deleted = (sum(counts[action].values()) for action in ("update", "delete"))
        return {
            "numSourceRows": self.sides.source.num_rows,
            "numTargetRowsInserted": found.num_inserted,
            "numTargetRowsUpdated": updated,
            "numTargetRowsMatchedUpdated": counts["update"]["matched"],
            "numTargetRowsNotMatchedBySourceUpdated": counts["update"]["not matched by source"],
            "numTargetRowsDeleted": deleted,
            "numTargetRowsMatchedDeleted": counts["delete"]["matched"],
            "numTargetRowsNotMatchedBySourceDeleted": counts["delete"]["not matched by source"],
            "numTargetRowsCopied": found.deletion.num_moved_rows,
            "numOutputRows": found.num_inserted + updated + found.deletion.num_moved_rows,
            "numTargetFilesAdded": effect["numAddedFiles"],
            "numTargetFilesRemoved": effect["numRemovedFiles"],
            "numTargetBytesAdded": effect["numAddedBytes"],
            "numTargetBytesRemoved": effect["numRemovedBytes"],
            "numTargetDeletionVectorsAdded": effect["numDeletionVectorsAdded"],
            "numTargetDeletionVectorsUpdated": effect["numDeletionVectorsUpdated"],
            "numTargetDeletionVectorsRemoved": effect["numDeletionVectorsRemoved"],
            "numTargetChangeFilesAdded": effect["numAddedChangeFiles"],
        }


def as_bound(where: Expression | None) -> Predicate | None:
    """A condition in the form that ``find_files`` accepts."""
    assert where is None or isinstance(where, Predicate)
    return where


def _check_unkeyed(source: PreparedSource) -> None:
    """Refuse to compare every row of a large source with every row of the table."""
    assert isinstance(source.keys, SourceKeys)
    if source.keys.num_rows > _MAX_UNKEYED:
        raise CallError(
            f"The predicate has no equality between source and table, and {source.keys.num_rows} rows of the source "
            f"may match. The source does not fit in memory; at most {_MAX_UNKEYED} of its rows can be compared with "
            "every row of the table. Add an equality to the predicate, or merge the source in parts."
        )
