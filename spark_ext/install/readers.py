"""Batch reads of Delta tables by ``spark.read`` and ``spark.table``."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

import deltalog
from spark_ext.install import calls
from spark_ext.install.errors import translated
from spark_ext.install.patches import Patches, inside
from spark_ext.reading.reader import Reader
from spark_ext.session import names, spark_names


def add(patches: Patches, kind: Any) -> None:
    """Patch a class of readers."""
    for name, change in (
        ("format", calls.of_source),
        ("schema", calls.of_schema),
        ("option", calls.of_option),
        ("options", calls.of_options),
        ("load", _load),
        ("table", _table),
    ):
        patches.method(kind, name, change)


def table_of(spark: SparkSession, name: str) -> str | None:
    """The path or address of the Delta table called ``name``; None if the name denotes a view or one of Spark's own
    tables. Cost: 1 Spark command; with a catalog of deltalog 1 call to it."""
    by_path = spark_names.path_in(name)
    if by_path is not None:
        return by_path
    catalog = names.setting_of(spark)
    if catalog in (None, names.SPARK):
        return spark_names.location_of(spark, name) if catalog else None
    if not names.is_name(name):
        return None
    try:
        deltalog.DeltaTable.open(names.address_of(spark, name))
    except deltalog.errors.NotFoundError:
        return None
    return names.address_of(spark, name)


def _load(
    original: Any,
    reader: Any,
    path: Any = None,
    format: str | None = None,
    schema: Any = None,
    **options: Any,
) -> Any:
    if format is not None:
        reader.format(format)
    if not calls.calls_of(reader).are_ours:
        return original(reader, path, None, schema, **options)
    if schema is not None:
        calls.of_schema(lambda *_: None, reader, schema)
    reader.options(**options)
    of = calls.calls_of(reader)
    place = path if path is not None else next((v for k, v in of.options.items() if k.lower() == "path"), None)
    with translated(), inside():
        if isinstance(place, (list, tuple)):
            place = place[0] if len(place) == 1 else place
        if place is None or isinstance(place, (list, tuple)):
            raise deltalog.CallError("A Delta table is read from one path: load(path). Unite the frames of several.")
        return _with_schema(of, _reader(reader, of).load(place))


def _table(original: Any, reader: Any, tableName: str) -> Any:
    of = calls.calls_of(reader)
    with translated(), inside():
        found = table_of(session_of(reader), tableName) if of.are_ours or of.source is None else None
        if found is not None:
            return _with_schema(of, _reader(reader, of).load(found))
    return original(reader, tableName)


def _reader(reader: Any, of: calls.Calls) -> Reader:
    found: Reader = of.apply(Reader(session_of(reader)), but=("path",))
    return found


def _with_schema(of: calls.Calls, df: Any) -> Any:
    """Refuse a schema passed by the caller that differs from the schema of the table."""
    if of.schema is not None:
        given = df.sparkSession.createDataFrame([], of.schema).schema.simpleString()
        have = df.schema.simpleString()
        if given != have:
            raise deltalog.SchemaMismatchError(
                f"The reader was given the schema {given}, but the Delta table has {have}, and its own schema is used. "
                "Leave schema(…) out, and select or cast columns after load."
            )
    return df


def session_of(of: Any) -> SparkSession:
    """The session of a reader or a writer."""
    for name in ("_spark", "_client", "_session", "_sparkSession"):
        found = vars(of).get(name)
        if found is not None and hasattr(found, "conf"):
            session: SparkSession = found
            return session
    raise deltalog.CallError(
        f"The session of this {type(of).__name__} is not known. Use spark_ext.read(spark) or spark_ext.write(df)."
    )
