"""Decides which files of a table belong to the next batch of a stream, given an offset and limits. Pure.

A stream first reads the live files of one version, unless it is configured to start at a later commit. Then it reads
the files that later commits add, in log order. An offset is the position of the first unread file, so a batch can end
within a version.
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
    """A position in a stream; everything before it has been read. Offsets are equal if their positions are equal.

    ``table_id``: the table id in the metadata. ``index``: the index of the first unread file of ``version``.
    ``is_initial``: whether ``index`` counts the live files of that version rather than the files that its commit added.
    ``begin_version`` and ``begin_is_initial``: the position at which the stream began, which an engine might record
    nowhere else; None if unknown.
    """

    table_id: str
    version: int
    index: int = 0
    is_initial: bool = False
    begin_version: int | None = field(default=None, compare=False)
    begin_is_initial: bool = field(default=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The offset as a JSON object whose keys are always in the same order. Cost: none."""
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
        """Parse the result of ``to_json``. Raises CallError. Cost: none."""
        values = [body.get(name) for name in ("table", "version", "index", "initial", "beginVersion", "beginInitial")]
        begins = type(None) if values[4] is None else int
        kinds = zip(values, (str, int, int, bool, begins, bool), strict=True)
        if body.get("format") != _FORMAT or not all(type(value) is kind for value, kind in kinds):
            raise CallError(
                f"{dict(body)!r} is not an offset of a deltalog stream. The checkpoint of another source, such as "
                "delta-spark's, cannot be continued: start with a new checkpoint and startingVersion."
            )
        return cls(*values)  # type: ignore[arg-type]

    def is_before(self, other: StreamOffset) -> bool:
        """Whether this offset comes before another one, so that there can be files between the two offsets. Cost:
        none."""
        return self._order < other._order

    @property
    def begin(self) -> StreamOffset | None:
        """The offset at which the stream began. Cost: none."""
        if self.begin_version is None:
            return None
        return replace(self, version=self.begin_version, index=0, is_initial=self.begin_is_initial)

    @property
    def _order(self) -> tuple[int, bool, int]:
        return self.version, not self.is_initial, self.index


@dataclass(frozen=True, slots=True)
class StreamRules:
    """How a stream handles deleted or updated rows. By default, a commit that deletes or updates rows is an error.

    ``ignore_deletes``: skip commits that only remove files. ``ignore_changes``: also ignore the remove actions in
    commits that add files; the rows of rewritten files are then read again. ``skip_change_commits``: skip every commit
    that removes files. ``read_change_feed``: read the rows of the change data feed.
    """

    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    read_change_feed: bool = False


def new_files(commit: CommitActions, rules: StreamRules, url: str) -> list[AddFile]:
    """The files that a stream without the change data feed reads from a commit. Raises CallError for a commit that
    removes rows, unless the rules cover it."""
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
            f"{url}: version {commit.version} deletes rows (of {removed}), which a stream of new rows cannot express. "
            "Ignore such commits with ignoreDeletes, or skip all commits that change rows with skipChangeCommits; "
            "readChangeFeed also streams the deleted rows."
        )
    raise CallError(
        f"{url}: version {commit.version} changes rows (it removes {removed} and adds files), which a stream of new "
        "rows "
        "cannot express. Skip such commits with skipChangeCommits, or read the rewritten files again with "
        "ignoreChanges; readChangeFeed streams the changes."
    )


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of one version, in the order in which a stream reads them. ``sizes``: a function that returns the
    sizes, in bytes, of all files from a given index on. ``is_whole``: whether all files must be in the same batch, as
    for the changes of a commit."""

    version: int
    is_initial: bool
    count: int
    sizes: Callable[[int], Iterable[int]]
    is_whole: bool = False


def advance(
    start: StreamOffset, versions: Iterable[VersionFiles], max_files: int | None = None, max_bytes: int | None = None
) -> StreamOffset:
    """The end of the batch that begins at ``start``. ``versions``: an iterator that begins with the version of
    ``start``; only as many versions as needed are taken from it.

    A batch has at most ``max_files`` files and ends once it reaches ``max_bytes``; it has at least one file if there is
    any. If a version has ``is_whole`` set, either all of its files are added or none. Raises CallError for an index
    that the version does not have.
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
    """The offset at which a batch actually began, for an engine that runs the batch again.

    Spark records only the ends of batches. To run the first batch again, Spark asks the stream for its initial offset,
    but by then, the table may have additional versions. Therefore the end offset of the batch also records the offset
    at which the batch originally began. If an engine plans a batch without passing its beginning, the recorded
    beginning may be later than the actual one; such a recorded beginning is ignored.
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
    """The indexes of the files of a version that lie between two offsets. Raises CallError as ``advance``."""
    begin = replace(start, version=version.version, index=0, is_initial=version.is_initial)
    key = (version.version, version.is_initial)
    is_first, is_last = (start.version, start.is_initial) == key, (end.version, end.is_initial) == key
    if end.is_before(begin) or (begin.is_before(start) and not is_first):
        return range(0)
    first = _first(start, version) if is_first else 0
    last = _first(end, version) if is_last else version.count
    return range(first, max(first, last))


def commits_between(start: StreamOffset, end: StreamOffset) -> range:
    """The versions whose commits may have added files between two stream offsets. Raises CallError if ``end`` comes
    first."""
    if end.is_before(start):
        raise CallError(f"The batch ends at {end.to_json()}, before it begins, at {start.to_json()}.")
    first = start.version + start.is_initial
    return range(first, max(first, end.version + (end.index > 0 and not end.is_initial)))
