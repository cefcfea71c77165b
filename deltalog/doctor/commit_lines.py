"""Decodes a commit line by line. Returns the readable actions, and findings about everything else. Pure.

Spec: PROTOCOL.md#delta-log-entries, #actions. Unlike the decoder used for reading tables, this one continues after an
error.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from deltalog.doctor.findings import Finding, found
from deltalog.errors import CorruptTableError, InvalidCommitError
from deltalog.protocol import limits
from deltalog.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Sidecar,
)

TYPES: dict[str, type[Action]] = {
    cls.KEY: cls
    for cls in (AddFile, RemoveFile, AddCDCFile, Sidecar, Metadata, Protocol, SetTransaction, DomainMetadata)
}
# Fields that the protocol requires but that readers, including deltalog, do not need.
_EXPECTED = {
    "metaData": ("id", "format", "schemaString", "partitionColumns", "configuration"),
    "remove": ("path", "dataChange"),
    "protocol": ("minReaderVersion", "minWriterVersion"),
}
_BOM = b"\xef\xbb\xbf"
# Commits up to this size are also searched for duplicate keys.
_SMALL = 1 << 20
# The lines of the add actions in larger commits are decoded this many at a time.
_ADD, _EXTRA, _LINES = (b'{"add":{', b'{"add": {'), b'" extra"', 512


class _Add(AddFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An add action that has no field that the protocol does not define."""


class _AddLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A line with an add action and nothing else."""

    add: _Add


_add_lines = msgspec.json.Decoder(_AddLine)


@dataclass(slots=True)
class Actions:
    """The readable actions of a commit, a log compaction file or a checkpoint.

    ``infos``: commitInfo actions with their line numbers, counted from 0. ``lines``: the number of lines. ``is_whole``:
    whether every line could be read.
    """

    infos: list[tuple[int, CommitInfo]] = field(default_factory=list)
    protocols: list[Protocol] = field(default_factory=list)
    metadatas: list[Metadata] = field(default_factory=list)
    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)
    cdc: list[AddCDCFile] = field(default_factory=list)
    transactions: list[SetTransaction] = field(default_factory=list)
    domains: list[DomainMetadata] = field(default_factory=list)
    sidecars: list[Sidecar] = field(default_factory=list)
    checkpoint_metadata: list[dict[str, Any]] = field(default_factory=list)
    lines: int = 0
    is_whole: bool = True
    extended: set[str] = field(default_factory=set)  # kinds of actions with fields that the protocol does not define

    @property
    def info(self) -> CommitInfo | None:
        """The first commitInfo."""
        return self.infos[0][1] if self.infos else None

    @property
    def protocol(self) -> Protocol | None:
        """The last protocol action."""
        return self.protocols[-1] if self.protocols else None

    @property
    def metadata(self) -> Metadata | None:
        """The last metaData action."""
        return self.metadatas[-1] if self.metadatas else None

    def take(self, action: Action) -> None:
        """Add an action to the list of its kind."""
        places: dict[str, list[Any]] = {
            "add": self.adds, "remove": self.removes, "cdc": self.cdc, "sidecar": self.sidecars,
            "metaData": self.metadatas, "protocol": self.protocols, "txn": self.transactions,
            "domainMetadata": self.domains,
        }  # fmt: skip
        places[action.KEY].append(action)


def examine_bytes(data: bytes, version: int, path: str, actions: Actions) -> Iterator[Finding]:
    """Decode the bytes of a commit into ``actions``. Yields findings about the encoding, the JSON and the form of the
    actions."""
    if data.startswith(_BOM):
        yield found("commit-byte-order-mark", "The file begins with the bytes EF BB BF.", version, path)
        data = data.removeprefix(_BOM)
    if not data.strip():
        actions.is_whole = False
        size = "no bytes" if not data else f"{len(data)} bytes of white space"
        yield found("commit-empty", f"The file has {size}.", version, path)
        return
    if len(data) > limits.MAX_COMMIT_BYTES:
        actions.is_whole = False
        size = limits.over("MAX_COMMIT_BYTES", len(data))
        yield found("commit-unreadable", f"The size in bytes {size}.", version, path)
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        yield found("commit-not-text", f"Byte {error.start} is not UTF-8.", version, path)
    rows = [line for line in data.split(b"\n") if line.strip()]
    small = len(data) <= _SMALL
    bodies = [_decoded(line) for line in rows] if small else _decoded_lines(rows)
    if any(isinstance(body, Exception) for body in bodies) and (several := _spread(data)) is not None:
        rows, bodies = several, [_decoded(line) for line in several]
        yield found("commit-json-multiline", "An action spans several lines.", version, path)
    for number, (line, body) in enumerate(zip(rows, bodies, strict=True)):
        actions.lines += 1
        if isinstance(body, _Add):
            actions.adds.append(body)
            continue
        if isinstance(body, Exception):
            actions.is_whole = False
            is_torn = number == len(rows) - 1 and not data.endswith(b"\n")
            rule = "commit-truncated" if is_torn else "commit-invalid-json"
            yield found(rule, f"Line {number + 1} is not JSON: {body}.", version, path)
            continue
        if small and (twice := _twice(line)) is not None:
            text = f"Line {number + 1} has the key {twice!r} twice in one object."
            yield found("commit-duplicate-key", text, version, path)
        yield from _line(body, number, version, path, actions)


def _decoded(line: bytes) -> Any:
    """Decode a line; return the error if that fails."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return error


