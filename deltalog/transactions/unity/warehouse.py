"""The location of managed tables, which the catalog owns."""

from __future__ import annotations

from deltalog.catalog import records
from deltalog.errors import CallError
from deltalog.protocol.paths import canonical_url

# The directory of managed tables below the warehouse.
_MANAGED = "__unitystorage/tables"


class Warehouse:
    """The location below which managed tables are created. ``root``: its canonical form; None: there is none."""

    def __init__(self, root: str | None) -> None:
        self.root = root

    def managed_root(self) -> str:
        assert self.root is not None
        return f"{self.root.rstrip('/')}/{_MANAGED}"

    def owns(self, url: str) -> bool:
        """Whether the catalog owns the files at a location, because it is below the directory in which this server
        creates managed tables.
        """
        if self.root is None:
            return False
        base = f"{self.managed_root()}/"
        return url.startswith(base) and "/" not in url[len(base) :]

    def check_outside(self, url: str, shown: str) -> None:
        """Check that an external location neither contains nor is inside the directory of managed tables. Raises
        CallError. Cost: none.
        """
        if self.root is not None and records.are_nested(canonical_url(url), self.managed_root()):
            raise CallError(f"{shown} is inside the location for managed tables, or contains it.")
