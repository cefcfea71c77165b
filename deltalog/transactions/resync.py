"""Brings a catalog that is older than the logs of its tables, such as one restored from a backup, up to date with them.

A published commit was ratified, so the catalog adds it as it is: commits in the order of their in-commit timestamps,
those of one transaction with its record in one step. A commit that was ratified but not published cannot be
distinguished from one that was only staged, unless another commit of its transaction is published; such commits are
listed and left alone.

Each step is a proposal like those of writers, which follows the catalog's last version or has no effect. So it can run
at any time, in any process, repeatedly.
"""

from __future__ import annotations

import collections
import functools
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltalog.catalog import records
from deltalog.catalog.marks import live_marks
from deltalog.catalog.records import (
    Head,
    Proposal,
    Ratification,
    RatifiedCommit,
    StatusFilter,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
    TransactionType,
)
from deltalog.errors import (
    ConcurrentModificationError,
    CorruptTableError,
    DeltaLogError,
    InvalidActionError,
    ObjectNotFoundError,
)
from deltalog.log.reader import required_ict
from deltalog.protocol.codec import decode_commit, first_commit_info
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
from deltalog.storage.base import LogStore
from deltalog.transactions.branch import place_in_transaction, transaction_of
from deltalog.transactions.ledger import Ledger
from deltalog.transactions.ratified import check_stays_managed
from deltalog.transactions.recovery import clean_up
from deltalog.transactions.tables import ManagedTables
from deltalog.transactions.transaction import CHANGES

_logger = logging.getLogger(__name__)

_TRIES = 20
_READ_AT_ONCE = 100
# Of one proposal: DynamoDB takes 100 items, of which each commit may need two.
_RATIFIED_AT_ONCE = 45
_CHECKPOINTS = (LogFileKind.CLASSIC_CHECKPOINT, LogFileKind.MULTI_PART_CHECKPOINT, LogFileKind.UUID_CHECKPOINT)
_SET_ASIDE = "set-aside."
_KEEP_LOG = (
    "With --keep-log (keep_log=) the log's history is kept; commits that only the catalog has are then moved aside in "
    f"{STAGED_COMMITS_DIRECTORY}, and still name the files that they added."
)
_RESTORED = "the catalog was restored from a backup in which it was not decided"


@dataclass(frozen=True, slots=True)
class TableResync:
    """How a table's catalog and its log differ. ``catalog_version``, ``log_version``: the latest that each knows, -1
    for no log. ``added``: how many commits of the log the catalog takes over. ``in_doubt``: names of staged commits of
    later versions that the catalog may or may not have ratified. ``problem``: why this table is left unchanged, and
    what to do."""

    name: str
    url: str
    catalog_version: int
    log_version: int
    added: int = 0
    in_doubt: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Resync:
    """What ``TransactionManager.resync`` found and did, or would do. ``committed``: ids of transactions that the logs
    show to be committed; ``aborted``: ids of those that were undecided in the catalog and are not in the logs."""

    tables: list[TableResync]
    committed: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    @property
    def is_in_step(self) -> bool:
        """Whether catalog and logs agree, so that there was nothing to do."""
        return not (self.committed or self.aborted or any(each.added or each.problem for each in self.tables))


@dataclass(frozen=True, slots=True)
class _Lost:
    """A commit that the catalog lacks. ``last_ms``: the in-commit timestamp that the last commits of its
    transaction have in all tables."""

    table_id: str
    commit: RatifiedCommit
    last_ms: int
    transaction: str | None = None

    @property
    def group(self) -> tuple[str, int]:
        """What must become visible at once."""
        return (self.table_id, self.commit.version) if self.transaction is None else (self.transaction, self.last_ms)


@dataclass(slots=True)
class _Log:
    """A table's log beside what its catalog knows."""

    record: TableRecord
    head: Head
    store: LogStore
    commits: set[int] = field(default_factory=set)
    checkpoint: int = -1
    staged: list[str] = field(default_factory=list)
    lost: list[_Lost] = field(default_factory=list)
    problem: str | None = None
    common: int | None = None  # the last version that both agree on, where that is less than the catalog has

    @property
    def version(self) -> int:
        return max(self.checkpoint, *self.commits, -1)

    @property
    def reached(self) -> int:
        """The version that the catalog has when it has caught up."""
        return self.head.version + len(self.lost)

    def told(self) -> TableResync:
        counted = {commit.file for commit in self.head.unpublished} | {each.commit.file for each in self.lost}
        later = (name for name in self.staged if name not in counted and _staged_version(name) > self.reached)
        added = 0 if self.problem else len(self.lost)
        return TableResync(
            self.record.name, self.record.url, self.head.version, self.version, added, tuple(later), self.problem
        )


