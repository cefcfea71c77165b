"""Types that describe the requests and responses for which the server itself has no classes. Pure.

Spec: Unity Catalog, api/all.yaml; the service model of AWS Lake Formation.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from deltalog.protocol.actions import Long

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_Uri = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
_Token = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
_Results = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class _Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of responses, which have no other members than the described ones."""


class Empty(_Shape, frozen=True, kw_only=True):
    """No members."""


class Health(_Shape, frozen=True, kw_only=True):
    status: Literal["ok"]


class Live(_Shape, frozen=True, kw_only=True):
    status: Literal["live"]


class Ready(_Shape, frozen=True, kw_only=True):
    status: Literal["ready"]


class Unready(_Shape, frozen=True, kw_only=True):
    """``status``: the process ends soon, has too many calls, or makes none because it cannot write its audit log."""

    status: Literal["draining", "overloaded", "unaudited"]


class Failing(_Shape, frozen=True, kw_only=True):
    """``code``: the code of the catalog's error."""

    status: Literal["failing"]
    failing: Literal["catalog"]
    code: str


# ------------------------------------------------------------------------------------------------ general API


class MetastoreSummary(_Shape, frozen=True, kw_only=True):
    metastore_id: str


class CatalogInfo(_Shape, frozen=True, kw_only=True):
    name: str
    id: str
    properties: dict[str, str]
    created_at: Long | None
    updated_at: Long | None


class Catalogs(_Shape, frozen=True, kw_only=True):
    catalogs: list[CatalogInfo]
    next_page_token: str | None


class SchemaInfo(_Shape, frozen=True, kw_only=True):
    """Times are in ms since 1970; null for a schema that was not created by a call but exists because it has tables."""

    name: str
    catalog_name: str
    full_name: str
    comment: str | None
    properties: dict[str, str]
    schema_id: str
    created_at: Long | None
    updated_at: Long | None


class Schemas(_Shape, frozen=True, kw_only=True):
    schemas: list[SchemaInfo]
    next_page_token: str | None


class TableInfo(_Shape, frozen=True, kw_only=True):
    """Times are in ms since 1970. The columns of an external table are as its creator sent them."""

    name: str
    catalog_name: str
    schema_name: str
    table_type: Literal["MANAGED", "EXTERNAL"]
    data_source_format: str
    columns: list[dict[str, Any]]
    storage_location: str
    comment: str | None = None
    properties: dict[str, str]
    created_at: Long | None
    updated_at: Long | None
    table_id: str


class Tables(_Shape, frozen=True, kw_only=True):
    """``tables``: at most as many as were requested. Any page, not only the last one, may have fewer or none."""

    tables: list[TableInfo]
    next_page_token: str | None


