"""Changes to a table's columns, name and metadata domains: the staged actions and the commitInfo of each verb.

Spec: PROTOCOL.md#column-mapping, #type-widening, #domain-metadata, #identity-columns. The operation names are those of
delta-spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.errors import CallError, SchemaMismatchError
from deltalog.expressions.sql import names_in
from deltalog.protocol import column_mapping, column_paths, widening
from deltalog.protocol.actions import Metadata
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.column_metadata import DEFAULT_KEY, GENERATION_KEY, IDENTITY_KEY, INVARIANT_KEY
from deltalog.protocol.column_paths import Path, Place, parse_path, parse_paths, path_text
from deltalog.protocol.identity_columns import identity_of, with_marks
from deltalog.protocol.properties import CONSTRAINT_PREFIX, DATA_SKIPPING_STATS_COLUMNS_KEY, ENABLE_TYPE_WIDENING
from deltalog.protocol.schema import DataType, StructField, StructType, columns_by_path
from deltalog.write.commit_info import UserMetadata
from deltalog.write.identity_values import IdentityValues
from deltalog.write.table_rules import expression_of_invariant
from deltalog.write.transaction import Transaction, skipped

ColumnPath = str | Sequence[str]
ColumnPaths = Sequence[ColumnPath]
NewColumns: TypeAlias = StructType | pa.Schema | Iterable[StructField]
# Metadata that an added column cannot have, because existing rows would need values.
_NEEDS_VALUES = {
    GENERATION_KEY: "a generation expression",
    DEFAULT_KEY: "a default",
    IDENTITY_KEY: "ids",
}


# ------------------------------------------------------------------------------------------------- columns


def add_columns(
    transaction: Transaction,
    columns: NewColumns,
    user_metadata: UserMetadata,
    after: Mapping[str, str | None] | None = None,
) -> CommitResult:
    """Commit new columns. Each new column is added at the end of the table or of its parent struct, or directly after
    the sibling column that ``after`` names."""
    wanted = list(StructType.from_arrow(columns) if isinstance(columns, pa.Schema) else columns)
    if not wanted:
        raise CallError("add_columns needs at least one column.")
    if not all(isinstance(column, StructField) for column in wanted):
        raise CallError(
            "add_columns takes a pyarrow schema, a StructType or a list of StructField, as in "
            "add_columns(pa.schema([('note', pa.string())]))."
        )
    places = {name: Place(other) for name, other in (after or {}).items()}
    unknown = [name for name in places if name not in [column.name for column in wanted]]
    if unknown:
        raise CallError(f"after contains {unknown[0]}, which is not one of the columns to add.")
    schema = transaction.schema
    logged = []
    for column in wanted:
        *parent, name = parse_path(column.name)
        _check_addable(column)
        place = places.get(column.name)
        schema = column_paths.add(schema, tuple(parent), replace(column, name=name), place)
        logged.append({"column": _described((*parent, name), column), **_position(place)})
    transaction.set_schema(schema)
    return transaction.commit("ADD COLUMNS", {"columns": canonical_json(logged)}, user_metadata=user_metadata)


def _check_addable(column: StructField) -> None:
    if not column.nullable:
        raise SchemaMismatchError(
            f"Column {column.name} is NOT NULL, but existing rows would have nulls in it. Add it as nullable."
        )
    for key, what in _NEEDS_VALUES.items():
        if key in column.metadata:
            raise SchemaMismatchError(
                f"Column {column.name} cannot be added with {what} ({key}): existing rows would violate it."
            )


def rename_column(
    transaction: Transaction, path: ColumnPath, new_name: str, user_metadata: UserMetadata
) -> CommitResult:
    """Commit a new name for a column. Data files do not change."""
    old = parse_path(path)
    new = (*old[:-1], new_name)
    _check_mapped(transaction.metadata, "Renaming")
    column = column_paths.find(transaction.schema, old)
    if column.name == new_name:
        return skipped(transaction)
    _check_independent(transaction.metadata, old, "renamed")
    schema = column_paths.change(transaction.schema, old, lambda found: replace(found, name=new_name))
    partition_by = list(transaction.metadata.partition_columns)
    if len(old) == 1:
        partition_by = [new_name if name == column.name else name for name in partition_by]
    transaction.set_schema(schema, partition_by)
    _rewrite_stats_columns(transaction, lambda each: (*new, *each[len(old) :]) if _is_below(each, old) else each)
    parameters = {"oldColumnPath": path_text(old), "newColumnPath": path_text(new)}
    return transaction.commit("RENAME COLUMN", parameters, user_metadata=user_metadata)


def drop_columns(transaction: Transaction, paths: Sequence[ColumnPath], user_metadata: UserMetadata) -> CommitResult:
    """Commit the removal of columns. The values remain in the data files, but readers no longer return these values."""
    if isinstance(paths, str):
        raise CallError(f"Pass the columns as a list: drop_columns([{paths!r}]).")
    dropped = [parse_path(path) for path in paths]
    if not dropped:
        raise CallError("drop_columns needs at least one column.")
    metadata, schema = transaction.metadata, transaction.schema
    _check_mapped(metadata, "Dropping")
    for path in dropped:
        column = column_paths.find(transaction.schema, path)
        if len(path) == 1 and column.name in metadata.partition_columns:
            raise SchemaMismatchError(f"Column {path[0]} is a partition column and cannot be dropped.")
        _check_not_clustering(transaction, path)
        _check_independent(metadata, path, "dropped")
        schema = column_paths.drop(schema, path)
    if all(column.name in metadata.partition_columns for column in schema):
        raise SchemaMismatchError("Only partition columns would be left. A table needs at least one other column.")
    transaction.set_schema(schema)
    _rewrite_stats_columns(transaction, lambda each: None if any(_is_below(each, path) for path in dropped) else each)
    parameters = {"columns": canonical_json([path_text(path) for path in dropped])}
    return transaction.commit("DROP COLUMNS", parameters, user_metadata=user_metadata)


def set_column(
    transaction: Transaction,
    path: ColumnPath,
    nullable: bool | None,
    comment: str | None,
    data_type: DataType | pa.DataType | None,
    user_metadata: UserMetadata,
    sync_identity: bool = False,
    place: Place | None = None,
) -> CommitResult:
    """Commit changes to one column: nullability, a comment ("" removes it), a wider type, another position. None:
    unchanged. ``sync_identity``: advance the high-water mark of an identity column past all its values."""
    where = parse_path(path)
    column = column_paths.find(transaction.schema, where)
    changed = column
    if nullable is False and column.nullable:
        raise SchemaMismatchError(
            f"Column {path_text(where)} cannot become NOT NULL: existing rows may have nulls in it. "
            "Add a constraint instead."
        )
    if nullable:
        changed = replace(changed, nullable=True)
    if comment is not None:
        kept = {key: value for key, value in changed.metadata.items() if key != "comment"}
        changed = replace(changed, metadata={**kept, "comment": comment} if comment else kept)
    if data_type is not None:
        changed = _with_type(transaction.metadata, where, changed, _delta_type(data_type))
    if sync_identity:
        changed = _synced(transaction, where, changed)
    schema = column_paths.change(transaction.schema, where, lambda found: changed)
    if place is not None:
        schema = column_paths.move(schema, where, place)
    if schema == transaction.schema:
        return skipped(transaction)
    transaction.set_schema(schema)
    parameters = {"column": canonical_json(_described(where, changed)), **_position(place)}
    return transaction.commit("CHANGE COLUMN", parameters, user_metadata=user_metadata)


def _position(place: Place | None) -> dict[str, str]:
    """The operation parameter for a column's position, in the form that delta-spark writes."""
    return {} if place is None else {"position": str(place)}


