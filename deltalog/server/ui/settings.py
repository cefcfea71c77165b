"""The settings of the pages for browsers. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UiSettings:
    """``enabled``: whether the server has pages for browsers at ``/ui/``. They show tables, versions, rows and commits
    to callers who may read them. For them, the server reads the rows of tables with its own access: of managed tables,
    and of external tables below the warehouse and ``readable`` of ``[unity]``. ``rows``: the maximum number of rows on
    a page."""

    enabled: bool = False
    rows: int = 100
