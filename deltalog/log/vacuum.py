"""Which of the files below a table's root a vacuum deletes, and why each other one stays. Pure.

A file is deleted if no version within the retention needs it, it is older than the retention, and it is not of another
kind: what is hidden, reached through a link, part of another table, or named as no log can name it, stays.

Spec: PROTOCOL.md leaves vacuum to writers; #file-types, #add-file-and-remove-file say what a version needs.
"""

from __future__ import annotations

import enum
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from deltalog.protocol.leftovers import LeftoverKind, leftover_kind
from deltalog.protocol.paths import LOG_DIRECTORY, are_ordinary, is_plain
from deltalog.protocol.retention import DAY_MS
from deltalog.protocol.timestamps import describe
from deltalog.storage.base import Entry, EntryKind

# A file that no version names may be one of a write that is not committed yet, however short the retention is.
UNCOMMITTED_AGE_MS = DAY_MS
_HIDDEN = ("_", ".")
_NOT_HIDDEN = ("_delta_index", "_change_data")
_ICEBERG_METADATA = "metadata"
_CHECKSUM = ".crc"


class Need(enum.Enum):
    """Why a file stays that is not deleted at any age."""

    LATEST = "the latest version needs it"
    EARLIER = "a version within the retention needs it"
    CHANGES = "the change feed within the retention needs it"
    UNSETTLED = "a commit that names it may still take effect"
    TRANSACTION = "a transaction that is not decided needs it"


class Stay(enum.Enum):
    """Why a file stays that no version is known to need."""

    YOUNG = "younger than the retention"
    UNCOMMITTED = "younger than a day, and named by no version: its commit may follow"
    NO_TIME = "of unknown age"
    SPELLED = "needed, if names are compared without case"
    ELSEWHERE = "named like a file that an absolute path of the log names"
    HIDDEN = "hidden"
    OTHER_TABLE = "of another table"
    LINK = "a symbolic link"
    SPECIAL = "a mount point or a special file"
    ODD_NAME = "of a name that no log can have"


_FOR_THEIR_AGE = (Stay.YOUNG, Stay.UNCOMMITTED, Stay.NO_TIME)
_REMOVED = "removed from the table before the retention"
_UNNAMED = "no version names it"
_BESIDE = "the checksum of a file that does not exist or is deleted"


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """What a log names, as decoded paths below the table's root. ``needed``: by versions within the retention, and why.
    ``removed``: by earlier ones. ``elsewhere``: the names, without directories, of files that are named by absolute
    paths which do not lead into the table as it was opened. ``cutoff_version``: the version that was current at the
    cut-off; None where all versions are within the retention. ``is_settled``: whether no tombstone of a commit up to
    that one is within the retention, by a clock that was ahead."""

    needed: Mapping[str, Need]
    removed: Set[str] = frozenset()
    elsewhere: Set[str] = frozenset()
    cutoff_version: int | None = None
    is_settled: bool = True


@dataclass(frozen=True, slots=True)
class VacuumRules:
    """``cutoff_ms``: files that are not older stay. ``now_ms``: the time of the vacuum. Both are in milliseconds since
    1970. ``partition_columns``: their directories may have hidden names. ``has_iceberg_metadata``: a directory of that
    name belongs to another format."""

    cutoff_ms: int
    now_ms: int
    partition_columns: Sequence[str] = ()
    has_iceberg_metadata: bool = False

    def is_hidden(self, name: str) -> bool:
        """Whether a name in a path is one that engines ignore."""
        if name == _ICEBERG_METADATA and self.has_iceberg_metadata:
            return True
        if not name.startswith(_HIDDEN):
            return False
        partitions = tuple(f"{column}=" for column in self.partition_columns)
        return not name.startswith((*_NOT_HIDDEN, *partitions))

    def enters(self, directory: str) -> bool:
        """Whether the files in a directory, given by its path, can be deleted."""
        return not self.is_hidden(directory.rpartition("/")[2])


