"""The messages of Unity Catalog's other calls, as far as the client needs them: catalogs, schemas, tables, temporary
credentials, and the older calls for commits. Pure.

The names on the wire are in snake case. Unknown members are ignored. Times are in milliseconds since 1970.

Spec: Unity Catalog API, api/all.yaml.
"""

from __future__ import annotations

import msgspec
from msgspec import field

from deltalog.protocol.actions import Long
from deltalog.unity.messages import CredentialOperation, StorageCredential


class _Object(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class CatalogInfo(_Object, frozen=True, kw_only=True):
    """A catalog."""

    name: str
    comment: str | None = None
    created_at: Long | None = None
    id: str | None = None


class SchemaInfo(_Object, frozen=True, kw_only=True):
    """A schema of a catalog."""

    name: str
    catalog_name: str
    comment: str | None = None
    created_at: Long | None = None
    schema_id: str | None = None


class TableInfo(_Object, frozen=True, kw_only=True):
    """A table. ``table_type``: MANAGED, EXTERNAL or another kind, such as VIEW. ``data_source_format``: DELTA, or
    another format."""

    name: str
    catalog_name: str
    schema_name: str
    table_type: str | None = None
    data_source_format: str | None = None
    storage_location: str | None = None
    comment: str | None = None
    properties: dict[str, str] | None = None
    table_id: str | None = None
    created_at: Long | None = None
    updated_at: Long | None = None


class Page(_Object, frozen=True, kw_only=True):
    """A page of a listing. ``next_page_token``: the token with which to ask for the next page; empty or None on the
    last page."""

    next_page_token: str | None = None


class Catalogs(Page, frozen=True, kw_only=True):
    catalogs: tuple[CatalogInfo, ...] = ()


class Schemas(Page, frozen=True, kw_only=True):
    schemas: tuple[SchemaInfo, ...] = ()


class Tables(Page, frozen=True, kw_only=True):
    tables: tuple[TableInfo, ...] = ()


class CreateSchema(_Object, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    comment: str | None = None


class AskCredentials(_Object, frozen=True, kw_only=True):
    table_id: str
    operation: CredentialOperation


class AwsCredentials(_Object, frozen=True, kw_only=True):
    """Keys for S3. The ``repr`` omits them."""

    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str | None = None

    def __repr__(self) -> str:
        return "AwsCredentials(…)"

    __str__ = __repr__


class TemporaryCredentials(_Object, frozen=True, kw_only=True):
    """Credentials for the files of a table. Only those for S3 are read. ``expiration_time``: None if they do not
    expire."""

    aws_temp_credentials: AwsCredentials | None = None
    expiration_time: Long | None = None
    url: str | None = None

    def as_storage_credentials(self, location: str, operation: CredentialOperation) -> tuple[StorageCredential, ...]:
        """These credentials in the form of the UC Delta API; empty if there are no keys for S3."""
        keys = self.aws_temp_credentials
        if keys is None or not keys.access_key_id:
            return ()
        config = {
            "s3.access-key-id": keys.access_key_id,
            "s3.secret-access-key": keys.secret_access_key,
            "s3.session-token": keys.session_token,
        }
        return (
            StorageCredential(
                prefix=self.url or location,
                operation=operation,
                expiration_time_ms=self.expiration_time,
                config=config,
            ),
        )


# ------------------------------------------------------------------------------ the older calls for commits


class CommitInfo(_Object, frozen=True, kw_only=True):
    """A ratified or proposed commit."""

    version: Long
    timestamp: Long
    file_name: str
    file_size: Long
    file_modification_timestamp: Long


class GetCommits(_Object, frozen=True, kw_only=True, omit_defaults=False):
    table_id: str
    table_uri: str
    start_version: Long


class Commits(_Object, frozen=True, kw_only=True):
    """Unpublished commits, in any order; perhaps not all up to ``latest_table_version``."""

    latest_table_version: Long
    commits: tuple[CommitInfo, ...] = ()


class Properties(_Object, frozen=True, kw_only=True):
    properties: dict[str, str] = field(default_factory=dict)


class ColumnInfo(_Object, frozen=True, kw_only=True, omit_defaults=False):
    """A column in the older form. ``type_json``: the JSON of its field in ``metaData.schemaString``."""

    name: str
    type_text: str
    type_json: str
    type_name: str
    position: int
    nullable: bool
    comment: str | None = None
    partition_index: int | None = None


class ColumnInfos(_Object, frozen=True, kw_only=True):
    columns: tuple[ColumnInfo, ...]


class Metadata(_Object, frozen=True, kw_only=True):
    """The new metadata, in a commit that changes the metadata."""

    description: str | None = None
    schema: ColumnInfos | None = None
    properties: Properties | None = None


class ProposeCommit(_Object, frozen=True, kw_only=True):
    """A proposed commit, a report of published commits, or both."""

    table_id: str
    table_uri: str
    commit_info: CommitInfo | None = None
    latest_backfilled_version: Long | None = None
    metadata: Metadata | None = None


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in [each for each in globals().values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]:
    msgspec.json.Decoder(_cls)
