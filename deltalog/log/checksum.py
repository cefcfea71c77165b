"""The version checksum (``.crc``): the protocol, metadata and totals of a version, so that readers need not replay the
log. Pure.

Spec: PROTOCOL.md#version-checksum-file, #version-checksum-file-schema, #reader-requirements. A checksum is used only
if its txnId or in-commit timestamp matches the commit file of its version, so a stale checksum, or the checksum of
another table, has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from deltalog.errors import CorruptTableError, InvalidCommitError, InvalidPropertyError
from deltalog.log.file_list import FileList
from deltalog.log.replay import PartialState, State, advance
from deltalog.log.table_totals import DELETED_BINS, SIZE_BINS, Deletions, FileSizes, Totals
from deltalog.protocol import features, limits
from deltalog.protocol.actions import CommitInfo, DomainMetadata, Metadata, Protocol, SetTransaction
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import checksum_path
from deltalog.protocol.properties import (
    CHECKPOINT_STATS_AS_JSON,
    DATA_SKIPPING_NUM_INDEXED_COLS,
    SET_TRANSACTION_RETENTION_MS,
)

# Longer lists are left out, which PROTOCOL.md allows: readers then take the actions from the log.
MAX_TRANSACTIONS = 10_000
MAX_DOMAINS = 10_000
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
__all__ = ["Totals", "VersionChecksum", "check_against", "decode_checksum", "differences", "encode_checksum"]


class VersionChecksum(msgspec.Struct, frozen=True):
    """A parsed ``.crc``.

    ``txn_id`` and ``in_commit_timestamp_ms`` (milliseconds since 1970) identify the version's commit. ``transactions``
    and ``domains`` are None if the file omits them. ``all_files``: the field ``allFiles`` as JSON, not decoded.

    Spec: PROTOCOL.md#version-checksum-file-schema.
    """

    totals: Totals
    protocol: Protocol
    metadata: Metadata
    txn_id: str | None
    in_commit_timestamp_ms: int | None
    transactions: list[SetTransaction] | None
    domains: list[DomainMetadata] | None
    all_files: bytes | None = None

    def matches(self, info: CommitInfo | None) -> bool:
        """Whether this checksum belongs to the commit whose commitInfo is ``info``."""
        if info is None:
            return False
        if self.txn_id is not None and info.txn_id is not None:
            return self.txn_id == info.txn_id
        ict = info.in_commit_timestamp_ms
        return ict is not None and ict == self.in_commit_timestamp_ms

    def state(self) -> State | None:
        """The state of the version; None if the checksum omits transactions or domains."""
        if self.transactions is None or self.domains is None:
            return None
        transactions = {t.app_id: t for t in self.transactions}
        domains = {d.domain: d for d in self.domains if not d.removed}
        return State(self.protocol, self.metadata, transactions, domains)


def decode_checksum(data: bytes) -> VersionChecksum | None:
    """Parse a checksum; None if it is truncated, invalid, incomplete, larger than ``limits.MAX_CHECKSUM_BYTES``, or if
    its histogram of file sizes contradicts its totals."""
    if len(data) > limits.MAX_CHECKSUM_BYTES:
        return None
    try:
        fields = _fields.decode(data)
        listed = fields.pop("allFiles", None)
        body = {key: msgspec.json.decode(value) for key, value in fields.items()}
        counts = (body["numFiles"], body["tableSizeBytes"])
        if not _are_counts(counts):
            return None
        sizes = _sizes_in(body)
        if sizes is not None and (sum(sizes.counts), sum(sizes.sizes)) != counts:
            return None  # one of the two is wrong, and the next commit would take it over
        totals = Totals(*counts, sizes, _deletions_in(body))
        transactions, domains = body.get("setTransactions"), body.get("domainMetadata")
        return VersionChecksum(
            totals,
            Protocol.from_json(body["protocol"]),
            Metadata.from_json(body["metadata"]),
            body.get("txnId"),
            body.get("inCommitTimestampOpt"),
            None if transactions is None else [SetTransaction.from_json(t) for t in transactions],
            None if domains is None else [DomainMetadata.from_json(d) for d in domains],
            None if listed is None else bytes(listed),
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    except (KeyError, TypeError, AttributeError, InvalidCommitError):
        return None


def _are_counts(values: Any) -> bool:
    return all(type(n) is int and 0 <= n < 2**63 for n in values)


def _sizes_in(body: dict[str, Any]) -> FileSizes | None:
    """The histogram of file sizes, if it has the bins SIZE_BINS. The name of the field differs between versions of
    delta-spark."""
    histogram = body.get("fileSizeHistogram") or body.get("histogramOpt")
    if not isinstance(histogram, dict) or histogram.get("sortedBinBoundaries") != list(SIZE_BINS):
        return None
    counts, sizes = (_counts_in(histogram, key, len(SIZE_BINS)) for key in ("fileCounts", "totalBytes"))
    return FileSizes(counts, sizes) if counts and sizes else None


def _counts_in(body: dict[str, Any], key: str, length: int) -> tuple[int, ...]:
    """The list at ``key``; empty unless it is a list of ``length`` counts."""
    counts = body.get(key)
    is_valid = isinstance(counts, list) and len(counts) == length and _are_counts(counts)
    return tuple(counts or ()) if is_valid else ()


def _deletions_in(body: dict[str, Any]) -> Deletions | None:
    numbers = [body.get(key) for key in ("numDeletedRecordsOpt", "numDeletionVectorsOpt")]
    histogram = body.get("deletedRecordCountsHistogramOpt")
    if not isinstance(histogram, dict) or not _are_counts(numbers):
        return None
    counts = _counts_in(histogram, "deletedRecordCounts", len(DELETED_BINS))
    records, vectors = (number or 0 for number in numbers)
    return Deletions(records, vectors, counts) if counts and sum(counts) == body["numFiles"] else None


def check_against(state: State, commits: Sequence[CommitActions], table: str, version: int) -> None:
    """Compare protocol and metadata of ``state``, which may come from a ``.crc``, with those in ``commits``.

    ``commits``: the commits up to ``version``, in ascending order. If the commits contain no protocol action, the
    protocol is not compared; likewise for the metaData action. Raises CorruptTableError.
    """
    different = differences(state, advance(PartialState(), commits))
    if different:
        raise CorruptTableError(
            f"{table}: {checksum_path(version)} contradicts the commits in {' and '.join(different)}. The commits "
            "are authoritative: delete that file, and the state will be read from the log."
        )


def differences(one: State | PartialState, other: State | PartialState) -> list[str]:
    """Which of the actions protocol and metaData differ between two states; an action that is missing in one of the
    states is ignored.

    Compares only the parts that affect how rows are read, and compares schemas by content, because writers differ in
    white space.
    """
    first, second = _comparable(one), _comparable(other)
    return [
        name
        for name, value in first.items()
        if None not in (value, second[name]) and value != second[name] and not _same_metadata(one, other, name)
    ]


def _same_metadata(one: State | PartialState, other: State | PartialState, name: str) -> bool:
    """Whether two metaData actions differ only in the formatting of the schema JSON."""
    if name != "metaData" or one.metadata is None or other.metadata is None:
        return False
    try:
        schemas = [msgspec.json.decode(metadata.schema_string) for metadata in (one.metadata, other.metadata)]
    except (msgspec.DecodeError, RecursionError):
        return False
    alike = msgspec.structs.replace(other.metadata, schema_string=one.metadata.schema_string)
    return bool(schemas[0] == schemas[1]) and _comparable(one)[name] == _comparable(PartialState(None, alike))[name]


def _comparable(state: State | PartialState) -> dict[str, object]:
    """Keyed by action name, the fields of the protocol and metaData actions that affect how rows are read, without
    details that depend on the writer's formatting; None for a missing action."""
    protocol, metadata = state.protocol, state.metadata
    return {
        "protocol": None if protocol is None else (
            protocol.min_reader_version, protocol.min_writer_version,
            frozenset(protocol.reader_features or ()), frozenset(protocol.writer_features or ()),
        ),
        "metaData": None if metadata is None else (
            metadata.id, metadata.schema_string, metadata.partition_columns, metadata.configuration
        ),
    }  # fmt: skip


