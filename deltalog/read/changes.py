"""The change data feed: the rows that each commit inserted, updated or deleted.

Spec: PROTOCOL.md#add-cdc-file, #reader-requirements-for-addcdcfile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa
from pyroaring import BitMap64

from deltalog.arguments import checked
from deltalog.errors import (
    CallError,
    CorruptTableError,
    InvalidCommitError,
    SchemaMismatchError,
    TimestampOutOfRangeError,
)
from deltalog.log.history import LogHistory
from deltalog.log.reader import LogReader
from deltalog.parallel import mapped, opened_ahead
from deltalog.parquet.file_reader import DataFile, FileLayout, OpenFile, open_file, read_vector
from deltalog.protocol import column_mapping, read_compatibility
from deltalog.protocol.actions import AddCDCFile, AddFile, DeletionVector, Metadata, RemoveFile
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.column_metadata import PHYSICAL_NAME_KEY
from deltalog.protocol.paths import commit_name
from deltalog.protocol.properties import ENABLE_CHANGE_DATA_FEED
from deltalog.protocol.schema import PrimitiveType, StructField, StructType
from deltalog.protocol.timestamps import CommitAt
from deltalog.read.snapshot import Snapshot
from deltalog.storage.remote import parallel_gets

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_LARGEST_MS = (2**63 - 1) // 1000  # the largest time that fits into a column of microseconds
# A column of change data files; it has this name even if the table uses column mapping.
CHANGE_TYPE_FIELD = StructField(CHANGE_TYPE, PrimitiveType("string"), True, {PHYSICAL_NAME_KEY: CHANGE_TYPE})
FEED_FIELDS = (
    StructField(CHANGE_TYPE, PrimitiveType("string"), True, {}),
    StructField(COMMIT_VERSION, PrimitiveType("long"), True, {}),
    StructField(COMMIT_TIMESTAMP, PrimitiveType("timestamp"), True, {}),
)
_COMMITS_AT_ONCE = 64
_WHEN_MAPPED = "Read the range in parts: one that ends before that schema change, and one that begins after it"
_WHEN_NOT_MAPPED = (
    "Without column mapping, changes always have the latest columns: begin the range after that schema change"
)


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file from which the changes of a commit are read.

    ``kind``: how the rows of the file changed. Either all rows of the file were inserted, or all were deleted, or
    (``difference``) the changed rows are those that are deleted by exactly one of the file's two deletion vectors.
    ``kind`` is None for a change data file, which stores the change type of each row in a column. ``before``,
    ``after``: the file's deletion vectors before and after the commit.
    """

    file: AddFile | RemoveFile | AddCDCFile
    kind: Literal["insert", "delete", "difference"] | None
    before: DeletionVector | None = None
    after: DeletionVector | None = None


def plan(commit: CommitActions) -> list[ChangeFile]:
    """The files that contain the changes of a commit: its change data files, or if it has none, the files that it added
    or removed with dataChange. Pure. Spec: PROTOCOL.md#reader-requirements-for-addcdcfile."""
    if commit.cdc:
        return [ChangeFile(file, None) for file in commit.cdc]
    if _is_merge_without_effect(commit):
        return []
    adds = {add.path: add for add in commit.adds if add.data_change}
    removes = {remove.path: remove for remove in commit.removes if remove.data_change}
    planned = []
    for path, add in adds.items():
        removed = removes.get(path)
        if removed is None:
            planned.append(ChangeFile(add, "insert", after=add.deletion_vector))
        else:
            planned.append(ChangeFile(add, "difference", removed.deletion_vector, add.deletion_vector))
    for path, remove in removes.items():
        if path not in adds:
            planned.append(ChangeFile(remove, "delete", before=remove.deletion_vector))
    return planned


