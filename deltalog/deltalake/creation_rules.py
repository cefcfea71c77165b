"""The protocol that deltalake would give to a new table. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from deltalog.errors import CallError
from deltalog.protocol import features
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.column_metadata import INVARIANT_KEY
from deltalog.protocol.schema import all_columns

#: Properties that set the protocol versions. deltalake also stores them as table properties.
VERSION_KEYS = ("delta.minReaderVersion", "delta.minWriterVersion")
_LEGACY = {each.name: each.legacy_writer for each in features.FEATURES if each.legacy_writer is not None}


def without_lists(protocol: Protocol, metadata: Metadata) -> Protocol:
    """The protocol of a new table, as deltalake would set it. If a legacy writer version with reader version 1 implies
    all features, the protocol has these versions, so that older clients can use the table; otherwise it lists only the
    features that the table uses."""
    names = protocol.writer_features or ()
    if protocol.min_reader_version > 1 or any(name not in _LEGACY for name in names):
        unused = _unused(metadata)
        kept = tuple(name for name in names if name not in unused)
        return msgspec.structs.replace(protocol, writer_features=kept) if protocol.writer_features else protocol
    return Protocol(min_reader_version=1, min_writer_version=max([2, *(_LEGACY[name] for name in names)]))


def _unused(metadata: Metadata) -> set[str]:
    """The features that a new table does not use and therefore need not list: append-only tables, and rules for columns
    (NOT NULL and invariants)."""
    unused = set()
    if metadata.configuration.get("delta.appendOnly", "").lower() != "true":
        unused.add("appendOnly")
    columns = list(all_columns(metadata.schema))
    if all(column.nullable and INVARIANT_KEY not in column.metadata for column in columns):
        unused.add("invariants")
    return unused


def with_versions(protocol: Protocol, versions: Mapping[str, str]) -> Protocol:
    """A protocol with at least the versions that the properties specify. Raises CallError for versions that Delta
    lacks."""
    if not versions:
        return protocol
    try:
        reader, writer = (int(versions.get(key, "1")) for key in VERSION_KEYS)
    except ValueError:
        raise CallError(f"{', '.join(VERSION_KEYS)} are whole numbers; got {dict(versions)!r}.") from None
    if reader == 2 and writer < 5 and protocol.min_writer_version < 5:
        raise CallError(f"Reader version 2 needs writer version 5, not {writer}.")
    return features.upgraded(protocol, reader, max(writer, protocol.min_writer_version if reader > 1 else 1))


def with_version_keys(metadata: Metadata, versions: Mapping[str, str]) -> Metadata:
    """The metadata with ``versions`` added to its configuration."""
    return metadata.with_configuration({**metadata.configuration, **versions}) if versions else metadata
