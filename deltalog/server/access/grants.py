"""The owners and grants that a catalog stores, read through a short-lived cache."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import ACCESS, EXTERNAL, DocumentChange, access_key
from deltalog.errors import CallError, ConcurrentModificationError
from deltalog.server.access.principals import NAME_LENGTH, is_name, is_principal_name
from deltalog.server.access.privileges import GRANTABLE, GROUP, Access, Kind, Privilege
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import CATALOG_ACCESS_KEY, AccessDocument, schema_access_key

FRESH_SECONDS = 2.0
_TRIES = 20
_MOST_KEPT = 20_000
_MOST_NAMES = 1000
_NOTHING = Access()


@dataclass(frozen=True, slots=True)
class GrantChange:
    """Privileges to grant to a principal or group, and to revoke from it. A privilege that is in both is revoked."""

    name: str
    add: frozenset[Privilege] = frozenset()
    remove: frozenset[Privilege] = frozenset()


class Grants:
    """The owners and grants of a catalog. Thread-safe. Changes made through this object are seen by it at once; changes
    made elsewhere are seen within ``fresh_seconds``.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        fresh_seconds: float = FRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator = coordinator
        self._fresh_seconds = fresh_seconds
        self._clock = clock
        self._kept: collections.OrderedDict[str, tuple[float, Access]] = collections.OrderedDict()
        self._changes = 0
        self._lock = threading.Lock()

    # --------------------------------------------------------------------------------------------- reading

    def of_catalog(self) -> Access:
        """Cost of this and the next methods: none if the object's grants were read in the last ``fresh_seconds``, else
        1 coordinator call.
        """
        return self.of(CATALOG_ACCESS_KEY)

    def of_schema(self, name: str) -> Access:
        return self.of(schema_access_key(name))

    def of_table(self, table_id: str) -> Access:
        return self.of(access_key(table_id))

    def of_missing(self, name: str) -> None:
        """Take as long as ``of_table``, so that timing does not tell whether a table exists."""
        self.of(f"missing {name}")

    def has_schema(self, name: str) -> bool:
        """Whether a schema was created or has tables. Cost: 3 coordinator calls, also if there is no such schema, so
        that timing does not tell.
        """
        key, coordinator = documents.schema_key(name), self._coordinator
        created = coordinator.document(documents.SCHEMA, key)
        tables, externals = coordinator.tables(key, 1), coordinator.documents(EXTERNAL, key, 1)
        found = [*(each.name for each in tables), *(each.key for each in externals)]
        return created is not None or any(each.startswith(key) for each in found)

    def of(self, key: str) -> Access:
        now = self._clock()
        with self._lock:
            kept, changes = self._kept.get(key), self._changes
        if kept is not None and now < kept[0]:
            return kept[1]
        found = self._coordinator.document(ACCESS, key)
        access = _NOTHING if found is None else _access_of(documents.decoded(found, AccessDocument))
        with self._lock:
            # What was read before a change of this process must not be kept after it.
            if changes == self._changes:
                self._kept[key] = now + self._fresh_seconds, access
                self._kept.move_to_end(key)
                while len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
        return access

    def forget(self) -> None:
        """Empty the cache, because this process created or removed objects."""
        with self._lock:
            self._changes += 1
            self._kept.clear()

    # -------------------------------------------------------------------------------------------- changing

    def grant(
        self,
        kind: Kind,
        key: str,
        changes: Sequence[GrantChange],
        kept: Callable[[], Sequence[DocumentChange]] = tuple,
        check: Callable[[Access], None] = lambda access: None,
    ) -> Access:
        """Give and take privileges on an object, all or none. ``key``: of the object's document. ``kept``: changes of
        other documents that must succeed in the same step. ``check``: raises if the change is not permitted, given the
        owner and the grants that are changed. Returns what is granted then. Raises CallError. Cost: 2 coordinator
        calls."""
        for each in changes:
            check_name(each.name)
            if unfit := (each.add | each.remove) - GRANTABLE[kind]:
                raise CallError(
                    f"{', '.join(sorted(unfit))} cannot be granted on a {kind.value}: "
                    f"{', '.join(sorted(GRANTABLE[kind]))} can."
                )

        def edited(document: AccessDocument) -> AccessDocument:
            check(_access_of(document))
            grants = {name: set(words) for name, words in document.grants.items()}
            for each in changes:
                grants.setdefault(each.name, set()).update(map(str.__str__, each.add))
                grants[each.name] -= each.remove
            shown = {
                name: tuple(sorted(str.__str__(word) for word in words)) for name, words in grants.items() if words
            }
            if len(shown) > _MOST_NAMES:
                raise CallError(
                    f"At most {_MOST_NAMES} principals and groups can have grants on one object. Grant the privileges "
                    "to groups."
                )
            return msgspec.structs.replace(document, grants=shown)

        return self._change(key, edited, kept)

    def set_owner(self, key: str, owner: str | None, kept: Callable[[], Sequence[DocumentChange]] = tuple) -> Access:
        """Change the owner of an object. ``owner``: None if only the owners of its schema and catalog own it. Raises
        CallError. Cost: as ``grant``.
        """
        if owner is not None:
            check_name(owner)
        return self._change(key, lambda document: msgspec.structs.replace(document, owner=owner), kept)

    def _change(
        self,
        key: str,
        edit: Callable[[AccessDocument], AccessDocument],
        kept: Callable[[], Sequence[DocumentChange]],
    ) -> Access:
        for _ in range(_TRIES):
            found = self._coordinator.document(ACCESS, key)
            before = AccessDocument() if found is None else documents.decoded(found, AccessDocument)
            after = edit(before)
            if after == before:
                return _access_of(after)
            revision = 0 if found is None else found.revision
            try:
                if self._coordinator.change_documents([documents.change(ACCESS, key, revision, after), *kept()]):
                    return _access_of(after)
            finally:
                self.forget()
        raise ConcurrentModificationError(
            "The grants were not changed, because others changed them at the same time. Try again."
        )


def privileges_of(words: Sequence[str]) -> frozenset[Privilege]:
    """The privileges with these names. Raises CallError for a word that is not a privilege."""
    try:
        return frozenset(map(Privilege, words))
    except ValueError:
        known = ", ".join(each.value for each in Privilege)
        raise CallError(f"Unknown privilege. The privileges are {known}.") from None


def check_name(name: str) -> None:
    """Raises CallError unless ``name`` is a valid name of a principal, or ``group:`` and a valid name of a group."""
    if not is_principal_name(name) and not (name.startswith(GROUP) and is_name(name.removeprefix(GROUP))):
        raise CallError(
            f"The name of a principal has 1 to {NAME_LENGTH} printable characters, without blanks at its ends; got "
            f"{name[:80]!r}. Name a group as group:<name>."
        )


def shown(access: Access) -> Mapping[str, list[str]]:
    """The names of the granted privileges, by the name of the principal or group, both sorted."""
    return {name: sorted(each.value for each in access.grants[name]) for name in sorted(access.grants)}


def _access_of(document: AccessDocument) -> Access:
    # Privileges that only later versions of deltalog know are ignored.
    known = {each.value: each for each in Privilege}
    grants = {
        name: frozenset(known[word] for word in words if word in known) for name, words in document.grants.items()
    }
    return Access(document.owner, grants)
