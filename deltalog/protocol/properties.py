"""Table properties: the ``delta.*`` keys of ``metaData.configuration`` that deltalog uses. Pure.

Spec: PROTOCOL.md#table-properties (and the feature sections that name a property).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import msgspec

from deltalog.errors import InvalidPropertyError
from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import difflib
else:
    lazy_modules(__name__, "difflib")

T = TypeVar("T")


class Property(msgspec.Struct, Generic[T], frozen=True):
    """A known property: the key, the parser for the value, and the default."""

    key: str
    parse: Callable[[str], T]
    default: T

    def read(self, configuration: Mapping[str, str]) -> T:
        """The value in effect. Raises InvalidPropertyError if the text cannot be parsed."""
        text = configuration.get(self.key)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise InvalidPropertyError(
                f"Table property {self.key} is {text!r}: {error}. Set it to a valid value.", key=self.key
            ) from None


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError("expected true or false")


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError("expected a positive number")
    return value


def _size_bytes(text: str) -> int:
    """A number of bytes, optionally with a unit as in Spark: ``128m``, ``1 GB``."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or not int(match[1]):
        raise ValueError("expected a size in bytes such as 134217728 or 128mb")
    return int(match[1]) << 10 * "bkmgtp".index(match[2] or "b")


def _mapping_mode(text: str) -> str:
    if text.lower() not in ("none", "name", "id"):
        raise ValueError("expected none, name or id")
    return text.lower()


def _checkpoint_policy(text: str) -> str:
    if text.lower() not in ("classic", "v2"):
        raise ValueError("expected classic or v2")
    return text.lower()


def _isolation_level(text: str) -> Literal["Serializable", "WriteSerializable"]:
    if text not in _ISOLATION_LEVELS:
        raise ValueError("expected Serializable or WriteSerializable")
    return _ISOLATION_LEVELS[text]


_ISOLATION_LEVELS: Mapping[str, Literal["Serializable", "WriteSerializable"]] = {
    "Serializable": "Serializable",
    "WriteSerializable": "WriteSerializable",
}
_UNIT_MS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
_SIZE = re.compile(r"([0-9]+)\s*([bkmgtp])?b?")
_INTERVAL_PART = re.compile(r"\s*(\d+)\s*([a-z]+?)s?(?=\s|$)")


def _interval_ms(text: str) -> int:
    """``interval 1 week`` or ``interval 2 days 3 hours`` in milliseconds. Months are refused: their length varies."""
    rest = text.strip().lower().removeprefix("interval")
    total, at = 0, 0
    while match := _INTERVAL_PART.match(rest, at):
        if match[2] not in _UNIT_MS:
            break
        total += int(match[1]) * _UNIT_MS[match[2]]
        at = match.end()
    if at == 0 or rest[at:].strip():
        raise ValueError("expected an interval such as 'interval 7 days'")
    return total


