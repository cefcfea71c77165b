"""Tables of a Unity Catalog from Spark: by address and by name, in DataFrames, SQL, merges and streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.support.server import Served, served


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("served")
    with served(place / "catalog.db", "--warehouse", str(place / "lake"), "--catalog-name", "main") as server:
        deltalog.UnityCatalog("main", unity_catalog_url=server.url).create_schema("shop")
        yield server


@pytest.fixture
def catalog(spark: Any, running: Served) -> Iterator[deltalog.UnityCatalog]:
    """The session's catalog, whose server is configured with the settings of Unity Catalog's connector for Spark."""
    spark.conf.set("spark.sql.catalog.main.uri", running.url)
    spark_ext.use_catalog(spark, "uc://main")
    yield deltalog.UnityCatalog("main", unity_catalog_url=running.url)
    spark_ext.use_catalog(spark, None)
    spark.conf.unset("spark.sql.catalog.main.uri")


def ids(frame: Any) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def test_by_address(spark: Any, catalog: deltalog.UnityCatalog) -> None:
    address = "uc://main.shop.sales"
    spark_ext.write(spark.range(4)).save(address)
    spark_ext.write(spark.range(4, 6)).mode("append").save(address)
    assert ids(spark_ext.read(spark).load(address)) == [0, 1, 2, 3, 4, 5]
    assert ids(spark_ext.read(spark).option("versionAsOf", 0).load(address)) == [0, 1, 2, 3]
    table = spark_ext.DeltaTable.forName(spark, address)
    table.delete("id = 0")
    source = spark.range(5, 8).alias("s")
    table.alias("t").merge(source, "t.id = s.id").whenNotMatchedInsertAll().execute()
    assert ids(spark_ext.sql(spark, f"SELECT * FROM deltalog.`{address}` WHERE id > 2")) == [3, 4, 5, 6, 7]
    of_python = catalog.table("shop.sales")
    assert of_python.version == 3
    assert sorted(of_python.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6, 7]


def test_by_name(spark: Any, catalog: deltalog.UnityCatalog) -> None:
    spark_ext.sql(spark, "CREATE TABLE shop.items (id BIGINT, name STRING) USING delta")
    spark_ext.sql(spark, "INSERT INTO shop.items VALUES (1, 'a'), (2, 'b')")
    spark_ext.sql(spark, "UPDATE shop.items SET name = 'c' WHERE id = 2")
    assert catalog.describe("shop.items").table_type == "MANAGED"
    rows = spark_ext.sql(spark, "SELECT * FROM shop.items ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "a"), (2, "c")]
    assert spark_ext.DeltaTable.forName(spark, "shop.items").toDF().count() == 2
    spark_ext.sql(spark, "CREATE OR REPLACE TABLE shop.items (id BIGINT, other STRING) USING delta")
    replaced = catalog.describe("shop.items")
    assert [field["name"] for field in replaced.columns["fields"]] == ["id", "other"]
    assert replaced.properties["io.unitycatalog.tableId"] == replaced.table_uuid
    assert catalog.table("shop.items").version == 3
    spark_ext.sql(spark, "ALTER TABLE shop.items RENAME TO shop.goods")
    shown = spark_ext.sql(spark, "SHOW TABLES IN shop").collect()
    assert "goods" in {row["tableName"] for row in shown}
    spark_ext.sql(spark, "DROP TABLE shop.goods")
    assert not catalog.exists("shop.goods")
    with pytest.raises(deltalog.CallError, match="chooses the locations"):
        spark_ext.write(spark.range(1)).option("path", "/tmp/elsewhere").saveAsTable("shop.placed")
    spark_ext.write(spark.range(3)).saveAsTable("shop.frames")
    assert ids(spark_ext.read(spark).table("shop.frames")) == [0, 1, 2]


def test_a_stream_between_two_tables(
    spark: Any, catalog: deltalog.UnityCatalog, tmp_path: Path, running: Served
) -> None:
    options: dict[str, Any] = {"unity_catalog_url": running.url}
    spark_ext.write(spark.range(4)).save("uc://main.shop.source")
    deltalog.DeltaTable.create("uc://main.shop.sink", catalog.table("shop.source").schema, **options)
    spark_ext.register(spark, storage_options=options)
    stream = spark.readStream.format("deltalog").load("uc://main.shop.source")
    writing = stream.writeStream.format("deltalog").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writing.trigger(availableNow=True).start("uc://main.shop.sink").awaitTermination()
    assert ids(spark_ext.read(spark).load("uc://main.shop.sink")) == [0, 1, 2, 3]
