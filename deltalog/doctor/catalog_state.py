"""Compares what a catalog says about a table with the log: which commits there are, and what a server of Unity Catalog
shows as the table's metadata.

Spec: PROTOCOL.md#reading-catalog-managed-tables, #publishing-commits, #catalog-managed-tables. Defects become findings,
never exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from deltalog.doctor.findings import Finding, found
from deltalog.errors import DeltaLogError
from deltalog.protocol.actions import DomainMetadata, Metadata
from deltalog.protocol.actions import Protocol as TableProtocol
from deltalog.protocol.paths import (
    LOG_DIRECTORY,
    LogFileKind,
    commit_name,
    commit_path,
    commit_version,
    log_path,
    parse_log_file,
)
from deltalog.storage.base import FileMeta, LogStore

# Kinds of files from which a version can be read.
_WITH_STATE = frozenset(LogFileKind) - {LogFileKind.CHECKSUM, LogFileKind.COMPACTION}


@runtime_checkable
class Managed(Protocol):
    """The store of a catalog-managed table. The type is a ``typing.Protocol`` because programs without a catalog do not
    import the module of the real class."""

    inner: LogStore
    coordinator: Any

    @property
    def known(self) -> Any:
        """The head of the table as last read from the catalog."""

    @property
    def is_pinned(self) -> bool:
        """Whether later versions are left out on purpose."""

    def refresh_head(self) -> Any:
        """Read the head of the table from the catalog."""


@runtime_checkable
class _Served(Protocol):
    """The source of a head that shows metadata too: a table of a Unity Catalog."""

    calls: Any

    def reload(self) -> Any:
        """The state of the table as the server shows it."""


def list_log(store: LogStore) -> tuple[list[FileMeta], list[Finding]]:
    """The files of ``_delta_log``. Of a catalog-managed table, these are the commits that its catalog has ratified, and
    the files derived from them; commits that only the log or only the catalog has become findings. Raises as
    ``list_from``. Cost: 1 LIST; of a catalog-managed table also 1 call to the catalog, and 1 more if the log has later
    commits."""
    if not isinstance(store, Managed) or store.is_pinned:
        return store.list_from(LOG_DIRECTORY), []
    head = store.refresh_head()
    metas = store.inner.list_from(LOG_DIRECTORY)
    versions = (commit_version(log_path(meta.name)) for meta in metas)
    commits = [version for version in versions if version is not None]
    if max(commits, default=-1) > head.version:
        head = store.refresh_head()  # other writers may have committed meanwhile
    findings = []
    later = sorted(version for version in commits if version > head.version)
    if later:
        text = f"The catalog's latest version is {head.version}; the log has {_range(later[0], later[-1])}."
        findings.append(found("catalog-behind-log", text, later[0], commit_path(later[0])))
    kept, last = {}, -1
    for meta in metas:
        file = parse_log_file(meta.name)
        if file is None or (file.end_version or file.version) <= head.version:
            kept[meta.name] = meta
            last = file.version if file is not None and file.kind in _WITH_STATE and file.version > last else last
    if last < head.published_version:
        text = f"According to the catalog, {_range(last + 1, head.published_version)} of the log are published."
        findings.append(found("published-commit-missing", text, head.published_version, commit_path(last + 1)))
    for commit in head.unpublished:
        name = commit_name(commit.version)
        kept[name] = FileMeta(name, commit.size_bytes, commit.in_commit_timestamp_ms)
    return [kept[name] for name in sorted(kept)], findings


def _range(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"the versions {first} to {last}"


def examine_shown(
    store: LogStore, version: int, protocol: TableProtocol, metadata: Metadata, domains: Iterable[DomainMetadata]
) -> Iterator[Finding]:
    """Check that the server of a Unity Catalog shows the metadata that the log has at ``version``. A server that offers
    only the older calls does not promise that. Cost: 1 request."""
    if not isinstance(store, Managed) or store.is_pinned or not isinstance(store.coordinator, _Served):
        return
    from deltalog.unity.calls import DeltaCalls
    from deltalog.unity.table_state import TableState, differences

    source = store.coordinator
    if not isinstance(source.calls, DeltaCalls):
        return
    try:
        loaded = source.reload()
        state = TableState.of(protocol, metadata, domains)
        if loaded.latest_table_version != version:
            return  # another writer has committed meanwhile
        different = differences(loaded.metadata, state)
    except DeltaLogError as error:
        yield found("catalog-not-consulted", f"The metadata that the catalog shows is unknown: {error}", version)
        return
    if different:
        yield found("catalog-metadata-differs", f"Different: {', '.join(different)}.", version)
