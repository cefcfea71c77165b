"""Validates the transaction of any operation before it is committed. Pure.

Spec: PROTOCOL.md#add-file-and-remove-file, #append-only-tables, #partition-value-serialization, #delta-log-entries-1.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

from deltalog.arguments import shown
from deltalog.commit.prepared import Prepared
from deltalog.errors import CorruptTableError, InvalidActionError, UnsafePathError
from deltalog.log.replay import file_key
from deltalog.protocol import column_mapping, features, row_tracking
from deltalog.protocol.actions import Action, AddCDCFile, AddFile, Metadata, Protocol, RemoveFile
from deltalog.protocol.codec import AnyAction, encode_action, sound_lines
from deltalog.protocol.partitions import check_partition_columns, parse
from deltalog.protocol.paths import Place, are_ordinary, locate, place_of
from deltalog.protocol.properties import APPEND_ONLY
from deltalog.protocol.schema import StructType
from deltalog.protocol.schema_enforcement import check_column_names

A = TypeVar("A", bound=Action)
_PARTITION_VALUES = operator.attrgetter("partition_values")


def as_read_back(action: A, kind: type[A]) -> A:
    """An action, in the form in which readers of the log will decode it. The constructors of actions do not check
    types, and a commit that cannot be decoded would make the table unreadable. Raises InvalidActionError."""
    if not isinstance(action, kind):
        raise InvalidActionError(f"A {kind.KEY} action must have the type {kind.__name__}; got {shown(action)}.")
    try:
        same = action.as_read_back()
        encode_action(cast("AnyAction", same))
        if isinstance(same, Metadata):
            _ = same.schema  # raises if it cannot be parsed
    except CorruptTableError as error:
        of = f" of {action.path!a}" if isinstance(action, (AddFile, RemoveFile, AddCDCFile)) else ""
        raise InvalidActionError(f"The {kind.KEY} action{of} cannot be committed: {error}") from None
    return same


def check_prepared(
    prepared: Prepared, protocol: Protocol, metadata: Metadata, table: str, allowed_paths: Sequence[str] = ()
) -> None:
    """Refuse a transaction whose commit would make the table invalid.

    ``protocol``, ``metadata``: those of the table after the commit. ``table``: the URL of the table root.
    ``allowed_paths``: the locations outside the table that paths in the log may point to, as given when the table was
    opened. Raises InvalidActionError, SchemaMismatchError, UnsupportedFeatureError.
    """
    schema = metadata.schema
    features.check_writable(protocol, table)
    if prepared.metadata is not None:
        check_column_names(schema, column_mapping.mode_of(metadata.configuration) != "none")
        check_partition_columns(schema, metadata.partition_columns)
    check_adds(prepared.adds, metadata, schema, table, allowed_paths)
    if row_tracking.assigns_ids(protocol, metadata.configuration):
        row_tracking.check_countable(prepared.adds)
    _check_removes(prepared.removes, metadata, table)
    _check_unique(prepared, table)


def adds_as_read_back(adds: Sequence[AddFile]) -> tuple[bytes | None, Sequence[AddFile]]:
    """Like ``as_read_back``, for many adds. Returns the lines of the adds for the commit file (None if an add had to be
    changed), and the adds."""
    lines = sound_lines(adds)
    return lines, adds if lines is not None else [as_read_back(add, AddFile) for add in adds]


def check_adds(
    adds: Sequence[AddFile], metadata: Metadata, schema: StructType, table: str, allowed_paths: Sequence[str] = ()
) -> None:
    """Check that each add has a path inside the table or an allowed location, a valid value for each partition column,
    and no other partition values.

    Raises InvalidActionError, and CorruptTableError for a value that does not match the type of its column.
    """
    if not are_ordinary([add.path for add in adds]):
        places = [place_of(each) for each in (table, *allowed_paths)]
        for add in adds:
            _check_path(add, places)
    mode = column_mapping.mode_of(metadata.configuration)
    columns = [schema.field(name) for name in metadata.partition_columns]
    types = {column_mapping.physical_name(column, mode): column.data_type for column in columns}
    if not types and not any(map(_PARTITION_VALUES, adds)):
        return
    # Each distinct combination of partition values is checked only once.
    for add in {tuple(add.partition_values.items()): add for add in adds}.values():
        if add.partition_values.keys() != types.keys():
            raise InvalidActionError(
                f"add {add.path}: partition values for {sorted(add.partition_values)}, "
                f"but the table is partitioned by {sorted(types)}.",
                path=add.path,
            )
        for name, text in add.partition_values.items():
            parse(text, types[name], name)


def _check_path(add: AddFile, places: Sequence[Place]) -> None:
    try:
        locate(add.path, places)
    except UnsafePathError as error:
        raise InvalidActionError(f"add: {error}", path=add.path) from None


def _check_removes(removes: Iterable[RemoveFile], metadata: Metadata, table: str) -> None:
    if not APPEND_ONLY.read(metadata.configuration):
        return
    for remove in removes:
        if remove.data_change:
            raise InvalidActionError(
                f"{table} is append-only ({APPEND_ONLY.key}=true): {remove.path} cannot be removed. "
                "Unset the property to allow it.",
                path=remove.path,
            )


def _check_unique(prepared: Prepared, table: str) -> None:
    added = [add.path for add in prepared.adds]  # a path can be live only once, with one deletion vector or none
    removed = {remove.path for remove in prepared.removes}
    replaced = [add for add in prepared.adds if add.path in removed] if removed else []
    files: tuple[AddFile | RemoveFile, ...] = (*prepared.removes, *replaced)
    for names in (added, [file_key(file.path, file.deletion_vector) for file in files]):
        if len(set(names)) < len(names):
            twice = collections.Counter(names)
            path = next(name for name in names if twice[name] > 1).partition("\0")[0]
            raise InvalidActionError(f"{table}: {path} is staged twice in one transaction.", path=path)
    app_ids = [t.app_id for t in prepared.transactions]
    if len(set(app_ids)) != len(app_ids):
        raise InvalidActionError(f"{table}: the transaction sets two versions for an application id: {app_ids}.")
