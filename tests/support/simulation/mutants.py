"""Faults put into the real commit code on purpose: what does not find them proves little.

Every mutant replaces a function or a method of the library (or wraps the store) in a way that a writer of such code
might have got wrong, and that real ones have. It must be found within MAX_SEEDS schedules, by an invariant that says
what is wrong, and the same schedules of the unchanged code must be clean.

    seed, violations = find(MUTANTS[0])

They reach into the library's inside, so they belong to one version of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from deltalog import table as table_module
from deltalog.commit import attempt as attempts_module
from deltalog.commit import conflicts, hooks
from deltalog.commit import loop as commit_module
from deltalog.commit.committer import CommitOutcome, Exists, Unknown
from deltalog.commit.loop import CommitLoop
from deltalog.commit.prepared import Prepared
from deltalog.errors import CommitConflictError, CommitStateUnknownError, StoreError
from deltalog.expressions.bound import complement
from deltalog.log.checkpoint import writer as checkpoint_module
from deltalog.log.checkpoint.reader import CheckpointReader
from deltalog.log.reader import LogReader
from deltalog.operations import rewrite as rewrite_module
from deltalog.operations import transaction as transaction_module
from deltalog.operations import writes
from deltalog.operations.staged_actions import StagedActions
from deltalog.operations.transaction import Transaction
from deltalog.protocol import timestamps
from deltalog.read import data_skipping
from deltalog.read import scan as scan_module
from deltalog.storage.base import FileMeta, LogStore, PutOutcome
from deltalog.storage.wrapped import WrappedStore
from deltalog.table import DeltaTable
from deltalog.testing.checker import Violation
from tests.support.simulation.row_simulation import run_row_schedule
from tests.support.simulation.scheduler import ScheduleStuckError
from tests.support.simulation.simulation import KINDS, ScheduleResult, run_schedule

MAX_SEEDS = 400

# Of modules whose inside is looked into, which mypy need not follow.
checkpoint: Any = checkpoint_module
attempts: Any = attempts_module
commit: Any = commit_module
transaction: Any = transaction_module
rewrite: Any = rewrite_module
table: Any = table_module
scan: Any = scan_module
# The library as it is, for mutants that change only a part of a call.
REAL_SETTLE: Any = CommitLoop._settle
REAL_CHECK_ADDED: Any = conflicts._check_added
REAL_CHECK_REMOVED: Any = conflicts._check_removed
REAL_REBASE: Any = commit.rebase


class Patch:
    """Attributes that are put back, and what the schedules of this mutant are run with."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._old: list[tuple[Any, str, Any]] = []

    def setattr(self, target: Any, name: str, value: Any) -> None:
        self._old.append((target, name, vars(target)[name]))
        setattr(target, name, value)

    def undo(self) -> None:
        while self._old:
            setattr(*self._old.pop())


@dataclass(frozen=True)
class Mutant:
    """``apply`` makes the change; ``invariants``: any of these must be found broken, in schedules that ``run`` runs."""

    name: str
    apply: Callable[[Patch], None]
    invariants: frozenset[str]
    options: dict[str, Any] = field(default_factory=dict)
    run: Callable[..., ScheduleResult] = run_schedule

    @contextlib.contextmanager
    def applied(self) -> Iterator[dict[str, Any]]:
        """The library with this defect, inside the block; what schedules are to be run with."""
        patch = Patch(dict(self.options))
        try:
            self.apply(patch)
            yield patch.options
        finally:
            patch.undo()


MUTANTS: list[Mutant] = []
Apply = Callable[[Patch], None]
Run = Callable[..., ScheduleResult]


def adding_to(mutants: list[Mutant], usual: Run) -> Callable[..., Callable[[Apply], Apply]]:
    """A decorator that adds a mutant to a list: ``@mutant("I1", **options)``, with ``run=`` where its schedules are not
    the usual ones."""

    def mutant(*invariants: str, run: Run = usual, **options: Any) -> Callable[[Apply], Apply]:
        def register(apply: Apply) -> Apply:
            mutants.append(Mutant(apply.__name__, apply, frozenset(invariants), options, run))
            return apply

        return register

    return mutant


