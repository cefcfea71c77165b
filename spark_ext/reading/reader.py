"""The reader: deltalog resolves the version, and Spark's own Parquet reader scans the files."""

from __future__ import annotations

import datetime
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltalog
from spark_ext.errors import explained
from spark_ext.reading import file_entries, log_counts, pruning
from spark_ext.reading.file_schema import Layout
from spark_ext.reading.loaded_frame import Deferred, deferred, loaded
from spark_ext.reading.read_versions import marked
from spark_ext.reading.scan import ExtraColumns, scan
from spark_ext.reading.table_columns import named, quoted
from spark_ext.session import names, paths, stores
from spark_ext.session.paths import Location, check_format, not_here
from spark_ext.session.stores import Storage

_AT_VERSION = re.compile(r"(.+)@[vV](\d+)", re.DOTALL)
_AT_TIMESTAMP = re.compile(r"(.+)@(\d{17})", re.DOTALL)
_TIME_ONLY = re.compile(r"[Tt]?\d{1,2}:.*", re.DOTALL)
_CLAMPING = re.compile(r'pass (before|after)="\w+" to version_at or snapshot')
_CLAMPED = {"before": "canReturnEarliestCommit", "after": "canReturnLastCommit"}
_SPECIAL = frozenset(["now", "today", "tomorrow", "yesterday", "epoch", "current_timestamp", "current_date"])
_FEED = "readChangeFeed"
# Options, and the parameters of ``resolve`` and ``read_changes`` that they set.
_TRAVEL = {
    "versionAsOf": "version",
    "timestampAsOf": "timestamp",
    "canReturnEarliestCommit": "can_return_earliest_commit",
    "canReturnLastCommit": "can_return_last_commit",
}
_RANGE = {
    "startingVersion": "starting_version",
    "endingVersion": "ending_version",
    "startingTimestamp": "starting_timestamp",
    "endingTimestamp": "ending_timestamp",
    "allowOutOfRange": "allow_out_of_range",
}
# The session setting of delta-spark that corresponds to the option allowOutOfRange.
_ALLOW_OUT_OF_RANGE = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
_ALLOWED = {"allowedPaths": "allowed_paths"}
_OPTIONS = {name.lower(): name for name in (*_TRAVEL, *_RANGE, *_ALLOWED, _FEED)}
_OPTIONS["readchangedata"] = _FEED  # its older name in delta-spark

# If a table has more files than this, reading the list of its files takes so long that it is better to know the filters
# first.
_MOST_AT_ONCE = 1_000
_FILES = "only Delta tables are read: load(path); spark.read reads files of other formats"
# Methods of Spark's reader that Reader does not have, and what to use instead.
_ELSEWHERE = {
    "schema": "a Delta table has its own schema; select columns after load(path)",
    **dict.fromkeys(("parquet", "json", "csv", "orc", "text", "textFile", "xml", "jdbc"), _FILES),
}


def read(spark: SparkSession) -> Reader:
    """A reader for tables; the counterpart of ``spark.read``."""
    return Reader(spark)


