"""The messages of the UC Delta API as types. Pure.

The names on the wire are hyphenated. Unknown members are ignored. Times are in milliseconds since 1970 and sizes are in
bytes, even where their names on the wire do not say so.

Spec: UC Delta API 1.0, api/delta.yaml.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from deltalog.protocol.actions import Long, Protocol

TableType = Literal["MANAGED", "EXTERNAL"]
CredentialOperation = Literal["READ", "READ_WRITE"]
# A schema in the API's form; see deltalog.unity.columns.
Columns = dict[str, Any]
PROTOCOL_VERSION = "1.0"
ROOT = "/api/2.1/unity-catalog"

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Message(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The base class of all messages. ``to_json`` omits members that have their default values."""

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)


# ---------------------------------------------------------------------------------- parts of several messages


class TableProtocol(_Message, frozen=True, kw_only=True):
    """The protocol of a table. Spec: DeltaProtocol."""

    min_reader_version: Int32
    min_writer_version: Int32
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    @classmethod
    def from_action(cls, protocol: Protocol) -> TableProtocol:
        return cls(
            min_reader_version=protocol.min_reader_version,
            min_writer_version=protocol.min_writer_version,
            reader_features=protocol.reader_features,
            writer_features=protocol.writer_features,
        )

    def to_action(self) -> Protocol:
        return Protocol(
            min_reader_version=self.min_reader_version,
            min_writer_version=self.min_writer_version,
            reader_features=self.reader_features,
            writer_features=self.writer_features,
        )


class SuggestedProtocol(_Message, frozen=True, kw_only=True):
    """Features that a client should enable if it supports them."""

    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class Commit(_Message, frozen=True, kw_only=True):
    """A ratified or proposed commit. ``timestamp``: its in-commit timestamp in ms. ``file_name``: the name of its file
    in ``_delta_log/_staged_commits``. Spec: DeltaCommit."""

    version: Long
    timestamp: Long
    file_name: str
    file_size: Long
    file_modification_timestamp: Long


class IcebergConversion(_Message, frozen=True, kw_only=True):
    """The state of a table's conversion to Iceberg."""

    metadata_location: str | None = None
    converted_delta_version: Long | None = None
    converted_delta_timestamp: Long | None = None
    base_converted_delta_version: Long | None = None


class Uniform(_Message, frozen=True, kw_only=True):
    """Spec: DeltaUniformMetadata."""

    iceberg: IcebergConversion


class StorageCredential(_Message, frozen=True, kw_only=True):
    """A credential for the objects below ``prefix``. ``config``: the keys of one cloud provider.
    ``expiration_time_ms``: None if it does not expire. The ``repr`` omits the secrets. Spec:
    DeltaStorageCredential."""

    prefix: str
    operation: CredentialOperation
    expiration_time_ms: Long | None = None
    config: dict[str, str | None]

    def __repr__(self) -> str:
        return f"StorageCredential({self.prefix!r}, {self.operation}, {sorted(self.config)})"

    __str__ = __repr__


# ------------------------------------------------------------------------------------------ requests and responses


class Config(_Message, frozen=True, kw_only=True):
    """Spec: DeltaCatalogConfig."""

    endpoints: tuple[str, ...]
    protocol_version: str


class CreateStagingTable(_Message, frozen=True, kw_only=True):
    name: str


class StagingTable(_Message, frozen=True, kw_only=True, omit_defaults=False):
    """Spec: DeltaStagingTableResponse; all members are sent, also those with default values. A null property is one
    whose value the client generates."""

    table_id: str
    table_type: TableType = field(default="MANAGED")
    location: str
    storage_credentials: tuple[StorageCredential, ...] = ()
    required_protocol: TableProtocol
    suggested_protocol: SuggestedProtocol | None = None
    required_properties: dict[str, str | None] = field(default_factory=dict)
    suggested_properties: dict[str, str | None] = field(default_factory=dict)


class CreateTable(_Message, frozen=True, kw_only=True):
    """Spec: DeltaCreateTableRequest. ``last_commit_timestamp_ms``: the in-commit timestamp of version 0."""

    name: str
    location: str
    table_type: TableType
    comment: str | None = None
    columns: Columns | None = None  # clients omit the columns of a table that has none
    partition_columns: tuple[str, ...] = ()
    protocol: TableProtocol
    properties: dict[str, str]
    domain_metadata: dict[str, dict[str, Any]] = field(default_factory=dict)
    last_commit_timestamp_ms: Long
    uniform: Uniform | None = None


class TableMetadata(_Message, frozen=True, kw_only=True):
    """Spec: DeltaTableMetadata. ``last_commit_version``, ``last_commit_timestamp_ms``: the last commit that changed
    metadata."""

    etag: str
    table_type: TableType
    table_uuid: str
    location: str
    created_time: Long
    updated_time: Long
    columns: Columns
    partition_columns: tuple[str, ...] | None = None
    properties: dict[str, str]
    last_commit_version: Long | None = None
    last_commit_timestamp_ms: Long | None = None


