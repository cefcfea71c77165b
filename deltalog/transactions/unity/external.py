"""The external tables of a catalog: documents with the location of each table and its creator's description of it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from deltalog import deadline
from deltalog.catalog import records
from deltalog.catalog.records import ACCESS, EXTERNAL, RETIRED, DocumentChange, access_key
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    ConcurrentModificationError,
    MetadataChangedError,
    TableExistsError,
    TableReplacedError,
)
from deltalog.protocol import features
from deltalog.protocol.paths import canonical_url
from deltalog.transactions.callers import ADMINISTRATOR, Caller
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity import contract, documents
from deltalog.transactions.unity.contract import Plan
from deltalog.transactions.unity.documents import RENAMED, TURN, AccessDocument, ExternalTable, checked_comment
from deltalog.transactions.unity.locations import canonical_location
from deltalog.transactions.unity.names import Names
from deltalog.transactions.unity.views import ExternalView
from deltalog.transactions.unity.warehouse import Warehouse
from deltalog.unity import messages
from deltalog.unity.columns import from_columns

_TRIES = 20
# Tables of any format that clients read without this server can be at locations with these schemes.
_EXTERNAL_SCHEMES = frozenset({"s3", "gs", "gcs", "az", "adl", "abfs", "abfss", "wasb", "wasbs", "hdfs", "r2"})


class ExternalTables:
    """Registers, changes and removes external tables. Thread-safe."""

    def __init__(self, tables: ManagedTables, names: Names, warehouse: Warehouse, environment: Environment) -> None:
        self.coordinator = tables.coordinator
        self._tables = tables
        self._names = names
        self._warehouse = warehouse
        self._environment = environment

    def create(self, name: str, request: messages.CreateTable, owner: str | None = None) -> ExternalView:
        if request.uniform is not None:
            contract.check_uniform(request.uniform, request.properties, request.location, 0)
        if features.is_catalog_managed(request.protocol.to_action()):
            raise CallError("A table with the feature catalogManaged cannot be external.")
        if request.columns is not None:
            from_columns(request.columns)
        table = self._new(
            name,
            request.location,
            comment=request.comment,
            columns=request.columns,
            partition_columns=request.partition_columns,
            protocol=request.protocol,
            properties=request.properties,
            domain_metadata=request.domain_metadata,
            iceberg=None if request.uniform is None else request.uniform.iceberg,
            last_commit_ms=request.last_commit_timestamp_ms,
        )
        return self.add(table, owner)

    def register(
        self,
        name: str,
        location: str,
        kind: str,
        comment: str | None,
        properties: Mapping[str, str],
        column_infos: list[dict[str, Any]],
        columns: dict[str, Any] | None,
        partition_columns: tuple[str, ...],
        owner: str | None = None,
    ) -> ExternalView:
        """Register an external table of any format with the caller's description of it. Raises and costs as ``add``."""
        self._names.check_schema(name.partition(".")[0])
        table = self._new(
            name,
            location,
            format=kind,
            comment=comment,
            columns=columns,
            column_infos=column_infos,
            partition_columns=partition_columns,
            properties=dict(properties),
        )
        return self.add(table, owner)

    def _new(self, name: str, location: str, **described: Any) -> ExternalTable:
        """An external table with a new id, with these fields. Raises CallError."""
        table_id = str(uuid.UUID(self._environment.new_uuid()))
        url, now_ms = canonical_location(location), self._environment.clock_ms()
        return ExternalTable(table_id=table_id, name=name, url=url, created_ms=now_ms, updated_ms=now_ms, **described)

    def add(self, table: ExternalTable, owner: str | None = None) -> ExternalView:
        """Register an external table. ``owner``: the principal who owns it; with an owner, the location must not
        overlap another table. Raises TableExistsError, CallError as ``check_unmanaged``, ConcurrentModificationError.
        Cost: that of ``check_unmanaged``, 2 coordinator calls; for a principal 1 more, and 1 per 1,000 external tables,
        again for every table that another principal registers meanwhile.
        """
        if owner is not None:
            return self._add_apart(table, owner)
        self._names.check_free(table.name)
        self.check_unmanaged(table.url)
        if not self.coordinator.change_documents([documents.change(EXTERNAL, table.name, 0, table)], [table.name]):
            raise TableExistsError(f"The catalog {self._names.catalog} already has a table {table.name}.")
        return ExternalView(table)

    def _add_apart(self, table: ExternalTable, owner: str) -> ExternalView:
        """Register an external table whose location overlaps no other table. Principals take turns, so that two of them
        do not register the same location at the same moment."""
        access = documents.change(ACCESS, access_key(table.table_id), 0, AccessDocument(owner=owner))
        root = canonical_url(table.url)
        for number in range(_TRIES):
            self._environment.back_off(number)
            turn = self._turn()
            self._names.check_free(table.name)
            self.check_unmanaged(table.url)
            if any(records.are_nested(canonical_url(each.url), root) for each in self.all()):
                raise CallError(f"{table.url} is another table, or is inside or contains one.")
            changes = [documents.change(EXTERNAL, table.name, 0, table), access, turn]
            if self.coordinator.change_documents(changes, [table.name]):
                return ExternalView(table)
        raise ConcurrentModificationError(f"Other tables were registered during every attempt to add {table.name}.")

    def _turn(self) -> DocumentChange:
        """A change that fails if a principal registers an external table after this call. Cost: 1 coordinator call."""
        found = self.coordinator.document(TURN, EXTERNAL)
        return DocumentChange(TURN, EXTERNAL, 0 if found is None else found.revision, "{}")

    def get(self, name: str, caller: Caller = ADMINISTRATOR) -> tuple[ExternalTable, int]:
        """An external table, and the revision of its document. Raises EntityNotFoundError, what ``caller.admits``
        raises."""
        found = self.coordinator.document(EXTERNAL, name)
        table = None if found is None else documents.decoded(found, ExternalTable)
        if not caller.admits(None if table is None else table.table_id, name) or table is None or found is None:
            raise self._names.absent(name)
        return table, found.revision

    def all(self) -> Iterator[ExternalTable]:
        after = ""
        while page := self.coordinator.documents(EXTERNAL, after):
            deadline.check(self.coordinator.url)
            yield from (documents.decoded(each, ExternalTable) for each in page)
            after = page[-1].key

    def update(self, name: str, plan: Plan, caller: Caller = ADMINISTRATOR) -> ExternalView:
        for _ in range(_TRIES):
            table, revision = self.get(name, caller)
            if plan.table_id != table.table_id:
                raise TableReplacedError(f"{name} has the id {table.table_id}, not {plan.table_id}.", version=-1)
            if plan.etag is not None and plan.etag != ExternalView(table).etag:
                raise MetadataChangedError(
                    f"The metadata of {name} has changed: its etag is no longer {plan.etag}. Load the table again.",
                    winning_version=table.last_commit_version,
                    winning_operation=None,
                )
            changed = msgspec.structs.replace(_changed(table, plan), updated_ms=self._environment.clock_ms())
            same = self._same(table, name)
            change = documents.change(EXTERNAL, name, revision, changed)
            if same and self.coordinator.change_documents([change, documents.absent(RETIRED, table.table_id), same]):
                return ExternalView(changed)
        raise ConcurrentModificationError(f"{name} was changed during every attempt to update it. Try again.")

    def rename(self, name: str, new_name: str, caller: Caller = ADMINISTRATOR) -> None:
        for _ in range(_TRIES):
            table, revision = self.get(name, caller)
            self._names.check_free(new_name)
            renamed = msgspec.structs.replace(table, name=new_name, updated_ms=self._environment.clock_ms())
            changes = [documents.deletion(EXTERNAL, name, revision), documents.change(EXTERNAL, new_name, 0, renamed)]
            same = self._same(table, new_name)
            changes.append(documents.absent(RETIRED, table.table_id))
            if same and self.coordinator.change_documents([*changes, same], [new_name]):
                return
        raise ConcurrentModificationError(f"{name} was changed during every attempt to rename it. Try again.")

    def drop(self, name: str, caller: Caller = ADMINISTRATOR) -> None:
        for _ in range(_TRIES):
            table, revision = self.get(name, caller)
            changes = [documents.deletion(EXTERNAL, name, revision), *self._tables.without_access(table.table_id)]
            same = self._same(table, None)
            changes.append(DocumentChange(RETIRED, table.table_id, 0, "{}"))
            if same and self.coordinator.change_documents([*changes, same]):
                return
        raise ConcurrentModificationError(f"{name} was changed during every attempt to drop it. Try again.")

    def _same(self, table: ExternalTable, name: str | None) -> DocumentChange | None:
        """A change that fails if a table no longer has the name under which it was read: another table may have taken
        this name, and then the revisions of its document began anew. Together with it, a change must check that the
        table is not retired. ``name``: the table's name afterwards, None if it is dropped. Returns None if the table
        has another name already. Cost: 1 coordinator call."""
        found = self.coordinator.document(RENAMED, table.table_id)
        before = None if found is None else msgspec.json.decode(found.content)
        if found is not None and before != table.name:
            return None
        content = None if name in (None, table.name) and found is None else name
        encoded = None if content is None else msgspec.json.encode(content).decode()
        return DocumentChange(RENAMED, table.table_id, 0 if found is None else found.revision, encoded)

    def check_unmanaged(self, location: str) -> None:
        """Check that a location can be that of an external table: it neither contains nor is inside a managed table or
        the location for managed tables. Raises CallError. Cost: that of ``ManagedTables.all``.
        """
        root = canonical_url(canonical_location(location))
        scheme, mark, _ = root.partition("://")
        if mark and scheme not in _EXTERNAL_SCHEMES:
            raise CallError(f"{location} cannot be the location of a table: {scheme}:// is not a storage service.")
        self._warehouse.check_outside(root, location)
        if records.nested_with(root, self._tables.all()) is not None:
            raise CallError(
                f"{location} is inside a managed table or the location for managed tables, or contains one."
            )

    def checked_location(self, table: ExternalTable) -> str:
        """The location of a table, for which its readers get credentials. Raises CallError if managed tables lie in it
        or around it, which other programs may have created there. Cost: that of ``check_unmanaged``."""
        self.check_unmanaged(table.url)
        return table.url


