"""Checks the file names in a log for missing and unexpected files. Pure.

Spec: PROTOCOL.md#delta-log-entries, #checkpoints, #log-compaction-files.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deltalog.doctor.findings import Finding, found
from deltalog.log.segment import Checkpoint, Listing, parse_listing
from deltalog.protocol.paths import (
    LAST_CHECKPOINT,
    LogFile,
    LogFileKind,
    checksum_path,
    commit_name,
    log_path,
    parse_log_file,
)
from deltalog.storage.base import FileMeta

_COMMIT_LIKE = re.compile(r"[0-9]+\.json", re.I)
_CHECKPOINT_LIKE = re.compile(r"[0-9]+\.checkpoint\b.*", re.I)
_COMPACTION_LIKE = re.compile(r"[0-9]+\.[0-9]+\.compacted\b.*", re.I)
_STAGED = re.compile(r"([0-9]{20})\.[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\.json")
_TEMPORARY = re.compile(r"\..*|_.*|.*(?:tmp|temp|\$folder\$|_started|_committed|\.crc|\.bak)", re.I)


# The number of file names in one message.
_NAMES = 5


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a log. ``listing``: the listing in the parsed form in which it is used to read the log. ``metas``:
    all files by name. ``incomplete``: multi-part checkpoints that lack parts, as (version, number of parts, names).
    ``strays``: file names in the log directory that no log file can have."""

    listing: Listing
    metas: Mapping[str, FileMeta]
    incomplete: Sequence[tuple[int, int, tuple[str, ...]]] = ()
    compactions: Sequence[LogFile] = ()
    strays: Sequence[str] = field(default=())

    @property
    def latest(self) -> int | None:
        """The version of the last commit, or of the last checkpoint if there is no commit."""
        return self.listing.last


def log_files(metas: Iterable[FileMeta]) -> LogFiles:
    """Group the files of ``_delta_log`` by kind."""
    by_name = {meta.name: meta for meta in metas}
    parts: dict[tuple[int, int], list[str]] = {}
    compactions, strays = [], []
    for name in by_name:
        parsed = parse_log_file(name)
        if parsed is None:
            if name != LAST_CHECKPOINT:
                strays.append(name)
        elif parsed.kind is LogFileKind.MULTI_PART_CHECKPOINT:
            parts.setdefault((parsed.version, parsed.parts or 1), []).append(name)
        elif parsed.kind is LogFileKind.COMPACTION:
            compactions.append(parsed)
    incomplete = [(version, of, tuple(sorted(names))) for (version, of), names in parts.items() if len(names) < of]
    return LogFiles(parse_listing(by_name.values()), by_name, incomplete, compactions, strays)


def examine_names(files: LogFiles) -> Iterator[Finding]:
    """Report file names that are not defined by the protocol, or that contradict other file names."""
    for name in files.strays:
        path = log_path(name)
        if _COMMIT_LIKE.fullmatch(name):
            yield found("commit-name-malformed", f"The version of {name} does not have 20 digits.", None, path)
        elif _CHECKPOINT_LIKE.fullmatch(name):
            yield found("checkpoint-name-malformed", f"{name} is not a valid checkpoint name.", None, path)
        elif _COMPACTION_LIKE.fullmatch(name):
            yield found(
                "compaction-range-invalid", f"{name} is not a valid name for a log compaction file.", None, path
            )
        elif not _TEMPORARY.fullmatch(name):
            yield found("log-file-unknown", f"{name} is not a name that the protocol defines.", None, path)
    for version, of, names in files.incomplete:
        text = f"Only {len(names)} of {of} parts exist."
        yield found("multi-part-checkpoint-incomplete", text, version, log_path(names[0]))
    for each in files.compactions:
        path = log_path(each.name)
        if each.end_version is None or each.end_version <= each.version:
            yield found("compaction-range-invalid", f"The file ends at version {each.end_version}.", each.version, path)
        elif files.latest is not None and each.end_version > files.latest:
            text = f"The file ends at version {each.end_version}; the latest version is {files.latest}."
            yield found("compaction-after-latest", text, each.version, path)


def examine_segment(files: LogFiles, unusable: Iterable[Checkpoint] = ()) -> Iterator[Finding]:
    """Report missing commits and checkpoints. ``unusable``: the unreadable checkpoints."""
    listing, refused = files.listing, set(unusable)
    commits = listing.commits
    usable = [each for each in listing.checkpoints if each not in refused]
    if not commits and not listing.checkpoints:
        yield found("log-missing", "_delta_log has no commit and no checkpoint.")
        return
    last = max(commits[-1:] or (-1,))
    newest = max((each.version for each in usable if each.version <= max(last, 0) or not commits), default=None)
    for each in listing.checkpoints:
        path = log_path(each.names[0])
        if each.version > last:
            yield found("checkpoint-after-latest", f"The last commit is version {last}.", each.version, path)
        elif not _has(commits, each.version):
            text = f"{commit_name(each.version)} is missing, so the timestamp of version {each.version} is unknown."
            yield found("checkpoint-without-commit", text, each.version, path)
    yield from _gaps(commits, usable, newest)


