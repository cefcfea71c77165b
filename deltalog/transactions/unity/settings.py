"""The settings of a Unity Catalog that an operator chooses. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MOST_UNPUBLISHED = 100


@dataclass(frozen=True, slots=True)
class UnitySettings:
    """``catalog``: the name under which the catalog is served. ``warehouse``: the location below which managed tables
    are created; without it, clients cannot create managed tables. ``most_unpublished``: how many ratified commits of a
    table may wait for publication; further commits are refused if publication fails. ``readable``: the locations below
    which, besides the warehouse, the server reads the logs of external tables. Clients choose the locations of external
    tables, but the server reads with its own credentials, so it reads nowhere else."""

    catalog: str = "main"
    warehouse: str | None = None
    most_unpublished: int = MOST_UNPUBLISHED
    readable: tuple[str, ...] = ()