@dataclass(slots=True)
class _Plan:
    logs: dict[str, _Log]
    # By transaction, the version that it left each table at; and those that the catalog has as undecided.
    committed: dict[str, dict[str, int]]
    overtaken: list[TransactionRecord]
    records: dict[str, TransactionRecord | None]

    @property
    def lost(self) -> list[_Lost]:
        return [each for log in self.logs.values() if log.problem is None for each in log.lost]

    def settled(self) -> list[str]:
        """Transactions whose records are wrong."""
        found = {id_: self.records.get(id_) for id_ in self.committed}
        return [id_ for id_, record in found.items() if not _is_committed(record)]


def resync(
    ledger: Ledger, tables: ManagedTables, dry_run: bool, staged: Collection[str], keep_log: Collection[str]
) -> Resync:
    """See ``TransactionManager.resync``."""
    added: collections.Counter[str] = collections.Counter()
    committed, aborted = list[str](), list[str]()
    plan = _plan(ledger, tables, staged)
    back = [log for log in plan.logs.values() if log.common is not None and log.record.name in keep_log]
    if back and not dry_run:
        for log in back:
            _go_back(ledger, log)
        plan = _plan(ledger, tables, staged)
    told = {table_id: each.told() for table_id, each in plan.logs.items()}
    if dry_run:
        return Resync(list(told.values()), sorted(plan.settled()), sorted(record.id for record in plan.overtaken))
    for number in range(1, _TRIES):
        step = _Step(ledger, tables, plan)
        done = step.take()
        added.update(step.added)
        committed += step.committed
        aborted += step.aborted
        if done:
            found = [replace(each, added=added[table_id]) for table_id, each in told.items()]
            return Resync(found, sorted(set(committed)), sorted(aborted))
        ledger.environment.back_off(number)
        plan = _plan(ledger, tables, staged)
    raise ConcurrentModificationError(
        f"The catalog {ledger.coordinator.url} was changed by other processes during each attempt to resync it. "
        "Commits that were added stay: stop the writers, and call resync again."
    )


# ---------------------------------------------------------------------------------------------- what there is


def _plan(ledger: Ledger, tables: ManagedTables, staged: Collection[str]) -> _Plan:
    logs: dict[str, _Log] = {}
    for record in tables.all():
        head = _head(ledger, tables, record)
        if head is not None:
            log = logs[record.table_id] = _Log(record, head, tables.plain_store(record.url))
            _guarded(log, functools.partial(_read, ledger, tables, log))
    decided = {each.group for log in logs.values() for each in log.lost if each.transaction is not None}
    for log in logs.values():
        if log.problem is None:
            _guarded(log, functools.partial(_adopt, tables, log, decided, staged))
    return _with_records(ledger, logs)


def _head(ledger: Ledger, tables: ManagedTables, record: TableRecord) -> Head | None:
    """A table's head. The items of a backup may be of several moments, and commits be missing that the head counts as
    unpublished: of those that are in the log it is noted that they are published, which is true in any case."""
    try:
        return ledger.coordinator.head(record.table_id)
    except ConcurrentModificationError:
        log = _Log(record, Head(-1), tables.plain_store(record.url))
        _list(log, "")
        ledger.coordinator.published(record.table_id, log.version)
        return ledger.coordinator.head(record.table_id)


def _guarded(log: _Log, look: Callable[[], None]) -> None:
    """A log that cannot be read must not hold up the others."""
    try:
        look()
    except DeltaLogError as error:
        log.problem = error.message


