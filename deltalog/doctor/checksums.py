"""Checks of ``.crc`` files and ``_last_checkpoint`` against the log that they describe. Pure.

Spec: PROTOCOL.md#version-checksum-file, #state-validation, #last-checkpoint-file-schema, #json-checksum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from deltalog.doctor.commit_lines import Actions
from deltalog.doctor.findings import Finding, found
from deltalog.doctor.live_files import LiveFiles
from deltalog.errors import InvalidCommitError
from deltalog.log.checkpoint.last_checkpoint import checksum
from deltalog.log.checksum import differences
from deltalog.log.replay import PartialState
from deltalog.log.table_totals import DELETED_BINS, SIZE_BINS
from deltalog.protocol import limits
from deltalog.protocol.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from deltalog.protocol.paths import LAST_CHECKPOINT, checksum_path, log_path
from deltalog.protocol.properties import SET_TRANSACTION_RETENTION_MS

_REQUIRED = ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "metadata", "protocol")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class KnownState:
    """The state of a version according to its commits. ``files`` is None unless all live files are known."""

    state: PartialState
    files: LiveFiles | None
    is_ict_on: bool | None


def examine_checksum(data: bytes, version: int, actions: Actions, known: KnownState | None) -> Iterator[Finding]:
    """Check a ``.crc`` against ``actions``, the actions of its commit, and ``known``, the state (None if unknown)."""
    path = checksum_path(version)
    if len(data) > limits.MAX_CHECKSUM_BYTES:
        yield found("crc-unreadable", f"The size {limits.over('MAX_CHECKSUM_BYTES', len(data))}.", version, path)
        return
    try:
        body = msgspec.json.decode(data)
        if not isinstance(body, dict):
            raise ValueError("not a JSON object")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        yield found("crc-unreadable", f"The file cannot be parsed: {error}.", version, path)
        return
    for rule, text in (*_fields(body), *_commit(body, actions, known)):
        yield found(rule, text, version, path)
    if known is not None:
        for rule, text in (*_state(body, known.state), *(_files(body, known.files) if known.files is not None else ())):
            yield found(rule, text, version, path)


def _fields(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    missing = [name for name in _REQUIRED if body.get(name) is None]
    if missing:
        yield "crc-field-missing", f"The file has no {' and no '.join(missing)}."
    for name in ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "inCommitTimestampOpt"):
        if body.get(name) is not None and not _whole(body[name]):
            yield "crc-field-missing", f"{name} is {body[name]!r}."
    for name in ("numMetadata", "numProtocol"):
        if _whole(body.get(name)) and body[name] != 1:
            yield "crc-numbers-wrong", f"{name} is {body[name]}."
    sizes = body.get("fileSizeHistogram") or body.get("histogramOpt")
    if isinstance(sizes, dict):
        lists = [sizes.get(name) for name in ("sortedBinBoundaries", "fileCounts", "totalBytes")]
        if not all(isinstance(each, list) for each in lists) or len({len(each or ()) for each in lists}) != 1:
            yield "crc-histogram-differs", "The lists of the histogram differ in length."


def _commit(body: Mapping[str, Any], actions: Actions, known: KnownState | None) -> Iterator[tuple[str, str]]:
    info, ict_ms = actions.info, body.get("inCommitTimestampOpt")
    if known is not None and known.is_ict_on is not None and actions.is_whole:
        if known.is_ict_on and ict_ms is None:
            yield "crc-ict-missing", "The file has no inCommitTimestampOpt."
        elif not known.is_ict_on and ict_ms is not None:
            yield "crc-ict-unexpected", f"inCommitTimestampOpt is {ict_ms}."
    if info is None:
        return
    own_ms = info.in_commit_timestamp_ms
    if ict_ms is not None and own_ms is not None and ict_ms != own_ms:
        yield "crc-ict-disagrees", f"The .crc has {ict_ms}; the commit has {own_ms}."
    txn_id = body.get("txnId")
    if txn_id is not None and info.txn_id is not None and txn_id != info.txn_id:
        yield "crc-txn-id-disagrees", f"The .crc has {txn_id!r}; the commit has {info.txn_id!r}."


def _state(body: Mapping[str, Any], state: PartialState) -> Iterator[tuple[str, str]]:
    try:
        protocol = Protocol.from_json(body["protocol"]) if body.get("protocol") is not None else None
        metadata = Metadata.from_json(body["metadata"]) if body.get("metadata") is not None else None
    except (InvalidCommitError, TypeError, AttributeError) as error:
        yield "crc-field-missing", str(error)
        return
    for name in differences(state, PartialState(protocol, metadata)):
        rule = "crc-protocol-differs" if name == "protocol" else "crc-metadata-differs"
        yield rule, f"The {name} differs from that of the commits."
    yield from _lists(body, state)


def _lists(body: Mapping[str, Any], state: PartialState) -> Iterator[tuple[str, str]]:
    try:
        transactions = body.get("setTransactions")
        domains = body.get("domainMetadata")
        if transactions is not None:
            listed = {each.app_id: each.version for each in map(SetTransaction.from_json, transactions)}
            own = {app: each.version for app, each in state.transactions.items()}
            # If a retention is set, writers omit expired transaction identifiers.
            configuration = state.metadata.configuration if state.metadata is not None else {}
            if SET_TRANSACTION_RETENTION_MS.key in configuration:
                own = {app: number for app, number in own.items() if app in listed}
            if listed != own:
                yield "crc-transactions-differ", f"The .crc has {_short(listed)}; the log has {_short(own)}."
        if domains is not None:
            named = {
                each.domain: each.configuration for each in map(DomainMetadata.from_json, domains) if not each.removed
            }
            own_domains = {name: each.configuration for name, each in state.domains.items()}
            if named != own_domains:
                yield "crc-domains-differ", f"The .crc has {sorted(named)}; the log has {sorted(own_domains)}."
    except (InvalidCommitError, TypeError, AttributeError) as error:
        yield "crc-field-missing", str(error)


def _short(values: Mapping[str, Any]) -> str:
    return str(dict(sorted(values.items())[:5]))


def _files(body: Mapping[str, Any], files: LiveFiles) -> Iterator[tuple[str, str]]:
    if _whole(body.get("numFiles")) and body["numFiles"] != len(files):
        yield "crc-files-differ", f"numFiles is {body['numFiles']}; {len(files)} files are live."
    if _whole(body.get("tableSizeBytes")) and body["tableSizeBytes"] != files.size_bytes:
        yield (
            "crc-size-differs",
            f"tableSizeBytes is {body['tableSizeBytes']}; the live files have {files.size_bytes} bytes.",
        )
    listed = body.get("allFiles")
    if isinstance(listed, list):
        paths = {each.get("path") for each in listed if isinstance(each, dict)}
        if paths != files.packed.keys():
            names = sorted(map(str, paths ^ files.packed.keys()))[:3]
            yield "crc-files-differ", f"allFiles differs from the live files, for example in {', '.join(names)}."
    sizes = body.get("fileSizeHistogram") or body.get("histogramOpt")
    if isinstance(sizes, dict) and sizes.get("sortedBinBoundaries") == list(SIZE_BINS):
        bins = sizes.get("fileCounts"), sizes.get("totalBytes")
        if bins != (files.size_counts, files.size_sums):
            yield "crc-histogram-differs", "The bins of the file size histogram differ from those of the live files."
    if _whole(body.get("numDeletedRecordsOpt")) and body["numDeletedRecordsOpt"] != files.deleted:
        text = f"numDeletedRecordsOpt is {body['numDeletedRecordsOpt']}; {files.deleted} rows are deleted."
        yield "crc-deletions-differ", text
    if _whole(body.get("numDeletionVectorsOpt")) and body["numDeletionVectorsOpt"] != len(files.vectors):
        text = f"numDeletionVectorsOpt is {body['numDeletionVectorsOpt']}; {len(files.vectors)} files have one."
        yield "crc-deletions-differ", text
    deleted = body.get("deletedRecordCountsHistogramOpt")
    counts = deleted.get("deletedRecordCounts") if isinstance(deleted, dict) else None
    if isinstance(counts, list) and len(counts) == len(DELETED_BINS) and counts != files.deleted_counts:
        yield "crc-deletions-differ", f"The histogram is {counts}; expected {files.deleted_counts}."


# ------------------------------------------------------------------------------------- _last_checkpoint


@dataclass(frozen=True, slots=True)
class CheckpointSize:
    """The number of parts, actions, add actions and bytes of a checkpoint; None for unknown numbers."""

    version: int
    parts: int
    actions: int | None = None
    adds: int | None = None
    size_bytes: int | None = None


def read_hint(data: bytes) -> Mapping[str, Any] | None:
    """Parse ``_last_checkpoint``; None if it is not a JSON object."""
    try:
        body = json.loads(data) if len(data) <= limits.MAX_HINT_BYTES else None
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def examine_hint(data: bytes | None, checkpoints: Mapping[int, list[CheckpointSize]]) -> Iterator[Finding]:
    """Check ``_last_checkpoint``. ``data``: the bytes of the file, or None if the file is missing. ``checkpoints``: the
    complete checkpoints by version."""
    path = log_path(LAST_CHECKPOINT)
    newest = max(checkpoints, default=None)
    if data is None:
        if newest is not None:
            yield found("last-checkpoint-missing", f"The newest checkpoint is at version {newest}.", newest, path)
        return
    body = read_hint(data)
    version = body.get("version") if body is not None else None
    if body is None or not _whole(version):
        text = "The file is not a JSON object." if body is None else f"version is {version!r}."
        yield found("last-checkpoint-unreadable", text, None, path)
        return
    assert isinstance(version, int)
    try:
        expected = body.get("checksum")
        if expected is not None and expected != checksum(body):
            yield found(
                "last-checkpoint-checksum-wrong",
                f"The file contains the checksum {expected!r}, which does not match.",
                version,
                path,
            )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        yield found("last-checkpoint-checksum-wrong", f"The checksum cannot be computed: {error}.", version, path)
    if version not in checkpoints:
        rest = "none exists" if newest is None else f"the newest is at version {newest}"
        yield found("last-checkpoint-to-missing", f"The file names version {version}; {rest}.", version, path)
        return
    if newest is not None and version < newest:
        yield found(
            "last-checkpoint-stale", f"The file names version {version}; the newest is {newest}.", version, path
        )
    yield from _sizes(body, checkpoints[version], version, path)


def _sizes(body: Mapping[str, Any], sizes: list[CheckpointSize], version: int, path: str) -> Iterator[Finding]:
    parts = body.get("parts")
    if _whole(parts) and parts not in {each.parts for each in sizes}:
        text = f"parts is {parts}; the checkpoint has {sorted({each.parts for each in sizes})}."
        yield found("last-checkpoint-to-missing", text, version, path)
        return
    for name, values in (
        ("numOfAddFiles", {each.adds for each in sizes}),
        ("size", {each.actions for each in sizes}),
    ):
        number = body.get(name)
        if number is not None and None not in values and number not in values:
            text = f"{name} is {number!r}; the checkpoint has {sorted(map(str, values))}."
            yield found("last-checkpoint-size-differs", text, version, path)
