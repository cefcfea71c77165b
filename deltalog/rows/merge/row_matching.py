"""Finds the rows that a merge changes: joins the target to the source block by block, or by hash partition if the
source's keys do not fit in memory.

Spec: PROTOCOL.md#deletion-vectors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from deltalog.arrow_arrays import FALSE, combined, row_numbers, uint64s
from deltalog.errors import CallError
from deltalog.expressions.evaluate import matches
from deltalog.expressions.relations import Relation
from deltalog.lazy_arrow import pc
from deltalog.rows import rewrite
from deltalog.rows.matched_rows import FileChange, FileMatch, ScannedBatch, bitmap, in_range, partition_of
from deltalog.rows.merge.chunked_rows import partition_numbers
from deltalog.rows.merge.clauses import CompiledClause
from deltalog.rows.merge.condition import MergeCondition, side_by_side
from deltalog.rows.merge.keys import SourceKeys
from deltalog.rows.merge.source import PreparedSource
from deltalog.rows.merge.spilled_rows import HashPartitions

# The numbers of target rows and bytes in a block, which is the input of one join. Each join builds a hash table of the
# source's keys; with few keys that is cheap, so smaller blocks then cost little and save memory.
_FEW_ROWS, _BLOCK_ROWS, _BLOCK_BYTES = 1 << 18, 1 << 20, 64 << 20
INSERT_ROWS = 1 << 16
_PLACE = {"file": pa.int32(), "position": pa.uint64()}  # the location of a target row
_OUTCOMES = pa.schema([*_PLACE.items(), ("clause", pa.int16()), ("source", pa.int64())])
_CHOSEN = pa.schema([("row", pa.int64()), ("clause", pa.int16()), ("source", pa.int64())])


@dataclass(frozen=True, slots=True)
class Found:
    """The rows that change. ``updated`` and ``deleted``: the files with updated or deleted rows, and the positions of
    these rows. ``changed``: the clause number and source row number of each updated row, sorted like ``updated`` (by
    partition), and within a file by position. ``inserts``: for each insert clause, the source rows that it inserts."""

    deletion: rewrite.Deletion
    updated: Sequence[FileMatch]
    deleted: Sequence[FileMatch]
    changed: pa.Table
    counts: Mapping[int, int]
    inserts: Sequence[tuple[CompiledClause, BitMap64]]

    @property
    def is_empty(self) -> bool:
        """Whether no row changes."""
        return self.deletion.is_empty and not self.num_inserted

    @property
    def num_inserted(self) -> int:
        """The number of rows that are inserted."""
        return sum(len(rows) for _, rows in self.inserts)

    @property
    def no_files(self) -> pa.Table:
        """An empty table of files."""
        return self.deletion.whole.slice(0, 0)

    def changes(self) -> list[FileChange]:
        """The rows of each file that are written to new files: updated rows and, if deletion vectors are not used, the
        unchanged rows."""
        moved = {} if self.deletion.by_vectors else {each.file.path: each for each in self.deletion.matches}
        changes, at = list[FileChange](), 0
        for each in self.updated:
            kept = moved.pop(each.file.path).kept if each.file.path in moved else BitMap64()
            changes.append(FileChange(each.file, kept, each.matched, each.rows, at))
            at += len(each.matched)
        return changes + [FileChange(each.file, each.kept, BitMap64(), each.rows) for each in moved.values()]


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a merge, the condition that decides which rows match, and the clauses with their numbers."""

    source: PreparedSource
    target: Relation
    condition: MergeCondition
    matched: Sequence[tuple[int, CompiledClause]]
    by_source: Sequence[tuple[int, CompiledClause]]
    inserting: Sequence[CompiledClause]

    @property
    def may_match_several(self) -> bool:
        """Whether a target row may match several source rows. Several matches are allowed if matched rows are kept
        unchanged or are deleted unconditionally, because no source value is used then."""
        if not self.matched:
            return True
        only = self.matched[0][1]
        return len(self.matched) == 1 and only.clause.action == "delete" and only.condition is None

    @property
    def columns(self) -> list[str]:
        """The target columns that the conditions use; at least one column."""
        used = self.condition.columns.union(*(each.columns for _, each in (*self.matched, *self.by_source)))
        names = [name for name in self.target.schema.names if self.target.flat(name) in used]
        return names or self.target.schema.names[:1]