def _read(ledger: Ledger, tables: ManagedTables, log: _Log) -> None:
    """Cost: 2 LISTs, and 1 GET for each commit that the catalog does not know to be published."""
    _list(log, version_prefix(max(log.head.published_version, 0)))
    if log.version < 0:
        _list(log, "")
    log.staged = sorted(log.store.list_names(STAGED_COMMITS_DIRECTORY))
    log.problem = _difference(log)
    if log.problem is not None:
        return
    versions = [version for version in sorted(log.commits) if version > log.head.version]
    for start in range(0, len(versions), _READ_AT_ONCE):
        some = versions[start : start + _READ_AT_ONCE]
        for version, data in zip(some, log.store.get_many([commit_path(each) for each in some]), strict=True):
            _extend(tables, log, version, data, staged_commit_name(version, ledger.environment.new_uuid()))
    if log.checkpoint > log.reached:
        _fill(log, log.checkpoint, log.lost[-1].last_ms + 1 if log.lost else 0)


def _list(log: _Log, start: str) -> None:
    for file in filter(None, map(parse_log_file, log.store.list_names(LOG_DIRECTORY, start))):
        if file.kind is LogFileKind.COMMIT:
            log.commits.add(file.version)
        elif file.kind in _CHECKPOINTS:
            log.checkpoint = max(log.checkpoint, file.version)


def _difference(log: _Log) -> str | None:
    """Why the commits of the log cannot be added to the catalog; None if they can."""
    head, where = log.head, log.record.url
    if log.version < 0:
        return f"There is no log at {where}. Restore it, or drop the table."
    if log.version < head.published_version:
        log.common = log.version
        return (
            f"The log of {where} ends at version {log.version}, and the catalog has version {head.published_version} "
            f"as published: the log is older than the catalog. Restore the missing commits. {_KEEP_LOG}"
        )
    for commit in head.unpublished:
        log.common = commit.version - 1
        if commit.version in log.commits:
            found = first_commit_info(log.store.get(commit_path(commit.version)), whole=True)
            if found is None or (found.txn_id or "") != commit.txn_id:
                return _parted(log, commit, found.txn_id if found else None)
        elif commit.version > log.checkpoint and commit.file not in log.staged:
            return (
                f"Version {commit.version} of {where} is ratified, and neither {commit_path(commit.version)} nor "
                f"{staged_commit_path(commit.file)} exists. Restore one of them. {_KEEP_LOG}"
            )
    log.common = None
    beyond = [version for version in log.commits if version > max(head.version, log.checkpoint)]
    first = max(head.version, log.checkpoint) + 1
    missing = set(range(first, max(beyond, default=first - 1) + 1)) - set(beyond)
    if missing:
        return f"The log of {where} lacks version {min(missing)}, but has later versions. Restore that commit."
    return None


def _parted(log: _Log, commit: RatifiedCommit, txn_id: str | None) -> str:
    return (
        f"Two histories of {log.record.url} diverge at version {commit.version}: {commit_path(commit.version)} is the "
        f"commit {txn_id or 'without a txnId'}, {staged_commit_path(commit.file)} is {commit.txn_id}, which the "
        f"catalog has ratified. Both may have been acknowledged. {_KEEP_LOG}"
    )


def _extend(tables: ManagedTables, log: _Log, version: int, data: bytes, file: str) -> None:
    """Take a commit for one that the catalog had ratified. Raises CorruptTableError where it cannot be one."""
    where = f"{log.record.url}: {commit_name(version)}"
    try:
        actions = decode_commit(data, version)
        ict_ms = required_ict(actions.commit_info, version, log.record.url)
        check_stays_managed(tables, commit_name(version), actions)
        tables.coordinator.check_time(log.record.url, ict_ms)
    except (CorruptTableError, InvalidActionError) as error:
        raise CorruptTableError(
            f"{where} is not a commit that this catalog can have ratified: {error.message} Find out who wrote it, and "
            "move it out of the log if it is not to be kept."
        ) from None
    info = actions.commit_info
    part, parts = place_in_transaction(info)
    last_ms = ict_ms + parts - part
    if version > log.reached + 1:
        _fill(log, version - 1, last_ms)
    commit = RatifiedCommit(version, file, ict_ms, len(data), (info.txn_id if info else None) or "")
    log.lost.append(_Lost(log.record.table_id, commit, last_ms, transaction_of(info)))


