"""Time travel and history: which version was current at an instant, and the commits with their times.

Spec: PROTOCOL.md#in-commit-timestamps. The rules are in deltalog.protocol.timestamps; this module reads the timestamps
that they need.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalog.errors import (
    CallError,
    InvalidEnablementError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from deltalog.log.commit_decoder import garbage_collection_paused
from deltalog.log.loader import load
from deltalog.log.reader import LogReader
from deltalog.log.segment import Listing, recreatable_versions
from deltalog.log.snapshot import LogSnapshot
from deltalog.parallel import Lazy
from deltalog.protocol.actions import CommitInfo
from deltalog.protocol.json_values import mapping_or_empty, text_or_none, whole_or_none
from deltalog.protocol.paths import commit_path
from deltalog.protocol.timestamps import (
    Clock,
    CommitAt,
    Enablement,
    Timeline,
    check_range,
    describe,
    monotonised,
    resolve,
    timeline,
    to_iso,
)

BEFORE = ("error", "earliest")
AFTER = ("error", "latest")
_FEW = 8


class LogHistory:
    """One listing of the whole log, and the latest snapshot, whose properties decide between in-commit timestamps and
    file times.

    ``stat``: list with the files' times, for callers that need those of most commits. Cost of creation: 1 LIST, and
    that of loading the latest snapshot (2 GETs with a usable ``.crc``).
    """

    def __init__(self, reader: LogReader, *, stat: bool = False) -> None:
        self.reader = reader
        self.listing: Listing = reader.list_from(stat=stat)
        self.latest: LogSnapshot = load(reader, self.listing)
        # Timestamps that were read to load the latest version are not read again.
        self._icts: dict[int, int] = dict(self.latest.known_in_commit_timestamps)

    @Lazy
    def enablement(self) -> Enablement | None:
        """The enablement pair of the latest version. Raises InvalidEnablementError."""
        return self.latest.enablement

    @Lazy
    def candidates(self) -> Sequence[int]:
        """The versions that a timestamp can name, ascending: those that have a commit file and can be rebuilt."""
        return recreatable_versions(self.listing)

    @Lazy
    def timeline(self) -> Timeline:
        """The commits that a timestamp can name, and their clocks. Raises VersionNotFoundError when there are none."""
        versions = self.candidates
        if not versions:
            raise VersionNotFoundError(
                f"{self.reader.store.url}: no version can be named by a timestamp: the commit files of the "
                "versions that can be rebuilt are missing.",
                version=self.latest.version,
                earliest=None,
                latest=self.latest.version,
            )
        return timeline(versions, self.latest.in_commit_timestamps_enabled, self.enablement)

    def version_at(self, timestamp_ms: int, before: str = "error", after: str = "error") -> CommitAt:
        """The last commit at or before an instant, in milliseconds since 1970.

        ``before``, ``after``: for an instant before the first or after the last commit, "error" or that commit
        ("earliest", "latest"). Raises CallError, TimestampOutOfRangeError, MissingInCommitTimestampError,
        InvalidEnablementError, VersionNotFoundError. Cost: at most ceil(log2 n) + 2 GETs of 4 KiB for n commits; for
        an instant before the enablement, 1 LIST, or 1 HEAD for each of at most 8 commits, where the listing lacks
        file times.
        """
        if before not in BEFORE or after not in AFTER:
            raise CallError(f"before is one of {BEFORE} and after one of {AFTER}; got {before!r} and {after!r}.")
        found = resolve(timestamp_ms, self.timeline, self.ict_of, self.file_times_of)
        table = self.reader.store.url
        self._check_enablement(found)
        check_range(timestamp_ms, found, self.timeline.versions[-1], self.bounds, before, after, table)
        return found

    def snapshot_at(self, timestamp_ms: int) -> LogSnapshot:
        """The version that was current at an instant, in milliseconds since 1970. Raises and costs as ``version_at``,
        and 1 GET for each log file of the version."""
        version = self.version_at(timestamp_ms).version
        return self.latest if version == self.latest.version else load(self.reader, self.listing, version)

    def first_version_from(self, timestamp_ms: int) -> int:
        """The first version at or after an instant, in milliseconds since 1970. Raises TimestampOutOfRangeError after
        the last commit, and as ``version_at``."""
        at = self.version_at(timestamp_ms, before="earliest", after="latest")
        if at.timestamp_ms >= timestamp_ms:
            return at.version
        later = self._next(at.version)
        if later is None:
            self.version_at(timestamp_ms)  # raises with the bounds
        return at.version + 1 if later is None else later

    def _next(self, version: int) -> int | None:
        """The next version that a timestamp can name."""
        versions = self.timeline.versions
        position = bisect.bisect_right(versions, version)
        return versions[position] if position < len(versions) else None

    def _check_enablement(self, found: CommitAt) -> None:
        """Refuse an enablement pair that contradicts the enabling commit, where that commit was read. Cost: none."""
        pair = self.enablement
        if pair is None or found.clock != "in-commit" or found.version != pair.version:
            return
        if found.timestamp_ms != pair.timestamp_ms:
            raise InvalidEnablementError(
                f"{self.reader.store.url}: by the properties, version {pair.version} enabled in-commit timestamps at "
                f"{describe(pair.timestamp_ms)}, but the timestamp of that commit is {describe(found.timestamp_ms)}. "
                "Disable in-commit timestamps (disable_in_commit_timestamps()) and enable them again, which writes a "
                "new pair."
            )

    def bounds(self) -> tuple[CommitAt, CommitAt]:
        """The first and the last commit that a timestamp can name.

        In a copy, the files of the commits before the enablement can all be younger than the enablement; then
        no timestamp names them, and the first one is the enabling commit. Cost: as two calls of ``commit_at``.
        """
        log = self.timeline
        first = self.commit_at(log.versions[0])
        if first.clock == "file-modification" and log.in_ict_era(first.timestamp_ms):
            first = self.commit_at(log.ict_versions[0])
        return first, self.commit_at(log.versions[-1])

    def commit_at(self, version: int) -> CommitAt:
        """A commit with its in-commit timestamp, or before the enablement its monotonised file time. Cost: at most
        1 GET of 4 KiB, or 1 LIST."""
        if self.timeline.ict_from is not None and version >= self.timeline.ict_from:
            return CommitAt(version, self.ict_of(version), "in-commit")
        return CommitAt(version, self._monotonised_file_times[version], "file-modification")

    @Lazy
    def _monotonised_file_times(self) -> dict[int, int]:
        versions = self.timeline.file_versions
        return dict(zip(versions, monotonised(self.file_times_of(versions)), strict=True))

    def ict_of(self, version: int) -> int:
        """The in-commit timestamp of a commit, in milliseconds since 1970. Raises MissingInCommitTimestampError. Cost:
        1 GET of 4 KiB at the first call for a version."""
        if version not in self._icts:
            self._icts[version] = self.reader.in_commit_timestamp_ms(version)
        return self._icts[version]

    def file_times_of(self, versions: Sequence[int]) -> list[int]:
        """The file modification times of commits as the store has them, in milliseconds since 1970. Raises
        VersionNotFoundError. Cost: 1 LIST, or 1 HEAD each for at most 8 versions."""
        self._stat_all(versions)
        return [self._file_meta(v)[1] for v in versions]

    def _stat_all(self, versions: Sequence[int]) -> None:
        unknown = [v for v in versions if v not in self.listing.metas]
        if len(unknown) > _FEW:
            metas = self.reader.list_from(unknown[0], stat=True).metas
            self.listing.metas.update((v, metas[v]) for v in unknown if v in metas)
            return
        heads = self.reader.heads([commit_path(v) for v in unknown])
        self.listing.metas.update((v, meta) for v, meta in zip(unknown, heads, strict=True) if meta is not None)

    def _file_meta(self, version: int) -> tuple[int, int]:
        """Size in bytes and modification time in milliseconds of a commit file."""
        meta = self.listing.metas.get(version)
        if meta is None or meta.modification_time_ms is None or meta.size_bytes is None:
            meta = self.reader.store.head(commit_path(version))
            if meta is None:
                raise VersionNotFoundError(
                    f"{self.reader.store.url}: log clean-up deleted version {version} during this call. Try again.",
                    version=version, earliest=None, latest=self.latest.version,
                )  # fmt: skip
        return meta.size_bytes or 0, meta.modification_time_ms or 0

    # ------------------------------------------------------------------------------------------ history

    def entries(self, limit: int | None = None) -> list[CommitEntry]:
        """The commits with a file, newest first; with ``limit``, at most that many. Raises CallError,
        InvalidEnablementError, VersionNotFoundError. Cost: 1 GET of 4 KiB each, and 1 LIST, or 1 HEAD for each of at
        most 8 commits, where the listing lacks file times."""
        if limit is not None and limit < 1:
            raise CallError(f"limit is a positive number or None; got {limit}.")
        listed = self.listing.commits
        chosen = listed if limit is None else listed[-limit:]
        log = timeline(listed, self.latest.in_commit_timestamps_enabled, self.enablement)
        needs_file_times = bool(log.file_versions) and log.file_versions[-1] >= chosen[0]
        file_times = (
            dict(zip(log.file_versions, monotonised(self.file_times_of(log.file_versions)), strict=True))
            if needs_file_times
            else {}
        )
        self._stat_all(chosen)
        entries = []
        newest_first = chosen[::-1]
        with garbage_collection_paused():
            for version, info in zip(newest_first, self.reader.commit_infos(newest_first), strict=True):
                in_ict_era = log.ict_from is not None and version >= log.ict_from
                size_bytes, file_time_ms = self._file_meta(version)
                ict_ms = None if info is None else info.in_commit_timestamp_ms
                time_ms = ict_ms if in_ict_era else file_times[version]
                clock: Clock = "in-commit" if in_ict_era else "file-modification"
                body = {} if info is None else info.body
                entries.append(CommitEntry(version, time_ms, clock, file_time_ms, size_bytes, body))
        return entries

    def explain(self, timestamp_ms: int) -> TimestampExplanation:
        """How an instant, in milliseconds since 1970, is resolved to a version. Raises and costs as ``version_at`` and
        ``bounds``, but a TimestampOutOfRangeError becomes the ``refusal`` of the explanation."""
        log = self.timeline
        in_ict_era = log.in_ict_era(timestamp_ms)
        candidates = log.ict_versions if in_ict_era else log.file_versions
        earliest, latest = self.bounds()
        found: CommitAt | None = None
        refusal: str | None = None
        try:
            found = self.version_at(timestamp_ms)
        except TimestampOutOfRangeError as error:
            refusal = error.message
        later = None if found is None else self._next(found.version)
        after = None if later is None else self.commit_at(later)
        return TimestampExplanation(
            table=self.reader.store.url,
            requested_ms=timestamp_ms,
            enabled=self.latest.in_commit_timestamps_enabled,
            enablement=self.enablement,
            clock="in-commit" if in_ict_era else "file-modification",
            candidates=(candidates[0], candidates[-1]) if candidates else None,
            answer=found,
            next_commit=after,
            earliest=earliest,
            latest=latest,
            refusal=refusal,
        )


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """A row of the history. Times are in milliseconds since 1970. ``timestamp_ms``: None where the commit lacks the
    in-commit timestamp that it requires; it is not replaced by another time."""

    version: int
    timestamp_ms: int | None
    clock: Clock
    file_modification_time_ms: int
    size_bytes: int
    commit_info: dict[str, Any] = field(repr=False)

    @property
    def in_commit_timestamp_ms(self) -> int | None:
        """The in-commit timestamp in the commit, also where the table does not use it."""
        return CommitInfo(self.commit_info).in_commit_timestamp_ms

    @property
    def commit_info_timestamp_ms(self) -> int | None:
        """The time by the writer's clock; informative only."""
        return whole_or_none(self.commit_info.get("timestamp"))

    @property
    def operation(self) -> str | None:
        return CommitInfo(self.commit_info).operation

    @property
    def operation_parameters(self) -> dict[str, Any]:
        return mapping_or_empty(self.commit_info.get("operationParameters"))

    @property
    def operation_metrics(self) -> dict[str, Any]:
        return mapping_or_empty(self.commit_info.get("operationMetrics"))

    @property
    def user_metadata(self) -> str | None:
        return text_or_none(self.commit_info.get("userMetadata"))

    @property
    def engine_info(self) -> str | None:
        return text_or_none(self.commit_info.get("engineInfo"))

    @property
    def txn_id(self) -> str | None:
        return CommitInfo(self.commit_info).txn_id

    @property
    def read_version(self) -> int | None:
        return whole_or_none(self.commit_info.get("readVersion"))

    @property
    def isolation_level(self) -> str | None:
        return text_or_none(self.commit_info.get("isolationLevel"))

    @property
    def is_blind_append(self) -> bool | None:
        value = self.commit_info.get("isBlindAppend")
        return value if isinstance(value, bool) else None

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON-compatible values."""
        return {
            "version": self.version,
            "timestamp_ms": self.timestamp_ms,
            "timestamp": None if self.timestamp_ms is None else to_iso(self.timestamp_ms),
            "clock": self.clock,
            "operation": self.operation,
            "operation_parameters": self.operation_parameters,
            "operation_metrics": self.operation_metrics,
            "user_metadata": self.user_metadata,
            "engine_info": self.engine_info,
            "txn_id": self.txn_id,
            "read_version": self.read_version,
            "isolation_level": self.isolation_level,
            "is_blind_append": self.is_blind_append,
            "in_commit_timestamp_ms": self.in_commit_timestamp_ms,
            "commit_info_timestamp_ms": self.commit_info_timestamp_ms,
            "file_modification_time_ms": self.file_modification_time_ms,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True, slots=True)
class TimestampExplanation:
    """How an instant is resolved to a version: ``str()`` is a report, ``to_json()`` has all fields.

    Times are in milliseconds since 1970. ``clock``: the kind of timestamp that the instant is compared with.
    ``candidates``: the first and the last version with that kind. ``answer``: the version that was current, None where
    ``refusal``, the message of the error, is set. ``next_commit``: the one after the answer. ``earliest``, ``latest``:
    the first and the last commit that a timestamp can name.
    """

    table: str
    requested_ms: int
    enabled: bool
    enablement: Enablement | None
    clock: Clock
    candidates: tuple[int, int] | None
    answer: CommitAt | None
    next_commit: CommitAt | None
    earliest: CommitAt
    latest: CommitAt
    refusal: str | None

    def facts(self) -> list[tuple[str, str]]:
        """The report as pairs of a label and a text."""
        facts = [
            ("Table", self.table),
            ("Requested", describe(self.requested_ms)),
            ("ICT", self._enablement_text()),
        ]
        if self.candidates:
            first, last = self.candidates
            facts.append(("Clock", f"{self._clock_text()}; candidates: versions {first} to {last}"))
        if self.answer is not None:
            committed = describe(self.answer.timestamp_ms)
            facts.append(("Answer", f"version {self.answer.version}, committed at {committed}"))
        if self.next_commit is not None:
            at = f"{describe(self.next_commit.timestamp_ms)} ({self.next_commit.clock} time)"
            facts.append(("Until", f"version {self.next_commit.version} at {at}"))
        if self.refusal is not None:
            facts.append(("Refused", self.refusal))
        valid = [f"{describe(at.timestamp_ms)}, version {at.version}" for at in (self.earliest, self.latest)]
        facts.append(("Valid", ", to ".join(valid)))
        if self.clock == "file-modification":
            note = "file modification times change when the table is copied or restored"
            note += (
                ", so this answer can differ in a copy; commits since the enablement keep theirs."
                if self.enabled
                else "; enable in-commit timestamps to make answers last."
            )
            facts.append(("Note", note))
        return facts

    def __str__(self) -> str:
        return "\n".join(f"{label:<10}{text}" for label, text in self.facts())

    def _enablement_text(self) -> str:
        if not self.enabled:
            return "off: the time of every commit is its file modification time"
        if self.enablement is None:
            return "on since version 0"
        return f"on since version {self.enablement.version}, {describe(self.enablement.timestamp_ms)}"

    def _clock_text(self) -> str:
        if self.clock == "in-commit":
            return "in-commit timestamps"
        if self.enablement is None:
            return "file modification times, made increasing"
        return "file modification times, made increasing (the requested time is before the enablement)"

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON-compatible values."""

        def commit(at: CommitAt | None) -> dict[str, Any] | None:
            if at is None:
                return None
            iso = to_iso(at.timestamp_ms)
            return {
                "version": at.version,
                "timestamp_ms": at.timestamp_ms,
                "timestamp": iso,
                "clock": at.clock,
            }

        enablement = self.enablement
        return {
            "table": self.table,
            "requested_ms": self.requested_ms,
            "requested": to_iso(self.requested_ms),
            "in_commit_timestamps_enabled": self.enabled,
            "enablement": None
            if enablement is None
            else {"version": enablement.version, "timestamp_ms": enablement.timestamp_ms},
            "clock": self.clock,
            "candidates": None if self.candidates is None else list(self.candidates),
            "answer": commit(self.answer),
            "next_commit": commit(self.next_commit),
            "earliest": commit(self.earliest),
            "latest": commit(self.latest),
            "refusal": self.refusal,
        }
