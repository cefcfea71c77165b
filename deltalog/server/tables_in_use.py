"""Records, in bounded memory, which tables each transaction has used through this server. Pure."""

from __future__ import annotations

from collections import OrderedDict

# The maximum number of tables to list per transaction.
_MOST_TABLES = 100


class TablesInUse:
    """For each transaction, the tables that it has used. Beyond ``most_bytes``, the least recently used transactions
    are forgotten."""

    def __init__(self, most_bytes: int = 4 << 20) -> None:
        self._most_bytes = most_bytes
        self._tables: OrderedDict[str, frozenset[str]] = OrderedDict()
        self.size_bytes = 0

    def add(self, transaction_id: str, table: str) -> None:
        """Record the use of a table. The caller must have checked the lengths of both arguments."""
        tables = self._tables.pop(transaction_id, frozenset())
        self.size_bytes -= _size_bytes(transaction_id, tables)
        if len(tables) < _MOST_TABLES:
            tables |= {table}
        self._tables[transaction_id] = tables
        self.size_bytes += _size_bytes(transaction_id, tables)
        while self.size_bytes > self._most_bytes:
            self.size_bytes -= _size_bytes(*self._tables.popitem(last=False))

    def of(self, transaction_id: str) -> str | None:
        """The tables of a transaction as one string; None if the tables are unknown, or too many to list."""
        tables = self._tables.get(transaction_id, frozenset())
        return ", ".join(sorted(tables)) if 0 < len(tables) < _MOST_TABLES else None


def _size_bytes(transaction_id: str, tables: frozenset[str]) -> int:
    """The approximate size of an entry: four bytes per character plus the overhead of Python strings."""
    if not tables:
        return 0
    return 300 + 4 * len(transaction_id) + sum(100 + 4 * len(table) for table in tables)