@dataclass(slots=True)
class TargetScan:
    """Joins the target to the source, and collects the rows to change. Memory: a block of the target with the row pairs
    found for it, the keys of the source or of one partition, and 22 bytes for each changed row."""

    sides: Sides
    batches: list[ScannedBatch] = field(default_factory=list)
    held_rows: int = 0
    held_bytes: int = 0
    read: dict[int, ScannedBatch] = field(default_factory=dict)  # the last batch of each file
    outcomes: list[pa.Table] = field(default_factory=lambda: [_OUTCOMES.empty_table()])
    spilled: HashPartitions | None = None
    used: BitMap64 = field(default_factory=BitMap64)  # row numbers of the source rows that matched

    def add(self, batches: Iterable[ScannedBatch]) -> None:
        """Join the rows of the target: all batches of all files, in order."""
        keys = self.sides.source.keys
        most = min(_BLOCK_ROWS, max(_FEW_ROWS, 4 * keys.num_rows)) if isinstance(keys, SourceKeys) else _BLOCK_ROWS
        for batch in batches:
            self.read[batch.number] = batch.without_rows()
            if batch.rows.num_rows:
                self.batches.append(batch)
                self.held_rows += batch.rows.num_rows
                self.held_bytes += batch.rows.nbytes
            if self.held_rows >= most or self.held_bytes >= _BLOCK_BYTES:
                self._take_block()
        self._take_block()
        if self.spilled is not None:
            for number in range(self.spilled.count):
                self._join_partition(self.spilled, number)

    def _take_block(self) -> None:
        batches, self.batches, self.held_rows, self.held_bytes = self.batches, [], 0, 0
        if not batches:
            return
        block = self.sides.target.flat_table(pa.Table.from_batches([each.rows for each in batches]))
        keys = self.sides.source.keys
        if isinstance(keys, SourceKeys):
            self._join(block, lambda rows: _places(batches, rows), keys)
            return
        numbers = partition_numbers(self.sides.condition.target_keys(block), keys.count)
        places = _places(batches, row_numbers(block.num_rows))
        for name, values in zip(_PLACE, places, strict=True):
            block = block.append_column(name, values)
        self.spilled = self.spilled or HashPartitions(block.schema, keys.count)
        self.spilled.add(block, numbers)

    def _join_partition(self, spilled: HashPartitions, number: int) -> None:
        keys = self.sides.source.keys_of(number)
        held, held_rows, held_bytes = list[pa.RecordBatch](), 0, 0

        def join() -> None:
            rows = pa.Table.from_batches(held, schema=spilled.schema)
            places = rows.select(list(_PLACE))
            self._join(rows.drop_columns(list(_PLACE)), lambda chosen: places.take(chosen).columns, keys)

        for batch in spilled.read(number):
            held.append(batch)
            held_rows, held_bytes = held_rows + batch.num_rows, held_bytes + batch.nbytes
            if held_rows >= _BLOCK_ROWS or held_bytes >= _BLOCK_BYTES:
                join()
                held, held_rows, held_bytes = [], 0, 0
        if held:
            join()

    def _join(self, block: pa.Table, places: Callable[[Any], Sequence[Any]], keys: SourceKeys) -> None:
        """Join one block of target rows with the source, and record the outcome of each row in the block. ``places``: a
        function that returns the columns of _PLACE for the given rows of the block. ``keys``: the keys of all source
        rows that may match."""
        # Return the memory of the previous block and of the reading threads to the system.
        pa.default_memory_pool().release_unused()
        rows, sources = self._matches(block, keys)
        found = self._outcomes(block, rows, sources)
        if found.num_rows:
            where = places(combined(found.column("row")))
            columns = [*where, found.column("clause"), found.column("source")]
            self.outcomes.append(pa.Table.from_arrays(columns, schema=_OUTCOMES).combine_chunks())

    def _matches(self, block: pa.Table, keys: SourceKeys) -> tuple[Any, Any]:
        """The rows of the block that match, without duplicates, and for each of them its source row."""
        sides = self.sides
        rows, sources = [pa.array([], pa.int64())], [pa.array([], pa.int64())]
        for some, others in sides.condition.pairs(block, sides.source.rows, keys):
            rows.append(some)
            sources.append(others)
            if sides.inserting:
                self.used |= bitmap(others)
        row, source = pa.concat_arrays(rows), pa.concat_arrays(sources)
        if not sides.matched and not sides.by_source:
            return row.slice(0, 0), source.slice(0, 0)
        unique = pc.unique(row)
        if len(unique) == len(row):
            return row, source
        if not sides.may_match_several:
            raise _ambiguous(block, row)
        return unique, source.take(pc.index_in(unique, value_set=row))

    def _outcomes(self, block: pa.Table, rows: Any, sources: Any) -> pa.Table:
        """For each row of the block that changes, in row order: the clause that applies, and the source row."""
        sides = self.sides
        tables = [_CHOSEN.empty_table()]
        tables += self._decided(block, rows, sources, sides.matched)
        if sides.by_source:
            everything = row_numbers(block.num_rows)
            others = everything.filter(pc.invert(pc.is_in(everything, value_set=rows)))
            tables += self._decided(block, others, pa.nulls(len(others), pa.int64()), sides.by_source)
        return pa.concat_tables(tables).sort_by("row")

    def _decided(
        self, block: pa.Table, rows: Any, sources: Any, clauses: Sequence[tuple[int, CompiledClause]]
    ) -> Iterator[pa.Table]:
        """The first clause that applies to each row. The condition of a clause is evaluated only for rows to which no
        earlier clause applies."""
        for number, clause in clauses:
            if not len(rows):
                return
            chosen, beside = rows, sources
            if clause.condition is not None:
                if clause.clause.group == "matched":
                    both = side_by_side(block, rows, self.sides.source.rows, sources, clause.columns)
                else:
                    both = block.take(rows)
                taken = pc.fill_null(matches(clause.condition, both), FALSE)
                chosen, beside = rows.filter(taken), sources.filter(taken)
                rows, sources = rows.filter(pc.invert(taken)), sources.filter(pc.invert(taken))
            else:
                rows, sources = rows.slice(0, 0), sources.slice(0, 0)
            columns = [chosen, pa.repeat(pa.scalar(number, pa.int16()), len(chosen)), beside]
            yield pa.Table.from_arrays(columns, schema=_CHOSEN)

    # -------------------------------------------------------------------------------------------- result

    def result(self, by_vectors: bool, files: pa.Table) -> Found:
        """The rows that change. ``files``: the files that were scanned."""
        sides = self.sides
        deletes = pa.array(
            [n for n, each in (*sides.matched, *sides.by_source) if each.clause.action == "delete"], pa.int16()
        )
        every, updated, deleted = list[FileMatch](), list[FileMatch](), list[FileMatch]()
        changed = [_OUTCOMES.empty_table().select(["clause", "source"])]
        counts: dict[int, int] = {}
        whole, partly = list[int](), list[int]()
        by_partition = sorted(self._by_file(), key=lambda each: partition_of(self.read[each[0]].file))
        for number, found in by_partition:
            is_delete = pc.is_in(found["clause"], value_set=deletes)
            old, gone = found.filter(pc.invert(is_delete)), found.filter(is_delete)
            match = self._match(number, found)
            every.append(match)
            (partly if match.kept else whole).append(number)
            if old.num_rows:
                changed.append(old.select(["clause", "source"]))
                updated.append(self._match(number, old))
            if gone.num_rows:
                deleted.append(self._match(number, gone))
            for each in found["clause"].value_counts():
                clause = each["values"].as_py()
                counts[clause] = counts.get(clause, 0) + each["counts"].as_py()
        deletion = rewrite.Deletion(
            files.take(pa.array(whole, pa.int64())),
            files.take(pa.array(partly, pa.int64())),
            [each for each in every if each.kept],
            sum(len(each.matched) for each in every),
            by_vectors,
            False,
        )
        return Found(deletion, updated, deleted, pa.concat_tables(changed), counts, self._inserts())

    def _by_file(self) -> Iterator[tuple[int, pa.Table]]:
        """The outcomes for the rows of each file, ordered by position."""
        outcomes, self.outcomes = pa.concat_tables(self.outcomes).combine_chunks(), []
        if self.spilled is not None:  # without spilling, the blocks are already in this order
            outcomes = outcomes.sort_by([("file", "ascending"), ("position", "ascending")])
        runs = pc.run_end_encode(combined(outcomes.column("file")))
        start = 0
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield number, outcomes.slice(start, end - start)
            start = end

    def _match(self, number: int, found: pa.Table) -> FileMatch:
        read = self.read[number]
        return FileMatch(read.file, read.end, read.deleted, bitmap(found["position"]))

    def _inserts(self) -> list[tuple[CompiledClause, BitMap64]]:
        """For each insert clause, the unmatched source rows to which it applies and no earlier clause does."""
        rows = self.sides.source.rows.rows
        found = [(clause, BitMap64()) for clause in self.sides.inserting]
        for start in range(0, rows.num_rows if found else 0, INSERT_ROWS):
            numbers = in_range(start, min(rows.num_rows, start + INSERT_ROWS)) - self.used
            for clause, taken in found:
                if clause.condition is None:
                    taken |= numbers
                    break
                left = numbers_of(numbers)
                some = rows.slice(start, INSERT_ROWS).take(pc.subtract(left, start))
                holds = pc.fill_null(matches(clause.condition, some), FALSE)
                chosen = bitmap(left.filter(holds))
                taken |= chosen
                numbers -= chosen
        return found


