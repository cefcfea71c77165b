"""Turns a prepared transaction into exactly one commit.

The loop and its one rule: **a version is never left before it is known to be occupied.**

- The store says *committed*: done.
- The store says *exists*: the winner is read. If its txnId is ours, our request had arrived and only the
  answer was lost: done. Otherwise the conflict rules decide, and the next version is tried with a new
  in-commit timestamp.
- The store does not know: the version is read back. Ours: done. Another's: as above. Absent: the same bytes
  are sent to the same version again, so that a late arrival of the first request changes nothing. When this
  cannot be settled, CommitStateUnknownError tells version and txnId; it never says *failed*.

Spec: PROTOCOL.md#delta-log-entries, #in-commit-timestamps, #commit-provenance-information.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltalog.commit.conflicts import Base, Prepared, rebase, replace_configuration
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import (
    CommitAttemptsExhaustedError,
    CommitStateUnknownError,
    InvalidActionError,
    InvalidCommitError,
    ObjectNotFoundError,
    StoreError,
    VersionConflictError,
)
from deltalog.log.commit_summary import ANNOTATIONS_KEY
from deltalog.log.reader import LogReader
from deltalog.protocol import features, row_tracking, timestamps
from deltalog.protocol.actions import AddFile, CommitInfo, DomainMetadata, Metadata, Protocol
from deltalog.protocol.codec import AnyAction, CommitActions, canonical_json, decode_commit, encode_commit
from deltalog.protocol.paths import commit_path
from deltalog.storage.base import LogStore, PutOutcome
from deltalog.version import ENGINE_INFO

log = logging.getLogger(__name__)

# More file actions than these are not read back once more.
_MANY = 1000


class ClockDriftWarning(UserWarning):
    """The last commit's in-commit timestamp is far ahead of this machine's clock."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The bytes for one version, and the actions that they hold."""

    data: bytes
    actions: CommitActions
    timestamp_ms: int
    in_commit_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class Committed:
    """The result, with what a snapshot needs to follow: the winners passed on the way and our own commit."""

    result: CommitResult
    winners: list[CommitActions]
    attempt: Attempt


def build_attempt(prepared: Prepared, base: Base, clock_ms: int) -> Attempt:
    """The commit file for the version after ``base``. Pure.

    Stamps the in-commit timestamp, and the enablement pair where this commit turns them on; takes the pair
    away where it turns them off.
    """
    version = base.version + 1
    protocol = prepared.protocol or base.protocol
    metadata = prepared.metadata or base.metadata
    assert protocol is not None and metadata is not None
    will_be_active = features.is_ict_active(protocol, metadata)
    ict_ms = timestamps.next_timestamp(clock_ms, base.previous_ms) if will_be_active else None
    metadata = _stamped(metadata, base, version, ict_ms)
    staged_metadata = None if metadata == base.metadata else metadata
    timestamp_ms = clock_ms if ict_ms is None else ict_ms
    info = _commit_info(prepared, base, timestamp_ms, ict_ms)
    adds, domains = _with_row_ids(prepared, base, protocol)
    small: list[AnyAction | None] = [prepared.protocol, staged_metadata]
    known_lines = prepared.add_lines if adds is prepared.adds else None
    head: list[AnyAction | bytes] = [
        *(action for action in small if action is not None),
        *prepared.transactions,
        *domains,
    ]
    actions: list[AnyAction | bytes] = [
        *head,
        *prepared.removes,
        *(adds if known_lines is None else [known_lines]),
        *prepared.cdc,
    ]
    grouped = CommitActions(
        version,
        CommitInfo(info),
        True,
        prepared.protocol,
        staged_metadata,
        list(adds),
        list(prepared.removes),
        list(prepared.transactions),
        domains,
        list(prepared.cdc),
    )
    data = _encoded(info, actions, head if len(adds) + len(prepared.removes) > _MANY else actions, version)
    return Attempt(data, grouped, timestamp_ms, ict_ms)


def _encoded(info: dict[str, Any], actions: Sequence[AnyAction | bytes], looked_at: Any, version: int) -> bytes:
    """The commit file, of which ``looked_at`` is read back before anybody else reads it; long runs of adds were when
    they were staged, and those of removes are made of what was read. Raises InvalidActionError."""
    try:
        data = encode_commit(info, actions)
        read_back = decode_commit(data if looked_at is actions else encode_commit(info, looked_at), version)
    except InvalidCommitError as error:
        raise InvalidActionError(f"This commit could not be read back, and was not sent: {error}") from error
    if read_back.commit_info is None or read_back.commit_info.txn_id != info["txnId"]:
        raise InvalidActionError("This commit could not be identified by its txnId, and was not sent.")
    return data


