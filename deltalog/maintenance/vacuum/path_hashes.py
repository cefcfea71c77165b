"""Sets of paths of which only hashes are in memory: eight bytes for each path. Pure.

Two paths with the same hash look like one. So such a set may say that it has a path that it lacks, with a probability
of one in 2**64 for each name in the directory, and never the reverse: only decisions to keep a file depend on it.

Names are hashed by Python, with a seed of the process, or by ``shared_hash``, which other processes compute too.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

# Names of directories that are in memory as sets, between two questions about them.
_MOST_NAMES = 65_536


class PathHashes:
    """Paths below a root. ``names``: by directory, the hashes of the names in it; a path may occur twice. Queries are
    quick where their paths are in the order of directories, or have few. ``hashed``: the hash of a name."""

    def __init__(self, paths: Sequence[str] = (), hashed: Callable[[str], int] = hash) -> None:
        self.hashed = hashed
        self.names: dict[str, array[int]] = {}
        self._sets: dict[str, frozenset[int]] = {}
        self._held = 0
        self.add(paths)

    def add(self, paths: Iterable[str]) -> None:
        """Add paths."""
        self._forget()
        names, hashed = self.names, self.hashed
        for directory, _, name in [path.rpartition("/") for path in paths]:
            try:
                names[directory].append(hashed(name))
            except KeyError:
                names[directory] = array("q", (hashed(name),))

    def add_hashes(self, directory: str, hashes: array[int]) -> None:
        """Add the names in a directory by their hashes."""
        self._forget()
        known = self.names.get(directory)
        if known is None:
            self.names[directory] = hashes
        else:
            known.extend(hashes)

    def update(self, others: PathHashes) -> None:
        """Add the paths of others, with the same hashes."""
        for directory, hashes in others.names.items():
            self.add_hashes(directory, array("q", hashes))

    def __contains__(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        return self.hashed(name) in self.of(directory)

    def of(self, directory: str) -> frozenset[int]:
        """The hashes of the names in a directory, as a set."""
        found = self._sets.pop(directory, None)
        if found is None:
            found = frozenset(self.names.get(directory, ()))
            self._held += len(found) + 1
            # One stays at least: a listing may go back and forth between a directory and those below it.
            while self._held > _MOST_NAMES and len(self._sets) > 1:
                self._held -= len(self._sets.pop(next(iter(self._sets)))) + 1
        self._sets[directory] = found  # the last one that is dropped
        return found

    def _forget(self) -> None:
        self._sets.clear()
        self._held = 0

    def lacking(self, *others: PathHashes) -> Iterator[tuple[str, Set[int]]]:
        """The directories with names that none of ``others`` has, and the hashes of these."""
        for directory in self.names:
            lacking = self.of(directory).difference(*(other.names.get(directory, ()) for other in others))
            if lacking:
                yield directory, lacking


class NeededPaths(PathHashes):
    """As PathHashes, and finds its paths by other spellings: see ``folded``."""

    def __init__(self, paths: Sequence[str] = (), hashed: Callable[[str], int] = hash) -> None:
        self._folded = PathHashes(hashed=hashed)
        super().__init__(paths, hashed)

    def add(self, paths: Iterable[str]) -> None:
        paths = [*paths]
        super().add(paths)
        text = "\n".join(paths)
        if not (text.isascii() and text == text.lower()):
            self._folded.add(other for path in paths if (other := folded(path)) != path)

    def spellings(self, directory: str) -> list[Set[int]]:
        """The hashes of the names in a folded directory that the paths, folded, have there."""
        return [each.of(directory) for each in (self, self._folded) if directory in each.names]


def shared_hash(name: str) -> int:
    """A hash that is the same in every process where ``HASH_PROBE`` is: Python hashes numbers by their remainder,
    modulo 2**61 - 1 on machines of 64 bits."""
    return hash(int.from_bytes(name.encode("utf-8", "surrogatepass"), "little"))


#: Of a name that is larger, as a number, than what Python divides by.
HASH_PROBE = shared_hash("part-00000")


def folded(path: str) -> str:
    """Disks may compare names without case, and in any Unicode normalisation: a listing then has another spelling."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()
