"""A transaction: a base snapshot and the changes staged on it, which are committed once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.arguments import checked
from deltalog.arrow_arrays import strings
from deltalog.commit.base import Base
from deltalog.commit.committer import Committer
from deltalog.commit.hooks import NewVersion, errors_logged
from deltalog.commit.loop import CommitLoop, CommittedAttempt, base_of, rebased_on
from deltalog.commit.prepared import IsolationLevel, Prepared, check_isolation_level, isolation_for
from deltalog.commit.tip_proof import TipProof
from deltalog.commit.validate import check_prepared
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    ClockDriftWarning,
    CommitConflictError,
    DeltaLogError,
    InvalidActionError,
    MetadataChangedError,
    MissingVersionError,
    Outcome,
    ProtocolChangedError,
    TableNotFoundError,
    TableReplacedError,
    TransactionCommittedError,
)
from deltalog.expressions.tree import Predicate
from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.log.loader import UnreadSnapshot
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import LogSnapshot
from deltalog.parquet.file_writer import Checksum
from deltalog.protocol import column_mapping, features
from deltalog.protocol.actions import AddCDCFile, AddFile, Metadata, Protocol
from deltalog.protocol.codec import CommitActions, json_text
from deltalog.protocol.properties import ISOLATION_LEVEL
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import keep_cleanup_errors
from deltalog.write import commit_info
from deltalog.write.commit_info import UserMetadata
from deltalog.write.data_files import change_file
from deltalog.write.metadata_changes import MetadataChanges
from deltalog.write.row_writer import RowWriter
from deltalog.write.staged_actions import StagedActions
from deltalog.write.transaction_options import NO_OPTIONS, TransactionOptions

if TYPE_CHECKING:
    from deltalog.commit import conflicts
    from deltalog.protocol import schema_enforcement, widening
    from deltalog.read import data_skipping
    from deltalog.write import added_files, committed_files
else:
    lazy_modules(
        __name__,
        "deltalog.commit.conflicts",
        "deltalog.protocol.schema_enforcement",
        "deltalog.protocol.widening",
        "deltalog.read.data_skipping",
        "deltalog.write.added_files",
        "deltalog.write.committed_files",
    )


@checked
class Transaction:
    """Atomic changes to one table.

    Created by ``DeltaTable.transaction`` and ``DeltaTable.create_transaction``. Nothing is written to the log before
    ``commit``. If the ``with`` block ends without a commit, the files that this transaction wrote are deleted.

    Besides its methods, a transaction has three attributes that operations use directly: ``staged`` (file actions and
    the reads on which they depend), ``row_writer`` (writes rows into files) and ``metadata_changes``.

    Transaction has one method for each kind of action in a commit, and one for each kind of read on which a commit may
    depend.
    """

    def __init__(
        self,
        reader: LogReader,
        committer: Committer,
        environment: Environment,
        snapshot: Snapshot | None,
        *,
        metadata: Metadata | None = None,
        protocol: Protocol | None = None,
        isolation_level: IsolationLevel | None = None,
        on_commit: Callable[[Snapshot, Snapshot | None], None] = lambda snapshot, replaced: None,
        refresh: Callable[[], Snapshot] | None = None,
        is_strict: bool = False,
        latest: Snapshot | None = None,
        anchor: Snapshot | None = None,
        proven_ms: int | None = None,
        on_lost: Callable[[], None] = lambda: None,
        options: TransactionOptions | None = None,
    ) -> None:
        """``on_commit``: called with the committed version; called again when it has a checkpoint, with the snapshot to
        replace. ``refresh``: returns the latest version, if ``snapshot`` may be stale. ``latest``: the latest version,
        if ``snapshot`` is an earlier one. ``is_strict``: raise VersionConflictError if other writers win all attempts
        of ``environment``. ``anchor``: the version that must be in the log at the commit, if not the latest.
        ``proven_ms``: as in TipProof. ``on_lost``: called if the anchor is no longer in the log. ``options``: of the
        call."""
        check_isolation_level(isolation_level)
        options = options or NO_OPTIONS
        self._snapshot = snapshot
        self.latest = snapshot if latest is None else latest
        self.reader = reader
        self._committer = committer
        self.committed: Snapshot | None = None  # the committed version
        self._environment = environment
        self._isolation_level = isolation_level
        self._on_commit = on_commit
        self._refresh = refresh
        self._is_strict = is_strict
        self._annotations: Mapping[str, Any] | None = None
        self._txn_id = environment.new_uuid()
        self._staged = StagedActions()
        base = None if snapshot is None else snapshot.log
        self._metadata_changes = MetadataChanges(base, protocol, metadata, environment.new_uuid)
        self.proof = TipProof(reader, anchor or self.latest, environment, proven_ms)
        self._on_lost = on_lost
        self._is_callers = False
        self.reads_callers_rows = True  # whether writing the rows runs code of the caller, such as an iterator
        self._row_writer = RowWriter(reader, environment, self._metadata_changes, self._begin_proof, options.files)
        self._finished = False
        self._in_doubt: DeltaLogError | None = None  # the error of a commit whose outcome is unknown
        self._options = options
        for each in options.app_versions:
            self.set_transaction(each.app_id, each.version, each.last_updated_ms)

    # ------------------------------------------------------------------------------------------- context

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            failures = self.abort()
            if error is not None:
                keep_cleanup_errors(error, failures)

    def abort(self) -> list[Exception]:
        """End without a commit. Deletes the data files that ``write`` wrote, as far as possible, and returns the
        failures. After ``commit``, raises the error that a second call of ``commit`` would raise."""
        self._check_open(ends=True)
        self._finished = True
        return self._row_writer.discard()

    def for_caller(self) -> Transaction:
        """Mark this transaction as one in which the caller's code runs between begin and commit, and return it. Cost:
        on a remote store, 1 more HEAD at the commit."""
        self._is_callers = True
        return self

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that this transaction reads; None if it creates the table."""
        return self._snapshot

    @property
    def txn_id(self) -> str:
        """The unique txnId in the commitInfo of this transaction's commit."""
        return self._txn_id

    @property
    def metadata(self) -> Metadata:
        """The metadata after this transaction."""
        return self._metadata_changes.metadata

    @property
    def protocol(self) -> Protocol:
        """The protocol after this transaction."""
        return self._metadata_changes.protocol

    @property
    def schema(self) -> StructType:
        """The schema after this transaction."""
        return self.metadata.schema

    # ------------------------------------------------------------------------------------------- members

    @property
    def staged(self) -> StagedActions:
        """The staged actions and the reads on which they depend. Raises CallError if the transaction has ended."""
        self._check_open()
        return self._staged

    @property
    def row_writer(self) -> RowWriter:
        """Writes rows according to the table's metadata after this transaction; the caller stages the files. Raises
        CallError if the transaction has ended."""
        self._check_open()
        return self._row_writer

    @property
    def metadata_changes(self) -> MetadataChanges:
        """The changes to protocol, metadata and metadata domains. Raises CallError if the transaction has ended."""
        self._check_open()
        return self._metadata_changes

    # ---------------------------------------------------------------------------------------------- rows

    def add(self, *files: AddFile, known: bool = False) -> None:
        """Stage add actions for existing files below the table. Raises InvalidActionError.

        If the table has rules, such as constraints or generated columns, ``commit`` reads and checks the rows.
        ``known``: whether the rows come from this version or an earlier one and therefore need not be checked again.
        The caller must ensure that no version has named these files before; only ``add_parquet_files`` checks this.
        """
        self.staged.add(files, is_checked=known)

    def add_parquet_files(
        self,
        files: Iterable[tuple[str, Mapping[str, str | None]]],
        *,
        checked: bool = False,
        owned: bool = False,
        tags: Mapping[str, Mapping[str, str]] | None = None,
        num_rows: int | None = None,
        examine: added_files.Examine | None = None,
        as_changes: bool = False,
    ) -> list[AddFile]:
        """Stage existing Parquet files below the table, and return their add actions. ``files``: pairs of a relative
        path, not percent-encoded, and the partition values in the log's serialization. Statistics are taken from the
        footers, and the files are made durable.

        If the table has rules, such as constraints or generated columns, ``commit`` reads and checks the rows, unless
        ``checked`` says that the writer of the files has already checked them. ``owned``: the files were written for
        this transaction only, and are deleted if it fails. If files are not ``owned`` and one of them is already live,
        ``commit`` raises FilesCommittedError. ``tags``: the tags of the files, keyed by path.

        ``num_rows``: the total number of rows that the writer of the files wrote; RowCountError is raised if the files
        contain a different number. ``examine`` is called, in several threads, with the path and the footer
        (pyarrow.parquet.FileMetaData) of each file, and may raise an error to refuse the file. ``as_changes``: whether
        the files are change data files instead of data files; the column ``_change_type`` then contains the change type
        of each row. If files serve as both data files and change data files, pass the returned actions to
        ``add_cdc``.

        Raises InvalidDataFileError, also for a file without field ids if columns are mapped by id. Cost: 1 HEAD and 1
        or 2 ranged GETs for each file, in threads; unless ``owned``, also as ``Snapshot.files``.
        """
        listed = list(files)
        described = self.row_writer.describe(listed, tags, num_rows, examine)
        if as_changes:
            self.add_cdc(*described)
            self._row_writer.own(add.path for add in described if owned)
            return described
        adds = self._staged.add(described, is_checked=checked)
        if owned:
            self._row_writer.own(add.path for add in adds)
        else:
            self._staged.note_callers_paths({add.path: path for add, (path, _) in zip(adds, listed, strict=True)})
        return adds

    def add_cdc(self, *files: AddCDCFile | AddFile) -> None:
        """Stage change data files, which readers of the change data feed read instead of the adds and removes. To use
        data files as change data files, pass their add actions; their rows must have the change type in
        ``_change_type``."""
        self.staged.add_change_files(change_file(each) if isinstance(each, AddFile) else each for each in files)

    def write(self, reader: Any, *, checksum: Checksum | None = None) -> int:
        """Write a stream of Arrow batches into new files and stage them. Returns the number of rows.

        ``checksum="sha256"`` hashes each file while it is written, and records the hash in the file's tag
        ``deltalog.sha256``. Absent columns are generated or get their default value if the table defines one; otherwise
        they are null. Raises SchemaMismatchError, ConstraintViolationError, and UnsupportedFeatureError for an
        unsupported constraint. Cost: 1 PUT for each file.
        """
        adds, rows = self.row_writer.write(reader, checksum)
        self._staged.add_written(adds)
        return rows

    def remove(self, paths: Iterable[str]) -> int:
        """Stage the removal of the live files with the given paths (as in the log). Returns their number.

        Declares the files as read. Raises InvalidActionError if a path is not a live file.
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
        return self.remove_files(chosen)

    def remove_all_files(self) -> int:
        """Stage the removal of every live file. Declares the whole table as read: any file that another writer adds or
        removes concurrently is a conflict. Returns the number of files."""
        return self.remove_files(self.find_files())

    def find_files(self, where: Predicate | str | None = None) -> pa.Table:
        """The live files that may contain a row for which ``where`` is true (None: all live files), as rows of
        ``Snapshot.files``.

        Declares the read, which conflicts if another writer concurrently adds rows for which ``where`` is true, or
        removes one of these files. Raises CallError, SchemaMismatchError. Cost: as ``Scan.files``.
        """
        snapshot = self._existing("find files")
        scan = snapshot.scan(where=where)
        files = scan.files()
        if scan.where is None:
            self._staged.read_whole_table()
        else:
            self._staged.read_rows(scan.where, files["path"].to_pylist())
        return files

    def remove_files(self, files: pa.Table, data_change: bool = True) -> int:
        """Stage the removal of live files, which are passed as rows of ``Snapshot.files``. Returns their number.

        ``data_change=False`` means that files added by this transaction contain the rows of these files. Declares the
        files as read.
        """
        self._existing("remove files")
        return self._staged.remove(files, self._environment.clock_ms(), data_change)

    def replace_partitions(self) -> int:
        """Stage the removal of all live files in the partitions of the staged adds (dynamic partition overwrite).
        Returns their number. Declares a read of only these partitions. Cost: as ``find_files``."""
        self._existing("replace partitions")
        mapping = column_mapping.mode_of(self.metadata.configuration)
        columns = [self.schema.field(name) for name in self.metadata.partition_columns]
        if not columns:
            raise CallError(f"{self.reader.store.url} has no partitions to replace.")
        keys = [column_mapping.physical_name(column, mapping) for column in columns]
        values = dict.fromkeys(tuple(add.partition_values[key] for key in keys) for add in self._staged.adds)
        return self.remove_files(self.find_files(data_skipping.in_partitions(list(values), columns)))

    def read_whole_table(self) -> None:
        """Declare that the staged actions depend on every row of the snapshot."""
        self._existing("declare a read")
        self._staged.read_whole_table()

    def declare_read(self, where: Predicate | str | None) -> None:
        """Declare that the staged actions depend on the rows for which ``where`` is true (None: all rows)."""
        if where is None:
            self.read_whole_table()
        else:
            self.find_files(where)

    # ------------------------------------------------------------------------------------------ metadata

    def set_schema(self, schema: StructType, partition_by: Sequence[str] | None = None) -> None:
        """Stage a new schema, and, if they are passed, new partition columns. Columns are checked, but rows are not.
        With column mapping, a column is matched with an existing column at the same level if their ids and physical
        names are the same, otherwise if their names and types are. A column that matches no existing column is new, and
        is assigned an id. Raises SchemaMismatchError.
        """
        self.metadata_changes.set_schema(schema, partition_by)

    def merge_schema(self, data: StructType, *, keeps_types: bool = False) -> None:
        """Stage the columns and struct fields that ``data`` contains and the table does not. The staged columns and
        fields are appended at the end and are nullable.

        A column of type void gets the type that the data has in this column. With ``delta.enableTypeWidening``, a
        column is widened to the type of the data, except from an integer to a floating-point or decimal type. Raises
        SchemaMismatchError for other types that do not fit, unless ``keeps_types``, for values that are cast to the
        table's types.
        """
        widens = widening.automatic(self.metadata.configuration)
        merged = schema_enforcement.merge_schemas(self.schema, data, widens, keeps_types)
        if merged != self.schema:
            self.set_schema(widening.recorded(self.schema, merged))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Stage table properties, including delta.enableInCommitTimestamps.

        Raises InvalidPropertyError for values that cannot be parsed, and for the enablement pair, which only the commit
        sets. Table features that a property requires are added to the protocol.
        """
        self.metadata_changes.set_properties(properties)

    def unset_properties(self, keys: Iterable[str]) -> None:
        """Stage the removal of table properties; absent properties are ignored."""
        self.metadata_changes.unset_properties(keys)

    def set_metadata(self, *, name: str | None = None, description: str | None = None) -> None:
        """Stage the name or the description of the table; None leaves it unchanged."""
        self.metadata_changes.set_description(name, description)

    def set_domain_metadata(self, domain: str, configuration: str) -> None:
        """Stage the configuration of a custom metadata domain: a JSON document, or any text.

        Raises CallError for names that begin with ``delta.``, which are reserved. Adds the feature domainMetadata.
        """
        self.metadata_changes.set_domain(domain, configuration)

    def remove_domain_metadata(self, domain: str) -> None:
        """Stage the removal of a custom metadata domain; an absent domain is ignored."""
        self._existing("remove a metadata domain")
        self._metadata_changes.remove_domain(domain)

    def set_transaction(self, app_id: str, version: int, last_updated_ms: int | None = None) -> None:
        """Stage an application version (a txn action), so that a repeated run of the application is recognised.
        ``last_updated_ms``: in ms since 1970; None: now. Raises CallError."""
        updated_ms = self._environment.clock_ms() if last_updated_ms is None else last_updated_ms
        self.staged.set_transaction(app_id, version, updated_ms)

    def set_commit_annotations(self, annotations: Mapping[str, Any]) -> None:
        """Add entries to the ``deltalog`` object in commitInfo, which already contains the parent version. Values must
        be JSON values. Raises CallError."""
        self._check_open()
        self._annotations = json.loads(json_text(annotations))

    # -------------------------------------------------------------------------------------------- commit

    def commit(
        self,
        operation: str = "WRITE",
        parameters: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        user_metadata: UserMetadata = None,
    ) -> CommitResult:
        """Commit the staged changes as the next version.

        Raises before anything is written: InvalidActionError, SchemaMismatchError, UnsupportedFeatureError. Raises with
        nothing committed: CommitConflictError, TableExistsError, CommitAttemptsExhaustedError, StoreError;
        TableNotFoundError and TableReplacedError if the table that was read no longer exists. Raises with the outcome
        unknown: CommitStateUnknownError; no file is deleted then. A second call raises CommitStateUnknownError again if
        the outcome is unknown, TransactionCommittedError after a commit, or CallError after a failure. Cost: 1 PUT and
        the ``.crc``; see CommitLoop.run for conflicts and after_commit for checkpoints.
        """
        self._check_open(ends=True)
        prepared = self._prepare(operation, parameters or {}, metrics or {}, user_metadata)
        self._check(prepared)
        self._check_catalog()
        self._check_new_paths()
        self._row_writer.check(self._staged.unchecked, self._staged.adds)
        if self._metadata_changes.changed_metadata != prepared.metadata:  # high-water marks moved
            prepared = self._prepare(operation, parameters or {}, metrics or {}, user_metadata)
        self._finished = True
        if self._is_callers:
            self.proof.forget()
        try:
            base, passed = self._after_others(prepared)
            committed = self._run(prepared, base)
        except (DeltaLogError, ClockDriftWarning) as error:
            if isinstance(error, (TableNotFoundError, TableReplacedError)):
                self._on_lost()
            if error.outcome is not Outcome.UNKNOWN:  # otherwise a commit may refer to the files
                keep_cleanup_errors(error, self._row_writer.discard())
            elif isinstance(error, DeltaLogError):
                self._in_doubt = error
            raise
        self._follow(replace(committed, winners=[*passed, *committed.winners]))
        return committed.result

    def check_conflicts(self) -> None:
        """If this transaction began on a version before the latest, raise the CommitConflictError that ``commit`` would
        raise for the reads and actions so far. Cost: 1 GET for each version in between."""
        self._check_open()
        self._after_others(self._prepare("READ", {}, {}, None))

    def _after_others(self, prepared: Prepared) -> tuple[Base, list[CommitActions]]:
        """The base of the first attempt, and the commits between the version that was read and that base."""
        base, passed = self._base(), list[CommitActions]()
        if self.latest is None or self.latest.version <= base.version:
            return base, passed
        for winner in self._between(base.version, self.latest.version):
            base = rebased_on(prepared, base, winner, self.reader.store)
            passed.append(winner)
        return base, passed

    def _between(self, read: int, latest: int) -> list[CommitActions]:
        try:
            return list(self.reader.commits(range(read + 1, latest + 1)))
        except MissingVersionError as error:
            raise conflicts.commits_missing_since(read, latest, self.reader.store.url) from error

    def _follow(self, committed: CommittedAttempt) -> None:
        """Build the snapshot of the commit, update the handle and start the hooks. Never raises. If the snapshot cannot
        be built, it is read from the log on first use."""
        fact = f"{self.reader.store.url}: version {committed.result.version} is committed"
        snapshot = Snapshot(UnreadSnapshot(self.reader, committed.result.version, self._txn_id))

        def on_checkpoint(latest: LogSnapshot) -> None:
            self.committed = Snapshot(latest)
            self._on_commit(self.committed, snapshot)

        try:
            with errors_logged(fact, "building its snapshot"):
                snapshot = self._following(committed)
        finally:
            self.committed = snapshot
            with errors_logged(fact, "updating the table handle"):
                self._on_commit(snapshot, None)
        with errors_logged(fact, "the hooks after the commit"):
            is_followed = partial(self.proof.is_followed, committed.result.version)
            base = self._metadata_changes.base
            version = NewVersion(
                snapshot.log, committed.result, base, committed.commits, is_followed, self._options.hooks
            )
            self._committer.after_commit(version, self._environment, on_checkpoint)

    def _begin_proof(self) -> None:
        """Called after the last row. Starts a new proof if the caller's code has run since the last proof, or if there
        is no proof yet."""
        if self.reads_callers_rows or not self.proof.is_valid:
            self.proof.begin()

    def _run(self, prepared: Prepared, base: Base) -> CommittedAttempt:
        try:
            return self._loop(prepared, base).run()
        except CommitConflictError as error:
            # A blind append may begin on a stale version; if it fails, repeat it once on the latest version.
            if type(error) not in (MetadataChangedError, ProtocolChangedError, CommitConflictError):
                raise
            if self._refresh is None or not prepared.is_blind_append:
                raise
            assert self.snapshot is not None
            latest = self._refresh()
            if not conflicts.files_still_fit(self.snapshot.metadata, latest.metadata):
                raise
            if latest.clustering_columns != self.snapshot.clustering_columns:  # files lack their statistics
                raise
            self._snapshot = latest
            self._metadata_changes.start_from(latest.log)
            self.proof = TipProof(self.reader, latest, self._environment)
        self._check(prepared)
        return self._loop(prepared, self._base()).run()

    def _loop(self, prepared: Prepared, base: Base) -> CommitLoop:
        return CommitLoop(self._committer, self.reader, prepared, base, self._environment, self.proof)

    def _prepare(
        self,
        operation: str,
        parameters: Mapping[str, Any],
        metrics: Mapping[str, Any],
        user_metadata: UserMetadata,
    ) -> Prepared:
        staged, changes = self._staged, self._metadata_changes
        prepared = Prepared(
            txn_id=self._txn_id,
            operation=commit_info.operation_text(operation),
            parameters=commit_info.parameter_texts(parameters),
            metrics=commit_info.metric_texts(metrics),
            user_metadata=commit_info.metadata_text(user_metadata),
            protocol=changes.changed_protocol,
            metadata=changes.changed_metadata,
            adds=tuple(staged.adds),
            add_lines=staged.add_lines,
            removes=tuple(staged.removes),
            transactions=tuple(staged.transactions),
            domains=changes.domains,
            cdc=tuple(staged.cdc),
            written=(*self._row_writer.written_paths, *staged.files_of_caller),
            annotations=self._annotations,
            commit_info=self._options.commit_info,
            is_strict=self._is_strict,
            read_version=None if changes.base is None else changes.base.version,
            reads=staged.reads(changes.depends_on_metadata, changes.depends_on_files),
        )
        wanted = "Serializable" if staged.is_serializable else self._isolation_level
        of_table = ISOLATION_LEVEL.read(changes.metadata.configuration)
        return replace(prepared, isolation_level=isolation_for(prepared, wanted or of_table))

    def _base(self) -> Base:
        changes, base = self._metadata_changes, self._metadata_changes.base
        if base is None:
            return Base(-1, None, None, None)
        enables = not base.in_commit_timestamps_enabled and features.is_ict_active(changes.protocol, changes.metadata)
        return base_of(base, self.reader.file_time_ms(base.version) if enables else None)

    def _following(self, committed: CommittedAttempt) -> Snapshot:
        """The snapshot of the committed version, built from the base snapshot, the winning commits after it, and this
        commit. Cost: none."""
        latest = self._metadata_changes.base
        for commit in committed.commits:
            if latest is None:
                latest = LogSnapshot.created(self.reader, commit.actions, commit.in_commit_timestamp_ms)
            else:
                latest = latest.after(*commit)
        assert latest is not None
        latest.tip.note_written(committed.attempt.data, committed.meta)
        return Snapshot(latest)

    # -------------------------------------------------------------------------------------------- helpers

    def _check(self, prepared: Prepared) -> None:
        places = self.reader.files.allowed_paths
        check_prepared(prepared, self.protocol, self.metadata, self.reader.store.url, places)

    def _check_catalog(self) -> None:
        changes, base, url = self._metadata_changes, self._metadata_changes.base, self.reader.store.url
        features.check_reached(changes.protocol, url, self.reader.authority.catalog)
        if base is not None and features.is_catalog_managed(base.protocol) and not changes.moves_to_catalog:
            features.check_stays_managed(base.metadata, changes.protocol, changes.metadata, url)

    def _check_new_paths(self) -> None:
        """Raise FilesCommittedError if a file that the caller passed is already live, unless the same commit removes
        it."""
        paths = self._staged.new_paths
        if paths and self.snapshot is not None:
            committed_files.check_not_live(self.snapshot, paths)

    def _existing(self, what: str) -> Snapshot:
        self._check_open()
        if self.snapshot is None:
            raise CallError(f"Cannot {what}: this transaction creates the table.")
        return self.snapshot

    def _check_open(self, ends: bool = False) -> None:
        """Raise CallError if the transaction has ended. ``ends``: whether the call would end the transaction; if so,
        the error says whether the commit has succeeded or may have succeeded."""
        if ends and self._in_doubt is not None:
            raise self._in_doubt
        if ends and self.committed is not None:
            what = f"{self.reader.store.url}: this transaction is committed, as version {self.committed.version}."
            raise TransactionCommittedError(f"{what} Begin another one.", transaction_id=self._txn_id)
        if self._finished:
            raise CallError("This transaction has ended. Begin another one with table.transaction().")


def skipped(transaction: Transaction) -> CommitResult:
    """The result of a call that had nothing to commit: the version that was read."""
    snapshot = transaction.snapshot
    assert snapshot is not None
    return CommitResult(snapshot.version, snapshot.timestamp_ms, snapshot.in_commit_timestamp_ms, 0, transaction.txn_id)