def _with_row_ids(prepared: Prepared, base: Base, protocol: Protocol) -> tuple[Sequence[AddFile], list[DomainMetadata]]:
    """The adds and the domains, with the row ids that this version gives out where the table tracks rows; the adds
    themselves where it does not."""
    domains = list(prepared.domains)
    if row_tracking.FEATURE not in features.writer_features(protocol):
        return prepared.adds, domains
    before = base.row_id_high_water_mark
    adds, mark = row_tracking.with_row_ids(prepared.adds, before, base.version + 1)
    if mark != before:
        domains.append(row_tracking.domain_metadata(mark))
    return adds, domains


def _stamped(metadata: Metadata, base: Base, version: int, ict_ms: int | None) -> Metadata:
    if ict_ms is not None and not base.is_ict_active:
        configuration = timestamps.enabling_configuration(metadata.configuration, version, ict_ms)
    elif ict_ms is None and (base.is_ict_active or version == 0):
        configuration = timestamps.without_pair(metadata.configuration)
    else:
        return metadata
    return replace_configuration(metadata, configuration)


def _commit_info(prepared: Prepared, base: Base, timestamp_ms: int, ict_ms: int | None) -> dict[str, Any]:
    info: dict[str, Any] = {} if ict_ms is None else {"inCommitTimestamp": ict_ms}
    info["timestamp"] = timestamp_ms
    if prepared.user_metadata is not None:
        info["userMetadata"] = prepared.user_metadata
    info["operation"] = prepared.operation
    info["operationParameters"] = {
        key: value if isinstance(value, str) else canonical_json(value) for key, value in prepared.parameters.items()
    }
    if base.version >= 0:
        info["readVersion"] = base.version
    info["isolationLevel"] = prepared.isolation_level
    info["isBlindAppend"] = prepared.is_blind_append
    info["operationMetrics"] = {key: str(value) for key, value in prepared.metrics.items()}
    info["engineInfo"] = ENGINE_INFO
    info["txnId"] = prepared.txn_id
    if prepared.annotations is not None:
        info[ANNOTATIONS_KEY] = {"parent": base.version if base.version >= 0 else None, **prepared.annotations}
    return info


def unexpected_version(expected: int, latest: int | None, table: str) -> VersionConflictError:
    """The error of a write when the latest version (None: there is none) is not the one that its caller expects."""
    return VersionConflictError(
        f"{table}: version {expected} was expected to be the latest, but version {latest} is. Nothing was committed. "
        "Read the table again, and write again.",
        expected_parent=expected,
        read_version=expected,
        winning_version=latest,
        winning_operation=None,
    )


def rebased_on(prepared: Prepared, base: Base, winner: CommitActions, store: LogStore) -> Base:
    """The base after a winner. Raises as ``rebase``. Cost: 1 HEAD where the commit enables in-commit timestamps."""
    protocol, metadata = prepared.protocol or base.protocol, prepared.metadata or base.metadata
    will_be_active = protocol is not None and metadata is not None and features.is_ict_active(protocol, metadata)
    file_time_ms = None
    if will_be_active and not base.is_ict_active:
        meta = store.head(commit_path(winner.version))
        file_time_ms = 0 if meta is None else meta.modification_time_ms or 0
    return rebase(prepared, base, winner, file_time_ms, store.url)


def parent_taken(parent: int, winner: CommitActions, table: str) -> VersionConflictError:
    """What a commit that must follow ``parent`` (-1: no version) meets when another one does."""
    expected = parent if parent >= 0 else None
    return VersionConflictError(
        f"{table}: version {winner.version}, which was to follow {expected}, was taken by another writer. "
        "Nothing was committed. Look at latest(), and write again; or let retry_count do so.",
        expected_parent=expected,
        read_version=expected,
        winning_version=winner.version,
        winning_operation=None if winner.commit_info is None else winner.commit_info.operation,
    )


