"""The calls of Unity Catalog's general API that clients of Delta tables need.

Spec: Unity Catalog, api/all.yaml.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from deltalog.errors import CallError, DeltaLogError, EntityNotFoundError
from deltalog.protocol.actions import Long
from deltalog.server.access import rules
from deltalog.server.calls import Needs
from deltalog.server.unity.column_infos import columns_of, infos_of, partition_columns_of
from deltalog.server.unity.delta import properties_of
from deltalog.server.unity.errors import BadRequestError, NotServedError, rendering
from deltalog.server.unity.pages import MOST_RESULTS, page
from deltalog.server.unity.requests import UnityRequest, full_name, three_parts, two_parts
from deltalog.server.unity.service import Endpoint, Service, Work
from deltalog.transactions.unity import contract
from deltalog.transactions.unity.documents import SchemaDocument
from deltalog.transactions.unity.locations import location_of
from deltalog.transactions.unity.views import ExternalView, ManagedView, View
from deltalog.unity import messages
from deltalog.unity.columns import from_columns

_WITHOUT_KEYS_MS = 60 * 60 * 1000
_MOST_COLUMNS = 32_768
_MOST_COMMENT = 65_536


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of requests."""


class CreateSchema(_Request, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    comment: str | None = None
    properties: dict[str, str] | None = None
    storage_root: str | None = None


class UpdateSchema(_Request, frozen=True, kw_only=True):
    comment: str | None = None
    properties: dict[str, str] | None = None
    new_name: str | None = None


class CreateTable(_Request, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str
    table_type: str
    data_source_format: Literal["DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"] = "DELTA"
    columns: list[dict[str, Any]] | None = None
    storage_location: str | None = None
    comment: str | None = None
    properties: dict[str, str] | None = None


class CreateStagingTable(_Request, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str


class TableCredential(_Request, frozen=True, kw_only=True):
    table_id: str
    operation: str


class PathCredential(_Request, frozen=True, kw_only=True):
    url: str
    operation: str


class CommitInfo(_Request, frozen=True, kw_only=True):
    version: Long
    timestamp: Long
    file_name: str
    file_size: Long
    file_modification_timestamp: Long


class IcebergInfo(_Request, frozen=True, kw_only=True):
    metadata_location: str
    converted_delta_version: Long
    converted_delta_timestamp: str
    base_converted_delta_version: Long | None = None


class UniformInfo(_Request, frozen=True, kw_only=True):
    iceberg: IcebergInfo


class PreviewCommit(_Request, frozen=True, kw_only=True):
    """``metadata`` is not read: what the commit says holds."""

    table_id: str
    table_uri: str
    commit_info: CommitInfo | None = None
    latest_backfilled_version: Long | None = None
    uniform: UniformInfo | None = None


class GetCommits(_Request, frozen=True, kw_only=True):
    table_id: str
    table_uri: str
    start_version: Long
    end_version: Long | None = None


# -------------------------------------------------------------------------------------------------- metastore


def metastore_summary(request: UnityRequest) -> Work:
    return Work(lambda service: {"metastore_id": service.tables.coordinator.catalog_id})


# --------------------------------------------------------------------------------------------------- catalogs


def list_catalogs(request: UnityRequest) -> Work:
    request.number("max_results", MOST_RESULTS)

    def run(service: Service) -> dict[str, Any]:
        found = [_catalog(service)] if service.caller.sees_catalog() else []
        return {"catalogs": found, "next_page_token": None}

    return Work(run)


def get_catalog(request: UnityRequest) -> Work:
    def run(service: Service) -> dict[str, Any]:
        service.enter(request.parts["name"])
        return _catalog(service)

    return Work(run)


def _catalog(service: Service) -> dict[str, Any]:
    tables = service.tables
    return {
        "name": tables.settings.catalog,
        "id": tables.coordinator.catalog_id,
        "properties": {},
        "created_at": None,
        "updated_at": None,
    }


def change_catalogs(request: UnityRequest) -> Work:
    raise NotServedError("This server has one catalog, which is created and named when the server is started.")


# ---------------------------------------------------------------------------------------------------- schemas


def create_schema(request: UnityRequest) -> Work:
    given = request.body(CreateSchema)
    full_name(given.name, "t")
    _check_comment(given.comment)
    if given.storage_root is not None:
        raise NotServedError("This server creates all managed tables below its warehouse: omit storage_root.")

    def run(service: Service) -> dict[str, Any]:
        service.enter(given.catalog_name)
        made = service.tables.create_schema(given.name, given.comment, given.properties or {}, service.caller)
        service.caller.grants.forget()
        return _schema(service, made)

    return Work(run)


def list_schemas(request: UnityRequest) -> Work:
    catalog = _required(request, "catalog_name")

    def run(service: Service) -> dict[str, Any]:
        service.enter(catalog)

        def find(after: str, limit: int) -> Sequence[SchemaDocument]:
            return service.tables.schemas_after(after, limit, service.caller)

        found, token = page(request, f"schemas {catalog}", MOST_RESULTS, find, lambda each: f"{each.name}.")()
        return {"schemas": [_schema(service, each) for each in found], "next_page_token": token}

    request.number("max_results", MOST_RESULTS)
    return Work(run)


def get_schema(request: UnityRequest) -> Work:
    catalog, name = two_parts(request.parts["full_name"])

    def run(service: Service) -> dict[str, Any]:
        service.enter(catalog, name)
        return _schema(service, service.tables.schema(name))

    return Work(run)


def update_schema(request: UnityRequest) -> Work:
    catalog, name = two_parts(request.parts["full_name"])
    given = request.body(UpdateSchema)
    _check_comment(given.comment)
    if given.new_name not in (None, name):
        raise NotServedError("This server does not rename schemas.")

    def run(service: Service) -> dict[str, Any]:
        service.enter(catalog, name)
        return _schema(service, service.tables.update_schema(name, given.comment, given.properties))

    return Work(run)


def delete_schema(request: UnityRequest) -> Work:
    catalog, name = two_parts(request.parts["full_name"])

    def run(service: Service) -> dict[str, Any]:
        service.enter(catalog, name)
        service.tables.delete_schema(name)
        service.caller.grants.forget()
        return {}

    return Work(run)


def _schema(service: Service, schema: SchemaDocument) -> dict[str, Any]:
    catalog = service.tables.settings.catalog
    return {
        "name": schema.name,
        "catalog_name": catalog,
        "full_name": f"{catalog}.{schema.name}",
        "comment": schema.comment,
        "properties": schema.properties,
        "schema_id": schema.schema_id,
        "created_at": schema.created_ms or None,
        "updated_at": schema.updated_ms or None,
    }


# ----------------------------------------------------------------------------------------------------- tables


def create_staging_table(request: UnityRequest) -> Work:
    given = request.body(CreateStagingTable)
    name = full_name(given.schema_name, given.name)

    def run(service: Service) -> dict[str, Any]:
        service.enter(given.catalog_name, given.schema_name)
        staged = service.tables.stage(name, service.caller)
        return {
            "name": given.name,
            "catalog_name": given.catalog_name,
            "schema_name": given.schema_name,
            "id": staged.table_id,
            "staging_location": location_of(staged.url),
        }

    return Work(run, name)


def create_table(request: UnityRequest) -> Work:
    given = request.body(CreateTable)
    name = full_name(given.schema_name, given.name)
    _check_comment(given.comment)
    location = given.storage_location
    if given.table_type not in ("MANAGED", "EXTERNAL"):
        raise NotServedError(f"This server has no tables of the type {given.table_type[:40]}.")
    if location is None:
        raise CallError("storage_location is required.")
    if len(given.columns or ()) > _MOST_COLUMNS:
        raise CallError(f"A table has at most {_MOST_COLUMNS} columns.")

    def run(service: Service) -> dict[str, Any]:
        service.caller.case(given.table_type)
        service.enter(given.catalog_name, given.schema_name)
        if given.table_type == "MANAGED":
            if given.data_source_format != "DELTA":
                raise CallError("A managed table must be a Delta table.")
            return table_info(service, service.tables.create_staged(name, location, given.comment, service.caller))
        infos = given.columns or []
        view = service.tables.register_external(
            name, location, given.data_source_format, given.comment, given.properties or {}, infos, columns_of(infos),
            partition_columns_of(infos), service.caller,
        )  # fmt: skip
        return table_info(service, view)

    return Work(run, name)


def list_tables(request: UnityRequest) -> Work:
    catalog, schema = _required(request, "catalog_name"), _required(request, "schema_name")
    full_name(schema, "t")
    request.number("max_results", MOST_RESULTS)

    def run(service: Service) -> dict[str, Any]:
        tables = service.tables
        service.enter(catalog, schema)
        tables.check_schema(schema)

        def find(after: str, limit: int) -> Sequence[str]:
            return tables.names_after(schema, after, limit, service.caller)

        found, token = page(request, f"tables {catalog}.{schema}", MOST_RESULTS, find, lambda each: each)()
        shown = [info for name in found if (info := _listed(service, name)) is not None]
        return {"tables": shown, "next_page_token": token}

    return Work(run, f"{schema}.")


def _listed(service: Service, name: str) -> dict[str, Any] | None:
    """A table in a listing; None if it was dropped meanwhile, or if its name is now that of another table, which the
    caller may not see. A table that cannot be read is listed without its columns."""
    tables, caller = service.tables, service.caller
    try:
        return table_info(service, tables.listed(name, caller))
    except EntityNotFoundError:
        return None
    except DeltaLogError:
        try:
            found = tables.found(name, caller)
        except EntityNotFoundError:
            return None
        return {
            **_named(service, name),
            "table_id": found.table_id,
            "table_type": "MANAGED",
            "data_source_format": "DELTA",
            "storage_location": location_of(found.url),
            "columns": [],
            "properties": {},
            "created_at": None,
            "updated_at": None,
        }


def get_table(request: UnityRequest) -> Work:
    catalog, name = three_parts(request.parts["full_name"])

    def run(service: Service) -> dict[str, Any]:
        service.enter(catalog, name.partition(".")[0])
        return table_info(service, service.tables.load(name, service.caller))

    return Work(run, name)


def delete_table(request: UnityRequest) -> Work:
    catalog, name = three_parts(request.parts["full_name"])

    def run(service: Service) -> dict[str, Any]:
        service.enter(catalog, name.partition(".")[0])
        service.tables.drop(name, service.caller)
        return {}

    return Work(run, name)


def table_info(service: Service, view: View) -> dict[str, Any]:
    """A table in the form of the general API."""
    if isinstance(view, ExternalView):
        return _external_info(service, view)
    with rendering(view.record.name):
        return _managed_info(service, view)


def _managed_info(service: Service, view: ManagedView) -> dict[str, Any]:
    metadata = view.at.state.metadata
    return {
        **_named(service, view.record.name),
        "table_type": "MANAGED",
        "data_source_format": "DELTA",
        "columns": infos_of(view.at.state.schema, metadata.partition_columns),
        "storage_location": location_of(view.record.url),
        "comment": view.comment,
        "properties": properties_of(view),
        "created_at": view.record.created_ms,
        "updated_at": max(view.updated_ms, view.record.created_ms),
        "table_id": view.record.table_id,
    }


def _external_info(service: Service, view: ExternalView) -> dict[str, Any]:
    table = view.table
    infos = table.column_infos
    if infos is None and table.columns is not None:
        infos = infos_of(from_columns(table.columns), table.partition_columns)
    return {
        **_named(service, table.name),
        "table_type": "EXTERNAL",
        "data_source_format": table.format,
        "columns": infos or [],
        "storage_location": location_of(table.url),
        "comment": table.comment,
        "properties": table.properties,
        "created_at": table.created_ms,
        "updated_at": table.updated_ms,
        "table_id": table.table_id,
    }


def _named(service: Service, name: str) -> dict[str, Any]:
    schema, _, table = name.partition(".")
    return {"name": table, "catalog_name": service.tables.settings.catalog, "schema_name": schema}


# ------------------------------------------------------------------------------------------------ credentials


def table_credentials(request: UnityRequest) -> Work:
    given = _table_credential(request)
    if given.operation not in ("READ", "READ_WRITE"):
        raise BadRequestError("operation must be READ or READ_WRITE.")
    operation: messages.CredentialOperation = "READ" if given.operation == "READ" else "READ_WRITE"
    table_id = given.table_id.lower()

    def run(service: Service) -> dict[str, Any]:
        service.caller.case(operation)
        location = service.tables.credential_location_with_id(table_id, service.caller)
        return _vended(service, location_of(location), operation)

    return Work(run)


def _table_credential(request: UnityRequest) -> TableCredential:
    """The members of the request; some clients send them in the query."""
    table_id, operation = request.parameter("table_id"), request.parameter("operation")
    if table_id is not None and operation is not None:
        return TableCredential(table_id=table_id, operation=operation)
    return request.body(TableCredential)


def path_credentials(request: UnityRequest) -> Work:
    given = request.body(PathCredential)
    operations: dict[str, messages.CredentialOperation] = {
        "PATH_READ": "READ", "PATH_READ_WRITE": "READ_WRITE", "PATH_CREATE_TABLE": "READ_WRITE",
    }  # fmt: skip
    operation = operations.get(given.operation)
    if operation is None:
        raise BadRequestError(f"operation must be one of {', '.join(operations)}.")

    def run(service: Service) -> dict[str, Any]:
        service.caller.case(given.operation.removeprefix("PATH_"))
        service.enter_path(given.url)
        return _vended(service, given.url, operation)

    return Work(run)


def _vended(service: Service, location: str, operation: messages.CredentialOperation) -> dict[str, Any]:
    """The temporary credentials for a location, in the form of the general API: of several, those with the longest
    prefix."""
    found = max(service.vendor.vend(location, operation), key=lambda each: len(each.prefix), default=None)
    if found is None:
        return {"url": location, "expiration_time": service.now_ms() + _WITHOUT_KEYS_MS}
    shown: dict[str, Any] = {"url": location, "expiration_time": found.expiration_time_ms}
    config = found.config
    if "s3.access-key-id" in config:
        shown["aws_temp_credentials"] = {
            "access_key_id": config.get("s3.access-key-id"),
            "secret_access_key": config.get("s3.secret-access-key"),
            "session_token": config.get("s3.session-token"),
        }
    if "azure.sas-token" in config:
        shown["azure_user_delegation_sas"] = {"sas_token": config["azure.sas-token"]}
    if "gcs.oauth-token" in config:
        shown["gcp_oauth_token"] = {"oauth_token": config["gcs.oauth-token"]}
    return shown


# -------------------------------------------------------------------------------------------- preview commits


def get_commits(request: UnityRequest) -> Work:
    given = request.body(GetCommits)
    last = given.end_version
    if given.start_version < 0 or (last is not None and last < given.start_version):
        raise CallError("start_version must not be negative, nor after end_version.")

    def run(service: Service) -> dict[str, Any]:
        record = service.tables.managed_with_id(given.table_id.lower(), given.table_uri, service.caller)
        head = service.tables.head(record)
        commits = [
            {
                "version": each.version,
                "timestamp": each.in_commit_timestamp_ms,
                "file_name": each.file,
                "file_size": each.size_bytes,
                "file_modification_timestamp": each.modification_time_ms,
            }
            for each in head.unpublished
            if given.start_version <= each.version and (last is None or each.version <= last)
        ]
        return {"commits": commits, "latest_table_version": head.version}

    return Work(run)


def post_commit(request: UnityRequest) -> Work:
    given = request.checked_body(PreviewCommit)
    table_id = given.table_id.lower()
    updates: list[messages.Update] = []
    if given.commit_info is not None:
        commit = messages.Commit(**msgspec.structs.asdict(given.commit_info))
        updates.append(messages.AddCommit(commit=commit, uniform=_uniform(given.uniform)))
    elif given.uniform is not None:
        raise CallError("uniform needs commit_info.")
    if given.latest_backfilled_version is not None:
        updates.append(messages.SetLatestBackfilledVersion(latest_published_version=given.latest_backfilled_version))
    if not updates:
        raise CallError("commit_info or latest_backfilled_version is required.")
    requirements = (messages.AssertTableUuid(uuid=table_id),)
    plan = contract.plan_of(messages.UpdateTable(requirements=requirements, updates=tuple(updates)))

    def run(service: Service) -> dict[str, Any]:
        record = service.tables.managed_with_id(table_id, given.table_uri, service.caller)
        view = service.tables.update_managed(record, plan)
        service.on_update(view)
        return {}

    return Work(run, f"id {table_id[:255]}")


def _uniform(given: UniformInfo | None) -> messages.Uniform | None:
    if given is None:
        return None
    iceberg = given.iceberg
    try:
        at = datetime.datetime.fromisoformat(iceberg.converted_delta_timestamp.replace("Z", "+00:00"))
        at_ms = int((at if at.tzinfo else at.replace(tzinfo=datetime.timezone.utc)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise CallError("converted_delta_timestamp must be a time such as 2025-01-04T03:13:11.423Z.") from None
    return messages.Uniform(
        iceberg=messages.IcebergConversion(
            metadata_location=iceberg.metadata_location,
            converted_delta_version=iceberg.converted_delta_version,
            converted_delta_timestamp=at_ms,
            base_converted_delta_version=iceberg.base_converted_delta_version,
        )
    )


# ------------------------------------------------------------------------------------------------------ parts


def _required(request: UnityRequest, name: str) -> str:
    found = request.parameter(name)
    if found is None:
        raise BadRequestError(f"{name} is required.")
    return found


def _check_comment(comment: str | None) -> None:
    if comment is not None and len(comment) > _MOST_COMMENT:
        raise CallError(f"A comment has at most {_MOST_COMMENT} characters.")


ENDPOINTS = (
    Endpoint("GET", "/metastore_summary", metastore_summary, rules.ANYONE),
    Endpoint("GET", "/catalogs", list_catalogs, rules.ANYONE),
    Endpoint("POST", "/catalogs", change_catalogs, rules.MANAGE_CATALOG),
    Endpoint("GET", "/catalogs/{name}", get_catalog, rules.SEE_CATALOG),
    Endpoint("PATCH", "/catalogs/{name}", change_catalogs, rules.MANAGE_CATALOG),
    Endpoint("DELETE", "/catalogs/{name}", change_catalogs, rules.MANAGE_CATALOG),
    Endpoint("GET", "/schemas", list_schemas, rules.SEE_CATALOG),
    Endpoint("POST", "/schemas", create_schema, rules.CREATE_SCHEMA),
    Endpoint("GET", "/schemas/{full_name}", get_schema, rules.SEE_SCHEMA),
    Endpoint("PATCH", "/schemas/{full_name}", update_schema, rules.MANAGE_SCHEMA),
    Endpoint("DELETE", "/schemas/{full_name}", delete_schema, rules.MANAGE_SCHEMA),
    Endpoint("POST", "/staging-tables", create_staging_table, rules.CREATE_MANAGED),
    Endpoint("GET", "/tables", list_tables, rules.SEE_SCHEMA, Needs.TABLE),
    Endpoint("POST", "/tables", create_table, rules.CREATE_TABLE, Needs.TABLE),
    Endpoint("GET", "/tables/{full_name}", get_table, rules.SEE_TABLE, Needs.TABLE),
    Endpoint("DELETE", "/tables/{full_name}", delete_table, rules.MANAGE_TABLE, Needs.TABLE),
    Endpoint("POST", "/temporary-table-credentials", table_credentials, rules.VEND_FOR_TABLE, Needs.TABLE),
    Endpoint("POST", "/temporary-path-credentials", path_credentials, rules.VEND_FOR_PATH, Needs.TABLE),
    Endpoint("GET", "/delta/preview/commits", get_commits, rules.READ_TABLE),
    Endpoint("POST", "/delta/preview/commits", post_commit, rules.WRITE_TABLE, Needs.TABLE, commits=True),
)


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in [each for each in globals().values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]:
    msgspec.json.Decoder(_cls)
