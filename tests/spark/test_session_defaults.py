"""Session settings as defaults of write options: options take precedence over the settings that delta-spark's writer
reads from its session. tests/interop/test_interop_session_defaults.py compares these defaults with delta-spark's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import action, data_files, rows, versions

DELTA = "spark.databricks.delta."
DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}


def two_partitions(spark: Any, table: str) -> Any:
    """A table with one row in each of two partitions, and a new row for the first of them."""
    spark_ext.write(spark.sql("select 1L id, 'a' p union all select 2L, 'b'")).partitionBy("p").save(table)
    return spark.sql("select 3L id, 'a' p")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(2, "b"), (3, "a")]),
        ({"partitionOverwriteMode": "static"}, [(3, "a")]),
        ({"replaceWhere": "p in ('a', 'b')"}, [(3, "a")]),
    ],
)
def test_partitions_are_overwritten_as_the_session_says(
    spark: Any, table: str, options: dict[str, str], expected: list[Any]
) -> None:
    new = two_partitions(spark, table)
    with session_of(spark, DYNAMIC):
        spark_ext.write(new).mode("overwrite").options(**options).save(table)
    assert rows(spark_ext.read(spark).load(table)) == expected
    parameters = action(table, 1, "commitInfo")[0]["operationParameters"]
    assert parameters.get("isDynamicPartitionOverwrite") == (None if options else "true")


def test_the_session_does_not_choose_partitions_of_a_new_schema(spark: Any, table: str) -> None:
    two_partitions(spark, table)
    other = spark_ext.write(spark.sql("select 3L id, 'a' q")).mode("overwrite").option("overwriteSchema", True)
    with session_of(spark, DYNAMIC):
        with pytest.raises(deltalog.CallError, match=r"overwriteSchema .*spark\.sql\.sources\.partitionOverwriteMode"):
            other.partitionBy("q").save(table)
        assert versions(table) == [0]
        other.option("partitionOverwriteMode", "static").partitionBy("q").save(table)
        assert rows(spark_ext.read(spark).load(table)) == [(3, "a")]
        spark_ext.write(spark.range(1)).mode("overwrite").option("overwriteSchema", True).save(table)
    assert rows(spark_ext.read(spark).load(table)) == [(0,)]


def test_partitions_cannot_be_chosen_where_the_session_forbids_it(spark: Any, table: str) -> None:
    new = two_partitions(spark, table)
    with session_of(spark, {**DYNAMIC, DELTA + "dynamicPartitionOverwrite.enabled": "false"}):
        with pytest.raises(deltalog.CallError, match="enabled is false"):
            spark_ext.write(new).mode("overwrite").save(table)
        spark_ext.write(new).mode("append").save(table)
    assert rows(spark_ext.read(spark).load(table)) == [(1, "a"), (2, "b"), (3, "a")]


def test_schemas_are_merged_as_the_session_says(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(1)).save(table)
    more = spark.sql("select 1L id, 'x' extra")
    with session_of(spark, {DELTA + "schema.autoMerge.enabled": "true"}):
        with pytest.raises(deltalog.SchemaMismatchError):
            spark_ext.write(more).mode("append").option("mergeSchema", False).save(table)
        spark_ext.write(more).mode("append").save(table)
        assert rows(spark_ext.read(spark).load(table)) == [(0, None), (1, "x")]
        only = spark.sql("select 'y' extra")
        spark_ext.write(only).mode("overwrite").option("overwriteSchema", True).save(table)
    assert spark_ext.read(spark).load(table).columns == ["extra"]
    odd = {DELTA + "schema.autoMerge.enabled": "yes"}
    with session_of(spark, odd), pytest.raises(deltalog.CallError, match="is 'yes' in this session"):
        spark_ext.write(more).mode("append").save(table)


def test_metadata_and_progress_from_the_session(spark: Any, table: str) -> None:
    settings = {
        DELTA + "commitInfo.userMetadata": "the nightly job",
        DELTA + "write.txnAppId": "job",
        DELTA + "write.txnVersion": "7",
    }
    with session_of(spark, settings):
        spark_ext.write(spark.range(1)).save(table)
        assert not spark_ext.write(spark.range(1)).mode("append").save(table).committed
        by_option = spark_ext.write(spark.range(1)).mode("append").options(txnAppId="job", txnVersion=8)
        assert by_option.option("userMetadata", "mine").save(table).version == 1
        spark.conf.set(DELTA + "write.txnVersion", "9")
        spark.conf.set(DELTA + "write.txnVersion.autoReset.enabled", "true")
        assert spark_ext.write(spark.range(1)).mode("append").save(table).version == 2
        assert spark.conf.get(DELTA + "write.txnVersion", None) is None
        with pytest.raises(deltalog.CallError, match=r"write\.txnAppId and .*write\.txnVersion belong together"):
            spark_ext.write(spark.range(1)).mode("append").save(table)
        spark.conf.unset(DELTA + "write.txnVersion.autoReset.enabled")
    texts = [action(table, version, "commitInfo")[0]["userMetadata"] for version in versions(table)]
    assert texts == ["the nightly job", "mine", "the nightly job"]


def test_a_value_that_looks_like_a_secret(spark: Any, table: str) -> None:
    """The setting is applied, or the write is refused if the session hides the setting's value."""
    text = "the password of nobody"
    with session_of(spark, {DELTA + "commitInfo.userMetadata": text}):
        if spark.conf.get(DELTA + "commitInfo.userMetadata", None) is None:
            with pytest.raises(deltalog.CallError, match=r"hides the value of .*userMetadata"):
                spark_ext.write(spark.range(1)).save(table)
            return
        spark_ext.write(spark.range(1)).save(table)
    assert action(table, 0, "commitInfo")[0]["userMetadata"] == text


