"""Loads versions: chooses the log segment from a listing, and the state from the ``.crc`` or by replay.

Spec: PROTOCOL.md#action-reconciliation, #version-checksum-file.
"""

from __future__ import annotations

from deltalog.errors import InvalidCheckpointError, InvalidCommitError, MissingVersionError, TableReplacedError
from deltalog.log.file_cache import FileCache, NewCheckpoint
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint, Listing, Segment
from deltalog.log.snapshot import LogSnapshot
from deltalog.log.tip import Tip
from deltalog.protocol import features
from deltalog.protocol.actions import Protocol
from deltalog.protocol.paths import commit_path
from deltalog.protocol.properties import checkpoint_interval
from deltalog.storage.base import FileMeta

# ``load_after`` reads at most this number of commits, and of bytes of them; and leaves at most this number of commits
# after the checkpoint.
MAX_NEW_COMMITS, MAX_NEW_BYTES, MAX_TAIL = 100, 8 << 20, 1_000


def load_latest(reader: LogReader) -> LogSnapshot:
    """The latest version.

    Raises TableNotFoundError, CorruptTableError, UnsupportedFeatureError. Cost: 1 GET, 1 LIST, then 2 GETs with a
    usable ``.crc``, else the small columns of the checkpoint and 1 GET for each commit after it; on a local disk 1 HEAD
    more, for what a listing of a remote store shows, and another where it read commits.
    """
    try:
        return load(reader, reader.list_latest(), identifies=True)
    except TableReplacedError:  # meanwhile
        return load(reader, reader.list_latest(), identifies=True)


def load_after(reader: LogReader, snapshot: LogSnapshot) -> LogSnapshot | None:
    """The latest version, from an earlier one and the commits since; the files that are in memory stay there. None
    where that reads more than loading the latest version does, or cannot be done: there are many commits since, or
    large ones, or one cannot be read.

    Raises CorruptTableError, UnsupportedFeatureError. Cost: 1 LIST (on a local disk 1 HEAD or 2 for each commit
    instead), and 1 GET for each commit.
    """
    listing = reader.list_after(snapshot.version, MAX_NEW_COMMITS, checkpoint_interval(snapshot.metadata.configuration))
    versions = listing.commits
    size_bytes = sum(meta.size_bytes or 0 for meta in listing.metas.values())
    is_tail = versions == tuple(range(snapshot.version + 1, snapshot.version + 1 + len(versions)))
    tail = len(snapshot.segment.commits) + len(versions)
    if not versions or not is_tail or len(versions) > MAX_NEW_COMMITS or tail > MAX_TAIL or size_bytes > MAX_NEW_BYTES:
        return None
    try:
        commits = reader.commits(versions)
    except (InvalidCommitError, MissingVersionError):
        return None
    checkpoints = {checkpoint.version: checkpoint for checkpoint in listing.checkpoints}
    for commit in commits:
        snapshot = snapshot.after(commit, commit.in_commit_timestamp_ms)
        if commit.version in checkpoints:
            snapshot = snapshot.on_checkpoint(NewCheckpoint(checkpoints[commit.version], None))
    features.check_reached(snapshot.protocol, reader.store.url, reader.store.catalog)
    snapshot.tip.meta = listing.metas[snapshot.version]
    return snapshot


def load(
    reader: LogReader,
    listing: Listing,
    version: int | None = None,
    latest: Protocol | None = None,
    identifies: bool = False,
) -> LogSnapshot:
    """A version of a listing (None: the latest), from an older checkpoint where one cannot be read. ``latest``: the
    protocol of the latest version, if known: where no catalog manages that, all versions are read by their path.
    ``identifies``: ``tip`` has the commit file, by which a handle knows its version again.

    Raises VersionNotFoundError, MissingVersionError, InvalidCheckpointError and as ``load_latest``. Cost: as
    ``load_latest`` after the listing; 1 LIST more where the listing does not reach back far enough.
    """
    unusable: tuple[Checkpoint, ...] = ()
    failure: InvalidCheckpointError | None = None
    while True:
        segment = reader.segment(listing, version, unusable, failure)
        meta = _meta_of_tip(reader, listing, segment) if identifies else None  # before the commit is read
        try:
            return _load_segment(reader, segment, unusable, latest, meta)
        except InvalidCheckpointError as error:
            if segment.checkpoint is None:
                raise
            failure = failure or error
            unusable = (*unusable, segment.checkpoint)


def _meta_of_tip(reader: LogReader, listing: Listing, segment: Segment) -> FileMeta | None:
    """The commit file of the latest version, where that costs no request over a network."""
    store = reader.store
    if store.is_remote or store.catalog is not None or store.branch is not None:
        return listing.metas.get(segment.version)
    return store.head(commit_path(segment.version))


def _load_segment(
    reader: LogReader,
    segment: Segment,
    unusable: tuple[Checkpoint, ...],
    latest: Protocol | None,
    meta: FileMeta | None,
) -> LogSnapshot:
    by_checksum = reader.checksum_state(segment.version) if segment.has_checksum else None
    if by_checksum is not None:
        state, checksum, ict_ms = by_checksum
        tip = Tip(segment.version, checksum.txn_id, meta)
        cache = FileCache(reader, segment, state, tip, totals=checksum.totals, unusable=unusable, checksum=checksum)
    else:
        state, commits = reader.replay(segment)
        ict_ms, tip = None, Tip(segment.version, None, meta)
        tip.check_after_read(reader, commits.actions)
        infos = (each.commit_info for each in commits.actions if each.version == segment.version)
        tip.txn_id = next((info.txn_id for info in infos if info is not None), None)
        cache = FileCache(reader, segment, state, tip, commits=commits, unusable=unusable)
    if latest is None or features.is_catalog_managed(latest):
        features.check_reached(state.protocol, reader.store.url, reader.store.catalog)
    else:
        features.check_readable(state.protocol, reader.store.url)
    return LogSnapshot(reader, segment, state, cache, ict_ms)


class UnreadSnapshot:
    """A version that is known to be in the log and has not been read; ``load`` reads it. ``tip``: which commit it
    is."""

    def __init__(self, reader: LogReader, version: int, txn_id: str | None = None) -> None:
        self.reader = reader
        self.version = version
        self.tip = Tip(version, txn_id)

    def load(self) -> LogSnapshot:
        """The version. Raises as ``loader.load``. Cost: 1 LIST, and as ``loader.load``."""
        return load(self.reader, self.reader.list_from(), self.version)
