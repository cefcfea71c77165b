"""Authority: who decides which commits a table has. Pure.

Spec: PROTOCOL.md#catalog-managed-tables.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Authority:
    """By default, only the files in ``_delta_log`` decide.

    ``catalog``: the URL of the catalog that decides instead; None for a table without one. ``branch``: the id of the
    transaction over several tables whose uncommitted changes are read too; None outside such a transaction.
    ``base_version``: the version below these changes.
    """

    catalog: str | None = None
    branch: str | None = None
    base_version: int | None = None

    @property
    def is_log(self) -> bool:
        """Whether the commits are exactly the files in the log."""
        return self.catalog is None and self.branch is None


LOG = Authority()
