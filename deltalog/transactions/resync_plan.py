"""Compares a catalog with the logs of its tables, and plans which commits to add to the catalog and which transaction
records to correct.

``resync`` executes the plan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from deltalog.catalog import records
from deltalog.catalog.committer import changes_metadata
from deltalog.catalog.records import (
    Head,
    RatifiedCommit,
    StatusFilter,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
)
from deltalog.errors import (
    ConcurrentModificationError,
    CorruptTableError,
    DeltaLogError,
    InvalidActionError,
    ObjectNotFoundError,
    ResourceNotReadyError,
)
from deltalog.log.authority import Authority
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol import features
from deltalog.protocol.codec import CommitActions, decode_commit, first_commit_info
from deltalog.protocol.paths import (
    LOG_DIRECTORY,
    STAGED_COMMITS_DIRECTORY,
    LogFileKind,
    commit_name,
    commit_path,
    parse_log_file,
    staged_commit_name,
    staged_commit_path,
    version_prefix,
)
from deltalog.protocol.properties import UNITY_TABLE_ID_KEY
from deltalog.protocol.timestamps import required_ict
from deltalog.storage.base import LogStore
from deltalog.transactions.branch import place_in_transaction, transaction_of
from deltalog.transactions.external_commits import check_stays_managed
from deltalog.transactions.ledger import Ledger
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.release import is_released
from deltalog.transactions.transaction import CHANGES

_READ_AT_ONCE = 100
_CHECKPOINTS = (LogFileKind.CLASSIC_CHECKPOINT, LogFileKind.MULTI_PART_CHECKPOINT, LogFileKind.UUID_CHECKPOINT)
_KEEP_LOG = (
    "With --keep-log (keep_log=) the log's history is kept; commits that only the catalog has are then moved aside in "
    f"{STAGED_COMMITS_DIRECTORY}, and still name the files that they added."
)


@dataclass(frozen=True, slots=True)
class TableResync:
    """The differences between the catalog and the log of a table. ``catalog_version``, ``log_version``: the latest
    versions in the catalog and the log; -1 if there is no log. ``added``: the number of commits added to the catalog.
    ``in_doubt``: the names of staged commits of later versions that may have been ratified. ``problem``: why the table
    is left unchanged, and what to do."""

    name: str
    url: str
    catalog_version: int
    log_version: int
    added: int = 0
    in_doubt: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class MissingCommit:
    """A commit that is missing from the catalog. ``last_ms``: the timestamp that the transaction's last commits to all
    its tables share."""

    table_id: str
    commit: RatifiedCommit
    last_ms: int
    transaction: str | None = None

    @property
    def group(self) -> tuple[str, int]:
        """A key that groups commits: commits that must become visible together have the same key."""
        return (self.table_id, self.commit.version) if self.transaction is None else (self.transaction, self.last_ms)


@dataclass(slots=True)
class LogState:
    """The log of a table, and the table's state in the catalog."""

    record: TableRecord
    head: Head
    store: LogStore
    commits: set[int] = field(default_factory=set)
    checkpoint: int = -1
    staged: list[str] = field(default_factory=list)
    missing: list[MissingCommit] = field(default_factory=list)
    problem: str | None = None
    common: int | None = None  # the last version on which catalog and log agree, if lower than the catalog's version

    @property
    def version(self) -> int:
        return max(self.checkpoint, *self.commits, -1)

    @property
    def reached(self) -> int:
        """The catalog's version of the table after the missing commits have been added."""
        return self.head.version + len(self.missing)

    def report(self) -> TableResync:
        counted = {commit.file for commit in self.head.unpublished} | {each.commit.file for each in self.missing}
        later = (name for name in self.staged if name not in counted and _staged_version(name) > self.reached)
        added = 0 if self.problem else len(self.missing)
        return TableResync(
            self.record.name, self.record.url, self.head.version, self.version, added, tuple(later), self.problem
        )


