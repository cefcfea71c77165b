"""Markings ensure that an object left by an aborted transaction is either deleted by the clean-up of this transaction
or reused by a later transaction, never both.

A clean-up *marks* objects in the catalog, then checks which of them are in use, and deletes the others. A transaction
that names or adds objects checks them against the markings, and the catalog accepts its change only if no marking was
added after that check. So either the clean-up sees that the file is in use, or the transaction sees the marking. A
deleted object may be added again once it has been rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import (
    DocumentChange,
    Marking,
    Marks,
    Proposal,
    Ratification,
    RatifiedCommit,
    TableRecord,
)
from deltalog.errors import ConcurrentModificationError, ObjectBeingDeletedError, UnsafePathError
from deltalog.protocol.actions import AddFile, DeletionVector
from deltalog.protocol.deletion_vectors import file_of
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles

# A marking without an end was made by a process that has died, or by a process that is suspended and may still delete
# files later.
MARKING_AGE_MS = 24 * 60 * 60 * 1000
_TRIES = 20


class KnownMarks:
    """The markings of one table, as this process last read them. Thread-safe."""

    def __init__(self, coordinator: Coordinator, table_id: str) -> None:
        self._coordinator = coordinator
        self._table_id = table_id
        self._known = Marks()

    def refresh(self) -> None:
        """Cost: 1 coordinator call."""
        self._known = self._coordinator.marks(self._table_id)

    def check_named(self, table: str, paths: Iterable[str]) -> int:
        """Return the number of the table's last marking. Raises ObjectBeingDeletedError if a clean-up may be deleting
        one of these objects.

        Cost: usually none; 1 coordinator call before raising.
        """
        return self._compared(table, frozenset(paths)).last

    def check_added(self, store: LogStore, files: Callable[[], Mapping[str, int | None]]) -> int:
        """Like ``check_named``, for files that a commit adds, given with their sizes in bytes: files that a clean-up
        has deleted must have been written again. Cost: that of ``check_named``, and 1 HEAD per file that was deleted
        within a day."""
        known = self._known
        if not known.markings:
            return known.last
        added = files()
        known = self._compared(store.url, frozenset(added))
        for marking in known.markings.values():
            for path in added.keys() & marking.deleted:
                meta = store.head(path)
                if meta is None or added[path] not in (None, meta.size_bytes):
                    raise _being_deleted(store.url, path, marking, is_over=True)
        return known.last

    def _compared(self, table: str, paths: frozenset[str]) -> Marks:
        """The markings that the paths were checked against. They are a copy of one consistent state, because another
        thread may refresh the current markings at any time. Raises ObjectBeingDeletedError."""
        known = self._known
        if _deleting(known, paths) is not None:
            self.refresh()  # the clean-up may have ended by now
            known = self._known
            if (found := _deleting(known, paths)) is not None:
                raise _being_deleted(table, *found)
        return known


def live_marks(coordinator: Coordinator, table_id: str, now_ms: int) -> Marks:
    """The markings of a table. Deletes markings older than MARKING_AGE_MS. A marking whose time is further ahead of the
    clock than MARKING_AGE_MS, because some clock was wrong, is treated as a new marking. Cost: 1 coordinator call, and
    1 per such marking."""
    marks = coordinator.marks(table_id)
    live: dict[int, Marking] = {}
    for number, marking in marks.markings.items():
        if now_ms - marking.made_ms > MARKING_AGE_MS:
            coordinator.remark(table_id, number, None)
            continue
        live[number] = marking
        if marking.made_ms - now_ms > MARKING_AGE_MS:
            live[number] = replace(marking, made_ms=now_ms)
            coordinator.remark(table_id, number, live[number])
    return Marks(marks.last, live)


def check_none_deletes(coordinator: Coordinator, table: TableRecord, now_ms: int) -> int:
    """Check that a table can be dropped or released, and return the number of the table's last marking. Raises
    ObjectBeingDeletedError if a clean-up may be deleting its objects: if registered again, the table gets a new id, for
    which these markings are not checked. Cost: that of ``live_marks``."""
    live = live_marks(coordinator, table.table_id, now_ms)
    for marking in live.markings.values():
        for path in marking.deleting:
            raise ObjectBeingDeletedError(
                f"{table.name} cannot leave the catalog now: the clean-up of transaction {marking.transaction_id} may "
                f"be deleting objects of it, as {table.url}/{path}. Nothing was changed. Call again when the clean-up "
                "has ended; if its process died, wait 24 hours.",
                path=path,
                transaction_id=marking.transaction_id,
            )
    return live.last


def ratify_added(
    known: KnownMarks,
    coordinator: Coordinator,
    table_id: str,
    commit: RatifiedCommit,
    store: LogStore,
    files: Callable[[], Mapping[str, int | None]],
    documents: tuple[DocumentChange, ...] = (),
) -> Ratification:
    """Propose a single commit, which adds ``files``, with changes of ``documents``. Never returns MARKED.

    Raises the errors of ``Coordinator.ratify``; ObjectBeingDeletedError if the commit is not and will not be ratified.
    Cost: 1 coordinator call; 2 more, and that of ``KnownMarks.check_added``, if a clean-up has marked objects since.
    """
    for _ in range(_TRIES):
        try:
            last = known.check_added(store, files)
        except ObjectBeingDeletedError:
            head = coordinator.head(table_id)
            if head is not None and head.version >= commit.version:
                return Ratification.MOVED  # possibly by this commit itself, if it was proposed before
            raise
        decision = coordinator.ratify(Proposal({table_id: (commit,)}, marks={table_id: last}, documents=documents))
        if decision is not Ratification.MARKED:
            return decision
        known.refresh()
    raise ConcurrentModificationError(
        f"{store.url}: a clean-up marked objects before every attempt to ratify the commit. Nothing was committed; try "
        "again."
    )


def added_paths(files: TableFiles, adds: Iterable[AddFile]) -> dict[str, int | None]:
    """The paths of the added files that are below a table, with their sizes in bytes. The size is None for deletion
    vector files, because one such file contains several vectors."""
    found: dict[str, int | None] = {}
    for add in adds:
        for name, size in ((add.path, add.size), *((each, None) for each in vector_files(add.deletion_vector))):
            try:
                found[files.find(name)[1]] = size
            except UnsafePathError:
                continue  # the file is outside the table, where no clean-up deletes files
    return found


def vector_files(vector: DeletionVector | None) -> Iterator[str]:
    """The path of the file that contains a deletion vector, as spelled in the log; yields nothing for an inline
    vector."""
    named = file_of(vector)
    if named is not None:
        yield named


def _deleting(known: Marks, paths: frozenset[str]) -> tuple[str, Marking] | None:
    for marking in known.markings.values():
        for path in sorted(paths.intersection(marking.deleting)):
            return path, marking
    return None


def _being_deleted(table: str, path: str, marking: Marking, is_over: bool = False) -> ObjectBeingDeletedError:
    if marking.is_of_vacuum:
        doing = "was deleted by {0}, and has not been written again" if is_over else "may be being deleted by {0}"
        what = f"is older than the retention and {doing}"
    elif is_over:
        what = "was deleted by the clean-up of transaction {0}, which had named it, and has not been written again"
    else:
        what = "was named by transaction {0}, which is aborted, and its clean-up may be deleting it now"
    advice = (
        "Write it again, or use another name."
        if is_over
        else "Use another name, or call again when the clean-up has ended; if its process died, wait 24 hours."
    )
    return ObjectBeingDeletedError(
        f"{table}: the object {path} {what.format(marking.transaction_id)}. Nothing was changed. {advice}",
        path=path,
        transaction_id=marking.transaction_id,
    )
