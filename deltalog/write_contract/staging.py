"""Staged files and their commit, as defined by the write contract (docs/contracts/write.md). Rows are written into
files that no version names yet; the commit creates one version with a named parent and the author's metadata.

Files are written first. After the files have been written, a transaction begins on the latest version, and is committed
directly after that version or not at all. Commits that other writers make during a long stream are therefore not
conflicts.

Spec: PROTOCOL.md#add-file-and-remove-file (tags), #commit-provenance-information.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

from deltalog.arguments import check_options, checked
from deltalog.commit.conflicts import files_still_fit, unexpected_version
from deltalog.commit.tip_proof import TipProof
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    CommitConflictError,
    CommitStateUnknownError,
    DeltaLogError,
    MetadataChangedError,
    MissingRecordsError,
    RowTableRequiredError,
    TableExistsError,
    UnpartitionedTableRequiredError,
    UnsupportedFeatureError,
)
from deltalog.lazy_arrow import pc
from deltalog.log.authority import Authority
from deltalog.parquet.file_reader import EXACT, conform
from deltalog.parquet.file_writer import Checksum, check_checksum
from deltalog.protocol import column_mapping
from deltalog.protocol.actions import AddFile, Long, Metadata, Size
from deltalog.protocol.schema import StructField, StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.write.committed_files import check_never_committed
from deltalog.write.data_files import discard
from deltalog.write.input_streams import is_in_memory, read_once
from deltalog.write.table_handle import TableHandle
from deltalog.write.transaction import Transaction
from deltalog.write.write_steps import fitting
from deltalog.write_contract.records import Records, record_batches

BLOBS_PROPERTY = "deltalog.blobs"


# ----------------------------------------------------------------------------------------------------- options


class WriteOptions(TypedDict, total=False):
    """The options of all verbs of the write contract.

    ``expected_parent``: the version that must be the latest when the commit is made, else VersionConflictError is
    raised; None: the version that is the latest after the files are written. ``retry_count`` (0): how often the commit,
    and only the commit, is retried after another writer has committed the version. The waits grow from
    ``retry_base_delay_ms`` (10) to ``retry_max_delay_ms`` (2000); the fraction ``retry_jitter`` (1.0) of a wait is
    random. ``checksum="sha256"`` records a hash for each file. ``timestamp_column``: the column whose minimum and
    maximum are recorded.
    """

    expected_parent: int | None
    retry_count: int
    retry_base_delay_ms: float
    retry_max_delay_ms: float
    retry_jitter: float
    checksum: Checksum | None
    timestamp_column: str | None


@dataclass(frozen=True, slots=True)
class Options:
    """Validated WriteOptions with default values. Raises CallError."""

    expected_parent: int | None = None
    retry_count: int = 0
    retry_base_delay_ms: float = 10.0
    retry_max_delay_ms: float = 2000.0
    retry_jitter: float = 1.0
    checksum: Checksum | None = None
    timestamp_column: str | None = None

    def __post_init__(self) -> None:
        parent, count = self.expected_parent, self.retry_count
        if parent is not None and not _is_count(parent):
            raise CallError(f"expected_parent must be a version or None; got {parent!r}.")
        if not _is_count(count):
            raise CallError(f"retry_count must be an integer >= 0; got {count!r}.")
        for name in ("retry_base_delay_ms", "retry_max_delay_ms"):
            if not _is_amount(getattr(self, name)):
                raise CallError(f"{name} must be a finite number of milliseconds >= 0; got {getattr(self, name)!r}.")
        if not _is_amount(self.retry_jitter) or self.retry_jitter > 1:
            raise CallError(f"retry_jitter must be a number from 0 to 1; got {self.retry_jitter!r}.")
        check_checksum(self.checksum)
        if not isinstance(self.timestamp_column, str | None):
            raise CallError(f"timestamp_column must be the name of a column or None; got {self.timestamp_column!r}.")

    def environment(self, environment: Environment, parent: int | None, table: str) -> Environment:
        """The environment for a commit that follows ``parent`` (None: for version 0), with the retry settings of these
        options.

        Raises VersionConflictError if ``parent`` is not the expected one and ``retry_count`` is 0.
        """
        tries = 1 + self.retry_count
        if self.expected_parent is not None and self.expected_parent != parent:
            tries -= 1
        if tries == 0:
            assert self.expected_parent is not None
            raise unexpected_version(self.expected_parent, parent, table)
        retry = replace(
            environment.retry,
            max_attempts=tries,
            immediate=0,
            # The retry policy doubles this delay before the first wait.
            retry_base_delay_ms=self.retry_base_delay_ms / 2,
            retry_max_delay_ms=self.retry_max_delay_ms,
            retry_jitter=self.retry_jitter,
            race_max_delay_ms=self.retry_max_delay_ms,
        )
        return replace(environment, retry=retry)


def options_of(given: Mapping[str, Any]) -> Options:
    """Validate options. Raises CallError for unknown names and invalid values."""
    check_options(given, WriteOptions, "a write")
    return Options(**given)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def as_metadata(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of the metadata of a write; empty for None. Raises CallError if a round trip through JSON would change
    it."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise CallError(f"The metadata of a write must be a mapping or None, not {type(given).__name__}.")
    metadata = dict(given)
    try:
        decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(metadata))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise CallError(f"The metadata of a write cannot be written as JSON: {error}.") from None
    if decoded != metadata:
        raise CallError(
            "The metadata of a write would change when it is read back. Use only dict with string keys, list, str, "
            "int, finite float, bool and None, at every depth."
        )
    return decoded


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The target of a verb: a store, and the authority over the commits in it.

    ``begin``: begins a transaction on the latest version. ``forget``: makes the next transaction read the log again,
    because the version known so far may be stale. ``unsettled``: commits with an unknown outcome. They are keyed by the
    paths of their staged files, so that they also apply to copies of a StagedFiles object.
    """

    store: LogStore
    authority: Authority
    begin: Callable[[Options], Transaction]
    forget: Callable[[], None]
    unsettled: dict[str, CommitStateUnknownError] = field(default_factory=dict)
    # TipProofs that were begun while the files were written; the commit in the same call uses them.
    proofs: list[TipProof] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------------ staging