def test_properties_of_new_tables(spark: Any, tmp_path: Path) -> None:
    one, two, three = (str(tmp_path / name) for name in ("one", "two", "three"))
    prefix = DELTA + "properties.defaults."
    settings = {
        prefix + "enableChangeDataFeed": "true",
        prefix + "appendOnly": "true",
        prefix + "feature.deletionVectors": "supported",
        prefix + "minWriterVersion": "2",
    }
    with session_of(spark, settings):
        spark_ext.write(spark.range(1)).option("delta.appendOnly", "false").save(one)
        spark_ext.write(spark.range(1)).mode("append").save(one)
        spark.conf.set(prefix + "ignoreProtocolDefaults", "true")
        spark_ext.write(spark.range(1)).save(two)
        spark.conf.unset(prefix + "ignoreProtocolDefaults")
        for name in ("minWriterVersion", "appendonly"):
            with (
                session_of(spark, {prefix + name: "5"}),
                pytest.raises(deltalog.errors.InvalidPropertyError, match=name),
            ):
                spark_ext.write(spark.range(1)).save(three)
    first, second = (deltalog.DeltaTable.open(table).snapshot() for table in (one, two))
    assert first.metadata.configuration == {"delta.enableChangeDataFeed": "true", "delta.appendOnly": "false"}
    assert second.metadata.configuration == {"delta.enableChangeDataFeed": "true", "delta.appendOnly": "true"}
    assert "deletionVectors" in (first.protocol.writer_features or ())
    assert "deletionVectors" not in (second.protocol.writer_features or ())
    assert not Path(three).exists()


def test_files_are_as_the_session_says(spark: Any, table: str) -> None:
    eight = spark.range(0, 8, 1, 4).selectExpr("id", "id % 2 as p")

    def added(settings: dict[str, str], **options: Any) -> list[str]:
        with session_of(spark, settings):
            version = spark_ext.write(eight).mode("append").options(**options).save(table).version
        return [add["path"] for add in action(table, version, "add")]

    spark_ext.write(eight).partitionBy("p").save(table)
    optimized = {DELTA + "optimizeWrite.enabled": "true"}
    assert len(added({})) == 8 and len(added(optimized)) == 2 and len(added(optimized, optimizeWrite=False)) == 8
    assert len(added({}, optimizeWrite=True)) == 2
    small = {"spark.sql.files.maxRecordsPerFile": "1", **optimized}
    assert len(added(small)) == 8 and len(added(small, maxRecordsPerFile=100)) == 2
    (path, *_) = added({"spark.sql.parquet.compression.codec": "zstd"})
    assert pq.ParquetFile(Path(table, path)).metadata.row_group(0).column(0).compression == "ZSTD"
    (path, *_) = added({"spark.sql.parquet.compression.codec": "zstd"}, compression="gzip")
    assert pq.ParquetFile(Path(table, path)).metadata.row_group(0).column(0).compression == "GZIP"
    before = data_files(table)
    compacting = {DELTA + "autoCompact.enabled": "auto"}
    with session_of(spark, compacting), pytest.raises(deltalog.CallError, match="is auto in this session"):
        spark_ext.write(eight).mode("append").save(table)
    assert data_files(table) == before


def test_rows_are_shuffled_by_a_column_of_any_name(spark: Any, table: str) -> None:
    df = spark.range(0, 8, 1, 4).selectExpr("id", "id % 2 as `p*/``y`")
    result = spark_ext.write(df).partitionBy("p*/`y").option("optimizeWrite", True).save(table)
    assert result.num_files == 2 and rows(spark_ext.read(spark).load(table), "id") == rows(df, "id")
