"""A sample of the runs in which tasks and drivers fail; ``python -m tests.support.spark_failures`` performs fifty such
runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.spark_failures.places import LocalDisk
from tests.support.spark_failures.runs import Run, running, table_of

SAMPLE = ("kill of both", "task retry")


@pytest.mark.classic("the test starts classic sessions itself")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the runs look at processes in /proc")
def test_no_failure_loses_or_doubles_rows(tmp_path: Path) -> None:
    place = LocalDisk(tmp_path / "tables")
    runs = [Run(number, kind, place, seed=number) for number, kind in enumerate(SAMPLE)]
    with running(tmp_path / "drivers", tmp_path / "tables") as carrier:
        for run in runs:
            carrier.carry_out(run)
    assert [run.wrong for run in runs] == [None] * len(runs), table_of(runs)
