"""The columns that a merge with ``with_schema_evolution`` adds to its table.

Spec: PROTOCOL.md#change-metadata, #type-widening.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from deltalog.expressions.relations import Relation
from deltalog.protocol.column_paths import parse_path
from deltalog.protocol.schema import VOID, ArrayType, DataType, MapType, StructField, StructType
from deltalog.rows.merge.clauses import Clause, without_alias

Path = tuple[str, ...]


def columns_to_merge(clauses: Iterable[Clause], target: Relation, source: StructType) -> StructType:
    """The source columns and fields that clauses assign, for ``Transaction.merge_schema``. Columns of the type null are
    left out. Raises CallError for a name that neither side has."""
    return _selected(source, {path for clause in clauses for path in _paths(clause, target, source)})


def _paths(clause: Clause, target: Relation, source: StructType) -> Iterator[Path]:
    """The paths that a clause assigns from the source, in lower case."""
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
            if field.data_type != VOID:
                fields.append(StructField(field.name, _typed(field.data_type)))
        elif below and isinstance(field.data_type, StructType):
            inner = _selected(field.data_type, below)
            if inner.fields:
                fields.append(StructField(field.name, inner))
    return StructType(tuple(fields))


def _typed(data_type: DataType) -> DataType:
    """A type without its untyped (void) struct fields."""
    if isinstance(data_type, StructType):
        typed = (StructField(each.name, _typed(each.data_type)) for each in data_type.fields if each.data_type != VOID)
        return StructType(tuple(typed))
    if isinstance(data_type, ArrayType):
        return ArrayType(_typed(data_type.element_type), data_type.contains_null)
    if isinstance(data_type, MapType):
        return MapType(_typed(data_type.key_type), _typed(data_type.value_type), data_type.value_contains_null)
    return data_type
