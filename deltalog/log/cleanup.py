"""Log clean-up: which files of the log no version within the retention needs, and taking them away.

Spec: PROTOCOL.md#metadata-cleanup. Age is judged by the clock that time travel uses: in-commit timestamps, and for the
commits before their enablement monotonised file times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deltalog.errors import CorruptTableError, InvalidCheckpointError, MissingVersionError, VersionNotFoundError
from deltalog.log.history import LogHistory
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint, Listing
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

_NOT_OURS = "not a file that clean-up deletes"


@dataclass(frozen=True, slots=True)
class CleanupDecision:
    """A file of the log, whether it goes, and why."""

    path: str
    deleted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What a clean-up did, or with ``dry_run`` would do.

    ``cutoff_ms``: what is older has expired. ``first_version``: the first version that can be read afterwards; None
    where nothing goes, and ``reason`` says why. ``unreachable``: versions that could be read before and cannot any
    longer, first and last. ``files``: every file of the log, those that go in the order in which they do.
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
        """The paths of the files that go, below the table root."""
        return tuple(file.path for file in self.files if file.deleted)

    def to_json(self) -> dict[str, Any]:
        """Everything, for scripts."""
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
        """The report as names and values."""
        verb = "would be deleted" if self.dry_run else "deleted"
        found = [
            ("Table", self.table),
            ("Cut-off", describe(self.cutoff_ms)),
            ("Decision", self.reason),
            ("Files", f"{len(self.deleted)} {verb}, {len(self.files) - len(self.deleted)} stay"),
        ]
        if self.unreachable is not None:
            first, last = self.unreachable
            found.append(("Lost", f"versions {first} to {last} can no longer be read"))
        return found

    def __str__(self) -> str:
        return "\n".join(f"{name:<10}{value}" for name, value in self.facts())


@dataclass(frozen=True, slots=True)
class Decision:
    """From which version on the log is kept (None: all of it), and why."""

    first_version: int | None
    reason: str


def clean_up(
    reader: LogReader, clock_ms: int, *, retention_ms: int | None = None, dry_run: bool = False
) -> CleanupReport:
    """Delete what has expired; with ``dry_run`` only say what that is.

    Kept are the newest checkpoint at or before the cut-off and all that follows it, so that every version within the
    retention can be read, and can be found by its time. The cut-off is the last midnight UTC before
    ``clock_ms - retention_ms`` (default: delta.logRetentionDuration). The oldest files go first, so that an
    interruption leaves a log that is a little longer. Raises MissingInCommitTimestampError, UnsupportedFeatureError,
    StoreError. Cost: 3 LISTs, the latest version's ``.crc``, at most ceil(log2 n) + 2 GETs of 4 KiB for n commits
    (where file times count 1 LIST more), the small columns of the checkpoint that everything begins with, the names
    of sidecars in those that stay, 1 DELETE for each file. Hidden temporary files that killed writers left on local
    disk go too, a day later. Where another clean-up takes away what is being read, all is read once more.
    """
    try:
        return _clean_up(reader, clock_ms, retention_ms, dry_run)
    except (MissingVersionError, VersionNotFoundError):
        return _clean_up(reader, clock_ms, retention_ms, dry_run)


def _clean_up(reader: LogReader, clock_ms: int, retention_ms: int | None, dry_run: bool) -> CleanupReport:
    history = LogHistory(reader)
    latest = history.latest
    features.check_writable(latest.protocol, latest.metadata, latest.schema, reader.store.url)
    cutoff_ms = log_cutoff_ms(latest.metadata.configuration, clock_ms, retention_ms)
    decision = _decide(history, cutoff_ms)
    names = reader.store.list_names(LOG_DIRECTORY)
    fates = fates_of(names, decision.first_version)
    fates += _fates_of_sidecars(reader, {f.path for f in fates if f.deleted}, history.listing, clock_ms)
    if not dry_run:
        for fate in fates:
            if fate.deleted:
                reader.store.delete(fate.path)
        reader.store.remove_orphans(LOG_DIRECTORY, clock_ms - DAY_MS)  # of writers that were killed
    readable = recreatable_from(history.listing)
    lost = readable is not None and decision.first_version is not None and readable < decision.first_version
    return CleanupReport(
        reader.store.url,
        dry_run,
        cutoff_ms,
        decision.first_version,
        decision.reason,
        (readable, decision.first_version - 1) if lost else None,  # type: ignore[operator,arg-type]
        tuple(fates),
    )


def recreatable_from(listing: Listing) -> int | None:
    """The first version that can be read."""
    starts = [checkpoint.version for checkpoint in listing.checkpoints]
    starts += [0] if listing.commits[:1] == (0,) else []
    return min(starts, default=None)


# --------------------------------------------------------------------------------------------- decision


def _decide(history: LogHistory, cutoff_ms: int) -> Decision:
    """The version from which on the log is kept: that of the newest checkpoint at or before the cut-off that can be
    read, and after which times mean what they meant before."""
    listing = history.listing
    log = timeline(listing.commits, history.latest.in_commit_timestamps_enabled, history.enablement)
    if not listing.commits:
        return Decision(None, "The log has no commit files.")
    newest = resolve(cutoff_ms, log, history.ict_of, history.file_times_of)
    if newest.timestamp_ms > cutoff_ms:
        return Decision(None, f"No commit is older than the cut-off; the oldest is of {describe(newest.timestamp_ms)}.")
    anchors = _anchors(history, log.file_versions)
    for checkpoint in reversed(listing.checkpoints):
        version = checkpoint.version
        if version > newest.version or not _is_followed(listing, version) or not anchors(version):
            continue
        if not _is_sound(history.reader, checkpoint):
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
            "newest from which it and all later ones can be read.",
        )
    return Decision(
        None,
        f"Version {newest.version} is the last one at the cut-off, and no checkpoint at or before it can replace the "
        "earlier commits.",
    )


def _anchors(history: LogHistory, file_versions: Sequence[int]) -> Any:
    """Whether a log may begin at a version without changing a time. File times are made increasing from the first
    commit on: a commit whose own time was moved for the sake of those before it cannot become the first."""
    if not file_versions:
        return lambda version: True
    times = history.file_times_of(file_versions)
    unmoved = {v for v, own, used in zip(file_versions, times, monotonised(times), strict=True) if own == used}
    last = file_versions[-1]
    return lambda version: version > last or version in unmoved


def _is_followed(listing: Listing, version: int) -> bool:
    """Whether the commit of a checkpoint is there, which alone has its time, and every one after it."""
    after = [v for v in listing.commits if v >= version]
    return bool(after) and after == list(range(version, listing.commits[-1] + 1))


def _is_sound(reader: LogReader, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint can be read, as far as its small actions and the names of its sidecars tell."""
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


