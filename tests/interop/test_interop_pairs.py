"""Pairs of writers do what tests/interop/conformance/pairs.json says, and the document is complete."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog.conformance import Engine, load_engine
from deltalog.conformance.pair_model import OUTCOMES, VARIANTS
from deltalog.conformance.pairs import EngineSet, run_pair, run_pairs
from tests.interop.conformance_matrix import ADAPTERS
from tests.interop.conformance_pairs import stored

BY_NAME = {variant.name: variant for variant in VARIANTS}
COMPLETE = ("deltalog", "kernel-java", "deltalake", "polars", "sail")
SHORT = ("plain", "in-commit-timestamps-late")


def results() -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """What is stored, by pair and variant."""
    return {
        (pair["first"], pair["second"]): {each["variant"]: each for each in pair["results"]}
        for pair in stored()["pairs"]
    }


def test_all_pairs_of_five_writers_have_a_result_for_every_variant() -> None:
    found = results()
    pairs = {(first, second) for first in COMPLETE for second in COMPLETE if first != second}
    assert pairs <= set(found) and {name for pair in found for name in pair} <= set(stored()["engines"])
    assert all([*found[pair]] == [*BY_NAME] for pair in pairs)
    assert stored()["variants"] == [*BY_NAME]


def test_every_failure_and_every_refusal_has_a_reason() -> None:
    for variants in results().values():
        for each in variants.values():
            assert each["outcome"] in OUTCOMES and (each["reason"] is None) == (each["outcome"] == "passed")
            assert each["judge"] or each["outcome"] != "passed"


def test_nothing_fails_with_deltalog_but_what_is_known() -> None:
    """The checksum of the kernel, which it writes after its commit, fails for tables with deletion vectors."""
    failed = {
        (*pair, name): each["reason"]
        for pair, variants in results().items()
        for name, each in variants.items()
        if "deltalog" in pair and each["outcome"] == "failed"
    }
    assert {key: reason for key, reason in failed.items() if "kernel-java" not in key} == {}
    assert all("Write checksum file" in reason for reason in failed.values())


@pytest.mark.parametrize("pair", [("deltalog", "deltalake"), ("deltalake", "deltalog")], ids="-".join)
def test_deltalog_and_deltalake_do_what_the_page_says(pair: tuple[str, str], is_long: bool) -> None:
    first, second, judge = (load_engine(name) for name in (*pair, "polars"))
    for variant in [*BY_NAME] if is_long else SHORT:
        agrees(pair, run_one(first, second, judge, variant))


def run_one(first: Engine, second: Engine, judge: Engine, variant: str) -> dict[str, Any]:
    return run_pair(first, second, [judge], BY_NAME[variant]).to_json()


def agrees(pair: tuple[str, str], found: dict[str, Any]) -> None:
    kept = results()[pair][found["variant"]]
    assert {key: found[key] for key in ("outcome", "commits")} == {key: kept[key] for key in ("outcome", "commits")}, (
        found
    )


@pytest.mark.long
def test_all_pairs_that_can_run_here_do_what_the_page_says() -> None:
    with EngineSet(120.0, None, ADAPTERS) as engines:
        names = [name for name in engines.writers() if (name, "deltalog") in results() or name == "deltalog"]
        pairs = [("deltalog", name) for name in names if name != "deltalog"]
        for pair, found in run_pairs(engines.engine_of, pairs, engines.available()):
            agrees(pair, found.to_json())
