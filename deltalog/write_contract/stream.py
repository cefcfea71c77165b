"""The verbs of the write contract (docs/contracts/write.md) that write and commit in one call. These verbs write rows,
streams of records, or streams of bytes (to a table of blobs). If a method fails, it deletes the files that it wrote.

Spec: PROTOCOL.md#add-file-and-remove-file (tags), #commit-provenance-information.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from deltalog.arguments import checked
from deltalog.errors import (
    BlobTableRequiredError,
    CallError,
    ClockDriftWarning,
    DeltaLogError,
    FilesCommittedError,
    Outcome,
    StoreError,
)
from deltalog.parquet.file_writer import HashedFile
from deltalog.protocol.paths import encode_path
from deltalog.protocol.schema import PrimitiveType, StructField, StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import keep_cleanup_errors
from deltalog.write.data_files import discard
from deltalog.write.transaction import Transaction
from deltalog.write_contract.records import Records
from deltalog.write_contract.staging import (
    Options,
    StagedFiles,
    WriteTarget,
    as_metadata,
    commit_one,
    commit_staged,
    holds_blobs,
    stage,
    stage_records,
)

# Blobs are stored outside of Parquet, whose values are limited to 2 GiB. The directory is hidden, because VACUUM in
# other engines skips hidden directories.
BLOBS_DIRECTORY = "_blobs"
BLOB_SCHEMA = StructType(
    (
        StructField("path", PrimitiveType("string"), nullable=False),
        StructField("size", PrimitiveType("long"), nullable=False),
        StructField("sha256", PrimitiveType("string")),
    )
)

log = logging.getLogger(__name__)


def write(target: WriteTarget, data: Any, metadata: Mapping[str, Any] | None, options: Options) -> Snapshot:
    """Write rows, or bytes to a table of blobs, and commit them as one version."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        with StreamWriter(target, metadata, options) as writer:
            writer.write(data)
            return writer.commit()
    as_metadata(metadata)  # validate before writing any file
    return _commit_or_discard(target, stage(target, data, options), metadata, options)


def write_records(
    target: WriteTarget, records: Records | None, metadata: Mapping[str, Any] | None, options: Options
) -> Snapshot:
    """Write all records of a stream and commit them as one version."""
    as_metadata(metadata)
    return _commit_or_discard(target, stage_records(target, records, options), metadata, options)


def _commit_or_discard(
    target: WriteTarget, staged: StagedFiles, metadata: Mapping[str, Any] | None, options: Options
) -> Snapshot:
    try:
        return commit_staged(target, [staged], metadata, options, owned=True)
    except (DeltaLogError, ClockDriftWarning) as error:
        if error.outcome is not Outcome.UNKNOWN:
            keep_cleanup_errors(error, discard(target.store, [file.path for file in staged.files]))
        raise


