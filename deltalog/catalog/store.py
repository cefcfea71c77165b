"""A table's store as its catalog sees the log: what it has ratified is there, published or not; nothing else is.

All that reads and writes logs works on it unchanged. A commit file that is created becomes a staged commit, which the
coordinator ratifies or not, and is then published.

Spec: PROTOCOL.md#catalog-managed-tables.
"""

from __future__ import annotations

import logging
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.marks import KnownMarks, added_paths, ratify_added
from deltalog.catalog.records import Head, Ratification, RatifiedCommit
from deltalog.commit.hooks import standing
from deltalog.errors import (
    CallError,
    CatalogBehindLogError,
    CorruptTableError,
    DeltaLogError,
    ObjectNotFoundError,
    OperationTimeoutError,
    ResourceNotReadyError,
    StoreError,
)
from deltalog.log.reader import required_ict
from deltalog.protocol.codec import decode_commit, first_commit_info
from deltalog.protocol.paths import (
    LOG_DIRECTORY,
    LogFileKind,
    commit_name,
    commit_path,
    commit_version,
    parse_log_file,
    staged_commit_name,
    staged_commit_path,
)
from deltalog.storage.base import FileMeta, LogStore, PutOutcome
from deltalog.storage.table_files import TableFiles
from deltalog.storage.wrapped import WrappedStore

log = logging.getLogger(__name__)

# So many commits are published between two notes of it: a process that dies repeats no more.
_PUBLISHED_AT_ONCE = 100
_NOTHING: Mapping[str, bytes] = {}
_NEEDS_PUBLISHED = {
    LogFileKind.CHECKSUM,
    LogFileKind.CLASSIC_CHECKPOINT,
    LogFileKind.MULTI_PART_CHECKPOINT,
    LogFileKind.UUID_CHECKPOINT,
    LogFileKind.COMPACTION,
}


class CatalogBehindLogWarning(UserWarning):
    """The log of a table has versions that its catalog lacks."""


