"""What a write returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write.

    ``version``: the version committed, or the latest one when nothing was committed; then ``committed`` is
    False and ``reason`` says why. ``num_rows``: those of the DataFrame. ``num_files`` and ``num_bytes``: of the data
    files that were written, those of copied rows included. ``num_removed_rows``: the rows that were replaced, None if
    a removed file has no statistics. ``num_copied_rows``: rows that were moved into new files, since ``replaceWhere``
    replaced a part of their file.
    ``timestamp_ms`` and ``in_commit_timestamp_ms`` (None where in-commit
    timestamps are off) are those of the commit. ``operation_metrics``: of a verb that changes rows, as the commit has
    them.
    """

    version: int
    committed: bool
    reason: str | None = None
    num_files: int = 0
    num_rows: int = 0
    num_bytes: int = 0
    num_removed_files: int = 0
    num_removed_rows: int | None = 0
    num_copied_rows: int = 0
    timestamp_ms: int | None = None
    in_commit_timestamp_ms: int | None = None
    txn_id: str | None = None
    operation_metrics: Mapping[str, int] = field(default_factory=dict)
