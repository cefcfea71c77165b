"""A call decoded from its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.transactions.manager import TransactionManager


@dataclass(frozen=True, slots=True)
class Call:
    """``run`` executes the call and returns the members of the response. ``table``, ``transaction_id``: the table and
    transaction that the request names, if any; their lengths have been checked."""

    run: Callable[[TransactionManager], Mapping[str, Any]]
    table: str | None = None
    transaction_id: str | None = None
