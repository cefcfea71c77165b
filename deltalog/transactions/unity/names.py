"""Checks which schemas and tables a catalog has."""

from __future__ import annotations

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import EXTERNAL
from deltalog.errors import CatalogNotFoundError, EntityNotFoundError, SchemaNotFoundError, TableExistsError
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import SCHEMA


class Names:
    """Looks names up. Thread-safe. Names of tables are ``schema.table``."""

    def __init__(self, coordinator: Coordinator, catalog: str) -> None:
        self.coordinator = coordinator
        self.catalog = catalog

    def check_catalog(self, name: str) -> None:
        """Raises CatalogNotFoundError."""
        if name != self.catalog:
            raise CatalogNotFoundError(f"There is no catalog {name}: this server has {self.catalog}.")

    def check_schema(self, name: str) -> None:
        """Raises SchemaNotFoundError. Cost: usually 1 coordinator call, at most 3."""
        if not self.has_schema(name):
            raise SchemaNotFoundError(f"The catalog {self.catalog} has no schema {name}.")

    def has_schema(self, name: str) -> bool:
        """Whether a schema was created or has tables. Cost: as ``check_schema``."""
        key = documents.schema_key(name)
        if self.coordinator.document(SCHEMA, key) is not None:
            return True
        return self.has_tables(key)

    def has_tables(self, prefix: str) -> bool:
        table = next(iter(self.coordinator.tables(prefix, 1)), None)
        if table is not None and table.name.startswith(prefix):
            return True
        external = next(iter(self.coordinator.documents(EXTERNAL, prefix, 1)), None)
        return external is not None and external.key.startswith(prefix)

    def absent(self, name: str) -> EntityNotFoundError:
        schema = name.partition(".")[0]
        if not self.has_schema(schema):
            return SchemaNotFoundError(f"The catalog {self.catalog} has no schema {schema}.")
        return EntityNotFoundError(f"The catalog {self.catalog} has no table {name}.")

    def check_free(self, name: str) -> None:
        if self.exists(name):
            raise TableExistsError(f"The catalog {self.catalog} already has a table {name}.")

    def exists(self, name: str) -> bool:
        """Cost: 1 or 2 coordinator calls."""
        return self.coordinator.table(name) is not None or self.coordinator.document(EXTERNAL, name) is not None
