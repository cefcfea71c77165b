"""Tables that deltalog converts and clones, and manifests that it writes: compared with delta-spark's, and read with
deltalake."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from deltalog import CallError, DeltaTable
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.shapes import SCHEMA, batch

ICT = {"delta.enableInCommitTimestamps": "true"}
EVERYTHING = {
    "delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true", "delta.columnMapping.mode": "name",
    "delta.enableChangeDataFeed": "true",
}  # fmt: skip


def info(path: Path) -> Any:
    """The commitInfo of version 0."""
    return json.loads((path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[0])["commitInfo"]


def ours(table: DeltaTable) -> list[list[Any]]:
    return plain_rows(table.to_pyarrow_table())


def parsed(parameters: dict[str, Any]) -> dict[str, Any]:
    """Operation parameters; delta-spark writes some of them as JSON values and others as strings."""

    def value(text: Any) -> Any:
        try:
            return value(json.loads(text)) if isinstance(text, str) else text
        except ValueError:
            return text

    return {key: value(text) for key, text in parameters.items()}


def test_a_directory_that_spark_wrote(delta: DeltaSpark, tmp_path: Path) -> None:
    """deltalog converts the directory, and delta-spark converts a copy of it: both tables have the same columns, rows,
    partitions and history."""
    path, other = tmp_path / "a", tmp_path / "b"
    frame = delta.spark.createDataFrame(
        [(1, "x", 7, "2026-11-20"), (2, None, 8, None), (3, "ä b", -9, "2026-11-21")],
        "id int, s string, n int, day string",
    ).selectExpr(
        "id", "s", "cast(n as long) as amount", "named_struct('f', id) as inner", "n", "cast(day as date) as day"
    )
    frame.write.partitionBy("n", "day").parquet(str(path))
    shutil.copytree(path, other)
    table = DeltaTable.convert(path)
    delta.sql(f"CONVERT TO DELTA parquet.`{other}` PARTITIONED BY (n INT, day DATE)")
    rows = ours(table)
    assert rows == plain_rows(delta.table(path)) == plain_rows(delta.table(other))
    assert plain_rows(deltalake.DeltaTable(str(path)).to_pyarrow_table()) == rows
    theirs = DeltaTable.open(other).snapshot()
    assert [(f.name, f.data_type) for f in table.schema] == [(f.name, f.data_type) for f in theirs.schema]
    assert table.snapshot().partition_columns == theirs.partition_columns == ("n", "day")
    mine, spark = info(path), info(other)
    assert mine["operation"] == spark["operation"] == "CONVERT"
    assert parsed(mine["operationParameters"]) == parsed(spark["operationParameters"])
    assert mine["operationMetrics"] == spark["operationMetrics"]
    columns = ["path", "partition_values", "size"]
    files = [sorted(each.files(columns).to_pylist(), key=str) for each in (table.snapshot(), theirs)]
    assert files[0] == files[1]
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    delta.sql(f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{other}` WHERE id = 2")
    assert ours(DeltaTable.open(path)) == rows


def test_a_directory_that_arrow_wrote(delta: DeltaSpark, tmp_path: Path) -> None:
    for number, place in enumerate(("a b", "ä%", "x=1")):
        pq.write_to_dataset(batch(10 * number).drop_columns("place").append_column("place", pa.array([place] * 3)),
                            tmp_path, partition_cols=["place"])  # fmt: skip
    pq.write_table(
        pa.table({"id": [99], "more": [1.5]}), _below(tmp_path / "place=__HIVE_DEFAULT_PARTITION__") / "x.parquet"
    )
    table = DeltaTable.convert(tmp_path, properties={**ICT, "delta.enableRowTracking": "true"})
    rows = ours(table)
    assert len(rows) == 10 and rows == plain_rows(delta.table(tmp_path))
    assert plain_rows(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()) == rows
    table.append(batch(50))
    delta.sql(f"UPDATE delta.`{tmp_path}` SET amount = 0 WHERE place = 'x=1'")
    assert ours(DeltaTable.open(tmp_path)) == plain_rows(delta.table(tmp_path))


def _below(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def changed(path: Path, properties: dict[str, str]) -> DeltaTable:
    table = DeltaTable.create(path, SCHEMA, properties=properties, partition_by=["place"], data=batch(0, 14))
    table.append(batch(20, 300))
    table.delete("id % 3 = 0")
    table.update({"amount": "1"}, "id = 4")
    return table


@pytest.mark.sampled(2)
@pytest.mark.parametrize("properties", [ICT, EVERYTHING], ids=["timed", "everything"])
@pytest.mark.parametrize("shallow", [True, False], ids=["shallow", "deep"])
def test_clones_are_read_and_carried_on(
    delta: DeltaSpark, tmp_path: Path, shallow: bool, properties: dict[str, str]
) -> None:
    table = changed(tmp_path / "a b", properties)
    path = tmp_path / "clone"
    clone = table.clone(path, shallow=shallow)
    rows = ours(table)
    assert ours(clone) == plain_rows(delta.table(path)) == rows
    if properties is ICT:
        lake = deltalake.DeltaTable(str(path))
        # Deltalake treats absolute paths as relative to the table's root, even in clones that delta-spark made.
        if shallow:
            with pytest.raises(FileNotFoundError, match="not found"):
                lake.to_pyarrow_table()
        else:
            assert plain_rows(lake.to_pyarrow_table()) == rows
        assert delta.metadata(path)["configuration"] == ICT  # no pair
        assert delta.version_at(path, clone.snapshot().timestamp_ms) == 0
    else:
        ids = ["id", "_metadata.row_id"]
        mine = clone.snapshot().scan(ids).to_arrow().to_pylist()
        theirs = delta.spark.read.format("delta").load(str(path)).select(*ids).collect()
        assert sorted(tuple(row.values()) for row in mine) == sorted(map(tuple, theirs))
        assert mine == clone.snapshot().scan(ids).to_arrow().to_pylist()
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id IN (1, 22, 23)")
    clone.append(batch(500))
    delta.sql(f"UPDATE delta.`{path}` SET amount = 2 WHERE id = 25")
    clone.restore(0)
    assert ours(clone) == plain_rows(delta.table(path)) == rows
    for version in range(clone.snapshot().version + 1):
        assert plain_rows(clone.snapshot(version).scan().to_arrow()) == plain_rows(delta.table(path, version))
    assert ours(DeltaTable.open(tmp_path / "a b")) == rows


def test_shallow_clones_are_recorded_as_delta_spark_records_them(delta: DeltaSpark, tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "s", SCHEMA, data=batch(0))
    table.append(batch(3))
    clone = table.clone(tmp_path / "c", shallow=True)
    delta.sql(f"CREATE TABLE delta.`{tmp_path / 'd'}` SHALLOW CLONE delta.`{tmp_path / 's'}`")
    mine, spark = info(tmp_path / "c"), info(tmp_path / "d")
    assert mine["operation"] == spark["operation"] == "CLONE"
    assert mine["operationMetrics"] == spark["operationMetrics"]
    parameters = parsed(mine["operationParameters"])
    assert parameters.pop("isShallow") is True
    theirs = parsed(spark["operationParameters"])
    assert parameters["sourceVersion"] == theirs["sourceVersion"] == 1
    assert parameters["source"] == theirs["source"]
    other = DeltaTable.open(tmp_path / "d", allowed_paths=[str(tmp_path / "s")])
    paths = [sorted(each.snapshot().files(["path"])["path"].to_pylist()) for each in (clone, other)]
    assert paths[0] == paths[1]
    other.append(batch(6))
    other.delete("id = 1")
    other.restore(0)  # RESTORE in delta-spark's clone adds the absolute paths again
    assert ours(other) == plain_rows(delta.table(tmp_path / "d")) == ours(table)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("partition_by", [(), ("place",)], ids=["plain", "partitioned"])
def test_manifests_are_those_of_delta_spark(delta: DeltaSpark, tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=partition_by, data=batch(0, 9))
    table.append(batch(20, 9))
    root = tmp_path / "_symlink_format_manifest"

    def manifests() -> dict[str, list[str]]:
        found = {each.relative_to(root).as_posix(): each for each in root.rglob("manifest")}
        return {name: sorted(path.read_text().splitlines()) for name, path in found.items()}

    delta.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{tmp_path}`")
    theirs = manifests()
    table.delete("id < 25")
    table.generate()
    assert manifests().keys() <= theirs.keys() and manifests() != theirs
    mine = manifests()
    delta.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{tmp_path}`")
    assert manifests() == mine
    read = delta.spark.read.parquet(*[line for lines in mine.values() for line in lines])
    assert read.count() == table.to_pyarrow_table().num_rows


def test_both_refuse_manifests_of_tables_with_vectors(delta: DeltaSpark, tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, data=batch(0), properties={"delta.enableDeletionVectors": "true"})
    table.delete("id = 1")
    with pytest.raises(CallError, match="deletion vectors"):
        table.generate()
    with pytest.raises((Py4JJavaError, PySparkException), match=r"[Dd]eletion [Vv]ectors"):
        delta.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{tmp_path}`")
