"""DeltaTable: a table at a location, with its verbs."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from deltalog.addresses import committer_of, handle_on, handle_on_latest, open_handle
from deltalog.alter import alterations, clustering, constraints, row_id_backfill, table_features
from deltalog.alter.properties import set_properties, switch_in_commit_timestamps, unset_properties
from deltalog.arguments import checked, safe_repr
from deltalog.commit.prepared import Hooks, IsolationLevel
from deltalog.commit_result import CommitResult
from deltalog.create.clone import cloned
from deltalog.create.convert import converted
from deltalog.create.new_table import create, creation
from deltalog.doctor import examination
from deltalog.doctor.check import examine
from deltalog.doctor.examination import Progress as CheckProgress
from deltalog.doctor.findings import CheckReport
from deltalog.environment import Environment
from deltalog.errors import CallError, TableExistsError, TableNotFoundError
from deltalog.expressions.tree import Predicate
from deltalog.log.checkpoint.writer import SIDECAR_ROWS, TopLevel
from deltalog.log.cleanup import CleanupReport
from deltalog.log.history_entries import CommitEntry, TimestampExplanation
from deltalog.log.reader import LogReader
from deltalog.maintenance import log_files, missing_files, statistics
from deltalog.maintenance.manifests import write_manifests
from deltalog.maintenance.optimize.optimizer import TableOptimizer
from deltalog.maintenance.restore import RestoreResult, restore
from deltalog.maintenance.vacuum import vacuum as vacuuming
from deltalog.maintenance.vacuum.decisions import VacuumReport
from deltalog.maintenance.vacuum.tasks import RunTasks, VacuumRunner
from deltalog.parquet.file_options import DEFAULT as DEFAULT_FILES
from deltalog.parquet.file_options import FileOptions
from deltalog.protocol.column_paths import Place
from deltalog.protocol.schema import DataType, StructType
from deltalog.protocol.timestamps import CommitAt, to_epoch_ms
from deltalog.read.changes import Changes, changes_between
from deltalog.read.origin import Read
from deltalog.read.snapshot import Snapshot
from deltalog.read.stream_offsets import StreamRules
from deltalog.read.table_stream import TableStream
from deltalog.rows.append import append
from deltalog.rows.delete import delete
from deltalog.rows.merge.builder import TableMerger
from deltalog.rows.overwrite import Columns, replacing
from deltalog.rows.update import update
from deltalog.storage.registry import Location, open_store
from deltalog.table_html import table_html
from deltalog.write.commit_info import UserMetadata
from deltalog.write.table_handle import TableHandle
from deltalog.write.transaction import Transaction
from deltalog.write.transaction_options import TransactionOptions
from deltalog.write_contract import staging, stream
from deltalog.write_contract.staging import StagedFiles

if TYPE_CHECKING:
    from typing_extensions import Unpack

PointInTime = datetime.datetime | int | str
T = TypeVar("T")


@checked
class DeltaTable:
    """A Delta table; ``DeltaTable(url)`` and ``DeltaTable.open(url)`` open one. Threads may share it; each call works
    on its own snapshot.

    Points in time are aware datetimes, ints (ms since the Unix epoch) or ISO text with an offset or Z; anything else
    raises InvalidTimestampError. ``Dataset(table)`` has the verbs of the write contract.

    Each verb delegates: its rules are in ``rows``, ``alter``, ``create`` and ``maintenance``, its state in TableHandle.
    """

    def __init__(
        self,
        table: Location | TableHandle,
        *others: object,
        storage_options: Mapping[str, Any] | None = None,
        **options: object,
    ) -> None:
        """Like ``DeltaTable.open(table, storage_options=storage_options)``; ``open`` also takes single options. Raises
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
        """Pickle support: stores the location and the storage options, including any secrets. Unpickling opens the
        table at its latest version. Cost: as ``open``. Raises CallError for a table of a transaction, and for a store
        that was not opened from a URL or a path."""
        if self._handle.reader.authority.branch is not None:
            raise CallError(f"{self.url}: a table opened in a transaction cannot be pickled; use it in this process.")
        return _opened_again, (type(self), self._handle.reader, self._handle.environment)

    @safe_repr
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
        """Open the table at a location, or a catalog's table by its address ``catalog:<catalog>#<name>``, as for
        TransactionManager. ``storage_options``: as for ``open_store``.

        ``allowed_paths``: directories or prefixes outside the table, on the same kind of store, in which absolute paths
        of its log may lie, such as the source of a shallow clone. A file anywhere else is an UnsafePathError.

        Raises TableNotFoundError, UnsupportedFeatureError, CorruptTableError. Cost: 1 GET of the checkpoint hint, 1
        LIST, 2 GETs if the last version has a valid ``.crc``; else the checkpoint's small columns and 1 GET for each
        commit after it.
        """
        return cls(open_handle(url, allowed_paths, environment or Environment(), **storage_options))

    @classmethod
    def exists(cls, url: Location, **storage_options: Any) -> bool:
        """Whether a table can be opened at a location. Cost: as ``open``."""
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
        """Create a table, with the rows of ``data`` if set, in one commit.

        ``cluster_by``: as ``DeltaTable.cluster_by``. ``properties={"delta.enableInCommitTimestamps": "true"}`` gives it
        in-commit timestamps from version 0. Raises TableExistsError, SchemaMismatchError, InvalidPropertyError. Cost: 1
        LIST, 1 PUT for each file, 1 commit.
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
        """Create a table of blobs, with a row (path, size, sha256) for each blob, and the bytes below ``_blobs/``.

        ``Dataset.stream_write`` adds a blob, ``Dataset.open_blob`` reads one. ``options``, errors and cost: as for
        ``create``.
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
        """A transaction whose commit is version 0, to create a table together with files.

        Raises TableExistsError, also on commit if another writer has created the table.
        """
        environment = environment or Environment()
        reader = LogReader(open_store(url, **storage_options), (), environment.clock_ms)
        return creation(
            reader, committer_of(reader, environment), environment, schema, partition_by=partition_by,
            cluster_by=cluster_by, properties=properties, name=name, description=description,
        )  # fmt: skip

    @classmethod
    def convert(
        cls,
        url: Location,
        *,
        partition_by: StructType | pa.Schema | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        mode: Literal["error", "ignore"] = "error",
        user_metadata: UserMetadata = None,
        environment: Environment | None = None,
        **storage_options: Any,
    ) -> DeltaTable:
        """Turn a directory of Parquet files into a table in place: one commit that adds all files, with statistics from
        their footers. No file is moved, rewritten or deleted.

        The columns are the union of the columns of all files; a column with different types is refused. Directories
        such as ``day=2026-11-20`` become partition columns, which come last: integer, long or date if all values of a
        column are, else string. ``partition_by`` gives them other types (timestamps without an offset are UTC), or only
        names the expected partition columns. Files and directories whose names begin with ``_`` or ``.`` are ignored.
        Links, mount points and files that are not Parquet are refused, so that the table has every row that a reader of
        the directory returns. ``properties``: of the new table. ``mode="ignore"``: open the table if one already
        exists.

        No process may write to the directory meanwhile: it is listed twice, and a difference is refused. Raises
        TableExistsError, CallError if there are no files, InvalidDataFileError, SchemaMismatchError, RowCountError,
        InvalidPropertyError, StoreError; nothing is committed then. Cost: 1 LIST of the log, as ``LogStore.walk``
        twice, for each file 1 HEAD and 2 to 4 concurrent ranged GETs, 1 commit.
        """
        environment = environment or Environment()
        reader = LogReader(open_store(url, **storage_options), (), environment.clock_ms)
        try:
            transaction = converted(
                reader, committer_of(reader, environment), environment,
                partition_by, properties or {}, name, description, user_metadata,
            )  # fmt: skip
        except TableExistsError:
            if mode == "error":
                raise
            return cls(handle_on_latest(reader, environment))
        assert transaction.committed is not None
        return cls(handle_on(reader, environment, transaction.committed))

    def clone(
        self,
        target: Location,
        *,
        shallow: bool = False,
        version: int | None = None,
        timestamp: PointInTime | None = None,
        properties: Mapping[str, str] | None = None,
        user_metadata: UserMetadata = None,
        **storage_options: Any,
    ) -> DeltaTable:
        """Clone the latest version, a specific version, or the version that was current at a point in time: one commit
        to a new table at ``target``, which then has its own history.

        By default the clone is deep: the files are copied. A ``shallow`` clone references the files of its source by
        absolute paths, on the same kind of store. It needs them as long as one of its versions references them, but a
        vacuum of the source does not know that. To open it again, pass their location: ``DeltaTable.open(target,
        allowed_paths=[source])``.

        Columns, properties (changed by ``properties``), table features, metadata domains, deletion vectors and row ids
        are kept; the id, the history and the app transactions (txn) are not. If the source has in-commit timestamps,
        the clone has them from version 0. ``storage_options``: of the target. Returns the clone.

        Raises TableExistsError, also if the target of a deep clone is not empty; CallError for another kind of store, a
        blob table, or within a transaction; InvalidPropertyError, UnsupportedFeatureError, VersionNotFoundError,
        TimestampOutOfRangeError, InvalidDataFileError for a file whose size differs from the log, StoreError. Nothing
        is committed then, and copies are deleted. Cost: as ``snapshot`` and ``Snapshot.files``, 1 LIST, 1 commit; for
        copies, the target's ``LogStore.walk`` up to its first file, and 1 or more GETs and 1 PUT for each file.
        """
        source = self._handle.at(version, _epoch_ms(timestamp))
        files, environment = source.reader.files, self._handle.environment
        places = (files.store.url, *files.allowed_paths) if shallow else ()
        reader = LogReader(open_store(target, **storage_options), places)
        transaction = cloned(
            source,
            reader,
            committer_of(reader, environment),
            environment,
            shallow,
            properties or {},
            user_metadata,
        )
        assert transaction.committed is not None
        return type(self)(handle_on(reader, environment, transaction.committed))

    # ------------------------------------------------------------------------------------------- reading

    @property
    def url(self) -> str:
        """The URL of the table root."""
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
        """All rows of the latest version, in memory. To read only some of them, use ``snapshot().scan()``. Raises and
        costs as ``snapshot`` and ``Scan.batches``."""
        return self.snapshot().scan().to_arrow()

    def to_pandas(self) -> Any:
        """All rows of the latest version as a pandas DataFrame. Raises and costs as ``to_pyarrow_table``; needs
        pandas."""
        return self.snapshot().scan().to_pandas()

    def snapshot(self, version: int | None = None, timestamp: PointInTime | None = None) -> Snapshot:
        """The latest version, a specific version, or the version that was current at a point in time.

        Raises VersionNotFoundError, TimestampOutOfRangeError, InvalidTimestampError. Cost: for the latest, 2 HEADs, and
        1 LIST and the new commits if there are any; for a version, 1 LIST and its log files, none while it is in use;
        for a point in time, as ``version_at`` and as for a version.
        """
        return self._handle.at(version, _epoch_ms(timestamp))

    def version_at(self, timestamp: PointInTime, before: str = "error", after: str = "error") -> CommitAt:
        """The version that was current at a point in time, with its time and the clock that decided.

        ``before="earliest"`` and ``after="latest"`` clamp times outside the history; otherwise these raise
        TimestampOutOfRangeError, which has the bounds. Raises InvalidEnablementError and MissingInCommitTimestampError
        if the log lacks the data. Cost: 2 HEADs, and up to 8 GETs of 4 KiB in each of 3 to 6 rounds; if file times
        decide, or the log has gaps, the cost of listing the whole log.
        """
        return self._handle.history().version_at(to_epoch_ms(timestamp), before, after)

    def explain_timestamp(self, timestamp: PointInTime) -> TimestampExplanation:
        """Explain how a point in time is resolved: the clock, the candidates, the answer, its neighbours, the bounds.

        print() the result, or call its to_json(). Cost: as ``version_at``, and that of listing the whole log.
        """
        return self._handle.history().explain(to_epoch_ms(timestamp))

    def history(self, limit: int | None = None) -> list[CommitEntry]:
        """The commits, newest first, with the times that time travel uses.

        Cost: 2 HEADs, and 1 GET of 4 KiB and 1 HEAD for each commit returned; on an object store 1 LIST instead of many
        HEADs. With ``limit``, on a handle that has read the table within ten seconds, all in one round, or in two if
        there are new commits.
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
        """The change data feed of a range of versions, both ends included; by default up to the latest version.

        ``from_timestamp`` begins at the first commit at or after it, ``to_timestamp`` ends at the last commit at or
        before it, by the in-commit timestamp rules; if no commit lies between two times, there are no changes. An end
        after the latest version, or after its time, is an error. ``allow_out_of_range``: a range that begins after the
        latest version has no changes, and one that ends after it ends at the latest version, instead of an error. The
        table property delta.enableChangeDataFeed must have been true throughout the range. Raises VersionNotFoundError,
        TimestampOutOfRangeError, CallError. Cost: 1 LIST and as two snapshots.
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
        """The rows of the latest version and then of later commits, in batches between offsets that the caller keeps.
        With ``starting_version`` or ``starting_timestamp``, only the rows of that commit and later ones.

        ``starting_version="latest"``: only commits after the latest version. ``starting_timestamp``: begin at the first
        commit at or after it, by the in-commit timestamp rules. A commit that deletes or changes rows is an error
        unless ``ignore_deletes`` (for commits that only remove files), ``skip_change_commits`` or ``ignore_changes``
        (rewritten files are read again) is set; ``read_change_feed`` streams the rows of the change data feed.
        ``fail_on_data_loss=False``: skip commits that log clean-up has deleted. Raises CallError. Cost: as
        ``snapshot``, and 2 HEADs for "latest".
        """
        if starting_version is not None and starting_timestamp is not None:
            raise CallError("Pass a starting version or a starting timestamp, not both.")
        rules = StreamRules(ignore_deletes, ignore_changes, skip_change_commits, read_change_feed)
        version = self._handle.refresh().version + 1 if isinstance(starting_version, str) else starting_version
        since = _epoch_ms(starting_timestamp)
        return TableStream(self._handle.history, rules, version, since, fail_on_data_loss)

    def with_options(
        self,
        *,
        files: FileOptions = DEFAULT_FILES,
        commit_info: Mapping[str, Any] | None = None,
        checkpoint: bool = True,
        cleanup: bool | None = None,
        max_attempts: int | None = None,
    ) -> DeltaTable:
        """The same table, whose verbs write and commit in another way: ``table.with_options(…).append(rows)``.

        ``files``: the codec, sizes and column options of data files. ``commit_info``: further entries of commitInfo,
        JSON values. ``checkpoint=False``: write no checkpoint after a commit; ``cleanup``: whether expired log files
        are deleted after one; None: as delta.enableExpiredLogCleanup says. ``max_attempts``: how many versions a commit
        may try. Raises CallError. Cost: none.
        """
        options = TransactionOptions(commit_info or {}, (), files, Hooks(checkpoint, cleanup))
        return type(self)(self._handle.configured(options, max_attempts))

    # ------------------------------------------------------------------------------------------------ rows

    def transaction(
        self,
        *,
        isolation_level: IsolationLevel | None = None,
        reads: Iterable[Read] = (),
        expected_version: int | None = None,
    ) -> Transaction:
        """A transaction on the latest version, or on the earlier version from which its rows were read.

        ``reads``: the ``Scan.origin`` of the rows from which the changes are computed, or pairs of an origin and a
        condition that covers the rows used; origins in other tables are ignored. The transaction begins at the earliest
        of these versions and counts the rows as read, so that commits since then are checked for conflicts like
        concurrent ones. ``expected_version``: the version that must still be the latest on commit; ``reads`` are then
        ignored. Raises CommitConflictError, or VersionConflictError for ``expected_version``; both errors have both
        versions. Cost: as ``snapshot``, and 1 GET for each version in between.

        ``isolation_level``: with ``Serializable``, every row that another writer adds concurrently counts as read; with
        ``WriteSerializable``, every such row except the rows of blind appends, which can be ordered after this commit.
        ``SnapshotIsolation`` is for transactions that only move rows to other files, and always applies to these. None:
        the table property delta.isolationLevel, default Serializable.
        """
        return self._handle.transaction(isolation_level, reads, expected_version).for_caller()

    def retrying(self, work: Callable[[DeltaTable], T], *, retry_count: int = 10) -> T:
        """Call ``work(table)``, and call it again after each conflict with another writer, at most ``retry_count``
        times. Every call must read the table again. Create data that can be read only once inside ``work``: a reader
        that was read before is a CallError, whose cause is the conflict.

            table.retrying(lambda t: t.delete("day = '2026-11-20'"))

        ``RetryPolicy`` defines the waits. Raises whatever ``work`` raises, and the last conflict. A
        CommitStateUnknownError is not a conflict: nothing is repeated after it.
        """
        return self._handle.retrying(lambda: work(self), retry_count)

    def append(
        self,
        data: Any,
        *,
        merge_schema: bool = False,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Add rows from any object with ``__arrow_c_stream__`` (pyarrow, polars, pandas, duckdb). A RecordBatchReader
        is read once: passing it again, to any verb, is a CallError.

        Columns match by name; absent nullable columns are null; new columns need ``merge_schema=True``. ``txn``: an
        application id and a version; if the table has recorded that version or a later one, nothing is written and
        ``skipped`` is true. If a scan of this table read the rows, later commits are checked for conflicts.
        ``expected_version``: as for ``overwrite``. Raises SchemaMismatchError and as Transaction.commit.
        """
        may_be_blind = not merge_schema and txn is None
        with self._handle.transaction_for(data, expected_version, may_be_blind) as transaction:
            return append(transaction, data, merge_schema, user_metadata, txn)

    def overwrite(
        self,
        data: Any,
        *,
        where: Predicate | str | None = None,
        partitions: Literal["dynamic"] | None = None,
        overwrite_schema: bool = False,
        merge_schema: bool = False,
        partition_by: Sequence[str] | None = None,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Replace rows in one commit: all rows, or the rows that one of these arguments selects.

        ``where``: SQL text or a predicate built with ``col``. Rows for which it is true are replaced (Spark's
        replaceWhere), and it must be true for the new rows, or ConstraintViolationError is raised. Other rows in the
        files are kept, as with ``delete``. ``partitions="dynamic"``: exactly the partitions that occur in ``data``.
        ``overwrite_schema=True``: all rows, and the columns; with ``partition_by``, also the partition columns. With
        ``where``, the data must have all columns of the rows that stay. ``merge_schema=True``: new columns are added.

        Properties, and so in-commit timestamps, are kept. With ``where`` or ``partitions``, no commit is made if there
        are neither new rows nor rows to replace (``skipped``), unless ``txn`` is set. Conflicts with concurrent changes
        of the replaced rows. If ``data`` is a Scan of this table, or Arrow data that one returned, commits since the
        version that it read are checked too, unless the caller named that version. Data without that schema metadata
        (pandas, polars and duckdb drop it) needs ``expected_version``: any other commit since then is a
        VersionConflictError. Cost: 1 PUT for each new file, and the commit; ``where`` as ``delete``.
        """
        columns = Columns(merge_schema, overwrite_schema, partition_by)
        verb = replacing(data, where, partitions, columns, user_metadata, txn)
        with self._handle.transaction_for(data, expected_version) as transaction:
            return verb(transaction)

    def delete(
        self,
        where: Predicate | str | None = None,
        *,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Delete the rows for which ``where`` is true (SQL text or a predicate built with ``col``; None: all rows).

        Rows are deleted by deletion vectors if the table has them (delta.enableDeletionVectors); otherwise the other
        rows of their files are copied into new files. Files whose rows all match are removed. Change files are written
        if the change data feed needs them. If no row matches, no commit is made and the result's ``skipped`` is true,
        unless ``txn`` is set. Conflicts with concurrent changes to files that may contain matching rows.
        ``expected_version``: the version that must be the latest, else VersionConflictError. Raises CallError,
        InvalidActionError for an append-only table, and as Transaction.commit. Cost: the columns of ``where`` of each
        file for which statistics do not decide, all columns of the files to rewrite, 1 PUT for each new file or vector
        file; then the commit.
        """
        with self._handle.transaction(expected_version=expected_version) as transaction:
            return delete(transaction, where, user_metadata, txn)

    def update(
        self,
        updates: Mapping[str, Any] | None = None,
        where: Predicate | str | None = None,
        *,
        new_values: Mapping[str, Any] | None = None,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Set columns to new values in the rows for which ``where`` is true (None: in all rows).

        ``updates`` maps columns to SQL expressions on the old row, as text or built with ``col``; ``a.b`` is a field of
        a struct. ``new_values`` maps columns to Python values. Values are cast as in Spark's ANSI mode. Generated
        columns that are not named are recomputed; rows keep their row ids. Files, ``skipped`` and conflicts are as for
        ``delete``. Raises as ``delete``, ConstraintViolationError, SchemaMismatchError, and CallError for a row for
        which an expression cannot be computed. Cost: as ``delete``, all columns of the rows, 1 PUT for each new file.
        """
        with self._handle.transaction(expected_version=expected_version) as transaction:
            return update(transaction, updates or {}, new_values or {}, where, user_metadata, txn)

    def merge(
        self,
        source: Any,
        predicate: Predicate | str,
        source_alias: str | None = None,
        target_alias: str | None = None,
        *,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> TableMerger:
        """Merge rows into the table: update or delete matching rows, and insert the others, in one commit.

        Add clauses to the returned builder, then call its ``execute``, which commits. ``source``: as for ``append``.
        ``predicate``: when a source row matches a table row, as SQL text or built with ``col``. Columns are named
        ``source.x`` and ``target.x``, or by the aliases; a name that only one side has needs neither. Other arguments:
        as for ``update``. Cost: none before ``execute``.
        """
        names = (source_alias or "source", target_alias or "target")
        return TableMerger(self._handle, source, predicate, names, user_metadata, txn, expected_version)

    # ------------------------------------------------------------------------- files that are staged first

    def stage(self, data: Any, **options: Unpack[staging.WriteOptions]) -> StagedFiles:
        """Write rows into files that no version names yet, for ``commit_staged``; threads and processes may stage
        concurrently. Only the options ``checksum`` and ``timestamp_column`` apply. Raises as ``append``. Cost: 1 PUT
        for each file."""
        return staging.stage(staging.target_of(self._handle), data, staging.options_of(options))

    def commit_staged(
        self,
        staged: Iterable[StagedFiles],
        metadata: Mapping[str, Any] | None = None,
        **options: Unpack[staging.WriteOptions],
    ) -> Snapshot:
        """Commit staged files, from any process, as one version. The caller owns the files: they are kept if this
        fails, or if a transaction over several tables that contains them is cancelled. Files are committed only once:
        if any version has added one, FilesCommittedError has that version, so the same call is safe after a
        CommitStateUnknownError. Raises VersionConflictError, MetadataChangedError if the table has other columns now,
        and as Transaction.commit. Cost: 1 PUT, 1 GET for each version since (for more than 100, the live files)."""
        target = staging.target_of(self._handle)
        return staging.commit_staged(target, list(staged), metadata, staging.options_of(options))

    def discard_staged(self, staged: Iterable[StagedFiles]) -> list[Exception]:
        """Delete staged files that will not be committed, best effort. Returns the failures.

        Raises FilesCommittedError if a version has named one of them, CommitStateUnknownError if the outcome of a
        commit with these files is unknown: nothing is deleted then. A later commit by another process is not detected.
        Cost: 2 HEADs, 1 GET for each version since they were staged, 1 DELETE for each file."""
        return staging.discard_staged(staging.target_of(self._handle), staged)

    # ------------------------------------------------------------------------ schema, properties, features

    def set_properties(self, properties: Mapping[str, str], *, user_metadata: UserMetadata = None) -> CommitResult:
        """Set table properties; values are text. Raises InvalidPropertyError, MetadataChangedError.

        ``delta.enableRowTracking`` gives row ids to the files that lack them, in separate commits before this one
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

        Existing rows are checked first. Raises ConstraintViolationError, CallError for an unsupported expression, and
        CommitConflictError if rows are added concurrently. Cost: a read of the columns of the condition, and 1 commit.
        Spec: PROTOCOL.md#check-constraints.
        """
        with self._handle.transaction() as transaction:
            return constraints.add_constraint(transaction, name, expression, user_metadata)

    def drop_constraint(
        self, name: str, *, if_exists: bool = False, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Drop a CHECK constraint. Raises CallError if it does not exist; with ``if_exists``, no commit is made then
        (the result's ``skipped`` is true). Cost: 1 commit."""
        with self._handle.transaction() as transaction:
            return constraints.drop_constraint(transaction, name, if_exists, user_metadata)

    def enable_in_commit_timestamps(self) -> CommitResult:
        """Enable in-commit timestamps from the next commit on, with the enablement pair if older commits have none. No
        commit is made if they are already enabled (the result's ``skipped`` is true)."""
        with self._handle.transaction() as transaction:
            return switch_in_commit_timestamps(transaction, True)

    def disable_in_commit_timestamps(self) -> CommitResult:
        """Disable in-commit timestamps and remove the enablement pair in the same commit."""
        with self._handle.transaction() as transaction:
            return switch_in_commit_timestamps(transaction, False)

    def add_columns(
        self,
        columns: alterations.NewColumns,
        *,
        after: Mapping[str, str | None] | None = None,
        user_metadata: UserMetadata = None,
    ) -> CommitResult:
        """Add nullable columns: the fields of a pyarrow schema, a StructType or a list of StructField.

        Names are paths: ``a.b`` is a field ``b`` at the end of the struct ``a``; ``element``, ``key`` and ``value``
        lead into arrays and maps, and names with dots are in backticks. In existing rows the columns are null.
        ``after``: for names of new columns, the column in the same struct that each follows; None means first. Raises
        SchemaMismatchError, CallError, MetadataChangedError.
        """
        with self._handle.transaction() as transaction:
            return alterations.add_columns(transaction, columns, user_metadata, after)

    def rename_column(
        self, old: alterations.ColumnPath, new: str, *, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Rename a column; no file is written. ``old`` is a path, ``new`` only the name.

        Needs column mapping. Raises CallError without it, SchemaMismatchError if a constraint, an invariant or a
        generated column uses the column, MetadataChangedError.
        """
        with self._handle.transaction() as transaction:
            return alterations.rename_column(transaction, old, new, user_metadata)

    def drop_columns(self, columns: alterations.ColumnPaths, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Drop columns, given as paths; no file is written, and older versions still have them.

        Needs column mapping. Raises CallError without it, SchemaMismatchError for columns that partition or cluster the
        table or that an expression uses, MetadataChangedError.
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
        """Change a column, given as a path: allow nulls, set a comment ("" removes it), widen its type, or move it.

        Wider types need the table property delta.enableTypeWidening; PROTOCOL.md#type-widening lists them. None:
        unchanged; no commit is made if nothing changes. ``sync_identity``: read an identity column, and move its
        high-water mark past values that another writer gave it (Spark's SYNC IDENTITY). ``first``, ``after``: the
        position among the columns of the table or of the struct; no file is written. Raises SchemaMismatchError,
        MetadataChangedError, and ConcurrentAppendError for rows added while the column is read.
        """
        if first and after is not None:
            raise CallError(f"first and after={after!r} are two positions for one column. Pass one of them.")
        place = Place(after) if first or after is not None else None
        changes = (nullable, comment, data_type, user_metadata, sync_identity, place)
        with self._handle.transaction() as transaction:
            return alterations.set_column(transaction, column, *changes)

    def cluster_by(self, columns: alterations.ColumnPaths, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Cluster the table by columns, given as paths (ALTER TABLE … CLUSTER BY); none: end the clustering. No file is
        rewritten: ``optimize.compact`` orders rows by these columns. No commit is made if nothing changes.

        Raises SchemaMismatchError for a partitioned table, CallError for columns for which a file has no bounds,
        ConcurrentAppendError for files added meanwhile. Cost: as ``Snapshot.files`` with their statistics.
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
        """Store text, or a mapping as JSON, in the table under a custom name, to be read back from
        ``snapshot().domain_metadata``. Adds the feature domainMetadata.

        Raises CallError for names that begin with ``delta.``, ConcurrentTransactionError.
        """
        with self._handle.transaction() as transaction:
            return alterations.set_domain_metadata(transaction, domain, configuration, user_metadata)

    def remove_domain_metadata(self, domain: str, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Remove a metadata domain set by ``set_domain_metadata``. No commit is made if it does not exist."""
        with self._handle.transaction() as transaction:
            return alterations.remove_domain_metadata(transaction, domain, user_metadata)

    def add_feature(self, name: str, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Add a table feature, and the features that it requires, to the protocol. Clients without the feature are
        locked out.

        No commit is made if it is already listed. Raises InvalidPropertyError for a name that Delta does not have,
        UnsupportedFeatureError, ProtocolChangedError.
        """
        with self._handle.transaction() as transaction:
            return table_features.add_feature(transaction, name, user_metadata)

    def upgrade_protocol(
        self, reader_version: int, writer_version: int, *, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Raise the protocol versions, which imply the features listed in ``PROTOCOL.md#feature-table``: clients
        without one of these can no longer write the table, or with a reader version above 1, read it. Versions are
        never lowered, and nothing is committed if the table already has all of these features. Use ``add_feature`` to
        add a single one.

        Raises CallError for versions that Delta does not have. Cost: as a commit.
        """
        with self._handle.transaction() as transaction:
            return table_features.upgrade_protocol(transaction, reader_version, writer_version, user_metadata)

    def drop_feature(self, name: str, *, user_metadata: UserMetadata = None) -> CommitResult:
        """Drop a table feature, so that clients without it can use the table again: first the properties that enable
        it, in a separate commit, then the feature. Dropping the feature clustering also drops the clustering columns,
        and files with deletion vectors are rewritten before their feature is dropped, as by ``optimize.purge``.

        A reader feature can be dropped only if no version in the log uses it, and any feature only if nothing in the
        table uses it; otherwise CallError says what uses it and what to do. Raises UnsupportedFeatureError,
        ProtocolChangedError; FeatureDropIncompleteError, with such an error as its cause, if an earlier commit was made
        and stays. Cost: 2 commits; for reader features 1 GET for each commit of the log; as ``optimize.purge``.
        """
        return table_features.drop_feature(
            self.transaction, name, user_metadata, lambda: self.optimize.purge(user_metadata=user_metadata).commits
        )

    # ----------------------------------------------------------------------------------------- maintenance

    @property
    def optimize(self) -> TableOptimizer:
        """The verbs that rewrite files without changing rows, such as ``table.optimize.compact()``. Cost: none."""
        return TableOptimizer(self._handle)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = True,
        enforce_retention_duration: bool = True,
        *,
        full: bool = True,
        progress: vacuuming.VacuumProgress = vacuuming.silent,
        run_tasks: RunTasks | None = None,
        num_tasks: int = 64,
        keep_versions: Sequence[int] = (),
    ) -> VacuumReport:
        """Delete the files below the table root that no version within the retention needs. By default, only report
        them: pass ``dry_run=False`` to delete.

        ``retention_hours``: default delta.deletedFileRetentionDuration, 7 days. A shorter one is a CallError unless
        ``enforce_retention_duration=False``; readers of versions within it then lose files. A file that no version
        names always stays until it is a day old, because its commit may follow. All files that the version at the
        cut-off or a later one names are kept, including files of change feeds; so are hidden files, links and other
        tables. Two commits, VACUUM START and VACUUM END, record what is deleted; without files to delete, none is made.
        Safe to interrupt: a second call continues. ``full=False`` lists no files and considers only files that commits
        since the last vacuum removed (Spark's VACUUM LITE); files that no version ever named, and empty directories,
        stay. ``keep_versions``: versions whose files stay, however old they are. ``progress``: called with the number
        of deleted files and the number of files to delete. ``run_tasks``:
        lets files be listed and deleted elsewhere, for example in tasks of Spark jobs; at most ``num_tasks`` of them
        list. It receives a function that takes some bytes and a text unique to the attempt, the bytes for each task,
        and a description of the work; it returns the function's results in task order. The log is read and written
        here.

        Raises CallError, ResourceNotReadyError for a table of a catalog, UnsupportedFeatureError, UnsafePathError for a
        path in the log that cannot be resolved, CorruptTableError, StoreError, and with ``full=False``
        VersionNotFoundError if the log no longer has the commits since the last vacuum. Cost: as ``LogStore.walk``, the
        files of the latest version and of the version at the cut-off, 1 GET for each commit since, 1 DELETE for each
        file, 2 commits and 1 PUT. With ``full=False``, instead of the listing, 1 GET for each commit since the last
        vacuum, 1 HEAD for each file that these removed, and 1 HEAD and 1 LIST for each directory with such files.
        Spec: PROTOCOL.md#vacuum-protocol-check.
        """
        return vacuuming.vacuum(
            self._handle,
            retention_hours,
            dry_run,
            enforce_retention_duration,
            full,
            progress,
            runner=None if run_tasks is None else VacuumRunner(run_tasks, num_tasks),
            keep_versions=keep_versions,
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
        """Restore the rows, schema, properties and metadata domains of an earlier version, in a new commit.

        In-commit timestamps, the protocol and the versions of applications are kept. Files that no longer exist in the
        store raise InvalidDataFileError before anything is committed, unless ``ignore_missing_files=True`` restores the
        table without their rows; ``dry_run=True`` only lists them. Conflicts with any concurrent change of rows, at
        every isolation level: either the table is exactly as it was, or the commit fails. Raises VersionNotFoundError,
        TimestampOutOfRangeError. Cost: both versions' files, 1 HEAD for each restored file, 1 commit.
        """
        if (version is None) == (timestamp is None):
            raise CallError("Pass either the version or the timestamp to restore.")
        target = self._handle.at(version, _epoch_ms(timestamp), for_change=True)
        with self._handle.transaction() as transaction:
            return restore(transaction, target, _epoch_ms(timestamp), ignore_missing_files, dry_run, user_metadata)

    def remove_missing_files(self, *, dry_run: bool = True) -> tuple[str, ...]:
        """Remove the files that no longer exist in the store from the table, so that it can be read again without their
        rows. By default, only list them: pass ``dry_run=False`` to commit. Returns their paths, as in the log.

        Earlier versions stay as they are. No commit is made if all files exist. Raises as Transaction.commit. Cost: as
        ``Snapshot.files``, 1 HEAD for each file and each deletion vector file, 1 commit.
        """
        return missing_files.remove_missing(self._handle, dry_run)

    def check(self, deep: bool = False, *, progress: CheckProgress = examination.silent) -> CheckReport:
        """Examine the log and the files of the table. See ``deltalog.check``, which also examines tables that cannot be
        opened. Cost: as ``deltalog.check``."""
        return examine(self._handle.reader, deep, progress, self._handle.environment)

    def compute_statistics(
        self, where: Predicate | str | None = None, *, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Compute missing file statistics, as ANALYZE TABLE … COMPUTE DELTA STATISTICS does, so that scans can skip
        files. Returns the last commit; none is made if no file lacks statistics that can be computed.

        Files without statistics, or without statistics of all columns selected by delta.dataSkippingStatsColumns (else
        delta.dataSkippingNumIndexedCols) and by clustering, are added again with them, keeping their deletion vectors,
        row ids and tags (dataChange=false). Statistics come from the footers. Columns that a footer does not cover are
        read: floating-point columns, for NaN, and columns without statistics. A column that has no bounds in a file
        because it contains NaN is read by every call. Rows are counted both by the log and by the files: RowCountError
        if these differ. ``where``: as for ``optimize``, on partition columns.

        Never conflicts with appends; after ten conflicts with other changes of the same files, raises
        CommitConflictError. Raises CallError, InvalidDataFileError, UnsupportedFeatureError, UnsafePathError,
        StoreError. An interrupted run keeps the commits that it made. Cost: as ``Snapshot.files``, 1 or 2 ranged GETs
        for each such file, those of the columns that are read, and a commit for every 100,000 files.
        """
        return statistics.compute_statistics(self._handle, where, user_metadata)

    def generate(self, mode: Literal["symlink_format_manifest"] = "symlink_format_manifest") -> tuple[str, ...]:
        """Write symlink manifests of the latest version, for engines that do not read the log: a text file per
        partition, below ``_symlink_format_manifest``, with the locations of the partition's files. Manifests of
        partitions without files are deleted. Returns the paths of the manifests.

        Later commits by deltalog do not update them. Raises CallError for a table with deletion vectors or column
        mapping, which these engines would misread; UnsafePathError, StoreError. Cost: as ``Snapshot.files``, as
        ``LogStore.walk``, 1 PUT for each manifest, 1 DELETE for each obsolete one.
        """
        return write_manifests(self._handle)

    def checkpoint(self, *, top_level: TopLevel = "parquet", sidecar_rows: int = SIDECAR_ROWS) -> None:
        """Write a checkpoint of the latest version now: a classic one, or if delta.checkpointPolicy is v2, a UUID-named
        one in the format ``top_level``, with sidecars if there are more than ``sidecar_rows`` file actions.

        Raises CallError, UnsupportedFeatureError, StoreError. Cost: reads and writes the whole state once, in pieces.
        """
        log_files.checkpoint(self._handle, top_level, sidecar_rows)

    def compact_log(self, from_version: int | None = None, to_version: int | None = None) -> tuple[int, int] | None:
        """Write a log compaction: one file for a range of commits, which readers can read instead of the commits.

        Default: from the last checkpoint on. Returns the first and the last version; None if there are fewer than two.
        Raises CallError, MissingVersionError, UnsupportedFeatureError, StoreError. Cost: 1 GET for each commit, 1 PUT.
        """
        return log_files.compact(self._handle, from_version, to_version)

    def cleanup_log(self, *, dry_run: bool = False, retention: datetime.timedelta | None = None) -> CleanupReport:
        """Delete the log files that no version within the retention needs; with ``dry_run``, only report them.

        ``retention``: default delta.logRetentionDuration, 30 days. Keeps the newest checkpoint at or before the last
        midnight UTC before the retention, and all later files. The report says which versions become unreachable, and
        why each file is kept. Writing a checkpoint also runs the clean-up, unless delta.enableExpiredLogCleanup is
        false. Cost: docs/log-files.md. Raises CallError, UnsupportedFeatureError, MissingInCommitTimestampError,
        StoreError.
        """
        return log_files.delete_expired(self._handle, dry_run, retention)

    def flush(self) -> None:
        """Wait for the derived files of this process's commits, which are written later on a remote store. Cost:
        none."""
        self._handle.flush()


def handle_of(table: DeltaTable) -> TableHandle:
    """The handle of a table, for the modules that build on it."""
    return table._handle


def _epoch_ms(timestamp: PointInTime | None) -> int | None:
    return None if timestamp is None else to_epoch_ms(timestamp)


def _opened_again(cls: type[DeltaTable], reader: LogReader, environment: Environment) -> DeltaTable:
    return cls(handle_on_latest(reader, environment))
