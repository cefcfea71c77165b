"""Converts errors to those of Unity Catalog's APIs. Pure.

Spec: ManagedTablesSpec.md#error-response-body; delta.yaml, DeltaErrorType.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from deltalog.errors import (
    CallError,
    CatalogBehindLogError,
    CatalogNotFoundError,
    CommitConflictError,
    CommitStateUnknownError,
    ConcurrentModificationError,
    CorruptTableError,
    DeltaLogError,
    MetadataChangedError,
    NotFoundError,
    OperationTimeoutError,
    SchemaMismatchError,
    SchemaNotFoundError,
    TableExistsError,
    TableReplacedError,
    TimestampAheadError,
    UnpublishedCommitsError,
    UnsupportedFeatureError,
)
from deltalog.server.access.denials import PermissionDeniedError
from deltalog.server.answers import Answer


class BadRequestError(CallError):
    """The request is malformed."""


class UnsupportedTableError(CallError):
    """The table is not one that this API can show."""


class NotServedError(DeltaLogError):
    """The server does not offer this resource, method or operation."""


class ResourceNotFoundError(NotFoundError):
    """There is no such resource."""


BAD_REQUEST, INTERNAL, UNKNOWN = "BadRequestException", "InternalServerErrorException", "CommitStateUnknownException"
# By error type of the Delta API: the HTTP status, and the name of the error in the general API.
TYPES: Mapping[str, tuple[int, str]] = {
    BAD_REQUEST: (400, "INVALID_ARGUMENT"),
    "InvalidParameterValueException": (400, "INVALID_ARGUMENT"),
    "UnsupportedTableFormatException": (400, "UNSUPPORTED_TABLE_FORMAT"),
    "NotAuthorizedException": (401, "UNAUTHENTICATED"),
    "PermissionDeniedException": (403, "PERMISSION_DENIED"),
    "NotFoundException": (404, "NOT_FOUND"),
    "NoSuchCatalogException": (404, "CATALOG_NOT_FOUND"),
    "NoSuchSchemaException": (404, "SCHEMA_NOT_FOUND"),
    "NoSuchTableException": (404, "TABLE_NOT_FOUND"),
    "AlreadyExistsException": (409, "ALREADY_EXISTS"),
    "CommitVersionConflictException": (409, "COMMIT_VERSION_CONFLICT"),
    "UpdateRequirementConflictException": (409, "UPDATE_REQUIREMENT_CONFLICT"),
    "ResourceExhaustedException": (429, "RESOURCE_EXHAUSTED"),
    "TooManyRequestsException": (429, "TOO_MANY_REQUESTS"),
    UNKNOWN: (500, "COMMIT_STATE_UNKNOWN"),
    INTERNAL: (500, "INTERNAL"),
    "NotImplementedException": (501, "UNIMPLEMENTED"),
}
# Of the rows of this table, the first whose class matches the error is used.
_ERRORS: tuple[tuple[type[DeltaLogError], str], ...] = (
    (BadRequestError, BAD_REQUEST),
    (PermissionDeniedError, "PermissionDeniedException"),
    (UnsupportedTableError, "UnsupportedTableFormatException"),
    # Not 501: clients take that for a server failure, and repeat the request.
    (NotServedError, "NotFoundException"),
    (ResourceNotFoundError, "NotFoundException"),
    (CatalogNotFoundError, "NoSuchCatalogException"),
    (SchemaNotFoundError, "NoSuchSchemaException"),
    (NotFoundError, "NoSuchTableException"),
    (TableExistsError, "AlreadyExistsException"),
    (TableReplacedError, "UpdateRequirementConflictException"),
    (MetadataChangedError, "UpdateRequirementConflictException"),
    (CommitConflictError, "CommitVersionConflictException"),
    (ConcurrentModificationError, "UpdateRequirementConflictException"),
    (UnpublishedCommitsError, "ResourceExhaustedException"),
    (UnsupportedFeatureError, "UnsupportedTableFormatException"),
    # No failure of the server: repeating the request does not help.
    (CatalogBehindLogError, "InvalidParameterValueException"),
    (TimestampAheadError, "InvalidParameterValueException"),
    (CallError, "InvalidParameterValueException"),
)
_OF_STATUS = {401: "NotAuthorizedException", 403: "PermissionDeniedException", 404: "NotFoundException"}


@contextlib.contextmanager
def rendering(name: str) -> Iterator[None]:
    """While a table is converted to a response: raises UnsupportedTableError if the API has no form for it."""
    try:
        yield
    except (CorruptTableError, SchemaMismatchError) as error:
        raise UnsupportedTableError(f"{name} is not a table that this API can show: {error.message}") from error
    except RecursionError as error:
        raise UnsupportedTableError(f"{name} is not a table that this API can show: it nests too deeply.") from error


def answer_of(error: DeltaLogError, missing: type[NotFoundError] = CatalogNotFoundError) -> Answer:
    """The response for an error of a call that commits nothing. ``missing``: the outermost object that the call can
    report as missing: a catalog, a schema or a table."""
    if isinstance(error, (CatalogNotFoundError, SchemaNotFoundError)) and missing is not CatalogNotFoundError:
        error = missing(error.message)
    kind = next((name for kinds, name in _ERRORS if isinstance(error, kinds)), INTERNAL)
    return response(kind, error.message)


def answer_to_commit(error: DeltaLogError, missing: type[NotFoundError] = CatalogNotFoundError) -> Answer:
    """Like ``answer_of``, for a call that may have committed something."""
    if isinstance(error, (OperationTimeoutError, CommitStateUnknownError)):
        return response(UNKNOWN, error.message)
    return answer_of(error, missing)


def deferred(message: str) -> Answer:
    """The response for a call that had no effect because the server is busy."""
    return response("TooManyRequestsException", message, {"retry-after": "1"})


def response(kind: str, message: str, headers: Mapping[str, str] | None = None, status: int | None = None) -> Answer:
    """An error response whose body has the forms of both APIs."""
    code, name = TYPES[kind]
    code = status or code
    body: dict[str, Any] = {
        "error": {"type": kind, "code": code, "message": message},
        "error_code": name,
        "message": message,
    }
    return Answer(code, body, kind, headers or {})


def of_refusal(refused: Answer, is_unauthorized: bool) -> Answer:
    """The response, in the form of these APIs, to a request that the server refused without regard to which call it
    was."""
    if "error" in refused.body:
        return refused
    message = refused.body["Message"]
    if is_unauthorized:
        return response("NotAuthorizedException", message, refused.headers)
    if refused.status in (429, 503):
        return response("TooManyRequestsException", message, refused.headers)
    kind = _OF_STATUS.get(refused.status, BAD_REQUEST if refused.status < 500 else INTERNAL)
    return response(kind, message, refused.headers, refused.status)
