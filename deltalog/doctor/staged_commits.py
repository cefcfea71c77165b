"""Compares staged commits of a catalog-managed table with the ratified and the published commits.

Spec: PROTOCOL.md#publishing-commits, #reading-catalog-managed-tables. Defects become findings, never exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import msgspec

from deltalog.doctor.findings import Finding, found
from deltalog.doctor.listing import staged_version
from deltalog.errors import StoreError
from deltalog.protocol.paths import commit_path, staged_commit_path
from deltalog.storage.base import LogStore, get_or_none


@runtime_checkable
class _Managed(Protocol):
    """The store of a catalog-managed table. The type is a ``typing.Protocol`` because programs without a catalog do not
    import the module of the real class."""

    inner: LogStore

    @property
    def known(self) -> Any:
        """The head of the table as last read from the catalog."""


# Staged commits are read only for this many of the newest versions.
MOST = 100


def examine_ratified(store: LogStore) -> Iterator[Finding]:
    """Check the ratified commits that the catalog has not recorded as published. Cost: 2 GETs per commit."""
    if not isinstance(store, _Managed):
        return
    for commit in store.known.unpublished:
        path = staged_commit_path(commit.file)
        try:
            staged, published = get_or_none(store.inner, path), get_or_none(store.inner, commit_path(commit.version))
        except (StoreError, OSError):
            continue  # the traversal of the log reports unreadable commits
        if staged is None and published is None:
            yield found("staged-commit-missing", f"The catalog ratified {commit.file}.", commit.version, path)
        elif staged is not None and published is not None and not _same(staged, published):
            text = f"The catalog ratified {commit.file}."
            yield found("published-commit-differs", text, commit.version, commit_path(commit.version))


def examine_published(store: LogStore, names: Iterable[str]) -> Iterator[Finding]:
    """Check that each published commit equals one of the staged commits of its version. ``names``: the names in
    ``_staged_commits``. A commit whose bytes the catalog itself stored has no equal staged commit.
    Cost: 1 GET per staged and per published commit of the newest 100 versions with staged commits."""
    inner = store.inner if isinstance(store, _Managed) else store
    staged: dict[int, list[str]] = {}
    for name in names:
        version = staged_version(name)
        if version is not None:
            staged.setdefault(version, []).append(name)
    ratified = {commit.version for commit in store.known.unpublished} if isinstance(store, _Managed) else set()
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
