"""UnityTables: the tables of a catalog as a Unity Catalog shows them, and what its clients change.

A managed table is a table in a deltalog catalog; what the API shows of it is read from its log, so that it changes in
the same ratification as the log. External tables and the comments of managed ones are stored in documents of the
catalog.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#apis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deltalog import deadline
from deltalog.catalog import records
from deltalog.catalog.records import ACCESS, DocumentChange, Head, TableRecord
from deltalog.environment import Environment
from deltalog.errors import EntityNotFoundError
from deltalog.protocol.paths import canonical_url
from deltalog.table import DeltaTable
from deltalog.transactions.callers import ADMINISTRATOR, Caller
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.release import release
from deltalog.transactions.unity import contract, documents
from deltalog.transactions.unity.contract import Plan
from deltalog.transactions.unity.creation import Creation
from deltalog.transactions.unity.documents import STAGING, ExternalTable, SchemaDocument, StagingDocument
from deltalog.transactions.unity.drops import Drops
from deltalog.transactions.unity.external import ExternalTables
from deltalog.transactions.unity.external_logs import ExternalLogs
from deltalog.transactions.unity.locations import canonical_location
from deltalog.transactions.unity.managed import ManagedHeads
from deltalog.transactions.unity.names import Names
from deltalog.transactions.unity.registration import Registration
from deltalog.transactions.unity.schemas import Schemas
from deltalog.transactions.unity.settings import UnitySettings
from deltalog.transactions.unity.updates import Updates
from deltalog.transactions.unity.views import ExternalView, ManagedView, Staged, View
from deltalog.transactions.unity.warehouse import Warehouse
from deltalog.unity import messages


class UnityTables:
    """See the module docstring. Thread-safe. Names of tables are ``schema.table``. ``caller``: the caller for whom a
    method works; methods raise what ``caller.admits`` raises, and report a table that the caller may not see as
    missing.
    """

    def __init__(self, tables: ManagedTables, environment: Environment, settings: UnitySettings) -> None:
        self.settings = settings
        self.coordinator = tables.coordinator
        self._tables = tables
        self._environment = environment
        self._names = Names(tables.coordinator, settings.catalog)
        self._schemas = Schemas(self._names, environment)
        self._warehouse = Warehouse(None if settings.warehouse is None else tables.root(settings.warehouse))
        self._managed = ManagedHeads(tables)
        self._external = ExternalTables(tables, self._names, self._warehouse, environment)
        self._external_logs = ExternalLogs(tables, environment, [settings.warehouse or "", *settings.readable])
        self._creation = Creation(tables, self._names, self._warehouse, self._managed, self._external, environment)
        self._registration = Registration(tables, self._names, self._warehouse, self._external, environment)
        self._updates = Updates(tables, self._managed, environment, settings.most_unpublished)
        self._drops = Drops(tables, self._names, self._warehouse, self._managed, environment)

    def now_ms(self) -> int:
        return self._environment.clock_ms()

    # ------------------------------------------------------------------------------------- names and schemas

    def check_catalog(self, name: str) -> None:
        """Raises CatalogNotFoundError."""
        self._names.check_catalog(name)

    def check_schema(self, name: str) -> None:
        """Raises SchemaNotFoundError. Cost: usually 1 coordinator call, at most 3."""
        self._names.check_schema(name)

    def has_schema(self, name: str) -> bool:
        """Whether a schema was created or has tables. Cost: as ``check_schema``."""
        return self._names.has_schema(name)

    def create_schema(
        self, name: str, comment: str | None, properties: Mapping[str, str], caller: Caller = ADMINISTRATOR
    ) -> SchemaDocument:
        """Raises TableExistsError. Cost: 3 coordinator calls."""
        return self._schemas.create(name, comment, properties, caller.owner)

    def kept_schema(self, name: str) -> DocumentChange:
        """See ``Schemas.kept``."""
        return self._schemas.kept(name)

    def schema(self, name: str) -> SchemaDocument:
        """A schema. Raises SchemaNotFoundError. Cost: as ``check_schema``."""
        return self._schemas.get(name)

    def update_schema(self, name: str, comment: str | None, properties: Mapping[str, str] | None) -> SchemaDocument:
        """Change what is not None. Raises SchemaNotFoundError. Cost: 2 coordinator calls."""
        return self._schemas.update(name, comment, properties)

    def delete_schema(self, name: str) -> None:
        """Raises SchemaNotFoundError; CallError if it has tables. Cost: 4 coordinator calls."""
        self._schemas.delete(name)

    def schemas_after(self, after: str, limit: int, caller: Caller = ADMINISTRATOR) -> list[SchemaDocument]:
        """At most ``limit`` schemas whose key follows ``after``, by key. Cost: that of ``Schemas.after``."""
        return self._schemas.after(after, limit, caller)

    def names_after(self, schema: str, after: str, limit: int, caller: Caller = ADMINISTRATOR) -> list[str]:
        """At most ``limit`` full names of a schema's tables after ``after``, in order. Cost: that of
        ``Schemas.names_after``."""
        return self._schemas.names_after(schema, after, limit, caller)

    def all_names_after(self, prefix: str, after: str, limit: int, caller: Caller = ADMINISTRATOR) -> list[str]:
        """At most ``limit`` full names of tables that begin with ``prefix`` and come after ``after``, in order. Raises
        and costs as ``Schemas.all_names_after``."""
        return self._schemas.all_names_after(prefix, after, limit, caller)

    # ---------------------------------------------------------------------------------------------- creation

    def stage(self, name: str, caller: Caller = ADMINISTRATOR) -> Staged:
        """Allocate the id and the location of a new managed table. Raises and costs as ``Creation.stage``."""
        return self._creation.stage(name, caller)

    def staged(self, table_id: str) -> StagingDocument:
        """A staged table from which no table has been created yet. Raises EntityNotFoundError. Cost: 1 coordinator
        call."""
        return self._creation.staged(table_id)

    def staged_location(self, table_id: str, caller: Caller = ADMINISTRATOR) -> str:
        """The location of a staged table, also after a table was created from it. Raises and costs as
        ``Creation.staged_location``."""
        return self._creation.staged_location(table_id, caller)

    def create(self, name: str, request: messages.CreateTable, caller: Caller = ADMINISTRATOR) -> View:
        """Turn a staged table into a managed table, or register an external one. Raises EntityNotFoundError, CallError,
        SchemaNotFoundError, TableExistsError. Cost: 5 coordinator calls, 1 GET and 2 HEADs."""
        self.check_schema(name.partition(".")[0])
        if request.table_type == "EXTERNAL":
            return self._external.create(name, request, caller.owner)
        return self._creation.create(name, request.location, request.comment, request, caller)

    def create_staged(
        self, name: str, location: str, comment: str | None, caller: Caller = ADMINISTRATOR
    ) -> ManagedView:
        """Like ``create``, for a client whose request does not describe version 0. Raises and costs as ``create``."""
        self.check_schema(name.partition(".")[0])
        return self._creation.create(name, location, comment, None, caller)

    def register_external(
        self,
        name: str,
        location: str,
        kind: str,
        comment: str | None,
        properties: Mapping[str, str],
        column_infos: list[dict[str, Any]],
        columns: dict[str, Any] | None,
        partition_columns: tuple[str, ...],
        caller: Caller = ADMINISTRATOR,
    ) -> ExternalView:
        """Register an external table of any format with the caller's description of it. Raises and costs as
        ``ExternalTables.add``.
        """
        return self._external.register(
            name, location, kind, comment, properties, column_infos, columns, partition_columns, caller.owner
        )

    def register_existing(
        self, name: str, location: str, take_over: bool, caller: Caller = ADMINISTRATOR
    ) -> tuple[TableRecord, Head]:
        """Add an existing table to the catalog, for a remote caller. Raises and costs as
        ``Registration.register``."""
        return self._registration.register(name, location, take_over, caller)

    def check_unmanaged(self, location: str) -> None:
        """Check that a location can be that of an external table. Raises and costs as
        ``ExternalTables.check_unmanaged``."""
        self._external.check_unmanaged(location)

    def externals_near(self, location: str) -> tuple[list[ExternalTable], bool]:
        """The external tables whose directory is or contains a location, and whether there are others below it. Raises
        CallError. Cost: 1 coordinator call per 1,000 external tables.
        """
        root = canonical_url(canonical_location(location))
        near = [each for each in self._external.all() if records.are_nested(canonical_url(each.url), root)]
        around = [each for each in near if len(canonical_url(each.url)) <= len(root)]
        return around, len(around) < len(near)

    def all_tables(self) -> Iterator[tuple[str, str]]:
        """The name and the id of every table. Cost: 1 coordinator call per 1,000."""
        for record in self._tables.all():
            yield record.name, record.table_id
        for table in self._external.all():
            yield table.name, table.table_id

    def access_keys(self) -> Iterator[str]:
        """The keys of the documents that state owners and grants. Cost: 1 coordinator call per 1,000."""
        after = ""
        while page := self.coordinator.documents(ACCESS, after):
            deadline.check(self.coordinator.url)
            yield from (each.key for each in page)
            after = page[-1].key

    # ---------------------------------------------------------------------------------------------- reading

    def opened(self, name: str, caller: Caller = ADMINISTRATOR) -> DeltaTable:
        """A table of either kind, which the server reads with its own access. Raises EntityNotFoundError, what opening
        it raises; CallError for an external table that the server may not read. Cost: 1 or 2 coordinator calls, and
        the first time that of ``DeltaTable.open``; for an external table each time, and that of
        ``credential_location``."""
        record = self._found(name, caller)
        if record is not None:
            return self._tables.table(record)
        table = self._external.get(name, caller)[0]
        self._external.checked_location(table)
        return self._external_logs.opened(table)

    def head(self, record: TableRecord) -> Head:
        """Raises EntityNotFoundError. Cost: 1 coordinator call."""
        return self._managed.head(record)

    def managed_with_id(self, table_id: str, location: str, caller: Caller = ADMINISTRATOR) -> TableRecord:
        """The managed table with an id. Raises EntityNotFoundError; CallError if it has another location. Cost: 1
        coordinator call."""
        return self._managed.managed_with_id(table_id, location, caller)

    def found(self, name: str, caller: Caller = ADMINISTRATOR) -> TableRecord | ExternalTable:
        """The record of a table in the catalog. Raises EntityNotFoundError. Cost: 1 or 2 coordinator calls."""
        return self._found(name, caller) or self._external.get(name, caller)[0]

    def managed(self, name: str, caller: Caller = ADMINISTRATOR) -> TableRecord:
        """The record of a managed table. Raises EntityNotFoundError. Cost: 1 coordinator call."""
        record = self.coordinator.table(name)
        if not caller.admits(None if record is None else record.table_id, name) or record is None:
            raise self._names.absent(name)
        return record

    def view(self, record: TableRecord) -> ManagedView:
        """A managed table at its head. Raises EntityNotFoundError. Cost: 2 coordinator calls, that of
        ``States.at_head``."""
        return self._managed.view(record)

    def load(self, name: str, caller: Caller = ADMINISTRATOR) -> View:
        """A table. Raises EntityNotFoundError, SchemaNotFoundError. Cost: 3 coordinator calls; that of
        ``States.at_head``, or that of ``load_latest`` for an external table that was registered without its
        protocol."""
        found = self.listed(name, caller)
        return ExternalView(self._external_logs.shown(found.table)) if isinstance(found, ExternalView) else found

    def listed(self, name: str, caller: Caller = ADMINISTRATOR) -> View:
        """Like ``load``, with no more of an external table than was registered: a listing is not delayed by the stores
        of its tables. Cost: as ``load``, without that of ``load_latest``."""
        deadline.check(self.coordinator.url)
        record = self._found(name, caller)
        return ExternalView(self._external.get(name, caller)[0]) if record is None else self.view(record)

    def location(self, name: str, caller: Caller = ADMINISTRATOR) -> str:
        """The root of a table. Raises EntityNotFoundError. Cost: 1 or 2 coordinator calls."""
        record = self._found(name, caller)
        return self._external.get(name, caller)[0].url if record is None else record.url

    def table_id(self, name: str, caller: Caller = ADMINISTRATOR) -> str:
        """The id of a table. Raises EntityNotFoundError. Cost: 1 or 2 coordinator calls."""
        record = self._found(name, caller)
        return self._external.get(name, caller)[0].table_id if record is None else record.table_id

    def credential_location(self, name: str, caller: Caller = ADMINISTRATOR) -> str:
        """The location for which a client of a table gets credentials. Raises EntityNotFoundError; CallError for an
        external table that was registered before managed tables were created around it or in it. Cost: 1 or 2
        coordinator calls; for an external table, also 1 per 1,000 managed tables."""
        record = self._found(name, caller)
        return self._external.checked_location(self._external.get(name, caller)[0]) if record is None else record.url

    def credential_location_with_id(self, table_id: str, caller: Caller = ADMINISTRATOR) -> str:
        """Like ``credential_location``, of the table or staged table with an id. Cost: 1 or 2 coordinator calls; for an
        external table, also 1 per 1,000 tables of each kind."""
        record = self.coordinator.table_with_id(table_id)
        if record is not None and caller.admits(table_id, record.name):
            return record.url
        found = self.coordinator.document(STAGING, table_id)
        if found is not None:
            staged = documents.decoded(found, StagingDocument)
            if caller.is_own(staged.owner):
                return staged.url
        for each in self._external.all():
            if each.table_id == table_id and caller.admits(table_id, each.name):
                return self._external.checked_location(each)
        caller.admits(None, f"missing.{table_id}")
        raise EntityNotFoundError(f"There is no table with the id {table_id}.")

    def _found(self, name: str, caller: Caller) -> TableRecord | None:
        """The managed table with this name; None if there is none that the caller may see. The caller of this method
        then looks for an external table, so that both cases make the same coordinator calls.
        """
        record = self.coordinator.table(name)
        return record if record is not None and caller.admits(record.table_id, name) else None

    # ------------------------------------------------------------------------------------- updates and drops

    def update(self, name: str, request: messages.UpdateTable, caller: Caller = ADMINISTRATOR) -> View:
        """Apply the updates of a request, if its requirements are met. Raises CallError for a request that is wrong or
        does not agree with its commit; MetadataChangedError, TableReplacedError if a requirement is not met;
        CommitConflictError; UnpublishedCommitsError; OperationTimeoutError if it is unknown whether a commit was
        ratified; EntityNotFoundError. Nothing is raised after a ratification. Cost: 4 coordinator calls, 1 HEAD and 1
        GET; 1 more call if commits were published."""
        plan = contract.plan_of(request)
        record = self._found(name, caller)
        if record is None:
            return self._external.update(name, plan, caller)
        return self.update_managed(record, plan)

    def update_managed(self, record: TableRecord, plan: Plan) -> ManagedView:
        """See ``update``."""
        return self._updates.update(record, plan)

    def publish(self, record: TableRecord) -> int:
        """Publish the commits of a table; returns their number. Cost: that of ``publish``."""
        return self._tables.publish(record)

    def rename(self, name: str, new_name: str, caller: Caller = ADMINISTRATOR) -> None:
        """Raises EntityNotFoundError, TableExistsError; CallError. Cost: 3 coordinator calls."""
        record = self._found(name, caller)
        if record is None:
            return self._external.rename(name, new_name, caller)
        return self._drops.rename(record, new_name)

    def drop(self, name: str, caller: Caller = ADMINISTRATOR) -> None:
        """Remove a table from the catalog. The files of a table that was created below the warehouse are deleted later,
        by ``delete_dropped``; those of other tables stay. Raises EntityNotFoundError, ObjectBeingDeletedError. Cost:
        that of ``publish``, 4 coordinator calls."""
        record = self._found(name, caller)
        if record is None:
            return self._external.drop(name, caller)
        return self._drops.drop(record)

    def remove(self, name: str, caller: Caller = ADMINISTRATOR) -> TableRecord:
        """Remove a managed table from the catalog, and keep its files. Returns the record that it had. Raises and costs
        as ``TransactionManager.drop_table``."""
        record = self.managed(name, caller)
        self._tables.drop_record(record)
        return record

    def release(self, name: str, caller: Caller = ADMINISTRATOR) -> TableRecord:
        """Release a managed table from the catalog. Returns the record that it had. Raises and costs as
        ``TransactionManager.release_table``."""
        record = self.managed(name, caller)
        release(self._tables, record, self._environment)
        return record
