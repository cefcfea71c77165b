"""MERGE on Spark's executors. The source is computed once. A first join finds the rows that change, and detects rows
with several matches. After that, one job with more joins writes the new rows. No row reaches the driver.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading import pruning
from spark_ext.reading.read_versions import reads_of
from spark_ext.reading.scan import FILE, OUTCOME, ROW, STAYS, ExtraColumns
from spark_ext.reading.table_columns import named, quoted
from spark_ext.results import WriteResult
from spark_ext.rows import rewritten_rows, row_positions
from spark_ext.rows.changed_files import CHANGE_TYPE, ChangedFiles
from spark_ext.rows.delete_update import Removal, Rows, committed, new_values, not_committed
from spark_ext.rows.merge_clauses import Clause, Group, Merge
from spark_ext.rows.row_positions import MARK
from spark_ext.session.jobs import cancelled_with_its_caller, lost_session_explained
from spark_ext.types import from_spark, without_void
from spark_ext.writing.assignments import Assignments, NewValues, Path, as_column, changed, parts_of, targets
from spark_ext.writing.casts import Missing
from spark_ext.writing.data_schema import check_unique, stored_schema
from spark_ext.writing.job_files import rows_of
from spark_ext.writing.row_count import RowCount, SumOfCounts, counts_are_not_sent
from spark_ext.writing.write_options import WriteRequest
from spark_ext.writing.write_plan import record_transaction

_IN_SOURCE, _MATCHES, _CHOSEN = "__deltalog_in_source", "__deltalog_matches", "__deltalog_chosen"
# Copies of the columns of both sides, each under a name that the other side cannot contain.
_SOURCE, _TARGET = "__deltalog_source_{}", "__deltalog_target_{}"
# The types of keys whose minimum and maximum in the source are used to limit which rows of the table can match.
_BOUNDED = frozenset(["byte", "short", "integer", "long", "date"])


def merge(spark: SparkSession, table: deltalog.DeltaTable, asked: Merge, alias: str | None) -> WriteResult:
    """Execute a merge. Raises and costs as ``DeltaMergeBuilder.execute``."""
    asked.check()
    with lost_session_explained(table.url):
        request = WriteRequest(mode="append").with_defaults_of(spark)
        transaction = table.transaction(reads=reads_of(asked.source, table))
        keys = _keys(transaction, asked, alias)
    with transaction, _materialised(asked.source, [key for _, key in keys]) as (num_source_rows, bounds):
        with lost_session_explained(table.url):
            recorded = record_transaction(request, transaction)
            if recorded is not None:
                return not_committed(transaction, recorded)
            within = _within([key for key, _ in keys], bounds)
            plan = _Plan.of(spark, table, transaction, asked, alias, request, within)
            plan.check()
            found = plan.found()
        with plan.files.removed_on_errors():
            with lost_session_explained(table.url):
                metrics = plan.stage(found, num_source_rows)
                is_changed = transaction.staged.adds or transaction.staged.removes or plan.files.changes_columns
                if not is_changed and "txnAppId" not in request.options:
                    transaction.abort()
                    return not_committed(transaction, "no row changes")
            rows = metrics["numTargetRowsInserted"] + metrics["numTargetRowsUpdated"]
            return committed(spark, request, transaction, "MERGE", asked.parameters, metrics, plan.files, rows)


@contextlib.contextmanager
def _materialised(source: DataFrame, keys: Sequence[str]) -> Iterator[tuple[int, Sequence[tuple[Any, Any]]]]:
    """Persist the source, which is used several times. Yields the number of rows of the source, and the minimum and
    maximum of each of the source's columns in ``keys``."""
    level = source.storageLevel
    is_cached = level.useMemory or level.useDisk
    if not is_cached:
        source.persist()
    try:
        bounds = [bound(named(key)) for key in keys for bound in (F.min, F.max)]
        counted = source.agg(F.count(F.lit(1)), *bounds)
        found = list(cancelled_with_its_caller(source.sparkSession, counted.collect)[0])
        yield int(found[0]), list(zip(found[1::2], found[2::2], strict=True))
    finally:
        if not is_cached:
            with contextlib.suppress(Exception):  # the session may have ended
                source.unpersist()


