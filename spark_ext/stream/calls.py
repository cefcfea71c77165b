"""Patches the methods of ``readStream`` and ``writeStream`` whose arguments Spark does not pass to Python data sources:
``partitionBy``, ``clusterBy``, and calls of ``table`` and ``toTable`` with a table name.

Spark passes only options to a Python sink, so the columns of ``partitionBy`` and ``clusterBy`` become options. A name
in the session's deltalog catalog is replaced with the address of that table. ``register`` patches each Spark class only
once.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import deltalog
from spark_ext.session import names, paths, spark_names
from spark_ext.session.settings import is_connect
from spark_ext.writing.write_options import column_names

_FORMAT = "deltalog"
_CALLS = "_deltalog_calls"  # an attribute of readers and writers that contains the arguments of earlier calls
_DONE = "_deltalog_has_calls"  # set on patched classes


def add_calls(spark: SparkSession) -> None:
    """Patch the classes with which a session reads and writes streams. Cost: none."""
    add_calls_of("pyspark.sql.connect" if is_connect(spark) else "pyspark.sql")


def add_calls_of(package: str) -> None:
    """``add_calls``, for the classes of ``pyspark.sql`` or of ``pyspark.sql.connect``. Cost: none."""
    module: Any = importlib.import_module(f"{package}.streaming.readwriter")
    for kind, changed in ((module.DataStreamWriter, _WRITING), (module.DataStreamReader, _READING)):
        if _DONE not in vars(kind):
            for name, change in changed.items():
                setattr(kind, name, _wrapped(getattr(kind, name), change))
            setattr(kind, _DONE, True)


def _wrapped(original: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        return change(original, self, *args, **options)

    return call


def _called(of: Any) -> dict[str, Any]:
    found = vars(of).setdefault(_CALLS, {})
    assert isinstance(found, dict)
    return found


def _format(original: Any, writer: Any, source: str) -> Any:
    _called(writer)["format"] = source
    return _with_columns(original(writer, source))


def _columns_of(call: str) -> Callable[..., Any]:
    def columns(original: Any, writer: Any, *cols: Any) -> Any:
        _called(writer)[call] = column_names(call, cols)
        return _with_columns(original(writer, *cols))

    return columns


def _with_columns(writer: Any) -> Any:
    """Pass the columns as options."""
    called = _called(writer)
    if called.get("format") == _FORMAT:
        for call in ("partitionBy", "clusterBy"):
            if call in called:
                writer.option(call, json.dumps(called[call]))
    return writer


def _to_table(original: Any, writer: Any, tableName: str, format: str | None = None, *args: Any, **options: Any) -> Any:
    if format is not None:
        writer.format(format)
    if _called(writer).get("format") != _FORMAT:
        return original(writer, tableName, format, *args, **options)
    return writer.start(_address(_session_of(writer), tableName, "toTable"), None, *args, **options)


def _table(original: Any, reader: Any, tableName: str) -> Any:
    spark, used = _session_of(reader), _called(reader).get("format")
    if used == _FORMAT:
        return reader.load(_address(spark, tableName, "table"))
    if used is None and _is_ours(spark, tableName):
        return reader.format(_FORMAT).load(_address(spark, tableName, "table"))
    return original(reader, tableName)


def _session_of(of: Any) -> SparkSession:
    for name in ("_spark", "_session", "_client"):
        found = getattr(of, name, None)
        if found is not None and hasattr(found, "conf"):
            return found
    raise deltalog.CallError("The session of the stream is not known. Use the path of the table.")


def _address(spark: SparkSession, name: str, call: str) -> str:
    """The address of an existing table in the session's catalog. Raises CallError, TableNotFoundError."""
    address = names.address_of(spark, name)
    try:
        paths.open_table(spark, address)
    except deltalog.TableNotFoundError as error:
        raise deltalog.TableNotFoundError(
            f"{call}({name!r}): {error} A stream does not register names in the catalog: create the table first, with "
            f"DeltaTable.create(spark).tableName({name!r})."
        ) from error
    return address


def _is_ours(spark: SparkSession, name: str) -> bool:
    """Whether the session's deltalog catalog contains a table with this name, and Spark has no table with this name."""
    catalog = names.setting_of(spark)
    if not catalog or not names.is_name(name):
        return False
    if catalog == names.SPARK:
        return spark_names.location_of(spark, name) is not None
    try:
        paths.open_table(spark, names.address_of(spark, name))
    except deltalog.errors.NotFoundError:
        return False
    return not spark.catalog.tableExists(name)


_WRITING: dict[str, Callable[..., Any]] = {
    "format": _format,
    "partitionBy": _columns_of("partitionBy"),
    "clusterBy": _columns_of("clusterBy"),
    "toTable": _to_table,
}
_READING: dict[str, Callable[..., Any]] = {"format": _format, "table": _table}
