"""The request of a caller: the mode of a write, its options as values, and which of them contradict each other."""

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
    """A write as its caller describes it.

    ``options``: values by name (``parsed_option``). ``properties``: those that the table has if the write creates it.
    ``partition_by`` and ``cluster_by`` are None where they were not given. ``defaults``: the settings of the session
    that apply. ``storage``: options of the table's store. ``statement``: for a write that creates or replaces the table
    as a whole, the statement of SQL that does the same; ``description``: the comment of that table.
    """

    mode: str = "error"
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    defaults: SessionDefaults = field(default_factory=SessionDefaults)
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    statement: str | None = None
    description: str | None = None

    def having(self, **changes: Any) -> WriteRequest:
        """The same request with other values."""
        return replace(self, **changes)

    @property
    def mode_name(self) -> str:
        """The mode as the log has it."""
        return _MODE_NAMES[self.mode]

    def with_defaults_of(self, spark: SparkSession) -> WriteRequest:
        """With the session's settings for the options that were not given. Raises CallError."""
        defaults = SessionDefaults.of(spark)
        return replace(self, defaults=defaults, options=defaults.options(self.mode, self.options))

    def check(self) -> None:
        """Raises CallError for options that contradict each other or the mode."""
        options = self.options
        if ("txnAppId" in options) != ("txnVersion" in options):
            raise deltalog.CallError("txnAppId and txnVersion belong together. Give both, or none.")
        if options.get("overwriteSchema") and self.mode != "overwrite":
            raise deltalog.CallError("overwriteSchema needs mode('overwrite'); to add columns use mergeSchema.")
        if options.get("overwriteSchema") and options.get("mergeSchema"):
            raise deltalog.CallError("overwriteSchema and mergeSchema contradict each other. Give one of them.")
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
    """An option by its name, which may be in any case, and its value. Raises CallError."""
    name = _OPTIONS.get(key.lower())
    if name is None:
        raise deltalog.CallError(
            f"Unknown write option {key!r}. Known: {', '.join(sorted(_OPTIONS.values()))}, and table "
            "properties delta.* where the write creates the table."
        )
    return name, _parsed(name, value)


def column_names(call: str, columns: Sequence[Any]) -> tuple[str, ...]:
    """The names that a call like ``partitionBy`` was given, one by one or as a list. Raises CallError."""
    listed = columns[0] if len(columns) == 1 and isinstance(columns[0], (list, tuple)) else columns
    if len(columns) == 1 and type(columns[0]).__name__ == "JavaObject":  # a Seq of Scala, as PySpark makes it
        listed = [columns[0].apply(at) for at in range(columns[0].size())]
    if not all(isinstance(name, str) for name in listed):
        raise ArgumentTypeError(f"{call} takes column names, as text, not {listed!r}.")
    return tuple(listed)


def as_text(value: Any) -> str:
    """A value as Spark's own options have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parameter_text(value: Any) -> str:
    """A list or a mapping as the parameters of an operation in the log have it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _parsed(name: str, value: Any) -> Any:
    text = as_text(value)
    if name == "dataChange" and text.lower() == "false":
        raise deltalog.CallError(
            "The option dataChange is false, which says that rows are only moved into other files. deltalog does not "
            "say that of rows of a DataFrame, which it cannot compare with those of the table. Rewrite files with "
            "spark_ext.DeltaTable.optimize(), whose commits say so."
        )
    if name in ("dataChange", "mergeSchema", "optimizeWrite", "overwriteSchema"):
        if text.lower() not in ("true", "false"):
            raise deltalog.CallError(f"The option {name} is {value!r}, but must be true or false.")
        return text.lower() == "true"
    if name in ("expectedVersion", "txnVersion", "maxRecordsPerFile"):
        if not re.fullmatch(r"\d{1,18}", text):
            raise deltalog.CallError(f"The option {name} is {value!r}, but must be a number that is not negative.")
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
