"""Authority: the log or the catalog, whichever determines which commits belong to a table. Pure.

Spec: PROTOCOL.md#catalog-managed-tables.
"""

from __future__ import annotations

import msgspec


class Authority(msgspec.Struct, frozen=True):
    """Defines which commits of a table are valid. By default, the authority is the set of commit files in
    ``_delta_log``.

    ``catalog``: the URL of the catalog that decides which commits belong to the table; None if the table is not
    catalog-managed. ``branch``: the id of the multi-table transaction whose uncommitted changes are read too; None
    outside such a transaction. ``base_version``: the version on which these changes are based.
    """

    catalog: str | None = None
    branch: str | None = None
    base_version: int | None = None

    @property
    def is_log(self) -> bool:
        """Whether the table's commits are exactly the commit files in the log."""
        return self.catalog is None and self.branch is None


LOG = Authority()