def numbers_of(rows: BitMap64) -> Any:
    """The row numbers as an Arrow array."""
    return uint64s(rows.to_array()).view(pa.int64())


def _places(batches: Sequence[ScannedBatch], rows: Any) -> list[Any]:
    """The file numbers and positions of rows of a block. ``rows``: ascending row numbers in the block."""
    view = memoryview(rows.buffers()[1]).cast("q")[rows.offset : rows.offset + len(rows)]
    files, positions = [pa.array([], pa.int32())], [pa.array([], pa.uint64())]
    start = at = 0
    for batch in batches:
        end = bisect_left(view, start + batch.rows.num_rows, at)
        if end > at:
            files.append(pa.repeat(pa.scalar(batch.number, pa.int32()), end - at))
            positions.append(batch.positions_of(pc.subtract(rows.slice(at, end - at), start)))
        start, at = start + batch.rows.num_rows, end
    return [pa.concat_arrays(files), pa.concat_arrays(positions)]


def _ambiguous(block: pa.Table, rows: Any) -> CallError:
    counted = rows.value_counts()
    several = counted.filter(pc.greater(counted.field("counts"), 1))
    row, count = several[0]["values"].as_py(), several[0]["counts"].as_py()
    example = {name.split(".", 1)[1]: block.column(name)[row].as_py() for name in block.schema.names}
    return CallError(
        f"{count} rows of the source match one row of the table, for example the row with {example}, so its new "
        "values are ambiguous. Nothing was committed. Deduplicate the source by key before the merge, or make the "
        "predicate match only one row."
    )
