"""Reading: versions are resolved here, the Parquet files are scanned by Spark natively."""

from __future__ import annotations

import datetime
import operator
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext import entries, paths
from spark_ext.paths import Location, check_format, not_here
from spark_ext.reads import marked
from spark_ext.scan import scan
from spark_ext.stored import Layout

_AT_VERSION = re.compile(r"(.+)@[vV](\d+)", re.DOTALL)
_AT_TIMESTAMP = re.compile(r"(.+)@(\d{17})", re.DOTALL)
_TIME_ONLY = re.compile(r"[Tt]?\d{1,2}:.*", re.DOTALL)
_SPECIAL = frozenset(["now", "today", "tomorrow", "yesterday", "epoch", "current_timestamp", "current_date"])
_FEED = "readChangeFeed"
# Options by the names of their parameters in ``resolve`` and in ``read_changes``.
_TRAVEL = {"versionAsOf": "version", "timestampAsOf": "timestamp"}
_RANGE = {
    "startingVersion": "starting_version",
    "endingVersion": "ending_version",
    "startingTimestamp": "starting_timestamp",
    "endingTimestamp": "ending_timestamp",
}
_ALLOWED = {"allowedPaths": "allowed_paths"}
_OPTIONS = {name.lower(): name for name in (*_TRAVEL, *_RANGE, *_ALLOWED, _FEED)}


_FILES = "only Delta tables are read: load(path); spark.read reads files of other formats"
# Methods of Spark's reader that this one does not have, and why.
_ELSEWHERE = {
    "table": "tables are read by path: load(path), or load('catalog:<catalog>#<name>') for a table of a catalog",
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
    allowed_paths: str | Sequence[str] = (),
) -> DataFrame:
    """The change data feed of a range of versions, both ends included; to the latest by default.

    The columns are those of the latest version, or of the end of the range where columns are mapped, then
    ``_change_type`` (insert, update_preimage, update_postimage, delete), ``_commit_version`` and
    ``_commit_timestamp``. ``starting_timestamp`` begins at the
    first commit at or after it, ``ending_timestamp`` ends at the last one at or before it; each is text, in the
    session time zone, or an aware datetime. ``allowed_paths``: as for ``DeltaTable.open``.
    Raises as ``DeltaTable.changes``. Cost: as that, 1 GET for each commit, and each file is looked up once.
    """
    first, last = _version("startingVersion", starting_version), _version("endingVersion", ending_version)
    since = timestamp_ms(spark, starting_timestamp, "startingTimestamp", round_up=True)
    until = timestamp_ms(spark, ending_timestamp, "endingTimestamp")
    table = _open(path, allowed_paths)
    changes = table.changes(first, last, from_timestamp=since, to_timestamp=until)
    rows = scan(spark, Layout.of(changes.snapshot), entries.of_changes(changes), changes=True)
    return marked(rows, changes.snapshot.as_time_travel())  # the changes of existing versions never change


class Reader:
    """Options and ``load``. Options: ``versionAsOf`` (a number) or ``timestampAsOf`` (text, or an aware
    datetime); or ``readChangeFeed`` with ``startingVersion`` or ``startingTimestamp``, and ``endingVersion`` or
    ``endingTimestamp``; and ``allowedPaths``, as for ``DeltaTable.open``. Names are not case-sensitive, and an
    unknown one is an error."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._options: dict[str, Any] = {}

    def format(self, source: str) -> Reader:
        """``delta`` or ``deltalog``, for compatibility with Spark's own reader; others raise CallError."""
        check_format(source)
        return self

    def __getattr__(self, name: str) -> Any:
        return not_here(name, _ELSEWHERE, "Reader")

    def option(self, key: str, value: Any) -> Reader:
        """Set one option. Raises CallError for a name that is not known."""
        name = _OPTIONS.get(key.lower())
        if name is None:
            raise deltalog.CallError(f"Unknown read option {key!r}. Known: {', '.join(sorted(_OPTIONS.values()))}.")
        if value is None:
            raise deltalog.CallError(f"The option {name} is None. Give a value, or leave it out.")
        self._options[name] = value
        return self

    def options(self, **options: Any) -> Reader:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def load(self, path: Location) -> DataFrame:
        """The table, or the version that the options or the path name (``path@v12``,
        ``path@yyyyMMddHHmmssSSS`` in the session time zone); with ``readChangeFeed`` as ``read_changes``. ``path``
        may also be ``catalog:<catalog>#<name>``, or a DeltaTable: one of a transaction includes its changes.

        The DataFrame is fixed to that version. Its columns, their order, types and nullability are the table's.
        Cost: the log and the deletion vectors are read once, and each data file is looked up once; if
        columns are mapped by id or a type was widened, also the footer of each file.
        """
        if not self._reads_changes():
            return frame(self._spark, self.snapshot(path))
        self._refuse(_TRAVEL, f"cannot be combined with {_FEED}; give one of them")
        return read_changes(self._spark, path, **self._named(_RANGE), **self._named(_ALLOWED))

    def snapshot(self, path: Location) -> deltalog.Snapshot:
        """What ``load`` reads, as a deltalog Snapshot: version, timestamp, schema, files."""
        self._refuse(_RANGE, f"needs option('{_FEED}', True) and load()")
        return resolve(self._spark, path, **self._named(_TRAVEL), **self._named(_ALLOWED))

    def _reads_changes(self) -> bool:
        value = str(self._options.get(_FEED, False)).lower()
        if value not in ("true", "false"):
            raise deltalog.CallError(f"{_FEED} is {self._options[_FEED]!r}; it can be true or false.")
        return value == "true"

    def _named(self, options: Mapping[str, str]) -> dict[str, Any]:
        return {parameter: self._options[name] for name, parameter in options.items() if name in self._options}

    def _refuse(self, options: Mapping[str, str], why: str) -> None:
        for name in options:
            if name in self._options:
                raise deltalog.CallError(f"The option {name} {why}.")


