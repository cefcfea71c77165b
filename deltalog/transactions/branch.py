"""A branch: a transaction's commits to one table, on top of the version that the transaction reads. Other readers do
not see it.

``BranchCommitter`` adds commits, and ``BranchStore`` reads them. When the transaction is committed, all commits of a
branch become versions at once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from deltalog.commit.attempt import Attempt, build_attempt
from deltalog.commit.base import Base
from deltalog.commit.conflicts import parent_taken, rebase
from deltalog.commit.hooks import NewVersion
from deltalog.commit.loop import base_of
from deltalog.commit.prepared import Prepared, Reads
from deltalog.errors import CommitConflictError, ConcurrentModificationError
from deltalog.log.commit_summary import ANNOTATIONS_KEY
from deltalog.log.reader import LogReader
from deltalog.protocol.actions import AddFile, CommitInfo, RemoveFile
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.json_values import mapping_or_empty, text_or_none
from deltalog.protocol.properties import ENABLE_ROW_TRACKING
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot
from deltalog.transactions.branch_store import BranchStore

# The key under which the object ``deltalog`` of commitInfo contains the id of the commit's transaction.
TRANSACTION = "transaction"

A = TypeVar("A", AddFile, RemoveFile)


class Branch:
    """A transaction's commits to one table. Thread-safe."""

    def __init__(self, table_id: str, snapshot: Snapshot, store: BranchStore, must_not_move: bool = False) -> None:
        """``must_not_move``: treat every concurrent commit that changes rows or metadata as a conflict."""
        self.table_id = table_id
        self.store = store
        self.prepared: list[Prepared] = []
        self._must_not_move = must_not_move
        self.pinned = snapshot  # the snapshot of the catalog-managed table that this transaction reads
        self._snapshot = snapshot  # the snapshot on which the branch was last rebased
        self._tip = base_of(snapshot.log)
        self.lock = threading.Lock()  # held while adding a commit

    @property
    def schema(self) -> StructType:
        """The schema on which the next commit is based."""
        assert self._tip.metadata is not None
        return self._tip.metadata.schema

    def restore(self, prepared: Prepared, clock_ms: int) -> None:
        """Add a commit that another process has stored for this transaction."""
        self.add(build_attempt(prepared, self._tip, clock_ms))

    def check_next(self, attempt: Attempt) -> None:
        """Raises ConcurrentModificationError if the attempt is not based on the last commit."""
        if attempt.version != self._tip.version + 1:
            raise ConcurrentModificationError(
                f"{self.store.url}: another thread of this transaction has changed the table since this one began. "
                "Repeat the operation."
            )

    def add(self, attempt: Attempt) -> None:
        """Add a commit. The caller holds ``lock``."""
        self.prepared.append(attempt.prepared)
        self.store.extend(attempt)
        self._tip = attempt.as_base(self._tip)
        # The snapshot is the transaction's, so that this commit is also checked against all commits made since the
        # transaction began.
        self._snapshot = self.pinned

    def count(self) -> int:
        """The number of commits, including a commit that is being added."""
        with self.lock:
            return len(self.prepared)

    def catch_up(self, reader: LogReader, version: int) -> None:
        """Rebase the branch on a later version of the table. Raises CommitConflictError if a commit in between
        conflicts.

        Cost: 1 GET per version.
        """
        table = reader.store.url
        for winner in reader.commits(range(self._snapshot.version + 1, version + 1)):
            if any(prepared.is_strict for prepared in self.prepared):
                raise parent_taken(self._snapshot.version, winner, table)
            for prepared, base in zip(self.prepared_to_check(), self._bases(), strict=True):
                rebase(prepared, base, winner, None, table)
            self._check_row_ids(winner, table)
            ict_ms = winner.commit_info.in_commit_timestamp_ms if winner.commit_info else None
            self._snapshot = Snapshot(self._snapshot.log.after(winner, ict_ms))

    def _check_row_ids(self, winner: CommitActions, table: str) -> None:
        """Check for a conflict in row ids: if this transaction added rows and then rewrote them, their ids are
        materialized, and a concurrent commit may have assigned the same ids."""
        metadata, own = self._tip.metadata, set[str]()
        if metadata is None or not ENABLE_ROW_TRACKING.read(metadata.configuration):
            return
        for prepared in self.prepared:
            if prepared.may_move_rows and own.intersection(remove.path for remove in prepared.removes):
                raise CommitConflictError(
                    f"{table}: version {winner.version}, committed by another writer meanwhile, uses the row ids with "
                    "which this transaction rewrote rows that it had added. Nothing was committed: repeat it, and add "
                    "these rows in their final form.",
                    winning_version=winner.version,
                    winning_operation=winner.commit_info.operation if winner.commit_info else None,
                )
            own.update(add.path for add in prepared.adds if add.base_row_id is None)

    def prepared_to_check(self) -> list[Prepared]:
        """The prepared commits that are checked for conflicts with concurrent commits. If the transaction requires that
        the table did not change, they include one more, which changes nothing and reads the whole table."""
        if self._must_not_move:
            return [*self.prepared, Prepared("", "READ", reads=Reads(whole_table=True, metadata=True, domains=True))]
        return self.prepared

    @property
    def earliest_ms(self) -> int:
        """The earliest possible in-commit timestamp of this branch's last commit."""
        return (base_of(self._snapshot.log).previous_ms or 0) + len(self.prepared)

    def attempts(self, transaction_id: str, last_ms: int) -> list[Attempt]:
        """The branch's commits as attempts, numbered from the version after the one on which the branch was rebased.
        ``last_ms``: the in-commit timestamp of the last commit. The commitInfo of each commit contains the id of the
        transaction."""
        base, attempts, count = base_of(self._snapshot.log), list[Attempt](), len(self.prepared)
        own: dict[str, AddFile] = {}
        for number, prepared in enumerate(self.prepared, 1):
            place = {"id": transaction_id, "part": number, "parts": count}
            annotations = {**(prepared.annotations or {}), TRANSACTION: place}
            numbered = replace(_renumbered(prepared, own), annotations=annotations)
            attempts.append(build_attempt(numbered, base, last_ms - count + number))
            base = attempts[-1].as_base(base)
            own.update((add.path, add) for add in attempts[-1].actions.adds)
        return attempts

    @property
    def version(self) -> int:
        """The version of the table on which this branch is based."""
        return self._snapshot.version

    def landed(self, attempts: Sequence[Attempt]) -> list[NewVersion]:
        """The new table version that each of these attempts created; call this function once the commits are in the
        table's log. Cost: none."""
        found, base = list[NewVersion](), self._snapshot.log
        for attempt in attempts:
            found.append(NewVersion(base.after(*attempt.landed), attempt.result(), base, [attempt.landed]))
            base = found[-1].snapshot
        return found

    def _bases(self) -> list[Base]:
        """The base of each commit: the table with the protocol and metadata that the branch's earlier commits set."""
        base = base_of(self._snapshot.log)
        bases = [base]
        for prepared in self.prepared:
            base = replace(
                base, protocol=prepared.protocol or base.protocol, metadata=prepared.metadata or base.metadata
            )
            bases.append(base)
        return bases[: len(self.prepared_to_check())]


