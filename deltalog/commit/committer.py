"""The committer of a table: commits one version, and returns the outcome instead of raising it.

The commit loop decides the content and the number of the version. If an acknowledgement is lost, the loop determines
whether the commit succeeded. The committer decides where the commit is recorded: as a file in the log, in the catalog
that ratifies the table's commits, or on the branch of a multi-table transaction.
Spec: PROTOCOL.md#delta-log-entries, #creation-of-new-log-entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import msgspec

from deltalog.environment import Environment
from deltalog.errors import CommitStateUnknownError
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.paths import commit_path
from deltalog.storage.base import LogStore, PutOutcome

if TYPE_CHECKING:
    from deltalog.commit import attempt as attempts
    from deltalog.commit import hooks
else:
    lazy_modules(__name__, "deltalog.commit.hooks", attempts="deltalog.commit.attempt")


class Committed(msgspec.Struct, frozen=True):
    """The attempt succeeded: its commit is now that version of the table."""


class Exists(msgspec.Struct, frozen=True):
    """The version already exists. If the acknowledgement of an earlier try was lost, the existing version may be this
    attempt itself."""


class Unknown(msgspec.Struct, frozen=True):
    """The store did not acknowledge the commit: it may have succeeded, may succeed later, or may have failed.

    ``error``: the error that the loop raises if only the committer can find out the outcome (through
    ``error.resolve``); None if reading the version back is enough.
    """

    error: CommitStateUnknownError | None = None


CommitOutcome = Committed | Exists | Unknown


class Committer(ABC):
    """Commits versions of one table. Threads may share it.

    Of all attempts at one version, at most one is ever ``Committed``, and from then on every reader of the table sees
    it. Committing the same attempt again has no further effect.
    """

    @abstractmethod
    def commit(self, attempt: attempts.Attempt) -> CommitOutcome:
        """Commit an attempt as the version for which it was built. A DeltaLogError means that this call committed
        nothing and that its requests will have no later effect; an unknown outcome is returned as ``Unknown``."""

    def after_commit(
        self, version: hooks.NewVersion, environment: Environment, on_checkpoint: hooks.OnCheckpoint
    ) -> None:
        """Run the hooks of a committed version. Raises and costs as ``hooks.after_commit``."""
        hooks.after_commit(version, environment, on_checkpoint)


class FileSystemCommitter(Committer):
    """Commits a version by exclusive creation of its file in the log. Cost: 1 PUT."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def commit(self, attempt: attempts.Attempt) -> CommitOutcome:
        outcome = self._store.put_if_absent(commit_path(attempt.version), attempt.data)
        if outcome is PutOutcome.COMMITTED:
            return Committed()
        return Exists() if outcome is PutOutcome.EXISTS else Unknown()
