"""The committer of a table: commits one version, and returns the outcome as a value.

The commit loop decides the content and the number of the version, and settles lost acknowledgements. The committer
decides where the commit is recorded: as a file in the log, in the catalog that ratifies the table's commits, or on the
branch of a transaction over several tables.
Spec: PROTOCOL.md#delta-log-entries, #creation-of-new-log-entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

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


@dataclass(frozen=True, slots=True)
class Committed:
    """The attempt is the version."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The version already exists. After a lost acknowledgement, it may be this attempt itself."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store did not acknowledge: the attempt may be the version now, may become it later, or may never.

    ``error``: raised by the loop if only the committer can settle the outcome, through ``error.resolve``; None if
    reading the version back settles it.
    """

    error: CommitStateUnknownError | None = None


CommitOutcome = Committed | Exists | Unknown


class Committer(ABC):
    """Commits versions of one table. Threads may share it.

    Of all attempts at one version, at most one is ever ``Committed``, and every reader of the table sees it from then
    on. Committing the same attempt again has no further effect.
    """

    @abstractmethod
    def commit(self, attempt: attempts.Attempt) -> CommitOutcome:
        """Commit an attempt as the version that it was built for. Any DeltaLogError means that this call committed
        nothing and will not do so later; an unknown outcome is returned as ``Unknown``."""

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