ENABLE_IN_COMMIT_TIMESTAMPS = Property("delta.enableInCommitTimestamps", _boolean, False)
# The id of the catalog that manages a table with the feature catalogManaged.
CATALOG_ID_KEY = "deltalog.catalogId"
# The id of a managed table in a Unity Catalog, and in a catalog of deltalog.
UNITY_TABLE_ID_KEY = "io.unitycatalog.tableId"
CONSTRAINT_PREFIX = "delta.constraints."
ENABLEMENT_VERSION_KEY = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP_KEY = "delta.inCommitTimestampEnablementTimestamp"
APPEND_ONLY = Property("delta.appendOnly", _boolean, False)
CHECKPOINT_INTERVAL = Property("delta.checkpointInterval", _positive, 10)
DELETED_FILE_RETENTION_MS = Property("delta.deletedFileRetentionDuration", _interval_ms, 7 * 86_400_000)
DATA_SKIPPING_NUM_INDEXED_COLS = Property("delta.dataSkippingNumIndexedCols", int, 32)
DATA_SKIPPING_STATS_COLUMNS_KEY = "delta.dataSkippingStatsColumns"
CHECKPOINT_STATS_AS_JSON = Property("delta.checkpoint.writeStatsAsJson", _boolean, True)
# The default in PROTOCOL.md is false, but delta-spark writes the struct unless the property is set to false, and
# deltalog does the same.
CHECKPOINT_STATS_AS_STRUCT = Property("delta.checkpoint.writeStatsAsStruct", _boolean, True)
ENABLE_CHANGE_DATA_FEED = Property("delta.enableChangeDataFeed", _boolean, False)
ENABLE_ROW_TRACKING = Property("delta.enableRowTracking", _boolean, False)
ROW_TRACKING_SUSPENDED = Property("delta.rowTrackingSuspended", _boolean, False)
ENABLE_DELETION_VECTORS = Property("delta.enableDeletionVectors", _boolean, False)
ISOLATION_LEVEL: Property[Literal["Serializable", "WriteSerializable"]] = Property(
    "delta.isolationLevel", _isolation_level, "Serializable"
)
ENABLE_TYPE_WIDENING = Property("delta.enableTypeWidening", _boolean, False)
ENABLE_VARIANT_SHREDDING = Property("delta.enableVariantShredding", _boolean, False)
COLUMN_MAPPING_MODE = Property("delta.columnMapping.mode", _mapping_mode, "none")
CHECKPOINT_POLICY = Property("delta.checkpointPolicy", _checkpoint_policy, "classic")
SIDECAR_ROWS = 100_000  # a V2 checkpoint with more file actions has sidecars
LOG_RETENTION_MS = Property("delta.logRetentionDuration", _interval_ms, 30 * 86_400_000)
ENABLE_EXPIRED_LOG_CLEANUP = Property("delta.enableExpiredLogCleanup", _boolean, True)
SET_TRANSACTION_RETENTION_MS: Property[int | None] = Property(
    "delta.setTransactionRetentionDuration", _interval_ms, None
)
CHECKPOINT_PROTECTION_BEFORE = Property("delta.requireCheckpointProtectionBeforeVersion", int, 0)
RANDOMIZE_FILE_PREFIXES = Property("delta.randomizeFilePrefixes", _boolean, False)
RANDOM_PREFIX_LENGTH = Property("delta.randomPrefixLength", _positive, 2)
TARGET_FILE_SIZE: Property[int | None] = Property("delta.targetFileSize", _size_bytes, None)

