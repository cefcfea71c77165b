"""The files that a job writes on a local disk: they are collected after the job and renamed into place, or removed
after a failure.

A job writes to its own directory, so that jobs cannot collide. The job's files are then renamed into the table's Hive
directories: other readers treat any ``key=value`` in a path as a partition column, and Spark discovers partitions below
one directory only.
"""

from __future__ import annotations

import contextlib
import decimal
import json
import os
import shutil
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import deltalog
from spark_ext.reading.bounded_footers import schema_of
from spark_ext.session import paths

# The directory of a failed job is removed repeatedly, until no task recreates the directory. The interval between
# checks, the number of successive checks that must not find the directory, and the maximum number of checks.
_CHECK_EVERY_S, _QUIET_CHECKS, _MAX_CHECKS = 0.1, 5, 100

# A data file: its relative path, and its partition values in the form in which the log stores them.
DataFile = tuple[str, dict[str, str | None]]


class JobDirectory:
    """The directory of one job below a table, and the files that were renamed out of it.

    Because of the directory's name, engines ignore the files that a killed process leaves in it, and vacuum recognises
    them.
    """

    def __init__(self, table_directory: str, name: str) -> None:
        self._table, self._name = table_directory, name
        self._placed: list[str] = []
        self._made: list[str] = []
        self._made_table = make_durable(table_directory)

    @property
    def path(self) -> str:
        """The absolute path."""
        return os.path.join(self._table, self._name)

    def place(self, found: Sequence[DataFile], below: str = "") -> list[DataFile]:
        """Move the job's files from ``path`` to the same relative paths below the table, or below the directory
        ``below`` in it. Returns the files with their paths relative to the table.

        A file that cannot be renamed, or whose new path exists or contains a symbolic link, stays in the job's
        directory, and the log refers to it there."""
        prefix = f"{below}/" if below else ""
        placed = [(self._placed_at(path, prefix + path), values) for path, values in found]
        if len(self._placed) == len(placed):
            shutil.rmtree(self.path, ignore_errors=True)
        return placed

    def _placed_at(self, path: str, wanted: str) -> str:
        source, target = os.path.join(self.path, path), os.path.join(self._table, wanted)
        try:
            if self._is_ready(os.path.dirname(wanted)) and not os.path.lexists(target):
                os.rename(source, target)
                self._placed.append(target)
                return wanted
        except OSError:
            pass
        return f"{self._name}/{path}"

    def _is_ready(self, below: str) -> bool:
        """Whether the directory, which is created if necessary, exists and is not a symbolic link."""
        directory = self._table
        for segment in below.split("/") if below else ():
            directory = os.path.join(directory, segment)
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory)
                self._made.append(directory)
            if os.path.islink(directory):
                return False
        return True

    def remove(self, stragglers: bool = False) -> None:
        """Remove the files, and the directories that this job created (including the table's) if they are empty. Best
        effort. ``stragglers``: whether tasks of a failed or cancelled job may still run for a moment and recreate the
        job's directory."""
        quiet = 0
        for _ in range(_MAX_CHECKS if stragglers else 0):
            quiet = 0 if os.path.exists(self.path) else quiet + 1
            if quiet > _QUIET_CHECKS:
                break
            shutil.rmtree(self.path, ignore_errors=True)
            time.sleep(_CHECK_EVERY_S)
        for path in self._placed:
            with contextlib.suppress(OSError):
                os.unlink(path)
        shutil.rmtree(self.path, ignore_errors=True)
        for directory in [*reversed(self._made), *([self._table] if self._made_table else [])]:
            with contextlib.suppress(OSError):
                os.rmdir(directory)


def collect(
    directory: str, target: deltalog.schema.StructType, partition_columns: Sequence[str], stored_columns: Sequence[str]
) -> list[DataFile]:
    """The data files of a job; their paths are relative to the job's directory. Other files that Spark wrote to the
    directory are removed.

    ``stored_columns``: the names that the log uses for ``partition_columns``.
    """
    found: list[DataFile] = []
    for parent, directories, files in os.walk(directory):
        # Skip directories of abandoned tasks, whose files are not part of the job.
        directories[:] = sorted(name for name in directories if not name.startswith(("_", ".")) or "=" in name)
        below = os.path.relpath(parent, directory)
        segments = [] if below == "." else below.split(os.sep)
        for file in sorted(files):
            path = os.path.join(parent, file)
            if file.startswith((".", "_")) or not file.endswith(".parquet"):
                os.unlink(path)
            elif _has_rows(path, segments):
                values = _partition_values(segments, target, partition_columns)
                logged = dict(zip(stored_columns, values, strict=True))
                found.append(("/".join([*segments, file]), logged))
            else:
                os.unlink(path)
    return found


def _has_rows(path: str, segments: Sequence[str]) -> bool:
    # Spark writes a file without rows only in the first task of a job whose table has no partition columns.
    if segments or not os.path.basename(path).startswith("part-00000-"):
        return True
    try:
        return bool(schema_of(path)[1])
    except (pa.ArrowException, OSError, ValueError):
        return True  # a damaged file is refused when it is added, with an error that names it


def _partition_values(
    segments: Sequence[str], target: deltalog.schema.StructType, partition_columns: Sequence[str]
) -> list[str | None]:
    values: list[str | None] = []
    for segment, name in zip(segments, partition_columns, strict=True):
        text = segment.partition("=")[2]
        value = None if text == paths.HIVE_NULL else paths.hive_unescape(text)
        values.append(None if value is None else _as_logged(value, target.field(name)))
    return values


def _as_logged(text: str, field: deltalog.schema.StructField) -> str:
    if isinstance(field.data_type, deltalog.schema.DecimalType) and "E" in text:
        return format(decimal.Decimal(text), "f")
    if str(field.data_type) == "timestamp":
        day, _, time = text.partition(" ")
        seconds, _, fraction = time.partition(".")
        return f"{day}T{seconds}.{fraction:0<6}Z"
    return text


def rows_of(add: Any) -> int:
    """The number of rows in the statistics of an add action."""
    return int(json.loads(add.stats).get("numRecords", 0)) if add.stats else 0


def make_durable(directory: str) -> bool:
    """Create the table's directory durably, before Spark does. Returns whether the directory did not exist before."""
    missing = []
    current = directory
    while not os.path.isdir(current):
        missing.append(current)
        current = os.path.dirname(current)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each)
        if os.name == "nt":  # Windows opens no directory
            continue
        descriptor = os.open(os.path.dirname(each), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return bool(missing)
