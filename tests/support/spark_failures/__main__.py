"""The command: ``python -m tests.support.spark_failures --runs 50 --seed 1``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.spark_failures.places import LocalDisk, Place, on_s3
from tests.support.spark_failures.processes import separation
from tests.support.spark_failures.runs import KINDS, planned, running, table_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.spark_failures", description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=KINDS, help="runs of this kind only")
    parser.add_argument("--place", choices=("local", "s3", "both"), default="both", help="where the tables are")
    given = parser.parse_args()
    start = time.monotonic()
    with (
        # Executors may still be writing to this directory for a moment after a run.
        tempfile.TemporaryDirectory(prefix="deltalog-failures-", ignore_cleanup_errors=True) as directory,
        ExitStack() as stack,
    ):
        scratch, tables = Path(directory, "drivers"), Path(directory, "tables")
        places: list[Place] = [] if given.place == "s3" else [LocalDisk(tables)]
        if given.place != "local":
            places.append(stack.enter_context(on_s3(Path(directory, "server.log"), given.seed)))
        runs = [run for run in planned(given.runs, given.seed, places) if given.only in (None, run.kind)]
        if separation() is None:
            runs = [run for run in runs if KINDS[run.kind][0] != "other disk"]
            print("This system does not permit private mounts, so there are no runs on executors with another disk.")
        with running(scratch, tables) as carrier:
            for run in runs:
                carrier.carry_out(run)
                print(
                    f"{run.number:>3} {run.kind:<20} {run.place.name:<10} seed {run.seed}: "
                    f"{len(run.verdict.landed)} writes landed, {len(run.verdict.leftovers)} leftovers, "
                    f"errors: {', '.join(run.errors) or 'none'}, {run.seconds:.0f} s"
                    f"{'' if run.wrong is None else '  WRONG: ' + run.wrong}",
                    flush=True,
                )
    print(f"\n{table_of(runs)}\n\n{len(runs)} runs, seed {given.seed}, {time.monotonic() - start:.0f} s")
    return int(any(run.wrong is not None for run in runs))


if __name__ == "__main__":
    sys.exit(main())
