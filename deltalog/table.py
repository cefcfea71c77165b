"""DeltaTable: a table at a location, and its verbs."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from deltalog.addresses import committer_of, handle_on, handle_on_latest, open_handle
from deltalog.arguments import checked, half_made
from deltalog.commit_result import CommitResult
from deltalog.copy_verbs import CopyVerbs
from deltalog.environment import Environment
from deltalog.errors import CallError, TableNotFoundError
from deltalog.log.history_entries import CommitEntry, TimestampExplanation
from deltalog.log.reader import LogReader
from deltalog.maintenance_verbs import MaintenanceVerbs
from deltalog.operations import alterations, clustering, constraints, protocol_changes, row_id_backfill
from deltalog.operations.commit_info import UserMetadata
from deltalog.operations.contract import staging, stream
from deltalog.operations.contract.staging import StagedFiles
from deltalog.operations.create import create, creation
from deltalog.operations.properties import set_properties, switch_in_commit_timestamps, unset_properties
from deltalog.operations.restore import RestoreResult, restore
from deltalog.operations.table_handle import TableHandle
from deltalog.operations.transaction import Transaction
from deltalog.protocol.column_paths import Place
from deltalog.protocol.schema import DataType, StructType
from deltalog.protocol.timestamps import CommitAt, to_epoch_ms
from deltalog.read.changes import Changes, changes_between
from deltalog.read.snapshot import Snapshot
from deltalog.read.stream_offsets import StreamRules
from deltalog.read.table_stream import TableStream
from deltalog.row_verbs import RowVerbs
from deltalog.storage.registry import Location, open_store
from deltalog.table_html import table_html

if TYPE_CHECKING:
    from typing_extensions import Unpack

PointInTime = datetime.datetime | int | str
T = TypeVar("T")


@checked
class DeltaTable(RowVerbs, CopyVerbs, MaintenanceVerbs):
    """A Delta table; ``DeltaTable(url)`` and ``DeltaTable.open(url)`` open one. Threads may share it; each call works
    on a snapshot of its own.

    Points in time are aware datetimes, ints (ms since the Unix epoch) or ISO text with an offset or Z; anything else
    raises InvalidTimestampError. ``Dataset(table)`` has the verbs of the write contract.

    Members: one for each verb of a table. None has logic of its own: rules are in ``operations``, state in TableHandle.
    """

    def __init__(
        self,
        table: Location | TableHandle,
        *others: object,
        storage_options: Mapping[str, Any] | None = None,
        **options: object,
    ) -> None:
        """As ``DeltaTable.open(table, storage_options=storage_options)``, which takes options one by one, too. Raises
        CallError for other arguments."""
        if others or options:
            raise CallError(
                f"DeltaTable({table!r}) takes storage_options and nothing else. Call DeltaTable.open(url, …) for other "
                "options, snapshot(version=…) of the table for an earlier version, or DeltaTable.create(url, schema) "
                "for a new table."
            )
        if not isinstance(table, TableHandle):
            table = open_handle(table, (), Environment(), storage_options=storage_options)
        self._handle = table

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with its location and storage options, including any secrets. Unpickling opens the table at its
        latest version. Cost: as ``open``. Raises CallError for a table of a transaction, and for a store that was not
        opened by a URL or a path."""
        if self._handle.reader.authority.branch is not None:
            raise CallError(f"{self.url}: a table opened in a transaction cannot be pickled; use it in this process.")
        return _opened_again, (type(self), self._handle.reader, self._handle.environment)

    @half_made
    def __repr__(self) -> str:
        return f"DeltaTable(url={self.url!r}, version={self.version})"

    def _repr_html_(self) -> str:
        latest = self._handle.latest
        return table_html(self.url, latest.version, latest.schema, latest.partition_columns)

    # ------------------------------------------------------------------------------------ open and create

    @classmethod
    def open(
        cls,
        url: Location,
        *,
        allowed_paths: Sequence[str] = (),
        environment: Environment | None = None,
        **storage_options: Any,
    ) -> DeltaTable:
        """The table at a location, or that of a catalog: ``catalog:<catalog>#<name>``, as TransactionManager has them.
        ``storage_options``: as for ``open_store``.

        ``allowed_paths``: directories or prefixes outside the table, on the same kind of store, that absolute paths in
        its log may name, such as the source of a shallow clone. A file anywhere else is an UnsafePathError.

        Raises TableNotFoundError, UnsupportedFeatureError, CorruptTableError. Cost: 1 GET of the checkpoint hint, 1
        LIST, 2 GETs if the last version has a valid ``.crc``; else the checkpoint's small columns and 1 GET for each
        commit after it.
        """
        return cls(open_handle(url, allowed_paths, environment or Environment(), **storage_options))

    @classmethod
    def exists(cls, url: Location, **storage_options: Any) -> bool:
        """Whether a table can be opened there. Cost: as ``open``."""
        try:
            cls.open(url, **storage_options)
        except TableNotFoundError:
            return False
        return True

    @classmethod
    def create(
        cls,
        url: Location,
        schema: StructType | pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        cluster_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        data: Any = None,
        environment: Environment | None = None,
        **storage_options: Any,
    ) -> DeltaTable:
        """Create a table, with rows where ``data`` is given, in one commit.

        ``cluster_by``: as ``DeltaTable.cluster_by``.
        ``properties={"delta.enableInCommitTimestamps": "true"}`` gives it in-commit timestamps from version 0.
        Raises TableExistsError, SchemaMismatchError, InvalidPropertyError. Cost: 1 LIST, 1 PUT for each file, 1 commit.
        """
        transaction = cls.create_transaction(
            url, schema, partition_by=partition_by, cluster_by=cluster_by, properties=properties, name=name,
            description=description, environment=environment, **storage_options,
        )  # fmt: skip
        with transaction:
            create(transaction, data)
        assert transaction.committed is not None
        return cls(handle_on(transaction.reader, environment or Environment(), transaction.committed))

    @classmethod
    def create_for_blobs(
        cls, url: Location, *, properties: Mapping[str, str] | None = None, **options: Any
    ) -> DeltaTable:
        """Create a table of blobs: a row for each (path, size, sha256), and the bytes below ``_blobs/``.

        ``Dataset.stream_write`` adds one, ``Dataset.open_blob`` reads one. ``options``, errors and cost: of ``create``.
        """
        marked = {**(properties or {}), staging.BLOBS_PROPERTY: "true"}
        return cls.create(url, stream.BLOB_SCHEMA, properties=marked, **options)

    @classmethod
    def create_transaction(
        cls,
        url: Location,
        schema: StructType | pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        cluster_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        environment: Environment | None = None,
        **storage_options: Any,
    ) -> Transaction:
        """A transaction whose commit is version 0, for a table that is created with files.

        Raises TableExistsError, also at commit when another writer has created the table.
        """
        environment = environment or Environment()
        reader = LogReader(open_store(url, **storage_options), (), environment.clock_ms)
        return creation(
            reader, committer_of(reader, environment), environment, schema, partition_by=partition_by,
            cluster_by=cluster_by, properties=properties, name=name, description=description,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------- reading

    @property
    def url(self) -> str:
        """The table's root."""
        return self._handle.url

    @property
    def version(self) -> int:
        """The latest version that this handle has read. Cost: none."""
        return self._handle.latest.version

    @property
    def schema(self) -> StructType:
        """The columns of the latest version that this handle has read. Cost: none."""
        return self._handle.latest.schema

    def to_pyarrow_table(self) -> pa.Table:
        """All rows of the latest version, in memory. ``snapshot().scan()`` reads some of them. Raises and costs as
        ``snapshot`` and ``Scan.batches``."""
        return self.snapshot().scan().to_arrow()

    def to_pandas(self) -> Any:
        """As ``to_pyarrow_table``, as a pandas DataFrame; needs pandas."""
        return self.snapshot().scan().to_pandas()

    def snapshot(self, version: int | None = None, timestamp: PointInTime | None = None) -> Snapshot:
        """The latest version, a given one, or the one that was current at a point in time.

        Raises VersionNotFoundError, TimestampOutOfRangeError, InvalidTimestampError. Cost: latest: 2 HEADs, and
        1 LIST and the new commits when there are any; a version: 1 LIST and its log files, none while it is in use; a
        point in time: as ``version_at``, and as a version.
        """
        return self._handle.at(version, _epoch_ms(timestamp))

    def version_at(self, timestamp: PointInTime, before: str = "error", after: str = "error") -> CommitAt:
        """The version that was current at a point in time, with its own time and the clock that is used for it.

        ``before="earliest"`` and ``after="latest"`` clamp times outside the history; otherwise
        TimestampOutOfRangeError has the bounds. Raises InvalidEnablementError and
        MissingInCommitTimestampError when the log lacks the data. Cost: 2 HEADs, and up to 8 GETs of 4 KiB in each of
        3 to 6 rounds; where file times decide, or the log has gaps, that of listing it whole.
        """
        return self._handle.history().version_at(to_epoch_ms(timestamp), before, after)

    def explain_timestamp(self, timestamp: PointInTime) -> TimestampExplanation:
        """How a point in time is resolved: the clock, the candidates, the answer, its neighbours, the bounds.

        print() it, or take to_json(). Cost: as ``version_at``, and that of listing the log whole.
        """
        return self._handle.history().explain(to_epoch_ms(timestamp))

    def history(self, limit: int | None = None) -> list[CommitEntry]:
        """The commits, newest first, each with the time that time travel uses.

        Cost: 2 HEADs, and for each commit returned 1 GET of 4 KiB and 1 HEAD; on an object store 1 LIST instead of
        many HEADs, and with ``limit``, on a handle that has read the table within ten seconds, all in one round; new
        commits make that two.
        """
        return self._handle.history_entries(limit)

    def changes(
        self,
        from_version: int | None = None,
        to_version: int | None = None,
        *,
        from_timestamp: PointInTime | None = None,
        to_timestamp: PointInTime | None = None,
        allow_out_of_range: bool = False,
    ) -> Changes:
        """The change data feed of a range of versions, both ends included; to the latest by default.

        ``from_timestamp`` begins at the first commit at or after it, ``to_timestamp`` ends at the last one at or
        before it, by the in-commit timestamp rules; two times between the same two commits give no changes. An end
        after the latest version, or after its time, is an error.
        ``allow_out_of_range``: no changes instead of an error where the range begins after the latest version, and a
        range that ends after it ends with it. The table property delta.enableChangeDataFeed must have been true in the
        whole range. Raises VersionNotFoundError, TimestampOutOfRangeError, CallError. Cost: 1 LIST and as two
        snapshots.
        """
        since, until = _epoch_ms(from_timestamp), _epoch_ms(to_timestamp)
        return changes_between(self._handle.history(), from_version, to_version, since, until, allow_out_of_range)

    def stream(
        self,
        *,
        starting_version: int | Literal["latest"] | None = None,
        starting_timestamp: PointInTime | None = None,
        ignore_deletes: bool = False,
        ignore_changes: bool = False,
        skip_change_commits: bool = False,
        read_change_feed: bool = False,
        fail_on_data_loss: bool = True,
    ) -> TableStream:
        """The rows of the latest version and then those of later commits, in batches between offsets that the caller
        keeps; with ``starting_version`` or ``starting_timestamp`` only those of that commit and the later ones.

        ``starting_version="latest"``: of commits after the latest version. ``starting_timestamp``: the first commit at
        or after it, by the in-commit timestamp rules. A commit that deletes or changes rows is an error unless
        ``ignore_deletes`` (for commits that only remove files), ``skip_change_commits`` or ``ignore_changes`` (the
        rewritten files are read again) is set; ``read_change_feed`` gives the rows of the change data feed.
        ``fail_on_data_loss=False``: commits that log clean-up has deleted are left out. Raises CallError. Cost: as
        ``snapshot``, and 2 HEADs for "latest".
        """
        if starting_version is not None and starting_timestamp is not None:
            raise CallError("Give a starting version or a starting timestamp, not both.")
        rules = StreamRules(ignore_deletes, ignore_changes, skip_change_commits, read_change_feed)
        version = self._handle.refresh().version + 1 if isinstance(starting_version, str) else starting_version
        since = _epoch_ms(starting_timestamp)
        return TableStream(self._handle.history, rules, version, since, fail_on_data_loss)

    # ------------------------------------------------------------------------------------------- writing

    def retrying(self, work: Callable[[DeltaTable], T], *, retry_count: int = 10) -> T:
        """Call ``work(table)``, and repeat it from the start after each conflict with another writer, at most
        ``retry_count`` times: it must read the table again in each call. Create data that can be read only once inside
        ``work``: a reader that was read before is a CallError, whose cause is the conflict.

            table.retrying(lambda t: t.delete("day = '2026-11-20'"))

        ``RetryPolicy`` has the waits. Raises what ``work`` raises, and the last conflict. A CommitStateUnknownError is
        not a conflict: nothing is repeated after it.
        """
        return self._handle.retrying(lambda: work(self), retry_count)

    def stage(self, data: Any, **options: Unpack[staging.WriteOptions]) -> StagedFiles:
        """Write rows into files that no version names yet, for ``commit_staged``; threads and processes may stage
        concurrently. Only the options ``checksum`` and ``timestamp_column`` matter. Raises as ``append``. Cost: 1 PUT
        for each file."""
        return staging.stage(staging.target_of(self._handle), data, staging.options_of(options))

    def commit_staged(
        self,
        staged: Iterable[StagedFiles],
        metadata: Mapping[str, Any] | None = None,
        **options: Unpack[staging.WriteOptions],
    ) -> Snapshot:
        """Commit staged files of any process as one version. The caller owns the files: they are kept when this fails,
        or when a transaction over several tables that contains them is cancelled. Files are committed once:
        FilesCommittedError, with the version, if any version has added one; so the same call is safe after a
        CommitStateUnknownError. Raises VersionConflictError, MetadataChangedError where the table has other columns
        now, and as Transaction.commit. Cost: 1 PUT, 1 GET for each version since (for more than 100 the live files)."""
        target = staging.target_of(self._handle)
        return staging.commit_staged(target, list(staged), metadata, staging.options_of(options))

    def discard_staged(self, staged: Iterable[StagedFiles]) -> list[Exception]:
        """Delete staged files that will not be committed, best effort. Returns the failures.

        Raises FilesCommittedError when a version has named one of them, CommitStateUnknownError when the outcome of a
        commit of them is unknown: nothing is deleted then. A later commit by another process is not detected. Cost: 2
        HEADs, 1 GET for each version since they were staged, 1 DELETE for each file."""
        return staging.discard_staged(staging.target_of(self._handle), staged)

    def set_properties(self, properties: Mapping[str, str], *, user_metadata: UserMetadata = None) -> CommitResult:
        """Set table properties; values are text. Raises InvalidPropertyError, MetadataChangedError.

        ``delta.enableRowTracking`` gives row ids to the files that lack them, in commits of their own before this one
        (``ROW TRACKING BACKFILL``). Cost: 1 commit; for row ids one more, and one for each 100,000 files.
        """
        row_id_backfill.prepare(self._handle, properties, user_metadata)
        with self._handle.transaction() as transaction:
            return set_properties(transaction, properties, user_metadata)

    def unset_properties(self, keys: Iterable[str], *, user_metadata: UserMetadata = None) -> CommitResult:
        """Remove table properties; absent ones are ignored."""
        with self._handle.transaction() as transaction:
            return unset_properties(transaction, list(keys), user_metadata)

    def add_constraint(self, name: str, expression: str, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Add a CHECK constraint: an SQL condition that must be true (not null) for every row.

        Existing rows are checked first. Raises ConstraintViolationError, CallError for an expression that
        is not supported, and CommitConflictError when rows are added concurrently. Cost: a read of the columns of the
        condition, and one commit. Spec: PROTOCOL.md#check-constraints.
        """
        with self._handle.transaction() as transaction:
            return constraints.add_constraint(transaction, name, expression, user_metadata)

    def drop_constraint(
        self, name: str, *, if_exists: bool = False, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Drop a CHECK constraint. Raises CallError for an absent one; with ``if_exists`` no commit is made then (the
        result's ``skipped`` is true). Cost: one commit."""
        with self._handle.transaction() as transaction:
            return constraints.drop_constraint(transaction, name, if_exists, user_metadata)

    def enable_in_commit_timestamps(self) -> CommitResult:
        """Turn in-commit timestamps on from the next commit on, with the enablement pair where older commits
        have none. No commit is made when they are on already (the result's ``skipped`` is true)."""
        with self._handle.transaction() as transaction:
            return switch_in_commit_timestamps(transaction, True)

    def disable_in_commit_timestamps(self) -> CommitResult:
        """Turn in-commit timestamps off and remove the enablement pair in the same commit."""
        with self._handle.transaction() as transaction:
            return switch_in_commit_timestamps(transaction, False)

    def add_columns(
        self,
        columns: alterations.NewColumns,
        *,
        after: Mapping[str, str | None] | None = None,
        user_metadata: UserMetadata = None,
    ) -> CommitResult:
        """Add nullable columns: fields of a pyarrow schema, a StructType or a list of StructField.

        Names are paths: ``a.b`` is a field ``b`` at the end of the struct ``a``; ``element``, ``key`` and ``value``
        lead into arrays and maps, and names with dots are in backticks. In existing rows the columns are null.
        ``after``: for names of new columns the column, of the same struct, that each follows; None: it becomes the
        first. Raises SchemaMismatchError, CallError, MetadataChangedError.
        """
        with self._handle.transaction() as transaction:
            return alterations.add_columns(transaction, columns, user_metadata, after)

    def rename_column(
        self, old: alterations.ColumnPath, new: str, *, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Give a column another name; no file is written. ``old`` is a path, ``new`` only the name.

        Needs column mapping. Raises CallError without it, SchemaMismatchError where a constraint, an invariant or a
        generated column uses the column, MetadataChangedError.
        """
        with self._handle.transaction() as transaction:
            return alterations.rename_column(transaction, old, new, user_metadata)

    def drop_columns(self, columns: alterations.ColumnPaths, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Drop columns, each given as a path; no file is written, and older versions still have them.

        Needs column mapping. Raises CallError without it, SchemaMismatchError for columns by which the table is
        partitioned or clustered or that an expression uses, MetadataChangedError.
        """
        with self._handle.transaction() as transaction:
            return alterations.drop_columns(transaction, columns, user_metadata)

    def set_column(
        self,
        column: alterations.ColumnPath,
        *,
        nullable: bool | None = None,
        comment: str | None = None,
        data_type: DataType | pa.DataType | None = None,
        sync_identity: bool = False,
        first: bool = False,
        after: str | None = None,
        user_metadata: UserMetadata = None,
    ) -> CommitResult:
        """Change one column, given as a path: allow nulls, set a comment ("" removes it), make its type wider, move it.

        Wider types need the table property delta.enableTypeWidening; PROTOCOL.md#type-widening lists them. None:
        unchanged; no commit is made when nothing changes. ``sync_identity``: read an identity column, and move its
        high-water mark past values that another writer gave it (Spark's SYNC IDENTITY). ``first``, ``after``: the place
        among the columns of the table, or of the column's struct; no file is written. Raises SchemaMismatchError,
        MetadataChangedError, and ConcurrentAppendError for rows that are added while it is read.
        """
        if first and after is not None:
            raise CallError(f"first and after={after!r} are two places for one column. Give one of them.")
        place = Place(after) if first or after is not None else None
        changes = (nullable, comment, data_type, user_metadata, sync_identity, place)
        with self._handle.transaction() as transaction:
            return alterations.set_column(transaction, column, *changes)

    def cluster_by(self, columns: alterations.ColumnPaths, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Cluster the table by columns, each given as a path (ALTER TABLE … CLUSTER BY); none: no longer. No file is
        rewritten: ``optimize.compact`` orders rows by them. No commit is made when nothing changes.

        Raises SchemaMismatchError for a partitioned table, CallError for columns of which a file has no bounds,
        ConcurrentAppendError for files that are added meanwhile. Cost: as ``Snapshot.files`` with their statistics.
        """
        with self._handle.transaction() as transaction:
            return clustering.cluster_by(transaction, columns, user_metadata)

    def set_table(
        self, *, name: str | None = None, description: str | None = None, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Set the table's name or description; None: unchanged. Raises MetadataChangedError."""
        with self._handle.transaction() as transaction:
            return alterations.set_table(transaction, name, description, user_metadata)

    def set_domain_metadata(
        self, domain: str, configuration: str | Mapping[str, Any], *, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Store a text, or a mapping as JSON, in the table under a custom name; read back by
        ``snapshot().domain_metadata``. Adds the feature domainMetadata.

        Raises CallError for names that begin with ``delta.``, ConcurrentTransactionError.
        """
        with self._handle.transaction() as transaction:
            return alterations.set_domain_metadata(transaction, domain, configuration, user_metadata)

    def remove_domain_metadata(self, domain: str, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Remove a metadata domain of ``set_domain_metadata``. No commit is made when it does not exist."""
        with self._handle.transaction() as transaction:
            return alterations.remove_domain_metadata(transaction, domain, user_metadata)

    def add_feature(self, name: str, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Add a table feature, and those that it requires, to the protocol. Clients without it are locked out.

        No commit is made when it is listed already. Raises InvalidPropertyError for a name that Delta does not have,
        UnsupportedFeatureError, ProtocolChangedError.
        """
        with self._handle.transaction() as transaction:
            return protocol_changes.add_feature(transaction, name, user_metadata)

    def upgrade_protocol(
        self, reader_version: int, writer_version: int, *, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Raise the versions of the protocol, which stand for the features that ``PROTOCOL.md#feature-table`` lists:
        clients without one of these can no longer write the table, or with a reader version above 1 read it. Versions
        are never lowered, and nothing is committed where the table has all of these features. ``add_feature`` adds
        one alone.

        Raises CallError for versions that Delta does not have. Cost: as a commit.
        """
        with self._handle.transaction() as transaction:
            return protocol_changes.upgrade_protocol(transaction, reader_version, writer_version, user_metadata)

    def drop_feature(self, name: str, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Drop a table feature, so that clients without it can use the table again: first the properties that turn
        it on, in a separate commit, then the feature. The clustering columns go with the feature clustering, and files
        with deletion vectors are rewritten before that feature goes, as by ``optimize.purge``.

        A reader feature can only be dropped when no version in the log uses it, and any feature only when nothing in
        the table uses it: else CallError says what uses it and what to do. Raises UnsupportedFeatureError,
        ProtocolChangedError; FeatureDropIncompleteError, with such an error as its cause, when an earlier commit was
        made and stays. Cost: two commits; for reader features 1 GET for each commit of the log; as ``optimize.purge``.
        """
        return protocol_changes.drop_feature(
            self.transaction, name, user_metadata, lambda: self.optimize.purge(user_metadata=user_metadata).commits
        )

    def restore(
        self,
        version: int | None = None,
        timestamp: PointInTime | None = None,
        *,
        ignore_missing_files: bool = False,
        dry_run: bool = False,
        user_metadata: UserMetadata = None,
    ) -> RestoreResult:
        """Restore rows, schema, properties and metadata domains of an earlier version, in a new commit.

        In-commit timestamps, the protocol and the versions of applications are kept. Files that no longer exist
        in the store raise InvalidDataFileError before anything is committed, unless ``ignore_missing_files=True``
        restores the table without their rows; ``dry_run=True`` only lists them. Conflicts with any concurrent
        change of rows, at every isolation level: the table is exactly as it was, or the commit fails. Raises
        VersionNotFoundError, TimestampOutOfRangeError. Cost: both versions' files, 1 HEAD for each file that comes
        back, a commit.
        """
        if (version is None) == (timestamp is None):
            raise CallError("Give the version or the timestamp to restore.")
        target = self._handle.at(version, _epoch_ms(timestamp), for_change=True)
        with self._handle.transaction() as transaction:
            return restore(transaction, target, _epoch_ms(timestamp), ignore_missing_files, dry_run, user_metadata)


def handle_of(table: DeltaTable) -> TableHandle:
    """The state of a table, for the modules that build on it."""
    return table._handle


def _epoch_ms(timestamp: PointInTime | None) -> int | None:
    return None if timestamp is None else to_epoch_ms(timestamp)


def _opened_again(cls: type[DeltaTable], reader: LogReader, environment: Environment) -> DeltaTable:
    return cls(handle_on_latest(reader, environment))