def _renumbered(prepared: Prepared, own: Mapping[str, AddFile]) -> Prepared:
    """Replace the row ids that earlier commits of the transaction assigned with the row ids that these commits assign
    after the rebase."""
    if own.keys().isdisjoint([*(add.path for add in prepared.adds), *(remove.path for remove in prepared.removes)]):
        return prepared
    return replace(
        prepared,
        adds=tuple(_numbered_as(add, own.get(add.path)) for add in prepared.adds),
        removes=tuple(_numbered_as(remove, own.get(remove.path)) for remove in prepared.removes),
    )


def _numbered_as(action: A, add: AddFile | None) -> A:
    if add is None or action.base_row_id is None:
        return action
    return msgspec.structs.replace(
        action, base_row_id=add.base_row_id, default_row_commit_version=add.default_row_commit_version
    )


def place_in_transaction(info: CommitInfo | None) -> tuple[int, int]:
    """The position of a commit among the commits that its transaction makes to the table, and the number of these
    commits; (1, 1) outside a transaction."""
    place = _place(info)
    part, parts = place.get("part"), place.get("parts")
    return (part, parts) if isinstance(part, int) and isinstance(parts, int) and 0 < part <= parts else (1, 1)


def transaction_of(info: CommitInfo | None) -> str | None:
    """The id of the transaction that a commit belongs to; None outside a transaction."""
    return text_or_none(_place(info).get("id"))


def _place(info: CommitInfo | None) -> Mapping[str, Any]:
    annotations = mapping_or_empty(None if info is None else info.body.get(ANNOTATIONS_KEY))
    return mapping_or_empty(annotations.get(TRANSACTION))
