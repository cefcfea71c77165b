from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import spark_ext


@pytest.fixture(autouse=True)
def installed(spark: Any) -> Iterator[None]:
    spark_ext.install(spark)
    yield
    spark_ext.uninstall(spark)


def ids(df: Any) -> list[int]:
    return sorted(row["id"] for row in df.collect())


def test_a_program_for_delta_spark(spark: Any, table: str, tmp_path: Path) -> None:
    from delta.tables import DeltaTable

    spark.range(3).write.format("delta").save(table)
    spark.range(3, 5).write.mode("append").format("delta").save(table)
    df = spark.read.format("delta").load(table)
    assert ids(df.where(df.id > 2)) == [3, 4] and ids(df.where("id = 0")) == [0]
    assert ids(spark.read.format("delta").option("versionAsOf", 0).load(table)) == [0, 1, 2]
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 4")
    assert ids(spark.sql(f"SELECT * FROM delta.`{table}` WHERE id > 1")) == [2, 3]
    DeltaTable.forPath(spark, table).update("id = 3", {"id": "30"})
    with pytest.raises(AnalysisException, match="is not a Delta table"):
        spark.read.format("delta").load(str(tmp_path / "nothing"))
    spark.range(1).write.format("delta").saveAsTable("installed_over_connect")
    try:
        spark.range(1, 2).writeTo("installed_over_connect").append()
        assert ids(spark.table("installed_over_connect")) == [0, 1]
        assert ids(DeltaTable.forName(spark, "installed_over_connect").toDF()) == [0, 1]
    finally:
        spark.sql("DROP TABLE installed_over_connect")
    assert not spark.catalog.tableExists("installed_over_connect")
