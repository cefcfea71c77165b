"""What the calls of the API work with: the tables, and the vendor of credentials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from deltalog.errors import CatalogNotFoundError, NotFoundError
from deltalog.server.access.guard import Guard
from deltalog.server.access.rules import Rule
from deltalog.server.calls import Needs
from deltalog.server.unity.credentials import Vendor
from deltalog.server.unity.requests import UnityRequest
from deltalog.transactions.manager import TransactionManager
from deltalog.transactions.unity.tables import UnityTables
from deltalog.transactions.unity.views import ManagedView, View


@dataclass(frozen=True, slots=True)
class Service:
    """``on_backlog``: called with the id of a table that has many commits to publish. ``guard``: checks the rights of
    the call's caller. ``manager``: the manager of the catalog. Both are None outside calls. ``most_rows``: as in
    ``UiSettings``.
    """

    tables: UnityTables
    vendor: Vendor
    on_backlog: Callable[[str], None]
    guard: Guard | None = None
    manager: TransactionManager | None = None
    most_rows: int = 100

    def called_by(self, guard: Guard, manager: TransactionManager) -> Service:
        return replace(self, guard=guard, manager=manager)

    @property
    def caller(self) -> Guard:
        if self.guard is None:
            raise RuntimeError("a call has no caller")
        return self.guard

    def enter(self, catalog: str, schema: str | None = None) -> None:
        """Check the name of the catalog, and the caller's rights on it and on a schema. Raises CatalogNotFoundError,
        SchemaNotFoundError, PermissionDeniedError.
        """
        self.caller.enter(catalog, schema)
        self.tables.check_catalog(catalog)

    def enter_path(self, location: str) -> None:
        """Check that the caller may have credentials for a location, and that no managed table is there. Raises
        PermissionDeniedError, CallError. Cost: 1 coordinator call per 1,000 tables.
        """
        caller = self.caller
        if not caller.is_admin:
            around, is_around = self.tables.externals_near(location)
            caller.enter_path(around, is_around, location)
        self.tables.check_unmanaged(location)

    def now_ms(self) -> int:
        return self.tables.now_ms()

    def on_update(self, view: View) -> None:
        """Have the commits of a table published in the background once half of the permitted unpublished commits
        wait."""
        if isinstance(view, ManagedView) and 2 * len(view.head.unpublished) >= self.tables.settings.most_unpublished:
            self.on_backlog(view.record.table_id)


@dataclass(frozen=True, slots=True)
class Work:
    """A checked call. ``run``: executes it and returns the body of the response; None for a response without a body.
    ``table``: the full name of its table, if any."""

    run: Callable[[Service], Any]
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint. ``path``: the path below the root of the API, with variable segments in braces. ``access``: what its
    calls need. ``commits``: whether its calls may commit something, so that an error may leave the outcome unknown.
    ``missing``: as for ``errors.answer_of``.
    """

    method: str
    path: str
    read: Callable[[UnityRequest], Work]
    access: Rule
    needs: Needs = Needs.CATALOG
    commits: bool = False
    missing: type[NotFoundError] = CatalogNotFoundError

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"
