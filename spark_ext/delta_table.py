"""``DeltaTable`` with the names and signatures of delta-spark's ``delta.tables.DeltaTable``, on deltalog: a program
written for delta-spark runs after its import is changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext import frames, names, paths, row_verbs, stores
from spark_ext.assigned import Expression
from spark_ext.paths import Location
from spark_ext.reader import frame
from spark_ext.results import WriteResult

_BY_PATH = re.compile(r"(?:delta|deltalog)\.`((?:[^`]|``)+)`", re.IGNORECASE)


class DeltaTable:
    """A table for changing its rows and its properties; from ``forPath`` or ``forName``.

    Conditions and values are SQL text or columns of Spark. Every method that changes the table is one commit on its
    latest version, or none; rows are read and written by Spark's executors.
    """

    def __init__(self, spark: SparkSession, table: deltalog.DeltaTable, alias: str | None = None) -> None:
        """For ``forPath`` and ``forName``."""
        self._spark = spark
        self._table = table
        self._alias = alias

    # ------------------------------------------------------------------------------------------ finding tables

    @classmethod
    def forPath(
        cls,
        sparkSession: SparkSession,
        path: Location,
        hadoopConf: Mapping[str, str] | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> DeltaTable:
        """The table at a path, or at an address in a catalog (``catalog:<catalog>#<name>``). ``storage_options``: as
        for ``Reader.storage_options``, which also says what takes the place of ``hadoopConf``. Raises
        TableNotFoundError, CallError. Cost: as ``DeltaTable.open`` of deltalog."""
        if hadoopConf:
            raise deltalog.CallError(
                "hadoopConf is Hadoop's, and deltalog opens the store itself. Give storage_options, or set the "
                "session's spark.hadoop.fs.s3a.* settings."
            )
        return cls(sparkSession, paths.open_table(sparkSession, path, storage=stores.checked(storage_options or {})))

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """The table of a name in the session's catalog (``spark_ext.use_catalog``), or of ``delta.`path```. Raises
        TableNotFoundError, CallError. Cost: as ``forPath``."""
        by_path = _BY_PATH.fullmatch(tableOrViewName) if isinstance(tableOrViewName, str) else None
        if by_path is not None:
            return cls.forPath(sparkSession, by_path[1].replace("``", "`"))
        return cls.forPath(sparkSession, names.address_of(sparkSession, tableOrViewName))

    @classmethod
    def isDeltaTable(
        cls, sparkSession: SparkSession, identifier: Location, *, storage_options: Mapping[str, Any] | None = None
    ) -> bool:
        """Whether there is a table at a path. Raises CallError. Cost: as ``forPath``."""
        try:
            cls.forPath(sparkSession, identifier, storage_options=storage_options)
        except deltalog.TableNotFoundError:
            return False
        return True

    # ------------------------------------------------------------------------------------------------- reading

    def toDF(self) -> DataFrame:
        """The rows of the latest version. Cost: as ``Reader.load``."""
        rows = frame(self._spark, self._table.snapshot())
        return rows if self._alias is None else rows.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table, whose columns can be qualified with a name in conditions and values. Cost: none."""
        if not isinstance(aliasName, str) or not aliasName:
            raise deltalog.CallError(f"An alias is text that is not empty, not {aliasName!r}.")
        return DeltaTable(self._spark, self._table, aliasName)

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits, newest first. As ``spark_ext.history``."""
        return frames.history(self._spark, self._table, limit)

    def detail(self) -> DataFrame:
        """One row about the latest version. As ``spark_ext.detail``."""
        return frames.detail(self._spark, self._table)

    # ----------------------------------------------------------------------------------------------- changing rows

    def delete(self, condition: Expression | None = None) -> WriteResult:
        """Delete the rows for which a condition is true; None: all rows.

        Files of which all rows match are removed. In others the rows are deleted by deletion vectors where the table
        has them (delta.enableDeletionVectors), else the other rows are written into new files. A condition on partition
        columns only, given as text, is decided by the log. Without a row that matches there is no commit, and
        ``committed`` is false. Raises CallError, InvalidActionError for an append-only table, CommitConflictError,
        JobFailedError, StoreError, RowCountError, and Spark's errors for the condition. Cost: the log; a Spark job that
        reads the condition's columns of the files that can have such a row; without deletion vectors a second job.
        """
        return row_verbs.delete(self._spark, self._table, condition, self._alias)

    def update(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> WriteResult:
        """Give columns new values in the rows for which a condition is true; None: in all rows.

        ``set``: from names of columns, or of fields in structs (``a.b``), to values computed from the old row. A value
        becomes one of its column's type, or the job fails. Generated columns that are not named are computed again,
        and rows keep their row ids. Raises as ``delete``, ConstraintViolationError, SchemaMismatchError. Cost: as
        ``delete``, and a Spark job that writes the new rows; with the change data feed another one.
        """
        if set is None:
            raise deltalog.CallError("update needs set: a dict from names of columns to their new values.")
        return row_verbs.update(self._spark, self._table, condition, set, self._alias)
