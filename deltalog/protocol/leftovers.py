"""Names by which a clean-up recognises the files that writers leave when they are killed. Pure.

Nothing here says that a file can be deleted: it must not be named by any version that is kept, and be older than any
write that can still be running.

Spec: PROTOCOL.md#data-files, #deletion-vector-files, #change-data-files.
"""

from __future__ import annotations

import enum
import re

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Engines take nothing below a name with an underscore for data or for a partition. VACUUM ignores such directories
# too, except those whose names begin with that of the directory for indexes.
_JOB = "_delta_index-deltalog-job-"


class LeftoverKind(enum.Enum):
    """What a file below a table's root is by its name, if no version names it."""

    JOB_FILE = "a file in the directory of a Spark job"
    DATA_FILE = "a data file"
    DELETION_VECTOR = "a file of deletion vectors"
    CHANGE_FILE = "a file of the change feed"
    BLOB = "a blob"
    TEMPORARY_FILE = "a temporary file"


# In this order: a job's directory has data files, and any directory can have temporary ones.
_KINDS = {
    LeftoverKind.JOB_FILE: re.compile(rf"{_JOB}{_UUID}/.+"),
    LeftoverKind.TEMPORARY_FILE: re.compile(rf"(?:.+/)?\.{_UUID}\.tmp"),
    LeftoverKind.CHANGE_FILE: re.compile(rf"_change_data/(?:[^/]+/)*cdc-[^/]*{_UUID}[^/]*\.parquet"),
    LeftoverKind.BLOB: re.compile(rf"_blobs/{_UUID}"),
    LeftoverKind.DELETION_VECTOR: re.compile(rf"(?:[^_./][^/]*/)?deletion_vector_{_UUID}\.bin"),
    # Hadoop's checksum of a file lies beside it.
    LeftoverKind.DATA_FILE: re.compile(
        rf"(?:(?:[^_./][^/]*|[^/]+=[^/]*)/)*(?:part-[^/]*{_UUID}[^/]*\.parquet|\.part-[^/]*{_UUID}[^/]*\.parquet\.crc)"
    ),
}


# What each kind of path has in it.
_PARTS = (
    (LeftoverKind.JOB_FILE, _JOB),
    (LeftoverKind.TEMPORARY_FILE, ".tmp"),
    (LeftoverKind.CHANGE_FILE, "_change_data/"),
    (LeftoverKind.BLOB, "_blobs/"),
    (LeftoverKind.DELETION_VECTOR, "deletion_vector_"),
    (LeftoverKind.DATA_FILE, "part-"),
)


def job_directory_name(job_id: str) -> str:
    """The name below a table's root of the directory that one Spark job writes to. ``job_id``: a UUID."""
    return _JOB + job_id


def leftover_kind(path: str) -> LeftoverKind | None:
    """What a file that no version names is, by its decoded path below the table's root. None: no writer of Delta tables
    that is known names a file so, and a clean-up should leave it."""
    for kind, part in _PARTS:  # a search for its text costs a tenth of a match
        if part in path and _KINDS[kind].fullmatch(path):
            return kind
    return None