def _is_merge_without_effect(commit: CommitActions) -> bool:
    """Whether a commit is a MERGE by Spark that changed no rows according to its metrics. Even a MERGE that changes no
    rows rewrites files with dataChange=true."""
    info = commit.commit_info
    if info is None or info.operation != "MERGE":
        return False
    metrics = info.body.get("operationMetrics")
    counts = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    return isinstance(metrics, dict) and all(metrics.get(name) == "0" for name in counts)


def changes_between(
    history: LogHistory,
    from_version: int | None,
    to_version: int | None,
    from_timestamp_ms: int | None,
    to_timestamp_ms: int | None,
    allow_out_of_range: bool = False,
) -> Changes:
    """The changes in a range of versions, both ends included; each end is a version or a time in milliseconds since
    1970.

    ``allow_out_of_range``: a range that begins after the latest version has no changes, and a range that ends after it
    is cut off at the latest version.

    Raises CallError, TimestampOutOfRangeError, VersionNotFoundError, MissingVersionError. Cost: as
    ``LogHistory.version_at`` for each time, and as ``LogHistory.snapshot`` for the first and the last version. See
    ``DeltaTable.changes``.
    """
    both_from = (from_version is None) == (from_timestamp_ms is None)
    if both_from or not (to_version is None or to_timestamp_ms is None):
        raise CallError("Pass from_version or from_timestamp, and at most one of to_version and to_timestamp.")
    latest = Snapshot(history.latest)
    if from_timestamp_ms is not None:
        try:
            from_version = history.first_version_from(from_timestamp_ms)
        except TimestampOutOfRangeError:  # after the last commit
            if not allow_out_of_range:
                raise
            from_version = latest.version + 1
    if allow_out_of_range and from_version is not None and from_version > latest.version:
        return Changes(latest, latest, latest, history.commit_at, is_after_latest=True)
    if to_timestamp_ms is not None:
        to_version = _last_version_until(history, to_timestamp_ms, allow_out_of_range)
    elif allow_out_of_range and to_version is not None:
        to_version = min(to_version, latest.version)
    last = history.latest if to_version is None else history.snapshot(to_version)
    assert from_version is not None
    is_between_commits = None not in (from_timestamp_ms, to_timestamp_ms) and from_version == last.version + 1
    if from_version > last.version and not is_between_commits:
        message = f"The range of changes is empty: it begins at {from_version} and ends at {last.version}."
        if from_version > latest.version:
            message += (
                f" The latest version is {latest.version}. To get no changes instead, pass allow_out_of_range=True "
                "(in Spark also option('allowOutOfRange', True))."
            )
        raise CallError(message)
    first = history.snapshot(from_version)
    return Changes(Snapshot(first), Snapshot(last), latest, history.commit_at)


def _last_version_until(history: LogHistory, timestamp_ms: int, allow_out_of_range: bool) -> int:
    """The last version at or before an instant. Without ``allow_out_of_range``, an instant after the last commit is
    refused, as is a version after the latest one: further commits may still be made before that instant, and the result
    would lack them."""
    try:
        return history.version_at(timestamp_ms, after="latest" if allow_out_of_range else "error").version
    except TimestampOutOfRangeError as error:
        if timestamp_ms < error.latest_ms:
            raise
        message = error.message[: error.message.rindex(" To clamp")]
        raise TimestampOutOfRangeError(
            f"{message} A range of changes ends there: leave its end out, or allow it with allow_out_of_range=True "
            "(in Spark also option('allowOutOfRange', True)).",
            requested_ms=error.requested_ms,
            earliest_ms=error.earliest_ms,
            latest_ms=error.latest_ms,
        ) from None