@checked
@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Files below a table's root that no version of the table refers to yet. ``DeltaTable.commit_staged`` commits any
    number of StagedFiles together, and each at most once. Threads or other processes may stage files, and send the
    StagedFiles as a pickle or as JSON.

    ``table`` and ``version``: the table's metadata and its latest version when the files were written (version -1: the
    table did not exist; None: unknown). ``first_us`` and ``last_us``: the minimum and maximum of the column
    ``timestamp_column``, in microseconds since 1970 UTC.
    """

    files: tuple[AddFile, ...]
    row_count: int
    table: Metadata
    timestamp_column: str | None = None
    first_us: int | None = None
    last_us: int | None = None
    version: int | None = None
    # The errors of those attempts to commit these files whose outcome is unknown. The staged files are not deleted
    # until these outcomes are known.
    unsettled: list[CommitStateUnknownError] = field(default_factory=list, compare=False, repr=False)

    def to_json(self) -> str:
        """The staged files as JSON text, for another process."""
        body = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        actions = {"files": [file.to_json() for file in self.files], "table": self.table.to_json()}
        doubts = [{"message": each.message, **each.facts} for each in self.unsettled]
        return json.dumps({**body, **actions, **({"unsettled": doubts} if doubts else {})}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> StagedFiles:
        """Parse the text that ``to_json`` returned. Raises CallError."""
        try:
            body = json.loads(text)
            plain = msgspec.convert({name: body[name] for name in _PLAIN_FIELDS if name in body}, _PlainFields)
            files = tuple(AddFile.from_json(file) for file in body["files"])
            doubts = msgspec.convert(body.get("unsettled", []), list[_Doubt])
            unsettled = [CommitStateUnknownError(**msgspec.structs.asdict(each)) for each in doubts]
            table = Metadata.from_json(body["table"])
            return cls(files, table=table, **msgspec.structs.asdict(plain), unsettled=unsettled)
        except (ValueError, TypeError, KeyError, DeltaLogError) as error:
            raise CallError(f"This is not a description of staged files: {error}.") from None


class _PlainFields(msgspec.Struct):
    row_count: Size
    timestamp_column: str | None
    first_us: Long | None
    last_us: Long | None
    version: Long | None = None


class _Doubt(msgspec.Struct):
    """A CommitStateUnknownError, serialized."""

    message: str
    version: Long
    txn_id: str


_PLAIN_FIELDS = _PlainFields.__struct_fields__


def target_of(handle: TableHandle) -> WriteTarget:
    """The target of writes to an existing table."""

    def begin(options: Options) -> Transaction:
        may_be_recent = options.expected_parent in (None, handle.latest.version)
        if not may_be_recent:
            handle.expire()
        parent, proven_ms = handle.recent()
        environment = options.environment(handle.environment, parent.version, handle.url)
        return handle.following(parent, environment, proven_ms)

    return WriteTarget(handle.reader.store, handle.reader.authority, begin, handle.expire, handle.unsettled)


def stage(target: WriteTarget, data: Any, options: Options, new_columns: StructType | None = None) -> StagedFiles:
    """Write rows into files that no version refers to yet. ``new_columns``: as for ``DeltaTable.stage``.

    On an error, the files are deleted, best effort. Raises as DeltaTable.append. Cost: 1 PUT for each file.
    """
    with target.begin(options) as transaction:
        _check_has_rows(transaction.metadata, "rows")
        if new_columns is not None:
            _add_columns(transaction, new_columns)
        transaction.reads_callers_rows = not is_in_memory(data)
        return _staged(target, transaction, fitting(transaction, data), options)


def _add_columns(transaction: Transaction, columns: StructType) -> None:
    before = transaction.metadata
    transaction.merge_schema(columns)
    if transaction.metadata != before and column_mapping.mode_of(before.configuration) != "none":
        raise CallError(
            f"{transaction.reader.store.url} has column mapping, which gives each new column a name of its own in the "
            "files, so files cannot be staged for columns that it lacks. Add the columns first: DeltaTable.add_columns."
        )


def stage_records(target: WriteTarget, records: Records | None, options: Options) -> StagedFiles:
    """Like ``stage``, for records that are read one by one."""
    if records is None:
        raise MissingRecordsError("records is None. To write no rows, pass an empty list.")
    with target.begin(options) as transaction:
        _check_has_rows(transaction.metadata, "records")
        if transaction.metadata.partition_columns:
            raise UnpartitionedTableRequiredError(
                f"{target.store.url} is partitioned by {', '.join(transaction.metadata.partition_columns)}, but a "
                "stream of records is written to one file at a time. Use write(data) for partitioned tables."
            )
        filled = transaction.row_writer.rules().filled
        transaction.reads_callers_rows = not is_in_memory(records)
        return _staged(target, transaction, record_batches(records, transaction.schema, filled), options)


def _staged(
    target: WriteTarget, transaction: Transaction, batches: Iterable[pa.RecordBatch], options: Options
) -> StagedFiles:
    _check_no_identities(transaction)
    span = _Span(transaction.schema, options.timestamp_column)
    rows = transaction.write(span.watch(batches), checksum=options.checksum)
    files, metadata = tuple(transaction.staged.adds), transaction.metadata
    transaction.row_writer.release()
    target.proofs[:] = [transaction.proof]
    version = -1 if transaction.snapshot is None else _shared_version(transaction.snapshot)
    return StagedFiles(files, rows, metadata, options.timestamp_column, span.first_us, span.last_us, version)


class _Span:
    """Collects the minimum and maximum of the timestamp column while rows are written."""

    def __init__(self, schema: StructType, name: str | None) -> None:
        self.first_us: int | None = None
        self.last_us: int | None = None
        self._column = None if name is None else schema.field(name)
        if self._column is not None and str(self._column.data_type) not in ("timestamp", "timestamp_ntz"):
            raise CallError(f"timestamp_column must be a timestamp column; {name} is {self._column.data_type}.")

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches unchanged, and widen the span to include the values of the timestamp column."""
        for batch in read_once(batches):
            if self._column is not None:
                self._include_batch(batch, self._column)
            yield batch

    def _include_batch(self, batch: pa.RecordBatch, column: StructField) -> None:
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if name.lower() == column.name.lower():
                # Values that do not fit are refused when the rows are written.
                with contextlib.suppress(pa.ArrowException):
                    found = pc.min_max(conform(values, column.data_type, EXACT).cast(pa.int64())).as_py()
                    self._include(found["min"], found["max"])

    def _include(self, low: int | None, high: int | None) -> None:
        if low is not None and high is not None:
            self.first_us = low if self.first_us is None else min(self.first_us, low)
            self.last_us = high if self.last_us is None else max(self.last_us, high)


