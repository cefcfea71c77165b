"""The transactions that a process has open, in bounded memory: those that have a holder, and the last ones used."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class OpenTransactions(Generic[T]):
    """See the module. Threads may share it. ``most``: how many are kept without a holder: another handle on one of
    them is made from the catalog, as in another process."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._held: weakref.WeakValueDictionary[str, T] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def setdefault(self, transaction_id: str, made: T) -> T:
        """The handle on a transaction: the one that is open, or else ``made``."""
        with self._lock:
            found = self._held.setdefault(transaction_id, made)
            self._kept[transaction_id] = found
            self._kept.move_to_end(transaction_id)
            dropped = self._kept.popitem(last=False) if len(self._kept) > self._most else None
        del dropped  # outside of the lock, since it may be the last reference to a handle
        return found

    def pop(self, transaction_id: str) -> None:
        """Forget a transaction that is decided."""
        with self._lock:
            dropped = self._held.pop(transaction_id, None), self._kept.pop(transaction_id, None)
        del dropped

    def ids(self) -> set[str]:
        """Those that are open."""
        with self._lock:
            return set(self._held.keys())
