"""A table of a Unity Catalog: what the server last said about it, and what this process has published of it.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#load-a-table, #publishing-and-backfill.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from deltalog.catalog.records import Head
from deltalog.environment import Environment
from deltalog.errors import TableNotFoundError, TableReplacedError
from deltalog.unity import messages, rules
from deltalog.unity.calls import TableCalls
from deltalog.unity.names import TableName

# How long the first read of a table's log may use the state that was read when the table was opened.
_FRESH_MS = 2_000


class UnityTable:
    """The head of a table, read from a server; see HeadSource. Thread-safe; can be pickled.

    ``calls``: sends the calls for this table to the server. ``table_id``: the table's uuid, which identifies it.
    ``loaded``: its state, if it was just read. ``staging``: what the server has said about a table that is still to be
    created.
    """

    if_behind = (
        "The server may have read from a lagging replica of its database. Reading again may show the latest version."
    )
    if_log_is_ahead = "Another program may have written to the log by its path, which the catalog does not allow."
    to_publish = "Publish the remaining commits first: the next commit through the catalog does that."

    def __init__(
        self,
        calls: TableCalls,
        table_id: str,
        loaded: messages.LoadedTable | None = None,
        clock_ms: Callable[[], int] | None = None,
        *,
        staging: messages.StagingTable | None = None,
    ) -> None:
        self.calls = calls
        self.table_id = table_id
        self.url = calls.url
        self._clock_ms = Environment().clock_ms if clock_ms is None else clock_ms
        self._lock = threading.Lock()
        self._loaded = loaded
        self._fresh_until_ms = None if loaded is None else self._clock_ms() + _FRESH_MS
        self._published = self._reported = -1
        #: Whether the table is new: not known to be in the catalog yet.
        self.is_new = staging is not None
        self.staging = staging
        #: Whether the request that creates a new table was sent, so that the table may exist.
        self.may_exist = False

    def __reduce__(self) -> tuple[Any, ...]:
        return UnityTable, (self.calls, self.table_id)

    @property
    def name(self) -> TableName:
        """The name under which the table was opened."""
        return self.calls.name

    def head(self, table_id: str) -> Head:
        """The current head of the table. Raises TableNotFoundError, TableReplacedError, CatalogRequestError,
        CoordinatorError. Cost: 1 request; none for the first call after the table was opened."""
        with self._lock:
            fresh_until_ms, self._fresh_until_ms = self._fresh_until_ms, None
            loaded = self._loaded
        if self.is_new and not self.may_exist:
            return Head(-1)
        if loaded is None or fresh_until_ms is None or self._clock_ms() > fresh_until_ms:
            try:
                loaded = self.reload()
            except TableNotFoundError:
                if not self.is_new:
                    raise
                return Head(-1)
        return rules.head_of(loaded, self.url, self._published)

    def known_head(self) -> Head | None:
        """The head as last read. Cost: none."""
        loaded = self._loaded
        return None if loaded is None else rules.head_of(loaded, self.url, self._published)

    def reload(self) -> messages.LoadedTable:
        """The state of the table. Raises and costs as ``head``."""
        loaded = self.calls.load()
        self.record(loaded)
        return loaded

    def record(self, loaded: messages.LoadedTable) -> None:
        """Record a state that the server has sent. Raises TableReplacedError if it is that of another table, and
        CatalogRequestError if it contradicts itself."""
        self.check_is_this(loaded)
        rules.head_of(loaded, self.url)
        with self._lock:
            known = -1 if self._loaded is None else self._loaded.latest_table_version or 0
            if (loaded.latest_table_version or 0) >= known:
                self._loaded = loaded
                self.is_new = False

    def check_is_this(self, loaded: messages.LoadedTable) -> None:
        """Raise TableReplacedError for the state of another table. Cost: none."""
        if loaded.metadata.table_uuid.lower() != self.table_id.lower():
            version = 0 if self._loaded is None else self._loaded.latest_table_version or 0
            raise TableReplacedError(
                f"{self.name.address} is another table now, {loaded.metadata.table_uuid}: the table that was opened, "
                f"{self.table_id}, was dropped or renamed. Nothing was committed. Open the table again; repeat the "
                "call if it is meant for the new table.",
                version=version,
            )

    def record_accepted(self, commit: messages.Commit) -> None:
        """Record a commit that the server has accepted with a response that does not contain the new state. Cost:
        none."""
        with self._lock:
            loaded = self._loaded
            if loaded is not None and loaded.latest_table_version == commit.version - 1:
                self._loaded = msgspec.structs.replace(
                    loaded, latest_table_version=commit.version, commits=(commit, *(loaded.commits or ()))
                )

    def etag(self, version: int) -> str | None:
        """The etag of the metadata as of ``version``, if that is the version last read. Cost: none."""
        loaded = self._loaded
        if loaded is None or loaded.latest_table_version != version:
            return None
        return loaded.metadata.etag or None

    # ---------------------------------------------------------------------------------------------- publication

    def note_published(self, version: int) -> None:
        """Record that this process knows all commits up to ``version`` to be in ``_delta_log``, durably. Cost: none."""
        with self._lock:
            self._published = max(self._published, version)

    def unreported(self) -> int | None:
        """The version up to which commits are published but not yet reported; None if there is none. Cost: none."""
        with self._lock:
            return self._published if self._published > self._reported else None

    def note_reported(self, version: int | None) -> None:
        """Record that the server knows of the publication up to ``version``. Cost: none."""
        if version is not None:
            with self._lock:
                self._reported = max(self._reported, version)
