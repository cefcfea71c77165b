"""A transaction: a base snapshot and the changes staged on it, committed once."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from deltalog.arguments import checked
from deltalog.arrow_arrays import strings
from deltalog.commit.conflicts import (
    Base,
    IsolationLevel,
    Prepared,
    Reads,
    check_isolation_level,
    files_still_fit,
    isolation_for,
    replace_configuration,
)
from deltalog.commit.hooks import after_commit, standing
from deltalog.commit.loop import ClockDriftWarning, CommitLoop, Committed, rebased_on
from deltalog.commit.validate import adds_as_read_back, as_read_back, check_prepared
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    CommitConflictError,
    CommitStateUnknownError,
    DeltaLogError,
    InvalidActionError,
    InvalidPropertyError,
    MetadataChangedError,
    MissingVersionError,
    OperationTimeoutError,
    ProtocolChangedError,
    SchemaMismatchError,
    keep_cleanup_errors,
)
from deltalog.expressions.predicate_sql import as_predicate, shown
from deltalog.expressions.predicates import Predicate, bind, columns_of
from deltalog.log.file_statistics import live_rows
from deltalog.log.reader import LogReader
from deltalog.log.replay import FILES, Commits, PartialState, advance, files_table, remove_actions
from deltalog.log.segment import Segment
from deltalog.log.snapshot import Snapshot, UnreadSnapshot
from deltalog.log.table_totals import NO_FILES, totals_after
from deltalog.operations.data_files import (
    Checksum,
    Examine,
    Layout,
    change_file,
    check_files,
    describe_files,
    discard,
    with_kind,
    write_rows,
)
from deltalog.operations.known_files import check_not_live
from deltalog.operations.rules import Rules, rules_of
from deltalog.operations.vectors import write_vectors
from deltalog.protocol import column_mapping, features, metadata_update, row_tracking, timestamps
from deltalog.protocol.actions import (
    AddCDCFile,
    AddFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    plain,
)
from deltalog.protocol.codec import CommitActions, canonical_json, json_text
from deltalog.protocol.partitions import check_partition_columns
from deltalog.protocol.properties import CONSTRAINT_PREFIX, ENABLE_ROW_TRACKING, ISOLATION_LEVEL, check_assignment
from deltalog.protocol.schema import PrimitiveType, StructField, StructType
from deltalog.protocol.schema_enforcement import check_column_names
from deltalog.read.changes import CHANGE_TYPE_FIELD
from deltalog.read.data_skipping import in_partitions, split


@dataclass(frozen=True, slots=True)
class Engine:
    """How prepared transactions become commits: ``run`` commits one, ``follow_up`` does what is due after it, and
    gives the snapshot to go on from."""

    run: Callable[[LogReader, Prepared, Base, Environment], Committed]
    follow_up: Callable[[Snapshot, CommitResult, Environment], Snapshot]


def _commit_to_log(reader: LogReader, prepared: Prepared, base: Base, environment: Environment) -> Committed:
    return CommitLoop(reader, prepared, base, environment).run()


LOG = Engine(_commit_to_log, after_commit)


# So many adds that encoding them again takes time.
_MANY = 1000


@checked
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
        isolation_level: IsolationLevel | None = None,
        on_commit: Callable[[Snapshot], None] = lambda snapshot: None,
        refresh: Callable[[], Snapshot] | None = None,
        engine: Engine = LOG,
        is_strict: bool = False,
        latest: Snapshot | None = None,
    ) -> None:
        """``refresh``: the latest version, where ``snapshot`` may be an older one that nobody looked behind.
        ``latest``: the latest version, where ``snapshot`` is the earlier one that was read.
        ``is_strict``: VersionConflictError when the attempts of ``environment`` are lost to other writers."""
        check_isolation_level(isolation_level)
        self.snapshot = snapshot
        self.latest = snapshot if latest is None else latest
        self.reader = reader
        self.committed: Snapshot | None = None  # the version that this transaction became
        self._environment = environment
        self._isolation_level = isolation_level
        self._on_commit = on_commit
        self._refresh = refresh
        self._engine = engine
        self._is_strict = is_strict
        self._annotations: Mapping[str, Any] | None = None
        self._txn_id = environment.new_uuid()
        self._metadata = metadata
        self._protocol = protocol
        self._adds: list[AddFile] = []
        self._encoded: tuple[Sequence[AddFile], bytes] | None = None  # many adds, and their lines
        self._removes: list[RemoveFile] = []
        self._removed_files: list[pa.Table] = []
        self._cdc: list[AddCDCFile] = []
        self._transactions: list[SetTransaction] = []
        self._domains: list[DomainMetadata] = []
        self._whole_table = False
        self._all_domains = False
        self._predicates: list[Predicate] = []
        self._read_files: set[str] = set()
        self._own_files: list[str] = []
        self._written_before: list[str] = []  # of whoever commits this, and deletes them when that fails
        self._given: dict[str, str] = {}  # files of the caller's, as the log names them: their paths in the store
        self._unseen: list[AddFile] = []  # whose rows nobody has checked
        self._seen_under: Rules | None = None  # the rules that written rows were checked by
        self._seen_as: tuple[Metadata, Protocol] | None = None  # what these rules are those of
        self._finished = False

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
        """Give up: the data files that ``write`` made are removed, best effort; what kept some from being removed is
        returned. Not possible after ``commit``."""
        self._check_open()
        self._finished = True
        return discard(self.reader.store, self._own_files)

    def hand_over(self) -> tuple[AddFile, ...]:
        """End without a commit, and keep the files that were written: another transaction, in this process or any,
        may ``add`` them. Whoever has them now deletes them if none does."""
        self._check_open()
        self._finished = True
        return tuple(self._adds)

    def written_before(self, paths: Iterable[str]) -> None:
        """Name files, as the log does, that the caller wrote for this commit alone. When it fails they are the caller's
        still, for another attempt or to be deleted; a transaction over several tables that has taken it up deletes them
        when it is cancelled."""
        self._check_open()
        self._written_before.extend(paths)

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

    @property
    def adds(self) -> tuple[AddFile, ...]:
        """The files that are staged to be added."""
        return tuple(self._adds)

    @property
    def new_uuid(self) -> Callable[[], str]:
        """Where fresh ids come from."""
        return self._environment.new_uuid

    @property
    def removed_rows(self) -> int | None:
        """How many rows the files have that are staged to be removed, by their statistics; None where one has none.
        Rows that staged files hold again are counted too. Cost: none; the statistics are parsed."""
        counts = [live_rows(files) for files in self._removed_files]
        return None if None in counts else sum(n for n in counts if n is not None)

    def staged_metrics(self) -> dict[str, str]:
        """The operation metrics that follow from what is staged: numbers and bytes of files."""
        metrics = {"numFiles": str(len(self._adds)), "numOutputBytes": str(sum(a.size for a in self._adds))}
        if self._removes:
            metrics["numRemovedFiles"] = str(len(self._removes))
            metrics["numRemovedBytes"] = str(sum(r.size or 0 for r in self._removes))
        return metrics

    # ------------------------------------------------------------------------------------------- staging

    def add(self, *files: AddFile, known: bool = False) -> None:
        """Stage add actions for files that lie below the table already. Raises InvalidActionError.

        Where the table has constraints, generated columns or the like, ``commit`` reads the rows and checks them;
        ``known``: they are rows of this version or an earlier one, and are not checked again. That no version has
        named the files before is for the caller to know; ``add_parquet_files`` looks.
        """
        self._check_open()
        lines, adds = adds_as_read_back(files)
        if len(adds) >= _MANY and lines is not None:
            self._encoded = adds, lines
        self._adds.extend(adds)
        self._unseen.extend(add for add in adds if add.data_change and not known)

    def add_parquet_files(
        self,
        files: Iterable[tuple[str, Mapping[str, str | None]]],
        *,
        checked: bool = False,
        owned: bool = False,
        tags: Mapping[str, Mapping[str, str]] | None = None,
        num_rows: int | None = None,
        examine: Examine | None = None,
    ) -> list[AddFile]:
        """Stage Parquet files that lie below the table: (relative path, not percent-encoded; partition values
        as the log has them). Statistics come from the footers; the files are made durable.

        Where the table has constraints, generated columns or the like, ``commit`` reads the rows and checks them,
        unless who wrote the files has ``checked`` them. Files that are ``owned`` were made for this transaction and are
        nobody else's; they are deleted when this fails. For others ``commit`` raises FilesCommittedError where one is
        live already. ``tags``: those of the files, by path.

        ``num_rows``: how many rows their writer wrote into all of them; RowCountError where they do not hold as many.
        ``examine`` is called with the path and the footer (pyarrow.parquet.FileMetaData) of each file, in threads,
        and may refuse one by raising.

        Raises InvalidDataFileError, also for a file without field ids where columns are mapped by id. Cost: a HEAD and
        1 or 2 ranged GETs for each file, in threads; and for those that are not ``owned`` as ``Snapshot.files``.
        """
        self._check_open()
        listed = list(files)
        adds = describe_files(self.reader.store, listed, self._layout(), num_rows, examine)
        if tags:
            of_files = [dict(tags[path]) if path in tags else None for path, _ in listed]
            adds = [msgspec.structs.replace(add, tags=each) for add, each in zip(adds, of_files, strict=True)]
        adds = list(adds_as_read_back(adds)[1])
        self._adds.extend(adds)
        if owned:
            self._own_files.extend(add.path for add in adds)
        else:
            self._given.update((add.path, path) for add, (path, _) in zip(adds, listed, strict=True))
        self._unseen.extend(() if checked else adds)
        return adds

    def write(self, reader: Any, *, checksum: Checksum | None = None) -> int:
        """Write a stream of Arrow batches into new files and stage them. The number of rows.

        ``checksum="sha256"`` hashes each file while it is written, into its tag ``deltalog.sha256``.
        Columns that are absent are generated or get their default where the table says so, else they are null.
        Raises SchemaMismatchError, ConstraintViolationError, and UnsupportedFeatureError for a constraint that is not
        supported. Cost: 1 PUT for each file.
        """
        adds, rows = self._write_files(reader, replace(self._layout_of_new_rows(), checksum=checksum))
        self._adds.extend(adds)
        return rows

    def write_told(self, reader: Any) -> int:
        """As ``write``, for a commit that has change files: the new files say themselves that their rows are
        inserted, and count as change files too. Spec: PROTOCOL.md#add-cdc-file."""
        layout = replace(self._layout_of_new_rows(), beside=(CHANGE_TYPE_FIELD,))
        adds, rows = self._write_files(with_kind("insert", reader), layout)
        self._adds.extend(adds)
        self.add_cdc(*map(change_file, adds))
        return rows

    def write_copies(self, reader: Iterable[Any]) -> list[AddFile]:
        """As ``write``, of rows that the table has already and that are moved: batches with the columns of
        ``row_tracking.kept_columns`` after the table's own, so that rows keep their ids. The files."""
        kept = row_tracking.kept_columns(self.metadata.configuration, self.reader.store.url)
        beside = tuple(StructField(column.name, PrimitiveType("long")) for column in kept)
        adds, _ = self._write_files(reader, replace(self._layout(), beside=beside))
        self._adds.extend(adds)
        return adds

    def write_changes(self, changes: Iterable[tuple[str, Any]]) -> list[AddCDCFile]:
        """Write change files and stage them: batches with the table's columns, each with the kind of its rows: insert,
        delete, update_preimage or update_postimage. The files.

        Once a commit has one, change readers look at nothing else of it, so it must tell every change. Raises
        SchemaMismatchError. Cost: 1 PUT for each file.
        """
        batches = (batch for kind, each in changes for batch in with_kind(kind, (each,)))
        adds, _ = self._write_files(batches, replace(self._layout(), beside=(CHANGE_TYPE_FIELD,), as_changes=True))
        files = [change_file(add) for add in adds]
        self.add_cdc(*files)
        return files

    def write_vectors(self, vectors: Sequence[BitMap64]) -> list[DeletionVector]:
        """Store sets of row positions (from 0, in a Parquet file) as deletion vectors for files that are staged with
        them. Cost: at most 1 PUT for each 2 MiB of them; small ones go into the log itself."""
        self._check_open()
        length = self._layout().prefix_length
        return write_vectors(self.reader.store, vectors, self._environment.new_uuid, length, self._own_files.append)

    def _write_files(self, reader: Iterable[Any], layout: Layout) -> tuple[list[AddFile], int]:
        self._check_open()
        environment = self._environment
        adds, rows = write_rows(self.reader.store, reader, layout, environment.new_uuid, environment.clock_ms())
        self._own_files.extend(add.path for add in adds)
        return adds, rows

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
        return self.remove_files(chosen)

    def remove_all_files(self) -> int:
        """Stage the removal of every live file. Counts as having read the whole table: any file that another
        writer adds or removes meanwhile is a conflict. The number of files."""
        return self.remove_files(self.find_files())

    def find_files(self, where: Predicate | str | None = None) -> pa.Table:
        """The live files that may hold a row for which ``where`` is true, as rows of ``Snapshot.files``; None: all.

        Declares the read: rows of the predicate that another writer adds meanwhile, and these files when another
        writer removes one, are a conflict. Raises CallError, SchemaMismatchError. Cost: as ``Scan.files``.
        """
        snapshot = self._existing("look for files")
        scan = snapshot.scan(where=where)
        files = scan.files()
        if scan.where is None:
            self._whole_table = True
        else:
            self._predicates.append(scan.where)
            self._read_files.update(files["path"].to_pylist())
        return files

    def remove_files(self, files: pa.Table, data_change: bool = True) -> int:
        """Stage the removal of live files, given as rows of ``Snapshot.files``. The number of files.

        ``data_change=False`` says that their rows are in files that this transaction adds. Counts as having read
        these files.
        """
        self._existing("remove files")
        if not (isinstance(files, pa.Table) and files.schema.equals(FILES)):
            raise CallError("Files to be removed are rows of Snapshot.files(), with all of its columns.")
        removes = remove_actions(files, self._environment.clock_ms(), data_change)
        self._removes.extend(removes)
        self._removed_files.append(files.select(["stats", "deletion_vector"]))
        self._read_files.update(r.path for r in removes)
        return len(removes)

    def replace_partitions(self) -> int:
        """Stage the removal of all live files in the partitions that the staged files lie in: dynamic partition
        overwrite. The number of files. Declares that only these partitions were read. Cost: as ``find_files``."""
        self._existing("replace partitions")
        mapping = column_mapping.mode_of(self.metadata.configuration)
        columns = [self.schema.field(name) for name in self.metadata.partition_columns]
        if not columns:
            raise CallError(f"{self.reader.store.url} has no partitions to replace.")
        keys = [column_mapping.physical_name(column, mapping) for column in columns]
        values = dict.fromkeys(tuple(add.partition_values[key] for key in keys) for add in self._adds)
        return self.remove_files(self.find_files(in_partitions(list(values), columns)))

    def replace_where(self, where: Predicate | str) -> int:
        """Stage the removal of the live files in the partitions for which ``where`` is true. The number of files.

        For files that are staged already: ``DeltaTable.overwrite`` takes rows, and conditions on any columns. Raises
        CallError for a condition on other columns than those that partition the table, SchemaMismatchError when a
        staged file lies in another partition. Cost: as ``find_files``.
        """
        snapshot = self._existing("replace partitions")
        predicate = as_predicate(where)
        assert predicate is not None
        bound = bind(predicate, snapshot.schema)
        others = {column.path[0] for column in columns_of(bound)}.difference(snapshot.partition_columns)
        if others:
            raise CallError(
                f"{snapshot.url}: files are replaced by partition columns only, and the condition looks at "
                f"{', '.join(sorted(others))}. DeltaTable.overwrite(data, where=...) replaces rows by any columns."
            )
        mapping = column_mapping.mode_of(snapshot.metadata.configuration)
        _, outside = split(files_table(self._adds), bound, snapshot.schema, snapshot.partition_columns, mapping)
        if outside.num_rows:
            example = dict(outside["partition_values"][0].as_py())
            raise SchemaMismatchError(
                f"{snapshot.url}: {outside.num_rows} of the new files lie outside of what is replaced, "
                f"{shown(predicate)}: for example in the partition {example}. Filter the rows, or replace more."
            )
        return self.remove_files(self.find_files(predicate))

    def read_whole_table(self) -> None:
        """Declare that what is staged depends on every row of the snapshot."""
        self._existing("declare a read")
        self._whole_table = True

    def declare_read(self, where: Predicate | str | None) -> None:
        """Declare that what is staged depends on the rows for which ``where`` is true; None: on all."""
        if where is None:
            self.read_whole_table()
        else:
            self.find_files(where)

    def read_all_domains(self) -> None:
        """Declare that what is staged depends on every metadata domain of the snapshot."""
        self._existing("declare a read")
        self._all_domains = True

    def require_serializable(self) -> None:
        """Check conflicts at ``Serializable``, whatever the table's level: no rows may be added concurrently."""
        self._check_open()
        self._isolation_level = "Serializable"

    def add_cdc(self, *files: AddCDCFile) -> None:
        """Stage change data files, which tell readers of changes what adds and removes do not."""
        self._check_open()
        self._cdc.extend(as_read_back(file, AddCDCFile) for file in files)

    def set_schema(self, schema: StructType, partition_by: Sequence[str] | None = None) -> None:
        """Stage another schema, and partition columns where given. Columns are checked, rows are not.

        With column mapping, a column is the one that had its id at that place, else the one of its name and type; any
        other is new and gets an id. Raises SchemaMismatchError.
        """
        self._check_open()
        schema_string = schema.to_json()
        check_column_names(schema, column_mapping.mode_of(self.metadata.configuration) != "none")
        columns = self.metadata.partition_columns if partition_by is None else tuple(partition_by)
        self._replace_metadata(schema_string=schema_string, partition_columns=check_partition_columns(schema, columns))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Stage table properties; in-commit timestamps are enabled and disabled this way too.

        Raises InvalidPropertyError for values that cannot be read and for the enablement pair, which the
        writer keeps. Features that a property needs are added to the protocol.
        """
        self._check_open()
        check_assignment(dict(properties))
        named, kept = features.split_feature_properties(properties)
        tracked = ENABLE_ROW_TRACKING.read(self.metadata.configuration)
        if self.snapshot is not None and not tracked and ENABLE_ROW_TRACKING.read(kept):
            self._check_row_ids(self.snapshot)
        self._replace_configuration({**self.metadata.configuration, **kept})
        self._protocol = features.with_features(self.protocol, named)

    def unset_properties(self, keys: Iterable[str]) -> None:
        """Stage the removal of table properties; absent ones are no error."""
        self._check_open()
        gone = set(keys)
        check_assignment(dict.fromkeys(gone))
        self._replace_configuration({k: v for k, v in self.metadata.configuration.items() if k not in gone})

    def set_constraint(self, name: str, expression: str | None) -> None:
        """Stage a CHECK constraint, or with None that it is gone. Rows that the table has are not checked."""
        self._check_open()
        key = f"{CONSTRAINT_PREFIX}{name.lower()}"
        others = {k: v for k, v in self.metadata.configuration.items() if k.lower() != key}
        self._replace_configuration(others if expression is None else {**others, key: expression})

    def set_metadata(self, *, name: str | None = None, description: str | None = None) -> None:
        """Stage the name or the description of the table; what is not given stays."""
        self._check_open()
        given = {"name": name, "description": description}
        self._replace_metadata(**{key: value for key, value in given.items() if value is not None})

    def set_protocol(self, protocol: Protocol) -> None:
        """Stage another protocol. Nothing that the table needs may be missing from it."""
        self._check_open()
        self._protocol = as_read_back(protocol, Protocol)

    def stage_state(self, protocol: Protocol, metadata: Metadata) -> None:
        """Stage protocol and metadata as they are, ids and names of columns included. Not checked before commit."""
        self._check_open()
        self._protocol, self._metadata = as_read_back(protocol, Protocol), as_read_back(metadata, Metadata)

    def set_domain_metadata(self, domain: str, configuration: str) -> None:
        """Stage the configuration of a metadata domain of your own: a JSON document, or any text.

        Names that begin with ``delta.`` belong to Delta: CallError. Adds the feature domainMetadata.
        """
        _check_user_domain(domain, configuration)
        self.stage_domain(DomainMetadata(domain=domain, configuration=configuration, removed=False))

    def remove_domain_metadata(self, domain: str) -> None:
        """Stage the removal of a metadata domain of your own; an absent one is no error."""
        _check_user_domain(domain, "")
        for found in self._existing("remove a metadata domain").domain_metadata:
            if found.domain == domain:
                self.stage_domain(msgspec.structs.replace(found, removed=True))

    def stage_domain(self, action: DomainMetadata) -> None:
        """Stage a domainMetadata action, of Delta's own domains too; the last one for a domain counts."""
        self._check_open()
        action = as_read_back(action, DomainMetadata)
        self._domains = [*(d for d in self._domains if d.domain != action.domain), action]
        self._protocol = features.with_features(self.protocol, ["domainMetadata"])

    def set_transaction(self, app_id: str, version: int) -> None:
        """Stage the progress of an application, so that a repeated run can be told from a new one."""
        self._check_open()
        if not (isinstance(app_id, str) and app_id and isinstance(version, int) and 0 <= version < 2**63):
            raise CallError(f"An application id is text, its version a number from 0 on; got {app_id!r}, {version!r}.")
        action = SetTransaction(app_id=app_id, version=version, last_updated=self._environment.clock_ms())
        self._transactions.append(as_read_back(action, SetTransaction))

    def set_commit_annotations(self, annotations: Mapping[str, Any]) -> None:
        """Set what commitInfo holds under ``deltalog`` besides the parent version: JSON values only. Raises
        CallError."""
        self._check_open()
        self._annotations = json.loads(json_text(annotations))

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
        Cost: 1 PUT and the ``.crc``; see CommitLoop.run for conflicts and after_commit for checkpoints.
        """
        self._check_open()
        prepared = self._prepare(operation, parameters or {}, metrics or {}, user_metadata)
        check_prepared(prepared, self.protocol, self.metadata, self.reader.store.url)
        self._check_catalog()
        self._check_given()
        self._check_unseen()
        self._finished = True
        try:
            base, passed = self._after_others(prepared)
            committed = self._run(prepared, base)
        except (CommitStateUnknownError, OperationTimeoutError):
            raise  # a commit may name the files
        except (DeltaLogError, ClockDriftWarning) as error:  # as an error, that warning comes before anything is sent
            keep_cleanup_errors(error, discard(self.reader.store, self._own_files))
            raise
        self._follow(replace(committed, winners=[*passed, *committed.winners]))
        return committed.result

    def check_conflicts(self) -> None:
        """Raise now the CommitConflictError that ``commit`` would raise for what is read and staged so far, where this
        began on an earlier version than the latest one. Cost: 1 GET for each version in between."""
        self._check_open()
        self._after_others(self._prepare("READ", {}, {}, None))

    def _after_others(self, prepared: Prepared) -> tuple[Base, list[CommitActions]]:
        """The base of the first attempt, and the commits of others between it and the version that was read."""
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
            raise gone_since(read, latest, self.reader.store.url) from error

    def _follow(self, committed: Committed) -> None:
        """What comes after the commit. Whatever happens here, ``committed`` is its version and the handle knows it;
        where its snapshot cannot be built, it is read when it is looked at."""
        fact = f"{self.reader.store.url}: version {committed.result.version} is committed"
        snapshot: Snapshot = UnreadSnapshot(self.reader, committed.result.version)
        try:
            with standing(fact, "building its snapshot"):
                snapshot = self._following(committed)
            with standing(fact, "the hooks after the commit"):
                snapshot = self._engine.follow_up(snapshot, committed.result, self._environment)
        finally:
            self.committed = snapshot
            with standing(fact, "updating the table handle"):
                self._on_commit(snapshot)

    def _run(self, prepared: Prepared, base: Base) -> Committed:
        try:
            return self._engine.run(self.reader, prepared, base, self._environment)
        except (MetadataChangedError, ProtocolChangedError):
            # An append that began on what its handle remembered may be older than the winner it lost to.
            if self._refresh is None or not prepared.is_blind_append:
                raise
            assert self.snapshot is not None
            latest = self._refresh()
            if not files_still_fit(self.snapshot.metadata, latest.metadata):
                raise
            self.snapshot = latest
        check_prepared(prepared, self.protocol, self.metadata, self.reader.store.url)
        return self._engine.run(self.reader, prepared, self._base(), self._environment)

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
        # Metadata staged as it already is writes nothing, and still asserts that it is so.
        asserts_metadata = self._metadata is not None
        prepared = Prepared(
            txn_id=self._txn_id,
            operation=_operation(operation),
            parameters={name: _value_text(value) for name, value in _named(parameters, "parameters")},
            metrics={name: str(value) for name, value in _named(metrics, "metrics")},
            user_metadata=_as_text(user_metadata),
            protocol=None if changed_protocol is None else as_read_back(changed_protocol, Protocol),
            metadata=None if changed_metadata is None else as_read_back(changed_metadata, Metadata),
            adds=tuple(self._adds),
            add_lines=self._add_lines(),
            removes=tuple(self._removes),
            transactions=tuple(self._transactions),
            domains=tuple(self._domains),
            cdc=tuple(self._cdc),
            written=(*self._own_files, *self._written_before),
            annotations=self._annotations,
            is_strict=self._is_strict,
            read_version=None if snapshot is None else snapshot.version,
            reads=Reads(
                self._whole_table,
                tuple(self._predicates),
                frozenset(self._read_files),
                app_ids,
                asserts_metadata,
                self._all_domains,
            ),
        )
        wanted = self._isolation_level or ISOLATION_LEVEL.read(self.metadata.configuration)
        return replace(prepared, isolation_level=isolation_for(prepared, wanted))

    def _add_lines(self) -> bytes | None:
        """The lines of the adds, where these are just those that were encoded when they came."""
        if self._encoded is None or len(self._encoded[0]) != len(self._adds):
            return None
        return self._encoded[1] if all(map(operator.is_, self._encoded[0], self._adds)) else None

    def _base(self) -> Base:
        snapshot = self.snapshot
        if snapshot is None:
            return Base(-1, None, None, None)
        base = base_of(snapshot)
        if base.previous_ms is None and features.is_ict_active(self.protocol, self.metadata):
            return replace(base, previous_ms=self._last_file_time_ms(snapshot))
        return base

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
            totals = totals_after(NO_FILES, actions)
            segment = Segment(0, None, (0,), False)
            return Snapshot(
                self.reader, segment, state, totals=totals, commits=Commits([actions]), in_commit_timestamp_ms=ict_ms
            )
        for winner in committed.winners:
            info = winner.commit_info
            snapshot = snapshot.after(winner, None if info is None else info.in_commit_timestamp_ms)
        return snapshot.after(actions, ict_ms)

    # -------------------------------------------------------------------------------------------- helpers

    def rules(self) -> Rules:
        """What the table demands of new rows, as this transaction will leave it.

        Raises UnsupportedFeatureError, by name, where that cannot be honoured.
        """
        return rules_of(self.metadata, self.protocol, self.reader.store.url, self._environment.clock_ms)

    def _layout_of_new_rows(self) -> Layout:
        layout = replace(self._layout(), rules=self.rules())
        self._seen_under, self._seen_as = layout.rules, (self.metadata, self.protocol)
        return layout

    def _check_catalog(self) -> None:
        url, catalog = self.reader.store.url, self.reader.store.catalog
        features.check_reached(self.protocol, url, catalog)
        if self.snapshot is not None and features.is_catalog_managed(self.snapshot.protocol):
            features.check_stays_managed(self.snapshot.metadata, self.protocol, self.metadata, url)

    def _check_given(self) -> None:
        """Files of the caller's are new, or take the place of themselves."""
        if self._given and self.snapshot is not None:
            removed = {remove.path for remove in self._removes}
            check_not_live(self.snapshot, [path for name, path in self._given.items() if name not in removed])

    def _check_unseen(self) -> None:
        """Rows of files that nobody has looked at under the rules that will hold."""
        if not self._unseen and self._seen_as in (None, (self.metadata, self.protocol)):
            return
        layout = replace(self._layout(), rules=self.rules())
        if self._seen_under is not None and self._seen_under.demands != layout.rules.demands:
            own = set(self._own_files)
            self._unseen.extend(add for add in self._adds if add.path in own)
        check_files(self.reader.files, self._unseen, layout)

    def _layout(self) -> Layout:
        return Layout.of(self.metadata)

    def _replace_metadata(self, **changes: Any) -> None:
        changed = msgspec.structs.replace(self.metadata, **changes)
        self._protocol, self._metadata = metadata_update.complete(
            self.metadata, changed, self.protocol, self._environment.new_uuid
        )

    def _replace_configuration(self, configuration: Mapping[str, str]) -> None:
        self._replace_metadata(configuration=replace_configuration(self.metadata, configuration).configuration)

    def _check_row_ids(self, snapshot: Snapshot) -> None:
        """Refuse to turn row tracking on while files have no row ids; none may come in meanwhile."""
        without = snapshot.files(["base_row_id"])["base_row_id"].null_count
        if without:
            raise InvalidPropertyError(
                f"{snapshot.url}: {ENABLE_ROW_TRACKING.key} cannot be turned on: {without} files have no row ids, and "
                "giving them some (a backfill) is not done here. Turn it on when a table is created.",
                key=ENABLE_ROW_TRACKING.key,
            )
        self._whole_table = True

    def _existing(self, what: str) -> Snapshot:
        self._check_open()
        if self.snapshot is None:
            raise CallError(f"Cannot {what}: this transaction creates the table.")
        return self.snapshot

    def _check_open(self) -> None:
        if self._finished:
            raise CallError("This transaction has ended. Start another one with table.transaction().")


