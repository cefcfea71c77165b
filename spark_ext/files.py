"""The files of a write on the local disk: collected after the job, durable, and gone again after a failure."""

from __future__ import annotations

import contextlib
import decimal
import json
import os
import shutil
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

import deltalog
from spark_ext import paths


def collect(
    directory: str,
    name: str,
    target: deltalog.StructType,
    partition_columns: Sequence[str],
    stored_columns: Sequence[str],
) -> list[tuple[str, dict[str, str | None]]]:
    """The data files of the job with their partition values; Spark's by-products are removed.

    ``stored_columns``: the names that the log has for ``partition_columns``.
    """
    found: list[tuple[str, dict[str, str | None]]] = []
    for parent, directories, files in os.walk(directory):
        directories.sort()
        below = os.path.relpath(parent, directory)
        segments = [] if below == "." else below.split(os.sep)
        for file in sorted(files):
            path = os.path.join(parent, file)
            if file.startswith((".", "_")) or not file.endswith(".parquet"):
                os.unlink(path)
            elif _has_rows(path, segments):
                values = _partition_values(segments, target, partition_columns)
                logged = dict(zip(stored_columns, values, strict=True))
                found.append(("/".join([name, *segments, file]), logged))
            else:
                os.unlink(path)
    return found


def _has_rows(path: str, segments: Sequence[str]) -> bool:
    # Spark writes a file without rows only for the first task of a job that does not partition.
    if segments or not os.path.basename(path).startswith("part-00000-"):
        return True
    return bool(pq.read_metadata(path).num_rows)


def _partition_values(
    segments: Sequence[str], target: deltalog.StructType, partition_columns: Sequence[str]
) -> list[str | None]:
    values: list[str | None] = []
    for segment, name in zip(segments, partition_columns, strict=True):
        text = segment.partition("=")[2]
        value = None if text == paths.HIVE_NULL else paths.hive_unescape(text)
        values.append(None if value is None else _as_logged(value, target.field(name)))
    return values


def _as_logged(text: str, field: deltalog.StructField) -> str:
    if isinstance(field.data_type, deltalog.DecimalType) and "E" in text:
        return format(decimal.Decimal(text), "f")
    if str(field.data_type) == "timestamp":
        day, _, time = text.partition(" ")
        seconds, _, fraction = time.partition(".")
        return f"{day}T{seconds}.{fraction:0<6}Z"
    return text


def rows_of(add: Any) -> int:
    return int(json.loads(add.stats).get("numRecords", 0)) if add.stats else 0


def make_durable(directory: str) -> bool:
    """Make the table's directory before Spark does, durably. Whether it was not there."""
    missing = []
    current = directory
    while not os.path.isdir(current):
        missing.append(current)
        current = os.path.dirname(current)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each)
        descriptor = os.open(os.path.dirname(each), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return bool(missing)


def remove(directory: str, with_table: bool) -> None:
    """Remove a job's directory, and the table's own one when this write made it and nothing is in it."""
    shutil.rmtree(directory, ignore_errors=True)
    if with_table:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(directory))
