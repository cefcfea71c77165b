"""Tables on S3, written and read with spark_ext."""

from __future__ import annotations

import datetime
import decimal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

import deltalog
import spark_ext
from spark_ext.maintenance import vacuum
from spark_ext.maintenance.vacuum import _runner
from tests.spark import guide
from tests.spark.settings import session_of
from tests.spark.tables import rows
from tests.spark_s3.conftest import Place, data_objects, session_reaches
from tests.support.s3 import Request, Reset
from tests.support.s3.dynamodb import items, new_table

_UTC = datetime.timezone.utc


def _write(df: Any, place: Place, mode: str = "append", **options: Any) -> Any:
    writer = spark_ext.write(df).mode(mode).storage_options(**place.options)
    for name, value in options.items():
        writer.option(name, value)
    return writer


def _read(spark: Any, place: Place) -> Any:
    return spark_ext.read(spark).storage_options(**place.options)


def _by_deltalog(place: Place) -> pa.Table:
    return deltalog.DeltaTable.open(place.url, **place.options).snapshot().scan().to_arrow()


def test_a_table_is_created_appended_to_and_read(spark: Any, place: Place) -> None:
    first = spark.createDataFrame([(1, "a"), (2, None)], "id long, name string")
    created = _write(first, place, "error").save(place.url)
    assert (created.version, created.num_rows) == (0, 2)
    appended = _write(first, place).save(place.url.replace("s3:", "s3a:"))
    assert (appended.version, appended.num_rows) == (1, 2)
    assert rows(_read(spark, place).load(place.url), "id", "name") == [(1, "a"), (1, "a"), (2, None), (2, None)]
    assert _read(spark, place).load(f"{place.url}@v0").count() == 2
    assert sorted(_by_deltalog(place)["id"].to_pylist()) == [1, 1, 2, 2]
    detail = spark_ext.detail(spark, place.url, storage_options=place.options).first()
    assert (detail["location"], detail["numFiles"]) == (place.url.replace("s3:", "s3a:"), len(_names(place)))
    assert spark_ext.history(spark, place.url, storage_options=place.options).count() == 2
    query = f"select count(*), count(name) from deltalog.`{place.url}` where id > 0"
    assert rows(spark_ext.sql(spark, query, storage_options=place.options), "count(1)", "count(name)") == [(4, 2)]
    described = spark_ext.sql(spark, f"describe history deltalog.`{place.url}`", storage_options=place.options)
    assert described.count() == 2
    assert set(data_objects(place)) == set(_names(place))


def _names(place: Place) -> list[str]:
    return sorted(deltalog.DeltaTable.open(place.url, **place.options).snapshot().files()["path"].to_pylist())


def test_the_pipeline_of_the_guide_runs(spark: Any, place: Place, tmp_path: Path) -> None:
    assert guide.run_pipeline(spark, tmp_path, place.url, place.options) >= 6


