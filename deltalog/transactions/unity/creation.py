"""Creates managed tables in two calls: a client stages a table, writes its version 0, and then creates the table."""

from __future__ import annotations

import uuid

from deltalog.catalog import records
from deltalog.catalog.records import ACCESS, EXTERNAL, Head, TableRecord, access_key
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    ConcurrentModificationError,
    CorruptTableError,
    EntityNotFoundError,
    MissingInCommitTimestampError,
    ObjectNotFoundError,
    SchemaMismatchError,
    TableExistsError,
    UnsupportedFeatureError,
)
from deltalog.protocol import features
from deltalog.protocol.codec import decode_commit
from deltalog.protocol.paths import canonical_url, commit_path
from deltalog.protocol.timestamps import required_ict
from deltalog.transactions import external_commits
from deltalog.transactions.callers import ADMINISTRATOR, Caller
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity import contract, documents
from deltalog.transactions.unity.documents import STAGING, TABLE, AccessDocument, StagingDocument, TableDocument
from deltalog.transactions.unity.external import ExternalTables
from deltalog.transactions.unity.locations import canonical_location
from deltalog.transactions.unity.managed import ManagedHeads
from deltalog.transactions.unity.names import Names
from deltalog.transactions.unity.states import StateAt
from deltalog.transactions.unity.views import ManagedView, Staged
from deltalog.transactions.unity.warehouse import Warehouse
from deltalog.unity import messages
from deltalog.unity.table_state import TableState


