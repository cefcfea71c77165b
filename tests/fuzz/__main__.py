"""Damage tables on purpose and check the outcomes.

    python -m tests.fuzz                               60 s for each target, two at a time
    python -m tests.fuzz --seconds 3600 --target crc   one target for an hour
    python -m tests.fuzz --target crc --seed 1234      one case, in this process
    python -m tests.fuzz --atheris --target crc        guided by coverage; needs atheris

The exit code is 1 if anything but a DeltaLogError was raised, if an answer was silently wrong, or if a case exceeded
its time or memory limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.fuzz import runner, worker
from tests.fuzz.targets import TARGETS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="repeat for several; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration for each target (default 60)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="run only this case of the target")
    parser.add_argument("--processes", type=int, default=2, help="concurrent targets (default 2)")
    parser.add_argument("--atheris", action="store_true", help="one target, guided by coverage")
    given = parser.parse_args(arguments)
    targets = given.target or list(TARGETS)
    if (given.seed is not None or given.atheris) and len(targets) != 1:
        parser.error("--seed and --atheris need one --target")
    if given.atheris:
        from tests.fuzz.guided import run_guided

        return run_guided(targets[0], given.seconds, given.first_seed)
    if given.seed is not None:
        return _one(targets[0], given.seed)
    reports = []
    with ThreadPoolExecutor(given.processes) as pool:
        for report in pool.map(lambda target: runner.run(target, given.seconds, given.first_seed), targets):
            print(report, flush=True)
            reports.append(report)
    print(f"{sum(r.executions for r in reports)} executions, {sum(len(r.violations) for r in reports)} violations")
    return int(any(report.violations for report in reports))


def _one(target: str, seed: int) -> int:
    case = TARGETS[target].case(seed)
    print(f"python -m tests.fuzz {case}")
    sound = TARGETS[target].tables[case.table]()[0][case.path]
    print(f"{case.path}: {len(sound)} bytes, damaged to {len(case.files[case.path])}")
    message = worker.execute(target, seed)
    for step, answer in TARGETS[target].run(case)[0].items() if not message["violation"] else ():
        print(f"  {step}: {answer}")
    print(message["violation"] or "no violation")
    return int(bool(message["violation"]))


if __name__ == "__main__":
    sys.exit(main())
