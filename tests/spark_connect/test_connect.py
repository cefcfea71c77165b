from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.spark import guide
from tests.spark.central import Central


class TestCentral(Central):
    """On Spark Connect."""


def test_the_session_is_a_connect_client(spark: Any) -> None:
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    assert type(spark.range(1)).__module__ == "pyspark.sql.connect.dataframe"


def test_the_examples_of_the_guide_run(spark: Any, tmp_path: Path) -> None:
    assert guide.run(spark, tmp_path) == 5
