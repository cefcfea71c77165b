"""Determines from the log which files are needed by the versions within a retention period.

Two sources must agree: the state of the latest version (the live files, and the tombstones by time), and the version
that was current at the cut-off together with every commit since then. The second of these sources depends neither on
writers' clocks nor on tombstones, which checkpoints may omit.

Spec: PROTOCOL.md#add-file-and-remove-file, #deletion-vector-descriptor-schema, #add-cdc-file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import ZERO, scalar
from deltalog.errors import CorruptTableError, InvalidCheckpointError, InvalidDataFileError, UnsafePathError
from deltalog.lazy_arrow import pc
from deltalog.log.checkpoint.reader import ALONE
from deltalog.log.file_cache import FileCache
from deltalog.log.history import LogHistory
from deltalog.maintenance.vacuum.decisions import NamedFiles, Need, NeededFiles
from deltalog.maintenance.vacuum.path_hashes import NeededPaths, PathHashes
from deltalog.protocol.actions import AddFile, DeletionVector, RemoveFile
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.deletion_vectors import relative_path
from deltalog.protocol.paths import Place, are_ordinary, base_name, locate, place_of
from deltalog.storage.base import LogStore, real_url

_COMMITS_AT_ONCE = 256
_COLUMNS = ("path", "deletion_vector")
_TOMBSTONES = ("path", "deletion_timestamp", "deletion_vector")
# The maximum number of paths that exist as Python strings at the same time.
_PATHS_AT_ONCE = 1_024


def named_files(
    history: LogHistory,
    cutoff_ms: int,
    hashed: Callable[[str], int] = hash,
    seen: Callable[[Sequence[str]], object] | None = None,
) -> NamedFiles:
    """The files that the latest version of ``history`` and all versions since ``cutoff_ms`` (milliseconds since 1970)
    need, and the files removed before the cut-off. ``hashed``: a function that returns the hash of a name. ``seen``: a
    function that is called with the paths of files and tombstones, in batches.

    Raises UnsafePathError for a relative path that is not plain, and CorruptTableError if the log contradicts itself:
    the needed files are then unknown. Cost: the files and tombstones of the latest version, the files of the version at
    the cut-off, 1 GET for each commit since, and as ``LogHistory.version_at``.
    """
    latest = history.latest
    store = latest.reader.store
    names = _Names(store.url, [place_of(store.url), place_of(real_url(store))], hashed, seen)
    current = history.version_at(cutoff_ms, before="earliest", after="latest")
    first = current.version
    live = _live(latest.cache, names)
    since = NeededPaths(hashed=hashed)
    if first < latest.version:
        since = _live(history.snapshot(first).cache, names)
    later, changes = NeededPaths(hashed=hashed), NeededPaths(hashed=hashed)
    for commit in _commits(history, first, latest.version):
        later.add(names.of_commit(commit))
        changes.add(path for cdc in commit.cdc for path in names.of(cdc.path))
    if first < latest.version:
        _check_origin(latest.cache, names, live, (since, later), first)
    unexpired, removed = _tombstones(latest.cache, cutoff_ms, names)
    reasons = (
        (Need.LATEST, live),
        *((Need.EARLIER, paths) for paths in (since, later, unexpired)),
        (Need.CHANGES, changes),
    )
    needed = NeededFiles([(need, paths) for need, paths in reasons if paths.names], hashed)
    cutoff_version = first if current.timestamp_ms <= cutoff_ms else None
    is_settled = not any(unexpired.lacking(later))
    return NamedFiles(needed, removed, names.elsewhere, cutoff_version, is_settled)


def _check_origin(cache: FileCache, names: _Names, live: PathHashes, earlier: Sequence[PathHashes], first: int) -> None:
    """Raise CorruptTableError if a file of the latest version is neither a file of version ``first`` nor added by a
    later commit. ``earlier``: the files of version ``first`` and of the later commits."""
    if not any(live.lacking(*earlier)):
        return
    files = sorted(names.of_all(cache.files(_COLUMNS)))
    path = next(path for path in files if not any(path in paths for paths in earlier))
    raise CorruptTableError(
        f"{names.url}: {path} is a file of version {cache.segment.version}, but neither of version {first} nor of any "
        "commit since. Nothing was deleted; run deltalog check to see what is wrong with the log."
    )


def named_since(history: LogHistory, version: int) -> frozenset[str]:
    """The paths of the files named in commits after ``version``. Raises as ``named_files``. Cost: 1 GET for each
    commit."""
    store = history.reader.store
    names = _Names(store.url, [place_of(store.url), place_of(real_url(store))])
    found: set[str] = set()
    for commit in _commits(history, version, history.latest.version):
        found.update(names.of_commit(commit))
        found.update(path for cdc in commit.cdc for path in names.of(cdc.path))
    return frozenset(found)


def paths_named(store: LogStore, names: Iterable[str]) -> set[str]:
    """Convert file paths, in the form in which a log contains them, to paths relative to the table root. Raises
    UnsafePathError. Cost: none."""
    known = _Names(store.url, [place_of(store.url), place_of(real_url(store))])
    return {path for name in names for path in known.of(name)}


def files_of(history: LogHistory, version: int) -> set[str]:
    """The paths of a version's files. Raises and costs as ``LogHistory.snapshot``, and reads its files."""
    store = history.reader.store
    names = _Names(store.url, [place_of(store.url), place_of(real_url(store))])
    return set(names.of_all(history.snapshot(version).cache.files(_COLUMNS)))


