"""The doctor has no error for any table that an engine writes in the conformance kit.

``python -m tests.interop.doctor_engines`` shows the findings.
"""

from __future__ import annotations

import pytest

from deltalog import CallError
from deltalog.conformance import ENGINES, Engine, all_cases, start_engine
from deltalog.conformance.environments import RECIPES, launch_of
from tests.support.doctor.engine_tables import examine_written
from tests.support.spark import DeltaSpark

_STEP = 7


def assert_healthy(engine: Engine, step: int) -> None:
    written = list(examine_written(engine, all_cases()[::step]))
    assert written
    assert [str(each) for each in written if each.errors] == []


def test_tables_of_deltalog(is_long: bool) -> None:
    with start_engine("deltalog") as engine:
        assert_healthy(engine, 1 if is_long else _STEP)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in ENGINES if name not in ("deltalog", "spark_ext", "delta-spark")])
def test_tables_of_other_engines(name: str) -> None:
    try:
        launch_of(name)
    except CallError as error:
        assert RECIPES[name].can_be_installed
        pytest.skip(error.message)
    with start_engine(name) as engine:
        assert_healthy(engine, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", ["DeltaSparkEngine", "SparkExtEngine"])
def test_tables_of_engines_on_spark(delta: DeltaSpark, name: str) -> None:
    from spark_ext import conformance

    assert_healthy(getattr(conformance, name)(delta.spark), 1)
