"""The parts of the OpenAPI description that are written by hand, by the name of the route.

Statuses and bodies that every call of an API can return are in ``document``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.server.openapi import shapes
from deltalog.server.unity import administration, general, permissions
from deltalog.server.unity.errors import UNKNOWN
from deltalog.unity import messages

INVALID, UNSUPPORTED = "InvalidParameterValueException", "UnsupportedTableFormatException"
NOT_FOUND, NO_CATALOG = "NotFoundException", "NoSuchCatalogException"
NO_SCHEMA, NO_TABLE = "NoSuchSchemaException", "NoSuchTableException"
EXISTS, CONFLICT = "AlreadyExistsException", "UpdateRequirementConflictException"
TAKEN, BACKLOG = "CommitVersionConflictException", "ResourceExhaustedException"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query. ``schema``: JSON Schema."""

    name: str
    text: str
    schema: Mapping[str, Any]
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Described:
    """A call. ``summary``: one line. ``result``: the type of the body of a successful response; None: it has no body.
    ``body``: the type of the request's body. ``errors``: the types of errors, in addition to those of every call of the
    API.
    """

    summary: str
    result: Any = None
    body: Any = None
    query: tuple[Parameter, ...] = ()
    errors: tuple[str, ...] = ()


_TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1, "maxLength": 4096}
_PAGES = (
    Parameter("page_token", "The token of the page, from the response with the previous page.", _TEXT),
    Parameter(
        "max_results",
        "The maximum number of items on the page; values above 50 count as 50.",
        {"type": "integer", "minimum": 0},
    ),
)
_OPERATION = Parameter(
    "operation",
    "The operation for which the credentials are needed.",
    {"type": "string", "enum": ["READ", "READ_WRITE"]},
    True,
)
_CATALOG_NAME = Parameter("catalog_name", "The name of the catalog.", _TEXT, True)
_DELTA_TABLE = "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
_DELTA_SCHEMA = "/delta/v1/catalogs/{catalog}/schemas/{schema}"

