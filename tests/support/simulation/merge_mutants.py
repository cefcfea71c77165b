"""Mutants of the merge code, which the schedules of ``row_simulation`` must detect."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from deltalog.rows.merge import builder as builder_module
from deltalog.rows.merge import condition as condition_module
from deltalog.rows.merge import merge as merge_module
from deltalog.rows.merge import row_matching as scan_module
from deltalog.rows.merge import source as source_module
from deltalog.rows.merge.clauses import CompiledClause
from deltalog.write import write_steps
from deltalog.write.row_writer import RowWriter
from deltalog.write.table_rules import NO_RULES
from deltalog.write.transaction import skipped
from tests.support.simulation.mutants import Mutant, Patch, adding_to
from tests.support.simulation.row_mutants import without_ids
from tests.support.simulation.row_simulation import run_row_schedule

# The mutants patch private attributes of these modules, so the modules are typed as Any.
merge: Any = merge_module
condition: Any = condition_module
scan: Any = scan_module
source_rows: Any = source_module
merge_builder: Any = builder_module
MERGES = {"append": 2, "merge": 4}

MUTANTS: list[Mutant] = []

mutant = adding_to(MUTANTS, run_row_schedule)


def _change_plan(patch: Patch, **changes: Any) -> None:
    """Change fields of the merge plan; each function in ``changes`` computes a field from the real plan."""
    real = merge._Plan.compile

    def compile_plan(*given: Any) -> Any:
        plan = real(*given)
        return dataclasses.replace(plan, **{name: change(plan) for name, change in changes.items()})

    patch.setattr(merge._Plan, "compile", compile_plan)


def _skip_row_count_check(patch: Patch) -> None:
    """Skip the check that compares the rows written with the rows found."""
    real = RowWriter.write_updates
    patch.setattr(RowWriter, "write_updates", lambda self, rows, _, rules: real(self, rows, None, rules))


def _change_found(patch: Patch, change: Any) -> None:
    """Make merges stage ``change(found)`` instead of ``found``, the rows that they found."""
    real = scan.TargetScan.result
    patch.setattr(scan.TargetScan, "result", lambda self, *given: change(real(self, *given)))


# ---------------------------------------------------------------------------- mutants of the reads of a merge


@mutant("R1", kinds=MERGES, writers=3)
def inserts_without_having_read_the_keys(patch: Patch) -> None:
    """A merge that only inserts rows is treated like an append: it does not declare what it read."""
    real = merge._Plan.find_rows

    def unread(self: Any, transaction: Any) -> Any:
        found = real(self, transaction)
        if found.deletion.is_empty:
            transaction.staged._predicates.clear()
        return found

    patch.setattr(merge._Plan, "find_rows", unread)


@mutant("R1", kinds=MERGES, writers=3)
def reads_by_the_keys_though_rows_without_a_source_count(patch: Patch) -> None:
    patch.setattr(merge._Plan, "_where", lambda self: self.sides.condition.on_target(self.sides.source.values))


@mutant("R1", kinds=MERGES)
def excludes_files_by_the_least_key_alone(patch: Patch) -> None:
    real = condition._values_of_key

    def values(key: Any, values: Any, schema: Any) -> Any:
        return real(key, dataclasses.replace(values, found=values.found.slice(0, 1)), schema)

    patch.setattr(condition, "_values_of_key", values)


# ---------------------------------------------------------------------------------------------- what matches


@mutant("R1", kinds=MERGES)
def takes_any_of_several_rows_of_the_source(patch: Patch) -> None:
    patch.setattr(scan.Sides, "may_match_several", property(lambda self: True))


@mutant("R1", kinds=MERGES)
def lets_a_later_clause_decide_again(patch: Patch) -> None:
    real = scan.TargetScan._decided

    def decided(self: Any, block: Any, rows: Any, sources: Any, clauses: Any) -> Any:
        return real(self, block, rows, sources, list(reversed(clauses)))

    patch.setattr(scan.TargetScan, "_decided", decided)


@mutant("R1", kinds=MERGES)
def inserts_rows_of_the_source_that_only_some_blocks_lack(patch: Patch) -> None:
    """In this mutant a merge forgets the matches of earlier blocks of target rows, and each block is one batch."""
    real = scan.TargetScan._matches

    def matches(self: Any, *given: Any) -> Any:
        self.used = scan.BitMap64()
        return real(self, *given)

    patch.setattr(scan.TargetScan, "_matches", matches)
    patch.setattr(scan, "_BLOCK_ROWS", 1)


@mutant("R1", kinds=MERGES)
def takes_a_condition_without_a_verdict_for_true(patch: Patch) -> None:
    patch.setattr(scan, "FALSE", pa.scalar(True))


@mutant("R1", kinds=MERGES)
def matches_null_keys(patch: Patch) -> None:
    real = condition.key_columns

    def columns(keys: Any, sides: Any, rows: Any) -> Any:
        return real([dataclasses.replace(key, null_safe=True) for key in keys], sides, rows)

    patch.setattr(condition, "key_columns", columns)
    patch.setattr(source_rows, "key_columns", columns)
    patch.setattr(condition, "_values_of_key", lambda *given: None)


@mutant("R1", kinds=MERGES)
def leaves_rows_alone_that_no_row_of_the_source_matches(patch: Patch) -> None:
    _change_plan(patch, sides=lambda plan: dataclasses.replace(plan.sides, by_source=[]))


# --------------------------------------------------------------------------------------------- what is staged


@mutant("R1", kinds=MERGES)
def mixes_up_the_rows_of_the_source(patch: Patch) -> None:
    def reverse(found: Any) -> Any:
        source = pa.array(found.changed.column("source").to_pylist()[::-1], pa.int64())
        known = pc.fill_null(source, 0)
        return dataclasses.replace(found, changed=found.changed.set_column(1, "source", known))

    _change_found(patch, reverse)


@mutant("R1", kinds=MERGES)
def leaves_the_old_rows_of_updates(patch: Patch) -> None:
    """The mutant affects files in which all rows change."""

    def keep(found: Any) -> Any:
        deletion = dataclasses.replace(found.deletion, whole=found.deletion.whole.slice(0, 0))
        return dataclasses.replace(found, deletion=deletion)

    _change_found(patch, keep)
    _skip_row_count_check(patch)


@mutant("R1", kinds=MERGES, features=[])
def loses_the_other_rows_of_rewritten_files(patch: Patch) -> None:
    real = merge.matched_rows.moved_rows

    def without_kept(snapshot: Any, changes: Any, *given: Any) -> Any:
        return real(snapshot, [dataclasses.replace(each, kept=BitMap64()) for each in changes], *given)

    patch.setattr(merge.matched_rows, "moved_rows", without_kept)
    _skip_row_count_check(patch)


@mutant("R2", kinds={"merge": 3, "add constraint": 2})
def merges_rows_past_a_constraint(patch: Patch) -> None:
    for name in ("updated", "inserted"):
        real = getattr(CompiledClause, name)

        def unruled(self: Any, *given: Any, _real: Any = real) -> Any:
            return _real(self, *given[:-1], NO_RULES)

        patch.setattr(CompiledClause, name, unruled)


@mutant("R3", features=["row ids"], kinds=MERGES)
def leaves_merged_rows_the_version_that_added_them(patch: Patch) -> None:
    _change_plan(patch, commit_versions=lambda plan: None)


@mutant("R3", features=["row ids"], kinds=MERGES)
def gives_merged_rows_new_ids(patch: Patch) -> None:
    without_ids(patch)


@mutant("R4", features=["changes"], kinds=MERGES)
def does_not_tell_of_inserted_rows(patch: Patch) -> None:
    real = merge._Plan._changes

    def changes(self: Any, *given: Any) -> Any:
        return ((kind, batch) for kind, batch in real(self, *given) if kind != "insert")

    patch.setattr(merge._Plan, "_changes", changes)


@mutant("R4", features=["changes", "vectors"], kinds=MERGES)
def leaves_a_merge_to_the_vectors_for_change_readers(patch: Patch) -> None:
    patch.setattr(merge.rewrite, "has_change_data_feed", lambda transaction: False)


@mutant("R6", kinds=MERGES)
def does_not_record_a_merge_that_found_nothing_to_do(patch: Patch) -> None:
    real = merge_builder.merge

    def merged(transaction: Any, asked: Any, user_metadata: Any, txn: Any) -> Any:
        if (
            not write_steps.is_recorded(transaction, txn)
            and merge._Plan.compile(transaction, asked).find_rows(transaction).is_empty
        ):
            return skipped(transaction)
        return real(transaction, asked, user_metadata, txn)

    patch.setattr(merge_builder, "merge", merged)


@mutant("R6", kinds=MERGES)
def refuses_rows_that_several_could_match_whatever_the_clauses(patch: Patch) -> None:
    patch.setattr(scan.Sides, "may_match_several", property(lambda self: False))
