"""The settings of a Unity Catalog that an operator chooses. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MOST_UNPUBLISHED = 100


@dataclass(frozen=True, slots=True)
class UnitySettings:
    """``catalog``: the name under which the catalog is served. ``warehouse``: the location below which managed tables
    are created; None: clients cannot create any. ``most_unpublished``: how many ratified commits of a table may wait
    for publication before further ones are refused. ``readable``: the locations below which, besides the warehouse, the
    server reads the logs of external tables; it must be restricted, because clients choose the locations of external
    tables and the server reads with its own credentials."""

    catalog: str = "main"
    warehouse: str | None = None
    most_unpublished: int = MOST_UNPUBLISHED
    readable: tuple[str, ...] = ()
