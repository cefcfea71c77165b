"""Checks metaData actions (format, schema, partition columns, column mapping) and the metadata domains of features.
Pure.

Spec: PROTOCOL.md#change-metadata, #schema-serialization-format, #writer-requirements-for-column-mapping.
"""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deltalog.doctor.features import has
from deltalog.doctor.findings import Finding, found
from deltalog.doctor.iceberg import examine_iceberg
from deltalog.doctor.identity import changed_identity, examine_identities
from deltalog.errors import CorruptTableError, DeltaLogError, SchemaMismatchError
from deltalog.expressions.compile import compile_expression
from deltalog.protocol.actions import CommitInfo, DomainMetadata, Metadata, Protocol
from deltalog.protocol.column_mapping import (
    CLUSTERING_DOMAIN,
    MAX_ID_KEY,
    Mode,
    clustering_columns,
    max_column_id,
    mode_of,
    physical_name,
)
from deltalog.protocol.column_metadata import GENERATION_KEY, ID_KEY, INVARIANT_KEY, PHYSICAL_NAME_KEY, check_metadata
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
_ANY_TIME = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
# Parquet stores these types alike. Without type widening, delta-spark widens one to another in a write with schema
# merging, and records nothing.
_SAME_IN_FILES = frozenset(["byte", "short", "integer"])
_UNKNOWN_TYPE = re.compile(r"unknown type")


def schema_of(metadata: Metadata) -> StructType | None:
    """The schema; None if it cannot be parsed."""
    try:
        return metadata.schema
    except DeltaLogError:
        return None


def mapping_of(metadata: Metadata) -> Mode:
    """The column mapping mode; ``none`` if it is invalid."""
    try:
        return mode_of(metadata.configuration)
    except CorruptTableError:
        return "none"


def examine_metadata(protocol: Protocol | None, metadata: Metadata, version: int, path: str) -> Iterator[Finding]:
    """Check one metaData action by itself."""
    if metadata.format.provider != "parquet":
        yield found("metadata-format", f"The provider is {metadata.format.provider!r}.", version, path)
    if not metadata.schema_string:
        yield found("metadata-schema-missing", "schemaString is empty or missing.", version, path)
        return
    try:
        schema = metadata.schema
    except DeltaLogError as error:
        text = str(error)
        rule = "schema-type-unknown" if _UNKNOWN_TYPE.search(text) else "metadata-schema-invalid"
        if "two fields with one name" in text:
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
    # Column ids and physical names matter only if readers use them.
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
            yield "partition-column-unknown", f"{name!r} is not one of the columns {', '.join(schema.names[:50])}."
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
        yield "column-mapping-max-id-low", f"{MAX_ID_KEY} is {text}, but a column has the id {max(ids, default=0)}."


def _expressions(metadata: Metadata, schema: StructType) -> Iterator[tuple[str, str]]:
    for key, text in metadata.configuration.items():
        if key.startswith(CONSTRAINT_PREFIX):
            try:
                compile_expression(text, schema, PrimitiveType("boolean"), _ANY_TIME)
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
                condition = json.loads(invariant)["expression"]["expression"]
                compile_expression(condition, schema, PrimitiveType("boolean"), _ANY_TIME)
            except (DeltaLogError, ValueError, KeyError, TypeError, RecursionError) as error:
                yield "invariant-invalid", f"{'.'.join(path)}: {error}"


class EarlierMetadata:
    """The most recent metaData actions with their versions: at most ``MOST``, with schemas of about ``MOST_BYTES`` in
    total."""

    MOST, MOST_BYTES = 1_000, 64 << 20

    def __init__(self) -> None:
        self._found: deque[tuple[int, Metadata]] = deque()
        self._bytes = 0

    def take(self, version: int, metadata: Metadata) -> None:
        self._found.append((version, metadata))
        self._bytes += len(metadata.schema_string or "")
        while len(self._found) > self.MOST or (len(self._found) > 1 and self._bytes > self.MOST_BYTES):
            self._bytes -= len(self._found.popleft()[1].schema_string or "")

    def restored_by(self, info: CommitInfo | None) -> list[Metadata] | None:
        """The actions that a RESTORE commit may have restored: if the commit names a version, the action from that
        version; otherwise every candidate, newest first. Empty if the named version is older than all candidates; None
        if the commit is not a RESTORE."""
        if info is None or info.operation != "RESTORE":
            return None
        parameters = info.body.get("operationParameters")
        named = parameters.get("version") if isinstance(parameters, dict) else None
        version = int(named) if isinstance(named, str) and re.fullmatch(r"\d{1,19}", named, re.ASCII) else named
        newest_first = reversed(self._found)
        if not isinstance(version, int) or isinstance(version, bool):
            return [metadata for _, metadata in newest_first]
        return [metadata for number, metadata in newest_first if number <= version][:1]