def _fill(log: _Log, last: int, last_ms: int) -> None:
    """Versions whose commits log clean-up has removed, since a checkpoint stands for them."""
    for version in range(log.reached + 1, last + 1):
        gone = RatifiedCommit(version, commit_name(version), last_ms, 0, "")
        log.lost.append(_Lost(log.record.table_id, gone, last_ms))


def _adopt(tables: ManagedTables, log: _Log, decided: Collection[tuple[str, int]], staged: Collection[str]) -> None:
    """Take staged commits over of transactions that are published elsewhere, and those that the caller names. Cost: 1
    GET for each that is staged for the next version."""
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


def _with_records(ledger: Ledger, logs: Mapping[str, _Log]) -> _Plan:
    """What the logs say of transactions. Cost: 1 call of the coordinator for each that they show; for each that is not
    decided 1 more, and 1 GET for each version of its tables since its instant."""
    committed: dict[str, dict[str, int]] = {}
    lost = [each for log in logs.values() if log.problem is None for each in log.lost]
    for each in lost:
        if each.transaction is not None:
            versions = committed.setdefault(each.transaction, {})
            versions[each.table_id] = max(versions.get(each.table_id, -1), each.commit.version)
    known = {id_: ledger.coordinator.transaction(id_) for id_ in committed}
    last_ms = max((each.last_ms for each in lost), default=-1)
    overtaken = []
    for record in ledger.all(StatusFilter.ACTIVE):
        if record.id in committed:
            continue
        versions = dict(_landed(ledger, logs, record))
        if versions:  # its record is older than the heads, as in a backup that is not of one instant
            committed[record.id], known[record.id] = versions, record
        elif record.last_activity_ms <= last_ms and not any(log.problem for log in logs.values()):
            overtaken.append(record)
    return _Plan(dict(logs), committed, overtaken, known)


def _landed(ledger: Ledger, logs: Mapping[str, _Log], record: TransactionRecord) -> Iterator[tuple[str, int]]:
    """The versions that a transaction left, by the logs of the tables that it has changed, as far as the catalog
    knows them."""
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


def _is_committed(record: TransactionRecord | None) -> bool:
    return record is not None and record.status is TransactionStatus.COMMITTED


# ------------------------------------------------------------------------------------------------ what is done


def _go_back(ledger: Ledger, log: _Log) -> None:
    """Have the catalog know a table up to the last version on which it and the log agree. Whoever dies in the middle
    leaves a table that is to be registered again."""
    assert log.common is not None
    for commit in log.head.unpublished:
        if commit.version > log.common and commit.file in log.staged:
            data = log.store.get(staged_commit_path(commit.file))
            log.store.put(staged_commit_path(_SET_ASIDE + commit.file), data)
            log.store.delete(staged_commit_path(commit.file))
    coordinator, record = ledger.coordinator, log.record
    coordinator.published(record.table_id, log.head.version)
    # As another table, so that handles which have seen more of the old one are told.
    anew = replace(record, table_id=ledger.environment.new_uuid())
    live = live_marks(coordinator, record.table_id, ledger.now_ms()).markings.values()
    if not coordinator.drop(record.table_id, log.head.version) or not coordinator.register(anew, log.common):
        raise ConcurrentModificationError(
            f"{record.name} was changed while the catalog {coordinator.url} was being reset to its version "
            f"{log.common}. Stop its writers, and call resync again; if the table is no longer in the catalog, "
            "register it."
        )
    for number, marking in enumerate((each for each in live if each.deleting), start=1):
        coordinator.mark(anew.table_id, number, marking)  # their clean-ups know the old one, and may go on


