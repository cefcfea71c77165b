"""The command: ``python -m tests.support.stream_failures --runs 50 --seed 1``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.support.stream_failures.runs import carry_out, driver, planned


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.stream_failures", description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    start, wrong = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="deltalog-streams-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        with driver(directory) as started:
            for run in planned(given.runs, given.seed):
                try:
                    outcome = carry_out(run, started, directory)
                except AssertionError as error:
                    outcome, wrong = f"WRONG: {error}", wrong + 1
                kind = "kill" if run.is_kill else "error"
                print(f"{run.number:>3} {run.step:<15} {kind:<6} after {run.turn} batches: {outcome}", flush=True)
    print(f"{given.runs} runs, {wrong} wrong, seed {given.seed}, {time.monotonic() - start:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