def examine_change(
    before: Metadata,
    after: Metadata,
    version: int,
    path: str,
    has_older_files: bool,
    restored: Sequence[Metadata] | None = None,
    records_types: bool = True,
) -> Iterator[Finding]:
    """Compare a metaData action with the previous one. ``has_older_files``: whether files written under the previous
    metaData action are still live. ``restored``: if the commit is a restore, the metaData actions that the commit may
    have restored. After a restore, the columns are compared with the columns in these actions, because the files that
    are live after a restore were written with those columns. ``records_types``: whether the table supports type
    widening, so that every change of a type must be recorded."""
    if before.id != after.id:
        yield found("metadata-id-changed", f"It was {before.id} and is now {after.id}.", version, path)
    old, new = mapping_of(before), mapping_of(after)
    if old != new and "none" not in (old, new):
        yield found("column-mapping-mode-changed", f"It was {old} and is now {new}.", version, path)
    try:
        if max_column_id(after.configuration) < max_column_id(before.configuration) and new != "none" and old != "none":
            text = f"It was {max_column_id(before.configuration)} and is now {max_column_id(after.configuration)}."
            yield found("column-mapping-max-id-decreased", text, version, path)
    except CorruptTableError:
        pass  # reported by examine_metadata
    if not has_older_files:
        return
    first: list[tuple[str, str]] = []
    for each in [before] if restored is None else restored:
        wrong = list(_changed_columns(each, after, records_types))
        if not wrong:
            first = []
            break
        first = first or wrong
    marks = list(_changed_marks(before, after)) if restored is not None else []
    yield from (found(rule, text, version, path) for rule, text in dict.fromkeys([*first, *marks]))


def _changed_marks(before: Metadata, after: Metadata) -> Iterator[tuple[str, str]]:
    """Report identity columns whose high-water mark decreases; even a restore must not lower it."""
    old, new = schema_of(before), schema_of(after)
    for column in new.fields if old is not None and new is not None else ():
        known = old.find(column.name) if old is not None else None
        for rule, text in changed_identity(known, column, column.name) if known is not None else ():
            if rule == "identity-mark-decreased":
                yield rule, text


def _changed_columns(before: Metadata, after: Metadata, records_types: bool) -> Iterator[tuple[str, str]]:
    """Report changes of columns that matter when files that were written with the schema ``before`` are read."""
    old_schema, new_schema = schema_of(before), schema_of(after)
    if old_schema is None or new_schema is None:
        return
    if before.partition_columns != after.partition_columns and (
        physical_names(before, old_schema) != physical_names(after, new_schema)
    ):
        text = f"They were {list(before.partition_columns)} and are now {list(after.partition_columns)}."
        yield "partition-columns-changed", text
    modes = mapping_of(before), mapping_of(after)
    if (
        modes[0] == modes[1] or "id" not in modes
    ):  # files from before column mapping have no ids, so reading by id finds no columns
        old, new = _by_identity(old_schema, *modes), _by_identity(new_schema, *reversed(modes))
        yield from _changed_fields(old, new, records_types)
        yield from _changed_names(old_schema, new_schema, *modes)


def physical_names(metadata: Metadata, schema: StructType) -> list[str]:
    """The keys in ``partitionValues``: the physical names of the partition columns, or the names themselves for columns
    that the schema lacks."""
    mode = mapping_of(metadata)
    names = []
    for name in metadata.partition_columns:
        column = schema.find(name)
        try:
            names.append(name if column is None else physical_name(column, mode))
        except CorruptTableError:
            names.append(name)
    return names


def _changed_fields(
    old: Mapping[Any, tuple[tuple[str, ...], StructField]],
    new: Mapping[Any, tuple[tuple[str, ...], StructField]],
    records_types: bool,
) -> Iterator[tuple[str, str]]:
    for key, (path, column) in new.items():
        if key in old:
            name = ".".join(path)
            yield from _changed_type(old[key][1], column, name, records_types)
            yield from changed_identity(old[key][1], column, name)


