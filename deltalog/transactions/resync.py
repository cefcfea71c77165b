"""Updates a catalog that is older than the logs of its tables, for example after a restore from a backup.

Published commits were ratified, so they are added to the catalog unchanged, in the order of their in-commit timestamps;
the commits of a transaction are added together with its record. A commit that was ratified but not published cannot be
distinguished from a commit that was only staged, unless another commit of its transaction is published. Commits that
cannot be distinguished are listed but not added.

Every step is an ordinary proposal, which either takes effect as the successor of the catalog's last version, or has no
effect. Therefore any process can run a resync at any time and as often as it likes.
"""

from __future__ import annotations

import collections
import itertools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltalog.catalog import records
from deltalog.catalog.marks import live_marks
from deltalog.catalog.records import (
    Proposal,
    Ratification,
    RatifiedCommit,
    TransactionRecord,
    TransactionType,
)
from deltalog.errors import (
    ConcurrentModificationError,
    DeltaLogError,
)
from deltalog.protocol.paths import (
    staged_commit_path,
)
from deltalog.transactions.ledger import Ledger
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.recovery import clean_up
from deltalog.transactions.resync_plan import (
    LogState,
    MissingCommit,
    ResyncPlan,
    TableResync,
    is_committed,
    plan_resync,
)

_logger = logging.getLogger(__name__)

_TRIES = 20
# Per proposal: DynamoDB accepts 100 items per transaction, and a commit may need two items.
_RATIFIED_AT_ONCE = 45
_SET_ASIDE = "set-aside."
_RESTORED = "the catalog was restored from a backup in which it was not decided"


@dataclass(frozen=True, slots=True)
class Resync:
    """The result of ``TransactionManager.resync``, or with ``dry_run`` its plan. ``committed``: the ids of transactions
    that are committed according to the logs. ``aborted``: the ids of transactions that were undecided in the catalog
    and are not in the logs."""

    tables: list[TableResync]
    committed: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    @property
    def is_in_step(self) -> bool:
        """Whether the catalog and the logs agreed."""
        return not (self.committed or self.aborted or any(each.added or each.problem for each in self.tables))


def resync(
    ledger: Ledger, tables: ManagedTables, dry_run: bool, staged: Collection[str], keep_log: Collection[str]
) -> Resync:
    """See ``TransactionManager.resync``."""
    added: collections.Counter[str] = collections.Counter()
    committed, aborted = list[str](), list[str]()
    plan = plan_resync(ledger, tables, staged)
    to_reset = [log for log in plan.logs.values() if log.common is not None and log.record.name in keep_log]
    if to_reset and not dry_run:
        for log in to_reset:
            _reset(ledger, log)
        plan = plan_resync(ledger, tables, staged)
    reports = {table_id: each.report() for table_id, each in plan.logs.items()}
    if dry_run:
        return Resync(
            list(reports.values()), sorted(plan.wrong_records()), sorted(record.id for record in plan.overtaken)
        )
    for number in range(1, _TRIES):
        step = _Step(ledger, tables, plan)
        done = step.take()
        added.update(step.added)
        committed += step.committed
        aborted += step.aborted
        if done:
            for log in plan.logs.values():
                if log.record.name in keep_log and log.problem is None:
                    tables.write_ids(log.record)
            found = [replace(each, added=added[table_id]) for table_id, each in reports.items()]
            return Resync(found, sorted(set(committed)), sorted(aborted))
        ledger.environment.back_off(number)
        plan = plan_resync(ledger, tables, staged)
    raise ConcurrentModificationError(
        f"The catalog {ledger.coordinator.url} was changed by other processes during every attempt to resync it. "
        "Added commits stay: stop the writers, and call resync again."
    )


# ---------------------------------------------------------------------------------------- the planned steps


def _reset(ledger: Ledger, log: LogState) -> None:
    """Reset the catalog's record of a table to the last version on which catalog and log agree, under a new id, which
    is written to the log at the end. If the process dies during this call, the table must be registered again."""
    assert log.common is not None
    for commit in log.head.unpublished:
        if commit.version > log.common and commit.file in log.staged:
            data = log.store.get(staged_commit_path(commit.file))
            log.store.put(staged_commit_path(_SET_ASIDE + commit.file), data)
            log.store.delete(staged_commit_path(commit.file))
    coordinator, record = ledger.coordinator, log.record
    coordinator.published(record.table_id, log.head.version)
    # The table gets a new id, so that a handle that has read versions after the one to which the table is reset raises
    # an error.
    anew = replace(record, table_id=ledger.environment.new_uuid())
    live = live_marks(coordinator, record.table_id, ledger.now_ms()).markings.values()
    if not coordinator.drop(record.table_id, log.head.version) or not coordinator.register(anew, log.common):
        raise ConcurrentModificationError(
            f"{record.name} was changed while the catalog {coordinator.url} was being reset to its version "
            f"{log.common}. Stop its writers, and call resync again; if the table is no longer in the catalog, "
            "register it."
        )
    for number, marking in enumerate((each for each in live if each.deleting), start=1):
        # The clean-ups that made these markings use the old table id and may still be deleting files.
        coordinator.mark(anew.table_id, number, marking)


