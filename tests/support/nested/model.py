"""A model of how verbs treat nested values: rows are plain Python values, matched with a table's columns by name. The
model uses neither Delta code nor Arrow kernels.

Schemas are Arrow schemas, and rows have the form that ``rows_by_id`` returns. Names are compared case-insensitively,
and structs are matched field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tests.support.nested.schemas import fields_of
from tests.support.nested.values import Rows


def find(fields: Iterable[pa.Field], name: str) -> pa.Field | None:
    """The field with this name, ignoring case."""
    return next((field for field in fields if field.name.lower() == name.lower()), None)


def fitted(value: Any, given: pa.DataType, wanted: pa.DataType) -> Any:
    """Convert a value to another type: missing fields become null, extra fields are dropped."""
    if value is None:
        return None
    if pa.types.is_struct(wanted):
        found = {}
        for field in fields_of(wanted):
            own = find(fields_of(given), field.name)
            found[field.name] = None if own is None else fitted(value[own.name], own.type, field.type)
        return found
    if pa.types.is_map(wanted):
        return [(key, fitted(item, given.item_type, wanted.item_type)) for key, item in value]
    if pa.types.is_nested(wanted):
        return [fitted(each, given.value_type, wanted.value_type) for each in value]
    return value


def fitted_row(row: dict[str, Any], given: pa.Schema, wanted: pa.Schema) -> dict[str, Any]:
    """``fitted`` for a row."""
    found: dict[str, Any] = fitted(row, pa.struct(list(given)), pa.struct(list(wanted)))
    return found


def fitted_rows(rows: Rows, given: pa.Schema, wanted: pa.Schema) -> Rows:
    """``fitted`` for all rows."""
    return {key: fitted_row(row, given, wanted) for key, row in rows.items()}


def lacks(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a struct lacks a field that another one has, including fields of nested structs."""
    if not (pa.types.is_struct(given) and pa.types.is_struct(wanted)):
        return False
    pairs = [(find(fields_of(given), field.name), field) for field in fields_of(wanted)]
    return any(own is None or lacks(own.type, field.type) for own, field in pairs)


def updated(value: Any, given: pa.DataType, old: Any, wanted: pa.DataType) -> Any:
    """The result of ``UPDATE SET *`` with schema evolution: fields of the old value that the new value lacks are kept,
    also in nested structs, but not inside lists and maps. A struct becomes null only if the old and the new value are
    null."""
    if not lacks(given, wanted):
        return fitted(value, given, wanted)
    if value is None and old is None:
        return None
    found = {}
    for field in fields_of(wanted):
        own = find(fields_of(given), field.name)
        before = None if old is None else old.get(field.name)
        new = None if own is None or value is None else value[own.name]
        found[field.name] = before if own is None else updated(new, own.type, before, field.type)
    return found


def evolved(table: pa.Schema, data: pa.Schema, columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema, with the data's additional columns and fields appended as nullable. ``columns``: the columns of the
    data that are used; None: all."""
    used = [field for field in data if columns is None or field.name.lower() in [name.lower() for name in columns]]
    return pa.schema(_evolved(list(table), used))


def _evolved(table: Sequence[pa.Field], data: Sequence[pa.Field]) -> list[pa.Field]:
    kept = []
    for field in table:
        given = find(data, field.name)
        kept.append(field if given is None else field.with_type(_evolved_type(field.type, given.type)))
    return [*kept, *(field.with_nullable(True) for field in data if find(table, field.name) is None)]


def _evolved_type(table: pa.DataType, data: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(table):
        return pa.struct(_evolved(fields_of(table), fields_of(data)))
    if pa.types.is_map(table):
        return pa.map_(table.key_type, _evolved_type(table.item_type, data.item_type))
    if pa.types.is_nested(table):
        return pa.list_(_evolved_type(table.value_type, data.value_type))
    return table