def encode_checksum(
    state: State, totals: Totals, txn_id: str | None, in_commit_timestamp_ms: int | None, files: FileList | None = None
) -> bytes:
    """The ``.crc`` of a version, with only those fields that are known and apply to the table.

    Omits transactions if there are more than MAX_TRANSACTIONS or the table sets a retention for them, domains if there
    are more than MAX_DOMAINS, and ``files`` if ``FileList.encoded`` returns None or a table property excludes them.
    Spec: PROTOCOL.md#version-checksum-file-schema.
    """
    configuration = state.metadata.configuration
    # If a retention is set, the set of unexpired transaction identifiers depends on the time at which the table is
    # read.
    few = len(state.transactions) <= MAX_TRANSACTIONS and SET_TRANSACTION_RETENTION_MS.key not in configuration
    body: dict[str, Any] = {
        "txnId": txn_id,
        "tableSizeBytes": totals.size_bytes,
        "numFiles": totals.num_files,
        "numMetadata": 1,
        "numProtocol": 1,
        "inCommitTimestampOpt": in_commit_timestamp_ms,
        "setTransactions": [t.to_json() for t in state.transactions.values()] if few else None,
        "domainMetadata": [d.to_json() for d in state.domains.values()] if len(state.domains) <= MAX_DOMAINS else None,
        "metadata": state.metadata.to_json(),
        "protocol": state.protocol.to_json(),
        "fileSizeHistogram": _sizes_body(totals.sizes),
        "allFiles": _files_body(files, totals) if _lists_files(configuration) else None,
    }
    if "deletionVectors" in features.writer_features(state.protocol) and totals.deletions is not None:
        body["numDeletedRecordsOpt"] = totals.deletions.num_records
        body["numDeletionVectorsOpt"] = totals.deletions.num_vectors
        body["deletedRecordCountsHistogramOpt"] = {"deletedRecordCounts": totals.deletions.counts}
    return msgspec.json.encode({key: value for key, value in body.items() if value is not None})


def _sizes_body(sizes: FileSizes | None) -> dict[str, Any] | None:
    if sizes is None:
        return None
    return {"sortedBinBoundaries": SIZE_BINS, "fileCounts": sizes.counts, "totalBytes": sizes.sizes}


def _files_body(files: FileList | None, totals: Totals) -> msgspec.Raw | None:
    data = None if files is None else files.encoded(totals)
    return None if data is None else msgspec.Raw(data)


def _lists_files(configuration: Mapping[str, str]) -> bool:
    """Whether the checksum file of a table with these properties contains a list of the table's files. The checksum
    does not list the files if checkpoints omit the JSON text of statistics, because the list would then differ from a
    replay of the log. Like delta-spark, deltalog also omits the list of files from the checksum if statistics are
    collected for more columns than by default."""
    try:
        keeps_text = CHECKPOINT_STATS_AS_JSON.read(configuration)
        columns = DATA_SKIPPING_NUM_INDEXED_COLS.read(configuration)
    except InvalidPropertyError:
        return False
    return keeps_text and columns <= DATA_SKIPPING_NUM_INDEXED_COLS.default
