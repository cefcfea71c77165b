"""Mutants of vacuum, for the schedules of ``vacuum_simulation``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deltalog.maintenance.vacuum import decisions as rules_module
from deltalog.maintenance.vacuum import needed_files as needed_files_module
from deltalog.maintenance.vacuum import removed_files as removed_files_module
from deltalog.maintenance.vacuum import vacuum as vacuum_module
from deltalog.maintenance.vacuum.decisions import NamedFiles, Need, NeededFiles, VacuumRules
from tests.support.simulation.mutants import Mutant, Patch, adding_to
from tests.support.simulation.vacuum_simulation import run_vacuum_schedule

# The mutants patch private attributes of these modules, so the modules are typed as Any.
needed_files: Any = needed_files_module
removed_files: Any = removed_files_module
rules: Any = rules_module
vacuum: Any = vacuum_module

MUTANTS: list[Mutant] = []

mutant = adding_to(MUTANTS, run_vacuum_schedule)


def _named(patch: Patch, change: Callable[[NamedFiles], NamedFiles]) -> None:
    real = vacuum.named_files
    patch.setattr(vacuum, "named_files", lambda history, cutoff_ms: change(real(history, cutoff_ms)))


def _without(need: Need) -> Callable[[NamedFiles], NamedFiles]:
    return lambda named: replace(
        named, needed=NeededFiles([each for each in named.needed.reasons if each[0] is not need])
    )


# --------------------------------------------------------------------------------------- what is needed


@mutant("V1")
def needs_the_latest_version_only(patch: Patch) -> None:
    _named(patch, _without(Need.EARLIER))


@mutant("V1", features=["vectors"])
def forgets_the_files_of_vectors(patch: Patch) -> None:
    patch.setattr(needed_files._Names, "of_vector", lambda self, vector: ())


@mutant("V1")
def takes_no_account_of_the_retention(patch: Patch) -> None:
    patch.setattr(vacuum.Retention, "ms", property(lambda self: 0))


@mutant("V1", policy="random", writers=3, fault_rate=0.0, kinds={"append": 2, "vacuum": 3})
def deletes_what_is_not_committed_yet(patch: Patch) -> None:
    patch.setattr(rules, "UNCOMMITTED_AGE_MS", 0)


@mutant("V2")
def deletes_hidden_files(patch: Patch) -> None:
    patch.setattr(VacuumRules, "ignores", lambda self, name: False)


@mutant("V2")
def deletes_the_files_of_another_table(patch: Patch) -> None:
    patch.setattr(rules._Decision, "is_in_other_table", lambda self, path: False)


@mutant("V2")
def keeps_what_was_never_committed(patch: Patch) -> None:
    patch.setattr(rules, "UNCOMMITTED_AGE_MS", 10**15)


# ----------------------------------------------------------------------------- vacuums by the log alone


@mutant("V3")
def records_what_it_has_not_deleted_yet(patch: Patch) -> None:
    real = vacuum.named_files

    def named_files(history: Any, cutoff_ms: int) -> NamedFiles:
        named: NamedFiles = real(history, cutoff_ms)
        if named.cutoff_version is not None:
            removed_files.record_vacuum(history.reader.store, named.cutoff_version, history.latest.version)
        return named

    patch.setattr(vacuum, "named_files", named_files)


@mutant("V3")
def records_the_latest_version_instead_of_that_at_the_cutoff(patch: Patch) -> None:
    real = vacuum.record_vacuum
    patch.setattr(vacuum, "record_vacuum", lambda store, version, latest: real(store, latest, latest))


@mutant("V3")
def begins_a_commit_too_late(patch: Patch) -> None:
    real = removed_files.last_vacuum

    def last_vacuum(store: Any, latest: int) -> int | None:
        found = real(store, latest)
        return None if found is None else int(found) + 1

    patch.setattr(removed_files, "last_vacuum", last_vacuum)


@mutant("V3")
def records_what_is_kept_for_its_age(patch: Patch) -> None:
    real = vacuum.plan
    patch.setattr(vacuum, "plan", lambda *given: replace(real(*given), young=frozenset()))


@mutant("V3", features=["vectors"])
def leaves_the_files_of_vectors_by_the_log(patch: Patch) -> None:
    _leaving(patch, ".bin")


@mutant("V3", features=["changes"])
def leaves_the_change_feed_by_the_log(patch: Patch) -> None:
    _leaving(patch, "_change_data/")


def _leaving(patch: Patch, part: str) -> None:
    real = removed_files.removed_in
    patch.setattr(removed_files, "removed_in", lambda *given: {path for path in real(*given) if part not in path})
