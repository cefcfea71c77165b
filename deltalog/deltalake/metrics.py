"""The metrics that verbs return, under deltalake's names."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from deltalog.commit_result import CommitResult
from deltalog.maintenance.optimize.plan import OptimizeReport


class Timer:
    """Milliseconds since this object was created."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def ms(self) -> int:
        """The milliseconds so far."""
        return int((time.monotonic() - self._began) * 1000)


def of_delete(result: CommitResult, timer: Timer) -> dict[str, Any]:
    """Of a delete. The number of rows is left out if whole files without statistics were removed."""
    found = {
        "num_added_files": result.num_added_files,
        "num_removed_files": result.num_removed_files,
        "num_deleted_rows": result.num_deleted_rows,
        "num_copied_rows": result.num_copied_rows,
        "execution_time_ms": timer.ms,
        "scan_time_ms": 0,
        "rewrite_time_ms": 0,
    }
    return {name: value for name, value in found.items() if value is not None}


def of_update(result: CommitResult, timer: Timer) -> dict[str, Any]:
    """Of an update."""
    return {
        "num_added_files": result.num_added_files or 0,
        "num_removed_files": result.num_removed_files or 0,
        "num_updated_rows": result.num_updated_rows or 0,
        "num_copied_rows": result.num_copied_rows or 0,
        "execution_time_ms": timer.ms,
        "scan_time_ms": 0,
    }


def of_merge(result: CommitResult, num_source_rows: int, num_files: int, timer: Timer) -> dict[str, Any]:
    """Of a merge. ``num_files``: the number of files that the table had before the merge."""
    numbers = result.operation_metrics

    def number(name: str) -> int:
        return int(numbers.get(name, 0))

    removed = number("numTargetFilesRemoved")
    return {
        "num_source_rows": number("numSourceRows") or num_source_rows,
        "num_target_rows_inserted": number("numTargetRowsInserted"),
        "num_target_rows_updated": number("numTargetRowsUpdated"),
        "num_target_rows_deleted": number("numTargetRowsDeleted"),
        "num_target_rows_copied": number("numTargetRowsCopied"),
        "num_output_rows": number("numOutputRows"),
        "num_target_files_scanned": removed,
        "num_target_files_skipped_during_scan": max(num_files - removed, 0),
        "num_target_files_added": number("numTargetFilesAdded"),
        "num_target_files_removed": removed,
        "execution_time_ms": timer.ms,
        "scan_time_ms": 0,
        "rewrite_time_ms": 0,
    }


def of_optimize(report: OptimizeReport, keeps_order: bool) -> dict[str, Any]:
    """Of an optimization."""
    removed, added = list(report.removed.values()), list(report.added.values())
    return {
        "numFilesAdded": len(added),
        "numFilesRemoved": len(removed),
        "filesAdded": _sizes(added),
        "filesRemoved": _sizes(removed),
        "partitionsOptimized": report.partitions,
        "numBatches": report.bins,
        "totalConsideredFiles": report.considered,
        "totalFilesSkipped": report.considered - len(removed),
        "preserveInsertionOrder": keeps_order,
        "plannerStrategy": "preserveLocality" if keeps_order else "zOrder",
        "preservedStableOrder": keeps_order,
        "maxBinSpanFiles": len(removed),
    }


def _sizes(sizes: Iterable[int]) -> str:
    found = list(sizes)
    total = sum(found)
    return json.dumps(
        {
            "avg": total / len(found) if found else 0.0,
            "max": max(found, default=0),
            "min": min(found, default=0),
            "totalFiles": len(found),
            "totalSize": total,
        },
        separators=(",", ":"),
    )
