"""Log clean-up: finds and deletes the log files that no version within the retention period needs.

Spec: PROTOCOL.md#metadata-cleanup. Commit times are the same as in time travel: the in-commit timestamp or, for commits
before in-commit timestamps were enabled, the file time, adjusted so that file times strictly increase.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deltalog.arguments import safe_repr
from deltalog.errors import (
    CorruptTableError,
    InvalidCheckpointError,
    MissingVersionError,
    VersionNotFoundError,
)
from deltalog.log.history import LogHistory
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint, Listing, first_readable
from deltalog.log.tip import other_table
from deltalog.protocol import features
from deltalog.protocol.paths import (
    LOG_DIRECTORY,
    SIDECARS_DIRECTORY,
    LogFileKind,
    log_path,
    parse_log_file,
)
from deltalog.protocol.properties import CHECKPOINT_PROTECTION_BEFORE
from deltalog.protocol.retention import DAY_MS, log_cutoff_ms, midnight_ms
from deltalog.protocol.timestamps import describe, monotonised, resolve, timeline
from deltalog.storage.base import FileMeta

_NOT_A_LOG_FILE = "not a file that log clean-up deletes"
_WORK = "log clean-up"
# On a remote store, this many consecutive deletions take about a second.
_DELETED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class CleanupDecision:
    """Whether a log file is deleted, and the reason. ``path``: relative to the table root."""

    path: str
    deleted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """The result of a clean-up, or with ``dry_run`` the plan for one.

    ``cutoff_ms``: commits before this time have expired. ``first_version``: the first version that is readable after
    the clean-up; None if nothing is deleted. ``reason``: why log files are deleted or, if none are, why not.
    ``unreachable``: the first and the last of the versions that become unreadable. ``files``: all files of the log,
    beginning with the deleted files in order of deletion.
    """

    table: str
    dry_run: bool
    cutoff_ms: int
    first_version: int | None
    reason: str
    unreachable: tuple[int, int] | None
    files: tuple[CleanupDecision, ...]

    @property
    def deleted(self) -> tuple[str, ...]:
        """The paths of the deleted files, relative to the table root."""
        return tuple(file.path for file in self.files if file.deleted)

    @safe_repr
    def __repr__(self) -> str:
        """The report's fields, with a number of files in place of each list of files."""
        return (
            f"CleanupReport(table={self.table!r}, dry_run={self.dry_run}, cutoff_ms={self.cutoff_ms}, "
            f"first_version={self.first_version}, reason={self.reason!r}, unreachable={self.unreachable}, "
            f"files={len(self.files)}, deleted={len(self.deleted)})"
        )

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON-compatible values."""
        return {
            "table": self.table,
            "dry_run": self.dry_run,
            "cutoff_ms": self.cutoff_ms,
            "first_version": self.first_version,
            "reason": self.reason,
            "unreachable": None if self.unreachable is None else list(self.unreachable),
            "files": [{"path": f.path, "deleted": f.deleted, "reason": f.reason} for f in self.files],
        }

    def facts(self) -> list[tuple[str, str]]:
        """The report as pairs of a label and a text."""
        verb = "would be deleted" if self.dry_run else "deleted"
        facts = [
            ("Table", self.table),
            ("Cut-off", describe(self.cutoff_ms)),
            ("Decision", self.reason),
            ("Files", f"{len(self.deleted)} {verb}, {len(self.files) - len(self.deleted)} stay"),
        ]
        if self.unreachable is not None:
            first, last = self.unreachable
            facts.append(("Lost", f"versions {first} to {last} can no longer be read"))
        return facts

    def __str__(self) -> str:
        return "\n".join(f"{name:<10}{value}" for name, value in self.facts())


@dataclass(frozen=True, slots=True)
class Decision:
    """``first_version``: the log is kept from this version on (None: the whole log is kept). ``reason``: why log files
    are deleted or, if none are, why not."""

    first_version: int | None
    reason: str


def clean_up(
    reader: LogReader, clock_ms: int, *, retention_ms: int | None = None, dry_run: bool = False
) -> CleanupReport:
    """Delete the expired files of the log; with ``dry_run``, only report them.

    Clean-up keeps the newest checkpoint at or before the cut-off and all files after it, so that every version within
    the retention period can still be read, by number and by time. The cut-off is the last midnight UTC before
    ``clock_ms - retention_ms`` (default: delta.logRetentionDuration), in milliseconds since 1970. The oldest files are
    deleted first, so that an interruption leaves a readable log. Temporary files of killed writers on local disks are
    deleted after a day. If another clean-up deletes files during the call, this clean-up starts over, but only once. If
    another table replaces this table, the new table's log contains files with the same names as the old log. Clean-up
    therefore checks, before each batch of deletions, that the latest version is still in the log.

    Raises MissingInCommitTimestampError, UnsupportedFeatureError, StoreError; TableReplacedError, TableNotFoundError.
    Cost: 3 LISTs, the latest version's ``.crc``, at most ceil(log2 n) + 2 GETs of 4 KiB for n commits (1 LIST more
    if file times apply), the small columns of the first kept checkpoint, the sidecar names in all kept checkpoints, 1
    DELETE for each file, and 1 HEAD for each 16 of them; on a store without a network 1 for each, and 1 more. Spec:
    PROTOCOL.md#metadata-cleanup.
    """
    history = LogHistory(reader)
    try:
        return _clean_up(history, clock_ms, retention_ms, dry_run)
    except (MissingVersionError, VersionNotFoundError):
        again = LogHistory(reader)
        if again.latest.metadata.id != history.latest.metadata.id:
            raise other_table(reader.store.url, history.latest.version, _WORK) from None
        return _clean_up(again, clock_ms, retention_ms, dry_run)


def _clean_up(history: LogHistory, clock_ms: int, retention_ms: int | None, dry_run: bool) -> CleanupReport:
    latest, reader = history.latest, history.reader
    features.check_writable(latest.protocol, reader.store.url)
    cutoff_ms = log_cutoff_ms(latest.metadata.configuration, clock_ms, retention_ms)
    decision = _decide(history, cutoff_ms)
    names = reader.store.list_names(LOG_DIRECTORY)
    files = decide_files(names, decision.first_version)
    files += _decide_sidecars(reader, {f.path for f in files if f.deleted}, history.listing, clock_ms)
    if not dry_run:
        expired = [file.path for file in files if file.deleted]
        size = _DELETED_AT_ONCE if reader.store.is_remote else 1
        for start in range(0, len(expired), size):
            latest.tip.check_is_there(reader, _WORK)
            for path in expired[start : start + size]:
                reader.store.delete(path)
        reader.store.remove_orphans(LOG_DIRECTORY, clock_ms - DAY_MS)  # left by killed writers
    readable = first_readable(history.listing)
    lost = readable is not None and decision.first_version is not None and readable < decision.first_version
    return CleanupReport(
        reader.store.url,
        dry_run,
        cutoff_ms,
        decision.first_version,
        decision.reason,
        (readable, decision.first_version - 1) if lost else None,  # type: ignore[operator,arg-type]
        tuple(files),
    )


# -------------------------------------------------------------------------------- the clean-up decision


def _decide(history: LogHistory, cutoff_ms: int) -> Decision:
    """The version at which the log will begin: that of the newest readable checkpoint at or before the cut-off,
    provided that the times of all later commits do not change."""
    listing = history.listing
    log = timeline(listing.commits, history.latest.in_commit_timestamps_enabled, history.enablement)
    if not listing.commits:
        return Decision(None, "The log has no commit files.")
    newest = resolve(cutoff_ms, log, history.ict_of, history.file_times_of)
    if newest.timestamp_ms > cutoff_ms:
        return Decision(None, f"No commit is older than the cut-off; the oldest is at {describe(newest.timestamp_ms)}.")
    keeps_times = _time_preserving_starts(history, log.file_versions)
    for checkpoint in reversed(listing.checkpoints):
        version = checkpoint.version
        if version > newest.version or not _is_followed(listing, version) or not keeps_times(version):
            continue
        if not _is_readable(history.reader, checkpoint):
            continue
        protected = _protected_before(history)
        if version < protected:
            return Decision(
                None,
                f"Versions before {protected} may only be deleted together (checkpointProtection), and only those "
                f"before {version} have expired.",
            )
        return Decision(
            version,
            f"Version {newest.version} is the last one at the cut-off, and the checkpoint of version {version} is the "
            "newest from which it and all later versions can be read.",
        )
    return Decision(
        None,
        f"Version {newest.version} is the last one at the cut-off, and no checkpoint at or before it can replace the "
        "commits before it.",
    )


def _time_preserving_starts(history: LogHistory, file_versions: Sequence[int]) -> Callable[[int], bool]:
    """A predicate on versions: whether the times of all remaining commits stay the same if the log begins at that
    version.

    File times are adjusted to be strictly increasing, from the first commit on. A commit whose time was raised above
    its own file time, because of earlier commits, cannot become the first commit of the log.
    """
    if not file_versions:
        return lambda version: True
    times = history.file_times_of(file_versions)
    unchanged = {v for v, own, used in zip(file_versions, times, monotonised(times), strict=True) if own == used}
    last = file_versions[-1]
    return lambda version: version > last or version in unchanged


def _is_followed(listing: Listing, version: int) -> bool:
    """Whether the log has the commit that defines the time of a checkpoint's version, and all later commits."""
    after = [v for v in listing.commits if v >= version]
    return bool(after) and after == list(range(version, listing.commits[-1] + 1))


