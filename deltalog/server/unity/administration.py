"""The calls of deltalog's own API below ``/api/deltalog/v1``, which list, register and remove the tables of the catalog
like the commands ``deltalog tables``. Errors have the form of Unity Catalog's APIs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from deltalog.catalog.records import Head, TableRecord
from deltalog.errors import CallError, CorruptTableError, EntityNotFoundError, ResourceNotReadyError
from deltalog.protocol.actions import Long
from deltalog.server.access import rules
from deltalog.server.calls import Needs
from deltalog.server.unity.errors import BadRequestError, NotServedError
from deltalog.server.unity.pages import MOST_RESULTS, page
from deltalog.server.unity.requests import UnityRequest, full_name
from deltalog.server.unity.service import Endpoint, Service, Work
from deltalog.transactions.callers import Caller
from deltalog.transactions.resync_plan import TableResync
from deltalog.transactions.unity.locations import location_of
from deltalog.transactions.unity.tables import UnityTables

ROOT = "/api/deltalog"
_TABLES, _TABLE = "/v1/tables", "/v1/tables/{name}"


class RegisterTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``name``: ``schema.table``. ``location``: the URL of an existing Delta table. ``take_over``: register the table
    although another catalog manages it, because that catalog is gone, or was this one before it was restored from a
    backup.
    """

    name: str
    location: str
    take_over: bool = False


