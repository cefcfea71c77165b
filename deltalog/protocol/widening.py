"""Type widening: the types that a column can be widened to, and the history of type changes in the schema. Pure.

Spec: PROTOCOL.md#type-widening, #type-change-metadata, #writer-requirements-for-type-widening,
#reader-requirements-for-type-widening.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deltalog.errors import SchemaMismatchError, UnsupportedFeatureError
from deltalog.protocol.properties import ENABLE_TYPE_WIDENING
from deltalog.protocol.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    columns_by_path,
    in_step,
    type_named,
)

FEATURE = "typeWidening"
TYPE_CHANGES_KEY = "delta.typeChanges"
# The allowed widenings, keyed by the narrow type; decimals have separate rules.
_WIDER: Mapping[str, tuple[str, ...]] = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
_IS_TEXT = re.compile(r"(string|char|varchar)\b")
# For each integer type, the number of decimal digits that the protocol requires for widening to a decimal.
_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}


def is_widening(narrow: DataType, wide: DataType) -> bool:
    """Whether the protocol allows widening a primitive type to another one; False for equal types."""
    if isinstance(wide, DecimalType):
        if isinstance(narrow, DecimalType):
            more_scale = wide.scale - narrow.scale
            return narrow != wide and 0 <= more_scale <= wide.precision - narrow.precision
        digits = _DIGITS.get(str(narrow))
        return digits is not None and wide.precision - digits >= wide.scale
    return isinstance(narrow, PrimitiveType) and str(wide) in _WIDER.get(narrow.name, ())


def check_recorded_changes(schema: StructType, table: str) -> None:
    """Refuse a schema that records a type change which the protocol does not allow: files may have values that readers
    cannot convert. Changes between string, char and varchar are tolerated, as in delta-spark.

    Spec: PROTOCOL.md#reader-requirements-for-type-widening. Raises UnsupportedFeatureError.
    """
    for path, column in columns_by_path(schema):
        changes = column.metadata.get(TYPE_CHANGES_KEY)
        for change in changes if isinstance(changes, list) else () if changes is None else (changes,):
            if not _is_recordable(change):
                raise UnsupportedFeatureError(
                    f"{table}: the schema records the type change {change!a:.200} of {'.'.join(path)}, which type "
                    "widening does not have, so that the values in older files cannot be converted. Read a version "
                    "from before the change, or read the table with the client that made it.",
                    features=(FEATURE,),
                )


def _is_recordable(change: Any) -> bool:
    if not isinstance(change, dict):
        return False
    names = [change.get("fromType"), change.get("toType")]
    if all(isinstance(name, str) and _IS_TEXT.match(name) for name in names):
        return True
    types = [type_named(name) for name in names if isinstance(name, str)]
    if len(types) < 2 or types[0] is None or types[1] is None:
        return False
    return types[0] == types[1] or is_widening(types[0], types[1])


def with_type_changes(column: StructField, before: DataType) -> StructField:
    """A copy of the column; the type changes since ``before`` are appended to its history of type changes.

    Type changes of a struct's fields are recorded in the metadata of these fields, not of the struct.
    """
    changes = [_as_json(*change) for change in _changes(before, column.data_type, ())]
    if not changes:
        return column
    history = [*column.metadata.get(TYPE_CHANGES_KEY, ()), *changes]
    return replace(column, metadata={**column.metadata, TYPE_CHANGES_KEY: history})


def _changes(
    before: DataType, after: DataType, path: Sequence[str]
) -> Iterator[tuple[DataType, DataType, Sequence[str]]]:
    if isinstance(before, StructType) or isinstance(after, StructType):
        return
    if isinstance(before, ArrayType) and isinstance(after, ArrayType):
        yield from _changes(before.element_type, after.element_type, (*path, "element"))
    elif isinstance(before, MapType) and isinstance(after, MapType):
        yield from _changes(before.key_type, after.key_type, (*path, "key"))
        yield from _changes(before.value_type, after.value_type, (*path, "value"))
    elif before != after and before != PrimitiveType("void"):
        yield before, after, path


def _as_json(before: DataType, after: DataType, path: Sequence[str]) -> dict[str, Any]:
    change = {"fromType": str(before), "toType": str(after)}
    return {**change, "fieldPath": ".".join(path)} if path else change


def recorded(before: StructType, after: StructType) -> StructType:
    """``after``, with every type change since ``before`` appended to the history of the changed column, also inside
    structs.

    Columns are matched by name; columns that are not in ``before`` have no history.
    """
    columns = []
    for column in after.fields:
        old = before.find(column.name)
        if old is not None:
            inside = in_step(column.data_type, old.data_type, lambda new, old: recorded(old, new))
            column = with_type_changes(replace(column, data_type=inside), old.data_type)
        columns.append(column)
    return StructType(tuple(columns))


def is_widening_of_its_kind(narrow: DataType, wide: DataType) -> bool:
    """``is_widening``, but False for changes from integers to double or decimal, which must be requested explicitly:
    schema merging must not round exact numbers."""
    if not is_widening(narrow, wide):
        return False
    is_whole = str(narrow) in _DIGITS
    return not is_whole or str(wide) in _DIGITS


def automatic(configuration: Mapping[str, str]) -> Callable[[DataType, DataType], bool] | None:
    """The rule by which a write with schema merging widens column types; None if it does not widen any."""
    return is_widening_of_its_kind if ENABLE_TYPE_WIDENING.read(configuration) else None


def widened(before: DataType, after: DataType, name: str) -> DataType:
    """The type of a column after widening from ``before`` to ``after``. The names of struct fields do not change.

    Raises SchemaMismatchError, naming the part, if the protocol does not allow the change.
    """
    if isinstance(before, StructType) and isinstance(after, StructType):
        if [f.name for f in before] != [f.name for f in after]:
            raise SchemaMismatchError(
                f"The type of {name} has the fields {', '.join(before.names)}; add, rename and drop fields as columns, "
                f"by their paths such as {name}.{(after.names or ['field'])[0]}."
            )
        pairs = zip(before.fields, after.fields, strict=True)
        return StructType(
            tuple(replace(f, data_type=widened(f.data_type, g.data_type, f"{name}.{f.name}")) for f, g in pairs)
        )
    if isinstance(before, ArrayType) and isinstance(after, ArrayType):
        return replace(before, element_type=widened(before.element_type, after.element_type, f"{name}.element"))
    if isinstance(before, MapType) and isinstance(after, MapType):
        key = widened(before.key_type, after.key_type, f"{name}.key")
        return replace(before, key_type=key, value_type=widened(before.value_type, after.value_type, f"{name}.value"))
    if before == after or before == PrimitiveType("void") or is_widening(before, after):
        return after
    raise SchemaMismatchError(
        f"The type of {name} cannot change from {before} to {after}: only widening is allowed, which leaves older "
        "files unchanged. Rewrite the rows with overwrite_schema=True."
    )
