"""Keeps the open transactions of a process in bounded memory: all transactions that are in use, and the most recently
used of the others."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class OpenTransactions(Generic[T]):
    """The open transactions of a process. Thread-safe. ``most``: the maximum number of unused handles that are kept. If
    a transaction is used again after its handle was discarded, a new handle is created from the catalog, as in another
    process."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._held: weakref.WeakValueDictionary[str, T] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def setdefault(self, transaction_id: str, made: T) -> T:
        """The open handle of a transaction. If no handle is open, ``made`` is stored and returned."""
        with self._lock:
            found = self._held.setdefault(transaction_id, made)
            self._kept[transaction_id] = found
            self._kept.move_to_end(transaction_id)
            dropped = self._kept.popitem(last=False) if len(self._kept) > self._most else None
        del dropped  # outside the lock, because this may drop the last reference to a handle
        return found

    def pop(self, transaction_id: str) -> None:
        """Remove a decided transaction."""
        with self._lock:
            dropped = self._held.pop(transaction_id, None), self._kept.pop(transaction_id, None)
        del dropped

    def ids(self) -> set[str]:
        """The ids of open transactions."""
        with self._lock:
            return set(self._held.keys())