def _decoded_lines(rows: Sequence[bytes]) -> list[Any]:
    """Like ``_decoded`` for each line, except that valid add actions become instances of ``_Add``, which takes a third
    of the time and of the memory."""
    found: list[Any] = []
    for is_add, lines in itertools.groupby(rows, lambda line: line.startswith(_ADD)):
        while some := [*itertools.islice(lines, _LINES)]:
            adds = _decoded_adds(some) if is_add else None
            found += [_decoded(line) for line in some] if adds is None else adds
    return found


def _decoded_adds(lines: Sequence[bytes]) -> list[_Add] | None:
    """The add actions of the lines, one in each; None if this is not certain."""
    data = b"\n".join(lines)
    try:
        # An object that spans several lines makes fewer objects than lines.
        adds = [line.add for line in _add_lines.decode_lines(data)] if _EXTRA not in data else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return adds if len(adds) == len(lines) else None


def _spread(data: bytes) -> list[bytes] | None:
    """Split a text into its JSON objects, which may span several lines; None if it contains anything else."""
    try:
        text, decoder, at = data.decode(), json.JSONDecoder(), 0
        objects = []
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            value, at = decoder.raw_decode(text, at)
            if not isinstance(value, dict):
                return None
            objects.append(json.dumps(value).encode())
    except (ValueError, RecursionError):
        return None
    return objects


def _line(body: Any, number: int, version: int, path: str, actions: Actions) -> Iterator[Finding]:
    at = f"Line {number + 1}"
    if not isinstance(body, dict) or not body:
        actions.is_whole = False
        yield found("commit-line-not-an-action", f"{at} is not a JSON object with an action.", version, path)
        return
    present = [key for key, value in body.items() if value is not None]
    known = [key for key in present if key in TYPES or key in ("commitInfo", "checkpointMetadata")]
    if len(known) > 1:
        yield found("commit-line-not-an-action", f"{at} has the actions {' and '.join(known)}.", version, path)
    for key in known:
        yield from _action(key, body[key], at, number, version, path, actions)
    if not known:
        names = ", ".join(repr(key)[:60] for key in body)
        yield found("action-unknown", f"{at} has {names}.", version, path)


def _twice(line: bytes) -> str | None:
    """Return a key that appears twice in one object, or None."""
    keys: list[str] = []

    def pairs(found_pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(found_pairs)
        if len(result) < len(found_pairs):
            names = [name for name, _ in found_pairs]
            keys.append(next(name for name in names if names.count(name) > 1))
        return result

    try:
        json.loads(line, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None
    return keys[0] if keys else None


def _action(
    key: str, body: Any, at: str, position: int, version: int, path: str, actions: Actions
) -> Iterator[Finding]:
    if key == "commitInfo":
        if isinstance(body, dict):
            actions.infos.append((position, CommitInfo(body)))
        else:
            yield found("action-invalid", f"{at}: commitInfo is not an object.", version, path)
        return
    if key == "checkpointMetadata":
        actions.checkpoint_metadata.append(body if isinstance(body, dict) else {})
        return
    try:
        action = TYPES[key].from_json(body)
        actions.take(action)
    except (InvalidCommitError, CorruptTableError, TypeError, AttributeError) as error:
        actions.is_whole = False
        yield found("action-invalid", f"{at}: {error}", version, path)
        return
    if action.extra and key not in actions.extended:
        actions.extended.add(key)
        names = ", ".join(repr(name)[:60] for name in action.extra)
        yield found("field-unknown", f"{at}: {key} has {names}.", version, path)
    missing = [name for name in _EXPECTED.get(key, ()) if body.get(name) is None]
    if missing:
        yield found("action-field-missing", f"{at}: {key} has no {' and no '.join(missing)}.", version, path)


def examine_numbers(actions: Actions, version: int, path: str) -> Iterator[Finding]:
    """Report actions that occur more often in a commit than their kind may: more than once, or at all.

    Spec: PROTOCOL.md#delta-log-entries-1, #action-reconciliation.
    """
    for rule, kind, times in (
        ("commit-protocol-twice", "protocol", len(actions.protocols)),
        ("commit-metadata-twice", "metaData", len(actions.metadatas)),
        ("commit-info-twice", "commitInfo", len(actions.infos)),
    ):
        if times > 1:
            yield found(rule, f"The commit has {times} {kind} actions.", version, path)
    for rule, kind, names in (
        ("commit-txn-twice", "application", [each.app_id for each in actions.transactions]),
        ("commit-domain-twice", "domain", [each.domain for each in actions.domains]),
    ):
        for name in _repeated(names):
            yield found(rule, f"The commit has several actions for the {kind} {name!r}.", version, path)
    misplaced = [
        *("sidecar" for _ in actions.sidecars[:1]), *("checkpointMetadata" for _ in actions.checkpoint_metadata[:1])
    ]  # fmt: skip
    for name in misplaced:
        yield found("checkpoint-action-in-commit", f"The commit has a {name} action.", version, path)


def _repeated(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
