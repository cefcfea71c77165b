"""The rules for in-commit timestamps. Pure.

Spec: PROTOCOL.md#in-commit-timestamps, #writer-requirements-for-in-commit-timestamps,
#recommendations-for-readers-of-tables-with-in-commit-timestamps. All times are milliseconds since the Unix epoch.

Behaviour that the protocol does not specify follows delta-spark; see docs/in-commit-timestamps.md.
"""

from __future__ import annotations

import bisect
import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from deltalog.errors import (
    CorruptTableError,
    InvalidEnablementError,
    InvalidTimestampError,
    MissingInCommitTimestampError,
    TimestampOutOfRangeError,
)
from deltalog.protocol.actions import CommitInfo
from deltalog.protocol.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLEMENT_TIMESTAMP_KEY,
    ENABLEMENT_VERSION_KEY,
)

FEATURE = "inCommitTimestamp"
# The feature's name in the original proposal (a plural form), and the names of its preview versions. deltalog reads
# these names but never writes them.
FEATURE_ALIASES = ("inCommitTimestamps", "inCommitTimestamp-preview", "inCommitTimestamps-preview")

LARGEST_MS = 2**63 - 1
Clock = Literal["in-commit", "file-modification"]


class Enablement(msgspec.Struct, frozen=True):
    """The commit that enabled in-commit timestamps on a table that already had commits."""

    version: int
    timestamp_ms: int


class CommitAt(msgspec.Struct, frozen=True):
    """A commit, its time, and which clock (in-commit or file modification time) time travel uses for the commit."""

    version: int
    timestamp_ms: int
    clock: Clock


# ------------------------------------------------------------------------------------------ writing times


def is_listed(writer_features: Sequence[str]) -> bool:
    """Whether the writer features list in-commit timestamps, under any of the feature's names."""
    return not {FEATURE, *FEATURE_ALIASES}.isdisjoint(writer_features)


def is_active(min_writer_version: int, writer_features: Sequence[str], configuration: Mapping[str, str]) -> bool:
    """Whether commits contain ``inCommitTimestamp``: the writer version is 7, the feature is listed, and the property
    is true."""
    return min_writer_version >= 7 and is_listed(writer_features) and ENABLE_IN_COMMIT_TIMESTAMPS.read(configuration)


def required_ict(info: CommitInfo | None, version: int, table: str) -> int:
    """The in-commit timestamp of a commit that must have one. Raises MissingInCommitTimestampError."""
    if info is not None and info.in_commit_timestamp_ms is not None:
        return info.in_commit_timestamp_ms
    what = "no commitInfo action" if info is None else "no valid inCommitTimestamp in its commitInfo"
    raise MissingInCommitTimestampError(
        f"{table}: version {version} has {what}, but in-commit timestamps are enabled for it. "
        "deltalog invents no time for it. Restore the commit file, or disable in-commit timestamps and enable them "
        "again.",
        version=version,
    )


def previous_timestamp(ict_ms: int | None, file_time_ms: int | None, before_ms: int | None = None) -> int | None:
    """The time that the in-commit timestamp of the next commit must exceed.

    ``ict_ms``: the in-commit timestamp of the last commit. If the last commit has no in-commit timestamp and the next
    commit enables in-commit timestamps, the file time of the last commit is used, adjusted as readers adjust file times
    so that they increase: ``file_time_ms`` is the file time of the last commit, and ``before_ms`` is this function's
    result for the version before it. None if the next commit has no in-commit timestamp.
    """
    if ict_ms is not None or file_time_ms is None:
        return ict_ms
    return max(file_time_ms, (before_ms or 0) + 1)


def next_timestamp(clock_ms: int, previous_ms: int | None) -> int:
    """The larger of the wall clock and the previous timestamp plus one millisecond, because the wall clock may go
    back."""
    if previous_ms is not None and previous_ms >= LARGEST_MS:
        raise CorruptTableError(
            f"The last commit's inCommitTimestamp is {previous_ms} ms, the largest possible, so no commit can follow. "
            "Disable in-commit timestamps and enable them again; for a table in a catalog, call "
            "TransactionManager.restart_timestamps(name)."
        )
    return clock_ms if previous_ms is None else max(clock_ms, previous_ms + 1)


def enabling_configuration(configuration: Mapping[str, str], version: int, ict_ms: int) -> dict[str, str]:
    """The configuration for the commit that enables in-commit timestamps. The result includes the two enablement
    properties, except at version 0."""
    kept = without_pair(configuration)
    if version == 0:
        return kept
    return {**kept, ENABLEMENT_VERSION_KEY: str(version), ENABLEMENT_TIMESTAMP_KEY: str(ict_ms)}


def without_pair(configuration: Mapping[str, str]) -> dict[str, str]:
    """The configuration without the two enablement properties, for a commit that disables in-commit timestamps and for
    a new table."""
    pair = (ENABLEMENT_VERSION_KEY, ENABLEMENT_TIMESTAMP_KEY)
    return {key: value for key, value in configuration.items() if key not in pair}


# ------------------------------------------------------------------------------------------------ reading


