"""Session settings must not change the contents of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.odd_sessions import OddSession


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(40))
def test_rows_are_the_same_in_any_session(spark: Any, tmp_path: Path, seed: int) -> None:
    session = OddSession(spark, str(tmp_path / "table"), seed)
    for _ in range(4):
        session.step()
