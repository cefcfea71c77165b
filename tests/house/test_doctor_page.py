"""The table of rules in docs/doctor.md equals the registry."""

from __future__ import annotations

from tests.support.doctor.page import PAGE, rendered


def test_the_rules_of_the_page_are_those_of_the_registry() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert rendered(text) == text, "python -m tests.support.doctor.page writes the table"
