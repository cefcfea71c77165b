"""What a write returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_MERGED = "num_affected_rows bigint, num_updated_rows bigint, num_deleted_rows bigint, num_inserted_rows bigint"


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


class MergeResult(WriteResult):
    """The result of a merge, which is also the DataFrame that delta-spark returns: one row with ``num_affected_rows``,
    ``num_updated_rows``, ``num_deleted_rows`` and ``num_inserted_rows``. It is made when a member of it is used."""

    __slots__ = ("_made", "_spark")

    @classmethod
    def of(cls, spark: SparkSession, done: WriteResult) -> MergeResult:
        """The result with its DataFrame."""
        made = cls(**{each.name: getattr(done, each.name) for each in fields(done)})
        object.__setattr__(made, "_spark", spark)
        return made

    def rows(self) -> DataFrame:
        """The DataFrame. Cost: none; it is made once."""
        try:
            return object.__getattribute__(self, "_made")
        except AttributeError:
            metrics = self.operation_metrics
            numbers = [int(metrics.get(f"numTargetRows{what}", 0)) for what in ("Updated", "Deleted", "Inserted")]
            made = self._spark.createDataFrame([(sum(numbers), *numbers)], _MERGED)
            object.__setattr__(self, "_made", made)
            return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in MergeResult.__slots__:
            raise AttributeError(name)
        return getattr(self.rows(), name)

    def __getitem__(self, item: Any) -> Any:
        return self.rows()[item]