class ManagedStore(WrappedStore[LogStore]):
    """See the module. ``pin``: the last version that is seen, for reading at one instant; None for the latest.

    Beyond what a call costs in the store: a listing, and looking for a version that was not yet known, ask the
    coordinator once; a commit asks it twice, and makes 1 HEAD of its version, 1 PUT of the staged file, 1 PUT and 1
    DELETE to publish it.
    """

    def __init__(
        self,
        inner: LogStore,
        coordinator: Coordinator,
        table_id: str,
        *,
        pin: int | None = None,
        new_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        super().__init__(inner)
        self.coordinator = coordinator
        self.table_id = table_id
        self.catalog = coordinator.url
        self._pin = pin
        self._new_uuid = new_uuid
        self._known = Head(-1)
        self._marks = KnownMarks(coordinator, table_id)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._pin is not None:
            raise CallError(f"{self.url}: a table opened in a transaction cannot be pickled; use it in this process.")
        return ManagedStore, (self.inner, self.coordinator, self.table_id)

    # -------------------------------------------------------------------------------------------- reading

    def look(self) -> Head:
        """How far the table is now, or at the instant of the pin. Raises CatalogBehindLogError where the catalog knows
        less than it did before. Cost: 1 call of the coordinator."""
        before = self._known.version
        head = self.coordinator.head(self.table_id)
        if head is None:
            raise ResourceNotReadyError(
                f"{self.url} is no longer managed by the catalog {self.catalog}: it was dropped. Open it anew."
            )
        if head.version < before:
            raise _behind(
                self.inner, self.coordinator.url, head.version, f"this process has read version {before} from it"
            )
        self._known = head if self._pin is None else _up_to(head, self._pin)
        return self._known

    def note(self, head: Head) -> None:
        """Take note of how far the table is, as somebody else has seen it."""
        if self._pin is None and head.version >= self._known.version:
            self._known = head

    def get(self, path: str, length: int | None = None) -> bytes:
        staged = self._staged_path(path)
        if staged is not None:
            try:
                return self.inner.get(staged, length)
            except ObjectNotFoundError:
                log.debug("%s: %s was published meanwhile", self.url, path)
        return self.inner.get(path, length)

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        staged = [self._staged_path(path) for path in paths]
        if any(staged):
            return [self.get(path, length) for path in paths]
        return self.inner.get_many(paths, length)

    def head(self, path: str) -> FileMeta | None:
        version = commit_version(path)
        if version is None:
            return self.inner.head(path)
        head = self._head_for(version)
        commit = head.commit(version)
        if commit is not None:
            return _meta(commit)
        return self.inner.head(path) if version <= head.version else None

    def list_from(self, directory: str, start: str = "", *, stat: bool = True) -> list[FileMeta]:
        if directory != LOG_DIRECTORY:
            return self.inner.list_from(directory, start, stat=stat)
        head = self.look()
        found = {meta.name: meta for meta in self.inner.list_from(directory, start, stat=stat)}
        kept = {name: meta for name, meta in found.items() if _is_within(name, head.version)}
        self._warn_of(found.keys() - kept.keys())
        kept.update((meta.name, meta) for meta in map(_meta, head.unpublished) if meta.name >= start)
        return [kept[name] for name in sorted(kept)]

    def list_names(self, directory: str, start: str = "") -> list[str]:
        if directory != LOG_DIRECTORY:
            return self.inner.list_names(directory, start)
        head = self.look()
        found = set(self.inner.list_names(directory, start))
        kept = {name for name in found if _is_within(name, head.version)}
        self._warn_of(found - kept)
        return [*kept.union(name for name in map(_name, head.unpublished) if name >= start)]

    def _warn_of(self, later: Iterable[str]) -> None:
        """Warn of commits in the log that the catalog does not know. Cost: none, as a rule; 1 call of the coordinator
        where the listing has later ones, which may have been committed since the head was read."""
        versions = [commit_version(f"{LOG_DIRECTORY}/{name}") for name in later]
        last = max((version for version in versions if version is not None), default=-1)
        if self._pin is not None or last < 0 or last <= self.look().version:
            return
        warnings.warn(
            f"{self.url}: _delta_log has version {last}, and the catalog {self.catalog} knows versions up to "
            f"{self._known.version}, which is what is read. If the catalog was restored from a backup, commits are "
            "missing here: deltalog tables resync --dry-run shows which.",
            CatalogBehindLogWarning,
            stacklevel=2,
        )

    def _staged_path(self, path: str) -> str | None:
        """Where the commit that ``path`` names lies as long as it is not published; None for what lies at ``path``.
        Raises ObjectNotFoundError for a version that is not ratified, whatever lies there."""
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
        """What tells whether there is such a version. Cost: 1 call of the coordinator where it was not yet known."""
        beyond_pin = self._pin is not None and version > self._pin
        return self._known if beyond_pin or version <= self._known.version else self.look()

    # -------------------------------------------------------------------------------------------- writing

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        version = commit_version(path)
        if version is None:
            self._check_published(path)
            return self.inner.put_if_absent(path, data)
        commit = stage(self.inner, self.coordinator, self.table_id, version, data, self._new_uuid)
        try:
            decision = ratify_added(
                self._marks, self.coordinator, self.table_id, commit, self.inner, lambda: self._added(version, data)
            )
        except OperationTimeoutError:
            return PutOutcome.UNKNOWN
        except DeltaLogError:
            discard_commits(self.inner, [commit])
            raise
        if decision is not Ratification.RATIFIED:
            discard_commits(self.inner, [commit])
            return PutOutcome.EXISTS
        seen = self._known  # just below, where nobody else committed since
        head = Head(version, (*seen.unpublished, commit)) if seen.version == version - 1 else None
        with standing(
            f"{self.url}: version {version} is committed", "publication of the commit (the next commit publishes it)"
        ):
            publish(self.inner, self.coordinator, self.table_id, head, {commit.file: data})
            self.note(Head(version))
        return PutOutcome.COMMITTED

    def _added(self, version: int, data: bytes) -> dict[str, int | None]:
        return added_paths(TableFiles(self.inner), decode_commit(data, version).adds)

    def put_stream_if_absent(self, path: str, write: Callable[[BinaryIO], object]) -> PutOutcome:
        if commit_version(path) is not None:
            return super().put_stream_if_absent(path, write)
        self._check_published(path)
        return self.inner.put_stream_if_absent(path, write)

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._check_published(path)
        self.inner.put(path, data, durable=durable)

    def _check_published(self, path: str) -> None:
        """Checkpoints and the like stand for published commits only: who reads the files alone finds no others."""
        directory, _, name = path.rpartition("/")
        file = parse_log_file(name) if directory == LOG_DIRECTORY else None
        if file is None or file.kind not in _NEEDS_PUBLISHED:
            return
        last = file.end_version or file.version
        if last <= self._known.published_version:
            return
        published = self.look().published_version
        if last > published:
            raise StoreError(
                f"{self.url}: {name} cannot be written: the catalog knows of published commits up to version "
                f"{published} only. Publish the others first, with TransactionManager.publish or deltalog tables "
                "publish.",
                path=path,
            )


class AdoptedStore(WrappedStore[LogStore]):
    """The store of a table that a catalog is about to take over: until then its commits go to the log itself."""

    def __init__(self, inner: LogStore, catalog: str) -> None:
        super().__init__(inner)
        self.catalog = catalog


def check_next(store: LogStore, coordinator: Coordinator, table_id: str, version: int) -> None:
    """Check that the log has no version that the catalog lacks, before that version is proposed: a catalog restored
    from a backup would ratify a second commit of a version that is in the log and was acknowledged.

    Raises CatalogBehindLogError if the log has the version and the catalog does not; StoreError, CoordinatorError.
    Cost: 1 HEAD; 1 call of the coordinator where the version is there, as when another writer was faster.
    """
    if store.head(commit_path(version)) is None:
        return
    head = coordinator.head(table_id)
    if head is not None and head.version < version:
        raise _behind(store, coordinator.url, head.version, f"_delta_log has version {version}")


def _behind(store: LogStore, catalog: str, version: int, seen: str) -> CatalogBehindLogError:
    return CatalogBehindLogError(
        f"{store.url}: the catalog {catalog} knows versions up to {version}, but {seen}. The catalog is older than the "
        "log: was it restored from a backup? Nothing was written. Run deltalog tables resync, or "
        "TransactionManager.resync(), which show the difference and bring the catalog up to its logs.",
        version=version,
    )


def stage(
    store: LogStore,
    coordinator: Coordinator,
    table_id: str,
    version: int,
    data: bytes,
    new_uuid: Callable[[], str],
) -> RatifiedCommit:
    """Write a staged commit. Returns what to propose to the coordinator. Raises StoreError; CatalogBehindLogError, and
    then nothing was written. Cost: 1 PUT, and as ``check_next``."""
    check_next(store, coordinator, table_id, version)
    info = first_commit_info(data, whole=True)
    file = staged_commit_name(version, new_uuid())
    path = staged_commit_path(file)
    if store.put_if_absent(path, data) is not PutOutcome.COMMITTED and _found(store, path) != data:
        raise StoreError(
            f"{store.url}: {path} was not written, or the store does not tell. Nothing was committed; try again.",
            path=path,
        )
    ict_ms = required_ict(info, version, store.url)
    assert info is not None
    return RatifiedCommit(version, file, ict_ms, len(data), info.txn_id or "")


def _found(store: LogStore, path: str) -> bytes | None:
    try:
        return store.get(path)
    except ObjectNotFoundError:
        return None


def discard_commits(store: LogStore, commits: Iterable[RatifiedCommit]) -> None:
    """Remove staged commits that nobody needs, best effort. Cost: 1 DELETE each."""
    for commit in commits:
        try:
            store.delete(staged_commit_path(commit.file))
        except StoreError as error:
            log.debug("%s: %s stays for now: %s", store.url, commit.file, error)


def publish(
    store: LogStore,
    coordinator: Coordinator,
    table_id: str,
    head: Head | None = None,
    contents: Mapping[str, bytes] = _NOTHING,
) -> int:
    """Copy what is ratified to ``_delta_log``, in order; the number of commits. Any process may do it at any time,
    and several at once. ``head``: the table's, where it is known; ``contents``: of staged files, those that are known.

    Raises StoreError, CoordinatorError; CorruptTableError where something else lies in the place of a commit. Cost: 1
    call of the coordinator where the head is not known, and 1 for each 100 commits; 1 GET where the content is not
    known, 1 PUT and 1 DELETE for each commit, on a local disk a link in the place of the first two.
    Spec: PROTOCOL.md#publishing-commits.
    """
    head = head or coordinator.head(table_id)
    unpublished = () if head is None else head.unpublished
    for start in range(0, len(unpublished), _PUBLISHED_AT_ONCE):
        some = unpublished[start : start + _PUBLISHED_AT_ONCE]
        names = [(staged_commit_path(commit.file), commit_path(commit.version)) for commit in some]
        for commit in some[store.link_if_absent(names) :]:
            _publish(store, commit, contents.get(commit.file))
        coordinator.published(table_id, some[-1].version)
        discard_commits(store, some)
    return len(unpublished)


def _publish(store: LogStore, commit: RatifiedCommit, content: bytes | None) -> None:
    path = commit_path(commit.version)
    try:
        data = store.get(staged_commit_path(commit.file)) if content is None else content
    except ObjectNotFoundError:
        if store.head(path) is None:
            raise
        return  # another process was faster with all of it
    outcome = store.put_if_absent(path, data)
    if outcome is PutOutcome.COMMITTED:
        return
    if store.get(path) != data:  # ObjectNotFoundError after UNKNOWN: the next try may do better
        raise CorruptTableError(
            f"{store.url}: {path} was not written through the catalog, which ratified another version "
            f"{commit.version}, {staged_commit_path(commit.file)}. Both may have been "
            "acknowledged: stop the writers, keep both files, and run deltalog tables resync --dry-run to see where "
            "the histories diverge."
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
