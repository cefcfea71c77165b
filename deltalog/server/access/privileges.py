"""Derives the rights of a principal on the catalog, its schemas and its tables from owners and grants. Pure.

The privileges are named as in Unity Catalog. A grant on the catalog applies to all its schemas and tables, and a grant
on a schema to all its tables. Whatever else is granted, schemas and tables cannot be used without USE CATALOG, and
tables not without USE SCHEMA on their schema. The owner of an object manages it and everything below it: grants,
changes of owners, renames, drops. Reading data needs SELECT, and writing data needs MODIFY. The owner of a table has
both. The owners of its schema and of the catalog have neither, but can grant them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

GROUP = "group:"


class Privilege(str, enum.Enum):
    """A privilege that can be granted. CREATE EXTERNAL TABLE permits registering tables at any location that does not
    overlap another table; Unity Catalog grants it on external locations, which this catalog does not have.
    """

    USE_CATALOG = "USE CATALOG"
    CREATE_SCHEMA = "CREATE SCHEMA"
    CREATE_EXTERNAL_TABLE = "CREATE EXTERNAL TABLE"
    USE_SCHEMA = "USE SCHEMA"
    CREATE_TABLE = "CREATE TABLE"
    SELECT = "SELECT"
    MODIFY = "MODIFY"


MANAGE = "MANAGE"
"""The right that the owner of an object has, and the owners of its schema and catalog."""

Right = str
Rights = frozenset[Right]
Need = tuple[Rights, ...]
"""Alternative sets of rights: a principal needs all the rights of one of the sets. Empty: nothing is needed."""


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
# The rights of everyone who manages an object, and the additional rights of its owner.
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
    """Who owns an object, and what was granted on it. ``owner``: the name of the owner; None: only the owners of its
    schema and catalog own it. ``grants``: privileges by the name of the principal or group. Names are compared
    case-sensitively; the names of groups begin with ``group:``.
    """

    owner: str | None = None
    grants: Mapping[str, frozenset[Privilege]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """The rights of a principal on an object. ``granted``: the granted privileges, including those that apply only to
    the objects in it.
    """

    kind: Kind
    rights: Rights
    granted: frozenset[Privilege] = frozenset()

    @property
    def is_seen(self) -> bool:
        """Whether the principal may see the object; otherwise the object is reported as missing."""
        return bool(self.rights & _SEEN) if self.kind is Kind.TABLE else _USE[self.kind] in self.rights

    @property
    def is_managed(self) -> bool:
        """Whether the principal owns the object, or the schema or catalog that contains it."""
        return MANAGE in self.rights

    def meets(self, need: Need) -> bool:
        return not need or any(each <= self.rights for each in need)


def names_of(principal: str, groups: Iterable[str]) -> frozenset[str]:
    """The names by which grants refer to a principal: its own, and those of its groups with the prefix ``group:``, with
    which the name of a principal cannot begin.
    """
    own = [] if principal.startswith(GROUP) else [principal]
    return frozenset([*own, *(f"{GROUP}{each}" for each in groups)])


def standing_on(kind: Kind, access: Access, names: frozenset[str], parent: Standing | None = None) -> Standing:
    """The rights on an object of the principal to whom grants refer by ``names``. ``parent``: its rights on the schema
    or catalog that contains the object; None for the catalog.
    """
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
