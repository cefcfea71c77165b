"""Which files of a table belong to the next batch of a stream, by offset and limits. Pure.

A stream reads the files of one version first, or begins with a version, and then those that later commits add, in the
order of the log. An offset is the position of the first file that was not read yet, so that it can split a version.

Spec: PROTOCOL.md#add-file-and-remove-file (dataChange).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltalog.arguments import checked
from deltalog.errors import CallError
from deltalog.protocol.actions import AddFile
from deltalog.protocol.codec import CommitActions

_FORMAT = 1


@checked
@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position in a stream: everything before it was read. Equal where these positions are.

    ``table_id``: the id in the metadata of the table. ``index``: of the first file of ``version`` that was not read.
    ``is_initial``: among the live files of that version, else among those that its commit added. ``begin_version`` and
    ``begin_is_initial``: where the stream began, of which an engine may keep no other record; None: not known.
    """

    table_id: str
    version: int
    index: int = 0
    is_initial: bool = False
    begin_version: int | None = field(default=None, compare=False)
    begin_is_initial: bool = field(default=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """As values of JSON, always in the same order. Cost: none."""
        return {
            "format": _FORMAT,
            "table": self.table_id,
            "version": self.version,
            "index": self.index,
            "initial": self.is_initial,
            "beginVersion": self.begin_version,
            "beginInitial": self.begin_is_initial,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> StreamOffset:
        """What ``to_json`` gave. Raises CallError. Cost: none."""
        values = [body.get(name) for name in ("table", "version", "index", "initial", "beginVersion", "beginInitial")]
        begins = type(None) if values[4] is None else int
        kinds = zip(values, (str, int, int, bool, begins, bool), strict=True)
        if body.get("format") != _FORMAT or not all(type(value) is kind for value, kind in kinds):
            raise CallError(
                f"{dict(body)!r} is not an offset of a stream of deltalog. The checkpoint of another source, such as "
                "delta-spark's, cannot be continued: begin with a new one and startingVersion."
            )
        return cls(*values)  # type: ignore[arg-type]

    def is_before(self, other: StreamOffset) -> bool:
        """Whether files may lie between this and a later offset. Cost: none."""
        return self._order < other._order

    @property
    def begin(self) -> StreamOffset | None:
        """Where the stream began. Cost: none."""
        if self.begin_version is None:
            return None
        return replace(self, version=self.begin_version, index=0, is_initial=self.begin_is_initial)

    @property
    def _order(self) -> tuple[int, bool, int]:
        return self.version, not self.is_initial, self.index


@dataclass(frozen=True, slots=True)
class StreamRules:
    """What a stream does where rows are deleted or updated. By default such commits are an error.

    ``ignore_deletes``: commits that only remove files have no rows for the stream. ``ignore_changes``: nor do removes
    in other commits; files that were rewritten are read again. ``skip_change_commits``: commits that remove
    files are left out whole. ``read_change_feed``: the stream has the rows of the change data feed.
    """

    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    read_change_feed: bool = False


def new_files(commit: CommitActions, rules: StreamRules, url: str) -> list[AddFile]:
    """The files that a stream without change data feed reads of a commit. Raises CallError for a commit that removes
    rows, unless the rules say what becomes of it."""
    adds = [add for add in commit.adds if add.data_change]
    removed = next((remove.path for remove in commit.removes if remove.data_change), None)
    if removed is None or rules.ignore_changes:
        return adds
    if rules.skip_change_commits:
        return []
    if not adds:
        if rules.ignore_deletes:
            return []
        raise CallError(
            f"{url}: version {commit.version} deletes rows (of {removed}), and a stream of new rows cannot say that. "
            "Ignore such commits with ignoreDeletes, or skip all that change rows with skipChangeCommits; "
            "readChangeFeed streams the deleted rows too."
        )
    raise CallError(
        f"{url}: version {commit.version} changes rows (it removes {removed} and adds files), and a stream of new rows "
        "cannot say that. Skip such commits with skipChangeCommits, or read the rewritten files again with "
        "ignoreChanges; readChangeFeed streams the changes."
    )


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of one version in the order of the stream. ``sizes``: those in bytes from an index on. ``is_whole``:
    they belong to one batch, as the changes of a commit do."""

    version: int
    is_initial: bool
    count: int
    sizes: Callable[[int], Iterable[int]]
    is_whole: bool = False


def advance(
    start: StreamOffset, versions: Iterable[VersionFiles], max_files: int | None = None, max_bytes: int | None = None
) -> StreamOffset:
    """The end of the batch that begins at ``start``. ``versions`` begin with that of ``start``, and no more of them are
    taken than needed.

    A batch has at most ``max_files`` files, and takes files until it has ``max_bytes``; so it has at least one where
    there are any. The files of a version that ``is_whole`` count as one step. Raises CallError for an index that the
    version does not have.
    """
    files, size_bytes, at = 0, 0, start
    for version in versions:
        first = _first(at, version)
        step = [version.sizes(first)] if version.is_whole else ([each] for each in version.sizes(first))
        for number, sizes in enumerate(step if first < version.count else ()):
            if files and (_reached(files, max_files) or _reached(size_bytes, max_bytes)):
                return replace(start, version=version.version, index=first + number, is_initial=version.is_initial)
            taken = list(sizes)
            files += len(taken)
            size_bytes += sum(taken)
        at = replace(start, version=version.version + 1, index=0, is_initial=False)
    return at


def resumed(start: StreamOffset, end: StreamOffset) -> StreamOffset:
    """Where a batch begins that an engine repeats.

    Spark records where batches end, and asks the stream again where the first one began; the table may have other
    versions by then. The end of the batch says it. Where engines do not say where a batch begins when it is planned,
    its end may also name a later beginning, which is not that of this stream.
    """
    begin = end.begin
    is_first_batch = start.begin is not None and start == start.begin
    return begin if begin is not None and is_first_batch and begin.is_before(start) else start


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit


def _first(at: StreamOffset, version: VersionFiles) -> int:
    if (at.version, at.is_initial) != (version.version, version.is_initial):
        return 0
    if at.index > version.count:
        raise CallError(
            f"The offset names file {at.index} of version {version.version}, which has {version.count}: it belongs to "
            "a stream with other options, or to another table."
        )
    return at.index


def selected(start: StreamOffset, end: StreamOffset, version: VersionFiles) -> range:
    """The indexes of the files of a version between two offsets. Raises CallError as ``advance``."""
    begin = replace(start, version=version.version, index=0, is_initial=version.is_initial)
    key = (version.version, version.is_initial)
    is_first, is_last = (start.version, start.is_initial) == key, (end.version, end.is_initial) == key
    if end.is_before(begin) or (begin.is_before(start) and not is_first):
        return range(0)
    first = _first(start, version) if is_first else 0
    last = _first(end, version) if is_last else version.count
    return range(first, max(first, last))


def commits_between(start: StreamOffset, end: StreamOffset) -> range:
    """The versions whose commits have files between two offsets. Raises CallError where ``end`` comes first."""
    if end.is_before(start):
        raise CallError(f"The batch ends at {end.to_json()}, before it begins, at {start.to_json()}.")
    first = start.version + start.is_initial
    return range(first, max(first, end.version + (end.index > 0 and not end.is_initial)))
