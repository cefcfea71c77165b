"""Runs the cases of the conformance kit that write on engines, and checks the tables with the doctor.

    python -m tests.interop.doctor_engines deltalake polars duckdb
    python -m tests.interop.doctor_engines --every 10

Prints each table in which the doctor finds an error that the case did not begin with. The exit status is 1 if there is
one in a case that the engine passes.
"""

from __future__ import annotations

import argparse
import collections
import sys

from deltalog.conformance import ENGINES, all_cases, start_engine
from deltalog.errors import CallError
from tests.support.doctor.engine_tables import examine_written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", default=list(ENGINES))
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    wrong = 0
    for name in arguments.engines:
        outcomes: collections.Counter[str] = collections.Counter()
        try:
            with start_engine(name) as engine:
                for written in examine_written(engine, all_cases()[:: arguments.every]):
                    outcomes[written.outcome] += 1
                    if written.errors:
                        wrong += 1
                        print(f"{name}: {written}", flush=True)
        except CallError as error:
            print(f"{name}: {error}", flush=True)
            continue
        print(f"{name}: {dict(outcomes)}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
