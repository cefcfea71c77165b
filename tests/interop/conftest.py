"""One delta-spark JVM for all tests in this directory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The tests import their support package as `tests.support.spark`, whatever directory pytest is started in.
_ROOT = str(Path(__file__).resolve().parents[2])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.support.spark import DeltaSpark, delta_session, stop_sessions  # noqa: E402
from tests.support.spark.shapes import SHAPES, DeltalogWriter, SparkWriter, Writer, Written, write  # noqa: E402
from tests.support.unity_clients.fixtures import unity_jvm  # noqa: E402, F401 (a fixture)

# Checking a table takes a long time. These two cases cover enablement by each engine, disabling, and checkpoints.
USUAL = {("delta-spark", "ict_disabled_enabled_again"), ("deltalog", "ict_late_checkpointed")}


@pytest.fixture(scope="session")
def delta() -> Iterator[DeltaSpark]:
    # The tests run many small queries once each, and spend most of the time compiling them and starting jobs for ten
    # files.
    conf = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.codegen.cache.maxEntries": "10000",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    }
    yield DeltaSpark(delta_session(**conf))
    stop_sessions()


@pytest.fixture(scope="session")
def writers(delta: DeltaSpark) -> dict[str, Writer]:
    return {"delta-spark": SparkWriter(delta), "deltalog": DeltalogWriter()}


@pytest.fixture(
    scope="session",
    params=[
        pytest.param((writer, name), marks=() if (writer, name) in USUAL else pytest.mark.long, id=f"{writer}-{name}")
        for writer in ("delta-spark", "deltalog")
        for name in SHAPES
    ],
)
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, writers: dict[str, Writer]
) -> Written:
    """A table of each shape, written once by each engine."""
    writer, name = request.param
    path = tmp_path_factory.mktemp(f"{writer}-{name}") / "table"
    return write(path, name, writer, SHAPES[name], writers[writer])
