"""Proves that a commit follows the version on which it was planned, that is, that the log still has the same commit
under that version number.

Exclusive creation of the commit file alone does not prove that the commit follows the right version. If the table has
since been deleted, the next version's file name is free, and the commit would become the first file of a broken log. If
another table with the same number of versions has replaced the table that was read, the commit would add files of the
old table to the new one. Therefore the commit file of the known version is checked before each attempt to commit and,
on a local store, also after the attempt. Later versions need no separate check: versions are contiguous, and no Delta
client removes the latest ones.

On a remote store, the check is a request that runs concurrently with the upload of the data, so nothing waits for it.
The check begins only when the caller's rows are exhausted, because the caller's code may run until then. On a remote
store, the check after the commit runs in the background, before checksums or checkpoints are derived from the new
version.

Spec: PROTOCOL.md#delta-log-entries.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING

from deltalog.background import in_background
from deltalog.environment import Environment
from deltalog.errors import (
    CommitConflictError,
    CorruptTableError,
    DeltaLogError,
    TableNotFoundError,
    TableReplacedError,
)
from deltalog.lazy_names import lazy_modules
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import LogSnapshot
from deltalog.log.tip import Tip
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import commit_path
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import FileMeta

if TYPE_CHECKING:
    from deltalog.commit import conflicts
else:
    lazy_modules(__name__, "deltalog.commit.conflicts")

log = logging.getLogger(__name__)

# How long a check of the log remains valid within one call on a remote store, in milliseconds.
VALID_MS = 2_000


class TipProof:
    """Proves for one transaction that the version on which it was planned is still in the log. ``known``: the version
    that must still be in the log; None for a new table. ``proven_ms``: the time at which the current call began its
    last check, by the environment's clock, in milliseconds since
    1970."""

    def __init__(
        self, reader: LogReader, known: Snapshot | None, environment: Environment, proven_ms: int | None = None
    ) -> None:
        self._reader = reader
        self._known = known if reader.authority.is_log else None  # a catalog identifies tables by id
        self._environment = environment
        self._proven_ms = proven_ms
        self._looked: Future[FileMeta | None] | None = None
        self._winner: Tip | None = None

    @property
    def is_checked_after(self) -> bool:
        """Whether ``confirm`` needs no network request; if so, it is called before a commit is acknowledged."""
        return self._known is not None and not self._reader.store.is_remote

    @property
    def is_valid(self) -> bool:
        """Whether the current call checked the log less than VALID_MS ago. Cost: none."""
        if self._proven_ms is None or not self._reader.store.is_remote:
            return False
        if self._known is not None and self._known.tip.is_misplaced:
            return False
        return 0 <= self._environment.clock_ms() - self._proven_ms < VALID_MS

    def begin(self) -> None:
        """Start a new check that runs concurrently with the caller's work and replaces earlier checks. Raises
        nothing. Cost: 1 HEAD on a store over a network."""
        self.forget()
        if self._known is None or not (self._reader.store.is_remote and self._environment.background):
            return
        store, path = self._reader.store, commit_path(self._known.version)
        looked = Future[FileMeta | None]()

        def look() -> None:
            try:
                looked.set_result(store.head(path))
            except BaseException as error:
                looked.set_exception(error)

        self._proven_ms, self._looked = self._environment.clock_ms(), looked
        in_background(f"{store.url}: {path} of {id(self)}", look)

    def follow(self, winner: CommitActions, data: bytes) -> None:
        """Record that the next attempt follows another writer's commit, whose bytes were just read."""
        info = winner.commit_info
        tip = Tip(winner.version, None if info is None else info.txn_id)
        tip.note_written(data, None)
        self._winner = tip if tip.is_identified else None  # a large commit without a txnId cannot be identified

    def forget(self) -> None:
        """Make ``check`` send a new request, because the caller's code has run since the last request."""
        self._proven_ms = self._looked = None

    def take_over(self, other: TipProof) -> None:
        """Reuse the check that another transaction of the same call has made, if that transaction checked the same
        version."""
        if self._known is not None and other._known is not None and self._known.tip is other._known.tip:
            self._proven_ms, self._looked = other._proven_ms, other._looked

    def check(self, version: int) -> None:
        """Raise unless the known version is in the log, before ``version`` is committed: TableNotFoundError,
        TableReplacedError, StoreError; CommitConflictError if log clean-up has deleted the known version together with
        later commits that ``version`` would replace. Cost: none if the current call checked it within VALID_MS, else 1
        HEAD; as ``load_latest`` if that shows another file."""
        if self._known is None:
            return
        looked, is_valid = self._looked, self.is_valid
        self.forget()
        if is_valid and looked is None:
            return
        if is_valid and looked is not None:
            try:
                self._judge(self._known.tip, looked.result(), version)
            except (TableNotFoundError, TableReplacedError, CommitConflictError):
                raise
            except DeltaLogError as error:  # for example because the request failed; the check is repeated below
                log.debug("%s: cannot check the latest version: %s", self._reader.store.url, error)
            else:
                return
        for tip in self._tips():
            self._judge(tip, self._reader.store.head(commit_path(tip.version)), version)

    def confirm(self, version: int) -> tuple[bool, FileMeta | None]:
        """After ``version`` was committed on top of the known version, check again that the log still contains the
        known version. Raises as ``check``. Returns whether the log certainly contains the known version; if it does,
        also returns the file metadata of the new version. If that is not certain, log clean-up may have deleted the
        known version, and the new version must be read. Cost: 2 HEADs; the one of the known version comes last."""
        assert self._known is not None
        tips = self._tips()
        own, *found = self._reader.heads([commit_path(version), *(commit_path(tip.version) for tip in tips)])
        judged = [self._judge(tip, each, version, is_committed=True) for tip, each in zip(tips, found, strict=True)]
        return all(judged), own if all(judged) else None

    def is_followed(self, version: int) -> bool:
        """Whether ``version``, committed earlier, certainly follows the known version; False if log clean-up has
        deleted the known version. Raises TableNotFoundError, TableReplacedError, StoreError. Cost: 1 HEAD
        on a store over a network, 2 in one round after a lost race; none on others, where ``confirm`` has shown it."""
        if self._known is None or not self._reader.store.is_remote:
            return True
        tips = self._tips(after=True)
        found = self._reader.heads([commit_path(tip.version) for tip in tips])
        return all(self._judge(tip, each, version, is_committed=True) for tip, each in zip(tips, found, strict=True))

    def _tips(self, after: bool = False) -> list[Tip]:
        """The commits that must be in the log. A winner's commit that was just read from a remote store is not checked
        again. On other stores, and ``after`` the commit, the winner's commit is checked, because a rollback of the
        store may have kept the known version but not the winner's."""
        assert self._known is not None
        winner = None if self._reader.store.is_remote and not after else self._winner
        return [self._known.tip] if winner is None else [winner, self._known.tip]

    def _judge(self, tip: Tip, found: FileMeta | None, version: int, is_committed: bool = False) -> bool:
        """Whether the log is certain to contain this commit. ``found``: the metadata of the commit file that the log
        now contains for the version of ``tip``. ``version``: the version that is being committed, or that has just been
        committed."""
        known, url = self._known, self._reader.store.url
        assert known is not None
        if found is not None and tip.is_file(self._reader, found):
            return True
        try:
            fresh = load_latest(self._reader)
        except TableNotFoundError:
            raise TableNotFoundError(
                f"{url}: the table was deleted: version {known.version} was read there, but the log no longer exists. "
                "Nothing was committed. Create the table again, or open the table that this call is meant for."
            ) from None
        except CorruptTableError as error:
            raise replaced(url, known.version, "the log at its location cannot be read") from error
        # If other writers have committed in the meantime, log clean-up can delete even the latest commit that a handle
        # has read.
        reached = version if is_committed else tip.version
        is_covered = fresh.segment.checkpoint_version >= tip.version and fresh.version >= reached
        is_deleted = found is None and self._reader.store.head(commit_path(tip.version)) is None
        if is_covered and is_deleted and fresh.metadata.id == known.metadata.id:
            is_free = not is_committed and fresh.version >= version
            if is_free and self._reader.store.head(commit_path(version)) is None:  # it was deleted
                raise conflicts.commits_missing_since(known.version, fresh.version, url)
            return False
        raise replaced_by(known, fresh)


def replaced_by(known: Snapshot, fresh: LogSnapshot) -> TableReplacedError:
    """The error to raise if the table from which ``known`` was read has been replaced by the table of ``fresh``."""
    is_other = fresh.metadata.id != known.metadata.id
    what = "another table was created there" if is_other else "an older copy replaced it"
    if known.tip.is_misplaced:
        what += f", at the moment of a commit, which is version {known.version} of what is there"
    return replaced(fresh.url, known.version, f"{what}; its latest version is {fresh.version} now")


def replaced(url: str, version: int, what: str) -> TableReplacedError:
    """The error if the table is no longer the table whose ``version`` was read."""
    return TableReplacedError(
        f"{url}: the table was replaced after version {version} was read: {what}. Nothing was committed. Read "
        "the table again; repeat the call if it is meant for the new table.",
        version=version,
    )
