"""Batch writes to Delta tables by ``df.write`` and ``df.writeTo``."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext.install import calls
from spark_ext.install.errors import translated
from spark_ext.install.patches import Patches, inside
from spark_ext.install.readers import session_of, table_of
from spark_ext.reading import column_text
from spark_ext.session import paths, spark_names
from spark_ext.writing.table_writer import TableWriter
from spark_ext.writing.writer import Writer

_TABLE = "_deltalog_table"


def add(patches: Patches, writer: Any, table_writer: Any) -> None:
    """Patch the classes of ``df.write`` and ``df.writeTo``."""
    for name, change in (
        ("format", calls.of_source),
        ("mode", calls.of_mode),
        ("option", calls.of_option),
        ("options", calls.of_options),
        ("partitionBy", calls.of_columns("partitionBy")),
        ("clusterBy", calls.of_columns("clusterBy")),
        ("bucketBy", calls.of_columns("bucketBy")),
        ("save", _save),
        ("saveAsTable", _save_as_table),
        ("insertInto", _insert_into),
    ):
        patches.method(writer, name, change)
    patches.method(table_writer, "__init__", _made)
    for name, change in (
        ("using", calls.of_source),
        ("option", calls.of_option),
        ("options", calls.of_options),
        ("tableProperty", calls.of_property),
        ("partitionedBy", calls.of_columns("partitionedBy")),
        ("clusterBy", calls.of_columns("clusterBy")),
        *((name, _verb(name)) for name in ("create", "replace", "createOrReplace")),
        *((name, _verb(name)) for name in ("append", "overwrite", "overwritePartitions")),
    ):
        patches.method(table_writer, name, change)


def _save(
    original: Any,
    writer: Any,
    path: str | None = None,
    format: str | None = None,
    mode: str | None = None,
    partitionBy: Any = None,
    **options: Any,
) -> None:
    _told(writer, format, mode, partitionBy, options)
    of = calls.calls_of(writer)
    if not of.are_ours:
        original(writer, path)
        return
    place = path if path is not None else next((v for k, v in of.options.items() if k.lower() == "path"), None)
    with translated(), inside():
        if place is None:
            raise deltalog.CallError("The writer has no path: save(path), or saveAsTable(name).")
        _writer(writer, of, ("path",)).save(place)


def _save_as_table(
    original: Any,
    writer: Any,
    name: str,
    format: str | None = None,
    mode: str | None = None,
    partitionBy: Any = None,
    **options: Any,
) -> None:
    _told(writer, format, mode, partitionBy, options)
    of = calls.calls_of(writer)
    with translated(), inside():
        found = table_of(session_of(writer), name) if of.are_ours or of.source is None else None
        if of.are_ours or found is not None:
            made = _writer(writer, of)
            by_path = spark_names.path_in(name)
            made.saveAsTable(name) if by_path is None else made.save(by_path)
            return
    original(writer, name)


def _insert_into(original: Any, writer: Any, tableName: str, overwrite: bool | None = None) -> None:
    of = calls.calls_of(writer)
    with translated(), inside():
        found = table_of(session_of(writer), tableName)
        if found is not None:
            _writer(writer, of).insertInto(tableName, overwrite)
            return
    original(writer, tableName, overwrite)


def _told(writer: Any, source: str | None, mode: str | None, partition_by: Any, options: dict[str, Any]) -> None:
    """Apply the arguments of a call such as ``save`` to the writer, by the calls that have the same effect."""
    writer.options(**options)
    if mode is not None:
        writer.mode(mode)
    if partition_by is not None:
        writer.partitionBy(partition_by)
    if source is not None:
        writer.format(source)


def _writer(writer: Any, of: calls.Calls, but: tuple[str, ...] = ()) -> Writer:
    made = Writer(_rows_of(writer))
    if of.mode is not None:
        made.mode(of.mode)
    if "bucketBy" in of.columns:
        made.bucketBy()
    for call in ("partitionBy", "clusterBy"):
        if of.columns.get(call):
            getattr(made, call)(*of.columns[call])
    found: Writer = of.apply(made, but)
    return found


def _rows_of(writer: Any) -> DataFrame:
    """The DataFrame of a writer; on Connect, a writer stores only the plan of the DataFrame."""
    rows = writer._df
    if isinstance(rows, DataFrame):
        return rows
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

    return ConnectDataFrame(rows, session_of(writer))


def _made(original: Any, writer: Any, *args: Any, **options: Any) -> None:
    """``writeTo``: the name of the table is the last argument of all versions but for a callback."""
    original(writer, *args, **options)
    found = options.get("table", next((each for each in reversed(args) if isinstance(each, str)), None))
    vars(writer)[_TABLE] = found


def _verb(call: str) -> Any:
    def verb(original: Any, writer: Any, *args: Any, **named: Any) -> None:
        table = vars(writer).get(_TABLE)
        if table is None:  # a writer that was created before the installation
            original(writer, *args, **named)
            return
        of, args = calls.calls_of(writer), (*args, *named.values())
        with translated(), inside():
            spark, location = session_of(writer), spark_names.path_in(table)
            made = TableWriter(_rows_of(writer), table if location is None else location)
            if location is None and (of.source is None or of.are_ours):
                location = table_of(spark, table)
            if of.are_ours or (of.source is None and location is not None):
                if call == "overwrite":
                    args = tuple(_condition(spark, location, each) for each in args)
                _run(call, made, of, args)
                return
        original(writer, *args)

    return verb


def _run(call: str, made: TableWriter, of: calls.Calls, args: tuple[Any, ...]) -> None:
    for each in ("partitionedBy", "clusterBy"):
        if of.columns.get(each):
            getattr(made, each)(*[_name_of(column) for column in of.columns[each]])
    for key, value in of.properties.items():
        made.tableProperty(key, value)
    of.apply(made)
    getattr(made, call)(*args)


def _name_of(column: Any) -> str:
    """The name of a column; the column is given as text or as a Column that only refers to it. Raises CallError."""
    text = column if isinstance(column, str) else repr(column).removeprefix("Column<'").removesuffix("'>")
    if "(" in text:
        raise deltalog.CallError(
            f"{column!r} is not a column. Delta tables are partitioned by columns, not transforms."
        )
    return text.strip("`")


def _condition(spark: SparkSession, location: str | None, condition: Any) -> Any:
    """A condition as SQL text. Raises CallError for a Column that cannot be written as such."""
    if isinstance(condition, str) or location is None:
        return condition
    text = column_text.sql_text(condition, paths.open_table(spark, location).snapshot().schema)
    # In the text of a classic Spark Column, a time is shown in the time zone of the JVM, not of the session.
    if text is None or column_text.UNKNOWN in text or "TIMESTAMP'" in text:
        raise deltalog.CallError(f"overwrite cannot write {condition!r} as SQL. Pass the condition as SQL text.")
    return text
