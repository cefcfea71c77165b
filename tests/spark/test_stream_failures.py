"""A sample of the runs of ``python -m tests.support.stream_failures``: no failure loses or repeats a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.settings import IS_CONNECT, since

pytestmark = [
    since("4.2", "limits of a Python data source"),
    pytest.mark.skipif(IS_CONNECT, reason="its drivers are classic ones"),
]


@pytest.mark.parametrize("number", [7, *(pytest.param(n, marks=pytest.mark.long) for n in range(32) if n != 7)])
def test_every_row_is_written_once(number: int, tmp_path: Path) -> None:
    from tests.support.stream_failures.runs import carry_out, driver, planned

    with driver(tmp_path) as started:
        carry_out(planned(32, 1)[number], started, tmp_path)
