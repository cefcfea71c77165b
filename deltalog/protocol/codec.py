"""Decodes the bytes of a commit file into actions, and encodes actions. Pure.

Spec: PROTOCOL.md#delta-log-entries. One JSON object per line, one action per object; ``commitInfo`` comes first.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from deltalog.errors import CallError, InvalidCommitError
from deltalog.protocol import limits
from deltalog.protocol.actions import (
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
from deltalog.protocol.paths import commit_name

AnyAction = (
    AddFile | RemoveFile | AddCDCFile | Sidecar | Metadata | Protocol | SetTransaction | DomainMetadata | UnknownAction
)

_TYPES = {
    cls.KEY: cls
    for cls in (AddFile, RemoveFile, AddCDCFile, Sidecar, Metadata, Protocol, SetTransaction, DomainMetadata)
}


_INFO = b'{"commitInfo":'
_ABSENT = msgspec.Raw(b"null")
# The UTF-8 byte order mark, which some editors write; RFC 8259 allows readers to ignore it.
_BOM = b"\xef\xbb\xbf"
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Quotes inside strings are escaped, so these byte strings occur only as keys (at any depth), and counting them counts
# keys.
_PATH, _PARTITIONS, _VECTOR = _FILE_FIELDS = b'"path":', b'"partitionValues":', b'"deletionVector":'


class _Line(msgspec.Struct, gc=False):
    """One line as a typed struct: the fast path for replay, which does not need unknown fields."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    cdc: AddCDCFile | None = None
    sidecar: Sidecar | None = None
    metaData: msgspec.Raw = _ABSENT
    protocol: msgspec.Raw = _ABSENT
    txn: SetTransaction | None = None
    domainMetadata: DomainMetadata | None = None
    commitInfo: msgspec.Raw = _ABSENT
    checkpointMetadata: msgspec.Raw = _ABSENT


