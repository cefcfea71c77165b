"""Mutants of the commit loop, conflict detection, checkpoints and the store, for the schedules of ``simulation``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import msgspec

from deltalog.commit import attempt as attempts_module
from deltalog.commit import conflicts, hooks
from deltalog.commit import loop as commit_module
from deltalog.commit.committer import CommitOutcome, Exists, Unknown
from deltalog.commit.loop import CommitLoop
from deltalog.commit.prepared import Prepared
from deltalog.errors import CommitConflictError, CommitStateUnknownError, StoreError
from deltalog.log.checkpoint import writer as checkpoint_module
from deltalog.log.checkpoint.reader import CheckpointReader
from deltalog.log.reader import LogReader
from deltalog.protocol import timestamps
from deltalog.protocol.codec import decode_commit
from deltalog.storage.base import FileMeta, LogStore, PutOutcome
from deltalog.storage.wrapped import WrappedStore
from deltalog.write import transaction as transaction_module
from deltalog.write.transaction import Transaction
from tests.support.simulation.mutants import Mutant, Patch, adding_to
from tests.support.simulation.simulation import KINDS, run_schedule

# The mutants patch private attributes of these modules, so the modules are typed as Any.
checkpoint: Any = checkpoint_module
attempts: Any = attempts_module
commit: Any = commit_module
transaction: Any = transaction_module
# The original functions, for mutants that change only a part of a call.
REAL_SETTLE: Any = CommitLoop._settle
REAL_CHECK_ADDED: Any = conflicts._check_added
REAL_REBASE: Any = conflicts.rebase


MUTANTS: list[Mutant] = []

mutant = adding_to(MUTANTS, run_schedule)

# --------------------------------------------------------------------------------------- outcomes of a commit attempt


@mutant("I5", "I6", "I10")
def does_not_look_for_its_own_txn_id(patch: Patch) -> None:
    patch.setattr(CommitLoop, "_is_ours", lambda self, occupant: False)


def _answers(patch: Patch, mistaken: type[CommitOutcome], answer: Callable[[Any], Any]) -> None:
    """Patch the commit loop: if the outcome of an attempt has the type ``mistaken``, ``answer(attempt)`` replaces the
    loop's reaction."""

    def settle(self: Any, attempt: Any, outcome: Any) -> Any:
        return answer(attempt) if isinstance(outcome, mistaken) else REAL_SETTLE(self, attempt, outcome)

    patch.setattr(CommitLoop, "_settle", settle)


def _conflict(attempt: Any) -> Any:
    raise CommitConflictError("another writer won", winning_version=attempt.actions.version, winning_operation=None)


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
    """Treats an unknown outcome as a conflict, like a client that reports 409, 412 and a timeout as the same error."""
    _answers(patch, Unknown, _conflict)


@mutant("I4")
def takes_unknown_for_success(patch: Patch) -> None:
    _answers(patch, Unknown, lambda attempt: None)


@mutant("I2", "I6", "I7", remote=True)
def goes_to_the_next_version_after_unknown(patch: Patch) -> None:
    """Needs a remote store. On other stores, the check of the previous version refuses the next commit, because the
    previous version does not exist."""

    def settle(self: Any, attempt: Any, outcome: Any) -> Any:
        if isinstance(outcome, Unknown):
            version = attempt.actions.version
            return msgspec.structs.replace(
                attempt.actions, commit_info=None, protocol=None, metadata=None, adds=[], removes=[], transactions=[]
            ) if version else REAL_SETTLE(self, attempt, outcome)  # fmt: skip
        return REAL_SETTLE(self, attempt, outcome)

    def rebase(prepared: Any, base: Any, winner: Any, *rest: Any) -> Any:
        if winner.commit_info is None:
            return dataclasses.replace(base, version=winner.version)
        return REAL_REBASE(prepared, base, winner, *rest)

    patch.setattr(CommitLoop, "_settle", settle)
    patch.setattr(conflicts, "rebase", rebase)


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
    rebase_on = CommitLoop._rebase_on

    def renew(self: Any, *winner: Any) -> Any:
        rebase_on(self, *winner)
        self._prepared = dataclasses.replace(self._prepared, txn_id=self._environment.new_uuid())

    patch.setattr(CommitLoop, "_rebase_on", renew)


@mutant("I1")
def looks_and_then_writes(patch: Patch) -> None:
    """The store checks whether the name exists and then writes: two writers can both pass the check before either
    writes."""
    patch.options["wrap"] = lambda store: LookThenPut(store)


@mutant("I3")
def writes_in_two_parts(patch: Patch) -> None:
    """The store creates an empty file first and writes its bytes later."""
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

    patch.setattr(conflicts, "rebase", rebase)


@mutant("I8")
def does_not_put_commit_info_first(patch: Patch) -> None:
    encode = attempts.encode_commit

    def last(info: Any, actions: Any) -> Any:
        lines = encode(info, actions).splitlines(keepends=True)
        return b"".join(lines[1:] + lines[:1])

    patch.setattr(attempts, "encode_commit", last)


# ----------------------------------------------------------------------------------- mutants of the conflict check


@mutant("I10", policy="random", fault_rate=0.04, kinds={"remove": 3, "replace": 2})
def does_not_look_for_files_removed_twice(patch: Patch) -> None:
    patch.setattr(conflicts, "_check_removed", lambda prepared, winner, table: None)


@mutant("I11", policy="random", fault_rate=0.04, kinds={"append": 2, "overwrite": 3})
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
        for version, data in zip(listed, self._reader.commit_files(listed), strict=True):
            blind = msgspec.structs.replace(decode_commit(data, version), adds=[], removes=[], transactions=[])
            self._rebase_on(blind, data)

    patch.setattr(CommitLoop, "_catch_up", catch_up)


# --------------------------------------------------------------- mutants of the steps during and after the commit


@mutant("I5")
def lets_a_failed_hook_fail_the_commit(patch: Patch) -> None:
    for module in (hooks, transaction):
        patch.setattr(module, "errors_logged", lambda *_: contextlib.nullcontext())


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
        return msgspec.structs.replace(real(self), transactions={})

    patch.setattr(CheckpointReader, "state", forget)
    patch.setattr(hooks, "_write_checksum", lambda *args: None)  # version checksums would restore the ids


@mutant("I14", remote=True)
def lists_through_a_cache(patch: Patch) -> None:
    """A listing is served from a cache. Handles on a remote store list the log to find new versions; on a local disk
    they look up the next versions by name."""

    patch.options["wrap"] = lambda store: CachedListing(store)


class LookThenPut(WrappedStore[LogStore]):
    """Acts on an existence check that is out of date, as if time had passed between the check and the write."""

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
    """The file becomes visible before all its bytes are written."""

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        outcome = self.inner.put_if_absent(path, data[: len(data) // 2])
        if outcome is PutOutcome.COMMITTED:
            self.inner.put(path, data)
        return outcome


class CachedListing(WrappedStore[LogStore]):
    """Only every third listing is read from the store; the others come from the cache."""

    def __init__(self, inner: LogStore) -> None:
        super().__init__(inner)
        self._listings: dict[str, list[FileMeta]] = {}
        self._asked = 0

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        if directory not in self._listings or self._asked % 3 == 0:
            self._listings[directory] = self.inner.list_from(directory, stat=True)
        self._asked += 1
        return [meta for meta in self._listings[directory] if meta.name >= start][:limit]
