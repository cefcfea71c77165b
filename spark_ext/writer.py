"""Writing: Spark writes the Parquet files natively, deltalog commits them from the calling process.

A write is one Spark job into its own directory below the table, and then one commit. After a failure before
the commit the log is unchanged, and the directory is removed.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

import deltalog
from spark_ext import footers, mapped, paths, rules
from spark_ext.conform import as_table, check_unique, conformed, problems, stored_schema
from spark_ext.counted import RowCount
from spark_ext.defaults import PROPERTY_DEFAULTS, SessionDefaults
from spark_ext.exact import quoted
from spark_ext.files import JobDirectory, collect, rows_of
from spark_ext.jobs import cancelled_with_its_caller, failure_of_store
from spark_ext.paths import Location, check_format, not_here
from spark_ext.reads import reads_of
from spark_ext.session import (
    OPTIONS,
    SETTINGS,
    TIMESTAMP_SETTING,
    TIMESTAMP_SETTING_AS_OPTION,
    session_settings,
    spark_version,
)
from spark_ext.types import from_spark

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
        "expectedVersion",
        "maxRecordsPerFile",
        "mergeSchema",
        "optimizeWrite",
        "overwriteSchema",
        "partitionOverwriteMode",
        "replaceWhere",
        "txnAppId",
        "txnVersion",
        "userMetadata",
    )
}
_CODECS = ("none", "uncompressed", "snappy", "gzip", "lz4", "lz4_raw", "zstd", "brotli")


_BY_PATH = "tables are written by path: save(path), or save('catalog:<catalog>#<name>') for a table of a catalog"
_LAYOUT = "Delta tables have no buckets; use partitionBy(...)"
_FILES = "only Delta tables are written: save(path); df.write writes files of other formats"
# Methods of Spark's writer that this one does not have, and why.
_ELSEWHERE = {
    **dict.fromkeys(("saveAsTable", "insertInto"), _BY_PATH),
    **dict.fromkeys(("bucketBy", "sortBy", "clusterBy"), _LAYOUT),
    **dict.fromkeys(("parquet", "json", "csv", "orc", "text", "xml", "jdbc"), _FILES),
}


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write.

    ``version``: the version committed, or the latest one when nothing was committed; then ``committed`` is
    False and ``reason`` says why. ``num_removed_rows`` is None if a removed file has no statistics.
    ``timestamp_ms`` and ``in_commit_timestamp_ms`` (None where in-commit
    timestamps are off) are those of the commit.
    """

    version: int
    committed: bool
    reason: str | None = None
    num_files: int = 0
    num_rows: int = 0
    num_bytes: int = 0
    num_removed_files: int = 0
    num_removed_rows: int | None = 0
    timestamp_ms: int | None = None
    in_commit_timestamp_ms: int | None = None
    txn_id: str | None = None


def write(df: DataFrame) -> Writer:
    """A writer for a DataFrame; the counterpart of ``df.write``."""
    return Writer(df)


