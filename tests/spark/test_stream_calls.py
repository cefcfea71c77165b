"""Methods of readStream and writeStream whose arguments Spark does not pass to Python data sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.settings import since
from tests.spark.streams import Input, finish
from tests.spark.tables import rows

pytestmark = since("4.0", "Python data sources")


@pytest.fixture
def source(spark: Any, tmp_path: Path) -> Iterator[Input]:
    spark_ext.register(spark)
    spark_ext.use_catalog(spark, str(tmp_path / "catalog.db"))
    made = Input(spark, tmp_path / "stream")
    made.add(1, 2)
    yield made
    spark_ext.use_catalog(spark, None)


def writer(source: Input) -> Any:
    return source.stream.writeStream.option("checkpointLocation", source.checkpoint).trigger(availableNow=True)


@pytest.mark.parametrize("order", ["before", "after", "start"])
def test_partition_by_partitions_the_table(source: Input, table: str, order: str) -> None:
    stream = writer(source)
    if order == "before":
        finish(stream.partitionBy("name").format("deltalog").start(table))
    elif order == "after":
        finish(stream.format("deltalog").partitionBy(["name"]).start(table))
    else:
        finish(stream.start(table, "deltalog", partitionBy="name"))
    assert deltalog.DeltaTable.open(table).snapshot().partition_columns == ("name",)


def test_cluster_by_clusters_the_table(source: Input, table: str) -> None:
    finish(writer(source).format("deltalog").clusterBy("id").start(table))
    assert deltalog.DeltaTable.open(table).snapshot().clustering_columns == (("id",),)


@pytest.mark.parametrize("call", ["partitionBy", "clusterBy"])
def test_other_columns_than_those_of_the_table_are_refused(spark: Any, source: Input, table: str, call: str) -> None:
    spark_ext.DeltaTable.create(spark).location(table).addColumn("id", "long").addColumn("name", "string").execute()
    stream = getattr(writer(source).format("deltalog"), call)("name")
    with pytest.raises(Exception, match=rf"of the stream has name\. Leave {call} out"):
        finish(stream.start(table))
    assert deltalog.DeltaTable.open(table).version == 0


def test_columns_that_are_no_text_are_refused_at_the_call(source: Input) -> None:
    with pytest.raises(deltalog.CallError, match="partitionBy takes column names"):
        writer(source).format("deltalog").partitionBy(1)


def test_other_formats_have_what_spark_gives_them(source: Input, tmp_path: Path) -> None:
    finish(writer(source).format("parquet").partitionBy("name").start(str(tmp_path / "files")))
    assert sorted(each.name for each in (tmp_path / "files").glob("name=*")) == ["name=row 1", "name=row 2"]


def test_to_table_and_table_take_names_of_the_catalog(spark: Any, source: Input, table: str, tmp_path: Path) -> None:
    for name in ("first", "second"):
        builder = spark_ext.DeltaTable.create(spark).tableName(name).location(f"{table}-{name}")
        builder.addColumn("id", "long").addColumn("name", "string").execute()
    finish(writer(source).format("deltalog").toTable("first"))
    for number, read in enumerate(
        (spark.readStream.format("deltalog").table("first"), spark.readStream.table("first"))
    ):
        write = read.writeStream.option("checkpointLocation", str(tmp_path / f"next-{number}"))
        finish(write.trigger(availableNow=True).toTable("default.second", "deltalog"))
    second = spark_ext.read(spark).table("second")
    assert rows(second.select("id")) == [(1,), (1,), (2,), (2,)]


def test_to_table_refuses_a_name_that_the_catalog_lacks(source: Input) -> None:
    with pytest.raises(deltalog.TableNotFoundError, match="create the table first"):
        writer(source).format("deltalog").toTable("nope")


def test_a_name_that_deltalog_lacks_is_one_of_spark(spark: Any, source: Input) -> None:
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        _ = spark.readStream.table("nope").schema
