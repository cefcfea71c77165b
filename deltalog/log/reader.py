"""Reads log files from a store: lists the log, reads commits (completely, or only their first bytes) and checksums, and
opens checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from deltalog.environment import Environment
from deltalog.errors import (
    InvalidCheckpointError,
    InvalidCommitError,
    MissingInCommitTimestampError,
    MissingVersionError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from deltalog.lazy_names import lazy_modules
from deltalog.log.authority import LOG, Authority
from deltalog.log.checkpoint.last_checkpoint import read_hint
from deltalog.log.replay import Commits, PartialState, State, advance
from deltalog.log.segment import Checkpoint, Compaction, Listing, Segment, choose_segment, parse_listing, parse_names
from deltalog.parallel import both, mapped
from deltalog.protocol import timestamps
from deltalog.protocol.actions import CommitInfo
from deltalog.protocol.codec import CommitActions, decode_commit, first_commit_info, first_commit_infos
from deltalog.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIRECTORY,
    LogFileKind,
    checkpoint_name,
    checkpoint_path,
    checksum_path,
    commit_name,
    commit_path,
    log_path,
    parse_log_file,
    version_prefix,
)
from deltalog.storage.base import FileMeta, LogStore, get_or_none
from deltalog.storage.remote import LIST_PAGE, PARALLEL_GETS, parallel_gets
from deltalog.storage.table_files import TableFiles

if TYPE_CHECKING:
    from deltalog.log import checksum as checksums
    from deltalog.log import commit_decoder
    from deltalog.log.checkpoint import reader as checkpoint_reader
else:
    lazy_modules(
        __name__,
        "deltalog.log.commit_decoder",
        checkpoint_reader="deltalog.log.checkpoint.reader",
        checksums="deltalog.log.checksum",
    )

HEAD_BYTES = 4096
# A number of versions that certainly fit into one page of a listing, with their commits, checksums and some
# checkpoints.
_VERSIONS_IN_PAGE = 450
# If a log has fewer versions than this, listing the directory is faster than probing single names.
_SHORT = 1_000
# The number of versions to look back for a checkpoint before listing the whole log.
_FAR = 24 * _VERSIONS_IN_PAGE
_HEADS_AT_ONCE = 1000
# The maximum number of commits whose bytes are in memory at the same time.
_COMMITS_AT_ONCE = 8192

# A callback that receives versions and the bytes of the commit files of these versions.
OnCommits = Callable[[Sequence[int], Sequence[bytes]], None]


class LogReader:
    """Reads the log of one table. A table handle has one reader, which its snapshots and transactions share.

    ``files``: gives access to the files that the log names. ``allowed_paths``: locations outside the table in which the
    log may name files; see TableFiles. ``clock_ms``: the clock for CURRENT_TIMESTAMP in conditions on the table's rows.
    ``authority``: decides which commits belong to the table; ``store`` returns exactly these commits.
    ``last_cleanup_ms``: the midnight before the last log clean-up that a commit through this reader started, in
    milliseconds since 1970; None before the first clean-up.
    """

    def __init__(
        self,
        store: LogStore,
        allowed_paths: Sequence[str] = (),
        clock_ms: Callable[[], int] | None = None,
        authority: Authority = LOG,
    ) -> None:
        self.store = store
        self.files = TableFiles(store, allowed_paths)
        self.clock_ms = Environment().clock_ms if clock_ms is None else clock_ms
        self.authority = authority
        self.last_cleanup_ms: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return LogReader, (self.store, self.files.allowed_paths, None, self.authority)

    def list_from(self, version: int = 0, *, stat: bool = False) -> Listing:
        """List the log from a version on. ``stat``: whether to include the sizes and times of commit files. Cost: 1
        LIST per 1,000 names; a store that lists in pages runs them concurrently after the first ones, with up to half
        as many more."""
        if self.store.lists_in_pages:
            return _listing(self._list_parts(version, None, stat), stat)
        start = version_prefix(version) if version > 0 else ""
        if not stat:
            return parse_names(self.store.list_names(LOG_DIRECTORY, start))
        return parse_listing(self.store.list_from(LOG_DIRECTORY, start))

    def list_range(self, first: int, last: int, *, stat: bool = False) -> Listing:
        """List the log from ``first`` on, at least up to ``last``, which must be a version that exists. ``stat``: as
        for ``list_from``. Cost: on a store that lists in pages, 1 LIST of the first names, then 1 per 450 versions, in
        rounds of 32; else 1 LIST."""
        if self.store.lists_in_pages:
            return _listing(self._list_parts(first, last, stat), stat)
        return self.list_from(first, stat=stat)

    def list_after(self, version: int, limit: int, interval: int) -> Listing:
        """List the log after a version, with sizes and times of commits. On a remote store, the listing also includes
        ``version`` itself. ``interval``: the usual number of versions between checkpoints. Cost: 1 LIST; on a local
        disk 1 HEAD for each of the next commits, for one more, and for each expected checkpoint, up to ``limit``
        commits."""
        if self.store.is_remote:
            return self.list_from(version, stat=True)
        metas: dict[int, FileMeta] = {}
        checkpoints: list[Checkpoint] = []
        while len(metas) <= limit and (meta := self.store.head(commit_path(version + 1))) is not None:
            version += 1
            metas[version] = meta
            if version % interval == 0 and self.store.head(checkpoint_path(version)) is not None:
                checkpoints.append(_classic(version))
        return Listing(tuple(metas), tuple(checkpoints), frozenset(), metas=metas)

    def list_before(self, version: int, interval: int) -> Listing | None:
        """The part of the log from the last checkpoint before a version (or version 0) up to that version; None if no
        checkpoint is found nearby. ``interval``: the usual number of versions between checkpoints.

        Cost: on a store that lists in pages, 1 LIST per 450 versions, in one round, or two if the last checkpoint is
        not where it is expected. On a local disk there is no LIST, but 1 HEAD for each file, because part of a
        directory cannot be listed. On other stores there is no request, and the result is None.
        """
        since = version % interval
        if not self.store.lists_in_pages:
            is_probed = version >= _SHORT and not self.store.is_remote
            return self._probe_before(version, [version - since, version - since - interval]) if is_probed else None
        first = max(0, version - max(min(since, _FAR), _VERSIONS_IN_PAGE - 1))
        listing = self._list_between(first, version)
        if first > 0 and not listing.checkpoints:
            listing = self._list_between(max(0, first - _FAR), version)
        return listing if listing.checkpoints or listing.commits[:1] == (0,) else None

    def list_first(self) -> Listing:
        """The first page of the log's listing. Cost: 1 LIST."""
        names = self.store.list_names(LOG_DIRECTORY, version_prefix(0), limit=LIST_PAGE)
        return parse_names(names)

    def _list_between(self, first: int, last: int) -> Listing:
        parts = mapped(range(first, last + 1, _VERSIONS_IN_PAGE), partial(self._list_part, False), PARALLEL_GETS, 0)
        end = version_prefix(last + 1)
        return _listing(meta for found, _ in parts for meta in found if meta.name < end)

    def _list_parts(self, first: int, last: int | None, stat: bool) -> list[FileMeta]:
        """The log files of the versions ``first`` to ``last`` (None: all later versions), listed in concurrent parts.
        If ``last`` is unknown, each round lists half as many parts as all earlier rounds together."""
        metas = self.store.list_from(LOG_DIRECTORY, version_prefix(first), stat=stat, limit=LIST_PAGE)
        if len(metas) < LIST_PAGE:
            return metas
        start = _listing(metas).last
        if start is None:  # the page of the listing contains only files of other kinds
            return self.store.list_from(LOG_DIRECTORY, version_prefix(first), stat=stat)
        metas = [meta for meta in metas if meta.name < version_prefix(start)]
        done = 1
        while start is not None and (last is None or start <= last):
            left = done // 2 if last is None else (last - start) // _VERSIONS_IN_PAGE + 1
            starts = [start + number * _VERSIONS_IN_PAGE for number in range(min(max(1, left), PARALLEL_GETS))]
            parts = list(mapped(starts, partial(self._list_part, stat), PARALLEL_GETS, 0))
            metas += [meta for found, _ in parts for meta in found]
            start = parts[-1][1]
            done += len(parts)
        return metas

    def _list_part(self, stat: bool, start: int) -> tuple[list[FileMeta], int | None]:
        """The log files of _VERSIONS_IN_PAGE versions, and the number of the next version in the log, which may follow
        after a gap; None if there is no later version."""
        end = version_prefix(start + _VERSIONS_IN_PAGE)
        found: list[FileMeta] = []
        name = version_prefix(start)
        while True:
            page = self.store.list_from(LOG_DIRECTORY, name, stat=stat, limit=LIST_PAGE)
            found += [meta for meta in page if meta.name < end]
            later = next(
                (file.version for meta in page if meta.name >= end and (file := parse_log_file(meta.name))), None
            )
            if later is not None or len(page) < LIST_PAGE:
                return found, later
            name = page[-1].name + "\0"  # the next possible name

    def _probe_before(self, version: int, starts: Sequence[int]) -> Listing | None:
        """Like ``list_before``, but by probing single names. ``starts``: the versions that may have a checkpoint, in
        descending order. Returns None if none of these versions has a checkpoint: the table's checkpoint interval then
        differs from the expected one, and listing the directory is faster than probing all commits since version 0."""

        def exists(path: str) -> bool:
            return self.store.head(path) is not None

        for start in starts:
            if start <= 0 or version - start > _FAR:
                return None
            if exists(checkpoint_path(start)):
                commits = tuple(each for each in range(start, version + 1) if exists(commit_path(each)))
                checksums = [version] if exists(checksum_path(version)) else []
                return Listing(commits, (_classic(start),), frozenset(checksums))
        return None

    def list_latest(self) -> Listing:
        """List the log, beginning at the checkpoint that the hint names; list the whole log if the hint is missing or
        wrong. On a remote store, the listing includes the sizes and times of commits. Cost: 1 GET of the hint and 1
        LIST (2 if the hint is wrong)."""
        stat = self.store.is_remote  # a remote listing includes sizes and times at no extra cost
        try:
            hint = read_hint(self.store.get(log_path(LAST_CHECKPOINT)))
        except ObjectNotFoundError:
            hint = None
        if hint:
            listing = self.list_from(hint, stat=stat)
            if any(c.version >= hint for c in listing.checkpoints):
                return listing
        return self.list_from(stat=stat)

    def segment(
        self,
        listing: Listing,
        version: int | None = None,
        unusable: Collection[Checkpoint] = (),
        failure: InvalidCheckpointError | None = None,
    ) -> Segment:
        """The log segment of a version (None: the latest), ignoring the ``unusable`` checkpoints. Lists the whole log
        if ``listing`` does not reach back far enough.

        ``failure``: the error that made a checkpoint unusable; raised if the version cannot be rebuilt without that
        checkpoint. Raises TableNotFoundError, VersionNotFoundError, MissingVersionError. Cost: at most 1 LIST.
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

    def replay(self, segment: Segment, on_commits: OnCommits | None = None) -> tuple[State, Commits]:
        """The state of the table at the segment's version, and the commits after the segment's checkpoint.
        ``on_commits``: see ``segment_commits``. Raises InvalidCheckpointError, InvalidCommitError, MissingVersionError,
        CorruptTableError. Cost: the small columns of the checkpoint and as ``segment_commits``, concurrently on a
        remote store."""
        read_commits = partial(self.segment_commits, segment, on_commits)
        if segment.checkpoint is None:
            base, commits = PartialState(), read_commits()
        else:
            base, commits = both(self.checkpoint(segment.checkpoint).state, read_commits, self.store.is_remote)
        return advance(base, commits.actions).complete(self.store.url, segment.version), commits

    def commit(self, version: int) -> CommitActions:
        """The actions of a commit. Raises InvalidCommitError, MissingVersionError. Cost: 1 GET."""
        return self.commits([version])[0]

    def commits(self, versions: Sequence[int]) -> list[CommitActions]:
        """The actions of several commits. Raises as ``commit``. Cost: 1 GET each, concurrently if the store supports
        it."""
        files = self.commit_files(versions)
        return [decode_commit(data, version) for version, data in zip(versions, files, strict=True)]

    def commit_files(self, versions: Sequence[int], length: int | None = None) -> list[bytes]:
        """The bytes of commits; if ``length`` is set, at most this many bytes of each commit. Raises
        MissingVersionError. Cost: 1 GET each."""
        try:
            return self.store.get_many([commit_path(v) for v in versions], length)
        except ObjectNotFoundError as error:
            raise self._missing_commit(error.path.rsplit("/", 1)[-1]) from error

    def segment_commits(self, segment: Segment, on_commits: OnCommits | None = None) -> Commits:
        """The commits of a segment. A compaction file is read as if it were one commit with its last version, in place
        of the commits that it covers; if it cannot be read, those commits are read. ``on_commits``: called with the
        versions and bytes of commits when they are read. Raises InvalidCommitError, MissingVersionError. Cost: 1 GET
        for each file."""
        commits = Commits()
        rest = list(segment.commits)
        for compaction in segment.compactions:
            within = range(compaction.start, compaction.end + 1)
            commits += self._decoded([v for v in rest if v < compaction.start], on_commits)
            commits += self._compacted(compaction) or self._decoded(within, on_commits)
            rest = [v for v in rest if v > compaction.end]
        return commits + self._decoded(rest, on_commits)

    def _decoded(self, versions: Sequence[int], on_commits: OnCommits | None) -> Commits:
        commits = Commits()
        for start in range(0, len(versions), _COMMITS_AT_ONCE):
            some = versions[start : start + _COMMITS_AT_ONCE]
            files = self.commit_files(some)
            if on_commits is not None:
                on_commits(some, files)
            commits += commit_decoder.decode_commits(some, files)
        return commits

    def _compacted(self, compaction: Compaction) -> Commits | None:
        try:
            return Commits([decode_commit(self.store.get(log_path(compaction.name)), compaction.end)])
        except (ObjectNotFoundError, InvalidCommitError):
            return None

    def commit_info(self, version: int) -> CommitInfo | None:
        """The commitInfo of a commit; None if it has none. The first bytes of the file are enough if commitInfo is the
        first action, as in-commit timestamps require.

        Raises InvalidCommitError, MissingVersionError. Cost: 1 GET of 4 KiB; 1 more of the whole file if commitInfo is
        longer or not first.
        """
        return self._info_of(version, self.commit_files([version], HEAD_BYTES)[0])

    def commit_infos(self, versions: Sequence[int]) -> list[CommitInfo | None]:
        """Like ``commit_info``, for several commits; a damaged commit also yields None. Raises MissingVersionError.
        Cost: 1 GET of 4 KiB each, concurrently if the store supports it."""
        infos: list[CommitInfo | None] = []
        for some in _in_parts(versions):
            infos += self._infos_of(some, self.commit_files(some, HEAD_BYTES))
        return infos

    def commit_infos_with_meta(self, versions: Sequence[int]) -> tuple[list[CommitInfo | None], list[FileMeta]]:
        """Like ``commit_infos``, but also returns the sizes and modification times of the commit files. Cost: 1 GET of
        4 KiB and 1 HEAD each, one after the other."""
        infos: list[CommitInfo | None] = []
        metas: list[FileMeta] = []
        for some in _in_parts(versions):
            try:
                found = self.store.get_many_with_meta([commit_path(v) for v in some], HEAD_BYTES)
            except ObjectNotFoundError as error:
                raise self._missing_commit(error.path.rsplit("/", 1)[-1]) from error
            infos += self._infos_of(some, [head for head, _ in found])
            metas += [meta for _, meta in found]
        return infos, metas

    def _infos_of(self, versions: Sequence[int], heads: Sequence[bytes]) -> Iterator[CommitInfo | None]:
        for version, head, info in zip(versions, heads, first_commit_infos(heads, HEAD_BYTES), strict=True):
            try:
                yield info or self._info_of(version, head)
            except InvalidCommitError:
                yield None

    def _info_of(self, version: int, head: bytes) -> CommitInfo | None:
        whole = len(head) < HEAD_BYTES
        info = first_commit_info(head, whole)
        if info is not None:
            return info
        return decode_commit(head if whole else self.commit_files([version])[0], version).commit_info

    def in_commit_timestamp_ms(self, version: int) -> int:
        """The in-commit timestamp of a commit, in milliseconds since 1970. Raises MissingInCommitTimestampError if it
        has none, and MissingVersionError. Cost: as ``commit_info``."""
        try:
            info = self.commit_info(version)
        except InvalidCommitError as error:
            raise MissingInCommitTimestampError(
                f"{self.store.url}: the in-commit timestamp of version {version} cannot be read: {error}",
                version=version,
            ) from error
        return timestamps.required_ict(info, version, self.store.url)

    def file_time_ms(self, version: int) -> int | None:
        """The monotonised modification time of the commit file of ``version`` (or, if that file is gone, of the last
        commit file before it), in milliseconds since 1970; None if the log has no commit up to the version. Cost: 1
        LIST of the log."""
        metas = self.list_from(stat=True).metas
        times = [metas[v].modification_time_ms or 0 for v in sorted(metas) if v <= version]
        return timestamps.monotonised(times)[-1] if times else None

    def heads(self, paths: Sequence[str]) -> Iterable[FileMeta | None]:
        """The sizes and modification times of files; None for files that do not exist. Cost: 1 HEAD each, in one round
        on a remote store."""
        if not self.store.is_remote:
            return self.store.head_many(paths)
        return mapped(paths, self.store.head, parallel_gets(self.store), 0)

    def in_commit_timestamps(self, versions: Sequence[int]) -> dict[int, int | None]:
        """The in-commit timestamps of commits, by version, in milliseconds since 1970; None for a commit that does not
        exist. Raises MissingInCommitTimestampError. Cost: as ``commit_info`` for each, concurrently on a remote
        store."""

        def read(version: int) -> int | None:
            try:
                return self.in_commit_timestamp_ms(version)
            except MissingVersionError:
                return None

        return dict(zip(versions, mapped(versions, read, parallel_gets(self.store), 0), strict=True))

    def checksum(self, version: int) -> checksums.VersionChecksum | None:
        """The ``.crc`` of a version; None if it is missing or cannot be decoded. Cost: 1 GET."""
        data = get_or_none(self.store, checksum_path(version))
        return None if data is None else checksums.decode_checksum(data)

    def checksum_state(self, version: int) -> tuple[State, checksums.VersionChecksum, int | None] | None:
        """The state of a version from its ``.crc``, with the checksum itself and the in-commit timestamp of the
        version's commit (milliseconds). None if the checksum cannot be read, lacks part of the state, or belongs to
        another commit. Raises InvalidCommitError, MissingVersionError. Cost: 2 GETs in one round, of the ``.crc`` and
        of 4 KiB of the commit."""
        commit = partial(get_or_none, self.store, commit_path(version), HEAD_BYTES)
        checksum, head = both(partial(self.checksum, version), commit, self.store.is_remote)
        state = None if checksum is None else checksum.state()
        if checksum is None or state is None:
            return None
        if head is None:
            raise self._missing_commit(commit_name(version))
        info = self._info_of(version, head)
        if info is None or not checksum.matches(info):
            return None
        return state, checksum, info.in_commit_timestamp_ms

    def checkpoint(self, checkpoint: Checkpoint, checks_number: bool = True) -> checkpoint_reader.CheckpointReader:
        """A reader for one of the log's checkpoints. ``checks_number``: see CheckpointReader. Cost: none."""
        return checkpoint_reader.CheckpointReader(self.store, self.files, checkpoint, checks_number)

    def _missing_commit(self, name: str) -> MissingVersionError:
        return MissingVersionError(
            f"{self.store.url}: commit {name} was listed but no longer exists. "
            "Log clean-up may be running: open the table again.",
            version=int(name[:20]),
        )


def _in_parts(versions: Sequence[int]) -> Iterator[Sequence[int]]:
    return (versions[start : start + _HEADS_AT_ONCE] for start in range(0, len(versions), _HEADS_AT_ONCE))


def _classic(version: int) -> Checkpoint:
    return Checkpoint(version, LogFileKind.CLASSIC_CHECKPOINT, (checkpoint_name(version),))


def _listing(metas: Iterable[FileMeta], stat: bool = False) -> Listing:
    return parse_listing(metas) if stat else parse_names([meta.name for meta in metas])
