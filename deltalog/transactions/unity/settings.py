"""What an operator chooses for the tables of a Unity Catalog. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MOST_UNPUBLISHED = 100


@dataclass(frozen=True, slots=True)
class UnitySettings:
    """``catalog``: the name under which the catalog is served. ``warehouse``: the location below which managed tables
    are created; without one, clients cannot create any. ``most_unpublished``: how many ratified commits of a table may
    wait for publication before further ones are refused. ``readable``: the locations below which, beside the warehouse,
    the logs of external tables are read: clients choose these locations, and the server reads with credentials of its
    own."""

    catalog: str = "main"
    warehouse: str | None = None
    most_unpublished: int = MOST_UNPUBLISHED
    readable: tuple[str, ...] = ()
