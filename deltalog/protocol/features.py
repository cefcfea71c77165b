"""The registry of table features, and the checks whether deltalog can read and write a table with a given protocol.
Pure.

Spec: PROTOCOL.md#table-features, #valid-feature-names-in-table-features, #supported-features, #active-features,
#writer-version-requirements, #reader-version-requirements, #requirements-for-readers,
#timestamp-without-timezone-timestampntz.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from deltalog.errors import CallError, InvalidPropertyError, UnsupportedFeatureError
from deltalog.lazy_names import lazy_modules
from deltalog.protocol import timestamps
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.column_metadata import DEFAULT_KEY, GENERATION_KEY, IDENTITY_KEY, INVARIANT_KEY
from deltalog.protocol.properties import (
    CATALOG_ID_KEY,
    CONSTRAINT_PREFIX,
    ENABLE_VARIANT_SHREDDING,
    FEATURE_PREFIX,
    UNITY_TABLE_ID_KEY,
)
from deltalog.protocol.schema import StructType, all_columns, uses_type

if TYPE_CHECKING:
    import difflib
else:
    lazy_modules(__name__, "difflib")


class Writes(enum.Enum):
    """Whether deltalog can write tables that list a feature."""

    YES = "yes"
    NO = "no"


class Feature(msgspec.Struct, frozen=True):
    """A table feature. ``legacy_reader`` and ``legacy_writer`` are the protocol versions that imply the feature;
    ``requires`` names the features that must be listed with it."""

    name: str
    reader: bool
    reads: bool
    writes: Writes
    legacy_reader: int | None = None
    legacy_writer: int | None = None
    requires: tuple[str, ...] = ()


CATALOG_MANAGED = "catalogManaged"

FEATURES: tuple[Feature, ...] = (
    #       name                     reader reads  writes            legacy versions
    Feature("appendOnly", False, True, Writes.YES, legacy_writer=2),
    Feature("invariants", False, True, Writes.YES, legacy_writer=2),
    Feature("checkConstraints", False, True, Writes.YES, legacy_writer=3),
    Feature("changeDataFeed", False, True, Writes.YES, legacy_writer=4),
    Feature("generatedColumns", False, True, Writes.YES, legacy_writer=4),
    Feature("columnMapping", True, True, Writes.YES, legacy_reader=2, legacy_writer=5),
    Feature("identityColumns", False, True, Writes.YES, legacy_writer=6),
    Feature("allowColumnDefaults", False, True, Writes.YES),
    Feature("deletionVectors", True, True, Writes.YES),
    Feature("rowTracking", False, True, Writes.YES, requires=("domainMetadata",)),
    Feature("domainMetadata", False, True, Writes.YES),
    Feature("clustering", False, True, Writes.YES, requires=("domainMetadata",)),
    Feature("timestampNtz", True, True, Writes.YES),
    Feature("typeWidening", True, True, Writes.YES),
    Feature("typeWidening-preview", True, True, Writes.YES),
    Feature("variantType", True, True, Writes.YES),
    Feature("variantType-preview", True, True, Writes.YES),
    Feature("variantShredding", True, True, Writes.YES, requires=("variantType",)),
    Feature("variantShredding-preview", True, True, Writes.YES),
    Feature("v2Checkpoint", True, True, Writes.YES),
    Feature("vacuumProtocolCheck", True, True, Writes.YES),
    Feature("checkpointProtection", False, True, Writes.YES),
    Feature(timestamps.FEATURE, False, True, Writes.YES),
    *(Feature(alias, False, True, Writes.NO) for alias in timestamps.FEATURE_ALIASES),
    Feature("icebergCompatV1", False, True, Writes.NO, requires=("columnMapping",)),
    Feature("icebergCompatV2", False, True, Writes.NO, requires=("columnMapping",)),
    Feature("icebergCompatV3", False, True, Writes.NO),
    Feature("materializePartitionColumns", False, True, Writes.NO),
    Feature("collations-preview", False, True, Writes.NO),
    Feature(CATALOG_MANAGED, True, True, Writes.YES, requires=(timestamps.FEATURE, "vacuumProtocolCheck")),
)
_BY_NAME = {feature.name: feature for feature in FEATURES}

MAX_READER_VERSION = 3
MAX_WRITER_VERSION = 7


def writer_features(protocol: Protocol) -> tuple[str, ...]:
    """The features that writers must honour, including those that legacy versions imply."""
    if protocol.min_writer_version >= MAX_WRITER_VERSION:
        return protocol.writer_features or ()
    return tuple(
        f.name for f in FEATURES if f.legacy_writer is not None and f.legacy_writer <= protocol.min_writer_version
    )


def reader_features(protocol: Protocol) -> tuple[str, ...]:
    """The features that readers must honour, including those that legacy versions imply."""
    if protocol.min_reader_version >= MAX_READER_VERSION:
        return protocol.reader_features or ()
    return tuple(
        f.name for f in FEATURES if f.legacy_reader is not None and f.legacy_reader <= protocol.min_reader_version
    )


def check_protocol(protocol: Protocol) -> None:
    """Refuse a protocol action that contradicts itself, regardless of what deltalog supports."""
    if protocol.reader_features is not None and protocol.min_reader_version != MAX_READER_VERSION:
        raise UnsupportedFeatureError(
            f"The protocol has readerFeatures at reader version {protocol.min_reader_version}; "
            "only version 3 can list them.",
            features=protocol.reader_features,
        )


def check_readable(protocol: Protocol, table: str) -> None:
    """Raise UnsupportedFeatureError, naming each unsupported feature, if the table cannot be read."""
    version = protocol.min_reader_version
    if not 1 <= version <= MAX_READER_VERSION:
        raise UnsupportedFeatureError(
            f"{table} needs reader version {version}; deltalog reads versions 1 to {MAX_READER_VERSION}. "
            "Use a newer client.",
            features=(),
        )
    unknown = [n for n in reader_features(protocol) if n not in _BY_NAME or not _BY_NAME[n].reads]
    if unknown:
        raise UnsupportedFeatureError(
            f"{table} needs reader features that deltalog does not support: {', '.join(unknown)}. "
            "Read it with a client that supports them.",
            features=tuple(unknown),
        )


def is_catalog_managed(protocol: Protocol) -> bool:
    """Whether a catalog, rather than the files in the log, determines which commits a table has."""
    return CATALOG_MANAGED in writer_features(protocol)


def check_reached(protocol: Protocol, table: str, catalog: str | None) -> None:
    """Like ``check_readable``; also refuse a catalog-managed table that was not opened through a catalog.

    ``catalog``: the catalog through which the table was opened; None if it was opened by its location.
    Spec: PROTOCOL.md#reader-requirements-for-catalog-managed-tables.
    """
    check_readable(protocol, table)
    if catalog is None and is_catalog_managed(protocol):
        raise UnsupportedFeatureError(
            f"{table} is managed by a catalog ({CATALOG_MANAGED}), and only the catalog knows its latest version. Open "
            "it through the catalog: TransactionManager(<catalog>).table(<name>), or, in a Unity Catalog, "
            "DeltaTable.open('uc://catalog.schema.table').",
            features=(CATALOG_MANAGED,),
        )


def check_stays_managed(before: Metadata, protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse to remove the feature catalogManaged, in-commit timestamps or the catalog's property from a
    catalog-managed table.

    ``before``: the metadata of the version that the commit follows. Raises InvalidPropertyError.
    Spec: PROTOCOL.md#writer-requirements-for-catalog-managed-tables.
    """
    for key, wanted in (
        (FEATURE_PREFIX + CATALOG_MANAGED, is_catalog_managed(protocol)),
        ("delta.enableInCommitTimestamps", is_ict_active(protocol, metadata)),
        *(
            (key, metadata.configuration.get(key) == before.configuration.get(key))
            for key in (CATALOG_ID_KEY, UNITY_TABLE_ID_KEY)
        ),
    ):
        if not wanted:
            raise InvalidPropertyError(
                f"{table} is managed by a catalog, which needs {key} unchanged. To return the table to access by path, "
                "call TransactionManager.release_table or run deltalog tables release.",
                key=key,
            )