# --------------------------------------------------------------------------------------------- committing writes


def commit_staged(
    target: WriteTarget,
    staged: Sequence[StagedFiles],
    metadata: Mapping[str, Any] | None,
    options: Options,
    *,
    owned: bool = False,
) -> Snapshot:
    """Commit staged files as one version. If the commit fails, the files are kept, so that they can be committed again
    or passed to ``discard_staged``. Raises FilesCommittedError for a file that a version has named.

    If the commit is part of a multi-table transaction that is cancelled, the files are also kept, and their owner may
    commit them in another transaction. ``owned``: the files were staged for this commit only, and are deleted if the
    multi-table transaction is cancelled. Cost: as the commit, and unless ``owned`` as ``check_never_committed``.
    """
    annotations = {"metadata": as_metadata(metadata), **_times(staged)}
    rows = sum(each.row_count for each in staged)

    def add_files(transaction: Transaction) -> dict[str, str]:
        if not owned:
            _check_is_of_table(staged, transaction.metadata, target.store.url)
        for each in staged:
            _check_fits(each, transaction)
            if not owned:
                _check_is_new(each, transaction.snapshot, "Nothing was committed.")
            transaction.add(*each.files, known=each.table == transaction.metadata)
            if owned:
                transaction.staged.keep_for_caller(file.path for file in each.files)
        return {"numOutputRows": str(rows), **transaction.staged.metrics()}

    try:
        committed = commit_one(target, add_files, annotations, options)
    except CommitStateUnknownError as error:
        if target.authority.branch is None:
            target.unsettled.update(dict.fromkeys(_paths(staged), error))
            for each in staged:
                each.unsettled.append(error)
        raise
    for each in staged:
        each.unsettled.clear()
    for path in _paths(staged) if target.unsettled else ():
        target.unsettled.pop(path, None)
    return committed


