"""A table's metadata as the UC Delta API shows and changes it, computed from the actions of the log. Pure.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#catalog-and-log-consistency, #load-a-table ("synthetic property keys").
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from deltalog.protocol import features
from deltalog.protocol.actions import DomainMetadata, Metadata, Protocol
from deltalog.protocol.properties import UNITY_TABLE_ID_KEY
from deltalog.protocol.schema import StructType
from deltalog.unity import messages
from deltalog.unity.columns import to_columns

TABLE_ID_KEY = UNITY_TABLE_ID_KEY
CLUSTERING, ROW_TRACKING = "delta.clustering", "delta.rowTracking"
LAST_UPDATE_VERSION, LAST_COMMIT_TIMESTAMP = "delta.lastUpdateVersion", "delta.lastCommitTimestamp"
_FEATURE = "delta.feature."
_DERIVED = frozenset(
    {
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.clusteringColumns",
        "delta.rowTracking.rowIdHighWaterMark",
        LAST_UPDATE_VERSION,
        LAST_COMMIT_TIMESTAMP,
    }
)


@dataclass(frozen=True, slots=True)
class TableState:
    """What the log says about a table at one version, apart from its files. ``domains``: the configurations of its
    metadata domains that are JSON objects whose values survive transport, by domain; the API has no form for others."""

    protocol: Protocol
    metadata: Metadata
    domains: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata, domains: Iterable[DomainMetadata]) -> TableState:
        found = ((each.domain, _object(each.configuration)) for each in domains if not each.removed)
        return cls(protocol, metadata, {domain: value for domain, value in found if value is not None})

    def after(
        self, protocol: Protocol | None, metadata: Metadata | None, domains: Iterable[DomainMetadata]
    ) -> TableState:
        """The state after a commit with these actions."""
        merged = dict(self.domains)
        for each in domains:
            merged.pop(each.domain, None)
            value = None if each.removed else _object(each.configuration)
            if value is not None:
                merged[each.domain] = value
        return TableState(protocol or self.protocol, metadata or self.metadata, merged)

    @property
    def schema(self) -> StructType:
        return self.metadata.schema

    def derived_properties(self) -> dict[str, str]:
        """The properties that a server derives from protocol and domains. Clients never write them to a log."""
        return self.derived_of(self.protocol, self.domains)

    @staticmethod
    def derived_of(protocol: Protocol, domains: Mapping[str, dict[str, Any]]) -> dict[str, str]:
        """``derived_properties`` of a table with this protocol and these domains."""
        derived = {
            "delta.minReaderVersion": str(protocol.min_reader_version),
            "delta.minWriterVersion": str(protocol.min_writer_version),
        }
        for name in (*features.reader_features(protocol), *features.writer_features(protocol)):
            derived[f"{_FEATURE}{name}"] = "supported"
        clustering = domains.get(CLUSTERING, {}).get("clusteringColumns")
        if clustering is not None:
            derived["delta.clusteringColumns"] = json.dumps(clustering, separators=(",", ":"))
        mark = domains.get(ROW_TRACKING, {}).get("rowIdHighWaterMark")
        if mark is not None:
            derived["delta.rowTracking.rowIdHighWaterMark"] = str(mark)
        return derived

    def etag(self, *others: object) -> str:
        """A token that changes with the metadata, and not with rows. The mark of row tracking, which most appends
        move, does not count. ``others``: what the catalog knows besides, such as the table's comment."""
        metadata = msgspec.structs.replace(self.metadata, schema_string=self.schema.to_json())
        domains = {domain: value for domain, value in self.domains.items() if domain != ROW_TRACKING}
        parts = [self.protocol.to_json(), metadata.to_json(), domains, others]
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_derived(key: str) -> bool:
    """Whether a property in a response is derived by the server, so that it must not be written to a log."""
    return key in _DERIVED or key.startswith(_FEATURE)


def updates_between(before: TableState, after: TableState) -> list[messages.Update]:
    """The update actions that must accompany a commit which turns ``before`` into ``after``; none if only rows
    change."""
    updates: list[messages.Update] = []
    if after.protocol != before.protocol:
        updates.append(messages.SetProtocol(protocol=messages.TableProtocol.from_action(after.protocol)))
    if after.metadata != before.metadata:
        updates.extend(_metadata_updates(before.metadata, after.metadata))
    changed = {domain: value for domain, value in after.domains.items() if before.domains.get(domain) != value}
    if changed:
        updates.append(messages.SetDomainMetadata(updates=changed))
    removed = tuple(domain for domain in before.domains if domain not in after.domains)
    if removed:
        updates.append(messages.RemoveDomainMetadata(domains=removed))
    return updates


def _metadata_updates(before: Metadata, after: Metadata) -> Iterable[messages.Update]:
    old, new = before.configuration, after.configuration
    changed = {key: value for key, value in new.items() if old.get(key) != value}
    if changed:
        yield messages.SetProperties(updates=changed)
    removed = tuple(key for key in old if key not in new)
    if removed:
        yield messages.RemoveProperties(removals=removed)
    if before.schema != after.schema:
        yield messages.SetColumns(columns=to_columns(after.schema))
    if before.partition_columns != after.partition_columns:
        yield messages.SetPartitionColumns(partition_columns=after.partition_columns)
    if (before.description or "") != (after.description or ""):
        yield messages.SetTableComment(comment=after.description or "")


def _object(configuration: str) -> dict[str, Any] | None:
    """The JSON object in the configuration of a domain, or None: another writer may have put any text there. Also None
    for an object with values that not every JSON library carries unchanged, such as NaN and integers of more than 64
    bits."""
    try:
        value = json.loads(configuration, parse_int=_integer, parse_float=_number, parse_constant=_number)
        msgspec.json.encode(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _integer(text: str) -> int:
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(text)
    return value


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
