"""Snapshot: the public, immutable view of one version of a table."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deltalog.arguments import checked, safe_repr
from deltalog.errors import MissingVersionError
from deltalog.expressions.tree import Predicate, condition_at_instant
from deltalog.lazy_names import lazy_modules
from deltalog.log.loader import UnreadSnapshot, load
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import LogSnapshot
from deltalog.log.tip import Tip
from deltalog.parallel import Lazy
from deltalog.protocol import features
from deltalog.protocol.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from deltalog.protocol.paths import commit_path
from deltalog.protocol.schema import StructType
from deltalog.protocol.timestamps import Enablement

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds

    from deltalog import arrow_arrays
    from deltalog.expressions import sql
    from deltalog.log import commit_summary as commit_summaries
    from deltalog.log import file_statistics, file_tables
    from deltalog.protocol import column_mapping
    from deltalog.read import arrow_dataset, duckdb_relation, polars_frames
    from deltalog.read import scan as scans
else:
    lazy_modules(
        __name__,
        "deltalog.arrow_arrays",
        "deltalog.expressions.sql",
        "deltalog.log.file_statistics",
        "deltalog.log.file_tables",
        "deltalog.protocol.column_mapping",
        "deltalog.read.arrow_dataset",
        "deltalog.read.duckdb_relation",
        "deltalog.read.polars_frames",
        commit_summaries="deltalog.log.commit_summary",
        pa="pyarrow",
        scans="deltalog.read.scan",
    )


@checked
class Snapshot:
    """The state of a table at one version. Snapshots are immutable, and threads may share them.

    Protocol, metadata and totals come from the version's ``.crc`` if it is usable, otherwise from the checkpoint and
    the commits after it; the list of files is read on first use, and cached.

    A snapshot has one attribute or method for each kind of action, and one for each way to read the files and rows of
    its version.
    """

    def __init__(self, version: LogSnapshot | UnreadSnapshot, *, is_time_travel: bool = False) -> None:
        """Not for users, who should call DeltaTable.snapshot."""
        self._version = version
        # Whether the caller chose the version by number or time; writes computed from its rows are then not checked for
        # conflicts.
        self.is_time_travel = is_time_travel

    def as_time_travel(self) -> Snapshot:
        """The same snapshot, marked as time travel: as a version that the caller chose by number or by time. Cost:
        none."""
        return Snapshot(self.__dict__.get("log", self._version), is_time_travel=True)

    @safe_repr
    def __repr__(self) -> str:
        return f"Snapshot(table={self.url!r}, version={self.version})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle support: unpickling loads the snapshot's version again. Cost: as ``DeltaTable.snapshot(version)``."""
        return _loaded_again, (self.reader, self.version, self.is_time_travel)

    @Lazy
    def log(self) -> LogSnapshot:
        """The log segment, state and file actions of this version. Cost: none; but a version that this process just
        committed may have to be read, which raises and costs as ``DeltaTable.snapshot(version)``."""
        version = self._version
        return version.load() if isinstance(version, UnreadSnapshot) else version

    # ------------------------------------------------------------------------------------- description

    @property
    def url(self) -> str:
        """The URL of the table root."""
        return self.reader.store.url

    @Lazy
    def reader(self) -> LogReader:
        """The reader of the log from which this snapshot was loaded."""
        return self._version.reader

    @Lazy
    def version(self) -> int:
        return self._version.version

    @property
    def tip(self) -> Tip:
        """Identifies the commit of this version. Cost: none."""
        found: LogSnapshot | UnreadSnapshot = self.__dict__.get("log", self._version)
        return found.tip

    @Lazy
    def protocol(self) -> Protocol:
        return self.log.protocol

    @Lazy
    def metadata(self) -> Metadata:
        return self.log.metadata

    @Lazy
    def schema(self) -> StructType:
        """The table's columns, including partition columns."""
        return self.log.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @property
    def table_features(self) -> tuple[str, ...]:
        """The names of the table features, sorted, including features implied by legacy protocol versions. Cost:
        none."""
        return tuple(sorted({*features.reader_features(self.protocol), *features.writer_features(self.protocol)}))

    @property
    def in_commit_timestamps_enabled(self) -> bool:
        """Whether in-commit timestamps are enabled at this version."""
        return self.log.in_commit_timestamps_enabled

    @property
    def enablement(self) -> Enablement | None:
        """The version and the timestamp at which in-commit timestamps were enabled; None if they are disabled, or
        enabled since version 0.

        Raises InvalidEnablementError.
        """
        return self.log.enablement

    @property
    def in_commit_timestamp_ms(self) -> int | None:
        """The version's in-commit timestamp, in milliseconds since 1970; None if in-commit timestamps are disabled.

        Raises MissingInCommitTimestampError if the commit lacks it. Cost: at most 1 GET of 4 KiB.
        """
        return self.log.in_commit_timestamp_ms

    @Lazy
    def timestamp_ms(self) -> int:
        """The version's time in milliseconds since 1970: its in-commit timestamp if in-commit timestamps are enabled at
        this version, else the modification time of its commit file.

        Time travel and ``history`` can use other times: the latest version decides whether in-commit timestamps apply,
        and file times are monotonised; see ``version_at``. Raises MissingVersionError if log clean-up
        deleted the commit file, MissingInCommitTimestampError. Cost: at most 1 GET or 1 HEAD.
        """
        ict_ms = self.in_commit_timestamp_ms
        if ict_ms is not None:
            return ict_ms
        meta = self.reader.store.head(commit_path(self.version))
        if meta is None or meta.modification_time_ms is None:
            raise MissingVersionError(
                f"{self.url}: the commit file of version {self.version} no longer exists, so its time is unknown.",
                version=self.version,
            )
        return meta.modification_time_ms

    @Lazy
    def commit_summary(self) -> commit_summaries.CommitSummary:
        """A summary of this version's commit: the files and rows that it added, its times, and its author's metadata.
        Raises MissingVersionError if log clean-up deleted the commit file, InvalidCommitError. Cost: 1 GET."""
        return commit_summaries.summary_of(self.reader.commit(self.version))

    @property
    def set_transactions(self) -> list[SetTransaction]:
        """The last version that was recorded for each application id."""
        return list(self.log.state.transactions.values())

    def transaction_version(self, app_id: str) -> int | None:
        """The last version recorded for ``app_id``; None if none was recorded."""
        found = self.log.state.transactions.get(app_id)
        return None if found is None else found.version

    @property
    def domain_metadata(self) -> list[DomainMetadata]:
        """The metadata domains that have not been removed."""
        return list(self.log.state.domains.values())

    @property
    def clustering_columns(self) -> tuple[tuple[str, ...], ...]:
        """The clustering columns of a clustered table, each as a path of names; empty for other tables.

        Spec: PROTOCOL.md#clustered-table. Raises CorruptTableError.
        """
        return self.log.state.clustering_columns

    # -------------------------------------------------------------------------------------------- files

    @property
    def num_files(self) -> int:
        """The number of live files. Cost: none if the ``.crc`` has it, else as ``files``."""
        return self.log.cache.totals.num_files

    @property
    def size_bytes(self) -> int:
        """The total size of the live files, in bytes. Cost: as ``num_files``."""
        return self.log.cache.totals.size_bytes

    def files(self, columns: Sequence[str] | None = None) -> pa.Table:
        """One row per live file, with the columns of deltalog.log.file_tables.FILES, or only ``columns`` of them.

        Raises CallError for an unknown column. Cost: the columns in the checkpoint and 1 GET for each commit after it.
        The result is cached only if ``columns`` is not passed.
        """
        return self.log.cache.files(columns)

    def statistics(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The statistics of the live files, one row for each row of ``files``: ``num_records``, ``tight_bounds``, and
        the structs ``min_values``, ``max_values`` and ``null_count``, which have one field per column. Bounds have the
        types of the columns.

        ``columns``: names of table columns; None for all except partition columns. Bounds are returned as written in
        the log, so bounds of strings and timestamps may be truncated. Statistics that a file lacks are null. Raises
        SchemaMismatchError. Cost: the statistics in the checkpoint, and 1 GET for each commit after it.
        """
        names = self.schema.names if columns is None else columns
        fields = [self.schema.field(name) for name in names if name not in self.partition_columns]
        mapping = column_mapping.mode_of(self.metadata.configuration)
        leaves = file_statistics.leaves_of(StructType(tuple(fields)), mapping)
        pieces = self.log.cache.file_pieces(lambda piece: _statistics_table(piece, leaves), (), leaves)
        return pa.concat_tables([_statistics_table(arrow_arrays.empty(file_tables.FILES), leaves), *pieces])

    def file_path(self, add_path: str) -> str:
        """The location of the data file with the path ``add_path`` in the log: in the table, or below one of the
        locations in ``DeltaTable.open(allowed_paths=)``. Raises UnsafePathError."""
        return self.reader.files.location(add_path)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        *,
        variants: scans.VariantForm = "binary",
    ) -> scans.Scan:
        """A lazy read of the rows. ``columns``: the names of the columns to read, in order; None for all. ``where``:
        SQL text or a predicate built with ``col``; only rows for which it is true are returned, and files that cannot
        contain such a row are not read. CURRENT_TIMESTAMP and CURRENT_DATE refer to the time of this call.

        If row tracking is enabled, ``columns`` can include ``_metadata.row_id`` and ``_metadata.row_commit_version``.
        ``variants="json"`` returns variants as JSON text; otherwise they are structs of metadata and value, which
        ``variant_to_python`` converts. Raises CallError, SchemaMismatchError. Cost: none until it is read.
        """
        if where is not None:
            now = datetime.datetime.fromtimestamp(self.reader.clock_ms() / 1000, datetime.timezone.utc)
            if isinstance(where, str):
                where = sql.at_one_instant(where, now)
            elif isinstance(where, Predicate):  # does not need the parser of SQL
                where = condition_at_instant(where, now)
        return scans.Scan(self.log, columns, where, variants, is_time_travel=self.is_time_travel)

    def scan_polars(self, columns: Sequence[str] | None = None, where: Predicate | str | None = None) -> pl.LazyFrame:
        """The rows as a polars LazyFrame. polars pushes column selections, filters and ``head`` into the scan; the
        filters skip files by partition values and statistics. ``columns``, ``where``: as for ``scan``; a filter on the
        LazyFrame is faster than ``where``.

        On a local disk, polars itself reads the data files, unless their columns need conversion (docs/lazy-reads.md).
        Raises CallError if polars is not installed, and as ``scan``. Cost: none; each collection as ``Scan.batches``.
        """
        return polars_frames.lazy_frame(self.scan(columns, where))

    def to_pyarrow_dataset(
        self, columns: Sequence[str] | None = None, where: Predicate | str | None = None
    ) -> ds.Dataset:
        """The rows as a pyarrow Dataset, which uses the partition values and statistics in the log to skip files.
        ``columns``, ``where``: as for ``scan``; filters that are passed to the dataset itself are faster than
        ``where``.

        A FileSystemDataset if Arrow reads all files as deltalog does: on a local disk, without deletion vectors and
        conversions (docs/lazy-reads.md). Otherwise the dataset has no fragments, and its scanner reads the files with
        deltalog. Raises as ``scan``, and CorruptTableError. Cost: as ``files``; on a local disk 1 GET of each file's
        footer.
        """
        return arrow_dataset.arrow_dataset(self.scan(columns, where))

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """The rows as a relation of a DuckDB connection (None: DuckDB's default connection). DuckDB pushes columns and
        filters down into the relation. ``columns``, ``where``: as for ``scan``; filtering in a DuckDB query is faster
        than ``where``.

        On a local disk DuckDB reads the data files itself, unless their columns need conversion or they have more than
        256 combinations of partition values; otherwise it scans ``to_pyarrow_dataset()``. Raises CallError if duckdb is
        not installed, and as ``to_pyarrow_dataset``. Cost: as ``files``, and 1 GET of each file's footer; the files are
        those of this moment's list, read when the relation is.
        """
        return duckdb_relation.relation(self.scan(columns, where), connection)


def _statistics_table(files: pa.Table, leaves: Sequence[file_statistics.Leaf]) -> pa.Table:
    flat = file_statistics.statistics_of_files(files, leaves)
    groups = file_statistics.nested(flat, leaves, lambda leaf: leaf.path)
    columns = {"num_records": flat.column("numRecords"), "tight_bounds": flat.column("tightBounds")}
    names = {"minValues": "min_values", "maxValues": "max_values", "nullCount": "null_count"}
    nothing = pa.nulls(flat.num_rows, pa.struct([]))
    return pa.table({**columns, **{name: groups.get(group, nothing) for group, name in names.items()}})


def is_outdated(snapshot: Snapshot) -> bool:
    """Whether log clean-up is known to have deleted commits from which the snapshot's list of files is read. Cost:
    none."""
    log = snapshot.__dict__.get("log", snapshot._version)
    return isinstance(log, LogSnapshot) and log.cache.is_outdated


def is_read(snapshot: Snapshot) -> bool:
    """Whether the state of the snapshot's version is in memory. Cost: none."""
    return isinstance(snapshot.__dict__.get("log", snapshot._version), LogSnapshot)


def _loaded_again(reader: LogReader, version: int, is_time_travel: bool) -> Snapshot:
    return Snapshot(load(reader, reader.list_from(), version), is_time_travel=is_time_travel)
