"""The committer of a catalog-managed table: commits are staged, ratified by the coordinator, and published.

A commit takes effect when it is ratified. Publication copies ratified commits to ``_delta_log``; any process may do so
later.

Spec: PROTOCOL.md#catalog-managed-tables, #commit-protocol, #publishing-commits,
#writer-requirements-for-catalog-managed-tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from deltalog import metrics
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.marks import KnownMarks, added_paths, ratify_added
from deltalog.catalog.records import Head, Ratification, RatifiedCommit
from deltalog.catalog.store import ManagedStore, behind_log
from deltalog.commit.attempt import Attempt
from deltalog.commit.committer import CommitOutcome, Committed, Committer, Exists, Unknown
from deltalog.commit.hooks import errors_logged
from deltalog.errors import (
    CoordinatorError,
    CorruptTableError,
    DeltaLogError,
    ObjectNotFoundError,
    OperationTimeoutError,
    ResourceNotReadyError,
    StoreError,
)
from deltalog.protocol import features
from deltalog.protocol.actions import Protocol
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import commit_path, staged_commit_name, staged_commit_path
from deltalog.protocol.row_tracking import DOMAIN as ROW_TRACKING_DOMAIN
from deltalog.protocol.timestamps import required_ict
from deltalog.storage.base import LogStore, PutOutcome, get_or_none
from deltalog.storage.table_files import TableFiles

log = logging.getLogger(__name__)

# After this many published commits, the catalog records their publication, so that only few commits are published again
# after a crash.
_PUBLISHED_AT_ONCE = 100
_NOTHING: Mapping[str, bytes] = {}


class CatalogCommitter(Committer):
    """The committer of a catalog-managed table. ``store``: the table's store, which also caches the head after a
    commit."""

    def __init__(self, store: ManagedStore[Coordinator], new_uuid: Callable[[], str]) -> None:
        self._store = store
        self._new_uuid = new_uuid
        self._marks = KnownMarks(store.coordinator, store.table_id)

    def commit(self, attempt: Attempt) -> CommitOutcome:
        """Commit an attempt. Raises StoreError; CatalogBehindLogError if the log has versions that the catalog lacks;
        ResourceNotReadyError if the table was released or dropped; ObjectBeingDeletedError if a clean-up may be
        deleting an added file; the errors of the coordinator.

        Cost: 2 coordinator calls, 1 HEAD and 1 PUT to stage, 1 PUT and 1 DELETE to publish.
        """
        store, coordinator, table_id = self._store.inner, self._store.coordinator, self._store.table_id
        commit = stage(store, coordinator, table_id, attempt, self._new_uuid)
        try:
            decision = ratify_added(
                self._marks, coordinator, table_id, commit, store,
                lambda: added_paths(TableFiles(store), attempt.actions.adds),
            )  # fmt: skip
        except OperationTimeoutError:
            return Unknown()
        except DeltaLogError:
            discard_commits(store, [commit])
            raise
        if decision is not Ratification.RATIFIED:
            discard_commits(store, [commit])
            return Exists()
        self._publish(commit, attempt)
        return Committed()

    def _publish(self, commit: RatifiedCommit, attempt: Attempt) -> None:
        known, version = self._store.known, commit.version
        is_next = known.version == version - 1  # true if no other process has committed to the table since it was read
        head = Head(version, (*known.unpublished, commit)) if is_next else None
        with errors_logged(
            f"{self._store.url}: version {version} is committed",
            "publication of the commit (the next commit publishes it)",
        ):
            publish(self._store.inner, self._store.coordinator, self._store.table_id, head, {commit.file: attempt.data})
            self._store.record_head(Head(version))


def check_next(store: LogStore, coordinator: Coordinator, table_id: str, version: int) -> None:
    """Before a version is proposed, check that the log does not already contain a commit of this version. Without this
    check, a catalog restored from a backup would ratify a second commit for a version whose first commit was already
    acknowledged.

    Raises CatalogBehindLogError if the log has the version but the catalog does not; StoreError, CoordinatorError.
    Cost: 1 HEAD; 1 coordinator call if the version exists, for example because another writer won.
    """
    if store.head(commit_path(version)) is None:
        return
    try:
        head = coordinator.head(table_id)
    except OperationTimeoutError as error:  # OperationTimeoutError of a read: nothing has been proposed yet
        raise CoordinatorError(f"{error.message} Nothing was committed; try again.", path=error.path) from error
    if head is not None and head.version < version:
        raise behind_log(store, coordinator, head.version, f"_delta_log has version {version}")


def check_managed(protocol: Protocol, table: str, catalog: str) -> None:
    """Check that the catalog still manages the table. A catalog must neither commit to a table that it has released nor
    delete its files. Raises ResourceNotReadyError. Cost: none."""
    if not features.is_catalog_managed(protocol):
        raise released(table, catalog)


def released(table: str, catalog: str) -> ResourceNotReadyError:
    """The error for a call through a catalog that has released the table and therefore no longer manages it.
    ``table``: its path."""
    return ResourceNotReadyError(
        f"{table} was released from the catalog {catalog} and is now accessed by its path. Nothing was changed: "
        f"open {table}. If that is refused, the release was interrupted: call TransactionManager.release_table or "
        "run deltalog tables release again, which completes it."
    )


def stage(
    store: LogStore,
    coordinator: Coordinator,
    table_id: str,
    attempt: Attempt,
    new_uuid: Callable[[], str],
    *,
    releases: bool = False,
) -> RatifiedCommit:
    """Write a staged commit and return the commit to propose. ``releases``: whether the commit releases the table from
    the catalog. Raises StoreError; CatalogBehindLogError; ResourceNotReadyError if the table was released. If
    CatalogBehindLogError or ResourceNotReadyError is raised, nothing was written. Cost: 1 PUT, and that of
    ``check_next``."""
    version = attempt.version
    if not releases:
        check_managed(attempt.protocol, store.url, coordinator.url)
    check_next(store, coordinator, table_id, version)
    file = write_staged(store, version, new_uuid(), attempt.data)
    ict_ms = required_ict(attempt.actions.commit_info, version, store.url)
    return RatifiedCommit(
        version,
        file,
        ict_ms,
        len(attempt.data),
        attempt.prepared.txn_id,
        changes_metadata=changes_metadata(attempt.actions),
    )


def write_staged(store: LogStore, version: int, unique: str, data: bytes) -> str:
    """Write the staged file of a commit, and return its name, which contains ``unique``. Raises StoreError, which means
    that nothing was committed. Cost: 1 PUT."""
    file = staged_commit_name(version, unique)
    path = staged_commit_path(file)
    if store.put_if_absent(path, data) is not PutOutcome.COMMITTED and get_or_none(store, path) != data:
        raise StoreError(
            f"{store.url}: {path} was not written, or the store did not answer. Nothing was committed; try again.",
            path=path,
        )
    return file


def changes_metadata(actions: CommitActions) -> bool:
    """Whether a commit changes more than the table's rows. The mark of row tracking belongs to the rows."""
    if actions.protocol is not None or actions.metadata is not None:
        return True
    return any(each.domain != ROW_TRACKING_DOMAIN for each in actions.domains)


