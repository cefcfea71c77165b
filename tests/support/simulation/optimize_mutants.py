"""Mutants of optimizations, for the schedules of ``row_simulation``."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pyarrow as pa

from deltalog.commit import conflicts as conflicts_module
from deltalog.maintenance.optimize import optimize as optimize_module
from deltalog.maintenance.optimize.rewritten_bins import BinWriter, Rewritten
from deltalog.write.staged_actions import StagedActions
from tests.support.simulation.mutants import Mutant, Patch, adding_to
from tests.support.simulation.row_simulation import run_row_schedule

# The mutants patch private attributes of these modules, so the modules are typed as Any.
optimize: Any = optimize_module
conflicts: Any = conflicts_module
KINDS = {"append": 2, "delete": 3, "update": 2, "optimize": 6}

MUTANTS: list[Mutant] = []

mutant = adding_to(MUTANTS, run_row_schedule)


def _skip_row_count_check(patch: Patch) -> None:
    """Skip the check that compares the rows written with the live rows."""
    patch.setattr(BinWriter, "check_rows", lambda *given: None)


@mutant("R1", kinds=KINDS)
def loses_the_last_rows_of_a_bin(patch: Patch) -> None:
    real = BinWriter.conformed
    patch.setattr(BinWriter, "conformed", lambda self, batches: real(self, list(batches)[:-1]))
    _skip_row_count_check(patch)


@mutant("R1", kinds=KINDS, features=["vectors"])
def brings_back_rows_that_vectors_delete(patch: Patch) -> None:
    real = optimize_module.rewritten

    def rewritten(writer: BinWriter, files: pa.Table) -> Rewritten:
        column = files.schema.get_field_index("deletion_vector")
        field = files.schema.field(column)
        return real(writer, files.set_column(column, field, pa.nulls(files.num_rows, field.type)))

    _replaced(patch, rewritten)
    _skip_row_count_check(patch)


def _replaced(patch: Patch, rewritten: Any) -> None:
    patch.setattr(optimize_module, "rewritten", rewritten)


@mutant("R1", kinds=KINDS, writers=3)
def does_not_see_that_another_writer_has_changed_its_files(patch: Patch) -> None:
    """The conflict rules are also patched, because they too would detect such a change."""
    patch.setattr(optimize._Batch, "_leave_out_changed", lambda self, latest: None)
    real = conflicts._check_removed

    def check(prepared: Any, winner: Any, table: str) -> None:
        if prepared.operation not in ("OPTIMIZE", "REORG"):
            real(prepared, winner, table)

    patch.setattr(conflicts, "_check_removed", check)


@mutant("R1", kinds=KINDS, writers=3)
def commits_the_new_files_of_bins_that_it_leaves_out(patch: Patch) -> None:
    real = optimize._Batch._attempt

    def attempt(self: Any, base: Any, rewritten: Any) -> Any:
        left = [add for each, made in rewritten.items() if each not in [b for b, _ in self.bins] for add in made.adds]
        first = self.bins[0][0]
        more = Rewritten([*rewritten[first].adds, *left], rewritten[first].rows)
        return real(self, base, {**rewritten, first: more})

    patch.setattr(optimize._Batch, "_attempt", attempt)


@mutant("R1", kinds=KINDS)
def leaves_the_old_files(patch: Patch) -> None:
    real = StagedActions.remove

    def remove(self: Any, files: pa.Table, clock_ms: int, data_change: bool = True) -> int:
        return real(self, files if data_change else files.slice(1), clock_ms, data_change)

    patch.setattr(StagedActions, "remove", remove)


@mutant("R1", kinds=KINDS)
def puts_rows_of_several_partitions_into_one(patch: Patch) -> None:
    """Bins files by size alone."""
    real = optimize.small_or_sparse

    def alone(files: pa.Table, target_bytes: int) -> Any:
        if not files.num_rows:
            return real(files, target_bytes)
        column = files.schema.get_field_index("partition_values")
        one = pa.concat_arrays([files["partition_values"].combine_chunks().slice(0, 1)] * files.num_rows)
        return real(
            files.set_column(column, files.schema.field(column), one) if files.num_rows else files, target_bytes
        )

    patch.setattr(optimize_module, "small_or_sparse", alone)


def _without_ids(patch: Patch) -> None:
    """Read and write rows without the columns that contain materialized row ids. The columns must be omitted from the
    reads too, because the library refuses to write a file without them if the ids would be lost."""
    real = BinWriter.for_transaction

    def for_transaction(*given: Any) -> BinWriter:
        writer = real(*given)
        read = msgspec.structs.replace(writer.read, tracking=())
        write = dataclasses.replace(writer.write, extra_columns=())
        return dataclasses.replace(writer, read=read, write=write)

    patch.setattr(BinWriter, "for_transaction", for_transaction)


@mutant("R3", kinds=KINDS, features=["row ids"])
def gives_rows_that_are_moved_new_ids(patch: Patch) -> None:
    _without_ids(patch)


@mutant("R3", kinds=KINDS, features=["row ids"])
def keeps_the_base_row_id_of_the_first_file(patch: Patch) -> None:
    real = BinWriter.rewrite

    def rewrite(self: Any, files: pa.Table) -> Rewritten:
        made = real(self, files)
        first, version = files["base_row_id"][0].as_py(), files["default_row_commit_version"][0].as_py()
        changed = {"base_row_id": first, "default_row_commit_version": version}
        adds = [msgspec.structs.replace(add, **changed) for add in made.adds]
        return Rewritten(adds, made.rows)

    patch.setattr(BinWriter, "rewrite", rewrite)
    _without_ids(patch)


@mutant("R7", kinds=KINDS, features=["changes"])
def says_that_rows_change(patch: Patch) -> None:
    real = BinWriter.described

    def described(self: Any, *given: Any) -> Any:
        return msgspec.structs.replace(real(self, *given), data_change=True)

    patch.setattr(BinWriter, "described", described)


@mutant("I4", kinds=KINDS)
def deletes_what_it_has_committed(patch: Patch) -> None:
    real = optimize._Batch._commit

    def commit(self: Any, base: Any, rewritten: Any) -> Any:
        real(self, base, rewritten)
        return set()

    patch.setattr(optimize._Batch, "_commit", commit)
