"""Writes of every kind under random session settings, checked against a Python model of the expected rows."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyspark.sql import functions as F

import deltalog
import spark_ext
from tests.spark.settings import session_of

# Session settings that can affect reads and writes, with values that Spark accepts.
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "mapreduce.fileoutputcommitter.algorithm.version": ("2",),
    "mapreduce.fileoutputcommitter.cleanup.skipped": ("true",),
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": ("true",),
    "mapreduce.output.basename": ("_hidden", ".hidden", "a=b", "part-00000-"),
    "parquet.block.size": ("1024",),
    "parquet.compression": ("GZIP",),
    "parquet.enable.dictionary": ("false",),
    "parquet.page.size": ("64",),
    "parquet.summary.metadata.level": ("ALL",),
    "parquet.writer.version": ("v2",),
    "spark.sql.adaptive.enabled": ("false",),
    "spark.sql.ansi.enabled": ("false",),
    "spark.sql.autoBroadcastJoinThreshold": ("-1",),
    "spark.sql.caseSensitive": ("true",),
    "spark.sql.codegen.wholeStage": ("false",),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("false",),
    "spark.sql.execution.arrow.pyspark.enabled": ("true",),
    "spark.sql.files.ignoreCorruptFiles": ("true",),
    "spark.sql.files.ignoreMissingFiles": ("true",),
    "spark.sql.files.maxRecordsPerFile": ("2",),
    "spark.sql.legacy.allowNegativeScaleOfDecimal": ("true",),
    "spark.sql.legacy.castComplexTypesToString.enabled": ("true",),
    "spark.sql.legacy.charVarcharAsString": ("true",),
    "spark.sql.legacy.createEmptyCollectionUsingStringType": ("true",),
    "spark.sql.legacy.parquet.nanosAsLong": ("true",),
    "spark.sql.legacy.timeParserPolicy": ("LEGACY",),
    "spark.sql.mapKeyDedupPolicy": ("LAST_WIN",),
    "spark.sql.maxConcurrentOutputFileWriters": ("3",),
    "spark.sql.optimizer.disableHints": ("true",),
    "spark.sql.optimizer.plannedWrite.enabled": ("false",),
    "spark.sql.parquet.aggregatePushdown": ("true",),
    "spark.sql.parquet.binaryAsString": ("true",),
    "spark.sql.parquet.compression.codec": ("gzip", "zstd", "uncompressed"),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("LEGACY", "EXCEPTION"),
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("LEGACY", "EXCEPTION"),
    "spark.sql.parquet.enableVectorizedReader": ("false",),
    "spark.sql.parquet.fieldId.read.enabled": ("true",),
    "spark.sql.parquet.fieldId.write.enabled": ("false",),
    "spark.sql.parquet.filterPushdown": ("false",),
    "spark.sql.parquet.inferTimestampNTZ.enabled": ("false",),
    "spark.sql.parquet.int96RebaseModeInWrite": ("LEGACY",),
    "spark.sql.parquet.mergeSchema": ("true",),
    "spark.sql.parquet.output.committer.class": ("org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter",),
    "spark.sql.parquet.outputTimestampType": ("INT96", "TIMESTAMP_MILLIS"),
    "spark.sql.parquet.writeLegacyFormat": ("true",),
    "spark.sql.session.timeZone": ("America/New_York", "Asia/Kathmandu", "-08:00"),
    "spark.sql.shuffle.partitions": ("1",),
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.internal.io.HadoopMapRedCommitProtocol",
        "org.apache.spark.internal.io.HadoopMapReduceCommitProtocol",
    ),
    "spark.sql.sources.default": ("orc",),
    "spark.sql.sources.partitionColumnTypeInference.enabled": ("false",),
    "spark.sql.sources.partitionOverwriteMode": ("dynamic",),
    "spark.sql.sources.useV1SourceList": ("", "csv"),
    "spark.sql.sources.validatePartitionColumns": ("false",),
    "spark.sql.storeAssignmentPolicy": ("LEGACY", "STRICT"),
    "spark.sql.timestampType": ("TIMESTAMP_NTZ",),
}
_KINDS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "mapped by name": {"delta.columnMapping.mode": "name"},
    "mapped by id": {"delta.columnMapping.mode": "id"},
    "change feed": {"delta.enableChangeDataFeed": "true"},
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
}
_PARTITIONS: tuple[tuple[str, ...], ...] = ((), ("p",), ("s",), ("d",), ("dec",), ("ts",), ("p", "s"))
_COLUMNS = {
    "id": "long",
    "p": "integer",
    "s": "string",
    "d": "date",
    "dec": "decimal(10,2)",
    "ts": "timestamp",
    "st": "struct",
    "ar": "array",
}
_TEXTS = ("a", "A", "a/b c=%20é", " x", "x ", "1", "true", "2026-01-01", "null", None)
_DATES = (dt.date(2026, 3, 29), dt.date(1500, 2, 28), dt.date(9999, 12, 31), dt.date(1969, 12, 31), None)
_DECIMALS = (Decimal("0.00"), Decimal("-1.25"), Decimal("99999999.99"), Decimal("0.10"), None)
# Times around daylight saving and calendar changes, in microseconds since 1970.
_MICROS = (0, -1, 1793511000123456, 1793514600123456, -14831769600000001, 253402300799999999, None)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

Row = dict[str, Any]


@dataclass
class OddSession:
    """A table, the writes to it, and the settings of the session during the writes. ``told`` describes the table, the
    writes and the settings; a failed test shows these descriptions."""

    spark: Any
    path: str
    seed: int
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._kind = self._random.choice(sorted(_KINDS))
        self._partition_by = self._random.choice(_PARTITIONS)
        self._rows: list[Row] = []
        self._next = 0
        self.told.append(f"seed {self.seed}: {self._kind}, by {self._partition_by}")

    def step(self) -> None:
        """Write under random settings. Then compare the rows that deltalog reads, and those that Spark reads under the
        same settings, with the model."""
        some = self._random.sample(sorted(SETTINGS), self._random.randint(1, 12))
        settings = {key: self._random.choice(SETTINGS[key]) for key in some}
        with session_of(self.spark, settings):
            self._write(settings.get("spark.sql.sources.partitionOverwriteMode") == "dynamic")
            self._delete()
            self._check(deltalog.DeltaTable.open(self.path).snapshot().scan().to_arrow().to_pylist(), "deltalog")
            back = spark_ext.read(self.spark).load(self.path)
            micros = back.withColumn("ts", F.unix_micros("ts"))
            self._check([self._of_spark(row) for row in micros.collect()], "Spark")
            some_row = self._random.choice(self._rows) if self._rows else None
            if some_row is not None:
                chosen = [row for row in self._rows if row["id"] == some_row["id"]]
                assert back.where(f"id = {some_row['id']}").count() == len(chosen), self.told
            self._check_by_partition(back)

    def _write(self, is_dynamic: bool) -> None:
        new = self._new_rows()
        exists = bool(self._next) and deltalog.DeltaTable.exists(self.path)
        how = self._random.choice(("append", "overwrite", "part")) if exists else "error"
        options: dict[str, Any] = {} if exists else dict(_KINDS[self._kind])
        before = self._rows
        if how == "part":
            if not self._partition_by:
                how = "append"
            elif self._random.random() < 0.5:
                options["partitionOverwriteMode"] = is_dynamic = True
            else:
                name, value = self._partition_by[0], (new or before or [self._row(0)])[0][self._partition_by[0]]
                if name in ("p", "s"):
                    literal = "is null" if value is None else f"= {value!r}"
                    options["replaceWhere"] = f"{name} {literal}"
                    new = [{**row, name: value} for row in new]
                else:
                    options["partitionOverwriteMode"] = is_dynamic = True
        mode = "overwrite" if how == "part" else how
        if options.get("partitionOverwriteMode"):
            options["partitionOverwriteMode"] = "dynamic"
        self.told.append(f"{mode} {options}, {len(new)} rows, settings: {self._changed()}")
        writer = spark_ext.write(self._frame(new)).mode(mode).options(**options)
        if not exists:
            writer = writer.partitionBy(*self._partition_by)
        result = writer.save(self.path)
        if result.committed:
            assert result.num_rows == len(new), self.told
        self._next += 1
        if mode in ("append", "error"):
            self._rows = [*before, *new]
        elif "replaceWhere" in options:
            name, value = self._partition_by[0], new[0][self._partition_by[0]] if new else _replaced(options)
            self._rows = [*(row for row in before if row[name] != value), *new]
        elif is_dynamic and self._partition_by:
            hit = {tuple(row[name] for name in self._partition_by) for row in new}
            kept = [row for row in before if tuple(row[name] for name in self._partition_by) not in hit]
            self._rows = [*kept, *new]
        else:
            self._rows = new

    def _delete(self) -> None:
        """Delete a row with deltalog; in some of the tables, this writes a deletion vector."""
        if self._rows and self._random.random() < 0.4:
            gone = self._random.choice(self._rows)["id"]
            self.told.append(f"delete {gone}")
            deltalog.DeltaTable.open(self.path).delete(f"id = {gone}")
            self._rows = [row for row in self._rows if row["id"] != gone]

    def _changed(self) -> dict[str, str]:
        found = {key: self.spark.conf.get(key, None) for key in SETTINGS}
        return {key: value for key, value in found.items() if value in SETTINGS[key]}

    def _new_rows(self) -> list[Row]:
        count = self._random.choice((0, 1, 3, 8))
        return [self._row(self._next * 100 + number) for number in range(count)]

    def _row(self, number: int) -> Row:
        pick = self._random.choice
        return {
            "id": number,
            "p": pick((1, 2, -3, None)),
            "s": pick(_TEXTS),
            "d": pick(_DATES),
            "dec": pick(_DECIMALS),
            "ts": pick(_MICROS),
            "st": pick((None, {"a": number, "b": None}, {"a": None, "b": "x"})),
            "ar": pick((None, [], [number, None])),
        }

    def _frame(self, new: list[Row]) -> Any:
        types = "id long, p int, s string, d date, dec decimal(10,2), ts long, st struct<a:int,b:string>, ar array<int>"
        frame = self.spark.createDataFrame([tuple(row[name] for name in _COLUMNS) for row in new], types)
        names = list(_COLUMNS)
        self._random.shuffle(names)
        spelled = [name if self._random.random() < 0.8 else name.upper() for name in names]
        columns = [
            f"timestamp_micros(ts) as {as_}" if name == "ts" else f"{name} as {as_}"
            for name, as_ in zip(names, spelled, strict=True)
        ]
        if not self._next:  # the columns of the table
            columns = [f"timestamp_micros({name}) as ts" if name == "ts" else name for name in _COLUMNS]
        return frame.selectExpr(*columns).repartition(self._random.choice((1, 3)))

    @staticmethod
    def _of_spark(row: Any) -> Row:
        found = row.asDict(recursive=True)
        micros = found["ts"]
        return {**found, "ts": None if micros is None else _EPOCH + dt.timedelta(microseconds=micros)}

    def _check(self, found: list[Row], reader: str) -> None:
        expected = [
            {**row, "ts": None if row["ts"] is None else _EPOCH + dt.timedelta(microseconds=row["ts"])}
            for row in self._rows
        ]
        assert _sorted(found) == _sorted(expected), (reader, self.told)

    def _check_by_partition(self, back: Any) -> None:
        for name in self._partition_by:
            if name in ("p", "s"):
                value = self._random.choice(self._rows)[name] if self._rows else None
                where = f"{name} is null" if value is None else f"{name} = {value!r}"
                count = sum(row[name] == value for row in self._rows)
                assert back.where(where).count() == count, (where, self.told)


def _replaced(options: Mapping[str, Any]) -> Any:
    """The value with which the replaceWhere condition compares the column."""
    text = options["replaceWhere"]
    if text.endswith("is null"):
        return None
    value = text.split(" = ", 1)[1]
    return value[1:-1] if value.startswith("'") else int(value)


def _sorted(rows: list[Row]) -> list[list[tuple[str, Any]]]:
    return sorted((sorted(row.items()) for row in rows), key=str)
