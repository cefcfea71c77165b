"""Log compaction files: each contains the reconciled actions of several consecutive commits.

Spec: PROTOCOL.md#log-compaction-files, #action-reconciliation. Compactions are optional: if one is missing or
unreadable, readers read the commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltalog.errors import CallError, TableReplacedError
from deltalog.log.replay import file_key
from deltalog.log.segment import Compaction
from deltalog.log.snapshot import LogSnapshot
from deltalog.protocol.actions import (
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltalog.protocol.codec import AnyAction, decode_actions, decode_commit, encode_action
from deltalog.protocol.paths import log_path
from deltalog.storage.base import PutOutcome


def reconciled(commits: Iterable[Sequence[AnyAction | CommitInfo]]) -> list[AnyAction]:
    """The reconciled actions of ``commits`` (ascending): the last action on each file, application id and domain, and
    the last protocol and metaData. Pure.

    Remove actions and removed domains are kept, because they cancel files and domains of versions before the first of
    ``commits``. Actions that do not affect the state are dropped: commitInfo, cdc and unknown actions.
    """
    latest: dict[tuple[str, str], AnyAction] = {}
    for actions in commits:
        for action in actions:
            key = _key(action)
            if key is not None:
                latest.pop(key, None)  # moves the key to the end, so that keys are ordered by their last action
                latest[key] = action  # type: ignore[assignment]
    return list(latest.values())


def _key(action: AnyAction | CommitInfo) -> tuple[str, str] | None:
    """The reconciliation key: a later action replaces an earlier one with the same key. Returns None for actions that
    are dropped."""
    if isinstance(action, (AddFile, RemoveFile)):
        return "file", file_key(action.path, action.deletion_vector)
    if isinstance(action, SetTransaction):
        return "txn", action.app_id
    if isinstance(action, DomainMetadata):
        return "domainMetadata", action.domain
    return (action.KEY, "") if isinstance(action, (Protocol, Metadata)) else None


def write_compaction(latest: LogSnapshot, start: int, end: int) -> Compaction:
    """Write the log compaction of the commits from ``start`` to ``end``, inclusive; an existing file is kept.
    ``latest``: version ``end`` or a later one, read from the same log.

    Raises CallError for fewer than two commits, MissingVersionError, InvalidCommitError, StoreError; TableReplacedError
    if ``latest`` is no longer in the log afterwards; the file is then deleted. Cost: 1 GET for each commit, 1 PUT, 1
    HEAD. Memory: the commits.
    """
    if not 0 <= start < end:
        raise CallError(f"A log compaction covers at least two versions; got {start} to {end}.")
    reader, versions = latest.reader, range(start, end + 1)
    files = reader.commit_files(versions)
    for version, data in zip(versions, files, strict=True):
        decode_commit(data, version)  # raises an error for a commit that readers would refuse
    lines = [encode_action(action) for action in reconciled(decode_actions(data) for data in files)]
    compaction = Compaction(start, end)
    outcome = reader.store.put_if_absent(log_path(compaction.name), b"".join(line + b"\n" for line in lines))
    if outcome is PutOutcome.COMMITTED and not latest.is_in_log():
        reader.store.delete(log_path(compaction.name))
        raise TableReplacedError(
            f"{reader.store.url}: the table was deleted or replaced while {compaction.name} was written. The file was "
            "deleted.",
            version=latest.version,
        )
    return compaction