def _is_readable(reader: LogReader, checkpoint: Checkpoint) -> bool:
    """Whether the small actions of a checkpoint can be read and all its sidecars exist. File actions are not read."""
    try:
        reader.checkpoint(checkpoint).state()
        named = {reader.files.find_sidecar(name)[1] for name in reader.checkpoint(checkpoint).sidecars()}
    except (InvalidCheckpointError, CorruptTableError):
        return False
    return all(reader.store.head(path) is not None for path in named)


def _protected_before(history: LogHistory) -> int:
    latest = history.latest
    if "checkpointProtection" not in features.writer_features(latest.protocol):
        return 0
    return CHECKPOINT_PROTECTION_BEFORE.read(latest.metadata.configuration)


# ------------------------------------------------------------------------------------------------- files


def decide_files(names: Iterable[str], first_version: int | None) -> list[CleanupDecision]:
    """The decision on each file of ``_delta_log``: first the files to delete, oldest first, then the rest. Pure.
    ``names``: the file names in ``_delta_log``. ``first_version``: as in ``Decision``. The commit of a version is
    deleted before its checkpoints, so that every remaining commit is readable.
    """
    deleted: list[tuple[int, int, str, str]] = []
    kept: list[CleanupDecision] = []
    for name in sorted(names):
        # On a local disk, Hadoop stores a checksum file next to each file.
        side_file = name.startswith(".") and name.endswith(".crc")
        parsed = parse_log_file(name[1:-4] if side_file else name)
        if parsed is None:
            kept.append(CleanupDecision(log_path(name), False, _NOT_A_LOG_FILE))
        elif first_version is None:
            kept.append(CleanupDecision(log_path(name), False, "nothing is deleted"))
        elif parsed.version < first_version:
            rank = _ORDER[parsed.kind]
            reason = f"{parsed.kind.value} of version {parsed.version}, before {first_version}"
            deleted.append((parsed.version, rank, name, reason))
        elif parsed.kind is LogFileKind.COMPACTION and parsed.version <= first_version:
            reason = f"begins with version {parsed.version}, which its checkpoint replaces"
            deleted.append((parsed.version, _ORDER[parsed.kind], name, reason))
        else:
            kept.append(CleanupDecision(log_path(name), False, f"version {parsed.version} is kept"))
    return [*(CleanupDecision(log_path(name), True, reason) for _, _, name, reason in sorted(deleted)), *kept]