@dataclass(slots=True)
class ResyncPlan:
    """The plan of a ``resync``: commits to add, and records to correct."""

    logs: dict[str, LogState]
    # For every transaction, the last version that it committed to each table; and the transactions that are undecided
    # in the catalog.
    committed: dict[str, dict[str, int]]
    overtaken: list[TransactionRecord]
    records: dict[str, TransactionRecord | None]

    @property
    def missing(self) -> list[MissingCommit]:
        return [each for log in self.logs.values() if log.problem is None for each in log.missing]

    def wrong_records(self) -> list[str]:
        """The committed transactions whose records in the catalog do not say so."""
        found = {id_: self.records.get(id_) for id_ in self.committed}
        return [id_ for id_, record in found.items() if not is_committed(record)]


def plan_resync(ledger: Ledger, tables: ManagedTables, staged: Collection[str]) -> ResyncPlan:
    """Plan a resync. ``staged``: the names of staged commits that the caller accepts. Cost: that of
    ``TransactionManager.resync`` without changes."""
    logs: dict[str, LogState] = {}
    for record in tables.all():
        head = _head(ledger, tables, record)
        if head is not None:
            log = logs[record.table_id] = LogState(record, head, tables.plain_store(record.url))
            _guarded(log, functools.partial(_read, ledger, tables, log))
    decided = {each.group for log in logs.values() for each in log.missing if each.transaction is not None}
    for log in logs.values():
        if log.problem is None:
            _guarded(log, functools.partial(_adopt, tables, log, decided, staged))
    return _with_records(ledger, logs)


def _head(ledger: Ledger, tables: ManagedTables, record: TableRecord) -> Head | None:
    """The head of a table. A backup may be inconsistent: commits that the table's head record lists as unpublished may
    be missing from the backup. In that case, the commits that are in the log are marked as published, and the head is
    read again."""
    try:
        return ledger.coordinator.head(record.table_id)
    except ConcurrentModificationError:
        log = LogState(record, Head(-1), tables.plain_store(record.url))
        _list(log, "")
        ledger.coordinator.published(record.table_id, log.version)
        return ledger.coordinator.head(record.table_id)


def _guarded(log: LogState, read: Callable[[], None]) -> None:
    """Run ``read``. An error that concerns one table is stored as the ``problem`` of that table, so that the error does
    not block the other tables."""
    try:
        read()
    except DeltaLogError as error:
        log.problem = error.message


def _read(ledger: Ledger, tables: ManagedTables, log: LogState) -> None:
    """Read a log. Cost: 2 LISTs, and 1 GET per commit that the catalog does not know to be published."""
    _list(log, version_prefix(max(log.head.published_version, 0)))
    if log.version < 0:
        _list(log, "")
    log.staged = sorted(log.store.list_names(STAGED_COMMITS_DIRECTORY))
    log.problem = _difference(log)
    if log.problem is not None:
        return
    versions = [version for version in sorted(log.commits) if version > log.head.version]
    if versions and is_released(LogReader(log.store), log.head.version):
        log.problem = _released(log.record.url, log.head.version)
        return
    for start in range(0, len(versions), _READ_AT_ONCE):
        some = versions[start : start + _READ_AT_ONCE]
        for version, data in zip(some, log.store.get_many([commit_path(each) for each in some]), strict=True):
            _extend(tables, log, version, data, staged_commit_name(version, ledger.environment.new_uuid()))
    if log.checkpoint > log.reached:
        _fill(log, log.checkpoint, log.missing[-1].last_ms + 1 if log.missing else 0)


def _list(log: LogState, start: str) -> None:
    for file in filter(None, map(parse_log_file, log.store.list_names(LOG_DIRECTORY, start))):
        if file.kind is LogFileKind.COMMIT:
            log.commits.add(file.version)
        elif file.kind in _CHECKPOINTS:
            log.checkpoint = max(log.checkpoint, file.version)


