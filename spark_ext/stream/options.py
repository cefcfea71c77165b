"""Parses the options of ``format("deltalog")``, which Spark passes as strings, and finds the last recorded batch of a
stream."""

from __future__ import annotations

import datetime
import json
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import deltalog
from spark_ext.session.paths import is_address
from spark_ext.session.stores import bucket_of, options_in

_FLAGS = {
    "ignoreDeletes": "ignore_deletes",
    "ignoreChanges": "ignore_changes",
    "skipChangeCommits": "skip_change_commits",
    "readChangeFeed": "read_change_feed",
    "failOnDataLoss": "fail_on_data_loss",
}
_READING = (*_FLAGS, "startingVersion", "startingTimestamp", "maxFilesPerTrigger", "maxBytesPerTrigger")
_WRITING = (
    "partitionBy",
    "clusterBy",
    "mergeSchema",
    "properties",
    "txnAppId",
    "userMetadata",
    "checkpointLocation",
    "queryName",
)
_BATCH = ("versionAsOf", "timestampAsOf")
_SHARED = ("path", "storageOptions", "allowedPaths")
# Options of delta-spark that are not supported, and their alternatives.
_REFUSED = {
    "ignorefiledeletion": "use ignoreDeletes, or skipChangeCommits",
    "excluderegex": "filter the rows of the stream",
    "schematrackinglocation": "restart the stream after a change of the schema",
    "schemalocation": "restart the stream after a change of the schema",
    "withchangefeed": "use readChangeFeed",
}
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([a-z]*)")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
#: delta-spark's default for the files per batch if neither limit is set.
DEFAULT_MAX_FILES = 1000


@dataclass(frozen=True)
class TableOptions:
    """How to open a table."""

    url: str
    allowed_paths: tuple[str, ...] = ()
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Whether ``storage`` comes from the caller, not from the session's settings.
    is_given: bool = True

    def open(self) -> deltalog.DeltaTable:
        """The table. Raises and costs as ``DeltaTable.open``."""
        try:
            return deltalog.DeltaTable.open(self.url, allowed_paths=self.allowed_paths, **self.storage)
        except deltalog.CallError:
            if self.is_given or not self.storage or not is_address(self.url):
                raise
            # The session has S3A settings, but the table of the catalog is not on S3.
            return deltalog.DeltaTable.open(self.url, allowed_paths=self.allowed_paths)


@dataclass(frozen=True)
class DefaultStorage:
    """The default storage options of streams. The repr omits the options, since they can contain secrets."""

    #: The options of ``register``.
    given: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: The session's S3A settings when ``register`` was called.
    session: Mapping[str, str] = field(default_factory=dict, repr=False)

    def options_for(self, url: str) -> Mapping[str, Any]:
        """The options for the store at a location, the same as for batch reads and writes. Pure."""
        if self.given:
            return self.given
        return options_in(self.session, url) if is_address(url) or bucket_of(url) else {}


@dataclass(frozen=True)
class SourceOptions:
    """The options of a source."""

    table: TableOptions
    #: The keyword arguments for ``DeltaTable.stream``.
    stream: Mapping[str, Any]
    max_files: int | None
    max_bytes: int | None

    def open(self) -> deltalog.TableStream:
        """The stream. Raises and costs as ``DeltaTable.open`` and ``DeltaTable.stream``."""
        return self.table.open().stream(**self.stream)


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink. ``checkpoint``: the location of the query's checkpoint."""

    table: TableOptions
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    merge_schema: bool = False
    app_id: str | None = None
    checkpoint: str | None = None
    user_metadata: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchOptions:
    """The options for reading one version as a batch."""

    table: TableOptions
    version: int | None = None
    timestamp_ms: int | None = None

    def snapshot(self) -> deltalog.Snapshot:
        """The version. Raises and costs as ``DeltaTable.open`` and ``DeltaTable.snapshot``."""
        if self.timestamp_ms is not None:
            return self.table.open().snapshot(timestamp=self.timestamp_ms)
        return self.table.open().snapshot(version=self.version)


