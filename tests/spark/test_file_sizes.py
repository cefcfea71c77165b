"""The sizes of the files that a write creates."""

from __future__ import annotations

import json
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.tables import action

BIN_SIZE = "spark.databricks.delta.optimizeWrite.binSize"
ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
PARALLELISM = "spark.sql.adaptive.coalescePartitions.parallelismFirst"


def sizes(table: str, version: int) -> list[int]:
    return sorted(add["size"] for add in action(table, version, "add"))


@pytest.mark.parametrize("given", ["option", "property"])
def test_files_have_about_the_target_size(spark: Any, table: str, given: str) -> None:
    frame = spark.range(0, 200_000, 1, 1).selectExpr("id", "xxhash64(id) AS h")
    writer = spark_ext.write(frame)
    if given == "property":
        writer.option("delta.targetFileSize", "256kb")
    writer.save(table)
    again = spark_ext.write(frame).mode("append")
    result = (again.option("targetFileSize", 256 << 10) if given == "option" else again).save(table)
    *whole, last = sorted(action(table, 1, "add"), key=lambda add: json.loads(add["stats"])["numRecords"])[::-1]
    assert result.num_files == len(whole) + 1 > 4 and result.num_rows == 200_000
    assert all(0.7 < add["size"] / (256 << 10) < 1.3 for add in whole) and last["size"] < 1.3 * (256 << 10)
    capped = spark_ext.write(frame.limit(30)).mode("append").options(targetFileSize="1g", maxRecordsPerFile=10)
    assert capped.save(table).num_files == 3


@pytest.mark.parametrize("size", ["", "0", "much", "-1", "1.5m", "12x"])
def test_what_is_not_a_size(spark: Any, table: str, size: str) -> None:
    with pytest.raises(deltalog.CallError, match=r"targetFileSize is .* size in bytes"):
        spark_ext.write(spark.range(1)).option("targetFileSize", size)


def test_partitions_of_optimized_writes(spark: Any, tmp_path: Any) -> None:
    def files(**settings: str) -> int:
        for name, value in settings.items():
            spark.conf.set(BIN_SIZE if name == "bin" else name, value)
        table = str(tmp_path / str(len(list(tmp_path.iterdir()))))
        try:
            frame = spark.range(0, 100_000, 1, 4).selectExpr("id", "xxhash64(id) AS h")
            return spark_ext.write(frame).option("optimizeWrite", True).save(table).num_files
        finally:
            spark.conf.unset(BIN_SIZE)

    before = [spark.conf.get(name) for name in (ADVISORY, PARALLELISM)]
    assert files() == files(bin="1g") == 1 and files(bin="200k") > 4
    assert [spark.conf.get(name) for name in (ADVISORY, PARALLELISM)] == before
    with pytest.raises(deltalog.CallError, match=f"{BIN_SIZE} is 'big'"):
        files(bin="big")