KNOWN: Mapping[str, Property[object]] = {
    p.key: p  # type: ignore[misc]
    for p in (
        ENABLE_IN_COMMIT_TIMESTAMPS,
        APPEND_ONLY,
        CHECKPOINT_INTERVAL,
        DELETED_FILE_RETENTION_MS,
        DATA_SKIPPING_NUM_INDEXED_COLS,
        CHECKPOINT_STATS_AS_JSON,
        CHECKPOINT_STATS_AS_STRUCT,
        ENABLE_CHANGE_DATA_FEED,
        ENABLE_ROW_TRACKING,
        ROW_TRACKING_SUSPENDED,
        ENABLE_DELETION_VECTORS,
        ISOLATION_LEVEL,
        ENABLE_TYPE_WIDENING,
        ENABLE_VARIANT_SHREDDING,
        COLUMN_MAPPING_MODE,
        CHECKPOINT_POLICY,
        LOG_RETENTION_MS,
        ENABLE_EXPIRED_LOG_CLEANUP,
        SET_TRANSACTION_RETENTION_MS,
        CHECKPOINT_PROTECTION_BEFORE,
        RANDOMIZE_FILE_PREFIXES,
        RANDOM_PREFIX_LENGTH,
        TARGET_FILE_SIZE,
    )
}
FEATURE_PREFIX = "delta.feature."
# Delta properties that only other engines interpret; deltalog preserves them unchanged.
_PASSED_ON = frozenset(
    {
        "delta.autoOptimize",
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.checkpointRetentionDuration",
        "delta.compatibility.symlinkFormatManifest.enabled",
        DATA_SKIPPING_STATS_COLUMNS_KEY,
        "delta.enableFullRetentionRollback",
        "delta.parquet.compression.codec",
        "delta.sampleRetentionDuration",
        "delta.tuneFileSizesForRewrites",
    }
)
# Internal properties: if their values are wrong, readers return wrong columns or rows.
_KEPT_BY_THE_WRITER = {
    ENABLEMENT_VERSION_KEY: f"Set {ENABLE_IN_COMMIT_TIMESTAMPS.key} instead (or call enable_in_commit_timestamps()).",
    ENABLEMENT_TIMESTAMP_KEY: f"Set {ENABLE_IN_COMMIT_TIMESTAMPS.key} instead (or call enable_in_commit_timestamps()).",
    "delta.columnMapping.maxColumnId": f"Set {COLUMN_MAPPING_MODE.key} instead.",
    "delta.rowTracking.materializedRowIdColumnName": f"Set {ENABLE_ROW_TRACKING.key} instead.",
    "delta.rowTracking.materializedRowCommitVersionColumnName": f"Set {ENABLE_ROW_TRACKING.key} instead.",
}
# Callers cannot set these properties: they require table changes that deltalog does not make, or are set through
# another API.
_REFUSED = {
    CONSTRAINT_PREFIX: "call add_constraint(), which checks the existing rows, or drop_constraint()",
    "delta.enableIcebergCompat": "Iceberg compatibility is not supported",
    "delta.universalFormat.": "UniForm is not supported",
    "delta.minReaderVersion": "versions follow from the features; name one as delta.feature.<name>=supported",
    "delta.minWriterVersion": "versions follow from the features; name one as delta.feature.<name>=supported",
}


def check_assignment(changes: Mapping[str, str | None]) -> None:
    """Refuse changes to properties that callers must not set, unknown ``delta.`` keys, and invalid values; a new value
    of None unsets a property.

    Only the writer sets the enablement properties of in-commit timestamps: if one of the two is missing or wrong, every
    later commit and every time travel query of other engines fails. Likewise, only the writer sets the highest column
    id and the names of materialised columns. Callers may set any key without the prefix ``delta.``.
    """
    for key, value in changes.items():
        if key in _KEPT_BY_THE_WRITER:
            raise InvalidPropertyError(
                f"{key} is maintained by the writer and cannot be set or unset. {_KEPT_BY_THE_WRITER[key]}", key=key
            )
        if value is None:
            continue
        if not isinstance(value, str):
            raise InvalidPropertyError(
                f"Table property {key} must be text, not {type(value).__name__}: write {str(value).lower()!r}.",
                key=key,
            )
        _check_key(key, value)
        if key in KNOWN:
            KNOWN[key].read({key: value})


def checkpoint_interval(configuration: Mapping[str, str]) -> int:
    """The number of versions between checkpoints; the default number if the property is invalid."""
    try:
        return CHECKPOINT_INTERVAL.read(configuration)
    except InvalidPropertyError:
        return CHECKPOINT_INTERVAL.default


def _check_key(key: str, value: str) -> None:
    if not key.startswith("delta.") or key.startswith(FEATURE_PREFIX) or key in KNOWN or key in _PASSED_ON:
        return
    for refused, why in _REFUSED.items():
        if key.startswith(refused) and (refused == CONSTRAINT_PREFIX or value.lower() not in ("none", "false")):
            raise InvalidPropertyError(f"Table property {key} cannot be set: {why}.", key=key)
        if key.startswith(refused):
            return
    similar = difflib.get_close_matches(key, [*KNOWN, *_PASSED_ON], 1)
    hint = f" Did you mean {similar[0]}?" if similar else " For a custom property, leave out the prefix delta."
    raise InvalidPropertyError(f"Delta has no table property {key}.{hint}", key=key)
