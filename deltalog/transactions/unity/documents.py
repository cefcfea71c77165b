"""The documents in which a catalog stores what the records of its tables do not: schemas, staged tables, external
tables, and what only the catalog knows about a managed table. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from deltalog.catalog import records
from deltalog.catalog.records import Document, DocumentChange
from deltalog.errors import CallError
from deltalog.unity import messages

SCHEMA, STAGING, TABLE = "schema", records.STAGING, "table"
# The names of external tables that were renamed, by id.
RENAMED = "renamed"
# One document, which changes with every external table that a principal registers.
TURN = "turn"
# DynamoDB stores at most 400 KB in one item. Listings answer many documents at once.
_MOST_BYTES = 384 << 10
_MOST_COMMENT_BYTES = 65_536
_DomainMetadata = dict[str, dict[str, Any]]


class SchemaDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A schema that was created; its key is ``schema_key`` of its name."""

    name: str
    schema_id: str
    comment: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    created_ms: int
    updated_ms: int


class StagingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A staged table; the key of the document is the table's id. ``name``: the full name at staging, which is not
    reserved. ``owner``: the principal who staged it.
    """

    name: str
    url: str
    created_ms: int
    owner: str | None = None


class TableDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What only the catalog knows about a managed table; its key is the table's id. ``comment``: replaces the
    description in the log; if None, the log's description is the comment. ``properties``: properties that are not in
    the log."""

    comment: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    iceberg: messages.IcebergConversion | None = None
    updated_ms: int = 0


class ExternalTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table that the catalog does not manage; its key is the full name. ``columns``: its schema in the form of the
    Delta API, if it is known; ``column_infos``: the columns as they were sent to the general API."""

    table_id: str
    name: str
    url: str
    format: str = "DELTA"
    comment: str | None = None
    columns: dict[str, Any] | None = None
    column_infos: list[dict[str, Any]] | None = None
    partition_columns: tuple[str, ...] = ()
    protocol: messages.TableProtocol | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    domain_metadata: _DomainMetadata = msgspec.field(default_factory=dict)
    iceberg: messages.IcebergConversion | None = None
    last_commit_version: int | None = None
    last_commit_ms: int | None = None
    created_ms: int
    updated_ms: int


class AccessDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The owner and the grants of the catalog, a schema or a table. The key of the document is ``catalog``, or comes
    from ``schema_access_key`` or ``records.access_key``. ``grants``: the names of privileges by the name of the
    principal or group.
    """

    owner: str | None = None
    grants: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class DroppedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A dropped table whose files the catalog deletes; its key is the table's id."""

    name: str
    url: str
    dropped_ms: int


D = TypeVar("D", SchemaDocument, StagingDocument, TableDocument, ExternalTable, DroppedTable, AccessDocument)


def decoded(document: Document, kind: type[D]) -> D:
    return msgspec.json.decode(document.content, type=kind)


def change(kind: str, key: str, revision: int, content: msgspec.Struct) -> DocumentChange:
    """A change that stores a document; ``revision``: its current revision, or 0 to create it. Raises CallError if it is
    too large."""
    encoded = msgspec.json.encode(content)
    if len(encoded) > _MOST_BYTES:
        raise CallError(
            f"Comment, columns, properties and grants would take {len(encoded)} bytes in the catalog; at most "
            f"{_MOST_BYTES} are allowed."
        )
    return DocumentChange(kind, key, revision, encoded.decode())


def deletion(kind: str, key: str, revision: int) -> DocumentChange:
    return DocumentChange(kind, key, revision, None)


def absent(kind: str, key: str) -> DocumentChange:
    """A change that writes nothing: it only checks that no document of this kind has this key."""
    return DocumentChange(kind, key, 0, None)


CATALOG_ACCESS_KEY = "catalog"


def schema_access_key(name: str) -> str:
    """The key of the document that states the owner and the grants of a schema."""
    return f"schema {name}"


def schema_key(name: str) -> str:
    """The key of a schema's document: with its final dot, schemas sort as the full names of their tables do."""
    return f"{name}."


def checked_comment(given: str | None) -> str:
    """Raises CallError."""
    text = given or ""
    if len(text.encode("utf-8", "surrogatepass")) > _MOST_COMMENT_BYTES:
        raise CallError(f"The comment must have at most {_MOST_COMMENT_BYTES} bytes.")
    return text


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in [each for each in globals().values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]:
    msgspec.json.Decoder(_cls)
