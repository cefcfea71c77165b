"""Variants that Spark or its tasks wrote can be read by Spark and by deltalog, survive copies, and are shredded only
where the table allows it."""

from __future__ import annotations

import glob
import json
from typing import Any

import pyarrow.parquet as pq
import pytest

import deltalog
import spark_ext
import spark_ext.writing.save
from spark_ext.session import paths
from spark_ext.writing.local_job import LocalJob
from spark_ext.writing.task_job import TaskJob
from tests.spark.settings import since
from tests.spark.tables import action, litter, rows, versions

pytestmark = since("4.0", "variants")

ROWS = """select id, parse_json(s) as v, named_struct('v', parse_json(s)) as st, array(parse_json(s), null) as ar
    from values (1L, '{"a":[1,"x"]}'), (2L, '7'), (3L, null) t(id, s)"""
SHOWN = ("id", "to_json(v) as v", "to_json(st.v) as st", "to_json(ar) as ar")
EXPECTED = [
    (1, '{"a":[1,"x"]}', '{"a":[1,"x"]}', '[{"a":[1,"x"]},null]'),
    (2, "7", "7", "[7,null]"),
    (3, None, None, "[null,null]"),
]
KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "mapped by id": {"delta.columnMapping.mode": "id"},
    "change feed": {"delta.enableChangeDataFeed": "true"},
}