def check_writable(protocol: Protocol, table: str) -> None:
    """Raise UnsupportedFeatureError, naming each unsupported feature, if the table cannot be written safely."""
    check_readable(protocol, table)
    version = protocol.min_writer_version
    if not 1 <= version <= MAX_WRITER_VERSION:
        raise UnsupportedFeatureError(
            f"{table} needs writer version {version}; deltalog writes versions 1 to {MAX_WRITER_VERSION}. "
            "Use a newer client.",
            features=(),
        )
    refused = [n for n in writer_features(protocol) if not _writable(n)]
    if refused:
        raise UnsupportedFeatureError(
            f"{table} needs writer features that deltalog does not support: {', '.join(refused)}. "
            "Write it with a client that supports them; reading is not affected.",
            features=tuple(refused),
        )


def _writable(name: str) -> bool:
    return name in _BY_NAME and _BY_NAME[name].writes is Writes.YES


def is_used(name: str, metadata: Metadata, schema: StructType) -> bool:
    """Whether the schema or the properties use a feature that the protocol lists, that is, whether it is active."""
    configuration = metadata.configuration
    if name == "invariants":
        return any_field_has(schema, INVARIANT_KEY)
    if name == "checkConstraints":
        return any(key.startswith(CONSTRAINT_PREFIX) for key in configuration)
    if name == "generatedColumns":
        return any_field_has(schema, GENERATION_KEY)
    if name == "identityColumns":
        return any_field_has(schema, IDENTITY_KEY)
    if name == "allowColumnDefaults":
        return any_field_has(schema, DEFAULT_KEY)
    if name == "columnMapping":
        return configuration.get("delta.columnMapping.mode", "none") != "none"
    if name.startswith("variant"):
        return uses_type(schema, "variant")
    return True


