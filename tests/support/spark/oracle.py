"""Queries a table through delta-spark: with SQL, DataFrames and its history manager."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.spark.log_files import actions, commits

# The version of a table at a time, or the name of delta-spark's error.
Answer = int | str
_MANUAL_UPDATE = "DeltaOperations$ManualUpdate$"
_NO_CONTEXT = "validateChecksum$default$1"


class DeltaSpark:
    """Queries through delta-spark in one session. Paths are local directories; times are ms since the epoch."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self._jvm = spark._jvm
        # Py4J searches all jars for every package name, so these classes are looked up only once.
        self._delta_log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
        self._timestamp = spark._jvm.java.sql.Timestamp
        self._none = spark._jvm.scala.Option.empty()

    def forget(self) -> None:
        """Drop cached snapshots. Needed after the log was changed in any way other than by new commits."""
        self._delta_log.clearCache()

    def sql(self, statement: str) -> Any:
        return self.spark.sql(statement)

    def latest(self, path: Path) -> int:
        return int(self._snapshot(path).version())

    def history(self, path: Path) -> list[tuple[int, int, str]]:
        """DESCRIBE HISTORY, newest first: (version, timestamp in ms, operation)."""
        frame = self.spark.sql(f"DESCRIBE HISTORY delta.`{path}`")
        rows = frame.selectExpr("version", "unix_millis(timestamp) AS ms", "operation").collect()
        return [(row["version"], row["ms"], row["operation"]) for row in rows]

    def table(self, path: Path, version: int | None = None) -> pa.Table:
        """The rows of a version (default: the latest) as Arrow."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(str(path)).toArrow()

    def table_at(self, path: Path, ms: int) -> pa.Table | str:
        """The rows that spark.read returns with timestampAsOf, or the name of the error."""
        from pyspark.errors import PySparkException

        try:
            return self.spark.read.format("delta").option("timestampAsOf", sql_time(ms)).load(str(path)).toArrow()
        except PySparkException as error:
            return _condition(error)

    def changes(self, path: Path, since: int = 0) -> pa.Table:
        """The change data feed from a version on, as Arrow."""
        reader = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since)
        return reader.load(str(path)).toArrow()

    def version_at(self, path: Path, ms: int) -> Answer:
        """The version for TIMESTAMP AS OF, from delta-spark's history manager with the flags that its reader uses."""
        return self.versions_at(path, [ms])[ms]

    def versions_at(self, path: Path, times: Iterable[int]) -> dict[int, Answer]:
        from pyspark.errors import PySparkException

        history, found = self._log(path).history(), dict[int, Answer]()
        for ms in times:
            try:
                commit = history.getActiveCommitAtTime(self._timestamp(ms), self._none, False, True, False)
                found[ms] = int(commit.version())
            except PySparkException as error:
                found[ms] = _condition(error)
        return found

    def checkpoint(self, path: Path) -> None:
        self._log(path).checkpoint()

    def protocol(self, path: Path) -> dict[str, Any]:
        """The body of the protocol action, with the features sorted."""
        body = json.loads(self._snapshot(path).protocol().json())["protocol"]
        return {key: sorted(value) if isinstance(value, list) else value for key, value in body.items()}

    def metadata(self, path: Path) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self._snapshot(path).metadata().json())["metaData"]
        return body

    def files(self, path: Path) -> list[dict[str, Any]]:
        """The live files of the latest version: path as in the log, partition values, size."""
        from pyspark.sql import DataFrame

        frame = DataFrame(self._snapshot(path).allFiles().toDF(), self.spark)
        rows = frame.select("path", "partitionValues", "size").collect()
        files = [{"path": r["path"], "partitionValues": dict(r["partitionValues"]), "size": r["size"]} for r in rows]
        return sorted(files, key=lambda file: str(file["path"]))

    def checksum_defect(self, path: Path) -> str | None:
        """None if the latest version's `.crc`, including its list of files if it has one, agrees with delta-spark's own
        replay; otherwise a description of the difference."""
        from py4j.protocol import Py4JJavaError

        self.forget()
        snapshot = self._snapshot(path)
        if not snapshot.checksumOpt().isDefined():
            return "there is no readable .crc"
        try:
            snapshot.validateChecksum(getattr(snapshot, _NO_CONTEXT)())
        except Py4JJavaError as error:
            message = str(error.java_exception.getMessage())
            if "DELTA_TXN_LOG_FAILED_INTEGRITY" not in message:
                raise
            return message
        # File lists that delta-spark itself wrote always differ: delta-spark omits absent tags when it writes a list,
        # and reads them as empty tags.
        (info, *_) = actions(commits(path)[int(snapshot.version())])
        is_own = "Apache-Spark" in info["commitInfo"].get("engineInfo", "")
        if not is_own and not snapshot.validateFileListAgainstCRC(snapshot.checksumOpt().get(), self._none):
            return "allFiles differs from the live files"
        return None

    def last_checkpoint(self, path: Path) -> tuple[int, int] | None:
        """The values that delta-spark reads from `_last_checkpoint`: the version and the number of actions."""
        self.forget()
        found = self._log(path).readLastCheckpointFile()
        return (int(found.get().version()), int(found.get().size())) if found.isDefined() else None

    def begin(self, path: Path) -> Any:
        """A delta-spark transaction on the latest version; `commit_nothing` ends it."""
        return self._log(path).startTransaction(self._none, self._none)

    def commit_nothing(self, transaction: Any) -> int:
        """Commit a transaction without changes: it runs all of delta-spark's conflict checks, and creates a new
        version."""
        delta = self._jvm.org.apache.spark.sql.delta
        operation = getattr(getattr(delta, _MANUAL_UPDATE), "MODULE$")
        nothing = self._jvm.scala.collection.immutable.List.newBuilder().result()
        return int(transaction.commit(nothing, operation))

    def _log(self, path: Path) -> Any:
        log = self._delta_log.forTable(self.spark._jsparkSession, str(path))
        log.update(False, self._none, self._none)
        return log

    def _snapshot(self, path: Path) -> Any:
        return self._log(path).update(False, self._none, self._none)


def probe_times(commit_times: Sequence[int]) -> list[int]:
    """Times to query: that of each commit, one ms before and after it, between commits, and far outside the history."""
    times: set[int] = set()
    ordered = sorted(commit_times)
    for ms in ordered:
        times.update((ms - 1, ms, ms + 1))
    times.update((low + high) // 2 for low, high in pairwise(ordered))
    times.update((ordered[0] - 3_600_000, ordered[-1] + 3_600_000))
    return sorted(times)


def sql_time(ms: int) -> str:
    """A time in the syntax of Spark's SQL, in UTC with milliseconds."""
    moment = dt.datetime.fromtimestamp(ms // 1000, dt.timezone.utc)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"


def _condition(error: Any) -> str:
    name = error.getCondition()
    if name is None:
        raise error
    return str(name)