def _by_identity(schema: StructType, mode: Mode, other: Mode) -> dict[Any, tuple[tuple[str, ...], StructField]]:
    """The columns at every depth with their paths, keyed by their identity in files: the id with mode ``id``, otherwise
    the path of physical names. The names are lower-cased if ``mode`` or ``other`` is ``none``."""
    known: dict[Any, tuple[tuple[str, ...], StructField]] = {}
    for path, physical, column in _physical_paths(schema, mode):
        if mode == "id":
            key: Any = column.metadata.get(ID_KEY)
        else:
            key = tuple(name.lower() for name in physical) if "none" in (mode, other) else physical
        if key is not None:
            known[key] = (path, column)
    return known


def _physical_paths(schema: StructType, mode: Mode) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], StructField]]:
    """Each column with its logical path and its physical path."""
    physical: dict[tuple[str, ...], tuple[str, ...]] = {(): ()}
    for path, column in columns_by_path(schema):
        own = column.name if mode == "none" else column.metadata.get(PHYSICAL_NAME_KEY, column.name)
        above = next(path[:end] for end in range(len(path) - 1, -1, -1) if path[:end] in physical)
        physical[path] = (*physical[above], *path[len(above) : -1], str(own))
        yield path, physical[path], column


def _changed_names(old: StructType, new: StructType, before: Mode, after: Mode) -> Iterator[tuple[str, str]]:
    """Report columns that keep their path and type but change their id or their physical name. If column mapping is
    turned on or off, only the physical names are compared; without mapping the physical names are the logical names."""
    if before == after == "none":
        return
    earlier = {path: (physical, column) for path, physical, column in _physical_paths(old, before)}
    for path, physical, column in _physical_paths(new, after):
        known, same = earlier.get(path, (physical, column))
        if same.data_type != column.data_type:
            continue
        name = ".".join(path)
        if before == after and _mapping_keys(same) != _mapping_keys(column):
            text = f"{name} had {_mapping_keys(same)} and now has {_mapping_keys(column)}."
            yield "column-mapping-column-changed", text
        elif before != after and known[-1].lower() != physical[-1].lower():
            yield (
                "column-mapping-column-changed",
                f"{name} is {known[-1]} in older files and {physical[-1]} in new ones.",
            )


def _mapping_keys(column: StructField) -> tuple[Any, Any]:
    return column.metadata.get(ID_KEY), column.metadata.get(PHYSICAL_NAME_KEY)


def _changed_type(before: StructField, after: StructField, name: str, records_types: bool) -> Iterator[tuple[str, str]]:
    old, new = before.data_type, after.data_type
    nested = (StructType, ArrayType, MapType)
    if isinstance(old, nested) and isinstance(new, nested):
        if type(old) is not type(new):
            yield "column-type-changed", f"{name} was {old} and is now {new}."
        return
    if old == new or "void" in (str(old), str(new)):
        return
    if isinstance(old, nested) or isinstance(new, nested) or not is_widening(old, new):
        yield "column-type-changed", f"{name} was {old} and is now {new}."
    elif TYPE_CHANGES_KEY not in after.metadata and (records_types or not {str(old), str(new)} <= _SAME_IN_FILES):
        yield "type-change-unrecorded", f"{name} was {old} and is now {new}."


def examine_domains(
    protocol: Protocol, metadata: Metadata, domains: Mapping[str, DomainMetadata], version: int, path: str
) -> Iterator[Finding]:
    """Check the metadata domains of clustering and row tracking, and the table properties of row tracking."""
    schema = schema_of(metadata)
    if has(protocol, "clustering"):
        if metadata.partition_columns:
            text = f"The partition columns are {', '.join(metadata.partition_columns)}."
            yield found("clustering-with-partitions", text, version, path)
        domain = domains.get(CLUSTERING_DOMAIN)
        if domain is None:
            yield found("clustering-domain-missing", f"The domain {CLUSTERING_DOMAIN} is missing.", version, path)
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
            yield found("row-tracking-columns", f"{key} is {name}, which is also a column of the table.", version, path)
    if names[0] is not None and names[0] == names[1]:
        yield found("row-tracking-columns", f"Both column names are {names[0]}.", version, path)
