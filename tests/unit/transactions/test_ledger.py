"""The ledger: records change only as their state allows, and an overdue transaction ends when it is read."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import pytest

from deltalog import CallError
from deltalog.catalog import records
from deltalog.catalog.records import Call, Isolation, StatusFilter, TransactionStatus, TransactionType
from deltalog.errors import (
    ConcurrentModificationError,
    EntityNotFoundError,
    TransactionAbortedError,
    TransactionCommitInProgressError,
)
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.ledger import Ledger
from tests.support.transactions import Clock, Meddling, environment

IDLE_MS = 60_000


def ledger_of(coordinator: Any = None, clock: Clock | None = None) -> Ledger:
    return Ledger(coordinator or MemoryCoordinator(), environment(clock or Clock()), IDLE_MS)


def start(ledger: Ledger) -> Any:
    return ledger.start(TransactionType.READ_AND_WRITE, Isolation.SNAPSHOT)


def test_a_transaction_that_is_overdue_is_aborted_when_it_is_read() -> None:
    clock = Clock()
    ledger = ledger_of(clock=clock)
    record = start(ledger)
    clock.pass_(milliseconds=IDLE_MS - 1)
    assert ledger.current(record.id).status is TransactionStatus.ACTIVE
    clock.pass_(milliseconds=2)
    assert ledger.current(record.id).status is TransactionStatus.ABORTED
    kept = ledger.coordinator.transaction(record.id)
    assert kept is not None and kept.status is TransactionStatus.ABORTED
    with pytest.raises(TransactionAbortedError):
        ledger.allowed(record.id, Call.WRITE)


def test_a_transaction_that_was_never_started() -> None:
    with pytest.raises(EntityNotFoundError, match="no transaction"):
        ledger_of().current("00000000-0000-4000-8000-000000000000")


def test_a_change_notes_the_activity_and_keeps_parts() -> None:
    clock = Clock()
    ledger = ledger_of(clock=clock)
    record = start(ledger)
    clock.pass_(milliseconds=IDLE_MS - 1)
    changed = ledger.change(record.id, Call.WRITE, parts=lambda latest: {"change/x/0": b"1"})
    assert changed.revision == record.revision + 1 and ledger.coordinator.parts(record.id) == {"change/x/0": b"1"}
    clock.pass_(milliseconds=IDLE_MS - 1)
    assert ledger.current(record.id).status is TransactionStatus.ACTIVE


def test_a_change_that_another_process_was_faster_with_begins_again() -> None:
    inner = MemoryCoordinator()
    record = start(ledger_of(inner))
    other = ledger_of(inner)
    meddling = Meddling(inner, "put_parts", lambda: other.change(record.id, Call.EXTEND))
    revisions = []

    def parts(latest: Any) -> dict[str, bytes]:
        revisions.append(latest.revision)
        return {}

    changed = ledger_of(meddling).change(record.id, Call.WRITE, parts=parts, known=record)
    assert revisions == [record.revision, record.revision + 1] and changed.revision == record.revision + 2


def test_a_change_that_others_are_always_faster_with_ends() -> None:
    class Always(MemoryCoordinator):
        def put_parts(self, *arguments: Any) -> bool:
            return False

    ledger = ledger_of(Always())
    with pytest.raises(ConcurrentModificationError, match="at every attempt"):
        ledger.change(start(ledger).id, Call.WRITE)


def test_a_transaction_that_is_being_committed_is_not_changed() -> None:
    ledger = ledger_of()
    record = start(ledger)
    assert ledger.coordinator.replace(records.committing(record, ledger.now_ms()))
    with pytest.raises(TransactionCommitInProgressError):
        ledger.change(record.id, Call.WRITE)


def test_a_transaction_that_is_decided_stays_as_it_is() -> None:
    ledger = ledger_of()
    record = start(ledger)
    ended = records.aborted(record, "cancelled", ledger.now_ms())
    assert ledger.coordinator.replace(ended)
    assert ledger.change(record.id, Call.CANCEL, lambda latest: dataclasses.replace(latest, reason="other")) == ended


def test_pages_go_on_where_the_one_before_ended() -> None:
    clock = Clock()
    ledger = ledger_of(clock=clock)
    started = []
    for _ in range(5):
        started.append(start(ledger).id)
        clock.pass_(milliseconds=1)
    found, token, pages = [], None, 0
    while True:
        page, token = ledger.page(StatusFilter.ALL, 2, token)
        found += [record.id for record in page]
        pages += 1
        if token is None:
            break
    assert sorted(found) == sorted(started) and pages == 3
    assert sorted(record.id for record in ledger.all(StatusFilter.ACTIVE, at_once=2)) == sorted(started)


def test_a_token_is_of_one_listing_and_one_catalog() -> None:
    ledger = ledger_of()
    token = ledger.token("tables", 7, "a/b")
    assert ledger.place("tables", token) == (7, "a/b")
    with pytest.raises(CallError, match="another listing"):
        ledger.place("others", token)
    with pytest.raises(CallError, match="was not returned by a listing of this catalog"):
        ledger_of().place("tables", token)
    damaged = bytearray(base64.urlsafe_b64decode(token))
    damaged[-1] ^= 1
    for wrong in (base64.urlsafe_b64encode(bytes(damaged)).decode(), "no token", "é", ""):
        with pytest.raises(CallError, match="was not returned by a listing of this catalog"):
            ledger.place("tables", wrong)