class LoadedTable(_Message, frozen=True, kw_only=True):
    """Spec: DeltaLoadTableResponse. ``commits``: the newest first; None for external tables."""

    metadata: TableMetadata
    commits: tuple[Commit, ...] | None = None
    uniform: Uniform | None = None
    latest_table_version: Long | None = None


class RenameTable(_Message, frozen=True, kw_only=True):
    new_name: str


class Credentials(_Message, frozen=True, kw_only=True):
    """Spec: DeltaCredentialsResponse."""

    storage_credentials: tuple[StorageCredential, ...]


# --------------------------------------------------------------------------------------------------- updateTable


class AssertTableUuid(_Message, frozen=True, kw_only=True, tag_field="type", tag="assert-table-uuid"):
    uuid: str


class AssertEtag(_Message, frozen=True, kw_only=True, tag_field="type", tag="assert-etag"):
    etag: str


Requirement = AssertTableUuid | AssertEtag


class AddCommit(_Message, frozen=True, kw_only=True, tag_field="action", tag="add-commit"):
    commit: Commit
    uniform: Uniform | None = None


class SetLatestBackfilledVersion(
    _Message, frozen=True, kw_only=True, tag_field="action", tag="set-latest-backfilled-version"
):
    latest_published_version: Long


class SetProperties(_Message, frozen=True, kw_only=True, tag_field="action", tag="set-properties"):
    updates: dict[str, str]


class RemoveProperties(_Message, frozen=True, kw_only=True, tag_field="action", tag="remove-properties"):
    removals: tuple[str, ...]


class SetProtocol(_Message, frozen=True, kw_only=True, tag_field="action", tag="set-protocol"):
    protocol: TableProtocol


class SetColumns(_Message, frozen=True, kw_only=True, tag_field="action", tag="set-columns"):
    columns: Columns


class SetPartitionColumns(_Message, frozen=True, kw_only=True, tag_field="action", tag="set-partition-columns"):
    partition_columns: tuple[str, ...]


class SetTableComment(_Message, frozen=True, kw_only=True, tag_field="action", tag="set-table-comment"):
    """``comment``: None removes it."""

    comment: str | None = None


class SetDomainMetadata(_Message, frozen=True, kw_only=True, tag_field="action", tag="set-domain-metadata"):
    updates: dict[str, dict[str, Any]]


class RemoveDomainMetadata(_Message, frozen=True, kw_only=True, tag_field="action", tag="remove-domain-metadata"):
    domains: tuple[str, ...]


class UpdateSnapshotVersion(
    _Message, frozen=True, kw_only=True, tag_field="action", tag="update-metadata-snapshot-version"
):
    """For external tables only."""

    last_commit_version: Long
    last_commit_timestamp_ms: Long


Update = (
    AddCommit
    | SetLatestBackfilledVersion
    | SetProperties
    | RemoveProperties
    | SetProtocol
    | SetColumns
    | SetPartitionColumns
    | SetTableComment
    | SetDomainMetadata
    | RemoveDomainMetadata
    | UpdateSnapshotVersion
)


class UpdateTable(_Message, frozen=True, kw_only=True):
    """Requirements and updates, applied atomically; their order has no meaning. Spec: DeltaUpdateTableRequest."""

    requirements: tuple[Requirement, ...]
    updates: tuple[Update, ...]


# ------------------------------------------------------------------------------------------------ reportMetrics


class FileSizeHistogram(_Message, frozen=True, kw_only=True):
    sorted_bin_boundaries: tuple[Long, ...]
    file_counts: tuple[Long, ...]
    total_bytes: tuple[Long, ...]
    commit_version: Long | None = None


class CommitReport(_Message, frozen=True, kw_only=True):
    num_files_added: Long | None = None
    num_bytes_added: Long | None = None
    num_files_removed: Long | None = None
    num_bytes_removed: Long | None = None
    num_rows_inserted: Long | None = None
    num_rows_removed: Long | None = None
    num_rows_updated: Long | None = None
    file_size_histogram: FileSizeHistogram | None = None


class Report(_Message, frozen=True, kw_only=True):
    commit_report: CommitReport | None = None


class ReportMetrics(_Message, frozen=True, kw_only=True):
    """Spec: DeltaReportMetricsRequest."""

    table_id: str
    report: Report | None = None


# ------------------------------------------------------------------------------------------------------- errors


class ErrorBody(_Message, frozen=True, kw_only=True):
    """``type``: the name of the error. ``code``: the status of the response."""

    type: str
    code: Int32
    message: str = ""
    stack: tuple[str, ...] | UnsetType | None = UNSET


class ErrorResponse(_Message, frozen=True, kw_only=True):
    """Spec: DeltaErrorResponse."""

    error: ErrorBody


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in [each for each in globals().values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]:
    msgspec.json.Decoder(_cls)
