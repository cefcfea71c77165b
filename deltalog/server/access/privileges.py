"""What a principal may do with the catalog, its schemas and its tables, by owners and grants. Pure.

The words are those of Unity Catalog. A grant on the catalog holds for all its schemas and tables, and one on a schema
for all its tables. Nothing below the catalog can be used without USE CATALOG, and no table without USE SCHEMA on its
schema, whatever else is granted. The owner of an object manages it and everything below it: grants, changes of owners,
renames, drops. Data is read and written with SELECT and MODIFY, which the owner of a table has, but not the owner of
its schema or of the catalog, who can grant them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

GROUP = "group:"


class Privilege(str, enum.Enum):
    """A privilege that can be granted. CREATE EXTERNAL TABLE: register tables at any location that is not one of
    another table; Unity Catalog grants it on external locations, which this catalog does not have."""

    USE_CATALOG = "USE CATALOG"
    CREATE_SCHEMA = "CREATE SCHEMA"
    CREATE_EXTERNAL_TABLE = "CREATE EXTERNAL TABLE"
    USE_SCHEMA = "USE SCHEMA"
    CREATE_TABLE = "CREATE TABLE"
    SELECT = "SELECT"
    MODIFY = "MODIFY"


MANAGE = "MANAGE"
"""The right of the owner of an object, and of the owners of the objects around it."""

Right = str
Rights = frozenset[Right]
Need = tuple[Rights, ...]
"""Alternatives: each is a set of rights, one of which must be had as a whole. Empty: nothing is needed."""


class Kind(str, enum.Enum):
    """The kinds of objects that have owners and grants."""

    CATALOG = "catalog"
    SCHEMA = "schema"
    TABLE = "table"


GRANTABLE: Mapping[Kind, frozenset[Privilege]] = {
    Kind.CATALOG: frozenset(Privilege),
    Kind.SCHEMA: frozenset({Privilege.USE_SCHEMA, Privilege.CREATE_TABLE, Privilege.SELECT, Privilege.MODIFY}),
    Kind.TABLE: frozenset({Privilege.SELECT, Privilege.MODIFY}),
}
# What whoever manages an object may do with it, and what its owner may do besides.
_MANAGER: Mapping[Kind, Rights] = {
    Kind.CATALOG: frozenset({MANAGE, Privilege.USE_CATALOG, Privilege.CREATE_SCHEMA, Privilege.CREATE_EXTERNAL_TABLE}),
    Kind.SCHEMA: frozenset({MANAGE, Privilege.USE_SCHEMA, Privilege.CREATE_TABLE}),
    Kind.TABLE: frozenset({MANAGE}),
}
_OWNER: Rights = frozenset({Privilege.SELECT, Privilege.MODIFY})
_USE = {Kind.CATALOG: Privilege.USE_CATALOG, Kind.SCHEMA: Privilege.USE_SCHEMA}
_SEEN: Rights = frozenset({MANAGE, Privilege.SELECT, Privilege.MODIFY})


@dataclass(frozen=True, slots=True)
class Access:
    """Who owns an object, and what was granted on it. ``owner``: a name; None: nobody but the owners of the objects
    around it. ``grants``: privileges by name. Names are compared as they are; those of groups begin with ``group:``."""

    owner: str | None = None
    grants: Mapping[str, frozenset[Privilege]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a principal may do with an object. ``granted``: also what holds for objects below it."""

    kind: Kind
    rights: Rights
    granted: frozenset[Privilege] = frozenset()

    @property
    def is_seen(self) -> bool:
        """Whether the object exists for the principal."""
        return bool(self.rights & _SEEN) if self.kind is Kind.TABLE else _USE[self.kind] in self.rights

    @property
    def is_managed(self) -> bool:
        """Whether the principal owns the object or one around it."""
        return MANAGE in self.rights

    def meets(self, need: Need) -> bool:
        return not need or any(each <= self.rights for each in need)


def names_of(principal: str, groups: Iterable[str]) -> frozenset[str]:
    """The names in grants that mean a principal. A principal cannot have the name of a group."""
    own = [] if principal.startswith(GROUP) else [principal]
    return frozenset([*own, *(f"{GROUP}{each}" for each in groups)])


def standing_on(kind: Kind, access: Access, names: frozenset[str], parent: Standing | None = None) -> Standing:
    """What the principal with these names may do with an object. ``parent``: the same for the object around it; None
    for the catalog."""
    if parent is not None and not parent.is_seen:
        return Standing(kind, frozenset())
    granted = frozenset() if parent is None else parent.granted
    for name in names & access.grants.keys():
        granted |= access.grants[name]
    is_owner = access.owner in names
    rights: Rights = granted
    if is_owner or (parent is not None and MANAGE in parent.rights):
        rights |= _MANAGER[kind]
    if is_owner and kind is Kind.TABLE:
        rights |= _OWNER
    return Standing(kind, rights, granted)
