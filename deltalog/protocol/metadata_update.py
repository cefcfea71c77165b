"""The consequences of a change of schema or properties: column ids, physical names, table features. Pure.

Spec: PROTOCOL.md#writer-requirements-for-column-mapping, #writer-requirements-for-row-tracking, #table-features.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from deltalog.protocol import column_mapping, features, row_tracking
from deltalog.protocol.actions import Metadata, Protocol


def complete(
    before: Metadata | None, after: Metadata, protocol: Protocol, new_uuid: Callable[[], str]
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata to commit when a caller sets the metadata ``after``.

    ``before``: the metadata as it was; None for a table that is created. New columns of a mapped table get ids and
    physical names, row tracking its columns' names, and the protocol the features that the result needs.

    Raises InvalidPropertyError, CorruptTableError.
    """
    mapped = column_mapping.with_mapping(before, after, new_uuid)
    configuration = row_tracking.with_materialized_names(mapped.configuration, new_uuid)
    result = msgspec.structs.replace(mapped, configuration=configuration)
    return features.with_features(protocol, features.features_for(result, result.schema)), result
