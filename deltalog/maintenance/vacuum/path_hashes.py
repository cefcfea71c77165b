"""Sets of paths that keep only hashes in memory: eight bytes per path. Pure.

Two paths with the same hash count as equal. So a set may report a path that it does not contain, with a probability of
one in 2**64 for each name in the directory, but it never misses a path that it contains. A wrong answer can only have
the effect that a file is kept although it could be deleted.

Names are hashed by Python's ``hash``, whose seed differs between processes, or by ``shared_hash``, which gives equal
hashes in all processes with the same ``HASH_PROBE``.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

# The maximum number of names that are cached as sets; beyond it, the sets of the least recently used directories are
# dropped.
_MOST_NAMES = 65_536


class PathHashes:
    """A set of paths below a root. ``names``: for each directory, the hashes of the names in it; a hash may occur
    twice. Queries are fast if their paths are ordered by directory or if there are few directories. ``hashed``: the
    function that returns the hash of a name."""

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
        """Add files of one directory, given the hashes of their names."""
        self._forget()
        known = self.names.get(directory)
        if known is None:
            self.names[directory] = hashes
        else:
            known.extend(hashes)

    def update(self, others: PathHashes) -> None:
        """Add the paths of another set that uses the same hash."""
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
            # Keep the names of at least one other directory, because a listing may alternate between a directory and
            # its subdirectories.
            while self._held > _MOST_NAMES and len(self._sets) > 1:
                self._held -= len(self._sets.pop(next(iter(self._sets)))) + 1
        self._sets[directory] = found  # moved to the end, so that it is dropped last
        return found

    def _forget(self) -> None:
        self._sets.clear()
        self._held = 0

    def lacking(self, *others: PathHashes) -> Iterator[tuple[str, Set[int]]]:
        """The directories containing names that are missing from all ``others``, with the hashes of these names."""
        for directory in self.names:
            lacking = self.of(directory).difference(*(other.names.get(directory, ()) for other in others))
            if lacking:
                yield directory, lacking


class NeededPaths(PathHashes):
    """A PathHashes that also finds its paths under other spellings; see ``folded``."""

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
        """Sets of hashes of names in a directory. A path in this directory is a spelling of a needed path if the hash
        of its folded name is in one of these sets. The directory is given by its folded path."""
        return [each.of(directory) for each in (self, self._folded) if directory in each.names]


def shared_hash(name: str) -> int:
    """A hash that is equal in all processes with the same ``HASH_PROBE``. Python's hash of an integer is its remainder
    modulo a prime (2**61 - 1 on 64-bit machines)."""
    return hash(int.from_bytes(name.encode("utf-8", "surrogatepass"), "little"))


#: The hash of a name whose bytes, read as an integer, exceed the modulus of Python's hash; equal in all processes with
#: the same hash function.
HASH_PROBE = shared_hash("part-00000")


def folded(path: str) -> str:
    """A path in lower case and in one Unicode normalisation form. File systems may ignore case and normalisation, so a
    listing can spell a path differently."""
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()