class _Step:
    """One attempt to execute a plan. ``added``: the number of added commits, keyed by table; ``committed``,
    ``aborted``: the ids of transactions."""

    def __init__(self, ledger: Ledger, tables: ManagedTables, plan: ResyncPlan) -> None:
        self.added: collections.Counter[str] = collections.Counter()
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self._ledger = ledger
        self._coordinator = ledger.coordinator
        self._tables = tables
        self.plan_resync = plan

    def take(self) -> bool:
        """Execute the plan; False if concurrent changes require a new plan."""
        for batch in _batches(self.plan_resync.missing):
            if not self._ratify(batch):
                return False
        for log in self.plan_resync.logs.values():
            if log.problem is None:
                self._publish(log)
        moved = [self._settle(id_) for id_ in self.plan_resync.wrong_records() if id_ not in self.committed]
        moved += [self._abort(record) for record in self.plan_resync.overtaken]
        return all(moved)

    def _ratify(self, batch: Sequence[MissingCommit]) -> bool:
        commits: dict[str, tuple[RatifiedCommit, ...]] = {}
        for each in batch:
            commits[each.table_id] = (*commits.get(each.table_id, ()), each.commit)
        id_ = batch[0].transaction
        before, after = (None, None) if id_ is None else self._records(id_)
        if self._coordinator.ratify(Proposal(commits, {}, before, after)) is not Ratification.RATIFIED:
            return False
        self.added.update({table_id: len(some) for table_id, some in commits.items()})
        if id_ is not None and after is not None:
            self._record_committed(id_, after)
        return True

    def _publish(self, table: LogState) -> None:
        """Record those commits that are in the log as published, and publish the others."""
        there = min(table.reached, table.version)
        if there > table.head.published_version:
            self._coordinator.published(table.record.table_id, there)
        if table.reached > table.version:
            try:
                self._tables.publish(table.record)
            except DeltaLogError as error:  # the next commit publishes it
                _logger.warning("%s: not published yet: %s", table.record.name, error)

    def _records(self, id_: str) -> tuple[TransactionRecord | None, TransactionRecord | None]:
        """The current record and the corrected record of a transaction. Both records are None if the record in the
        catalog is already correct, or if it was missing and has therefore been inserted."""
        record, now_ms = self.plan_resync.records.get(id_), self._ledger.now_ms()
        versions = self.plan_resync.committed[id_]
        if is_committed(record):
            return None, None
        if record is not None:
            return record, replace(records.committed(record, versions, now_ms), reason=None)
        start_ms = max(each.last_ms for each in self.plan_resync.missing if each.transaction == id_)
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
            self._record_committed(id_, after)
        return done

    def _record_committed(self, id_: str, after: TransactionRecord) -> None:
        self.committed.append(id_)
        clean_up(self._ledger, self._tables, after)

    def _abort(self, record: TransactionRecord) -> bool:
        ended = records.aborted(record, _RESTORED, self._ledger.now_ms())
        done = self._coordinator.replace(ended)
        if done:
            self.aborted.append(record.id)
            clean_up(self._ledger, self._tables, ended)
        return done


def _batches(missing: Sequence[MissingCommit]) -> Iterator[list[MissingCommit]]:
    """Group the commits into ordered proposals, such that each commit follows its predecessor and the commits of a
    transaction are in the same proposal. A proposal contains either one transaction, or several commits outside
    transactions."""
    batch: list[MissingCommit] = []
    for group in _in_order(missing):
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


def _in_order(missing: Sequence[MissingCommit]) -> Iterator[list[MissingCommit]]:
    """Repeatedly yield the earliest group that can be added next: one in which every commit is the next missing commit
    of its table. Ordering by timestamp alone is not sufficient, because a table's timestamps may have been
    restarted."""
    groups: dict[tuple[str, int], list[MissingCommit]] = {}
    queues: dict[str, collections.deque[MissingCommit]] = {}
    for each in missing:
        groups.setdefault(each.group, []).append(each)
        queues.setdefault(each.table_id, collections.deque()).append(each)
    while groups:
        firsts = {queue[0].group: None for queue in queues.values() if queue}
        ready = [group for group in firsts if _is_next(groups[group], queues)] or list(firsts)
        group = groups.pop(min(ready, key=lambda key: groups[key][0].last_ms))
        for each in group:
            queues[each.table_id].remove(each)
        yield group


def _is_next(group: Sequence[MissingCommit], queues: Mapping[str, collections.deque[MissingCommit]]) -> bool:
    places = collections.Counter(each.table_id for each in group)
    return all(list(itertools.islice(queues[id_], count))[-1] in group for id_, count in places.items())
