"""The result of a commit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A commit in the log. ``attempts``: the number of versions that were tried; 0 if the call had nothing to do and
    made no commit (``skipped``). ``operation_metrics``: the operationMetrics in the commitInfo, such as the numbers of
    files added and removed; unknown numbers are omitted. ``operation``: the operation in the commitInfo, such as MERGE;
    None if no commit was made."""

    version: int
    timestamp_ms: int
    in_commit_timestamp_ms: int | None
    attempts: int
    txn_id: str
    operation_metrics: Mapping[str, str] = field(default_factory=dict, compare=False)
    operation: str | None = field(default=None, compare=False)

    @property
    def skipped(self) -> bool:
        """Whether no commit was made, because the table already has the requested state."""
        return self.attempts == 0

    @property
    def num_deleted_rows(self) -> int | None:
        """The number of rows deleted by a delete, a merge or an overwrite."""
        return self._number("numDeletedRows", "numTargetRowsDeleted")

    @property
    def num_updated_rows(self) -> int | None:
        """The number of rows updated."""
        return self._number("numUpdatedRows", "numTargetRowsUpdated")

    @property
    def num_inserted_rows(self) -> int | None:
        """The number of rows that a merge inserted."""
        return self._number("numTargetRowsInserted")

    @property
    def num_copied_rows(self) -> int | None:
        """The number of unchanged rows copied to new files."""
        return self._number("numCopiedRows", "numTargetRowsCopied")

    @property
    def num_source_rows(self) -> int | None:
        """The number of rows in a merge's source."""
        return self._number("numSourceRows")

    @property
    def num_output_rows(self) -> int | None:
        """The number of rows written into new files."""
        return self._number("numOutputRows")

    @property
    def num_added_files(self) -> int | None:
        """The number of data files added."""
        return self._number("numAddedFiles", "numTargetFilesAdded", "numFiles")

    @property
    def num_removed_files(self) -> int | None:
        """The number of data files removed."""
        return self._number("numRemovedFiles", "numTargetFilesRemoved")

    @property
    def num_deletion_vectors_added(self) -> int | None:
        """The number of files whose deletion vector was added or extended."""
        return self._number("numDeletionVectorsAdded", "numTargetDeletionVectorsAdded")

    def _number(self, *names: str) -> int | None:
        if self.skipped:
            return 0
        found = next((self.operation_metrics[name] for name in names if name in self.operation_metrics), None)
        return None if found is None else int(found)