def base_of(snapshot: Snapshot) -> Base:
    """The version that a transaction on a snapshot follows."""
    mark = row_tracking.high_water_mark(snapshot.domain_metadata)
    return Base(snapshot.version, snapshot.protocol, snapshot.metadata, snapshot.in_commit_timestamp_ms, mark)


def gone_since(read: int, latest: int, table: str) -> CommitConflictError:
    """The error of a write based on a version whose later commits are no longer in the log."""
    return CommitConflictError(
        f"{table}: the rows were read from version {read}, the latest version is {latest}, and the log no longer has "
        "the commits between them. Nothing was committed; read the table again and repeat the operation.",
        winning_version=latest,
        winning_operation=None,
        read_version=read,
    )


def _check_user_domain(domain: str, configuration: str) -> None:
    if not (isinstance(domain, str) and domain and isinstance(configuration, str)):
        raise CallError(f"A metadata domain has a name and a configuration as text; got {domain!r}.")
    if domain.startswith("delta."):
        raise CallError(f"The metadata domain {domain!r} belongs to Delta: choose a name without the prefix delta.")


def _as_text(user_metadata: str | Mapping[str, Any] | None) -> str | None:
    if user_metadata is None:
        return None
    if isinstance(user_metadata, str):
        return str(plain(user_metadata))
    if not isinstance(user_metadata, Mapping):
        raise CallError(f"user_metadata is text or a mapping of JSON values; got {type(user_metadata).__name__}.")
    return json_text(dict(user_metadata), sort_keys=True)


def _operation(name: str) -> str:
    if not isinstance(name, str):
        raise CallError(f"The operation that a commit names is text; got {name!r}.")
    return str(plain(name))


def _named(values: Mapping[str, Any], what: str) -> list[tuple[str, Any]]:
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise CallError(f"The {what} of a commit are a mapping from names to values; got {values!r}.")
    return [(plain(name), value) for name, value in values.items()]


def _value_text(value: Any) -> str:
    return str(plain(value)) if isinstance(value, str) else canonical_json(value)