def batch_options(given: Mapping[str, str], default: DefaultStorage, time_zone: str) -> BatchOptions:
    """The parsed options of a batch read (``spark.read``). Raises CallError, InvalidTimestampError."""
    found = _named(given, (*_SHARED, *_BATCH), "a batch with format('deltalog')")
    if "versionAsOf" in found and "timestampAsOf" in found:
        raise deltalog.CallError("versionAsOf and timestampAsOf exclude each other. Set one of them.")
    version, moment = found.get("versionAsOf"), found.get("timestampAsOf")
    return BatchOptions(
        _table(found, default),
        None if version is None else _whole("versionAsOf", version, 0),
        None if moment is None else timestamp_ms(moment, time_zone, round_up=False),
    )


def source_options(given: Mapping[str, str], default: DefaultStorage, time_zone: str) -> SourceOptions:
    """The options of ``readStream``. ``default``: the storage options to use if ``given`` contains none. Raises
    CallError, InvalidTimestampError."""
    found = _named(given, (*_SHARED, *_READING))
    stream: dict[str, Any] = {argument: _flag(name, found[name]) for name, argument in _FLAGS.items() if name in found}
    if "startingVersion" in found:
        text = found["startingVersion"].strip()
        stream["starting_version"] = "latest" if text.lower() == "latest" else _whole("startingVersion", text, 0)
    if "startingTimestamp" in found:
        stream["starting_timestamp"] = timestamp_ms(found["startingTimestamp"], time_zone)
    files, size = found.get("maxFilesPerTrigger"), found.get("maxBytesPerTrigger")
    return SourceOptions(
        _table(found, default),
        stream,
        None if files is None else _whole("maxFilesPerTrigger", files, 1),
        None if size is None else _size("maxBytesPerTrigger", size),
    )


def sink_options(given: Mapping[str, str], default: DefaultStorage) -> SinkOptions:
    """The options of ``writeStream``. Raises CallError."""
    cased = next((name for name in given if name.lower().startswith("delta.")), None)
    if cased is not None:
        raise deltalog.CallError(
            f"Spark passes option names to Python sinks in lower case, so {cased} cannot name a property. Set "
            """option('properties', '{"delta.appendOnly": "true"}'), a JSON object of all, or create the table first."""
        )
    found = _named(given, (*_SHARED, *_WRITING))
    app_id = found.get("txnAppId")
    if app_id == "":
        raise deltalog.CallError("txnAppId must not be empty.")
    return SinkOptions(
        _table(found, default),
        _names("partitionBy", found.get("partitionBy", "[]")),
        _names("clusterBy", found.get("clusterBy", "[]")),
        _flag("mergeSchema", found.get("mergeSchema", "false")),
        app_id,
        found.get("checkpointLocation"),
        found.get("userMetadata"),
        {name: str(value) for name, value in _json("properties", found.get("properties", "{}")).items()},
    )


def recorded_batch(snapshot: deltalog.Snapshot, app_id: str, batch: int, what: str, option: str) -> int | None:
    """The number of the last batch of an application that the table has recorded. ``what`` and ``option`` appear in
    error messages: what the application is, and the option that sets its id.

    Raises CallError for an earlier ``batch``: Spark repeats only the last batch, so an earlier batch must come from
    another stream; if it were skipped, the rows of that stream would be lost.
    """
    recorded = snapshot.transaction_version(app_id)
    if recorded is not None and batch < recorded:
        raise deltalog.CallError(
            f"{snapshot.url} has batch {recorded} of the {what} {app_id!r}, and this is batch {batch}: a stream with "
            "another checkpoint, whose batches have other rows. Nothing was written. Start it with the checkpoint of "
            f"that {what}, or with {option} of its own."
        )
    return recorded