class Resync(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``dry_run`` must be true: over HTTP, a resync only reports what it would change."""

    dry_run: bool


class CatalogTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table. ``version``: the latest version of a managed table. ``unpublished``: the number of its ratified commits
    that are not published. Times are in ms since 1970."""

    name: str
    table_id: str
    table_type: Literal["MANAGED", "EXTERNAL"]
    location: str
    created_ms: Long
    version: Long | None = None
    unpublished: Long | None = None


class CatalogTables(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a listing. ``next_page_token``: None on the last page. A page may have fewer tables than requested, or
    none.
    """

    tables: list[CatalogTable]
    next_page_token: str | None


class RemovedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is no longer in the catalog; its files stay at ``location``."""

    name: str
    location: str


class PublishedTable(msgspec.Struct, frozen=True, kw_only=True):
    """``published``: the number of commits that the call published."""

    table: CatalogTable
    published: Long


class ResyncedTable(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a resync about a table. ``catalog_version``, ``log_version``: the latest versions in the catalog
    and in the log; -1 if there is no log. ``in_doubt``: staged commits that may have been ratified. ``problem``: why
    the table cannot be corrected.
    """

    name: str
    location: str
    catalog_version: Long
    log_version: Long
    added: Long
    in_doubt: tuple[str, ...]
    problem: str | None


class ResyncPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``committed``, ``aborted``: the ids of transactions whose records would be corrected."""

    in_step: bool
    tables: list[ResyncedTable]
    committed: list[str]
    aborted: list[str]


def list_tables(request: UnityRequest) -> Work:
    schema, prefix = request.parameter("schema"), request.parameter("prefix") or ""
    if schema is not None:
        full_name(schema, "t")
    start = prefix if schema is None else f"{schema}.{prefix}"

    def run(service: Service) -> CatalogTables:
        service.caller.enter(None, schema)
        if schema is not None:
            service.tables.check_schema(schema)

        def find(after: str, limit: int) -> Sequence[str]:
            return service.tables.all_names_after(start, after, limit, service.caller)

        found, token = page(request, f"catalog {start}", find, lambda each: each)
        shown = [table for name in found if (table := listed_table(service, name)) is not None]
        return CatalogTables(tables=shown, next_page_token=token)

    request.number("max_results", MOST_RESULTS)
    return Work(run, None if schema is None else f"{schema}.")


def get_table(request: UnityRequest) -> Work:
    name = _name(request)

    def run(service: Service) -> CatalogTable:
        _enter(service, name)
        return _table(service, name)

    return Work(run, name)


def register_table(request: UnityRequest) -> Work:
    given = request.body(RegisterTable)
    name = _checked(given.name)

    def run(service: Service) -> CatalogTable:
        service.caller.case("TAKE_OVER" if given.take_over else "REGISTER")
        _enter(service, name)
        return _managed(*service.tables.register_existing(name, given.location, given.take_over, service.caller))

    return Work(run, name)


def drop_table(request: UnityRequest) -> Work:
    return _removal(request, UnityTables.remove)


def release_table(request: UnityRequest) -> Work:
    return _removal(request, UnityTables.release)


def _removal(request: UnityRequest, remove: Callable[[UnityTables, str, Caller], TableRecord]) -> Work:
    name = _name(request)

    def run(service: Service) -> RemovedTable:
        _enter(service, name)
        with _refusals():
            record = remove(service.tables, name, service.caller)
        return RemovedTable(name=name, location=location_of(record.url))

    return Work(run, name)


def publish_table(request: UnityRequest) -> Work:
    name = _name(request)

    def run(service: Service) -> PublishedTable:
        _enter(service, name)
        with _refusals():
            record = service.tables.managed(name, service.caller)
            count = service.tables.publish(record)
        return PublishedTable(table=_managed(record, service.tables.head(record)), published=count)

    return Work(run, name)


def resync(request: UnityRequest) -> Work:
    if not request.body(Resync).dry_run:
        raise NotServedError(
            "Over HTTP, a resync can only be a dry run. Send dry_run as true, or run 'deltalog tables resync'."
        )

    def run(service: Service) -> ResyncPlan:
        service.caller.enter(None)
        assert service.manager is not None
        done = service.manager.resync(dry_run=True)
        tables = [_resynced(each) for each in done.tables]
        return ResyncPlan(in_step=done.is_in_step, tables=tables, committed=done.committed, aborted=done.aborted)

    return Work(run, "")


def _enter(service: Service, name: str) -> None:
    """Check the caller's rights on the catalog and on the schema of a table."""
    service.caller.enter(None, name.partition(".")[0])


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Raise errors about a table's state as CallError, because they are not failures of the server."""
    try:
        yield
    except (CorruptTableError, ResourceNotReadyError) as error:
        raise CallError(error.message) from error


def listed_table(service: Service, name: str) -> CatalogTable | None:
    """A table in a listing; None if it was dropped meanwhile."""
    try:
        return _table(service, name)
    except EntityNotFoundError:
        return None


def _table(service: Service, name: str) -> CatalogTable:
    """A table of either kind. Raises EntityNotFoundError. Cost: 2 coordinator calls."""
    found = service.tables.found(name, service.caller)
    if isinstance(found, TableRecord):
        return _managed(found, service.tables.head(found))
    return CatalogTable(
        name=name,
        table_id=found.table_id,
        table_type="EXTERNAL",
        location=location_of(found.url),
        created_ms=found.created_ms,
    )


def _resynced(found: TableResync) -> ResyncedTable:
    return ResyncedTable(
        name=found.name,
        location=location_of(found.url),
        catalog_version=found.catalog_version,
        log_version=found.log_version,
        added=found.added,
        in_doubt=found.in_doubt,
        problem=found.problem,
    )


def _managed(record: TableRecord, head: Head) -> CatalogTable:
    return CatalogTable(
        name=record.name,
        table_id=record.table_id,
        table_type="MANAGED",
        location=location_of(record.url),
        created_ms=record.created_ms,
        version=head.version,
        unpublished=len(head.unpublished),
    )


def _name(request: UnityRequest) -> str:
    return _checked(request.parts["name"])


def _checked(name: str) -> str:
    """The full name of a table. Raises BadRequestError."""
    schema, dot, table = name.partition(".")
    if not dot:
        raise BadRequestError("The name of a table must have two parts: schema.table.")
    return full_name(schema, table)


ENDPOINTS = (
    Endpoint("GET", _TABLES, list_tables, rules.SEE_CATALOG, Needs.TABLE),
    Endpoint("POST", _TABLES, register_table, rules.REGISTER_TABLE, Needs.TABLE, commits=True),
    Endpoint("GET", _TABLE, get_table, rules.SEE_TABLE),
    Endpoint("DELETE", _TABLE, drop_table, rules.MANAGE_TABLE, Needs.TABLE),
    Endpoint("POST", f"{_TABLE}/release", release_table, rules.MANAGE_TABLE, Needs.TABLE, commits=True),
    Endpoint("POST", f"{_TABLE}/publish", publish_table, rules.WRITE_TABLE, Needs.TABLE),
    Endpoint("POST", "/v1/resync", resync, rules.MANAGE_CATALOG, Needs.TABLE),
)


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in [each for each in globals().values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]:
    msgspec.json.Decoder(_cls)