_ORDER = {
    LogFileKind.COMPACTION: 0,
    LogFileKind.COMMIT: 1,
    LogFileKind.CHECKSUM: 2,
    LogFileKind.CLASSIC_CHECKPOINT: 3,
    LogFileKind.MULTI_PART_CHECKPOINT: 3,
    LogFileKind.UUID_CHECKPOINT: 3,
}


def _decide_sidecars(
    reader: LogReader, deleted: Collection[str], listing: Listing, clock_ms: int
) -> list[CleanupDecision]:
    """The decision on each sidecar. A sidecar is deleted if it is older than a day and no kept checkpoint names it; a
    younger sidecar may belong to a checkpoint that is being written. ``deleted``: the paths of files to delete."""
    metas = reader.store.list_from(SIDECARS_DIRECTORY)
    if not metas:
        return []
    named: set[str] = set()
    for checkpoint in listing.checkpoints:
        if log_path(checkpoint.names[0]) in deleted or checkpoint.kind is LogFileKind.MULTI_PART_CHECKPOINT:
            continue
        try:
            named |= {reader.files.find_sidecar(name)[1] for name in reader.checkpoint(checkpoint).sidecars()}
        except InvalidCheckpointError:
            reason = f"the checkpoint {checkpoint.names[0]} cannot be read and may name it"
            return [CleanupDecision(_sidecar(meta), False, reason) for meta in metas]
    cutoff_ms = midnight_ms(clock_ms) - DAY_MS
    return sorted((_decide_sidecar(meta, named, cutoff_ms) for meta in metas), key=lambda file: not file.deleted)


def _decide_sidecar(meta: FileMeta, named: Collection[str], cutoff_ms: int) -> CleanupDecision:
    path = _sidecar(meta)
    if path in named:
        return CleanupDecision(path, False, "a kept checkpoint names it")
    if not meta.name.endswith(".parquet"):
        return CleanupDecision(path, False, _NOT_A_LOG_FILE)
    if meta.modification_time_ms is None or meta.modification_time_ms >= cutoff_ms:
        return CleanupDecision(path, False, "younger than a day: its checkpoint may not be written yet")
    return CleanupDecision(path, True, "no kept checkpoint names it")


def _sidecar(meta: FileMeta) -> str:
    return f"{SIDECARS_DIRECTORY}/{meta.name}"