class _Step:
    """One attempt to carry a plan out. ``added``: by table; ``committed``, ``aborted``: ids of transactions."""

    def __init__(self, ledger: Ledger, tables: ManagedTables, plan: _Plan) -> None:
        self.added: collections.Counter[str] = collections.Counter()
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self._ledger = ledger
        self._coordinator = ledger.coordinator
        self._tables = tables
        self._plan = plan

    def take(self) -> bool:
        """Whether all of it was done; False if others changed something meanwhile, so that it must be planned again."""
        for batch in _batches(self._plan.lost):
            if not self._ratify(batch):
                return False
        for log in self._plan.logs.values():
            if log.problem is None:
                self._publish(log)
        moved = [self._settle(id_) for id_ in self._plan.settled() if id_ not in self.committed]
        moved += [self._abort(record) for record in self._plan.overtaken]
        return all(moved)

    def _ratify(self, batch: Sequence[_Lost]) -> bool:
        commits: dict[str, tuple[RatifiedCommit, ...]] = {}
        for each in batch:
            commits[each.table_id] = (*commits.get(each.table_id, ()), each.commit)
        id_ = batch[0].transaction
        before, after = (None, None) if id_ is None else self._records(id_)
        if self._coordinator.ratify(Proposal(commits, {}, before, after)) is not Ratification.RATIFIED:
            return False
        self.added.update({table_id: len(some) for table_id, some in commits.items()})
        if id_ is not None and after is not None:
            self._note(id_, after)
        return True

    def _publish(self, table: _Log) -> None:
        """What is in the log is published; what is staged follows."""
        there = min(table.reached, table.version)
        if there > table.head.published_version:
            self._coordinator.published(table.record.table_id, there)
        if table.reached > table.version:
            try:
                self._tables.publish(table.record)
            except DeltaLogError as error:  # whoever commits next publishes it
                _logger.warning("%s: not published yet: %s", table.record.name, error)

    def _records(self, id_: str) -> tuple[TransactionRecord | None, TransactionRecord | None]:
        """A transaction's record as it is and as it is to be; none where nothing is wrong with it, and where there is
        none, which is then made."""
        record, now_ms = self._plan.records.get(id_), self._ledger.now_ms()
        versions = self._plan.committed[id_]
        if _is_committed(record):
            return None, None
        if record is not None:
            return record, replace(records.committed(record, versions, now_ms), reason=None)
        start_ms = max(each.last_ms for each in self._plan.lost if each.transaction == id_)
        made = records.started(id_, TransactionType.READ_AND_WRITE, start_ms)
        if self._coordinator.insert(records.committed(made, versions, now_ms)):
            self.committed.append(id_)
        return None, None

    def _settle(self, id_: str) -> bool:
        _, after = self._records(id_)
        if after is None:
            return True
        done = self._coordinator.replace(after)
        if done:
            self._note(id_, after)
        return done

    def _note(self, id_: str, after: TransactionRecord) -> None:
        self.committed.append(id_)
        clean_up(self._ledger, self._tables, after)

    def _abort(self, record: TransactionRecord) -> bool:
        ended = records.aborted(record, _RESTORED, self._ledger.now_ms())
        done = self._coordinator.replace(ended)
        if done:
            self.aborted.append(record.id)
            clean_up(self._ledger, self._tables, ended)
        return done


def _batches(lost: Sequence[_Lost]) -> Iterator[list[_Lost]]:
    """The commits in an order in which each follows its table's last one, and those of a transaction are together:
    several single ones at a time, a transaction by itself."""
    batch: list[_Lost] = []
    for group in _in_order(lost):
        is_single = group[0].transaction is None
        if batch and (not is_single or len(batch) >= _RATIFIED_AT_ONCE):
            yield batch
            batch = []
        if is_single:
            batch += group
        else:
            yield group
    if batch:
        yield batch


def _in_order(lost: Sequence[_Lost]) -> Iterator[list[_Lost]]:
    """The earliest first of those groups that are next in all their tables. Times alone do not tell: those of a table
    may have begun anew."""
    groups: dict[tuple[str, int], list[_Lost]] = {}
    queues: dict[str, collections.deque[_Lost]] = {}
    for each in lost:
        groups.setdefault(each.group, []).append(each)
        queues.setdefault(each.table_id, collections.deque()).append(each)
    while groups:
        firsts = {queue[0].group: None for queue in queues.values() if queue}
        ready = [group for group in firsts if _is_next(groups[group], queues)] or list(firsts)
        group = groups.pop(min(ready, key=lambda key: groups[key][0].last_ms))
        for each in group:
            queues[each.table_id].remove(each)
        yield group


def _is_next(group: Sequence[_Lost], queues: Mapping[str, collections.deque[_Lost]]) -> bool:
    places = collections.Counter(each.table_id for each in group)
    return all(list(itertools.islice(queues[id_], count))[-1] in group for id_, count in places.items())