def _paths(staged: Iterable[StagedFiles]) -> list[str]:
    return [file.path for each in staged for file in each.files]


def _shared_version(snapshot: Snapshot) -> int:
    """The number of the snapshot's version as other processes know it; in a multi-table transaction, the number of the
    branch's base version."""
    base = snapshot.reader.authority.base_version
    return snapshot.version if base is None else base


def _check_is_new(staged: StagedFiles, snapshot: Snapshot | None, outcome: str) -> None:
    """Raise FilesCommittedError if a version has named one of these files."""
    if snapshot is not None:
        since = None if staged.version is None else min(staged.version, _shared_version(snapshot))
        check_never_committed(snapshot, since, [file.path for file in staged.files], outcome)


def _check_is_of_table(staged: Sequence[StagedFiles], table: Metadata, url: str) -> None:
    """Raise CallError for files that were staged for a table with another id."""
    if any(each.table.id != table.id for each in staged):
        raise CallError(
            f"Some of these files were staged for another table, not the one at {url}. Stage the rows again there."
        )


def discard_staged(target: WriteTarget, staged: Iterable[StagedFiles]) -> list[Exception]:
    """Delete staged files, best effort. Returns the failures.

    Raises FilesCommittedError if a version has named one of them, and CommitStateUnknownError if a commit of them has
    an unknown outcome; nothing is deleted then. Cost: as a snapshot and ``check_never_committed``, 1 DELETE for each
    file.
    """
    given = list(staged)
    target.forget()
    with target.begin(Options()) as transaction:
        snapshot = transaction.snapshot
        for each in given:
            _check_is_new(each, snapshot, "Nothing was deleted.")
    paths = _paths(given)
    known = (target.unsettled[path] for path in paths if path in target.unsettled)
    for error in (*known, *(error for each in given for error in each.unsettled)):
        if snapshot is None or snapshot.version < error.version:
            raise error
    for path in paths if target.unsettled else ():
        target.unsettled.pop(path, None)
    return discard(target.store, paths)