def read_enablement(configuration: Mapping[str, str], latest_version: int) -> Enablement | None:
    """The version and the timestamp at which in-commit timestamps were enabled, for a table in which they are active;
    None if they were enabled at version 0.

    Raises InvalidEnablementError if only half of the pair is set, if it is not a pair of integers, or if its version
    is after ``latest_version``.
    """
    version_text = configuration.get(ENABLEMENT_VERSION_KEY)
    timestamp_text = configuration.get(ENABLEMENT_TIMESTAMP_KEY)
    if version_text is None and timestamp_text is None:
        return None
    repair = (
        "Repair: disable in-commit timestamps (disable_in_commit_timestamps()) and enable them again; "
        "this writes a new, complete pair."
    )
    if version_text is None or timestamp_text is None:
        present, absent = ENABLEMENT_VERSION_KEY, ENABLEMENT_TIMESTAMP_KEY
        if version_text is None:
            present, absent = absent, present
        raise InvalidEnablementError(f"The table has the property {present} but not {absent}. {repair}")
    try:
        enablement = Enablement(_whole(version_text), _whole(timestamp_text))
    except ValueError:
        raise InvalidEnablementError(
            f"{ENABLEMENT_VERSION_KEY}={version_text!r} and {ENABLEMENT_TIMESTAMP_KEY}={timestamp_text!r} "
            f"are not a version and a time in ms. {repair}"
        ) from None
    if enablement.version > latest_version:
        raise InvalidEnablementError(
            f"{ENABLEMENT_VERSION_KEY} is {enablement.version}, but the latest version is {latest_version}; "
            f"this happens in a clone that copied the properties of its source. {repair}"
        )
    return enablement


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > LARGEST_MS:
        raise ValueError(text)
    return int(text)


def monotonised(times_ms: Sequence[int]) -> list[int]:
    """File times adjusted to increase strictly: a time that is not later than its predecessor becomes the predecessor
    plus 1 ms."""
    adjusted: list[int] = []
    for time_ms in times_ms:
        adjusted.append(time_ms if not adjusted else max(time_ms, adjusted[-1] + 1))
    return adjusted


class Timeline(msgspec.Struct, frozen=True):
    """The data for resolving timestamps: which commits exist, and which clock applies to each.

    ``versions``: ascending versions whose commit file exists and whose state can be rebuilt. ``ict_from``: the first
    version that time travel resolves by its in-commit timestamp; None if in-commit timestamps are disabled.
    ``ict_from_ms``: the enablement time; None if every listed commit is resolved by its in-commit timestamp.
    """

    versions: Sequence[int]
    ict_from: int | None
    ict_from_ms: int | None

    @property
    def file_versions(self) -> Sequence[int]:
        """Versions resolved by file modification time."""
        if self.ict_from is None:
            return self.versions
        return self.versions[: bisect.bisect_left(self.versions, self.ict_from)]

    @property
    def ict_versions(self) -> Sequence[int]:
        """Versions resolved by in-commit timestamp."""
        if self.ict_from is None:
            return []
        return self.versions[bisect.bisect_left(self.versions, self.ict_from) :]

    def in_ict_era(self, timestamp_ms: int) -> bool:
        """Whether the result for this time can only be ``ict_from`` or a later version."""
        return self.ict_from is not None and (self.ict_from_ms is None or timestamp_ms >= self.ict_from_ms)


def timeline(versions: Sequence[int], active: bool, enablement: Enablement | None) -> Timeline:
    """The Timeline of ``versions`` (ascending): it determines whether a version is resolved by its in-commit timestamp
    or by its file time.

    If the commits before the enablement were cleaned up, the remaining commits are resolved by in-commit timestamp
    alone.
    """
    if not active or not versions:
        return Timeline(versions, None, None)
    if enablement is None:
        return Timeline(versions, versions[0], None)
    return Timeline(versions, enablement.version, enablement.timestamp_ms)


def resolve(
    timestamp_ms: int,
    log: Timeline,
    ict_of: Callable[[int], int],
    file_times_of: Callable[[Sequence[int]], Sequence[int]],
) -> CommitAt:
    """The last commit at or before ``timestamp_ms``; the very first commit if all are later.

    ``ict_of`` reads one commit; it is called at most ceil(log2 n) + 2 times for n commits. ``file_times_of`` returns
    the modification times of several commits; it is called once, and only for commits before the enablement.
    The caller must check whether the result is after ``timestamp_ms``, and whether ``timestamp_ms`` is after the last
    commit.
    """
    ict_versions = log.ict_versions
    if log.in_ict_era(timestamp_ms) and ict_versions:
        return _search(timestamp_ms, ict_versions, ict_of)
    file_versions = log.file_versions
    if not file_versions:
        return CommitAt(ict_versions[0], ict_of(ict_versions[0]), "in-commit")
    times = monotonised(file_times_of(file_versions))
    index = max((i for i, time_ms in enumerate(times) if time_ms <= timestamp_ms), default=0)
    return CommitAt(file_versions[index], times[index], "file-modification")