class _InfoLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A commit line with a commitInfo action and nothing else."""

    commitInfo: dict[str, Any]


class CommitActions(msgspec.Struct, frozen=True, gc=False):
    """The actions of one version, grouped by kind. ``commit_info_first``: whether commitInfo was on the first line.
    ``sidecars`` and ``checkpoint_tags`` (from checkpointMetadata) occur only in V2 checkpoints, ``cdc`` only in
    commits."""

    version: int
    commit_info: CommitInfo | None
    commit_info_first: bool
    protocol: Protocol | None
    metadata: Metadata | None
    adds: list[AddFile]
    removes: list[RemoveFile]
    transactions: list[SetTransaction]
    domains: list[DomainMetadata]
    cdc: list[AddCDCFile] = msgspec.field(default_factory=list)
    sidecars: list[Sidecar] = msgspec.field(default_factory=list)
    checkpoint_tags: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def in_commit_timestamp_ms(self) -> int | None:
        """The in-commit timestamp, in milliseconds since 1970; None if the commit has none."""
        return None if self.commit_info is None else self.commit_info.in_commit_timestamp_ms


_PIECE_BYTES = 128 << 10
_lines, _infos = msgspec.json.Decoder(_Line), msgspec.json.Decoder(_InfoLine)


def decode_commit(data: bytes, version: int) -> CommitActions:
    """Decode the actions of a commit file for replay and conflict checks; unknown actions are ignored.

    Raises InvalidCommitError, naming the version and the line, when the file is empty, torn, not JSON or over a cap,
    and when it has two metaData or two protocol actions, or an action with a duplicate field.
    """
    name = commit_name(version)
    data = data.removeprefix(_BOM)
    if not data.strip():
        raise InvalidCommitError(
            f"Commit {name} is empty. Its writer died while writing it, or it was truncated later. "
            "Restore it from a copy.",
            version=version, path=name,
        )  # fmt: skip
    _check_size(data, version)
    try:
        lines = _decoded_lines(data)
    except _UNDECODABLE as error:
        raise _bad_line(data, version, error) from None
    actions = _group(lines, version)
    _check_unambiguous(data, actions)
    return actions


def _decoded_lines(data: bytes) -> list[_Line]:
    """Decode a commit in pieces of whole lines, since other threads wait while the decoder works."""
    found: list[_Line] = []
    start = 0
    try:
        while len(data) - start > _PIECE_BYTES and (end := data.find(b"\n", start + _PIECE_BYTES)) >= 0:
            found += _lines.decode_lines(data[start:end])
            start = end
        return found + _lines.decode_lines(data[start:])
    except _UNDECODABLE:
        return _lines.decode_lines(data)  # an object that goes on in the next line, or an error


def decode_small_actions(commits: Sequence[tuple[int, Sequence[bytes]]]) -> list[CommitActions]:
    """Decode all actions except file actions of several commits in one call of the decoder; the result is keyed by
    version. Every line must begin and end with a brace, which ensures that no object continues on the next line.

    Raises InvalidCommitError when a commit must be decoded by itself: it has an invalid object, two objects on one
    line, or the field of a file action.
    """
    is_info = [len(lines) == 1 and lines[0].startswith(_INFO) for _, lines in commits]
    infos = iter(_decoded([lines[0] for (_, lines), plain in zip(commits, is_info, strict=True) if plain], _infos))
    others = [line for (_, lines), plain in zip(commits, is_info, strict=True) if not plain for line in lines]
    decoded = iter(_decoded(others, _lines))
    found = []
    for (version, lines), plain in zip(commits, is_info, strict=True):
        if plain:
            info = CommitInfo(next(infos).commitInfo)
            found.append(CommitActions(version, info, True, None, None, [], [], [], []))
        else:
            found.append(_group([next(decoded) for _ in lines], version))
    if any(each.adds or each.removes or each.cdc or each.sidecars for each in found):
        raise InvalidCommitError("A line is a file action.")
    return found


def _decoded(lines: Sequence[bytes], decoder: msgspec.json.Decoder[Any]) -> list[Any]:
    data = b"\n".join(lines)
    try:
        decoded = decoder.decode_lines(data)
    except _UNDECODABLE as error:
        raise InvalidCommitError(f"A line cannot be read: {error}.") from None
    if len(decoded) != len(lines) or any(key in data for key in _FILE_FIELDS):
        raise InvalidCommitError("A line has several actions or may be a file action.")
    return decoded


def partition_names(line: bytes) -> list[str]:
    """The partition columns that occur in a log line with an add or remove action. Raises InvalidCommitError."""
    try:
        decoded = _lines.decode(line)
    except _UNDECODABLE as error:
        raise InvalidCommitError(f"A line cannot be read: {error}.") from None
    file = decoded.add or decoded.remove
    return list(file.partition_values or ()) if file is not None else []


def _check_size(data: bytes, version: int) -> None:
    name = commit_name(version)
    if len(data) > limits.MAX_COMMIT_BYTES:
        size = limits.over("MAX_COMMIT_BYTES", len(data))
        raise InvalidCommitError(f"Commit {name}: its size in bytes {size}.", version=version, path=name)
    start = 0
    while len(data) - start > limits.MAX_LINE_BYTES:
        end = data.rfind(b"\n", start, start + limits.MAX_LINE_BYTES + 1)
        if end < 0:
            size = limits.over("MAX_LINE_BYTES", data.find(b"\n", start) % (len(data) + 1) - start)
            raise InvalidCommitError(f"Commit {name}: a line's size in bytes {size}.", version=version, path=name)
        start = end + 1


def _check_unambiguous(data: bytes, actions: CommitActions) -> None:
    """Refuse two actions on one line, and a file action that has an essential field twice, because readers would
    disagree on which of the two applies. Keys are counted first; only lines in which a key occurs too often are parsed
    again."""
    removes, adds = actions.removes, actions.adds
    partitioned = sum(remove.partition_values is not None for remove in removes)
    vectors = sum(file.deletion_vector is not None for files in (adds, removes) for file in files)
    expected = {
        _PATH: len(adds) + len(removes) + len(actions.cdc) + len(actions.sidecars),
        _PARTITIONS: len(adds) + len(actions.cdc) + partitioned,
        _VECTOR: vectors,
    }
    for key, times in expected.items():
        if data.count(key) > times:
            for number, line in enumerate(data.split(b"\n"), 1):
                if line.count(key) > 1:
                    _check_line(line, number, actions.version)


def _check_line(line: bytes, number: int, version: int) -> None:
    pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list)
    named = [key for key, _ in pairs if key in _TYPES]
    what = f"the actions {' and '.join(named)}" if len(named) > 1 else ""
    for key, body in pairs:
        fields = [field for field, _ in body] if key in _TYPES and isinstance(body, list) else []
        what = what or next((f"{field} twice in one {key}" for field in fields if fields.count(field) > 1), "")
    if what:
        name = commit_name(version)
        raise InvalidCommitError(
            f"Commit {name}: line {number} has {what}, and readers would disagree on its meaning. Restore the file "
            "from a copy.",
            version=version, path=name,
        )  # fmt: skip


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
    checkpoint_tags: dict[str, Any] = {}
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
        elif line.checkpointMetadata != _ABSENT:
            checkpoint_tags.update(_tags(line.checkpointMetadata))
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
        checkpoint_tags,
    )


def _tags(raw: msgspec.Raw) -> dict[str, Any]:
    """The tags of a checkpointMetadata action; empty if there are no valid tags."""
    body = msgspec.json.decode(raw)
    tags = body.get("tags") if isinstance(body, dict) else None
    return tags if isinstance(tags, dict) else {}


def _body(raw: msgspec.Raw, version: int) -> Any:
    """The decoded body of a metaData or protocol action. metaData and protocol actions are rare and essential, so they
    are checked strictly."""
    try:
        return json.loads(bytes(raw), object_pairs_hook=_without_twins, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        name = commit_name(version)
        raise InvalidCommitError(
            f"Commit {name}: its metaData or protocol cannot be read: {error}. Restore the file from a copy.",
            version=version, path=name,
        ) from None  # fmt: skip


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it has {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return body


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _commit_info(raw: msgspec.Raw) -> CommitInfo | None:
    """commitInfo is free-form: anything but an object is treated as absent."""
    try:
        body = msgspec.json.decode(raw)
    except _UNDECODABLE:
        return None
    return CommitInfo(body) if isinstance(body, dict) else None


def _bad_line(data: bytes, version: int, error: Exception) -> InvalidCommitError:
    name = commit_name(version)
    rows = data.split(b"\n")
    for number, row in enumerate(rows, 1):
        try:
            if row.strip():
                _lines.decode(row)
        except _UNDECODABLE as cause:
            torn = number == len(rows) and "truncated" in str(cause)
            what = "is torn: its last line ends early" if torn else f"cannot be read: line {number}: {cause}"
            return InvalidCommitError(
                f"Commit {name} {what}. Restore the file from a copy; deltalog never writes partial commits.",
                version=version, path=name,
            )  # fmt: skip
    return InvalidCommitError(f"Commit {name} cannot be read: {error}.", version=version, path=name)


def first_commit_info(head: bytes, whole: bool) -> CommitInfo | None:
    """The commitInfo on the first line, if ``head`` contains that whole line; else None.

    ``whole``: whether ``head`` is the whole file, so that the last line needs no line feed.
    """
    line, separator, _ = head.partition(b"\n")
    if not separator and not whole:
        return None
    try:
        parsed = _lines.decode(line)
    except _UNDECODABLE:
        return None
    return None if parsed.commitInfo == _ABSENT else _commit_info(parsed.commitInfo)


def first_commit_infos(heads: Sequence[bytes], length: int) -> list[CommitInfo | None]:
    """``first_commit_info`` for the first ``length`` bytes of several files; one call of the decoder suffices if every
    first line contains only commitInfo."""
    lines = [head[: head.find(b"\n")] for head in heads]
    if all(line.startswith(_INFO) and line.endswith(b"}") for line in lines):
        with contextlib.suppress(*_UNDECODABLE):
            infos = _infos.decode_lines(b"\n".join(lines))
            if len(infos) == len(lines):
                return [CommitInfo(info.commitInfo) for info in infos]
    return [first_commit_info(head, len(head) < length) for head in heads]


def decode_actions(data: bytes) -> list[AnyAction | CommitInfo]:
    """Decode each line to an action, in file order. Unknown fields and unknown actions are kept."""
    actions: list[AnyAction | CommitInfo] = []
    for line in data.removeprefix(_BOM).splitlines():
        if not line.strip():
            continue
        try:
            parsed = msgspec.json.decode(line)
        except _UNDECODABLE as error:
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


class _AddLine(msgspec.Struct, gc=False):
    """A line with an add action that has no unknown fields."""

    add: AddFile


_add_lines = msgspec.json.Decoder(_AddLine)
_ADD, _EXTRA = operator.attrgetter("add"), operator.attrgetter("extra")


def sound_lines(adds: Sequence[AddFile]) -> bytes | None:
    """Encode add actions as lines of a commit, if decoding the lines returns equal actions. Otherwise, or if an action
    has ``extra`` fields, None."""
    try:
        if any(map(_EXTRA, adds)):
            return None
        lines = _encode_adds(adds)
        read_back = map(_ADD, _add_lines.decode_lines(lines))
        same = all(map(operator.eq, read_back, adds))
    except (InvalidCommitError, AttributeError, *_UNDECODABLE):
        return None
    return lines if same else None


def _encode_adds(adds: Iterable[AddFile]) -> bytes:
    try:
        return _encoder.encode_lines([_AddLine(add) for add in adds])
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidCommitError(f"An action {AddFile.KEY} cannot be written as JSON: {error}.") from None


_add_lists = msgspec.json.Decoder(list[AddFile])


def decode_adds(data: bytes) -> list[AddFile]:
    """Decode a JSON array of add bodies; unknown fields are dropped. Raises InvalidCommitError."""
    try:
        return _add_lists.decode(data)
    except _UNDECODABLE as error:
        raise InvalidCommitError(f"A list of add actions cannot be read: {error}.") from None


def encode_listed(add: AddFile) -> bytes:
    """The body of an add action as an element of ``allFiles``: dataChange is false, and ``extra`` fields are left out.

    Absent tags are written as null: delta-spark reads missing tags in a ``.crc`` as an empty map, but reads missing
    tags in a commit as null; with absent tags, the file list in the ``.crc`` would differ from the replay of the
    commits. Raises InvalidCommitError.
    """
    if add.data_change or add.extra:
        add = msgspec.structs.replace(add, data_change=False, extra={})
    body = _encode_body(add.KEY, add)
    return body if add.tags is not None else body[:-1] + b',"tags":null}'


def encode_commit(commit_info: dict[str, Any], actions: Iterable[AnyAction | bytes]) -> bytes:
    """A commit file: ``commitInfo`` first, then the actions in order. Actions given as bytes are already encoded lines.

    Raises InvalidCommitError when a value cannot be written as JSON.
    """
    parts = [_encode_line("commitInfo", commit_info) + b"\n"]
    # Add actions often come in runs; encoding a run in one call takes half the time of encoding its actions one by one.
    for kind, group in itertools.groupby(actions, type):
        run = list(group)
        if kind is AddFile and not any(action.extra for action in cast("list[AddFile]", run)):
            parts.append(_encode_adds(cast("list[AddFile]", run)))
        elif kind is bytes:
            parts.extend(cast("list[bytes]", run))
        else:
            parts.extend(encode_action(action) + b"\n" for action in cast("list[AnyAction]", run))
    return b"".join(parts)


def encode_action(action: AnyAction) -> bytes:
    """The action as a line of JSON, without the line feed."""
    if isinstance(action, UnknownAction):
        return _checked(action.line)
    if action.extra or isinstance(action, (RemoveFile, DomainMetadata)):
        return _encode_line(action.KEY, action.to_json())
    return b'{"' + action.KEY.encode() + b'":' + _encode_body(action.KEY, action) + b"}"


def _encode_body(key: str, action: AnyAction) -> bytes:
    try:
        return _encoder.encode(action)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidCommitError(f"The action {key} cannot be written as JSON: {error}.") from None


def _encode_line(key: str, body: dict[str, Any]) -> bytes:
    return _checked({key: body})


def _checked(line: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(line)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidCommitError(f"The action {next(iter(line))} cannot be written as JSON: {error}.") from None


def canonical_json(value: Any) -> str:
    """Compact JSON for fields that hold JSON strings, such as ``operationParameters`` values. Raises as
    ``json_text``."""
    return json_text(value, separators=(",", ":"))


def json_text(value: Any, **form: Any) -> str:
    """A caller's value as JSON. Raises CallError for values that JSON cannot hold: NaN, dates, or keys that are not
    strings."""
    try:
        _check_keys(value)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, **form)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CallError(f"A value cannot be written as JSON: {error}. Pass JSON values only.") from None
    return text


def _check_keys(value: Any) -> None:
    """Refuse keys that are not strings: json.dumps would convert a number to a string."""
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise TypeError(f"the key {wrong!r} is not text")
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            _check_keys(each)
