"""Streams written with format("deltalog"): every row is written exactly once, despite failures and repetitions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import deltalog
import spark_ext
from tests.spark.settings import since
from tests.spark.streams import Input, finish
from tests.spark.tables import action, data_files, rows, versions

pytestmark = since("4.0", "Python data sources")


@pytest.fixture
def source(spark: Any, tmp_path: Path) -> Input:
    spark_ext.register(spark)
    return Input(spark, tmp_path / "stream")


def run(source: Input, table: str, frame: Any = None, output_mode: str = "append", **options: str) -> Any:
    writer = (source.stream if frame is None else frame).writeStream.format("deltalog").outputMode(output_mode)
    writer = writer.option("checkpointLocation", source.checkpoint).options(**options)
    query = writer.trigger(availableNow=True).start(table)
    finish(query)
    return query


def ids(table: str) -> list[int]:
    return sorted(deltalog.DeltaTable.open(table).snapshot().scan().to_arrow()["id"].to_pylist())


def recorded(table: str) -> list[tuple[str, int]]:
    """The application id and the batch id of each commit that records them."""
    found = [each for version in versions(table) for each in action(table, version, "txn")]
    return [(each["appId"], each["version"]) for each in found]


def repeated(source: Input, batches: Sequence[int]) -> None:
    """Make Spark repeat these batches, as if its checkpoint had not recorded that they were finished."""
    for batch in batches:
        for name in (f"{batch}", f".{batch}.crc"):
            (Path(source.checkpoint) / "commits" / name).unlink(missing_ok=True)


def test_each_batch_is_a_commit_with_the_id_of_the_query(spark: Any, source: Input, table: str) -> None:
    source.add(1, 2)
    source.add(3)
    query = run(source, table, partitionBy="name", userMetadata="streamed", properties='{"delta.appendOnly": "true"}')
    source.add(4)
    run(source, table)
    assert ids(table) == [1, 2, 3, 4]
    assert recorded(table) == [(query.id, 0), (query.id, 1), (query.id, 2)]
    snapshot = deltalog.DeltaTable.open(table).snapshot()
    assert snapshot.partition_columns == ("name",)
    assert snapshot.metadata.configuration["delta.appendOnly"] == "true"
    statistics = snapshot.statistics()
    assert sorted(statistics["num_records"].to_pylist()) == [1, 1, 1, 1]
    [first, *_] = [each for each in deltalog.DeltaTable.open(table).history() if each.version == 1]
    assert first.operation == "STREAMING UPDATE" and first.operation_parameters["epochId"] == "0"
    assert rows(spark_ext.read(spark).load(table).select("id", "name"))[0] == (1, "row 1")


def test_a_lost_acknowledgement_writes_nothing_twice(source: Input, table: str) -> None:
    for each in range(3):
        source.add(each)
    run(source, table)
    before = versions(table), data_files(table)
    repeated(source, [2])
    run(source, table)
    assert (versions(table), data_files(table)) == before
    assert ids(table) == [0, 1, 2]


@pytest.mark.parametrize(
    "step", ["task", pytest.param("before the commit", marks=pytest.mark.long), "after the commit"]
)
def test_a_batch_that_fails_is_written_once(source: Input, table: str, tmp_path: Path, step: str) -> None:
    source.add(0)
    run(source, table)
    source.add(1)
    stream = source.stream
    log = Path(table) / "_delta_log"
    if step == "task":
        stream = stream.selectExpr("assert_true(id < 0) is null as checked", "*").where("checked").drop("checked")
    elif step == "before the commit":  # the next version cannot be created
        (log / f"{2:020d}.json").mkdir()
    else:  # the commit succeeds, but the query's checkpoint cannot record the batch
        Path(source.checkpoint, "commits").rename(tmp_path / "kept")
        Path(source.checkpoint, "commits").write_text("not a directory")
    with pytest.raises(PySparkException):
        run(source, table, stream)
    if step == "before the commit":
        (log / f"{2:020d}.json").rmdir()
    if step == "after the commit":
        Path(source.checkpoint, "commits").unlink()
        (tmp_path / "kept").rename(Path(source.checkpoint, "commits"))
    run(source, table)
    assert ids(table) == [0, 1]
    assert [batch for _, batch in recorded(table)] == [0, 1]
    if step != "before the commit":  # at that step, the driver cannot open the table to remove the new files
        assert len(data_files(table)) == deltalog.DeltaTable.open(table).snapshot().num_files


def test_complete_mode_replaces_the_rows(spark: Any, source: Input, table: str) -> None:
    counts = source.stream.selectExpr("id % 2 as odd").groupBy("odd").count()
    source.add(1, 2, 3)
    source.add(4)
    run(source, table, counts, "complete")
    assert rows(spark_ext.read(spark).load(table)) == [(0, 2), (1, 2)]
    assert rows(spark_ext.read(spark).option("versionAsOf", 1).load(table)) == [(0, 1), (1, 2)]


@pytest.mark.long
def test_a_batch_of_another_checkpoint_is_refused(source: Input, table: str) -> None:
    source.add(0)
    source.add(1)
    run(source, table, txnAppId="orders")
    shutil.rmtree(source.checkpoint)
    with pytest.raises(PySparkException, match="another checkpoint"):
        run(source, table, txnAppId="orders")
    assert ids(table) == [0, 1]


def test_new_columns_and_rows_that_do_not_fit(source: Input, table: str) -> None:
    source.add(0)
    run(source, table)
    source.add(1)
    wider = source.stream.selectExpr("*", "id * 2 as twice")
    with pytest.raises(PySparkException, match="twice"):
        run(source, table, wider)
    run(source, table, wider, mergeSchema="true")
    found = deltalog.DeltaTable.open(table).snapshot().scan().to_arrow().sort_by("id").to_pylist()
    assert [(each["id"], each["twice"]) for each in found] == [(0, None), (1, 2)]


@pytest.mark.long
def test_constraints_hold_for_streams(source: Input, table: str) -> None:
    source.add(0)
    run(source, table)
    deltalog.DeltaTable.open(table).add_constraint("small", "id < 10")
    source.add(11)
    with pytest.raises(PySparkException, match="small"):
        run(source, table)
    assert ids(table) == [0]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mergeSchemas": "true"}, "Unknown option"),
        ({"mergeSchema": "yes"}, "true or false"),
        ({"delta.appendOnly": "true"}, "lower case"),
        ({"properties": "delta.appendOnly"}, "JSON object"),
    ],
)
def test_wrong_options_are_refused(source: Input, table: str, options: dict[str, str], match: str) -> None:
    source.add(0)
    with pytest.raises(PySparkException, match=match):
        run(source, table, **options)
    assert versions(table) == []


@pytest.mark.long
def test_from_table_to_table_beside_a_batch_job(spark: Any, table: str, tmp_path: Path, source: Input) -> None:
    target, columns = str(tmp_path / "target"), pa.schema([("id", pa.int64()), ("name", pa.string())])
    first = deltalog.DeltaTable.create(table, columns, data=pa.table({"id": [1], "name": ["a"]}, columns))
    for turn in range(2, 4):
        stream = spark.readStream.format("deltalog").load(table)
        run(source, target, stream)
        first.append(pa.table({"id": [turn], "name": ["b"]}, columns))
        deltalog.DeltaTable.open(target).append(pa.table({"id": [100 * turn], "name": ["batch"]}, columns))
    run(source, target, spark.readStream.format("deltalog").load(table))
    assert ids(target) == [1, 2, 3, 200, 300]


@pytest.mark.classic("the driver's processes do the same over Spark Connect")
def test_an_abort_removes_nothing_that_may_have_landed(spark: Any, source: Input, table: str) -> None:
    from spark_ext.stream.options import DefaultStorage, sink_options
    from spark_ext.stream.sink import Staged, sink

    source.add(0)
    query = run(source, table)
    written = deltalog.DeltaTable.open(table)
    staged = Staged(written.stage(pa.table({"id": [1], "name": ["x"]})).to_json())
    options = sink_options({"path": table, "checkpointLocation": source.checkpoint}, DefaultStorage())
    writer = sink(options, source.stream.schema, False)
    before = data_files(table)
    writer.abort([staged], 1)
    assert data_files(table) == before
    writer.commit([staged], 1)
    writer.abort([staged, None], 1)
    assert data_files(table) == before and ids(table) == [0, 1]
    lost = Staged(written.stage(pa.table({"id": [2], "name": ["x"]})).to_json())
    writer.abort([None, lost], 2)
    assert data_files(table) == before
    assert json.loads((Path(source.checkpoint) / "metadata").read_text())["id"] == query.id
