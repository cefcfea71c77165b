"""The verbs of the write contract (docs/contracts/write.md) that write and commit in one call, and delete their files
when they fail: rows, streams of records, and streams of bytes into a table of blobs.

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

# Engines pass over hidden directories when they vacuum, and Parquet holds no value of more than 2 GiB.
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
    """Write rows, or in a table of blobs bytes, and commit them as one version."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        with StreamWriter(target, metadata, options) as writer:
            writer.write(data)
            return writer.commit()
    as_metadata(metadata)  # before any file is written
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
    """Writes one blob in pieces, and commits it as one version of a table of blobs; see ``Dataset.stream_write``.

    The bytes are written once, in pieces, to their final path. No reader sees them before ``commit``; ``close``, or
    leaving the ``with`` block, is ``abort``. Memory: one piece, and what the store collects of a part (S3: 16 MiB).
    """

    def __init__(self, target: WriteTarget, metadata: Mapping[str, Any] | None, options: Options) -> None:
        self._annotations = {"metadata": as_metadata(metadata)}
        self._target, self._options = target, options
        if options.timestamp_column is not None:
            raise CallError("Bytes have no timestamp column.")
        with target.begin(options) as transaction:
            if not holds_blobs(transaction.metadata):
                raise BlobTableRequiredError(
                    f"{target.store.url} holds rows in Parquet files, not bytes: use write or stream_write_records. "
                    "DeltaTable.create_for_blobs makes a table of blobs."
                )
            self.path = f"{BLOBS_DIRECTORY}/{transaction.row_writer.new_uuid()}"
        self.size_bytes = 0
        self.cleanup_errors: tuple[Exception, ...] = ()
        self._sending = contextlib.ExitStack()
        file: BinaryIO = self._sending.enter_context(target.store.open_output(self.path))
        self._file: BinaryIO | HashedFile = file if options.checksum is None else HashedFile(file)
        self._state: Literal["open", "committed", "aborted", "unsettled"] = "open"
        self._is_sent = False
        self._version: int | None = None  # that added the blob
        self._in_doubt: DeltaLogError | None = None  # how its commit ended, where that left the outcome unknown

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write a piece. Returns its length in bytes. Raises StoreError; the blob is aborted then."""
        self._check_open()
        try:
            view = memoryview(data).cast("B")
        except TypeError:
            raise CallError(f"A piece of a blob is bytes; got {type(data).__name__}.") from None
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
        """Commit the blob: the next version adds one row.

        On an error the bytes are deleted, best effort, unless its outcome is unknown. Raises VersionConflictError and
        as Transaction.commit; when called again, FilesCommittedError after a commit. Cost: 1 PUT of the row, and the
        commit.
        """
        self._check_undecided()
        self._check_open()
        try:
            self._sending.close()
            self._is_sent = True
            self._state = "unsettled"  # stays so when the commit is interrupted by an error of another kind
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
        """End without a commit. The bytes are deleted, best effort; the failures are in ``cleanup_errors``. Idempotent.
        Raises after ``commit`` as that does."""
        if self._state != "aborted":
            self._check_undecided()
            self._check_open()
            self._abort_with(None)

    def close(self) -> None:
        """Abort the stream unless it is committed. Idempotent."""
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
        """Raise an error with the outcome of the commit, where that has not failed."""
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
        """The blob as commitInfo and the row describe it."""
        blob = {"path": self.path, "size": self.size_bytes}
        return {**blob, "sha256": self._file.hexdigest()} if isinstance(self._file, HashedFile) else blob

    def _abort_with(self, error: BaseException | None) -> BaseException:
        """Delete the files of the stream. Failures are added to the cause, and never replace it.

        Returns the cause: ``error``, or where that is an OSError of the file, the StoreError that the store raises
        from it.
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
    """Ends the writing of an abandoned file."""


def blob_path(snapshot: Snapshot) -> str:
    """The path of the blob that a version added. Raises CallError for a version that added none. Cost: 1 GET."""
    blob = snapshot.commit_summary.blob
    if blob is None:
        raise CallError(f"{snapshot.url}: version {snapshot.version} added no blob. Its rows name those that it has.")
    return blob.path
