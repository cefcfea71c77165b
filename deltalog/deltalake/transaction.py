"""The classes of ``deltalake.transaction``, which describe what a commit carries besides its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from deltalog.deltalake import creation
from deltalog.deltalake._util import deprecate_positional_commit_args
from deltalog.deltalake.commit_properties import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
)
from deltalog.deltalake.exceptions import translating
from deltalog.deltalake.schema import Schema

__all__ = [
    "AddAction",
    "CommitProperties",
    "PostCommitHookProperties",
    "RemoveAction",
    "Transaction",
    "create_table_with_add_actions",
]


@translating
def create_table_with_add_actions(
    table_uri: str,
    schema: Schema,
    add_actions: list[AddAction],
    mode: Literal["error", "append", "overwrite", "ignore"] = "error",
    partition_by: list[str] | str | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: dict[str, str] | None = None,
    *args: Any,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Create a table that consists of existing files."""
    commit, hook = deprecate_positional_commit_args(
        "create_table_with_add_actions", args, commit_properties, post_commithook_properties
    )
    columns = [partition_by] if isinstance(partition_by, str) else list(partition_by or [])
    creation.create_with_files(
        table_uri, schema, add_actions, mode, columns, name, description, configuration, storage_options, commit, hook
    )
