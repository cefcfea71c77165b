"""Log compaction files: a run of commits as one file of what they amount to.

Spec: PROTOCOL.md#log-compaction-files, #action-reconciliation. They are hints: a reader that finds none, or cannot read
one, reads the commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltalog.errors import CallError
from deltalog.log.reader import LogReader
from deltalog.log.replay import file_key
from deltalog.log.segment import Compaction
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


def reconciled(commits: Iterable[Sequence[AnyAction | CommitInfo]]) -> list[AnyAction]:
    """What commits (ascending) amount to: of each file, application, domain, and of protocol and metaData the last
    action. Pure.

    Removes stay, and so do removed domains: they say something about versions before the first commit. What only tells
    how a commit came about does not: commitInfo, change data, and actions that deltalog does not know.
    """
    latest: dict[tuple[str, str], AnyAction] = {}
    for actions in commits:
        for action in actions:
            key = _key(action)
            if key is not None:
                latest.pop(key, None)  # the last one decides the place too
                latest[key] = action  # type: ignore[assignment]
    return list(latest.values())


def _key(action: AnyAction | CommitInfo) -> tuple[str, str] | None:
    """What two actions must share for the later one to stand in the place of the other; None for those left out."""
    if isinstance(action, (AddFile, RemoveFile)):
        return "file", file_key(action.path, action.deletion_vector)
    if isinstance(action, SetTransaction):
        return "txn", action.app_id
    if isinstance(action, DomainMetadata):
        return "domainMetadata", action.domain
    return (action.KEY, "") if isinstance(action, (Protocol, Metadata)) else None


def write_compaction(reader: LogReader, start: int, end: int) -> Compaction:
    """Write the compaction of the commits from ``start`` to ``end``; one that is there already is kept.

    Raises CallError for less than two commits, MissingVersionError, InvalidCommitError, StoreError. Cost: 1 GET for
    each commit, 1 PUT. Memory: the commits.
    """
    if not 0 <= start < end:
        raise CallError(f"A log compaction is of at least two versions; {start} to {end} are not.")
    versions = range(start, end + 1)
    files = reader.commit_files(versions)
    for version, data in zip(versions, files, strict=True):
        decode_commit(data, version)  # refuses what no reader could read
    lines = [encode_action(action) for action in reconciled(decode_actions(data) for data in files)]
    compaction = Compaction(start, end)
    reader.store.put_if_absent(log_path(compaction.name), b"".join(line + b"\n" for line in lines))
    return compaction
