"""docs/contracts/write.md: every clause has a test, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/contracts/write.md").read_text(encoding="utf-8")
# The number of clauses in each section of the contract.
CLAUSES = {"W": 8, "S": 11, "R": 12, "T": 6, "E": 4, "V": 2, "C": 15, "X": 8, "B": 6, "P": 3}
NAMED = re.compile(r"`(\w+)::(test_\w+)`")


def rows(page: str) -> dict[str, list[tuple[str, str]]]:
    """The clauses in the table of the page, each with the (module, test) pairs in its last cell."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in page.splitlines():
        match = re.match(r"\| ([A-Z]\d+) \|.*\|([^|]*)\|$", line)
        if match:
            assert match[1] not in found, f"{match[1]} is listed twice"
            found[match[1]] = NAMED.findall(match[2])
    return found


@cache
def defined_in(module: str) -> frozenset[str]:
    (path,) = (ROOT / "tests").rglob(f"test_{module}.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def complaints(page: str) -> list[str]:
    clauses = rows(page)
    wanted = [f"{letter}{number}" for letter, count in CLAUSES.items() for number in range(1, count + 1)]
    missing = [f"{clause} is not on the page" for clause in wanted if clause not in clauses]
    untested = [f"{clause} has no test" for clause, tests in clauses.items() if not tests]
    absent = [f"there is no {module}::{test}" for module, test in NAMED.findall(page) if test not in defined_in(module)]
    return [*missing, *untested, *absent, *(f"{clause} is too many" for clause in clauses if clause not in wanted)]


def test_every_clause_has_tests_that_exist() -> None:
    assert complaints(PAGE) == []


@pytest.mark.parametrize(
    ("found", "put", "complaint"),
    [
        ("| W8 |", "| W 8 |", "W8 is not on the page"),
        ("`contract_streams::test_no_metadata_is_empty_metadata`", "", "S1 has no test"),
        ("test_times_are_not_guessed", "test_times_are_guessed", "there is no contract_write::test_times_are_guessed"),
        ("| P3 |", "| P4 |", "P4 is too many"),
    ],
)
def test_a_page_that_says_too_little_is_noticed(found: str, put: str, complaint: str) -> None:
    assert complaint in complaints(PAGE.replace(found, put))
