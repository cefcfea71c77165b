"""UnityTables: the tables of a catalog as a Unity Catalog shows them, and what its clients change.

A managed table is a table in a deltalog catalog; what the API shows of it is read from its log, so that it changes in
the same ratification as the log. External tables and the comments of managed ones are stored in documents of the
catalog.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#apis.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from deltalog.catalog import records
from deltalog.catalog.committer import publish
from deltalog.catalog.marks import added_paths, check_none_deletes, ratify_added
from deltalog.catalog.records import DROPPED, EXTERNAL, RETIRED, DocumentChange, Head, Ratification, TableRecord
from deltalog.commit.hooks import errors_logged
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    CatalogNotFoundError,
    CommitConflictError,
    ConcurrentModificationError,
    CorruptTableError,
    DeltaLogError,
    EntityNotFoundError,
    MetadataChangedError,
    MissingInCommitTimestampError,
    ObjectNotFoundError,
    SchemaMismatchError,
    SchemaNotFoundError,
    TableExistsError,
    TableReplacedError,
    UnpublishedCommitsError,
    UnsupportedFeatureError,
)
from deltalog.protocol import features
from deltalog.protocol.codec import decode_commit
from deltalog.protocol.paths import canonical_url, commit_path, staged_commit_path
from deltalog.protocol.timestamps import required_ict
from deltalog.storage.fs import local_root
from deltalog.storage.table_files import TableFiles
from deltalog.transactions import external_commits
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity import contract, documents
from deltalog.transactions.unity.contract import Plan
from deltalog.transactions.unity.documents import (
    SCHEMA,
    STAGING,
    TABLE,
    DroppedTable,
    ExternalTable,
    SchemaDocument,
    StagingDocument,
    TableDocument,
)
from deltalog.transactions.unity.external_logs import ExternalLogs
from deltalog.transactions.unity.states import StateAt, States
from deltalog.unity import messages
from deltalog.unity.columns import from_columns
from deltalog.unity.table_state import TableState

log = logging.getLogger(__name__)

MOST_UNPUBLISHED = 100
# Where managed tables lie below the warehouse.
_MANAGED = "__unitystorage/tables"
_TRIES = 20
_MOST_COMMENT_BYTES = 65_536
_MOST_LOCATION_BYTES = 4096
# No empty segments: services read them in different ways.
_URL = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*:/(/[^/\s\x00-\x1f\x7f\ud800-\udfff]+)+")
# Where tables of any format can lie that clients read without this server.
_EXTERNAL_SCHEMES = frozenset({"s3", "gs", "gcs", "az", "adl", "abfs", "abfss", "wasb", "wasbs", "hdfs", "r2"})
_NO_DOCUMENT = TableDocument()


@dataclass(frozen=True, slots=True)
class UnitySettings:
    """``catalog``: the name under which the catalog is served. ``warehouse``: the location below which managed tables
    are created; None: clients cannot create any. ``most_unpublished``: how many ratified commits of a table may wait
    for publication before further ones are refused. ``readable``: the locations below which, beside the warehouse, the
    logs of external tables are read: clients choose these locations, and the server reads with credentials of its
    own."""

    catalog: str = "main"
    warehouse: str | None = None
    most_unpublished: int = MOST_UNPUBLISHED
    readable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ManagedView:
    """A managed table at one instant. ``metadata_ms``: the in-commit timestamp of the last commit that changed
    metadata."""

    record: TableRecord
    head: Head
    at: StateAt
    document: TableDocument
    metadata_version: int
    metadata_ms: int

    @property
    def etag(self) -> str:
        return _etag(self.at.state, self.document)

    @property
    def updated_ms(self) -> int:
        return max(self.at.ict_ms, self.document.updated_ms)

    @property
    def comment(self) -> str | None:
        return self.at.state.metadata.description if self.document.comment is None else self.document.comment


@dataclass(frozen=True, slots=True)
class ExternalView:
    """An external table."""

    table: ExternalTable

    @property
    def etag(self) -> str:
        shown = msgspec.structs.replace(self.table, updated_ms=0, last_commit_version=None, last_commit_ms=None)
        return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:32]


View = ManagedView | ExternalView


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged table."""

    table_id: str
    url: str


@dataclass(frozen=True, slots=True)
class _Place:
    """What a commit is checked against."""

    head: Head
    at: StateAt
    document: TableDocument
    revision: int