def fates_of(names: Iterable[str], first_version: int | None) -> list[CleanupDecision]:
    """What happens to each file in ``_delta_log``: first those that go, oldest first, then the others. Pure.

    Of one version the commit goes before its checkpoints: as long as there is a commit, there is a way to its state.
    """
    going: list[tuple[int, int, str, str]] = []
    staying: list[CleanupDecision] = []
    for name in sorted(names):
        # Hadoop keeps a checksum beside each file of a local disk.
        side_file = name.startswith(".") and name.endswith(".crc")
        parsed = parse_log_file(name[1:-4] if side_file else name)
        if parsed is None:
            staying.append(CleanupDecision(log_path(name), False, _NOT_OURS))
        elif first_version is None:
            staying.append(CleanupDecision(log_path(name), False, "nothing goes"))
        elif parsed.version < first_version:
            rank = _ORDER[parsed.kind]
            reason = f"{parsed.kind.value} of version {parsed.version}, before {first_version}"
            going.append((parsed.version, rank, name, reason))
        elif parsed.kind is LogFileKind.COMPACTION and parsed.version <= first_version:
            reason = f"begins with version {parsed.version}, whose checkpoint replaces it"
            going.append((parsed.version, _ORDER[parsed.kind], name, reason))
        else:
            staying.append(CleanupDecision(log_path(name), False, f"version {parsed.version} stays"))
    return [*(CleanupDecision(log_path(name), True, reason) for _, _, name, reason in sorted(going)), *staying]


_ORDER = {
    LogFileKind.COMPACTION: 0,
    LogFileKind.COMMIT: 1,
    LogFileKind.CHECKSUM: 2,
    LogFileKind.CLASSIC_CHECKPOINT: 3,
    LogFileKind.MULTI_PART_CHECKPOINT: 3,
    LogFileKind.UUID_CHECKPOINT: 3,
}


def _fates_of_sidecars(
    reader: LogReader, going: Collection[str], listing: Listing, clock_ms: int
) -> list[CleanupDecision]:
    """Sidecars go that no checkpoint that stays names, and that are no checkpoint's in the making."""
    metas = reader.store.list_from(SIDECARS_DIRECTORY)
    if not metas:
        return []
    named: set[str] = set()
    for checkpoint in listing.checkpoints:
        if log_path(checkpoint.names[0]) in going or checkpoint.kind is LogFileKind.MULTI_PART_CHECKPOINT:
            continue
        try:
            named |= {reader.files.find_sidecar(name)[1] for name in reader.checkpoint(checkpoint).sidecars()}
        except InvalidCheckpointError:
            reason = f"the checkpoint {checkpoint.names[0]} cannot be read, and may name it"
            return [CleanupDecision(_sidecar(meta), False, reason) for meta in metas]
    young_ms = midnight_ms(clock_ms) - DAY_MS
    return sorted((_fate_of_sidecar(meta, named, young_ms) for meta in metas), key=lambda fate: not fate.deleted)


def _fate_of_sidecar(meta: FileMeta, named: Collection[str], young_ms: int) -> CleanupDecision:
    path = _sidecar(meta)
    if path in named:
        return CleanupDecision(path, False, "a remaining checkpoint names it")
    if not meta.name.endswith(".parquet"):
        return CleanupDecision(path, False, _NOT_OURS)
    if meta.modification_time_ms is None or meta.modification_time_ms >= young_ms:
        return CleanupDecision(path, False, "younger than a day: it may belong to a checkpoint that is being written")
    return CleanupDecision(path, True, "no remaining checkpoint names it")


def _sidecar(meta: FileMeta) -> str:
    return f"{SIDECARS_DIRECTORY}/{meta.name}"
