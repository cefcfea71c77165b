"""The engines still give the answers on which the explanations in the conformance matrix are based."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop import confirmations
from tests.interop.confirmations import EXPLANATIONS, DeltaSpark, confirm
from tests.support.spark import DeltaSpark as Session


def kept(engine: str) -> dict[str, str]:
    entries = json.loads(EXPLANATIONS.read_text(encoding="utf-8"))[engine]
    return {entry["cases"].split()[0]: entry["confirmed"] for entry in entries}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("engine", ["deltalake", "polars"])
def test_the_engine_answers_as_it_did(engine: str, tmp_path: Path) -> None:
    assert confirm(confirmations.engine_of(engine), tmp_path) == kept(engine)


@pytest.mark.long
def test_delta_spark_answers_as_it_did(delta: Session, tmp_path: Path) -> None:
    assert confirm(DeltaSpark(delta.spark), tmp_path) == kept("delta-spark")