class UnityTables:
    """See the module docstring. Thread-safe. Names of tables are ``schema.table``."""

    def __init__(self, tables: ManagedTables, environment: Environment, settings: UnitySettings) -> None:
        self.settings = settings
        self.coordinator = tables.coordinator
        self._tables = tables
        self._environment = environment
        self._states = States(tables)
        self._warehouse = None if settings.warehouse is None else tables.root(settings.warehouse)
        self._external_logs = ExternalLogs(tables, environment, [settings.warehouse or "", *settings.readable])

    def now_ms(self) -> int:
        return self._environment.clock_ms()

    # ----------------------------------------------------------------------------------------------- names

    def check_catalog(self, name: str) -> None:
        """Raises CatalogNotFoundError."""
        if name != self.settings.catalog:
            raise CatalogNotFoundError(f"There is no catalog {name}: this server has {self.settings.catalog}.")

    def check_schema(self, name: str) -> None:
        """Raises SchemaNotFoundError. Cost: usually 1 coordinator call, at most 3."""
        if not self.has_schema(name):
            raise SchemaNotFoundError(f"The catalog {self.settings.catalog} has no schema {name}.")

    def has_schema(self, name: str) -> bool:
        """Whether a schema was created or has tables. Cost: as ``check_schema``."""
        key = documents.schema_key(name)
        if self.coordinator.document(SCHEMA, key) is not None:
            return True
        return self._has_tables(key)

    def _has_tables(self, prefix: str) -> bool:
        table = next(iter(self.coordinator.tables(prefix, 1)), None)
        if table is not None and table.name.startswith(prefix):
            return True
        external = next(iter(self.coordinator.documents(EXTERNAL, prefix, 1)), None)
        return external is not None and external.key.startswith(prefix)

    def _absent(self, name: str) -> EntityNotFoundError:
        schema = name.partition(".")[0]
        if not self.has_schema(schema):
            return SchemaNotFoundError(f"The catalog {self.settings.catalog} has no schema {schema}.")
        return EntityNotFoundError(f"The catalog {self.settings.catalog} has no table {name}.")

    def _check_free(self, name: str) -> None:
        if self.coordinator.table(name) is not None or self.coordinator.document(EXTERNAL, name) is not None:
            raise TableExistsError(f"The catalog {self.settings.catalog} already has a table {name}.")

    # ---------------------------------------------------------------------------------------------- schemas

    def create_schema(self, name: str, comment: str | None, properties: Mapping[str, str]) -> SchemaDocument:
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
        change = documents.change(SCHEMA, documents.schema_key(name), 0, new)
        if self._has_tables(documents.schema_key(name)) or not self.coordinator.change_documents([change]):
            raise TableExistsError(f"The catalog {self.settings.catalog} already has a schema {name}.")
        return new

    def schema(self, name: str) -> SchemaDocument:
        """A schema. Raises SchemaNotFoundError. Cost: as ``check_schema``."""
        return self._schema(name)[0]

    def _schema(self, name: str) -> tuple[SchemaDocument, int]:
        found = self.coordinator.document(SCHEMA, documents.schema_key(name))
        if found is not None:
            return documents.decoded(found, SchemaDocument), found.revision
        self.check_schema(name)
        return self._implied(name), 0

    def _implied(self, name: str) -> SchemaDocument:
        """The document of a schema that has tables, but was not created by ``create_schema``."""
        return SchemaDocument(name=name, schema_id=self._schema_id(name), created_ms=0, updated_ms=0)

    def _schema_id(self, name: str) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.coordinator.catalog_id}/{name}"))

    def update_schema(self, name: str, comment: str | None, properties: Mapping[str, str] | None) -> SchemaDocument:
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

    def delete_schema(self, name: str) -> None:
        """Raises SchemaNotFoundError; CallError if it has tables. Cost: 4 coordinator calls."""
        _, revision = self._schema(name)
        if self._has_tables(documents.schema_key(name)):
            raise CallError(f"The schema {name} has tables: drop them first.")
        if revision:
            self._must_change(documents.deletion(SCHEMA, documents.schema_key(name), revision))

    def schemas_after(self, after: str, limit: int) -> list[SchemaDocument]:
        """At most ``limit`` schemas whose key follows ``after``, by key. Cost: 1 coordinator call for the schemas that
        were created, and 2 per schema with tables."""
        created = {
            each.key: documents.decoded(each, SchemaDocument)
            for each in self.coordinator.documents(SCHEMA, after, limit)
        }
        keys, last = set(created), after
        for _ in range(limit):
            # In the order of names, ``/`` follows ``.``: so this start comes after all tables of the last schema.
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

    def names_after(self, schema: str, after: str, limit: int) -> list[str]:
        """At most ``limit`` full names of a schema's tables after ``after``, in order. Cost: 2 coordinator calls."""
        prefix = documents.schema_key(schema)
        start = max(after, prefix)
        names = [each.name for each in self.coordinator.tables(start, limit)]
        names += [each.key for each in self.coordinator.documents(EXTERNAL, start, limit)]
        return sorted(name for name in names if name.startswith(prefix))[:limit]

    # ---------------------------------------------------------------------------------------------- staging

    def stage(self, name: str) -> Staged:
        """Allocate the id and the location of a new managed table. The name is not reserved. Raises
        SchemaNotFoundError, TableExistsError, CallError. Cost: 5 coordinator calls, and 1 per 1,000 external tables."""
        if self._warehouse is None:
            raise CallError("This server creates no managed tables: it was started without a warehouse.")
        self.check_schema(name.partition(".")[0])
        self._check_free(name)
        for each in self._externals():  # registered before this was the warehouse
            if records.are_nested(canonical_url(each.url), self._managed_root()):
                raise CallError(
                    f"No managed tables can be created: the external table {each.name} lies where they would lie, or "
                    "around it. Drop that table first."
                )
        table_id = str(uuid.UUID(self._environment.new_uuid()))
        url = f"{self._managed_root()}/{table_id}"
        document = StagingDocument(name=name, url=url, created_ms=self._environment.clock_ms())
        self._must_change(documents.change(STAGING, table_id, 0, document))
        return Staged(table_id, url)

    def staged(self, table_id: str) -> StagingDocument:
        """A staged table from which no table has been created yet. Raises EntityNotFoundError. Cost: 1 coordinator
        call."""
        found = self.coordinator.document(STAGING, table_id)
        if found is None:
            raise EntityNotFoundError(f"There is no staging table {table_id}.")
        return documents.decoded(found, StagingDocument)

    def staged_location(self, table_id: str) -> str:
        """The location of a staged table, also after a table was created from it: its creator may still write there
        with the credentials of the staged table. Raises EntityNotFoundError. Cost: 1 or 2 coordinator calls."""
        record = self.coordinator.table_with_id(table_id)
        if record is not None and self._is_owned(record.url):
            return record.url
        return self.staged(table_id).url

    def create(self, name: str, request: messages.CreateTable) -> View:
        """Turn a staged table into a managed table, or register an external one. Raises EntityNotFoundError, CallError,
        SchemaNotFoundError, TableExistsError. Cost: 5 coordinator calls, 1 GET and 2 HEADs."""
        self.check_schema(name.partition(".")[0])
        if request.table_type == "EXTERNAL":
            return self._create_external(name, request)
        return self._create_staged(name, request.location, request.comment, request)

    def create_staged(self, name: str, location: str, comment: str | None) -> ManagedView:
        """Like ``create``, for a client whose request does not describe version 0. Raises and costs as ``create``."""
        self.check_schema(name.partition(".")[0])
        return self._create_staged(name, location, comment, None)

    def _create_staged(
        self, name: str, location: str, comment: str | None, request: messages.CreateTable | None
    ) -> ManagedView:
        root = canonical_url(canonical_location(location))
        table_id = root.rpartition("/")[2]
        found = self.coordinator.document(STAGING, table_id)
        staging = None if found is None else documents.decoded(found, StagingDocument)
        if found is None or staging is None or staging.url != root:
            created = self._created(table_id, root, name)
            if created is None:
                raise EntityNotFoundError(f"There is no staging table at {location}.")
            return self.view(created)
        self._check_free(name)
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
        if not self.coordinator.register(record, 0, changes):
            created = self._created(table_id, root, name)
            if created is not None:
                return self.view(created)
            self._check_free(name)
            raise TableExistsError(f"{location} lies in another table of the catalog, or around one.")
        self._states.keep(table_id, at, Head(0, (), 0))
        self._states.keep_time(table_id, 0, at.ict_ms)
        return ManagedView(record, Head(0), at, document, 0, at.ict_ms)

    def _created(self, table_id: str, root: str, name: str) -> TableRecord | None:
        """The table that an earlier copy of this request, whose answer may have been lost, created from a staged table;
        None if there is none. Raises CallError if it has another name."""
        record = self.coordinator.table_with_id(table_id)
        if record is None or record.url != root:
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
            raise CallError(f"There is no {commit_path(0)} at {location}. Write it, then create.") from None
        if store.head(commit_path(1)) is not None:
            raise CallError(f"{location} already has a version 1. A table is created with version 0 only.")
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

    # ---------------------------------------------------------------------------------------------- reading

    def record(self, name: str) -> TableRecord:
        """The record of a managed table. Raises EntityNotFoundError. Cost: 1 coordinator call."""
        record = self.coordinator.table(name)
        if record is None:
            raise self._absent(name)
        return record

    def exists(self, name: str) -> bool:
        """Cost: 1 or 2 coordinator calls."""
        return self.coordinator.table(name) is not None or self.coordinator.document(EXTERNAL, name) is not None

    def load(self, name: str) -> View:
        """A table. Raises EntityNotFoundError, SchemaNotFoundError. Cost: 3 coordinator calls; that of
        ``States.at_head``, or that of ``load_latest`` for an external table that was registered without its
        protocol."""
        found = self.listed(name)
        return ExternalView(self._external_logs.shown(found.table)) if isinstance(found, ExternalView) else found

    def listed(self, name: str) -> View:
        """Like ``load``, with no more of an external table than was registered: a listing is not delayed by the stores
        of its tables. Cost: as ``load``, without that of ``load_latest``."""
        record = self.coordinator.table(name)
        return ExternalView(self.external(name)[0]) if record is None else self.view(record)

    def view(self, record: TableRecord) -> ManagedView:
        """A managed table at its head. Raises EntityNotFoundError. Cost: 2 coordinator calls, that of
        ``States.at_head``."""
        place = self._place(record)
        return self._view(record, place.head, place.at, place.document)

    def _view(self, record: TableRecord, head: Head, at: StateAt, document: TableDocument) -> ManagedView:
        version = head.metadata_version or 0
        time_ms = head.metadata_ms
        if time_ms is None and version == at.version:
            time_ms = at.ict_ms
        if time_ms is None:
            with errors_logged(f"{record.name} is loaded", f"reading the time of version {version}"):
                time_ms = self._states.time_ms(record, version)
        return ManagedView(record, head, at, document, version, record.created_ms if time_ms is None else time_ms)

    def _place(self, record: TableRecord) -> _Place:
        document, revision = self._document(record.table_id)
        head, at = self._states.at_head(record)
        return _Place(head, at, document, revision)

    def _document(self, table_id: str) -> tuple[TableDocument, int]:
        found = self.coordinator.document(TABLE, table_id)
        return (_NO_DOCUMENT, 0) if found is None else (documents.decoded(found, TableDocument), found.revision)

    def location(self, name: str) -> str:
        """The root of a table. Raises EntityNotFoundError. Cost: 1 or 2 coordinator calls."""
        record = self.coordinator.table(name)
        return self.external(name)[0].url if record is None else record.url

    def head(self, record: TableRecord) -> Head:
        """Raises EntityNotFoundError. Cost: 1 coordinator call."""
        head = self.coordinator.head(record.table_id)
        if head is None:
            raise EntityNotFoundError(f"{record.name} was dropped from the catalog.")
        return head

    def managed_with_id(self, table_id: str, location: str) -> TableRecord:
        """The managed table with an id. Raises EntityNotFoundError; CallError if it has another location. Cost: 1
        coordinator call."""
        record = self.coordinator.table_with_id(table_id)
        if record is None:
            raise EntityNotFoundError(f"There is no managed table with the id {table_id}.")
        if canonical_url(canonical_location(location)) != record.url:
            raise CallError(f"The table {table_id} does not lie at {location}.")
        return record

    def credential_location(self, name: str) -> str:
        """The location for which a client of a table gets credentials. Raises EntityNotFoundError; CallError for an
        external table that was registered before managed tables were created around it or in it. Cost: 1 or 2
        coordinator calls."""
        record = self.coordinator.table(name)
        return self._outside(self.external(name)[0]) if record is None else record.url

    def _outside(self, table: ExternalTable) -> str:
        self._check_outside(table.url, table.url)
        return table.url

    def credential_location_with_id(self, table_id: str) -> str:
        """Like ``credential_location``, of the table or staged table with an id. Cost: 1 or 2 coordinator calls; for an
        external table, 1 per 1,000 of these."""
        record = self.coordinator.table_with_id(table_id)
        if record is not None:
            return record.url
        staged = self.coordinator.document(STAGING, table_id)
        if staged is not None:
            return documents.decoded(staged, StagingDocument).url
        for each in self._externals():
            if each.table_id == table_id:
                return self._outside(each)
        raise EntityNotFoundError(f"There is no table with the id {table_id}.")

    def _externals(self) -> Iterator[ExternalTable]:
        after = ""
        while page := self.coordinator.documents(EXTERNAL, after):
            yield from (documents.decoded(each, ExternalTable) for each in page)
            after = page[-1].key

    def table_id(self, name: str) -> str:
        """The id of a table. Raises EntityNotFoundError. Cost: 1 or 2 coordinator calls."""
        record = self.coordinator.table(name)
        return self.external(name)[0].table_id if record is None else record.table_id

    def check_unmanaged(self, location: str) -> None:
        """Check that a location can be that of an external table: it neither contains nor lies in a managed table or
        the place of such tables. Raises CallError. Cost: that of ``ManagedTables.all``."""
        root = canonical_url(canonical_location(location))
        scheme, mark, _ = root.partition("://")
        if mark and scheme not in _EXTERNAL_SCHEMES:
            raise CallError(f"{location} cannot be the location of a table: {scheme}:// is not a storage service.")
        self._check_outside(root, location)
        if records.nested_with(root, self._tables.all()) is not None:
            raise CallError(f"{location} lies where managed tables are, or around one.")

    def _check_outside(self, url: str, shown: str) -> None:
        """Check that an external location and the place of managed tables are not nested. Raises CallError. Cost:
        none."""
        if self._warehouse is not None and records.are_nested(canonical_url(url), self._managed_root()):
            raise CallError(f"{shown} lies where managed tables are, or around one.")

    # --------------------------------------------------------------------------------------------- updating

    def update(self, name: str, request: messages.UpdateTable) -> View:
        """Apply the updates of a request, if its requirements are met. Raises CallError for a request that is wrong or
        does not agree with its commit; MetadataChangedError, TableReplacedError if a requirement is not met;
        CommitConflictError; UnpublishedCommitsError; OperationTimeoutError if it is unknown whether a commit was
        ratified; EntityNotFoundError. Nothing is raised after a ratification. Cost: 4 coordinator calls, 1 HEAD and 1
        GET; 1 more call if commits were published."""
        plan = contract.plan_of(request)
        record = self.coordinator.table(name)
        if record is None:
            return self._update_external(name, plan)
        return self.update_managed(record, plan)

    def update_managed(self, record: TableRecord, plan: Plan) -> ManagedView:
        """See ``update``."""
        if plan.table_id != record.table_id:
            raise TableReplacedError(f"{record.name} has the id {record.table_id}, not {plan.table_id}.", version=-1)
        if plan.get(messages.UpdateSnapshotVersion) is not None:
            raise CallError("update-metadata-snapshot-version is for external tables only.")
        for _ in range(_TRIES):
            place = self._place(record)
            added = plan.get(messages.AddCommit)
            if added is not None and self._is_replay(record, place.head, added.commit):
                return self._view(record, place.head, place.at, place.document)
            self._check_etag(record, plan, place)
            found = (
                self._without_commit(record, plan, place) if added is None else self._with(record, plan, place, added)
            )
            if found is not None:
                return found
        raise ConcurrentModificationError(f"{record.name} was changed during every attempt to update it. Try again.")

    def _check_etag(self, record: TableRecord, plan: Plan, place: _Place) -> None:
        if plan.etag is not None and plan.etag != _etag(place.at.state, place.document):
            raise MetadataChangedError(
                f"The metadata of {record.name} has changed: its etag is no longer {plan.etag}. Load the table again.",
                winning_version=place.head.metadata_version,
                winning_operation=None,
            )

    def _is_replay(self, record: TableRecord, head: Head, commit: messages.Commit) -> bool:
        """Whether this commit was ratified before. Raises CommitConflictError if another commit has its version,
        CallError if it would leave a gap."""
        external_commits.check_file_name(commit.version, commit.file_name)
        if commit.version > head.version + 1:
            raise CallError(f"{record.name} is at version {head.version}: the next version is {head.version + 1}.")
        if commit.version == head.version + 1:
            return False
        ratified = head.commit(commit.version)
        is_same = self._is_published(record, commit) if ratified is None else ratified.file == commit.file_name
        if not is_same:
            raise CommitConflictError(
                f"{record.name}: version {commit.version} is another commit; the latest is {head.version}.",
                winning_version=commit.version,
                winning_operation=None,
            )
        return True

    def _is_published(self, record: TableRecord, commit: messages.Commit) -> bool:
        """Whether a staged file still exists, and its content is that of the published commit of its version. Cost: 2
        GETs."""
        store = self._tables.plain_store(record.url)
        try:
            staged = store.get(staged_commit_path(commit.file_name))
            return staged == store.get(commit_path(commit.version))
        except ObjectNotFoundError:
            return False

    def _with(self, record: TableRecord, plan: Plan, place: _Place, added: messages.AddCommit) -> ManagedView | None:
        """Ratify a commit; None if something was changed concurrently."""
        published = plan.get(messages.SetLatestBackfilledVersion)
        head = place.head
        if published is not None:
            head = self._confirm(record, head, published.latest_published_version)
        if len(head.unpublished) >= self.settings.most_unpublished:
            head = self._relieved(record, head)
        given = added.commit
        if not features.is_catalog_managed(place.at.state.protocol):
            raise CallError(f"{record.name} was released from the catalog: it accepts no commit.")
        commit, actions = external_commits.staged_commit(
            self._tables, record, given.version, given.file_name, place.at.ict_ms, given.file_size
        )
        if (given.timestamp, given.file_size) != (commit.in_commit_timestamp_ms, commit.size_bytes):
            raise CallError(
                f"{given.file_name} has the in-commit timestamp {commit.in_commit_timestamp_ms} and "
                f"{commit.size_bytes} bytes, but the request says {given.timestamp} and {given.file_size}."
            )
        commit = replace(commit, modified_ms=given.file_modification_timestamp)
        at = place.at.after(actions, commit.in_commit_timestamp_ms)
        contract.check_shown(at.state)  # because the answer to a commit that was ratified shows it
        contract.check_agrees(plan, at.state)
        contract.check_managed_state(at.state, record.table_id, self.coordinator.catalog_id)
        if actions.protocol is not None:
            features.check_readable(actions.protocol, record.name)
        document = self._document_with(record, plan, place, at, added)
        changes: tuple[DocumentChange, ...] = ()
        if document != place.document or (plan.etag is not None and place.revision):
            changes = (documents.change(TABLE, record.table_id, place.revision, document),)
        elif plan.etag is not None:
            # The etag was computed without a document, so the document must still be absent at the ratification.
            changes = (documents.absent(TABLE, record.table_id),)
        store, view = self._tables.plain_store(record.url), self._view(record, head, place.at, place.document)
        shown = view.metadata_version, view.metadata_ms
        decision = ratify_added(
            self._tables.marks(record.table_id), self.coordinator, record.table_id, commit, store,
            lambda: added_paths(TableFiles(store), actions.adds), changes,
        )  # fmt: skip
        if decision is not Ratification.RATIFIED:
            return None
        # The commit is ratified, so nothing may fail from here on; therefore nothing is read.
        self._states.keep(record.table_id, at, Head(commit.version, (), *records.metadata_mark(head, [commit])))
        marks = records.metadata_mark(replace(head, metadata_version=shown[0], metadata_ms=shown[1]), [commit])
        return self._view(record, Head(commit.version, (*head.unpublished, commit), *marks), at, document)

    def _document_with(
        self, record: TableRecord, plan: Plan, place: _Place, at: StateAt, added: messages.AddCommit
    ) -> TableDocument:
        """What only the catalog knows of a table after a commit."""
        document, now_ms = place.document, self._environment.clock_ms()
        before, description = place.at.state.metadata.description, at.state.metadata.description
        comment, given = document.comment, plan.get(messages.SetTableComment)
        if description != before:
            comment = None  # the log's description is the later one
        if given is not None:
            comment = None if (given.comment or "") == (description or "") else _comment(given.comment)
        removed = plan.get(messages.RemoveProperties)
        gone = {*(removed.removals if removed else ()), *at.state.metadata.configuration}
        properties = {key: value for key, value in document.properties.items() if key not in gone}
        iceberg = contract.check_uniform(
            added.uniform, at.state.metadata.configuration, location_of(record.url), added.commit.version
        )
        base = None if iceberg is None else iceberg.base_converted_delta_version
        stored = None if document.iceberg is None else document.iceberg.converted_delta_version
        if base is not None and base != stored:
            raise MetadataChangedError(
                f"{record.name}: base-converted-delta-version is {base}, but the table was converted up to {stored}.",
                winning_version=stored,
                winning_operation=None,
            )
        new = TableDocument(comment=comment, properties=properties, iceberg=iceberg, updated_ms=document.updated_ms)
        return new if new == document else msgspec.structs.replace(new, updated_ms=now_ms)

    def _without_commit(self, record: TableRecord, plan: Plan, place: _Place) -> ManagedView | None:
        """Apply a request without a commit; None if something was changed concurrently."""
        contract.check_only_of_catalog(plan, place.at.state)
        head, document, published = place.head, place.document, plan.get(messages.SetLatestBackfilledVersion)
        if published is not None:  # first, because this can fail
            head = self._confirm(record, head, published.latest_published_version)
        if plan.changes_metadata:
            document = self._edited(place.at.state, plan, document)
            if document != place.document:
                change = documents.change(TABLE, record.table_id, place.revision, document)
                if not self.coordinator.change_documents([change]):
                    return None
        return self._view(record, head, place.at, document)

    def _edited(self, state: TableState, plan: Plan, document: TableDocument) -> TableDocument:
        comment, properties = document.comment, dict(document.properties)
        if (given := plan.get(messages.SetTableComment)) is not None:
            comment = None if (given.comment or "") == (state.metadata.description or "") else _comment(given.comment)
        if (set_ := plan.get(messages.SetProperties)) is not None:
            properties.update(set_.updates)
        if (removed := plan.get(messages.RemoveProperties)) is not None:
            properties = {key: value for key, value in properties.items() if key not in removed.removals}
        changed = msgspec.structs.replace(document, comment=comment, properties=properties)
        if changed == document:
            return document
        return msgspec.structs.replace(changed, updated_ms=self._environment.clock_ms())

    def _confirm(self, record: TableRecord, head: Head, version: int) -> Head:
        """Record that the commits up to ``version`` are published, after publishing those that are not. Raises
        CallError. Cost: none if the catalog knows it, else that of ``publish``."""
        if version > head.version:
            raise CallError(f"Version {version} of {record.name} cannot be published: the latest is {head.version}.")
        covered = tuple(commit for commit in head.unpublished if commit.version <= version)
        if covered:
            store = self._tables.plain_store(record.url)
            try:
                publish(store, self.coordinator, record.table_id, Head(covered[-1].version, covered))
                self._tables.record_late(record.table_id, covered)
            except (CorruptTableError, ObjectNotFoundError) as error:
                raise CallError(error.message) from None
        return replace(head, unpublished=head.unpublished[len(covered) :])

    def _relieved(self, record: TableRecord, head: Head) -> Head:
        """Publish all commits of a table, because its clients have not published them. Raises UnpublishedCommitsError
        if that fails."""
        try:
            return self._confirm(record, head, head.version)
        except DeltaLogError as error:
            raise UnpublishedCommitsError(
                f"{record.name} has {len(head.unpublished)} ratified commits that are not published, and the server "
                f"cannot publish them ({error.message}). Publish them in order, report it with "
                "set-latest-backfilled-version, and commit again."
            ) from error

    def publish(self, record: TableRecord) -> int:
        """Publish the commits of a table; returns their number. Cost: that of ``publish``."""
        return self._tables.publish(record)

    # ------------------------------------------------------------------------------------- names and dropping

    def rename(self, name: str, new_name: str) -> None:
        """Raises EntityNotFoundError, TableExistsError; CallError. Cost: 3 coordinator calls."""
        record = self.coordinator.table(name)
        if record is None:
            return self._rename_external(name, new_name)
        self._check_free(new_name)
        if not self.coordinator.rename(record.table_id, new_name, [documents.absent(EXTERNAL, new_name)]):
            self._check_free(new_name)
            raise self._absent(name)

    def drop(self, name: str) -> None:
        """Remove a table from the catalog. The files of a table that was created below the warehouse are deleted later,
        by ``delete_dropped``; those of other tables stay. Raises EntityNotFoundError, ObjectBeingDeletedError. Cost:
        that of ``publish``, 4 coordinator calls."""
        record = self.coordinator.table(name)
        if record is None:
            return self._drop_external(name)
        for number in range(_TRIES):
            self._environment.back_off(number)
            head = self.coordinator.head(record.table_id)
            if head is None:
                raise self._absent(name)
            last = check_none_deletes(self.coordinator, record, self._environment.clock_ms())
            try:
                publish(self._tables.plain_store(record.url), self.coordinator, record.table_id, head)
            except (CorruptTableError, ObjectNotFoundError) as error:
                if not self._is_owned(record.url):
                    raise
                log.warning("%s is dropped, although its log has errors: %s", record.name, error)
                self.coordinator.published(record.table_id, head.version)
            if self.coordinator.drop(record.table_id, head.version, last, self._on_drop(record)):
                self._tables.forget(record.table_id)
                return
        raise ConcurrentModificationError(
            f"{record.name} received a commit during every attempt to drop it. It is still there: try again."
        )

    def _on_drop(self, record: TableRecord) -> list[DocumentChange]:
        changes = []
        _, revision = self._document(record.table_id)
        if revision:
            changes.append(documents.deletion(TABLE, record.table_id, revision))
        if self._is_owned(record.url):
            dropped = DroppedTable(name=record.name, url=record.url, dropped_ms=self._environment.clock_ms())
            changes.append(documents.change(DROPPED, record.table_id, 0, dropped))
        else:
            changes.append(DocumentChange(RETIRED, record.table_id, 0, "{}"))
        return changes

    def _is_owned(self, url: str) -> bool:
        """Whether the catalog owns the files at a location: it lies where this server creates managed tables."""
        if self._warehouse is None:
            return False
        base = f"{self._managed_root()}/"
        return url.startswith(base) and "/" not in url[len(base) :]

    # -------------------------------------------------------------------------------------------- external

    def _create_external(self, name: str, request: messages.CreateTable) -> ExternalView:
        if request.uniform is not None:
            contract.check_uniform(request.uniform, request.properties, request.location, 0)
        if features.is_catalog_managed(request.protocol.to_action()):
            raise CallError("A table with the feature catalogManaged cannot be external.")
        if request.columns is not None:
            from_columns(request.columns)
        now_ms = self._environment.clock_ms()
        table = ExternalTable(
            table_id=str(uuid.UUID(self._environment.new_uuid())),
            name=name,
            url=canonical_location(request.location),
            comment=request.comment,
            columns=request.columns,
            partition_columns=request.partition_columns,
            protocol=request.protocol,
            properties=request.properties,
            domain_metadata=request.domain_metadata,
            iceberg=None if request.uniform is None else request.uniform.iceberg,
            last_commit_version=None,
            last_commit_ms=request.last_commit_timestamp_ms,
            created_ms=now_ms,
            updated_ms=now_ms,
        )
        return self.add_external(table)

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
    ) -> ExternalView:
        """Register an external table of any format, as the caller describes it. Raises and costs as
        ``add_external``."""
        self.check_schema(name.partition(".")[0])
        now_ms = self._environment.clock_ms()
        return self.add_external(
            ExternalTable(
                table_id=str(uuid.UUID(self._environment.new_uuid())),
                name=name,
                url=canonical_location(location),
                format=kind,
                comment=comment,
                columns=columns,
                column_infos=column_infos,
                partition_columns=partition_columns,
                properties=dict(properties),
                created_ms=now_ms,
                updated_ms=now_ms,
            )
        )

    def add_external(self, table: ExternalTable) -> ExternalView:
        """Register an external table. Raises TableExistsError, CallError as ``check_unmanaged``. Cost: that of
        ``check_unmanaged``, 2 coordinator calls."""
        self._check_free(table.name)
        self.check_unmanaged(table.url)
        if not self.coordinator.change_documents([documents.change(EXTERNAL, table.name, 0, table)], [table.name]):
            raise TableExistsError(f"The catalog {self.settings.catalog} already has a table {table.name}.")
        return ExternalView(table)

    def external(self, name: str) -> tuple[ExternalTable, int]:
        """An external table, and the revision of its document. Raises EntityNotFoundError."""
        found = self.coordinator.document(EXTERNAL, name)
        if found is None:
            raise self._absent(name)
        return documents.decoded(found, ExternalTable), found.revision

    def _update_external(self, name: str, plan: Plan) -> ExternalView:
        for _ in range(_TRIES):
            table, revision = self.external(name)
            if plan.table_id != table.table_id:
                raise TableReplacedError(f"{name} has the id {table.table_id}, not {plan.table_id}.", version=-1)
            if plan.etag is not None and plan.etag != ExternalView(table).etag:
                raise MetadataChangedError(
                    f"The metadata of {name} has changed: its etag is no longer {plan.etag}. Load the table again.",
                    winning_version=table.last_commit_version,
                    winning_operation=None,
                )
            changed = msgspec.structs.replace(_changed(table, plan), updated_ms=self._environment.clock_ms())
            if self.coordinator.change_documents([documents.change(EXTERNAL, name, revision, changed)]):
                return ExternalView(changed)
        raise ConcurrentModificationError(f"{name} was changed during every attempt to update it. Try again.")

    def _rename_external(self, name: str, new_name: str) -> None:
        for _ in range(_TRIES):
            table, revision = self.external(name)
            self._check_free(new_name)
            renamed = msgspec.structs.replace(table, name=new_name, updated_ms=self._environment.clock_ms())
            changes = [documents.deletion(EXTERNAL, name, revision), documents.change(EXTERNAL, new_name, 0, renamed)]
            if self.coordinator.change_documents(changes, [new_name]):
                return
        raise ConcurrentModificationError(f"{name} was changed during every attempt to rename it. Try again.")

    def _drop_external(self, name: str) -> None:
        for _ in range(_TRIES):
            _, revision = self.external(name)
            if self.coordinator.change_documents([documents.deletion(EXTERNAL, name, revision)]):
                return
        raise ConcurrentModificationError(f"{name} was changed during every attempt to drop it. Try again.")

    # ----------------------------------------------------------------------------------------------- parts

    def _managed_root(self) -> str:
        assert self._warehouse is not None
        return f"{self._warehouse.rstrip('/')}/{_MANAGED}"

    def _must_change(self, *changes: DocumentChange) -> None:
        if not self.coordinator.change_documents(changes):
            raise ConcurrentModificationError("The catalog was changed at the same time. Try again.")


