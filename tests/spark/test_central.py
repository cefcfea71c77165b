from __future__ import annotations

from tests.spark.central import Central


class TestCentral(Central):
    """On classic Spark."""
