"""TableStream: streams the rows of a table and of its later commits, batch by batch, for engines that keep offsets.

Every file is read once, because an offset identifies the first unread file, and the files between two given offsets are
always the same.
Spec: PROTOCOL.md#add-file-and-remove-file, #add-cdc-file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from deltalog.arguments import checked
from deltalog.errors import (
    CallError,
    CorruptTableError,
    InvalidDataFileError,
    MissingVersionError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from deltalog.lazy_arrow import pc
from deltalog.log.file_tables import add_actions
from deltalog.log.history import LogHistory
from deltalog.parallel import opened_ahead
from deltalog.protocol import read_compatibility
from deltalog.protocol.actions import AddFile, Metadata
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.properties import ENABLE_CHANGE_DATA_FEED
from deltalog.protocol.schema import StructType
from deltalog.protocol.timestamps import CommitAt
from deltalog.read.changes import FEED_FIELDS, ChangeFile, ChangeRows, check_partition_values, plan
from deltalog.read.snapshot import Snapshot
from deltalog.read.stream_offsets import (
    StreamOffset,
    StreamRules,
    VersionFiles,
    advance,
    commits_between,
    new_files,
    resumed,
    selected,
)
from deltalog.storage.remote import parallel_gets

_COMMITS_AT_ONCE = 16
# How many planned commits to keep between the calls of ``latest_offset`` and ``files``.
_KEPT_COMMITS = 256


@dataclass(frozen=True, slots=True)
class StreamFile:
    """A file of a batch. ``at``: the commit that changed the rows of the file, if the stream reads the change data
    feed."""

    change: ChangeFile
    at: CommitAt | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes; 0 if the log does not record it."""
        return self.change.file.size or 0


@dataclass(frozen=True)
class StreamReader:
    """Reads the files of a batch, in any process. The pickle of this object contains the options with which the store
    was opened, including secrets. Created by ``TableStream.reader``."""

    rows: ChangeRows

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self.rows.arrow_schema

    def batches(self, files: Sequence[StreamFile]) -> Iterator[pa.RecordBatch]:
        """The rows of ``files``, in order. As with ``Scan.batches``, memory does not depend on the size of the files.

        Raises InvalidDataFileError, also for a file whose number of rows differs from the log, UnsafePathError,
        StoreError. Cost: the GETs of the columns of each file.
        """
        openers = parallel_gets(self.rows.reader.store)
        yield from opened_ahead(files, lambda file: self.rows.opened(file.change), self._counted, openers)

    def _counted(self, file: StreamFile, opened: Any) -> Iterator[pa.RecordBatch]:
        found, wanted = 0, _rows_of(file.change)
        for batch in self.rows.read(file.at, file.change, opened):
            found += batch.num_rows
            yield batch
        if wanted is not None and found != wanted:
            path = file.change.file.path
            raise InvalidDataFileError(
                f"{self.rows.reader.store.url}: the data file {path} has {found} live rows, but the log says {wanted}. "
                "Restore the file, or run `deltalog doctor` to find out what changed it.",
                path=path,
            )


def _rows_of(change: ChangeFile) -> int | None:
    """The number of rows of a new file according to its statistics; None if the log does not record it."""
    if change.kind != "insert" or not isinstance(change.file, AddFile):
        return None
    try:
        rows = json.loads(change.file.stats or "{}").get("numRecords")
    except (ValueError, AttributeError):
        return None
    if not isinstance(rows, int):
        return None
    return rows - (0 if change.after is None else change.after.cardinality)


