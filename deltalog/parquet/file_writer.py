"""Writes a data file from Arrow rows.

Spec: PROTOCOL.md#data-files, #per-file-statistics, #column-mapping, #data-files-1,
#delta-data-type-to-parquet-type-mappings, #writer-requirements-for-variant-data-type,
#writer-requirements-for-variant-shredding, #void-type.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec
import pyarrow as pa

from deltalog.errors import CallError, SchemaMismatchError
from deltalog.lazy_arrow import pq
from deltalog.lazy_names import lazy_modules
from deltalog.parquet import stats
from deltalog.parquet.dictionaries import dictionary_columns, leaf_paths
from deltalog.parquet.file_options import DEFAULT, FileOptions
from deltalog.parquet.file_reader import with_child
from deltalog.parquet.hidden_values import without_hidden
from deltalog.protocol import column_mapping
from deltalog.protocol.column_mapping import Mode
from deltalog.protocol.schema import (
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    type_to_arrow,
    uses_type,
)
from deltalog.storage.base import LogStore

if TYPE_CHECKING:
    from deltalog.parquet import variant_shredding
else:
    lazy_modules(__name__, "deltalog.parquet.variant_shredding")

Checksum = Literal["sha256"]
ROW_GROUP_ROWS = 1 << 20


class FileColumns(msgspec.Struct, frozen=True, dict=True):
    """The columns of data files: first the table's ``columns``, named according to the column ``mapping``, and then
    ``extra`` columns, which the table does not have. ``indexed``: the leaves with statistics in the log, as paths of
    physical names. ``shreds``: whether variants are shredded."""

    columns: StructType
    indexed: frozenset[tuple[str, ...]]
    mapping: Mode = "none"
    extra: tuple[StructField, ...] = ()
    shreds: bool = False

    @functools.cached_property
    def shreds_variants(self) -> bool:
        """Whether the files have variants that are shredded."""
        return self.shreds and uses_type(self.columns, "variant")

    @functools.cached_property
    def stored(self) -> StructType:
        """The table's columns with the names used in files and statistics."""
        return column_mapping.physical_schema(self.columns, self.mapping)

    @functools.cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the files, without columns of the type void. Raises SchemaMismatchError for a column that
        Parquet cannot hold."""
        own = zip(self.columns, self.columns.to_arrow(), strict=True)
        stored = [_stored_field(column, field, self.mapping) for column, field in own if column.data_type != VOID]
        if self.columns.fields and not stored:
            raise SchemaMismatchError(
                "All columns of the table have the type void, so that files cannot hold its rows."
            )
        return pa.schema([*stored, *(pa.field(each.name, type_to_arrow(each.data_type)) for each in self.extra)])

    def stored_rows(self, rows: pa.Table) -> pa.Table:
        """Convert rows (with the order and the Arrow types of the columns) to the form stored in files."""
        every = zip((*self.columns, *self.extra), rows.columns, strict=True)
        kept = [values for column, values in every if column.data_type != VOID]
        schema, pairs = self.arrow_schema, zip(kept, self.arrow_schema, strict=True)
        stored = [without_hidden(_retyped(values, field.type)) for values, field in pairs]
        return pa.Table.from_arrays(stored, schema=schema)

    @functools.cached_property
    def has_shared_paths(self) -> bool:
        """Whether two leaf columns have the same dotted path."""
        return stats.has_shared_paths(self.arrow_schema)


class WrittenFile(msgspec.Struct, frozen=True):
    """A written data file: its size in bytes, its statistics as JSON text for the log, and its SHA-256 if requested."""

    size_bytes: int
    statistics: str
    sha256: str | None


def write_file(
    store: LogStore,
    path: str,
    rows: pa.Table,
    columns: FileColumns,
    checksum: Checksum | None = None,
    options: FileOptions = DEFAULT,
) -> WrittenFile:
    """Write rows (with the order and the Arrow types of the columns) to a new file, which is durable on return.

    Raises SchemaMismatchError, StoreError. Cost: 1 PUT.
    """
    stored = columns.stored_rows(rows)
    with store.open_output(path) as file:
        growing = GrowingFile(file, stored, columns, checksum=checksum, options=options)
        try:
            growing.write(stored)
        finally:
            growing.close()
    return growing.written()


class GrowingFile:
    """A data file that is written to ``file`` piece by piece. The rows must have been converted by
    ``FileColumns.stored_rows``.

    ``first``: its first rows. ``options``: how the file is encoded. ``without_bounds``: the dotted paths of columns
    that contain NaN in later rows.
    """

    def __init__(
        self,
        file: BinaryIO,
        first: pa.Table,
        columns: FileColumns,
        *,
        checksum: Checksum | None = None,
        options: FileOptions = DEFAULT,
        without_bounds: Collection[str] = (),
    ) -> None:
        self._columns = columns
        self._size_bytes = 0
        self._sink = file if checksum is None else HashedFile(file)
        self._shredding: variant_shredding.Shredding | None = None
        schema, with_nan = columns.arrow_schema, stats.nan_columns(first)
        if columns.shreds_variants:
            self._shredding = variant_shredding.Shredding.of_rows(first, columns.stored)
            first = self._shredding.rows(first.slice(0, variant_shredding.SAMPLE_ROWS))
            schema = self._shredding.schema
            # Whether the typed columns contain NaN is known only once later rows have been shredded.
            with_nan |= self._shredding.floating
        paths = leaf_paths(schema) if options.has_columns else ()
        left_out = {*with_nan, *without_bounds, *options.without_statistics(paths)}
        self._with_statistics = stats.without(schema, left_out) if left_out else True
        dictionaries = not columns.has_shared_paths and dictionary_columns(first)
        self._group_rows = min(options.row_group_rows or ROW_GROUP_ROWS, ROW_GROUP_ROWS)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            write_statistics=self._with_statistics,
            **options.with_codec("snappy").arguments(paths, dictionaries),
        )

    def tell(self) -> int:
        """The number of bytes written so far, without the footer."""
        return self._sink.tell()

    def takes(self, rows: pa.Table) -> bool:
        """Whether the rows can be appended to this file. The rows cannot be appended if they contain NaN in a column
        for which the file records bounds."""
        with_nan, have = stats.nan_columns(rows), self._with_statistics
        return not with_nan or (not isinstance(have, bool) and with_nan.isdisjoint(have))

    def write(self, rows: pa.Table) -> None:
        """Append rows as new row groups. Raises StoreError, and InvalidDataFileError for a malformed variant that is to
        be shredded."""
        if self._shredding is not None:
            rows = self._shredding.rows(rows)
        self._writer.write_table(rows, row_group_size=self._group_rows)

    def close(self) -> None:
        """Write the footer. ``file`` stays open."""
        self._writer.close()
        self._size_bytes = self._sink.tell()

    def written(self) -> WrittenFile:
        """The result, available once the file is closed."""
        columns, sink = self._columns, self._sink
        _, text = stats.from_footer(self._writer.writer.metadata, columns.stored, columns.indexed)
        return WrittenFile(self._size_bytes, text, sink.hexdigest() if isinstance(sink, HashedFile) else None)


class HashedFile:
    """Wraps a file that is written sequentially, and computes the SHA-256 of the file's content."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Write all of ``data``."""
        self._digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        """The number of bytes written so far."""
        return self._file.tell()

    def flush(self) -> None:
        """Flush the wrapped file."""
        self._file.flush()

    def hexdigest(self) -> str:
        """The SHA-256 of everything written so far, in hexadecimal."""
        return self._digest.hexdigest()


