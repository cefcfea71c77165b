"""An adapter for a toy reader, written from the documentation alone, passes exactly the cases that it should pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltalog.conformance import Outcome, all_cases, run
from tests.support.conformance import toy


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {outcome.id: outcome for outcome in run(toy.ToyEngine(), all_cases())}


def test_the_adapter_is_short() -> None:
    assert len(Path(toy.__file__).read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.parametrize(
    "prefix",
    ["ict-time-travel-", "ict-spacing-", "read-type-", "read-path-", "read-removed", "read-added-", "travel-version-0",
     "read-gap", "checkpoint-compaction-", "feature-unknown-reader"],
)  # fmt: skip
def test_it_passes_what_it_does_right(outcomes: dict[str, Outcome], prefix: str) -> None:
    found = [outcome for id, outcome in outcomes.items() if id.startswith(prefix) and outcome.outcome != "skipped"]
    assert found and [outcome for outcome in found if outcome.outcome != "passed"] == []


@pytest.mark.parametrize(
    ("id", "reason"),
    [
        ("checkpoint-alone-at-4", "do not begin with version 0"),
        ("checkpoint-v2-json", "do not begin with version 0"),
        ("read-partition-string", "partitioned"),
        ("read-column-added", "v"),
        ("read-no-protocol", "did not refuse"),
        ("ict-late-exact-enablement", "no in-commit timestamp"),
        ("ict-active-no-property", "outside of the history"),
        ("travel-time-exact", "no in-commit timestamp"),
        ("travel-version-next", "KeyError"),
    ],
)
def test_it_fails_what_it_does_wrong(outcomes: dict[str, Outcome], id: str, reason: str) -> None:
    assert outcomes[id].outcome == "failed" and reason in (outcomes[id].reason or "")


@pytest.mark.parametrize("prefix", ["write-", "conflict-", "ict-write-", "ict-enable-", "feature-vector-i"])
def test_what_it_cannot_do_is_skipped(outcomes: dict[str, Outcome], prefix: str) -> None:
    found = {outcome.outcome for id, outcome in outcomes.items() if id.startswith(prefix)}
    assert found == {"skipped"}