def _difference(log: LogState) -> str | None:
    """The reason why the commits of the log cannot be added to the catalog, or None."""
    head, where = log.head, log.record.url
    if log.version < 0:
        return f"There is no log at {where}. Restore it, or drop the table."
    if log.version < head.published_version:
        log.common = log.version
        return (
            f"The log of {where} ends at version {log.version}, but the catalog has version {head.published_version} "
            f"as published: the log is older than the catalog. Restore the missing commits. {_KEEP_LOG}"
        )
    for commit in head.unpublished:
        log.common = commit.version - 1
        if commit.version in log.commits:
            found = first_commit_info(log.store.get(commit_path(commit.version)), whole=True)
            if found is None or (found.txn_id or "") != commit.txn_id:
                return _divergence(log, commit, found.txn_id if found else None)
        elif commit.version > log.checkpoint and commit.file not in log.staged:
            return (
                f"Version {commit.version} of {where} is ratified, but neither {commit_path(commit.version)} nor "
                f"{staged_commit_path(commit.file)} exists. Restore one of them. {_KEEP_LOG}"
            )
    log.common = None
    beyond = [version for version in log.commits if version > max(head.version, log.checkpoint)]
    first = max(head.version, log.checkpoint) + 1
    missing = set(range(first, max(beyond, default=first - 1) + 1)) - set(beyond)
    if missing:
        return f"The log of {where} lacks version {min(missing)}, but has later versions. Restore that commit."
    return None


def _divergence(log: LogState, commit: RatifiedCommit, txn_id: str | None) -> str:
    return (
        f"Two histories of {log.record.url} diverge at version {commit.version}: {commit_path(commit.version)} is the "
        f"commit {txn_id or 'without a txnId'}, {staged_commit_path(commit.file)} is {commit.txn_id}, which the "
        f"catalog has ratified. Both may have been acknowledged. {_KEEP_LOG}"
    )


def _released(table: str, version: int) -> str:
    return (
        f"Version {version} of {table} has released the table from its catalog (protocol without "
        f"{features.CATALOG_MANAGED}): it is read and written by its path. Drop it from the catalog: drop_table, "
        "deltalog tables drop. Its files stay."
    )


def _extend(tables: ManagedTables, log: LogState, version: int, data: bytes, file: str) -> None:
    """Add a commit as ratified. Raises CorruptTableError if the catalog cannot have ratified it, ResourceNotReadyError
    if it released the table."""
    where = f"{log.record.url}: {commit_name(version)}"
    try:
        actions = decode_commit(data, version)
        if actions.protocol is not None and not features.is_catalog_managed(actions.protocol):
            raise ResourceNotReadyError(_released(log.record.url, version))
        ict_ms = required_ict(actions.commit_info, version, log.record.url)
        check_stays_managed(tables, _id_for(tables, log, actions), commit_name(version), actions)
        tables.coordinator.check_time(log.record.url, ict_ms)
    except (CorruptTableError, InvalidActionError) as error:
        raise CorruptTableError(
            f"{where} is not a commit that this catalog can have ratified: {error.message} Determine which process "
            "wrote it, and move it out of the log if it must not be kept."
        ) from None
    info = actions.commit_info
    part, parts = place_in_transaction(info)
    last_ms = ict_ms + parts - part
    if version > log.reached + 1:
        _fill(log, version - 1, last_ms)
    txn_id, changed = (info.txn_id if info else None) or "", changes_metadata(actions)
    commit = RatifiedCommit(version, file, ict_ms, len(data), txn_id, changes_metadata=changed)
    log.missing.append(MissingCommit(log.record.table_id, commit, last_ms, transaction_of(info)))


def _id_for(tables: ManagedTables, log: LogState, actions: CommitActions) -> str:
    """The id that the metadata of a commit may have: that of the table or, after the catalog was reset to the log, that
    of the log at the version from which the catalog continues."""
    table_id, metadata = log.record.table_id, actions.metadata
    logged = None if metadata is None else metadata.configuration.get(UNITY_TABLE_ID_KEY)
    if logged is None or logged == table_id or not records.is_table_id(logged):
        return table_id
    store = tables.store(log.record, pin=log.head.version)
    known = load_latest(LogReader(store, authority=Authority(tables.coordinator.url)))
    return logged if known.metadata.configuration.get(UNITY_TABLE_ID_KEY) == logged else table_id