def _with_type(metadata: Metadata, path: Path, column: StructField, data_type: DataType) -> StructField:
    wider = widening.widened(column.data_type, data_type, path_text(path))
    if wider == column.data_type:
        return column
    if not ENABLE_TYPE_WIDENING.read(metadata.configuration):
        raise SchemaMismatchError(
            f"The type of {path_text(path)} cannot change from {column.data_type} to {wider} because type widening is "
            f"off. Turn it on with set_properties({{'{ENABLE_TYPE_WIDENING.key}': 'true'}})."
        )
    _check_independent(metadata, path, "given another type")
    if GENERATION_KEY in column.metadata:
        raise SchemaMismatchError(
            f"Column {path_text(path)} is generated: its type is the type of its expression and cannot change."
        )
    after = StructType((replace(column, data_type=wider),))
    return widening.recorded(StructType((column,)), after).fields[0]


def _synced(transaction: Transaction, path: Path, column: StructField) -> StructField:
    """The identity column with its high-water mark advanced past all values in the table. Records that the whole table
    was read, for conflict detection."""
    identity = identity_of(column) if len(path) == 1 else None
    if identity is None:
        raise SchemaMismatchError(f"Column {path_text(path)} is not an identity column, so it has no high-water mark.")
    assert transaction.snapshot is not None
    transaction.read_whole_table()
    values = IdentityValues(transaction.snapshot.url)
    values.resume([identity])
    for batch in transaction.snapshot.scan(columns=[column.name]).batches():
        values.note(column.name, batch.column(0))
    return with_marks(StructType((column,)), values.marks).fields[0]


