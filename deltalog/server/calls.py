"""A call that was read from its request: what it needs of it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.transactions.manager import TransactionManager


@dataclass(frozen=True, slots=True)
class Call:
    """``run``: carries it out, and returns the members of the response. ``table`` and ``transaction_id``: what it names
    of these, with checked lengths."""

    run: Callable[[TransactionManager], Mapping[str, Any]]
    table: str | None = None
    transaction_id: str | None = None
