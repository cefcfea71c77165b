"""Carries out a planned write: a Spark job that writes the files, removals, and one commit.

How the rows become files is the job's concern (``Job``): it depends on where the table is stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading.table_columns import quoted
from spark_ext.results import WriteResult
from spark_ext.session.jobs import failure_of_job
from spark_ext.session.settings import session_settings
from spark_ext.writing import file_sizes, physical_columns, row_rules
from spark_ext.writing.file_rows import conformed
from spark_ext.writing.job_files import rows_of
from spark_ext.writing.row_count import Count
from spark_ext.writing.write_options import WriteRequest, parameter_text
from spark_ext.writing.write_plan import WritePlan

# Options that Spark's Parquet writer takes.
_FILE_OPTIONS = ("compression", "maxRecordsPerFile")
# PySpark formats the text of a query that is given DataFrames.
_BRACES = str.maketrans({"{": "{{", "}": "}}"})


class Job(Protocol):
    """Writes rows as files of a table. One object serves one write."""

    #: Whether Spark writes the files: then rows have the names, ids and partition values that files and directories
    #: have. Else they are the table's.
    is_native: bool

    @property
    def destination(self) -> str:
        """Where the job writes, for messages."""

    def write(
        self, frame: DataFrame, plan: WritePlan, options: Mapping[str, Any], count: Count | None = None
    ) -> list[deltalog.AddFile]:
        """Write the rows of ``frame``, with the columns of ``plan.target`` (``is_native``), and stage in
        ``plan.transaction`` exactly the files of successful tasks. Returns their add actions.

        ``options``: ``compression`` and ``maxRecordsPerFile``, where given. ``count``: counts the rows; None: one of
        the job's own. Raises RowCountError if the files do not
        hold the rows that the job counted, by a count that does not come from the files.
        """

    def remove(self, stragglers: bool = False) -> None:
        """Remove the files, best effort: nothing was committed. ``stragglers``: the job has failed or was cancelled,
        and its tasks may still run for a moment."""


def execute(df: DataFrame, request: WriteRequest, plan: WritePlan, job: Job) -> WriteResult:
    """Write the rows of ``df`` and commit. The files are removed if it fails, unless the commit may name them.

    Raises as ``Writer.save``.
    """
    try:
        demands = plan.transaction.row_writer.rules()
        options = {name: request.options[name] for name in _FILE_OPTIONS if name in request.options}
        rows_per_file = file_sizes.rows_per_file(request, plan.transaction)
        if rows_per_file is not None:
            options.setdefault("maxRecordsPerFile", rows_per_file)
        settings = file_sizes.shuffle_settings(request) if _optimizes(request, plan) else {}
        replaced = None if plan.replacement is None else plan.replacement.where
        with explained(demands, replaced, job), session_settings(df.sparkSession, settings):
            adds = job.write(_stored_rows(df, request, plan, demands, job.is_native), plan, options)
        plan.transaction.row_writer.note_values(adds)
        rows = sum(rows_of(add) for add in adds)
        metrics = _replace(request, plan, rows)
        if not _changes_anything(plan, "txnAppId" in request.options):
            _discard(plan, job)
            snapshot = plan.transaction.snapshot
            assert snapshot is not None
            return WriteResult(snapshot.version, False, "the data has no rows, and nothing else changes")
    except BaseException:
        _discard(plan, job, stragglers=True)
        raise
    return _commit(request, plan, job, rows, metrics)


def _discard(plan: WritePlan, job: Job, stragglers: bool = False) -> None:
    """Remove the files that the job and the transaction wrote."""
    with contextlib.suppress(deltalog.DeltaLogError):  # the transaction may have ended
        plan.transaction.abort()
    job.remove(stragglers)


def _stored_rows(df: DataFrame, request: WriteRequest, plan: WritePlan, demands: Any, is_native: bool) -> DataFrame:
    """The rows as the files hold them."""
    checked = plan.replacement if plan.replacement and request.defaults.checks_replacing_rows else None
    frame = conformed(df, plan.data, plan.target, plan.partition_columns, demands, checked, in_directories=is_native)
    names = plan.partition_columns
    if is_native and plan.is_mapped:
        frame, names = physical_columns.under_stored_names(frame, plan.target), plan.stored_partition_columns
    if plan.change_column is not None:
        frame = frame.withColumn(plan.change_column, F.lit("insert"))
    if _optimizes(request, plan):
        # As SQL, since Spark 3.5 takes no names of columns in DataFrame.hint.
        listed = ", ".join(quoted(name) for name in names).translate(_BRACES)
        hint = f"rebalance({listed})" if listed else "rebalance"
        frame = df.sparkSession.sql(f"select /*+ {hint} */ * from {{rows}}", rows=frame)
    return frame


@contextlib.contextmanager
def explained(demands: Any, replaced: str | None, job: Job) -> Iterator[None]:
    """Errors of Spark as errors of deltalog, where they are about the rows, the store or the cluster."""
    try:
        yield
    except (deltalog.DeltaLogError, AnalysisException):  # the latter has the plan in it, with what would be refused
        raise
    except Exception as error:
        refusal = row_rules.REFUSAL.search(str(error))
        if refusal is None:
            failure = failure_of_job(error, job.destination)
            if failure is None:
                raise
            raise failure from error
        raise row_rules.violation(refusal[1], demands, replaced) from error


def _replace(request: WriteRequest, plan: WritePlan, rows: int) -> dict[str, Any]:
    """Remove what an overwrite replaces; the files of the new ``rows`` are staged already. Returns the metrics of the
    whole commit."""
    transaction, staged = plan.transaction, plan.transaction.staged
    if request.mode != "overwrite":
        return {**staged.metrics(), "numOutputRows": rows}
    if plan.replacement is not None:
        if plan.is_checked_again:
            plan.replacement.check_new_rows()
        return plan.replacement.stage(rows)
    if _replaces_partitions(request, plan):
        transaction.replace_partitions()
    elif transaction.snapshot is not None:
        transaction.remove_all_files()
    metrics = {"numRemovedFiles": 0, "numRemovedBytes": 0, **staged.metrics(), "numOutputRows": rows}
    if staged.removed_rows is not None:
        metrics["numDeletedRows"] = staged.removed_rows
    return metrics


def _replaces_partitions(request: WriteRequest, plan: WritePlan) -> bool:
    """As in Spark, a table without partitions is overwritten whole."""
    dynamic = request.options.get("partitionOverwriteMode") and plan.transaction.snapshot is not None
    return bool(request.mode == "overwrite" and dynamic and plan.partition_columns)


def _optimizes(request: WriteRequest, plan: WritePlan) -> bool:
    """As in delta-spark: the option, else the session, else the table."""
    if "optimizeWrite" in request.options:
        return bool(request.options["optimizeWrite"])
    return plan.transaction.metadata.configuration.get("delta.autoOptimize.optimizeWrite", "").lower() == "true"


def _changes_anything(plan: WritePlan, records_transaction: bool) -> bool:
    """As delta-spark: without rows added or removed and other staged changes there is no commit."""
    transaction, staged = plan.transaction, plan.transaction.staged
    if transaction.snapshot is None or staged.adds or staged.removes or records_transaction:
        return True
    return transaction.metadata != transaction.snapshot.metadata


def _commit(request: WriteRequest, plan: WritePlan, job: Job, rows: int, metrics: Mapping[str, Any]) -> WriteResult:
    replacement, staged = plan.replacement, plan.transaction.staged
    removed_rows = staged.removed_rows if replacement is None else replacement.num_deleted_rows
    user_metadata = request.options.get("userMetadata")
    try:
        operation = f"{request.statement} AS SELECT" if request.statement else "WRITE"
        result = plan.transaction.commit(operation, _parameters(request, plan), metrics, user_metadata)
    except deltalog.DeltaLogError as error:
        if error.outcome is not deltalog.Outcome.UNKNOWN:  # else the commit may name the files
            _discard(plan, job)
        raise
    return WriteResult(
        version=result.version,
        committed=True,
        num_files=int(metrics["numFiles"]),
        num_rows=rows,
        num_bytes=int(metrics["numOutputBytes"]),
        num_removed_files=int(metrics.get("numRemovedFiles", 0)),
        num_removed_rows=removed_rows,
        num_copied_rows=0 if replacement is None else replacement.num_copied_rows,
        timestamp_ms=result.timestamp_ms,
        in_commit_timestamp_ms=result.in_commit_timestamp_ms,
        txn_id=result.txn_id,
    )


def _parameters(request: WriteRequest, plan: WritePlan) -> dict[str, Any]:
    """The parameters of the operation, as delta-spark records them."""
    partition_by = parameter_text(plan.partition_columns)
    if request.statement is not None:
        properties = parameter_text(dict(request.properties))
        parameters: dict[str, Any] = {"partitionBy": partition_by, "isManaged": "false", "properties": properties}
        if request.cluster_by:
            parameters["clusterBy"] = parameter_text(request.cluster_by)
        return parameters
    parameters = {"mode": request.mode_name, "partitionBy": partition_by}
    if request.options.get("overwriteSchema"):
        parameters["canOverwriteSchema"] = True
    if request.options.get("mergeSchema"):
        parameters["canMergeSchema"] = True
    if request.options.get("replaceWhere"):
        parameters["predicate"] = request.options["replaceWhere"]
    elif _replaces_partitions(request, plan):
        parameters["isDynamicPartitionOverwrite"] = True
    return parameters