def _delta_type(data_type: DataType | pa.DataType) -> DataType:
    if isinstance(data_type, pa.DataType):
        return StructType.from_arrow(pa.schema([pa.field("type", data_type)])).fields[0].data_type
    if not isinstance(data_type, DataType):
        raise CallError(
            f"data_type must be a pyarrow type, such as pa.int64(), or a deltalog DataType; got {data_type!r}."
        )
    return data_type


def _described(path: Sequence[str], column: StructField) -> dict[str, Any]:
    # Of nested types only the kind is written, as in delta-spark; the schema contains the details.
    kind = json.loads(StructType((column,)).to_json())["fields"][0]["type"]
    name = kind["type"] if isinstance(kind, dict) else kind
    return {"name": path_text(path), "type": name, "nullable": column.nullable, "metadata": dict(column.metadata)}


# ------------------------------------------------------------------------------------------------- refusals


def _check_mapped(metadata: Metadata, what: str) -> None:
    if column_mapping.mode_of(metadata.configuration) == "none":
        raise CallError(
            f"{what} a column requires column mapping, so that no data file is rewritten. Turn it on first with "
            f"set_properties({{'{column_mapping.MODE_KEY}': 'name'}}). Clients without column mapping are then locked "
            "out."
        )


def _check_not_clustering(transaction: Transaction, path: Path) -> None:
    assert transaction.snapshot is not None
    for clustering in transaction.snapshot.clustering_columns:
        if _is_below(clustering, path):
            raise SchemaMismatchError(
                f"Column {path_text(clustering)} is a clustering column and cannot be dropped. Change the clustering "
                "columns first (cluster_by)."
            )


def _check_independent(metadata: Metadata, path: Path, what: str) -> None:
    """Raise SchemaMismatchError if an expression of the table uses the column."""
    for owner, text in _expressions(metadata):
        names = names_in(text)
        if names is None or path[0].lower() in names:
            raise SchemaMismatchError(
                f"Column {path_text(path)} cannot be {what}: {owner} ({text}) depends on {path_text(path[:1])}. Drop "
                "it first."
            )


