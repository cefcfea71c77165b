"""Spark Connect without additional jars, with server and client in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# The tests import their support code as `tests.…`, whatever directory pytest is started in.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
pytest.register_assert_rewrite("tests.spark.central", "tests.spark.tables")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from tests.support.spark.session import connect_session, stop_sessions

    yield connect_session()
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
