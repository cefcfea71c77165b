"""Time travel and history: finds the version that was current at an instant, and lists the commits with their times.

The name of a commit file contains its version, so usually a search that reads a few commits finds the version for an
instant. The log is listed only if the commits that were read do not prove the result, or if file times apply.

Spec: PROTOCOL.md#in-commit-timestamps, #recommendations-for-readers-of-tables-with-in-commit-timestamps. The rules are
in deltalog.protocol.timestamps; this module reads the timestamps to which they apply.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from deltalog.errors import (
    CallError,
    InvalidEnablementError,
    MissingVersionError,
    TableReplacedError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from deltalog.lazy_names import lazy_modules
from deltalog.log.history_entries import CommitEntry, TimestampExplanation
from deltalog.log.loader import load
from deltalog.log.reader import LogReader
from deltalog.log.segment import Listing, versions_by_time
from deltalog.log.snapshot import LogSnapshot
from deltalog.parallel import Lazy, both
from deltalog.protocol.actions import CommitInfo
from deltalog.protocol.paths import commit_path
from deltalog.protocol.properties import checkpoint_interval
from deltalog.protocol.timestamp_search import TimestampSearch
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
)
from deltalog.storage.base import FileMeta

if TYPE_CHECKING:
    from deltalog.log import commit_decoder
else:
    lazy_modules(__name__, "deltalog.log.commit_decoder")

BEFORE = ("error", "earliest")
AFTER = ("error", "latest")
# On a remote store, the sizes and times of up to this many commit files are requested one by one; if there are more,
# the log is listed instead.
_FEW_HEADS = 8
# The maximum number of times to list a log that seems to have a gap.
_LISTINGS = 4


class LogHistory:
    """The commits of a log up to the latest version. The table properties of that version decide whether in-commit
    timestamps or file times apply.

    ``latest``: the latest version, if known; otherwise the log is listed and the latest version loaded. Cost of
    creation: none with ``latest``; else 1 LIST and the cost of loading (2 GETs with a usable ``.crc``; on a local disk
    1 HEAD).
    """

    def __init__(self, reader: LogReader, latest: LogSnapshot | None = None) -> None:
        self.reader = reader
        self._listed: Listing | None = None
        if latest is None:
            # On a remote store, the listing also returns sizes and times, at no extra cost.
            self._listed = reader.list_from(stat=reader.store.is_remote)
            latest = load(reader, self._listed, identifies=True)
        self.latest: LogSnapshot = latest
        # Timestamps read while loading the latest version are not read again.
        self._icts: dict[int, int] = dict(self.latest.known_in_commit_timestamps)
        # The sizes and times of commit files, keyed by version.
        self._metas: dict[int, FileMeta] = {}
        # Listings of sections of the log, each of which starts at a checkpoint or at version 0.
        self._parts: tuple[Listing, ...] = ()

    @Lazy
    def listing(self) -> Listing:
        """The whole log up to ``latest``. Raises VersionNotFoundError if log clean-up deletes commits meanwhile,
        TableReplacedError if the log ends before ``latest``. Cost: none if the log was listed to load that version;
        else as ``LogReader.list_range``, twice if the log has a gap."""
        # Commits after ``latest`` are excluded, because they may have changed the properties that determine which kind
        # of timestamp applies.
        last = self.latest.version
        listing = self._listed.through(last) if self._listed is not None else self._list()
        for _ in range(_LISTINGS):
            if not listing.has_gap or self._listed is not None:
                break
            # If clean-up deletes commits during a listing, earlier pages still contain deleted commits and later pages
            # do not, which looks like a gap.
            again = self._list()
            if again.commits == listing.commits:
                break
            listing = again
        else:
            raise VersionNotFoundError(
                f"{self.reader.store.url}: log clean-up is deleting commits while they are listed. Try again.",
                version=last, earliest=None, latest=last,
            )  # fmt: skip
        if listing.last != last:
            raise TableReplacedError(
                f"{self.reader.store.url}: the table was deleted or replaced after version {last} was read: the log no "
                "longer has that version. Open the table again.",
                version=last,
            )
        self._metas.update(listing.metas)
        return listing

    def _list(self) -> Listing:
        # A remote listing includes sizes and times at no extra cost.
        stat = self.reader.store.is_remote or not self.latest.in_commit_timestamps_enabled
        return self.reader.list_range(0, self.latest.version, stat=stat).through(self.latest.version)

    @Lazy
    def enablement(self) -> Enablement | None:
        """The enablement version and timestamp of in-commit timestamps, as stated by the properties of the latest
        version. Raises InvalidEnablementError."""
        return self.latest.enablement

    @Lazy
    def candidates(self) -> Sequence[int]:
        """The versions to which a timestamp can resolve, in ascending order; see ``versions_by_time``."""
        return versions_by_time(self.listing)

    @Lazy
    def timeline(self) -> Timeline:
        """The commits to which a timestamp can resolve, and for each commit the clock that applies to it. Raises
        VersionNotFoundError if there are none."""
        versions = self.candidates
        if not versions:
            raise VersionNotFoundError(
                f"{self.reader.store.url}: no timestamp can name a version: the commit files of all readable versions "
                "are missing.",
                version=self.latest.version,
                earliest=None,
                latest=self.latest.version,
            )
        return timeline(versions, self.latest.in_commit_timestamps_enabled, self.enablement)

    def version_at(self, timestamp_ms: int, before: str = "error", after: str = "error") -> CommitAt:
        """The last commit at or before an instant, in milliseconds since 1970.

        ``before``, ``after``: what to do if the instant is before the first or after the last commit: raise an error
        ("error"), or return that commit ("earliest", "latest"). Raises CallError, TimestampOutOfRangeError,
        MissingInCommitTimestampError, InvalidEnablementError, VersionNotFoundError. Cost: 8 GETs of 4 KiB per round,
        usually 3 to 6 rounds, and 1 LIST if the beginning of the log was cleaned up. If the instant is before the
        enablement, or the log has gaps: the cost of ``listing``, at most ceil(log2 n) + 2 such GETs for n commits and,
        if the listing lacks file times, 1 LIST, or 1 HEAD for each of at most 8 commits.
        """
        if before not in BEFORE or after not in AFTER:
            raise CallError(f"before must be one of {BEFORE} and after one of {AFTER}; got {before!r} and {after!r}.")
        found = self._searched(timestamp_ms) if self._listed is None else None
        latest = self.latest.version
        if found is None:
            found = resolve(timestamp_ms, self.timeline, self.ict_of, self.file_times_of)
            latest = self.timeline.versions[-1]
        self._check_enablement(found)
        check_range(timestamp_ms, found, latest, self.bounds, before, after, self.reader.store.url)
        return found

    def _searched(self, timestamp_ms: int) -> CommitAt | None:
        """The last commit at or before an instant, found without listing the log; None if it cannot be proved in this
        way that the commit is the last one. A proof needs three facts: the commit exists, the next commit exists and is
        later than the instant, and the log is readable from the found version or an earlier one."""
        latest, pair = self.latest, self.enablement
        if not latest.in_commit_timestamps_enabled or (pair is not None and timestamp_ms < pair.timestamp_ms):
            return None
        try:
            last_ms = self.ict_of(latest.version)
        except MissingVersionError:
            return None
        if timestamp_ms >= last_ms:
            return self._in_commit(latest.version)
        first, first_ms = (0, latest.metadata.created_time) if pair is None else (pair.version, pair.timestamp_ms)
        search = TimestampSearch(timestamp_ms, first, latest.version, last_ms, first_ms, self._icts)
        while versions := search.probes():
            times = self.reader.in_commit_timestamps(versions)
            self._icts.update((version, ms) for version, ms in times.items() if ms is not None)
            search.learn(times)
        found = search.found
        if found is None or not self._is_readable_from_before(found):
            return None
        return self._in_commit(found)

    def _is_readable_from_before(self, version: int) -> bool:
        """Whether a version is the first readable version or a later one. Cost: none if known, else 1 HEAD, and as
        ``_part`` if the beginning of the log was cleaned up."""
        if self.latest.segment.checkpoint_version <= version or 0 in self._icts:
            return True
        return self._has_first_commit or self._part(version) is not None

    def _part(self, version: int) -> Listing | None:
        """A part of the log from which a version can be rebuilt; None if there is no such part. Cost: none if a known
        part is enough, else as ``LogReader.list_before``."""
        for part in self._parts:
            if part.covers(version):
                return part
        found = self.reader.list_before(version, checkpoint_interval(self.latest.metadata.configuration))
        self._parts += () if found is None else (found,)
        return found

    def snapshot(self, version: int) -> LogSnapshot:
        """Load a version. Raises as ``loader.load``; TableReplacedError. Cost: as ``LogReader.list_before``, and the
        version's log files; as ``listing`` if no checkpoint is found; and as ``Tip.check_after_read``."""
        if version == self.latest.version:
            return self.latest
        is_listed = self._listed is not None or not 0 <= version < self.latest.version
        part = None if is_listed else self._part(version)
        found = load(self.reader, part or self.listing, version, self.latest.protocol)
        self.latest.tip.check_after_read(self.reader)
        return found

    def first_version_from(self, timestamp_ms: int) -> int:
        """The first version at or after an instant, in milliseconds since 1970. Raises TimestampOutOfRangeError for an
        instant after the last commit, and as ``version_at``."""
        at = self.version_at(timestamp_ms, before="earliest", after="latest")
        if at.timestamp_ms >= timestamp_ms:
            return at.version
        later = self._next(at.version)
        if later is None:
            self.version_at(timestamp_ms)  # raises the error, which names the first and the last commit
        return at.version + 1 if later is None else later

    def _next(self, version: int) -> int | None:
        """The first version after ``version`` to which a timestamp can resolve."""
        if version == self.latest.version:
            return None
        if version + 1 in self._icts:
            return version + 1
        versions = self.timeline.versions
        position = bisect.bisect_right(versions, version)
        return versions[position] if position < len(versions) else None

    def _check_enablement(self, found: CommitAt) -> None:
        """Refuse enablement properties that contradict the enabling commit, if that commit was read. Cost: none."""
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
        """The first and the last commit to which a timestamp can resolve.

        In a copied table, even commit files from before the enablement of in-commit timestamps can have modification
        times after the enablement. In this case, no timestamp resolves to those commits, and the first commit to which
        a timestamp resolves is the enabling commit. Cost: as ``listing``, and two calls of ``commit_at``; if in-commit
        timestamps apply to all commits, 1 HEAD, at most 1 LIST of the first names and 2 GETs of 4 KiB.
        """
        earliest = self._first_in_commit()
        if earliest is not None:
            return self._in_commit(earliest), self._in_commit(self.latest.version)
        log = self.timeline
        first = self.commit_at(log.versions[0])
        if first.clock == "file-modification" and log.in_ict_era(first.timestamp_ms):
            first = self.commit_at(log.ict_versions[0])
        return first, self.commit_at(log.versions[-1])

    def _first_in_commit(self) -> int | None:
        """The first version to which a timestamp can resolve, if in-commit timestamps apply to all commits and this
        version can be found without listing the whole log; else None."""
        if self._listed is not None or not self.latest.in_commit_timestamps_enabled or self.enablement is not None:
            return None
        if 0 in self._icts or self._has_first_commit:
            return 0
        if not self.reader.store.lists_in_pages:
            return None
        return next(iter(versions_by_time(self.reader.list_first())), None)

    @Lazy
    def _has_first_commit(self) -> bool:
        return self.reader.store.head(commit_path(0)) is not None

    def commit_at(self, version: int) -> CommitAt:
        """A commit with its in-commit timestamp, or, if the commit precedes the enablement of in-commit timestamps,
        with its monotonised file time. Cost: at most 1 GET of 4 KiB, or as ``listing``."""
        if self._is_in_ict_era(version):
            return self._in_commit(version)
        return CommitAt(version, self._monotonised_file_times[version], "file-modification")

    def _is_in_ict_era(self, version: int) -> bool:
        """Whether the time of a version is its in-commit timestamp rather than its file time."""
        enabled, pair = self.latest.in_commit_timestamps_enabled, self.enablement
        return enabled and (pair is None or version >= pair.version)

    def _in_commit(self, version: int) -> CommitAt:
        return CommitAt(version, self.ict_of(version), "in-commit")

    @Lazy
    def _monotonised_file_times(self) -> dict[int, int]:
        versions = self.timeline.file_versions
        return dict(zip(versions, monotonised(self.file_times_of(versions)), strict=True))

    def ict_of(self, version: int) -> int:
        """The in-commit timestamp of a commit, in milliseconds since 1970. Raises MissingInCommitTimestampError. Cost:
        1 GET of 4 KiB on the first call for a version."""
        if version not in self._icts:
            self._icts[version] = self.reader.in_commit_timestamp_ms(version)
        return self._icts[version]

    def file_times_of(self, versions: Sequence[int]) -> list[int]:
        """The modification times of commit files in the store, in milliseconds since 1970. Raises VersionNotFoundError.
        Cost: 1 HEAD each, or on a remote store 1 LIST for more than 8 versions."""
        self._stat_all(versions)
        return [self._file_meta(v)[1] for v in versions]

    def _stat_all(self, versions: Sequence[int]) -> None:
        unknown = [v for v in versions if v not in self._metas]
        if self.reader.store.is_remote and len(unknown) > _FEW_HEADS:
            metas = self.reader.list_range(unknown[0], unknown[-1], stat=True).metas
            self._metas.update((v, metas[v]) for v in unknown if v in metas)
            return
        heads = self.reader.heads([commit_path(v) for v in unknown])
        self._metas.update((v, meta) for v, meta in zip(unknown, heads, strict=True) if meta is not None)

    def _file_meta(self, version: int) -> tuple[int, int]:
        """The size in bytes and the modification time in milliseconds of a commit file. Raises VersionNotFoundError."""
        meta = self._metas.get(version)
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
        """The commits that have a commit file, newest first; with ``limit``, at most that many. Raises CallError,
        InvalidEnablementError, VersionNotFoundError. Cost: 1 GET of 4 KiB each, and 1 HEAD each for sizes and times;
        instead of HEADs, on a remote store with more than 8 commits, 1 LIST per 450. The cost of ``listing`` is added,
        unless ``limit`` is set and in-commit timestamps apply to these commits."""
        if limit is not None and limit < 1:
            raise CallError(f"limit must be a positive number or None; got {limit}.")
        entries = None if limit is None else self.recent_entries(limit)
        if entries is not None:
            return entries
        listed = self.listing.commits
        chosen = listed if limit is None else listed[-limit:]
        log = timeline(listed, self.latest.in_commit_timestamps_enabled, self.enablement)
        needs_file_times = bool(log.file_versions) and log.file_versions[-1] >= chosen[0]
        file_times = (
            dict(zip(log.file_versions, monotonised(self.file_times_of(log.file_versions)), strict=True))
            if needs_file_times
            else {}
        )
        return self._entries(chosen, self._infos_and_metas(chosen), file_times)

    def _infos_and_metas(self, versions: Sequence[int]) -> list[CommitInfo | None]:
        """The commitInfo actions of commits; also records the sizes and times of the commit files."""
        if self.reader.store.is_remote:
            self._stat_all(versions)
            return self.reader.commit_infos(versions)
        infos, metas = self.reader.commit_infos_with_meta(versions)
        self._metas.update(zip(versions, metas, strict=True))
        return infos

    def recent_entries(self, limit: int) -> list[CommitEntry] | None:
        """The last commits, newest first, found without listing the whole log; None if they can only be found by a
        listing. Raises InvalidEnablementError. Cost: as ``entries``."""
        versions = range(max(0, self.latest.version - limit + 1), self.latest.version + 1)
        if self._listed is not None or not self._is_in_ict_era(versions[0]):
            return None
        try:
            infos, _ = both(
                partial(self.reader.commit_infos, versions),
                partial(self._stat_all, versions),
                self.reader.store.is_remote,
            )
        except MissingVersionError:  # the log begins at a later version, or has a gap
            return None
        return self._entries(versions, infos, {}) if all(map(self._metas.get, versions)) else None

    def _entries(
        self, versions: Sequence[int], infos: Sequence[CommitInfo | None], file_times: Mapping[int, int]
    ) -> list[CommitEntry]:
        """The history entries, newest first. ``versions``: ascending. ``file_times``: the monotonised file times of the
        versions to which file times apply."""
        ict_from = next((at for at, version in enumerate(versions) if self._is_in_ict_era(version)), len(versions))
        entries = []
        with commit_decoder.garbage_collection_paused():
            for at in range(len(versions) - 1, -1, -1):
                version, info = versions[at], infos[at]
                size_bytes, file_time_ms = self._file_meta(version)
                time_ms: int | None
                clock: Clock
                if at >= ict_from:
                    time_ms, clock = None if info is None else info.in_commit_timestamp_ms, "in-commit"
                else:
                    time_ms, clock = file_times[version], "file-modification"
                body = {} if info is None else info.body
                entries.append(CommitEntry(version, time_ms, clock, file_time_ms, size_bytes, body))
        return entries

    def explain(self, timestamp_ms: int) -> TimestampExplanation:
        """Explain how an instant, in milliseconds since 1970, is resolved to a version. Raises and costs as
        ``version_at`` and ``bounds``, but a TimestampOutOfRangeError becomes the explanation's ``refusal``."""
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
