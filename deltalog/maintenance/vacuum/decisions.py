"""Decides which files below a table root a vacuum deletes, and gives the reason for keeping every other file. Pure.

A file is deleted if no version within the retention needs it and it is older than the retention. Hidden files, links,
files of other tables, and files with names that no log can contain are kept.

Spec: PROTOCOL.md leaves vacuum to writers; #file-types, #add-file-and-remove-file define which files a version needs.
"""

from __future__ import annotations

import enum
import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, overload

import msgspec

from deltalog.arguments import safe_repr
from deltalog.maintenance.vacuum.path_hashes import NeededPaths, PathHashes
from deltalog.protocol.leftovers import LeftoverKind, leftover_kind
from deltalog.protocol.paths import LOG_DIRECTORY, are_ordinary, is_plain
from deltalog.protocol.retention import DAY_MS
from deltalog.protocol.timestamps import describe
from deltalog.storage.base import Entry, EntryKind, WalkPart

# However short the retention is, a file that no version names may belong to a write that has not committed yet.
UNCOMMITTED_AGE_MS = DAY_MS
_HIDDEN = ("_", ".")
_CHANGE_DATA = "_change_data"
_NOT_HIDDEN = ("_delta_index", _CHANGE_DATA)
_ICEBERG_METADATA = "metadata"
_CHECKSUM = ".crc"
# The number of files in a batch for which sizes and times are read together.
_AT_ONCE = 1_024


class Need(enum.Enum):
    """Why a file is kept at any age."""

    LATEST = "the latest version needs it"
    EARLIER = "a version within the retention needs it"
    CHANGES = "the change feed within the retention needs it"
    UNSETTLED = "a commit that names it may still take effect"
    TRANSACTION = "an undecided transaction needs it"


class Stay(enum.Enum):
    """Why a file is kept although no version is known to need it."""

    YOUNG = "younger than the retention"
    UNCOMMITTED = "younger than a day, and named by no version: its commit may follow"
    YOUNG_CHANGES = "a change file younger than a day: its commit is older than the retention, or may follow"
    NO_TIME = "of unknown age"
    SPELLED = "needed if names are compared ignoring case"
    ELSEWHERE = "named like a file that an absolute path of the log names"
    HIDDEN = "hidden"
    OTHER_TABLE = "of another table"
    LINK = "a symbolic link"
    SPECIAL = "a mount point or a special file"
    ODD_NAME = "its name cannot occur in a log"


_FOR_THEIR_AGE = (Stay.YOUNG, Stay.UNCOMMITTED, Stay.YOUNG_CHANGES, Stay.NO_TIME)
_REMOVED = "removed from the table before the retention"
_UNNAMED_KINDS: dict[LeftoverKind | None, str] = {
    None: "no version names it",
    **{kind: f"{kind.value} that no version names" for kind in LeftoverKind},
}
_ORPHANED_CHECKSUM = "the checksum of a file that does not exist or is deleted"


@dataclass(frozen=True, slots=True)
class NeededFiles:
    """The decoded paths, below the table root, of files that are kept whatever their age, with the reasons. If several
    of ``reasons`` contain a path, the first applies. ``hashed``: the hash function for names; all sets must use the
    same function."""

    reasons: Sequence[tuple[Need, NeededPaths]] = ()
    hashed: Callable[[str], int] = hash

    def why(self, path: str) -> Need | None:
        """Why a file is needed; None if it is not."""
        return next((need for need, paths in self.reasons if path in paths), None)

    def in_directory(self, directory: str) -> list[tuple[str, Set[int]]]:
        """For each reason, the hashes of the names of those files in a directory that are needed for this reason."""
        return [(need.value, paths.of(directory)) for need, paths in self.reasons if directory in paths.names]

    def spellings(self, directory: str) -> list[Set[int]]:
        """Like ``NeededPaths.spellings``, for each reason."""
        return [names for _, paths in self.reasons for names in paths.spellings(directory)]

    def besides(self, more: Mapping[str, Need]) -> NeededFiles:
        """These files plus ``more``. For a path that both objects contain, the reason in this object is kept."""
        found: dict[Need, list[str]] = {}
        for path, need in more.items():
            found.setdefault(need, []).append(path)
        added = ((need, NeededPaths(paths, self.hashed)) for need, paths in found.items())
        return NeededFiles((*self.reasons, *added), self.hashed)

    @property
    def directories(self) -> Iterator[str]:
        """The directories that contain needed files; a directory may occur more than once."""
        for _, paths in self.reasons:
            yield from paths.names


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files that a log names, as decoded paths below the table root. ``needed``: the files that versions within the
    retention need, each with the reason. ``removed``: the files with expired tombstones; ``needed`` may contain some of
    these files. ``elsewhere``: the file names in absolute paths that do not lead below the root under which the table
    was opened. ``cutoff_version``: the version that was current at the cut-off; None if all versions are within the
    retention. ``is_settled``: False if a commit up to that version contains an unexpired tombstone, which means that
    the clock of that commit's writer was ahead."""

    needed: NeededFiles
    removed: Set[str] = frozenset()
    elsewhere: Set[str] = frozenset()
    cutoff_version: int | None = None
    is_settled: bool = True


