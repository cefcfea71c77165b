"""Saves a DataFrame to a table as one commit.

``save`` runs every stage of a write once, in this order: the session's settings complete the request
(``write_options``), the write is planned (``write_plan``), the rows are cast and checked (``file_rows``), a job writes
the files (``file_job``), replaced files are removed, the transaction commits, and a catalog registers the name of a new
table (``targets``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading.table_columns import quoted
from spark_ext.results import WriteResult
from spark_ext.session.jobs import lost_session_explained
from spark_ext.session.settings import session_settings
from spark_ext.writing import file_rows, file_sizes
from spark_ext.writing.file_job import Job, explained, job_of
from spark_ext.writing.job_files import rows_of
from spark_ext.writing.targets import Target
from spark_ext.writing.write_options import WriteRequest
from spark_ext.writing.write_plan import WritePlan, ignored, plan_write

# Options that Spark's Parquet writer accepts.
_FILE_OPTIONS = ("compression", "maxRecordsPerFile")
# Escapes braces: PySpark applies str.format to a query if DataFrames are passed as arguments.
_BRACES = str.maketrans({"{": "{{", "}": "}}"})


def save(df: DataFrame, request: WriteRequest, target: Target, must_exist: bool = False) -> WriteResult:
    """Write all rows of ``df`` in one commit, or nothing. ``request``: the caller's request, without the session's
    settings. ``must_exist``: raise TableNotFoundError instead of creating the table. Raises as ``Writer.save``."""
    request.check()
    spark = df.sparkSession
    with lost_session_explained(target.url):
        settled = request.with_defaults_of(spark)
        plan = plan_write(df, settled, target, must_exist)
    result = plan if isinstance(plan, WriteResult) else _write(plan, target)
    if settled.defaults.gives_transaction(request.options):
        with contextlib.suppress(Exception):  # the write is committed
            settled.defaults.forget_transaction(spark)
    return result


def _write(plan: WritePlan, target: Target) -> WriteResult:
    spark, request = plan.rows.sparkSession, plan.request
    try:
        with lost_session_explained(target.url):
            result = _execute(plan, job_of(plan.url))
    except deltalog.TableExistsError:
        found = target.existing(spark, request.storage) if request.mode == "ignore" else None
        if found is None:
            raise
        return ignored(found)
    if plan.creates_table:
        target.created(spark, request.storage)
    return result


def _execute(plan: WritePlan, job: Job) -> WriteResult:
    """Write the files and commit. If writing or committing fails, the files are removed, unless the commit may refer to
    them."""
    try:
        adds = _write_files(plan, job)
        plan.transaction.row_writer.note_values(adds)
        num_rows = sum(rows_of(add) for add in adds)
        metrics = _stage_removals(plan, num_rows)
        if not plan.changes_anything:
            _discard(plan, job)
            snapshot = plan.transaction.snapshot
            assert snapshot is not None
            return WriteResult(snapshot.version, False, "the data has no rows, and nothing else changes")
    except BaseException:
        _discard(plan, job, stragglers=True)
        raise
    return _commit(plan, job, num_rows, metrics)


def _write_files(plan: WritePlan, job: Job) -> list[deltalog.engine.AddFile]:
    """Run the job, which stages the new files."""
    rules = plan.transaction.row_writer.rules()
    options = {name: plan.request.options[name] for name in _FILE_OPTIONS if name in plan.request.options}
    rows_per_file = file_sizes.rows_per_file(plan.request, plan.transaction)
    if rows_per_file is not None:
        options.setdefault("maxRecordsPerFile", rows_per_file)
    settings = file_sizes.shuffle_settings(plan.request) if plan.optimizes else {}
    replaced = None if plan.replacement is None else plan.replacement.where
    with explained(rules, replaced, job), session_settings(plan.rows.sparkSession, settings):
        return job.write(_rows(plan, rules, job.is_native), plan.files, options)


def _rows(plan: WritePlan, rules: deltalog.engine.TableRules, is_native: bool) -> DataFrame:
    """The rows in the form in which the files store them; for an optimized write, they are also shuffled."""
    checked = plan.replacement if plan.request.defaults.checks_replacing_rows else None
    frame = file_rows.new_rows(plan.rows, plan.data, plan.files, rules, is_native, replacement=checked)
    if plan.change_column is not None:
        frame = frame.withColumn(plan.change_column, F.lit("insert"))
    if plan.optimizes:
        names = plan.files.stored_partition_columns if is_native else plan.files.partition_columns
        # The hint is written as SQL, since DataFrame.hint of Spark 3.5 takes no column names.
        listed = ", ".join(quoted(name) for name in names).translate(_BRACES)
        hint = f"rebalance({listed})" if listed else "rebalance"
        frame = frame.sparkSession.sql(f"select /*+ {hint} */ * from {{rows}}", rows=frame)
    return frame


def _stage_removals(plan: WritePlan, num_rows: int) -> dict[str, Any]:
    """Stage the removal of the files or rows that an overwrite replaces. The new files, with ``num_rows`` rows, are
    already staged. Returns the operation metrics."""
    transaction, staged = plan.transaction, plan.transaction.staged
    if plan.request.mode != "overwrite":
        return {**staged.metrics(), "numOutputRows": num_rows}
    if plan.replacement is not None:
        if plan.is_checked_again:
            plan.replacement.check_new_rows()
        return plan.replacement.stage(num_rows)
    if plan.replaces_partitions:
        transaction.replace_partitions()
    elif transaction.snapshot is not None:
        transaction.remove_all_files()
    metrics = {"numRemovedFiles": 0, "numRemovedBytes": 0, **staged.metrics(), "numOutputRows": num_rows}
    if staged.removed_rows is not None:
        metrics["numDeletedRows"] = staged.removed_rows
    return metrics


def _commit(plan: WritePlan, job: Job, num_rows: int, metrics: Mapping[str, Any]) -> WriteResult:
    replacement, staged = plan.replacement, plan.transaction.staged
    removed_rows = staged.removed_rows if replacement is None else replacement.num_deleted_rows
    user_metadata = plan.request.options.get("userMetadata")
    try:
        result = plan.transaction.commit(plan.operation, plan.parameters, metrics, user_metadata)
    except deltalog.DeltaLogError as error:
        # Otherwise the commit may have taken effect and refer to the files.
        if error.outcome is not deltalog.errors.Outcome.UNKNOWN:
            _discard(plan, job)
        raise
    return WriteResult(
        version=result.version,
        committed=True,
        num_files=int(metrics["numFiles"]),
        num_rows=num_rows,
        num_bytes=int(metrics["numOutputBytes"]),
        num_removed_files=int(metrics.get("numRemovedFiles", 0)),
        num_removed_rows=removed_rows,
        num_copied_rows=0 if replacement is None else replacement.num_copied_rows,
        timestamp_ms=result.timestamp_ms,
        in_commit_timestamp_ms=result.in_commit_timestamp_ms,
        txn_id=result.txn_id,
    )


def _discard(plan: WritePlan, job: Job, stragglers: bool = False) -> None:
    """Remove the files that the job wrote and the files that the transaction wrote."""
    with contextlib.suppress(deltalog.DeltaLogError):  # the transaction may already have ended
        plan.transaction.abort()
    job.remove(stragglers)
