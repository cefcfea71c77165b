"""The pages state the counts of the fault tests, and the parts of a usual run, as the tests and dev.py have them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulation.test_mutants import MUTANTS
from tests.support.s3.faults import FAULTS, REQUESTS
from tests.support.simulation import transaction_mutants

ROOT = Path(__file__).resolve().parents[2]


def numbers(path: str, name: str) -> list[int]:
    """The numbers in the assignment to ``name``, from the source: those of a run with environment variables differ."""
    source = (ROOT / path).read_text(encoding="utf-8")
    found = re.findall(rf"^{name} = (.*)$", source, re.M)
    assert len(found) == 1, f"{path} assigns {name} {len(found)} times"
    return [int(number) for number in re.findall(r"\b\d[\d_]*\b", found[0])]


COMMITS, LONG_COMMITS = numbers("tests/simulation/test_schedules.py", "USUAL, LONG")
ROWS, LONG_ROWS = numbers("tests/simulation/test_row_schedules.py", "USUAL, LONG")
VACUUMS, LONG_VACUUMS = numbers("tests/simulation/test_vacuum_schedules.py", "USUAL, LONG")
(TRANSACTIONS,) = numbers("tests/unit/transactions/test_transaction_schedules.py", "SCHEDULES")
(KILLS,) = numbers("tests/simulation/test_kill.py", "KILLS")
S3_KILLS = max(numbers("tests/simulation/test_kill.py", "S3_KILLS")[0], KILLS // 10)
(EXAMPLES,) = numbers("tests/properties/test_model.py", "EXAMPLES")
(STEPS,) = numbers("tests/properties/test_model.py", "LENGTH")
ON_DISK, ON_S3, BY_DYNAMODB, _ = numbers("tests/simulation/test_writers.py", "PLACES")
PARTS = {2: "a half", 3: "a third", 4: "a quarter", 6: "a sixth", 8: "an eighth"}
SPARK, INTEROP, CONNECT, S3, STORAGE = (PARTS[of] for of in numbers("dev.py", "TURNS"))
assert CONNECT == S3 == STORAGE
TRANSACTION_MUTANTS = len(transaction_mutants.MUTANTS)

STATED = {
    "CONTRIBUTING.md": [
        f"Of `tests/spark` it runs {SPARK}, of `tests/interop` {INTEROP}, of `tests/spark_connect`",
        f"`tests/spark_connect`, `tests/spark_s3` and `tests/unit/storage` {CONNECT}",
    ],
    "README.md": [
        f"{COMMITS:,} seeded schedules of three writers",
        f"(`--long`: {LONG_COMMITS:,} schedules), {ROWS} of changes of rows, {VACUUMS} of vacuums",
        f"{KILLS + S3_KILLS} killed processes and {len(FAULTS) * len(REQUESTS)} faults in front of a real S3 server",
        f"{len(MUTANTS)} of {len(MUTANTS)} seeded mutants",
        f"Over several tables: {TRANSACTIONS} schedules",
        f"{TRANSACTION_MUTANTS} of {TRANSACTION_MUTANTS} mutants",
    ],
    "docs/commit-protocol.md": [
        f"| {COMMITS:,} seeds; {LONG_COMMITS:,} with `--long` |",
        f"| {ROWS} seeds; {LONG_ROWS} with `--long` |",
        f"| {VACUUMS} seeds; {LONG_VACUUMS} with `--long` |",
        f"| {EXAMPLES} × {STEPS} steps |",
        f"| {KILLS} kills on local disk, {S3_KILLS} on S3 |",
        f"| {len(FAULTS)} faults × {len(REQUESTS)} kinds of request |",
        f"| {ON_DISK} commits each on local disk, {ON_S3} on S3, {BY_DYNAMODB} through DynamoDB",
        f"| {len(MUTANTS)} defects |",
        f"| {TRANSACTIONS} seeds; {TRANSACTION_MUTANTS} defects |",
    ],
}


@pytest.mark.parametrize("page", STATED)
def test_counts_on_a_page_are_those_of_the_sources(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert [phrase for phrase in STATED[page] if phrase not in text] == []