@dataclass(frozen=True)
class _Found:
    """The rows of the table that the merge changes."""

    #: Removes all the given rows from their files.
    removal: Removal
    #: The positions of the changing rows, by clause and file.
    by_clause: Mapping[int, Mapping[int, BitMap64]]
    #: The positions, by file, of the rows that a source row matches; None if no clause needed them.
    matched: Mapping[int, BitMap64] | None
    #: For each clause, a digest of the rows to which it applies.
    digests: Mapping[int, int]

    def marks(self, *numbers: int) -> tuple[int, int]:
        """The number of rows to which these clauses apply, and a digest of those rows."""
        return sum(map(self.count, numbers)), reduce(operator.xor, (self.digests.get(each, 0) for each in numbers), 0)

    def count(self, number: int) -> int:
        return sum(len(rows) for rows in self.by_clause.get(number, {}).values())


class _Parts:
    """Several sets of new rows. One job writes all sets and counts the rows of each set separately."""

    def __init__(self, files: ChangedFiles, extra: Sequence[str]) -> None:
        self._files, self._extra = files, extra
        self._parts: list[tuple[DataFrame, int | None, tuple[int, int] | None]] = []

    def add(self, rows: DataFrame, num_rows: int | None, marks: tuple[int, int] | None = None) -> None:
        """Add rows of one kind. ``num_rows``: the expected number; None if not known. ``marks``: the expected number
        and digest of the changed rows, if ``rows`` have the column MARK."""
        self._parts.append((rows, num_rows, marks))

    def write(self) -> tuple[int, int]:
        """Write all rows. Returns the number of files, and the total number of rows in those sets for which ``add`` was
        given no ``num_rows``. Raises as ``ChangedFiles.write``, and RowCountError if the number of rows of a kind
        differs."""
        if not self._parts:
            return 0, 0
        spark = self._parts[0][0].sparkSession
        known = sum(expected for _, expected, _ in self._parts if expected is not None)
        is_known = all(expected is not None for _, expected, _ in self._parts)
        if counts_are_not_sent(spark):
            files, rows = 0, 0
            for frame, expected, _ in self._parts:
                adds = self._files.write(frame, expected, self._extra)
                files, rows = files + len(adds), rows + (sum(map(rows_of, adds)) if expected is None else 0)
            return files, rows
        counts = [RowCount(None if marks is None else MARK) for _, _, marks in self._parts]
        counted = [count.observe(frame) for count, (frame, _, _) in zip(counts, self._parts, strict=True)]
        total = known if is_known else None
        adds = self._files.write(reduce(DataFrame.union, counted), total, self._extra, count=SumOfCounts(counts))
        written = sum(map(rows_of, adds))
        for count, (_, expected, marks) in zip(counts, self._parts, strict=True):
            self._files.check_count(expected, count.rows(spark, None))
            if marks is not None:
                self._files.check_found(marks, count)
        return len(adds), written - known