def commit_one(
    target: WriteTarget,
    stage_on: Callable[[Transaction], Mapping[str, str]],
    annotations: Mapping[str, Any],
    options: Options,
) -> Snapshot:
    """Commit the actions that ``stage_on`` stages; ``stage_on`` returns the metrics. Raises as Transaction.commit."""
    try:
        with target.begin(options) as transaction:
            while target.proofs:
                transaction.proof.take_over(target.proofs.pop())
            metrics = stage_on(transaction)
            transaction.set_commit_annotations(annotations)
            columns = json.dumps(list(transaction.metadata.partition_columns))
            transaction.commit("WRITE", {"mode": "Append", "partitionBy": columns}, metrics)
    except CommitConflictError:
        target.forget()
        raise
    except TableExistsError:  # another writer created the table; commit after it if a retry is left
        return commit_one(target, stage_on, annotations, replace(options, retry_count=options.retry_count - 1))
    assert transaction.committed is not None
    return transaction.committed


def _check_fits(staged: StagedFiles, transaction: Transaction) -> None:
    """Raise MetadataChangedError if staged files do not fit the current metadata of the table."""
    _check_has_rows(transaction.metadata, "rows")
    if not files_still_fit(staged.table, transaction.metadata):
        version = -1 if transaction.snapshot is None else transaction.snapshot.version
        raise MetadataChangedError(
            f"{transaction.reader.store.url}: columns, partitioning or constraints have changed since the files were "
            "staged. Nothing was committed. Stage the rows again.",
            winning_version=version,
            winning_operation=None,
            retryable=False,
        )


def _times(staged: Sequence[StagedFiles]) -> dict[str, Any]:
    declared = [each for each in staged if each.timestamp_column is not None]
    columns = {each.timestamp_column for each in declared}
    if len(columns) > 1:
        raise CallError(
            f"Files committed together must have the same timestamp column; got {len(columns)} different ones."
        )
    first = [each.first_us for each in declared if each.first_us is not None]
    last = [each.last_us for each in declared if each.last_us is not None]
    if not (first and last):
        return {}
    return {"timestampColumn": columns.pop(), "minTimestampMicros": min(first), "maxTimestampMicros": max(last)}


def _check_has_rows(metadata: Metadata, what: str) -> None:
    if holds_blobs(metadata):
        raise RowTableRequiredError(
            f"A table of blobs takes bytes, not {what}: use stream_write(), or write(data) with bytes."
        )


def _check_no_identities(transaction: Transaction) -> None:
    """Refuse to stage files for a table with identity columns, because rows committed before the staged files would get
    the same values."""
    if transaction.row_writer.rules().identities is not None:
        raise UnsupportedFeatureError(
            f"{transaction.reader.store.url} has identity columns (identityColumns), so files cannot be staged for "
            "it: rows committed before them would get the same values. Use DeltaTable.append, which writes and "
            "commits in one call.",
            features=("identityColumns",),
        )


def holds_blobs(metadata: Metadata) -> bool:
    """Whether a table is a table of blobs."""
    return metadata.configuration.get(BLOBS_PROPERTY) == "true"
