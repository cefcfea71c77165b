"""The verb that merges the rows of a source into a table.

Spec: PROTOCOL.md#add-cdc-file, #deletion-vectors, #row-tracking, #generated-columns.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.arrow_arrays import FALSE, combined, row_numbers
from deltalog.commit_result import CommitResult
from deltalog.errors import CallError, RowCountError
from deltalog.expressions.evaluate import matches
from deltalog.expressions.relations import Relation, any_of, restored
from deltalog.expressions.sql import as_predicate
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Expression, Predicate
from deltalog.operations import rewrite, writes
from deltalog.operations.data_files import conformed
from deltalog.operations.input_streams import as_reader, read_once
from deltalog.operations.merge_clauses import Clause, CompiledClause, Compiler, check_clauses, entries
from deltalog.operations.merge_condition import MergeCondition, PreparedSource, is_bindable, side_by_side
from deltalog.operations.merge_evolution import columns_to_merge
from deltalog.operations.table_rules import TableRules
from deltalog.operations.transaction import Transaction, UserMetadata, skipped
from deltalog.protocol import features, row_tracking, widening
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.schema import StructField, StructType
from deltalog.protocol.schema_enforcement import check_unique_names
from deltalog.read.snapshot import Snapshot

_BLOCK_ROWS, _BLOCK_BYTES = 1 << 20, 64 << 20  # of the target, that are joined at once
_INSERT_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Merge:
    """What a caller asks for."""

    source: Any
    predicate: Predicate | str
    source_alias: str
    target_alias: str
    clauses: Sequence[Clause]
    evolves: bool = False


def merge(
    transaction: Transaction, asked: Merge, user_metadata: UserMetadata, txn: tuple[str, int] | None
) -> CommitResult:
    """Stage and commit what the clauses make of the rows of both sides."""
    check_clauses(asked.clauses)
    if writes.is_recorded(transaction, txn):
        return skipped(transaction)
    plan = _Plan.of(transaction, asked)
    found = plan.found(transaction)
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


def _read_source(data: Any) -> pa.Table:
    """The rows, in the types that columns of tables have. Raises CallError, SchemaMismatchError."""
    reader = as_reader(data)
    given = StructType.from_arrow(reader.schema)
    check_unique_names(given)
    schema = StructType(tuple(StructField(each.name, each.data_type) for each in given.fields))
    batches = [conformed(pa.Table.from_batches([batch]), schema) for batch in read_once(reader)]
    return pa.concat_tables([schema.to_arrow().empty_table(), *batches])


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows that change. ``files``: the matches of files with such rows, and their place among the files read.
    ``changed``: a row for each, in the order of files and positions: the number of its clause, and the number of its
    row of the source. ``inserts``: for each clause that inserts the rows of the source."""

    deletion: rewrite.Deletion
    updated: Sequence[rewrite.FileMatch]
    deleted: Sequence[rewrite.FileMatch]
    changed: pa.Table
    counts: Mapping[int, int]
    inserts: Sequence[tuple[CompiledClause, Any]]

    @property
    def is_empty(self) -> bool:
        return self.deletion.is_empty and not self.num_inserted

    @property
    def num_inserted(self) -> int:
        return sum(len(rows) for _, rows in self.inserts)

    def parts_of(self, matches: Sequence[rewrite.FileMatch]) -> rewrite.Deletion:
        """These rows as those of a deletion, to be read."""
        whole = self.deletion.whole.slice(0, 0)
        return rewrite.Deletion(whole, whole, matches, None, self.deletion.by_vectors, False)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A merge, compiled. ``schema``: of the table after it; ``target`` has that before it."""

    source: PreparedSource
    target: Relation
    source_relation: Relation
    condition: MergeCondition
    matched: Sequence[tuple[int, CompiledClause]]
    by_source: Sequence[tuple[int, CompiledClause]]
    inserting: Sequence[CompiledClause]
    rules: TableRules
    commit_versions: str | None
    schema: StructType

    @classmethod
    def of(cls, transaction: Transaction, asked: Merge) -> _Plan:
        removes = any(clause.action != "insert" for clause in asked.clauses)
        if transaction.snapshot is None:
            raise CallError("There are no rows to merge into: this transaction creates the table.")
        if removes:
            rewrite.check_removable(transaction)
        features.check_writable(
            transaction.protocol, transaction.metadata, transaction.schema, transaction.reader.store.url
        )
        if asked.source_alias.lower() == asked.target_alias.lower():
            raise CallError(f"Source and target have the same alias, {asked.source_alias!r}. Give another one.")
        rows = _read_source(asked.source)
        target = Relation(asked.target_alias, transaction.schema)
        source = Relation(asked.source_alias, StructType.from_arrow(rows.schema))
        if asked.evolves:
            widens = widening.automatic(transaction.metadata.configuration)
            transaction.merge_schema(columns_to_merge(asked.clauses, target, source.schema, widens))
        now, rules = transaction.row_writer.now(), transaction.row_writer.rules()
        predicate = as_predicate(asked.predicate)
        if predicate is None:
            raise CallError("A merge needs a predicate, such as 'target.id = source.id'.")
        condition = MergeCondition.of(predicate, target, source, now)
        compiler = Compiler(target, source, rules, now, transaction.schema, asked.evolves)
        compiled = list(enumerate(map(compiler, asked.clauses)))
        columns = row_tracking.kept_columns(transaction.metadata.configuration, transaction.reader.store.url)
        return cls(
            PreparedSource.of(source.flat_table(rows), condition),
            target,
            source,
            condition,
            [(n, each) for n, each in compiled if each.clause.group == "matched"],
            [(n, each) for n, each in compiled if each.clause.group == "not matched by source"],
            [each for _, each in compiled if each.clause.group == "not matched"],
            rules,
            next((column.name for column in columns if not column.counted), None),
            transaction.schema,
        )

    # ------------------------------------------------------------------------------------------- finding

    @property
    def _may_match_several(self) -> bool:
        """Whether a row of the target may have several rows of the source: none of their values is used."""
        if not self.matched:
            return True
        only = self.matched[0][1]
        return len(self.matched) == 1 and only.clause.action == "delete" and only.condition is None

    def _where(self) -> Expression | None:
        """True for every row of the target that the merge depends on; None for all."""
        on = self.condition.on_target(self.source)
        if on is None:
            return None
        parts = [on]
        for _, clause in self.by_source:
            if clause.condition is None:
                return None
            parts.append(restored(clause.condition.expression, self.target))
            if not is_bindable(parts[-1], self.target.schema):
                return None
        return any_of(parts)

    def _columns(self) -> list[str]:
        """The columns of the target that decide what becomes of a row."""
        used = self.condition.columns.union(*(each.columns for _, each in (*self.matched, *self.by_source)))
        names = [name for name in self.target.schema.names if self.target.flat(name) in used]
        return names or self.target.schema.names[:1]

    def found(self, transaction: Transaction) -> _Found:
        """Find the rows that change, and declare what was read. Memory: the source, a block of the target, and for each
        row that changes its position and two numbers."""
        snapshot = transaction.snapshot
        assert snapshot is not None
        where = self._where()
        files = transaction.find_files(as_bound(where))
        scan = _Scan(self)
        for batch in rewrite.scanned(snapshot, files, self._columns()):
            scan.add(batch)
        scan.join()
        return scan.found(transaction, files)

    # ------------------------------------------------------------------------------------------- staging

    def stage(self, transaction: Transaction, found: _Found) -> dict[str, int]:
        """Stage the removal of old rows and the files of new ones. Returns the operation metrics, in delta-spark's
        names. Raises RowCountError where other rows were written than were found."""
        snapshot = transaction.snapshot
        assert snapshot is not None
        if found.deletion.is_empty:
            effect = dict.fromkeys(rewrite.METRICS, 0)
        else:
            effect = rewrite.stage_removal(transaction, found.deletion)
        moved = () if found.deletion.by_vectors else rewrite.kept_rows(snapshot, found.deletion.matches)
        num_updated, num_moved = found.changed.num_rows, found.deletion.num_moved_rows
        adds = []
        if num_updated or num_moved:
            rows = itertools.chain(moved, self._updated_rows(snapshot, found))
            adds += transaction.row_writer.write_updates(rows, num_updated + num_moved, self.rules)
        if found.num_inserted:
            inserted, written = transaction.row_writer.write(self._inserted_rows(found))
            if written != found.num_inserted:
                raise RowCountError(
                    f"{snapshot.url}: {found.num_inserted} rows of the source must be inserted, and {written} were "
                    "written. Nothing was committed; check that no other thread changes the source.",
                    written=written,
                    found=found.num_inserted,
                )
            adds += inserted
        rewrite.stage_new_files(transaction, adds, effect)
        if rewrite.has_change_data_feed(transaction) and not found.deletion.is_empty:
            rewrite.stage_changes(transaction, self._changes(snapshot, found), effect)
        return self._metrics(found, effect)

    def _updated_rows(self, snapshot: Snapshot, found: _Found) -> Iterator[pa.RecordBatch]:
        old = rewrite.matching_rows(snapshot, found.parts_of(found.updated), with_ids=True)
        for _, new in self._updates(old, found):
            yield from new.to_batches()

    def _updates(self, batches: Iterator[pa.RecordBatch], found: _Found) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Old rows and what they become, with the columns of row tracking where the old ones have them."""
        at = 0
        clauses = dict((*self.matched, *self.by_source))
        for batch in batches:
            rows, chosen = pa.Table.from_batches([batch]), found.changed.slice(at, batch.num_rows)
            at += batch.num_rows
            numbers = combined(chosen.column("clause"))
            for number in sorted(pc.unique(numbers).to_pylist()):
                mask = pc.equal(numbers, number)
                old = rows.filter(mask)
                yield old, self._new_rows(clauses[number], old, combined(chosen.column("source")).filter(mask))

    def _new_rows(self, clause: CompiledClause, old: pa.Table, source: Any) -> pa.Table:
        names = self.target.schema.names
        others = old.schema.names[len(names) :]
        own = old.select(names)
        flat = self.target.flat_table(own)
        if self.schema != self.target.schema:
            own = conformed(own, self.schema)
        if clause.clause.group == "matched":
            beside = self.source.rows.take(source)
            for name in beside.schema.names:
                flat = flat.append_column(name, beside.column(name))
        new = clause.updated(own, flat, self.schema, self.rules)
        for name in others:
            values = old.column(name)
            if name == self.commit_versions:  # that of the new file
                values = pa.nulls(len(values), values.type)
            new = new.append_column(name, values)
        return new

    def _inserted_rows(self, found: _Found) -> Iterator[pa.RecordBatch]:
        for clause, numbers in found.inserts:
            for start in range(0, len(numbers), _INSERT_ROWS):
                flat = self.source.rows.take(numbers.slice(start, _INSERT_ROWS))
                yield from clause.inserted(flat, self.schema, self.rules).to_batches()

    def _changes(self, snapshot: Snapshot, found: _Found) -> Iterator[tuple[str, pa.RecordBatch]]:
        old_rows = rewrite.matching_rows(snapshot, found.parts_of(found.updated))
        for old, new in self._updates(old_rows, found):
            yield from (("update_preimage", batch) for batch in old.to_batches())
            yield from (("update_postimage", batch) for batch in new.to_batches())
        for batch in rewrite.matching_rows(snapshot, found.parts_of(found.deleted)):
            yield "delete", batch
        yield from (("insert", batch) for batch in self._inserted_rows(found))

    def _metrics(self, found: _Found, effect: Mapping[str, int]) -> dict[str, int]:
        counts = {"update": {"matched": 0, "not matched by source": 0}}
        counts["delete"] = dict(counts["update"])
        for number, clause in (*self.matched, *self.by_source):
            counts[clause.clause.action][clause.clause.group] += found.counts.get(number, 0)
        updated, deleted = (sum(counts[action].values()) for action in ("update", "delete"))
        return {
            "numSourceRows": self.source.rows.num_rows,
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
    """A condition as ``find_files`` takes it."""
    assert where is None or isinstance(where, Predicate)
    return where


_OUTCOMES = pa.schema([("row", pa.int64()), ("clause", pa.int32()), ("source", pa.int64())])


@dataclass(slots=True)
class _Scan:
    """Joins the target to the source, block by block, and keeps what is to change."""

    plan: _Plan
    batches: list[rewrite.ScannedBatch] = field(default_factory=list)
    held_rows: int = 0
    held_bytes: int = 0
    read: dict[int, rewrite.ScannedBatch] = field(default_factory=dict)  # the last batch of each file
    outcomes: dict[int, list[pa.Table]] = field(default_factory=dict)
    used: Any = None  # numbers of the source's rows that match

    def add(self, batch: rewrite.ScannedBatch) -> None:
        self.read[batch.number] = batch.without_rows()
        if batch.rows.num_rows:
            self.batches.append(batch)
            self.held_rows += batch.rows.num_rows
            self.held_bytes += batch.rows.nbytes
        if self.held_rows >= _BLOCK_ROWS or self.held_bytes >= _BLOCK_BYTES:
            self.join()

    def join(self) -> None:
        """Join the batches that are held."""
        batches, self.batches, self.held_rows, self.held_bytes = self.batches, [], 0, 0
        if not batches:
            return
        block = self.plan.target.flat_table(pa.Table.from_batches([each.rows for each in batches]))
        rows, sources = self._matches(block)
        found = self._outcomes(block, rows, sources)
        if not found.num_rows:
            return
        numbers = memoryview(combined(found.column("row")).buffers()[1]).cast("q")[: found.num_rows]
        start = 0
        for batch in batches:
            end = start + batch.rows.num_rows
            first, last = bisect_left(numbers, start), bisect_left(numbers, end)
            if last > first:
                part = found.slice(first, last - first)
                positions = batch.positions.take(pc.subtract(combined(part.column("row")), start))
                part = pa.table({"position": positions, "clause": part["clause"], "source": part["source"]})
                self.outcomes.setdefault(batch.number, []).append(part)
            start = end

    def _matches(self, block: pa.Table) -> tuple[Any, Any]:
        """Rows of the block that match, each once, and for each the row of the source."""
        plan = self.plan
        rows, sources = [pa.array([], pa.int64())], [pa.array([], pa.int64())]
        for some, others in plan.condition.pairs(block, plan.source):
            rows.append(some)
            sources.append(others)
            if plan.inserting:
                known = [others] if self.used is None else [self.used, others]
                self.used = pc.unique(pa.concat_arrays(known))
        row, source = pa.concat_arrays(rows), pa.concat_arrays(sources)
        if not plan.matched and not plan.by_source:
            return row.slice(0, 0), source.slice(0, 0)
        unique = pc.unique(row)
        if len(unique) == len(row):
            return row, source
        if not plan._may_match_several:
            raise _ambiguous(plan, block, row, source)
        return unique, source.take(pc.index_in(unique, value_set=row))

    def _outcomes(self, block: pa.Table, rows: Any, sources: Any) -> pa.Table:
        """What becomes of rows of the block, in their order."""
        plan = self.plan
        tables = [_OUTCOMES.empty_table()]
        tables += self._decided(block, rows, sources, plan.matched)
        if plan.by_source:
            everything = row_numbers(block.num_rows)
            others = everything.filter(pc.invert(pc.is_in(everything, value_set=rows)))
            tables += self._decided(block, others, pa.nulls(len(others), pa.int64()), plan.by_source)
        return pa.concat_tables(tables).sort_by("row").combine_chunks()

    def _decided(
        self, block: pa.Table, rows: Any, sources: Any, clauses: Sequence[tuple[int, CompiledClause]]
    ) -> Iterator[pa.Table]:
        """The first clause that applies to each row; a condition is evaluated for those that are left."""
        for number, clause in clauses:
            if not len(rows):
                return
            taken = pa.repeat(True, len(rows))
            if clause.condition is not None:
                if clause.clause.group == "matched":
                    beside = side_by_side(block, rows, self.plan.source.rows, sources, clause.columns)
                else:
                    beside = block.take(rows)
                taken = pc.fill_null(matches(clause.condition, beside), FALSE)
            chosen = rows.filter(taken)
            columns = [chosen, pa.repeat(pa.scalar(number, pa.int32()), len(chosen)), sources.filter(taken)]
            yield pa.Table.from_arrays(columns, schema=_OUTCOMES)
            rows, sources = rows.filter(pc.invert(taken)), sources.filter(pc.invert(taken))

    # -------------------------------------------------------------------------------------------- result

    def found(self, transaction: Transaction, files: pa.Table) -> _Found:
        plan = self.plan
        deletes = pa.array(
            [n for n, each in (*plan.matched, *plan.by_source) if each.clause.action == "delete"], pa.int32()
        )
        every, updated, deleted = [], [], []
        changed = [pa.schema([("clause", pa.int32()), ("source", pa.int64())]).empty_table()]
        counts: dict[int, int] = {}
        whole, partly = list[int](), list[int]()
        for number in sorted(self.outcomes):
            read, found = self.read[number], pa.concat_tables(self.outcomes[number]).sort_by("position")
            is_delete = pc.is_in(found["clause"], value_set=deletes)
            old, gone = found.filter(pc.invert(is_delete)), found.filter(is_delete)
            match = rewrite.FileMatch(read.file, read.end, read.deleted, rewrite.bitmap(found["position"]))
            every.append(match)
            (partly if match.kept else whole).append(number)
            if old.num_rows:
                changed.append(old.select(["clause", "source"]))
                updated.append(rewrite.FileMatch(read.file, read.end, read.deleted, rewrite.bitmap(old["position"])))
            if gone.num_rows:
                deleted.append(rewrite.FileMatch(read.file, read.end, read.deleted, rewrite.bitmap(gone["position"])))
            for each in found["clause"].value_counts():
                clause = each["values"].as_py()
                counts[clause] = counts.get(clause, 0) + each["counts"].as_py()
        rows = sum(len(each.matched) for each in every)
        deletion = rewrite.Deletion(
            files.take(pa.array(whole, pa.int64())),
            files.take(pa.array(partly, pa.int64())),
            [each for each in every if each.kept],
            rows,
            rewrite.has_vectors(transaction),
            False,
        )
        return _Found(deletion, updated, deleted, pa.concat_tables(changed), counts, list(self._inserts()))

    def _inserts(self) -> Iterator[tuple[CompiledClause, Any]]:
        source = self.plan.source.rows
        rows = row_numbers(source.num_rows)
        if self.used is not None:
            rows = rows.filter(pc.invert(pc.is_in(rows, value_set=self.used)))
        for clause in self.plan.inserting:
            taken = pa.repeat(True, len(rows))
            if clause.condition is not None and len(rows):
                taken = pc.fill_null(matches(clause.condition, source.take(rows)), FALSE)
            yield clause, rows.filter(taken)
            rows = rows.filter(pc.invert(taken))


def _ambiguous(plan: _Plan, block: pa.Table, rows: Any, sources: Any) -> CallError:
    counted = rows.value_counts()
    several = counted.filter(pc.greater(counted.field("counts"), 1))
    row, count = several[0]["values"].as_py(), several[0]["counts"].as_py()
    example = {name.split(".", 1)[1]: block.column(name)[row].as_py() for name in block.schema.names}
    return CallError(
        f"{count} rows of the source match one row of the table, for example that with {example}, and it could be "
        "changed in several ways. Nothing was committed. Keep one row of the source for each key before the merge, or "
        "make the predicate match only one."
    )