def _changed(table: ExternalTable, plan: Plan) -> ExternalTable:
    """Apply the updates of a request to an external table. Raises CallError."""
    for kind in (messages.AddCommit, messages.SetLatestBackfilledVersion):
        if plan.get(kind) is not None:
            raise CallError(f"{kind.__struct_config__.tag} is for managed tables only.")
    changes: dict[str, Any] = {}
    properties, domains = dict(table.properties), dict(table.domain_metadata)
    for update in plan.updates.values():
        match update:
            case messages.SetProperties():
                properties.update(update.updates)
            case messages.RemoveProperties():
                properties = {key: value for key, value in properties.items() if key not in update.removals}
            case messages.SetProtocol():
                if features.is_catalog_managed(update.protocol.to_action()):
                    raise CallError("A table with the feature catalogManaged cannot be external.")
                changes["protocol"] = update.protocol
            case messages.SetColumns():
                from_columns(update.columns)
                changes.update(columns=update.columns, column_infos=None)
            case messages.SetPartitionColumns():
                changes["partition_columns"] = update.partition_columns
            case messages.SetTableComment():
                changes["comment"] = checked_comment(update.comment)
            case messages.SetDomainMetadata():
                domains.update(update.updates)
            case messages.RemoveDomainMetadata():
                domains = {key: value for key, value in domains.items() if key not in update.domains}
            case messages.UpdateSnapshotVersion():
                changes["last_commit_version"] = update.last_commit_version
                changes["last_commit_ms"] = update.last_commit_timestamp_ms
    return msgspec.structs.replace(table, properties=properties, domain_metadata=domains, **changes)