@checked
class Changes:
    """The changes of a range of versions, in commit order, read lazily. Created by ``DeltaTable.changes``.

    Rows have the table's columns, then ``_change_type`` (insert, update_preimage, update_postimage, delete),
    ``_commit_version`` and ``_commit_timestamp``. As in Spark, the table's columns are taken from the latest version,
    or from the last version of the range if column mapping is or was used. Columns added later are null in earlier
    rows; any other schema change within the range is refused. Spec: PROTOCOL.md#add-cdc-file.
    """

    def __init__(
        self,
        first: Snapshot,
        last: Snapshot,
        latest: Snapshot,
        commit_at: Callable[[int], CommitAt],
        *,
        is_after_latest: bool = False,
    ) -> None:
        """``is_after_latest``: the range begins after the latest version and has no changes."""
        self._is_after_latest = is_after_latest
        self._first = first
        self._last = last
        mapped = any(column_mapping.mode_of(s.metadata.configuration) != "none" for s in (first, last, latest))
        self._read = last if mapped else latest
        self._advice = _WHEN_MAPPED if mapped else _WHEN_NOT_MAPPED
        self._commit_at = commit_at

    @property
    def versions(self) -> range:
        """The versions in the range."""
        after = self._last.version + 1
        return range(after if self._is_after_latest else self._first.version, after)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot whose schema the rows of the change data feed have. Cost: none."""
        return self._read

    def files(self) -> Iterator[tuple[CommitAt, ChangeFile]]:
        """The files that contain the changes, commit by commit, for engines that read files themselves.

        Raises CallError, SchemaMismatchError, InvalidCommitError as ``batches``. Cost: 1 GET for each commit, and that
        of ``LogHistory.commit_at``.
        """
        if not self.versions and not self._is_after_latest:
            return
        self._check_metadata(self._first.metadata, self._first.version)
        for commit in self._commits():
            if commit.metadata is not None:
                self._check_metadata(commit.metadata, commit.version)
            planned = plan(commit)
            at = self._commit_at(commit.version) if planned else None
            for file in planned:
                assert at is not None
                check_partition_values(file, commit.version, self._read.partition_columns, self._read.url)
                yield at, file

    def _commits(self) -> Iterator[CommitActions]:
        """The commits of the range, read in groups of _COMMITS_AT_ONCE."""
        for start in range(0, len(self.versions), _COMMITS_AT_ONCE):
            yield from self._last.reader.commits(self.versions[start : start + _COMMITS_AT_ONCE])

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches."""
        return ChangeRows(self._read.reader, self._read.metadata).arrow_schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The changes, batch by batch. As with ``Scan.batches``, memory use does not depend on the size of the files.

        Raises CallError if the feed was disabled within the range, SchemaMismatchError if the schema changed so that
        earlier rows do not fit, InvalidCommitError if a commit removes a file without its partition values,
        InvalidDataFileError. Cost: as ``files``, and the GETs of the columns of each file.
        """
        rows = ChangeRows(self._read.reader, self._read.metadata)
        openers = parallel_gets(self._read.reader.store)
        yield from opened_ahead(
            self.files(), lambda item: rows.opened(item[1]), lambda item, opened: rows.read(*item, opened), openers
        )

    def to_arrow(self) -> pa.Table:
        """All changes in memory. Raises and costs as ``batches``."""
        return pa.Table.from_batches(self.batches(), self.arrow_schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow C stream interface: polars, duckdb and pandas read Changes directly."""
        reader = pa.RecordBatchReader.from_batches(self.arrow_schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _check_metadata(self, metadata: Metadata, version: int) -> None:
        url = self._read.url
        if not ENABLE_CHANGE_DATA_FEED.read(metadata.configuration):
            raise CallError(
                f"{url}: the change data feed was off at version {version}. Read a range of versions that all have "
                f"{ENABLE_CHANGE_DATA_FEED.key}=true."
            )
        why = read_compatibility.incompatibility(metadata, self._read.metadata)
        if why is not None:
            raise SchemaMismatchError(
                f"{url}: the changes have the columns of version {self._read.version}, but rows of version {version} "
                f"do not fit them: {why}. {self._advice}, or read the rows of both ends with "
                "snapshot(version=...).scan()."
            )


@dataclass(frozen=True)
class ChangeRows:
    """Reads the rows of one ChangeFile at a time, with the columns of ``metadata``. If this object is pickled, the
    pickle contains the options with which the store was opened, including secrets.

    ``with_commit``: append the three columns of the change data feed.
    """

    reader: LogReader
    metadata: Metadata
    with_commit: bool = True

    @cached_property
    def _mapping(self) -> column_mapping.Mode:
        return column_mapping.mode_of(self.metadata.configuration)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches."""
        fields = self.metadata.schema.fields
        return StructType((*fields, *FEED_FIELDS) if self.with_commit else fields).to_arrow()

    def opened(self, planned: ChangeFile) -> list[tuple[str | None, OpenFile]]:
        """Open a ChangeFile once for each kind of change. The kind of change is None if the file stores the kind of
        each row in a column."""
        files = self.reader.files
        file = DataFile(planned.file.path, planned.file.partition_values or {}, size=planned.file.size)
        columns = self.metadata.schema
        if planned.kind is None:
            columns = StructType((*columns.fields, CHANGE_TYPE_FIELD))
        # Take the partition columns from the file, because the table's partition columns may have changed since the
        # file was written.
        keys = {key.lower() for key in file.partition_values}
        named = ((column.name, column_mapping.physical_name(column, self._mapping)) for column in columns)
        layout = FileLayout(columns, [name for name, key in named if key.lower() in keys], self._mapping)
        if planned.kind != "difference":
            vector = planned.after if planned.kind == "insert" else planned.before
            return [(planned.kind, open_file(files, replace(file, deletion_vector=vector), layout))]
        threads = 2 if parallel_gets(files.store) else 0
        before, after = mapped(
            (planned.before, planned.after), lambda v: BitMap64() if v is None else read_vector(files, v), threads, 0
        )
        differences = (("delete", after - before), ("insert", before - after))
        return [(kind, open_file(files, file, layout, rows)) for kind, rows in differences if rows]

    def read(
        self, at: CommitAt | None, planned: ChangeFile, opened: list[tuple[str | None, OpenFile]]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that ``opened`` has opened. ``at``: the commit that changed the rows, needed only for the
        columns of the change data feed."""
        for kind, file in opened:
            for batch in file.batches():
                yield batch if at is None or not self.with_commit else self._with_commit(batch, kind, at)

    def _with_commit(self, batch: pa.RecordBatch, kind: str | None, at: CommitAt) -> pa.RecordBatch:
        rows = batch.num_rows
        columns = batch.columns if kind is None else [*batch.columns, pa.repeat(pa.scalar(kind), rows)]
        versions = pa.repeat(pa.scalar(at.version, pa.int64()), rows)
        if abs(at.timestamp_ms) > _LARGEST_MS:
            raise CorruptTableError(
                f"{self.reader.store.url}: version {at.version} was committed at {at.timestamp_ms} ms, which "
                f"{COMMIT_TIMESTAMP} cannot hold. Read a range of changes without that version."
            )
        micros = pa.repeat(pa.scalar(at.timestamp_ms * 1000, pa.int64()), rows)
        timestamps = micros.cast(pa.timestamp("us", "UTC"))
        return pa.RecordBatch.from_arrays([*columns, versions, timestamps], schema=self.arrow_schema)


def check_partition_values(planned: ChangeFile, version: int, partition_columns: Sequence[str], url: str) -> None:
    """Refuse a remove action without partition values, because the file's rows would be reported as deleted from the
    null partition. Pure. Raises InvalidCommitError."""
    if planned.file.partition_values is None and partition_columns:
        name = commit_name(version)
        raise InvalidCommitError(
            f"{url}: commit {name} removes {planned.file.path} without partitionValues, so the values "
            f"of {', '.join(partition_columns)} in its deleted rows are unknown. Read changes from a "
            f"version after {version}, or compare the rows of snapshot(version=...).scan().",
            version=version, path=name,
        )  # fmt: skip