class CommitLoop:
    """Carries one prepared transaction through the loop. Used once."""

    def __init__(self, reader: LogReader, prepared: Prepared, base: Base, environment: Environment) -> None:
        self._reader = reader
        self._store = reader.store
        self._prepared = prepared
        self._base = base
        self._environment = environment
        self._winners: list[CommitActions] = []
        self._tried = 0  # versions

    def run(self) -> Committed:
        """Commit, or raise: CommitConflictError, TableExistsError, CommitAttemptsExhaustedError and StoreError
        when nothing was and will be committed, CommitStateUnknownError when that is not known.

        Cost: 1 PUT; for each version that another writer took, 1 GET and 1 PUT more, and 1 LIST from the
        second one in a row on.
        """
        retry = self._environment.retry
        for number in range(1, retry.max_attempts + 1):
            self._tried = number
            attempt = build_attempt(self._prepared, self._base, self._clock_ms())
            winner = self._try(attempt)
            if winner is None:
                return Committed(self._result(attempt, number), self._winners, attempt)
            if self._prepared.is_strict and number == retry.max_attempts:
                raise parent_taken(self._base.version, winner, self._store.url)
            self._yield_to(winner)
            # Waiting comes before looking: what was seen before a wait is old after it.
            self._environment.back_off(number - retry.immediate, retry.race_max_delay_ms)
            if number > 1:
                self._catch_up()
        raise CommitAttemptsExhaustedError(
            f"{self._store.url}: {retry.max_attempts} versions in a row were taken by other writers "
            f"(last: {self._base.version}). Nothing was committed. Try again, or use fewer writers."
        )

    def _clock_ms(self) -> int:
        now_ms = self._environment.clock_ms()
        ahead_ms = (self._base.previous_ms or now_ms) - now_ms
        if ahead_ms > self._environment.drift_warning_ms and self._base.is_ict_active:
            warnings.warn(
                f"{self._store.url}: the in-commit timestamp of version {self._base.version} is {ahead_ms} ms ahead "
                "of this machine's clock. Commits go on at +1 ms each; check the clocks of all writers.",
                ClockDriftWarning,
                stacklevel=2,
            )
        return now_ms

    def _try(self, attempt: Attempt) -> CommitActions | None:
        """None when the attempt is in the log, else the actions of the commit that has its version."""
        outcome = self._store.put_if_absent(commit_path(attempt.actions.version), attempt.data)
        if outcome is PutOutcome.COMMITTED:
            return None
        return self._settle(attempt, outcome)

    def _settle(self, attempt: Attempt, outcome: PutOutcome) -> CommitActions | None:
        version = attempt.actions.version
        path = commit_path(version)
        cause: Exception | None = None
        for number in range(self._environment.retry.settle_attempts):
            self._environment.back_off(number)
            try:
                occupant = decode_commit(self._store.get(path), version)
                return None if self._is_ours(occupant) else occupant
            except ObjectNotFoundError as error:
                # After EXISTS this is a store that forgot; after UNKNOWN the request has not (yet) arrived.
                cause = error
            except StoreError as error:
                cause = error
                continue
            try:
                outcome = self._store.put_if_absent(path, attempt.data)
            except StoreError as error:
                cause = error  # definite for this request; an earlier one may still arrive
                continue
            if outcome is PutOutcome.COMMITTED:
                return None
        raise self._unknown(attempt, cause)

    def _is_ours(self, occupant: CommitActions) -> bool:
        return occupant.commit_info is not None and occupant.commit_info.txn_id == self._prepared.txn_id

    def _unknown(self, attempt: Attempt, cause: Exception | None) -> CommitStateUnknownError:
        version = attempt.actions.version
        store, txn_id = self._store, self._prepared.txn_id
        result = self._result(attempt, self._tried)

        def resolve() -> CommitResult | None:
            try:
                occupant = decode_commit(store.get(commit_path(version)), version)
            except ObjectNotFoundError:
                return None
            return result if self._is_ours(occupant) else None

        error = CommitStateUnknownError(
            f"{store.url}: the store stopped answering while version {version} was being committed; whether it "
            f"landed is not known. Its txnId is {txn_id}. Call resolve() on this error when the store answers "
            "again; do not repeat the operation before that.",
            resolve=resolve,
            version=version,
            txn_id=txn_id,
        )
        error.__cause__ = cause
        return error

    def _yield_to(self, winner: CommitActions) -> None:
        """Take the winner as the new base, or raise what it makes wrong."""
        self._base = rebased_on(self._prepared, self._base, winner, self._store)
        self._winners.append(winner)

    def _catch_up(self) -> None:
        """Pass every commit that is already there in one go, instead of one failed PUT for each."""
        try:
            listed = self._reader.list_from(self._base.version + 1).commits
        except StoreError as error:
            log.debug("cannot list the log to catch up: %s", error)
            return
        expected = list(range(self._base.version + 1, self._base.version + 1 + len(listed)))
        if listed and list(listed) == expected:
            for winner in self._reader.commits(listed):
                self._yield_to(winner)

    def _result(self, attempt: Attempt, attempts: int) -> CommitResult:
        return CommitResult(
            attempt.actions.version,
            attempt.timestamp_ms,
            attempt.in_commit_timestamp_ms,
            attempts,
            self._prepared.txn_id,
            {key: str(value) for key, value in self._prepared.metrics.items()},
        )
