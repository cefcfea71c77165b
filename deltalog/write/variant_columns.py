"""Converts the variants in callers' rows to the binary encoding, and checks them.

Spec: PROTOCOL.md#writer-requirements-for-variant-data-type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from deltalog.arguments import shown
from deltalog.arrow_arrays import combined
from deltalog.errors import InvalidDataFileError, SchemaMismatchError
from deltalog.lazy_arrow import pc
from deltalog.parquet.file_reader import conform, with_child
from deltalog.parquet.hidden_values import without_hidden
from deltalog.protocol import variant, variant_encoding
from deltalog.protocol.arrow_types import is_encoded, is_encoded_variant, is_list, is_text, is_variant, plain_layout
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

_EMPTY = b"\x01\x00\x00"


def interpreted(data: pa.Schema, table: StructType | None, texts: bool = True) -> StructType:
    """The columns of callers' rows. Where the table has a variant, the type is variant for structs of metadata and
    value, and with ``texts`` also for JSON text. Arrow's extension type for variants is always a variant. Raises
    SchemaMismatchError."""
    given = StructType.from_arrow(data)
    if table is None or not uses_type(table, "variant"):
        return given
    fields = [_interpreted(each, own, table, texts) for each, own in zip(given.fields, data, strict=True)]
    return StructType(tuple(fields))


def _interpreted(given: StructField, own: pa.Field, table: StructType, texts: bool) -> StructField:
    column = table.find(given.name)
    return given if column is None else replace(given, data_type=_type(given.data_type, own, column.data_type, texts))


def _type(given: DataType, own: pa.Field, table: DataType, texts: bool) -> DataType:
    kind = own.type.value_type if is_encoded(own.type) else own.type
    if table == VARIANT:
        return VARIANT if given == VOID or is_encoded_variant(kind) or (texts and is_text(kind)) else given
    if isinstance(table, StructType) and isinstance(given, StructType) and pt.is_struct(kind):
        fields = [_interpreted(each, part, table, texts) for each, part in zip(given.fields, kind.fields, strict=True)]
        return StructType(tuple(fields))
    if isinstance(table, ArrayType) and isinstance(given, ArrayType) and is_list(kind):
        return replace(given, element_type=_type(given.element_type, kind.value_field, table.element_type, texts))
    if isinstance(table, MapType) and isinstance(given, MapType) and pt.is_map(kind):
        return replace(given, value_type=_type(given.value_type, kind.item_field, table.value_type, texts))
    return given


def encoded_batches(batches: Iterable[pa.RecordBatch], table: StructType) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, with the variants of the table's columns in the binary encoding. Every variant is
    checked. Raises SchemaMismatchError, which names the column."""
    has_variants = uses_type(table, "variant")
    for batch in batches:
        yield encoded(batch, table) if has_variants or any(map(is_variant, batch.schema)) else batch


def encoded(batch: pa.RecordBatch, table: StructType, texts: bool = True) -> pa.RecordBatch:
    """Like ``encoded_batches``, for one batch. ``texts``: as for ``interpreted``."""
    columns, fields = [], []
    given = interpreted(batch.schema, table, texts)
    for column, own, values in zip(given.fields, batch.schema, batch.columns, strict=True):
        if uses_type(column.data_type, "variant"):
            values = _encoded(values, column.data_type, own, column.name)
            own = pa.field(own.name, values.type, own.nullable)
        columns.append(values)
        fields.append(own)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _encoded(values: Any, wanted: DataType, own: pa.Field, name: str) -> Any:
    if wanted == VARIANT:
        return _variants(values, is_variant(own), name)
    if not uses_type(wanted, "variant"):
        return values
    values = combined(without_hidden(pa.chunked_array([plain_layout(values)])))
    kind = values.type
    if isinstance(wanted, StructType):
        children = [
            _encoded(child, column.data_type, part, f"{name}.{column.name}")
            for child, column, part in zip(values.flatten(), wanted.fields, kind.fields, strict=True)
        ]
        fields = [pa.field(part.name, child.type) for part, child in zip(kind.fields, children, strict=True)]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if isinstance(wanted, ArrayType):
        elements = _encoded(values.values, wanted.element_type, kind.value_field, f"{name}.element")
        return with_child(values, pa.list_(pa.field("element", elements.type)), elements)
    assert isinstance(wanted, MapType)
    items = _encoded(values.items, wanted.value_type, kind.item_field, f"{name}.value")
    typed = pa.map_(kind.key_type, pa.field("value", items.type))
    entries = pa.StructArray.from_arrays([values.keys, items], fields=[typed.key_field, typed.item_field])
    return with_child(values, typed, entries)


def _variants(values: Any, is_extension: bool, name: str) -> Any:
    """Variants in the binary encoding, from one of the forms that ``interpreted`` recognises."""
    if pt.is_null(values.type):
        return pa.nulls(len(values), type_to_arrow(VARIANT))
    if pt.is_dictionary(values.type):
        return _variants(values.dictionary, is_extension, name).take(values.indices)
    if is_encoded(values.type):
        return _variants(pc.run_end_decode(values), is_extension, name)
    if is_text(values.type):
        return _from_json(values, name)
    try:
        found = conform(values, VARIANT)
    except (InvalidDataFileError, pa.ArrowException, KeyError) as error:
        raise SchemaMismatchError(f"Column {name} has a value that is not a variant: {error}") from None
    return _checked(found, name)


def _from_json(values: Any, name: str) -> Any:
    metadata: list[bytes | None] = []
    encoded: list[bytes | None] = []
    for text in values.to_pylist():
        try:
            one, other = (None, None) if text is None else variant_encoding.encoded_json(text)
        except ValueError as error:
            raise SchemaMismatchError(
                f"Column {name} is variant, and the text {shown(text)} in the data cannot be one: {error}. Text is "
                "read as JSON; for a string, write it in quotes, as in JSON, or use variant_from_python."
            ) from None
        metadata.append(one)
        encoded.append(other)
    return _array(metadata, encoded)


def _array(metadata: list[bytes | None], values: list[bytes | None]) -> Any:
    absent = [each is None for each in metadata]
    parts = [pa.array([each or _EMPTY for each in metadata], pa.binary()), pa.array(values, pa.binary())]
    mask = pa.array(absent, pa.bool_()) if any(absent) else None
    return pa.StructArray.from_arrays(parts, fields=list(type_to_arrow(VARIANT).fields), mask=mask)


def _checked(values: Any, name: str) -> Any:
    """The variants of a caller. Structs whose two parts are null, which libraries make of null structs, are absent
    variants. Raises SchemaMismatchError for a value that is not a variant."""
    metadata, found = (values.field(each).to_pylist() for each in ("metadata", "value"))
    kept: list[tuple[bytes | None, bytes | None]] = []
    for there, one, other in zip(values.is_valid().to_pylist(), metadata, found, strict=True):
        if not there or (one is None and other is None):
            kept.append((None, None))
            continue
        try:
            if one is None or other is None:
                raise ValueError(f"its {'metadata' if one is None else 'value'} is null")
            variant.check(one, other)
        except ValueError as error:
            raise SchemaMismatchError(
                f"Column {name} has a value that is not a variant: {error}. Encode it with "
                "deltalog.schema.variant_from_python or variant_from_json."
            ) from None
        kept.append((one, other))
    if sum(one is None for one, _ in kept) == values.null_count:
        return values
    return _array([one for one, _ in kept], [other for _, other in kept])
