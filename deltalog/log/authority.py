"""Authority: the log or the catalog, whichever determines which commits belong to a table. Pure.

Spec: PROTOCOL.md#catalog-managed-tables.
"""

from __future__ import annotations

import msgspec

from deltalog.errors import CallError


class Authority(msgspec.Struct, frozen=True):
    """Defines which commits of a table are valid. By default, the authority is the set of commit files in
    ``_delta_log``.

    ``catalog``: the URL of the catalog that decides which commits belong to the table; None if the table is not
    catalog-managed. ``branch``: the id of the multi-table transaction whose uncommitted changes are read too; None
    outside such a transaction. ``base_version``: the version on which these changes are based.
    ``is_served``: whether the catalog is a server whose API has no transactions over several tables.
    ``permits_maintenance``: whether the catalog permits its clients maintenance other than checkpoints, log compaction
    and checksums.
    """

    catalog: str | None = None
    branch: str | None = None
    base_version: int | None = None
    is_served: bool = False
    permits_maintenance: bool = True

    @property
    def is_log(self) -> bool:
        """Whether the table's commits are exactly the commit files in the log."""
        return self.catalog is None and self.branch is None

    def check_maintenance(self, operation: str, table: str) -> None:
        """Refuse a maintenance operation that the catalog does not permit. Raises CallError. Spec:
        PROTOCOL.md#maintenance-operations-on-catalog-managed-tables."""
        if not self.permits_maintenance:
            raise CallError(
                f"{table} is managed by the catalog {self.catalog}, and the protocol leaves {operation} to the catalog "
                "unless it permits clients to do it. Nothing was changed. If its owner permits it, open the table with "
                "unity_catalog_permits_maintenance=True."
            )


LOG = Authority()