def _fill(log: LogState, last: int, last_ms: int) -> None:
    """Add versions whose commits were removed by log clean-up because a checkpoint covers them."""
    for version in range(log.reached + 1, last + 1):
        removed = RatifiedCommit(version, commit_name(version), last_ms, 0, "")
        log.missing.append(MissingCommit(log.record.table_id, removed, last_ms))


def _adopt(tables: ManagedTables, log: LogState, decided: Collection[tuple[str, int]], staged: Collection[str]) -> None:
    """Add staged commits of two kinds: commits of transactions that have a published commit in another table, and
    commits that the caller accepts. Cost: 1 GET per commit staged for the next version."""
    while True:
        version = log.reached + 1
        for name in log.staged:
            if _staged_version(name) != version:
                continue
            try:
                data = log.store.get(staged_commit_path(name))
            except ObjectNotFoundError:
                continue
            info = first_commit_info(data, whole=True)
            part, parts = place_in_transaction(info)
            last_ms = (info.in_commit_timestamp_ms or 0) + parts - part if info else 0
            if name in staged or (transaction_of(info), last_ms) in decided:
                _extend(tables, log, version, data, name)
                break
        else:
            return


def _staged_version(name: str) -> int:
    number = name.partition(".")[0]
    return int(number) if number.isdigit() else -1


def _with_records(ledger: Ledger, logs: Mapping[str, LogState]) -> ResyncPlan:
    """Compare the transaction records with the logs. Cost: 1 coordinator call per transaction in the logs; per
    undecided one 1 more, and 1 GET per version of its tables since its instant."""
    committed: dict[str, dict[str, int]] = {}
    missing = [each for log in logs.values() if log.problem is None for each in log.missing]
    for each in missing:
        if each.transaction is not None:
            versions = committed.setdefault(each.transaction, {})
            versions[each.table_id] = max(versions.get(each.table_id, -1), each.commit.version)
    known = {id_: ledger.coordinator.transaction(id_) for id_ in committed}
    last_ms = max((each.last_ms for each in missing), default=-1)
    overtaken = []
    for record in ledger.all(StatusFilter.ACTIVE):
        if record.id in committed:
            continue
        versions = dict(_landed(ledger, logs, record))
        if versions:  # the transaction's record is older than the heads of its tables, as in an inconsistent backup
            committed[record.id], known[record.id] = versions, record
        elif record.last_activity_ms <= last_ms and not any(log.problem for log in logs.values()):
            overtaken.append(record)
    return ResyncPlan(dict(logs), committed, overtaken, known)


def _landed(ledger: Ledger, logs: Mapping[str, LogState], record: TransactionRecord) -> Iterator[tuple[str, int]]:
    """The last versions of a transaction according to the logs of its tables, for the tables that the catalog
    contains."""
    table_ids = dict.fromkeys(key.split("/")[1] for key in ledger.coordinator.parts(record.id, f"{CHANGES}/"))
    for table_id in table_ids:
        log, pin = logs.get(table_id), (record.pins or {}).get(table_id)
        if log is None or pin is None:
            continue
        for version in range(pin + 1, log.head.version + 1):
            commit = log.head.commit(version)
            names = [commit_path(version), *([staged_commit_path(commit.file)] if commit else [])]
            for name in names:
                try:
                    info = first_commit_info(log.store.get(name), whole=True)
                except ObjectNotFoundError:
                    continue
                if transaction_of(info) == record.id:
                    yield table_id, version
                break


def is_committed(record: TransactionRecord | None) -> bool:
    return record is not None and record.status is TransactionStatus.COMMITTED
