"""DeltaTable: a table at a location, and its verbs."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.errors import CallError, TableExistsError, TableNotFoundError
from deltalog.log.checkpoint import write_checkpoint
from deltalog.log.history import CommitEntry, LogHistory, TimestampExplanation
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import Snapshot, load, load_latest
from deltalog.read.changes import Changes
from deltalog.spec import features
from deltalog.spec.paths import commit_path
from deltalog.spec.properties import ENABLE_IN_COMMIT_TIMESTAMPS
from deltalog.spec.schema import StructType
from deltalog.spec.timestamps import CommitAt, to_epoch_ms
from deltalog.storage.base import FileMeta, LogStore
from deltalog.storage.registry import open_store
from deltalog.write import operations
from deltalog.write.commit import CommitResult, Environment
from deltalog.write.transaction import Transaction

Location = str | os.PathLike[str] | LogStore
PointInTime = datetime.datetime | int | str


class DeltaTable:
    """A Delta table. Threads may share it; each call works on a snapshot of its own.

    Points in time are aware datetimes, ints (ms since the Unix epoch) or ISO text with an offset or Z;
    anything else raises InvalidTimestampError.
    """

    def __init__(self, reader: LogReader, environment: Environment, latest: Snapshot) -> None:
        self._reader = reader
        self._environment = environment
        self._latest = latest
        self._tip: tuple[int, FileMeta] | None = None  # the tip's commit file as it was seen last

    def __repr__(self) -> str:
        return f"DeltaTable(url={self.url!r}, version={self.version})"

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
        """The table at a location. ``storage_options``: as for ``open_store``.

        Its log may name files in the table only; ``allowed_paths`` are further directories or prefixes, on the
        same kind of store, where absolute paths in the log may lie: the source of a shallow clone. Elsewhere
        nothing is read: UnsafePathError.

        Raises TableNotFoundError, UnsupportedFeatureError, CorruptTableError. Cost: 1 GET of the checkpoint
        hint, 1 LIST, 2 GETs where the last version has a sound ``.crc``; else the checkpoint's small columns
        and 1 GET for each commit after it.
        """
        reader = LogReader(open_store(url, **storage_options), allowed_paths)
        return cls(reader, environment or Environment(), load_latest(reader))

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
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        data: Any = None,
        environment: Environment | None = None,
        **storage_options: Any,
    ) -> DeltaTable:
        """Create a table, with rows where ``data`` is given, in one commit.

        ``properties={"delta.enableInCommitTimestamps": "true"}`` gives it in-commit timestamps from version 0.
        Raises TableExistsError, SchemaMismatchError, InvalidPropertyError. Cost: 1 LIST, 1 PUT for each file,
        1 PUT.
        """
        transaction = cls.create_transaction(
            url,
            schema,
            partition_by=partition_by,
            properties=properties,
            name=name,
            description=description,
            environment=environment,
            **storage_options,
        )
        with transaction:
            operations.create(transaction, data)
        assert transaction.committed is not None
        return cls(transaction.reader, environment or Environment(), transaction.committed)

    @classmethod
    def create_transaction(
        cls,
        url: Location,
        schema: StructType | pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        environment: Environment | None = None,
        **storage_options: Any,
    ) -> Transaction:
        """A transaction whose commit is version 0, for a table that is created with files.

        Raises TableExistsError now, or at commit when another writer is faster.
        """
        reader = LogReader(open_store(url, **storage_options))
        if not reader.list_from().is_empty:
            raise TableExistsError(
                f"There is a table at {reader.store.url} already. Open it with DeltaTable.open, or choose another "
                "location."
            )
        environment = environment or Environment()
        delta_schema = schema if isinstance(schema, StructType) else StructType.from_arrow(schema)
        protocol, metadata = operations.initial_state(
            delta_schema, partition_by, properties or {}, name, description, environment
        )
        return Transaction(reader, environment, None, metadata=metadata, protocol=protocol)

    # ------------------------------------------------------------------------------------------- reading

    @property
    def url(self) -> str:
        """The table's root."""
        return self._reader.store.url

    @property
    def version(self) -> int:
        """The latest version that this handle has seen. Cost: none."""
        return self._latest.version

    def snapshot(self, version: int | None = None, timestamp: PointInTime | None = None) -> Snapshot:
        """The latest version, a given one, or the one that was current at a point in time.

        Raises VersionNotFoundError, TimestampOutOfRangeError, InvalidTimestampError. Cost: latest: 2 HEADs, and
        1 LIST and the new commits when there are any; a version: 1 LIST and as ``open``; a point in time: as
        ``version_at`` and the version's log files, with the same listing.
        """
        if version is not None and timestamp is not None:
            raise CallError("Give a version or a timestamp, not both.")
        if not (version is None or isinstance(version, int)):
            raise CallError(f"A version is a whole number, not {version!r}. For a point in time use timestamp=.")
        if timestamp is not None:
            history = LogHistory(self._reader)
            found = history.version_at(to_epoch_ms(timestamp))
            if found.version == history.latest.version:
                return history.latest
            return load(self._reader, history.listing, found.version)
        latest = self._refresh()
        if version is None or version == latest.version:
            return latest
        return load(self._reader, self._reader.list_from(), version)

    def version_at(self, timestamp: PointInTime, before: str = "error", after: str = "error") -> CommitAt:
        """The version that was current at a point in time, with its own time and the clock that counts for it.

        ``before="earliest"`` and ``after="latest"`` clamp what lies outside the history; otherwise
        TimestampOutOfRangeError gives the bounds. Raises InvalidEnablementError and
        MissingInCommitTimestampError when the log cannot tell. Cost: 1 LIST, the latest version's ``.crc``, and
        at most ceil(log2 n) + 2 GETs of 4 KiB for n commits.
        """
        return LogHistory(self._reader).version_at(to_epoch_ms(timestamp), before, after)

    def explain_timestamp(self, timestamp: PointInTime) -> TimestampExplanation:
        """How a point in time is resolved: the clock, the candidates, the answer, its neighbours, the bounds.

        print() it, or take to_json(). Cost: as ``version_at`` and a few GETs.
        """
        return LogHistory(self._reader).explain(to_epoch_ms(timestamp))

    def history(self, limit: int | None = None) -> list[CommitEntry]:
        """The commits, newest first, with the time that counts for each.

        Cost: 1 LIST and 1 GET of 4 KiB for each commit returned.
        """
        return LogHistory(self._reader, stat=limit is None).entries(limit)

    def changes(
        self,
        from_version: int | None = None,
        to_version: int | None = None,
        *,
        from_timestamp: PointInTime | None = None,
        to_timestamp: PointInTime | None = None,
    ) -> Changes:
        """The change data feed of a range of versions, both ends included; to the latest by default.

        ``from_timestamp`` begins at the first commit at or after it, ``to_timestamp`` ends at the last one at or
        before it, by the in-commit timestamp rules; two times between the same two commits give no changes. The
        table property delta.enableChangeDataFeed must have been true in the whole range. Raises VersionNotFoundError,
        TimestampOutOfRangeError, CallError. Cost: 1 LIST and as two snapshots.
        """
        if (from_version is None) == (from_timestamp is None) or not (to_version is None or to_timestamp is None):
            raise CallError("Give from_version or from_timestamp, and at most one of to_version and to_timestamp.")
        history = LogHistory(self._reader)
        if from_timestamp is not None:
            from_version = history.first_version_from(to_epoch_ms(from_timestamp))
        if to_timestamp is not None:
            to_version = history.version_at(to_epoch_ms(to_timestamp), after="latest").version
        last = history.latest if to_version is None else load(self._reader, history.listing, to_version)
        assert from_version is not None
        between = from_timestamp is not None and to_timestamp is not None and from_version == last.version + 1
        if from_version > last.version and not between:
            raise CallError(f"The range of changes is empty: it begins at {from_version} and ends at {last.version}.")
        first = load(self._reader, history.listing, from_version)
        return Changes(first, last, history.latest, history.commit_at)

    # ------------------------------------------------------------------------------------------- writing

    def transaction(self) -> Transaction:
        """A transaction on the latest version. Cost: as ``snapshot``."""
        return Transaction(self._reader, self._environment, self._refresh(), on_commit=self._advance)

    def append(
        self,
        data: Any,
        *,
        merge_schema: bool = False,
        user_metadata: str | Mapping[str, Any] | None = None,
        txn: tuple[str, int] | None = None,
    ) -> CommitResult:
        """Add rows: anything with ``__arrow_c_stream__`` (pyarrow, polars, pandas, duckdb).

        Columns fit by name; absent nullable ones become null; new ones need ``merge_schema=True``. ``txn`` is
        an application id and a version: when the table has recorded that version or a later one, nothing is
        written and the result's ``skipped`` is true. Raises SchemaMismatchError and as Transaction.commit.
        """
        with self.transaction() as transaction:
            return operations.append(transaction, data, merge_schema, user_metadata, txn)

    def overwrite(
        self,
        data: Any,
        *,
        overwrite_schema: bool = False,
        user_metadata: str | Mapping[str, Any] | None = None,
        txn: tuple[str, int] | None = None,
    ) -> CommitResult:
        """Replace all rows in one commit; with ``overwrite_schema=True`` the columns too.

        Properties, and in-commit timestamps with them, are kept. Conflicts with any change of rows meanwhile.
        """
        with self.transaction() as transaction:
            return operations.overwrite(transaction, data, overwrite_schema, user_metadata, txn)

    def set_properties(
        self, properties: Mapping[str, str], *, user_metadata: str | Mapping[str, Any] | None = None
    ) -> CommitResult:
        """Set table properties; values are text. Raises InvalidPropertyError, MetadataChangedError."""
        with self.transaction() as transaction:
            return operations.set_properties(transaction, properties, user_metadata)

    def unset_properties(
        self, keys: Iterable[str], *, user_metadata: str | Mapping[str, Any] | None = None
    ) -> CommitResult:
        """Remove table properties; absent ones are no error."""
        with self.transaction() as transaction:
            return operations.unset_properties(transaction, list(keys), user_metadata)

    def enable_in_commit_timestamps(self) -> CommitResult:
        """Turn in-commit timestamps on from the next commit on, with the enablement pair where older commits
        have none. No commit is made when they are on already (the result's ``skipped`` is true)."""
        return self._switch_in_commit_timestamps(True)

    def disable_in_commit_timestamps(self) -> CommitResult:
        """Turn in-commit timestamps off and remove the enablement pair in the same commit."""
        return self._switch_in_commit_timestamps(False)

    def _switch_in_commit_timestamps(self, on: bool) -> CommitResult:
        with self.transaction() as transaction:
            assert transaction.snapshot is not None
            if transaction.snapshot.in_commit_timestamps_enabled == on:
                return operations.skipped(transaction)
            properties = {ENABLE_IN_COMMIT_TIMESTAMPS.key: "true" if on else "false"}
            return operations.set_properties(transaction, properties, None)

    def checkpoint(self) -> None:
        """Write a checkpoint of the latest version now. Raises UnsupportedFeatureError, StoreError. Cost: the whole
        state is read and written once."""
        snapshot = self._refresh()
        features.check_writable(snapshot.protocol, snapshot.metadata, snapshot.schema, self.url)
        self._advance(snapshot.rebased_on(write_checkpoint(snapshot, self._environment.clock_ms())))

    # ------------------------------------------------------------------------------------------- the tip

    def _refresh(self) -> Snapshot:
        """The latest version. Cost: 2 HEADs when nothing is new: versions are contiguous, so the absence of the
        next one proves it, unless the table was removed or made anew, which the absence of ours shows."""
        latest = self._latest
        store = self._reader.store
        if store.head(commit_path(latest.version + 1)) is None:
            tip = store.head(commit_path(latest.version))
            if tip is not None and self._tip in (None, (latest.version, tip)):
                self._tip = (latest.version, tip)
                return latest
        fresh = load_latest(self._reader)
        self._latest, self._tip = fresh, None
        return fresh

    def _advance(self, snapshot: Snapshot) -> None:
        if snapshot.version >= self._latest.version:
            self._latest = snapshot
            self._tip = None