mutant = adding_to(MUTANTS, run_schedule)


def find(each: Mutant, max_seeds: int = MAX_SEEDS) -> tuple[int, list[Violation]] | None:
    """The first seed that finds the mutant and what it finds; None when none does."""
    with each.applied() as options:
        for seed in range(max_seeds):
            try:
                result = each.run(seed, **options)
            except ScheduleStuckError:
                continue  # it hangs, but nothing is known to be wrong yet
            if each.invariants & {violation.invariant for violation in result.violations}:
                return seed, result.violations
    return None


# --------------------------------------------------------------------------------- who has the version, and is it us?


@mutant("I5", "I6", "I10")
def does_not_look_for_its_own_txn_id(patch: Patch) -> None:
    patch.setattr(CommitLoop, "_is_ours", lambda self, occupant: False)


def _answers(patch: Patch, mistaken: type[CommitOutcome], answer: Callable[[Any], Any]) -> None:
    """One outcome of the committer is not settled: ``answer`` gives what is made of the attempt instead."""

    def settle(self: Any, attempt: Any, outcome: Any) -> Any:
        return answer(attempt) if isinstance(outcome, mistaken) else REAL_SETTLE(self, attempt, outcome)

    patch.setattr(CommitLoop, "_settle", settle)


def _conflict(attempt: Any) -> Any:
    raise CommitConflictError("somebody was faster", winning_version=attempt.actions.version, winning_operation=None)


def _failure(attempt: Any) -> Any:
    raise StoreError("the store did not answer", path="")


@mutant("I5")
def takes_exists_for_a_conflict(patch: Patch) -> None:
    _answers(patch, Exists, _conflict)


@mutant("I5")
def takes_unknown_for_failure(patch: Patch) -> None:
    _answers(patch, Unknown, _failure)


@mutant("I5")
def takes_unknown_for_a_conflict(patch: Patch) -> None:
    """As a client does that has one error for 409, 412 and a time-out."""
    _answers(patch, Unknown, _conflict)


@mutant("I4")
def takes_unknown_for_success(patch: Patch) -> None:
    _answers(patch, Unknown, lambda attempt: None)


@mutant("I2", "I6", "I7")
def goes_to_the_next_version_after_unknown(patch: Patch) -> None:
    def settle(self: Any, attempt: Any, outcome: Any) -> Any:
        if isinstance(outcome, Unknown):
            version = attempt.actions.version
            return dataclasses.replace(
                attempt.actions, commit_info=None, protocol=None, metadata=None, adds=[], removes=[], transactions=[]
            ) if version else REAL_SETTLE(self, attempt, outcome)  # fmt: skip
        return REAL_SETTLE(self, attempt, outcome)

    def rebase(prepared: Any, base: Any, winner: Any, *rest: Any) -> Any:
        if winner.commit_info is None:
            return dataclasses.replace(base, version=winner.version)
        return REAL_REBASE(prepared, base, winner, *rest)

    patch.setattr(CommitLoop, "_settle", settle)
    patch.setattr(commit, "rebase", rebase)


@mutant("I5")
def reads_back_once_and_believes_that_absent_is_for_ever(patch: Patch) -> None:
    def settle(self: Any, attempt: Any, outcome: Any) -> Any:
        if isinstance(outcome, Unknown) and self._store.head(commit.commit_path(attempt.actions.version)) is None:
            raise StoreError("the store lost the request", path="")
        return REAL_SETTLE(self, attempt, outcome)

    patch.setattr(CommitLoop, "_settle", settle)


