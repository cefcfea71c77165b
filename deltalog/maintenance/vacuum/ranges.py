"""Divides the files below a table root into ranges of paths; each range is listed and decided on separately. Pure.

Ranges have no gaps and do not overlap, so every file is in exactly one range, whether or not the log names it. The
paths in the log only determine the boundaries of the ranges.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from deltalog.maintenance.vacuum.decisions import Need, NeededFiles
from deltalog.maintenance.vacuum.path_hashes import NeededPaths, shared_hash
from deltalog.protocol.paths import LOG_DIRECTORY, has_some

_MOST_PATHS = 65_536
_STEP = 16
# The maximum total size of the hashes that are sent with the ranges. A directory's hashes are sent with every range
# that contains part of the directory.
_MOST_BYTES = 128 << 20


class PathSample:
    """A sample of paths with the same distribution as all paths."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._step = _STEP

    def add(self, paths: Sequence[str]) -> None:
        """Add more paths, in any order."""
        self._paths += (path for path in paths[:: self._step] if not path.startswith(f"{LOG_DIRECTORY}/"))
        if len(self._paths) > _MOST_PATHS:
            self._paths = sorted(self._paths)[::2]
            self._step *= 2

    def bounds(self, ranges: int) -> list[str]:
        """The first paths of all ranges except the first range, chosen so that the ranges contain about equally many
        paths. A range starts at a directory, unless a directory is too large for one range."""
        paths, found = sorted(self._paths), [""]
        for number in range(1, ranges if paths else 0):
            path = paths[number * len(paths) // ranges]
            directory = path[: path.rfind("/") + 1]
            bound = directory if directory > found[-1] else path
            if bound > found[-1]:
                found.append(bound)
        return found[1:]


@dataclass(frozen=True, slots=True)
class VacuumRange:
    """The paths from ``start`` up to but excluding ``end`` (None: no end). ``needed``: (reason, directory, hashes of
    file names) for each directory that may contain paths in the range. ``removed``: as in NamedFiles, but only paths in
    the range."""

    start: str
    end: str | None
    needed: Sequence[tuple[Need, str, bytes]]
    removed: Sequence[str]

    def needed_files(self) -> NeededFiles:
        """The needed files in the form that ``decide`` accepts; each path occurs once, with the first reason found."""
        found: dict[Need, NeededPaths] = {}
        for need, directory, hashes in self.needed:
            paths = found.setdefault(need, NeededPaths(hashed=shared_hash))
            paths.add_hashes(directory, array("q", hashes))
        return NeededFiles([(need, found[need]) for need in Need if need in found], shared_hash)


def ranges(needed: NeededFiles, removed: Set[str], sample: PathSample, most: int) -> Iterator[VacuumRange]:
    """Split the set of all possible paths into at most ``most`` ranges."""
    first = _first_reasons(needed)
    largest = max((sum(len(hashes) for _, hashes in each) for each in first.values()), default=0)
    bounds = sample.bounds(max(1, min(most, _MOST_BYTES // max(largest, 1))))
    names = sorted(removed)
    for start, end in zip(["", *bounds], [*bounds, None], strict=True):
        some = names[bisect_left(names, start) : len(names) if end is None else bisect_left(names, end)]
        here = (directory for directory in first if has_some(directory, start, end))
        yield VacuumRange(
            start, end, [(need, directory, hashes) for directory in here for need, hashes in first[directory]], some
        )


def _first_reasons(needed: NeededFiles) -> dict[str, list[tuple[Need, bytes]]]:
    """The hashes of the names in each directory, grouped by the first reason for which the names are needed."""
    found: dict[str, list[tuple[Need, bytes]]] = {}
    for directory in {*needed.directories}:
        known: set[int] = set()
        for need, paths in needed.reasons:
            more = set(paths.names.get(directory, ())) - known
            if more:
                found.setdefault(directory, []).append((need, array("q", more).tobytes()))
                known |= more
    return found
