"""Dataset: the write contract on a location, with or without a table, or on an open table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.addresses import committer_of, handle_on, handle_on_latest, open_log
from deltalog.arguments import checked
from deltalog.create.new_table import first_transaction, initial_state, table_schema
from deltalog.environment import Environment
from deltalog.errors import CallError, EmptyDatasetError, MissingRecordsError, TableNotFoundError, VersionNotFoundError
from deltalog.log.commit_summary import CommitSummary, summary_of
from deltalog.protocol.properties import ENABLE_IN_COMMIT_TIMESTAMPS
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.registry import Location
from deltalog.table import DeltaTable, handle_of
from deltalog.write.input_streams import as_reader
from deltalog.write.transaction import Transaction
from deltalog.write_contract import staging, stream
from deltalog.write_contract.records import Records
from deltalog.write_contract.staging import StagedFiles
from deltalog.write_contract.stream import StreamWriter

if TYPE_CHECKING:
    from typing_extensions import Unpack

_BLOB_TYPES = (bytes, bytearray, memoryview)
_COMMITS_AT_ONCE = 256  # the number of commits whose bytes are kept in memory at a time


@checked
class Dataset:
    """The verbs of the write contract (docs/contracts/write.md), for a location (empty or not) or for an open table.

    ``Dataset(url)``: the first write creates the table in the commit that adds its data. The table has in-commit
    timestamps unless ``properties`` disable them. The table has the columns of ``schema`` if set, otherwise those of
    the data, and the partition columns ``partition_by``. If the first write passes bytes, the new table is a table of
    blobs. An existing table is not changed. ``url`` can also be the address of a table in a catalog; TableNotFoundError
    is raised if that table does not exist. ``storage_options``: as for ``open_store``. Cost: none;
    with an address, 1 call of the coordinator.

    ``Dataset(table)``: a dataset on a DeltaTable; if the table belongs to a multi-table transaction, that transaction's
    commit makes the writes visible. Any argument in addition to the table raises CallError. Cost: none.
    """

    @checked
    def __init__(
        self,
        url: Location | DeltaTable,
        *,
        schema: StructType | pa.Schema | None = None,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        **storage_options: Any,
    ) -> None:
        self._table: DeltaTable | None = None
        if isinstance(url, DeltaTable):
            if schema is not None or partition_by or properties or environment is not None or storage_options:
                raise CallError("Dataset(table) takes no other arguments: an open table has its columns and its store.")
            self._table = url
            self._reader = handle_of(url).reader
        else:
            self._reader = open_log(url, environment=environment, **storage_options)
        self._schema = None if schema is None else table_schema(schema)
        self._partition_by = tuple(partition_by)
        self._properties = {ENABLE_IN_COMMIT_TIMESTAMPS.key: "true", **(properties or {})}
        self._environment = environment or Environment()

    @property
    def url(self) -> str:
        """The URL of the table root."""
        return self._reader.store.url

    def table(self) -> DeltaTable:
        """The table. Raises EmptyDatasetError before the first write. Cost: as DeltaTable.open, once."""
        table = self._opened()
        if table is None:
            raise EmptyDatasetError(f"Nothing has been written to {self.url} yet, so there is no snapshot of it.")
        return table

    # --------------------------------------------------------------------------------------------------- reading

    def latest(self) -> Snapshot:
        """The latest version. Raises EmptyDatasetError before the first write. Cost: as DeltaTable.snapshot."""
        return self.table().snapshot()

    def snapshot(self, version: int) -> Snapshot:
        """A version. Raises VersionNotFoundError, also before the first write. Cost: as DeltaTable.snapshot."""
        table = self._opened()
        if table is None:
            raise VersionNotFoundError(
                f"{self.url} has no version {version}: nothing has been written there yet.",
                version=version,
                earliest=None,
                latest=None,
            )
        return table.snapshot(version)

    def snapshots(self) -> list[CommitSummary]:
        """What each version added, for all versions whose commit is still in the log, oldest first; empty before the
        first write. Cost: 1 LIST and 1 GET for each, concurrently if the store supports it."""
        if self._opened() is None:
            return []
        versions = list(self._reader.list_from().commits)
        parts = (versions[start : start + _COMMITS_AT_ONCE] for start in range(0, len(versions), _COMMITS_AT_ONCE))
        return [summary_of(commit) for part in parts for commit in self._reader.commits(part)]

    def open_blob(self, path: str | None = None, *, version: int | None = None) -> Any:
        """The content of a blob, as a seekable binary file: the blob at a ``path`` in the table's rows, or the blob
        that a version added (None: the latest). Raises CallError for a version that added none, UnsafePathError,
        ObjectNotFoundError, EmptyDatasetError. Cost: for a version as ``snapshot`` and 1 GET; then what is read."""
        if path is None:
            path = stream.blob_path(self.table().snapshot(version))
        store, inside = self._reader.files.find(path)
        return store.open_input(inside)

    # ---------------------------------------------------------------------------------------------- writing data

    def write(
        self, data: Any, metadata: Mapping[str, Any] | None = None, **options: Unpack[staging.WriteOptions]
    ) -> Snapshot:
        """Add rows (or, to a table of blobs, bytes) as the version after the latest one, with the author's metadata.

        ``DeltaTable.append`` takes the next free version, whatever other writers commit concurrently. In contrast to
        ``append``, ``write`` names its parent version: if another writer commits the next version, ``write`` raises
        VersionConflictError, unless ``retry_count`` allows repeating the commit on top of that version. ``metadata`` is
        any JSON object, kept unchanged in the commit; None means ``{}``. Options: ``WriteOptions``. The first write
        creates the table. Raises CallError before any I/O, and as ``append``. Cost: as ``append``; on a local disk 2
        HEADs more.
        """
        is_blob = isinstance(data, _BLOB_TYPES)
        data = data if is_blob or self._table is not None else as_reader(data)
        target = self._target(lambda: None if is_blob else StructType.from_arrow(data.schema))
        return stream.write(target, data, metadata, staging.options_of(options))

    def stream_write(
        self, metadata: Mapping[str, Any] | None = None, **options: Unpack[staging.WriteOptions]
    ) -> StreamWriter:
        """A writer of bytes, for a table of blobs. The stream's ``commit`` method commits the bytes as one row in one
        version; the first commit creates the table. Raises BlobTableRequiredError for a table of rows. Cost: 1 PUT of
        the bytes, or 1 for each part."""
        return StreamWriter(self._target(lambda: None), metadata, staging.options_of(options))

    def stream_write_records(
        self,
        records: Records | None,
        metadata: Mapping[str, Any] | None = None,
        **options: Unpack[staging.WriteOptions],
    ) -> Snapshot:
        """Like ``write``, for records that are pulled one by one: mappings from column names to values, or record
        batches.

        The records are written to files of about 128 MiB of rows; writing takes about 128 MiB of memory. An iterator is
        read once: passing it again raises CallError. The first write creates the table; the dataset must have a
        ``schema`` for that if the records have none. If the iterator or any other step raises an error, no version is
        created and the files are removed. Raises MissingRecordsError for None, UnpartitionedTableRequiredError,
        RowTableRequiredError for a table of blobs, SchemaMismatchError.
        """
        if records is None:
            raise MissingRecordsError("records is None. To write no rows, pass an empty list.")
        checked = staging.options_of(options)
        if self._table is None and hasattr(records, "__arrow_c_stream__"):
            # Provides both the schema and the rows, because a stream can be read only once.
            records = as_reader(records)
        return stream.write_records(self._target(lambda: _schema_of(records)), records, metadata, checked)

    # --------------------------------------------------------------------------------------------------- staging

    def stage(self, data: Any, **options: Unpack[staging.WriteOptions]) -> StagedFiles:
        """Like ``DeltaTable.stage``. Raises EmptyDatasetError before the first write, which determines the columns."""
        return self.table().stage(data, **options)

    def commit_staged(
        self,
        staged: Iterable[StagedFiles],
        metadata: Mapping[str, Any] | None = None,
        **options: Unpack[staging.WriteOptions],
    ) -> Snapshot:
        """Like ``DeltaTable.commit_staged``. Raises EmptyDatasetError before the first write."""
        return self.table().commit_staged(staged, metadata, **options)

    def discard_staged(self, staged: Iterable[StagedFiles]) -> list[Exception]:
        """Like ``DeltaTable.discard_staged``. Raises EmptyDatasetError before the first write."""
        return self.table().discard_staged(staged)

    # ----------------------------------------------------------------------------------------------------- parts

    def _opened(self) -> DeltaTable | None:
        if self._table is None:
            try:
                self._table = DeltaTable(handle_on_latest(self._reader, self._environment))
            except TableNotFoundError:
                return None
        return self._table

    def _target(self, schema: Callable[[], StructType | None]) -> staging.WriteTarget:
        """The target of writes. ``schema`` returns the schema of the first write's data, None for bytes."""
        if self._opened() is not None:
            return staging.target_of(handle_of(self.table()))
        columns = self._schema or schema()
        properties = self._properties if columns else {**self._properties, staging.BLOBS_PROPERTY: "true"}
        # All transactions of a write share one initial table state, because column mapping assigns random physical
        # names each time a state is created.
        state = initial_state(
            columns or stream.BLOB_SCHEMA, self._partition_by, properties, None, None, self._environment
        )

        def begin(options: staging.Options) -> Transaction:
            table = self._opened()
            if table is not None:
                return staging.target_of(handle_of(table)).begin(options)
            environment = options.environment(self._environment, None, self.url)
            committer = committer_of(self._reader, self._environment)
            return first_transaction(
                self._reader, committer, environment, state, on_commit=self._created, is_strict=True
            )

        return staging.WriteTarget(self._reader.store, self._reader.authority, begin, lambda: None)

    def _created(self, first: Snapshot, replaced: Snapshot | None) -> None:
        if replaced is None:
            self._table = DeltaTable(handle_on(self._reader, self._environment, first))


def _schema_of(records: Records) -> StructType:
    if isinstance(records, pa.RecordBatchReader):
        return StructType.from_arrow(records.schema)
    raise CallError("The first write of records needs the columns of the dataset: Dataset(url, schema=...).")
