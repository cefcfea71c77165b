"""Guard: checks, for one call, whether its caller is permitted to make it, by the rule of the call's route."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltalog.catalog import records
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import TableRecord, TransactionType
from deltalog.errors import CatalogNotFoundError, EntityNotFoundError, SchemaNotFoundError
from deltalog.server.access.denials import PermissionDeniedError
from deltalog.server.access.grants import Grants
from deltalog.server.access.principals import Principal, Scope
from deltalog.server.access.privileges import Access, Kind, Need, Standing, names_of, standing_on
from deltalog.server.access.rules import Rule
from deltalog.transactions.callers import Caller
from deltalog.transactions.unity.documents import ExternalTable


class Guard(Caller):
    """The caller of one call, and the rule that the call is checked against. For an administrator, only the scope of
    the credential is checked, and nothing is looked up. ``catalog``: the name under which the catalog is served.
    """

    __slots__ = ("_catalog", "_found", "_has_refused", "_names", "_rule", "grants", "is_asked", "principal")

    def __init__(self, principal: Principal, rule: Rule, grants: Grants, catalog: str) -> None:
        self.principal = principal
        self.grants = grants
        self.is_asked = principal.is_admin or not rule.asks
        self._rule = rule
        self._catalog = catalog
        # The caller's rights on the catalog and on schemas, read once so that they stay the same during the call.
        self._found: dict[str, Standing] = {}
        self._has_refused = False
        self._names = frozenset() if principal.is_admin else names_of(principal.name, principal.groups)

    # ----------------------------------------------------------------------------------- the rule of the call

    def check_scope(self) -> None:
        """Raises PermissionDeniedError if the credential does not permit calls of this route."""
        if self._rule.scope > self.principal.scope:
            raise PermissionDeniedError(
                f"The credential of {self.principal.name} has the scope {self.principal.scope.name}; this call needs "
                f"the scope {self._rule.scope.name}."
            )

    def case(self, name: str) -> None:
        """Replace the rule by one of its ``cases``, which depend on the content of the request. Raises
        PermissionDeniedError as ``check_scope`` does.
        """
        self._rule = self._rule.cases[name]
        self.check_scope()
        self.is_asked = self.is_asked or not self._rule.asks

    # ------------------------------------------------------------------------------------------------ objects

    @property
    def has_refused(self) -> bool:
        """Whether something that exists was reported as missing, because the caller may not see it."""
        return self._has_refused

    @property
    def is_admin(self) -> bool:
        return self.principal.is_admin

    def enter(self, catalog: str | None, schema: str | None = None) -> None:
        """Check the rights on the catalog and on a schema. ``catalog``: the catalog that the request names; None if it
        names none. Raises CatalogNotFoundError or SchemaNotFoundError if the caller may not see the object, and
        PermissionDeniedError. Cost: none if the grants are in the cache; 3 coordinator calls for a schema that the
        caller may not see.
        """
        if self.is_admin:
            return
        self.is_asked = True
        standing = self._on_catalog()
        self._has_refused = catalog in (None, self._catalog) and not standing.is_seen
        if catalog not in (None, self._catalog) or not standing.is_seen:
            raise CatalogNotFoundError(f"There is no catalog {catalog or self._catalog} for {self.principal.name}.")
        self._check(standing, self._rule.catalog, f"the catalog {self._catalog}")
        if schema is None:
            return
        standing = self._on_schema(schema)
        if not standing.is_seen:
            self._has_refused = self.grants.has_schema(schema)
            raise SchemaNotFoundError(f"The catalog {self._catalog} has no schema {schema}.")
        self._check(standing, self._rule.schema, f"the schema {schema}")

    def admits(self, table_id: str | None, name: str) -> bool:
        if self.is_admin:
            return table_id is not None
        self.is_asked = True
        if table_id is None:
            if not self._has_refused:  # takes as long as for a table that the caller may not see
                self._on_schema(name.partition(".")[0])
                self.grants.of_missing(name)
            return False
        standing = self._on_table(table_id, name)
        if not standing.is_seen:
            self._has_refused = True
            return False
        self._check(standing, self._rule.table, f"the table {name}")
        return True

    @property
    def sees_all(self) -> bool:
        return self.is_admin

    def sees(self, table_id: str, name: str) -> bool:
        return self.is_admin or self._on_table(table_id, name).is_seen

    def sees_schema(self, name: str) -> bool:
        return self.is_admin or self._on_schema(name).is_seen

    def sees_catalog(self) -> bool:
        self.is_asked = True
        return self.is_admin or self._on_catalog().is_seen

    def manages_catalog(self) -> bool:
        return self.is_admin or self._on_catalog().is_managed

    def manages_schema(self, name: str) -> bool:
        return self.is_admin or self._on_schema(name).is_managed

    def check_manages_schema(self, name: str, access: Access) -> None:
        """Check that the caller manages a schema with these owners and grants: another schema may have taken the name
        since the rights were checked. Raises SchemaNotFoundError."""
        if not self.is_admin and not standing_on(Kind.SCHEMA, access, self._names, self._on_catalog()).is_managed:
            raise SchemaNotFoundError(f"The catalog {self._catalog} has no schema {name}.")

    def manages_table(self, table_id: str, name: str) -> bool:
        return self.is_admin or self._on_table(table_id, name).is_managed

    @property
    def names(self) -> frozenset[str]:
        """The names by which grants refer to the caller: its own, and those of its groups."""
        return self._names

    @property
    def owner(self) -> str | None:
        return None if self.is_admin else self.principal.name

    def is_own(self, owner: str | None) -> bool:
        self.is_asked = True
        return self.is_admin or owner == self.principal.name

    def own_transactions(self) -> str | None:
        """The principal whose transactions the caller may see; None: all principals."""
        self.is_asked = True
        return self.owner

    def check_transaction(self, coordinator: Coordinator, transaction_id: str, *, is_changed: bool = True) -> None:
        """Check that a transaction was started by the caller, and that its credential permits changing the transaction.
        Raises EntityNotFoundError, PermissionDeniedError, CallError. Cost: none, or 1 coordinator call for a credential
        of the scope READ.
        """
        self.is_asked = True
        absent = EntityNotFoundError(f"The catalog {coordinator.url} has no transaction {transaction_id}.")
        if not self.is_admin:
            records.check_transaction_id(transaction_id)
            if not records.is_started_for(transaction_id, self.principal.name):
                self._has_refused = True
                raise absent
        if is_changed and self.principal.scope < Scope.WRITE:
            record = coordinator.transaction(records.check_transaction_id(transaction_id))
            if record is None:
                raise absent
            if record.type is not TransactionType.READ_ONLY:
                raise PermissionDeniedError(
                    f"The credential of {self.principal.name} has the scope READ, but the transaction "
                    f"{transaction_id} is not read-only."
                )

    def enter_path(self, around: Sequence[ExternalTable], is_around: bool, location: str) -> None:
        """Check that the caller may have credentials for a location. The owner of the catalog may; so may a caller with
        the needed rights on an external table whose directory is or contains the location; and, in order to register a
        table, a caller who may register tables, if no table overlaps the location. ``around``: the tables whose
        directory is or contains the location. ``is_around``: whether the location contains tables. Raises
        PermissionDeniedError, which does not tell what tables there are.
        """
        self.is_asked = True
        if self.manages_catalog():
            return
        if self._rule.table is None:
            catalog = self._on_catalog()
            may_create = catalog.is_seen and catalog.meets(self._rule.catalog or ())
            is_allowed = may_create and not around and not is_around
        else:
            is_allowed = any(self.is_admitted(each.table_id, each.name) for each in around)
        if not is_allowed:
            raise PermissionDeniedError(
                f"{self.principal.name} may not have credentials for this operation on {location}."
            )

    def check_tables(self, tables: Iterable[TableRecord]) -> None:
        """Check that the caller still has the rights on all these tables that the rule needs. Raises
        PermissionDeniedError.
        """
        for each in tables:
            if not self.admits(each.table_id, each.name):
                raise PermissionDeniedError(
                    f"{self.principal.name} is no longer permitted to change one of the tables of this transaction. "
                    "Cancel the transaction."
                )

    def is_admitted(self, table_id: str, name: str) -> bool:
        """Like ``admits``, but returns False instead of raising PermissionDeniedError."""
        try:
            return self.admits(table_id, name)
        except PermissionDeniedError:
            return False

    # ------------------------------------------------------------------------------------------------- parts

    def _check(self, standing: Standing, need: Need | None, what: str) -> None:
        if need is not None and not standing.meets(need):
            words = " or ".join(" and ".join(sorted(str.__str__(word) for word in each)) for each in need)
            raise PermissionDeniedError(f"{self.principal.name} needs {words} on {what}.")

    def _on_catalog(self) -> Standing:
        found = self._found.get("")
        if found is None:
            found = self._found[""] = standing_on(Kind.CATALOG, self.grants.of_catalog(), self._names)
        return found

    def _on_schema(self, name: str) -> Standing:
        found = self._found.get(name)
        if found is None:
            access = self.grants.of_schema(name)
            found = self._found[name] = standing_on(Kind.SCHEMA, access, self._names, self._on_catalog())
        return found

    def _on_table(self, table_id: str, name: str) -> Standing:
        schema = self._on_schema(name.partition(".")[0])
        return standing_on(Kind.TABLE, self.grants.of_table(table_id), self._names, schema)
