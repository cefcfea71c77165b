from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import spark_ext
from spark_ext.session import paths
from tests.spark.many_files import COUNT, ManyFiles, lists, make_flat, make_hive
from tests.spark.many_files import scratch as scratch


class TestManyFiles(ManyFiles):
    """On classic Spark."""


@pytest.mark.classic("the test counts jobs through sparkContext")
@pytest.mark.parametrize("make", [make_flat, make_hive])
def test_loading_runs_no_job_and_leaves_nothing(spark: Any, table: str, scratch: Path, make: Any) -> None:
    def jobs() -> int:
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup())

    make(table)
    before = jobs()
    df = spark_ext.read(spark).load(table)
    assert jobs() == before and lists() == []
    spark.read.schema("id long").parquet(*[paths.literal(str(path)) for path in Path(table).rglob("*.parquet")])
    assert jobs() == before + 1  # Spark runs one job to look up the paths
    assert df.count() == COUNT


def test_where_spark_does_not_see_the_list(
    spark: Any, table: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate a JVM with a different /tmp."""
    make_flat(table)
    uri = paths.uri
    monkeypatch.setattr(paths, "uri", lambda path: uri(path.replace(str(scratch), "/not-there")))
    assert spark_ext.read(spark).load(table).count() == COUNT and lists() == []
