"""The mode and the options of a write: parsed, and checked against each other."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

import deltalog
from spark_ext.errors import ArgumentTypeError
from spark_ext.session.defaults import SessionDefaults, bytes_of

_MODES = {
    "append": "append",
    "overwrite": "overwrite",
    "error": "error",
    "errorifexists": "error",
    "default": "error",
    "ignore": "ignore",
}
_MODE_NAMES = {"append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists", "ignore": "Ignore"}
_OPTIONS = {
    name.lower(): name
    for name in (
        "compression",
        "dataChange",
        "expectedVersion",
        "maxRecordsPerFile",
        "mergeSchema",
        "optimizeWrite",
        "overwriteSchema",
        "partitionOverwriteMode",
        "replaceWhere",
        "targetFileSize",
        "txnAppId",
        "txnVersion",
        "userMetadata",
    )
}
_CODECS = ("none", "uncompressed", "snappy", "gzip", "lz4", "lz4_raw", "zstd", "brotli")


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The mode, options and columns of a write, as its caller specified them."""

    mode: str = "error"
    #: None if the caller set no partition or clustering columns.
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    #: The option values that ``parsed_option`` parsed, keyed by option name.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Table properties, for a write that creates the table.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: The session's settings.
    defaults: SessionDefaults = field(default_factory=SessionDefaults)
    #: The options of the table's store.
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: For a write that creates or replaces the whole table: the equivalent SQL statement.
    statement: str | None = None
    #: The comment of a new table.
    description: str | None = None

    def having(self, **changes: Any) -> WriteRequest:
        """A copy with changed values."""
        return replace(self, **changes)

    @property
    def mode_name(self) -> str:
        """The save mode as the log records it, for example ``Overwrite``."""
        return _MODE_NAMES[self.mode]

    def with_defaults_of(self, spark: SparkSession) -> WriteRequest:
        """A copy with the session's settings as defaults for the options. Raises CallError."""
        defaults = SessionDefaults.of(spark)
        return replace(self, defaults=defaults, options=defaults.options(self.mode, self.options))

    def check(self) -> None:
        """Raise CallError for options that contradict each other or the mode."""
        options = self.options
        if ("txnAppId" in options) != ("txnVersion" in options):
            raise deltalog.CallError("txnAppId and txnVersion belong together. Set both, or neither.")
        if options.get("overwriteSchema") and self.mode != "overwrite":
            raise deltalog.CallError("overwriteSchema needs mode('overwrite'); to add columns use mergeSchema.")
        if options.get("overwriteSchema") and options.get("mergeSchema"):
            raise deltalog.CallError("overwriteSchema and mergeSchema exclude each other. Set one of them.")
        partial = [name for name in ("replaceWhere", "partitionOverwriteMode") if options.get(name)]
        if partial and self.mode != "overwrite":
            raise deltalog.CallError(f"{partial[0]} needs mode('overwrite').")
        if len(partial) + bool(options.get("overwriteSchema")) > 1:
            raise deltalog.CallError("replaceWhere, partitionOverwriteMode and overwriteSchema exclude each other.")


def parsed_mode(mode: str) -> str:
    """One of ``append``, ``overwrite``, ``error``, ``ignore``. Raises CallError."""
    if not isinstance(mode, str) or mode.lower() not in _MODES:
        raise deltalog.CallError(f"Unknown write mode {mode!r}. Known: append, overwrite, error, ignore.")
    return _MODES[mode.lower()]


def parsed_option(key: str, value: Any) -> tuple[str, Any]:
    """The canonical name and the parsed value of an option. Names are case-insensitive. Raises CallError."""
    name = _OPTIONS.get(key.lower())
    if name is None:
        raise deltalog.CallError(
            f"Unknown write option {key!r}. Known: {', '.join(sorted(_OPTIONS.values()))}, and table "
            "properties delta.* where the write creates the table."
        )
    return name, _parsed(name, value)


def column_names(call: str, columns: Sequence[Any]) -> tuple[str, ...]:
    """The column names passed to a call such as ``partitionBy``, as arguments or as one list. Raises CallError."""
    listed = columns[0] if len(columns) == 1 and isinstance(columns[0], (list, tuple)) else columns
    if len(columns) == 1 and type(columns[0]).__name__ == "JavaObject":  # a Scala Seq from PySpark
        listed = [columns[0].apply(at) for at in range(columns[0].size())]
    if not all(isinstance(name, str) for name in listed):
        raise ArgumentTypeError(f"{call} takes column names as strings, not {listed!r}.")
    return tuple(listed)


def as_text(value: Any) -> str:
    """A value as Spark writes option values."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parameter_text(value: Any) -> str:
    """A list or a mapping as JSON text, as in the operation parameters of the log."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _parsed(name: str, value: Any) -> Any:
    text = as_text(value)
    if name == "dataChange" and text.lower() == "false":
        raise deltalog.CallError(
            "The option dataChange is false, which declares that the write only rearranges existing rows. deltalog "
            "cannot verify that for a DataFrame. Rewrite files with spark_ext.DeltaTable.optimize(), whose commits "
            "have dataChange=false."
        )
    if name in ("dataChange", "mergeSchema", "optimizeWrite", "overwriteSchema"):
        if text.lower() not in ("true", "false"):
            raise deltalog.CallError(f"The option {name} is {value!r}, but must be true or false.")
        return text.lower() == "true"
    if name in ("expectedVersion", "txnVersion", "maxRecordsPerFile"):
        if not re.fullmatch(r"\d{1,18}", text):
            raise deltalog.CallError(f"The option {name} is {value!r}, but must be a non-negative number.")
        return int(text)
    if name == "targetFileSize":
        return bytes_of(f"The option {name}", text)
    if name == "compression" and text.lower() not in _CODECS:
        raise deltalog.CallError(f"The option compression is {value!r}. Known: {', '.join(_CODECS)}.")
    if name == "partitionOverwriteMode":
        if text.lower() not in ("static", "dynamic"):
            raise deltalog.CallError(f"The option {name} is {value!r}. Known: static, dynamic.")
        return text.lower() == "dynamic"
    if name == "txnAppId" and not text:
        raise deltalog.CallError("The option txnAppId is empty.")
    return text
