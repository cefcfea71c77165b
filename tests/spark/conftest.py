"""Spark without additional jars, in a classic session unless DELTALOG_TEST_SPARK selects Spark Connect."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

# The tests import their support code as `tests.…`, whatever directory pytest is started in.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
pytest.register_assert_rewrite("tests.spark.central", "tests.spark.tables")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from tests.spark.settings import skipped_over_connect

    skipped_over_connect(items)


@pytest.fixture(scope="session", autouse=True)
def versions_in_the_report(record_testsuite_property: Any) -> None:
    """Record Spark's version and mode in the report, for docs/spark-versions.md."""
    record_testsuite_property("pyspark", version("pyspark"))
    record_testsuite_property("python", platform.python_version())
    packages = ("pandas", "numpy", "pyarrow")
    record_testsuite_property("packages", ", ".join(f"{name} {version(name)}" for name in packages))


# Each test runs many small queries once. Without these settings most of the time goes to generating and compiling code
# for these queries. With --long, the session uses Spark's default settings.
_SMALL_QUERIES = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="session")
def spark(is_long: bool) -> Iterator[Any]:
    from tests.spark.settings import IS_CONNECT
    from tests.support.spark.session import connect_session, plain_session, stop_sessions

    yield connect_session() if IS_CONNECT else plain_session(**({} if is_long else _SMALL_QUERIES))
    stop_sessions()


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A path at which a test can create a table."""
    return str(tmp_path / "table")


@pytest.fixture
def zone(spark: Any) -> Iterator[Any]:
    """Sets the session time zone until the end of the test."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda name: spark.conf.set("spark.sql.session.timeZone", name)
    spark.conf.set("spark.sql.session.timeZone", before)
