"""The calls of a Unity Catalog's server, with typed requests and responses.

Spec: UC Delta API 1.0, api/delta.yaml; for catalogs, schemas and tables, api/all.yaml.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from deltalog.environment import Environment
from deltalog.errors import (
    CatalogNotFoundError,
    CatalogRequestError,
    CoordinatorError,
    EntityNotFoundError,
    OperationTimeoutError,
    SchemaNotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from deltalog.unity import messages, objects
from deltalog.unity.http import HttpClient, Response, Server
from deltalog.unity.names import TableName

T = TypeVar("T")

_DELTA = "/delta/v1"
_NOT_FOUND, _CONFLICT, _BAD_REQUEST, _UNAUTHORIZED = 404, 409, 400, 401
_NO_TABLE = frozenset({"NoSuchTableException", "NoSuchSchemaException", "NoSuchCatalogException", "NotFoundException"})
_NO_PLACE = {"NoSuchSchemaException": SchemaNotFoundError, "NoSuchCatalogException": CatalogNotFoundError}
# Bounds how long a server can keep a client reading; the usual page has 50 to 1,000 items.
MOST_PAGES = 2_000
_UNSUPPORTED_FORMAT = "UnsupportedTableFormatException"


class UnityClient:
    """The calls of one server. Thread-safe; can be pickled, with the token.

    All methods can raise CatalogRequestError and CoordinatorError; those that change something raise
    OperationTimeoutError if the outcome is unknown. Cost: 1 request, if the server answers it.
    """

    def __init__(self, server: Server, environment: Environment | None = None) -> None:
        self.server = server
        self._http = HttpClient(server, environment)

    def __reduce__(self) -> tuple[Any, ...]:
        return UnityClient, (self.server,)

    @property
    def url(self) -> str:
        """The root of the server's API."""
        return self.server.url

    # --------------------------------------------------------------------------------------- the UC Delta API

    def config(self, catalog: str) -> messages.Config:
        """The endpoints that the server offers in the version of the protocol that deltalog speaks."""
        query = {"catalog": catalog, "protocol-versions": messages.PROTOCOL_VERSION}
        return self._get(f"{_DELTA}/config", messages.Config, query)

    def load_table(self, name: TableName) -> messages.LoadedTable:
        """The metadata of a table and its unpublished commits. Raises TableNotFoundError."""
        with _Named(name):
            return self._get(_of_table(name), messages.LoadedTable)

    def table_exists(self, name: TableName) -> bool:
        """Whether there is a table with this name, of any format."""
        try:
            self._http.send("HEAD", _of_table(name))
        except CatalogRequestError as error:
            if error.status == _NOT_FOUND:
                return False
            raise
        return True

    def update_table(self, name: TableName, update: messages.UpdateTable, *, is_idempotent: bool = False) -> Loaded:
        """Change a table. ``is_idempotent``: whether the request can safely be sent again. Raises CatalogRequestError
        with the server's types."""
        return self._post(_of_table(name), update, messages.LoadedTable, is_repeatable=is_idempotent)

    def create_staging_table(self, name: TableName) -> messages.StagingTable:
        """Allocate the id and the location of a new table. Raises TableExistsError, SchemaNotFoundError,
        CatalogNotFoundError."""
        body = messages.CreateStagingTable(name=name.table)
        with _Named(name, creates=True):
            return self._post(f"{_of_schema(name)}/staging-tables", body, messages.StagingTable, is_repeatable=True)

    def create_table(self, name: TableName, table: messages.CreateTable) -> messages.LoadedTable:
        """Register a table. Raises TableExistsError, SchemaNotFoundError, CatalogNotFoundError."""
        with _Named(name, creates=True):
            return self._post(f"{_of_schema(name)}/tables", table, messages.LoadedTable)

    def delete_table(self, name: TableName) -> None:
        """Drop the table that has the name when the request arrives. Raises TableNotFoundError."""
        with _Named(name):
            self._http.send("DELETE", _of_table(name), is_repeatable=False)

    def id_of(self, name: TableName) -> str | None:
        """The id of a table of any format; None if the server says none. Raises TableNotFoundError. Cost: 1 request; 2
        for a table of another format."""
        try:
            return self.load_table(name).metadata.table_uuid
        except CatalogRequestError as error:
            if not is_older_server(error):
                raise
        return self.table(name).table_id

    def rename_table(self, name: TableName, new_name: str) -> None:
        """Rename a table within its schema. Raises TableNotFoundError, TableExistsError."""
        with _Named(name):
            body = messages.RenameTable(new_name=new_name).to_json()
            self._http.send("POST", f"{_of_table(name)}/rename", body=body, is_repeatable=False)

    def table_credentials(
        self, name: TableName, operation: messages.CredentialOperation
    ) -> tuple[messages.StorageCredential, ...]:
        """The credentials for the files of a table."""
        path = f"{_of_table(name)}/credentials"
        return self._get(path, messages.Credentials, {"operation": operation}).storage_credentials

    def staging_credentials(self, table_id: str) -> tuple[messages.StorageCredential, ...]:
        """The credentials for the files of a table that is being created."""
        path = f"{_DELTA}/staging-tables/{_quoted(table_id)}/credentials"
        return self._get(path, messages.Credentials).storage_credentials

    def report_metrics(self, name: TableName, report: messages.ReportMetrics) -> None:
        """Report the metrics of a commit."""
        self._http.send("POST", f"{_of_table(name)}/metrics", body=report.to_json(), is_repeatable=False)

    # ------------------------------------------------------------------- catalogs, schemas, and the older calls

    def catalogs(self) -> Iterator[objects.CatalogInfo]:
        """All catalogs. Cost: 1 request per page."""
        return self._pages("/catalogs", {}, objects.Catalogs, lambda page: page.catalogs)

    def schemas(self, catalog: str) -> Iterator[objects.SchemaInfo]:
        """All schemas of a catalog. Cost: 1 request per page."""
        return self._pages("/schemas", {"catalog_name": catalog}, objects.Schemas, lambda page: page.schemas)

    def tables(self, catalog: str, schema: str) -> Iterator[objects.TableInfo]:
        """All tables of a schema. Cost: 1 request per page."""
        query = {"catalog_name": catalog, "schema_name": schema}
        return self._pages("/tables", query, objects.Tables, lambda page: page.tables)

    def create_schema(self, catalog: str, schema: str, comment: str | None) -> objects.SchemaInfo:
        """Create a schema."""
        body = objects.CreateSchema(name=schema, catalog_name=catalog, comment=comment)
        return self._post("/schemas", body, objects.SchemaInfo)

    def delete_schema(self, catalog: str, schema: str) -> None:
        """Drop a schema without tables. If a DELETE without a response was repeated, a missing schema has been deleted
        by it."""
        path = f"/schemas/{_quoted(f'{catalog}.{schema}')}"
        try:
            self._http.send("DELETE", path, is_repeatable=False)
        except OperationTimeoutError:
            try:
                self._http.send("DELETE", path)
            except CatalogRequestError as error:
                if error.status != _NOT_FOUND:
                    raise

    def table(self, name: TableName) -> objects.TableInfo:
        """The description of a table in the older form. Raises TableNotFoundError."""
        with _Named(name):
            return self._get(f"/tables/{_quoted(str(name))}", objects.TableInfo)

    def temporary_credentials(
        self, table_id: str, operation: messages.CredentialOperation
    ) -> objects.TemporaryCredentials:
        """The credentials for the files of a table, by the older call."""
        body = objects.AskCredentials(table_id=table_id, operation=operation)
        return self._post("/temporary-table-credentials", body, objects.TemporaryCredentials, is_repeatable=True)

    def commits(self, wanted: objects.GetCommits) -> objects.Commits:
        """The unpublished commits of a table, by the older call."""
        body = msgspec.json.encode(wanted)
        return self._decoded(self._http.send("GET", "/delta/preview/commits", body=body), objects.Commits)

    def commit(self, commit: objects.ProposeCommit, *, is_idempotent: bool = False) -> None:
        """Propose a commit, or report published ones, by the older call."""
        body = msgspec.json.encode(commit)
        self._http.send("POST", "/delta/preview/commits", body=body, is_repeatable=is_idempotent)

    # -------------------------------------------------------------------------------------------- requests

    def _get(self, path: str, kind: type[T], query: dict[str, str] | None = None) -> T:
        return self._decoded(self._http.send("GET", path, query=query), kind)

    def _post(self, path: str, body: Any, kind: type[T], *, is_repeatable: bool = False) -> T:
        data = msgspec.json.encode(body)
        response = self._http.send("POST", path, body=data, is_repeatable=is_repeatable)
        try:
            return self._decoded(response, kind)
        except CatalogRequestError as error:  # the request was accepted
            raise OperationTimeoutError(error.message, path=error.path) from None

    def _decoded(self, response: Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(response.body, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise CatalogRequestError(
                f"{self.url} did not answer as a Unity Catalog does: {error}.", path=self.url
            ) from None

    def _pages(
        self, path: str, query: dict[str, str], kind: type[P], items: Callable[[P], tuple[T, ...]]
    ) -> Iterator[T]:
        token: str | None = None
        seen = set[str]()
        for _ in range(MOST_PAGES):
            page = self._get(path, kind, query if token is None else {**query, "page_token": token})
            yield from items(page)
            token = page.next_page_token
            if not token:
                return
            if token in seen:
                break
            seen.add(token)
        raise CatalogRequestError(f"{self.url}: the pages of {path} do not end.", path=self.url)


P = TypeVar("P", bound=objects.Page)
Loaded = messages.LoadedTable


class _Named:
    """Within the block, a refusal that concerns the named table is raised as the error of a table, such as
    TableNotFoundError. ``creates``: whether the table is to be created."""

    def __init__(self, name: TableName, *, creates: bool = False) -> None:
        self._name = name
        self._creates = creates

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, CatalogRequestError):
            return
        if self._creates and error.error_type in _NO_PLACE:
            raise _NO_PLACE[error.error_type](f"{self._name.address}: {error.message}") from error
        if (found := of_table(error, self._name)) is not error:
            raise found from found.__cause__ or error


def of_table(error: CatalogRequestError, name: TableName) -> CoordinatorError | TableNotFoundError | Exception:
    """The error to raise for a refusal that concerns the named table, such as TableNotFoundError; ``error`` itself for
    any other refusal."""
    if error.status == _NOT_FOUND and error.error_type in _NO_TABLE:
        cause = EntityNotFoundError(error.message)
        found = TableNotFoundError(f"{name.address} is not a table: {error.message}")
        found.__cause__ = cause
        return found
    if error.status == _CONFLICT and error.error_type in ("AlreadyExistsException", "TABLE_ALREADY_EXISTS"):
        return TableExistsError(f"{name.address} exists already: {error.message}")
    return error


def is_older_server(error: CatalogRequestError) -> bool:
    """Whether a call of the UC Delta API was refused by a server that may offer the older calls for this table."""
    if error.status in (_NOT_FOUND, 405, 501):
        return error.error_type is None or error.error_type not in _NO_TABLE
    return error.status == _BAD_REQUEST and error.error_type == _UNSUPPORTED_FORMAT


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")


def _of_schema(name: TableName) -> str:
    return f"{_DELTA}/catalogs/{_quoted(name.catalog)}/schemas/{_quoted(name.schema)}"


def _of_table(name: TableName) -> str:
    return f"{_of_schema(name)}/tables/{_quoted(name.table)}"
