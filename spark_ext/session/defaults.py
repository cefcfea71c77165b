"""Session settings that are the defaults of write options.

delta-spark's writer takes its defaults from the session; options of the write take precedence. Each of these settings
is applied with the same precedence, or refused with an error that names it, so that scripts for delta-spark give the
same results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

import deltalog
from spark_ext.session.settings import is_connect

PROPERTY_DEFAULTS = "spark.databricks.delta.properties.defaults."
_PARTITION_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_MERGE_SCHEMA = "spark.databricks.delta.schema.autoMerge.enabled"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_OPTIMIZE_WRITE = "spark.databricks.delta.optimizeWrite.enabled"
_OPTIMIZED_SIZE = "spark.databricks.delta.optimizeWrite.binSize"
_TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_TXN_VERSION_RESET = "spark.databricks.delta.write.txnVersion.autoReset.enabled"
_DYNAMIC_ENABLED = "spark.databricks.delta.dynamicPartitionOverwrite.enabled"
_AUTO_COMPACT = "spark.databricks.delta.autoCompact.enabled"
_REPLACE_CHECKED = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
_REPLACE_BY_DATA = "spark.databricks.delta.replaceWhere.dataColumns.enabled"
# The minimum protocol versions of a new table. Session settings that request these protocol versions or lower ones have
# no effect.
_BASE_VERSIONS = {"delta.minReaderVersion": 1, "delta.minWriterVersion": 2}
# delta-spark's partition size in an optimized write.
_OPTIMIZED_DEFAULT = "512m"
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_IGNORE_PROTOCOL = "delta.ignoreProtocolDefaults"


# Settings that contain free text, which a session may hide because it looks like a secret.
_FREE_TEXT = (_USER_METADATA, _TXN_APP_ID)


class _Settings(Mapping[str, str]):
    """The settings that a session has set, by name. A setting is queried at its first use, and then cached."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            self._known[name] = self._spark.conf.get(name, None)
        value = self._known[name]
        if value is None:
            self._check_not_hidden(name)
            raise KeyError(name)
        return value

    def _check_not_hidden(self, name: str) -> None:
        """Raise CallError if the session hides the setting. Spark Connect 4.3 reports a setting as unset if its value
        looks like a secret."""
        if name in _FREE_TEXT and is_connect(self._spark) and name in list(self):
            raise deltalog.CallError(
                f"The session hides the value of {name}, which looks like a secret by its spark.sql.redaction "
                "settings, so the write cannot apply it. Set the option of the write instead, and unset the setting."
            )

    def __iter__(self) -> Iterator[str]:
        # Only the names in the result are used, since SET redacts values that look like secrets.
        return iter([row[0] for row in self._spark.sql("SET").collect()])

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """The session settings that apply to writes and that have a value, keyed by name."""

    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, spark: SparkSession) -> SessionDefaults:
        """The settings of a session. Cost: one query for every setting that a write looks up; for the properties of a
        new table, and over Spark Connect for unset free text, also one command, without a job."""
        return cls(_Settings(spark))

    def options(self, mode: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a write: the options in ``given``, with the session's settings as defaults.

        Raises CallError for a setting that cannot be applied; the error names it.
        """
        self._check_compaction()
        options = dict(given)
        if "mergeSchema" not in options and not options.get("overwriteSchema") and self._flag(_MERGE_SCHEMA):
            options["mergeSchema"] = True
        if "userMetadata" not in options and _USER_METADATA in self.settings:
            options["userMetadata"] = self.settings[_USER_METADATA]
        if "optimizeWrite" not in options and _OPTIMIZE_WRITE in self.settings:
            options["optimizeWrite"] = self._flag(_OPTIMIZE_WRITE)
        if not self.gives_transaction(given):
            return self._with_overwrite_mode(mode, options)
        if not (_TXN_APP_ID in self.settings and _TXN_VERSION in self.settings):
            raise deltalog.CallError(f"{_TXN_APP_ID} and {_TXN_VERSION} belong together. Set both, or neither.")
        version = self.settings[_TXN_VERSION]
        if not (version.isascii() and version.isdigit()):
            raise deltalog.CallError(f"{_TXN_VERSION} is {version!r}, but must be a non-negative number.")
        options.update(txnAppId=self.settings[_TXN_APP_ID], txnVersion=int(version))
        return self._with_overwrite_mode(mode, options)

    def _with_overwrite_mode(self, mode: str, options: dict[str, Any]) -> dict[str, Any]:
        """``replaceWhere`` takes precedence over the session's setting."""
        if mode != "overwrite":
            return options
        if "partitionOverwriteMode" not in options and not options.get("replaceWhere"):
            text = self.settings.get(_PARTITION_OVERWRITE_MODE, "static")
            options["partitionOverwriteMode"] = text.lower() == "dynamic"
        return options

    def check_dynamic(self, options: Mapping[str, Any]) -> None:
        """Raise CallError, as delta-spark does, for a dynamic partition overwrite that the session or another option
        forbids."""
        if not options.get("partitionOverwriteMode"):
            return
        if not self._flag(_DYNAMIC_ENABLED, True):
            raise deltalog.CallError(
                f"This write replaces only the partitions that occur in the data, but {_DYNAMIC_ENABLED} is false "
                "in this session. Set it to true, or option('partitionOverwriteMode', 'static') to replace all rows."
            )
        if options.get("overwriteSchema"):
            raise deltalog.CallError(
                f"overwriteSchema replaces the whole table, and {_PARTITION_OVERWRITE_MODE} is dynamic in this "
                "session, which replaces partitions. Set option('partitionOverwriteMode', 'static') to replace all."
            )

    @property
    def optimized_bytes(self) -> int:
        """The target size, in bytes, of the shuffled partitions in a write with ``optimizeWrite``."""
        return bytes_of(_OPTIMIZED_SIZE, self.settings.get(_OPTIMIZED_SIZE, _OPTIMIZED_DEFAULT))

    @property
    def checks_replacing_rows(self) -> bool:
        """Whether new rows must satisfy ``replaceWhere``."""
        return self._flag(_REPLACE_CHECKED, True)

    def check_replaced_by(self, columns: Sequence[str], partition_columns: Sequence[str]) -> None:
        """Raise CallError if ``replaceWhere`` uses columns other than partition columns and the session forbids
        that."""
        others = sorted(set(columns).difference(partition_columns))
        if others and not self._flag(_REPLACE_BY_DATA, True):
            raise deltalog.CallError(
                f"replaceWhere uses {', '.join(others)}, but {_REPLACE_BY_DATA} is false in this session, which allows "
                "partition columns only. Set it to true, or use partition columns."
            )

    def _check_compaction(self) -> None:
        if self.settings.get(_AUTO_COMPACT, "false").strip().lower() != "false":
            raise deltalog.CallError(
                f"{_AUTO_COMPACT} is {self.settings[_AUTO_COMPACT]} in this session, and deltalog does not compact "
                "files after a write. Set it to false to write without compaction."
            )

    def gives_transaction(self, given: Mapping[str, Any]) -> bool:
        """Whether the options ``txnAppId`` and ``txnVersion`` of a write are taken from the session's settings."""
        is_given = "txnAppId" in given or "txnVersion" in given
        return not is_given and (_TXN_APP_ID in self.settings or _TXN_VERSION in self.settings)

    def forget_transaction(self, spark: SparkSession) -> None:
        """If the session enables autoReset, unset its ``txnVersion`` after a write that used it."""
        if self._flag(_TXN_VERSION_RESET):
            spark.conf.unset(_TXN_VERSION)

    @property
    def properties(self) -> dict[str, str]:
        """The default properties of new tables."""
        prefix = len(PROPERTY_DEFAULTS)
        names = [name for name in self.settings if name.startswith(PROPERTY_DEFAULTS)]
        named = {f"delta.{name[prefix:]}": self.settings[name] for name in names if name in self.settings}
        ignores_protocol = named.pop(_IGNORE_PROTOCOL, "false").lower() == "true"
        return {name: value for name, value in named.items() if not _is_no_default(name, value, ignores_protocol)}

    def _flag(self, name: str, default: bool = False) -> bool:
        text = self.settings.get(name, str(default)).strip().lower()
        if text not in ("true", "false"):
            raise deltalog.CallError(f"{name} is {self.settings[name]!r} in this session, but must be true or false.")
        return text == "true"


def bytes_of(what: str, text: str) -> int:
    """A size in Spark's notation, in bytes or with a unit (``128m``, ``1gb``). Raises CallError, which names
    ``what``."""
    found = re.fullmatch(r"(\d{1,15})\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if found is None or not int(found[1]):
        raise deltalog.CallError(f"{what} is {text!r}, but must be a size in bytes such as 134217728 or 128m.")
    return int(found[1]) << _UNITS[found[2]]


def _is_no_default(name: str, value: str, ignores_protocol: bool) -> bool:
    if name in _BASE_VERSIONS:
        return ignores_protocol or (value.isascii() and value.isdigit() and int(value) <= _BASE_VERSIONS[name])
    return ignores_protocol and name.startswith("delta.feature.")