class Writer:
    """Mode, partition columns, options, and ``save``. The default mode is ``error``, as Spark's.

    Options, in any case: ``mergeSchema``, ``overwriteSchema``, ``userMetadata``, ``txnAppId`` with
    ``txnVersion``, ``maxRecordsPerFile``, ``compression``, and where the write creates the table any table
    property ``delta.*``. An unknown option is an error. With mode ``overwrite``, ``replaceWhere`` (a condition on
    partition columns) and ``partitionOverwriteMode`` (``dynamic``) replace a part of the table. ``optimizeWrite``
    shuffles the rows first, so that there are fewer files. ``expectedVersion`` must be the latest version until the
    commit. Options that are not given come from the session's settings for delta-spark (see docs/spark.md).

    If the DataFrame was read from the table that it is saved to, commits of other writers since then are checked for
    conflicts.
    """

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self._mode = "error"
        self._partition_by: tuple[str, ...] | None = None
        self._options: dict[str, Any] = {}
        self._properties: dict[str, str] = {}
        self._defaults = SessionDefaults()

    def format(self, source: str) -> Writer:
        """``delta`` or ``deltalog``, for compatibility with Spark's own writer; others raise CallError."""
        check_format(source)
        return self

    def __getattr__(self, name: str) -> Any:
        return not_here(name, _ELSEWHERE, "Writer")

    def mode(self, mode: str) -> Writer:
        """``append``, ``overwrite``, ``error`` (or ``errorifexists``), ``ignore``."""
        if not isinstance(mode, str) or mode.lower() not in _MODES:
            raise deltalog.CallError(f"Unknown write mode {mode!r}. Known: append, overwrite, error, ignore.")
        self._mode = _MODES[mode.lower()]
        return self

    def partitionBy(self, *columns: str | Sequence[str]) -> Writer:
        """The partition columns of a table that this write creates or, with overwriteSchema, replaces."""
        flat = columns[0] if len(columns) == 1 and isinstance(columns[0], (list, tuple)) else columns
        if not all(isinstance(name, str) for name in flat):
            raise deltalog.CallError(f"partitionBy takes column names, not {flat!r}.")
        self._partition_by = tuple(str(name) for name in flat)
        return self

    def option(self, key: str, value: Any) -> Writer:
        """Set one option. Raises CallError for an unknown name or an invalid value."""
        folded = key.lower()
        if folded.startswith("delta."):
            self._properties[key] = _text(value)
        elif folded not in _OPTIONS:
            raise deltalog.CallError(
                f"Unknown write option {key!r}. Known: {', '.join(sorted(_OPTIONS.values()))}, and table "
                "properties delta.* where the write creates the table."
            )
        else:
            self._options[_OPTIONS[folded]] = _parsed(_OPTIONS[folded], value)
        return self

    def options(self, **options: Any) -> Writer:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def save(self, path: Location) -> WriteResult:
        """Write the rows to the table at ``path``, creating it if there is none, as one commit. ``path`` may also
        be ``catalog:<catalog>#<name>``, or a DeltaTable: with one of a transaction, the commit is a part of that.

        Raises TableExistsError (mode error), SchemaMismatchError, CommitConflictError and the other errors of
        deltalog, and Spark's own where its job fails; in all these cases nothing was committed and the files
        are removed, best effort. CommitStateUnknownError: the outcome is unknown and no file is removed.
        Cost: a Spark job, a footer read for each file in threads, one commit.
        """
        self._check(self._options)
        spark = self._df.sparkSession
        settled = copy.copy(self)
        settled._defaults = SessionDefaults.of(spark)
        settled._options = settled._defaults.options(self._mode, self._options)
        result = settled._save(path)
        if settled._defaults.gives_transaction(self._options):
            with contextlib.suppress(Exception):  # the write is committed
                settled._defaults.forget_transaction(spark)
        return result

    def _save(self, path: Location) -> WriteResult:
        data = stored_schema(from_spark(self._df.schema))
        check_unique(data)
        table = _existing(path)
        if table is None:
            plan = self._creation(paths.url_of(path), data)
        elif self._mode == "error":
            raise deltalog.TableExistsError(
                f"There is a table at {table.url}, and the mode is error. Use mode('append') or mode('overwrite')."
            )
        elif self._mode == "ignore":
            return WriteResult(table.version, False, "mode ignore: there is a table")
        else:
            plan = self._change(table, data)
        skipped = self._skipped(plan)
        if skipped is not None:
            return skipped
        try:
            return self._run(plan, paths.local_directory(paths.url_of(path) if table is None else table.url))
        except deltalog.TableExistsError:
            if self._mode != "ignore":
                raise
            return WriteResult(paths.open_table(path).version, False, "mode ignore: there is a table")

    # ------------------------------------------------------------------------------------------ planning

    def _check(self, options: Mapping[str, Any]) -> None:
        if ("txnAppId" in options) != ("txnVersion" in options):
            raise deltalog.CallError("txnAppId and txnVersion belong together. Give both, or none.")
        if options.get("overwriteSchema") and self._mode != "overwrite":
            raise deltalog.CallError("overwriteSchema needs mode('overwrite'); to add columns use mergeSchema.")
        if options.get("overwriteSchema") and options.get("mergeSchema"):
            raise deltalog.CallError("overwriteSchema and mergeSchema contradict each other. Give one of them.")
        partial = [name for name in ("replaceWhere", "partitionOverwriteMode") if options.get(name)]
        if partial and self._mode != "overwrite":
            raise deltalog.CallError(f"{partial[0]} needs mode('overwrite').")
        if len(partial) + bool(options.get("overwriteSchema")) > 1:
            raise deltalog.CallError("replaceWhere, partitionOverwriteMode and overwriteSchema exclude each other.")

    def _creation(self, url: str, data: deltalog.StructType) -> _Plan:
        if self._options.get("replaceWhere"):
            raise deltalog.CallError(f"There is no table at {url} in which replaceWhere could replace rows.")
        if "expectedVersion" in self._options:
            raise deltalog.CallError(f"There is no table at {url}, but expectedVersion names a version of it.")
        columns = self._partition_by or ()
        self._check_dynamic(columns)
        defaults = self._defaults.properties
        try:
            transaction = deltalog.DeltaTable.create_transaction(
                url, data, partition_by=columns, properties={**defaults, **self._properties}
            )
        except deltalog.InvalidPropertyError as error:
            key = error.key
            if key is None or key not in defaults or key in self._properties:
                raise
            setting = PROPERTY_DEFAULTS + key.removeprefix("delta.")
            message = (
                f"{setting} in this session sets a default for new tables that deltalog cannot apply. {error.message}"
            )
            raise deltalog.InvalidPropertyError(message, key=key) from error
        names = [data.field(name).name for name in columns]
        return _Plan(transaction, data, transaction.schema, names)

    def _change(self, table: deltalog.DeltaTable, data: deltalog.StructType) -> _Plan:
        expected = self._options.get("expectedVersion")
        reads = reads_of(self._df, table) if expected is None else ()
        transaction = table.transaction(reads=reads, expected_version=expected)
        snapshot = transaction.snapshot
        assert snapshot is not None
        self._check_properties(snapshot)
        if self._mode == "overwrite" and snapshot.metadata.configuration.get("delta.appendOnly", "").lower() == "true":
            raise deltalog.InvalidActionError(
                f"{table.url} is append-only (delta.appendOnly=true) and cannot be overwritten. Use mode('append')."
            )
        if self._options.get("overwriteSchema"):
            names = [data.field(name).name for name in self._partition_by or ()]
            self._check_dynamic(names)
            if data != snapshot.schema or names != list(snapshot.partition_columns):
                transaction.set_schema(data, partition_by=names)
            return _Plan(transaction, data, transaction.schema, names)
        names = list(snapshot.partition_columns)
        self._check_dynamic(names)
        given = names if self._partition_by is None else list(self._partition_by)
        if [name.lower() for name in given] != [name.lower() for name in names]:
            raise deltalog.SchemaMismatchError(
                f"partitionBy({', '.join(given)}) differs from the table at {table.url}, which is partitioned by "
                f"({', '.join(names)}). Leave partitionBy out, or replace the table with mode('overwrite') and "
                "option('overwriteSchema', True)."
            )
        merge = bool(self._options.get("mergeSchema"))
        found = list(problems(snapshot.schema, data, merge, ""))
        if found:
            raise deltalog.SchemaMismatchError(
                f"The data does not fit the table at {table.url}:\n" + "\n".join(f"- {each}" for each in found)
            )
        target = snapshot.schema
        if merge:
            target = deltalog.merge_schemas(target, as_table(target, data))
            if target != snapshot.schema:
                transaction.set_schema(target)
        return _Plan(transaction, data, transaction.schema, names)

    def _check_dynamic(self, partition_columns: Sequence[str]) -> None:
        if partition_columns and self._mode == "overwrite":
            self._defaults.check_dynamic(self._options)

    def _check_properties(self, snapshot: deltalog.Snapshot) -> None:
        for key, value in self._properties.items():
            current = snapshot.metadata.configuration.get(key)
            if current != value:
                raise deltalog.InvalidPropertyError(
                    f"The option {key!r} is a table property, and the table at {snapshot.url} exists and has "
                    f"{current!r}. A write sets properties only where it creates the table; use "
                    f"DeltaTable.open(path).set_properties({{{key!r}: {value!r}}})."
                )

    def _skipped(self, plan: _Plan) -> WriteResult | None:
        """For a txnVersion that is recorded already: the result, with the reason that nothing is written."""
        snapshot, app_id = plan.transaction.latest, self._options.get("txnAppId")
        if app_id is None:
            return None
        version = self._options["txnVersion"]
        recorded = None if snapshot is None else snapshot.transaction_version(app_id)
        if snapshot is not None and recorded is not None and version <= recorded:
            return WriteResult(
                snapshot.version,
                False,
                f"txnVersion {version} of {app_id!r} is written already (the table has {recorded})",
            )
        plan.transaction.set_transaction(app_id, version)
        return None

    # ----------------------------------------------------------------------------------------- execution

    def _run(self, plan: _Plan, table_directory: str) -> WriteResult:
        job = JobDirectory(table_directory, str(uuid.uuid4()))
        try:
            written = self._write_parquet(plan, job.path)
            found = collect(job.path, plan.target, plan.partition_columns, plan.stored_partition_columns)
            adds = plan.transaction.add_parquet_files(
                job.place(found),
                checked=True,
                owned=True,
                num_rows=written,
                examine=footers.examiner(table_directory, plan.stored_columns, plan.is_mapped),
            )
            removed = 0
            if self._mode == "overwrite" and plan.transaction.snapshot is not None:
                removed = self._remove_replaced(plan)
            if not plan.changes_anything(adds, removed, "txnAppId" in self._options):
                job.remove()
                snapshot = plan.transaction.snapshot
                assert snapshot is not None
                return WriteResult(snapshot.version, False, "the data has no rows, and nothing else changes")
        except BaseException:
            job.remove(stragglers=True)
            raise
        rows, size = sum(rows_of(add) for add in adds), sum(add.size for add in adds)
        metrics = {"numFiles": str(len(adds)), "numOutputRows": str(rows), "numOutputBytes": str(size)}
        removed_rows = plan.transaction.staged.removed_rows
        if removed:
            metrics = {**plan.transaction.staged.metrics(), **metrics}
            if removed_rows is not None:
                metrics["numDeletedRows"] = str(removed_rows)
        parameters: dict[str, Any] = {
            "mode": _MODE_NAMES[self._mode],
            "partitionBy": json.dumps(plan.partition_columns, separators=(",", ":"), ensure_ascii=False),
        }
        if self._options.get("overwriteSchema"):
            parameters["canOverwriteSchema"] = True
        if self._options.get("mergeSchema"):
            parameters["canMergeSchema"] = True
        if self._options.get("replaceWhere"):
            parameters["predicate"] = self._options["replaceWhere"]
        elif self._replaces_partitions(plan):
            parameters["isDynamicPartitionOverwrite"] = True
        try:
            result = plan.transaction.commit("WRITE", parameters, metrics, self._options.get("userMetadata"))
        except deltalog.DeltaLogError as error:
            if error.outcome is not deltalog.Outcome.UNKNOWN:  # else the commit may name the files
                job.remove()
            raise
        return WriteResult(
            version=result.version,
            committed=True,
            num_files=len(adds),
            num_rows=rows,
            num_bytes=size,
            num_removed_files=removed,
            num_removed_rows=removed_rows,
            timestamp_ms=result.timestamp_ms,
            in_commit_timestamp_ms=result.in_commit_timestamp_ms,
            txn_id=result.txn_id,
        )

    def _remove_replaced(self, plan: _Plan) -> int:
        """Remove the files that an overwrite replaces; the new files are staged already."""
        if self._options.get("replaceWhere"):
            return plan.transaction.replace_where(self._options["replaceWhere"])
        if self._replaces_partitions(plan):
            return plan.transaction.replace_partitions()
        return plan.transaction.remove_all_files()

    def _replaces_partitions(self, plan: _Plan) -> bool:
        """As in Spark, a table without partitions is overwritten whole."""
        dynamic = self._options.get("partitionOverwriteMode") and plan.transaction.snapshot is not None
        return bool(self._mode == "overwrite" and dynamic and plan.partition_columns)

    def _optimizes(self, plan: _Plan) -> bool:
        """As in delta-spark: the option, else the session, else the table."""
        if "optimizeWrite" in self._options:
            return bool(self._options["optimizeWrite"])
        return plan.transaction.metadata.configuration.get("delta.autoOptimize.optimizeWrite", "").lower() == "true"

    def _write_parquet(self, plan: _Plan, directory: str) -> int:
        """The number of rows written, as the job counted them."""
        demands = plan.transaction.row_writer.rules()
        frame = conformed(self._df, plan.data, plan.target, plan.partition_columns, demands)
        if plan.is_mapped:
            frame = mapped.under_stored_names(frame, plan.target)
        if self._optimizes(plan):
            frame = frame.hint("rebalance", *(quoted(name) for name in plan.stored_partition_columns))
        options: dict[str, Any] = dict(OPTIONS)
        for name in ("compression", "maxRecordsPerFile"):
            if name in self._options:
                options[name] = self._options[name]
        spark, count = self._df.sparkSession, RowCount()
        settings = dict(SETTINGS)
        if spark_version(spark) >= TIMESTAMP_SETTING_AS_OPTION:
            options[TIMESTAMP_SETTING] = settings.pop(TIMESTAMP_SETTING)
        try:
            with session_settings(spark, settings), cancelled_with_its_caller(spark):
                writer = count.of(frame).write.mode("error").options(**options)
                if plan.partition_columns:
                    writer = writer.partitionBy(*plan.stored_partition_columns)
                writer.parquet(paths.uri(directory))
        except Exception as error:
            refusal = rules.REFUSAL.search(str(error))
            if refusal is None:
                of_store = failure_of_store(error, directory)
                if of_store is None:
                    raise
                raise of_store from error
            raise rules.violation(refusal[1], demands) or deltalog.SchemaMismatchError(refusal[1]) from error
        return count.rows(spark, directory)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A planned write: the schema of the data, and the table after the write."""

    transaction: deltalog.Transaction
    data: deltalog.StructType
    target: deltalog.StructType
    partition_columns: list[str]

    @property
    def is_mapped(self) -> bool:
        """Whether the table has column mapping, so that files have physical names and ids."""
        return mapped.is_mapped(self.transaction)

    @property
    def stored_columns(self) -> deltalog.StructType:
        """The columns of data files, under their physical names."""
        fields = [field for field in self.target.fields if field.name not in self.partition_columns]
        held = deltalog.StructType(tuple(fields))
        return mapped.stored_schema(held) if self.is_mapped else held

    @property
    def stored_partition_columns(self) -> list[str]:
        """The partition columns under the names that paths and the log have for them."""
        if self.is_mapped:
            return mapped.stored_names(self.target, self.partition_columns)
        return self.partition_columns

    def changes_anything(self, adds: Sequence[Any], removed: int, records_transaction: bool) -> bool:
        """As delta-spark: without rows added or removed and other staged changes there is no commit."""
        snapshot = self.transaction.snapshot
        if snapshot is None or adds or removed or records_transaction:
            return True
        return self.transaction.metadata != snapshot.metadata


def _existing(path: Location) -> deltalog.DeltaTable | None:
    """The table that is written to; None if a path has none yet. A table named by a catalog address must exist."""

    try:
        return paths.open_table(path)
    except deltalog.TableNotFoundError:
        if paths.is_address(paths.url_of(path)):
            raise
        return None


# --- options


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(name: str, value: Any) -> Any:
    text = _text(value)
    if name in ("mergeSchema", "optimizeWrite", "overwriteSchema"):
        if text.lower() not in ("true", "false"):
            raise deltalog.CallError(f"The option {name} is {value!r}, but must be true or false.")
        return text.lower() == "true"
    if name in ("expectedVersion", "txnVersion", "maxRecordsPerFile"):
        if not re.fullmatch(r"\d{1,18}", text):
            raise deltalog.CallError(f"The option {name} is {value!r}, but must be a number that is not negative.")
        return int(text)
    if name == "compression" and text.lower() not in _CODECS:
        raise deltalog.CallError(f"The option compression is {value!r}. Known: {', '.join(_CODECS)}.")
    if name == "partitionOverwriteMode":
        if text.lower() not in ("static", "dynamic"):
            raise deltalog.CallError(f"The option {name} is {value!r}. Known: static, dynamic.")
        return text.lower() == "dynamic"
    if name == "txnAppId" and not text:
        raise deltalog.CallError("The option txnAppId is empty.")
    return text