def check_checksum(wanted: object) -> None:
    """Raise CallError for an unknown checksum; None means no checksum."""
    if wanted not in (None, "sha256"):
        raise CallError(f"checksum must be 'sha256' or None; got {wanted!r}.")


def _stored_field(column: StructField, held: pa.Field, mode: Mode) -> pa.Field:
    """The field in the file for a table column, with its physical name and id. The field is always nullable, as in
    files written by Spark, because only the log records whether a column allows null."""
    name = column_mapping.physical_name(column, mode)
    field_id = column_mapping.parquet_id(column, mode)
    return pa.field(name, _stored_type(column.data_type, held.type, mode), True, field_id)


def _stored_type(data_type: DataType, held: pa.DataType, mode: Mode) -> pa.DataType:
    if isinstance(data_type, StructType):
        if not data_type.fields:
            raise SchemaMismatchError("A column of the table is a struct without fields, which Parquet cannot hold.")
        pairs = zip(data_type.fields, held.fields, strict=True)
        stored = [_stored_field(column, field, mode) for column, field in pairs if column.data_type != VOID]
        if not stored:
            raise SchemaMismatchError(
                "A column of the table is a struct whose fields all have the type void, so that files cannot hold it. "
                "Give one of them another type."
            )
        return pa.struct(stored)
    if VOID in _inside(data_type):
        raise SchemaMismatchError(
            f"A column of the table is {data_type}, and files cannot hold void in arrays and maps. Give the values "
            "another type."
        )
    if isinstance(data_type, MapType):
        key = _stored_type(data_type.key_type, held.key_type, mode)
        return pa.map_(key, pa.field("value", _stored_type(data_type.value_type, held.item_type, mode), True))
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", _stored_type(data_type.element_type, held.value_type, mode), True))
    # An unshredded variant; its fields metadata and value are both required, as in files that Spark writes.
    if data_type == VARIANT:
        return pa.struct([pa.field(f.name, f.type, False) for f in held.fields])
    return held


def _inside(data_type: DataType) -> tuple[DataType, ...]:
    """The types of the elements of an array, or of the keys and values of a map."""
    if isinstance(data_type, MapType):
        return data_type.key_type, data_type.value_type
    return (data_type.element_type,) if isinstance(data_type, ArrayType) else ()


def _retyped(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """``values`` with the type ``wanted``, which differs only in the names and nullability of nested fields, and lacks
    fields of the type void."""
    if values.type.equals(wanted, check_metadata=True):
        return values
    return pa.chunked_array([_viewed(chunk, wanted) for chunk in values.chunks], wanted)


def _part(values: pa.Array, wanted: pa.Field) -> pa.Array:
    """A child of a struct. The parts of a variant are not nullable, so an absent variant is stored with empty parts."""
    return values if wanted.nullable or not values.null_count else values.fill_null(b"")


def _viewed(values: Any, wanted: pa.DataType) -> pa.Array:
    if values.type.equals(wanted, check_metadata=True):
        return values
    if pa.types.is_struct(wanted):
        held = [child for child in values.flatten() if not pa.types.is_null(child.type)]
        children = [_part(_viewed(child, f.type), f) for child, f in zip(held, wanted.fields, strict=True)]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted.fields), mask=mask)
    if pa.types.is_map(wanted):
        children = [_viewed(values.keys, wanted.key_type), _viewed(values.items, wanted.item_type)]
        entries = pa.StructArray.from_arrays(children, fields=[wanted.key_field, wanted.item_field])
        return with_child(values, wanted, entries)
    return with_child(values, wanted, _viewed(values.values, wanted.value_type))