@dataclass(frozen=True, slots=True)
class VacuumRules:
    """``cutoff_ms``: only files older than this time are deleted. ``now_ms``: the time of the vacuum. Both times are in
    milliseconds since 1970. ``partition_columns``: the partition columns, whose directories may have hidden names.
    ``has_iceberg_metadata``: whether a directory named ``metadata`` belongs to Iceberg."""

    cutoff_ms: int
    now_ms: int
    partition_columns: Sequence[str] = ()
    has_iceberg_metadata: bool = False

    def ignores(self, name: str) -> bool:
        """Whether VACUUM ignores paths that contain this name, as delta-spark does: it ignores hidden names, except
        those of change data files, indexes and partitions."""
        if name == _ICEBERG_METADATA and self.has_iceberg_metadata:
            return True
        if not name.startswith(_HIDDEN):
            return False
        partitions = tuple(f"{column}=" for column in self.partition_columns)
        return not name.startswith((*_NOT_HIDDEN, *partitions))

    def enters(self, directory: str) -> bool:
        """Whether a vacuum may delete files in ``directory``."""
        return not self.ignores(directory.rpartition("/")[2])


class VacuumedFile(msgspec.Struct, frozen=True, gc=False):
    """A file to delete. ``path``: the path below the table root. ``reason``: why the file is not needed."""

    path: str
    size_bytes: int
    reason: str


