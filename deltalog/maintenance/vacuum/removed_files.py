"""Finds, from the log alone, the files that are no longer needed, and the last commit whose removed files a
vacuum has deleted.

A lite vacuum considers only the files that the log records as removed, and does not list the directory.
``_last_vacuum_info``, which delta-spark also reads and writes, records the last version up to which a vacuum has
deleted the removed files. Lite vacuums do not need the commits up to that version, so log clean-up may have deleted
these commits.

Spec: PROTOCOL.md leaves vacuum to writers; #add-file-and-remove-file.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

import msgspec

from deltalog.errors import MissingVersionError, ObjectNotFoundError, VersionNotFoundError
from deltalog.log.history import LogHistory
from deltalog.maintenance.vacuum.decisions import NamedFiles, Need, checksum_path, parents
from deltalog.maintenance.vacuum.needed_files import removed_in
from deltalog.parallel import mapped
from deltalog.protocol.paths import LOG_DIRECTORY, is_plain, log_path
from deltalog.storage.base import Entry, EntryKind, LogStore

LAST_VACUUM = log_path("_last_vacuum_info")
_MOST_BYTES = 4_096
_LISTINGS = 32


class _LastVacuum(msgspec.Struct):
    version: int | None = msgspec.field(name="latestCommitVersionOutsideOfRetentionWindow", default=None)


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """``entries``: the removed files that still exist, their Hadoop checksums, and the logs of other tables in
    directories above them. ``paths``: all removed files that are not needed. ``are_settled``: False if the tombstone of
    a file removed by these commits has not expired yet."""

    entries: list[Entry]
    paths: Set[str]
    are_settled: bool


def removed_files(history: LogHistory, named: NamedFiles) -> RemovedFiles:
    """The files that, according to the log, were removed before the retention period began and are not needed by any
    version within it.

    Raises VersionNotFoundError if commits since the last vacuum, or since version 0, no longer exist, and as
    ``LogStore.entries``. Cost: 1 GET of ``_last_vacuum_info``, 1 GET for each commit since then up to the cut-off, 1
    HEAD for each removed file, 1 HEAD and 1 LIST for each directory with such files.
    """
    store = history.reader.store
    removed = {path for path in sorted(named.removed) if named.needed.why(path) is None}
    found = removed | _removed(history, named.cutoff_version)
    needs = {path: named.needed.why(path) for path in sorted(found)}
    paths = {path for path, need in needs.items() if need is None and is_plain(path) and not _is_of_log(path)}
    are_settled = all(need in (None, Need.LATEST) for need in needs.values())
    wanted = sorted(paths if store.is_remote else paths.union(map(checksum_path, paths)))
    return RemovedFiles([*store.entries(wanted), *logs_above(store, paths)], paths, are_settled)


def _removed(history: LogHistory, cutoff_version: int | None) -> set[str]:
    if cutoff_version is None:
        return set()
    last = last_vacuum(history.reader.store, history.latest.version)
    first = 0 if last is None else last + 1
    try:
        return removed_in(history, first, cutoff_version)
    except MissingVersionError as error:
        since = "version 0," if last is None else f"version {first}, the first after the last vacuum,"
        raise VersionNotFoundError(
            f"{history.reader.store.url}: a lite vacuum reads the commits since {since} but version {error.version} is "
            "not in the log. Nothing was deleted. Vacuum with full=True (deltalog vacuum without --lite), which lists "
            "the files; later lite vacuums continue from there.",
            version=first,
            earliest=None,
            latest=history.latest.version,
        ) from error


def last_vacuum(store: LogStore, latest: int) -> int | None:
    """The last version whose removed files a vacuum has deleted; None if this version is unknown or later than the
    latest version. Cost: 1 GET."""
    try:
        found = msgspec.json.decode(store.get(LAST_VACUUM, _MOST_BYTES), type=_LastVacuum)
    except (ObjectNotFoundError, ValueError, RecursionError):
        return None
    return found.version if found.version is not None and 0 <= found.version <= latest else None


def record_vacuum(store: LogStore, version: int, latest: int) -> None:
    """Record that the files removed up to ``version`` are deleted, unless a later version is already recorded. Raises
    StoreError. Cost: 1 GET, 1 PUT."""
    last = last_vacuum(store, latest)
    if last is None or last < version:
        store.put(LAST_VACUUM, msgspec.json.encode(_LastVacuum(version)), durable=False)


def _is_of_log(path: str) -> bool:
    return path.startswith(f"{LOG_DIRECTORY}/")


def logs_above(store: LogStore, paths: Iterable[str]) -> list[Entry]:
    """Entries of ``_delta_log`` directories which show that a directory above one of the paths is another table. Cost:
    1 HEAD and 1 LIST for each directory above."""
    logs = sorted({f"{directory}/{LOG_DIRECTORY}" for path in paths for directory in parents(path)})
    there = {entry.path for entry in store.entries(logs)}
    names = mapped(logs, lambda log: store.list_names(log, limit=1), _LISTINGS if store.is_remote else 0, 0)
    there.update(log for log, found in zip(logs, names, strict=True) if found)
    return [Entry(log, EntryKind.DIRECTORY, None, None) for log in logs if log in there]


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
msgspec.json.Decoder(_LastVacuum)
