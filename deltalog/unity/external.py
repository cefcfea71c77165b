"""External tables of a Unity Catalog: their log decides on their commits, and the catalog is told of their metadata.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#update-actions; api/delta.yaml, "update-metadata-snapshot-version".
"""

from __future__ import annotations

from functools import partial
from typing import Any

from deltalog.background import in_background
from deltalog.commit.attempt import Attempt
from deltalog.commit.committer import CommitOutcome, Committed, FileSystemCommitter
from deltalog.commit.hooks import errors_logged
from deltalog.environment import Environment
from deltalog.errors import CatalogRequestError
from deltalog.storage.base import LogStore
from deltalog.storage.wrapped import WrappedStore
from deltalog.unity import rules
from deltalog.unity.calls import TableCalls


class ExternalStore(WrappedStore[LogStore]):
    """The store of an external table. ``calls``: the calls of the server for it. ``table_id``: its id there."""

    def __init__(self, inner: LogStore, calls: TableCalls, table_id: str) -> None:
        super().__init__(inner)
        self.calls = calls
        self.table_id = table_id

    def __reduce__(self) -> tuple[Any, ...]:
        return ExternalStore, (self.inner, self.calls, self.table_id)


class ExternalCommitter(FileSystemCommitter):
    """Commits to the log. After a commit that changes metadata, the catalog is told of it, on a best-effort basis, in
    the background for a store over a network. Cost: 1 PUT; 2 requests more if metadata changes."""

    def __init__(self, store: ExternalStore, environment: Environment) -> None:
        super().__init__(store)
        self._external = store
        self._environment = environment

    def commit(self, attempt: Attempt) -> CommitOutcome:
        outcome = super().commit(attempt)
        if isinstance(outcome, Committed) and rules.changes_metadata(rules.metadata_updates(attempt)):
            work = partial(self._tell_logged, attempt)
            if self._external.is_remote and self._environment.background:
                in_background(self._external.url, work)
            else:
                work()
        return outcome

    def _tell_logged(self, attempt: Attempt) -> None:
        with errors_logged(
            f"{self._external.url}: version {attempt.version} is committed", "telling the catalog of its metadata"
        ):
            self._tell(attempt)

    def _tell(self, attempt: Attempt) -> None:
        calls = self._external.calls
        for number in range(self._environment.retry.settle_attempts):
            self._environment.back_off(number)
            known = calls.load().metadata
            last = known.last_commit_version
            is_other = known.table_uuid.lower() != self._external.table_id.lower()
            if is_other or (last is not None and last >= attempt.version):
                return  # a later commit was told first
            update = rules.external_update(self._external.table_id, attempt, known.etag)
            try:
                calls.update(update, is_idempotent=False)
                return
            except CatalogRequestError as error:
                if not rules.is_requirement(error):
                    raise
