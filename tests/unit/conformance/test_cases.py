"""The cases of the conformance kit as data, and deltalog's result for each."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from deltalog.conformance import AREAS, Case, all_cases, load_engine, run_case
from deltalog.conformance.case import (
    CATALOG_MANAGED,
    COLUMN_RULES,
    DOMAINS,
    ROW_TRACKING,
    TYPE_WIDENING,
    VARIANTS,
    Log,
    MayRefuse,
    Refused,
    Step,
)
from deltalog.conformance.checks import CHECKS
from deltalog.doctor.rules import RULES
from tests.support.protocol_sections import ANCHORS

ROOT = Path(__file__).resolve().parents[3]
CASES = all_cases()


def steps_of(case: Case) -> list[Step]:
    return [step.step if isinstance(step, (Refused, MayRefuse)) else step for step in case.steps]


OF_FEATURES = (COLUMN_RULES, DOMAINS, ROW_TRACKING, TYPE_WIDENING, VARIANTS)
# tests/unit/unity/test_unity_conformance.py runs the cases of catalog-managed tables, with a server.
OTHERS = [case for case in CASES if case.area not in (*OF_FEATURES, CATALOG_MANAGED)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.id)
def test_deltalog_passes(case: Case, tmp_path: Path) -> None:
    outcome = run_case(load_engine("deltalog"), case, tmp_path)
    assert (outcome.outcome, outcome.reason) == ("passed", None)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", [case for case in CASES if case.area in OF_FEATURES], ids=lambda case: case.id)
def test_deltalog_passes_the_areas_of_features(case: Case, tmp_path: Path) -> None:
    test_deltalog_passes(case, tmp_path)


def test_ids_are_unique_and_plain() -> None:
    assert [id for id, count in Counter(case.id for case in CASES).items() if count > 1] == []
    assert [case.id for case in CASES if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", case.id)] == []


def test_every_case_has_its_area_section_and_rule() -> None:
    assert {case.area for case in CASES} <= set(AREAS)
    assert {case.section for case in CASES} - ANCHORS == set()
    assert {case.rule for case in CASES if case.rule} - set(RULES) == set()
    assert {case.basis for case in CASES} <= {"protocol", "reference"}


def test_there_are_enough_cases() -> None:
    counts = Counter(case.area for case in CASES)
    assert len(CASES) >= 820 and counts["in-commit-timestamps"] >= 360
    assert set(counts) == set(AREAS) and min(counts.values()) >= 25


def test_no_two_cases_are_the_same() -> None:
    """Each case differs from all others in its table or its steps. Tables that are built from a ``Timeline`` are equal
    if the reprs of their timelines are equal."""
    texts = Counter((repr(case.build), repr(case.steps)) for case in CASES)
    assert [text for text, count in texts.items() if count > 1] == []


def test_every_check_is_used_and_every_used_check_exists() -> None:
    used = {step.check for case in CASES for step in steps_of(case) if isinstance(step, Log)}
    assert used == set(CHECKS)


def test_the_page_lists_the_checks() -> None:
    page = (ROOT / "docs/conformance-format.md").read_text(encoding="utf-8")
    lines = [f"| `{name}` | {' '.join((check.__doc__ or '').split())} |" for name, check in CHECKS.items()]
    assert "\n".join(["| --- | --- |", *lines, ""]).replace("``", "`") in page


def test_abouts_are_sentences_of_their_own() -> None:
    abouts = Counter((case.area, case.about) for case in CASES)
    assert [about for about, count in abouts.items() if count > 1 or about[1].endswith(".")] == []
