"""Loads versions: chooses the log segment from a listing, and reads the state from the ``.crc`` or by replay.

Spec: PROTOCOL.md#action-reconciliation, #version-checksum-file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltalog.errors import InvalidCheckpointError, InvalidCommitError, MissingVersionError, TableReplacedError
from deltalog.log.file_cache import FileCache, NewCheckpoint
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint, Listing, Segment
from deltalog.log.snapshot import LogSnapshot
from deltalog.log.tip import Tip
from deltalog.protocol import features
from deltalog.protocol.actions import Protocol
from deltalog.protocol.codec import decode_commit
from deltalog.protocol.paths import commit_path
from deltalog.protocol.properties import checkpoint_interval
from deltalog.storage.base import FileMeta, etag_of

# Limits of ``load_after``: the number of new commits, their total size in bytes, and the number of commits after the
# checkpoint.
MAX_NEW_COMMITS, MAX_NEW_BYTES, MAX_TAIL = 100, 8 << 20, 1_000
# The maximum number of attempts to read a table, if the table is replaced during each attempt.
_READS = 3


def load_latest(reader: LogReader) -> LogSnapshot:
    """Load the latest version.

    Raises TableNotFoundError, CorruptTableError, UnsupportedFeatureError; TableReplacedError if the table is replaced
    during every attempt. Cost: 1 GET, 1 LIST, then 2 GETs with a usable ``.crc``, else the small columns of the
    checkpoint and 1 GET for each commit after it. On a local disk, 1 additional HEAD for metadata that a listing of a
    remote store would include; on a remote store whose ETags do not depend on content alone, 1 additional HEAD after
    the commits are read.
    """
    for number in range(_READS):
        try:
            return load(reader, reader.list_latest(), identifies=True, asks=number > 0)
        except TableReplacedError:
            if number == _READS - 1:
                raise
    raise AssertionError


def load_after(reader: LogReader, snapshot: LogSnapshot) -> LogSnapshot | None:
    """Load the latest version from an earlier version and the commits since then; file lists that are in memory are
    reused. Returns None if loading the latest version without the earlier one would read less (because many or large
    commits followed), or if a commit cannot be read.

    Raises CorruptTableError, UnsupportedFeatureError. Cost: 1 LIST (on a local disk, 1 or 2 HEADs for each commit
    instead), and 1 GET for each commit; 1 HEAD on a remote store whose ETags do not depend on content alone.
    """
    known = snapshot
    listing = reader.list_after(snapshot.version, MAX_NEW_COMMITS, checkpoint_interval(snapshot.metadata.configuration))
    metas = {version: meta for version, meta in listing.metas.items() if version > known.version}
    versions = tuple(version for version in listing.commits if version > known.version)
    size_bytes = sum(meta.size_bytes or 0 for meta in metas.values())
    is_tail = versions == tuple(range(known.version + 1, known.version + 1 + len(versions)))
    tail = len(known.segment.commits) + len(versions)
    if not versions or not is_tail or len(versions) > MAX_NEW_COMMITS or tail > MAX_TAIL or size_bytes > MAX_NEW_BYTES:
        return None
    try:
        files = reader.commit_files(versions)
        commits = [decode_commit(data, version) for version, data in zip(versions, files, strict=True)]
    except (InvalidCommitError, MissingVersionError):
        return None
    if (
        reader.store.is_remote
        and not _is_managed(reader)
        and not _follow(known, listing, dict(zip(versions, files, strict=True)))
    ):
        return None
    checkpoints = {checkpoint.version: checkpoint for checkpoint in listing.checkpoints}
    for commit in commits:
        snapshot = snapshot.after(commit, commit.in_commit_timestamp_ms)
        if commit.version in checkpoints:
            snapshot = snapshot.on_checkpoint(NewCheckpoint(checkpoints[commit.version], None))
    features.check_reached(snapshot.protocol, reader.store.url, reader.authority.catalog)
    snapshot.tip.meta = metas[snapshot.version]
    return snapshot


def _follow(known: LogSnapshot, listing: Listing, files: Mapping[int, bytes]) -> bool:
    """Whether the commits that were listed and read after a known version really follow it; they do not if another
    table replaced this one in between. ``files``: the bytes of the commits, keyed by version. Cost: none, or 1 HEAD if
    the ETags of the listing do not prove it."""
    reader, tip = known.reader, known.tip
    listed = listing.metas.get(known.version)
    if listed is None or not tip.is_file(reader, listed):
        return False
    if _are_listed(listing, files):
        return True
    found = reader.store.head(commit_path(known.version))
    return found is not None and tip.is_file(reader, found)


def _are_listed(listing: Listing, files: Mapping[int, bytes]) -> bool:
    """Whether the ETags prove that the commits that were read (``files``: version -> bytes) are the commits that were
    listed."""
    return all(
        version in listing.metas and listing.metas[version].etag == etag_of(data) for version, data in files.items()
    )


def load(
    reader: LogReader,
    listing: Listing,
    version: int | None = None,
    latest: Protocol | None = None,
    identifies: bool = False,
    asks: bool = False,
) -> LogSnapshot:
    """Load a version (None: the latest version) with the help of a listing of the log. If a checkpoint cannot be read,
    an older one is used.

    ``latest``: the protocol of the latest version, if known; if that version is not catalog-managed, all versions can
    be read by path. ``identifies``: record the metadata of the commit file in ``tip``, so that a handle can recognise
    the version later. ``asks``: always send a HEAD, even if a listing contains the file's metadata, because a HEAD may
    return different metadata.

    Raises VersionNotFoundError, MissingVersionError, InvalidCheckpointError and as ``load_latest``; for the latest
    version CorruptTableError if the log is that of another table of a Unity Catalog; with ``identifies``,
    TableReplacedError if the commits read may belong to different tables. Cost: as ``load_latest``
    after the listing; 1 LIST more if the listing does not reach back far enough.
    """
    unusable: tuple[Checkpoint, ...] = ()
    failure: InvalidCheckpointError | None = None
    while True:
        segment = reader.segment(listing, version, unusable, failure)
        meta = _meta_of_tip(reader, listing, segment, asks) if identifies else None  # before the commit is read
        try:
            found = _load_segment(reader, segment, unusable, latest, meta, listing)
            if version is None:  # earlier versions may be older than the table's registration
                reader.authority.check_is_table(found.metadata, reader.store.url)
            return found
        except InvalidCheckpointError as error:
            if segment.checkpoint is None:
                raise
            failure = failure or error
            unusable = (*unusable, segment.checkpoint)


def _meta_of_tip(reader: LogReader, listing: Listing, segment: Segment, asks: bool) -> FileMeta | None:
    """The metadata of the latest version's commit file, if that costs no network request or if ``asks`` is true."""
    store = reader.store
    if _is_managed(reader) or (store.is_remote and not asks):
        return listing.metas.get(segment.version)
    return store.head(commit_path(segment.version))