def test_partitions_types_and_partial_overwrites(spark: Any, place: Place) -> None:
    schema = (
        "id int, d decimal(20,3), t timestamp, n timestamp_ntz, s struct<a:int,b:array<string>>, m map<string,double>, "
        "day date, at timestamp, k string"
    )
    moment = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, _UTC)
    local = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
    day = datetime.date(2024, 2, 29)
    plain = (1, decimal.Decimal("12345678901234567.891"), moment, local, (7, ["x", None]), {"k": 1.5}, day)
    data = [(*plain, moment, "a b/%"), (2, *[None] * 6, None, ""), (3, *[None] * 6, moment, "a b/%")]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        df = spark.createDataFrame(data, schema).repartition(2)
        _write(df, place, "error").partitionBy("at", "k").save(place.url)
        found = _read(spark, place).load(place.url)
        assert found.schema.simpleString() == df.schema.simpleString()
        expected = df.withColumn("k", F.when(F.col("k") != "", F.col("k")))
        assert rows(found.select("id", *df.columns[4:], F.unix_micros("t")), "id") == rows(
            expected.select("id", *df.columns[4:], F.unix_micros("t")), "id"
        )
        assert [row["at"] for row in found.where("id = 1").select(F.col("at").cast("string")).collect()] == [
            "2024-02-29 13:30:15.123456"
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [sorted(each) for each in zip(*_partitions(place), strict=True)] == [
        ["2024-02-29T12:30:15.123456Z"],
        ["a b/%"],
    ]
    stored = _by_deltalog(place).sort_by("id")
    assert stored["t"].to_pylist()[0] == moment and stored["n"].to_pylist()[0] == local

    changed = df.where("id = 3").withColumn("id", F.lit(30))
    result = _write(changed, place, "overwrite", partitionOverwriteMode="dynamic").save(place.url)
    assert result.num_removed_rows == 2
    assert rows(_read(spark, place).load(place.url).select("id")) == [(2,), (30,)]
    _write(df.where("id = 2"), place, "overwrite", replaceWhere="id = 2").save(place.url)
    assert rows(_read(spark, place).load(place.url).select("id")) == [(2,), (30,)]
    _write(df.where("id = 2"), place, "overwrite").save(place.url)
    assert rows(_read(spark, place).load(place.url).select("id")) == [(2,)]


def _partitions(place: Place) -> set[tuple[str, ...]]:
    files = deltalog.DeltaTable.open(place.url, **place.options).snapshot().files()["partition_values"].to_pylist()
    return {tuple(value for _, value in pairs) for pairs in files if all(value for _, value in pairs)}


def test_requests_for_each_file(spark: Any, place: Place) -> None:
    count = 40
    df = spark.range(count).selectExpr("id", "id % 4 as p").repartition(count // 4, "id")
    with place.proxy.counted() as made:
        result = _write(df, place, "error").partitionBy("p").save(place.url)
    of_files = [request for request in made if request.key.endswith(".parquet")]
    assert {request.method for request in of_files} == {"PUT"} and len(of_files) == result.num_files
    with place.proxy.counted() as made:
        loaded = _read(spark, place).load(place.url)
    assert not [request for request in made if request.key.endswith(".parquet")]
    assert not [request for request in made if "/p=" in request.key]
    with place.proxy.counted() as made:
        assert loaded.selectExpr("sum(id)").first()[0] == sum(range(count))
    # For each file, one HEAD, which S3A sends when it opens the file, and one GET.
    by_method = {method: sum(request.method == method for request in made) for method in ("HEAD", "GET")}
    assert by_method == {"HEAD": result.num_files, "GET": result.num_files}


def test_tasks_that_fail_are_repeated_and_leave_nothing(spark: Any, place: Place) -> None:
    def failing_once(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.attemptNumber() == 0 and context.partitionId() == 1:
            raise RuntimeError("the first attempt")

    df = spark.range(0, 100, 1, 3).mapInArrow(failing_once, "id long")
    result = _write(df, place, "error", maxRecordsPerFile=10).save(place.url)
    assert (result.num_rows, result.num_files) == (100, 12)
    assert rows(_read(spark, place).load(place.url)) == [(number,) for number in range(100)]
    assert set(data_objects(place)) == set(_names(place))


def test_a_job_that_fails_commits_nothing(spark: Any, place: Place) -> None:
    _write(spark.range(3), place, "error").save(place.url)
    table = deltalog.DeltaTable.open(place.url, **place.options)
    table.add_constraint("small", "id < 50")
    with pytest.raises(deltalog.ConstraintViolationError, match="small"):
        _write(spark.range(0, 100, 1, 1), place).save(place.url)
    assert deltalog.DeltaTable.open(place.url, **place.options).version == 1
    assert set(data_objects(place)) == set(_names(place))


def test_what_tasks_wrote_before_their_job_failed_is_removed(spark: Any, place: Place) -> None:
    def failing_at_last(batches: Any) -> Any:
        import time

        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 2:
            time.sleep(2)  # the other tasks have ended
            raise RuntimeError("the last task")

    schema = spark_ext.from_spark(spark.range(1).selectExpr("id", "id as p").schema)
    deltalog.DeltaTable.create(place.url, schema, partition_by=["p"], **place.options)
    df = spark.range(0, 6, 1, 3).mapInArrow(failing_at_last, "id long").selectExpr("id", "id % 2 as p")
    with place.proxy.counted() as made, pytest.raises(PythonException, match="the last task"):
        _write(df, place).save(place.url)
    assert [request for request in made if request.method == "PUT" and "/p=" in request.key]
    assert deltalog.DeltaTable.open(place.url, **place.options).version == 0 and data_objects(place) == []


def test_errors_of_tasks_have_the_reason_and_no_secret(spark: Any, place: Place) -> None:
    schema = spark_ext.from_spark(spark.range(1).schema)
    deltalog.DeltaTable.create(place.url, schema, **place.options)

    def rule(request: Request, forward: Any) -> Any:
        if request.method == "PUT" and request.key.endswith(".parquet"):
            return 403, [], b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        return forward()

    place.proxy.rule = rule
    with pytest.raises(deltalog.StoreError, match=r"a task could not write its files.*AccessDenied") as error:
        _write(spark.range(1), place).save(place.url)
    assert place.options["secret"] not in str(error.value) and error.value.__cause__ is None


def test_lost_answers_and_delays_of_the_commit(spark: Any, place: Place) -> None:
    lost: list[str] = []

    def rule(request: Request, forward: Any) -> Any:
        answer = forward()
        if request.method == "PUT" and request.key.endswith("0.json") and not lost:
            lost.append(request.key)
            raise Reset
        return answer

    place.proxy.rule = rule
    result = _write(spark.range(10), place, "error").save(place.url)
    assert lost and (result.version, result.num_rows) == (0, 10)
    assert _read(spark, place).load(place.url).count() == 10


def test_the_settings_of_the_session_lead_to_the_store(spark: Any, place: Place) -> None:
    with session_reaches(spark, place):
        spark_ext.write(spark.range(5)).save(place.url)
        assert spark_ext.read(spark).load(place.url).count() == 5
        found = spark_ext.sql(spark, f"select max(id) as m from deltalog.`{place.url}@v0`")
        assert found.first()["m"] == 4


def test_mapped_columns_deletion_vectors_changes_and_odd_names(spark: Any, place: Place) -> None:
    properties = {
        "delta.columnMapping.mode": "id",
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true",
    }
    df = spark.range(20).selectExpr("id", "named_struct('x y', id) as s", "cast(id % 2 as string) as p").coalesce(1)
    _write(df, place, "error", **properties).partitionBy("p").save(place.url)
    table = deltalog.DeltaTable.open(place.url, **place.options)
    table.delete("id < 5")
    table.rename_column("id", "number")
    _write(df.withColumnRenamed("id", "number"), place).save(place.url)
    loaded = _read(spark, place).load(place.url)
    assert sorted(r[0] for r in loaded.selectExpr("number").collect()) == sorted([*range(5, 20), *range(20)])
    assert loaded.where("p = '1' and number > 17").selectExpr("s.`x y`").collect() == [(19,), (19,)]
    changes = spark_ext.read_changes(spark, place.url, 1, 1, storage_options=place.options)
    assert rows(changes.selectExpr("id", "_change_type")) == [(number, "delete") for number in range(5)]


def test_files_that_spark_skips(spark: Any, place: Place) -> None:
    _write(spark.range(3).coalesce(1), place, "error").save(place.url)
    table = deltalog.DeltaTable.open(place.url, **place.options)
    store = deltalog.open_store(place.url, **place.options)
    (name,) = _names(place)
    store.put("_hidden.parquet", store.get(name))
    with table.transaction() as transaction:
        transaction.add_parquet_files([("_hidden.parquet", {})])
        transaction.commit("WRITE")
    assert rows(_read(spark, place).load(place.url)) == [(n,) for n in (0, 0, 1, 1, 2, 2)]


@pytest.mark.parametrize("kind", ["dynamo", "s3-dynamodb"])
def test_writers_side_by_side_commit_through_dynamodb(spark: Any, place: Place, ministack: Any, kind: str) -> None:
    lock = new_table(ministack, kind)
    options = {**place.options, "commit": f"{kind}:{lock}"}
    spark_ext.write(spark.range(4)).storage_options(**options).save(place.url)

    def append(number: int) -> int:
        df = spark.range(10 * number, 10 * number + 3)
        return int(spark_ext.write(df).mode("append").storage_options(**options).save(place.url).version)

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(append, [1, 2])) == [1, 2]
    with pytest.raises(deltalog.errors.VersionConflictError):
        stale = spark_ext.write(spark.range(1)).mode("append").option("expectedVersion", 1)
        stale.storage_options(**options).save(place.url)
    assert len(items(ministack, lock)) >= 1
    found = spark_ext.read(spark).storage_options(**options).load(place.url)
    assert rows(found) == [(number,) for number in (0, 1, 2, 3, 10, 11, 12, 20, 21, 22)]
    assert set(data_objects(place)) == set(_names(place))


def test_tables_of_a_catalog(spark: Any, place: Place, tmp_path: Any) -> None:
    manager = deltalog.TransactionManager(str(tmp_path / "catalog.db"), **place.options)
    manager.create_table("a.b", f"{place.url}-managed", spark_ext.from_spark(spark.range(1).schema))
    with manager.transaction() as txn:
        spark_ext.write(spark.range(6)).mode("append").save(txn.table("a.b"))
        assert spark_ext.read(spark).load(txn.table("a.b")).count() == 6
        txn.commit()
    address = f"catalog:{tmp_path / 'catalog.db'}#a.b"
    assert spark_ext.read(spark).storage_options(**place.options).load(address).count() == 6


@pytest.mark.classic("the plan of the JVM is read")
def test_other_readers_and_no_secrets_in_plans(spark: Any, place: Place) -> None:
    df = spark.range(30).selectExpr("id", "id % 3 as p")
    _write(df, place, "error", compression="zstd").partitionBy("p").save(place.url)
    options = {
        "AWS_ACCESS_KEY_ID": place.options["key"],
        "AWS_SECRET_ACCESS_KEY": place.options["secret"],
        "AWS_ENDPOINT_URL": place.options["endpoint_url"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    assert deltalake.DeltaTable(place.url, storage_options=options).to_pyarrow_table().num_rows == 30
    loaded = _read(spark, place).load(place.url)
    text = loaded._jdf.queryExecution().toString()
    assert place.options["secret"] not in text and place.options["key"] not in text


@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}])
def test_rows_are_changed(spark: Any, place: Place, properties: dict[str, str]) -> None:
    made = spark.sql("SELECT id, id % 2 AS p, cast(id AS int) AS n FROM range(0, 12, 1, 2)")
    properties = {**properties, "delta.enableChangeDataFeed": "true"}
    writer = spark_ext.write(made).partitionBy("p").options(**properties).storage_options(**place.options)
    writer.save(place.url)
    table = spark_ext.DeltaTable.forPath(spark, place.url, storage_options=place.options).alias("t")
    table.update("id IN (1, 2)", {"n": "n + 100", "p": "7"})
    table.delete("id % 3 = 0")
    source = spark.sql("SELECT id, 0L AS p, -1 AS n FROM range(1, 20, 6, 1)").alias("s")
    table.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    found = sorted((row["id"], row["p"], row["n"]) for row in table.toDF().collect())
    assert found == [
        *((1, 0, -1), (2, 7, 102), (4, 0, 4), (5, 1, 5), (7, 0, -1), (8, 0, 8), (10, 0, 10), (11, 1, 11)),
        *((13, 0, -1), (19, 0, -1)),
    ]
    opened = deltalog.DeltaTable.open(place.url, **place.options)
    kinds = opened.changes(1).to_arrow()["_change_type"].to_pylist()
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "update_preimage": 4,
        "update_postimage": 4,
        "delete": 4,
        "insert": 2,
    }
    assert any(name.startswith("_change_data/cdc-") for name in data_objects(place))
    with pytest.raises(deltalog.SchemaMismatchError):
        before = data_objects(place)
        table.update(set={"n": "5000000000L"})
    assert data_objects(place) == before


