"""convert_to_deltalake: a directory of Parquet files becomes a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from deltalog.deltalake import creation
from deltalog.deltalake._util import deprecate_positional_commit_args
from deltalog.deltalake.exceptions import translating
from deltalog.deltalake.schema import Schema
from deltalog.deltalake.transaction import CommitProperties, PostCommitHookProperties
from deltalog.deltalake.writer._utils import try_get_deltatable


@translating
def convert_to_deltalake(
    uri: str | Path,
    mode: Literal["error", "ignore"] = "error",
    partition_by: Schema | None = None,
    partition_strategy: Literal["hive", "directory"] | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: dict[str, str] | None = None,
    *args: Any,
    collect_stats: bool = True,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Turn a directory of Parquet files into a table in place, with ``deltalog.DeltaTable.convert``, which always
    collects statistics too. ``partition_by``: the partition columns, with ``partition_strategy="hive"``."""
    commit, hook = deprecate_positional_commit_args(
        "convert_to_deltalake", args, commit_properties, post_commithook_properties
    )
    if partition_by is not None and partition_strategy is None:
        raise ValueError("Partition strategy has to be provided with partition_by.")
    if partition_strategy not in (None, "hive"):
        raise ValueError("Currently only `hive` partition strategy is supported to be converted.")
    if mode == "ignore" and try_get_deltatable(uri, storage_options) is not None:
        return
    creation.convert(str(uri), partition_by, name, description, configuration, storage_options, commit, hook)
