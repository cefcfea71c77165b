"""Reads log files from a store: listings, commits, the heads of commits, checksums; and opens checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from deltalog.errors import (
    InvalidCheckpointError,
    InvalidCommitError,
    MissingInCommitTimestampError,
    MissingVersionError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from deltalog.log.checkpoint.last_checkpoint import read_hint
from deltalog.log.checkpoint.reader import CheckpointReader
from deltalog.log.checksum import VersionChecksum, decode_checksum
from deltalog.log.commit_decoder import decode_commits
from deltalog.log.replay import Commits, PartialState, State, advance
from deltalog.log.segment import Checkpoint, Compaction, Listing, Segment, choose_segment, parse_listing, parse_names
from deltalog.log.table_totals import Totals
from deltalog.protocol import timestamps
from deltalog.protocol.actions import CommitInfo
from deltalog.protocol.codec import CommitActions, decode_commit, first_commit_info
from deltalog.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIRECTORY,
    checksum_path,
    commit_path,
    log_path,
    version_prefix,
)
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles

HEAD_BYTES = 4096
_HEADS_AT_ONCE = 1000


class LogReader:
    """The files of one table's ``_delta_log``, and ``files``, those that they name. Holds no state but the stores.

    ``allowed_paths``: places besides the table where the log may name files; see TableFiles.
    """

    def __init__(self, store: LogStore, allowed_paths: Sequence[str] = ()) -> None:
        self.store = store
        self.files = TableFiles(store, allowed_paths)

    def __reduce__(self) -> tuple[Any, ...]:
        return LogReader, (self.store, self.files.allowed_paths)

    def list_from(self, version: int = 0, *, stat: bool = False) -> Listing:
        """The log from a version on. Cost: 1 LIST."""
        start = version_prefix(version) if version > 0 else ""
        if not stat:
            return parse_names(self.store.list_names(LOG_DIRECTORY, start))
        return parse_listing(self.store.list_from(LOG_DIRECTORY, start))

    def list_latest(self) -> Listing:
        """Enough of the log to build the latest version. Cost: 1 GET of the hint and 1 LIST (2 if it is wrong)."""
        try:
            hint = read_hint(self.store.get(log_path(LAST_CHECKPOINT)))
        except ObjectNotFoundError:
            hint = None
        if hint:
            listing = self.list_from(hint)
            if any(c.version >= hint for c in listing.checkpoints):
                return listing
        return self.list_from()

    def segment(
        self,
        listing: Listing,
        version: int | None = None,
        unusable: Collection[Checkpoint] = (),
        failure: InvalidCheckpointError | None = None,
    ) -> Segment:
        """The segment of a version (None: the latest) without the ``unusable`` checkpoints; where a listing does not
        reach back far enough for it, from the whole log.

        ``failure``: what made the last of those checkpoints unusable, and is raised where no segment does without it.
        Raises TableNotFoundError, VersionNotFoundError, MissingVersionError. Cost: at most 1 LIST.
        """
        reaches_back = listing.commits[:1] == (0,)
        try:
            return choose_segment(listing, self.store.url, version, unusable)
        except (MissingVersionError, VersionNotFoundError) as error:
            if reaches_back:
                raise (failure or error) from None
        try:
            return choose_segment(self.list_from(), self.store.url, version, unusable)
        except (MissingVersionError, VersionNotFoundError) as error:
            raise (failure or error) from None

    def replay(self, segment: Segment) -> tuple[State, Commits]:
        """The state that a segment amounts to, and the commits after its checkpoint. Raises InvalidCheckpointError,
        InvalidCommitError, MissingVersionError, CorruptTableError. Cost: the small columns of the checkpoint, and as
        ``segment_commits``."""
        base = PartialState() if segment.checkpoint is None else self.checkpoint(segment.checkpoint).state()
        commits = self.segment_commits(segment)
        return advance(base, commits.actions).complete(self.store.url, segment.version), commits

    def commit(self, version: int) -> CommitActions:
        """Raises InvalidCommitError, MissingVersionError. Cost: 1 GET."""
        return self.commits([version])[0]

    def commits(self, versions: Sequence[int]) -> list[CommitActions]:
        """The actions of several commits. Cost: 1 GET each, in parallel where the store does that."""
        files = self.commit_files(versions)
        return [decode_commit(data, version) for version, data in zip(versions, files, strict=True)]

    def commit_files(self, versions: Sequence[int], length: int | None = None) -> list[bytes]:
        """The bytes of commits, or their first ``length``. Raises MissingVersionError. Cost: 1 GET each."""
        try:
            return self.store.get_many([commit_path(v) for v in versions], length)
        except ObjectNotFoundError as error:
            raise self._gone(error.path.rsplit("/", 1)[-1]) from error

    def segment_commits(self, segment: Segment) -> Commits:
        """What the commits of a segment amount to. A compaction stands for its commits, as one commit of its last
        version; where it cannot be read, they are read themselves. Cost: 1 GET for each file."""
        found = Commits()
        rest = list(segment.commits)
        for compaction in segment.compactions:
            within = range(compaction.start, compaction.end + 1)
            found += self._in_bulk([v for v in rest if v < compaction.start])
            found += self._compacted(compaction) or self._in_bulk(within)
            rest = [v for v in rest if v > compaction.end]
        return found + self._in_bulk(rest)

    def _in_bulk(self, versions: Sequence[int]) -> Commits:
        return decode_commits(versions, self.commit_files(versions))

    def _compacted(self, compaction: Compaction) -> Commits | None:
        try:
            return Commits([decode_commit(self.store.get(log_path(compaction.name)), compaction.end)])
        except (ObjectNotFoundError, InvalidCommitError):
            return None

    def commit_info(self, version: int) -> CommitInfo | None:
        """The commitInfo of a commit, from its first bytes where it comes first, as it must with ICT.

        Cost: 1 GET of 4 KiB; 1 more of the whole file when commitInfo is longer or not first. Raises
        MissingVersionError.
        """
        return self._info_of(version, self.commit_files([version], HEAD_BYTES)[0])

    def commit_infos(self, versions: Sequence[int]) -> list[CommitInfo | None]:
        """As ``commit_info`` of several commits; None also where a commit is damaged. Cost: 1 GET of 4 KiB each, in
        parallel where the store does that."""
        found: list[CommitInfo | None] = []
        for start in range(0, len(versions), _HEADS_AT_ONCE):
            some = versions[start : start + _HEADS_AT_ONCE]
            for version, head in zip(some, self.commit_files(some, HEAD_BYTES), strict=True):
                try:
                    found.append(self._info_of(version, head))
                except InvalidCommitError:
                    found.append(None)
        return found

    def _info_of(self, version: int, head: bytes) -> CommitInfo | None:
        whole = len(head) < HEAD_BYTES
        info = first_commit_info(head, whole)
        if info is not None:
            return info
        return decode_commit(head if whole else self.commit_files([version])[0], version).commit_info

    def in_commit_timestamp_ms(self, version: int) -> int:
        """Raises MissingInCommitTimestampError when the commit has none. Cost: as ``commit_info``."""
        try:
            info = self.commit_info(version)
        except InvalidCommitError as error:
            raise MissingInCommitTimestampError(
                f"{self.store.url}: the in-commit timestamp of version {version} cannot be read: {error}",
                version=version,
            ) from error
        return timestamps.required_ict(info, version, self.store.url)

    def file_time_ms(self, version: int) -> int | None:
        """The modification time of a commit file, made increasing as readers do; None where no commit file up to the
        version is there. Cost: 1 LIST of the log."""
        metas = self.list_from(stat=True).metas
        times = [metas[v].modification_time_ms or 0 for v in sorted(metas) if v <= version]
        return timestamps.monotonised(times)[-1] if times else None

    def checksum(self, version: int) -> VersionChecksum | None:
        """The ``.crc`` of a version, or None when there is none that can be read. Cost: 1 GET."""
        try:
            return decode_checksum(self.store.get(checksum_path(version)))
        except ObjectNotFoundError:
            return None

    def checksum_state(self, version: int) -> tuple[State, Totals, int | None] | None:
        """The state, the totals and the in-commit timestamp of a version by its ``.crc``. None without one that can be
        read, holds the whole state, and is that of this very commit. Cost: 2 GETs, of the ``.crc`` and of 4 KiB."""
        checksum = self.checksum(version)
        state = None if checksum is None else checksum.state()
        if checksum is None or state is None:
            return None
        info = self.commit_info(version)
        if info is None or not checksum.matches(info):
            return None
        return state, checksum.totals, info.in_commit_timestamp_ms

    def checkpoint(self, checkpoint: Checkpoint) -> CheckpointReader:
        """A reader of one of the log's checkpoints. Cost: none."""
        return CheckpointReader(self.store, self.files, checkpoint)

    def _gone(self, name: str) -> MissingVersionError:
        return MissingVersionError(
            f"{self.store.url}: commit {name} was listed and is gone. "
            "Log clean-up may be running: open the table again.",
            version=int(name[:20]),
        )
