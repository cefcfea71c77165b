"""Bytes of a commit file to actions, and back.

Spec: PROTOCOL.md#delta-log-entries. One JSON object a line, one action an object; ``commitInfo`` first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from deltalog.errors import InvalidCommitError
from deltalog.spec.actions import (
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Sidecar,
    UnknownAction,
)
from deltalog.spec.paths import commit_name

MAX_COMMIT_BYTES = 1 << 30
AnyAction = (
    AddFile | RemoveFile | AddCDCFile | Sidecar | Metadata | Protocol | SetTransaction | DomainMetadata | UnknownAction
)

_TYPES = {
    cls.KEY: cls
    for cls in (AddFile, RemoveFile, AddCDCFile, Sidecar, Metadata, Protocol, SetTransaction, DomainMetadata)
}


_ABSENT = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    """One line, typed: the fast way for replay, which needs no unknown fields."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    cdc: AddCDCFile | None = None
    sidecar: Sidecar | None = None
    metaData: msgspec.Raw = _ABSENT
    protocol: msgspec.Raw = _ABSENT
    txn: SetTransaction | None = None
    domainMetadata: DomainMetadata | None = None
    commitInfo: msgspec.Raw = _ABSENT


@dataclass(frozen=True, slots=True)
class CommitActions:
    """The actions of one version, grouped. ``commit_info_first``: it was the first line. ``sidecars`` occur in
    V2 checkpoints only, ``cdc`` in commits only."""

    version: int
    commit_info: CommitInfo | None
    commit_info_first: bool
    protocol: Protocol | None
    metadata: Metadata | None
    adds: list[AddFile]
    removes: list[RemoveFile]
    transactions: list[SetTransaction]
    domains: list[DomainMetadata]
    cdc: list[AddCDCFile] = field(default_factory=list)
    sidecars: list[Sidecar] = field(default_factory=list)


_lines = msgspec.json.Decoder(_Line)


def decode_commit(data: bytes, version: int) -> CommitActions:
    """The actions of a commit file for replay and conflict checks; unknown actions are passed over.

    Raises InvalidCommitError that names the version and the line when the file is empty, torn, not JSON, or
    has two metaData or two protocol actions.
    """
    name = commit_name(version)
    if not data.strip():
        raise InvalidCommitError(
            f"Commit {name} is empty. A writer died while writing it, or it was truncated later; "
            "restore it from a copy.",
            version=version, path=name,
        )  # fmt: skip
    if len(data) > MAX_COMMIT_BYTES:
        raise InvalidCommitError(f"Commit {name} has {len(data)} bytes, more than {MAX_COMMIT_BYTES}.")
    try:
        lines = _lines.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_line(data, version, error) from None
    return _group(lines, version)


def _group(lines: list[_Line], version: int) -> CommitActions:
    info: CommitInfo | None = None
    info_first = False
    protocols: list[Protocol] = []
    metadatas: list[Metadata] = []
    adds: list[AddFile] = []
    removes: list[RemoveFile] = []
    transactions: list[SetTransaction] = []
    domains: list[DomainMetadata] = []
    cdc: list[AddCDCFile] = []
    sidecars: list[Sidecar] = []
    for number, line in enumerate(lines):
        if line.add is not None:
            adds.append(line.add)
        elif line.remove is not None:
            removes.append(line.remove)
        elif line.commitInfo != _ABSENT and info is None:
            info, info_first = _commit_info(line.commitInfo), number == 0
        elif line.metaData != _ABSENT:
            metadatas.append(Metadata.from_json(_body(line.metaData, version)))
        elif line.protocol != _ABSENT:
            protocols.append(Protocol.from_json(_body(line.protocol, version)))
        elif line.txn is not None:
            transactions.append(line.txn)
        elif line.domainMetadata is not None:
            domains.append(line.domainMetadata)
        elif line.cdc is not None:
            cdc.append(line.cdc)
        elif line.sidecar is not None:
            sidecars.append(line.sidecar)
    for kind, found in (("metaData", metadatas), ("protocol", protocols)):
        if len(found) > 1:
            raise InvalidCommitError(
                f"Commit {commit_name(version)} has {len(found)} {kind} actions; at most one is allowed. "
                "Restore the file from a copy.",
                version=version, path=commit_name(version),
            )  # fmt: skip
    return CommitActions(
        version,
        info,
        info_first,
        protocols[0] if protocols else None,
        metadatas[0] if metadatas else None,
        adds,
        removes,
        transactions,
        domains,
        cdc,
        sidecars,
    )


