"""The calls of Unity Catalog's general API that show and change grants.

Spec: Unity Catalog, api/all.yaml, /permissions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from deltalog.catalog.records import DocumentChange, access_key
from deltalog.server.access import rules
from deltalog.server.access.grants import GrantChange, privileges_of, shown
from deltalog.server.access.privileges import Access, Kind
from deltalog.server.unity.errors import BadRequestError, NotServedError
from deltalog.server.unity.requests import UnityRequest, three_parts, two_parts
from deltalog.server.unity.service import Endpoint, Service, Work
from deltalog.transactions.unity.documents import CATALOG_ACCESS_KEY, schema_access_key

_PATH = "/permissions/{securable_type}/{full_name}"
_MOST_CHANGES = 100


class Change(msgspec.Struct, frozen=True, kw_only=True):
    principal: str
    add: list[str] = []
    remove: list[str] = []


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    changes: list[Change]


class _Object(NamedTuple):
    """The object of a call. ``key``: of the document of its grants. ``kept``, ``check``: as for ``Grants.grant``."""

    kind: Kind
    key: str
    access: Access
    is_managed: bool
    kept: Callable[[], Sequence[DocumentChange]] = tuple
    check: Callable[[Access], None] = lambda access: None


def get_permissions(request: UnityRequest) -> Work:
    find, wanted = _finder(request), request.parameter("principal")

    def run(service: Service) -> dict[str, Any]:
        found, caller = find(service), service.caller
        own = None if found.is_managed else caller.names
        return _assignments(found.access, lambda name: wanted in (None, name) and (own is None or name in own))

    return Work(run)


def update_permissions(request: UnityRequest) -> Work:
    find, given = _finder(request), request.body(Changes).changes
    if len(given) > _MOST_CHANGES:
        raise BadRequestError(f"At most {_MOST_CHANGES} changes can be made at once.")
    changes = [GrantChange(each.principal, privileges_of(each.add), privileges_of(each.remove)) for each in given]
    names = {each.name for each in changes}

    def run(service: Service) -> dict[str, Any]:
        found = find(service)
        access = service.caller.grants.grant(found.kind, found.key, changes, found.kept, found.check)
        return _assignments(access, names.__contains__)

    return Work(run)


def _assignments(access: Access, is_shown: Callable[[str], bool]) -> dict[str, Any]:
    found = ({"principal": name, "privileges": words} for name, words in shown(access).items() if is_shown(name))
    return {"privilege_assignments": list(found)}


def _finder(request: UnityRequest) -> Callable[[Service], _Object]:
    """A function that finds the object in the path of a request, and applies the rule for its kind."""
    kind, name = request.parts["securable_type"], request.parts["full_name"]
    if kind == Kind.CATALOG.value:
        return lambda service: _catalog(service, name)
    if kind == Kind.SCHEMA.value:
        catalog, schema = two_parts(name)
        return lambda service: _schema(service, catalog, schema)
    if kind == Kind.TABLE.value:
        catalog, table = three_parts(name)
        return lambda service: _table(service, catalog, table)
    raise NotServedError(
        f"This server has no permissions on objects of the type {kind[:40]}, only on objects of the types catalog, "
        "schema and table."
    )


def _catalog(service: Service, name: str) -> _Object:
    caller = service.caller
    caller.case(Kind.CATALOG.value)
    service.enter(name)
    return _Object(Kind.CATALOG, CATALOG_ACCESS_KEY, caller.grants.of_catalog(), caller.manages_catalog())


def _schema(service: Service, catalog: str, name: str) -> _Object:
    caller, tables = service.caller, service.tables
    caller.case(Kind.SCHEMA.value)
    service.enter(catalog, name)
    tables.check_schema(name)
    is_managed, access = caller.manages_schema(name), caller.grants.of_schema(name)

    def check(now: Access) -> None:
        caller.check_manages_schema(name, now)

    return _Object(Kind.SCHEMA, schema_access_key(name), access, is_managed, lambda: [tables.kept_schema(name)], check)


def _table(service: Service, catalog: str, name: str) -> _Object:
    caller = service.caller
    caller.case(Kind.TABLE.value)
    service.enter(catalog, name.partition(".")[0])
    table_id = service.tables.table_id(name, caller)
    is_managed = caller.manages_table(table_id, name)
    return _Object(Kind.TABLE, access_key(table_id), caller.grants.of_table(table_id), is_managed)


ENDPOINTS = (
    Endpoint("GET", _PATH, get_permissions, rules.SEE_GRANTS),
    Endpoint("PATCH", _PATH, update_permissions, rules.CHANGE_GRANTS),
)


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in (Change, Changes):
    msgspec.json.Decoder(_cls)
