"""Runs the scenarios with delta-spark and with spark_ext; docs/spark-parity.md shows the differences between their
results."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.interop.parity.errors import UNKNOWN
from tests.interop.parity.page import PAGE, WRITE, committed_rows, render, row
from tests.interop.parity.scenarios import examine, load
from tests.interop.parity.tables import Place
from tests.support.spark import DeltaSpark

SCENARIOS = load()
WRITES_PAGE = os.environ.get(WRITE) == "1"
_found: dict[str, str] = {}


@pytest.fixture(scope="module")
def place(delta: DeltaSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    yield Place(delta, tmp_path_factory.mktemp("parity"))


@pytest.mark.sampled(28)
@pytest.mark.parametrize("name", SCENARIOS)
def test_both_engines_answer_as_the_page_says(place: Place, name: str) -> None:
    scenario = SCENARIOS[name]
    finding = examine(scenario, place)
    assert UNKNOWN not in str(finding), "errors.MEANINGS has all errors"
    if scenario.differs is None:
        assert finding.differences == (), "a difference has an explanation"
    else:
        assert finding.differences, "the engines no longer differ"
    _found[name] = row(scenario, finding)
    if not WRITES_PAGE:
        assert _found[name] == committed_rows().get(name), "python -m tests.interop.parity.page writes the page"


def test_the_page_has_these_scenarios_and_no_others() -> None:
    """The test of each scenario compares the scenario's line on the page; this test compares the rest of the page."""
    rows = {**committed_rows(), **_found}
    if WRITES_PAGE:
        PAGE.write_text(render(rows, SCENARIOS.values()), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == render(rows, SCENARIOS.values())