@checked
class TableStream:
    """The rows of a table, followed by the rows that later commits add. Created by ``DeltaTable.stream``. Not safe for
    concurrent use by several threads.

    Rows have the columns of the version that was the latest when the stream was created; if the stream reads the change
    data feed, the rows also have the three additional columns of the feed. A commit whose columns do not fit the schema
    of the stream raises an error. Create the stream again to get the new columns.
    Spec: PROTOCOL.md#add-file-and-remove-file, #add-cdc-file.
    """

    def __init__(
        self,
        history: Callable[[], LogHistory],
        rules: StreamRules,
        starting_version: int | None,
        starting_timestamp_ms: int | None,
        fail_on_data_loss: bool = True,
    ) -> None:
        """Not for users. ``history``: returns the commits up to the latest version."""
        self._history = history
        self._rules = rules
        self._starting_version = starting_version
        self._starting_timestamp_ms = starting_timestamp_ms
        self._fail_on_data_loss = fail_on_data_loss
        self._latest = history()
        self._read = Snapshot(self._latest.latest)
        self._initial: tuple[int, pa.Table] | None = None
        self._planned: dict[int, list[StreamFile]] = {}
        self._is_start_checked = False
        if rules.read_change_feed:
            self._check_metadata(self._read.metadata, self._read.version)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that determines the columns of the rows. Cost: none."""
        return self._read

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the rows. Cost: none."""
        return self.reader.arrow_schema

    @property
    def schema(self) -> StructType:
        """The columns of the rows. Cost: none."""
        fields = self._read.schema.fields
        return StructType((*fields, *FEED_FIELDS)) if self._rules.read_change_feed else self._read.schema

    @cached_property
    def reader(self) -> StreamReader:
        """Reads the files of a batch, in this process or in another one. Cost: none."""
        return StreamReader(ChangeRows(self._read.reader, self._read.metadata, self._rules.read_change_feed))

    # ------------------------------------------------------------------------------------------------ offsets

    def first_offset(self) -> StreamOffset:
        """The offset at which a stream without a checkpoint begins: before the first file of the latest version, or at
        the commit given by ``starting_version`` or ``starting_timestamp``.

        Raises VersionNotFoundError, TimestampOutOfRangeError. Cost: 2 HEADs, 1 LIST for a version, and for a time as
        ``DeltaTable.version_at``.
        """
        history = self._refreshed()
        latest, version = history.latest.version, self._starting_version
        if self._starting_timestamp_ms is not None:
            version = history.first_version_from(self._starting_timestamp_ms)
        if version is None:
            return self._offset(latest, is_initial=True)
        # latest + 1 is allowed: a stream with this start begins with the next commit.
        earliest = min((each for each in history.listing.commits), default=latest)
        if not earliest <= version <= latest + 1:
            raise VersionNotFoundError(
                f"{self._read.url}: a stream cannot begin at version {version}: the log has the commits of versions "
                f"{earliest} to {latest}.",
                version=version, earliest=earliest, latest=latest,
            )  # fmt: skip
        return self._offset(version)

    def latest_offset(
        self,
        start: StreamOffset | None = None,
        *,
        max_files: int | None = None,
        max_bytes: int | None = None,
        until: StreamOffset | None = None,
    ) -> StreamOffset:
        """The end of the batch that begins at ``start``; without limits, the end of the latest version.

        ``max_files``: the maximum number of files. ``max_bytes``: once the batch reaches this size, no further file is
        added. The changes of a commit are never split between batches. ``until``: a result of an earlier call, which
        the batch must not exceed. With a limit, the same errors as in ``files`` can occur. Cost: 2 HEADs; with a limit,
        1 GET for each commit.
        """
        history = self._refreshed()
        end = self._offset(history.latest.version + 1) if until is None else until
        if start is None:
            return replace(end, begin_version=None)
        end = replace(end, begin_version=start.begin_version, begin_is_initial=start.begin_is_initial)
        if max_files is None and max_bytes is None:
            return end if start.is_before(end) else start
        self._check(start, history)
        found = advance(start, self._versions(start, end), max_files, max_bytes)
        return end if end.is_before(found) else found

    def files(self, start: StreamOffset, end: StreamOffset) -> list[StreamFile]:
        """The files between two offsets, in order. If ``start`` is the offset at which a new stream would begin
        (``first_offset``) and ``end`` belongs to a stream that began earlier, the batch starts at the beginning of that
        stream.

        Raises CallError for a commit that deletes or changes rows, unless the stream's options cover it, and for an
        offset of another table; SchemaMismatchError if the columns have changed; MissingVersionError if log clean-up
        has deleted a needed commit. Cost: 1 GET for each commit that ``latest_offset`` has not read; for the first
        version, once its live files.
        """
        history = self._refreshed()
        self._check(start, history)
        self._check(end, history)
        start = resumed(start, end)
        found: list[StreamFile] = []
        for version in self._versions(start, end):
            wanted = selected(start, end, version)
            if version.is_initial:
                found += self._initial_files(version.version, wanted)
            else:
                found += self._planned_files(version.version)[wanted.start : wanted.stop]
        for version_read in [each for each in self._planned if each < start.version]:
            del self._planned[version_read]
        return found

    def _offset(self, version: int, is_initial: bool = False) -> StreamOffset:
        return StreamOffset(self._read.metadata.id, version, 0, is_initial, version, is_initial)

    def _refreshed(self) -> LogHistory:
        self._latest = self._history()
        return self._latest

    def _check(self, offset: StreamOffset, history: LogHistory) -> None:
        latest, url = history.latest, self._read.url
        if not offset.table_id == latest.metadata.id == self._read.metadata.id:
            raise CallError(
                f"{url}: the offset belongs to the table {offset.table_id}, but this is {latest.metadata.id}: the "
                "table was deleted and created again, or is another one. Start the stream with a new checkpoint."
            )
        if offset.version > latest.version + 1:
            raise CorruptTableError(
                f"{url}: the stream has read up to version {offset.version - 1}, but the latest version is "
                f"{latest.version}: an older copy of the table was restored. Start the stream with a new checkpoint."
            )

    # -------------------------------------------------------------------------------------------------- files

    def _versions(self, start: StreamOffset, end: StreamOffset) -> Iterator[VersionFiles]:
        """The versions with files between two offsets; the versions are read lazily."""
        self._check_start(start)
        if start.is_initial:
            table = self._initial_table(start.version)
            sizes = table.column("size")
            yield VersionFiles(start.version, True, table.num_rows, lambda first: _sizes(sizes, first))
        versions = commits_between(start, end)
        for at in range(0, len(versions), _COMMITS_AT_ONCE):
            part = versions[at : at + _COMMITS_AT_ONCE]
            lost = self._plan(part)
            for version in part:
                if version in lost:
                    continue
                files = self._planned_files(version)
                yield VersionFiles(version, False, len(files), _sizes_of(files), self._rules.read_change_feed)

    def _plan(self, versions: Sequence[int]) -> set[int]:
        """Read those of the commits that are not in ``_planned`` yet. Returns the versions of commits that log clean-up
        has deleted, if skipping them is allowed."""
        missing = [version for version in versions if version not in self._planned]
        if not missing:
            return set()
        if len(self._planned) > _KEPT_COMMITS:
            self._planned.clear()
        lost: set[int] = set()
        try:
            commits: Iterable[CommitActions] = self._read.reader.commits(missing)
        except MissingVersionError as error:
            listed = set(self._latest.listing.commits)
            lost = {version for version in missing if version not in listed}
            if not lost or self._fail_on_data_loss:
                raise _lost(self._read.url, error.version, error) from error
            commits = self._read.reader.commits([version for version in missing if version in listed])
        for commit in commits:
            self._planned[commit.version] = self._files_of(commit)
        return lost

    def _planned_files(self, version: int) -> list[StreamFile]:
        if version not in self._planned:
            self._plan([version])
        return self._planned[version]

    def _files_of(self, commit: CommitActions) -> list[StreamFile]:
        if commit.metadata is not None:
            self._check_metadata(commit.metadata, commit.version)
        if not self._rules.read_change_feed:
            adds = new_files(commit, self._rules, self._read.url)
            return [StreamFile(ChangeFile(add, "insert", after=add.deletion_vector)) for add in adds]
        planned = plan(commit)
        if not planned:
            return []
        at = self._latest.commit_at(commit.version)
        for file in planned:
            check_partition_values(file, commit.version, self._read.partition_columns, self._read.url)
        return [StreamFile(file, at) for file in planned]

    def _initial_table(self, version: int) -> pa.Table:
        """The live files of a version, oldest first, in an order that is the same in every process."""
        if self._initial is None or self._initial[0] != version:
            try:
                snapshot = Snapshot(self._latest.snapshot(version))
                files = snapshot.files()
            except (VersionNotFoundError, MissingVersionError) as error:
                raise _lost(self._read.url, version, error) from error
            order = pc.sort_indices(files, [("modification_time", "ascending"), ("path", "ascending")])
            self._initial = version, files.take(order)
        return self._initial[1]

    def _initial_files(self, version: int, wanted: range) -> list[StreamFile]:
        table = self._initial_table(version).slice(wanted.start, len(wanted))
        at = self._latest.commit_at(version) if self._rules.read_change_feed and table.num_rows else None
        return [StreamFile(ChangeFile(add, "insert", after=add.deletion_vector), at) for add in add_actions(table)]

    # ----------------------------------------------------------------------------------------- schema changes

    def _check_start(self, start: StreamOffset) -> None:
        """Check once whether the rows of the version at which a batch begins fit the stream's columns. Changes of the
        metadata after that version are found in the commits."""
        if self._is_start_checked or start.version > self._read.version:
            return
        self._is_start_checked = True
        try:
            metadata = self._latest.snapshot(start.version).metadata
        except (VersionNotFoundError, MissingVersionError):
            return  # commits that are still in the log are checked separately
        self._check_metadata(metadata, start.version)

    def _check_metadata(self, metadata: Metadata, version: int) -> None:
        url, read = self._read.url, self._read
        if self._rules.read_change_feed and not ENABLE_CHANGE_DATA_FEED.read(metadata.configuration):
            raise CallError(
                f"{url}: the change data feed was off at version {version}. Start the stream at a later version, and "
                f"set {ENABLE_CHANGE_DATA_FEED.key}=true."
            )
        why = read_compatibility.incompatibility(metadata, read.metadata)
        if why is None:
            return
        if version > read.version:
            raise SchemaMismatchError(
                f"{url}: version {version} has other columns than the stream, which has those of version "
                f"{read.version}: with these, {why}. Restart the stream; it then has the columns of the latest version."
            )
        raise SchemaMismatchError(
            f"{url}: the stream has the columns of version {read.version}, but rows of version {version} do not fit "
            f"them: {why}. Start it with a new checkpoint and a startingVersion after that change, or without one."
        )


def _sizes_of(files: Sequence[StreamFile]) -> Callable[[int], Iterable[int]]:
    return lambda first: (file.size_bytes for file in files[first:])


def _sizes(sizes: pa.ChunkedArray, first: int) -> Iterator[int]:
    for chunk in sizes.slice(first).chunks:
        for at in range(0, len(chunk), 1000):
            yield from chunk.slice(at, 1000).to_pylist()


def _lost(url: str, version: int, error: Exception) -> MissingVersionError:
    return MissingVersionError(
        f"{url}: the stream needs version {version}, but log clean-up has deleted it or files it is rebuilt from "
        f"({error}). Rows may be lost: start the stream with a new checkpoint, or skip what is gone with "
        "failOnDataLoss=false. delta.logRetentionDuration must be longer than any pause of the stream.",
        version=version,
    )
