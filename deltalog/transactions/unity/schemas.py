"""The schemas of a catalog. A schema exists if it was created, or if it has tables."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from deltalog.catalog.records import ACCESS, EXTERNAL, Document, DocumentChange, TableRecord
from deltalog.environment import Environment
from deltalog.errors import CallError, ConcurrentModificationError, TableExistsError
from deltalog.transactions.callers import ADMINISTRATOR, Caller
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import SCHEMA, AccessDocument, ExternalTable, SchemaDocument
from deltalog.transactions.unity.names import Names

_TRIES = 20
_AT_ONCE = 1000


class Schemas:
    """Creates, changes and lists schemas. Thread-safe."""

    def __init__(self, names: Names, environment: Environment) -> None:
        self.coordinator = names.coordinator
        self._names = names
        self._environment = environment

    def create(
        self, name: str, comment: str | None, properties: Mapping[str, str], owner: str | None = None
    ) -> SchemaDocument:
        """Raises TableExistsError. Cost: 3 coordinator calls."""
        now_ms = self._environment.clock_ms()
        new = SchemaDocument(
            name=name,
            schema_id=self._schema_id(name),
            comment=comment,
            properties=dict(properties),
            created_ms=now_ms,
            updated_ms=now_ms,
        )
        changes = [documents.change(SCHEMA, documents.schema_key(name), 0, new)]
        if owner is not None:
            access = AccessDocument(owner=owner)
            changes.append(documents.change(ACCESS, documents.schema_access_key(name), 0, access))
        if self._names.has_tables(documents.schema_key(name)) or not self.coordinator.change_documents(changes):
            raise TableExistsError(f"The catalog {self._names.catalog} already has a schema {name}.")
        return new

    def get(self, name: str) -> SchemaDocument:
        """A schema. Raises SchemaNotFoundError. Cost: as ``Names.check_schema``."""
        return self._schema(name)[0]

    def _schema(self, name: str) -> tuple[SchemaDocument, int]:
        found = self.coordinator.document(SCHEMA, documents.schema_key(name))
        if found is not None:
            return documents.decoded(found, SchemaDocument), found.revision
        self._names.check_schema(name)
        return self._implied(name), 0

    def kept(self, name: str) -> DocumentChange:
        """A change that keeps a schema in existence, even if its last table is dropped, and fails if the schema is
        changed meanwhile. Raises SchemaNotFoundError. Cost: as ``Names.check_schema``.
        """
        schema, revision = self._schema(name)
        return documents.change(SCHEMA, documents.schema_key(name), revision, schema)

    def _implied(self, name: str) -> SchemaDocument:
        """The document of a schema that was not created by ``create`` but exists because it has tables."""
        return SchemaDocument(name=name, schema_id=self._schema_id(name), created_ms=0, updated_ms=0)

    def _schema_id(self, name: str) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.coordinator.catalog_id}/{name}"))

    def update(self, name: str, comment: str | None, properties: Mapping[str, str] | None) -> SchemaDocument:
        """Change what is not None. Raises SchemaNotFoundError. Cost: 2 coordinator calls."""
        for _ in range(_TRIES):
            schema, revision = self._schema(name)
            changed = msgspec.structs.replace(
                schema,
                comment=schema.comment if comment is None else comment,
                properties=schema.properties if properties is None else dict(properties),
                updated_ms=self._environment.clock_ms(),
            )
            if self.coordinator.change_documents(
                [documents.change(SCHEMA, documents.schema_key(name), revision, changed)]
            ):
                return changed
        raise ConcurrentModificationError(f"The schema {name} was changed during every attempt. Try again.")

    def delete(self, name: str) -> None:
        """Raises SchemaNotFoundError; CallError if it has tables. Cost: 4 coordinator calls."""
        _, revision = self._schema(name)
        if self._names.has_tables(documents.schema_key(name)):
            raise CallError(f"The schema {name} has tables: drop them first.")
        if not revision:
            return
        key = documents.schema_access_key(name)
        access = self.coordinator.document(ACCESS, key)
        changes = [
            documents.deletion(SCHEMA, documents.schema_key(name), revision),
            documents.deletion(ACCESS, key, 0 if access is None else access.revision),
        ]
        if not self.coordinator.change_documents(changes):
            raise ConcurrentModificationError("The catalog was changed at the same time. Try again.")

    def after(self, after: str, limit: int, caller: Caller = ADMINISTRATOR) -> list[SchemaDocument]:
        """At most ``limit`` schemas whose key follows ``after`` and that the caller may see, by key. Cost: 1
        coordinator call for the schemas that were created, and 2 per schema with tables; more if there are schemas
        that the caller may not see."""
        found: list[SchemaDocument] = []
        while len(found) < limit:
            page = self._after(after, limit)
            found += (each for each in page if caller.sees_schema(each.name))
            if len(page) < limit:
                break
            after = documents.schema_key(page[-1].name)
        return found[:limit]

    def _after(self, after: str, limit: int) -> list[SchemaDocument]:
        created = {
            each.key: documents.decoded(each, SchemaDocument)
            for each in self.coordinator.documents(SCHEMA, after, limit)
        }
        keys, last = set(created), after
        for _ in range(limit):
            # ``/`` is the character after ``.``, so that this start comes after the names of all tables of the last
            # schema.
            start = f"{last[:-1]}/" if last else ""
            tables = self.coordinator.tables(start, 1)
            externals = self.coordinator.documents(EXTERNAL, start, 1)
            names = [each.name for each in tables] + [each.key for each in externals]
            if not names:
                break
            last = documents.schema_key(min(name.partition(".")[0] + "." for name in names)[:-1])
            keys.add(last)
        found = sorted(keys)[:limit]
        return [created[key] if key in created else self._schema_at(key) for key in found]

    def _schema_at(self, key: str) -> SchemaDocument:
        found = self.coordinator.document(SCHEMA, key)
        return self._implied(key[:-1]) if found is None else documents.decoded(found, SchemaDocument)

    def names_after(self, schema: str, after: str, limit: int, caller: Caller = ADMINISTRATOR) -> list[str]:
        """At most ``limit`` full names of a schema's tables after ``after`` that the caller may see, in order. Cost: 2
        coordinator calls; more if there are tables that the caller may not see."""
        return self._names_from(documents.schema_key(schema), after, limit, caller)

    def all_names_after(self, prefix: str, after: str, limit: int, caller: Caller = ADMINISTRATOR) -> list[str]:
        """At most ``limit`` full names of tables that begin with ``prefix``, come after ``after`` and may be seen by
        the caller, in order. Cost: as ``names_after``; at most 2 more for the first page."""
        names = self._names_from(prefix, after, limit, caller)
        is_table = after < prefix and self._names.exists(prefix) and self._is_seen(prefix, caller)
        return [prefix, *names][:limit] if is_table else names

    def _is_seen(self, name: str, caller: Caller) -> bool:
        if caller.sees_all:
            return True
        found = self.coordinator.table(name) or self.coordinator.document(EXTERNAL, name)
        return found is not None and caller.sees(_id_of(found), name)

    def _names_from(self, prefix: str, after: str, limit: int, caller: Caller) -> list[str]:
        start, at_once = max(after, prefix), limit if caller.sees_all else _AT_ONCE
        found: list[str] = []
        while len(found) < limit:
            managed = {each.name: each for each in self.coordinator.tables(start, at_once)}
            external = {each.key: each for each in self.coordinator.documents(EXTERNAL, start, at_once)}
            names = sorted(name for name in {*managed, *external} if name.startswith(prefix))[:at_once]
            for name in names:
                if caller.sees_all or caller.sees(_id_of(managed.get(name) or external[name]), name):
                    found.append(name)
                if len(found) == limit:
                    break
            if len(names) < at_once:
                break
            start = names[-1]
        return found


def _id_of(found: TableRecord | Document) -> str:
    return found.table_id if isinstance(found, TableRecord) else documents.decoded(found, ExternalTable).table_id
