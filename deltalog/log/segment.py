"""Log segments: the files in a listing from which a version is rebuilt, that is, a checkpoint and the commits after it.
Pure.

Spec: PROTOCOL.md#action-reconciliation, #checkpoints, #multi-part-checkpoint, #problems-with-multi-part-checkpoints,
#checkpoint-naming-scheme.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from deltalog.errors import MissingVersionError, TableNotFoundError, VersionNotFoundError
from deltalog.protocol.paths import MAX_VERSION, LogFile, LogFileKind, commit_name, compaction_name, parse_log_file
from deltalog.storage.base import FileMeta

# The digits of a version at the beginning of the name of a log file.
_DIGITS = 20
_CHECKPOINTS = (
    LogFileKind.CLASSIC_CHECKPOINT,
    LogFileKind.MULTI_PART_CHECKPOINT,
    LogFileKind.UUID_CHECKPOINT,
)


class Checkpoint(msgspec.Struct, frozen=True):
    """A complete checkpoint. ``names``: the name of the checkpoint's file in ``_delta_log``, or the names of all its
    parts, in order."""

    version: int
    kind: LogFileKind
    names: tuple[str, ...]

    @property
    def is_json(self) -> bool:
        """Whether the top-level file is JSON, which only V2 checkpoints can be."""
        return self.names[0].endswith(".json")


class Compaction(msgspec.Struct, frozen=True, order=True):
    """A log compaction: the reconciled actions of the commits from ``start`` to ``end``."""

    start: int
    end: int

    @property
    def name(self) -> str:
        return compaction_name(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Listing:
    """The commits and derived files of ``_delta_log``, either all of them or those from some version on.

    ``commits``: the versions of the commits, in ascending order. ``checkpoints``: the complete checkpoints, ascending
    by version. ``checksums``: the versions that have a ``.crc``. ``compactions``: ascending. ``metas``: the sizes and
    times of commit files, by version; empty if only the names were listed.
    """

    commits: tuple[int, ...]
    checkpoints: tuple[Checkpoint, ...]
    checksums: frozenset[int]
    compactions: tuple[Compaction, ...] = ()
    metas: dict[int, FileMeta] = field(repr=False, default_factory=dict)

    @property
    def last(self) -> int | None:
        """The last version with a commit or a checkpoint."""
        return max([*self.commits[-1:], *(c.version for c in self.checkpoints[-1:])], default=None)

    def covers(self, version: int) -> bool:
        """Whether the listing contains all log files that are needed to rebuild ``version``, provided that this version
        exists."""
        first, last = first_readable(self), self.last
        return first is not None and last is not None and first <= version <= last

    def through(self, version: int) -> Listing:
        """The listing, without the files of versions after ``version``."""
        if self.last is None or self.last <= version:
            return self
        commits = self.commits[: bisect.bisect_right(self.commits, version)]
        return Listing(
            commits,
            tuple(checkpoint for checkpoint in self.checkpoints if checkpoint.version <= version),
            frozenset(each for each in self.checksums if each <= version),
            tuple(compaction for compaction in self.compactions if compaction.end <= version),
            {each: meta for each, meta in self.metas.items() if each <= version},
        )

    @property
    def is_empty(self) -> bool:
        return not self.commits and not self.checkpoints

    @property
    def has_gap(self) -> bool:
        """Whether the listing lacks a commit between two other commits."""
        return bool(self.commits) and len(self.commits) != self.commits[-1] - self.commits[0] + 1


class Segment(msgspec.Struct, frozen=True):
    """The files from which ``version`` is rebuilt: the checkpoint, if any, and ``commits`` (ascending versions). Each
    log compaction file in ``compactions`` replaces a run of consecutive commits of the segment."""

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[int, ...]
    has_checksum: bool
    compactions: tuple[Compaction, ...] = ()

    @property
    def checkpoint_version(self) -> int:
        """The checkpoint's version, or -1 if there is no checkpoint."""
        return -1 if self.checkpoint is None else self.checkpoint.version


def parse_listing(files: Iterable[FileMeta]) -> Listing:
    """A listing from the metadata of files; files that are not log files are ignored."""
    metas = {meta.name: meta for meta in files}
    listing = parse_names(metas)
    listing.metas.update((version, metas[commit_name(version)]) for version in listing.commits)
    return listing


def parse_names(names: Collection[str]) -> Listing:
    """Like ``parse_listing``, but from file names alone, in any order.

    Commits and checksums are recognised by what follows the 20 digits of their names. The names are not parsed one by
    one, because a log of 100,000 commits has 200,000 of them.
    """
    by_end = defaultdict[str, list[str]](list)
    for name in names:
        by_end[name[_DIGITS:]].append(name)
    commits, checksums = _versions(by_end.pop(".json", [])), _versions(by_end.pop(".crc", []))
    parts: dict[tuple[int, LogFileKind, int, str], list[LogFile]] = {}
    compactions: list[Compaction] = []
    for name in (name for group in by_end.values() for name in group if len(name) > 25):
        parsed = parse_log_file(name)
        if parsed is not None and parsed.kind in _CHECKPOINTS:
            unique = name if parsed.kind is LogFileKind.UUID_CHECKPOINT else ""
            parts.setdefault((parsed.version, parsed.kind, parsed.parts or 1, unique), []).append(parsed)
        elif parsed is not None and parsed.end_version is not None and parsed.end_version > parsed.version:
            compactions.append(Compaction(parsed.version, parsed.end_version))
    checkpoints = [
        Checkpoint(version, kind, tuple(f.name for f in sorted(found, key=lambda f: f.part or 0)))
        for (version, kind, expected, _), found in parts.items()
        if len({f.part for f in found}) == expected
    ]
    # If a version has several checkpoints, the last in this order is used.
    checkpoints.sort(key=lambda c: (c.version, _CHECKPOINTS.index(c.kind), c.names))
    return Listing(tuple(commits), tuple(checkpoints), frozenset(checksums), tuple(sorted(compactions)))


