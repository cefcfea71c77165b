"""The interface between the conformance kit and an engine: what an adapter implements.

An adapter is a subclass of ``Engine`` with the calls that its engine has. The others raise ``NotSupported``, by which a
case is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa


class NotSupported(Exception):
    """The engine has no such call; the message says why, and becomes the reason of the skipped case."""


class Engine:
    """An engine under test. ``path`` is a directory on a local disk. Rows are anything with ``__arrow_c_stream__``, as
    a ``pyarrow.Table`` has it. Timestamps are ms since the Unix epoch. A table is read anew in each call: the log may
    have changed since the last one.

    ``refusals``: the errors by which the engine refuses; any other error fails the case. ``lacks``: a regular
    expression; an error whose text it matches says that the engine does not support a table feature, and the case is
    skipped.
    """

    name: str = "engine"
    version: str = ""
    refusals: tuple[type[BaseException], ...] = (Exception,)
    lacks: str = ""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        """The rows of a version: the latest, that of a number, or that of a point in time."""
        raise NotSupported("reading")

    def version_at(self, path: str, timestamp_ms: int) -> int:
        """The version that was current at a point in time."""
        raise NotSupported("finding the version at a point in time")

    def latest_version(self, path: str) -> int:
        raise NotSupported("reading the number of the latest version")

    def history(self, path: str) -> Mapping[int, int | None]:
        """The timestamp of each commit by its version, as time travel uses them."""
        raise NotSupported("reading the history")

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        """The change data feed of a range, both ends included: the rows with ``_change_type``, ``_commit_version`` and
        ``_commit_timestamp``."""
        raise NotSupported("reading the change data feed")

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        """Create an empty table in a directory that does not exist."""
        raise NotSupported("creating a table with properties")

    def append(self, path: str, rows: pa.Table) -> None:
        raise NotSupported("appending")

    def overwrite(self, path: str, rows: pa.Table) -> None:
        """Replace all rows in one commit."""
        raise NotSupported("overwriting")

    def delete(self, path: str, where: str) -> None:
        """Delete the rows for which a condition in SQL is true."""
        raise NotSupported("deleting by a condition")

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        """Set table properties in one commit; None removes one."""
        raise NotSupported("setting table properties")

    def restore(self, path: str, version: int) -> None:
        """Restore an earlier version in a new commit."""
        raise NotSupported("restoring a version")

    def checkpoint(self, path: str) -> None:
        """Write a checkpoint of the latest version."""
        raise NotSupported("writing a checkpoint")

    def begin(self, path: str) -> Engine:
        """The engine with a transaction on the version that is the latest now: the next call that writes to ``path``
        is prepared on that version, and committed after all commits that exist by then."""
        raise NotSupported("keeping a transaction open while another writer commits")