class VacuumedFiles(Sequence[VacuumedFile]):
    """The files to delete, stored as columns; accessing a row creates a VacuumedFile. ``times_ms``: modification times
    in milliseconds since 1970."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.sizes_bytes = array("q")
        self.times_ms = array("q")
        self.reasons: list[str] = []

    def add(self, path: str, size_bytes: int, time_ms: int, reason: str) -> None:
        """Add a file."""
        self.paths.append(path)
        self.sizes_bytes.append(size_bytes)
        self.times_ms.append(time_ms)
        self.reasons.append(reason)

    def of(self, rows: Iterable[int]) -> VacuumedFiles:
        """The files in this list that have the given row numbers."""
        found = VacuumedFiles()
        found.extend(self, rows)
        return found

    def extend(self, others: VacuumedFiles, rows: Iterable[int]) -> None:
        """Append the files of ``others`` that have these indices."""
        for row in rows:
            self.add(others.paths[row], others.sizes_bytes[row], others.times_ms[row], others.reasons[row])

    def in_order(self) -> VacuumedFiles:
        """The files, sorted by path."""
        if all(map(str.__lt__, self.paths, itertools.islice(self.paths, 1, None))):
            return self
        return self.of(sorted(range(len(self)), key=self.paths.__getitem__))

    def without(self, paths: Set[str]) -> VacuumedFiles:
        """All files except those with these paths."""
        if paths.isdisjoint(self.paths):
            return self
        return self.of(row for row, path in enumerate(self.paths) if path not in paths)

    def entries(self, rows: Iterable[int]) -> list[Entry]:
        """The files at the given row numbers, in the form that ``LogStore.remove`` accepts."""
        return [Entry(self.paths[row], EntryKind.FILE, self.sizes_bytes[row], self.times_ms[row]) for row in rows]

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> VacuumedFile: ...
    @overload
    def __getitem__(self, index: slice) -> VacuumedFiles: ...
    def __getitem__(self, index: int | slice) -> VacuumedFile | VacuumedFiles:
        if isinstance(index, slice):
            return self.of(range(len(self))[index])
        return VacuumedFile(self.paths[index], self.sizes_bytes[index], self.reasons[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(VacuumedFile.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    @safe_repr
    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The result of a vacuum, or with ``dry_run`` the plan for one.

    ``version``: the version that was the latest when the log was read. ``retention_ms``: the retention that was
    applied; ``cutoff_ms``: the time, in milliseconds since 1970, before which files were considered for deletion.
    ``files``: the deleted files, by path. ``directories``: the paths of removed empty directories. ``kept``: the number
    of files kept, by reason. ``commits``: the versions that record VACUUM START and VACUUM END, if any. ``full``:
    whether all files below the root were listed; otherwise only files that the log says were removed are counted.
    """

    table: str
    dry_run: bool
    version: int
    retention_ms: int
    cutoff_ms: int
    files: Sequence[VacuumedFile]
    directories: tuple[str, ...]
    kept: Mapping[str, int]
    commits: tuple[int, ...] = ()
    full: bool = True

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the deleted files, relative to the table root."""
        files = self.files
        return tuple(files.paths if isinstance(files, VacuumedFiles) else (file.path for file in files))

    @property
    def size_bytes(self) -> int:
        """The total size of the deleted files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def deleted(self) -> Mapping[str, int]:
        """The number of deleted files, by reason."""
        return Counter(file.reason for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON-compatible values."""
        return {
            "table": self.table,
            "dry_run": self.dry_run,
            "version": self.version,
            "retention_ms": self.retention_ms,
            "cutoff_ms": self.cutoff_ms,
            "size_bytes": self.size_bytes,
            "files": [{"path": f.path, "size_bytes": f.size_bytes, "reason": f.reason} for f in self.files],
            "directories": list(self.directories),
            "kept": dict(self.kept),
            "commits": list(self.commits),
            "full": self.full,
        }

    @safe_repr
    def __repr__(self) -> str:
        """The fields of the report, with the numbers of files and directories in place of the files and directories
        themselves."""
        return (
            f"VacuumReport(table={self.table!r}, dry_run={self.dry_run}, version={self.version}, "
            f"retention_ms={self.retention_ms}, cutoff_ms={self.cutoff_ms}, files={len(self.files)}, "
            f"size_bytes={self.size_bytes}, deleted={dict(self.deleted)}, directories={len(self.directories)}, "
            f"kept={dict(self.kept)}, commits={self.commits}, full={self.full})"
        )

    def facts(self) -> list[tuple[str, str]]:
        """The report as (label, text) pairs."""
        verb = "would be deleted" if self.dry_run else "deleted"
        facts = [
            ("Table", self.table),
            ("Cut-off", describe(self.cutoff_ms)),
            *([] if self.full else [("Mode", "lite: only files that the log says were removed")]),
            ("Files", f"{len(self.files):,} {verb}, {self.size_bytes:,} bytes; {sum(self.kept.values()):,} stay"),
        ]
        if self.directories:
            facts.append(("Empty", f"{len(self.directories):,} directories {verb}"))
        facts += [("Deleted", f"{count:,}: {reason}") for reason, count in sorted(self.deleted.items())]
        facts += [("Stay", f"{count:,}: {reason}") for reason, count in sorted(self.kept.items())]
        return facts

    def __str__(self) -> str:
        return "\n".join(f"{name:<10}{value}" for name, value in self.facts())


@dataclass(slots=True)
class Sifted:
    """The contents of a table directory, with the needed files separated from all others. ``others``: files and links
    that are not needed; ``unread``: the paths of files that are not needed and whose size and time the store has not
    read. ``counts``: the number of needed files that exist, by the reason for which they are needed; ``present``: the
    paths of these files."""

    directories: list[Entry] = field(default_factory=list)
    others: list[Entry] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    present: PathHashes = field(default_factory=PathHashes)

    def count(self, directory: str, hashes: Sequence[int], needed: NeededFiles) -> list[bool]:
        """Count the needed files among the names in a directory; the names are given as hashes. Returns, for each name,
        True if it is not needed."""
        is_other = [True] * len(hashes)
        for need, names in needed.in_directory(directory):
            present = array("q", filter(names.__contains__, itertools.compress(hashes, is_other)))
            if present:
                self.counts[need] += len(present)
                self.present.add_hashes(directory, present)
                is_other = [other and hashed not in names for other, hashed in zip(is_other, hashes, strict=True)]
        return is_other


def sift(parts: Iterable[WalkPart], needed: NeededFiles) -> Sifted:
    """Separate the needed files in a listing from the other files. ``parts``: the batches that ``LogStore.walk_parts``
    returns. Only the number of needed files and the hashes of their paths are kept in memory."""
    found, hashed = Sifted(present=PathHashes(hashed=needed.hashed)), needed.hashed
    for part in parts:
        if part.names:
            is_other = found.count(part.directory, [*map(hashed, part.names)], needed)
            found.unread += itertools.compress(part.paths(), is_other)
        found.directories += (entry for entry in part.entries if entry.kind is EntryKind.DIRECTORY)
        files = (entry for entry in part.entries if entry.kind is not EntryKind.DIRECTORY)
        for directory, grouped in itertools.groupby(files, lambda entry: entry.path.rpartition("/")[0]):
            some = [*grouped]
            hashes = [hashed(entry.path.rpartition("/")[2]) for entry in some]
            found.others += itertools.compress(some, found.count(directory, hashes, needed))
    return found


@dataclass(slots=True)
class Decided:
    """The decisions about some of a table's files. ``files``: to delete. ``kept``: the number of files kept, by reason.
    ``young``: files that are kept only because they are too young, each with the rule that keeps it. ``emptied``:
    directories with files to delete; ``occupied``: directories with files that are kept. ``directories``: all
    directories in the listing. ``tables``: the roots of other tables, whose files are kept. ``present``: the paths of
    files that are kept. ``listed``: the number of files and links; ``gone``: how many of these no longer existed when
    their time was read."""

    directories: list[Entry]
    tables: frozenset[str]
    kept: Counter[str]
    present: PathHashes
    listed: int
    gone: int = 0
    files: VacuumedFiles = field(default_factory=VacuumedFiles)
    young: dict[str, str] = field(default_factory=dict)
    emptied: set[str] = field(default_factory=set)
    occupied: set[str] = field(default_factory=set)


def decide(
    sifted: Sifted,
    named: NamedFiles,
    rules: VacuumRules,
    read: Callable[[Sequence[str]], Iterable[Entry]],
    tables: Iterable[str] = (),
) -> Decided:
    """Decide by name and time which files of a listing, or of a part of it, are deleted or kept. ``read``: a function
    like ``LogStore.entries``, called for files whose names are not enough for a decision. ``tables``: known roots of
    other tables."""
    decision = _Decision(sifted, named, rules, tables)
    # Decide on data files first: Hadoop's hidden checksum file for a data file is kept if the data file is kept.
    for is_checksum in (False, True):
        some = [entry for entry in sifted.others if entry.path.endswith(_CHECKSUM) is is_checksum]
        some.sort(key=lambda entry: entry.path)
        for start in range(0, len(some), _AT_ONCE):
            decision.decide(some[start : start + _AT_ONCE])
        unread = sorted(path for path in sifted.unread if path.endswith(_CHECKSUM) is is_checksum)
        for start in range(0, len(unread), _AT_ONCE):
            undecided = decision.undecided(unread[start : start + _AT_ONCE])
            found = [*read(undecided)]
            decision.result.gone += len(undecided) - len(found)
            decision.decide_by_age(found)
    decision.result.occupied.update(sifted.present.names)
    return decision.result


class _Decision:
    """Decides for each file whether to delete it, and collects the decisions in ``result``."""

    def __init__(self, sifted: Sifted, named: NamedFiles, rules: VacuumRules, tables: Iterable[str]) -> None:
        self._named = named
        self._rules = rules
        paths = (entry.path for entry in (*sifted.others, *sifted.directories))
        roots = table_roots(named.needed.directories, paths, sifted.unread)
        listed = sifted.counts.total() + len(sifted.others) + len(sifted.unread)
        self.result = Decided(sifted.directories, roots.union(tables), +sifted.counts, sifted.present, listed)
        self._by_directory: dict[str, Stay | None] = {}

    def undecided(self, paths: Sequence[str]) -> list[str]:
        """The paths of the files whose age decides whether they are deleted; all other files are recorded as kept.
        Either all ``paths`` must be paths of Hadoop checksum files, or none."""
        ordinary = are_ordinary(paths)
        return [path for path in paths if not self._stays_by_name(path, ordinary)]

    def decide(self, entries: Sequence[Entry]) -> None:
        """Decide whether files and links that are not needed are deleted or kept. Either all entries must be Hadoop
        checksum files, or none."""
        ordinary = are_ordinary([entry.path for entry in entries])
        self.decide_by_age(
            entry
            for entry in entries
            if entry.kind is not EntryKind.FILE or not self._stays_by_name(entry.path, ordinary)
        )

    def decide_by_age(self, entries: Iterable[Entry]) -> None:
        """Decide by age on the files that ``undecided`` returned, and on symbolic links."""
        result = self.result
        for entry in entries:
            path = entry.path
            if entry.kind is not EntryKind.FILE:
                self._keep(path, Stay.LINK if entry.kind is EntryKind.LINK else Stay.SPECIAL)
                continue
            reason = self._by_age(entry)
            if isinstance(reason, str):
                result.files.add(path, entry.size_bytes or 0, entry.modification_time_ms or 0, reason)
                result.emptied.add(path.rpartition("/")[0])
            else:
                self._keep(path, reason)

    def _keep(self, path: str, why: Stay) -> None:
        result = self.result
        result.kept[why.value] += 1
        result.occupied.add(path.rpartition("/")[0])
        if why in _FOR_THEIR_AGE:
            result.young[path] = why.value
        if not path.endswith(_CHECKSUM):
            result.present.add((path,))

    def _is_orphaned_checksum(self, path: str) -> bool:
        """Whether a file is the checksum of a data file that is deleted or does not exist."""
        checked = checked_path(path)
        return checked is not None and checked not in self.result.present

    def _stays_by_name(self, path: str, ordinary: bool) -> bool:
        """Whether a file is kept regardless of its age; if so, records the file and the reason. ``ordinary``: whether
        the path is known to contain no special characters."""
        why = self._by_name(path, ordinary)
        if why is not None:
            self._keep(path, why)
        return why is not None

    def _by_name(self, path: str, ordinary: bool) -> Stay | None:
        if not (ordinary or is_plain(path)):
            return Stay.ODD_NAME
        directory, _, name = path.rpartition("/")
        if directory not in self._by_directory:
            self._by_directory[directory] = self._why_all_stay(directory)
        of_directory = self._by_directory[directory]
        if of_directory is not None:
            return of_directory
        if self._rules.ignores(name) and not (self._is_orphaned_checksum(path) or _is_temporary(path)):
            return Stay.HIDDEN
        return Stay.ELSEWHERE if name in self._named.elsewhere else None

    def _why_all_stay(self, directory: str) -> Stay | None:
        """The reason why all files in a directory are kept; None if each file is decided separately."""
        if self.is_in_other_table(directory):
            return Stay.OTHER_TABLE
        return Stay.HIDDEN if any(map(self._rules.ignores, directory.split("/"))) else None

    def _by_age(self, entry: Entry) -> str | Stay:
        time_ms, rules = entry.modification_time_ms, self._rules
        if time_ms is None:
            return Stay.NO_TIME
        if time_ms >= rules.cutoff_ms:
            return Stay.YOUNG
        if self._is_orphaned_checksum(entry.path):
            return _ORPHANED_CHECKSUM
        if entry.path in self._named.removed:
            return _REMOVED
        if time_ms > rules.now_ms - UNCOMMITTED_AGE_MS:
            # Change files are named only in commits, and commits older than the retention are not read.
            return Stay.YOUNG_CHANGES if _is_of_changes(entry.path) else Stay.UNCOMMITTED
        return _UNNAMED_KINDS[leftover_kind(entry.path)]

    def is_in_other_table(self, path: str) -> bool:
        return is_in_table(path, self.result.tables)


def _is_of_changes(path: str) -> bool:
    return path.startswith(f"{_CHANGE_DATA}/")


def _is_temporary(path: str) -> bool:
    return leftover_kind(path) is LeftoverKind.TEMPORARY_FILE


def parents(path: str) -> Iterator[str]:
    """The directories above a path, nearest first, without the root."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def table_roots(*paths: Iterable[str]) -> frozenset[str]:
    """The directories below the root that contain a log of their own, derived from the paths of all directories and
    files."""
    mark = f"/{LOG_DIRECTORY}/"
    return frozenset(f"{path}/".partition(mark)[0] for some in paths for path in some if mark in f"{path}/")


def is_in_table(path: str, tables: Iterable[str]) -> bool:
    """Whether a path is one of the roots ``tables`` or below one of them."""
    return any(path == root or path.startswith(f"{root}/") for root in tables)


def checksum_path(path: str) -> str:
    """The path to which Hadoop writes the checksum of a local file."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}{_CHECKSUM}"


def checked_path(path: str) -> str | None:
    """The path of the file to which a Hadoop checksum file belongs; None if the path is not that of a checksum file."""
    if not path.endswith(_CHECKSUM):
        return None
    directory, slash, name = path.rpartition("/")
    if not (name.startswith(".") and len(name) > len(_CHECKSUM) + 1):
        return None
    return f"{directory}{slash}{name[1 : -len(_CHECKSUM)]}"
