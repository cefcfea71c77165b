"""Engines without access to the catalog open the path of a table that the catalog manages or has released."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import deltalog
from deltalog.catalog import committer
from tests.support.spark import DeltaSpark

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def manager(tmp_path: Path) -> deltalog.TransactionManager:
    return deltalog.TransactionManager(str(tmp_path / "catalog.db"))


@pytest.fixture
def table(manager: deltalog.TransactionManager, tmp_path: Path) -> Path:
    """A table with two published versions, each of which adds one row."""
    made = manager.create_table("a.t", str(tmp_path / "t"), SCHEMA, data=rows(1))
    made.append(rows(2))
    return tmp_path / "t"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


def files(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


ACCESS: dict[str, Callable[[Any, Path], Any]] = {
    "read": lambda spark, path: spark.read.format("delta").load(str(path)).count(),
    "travel": lambda spark, path: spark.read.format("delta").option("versionAsOf", 0).load(str(path)).count(),
    "append": lambda spark, path: spark.range(3).write.format("delta").mode("append").save(str(path)),
    "delete": lambda spark, path: spark.sql(f"DELETE FROM delta.`{path}`").collect(),
    "history": lambda spark, path: spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect(),
    "vacuum": lambda spark, path: spark.sql(f"VACUUM delta.`{path}`").collect(),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("access", ACCESS)
def test_delta_spark_refuses_the_path(delta: DeltaSpark, table: Path, access: str) -> None:
    before = files(table)
    with pytest.raises(Exception, match="catalogManagedTablePathBasedAccessNotAllowed"):
        ACCESS[access](delta.spark, table)
    assert files(table) == before


def test_delta_spark_refuses_the_path_of_a_table_that_was_dropped(
    delta: DeltaSpark, manager: deltalog.TransactionManager, table: Path
) -> None:
    manager.drop_table("a.t")
    with pytest.raises(Exception, match="catalogManagedTablePathBasedAccessNotAllowed"):
        ACCESS["read"](delta.spark, table)


def test_deltalake_refuses_the_path_whatever_is_published(
    manager: deltalog.TransactionManager, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(table) == refusal(table, write=True)
    monkeypatch.setattr(committer, "publish", unable)
    manager.table("a.t").append(rows(3))
    assert manager.table("a.t").snapshot().scan().to_arrow().num_rows == 3
    # There must be no ``.crc`` of the unpublished version, because other engines would report it as a defect.
    assert "2.crc" not in " ".join(files(table)) and refusal(table) == refusal(table, write=True)


def test_delta_spark_reads_and_writes_a_table_that_was_released(
    delta: DeltaSpark, manager: deltalog.TransactionManager, table: Path
) -> None:
    manager.release_table("a.t")
    spark = delta.spark
    assert ids_by_spark(spark, table) == [1, 2]
    spark.range(3, 5).write.format("delta").mode("append").save(str(table))
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1").collect()
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('custom.x' = '1')").collect()
    released = deltalog.DeltaTable.open(str(table))
    assert sorted(released.snapshot().scan().to_arrow()["id"].to_pylist()) == [2, 3, 4]
    released.append(rows(5))
    assert ids_by_spark(spark, table) == [2, 3, 4, 5]
    operations = [row["operation"] for row in spark.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()]
    assert operations == [
        "WRITE",
        "SET TBLPROPERTIES",
        "DELETE",
        "WRITE",
        "DROP FEATURE",
        "WRITE",
        "CREATE TABLE AS SELECT",
    ]
    spark.sql(f"VACUUM delta.`{table}`").collect()
    times = [entry.timestamp_ms or 0 for entry in released.history()]
    assert times == sorted(times, reverse=True) and released.snapshot().in_commit_timestamps_enabled
    assert released.check().ok
    assert spark.read.format("delta").option("versionAsOf", 1).load(str(table)).count() == 2  # a managed version
    assert released.snapshot(1).scan().to_arrow().num_rows == 2


def ids_by_spark(spark: Any, path: Path) -> list[int]:
    return sorted(row["id"] for row in spark.read.format("delta").load(str(path)).collect())


def test_deltalake_reads_and_writes_a_released_table_without_the_features_that_it_lacks(
    manager: deltalog.TransactionManager, table: Path
) -> None:
    manager.release_table("a.t")
    with pytest.raises(Exception, match="vacuumProtocolCheck"):
        deltalake.DeltaTable(str(table)).to_pyarrow_table()
    released = deltalog.DeltaTable.open(str(table))
    released.drop_feature("vacuumProtocolCheck")
    assert sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    released.drop_feature("inCommitTimestamp")
    deltalake.write_deltalake(str(table), rows(3), mode="append")
    assert sorted(deltalog.DeltaTable.open(str(table)).snapshot().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


def refusal(path: Path, write: bool = False) -> str:
    with pytest.raises(Exception, match="catalog-managed table") as caught:
        deltalake.write_deltalake(str(path), rows(9), mode="append") if write else deltalake.DeltaTable(str(path))
    return str(caught.value)


def unable(*arguments: Any) -> int:
    raise deltalog.StoreError("the disk is full")