def removed_in(history: LogHistory, first: int, last: int) -> set[str]:
    """The paths of the files that the commits from ``first`` to ``last`` removed, and the paths of the change files of
    these commits. Paths that cannot be resolved are left out, because such files are never deleted.

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


def _live(cache: FileCache, names: _Names) -> NeededPaths:
    """The paths of the live files."""
    while True:
        found = NeededPaths(hashed=names.hashed)
        try:
            for piece in cache.stream_files(_identity, _COLUMNS, parallelism=ALONE):
                for paths in names.of_table(piece):
                    found.add(paths)
        except InvalidCheckpointError as error:
            cache = cache.without_checkpoint(error)
        else:
            return found


def _identity(piece: pa.Table) -> pa.Table:
    return piece


def _tombstones(cache: FileCache, cutoff_ms: int, names: _Names) -> tuple[NeededPaths, set[str]]:
    """The files with unexpired tombstones, and the files with expired tombstones."""
    while True:
        unexpired, removed = NeededPaths(hashed=names.hashed), set[str]()
        are_known = True
        try:
            for piece in cache.stream_tombstones(-(2**63), _TOMBSTONES, ALONE):
                times = pc.fill_null(piece["deletion_timestamp"], ZERO)
                is_unexpired = pc.greater_equal(times, scalar(cutoff_ms, pa.int64()))
                for paths in names.of_table(piece.filter(is_unexpired)):
                    unexpired.add(paths)
                try:
                    for paths in names.of_table(piece.filter(pc.invert(is_unexpired))):
                        removed.update(paths)
                except (UnsafePathError, InvalidDataFileError):
                    are_known = False
        except InvalidCheckpointError as error:
            cache = cache.without_checkpoint(error)
        else:
            # If a path cannot be resolved, the returned set of removed files is empty: the removed files are then
            # treated as files that no version names.
            return unexpired, removed if are_known else set()


class _Names:
    """Decodes paths in a log to paths below the table root. ``elsewhere``: see NamedFiles."""

    def __init__(
        self,
        url: str,
        places: Sequence[Place],
        hashed: Callable[[str], int] = hash,
        seen: Callable[[Sequence[str]], object] | None = None,
    ) -> None:
        self.url = url
        self.hashed = hashed
        self._seen = seen
        self._places = places
        self.elsewhere: set[str] = set()

    def of_table(self, files: pa.Table) -> Iterator[list[str]]:
        """The paths contained in the columns ``path`` and ``deletion_vector``, in batches."""
        for start in range(0, files.num_rows, _PATHS_AT_ONCE):
            some = files.slice(start, _PATHS_AT_ONCE)
            paths = some["path"].to_pylist()
            paths = paths if are_ordinary(paths) else [path for named in paths for path in self.of(named)]
            if self._seen is not None:
                self._seen(paths)
            yield paths
            vectors = some["deletion_vector"]
            if vectors.null_count < len(vectors):
                rows = vectors.filter(vectors.is_valid()).to_pylist()
                yield [path for row in rows for path in self.of_vector(DeletionVector(**row))]

    def of_all(self, files: pa.Table) -> Iterator[str]:
        """Like ``of_table``, but yields single paths instead of batches."""
        return itertools.chain.from_iterable(self.of_table(files))

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
            f"{self.url}: a deletion vector has the storage type {vector.storage_type!r}, so the file that holds it is "
            "unknown. Nothing was deleted."
        )

    def of(self, named: str) -> Iterable[str]:
        try:
            _, path = locate(named, self._places)
        except UnsafePathError:
            name = base_name(named)
            if name is None:
                raise UnsafePathError(
                    f"{self.url}: the log names a file by {named[:200]!r}, which cannot be resolved, so a vacuum could "
                    "delete that file. Nothing was deleted.",
                    path=named,
                ) from None
            self.elsewhere.add(name)
            return ()
        # Some writers did not percent-encode the paths in the log, so a file may have exactly the name that the log
        # contains.
        return (path,) if path == named or "%" not in named else (path, named)


def metadata_of_iceberg(configuration: Mapping[str, Any]) -> bool:
    """Whether a table may have the directory ``metadata`` that Iceberg clients read."""
    return any(key.startswith("delta.universalFormat.") for key in configuration)
