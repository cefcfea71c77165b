"""Mutants for the schedules of ``lost_tables``: each breaks a check that stops a handle from using another table that
has replaced the handle's table."""

from __future__ import annotations

from deltalog.commit.loop import CommitLoop
from deltalog.commit.tip_proof import TipProof
from deltalog.log.checkpoint.writer import _Writing
from deltalog.log.tip import Tip
from deltalog.write.table_handle import TableHandle
from tests.support.simulation.lost_tables import run_lost_table
from tests.support.simulation.mutants import Mutant, Patch, adding_to

MUTANTS: list[Mutant] = []

mutant = adding_to(MUTANTS, run_lost_table)


@mutant("L1", "L2", "L3", far=True)
def commits_without_a_look_at_the_version_before(patch: Patch) -> None:
    patch.setattr(TipProof, "check", lambda self, version: None)


@mutant("L1", "L3", "L5", "L6", far=False, event="rolled back")
def does_not_look_at_the_winner_that_it_follows(patch: Patch) -> None:
    """The mutant skips the check of the winning commit: the version that the handle knows is in the log, but the commit
    that won the race was rolled back."""
    patch.setattr(TipProof, "follow", lambda self, winner, data: None)


@mutant("L2", "L5", "L6", far=False)
def leaves_the_checkpoint_of_a_table_that_is_gone(patch: Patch) -> None:
    patch.setattr(_Writing, "confirm", lambda self, written: None)


@mutant("L1", "L2", "L3", "L5", "L6", far=False)
def does_not_look_after_the_commit(patch: Patch) -> None:
    patch.setattr(TipProof, "is_checked_after", property(lambda self: False))


@mutant("L1", "L2", "L3", "L4", "L5", "L6", far=False)
def does_not_withdraw_a_commit_without_its_table(patch: Patch) -> None:
    patch.setattr(CommitLoop, "_withdraw", lambda self, attempt, reason: None)


@mutant("L2", "L3", "L5", "L6")
def takes_any_commit_of_a_version_for_its_own(patch: Patch) -> None:
    patch.setattr(Tip, "is_file", lambda self, reader, found: True)


@mutant("L2", event="created again")
def changes_the_next_table_without_a_word(patch: Patch) -> None:
    patch.setattr(TableHandle, "refresh_for_change", TableHandle.refresh)


@mutant("L2", "L3", "L5", "L6", far=False)
def takes_what_it_sees_after_the_commit_for_its_own(patch: Patch) -> None:
    """After a rollback of the table, another writer may have committed the same version number again."""
    patch.setattr(CommitLoop, "_is_file_of", lambda self, attempt, found: True)
