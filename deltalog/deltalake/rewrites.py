"""Verbs whose arguments differ from deltalog's: updates, merges, optimize, vacuum, repair, features, properties."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from deltalog.deltalake import metrics
from deltalog.deltalake.exceptions import DeltaError
from deltalog.deltalake.features import TableFeatures
from deltalog.deltalake.filters import FilePruningPredicateType, condition
from deltalog.deltalake.sql import spark_sql
from deltalog.deltalake.utc import in_utc, text_in_utc
from deltalog.errors import CallError, InvalidPropertyError
from deltalog.expressions.relations import Relations
from deltalog.expressions.sql import parse
from deltalog.expressions.tree import Cast
from deltalog.maintenance import missing_files
from deltalog.maintenance.optimize import optimize
from deltalog.maintenance.optimize.optimize import Options
from deltalog.maintenance.vacuum import vacuum as vacuuming
from deltalog.protocol import features
from deltalog.protocol.column_metadata import GENERATION_KEY
from deltalog.protocol.properties import DELETED_FILE_RETENTION_MS, check_assignment
from deltalog.protocol.schema import StructType
from deltalog.write.table_handle import TableHandle

_HOUR_MS = 3_600_000


def column_of(key: str, alias: str | None, schema: StructType) -> str:
    """The column that a key of ``updates`` names; the name may be in backticks or double quotes, and may follow the
    alias of the table and a dot."""
    text = spark_sql(key)
    if alias is not None and text.lower().startswith((f"{alias.lower()}.", f"`{alias.lower()}`.")):
        text = text.partition(".")[2]
    if text.startswith("`") and text.endswith("`") and "`.`" not in text:
        return text
    found = schema.find(text)
    return text if found is None else f"`{found.name.replace('`', '``')}`"


def assignments(
    updates: Mapping[str, str],
    schema: StructType,
    safe_cast: bool,
    columns: StructType | Relations,
    alias: str | None = None,
) -> dict[str, Any]:
    """The assignments of an update, in the form that deltalog accepts. ``safe_cast``: values that do not fit become
    null. ``columns``: what the names in the values refer to."""
    found: dict[str, Any] = {}
    for key, value in updates.items():
        column = column_of(key, alias, schema)
        text = spark_sql(value)
        tree = parse(text, f"The new value of {key}")
        found[column] = text_in_utc(text, tree, columns)
        field = schema.find(column[1:-1].replace("``", "`")) if column.startswith("`") else None
        if safe_cast and field is not None:
            found[column] = Cast(in_utc(tree, columns), field.data_type, True)
    return found


def python_values(values: Mapping[str, Any], schema: StructType) -> dict[str, Any]:
    """The new values of an update, in the form that deltalog accepts: a datetime without a time zone is taken as UTC if
    its column has a time zone."""
    found = {}
    for key, value in values.items():
        name = column_of(key, None, schema)
        field = schema.find(key)
        is_naive = isinstance(value, datetime.datetime) and value.tzinfo is None
        if is_naive and field is not None and str(field.data_type) == "timestamp":
            value = value.replace(tzinfo=datetime.timezone.utc)
        found[name] = value
    return found


def vacuum(
    handle: TableHandle,
    dry_run: bool,
    retention_hours: float | None,
    enforce_retention_duration: bool,
    full: bool,
    keep_versions: Sequence[int] | None,
) -> list[str]:
    """Delete files that neither the latest version, nor a version within the retention, nor one of ``keep_versions``
    needs. Returns their paths."""
    least_ms = DELETED_FILE_RETENTION_MS.read(handle.latest.metadata.configuration)
    if retention_hours is not None and enforce_retention_duration and retention_hours * _HOUR_MS < least_ms:
        raise DeltaError(
            "Generic error: Invalid retention period, minimum retention for vacuum is configured to be greater than "
            f"{least_ms // _HOUR_MS} hours, got {retention_hours} hours"
        )
    report = vacuuming.vacuum(
        handle, retention_hours, dry_run, enforce_retention_duration, full, vacuuming.silent,
        keep_versions=tuple(keep_versions or ()),
    )  # fmt: skip
    return list(report.paths)


def _options(
    handle: TableHandle, where: FilePruningPredicateType | None, target_size: int | None, tasks: int | None,
    min_commit_interval: int | None,
) -> Options:  # fmt: skip
    """``min_commit_interval``: a commit for each group of files, rather than one for all."""
    if target_size is not None and not 0 < target_size < 2**63:
        raise CallError(f"target_file_size must be between 1 and {2**63 - 1} bytes; got {target_size}.")
    chosen = condition(where, handle.latest.schema)
    each = 1 if min_commit_interval == 0 else None
    return Options(chosen, target_size, tasks, each)


def compact(
    handle: TableHandle, where: FilePruningPredicateType | None, target_size: int | None, tasks: int | None,
    min_commit_interval: int | None,
) -> str:  # fmt: skip
    """Combine small files. Returns the metrics."""
    report = optimize.compact(handle, _options(handle, where, target_size, tasks, min_commit_interval))
    return json.dumps(metrics.of_optimize(report, keeps_order=True))


def z_order(
    handle: TableHandle, columns: Sequence[str], where: FilePruningPredicateType | None, target_size: int | None,
    tasks: int | None, min_commit_interval: int | None,
) -> str:  # fmt: skip
    """Rewrite all files in the Z-order of columns. Returns the metrics."""
    if not columns:
        raise DeltaError("Generic error: Z-order requires at least one column")
    schema, partitioned = handle.latest.schema, handle.latest.partition_columns
    wrong = [name for name in columns if name in partitioned]
    if wrong:
        raise DeltaError(
            f"Generic error: Z-order columns cannot be partition columns. Found: [{', '.join(map(json.dumps, wrong))}]"
        )
    unknown = [name for name in columns if schema.find(name) is None and schema.find(name.partition(".")[0]) is None]
    if unknown:
        known = ", ".join(json.dumps(name) for name in schema.names if name not in partitioned)
        raise DeltaError(
            f"Generic error: Z-order columns must be present in the table schema. "
            f"Unknown columns: [{', '.join(map(json.dumps, unknown))}]. Columns: [{known}]"
        )
    paths = [[name] if schema.find(name) is not None else name for name in columns]
    report = optimize.z_order(handle, paths, _options(handle, where, target_size, tasks, min_commit_interval))
    return json.dumps(metrics.of_optimize(report, keeps_order=False))


def repair(handle: TableHandle, dry_run: bool) -> list[str]:
    """Remove from the table the files that no longer exist. Returns their paths."""
    return list(missing_files.remove_missing(handle, dry_run))


def feature_name(feature: Any) -> str:
    """The name of a table feature, as it is written in the protocol action. Raises CallError."""
    if isinstance(feature, TableFeatures):
        return feature.protocol_name
    raise CallError(f"A feature is one of TableFeatures, such as TableFeatures.AppendOnly; got {feature!r}.")


def check_lists_features(handle: TableHandle, names: Sequence[str]) -> None:
    """Raise DeltaError if adding a feature would require higher protocol versions."""
    protocol = handle.latest.protocol
    for name in names:
        is_reader = any(each.name == name and each.reader for each in features.FEATURES)
        if protocol.min_writer_version < 7 or (is_reader and protocol.min_reader_version < 3):
            feature, lack = ("reader and writer", "reader is not v3, and writer not v7") if is_reader else (
                "writer", "min_writer is not v7"
            )  # fmt: skip
            raise DeltaError(
                f"Generic DeltaTable error: Table feature enables {feature} feature, but {lack}. Set "
                f"allow_protocol_versions_increase or increase version{'s' if is_reader else ''} explicitly through "
                f"set_tbl_properties. Feature: {name}."
            )


def check_addable(columns: StructType) -> None:
    """Raise DeltaError for a new column that is NOT NULL or generated, because the existing rows would violate this
    rule."""
    for column in columns:
        if GENERATION_KEY in column.metadata:
            raise DeltaError(f"New columns cannot be a generated column: {column.name}. Existing rows have no values.")
        if not column.nullable:
            raise DeltaError(f"New columns must be nullable: {column.name}. Existing rows would have nulls in it.")


def check_properties(properties: Mapping[str, str], raise_if_not_exists: bool) -> None:
    """Raise DeltaError for an unknown property."""
    try:
        check_assignment(properties)
    except InvalidPropertyError as error:
        if error.key is None or not raise_if_not_exists:
            raise
        raise DeltaError(
            f"Kernel: Error parsing property '{error.key}':'{properties.get(error.key)}'. {error.message}"
        ) from error
