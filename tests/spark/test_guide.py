from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark import guide
from tests.spark.settings import since


def test_the_pipeline_runs(spark: Any, tmp_path: Path) -> None:
    assert guide.run_pipeline(spark, tmp_path) >= 6


def test_the_examples_of_the_reference_run(spark: Any, tmp_path: Path, capsys: Any) -> None:
    assert guide.run(spark, tmp_path) >= 10
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[:2] == ["0", "2"]
    assert printed[1:5] == [
        "True",
        "txnVersion 20260102 of 'nightly' is written already (the table has 20260102)",
        "0 1",
        "0",
    ]
    assert "|  1|   new| new|" in printed and "|  3|  NULL| new|" in printed


@since("4.0", "Python data sources")
def test_the_examples_of_streaming_run(spark: Any, tmp_path: Path) -> None:
    assert guide.run(spark, tmp_path, guide.STREAMING) >= 2


def test_the_examples_of_changing_rows_run(spark: Any, tmp_path: Path) -> None:
    assert guide.run(spark, tmp_path, guide.CHANGING_ROWS) == 2


def test_the_examples_of_maintenance(spark: Any, tmp_path: Path) -> None:
    assert guide.run(spark, tmp_path, guide.MAINTENANCE) == 3


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[since("4.0", "Python data sources")] if page.stem == "streams" else [])
        for page in guide.TASKS
    ],
    ids=lambda page: f"{page.parent.name}-{page.stem}",
)
def test_the_examples_of_a_task_run(spark: Any, tmp_path: Path, page: Path) -> None:
    assert guide.run_task(spark, tmp_path, page) >= 1
