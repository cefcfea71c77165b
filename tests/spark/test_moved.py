"""Programs for delta-spark run on spark_ext after one import is changed; for some, calls are also changed as
docs/spark.md describes.

tests/interop/test_interop_moved.py runs the same programs with delta-spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.settings import since
from tests.support.spark.moved import CALLS, IMPORT, ONE_IMPORT, moved, run

_USUAL = ("merge: every clause", "time travel")
_STREAMS = [each for each in CALLS if each.startswith("streams")]


def _cases(programs: dict[str, Any]) -> list[Any]:
    marks = {name: [] if name in _USUAL else [pytest.mark.long] for name in programs}
    for name in _STREAMS:
        if name in programs:
            marks[name].append(since("4.2", "batch limits for Python data sources"))
    return [pytest.param(name, marks=found, id=name) for name, found in marks.items()]


@pytest.mark.parametrize("name", _cases(ONE_IMPORT))
def test_programs_with_one_import_changed(spark: Any, tmp_path: Path, name: str) -> None:
    program, answers = ONE_IMPORT[name]
    assert moved(program) == program.replace(*IMPORT) != program
    assert run(moved(program), spark, tmp_path) == answers


@pytest.mark.parametrize("name", _cases(CALLS))
def test_programs_with_calls_changed(spark: Any, tmp_path: Path, name: str) -> None:
    program, answers = CALLS[name]
    assert run(moved(program), spark, tmp_path) == answers


def test_the_changes_are_those_that_the_page_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    for part in (
        *IMPORT,
        'format("deltalog")',
        "spark_ext.read(spark)",
        "spark_ext.write(df)",
        "spark_ext.register(spark)",
    ):
        assert part in page
