"""Builds the commit file of one version from a prepared transaction and the version that precedes it. Pure.

Spec: PROTOCOL.md#delta-log-entries, #in-commit-timestamps, #commit-provenance-information, #row-tracking,
#writer-requirements-for-in-commit-timestamps, #identity-columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from deltalog.commit.base import Base
from deltalog.commit.prepared import Prepared
from deltalog.commit_result import CommitResult
from deltalog.errors import InvalidActionError, InvalidCommitError
from deltalog.log.commit_summary import ANNOTATIONS_KEY
from deltalog.protocol import features, row_tracking, timestamps
from deltalog.protocol.actions import AddFile, CommitInfo, DomainMetadata, Metadata, Protocol
from deltalog.protocol.codec import AnyAction, CommitActions, canonical_json, decode_commit, encode_commit
from deltalog.protocol.identity_columns import only_marks_differ
from deltalog.version import ENGINE_INFO

# By this tag, delta-spark recognises a metadata change that does not conflict with row changes.
_MARKS_ONLY = {"delta.identity.schemaUpdate": "true"}
# If a commit has more file actions than this, the actions are not decoded again.
_MANY = 1000


class Landed(NamedTuple):
    """A commit in the log. The fields of this tuple are the arguments of ``LogSnapshot.after``, in order."""

    actions: CommitActions
    in_commit_timestamp_ms: int | None  # None if in-commit timestamps are disabled
    written: frozenset[str] = frozenset()  # paths of the files written for this commit, which no earlier version names


class Attempt(msgspec.Struct, frozen=True):
    """The commit file for one version, not committed yet.

    ``data``: its bytes. ``actions``: the actions in ``data``, decoded. ``timestamp_ms``: the timestamp in the
    commitInfo, in milliseconds since 1970. ``in_commit_timestamp_ms``: equal to ``timestamp_ms`` if in-commit
    timestamps are enabled, else None. ``protocol``: the protocol of this version, whether this commit or an earlier one
    sets it. ``base``: the version that it follows.
    """

    prepared: Prepared
    data: bytes
    actions: CommitActions
    timestamp_ms: int
    in_commit_timestamp_ms: int | None
    protocol: Protocol
    base: Base

    @property
    def version(self) -> int:
        return self.actions.version

    @property
    def landed(self) -> Landed:
        """This attempt as a commit in the log, for use once it is committed."""
        return Landed(self.actions, self.in_commit_timestamp_ms, frozenset(self.prepared.written))

    def as_base(self, followed: Base) -> Base:
        """The version that this attempt commits, used as the base of the next attempt. ``followed``: the base version
        on which this attempt was built."""
        actions = self.actions
        return Base(
            self.version,
            actions.protocol or followed.protocol,
            actions.metadata or followed.metadata,
            timestamps.previous_timestamp(self.in_commit_timestamp_ms, None),
            row_tracking.high_water_mark(actions.domains, followed.row_id_high_water_mark),
        )

    def result(self, attempts: int = 1) -> CommitResult:
        """The result for the caller once this attempt is committed. ``attempts``: the number of versions that this
        commit has attempted so far, including this one."""
        return CommitResult(
            self.version,
            self.timestamp_ms,
            self.in_commit_timestamp_ms,
            attempts,
            self.prepared.txn_id,
            self.prepared.reported_metrics,
            self.prepared.operation,
        )


def build_attempt(prepared: Prepared, base: Base, clock_ms: int) -> Attempt:
    """Build the commit file for the version after ``base``. Pure.

    Sets the in-commit timestamp. Adds the enablement pair to the metadata if this commit enables in-commit timestamps,
    and removes it if this commit disables them. Assigns row ids if the table tracks rows. ``clock_ms``: the time of the
    attempt, in milliseconds since 1970. Raises InvalidActionError if the commit could not be read back.
    Spec: PROTOCOL.md#in-commit-timestamps, #row-tracking.
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
    if staged_metadata is not None and _moves_marks_only(base.metadata, staged_metadata):
        info["tags"] = _MARKS_ONLY
    adds, domains = _with_row_ids(prepared, base, row_tracking.assigns_ids(protocol, metadata.configuration))
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
    return Attempt(prepared, data, grouped, timestamp_ms, ict_ms, protocol, base)


def _encoded(info: dict[str, Any], actions: Sequence[AnyAction | bytes], checked: Any, version: int) -> bytes:
    """The bytes of the commit file. ``checked``: those of the ``actions`` that are decoded again before the commit.
    Adds and removes are left out if there are very many of them: the adds were decoded when they were staged, and the
    removes were built from actions read from the log. Raises InvalidActionError."""
    try:
        data = encode_commit(info, actions)
        read_back = decode_commit(data if checked is actions else encode_commit(info, checked), version)
    except InvalidCommitError as error:
        raise InvalidActionError(f"This commit could not be read back and was not sent: {error}") from error
    if read_back.commit_info is None or read_back.commit_info.txn_id != info["txnId"]:
        raise InvalidActionError("This commit could not be identified by its txnId and was not sent.")
    return data


def _with_row_ids(prepared: Prepared, base: Base, assigns: bool) -> tuple[Sequence[AddFile], list[DomainMetadata]]:
    """The add actions and the metadata domains, with row ids added to the add actions if this version ``assigns`` row
    ids."""
    domains = list(prepared.domains)
    if not assigns:
        return prepared.adds, domains
    before = base.row_id_high_water_mark
    adds, mark = row_tracking.with_row_ids(prepared.adds, before, base.version + 1)
    if mark != before:
        domains.append(row_tracking.domain_metadata(mark))
    return adds, domains


def _moves_marks_only(before: Metadata | None, after: Metadata) -> bool:
    if before is None or msgspec.structs.replace(after, schema_string=before.schema_string) != before:
        return False
    return only_marks_differ(before.schema, after.schema)


def _stamped(metadata: Metadata, base: Base, version: int, ict_ms: int | None) -> Metadata:
    if ict_ms is not None and not base.is_ict_active:
        configuration = timestamps.enabling_configuration(metadata.configuration, version, ict_ms)
    elif ict_ms is None and (base.is_ict_active or version == 0):
        configuration = timestamps.without_pair(metadata.configuration)
    else:
        return metadata
    return metadata.with_configuration(configuration)


def _commit_info(prepared: Prepared, base: Base, timestamp_ms: int, ict_ms: int | None) -> dict[str, Any]:
    info: dict[str, Any] = {} if ict_ms is None else {"inCommitTimestamp": ict_ms}
    given = prepared.commit_info
    info.update({key: value for key, value in given.items() if key != "operationParameters"})
    info["timestamp"] = timestamp_ms
    if prepared.user_metadata is not None:
        info["userMetadata"] = prepared.user_metadata
    info["operation"] = prepared.operation
    info["operationParameters"] = {
        key: value if isinstance(value, str) else canonical_json(value)
        for key, value in {**given.get("operationParameters", {}), **prepared.parameters}.items()
    }
    if base.version >= 0 and "readVersion" not in given:
        info["readVersion"] = base.version
    info["isolationLevel"] = prepared.isolation_level
    info["isBlindAppend"] = prepared.is_blind_append
    info["operationMetrics"] = {key: str(value) for key, value in prepared.metrics.items()}
    info["engineInfo"] = ENGINE_INFO
    info["txnId"] = prepared.txn_id
    if prepared.annotations is not None:
        info[ANNOTATIONS_KEY] = {"parent": base.version if base.version >= 0 else None, **prepared.annotations}
    return info
