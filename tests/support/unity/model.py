"""A server of the UC Delta API in memory, written from the specification alone: it stages, creates, loads and updates
tables, and never reads a log, as the specification allows.

It is the server of the client's simulation and fault tests, in which every step must be under the test's control. It
records what clients did although they must not (``violations``): reported a publication before the file existed,
changed metadata without a commit.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deltalog.unity import messages
from deltalog.unity.table_state import is_derived

_FILE = re.compile(r"([0-9]{20})\.[0-9A-Za-z-]+\.json")
REQUIRED = messages.TableProtocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("catalogManaged", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"),
    writer_features=("catalogManaged", "deletionVectors", "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck"),
)


class Refused(Exception):
    """An error response."""

    def __init__(self, status: int, error_type: str, message: str = "") -> None:
        super().__init__(f"{status} {error_type} {message}")
        self.status, self.error_type, self.message = status, error_type, message


@dataclass
class ModelTable:
    """A table as the server knows it: ``commits`` are the unpublished ones, in ascending order."""

    name: str
    uuid: str
    location: str
    table_type: str
    columns: dict[str, Any]
    partition_columns: tuple[str, ...]
    properties: dict[str, str]
    protocol: messages.TableProtocol
    domains: dict[str, dict[str, Any]]
    comment: str
    last_metadata: tuple[int, int]
    latest: int = 0
    last_timestamp: int = 0
    backfilled: int = 0
    commits: list[messages.Commit] = field(default_factory=list)
    etag: int = 0
    accepted: dict[int, str] = field(default_factory=dict)


class Model:
    """See the module docstring. ``root``: the URL below which staged tables lie. ``is_published``: whether a version of
    the table at a location is in its log; ``most_unpublished``: the limit of unpublished commits."""

    def __init__(
        self,
        root: str,
        is_published: Callable[[str, int], bool] = lambda location, version: True,
        most_unpublished: int = 1000,
        new_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.root = root
        self.is_published = is_published
        self.most_unpublished = most_unpublished
        self.new_uuid = new_uuid
        self.schemas = {("main", "s")}
        self.staged: dict[str, tuple[str, str]] = {}
        self.tables: dict[tuple[str, str, str], ModelTable] = {}
        self.violations: list[str] = []
        self.credentials: Callable[[str, str], tuple[messages.StorageCredential, ...]] = lambda location, operation: ()
        self.required_properties: dict[str, str | None] = {
            "delta.enableInCommitTimestamps": "true",
            "delta.enableDeletionVectors": "true",
            "delta.checkpointPolicy": "v2",
        }
        self.lock = threading.RLock()

    def config(self, catalog: str) -> messages.Config:
        if catalog not in {name for name, _ in self.schemas}:
            raise Refused(404, "NoSuchCatalogException")
        return messages.Config(
            endpoints=("GET /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}",), protocol_version="1.0"
        )

    def create_staging_table(self, catalog: str, schema: str, name: str) -> messages.StagingTable:
        self._check_schema(catalog, schema)
        if (catalog, schema, name) in self.tables:
            raise Refused(409, "AlreadyExistsException", name)
        table_id = self.new_uuid()
        location = f"{self.root}/__unitystorage/tables/{table_id}"
        self.staged[location] = (table_id, name)
        return messages.StagingTable(
            table_id=table_id,
            location=location,
            storage_credentials=self.credentials(location, "READ_WRITE"),
            required_protocol=REQUIRED,
            required_properties={**self.required_properties, "io.unitycatalog.tableId": table_id},
        )

    def create_table(self, catalog: str, schema: str, request: messages.CreateTable) -> messages.LoadedTable:
        self._check_schema(catalog, schema)
        key = (catalog, schema, request.name)
        if key in self.tables:
            raise Refused(409, "AlreadyExistsException", request.name)
        if request.table_type == "MANAGED":
            if request.location not in self.staged:
                raise Refused(400, "InvalidParameterValueException", "finalized, or not staged")
            table_id, _ = self.staged[request.location]
            self._check_managed(request.protocol, request.properties, table_id)
            del self.staged[request.location]
        else:
            table_id = self.new_uuid()
        self.tables[key] = ModelTable(
            request.name,
            table_id,
            request.location,
            request.table_type,
            request.columns or {"type": "struct", "fields": []},
            request.partition_columns,
            dict(request.properties),
            request.protocol,
            dict(request.domain_metadata),
            request.comment or "",
            (0, request.last_commit_timestamp_ms),
            last_timestamp=request.last_commit_timestamp_ms,
        )
        return self.load(*key)

    def _check_managed(self, protocol: messages.TableProtocol, properties: dict[str, str], table_id: str) -> None:
        wanted = {"io.unitycatalog.tableId": table_id}
        wanted.update({key: value for key, value in self.required_properties.items() if value is not None})
        missing = [key for key, value in wanted.items() if properties.get(key) != value]
        missing += [key for key, value in self.required_properties.items() if value is None and key not in properties]
        missing += set(REQUIRED.writer_features or ()) - set(protocol.writer_features or ())
        missing += set(REQUIRED.reader_features or ()) - set(protocol.reader_features or ())
        derived = [key for key in properties if is_derived(key)]
        if missing or derived:
            raise Refused(400, "InvalidParameterValueException", f"missing {missing}, derived {derived}")

    def load(self, catalog: str, schema: str, name: str) -> messages.LoadedTable:
        table = self._table(catalog, schema, name)
        features = (*(table.protocol.reader_features or ()), *(table.protocol.writer_features or ()))
        properties = {
            **table.properties,
            "delta.minReaderVersion": str(table.protocol.min_reader_version),
            "delta.minWriterVersion": str(table.protocol.min_writer_version),
            **{f"delta.feature.{feature}": "supported" for feature in features},
            "delta.lastUpdateVersion": str(table.last_metadata[0]),
            "delta.lastCommitTimestamp": str(table.last_metadata[1]),
        }
        managed = table.table_type == "MANAGED"
        return messages.LoadedTable(
            metadata=messages.TableMetadata(
                etag=f"e{table.etag}",
                table_type="MANAGED" if managed else "EXTERNAL",
                table_uuid=table.uuid,
                location=table.location,
                created_time=0,
                updated_time=0,
                columns=table.columns,
                partition_columns=table.partition_columns,
                properties=properties,
                last_commit_version=table.last_metadata[0],
                last_commit_timestamp_ms=table.last_metadata[1],
            ),
            commits=tuple(reversed(table.commits)) if managed else None,
            latest_table_version=table.latest if managed else None,
        )

    def update(self, catalog: str, schema: str, name: str, request: messages.UpdateTable) -> messages.LoadedTable:
        table = self._table(catalog, schema, name)
        kinds = [type(each) for each in (*request.updates, *request.requirements)]
        if len(kinds) != len(set(kinds)) or not request.updates:
            raise Refused(400, "InvalidParameterValueException", "an action twice, or none")
        self._check_requirements(table, request)
        add = next((each for each in request.updates if isinstance(each, messages.AddCommit)), None)
        if add is not None and table.accepted.get(add.commit.version) == add.commit.file_name:
            return self.load(catalog, schema, name)
        if add is not None:
            self._check_commit(table, add.commit, request)
        published = [each for each in request.updates if isinstance(each, messages.SetLatestBackfilledVersion)]
        for each in published:
            last = table.latest + (add is not None)
            if not 0 <= each.latest_published_version <= last:
                raise Refused(400, "InvalidParameterValueException", "not a version")
        if add is not None:
            table.latest, table.last_timestamp = add.commit.version, add.commit.timestamp
            table.commits.append(add.commit)
            table.accepted[add.commit.version] = add.commit.file_name
        changed = [self._apply(table, each, has_commit=add is not None) for each in request.updates]
        if any(changed):
            table.etag += 1
            table.last_metadata = (table.latest, table.last_timestamp)
        for each in published:
            self._backfilled(table, each.latest_published_version)
        return self.load(catalog, schema, name)

    def _check_requirements(self, table: ModelTable, request: messages.UpdateTable) -> None:
        uuids = [each.uuid for each in request.requirements if isinstance(each, messages.AssertTableUuid)]
        if not uuids:
            raise Refused(400, "InvalidParameterValueException", "no assert-table-uuid")
        etags = [each.etag for each in request.requirements if isinstance(each, messages.AssertEtag)]
        if uuids != [table.uuid] or etags not in ([], [f"e{table.etag}"]):
            raise Refused(409, "UpdateRequirementConflictException")

    def _check_commit(self, table: ModelTable, commit: messages.Commit, request: messages.UpdateTable) -> None:
        if table.table_type != "MANAGED":
            raise Refused(400, "InvalidParameterValueException", "external")
        if commit.version != table.latest + 1:
            raise Refused(409, "CommitVersionConflictException", f"the latest version is {table.latest}")
        named = _FILE.fullmatch(commit.file_name)
        if named is None or int(named[1]) != commit.version or commit.file_size <= 0:
            raise Refused(400, "InvalidParameterValueException", commit.file_name)
        if commit.timestamp <= table.last_timestamp:
            self.violations.append(f"version {commit.version} of {table.name}: its timestamp does not increase")
            raise Refused(400, "InvalidParameterValueException", "the timestamp does not increase")
        if len(table.commits) >= self.most_unpublished:
            raise Refused(429, "ResourceExhaustedException", f"{len(table.commits)} unpublished commits")

    def _apply(self, table: ModelTable, update: messages.Update, *, has_commit: bool) -> bool:
        """Apply one action; returns whether it changes what the etag stands for."""
        if isinstance(update, (messages.AddCommit, messages.SetLatestBackfilledVersion)):
            return False
        if isinstance(update, messages.SetTableComment):
            table.comment = update.comment or ""
            return True
        if not has_commit:
            self.violations.append(f"{table.name}: {type(update).__name__} without a commit")
        if isinstance(update, messages.SetProperties):
            self.violations.extend(f"{table.name}: {key} is derived" for key in update.updates if is_derived(key))
            table.properties.update(update.updates)
        elif isinstance(update, messages.RemoveProperties):
            for key in update.removals:
                table.properties.pop(key, None)
        elif isinstance(update, messages.SetProtocol):
            table.protocol = update.protocol
        elif isinstance(update, messages.SetColumns):
            table.columns = update.columns
        elif isinstance(update, messages.SetPartitionColumns):
            table.partition_columns = update.partition_columns
        elif isinstance(update, messages.SetDomainMetadata):
            table.domains.update(update.updates)
            return bool(update.updates.keys() - {"delta.rowTracking"})
        elif isinstance(update, messages.RemoveDomainMetadata):
            for domain in update.domains:
                table.domains.pop(domain, None)
        return True

    def _backfilled(self, table: ModelTable, version: int) -> None:
        """Forget the published commits, as a server may do at any time."""
        for each in range(table.backfilled + 1, version + 1):
            if not self.is_published(table.location, each):
                self.violations.append(f"version {each} of {table.name} was reported before it was published")
        table.backfilled = max(table.backfilled, version)
        table.commits = [commit for commit in table.commits if commit.version > version]

    def delete(self, catalog: str, schema: str, name: str) -> None:
        self._table(catalog, schema, name)
        del self.tables[catalog, schema, name]

    def rename(self, catalog: str, schema: str, name: str, new_name: str) -> None:
        table = self._table(catalog, schema, name)
        if (catalog, schema, new_name) in self.tables:
            raise Refused(409, "AlreadyExistsException", new_name)
        del self.tables[catalog, schema, name]
        table.name = new_name
        self.tables[catalog, schema, new_name] = table

    def table_credentials(self, catalog: str, schema: str, name: str, operation: str) -> messages.Credentials:
        table = self._table(catalog, schema, name)
        return messages.Credentials(storage_credentials=self.credentials(table.location, operation))

    def staging_credentials(self, table_id: str) -> messages.Credentials:
        for location, (staged, _) in self.staged.items():
            if staged == table_id:
                return messages.Credentials(storage_credentials=self.credentials(location, "READ_WRITE"))
        raise Refused(404, "NoSuchTableException", table_id)

    def _check_schema(self, catalog: str, schema: str) -> None:
        if (catalog, schema) not in self.schemas:
            raise Refused(404, "NoSuchSchemaException", f"{catalog}.{schema}")

    def _table(self, catalog: str, schema: str, name: str) -> ModelTable:
        self._check_schema(catalog, schema)
        table = self.tables.get((catalog, schema, name))
        if table is None:
            raise Refused(404, "NoSuchTableException", name)
        return table
