"""What one version added, as its own commit tells it: files, counts, times, and what its author said. Pure.

Spec: PROTOCOL.md#commit-provenance-information, where writers may keep what they like: deltalog keeps ``deltalog``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from deltalog.errors import InvalidCommitError
from deltalog.protocol.actions import AddFile
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import commit_name

TOLD_KEY = "deltalog"
CHECKSUM_TAG = "deltalog.sha256"


@dataclass(frozen=True, slots=True)
class AddedFileSummary:
    """A file that a version added. ``path`` is relative to the table, as the log has it; ``sha256`` is there where the
    writer kept one; ``row_count`` and ``statistics`` (of PROTOCOL.md, parsed) are None where they are not known."""

    path: str
    size_bytes: int
    sha256: str | None = None
    row_count: int | None = None
    statistics: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """What a version added to the one before it, its ``parent`` (None for version 0).

    ``created_ms``: the in-commit timestamp, or without those the writer's clock. ``metadata``: what the author of the
    write gave, None where the commit says nothing (not every writer does). ``row_count``: the rows in ``files``, None
    when a file does not tell its own. ``min_timestamp_us`` and ``max_timestamp_us``: of the column that the author
    declared, in microseconds since 1970; None where none was declared or had a value. ``blob``: the bytes that a
    stream of bytes became; ``files`` then hold the row that names them.
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


def manifest_of(commit: CommitActions) -> CommitSummary:
    """The manifest of a commit. Raises InvalidCommitError when it names a parent that is not the version before."""
    info = {} if commit.commit_info is None else commit.commit_info.body
    told = info.get(TOLD_KEY)
    told = told if isinstance(told, dict) else {}
    parent = commit.version - 1 if commit.version else None
    if told.get("parent", parent) != parent:
        raise InvalidCommitError(
            f"Commit {commit_name(commit.version)} says that it follows version {told['parent']!r}. It was renamed or "
            "copied: restore the log from a copy.",
            version=commit.version,
            path=commit_name(commit.version),
        )
    files = tuple(_file(add) for add in commit.adds if add.data_change)
    counts = [file.row_count for file in files]
    ict_ms = None if commit.commit_info is None else commit.commit_info.in_commit_timestamp_ms
    return CommitSummary(
        version=commit.version,
        parent=parent,
        created_ms=_whole(info.get("timestamp")) if ict_ms is None else ict_ms,
        metadata=told["metadata"] if isinstance(told.get("metadata"), dict) else None,
        files=files,
        row_count=None if None in counts else sum(count for count in counts if count is not None),
        timestamp_column=_text(told.get("timestampColumn")),
        min_timestamp_us=_whole(told.get("minTimestampMicros")),
        max_timestamp_us=_whole(told.get("maxTimestampMicros")),
        blob=_blob(told.get("blob")),
        operation=_text(info.get("operation")),
        txn_id=_text(info.get("txnId")),
    )


def _file(add: AddFile) -> AddedFileSummary:
    statistics = _statistics(add.stats)
    rows = None if statistics is None else _whole(statistics.get("numRecords"))
    if rows is not None and add.deletion_vector is not None:
        rows -= add.deletion_vector.cardinality
    return AddedFileSummary(add.path, add.size, (add.tags or {}).get(CHECKSUM_TAG), rows, statistics)


def _statistics(text: str | None) -> dict[str, Any] | None:
    try:
        found = None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _blob(told: Any) -> AddedFileSummary | None:
    if not isinstance(told, dict):
        return None
    path, size = _text(told.get("path")), _whole(told.get("size"))
    return None if path is None or size is None else AddedFileSummary(path, size, _text(told.get("sha256")))


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
