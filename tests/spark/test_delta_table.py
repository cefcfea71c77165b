"""The methods of ``spark_ext.DeltaTable`` that have no test module of their own: builders, RESTORE, protocol changes,
and calls that are refused."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as spark_types

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import action, rows, versions


def test_a_table_is_created_by_a_builder(spark: Any, table: str) -> None:
    def builder(kind: Any) -> Any:
        return (
            kind(spark)
            .location(table)
            .addColumn("id", "BIGINT", nullable=False, comment="the key")
            .addColumn("g", spark_types.LongType(), generatedAlwaysAs="id * 2")
            .addColumn("v", "varchar(3)")
            .addColumns([spark_types.StructField("p", spark_types.StringType())])
            .partitionedBy("p")
            .comment("a table")
            .property("delta.enableChangeDataFeed", "true")
        )

    made = builder(spark_ext.DeltaTable.create).execute()
    fields = made.toDF().schema.fields
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in fields] == [
        ("id", "bigint", False),
        ("g", "bigint", True),
        ("v", "string", True),
        ("p", "string", True),
    ]
    detail = made.detail().collect()[0]
    assert (detail["description"], detail["partitionColumns"]) == ("a table", ["p"])
    assert detail["properties"] == {"delta.enableChangeDataFeed": "true"}
    spark_ext.write(spark.sql("SELECT 3L AS id, 'x' AS p")).mode("append").save(table)
    assert rows(made.toDF()) == [(3, 6, None, "x")]
    with pytest.raises(deltalog.TableExistsError):
        builder(spark_ext.DeltaTable.create).execute()
    assert rows(builder(spark_ext.DeltaTable.createIfNotExists).execute().toDF()) == [(3, 6, None, "x")]
    other = spark_ext.DeltaTable.createOrReplace(spark).location(table).addColumn("n", "int").execute()
    assert (rows(other.toDF()), other.toDF().columns, versions(table)) == ([], ["n"], [0, 1, 2])
    assert action(table, 2, "commitInfo")[0]["operation"] == "CREATE OR REPLACE TABLE"
    assert other.detail().collect()[0]["properties"] == {}


def test_a_table_with_a_name(spark: Any, tmp_path: Path) -> None:
    with session_of(spark, {"spark.deltalog.catalog": str(tmp_path / "catalog.db")}):
        builder = spark_ext.DeltaTable.create(spark).tableName("events").location(str(tmp_path / "events"))
        builder.addColumn("id", "long").execute()
        named = spark_ext.DeltaTable.forName(spark, "events")
        spark_ext.write(spark.range(3)).mode("append").saveAsTable("events")
        assert named.delete("id = 1").num_removed_rows == 1
        assert rows(named.toDF()) == [(0,), (2,)]


def test_clustering_columns(spark: Any, table: str) -> None:
    builder = spark_ext.DeltaTable.create(spark).location(table).addColumn("n", "int").addColumn("s", "string")
    builder.clusterBy("n").execute()
    for start in (0, 3):
        frame = spark.range(start, start + 3).selectExpr("cast(id as int) as n", "'x' as s")
        spark_ext.write(frame).mode("append").save(table)
    made = spark_ext.DeltaTable.forPath(spark, table)
    assert made.detail().first()["clusteringColumns"] == ["n"]
    assert made.optimize().executeCompaction().first()["metrics"]["numFilesAdded"] == 1
    (tags,) = deltalog.DeltaTable.open(table).snapshot().files(["tags"])["tags"].to_pylist()
    assert dict(tags)["ZCUBE_ZORDER_BY"] == '["n"]'
    spark_ext.sql(spark, f"alter table delta.`{table}` cluster by (s)")
    assert spark_ext.sql(spark, f"optimize delta.`{table}` full").first()["metrics"]["numFilesRemoved"] == 1
    spark_ext.DeltaTable.replace(spark).location(table).addColumn("m", "int").clusterBy("m").execute()
    assert made.detail().first()["clusteringColumns"] == ["m"]
    spark_ext.sql(spark, f"create or replace table delta.`{table}` (k int, s string) cluster by (k, s)")
    assert made.detail().first()["clusteringColumns"] == ["k", "s"]
    spark_ext.sql(spark, f"alter table delta.`{table}` cluster by none")
    assert made.detail().first()["clusteringColumns"] == [] and made.toDF().count() == 0


def test_clustering_columns_of_writers(spark: Any, table: str) -> None:
    frame = spark.sql("SELECT 1 AS n, 'x' AS s, named_struct('y', 2) AS z")
    spark_ext.write(frame).clusterBy(["n", "z.y"]).save(table)
    made = spark_ext.DeltaTable.forPath(spark, table)
    clustered_by = lambda: made.detail().first()["clusteringColumns"]  # noqa: E731
    assert clustered_by() == ["n", "z.y"]
    assert made.history(1).first()["operationParameters"]["mode"] == "ErrorIfExists"
    spark_ext.write(frame).mode("append").clusterBy("N", "z.y").save(table)
    with pytest.raises(deltalog.SchemaMismatchError, match=r"clusterBy\(s\) differs .* clustered by \(n, z.y\)"):
        spark_ext.write(frame).mode("append").clusterBy("s").save(table)
    overwrite = spark_ext.write(frame.select("s", "n", "z")).mode("overwrite").option("overwriteSchema", True)
    overwrite.save(table)
    assert clustered_by() == ["n", "z.y"]
    with pytest.raises(deltalog.SchemaMismatchError, match="clustered"):
        spark_ext.write(frame.select("s")).mode("overwrite").option("overwriteSchema", True).save(table)
    overwrite.clusterBy("s").save(table)
    assert clustered_by() == ["s"]
    spark_ext.write_to(frame.select("n"), table).clusterBy("n").replace()
    assert clustered_by() == ["n"]
    spark_ext.sql(spark, f"CREATE OR REPLACE TABLE delta.`{table}` CLUSTER BY (k) AS SELECT 1 AS k, 2 AS n")
    assert clustered_by() == ["k"]
    found = made.history(1).first()
    assert (found["operation"], found["operationParameters"]["clusterBy"]) == (
        "CREATE OR REPLACE TABLE AS SELECT",
        '["k"]',
    )
    with pytest.raises(deltalog.SchemaMismatchError, match="partitioned by"):
        spark_ext.write_to(frame, table).partitionedBy("s").clusterBy("n").replace()
    spark_ext.write_to(frame, table).replace()
    assert clustered_by() == [] and made.toDF().count() == 1


def test_builders_that_lack_something(spark: Any, table: str) -> None:
    with pytest.raises(deltalog.TableNotFoundError):
        spark_ext.DeltaTable.replace(spark).location(table).addColumn("n", "int").execute()
    with pytest.raises(deltalog.CallError, match="a name or a location"):
        spark_ext.DeltaTable.create(spark).addColumn("n", "int").execute()
    with pytest.raises(deltalog.CallError, match="no columns"):
        spark_ext.DeltaTable.create(spark).location(table).execute()
    with pytest.raises(deltalog.UnsupportedFeatureError, match="identity column"):
        spark_ext.DeltaTable.create(spark).addColumn("n", "long", generatedByDefaultAs=spark_ext.IdentityGenerator())
    with pytest.raises(deltalog.CallError, match="as text"):
        spark_ext.DeltaTable.create(spark).clusterBy(1)


def test_versions_are_restored(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(0, 6, 1, 1)).save(table)
    changing = spark_ext.DeltaTable.forPath(spark, table)
    first_ms = deltalog.DeltaTable.open(table).snapshot().timestamp_ms
    changing.delete("id > 1")
    row = changing.restoreToVersion(0).collect()[0]
    assert (row["num_restored_files"], row["num_of_files_after_restore"], row["num_removed_files"]) == (1, 1, 1)
    assert row["table_size_after_restore"] == row["restored_files_size"] > 0
    assert changing.toDF().count() == 6
    changing.delete()
    changing.restoreToTimestamp(datetime.datetime.fromtimestamp(first_ms / 1000, datetime.timezone.utc))
    assert changing.toDF().count() == 6
    assert versions(table) == [0, 1, 2, 3, 4]


def test_features_are_added_and_dropped(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(3)).save(table)
    changing = spark_ext.DeltaTable.forPath(spark, table)
    changing.addFeatureSupport("domainMetadata")
    assert "domainMetadata" in changing.detail().collect()[0]["tableFeatures"]
    changing.dropFeatureSupport("domainMetadata")
    assert "domainMetadata" not in changing.detail().collect()[0]["tableFeatures"]
    changing.upgradeTableProtocol(1, 2)
    changing.upgradeTableProtocol(3, 7)
    with pytest.raises(deltalog.CallError, match="cleanup_log"):
        changing.dropFeatureSupport("domainMetadata", True)


def test_files_that_no_version_needs_are_deleted(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(3)).save(table)
    changing = spark_ext.DeltaTable.forPath(spark, table)
    assert changing.vacuum().collect() == []
    with pytest.raises(deltalog.CallError):
        changing.vacuum(0)
    with session_of(spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        assert changing.vacuum(0).columns == ["path"]


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda table: table.clone("/other", True, replace=True), "clone to another path"),
    ],
)
def test_what_is_refused_says_what_to_do(spark: Any, table: str, call: Any, instead: str) -> None:
    spark_ext.write(spark.range(1)).save(table)
    with pytest.raises(deltalog.UnsupportedFeatureError, match=instead):
        call(spark_ext.DeltaTable.forPath(spark, table))