def any_field_has(schema: StructType, key: str) -> bool:
    """Whether the metadata of any column, at any depth, has the key."""
    return any(key in column.metadata for column in all_columns(schema))


def with_features(protocol: Protocol, wanted: Iterable[str]) -> Protocol:
    """The protocol, raised to the lowest versions that can list ``wanted``; features that legacy versions implied
    become explicit.

    Returns ``protocol`` unchanged if it already has all of these features. Protocol versions are never lowered, and
    features are never removed.
    """
    listed = set(writer_features(protocol))
    present = {n.removesuffix("-preview") for n in listed} | listed
    # The preview of a feature stands for the feature, but not where another feature requires it.
    needed = _with_required(n for n in wanted if n in listed or n not in present)
    missing = [n for n in needed if n not in listed]
    if not missing:
        return protocol
    writer = [*missing, *writer_features(protocol)]
    reader = [n for n in (*missing, *reader_features(protocol)) if n in _BY_NAME and _BY_NAME[n].reader]
    old_reader = protocol.min_reader_version
    needs_reader = old_reader >= MAX_READER_VERSION or any(n in _BY_NAME and _BY_NAME[n].reader for n in missing)
    return Protocol(
        min_reader_version=MAX_READER_VERSION if needs_reader else old_reader,
        min_writer_version=MAX_WRITER_VERSION,
        reader_features=tuple(reader) if needs_reader else None,
        writer_features=tuple(writer),
        extra=protocol.extra,
    )


def upgraded(protocol: Protocol, reader_version: int, writer_version: int) -> Protocol:
    """The protocol, raised to the given versions, with the features that these versions imply. If the versions need no
    feature lists, only the versions are raised. Protocol versions are never lowered, and features are never removed.
    Raises CallError for versions that Delta does not have."""
    if not 1 <= reader_version <= MAX_READER_VERSION or not 1 <= writer_version <= MAX_WRITER_VERSION:
        raise CallError(
            f"Delta has reader versions 1 to {MAX_READER_VERSION} and writer versions 1 to {MAX_WRITER_VERSION}, not "
            f"({reader_version}, {writer_version})."
        )
    needed = {2: 5, MAX_READER_VERSION: MAX_WRITER_VERSION}.get(reader_version, 1)
    if writer_version < needed:
        raise CallError(f"Reader version {reader_version} needs writer version {needed}, not {writer_version}.")
    reader = max(protocol.min_reader_version, reader_version)
    writer = max(protocol.min_writer_version, writer_version)
    if writer < MAX_WRITER_VERSION:
        return Protocol(min_reader_version=reader, min_writer_version=writer, extra=protocol.extra)
    implied = writer_version if writer_version < MAX_WRITER_VERSION else 1
    raised = with_features(protocol, writer_features(Protocol(min_reader_version=1, min_writer_version=implied)))
    if raised.min_writer_version == MAX_WRITER_VERSION and reader_version <= raised.min_reader_version:
        return raised
    names, read = writer_features(raised), reader_features(raised)
    reader = MAX_READER_VERSION if read or reader_version == MAX_READER_VERSION else raised.min_reader_version
    return Protocol(
        min_reader_version=reader,
        min_writer_version=MAX_WRITER_VERSION,
        reader_features=read if reader == MAX_READER_VERSION else None,
        writer_features=names,
        extra=protocol.extra,
    )


def _with_required(names: Iterable[str]) -> list[str]:
    """The given features and all features that they require, without duplicates."""
    found: list[str] = []
    for name in names:
        if name not in found:
            found.append(name)
            required = _BY_NAME[name].requires if name in _BY_NAME else ()
            found.extend(each for each in _with_required(required) if each not in found)
    return found


def requiring(protocol: Protocol, name: str) -> list[str]:
    """The features in the protocol that require the given feature."""
    return [n for n in writer_features(protocol) if n in _BY_NAME and name in _BY_NAME[n].requires]