def _body(raw: msgspec.Raw, version: int) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidCommitError(f"Commit {commit_name(version)}: {error}.", version=version) from None


def _commit_info(raw: msgspec.Raw) -> CommitInfo | None:
    """commitInfo is free-form: what is not an object is as good as absent."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return CommitInfo(body) if isinstance(body, dict) else None


def _bad_line(data: bytes, version: int, error: Exception) -> InvalidCommitError:
    name = commit_name(version)
    rows = data.split(b"\n")
    for number, row in enumerate(rows, 1):
        try:
            if row.strip():
                _lines.decode(row)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
            torn = number == len(rows) and "truncated" in str(cause)
            what = "is torn: its last line ends early" if torn else f"cannot be read: line {number}: {cause}"
            return InvalidCommitError(
                f"Commit {name} {what}. Restore the file from a copy; deltalog never writes part of a commit.",
                version=version, path=name,
            )  # fmt: skip
    return InvalidCommitError(f"Commit {name} cannot be read: {error}.", version=version, path=name)


def first_commit_info(head: bytes, whole: bool) -> CommitInfo | None:
    """The commitInfo of the first line, when ``head`` holds that line to its end; None when it does not.

    ``whole``: ``head`` is the whole file, so the last line needs no line feed.
    """
    line, separator, _ = head.partition(b"\n")
    if not separator and not whole:
        return None
    try:
        parsed = _lines.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if parsed.commitInfo == _ABSENT else _commit_info(parsed.commitInfo)


def decode_actions(data: bytes) -> list[AnyAction | CommitInfo]:
    """Every line as an action, unknown fields and unknown actions kept, in the order of the file."""
    actions: list[AnyAction | CommitInfo] = []
    for line in data.splitlines():
        if not line.strip():
            continue
        try:
            parsed = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidCommitError(f"A line is not JSON: {error}.") from None
        if not isinstance(parsed, dict):
            raise InvalidCommitError("A line is not a JSON object.")
        key = next(iter(parsed), "")
        if len(parsed) == 1 and key in _TYPES:
            actions.append(_TYPES[key].from_json(parsed[key]))
        elif len(parsed) == 1 and key == "commitInfo" and isinstance(parsed[key], dict):
            actions.append(CommitInfo(parsed[key]))
        else:
            actions.append(UnknownAction(parsed))
    return actions


_encoder = msgspec.json.Encoder()


def encode_commit(commit_info: dict[str, Any], actions: Iterable[AnyAction]) -> bytes:
    """A commit file: ``commitInfo`` first, then the actions in the order given.

    Raises InvalidCommitError when a value cannot be written as JSON.
    """
    parts = [_encode_line("commitInfo", commit_info)]
    parts.extend(encode_action(action) for action in actions)
    return b"\n".join(parts) + b"\n"


def encode_action(action: AnyAction) -> bytes:
    """One line, without the line feed."""
    if isinstance(action, UnknownAction):
        return _checked(action.line)
    if action.extra or isinstance(action, (RemoveFile, DomainMetadata)):
        return _encode_line(action.KEY, action.to_json())
    try:
        return b'{"' + action.KEY.encode() + b'":' + _encoder.encode(action) + b"}"
    except (TypeError, ValueError) as error:
        raise InvalidCommitError(f"The action {action.KEY} cannot be written as JSON: {error}.") from None


def _encode_line(key: str, body: dict[str, Any]) -> bytes:
    return _checked({key: body})


def _checked(line: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(line)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidCommitError(f"The action {next(iter(line))} cannot be written as JSON: {error}.") from None


def canonical_json(value: Any) -> str:
    """JSON for fields that hold JSON as text, such as ``operationParameters`` values."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