class StagedTable(_Shape, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str
    id: str
    staging_location: str


class AwsCredentials(_Shape, frozen=True, kw_only=True):
    access_key_id: str | None
    secret_access_key: str | None
    session_token: str | None


class AzureSas(_Shape, frozen=True, kw_only=True):
    sas_token: str


class GcpToken(_Shape, frozen=True, kw_only=True):
    oauth_token: str


class TemporaryCredentials(_Shape, frozen=True, kw_only=True):
    """``expiration_time``: in ms since 1970. If the response has no credentials, the client must use its own."""

    url: str
    expiration_time: Long | None
    aws_temp_credentials: AwsCredentials | msgspec.UnsetType = msgspec.UNSET
    azure_user_delegation_sas: AzureSas | msgspec.UnsetType = msgspec.UNSET
    gcp_oauth_token: GcpToken | msgspec.UnsetType = msgspec.UNSET


class PreviewCommitInfo(_Shape, frozen=True, kw_only=True):
    version: Long
    timestamp: Long
    file_name: str
    file_size: Long
    file_modification_timestamp: Long


class PreviewCommits(_Shape, frozen=True, kw_only=True):
    commits: list[PreviewCommitInfo]
    latest_table_version: Long


class Assignment(_Shape, frozen=True, kw_only=True):
    principal: str
    privileges: list[str]


class Permissions(_Shape, frozen=True, kw_only=True):
    privilege_assignments: list[Assignment]


# --------------------------------------------------------------------------------------------- Lake Formation


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of requests: unknown members are ignored."""


class StartTransaction(_Call, frozen=True, kw_only=True):
    TransactionType: Literal["READ_AND_WRITE", "READ_ONLY"] | None = None


class StartedTransaction(_Shape, frozen=True, kw_only=True):
    TransactionId: str


class OneTransaction(_Call, frozen=True, kw_only=True):
    TransactionId: Text


TransactionStatus = Literal["ACTIVE", "COMMITTED", "ABORTED", "COMMIT_IN_PROGRESS"]


class CommittedTransaction(_Shape, frozen=True, kw_only=True):
    TransactionStatus: TransactionStatus


class TransactionDescription(_Shape, frozen=True, kw_only=True):
    """Times are in seconds since 1970."""

    TransactionId: str
    TransactionStatus: TransactionStatus
    TransactionStartTime: float
    TransactionEndTime: float | msgspec.UnsetType = msgspec.UNSET


class DescribedTransaction(_Shape, frozen=True, kw_only=True):
    TransactionDescription: TransactionDescription


class ListTransactions(_Call, frozen=True, kw_only=True):
    CatalogId: Text | None = None
    StatusFilter: Literal["ALL", "COMPLETED", "ACTIVE", "COMMITTED", "ABORTED"] | None = None
    MaxResults: _Results | None = None
    NextToken: _Token | None = None


class ListedTransactions(_Shape, frozen=True, kw_only=True):
    Transactions: list[TransactionDescription]
    NextToken: str | msgspec.UnsetType = msgspec.UNSET


class VirtualObject(_Call, frozen=True, kw_only=True):
    Uri: _Uri
    ETag: Text | None = None


class _OnTable(_Call, frozen=True, kw_only=True):
    CatalogId: Text | None = None
    DatabaseName: Text
    TableName: Text


class DeleteObjectsOnCancel(_OnTable, frozen=True, kw_only=True):
    TransactionId: Text
    Objects: Annotated[list[VirtualObject], msgspec.Meta(min_length=1, max_length=100)]


class AddObject(_Call, frozen=True, kw_only=True):
    Uri: _Uri
    ETag: Text
    Size: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    PartitionValues: Annotated[list[str], msgspec.Meta(max_length=100)] | None = None


class WriteOperation(_Call, frozen=True, kw_only=True):
    """Exactly one of the two members is present."""

    AddObject: AddObject | None = None
    DeleteObject: VirtualObject | None = None


class UpdateTableObjects(_OnTable, frozen=True, kw_only=True):
    TransactionId: Text | None = None
    WriteOperations: Annotated[list[WriteOperation], msgspec.Meta(min_length=1, max_length=100)]


class GetTableObjects(_OnTable, frozen=True, kw_only=True):
    """``QueryAsOfTime``: seconds since 1970, or text in ISO 8601 format."""

    TransactionId: Text | None = None
    QueryAsOfTime: float | str | None = None
    PartitionPredicate: Annotated[str, msgspec.Meta(max_length=2048)] | None = None
    MaxResults: _Results | None = None
    NextToken: _Token | None = None


class TableObject(_Shape, frozen=True, kw_only=True):
    Uri: str
    ETag: str | msgspec.UnsetType = msgspec.UNSET
    Size: Long


class PartitionObjects(_Shape, frozen=True, kw_only=True):
    PartitionValues: list[str]
    Objects: list[TableObject]


class TableObjects(_Shape, frozen=True, kw_only=True):
    Objects: list[PartitionObjects]
    NextToken: str | msgspec.UnsetType = msgspec.UNSET
