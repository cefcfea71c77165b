"""Helpers with the names that ``deltalake.writer._utils`` defines, because some programs import them."""

from __future__ import annotations

from pathlib import Path

from deltalog.deltalake.exceptions import TableNotFoundError
from deltalog.deltalake.table import DeltaTable


def try_get_table_and_table_uri(
    table_or_uri: str | Path | DeltaTable, storage_options: dict[str, str] | None = None
) -> tuple[DeltaTable | None, str]:
    """The table (None if it does not exist yet) and its location. Raises ValueError for anything else."""
    if isinstance(table_or_uri, DeltaTable):
        return table_or_uri, table_or_uri.table_uri
    if not isinstance(table_or_uri, (str, Path)):
        raise ValueError("table_or_uri must be a str, Path or DeltaTable")
    return try_get_deltatable(table_or_uri, storage_options), str(table_or_uri)


def try_get_deltatable(table_uri: str | Path, storage_options: dict[str, str] | None) -> DeltaTable | None:
    """The table at a location; None if no table exists there."""
    try:
        return DeltaTable(table_uri, storage_options=storage_options)
    except TableNotFoundError:
        return None
