"""Saves a DataFrame to a table: the table is found or created, the write planned and carried out."""

from __future__ import annotations

import contextlib

from pyspark.sql import DataFrame

import deltalog
from spark_ext.results import WriteResult
from spark_ext.session import paths, stores
from spark_ext.session.jobs import lost_session_explained
from spark_ext.writing import write_plan
from spark_ext.writing.execution import Job, execute
from spark_ext.writing.file_rows import has_void, typed
from spark_ext.writing.local_job import LocalJob
from spark_ext.writing.targets import Target
from spark_ext.writing.task_job import TaskJob
from spark_ext.writing.write_options import WriteRequest


def save(df: DataFrame, given: WriteRequest, target: Target, must_exist: bool = False) -> WriteResult:
    """Write the rows as one commit. ``given``: as the caller has it, without the session's settings. ``must_exist``:
    the table is not created, TableNotFoundError. Raises as ``Writer.save``."""
    given.check()
    spark = df.sparkSession
    with lost_session_explained(target.url):
        request = given.with_defaults_of(spark)
    result = _saved(df, request, target, must_exist)
    if request.defaults.gives_transaction(given.options):
        with contextlib.suppress(Exception):  # the write is committed
            request.defaults.forget_transaction(spark)
    return result


def _saved(df: DataFrame, request: WriteRequest, target: Target, must_exist: bool) -> WriteResult:
    spark, storage = df.sparkSession, request.storage
    with lost_session_explained(target.url):
        table = target.existing(spark, storage)
        if table is not None and has_void(df) and not request.options.get("overwriteSchema"):
            df = typed(df, table.snapshot().schema)
        data = write_plan.data_schema(df)
        if table is None and must_exist:
            raise deltalog.TableNotFoundError(f"There is no table at {target.url}. Create it first.")
        if table is None:
            plan = write_plan.creation(request, spark, target, data)
        elif request.mode == "error":
            raise deltalog.TableExistsError(
                f"There is a table at {table.url}, and the mode is error. Use mode('append') or mode('overwrite')."
            )
        elif request.mode == "ignore":
            return WriteResult(table.version, False, "mode ignore: there is a table")
        else:
            plan = write_plan.change(request, df, table, data)
        recorded = write_plan.recorded_transaction(request, plan)
        if recorded is not None:
            assert plan.transaction.latest is not None
            return WriteResult(plan.transaction.latest.version, False, recorded)
    try:
        with lost_session_explained(target.url):
            result = execute(df, request, plan, job_of(target.url if table is None else table.url))
    except deltalog.TableExistsError:
        found = target.existing(spark, storage) if request.mode == "ignore" else None
        if found is None:
            raise
        return WriteResult(found.version, False, "mode ignore: there is a table")
    if table is None:
        target.created(spark, storage)
    return result


def job_of(url: str) -> Job:
    """The job that writes files of the table at a URL."""
    root = paths.checked_root(url, None)
    return TaskJob(root) if stores.bucket_of(root) else LocalJob(root)
