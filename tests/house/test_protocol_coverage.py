"""docs/protocol-coverage.md and docs/conformance-cases.md are current, and no section of PROTOCOL.md is left out."""

from __future__ import annotations

from deltalog.conformance import all_cases
from deltalog.doctor.rules import RULES
from tests.support.protocol_coverage import CASES_PAGE, COMMAND, PAGE, Coverage, cases_page, coverage, page, unit_tests
from tests.support.protocol_notes import NOTES
from tests.support.protocol_sections import ANCHORS, Section, named_in, sections

COVERAGE = coverage()


def test_the_pages_are_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"{COMMAND} writes it"
    assert CASES_PAGE.read_text(encoding="utf-8") == cases_page(), f"{COMMAND} writes it"


def test_every_section_rule_and_case_is_on_the_page() -> None:
    assert len(COVERAGE) == len(ANCHORS) == 153
    assert {rule.id for each in COVERAGE for rule in each.rules} == set(RULES)
    assert {case.id for each in COVERAGE for case in each.cases} == {case.id for case in all_cases()}


def test_a_note_says_why_something_is_missing() -> None:
    missing = [each.section.anchor for each in COVERAGE if each.needs_note and each.section.anchor not in NOTES]
    assert missing == [], "without a module, or without rule and case: add a note in tests/support/protocol_notes.py"


def test_no_note_is_left_where_nothing_is_missing() -> None:
    complete = [each.section.anchor for each in COVERAGE if not each.needs_note]
    assert [anchor for anchor in NOTES if anchor in complete or anchor not in ANCHORS] == []


def test_the_search_finds_modules_and_tests() -> None:
    source = 'Spec: PROTOCOL.md#actions, #checkpoints-1 (all),\n#v2-spec. Not #this.\n"""Spec: PROTOCOL.md#actions."""'
    assert named_in(source) == ["actions", "checkpoints-1", "v2-spec"]
    assert unit_tests("deltalog/protocol/row_tracking.py") == ["tests/unit/protocol/test_row_tracking.py"]
    assert len([each for each in COVERAGE if each.tests]) >= 80


def test_anchors_of_equal_headings_differ() -> None:
    assert [section.anchor for section in sections() if section.title == "Data Files"] == ["data-files", "data-files-1"]
    assert next(section for section in sections() if section.anchor == "v2-spec") == Section(
        "v2-spec", "V2 Spec", 4, "additional-requirements-for-writers"
    )


def test_what_has_a_module_and_a_rule_needs_no_note() -> None:
    section = sections()[0]
    rule = next(iter(RULES.values()))
    assert not Coverage(section, ("a.py",), (rule,), (), ()).needs_note
    assert Coverage(section, (), (rule,), all_cases()[:1], ()).needs_note
    assert Coverage(section, ("a.py",), (), (), ()).needs_note
