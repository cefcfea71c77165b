"""The metaData action: format, schema, partition columns, column mapping, and the domains of features. Pure.

Spec: PROTOCOL.md#change-metadata, #schema-serialization-format, #writer-requirements-for-column-mapping.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from deltalog.doctor.features import has
from deltalog.doctor.findings import Finding, found
from deltalog.doctor.iceberg import examine_iceberg
from deltalog.doctor.identity import changed_identity, examine_identities
from deltalog.errors import CorruptTableError, DeltaLogError, SchemaMismatchError
from deltalog.expressions.compile import compile_expression
from deltalog.protocol.actions import DomainMetadata, Metadata, Protocol
from deltalog.protocol.column_mapping import (
    CLUSTERING_DOMAIN,
    ID_KEY,
    MAX_ID_KEY,
    PHYSICAL_NAME_KEY,
    Mode,
    clustering_columns,
    max_column_id,
    mode_of,
    physical_name,
)
from deltalog.protocol.column_metadata import GENERATION_KEY, INVARIANT_KEY, check_metadata
from deltalog.protocol.properties import CONSTRAINT_PREFIX
from deltalog.protocol.row_tracking import DOMAIN as ROW_TRACKING_DOMAIN
from deltalog.protocol.row_tracking import high_water_mark
from deltalog.protocol.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    all_columns,
    columns_by_path,
)
from deltalog.protocol.widening import TYPE_CHANGES_KEY, is_widening

_REFUSED_NAME = re.compile(r"[ ,;{}()\n\t=]")
_UNKNOWN_TYPE = re.compile(r"unknown type")


def schema_of(metadata: Metadata) -> StructType | None:
    """The schema; None where it cannot be parsed."""
    try:
        return metadata.schema
    except DeltaLogError:
        return None


def mapping_of(metadata: Metadata) -> Mode:
    """The column mapping mode; ``none`` where it cannot be read."""
    try:
        return mode_of(metadata.configuration)
    except CorruptTableError:
        return "none"


def examine_metadata(protocol: Protocol | None, metadata: Metadata, version: int, path: str) -> Iterator[Finding]:
    """All that one metaData action shows by itself."""
    if metadata.format.provider != "parquet":
        yield found("metadata-format", f"It is {metadata.format.provider!r}.", version, path)
    if not metadata.schema_string:
        yield found("metadata-schema-missing", "schemaString is empty or missing.", version, path)
        return
    try:
        schema = metadata.schema
    except DeltaLogError as error:
        text = str(error)
        rule = "schema-type-unknown" if _UNKNOWN_TYPE.search(text) else "metadata-schema-invalid"
        if "two fields of one name" in text:
            rule = "schema-column-twice"
        yield found(rule, text, version, path)
        return
    mode = mapping_of(metadata)
    iceberg = examine_iceberg(protocol, metadata, schema) if protocol is not None else ()
    for rule, text in (
        *_columns(schema, mode),
        *_partitioning(metadata, schema),
        *examine_identities(schema),
        *iceberg,
    ):
        yield found(rule, text, version, path)
    # Ids and names matter only where readers use them.
    if mode != "none" and protocol is not None and has(protocol, "columnMapping"):
        for rule, text in _mapping(schema, metadata.configuration):
            yield found(rule, text, version, path)
    for rule, text in _expressions(metadata, schema):
        yield found(rule, text, version, path)


def _columns(schema: StructType, mode: Mode) -> Iterator[tuple[str, str]]:
    structs = [schema, *(each.data_type for each in all_columns(schema) if isinstance(each.data_type, StructType))]
    for struct in structs:
        for name, times in Counter(column.name.lower() for column in struct.fields).items():
            if times > 1:
                yield "schema-column-twice", f"{name!r} is there {times} times."
    for path, column in columns_by_path(schema):
        name = ".".join(path)
        if mode == "none" and _REFUSED_NAME.search(column.name):
            yield "schema-column-name", f"The name of the column is {name!r}."
        try:
            check_metadata(column.metadata, name)
        except SchemaMismatchError as error:
            yield "schema-key-invalid", str(error)
        yield from _type_changes(column, name)


def _type_changes(column: StructField, name: str) -> Iterator[tuple[str, str]]:
    changes = column.metadata.get(TYPE_CHANGES_KEY)
    if changes is None:
        return
    if not isinstance(changes, list) or not all(isinstance(change, dict) for change in changes):
        yield "type-change-invalid", f"{TYPE_CHANGES_KEY} of {name} is not a list of objects."
        return
    for change in changes:
        before, after = change.get("fromType"), change.get("toType")
        try:
            types = [
                StructType.from_json(json.dumps({"type": "struct", "fields": [_one(each)]})).fields[0].data_type
                for each in (before, after)
            ]
        except DeltaLogError:
            yield "type-change-invalid", f"A change of {name} is from {before!r} to {after!r}."
            continue
        if not is_widening(types[0], types[1]):
            yield "type-change-invalid", f"A change of {name} is from {before} to {after}."


def _one(kind: Any) -> dict[str, Any]:
    return {"name": "a", "type": kind, "nullable": True, "metadata": {}}


def _partitioning(metadata: Metadata, schema: StructType) -> Iterator[tuple[str, str]]:
    names = metadata.partition_columns
    for name in names:
        column = schema.find(name)
        if column is None:
            yield "partition-column-unknown", f"{name!r} is not among the columns {', '.join(schema.names[:50])}."
        elif isinstance(column.data_type, (StructType, ArrayType, MapType)) or str(column.data_type) == "variant":
            yield "partition-column-type", f"{name} is {column.data_type}."
    for name, times in Counter(name.lower() for name in names).items():
        if times > 1:
            yield "partition-column-twice", f"{name!r} is there {times} times."


def _mapping(schema: StructType, configuration: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    ids: Counter[int] = Counter()
    names: Counter[tuple[str, ...]] = Counter()
    for path, column in columns_by_path(schema):
        name = ".".join(path)
        number, physical = column.metadata.get(ID_KEY), column.metadata.get(PHYSICAL_NAME_KEY)
        if isinstance(number, int) and not isinstance(number, bool):
            ids[number] += 1
        else:
            yield "column-mapping-id-missing", f"{ID_KEY} of {name} is {number!r}."
        if not isinstance(physical, str) or not physical:
            yield "column-mapping-name-missing", f"{PHYSICAL_NAME_KEY} of {name} is {physical!r}."
        else:
            whole = (*path[:-1], physical)
            names[whole] += 1
    for number, times in ids.items():
        if times > 1:
            yield "column-mapping-id-twice", f"{times} columns have the id {number}."
    for physical_path, times in names.items():
        if times > 1:
            yield "column-mapping-name-twice", f"{times} columns have the physical name {physical_path[-1]}."
    text = configuration.get(MAX_ID_KEY)
    try:
        highest = max_column_id(configuration)
    except CorruptTableError as error:
        yield "column-mapping-max-id-low", str(error)
        return
    if text is None or highest < max(ids, default=0):
        yield "column-mapping-max-id-low", f"{MAX_ID_KEY} is {text}, and a column has the id {max(ids, default=0)}."


def _expressions(metadata: Metadata, schema: StructType) -> Iterator[tuple[str, str]]:
    for key, text in metadata.configuration.items():
        if key.startswith(CONSTRAINT_PREFIX):
            try:
                compile_expression(text, schema, PrimitiveType("boolean"))
            except DeltaLogError as error:
                yield "constraint-invalid", f"{key.removeprefix(CONSTRAINT_PREFIX)}: {error}"

    for path, column in columns_by_path(schema):
        generation, invariant = column.metadata.get(GENERATION_KEY), column.metadata.get(INVARIANT_KEY)
        if isinstance(generation, str):
            try:
                compile_expression(generation, schema, column.data_type)
            except DeltaLogError as error:
                yield "generated-column-invalid", f"{'.'.join(path)}: {error}"
        if isinstance(invariant, str):
            try:
                compile_expression(json.loads(invariant)["expression"]["expression"], schema, PrimitiveType("boolean"))
            except (DeltaLogError, ValueError, KeyError, TypeError, RecursionError) as error:
                yield "invariant-invalid", f"{'.'.join(path)}: {error}"


def examine_change(
    before: Metadata, after: Metadata, version: int, path: str, has_older_files: bool
) -> Iterator[Finding]:
    """One metaData action after another. ``has_older_files``: whether files of the earlier one stay live."""
    if before.id != after.id:
        yield found("metadata-id-changed", f"It was {before.id}, and is {after.id}.", version, path)
    old, new = mapping_of(before), mapping_of(after)
    if old != new and "none" not in (old, new):
        yield found("column-mapping-mode-changed", f"It was {old}, and is {new}.", version, path)
    try:
        if max_column_id(after.configuration) < max_column_id(before.configuration) and new != "none" and old != "none":
            text = f"It was {max_column_id(before.configuration)}, and is {max_column_id(after.configuration)}."
            yield found("column-mapping-max-id-decreased", text, version, path)
    except CorruptTableError:
        pass  # examine_metadata reports it
    old_schema, new_schema = schema_of(before), schema_of(after)
    if not has_older_files or old_schema is None or new_schema is None:
        return
    if before.partition_columns != after.partition_columns and (
        physical_names(before, old_schema) != physical_names(after, new_schema)
    ):
        text = f"They were {list(before.partition_columns)}, and are {list(after.partition_columns)}."
        yield found("partition-columns-changed", text, version, path)
    if old == new:
        for rule, text in _changed_columns(old_schema, new_schema, new):
            yield found(rule, text, version, path)


def physical_names(metadata: Metadata, schema: StructType) -> list[str]:
    """The names by which partition values are tracked; the names themselves where the schema lacks them."""
    mode = mapping_of(metadata)
    names = []
    for name in metadata.partition_columns:
        column = schema.find(name)
        try:
            names.append(name if column is None else physical_name(column, mode))
        except CorruptTableError:
            names.append(name)
    return names


def _changed_columns(old: StructType, new: StructType, mode: Mode) -> Iterator[tuple[str, str]]:
    def identity(path: tuple[str, ...], column: StructField) -> Any:
        return column.metadata.get(ID_KEY) if mode == "id" else (
            column.metadata.get(PHYSICAL_NAME_KEY) if mode == "name" else tuple(name.lower() for name in path)
        )  # fmt: skip

    earlier = {identity(path, column): (path, column) for path, column in columns_by_path(old)}
    earlier.pop(None, None)
    for path, column in columns_by_path(new):
        name = ".".join(path)
        known = earlier.get(identity(path, column))
        if known is not None:
            yield from _changed_type(known[1], column, name)
            yield from changed_identity(known[1], column, name)
        if mode == "none":
            continue
        same = next((each for each_path, each in columns_by_path(old) if each_path == path), None)
        if same is not None and _mapping_keys(same) != _mapping_keys(column) and same.data_type == column.data_type:
            text = f"{name} had {_mapping_keys(same)}, and has {_mapping_keys(column)}."
            yield "column-mapping-column-changed", text


def _mapping_keys(column: StructField) -> tuple[Any, Any]:
    return column.metadata.get(ID_KEY), column.metadata.get(PHYSICAL_NAME_KEY)


def _changed_type(before: StructField, after: StructField, name: str) -> Iterator[tuple[str, str]]:
    old, new = before.data_type, after.data_type
    nested = (StructType, ArrayType, MapType)
    if isinstance(old, nested) and isinstance(new, nested):
        if type(old) is not type(new):
            yield "column-type-changed", f"{name} was {old}, and is {new}."
        return
    if old == new or "void" in (str(old), str(new)):
        return
    if isinstance(old, nested) or isinstance(new, nested) or not is_widening(old, new):
        yield "column-type-changed", f"{name} was {old}, and is {new}."
    elif TYPE_CHANGES_KEY not in after.metadata:
        yield "type-change-unrecorded", f"{name} was {old}, and is {new}."


def examine_domains(
    protocol: Protocol, metadata: Metadata, domains: Mapping[str, DomainMetadata], version: int, path: str
) -> Iterator[Finding]:
    """The domains of clustering and row tracking, and the properties of the latter."""
    schema = schema_of(metadata)
    if has(protocol, "clustering"):
        if metadata.partition_columns:
            text = f"The partition columns are {', '.join(metadata.partition_columns)}."
            yield found("clustering-with-partitions", text, version, path)
        domain = domains.get(CLUSTERING_DOMAIN)
        if domain is None:
            yield found("clustering-domain-missing", f"There is no domain {CLUSTERING_DOMAIN}.", version, path)
        elif schema is not None:
            try:
                clustering_columns(domain.configuration, schema, mapping_of(metadata))
            except DeltaLogError as error:
                yield found("clustering-column-unknown", str(error), version, path)
    if has(protocol, "rowTracking"):
        yield from _row_tracking(metadata, schema, domains, version, path)


def _row_tracking(
    metadata: Metadata, schema: StructType | None, domains: Mapping[str, DomainMetadata], version: int, path: str
) -> Iterator[Finding]:
    configuration = metadata.configuration
    enabled = configuration.get("delta.enableRowTracking", "").lower() == "true"
    if enabled and configuration.get("delta.rowTrackingSuspended", "").lower() == "true":
        yield found("row-tracking-suspended", "delta.rowTrackingSuspended is true.", version, path)
    try:
        high_water_mark([domains[ROW_TRACKING_DOMAIN]] if ROW_TRACKING_DOMAIN in domains else [])
    except CorruptTableError as error:
        yield found("row-id-high-water-mark", str(error), version, path)
    if not enabled:
        return
    keys = [f"delta.rowTracking.materialized{name}ColumnName" for name in ("RowId", "RowCommitVersion")]
    names = [configuration.get(key) for key in keys]
    used = {column.metadata.get(PHYSICAL_NAME_KEY, column.name) for column in (schema.fields if schema else ())}
    for key, name in zip(keys, names, strict=True):
        if name is None:
            yield found("row-tracking-columns", f"{key} is not set.", version, path)
        elif name in used:
            yield found("row-tracking-columns", f"{key} is {name}, which is a column of the table.", version, path)
    if names[0] is not None and names[0] == names[1]:
        yield found("row-tracking-columns", f"Both names are {names[0]}.", version, path)
