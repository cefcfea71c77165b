"""What a caller sets for all commits of a call: entries of commitInfo, application versions, the encoding of files, and
the steps after the commit.

Spec: PROTOCOL.md#commit-provenance-information, #transaction-identifiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from deltalog.commit.hooks import ALL_HOOKS, Hooks
from deltalog.commit.prepared import IsolationLevel
from deltalog.errors import CallError
from deltalog.parquet.file_options import DEFAULT, FileOptions
from deltalog.protocol.codec import json_text

_WRITTEN = frozenset(
    {"timestamp", "inCommitTimestamp", "operation", "operationMetrics", "engineInfo", "txnId", "deltalog"}
)
_TEXTS = ("userId", "userName", "userMetadata")


@dataclass(frozen=True, slots=True)
class AppVersion:
    """A version that an application records (txn). ``last_updated_ms``: milliseconds since 1970; None means the time of
    the call."""

    app_id: str
    version: int
    last_updated_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """The options for every transaction that a call begins.

    ``commit_info``: additional entries for commitInfo, as JSON values. ``app_versions``: application ids and versions
    that each commit records. ``files``: how data files are encoded. ``hooks``: the steps after a commit.
    """

    commit_info: Mapping[str, Any] = field(default_factory=dict, hash=False)
    app_versions: Sequence[AppVersion] = ()
    files: FileOptions = DEFAULT
    hooks: Hooks = ALL_HOOKS

    def __post_init__(self) -> None:
        check_commit_info(self.commit_info)


def check_commit_info(entries: object) -> None:
    """Raise CallError for entries that cannot be added to commitInfo. Entries that each commit writes itself are
    refused. ``isolationLevel`` and ``isBlindAppend`` are accepted nevertheless: the caller's values are checked, but
    every commit records its own."""
    if not isinstance(entries, Mapping):
        raise CallError(f"The entries of commitInfo must be a mapping from names to JSON values, not {entries!r}.")
    if not all(isinstance(name, str) for name in entries):
        raise CallError(f"The entries of commitInfo must be a mapping whose keys are strings; got {list(entries)!r}.")
    owned = sorted(_WRITTEN & entries.keys())
    if owned:
        raise CallError(f"{', '.join(owned)}: every commit writes this entry of commitInfo itself. Leave it out.")
    for name in _TEXTS:
        if not isinstance(entries.get(name, ""), str):
            raise CallError(f"The entry {name} of commitInfo must be text; got {entries[name]!r}.")
    if not isinstance(entries.get("operationParameters", {}), Mapping):
        raise CallError("The entry operationParameters of commitInfo must be a mapping of JSON values.")
    read = entries.get("readVersion", 0)
    if isinstance(read, bool) or not isinstance(read, int) or read < 0:
        raise CallError(f"The entry readVersion of commitInfo must be an integer >= 0; got {read!r}.")
    if entries.get("isolationLevel", "Serializable") not in get_args(IsolationLevel):
        raise CallError(f"The entry isolationLevel of commitInfo must be one of {', '.join(get_args(IsolationLevel))}.")
    if not isinstance(entries.get("isBlindAppend", False), bool):
        raise CallError("The entry isBlindAppend of commitInfo must be True or False.")
    json_text(dict(entries))


NO_OPTIONS = TransactionOptions()
