"""The result of a commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A commit that is in the log. ``attempts`` counts the versions tried; 0 when the call had nothing to do
    and made no commit (``skipped``). ``operation_metrics``: as in its commitInfo, what it added and removed; unknown
    numbers are left out."""

    version: int
    timestamp_ms: int
    in_commit_timestamp_ms: int | None
    attempts: int
    txn_id: str
    operation_metrics: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def skipped(self) -> bool:
        """Whether no commit was made, because the table already has the requested state."""
        return self.attempts == 0