def test_tasks_vacuum(spark: Any, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task lists a range of keys and deletes its files in batches. A refused request ends the vacuum, and the next
    vacuum completes the work. With many files, Spark tasks do the work by default."""
    schema = spark_ext.from_spark(spark.range(1).selectExpr("id", "id % 3 as p").schema)
    table = deltalog.DeltaTable.create(place.url, schema, partition_by=["p"], **place.options)
    for start in (0, 3, 6, 9):
        table.append(pa.table({"id": range(start, start + 3), "p": [0, 1, 2]}))
    table.delete("id < 9")
    unchecked = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
    expected = table.vacuum(0, enforce_retention_duration=False).paths
    assert len(expected) == 9
    vacuumed = spark_ext.DeltaTable.forPath(spark, place.url, storage_options=place.options)

    def rule(request: Request, forward: Any) -> Any:
        if request.method == "POST":
            return 403, [], b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        return forward()

    before, place.proxy.rule = place.proxy.rule, rule
    with session_of(spark, unchecked):
        with pytest.raises(
            deltalog.StoreError, match=r"stopped after deleting at least 0 of 9 files.*AccessDenied"
        ) as error:
            vacuumed.vacuum(0, onExecutors=True)
        assert place.options["secret"] not in str(error.value) and len(data_objects(place)) == 12
        place.proxy.rule = before
        asked: list[str] = []

        def runner(*given: Any) -> Any:
            asked.append(given[1])
            return _runner(*given)

        monkeypatch.setattr(vacuum, "_MANY_FILES", 3)
        monkeypatch.setattr(vacuum, "_runner", runner)
        with place.proxy.counted() as made:
            vacuumed.vacuum(0)
    assert asked == [table.url]
    assert sum(request.method == "POST" for request in made) == 1
    assert not [request for request in made if request.method == "DELETE"]
    assert sorted(data_objects(place)) == sorted(_names(place)) and len(_names(place)) == 3
    assert sorted(_by_deltalog(place)["id"].to_pylist()) == [9, 10, 11]
    ends = [each for each in table.history() if each.operation == "VACUUM END"]
    assert [each.operation_parameters["status"] for each in ends] == ["COMPLETED", "FAILED"]
    assert ends[0].operation_metrics["numDeletedFiles"] == "9"
