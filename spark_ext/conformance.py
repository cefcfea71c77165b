"""spark_ext and delta-spark as engines of deltalog's conformance kit.

They use the running session, or start a local one. A process can only run one of them: either all sessions of a JVM
have the jars of delta-spark, or none.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql import types as spark_types

import deltalog
from deltalog.conformance import Engine, NotSupported
from spark_ext import types
from spark_ext.delta_table import DeltaTable
from spark_ext.reading import log_frames, reader
from spark_ext.statements.session_sql import sql
from spark_ext.writing import writer

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# delta-spark refuses time travel beyond the retention of deleted files. The protocol does not require delta-spark to
# refuse versions beyond that retention, and the conformance cases read such versions.
_RETENTION = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"


class _SparkEngine(Engine):
    """The base class of the engines for spark_ext and delta-spark; it stores the session and creates DataFrames."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self.spark = spark or SparkSession.getActiveSession() or self._started()

    def _started(self) -> SparkSession:
        return self._builder().getOrCreate()

    def _builder(self) -> Any:
        builder = SparkSession.builder.master("local[2]").appName("deltalog conformance")
        for key, value in _SETTINGS.items():
            builder = builder.config(key, value)
        return builder

    def _frame(self, rows: pa.Table) -> DataFrame:
        variants = [field.name for field in rows.schema if _is_variant(field)]
        for name in variants:
            texts = [None if each is None else _json(each) for each in rows[name].to_pylist()]
            rows = rows.set_column(rows.column_names.index(name), name, pa.array(texts, pa.string()))
        schema = types.to_spark(deltalog.schema.StructType.from_arrow(rows.schema))
        # One partition, because cases count the files of a commit.
        frame = self.spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], schema).coalesce(1)
        return frame.withColumns({name: functions.parse_json(name) for name in variants}) if variants else frame


class SparkExtEngine(_SparkEngine):
    """spark_ext: deltalog on the driver, native Parquet in Spark. Unlike deltalog, it has no call that writes
    checkpoints."""

    name = "spark_ext"
    packages = ("pyspark",)
    version = f"{deltalog.__version__} (Spark {pyspark.__version__})"

    def _reader(self, version: int | None, timestamp: str | None) -> reader.Reader:
        found = reader.read(self.spark)
        if version is not None:
            found = found.option("versionAsOf", version)
        if timestamp is not None:
            found = found.option("timestampAsOf", timestamp)
        return found

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return _rows(self._reader(version, _text(timestamp_ms)).load(path))

    def rows_at_us(self, path: str, timestamp_us: int) -> Any:
        return _rows(self._reader(None, _text_of_us(timestamp_us)).load(path))

    def version_at(self, path: str, timestamp_ms: int) -> int:
        return self._reader(None, _text(timestamp_ms)).snapshot(path).version

    def latest_version(self, path: str) -> int:
        return self._reader(None, None).snapshot(path).version

    def history(self, path: str) -> Mapping[int, int | None]:
        return _history(log_frames.history(self.spark, path))

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        return _rows(
            reader.read_changes(
                self.spark,
                path,
                from_version,
                to_version,
                starting_timestamp=_text(from_timestamp_ms),
                ending_timestamp=_text(to_timestamp_ms),
            )
        )

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        writer.write(self._frame(schema.empty_table())).partitionBy(*partition_by).options(**properties).save(path)

    def append(self, path: str, rows: pa.Table) -> None:
        writer.write(self._frame(rows)).mode("append").save(path)

    def append_once(self, path: str, rows: pa.Table, application: str, application_version: int) -> None:
        found = writer.write(self._frame(rows)).mode("append")
        found.options(txnAppId=application, txnVersion=application_version).save(path)

    def overwrite(self, path: str, rows: pa.Table) -> None:
        writer.write(self._frame(rows)).mode("overwrite").save(path)

    def delete(self, path: str, where: str) -> None:
        DeltaTable.forPath(self.spark, path).delete(where)

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        for statement in _alterations(f"deltalog.`{path}`", properties):
            sql(self.spark, statement)

    def set_type(self, path: str, column: str, type: str) -> None:
        sql(self.spark, f"ALTER TABLE deltalog.`{path}` ALTER COLUMN {column} TYPE {type}")

    def restore(self, path: str, version: int) -> None:
        DeltaTable.forPath(self.spark, path).restoreToVersion(version)

    def restore_to_time(self, path: str, timestamp_ms: int) -> None:
        DeltaTable.forPath(self.spark, path).restoreToTimestamp(_text(timestamp_ms))

    def clone(self, path: str, target: str, shallow: bool, version: int | None = None) -> None:
        table = DeltaTable.forPath(self.spark, path)
        if version is None:
            table.clone(target, isShallow=shallow)
        else:
            table.cloneAtVersion(version, target, isShallow=shallow)


