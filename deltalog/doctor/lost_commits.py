"""Versions within the log retention that cannot be read because commits or checkpoints are missing. Pure.

Spec: PROTOCOL.md#metadata-cleanup. Reading a version needs all commits up to it, or a checkpoint and the commits
between the checkpoint and the version.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

from deltalog.doctor.findings import Finding, found
from deltalog.protocol.paths import commit_path
from deltalog.protocol.timestamps import describe

_RANGES = 20
UNKNOWN_MS = -1
Range = tuple[int, int]


def unreadable(commits: Sequence[int], checkpoints: Sequence[int]) -> list[Range]:
    """The ranges of versions up to the latest that cannot be read. ``commits``, ``checkpoints``: the versions of the
    existing commits and of the usable checkpoints, ascending."""
    readable: list[Range] = [(version, version) for version in checkpoints]
    for first, last in _runs(commits):
        at = bisect.bisect_left(checkpoints, first - 1)
        if first == 0:
            readable.append((0, last))
        elif at < len(checkpoints) and checkpoints[at] <= last:
            readable.append((checkpoints[at], last))
    gaps: list[Range] = []
    next_version = 0
    for first, last in sorted(readable):
        if first > next_version:
            gaps.append((next_version, first - 1))
        next_version = max(next_version, last + 1)
    latest = max((*commits[-1:], *checkpoints[-1:]), default=-1)
    if next_version <= latest:
        gaps.append((next_version, latest))
    return gaps


def _runs(versions: Sequence[int]) -> Iterator[Range]:
    start = 0
    for at in range(1, len(versions) + 1):
        if at == len(versions) or versions[at] != versions[at - 1] + 1:
            yield versions[start], versions[at - 1]
            start = at


def examine_reach(
    commits: Sequence[int],
    times_ms: Sequence[int],
    checkpoints: Sequence[int],
    created_ms: int | None,
    cutoff_ms: int,
) -> Iterator[Finding]:
    """Report the versions that were committed after ``cutoff_ms``, the time at which the retention begins, and that
    cannot be read. ``times_ms``: the time of each of the ``commits``, or UNKNOWN_MS. ``created_ms``: the time at which
    the table was created, if it is known. The time of a missing commit is unknown; a version is reported only if its
    time is certainly within the retention."""
    if created_ms is not None and created_ms > cutoff_ms:
        first_young: int | None = 0
    else:
        young = (version for version, at_ms in zip(commits, times_ms, strict=False) if at_ms > cutoff_ms)
        first_young = next(young, None)
    if first_young is None:
        return
    lost = [(max(first, first_young), last) for first, last in unreadable(commits, checkpoints) if last >= first_young]
    if lost:
        text = f"Unreadable versions: {described_ranges(lost)}. The log retention begins at {describe(cutoff_ms)}."
        yield found("version-unreachable", text, lost[-1][1], commit_path(lost[0][0]))


def described_ranges(ranges: Iterable[Range]) -> str:
    """Ranges of versions as text, such as ``3, 5 to 8``."""
    joined: list[list[int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in joined]
    more = len(texts) - _RANGES
    return ", ".join(texts[:_RANGES]) + (f" and {more} more ranges" if more > 0 else "")
