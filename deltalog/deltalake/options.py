"""Converts CommitProperties and PostCommitHookProperties to deltalog's TransactionOptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalog.commit.hooks import Hooks
from deltalog.deltalake.commit_properties import CommitProperties, PostCommitHookProperties
from deltalog.errors import CallError
from deltalog.parquet.file_options import DEFAULT, FileOptions
from deltalog.write.transaction_options import AppVersion, TransactionOptions


def transaction_options(
    commit: CommitProperties | None, hook: PostCommitHookProperties | None, files: FileOptions = DEFAULT
) -> TransactionOptions:
    """The options for the commits that one call makes. Raises CallError."""
    custom: Any = None if commit is None else commit.custom_metadata
    if custom is not None and not isinstance(custom, Mapping):
        raise CallError(f"custom_metadata must be a mapping from names to JSON values, not {type(custom).__name__}.")
    apps = (None if commit is None else commit.app_transactions) or ()
    return TransactionOptions(
        commit_info=dict(custom or {}),
        app_versions=tuple(AppVersion(each.app_id, each.version, each.last_updated) for each in apps),
        files=files,
        hooks=Hooks() if hook is None else Hooks(hook.create_checkpoint, hook.cleanup_expired_logs),
    )


def max_attempts(commit: CommitProperties | None) -> int | None:
    """The maximum number of versions that a commit attempts; None: the default number. Raises CallError."""
    retries = None if commit is None else commit.max_commit_retries
    if retries is None:
        return None
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise CallError(f"max_commit_retries must be an integer >= 0, or None; got {retries!r}.")
    return retries + 1
