"""Checks the protocol action, and the features that schema and properties require. Pure.

Spec: PROTOCOL.md#table-features, #supported-features, #table-properties.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from deltalog.doctor.findings import Finding, found
from deltalog.errors import DeltaLogError, InvalidPropertyError
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.features import (
    CATALOG_MANAGED,
    MAX_READER_VERSION,
    MAX_WRITER_VERSION,
    Feature,
    feature,
    features_for,
    is_ict_active,
    reader_features,
    writer_features,
)
from deltalog.protocol.properties import ENABLE_IN_COMMIT_TIMESTAMPS, KNOWN, check_assignment
from deltalog.protocol.schema import StructType
from deltalog.protocol.timestamps import FEATURE as ICT
from deltalog.protocol.timestamps import FEATURE_ALIASES


def _known(name: str) -> Feature | None:
    try:
        return feature(name)
    except InvalidPropertyError:
        return None


def base(name: str) -> str:
    """The name of a feature without the suffix ``-preview``."""
    return name.removesuffix("-preview")


def examine_protocol(protocol: Protocol, version: int, path: str) -> Iterator[Finding]:
    """Check the versions and feature lists of a protocol action."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if not (1 <= reader <= MAX_READER_VERSION and 1 <= writer <= MAX_WRITER_VERSION):
        text = f"minReaderVersion is {reader}, minWriterVersion {writer}."
        yield found("protocol-version-unknown", text, version, path)
    for name, number, largest, listed in (
        ("readerFeatures", reader, MAX_READER_VERSION, protocol.reader_features),
        ("writerFeatures", writer, MAX_WRITER_VERSION, protocol.writer_features),
    ):
        if number == largest and listed is None:
            yield found("feature-list-missing", f"{name} is missing although the version is {number}.", version, path)
        elif number != largest and listed:
            text = f"{name} is {list(listed)} although the version is {number}."
            yield found("feature-list-unexpected", text, version, path)
        for each in sorted({each for each in listed or () if (listed or ()).count(each) > 1}):
            yield found("feature-listed-twice", f"{each} is in {name} twice.", version, path)
    if reader == MAX_READER_VERSION and writer < MAX_WRITER_VERSION:
        text = f"minReaderVersion is {reader}, minWriterVersion {writer}."
        yield found("protocol-reader-without-writer", text, version, path)
    yield from _examine_lists(protocol, version, path)


def _examine_lists(protocol: Protocol, version: int, path: str) -> Iterator[Finding]:
    listed, in_reader = protocol.writer_features or (), protocol.reader_features or ()
    # Reader version 2 implies column mapping.
    implied = reader_features(protocol) if protocol.min_reader_version < MAX_READER_VERSION else ()
    for name in dict.fromkeys((*listed, *in_reader)):
        row = _known(name)
        if row is None:
            yield found("feature-unknown", f"{name} is not a feature that deltalog knows.", version, path)
        elif row.reader and name in listed and name not in (*in_reader, *implied):
            yield found("feature-only-in-writer", f"{name} is not in readerFeatures.", version, path)
        elif not row.reader and name in in_reader:
            yield found("feature-not-for-readers", f"{name} is listed in readerFeatures.", version, path)
        if name in in_reader and name not in listed:
            yield found("feature-only-in-reader", f"{name} is not in writerFeatures.", version, path)
        bases = {base(each) for each in (*listed, *reader_features(protocol))}
        for required in row.requires if row is not None else ():
            if base(required) not in bases:
                yield found("feature-requires-other", f"{name} requires {required}.", version, path)
    if ICT not in listed and (other := next((name for name in FEATURE_ALIASES if name in listed), None)):
        yield found("ict-feature-name", f"writerFeatures lists {other}.", version, path)


