"""The rules for new tables: what a server requires of version 0, and what the client tells the server about that
version. Pure.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#create-a-staging-table, #create-a-table.
"""

from __future__ import annotations

from collections.abc import Mapping

from deltalog.commit.attempt import Attempt
from deltalog.errors import InvalidPropertyError, UnsupportedFeatureError
from deltalog.protocol import features
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.properties import FEATURE_PREFIX
from deltalog.unity import messages
from deltalog.unity.columns import to_columns
from deltalog.unity.names import TableName
from deltalog.unity.table_state import TableState, is_derived

_OF_CATALOG = "io.unitycatalog."


def properties_for(staging: messages.StagingTable, given: Mapping[str, str], table: TableName) -> dict[str, str]:
    """The properties of the new table: the caller's, those that the server requires, and the features that it requires,
    as ``delta.feature.…``. What the server only suggests is left to the caller. Raises InvalidPropertyError for a
    property of the caller that contradicts the server's, UnsupportedFeatureError."""
    required = staging.required_properties
    for key, value in given.items():
        wanted = required.get(key)
        if key.startswith(_OF_CATALOG) or (is_derived(key) and not key.startswith(FEATURE_PREFIX)):
            raise InvalidPropertyError(
                f"{table.address}: the property {key} is set by the catalog. Leave it out.", key=key
            )
        if wanted is not None and value.lower() != wanted.lower():
            raise InvalidPropertyError(
                f"{table.address}: the catalog requires {key}={wanted} of a managed table, not {value}. Leave it out.",
                key=key,
            )
    protocol = staging.required_protocol.to_action()
    names = dict.fromkeys((*features.writer_features(protocol), *features.reader_features(protocol)))
    features.check_writable(
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=tuple(features.reader_features(protocol)),
                 writer_features=tuple(names)),
        table.address,
    )  # fmt: skip
    return {
        **given,
        **{f"{FEATURE_PREFIX}{name}": "supported" for name in names},
        **{key: value for key, value in required.items() if value is not None},
    }


def check_required(staging: messages.StagingTable, protocol: Protocol, metadata: Metadata, table: TableName) -> None:
    """Refuse a version 0 that lacks what the server requires; of a property whose value the client generates, only the
    existence is checked. Raises UnsupportedFeatureError."""
    required = staging.required_protocol.to_action()
    missing = [name for name in features.writer_features(required) if name not in features.writer_features(protocol)]
    missing += [name for name in features.reader_features(required) if name not in features.reader_features(protocol)]
    missing += [
        key
        for key, value in staging.required_properties.items()
        if (found := metadata.configuration.get(key)) is None or (value is not None and found != value)
    ]
    if missing:
        raise UnsupportedFeatureError(
            f"{table.address}: the catalog requires {', '.join(dict.fromkeys(missing))} of a managed table, and the "
            "new table would not have it. Nothing was created.",
            features=tuple(dict.fromkeys(missing)),
        )


def create_request(
    table: TableName,
    location: str,
    attempt: Attempt,
    table_type: messages.TableType = "MANAGED",
) -> messages.CreateTable:
    """The request that registers the table whose version 0 an attempt has written at ``location``."""
    actions = attempt.actions
    assert actions.metadata is not None
    state = TableState.of(attempt.protocol, actions.metadata, actions.domains)
    return request_for(table, location, state, attempt.timestamp_ms, table_type)


def request_for(
    table: TableName, location: str, state: TableState, timestamp_ms: int, table_type: messages.TableType
) -> messages.CreateTable:
    """The request that registers a table whose latest version has this state. ``timestamp_ms``: the timestamp of that
    version."""
    metadata = state.metadata
    return messages.CreateTable(
        name=table.table,
        location=location,
        table_type=table_type,
        comment=metadata.description,
        columns=to_columns(metadata.schema),
        partition_columns=metadata.partition_columns,
        protocol=messages.TableProtocol.from_action(state.protocol),
        properties=dict(metadata.configuration),
        domain_metadata=dict(state.domains),
        last_commit_timestamp_ms=timestamp_ms,
    )
