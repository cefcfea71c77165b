"""The transactions of a catalog. Only this module changes the records of transactions, following the rules in
``records``.

No background process is needed: an overdue transaction is aborted by the next call that reads its record.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from deltalog import deadline
from deltalog.catalog import records
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import (
    Call,
    Isolation,
    StatusFilter,
    TransactionRecord,
    TransactionStatus,
    TransactionType,
)
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    ConcurrentModificationError,
    EntityNotFoundError,
    TransactionCommitInProgressError,
)

_TRIES = 20
_SEAL_BYTES = 16
_MOST_DIGITS = 18
# A page token: the listing that it continues, and the position in that listing, which consists of a time or version
# (within the range of the database's integers) and of an id or path.
_Token = tuple[str, Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)], str]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transaction. ``end_ms`` is set once the transaction has ended, and ``reason`` if it was
    aborted."""

    transaction_id: str
    status: TransactionStatus
    type: TransactionType
    start_ms: int
    end_ms: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """A page of transactions, oldest first, and the token of the next page, if any."""

    transactions: list[TransactionDescription]
    next_token: str | None


def description(record: TransactionRecord) -> TransactionDescription:
    return TransactionDescription(record.id, record.status, record.type, record.start_ms, record.end_ms, record.reason)


class Ledger:
    """The transactions of a catalog. ``idle_timeout_ms``: the idle timeout of transactions that this ledger starts; the
    record of each transaction contains its own. All methods raise CoordinatorError and OperationTimeoutError."""

    def __init__(self, coordinator: Coordinator, environment: Environment, idle_timeout_ms: int) -> None:
        self.coordinator = coordinator
        self.environment = environment
        self._idle_timeout_ms = idle_timeout_ms

    def now_ms(self) -> int:
        return self.environment.clock_ms()

    def start(self, kind: TransactionType, isolation: Isolation, starter: str | None = None) -> TransactionRecord:
        """``starter``: as for ``records.id_for``. Cost: 1 coordinator call."""
        while True:
            new = records.id_for(self.environment.new_uuid(), starter)
            record = records.started(new, kind, self.now_ms(), isolation, self._idle_timeout_ms)
            if self.coordinator.insert(record):
                return record

    def current(self, transaction_id: str) -> TransactionRecord:
        """The current record; an overdue transaction is aborted first. Raises CallError, EntityNotFoundError.

        Cost: usually 1 coordinator call.
        """
        checked = records.check_transaction_id(transaction_id)
        record = self.coordinator.transaction(checked)
        if record is None:
            raise EntityNotFoundError(f"The catalog {self.coordinator.url} has no transaction {checked}.")
        return self.settled(record)

    def allowed(self, transaction_id: str, call: Call) -> TransactionRecord:
        """Like ``current``, but raises unless the transaction's state allows the call; see
        ``records.check_allowed``."""
        record = self.current(transaction_id)
        records.check_allowed(record, call)
        return record

    def settled(self, record: TransactionRecord) -> TransactionRecord:
        """The record of the transaction, which is first aborted if it is overdue. Cost: usually none."""
        while (reason := records.overdue(record, self.now_ms(), self._idle_timeout_ms)) is not None:
            ended = records.aborted(record, reason, self.now_ms())
            if self.coordinator.replace(ended):
                return ended
            found = self.coordinator.transaction(record.id)
            if found is None:
                return ended
            record = found
        return record

    def change(
        self,
        transaction_id: str,
        call: Call,
        change: Callable[[TransactionRecord], TransactionRecord] | None = None,
        parts: Callable[[TransactionRecord], Mapping[str, bytes]] = lambda record: {},
        known: TransactionRecord | None = None,
        marks: Callable[[int], Mapping[str, int]] | None = None,
    ) -> TransactionRecord:
        """Replace the transaction's record with the result of ``change`` (by default, update the last activity) and
        store new parts of the transaction, if its state allows the call. Retries if another call changed the record
        first. The record of a decided transaction is not changed. ``known``: the record that was read last, which the
        first attempt uses. ``marks``: for an attempt number, returns for each table the last marking against which the
        parts were checked.

        Raises the errors of ``allowed``, and ConcurrentModificationError. Cost: usually 2 coordinator calls; 1 if the
        record is known.
        """
        for number in range(_TRIES):
            self.environment.back_off(number)
            record = self.current(transaction_id) if known is None else self.settled(known)
            known = None
            records.check_allowed(record, call)
            if record.status.is_final:
                return record
            if record.status is TransactionStatus.COMMIT_IN_PROGRESS:
                raise TransactionCommitInProgressError(
                    f"Transaction {transaction_id} is being committed: it is too late for {call.value}.",
                    transaction_id=transaction_id,
                )
            changed = records.touched(record, self.now_ms()) if change is None else change(record)
            kept, compared = parts(record), {} if marks is None else marks(number)
            if self.coordinator.put_parts(changed, kept, compared):
                return changed
        raise ConcurrentModificationError(
            f"Transaction {transaction_id} was changed by other calls at every attempt; {call.value} had no effect. "
            "Repeat it."
        )

    # ------------------------------------------------------------------------------------------- listings

    def all(self, wanted: StatusFilter, at_once: int = 1000) -> Iterator[TransactionRecord]:
        """All transaction records whose state is one of the given states. Cost: 1 coordinator call per ``at_once``
        records."""
        after = None
        while page := self.coordinator.transactions(wanted.statuses, after, at_once):
            deadline.check(self.coordinator.url)
            yield from page
            after = page[-1].key

    def uncleaned(self) -> Iterator[TransactionRecord]:
        """Decided transactions that may have left files or records behind. Cost: 1 coordinator call, and 1 per
        1,000."""
        after = None
        while page := self.coordinator.uncleaned(after):
            deadline.check(self.coordinator.url)
            yield from page
            after = page[-1].key

    def page(
        self, wanted: StatusFilter, max_results: int, token: str | None, starter: str | None = None
    ) -> tuple[list[TransactionRecord], str | None]:
        """The records of the page that ``token`` identifies, and the token of the next page; None after the last page.
        ``starter``: list only the transactions that were started for this principal; None: all.

        Raises CallError if the token belongs to another catalog or filter. Cost: 1 coordinator call; with a starter, 1
        per 1,000 transactions.
        """
        after = None if token is None else self.place(wanted.value, token)
        if after is not None:
            records.check_transaction_id(after[1])
        if starter is None:
            found = self.coordinator.transactions(wanted.statuses, after, max_results)
        else:
            found = self._started_for(starter, wanted, after, max_results)
        # Reading an overdue transaction aborts it, and then it may no longer match the filter.
        shown = [record for record in map(self.settled, found) if record.status in wanted.statuses]
        return shown, self.token(wanted.value, *found[-1].key) if len(found) == max_results else None

    def _started_for(
        self, starter: str, wanted: StatusFilter, after: tuple[int, str] | None, limit: int
    ) -> list[TransactionRecord]:
        found: list[TransactionRecord] = []
        while len(found) < limit and (page := self.coordinator.transactions(wanted.statuses, after)):
            found += (record for record in page if records.is_started_for(record.id, starter))
            after = page[-1].key
        return found[:limit]

    def token(self, listing: str, number: int, text: str) -> str:
        """Encode the position at which a listing continues. The seal makes it possible to detect damaged tokens and
        tokens of other catalogs. The seal does not prevent forgery, because its key, the id of the catalog, is not
        secret."""
        body = msgspec.json.encode((listing, number, text))
        return base64.urlsafe_b64encode(self._seal(body) + body).decode()

    def place(self, listing: str, token: str) -> tuple[int, str]:
        """The inverse of ``token``. Raises CallError if it belongs to another catalog or listing."""
        try:
            data = base64.urlsafe_b64decode(token.encode("ascii"))
            seal, body = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
            if not hmac.compare_digest(seal, self._seal(body)):
                raise ValueError("another seal")
            found, number, text = msgspec.json.decode(body, type=_Token)
        except (ValueError, TypeError, AttributeError):
            raise CallError("The token was not returned by a listing of this catalog.") from None
        if found != listing:
            raise CallError("The token belongs to another listing: pass it with the arguments of the first call.")
        return number, text

    def numbers(self, listing: str, token: str) -> tuple[int, int]:
        """Like ``place``, for a position that consists of two numbers; a forged token may have something else."""
        number, text = self.place(listing, token)
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            raise CallError("The token was not returned by a listing of this catalog.")
        return number, int(text)

    def _seal(self, body: bytes) -> bytes:
        return hmac.digest(self.coordinator.catalog_id.encode(), body, "sha256")[:_SEAL_BYTES]