class VacuumedFile(msgspec.Struct, frozen=True, gc=False):
    """A file to delete. ``path``: below the table's root. ``reason``: why it is not needed."""

    path: str
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """``files``: to delete, each with its entry. ``directories``: to remove after them if they are empty, the deepest
    first. ``kept``: the number of the files that stay, by reason. ``young``: the paths of those that only their age
    keeps. ``directory_count``: of the directories that were listed, the root included."""

    files: Sequence[tuple[VacuumedFile, Entry]]
    directories: Sequence[Entry]
    kept: Mapping[str, int]
    young: Set[str]
    directory_count: int


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The result of a vacuum; with ``dry_run``, of one that was only planned.

    ``version``: the latest version when the log was read. ``retention_ms``: as it was applied; ``cutoff_ms``: older
    files were considered, in milliseconds since 1970. ``files``: those deleted, by path. ``directories``: the paths of
    those that were removed, being empty. ``kept``: the number of the files that stay, by reason. ``commits``: the
    versions that record the start and the end, where there are any. ``full``: whether all files below the root were
    listed; else only those are counted that the log says were removed.
    """

    table: str
    dry_run: bool
    version: int
    retention_ms: int
    cutoff_ms: int
    files: tuple[VacuumedFile, ...]
    directories: tuple[str, ...]
    kept: Mapping[str, int]
    commits: tuple[int, ...] = ()
    full: bool = True

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the deleted files, below the table's root."""
        return tuple(file.path for file in self.files)

    @property
    def size_bytes(self) -> int:
        """The size of the deleted files together."""
        return sum(file.size_bytes for file in self.files)

    @property
    def deleted(self) -> Mapping[str, int]:
        """The number of the deleted files, by reason."""
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

    def facts(self) -> list[tuple[str, str]]:
        """The report as pairs of a label and a text."""
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


def plan(entries: Iterable[Entry], named: NamedFiles, rules: VacuumRules) -> VacuumPlan:
    """The decision on everything below a table's root, as ``LogStore.walk`` gives it. Of files that are needed neither
    size nor time is used."""
    directories: list[Entry] = []
    others: list[Entry] = []
    stays: set[str] = set()
    needed = named.needed
    for entry in entries:
        if entry.kind is EntryKind.DIRECTORY:
            directories.append(entry)
        elif entry.path in needed:
            stays.add(entry.path)
        else:
            others.append(entry)
    counts = Counter(map(needed.__getitem__, stays))
    kept = Counter({need.value: count for need, count in counts.items()})
    directories.sort(key=lambda entry: entry.path)
    decider = _Decider(named, rules, others, _table_roots(needed, (e.path for e in (*others, *directories))))
    deleted: list[tuple[VacuumedFile, Entry]] = []
    young: set[str] = set()
    # Hadoop's checksum of a file is hidden; without the file it is of no use, so that is decided first.
    others.sort(key=lambda each: each.path)
    others.sort(key=lambda each: each.path.endswith(_CHECKSUM))
    for entry in others:
        checked = _checked_name(entry.path)
        reason = decider.decide(entry, is_beside=checked is not None and checked not in stays)
        if isinstance(reason, str):
            deleted.append((VacuumedFile(entry.path, entry.size_bytes or 0, reason), entry))
        else:
            kept[reason.value] += 1
            stays.add(entry.path)
            if reason in _FOR_THEIR_AGE:
                young.add(entry.path)
    deleted.sort(key=lambda each: each[0].path)
    emptied = _directories_of(file.path for file, _ in deleted)
    occupied = _directories_of(stays)
    known = {entry.path for entry in directories if decider.may_remove(entry)} | emptied | occupied
    return VacuumPlan(deleted, _removable(directories, emptied, occupied, decider), kept, young, len(known) + 1)


