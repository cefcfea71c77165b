"""The vacuum plan: merges the decisions made for each part of the listing, then keeps every file that was later found
to be needed. Pure.

Spec: PROTOCOL.md leaves vacuum to writers; #file-types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from deltalog.maintenance.vacuum.decisions import (
    UNCOMMITTED_AGE_MS,
    Decided,
    Need,
    NeededFiles,
    Stay,
    VacuumedFiles,
    VacuumRules,
    checked_path,
    is_in_table,
    parents,
)
from deltalog.maintenance.vacuum.path_hashes import PathHashes, folded
from deltalog.protocol.paths import is_plain
from deltalog.storage.base import Entry


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """``files``: the files to delete, ordered by path. ``directories``: the directories to remove afterwards if they
    are empty, deepest first. ``kept``: the number of files that stay, by reason. ``young``: the paths of files that are
    kept only because of their age. ``directory_count``: the number of listed directories, including the root."""

    files: VacuumedFiles
    directories: Sequence[Entry]
    kept: Mapping[str, int]
    young: Set[str]
    directory_count: int


def plan(decided: Decided, needed: NeededFiles, late: Mapping[str, Need], rules: VacuumRules) -> VacuumPlan:
    """The decisions on all files below a table root. ``decided``: the decisions on all parts so far; modified in place.
    ``late``: files that were found to be needed only after the parts had been decided, each with the reason."""
    _keep_some(decided, needed, late)
    known_roots = decided.tables

    def may_remove(path: str) -> bool:
        return is_plain(path) and not is_in_table(path, known_roots) and not any(map(rules.ignores, path.split("/")))

    emptied, occupied = _and_above(decided.emptied), _and_above(decided.occupied)
    directories = {entry.path: entry for entry in decided.directories}
    known = {path for path in directories if may_remove(path)} | emptied | occupied
    removable = []
    # Directories that will be empty, deepest first: directories from which files are deleted, and old directories that
    # are already empty.
    for path in sorted(directories, key=lambda each: (-each.count("/"), each)):
        entry = directories[path]
        if path not in occupied and (path in emptied or _is_old(entry, rules)) and may_remove(path):
            removable.append(entry)
        else:
            occupied.update(parents(path))
    return VacuumPlan(decided.files.in_order(), removable, +decided.kept, decided.young.keys(), len(known) + 1)


def together(parts: Iterable[Decided]) -> Decided:
    """Merge the decisions on several parts of a listing; the field ``present`` of the result is undefined."""
    whole = Decided([], frozenset(), Counter(), PathHashes(), 0)
    for part in parts:
        whole.directories += part.directories
        whole.tables |= part.tables
        whole.kept += part.kept
        whole.listed += part.listed
        whole.gone += part.gone
        whole.files.extend(part.files, range(len(part.files)))
        whole.young.update(part.young)
        whole.emptied |= part.emptied
        whole.occupied |= part.occupied
    return whole


def _keep_some(decided: Decided, needed: NeededFiles, late: Mapping[str, Need]) -> None:
    """A file that is in ``late``, or is another spelling of a needed file, is kept for that reason, even if it was to
    be deleted or was kept only because of its age; the checksum files of such files are also kept."""
    spelled = _Spellings(needed.besides(late))
    kept: dict[str, Need | Stay] = {}
    for paths in (decided.files.paths, decided.young):
        for path in paths:
            why = late.get(path) or (Stay.SPELLED if path in spelled else None)
            if why is not None:
                kept[path] = why
    if not kept:
        return
    for paths in (decided.files.paths, decided.young):
        kept.update((path, Stay.HIDDEN) for path in paths if path not in kept and checked_path(path) in kept)
    for path, why in kept.items():
        decided.kept[why.value] += 1
        decided.occupied.add(path.rpartition("/")[0])
    decided.kept -= Counter(decided.young.pop(path) for path in kept if path in decided.young)
    decided.files = decided.files.without(kept.keys())


class _Spellings:
    """Contains each path that, apart from case and Unicode normalisation, equals a needed path."""

    def __init__(self, needed: NeededFiles) -> None:
        self._needed = needed
        self._directory: str | None = None
        self._names: list[Set[int]] = []

    def __contains__(self, path: str) -> bool:
        directory, _, name = folded(path).rpartition("/")
        if directory != self._directory:  # consecutive paths are usually in the same directory
            self._directory, self._names = directory, self._needed.spellings(directory)
        hashed = self._needed.hashed(name)
        return any(hashed in names for names in self._names)


def _is_old(entry: Entry, rules: VacuumRules) -> bool:
    time_ms = entry.modification_time_ms
    return time_ms is not None and time_ms < min(rules.cutoff_ms, rules.now_ms - UNCOMMITTED_AGE_MS)


def _and_above(directories: Set[str]) -> set[str]:
    return {*directories}.union(*map(parents, directories)) - {""}