class DeltaSparkEngine(_SparkEngine):
    """delta-spark, used through DataFrames, SQL and its history manager. Its jars are in the running session, or Ivy
    fetches them for a new one."""

    name = "delta-spark"
    packages = ("delta-spark", "pyspark")
    version = "4.4.0"
    lacks = "DELTA_UNSUPPORTED_FEATURES_FOR"

    def __init__(self, spark: SparkSession | None = None) -> None:
        super().__init__(spark)
        self.spark.conf.set(_RETENTION, "false")
        self._jvm: Any = self.spark._jvm
        self._log = self._jvm.org.apache.spark.sql.delta.DeltaLog
        self.version = str(self._jvm.io.delta.package.VERSION())

    def _started(self) -> SparkSession:
        from delta.pip_utils import configure_spark_with_delta_pip

        builder = self._builder().config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        return configure_spark_with_delta_pip(builder.config("spark.sql.catalog.spark_catalog", catalog)).getOrCreate()

    def _delta_log(self, path: str) -> Any:
        """Reads the log without caches, as a new process would."""
        self._log.clearCache()
        return self._log.forTable(self.spark._jsparkSession, path)

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        self._delta_log(path)
        found = self.spark.read.format("delta")
        if version is not None:
            found = found.option("versionAsOf", version)
        if timestamp_ms is not None:
            found = found.option("timestampAsOf", _text(timestamp_ms))
        return _rows(found.load(path))

    def rows_at_us(self, path: str, timestamp_us: int) -> Any:
        self._delta_log(path)
        return _rows(self.spark.read.format("delta").option("timestampAsOf", _text_of_us(timestamp_us)).load(path))

    def version_at(self, path: str, timestamp_ms: int) -> int:
        history, none = self._delta_log(path).history(), self._jvm.scala.Option.empty()
        at = self._jvm.java.sql.Timestamp(timestamp_ms)
        return int(history.getActiveCommitAtTime(at, none, False, True, False).version())

    def latest_version(self, path: str) -> int:
        none = self._jvm.scala.Option.empty()
        return int(self._delta_log(path).update(False, none, none).version())

    def history(self, path: str) -> Mapping[int, int | None]:
        self._delta_log(path)
        return _history(self.spark.sql(f"DESCRIBE HISTORY delta.`{path}`"))

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        self._delta_log(path)
        options = {
            "readChangeFeed": True,
            "startingVersion": from_version,
            "endingVersion": to_version,
            "startingTimestamp": _text(from_timestamp_ms),
            "endingTimestamp": _text(to_timestamp_ms),
        }
        given = {key: value for key, value in options.items() if value is not None}
        return _rows(self.spark.read.format("delta").options(**given).load(path))

    def tracked_rows(self, path: str, version: int | None = None) -> Any:
        self._delta_log(path)
        found = self.spark.read.format("delta")
        if version is not None:
            found = found.option("versionAsOf", version)
        hidden = ["_metadata.row_id AS _row_id", "_metadata.row_commit_version AS _row_commit_version"]
        return _rows(found.load(path).selectExpr("*", *hidden))

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        frame = self._frame(schema.empty_table()).write.format("delta").partitionBy(*partition_by)
        frame.options(**properties).save(path)

    def append(self, path: str, rows: pa.Table) -> None:
        self._delta_log(path)
        self._frame(rows).write.format("delta").mode("append").save(path)

    def append_once(self, path: str, rows: pa.Table, application: str, application_version: int) -> None:
        self._delta_log(path)
        frame = self._frame(rows).write.format("delta").mode("append")
        frame.option("txnAppId", application).option("txnVersion", application_version).save(path)

    def overwrite(self, path: str, rows: pa.Table) -> None:
        self._delta_log(path)
        self._frame(rows).write.format("delta").mode("overwrite").save(path)

    def delete(self, path: str, where: str) -> None:
        self._delta_log(path)
        self.spark.sql(f"DELETE FROM delta.`{path}` WHERE {where}")

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        self._delta_log(path)
        for statement in _alterations(f"delta.`{path}`", properties):
            self.spark.sql(statement)

    def set_type(self, path: str, column: str, type: str) -> None:
        self._delta_log(path)
        self.spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN {column} TYPE {type}")

    def restore(self, path: str, version: int) -> None:
        self._delta_log(path)
        self.spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}")

    def restore_to_time(self, path: str, timestamp_ms: int) -> None:
        self._delta_log(path)
        self.spark.sql(f"RESTORE TABLE delta.`{path}` TO TIMESTAMP AS OF '{_text(timestamp_ms)}'")

    def clone(self, path: str, target: str, shallow: bool, version: int | None = None) -> None:
        if not shallow:
            raise NotSupported("delta-spark has no deep clone")
        self._delta_log(path)
        point = "" if version is None else f" VERSION AS OF {version}"
        self.spark.sql(f"CREATE TABLE delta.`{target}` SHALLOW CLONE delta.`{path}`{point}")

    def checkpoint(self, path: str) -> None:
        self._delta_log(path).checkpoint()


