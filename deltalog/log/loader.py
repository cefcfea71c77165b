"""Loads versions: a listing gives the segment, the segment gives the state."""

from __future__ import annotations

from deltalog.errors import InvalidCheckpointError
from deltalog.log.file_cache import FileCache
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint, Listing, Segment
from deltalog.log.snapshot import LogSnapshot
from deltalog.protocol import features


def load_latest(reader: LogReader) -> LogSnapshot:
    """The latest version. Cost: 1 GET, 1 LIST, then 2 GETs with a sound ``.crc``, else the log's small columns.

    Raises TableNotFoundError, CorruptTableError, UnsupportedFeatureError.
    """
    return load(reader, reader.list_latest())


def load(reader: LogReader, listing: Listing, version: int | None = None) -> LogSnapshot:
    """A version of a listing (None: the latest), falling back to older checkpoints when one cannot be read.

    Raises VersionNotFoundError, MissingVersionError, InvalidCheckpointError and as ``load_latest``.
    """
    unusable: tuple[Checkpoint, ...] = ()
    failure: InvalidCheckpointError | None = None
    while True:
        segment = reader.segment(listing, version, unusable, failure)
        try:
            return _load_segment(reader, segment, unusable)
        except InvalidCheckpointError as error:
            if segment.checkpoint is None:
                raise
            failure = failure or error
            unusable = (*unusable, segment.checkpoint)


def _load_segment(reader: LogReader, segment: Segment, unusable: tuple[Checkpoint, ...]) -> LogSnapshot:
    by_checksum = reader.checksum_state(segment.version) if segment.has_checksum else None
    if by_checksum is not None:
        state, totals, ict_ms = by_checksum
        cache = FileCache(reader, segment, state, totals=totals, unusable=unusable)
    else:
        state, commits = reader.replay(segment)
        cache = FileCache(reader, segment, state, commits=commits, unusable=unusable)
        ict_ms = None
    features.check_reached(state.protocol, reader.store.url, reader.store.catalog)
    return LogSnapshot(reader, segment, state, cache, ict_ms)


class UnreadSnapshot:
    """A version that is known to be in the log, and was not read yet: ``load`` reads it."""

    def __init__(self, reader: LogReader, version: int) -> None:
        self.reader = reader
        self.version = version

    def load(self) -> LogSnapshot:
        """Raises and costs as ``load_latest``."""
        return load(self.reader, self.reader.list_from(), self.version)
