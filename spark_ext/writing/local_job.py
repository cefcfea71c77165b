"""A Spark job that writes data files with Spark's Parquet writer, on a disk that this process can access."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

import deltalog
from spark_ext.session import paths
from spark_ext.session.jobs import cancelled_with_its_caller
from spark_ext.session.settings import (
    OPTIONS,
    SETTINGS,
    SETTINGS_FOR_VARIANTS,
    SHREDDING_OPTION,
    SHREDS_VARIANTS,
    TIMESTAMP_SETTING,
    TIMESTAMP_SETTING_AS_OPTION,
    session_settings,
    spark_version,
)
from spark_ext.writing import footers
from spark_ext.writing.job_files import JobDirectory, collect
from spark_ext.writing.new_files import NewFiles
from spark_ext.writing.row_count import Count, RowCount

# The name of the directory that contains the change data files.
_CHANGES = "_change_data"


class LocalJob:
    """The job of one write. The job writes to its own directory below the table, and then moves the files to their
    final paths."""

    is_native = True

    def __init__(self, table_directory: str) -> None:
        self._table = table_directory
        self._directory = JobDirectory(table_directory, deltalog.engine.job_directory_name(str(uuid.uuid4())))

    @property
    def destination(self) -> str:
        """The location to which the job writes, for error messages."""
        return self._directory.path

    def write(
        self, frame: DataFrame, files: NewFiles, options: Mapping[str, Any], count: Count | None = None
    ) -> list[deltalog.engine.AddFile]:
        """Like ``Job.write``; ``frame`` contains the files' columns and the partition columns. ``options``: options of
        Spark's Parquet writer.

        Raises RowCountError, InvalidDataFileError, and Spark's own errors. Cost: the job, and a footer read for each
        file in threads.
        """
        rows = self._run(frame, files, options, count or RowCount())
        found = collect(self._directory.path, files.schema, files.partition_columns, files.stored_partition_columns)
        return files.transaction.add_parquet_files(
            self._directory.place(found, _CHANGES if files.as_changes else ""),
            checked=True,
            owned=True,
            num_rows=rows,
            examine=footers.examiner(self._table, files.stored_columns, files.is_mapped, files.shreds_variants),
            as_changes=files.as_changes,
        )

    def remove(self, stragglers: bool = False) -> None:
        """Remove the files that the job wrote, as far as possible. ``stragglers``: whether some tasks of the job may
        still be running."""
        self._directory.remove(stragglers)

    def _run(self, frame: DataFrame, files: NewFiles, options: Mapping[str, Any], count: Count) -> int | None:
        """The number of written rows, counted by the job."""
        spark, directory = frame.sparkSession, self._directory.path
        settings, all_options = dict(SETTINGS), {**OPTIONS, **options}
        if files.has_variants and spark_version(spark) >= SHREDS_VARIANTS:
            all_options[SHREDDING_OPTION] = str(files.shreds_variants).lower()
        elif files.has_variants:
            settings.update(SETTINGS_FOR_VARIANTS)
        if spark_version(spark) >= TIMESTAMP_SETTING_AS_OPTION:
            all_options[TIMESTAMP_SETTING] = settings.pop(TIMESTAMP_SETTING)
        with session_settings(spark, settings):
            writer = count.observe(frame).write.mode("error").options(**all_options)
            if files.partition_columns:
                writer = writer.partitionBy(*files.stored_partition_columns)
            cancelled_with_its_caller(spark, lambda: writer.parquet(paths.uri(directory)))
        return count.rows(spark, directory)