def _rows(frame: DataFrame) -> Any:
    """The rows of a frame. They are no Arrow table if they have variants, because PySpark's toArrow refuses a NULL in a
    column of variants."""
    if "variant" not in frame.schema.simpleString():
        return frame.toArrow()
    return [_plain(row, frame.schema) for row in frame.collect()]


def _plain(value: Any, kind: spark_types.DataType) -> Any:
    """A value as PySpark collects it, with its variants as dictionaries of metadata and value, its maps as pairs, and
    its timestamps with the time zone."""
    if value is None:
        return None
    if isinstance(kind, spark_types.StructType):
        return {field.name: _plain(value[at], field.dataType) for at, field in enumerate(kind.fields)}
    if isinstance(kind, spark_types.ArrayType):
        return [_plain(each, kind.elementType) for each in value]
    if isinstance(kind, spark_types.MapType):
        return [(_plain(key, kind.keyType), _plain(each, kind.valueType)) for key, each in value.items()]
    if isinstance(kind, spark_types.VariantType):
        return {"metadata": bytes(value.metadata), "value": bytes(value.value)}
    if isinstance(kind, spark_types.TimestampType):
        return value.astimezone(datetime.timezone.utc)
    return bytes(value) if isinstance(kind, spark_types.BinaryType) else value


def _json(variant: Mapping[str, bytes]) -> str:
    return json.dumps(deltalog.schema.variant_to_python(variant))


def _is_variant(field: pa.Field) -> bool:
    return (field.metadata or {}).get(b"ARROW:extension:name") == b"arrow.parquet.variant"


def _alterations(table: str, properties: Mapping[str, str | None]) -> Iterator[str]:
    """The statements that set and unset properties. Every statement is a commit."""
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items() if value is not None)
    gone = ", ".join(f"'{key}'" for key, value in properties.items() if value is None)
    if pairs:
        yield f"ALTER TABLE {table} SET TBLPROPERTIES ({pairs})"
    if gone:
        yield f"ALTER TABLE {table} UNSET TBLPROPERTIES ({gone})"


def _text(timestamp_ms: int | None) -> str | None:
    """A time as text without an offset, for a session whose time zone is UTC, because some versions of Spark ignore
    offsets."""
    if timestamp_ms is None:
        return None
    at = pa.scalar(timestamp_ms, pa.timestamp("ms")).as_py()
    return str(at.isoformat(sep=" ", timespec="milliseconds"))


def _text_of_us(timestamp_us: int) -> str:
    """Like ``_text``, for a time in microseconds."""
    at = pa.scalar(timestamp_us, pa.timestamp("us")).as_py()
    return str(at.isoformat(sep=" ", timespec="microseconds"))


def _history(found: DataFrame) -> dict[int, int | None]:
    rows = found.selectExpr("version", "unix_millis(timestamp) AS ms").collect()
    return {row["version"]: row["ms"] for row in rows}
