"""Sail as an engine under test, through PySpark's client of Spark Connect. The server runs in this process."""

from __future__ import annotations

import atexit
import importlib.metadata
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pysail.spark import SparkConnectServer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.connect.functions import col
from pyspark.sql.connect.session import SparkSession

from deltalog.conformance.engine import Engine, utc

if TYPE_CHECKING:
    import pyarrow as pa


class SailEngine(Engine):
    """Sail through DataFrames, and through SQL where DataFrames have no call. It has no statement for the history."""

    name = "sail"
    version = importlib.metadata.version("pysail")
    refusals = (PySparkException,)
    lacks = (
        r"Unsupported table features required|Table features must be specified|not (?:yet )?(?:supported|implemented)"
    )

    def __init__(self) -> None:
        self._server = SparkConnectServer("127.0.0.1", 0)
        self._server.start(background=True)
        atexit.register(self._server.stop)
        _, port = self._server.listening_address
        self._spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        self._spark.conf.set("spark.sql.session.timeZone", "UTC")

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return self._load(path, versionAsOf=version, timestampAsOf=_text(timestamp_ms))

    def rows_at_us(self, path: str, timestamp_us: int) -> Any:
        return self._load(
            path, timestampAsOf=utc(us=timestamp_us).isoformat(timespec="microseconds").replace("+00:00", "Z")
        )

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        return self._load(
            path,
            readChangeFeed="true",
            startingVersion=from_version,
            endingVersion=to_version,
            startingTimestamp=_text(from_timestamp_ms),
            endingTimestamp=_text(to_timestamp_ms),
        )

    def _load(self, path: str, **options: Any) -> Any:
        reader = self._spark.read.format("delta")
        for name, value in options.items():
            if value is not None:
                reader = reader.option(name, value)
        return reader.load(path).toArrow()

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        names = {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "date32[day]": "DATE"}
        columns = ", ".join(f"`{each.name}` {names.get(str(each.type), str(each.type))}" for each in schema)
        table = _name()
        writer = self._spark.createDataFrame([], columns).writeTo(table).using("delta").option("path", path)
        for key, value in properties.items():
            writer = writer.tableProperty(key, value)
        if partition_by:
            writer = writer.partitionedBy(*map(col, partition_by))
        writer.create()
        self._spark.sql(f"DROP TABLE {table}").collect()

    def append(self, path: str, rows: pa.Table) -> None:
        self._frame(rows).write.format("delta").mode("append").save(path)

    def overwrite(self, path: str, rows: pa.Table) -> None:
        self._frame(rows).write.format("delta").mode("overwrite").save(path)

    def _frame(self, rows: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(rows)

    def delete(self, path: str, where: str) -> None:
        self._spark.sql(f"DELETE FROM delta.`{path}` WHERE {where}").collect()

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        pairs = {key: value for key, value in properties.items() if value is not None}
        gone = [key for key, value in properties.items() if value is None]
        # ALTER TABLE knows tables of the catalog only.
        with self._registered(path) as table:
            if pairs:
                self._spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({_pairs(pairs)})").collect()
            if gone:
                names = ", ".join(f"'{name}'" for name in gone)
                self._spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ({names})").collect()

    @contextmanager
    def _registered(self, path: str) -> Iterator[str]:
        """Have the table in the catalog of the session, under a name of its own."""
        table = _name()
        self._spark.sql(f"CREATE TABLE {table} USING delta LOCATION '{path}'").collect()
        try:
            yield table
        finally:
            self._spark.sql(f"DROP TABLE IF EXISTS {table}").collect()


def _name() -> str:
    return f"t_{uuid.uuid4().hex}"


def _pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())


def _text(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    return utc(ms=timestamp_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
