"""Faults put into the real commit code on purpose: each must be found, or the tests of it prove little.

Every mutant replaces a function or a method of the library (or wraps the store) in a way that a writer of such
code might have got wrong, and that real ones have. It must be found within MAX_SEEDS schedules, by an invariant
that says what is wrong; the same schedules of the unchanged code must be clean.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field

import pytest

from deltalog.errors import CommitConflictError, CommitStateUnknownError, StoreError
from deltalog.log import checkpoint
from deltalog.log.reader import LogReader
from deltalog.spec import timestamps
from deltalog.storage.base import LogStore, PutOutcome
from deltalog.testing.scheduler import ScheduleStuckError
from deltalog.testing.simulation import KINDS, run_schedule
from deltalog.write import commit, conflicts, hooks, transaction
from deltalog.write.commit import Committer
from deltalog.write.transaction import Transaction

MAX_SEEDS = 400

REAL_SETTLE = Committer._settle
REAL_CHECK_FILES = conflicts._check_files
REAL_REBASE = commit.rebase


@dataclass
class Mutant:
    """``apply`` makes the change; ``invariants``: any of these must be found broken."""

    name: str
    apply: object
    invariants: set[str]
    options: dict = field(default_factory=dict)


MUTANTS: list[Mutant] = []


def mutant(*invariants, **options):
    def register(apply):
        MUTANTS.append(Mutant(apply.__name__, apply, set(invariants), options))
        return apply

    return register


# --------------------------------------------------------------------------------- who has the version, and is it us?


@mutant("I5", "I6", "I10")
def does_not_look_for_its_own_txn_id(patch):
    patch.setattr(Committer, "_is_ours", lambda self, occupant: False)


@mutant("I5")
def takes_exists_for_a_conflict(patch):
    def settle(self, attempt, outcome):
        if outcome is PutOutcome.EXISTS:
            raise CommitConflictError("somebody was faster", winning_version=attempt.actions.version)
        return REAL_SETTLE(self, attempt, outcome)

    patch.setattr(Committer, "_settle", settle)


@mutant("I5")
def takes_unknown_for_failure(patch):
    def settle(self, attempt, outcome):
        if outcome is PutOutcome.UNKNOWN:
            raise StoreError("the store did not answer", path="")
        return REAL_SETTLE(self, attempt, outcome)

    patch.setattr(Committer, "_settle", settle)


@mutant("I4")
def takes_unknown_for_success(patch):
    def settle(self, attempt, outcome):
        return None if outcome is PutOutcome.UNKNOWN else REAL_SETTLE(self, attempt, outcome)

    patch.setattr(Committer, "_settle", settle)


@mutant("I2", "I6", "I7")
def goes_to_the_next_version_after_unknown(patch):
    def settle(self, attempt, outcome):
        if outcome is PutOutcome.UNKNOWN:
            version = attempt.actions.version
            return dataclasses.replace(
                attempt.actions, commit_info=None, protocol=None, metadata=None, adds=[], removes=[], transactions=[]
            ) if version else REAL_SETTLE(self, attempt, outcome)  # fmt: skip
        return REAL_SETTLE(self, attempt, outcome)

    def rebase(prepared, base, winner, *rest):
        if winner.commit_info is None:
            return dataclasses.replace(base, version=winner.version)
        return REAL_REBASE(prepared, base, winner, *rest)

    patch.setattr(Committer, "_settle", settle)
    patch.setattr(commit, "rebase", rebase)


@mutant("I5")
def reads_back_once_and_believes_that_absent_is_for_ever(patch):
    def settle(self, attempt, outcome):
        if outcome is PutOutcome.UNKNOWN and self._store.head(commit.commit_path(attempt.actions.version)) is None:
            raise StoreError("the store lost the request", path="")
        return REAL_SETTLE(self, attempt, outcome)

    patch.setattr(Committer, "_settle", settle)


@mutant("I5")
def gives_up_with_an_error_that_says_failed(patch):
    patch.setattr(Committer, "_unknown", lambda self, attempt, cause: StoreError("the store is gone", path=""))


@mutant("I6")
def takes_a_new_txn_id_for_each_attempt(patch):
    yield_to = Committer._yield_to

    def renew(self, winner):
        yield_to(self, winner)
        self._prepared = dataclasses.replace(self._prepared, txn_id=self._environment.new_uuid())

    patch.setattr(Committer, "_yield_to", renew)


@mutant("I1")
def looks_and_then_writes(patch):
    """A store that tests for the name and then puts: two can pass the test before either writes."""
    patch.options["wrap"] = lambda store: LookThenPut(store)


@mutant("I3")
def writes_in_two_parts(patch):
    """A store that creates the name first and then the bytes."""
    patch.options["wrap"] = lambda store: TwoParts(store)


# ------------------------------------------------------------------------------------------------------ timestamps


@mutant("I8")
def takes_the_clock_as_it_is(patch):
    patch.setattr(timestamps, "next_timestamp", lambda clock_ms, previous_ms: clock_ms)


@mutant("I8")
def keeps_the_timestamp_of_the_first_attempt(patch):
    build, first = commit.build_attempt, {}

    def stamped_once(prepared, base, clock_ms):
        floor = first.setdefault(prepared.txn_id, (clock_ms, base.previous_ms))
        return build(prepared, dataclasses.replace(base, previous_ms=floor[1]), floor[0])

    patch.setattr(commit, "build_attempt", stamped_once)


@mutant("I8", table="late", policy="random", fault_rate=0.04)
def does_not_stamp_the_enablement_pair_again(patch):
    build, enabling, first, current = commit.build_attempt, timestamps.enabling_configuration, {}, [None]

    def remember(prepared, base, clock_ms):
        current[0] = prepared.txn_id
        return build(prepared, base, clock_ms)

    def stale(configuration, version, ict_ms):
        return enabling(configuration, *first.setdefault(current[0], (version, ict_ms)))

    patch.setattr(commit, "build_attempt", remember)
    patch.setattr(timestamps, "enabling_configuration", stale)


@mutant("I8")
def enables_without_looking_at_the_file_times(patch):
    patch.setattr(Transaction, "_last_file_time_ms", lambda self, snapshot: None)


@mutant("I8", table="late", policy="random", fault_rate=0.04)
def enables_after_a_winner_without_its_file_time(patch):
    def rebase(prepared, base, winner, winner_file_time_ms, table):
        return REAL_REBASE(prepared, base, winner, None if winner_file_time_ms is None else 0, table)

    patch.setattr(commit, "rebase", rebase)


@mutant("I8")
def does_not_put_commit_info_first(patch):
    encode = commit.encode_commit

    def last(info, actions):
        lines = encode(info, actions).splitlines(keepends=True)
        return b"".join(lines[1:] + lines[:1])

    patch.setattr(commit, "encode_commit", last)


# ------------------------------------------------------------------------------------------------------- conflicts


@mutant("I10")
def does_not_look_for_files_removed_twice(patch):
    def check(prepared, winner, table):
        whole = dataclasses.replace(prepared, removes=(), reads=dataclasses.replace(prepared.reads, files=frozenset()))
        REAL_CHECK_FILES(whole, winner, table)

    patch.setattr(conflicts, "_check_files", check)


@mutant("I11")
def overwrites_what_it_has_not_read(patch):
    def check(prepared, winner, table):
        part = dataclasses.replace(prepared, reads=dataclasses.replace(prepared.reads, whole_table=False))
        REAL_CHECK_FILES(part, winner, table)

    patch.setattr(conflicts, "_check_files", check)


@mutant("I12", kinds={**KINDS, "property": 150})
def overwrites_the_properties_of_a_winner(patch):
    def after(prepared, base, winner, table):
        return base if winner.metadata is None else winner.metadata

    patch.setattr(conflicts, "_metadata_after", after)


@mutant("I9", kinds={**KINDS, "application": 100})
def does_not_look_at_application_ids(patch):
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
def catches_up_without_looking(patch):
    def catch_up(self):
        listed = self._reader.list_from(self._base.version + 1).commits
        for winner in self._reader.commits(listed):
            blind = dataclasses.replace(winner, adds=[], removes=[], transactions=[])
            self._yield_to(blind)

    patch.setattr(Committer, "_catch_up", catch_up)


# -------------------------------------------------------------------------------------- after and beside the commit


@mutant("I5")
def lets_a_failed_hook_fail_the_commit(patch):
    def after_commit(snapshot, result, environment):
        hooks._write_checksum(snapshot, result)
        if hooks._is_checkpoint_due(snapshot):
            return snapshot.rebased_on(checkpoint.write_checkpoint(snapshot, environment.clock_ms()))
        return snapshot

    patch.setattr(transaction, "after_commit", after_commit)


@mutant("I4", kinds={**KINDS, "append rows": 200})
def removes_its_files_when_the_outcome_is_unknown(patch):
    real = Transaction.commit

    @functools.wraps(real)
    def tidy(self, *args, **options):
        try:
            return real(self, *args, **options)
        except CommitStateUnknownError:
            transaction.discard(self.reader.store, self._own_files)
            raise

    patch.setattr(Transaction, "commit", tidy)


@mutant("I14")
def takes_the_checkpoint_hint_for_the_tip(patch):
    real = LogReader.list_latest

    def to_the_hint(self):
        listing = real(self)
        last = listing.checkpoints[-1].version if listing.checkpoints else None
        if last is None:
            return listing
        return dataclasses.replace(listing, commits=tuple(v for v in listing.commits if v <= last))

    patch.setattr(LogReader, "list_latest", to_the_hint)


@mutant("I14", "I16")
def names_the_checkpoint_after_the_next_version(patch):
    path = checkpoint.checkpoint_path
    patch.setattr(checkpoint, "checkpoint_path", lambda version: path(version + 1))


class Wrapped(LogStore):
    """Passes everything on."""

    def __init__(self, inner):
        self.inner, self.url = inner, inner.url

    def __getattribute__(self, name):
        own = ("inner", "url", "put_if_absent", "_waiting", "__class__", "get_many", "get")
        return object.__getattribute__(self, name) if name in own else getattr(self.inner, name)

    def put_if_absent(self, path, data):
        return self.inner.put_if_absent(path, data)

    def get(self, path, length=None):
        return self.inner.get(path, length)

    put = list_from = head = delete = open_input = open_output = sync = None


class LookThenPut(Wrapped):
    """What it saw is one round old: the time between the test and the write."""

    def __init__(self, inner):
        super().__init__(inner)
        self._waiting = {}

    def put_if_absent(self, path, data):
        taken = self._waiting.get(path, 0)
        self._waiting[path] = taken + 1
        if taken >= 2:
            return PutOutcome.EXISTS
        self.inner.put(path, data)
        return PutOutcome.COMMITTED


class TwoParts(Wrapped):
    def put_if_absent(self, path, data):
        outcome = self.inner.put_if_absent(path, data[: len(data) // 2])
        if outcome is PutOutcome.COMMITTED:
            self.inner.put(path, data)
        return outcome


class Patch:
    """monkeypatch, and what the schedules of this mutant are run with."""

    def __init__(self, monkeypatch, options):
        self.setattr, self.options = monkeypatch.setattr, options


CLEAN: dict[tuple[int, str], list[str]] = {}


def unchanged(seed, options):
    """The violations of the unchanged code; run once for each seed and options."""
    key = (seed, repr(options))
    if key not in CLEAN:
        CLEAN[key] = [str(violation) for violation in run_schedule(seed, **options).violations]
    return CLEAN[key]


def first_find(each, options):
    """The first seed that finds the mutant, and what it finds."""
    for seed in range(MAX_SEEDS):
        try:
            result = run_schedule(seed, **options)
        except ScheduleStuckError:
            continue  # it hangs, but nothing is known to be wrong yet
        if each.invariants & {violation.invariant for violation in result.violations}:
            return seed, result.violations
    pytest.fail(f"{each.name} was not found in {MAX_SEEDS} schedules")


@pytest.mark.parametrize("each", MUTANTS, ids=lambda each: each.name)
def test_is_found(each, capsys):
    options = dict(each.options)
    with pytest.MonkeyPatch.context() as monkeypatch:
        each.apply(Patch(monkeypatch, options))
        seed, violations = first_find(each, options)
    for other in range(seed + 1):
        assert not unchanged(other, each.options), f"the unchanged code fails on seed {other}"
    with capsys.disabled():
        broken = sorted({v.invariant for v in violations} & each.invariants)
        print(f"\n[mutant] {each.name}: found at seed {seed} by {', '.join(broken)}", end="")


def test_there_are_enough():
    assert len(MUTANTS) >= 20
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
    caught_by = set().union(*(each.invariants for each in MUTANTS))
    assert {"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I14"} <= caught_by