UNITY: Mapping[str, Described] = {
    "GET /delta/v1/config": Described(
        "The protocol version of the Delta API, and the calls that the server supports.",
        messages.Config,
        query=(
            Parameter("catalog", "The name of the catalog.", _TEXT, True),
            Parameter(
                "protocol-versions", "The protocol versions that the client supports, such as 1.0,2.3.", _TEXT, True
            ),
        ),
        errors=(INVALID, NO_CATALOG),
    ),
    f"POST {_DELTA_SCHEMA}/staging-tables": Described(
        "Allocate the id and the location of a new managed table.",
        messages.StagingTable,
        messages.CreateStagingTable,
        errors=(INVALID, NO_SCHEMA, EXISTS, CONFLICT),
    ),
    "GET /delta/v1/staging-tables/{table_id}/credentials": Described(
        "Credentials for writing the first version of a staged table.", messages.Credentials, errors=(NO_TABLE,)
    ),
    f"POST {_DELTA_SCHEMA}/tables": Described(
        "Create a staged table, or register an external one.",
        messages.LoadedTable,
        messages.CreateTable,
        errors=(INVALID, UNSUPPORTED, NO_SCHEMA, NO_TABLE, EXISTS, CONFLICT),
    ),
    f"GET {_DELTA_TABLE}": Described(
        "Load a table: its metadata, its latest version and its unpublished commits.",
        messages.LoadedTable,
        errors=(INVALID, UNSUPPORTED, NO_SCHEMA, NO_TABLE),
    ),
    f"HEAD {_DELTA_TABLE}": Described("Whether a table exists.", errors=(NO_TABLE,)),
    f"DELETE {_DELTA_TABLE}": Described("Drop a table.", errors=(INVALID, NO_TABLE, CONFLICT)),
    f"POST {_DELTA_TABLE}": Described(
        "Commit to a table, change its metadata, or report published commits.",
        messages.LoadedTable,
        messages.UpdateTable,
        errors=(INVALID, UNSUPPORTED, NO_TABLE, CONFLICT, TAKEN, BACKLOG, UNKNOWN),
    ),
    f"POST {_DELTA_TABLE}/rename": Described(
        "Rename a table.", body=messages.RenameTable, errors=(INVALID, NO_TABLE, EXISTS, CONFLICT)
    ),
    f"GET {_DELTA_TABLE}/credentials": Described(
        "Credentials for the files of a table.",
        messages.Credentials,
        query=(_OPERATION,),
        errors=(INVALID, NO_TABLE),
    ),
    f"POST {_DELTA_TABLE}/metrics": Described(
        "Report metrics about commits.", body=messages.ReportMetrics, errors=(INVALID, NO_TABLE)
    ),
    "GET /delta/v1/temporary-path-credentials": Described(
        "Credentials for a location that is not one of a managed table.",
        messages.Credentials,
        query=(_OPERATION, Parameter("location", "A URL.", _TEXT, True)),
        errors=(INVALID,),
    ),
    "GET /metastore_summary": Described("The id of the catalog.", shapes.MetastoreSummary),
    "GET /catalogs": Described("The one catalog of the server.", shapes.Catalogs, query=_PAGES),
    "POST /catalogs": Described("Not served.", errors=(NOT_FOUND,)),
    "GET /catalogs/{name}": Described("The catalog.", shapes.CatalogInfo, errors=(NO_CATALOG,)),
    "PATCH /catalogs/{name}": Described("Not served.", errors=(NOT_FOUND,)),
    "DELETE /catalogs/{name}": Described("Not served.", errors=(NOT_FOUND,)),
    "GET /schemas": Described(
        "The schemas of the catalog.", shapes.Schemas, query=(_CATALOG_NAME, *_PAGES), errors=(NO_CATALOG,)
    ),
    "POST /schemas": Described(
        "Create a schema.",
        shapes.SchemaInfo,
        general.CreateSchema,
        errors=(INVALID, NOT_FOUND, NO_CATALOG, EXISTS),
    ),
    "GET /schemas/{full_name}": Described("A schema.", shapes.SchemaInfo, errors=(NO_CATALOG, NO_SCHEMA)),
    "PATCH /schemas/{full_name}": Described(
        "Change a schema's comment and properties.",
        shapes.SchemaInfo,
        general.UpdateSchema,
        errors=(INVALID, NOT_FOUND, NO_CATALOG, NO_SCHEMA, CONFLICT),
    ),
    "DELETE /schemas/{full_name}": Described(
        "Delete an empty schema.", shapes.Empty, errors=(INVALID, NO_CATALOG, NO_SCHEMA, CONFLICT)
    ),
    "POST /staging-tables": Described(
        "Allocate the id and the location of a new managed table.",
        shapes.StagedTable,
        general.CreateStagingTable,
        errors=(INVALID, NO_CATALOG, NO_SCHEMA, EXISTS, CONFLICT),
    ),
    "GET /tables": Described(
        "The tables of a schema.",
        shapes.Tables,
        query=(_CATALOG_NAME, Parameter("schema_name", "The name of the schema.", _TEXT, True), *_PAGES),
        errors=(NO_CATALOG, NO_SCHEMA),
    ),
    "POST /tables": Described(
        "Create a staged table, or register an external one.",
        shapes.TableInfo,
        general.CreateTable,
        errors=(INVALID, UNSUPPORTED, NOT_FOUND, NO_CATALOG, NO_SCHEMA, NO_TABLE, EXISTS, CONFLICT),
    ),
    "GET /tables/{full_name}": Described(
        "A table.", shapes.TableInfo, errors=(INVALID, UNSUPPORTED, NO_CATALOG, NO_SCHEMA, NO_TABLE)
    ),
    "DELETE /tables/{full_name}": Described(
        "Drop a table.", shapes.Empty, errors=(INVALID, NO_CATALOG, NO_SCHEMA, NO_TABLE, CONFLICT)
    ),
    "POST /temporary-table-credentials": Described(
        "Credentials for the files of a table.",
        shapes.TemporaryCredentials,
        general.TableCredential,
        errors=(INVALID, NO_TABLE),
    ),
    "POST /temporary-path-credentials": Described(
        "Credentials for a location that is not one of a managed table.",
        shapes.TemporaryCredentials,
        general.PathCredential,
        errors=(INVALID,),
    ),
    "GET /permissions/{securable_type}/{full_name}": Described(
        "The owner and the grants of the catalog, a schema or a table.",
        shapes.Permissions,
        query=(Parameter("principal", "Only grants to this principal.", _TEXT),),
        errors=(INVALID, NOT_FOUND, NO_CATALOG, NO_SCHEMA, NO_TABLE),
    ),
    "PATCH /permissions/{securable_type}/{full_name}": Described(
        "Change grants.",
        shapes.Permissions,
        permissions.Changes,
        errors=(INVALID, NOT_FOUND, NO_CATALOG, NO_SCHEMA, NO_TABLE, CONFLICT),
    ),
    "GET /delta/preview/commits": Described(
        "The unpublished commits of a table, by the older API.",
        shapes.PreviewCommits,
        general.GetCommits,
        errors=(INVALID, NO_TABLE),
    ),
    "POST /delta/preview/commits": Described(
        "Commit to a table, by the older API.",
        shapes.Empty,
        general.PreviewCommit,
        errors=(INVALID, UNSUPPORTED, NO_TABLE, CONFLICT, TAKEN, BACKLOG, UNKNOWN),
    ),
}

