"""The table of members in docs/from-deltalake.md matches the members of the modules."""

from __future__ import annotations

from tests.support.deltalake_page import PAGE, rendered


def test_the_members_of_the_page_are_those_of_the_modules() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert rendered(text) == text, "python -m tests.support.deltalake_page writes the table"