def _search(timestamp_ms: int, versions: Sequence[int], ict_of: Callable[[int], int]) -> CommitAt:
    """Binary search for the last of ``versions`` whose in-commit timestamp is not after ``timestamp_ms``."""
    known: dict[int, int] = {}

    def ict(index: int) -> int:
        if index not in known:
            known[index] = ict_of(versions[index])
        return known[index]

    low, high = 0, len(versions) - 1
    if ict(high) <= timestamp_ms:
        return CommitAt(versions[high], ict(high), "in-commit")
    while low < high:  # Invariant: all commits before low are at or before the requested time; commit high is after it
        middle = (low + high) // 2
        if ict(middle) <= timestamp_ms:
            low = middle + 1
        else:
            high = middle
    answer = max(high - 1, 0)
    return CommitAt(versions[answer], ict(answer), "in-commit")


# ------------------------------------------------------------------------------------------- points in time


def to_epoch_ms(value: datetime.date | int | str, zone: datetime.tzinfo | None = None) -> int:
    """Convert an aware datetime, an int (ms), or ISO text with an offset or Z to milliseconds since the epoch.

    Times with a higher precision are floored to milliseconds. ``zone`` applies to values without a time zone; a date
    means the start of that day in ``zone``. Raises InvalidTimestampError for such values without ``zone``: their
    meaning would depend on the machine.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str, datetime.date)):
        raise InvalidTimestampError(
            "A timestamp must be an aware datetime, ISO text with an offset, or an int in ms; got "
            f"{type(value).__name__}."
        )
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        value = parse_iso(value)
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if value.utcoffset() is None and zone is not None:
        value = value.replace(tzinfo=zone)
    if value.utcoffset() is None:
        raise InvalidTimestampError(
            f"The timestamp {value.isoformat(sep=' ')} has no time zone, so it does not name one instant. "
            "Add one: datetime(…, tzinfo=timezone.utc), value.astimezone() for local time, or text ending in "
            "Z or +02:00; in Python, time_zone='Europe/Berlin' gives the zone of dates and of times without one."
        )
    since_epoch = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return since_epoch // datetime.timedelta(milliseconds=1)


_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?)?\s*(Z|z|[+-]\d{2}(:?\d{2}){1,2})?")


def parse_iso(text: str) -> datetime.datetime:
    """Parse ISO 8601 text in the same way on every Python version (fromisoformat in 3.10 does not support Z or a
    fraction of 3 digits)."""
    match = _ISO.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        zone = match[4] or ""
        body = text.strip()[: len(text.strip()) - len(zone)].strip().replace(",", ".")
        body, _, fraction = body.partition(".")
        value = datetime.datetime.fromisoformat(body)
        value = value.replace(microsecond=int((fraction + "000000")[:6]))
        if not zone:
            return value
        if zone in "Zz":
            return value.replace(tzinfo=datetime.timezone.utc)
        # Offsets can have seconds: Spark writes offsets of local mean time, which most zones used until the late 19th
        # century.
        hours, minutes, seconds = (int(part) for part in re.findall(r"\d{2}", f"{zone}00")[:3])
        offset = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        offset = offset if zone[0] == "+" else -offset
        return value.replace(tzinfo=datetime.timezone(offset))
    except ValueError:
        raise InvalidTimestampError(
            f"{text!r} is not a timestamp. Write it as 2026-11-20T10:00:00.000Z or 2026-11-20 10:00:00+01:00."
        ) from None


def to_iso(timestamp_ms: int) -> str:
    """A time in UTC with milliseconds, such as 2026-11-20T10:00:00.123Z; after the year 9999, the number of
    milliseconds."""
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds") + "Z"


def describe(timestamp_ms: int) -> str:
    """A time for messages: in milliseconds, which can be passed to a call exactly, and in ISO format for the reader."""
    return f"{timestamp_ms} ms ({to_iso(timestamp_ms)})"


def check_range(
    timestamp_ms: int, found: CommitAt, latest_version: int, bounds: Callable[[], tuple[CommitAt, CommitAt]],
    before: str, after: str, table: str,
) -> None:  # fmt: skip
    """Raise an error if the found commit is later than the requested time, or if the requested time is later than the
    last commit, unless ``before`` or ``after`` allows this.

    ``bounds`` returns the earliest and the latest commit, for the error message. Raises TimestampOutOfRangeError.
    """
    too_early = found.timestamp_ms > timestamp_ms and before != "earliest"
    too_late = found.version == latest_version and found.timestamp_ms < timestamp_ms and after != "latest"
    if not (too_early or too_late):
        return
    earliest, latest = bounds()
    relation = "before the first commit that a timestamp can name" if too_early else "after the last commit"
    option = 'before="earliest"' if too_early else 'after="latest"'
    raise TimestampOutOfRangeError(
        f"{table}: the timestamp {describe(timestamp_ms)} is {relation}. Valid: from "
        f"{describe(earliest.timestamp_ms)}, version {earliest.version}, to {describe(latest.timestamp_ms)}, "
        f"version {latest.version}, both included. To clamp the time instead, pass {option} to version_at or snapshot.",
        requested_ms=timestamp_ms,
        earliest_ms=earliest.timestamp_ms,
        latest_ms=latest.timestamp_ms,
    )
