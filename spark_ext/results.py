"""The results of writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_MERGED = "num_affected_rows bigint, num_updated_rows bigint, num_deleted_rows bigint, num_inserted_rows bigint"


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write."""

    #: The committed version, or the latest version if nothing was committed.
    version: int
    committed: bool
    #: Why nothing was committed.
    reason: str | None = None
    #: The number of new data files, including files with copied rows.
    num_files: int = 0
    #: New rows.
    num_rows: int = 0
    #: The total size of the new data files, in bytes.
    num_bytes: int = 0
    num_removed_files: int = 0
    #: Replaced or deleted rows; None if a removed file has no statistics.
    num_removed_rows: int | None = 0
    #: Rows that were copied to new files because other rows of the same file were replaced or changed.
    num_copied_rows: int = 0
    #: The time of the commit.
    timestamp_ms: int | None = None
    #: None if the table has no in-commit timestamps.
    in_commit_timestamp_ms: int | None = None
    txn_id: str | None = None
    #: The operation metrics of a DELETE, UPDATE or MERGE, as recorded in its commit.
    operation_metrics: Mapping[str, int] = field(default_factory=dict)


class MergeResult(WriteResult):
    """The result of a merge. The result also behaves like the DataFrame that delta-spark returns: one row with
    ``num_affected_rows``, ``num_updated_rows``, ``num_deleted_rows`` and ``num_inserted_rows``, created at its first
    use."""

    __slots__ = ("_rows", "_spark")

    @classmethod
    def of(cls, spark: SparkSession, done: WriteResult) -> MergeResult:
        """The result of a merge, created from the result of its write."""
        result = cls(**{each.name: getattr(done, each.name) for each in fields(done)})
        object.__setattr__(result, "_spark", spark)
        return result

    def rows(self) -> DataFrame:
        """The DataFrame. Cost: none."""
        try:
            return object.__getattribute__(self, "_rows")
        except AttributeError:
            metrics = self.operation_metrics
            numbers = [int(metrics.get(f"numTargetRows{what}", 0)) for what in ("Updated", "Deleted", "Inserted")]
            rows = self._spark.createDataFrame([(sum(numbers), *numbers)], _MERGED)
            object.__setattr__(self, "_rows", rows)
            return rows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in MergeResult.__slots__:
            raise AttributeError(name)
        return getattr(self.rows(), name)

    def __getitem__(self, item: Any) -> Any:
        return self.rows()[item]