@pytest.fixture(params=[LocalJob, TaskJob], ids=["natively", "by tasks"])
def job(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the job that writes the files; a table on a local disk is written by tasks only in this test."""
    monkeypatch.setattr(spark_ext.writing.save, "job_of", lambda url: request.param(paths.checked_root(url, None)))
    return request.param


def by_spark(spark: Any, table: str) -> list[tuple[Any, ...]]:
    return rows(spark_ext.read(spark).load(table).selectExpr(*SHOWN), "id")


def by_deltalog(table: str) -> list[tuple[Any, ...]]:
    read = deltalog.DeltaTable.open(table).snapshot().scan(variants="json").to_arrow().sort_by("id").to_pylist()
    return [(row["id"], row["v"], row["st"] and row["st"]["v"], row["ar"]) for row in read]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_variants_are_written(spark: Any, table: str, job: Any, kind: str) -> None:
    df = spark.sql(ROWS).coalesce(1)
    spark_ext.write(df).options(**KINDS[kind]).save(table)
    spark_ext.write(df.selectExpr("id + 10 as id", "v", "st", "ar")).mode("append").save(table)
    expected = [*EXPECTED, *((row[0] + 10, *row[1:]) for row in EXPECTED)]
    assert by_spark(spark, table) == expected
    assert by_deltalog(table) == [(*row[:3], [row[1], None]) for row in expected]
    protocol = deltalog.DeltaTable.open(table).snapshot().protocol
    assert "variantType" in (protocol.reader_features or ()) and "variantType" in (protocol.writer_features or ())
    for path in glob.glob(f"{table}/**/*.parquet", recursive=True):
        assert "typed_value" not in str(pq.read_schema(path))
    (add,) = action(table, 1, "add")
    stats = json.loads(add["stats"])
    assert stats["numRecords"] == 3 and "metadata" not in add["stats"]
    if kind == "plain":
        assert stats["minValues"] == {"id": 11} and stats["nullCount"]["id"] == 0
        assert stats["nullCount"] == {"id": 0, "v": 1, "st": {"v": 1}}
    assert spark_ext.read(spark).where("v is null").load(table).count() == 2
    # deltalog copies rows to new files.
    new = spark.sql("select 2L as id, parse_json('[2]') as v, null as st, null as ar")
    replaced = spark_ext.write(new).mode("overwrite").option("replaceWhere", "id = 2").save(table)
    assert replaced.num_removed_rows == 1 and replaced.num_copied_rows == 2
    assert by_spark(spark, table) == [expected[0], (2, "[2]", None, None), *expected[2:]]
    deltalog.DeltaTable.open(table).delete("id > 3")
    assert [row[0] for row in by_spark(spark, table)] == [1, 2, 3] and litter(table) == []


@since("4.1", "shredded variants")
def test_variants_are_shredded_where_the_property_is_on(spark: Any, table: str, job: Any) -> None:
    df = spark.sql(ROWS).coalesce(1)
    spark_ext.write(df).options(**{"delta.enableVariantShredding": "true"}).save(table)
    assert by_spark(spark, table) == EXPECTED
    assert by_deltalog(table) == [(*row[:3], [row[1], None]) for row in EXPECTED]
    (path,) = glob.glob(f"{table}/*.parquet")
    kinds = [str(pq.read_schema(path).field(name).type) for name in ("v", "st", "ar")]
    assert ["typed_value" in kind for kind in kinds] == [False, False, False]  # the types of the values differ
    same = spark.sql(
        "select id, parse_json('{\"a\":' || id || '}') as v, null as st, null as ar from range(10, 20, 1, 1)"
    )
    spark_ext.write(same).mode("append").save(table)
    (add,) = action(table, 1, "add")
    assert "typed_value" in str(pq.read_schema(f"{table}/{add['path']}").field("v").type)
    assert json.loads(add["stats"])["nullCount"]["v"] == 0
    assert [row[1] for row in by_spark(spark, table)[3:]] == [f'{{"a":{n}}}' for n in range(10, 20)]
    spark_ext.DeltaTable.forPath(spark, table).update("id = 12", {"v": "parse_json('[]')"})
    assert [row[1] for row in by_deltalog(table)[3:6]] == ['{"a":10}', '{"a":11}', "[]"]
    deltalog.DeltaTable.open(table).append(deltalog.DeltaTable.open(table).snapshot().scan().to_arrow())
    assert spark_ext.read(spark).load(table).where("try_variant_get(v, '$.a', 'int') = 11").count() == 2
    # With the property off, new files are not shredded.
    deltalog.DeltaTable.open(table).set_properties({"delta.enableVariantShredding": "false"})
    spark_ext.write(same).mode("append").save(table)
    (add,) = action(table, 5, "add")
    assert "typed_value" not in str(pq.read_schema(f"{table}/{add['path']}"))


def test_data_without_the_variants_of_the_table(spark: Any, table: str, job: Any) -> None:
    spark_ext.write(spark.sql(ROWS)).save(table)
    spark_ext.write(spark.sql("select 4L as id")).mode("append").save(table)
    spark_ext.write(spark.sql("select 5L as id, null as v")).mode("append").save(table)
    assert by_spark(spark, table) == [*EXPECTED, (4, None, None, None), (5, None, None, None)]


def test_a_variant_column_is_added(spark: Any, table: str, job: Any) -> None:
    spark_ext.write(spark.sql("select 1L as id")).save(table)
    new = spark.sql("select 2L as id, parse_json('{}') as v")
    with pytest.raises(deltalog.SchemaMismatchError, match="column v is variant in the data and does not exist"):
        spark_ext.write(new).mode("append").save(table)
    spark_ext.write(new).mode("append").option("mergeSchema", True).save(table)
    assert rows(spark_ext.read(spark).load(table).selectExpr("id", "to_json(v)"), "id") == [(1, None), (2, "{}")]
    text = spark.sql("select 3L as id, '{}' as v")
    with pytest.raises(deltalog.SchemaMismatchError, match="column v is variant in the table and string in the data"):
        spark_ext.write(text).mode("append").save(table)
    assert versions(table) == [0, 1]


def test_a_variant_does_not_partition_a_table(spark: Any, table: str) -> None:
    with pytest.raises(deltalog.SchemaMismatchError, match="variant cannot partition"):
        spark_ext.write(spark.sql("select 1L as id, parse_json('1') as v")).partitionBy("v").save(table)
    assert versions(table) == []
