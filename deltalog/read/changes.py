"""The change data feed: which rows each commit inserted, updated or deleted.

Spec: PROTOCOL.md#add-cdc-file, #reader-requirements-for-addcdcfile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa
from pyroaring import BitMap64

from deltalog.errors import CallError, SchemaMismatchError
from deltalog.log.snapshot import Snapshot
from deltalog.read.datafiles import FileLayout, read_file, read_vector
from deltalog.spec import column_mapping
from deltalog.spec.actions import AddCDCFile, AddFile, DeletionVector, Metadata, RemoveFile
from deltalog.spec.codec import CommitActions
from deltalog.spec.properties import ENABLE_CHANGE_DATA_FEED
from deltalog.spec.schema import PrimitiveType, StructField, StructType, check_writable
from deltalog.spec.timestamps import CommitAt

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_CHANGE_TYPE_FIELD = StructField(
    CHANGE_TYPE, PrimitiveType("string"), True, {column_mapping.PHYSICAL_NAME_KEY: CHANGE_TYPE}
)


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file to read for a commit's changes.

    ``kind`` is None for a change file, which says itself. ``before`` and ``after`` are the deletion vectors the
    file was and is seen through; rows between the two are the change where the file was there before and after.
    """

    file: AddFile | RemoveFile | AddCDCFile
    kind: Literal["insert", "delete", "difference"] | None
    before: DeletionVector | None = None
    after: DeletionVector | None = None


def plan(commit: CommitActions) -> list[ChangeFile]:
    """The files that tell the changes of a commit. Pure.

    Change files where the commit has them; else its added and removed files that changed data.
    """
    if commit.cdc:
        return [ChangeFile(file, None) for file in commit.cdc]
    adds = {add.path: add for add in commit.adds if add.data_change}
    removes = {remove.path: remove for remove in commit.removes if remove.data_change}
    planned = []
    for path, add in adds.items():
        removed = removes.get(path)
        if removed is None:
            planned.append(ChangeFile(add, "insert", after=add.deletion_vector))
        else:
            planned.append(ChangeFile(add, "difference", removed.deletion_vector, add.deletion_vector))
    for path, remove in removes.items():
        if path not in adds:
            planned.append(ChangeFile(remove, "delete", before=remove.deletion_vector))
    return planned


class Changes:
    """The changes of a range of versions, in order of commit; read when asked. Made by ``DeltaTable.changes``.

    Rows have the columns of the table at the last version of the range, then ``_change_type`` (insert,
    update_preimage, update_postimage, delete), ``_commit_version`` and ``_commit_timestamp``.
    """

    def __init__(self, first: Snapshot, last: Snapshot, commit_at: Callable[[int], CommitAt]) -> None:
        self._first = first
        self._last = last
        self._commit_at = commit_at
        self._mapping = column_mapping.mode_of(last.metadata.configuration)

    @property
    def versions(self) -> range:
        """The versions whose changes are read."""
        return range(self._first.version, self._last.version + 1)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches."""
        added = [
            (CHANGE_TYPE, pa.string()),
            (COMMIT_VERSION, pa.int64()),
            (COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
        ]
        return pa.schema([*self._last.schema.to_arrow(), *(pa.field(name, kind) for name, kind in added)])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The changes, a file at a time.

        Raises CallError when the feed was off in the range, SchemaMismatchError when the schema changed in it so
        that old rows do not fit, InvalidDataFileError. Cost: 1 GET for each commit, and its files.
        """
        reader = self._last.reader
        self._check_metadata(self._first.metadata, self._first.version)
        for commit in reader.commits(list(self.versions)):
            if commit.metadata is not None:
                self._check_metadata(commit.metadata, commit.version)
            for planned in plan(commit):
                for kind, table in self._rows(planned):
                    if table.num_rows:
                        yield from self._with_commit(table, kind, commit.version).to_batches()

    def to_arrow(self) -> pa.Table:
        """All changes in memory."""
        return pa.Table.from_batches(self.batches(), self.arrow_schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow stream interface."""
        reader = pa.RecordBatchReader.from_batches(self.arrow_schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _check_metadata(self, metadata: Metadata, version: int) -> None:
        url = self._last.url
        if not ENABLE_CHANGE_DATA_FEED.read(metadata.configuration):
            raise CallError(
                f"{url}: the change data feed was off at version {version}. Read changes from a range of versions "
                f"with {ENABLE_CHANGE_DATA_FEED.key}=true."
            )
        if column_mapping.mode_of(metadata.configuration) != self._mapping:
            raise SchemaMismatchError(
                f"{url}: column mapping changed at version {version}; read the range in two parts."
            )
        try:
            check_writable(self._last.schema, metadata.schema)
        except SchemaMismatchError as error:
            raise SchemaMismatchError(
                f"{url}: the schema at version {version} does not fit that of version {self._last.version} "
                f"({error}); read the range in two parts."
            ) from None

    def _rows(self, planned: ChangeFile) -> Iterator[tuple[str | None, pa.Table]]:
        store = self._last.reader.store
        file = planned.file
        values = file.partition_values or {}
        if planned.kind is None:
            schema = StructType((*self._last.schema.fields, _CHANGE_TYPE_FIELD))
            yield None, read_file(store, file.path, values, None, self._layout(schema))
            return
        layout = self._layout(self._last.schema)
        if planned.kind != "difference":
            vector = planned.after if planned.kind == "insert" else planned.before
            yield planned.kind, read_file(store, file.path, values, vector, layout)
            return
        before, after = (BitMap64() if v is None else read_vector(store, v) for v in (planned.before, planned.after))
        table = read_file(store, file.path, values, None, layout)
        yield "delete", _take(table, after - before)
        yield "insert", _take(table, before - after)

    def _layout(self, schema: StructType) -> FileLayout:
        return FileLayout(schema, self._last.partition_columns, self._mapping)

    def _with_commit(self, table: pa.Table, kind: str | None, version: int) -> pa.Table:
        rows = table.num_rows
        kinds = table.column(CHANGE_TYPE) if kind is None else pa.repeat(pa.scalar(kind), rows)
        columns: Sequence[pa.Array] = [table.column(name) for name in self._last.schema.names]
        micros = pa.scalar(self._commit_at(version).timestamp_ms * 1000, pa.int64())
        timestamps = pa.repeat(micros, rows).cast(pa.timestamp("us", "UTC"))
        versions = pa.repeat(pa.scalar(version, pa.int64()), rows)
        return pa.Table.from_arrays([*columns, kinds, versions, timestamps], schema=self.arrow_schema)


def _take(table: pa.Table, positions: BitMap64) -> pa.Table:
    """The rows at these positions; positions past the end of the file name no row."""
    within = BitMap64()
    within.add_range(0, table.num_rows)
    return table.take(pa.array((positions & within).to_array(), pa.uint64()))
