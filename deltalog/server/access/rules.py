"""The rule of each call, as data: which scope its credential needs, and which rights on the objects of the call.

Every route has a rule. The rules are those of Unity Catalog; in addition, calls that need ownership there need a
credential with the scope ADMIN here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deltalog.server.access.principals import Scope
from deltalog.server.access.privileges import MANAGE, Need, Privilege, Rights


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a call needs. ``scope``: the least scope. ``catalog``, ``schema``, ``table``: the rights that are needed on
    these objects; None: the call has no such object. ``own``: the call is permitted only on objects that the caller
    created: staged tables or transactions. ``cases``: further rules; the content of the request decides which of them
    applies. An object that the caller may not see is reported as missing."""

    scope: Scope
    catalog: Need | None = None
    schema: Need | None = None
    table: Need | None = None
    own: str | None = None
    cases: Mapping[str, Rule] = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether the call needs rights on an object, by the rule itself or by one of its cases."""
        needs = (self.catalog, self.schema, self.table, self.own)
        return bool(self.cases) or any(each is not None for each in needs)


def _need(*alternatives: str | Rights) -> Need:
    return tuple(frozenset({each}) if isinstance(each, str) else each for each in alternatives)


_USE_CATALOG = _need(Privilege.USE_CATALOG)
_CREATE = _need(frozenset({Privilege.USE_SCHEMA, Privilege.CREATE_TABLE}))
_BOTH = frozenset({Privilege.SELECT, Privilege.MODIFY})
_READ, _WRITE, _ADMIN = Scope.READ, Scope.WRITE, Scope.ADMIN

ANYONE = Rule(scope=_READ)
SEE_CATALOG = Rule(scope=_READ, catalog=_USE_CATALOG)
MANAGE_CATALOG = Rule(scope=_ADMIN, catalog=_need(MANAGE))
CREATE_SCHEMA = Rule(scope=_WRITE, catalog=_need(frozenset({Privilege.USE_CATALOG, Privilege.CREATE_SCHEMA})))
SEE_SCHEMA = Rule(scope=_READ, catalog=_USE_CATALOG, schema=_need(Privilege.USE_SCHEMA))
MANAGE_SCHEMA = Rule(scope=_ADMIN, catalog=_USE_CATALOG, schema=_need(MANAGE))
CREATE_MANAGED = Rule(scope=_WRITE, catalog=_USE_CATALOG, schema=_CREATE)
CREATE_EXTERNAL = Rule(scope=_WRITE, catalog=_need(Privilege.CREATE_EXTERNAL_TABLE), schema=_CREATE)
CREATE_TABLE = Rule(scope=_WRITE, cases={"MANAGED": CREATE_MANAGED, "EXTERNAL": CREATE_EXTERNAL})
# Only the owner of the catalog says that another catalog is gone.
REGISTER_TABLE = Rule(scope=_WRITE, cases={"REGISTER": CREATE_EXTERNAL, "TAKE_OVER": MANAGE_CATALOG})
SEE_TABLE = Rule(scope=_READ, catalog=_USE_CATALOG, schema=(), table=_need(MANAGE, Privilege.SELECT, Privilege.MODIFY))
READ_TABLE = Rule(scope=_READ, catalog=_USE_CATALOG, schema=(), table=_need(Privilege.SELECT))
WRITE_TABLE = Rule(scope=_WRITE, catalog=_USE_CATALOG, schema=(), table=_need(Privilege.MODIFY))
READ_AND_WRITE_TABLE = Rule(scope=_WRITE, catalog=_USE_CATALOG, schema=(), table=_need(_BOTH))
MANAGE_TABLE = Rule(scope=_ADMIN, catalog=_USE_CATALOG, schema=(), table=_need(MANAGE))
RENAME_TABLE = Rule(scope=_ADMIN, catalog=_USE_CATALOG, schema=_CREATE, table=_need(MANAGE))
VEND_FOR_TABLE = Rule(scope=_READ, cases={"READ": READ_TABLE, "READ_WRITE": READ_AND_WRITE_TABLE})
VEND_FOR_STAGED = Rule(scope=_WRITE, own="staged table", table=_need(_BOTH))
# Keys for a location are keys for the external table there; if there is none, the owner of the catalog gets them, and
# whoever may register a table there.
CREATE_AT_PATH = Rule(scope=_WRITE, catalog=_need(Privilege.CREATE_EXTERNAL_TABLE))
VEND_FOR_PATH = Rule(
    scope=_READ,
    cases={"READ": READ_TABLE, "READ_WRITE": READ_AND_WRITE_TABLE, "CREATE_TABLE": CREATE_AT_PATH},
)
OWN_TRANSACTION = Rule(scope=_READ, own="transaction")
COMMIT_TRANSACTION = Rule(scope=_READ, own="transaction", table=_need(Privilege.MODIFY))
START_TRANSACTION = Rule(scope=_READ, cases={"READ_ONLY": ANYONE, "READ_AND_WRITE": Rule(scope=_WRITE)})
"""A credential of the scope READ may end, extend and use its principal's read-only transactions only."""
SEE_GRANTS = Rule(scope=_READ, cases={"catalog": SEE_CATALOG, "schema": SEE_SCHEMA, "table": SEE_TABLE})
CHANGE_GRANTS = Rule(scope=_ADMIN, cases={"catalog": MANAGE_CATALOG, "schema": MANAGE_SCHEMA, "table": MANAGE_TABLE})
