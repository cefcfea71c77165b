"""A call decoded from its request, and the request itself."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deltalog.server.access.guard import Guard
from deltalog.server.fields import Fields
from deltalog.transactions.manager import TransactionManager


class Needs(enum.Enum):
    """What a call may wait for: only the catalog; the catalog and the store of one table; or the catalog and the stores
    of all tables of a transaction."""

    CATALOG = "catalog"
    TABLE = "table"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a call: the manager, and the guard, which checks the rights of the caller."""

    manager: TransactionManager
    guard: Guard


@dataclass(frozen=True, slots=True)
class Call:
    """``run`` executes the call and returns the body of the response, None for a response without a body. ``table``,
    ``transaction_id``: the table and transaction that the request names, if any; their lengths have been checked."""

    run: Callable[[Context], Any]
    table: str | None = None
    transaction_id: str | None = None


class Request:
    """A request whose path has been found. ``said``: the texts that the caller sent and that were read."""

    def __init__(self, body: bytes | bytearray, query: bytes) -> None:
        self.body = body
        self.query = query
        self._fields: Fields | None = None

    @property
    def fields(self) -> Fields:
        """The body as members. Raises as ``Fields``."""
        if self._fields is None:
            self._fields = Fields(self.body)
            self.body = b""
        return self._fields

    @property
    def said(self) -> Sequence[str]:
        return self._fields.said if self._fields is not None else (self.query.decode("latin-1"),)
