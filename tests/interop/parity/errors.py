"""Maps the errors of both engines to common names."""

from __future__ import annotations

import re

import deltalog
from deltalog import DeltaLogError

# Error conditions of Spark and delta-spark, Java exceptions that have no error condition, and error classes of
# deltalog.
MEANINGS: dict[str, tuple[str, ...]] = {
    "table exists": (
        "TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_PATH_EXISTS", "DELTA_TABLE_ALREADY_EXISTS", "TableExistsError",
    ),
    "no such table": (
        "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "PATH_NOT_FOUND",
        "TABLE_OR_VIEW_NOT_FOUND", "TableNotFoundError",
    ),
    "columns do not fit": (
        "CAST_INVALID_INPUT", "COLUMN_ALREADY_EXISTS", "DELTA_CREATE_TABLE_SCHEME_MISMATCH",
        "DELTA_INSERT_COLUMN_ARITY_MISMATCH", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        "DELTA_SCHEMA_CHANGED", "DELTA_SCHEMA_CHANGED_WITH_VERSION", "FIELD_ALREADY_EXISTS",
        "NOT_SUPPORTED_CHANGE_COLUMN",
        "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION", "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
        "DELTA_DUPLICATE_COLUMNS_FOUND", "DELTA_EMPTY_DATA", "DELTA_FAILED_TO_MERGE_FIELDS",
        "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED",
        "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES", "DELTA_INVALID_PARTITION_COLUMN_TYPE", "DELTA_METADATA_MISMATCH",
        "DELTA_MISSING_NOT_NULL_COLUMN_VALUE", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "DELTA_PARTITION_COLUMN_NOT_FOUND",
        "DELTA_UNSUPPORTED_DATA_TYPES", "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
        "EMPTY_SCHEMA_NOT_SUPPORTED_FOR_DATASOURCE", "RESERVED_CDC_COLUMNS_ON_WRITE",
        "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE", "SchemaMismatchError",
    ),
    "constraint violated": (
        "DELTA_EXCEED_CHAR_VARCHAR_LIMIT", "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
        "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "ConstraintViolationError",
    ),
    "no such version": ("DELTA_CANNOT_RESTORE_TABLE_VERSION", "DELTA_VERSION_NOT_FOUND", "VersionNotFoundError"),
    "time out of range": (
        "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER", "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER",
        "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION", "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
        "TimestampOutOfRangeError",
    ),
    "not a time": ("DELTA_TIMESTAMP_INVALID", "DELTA_INVALID_TIMESTAMP_FORMAT", "InvalidTimestampError"),
    "invalid call": (
        "AnalysisException", "CODEC_NOT_AVAILABLE", "DATATYPE_MISMATCH", "DATA_SOURCE_NOT_FOUND",
        "DELTA_CDC_START_VERSION_AFTER_LATEST",
        "DELTA_DYNAMIC_PARTITION_OVERWRITE_DISABLED", "DELTA_FAILED_RECOGNIZE_PREDICATE", "DELTA_ILLEGAL_OPTION",
        "DELTA_INVALID_CDC_RANGE", "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS", "DELTA_MISSING_CHANGE_DATA",
        "DELTA_MULTIPLE_CDC_BOUNDARY", "DELTA_NO_START_FOR_CDC_READ", "DELTA_ONEOF_IN_TIMETRAVEL",
        "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE", "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE",
        "DELTA_UNKNOWN_CONFIGURATION", "DELTA_UNSUPPORTED_SUBQUERY", "DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS",
        "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS", "INVALID_SAVE_MODE", "IllegalArgumentException", "InvalidPropertyError",
        "NumberFormatException", "SORT_BY_WITHOUT_BUCKETING", "UNRESOLVED_COLUMN",
        "DELTA_CONFLICT_SET_COLUMN",
        "INVALID_WHERE_CONDITION", "MISSING_GROUP_BY", "PARSE_SYNTAX_ERROR",
        "UNSUPPORTED_EXPR_FOR_OPERATOR", "CallError",
        "AMBIGUOUS_REFERENCE", "DELTA_DUPLICATE_COLUMNS_ON_INSERT", "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE", "MERGE_INSERT_VALUE_COUNT_MISMATCH",
        "DELTA_CONSTRAINT_ALREADY_EXISTS", "DELTA_CONSTRAINT_DOES_NOT_EXIST", "DELTA_UNSUPPORTED_DROP_COLUMN",
        "DELTA_UNSUPPORTED_RENAME_COLUMN", "UNSUPPORTED_TABLE_CHANGE",
        "DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
        "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET", "MERGE_WITHOUT_WHEN", "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
        "DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE", "EXPECT_TABLE_NOT_VIEW", "FIELD_NOT_FOUND",
    ),
    "append-only": ("DELTA_CANNOT_MODIFY_APPEND_ONLY", "InvalidActionError"),
    "conflict": (
        "DELTA_CONCURRENT_APPEND", "DELTA_CONCURRENT_DELETE_READ", "DELTA_CONCURRENT_DELETE_DELETE",
        "DELTA_CONCURRENT_TRANSACTION", "DELTA_CONCURRENT_WRITE", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED",
        "CommitConflictError",
    ),
    "not supported": (
        "DELTA_OPERATION_NOT_ALLOWED", "DELTA_UNSUPPORTED_OUTPUT_MODE", "Update mode",
        "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
        "DELTA_UNSUPPORTED_FEATURES_FOR_READ", "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", "UnsupportedFeatureError",
    ),
    "data file unusable": ("FAILED_READ_FILE", "InvalidDataFileError"),
    "file outside of the table": ("UnsafePathError",),
    "version expired": ("DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",),
}  # fmt: skip
_MEANING = {name: means for means, names in MEANINGS.items() for name in names}
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_.]+)?\]")
UNKNOWN = "unknown"
# Messages without a counterpart in delta-spark.
_LOST = re.compile(r"Cannot find main error class '([A-Z0-9_]+)'")
_MODE = re.compile(r"does not support (Update mode)")  # Spark, for a sink in Python
_OWN = re.compile(r"deltalog\.errors\.(\w+)")  # in the message of an error from a Python data source
_JAVA = re.compile(r"(?:java|org|io)(?:\.\w+)+\.(\w+(?:Exception|Error))")


def meaning(error: Exception) -> str:
    """The common name of an error. Errors that are not in MEANINGS become `unknown` followed by their names, which no
    test accepts."""
    if isinstance(error, DeltaLogError):
        names = [each.__name__ for each in type(error).__mro__]
    else:
        text = str(error)
        own = [each.__name__ for name in _OWN.findall(text)[::-1] for each in getattr(deltalog.errors, name).__mro__]
        names = own or _LOST.findall(text) or _MODE.findall(text) or _CONDITION.findall(text)[::-1]
        names = names or [*_JAVA.findall(text)[::-1], type(error).__name__]
    known = [_MEANING[name] for name in names if name in _MEANING]
    return known[0] if known else f"{UNKNOWN}: {list(dict.fromkeys(names))}: {str(error)[:300]}"
