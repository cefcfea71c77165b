"""The engines still give the answers on which the explanations in the conformance matrix are based."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop import confirmations
from tests.interop.confirmations import CLASSES, EXPLANATIONS, DeltaSpark, answers, confirm, python_of
from tests.support.spark import DeltaSpark as Session


def kept(engine: str) -> dict[str, str]:
    entries = json.loads(EXPLANATIONS.read_text(encoding="utf-8")).get(engine, ())
    return {entry["cases"].split()[0]: entry["confirmed"] for entry in entries}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("engine", ["deltalake", "polars"])
def test_the_engine_answers_as_it_did(engine: str, tmp_path: Path) -> None:
    assert confirm(confirmations.engine_of(engine), tmp_path) == kept(engine)


@pytest.mark.long
@pytest.mark.parametrize("engine", [name for name in CLASSES if name not in ("deltalake", "polars", "delta-spark")])
def test_an_engine_answers_as_it_did_in_its_own_environment(engine: str) -> None:
    if python_of(engine) is None:
        pytest.skip(f"{engine} is not installed: deltalog conformance install {engine}")
    assert answers(engine) == kept(engine)


@pytest.mark.long
def test_delta_spark_answers_as_it_did(delta: Session, tmp_path: Path) -> None:
    assert confirm(DeltaSpark(delta.spark), tmp_path) == kept("delta-spark")