@mutant("I5")
def gives_up_with_an_error_that_says_failed(patch: Patch) -> None:
    patch.setattr(CommitLoop, "_unknown", lambda self, attempt, cause: StoreError("the store is gone", path=""))


@mutant("I5")
def gives_up_with_an_error_that_says_conflict(patch: Patch) -> None:
    def conflict(self: Any, attempt: Any, cause: Any) -> Any:
        return CommitConflictError("no more attempts", winning_version=attempt.actions.version, winning_operation=None)

    patch.setattr(CommitLoop, "_unknown", conflict)


@mutant("I6")
def takes_a_new_txn_id_for_each_attempt(patch: Patch) -> None:
    yield_to = CommitLoop._yield_to

    def renew(self: Any, winner: Any) -> Any:
        yield_to(self, winner)
        self._prepared = dataclasses.replace(self._prepared, txn_id=self._environment.new_uuid())

    patch.setattr(CommitLoop, "_yield_to", renew)


@mutant("I1")
def looks_and_then_writes(patch: Patch) -> None:
    """A store that tests for the name and then puts: two can pass the test before either writes."""
    patch.options["wrap"] = lambda store: LookThenPut(store)


@mutant("I3")
def writes_in_two_parts(patch: Patch) -> None:
    """A store that creates the name first and then the bytes."""
    patch.options["wrap"] = lambda store: TwoParts(store)


# ------------------------------------------------------------------------------------------------------ timestamps


@mutant("I8")
def takes_the_clock_as_it_is(patch: Patch) -> None:
    patch.setattr(timestamps, "next_timestamp", lambda clock_ms, previous_ms: clock_ms)


@mutant("I8")
def keeps_the_timestamp_of_the_first_attempt(patch: Patch) -> None:
    build, first = commit.build_attempt, dict[str, Any]()

    def stamped_once(prepared: Any, base: Any, clock_ms: Any) -> Any:
        floor = first.setdefault(prepared.txn_id, (clock_ms, base.previous_ms))
        return build(prepared, dataclasses.replace(base, previous_ms=floor[1]), floor[0])

    patch.setattr(commit, "build_attempt", stamped_once)


@mutant("I8", table="late", policy="random", fault_rate=0.04)
def does_not_stamp_the_enablement_pair_again(patch: Patch) -> None:
    build, enabling, current = commit.build_attempt, timestamps.enabling_configuration, [""]
    first: dict[str, Any] = {}

    def remember(prepared: Any, base: Any, clock_ms: Any) -> Any:
        current[0] = prepared.txn_id
        return build(prepared, base, clock_ms)

    def stale(configuration: Any, version: Any, ict_ms: Any) -> Any:
        return enabling(configuration, *first.setdefault(current[0], (version, ict_ms)))

    patch.setattr(commit, "build_attempt", remember)
    patch.setattr(timestamps, "enabling_configuration", stale)


@mutant("I8")
def enables_without_looking_at_the_file_times(patch: Patch) -> None:
    patch.setattr(LogReader, "file_time_ms", lambda self, version: None)


@mutant("I8", table="late", policy="random", fault_rate=0.04)
def enables_after_a_winner_without_its_file_time(patch: Patch) -> None:
    def rebase(prepared: Any, base: Any, winner: Any, winner_file_time_ms: Any, table: Any) -> Any:
        return REAL_REBASE(prepared, base, winner, None if winner_file_time_ms is None else 0, table)

    patch.setattr(commit, "rebase", rebase)


@mutant("I8")
def does_not_put_commit_info_first(patch: Patch) -> None:
    encode = attempts.encode_commit

    def last(info: Any, actions: Any) -> Any:
        lines = encode(info, actions).splitlines(keepends=True)
        return b"".join(lines[1:] + lines[:1])

    patch.setattr(attempts, "encode_commit", last)


# ------------------------------------------------------------------------------------------------------- conflicts


@mutant("I10")
def does_not_look_for_files_removed_twice(patch: Patch) -> None:
    patch.setattr(conflicts, "_check_removed", lambda prepared, winner, table: None)


