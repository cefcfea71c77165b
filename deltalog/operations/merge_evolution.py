"""The columns that a merge adds to its table, by ``with_schema_evolution``.

Spec: PROTOCOL.md#change-metadata, #type-widening.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from deltalog.expressions.relations import Relation
from deltalog.operations.merge_clauses import Clause, without_alias
from deltalog.protocol.column_paths import parse_path
from deltalog.protocol.schema import VOID, ArrayType, DataType, MapType, StructField, StructType

Widens = Callable[[DataType, DataType], bool]
Path = tuple[str, ...]


def columns_to_merge(
    clauses: Iterable[Clause], target: Relation, source: StructType, widens: Widens | None
) -> StructType:
    """The columns and fields of the source that clauses set, as ``Transaction.merge_schema`` takes them. Those that
    the table has keep its types, unless ``widens`` says that a type is widened to the source's. Columns of nulls
    without a type are left out. Raises CallError for a name that neither side has."""
    paths = {path for clause in clauses for path in _paths(clause, target, source)}
    return _reconciled(target.schema, _selected(source, paths), widens)


def _paths(clause: Clause, target: Relation, source: StructType) -> Iterator[Path]:
    """What a clause sets with values of the source, in lower case."""
    if clause.action == "delete" or clause.group == "not matched by source":
        return
    if clause.updates is None:
        left_out = {name.lower() for name in clause.except_cols}
        yield from ((name.lower(),) for name in source.names if name.lower() not in left_out)
        return
    for key in clause.updates:
        if isinstance(key, str):
            own = without_alias(key, target.alias, target.schema, source)
            yield tuple(name.lower() for name in parse_path(own))


def _selected(source: StructType, paths: Collection[Path]) -> StructType:
    fields = []
    for field in source.fields:
        below = [path[1:] for path in paths if path[0] == field.name.lower()]
        if () in below:
            fields.append(field)
        elif below and isinstance(field.data_type, StructType):
            inner = _selected(field.data_type, below)
            if inner.fields:
                fields.append(replace(field, data_type=inner))
    return StructType(tuple(fields))


def _reconciled(table: StructType, data: StructType, widens: Widens | None) -> StructType:
    fields = []
    for field in data.fields:
        known = table.find(field.name)
        if known is not None:
            fields.append(replace(field, data_type=_type(known.data_type, field.data_type, widens)))
        elif field.data_type != VOID:
            fields.append(StructField(field.name, field.data_type))
    return StructType(tuple(fields))


def _type(table: DataType, data: DataType, widens: Widens | None) -> DataType:
    if isinstance(table, StructType) and isinstance(data, StructType):
        return _reconciled(table, data, widens)
    if isinstance(table, ArrayType) and isinstance(data, ArrayType):
        return ArrayType(_type(table.element_type, data.element_type, widens), table.contains_null)
    if isinstance(table, MapType) and isinstance(data, MapType):
        key, value = (
            _type(table.key_type, data.key_type, widens),
            _type(table.value_type, data.value_type, widens),
        )
        return MapType(key, value, table.value_contains_null)
    becomes_data = table == VOID or (widens is not None and widens(table, data))
    return data if becomes_data else table
