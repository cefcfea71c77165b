"""docs/conformance-matrix.md is up to date: it matches the stored results, every failure has an explanation, and a
sample of the cases has the stored outcome when run again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deltalog import CallError
from deltalog.conformance import SUITE_VERSION, Engine, Outcome, all_cases, report, self_check, start_engine
from deltalog.conformance.environments import RECIPES, launch_of
from deltalog.conformance.installation import install
from tests.interop import conformance_matrix as matrix
from tests.support.protocol_sections import ANCHORS
from tests.support.spark import DeltaSpark

EXPLANATIONS: dict[str, Any] = json.loads(matrix.EXPLANATIONS.read_text(encoding="utf-8"))
_STEP = 9


def test_the_page_is_that_of_the_results() -> None:
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.current_page()


def test_a_failure_without_an_explanation_is_shown_as_such() -> None:
    found = matrix.stored("deltalog")
    found["cases"][0] |= {"outcome": "failed", "reason": "step 1, rows: something"}
    page = matrix.page([found], EXPLANATIONS, None)
    assert "- Not explained yet.\n" in page and "`step 1, rows: something`" in page and "Pairs" not in page


def test_the_page_can_be_read_on_a_phone() -> None:
    """No table is wider than a narrow screen if its words wrap."""
    tables = re.findall(r"(?:^\|.*\|\n)+", matrix.PAGE.read_text(encoding="utf-8"), re.M)
    assert len(tables) >= 3
    for table in tables:
        lines = [re.sub(r"\]\([^)]*\)", "]", line)[2:-2].split(" | ") for line in table.splitlines()]
        widths = [
            max(len(word) for cell in column for word in re.split("[ -]", cell)) for column in zip(*lines, strict=True)
        ]
        assert sum(widths) + 3 * len(widths) <= 46, table


def test_deltalog_passes_every_case() -> None:
    assert matrix.stored("deltalog")["summary"] == {"passed": len(all_cases()), "failed": 0, "skipped": 0}


@pytest.mark.parametrize("name", matrix.available())
def test_every_explanation_is_of_a_failure(name: str) -> None:
    failed = [case["id"] for case in matrix.stored(name)["cases"] if case["outcome"] == "failed"]
    entries = [matrix.explanation(name, id, EXPLANATIONS) for id in failed]
    used = {None if entry is None else entry["why"] for entry in entries}
    assert {entry["why"] for entry in EXPLANATIONS.get(name, ())} == used - {None} and None not in used
    assert all(entry["confirmed"] for entry in EXPLANATIONS.get(name, ()))


def test_results_of_some_cases_replace_those_of_the_same_cases() -> None:
    before = matrix.stored("polars")
    first, second = before["cases"][0], before["cases"][1]
    again = {**before, "cases": [{**second, "outcome": "failed", "reason": "other"}]}
    found = matrix.merged({**before, "cases": [first, second]}, again)
    assert found["cases"] == [first, again["cases"][0]] and found["summary"]["failed"] == 1
    with pytest.raises(ValueError, match="run all cases"):
        matrix.merged(before, {**again, "version": "0"})


def test_documents_of_the_command_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "RESULTS", tmp_path)
    found = report.document(
        "polars", "0", SUITE_VERSION,
        [Outcome(case.id, case.area, "failed", f"no {tmp_path}/table/x") for case in all_cases()[:2]],
        environment={"polars": "0"}, seconds=1.23,
    )  # fmt: skip
    (tmp_path / "document").write_text(json.dumps(found))
    assert matrix.keep_document(tmp_path / "document") == "polars"
    kept = matrix.stored("polars")
    assert kept["environment"] == {"polars": "0"} and kept["seconds"] == 1.2
    assert [case["reason"] for case in kept["cases"]] == ["no TABLE/x"] * 2
    (tmp_path / "document").write_text(json.dumps({**found, "suite": "0.1"}))
    with pytest.raises(ValueError, match="with suite 0"):
        matrix.keep_document(tmp_path / "document")


def test_only_cases_without_a_result_are_new() -> None:
    kept = {case["id"] for case in matrix.stored("polars")["cases"]}
    assert {case.id for case in matrix.chosen("polars", None, True)} == {case.id for case in all_cases()} - kept
    assert {case.area for case in matrix.chosen("polars", "ict-* none", False)} == {"in-commit-timestamps"}


def test_links_of_the_page_lead_to_cases_rules_and_sections() -> None:
    docs = matrix.PAGE.parent
    page = matrix.PAGE.read_text(encoding="utf-8")
    anchors = set(re.findall(r'<a id="([^"]+)">', (docs / "conformance-cases.md").read_text(encoding="utf-8")))
    linked = re.findall(r"\(conformance-cases\.md#([^)]+)\)", page)
    assert linked and set(linked) <= anchors
    rules = set(re.findall(r"^### \[([^\]]+)\]", (docs / "doctor.md").read_text(encoding="utf-8"), re.M))
    linked = re.findall(r"\(doctor\.md#([^)]+)\)", page)
    assert linked and set(linked) <= rules
    assert set(re.findall(r"PROTOCOL\.md#([^)]+)\)", page)) <= ANCHORS


def agrees(name: str, engine: Engine, step: int) -> None:
    kept = {case["id"]: case["outcome"] for case in matrix.stored(name)["cases"]}
    chosen = [case for number, case in enumerate(all_cases()) if case.id in kept and number % step == 0]
    found = {case["id"]: case["outcome"] for case in matrix.results(engine, chosen)["cases"]}
    assert found == {case.id: kept[case.id] for case in chosen}


@pytest.mark.parametrize("name", ["deltalake", "polars"])
def test_engines_in_python_do_what_the_page_says(name: str, is_long: bool) -> None:
    with start_engine(name) as engine:
        agrees(name, engine, 1 if is_long else _STEP)


@pytest.mark.parametrize("name", [name for name in matrix.available() if RECIPES[name].here is None])
def test_engines_in_their_own_environments_do_what_the_page_says(name: str, is_long: bool) -> None:
    """A usual run installs none. ``--long`` does, and runs all cases."""
    if is_long:
        install(name)
    try:
        launch_of(name)
    except CallError as error:
        pytest.skip(error.message)
    with start_engine(name) as engine:
        self_check(engine)
        agrees(name, engine, 1 if is_long else 20 * _STEP)


def test_delta_spark_does_what_the_page_says(delta: DeltaSpark, is_long: bool) -> None:
    from spark_ext.conformance import DeltaSparkEngine

    agrees("delta-spark", DeltaSparkEngine(delta.spark), 1 if is_long else 5 * _STEP)