OWN: Mapping[str, Described] = {
    "GET /v1/tables": Described(
        "The tables of all schemas of the catalog, ordered by name.",
        administration.CatalogTables,
        query=(
            Parameter("schema", "Only tables of this schema.", _TEXT),
            Parameter(
                "prefix",
                "Only tables whose name begins with this text. Without a schema, it is compared with the full name.",
                _TEXT,
            ),
            *_PAGES,
        ),
        errors=(
            NO_CATALOG,
            NO_SCHEMA,
        ),
    ),
    "POST /v1/tables": Described(
        "Add an existing Delta table to the catalog.",
        administration.CatalogTable,
        administration.RegisterTable,
        errors=(INVALID, UNSUPPORTED, NO_CATALOG, NO_SCHEMA, NO_TABLE, EXISTS, CONFLICT, TAKEN, UNKNOWN),
    ),
    "GET /v1/tables/{name}": Described(
        "A table.", administration.CatalogTable, errors=(NO_CATALOG, NO_SCHEMA, NO_TABLE)
    ),
    "DELETE /v1/tables/{name}": Described(
        "Remove a table from the catalog; its files stay.",
        administration.RemovedTable,
        errors=(INVALID, NO_CATALOG, NO_SCHEMA, NO_TABLE, CONFLICT),
    ),
    "POST /v1/tables/{name}/release": Described(
        "Release a table from the catalog, so that it can be used by its path.",
        administration.RemovedTable,
        errors=(INVALID, UNSUPPORTED, NO_CATALOG, NO_SCHEMA, NO_TABLE, CONFLICT, TAKEN, UNKNOWN),
    ),
    "POST /v1/tables/{name}/publish": Described(
        "Publish the ratified commits of a table: copy them to its _delta_log.",
        administration.PublishedTable,
        errors=(INVALID, NO_CATALOG, NO_SCHEMA, NO_TABLE, CONFLICT),
    ),
    "POST /v1/resync": Described(
        "Compare the catalog with the logs of its tables; nothing is changed.",
        administration.ResyncPlan,
        administration.Resync,
        errors=(INVALID, NOT_FOUND, NO_CATALOG, CONFLICT),
    ),
}

LAKE_FORMATION: Mapping[str, Described] = {
    "StartTransaction": Described("Start a transaction.", shapes.StartedTransaction, shapes.StartTransaction),
    "CommitTransaction": Described("Commit a transaction.", shapes.CommittedTransaction, shapes.OneTransaction),
    "CancelTransaction": Described("Cancel a transaction.", shapes.Empty, shapes.OneTransaction),
    "ExtendTransaction": Described("Record activity of a transaction.", shapes.Empty, shapes.OneTransaction),
    "DescribeTransaction": Described("The state of a transaction.", shapes.DescribedTransaction, shapes.OneTransaction),
    "ListTransactions": Described("Transactions, oldest first.", shapes.ListedTransactions, shapes.ListTransactions),
    "DeleteObjectsOnCancel": Described(
        "Register objects that are to be deleted if the transaction is cancelled.",
        shapes.Empty,
        shapes.DeleteObjectsOnCancel,
    ),
    "UpdateTableObjects": Described(
        "Add and remove data files, in a transaction or as a commit of its own.",
        shapes.Empty,
        shapes.UpdateTableObjects,
    ),
    "GetTableObjects": Described("The data files of a table.", shapes.TableObjects, shapes.GetTableObjects),
}
