"""Checks whether a version has already added given files. A file that a version has added must be neither added again
nor deleted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from deltalog.arrow_arrays import strings
from deltalog.errors import FilesCommittedError, MissingVersionError
from deltalog.lazy_arrow import pc
from deltalog.protocol.paths import are_ordinary
from deltalog.read.snapshot import Snapshot

# Up to this many commits are read one by one; for more, reading the table state costs less.
_FEW_COMMITS = 100


def live_file_rows(snapshot: Snapshot, paths: Sequence[str]) -> Mapping[str, int]:
    """For those of the store paths ``paths`` that are live files: their row numbers in ``Snapshot.files``, keyed by
    path."""
    names = snapshot.files()["path"]
    if are_ordinary(paths) and are_ordinary(names.to_pylist()):
        rows = pc.index_in(strings(paths), value_set=names.combine_chunks()).to_pylist()
        return {path: row for path, row in zip(paths, rows, strict=True) if row is not None}
    wanted = set(paths)
    found = {snapshot.reader.files.find(name)[1]: row for row, name in enumerate(names.to_pylist())}
    return {path: row for path, row in found.items() if path in wanted}


def check_not_live(snapshot: Snapshot, paths: Sequence[str]) -> None:
    """Raise FilesCommittedError if one of these store paths is a live file. Cost: as ``Snapshot.files``."""
    for path in live_file_rows(snapshot, paths):
        raise _committed(snapshot, path, None, "Nothing was committed.")


def check_never_committed(snapshot: Snapshot, since: int | None, names: Collection[str], outcome: str) -> None:
    """Raise FilesCommittedError if a commit after version ``since`` (None: any commit) has added one of these files,
    even if it was removed later. ``names``: paths as in the log. ``outcome``: a sentence for the error message, such as
    "Nothing was committed."

    Cost: 1 GET for each version since. If there are more than 100 such versions, or log clean-up has deleted some of
    them, the cost is that of ``Snapshot.files`` and ``FileCache.tombstones``; files whose tombstones have expired are
    then not detected.
    """
    wanted = set(names)
    if since is not None and snapshot.version - since <= _FEW_COMMITS:
        try:
            for commit in snapshot.reader.commits(range(since + 1, snapshot.version + 1)):
                for add in commit.adds:
                    if add.path in wanted:
                        raise _committed(snapshot, add.path, commit.version, outcome)
            return
        except MissingVersionError:
            pass  # the log was cleaned up
    for files in (snapshot.files(["path"]), snapshot.log.cache.tombstones(0)):
        for path in _among(files["path"], wanted):
            raise _committed(snapshot, path, None, outcome)


def _among(paths: pa.ChunkedArray, wanted: Collection[str]) -> list[str]:
    found: list[str] = paths.filter(pc.is_in(paths, value_set=strings(sorted(wanted)))).to_pylist()
    return found


def _committed(snapshot: Snapshot, path: str, version: int | None, outcome: str) -> FilesCommittedError:
    which = "an earlier version" if version is None else f"version {version}"
    return FilesCommittedError(
        f"{snapshot.url}: {path} is already a file of the table: {which} added it. {outcome} If an earlier attempt "
        "of this call added it, that attempt succeeded.",
        path=path,
        version=version,
    )