def examine_lowering(
    before: Protocol, after: Protocol, operation: str | None, version: int, path: str
) -> Iterator[Finding]:
    """Report an operation that lowers the protocol or removes a feature, unless it is a DROP FEATURE operation."""
    lost = sorted(set(writer_features(before)) - set(writer_features(after)))
    lower = after.min_reader_version < before.min_reader_version or after.min_writer_version < before.min_writer_version
    if (lost or lower) and "DROP FEATURE" not in (operation or "").upper():
        text = f"{operation or 'An unnamed operation'} removes {', '.join(lost) or 'protocol versions'}."
        yield found("protocol-lowered", text, version, path)


def examine_properties(protocol: Protocol, metadata: Metadata, version: int, path: str) -> Iterator[Finding]:
    """Check the values of table properties and the features that they require."""
    configuration = metadata.configuration
    for key, value in configuration.items():
        if key in KNOWN:
            try:
                KNOWN[key].read(configuration)
            except InvalidPropertyError as error:
                # Other engines support isolation levels that deltalog does not support; these values are valid too.
                if key != "delta.isolationLevel":
                    yield found("property-invalid", str(error), version, path)
        elif key.startswith("delta.") and not key.startswith(("delta.constraints.", "delta.feature.")):
            try:
                check_assignment({key: value})
            except InvalidPropertyError as error:
                if "Delta has no table property" in str(error) and not _is_internal(key):
                    yield found("property-unknown", f"{key} is {value!r}.", version, path)
    if ENABLE_IN_COMMIT_TIMESTAMPS.key in configuration and not is_ict_active(protocol, metadata):
        with contextlib.suppress(InvalidPropertyError):
            if ENABLE_IN_COMMIT_TIMESTAMPS.read(configuration):
                text = f"The protocol is ({protocol.min_reader_version}, {protocol.min_writer_version})."
                yield found("ict-property-without-feature", text, version, path)


def _is_internal(key: str) -> bool:
    return key.startswith(
        ("delta.columnMapping.", "delta.rowTracking", "delta.inCommitTimestampEnablement", "delta.universalFormat",
         "delta.enableIcebergCompat", "delta.feature", "delta.clustering", "delta.liquid", "delta.coordinatedCommits",
         "delta.redirect", "delta.identity", "delta.castIcebergTimeType", "delta.lastCommitTimestamp",
         "delta.lastUpdateVersion", "delta.workloadBasedColumns")
    )  # fmt: skip


def examine_needs(
    protocol: Protocol, metadata: Metadata, schema: StructType, version: int, path: str
) -> Iterator[Finding]:
    """Check the features that schema and properties require, and the requirements on catalog-managed tables."""
    listed = {base(name) for name in writer_features(protocol)}
    for name in dict.fromkeys(features_for(metadata, schema)):
        if name in (ICT, "checkConstraints", "appendOnly", "invariants") or base(name) in listed:
            continue
        by_schema = {"timestampNtz", "variantType", "generatedColumns", "identityColumns", "allowColumnDefaults"}
        rule = "schema-needs-feature" if name in by_schema else "property-needs-feature"
        yield found(rule, f"The table uses {name}, which the protocol does not list.", version, path)
    readable = {base(name) for name in reader_features(protocol)}
    for name in ("timestampNtz", "variantType"):
        if name in listed and name not in readable and name in features_for(metadata, schema):
            yield found("schema-needs-feature", f"readerFeatures does not list {name}.", version, path)
    if CATALOG_MANAGED in listed and not is_ict_active(protocol, metadata):
        yield found("catalog-without-ict", "The table is catalog-managed.", version, path)


def has(protocol: Protocol, name: str) -> bool:
    """Whether the protocol's ``writerFeatures`` contain the feature under its name or its preview name."""
    return any(base(each) == name for each in writer_features(protocol))


def is_on(protocol: Protocol, metadata: Metadata) -> bool | None:
    """Whether in-commit timestamps are on; None if the property is invalid."""
    try:
        return is_ict_active(protocol, metadata)
    except DeltaLogError:
        return None
