"""Dataset: a location to write to, where there may be no table yet; the first write makes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.arguments import checked
from deltalog.catalog.locate import committer_of, open_location
from deltalog.environment import Environment
from deltalog.errors import CallError, EmptyDatasetError, MissingRecordsError, TableNotFoundError, VersionNotFoundError
from deltalog.log.commit_summary import CommitSummary
from deltalog.log.reader import LogReader
from deltalog.operations.contract import staging, stream
from deltalog.operations.contract.records import Records
from deltalog.operations.contract.stream import StreamWriter
from deltalog.operations.create import initial_state, table_schema
from deltalog.operations.input_streams import as_reader
from deltalog.operations.transaction import Transaction
from deltalog.protocol.properties import ENABLE_IN_COMMIT_TIMESTAMPS
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.registry import Location
from deltalog.table import DeltaTable

if TYPE_CHECKING:
    from typing_extensions import Unpack

_BLOB_TYPES = (bytes, bytearray, memoryview)


@checked
class Dataset:
    """The verbs of the write contract (docs/contracts/write.md) on a location, empty or not.

    The first write creates the table in the commit that holds its data, with in-commit timestamps unless
    ``properties`` say otherwise: with ``schema`` and ``partition_by`` where given, else with the columns of the data;
    as a table of blobs where it is a write of bytes. Once there is a table, it is as it is. ``url`` may also be the
    address of a table in a catalog, which must be there: else TableNotFoundError. ``storage_options``: as for
    ``open_store``. Cost of creation: none; of one with an address 1 call of the coordinator.
    """

    @checked
    def __init__(
        self,
        url: Location,
        *,
        schema: StructType | pa.Schema | None = None,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        **storage_options: Any,
    ) -> None:
        self._reader = LogReader(open_location(url, **storage_options))
        self._schema = None if schema is None else table_schema(schema)
        self._partition_by = tuple(partition_by)
        self._properties = {ENABLE_IN_COMMIT_TIMESTAMPS.key: "true", **(properties or {})}
        self._environment = environment or Environment()
        self._found: DeltaTable | None = None

    @property
    def url(self) -> str:
        """The table's root."""
        return self._reader.store.url

    def table(self) -> DeltaTable:
        """The table. Raises EmptyDatasetError before the first write. Cost: as DeltaTable.open, once."""
        found = self._look()
        if found is None:
            raise EmptyDatasetError(f"Nothing has been written to {self.url} yet, so there is no snapshot of it.")
        return found

    def latest(self) -> Snapshot:
        """The latest version. Raises EmptyDatasetError before the first write. Cost: as DeltaTable.snapshot."""
        return self.table().latest()

    def snapshots(self) -> list[CommitSummary]:
        """What each version added, oldest first; nothing before the first write. Cost: as DeltaTable.snapshots."""
        found = self._look()
        return [] if found is None else found.snapshots()

    def snapshot(self, version: int) -> Snapshot:
        """A version. Raises VersionNotFoundError, before the first write too. Cost: as DeltaTable.snapshot."""
        found = self._look()
        if found is None:
            raise VersionNotFoundError(
                f"{self.url} has no version {version}: nothing has been written there yet.",
                version=version,
                earliest=None,
                latest=None,
            )
        return found.snapshot(version)

    def write(
        self, data: Any, metadata: Mapping[str, Any] | None = None, **options: Unpack[staging.WriteOptions]
    ) -> Snapshot:
        """As DeltaTable.write; the first one creates the table."""
        is_blob = isinstance(data, _BLOB_TYPES)
        data = data if is_blob else as_reader(data)
        target = self._target(lambda: None if is_blob else StructType.from_arrow(data.schema))
        return stream.write(target, data, metadata, staging.options_of(options))

    def stream_write(
        self, metadata: Mapping[str, Any] | None = None, **options: Unpack[staging.WriteOptions]
    ) -> StreamWriter:
        """As DeltaTable.stream_write; the first commit creates the table."""
        return StreamWriter(self._target(lambda: None), metadata, staging.options_of(options))

    def stream_write_records(
        self,
        records: Records | None,
        metadata: Mapping[str, Any] | None = None,
        **options: Unpack[staging.WriteOptions],
    ) -> Snapshot:
        """As DeltaTable.stream_write_records; the first one creates the table, for which the dataset must know its
        ``schema`` where the records do not."""
        if records is None:
            raise MissingRecordsError("There are no records: None was given. An empty list is a write without rows.")
        checked = staging.options_of(options)
        if hasattr(records, "__arrow_c_stream__"):
            records = as_reader(records)  # for the columns and for the rows: a stream may be there to be read once
        return stream.write_records(self._target(lambda: _schema_of(records)), records, metadata, checked)

    def _look(self) -> DeltaTable | None:
        if self._found is None:
            try:
                self._found = DeltaTable.open(self._reader.store, environment=self._environment)
            except TableNotFoundError:
                return None
        return self._found

    def _target(self, schema: Callable[[], StructType | None]) -> staging.WriteTarget:
        """Where verbs write; ``schema`` is that of the first write's data, None for bytes."""
        if self._look() is not None:
            return self.table().target
        columns = self._schema or schema()
        properties = self._properties if columns else {**self._properties, staging.BLOBS_PROPERTY: "true"}
        # The same for all transactions of a write: columns may have ids and random names.
        protocol, metadata = initial_state(
            columns or stream.BLOB_SCHEMA, self._partition_by, properties, None, None, self._environment
        )

        def begin(options: staging.Options) -> Transaction:
            found = self._look()
            if found is not None:
                return found.target.begin(options)
            environment = options.environment(self._environment, None, self.url)
            return Transaction(
                self._reader,
                committer_of(self._reader.store, environment),
                environment,
                None,
                metadata=metadata,
                protocol=protocol,
                on_commit=self._has_begun,
                is_strict=True,
            )

        return staging.WriteTarget(self._reader.store, begin, lambda: None)

    def _has_begun(self, first: Snapshot) -> None:
        self._found = DeltaTable(self._reader, self._environment, first)


def _schema_of(records: Records) -> StructType:
    if isinstance(records, pa.RecordBatchReader):
        return StructType.from_arrow(records.schema)
    raise CallError("The first records of a dataset need to be told their columns: Dataset(url, schema=...).")
