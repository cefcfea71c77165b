"""What a commit carries besides its rows: files, application versions, entries of commitInfo, hooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    whether to delete expired log files; if None, delta.enableExpiredLogCleanup decides."""

    create_checkpoint: bool = True
    cleanup_expired_logs: bool | None = None


@dataclass
class CommitProperties:
    """``custom_metadata``: further entries of commitInfo, JSON values. ``max_commit_retries``: how many other writers
    may win before the commit fails. ``app_transactions``: application versions to record."""

    custom_metadata: dict[str, Any] | None = None
    max_commit_retries: int | None = None
    app_transactions: list[Transaction] | None = None