def read_changes(
    spark: SparkSession,
    path: Location,
    starting_version: Any = None,
    ending_version: Any = None,
    *,
    starting_timestamp: Any = None,
    ending_timestamp: Any = None,
    allow_out_of_range: Any = None,
    allowed_paths: str | Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The change data feed of a range of versions, both ends included; by default up to the latest version.

    The columns are those of the latest version (with column mapping, of the last version of the range), then
    ``_change_type`` (insert, update_preimage, update_postimage, delete), ``_commit_version`` and ``_commit_timestamp``.
    A ``starting_timestamp`` means the first commit at or after it, an ``ending_timestamp`` the last commit at or before
    it; both are strings in the session time zone, or aware datetimes. A range that ends after the latest version is an
    error. ``allow_out_of_range``: whether a range that ends after the latest version is cut off there, and is empty if
    it also begins after the latest version; by default the session's setting
    ``spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled`` applies. ``allowed_paths``: as for
    ``DeltaTable.open``. ``storage_options``: as for ``Reader.storage_options``. Raises and costs as
    ``DeltaTable.changes``, and 1 GET for each commit; each file is looked up once.
    """
    first, last = _version("startingVersion", starting_version), _version("endingVersion", ending_version)
    since = timestamp_ms(spark, starting_timestamp, "startingTimestamp", round_up=True)
    until = timestamp_ms(spark, ending_timestamp, "endingTimestamp")
    if allow_out_of_range is None:
        allow_out_of_range = spark.conf.get(_ALLOW_OUT_OF_RANGE, "false")
    is_allowed = _boolean("allowOutOfRange", allow_out_of_range)
    table = _open(spark, path, allowed_paths, stores.checked(storage_options or {}))
    changes = table.changes(first, last, from_timestamp=since, to_timestamp=until, allow_out_of_range=is_allowed)
    storage = Storage.of(spark, changes.snapshot)
    rows = scan(spark, Layout.of(changes.snapshot), file_entries.of_changes(changes), storage, changes=True)
    return marked(rows, changes.snapshot.as_time_travel())  # later commits do not affect the changes of these versions


class Reader:
    """Set options, then call ``load``.

    Options: ``versionAsOf`` (a number) or ``timestampAsOf`` (a string or an aware datetime), with
    ``canReturnEarliestCommit`` and ``canReturnLastCommit`` for times before the first and after the last commit; or
    ``readChangeFeed`` with ``startingVersion`` or ``startingTimestamp``, ``endingVersion`` or ``endingTimestamp``, and
    ``allowOutOfRange``. ``allowedPaths``: as for ``DeltaTable.open``. Option names are case-insensitive; an unknown
    option is an error.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._options: dict[str, Any] = {}
        self._conditions: list[str | deltalog.Predicate] = []
        self._storage: dict[str, Any] = {}

    def format(self, source: str) -> Reader:
        """``delta`` or ``deltalog``, for compatibility with Spark's own reader; others raise CallError."""
        check_format(source)
        return self

    def __getattr__(self, name: str) -> Any:
        return not_here(name, _ELSEWHERE, "Reader")

    def option(self, key: str, value: Any) -> Reader:
        """Set one option. Raises CallError for an unknown name."""
        name = _OPTIONS.get(key.lower())
        if name is None:
            raise deltalog.CallError(f"Unknown read option {key!r}. Known: {', '.join(sorted({*_OPTIONS.values()}))}.")
        if value is None:
            raise deltalog.CallError(f"The option {name} is None. Give a value, or leave it out.")
        self._options[name] = value
        return self

    def options(self, **options: Any) -> Reader:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def storage_options(self, **options: Any) -> Reader:
        """Set storage options, under the names that ``DeltaTable.open(url, **options)`` accepts. These options apply to
        deltalog and to Spark's S3A (see docs/spark-reference.md). By default, deltalog and Spark use the session's S3A
        settings. Raises CallError."""
        self._storage.update(stores.checked(options))
        return self

    def where(self, condition: str | deltalog.Predicate) -> Reader:
        """Keep only rows that satisfy a condition: SQL text as for ``DataFrame.where``, or a predicate built with
        ``deltalog.col``. The conditions of several calls are combined with AND.

        Before Spark plans its scan, ``load`` skips the files that cannot contain matching rows according to their
        partition values and statistics; Spark evaluates the condition on the rows of the other files. Comparisons of a
        column with a literal, ``IN``, ``BETWEEN``, ``LIKE 'prefix%'`` and ``IS NULL``, combined with AND, OR and NOT,
        are used to skip files; other parts of a condition are not. Raises CallError."""
        if not isinstance(condition, (str, deltalog.Predicate)):
            kind = type(condition).__name__
            raise deltalog.CallError(f"where takes SQL text or a predicate built with deltalog.col(…), not {kind}.")
        self._conditions.append(condition)
        return self

    filter = where

    def load(self, path: Location) -> DataFrame:
        """The rows of the table, at the version that the options or the path select (``path@v12``, or
        ``path@yyyyMMddHHmmssSSS`` in the session time zone); with ``readChangeFeed``, the table's changes, as for
        ``read_changes``. ``path`` may also be ``catalog:<catalog>#<name>``, or a DeltaTable; if this table belongs to a
        transaction, the transaction's uncommitted changes are included.

        The DataFrame is pinned to the version that was read, and has the table's columns in order, with their types and
        nullability. Cost: the log and the deletion vectors are read once, and each data file is looked up once; with
        column mapping by id or widened types, the footer of each file is read too. Raises CallError for a condition
        that Spark cannot parse or resolve; over Connect only when rows are computed.
        """
        if not self._reads_changes():
            snapshot = self.snapshot(path)
            with explained(f"The condition of where for {snapshot.url}"):
                return frame(self._spark, snapshot, self._texts(snapshot))
        self._refuse(_TRAVEL, f"cannot be combined with {_FEED}; give one of them")
        if self._conditions:
            raise deltalog.CallError(
                f"where(…) cannot be combined with {_FEED}. Filter the DataFrame that load returns."
            )
        named_options = {**self._named(_RANGE), **self._named(_ALLOWED)}
        return read_changes(self._spark, path, **named_options, storage_options=self._storage)

    def table(self, name: str) -> DataFrame:
        """Like ``load``, but for a table name in the session's catalog (``spark_ext.use_catalog``):
        ``[schema.]table``."""
        return self.load(names.address_of(self._spark, name))

    def count(self, path: Location) -> int:
        """The number of rows of ``load(path)``. The count comes from the log, without opening data files, if the log
        has the row count of every file and ``where`` only compares partition columns with literals; otherwise Spark
        counts. Cost: as ``Snapshot.statistics``."""
        if self._reads_changes():
            return int(self.load(path).count())
        snapshot = self.snapshot(path)
        texts = self._texts(snapshot)
        found = log_counts.num_records(snapshot, texts)
        if found is not None:
            return found
        with explained(f"The condition of where for {snapshot.url}"):
            return int(frame(self._spark, snapshot, texts).count())

    def partitions(self, path: Location) -> DataFrame:
        """One row for each combination of partition values that occurs: the partition columns, and ``num_records``, the
        number of rows with these values. The row count comes from the log under the same conditions as in ``count``;
        otherwise Spark counts the rows. Raises CallError if a partition column is called ``num_records``."""
        self._refuse((_FEED,), "has no partitions; use load()")
        snapshot = self.snapshot(path)
        if any(name.lower() == log_counts.NUM_RECORDS for name in snapshot.partition_columns):
            raise deltalog.CallError(
                f"{snapshot.url} has a partition column {log_counts.NUM_RECORDS}, the name of the count in "
                "partitions(). Use load() and groupBy."
            )
        texts = self._texts(snapshot)
        found = log_counts.by_partition(self._spark, snapshot, texts)
        if found is not None:
            return found
        columns = [named(name) for name in snapshot.partition_columns]
        counted = F.count(F.lit(1)).alias(log_counts.NUM_RECORDS)
        rows = frame(self._spark, snapshot, texts).groupBy(*columns).agg(counted)
        return rows.where(named(log_counts.NUM_RECORDS) > 0)

    def _texts(self, snapshot: deltalog.Snapshot) -> list[str]:
        """The conditions as SQL text for Spark."""
        texts = []
        for condition in self._conditions:
            text = condition if isinstance(condition, str) else snapshot.scan(where=condition).where_text
            if text is None or (condition is not text and self._reads_escapes_as_text() and "\\" in text):
                raise deltalog.CallError(f"{condition!r} cannot be written as SQL. Pass SQL text to where(…).")
            texts.append(text)
        return texts

    def snapshot(self, path: Location) -> deltalog.Snapshot:
        """The deltalog Snapshot that ``load`` would read: version, timestamp, schema, files."""
        self._refuse(_RANGE, f"needs option('{_FEED}', True) and load()")
        return resolve(self._spark, path, **self._named(_TRAVEL), **self._named(_ALLOWED), storage=self._storage)

    def _reads_escapes_as_text(self) -> bool:
        return str(self._spark.conf.get("spark.sql.parser.escapedStringLiterals", "false")).lower() != "false"

    def _reads_changes(self) -> bool:
        return _boolean(_FEED, self._options.get(_FEED, False))

    def _named(self, options: Mapping[str, str]) -> dict[str, Any]:
        return {parameter: self._options[name] for name, parameter in options.items() if name in self._options}

    def _refuse(self, options: Iterable[str], why: str) -> None:
        for name in options:
            if name in self._options:
                raise deltalog.CallError(f"The option {name} {why}.")


def resolve(
    spark: SparkSession,
    path: Location,
    version: Any = None,
    timestamp: Any = None,
    at_ms: int | None = None,
    can_return_earliest_commit: Any = False,
    can_return_last_commit: Any = False,
    allowed_paths: str | Sequence[str] = (),
    storage: Mapping[str, Any] | None = None,
) -> deltalog.Snapshot:
    """The Snapshot of a table: the latest, or the one selected by ``version``, ``timestamp`` (as for
    ``timestampAsOf``), ``at_ms``, or an ``@v…`` or ``@…`` suffix of the path. ``can_return_earliest_commit`` and
    ``can_return_last_commit`` allow times before the first or after the last commit. ``storage``: as for
    ``paths.open_table``."""
    before = "earliest" if _boolean("canReturnEarliestCommit", can_return_earliest_commit) else "error"
    after = "latest" if _boolean("canReturnLastCommit", can_return_last_commit) else "error"
    given = sum(each is not None for each in (version, timestamp, at_ms))
    if given > 1:
        raise deltalog.CallError("versionAsOf and timestampAsOf exclude each other. Set one of them.")
    suffix = _suffix(path)
    if suffix is not None:
        if given:
            raise deltalog.CallError(f"{path} has a version as its suffix, and the call has one too. Use one of them.")
        path = suffix[1]
        if suffix.re is _AT_VERSION:
            version = suffix[2]
        else:
            timestamp = "{}{}{}{}-{}{}-{}{} {}{}:{}{}:{}{}.{}{}{}".format(*suffix[2])
    if not paths.is_address(paths.url_of(path)) and not isinstance(path, deltalog.DeltaTable):
        paths.checked_root(paths.url_of(path), storage)
    if at_ms is None:
        at_ms = timestamp_ms(spark, timestamp)
    at_version = _version("versionAsOf", version)
    table = _open(spark, path, allowed_paths, storage)
    if at_version is not None:
        return table.snapshot(version=at_version)
    if at_ms is None:
        return table.snapshot()
    try:
        if (before, after) == ("error", "error"):
            return table.snapshot(timestamp=at_ms)
        return table.snapshot(version=table.version_at(at_ms, before, after).version)
    except deltalog.TimestampOutOfRangeError as error:
        raise deltalog.TimestampOutOfRangeError(
            _CLAMPING.sub(lambda found: _advice(_CLAMPED[found[1]]), error.message),
            requested_ms=error.requested_ms,
            earliest_ms=error.earliest_ms,
            latest_ms=error.latest_ms,
        ) from None


def _advice(option: str) -> str:
    return f"use option('{option}', True), or {_TRAVEL[option]}=True of spark_ext.sql"


def _open(
    spark: SparkSession, location: Location, allowed_paths: str | Sequence[str], storage: Mapping[str, Any] | None
) -> deltalog.DeltaTable:
    places = [allowed_paths] if isinstance(allowed_paths, str) else list(allowed_paths)
    return paths.open_table(spark, location, places, storage)


def _suffix(path: Location) -> re.Match[str] | None:
    """A regex match with the path and the version after ``@``; None if the path has no such suffix, or if the whole
    path is the name of a directory."""
    url = paths.url_of(path)
    if isinstance(path, deltalog.DeltaTable) or "@" not in url:
        return None
    # On S3, a single request cannot determine whether a directory exists, so the suffix always selects a version.
    if not paths.is_address(url) and not stores.bucket_of(url) and os.path.isdir(paths.checked_root(url, None)):
        return None
    return _AT_VERSION.fullmatch(url) or _AT_TIMESTAMP.fullmatch(url)


def without_suffix(path: str) -> str:
    """A path or address without the version after its ``@``."""
    found = _suffix(path)
    return path if found is None else found[1]


def _boolean(option: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise deltalog.CallError(f"{option} is {value!r}; it can be true or false.")
    return text == "true"


def _version(option: str, value: Any) -> int | None:
    if value is None:
        return None
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return operator.index(value)
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value):
        return int(value)
    raise deltalog.CallError(f"{option} is {value!r}, but must be a version number such as 12.")


def timestamp_ms(spark: SparkSession, value: Any, option: str = "timestampAsOf", round_up: bool = False) -> int | None:
    """A value of ``timestampAsOf`` in milliseconds since the epoch; None if the value is None. The value is an aware
    datetime, or a string that Spark casts in the session time zone. Fractions are truncated, or rounded up with
    ``round_up``.

    Raises InvalidTimestampError. Cost: a Spark query for a string."""
    if value is None:
        return None
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise deltalog.InvalidTimestampError(
                f"{value!r} has no time zone. A value that Spark returned, as collect() does, is in the "
                "local time zone of Python: pass value.astimezone(). For UTC pass value.replace(tzinfo=timezone.utc). "
                "A string is read in the session time zone: cast(timestamp as string) in Spark makes one."
            )
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        return _whole_ms((value - epoch) // datetime.timedelta(microseconds=1), round_up)
    if not isinstance(value, str):
        raise deltalog.InvalidTimestampError(
            f"{option} is {value!r}. Pass a string such as '2026-01-31 10:00:00' or an aware datetime; "
            "for epoch milliseconds, DeltaTable.version_at(ms).version gives the versionAsOf."
        )
    text = value.strip()
    if text.lower() in _SPECIAL or text.lower().rstrip("()") in _SPECIAL:
        raise deltalog.InvalidTimestampError(
            f"{option} {value!r} means a different time at every call. For the latest version leave the "
            "option out; otherwise pass a date and a time such as '2026-01-31 10:00:00'."
        )
    if _TIME_ONLY.fullmatch(text):
        raise deltalog.InvalidTimestampError(
            f"{option} {value!r} has no date, and Spark would take today's. Add the date."
        )
    if re.fullmatch(r"[+-]?\d+", text) and len(text) != 4:
        raise deltalog.InvalidTimestampError(
            f"{option} {value!r} looks like an epoch number, which Spark does not read as a timestamp. Pass a string "
            "such as '2026-01-31 10:00:00', or look up the version: DeltaTable.version_at(ms).version."
        )
    # The value is not passed as an argument of spark.sql, because delta-spark's parser, in sessions that use it,
    # ignores such arguments.
    moment = spark.sql("select 1").select(F.lit(text).alias("moment"))
    micros = moment.selectExpr("unix_micros(try_cast(moment as timestamp_ltz)) as micros").collect()[0]["micros"]
    if micros is None:
        raise deltalog.InvalidTimestampError(
            f"{option} {value!r} is not a timestamp. The provided timestamp ({value!r}) cannot be converted to a valid "
            "timestamp: pass a string such as '2026-01-31', '2026-01-31 10:00:00.123' "
            "(session time zone) or '2026-01-31T10:00:00.123Z'."
        )
    return _whole_ms(int(micros), round_up)


def _whole_ms(micros: int, round_up: bool) -> int:
    return -(-micros // 1000) if round_up else micros // 1000


def frame(spark: SparkSession, snapshot: deltalog.Snapshot, conditions: Sequence[str] = ()) -> DataFrame:
    """A DataFrame of a snapshot's rows, with exactly its schema. ``conditions`` (SQL text) filter rows and skip
    files, and so do later filters on the DataFrame. For a table of more than _MOST_AT_ONCE files, the DataFrame is
    planned only when it is used, and errors about files are raised then."""
    where, layout = pruning.predicate(snapshot, conditions), Layout.of(snapshot)

    def filtered(rows: DataFrame) -> DataFrame:
        return reduce(lambda found, condition: found.where(condition), conditions, rows)

    if layout.hides_metadata:
        return filtered(pruned(spark, snapshot, where))
    if not conditions and snapshot.num_files > _MOST_AT_ONCE:
        return deferred(_deferred(spark, snapshot, layout), snapshot)
    extra = ExtraColumns(files=True)
    found = scan(spark, layout, file_entries.of_snapshot(snapshot, where), Storage.of(spark, snapshot), extra=extra)
    rows = marked(found, snapshot, where).select(*[quoted(name) for name in snapshot.schema.names])
    return loaded(filtered(rows), snapshot)


def _deferred(spark: SparkSession, snapshot: deltalog.Snapshot, layout: Layout) -> Deferred:
    """The rows of a snapshot, as a ``Deferred``, which has no plan yet. Cost: a scan of 1 file."""
    storage, extra = Storage.of(spark, snapshot), ExtraColumns(files=True)
    one = file_entries.of_files(snapshot, snapshot.files(file_entries.COLUMNS).slice(0, 1))
    empty = scan(spark, layout, one, storage, extra=extra).where(F.lit(False))

    def rows(where: deltalog.Predicate | None) -> DataFrame:
        found = scan(spark, layout, file_entries.of_snapshot(snapshot, where), storage, extra=extra)
        return marked(found, snapshot, where)

    return Deferred.of(rows, empty, [quoted(name) for name in snapshot.schema.names])


def pruned(spark: SparkSession, snapshot: deltalog.Snapshot, where: deltalog.Predicate | None) -> DataFrame:
    """A DataFrame of all rows of the files that data skipping with ``where`` keeps. The caller must still filter the
    rows with ``where``."""
    found = scan(spark, Layout.of(snapshot), file_entries.of_snapshot(snapshot, where), Storage.of(spark, snapshot))
    return marked(found, snapshot, where)
