"""Mutants of the client of a Unity Catalog, for the schedules of ``unity``."""

from __future__ import annotations

from typing import Any

from deltalog.catalog import committer as catalog_committer
from deltalog.commit.committer import Committed
from deltalog.errors import CatalogRequestError, OperationTimeoutError
from deltalog.unity import committer as committer_module
from deltalog.unity import messages, rules
from deltalog.unity.committer import UnityCommitter
from deltalog.unity.rules import Verdict
from deltalog.unity.table import UnityTable
from tests.support.simulation.mutants import Mutant, Patch, adding_to
from tests.support.simulation.unity import run_unity_schedule

# The mutants patch private attributes, so these are typed as Any.
module: Any = committer_module
committer: Any = UnityCommitter
REAL: dict[str, Any] = {
    "verdict": rules.verdict,
    "proposal": rules.proposal,
    "copy": catalog_committer.copy_to_log,
    "propose": committer._propose,
    "settled": committer._settled,
}

MUTANTS: list[Mutant] = []

mutant = adding_to(MUTANTS, run_unity_schedule)


@mutant("U1")
def reports_commits_that_it_has_not_published(patch: Patch) -> None:
    patch.setattr(UnityCommitter, "_publish", lambda self, head, contents: self._table.note_published(head.version))


@mutant("U1")
def reports_before_it_publishes(patch: Patch) -> None:
    def publish(self: Any, head: Any, contents: Any) -> None:
        self._table.note_published(head.version)
        self._report()
        REAL["copy"](self._store.inner, head.unpublished, contents)

    patch.setattr(UnityCommitter, "_publish", publish)


@mutant("U1")
def ignores_the_etag(patch: Patch) -> None:
    patch.setattr(UnityTable, "etag", lambda self, version: None)


@mutant("I4", "I5", "I6")
def does_not_compare_the_name_of_the_file(patch: Patch) -> None:
    def verdict(head: Any, version: int, file: str) -> Verdict:
        found: Verdict = REAL["verdict"](head, version, file)
        return Verdict.OURS if found is Verdict.ANOTHERS else found

    patch.setattr(rules, "verdict", verdict)


@mutant("I4", "I5", "I6", "I16")
def takes_a_published_version_for_its_own(patch: Patch) -> None:
    def verdict(head: Any, version: int, file: str) -> Verdict:
        found: Verdict = REAL["verdict"](head, version, file)
        return Verdict.OURS if found is Verdict.PUBLISHED else found

    patch.setattr(rules, "verdict", verdict)


@mutant("I5")
def takes_a_lost_answer_for_a_refusal(patch: Patch) -> None:
    def propose(self: Any, attempt: Any, commit: Any) -> Any:
        update = self._table.calls.update

        def refused(*arguments: Any, **named: Any) -> Any:
            try:
                return update(*arguments, **named)
            except OperationTimeoutError:
                raise CatalogRequestError("refused", path="model", status=400) from None

        self._table.calls.update = refused
        try:
            return REAL["propose"](self, attempt, commit)
        finally:
            self._table.calls.update = update

    patch.setattr(UnityCommitter, "_propose", propose)


@mutant("I4")
def takes_a_lost_answer_for_an_acknowledgement(patch: Patch) -> None:
    def settled(self: Any, attempt: Any, commit: Any, error: Any, *, is_sent: bool) -> Any:
        if isinstance(error, OperationTimeoutError):
            return Committed()
        return REAL["settled"](self, attempt, commit, error, is_sent=is_sent)

    patch.setattr(UnityCommitter, "_settled", settled)


@mutant("U2")
def deletes_its_file_while_the_outcome_is_unknown(patch: Patch) -> None:
    def settled(self: Any, attempt: Any, commit: Any, error: Any, *, is_sent: bool) -> Any:
        if is_sent:
            catalog_committer.discard_staged(self._store.inner, commit.file_name)
        return REAL["settled"](self, attempt, commit, error, is_sent=is_sent)

    patch.setattr(UnityCommitter, "_settled", settled)


@mutant("U2")
def publishes_the_newest_commit_first(patch: Patch) -> None:
    def copy(store: Any, commits: Any, contents: Any = {}) -> None:  # noqa: B006
        for commit in reversed(commits):
            REAL["copy"](store, [commit], contents)

    patch.setattr(committer_module, "copy_to_log", copy)


@mutant("U3")
def sends_no_metadata_with_its_commits(patch: Patch) -> None:
    patch.setattr(rules, "metadata_updates", lambda attempt: [])


@mutant("U1")
def changes_metadata_in_a_request_of_its_own(patch: Patch) -> None:
    def propose(self: Any, attempt: Any, commit: Any) -> Any:
        changes = rules.metadata_updates(attempt)
        if rules.changes_metadata(changes):
            request = messages.UpdateTable(
                requirements=(messages.AssertTableUuid(uuid=self._table.table_id),), updates=tuple(changes)
            )
            self._table.calls.update(request, is_idempotent=False)
        return REAL["propose"](self, attempt, commit)

    patch.setattr(UnityCommitter, "_propose", propose)


@mutant("I14", "I16")
def reads_published_commits_only(patch: Patch) -> None:
    real: Any = UnityTable.head

    def head(self: Any, table_id: str) -> Any:
        found = real(self, table_id)
        return type(found)(found.published_version)

    patch.setattr(UnityTable, "head", head)
