"""A transaction: a base snapshot and the changes staged on it, committed once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import msgspec
import pyarrow.compute as pc

from deltalog.errors import CallError, CommitStateUnknownError, DeltaLogError, InvalidActionError
from deltalog.log.checksum import Totals
from deltalog.log.columns import strings
from deltalog.log.reader import LogReader
from deltalog.log.replay import Commits, PartialState, advance, file_key, remove_actions
from deltalog.log.segment import Segment
from deltalog.log.snapshot import Snapshot
from deltalog.spec import features, timestamps
from deltalog.spec.actions import AddFile, Metadata, Protocol, RemoveFile, SetTransaction
from deltalog.spec.partitions import check_partition_columns
from deltalog.spec.properties import DATA_SKIPPING_NUM_INDEXED_COLS, check_assignment
from deltalog.spec.schema import StructType, check_column_names
from deltalog.write.commit import CommitResult, Committed, Committer, Environment
from deltalog.write.conflicts import Base, Prepared, Reads, replace_configuration
from deltalog.write.datafiles import Layout, describe_files, discard, write_rows
from deltalog.write.hooks import after_commit
from deltalog.write.validate import check_encodable, check_prepared


class Transaction:
    """Changes to one table that take effect together, or not at all.

    Made by ``DeltaTable.transaction`` and ``DeltaTable.create_transaction``. Nothing is in the log before
    ``commit``; leaving the ``with`` block without it removes the files that this transaction wrote.
    """

    def __init__(
        self,
        reader: LogReader,
        environment: Environment,
        snapshot: Snapshot | None,
        *,
        metadata: Metadata | None = None,
        protocol: Protocol | None = None,
        on_commit: Callable[[Snapshot], None] = lambda snapshot: None,
    ) -> None:
        self.snapshot = snapshot
        self.reader = reader
        self.committed: Snapshot | None = None  # the version that this transaction became
        self._environment = environment
        self._on_commit = on_commit
        self._txn_id = environment.new_uuid()
        self._metadata = metadata
        self._protocol = protocol
        self._adds: list[AddFile] = []
        self._removes: list[RemoveFile] = []
        self._transactions: list[SetTransaction] = []
        self._whole_table = False
        self._read_files: set[str] = set()
        self._own_files: list[str] = []
        self._finished = False

    # ------------------------------------------------------------------------------------------- context

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            self.abort()

    def abort(self) -> None:
        """Give up: the data files that ``write`` made are removed, best effort. Not possible after ``commit``."""
        self._check_open()
        self._finished = True
        discard(self.reader.store, self._own_files)

    @property
    def txn_id(self) -> str:
        """The id that commitInfo will carry, in at most one version."""
        return self._txn_id

    @property
    def metadata(self) -> Metadata:
        """The metadata as this transaction will leave it."""
        if self._metadata is not None:
            return self._metadata
        assert self.snapshot is not None
        return self.snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        """The protocol as this transaction will leave it."""
        if self._protocol is not None:
            return self._protocol
        assert self.snapshot is not None
        return self.snapshot.protocol

    @property
    def schema(self) -> StructType:
        """The schema as this transaction will leave it."""
        return self.metadata.schema

    def staged_metrics(self) -> dict[str, str]:
        """The operation metrics that follow from what is staged: numbers and bytes of files."""
        metrics = {"numFiles": str(len(self._adds)), "numOutputBytes": str(sum(a.size for a in self._adds))}
        if self._removes:
            metrics["numRemovedFiles"] = str(len(self._removes))
            metrics["numRemovedBytes"] = str(sum(r.size or 0 for r in self._removes))
        return metrics

    # ------------------------------------------------------------------------------------------- staging

    def add(self, *files: AddFile) -> None:
        """Stage add actions for files that lie below the table already. Raises InvalidActionError."""
        self._check_open()
        for file in files:
            check_encodable(file)
        self._adds.extend(files)

    def add_parquet_files(self, files: Iterable[tuple[str, Mapping[str, str | None]]]) -> list[AddFile]:
        """Stage Parquet files that lie below the table: (relative path, not percent-encoded; partition values
        as the log has them). Statistics come from the footers; the files are made durable.

        Raises InvalidDataFileError. Cost: a HEAD and 1 or 2 ranged GETs for each file, in threads.
        """
        self._check_open()
        adds, _ = describe_files(self.reader.store, files, self._layout())
        self._adds.extend(adds)
        return adds

    def write(self, reader: Any) -> int:
        """Write a stream of Arrow batches into new files and stage them. The number of rows.

        Raises SchemaMismatchError. Cost: 1 PUT for each file.
        """
        self._check_open()
        environment = self._environment
        adds, rows = write_rows(self.reader.store, reader, self._layout(), environment.new_uuid, environment.clock_ms())
        self._own_files.extend(add.path for add in adds)
        self._adds.extend(adds)
        return rows

    def remove(self, paths: Iterable[str]) -> int:
        """Stage the removal of live files, by path as in the log. The number of files.

        Raises InvalidActionError when a path is not live. Counts as having read these files.
        """
        snapshot = self._existing("remove files")
        wanted = set(paths)
        files = snapshot.files()
        chosen = files.filter(pc.is_in(files["path"], value_set=strings(sorted(wanted))))
        missing = wanted.difference(chosen["path"].to_pylist())
        if missing:
            raise InvalidActionError(
                f"{snapshot.url}: version {snapshot.version} has no live file {sorted(missing)[0]!r}."
            )
        return self._remove_rows(chosen)

    def remove_all_files(self) -> int:
        """Stage the removal of every live file. Counts as having read the whole table: any file that another
        writer adds or removes meanwhile is a conflict. The number of files."""
        snapshot = self._existing("remove files")
        self._whole_table = True
        return self._remove_rows(snapshot.files())

    def _remove_rows(self, files: Any) -> int:
        removes = remove_actions(files, self._environment.clock_ms())
        self._removes.extend(removes)
        self._read_files.update(file_key(r.path, r.deletion_vector) for r in removes)
        return len(removes)

    def read_whole_table(self) -> None:
        """Declare that what is staged depends on every row of the snapshot."""
        self._existing("declare a read")
        self._whole_table = True

    def set_schema(self, schema: StructType, partition_by: Sequence[str] | None = None) -> None:
        """Stage another schema, and partition columns where given. Columns are checked, rows are not."""
        self._check_open()
        check_column_names(schema)
        columns = self.metadata.partition_columns if partition_by is None else tuple(partition_by)
        self._replace_metadata(
            schema_string=schema.to_json(), partition_columns=check_partition_columns(schema, columns)
        )

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Stage table properties; in-commit timestamps are enabled and disabled this way too.

        Raises InvalidPropertyError for values that cannot be read and for the enablement pair, which the
        writer keeps. Features that a property needs are added to the protocol.
        """
        self._check_open()
        check_assignment(dict(properties))
        named, kept = features.split_feature_properties(properties)
        self._replace_configuration({**self.metadata.configuration, **kept})
        self._protocol = features.with_features(self.protocol, named)

    def unset_properties(self, keys: Iterable[str]) -> None:
        """Stage the removal of table properties; absent ones are no error."""
        self._check_open()
        gone = set(keys)
        check_assignment(dict.fromkeys(gone))
        self._replace_configuration({k: v for k, v in self.metadata.configuration.items() if k not in gone})

    def set_transaction(self, app_id: str, version: int) -> None:
        """Stage the progress of an application, so that a repeated run can be told from a new one."""
        self._check_open()
        if not (isinstance(app_id, str) and app_id and isinstance(version, int) and 0 <= version < 2**63):
            raise CallError(f"An application id is text, its version a number from 0 on; got {app_id!r}, {version!r}.")
        self._transactions.append(
            SetTransaction(app_id=app_id, version=version, last_updated=self._environment.clock_ms())
        )

    # -------------------------------------------------------------------------------------------- commit

    def commit(
        self,
        operation: str = "WRITE",
        parameters: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        user_metadata: str | Mapping[str, Any] | None = None,
    ) -> CommitResult:
        """Make the staged changes the next version.

        Raises before anything is written: InvalidActionError, SchemaMismatchError, UnsupportedFeatureError.
        Raises with nothing committed: CommitConflictError, TableExistsError, CommitAttemptsExhaustedError,
        StoreError. Raises with the outcome open: CommitStateUnknownError, and then no file is removed.
        Cost: 1 PUT and the ``.crc``; see Committer.run for conflicts and after_commit for checkpoints.
        """
        self._check_open()
        prepared = self._prepare(operation, parameters or {}, metrics or {}, user_metadata)
        check_prepared(prepared, self.protocol, self.metadata, self.reader.store.url)
        base = self._base()
        self._finished = True
        try:
            committed = Committer(self.reader, prepared, base, self._environment).run()
        except CommitStateUnknownError:
            raise
        except (DeltaLogError, Warning):  # a warning turned into an error comes before anything is sent
            discard(self.reader.store, self._own_files)
            raise
        self.committed = after_commit(self._following(committed), committed.result, self._environment)
        self._on_commit(self.committed)
        return committed.result

    def _prepare(
        self,
        operation: str,
        parameters: Mapping[str, Any],
        metrics: Mapping[str, Any],
        user_metadata: str | Mapping[str, Any] | None,
    ) -> Prepared:
        snapshot = self.snapshot
        changed_metadata = self._metadata if snapshot is None or self._metadata != snapshot.metadata else None
        changed_protocol = self._protocol if snapshot is None or self._protocol != snapshot.protocol else None
        app_ids = frozenset(t.app_id for t in self._transactions)
        return Prepared(
            txn_id=self._txn_id,
            operation=operation,
            parameters=dict(parameters),
            metrics=dict(metrics),
            user_metadata=_as_text(user_metadata),
            protocol=changed_protocol,
            metadata=changed_metadata,
            adds=tuple(self._adds),
            removes=tuple(self._removes),
            transactions=tuple(self._transactions),
            # Metadata staged as it already is writes nothing, and still asserts that it is so.
            reads=Reads(self._whole_table, frozenset(self._read_files), app_ids, self._metadata is not None),
        )

    def _base(self) -> Base:
        snapshot = self.snapshot
        if snapshot is None:
            return Base(-1, None, None, None)
        previous_ms = snapshot.in_commit_timestamp_ms
        if previous_ms is None and features.is_ict_active(self.protocol, self.metadata):
            previous_ms = self._last_file_time_ms(snapshot)
        return Base(snapshot.version, snapshot.protocol, snapshot.metadata, previous_ms)

    def _last_file_time_ms(self, snapshot: Snapshot) -> int | None:
        """The monotonised file time of the snapshot's commit, which an enabling commit must exceed.

        Cost: 1 LIST of the log.
        """
        metas = self.reader.list_from(stat=True).metas
        times = [metas[v].modification_time_ms or 0 for v in sorted(metas) if v <= snapshot.version]
        adjusted = timestamps.monotonised(times)
        return adjusted[-1] if adjusted else None

    def _following(self, committed: Committed) -> Snapshot:
        """The snapshot of the commit, from ours and the winners in between. Cost: none."""
        actions, ict_ms = committed.attempt.actions, committed.attempt.in_commit_timestamp_ms
        snapshot = self.snapshot
        if snapshot is None:
            state = advance(PartialState(), [actions]).complete(self.reader.store.url, 0)
            totals = Totals(len(actions.adds), sum(a.size for a in actions.adds))
            segment = Segment(0, None, (0,), False)
            return Snapshot(
                self.reader, segment, state, totals=totals, commits=Commits([actions]), in_commit_timestamp_ms=ict_ms
            )
        for winner in committed.winners:
            info = winner.commit_info
            snapshot = snapshot.after(winner, None if info is None else info.in_commit_timestamp_ms)
        return snapshot.after(actions, ict_ms)

    # -------------------------------------------------------------------------------------------- helpers

    def _layout(self) -> Layout:
        indexed = DATA_SKIPPING_NUM_INDEXED_COLS.read(self.metadata.configuration)
        return Layout(self.schema, self.metadata.partition_columns, indexed)

    def _replace_metadata(self, **changes: Any) -> None:
        self._metadata = msgspec.structs.replace(self.metadata, **changes)
        wanted = features.features_for(self._metadata, self.schema)
        self._protocol = features.with_features(self.protocol, wanted)

    def _replace_configuration(self, configuration: Mapping[str, str]) -> None:
        self._replace_metadata(configuration=replace_configuration(self.metadata, configuration).configuration)

    def _existing(self, what: str) -> Snapshot:
        self._check_open()
        if self.snapshot is None:
            raise CallError(f"Cannot {what}: this transaction creates the table.")
        return self.snapshot

    def _check_open(self) -> None:
        if self._finished:
            raise CallError("This transaction has ended. Start another one with table.transaction().")


def _as_text(user_metadata: str | Mapping[str, Any] | None) -> str | None:
    if user_metadata is None or isinstance(user_metadata, str):
        return user_metadata
    try:
        return json.dumps(user_metadata, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise CallError(
            f"user_metadata cannot be written as JSON: {error}. Pass text, or a mapping of JSON values."
        ) from None