@dataclass
class _Plan:
    """The plan of a merge into one version of the table."""

    asked: Merge
    rows: Rows
    files: ChangedFiles
    #: The source, to which copies of its columns are appended (named by _SOURCE).
    source: DataFrame
    condition: Column
    evolves: bool
    #: Whether a second evaluation of the conditions is certain to select the same rows: ``Rows.can_select_again``.
    is_again: bool

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        table: deltalog.DeltaTable,
        transaction: deltalog.Transaction,
        asked: Merge,
        alias: str | None,
        request: WriteRequest,
        bounds: deltalog.Predicate | None,
    ) -> _Plan:
        given = stored_schema(from_spark(without_void(asked.source.schema)))
        check_unique(given)
        evolves = asked.evolves or bool(request.options.get("mergeSchema"))
        if evolves:
            _evolve(transaction, given, asked, alias)
        files = ChangedFiles(transaction, request, table.url)
        snapshot = transaction.snapshot
        assert snapshot is not None
        rows = Rows.of(spark, table, transaction, alias, _where(snapshot, asked, alias, bounds))
        own = [named(name).alias(_SOURCE.format(n)) for n, name in enumerate(asked.source.columns)]
        source = asked.source.select("*", *own, F.lit(True).alias(_IN_SOURCE))
        condition = as_column(asked.condition, "The condition of a merge")
        is_again = rows.can_select_again([asked.condition, *(clause.condition for clause in asked.clauses)])
        return cls(asked, rows, files, source, condition, evolves, is_again)

    def check(self) -> None:
        """Raise an error for a condition or a new value that Spark cannot resolve from the columns available to its
        clause, and for a new value that does not fit its column. Without this check, such a merge would succeed as long
        as the clause applies to no row."""
        target = self._with_copies(self.rows.nothing())
        both = target.join(self.source, self.condition, "inner")
        groups: Sequence[tuple[Group, DataFrame]] = (
            ("matched", both),
            ("not matched by source", target),
            ("not matched", self.source),
        )
        both.schema  # noqa: B018 - this access resolves the condition, also over Spark Connect
        for group, rows in groups:
            clauses = self.asked.clauses_of(group)
            if any(clause.condition is not None for _, clause in clauses):
                rows.select(self._number(group)).schema  # noqa: B018
            for _, clause in clauses:
                if clause.action == "update":
                    new = new_values(rows, self.files, self._sets(clause), (), self._target_column)
                    self.files.new_rows(new, (), is_inserted=False)
                elif clause.action == "insert":
                    self._new_rows(rows, clause, ())

    # ------------------------------------------------------------------------------------------------ finding

    def found(self) -> _Found:
        """Find the table's rows that the merge changes. Raises CallError if several source rows match one of them."""
        changing = [*self.asked.clauses_of("matched"), *self.asked.clauses_of("not matched by source")]
        by_clause: dict[int, dict[int, BitMap64]] = {}
        digests: Mapping[int, int] = {}
        is_searched = bool(changing and self.rows.entries)
        self.rows.removal({}, adds_only=not changing)  # refuses an append-only table
        if is_searched:
            outcomes = self._outcomes(bool(self.asked.clauses_of("not matched by source")))
            by_clause, digests = dict(outcomes.rows), outcomes.digests
        unchanged = by_clause.pop(STAYS, {})
        every = _together(by_clause.values())
        matched = [by_clause.get(number, {}) for number, _ in self.asked.clauses_of("matched")]
        return _Found(
            self.rows.removal(every, adds_only=not changing),
            by_clause,
            _together([*matched, unchanged]) if is_searched else None,
            digests,
        )

    def _outcomes(self, by_source: bool) -> row_positions.Found:
        """The rows to which each clause applies and, if rows are inserted, also the matched rows to which no clause
        applies."""
        target = self._with_copies(self.rows.read(self.rows.entries, ExtraColumns(positions=True)))
        both = target.join(self.source, self.condition, "left" if by_source else "inner")
        is_matched = named(_IN_SOURCE).isNotNull()
        counted = (
            self._with_outcomes(both, [FILE, ROW, _IN_SOURCE])
            .select(FILE, ROW, OUTCOME, is_matched.cast("int").alias(_MATCHES))
            .groupBy(FILE, ROW)
            .agg(F.max(OUTCOME).alias(OUTCOME), F.sum(_MATCHES).alias(_MATCHES))
        )
        several = None if self.asked.may_match_several else F.expr(f"sum(if({_MATCHES} > 1, 1, 0))")
        least = 1 if self.asked.clauses_of("not matched") else 2
        is_relevant = (named(OUTCOME) != STAYS) | (named(_MATCHES) >= least)
        found = row_positions.outcomes(counted.where(is_relevant), self.rows.entries, several)
        if found.num_faults:
            raise deltalog.CallError(
                f"Several rows of the source match one row of the table, for {found.num_faults} rows, so the result "
                "would be ambiguous. Nothing was committed. Keep one row of the source per key before the merge, or "
                "make the condition match only one."
            )
        return found

    def _with_outcomes(
        self, both: DataFrame, carried: Sequence[str], values: Mapping[int, NewValues] | None = None
    ) -> DataFrame:
        """The rows of the table, with copied columns, left-joined with the source, and with the column OUTCOME: the
        number of the clause that applies. If there are clauses for rows not matched by the source, the rows have the
        columns that ``_alone`` returns, and OUTCOME."""
        chosen = F.when(named(_IN_SOURCE).isNotNull(), self._number("matched")).alias(_CHOSEN)
        rows, others = both.select("*", chosen), F.lit(STAYS)
        if self.asked.clauses_of("not matched by source"):
            rows = self._alone(rows, _CHOSEN, carried, values or {})
            others = self._number("not matched by source")
        return rows.select("*", F.coalesce(named(_CHOSEN), others).alias(OUTCOME))

    def _alone(
        self, both: DataFrame, outcome: str, carried: Sequence[str], values: Mapping[int, NewValues]
    ) -> DataFrame:
        """Rows of a join with the source, with only the table's columns visible, as in clauses for rows not matched by
        the source. The result also has the copies of the target's columns, the columns ``outcome`` and ``carried``, and
        the new values in ``values``, which are keyed by outcome."""
        copies = [_TARGET.format(n) for n in range(len(self.rows.layout.schema.names))]
        own = [named(copy).alias(name) for copy, name in zip(copies, self.rows.layout.schema.names, strict=True)]
        new = [value for number, each in values.items() for value in each.named(named(outcome) == number)]
        rows = both.select(*own, *copies, outcome, *map(quoted, carried), *new)
        return rows if self.rows.alias is None else rows.alias(self.rows.alias)

    def _number(self, group: Group) -> Column:
        """The number of the first clause of a group whose condition is true; STAYS if none is."""
        chosen = F.lit(STAYS)
        for number, clause in reversed(self.asked.clauses_of(group)):
            if clause.condition is None:
                chosen = F.lit(number)
            else:
                applies = as_column(clause.condition, "The condition of a clause")
                chosen = F.when(applies, F.lit(number)).otherwise(chosen)
        return chosen

    # ------------------------------------------------------------------------------------------------ staging

    def stage(self, found: _Found, num_source_rows: int) -> dict[str, int]:
        """Stage the removal of old rows and write the new ones. Returns the operation metrics, as delta-spark names
        them."""
        removal, tracked = found.removal, found.removal.tracked
        effect = removal.found.stage() if not removal.found.is_empty else {}
        feed, moved = removal.found.has_change_feed, removal.found.num_moved_rows
        parts = _Parts(self.files, [*tracked, *([CHANGE_TYPE] if feed else [])])
        updates = [number for number, clause in enumerate(self.asked.clauses) if clause.action == "update"]
        updates = [number for number in updates if found.count(number)]
        rewritten = self._rewritten(found, updates) if moved and not feed else None
        if rewritten is not None:
            marks = found.marks(*updates) if self._is_selected_again(found) else None
            parts.add(rewritten, sum(map(found.count, updates)) + moved, marks)
        for number in updates if rewritten is None else ():
            is_again = self._is_selected_again(found) and self.asked.clauses[number].group == "matched"
            rows = self._marked(self._updated(found, number, is_again), "update_postimage", feed)
            parts.add(rows, found.count(number), found.marks(number) if is_again else None)
        for number, clause in self.asked.clauses_of("not matched"):
            parts.add(self._marked(self._inserted(found, number, clause), "insert", feed), None)
        if moved and feed:
            self.files.write(self.files.old_rows(removal.kept(), tracked), moved, tracked)
        elif moved and rewritten is None:
            parts.add(self.files.old_rows(removal.kept(), tracked), moved)
        num_new_files, inserted = parts.write()
        change_files = num_new_files if feed else 0
        if feed and not removal.found.is_empty:
            change_files += len(self._old_rows_as_changes(found))
        return self._metrics(found, effect, num_source_rows, inserted, change_files)

    @staticmethod
    def _marked(rows: DataFrame, kind: str, feed: bool) -> DataFrame:
        return rows.withColumn(CHANGE_TYPE, F.lit(kind)) if feed else rows

    def _is_selected_again(self, found: _Found) -> bool:
        """Whether the rows to change are selected by evaluating the conditions a second time. Selecting these rows by
        their positions would take two more joins. The digest verifies that the second evaluation selects the same rows
        as the first."""
        return self.is_again and not found.removal.tracked

    def _updated(self, found: _Found, number: int, is_again: bool) -> DataFrame:
        """The rows that an update clause writes, as files store them: the new versions of exactly the rows that were
        found for the clause. ``is_again``: these rows are selected by evaluating the conditions a second time, and have
        the column MARK."""
        removal, clause = found.removal, self.asked.clauses[number]
        tracked, mark = removal.tracked, row_positions.mark() if is_again else None
        if is_again:
            read = self._read(found.by_clause[number], ExtraColumns(positions=True))
        else:
            read = removal.at(found.by_clause[number], with_ids=True)
        both = self._with_copies(read)
        if clause.group == "matched":
            both = both.join(self.source, self.condition, "inner")
        if is_again:
            both = both.where(self._number("matched") == number)
        new = new_values(both, self.files, self._sets(clause), tracked, self._target_column, mark)
        return self.files.new_rows(new, [*tracked, *([MARK] if is_again else [])], is_inserted=False)

    def _read(self, numbers: Iterable[int], extra: ExtraColumns = ExtraColumns()) -> DataFrame:  # noqa: B008
        """All rows of the files with these numbers."""
        return self.rows.read([self.rows.entries[number] for number in sorted(numbers)], extra)

    def _rewritten(self, found: _Found, updates: Sequence[int]) -> DataFrame | None:
        """All rows of the rewritten files, both changed and unchanged, with the column names and types of the data
        files; None in the same cases as ``rewritten_rows.from_one_scan``."""
        matched = [number for number in updates if self.asked.clauses[number].group == "matched"]
        sets = {
            number: self._sets(self.asked.clauses[number]) if number in updates else None for number in found.by_clause
        }
        deleted = [number for number, of_clause in sets.items() if of_clause is None]
        # The new values of matched rows, which must be computed before _alone hides the source's columns.
        first = {number: NewValues(of_clause, number) for number in matched if (of_clause := sets[number]) is not None}
        if self._is_selected_again(found):
            files = found.removal.rewritten_files(found.by_clause, deleted)
            read = self._with_copies(self._read(files, ExtraColumns(positions=True)))
            both = read.join(self.source, self.condition, "left")
            both = self._with_outcomes(both, [FILE, ROW], first)
            first = first if self.asked.clauses_of("not matched by source") else {}
            return rewritten_rows.from_one_scan(both, self.files, sets, (), self._target_column, True, first)
        both = self._with_copies(found.removal.rewritten(found.by_clause, deleted))
        if matched:
            is_matched = named(OUTCOME).isin(matched)
            both = both.join(self.source, is_matched & self.condition, "left")
            # If a matched source row has disappeared since the first job, this filter drops its match, which the row
            # count reveals.
            both = both.where(~is_matched | named(_IN_SOURCE).isNotNull())
        tracked = found.removal.tracked
        if matched and len(matched) < len(updates):
            both = self._alone(both, OUTCOME, tracked, first)
        else:
            first = {}
        return rewritten_rows.from_one_scan(both, self.files, sets, tracked, self._target_column, False, first)

    def _with_copies(self, rows: DataFrame) -> DataFrame:
        """Rows of the table, together with copies of the table's columns (_TARGET)."""
        copies = [named(name).alias(_TARGET.format(n)) for n, name in enumerate(self.rows.layout.schema.names)]
        return rows.select("*", *copies)

    def _inserted(self, found: _Found, number: int, clause: Clause) -> DataFrame:
        """The rows that a clause inserts, in the form in which files store them."""
        others, tracked = self.source, found.removal.tracked
        files = range(len(self.rows.entries)) if found.matched is None else found.matched
        if files:
            if self.is_again:
                # A semi join first, so that only matching rows are sorted or broadcast.
                rows = self._read(files).join(self.source, self.condition, "left_semi")
            elif found.matched is None:
                rows = self._read(files)
            else:
                rows = self.rows.read(self.rows.entries_at(found.matched))
            others = self.source.join(rows, self.condition, "left_anti")
        return self._new_rows(others.where(self._number("not matched") == number), clause, tracked)

    def _new_rows(self, source: DataFrame, clause: Clause, tracked: Sequence[str]) -> DataFrame:
        """The rows that a clause inserts for source rows, in the form in which files store them."""
        sets = self._sets(clause)
        carried = [F.lit(None).cast("bigint").alias(name) for name in tracked]
        new = changed(source, self.files.schema.fields, sets, carried, self.files.url, lambda name: None)
        return self.files.new_rows(new, tracked, is_inserted=True)

    def _target_column(self, name: str) -> Column | None:
        """The column of the join with the source that contains the table column ``name``; None if the merge adds this
        column."""
        names = [each.lower() for each in self.rows.layout.schema.names]
        return named(_TARGET.format(names.index(name.lower()))) if name.lower() in names else None

    def _sets(self, clause: Clause) -> Assignments:
        if clause.sets is not None:
            found = targets(clause.sets, self.files.schema, self.rows.alias)
            if clause.action == "insert" and any(len(path) > 1 for path in found):
                raise deltalog.CallError("Inserts assign whole columns, not struct fields.")
            return Assignments(found, "null" if self.evolves else "refused")
        given = {name.lower(): named(_SOURCE.format(n)) for n, name in enumerate(self.asked.source.columns)}
        fields = self.files.schema.fields
        missing = [f.name for f in fields if f.name.lower() not in given and f.name not in self.files.rules.filled]
        if missing and not self.evolves:
            raise deltalog.CallError(
                f"The source has no column {', '.join(missing)}, which updating or inserting all columns needs. List "
                "the columns with their values, or use withSchemaEvolution()."
            )
        others: Missing = "refused"
        if self.evolves:
            others = "kept" if clause.action == "update" else "null"
        values: dict[Path, Column] = {(f.name,): given[f.name.lower()] for f in fields if f.name.lower() in given}
        return Assignments(values, others)

    def _old_rows_as_changes(self, found: _Found) -> list[deltalog.engine.AddFile]:
        """Write change data files with the old rows: update_preimage and delete."""
        removal, parts, count = found.removal, [], 0
        for action, kind in (("update", "update_preimage"), ("delete", "delete")):
            numbers = (number for number, clause in enumerate(self.asked.clauses) if clause.action == action)
            of_action = _together(found.by_clause.get(number, {}) for number in numbers)
            if of_action:
                rows = removal.at(of_action).withColumn(CHANGE_TYPE, F.lit(kind))
                parts.append(self.files.old_rows(rows, [CHANGE_TYPE]))
                count += sum(len(each) for each in of_action.values())
        return self.files.write(reduce(DataFrame.union, parts), count, [CHANGE_TYPE], as_changes=True)

    def _metrics(
        self,
        found: _Found,
        effect: Mapping[str, int],
        num_source_rows: int,
        inserted: int,
        change_files: int,
    ) -> dict[str, int]:
        groups: Sequence[Group] = ("matched", "not matched by source")
        counts = {(action, group): 0 for action in ("update", "delete") for group in groups}
        for number, clause in enumerate(self.asked.clauses):
            if clause.action != "insert":
                counts[clause.action, clause.group] += found.count(number)
        by_source: Group = "not matched by source"
        moved = found.removal.found.num_moved_rows
        updated = counts["update", "matched"] + counts["update", by_source]
        return {
            "numSourceRows": num_source_rows,
            "numTargetRowsInserted": inserted,
            "numTargetRowsUpdated": updated,
            "numTargetRowsMatchedUpdated": counts["update", "matched"],
            "numTargetRowsNotMatchedBySourceUpdated": counts["update", by_source],
            "numTargetRowsDeleted": counts["delete", "matched"] + counts["delete", by_source],
            "numTargetRowsMatchedDeleted": counts["delete", "matched"],
            "numTargetRowsNotMatchedBySourceDeleted": counts["delete", by_source],
            "numTargetRowsCopied": moved,
            "numOutputRows": inserted + updated + moved,
            "numTargetFilesAdded": self.files.num_files,
            "numTargetFilesRemoved": effect.get("numRemovedFiles", 0),
            "numTargetBytesAdded": self.files.num_bytes,
            "numTargetBytesRemoved": effect.get("numRemovedBytes", 0),
            "numTargetDeletionVectorsAdded": effect.get("numDeletionVectorsAdded", 0),
            "numTargetDeletionVectorsUpdated": effect.get("numDeletionVectorsUpdated", 0),
            "numTargetDeletionVectorsRemoved": effect.get("numDeletionVectorsRemoved", 0),
            "numTargetChangeFilesAdded": change_files,
        }


