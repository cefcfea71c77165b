"""Updates column ids, physical names and table features after a change of schema or properties. Pure.

Spec: PROTOCOL.md#writer-requirements-for-column-mapping, #writer-requirements-for-row-tracking, #table-features.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from deltalog.errors import CallError, InvalidPropertyError, SchemaMismatchError
from deltalog.protocol import column_mapping, features, row_tracking
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.column_paths import find, parse_paths, path_text
from deltalog.protocol.properties import DATA_SKIPPING_STATS_COLUMNS_KEY, ENABLE_CHANGE_DATA_FEED
from deltalog.protocol.schema import StructType, has_bounds, leaves

_FEED_COLUMNS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})


def complete(
    before: Metadata | None, after: Metadata, protocol: Protocol, new_uuid: Callable[[], str]
) -> tuple[Protocol, Metadata]:
    """The protocol and the metadata to commit when a caller sets the table's metadata to ``after``.

    ``before``: the previous metadata; None for a new table. With column mapping, new columns get ids and physical
    names; with row tracking, the materialised columns get names; the protocol gets the features that the metadata
    needs.

    Raises InvalidPropertyError, CorruptTableError, and SchemaMismatchError for a column whose name the change data feed
    uses.
    """
    _check_feed_columns(before, after)
    named = after.configuration.get(DATA_SKIPPING_STATS_COLUMNS_KEY)
    if named is not None and (before is None or named != before.configuration.get(DATA_SKIPPING_STATS_COLUMNS_KEY)):
        _check_indexed(named, after)
    mapped = column_mapping.with_mapping(before, after, new_uuid)
    configuration = row_tracking.with_materialized_names(mapped.configuration, new_uuid)
    result = msgspec.structs.replace(mapped, configuration=configuration)
    return features.with_features(protocol, features.features_for(result, result.schema)), result


def _check_indexed(named: str, metadata: Metadata) -> None:
    """Refuse values for which delta-spark would refuse the next change of the table. Raises InvalidPropertyError."""
    selected: set[tuple[str, ...]] = set()
    try:
        for path in parse_paths(named):
            names = tuple(find(metadata.schema, path[:end]).name for end in range(1, len(path) + 1))
            column = find(metadata.schema, path)
            kind = column.data_type
            if names[0] in metadata.partition_columns:
                raise CallError(f"{path_text(names)} partitions the table, and partition values need no statistics.")
            if len(names) == 1 and not isinstance(kind, StructType) and not has_bounds(kind):
                raise CallError(f"{path_text(names)} is of type {kind}, which has no bounds in statistics.")
            below = leaves(kind) if isinstance(kind, StructType) else [((), column)]
            for inner, _ in below:
                if (*names, *inner) in selected:
                    raise CallError(f"{path_text((*names, *inner))} is named twice.")
                selected.add((*names, *inner))
    except (CallError, SchemaMismatchError) as error:
        raise InvalidPropertyError(
            f"{DATA_SKIPPING_STATS_COLUMNS_KEY} cannot be {named!r}. {error}",
            key=DATA_SKIPPING_STATS_COLUMNS_KEY,
        ) from None


def _check_feed_columns(before: Metadata | None, after: Metadata) -> None:
    """Refuse a new column with the name of a change data feed column. A column that already had such a name before the
    change is allowed."""
    taken = _taken_feed_columns(after)
    if before is not None:
        taken -= _taken_feed_columns(before)
    if taken:
        raise SchemaMismatchError(
            f"The table has columns named {', '.join(sorted(taken))}, names that the change data feed uses. Rename the "
            f"columns, or set {ENABLE_CHANGE_DATA_FEED.key} to false."
        )


def _taken_feed_columns(metadata: Metadata) -> frozenset[str]:
    if metadata.configuration.get(ENABLE_CHANGE_DATA_FEED.key, "").lower() != "true":
        return frozenset()
    return _FEED_COLUMNS & {name.lower() for name in metadata.schema.names}