def _versions(names: Sequence[str]) -> Sequence[int]:
    """The versions with which names of the same end begin, ascending. Names that begin with something else are ignored.
    If the versions are consecutive, only the lowest and the highest are parsed."""
    if not names:
        return ()
    digits = "".join(names).replace(names[0][_DIGITS:], "")
    if not (len(digits) == _DIGITS * len(names) and digits.isdecimal() and digits.isascii()):
        names = [name for name in names if name[:_DIGITS].isdecimal() and name[:_DIGITS].isascii()]
    low, high = (int(name[:_DIGITS]) for name in (min(names, default="0"), max(names, default="0")))
    if high - low + 1 == len(names) and high <= MAX_VERSION:
        return range(low, high + 1)
    return sorted(version for name in names if (version := int(name[:_DIGITS])) <= MAX_VERSION)


def choose_segment(
    listing: Listing, table: str, version: int | None = None, unusable: Collection[Checkpoint] = ()
) -> Segment:
    """The log segment of ``version`` (None: the latest), ignoring the ``unusable`` checkpoints.

    Raises TableNotFoundError, VersionNotFoundError, MissingVersionError.
    """
    latest = listing.last
    if latest is None:
        raise TableNotFoundError(
            f"There is no Delta table at {table}: _delta_log has no commit. "
            "Check the path, or create the table with DeltaTable.create."
        )
    wanted = latest if version is None else version
    usable = [c for c in listing.checkpoints if c.version <= wanted and c not in unusable]
    checkpoint = usable[-1] if usable else None
    start = 0 if checkpoint is None else checkpoint.version + 1
    low, high = bisect.bisect_left(listing.commits, start), bisect.bisect_right(listing.commits, wanted)
    commits = listing.commits[low:high]
    if wanted > latest or wanted < 0:
        raise _not_found(wanted, first_readable(listing), latest, table)
    if commits != tuple(range(start, wanted + 1)):
        missing = _first_gap(commits, start, wanted)
        earliest = first_readable(listing)
        if version is not None and (earliest is None or wanted < earliest):
            raise _not_found(wanted, earliest, latest, table)
        if checkpoint is None and start == 0 and (not commits or commits[0] > 0):
            raise MissingVersionError(
                f"{table}: version {wanted} cannot be rebuilt: the log begins at version "
                f"{listing.commits[0] if listing.commits else '?'} and no readable checkpoint covers the versions "
                "them. Restore the missing files of _delta_log from a copy.",
                version=missing,
            )
        raise MissingVersionError(
            f"{table}: version {wanted} cannot be rebuilt: {commit_name(missing)} is missing from _delta_log "
            "while later versions exist. Restore it from a copy.",
            version=missing,
        )
    # A checksum is verified against the commit of its version. For a checkpoint's version, ``commits`` does not contain
    # that commit.
    position = bisect.bisect_left(listing.commits, wanted)
    has_commit = listing.commits[position : position + 1] == (wanted,)
    has_checksum = has_commit and wanted in listing.checksums
    return Segment(wanted, checkpoint, commits, has_checksum, _covering(listing.compactions, start, wanted))


def _covering(compactions: Sequence[Compaction], start: int, end: int) -> tuple[Compaction, ...]:
    """Compactions that lie within a range of versions and do not overlap; of several compactions with the same start,
    the longest is used."""
    chosen: list[Compaction] = []
    for each in sorted(compactions, key=lambda c: (c.start, -c.end)):
        if start <= each.start and each.end <= end:
            chosen.append(each)
            start = each.end + 1
    return tuple(chosen)


def versions_by_time(listing: Listing) -> Sequence[int]:
    """The versions to which time travel by timestamp can resolve, ascending: all versions with a commit file, from the
    first readable version on.

    The result includes versions after a gap, which were current at their time even if they can no longer be rebuilt.
    """
    first = first_readable(listing)
    return () if first is None else listing.commits[bisect.bisect_left(listing.commits, first) :]


def first_readable(listing: Listing) -> int | None:
    """The first version that can be read by number: that of the first checkpoint, or 0 if the commit of version 0
    exists."""
    starts = [checkpoint.version for checkpoint in listing.checkpoints[:1]]
    return min([*starts, *(version for version in listing.commits[:1] if version == 0)], default=None)


def _first_gap(commits: Sequence[int], start: int, end: int) -> int:
    present = set(commits)
    return next(v for v in range(start, end + 1) if v not in present)


def _not_found(version: int, earliest: int | None, latest: int, table: str) -> VersionNotFoundError:
    earliest = latest if earliest is None else earliest
    return VersionNotFoundError(
        f"{table} has no version {version}. Versions {earliest} to {latest} can be read.",
        version=version,
        earliest=earliest,
        latest=latest,
    )
