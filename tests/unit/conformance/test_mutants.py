"""The kit detects faulty engines. deltalog itself passes every case (test_cases.py), so a failure here is due to the
defect."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

from deltalog.conformance import Engine, all_cases, run
from tests.support.conformance import feature_mutants
from tests.support.conformance.mutants import MUTANTS

# An error in a mutant's own code does not count as a detected defect.
OWN_DEFECT = re.compile(r"\b(Key|Type|Attribute|Index|Name|Value|JSONDecode|FileNotFound)Error: |StopIteration")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_kit_catches(mutant: type[Engine], tmp_path: Path) -> None:
    patterns = MUTANTS[mutant].split()
    chosen = [case for case in all_cases() if any(fnmatch.fnmatchcase(case.id, pattern) for pattern in patterns)]
    assert chosen
    failed = [outcome for outcome in run(mutant(), chosen, tmp_path) if outcome.outcome == "failed"]
    real = [outcome for outcome in failed if not OWN_DEFECT.search(outcome.reason or "")]
    assert real, f"{mutant.__name__} passes {[case.id for case in chosen]}; failed otherwise: {failed}"


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 80
    assert sum(mutant.__module__ == feature_mutants.__name__ for mutant in MUTANTS) >= 30
