"""The committer of a table makes one version of it, and returns the outcome as a value.

The commit loop decides the content of the version, which version is next, and how a lost response is handled. The
committer decides the destination of a commit: a file of the log, the catalog that ratifies the table's commits, or the
branch of a transaction over several tables.

Spec: PROTOCOL.md#delta-log-entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from deltalog.commit import hooks
from deltalog.commit.attempt import Attempt
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import CommitStateUnknownError
from deltalog.protocol.paths import commit_path
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore, PutOutcome


@dataclass(frozen=True, slots=True)
class Committed:
    """The attempt is the version."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The version existed already. After a lost response it may be this attempt."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The version may be the attempt now, later, or never.

    ``error``: what the loop raises where only the committer can settle this; its ``resolve`` does. None where reading
    the version back settles it.
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
        """Make an attempt the version that it was built for. Every DeltaLogError means that this call committed
        nothing, and never will; what is not known is ``Unknown``."""

    def after_commit(self, snapshot: Snapshot, result: CommitResult, environment: Environment) -> Snapshot:
        """Run the hooks of a version that was committed; the snapshot to continue from. Raises and costs as
        ``hooks.after_commit``."""
        return hooks.after_commit(snapshot, result, environment)


class FileSystemCommitter(Committer):
    """A version is a file of the log, which a store creates exclusively. Cost: 1 PUT."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def commit(self, attempt: Attempt) -> CommitOutcome:
        outcome = self._store.put_if_absent(commit_path(attempt.version), attempt.data)
        if outcome is PutOutcome.COMMITTED:
            return Committed()
        return Exists() if outcome is PutOutcome.EXISTS else Unknown()
