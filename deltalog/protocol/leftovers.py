"""The file names by which a clean-up recognises files that killed writers left. Pure.

A matching name alone is not enough to delete a file: in addition, no retained version may name the file, and it must be
older than any write that can still be running.

Spec: PROTOCOL.md#data-files, #deletion-vector-files, #change-data-files.
"""

from __future__ import annotations

import enum
import re

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Engines ignore names with a leading underscore when they look for data and partitions. VACUUM also ignores directories
# with such names, except index directories, whose names begin with ``_delta_index``.
_JOB = "_delta_index-deltalog-job-"


class LeftoverKind(enum.Enum):
    """The kind of an unreferenced file below the table root, determined by the file's name."""

    JOB_FILE = "a file in the directory of a Spark job"
    DATA_FILE = "a data file"
    DELETION_VECTOR = "a file of deletion vectors"
    CHANGE_FILE = "a file of the change feed"
    BLOB = "a blob"
    TEMPORARY_FILE = "a temporary file"


# The order matters, because a job's directory contains data files and any directory can contain temporary files.
_KINDS = {
    LeftoverKind.JOB_FILE: re.compile(rf"{_JOB}{_UUID}/.+"),
    LeftoverKind.TEMPORARY_FILE: re.compile(rf"(?:.+/)?\.{_UUID}\.tmp"),
    LeftoverKind.CHANGE_FILE: re.compile(rf"_change_data/(?:[^/]+/)*cdc-[^/]*{_UUID}[^/]*\.parquet"),
    LeftoverKind.BLOB: re.compile(rf"_blobs/{_UUID}"),
    LeftoverKind.DELETION_VECTOR: re.compile(rf"(?:[^_./][^/]*/)?deletion_vector_{_UUID}\.bin"),
    # Hadoop writes a checksum file for each file, in the same directory.
    LeftoverKind.DATA_FILE: re.compile(
        rf"(?:(?:[^_./][^/]*|[^/]+=[^/]*)/)*(?:part-[^/]*{_UUID}[^/]*\.parquet|\.part-[^/]*{_UUID}[^/]*\.parquet\.crc)"
    ),
}


# For each kind of leftover file, a substring of every path of that kind.
_PARTS = (
    (LeftoverKind.JOB_FILE, _JOB),
    (LeftoverKind.TEMPORARY_FILE, ".tmp"),
    (LeftoverKind.CHANGE_FILE, "_change_data/"),
    (LeftoverKind.BLOB, "_blobs/"),
    (LeftoverKind.DELETION_VECTOR, "deletion_vector_"),
    (LeftoverKind.DATA_FILE, "part-"),
)


def job_directory_name(job_id: str) -> str:
    """The name of the directory below the table root to which one Spark job writes. ``job_id``: a UUID."""
    return _JOB + job_id


def leftover_kind(path: str) -> LeftoverKind | None:
    """Classify a file that no version names, by its decoded path below the table root. None if no known Delta writer
    uses such a name; a clean-up should keep such a file."""
    for kind, part in _PARTS:  # a substring search takes a tenth of the time of a regular expression match
        if part in path and _KINDS[kind].fullmatch(path):
            return kind
    return None
