"""Mutants of the operations that change rows, for the schedules of ``row_simulation``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from deltalog.commit import conflicts
from deltalog.commit import loop as commit_module
from deltalog.commit.prepared import Prepared
from deltalog.expressions.bound import complement
from deltalog.read import data_skipping
from deltalog.read import scan as scan_module
from deltalog.rows import delete as delete_verb
from deltalog.rows import matched_rows as matched_rows_module
from deltalog.rows import rewrite as rewrite_module
from deltalog.rows import update as update_module
from deltalog.write import transaction as transaction_module
from deltalog.write import write_steps
from deltalog.write.row_writer import RowWriter
from deltalog.write.staged_actions import StagedActions
from deltalog.write.table_handle import TableHandle
from deltalog.write.table_rules import NO_RULES
from deltalog.write.transaction import Transaction
from tests.support.simulation.mutants import Apply, Mutant, Patch, adding_to
from tests.support.simulation.row_simulation import ROW_KINDS, run_row_schedule

# The mutants patch private attributes of these modules, so the modules are typed as Any.
commit: Any = commit_module
matched_rows: Any = matched_rows_module
rewrite: Any = rewrite_module
update: Any = update_module
delete_module: Any = delete_verb
scan: Any = scan_module
# The original functions, for mutants that change only a part of a call.
REAL_CHECK_ADDED: Any = conflicts._check_added
REAL_CHECK_REMOVED: Any = conflicts._check_removed
REAL_REBASE: Any = conflicts.rebase


MUTANTS: list[Mutant] = []

_adding = adding_to(MUTANTS, run_row_schedule)
# Mutants of merges and of optimizations are in merge_mutants and optimize_mutants.
OTHERS = {kind: often for kind, often in ROW_KINDS.items() if kind not in ("merge", "optimize")}
OTHERS |= {"move": 8, "add constraint": 5, "drop constraint": 3}


# Options that make a rare race likely: three writers that never crash and are scheduled at random.
CROWDED: Mapping[str, Any] = {"writers": 3, "policy": "random", "fault_rate": 0.0}


def mutant(*invariants: str, kinds: Mapping[str, int] = OTHERS, **options: Any) -> Callable[[Apply], Apply]:
    return _adding(*invariants, kinds=kinds, **options)


@mutant("R1", features=["write serializable"], kinds={"restore": 2, "append": 3}, writers=3)
def restores_past_appends_where_the_table_allows_that(patch: Patch) -> None:
    patch.setattr(StagedActions, "require_serializable", lambda self: None)


@mutant("R1", kinds={"append": 3, "delete": 2, "update": 2, "replace where": 2}, **CROWDED)
def forgets_what_it_looked_for(patch: Patch) -> None:
    def check(prepared: Any, winner: Any, *rest: Any) -> Any:
        reads = dataclasses.replace(prepared.reads, predicates=())
        REAL_CHECK_ADDED(dataclasses.replace(prepared, reads=reads), winner, *rest)

    patch.setattr(conflicts, "_check_added", check)


@mutant("R1", kinds={"append": 3, "delete": 2, "update": 1}, **CROWDED)
def judges_new_files_by_the_wrong_end_of_their_bounds(patch: Patch) -> None:
    real = data_skipping.prune
    patch.setattr(conflicts, "prune", lambda files, predicate, *rest: real(files, complement(predicate), *rest))


@mutant("R1", features=["vectors"], kinds={"delete": 3, "update": 2}, **CROWDED)
def masks_rows_without_those_that_a_winner_masked(patch: Patch) -> None:
    """The mutant merges deletion vectors when it plans a commit, and then accepts a file from which a winning commit
    has deleted more rows."""

    def unmasked(winner: Any) -> Any:
        masked = {add.path for add in winner.adds if add.deletion_vector is not None}
        adds, removes = ([a for a in some if a.path not in masked] for some in (winner.adds, winner.removes))
        return msgspec.structs.replace(winner, adds=adds, removes=removes)

    patch.setattr(conflicts, "_check_added", lambda ours, won, *rest: REAL_CHECK_ADDED(ours, unmasked(won), *rest))
    patch.setattr(conflicts, "_check_removed", lambda ours, won, url: REAL_CHECK_REMOVED(ours, unmasked(won), url))


@mutant("R1", kinds={"append": 1, "move": 3, "delete": 3, "update": 2}, writers=3)
def lets_moved_files_be_removed(patch: Patch) -> None:
    def check(prepared: Any, winner: Any, table: Any) -> Any:
        removes = [remove for remove in winner.removes if remove.data_change]
        REAL_CHECK_REMOVED(prepared, msgspec.structs.replace(winner, removes=removes), table)

    patch.setattr(conflicts, "_check_removed", check)


@mutant("R1", kinds={"append": 3, "replace partitions": 3}, writers=3)
def replaces_partitions_without_reading_them(patch: Patch) -> None:
    real = Transaction.replace_partitions

    @functools.wraps(real)
    def unread(self: Any) -> Any:
        try:
            return real(self)
        finally:
            self.staged._predicates.clear()

    patch.setattr(Transaction, "replace_partitions", unread)


@mutant("R1", kinds={"append": 3, "restore": 2}, writers=3)
def restores_without_reading_the_table(patch: Patch) -> None:
    patch.setattr(Transaction, "read_whole_table", lambda self: None)


@mutant(
    "R1",
    features=["write serializable"],
    kinds={"replace where": 3, "replace partitions": 2, "delete": 2, "update": 2},
    **CROWDED,
)
def calls_every_change_of_rows_a_blind_append(patch: Patch) -> None:
    patch.setattr(Prepared, "is_blind_append", property(lambda self: True))
    patch.setattr(conflicts, "_is_blind_append", lambda commit: commit.commit_info.body["isBlindAppend"])


@mutant("R3", features=["row ids"])
def gives_out_the_row_ids_of_the_first_attempt(patch: Patch) -> None:
    def rebase(prepared: Any, base: Any, *rest: Any) -> Any:
        rebased = REAL_REBASE(prepared, base, *rest)
        return dataclasses.replace(rebased, row_id_high_water_mark=base.row_id_high_water_mark)

    patch.setattr(conflicts, "rebase", rebase)


@mutant("R3", features=["row ids"])
def gives_moved_rows_new_ids(patch: Patch) -> None:
    patch.setattr(matched_rows.row_tracking, "kept_columns", lambda configuration, table: ())


@mutant("R2", kinds={"append": 3, "add constraint": 2}, writers=3)
def appends_again_without_looking_at_new_constraints(patch: Patch) -> None:
    patch.setattr(conflicts, "_constraints", lambda metadata: {})


@mutant("R3", features=["row ids later"], kinds={"delete": 3, "update": 2, "alter": 2}, writers=3)
def moves_rows_past_the_commit_that_turns_row_ids_on(patch: Patch) -> None:
    patch.setattr(Prepared, "may_move_rows", property(lambda self: False))


@mutant("R1", kinds={"append": 1, "restore": 3, "domain": 3})
def restores_past_a_change_of_domains(patch: Patch) -> None:
    patch.setattr(StagedActions, "read_all_domains", lambda self: None)


@mutant("R4", features=["changes"])
def tells_moved_rows_as_changes(patch: Patch) -> None:
    patch.setattr(rewrite, "has_change_data_feed", lambda transaction: False)


@mutant("R5", features=["vectors"])
def reads_rows_that_vectors_deleted(patch: Patch) -> None:
    real = scan._rows
    patch.setattr(scan, "_rows", lambda files: ({**row, "deletion_vector": None} for row in real(files)))


@mutant("R6", kinds={"append": 1, "delete": 3})
def does_not_record_a_run_that_found_nothing_to_do(patch: Patch) -> None:
    real = delete_module.delete

    def delete(transaction: Any, where: Any, user_metadata: Any, txn: Any) -> Any:
        if not write_steps.is_recorded(transaction, txn) and rewrite.plan(transaction, where).is_empty:
            return transaction_module.skipped(transaction)
        return real(transaction, where, user_metadata, txn)

    patch.setattr(delete_module, "delete", delete)


@mutant("R6")
def plans_on_what_it_remembers(patch: Patch) -> None:
    real = TableHandle.transaction

    def remembered(self: Any, *given: Any, **options: Any) -> Any:
        found = real(self, *given, **options)
        found._snapshot = self._first = getattr(self, "_first", None) or found.snapshot
        found.metadata_changes.start_from(self._first.log)
        return found

    patch.setattr(TableHandle, "transaction", remembered)


UPDATES = {"append": 1, "update": 3}


def _change_update(patch: Patch, change: Any) -> None:
    """Patch the planner of updates, so that it returns ``change(plan)`` instead of ``plan``."""
    real = update._RowUpdate.compile
    patch.setattr(update._RowUpdate, "compile", lambda *given: change(real(*given)))


def without_ids(patch: Patch) -> None:
    """Write changed rows without the columns that contain materialized row ids."""
    real = matched_rows.moved_rows

    def moved(snapshot: Any, changes: Any, new_rows: Any = None, *given: Any) -> Any:
        def new(*old: Any) -> Any:
            return (batch.select(snapshot.schema.names) for batch in new_rows(*old))

        return real(snapshot, changes, new_rows and new, *given)

    patch.setattr(matched_rows, "moved_rows", moved)


def _skip_row_count_check(patch: Patch) -> None:
    """Skip the check that compares the number of rows written with the number of rows found."""
    real = RowWriter.write_copies
    patch.setattr(RowWriter, "write_copies", lambda self, rows, _: real(self, rows, None))


@mutant("R1", kinds=UPDATES)
def updates_all_rows_of_a_file(patch: Patch) -> None:
    real = rewrite.plan

    def plan(transaction: Any, where: Any) -> Any:
        found = real(transaction, where)
        matches = [dataclasses.replace(each, matched=each.matched | each.kept) for each in found.matches]
        return dataclasses.replace(found, matches=matches)

    patch.setattr(rewrite, "plan", plan)
    _skip_row_count_check(patch)


@mutant("R1", kinds=UPDATES)
def leaves_the_rows_of_whole_files_out_of_an_update(patch: Patch) -> None:
    real = matched_rows.moved_rows

    def of_parts(snapshot: Any, changes: Any, *given: Any) -> Any:
        return real(snapshot, [each for each in changes if each.changed is not None], *given)

    patch.setattr(matched_rows, "moved_rows", of_parts)
    _skip_row_count_check(patch)


@mutant("R2", kinds={"update": 3, "add constraint": 2})
def updates_rows_past_a_constraint(patch: Patch) -> None:
    _change_update(patch, lambda found: dataclasses.replace(found, rules=NO_RULES))


@mutant("R3", features=["row ids"], kinds=UPDATES)
def leaves_updated_rows_the_version_that_added_them(patch: Patch) -> None:
    _change_update(patch, lambda found: dataclasses.replace(found, commit_versions=None))


@mutant("R3", features=["row ids"], kinds=UPDATES)
def gives_updated_rows_new_ids(patch: Patch) -> None:
    without_ids(patch)


@mutant("R4", features=["changes"], kinds=UPDATES)
def tells_the_old_row_of_an_update_twice(patch: Patch) -> None:
    def changes(self: Any, batches: Any) -> Any:
        for batch in batches:
            yield "update_preimage", batch
            yield "update_postimage", batch

    patch.setattr(update._RowUpdate, "changes", changes)


@mutant("R4", features=["changes", "vectors"], kinds=UPDATES)
def leaves_an_update_to_the_vectors_for_change_readers(patch: Patch) -> None:
    patch.setattr(rewrite, "has_change_data_feed", lambda transaction: False)
