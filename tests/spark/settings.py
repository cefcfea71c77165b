"""The kind of session in which the suite runs, and a function that changes session settings for the duration of a
block."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import pytest

# If DELTALOG_TEST_SPARK is `connect`, the suite runs over Spark Connect, without the tests that are marked `classic`.
IS_CONNECT = os.environ.get("DELTALOG_TEST_SPARK") == "connect"


def skipped_over_connect(items: list[pytest.Item]) -> None:
    """Over Spark Connect, skip the tests marked `classic`."""
    for item in items:
        classic = item.get_closest_marker("classic")
        if classic is not None and IS_CONNECT:
            item.add_marker(pytest.mark.skip(reason=classic.args[0]))


def since(first: str, what: str) -> pytest.MarkDecorator:
    """Skip a test if PySpark is older than ``first`` (such as 4.0), the first version that supports ``what``."""
    found, needed = ([int(part) for part in re.findall(r"\d+", text)[:2]] for text in (version("pyspark"), first))
    return pytest.mark.skipif(found < needed, reason=f"{what}: PySpark {first} and newer")


@contextlib.contextmanager
def session_of(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            _ = spark.conf.unset(key) if value is None else spark.conf.set(key, value)
