"""An adapter for a toy reader, written from the documentation alone, passes exactly the cases that it should pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltalog.conformance import Outcome, all_cases, run
from tests.support.conformance import toy

PASSED = [
    "ict-time-travel-", "ict-spacing-", "read-type-", "read-path-", "read-removed", "read-added-", "travel-version-0",
    "read-gap", "checkpoint-compaction-", "feature-unknown-reader",
]  # fmt: skip
FAILED = [
    ("checkpoint-alone-at-4", "do not begin with version 0"),
    ("checkpoint-v2-json", "do not begin with version 0"),
    ("read-partition-string", "partitioned"),
    ("read-column-added", "v"),
    ("read-no-protocol", "did not refuse"),
    ("ict-late-exact-enablement", "no in-commit timestamp"),
    ("ict-active-no-property", "outside of the history"),
    ("travel-time-exact", "no in-commit timestamp"),
    ("travel-version-next", "KeyError"),
]
SKIPPED = ["write-", "conflict-", "ict-write-", "ict-enable-", "feature-vector-i"]


@pytest.fixture(scope="module")
def outcomes(is_long: bool) -> dict[str, Outcome]:
    """The outcomes of all cases with ``--long``, otherwise of the cases that the tests below look at."""
    prefixes = (*PASSED, *SKIPPED, *(id for id, _ in FAILED))
    chosen = [case for case in all_cases() if is_long or case.id.startswith(prefixes)]
    return {outcome.id: outcome for outcome in run(toy.ToyEngine(), chosen)}


def test_the_adapter_is_short() -> None:
    assert len(Path(toy.__file__).read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.parametrize("prefix", PASSED)
def test_it_passes_what_it_does_right(outcomes: dict[str, Outcome], prefix: str) -> None:
    found = [outcome for id, outcome in outcomes.items() if id.startswith(prefix) and outcome.outcome != "skipped"]
    assert found and [outcome for outcome in found if outcome.outcome != "passed"] == []


@pytest.mark.parametrize(("id", "reason"), FAILED)
def test_it_fails_what_it_does_wrong(outcomes: dict[str, Outcome], id: str, reason: str) -> None:
    assert outcomes[id].outcome == "failed" and reason in (outcomes[id].reason or "")


@pytest.mark.parametrize("prefix", SKIPPED)
def test_what_it_cannot_do_is_skipped(outcomes: dict[str, Outcome], prefix: str) -> None:
    found = {outcome.outcome for id, outcome in outcomes.items() if id.startswith(prefix)}
    assert found == {"skipped"}
