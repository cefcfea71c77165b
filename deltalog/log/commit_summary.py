"""The summary of a commit: the files that it added, their row counts and time bounds, and the author's metadata. Pure.

Spec: PROTOCOL.md#commit-provenance-information, which allows custom keys in commitInfo; deltalog uses the key
``deltalog``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from deltalog.errors import InvalidCommitError
from deltalog.protocol.actions import AddFile, CommitInfo
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.json_values import mapping_or_empty, text_or_none, whole_or_none
from deltalog.protocol.paths import commit_name

ANNOTATIONS_KEY = "deltalog"
CHECKSUM_TAG = "deltalog.sha256"


class AddedFileSummary(msgspec.Struct, frozen=True):
    """A file that a version added.

    ``path``: relative to the table root, as in the log. ``sha256``: None if the writer of the file did not record the
    hash. ``row_count`` and ``statistics`` (parsed, see PROTOCOL.md#per-file-statistics): None without statistics.
    """

    path: str
    size_bytes: int
    sha256: str | None = None
    row_count: int | None = None
    statistics: Mapping[str, Any] | None = None


class CommitSummary(msgspec.Struct, frozen=True):
    """The changes that a version made relative to ``parent``, the version before it (None for version 0).

    ``created_ms``: the in-commit timestamp if the commit has one, else the timestamp from the writer's clock, in
    milliseconds since 1970. ``metadata``: the mapping that the author passed to the write; None if the commit has none,
    for example if another writer made it. ``row_count``: the number of rows in ``files``; None if the row count of any
    file is unknown. ``min_timestamp_us`` and ``max_timestamp_us``: the bounds of ``timestamp_column``, in microseconds
    since 1970; None if no column was declared or the column has only nulls. ``blob``: the blob, if the commit was
    written from a stream of bytes; the row that names the blob is then in ``files``.
    """

    version: int
    parent: int | None
    created_ms: int | None
    metadata: Mapping[str, Any] | None
    files: tuple[AddedFileSummary, ...]
    row_count: int | None
    timestamp_column: str | None = None
    min_timestamp_us: int | None = None
    max_timestamp_us: int | None = None
    blob: AddedFileSummary | None = None
    operation: str | None = None
    txn_id: str | None = None


def summary_of(commit: CommitActions) -> CommitSummary:
    """The summary of a commit. Raises InvalidCommitError if it names a parent other than the previous version."""
    info = commit.commit_info or CommitInfo({})
    annotations = mapping_or_empty(info.body.get(ANNOTATIONS_KEY))
    parent = commit.version - 1 if commit.version else None
    if annotations.get("parent", parent) != parent:
        raise InvalidCommitError(
            f"Commit {commit_name(commit.version)} names version {annotations['parent']!r} as its parent. It was "
            "renamed or copied: restore the log from a copy.",
            version=commit.version,
            path=commit_name(commit.version),
        )
    files = tuple(_file(add) for add in commit.adds if add.data_change)
    counts = [file.row_count for file in files]
    ict_ms = info.in_commit_timestamp_ms
    return CommitSummary(
        version=commit.version,
        parent=parent,
        created_ms=whole_or_none(info.body.get("timestamp")) if ict_ms is None else ict_ms,
        metadata=annotations["metadata"] if isinstance(annotations.get("metadata"), dict) else None,
        files=files,
        row_count=None if None in counts else sum(count for count in counts if count is not None),
        timestamp_column=text_or_none(annotations.get("timestampColumn")),
        min_timestamp_us=whole_or_none(annotations.get("minTimestampMicros")),
        max_timestamp_us=whole_or_none(annotations.get("maxTimestampMicros")),
        blob=_blob(annotations.get("blob")),
        operation=info.operation,
        txn_id=info.txn_id,
    )


def _file(add: AddFile) -> AddedFileSummary:
    statistics = _statistics(add.stats)
    rows = None if statistics is None else whole_or_none(statistics.get("numRecords"))
    if rows is not None and add.deletion_vector is not None:
        rows -= add.deletion_vector.cardinality
    return AddedFileSummary(add.path, add.size, (add.tags or {}).get(CHECKSUM_TAG), rows, statistics)


def _statistics(text: str | None) -> dict[str, Any] | None:
    try:
        statistics = None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return statistics if isinstance(statistics, dict) else None


def _blob(blob: Any) -> AddedFileSummary | None:
    if not isinstance(blob, dict):
        return None
    path, size = text_or_none(blob.get("path")), whole_or_none(blob.get("size"))
    return None if path is None or size is None else AddedFileSummary(path, size, text_or_none(blob.get("sha256")))
