"""What a change of schema or properties brings with it: ids, physical names, features. Pure.

Spec: PROTOCOL.md#writer-requirements-for-column-mapping, #writer-requirements-for-row-tracking, #table-features.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from deltalog.protocol import column_mapping, features, row_tracking
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.schema import StructField


def settled(
    before: Metadata | None, after: Metadata, protocol: Protocol, new_uuid: Callable[[], str]
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata as they are to be committed where a caller asked for ``after``.

    ``before``: the metadata as it was; None for a table that is created. New columns of a mapped table get ids and
    physical names, and a table that turns to column mapping gets them for all columns, the names being those that
    its files have. Features that the result needs are added to the protocol. Raises InvalidPropertyError,
    CorruptTableError.
    """
    mapped = _with_mapping(before, after, new_uuid)
    configuration = row_tracking.with_materialized_names(mapped.configuration, new_uuid)
    result = msgspec.structs.replace(mapped, configuration=configuration)
    return features.with_features(protocol, features.features_for(result, result.schema)), result


def _with_mapping(before: Metadata | None, after: Metadata, new_uuid: Callable[[], str]) -> Metadata:
    mode = column_mapping.mode_of(after.configuration)
    old_mode = "none" if before is None else column_mapping.mode_of(before.configuration)
    column_mapping.check_mode_change(old_mode, mode, before is None)
    if mode == "none":
        # Ids of another table in a schema that was copied from it.
        schema = after.schema
        stripped = column_mapping.unmapped(schema) if before is None else schema
        return after if stripped == schema else msgspec.structs.replace(after, schema_string=stripped.to_json())

    def fresh(column: StructField) -> str:
        return f"col-{new_uuid()}"

    def as_before(column: StructField) -> str:
        return column.name

    known = column_mapping.unmapped(after.schema)
    if before is not None and old_mode != "none":
        # Raises where a column lacks its name: a fresh one would lose the column's values.
        column_mapping.physical_schema(before.schema, old_mode)
        known = column_mapping.inherited(after.schema, before.schema)
    highest = 0 if before is None else column_mapping.highest_id(before.configuration)
    turns_on = before is not None and old_mode == "none"
    schema, highest = column_mapping.assigned(known, highest, as_before if turns_on else fresh)
    configuration = {**after.configuration, column_mapping.MAX_ID_KEY: str(highest)}
    return msgspec.structs.replace(after, schema_string=schema.to_json(), configuration=configuration)
