"""write_deltalake: rows into a table, which is created if there is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from deltalog.deltalake import creation
from deltalog.deltalake.arrow import taken_stream
from deltalog.deltalake.exceptions import translated
from deltalog.deltalake.table import DeltaTable
from deltalog.deltalake.transaction import CommitProperties, PostCommitHookProperties
from deltalog.deltalake.writer._utils import try_get_table_and_table_uri
from deltalog.deltalake.writer_properties import WriterProperties, file_options

_MODES = ("error", "append", "overwrite", "ignore")


def write_deltalake(
    table_or_uri: str | Path | DeltaTable,
    data: Any,
    *,
    partition_by: list[str] | str | None = None,
    mode: Literal["error", "append", "overwrite", "ignore"] = "error",
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    schema_mode: Literal["merge", "overwrite"] | None = None,
    storage_options: dict[str, str] | None = None,
    predicate: str | None = None,
    target_file_size: int | None = None,
    writer_properties: WriterProperties | None = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Write rows: any object with the Arrow C stream or array interface, or a sequence of such arrays.

    ``partition_by``, ``name``, ``description`` and ``configuration`` apply to a new table; ``partition_by`` also
    applies with ``mode="overwrite"`` and ``schema_mode="overwrite"``. ``predicate``: with ``mode="overwrite"``, the
    rows to replace. ``schema_mode``: "merge" adds the columns that only the data has, "overwrite" replaces all columns.
    ``target_file_size``: in bytes; default delta.targetFileSize.

    A new table has no in-commit timestamps unless the configuration contains ``delta.enableInCommitTimestamps``,
    because deltalake cannot write tables that have them; in tables that have in-commit timestamps, every commit gets
    one. Raises DeltaError.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}; got {mode!r}.")
    if schema_mode not in (None, "merge", "overwrite"):
        raise ValueError(f"schema_mode must be 'merge', 'overwrite' or None; got {schema_mode!r}.")
    table, table_uri = try_get_table_and_table_uri(table_or_uri, storage_options)
    if table is not None and mode == "ignore":
        return
    columns = [partition_by] if isinstance(partition_by, str) else partition_by
    with translated():
        rows = taken_stream(data)
        files = file_options(writer_properties, target_file_size)
        if table is None:
            reader = creation.log_at(table_uri, storage_options)
            creation.write_new(
                reader, rows, mode, columns or [], name, description, configuration, files,
                commit_properties, post_commithook_properties,
            )  # fmt: skip
            return
    raw = table._table
    with raw.changing(commit_properties, post_commithook_properties, files) as handle:
        creation.write_into(handle, rows, mode, schema_mode, predicate, columns)
