"""Compares staged commits of a catalog-managed table with the ratified and the published commits.

Spec: PROTOCOL.md#publishing-commits, #reading-catalog-managed-tables. Defects become findings, never exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from deltalog.doctor.catalog_state import Managed
from deltalog.doctor.findings import Finding, found
from deltalog.doctor.listing import staged_version
from deltalog.errors import StoreError
from deltalog.protocol.paths import commit_path, staged_commit_path
from deltalog.storage.base import LogStore, get_or_none

# Staged commits are read only for this many of the newest versions.
MOST = 100


def examine_ratified(store: LogStore) -> Iterator[Finding]:
    """Check the ratified commits that the catalog has not recorded as published. Cost: 2 GETs per commit."""
    if not isinstance(store, Managed):
        return
    for commit in store.known.unpublished:
        path = staged_commit_path(commit.file)
        try:
            staged, published = get_or_none(store.inner, path), get_or_none(store.inner, commit_path(commit.version))
        except (StoreError, OSError):
            continue  # the traversal of the log reports unreadable commits
        if staged is None and published is None:
            yield found("staged-commit-missing", f"The catalog ratified {commit.file}.", commit.version, path)
            continue
        if staged is not None and published is not None and not _same(staged, published):
            text = f"The catalog ratified {commit.file}."
            yield found("published-commit-differs", text, commit.version, commit_path(commit.version))
        ratified = staged if staged is not None else published
        if different := _different(commit, ratified or b""):
            yield found("ratified-commit-differs", f"Different: {', '.join(different)}.", commit.version, path)


def _different(commit: Any, data: bytes) -> list[str]:
    """What the catalog says about a ratified commit and its file does not."""
    different = []
    if commit.size_bytes != len(data):
        different.append(f"the size (in the catalog {commit.size_bytes} bytes, in the log {len(data)})")
    first = next(iter(_lines(data)), None)
    info = first.get("commitInfo") if isinstance(first, dict) else None
    ict_ms = info.get("inCommitTimestamp") if isinstance(info, dict) else None
    if commit.in_commit_timestamp_ms != ict_ms:
        shown = ict_ms if isinstance(ict_ms, int) else "none"
        different.append(
            f"the in-commit timestamp (in the catalog {commit.in_commit_timestamp_ms}, in the log {shown})"
        )
    return different


def examine_published(store: LogStore, names: Iterable[str]) -> Iterator[Finding]:
    """Check that each published commit equals one of the staged commits of its version. ``names``: the names in
    ``_staged_commits``. A commit whose bytes the catalog itself stored has no equal staged commit.
    Cost: 1 GET per staged and per published commit of the newest 100 versions with staged commits."""
    inner = store.inner if isinstance(store, Managed) else store
    staged: dict[int, list[str]] = {}
    for name in names:
        version = staged_version(name)
        if version is not None:
            staged.setdefault(version, []).append(name)
    ratified = {commit.version for commit in store.known.unpublished} if isinstance(store, Managed) else set()
    for version in sorted(staged.keys() - ratified)[-MOST:]:
        try:
            published = get_or_none(inner, commit_path(version))
            contents = [get_or_none(inner, staged_commit_path(name)) for name in staged[version]] if published else []
        except (StoreError, OSError):
            continue
        if published and not any(each is not None and _same(each, published) for each in contents):
            text = f"The commit equals none of the {len(contents)} staged commits, such as {min(staged[version])}."
            yield found("staged-commit-differs", text, version, commit_path(version))


def _same(one: bytes, other: bytes) -> bool:
    """Whether two commits contain the same actions in the same order."""
    return one == other or _lines(one) == _lines(other)


def _lines(data: bytes) -> list[object]:
    try:
        return [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [data]