def discard_commits(store: LogStore, commits: Iterable[RatifiedCommit]) -> None:
    """Delete staged commits that are no longer needed, on a best-effort basis. Cost: 1 DELETE per commit."""
    for commit in commits:
        discard_staged(store, commit.file)


def discard_staged(store: LogStore, file: str) -> None:
    """Delete the file of a staged commit that is no longer needed, on a best-effort basis. Cost: 1 DELETE."""
    try:
        store.delete(staged_commit_path(file))
    except StoreError as error:
        log.debug("%s: %s could not be deleted yet: %s", store.url, file, error)


def publish(
    store: LogStore,
    coordinator: Coordinator,
    table_id: str,
    head: Head | None = None,
    contents: Mapping[str, bytes] = _NOTHING,
) -> int:
    """Copy ratified commits to ``_delta_log`` in order; returns their number. Any process may publish commits at any
    time, even while other processes publish them. ``head``: the head of the table, if known. ``contents``: known
    contents of staged files, keyed by name.

    Raises StoreError, CoordinatorError; CorruptTableError if the log has a different commit for a ratified version, or
    a staged file is not the ratified one. Cost: 1 coordinator call if the head is unknown, and 1 per 100 commits; per
    commit 1 GET (if the content is unknown), 1 PUT and (unless the catalog keeps staged commits) 1 DELETE, or on a
    local disk a link instead of GET and PUT.
    Spec: PROTOCOL.md#publishing-commits.
    """
    head = head or coordinator.head(table_id)
    unpublished = () if head is None else head.unpublished
    with metrics.upkeep("publication", store.url) as done:
        for start in range(0, len(unpublished), _PUBLISHED_AT_ONCE):
            some = unpublished[start : start + _PUBLISHED_AT_ONCE]
            copy_to_log(store, some, contents)
            coordinator.published(table_id, some[-1].version)
            done["commits"] = start + len(some)
            if not coordinator.keeps_staged_commits:
                discard_commits(store, some)
    return len(unpublished)


def copy_to_log(store: LogStore, commits: Sequence[RatifiedCommit], contents: Mapping[str, bytes] = _NOTHING) -> None:
    """Copy ratified commits to ``_delta_log``, in their order. Raises and costs as ``publish``, without the calls of a
    coordinator and the DELETE."""
    names = [(staged_commit_path(each.file), commit_path(each.version), each.size_bytes) for each in commits]
    for commit in commits[store.link_if_absent(names) :]:
        _publish(store, commit, contents.get(commit.file))


def _publish(store: LogStore, commit: RatifiedCommit, content: bytes | None) -> None:
    path, staged = commit_path(commit.version), staged_commit_path(commit.file)
    data = get_or_none(store, staged) if content is None else content
    if data is None or len(data) != commit.size_bytes:
        found = store.head(path)
        if found is not None and found.size_bytes in (None, commit.size_bytes):
            return  # another process has published the commit, and may have deleted the staged file
        if data is None and found is None:
            raise ObjectNotFoundError(f"{store.url}: {staged} is missing, which the catalog ratified.", path=staged)
        wrong, size = (path, found and found.size_bytes) if data is None else (staged, len(data))
        raise CorruptTableError(
            f"{store.url}: {wrong} has {size} bytes, but the catalog ratified a commit of {commit.size_bytes}: the "
            "file was overwritten or truncated later. Nothing was published: restore it from a copy."
        )
    outcome = store.put_if_absent(path, data)
    if outcome is PutOutcome.COMMITTED:
        return
    if store.get(path) != data:  # after UNKNOWN, the object may be missing: `get` then raises, and the caller may retry
        raise CorruptTableError(
            f"{store.url}: {path} was not written through the catalog, which ratified another commit of "
            f"version {commit.version}, {staged_commit_path(commit.file)}. Both may have been "
            "acknowledged: stop the writers, keep both files, and run deltalog tables resync --dry-run to see where "
            "the histories diverge."
        )