def resolve(
    spark: SparkSession,
    path: Location,
    version: Any = None,
    timestamp: Any = None,
    at_ms: int | None = None,
    allowed_paths: str | Sequence[str] = (),
) -> deltalog.Snapshot:
    """The Snapshot of a table, or of a path that may end in ``@v…`` or ``@…``, at a version, at what
    ``timestampAsOf`` may be, or at milliseconds since the epoch."""
    given = sum(each is not None for each in (version, timestamp, at_ms))
    if given > 1:
        raise deltalog.CallError("versionAsOf and timestampAsOf are both given. Give one of them.")
    suffix = _suffix(path)
    if suffix is not None:
        if given:
            raise deltalog.CallError(f"{path} has a version as its suffix, and the call has one too. Give one of them.")
        path = suffix[1]
        if suffix.re is _AT_VERSION:
            version = suffix[2]
        else:
            timestamp = "{}{}{}{}-{}{}-{}{} {}{}:{}{}:{}{}.{}{}{}".format(*suffix[2])
    if not paths.is_address(paths.url_of(path)):
        paths.local_directory(paths.url_of(path))
    if at_ms is None:
        at_ms = timestamp_ms(spark, timestamp)
    at_version = _version("versionAsOf", version)
    table = _open(path, allowed_paths)
    if at_version is not None:
        return table.snapshot(version=at_version)
    return table.snapshot() if at_ms is None else table.snapshot(timestamp=at_ms)


def _open(location: Location, allowed_paths: str | Sequence[str]) -> deltalog.DeltaTable:
    return paths.open_table(location, [allowed_paths] if isinstance(allowed_paths, str) else list(allowed_paths))


def _suffix(path: Location) -> re.Match[str] | None:
    """The path and the version after its ``@``, unless the whole text is the name of a directory."""
    url = paths.url_of(path)
    if isinstance(path, deltalog.DeltaTable) or "@" not in url:
        return None
    if not paths.is_address(url) and os.path.isdir(paths.local_directory(url)):
        return None
    return _AT_VERSION.fullmatch(url) or _AT_TIMESTAMP.fullmatch(url)


def _version(option: str, value: Any) -> int | None:
    if value is None:
        return None
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return operator.index(value)
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value):
        return int(value)
    raise deltalog.CallError(f"{option} is {value!r}, but must be a version number such as 12.")


def timestamp_ms(spark: SparkSession, value: Any, option: str = "timestampAsOf", round_up: bool = False) -> int | None:
    """Milliseconds since the epoch of a value of ``timestampAsOf``: an aware datetime, or text that Spark casts
    in the session time zone, truncated to the millisecond or rounded up; None for None.

    Raises InvalidTimestampError. Cost: a Spark query for text."""
    if value is None:
        return None
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise deltalog.InvalidTimestampError(
                f"{value!r} has no time zone. Make it aware, for example value.replace(tzinfo=timezone.utc), "
                "or give text, which is read in the session time zone."
            )
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        return _whole_ms((value - epoch) // datetime.timedelta(microseconds=1), round_up)
    if not isinstance(value, str):
        raise deltalog.InvalidTimestampError(
            f"{option} is {value!r}. Give text such as '2026-01-31 10:00:00' or an aware datetime; "
            "for epoch milliseconds, DeltaTable.version_at(ms).version gives the versionAsOf."
        )
    text = value.strip()
    if text.lower() in _SPECIAL or text.lower().rstrip("()") in _SPECIAL:
        raise deltalog.InvalidTimestampError(
            f"{option} {value!r} means a different time at every call. For the latest version leave the "
            "option out; else give a date and a time such as '2026-01-31 10:00:00'."
        )
    if _TIME_ONLY.fullmatch(text):
        raise deltalog.InvalidTimestampError(
            f"{option} {value!r} has no date; Spark would take today's. Write the date in front of it."
        )
    if re.fullmatch(r"[+-]?\d+", text) and len(text) != 4:
        raise deltalog.InvalidTimestampError(
            f"{option} {value!r} looks like an epoch number, which Spark does not read as a timestamp. Give "
            "text such as '2026-01-31 10:00:00', or look the version up: DeltaTable.version_at(ms).version."
        )
    query = "select unix_micros(try_cast(:moment as timestamp_ltz)) as micros"
    micros = spark.sql(query, args={"moment": text}).collect()[0]["micros"]
    if micros is None:
        raise deltalog.InvalidTimestampError(
            f"{option} {value!r} is not a timestamp. Give text such as '2026-01-31', '2026-01-31 10:00:00.123' "
            "(session time zone) or '2026-01-31T10:00:00.123Z'."
        )
    return _whole_ms(int(micros), round_up)


def _whole_ms(micros: int, round_up: bool) -> int:
    return -(-micros // 1000) if round_up else micros // 1000


def frame(spark: SparkSession, snapshot: deltalog.Snapshot) -> DataFrame:
    """A DataFrame over the files of a snapshot, with exactly its schema."""
    return marked(scan(spark, Layout.of(snapshot), entries.of_snapshot(snapshot)), snapshot)
