"""The files that the versions within a retention need, read from the log.

Two sources must agree: the state of the latest version (live files, and tombstones by their times), and the version
that was current at the cut-off with every commit since. The second needs neither the clocks of writers nor tombstones
that checkpoints may have left out.

Spec: PROTOCOL.md#add-file-and-remove-file, #deletion-vector-descriptor-schema, #add-cdc-file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.arrow_arrays import ZERO, scalar
from deltalog.errors import CorruptTableError, InvalidDataFileError, UnsafePathError
from deltalog.log.history import LogHistory
from deltalog.log.vacuum import NamedFiles, Need
from deltalog.protocol.actions import AddFile, DeletionVector, RemoveFile
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.deletion_vectors import relative_path
from deltalog.protocol.paths import Place, are_ordinary, base_name, locate, place_of
from deltalog.storage.base import LogStore, real_url

_COMMITS_AT_ONCE = 256
_COLUMNS = ("path", "deletion_vector")


def named_files(history: LogHistory, cutoff_ms: int) -> NamedFiles:
    """The files that the latest version of ``history`` and all versions since ``cutoff_ms``, in milliseconds since
    1970, need; and those that were removed before.

    Raises UnsafePathError for a relative path that is not plain, and CorruptTableError where the log contradicts
    itself: which files are needed is not known then. Cost: the files and tombstones of the latest version, the files of
    the version at the cut-off, 1 GET for each commit since, and as ``LogHistory.version_at``.
    """
    latest = history.latest
    store = latest.reader.store
    names = _Names(store.url, [place_of(store.url), place_of(real_url(store))])
    current = history.version_at(cutoff_ms, before="earliest", after="latest")
    first = current.version
    needed: dict[str, Need] = dict.fromkeys(names.of_table(latest.cache.files(_COLUMNS)), Need.LATEST)
    since = set(names.of_table(history.snapshot(first).cache.files(_COLUMNS)) if first < latest.version else ())
    changes: set[str] = set()
    later: set[str] = set()
    for commit in _commits(history, first, latest.version):
        later.update(names.of_commit(commit))
        changes.update(path for cdc in commit.cdc for path in names.of(cdc.path))
    since |= later
    if first < latest.version and not needed.keys() <= since:
        raise CorruptTableError(
            f"{store.url}: {min(needed.keys() - since)} is a file of version {latest.version}, but neither of version "
            f"{first} nor of any commit since. Nothing was deleted; deltalog check shows what is wrong with the log."
        )
    unexpired, removed = _tombstones(history, cutoff_ms, names)
    for paths, why in ((since, Need.EARLIER), (unexpired, Need.EARLIER), (changes, Need.CHANGES)):
        for path in paths:
            needed.setdefault(path, why)
    cutoff_version = first if current.timestamp_ms <= cutoff_ms else None
    return NamedFiles(needed, removed - needed.keys(), names.elsewhere, cutoff_version, unexpired <= later)


def added_since(history: LogHistory, version: int) -> frozenset[str]:
    """The paths of the files that commits after ``version`` name. Raises as ``named_files``. Cost: 1 GET for each
    commit."""
    store = history.reader.store
    names = _Names(store.url, [place_of(store.url), place_of(real_url(store))])
    commits = _commits(history, version, history.latest.version)
    return frozenset(path for commit in commits for path in names.of_commit(commit))


def paths_named(store: LogStore, names: Iterable[str]) -> set[str]:
    """The paths below a table's root of files as a log names them. Raises UnsafePathError. Cost: none."""
    known = _Names(store.url, [place_of(store.url), place_of(real_url(store))])
    return {path for name in names for path in known.of(name)}


def files_of(history: LogHistory, version: int) -> set[str]:
    """The paths of the files of a version. Raises and costs as ``LogHistory.snapshot``, and its files."""
    store = history.reader.store
    names = _Names(store.url, [place_of(store.url), place_of(real_url(store))])
    return set(names.of_table(history.snapshot(version).cache.files(_COLUMNS)))