def location_of(url: str) -> str:
    """The root of a table as a URL. Only characters that would make it another URL are encoded, because Hadoop does not
    decode others, such as blanks."""
    if not url.startswith("/"):
        return url
    return f"file://{url.replace('%', '%25').replace('?', '%3F').replace('#', '%23')}"


def canonical_location(location: str) -> str:
    """The root that a client names, in its canonical form; no store is opened. Raises CallError."""
    url = location.rstrip("/")
    is_local = location.startswith(("/", "file:/"))
    root = local_root(location) if is_local and "\0" not in location else None
    if is_local and root is not None:
        url = os.path.realpath(root)
    elif not _URL.fullmatch(url) or {".", ".."}.intersection(urllib.parse.unquote(url).split("/")):
        raise CallError("A location must be an absolute path or a URL such as s3://bucket/path.")
    if len(url.encode("utf-8", "surrogatepass")) > _MOST_LOCATION_BYTES:
        raise CallError(f"A location must have at most {_MOST_LOCATION_BYTES} bytes.")
    return f"s3://{url.removeprefix('s3a://')}" if url.startswith("s3a://") else url


def _etag(state: TableState, document: TableDocument) -> str:
    return state.etag(document.comment, sorted(document.properties.items()))


def _comment(given: str | None) -> str:
    text = given or ""
    if len(text.encode("utf-8", "surrogatepass")) > _MOST_COMMENT_BYTES:
        raise CallError(f"The comment must have at most {_MOST_COMMENT_BYTES} bytes.")
    return text


def _changed(table: ExternalTable, plan: Plan) -> ExternalTable:
    """An external table after the updates of a request. Raises CallError."""
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
                changes["comment"] = _comment(update.comment)
            case messages.SetDomainMetadata():
                domains.update(update.updates)
            case messages.RemoveDomainMetadata():
                domains = {key: value for key, value in domains.items() if key not in update.domains}
            case messages.UpdateSnapshotVersion():
                changes["last_commit_version"] = update.last_commit_version
                changes["last_commit_ms"] = update.last_commit_timestamp_ms
    return msgspec.structs.replace(table, properties=properties, domain_metadata=domains, **changes)
