"""What the logs of external tables say, for those that were registered without their protocol.

Who registers an external table chooses its location, and the server reads it with its own access. So only locations
that the operator named are read, and a log that was read, or could not be, is not read again at once.
"""

from __future__ import annotations

import collections
import logging
import os
import threading
from collections.abc import Iterable

import msgspec

from deltalog.addresses import handle_on_latest
from deltalog.environment import Environment
from deltalog.errors import CallError, DeltaLogError
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import canonical_url
from deltalog.storage.fs import local_root
from deltalog.table import DeltaTable
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity.documents import ExternalTable
from deltalog.unity import messages
from deltalog.unity.columns import to_columns
from deltalog.unity.table_state import TableState

log = logging.getLogger(__name__)

# For how long a state that was read is shown, and for how long a log is not read again that could not be read.
STATE_MS = 2_000
FAILURE_MS = 60_000
_MOST_KEPT = 1_000


class ExternalLogs:
    """Reads the logs of external tables below the locations ``prefixes``. Thread-safe."""

    def __init__(self, tables: ManagedTables, environment: Environment, prefixes: Iterable[str]) -> None:
        self._tables = tables
        self._environment = environment
        self._prefixes = tuple(_form(prefix) for prefix in prefixes if prefix)
        self._kept: collections.OrderedDict[str, tuple[TableState | None, int]] = collections.OrderedDict()
        self._lock = threading.Lock()

    def shown(self, table: ExternalTable) -> ExternalTable:
        """A Delta table that was registered without its protocol, with what its log says; unchanged if the log cannot
        be read, or may not be. Cost: that of ``load_latest``, unless the log was read just before."""
        if table.format != "DELTA" or table.protocol is not None or not self.may_read(table.url):
            return table
        state = self._state(table)
        if state is None:
            return table
        return msgspec.structs.replace(
            table,
            columns=to_columns(state.schema),
            column_infos=None,
            partition_columns=state.metadata.partition_columns,
            protocol=messages.TableProtocol.from_action(state.protocol),
            properties={**table.properties, **state.metadata.configuration},
            domain_metadata=dict(state.domains),
        )

    def opened(self, table: ExternalTable) -> DeltaTable:
        """A Delta table, to read its rows. Raises CallError if the table is of another format, or lies where the server
        may not read; what opening it raises. Cost: that of ``load_latest``."""
        root = local_root(table.url)
        if root is not None and os.path.realpath(root) != os.path.normpath(root):
            # Whoever may write to the directory above could otherwise make the server read another table.
            raise CallError(f"{table.name} is now reached through a symbolic link. Register it again.")
        if not self.may_read(table.url):
            raise CallError(
                f"The server may not read {table.name}: its location is neither below the warehouse nor below one of "
                "the locations of unity.readable."
            )
        if table.format != "DELTA":
            raise CallError(f"{table.name} is a table of the format {table.format}; the server reads Delta tables.")
        reader = LogReader(self._tables.plain_store(table.url), (), self._environment.clock_ms)
        return DeltaTable(handle_on_latest(reader, self._environment))

    def may_read(self, url: str) -> bool:
        """Whether a location is one of the prefixes, or lies below one."""
        place = _form(url)
        return any(place == prefix or place.startswith(f"{prefix}/") for prefix in self._prefixes)

    def _state(self, table: ExternalTable) -> TableState | None:
        now_ms = self._environment.clock_ms()
        with self._lock:
            kept = self._kept.get(table.url)
        if kept is not None and now_ms < kept[1]:
            return kept[0]
        try:
            snapshot = load_latest(LogReader(self._tables.plain_store(table.url)))
            state: TableState | None = TableState.of(
                snapshot.protocol, snapshot.metadata, snapshot.state.domains.values()
            )
            to_columns(state.schema)  # type: ignore[union-attr]
        except DeltaLogError as error:
            log.info("%s: the log of this external table cannot be read: %s", table.name, error)
            state = None
        until_ms = self._environment.clock_ms() + (FAILURE_MS if state is None else STATE_MS)
        with self._lock:
            self._kept[table.url] = state, until_ms
            self._kept.move_to_end(table.url)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return state


def _form(location: str) -> str:
    """A location in the form of those of external tables: without symbolic links on a local disk."""
    root = local_root(location)
    return (canonical_url(location) if root is None else os.path.realpath(root)).rstrip("/")