@mutant("I11")
def overwrites_what_it_has_not_read(patch: Patch) -> None:
    def check(prepared: Any, winner: Any, *rest: Any) -> Any:
        reads = dataclasses.replace(prepared.reads, whole_table=False, predicates=())
        REAL_CHECK_ADDED(dataclasses.replace(prepared, reads=reads), winner, *rest)

    patch.setattr(conflicts, "_check_added", check)


@mutant("I8", "I12", "I16", table="toggled", policy="random", fault_rate=0.04)
def does_not_look_at_the_protocol_of_a_winner(patch: Patch) -> None:
    patch.setattr(conflicts, "_protocol_after", lambda prepared, base, winner, table: base)
    patch.setattr(conflicts, "_metadata_after", lambda prepared, base, winner, table: base)


@mutant("I11")
def calls_every_commit_a_blind_append(patch: Patch) -> None:
    patch.setattr(Prepared, "is_blind_append", property(lambda self: True))


@mutant("I12", kinds={**KINDS, "property": 150})
def overwrites_the_properties_of_a_winner(patch: Patch) -> None:
    def after(prepared: Any, base: Any, winner: Any, table: Any) -> Any:
        return base if winner.metadata is None else winner.metadata

    patch.setattr(conflicts, "_metadata_after", after)


@mutant("I9", kinds={**KINDS, "application": 100})
def does_not_look_at_application_ids(patch: Patch) -> None:
    patch.setattr(conflicts, "_check_transactions", lambda prepared, winner, table: None)


@mutant(
    "I9",
    "I10",
    "I11",
    writers=5,
    operations=5,
    policy="random",
    fault_rate=0.04,
    kinds={"append": 3, "replace": 1, "overwrite": 1},
)
def catches_up_without_looking(patch: Patch) -> None:
    def catch_up(self: Any) -> Any:
        listed = self._reader.list_from(self._base.version + 1).commits
        for winner in self._reader.commits(listed):
            blind = dataclasses.replace(winner, adds=[], removes=[], transactions=[])
            self._yield_to(blind)

    patch.setattr(CommitLoop, "_catch_up", catch_up)


# -------------------------------------------------------------------------------------- after and beside the commit


@mutant("I5")
def lets_a_failed_hook_fail_the_commit(patch: Patch) -> None:
    for module in (hooks, transaction):
        patch.setattr(module, "standing", lambda *_: contextlib.nullcontext())


