"""The committer of a table makes one version of it, and returns the outcome as a value.

The commit loop decides on the content and number of the version, and settles lost acknowledgements. The committer
decides where the commit is recorded: as a file of the log, in the catalog that ratifies the table's commits, or on the
branch of a transaction over several tables.

Spec: PROTOCOL.md#delta-log-entries, #creation-of-new-log-entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from deltalog.commit import hooks
from deltalog.commit.attempt import Attempt
from deltalog.environment import Environment
from deltalog.errors import CommitStateUnknownError
from deltalog.protocol.paths import commit_path
from deltalog.storage.base import LogStore, PutOutcome


@dataclass(frozen=True, slots=True)
class Committed:
    """The attempt is the version."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The version exists already. After a lost acknowledgement it may be this attempt itself."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store did not acknowledge: the attempt may be the version now, become it later, or never.

    ``error``: raised by the loop where only the committer can settle the outcome, through ``error.resolve``; None where
    reading the version back settles it.
    """

    error: CommitStateUnknownError | None = None


CommitOutcome = Committed | Exists | Unknown


class Committer(ABC):
    """Makes versions of one table. Threads may share it.

    Of any number of attempts at one version at most one is ever ``Committed``, and one that is committed is read by
    every reader of the table from then on. Committing the same attempt again takes effect once.
    """

    @abstractmethod
    def commit(self, attempt: Attempt) -> CommitOutcome:
        """Commit an attempt as the version that it was built for. Any DeltaLogError means that this call committed
        nothing, and will not do so later; an outcome that is not known is returned as ``Unknown``."""

    def after_commit(
        self, version: hooks.NewVersion, environment: Environment, on_checkpoint: hooks.OnCheckpoint
    ) -> None:
        """Run the hooks of a version that was committed. Raises and costs as ``hooks.after_commit``."""
        hooks.after_commit(version, environment, on_checkpoint)


class FileSystemCommitter(Committer):
    """Commits a version as a file of the log, by exclusive creation. Cost: 1 PUT."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def commit(self, attempt: Attempt) -> CommitOutcome:
        outcome = self._store.put_if_absent(commit_path(attempt.version), attempt.data)
        if outcome is PutOutcome.COMMITTED:
            return Committed()
        return Exists() if outcome is PutOutcome.EXISTS else Unknown()
