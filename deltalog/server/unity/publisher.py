"""Publishes, in the background, the commits of tables whose clients do not publish them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from deltalog.errors import DeltaLogError
from deltalog.transactions.unity.tables import UnityTables

log = logging.getLogger(__name__)


class Publisher:
    """Publishes in one thread. A table that already waits is not added again."""

    def __init__(self, tables: UnityTables, begin: Callable[[], None] | None = None) -> None:
        """``begin``: called once in the publishing thread, before it publishes anything."""
        self._tables = tables
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="deltalog-publish", initializer=begin)
        self._waiting: set[str] = set()
        self._lock = threading.Lock()

    def ask(self, table_id: str) -> None:
        """Publish the commits of a table soon. Raises nothing."""
        with self._lock:
            if table_id in self._waiting:
                return
            self._waiting.add(table_id)
        try:
            self._pool.submit(self._publish, table_id)
        except RuntimeError:  # the server is being shut down
            return

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _publish(self, table_id: str) -> None:
        with self._lock:
            self._waiting.discard(table_id)
        try:
            record = self._tables.coordinator.table_with_id(table_id)
            if record is not None:
                self._tables.publish(record)
        except DeltaLogError as error:
            log.warning("the commits of the table %s are not published yet: %s", table_id, error)
        except Exception:
            log.exception("the publication of the table %s failed", table_id)
