"""The calls of the UC Delta API.

Spec: UC Delta API 1.0, api/delta.yaml; ManagedTablesSpec.md#apis.
"""

from __future__ import annotations

import re
from typing import Any, cast, get_args

import msgspec

from deltalog.errors import CallError, EntityNotFoundError, SchemaNotFoundError
from deltalog.server.access import rules
from deltalog.server.calls import Needs
from deltalog.server.unity.errors import BadRequestError, UnsupportedTableError, rendering
from deltalog.server.unity.requests import UnityRequest, full_name
from deltalog.server.unity.service import Endpoint, Service, Work
from deltalog.transactions.unity import contract
from deltalog.transactions.unity.locations import location_of
from deltalog.transactions.unity.views import ExternalView, ManagedView, View
from deltalog.unity import messages
from deltalog.unity.table_state import LAST_COMMIT_TIMESTAMP, LAST_UPDATE_VERSION, TABLE_ID_KEY, TableState

_VERSIONS = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}(,[0-9]{1,9}\.[0-9]{1,9})*")
_TABLE = "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"


def config(request: UnityRequest) -> Work:
    catalog, versions = request.parameter("catalog"), request.parameter("protocol-versions")
    if catalog is None or versions is None:
        raise CallError("catalog and protocol-versions are required.")
    if not _VERSIONS.fullmatch(versions):
        raise CallError("protocol-versions must be a list such as 1.0,2.3.")

    def run(service: Service) -> messages.Config:
        service.enter(catalog)
        if not any(each.partition(".")[0] == "1" for each in versions.split(",")):
            raise CallError(f"This server supports the protocol version {messages.PROTOCOL_VERSION} only.")
        return messages.Config(endpoints=SIGNATURES, protocol_version=messages.PROTOCOL_VERSION)

    return Work(run)


def create_staging_table(request: UnityRequest) -> Work:
    name = full_name(request.schema, request.body(messages.CreateStagingTable).name)

    def run(service: Service) -> messages.StagingTable:
        service.enter(request.catalog, request.schema)
        staged = service.tables.stage(name, service.caller)
        location = location_of(staged.url)
        return contract.staged(staged.table_id, location, service.vendor.vend(location, "READ_WRITE"))

    return Work(run, name)


def staging_credentials(request: UnityRequest) -> Work:
    table_id = request.parts["table_id"].lower()

    def run(service: Service) -> messages.Credentials:
        location = location_of(service.tables.staged_location(table_id, service.caller))
        return messages.Credentials(storage_credentials=tuple(service.vendor.vend(location, "READ_WRITE")))

    return Work(run)


def create_table(request: UnityRequest) -> Work:
    given = request.body(messages.CreateTable)
    name = full_name(request.schema, given.name)

    def run(service: Service) -> messages.LoadedTable:
        service.caller.case(given.table_type)
        service.enter(request.catalog, request.schema)
        return loaded(service.tables.create(name, given, service.caller))

    return Work(run, name)


def load_table(request: UnityRequest) -> Work:
    def run(service: Service) -> messages.LoadedTable:
        service.enter(request.catalog, request.schema)
        return loaded(service.tables.load(request.table, service.caller))

    return Work(run, request.table)


def table_exists(request: UnityRequest) -> Work:
    def run(service: Service) -> None:
        service.enter(request.catalog, request.schema)
        service.tables.location(request.table, service.caller)

    return Work(run, request.table)


def delete_table(request: UnityRequest) -> Work:
    def run(service: Service) -> None:
        service.enter(request.catalog, request.schema)
        service.tables.drop(request.table, service.caller)

    return Work(run, request.table)


def rename_table(request: UnityRequest) -> Work:
    new = full_name(request.schema, request.body(messages.RenameTable).new_name)

    def run(service: Service) -> None:
        service.enter(request.catalog, request.schema)
        service.tables.rename(request.table, new, service.caller)

    return Work(run, request.table)


