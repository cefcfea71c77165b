"""DeltaTable: a table at a location, with its verbs."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from deltalog.arguments import checked, safe_repr
from deltalog.environment import Environment
from deltalog.errors import CallError, TableExistsError, TableNotFoundError
from deltalog.expressions.tree import Predicate
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.properties import SIDECAR_ROWS
from deltalog.protocol.schema import DataType, StructType
from deltalog.storage.registry import Location, open_store
from deltalog.time_zones import TimeZone, zone_of
from deltalog.write.commit_info import UserMetadata

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds
    from typing_extensions import Unpack

    from deltalog import addresses
    from deltalog import commit_result as commit_results
    from deltalog import table_html as table_page
    from deltalog.alter import alterations, clustering, constraints, row_id_backfill, table_features
    from deltalog.alter import properties as table_properties
    from deltalog.commit import hooks, prepared
    from deltalog.create import clone as cloning
    from deltalog.create import convert as converting
    from deltalog.create import new_table as new_tables
    from deltalog.doctor import check as checking
    from deltalog.doctor import findings
    from deltalog.doctor import progress as check_progress
    from deltalog.log import cleanup, history_entries
    from deltalog.log import reader as log_reader
    from deltalog.log.checkpoint import writer as checkpoint_writer
    from deltalog.maintenance import log_files, manifests, missing_files, statistics
    from deltalog.maintenance import restore as restoring
    from deltalog.maintenance.optimize import optimizer as optimizing
    from deltalog.maintenance.vacuum import decisions as vacuum_decisions
    from deltalog.maintenance.vacuum import tasks as vacuum_tasks
    from deltalog.maintenance.vacuum import vacuum as vacuuming
    from deltalog.parquet import file_options
    from deltalog.protocol import column_paths, timestamps
    from deltalog.read import changes as change_feed
    from deltalog.read import origin as origins
    from deltalog.read import snapshot as snapshots
    from deltalog.read import stream_offsets, table_stream
    from deltalog.rows import append as appending
    from deltalog.rows import delete as deleting
    from deltalog.rows import overwrite as overwriting
    from deltalog.rows import update as updating
    from deltalog.rows.merge import builder as merging
    from deltalog.write import table_handle, transaction_options
    from deltalog.write import transaction as transactions
    from deltalog.write_contract import staging, stream
else:
    lazy_modules(
        __name__,
        "deltalog.addresses",
        "deltalog.alter.alterations",
        "deltalog.alter.clustering",
        "deltalog.alter.constraints",
        "deltalog.alter.row_id_backfill",
        "deltalog.alter.table_features",
        "deltalog.commit.hooks",
        "deltalog.commit.prepared",
        "deltalog.doctor.findings",
        "deltalog.log.cleanup",
        "deltalog.log.history_entries",
        "deltalog.maintenance.log_files",
        "deltalog.maintenance.manifests",
        "deltalog.maintenance.missing_files",
        "deltalog.maintenance.statistics",
        "deltalog.parquet.file_options",
        "deltalog.protocol.column_paths",
        "deltalog.protocol.timestamps",
        "deltalog.read.stream_offsets",
        "deltalog.read.table_stream",
        "deltalog.write.table_handle",
        "deltalog.write.transaction_options",
        "deltalog.write_contract.staging",
        "deltalog.write_contract.stream",
        commit_results="deltalog.commit_result",
        table_page="deltalog.table_html",
        table_properties="deltalog.alter.properties",
        cloning="deltalog.create.clone",
        converting="deltalog.create.convert",
        new_tables="deltalog.create.new_table",
        check_progress="deltalog.doctor.progress",
        checking="deltalog.doctor.check",
        log_reader="deltalog.log.reader",
        checkpoint_writer="deltalog.log.checkpoint.writer",
        restoring="deltalog.maintenance.restore",
        optimizing="deltalog.maintenance.optimize.optimizer",
        vacuum_decisions="deltalog.maintenance.vacuum.decisions",
        vacuum_tasks="deltalog.maintenance.vacuum.tasks",
        vacuuming="deltalog.maintenance.vacuum.vacuum",
        change_feed="deltalog.read.changes",
        origins="deltalog.read.origin",
        pa="pyarrow",
        snapshots="deltalog.read.snapshot",
        appending="deltalog.rows.append",
        deleting="deltalog.rows.delete",
        overwriting="deltalog.rows.overwrite",
        updating="deltalog.rows.update",
        merging="deltalog.rows.merge.builder",
        transactions="deltalog.write.transaction",
    )

PointInTime = datetime.datetime | datetime.date | int | str
T = TypeVar("T")


def _silent(*progress: object) -> None:
    """Ignore progress."""


@checked
class DeltaTable:
    """A Delta table. Open it with ``DeltaTable(url)`` or ``DeltaTable.open(url)``. Threads may share a DeltaTable; each
    call works on its own snapshot.

    Points in time are aware datetimes, ints (ms since the Unix epoch) or ISO text with an offset or Z. With
    ``time_zone``, a tzinfo or a name such as ``Europe/Berlin``, points in time may also be datetimes and text without a
    zone, and dates, which mean the start of their day. Any other value raises InvalidTimestampError.

    ``Dataset(table)`` has the verbs of the write contract.

    The verbs are implemented in ``rows``, ``alter``, ``create`` and ``maintenance``; TableHandle holds the table's
    state.
    """

    def __init__(
        self,
        table: Location | table_handle.TableHandle,
        *others: object,
        storage_options: Mapping[str, Any] | None = None,
        **options: object,
    ) -> None:
        """Like ``DeltaTable.open(table, storage_options=storage_options)``; ``open`` also accepts other options. Raises
        CallError for other arguments."""
        if others or options:
            raise CallError(
                f"DeltaTable({table!r}) takes storage_options and nothing else. Call DeltaTable.open(url, …) for other "
                "options, snapshot(version=…) of the table for an earlier version, or DeltaTable.create(url, schema) "
                "for a new table."
            )
        if not isinstance(table, table_handle.TableHandle):
            table = addresses.open_handle(table, (), Environment(), storage_options=storage_options)
        self._handle = table

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle support: the pickle contains the location and the storage options, including any secrets. Unpickling
        opens the table at its latest version. Cost: as ``open``. Raises CallError for a table of a transaction, and for
        a store that was not opened from a URL or a path."""
        if self._handle.reader.authority.branch is not None:
            raise CallError(f"{self.url}: a table opened in a transaction cannot be pickled; use it in this process.")
        return _opened_again, (type(self), self._handle.reader, self._handle.environment)

    @safe_repr
    def __repr__(self) -> str:
        return f"DeltaTable(url={self.url!r}, version={self.version})"

    def _repr_html_(self) -> str:
        latest = self._handle.latest
        return table_page.table_html(self.url, latest.version, latest.schema, latest.partition_columns)

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
        """Open the table at a location, or a table of a catalog by its address: ``catalog:<catalog>#<name>``, where
        ``<catalog>`` is as for TransactionManager, or ``uc://catalog.schema.table`` in a Unity Catalog, whose server is
        given by the options ``unity_catalog_url`` and ``unity_catalog_token`` or by the environment
        (docs/unity-client.md). ``storage_options``: as for ``open_store``.

        ``allowed_paths``: directories or prefixes outside the table, on the same kind of store, that absolute paths in
        its log may refer to, such as the source of a shallow clone. For a file anywhere else, UnsafePathError is
        raised.

        Raises TableNotFoundError, UnsupportedFeatureError, CorruptTableError. Cost: 1 GET of the checkpoint hint, 1
        LIST, 2 GETs if the last version has a valid ``.crc``; else the checkpoint's small columns and 1 GET for each
        commit after it.
        """
        return cls(addresses.open_handle(url, allowed_paths, environment or Environment(), **storage_options))

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
        schema: Any,
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
        """Create a table, with the rows of ``data`` if set, in one commit. ``schema``: a StructType, a pyarrow Schema,
        or rows (such as a data frame) that determine the columns and become the first rows. ``url``: a location, or the
        address of a table in a Unity Catalog, as for ``open``; the catalog chooses its location.

        ``cluster_by``: as for ``DeltaTable.cluster_by``. ``properties={"delta.enableInCommitTimestamps": "true"}``
        gives the table in-commit timestamps from version 0. Raises TableExistsError, SchemaMismatchError,
        InvalidPropertyError. Cost: 1 LIST, 1 PUT for each file, 1 commit.
        """
        columns, data = new_tables.columns_and_rows(schema, data)
        transaction = cls.create_transaction(
            url, columns, partition_by=partition_by, cluster_by=cluster_by, properties=properties, name=name,
            description=description, environment=environment, **storage_options,
        )  # fmt: skip
        with transaction:
            new_tables.create(transaction, data)
        assert transaction.committed is not None
        return cls(addresses.handle_on(transaction.reader, environment or Environment(), transaction.committed))

    @classmethod
    def create_for_blobs(
        cls, url: Location, *, properties: Mapping[str, str] | None = None, **options: Any
    ) -> DeltaTable:
        """Create a table of blobs, with one row (path, size, sha256) per blob; the bytes of the blobs are stored below
        ``_blobs/``.

        ``Dataset.stream_write`` adds a blob, ``Dataset.open_blob`` reads one. ``options``, errors and cost are as for
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
    ) -> transactions.Transaction:
        """A transaction that creates the table and adds files to it in one commit, version 0.

        Raises TableExistsError, also on commit if another writer has created the table.
        """
        environment = environment or Environment()
        reader, required = addresses.new_log(url, properties or {}, environment, **storage_options)
        return new_tables.creation(
            reader, addresses.committer_of(reader, environment), environment, schema, partition_by=partition_by,
            cluster_by=cluster_by, properties=required, name=name, description=description,
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
        """Turn a directory of Parquet files into a table in place: one commit adds all files, with statistics from
        their footers. No file is moved, rewritten or deleted.

        The columns are the union of the columns of all files; a column that has different types in different files is
        refused. Directories such as ``day=2026-11-20`` become partition columns, which come last. A partition column
        has the type integer, long or date if all its values can be parsed as that type, else string. ``partition_by``
        sets other types (timestamps without an offset are taken as UTC), or only names the partition columns that are
        expected. Files and directories are ignored if their name begins with ``_`` or ``.``. Links, mount points and
        files that are not Parquet are refused, so that the table contains every row that reading the directory would
        return. ``properties``: the properties of the new table. ``mode="ignore"``: open the table if one already
        exists.

        No process may write to the directory during the call: the directory is listed twice, and the call fails if the
        listings differ. Raises TableExistsError, CallError if there are no files, InvalidDataFileError,
        SchemaMismatchError, RowCountError, InvalidPropertyError, StoreError; nothing is committed then. Cost: 1 LIST of
        the log, as ``LogStore.walk`` twice, for each file 1 HEAD and 2 to 4 concurrent ranged GETs, 1 commit.
        """
        environment = environment or Environment()
        reader = log_reader.LogReader(open_store(url, **storage_options), (), environment.clock_ms)
        try:
            transaction = converting.converted(
                reader, addresses.committer_of(reader, environment), environment,
                partition_by, properties or {}, name, description, user_metadata,
            )  # fmt: skip
        except TableExistsError:
            if mode == "error":
                raise
            return cls(addresses.handle_on_latest(reader, environment))
        assert transaction.committed is not None
        return cls(addresses.handle_on(reader, environment, transaction.committed))

    def clone(
        self,
        target: Location,
        *,
        shallow: bool = False,
        version: int | None = None,
        timestamp: PointInTime | None = None,
        time_zone: TimeZone | None = None,
        properties: Mapping[str, str] | None = None,
        user_metadata: UserMetadata = None,
        **storage_options: Any,
    ) -> DeltaTable:
        """Clone the latest version, a specific version, or the version that was current at a point in time: one commit
        to a new table at ``target``, which then has its own history.

        By default the clone is deep: the files are copied. A ``shallow`` clone refers to the files of its source by
        absolute paths, and must be on the same kind of store. The clone needs the source's files as long as one of the
        clone's versions references them, but a vacuum of the source may delete such files. To open the clone again,
        pass the location of these files: ``DeltaTable.open(target, allowed_paths=[source])``.

        Columns, properties (changed by ``properties``), table features, metadata domains, deletion vectors and row ids
        are kept; the id, the history and the app transactions (txn) are not. If the source has in-commit timestamps,
        they are enabled in the clone from version 0. ``storage_options``: the options for the target. Returns the
        clone.

        Raises TableExistsError, also if the target of a deep clone is not empty; CallError for another kind of store, a
        blob table, or within a transaction; InvalidPropertyError, UnsupportedFeatureError, VersionNotFoundError,
        TimestampOutOfRangeError, InvalidDataFileError for a file whose size differs from the log, StoreError. If an
        error is raised, nothing is committed, and copies are deleted. Cost: as ``snapshot`` and ``Snapshot.files``, 1
        LIST, 1 commit; for copies, the target's ``LogStore.walk`` up to its first file, and 1 or more GETs and 1 PUT
        for each file.
        """
        source = self._handle.at(version, _epoch_ms(timestamp, time_zone))
        files, environment = source.reader.files, self._handle.environment
        places = (files.store.url, *files.allowed_paths) if shallow else ()
        reader = log_reader.LogReader(open_store(target, **storage_options), places)
        transaction = cloning.cloned(
            source,
            reader,
            addresses.committer_of(reader, environment),
            environment,
            shallow,
            properties or {},
            user_metadata,
        )
        assert transaction.committed is not None
        return type(self)(addresses.handle_on(reader, environment, transaction.committed))

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

    def to_pyarrow_table(self, columns: Sequence[str] | None = None, where: Predicate | str | None = None) -> pa.Table:
        """The rows of the latest version, in memory. ``columns``, ``where``: as for ``Snapshot.scan``. Raises and costs
        as ``snapshot`` and ``Scan.batches``."""
        return self.snapshot().scan(columns, where).to_arrow()

    def to_pandas(self, columns: Sequence[str] | None = None, where: Predicate | str | None = None) -> Any:
        """The rows of the latest version as a pandas DataFrame. Arguments, errors and cost as for ``to_pyarrow_table``;
        needs pandas."""
        return self.snapshot().scan(columns, where).to_pandas()

    def to_pyarrow_dataset(self) -> ds.Dataset:
        """The rows of the latest version as a pyarrow Dataset. Raises and costs as ``snapshot`` and
        ``Snapshot.to_pyarrow_dataset``."""
        return self.snapshot().to_pyarrow_dataset()

    def scan_polars(self) -> pl.LazyFrame:
        """The rows of the latest version as a polars LazyFrame. Raises and costs as ``snapshot`` and
        ``Snapshot.scan_polars``."""
        return self.snapshot().scan_polars()

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows of the latest version as a DuckDB relation. Raises and costs as ``snapshot`` and
        ``Snapshot.to_duckdb``."""
        return self.snapshot().to_duckdb(connection)

    def snapshot(
        self,
        version: int | None = None,
        timestamp: PointInTime | None = None,
        before: str = "error",
        after: str = "error",
        *,
        time_zone: TimeZone | None = None,
    ) -> snapshots.Snapshot:
        """The latest version, a specific version, or the version that was current at a point in time. ``before``,
        ``after``: as for ``version_at``, for a point in time outside the history. ``time_zone``: see the class.

        Raises VersionNotFoundError, TimestampOutOfRangeError, InvalidTimestampError. Cost: for the latest, 2 HEADs, and
        1 LIST and the new commits if there are any; for a version, 1 LIST and its log files, none while it is in use;
        for a point in time, as ``version_at`` and as for a version.
        """
        return self._handle.at(version, _epoch_ms(timestamp, time_zone), before=before, after=after)

    def version_at(
        self,
        timestamp: PointInTime,
        before: str = "error",
        after: str = "error",
        *,
        time_zone: TimeZone | None = None,
    ) -> timestamps.CommitAt:
        """The version that was current at a point in time, with its timestamp and the kind of clock that the timestamp
        comes from.

        ``before="earliest"`` and ``after="latest"`` clamp times outside the history; otherwise such times raise
        TimestampOutOfRangeError, which contains the bounds. Raises InvalidEnablementError and
        MissingInCommitTimestampError if the log lacks the data. Cost: 2 HEADs, and up to 8 GETs of 4 KiB in each of 3
        to 6 rounds; if file times decide, or the log has gaps, the cost of listing the whole log.
        """
        return self._handle.history().version_at(timestamps.to_epoch_ms(timestamp, zone_of(time_zone)), before, after)

    def explain_timestamp(
        self, timestamp: PointInTime, *, time_zone: TimeZone | None = None
    ) -> history_entries.TimestampExplanation:
        """Explain how a point in time is resolved to a version: the clock, the candidate commits, the result, its
        neighbours, and the bounds of the history.

        Print the result, or call its ``to_json()``. Cost: as ``version_at``, and that of listing the whole log.
        """
        return self._handle.history().explain(timestamps.to_epoch_ms(timestamp, zone_of(time_zone)))

    def history(self, limit: int | None = None) -> list[history_entries.CommitEntry]:
        """The commits, newest first, each with the time that time travel uses.

        Cost: 2 HEADs, and 1 GET of 4 KiB and 1 HEAD for each commit returned; on an object store 1 LIST instead of many
        HEADs. With ``limit``, if the handle has read the table within the last ten seconds, all requests are sent in
        one round, or in two rounds if there are new commits.
        """
        return self._handle.history_entries(limit)

    def changes(
        self,
        from_version: int | None = None,
        to_version: int | None = None,
        *,
        from_timestamp: PointInTime | None = None,
        to_timestamp: PointInTime | None = None,
        time_zone: TimeZone | None = None,
        allow_out_of_range: bool = False,
    ) -> change_feed.Changes:
        """The change data feed of a range of versions, including both ends; by default up to the latest version.

        With ``from_timestamp``, the range begins at the first commit at or after that time; with ``to_timestamp``, it
        ends at the last commit at or before that time; both follow the in-commit timestamp rules. If no commit lies
        between the two times, the feed contains no changes. If the end of the range is after the latest version, or
        after the time of that version, an error is raised. ``allow_out_of_range``: a range outside the history raises
        no error; a range that begins after the latest version yields no changes, and a range that ends after it ends at
        the latest version. The table property delta.enableChangeDataFeed must have been true throughout the range.
        Raises VersionNotFoundError, TimestampOutOfRangeError, CallError. Cost: 1 LIST and as two snapshots.
        """
        since, until = _epoch_ms(from_timestamp, time_zone), _epoch_ms(to_timestamp, time_zone)
        return change_feed.changes_between(
            self._handle.history(), from_version, to_version, since, until, allow_out_of_range
        )

    def stream(
        self,
        *,
        starting_version: int | Literal["latest"] | None = None,
        starting_timestamp: PointInTime | None = None,
        time_zone: TimeZone | None = None,
        ignore_deletes: bool = False,
        ignore_changes: bool = False,
        skip_change_commits: bool = False,
        read_change_feed: bool = False,
        fail_on_data_loss: bool = True,
    ) -> table_stream.TableStream:
        """The rows of the latest version and then of later commits, in batches between offsets that the caller stores.
        With ``starting_version`` or ``starting_timestamp``, only the rows of the commit at that version or time, and of
        later commits.

        ``starting_version="latest"``: only commits after the latest version. ``starting_timestamp``: begin at the first
        commit whose time, by the in-commit timestamp rules, is not before this time. A commit that deletes or changes
        rows raises an error unless one of three options is set: ``ignore_deletes`` (for commits that only remove
        files), ``skip_change_commits``, or ``ignore_changes`` (rewritten files are read again); ``read_change_feed``
        streams the rows of the change data feed. ``fail_on_data_loss=False``: skip commits that log clean-up has
        deleted. Raises CallError. Cost: as ``snapshot``, and 2 HEADs for "latest".
        """
        if starting_version is not None and starting_timestamp is not None:
            raise CallError("Pass a starting version or a starting timestamp, not both.")
        rules = stream_offsets.StreamRules(ignore_deletes, ignore_changes, skip_change_commits, read_change_feed)
        version = self._handle.refresh().version + 1 if isinstance(starting_version, str) else starting_version
        since = _epoch_ms(starting_timestamp, time_zone)
        return table_stream.TableStream(self._handle.history, rules, version, since, fail_on_data_loss)

    def with_options(
        self,
        *,
        files: file_options.FileOptions | None = None,
        commit_info: Mapping[str, Any] | None = None,
        checkpoint: bool = True,
        cleanup: bool | None = None,
        max_attempts: int | None = None,
    ) -> DeltaTable:
        """A handle on the same table whose methods write and commit with other options:
        ``table.with_options(…).append(rows)``.

        ``files``: the codec, sizes and column options of data files. ``commit_info``: further entries of commitInfo, as
        JSON values. ``checkpoint=False``: write no checkpoint after a commit. ``cleanup``: whether expired log files
        are deleted after a checkpoint; None: according to delta.enableExpiredLogCleanup. ``max_attempts``: how many
        versions a commit may try. Raises CallError. Cost: none.
        """
        after = hooks.Hooks(checkpoint, cleanup)
        options = transaction_options.TransactionOptions(commit_info or {}, (), files or file_options.DEFAULT, after)
        return type(self)(self._handle.configured(options, max_attempts))

    # ------------------------------------------------------------------------------------------------ rows

    def transaction(
        self,
        *,
        isolation_level: prepared.IsolationLevel | None = None,
        reads: Iterable[origins.Read] = (),
        expected_version: int | None = None,
    ) -> transactions.Transaction:
        """A transaction on the latest version, or on the earlier version from which the rows to write were read.

        ``reads``: the ``Scan.origin`` of the rows from which the changes are computed, or pairs of an origin and a
        condition that is true for the rows used; origins in other tables are ignored. The transaction begins at the
        earliest version from which these rows were read, and records the rows as read, so that commits since then are
        checked for conflicts in the same way as concurrent commits. ``expected_version``: the version that must still
        be the latest when the transaction commits; if it is given, ``reads`` are ignored. Raises CommitConflictError,
        or VersionConflictError for ``expected_version``; both errors have both versions. Cost: as ``snapshot``, and 1
        GET for each version in between.

        ``isolation_level``: with ``Serializable``, every row that another writer adds concurrently is checked against
        what this transaction read; with ``WriteSerializable``, rows of blind appends are exempt, because such appends
        can be ordered after this commit. ``SnapshotIsolation`` is intended for transactions that only move rows to
        other files; it always applies to these transactions, whatever is set. If None, the level is the value of the
        table property delta.isolationLevel, by default Serializable.
        """
        return self._handle.transaction(isolation_level, reads, expected_version).for_caller()

    def retrying(self, work: Callable[[DeltaTable], T], *, retry_count: int = 10) -> T:
        """Call ``work(table)``, and call it again after each conflict with another writer, at most ``retry_count``
        times. Each call of ``work`` must read the table again. If data can be read only once, create the data inside
        ``work``: a reader that has already been read raises a CallError whose cause is the conflict.

            table.retrying(lambda t: t.delete("day = '2026-11-20'"))

        ``RetryPolicy`` defines how long to wait between the calls. Raises whatever ``work`` raises, and the last
        conflict. A CommitStateUnknownError is not a conflict, so ``work`` is not called again after it.
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
    ) -> commit_results.CommitResult:
        """Add rows from any object with ``__arrow_c_stream__`` (pyarrow, polars, pandas, duckdb). A RecordBatchReader
        can be read only once: passing it to any method a second time raises CallError.

        Columns are matched by name; nullable columns that are absent from the data are null; new columns require
        ``merge_schema=True``. Variants are JSON text, structs as scans return them (``schema.variant_from_python``), or
        in Arrow's extension type. ``txn``: an application id and an application version. If the table has recorded this
        version or a later one for the id, nothing is written and ``skipped`` is true. If the rows were read by a scan
        of this table, the commits since the scanned version are checked for conflicts. ``expected_version``: as for
        ``overwrite``. Raises SchemaMismatchError and as Transaction.commit.
        """
        may_be_blind = not merge_schema and txn is None
        with self._handle.transaction_for(data, expected_version, may_be_blind) as transaction:
            return appending.append(transaction, data, merge_schema, user_metadata, txn)

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
    ) -> commit_results.CommitResult:
        """Replace rows in one commit: all rows, or the rows that one of these arguments selects.

        ``where``: SQL text or a predicate built with ``col``. Rows for which the condition is true are replaced
        (Spark's replaceWhere). The condition must be true for all new rows; otherwise ConstraintViolationError is
        raised. Other rows in the same files are kept, as with ``delete``. ``partitions="dynamic"``: the rows in exactly
        those partitions that occur in ``data`` are replaced. ``overwrite_schema=True``: all rows and all columns are
        replaced; with ``partition_by``, the partition columns are replaced too. With ``where``, the data must have all
        columns of the rows that are kept. ``merge_schema=True``: new columns are added.

        The table's properties are kept, and in-commit timestamps remain enabled. With ``where`` or ``partitions``, if
        there are neither new rows nor rows to replace, no commit is made and ``skipped`` is true, unless ``txn`` is
        set. The overwrite conflicts with concurrent changes to the replaced rows. If ``data`` is a Scan of this table,
        or Arrow data that such a Scan returned, commits since the version that the Scan read are also checked for
        conflicts, unless the caller explicitly requested that version. For data without the Scan's schema metadata
        (pandas, polars and duckdb drop it), pass ``expected_version``; if any commit was made after that version,
        VersionConflictError is raised. Cost: 1 PUT for each new file, and the commit; ``where`` as ``delete``.
        """
        columns = overwriting.Columns(merge_schema, overwrite_schema, partition_by)
        verb = overwriting.replacing(data, where, partitions, columns, user_metadata, txn)
        with self._handle.transaction_for(data, expected_version) as transaction:
            return verb(transaction)

    def delete(
        self,
        where: Predicate | str | None = None,
        *,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> commit_results.CommitResult:
        """Delete the rows for which ``where`` is true (SQL text or a predicate built with ``col``; None: all rows).

        Rows are deleted by deletion vectors if delta.enableDeletionVectors is true; otherwise the other rows of their
        files are copied into new files. Files whose rows all match are removed. Change data files are
        written if the change data feed needs them. If no row matches, no commit is made and the result's ``skipped`` is
        true, unless ``txn`` is set. The call conflicts with concurrent changes to files that may contain matching rows.
        ``expected_version``: the version that must be the latest, else VersionConflictError. Raises CallError,
        InvalidActionError for an append-only table, and as Transaction.commit. Cost: the columns of ``where`` of each
        file for which statistics do not decide, all columns of the files to rewrite, 1 PUT for each new file or vector
        file; then the commit.
        """
        with self._handle.transaction(expected_version=expected_version) as transaction:
            return deleting.delete(transaction, where, user_metadata, txn)

    def update(
        self,
        updates: Mapping[str, Any] | None = None,
        where: Predicate | str | None = None,
        *,
        new_values: Mapping[str, Any] | None = None,
        user_metadata: UserMetadata = None,
        txn: tuple[str, int] | None = None,
        expected_version: int | None = None,
    ) -> commit_results.CommitResult:
        """Set columns to new values in all rows for which ``where`` is true (None: in all rows).

        ``updates`` maps columns to expressions that are evaluated on the old row, as SQL text or built with ``col``;
        ``a.b`` is a field of a struct. ``new_values`` maps columns to Python values; a variant can be any value that
        ``schema.variant_from_python`` encodes. Values are cast as in Spark's ANSI mode. Generated columns that are not
        in ``updates`` or ``new_values`` are recomputed; rows keep their row ids.
        Deletion vectors, change data files, ``skipped`` and conflicts are handled as in ``delete``. Raises as
        ``delete``, ConstraintViolationError, SchemaMismatchError, and CallError for a row for which an expression
        cannot be computed. Cost: as ``delete``, all columns of the rows, 1 PUT for each new file.
        """
        with self._handle.transaction(expected_version=expected_version) as transaction:
            return updating.update(transaction, updates or {}, new_values or {}, where, user_metadata, txn)

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
    ) -> merging.TableMerger:
        """Merge rows into the table: update or delete matching rows, and insert the others, in one commit.

        Add clauses to the returned builder, then call its ``execute``, which commits. ``source``: as for ``append``.
        ``predicate``: the condition for a source row to match a table row, as SQL text or built with ``col``. Refer to
        columns as ``source.x`` and ``target.x``, or with the aliases; if only one side has a column of that name, the
        prefix can be omitted. The other arguments are those of ``update``. Cost: none before ``execute``.
        """
        names = (source_alias or "source", target_alias or "target")
        return merging.TableMerger(self._handle, source, predicate, names, user_metadata, txn, expected_version)

    # -------------------------------------------------------------------- staging files for a later commit

    def stage(
        self, data: Any, *, new_columns: StructType | None = None, **options: Unpack[staging.WriteOptions]
    ) -> staging.StagedFiles:
        """Write rows into files that no version names yet, for ``commit_staged``; several threads and processes may
        stage files concurrently. ``new_columns``: columns that the table lacks and that the commit adds; such files are
        added to a transaction that also stages these columns with ``merge_schema``. Only the options ``checksum`` and
        ``timestamp_column`` apply. Raises as ``append``, and CallError for new columns with column mapping, which gives
        them other names in the files. Cost: 1 PUT for each file."""
        return staging.stage(staging.target_of(self._handle), data, staging.options_of(options), new_columns)

    def commit_staged(
        self,
        staged: Iterable[staging.StagedFiles],
        metadata: Mapping[str, Any] | None = None,
        **options: Unpack[staging.WriteOptions],
    ) -> snapshots.Snapshot:
        """Commit staged files as one version; any process may have staged them. The files belong to the caller: they
        are kept if the call fails, or if a multi-table transaction to which they were added is cancelled. Files are
        committed only once: if a version has already added one of them, FilesCommittedError is raised and contains that
        version. It is therefore safe to repeat the call after a CommitStateUnknownError. Raises VersionConflictError,
        MetadataChangedError if the table has other columns now, and as Transaction.commit. Cost: 1 PUT, 1 GET for each
        version since (for more than 100, the live files)."""
        target = staging.target_of(self._handle)
        return staging.commit_staged(target, list(staged), metadata, staging.options_of(options))

    def discard_staged(self, staged: Iterable[staging.StagedFiles]) -> list[Exception]:
        """Try to delete staged files that will not be committed. Returns the failures.

        Raises FilesCommittedError if a version has named one of them, CommitStateUnknownError if the outcome of a
        commit with these files is unknown: nothing is deleted then. If another process commits these files later, this
        is not detected. Cost: 2 HEADs, 1 GET for each version since they were staged, 1 DELETE for each file."""
        return staging.discard_staged(staging.target_of(self._handle), staged)

    # ------------------------------------------------------------------------ schema, properties, features

    def set_properties(
        self, properties: Mapping[str, str], *, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Set table properties; values are strings. Raises InvalidPropertyError, MetadataChangedError.

        Setting ``delta.enableRowTracking`` first assigns row ids to the files that lack them, in separate commits
        (``ROW TRACKING BACKFILL``). Cost: 1 commit; for row ids one more, and one for each 100,000 files.
        """
        row_id_backfill.prepare(self._handle, properties, user_metadata)
        with self._handle.transaction() as transaction:
            return table_properties.set_properties(transaction, properties, user_metadata)

    def unset_properties(
        self, keys: Iterable[str], *, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Remove table properties; properties that are not set are ignored."""
        with self._handle.transaction() as transaction:
            return table_properties.unset_properties(transaction, list(keys), user_metadata)

    def add_constraint(
        self, name: str, expression: str, *, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Add a CHECK constraint: an SQL condition that must be true (not null) for every row.

        The table's existing rows are checked first. Raises ConstraintViolationError, CallError for an unsupported
        expression, and CommitConflictError if rows are added concurrently. Cost: a read of the columns of the
        condition, and 1 commit.
        Spec: PROTOCOL.md#check-constraints.
        """
        with self._handle.transaction() as transaction:
            return constraints.add_constraint(transaction, name, expression, user_metadata)

    def drop_constraint(
        self, name: str, *, if_exists: bool = False, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Drop a CHECK constraint. Raises CallError if it does not exist; with ``if_exists``, no commit is made then
        (the result's ``skipped`` is true). Cost: 1 commit."""
        with self._handle.transaction() as transaction:
            return constraints.drop_constraint(transaction, name, if_exists, user_metadata)

    def enable_in_commit_timestamps(self) -> commit_results.CommitResult:
        """Enable in-commit timestamps from the next commit on; that commit also sets the two enablement properties if
        older commits have no in-commit timestamps. If in-commit timestamps are already enabled, no commit is made and
        the result's ``skipped`` is true."""
        with self._handle.transaction() as transaction:
            return table_properties.switch_in_commit_timestamps(transaction, True)

    def disable_in_commit_timestamps(self) -> commit_results.CommitResult:
        """Disable in-commit timestamps and remove the two enablement properties in the same commit."""
        with self._handle.transaction() as transaction:
            return table_properties.switch_in_commit_timestamps(transaction, False)

    def add_columns(
        self,
        columns: alterations.NewColumns,
        *,
        after: Mapping[str, str | None] | None = None,
        user_metadata: UserMetadata = None,
    ) -> commit_results.CommitResult:
        """Add nullable columns: the fields of a pyarrow schema, a StructType or a list of StructField.

        Names are paths: ``a.b`` adds a field ``b`` at the end of the struct ``a``. In a path, ``element``, ``key`` and
        ``value`` stand for the contents of arrays and maps; names with dots must be in backticks. The new columns are
        null in existing rows. ``after``: a mapping from the name of a new column to the column in the same struct that
        it follows; None means first. Raises SchemaMismatchError, CallError, MetadataChangedError.
        """
        with self._handle.transaction() as transaction:
            return alterations.add_columns(transaction, columns, user_metadata, after)

    def rename_column(
        self, old: alterations.ColumnPath, new: str, *, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Rename a column; no data file is rewritten. ``old``: the path of the column. ``new``: the new name, without
        the rest of the path.

        Needs column mapping. Raises CallError without it, SchemaMismatchError if a constraint, an invariant or a
        generated column uses the column, MetadataChangedError.
        """
        with self._handle.transaction() as transaction:
            return alterations.rename_column(transaction, old, new, user_metadata)

    def drop_columns(
        self, columns: alterations.ColumnPaths, *, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Drop columns, given as paths. No file is written; older versions still have the columns.

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
    ) -> commit_results.CommitResult:
        """Change a column, given as a path: allow nulls, set a comment ("" removes it), widen its type, or move it.

        Widening requires the table property delta.enableTypeWidening; PROTOCOL.md#type-widening lists the allowed type
        changes. An argument that is None changes nothing; if nothing changes, no commit is made. ``sync_identity``:
        read the values of an identity column, and move its high-water mark past values that another writer inserted
        (Spark's SYNC IDENTITY). ``first``, ``after``: the column's new position in the table, or the field's new
        position in the struct. No file is written. Raises SchemaMismatchError, MetadataChangedError, and
        ConcurrentAppendError for rows added while the column is read.
        """
        if first and after is not None:
            raise CallError(f"first and after={after!r} are two positions for one column. Pass one of them.")
        place = column_paths.Place(after) if first or after is not None else None
        changes = (nullable, comment, data_type, user_metadata, sync_identity, place)
        with self._handle.transaction() as transaction:
            return alterations.set_column(transaction, column, *changes)

    def cluster_by(
        self, columns: alterations.ColumnPaths, *, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Cluster the table by columns, given as paths (ALTER TABLE … CLUSTER BY); without columns, the table is no
        longer clustered. No file is rewritten: ``optimize.compact`` orders rows by these columns. No commit is made if
        nothing changes.

        Raises SchemaMismatchError for a partitioned table, CallError for columns for which a file has no bounds,
        ConcurrentAppendError for files added meanwhile. Cost: as ``Snapshot.files`` with their statistics.
        """
        with self._handle.transaction() as transaction:
            return clustering.cluster_by(transaction, columns, user_metadata)

    def set_table(
        self, *, name: str | None = None, description: str | None = None, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Set the table's name or description; None leaves it unchanged. Raises MetadataChangedError."""
        with self._handle.transaction() as transaction:
            return alterations.set_table(transaction, name, description, user_metadata)

    def set_domain_metadata(
        self, domain: str, configuration: str | Mapping[str, Any], *, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Store a string, or a mapping as JSON, as the metadata domain ``domain`` of the table; it can be read from
        ``snapshot().domain_metadata``. Adds the feature domainMetadata.

        Raises CallError for names that begin with ``delta.``, ConcurrentTransactionError.
        """
        with self._handle.transaction() as transaction:
            return alterations.set_domain_metadata(transaction, domain, configuration, user_metadata)

    def remove_domain_metadata(self, domain: str, *, user_metadata: UserMetadata = None) -> commit_results.CommitResult:
        """Remove a metadata domain set by ``set_domain_metadata``. No commit is made if the domain does not exist."""
        with self._handle.transaction() as transaction:
            return alterations.remove_domain_metadata(transaction, domain, user_metadata)

    def add_feature(self, name: str, *, user_metadata: UserMetadata = None) -> commit_results.CommitResult:
        """Add a table feature and the features that it requires to the protocol. Clients that do not support the
        feature can then no longer use the table.

        No commit is made if the protocol already lists the feature. Raises InvalidPropertyError for a name that Delta
        does not have, UnsupportedFeatureError, ProtocolChangedError.
        """
        with self._handle.transaction() as transaction:
            return table_features.add_feature(transaction, name, user_metadata)

    def upgrade_protocol(
        self, reader_version: int, writer_version: int, *, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Raise the protocol versions, which imply the features listed in ``PROTOCOL.md#feature-table``. Clients that
        do not support all features that the versions imply can no longer write the table, and with a reader version
        above 1 can no longer read it. Protocol versions are never lowered, and no commit is made if the table already
        has all features that the new versions imply. Use ``add_feature`` to add a single feature.

        Raises CallError for versions that Delta does not have. Cost: as a commit.
        """
        with self._handle.transaction() as transaction:
            return table_features.upgrade_protocol(transaction, reader_version, writer_version, user_metadata)

    def drop_feature(self, name: str, *, user_metadata: UserMetadata = None) -> commit_results.CommitResult:
        """Drop a table feature, so that clients that do not support it can use the table again. The properties that
        enable the feature are removed first, in a separate commit, and then the feature. Dropping the feature
        clustering also removes the clustering columns. Before the feature deletionVectors is dropped, files with
        deletion vectors are rewritten as by ``optimize.purge``.

        A reader feature can be dropped only if no version in the log uses it, and any feature only if nothing in the
        table uses it; otherwise a CallError is raised, which states what uses the feature and what to do. Raises
        UnsupportedFeatureError, ProtocolChangedError; FeatureDropIncompleteError, with such an error as its cause, if
        one of the earlier commits was made and remains. Cost: 2 commits; for reader features 1 GET for each commit of
        the log; as ``optimize.purge``.
        """
        return table_features.drop_feature(
            self.transaction, name, user_metadata, lambda: self.optimize.purge(user_metadata=user_metadata).commits
        )

    # ----------------------------------------------------------------------------------------- maintenance

    @property
    def optimize(self) -> optimizing.TableOptimizer:
        """The verbs that rewrite files without changing rows, such as ``table.optimize.compact()``. Cost: none."""
        return optimizing.TableOptimizer(self._handle)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = True,
        enforce_retention_duration: bool = True,
        *,
        full: bool = True,
        progress: vacuuming.VacuumProgress = _silent,
        run_tasks: vacuum_tasks.RunTasks | None = None,
        num_tasks: int = 64,
        keep_versions: Sequence[int] = (),
    ) -> vacuum_decisions.VacuumReport:
        """Delete the files below the table root that no version within the retention needs. By default, the files are
        only reported: pass ``dry_run=False`` to delete.

        ``retention_hours``: default delta.deletedFileRetentionDuration, 7 days. A shorter retention raises CallError
        unless ``enforce_retention_duration=False``; the versions that it no longer protects can then lose files. A file
        to which no version refers is always kept until it is a day old, because it may not have been committed yet. All
        files to which the version at the cut-off or a later version refers are kept, including change data files;
        hidden files, links and other tables are also kept. Two commits, VACUUM START and VACUUM END, record the
        deletion; they are not made if there are no files to delete. If the call is interrupted, a second call continues
        the work of the first. ``full=False`` does not list files and considers only files that commits since the last
        vacuum removed (Spark's VACUUM LITE); files that no version has ever named and empty directories are kept.
        ``keep_versions``: versions whose files are kept, however old they are. ``progress``: called with the number of
        files deleted so far and the total number of files to delete. ``run_tasks``: runs elsewhere, for example as
        Spark tasks, the tasks that list and delete files; at most ``num_tasks`` tasks list files. ``run_tasks``
        receives a function, the bytes for each task, and a description of the work. For each task, ``run_tasks`` calls
        the function with the task's bytes and a string that is unique to the attempt, and returns the results in task
        order. The log is read and written in this process.

        Raises CallError, ResourceNotReadyError for a table of a catalog, UnsupportedFeatureError, UnsafePathError for a
        path in the log that cannot be resolved, CorruptTableError, StoreError, and with ``full=False``
        VersionNotFoundError if the log no longer has the commits since the last vacuum. Cost: as ``LogStore.walk``, the
        files of the latest version and of the version at the cut-off, 1 GET for each commit since, 1 DELETE for each
        file, 2 commits and 1 PUT. With ``full=False``, instead of the listing, 1 GET for each commit since the last
        vacuum, 1 HEAD for each file that these commits removed, and 1 HEAD and 1 LIST for each directory with such
        files.
        Spec: PROTOCOL.md#vacuum-protocol-check.
        """
        return vacuuming.vacuum(
            self._handle,
            retention_hours,
            dry_run,
            enforce_retention_duration,
            full,
            progress,
            runner=None if run_tasks is None else vacuum_tasks.VacuumRunner(run_tasks, num_tasks),
            keep_versions=keep_versions,
        )

    def restore(
        self,
        version: int | None = None,
        timestamp: PointInTime | None = None,
        *,
        time_zone: TimeZone | None = None,
        ignore_missing_files: bool = False,
        dry_run: bool = False,
        user_metadata: UserMetadata = None,
    ) -> restoring.RestoreResult:
        """Restore the rows, schema, properties and metadata domains of an earlier version, in a new commit.

        The setting of in-commit timestamps, the protocol and the application versions (txn) are kept, not restored.
        Files that no longer exist in the store raise InvalidDataFileError before anything is committed, unless
        ``ignore_missing_files=True`` restores the table without their rows; ``dry_run=True`` only lists them. A restore
        conflicts with any concurrent change of rows, at every isolation level: either the table becomes exactly the
        earlier version, or the commit fails. Raises VersionNotFoundError, TimestampOutOfRangeError. Cost: both
        versions' files, 1 HEAD for each restored file, 1 commit.
        """
        if (version is None) == (timestamp is None):
            raise CallError("Pass either the version or the timestamp to restore.")
        target = self._handle.at(version, _epoch_ms(timestamp, time_zone), for_change=True)
        with self._handle.transaction() as transaction:
            return restoring.restore(
                transaction, target, _epoch_ms(timestamp, time_zone), ignore_missing_files, dry_run, user_metadata
            )

    def remove_missing_files(self, *, dry_run: bool = True) -> tuple[str, ...]:
        """Remove from the table the files that no longer exist in the store, so that the table can be read again,
        without the rows of those files. By default, the missing files are only listed: pass ``dry_run=False`` to commit
        their removal. Returns the paths of the files, as the log contains them.

        Earlier versions stay as they are. No commit is made if all files exist. Raises as Transaction.commit. Cost: as
        ``Snapshot.files``, 1 HEAD for each file and each deletion vector file, 1 commit.
        """
        return missing_files.remove_missing(self._handle, dry_run)

    def check(self, deep: bool = False, *, progress: check_progress.Progress = _silent) -> findings.CheckReport:
        """Examine the log and the files of the table. See ``deltalog.check``, which also examines tables that cannot be
        opened. Cost: as ``deltalog.check``."""
        return checking.examine(self._handle.reader, deep, progress, self._handle.environment)

    def compute_statistics(
        self, where: Predicate | str | None = None, *, user_metadata: UserMetadata = None
    ) -> commit_results.CommitResult:
        """Compute missing file statistics, like ANALYZE TABLE … COMPUTE DELTA STATISTICS, so that scans can skip files.
        Returns the last commit; no commit is made if all statistics that can be computed already exist.

        Files that lack statistics, or statistics of a column selected by delta.dataSkippingStatsColumns (else
        delta.dataSkippingNumIndexedCols) or by clustering, are added again with these statistics and dataChange=false;
        they keep their deletion vectors, row ids and tags. The statistics are taken from the footers of the files.
        Columns for which the footer is not sufficient are read: floating-point columns, which may contain NaN, and
        columns without statistics in the footer. A column that has no bounds in a file because it contains NaN is read
        again by every call. If the numbers of rows in the log and in the files differ, RowCountError is raised.
        ``where``: a condition on partition columns, as for ``optimize``.

        The call never conflicts with appends; after ten conflicts with other changes to the same files, it raises
        CommitConflictError. Raises CallError, InvalidDataFileError, UnsupportedFeatureError, UnsafePathError,
        StoreError. If a run is interrupted, the commits that it has made remain. Cost: as ``Snapshot.files``, 1 or 2
        ranged GETs for each such file, those of the columns that are read, and a commit for every 100,000 files.
        """
        return statistics.compute_statistics(self._handle, where, user_metadata)

    def generate(self, mode: Literal["symlink_format_manifest"] = "symlink_format_manifest") -> tuple[str, ...]:
        """Write symlink manifests of the latest version, for engines that do not read the log: for each partition, a
        text file below ``_symlink_format_manifest`` that lists the locations of the partition's files. Manifests of
        partitions without files are deleted. Returns the paths of the manifests.

        Later commits by deltalog do not update the manifests. Raises CallError for a table with deletion vectors or
        column mapping, which these engines would misread; UnsafePathError, StoreError. Cost: as ``Snapshot.files``, as
        ``LogStore.walk``, 1 PUT for each manifest, 1 DELETE for each obsolete one.
        """
        return manifests.write_manifests(self._handle)

    def checkpoint(
        self, *, top_level: checkpoint_writer.TopLevel = "parquet", sidecar_rows: int = SIDECAR_ROWS
    ) -> None:
        """Write a checkpoint of the latest version now. The checkpoint is a classic checkpoint, or, if
        delta.checkpointPolicy is v2, a UUID-named checkpoint in the format ``top_level``, with sidecars if there are
        more than ``sidecar_rows`` file actions.

        Raises CallError, UnsupportedFeatureError, StoreError. Cost: reads and writes the whole state once, in pieces.
        """
        log_files.checkpoint(self._handle, top_level, sidecar_rows)

    def compact_log(self, from_version: int | None = None, to_version: int | None = None) -> tuple[int, int] | None:
        """Write a log compaction file for a range of commits; readers can read this file instead of the commits.

        By default, the compacted range begins after the last checkpoint. Returns the first and the last version that
        the file covers; None if there are fewer than two commits. Raises CallError, MissingVersionError,
        UnsupportedFeatureError, StoreError. Cost: 1 GET for each commit, 1 PUT.
        """
        return log_files.compact(self._handle, from_version, to_version)

    def cleanup_log(
        self, *, dry_run: bool = False, retention: datetime.timedelta | None = None
    ) -> cleanup.CleanupReport:
        """Delete the log files that no version within the retention needs; with ``dry_run``, only report them.

        ``retention``: default delta.logRetentionDuration, 30 days. The cut-off is the last midnight UTC before the
        retention period; the newest checkpoint at or before it and all later files are kept. The report lists the
        versions that become unreachable, and states why each file is kept. Writing a checkpoint also runs the clean-up,
        unless delta.enableExpiredLogCleanup is false. Cost: docs/log-files.md. Raises CallError,
        UnsupportedFeatureError, MissingInCommitTimestampError, StoreError.
        """
        return log_files.delete_expired(self._handle, dry_run, retention)

    def flush(self) -> None:
        """Wait until the files that are derived from this process's commits are written; on a remote store they are
        written after the commits. Cost: none."""
        self._handle.flush()


def handle_of(table: DeltaTable) -> table_handle.TableHandle:
    """The handle of a table, for modules that use DeltaTable internally."""
    return table._handle


def _epoch_ms(timestamp: PointInTime | None, time_zone: TimeZone | None) -> int | None:
    return None if timestamp is None else timestamps.to_epoch_ms(timestamp, zone_of(time_zone))


def _opened_again(cls: type[DeltaTable], reader: log_reader.LogReader, environment: Environment) -> DeltaTable:
    return cls(addresses.handle_on_latest(reader, environment))
