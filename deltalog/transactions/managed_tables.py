"""Creates, registers, opens and drops the tables of a catalog.

Spec: PROTOCOL.md#creating-and-dropping-catalog-managed-tables, #catalog-managed-table-enablement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from deltalog import deadline
from deltalog.addresses import committer_of, handle_on, handle_on_latest
from deltalog.catalog import records
from deltalog.catalog.committer import publish
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.marks import KnownMarks, check_none_deletes
from deltalog.catalog.records import (
    ACCESS,
    DROPPED,
    EXTERNAL,
    RETIRED,
    STAGING,
    DocumentChange,
    RatifiedCommit,
    TableRecord,
    access_key,
)
from deltalog.catalog.store import ManagedStore
from deltalog.commit.hooks import errors_logged
from deltalog.create.new_table import create, creation
from deltalog.environment import Environment
from deltalog.errors import (
    ConcurrentModificationError,
    EntityNotFoundError,
    ResourceNotReadyError,
    TableExistsError,
    TimestampAheadError,
)
from deltalog.log.authority import Authority
from deltalog.log.loader import UnreadSnapshot, load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol import features
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.features import CATALOG_MANAGED
from deltalog.protocol.paths import LOG_DIRECTORY, STAGED_COMMITS_DIRECTORY, canonical_url
from deltalog.protocol.properties import (
    CATALOG_ID_KEY,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    FEATURE_PREFIX,
    UNITY_TABLE_ID_KEY,
)
from deltalog.protocol.schema import StructType
from deltalog.protocol.timestamps import describe
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.storage.locations import BY_LOCATION
from deltalog.storage.registry import open_store, spread
from deltalog.table import DeltaTable, PointInTime
from deltalog.transactions.branch import place_in_transaction
from deltalog.transactions.callers import ADMINISTRATOR, Caller
from deltalog.write.table_handle import TableHandle
from deltalog.write.transaction import Transaction

_TRIES = 20
# A commit that waited longer for its publication was published late.
_LATE_MS = 10 * 60 * 1000


class ManagedTables:
    """The tables of a catalog. Thread-safe. ``storage_options``: options for all tables; its key ``by_location`` maps
    locations to options for single tables."""

    def __init__(self, coordinator: Coordinator, environment: Environment, storage_options: Mapping[str, Any]) -> None:
        self.coordinator = coordinator
        self._environment = environment
        self._storage_options = storage_options
        self._handles: dict[str, TableHandle] = {}
        self._marks: dict[str, KnownMarks] = {}
        self._places: set[str] = set()
        self._late: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def create(
        self,
        name: str,
        url: str,
        schema: StructType | pa.Schema,
        properties: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> DeltaTable:
        """See ``TransactionManager.create_table``."""
        full, reader = self._place(name, url)
        data = options.get("data")
        others = {option: value for option, value in options.items() if option != "data"}
        with self._creation(reader, schema, properties, others) as transaction:
            create(transaction, data)
        assert transaction.committed is not None
        return self._take_over(full, DeltaTable(handle_on(reader, self._environment, transaction.committed)))

    def creation(
        self,
        name: str,
        url: str,
        schema: StructType | pa.Schema,
        properties: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> Transaction:
        """See ``TransactionManager.create_transaction``."""
        _, reader = self._place(name, url)
        return self._creation(reader, schema, properties, options)

    def _creation(
        self,
        reader: LogReader,
        schema: StructType | pa.Schema,
        properties: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> Transaction:
        table_id = self._environment.new_uuid()
        committer, marks = committer_of(reader, self._environment), self._marked(properties, table_id)
        return creation(reader, committer, self._environment, schema, properties=marks, **options)

    def _place(self, name: str, url: str) -> tuple[str, LogReader]:
        """The full name of a table that the catalog will manage, and a reader of the table's log; until the catalog
        manages the table, commits are written to this log directly. Raises TableExistsError for a name or a location
        that the catalog has."""
        full, root = records.check_table_name(name), self.root(url)
        self._check_free(full, root)
        return full, self._reader(self.plain_store(root))

    def _reader(self, store: LogStore) -> LogReader:
        """The log of a table that is in this catalog or will be added to it."""
        return LogReader(store, (), self._environment.clock_ms, Authority(self.coordinator.url))

    def _marked(self, properties: Mapping[str, str], table_id: str) -> dict[str, str]:
        """The properties of a new table, including the properties that mark it as managed by this catalog under an
        id."""
        return {
            **properties,
            f"{FEATURE_PREFIX}{CATALOG_MANAGED}": "supported",
            ENABLE_IN_COMMIT_TIMESTAMPS.key: "true",
            CATALOG_ID_KEY: self.coordinator.catalog_id,
            UNITY_TABLE_ID_KEY: table_id,
        }

    def register(
        self,
        name: str,
        url: str,
        take_over: bool = False,
        along: Callable[[str], Sequence[DocumentChange]] = lambda table_id: (),
    ) -> DeltaTable:
        """See ``TransactionManager.register_table``. ``along``: takes the id of the table, and returns changes of
        documents that are made together with the registration.
        """
        # The catalog is checked before the log is read, so that commits through the catalog cannot make the version
        # stale.
        full, reader = self._place(name, url)
        table = DeltaTable(handle_on_latest(reader, self._environment))
        table.retrying(lambda current: self._enable_catalog(current, take_over))
        return self._take_over(full, table, take_over, along)

    def root(self, url: str) -> str:
        """The canonical root of a table, without symbolic links and with one scheme per kind of store, so that a
        location is in the catalog only once. Cost: none."""
        store = self.plain_store(url)
        return canonical_url(store.link_target("") or store.url)

    def _check_free(self, name: str, root: str) -> None:
        """Raises TableExistsError if the name is taken, or if the root equals, contains or lies below the root of
        another table, because one table would then contain files of the other. Cost: that of ``all``."""
        known = self.all()
        is_external = self.coordinator.document(EXTERNAL, name) is not None
        if is_external or any(table.name == name for table in known):
            raise TableExistsError(f"The catalog {self.coordinator.url} already has a table {name}.")
        other = records.nested_with(root, known)
        if other is None:
            return
        if other.url == root:
            raise TableExistsError(f"{root} is the table {other.name} of the catalog {self.coordinator.url}.")
        raise TableExistsError(
            f"{root} and {other.url}, the root of {other.name} in the catalog {self.coordinator.url}, are nested: "
            "the files of one table would lie inside the other. Nothing was changed: choose a location outside the "
            "other table."
        )

    def _enable_catalog(self, table: DeltaTable, take_over: bool) -> None:
        """Set the properties of a catalog-managed table in a commit, unless they are already set: the id in the log is
        that of the registration."""
        snapshot = table.snapshot()
        is_managed = features.is_catalog_managed(snapshot.protocol)
        if is_managed and self._is_ours(table, snapshot, take_over) and self._free_id(snapshot) is not None:
            return
        last_ms = snapshot.in_commit_timestamp_ms
        if last_ms is not None and last_ms > self._environment.clock_ms() + self.coordinator.most_ahead_ms:
            raise TimestampAheadError(
                f"{table.url}: the in-commit timestamp of version {snapshot.version}, {describe(last_ms)}, is too far "
                f"ahead of the clock for the catalog {self.coordinator.url}. Nothing was registered: call "
                "disable_in_commit_timestamps() on the table, then register it.",
                in_commit_timestamp_ms=last_ms,
                clock_ms=self._environment.clock_ms(),
            )
        with table.transaction() as transaction:
            if not is_managed:
                protocol = features.with_features(transaction.protocol, [CATALOG_MANAGED])
                transaction.metadata_changes.set_protocol(protocol)
            properties = {
                ENABLE_IN_COMMIT_TIMESTAMPS.key: "true",
                CATALOG_ID_KEY: self.coordinator.catalog_id,
                UNITY_TABLE_ID_KEY: self._environment.new_uuid(),
            }
            transaction.metadata_changes.move_to_catalog(properties)
            if is_managed:
                transaction.commit("SET TBLPROPERTIES", {"properties": canonical_json(properties)})
            else:
                transaction.commit("UPGRADE PROTOCOL", {"newProtocol": transaction.protocol.to_json()})

    def write_ids(self, record: TableRecord) -> None:
        """Commit the ids of a table's registration to its log, unless it has them. Cost: that of ``handle``, and of a
        commit."""
        ids = {CATALOG_ID_KEY: self.coordinator.catalog_id, UNITY_TABLE_ID_KEY: record.table_id}

        def work(table: DeltaTable) -> None:
            known = table.snapshot().metadata.configuration
            if any(known.get(key) != value for key, value in ids.items()):
                with table.transaction() as transaction:
                    transaction.metadata_changes.move_to_catalog(ids)
                    transaction.commit("SET TBLPROPERTIES", {"properties": canonical_json(ids)})

        self.table(record).retrying(work)

    def _is_ours(self, table: DeltaTable, snapshot: Snapshot, take_over: bool) -> bool:
        """Whether a catalog-managed table belongs to this catalog, which may have dropped it; False if it is to be
        taken over from another one. Raises ResourceNotReadyError. Cost: 2 coordinator calls; 1 LIST for a table that is
        taken over."""
        owner, table_id = snapshot.metadata.configuration.get(CATALOG_ID_KEY), _logged_id(snapshot)
        is_dropped = table_id is not None and self.coordinator.document(DROPPED, table_id) is not None
        if is_dropped and not take_over:
            raise ResourceNotReadyError(
                f"{table.url} was dropped from the catalog {self.coordinator.url}, which is deleting its files. If "
                "they are all there, stop its servers and clean-ups and take the table over: take_over=True of "
                "TransactionManager.register_table, or --take-over of deltalog tables register."
            )
        if owner == self.coordinator.catalog_id:
            return True
        if owner is None and table_id is not None and self.coordinator.document(RETIRED, table_id) is not None:
            return True
        if not take_over:
            raise ResourceNotReadyError(
                f"{table.url} is managed by another catalog ({owner or 'not one of deltalog'}). Release it from that "
                "catalog first, with TransactionManager.release_table or deltalog tables release. If that catalog is "
                "gone, or was this one before it was restored from a backup, take the table over: take_over=True of "
                "TransactionManager.register_table, or --take-over of deltalog tables register."
            )
        self._check_none_in_doubt(table, snapshot.version)
        return False

    def _check_none_in_doubt(self, table: DeltaTable, version: int) -> None:
        """Check that no staged commit is lost by another commit of its version. Raises ResourceNotReadyError."""
        names = sorted(self.plain_store(table.url).list_names(STAGED_COMMITS_DIRECTORY, f"{version + 1:020d}"))
        staged = [name for name in names if name[:20].isdigit() and name[20:21] == "."]
        if staged:
            raise ResourceNotReadyError(
                f"{table.url} has staged commits after its version {version}, which its catalog may have accepted: "
                f"{', '.join(staged[:5])}{' …' if len(staged) > 5 else ''}. Nothing was changed. Copy those that were "
                f"accepted to {LOG_DIRECTORY}/<version>.json, delete the others from {STAGED_COMMITS_DIRECTORY}, and "
                "take the table over again."
            )

    def _take_over(
        self,
        name: str,
        table: DeltaTable,
        take_over: bool = False,
        along: Callable[[str], Sequence[DocumentChange]] = lambda table_id: (),
    ) -> DeltaTable:
        """Register a table at the latest version that was read from its log. After the table's log was read, other
        processes may have registered the table, committed to it and dropped it again. The log is therefore read again
        after the table has been registered; from then on, no other process can change the table in this way."""
        table.flush()  # without the version's .crc, the table opened below would have no totals
        for number in range(_TRIES):
            self._environment.back_off(number)
            if number:  # another registration may have used the id in the log
                table.retrying(lambda current: self._enable_catalog(current, take_over))
            version, table_id = table.version, self._id_of(table)
            record = TableRecord(table_id, name, table.url, self._environment.clock_ms())
            changes = [DocumentChange(EXTERNAL, name, 0, None), *self._kept_files(table.url), *along(table_id)]
            if not self.coordinator.register(record, version, changes):
                raise TableExistsError(
                    f"The catalog {self.coordinator.url} has another table {name}, or one at, below or around "
                    f"{table.url}."
                )
            # if the catalog cannot drop the table at this version, new commits were made through the catalog
            if table.snapshot().version == version or not self.coordinator.drop(
                record.table_id, version, None, self.without_access(record.table_id)
            ):
                with errors_logged(f"{record.name} is in the catalog {self.coordinator.url}", "opening it"):
                    return self.table(record)
                reader = self._reader(self.store(record))
                return DeltaTable(self._share(record, reader, Snapshot(UnreadSnapshot(reader, version))))
        raise ConcurrentModificationError(
            f"{table.url} received a commit during every attempt to register it in {self.coordinator.url}. It is not "
            "registered: register it again."
        )

    def _kept_files(self, url: str) -> Iterator[DocumentChange]:
        """The changes after which the files at a location are not deleted because of a table that was dropped there.
        Cost: 1 coordinator call, and 1 per 1,000 dropped tables."""
        after = ""
        while page := self.coordinator.documents(DROPPED, after):
            deadline.check(self.coordinator.url)
            for each in page:
                if msgspec.json.decode(each.content)["url"] == url:
                    yield DocumentChange(DROPPED, each.key, each.revision, None)
            after = page[-1].key

    def _id_of(self, table: DeltaTable) -> str:
        """The id of a table that is to be registered. Cost: that of ``_free_id``."""
        return self._free_id(table.snapshot()) or self._environment.new_uuid()

    def _free_id(self, snapshot: Snapshot) -> str | None:
        """The id in a table's log, unless a table has or had it: a copy of a table has the id of the other one, and who
        wrote the log can choose the id of an external or a staged table, whose owner and grants would be shared. Cost:
        4 coordinator calls, and 1 per 1,000 external tables."""
        table_id = _logged_id(snapshot)
        if table_id is None:
            return None
        is_used = self.coordinator.table_with_id(table_id) is not None or any(
            self.coordinator.document(kind, table_id) is not None for kind in (RETIRED, DROPPED, STAGING)
        )
        return None if is_used or self._is_external(table_id) else table_id

    def _is_external(self, table_id: str) -> bool:
        """Whether an external table has an id. Cost: 1 coordinator call per 1,000 external tables."""
        after = ""
        while page := self.coordinator.documents(EXTERNAL, after):
            deadline.check(self.coordinator.url)
            if any(msgspec.json.decode(each.content)["table_id"] == table_id for each in page):
                return True
            after = page[-1].key
        return False

    def drop_record(self, record: TableRecord) -> None:
        """See ``TransactionManager.drop_table``."""
        for number in range(_TRIES):
            self._environment.back_off(number)
            head = self.coordinator.head(record.table_id)
            if head is None:
                break
            publish(self.plain_store(record.url), self.coordinator, record.table_id, head)
            last = check_none_deletes(self.coordinator, record, self._environment.clock_ms())
            retired = DocumentChange(RETIRED, record.table_id, 0, "{}")
            changes = [retired, *self.without_access(record.table_id)]
            if self.coordinator.drop(record.table_id, head.version, last, changes):
                break
        else:
            raise ConcurrentModificationError(
                f"{record.name} received a commit during every attempt to drop it from {self.coordinator.url}. It is "
                "still registered: stop its writers, and drop it again."
            )
        self.forget(record.table_id)

    def without_access(self, table_id: str) -> list[DocumentChange]:
        """The changes that remove the owner and the grants of a table. Cost: 1 coordinator call."""
        key = access_key(table_id)
        found = self.coordinator.document(ACCESS, key)
        return [DocumentChange(ACCESS, key, 0 if found is None else found.revision, None)]

    def forget(self, table_id: str) -> None:
        """Discard this process's cached state of a table that is no longer in the catalog. Cost: none."""
        with self._lock:
            self._handles.pop(table_id, None)
            self._marks.pop(table_id, None)

    def all(self) -> list[TableRecord]:
        """All tables, ordered by name. Cost: 1 coordinator call, and 1 per 1,000."""
        found: list[TableRecord] = []
        while page := self.coordinator.tables(found[-1].name if found else ""):
            deadline.check(self.coordinator.url)
            found += page
        return found

    def record(self, name: str, caller: Caller = ADMINISTRATOR) -> TableRecord:
        """The record of a table. Raises EntityNotFoundError, CallError, what ``caller.admits`` raises. Cost: 1
        coordinator call."""
        full = records.check_table_name(name)
        record = self.coordinator.table(full)
        if not caller.admits(None if record is None else record.table_id, full) or record is None:
            raise EntityNotFoundError(f"The catalog {self.coordinator.url} has no table {full}.")
        return record

    def table(self, record: TableRecord) -> DeltaTable:
        """The table, opened through the catalog. Each of its commits takes effect individually. Cost: that of
        ``handle``."""
        return DeltaTable(self.handle(record))

    def handle(self, record: TableRecord) -> TableHandle:
        """The TableHandle of a table, which all users in this process share. Cost: the first time that of
        ``DeltaTable.open`` and 2 coordinator calls; then none."""
        with self._lock:
            known = self._handles.get(record.table_id)
        if known is not None:
            return known
        reader = self._reader(self.store(record))
        return self._share(record, reader, Snapshot(load_latest(reader)))

    def _share(self, record: TableRecord, reader: LogReader, latest: Snapshot) -> TableHandle:
        handle = handle_on(reader, self._environment, latest)
        with self._lock:
            return self._handles.setdefault(record.table_id, handle)

    def places(self) -> list[str]:
        """The roots of all opened tables."""
        with self._lock:
            return list(self._places)

    def advance(self, table_id: str, snapshot: Snapshot, replaced: Snapshot | None = None) -> None:
        """Advance the handle of a table to the snapshot of a new commit. ``replaced``: as for
        ``TableHandle.advance``."""
        with self._lock:
            handle = self._handles.get(table_id)
        if handle is not None:
            handle.advance(snapshot, replaced)

    def marks(self, table_id: str) -> KnownMarks:
        """The markings of a table, cached in this process. Cost: none."""
        with self._lock:
            return self._marks.setdefault(table_id, KnownMarks(self.coordinator, table_id))

    def store(self, record: TableRecord, pin: int | None = None) -> ManagedStore[Coordinator]:
        """The store of a table that is opened through the catalog; if ``pin`` is set, the store ends at that
        version."""
        return ManagedStore(self.plain_store(record.url), self.coordinator, record.table_id, pin=pin)

    def record_late(self, table_id: str, commits: Sequence[RatifiedCommit]) -> None:
        """Remember commits that were published long after they were written: from now on, clients that loaded the table
        before may read their staged files for a while."""
        now_ms = self._environment.clock_ms()
        if commits and now_ms - commits[0].in_commit_timestamp_ms > _LATE_MS:
            with self._lock:
                self._late[table_id] = commits[-1].version, now_ms

    def late(self, table_id: str, since_ms: int) -> int:
        """The last version that was published late after ``since_ms``; -1 if there is none."""
        with self._lock:
            version, at_ms = self._late.get(table_id, (-1, since_ms))
            if at_ms < since_ms:
                del self._late[table_id]
            return version if at_ms >= since_ms else -1

    def named_locations(self) -> tuple[str, ...]:
        """The prefixes of locations for which there are storage options (``by_location``). Cost: none."""
        given = spread(self._storage_options).get(BY_LOCATION)
        return tuple(given) if isinstance(given, Mapping) else ()

    def plain_store(self, url: str) -> LogStore:
        """The store of a table's files, accessed without the catalog."""
        with self._lock:
            self._places.add(url)
        return open_store(url, **self._storage_options)

    def version_at(self, record: TableRecord, timestamp: PointInTime, latest: Mapping[str, int]) -> int:
        """See ``TransactionManager.consistent_cut``. ``latest``: the last version to consider of each table, keyed by
        table id."""
        if record.table_id not in latest:
            raise EntityNotFoundError(f"{record.name} was dropped from the catalog {self.coordinator.url} meanwhile.")
        table = self.table(record)
        version = min(table.version_at(timestamp, after="latest").version, latest[record.table_id])
        part, parts = place_in_transaction(table.snapshot().reader.commit_info(version))
        # The last commits of a transaction have the same timestamp in all tables; at any earlier time, the transaction
        # is incomplete.
        return version if part == parts else version - part

    def publish(self, record: TableRecord) -> int:
        """See ``deltalog.catalog.committer.publish``."""
        return publish(self.plain_store(record.url), self.coordinator, record.table_id)


def _logged_id(snapshot: Snapshot) -> str | None:
    """The id in a table's log, if it can be that of a table."""
    table_id = snapshot.metadata.configuration.get(UNITY_TABLE_ID_KEY)
    return table_id if table_id is not None and records.is_table_id(table_id) else None
