"""Rows of a snapshot as Arrow, in the order and types of the table's schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.read.datafiles import FileLayout, read_file
from deltalog.spec.actions import DeletionVector
from deltalog.spec.column_mapping import mode_of
from deltalog.spec.schema import StructType

if TYPE_CHECKING:
    from deltalog.log.snapshot import Snapshot


class Scan:
    """A read that has not happened yet; each call below reads anew. Made by ``Snapshot.scan``."""

    def __init__(self, snapshot: Snapshot, columns: Sequence[str] | None = None) -> None:
        self._snapshot = snapshot
        schema = snapshot.schema
        fields = schema.fields if columns is None else tuple(schema.field(name) for name in columns)
        self.schema = StructType(tuple(fields))

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self.schema.to_arrow()

    def files(self) -> pa.Table:
        """The files that will be read, as ``Snapshot.files``."""
        return self._snapshot.files()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a file at a time, in memory of one file. Cost: the GETs of each file's columns.

        Raises InvalidDataFileError, UnsafePathError, UnsupportedFeatureError.
        """
        snapshot = self._snapshot
        layout = FileLayout(self.schema, snapshot.partition_columns, mode_of(snapshot.metadata.configuration))
        rows = self.files().select(["path", "partition_values", "deletion_vector"])
        for row in rows.to_pylist():
            values = dict(row["partition_values"] or ())
            vector = None if row["deletion_vector"] is None else DeletionVector(**row["deletion_vector"])
            yield from read_file(snapshot.reader.store, row["path"], values, vector, layout).to_batches()

    def to_arrow(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(self.batches(), self.arrow_schema)

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame; needs pandas."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow stream interface: polars, duckdb and pandas take a Scan directly."""
        reader = pa.RecordBatchReader.from_batches(self.arrow_schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)
