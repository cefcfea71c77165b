"""Deletes files that concurrent transactions may reference: marks the files in the catalog, checks which are in use,
and deletes the others. ``catalog.marks`` explains why this never deletes a file in use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from deltalog.catalog.marks import live_marks, vector_files
from deltalog.catalog.records import Marking, StatusFilter, TableRecord
from deltalog.errors import ConcurrentModificationError, DeltaLogError
from deltalog.transactions.ledger import Ledger
from deltalog.transactions.prepared_codec import added_files, written_files
from deltalog.transactions.transaction import CHANGES, OBJECTS

T = TypeVar("T")

log = logging.getLogger(__name__)

# The limits of one marking: the number of files, and the bytes of their paths. While a marking exists, transactions
# cannot use its files. If the process dies, the marking remains for a day.
_MARKED_AT_ONCE, _MARKED_BYTES = 500, 128 << 10
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Undecided:
    """The files and versions of a table that undecided transactions need. ``added``: the files that these transactions
    add, with the files of their deletion vectors; ``written``: all files that these transactions wrote; both as paths
    in the form used in the log. ``named``: the paths of objects that these transactions registered for deletion on
    cancel. ``pins``: the versions that these transactions read."""

    added: Set[str]
    written: Set[str]
    named: Set[str]
    pins: Set[int]


def undecided(ledger: Ledger, table_id: str) -> Undecided:
    """The files and versions of a table that undecided transactions need. Cost: 1 coordinator call per undecided
    transaction, and 1 per 1,000."""
    added, written, named, pins = set[str](), set[str](), set[str](), set[int]()
    changes, objects = f"{CHANGES}/{table_id}/", f"{OBJECTS}/{table_id}/"
    for record in ledger.all(StatusFilter.ACTIVE):
        if record.pins is not None and table_id in record.pins:
            pins.add(record.pins[table_id])
        for key, part in ledger.coordinator.parts(record.id).items():
            if key.startswith(changes):
                written.update(written_files(part))
                for add in added_files(part):
                    added.update((add.path, *vector_files(add.deletion_vector)))
            elif key.startswith(objects):
                named.add(key.removeprefix(objects))
    return Undecided(added, written, named, pins)


def mark(ledger: Ledger, table: TableRecord, marking: Marking) -> int:
    """Store a marking and return its number. Raises ConcurrentModificationError. Cost: 2 coordinator calls."""
    for number in range(_TRIES):
        ledger.environment.back_off(number)
        last = live_marks(ledger.coordinator, table.table_id, ledger.now_ms()).last
        if ledger.coordinator.mark(table.table_id, last + 1, marking):
            return last + 1
    raise ConcurrentModificationError(
        f"{table.url}: another clean-up marked objects before each attempt. Nothing was deleted; try again."
    )


def end_marking(ledger: Ledger, table: TableRecord, number: int, marking: Marking | None) -> None:
    """Record that a clean-up has ended, so that its marking is removed. If this call is not made, no transaction can
    use the marked files for a day."""
    for attempt in range(ledger.environment.retry.settle_attempts):
        ledger.environment.back_off(attempt)
        try:
            return ledger.coordinator.remark(table.table_id, number, marking)
        except DeltaLogError as error:
            log.warning("%s: marking %d could not be ended yet: %s", table.url, number, error)


def chunks(items: Sequence[T], path_of: Callable[[T], str]) -> Iterator[list[T]]:
    """Split items into chunks, each of which is small enough for one marking."""
    some, size = list[T](), 0
    for each in items:
        length = len(path_of(each).encode("utf-8", "surrogatepass"))
        if some and (len(some) == _MARKED_AT_ONCE or size + length > _MARKED_BYTES):
            yield some
            some, size = [], 0
        some.append(each)
        size += length
    if some:
        yield some
