"""The programs that tests/spark/test_moved.py migrates to spark_ext give the same answers when they run unchanged with
delta-spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark import DeltaSpark
from tests.support.spark.moved import PROGRAMS, run


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_as_they_are(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    program, answers = PROGRAMS[name]
    assert run(program, delta.spark, tmp_path) == answers
