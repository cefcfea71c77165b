"""What must not be committed, whoever asks for it. Pure.

Spec: PROTOCOL.md#add-file-and-remove-file, #append-only-tables, #partition-value-serialization.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deltalog.errors import InvalidActionError, InvalidCommitError, UnsafePathError
from deltalog.log.replay import file_key
from deltalog.spec import column_mapping, features, row_tracking
from deltalog.spec.actions import AddFile, Metadata, Protocol, RemoveFile
from deltalog.spec.codec import are_sound, encode_action
from deltalog.spec.partitions import check_partition_columns, parse
from deltalog.spec.paths import locate, place_of
from deltalog.spec.properties import APPEND_ONLY
from deltalog.spec.schema import StructType, check_column_names
from deltalog.write.conflicts import Prepared


def check_prepared(prepared: Prepared, protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse a transaction that would break the table it leaves behind.

    Raises InvalidActionError, SchemaMismatchError, UnsupportedFeatureError.
    """
    schema = metadata.schema
    features.check_writable(protocol, metadata, schema, table)
    if prepared.metadata is not None:
        check_column_names(schema, column_mapping.mode_of(metadata.configuration) != "none")
        check_partition_columns(schema, metadata.partition_columns)
    check_adds(prepared.adds, metadata, schema, table)
    if row_tracking.FEATURE in features.writer_features(protocol):
        row_tracking.check_countable(prepared.adds)
    _check_removes(prepared.removes, metadata, table)
    _check_unique(prepared, table)


def check_encodable(adds: Sequence[AddFile]) -> None:
    """Refuse an action with a field of a wrong type or range: constructors do not check, and a commit that
    cannot be read back would break the table. Raises InvalidActionError."""
    if not are_sound(adds):
        for action in adds:
            _check_encodable(action)


def _check_encodable(action: AddFile) -> None:
    try:
        AddFile.from_json(action.to_json())
        encode_action(action)
    except (InvalidCommitError, TypeError, ValueError, OverflowError) as error:
        raise InvalidActionError(f"The add action of {action.path!a} is not valid: {error}") from None


def check_adds(adds: Iterable[AddFile], metadata: Metadata, schema: StructType, table: str) -> None:
    """Paths inside the table, a readable value for each partition column, none for others."""
    mode = column_mapping.mode_of(metadata.configuration)
    columns = [schema.field(name) for name in metadata.partition_columns]
    types = {column_mapping.physical_name(column, mode): column.data_type for column in columns}
    expected, places = set(types), [place_of(table)]
    readable: set[tuple[str, str | None]] = set()  # many files have the same few values
    for add in adds:
        try:
            locate(add.path, places)
        except UnsafePathError as error:
            raise InvalidActionError(f"add: {error}", path=add.path) from None
        if add.partition_values.keys() != expected:
            raise InvalidActionError(
                f"add {add.path}: partition values for {sorted(add.partition_values)}, "
                f"but the table is partitioned by {sorted(expected)}.",
                path=add.path,
            )
        for value in add.partition_values.items():
            if value not in readable:
                name, text = value
                parse(text, types[name], name)
                readable.add(value)


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
    seen: set[str] = set()
    files: tuple[AddFile | RemoveFile, ...] = (*prepared.adds, *prepared.removes)
    for action in files:
        key = file_key(action.path, action.deletion_vector)
        if key in seen:
            raise InvalidActionError(f"{table}: {action.path} is staged twice in one transaction.", path=action.path)
        seen.add(key)
    app_ids = [t.app_id for t in prepared.transactions]
    if len(set(app_ids)) != len(app_ids):
        raise InvalidActionError(f"{table}: one transaction sets two versions for an application id: {app_ids}.")
