"""Names and sizes of many files, for Spark to take without listing them.

Spark looks up each path that it is given, and more than 32 of them in a job with a task for each. It does not where a
directory has a log of files in ``_spark_metadata``, the format of its streaming file sink: names and sizes are then
taken from that log, wherever the files are. Such a directory is made for a scan, outside of the table.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

import deltalog
from spark_ext import paths

_PREFIX = "deltalog-file-list-"
_LOG = "_spark_metadata/0"
_IGNORED = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
# What Spark finds where it ignores the log and lists the directory: no Parquet, so that the scan fails.
_GUARD = "the-list-of-files-was-ignored"
# Directories that need no escapes in any of Spark's spellings.
_PLAIN = re.compile(r"/[\w/.+-]+", re.ASCII)
_LINE = (
    '\n{"path":%s,"size":%d,"isDir":false,"modificationTime":%d,'
    '"blockReplication":1,"blockSize":33554432,"action":"add"}'
)
_THREADS, _AT_ONCE = 8, 4096


def missing_file(path: str) -> deltalog.InvalidDataFileError:
    return deltalog.InvalidDataFileError(
        f"The data file {path} is missing, but the log names it. It was deleted by hand, or by VACUUM if "
        "this is an old version; restore it, or read a version that does not need it.",
        path=path,
    )


def check_not_empty(files: Iterable[str]) -> None:
    """Raises InvalidDataFileError for a file without a byte, which Spark skips. Cost: 1 stat for each file."""
    for file in files:
        with contextlib.suppress(OSError):  # Spark has the say on it
            _check_size(file, os.stat(file).st_size)


def _check_size(file: str, size: int) -> None:
    if not size:
        raise deltalog.InvalidDataFileError(
            f"The data file {file} is empty, but the log names it. Restore it, or read a version that does not "
            "need it.",
            path=file,
        )


def scan(
    spark: SparkSession,
    reader: Callable[[Mapping[str, str]], DataFrameReader],
    files: Sequence[str],
    columns: Sequence[Column],
    discovers: bool,
) -> DataFrame | None:
    """Columns of the files (absolute paths, each once). ``reader``: one with these options; ``discovers``: it takes
    partition values from the directories above the files.

    None where Spark cannot read what this process writes to its temporary directory, or ignores such logs. Raises
    InvalidDataFileError for a file that is missing or empty. Cost: 1 stat for each file; no Spark job.
    """
    if str(spark.conf.get(_IGNORED, "false")).lower() != "false":
        return None
    directory, kept = None, False
    try:
        lines = _lines(files)
        directory = tempfile.mkdtemp(prefix=_PREFIX)
        if None in lines or _PLAIN.fullmatch(directory) is None:
            return None
        _write(directory, lines)
        # The log as if it was data: a path that must exist where Spark looks for it, and has no rows.
        exists = reader({}).load(paths.uri(os.path.join(directory, _LOG)))
        lookup = {"recursiveFileLookup": "false" if discovers else "true"}
        found = reader(lookup).load(paths.uri(directory)).select(*columns)
        if not type(found).__module__.startswith("pyspark.sql.connect"):
            return found  # classic Spark has the list now
        # Spark Connect may take it again for each query, which so fails without the log, instead of having no rows.
        guarded = found.union(exists.where(F.lit(False)).select(*[F.lit(None)] * len(columns)))
        guarded.schema  # noqa: B018 # the server reads the list
        # Derived DataFrames refer to the plan: the directory is there as long as one of them.
        weakref.finalize(vars(found)["_plan"], shutil.rmtree, directory, ignore_errors=True)
        kept = True
        return guarded
    except deltalog.InvalidDataFileError:
        raise
    except Exception:
        return None  # whatever it is: Spark lists the files itself then, or says what is wrong
    finally:
        if directory is not None and not kept:
            shutil.rmtree(directory, ignore_errors=True)


def _lines(files: Sequence[str]) -> list[str | None]:
    """The log's lines on the files; None for one that is not a regular file."""
    pieces = [files[at : at + _AT_ONCE] for at in range(0, len(files), _AT_ONCE)]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(chain.from_iterable(pool.map(_stated, pieces)))


def _stated(files: Sequence[str]) -> list[str | None]:
    found: list[str | None] = []
    for file in files:
        try:
            seen = os.stat(file)
        except FileNotFoundError:
            raise missing_file(file) from None
        _check_size(file, seen.st_size)
        key = paths.file_keys(file)[1]
        regular = stat.S_ISREG(seen.st_mode)
        found.append(_LINE % (json.dumps(key), seen.st_size, seen.st_mtime_ns // 1_000_000) if regular else None)
    return found


def _write(directory: str, lines: Iterable[str | None]) -> None:
    os.mkdir(os.path.dirname(os.path.join(directory, _LOG)))
    with open(os.path.join(directory, _LOG), "w", encoding="ascii", newline="") as file:
        file.write("v1")
        file.writelines(line for line in lines if line is not None)
    with open(os.path.join(directory, _GUARD), "w", encoding="ascii") as file:
        file.write("a scan of this fails")
