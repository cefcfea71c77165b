"""A sample of the runs of ``python -m tests.support.stream_failures``: no failure loses or repeats a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.settings import IS_CONNECT, since

pytestmark = [
    since("4.2", "batch limits for Python data sources"),
    pytest.mark.skipif(IS_CONNECT, reason="the test starts drivers with classic sessions"),
]


# The stream is made to fail at each step, once with an error and once by killing the process. A usual run of the tests
# includes one of these stream runs.
RUNS, USUAL = 16, 7


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """All runs share one driver; it is restarted after a run that kills it."""
    from tests.support.stream_failures.runs import driver

    place = tmp_path_factory.mktemp("streams")
    with driver(place) as started:
        yield started, place


@pytest.mark.parametrize("number", [pytest.param(n, marks=[pytest.mark.long] * (n != USUAL)) for n in range(RUNS)])
def test_every_row_is_written_once(number: int, shared: tuple[Any, Any]) -> None:
    from tests.support.stream_failures.runs import carry_out, planned

    carry_out(planned(RUNS, 1)[number], *shared)