def _together(parts: Iterable[Mapping[int, BitMap64]]) -> dict[int, BitMap64]:
    """For each file number, the union of its sets of row positions."""
    union: dict[int, BitMap64] = {}
    for part in parts:
        for number, positions in part.items():
            union[number] = union.get(number, BitMap64()) | positions
    return union


def _evolve(
    transaction: deltalog.Transaction, given: deltalog.schema.StructType, asked: Merge, alias: str | None
) -> None:
    """Stage the addition of those columns and struct fields of the source that the clauses assign and that the table
    lacks. Existing columns keep their types, to which values are cast, unless type widening applies."""
    schema, paths = transaction.schema, set[Path]()
    for clause in asked.clauses:
        if clause.action == "delete" or clause.group == "not matched by source":
            continue
        if clause.sets is None:
            paths.update((name.lower(),) for name in given.names)
        else:
            names = (name for name in clause.sets if isinstance(name, str))
            paths.update(tuple(part.lower() for part in parts_of(name, alias, schema)) for name in names)
    transaction.merge_schema(_selected(given, paths), keeps_types=True)


def _selected(source: deltalog.schema.StructType, paths: Collection[Path]) -> deltalog.schema.StructType:
    """The source's columns and struct fields whose paths, in lower case, are among these paths."""
    fields = []
    for each in source.fields:
        below = [path[1:] for path in paths if path[0] == each.name.lower()]
        if () in below:
            fields.append(each)
        elif below and isinstance(each.data_type, deltalog.schema.StructType):
            inner = _selected(each.data_type, below)
            if inner.fields:
                fields.append(replace(each, data_type=inner))
    return deltalog.schema.StructType(tuple(fields))


