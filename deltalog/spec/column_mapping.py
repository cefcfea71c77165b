"""Column mapping: under which name or id the columns of a table lie in its files. Pure.

Spec: PROTOCOL.md#column-mapping.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from deltalog.errors import CorruptTableError
from deltalog.spec.schema import DataType, StructField, StructType

MODE_KEY = "delta.columnMapping.mode"
PHYSICAL_NAME_KEY = "delta.columnMapping.physicalName"
ID_KEY = "delta.columnMapping.id"
CLUSTERING_DOMAIN = "delta.clustering"
_PARQUET_FIELD_ID = b"PARQUET:field_id"

Mode = Literal["none", "name", "id"]
_MODES: Mapping[str, Mode] = {"none": "none", "name": "name", "id": "id"}
# From a column of the table and the stored fields of one struct level to an index among them.
Lookup = Callable[[StructField, Sequence[Any]], "int | None"]


def mode_of(configuration: Mapping[str, str]) -> Mode:
    """The mapping mode in effect. Raises CorruptTableError for one that is not known."""
    mode = configuration.get(MODE_KEY, "none").lower()
    if mode in _MODES:
        return _MODES[mode]
    raise CorruptTableError(f"The table property {MODE_KEY} is {mode!r}; it can be none, name or id.")


def physical_name(column: StructField, mode: Mode) -> str:
    """The name that partition values, statistics and (by name) files use for a column."""
    if mode == "none":
        return column.name
    name = column.metadata.get(PHYSICAL_NAME_KEY)
    if not isinstance(name, str) or not name:
        raise CorruptTableError(f"Column {column.name} has no {PHYSICAL_NAME_KEY}, which column mapping needs.")
    return name


def clustering_columns(configuration: str, schema: StructType, mode: Mode) -> tuple[tuple[str, ...], ...]:
    """The paths of names that the domain metadata of a clustered table means: it has physical names.

    Raises CorruptTableError.
    """
    try:
        physical = json.loads(configuration)["clusteringColumns"]
        return tuple(_logical(path, schema, mode) for path in physical)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptTableError(f"The domain metadata {CLUSTERING_DOMAIN} has no list of columns: {error!r}.") from None


def _logical(path: Sequence[str], schema: StructType, mode: Mode) -> tuple[str, ...]:
    names: list[str] = []
    level: DataType = schema
    for part in path:
        fields = level.fields if isinstance(level, StructType) else ()
        column = next((f for f in fields if physical_name(f, mode) == part), None)
        if column is None:
            raise KeyError(part)
        names.append(column.name)
        level = column.data_type
    return tuple(names)


def lookup(mode: Mode) -> Lookup:
    """How a column is found among the fields (pyarrow) that a file stores."""
    if mode == "id":
        return _by_id
    if mode == "name":
        return lambda column, stored: _by_name(physical_name(column, "name"), stored)
    return lambda column, stored: _by_name(column.name, stored)


def _by_name(name: str, stored: Sequence[Any]) -> int | None:
    folded = None
    for index, field in enumerate(stored):
        if field.name == name:
            return index
        if folded is None and field.name.lower() == name.lower():
            folded = index
    return folded


def _by_id(column: StructField, stored: Sequence[Any]) -> int | None:
    if ID_KEY not in column.metadata:
        return _by_name(column.name, stored)  # a column of the change data feed, not of the table
    wanted = str(column.metadata[ID_KEY]).encode()
    for index, field in enumerate(stored):
        if field.metadata and field.metadata.get(_PARQUET_FIELD_ID) == wanted:
            return index
    return None
