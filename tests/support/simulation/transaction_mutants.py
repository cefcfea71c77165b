"""Deliberate faults in the catalog's code, like those of ``mutants`` in the commit loop. The schedules of the module
``transactions`` must detect each of these mutants.

    seed, violations = find(MUTANTS[0])
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any

from deltalog.catalog import committer as committer_module
from deltalog.catalog import marks as marks_module
from deltalog.catalog import records as records_module
from deltalog.catalog.records import Ratification
from deltalog.errors import OperationTimeoutError, TransactionCanceledError
from deltalog.protocol.paths import STAGED_COMMITS_DIRECTORY
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions import branch as branch_module
from deltalog.transactions import commit as commit_module
from deltalog.transactions import deletions as deletions_module
from deltalog.transactions import manager as manager_module
from deltalog.transactions import recovery as recovery_module
from deltalog.transactions import transaction as transaction_module
from deltalog.transactions.branch import Branch
from deltalog.transactions.ledger import Ledger
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.manager import TransactionManager
from deltalog.transactions.transaction import ManagedTransaction
from tests.support.simulation.mutants import Mutant, Patch, adding_to
from tests.support.simulation.transactions import run_transactions

# The mutants patch private attributes of these modules, so the modules are typed as Any.
branch: Any = branch_module
commit: Any = commit_module
records: Any = records_module
committer: Any = committer_module
recovery: Any = recovery_module
deletions: Any = deletions_module
marks: Any = marks_module
manager: Any = manager_module
transaction: Any = transaction_module
NOTHING: Any = committer._NOTHING
REAL_CATCH_UP: Any = Branch.catch_up
REAL_COMMIT: Any = commit.commit

MUTANTS: list[Mutant] = []
#: Schedules with many concurrent calls and few faults.
BUSY: dict[str, Any] = {"policy": "random", "clients": 4, "fault_rate": 0.01}


mutant = adding_to(MUTANTS, run_transactions)

# ------------------------------------------------------------------------------------------------- ratification


@mutant("X4", "I10", "X3")
def ratifies_without_looking_at_the_heads(patch: Patch) -> None:
    real = MemoryCoordinator.ratify

    def ratify(self: Any, proposal: Any) -> Any:
        expected = {table_id: self._heads[table_id].version for table_id in proposal.expected}
        same = {each.name: getattr(proposal, each.name) for each in dataclasses.fields(proposal)}
        blind: Any = types.SimpleNamespace(**same, expected=expected)
        return real(self, blind)

    patch.setattr(MemoryCoordinator, "ratify", ratify)


@mutant("X1", "X2", "X7")
def ratifies_without_the_record(patch: Patch) -> None:
    """The transaction's record is updated only after the commit, so it is not updated if the process dies in
    between."""

    def is_ratified(coordinator: Any, record: Any, proposal: Any, environment: Any) -> bool:
        bare = dataclasses.replace(proposal, before=None, after=None)
        if coordinator.ratify(bare) is not Ratification.RATIFIED:
            return False
        coordinator.replace(proposal.after)
        return True

    patch.setattr(commit, "_is_ratified", is_ratified)


@mutant("X1", "X2", "X3", "I10")
def ratifies_one_table_after_the_other(patch: Patch) -> None:
    real = commit._is_ratified

    def is_ratified(coordinator: Any, record: Any, proposal: Any, environment: Any) -> Any:
        first, *rest = sorted(proposal.commits)
        if rest:
            alone = commit.Proposal({first: proposal.commits[first]}, {})
            if coordinator.ratify(alone) is not Ratification.RATIFIED:
                return False
            others = {table_id: proposal.commits[table_id] for table_id in rest}
            proposal = commit.Proposal(others, {}, proposal.before, proposal.after)
        return real(coordinator, record, proposal, environment)

    patch.setattr(commit, "_is_ratified", is_ratified)


@mutant("X2", "X4", "X9")
def takes_a_time_out_for_a_failure(patch: Patch) -> None:
    def is_ratified(coordinator: Any, record: Any, proposal: Any, environment: Any) -> Any:
        try:
            return coordinator.ratify(proposal) is Ratification.RATIFIED
        except OperationTimeoutError as error:
            raise TransactionCanceledError("it failed", transaction_id=record.id) from error

    patch.setattr(commit, "_is_ratified", is_ratified)


@mutant("X2", "X1", "X7", kinds={"transfer": 3, "interfere": 4, "recover": 2}, **BUSY)
def aborts_what_is_ratified(patch: Patch) -> None:
    """A transaction's record is replaced without checking its revision first, so a sweep can abort a commit that was
    ratified in the meantime."""

    def replace(self: Any, record: Any) -> bool:
        self._records[record.id] = record
        return True

    patch.setattr(MemoryCoordinator, "_replace", replace)


@mutant("X2", "X1", "X7", "X4", kinds={"transfer": 2, "interfere": 3, "recover": 3}, **{**BUSY, "fault_rate": 0.04})
def does_not_ask_whether_the_transaction_is_still_on(patch: Patch) -> None:
    """The proposal does not check whether the transaction has ended, so a canceled transaction is committed
    nevertheless."""
    real = MemoryCoordinator.ratify

    def ratify(self: Any, proposal: Any) -> Any:
        before = proposal.before
        if before is not None and before.id in self._records:
            found = self._records[before.id]
            proposal = dataclasses.replace(proposal, before=dataclasses.replace(before, revision=found.revision))
        return real(self, proposal)

    patch.setattr(MemoryCoordinator, "ratify", ratify)


# -------------------------------------------------------------------------------------------- conflicts and reads


@mutant("I10", "X3")
def catches_up_without_looking(patch: Patch) -> None:
    patch.setattr(branch, "rebase", lambda prepared, base, winner, file_time, table: base)


@mutant("I10", "X3", attempts=1, kinds={"transfer": 1, "single": 1}, files_per_table=3, isolation="SNAPSHOT", **BUSY)
def holds_later_changes_against_later_winners_only(patch: Patch) -> None:
    """In this mutant, a change that lost several races is checked for conflicts only with the commits since the last
    race."""
    real = Branch.add

    def add(self: Any, attempt: Any) -> None:
        seen = self._snapshot
        real(self, attempt)
        self._snapshot = seen

    patch.setattr(Branch, "add", add)


@mutant("X6", isolation="SERIALIZABLE")
def forgets_what_was_only_read(patch: Patch) -> None:
    patch.setattr(Branch, "prepared_to_check", lambda self: self.prepared)


@mutant("X6", isolation="SERIALIZABLE", kinds={"transfer": 1, "single": 1}, files_per_table=5, **BUSY)
def looks_at_the_heads_of_changed_tables_only(patch: Patch) -> None:
    real = commit._stage

    def stage(*arguments: Any) -> Any:
        return dataclasses.replace(real(*arguments), unmoved={})

    patch.setattr(commit, "_stage", stage)


@mutant("X3")
def reads_each_table_as_it_is_when_opened(patch: Patch) -> None:
    def pins(self: Any, record: Any) -> Any:
        return self._ledger.coordinator.cut()

    patch.setattr(ManagedTransaction, "_pins", pins)


@mutant("X3", "X8", kinds={"transfer": 4, "cut": 6})
def cuts_each_table_when_it_comes_to_it(patch: Patch) -> None:
    real = ManagedTables.version_at

    def version_at(self: Any, record: Any, timestamp: Any, latest: Any) -> Any:
        return real(self, record, timestamp, self.coordinator.cut())

    patch.setattr(ManagedTables, "version_at", version_at)


@mutant("X5", "X8")
def stamps_each_table_by_itself(patch: Patch) -> None:
    real = Branch.attempts

    def attempts(self: Any, transaction_id: Any, last_ms: Any) -> Any:
        return real(self, transaction_id, max(self.earliest_ms, last_ms - 1_000))

    patch.setattr(Branch, "attempts", attempts)


# -------------------------------------------------------------------------------- mutants of publication and clean-up


@mutant("I2", "X4", "X7", "X9")
def publishes_out_of_order(patch: Patch) -> None:
    real = committer._publish
    patch.setattr(committer, "_publish", real)

    def publish(inner: Any, coordinator: Any, table_id: Any, head: Any = None, contents: Any = NOTHING) -> int:
        head = head or coordinator.head(table_id)
        unpublished = () if head is None else head.unpublished
        for each in reversed(unpublished):
            real(inner, each, contents.get(each.file))
        if unpublished:
            coordinator.published(table_id, unpublished[-1].version)
        return len(unpublished)

    for module in (committer, commit):
        patch.setattr(module, "publish", publish)


@mutant("X3", "X4", "X7", "X9")
def deletes_staged_files_before_publishing(patch: Patch) -> None:
    real = committer._publish

    def publish(inner: Any, each: Any, content: Any) -> None:
        data = inner.get(f"{STAGED_COMMITS_DIRECTORY}/{each.file}") if content is None else content
        committer.discard_commits(inner, [each])
        real(inner, each, data)

    patch.setattr(committer, "_publish", publish)


@mutant("X4", "X7", "X9", "I2")
def notes_as_published_what_is_not_yet(patch: Patch) -> None:
    real = committer._publish

    def publish(inner: Any, coordinator: Any, table_id: Any, head: Any = None, contents: Any = NOTHING) -> int:
        head = head or coordinator.head(table_id)
        unpublished = () if head is None else head.unpublished
        if unpublished:
            coordinator.published(table_id, unpublished[-1].version)
        for each in unpublished:
            real(inner, each, contents.get(each.file))
        return len(unpublished)

    for module in (committer, commit):
        patch.setattr(module, "publish", publish)


@mutant("X4", "X7", "X9", "X3", kinds={"transfer": 3, "single": 3, "recover": 3}, policy="random")
def sweeps_staged_commits_that_may_yet_be_ratified(patch: Patch) -> None:
    patch.setattr(recovery, "_staged_version", lambda name: 0)


@mutant("X7")
def leaves_what_dead_processes_were_committing(patch: Patch) -> None:
    real = records.overdue

    def overdue(record: Any, now_ms: Any, idle_timeout_ms: Any) -> Any:
        return (
            None
            if record.status is records.TransactionStatus.COMMIT_IN_PROGRESS
            else real(record, now_ms, idle_timeout_ms)
        )

    patch.setattr(records, "overdue", overdue)


# ------------------------------------------------------------------------------- objects of transactions that failed

JOBS: dict[str, Any] = {"policy": "random", "clients": 3, "fault_rate": 0.0, "kinds": {"job": 1}, "operations": 4}


@mutant("X10", **JOBS)
def looks_who_needs_objects_before_it_marks_them(patch: Patch) -> None:
    real = recovery._Cleaner._delete_unused

    def delete_unused(self: Any, table: Any, store: Any, some: Any) -> Any:
        found = self._in_use(table)
        self._in_use = lambda table: found
        try:
            return real(self, table, store, some)
        finally:
            del self._in_use

    patch.setattr(recovery._Cleaner, "_delete_unused", delete_unused)


@mutant("X10", **JOBS)
def keeps_and_ratifies_whatever_was_marked_since(patch: Patch) -> None:
    patch.setattr(MemoryCoordinator, "_are_last", lambda self, numbers: True)


@mutant("X10", **JOBS)
def adds_objects_that_are_being_deleted(patch: Patch) -> None:
    def check_added(self: Any, store: Any, files: Any) -> int:
        return int(self._known.last)

    patch.setattr(marks.KnownMarks, "check_added", check_added)


@mutant("X7", **JOBS)
def looks_for_objects_once(patch: Patch) -> None:
    patch.setattr(recovery, "_passes_due", lambda record, now_ms: len(recovery.LATE_PASSES_MS) + 1)


@mutant("X10", **JOBS)
def deletes_objects_that_were_added_and_not_yet_committed(patch: Patch) -> None:
    patch.setattr(deletions, "added_files", lambda part: [])


# ------------------------------------------------------------------------------------------- processes, lost answers


@mutant("X1", "X2")
def commits_what_this_process_knows_of(patch: Patch) -> None:
    """Another process that resumes a transaction commits only the transaction's first table."""
    real = ManagedTransaction.targets

    def targets(self: Any, record: Any) -> Any:
        known = bool(self._opened)
        found = real(self, record)
        return found if known else found[:1]

    patch.setattr(ManagedTransaction, "targets", targets)


@mutant("X2", kinds={"shared": 4, "interfere": 6}, **BUSY)
def ends_without_changes_what_has_one_by_now(patch: Patch) -> None:
    """A process that found nothing to commit ends the transaction, although another process may have added changes
    since."""

    def end(self: Any, record: Any) -> Any:
        def ended(latest: Any) -> Any:
            return records.committed(latest, {}, self._ledger.now_ms())

        return self._ledger.change(record.id, records.Call.COMMIT, ended).status

    patch.setattr(TransactionManager, "_end_without_changes", end)


@mutant("X1", "X2")
def extends_what_is_over(patch: Patch) -> None:
    """The mutant lets a process that finds an ended transaction make the transaction active again."""
    real = Ledger.current

    def current(self: Any, transaction_id: Any) -> Any:
        record = real(self, transaction_id)
        if record.status is records.TransactionStatus.ABORTED:
            record = dataclasses.replace(records.active_again(record, self.now_ms()), end_ms=None)
            self.coordinator.replace(record)
        return record

    patch.setattr(Ledger, "current", current)