def without_feature(protocol: Protocol, name: str) -> Protocol:
    """The protocol without one feature, with the lowest versions that support the remaining features, as in
    delta-spark.

    A legacy version is used only if all features that it implies remain. The caller checks whether the feature can be
    dropped from the table.
    """
    remaining = [n for n in writer_features(protocol) if n != name]
    legacy = _legacy_protocol(remaining)
    if legacy is not None:
        return legacy
    reader = tuple(n for n in remaining if n in _BY_NAME and _BY_NAME[n].reader)
    return Protocol(
        min_reader_version=MAX_READER_VERSION if reader else 1,
        min_writer_version=MAX_WRITER_VERSION,
        reader_features=reader or None,
        writer_features=tuple(remaining),
        extra=protocol.extra,
    )


def _legacy_protocol(names: Iterable[str]) -> Protocol | None:
    """The legacy versions that imply exactly these features; None if no versions do."""
    wanted = set(names)
    for writer in range(1, MAX_WRITER_VERSION):
        for reader in range(1, MAX_READER_VERSION):
            candidate = Protocol(min_reader_version=reader, min_writer_version=writer)
            implied = set(writer_features(candidate))
            if implied == wanted and set(reader_features(candidate)) == {n for n in wanted if _BY_NAME[n].reader}:
                return candidate
    return None


def feature(name: str) -> Feature:
    """The registry entry of a feature. Raises InvalidPropertyError that suggests the nearest known name."""
    found = _BY_NAME.get(name)
    if found is None:
        similar = difflib.get_close_matches(name, _BY_NAME, 1)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        raise InvalidPropertyError(f"Delta has no table feature {name!r}.{hint}", key=FEATURE_PREFIX + name)
    return found


def features_for(metadata: Metadata, schema: StructType) -> list[str]:
    """The features that the protocol must list because the schema or the properties use them."""
    wanted = []
    if uses_type(schema, "timestamp_ntz"):
        wanted.append("timestampNtz")
    if uses_type(schema, "variant"):
        wanted.append("variantType")
    for key, value, name in _FEATURE_OF_PROPERTY:
        if metadata.configuration.get(key, "").lower() == value:
            wanted.append(name)
    if any(key.startswith(CONSTRAINT_PREFIX) for key in metadata.configuration):
        wanted.append("checkConstraints")
    columns = list(all_columns(schema))
    wanted += [name for key, name in _FEATURE_OF_FIELD if any(key in column.metadata for column in columns)]
    return wanted


def split_feature_properties(properties: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Separate the features given as ``delta.feature.<name>=supported`` from the other properties. These features are
    added to the protocol."""
    named = []
    others = {}
    for key, value in properties.items():
        if not key.startswith(FEATURE_PREFIX):
            others[key] = value
        elif value == "supported":
            named.append(key.removeprefix(FEATURE_PREFIX))
        else:
            raise InvalidPropertyError(f"{key} can only be set to 'supported', not {value!r}.", key=key)
    return named, others


_FEATURE_OF_PROPERTY = (
    ("delta.appendOnly", "true", "appendOnly"),
    ("delta.enableInCommitTimestamps", "true", timestamps.FEATURE),
    ("delta.enableChangeDataFeed", "true", "changeDataFeed"),
    ("delta.enableDeletionVectors", "true", "deletionVectors"),
    ("delta.enableRowTracking", "true", "rowTracking"),
    ("delta.enableTypeWidening", "true", "typeWidening"),
    ("delta.enableVariantShredding", "true", "variantShredding"),
    ("delta.checkpointPolicy", "v2", "v2Checkpoint"),
    ("delta.columnMapping.mode", "name", "columnMapping"),
    ("delta.columnMapping.mode", "id", "columnMapping"),
)
_FEATURE_OF_FIELD = (
    (INVARIANT_KEY, "invariants"),
    (GENERATION_KEY, "generatedColumns"),
    (IDENTITY_KEY, "identityColumns"),
    ("delta.typeChanges", "typeWidening"),
    (DEFAULT_KEY, "allowColumnDefaults"),
)

# The protocol with which delta-spark creates a table that uses no features. The versions of this protocol imply the
# features appendOnly and invariants.
BASE_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def is_ict_active(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether commits with this protocol and metadata contain ``inCommitTimestamp``."""
    return timestamps.is_active(protocol.min_writer_version, protocol.writer_features or (), metadata.configuration)


def shreds_variants(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether writers may shred variants: the protocol lists the feature, and the property enables it. Raises
    InvalidPropertyError. Spec: PROTOCOL.md#variant-shredding."""
    listed = {name.removesuffix("-preview") for name in reader_features(protocol)}
    return "variantShredding" in listed and ENABLE_VARIANT_SHREDDING.read(metadata.configuration)
