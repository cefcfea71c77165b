"""Tables that are accessed by their names in the session's catalog, and ``write_to``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from spark_ext.session import names
from spark_ext.writing.targets import NamedTarget, NewTable
from tests.spark.tables import action, data_files, litter, rows, versions

SETTING = "spark.deltalog.catalog"


@pytest.fixture
def catalog(spark: Any, tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "catalog.db")
    spark_ext.use_catalog(spark, path)
    yield path
    spark_ext.use_catalog(spark, None)


def ids(frame: Any) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def test_a_table_is_created_and_written_by_its_name(spark: Any, catalog: str, tmp_path: Path) -> None:
    place = str(tmp_path / "sales")
    writer = spark_ext.write(spark.range(6).selectExpr("id", "id % 2 AS p")).partitionBy("p")
    result = writer.option("path", place).option("delta.checkpointInterval", 7).saveAsTable("shop.sales")
    assert (result.version, result.num_rows) == (0, 6) and len(action(place, 0, "add")) == result.num_files
    manager = deltalog.TransactionManager(catalog)
    assert [(record.name, record.url) for record in manager.list_tables()] == [("shop.sales", place)]
    assert (
        spark_ext.write(spark.range(6, 8).selectExpr("id", "1L AS p"))
        .mode("append")
        .saveAsTable("`shop`.sales")
        .version
        == 1
    )
    table = spark_ext.read(spark).table("shop.sales")
    assert ids(table) == [*range(8)] and table.columns == ["id", "p"]
    assert ids(spark_ext.read(spark).option("versionAsOf", 0).table("shop.sales")) == [*range(6)]
    assert ids(spark_ext.read(spark).load(names.address_of(spark, "shop.sales"))) == [*range(8)]
    with pytest.raises(deltalog.TableExistsError):
        spark_ext.write(spark.range(1)).saveAsTable("shop.sales")
    assert not spark_ext.write(spark.range(1)).mode("ignore").saveAsTable("shop.sales").committed
    assert manager.table("shop.sales").snapshot().metadata.configuration["delta.checkpointInterval"] == "7"


def test_where_a_table_without_a_path_goes(spark: Any, catalog: str, tmp_path: Path) -> None:
    below = names.location_of(spark, "shop.sales")
    assert os.path.isabs(below) and below.endswith("/shop.db/sales")
    assert names.location_of(spark, "`odd name`").endswith("/odd name")
    assert names.location_of(spark, "default.sales") == names.location_of(spark, "sales")


def test_a_failed_creation_leaves_neither_name_nor_files(spark: Any, catalog: str, tmp_path: Path) -> None:
    place = str(tmp_path / "broken")
    broken = spark.sql("SELECT 1 AS id, CAST(raise_error('broken') AS INT) AS x")
    with pytest.raises(Exception, match="broken"):
        spark_ext.write(broken).option("path", place).saveAsTable("broken")
    assert deltalog.TransactionManager(catalog).list_tables() == [] and not os.path.exists(place)
    spark_ext.write(spark.range(1)).option("path", place).saveAsTable("broken")
    with pytest.raises(deltalog.TableExistsError):
        spark_ext.write(spark.range(1)).option("path", place).saveAsTable("another")


def test_insert_into_goes_by_position(spark: Any, catalog: str, tmp_path: Path) -> None:
    spark_ext.write(spark.range(3).selectExpr("id", "'a' AS s")).option("path", str(tmp_path / "t")).saveAsTable("t")
    other = spark.sql("SELECT 7 AS s, 'b' AS id")
    assert spark_ext.write(other).insertInto("t").version == 1
    assert sorted(rows(spark_ext.read(spark).table("t"))) == [(0, "a"), (1, "a"), (2, "a"), (7, "b")]
    spark_ext.write(other).insertInto("default.t", overwrite=True)
    spark_ext.write(other).mode("overwrite").insertInto("t", overwrite=False)
    assert rows(spark_ext.read(spark).table("t")) == [(7, "b"), (7, "b")]
    with pytest.raises(deltalog.SchemaMismatchError, match=r"has 2 columns \(id, s\) and the data has 1"):
        spark_ext.write(spark.range(1)).insertInto("t")
    with pytest.raises(deltalog.TableNotFoundError, match="no table nothing"):
        spark_ext.write(other).insertInto("nothing")
    with pytest.raises(deltalog.CallError, match="partitionBy"):
        spark_ext.write(other).partitionBy("s").insertInto("t")


def test_insert_into_takes_fields_of_structs_by_position(spark: Any, catalog: str, tmp_path: Path) -> None:
    start = spark.sql("SELECT 1L AS id, array(named_struct('x', 1, 'y', 2)) AS l")
    spark_ext.write(start).option("path", str(tmp_path / "t")).saveAsTable("t")
    spark_ext.write(spark.sql("SELECT 2L AS l, array(struct(3, 4)) AS id")).insertInto("t")
    assert sorted(rows(spark_ext.read(spark).table("t").selectExpr("id", "l[0].x AS x"))) == [(1, 1), (2, 3)]
    with pytest.raises(
        deltalog.SchemaMismatchError, match=r"column l\.element has the fields of the column in another"
    ):
        spark_ext.write(spark.sql("SELECT 3L, array(named_struct('y', 5, 'x', 6))")).insertInto("t")


def test_insert_into_opens_the_table_once(
    spark: Any, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_ext.write(spark.range(3)).option("path", str(tmp_path / "t")).saveAsTable("t")
    opened: list[Any] = []
    really = deltalog.DeltaTable.open

    def opening(url: Any, **options: Any) -> deltalog.DeltaTable:
        opened.append(url)
        return really(url, **options)

    monkeypatch.setattr(deltalog.DeltaTable, "open", opening)
    assert spark_ext.write(spark.range(3)).insertInto("t").version == 1 and len(opened) == 1


@pytest.mark.parametrize("name", ["a.b.c", "", "a..b", "a/b", "a b", ".a", "`a", 5])
def test_what_is_not_a_name(spark: Any, catalog: str, name: Any) -> None:
    with pytest.raises(deltalog.CallError, match="is not the name of a table"):
        spark_ext.read(spark).table(name)


def test_a_session_without_a_catalog(spark: Any, table: str) -> None:
    spark_ext.use_catalog(spark, None)
    with pytest.raises(deltalog.CallError, match=f"use_catalog.*{SETTING}"):
        spark_ext.read(spark).table("t")
    with pytest.raises(deltalog.CallError, match="SQLite file"):
        spark_ext.use_catalog(spark, "")
    with pytest.raises(deltalog.CallError, match="path is for saveAsTable"):
        spark_ext.write(spark.range(1)).option("path", table).save(table)
    assert not os.path.exists(table)


# --- verbs


def test_verbs_by_path(spark: Any, table: str) -> None:
    def to(query: str) -> spark_ext.TableWriter:
        return spark_ext.write_to(spark.sql(query), table).using("delta")

    six = "SELECT id, id % 2 AS p FROM range(6)"
    for verb in ("append", "replace", "overwritePartitions"):
        with pytest.raises(deltalog.TableNotFoundError):
            getattr(to(six), verb)()
    with pytest.raises(deltalog.TableNotFoundError):
        to(six).overwrite("true")
    assert not os.path.exists(table)
    to(six).partitionedBy("p").tableProperty("delta.checkpointInterval", "7").create()
    with pytest.raises(deltalog.TableExistsError):
        to(six).create()
    to("SELECT 10L AS id, 1L AS p").overwritePartitions()
    assert ids(spark_ext.read(spark).load(table)) == [0, 2, 4, 10]
    to("SELECT 3L AS id, 1L AS p").overwrite("id BETWEEN 1 AND 3")
    assert ids(spark_ext.read(spark).load(table)) == [0, 3, 4, 10]
    to("SELECT 11L AS id, 0L AS p").option("userMetadata", "by verb").append()
    assert ids(spark_ext.read(spark).load(table)) == [0, 3, 4, 10, 11]
    found = [(info["operation"], info.get("userMetadata")) for v in range(4) for info in action(table, v, "commitInfo")]
    assert found == [("CREATE TABLE AS SELECT", None), ("WRITE", None), ("WRITE", None), ("WRITE", "by verb")]


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_table_is_replaced_and_keeps_its_history(spark: Any, table: str, mode: str) -> None:
    given = {"delta.checkpointInterval": "7", "kept.not": "x", "delta.enableInCommitTimestamps": "true"}
    first = spark_ext.write_to(spark.range(4).selectExpr("id", "id % 2 AS p"), table).partitionedBy("p")
    for name, value in given.items():
        first = first.tableProperty(name, value)
    first.createOrReplace()
    deltalog.DeltaTable.open(table).add_constraint("small", "id < 100")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", mode)
    try:
        writer = spark_ext.write_to(spark.sql("SELECT 500L AS id, 'new' AS s"), table).partitionedBy("s")
        result = writer.tableProperty("delta.appendOnly", "false").createOrReplace()
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert (result.version, result.num_removed_rows) == (2, 4)
    snapshot = deltalog.DeltaTable.open(table).snapshot()
    assert (snapshot.schema.names, list(snapshot.partition_columns)) == (["id", "s"], ["s"])
    assert dict(snapshot.metadata.configuration) == {
        "delta.appendOnly": "false", "delta.enableInCommitTimestamps": "true"
    }  # fmt: skip
    assert ids(spark_ext.read(spark).load(table)) == [500]
    assert ids(spark_ext.read(spark).option("versionAsOf", 0).load(table)) == [0, 1, 2, 3]
    (info,) = action(table, 2, "commitInfo")
    assert info["operation"] == "CREATE OR REPLACE TABLE AS SELECT"
    assert info["operationParameters"]["properties"] == '{"delta.appendOnly":"false"}'
    assert spark_ext.write_to(spark.range(1), table).replace().version == 3


def test_a_name_that_was_taken_after_the_commit(spark: Any, catalog: str, tmp_path: Path) -> None:
    place, schema = str(tmp_path / "mine"), spark_ext.from_spark(spark.range(1).schema)
    target = NamedTarget(catalog, "shop.t", place)
    target.create(spark, {}, NewTable(schema, [], [], {})).commit("CREATE TABLE")
    manager = deltalog.TransactionManager(catalog)
    manager.create_table("shop.t", str(tmp_path / "theirs"), schema)
    with pytest.raises(spark_ext.NameNotRegisteredError, match="Do not write the rows again") as caught:
        target.created(spark, {})
    assert caught.value.outcome is deltalog.errors.Outcome.PARTLY_COMMITTED
    assert isinstance(caught.value.__cause__, deltalog.TableExistsError)
    assert manager.register_table("shop.mine", place).version == 0


def test_verbs_by_name(spark: Any, catalog: str, tmp_path: Path) -> None:
    spark_ext.write_to(spark.range(3), "shop.t").option("path", str(tmp_path / "t")).create()
    spark_ext.write_to(spark.range(3, 5), "shop.t").append()
    assert ids(spark_ext.read(spark).table("shop.t")) == [*range(5)]
    replaced = spark_ext.write_to(spark.sql("SELECT 1L AS id, 2 AS x"), "shop.t").createOrReplace()
    assert replaced.version == 2 and ids(spark_ext.read(spark).table("shop.t")) == [1]
    assert deltalog.TransactionManager(catalog).table("shop.t").version == 2


def test_what_verbs_refuse(spark: Any, table: str) -> None:
    writer = spark_ext.write_to(spark.range(1), table)
    for call, message in (
        (lambda: writer.option("replaceWhere", "id = 1"), "methods overwrite"),
        (lambda: writer.option("nope", 1), "Unknown write option"),
        (lambda: writer.partitionedBy(spark.range(1).id), "column names as strings"),
        (lambda: writer.overwrite(spark.range(1).id == 1), "SQL text"),
        (lambda: writer.using("parquet"), "only Delta tables"),
        (lambda: writer.clusterBy(spark.range(1).id), "column names as strings"),
        (lambda: writer.option("path", table).create(), "given by path"),
    ):
        with pytest.raises(deltalog.CallError, match=message):
            call()
    assert not os.path.exists(table)
    spark_ext.write(spark.range(1)).save(table)
    before = data_files(table)
    with pytest.raises(deltalog.CallError, match="parsed"):
        spark_ext.write_to(spark.range(1), table).overwrite("id =")
    assert versions(table) == [0] and data_files(table) == before and litter(table) == []