class Creation:
    """Stages and creates managed tables. Thread-safe."""

    def __init__(
        self,
        tables: ManagedTables,
        names: Names,
        warehouse: Warehouse,
        managed: ManagedHeads,
        external: ExternalTables,
        environment: Environment,
    ) -> None:
        self.coordinator = tables.coordinator
        self._tables = tables
        self._names = names
        self._warehouse = warehouse
        self._managed = managed
        self._external = external
        self._environment = environment

    def stage(self, name: str, caller: Caller = ADMINISTRATOR) -> Staged:
        """Allocate the id and the location of a new managed table. The name is not reserved. Raises
        SchemaNotFoundError, TableExistsError, CallError. Cost: 5 coordinator calls, and 1 per 1,000 external tables."""
        if self._warehouse.root is None:
            raise CallError("This server creates no managed tables: it was started without a warehouse.")
        self._names.check_schema(name.partition(".")[0])
        self._names.check_free(name)
        for each in self._external.all():  # a table that was registered before this location became the warehouse
            if records.are_nested(canonical_url(each.url), self._warehouse.managed_root()):
                shown = f"the external table {each.name}" if caller.sees(each.table_id, each.name) else "another table"
                raise CallError(
                    f"No managed tables can be created: {shown} is inside their location or contains it. Drop that "
                    "table first."
                )
        table_id = str(uuid.UUID(self._environment.new_uuid()))
        url = f"{self._warehouse.managed_root()}/{table_id}"
        document = StagingDocument(name=name, url=url, created_ms=self._environment.clock_ms(), owner=caller.owner)
        if not self.coordinator.change_documents([documents.change(STAGING, table_id, 0, document)]):
            raise ConcurrentModificationError("The catalog was changed at the same time. Try again.")
        return Staged(table_id, url)

    def staged(self, table_id: str) -> StagingDocument:
        """A staged table from which no table has been created yet. Raises EntityNotFoundError. Cost: 1 coordinator
        call."""
        found = self.coordinator.document(STAGING, table_id)
        if found is None:
            raise _not_staged(table_id)
        return documents.decoded(found, StagingDocument)

    def staged_location(self, table_id: str, caller: Caller = ADMINISTRATOR) -> str:
        """The location of a staged table, even after a table was created from it: its creator may still write there
        with the credentials of the staged table. Raises EntityNotFoundError, what ``caller.admits`` raises. Cost: 1 or
        2 coordinator calls.
        """
        record = self.coordinator.table_with_id(table_id)
        if record is not None and self._warehouse.owns(record.url) and caller.admits(table_id, record.name):
            return record.url
        staged = self.staged(table_id)
        if not caller.is_own(staged.owner):
            raise _not_staged(table_id)
        return staged.url

    def create(
        self,
        name: str,
        location: str,
        comment: str | None,
        request: messages.CreateTable | None,
        caller: Caller = ADMINISTRATOR,
    ) -> ManagedView:
        """Turn a staged table into a managed table. ``request``: None if the client did not describe version 0. Raises
        EntityNotFoundError, CallError, TableExistsError. Cost: 5 coordinator calls, 1 GET and 2 HEADs."""
        root = canonical_url(canonical_location(location))
        table_id = root.rpartition("/")[2]
        found = self.coordinator.document(STAGING, table_id)
        staging = None if found is None else documents.decoded(found, StagingDocument)
        if found is None or staging is None or staging.url != root or not caller.is_own(staging.owner):
            created = self._created(table_id, root, name, caller)
            if created is None:
                raise EntityNotFoundError(f"There is no staging table at {location}.")
            return self._managed.view(created)
        self._names.check_free(name)
        at = self._first_version(root, table_id, location, request)
        uniform = None if request is None else request.uniform
        iceberg = contract.check_uniform(uniform, at.state.metadata.configuration, location, 0)
        record = TableRecord(table_id, name, root, self._environment.clock_ms())
        changes = [documents.deletion(STAGING, table_id, found.revision), documents.absent(EXTERNAL, name)]
        if comment == at.state.metadata.description:
            comment = None
        document = TableDocument(comment=comment, iceberg=iceberg, updated_ms=record.created_ms)
        if comment is not None or iceberg is not None:
            changes.append(documents.change(TABLE, table_id, 0, document))
        if caller.owner is not None:
            changes.append(documents.change(ACCESS, access_key(table_id), 0, AccessDocument(owner=caller.owner)))
        if not self.coordinator.register(record, 0, changes):
            created = self._created(table_id, root, name, caller)
            if created is not None:
                return self._managed.view(created)
            self._names.check_free(name)
            raise TableExistsError(f"{location} is inside another table of the catalog, or contains one.")
        self._managed.states.keep(table_id, at, Head(0, (), 0))
        self._managed.states.keep_time(table_id, 0, at.ict_ms)
        return ManagedView(record, Head(0), at, document, 0, at.ict_ms)

    def _created(self, table_id: str, root: str, name: str, caller: Caller) -> TableRecord | None:
        """The table that an earlier attempt of this request, whose response may have been lost, created from a staged
        table; None if there is none that the caller may see. Raises CallError if it has another name.
        """
        record = self.coordinator.table_with_id(table_id)
        if record is None or record.url != root or not caller.sees(table_id, record.name):
            return None
        if record.name != name:
            raise CallError(f"The staging table {table_id} was already created as {record.name}.")
        return record

    def _first_version(self, root: str, table_id: str, location: str, request: messages.CreateTable | None) -> StateAt:
        """Read version 0 of a staged table, and check it. Raises CallError."""
        store = self._tables.plain_store(root)
        external_commits.check_no_link(store, commit_path(0))
        try:
            data = external_commits.bounded(store, commit_path(0))
        except ObjectNotFoundError:
            raise CallError(
                f"There is no {commit_path(0)} at {location}. Write it before you create the table."
            ) from None
        if store.head(commit_path(1)) is not None:
            raise CallError(
                f"{location} already has a version 1. When a table is created, it must have version 0 only."
            )
        try:
            actions = decode_commit(data, 0)
            ict_ms = required_ict(actions.commit_info, 0, location)
        except (CorruptTableError, MissingInCommitTimestampError) as error:
            raise CallError(f"Version 0 cannot be used: {error.message}") from None
        if actions.protocol is None or actions.metadata is None:
            raise CallError("Version 0 has no protocol or no metaData.")
        self.coordinator.check_time(location, ict_ms)
        state = TableState.of(actions.protocol, actions.metadata, actions.domains)
        try:
            features.check_readable(actions.protocol, location)
        except UnsupportedFeatureError as error:
            raise CallError(error.message) from None
        try:
            external_commits.check_schema(actions.metadata)
        except (CorruptTableError, SchemaMismatchError) as error:
            raise CallError(f"Version 0 cannot be used: {error.message}") from None
        contract.check_shown(state)
        contract.check_required(messages.TableProtocol.from_action(actions.protocol))
        contract.check_managed_state(state, table_id, self.coordinator.catalog_id)
        if request is not None:
            contract.check_created(request, state, ict_ms)
        return StateAt(0, state, ict_ms)


def _not_staged(table_id: str) -> EntityNotFoundError:
    return EntityNotFoundError(f"There is no staging table {table_id}.")
