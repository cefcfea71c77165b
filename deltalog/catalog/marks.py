"""Decides who may use an object that an aborted transaction left: its clean-up, or a transaction that names or adds it
again; never both.

A clean-up *marks* objects in the catalog, then checks which of them are in use, and then deletes the others. A
transaction that names or adds objects checks them against the markings, and the catalog accepts that only if no marking
was made since. So either the clean-up sees the use, or the transaction sees the marking. An object that a clean-up has
deleted may be added again once it was written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import Marking, Marks, Proposal, Ratification, RatifiedCommit, TableRecord
from deltalog.errors import ConcurrentModificationError, ObjectBeingDeletedError, UnsafePathError
from deltalog.protocol.actions import AddFile, DeletionVector
from deltalog.protocol.deletion_vectors import file_of
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles

# A marking without an end is of a process that died, or that is suspended and may still delete when it resumes.
MARKING_AGE_MS = 24 * 60 * 60 * 1000
_TRIES = 20


class KnownMarks:
    """The markings of one table, as last read by this process. Threads may share it."""

    def __init__(self, coordinator: Coordinator, table_id: str) -> None:
        self._coordinator = coordinator
        self._table_id = table_id
        self._known = Marks()

    def refresh(self) -> None:
        """Cost: 1 call of the coordinator."""
        self._known = self._coordinator.marks(self._table_id)

    def check_named(self, table: str, paths: Iterable[str]) -> int:
        """The number of the last marking, if no clean-up is deleting any of these objects. Raises
        ObjectBeingDeletedError.

        Cost: none, as a rule; 1 call of the coordinator before it refuses one.
        """
        return self._compared(table, frozenset(paths)).last

    def check_added(self, store: LogStore, files: Callable[[], Mapping[str, int | None]]) -> int:
        """As ``check_named``, for files that a commit adds, with their sizes in bytes: those that a clean-up has
        deleted must be there again. Cost: as that, and 1 HEAD for each that was deleted within a day."""
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
        """The markings that some paths were compared with, all of one moment: another thread may refresh what is known
        at any time. Raises ObjectBeingDeletedError."""
        known = self._known
        if _deleting(known, paths) is not None:
            self.refresh()  # it may be over by now
            known = self._known
            if (found := _deleting(known, paths)) is not None:
                raise _being_deleted(table, *found)
        return known


def live_marks(coordinator: Coordinator, table_id: str, now_ms: int) -> Marks:
    """The markings of a table. Deletes those older than MARKING_AGE_MS; one whose time is more than that ahead of the
    clock, since a clock was wrong, counts as made now. Cost: 1 call of the coordinator, and 1 for each of those."""
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
    """The last marking of a table that is to be dropped or released, if no clean-up may be deleting objects of it. If
    registered again, the table has another id, for which these markings are not checked. Raises
    ObjectBeingDeletedError. Cost: as ``live_marks``."""
    live = live_marks(coordinator, table.table_id, now_ms)
    for marking in live.markings.values():
        for path in marking.deleting:
            raise ObjectBeingDeletedError(
                f"{table.name} cannot leave the catalog now: the clean-up of transaction {marking.transaction_id} may "
                f"be deleting objects of it, as {table.url}/{path}. Nothing was changed. Call again when the clean-up "
                "is over (after 24 hours if its process died).",
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
) -> Ratification:
    """Propose one commit of one table, which adds ``files``; never returns MARKED.

    Raises as ``Coordinator.ratify``; ObjectBeingDeletedError when it is not and will not be ratified. Cost: 1 call of
    the coordinator; 2 more, and as ``KnownMarks.check_added``, where a clean-up has marked objects since.
    """
    for _ in range(_TRIES):
        try:
            last = known.check_added(store, files)
        except ObjectBeingDeletedError:
            head = coordinator.head(table_id)
            if head is not None and head.version >= commit.version:
                return Ratification.MOVED  # perhaps to this very commit, if it was proposed before
            raise
        decision = coordinator.ratify(Proposal({table_id: (commit,)}, marks={table_id: last}))
        if decision is not Ratification.MARKED:
            return decision
        known.refresh()
    raise ConcurrentModificationError(
        f"{store.url}: a clean-up marked objects before each attempt to ratify the commit. Nothing was committed; try "
        "again."
    )


def added_paths(files: TableFiles, adds: Iterable[AddFile]) -> dict[str, int | None]:
    """The files below a table that add actions name, as they are in its store, with their sizes; None for those of
    deletion vectors, which hold several."""
    found: dict[str, int | None] = {}
    for add in adds:
        for name, size in ((add.path, add.size), *((each, None) for each in vector_files(add.deletion_vector))):
            try:
                found[files.find(name)[1]] = size
            except UnsafePathError:
                continue  # it is outside of the table, where no clean-up deletes
    return found


def vector_files(vector: DeletionVector | None) -> Iterator[str]:
    """The file of a deletion vector, as a log names it; none for an inline one."""
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
        "Write it again, or give it another name."
        if is_over
        else "Use another name, or call again when the clean-up is over (after 24 hours if its process died)."
    )
    return ObjectBeingDeletedError(
        f"{table}: the object {path} {what.format(marking.transaction_id)}. Nothing was changed. {advice}",
        path=path,
        transaction_id=marking.transaction_id,
    )