def _load_segment(
    reader: LogReader,
    segment: Segment,
    unusable: tuple[Checkpoint, ...],
    latest: Protocol | None,
    meta: FileMeta | None,
    listing: Listing,
) -> LogSnapshot:
    by_checksum = reader.checksum_state(segment.version) if segment.has_checksum else None
    if by_checksum is not None:
        state, checksum, ict_ms = by_checksum
        tip = Tip(segment.version, checksum.txn_id, meta)
        cache = FileCache(reader, segment, state, tip, totals=checksum.totals, unusable=unusable, checksum=checksum)
    else:
        listed: list[bool] = []

        def on_commits(versions: Sequence[int], files: Sequence[bytes]) -> None:
            listed.append(_are_listed(listing, dict(zip(versions, files, strict=True))))

        state, commits = reader.replay(segment, on_commits if meta is not None and reader.store.is_remote else None)
        # A segment without commits is usually a single checkpoint file.
        is_as_listed = reader.store.is_remote and all(listed) and not segment.compactions
        if meta is not None and not is_as_listed and not _is_managed(reader):
            _check_is_same(reader, segment, meta)
        infos = (each.commit_info for each in commits.actions if each.version == segment.version)
        txn_id = next((info.txn_id for info in infos if info is not None), None)
        ict_ms, tip = None, Tip(segment.version, txn_id, meta)
        cache = FileCache(reader, segment, state, tip, commits=commits, unusable=unusable)
    if latest is None or features.is_catalog_managed(latest):
        features.check_reached(state.protocol, reader.store.url, reader.authority.catalog)
    else:
        features.check_readable(state.protocol, reader.store.url)
    return LogSnapshot(reader, segment, state, cache, ict_ms)


def _check_is_same(reader: LogReader, segment: Segment, before: FileMeta) -> None:
    """Raise TableReplacedError if the version's commit file changed while the version was read: the files read may then
    belong to another table that replaced this one. Cost: 1 HEAD; none if only one file was read."""
    if segment.checkpoint is None and len(segment.commits) == 1:
        return
    found = reader.store.head(commit_path(segment.version))
    if found is None or not before.may_be(found):
        raise TableReplacedError(
            f"{reader.store.url}: the table was replaced while version {segment.version} was read. Read the new table "
            "instead.",
            version=segment.version,
        )


def _is_managed(reader: LogReader) -> bool:
    """Whether a catalog decides which commits the table has. For such a table, the catalog identifies the table by
    id."""
    return not reader.authority.is_log


class UnreadSnapshot:
    """A version that is known to be in the log but has not been read; ``load`` reads it. ``tip``: identifies the commit
    of the version."""

    def __init__(self, reader: LogReader, version: int, txn_id: str | None = None) -> None:
        self.reader = reader
        self.version = version
        self.tip = Tip(version, txn_id)

    def load(self) -> LogSnapshot:
        """Load the version. Raises as ``loader.load``. Cost: 1 LIST, and as ``loader.load``."""
        return load(self.reader, self.reader.list_from(), self.version)
