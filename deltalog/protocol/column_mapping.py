"""Column mapping: the ids and physical names of columns in files, and the assignment of ids to new columns. Pure.

Spec: PROTOCOL.md#column-mapping, #writer-requirements-for-column-mapping, #reader-requirements-for-column-mapping,
#clustered-table, #writer-requirements-for-clustered-table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from deltalog.errors import CorruptTableError, InvalidPropertyError
from deltalog.protocol.actions import DomainMetadata, Metadata
from deltalog.protocol.column_metadata import ID_KEY, PHYSICAL_NAME_KEY
from deltalog.protocol.schema import ArrayType, DataType, MapType, StructField, StructType, all_columns, in_step

MODE_KEY = "delta.columnMapping.mode"
MAX_ID_KEY = "delta.columnMapping.maxColumnId"
CLUSTERING_DOMAIN = "delta.clustering"
_PARQUET_FIELD_ID = b"PARQUET:field_id"

Mode = Literal["none", "name", "id"]
_MODES: Mapping[str, Mode] = {"none": "none", "name": "name", "id": "id"}
# A Find maps a table column to the index of its stored field at one struct level; a Lookup builds a Find from the
# stored fields.
Find = Callable[[StructField], "int | None"]
Lookup = Callable[[Sequence[Any]], Find]


def mode_of(configuration: Mapping[str, str]) -> Mode:
    """The mapping mode in effect. Raises CorruptTableError for an unknown mode."""
    mode = configuration.get(MODE_KEY, "none").lower()
    if mode in _MODES:
        return _MODES[mode]
    raise CorruptTableError(f"The table property {MODE_KEY} is {mode!r}; it must be none, name or id.")


def physical_name(column: StructField, mode: Mode) -> str:
    """The name of a column in partition values, in statistics and, in column mapping mode ``name``, in data files.
    Raises CorruptTableError."""
    if mode == "none":
        return column.name
    name = column.metadata.get(PHYSICAL_NAME_KEY)
    if not isinstance(name, str) or not name:
        raise CorruptTableError(f"Column {column.name} has no {PHYSICAL_NAME_KEY}, which column mapping needs.")
    return name


def physical_schema(schema: StructType, mode: Mode) -> StructType:
    """The schema with the column names that files, statistics and partition values use; the metadata keeps the ids."""
    if mode == "none":
        return schema
    return _each_column(schema, lambda column: replace(column, name=physical_name(column, mode)))


def unmapped(schema: StructType) -> StructType:
    """The schema without column ids and physical names, which are specific to a table."""
    ours = (PHYSICAL_NAME_KEY, ID_KEY)

    def bare(column: StructField) -> StructField:
        return replace(column, metadata={k: v for k, v in column.metadata.items() if k not in ours})

    return _each_column(schema, bare)


def _each_column(schema: StructType, change: Callable[[StructField], StructField]) -> StructType:
    """The schema with a function applied to every column, parents first, including columns inside arrays and maps."""

    def inside(data_type: DataType) -> DataType:
        if isinstance(data_type, StructType):
            return _each_column(data_type, change)
        if isinstance(data_type, ArrayType):
            return replace(data_type, element_type=inside(data_type.element_type))
        if isinstance(data_type, MapType):
            return replace(data_type, key_type=inside(data_type.key_type), value_type=inside(data_type.value_type))
        return data_type

    changed = (change(column) for column in schema.fields)
    return StructType(tuple(replace(column, data_type=inside(column.data_type)) for column in changed))


# ----------------------------------------------------------------------------------------- ids for new columns


def check_mode_change(before: Mode, after: Mode, is_new: bool) -> None:
    """Refuse mode changes that delta-spark refuses, and disabling column mapping, which would require rewriting all
    files. An existing table cannot change to the column mapping mode id, because its files have no ids. Raises
    InvalidPropertyError.
    """
    if before == after or is_new or (before, after) == ("none", "name"):
        return
    if after == "none":
        why = "renamed and dropped columns would reappear; write the rows to a new table instead"
    elif before == "none":
        why = "the existing files have no column ids; set it to name, or to id when the table is created"
    else:
        why = "the mode of a table cannot be changed"
    raise InvalidPropertyError(f"{MODE_KEY} cannot change from {before} to {after}: {why}.", key=MODE_KEY)


def inherited(schema: StructType, before: StructType) -> StructType:
    """The schema, with the ids and physical names of ``before`` for columns that ``before`` also contains; other
    columns have no ids or physical names.

    Two columns at the same level count as the same column if their id and physical name match, even after a rename, or
    else if their names match and their types are equal apart from struct fields. Columns match one to one.
    """
    origins = _origins(schema, before)
    columns = []
    for column, origin in zip(schema.fields, origins, strict=True):
        stripped = unmapped(StructType((column,))).fields[0]
        if origin is None:
            columns.append(stripped)
            continue
        data_type = in_step(column.data_type, origin.data_type, inherited)
        columns.append(replace(column, data_type=data_type, metadata={**stripped.metadata, **_identity(origin)}))
    return StructType(tuple(columns))


def _identity(column: StructField) -> dict[str, Any]:
    return {key: column.metadata[key] for key in (ID_KEY, PHYSICAL_NAME_KEY) if key in column.metadata}


def _origins(schema: StructType, before: StructType) -> list[StructField | None]:
    unmatched = dict(enumerate(before.fields))
    by_identity: dict[str, list[int]] = {}
    by_name: dict[str, list[int]] = {}
    for place, column in unmatched.items():
        by_identity.setdefault(_identity_text(column), []).append(place)
        by_name.setdefault(column.name.lower(), []).append(place)

    def take(places: Sequence[int], fits: Callable[[StructField], bool] = lambda each: True) -> StructField | None:
        place = next((each for each in places if each in unmatched and fits(unmatched[each])), None)
        return None if place is None else unmatched.pop(place)

    def same_name(column: StructField) -> StructField | None:
        places = by_name.get(column.name.lower(), ())
        return take(places, lambda each: _is_alike(column.data_type, each.data_type))

    found = [
        take(by_identity.get(_identity_text(column), ())) if _identity(column) else None for column in schema.fields
    ]
    return [same_name(column) if each is None else each for column, each in zip(schema.fields, found, strict=True)]


def _identity_text(column: StructField) -> str:
    return json.dumps(_identity(column), sort_keys=True)


def _is_alike(one: DataType, other: DataType) -> bool:
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _is_alike(one.element_type, other.element_type)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return _is_alike(one.key_type, other.key_type) and _is_alike(one.value_type, other.value_type)
    return one == other or (isinstance(one, StructType) and isinstance(other, StructType))


# ----------------------------------------------------- delta.columnMapping.maxColumnId, which never falls


def max_column_id(configuration: Mapping[str, str]) -> int:
    """delta.columnMapping.maxColumnId, 0 if absent. Raises CorruptTableError."""
    text = configuration.get(MAX_ID_KEY, "0")
    if not text.isdecimal():
        raise CorruptTableError(f"The table property {MAX_ID_KEY} is {text!r}, which is not a number.")
    return int(text)


def with_kept_max_column_id(earlier: Metadata, now: Metadata) -> Metadata:
    """The metadata of an earlier version, but with the maxColumnId of ``now``, because the ids of columns that were
    dropped since that version must never be reassigned. The result equals ``earlier`` if neither version uses column
    ids. Raises CorruptTableError."""
    highest = max(max_column_id(each.configuration) for each in (earlier, now))
    return _with_max_column_id(earlier, highest) if highest else earlier


def with_column_ids(metadata: Metadata, max_id: int, new_name: Callable[[StructField], str]) -> Metadata:
    """The metadata with an id and a physical name added to every column that does not have them, and maxColumnId raised
    accordingly.

    ``max_id``: the current maxColumnId, or 0; new ids are greater than ``max_id`` and greater than every id in the
    schema. ``new_name`` returns a new physical name, which must be unique across all versions of the table.
    """
    used = (column.metadata.get(ID_KEY) for column in all_columns(metadata.schema))
    highest = max([max_id, *(each for each in used if isinstance(each, int))])

    def change(column: StructField) -> StructField:
        nonlocal highest
        own = dict(column.metadata)
        if ID_KEY not in own:
            highest += 1
            own[ID_KEY] = highest
        if PHYSICAL_NAME_KEY not in own:
            own[PHYSICAL_NAME_KEY] = new_name(column)
        return replace(column, metadata=own)

    return _with_max_column_id(_with_schema(metadata, _each_column(metadata.schema, change)), highest)


def _with_max_column_id(metadata: Metadata, max_id: int) -> Metadata:
    configuration = {**metadata.configuration, MAX_ID_KEY: str(max_id)}
    return msgspec.structs.replace(metadata, configuration=configuration)


def _with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    return msgspec.structs.replace(metadata, schema_string=schema.to_json())


def with_mapping(before: Metadata | None, after: Metadata, new_uuid: Callable[[], str]) -> Metadata:
    """``after`` with an id and a physical name for every column, if column mapping is enabled in it.

    ``before``: the previous metadata, whose columns keep their ids and names; None for a new table. When column mapping
    is enabled on an existing table, the column names become the physical names, because the files use them.

    Raises InvalidPropertyError for a mode change that is not allowed, and CorruptTableError.
    """
    mode = mode_of(after.configuration)
    old_mode = "none" if before is None else mode_of(before.configuration)
    check_mode_change(old_mode, mode, before is None)
    if mode == "none":
        # A schema copied from another table can contain that table's ids.
        stripped = unmapped(after.schema) if before is None else after.schema
        return after if stripped == after.schema else _with_schema(after, stripped)

    def fresh(column: StructField) -> str:
        return f"col-{new_uuid()}"

    if before is None:
        return with_column_ids(_with_schema(after, unmapped(after.schema)), 0, fresh)
    max_id = max_column_id(before.configuration)
    if old_mode == "none":
        return with_column_ids(_with_schema(after, unmapped(after.schema)), max_id, lambda column: column.name)
    # Raises if a column lacks its physical name: a fresh one would lose the column's values.
    physical_schema(before.schema, old_mode)
    return with_column_ids(_with_schema(after, inherited(after.schema, before.schema)), max_id, fresh)


# ----------------------------------------------------------------------------------- columns in files


def clustering_columns(configuration: str, schema: StructType, mode: Mode) -> tuple[tuple[str, ...], ...]:
    """The clustering columns as paths of logical names, from the domain metadata, which contains physical names.

    Raises CorruptTableError.
    """
    try:
        physical = json.loads(configuration)["clusteringColumns"]
        return tuple(_logical(path, schema, mode) for path in physical)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptTableError(f"The domain metadata {CLUSTERING_DOMAIN} has no list of columns: {error!r}.") from None


def clustered_by(domain: DomainMetadata | None, metadata: Metadata) -> tuple[tuple[str, ...], ...]:
    """Like ``clustering_columns``, from a table's domain metadata; empty if the table is not clustered. Raises
    CorruptTableError, InvalidPropertyError."""
    if domain is None or domain.removed:
        return ()
    return clustering_columns(domain.configuration, metadata.schema, mode_of(metadata.configuration))


def clustering_domain(paths: Sequence[Sequence[str]], schema: StructType, mode: Mode) -> DomainMetadata:
    """The domain metadata of a table clustered by ``paths`` (logical names). Empty ``paths``: the table is no longer
    clustered."""
    physical = [_physical(path, schema, mode) for path in paths]
    text = json.dumps({"clusteringColumns": physical, "domainName": CLUSTERING_DOMAIN}, separators=(",", ":"))
    return DomainMetadata(domain=CLUSTERING_DOMAIN, configuration=text, removed=False)


def _physical(path: Sequence[str], schema: StructType, mode: Mode) -> list[str]:
    names: list[str] = []
    level: DataType = schema
    for part in path:
        assert isinstance(level, StructType)
        column = level.field(part)
        names.append(physical_name(column, mode))
        level = column.data_type
    return names


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


def parquet_id(column: StructField, mode: Mode) -> dict[bytes, bytes] | None:
    """The pyarrow field metadata that sets the ``field_id`` of the Parquet column to the column id; None without column
    mapping.

    Raises CorruptTableError if column mapping is on and the column has no id.
    """
    if mode == "none":
        return None
    if not isinstance(column.metadata.get(ID_KEY), int):
        raise CorruptTableError(f"Column {column.name} has no {ID_KEY}, which column mapping needs.")
    return {_PARQUET_FIELD_ID: str(column.metadata[ID_KEY]).encode()}


def lookup(mode: Mode) -> Lookup:
    """A function that finds a column among the (pyarrow) fields that a file stores."""
    if mode == "id":
        return _by_id
    if mode == "name":
        return lambda stored: _by_name(stored, lambda column: physical_name(column, "name"))
    return lambda stored: _by_name(stored, lambda column: column.name)


def _by_name(stored: Sequence[Any], name_of: Callable[[StructField], str]) -> Find:
    exact = {field.name: index for index, field in reversed(list(enumerate(stored)))}
    folded = {field.name.lower(): index for index, field in reversed(list(enumerate(stored)))}

    def find(column: StructField) -> int | None:
        name = name_of(column)
        return exact[name] if name in exact else folded.get(name.lower())

    return find


def _by_id(stored: Sequence[Any]) -> Find:
    ids = {(field.metadata or {}).get(_PARQUET_FIELD_ID): index for index, field in reversed(list(enumerate(stored)))}
    by_name = _by_name(stored, lambda column: column.name)

    def find(column: StructField) -> int | None:
        if ID_KEY not in column.metadata:
            return by_name(column)  # a column of the change data feed, which is not a column of the table
        return ids.get(str(column.metadata[ID_KEY]).encode())

    return find
