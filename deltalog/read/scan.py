"""Rows of a snapshot as Arrow, in the order and types of the table's schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.read.datafiles import FileLayout, read_file
from deltalog.read.predicates import Predicate, as_predicate, bind, columns_of, matches
from deltalog.read.skipping import prune
from deltalog.spec.actions import DeletionVector
from deltalog.spec.column_mapping import mode_of
from deltalog.spec.schema import StructType

if TYPE_CHECKING:
    from deltalog.log.snapshot import Snapshot


class Scan:
    """A read that has not happened yet; each call below reads anew. Made by ``Snapshot.scan``."""

    def __init__(
        self,
        snapshot: Snapshot,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> None:
        self._snapshot = snapshot
        schema = snapshot.schema
        fields = schema.fields if columns is None else tuple(schema.field(name) for name in columns)
        self.schema = StructType(tuple(fields))
        predicate = as_predicate(where)
        self.where = None if predicate is None else bind(predicate, schema)
        self._mapping = mode_of(snapshot.metadata.configuration)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self.schema.to_arrow()

    def files(self) -> pa.Table:
        """The files that will be read, as ``Snapshot.files``: those that may hold a row that ``where`` keeps.

        Files are left out by their partition values and statistics. Cost: as ``Snapshot.files``.
        """
        snapshot = self._snapshot
        files = snapshot.files()
        if self.where is None:
            return files
        return prune(files, self.where, snapshot.schema, snapshot.partition_columns, self._mapping)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a file at a time, in memory of one file. Cost: the GETs of each file's columns.

        Raises InvalidDataFileError, UnsafePathError, UnsupportedFeatureError.
        """
        snapshot = self._snapshot
        layout = FileLayout(self._read_schema(), snapshot.partition_columns, self._mapping)
        rows = self.files().select(["path", "partition_values", "deletion_vector"])
        for row in rows.to_pylist():
            values = dict(row["partition_values"] or ())
            vector = None if row["deletion_vector"] is None else DeletionVector(**row["deletion_vector"])
            table = read_file(snapshot.reader.store, row["path"], values, vector, layout)
            if self.where is not None:
                kept = table.filter(matches(self.where, table, layout.schema))
                table = kept.select(self.schema.names)
            yield from table.to_batches()

    def _read_schema(self) -> StructType:
        """The columns asked for, and after them those that only ``where`` looks at."""
        if self.where is None:
            return self.schema
        needed = dict.fromkeys(column.path[0] for column in columns_of(self.where))
        others = [name for name in needed if name not in self.schema.names]
        return StructType((*self.schema.fields, *(self._snapshot.schema.field(name) for name in others)))

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