def _where(
    snapshot: deltalog.Snapshot, asked: Merge, alias: str | None, bounds: deltalog.Predicate | None
) -> deltalog.Predicate | None:
    """A predicate for all rows of the table on which the merge depends; None if it depends on the whole table.
    ``bounds``: a predicate that is true for every table row that a source row can match."""
    parts = []
    if alias is not None and isinstance(asked.condition, str):
        on = pruning.predicate(snapshot, [asked.condition], alias, only_qualified=True)
        parts = [part for part in (on, bounds) if part is not None]
    if not parts:
        return None
    where = reduce(lambda one, other: one & other, parts)
    for _, clause in asked.clauses_of("not matched by source"):
        if not isinstance(clause.condition, str):
            return None
        more = pruning.predicate(snapshot, [clause.condition], alias)
        if more is None:
            return None
        where = where | more
    return where


def _keys(transaction: deltalog.Transaction, asked: Merge, alias: str | None) -> list[tuple[str, str]]:
    """The (table column, source column) pairs that the condition compares for equality, if their types are in
    _BOUNDED."""
    snapshot = transaction.snapshot
    assert snapshot is not None
    if alias is None or not isinstance(asked.condition, str):
        return []
    fields = stored_schema(from_spark(without_void(asked.source.schema))).fields
    types = {field.name.lower(): field.data_type for field in fields}
    if len(types) < len(fields):
        return []  # names that differ only in case are refused at a later step
    keys = []
    for own, qualifier, other in pruning.equalities(asked.condition, alias):
        if qualifier.lower() in types or snapshot.schema.find(qualifier) is not None:
            continue  # the qualified name may be a field of a struct column
        column = snapshot.schema.find(own)
        is_same = column is not None and str(column.data_type) == str(types.get(other.lower()))
        if column is not None and is_same and str(column.data_type) in _BOUNDED:
            keys.append((column.name, other))
    return keys


def _within(columns: Sequence[str], bounds: Sequence[tuple[Any, Any]]) -> deltalog.Predicate | None:
    """A predicate that is true if the table's ``columns`` are within the bounds of the source's keys."""
    parts = []
    for own, (low, high) in zip(columns, bounds, strict=True):
        if low is not None:
            key = deltalog.col(quoted(own))
            parts.append((key >= low) & (key <= high))
    return reduce(lambda one, other: one & other, parts) if parts else None