def _has(commits: Sequence[int], version: int) -> bool:
    at = bisect.bisect_left(commits, version)
    return commits[at : at + 1] == (version,)


def _gaps(commits: Sequence[int], usable: Sequence[Checkpoint], newest: int | None) -> Iterator[Finding]:
    if not commits:
        return
    first = commits[0]
    if first > 0 and not any(each.version >= first - 1 for each in usable):
        text = f"The first commit is version {first}."
        yield found("log-start-missing", text, first, log_path(commit_name(first)))
    elif first > 0 and usable and usable[0].version > first:
        text = f"Versions {first} to {usable[0].version - 1} come before the first checkpoint, {usable[0].version}."
        yield found("cleanup-without-checkpoint", text, first, log_path(commit_name(first)))
    elif first > 0:
        text = f"The first version is {first}."
        yield found("log-begins-later", text, first, log_path(commit_name(first)))
    for before, after in itertools.pairwise(commits):
        if after == before + 1:
            continue
        missing = f"{before + 1}" if after == before + 2 else f"{before + 1} to {after - 1}"
        path = log_path(commit_name(before + 1))
        if newest is None or newest < after - 1:
            yield found("version-gap", f"The commits of version {missing} are missing.", before + 1, path)
        else:
            text = f"The commits of version {missing} are missing; the checkpoint of version {newest} covers them."
            yield found("version-gap-below-checkpoint", text, before + 1, path)


def later_files(files: LogFiles, last: int) -> list[tuple[int, str]]:
    """The files that writers write only after a commit and whose version is after ``last``, the version of the last
    commit: version and path, ascending by version."""
    found = [(version, checksum_path(version)) for version in files.listing.checksums if version > last]
    found += [(each.version, log_path(each.names[0])) for each in files.listing.checkpoints if each.version > last]
    found += [(version, log_path(names[0])) for version, _, names in files.incomplete if version > last]
    found += [
        (each.end_version, log_path(each.name))
        for each in files.compactions
        if each.end_version is not None and each.end_version > max(last, each.version)
    ]
    return sorted(found, key=lambda each: (each[0], not each[1].endswith(".crc"), each[1]))


def describe_lost(
    last: int, paths: Sequence[str], counted: int | None, live: int | None, unnamed: Sequence[str] | None
) -> str:
    """The text about commits that are lost at the end of the log. ``last``: the version of the last commit. ``paths``:
    the files that prove it. ``counted``: the number of live files in the first lost version according to its ``.crc``.
    ``live``: that of the last version. ``unnamed``: the data files that no version names; None if unknown."""
    names = [path.rpartition("/")[2] for path in paths]
    text = f"The log ends at version {last}, but {_some(names)} exists, which is written after its commit."
    if counted is not None and live is not None:
        text += f" The .crc counts {counted} files, version {last} has {live}."
    if unnamed is not None:
        text += f" Data files that no version names: {_some(unnamed) if unnamed else 'none'}."
    return text


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def examine_orphans(files: LogFiles, lost: Collection[int]) -> Iterator[Finding]:
    """Report the ``.crc`` files without a commit, except those of ``lost`` versions."""
    commits = files.listing.commits
    for version in sorted(files.listing.checksums - set(commits) - set(lost)):
        if commits and version < commits[0]:
            text = f"The log begins at version {commits[0]}: earlier commits were deleted."
        else:
            text = f"There is no commit for version {version}."
        yield found("crc-without-commit", text, version, checksum_path(version))


def staged_version(name: str) -> int | None:
    """The version number in the name of a staged commit; None if ``name`` is not the name of a staged commit."""
    match = _STAGED.fullmatch(name)
    return None if match is None else int(match[1])


def examine_staged(names: Iterable[str], last: int, is_managed: bool) -> Iterator[Finding]:
    """Check the names in ``_staged_commits``. ``last``: the latest version in the log. ``is_managed``: whether the
    table is catalog-managed."""
    for name in names:
        version = staged_version(name)
        path = f"_delta_log/_staged_commits/{name}"
        if version is None:
            if not name.startswith("."):
                text = f"{name} is not <version>.<uuid>.json."
                yield found("staged-commit-name-malformed", text, None, path)
        elif version > last or not is_managed:
            text = f"The log ends at version {last}" + (
                "." if is_managed else ", and the table is not catalog-managed."
            )
            yield found("staged-commit-unpublished", text, version, path)
