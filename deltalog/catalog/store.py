"""The store of a catalog-managed table. The log in this store consists of exactly the ratified commits, both the
published and the unpublished ones.

Code that reads logs can use this store like any other. ``deltalog.catalog.committer`` writes commits.

Spec: PROTOCOL.md#catalog-managed-tables, #reading-catalog-managed-tables, #getting-ratified-commits-from-the-catalog,
#reader-requirements-for-catalog-managed-tables, #maintenance-operations-on-catalog-managed-tables.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

from deltalog import deadline
from deltalog.catalog.records import Head, RatifiedCommit
from deltalog.errors import (
    CallError,
    CatalogBehindLogError,
    CatalogBehindLogWarning,
    CorruptTableError,
    ObjectNotFoundError,
    ResourceNotReadyError,
    StoreError,
)
from deltalog.protocol.paths import (
    LOG_DIRECTORY,
    LogFileKind,
    commit_name,
    commit_version,
    parse_log_file,
    staged_commit_path,
)
from deltalog.storage.base import FileMeta, LogStore, PutOutcome
from deltalog.storage.wrapped import WrappedStore

log = logging.getLogger(__name__)

_NEEDS_PUBLISHED = {
    LogFileKind.CHECKSUM,
    LogFileKind.CLASSIC_CHECKPOINT,
    LogFileKind.MULTI_PART_CHECKPOINT,
    LogFileKind.UUID_CHECKPOINT,
    LogFileKind.COMPACTION,
}


class HeadSource(Protocol):
    """Where the head of a table is read: a Coordinator, or the server of a Unity Catalog. The texts are parts of
    messages: what to do if the source is older than the log (``if_behind``), why the log may have later versions than
    the source (``if_log_is_ahead``), and how commits are published (``to_publish``)."""

    url: str
    if_behind: str
    if_log_is_ahead: str
    to_publish: str

    def head(self, table_id: str) -> Head | None:
        """The head of a table; None if it is not registered."""


H = TypeVar("H", bound=HeadSource)


class ManagedStore(WrappedStore[LogStore], Generic[H]):
    """The store of a catalog-managed table. ``coordinator``: the source of its head. ``pin``: the last visible version,
    for reads at one instant; None for the latest.

    It does not write commits. Additional cost: 1 coordinator call per listing and 1 per version that is not known yet.
    """

    def __init__(
        self,
        inner: LogStore,
        coordinator: H,
        table_id: str,
        *,
        pin: int | None = None,
    ) -> None:
        super().__init__(inner)
        self.coordinator = coordinator
        self.table_id = table_id
        self.catalog = coordinator.url
        self._pin = pin
        self._known = Head(-1)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._pin is not None:
            raise CallError(f"{self.url}: a table opened in a transaction cannot be pickled; use it in this process.")
        return ManagedStore, (self.inner, self.coordinator, self.table_id)

    # -------------------------------------------------------------------------- reads through the catalog

    @property
    def known(self) -> Head:
        """The head of the table as this process last read it. Cost: none."""
        return self._known

    @property
    def is_pinned(self) -> bool:
        """Whether this store shows the table at one instant. Cost: none."""
        return self._pin is not None

    def refresh_head(self) -> Head:
        """Read the current head of the table, up to the pin. Raises CatalogBehindLogError if the catalog has lost
        versions. Cost: 1 coordinator call."""
        before = self._known.version
        head = self.coordinator.head(self.table_id)
        if head is None:
            raise ResourceNotReadyError(
                f"{self.url} is no longer in the catalog {self.catalog}: it was released or dropped. Open {self.url} "
                "by its path; that is refused if it was dropped: then register it again."
            )
        if head.version < before:
            raise behind_log(self.inner, self.coordinator, head.version, f"this process has read version {before}")
        self._known = head if self._pin is None else _up_to(head, self._pin)
        return self._known

    def record_head(self, head: Head) -> None:
        """Record the head of the table (its latest version), which another component has read."""
        if self._pin is None and head.version >= self._known.version:
            self._known = head

    def get(self, path: str, length: int | None = None) -> bytes:
        deadline.check(self.url)
        staged = self._staged_path(path)
        if staged is not None:
            try:
                return self.inner.get(staged, length)
            except ObjectNotFoundError:
                log.debug("%s: %s was published concurrently", self.url, path)
        return self.inner.get(path, length)

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        deadline.check(self.url)
        staged = [self._staged_path(path) for path in paths]
        if any(staged):
            return [self.get(path, length) for path in paths]
        return self.inner.get_many(paths, length)

    def open_input(self, path: str) -> Any:
        deadline.check(self.url)
        return self.inner.open_input(path)

    def head(self, path: str) -> FileMeta | None:
        deadline.check(self.url)
        version = commit_version(path)
        if version is None:
            return self.inner.head(path)
        head = self._head_for(version)
        commit = head.commit(version)
        if commit is not None:
            return _meta(commit)
        return self.inner.head(path) if version <= head.version else None

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        deadline.check(self.url)
        if directory != LOG_DIRECTORY:
            return self.inner.list_from(directory, start, stat=stat, limit=limit)
        head = self.refresh_head()
        found = {meta.name: meta for meta in self.inner.list_from(directory, start, stat=stat, limit=limit)}
        kept = {name: meta for name, meta in found.items() if _is_within(name, head.version)}
        self._warn_of(found.keys() - kept.keys())
        kept.update((meta.name, meta) for meta in map(_meta, head.unpublished) if meta.name >= start)
        self._check_has_latest(kept, head, start, limit)
        return [kept[name] for name in sorted(kept)][:limit]

    def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
        deadline.check(self.url)
        if directory != LOG_DIRECTORY:
            return self.inner.list_names(directory, start, limit=limit)
        head = self.refresh_head()
        found = set(self.inner.list_names(directory, start, limit=limit))
        kept = {name for name in found if _is_within(name, head.version)}
        self._warn_of(found - kept)
        names = kept.union(name for name in map(_name, head.unpublished) if name >= start)
        self._check_has_latest(names, head, start, limit)
        return [*names] if limit is None else sorted(names)[:limit]

    def _check_has_latest(self, names: Collection[str], head: Head, start: str, limit: int | None) -> None:
        """Raise CorruptTableError if a listing lacks the latest version although the catalog has recorded it as
        published. Without this check, a reader could take an older version for the latest. Cost: none, or 1 coordinator
        call."""
        latest = commit_name(head.version)
        if latest in names or not names or start > latest or limit is not None or self._pin is not None:
            return
        if self.refresh_head().version > head.version:
            return  # log clean-up has deleted the commit in the meantime
        raise CorruptTableError(
            f"{self.url}: the catalog {self.catalog} has published version {head.version}, but the log has no "
            f"{latest}: an older copy of the table is there, or files of its log were deleted. Restore {latest} and "
            "the commits before it that are missing, or drop the table from the catalog and register what is there."
        )

    def _warn_of(self, later: Iterable[str]) -> None:
        """Warn about commits in the log that are not in the catalog. Cost: usually none; 1 coordinator call if the
        listing has later commits, which may be newer than the known head."""
        versions = [commit_version(f"{LOG_DIRECTORY}/{name}") for name in later]
        last = max((version for version in versions if version is not None), default=-1)
        if self._pin is not None or last < 0 or last <= self.refresh_head().version:
            return
        warnings.warn(
            f"{self.url}: _delta_log has version {last}, but the catalog {self.catalog} knows versions up to "
            f"{self._known.version} only, and only these are read. {self.coordinator.if_log_is_ahead}",
            CatalogBehindLogWarning,
            stacklevel=2,
        )

    def _staged_path(self, path: str) -> str | None:
        """The path of the staged file of an unpublished commit; None for any other ``path``. Raises ObjectNotFoundError
        if the version is not ratified, even if its file exists."""
        version = commit_version(path)
        if version is None:
            return None
        head = self._head_for(version)
        if version > head.version:
            raise ObjectNotFoundError(
                f"{self.url} has no version {version}: the catalog's latest is {head.version}.", path=path
            )
        commit = head.commit(version)
        return None if commit is None else staged_commit_path(commit.file)

    def _head_for(self, version: int) -> Head:
        """Return a head of the table that is recent enough to show whether the version exists. Cost: 1 coordinator call
        if the version is not known yet."""
        beyond_pin = self._pin is not None and version > self._pin
        return self._known if beyond_pin or version <= self._known.version else self.refresh_head()

    # -------------------------------------------------------------------------------- writing derived files

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._check_derived(path)
        return self.inner.put_if_absent(path, data)

    def put_stream_if_absent(self, path: str, write: Callable[[BinaryIO], object]) -> PutOutcome:
        self._check_derived(path)
        return self.inner.put_stream_if_absent(path, write)

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._check_derived(path)
        self.inner.put(path, data, durable=durable)

    def _check_derived(self, path: str) -> None:
        """Check that ``path`` is not a commit, and that a derived file such as a checkpoint covers only published
        commits, because readers that do not ask the catalog see only these. Raises StoreError."""
        if commit_version(path) is not None:
            raise StoreError(
                f"{self.url}: {path} cannot be written: the commits of this table go through its catalog "
                f"{self.catalog}. Nothing was written.",
                path=path,
            )
        directory, _, name = path.rpartition("/")
        file = parse_log_file(name) if directory == LOG_DIRECTORY else None
        if file is None or file.kind not in _NEEDS_PUBLISHED:
            return
        last = file.end_version or file.version
        if last <= self._known.published_version:
            return
        published = self.refresh_head().published_version
        if last > published:
            raise StoreError(
                f"{self.url}: {name} cannot be written: the catalog knows of published commits up to version "
                f"{published} only. {self.coordinator.to_publish}",
                path=path,
            )


def behind_log(store: LogStore, coordinator: HeadSource, version: int, evidence: str) -> CatalogBehindLogError:
    return CatalogBehindLogError(
        f"{store.url}: the catalog {coordinator.url} knows versions up to {version}, but {evidence}. The catalog is "
        f"older than the log: was it restored from a backup? Nothing was written. {coordinator.if_behind}",
        version=version,
    )


def _up_to(head: Head, version: int) -> Head:
    if head.version <= version:
        return head
    return Head(version, tuple(commit for commit in head.unpublished if commit.version <= version))


def _is_within(name: str, version: int) -> bool:
    file = parse_log_file(name)
    return file is None or (file.end_version or file.version) <= version


def _name(commit: RatifiedCommit) -> str:
    return commit_name(commit.version)


def _meta(commit: RatifiedCommit) -> FileMeta:
    return FileMeta(_name(commit), commit.size_bytes, commit.in_commit_timestamp_ms)
