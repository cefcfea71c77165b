"""Restarts the in-commit timestamps of a table if the last timestamp is so far ahead that no commit can follow.

A catalog-managed table cannot disable and re-enable in-commit timestamps. Instead, a commit sets its own version and
timestamp as the new enablement version and timestamp. Readers then use file times for the versions before the new
enablement version.

Spec: PROTOCOL.md#in-commit-timestamps.
"""

from __future__ import annotations

import dataclasses

from deltalog.catalog.committer import discard_commits, publish, stage
from deltalog.catalog.records import Proposal, Ratification, TableRecord
from deltalog.commit.attempt import Attempt, build_attempt
from deltalog.commit.hooks import errors_logged
from deltalog.commit.loop import base_of
from deltalog.commit.prepared import Prepared
from deltalog.environment import Environment
from deltalog.errors import CallError, ConcurrentModificationError, DeltaLogError, Outcome
from deltalog.log.reader import LogReader
from deltalog.protocol import timestamps
from deltalog.protocol.actions import Metadata
from deltalog.protocol.properties import ENABLEMENT_TIMESTAMP_KEY, ENABLEMENT_VERSION_KEY
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.transactions.managed_tables import ManagedTables

_TRIES = 20


def restart(tables: ManagedTables, record: TableRecord, environment: Environment) -> int:
    """See ``TransactionManager.restart_timestamps``."""
    coordinator, store = tables.coordinator, tables.plain_store(record.url)
    for number in range(_TRIES):
        environment.back_off(number)
        tables.publish(record)  # readers will resolve these versions by file time
        snapshot = tables.handle(record).refresh()
        attempt = _attempt(snapshot, store, environment)
        assert attempt.in_commit_timestamp_ms is not None
        coordinator.check_time(record.url, attempt.in_commit_timestamp_ms)
        commit = stage(store, coordinator, record.table_id, attempt, environment.new_uuid)
        try:
            decision = coordinator.ratify(Proposal({record.table_id: (commit,)}))
        except DeltaLogError as error:  # not after an interrupt, because the commit may have been ratified
            if error.outcome is not Outcome.UNKNOWN:
                discard_commits(store, [commit])
            raise
        if decision is Ratification.RATIFIED:
            fact = f"{record.url}: version {commit.version} is committed"
            with errors_logged(fact, "publication of the commit (the next commit publishes it)"):
                publish(store, coordinator, record.table_id)
            return commit.version
        discard_commits(store, [commit])
    raise ConcurrentModificationError(
        f"{record.name}: another commit landed before every attempt to restart its timestamps. Nothing was changed: "
        "call again."
    )


def _attempt(snapshot: Snapshot, store: LogStore, environment: Environment) -> Attempt:
    """Raises CallError if the table's last timestamp is not ahead of the clock."""
    base, now_ms = base_of(snapshot.log), environment.clock_ms()
    if base.previous_ms is None or base.previous_ms <= now_ms:
        raise CallError(
            f"{snapshot.url}: the in-commit timestamp of version {snapshot.version} is not ahead of the clock, "
            f"{timestamps.describe(now_ms)}, so there is nothing to restart. Nothing was changed."
        )
    # File times are used for versions before the enablement.
    at_ms = timestamps.next_timestamp(now_ms, LogReader(store).file_time_ms(snapshot.version))
    prepared = Prepared(
        environment.new_uuid(),
        "SET TBLPROPERTIES",
        {"properties": _pair(snapshot, at_ms)},
        metadata=_with_pair(snapshot, at_ms),
    )
    return build_attempt(prepared, dataclasses.replace(base, previous_ms=None), at_ms)


def _pair(snapshot: Snapshot, at_ms: int) -> dict[str, str]:
    return {ENABLEMENT_VERSION_KEY: str(snapshot.version + 1), ENABLEMENT_TIMESTAMP_KEY: str(at_ms)}


def _with_pair(snapshot: Snapshot, at_ms: int) -> Metadata:
    metadata = snapshot.metadata
    return metadata.with_configuration({**metadata.configuration, **_pair(snapshot, at_ms)})