def _expressions(metadata: Metadata) -> Iterator[tuple[str, str]]:
    for key, text in metadata.configuration.items():
        if key.startswith(CONSTRAINT_PREFIX):
            yield f"the constraint {key.removeprefix(CONSTRAINT_PREFIX)}", text
    for path, column in columns_by_path(metadata.schema):
        if GENERATION_KEY in column.metadata:
            yield f"the generated column {path_text(path)}", str(column.metadata[GENERATION_KEY])
        if INVARIANT_KEY in column.metadata:
            yield f"an invariant of {path_text(path)}", _invariant(column.metadata[INVARIANT_KEY])


def _invariant(text: Any) -> str:
    try:
        return expression_of_invariant(text)
    except CallError:
        return str(text)


def _is_below(path: Sequence[str], above: Path) -> bool:
    return [name.lower() for name in path[: len(above)]] == [name.lower() for name in above]


def _rewrite_stats_columns(transaction: Transaction, change: Callable[[Path], Path | None]) -> None:
    """Update the paths in delta.dataSkippingStatsColumns. ``change``: maps an old path to the new one, or to None for a
    dropped column."""
    text = transaction.metadata.configuration.get(DATA_SKIPPING_STATS_COLUMNS_KEY)
    if text is None:
        return
    changed = map(change, parse_paths(text))
    kept = ",".join(path_text(path) for path in changed if path is not None)
    transaction.set_properties({DATA_SKIPPING_STATS_COLUMNS_KEY: kept})


# ------------------------------------------------------------------------------------------ name and domains


def set_table(
    transaction: Transaction, name: str | None, description: str | None, user_metadata: UserMetadata
) -> CommitResult:
    """Commit a new name or description of the table. None: unchanged."""
    given = {key: value for key, value in (("name", name), ("description", description)) if value is not None}
    before = transaction.metadata
    if all(getattr(before, key) == value for key, value in given.items()):
        return skipped(transaction)
    transaction.set_metadata(**given)
    return transaction.commit("SET TBLPROPERTIES", {"properties": canonical_json(given)}, user_metadata=user_metadata)


def set_domain_metadata(
    transaction: Transaction, domain: str, configuration: str | Mapping[str, Any], user_metadata: UserMetadata
) -> CommitResult:
    """Commit the configuration of a custom metadata domain; a mapping is written as JSON."""
    if not isinstance(configuration, (str, Mapping)):
        raise CallError(f"The configuration of a metadata domain must be text or a mapping; got {configuration!r}.")
    text = configuration if isinstance(configuration, str) else canonical_json(dict(configuration))
    transaction.set_domain_metadata(domain, text)
    return transaction.commit("SET DOMAIN METADATA", {"domain": domain}, user_metadata=user_metadata)


def remove_domain_metadata(transaction: Transaction, domain: str, user_metadata: UserMetadata) -> CommitResult:
    """Commit the removal of a custom metadata domain. If the domain does not exist, nothing is committed."""
    assert transaction.snapshot is not None
    transaction.remove_domain_metadata(domain)
    if all(each.domain != domain for each in transaction.snapshot.domain_metadata):
        return skipped(transaction)
    return transaction.commit("REMOVE DOMAIN METADATA", {"domain": domain}, user_metadata=user_metadata)


def set_column_metadata(
    transaction: Transaction, path: ColumnPath, metadata: Mapping[str, Any], user_metadata: UserMetadata = None
) -> CommitResult:
    """Commit changes to some entries of a column's metadata; the other entries are kept. Raises CallError for entries
    that the protocol defines, which other verbs set."""
    where = parse_path(path)
    owned = sorted(key for key in metadata if key.startswith("delta."))
    if owned:
        raise CallError(f"The metadata {owned[0]} of column {path_text(where)} is maintained by the writer.")
    schema = column_paths.change(
        transaction.schema, where, lambda found: replace(found, metadata={**found.metadata, **metadata})
    )
    if schema == transaction.schema:
        return skipped(transaction)
    transaction.set_schema(schema)
    changed = column_paths.find(schema, where)
    return transaction.commit(
        "UPDATE FIELD METADATA", {"column": canonical_json(_described(where, changed))}, user_metadata=user_metadata
    )
