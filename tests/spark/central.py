"""The most important cases of writing, reading and SQL; they run both in classic Spark and in Spark Connect."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import DataFiles, action, actions, data_files, history, litter, make, rows, schema, versions

EVERY_TYPE = """
select cast(1 as tinyint) i8, cast(2 as smallint) i16, 3 i32, 4L i64, cast(1.5 as float) f32, 2.5D f64,
  cast('12.34' as decimal(10,2)) dec, cast('0' as decimal(38,18)) big, 'text é😀' s, X'00ff10' bin, true b,
  date'1500-02-28' d, timestamp'2026-03-29 01:30:00.123456' ts, timestamp_ntz'2026-03-29 02:30:00.5' ntz,
  named_struct('a', 1, 'b', array(named_struct('c', 'x'))) st, array(1, null) ar, map('k', array(1.5D)) m
union all select null, null, null, 5L, null, double('NaN'), null, null, '', null, null, null, null, null,
  null, array(), map()
"""


class Central:
    """Needs the fixtures ``spark``, ``table`` and ``zone``."""

    def test_write_and_read_back_every_type(self, spark: Any, table: str) -> None:
        df = spark.sql(EVERY_TYPE)
        result = spark_ext.write(df).save(table)
        back = spark_ext.read(spark).load(table)
        assert result.version == 0 and result.committed and result.num_rows == 2
        assert back.schema.simpleString() == df.schema.simpleString()
        assert back.columns == df.columns and '"nullable":false' not in back.schema.json()
        assert str(rows(back, "i64")) == str(rows(df, "i64"))
        arrow = deltalog.DeltaTable.open(table).snapshot().scan().to_arrow().sort_by("i64").to_pylist()
        assert arrow[0]["dec"] == Decimal("12.34") and arrow[0]["d"] == dt.date(1500, 2, 28)
        assert arrow[0]["ts"] == dt.datetime(2026, 3, 29, 1, 30, 0, 123456, dt.timezone.utc)
        assert arrow[0]["ntz"] == dt.datetime(2026, 3, 29, 2, 30, 0, 500000) and arrow[0]["bin"] == b"\x00\xff\x10"

    def test_modes_and_what_the_log_says(self, spark: Any, table: str) -> None:
        one, two = spark.range(3), spark.range(3, 8)
        spark_ext.write(one).save(table)
        with pytest.raises(deltalog.TableExistsError, match="mode is error"):
            spark_ext.write(one).save(table)
        skipped = spark_ext.write(one).mode("ignore").save(table)
        assert (skipped.committed, skipped.version, skipped.num_files) == (False, 0, 0)
        spark_ext.write(two).mode("append").option("userMetadata", "second").save(table)
        assert spark_ext.read(spark).load(table).count() == 8
        result = spark_ext.write(two).mode("overwrite").save(table)
        assert rows(spark_ext.read(spark).load(table)) == [(i,) for i in range(3, 8)]
        assert versions(table) == [0, 1, 2]
        info = action(table, 1, "commitInfo")[0]
        assert info["operation"] == "WRITE" and info["userMetadata"] == "second"
        assert info["operationParameters"] == {"mode": "Append", "partitionBy": "[]"}
        assert info["operationMetrics"]["numOutputRows"] == "5"
        adds = action(table, 2, "add")
        assert info["operationMetrics"]["numFiles"] == str(len(action(table, 1, "add")))
        assert result.num_bytes == sum(add["size"] for add in adds)
        removed = {each["path"] for each in action(table, 2, "remove")}
        assert removed == {a["path"] for v in (0, 1) for a in action(table, v, "add")}
        assert litter(table) == []

    def test_the_session_says_what_options_do_not(self, spark: Any, table: str) -> None:
        spark_ext.write(spark.sql("select 1L id, 'a' p union all select 2L, 'b'")).partitionBy("p").save(table)
        delta = "spark.databricks.delta."
        settings = {
            "spark.sql.sources.partitionOverwriteMode": "dynamic",
            delta + "schema.autoMerge.enabled": "true",
            delta + "commitInfo.userMetadata": "of the session",
            delta + "optimizeWrite.enabled": "true",
        }
        with session_of(spark, settings):
            spark_ext.write(spark.sql("select 3L id, 'a' p, 'x' extra")).mode("overwrite").save(table)
        assert rows(spark_ext.read(spark).load(table)) == [(2, "b", None), (3, "a", "x")]
        assert action(table, 1, "commitInfo")[0]["userMetadata"] == "of the session"

    def test_what_was_read_is_not_lost_by_the_write_that_follows(self, spark: Any, table: str) -> None:
        spark_ext.write(spark.sql("select 1L id, 'a' p union all select 2L, 'b'")).partitionBy("p").save(table)
        df = spark_ext.read(spark).load(table)
        df.createOrReplaceTempView("seen_before")
        handle = deltalog.DeltaTable.open(table)
        handle.append(pa.table({"id": pa.array([3], pa.int64()), "p": ["a"]}))
        for read in (df.selectExpr("id + 10 as id", "p"), spark.table("seen_before").where("id > 0")):
            with pytest.raises(deltalog.errors.ConcurrentAppendError, match="after version 0"):
                spark_ext.write(read).mode("overwrite").save(handle)
        other = spark.sql("select id + 10 as id, p from seen_before where p = 'b'")
        spark_ext.write(other).mode("overwrite").option("replaceWhere", "p = 'b'").save(table)
        assert rows(spark_ext.read(spark).load(table)) == [(1, "a"), (3, "a"), (12, "b")]

    def test_partitions_survive_the_way_through_directory_names(self, spark: Any, table: str, zone: Any) -> None:
        zone("America/New_York")
        values = ["a/b=c %é😀", "x:y", "[q]{w}*?", "back\\slash", "tab\tline\n", " lead", "%41", "a+b", "'\"#^~"]
        data: list[tuple[Any, ...]] = [
            (i, value, dt.date(2026, 1, i + 1), i % 2 == 0) for i, value in enumerate(values)
        ]
        data += [(100, None, None, None), (101, "", None, True)]
        df = spark.createDataFrame(data, "id long, s string, d date, b boolean")
        # Both times are 01:30 in New York, in the hour that occurs twice when daylight saving time ends.
        df = df.selectExpr(
            "*",
            "timestamp_micros(1793511000123456 + (id % 2) * 3600000000) as ts",
            "cast(id - 100 as decimal(20,10)) as dec",
        )
        spark_ext.write(df).partitionBy("s", "d", "b", "ts", "dec").save(table)
        expected = sorted([(*r[:1], r[1] or None, *r[2:]) for r in rows(df)], key=lambda r: r[0])
        assert rows(spark_ext.read(spark).load(table), "id") == expected
        logged = {str(a["partitionValues"]["s"]) for a in action(table, 0, "add")}
        assert logged == {*values, "None"}
        stamps = {a["partitionValues"]["ts"] for a in action(table, 0, "add")}
        assert stamps == {"2026-11-01T05:30:00.123456Z", "2026-11-01T06:30:00.123456Z"}
        arrow = deltalog.DeltaTable.open(table).snapshot().scan().to_arrow().sort_by("id").to_pylist()
        assert [row["s"] for row in arrow] == [*values, None, None]
        assert arrow[1]["ts"] == dt.datetime(2026, 11, 1, 6, 30, 0, 123456, dt.timezone.utc)
        assert arrow[0]["dec"] == Decimal("-100.0000000000")

    def test_partition_pruning_leaves_other_files_unread(self, spark: Any, table: str) -> None:
        for first in (0, 10):
            df = spark.range(first, first + 10).selectExpr("id", "id % 2 as p")
            spark_ext.write(df).mode("append").partitionBy("p").save(table)
        for path in data_files(table):
            if "p=0" in path:
                Path(table, path).write_bytes(b"not parquet")
        odd = spark_ext.read(spark).load(table).where("p = 1")
        assert rows(odd.select("id")) == [(i,) for i in range(1, 20, 2)]

    def test_schema_mismatch_names_column_types_and_option(self, spark: Any, table: str) -> None:
        spark_ext.write(spark.sql("select 1L id, 'x' s")).save(table)
        bad = spark.sql("select 1.5 id, 'x' s, true extra")
        with pytest.raises(deltalog.SchemaMismatchError) as error:
            spark_ext.write(bad).mode("append").save(table)
        message = str(error.value)
        assert "column extra is boolean in the data" in message and "option('mergeSchema', True)" in message
        assert "column id is long in the table and decimal(2,1) in the data" in message
        assert "overwriteSchema" in message and versions(table) == [0]
        spark_ext.write(spark.sql("select true EXTRA, 2L ID")).mode("append").option("mergeSchema", True).save(table)
        back = spark_ext.read(spark).load(table)
        assert back.columns == ["id", "s", "EXTRA"]
        assert rows(back) == [(1, "x", None), (2, None, True)]

    def test_a_transaction_that_is_written_already_is_a_no_op(self, spark: Any, table: str) -> None:
        def run(version: int) -> Any:
            writer = spark_ext.write(spark.range(2)).mode("append")
            return writer.options(txnAppId="job", txnVersion=version).save(table)

        first, again, older, newer = run(4), run(4), run(3), run(5)
        assert first.committed and newer.committed and versions(table) == [0, 1]
        assert not again.committed and "txnVersion 4 of 'job' is written already" in (again.reason or "")
        assert not older.committed and older.version == 0
        assert action(table, 1, "txn")[0]["version"] == 5
        assert spark_ext.read(spark).load(table).count() == 4

    def test_timestamps_are_micros_with_statistics_and_the_session_is_untouched(self, spark: Any, table: str) -> None:
        key = "spark.sql.parquet.outputTimestampType"
        before = spark.conf.get(key, None)
        spark_ext.write(spark.sql("select timestamp'2026-01-02 03:04:05.678901' ts, 1 a")).save(table)
        assert spark.conf.get(key, None) == before
        (path,) = data_files(table)
        column = pq.ParquetFile(Path(table, path)).schema.column(0)
        assert column.physical_type == "INT64" and "isAdjustedToUTC=true" in str(column.logical_type)
        assert '"minValues":{"ts":"2026-01-02T03:04:05.678Z"' in action(table, 0, "add")[0]["stats"]

    def test_a_failed_job_leaves_no_commit_and_no_file(self, spark: Any, table: str) -> None:
        bad = spark.range(0, 1000, 1, 4).selectExpr("if(id = 900, raise_error('broken'), id) as id")
        with pytest.raises(Exception, match="broken"):
            spark_ext.write(bad).save(table)
        assert not os.path.exists(table)
        spark_ext.write(spark.range(1)).save(table)
        before = data_files(table)
        with pytest.raises(Exception, match="broken"):
            spark_ext.write(bad).mode("overwrite").save(table)
        assert data_files(table) == before and versions(table) == [0] and litter(table) == []
        assert len(os.listdir(table)) == 2

    def test_rows_of_no_data_frame(self, spark: Any, table: str) -> None:
        empty = spark.range(3).where("id < 0").selectExpr("id", "cast(id as string) as p")
        created = spark_ext.write(empty).partitionBy("p").save(table)
        assert created.committed and created.num_files == 0 and os.listdir(table) == ["_delta_log"]
        back = spark_ext.read(spark).load(table)
        assert back.schema == empty.schema.fromJson(back.schema.jsonValue()) and back.collect() == []
        appended = spark_ext.write(empty).mode("append").save(table)
        assert (appended.committed, appended.version) == (False, 0) and "no rows" in (appended.reason or "")
        recorded = spark_ext.write(empty).mode("append").options(txnAppId="a", txnVersion=1).save(table)
        assert recorded.committed and recorded.version == 1
        spark_ext.write(spark.sql("select 1L id, 'x' p")).mode("append").save(table)
        emptied = spark_ext.write(empty).mode("overwrite").save(table)
        assert emptied.version == 3 and spark_ext.read(spark).load(table).count() == 0
        again = spark_ext.write(empty).mode("overwrite").save(table)
        assert not again.committed and versions(table) == [0, 1, 2, 3]

    def test_time_travel_by_option_by_path_and_by_sql(self, spark: Any, table: str, zone: Any) -> None:
        one = pa.table({"id": pa.array([1], pa.int64())})
        history(table, one.schema, [None, one, one], [1_767_225_600_123, 1_767_225_601_456, 1_767_225_602_789])

        def count(**options: Any) -> int:
            return int(spark_ext.read(spark).options(**options).load(table).count())

        assert [count(versionAsOf=v) for v in (0, "1", 2)] == [0, 1, 2]
        zone("UTC")
        assert count(timestampAsOf="2026-01-01 00:00:00.123") == 0
        assert count(timestampAsOf="2026-01-01 00:00:01.455999") == 0
        assert count(timestampAsOf="2026-01-01 00:00:01.456") == 1
        assert count(timestampAsOf="2026-01-01T02:00:02.789+02:00") == 2
        zone("Asia/Tokyo")
        assert count(timestampAsOf="2026-01-01 09:00:01.456") == 1
        assert count(timestampAsOf="2026-01-01T00:00:01.456Z") == 1
        assert count(timestampAsOf="2025-12-31 16:00:01.456 America/Los_Angeles") == 1
        with pytest.raises(deltalog.TimestampOutOfRangeError) as early:
            count(timestampAsOf="2026-01-01 09:00:00.122")
        assert (early.value.requested_ms, early.value.earliest_ms) == (1_767_225_600_122, 1_767_225_600_123)
        with pytest.raises(deltalog.TimestampOutOfRangeError) as late:
            count(timestampAsOf="2026-01-01 09:00:02.790")
        assert late.value.latest_ms == 1_767_225_602_789
        assert count(timestampAsOf="2030-01-01", canReturnLastCommit="true") == 2
        assert count(timestampAsOf="2020-01-01", canReturnEarliestCommit=True, canReturnLastCommit=True) == 0
        with pytest.raises(deltalog.TimestampOutOfRangeError, match=r"use option\('canReturnEarliestCommit', True\)"):
            count(timestampAsOf="2020-01-01", canReturnLastCommit=True)
        with pytest.raises(deltalog.CallError, match="canReturnLastCommit is 1; it can be true or false"):
            count(timestampAsOf="2030-01-01", canReturnLastCommit=1)
        assert spark_ext.read(spark).load(f"{table}@v1").count() == 1
        assert spark_ext.read(spark).load(f"{table}@20260101090001456").count() == 1
        text = f"""
            select 'deltalog.`{table}` VERSION AS OF 9, {{t0}}' as text, /* deltalog.`x` VERSION AS OF 1 */
              (select count(*) from deltalog.`{table}` VERSION AS OF 0) as a,
              (select count(*) from deltalog.`{table}` FOR TIMESTAMP AS OF '2026-01-01 09:00:01.456' t) as b,
              (select count(*) from deltalog.`{table}`) as c, -- deltalog.`y`
              (select count(*) from deltalog.`{table}@v1` x join DELTALOG.`{table}` y on x.id = y.id) as d
        """
        (row,) = spark_ext.sql(spark, text).collect()
        assert row["text"] == f"deltalog.`{table}` VERSION AS OF 9, {{t0}}"
        assert (row["a"], row["b"], row["c"], row["d"]) == (0, 1, 2, 2)

    def test_any_layout(self, spark: Any, table: str) -> None:
        def one(value: int) -> pa.Table:
            return pa.table({"id": pa.array([value], pa.int64())})

        files: DataFiles = [
            ("flat.parquet", {"p": "1"}, one(1)),
            ("p=9/lies.parquet", {"p": "2"}, one(2)),
            ("a [b]{c}*/g?.parquet", {"p": "3"}, one(3)),
            ("p=4/100%25 é.parquet", {"p": "4"}, one(4)),
            ("x/same.parquet", {"p": "5"}, one(5)),
            ("y/same.parquet", {"p": None}, one(6)),
            ("_hidden.parquet", {"p": "7"}, one(7)),
            ("dir/.hidden.parquet", {"p": "8"}, one(8)),
        ]
        make(table, schema(id="long", p="integer", later="string"), files, ["p"])
        back = spark_ext.read(spark).load(table)
        assert back.columns == ["id", "p", "later"]
        expected = [(1, 1, None), (2, 2, None), (3, 3, None), (4, 4, None), (5, 5, None), (6, None, None)]
        assert rows(back, "id") == [*expected, (7, 7, None), (8, 8, None)]
        assert rows(back.where("p > 6").select("later", "id"), "id") == [(None, 7), (None, 8)]

    def test_commit_files_are_complete(self, spark: Any, table: str) -> None:
        writer = spark_ext.write(spark.range(10).selectExpr("id", "id % 3 as p")).partitionBy("p")
        writer.option("delta.enableInCommitTimestamps", "true").option("delta.appendOnly", True)
        result = writer.options(maxRecordsPerFile=2, compression="zstd").save(table)
        kinds = [next(iter(line)) for line in actions(table, 0)]
        assert kinds[0] == "commitInfo" and sorted(set(kinds)) == ["add", "commitInfo", "metaData", "protocol"]
        info, metadata = action(table, 0, "commitInfo")[0], action(table, 0, "metaData")[0]
        assert info["inCommitTimestamp"] == result.in_commit_timestamp_ms == result.timestamp_ms
        assert info["txnId"] == result.txn_id
        assert metadata["partitionColumns"] == ["p"]
        assert metadata["configuration"]["delta.appendOnly"] == "true"
        adds = action(table, 0, "add")
        assert len(adds) == result.num_files == len(data_files(table)) >= 6
        for path in data_files(table):
            footer = pq.ParquetFile(Path(table, path)).metadata
            assert footer.num_rows <= 2 and footer.row_group(0).column(0).compression == "ZSTD"
        assert sorted(a["path"] for a in adds) == data_files(table)

    def test_history_detail_and_statements_of_sql(self, spark: Any, table: str) -> None:
        spark_ext.write(spark.sql("select 1L id, 'a' p union all select 2L, 'b'")).partitionBy("p").save(table)
        spark_ext.write(spark.sql("select 3L id, 'b' p")).mode("append").option("userMetadata", "more").save(table)
        told = spark_ext.sql(spark, f"describe history deltalog.`{table}` limit 1").first()
        assert (told["version"], told["userMetadata"]) == (1, "more")
        found = spark_ext.sql(spark, f"describe detail delta.`{table}`").first()
        assert (found["numFiles"], found["partitionColumns"]) == (3, ["p"])
        counted = spark_ext.sql(spark, f"select count(*) from deltalog.`{table}` where p = 'b'")
        assert rows(counted) == [(2,)] and counted.columns == ["count(1)"]
        query = "select x.id from {0} x join {0} y using (id) where x.p = 'b' and y.id > 2"
        assert rows(spark_ext.sql(spark, query.format(f"deltalog.`{table}`"))) == [(3,)]
        assert spark_ext.sql(spark, f"create temp view old as table delta.`{table}` version as of 0").collect() == []
        assert rows(spark.table("old")) == [(1, "a"), (2, "b")]
        spark.catalog.dropTempView("old")
        spark_ext.sql(spark, f"create table made using parquet as select * from deltalog.`{table}` where p = 'b'")
        spark_ext.sql(spark, f"with a as (table deltalog.`{table}`) insert into made select * from a where id = 1")
        assert rows(spark.table("made")) == [(1, "a"), (2, "b"), (3, "b")]
        spark.sql("drop table made")
        spark_ext.sql(spark, f"with a as (select 4L, 'c') insert into deltalog.`{table}` select * from a")
        assert rows(spark_ext.read(spark).load(table)) == [(1, "a"), (2, "b"), (3, "b"), (4, "c")]
        assert spark_ext.sql(spark, f"optimize deltalog.`{table}`").columns == ["path", "metrics"]
        assert rows(spark_ext.read(spark).load(table)) == [(1, "a"), (2, "b"), (3, "b"), (4, "c")]
        assert versions(table) == [0, 1, 2, 3]
