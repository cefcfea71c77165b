"""Passes the names and sizes of many files to Spark, so that Spark does not look up the files.

Spark looks up every path of a scan, and more than 32 paths in a job with one task per path. If a directory has a
``_spark_metadata`` log, the format of the streaming file sink, Spark trusts the list of files in it, whose paths may be
anywhere. For each scan, deltalog writes a ``_spark_metadata`` log to a temporary directory outside the table.
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
# The name of a file that is not valid Parquet, so that the scan fails if Spark ignores the log and lists the directory.
_GUARD = "the-list-of-files-was-ignored"
# Paths that need no escaping in Spark's URIs or in JSON.
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
    """Raise InvalidDataFileError for an empty file, which Spark would skip."""
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
    """A scan of ``columns`` in the files; each file must be listed only once. ``reader``: returns a reader with the
    given options; ``discovers``: whether Spark discovers partition values in the directory names.

    None if Spark cannot read this process's temporary directory, or is configured to ignore ``_spark_metadata`` logs.
    Raises InvalidDataFileError for a missing or empty file. Cost: no Spark job, and no store call per file.
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
        # A scan of the log directory contributes no rows, but makes Spark check that the directory still exists.
        exists = reader({}).load(paths.uri(os.path.join(directory, _LOG)))
        lookup = {"recursiveFileLookup": "false" if discovers else "true"}
        found = reader(lookup).load(paths.uri(directory)).select(*columns)
        if not is_connect(spark):
            return found  # classic Spark has read the list by now
        # Spark Connect may read the list again for every query. If the ``_spark_metadata`` log no longer exists by
        # then, the query fails instead of returning no rows.
        guarded = found.union(exists.where(F.lit(False)).select(*[F.lit(None)] * len(columns)))
        guarded.schema  # noqa: B018 # the server reads the list
        # Derived DataFrames refer to the plan, so the directory is kept as long as any of them exists.
        weakref.finalize(vars(found)["_plan"], scratch.remove)
        kept = True
        return guarded
    except deltalog.errors.InvalidDataFileError:
        raise
    except Exception:
        return None  # Spark then lists the files itself, and reports the problem
    finally:
        if scratch is not None and not kept:
            scratch.remove()


def _lines(files: Sequence[Entry]) -> list[str] | None:
    """The lines of the ``_spark_metadata`` log for the files; None if one of them is not a regular file."""
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
