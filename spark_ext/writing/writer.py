"""The writer: Spark writes the Parquet files; deltalog commits them from the calling process.

A write is one Spark job and one commit. If a write fails before the commit, the log is unchanged and the files are
removed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

import deltalog
from spark_ext.results import WriteResult
from spark_ext.session import stores
from spark_ext.session.paths import Location, check_format, not_here
from spark_ext.writing.assignments import at_their_positions
from spark_ext.writing.save import save
from spark_ext.writing.table_writer import named_target
from spark_ext.writing.targets import PathTarget
from spark_ext.writing.write_options import WriteRequest, as_text, column_names, parsed_mode, parsed_option

_LAYOUT = "Delta tables have no buckets; use partitionBy(...)"
_FILES = "only Delta tables are written: save(path); df.write writes files of other formats"
# Methods of Spark's writer that Writer lacks, and their alternatives.
_ELSEWHERE = {
    **dict.fromkeys(("bucketBy", "sortBy"), _LAYOUT),
    **dict.fromkeys(("parquet", "json", "csv", "orc", "text", "xml", "jdbc"), _FILES),
}


def write(df: DataFrame) -> Writer:
    """A writer for a DataFrame, used instead of ``df.write``."""
    return Writer(df)


class Writer:
    """Set mode, partition columns and options, then call ``save``. As in Spark the default mode is ``error``.

    Options (case-insensitive; an unknown option is an error): ``mergeSchema``, ``overwriteSchema``, ``userMetadata``,
    ``txnAppId`` with ``txnVersion``, ``maxRecordsPerFile``, ``targetFileSize``, ``compression``, and table properties
    ``delta.*`` if the write creates the table. With mode ``overwrite``, ``replaceWhere`` (a condition) and
    ``partitionOverwriteMode`` (``dynamic``) replace a part of the table. ``optimizeWrite`` shuffles rows into fewer
    files. ``expectedVersion``: the save fails unless this is still the table's latest version when it commits.
    ``path``: the location of the table that ``saveAsTable`` creates. The defaults of the options are the session's
    settings for delta-spark (see docs/spark-reference.md).

    If the DataFrame was read from the table that it is saved to, commits of other writers since that read are checked
    for conflicts.
    """

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self._request = WriteRequest()
        self._path: str | None = None

    def format(self, source: str) -> Writer:
        """``delta`` or ``deltalog``, for compatibility with Spark's own writer; others raise CallError."""
        check_format(source)
        return self

    def __getattr__(self, name: str) -> Any:
        return not_here(name, _ELSEWHERE, "Writer")

    def mode(self, mode: str) -> Writer:
        """``append``, ``overwrite``, ``error`` (or ``errorifexists``), ``ignore``."""
        return self._with(mode=parsed_mode(mode))

    def partitionBy(self, *columns: str | Sequence[str]) -> Writer:
        """The partition columns, for a write that creates the table or, with ``overwriteSchema``, replaces it."""
        return self._with(partition_by=column_names("partitionBy", columns))

    def clusterBy(self, *columns: str | Sequence[str]) -> Writer:
        """The clustering columns, by which ``OPTIMIZE`` orders rows, for a write that creates the table or, with
        ``overwriteSchema``, replaces it. A write that does neither is refused if the clustering columns differ from
        those of the table."""
        return self._with(cluster_by=column_names("clusterBy", columns))

    def option(self, key: str, value: Any) -> Writer:
        """Set one option. Raises CallError for an unknown name or an invalid value."""
        if key.lower() == "path":
            self._path = os.fspath(value)
            return self
        if key.lower().startswith("delta."):
            return self._with(properties={**self._request.properties, key: as_text(value)})
        name, parsed = parsed_option(key, value)
        return self._with(options={**self._request.options, name: parsed})

    def options(self, **options: Any) -> Writer:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def storage_options(self, **options: Any) -> Writer:
        """Set the options of the store, as for ``Reader.storage_options``. Raises CallError."""
        return self._with(storage={**self._request.storage, **stores.checked(options)})

    def save(self, path: Location) -> WriteResult:
        """Write the rows to the table at ``path`` as one commit, creating the table if it does not exist. ``path`` may
        also be ``catalog:<catalog>#<name>``, or a DeltaTable; if this table belongs to a transaction, the commit
        becomes part of that transaction.

        Raises TableExistsError (mode error), SchemaMismatchError, CommitConflictError and the other errors of deltalog,
        and Spark's own if its job fails; in all these cases nothing was committed, and the files are removed, best
        effort. CommitStateUnknownError: the outcome is unknown, and no file is removed. Cost: a Spark job, a read of
        each file's footer in threads, one commit.
        """
        self._refuse_path("save")
        return save(self._df, self._request, PathTarget(path))

    def saveAsTable(self, name: str) -> WriteResult:
        """Like ``save``, by name in the session's catalog (``spark_ext.use_catalog``): ``table`` or ``schema.table``.
        If the table does not exist, it is created at ``option("path", …)`` or, by default, below Spark's warehouse
        directory, and is managed by the catalog. Raises as ``save``."""
        return save(self._df, self._request, named_target(self._df, name, self._path))

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> WriteResult:
        """Write the rows to a table of the session's catalog, matching columns and struct fields by position instead of
        by name.

        ``overwrite``: whether to replace the rows of the table; by default only if the mode is ``overwrite``. Raises
        TableNotFoundError, SchemaMismatchError if the number of columns differs or a struct has the table's fields in
        another order, and as ``save``.
        """
        self._refuse_path("insertInto")
        if self._request.partition_by is not None:
            raise deltalog.CallError(
                "insertInto writes to an existing table with its own partition columns; drop partitionBy."
            )
        replaces = self._request.mode == "overwrite" if overwrite is None else overwrite
        target = named_target(self._df, tableName, None)
        table = target.existing(self._df.sparkSession, self._request.storage)
        if table is None:
            raise deltalog.TableNotFoundError(f"The session's catalog has no table {tableName}.")
        schema = table.snapshot().schema
        names = schema.names
        if len(names) != len(self._df.columns):
            raise deltalog.SchemaMismatchError(
                f"{tableName} has {len(names)} columns ({', '.join(names)}) and the data has {len(self._df.columns)}. "
                "insertInto matches columns by position; saveAsTable matches them by name."
            )
        # The table is already open, so its store needs no options.
        request = self._request.having(mode="overwrite" if replaces else "append", storage={})
        rows = at_their_positions(self._df.toDF(*names), schema.fields, table.url)
        return save(rows, request, PathTarget(table), must_exist=True)

    def _refuse_path(self, call: str) -> None:
        if self._path is not None:
            raise deltalog.CallError(f"The option path is for saveAsTable; {call} does not take it.")

    def _with(self, **changes: Any) -> Writer:
        self._request = self._request.having(**changes)
        return self
