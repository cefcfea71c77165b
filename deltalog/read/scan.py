"""Scan: a lazy read of a snapshot's rows as Arrow, with projection, data skipping and a filter.

Spec: PROTOCOL.md#reader-requirements-for-deletion-vectors, #deletion-vectors.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyroaring import BitMap64

from deltalog.arguments import checked
from deltalog.arrow_arrays import empty
from deltalog.errors import CallError
from deltalog.expressions.tree import Predicate
from deltalog.lazy_names import lazy_modules
from deltalog.log.file_tables import FILES
from deltalog.log.snapshot import LogSnapshot
from deltalog.parquet.file_reader import DataFile, FileLayout, OpenFile, read_files, read_vector
from deltalog.parquet.plain_files import PlainFiles
from deltalog.protocol import row_tracking
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.char_varchar import has_char
from deltalog.protocol.column_mapping import Mode, mode_of
from deltalog.protocol.schema import StructField, StructType, uses_type, variants_as_text
from deltalog.storage.base import real_url

if TYPE_CHECKING:
    from deltalog.expressions import bind as binding
    from deltalog.expressions import bound, sql
    from deltalog.expressions import evaluate as evaluation
    from deltalog.log import file_statistics
    from deltalog.read import data_skipping, file_bounds
    from deltalog.read import origin as row_origins
else:
    lazy_modules(
        __name__,
        "deltalog.expressions.bound",
        "deltalog.expressions.sql",
        "deltalog.log.file_statistics",
        "deltalog.read.data_skipping",
        "deltalog.read.file_bounds",
        binding="deltalog.expressions.bind",
        evaluation="deltalog.expressions.evaluate",
        row_origins="deltalog.read.origin",
    )

VariantForm = Literal["binary", "json"]
_FILE_COLUMNS = ["path", "partition_values", "deletion_vector", "base_row_id", "default_row_commit_version", "size"]


@checked
class Scan:
    """A lazy read of rows; every method that returns rows reads the files again. Created by ``Snapshot.scan``."""

    def __init__(
        self,
        snapshot: LogSnapshot,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        variants: VariantForm = "binary",
        *,
        is_time_travel: bool = False,
    ) -> None:
        """Not for users. ``is_time_travel``: whether the caller chose the version by number or time."""
        if variants not in ("binary", "json"):
            raise CallError(f"variants must be 'binary' or 'json', not {variants!r}.")
        self._snapshot = snapshot
        self._is_time_travel = is_time_travel
        self._variants = variants
        configuration = snapshot.metadata.configuration
        self._mapping = mode_of(configuration)
        schema = snapshot.schema
        fields, tracking, names = [], [], []
        for name in schema.names if columns is None else columns:
            tracked = None if schema.find(name) else row_tracking.column(name, configuration, snapshot.url)
            if tracked is None:
                fields.append(schema.field(name))
                names.append(fields[-1].name)
            else:
                tracking.append(tracked)
                names.append(name)
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise CallError(f"{snapshot.url}: the scan names columns twice: {', '.join(twice)}.")
        self.schema = StructType(tuple(fields))
        self._tracking = tuple(tracking)
        self._names = names
        self._predicate = where if where is None or isinstance(where, Predicate) else sql.as_predicate(where)
        self.where = self._bound()

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickling, without ``where``: the functions that evaluate ``where`` cannot be pickled, so it is
        bound again after unpickling."""
        return {**self.__dict__, "where": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.where = self._bound()

    def _bound(self) -> bound.Bound | None:
        return None if self._predicate is None else binding.bind(self._predicate, self._snapshot.schema)

    @cached_property
    def origin(self) -> str | None:
        """The table, the version and the condition of the rows that were read, as text for
        ``DeltaTable.transaction(reads=...)``. The text is also in the schema metadata of the Arrow data. None for a
        version that the caller chose by number or time: as in delta-spark, writes that are computed from its rows are
        not checked against later commits."""
        snapshot = self._snapshot
        if self._is_time_travel:
            return None
        reader, where = snapshot.reader, row_origins.text_of(self.where, snapshot.schema)
        authority = reader.authority
        return row_origins.Origin(
            table=snapshot.metadata.id,
            url=real_url(reader.store),
            version=snapshot.version,
            where=where,
            branch=authority.branch,
            base_version=authority.base_version,
            txn_id=snapshot.tip.txn_id if authority.branch is None else None,
        ).as_text()

    @property
    def where_text(self) -> str | None:
        """``where`` as equivalent SQL text in Spark's dialect. None without ``where``, if SQL text cannot express it,
        and if it has more than 1000 values. Cost: none."""
        return row_origins.text_of(self.where, self._snapshot.schema)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches."""
        stored = self._layout(self.schema).arrow_schema
        return row_origins.tagged(pa.schema([stored.field(name) for name in self._names]), self.origin)

    @property
    def snapshot(self) -> LogSnapshot:
        """Not for users: the snapshot that the scan reads."""
        return self._snapshot

    @property
    def mapping(self) -> Mode:
        """Not for users: the column mapping mode of the version that the scan reads."""
        return self._mapping

    def narrowed(self, where: Predicate) -> Scan:
        """Not for users: this scan, restricted to the rows for which ``where`` is also true. Raises as
        ``Snapshot.scan``."""
        both = where if self._predicate is None else self._predicate & where
        return Scan(self._snapshot, self._names, both, self._variants, is_time_travel=self._is_time_travel)

    def projected(self, columns: Sequence[str]) -> Scan:
        """Not for users: this scan, restricted to some of its columns."""
        return Scan(self._snapshot, columns, self._predicate, self._variants, is_time_travel=self._is_time_travel)

    def plain_files(self) -> PlainFiles | None:
        """Not for users: determines which files another Parquet reader reads with the same result as deltalog. None if
        the columns cannot be produced from the files and the log's partition values alone, as with mapped names, row
        tracking, variants, char(n) and void."""
        partitioned = {name.lower() for name in self._snapshot.metadata.partition_columns}
        stored = StructType(tuple(field for field in self.schema.fields if field.name.lower() not in partitioned))
        special = any(
            uses_type(field.data_type, "variant") or uses_type(field.data_type, "void") or has_char(field)
            for field in self.schema.fields
        )
        if self._mapping != "none" or self._tracking or special or not self._names:
            return None
        return PlainFiles(stored.to_arrow())

    def partition_fields(self) -> list[StructField]:
        """Not part of the public API: the partition columns among the selected columns."""
        partitioned = {name.lower() for name in self._snapshot.metadata.partition_columns}
        return [field for field in self.schema.fields if field.name.lower() in partitioned]

    def _layout(self, schema: StructType) -> FileLayout:
        schema = variants_as_text(schema) if self._variants == "json" else schema
        return FileLayout(schema, self._snapshot.metadata.partition_columns, self._mapping, self._tracking)

    def files(self) -> pa.Table:
        """The files to read, with the columns of ``Snapshot.files``. Files whose partition values or statistics show
        that ``where`` matches none of their rows are skipped. Cost: as ``Snapshot.files``; with ``where``, only the
        statistics of its columns are parsed, and only the remaining files are in memory.
        """
        return self._snapshot.cache.files() if self.where is None else self._pruned(FILES.names)

    def _pruned(self, columns: Sequence[str]) -> pa.Table:
        """Columns of the files to read."""
        snapshot, where = self._snapshot, self.where
        if where is None:
            return snapshot.cache.files(columns)
        schema, partitioned = snapshot.schema, snapshot.metadata.partition_columns
        leaves = data_skipping.statistics_leaves(where, schema, partitioned, self._mapping)

        def kept(piece: pa.Table) -> pa.Table:
            left = data_skipping.prune(piece, where, schema, partitioned, self._mapping)
            return (file_statistics.with_text(left) if "stats" in columns else left).select(list(columns))

        pieces = snapshot.cache.file_pieces(kept, ["partition_values", *columns], leaves)
        return pa.concat_tables([empty(pa.schema([FILES.field(name) for name in columns])), *pieces])

    def deleted_positions(self, vector: DeletionVector) -> BitMap64:
        """The row positions (from 0) deleted by a deletion vector in ``files``, for engines that read files themselves.

        Raises InvalidDataFileError, UnsafePathError. Cost: 1 GET unless the vector is inline.
        """
        return read_vector(self._snapshot.reader.files, vector)

    def batches(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, or the first ``limit`` of them, file by file in the order of ``files``. Threads read some files
        ahead of the caller, and on a remote store open up to 32 more.

        Memory depends on the size of batches and on what is read when a file is opened, not on the size of the files.
        Raises InvalidDataFileError, UnsafePathError, UnsupportedFeatureError, and CallError if ``where`` cannot be
        evaluated for a row, and for a negative ``limit``. Cost: as ``files``, and the GETs of each file's columns;
        nothing is read before the first batch.
        """
        if limit is not None and limit < 0:
            raise CallError(f"limit is a number of rows from 0; got {limit}.")
        batches = self.batches_of(self.data_files())
        return batches if limit is None else _limited(batches, limit)

    def data_files(self) -> Iterator[DataFile]:
        """Not for users: what the log records about the files to read. Cost: as ``files``."""
        for row in _rows(self._pruned(_FILE_COLUMNS)):
            yield DataFile(**row)

    def files_with_bounds(self) -> Iterator[tuple[DataFile, list[file_bounds.FileBounds]]]:
        """Not for users: the files to read, each with its column bounds, by which other readers may skip it. Cost: as
        ``files``, with all statistics."""
        snapshot, where = self._snapshot, self.where
        partitioned, by_log = snapshot.metadata.partition_columns, {field.name for field in self.partition_fields()}
        columns = [
            field for field in self.schema.fields if field.name not in by_log and file_bounds.has_exact_bounds(field)
        ]
        leaves = [file_statistics.Leaf.from_fields([field], self._mapping) for field in columns]
        of_where = (
            () if where is None else data_skipping.statistics_leaves(where, snapshot.schema, partitioned, self._mapping)
        )

        def converted(piece: pa.Table) -> list[tuple[DataFile, list[file_bounds.FileBounds]]]:
            if where is not None:
                piece = data_skipping.prune(piece, where, snapshot.schema, partitioned, self._mapping)
            files = (DataFile(**row) for row in _rows(piece.select(_FILE_COLUMNS)))
            return [*zip(files, file_bounds.bounds_of(piece, leaves), strict=True)]

        both = [*dict.fromkeys((*leaves, *of_where))]
        for files in snapshot.cache.file_pieces(converted, _FILE_COLUMNS, both):
            yield from files

    def batches_of(self, files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
        """Internal: the rows of the given files, which are some of the files of this scan. Raises and costs as
        ``batches``."""
        layout = self._layout(self._read_schema())
        requests = ((file, layout, None) for file in files)
        for batch in read_files(self._snapshot.reader.files, requests, self._selected):
            yield batch.replace_schema_metadata(self.arrow_schema.metadata)

    def _selected(self, file: OpenFile) -> Iterator[pa.RecordBatch]:
        exact = file.layout.arrow_schema.names == self._names
        for batch in file.batches():
            if self.where is None:
                yield batch if exact else batch.select(self._names)
                continue
            table = pa.Table.from_batches([batch])
            yield from table.filter(evaluation.matches(self.where, table)).select(self._names).to_batches()

    def _read_schema(self) -> StructType:
        """The requested columns, followed by columns that are used only in ``where``."""
        if self.where is None:
            return self.schema
        needed = dict.fromkeys(column.path[0] for column in bound.columns_of(self.where))
        others = [name for name in needed if name not in self.schema.names]
        return StructType((*self.schema.fields, *(self._snapshot.schema.field(name) for name in others)))

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """All rows, or the first ``limit`` of them, in memory. Raises and costs as ``batches``."""
        return pa.Table.from_batches(self.batches(limit), self.arrow_schema)

    def to_pandas(self, limit: int | None = None) -> Any:
        """All rows, or the first ``limit`` of them, as a pandas DataFrame. Raises CallError if pandas is not
        installed."""
        if importlib.util.find_spec("pandas") is None:
            raise CallError("to_pandas() needs pandas, which is not installed: pip install pandas.")
        return self.to_arrow(limit).to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow C stream interface: polars, duckdb and pandas read a Scan directly."""
        reader = pa.RecordBatchReader.from_batches(self.arrow_schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)


def _limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The first ``limit`` rows; if ``limit`` is 0, nothing is read."""
    with contextlib.closing(batches) as reading:  # type: ignore[type-var]  # a generator
        while limit > 0 and (batch := next(reading, None)) is not None:
            yield batch.slice(0, min(limit, batch.num_rows))
            limit -= batch.num_rows


def _rows(files: pa.Table) -> Iterator[dict[str, Any]]:
    """The fields of each DataFile, converted in batches of 1000 files."""
    for batch in files.to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            vector = row["deletion_vector"]
            values = dict(row["partition_values"] or ())
            yield {
                **row,
                "partition_values": values,
                "deletion_vector": None if vector is None else DeletionVector(**vector),
            }
