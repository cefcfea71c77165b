"""The interface that an adapter implements to connect an engine to the conformance kit.

An adapter subclasses ``Engine`` and overrides the methods that its engine supports. The other methods raise
``NotSupported``, which skips the case.

An engine can run in an environment that has neither deltalog's dependencies nor pyarrow, so this module imports only
the standard library.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class NotSupported(Exception):
    """The engine lacks an operation. The message becomes the reason why the case is skipped."""


def utc(*, ms: int = 0, us: int = 0) -> datetime.datetime:
    """A timestamp in milliseconds or microseconds since the Unix epoch as an aware datetime, for the adapters of
    engines that take those."""
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return epoch + datetime.timedelta(milliseconds=ms, microseconds=us)


class Engine:
    """An engine under test. ``path`` is a local directory. Timestamps are in ms since the Unix epoch. Every call must
    reload the table, because the log may have changed.

    The rows that a method returns are a list of dictionaries, an object with ``__arrow_c_stream__``, such as a
    ``pyarrow.Table``, or a ``pathlib.Path`` of a Parquet file, which the caller reads and deletes.

    ``refusals``: the exceptions with which the engine refuses an operation; any other exception fails the case.
    ``lacks``: a regular expression for messages that say that the engine lacks a table feature; an exception with such
    a message skips the case. ``packages``: the distributions of Python whose versions results record.
    """

    name: str = "engine"
    version: str = ""
    refusals: tuple[type[BaseException], ...] = (Exception,)
    lacks: str = ""
    packages: tuple[str, ...] = ()

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        """The rows of the latest version, of a version number, or of the version at a timestamp."""
        raise NotSupported("reading")

    def rows_at_us(self, path: str, timestamp_us: int) -> Any:
        """The rows of the version at a timestamp in microseconds since the Unix epoch, which lies between two whole
        milliseconds."""
        raise NotSupported("reading at a time in microseconds")

    def tracked_rows(self, path: str, version: int | None = None) -> Any:
        """The rows of the latest version or of a version number, with two more columns: ``_row_id`` and
        ``_row_commit_version``, the stable row ids and row commit versions of row tracking."""
        raise NotSupported("reading row ids")

    def version_at(self, path: str, timestamp_ms: int) -> int:
        """The version that was current at a timestamp."""
        raise NotSupported("finding the version at a timestamp")

    def latest_version(self, path: str) -> int:
        raise NotSupported("reading the latest version number")

    def history(self, path: str) -> Mapping[int, int | None]:
        """The timestamps that time travel uses for the commits, keyed by version."""
        raise NotSupported("reading the history")

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        """The change data feed of an inclusive range: rows with ``_change_type``, ``_commit_version`` and
        ``_commit_timestamp``."""
        raise NotSupported("reading the change data feed")

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        """Create an empty table in a directory that does not exist."""
        raise NotSupported("creating a table with properties")

    def append(self, path: str, rows: pa.Table) -> None:
        raise NotSupported("appending")

    def append_once(self, path: str, rows: pa.Table, application: str, application_version: int) -> None:
        """Append with a transaction identifier. Rows are not written if the table has recorded this version of the
        application, or a later one."""
        raise NotSupported("appending with a transaction identifier")

    def overwrite(self, path: str, rows: pa.Table) -> None:
        """Replace all rows in one commit."""
        raise NotSupported("overwriting")

    def delete(self, path: str, where: str) -> None:
        """Delete the rows for which an SQL condition is true."""
        raise NotSupported("deleting by condition")

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        """Set table properties in one commit. None removes a property."""
        raise NotSupported("setting table properties")

    def set_type(self, path: str, column: str, type: str) -> None:
        """Widen a column or a field of a struct, given by its path with dots, to a primitive type, in one commit."""
        raise NotSupported("changing the type of a column")

    def restore(self, path: str, version: int) -> None:
        """Restore an earlier version in a new commit."""
        raise NotSupported("restoring a version")

    def restore_to_time(self, path: str, timestamp_ms: int) -> None:
        """Restore the version that was current at a timestamp, in a new commit."""
        raise NotSupported("restoring the version at a timestamp")

    def clone(self, path: str, target: str, shallow: bool, version: int | None = None) -> None:
        """Clone the latest version, or an earlier one, into the directory ``target``, which does not exist. A shallow
        clone refers to the files of its source, and a deep clone has copies."""
        raise NotSupported("cloning a table")

    def checkpoint(self, path: str) -> None:
        """Write a checkpoint of the latest version."""
        raise NotSupported("writing a checkpoint")

    def of_catalog(self, url: str, token: str | None) -> Engine:
        """Return an engine whose paths are the names of tables of the Unity Catalog at ``url``, of the form
        ``catalog.schema.table``."""
        raise NotSupported("tables of a Unity Catalog")

    def begin(self, path: str) -> Engine:
        """Return an engine with an open transaction on the current version: its next write to ``path`` is based on that
        version, and is committed after all commits that exist at the time of the write."""
        raise NotSupported("keeping a transaction open while another writer commits")