class _Decider:
    def __init__(
        self, named: NamedFiles, rules: VacuumRules, others: Sequence[Entry], other_tables: Collection[str]
    ) -> None:
        self._named = named
        self._rules = rules
        self._other_tables = other_tables
        self._are_ordinary = are_ordinary([entry.path for entry in others])
        folded = {_folded(entry.path) for entry in others}
        self._needed_folded = {name for path in named.needed if (name := _folded(path)) in folded} if others else folded
        self._places: dict[str, Stay | None] = {}

    def decide(self, entry: Entry, is_beside: bool) -> str | Stay:
        """Why a file that is not needed is deleted, or why it stays. ``is_beside``: it is the checksum of a file that
        does not stay."""
        path = entry.path
        if entry.kind is not EntryKind.FILE:
            return Stay.LINK if entry.kind is EntryKind.LINK else Stay.SPECIAL
        if not (self._are_ordinary or is_plain(path)):
            return Stay.ODD_NAME
        directory, _, name = path.rpartition("/")
        if directory not in self._places:
            self._places[directory] = self._place(directory)
        place = self._places[directory]
        if place is not None:
            return place
        if self._rules.is_hidden(name) and not (is_beside or _is_temporary(path)):
            return Stay.HIDDEN
        if _folded(path) in self._needed_folded:
            return Stay.SPELLED
        if name in self._named.elsewhere:
            return Stay.ELSEWHERE
        return self._by_age(entry, is_beside)

    def _place(self, directory: str) -> Stay | None:
        """Why all files in a directory stay."""
        if self.is_in_other_table(directory):
            return Stay.OTHER_TABLE
        return Stay.HIDDEN if any(map(self._rules.is_hidden, directory.split("/"))) else None

    def _by_age(self, entry: Entry, is_beside: bool) -> str | Stay:
        time_ms, rules = entry.modification_time_ms, self._rules
        if time_ms is None:
            return Stay.NO_TIME
        if time_ms >= rules.cutoff_ms:
            return Stay.YOUNG
        if is_beside:
            return _BESIDE
        if entry.path in self._named.removed:
            return _REMOVED
        if time_ms > rules.now_ms - UNCOMMITTED_AGE_MS:
            return Stay.UNCOMMITTED
        kind = leftover_kind(entry.path)
        return _UNNAMED if kind is None else f"{kind.value} that no version names"

    def is_in_other_table(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root}/") for root in self._other_tables)

    def may_remove(self, directory: Entry) -> bool:
        """Whether a directory may be removed if it is empty."""
        path = directory.path
        return (
            is_plain(path) and not self.is_in_other_table(path) and not any(map(self._rules.is_hidden, path.split("/")))
        )

    def is_old(self, entry: Entry) -> bool:
        time_ms, rules = entry.modification_time_ms, self._rules
        return time_ms is not None and time_ms < min(rules.cutoff_ms, rules.now_ms - UNCOMMITTED_AGE_MS)


def _removable(directories: Sequence[Entry], emptied: Set[str], occupied: set[str], decider: _Decider) -> list[Entry]:
    """The directories that will be empty, the deepest first: those of deleted files, and those that are empty and old.
    Adds the others to ``occupied``."""
    found = []
    for entry in sorted(directories, key=lambda each: (-each.path.count("/"), each.path)):
        is_free = entry.path not in occupied and (entry.path in emptied or decider.is_old(entry))
        if is_free and decider.may_remove(entry):
            found.append(entry)
        else:
            occupied.update(parents(entry.path))
    return found


def _is_temporary(path: str) -> bool:
    return leftover_kind(path) is LeftoverKind.TEMPORARY_FILE


def _directories_of(paths: Iterable[str]) -> set[str]:
    nearest = {path.rpartition("/")[0] for path in paths} - {""}
    return nearest.union(*map(parents, nearest))


def parents(path: str) -> Iterator[str]:
    """The directories above a path, the nearest first, without the root."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _table_roots(needed: Iterable[str], others: Iterable[str]) -> frozenset[str]:
    """The directories below the root that have a log of their own."""
    mark = f"/{LOG_DIRECTORY}/"
    inside = [*(path for path in needed if mark in path), *(path for path in others if mark in f"{path}/")]
    return frozenset(f"{path}/".partition(mark)[0] for path in inside)


def checksum_path(path: str) -> str:
    """Where Hadoop writes the checksum of a local file."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}{_CHECKSUM}"


def _checked_name(path: str) -> str | None:
    """The path of the file whose checksum, as Hadoop writes it beside local files, this is; None for any other."""
    if not path.endswith(_CHECKSUM):
        return None
    directory, slash, name = path.rpartition("/")
    if not (name.startswith(".") and len(name) > len(_CHECKSUM) + 1):
        return None
    return f"{directory}{slash}{name[1 : -len(_CHECKSUM)]}"


def _folded(path: str) -> str:
    """Disks may compare names without case, and in any Unicode normalisation: a listing then has another spelling."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()
