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


OF_FEATURES = [mutant for mutant in MUTANTS if mutant.__module__ == feature_mutants.__name__]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each not in OF_FEATURES], ids=lambda each: each.__name__
)
def test_the_kit_catches(mutant: type[Engine], tmp_path: Path) -> None:
    patterns = MUTANTS[mutant].split()
    chosen = [case for case in all_cases() if any(fnmatch.fnmatchcase(case.id, pattern) for pattern in patterns)]
    assert chosen
    failed = [outcome for outcome in run(mutant(), chosen, tmp_path) if outcome.outcome == "failed"]
    real = [outcome for outcome in failed if not OWN_DEFECT.search(outcome.reason or "")]
    assert real, f"{mutant.__name__} passes {[case.id for case in chosen]}; failed otherwise: {failed}"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mutant", OF_FEATURES, ids=lambda mutant: mutant.__name__)
def test_the_kit_catches_engines_that_lack_rules_of_features(mutant: type[Engine], tmp_path: Path) -> None:
    test_the_kit_catches(mutant, tmp_path)


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 80
    assert len(OF_FEATURES) >= 30
