"""Who may make which call: the page docs/authorisation-matrix.md, and the calls that show that it is true.

python -m tests.support.server.matrix
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalog import DeltaTable
from deltalog.catalog.records import ACCESS, access_key
from deltalog.server.access import rules
from deltalog.server.access.guard import Guard
from deltalog.server.access.principals import Principal, Scope
from deltalog.server.access.rules import Rule
from deltalog.server.lakeformation import OPERATIONS
from deltalog.server.openapi.document import encoded
from deltalog.server.ui import calls as pages
from deltalog.server.unity.router import ROUTERS
from deltalog.transactions.manager import TransactionManager, VirtualObject
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import CATALOG_ACCESS_KEY, AccessDocument, schema_access_key
from tests.support.server import SCHEMA, add
from tests.support.server.described import Answers
from tests.support.server.in_process import InProcess

PAGE = Path(__file__).parents[3] / "docs" / "authorisation-matrix.md"
LEVELS = ("catalog", "schema", "table")
ALLOWED, DENIED, HIDDEN = "yes", "403", "404"
OTHER = Principal("other")
PAGES = tuple(endpoint.name for endpoint in pages.ENDPOINTS)
ENDPOINTS = {endpoint.name: endpoint for router in (*ROUTERS.values(), pages.ROUTER) for endpoint in router.endpoints}
DESCRIBED = {
    **{each.name: (each.method, root + each.path) for root, router in ROUTERS.items() for each in router.endpoints},
    **{name: ("POST", f"/{name}") for name in OPERATIONS},
}
ANSWERS = Answers(json.loads(encoded()))
_D = "/delta/v1/catalogs/main/schemas/s"
_T = "/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"


@dataclass(frozen=True)
class Who:
    """A principal, with its ownership and grants on the catalog, on the schema ``s``, and on the tables in it."""

    title: str
    granted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    owns: tuple[str, ...] = ()
    scope: Scope = Scope.ADMIN
    is_admin: bool = False
    by_group: bool = False

    @property
    def principal(self) -> Principal:
        groups = frozenset({"team"}) if self.by_group else frozenset[str]()
        return Principal("it", groups, self.scope, self.is_admin)

    @property
    def name(self) -> str:
        return "group:team" if self.by_group else "it"

    def access(self, level: str) -> AccessDocument:
        words = self.granted.get(level, ())
        grants = {"other": ("SELECT",), **({self.name: words} if words else {})}
        return AccessDocument(owner=self.name if level in self.owns else "other", grants=grants)


_USE_C, _USE_S = ("USE CATALOG",), ("USE SCHEMA",)
_USE = {"catalog": _USE_C, "schema": _USE_S}
_ALL = {"catalog": ("USE CATALOG", "USE SCHEMA", "SELECT", "MODIFY")}
WHO = (
    Who("an administrator", is_admin=True),
    Who("nobody: no grants"),
    Who("USE CATALOG", {"catalog": _USE_C}),
    Who("USE CATALOG, USE SCHEMA", _USE),
    Who("these and SELECT on the table", {**_USE, "table": ("SELECT",)}),
    Who("these and MODIFY on the table", {**_USE, "table": ("MODIFY",)}),
    Who("these and SELECT, MODIFY on the table", {**_USE, "table": ("SELECT", "MODIFY")}),
    Who("all four, granted on the catalog", _ALL),
    Who("SELECT, MODIFY on the table, nothing around it", {"table": ("SELECT", "MODIFY")}),
    Who("USE SCHEMA, SELECT on the schema, no USE CATALOG", {"schema": ("USE SCHEMA", "SELECT")}),
    Who("a member of a group with USE and SELECT", {**_USE, "table": ("SELECT",)}, by_group=True),
    Who("USE CATALOG, CREATE SCHEMA", {"catalog": ("USE CATALOG", "CREATE SCHEMA")}),
    Who("USE CATALOG, USE SCHEMA, CREATE TABLE", {"catalog": _USE_C, "schema": ("USE SCHEMA", "CREATE TABLE")}),
    Who(
        "these and CREATE EXTERNAL TABLE",
        {"catalog": ("USE CATALOG", "CREATE EXTERNAL TABLE"), "schema": ("USE SCHEMA", "CREATE TABLE")},
    ),
    Who("the owner of the table, with USE", _USE, ("table",)),
    Who("the owner of the table, without USE SCHEMA", {"catalog": _USE_C}, ("table",)),
    Who("the owner of the schema, with USE CATALOG", {"catalog": _USE_C}, ("schema",)),
    Who("the owner of the schema, without USE CATALOG", {}, ("schema",)),
    Who("the owner of the catalog", {}, ("catalog",)),
    Who("a group that owns the catalog: a member", {}, ("catalog",), by_group=True),
    Who("the owner of everything, all four, scope WRITE", _ALL, LEVELS, Scope.WRITE),
    Who("the owner of everything, all four, scope READ", _ALL, LEVELS, Scope.READ),
    Who("an administrator, scope WRITE", scope=Scope.WRITE, is_admin=True),
    Who("an administrator, scope READ", scope=Scope.READ, is_admin=True),
)


# --------------------------------------------------------------------------------------- the model of ten lines

_OF_OWNERS = {
    "catalog": {"MANAGE", "USE CATALOG", "CREATE SCHEMA", "CREATE EXTERNAL TABLE"},
    "schema": {"MANAGE", "USE SCHEMA", "CREATE TABLE"},
    "table": {"MANAGE"},
}
_SHOWS = {"catalog": {"USE CATALOG"}, "schema": {"USE SCHEMA"}, "table": {"MANAGE", "SELECT", "MODIFY"}}


def expected(who: Who, rule: Rule) -> str:
    """The expected outcome of a call, by the rule alone."""
    if rule.scope > who.scope or who.is_admin:
        return DENIED if rule.scope > who.scope else ALLOWED
    has, owns = set[str](), False
    for level in LEVELS:
        need, has, owns = getattr(rule, level), has | set(who.granted.get(level, ())), owns or level in who.owns
        rights = has | (_OF_OWNERS[level] if owns else set()) | ({"SELECT", "MODIFY"} if "table" in who.owns else set())
        if need is not None and not rights & _SHOWS[level]:
            return HIDDEN
        if need and not any(each <= rights for each in need):
            return DENIED
    return ALLOWED


# ------------------------------------------------------------------------------------------------- the calls


@dataclass(frozen=True)
class Case:
    """A call. ``case``: the case of its rule. ``note``: what distinguishes the call from others of the same rule.
    ``judge``: computes the expected outcome; None: it follows from the rule.
    """

    route: str
    request: Callable[[World], tuple[str, str, Any]]
    case: str | None = None
    note: str = ""
    judge: Callable[[Who, Rule], str] | None = None

    @property
    def rule(self) -> Rule:
        access = ENDPOINTS[self.route].access if self.route in ENDPOINTS else OPERATIONS[self.route].access
        return access if self.case is None else access.cases[self.case]

    @property
    def title(self) -> str:
        more = ", ".join(each for each in (self.case, self.note) if each)
        return f"{self.route}{f': {more}' if more else ''}"

    def expected(self, who: Who) -> str:
        return expected(who, self.rule) if self.judge is None else self.judge(who, self.rule)


class World:
    """A catalog in which one principal has its ownership and grants, and everything else belongs to others."""

    def __init__(self, place: Path) -> None:
        self.server = InProcess(place)
        self._numbers = itertools.count()
        self.admin = self.server.unity()
        self.admin.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        self.managed = self.admin.new_table("m")
        self.table_id = self.external("e")
        self.shown_id = str(
            self.admin.ok("POST", f"{_D}/tables", _external_request(self, "shown"))["metadata"]["table-uuid"]
        )
        self.who = WHO[0]

    def settle(self, who: Who) -> None:
        """Make ``who`` the principal of the following calls."""
        self.who = who
        self.put(CATALOG_ACCESS_KEY, "catalog")
        self.put(schema_access_key("s"), "schema")
        for table_id in (self.managed.id, self.table_id, self.shown_id):
            self.put(access_key(table_id), "table")

    def put(self, key: str, level: str) -> None:
        coordinator = self.server.manager.coordinator
        found = coordinator.document(ACCESS, key)
        document = self.who.access(level)
        assert coordinator.change_documents(
            [documents.change(ACCESS, key, 0 if found is None else found.revision, document)]
        )
        self.server.grants.forget()

    def name(self) -> str:
        return f"n{next(self._numbers)}"

    def location(self) -> str:
        return f"s3://bucket/{self.name()}"

    def external(self, name: str) -> str:
        """The id of a new external table."""
        body = {
            "name": name, "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL",
            "data_source_format": "DELTA", "storage_location": f"s3://bucket/{name}", "columns": [],
        }  # fmt: skip
        return str(self.admin.ok("POST", "/tables", body)["table_id"])

    def fresh(self) -> str:
        """A new external table, on which the principal has the same rights as on the others."""
        name = self.name()
        self.put(access_key(self.external(name)), "table")
        return name

    def fresh_managed(self) -> str:
        """A new managed table, on which the principal has the same rights as on the others."""
        name = self.name()
        self.put(access_key(self.admin.new_table(name).id), "table")
        return name

    def unregistered(self) -> Any:
        """A request that registers a new table."""
        root = str(self.server.place / "warehouse" / self.name())
        DeltaTable.create(root, SCHEMA)
        return {"name": f"s.{self.name()}", "location": root}

    def taken(self) -> Any:
        """A request that takes over a new table from another catalog."""
        root = str(self.server.place / "warehouse" / self.name())
        other = TransactionManager(str(self.server.place / "other.db"))
        other.create_table(f"x.{self.name()}", root, SCHEMA)
        return {"name": f"s.{self.name()}", "location": root, "take_over": True}

    def fresh_schema(self) -> str:
        name = self.name()
        self.admin.ok("POST", "/schemas", {"name": name, "catalog_name": "main"})
        self.put(schema_access_key(name), "schema")
        return name

    def started(self, kind: str = "READ_AND_WRITE", by: str = "it") -> str:
        starter = None if by == "it" and self.who.is_admin else by
        return self.server.manager.start_transaction(kind, starter=starter)

    def with_changes(self) -> str:
        """A transaction of the principal that changes the managed table."""
        id_ = self.started()
        gone = VirtualObject(str(self.managed.root / "gone.parquet"))
        self.server.manager.delete_objects_on_cancel(id_, "s.m", [gone])
        return id_

    def staged(self, by: Principal) -> Any:
        caller = Guard(by, rules.CREATE_MANAGED, self.server.grants, "main")
        return self.server.tables.stage(f"s.{self.name()}", caller)

    def writes(self) -> Any:
        return [add(self.managed.root, f"day=mon/{self.name()}.parquet", 1)]

    def outcome(self, case: Case) -> str:
        """Make a call as the principal; returns its outcome."""
        method, path, body = case.request(self)
        self.server.grants.forget()
        status, received, headers = self.server.send(self.who.principal, method, path, body)
        error = headers.get("x-amzn-errortype")
        shown = None if method == "HEAD" else received  # the process sends no body for HEAD
        if case.route in PAGES:
            assert isinstance(received, str) and received.startswith("<!doctype html>"), case.title
        else:
            assert ANSWERS.problems(*DESCRIBED[case.route], status, shown) == [], (case.title, self.who.title)
        if status == 403:
            return DENIED
        if error in (
            "NoSuchCatalogException",
            "NoSuchSchemaException",
            "NoSuchTableException",
            "NotFoundException",
            "EntityNotFoundException",
        ):
            return HIDDEN
        assert status in (200, 204), (case.title, self.who.title, status, received)
        return ALLOWED


def _own(is_own: bool) -> Callable[[Who, Rule], str]:
    """The expected outcome for a transaction or a staged table. ``is_own``: whether the caller has created it."""
    return lambda who, rule: expected(who, rule) if is_own or who.is_admin or rule.scope > who.scope else HIDDEN


def _changing(who: Who, rule: Rule) -> str:
    """The expected outcome for a transaction of the caller that is not read-only."""
    return DENIED if who.scope < Scope.WRITE else expected(who, rule)


def _committing(who: Who, rule: Rule) -> str:
    need = Rule(scope=Scope.WRITE, catalog=(frozenset({"USE CATALOG"}),), schema=(), table=rule.table)
    return ALLOWED if expected(who, need) == ALLOWED else DENIED


def _without_table(who: Who, rule: Rule) -> str:
    return expected(who, Rule(scope=rule.scope))


def _at_path(is_table: bool) -> Callable[[Who, Rule], str]:
    """The expected outcome of a request for credentials for a location, with or without a table. No response tells what
    is at the location.
    """

    def judge(who: Who, rule: Rule) -> str:
        as_owner = expected(who, Rule(scope=rule.scope, catalog=(frozenset({"MANAGE"}),))) == ALLOWED
        by_rule = expected(who, rule) == ALLOWED and is_table == (rule.table is not None)
        return ALLOWED if as_owner or by_rule else DENIED

    return judge


def _not_served(who: Who, rule: Rule) -> str:
    return DENIED if rule.scope > who.scope else HIDDEN


def _unity(method: str, path: Callable[[World], str] | str, body: Callable[[World], Any] | None = None) -> Any:
    from tests.support.server.unity import ROOT

    def request(world: World) -> tuple[str, str, Any]:
        found = path if isinstance(path, str) else path(world)
        return method, f"{ROOT}{found}", None if body is None else body(world)

    return request


def _own_api(method: str, path: Callable[[World], str] | str, body: Callable[[World], Any] | None = None) -> Any:
    def request(world: World) -> tuple[str, str, Any]:
        found = path if isinstance(path, str) else path(world)
        return method, f"/api/deltalog{found}", None if body is None else body(world)

    return request


def _path_to(verb: str) -> Callable[[World], str]:
    return lambda world: f"/v1/tables/s.{world.fresh_managed()}/{verb}"


def _page(route: str) -> Callable[[World], tuple[str, str, Any]]:
    path = route.removeprefix("GET ").replace("{name}", "s.m")
    return lambda world: (_GET, path, None)


def _lake(operation: str, body: Callable[[World], Any]) -> Any:
    return lambda world: ("POST", f"/{operation}", body(world))


_EXT = {"table_type": "EXTERNAL", "data_source_format": "DELTA", "columns": [], "catalog_name": "main"}


def _managed_request(world: World) -> Any:
    from tests.support.server.unity import Table

    staged = world.staged(world.who.principal)
    name = world.name()
    table = Table(world.admin, "s", name, {"table-id": staged.table_id, "location": staged.url})
    return table.first()


def _general_managed(world: World) -> Any:
    request = _managed_request(world)
    return {
        "name": request["name"], "catalog_name": "main", "schema_name": "s", "table_type": "MANAGED",
        "storage_location": request["location"], "columns": [],
    }  # fmt: skip


def _external_request(world: World, name: str = "") -> Any:
    from tests.support.server.unity import COLUMNS

    protocol = {"min-reader-version": 1, "min-writer-version": 2}
    return {
        "name": name or world.name(), "location": world.location(), "table-type": "EXTERNAL", "columns": COLUMNS,
        "partition-columns": [], "protocol": protocol, "properties": {}, "last-commit-timestamp-ms": 1,
    }  # fmt: skip


def _update(world: World) -> Any:
    return {
        "requirements": [{"type": "assert-table-uuid", "uuid": world.shown_id}],
        "updates": [{"action": "set-properties", "updates": {"n": world.name()}}],
    }


def _grant(world: World) -> Any:
    return {"changes": [{"principal": "someone", "add": ["SELECT"], "remove": []}]}


def _keys(operation: str) -> Callable[[World], Any]:
    return lambda world: {"table_id": world.table_id, "operation": operation}


def _kind(kind: str) -> Callable[[World], Any]:
    return lambda world: {"TransactionType": kind}


_TABLE_BODY = {"DatabaseName": "s", "TableName": "m"}
_POST, _GET = "POST", "GET"
_CREDENTIALS = "/temporary-path-credentials"
_DELTA_PATH = "/delta/v1/temporary-path-credentials"


def _path_cases(route: str, request: Callable[[str, str], Any], cases: tuple[str, ...]) -> Iterator[Case]:
    for case in cases:
        yield Case(route, request(case, "s3://bucket/e"), case, "where a table is", _at_path(True))
        yield Case(route, request(case, "s3://bucket/e/below/it"), case, "below a table", _at_path(True))
        yield Case(route, request(case, "s3://bucket/none"), case, "where no table is", _at_path(False))


CASES: tuple[Case, ...] = (
    Case("GET /metastore_summary", _unity(_GET, "/metastore_summary")),
    Case("GET /catalogs", _unity(_GET, "/catalogs")),
    Case("POST /catalogs", _unity(_POST, "/catalogs", lambda world: {}), judge=_not_served),
    Case("GET /catalogs/{name}", _unity(_GET, "/catalogs/main")),
    Case("PATCH /catalogs/{name}", _unity("PATCH", "/catalogs/main", lambda world: {}), judge=_not_served),
    Case("DELETE /catalogs/{name}", _unity("DELETE", "/catalogs/main"), judge=_not_served),
    Case("GET /schemas", _unity(_GET, "/schemas?catalog_name=main")),
    Case("POST /schemas", _unity(_POST, "/schemas", lambda world: {"name": world.name(), "catalog_name": "main"})),
    Case("GET /schemas/{full_name}", _unity(_GET, "/schemas/main.s")),
    Case("PATCH /schemas/{full_name}", _unity("PATCH", "/schemas/main.s", lambda world: {"comment": world.name()})),
    Case("DELETE /schemas/{full_name}", _unity("DELETE", lambda world: f"/schemas/main.{world.fresh_schema()}")),
    Case(
        "POST /staging-tables",
        _unity(
            _POST, "/staging-tables", lambda world: {"name": world.name(), "catalog_name": "main", "schema_name": "s"}
        ),
    ),
    Case("GET /tables", _unity(_GET, "/tables?catalog_name=main&schema_name=s")),
    Case("POST /tables", _unity(_POST, "/tables", _general_managed), "MANAGED"),
    Case(
        "POST /tables",
        _unity(
            _POST,
            "/tables",
            lambda world: {**_EXT, "name": world.name(), "schema_name": "s", "storage_location": world.location()},
        ),
        "EXTERNAL",
    ),
    Case("GET /tables/{full_name}", _unity(_GET, "/tables/main.s.e")),
    Case("DELETE /tables/{full_name}", _unity("DELETE", lambda world: f"/tables/main.s.{world.fresh()}")),
    *(
        Case("POST /temporary-table-credentials", _unity(_POST, "/temporary-table-credentials", _keys(each)), each)
        for each in ("READ", "READ_WRITE")
    ),
    *_path_cases(
        f"POST {_CREDENTIALS}",
        lambda case, url: _unity(_POST, _CREDENTIALS, lambda world: {"url": url, "operation": f"PATH_{case}"}),
        ("READ", "READ_WRITE", "CREATE_TABLE"),
    ),
    Case(
        "GET /delta/preview/commits",
        _unity(
            _GET,
            "/delta/preview/commits",
            lambda world: {"table_id": world.managed.id, "table_uri": world.managed.location, "start_version": 0},
        ),
    ),
    Case(
        "POST /delta/preview/commits",
        _unity(
            _POST,
            "/delta/preview/commits",
            lambda world: {
                "table_id": world.managed.id,
                "table_uri": world.managed.location,
                "latest_backfilled_version": 0,
            },
        ),
    ),
    Case("GET /v1/tables", _own_api(_GET, "/v1/tables?prefix=s.")),
    Case("POST /v1/tables", _own_api(_POST, "/v1/tables", World.unregistered), "REGISTER"),
    Case("POST /v1/tables", _own_api(_POST, "/v1/tables", World.taken), "TAKE_OVER"),
    Case("GET /v1/tables/{name}", _own_api(_GET, "/v1/tables/s.e")),
    Case("DELETE /v1/tables/{name}", _own_api("DELETE", lambda world: f"/v1/tables/s.{world.fresh_managed()}")),
    *(
        Case(
            f"POST /v1/tables/{{name}}/{verb}",
            _own_api(_POST, _path_to(verb)),
        )
        for verb in ("release", "publish")
    ),
    Case("POST /v1/resync", _own_api(_POST, "/v1/resync", lambda world: {"dry_run": True})),
    *(
        Case("GET /permissions/{securable_type}/{full_name}", _unity(_GET, f"/permissions/{kind}/{name}"), kind)
        for kind, name in (("catalog", "main"), ("schema", "main.s"), ("table", "main.s.e"))
    ),
    *(
        Case(
            "PATCH /permissions/{securable_type}/{full_name}",
            _unity("PATCH", f"/permissions/{kind}/{name}", _grant),
            kind,
        )
        for kind, name in (("catalog", "main"), ("schema", "main.s"), ("table", "main.s.e"))
    ),
    Case("GET /delta/v1/config", _unity(_GET, "/delta/v1/config?catalog=main&protocol-versions=1.0")),
    Case(
        "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/staging-tables",
        _unity(_POST, f"{_D}/staging-tables", lambda world: {"name": world.name()}),
    ),
    Case(
        "GET /delta/v1/staging-tables/{table_id}/credentials",
        _unity(
            _GET, lambda world: f"/delta/v1/staging-tables/{world.staged(world.who.principal).table_id}/credentials"
        ),
        None,
        "staged by the caller",
        _without_table,
    ),
    Case(
        "GET /delta/v1/staging-tables/{table_id}/credentials",
        _unity(_GET, lambda world: f"/delta/v1/staging-tables/{world.staged(OTHER).table_id}/credentials"),
        None,
        "staged by another",
        _own(False),
    ),
    Case(
        "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/tables",
        _unity(_POST, f"{_D}/tables", _managed_request),
        "MANAGED",
    ),
    Case(
        "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/tables",
        _unity(_POST, f"{_D}/tables", _external_request),
        "EXTERNAL",
    ),
    Case(f"GET {_T}", _unity(_GET, f"{_D}/tables/m")),
    Case(f"HEAD {_T}", _unity("HEAD", f"{_D}/tables/m")),
    Case(f"DELETE {_T}", _unity("DELETE", lambda world: f"{_D}/tables/{world.fresh()}")),
    Case(f"POST {_T}", _unity(_POST, f"{_D}/tables/shown", _update)),
    Case(
        f"POST {_T}/rename",
        _unity(_POST, lambda world: f"{_D}/tables/{world.fresh()}/rename", lambda world: {"new-name": world.name()}),
    ),
    *(
        Case(f"GET {_T}/credentials", _unity(_GET, f"{_D}/tables/e/credentials?operation={each}"), each)
        for each in ("READ", "READ_WRITE")
    ),
    Case(f"POST {_T}/metrics", _unity(_POST, f"{_D}/tables/e/metrics", lambda world: {"table-id": world.table_id})),
    *_path_cases(
        f"GET {_DELTA_PATH}",
        lambda case, url: _unity(_GET, f"{_DELTA_PATH}?location={url}&operation={case}"),
        ("READ", "READ_WRITE"),
    ),
    *(
        Case("StartTransaction", _lake("StartTransaction", _kind(each)), each)
        for each in ("READ_ONLY", "READ_AND_WRITE")
    ),
    *(
        case
        for each in ("CommitTransaction", "CancelTransaction", "ExtendTransaction")
        for case in (
            Case(
                each,
                _lake(each, lambda world: {"TransactionId": world.started("READ_ONLY")}),
                None,
                "a read-only one of the caller",
                _without_table,
            ),
            Case(
                each,
                _lake(each, lambda world: {"TransactionId": world.started()}),
                None,
                "one of the caller",
                lambda who, rule: _changing(who, Rule(scope=rule.scope)),
            ),
            Case(
                each,
                _lake(each, lambda world: {"TransactionId": world.started(by="other")}),
                None,
                "one of another",
                lambda who, rule: (
                    DENIED if who.is_admin and who.scope < Scope.WRITE else _own(False)(who, Rule(scope=rule.scope))
                ),
            ),
        )
    ),
    Case(
        "CommitTransaction",
        _lake("CommitTransaction", lambda world: {"TransactionId": world.with_changes()}),
        None,
        "one of the caller with changes of the table",
        _committing,
    ),
    Case(
        "DescribeTransaction",
        _lake("DescribeTransaction", lambda world: {"TransactionId": world.started()}),
        None,
        "one of the caller",
        _own(True),
    ),
    Case(
        "DescribeTransaction",
        _lake("DescribeTransaction", lambda world: {"TransactionId": world.started(by="other")}),
        None,
        "one of another",
        _own(False),
    ),
    Case("ListTransactions", _lake("ListTransactions", lambda world: {})),
    Case(
        "DeleteObjectsOnCancel",
        _lake(
            "DeleteObjectsOnCancel",
            lambda world: {
                **_TABLE_BODY,
                "TransactionId": world.started(),
                "Objects": [{"Uri": str(world.managed.root / "x.parquet")}],
            },
        ),
    ),
    Case(
        "UpdateTableObjects",
        _lake("UpdateTableObjects", lambda world: {**_TABLE_BODY, "WriteOperations": world.writes()}),
    ),
    Case("GetTableObjects", _lake("GetTableObjects", lambda world: _TABLE_BODY)),
    *(Case(route, _page(route)) for route in PAGES),
)


# --------------------------------------------------------------------------------------------------- the page


def page() -> str:
    """The text of the page."""
    lines = [
        "# Who may make which call",
        "",
        "Generated by `python -m tests.support.server.matrix` from the rules of the calls "
        "(`deltalog/server/access/rules.py`), which [the access page](server-access.md) explains.",
        "`tests/unit/server/access/test_matrix.py` makes each of these calls as each of these principals.",
        "",
        f"`{ALLOWED}`: the call is carried out. `{DENIED}`: it is refused. `{HIDDEN}`: the object is reported as "
        "missing, because the caller may not see it.",
        "The grants and the ownership in this list are on the catalog, the schema and the table that a call is about; "
        "all other objects belong to others. The scope of the credential is ADMIN unless the list says otherwise.",
        "A listing (`GET /catalogs`, `GET /schemas`, `GET /tables`, `GET /ui/`, `ListTransactions`) shows what its "
        "caller may see. Calls that change catalogs are not served. `GET /health` needs no principal. The calls below "
        "`/ui` are [the pages for browsers](ui.md), which servers have only if they are enabled.",
        "",
        *(f"- **{number}**: {who.title}" for number, who in enumerate(WHO, 1)),
        "",
        f"| call | {' | '.join(str(number) for number, _ in enumerate(WHO, 1))} |",
        f"| --- |{' --- |' * len(WHO)}",
    ]
    for case in CASES:
        lines.append(f"| `{case.title}` | {' | '.join(case.expected(who) for who in WHO)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
