"""Loads versions: chooses the log segment from a listing, and the state from the ``.crc`` or by replay."""

from __future__ import annotations

from deltalog.errors import InvalidCheckpointError
from deltalog.log.file_cache import FileCache
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint, Listing, Segment
from deltalog.log.snapshot import LogSnapshot
from deltalog.protocol import features


def load_latest(reader: LogReader) -> LogSnapshot:
    """The latest version.

    Raises TableNotFoundError, CorruptTableError, UnsupportedFeatureError. Cost: 1 GET, 1 LIST, then 2 GETs with a
    usable ``.crc``, else the small columns of the checkpoint and 1 GET for each commit after it.
    """
    return load(reader, reader.list_latest())


def load(reader: LogReader, listing: Listing, version: int | None = None) -> LogSnapshot:
    """A version of a listing (None: the latest), from an older checkpoint where one cannot be read.

    Raises VersionNotFoundError, MissingVersionError, InvalidCheckpointError and as ``load_latest``. Cost: as
    ``load_latest`` after the listing; 1 LIST more where the listing does not reach back far enough.
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
    """A version that is known to be in the log and has not been read; ``load`` reads it."""

    def __init__(self, reader: LogReader, version: int) -> None:
        self.reader = reader
        self.version = version

    def load(self) -> LogSnapshot:
        """The version. Raises as ``loader.load``. Cost: 1 LIST, and as ``loader.load``."""
        return load(self.reader, self.reader.list_from(), self.version)
