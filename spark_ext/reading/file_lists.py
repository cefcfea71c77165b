"""Names and sizes of many files, for Spark to take without listing them.

Spark looks up each path that it is given, and more than 32 of them in a job with a task for each. It does not where a
directory has a log of files in ``_spark_metadata``, the format of its streaming file sink: names and sizes are then
taken from that log, wherever the files are. Such a directory is made for a scan, outside of the table.
"""

from __future__ import annotations

import json
import os
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading.file_entries import Entry
from spark_ext.session import paths
from spark_ext.session.scratch import ScratchDirectory
from spark_ext.session.settings import is_connect

_PREFIX = "deltalog-file-list-"
_LOG = "_spark_metadata/0"
_IGNORED = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
# What Spark finds where it ignores the log and lists the directory: no Parquet, so that the scan fails.
_GUARD = "the-list-of-files-was-ignored"
# Paths that need no escapes in any of Spark's spellings, nor in JSON.
_PLAIN = re.compile(r"/[\w/.+-]+", re.ASCII)
_LINE = (
    '\n{"path":%s,"size":%d,"isDir":false,"modificationTime":%d,'
    '"blockReplication":1,"blockSize":33554432,"action":"add"}'
)


def missing_file(path: str) -> deltalog.errors.InvalidDataFileError:
    return deltalog.errors.InvalidDataFileError(
        f"The data file {path} is missing, but the log names it. It was deleted by hand, or by VACUUM if "
        "this is an old version; restore it, or read a version that does not need it.",
        path=path,
    )


def check_not_empty(files: Iterable[Entry]) -> None:
    """Raises InvalidDataFileError for a file without a byte, which Spark skips."""
    for file in files:
        if file.size_bytes == 0:
            raise deltalog.errors.InvalidDataFileError(
                f"The data file {file.path} is empty, but the log names it. Restore it, or read a version that does "
                "not need it.",
                path=file.path,
            )


def scan(
    spark: SparkSession,
    reader: Callable[[Mapping[str, str]], DataFrameReader],
    files: Sequence[Entry],
    columns: Sequence[Column | str],
    discovers: bool,
) -> DataFrame | None:
    """Columns of the files (each once). ``reader``: one with these options; ``discovers``: it takes
    partition values from the directories above the files.

    None where Spark cannot read what this process writes to its temporary directory, or ignores such logs. Raises
    InvalidDataFileError for a file that is missing or empty. Cost: no Spark job, and no call for each file.
    """
    if str(spark.conf.get(_IGNORED, "false")).lower() != "false":
        return None
    scratch, kept = None, False
    try:
        lines = _lines(files)
        scratch = ScratchDirectory(_PREFIX)
        directory = scratch.path
        if lines is None or _PLAIN.fullmatch(directory) is None:
            return None
        _write(directory, lines)
        # The log as if it was data: a path that must exist where Spark looks for it, and has no rows.
        exists = reader({}).load(paths.uri(os.path.join(directory, _LOG)))
        lookup = {"recursiveFileLookup": "false" if discovers else "true"}
        found = reader(lookup).load(paths.uri(directory)).select(*columns)
        if not is_connect(spark):
            return found  # classic Spark has the list now
        # Spark Connect may take it again for each query, which so fails without the log, instead of having no rows.
        guarded = found.union(exists.where(F.lit(False)).select(*[F.lit(None)] * len(columns)))
        guarded.schema  # noqa: B018 # the server reads the list
        # Derived DataFrames refer to the plan: the directory is there as long as one of them.
        weakref.finalize(vars(found)["_plan"], scratch.remove)
        kept = True
        return guarded
    except deltalog.errors.InvalidDataFileError:
        raise
    except Exception:
        return None  # whatever it is: Spark lists the files itself then, or says what is wrong
    finally:
        if scratch is not None and not kept:
            scratch.remove()


def _lines(files: Sequence[Entry]) -> list[str] | None:
    """The log's lines on the files; None if one is not a regular file."""
    check_not_empty(files)
    lines = []
    for file in files:
        if file.size_bytes is None:
            if not os.path.exists(file.path):
                raise missing_file(file.path)
            return None
        path = file.path
        key = f'"file://{path}"' if _PLAIN.fullmatch(path) else json.dumps(paths.file_keys(path)[-1])
        lines.append(_LINE % (key, file.size_bytes, file.modified_ms))
    return lines


def _write(directory: str, lines: Iterable[str]) -> None:
    os.mkdir(os.path.dirname(os.path.join(directory, _LOG)))
    with open(os.path.join(directory, _LOG), "w", encoding="ascii", newline="") as file:
        file.write("v1")
        file.writelines(lines)
    with open(os.path.join(directory, _GUARD), "w", encoding="ascii") as file:
        file.write("a scan of this fails")
