"""A lease that decides which of a catalog's servers runs recovery.

Recovery is safe at any time and in any number of processes. The lease only avoids repeated work: without it, the
catalog would be listed once per interval by every server. The lease is a document of the catalog which its holder
changes at each recovery. Another server takes the lease over when the document has not changed for ``seconds`` by that
server's own monotonic clock, so that the clocks of the machines need not agree.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import DocumentChange
from deltalog.errors import DeltaLogError

log = logging.getLogger(__name__)

LEASE = ("lease", "recovery")


class RecoveryLease:
    """One server's view of the lease. ``seconds``: how long the document must have been unchanged before another
    server takes the lease over. Not thread-safe."""

    def __init__(
        self, coordinator: Coordinator, seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._coordinator = coordinator
        self._seconds = seconds
        self._monotonic = monotonic
        self._holder = str(uuid.uuid4())
        self._seen: tuple[str, int] | None = None
        self._since = 0.0

    def take(self) -> bool:
        """Take or renew the lease. Returns whether this server has it now. Raises CoordinatorError. Cost: 1 coordinator
        call, and 1 more if the lease is this server's or can be taken.
        """
        found = self._coordinator.document(*LEASE)
        if found is None:
            return self._put(0)
        if found.content != self._holder:
            now, seen = self._monotonic(), (found.content, found.revision)
            if seen != self._seen:
                self._seen, self._since = seen, now
            if now - self._since < self._seconds:
                return False
        return self._put(found.revision)

    def look(self) -> None:
        """Start to measure for how long the lease stays unchanged. Raises nothing. Cost: 1 coordinator call."""
        try:
            found = self._coordinator.document(*LEASE)
        except DeltaLogError as error:
            log.warning("the recovery lease could not be read: %s", error)
            return
        if found is not None:
            self._seen, self._since = (found.content, found.revision), self._monotonic()

    def give_up(self) -> None:
        """Give the lease up, so that another server can take it without waiting. Raises nothing. Cost: 1 coordinator
        call, and 1 more if the lease is this server's.
        """
        try:
            found = self._coordinator.document(*LEASE)
            if found is not None and found.content == self._holder:
                self._coordinator.change_documents([DocumentChange(*LEASE, found.revision, None)])
        except DeltaLogError as error:
            log.info("the recovery lease could not be given up; another server will take it over later: %s", error)

    def _put(self, revision: int) -> bool:
        return self._coordinator.change_documents([DocumentChange(*LEASE, revision, self._holder)])
