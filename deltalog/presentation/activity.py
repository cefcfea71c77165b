"""What a commit did to rows, files and bytes, according to its metrics. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deltalog.presentation.text import bytes_text, plural

# Metric names of delta-spark, deltalake and deltalog, in order of preference.
_ACTIVITY: Mapping[str, tuple[str, ...]] = {
    "rows_added": ("numTargetRowsInserted", "numUpdatedRows", "numOutputRows", "num_added_rows", "num_inserted_rows"),
    "rows_removed": ("numTargetRowsDeleted", "numDeletedRows", "num_deleted_rows"),
    "files_added": (
        "numTargetFilesAdded",
        "numAddedFiles",
        "numRestoredFiles",
        "numFiles",
        "num_added_files",
        "numFilesAdded",
    ),
    "files_removed": ("numTargetFilesRemoved", "numRemovedFiles", "num_removed_files", "numFilesRemoved"),
    "bytes_added": ("numTargetBytesAdded", "numAddedBytes", "restoredFilesSize", "numOutputBytes"),
    "bytes_removed": ("numTargetBytesRemoved", "numRemovedBytes", "removedFilesSize"),
}
ACTIVITY = tuple(_ACTIVITY)


def activity(metrics: Mapping[str, Any]) -> dict[str, int | None]:
    """The rows, files and bytes that a commit added and removed according to its metrics; None if not recorded."""
    done = {
        name: next((n for key in keys if (n := _integer(metrics.get(key))) is not None), None)
        for name, keys in _ACTIVITY.items()
    }
    # The output rows of replaceWhere include rewritten rows.
    added, copied = done["rows_added"], _integer(metrics.get("numCopiedRows"))
    if added and copied and added == _integer(metrics.get("numOutputRows")):
        done["rows_added"] = max(added - copied, 0)
    return done


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return None


# Operations that delete the rows of the files that they remove. All other operations only rewrite files, or record the
# number of deleted rows.
_REMOVES_ROWS = re.compile(r"WRITE|DELETE|TRUNCATE|RESTORE|(CREATE OR )?REPLACE TABLE", re.A)


def removes_unknown_rows(metrics: Mapping[str, Any], operation: str | None) -> bool:
    """Whether a commit deleted rows but did not record how many."""
    done = activity(metrics)
    return bool(done["files_removed"] and done["rows_removed"] is None and _REMOVES_ROWS.match(operation or ""))


def activity_text(metrics: Mapping[str, Any], operation: str | None = None) -> str:
    """+27,004 rows, −? rows, +16 files, −2 files, 1.2 MB."""
    done = activity(metrics)
    parts = []
    for kind, one in (("rows", "row"), ("files", "file")):
        added, removed = done[f"{kind}_added"], done[f"{kind}_removed"]
        if added:
            parts.append(f"+{plural(added, one)}")
        if removed:
            parts.append(f"−{plural(removed, one)}")
        elif kind == "rows" and removes_unknown_rows(metrics, operation):
            parts.append("−? rows")
    if done["bytes_added"]:
        parts.append(bytes_text(done["bytes_added"]))
    return ", ".join(parts)