@checked
class StreamWriter:
    """Writes a blob in pieces, and commits it as one version of a table of blobs; see ``Dataset.stream_write``.

    The bytes are written once, to their final path. Readers cannot see the bytes before ``commit``. If ``close`` is
    called or the ``with`` block ends without a commit, the stream is aborted. Memory: one piece of the stream, and the
    store's buffer for one part of an upload (S3: 16 MiB).
    """

    def __init__(self, target: WriteTarget, metadata: Mapping[str, Any] | None, options: Options) -> None:
        self._annotations = {"metadata": as_metadata(metadata)}
        self._target, self._options = target, options
        if options.timestamp_column is not None:
            raise CallError("timestamp_column does not apply to bytes.")
        with target.begin(options) as transaction:
            if not holds_blobs(transaction.metadata):
                raise BlobTableRequiredError(
                    f"{target.store.url} is a table of rows in Parquet files, not of bytes. Use write or "
                    "stream_write_records, or create a table of blobs with DeltaTable.create_for_blobs."
                )
            self.path = f"{BLOBS_DIRECTORY}/{transaction.row_writer.new_uuid()}"
        self.size_bytes = 0
        self.cleanup_errors: tuple[Exception, ...] = ()
        self._sending = contextlib.ExitStack()
        file: BinaryIO = self._sending.enter_context(target.store.open_output(self.path))
        self._file: BinaryIO | HashedFile = file if options.checksum is None else HashedFile(file)
        self._state: Literal["open", "committed", "aborted", "unsettled"] = "open"
        self._is_sent = False
        self._version: int | None = None  # the table version that added the blob
        self._in_doubt: DeltaLogError | None = None  # the error of a commit whose outcome is unknown

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write a piece. Returns its length in bytes. Raises StoreError; the stream is aborted then."""
        self._check_open()
        try:
            view = memoryview(data).cast("B")
        except TypeError:
            raise CallError(f"A piece of a blob must be bytes, not {type(data).__name__}.") from None
        try:
            self._file.write(view)
        except BaseException as error:
            cause = self._abort_with(error)
            if cause is error:
                raise
            raise cause from error
        self.size_bytes += len(view)
        return len(view)

    def commit(self) -> Snapshot:
        """Commit the blob: the next version adds one row for it.

        On an error, the bytes written so far are deleted, best effort, unless the outcome of the commit is unknown.
        Raises VersionConflictError and as Transaction.commit; a second call after a commit raises FilesCommittedError.
        Cost: 1 PUT of the row, and the commit.
        """
        self._check_undecided()
        self._check_open()
        try:
            self._sending.close()
            self._is_sent = True
            self._state = "unsettled"  # the object is kept if another kind of error interrupts the commit
            snapshot = commit_one(
                self._target, self._add_row, {**self._annotations, "blob": self._blob()}, self._options
            )
        except (DeltaLogError, ClockDriftWarning) as error:
            if error.outcome is not Outcome.UNKNOWN:
                self._abort_with(error)
            elif isinstance(error, DeltaLogError):
                self._in_doubt = error
            raise
        self._state, self._version = "committed", snapshot.version
        return snapshot

    def abort(self) -> None:
        """End without a commit. The bytes are deleted on a best-effort basis; failures are recorded in
        ``cleanup_errors``. Idempotent. Calling it after ``commit`` raises the same error as a second ``commit``."""
        if self._state != "aborted":
            self._check_undecided()
            self._check_open()
            self._abort_with(None)

    def close(self) -> None:
        """Abort the stream unless it has been committed. Idempotent."""
        if self._state == "open":
            self.abort()

    def __enter__(self) -> StreamWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state == "open":
            self._abort_with(error)

    def _check_undecided(self) -> None:
        """Raise an error if the commit has succeeded or its outcome is unknown."""
        if self._in_doubt is not None:
            raise self._in_doubt
        if self._version is not None:
            raise FilesCommittedError(
                f"This stream is committed, as version {self._version}. Begin another one with stream_write().",
                path=self.path,
                version=self._version,
            )

    def _check_open(self) -> None:
        if self._state != "open":
            raise CallError(f"This stream is {self._state}. Begin another one with stream_write().")

    def _add_row(self, transaction: Transaction) -> dict[str, str]:
        if not holds_blobs(transaction.metadata):
            raise BlobTableRequiredError(f"{self._target.store.url} is no longer a table of blobs.")
        transaction.reads_callers_rows = False
        row = pa.table({name: [value] for name, value in {"sha256": None, **self._blob()}.items()})
        transaction.write(row.select(BLOB_SCHEMA.names).to_batches(), checksum=self._options.checksum)
        transaction.staged.keep_for_caller([encode_path(self.path)])
        return {"numOutputRows": "1", **transaction.staged.metrics()}

    def _blob(self) -> dict[str, Any]:
        """The description of the blob in commitInfo and in the row."""
        blob = {"path": self.path, "size": self.size_bytes}
        return {**blob, "sha256": self._file.hexdigest()} if isinstance(self._file, HashedFile) else blob

    def _abort_with(self, error: BaseException | None) -> BaseException:
        """Delete the files of the stream. Failures are attached to the error that caused the deletion and never replace
        it.

        Returns the cause: if ``error`` is an OSError of the file, the StoreError to which the store converts it,
        otherwise ``error`` itself.
        """
        self._state = "aborted"
        cause: BaseException = _Abandoned() if error is None else error
        failures: list[Exception] = []
        try:
            self._sending.__exit__(type(cause), cause, cause.__traceback__)
        except StoreError as failure:
            if failure.__cause__ is cause:
                cause = failure
            elif failure is not cause:
                failures.append(failure)
        except Exception as failure:
            failures += [] if failure is cause else [failure]
        if self._is_sent:
            failures += discard(self._target.store, [self.path])
        keep_cleanup_errors(cause, failures)
        self.cleanup_errors = getattr(cause, "cleanup_errors", ())
        for each in self.cleanup_errors:
            log.warning("%s: %s was abandoned and may still exist: %s", self._target.store.url, self.path, each)
        return cause


class _Abandoned(Exception):
    """The exception that is passed to the ``__exit__`` of an output, so that the output abandons the file."""


def blob_path(snapshot: Snapshot) -> str:
    """The path of the blob that a given version added. Raises CallError if it added none. Cost: 1 GET."""
    blob = snapshot.commit_summary.blob
    if blob is None:
        raise CallError(
            f"{snapshot.url}: version {snapshot.version} added no blob. The table's rows have the paths of its blobs."
        )
    return blob.path
