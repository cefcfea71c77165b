"""``write_to``: the counterpart of Spark's ``writeTo``, with one method for each kind of write."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

import deltalog
from spark_ext.results import WriteResult
from spark_ext.session import names, stores
from spark_ext.session.paths import Location, check_format
from spark_ext.writing.save import save
from spark_ext.writing.targets import PathTarget, Target, named
from spark_ext.writing.write_options import WriteRequest, column_names, parsed_option


def write_to(df: DataFrame, table: Location) -> TableWriter:
    """A writer for a DataFrame; the counterpart of ``df.writeTo``. ``table``: a name in the session's catalog
    (``table``, ``schema.table``), a path with a ``/``, an address ``catalog:<catalog>#<name>``, or a DeltaTable."""
    return TableWriter(df, table)


class TableWriter:
    """Set options, then call a method that writes, which makes one commit or none.

    The options are the same as for ``Writer``, except those that are replaced by methods (``replaceWhere``,
    ``overwriteSchema``, ``partitionOverwriteMode``). ``path``: the location for a new table that is created by name.
    The methods that write return a WriteResult and raise the same errors as ``Writer.save``.
    """

    def __init__(self, df: DataFrame, table: Location) -> None:
        self._df, self._table = df, table
        self._request = WriteRequest()
        self._path: str | None = None

    def using(self, provider: str) -> TableWriter:
        """``delta`` or ``deltalog``, for compatibility with Spark's own writer; others raise CallError."""
        check_format(provider)
        return self

    def partitionedBy(self, *columns: str) -> TableWriter:
        """The names of the partition columns, for ``create`` and ``replace``."""
        return self._with(partition_by=column_names("partitionedBy", columns))

    def clusterBy(self, *columns: str) -> TableWriter:
        """Set the names of the clustering columns, for ``create`` and ``replace``. ``OPTIMIZE`` orders rows by these
        columns."""
        return self._with(cluster_by=column_names("clusterBy", columns))

    def tableProperty(self, name: str, value: str) -> TableWriter:
        """A table property, for ``create`` and ``replace``."""
        return self._with(properties={**self._request.properties, name: value})

    def option(self, key: str, value: Any) -> TableWriter:
        """Set one option. Raises CallError for an unknown name or an invalid value."""
        if key.lower() == "path":
            self._path = os.fspath(value)
            return self
        name, parsed = parsed_option(key, value)
        if name in ("replaceWhere", "overwriteSchema", "partitionOverwriteMode"):
            raise deltalog.CallError(
                f"The option {name} belongs to spark_ext.write. Here use the methods overwrite(condition), replace() "
                "and overwritePartitions()."
            )
        return self._with(options={**self._request.options, name: parsed})

    def options(self, **options: Any) -> TableWriter:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def storage_options(self, **options: Any) -> TableWriter:
        """Set the options of the store, as for ``Reader.storage_options``. Raises CallError."""
        return self._with(storage={**self._request.storage, **stores.checked(options)})

    def create(self) -> WriteResult:
        """Create the table, and write the rows of the DataFrame to it. Raises TableExistsError."""
        return self._create("CREATE TABLE", mode="error")

    def replace(self) -> WriteResult:
        """Replace the rows, schema, partition columns and properties of the table. Earlier versions can still be read.
        Raises TableNotFoundError."""
        return self._create("REPLACE TABLE", must_exist=True)

    def createOrReplace(self) -> WriteResult:
        """``replace`` the table if it exists, otherwise ``create`` it."""
        return self._create("CREATE OR REPLACE TABLE")

    def append(self) -> WriteResult:
        """Add the rows. Raises TableNotFoundError."""
        return self._change("append")

    def overwrite(self, condition: str) -> WriteResult:
        """Replace the rows for which ``condition`` (SQL text) is true. The condition must also be true for the new
        rows. Raises TableNotFoundError."""
        if not isinstance(condition, str):
            raise deltalog.CallError(f"overwrite takes the condition as SQL text, not {type(condition).__name__}.")
        return self._change("overwrite", replaceWhere=condition)

    def overwritePartitions(self) -> WriteResult:
        """Replace the partitions that occur in the DataFrame; in an unpartitioned table, all rows. Raises
        TableNotFoundError."""
        return self._change("overwrite", partitionOverwriteMode=True)

    def _create(self, statement: str, mode: str = "overwrite", must_exist: bool = False) -> WriteResult:
        # A static overwrite, whatever the session's setting is, because the whole table is replaced.
        replaces = {"overwriteSchema": True, "partitionOverwriteMode": False} if mode == "overwrite" else {}
        return self._save(must_exist, replaces, mode=mode, statement=statement)

    def _change(self, mode: str, **options: Any) -> WriteResult:
        return self._save(True, options, mode=mode)

    def _save(self, must_exist: bool, options: Mapping[str, Any], **changes: Any) -> WriteResult:
        request = self._request.having(options={**self._request.options, **options}, **changes)
        return save(self._df, request, self._target(), must_exist)

    def _target(self) -> Target:
        if isinstance(self._table, str) and names.is_name(self._table):
            return named_target(self._df, self._table, self._path)
        if self._path is not None:
            raise deltalog.CallError("The option path applies to tables given by name; this table is given by path.")
        return PathTarget(self._table)

    def _with(self, **changes: Any) -> TableWriter:
        self._request = self._request.having(**changes)
        return self


def named_target(df: DataFrame, name: str, path: str | None) -> Target:
    """The table ``name`` in the session's catalog. ``path``: where to create it."""
    return named(df.sparkSession, name, path)
