"""The classes of ``deltalake.transaction``: what a commit carries besides its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deltalog.deltalake._util import deprecate_positional_commit_args
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


@dataclass
class AddAction:
    """A data file to add, for ``create_write_transaction``. ``path``: relative to the table. ``size``: in bytes.
    ``modification_time``: in ms since 1970. ``stats``: the statistics as JSON."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    modification_time: int
    data_change: bool
    stats: str


@dataclass
class RemoveAction:
    """A data file to remove, for ``create_write_transaction``. ``deletion_timestamp``: in ms since 1970."""

    path: str
    data_change: bool
    deletion_timestamp: int
    size: int | None = None
    partition_values: dict[str, str | None] | None = None


@dataclass
class Transaction:
    """The version of an application, recorded with a commit. ``last_updated``: in ms since 1970."""

    app_id: str
    version: int
    last_updated: int | None = None

    def __str__(self) -> str:
        return repr(self)


@dataclass
class PostCommitHookProperties:
    """The steps after a commit. ``create_checkpoint``: write a checkpoint when one is due. ``cleanup_expired_logs``:
    delete expired log files; None: as delta.enableExpiredLogCleanup says."""

    create_checkpoint: bool = True
    cleanup_expired_logs: bool | None = None


@dataclass
class CommitProperties:
    """``custom_metadata``: further entries of commitInfo, JSON values. ``max_commit_retries``: how many other writers
    may win before the commit fails. ``app_transactions``: application versions to record."""

    custom_metadata: dict[str, Any] | None = None
    max_commit_retries: int | None = None
    app_transactions: list[Transaction] | None = None


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
    from deltalog.deltalake import creation

    commit, hook = deprecate_positional_commit_args(
        "create_table_with_add_actions", args, commit_properties, post_commithook_properties
    )
    columns = [partition_by] if isinstance(partition_by, str) else list(partition_by or [])
    creation.create_with_files(
        table_uri, schema, add_actions, mode, columns, name, description, configuration, storage_options, commit, hook
    )