def update_table(request: UnityRequest) -> Work:
    given = request.checked_body(messages.UpdateTable)
    contract.plan_of(given)

    def run(service: Service) -> messages.LoadedTable:
        service.enter(request.catalog, request.schema)
        view = service.tables.update(request.table, given, service.caller)
        service.on_update(view)
        return loaded(view)

    return Work(run, request.table)


def table_credentials(request: UnityRequest) -> Work:
    operation = operation_of(request)

    def run(service: Service) -> messages.Credentials:
        service.caller.case(operation)
        service.enter(request.catalog, request.schema)
        location = location_of(service.tables.credential_location(request.table, service.caller))
        return messages.Credentials(storage_credentials=tuple(service.vendor.vend(location, operation)))

    return Work(run, request.table)


def path_credentials(request: UnityRequest) -> Work:
    operation, location = operation_of(request), request.parameter("location")
    if location is None:
        raise BadRequestError("location is required.")

    def run(service: Service) -> messages.Credentials:
        service.caller.case(operation)
        service.enter_path(location)
        return messages.Credentials(storage_credentials=tuple(service.vendor.vend(location, operation)))

    return Work(run)


def report_metrics(request: UnityRequest) -> Work:
    given = request.checked_body(messages.ReportMetrics)
    report = None if given.report is None else given.report.commit_report
    histogram = None if report is None else report.file_size_histogram
    if histogram is not None:
        bins = histogram.sorted_bin_boundaries
        if not len(bins) == len(histogram.file_counts) == len(histogram.total_bytes):
            raise CallError("The lists of file-size-histogram must have the same length.")
        if list(bins) != sorted(set(bins)) or bins[:1] != (0,):
            raise CallError("sorted-bin-boundaries must begin with 0 and increase.")

    def run(service: Service) -> None:
        service.enter(request.catalog, request.schema)
        if service.tables.table_id(request.table, service.caller) != given.table_id.lower():
            raise CallError(f"table-id {given.table_id} is not that of the table {request.table}.")

    return Work(run, request.table)


def operation_of(request: UnityRequest) -> messages.CredentialOperation:
    """The operation for which the request asks for credentials. Raises BadRequestError."""
    given = request.parameter("operation")
    for each in get_args(messages.CredentialOperation):
        if given == each:
            found: messages.CredentialOperation = each
            return found
    raise BadRequestError("operation must be READ or READ_WRITE.")


# ------------------------------------------------------------------------------------------------ what is shown


def loaded(view: View) -> messages.LoadedTable:
    """A table as a response. Raises UnsupportedTableError."""
    if isinstance(view, ExternalView):
        return _external(view)
    with rendering(view.record.name):
        return _managed(view)


def _managed(view: ManagedView) -> messages.LoadedTable:
    iceberg = view.document.iceberg
    commits = (
        messages.Commit(
            version=each.version,
            timestamp=each.in_commit_timestamp_ms,
            file_name=each.file,
            file_size=each.size_bytes,
            file_modification_timestamp=each.modification_time_ms,
        )
        for each in reversed(view.head.unpublished)
    )
    return messages.LoadedTable(
        metadata=messages.TableMetadata(
            etag=view.etag,
            table_type="MANAGED",
            table_uuid=view.record.table_id,
            location=location_of(view.record.url),
            created_time=view.record.created_ms,
            updated_time=max(view.updated_ms, view.record.created_ms),
            columns=cast(dict[str, Any], msgspec.Raw(view.at.state.columns_json)),  # encoded as it is
            partition_columns=view.at.state.metadata.partition_columns,
            properties=properties_of(view),
            last_commit_version=view.metadata_version,
            last_commit_timestamp_ms=view.metadata_ms,
        ),
        commits=tuple(commits),
        uniform=None if iceberg is None else messages.Uniform(iceberg=iceberg),
        latest_table_version=view.head.version,
    )


