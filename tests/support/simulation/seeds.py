"""Helpers for the tests of seeded schedules: run and judge a range of seeds, and repeat seeds in another process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.support.simulation import ROOT
from tests.support.simulation.simulation import ScheduleResult, Totals, run_schedules

if TYPE_CHECKING:
    import pytest

_FIRST_SEED = int(os.environ.get("DELTALOG_FIRST_SEED", "0"))


def run_and_print(
    capsys: pytest.CaptureFixture[str], name: str, schedules: int, run: Callable[..., ScheduleResult]
) -> Totals:
    """Run schedules with seeds from DELTALOG_FIRST_SEED on, and print their totals. Fails with the report of the first
    schedule that broke an invariant."""
    seeds = range(_FIRST_SEED, _FIRST_SEED + schedules)
    started = time.monotonic()
    totals, bad = run_schedules(seeds, processes=min(2, os.cpu_count() or 1), run=run)
    with capsys.disabled():
        print(f"\n[{name}] {totals.line(time.monotonic() - started, f'{seeds.start}..{seeds.stop - 1}')}")
    assert not totals.violations, f"seeds {[r.seed for r in bad]}, first:\n{bad[0].report()}"
    assert totals.schedules == schedules
    return totals


def assert_seeds_decide(run: Callable[..., ScheduleResult], seeds: Sequence[int], *hash_seeds: int) -> None:
    """Assert that a seed gives the same digest in this process and in others, for each of ``hash_seeds``
    (PYTHONHASHSEED, which changes the iteration order of sets), and that two seeds give different digests."""
    here = [run(seed).digest for seed in seeds]
    assert here == [run(seed).digest for seed in seeds]
    assert len(set(here)) == len(seeds)
    name = run.__name__
    code = f"from {run.__module__} import {name}\nfor seed in {list(seeds)}: print({name}(seed).digest)"
    for hash_seed in hash_seeds:
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        command = [sys.executable, "-c", code]
        there = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
        )
        assert there.stdout.split() == here