def removed_in(history: LogHistory, first: int, last: int) -> set[str]:
    """The paths of the files that the commits from ``first`` to ``last`` removed, and of their change feeds. Left out
    are files that are not known: none of them can be deleted.

    Raises MissingVersionError, InvalidCommitError. Cost: 1 GET for each commit.
    """
    store = history.reader.store
    names = _Names(store.url, [place_of(store.url), place_of(real_url(store))])
    found: set[str] = set()
    for commit in _commits(history, first - 1, last):
        for remove in commit.removes:
            found.update(_if_known(partial(names.of_action, remove)))
        for cdc in commit.cdc:
            found.update(_if_known(partial(names.of, cdc.path)))
    return found


def _if_known(paths: Callable[[], Iterable[str]]) -> set[str]:
    try:
        return set(paths())
    except (UnsafePathError, InvalidDataFileError):
        return set()


def _commits(history: LogHistory, after: int, last: int) -> Iterator[CommitActions]:
    for start in range(after + 1, last + 1, _COMMITS_AT_ONCE):
        yield from history.reader.commits(range(start, min(start + _COMMITS_AT_ONCE, last + 1)))


def _tombstones(history: LogHistory, cutoff_ms: int, names: _Names) -> tuple[set[str], set[str]]:
    """The files of tombstones within the retention, and of earlier ones."""
    tombstones = history.latest.cache.tombstones(-(2**63))
    times = pc.fill_null(tombstones["deletion_timestamp"], ZERO)
    is_unexpired = pc.greater_equal(times, scalar(cutoff_ms, pa.int64()))
    unexpired = set(names.of_table(tombstones.filter(is_unexpired)))
    try:
        removed = set(names.of_table(tombstones.filter(pc.invert(is_unexpired))))
    except (UnsafePathError, InvalidDataFileError):
        removed = set()  # none of these is needed: they are deleted like files that no version names
    return unexpired, removed


class _Names:
    """The decoded paths below a table's root that its log names. ``elsewhere``: see NamedFiles."""

    def __init__(self, url: str, places: Sequence[Place]) -> None:
        self._url = url
        self._places = places
        self.elsewhere: set[str] = set()

    def of_table(self, files: pa.Table) -> Iterator[str]:
        """Of rows with the columns ``path`` and ``deletion_vector``."""
        for chunk in files["path"].chunks:
            paths = chunk.to_pylist()
            if are_ordinary(paths):
                yield from paths
            else:
                for path in paths:
                    yield from self.of(path)
        vectors = files["deletion_vector"]
        for row in vectors.filter(vectors.is_valid()).to_pylist():
            yield from self.of_vector(DeletionVector(**row))

    def of_commit(self, commit: CommitActions) -> Iterator[str]:
        actions: list[AddFile | RemoveFile] = [*commit.adds, *commit.removes]
        for action in actions:
            yield from self.of_action(action)

    def of_action(self, action: AddFile | RemoveFile) -> Iterator[str]:
        yield from self.of(action.path)
        if action.deletion_vector is not None:
            yield from self.of_vector(action.deletion_vector)

    def of_vector(self, vector: DeletionVector) -> Iterable[str]:
        if vector.storage_type == "i":
            return ()
        if vector.storage_type == "u":
            return self.of(relative_path(vector))
        if vector.storage_type == "p":
            return self.of(vector.path_or_inline_dv)
        raise InvalidDataFileError(
            f"{self._url}: a deletion vector has the storage type {vector.storage_type!r}, so which file holds it is "
            "not known. Nothing was deleted."
        )

    def of(self, named: str) -> Iterable[str]:
        try:
            _, path = locate(named, self._places)
        except UnsafePathError:
            name = base_name(named)
            if name is None:
                raise UnsafePathError(
                    f"{self._url}: which file the log means by {named[:200]!r} is not known, so a vacuum could delete "
                    "it. Nothing was deleted.",
                    path=named,
                ) from None
            self.elsewhere.add(name)
            return ()
        # Some writers did not encode the paths in the log: the file may have the name as it is there.
        return (path,) if path == named or "%" not in named else (path, named)


def metadata_of_iceberg(configuration: Mapping[str, Any]) -> bool:
    """Whether a table may have a directory ``metadata`` of Iceberg."""
    return any(key.startswith("delta.universalFormat.") for key in configuration)
