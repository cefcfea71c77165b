"""Session settings for the time of a write."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession


def spark_version(spark: SparkSession) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", spark.version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


_lock = threading.Lock()
_held: dict[int, tuple[SparkSession, int, Mapping[str, str | None]]] = {}


@contextlib.contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings on the session for the time of a write; those that it has already are not touched.

    Writes of several threads share one change; the last one to end restores what the first one found.
    """
    with _lock:
        _, writes, before = _held.get(id(spark), (spark, 0, {}))
        if not writes:
            other = {key: value for key, value in settings.items() if spark.conf.get(key).upper() != value.upper()}
            before = {key: spark.conf.get(key, None) for key in other}
            for key, value in other.items():
                spark.conf.set(key, value)
        _held[id(spark)] = (spark, writes + 1, before)
    try:
        yield
    finally:
        with _lock:
            _, writes, before = _held.pop(id(spark))
            if writes > 1:
                _held[id(spark)] = (spark, writes - 1, before)
            else:
                for key, earlier in before.items():
                    if earlier is None:
                        spark.conf.unset(key)
                    else:
                        spark.conf.set(key, earlier)