def properties_of(view: ManagedView) -> dict[str, str]:
    """The properties of a managed table, with those that the server derives."""
    return {
        **view.document.properties,
        **view.at.state.metadata.configuration,
        TABLE_ID_KEY: view.record.table_id,
        **view.at.state.derived_properties(),
        LAST_UPDATE_VERSION: str(view.metadata_version),
        LAST_COMMIT_TIMESTAMP: str(view.metadata_ms),
    }


def _external(view: ExternalView) -> messages.LoadedTable:
    table = view.table
    if table.format != "DELTA" or table.columns is None or table.protocol is None:
        raise UnsupportedTableError(f"{table.name} is not a Delta table that this API can show.")
    return messages.LoadedTable(
        metadata=messages.TableMetadata(
            etag=view.etag,
            table_type="EXTERNAL",
            table_uuid=table.table_id,
            location=location_of(table.url),
            created_time=table.created_ms,
            updated_time=table.updated_ms,
            columns=table.columns,
            partition_columns=table.partition_columns,
            properties={**table.properties, **_derived(view)},
            last_commit_version=table.last_commit_version,
            last_commit_timestamp_ms=table.last_commit_ms,
        ),
        uniform=None if table.iceberg is None else messages.Uniform(iceberg=table.iceberg),
    )


def _derived(view: ExternalView) -> dict[str, str]:
    table = view.table
    assert table.protocol is not None
    derived = TableState.derived_of(table.protocol.to_action(), table.domain_metadata)
    if table.last_commit_version is not None:
        derived[LAST_UPDATE_VERSION] = str(table.last_commit_version)
    if table.last_commit_ms is not None:
        derived[LAST_COMMIT_TIMESTAMP] = str(table.last_commit_ms)
    return derived


_SCHEMA, _TABLE_ONLY = SchemaNotFoundError, EntityNotFoundError
ENDPOINTS = (
    Endpoint("GET", "/delta/v1/config", config, rules.SEE_CATALOG),
    Endpoint(
        "POST",
        "/delta/v1/catalogs/{catalog}/schemas/{schema}/staging-tables",
        create_staging_table,
        rules.CREATE_MANAGED,
        Needs.TABLE,
        missing=_SCHEMA,
    ),
    Endpoint(
        "GET",
        "/delta/v1/staging-tables/{table_id}/credentials",
        staging_credentials,
        rules.VEND_FOR_STAGED,
        Needs.TABLE,
    ),
    Endpoint(
        "POST",
        "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables",
        create_table,
        rules.CREATE_TABLE,
        Needs.TABLE,
        missing=_SCHEMA,
    ),
    Endpoint("GET", _TABLE, load_table, rules.SEE_TABLE, Needs.TABLE, missing=_SCHEMA),
    Endpoint("HEAD", _TABLE, table_exists, rules.SEE_TABLE, missing=_TABLE_ONLY),
    Endpoint("DELETE", _TABLE, delete_table, rules.MANAGE_TABLE, Needs.TABLE, missing=_TABLE_ONLY),
    Endpoint("POST", _TABLE, update_table, rules.WRITE_TABLE, Needs.TABLE, commits=True, missing=_TABLE_ONLY),
    Endpoint("POST", f"{_TABLE}/rename", rename_table, rules.RENAME_TABLE, missing=_TABLE_ONLY),
    Endpoint("GET", f"{_TABLE}/credentials", table_credentials, rules.VEND_FOR_TABLE, Needs.TABLE, missing=_TABLE_ONLY),
    Endpoint("POST", f"{_TABLE}/metrics", report_metrics, rules.WRITE_TABLE, missing=_TABLE_ONLY),
    Endpoint("GET", "/delta/v1/temporary-path-credentials", path_credentials, rules.VEND_FOR_PATH, Needs.TABLE),
)
# As ``config`` lists them.
SIGNATURES = tuple(
    f"{each.method} {each.path.removeprefix('/delta')}" for each in ENDPOINTS if each.path != "/delta/v1/config"
)