def timestamp_ms(text: str, time_zone: str, round_up: bool = True) -> int:
    """Parse a date, or a date and a time, as milliseconds since 1970; fractions of a millisecond are rounded up or,
    without ``round_up``, truncated. A text without a UTC offset is a time in the time zone ``time_zone``. Raises
    InvalidTimestampError. Pure."""
    try:
        iso = re.sub(r"^(\d{4}-\d{2}-\d{2}) +", r"\1T", text.strip()).replace("Z", "+00:00")
        moment = datetime.datetime.fromisoformat(_six_digits(iso))
    except ValueError:
        raise deltalog.InvalidTimestampError(
            f"startingTimestamp {text!r} is not a timestamp. Use a string such as '2026-01-31', "
            "'2026-01-31 10:00:00.123' (session time zone) or '2026-01-31T10:00:00.123Z'."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(time_zone))
    micros = (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(
        microseconds=1
    )
    return -(-micros // 1000) if round_up else micros // 1000


def _six_digits(iso: str) -> str:
    """Pad or truncate fractions of a second to six digits, as Python before 3.11 requires."""
    return re.sub(r"\.(\d{1,6})\d*", lambda match: "." + match[1].ljust(6, "0"), iso)


def _zone(name: str) -> datetime.tzinfo:
    found = _OFFSET.fullmatch(name)
    if found is not None:
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        offset = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return datetime.timezone(-offset if found[1] == "-" else offset)
    try:
        return datetime.timezone.utc if name in ("Z", "UTC", "GMT") else zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise deltalog.InvalidTimestampError(
            f"The session time zone {name!r} is not known here. Set startingTimestamp with an offset or Z."
        ) from None


def _named(given: Mapping[str, str], known: tuple[str, ...], what: str = "a stream") -> dict[str, str]:
    by_name = {name.lower(): name for name in known}
    found: dict[str, str] = {}
    for key, value in given.items():
        name = by_name.get(key.lower())
        if name is None:
            _refuse(key, known, what)
        found[name] = str(value)
    return found


def _refuse(key: str, known: tuple[str, ...], what: str) -> NoReturn:
    instead = _REFUSED.get(key.lower())
    if instead is not None:
        raise deltalog.CallError(f"The option {key} of delta-spark is not supported: {instead}.")
    raise deltalog.CallError(f"Unknown option {key!r} of {what}. Known: {', '.join(sorted(known))}.")


def _table(found: Mapping[str, str], default: DefaultStorage) -> TableOptions:
    if not found.get("path"):
        raise deltalog.CallError("The stream has no path: load(path), start(path), or option('path', …).")
    url, given = found["path"], _json("storageOptions", found.get("storageOptions", "{}"))
    storage = given or dict(default.options_for(url))
    allowed = _names("allowedPaths", found.get("allowedPaths", "[]"))
    return TableOptions(url, allowed, storage, bool(given or default.given))


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise deltalog.CallError(f"{name} must be a JSON object, as a string.")
    return value


def _names(name: str, text: str) -> tuple[str, ...]:
    """The strings of a JSON list; any other text is a single string."""
    if not text.lstrip().startswith("["):
        return (text,)
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise deltalog.CallError(f"{name} must be a string or a JSON list of strings, not {text!r}.")
    return tuple(values)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise deltalog.CallError(f"{name} is {text!r}, but must be true or false.")
    return text.lower() == "true"


def _whole(name: str, text: str, least: int) -> int:
    if not re.fullmatch(r"\d+", text.strip()) or int(text) < least:
        raise deltalog.CallError(f"{name} is {text!r}, but must be a whole number of at least {least}.")
    return int(text)


def _size(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS or int(found[1]) == 0:
        raise deltalog.CallError(f"{name} is {text!r}, but must be a number of bytes, or a size such as 64m or 1g.")
    return int(found[1]) * _UNITS[found[2]]
