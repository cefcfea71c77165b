"""Authority: the log or the catalog, whichever determines which commits belong to a table. Pure.

Spec: PROTOCOL.md#catalog-managed-tables.
"""

from __future__ import annotations

import msgspec

from deltalog.errors import CallError, CorruptTableError
from deltalog.protocol.actions import Metadata
from deltalog.protocol.properties import UNITY_TABLE_ID_KEY


class Authority(msgspec.Struct, frozen=True):
    """Defines which commits of a table are valid. By default, the authority is the set of commit files in
    ``_delta_log``.

    ``catalog``: the URL of the catalog that decides which commits belong to the table; None if the table is not
    catalog-managed. ``branch``: the id of the multi-table transaction whose uncommitted changes are read too; None
    outside such a transaction. ``base_version``: the version on which these changes are based.
    ``is_served``: whether the catalog is a server whose API has no transactions over several tables.
    ``permits_maintenance``: whether the catalog permits its clients maintenance other than checkpoints, log compaction
    and checksums. ``table_id``: the id by which the server of a Unity Catalog knows the table, which may be
    external, so that its log decides.
    """

    catalog: str | None = None
    branch: str | None = None
    base_version: int | None = None
    is_served: bool = False
    permits_maintenance: bool = True
    table_id: str | None = None

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

    def check_is_table(self, metadata: Metadata, table: str) -> None:
        """Refuse a log that, by its latest metadata, is that of another table of a Unity Catalog. Raises
        CorruptTableError. Spec: UC Delta API 1.0, ManagedTablesSpec.md#load-a-table."""
        found = metadata.configuration.get(UNITY_TABLE_ID_KEY)
        if (
            self.catalog is not None
            and self.table_id is not None
            and found is not None
            and found.lower() != self.table_id.lower()
        ):
            raise CorruptTableError(
                f"{table}: the catalog {self.catalog} says that this is the location of the table {self.table_id}, but "
                f"the log there is that of the table {found} ({UNITY_TABLE_ID_KEY}). Nothing was read or written. The "
                "catalog's entry has to be corrected, or the table be restored at its location."
            )


LOG = Authority()
