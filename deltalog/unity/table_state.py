"""A table's metadata as the UC Delta API shows and changes it, computed from the actions of the log. Pure.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#catalog-and-log-consistency, #load-a-table ("synthetic property keys").
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from deltalog.errors import CallError
from deltalog.protocol import features
from deltalog.protocol.actions import DomainMetadata, Metadata, Protocol
from deltalog.protocol.properties import UNITY_TABLE_ID_KEY
from deltalog.protocol.schema import StructType
from deltalog.unity import messages
from deltalog.unity.columns import from_columns, to_columns

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
# Properties that a server may derive from other things than the metadata of the last version.
_UNRELATED = frozenset({LAST_UPDATE_VERSION, LAST_COMMIT_TIMESTAMP, "delta.rowTracking.rowIdHighWaterMark"})
_MOST_KEYS, _MOST_OF_KEY = 20, 100


@dataclass(frozen=True)
class TableState:
    """What the log says about a table at one version, apart from its files. ``domains``: the configurations of its
    metadata domains that are JSON objects whose values survive transport, by domain; the API has no form for those in
    ``other_domains``. What is derived from the schema is kept, because a server answers many requests from one
    state."""

    protocol: Protocol
    metadata: Metadata
    domains: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    other_domains: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata, domains: Iterable[DomainMetadata]) -> TableState:
        return cls(protocol, metadata).after(None, None, domains)

    def after(
        self, protocol: Protocol | None, metadata: Metadata | None, domains: Iterable[DomainMetadata]
    ) -> TableState:
        """The state after a commit with these actions."""
        merged, others = dict(self.domains), dict(self.other_domains)
        for each in domains:
            merged.pop(each.domain, None)
            others.pop(each.domain, None)
            value = None if each.removed else _object(each.configuration)
            if value is not None:
                merged[each.domain] = value
            elif not each.removed:
                others[each.domain] = each.configuration
        return TableState(protocol or self.protocol, metadata or self.metadata, merged, others)

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
        """A token that changes with the metadata, and not with rows. The high-water mark of row tracking, which most
        appends move, does not count. ``others``: what the catalog knows besides, such as the table's comment."""
        return _hash_of([self._hash, others])

    @functools.cached_property
    def columns_json(self) -> bytes:
        """The schema in the form of the API, as JSON. Raises as ``to_columns``."""
        return msgspec.json.encode(to_columns(self.schema))

    @functools.cached_property
    def _hash(self) -> str:
        metadata = msgspec.structs.replace(self.metadata, schema_string=self.schema.to_json())
        domains = {domain: value for domain, value in self.domains.items() if domain != ROW_TRACKING}
        return _hash_of([self.protocol.to_json(), metadata.to_json(), domains, dict(self.other_domains)])


def _hash_of(parts: list[Any]) -> str:
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


def differences(shown: messages.TableMetadata, state: TableState) -> list[str]:
    """What a server shows of a table other than its log has it: names, never values. The mark of row tracking, which
    most commits move, is not compared, nor are properties that only the catalog has."""
    different = []
    try:
        if from_columns(shown.columns) != state.schema:
            different.append("the columns")
    except CallError:
        different.append("the columns, which are not a schema")
    if tuple(shown.partition_columns or ()) != tuple(state.metadata.partition_columns):
        different.append("the partition columns")
    expected = {**state.metadata.configuration, **state.derived_properties()}
    keys = {key for key, value in expected.items() if shown.properties.get(key) != value}
    keys |= {key for key in shown.properties if key.startswith("delta.") and key not in expected}
    keys -= _UNRELATED
    return [*different, *(f"the property {key[:_MOST_OF_KEY]}" for key in sorted(keys)[:_MOST_KEYS])]


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
