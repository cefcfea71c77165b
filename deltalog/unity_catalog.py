"""UnityCatalog: the schemas and tables of a Unity Catalog.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#table-lifecycle-operations; Unity Catalog API, api/all.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalog.arguments import checked, safe_repr
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    CatalogRequestError,
    EntityNotFoundError,
    OperationTimeoutError,
    TableExistsError,
    TableNotFoundError,
)
from deltalog.protocol import features
from deltalog.protocol.paths import canonical_url
from deltalog.table import DeltaTable
from deltalog.unity import creation_rules, messages, objects, opening
from deltalog.unity.client import UnityClient
from deltalog.unity.names import TableName, parse_name
from deltalog.unity.table_state import TableState


@checked
class UnityCatalog:
    """One catalog of a Unity Catalog server. Thread-safe; can be pickled, with its token.

    ``name``: the catalog. ``storage_options``: as for ``DeltaTable.open``, including ``unity_catalog_url`` and
    ``unity_catalog_token``; the environment gives the server's options that are missing. Tables are named
    ``schema.table``, or ``catalog.schema.table``. All methods raise CatalogRequestError if the server refuses the call,
    CoordinatorError if the server fails, and OperationTimeoutError if it is unknown whether the call has changed
    something. Cost: 1 request, unless a method says otherwise. Raises CallError.
    """

    def __init__(self, name: str, *, environment: Environment | None = None, **storage_options: Any) -> None:
        self.name = name
        self._options = storage_options
        self._environment = environment or Environment()
        server, self._storage = opening.server_of(storage_options)
        self._client = UnityClient(server, self._environment)
        self._named("schema.table")  # checks the name of the catalog

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, (self.name, self._options)

    @safe_repr
    def __repr__(self) -> str:
        return f"UnityCatalog({self.name!r}, {self.url!r})"

    @property
    def url(self) -> str:
        """The root of the server's API. Cost: none."""
        return self._client.url

    # ---------------------------------------------------------------------------------------------- schemas

    def schemas(self) -> list[str]:
        """The names of the schemas. Cost: 1 request per page."""
        return [schema.name for schema in self._client.schemas(self.name)]

    def create_schema(self, schema: str, *, comment: str | None = None) -> None:
        """Create a schema."""
        self._client.create_schema(self.name, schema, comment)

    def drop_schema(self, schema: str) -> None:
        """Drop a schema without tables."""
        self._client.delete_schema(self.name, schema)

    # ----------------------------------------------------------------------------------------------- tables

    def tables(self, schema: str) -> list[objects.TableInfo]:
        """The tables of a schema, of any format. Cost: 1 request per page."""
        return list(self._client.tables(self.name, schema))

    def exists(self, name: str) -> bool:
        """Whether there is a table with this name, of any format."""
        return self._client.table_exists(self._named(name))

    def table(self, name: str) -> DeltaTable:
        """The table with this name. Raises and costs as ``DeltaTable.open``."""
        return DeltaTable.open(self._named(name).address, environment=self._environment, **self._options)

    def create_table(self, name: str, schema: Any, **options: Any) -> DeltaTable:
        """Create a managed table. ``schema``, ``options``: as for ``DeltaTable.create``, whose errors are raised. Cost:
        1 request for its location, 1 PUT for each file and for version 0, 1 request that registers it."""
        twice = sorted(options.keys() & self._options.keys())
        if twice:
            raise CallError(f"{', '.join(twice)}: given for the catalog already. Leave it out.")
        return DeltaTable.create(
            self._named(name).address, schema, environment=self._environment, **self._options, **options
        )

    def register_table(self, name: str, location: str) -> DeltaTable:
        """Register the Delta table at a location as an external table. Its files stay there, and no catalog decides on
        its commits. Raises TableExistsError if the name is taken by another table; CallError for a table that a catalog
        manages; and as ``DeltaTable.open``. Cost: as ``DeltaTable.open``, twice, and 1 request."""
        full = self._named(name)
        snapshot = DeltaTable.open(location, **self._storage).snapshot()
        if features.is_catalog_managed(snapshot.protocol):
            raise CallError(f"{location} is managed by a catalog already, and cannot be an external table.")
        state = TableState.of(snapshot.protocol, snapshot.metadata, snapshot.log.state.domains.values())
        request = creation_rules.request_for(full, location, state, snapshot.timestamp_ms, "EXTERNAL")
        try:
            self._client.create_table(full, request)
        except (OperationTimeoutError, TableExistsError):
            found = self._client.load_table(full).metadata
            if found.table_type != "EXTERNAL" or canonical_url(found.location) != canonical_url(location):
                raise
        return self.table(name)

    def describe(self, name: str) -> messages.TableMetadata:
        """What the catalog says about a table: its id, location, columns and properties, among them those that the
        server derives. Raises TableNotFoundError."""
        return self._client.load_table(self._named(name)).metadata

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table within its schema. ``new_name``: without the schema. Raises TableNotFoundError,
        TableExistsError. Cost: 2 requests, 3 if the first got no answer."""
        full = self._named(name)
        renamed = TableName(full.catalog, full.schema, self._named(f"{full.schema}.{new_name}").table)
        table_id = self._client.load_table(full).metadata.table_uuid
        try:
            self._client.rename_table(full, renamed.table)
        except OperationTimeoutError:
            try:
                found = self._client.load_table(renamed).metadata.table_uuid
            except TableNotFoundError:
                found = None
            if found != table_id:
                raise

    def drop_table(self, name: str) -> None:
        """Drop a table. The catalog deletes the files of a managed table; those of an external table stay.

        The call names a table by its name only. If it gets no answer, the table's id therefore tells whether this table
        was dropped: another table that was created under the name meanwhile stays. Raises TableNotFoundError. Cost: 2
        requests, 2 more each time there is no answer.
        """
        full = self._named(name)
        table_id = self._client.id_of(full)
        for number in range(self._environment.retry.settle_attempts):
            self._environment.back_off(number)
            try:
                return self._client.delete_table(full)
            except OperationTimeoutError:
                if table_id is None:
                    raise
            except TableNotFoundError:
                if number == 0:
                    raise
                return None  # an earlier request has dropped it
            try:
                if self._client.id_of(full) != table_id:
                    return None
            except TableNotFoundError:
                return None
        raise OperationTimeoutError(
            f"{self.url} does not answer whether it drops {full.address}: it had the table when it was asked last. A "
            "request that was sent may still take effect.",
            path=self.url,
        )

    def _named(self, name: str) -> TableName:
        """The full name for a name of two parts, which is in this catalog, or for one of three parts. Raises
        CallError."""
        parts = name.count(".")
        full = parse_name(f"{self.name}.{name}" if parts == 1 else name, name)
        if full.catalog != self.name:
            raise CallError(f"{name} is not in the catalog {self.name}.")
        return full


def _opened_again(name: str, options: Mapping[str, Any]) -> UnityCatalog:
    return UnityCatalog(name, **options)


def catalogs(**storage_options: Any) -> list[str]:
    """The names of the catalogs of a server. ``storage_options``: as for UnityCatalog. Raises CallError,
    CatalogRequestError, CoordinatorError; EntityNotFoundError if the server has no list of catalogs. Cost: 1 request
    per page."""
    server, _ = opening.server_of(storage_options)
    try:
        return [each.name for each in UnityClient(server).catalogs()]
    except CatalogRequestError as error:
        if error.status != 404:
            raise
        raise EntityNotFoundError(f"{server.url} has no list of catalogs: {error.message}") from error
