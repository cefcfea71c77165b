"""Faulty writers for the pairs of the conformance kit: deltalog with one bug each, which shows where another engine
writes the same table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.conformance import Engine
from deltalog.conformance.engines.deltalog import DeltalogEngine
from tests.support.conformance import mutants
from tests.support.conformance.mutants import Action, Rewriting, actions_of, commits, info_of, write_actions

# For each mutant, the variant that must fail, a word of the reason, and whether the mutant is the first engine.
PAIR_MUTANTS: dict[type[Engine], tuple[str, str, bool]] = {}


def caught_by(variant: str, word: str, first: bool = False) -> Callable[[type[Engine]], type[Engine]]:
    def register(mutant: type[Engine]) -> type[Engine]:
        mutant.name = mutant.__name__
        PAIR_MUTANTS[mutant] = (variant, word, first)
        return mutant

    return register


class RewritingAll(Rewriting):
    """Like Rewriting, and for deletions too."""

    def delete(self, path: str, where: str) -> None:
        known = self._known(path)
        super().delete(path, where)
        self._after(path, known)


@caught_by("plain", "rows are missing")
class AppendsToAStaleVersion(Rewriting):
    """An append removes the files of the commit before, which it has not seen."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        if info_of(actions)["operation"] != "WRITE" or version == 0 or any("remove" in each for each in actions):
            return actions
        before = [each["add"] for each in actions_of(commits(path)[version - 1]) if "add" in each]
        gone = [{"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}} for add in before]
        return [*actions, *gone]


@caught_by("in-commit-timestamps", "ict-increases")
class ReusesTheTimestamp(Rewriting):
    """Its commits have the in-commit timestamp of the commit before."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        return mutants.RepeatsTheTimestampBefore().rewrite(actions, version, path)


@caught_by("plain", "property")
class DropsAProperty(Rewriting):
    """Writes the properties that it set itself, and no others."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            if version and "metaData" in action:
                action["metaData"]["configuration"].pop("delta.logRetentionDuration", None)
        return actions


@caught_by("plain", "was changed")
class CorrectsTheCommitBefore(DeltalogEngine):
    """Writes into the commit of the other engine."""

    def append(self, path: str, rows: pa.Table) -> None:
        super().append(path, rows)
        file = commits(path)[-2]
        write_actions(file, [*actions_of(file), {"txn": {"appId": "mine", "version": 1}}])


@caught_by("deletion-vectors", "rows are unexpected")
class ForgetsVectors(RewritingAll):
    """Adds a file without the deletion vector that it had."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            action.get("add", {}).pop("deletionVector", None)
        return actions


@caught_by("in-commit-timestamps-late", "pair")
class EnablesAgain(Rewriting):
    """Every commit that changes the metadata names itself as the one that enabled in-commit timestamps."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        return mutants.PairsAgain().rewrite(actions, version, path)


@caught_by("plain", "rows-by-checkpoint")
class LosesFilesInCheckpoints(DeltalogEngine):
    """Its checkpoints lack a file."""

    def checkpoint(self, path: str) -> None:
        super().checkpoint(path)
        file = max(mutants.log_of(path).glob("*.checkpoint.parquet"))
        found = pq.read_table(file)
        last = max(number for number, row in enumerate(found.to_pylist()) if row["add"] is not None)
        pq.write_table(found.filter(pa.array([number != last for number in range(found.num_rows)])), file)


@caught_by("row-tracking", "row-id")
class RepeatsRowIds(Rewriting):
    """The row ids of each of its files begin at 0."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            if "baseRowId" in action.get("add", {}):
                action["add"]["baseRowId"] = 0
        return actions


@caught_by("partitioned", "rows are")
class SwapsPartitions(Rewriting):
    """Writes the partition values of a commit in another order than its files."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        adds = [action["add"] for action in actions if "add" in action]
        found = [add["partitionValues"] for add in adds]
        for add, other in zip(adds, reversed(found), strict=True):
            add["partitionValues"] = other
        return actions


@caught_by("in-commit-timestamps", "ict-is-the-clock", first=True)
class TakesTheFileTimeOfYesterday(Rewriting):
    """Its clock is a day behind, and it does not care: only its first commit shows it, as the others follow."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        if version == 0 and "inCommitTimestamp" in info_of(actions):
            info_of(actions)["inCommitTimestamp"] -= 86_400_000
        return actions


@caught_by("plain", "commits were made")
class CommitsTwice(DeltalogEngine):
    """Retries an append that had succeeded."""

    def append(self, path: str, rows: pa.Table) -> None:
        super().append(path, rows)
        super().append(path, rows)


@caught_by("plain", "refused, and changed the log")
class RefusesTooLate(DeltalogEngine):
    """Commits, and then says that it cannot."""

    lacks = "too late"

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        super().set_properties(path, properties)
        raise ValueError("too late")


@caught_by("plain", "commits were made")
class SkipsAVersion(DeltalogEngine):
    """Leaves a gap of one version."""

    def overwrite(self, path: str, rows: pa.Table) -> None:
        super().overwrite(path, rows)
        file = commits(path)[-1]
        os.rename(file, file.with_name(f"{int(file.stem) + 1:020d}.json"))