@mutant("I4", kinds={**KINDS, "append rows": 200})
def removes_its_files_when_the_outcome_is_unknown(patch: Patch) -> None:
    real = Transaction.commit

    @functools.wraps(real)
    def tidy(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return real(self, *args, **options)
        except CommitStateUnknownError:
            self._row_writer.discard()
            raise

    patch.setattr(Transaction, "commit", tidy)


@mutant("I14")
def takes_the_checkpoint_hint_for_the_tip(patch: Patch) -> None:
    real = LogReader.list_latest

    def to_the_hint(self: Any) -> Any:
        listing = real(self)
        last = listing.checkpoints[-1].version if listing.checkpoints else None
        if last is None:
            return listing
        return dataclasses.replace(listing, commits=tuple(v for v in listing.commits if v <= last))

    patch.setattr(LogReader, "list_latest", to_the_hint)


@mutant("I14", "I16")
def names_the_checkpoint_after_the_next_version(patch: Patch) -> None:
    path = checkpoint.checkpoint_path
    patch.setattr(checkpoint, "checkpoint_path", lambda version: path(version + 1))


@mutant("I9", "I14", kinds={**KINDS, "application": 150, "checkpoint": 30}, checkpoints=1.0)
def forgets_application_ids_in_checkpoints(patch: Patch) -> None:
    real: Any = CheckpointReader.state

    def forget(self: Any) -> Any:
        return dataclasses.replace(real(self), transactions={})

    patch.setattr(CheckpointReader, "state", forget)
    patch.setattr(hooks, "_write_checksum", lambda *args: None)  # which would tell them too


@mutant("I14")
def lists_through_a_cache(patch: Patch) -> None:
    """What was listed once is listed so again."""
    patch.options["wrap"] = lambda store: CachedListing(store)


# ------------------------------------------------------------------------------------------------------------ rows


@mutant("R1", run=run_row_schedule, features=["write serializable"], kinds={"restore": 2, "append": 3}, writers=3)
def restores_past_appends_where_the_table_allows_that(patch: Patch) -> None:
    patch.setattr(StagedActions, "require_serializable", lambda self: None)


@mutant("R1", run=run_row_schedule)
def forgets_what_it_looked_for(patch: Patch) -> None:
    def check(prepared: Any, winner: Any, *rest: Any) -> Any:
        reads = dataclasses.replace(prepared.reads, predicates=())
        REAL_CHECK_ADDED(dataclasses.replace(prepared, reads=reads), winner, *rest)

    patch.setattr(conflicts, "_check_added", check)


@mutant("R1", run=run_row_schedule)
def judges_new_files_by_the_wrong_end_of_their_bounds(patch: Patch) -> None:
    real = data_skipping.prune
    patch.setattr(conflicts, "prune", lambda files, predicate, *rest: real(files, complement(predicate), *rest))


@mutant("R1", run=run_row_schedule, features=["vectors"])
def masks_rows_without_those_that_a_winner_masked(patch: Patch) -> None:
    """As who merges vectors when planning, and lets a file that only lost rows pass."""

    def unmasked(winner: Any) -> Any:
        masked = {add.path for add in winner.adds if add.deletion_vector is not None}
        adds, removes = ([a for a in some if a.path not in masked] for some in (winner.adds, winner.removes))
        return dataclasses.replace(winner, adds=adds, removes=removes)

    patch.setattr(conflicts, "_check_added", lambda ours, won, *rest: REAL_CHECK_ADDED(ours, unmasked(won), *rest))
    patch.setattr(conflicts, "_check_removed", lambda ours, won, url: REAL_CHECK_REMOVED(ours, unmasked(won), url))


@mutant("R1", run=run_row_schedule)
def lets_moved_files_be_removed(patch: Patch) -> None:
    def check(prepared: Any, winner: Any, table: Any) -> Any:
        removes = [remove for remove in winner.removes if remove.data_change]
        REAL_CHECK_REMOVED(prepared, dataclasses.replace(winner, removes=removes), table)

    patch.setattr(conflicts, "_check_removed", check)


@mutant("R1", run=run_row_schedule)
def replaces_partitions_without_reading_them(patch: Patch) -> None:
    real = Transaction.replace_partitions

    @functools.wraps(real)
    def unread(self: Any) -> Any:
        try:
            return real(self)
        finally:
            self.staged._predicates.clear()

    patch.setattr(Transaction, "replace_partitions", unread)


@mutant("R1", run=run_row_schedule)
def restores_without_reading_the_table(patch: Patch) -> None:
    patch.setattr(Transaction, "read_whole_table", lambda self: None)


@mutant("R1", run=run_row_schedule, features=["write serializable"])
def calls_every_change_of_rows_a_blind_append(patch: Patch) -> None:
    patch.setattr(Prepared, "is_blind_append", property(lambda self: True))
    patch.setattr(conflicts, "_is_blind_append", lambda commit: commit.commit_info.body["isBlindAppend"])


@mutant("R3", run=run_row_schedule, features=["row ids"])
def gives_out_the_row_ids_of_the_first_attempt(patch: Patch) -> None:
    def rebase(prepared: Any, base: Any, *rest: Any) -> Any:
        rebased = REAL_REBASE(prepared, base, *rest)
        return dataclasses.replace(rebased, row_id_high_water_mark=base.row_id_high_water_mark)

    patch.setattr(commit, "rebase", rebase)


@mutant("R3", run=run_row_schedule, features=["row ids"])
def gives_moved_rows_new_ids(patch: Patch) -> None:
    patch.setattr(rewrite.row_tracking, "kept_columns", lambda configuration, table: ())


@mutant("R2", run=run_row_schedule, kinds={"append": 3, "add constraint": 2}, writers=3)
def appends_again_without_looking_at_new_constraints(patch: Patch) -> None:
    patch.setattr(conflicts, "_constraints", lambda metadata: {})


@mutant("R3", run=run_row_schedule, features=["row ids later"], kinds={"delete": 2, "alter": 3}, writers=3)
def moves_rows_past_the_commit_that_turns_row_ids_on(patch: Patch) -> None:
    patch.setattr(Prepared, "may_move_rows", property(lambda self: False))


@mutant("R1", run=run_row_schedule, kinds={"append": 1, "restore": 3, "domain": 3})
def restores_past_a_change_of_domains(patch: Patch) -> None:
    patch.setattr(StagedActions, "read_all_domains", lambda self: None)


@mutant("R4", run=run_row_schedule, features=["changes"])
def tells_moved_rows_as_changes(patch: Patch) -> None:
    patch.setattr(rewrite, "_tells_changes", lambda transaction: False)


@mutant("R5", run=run_row_schedule, features=["vectors"])
def reads_rows_that_vectors_deleted(patch: Patch) -> None:
    real = scan._rows
    patch.setattr(scan, "_rows", lambda files: ({**row, "deletion_vector": None} for row in real(files)))


@mutant("R6", run=run_row_schedule)
def does_not_record_a_run_that_found_nothing_to_do(patch: Patch) -> None:
    real = table.delete

    def delete(transaction: Any, where: Any, user_metadata: Any, txn: Any) -> Any:
        if not writes.is_recorded(transaction, txn) and rewrite.plan(transaction, where).is_empty:
            return transaction_module.skipped(transaction)
        return real(transaction, where, user_metadata, txn)

    patch.setattr(table, "delete", delete)


@mutant("R6", run=run_row_schedule)
def plans_on_what_it_remembers(patch: Patch) -> None:
    real = DeltaTable.transaction

    def remembered(self: Any, **options: Any) -> Any:
        found = real(self, **options)
        changes = found.metadata_changes
        changes.base = self._first = getattr(self, "_first", None) or changes.base
        return found

    patch.setattr(DeltaTable, "transaction", remembered)


class LookThenPut(WrappedStore[LogStore]):
    """What it saw is one round old: the time between the test and the write."""

    def __init__(self, inner: LogStore) -> None:
        super().__init__(inner)
        self._waiting: dict[str, int] = {}

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        taken = self._waiting.get(path, 0)
        self._waiting[path] = taken + 1
        if taken >= 2:
            return PutOutcome.EXISTS
        self.inner.put(path, data)
        return PutOutcome.COMMITTED


class TwoParts(WrappedStore[LogStore]):
    """The name is there before the bytes are."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = self.inner.put_if_absent(path, data[: len(data) // 2])
        if outcome is PutOutcome.COMMITTED:
            self.inner.put(path, data)
        return outcome


class CachedListing(WrappedStore[LogStore]):
    """Every third listing is taken from the store."""

    def __init__(self, inner: LogStore) -> None:
        super().__init__(inner)
        self._listings: dict[str, list[FileMeta]] = {}
        self._asked = 0

    def list_from(self, directory: str, start: str = "", *, stat: bool = True) -> list[FileMeta]:
        if directory not in self._listings or self._asked % 3 == 0:
            self._listings[directory] = self.inner.list_from(directory, stat=True)
        self._asked += 1
        return [meta for meta in self._listings[directory] if meta.name >= start]
