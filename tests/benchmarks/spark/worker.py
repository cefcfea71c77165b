"""One fresh Spark session, in which the systems make the calls of one measurement in turn. Prints JSON."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

# What the parent process needs of a measurement.
FACTS = ("title", "delta_factor", "near_parquet", "writes", "limit_s", "is_long")


def main(arguments: list[str]) -> int:
    from tests.support.spark.session import delta_session, stop_sessions

    parser = argparse.ArgumentParser()
    parser.add_argument("key")
    parser.add_argument("tables", type=Path)
    parser.add_argument("--repeats", type=int, required=True, help="calls of a system that count")
    parser.add_argument("--first", type=int, required=True, help="which system begins")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args(arguments)
    # The tests' sessions do without the second compiler; here it runs, as in production.
    spark = delta_session(**{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4", "spark.driver.memory": "6g"})
    from tests.benchmarks.spark.measurements import measurement

    scratch = Path(tempfile.mkdtemp(prefix="deltalog-bench-"))
    try:
        measured = measurement(chosen.key, spark, chosen.tables, scratch, chosen.quick)
        systems = list(measured.calls)
        at = chosen.first % len(systems)
        order = systems[at:] + systems[:at]
        seconds: dict[str, list[float]] = {system: [] for system in systems}
        for _ in range(chosen.repeats + (not measured.is_long)):
            for system in order:
                spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
                begin = time.perf_counter()
                answer = measured.calls[system]()
                seconds[system].append(time.perf_counter() - begin)
                if answer != measured.answer:
                    raise SystemExit(f"{chosen.key}: {system} answers {answer!r} instead of {measured.answer!r}")
        facts = {name: getattr(measured, name) for name in FACTS}
        print(json.dumps({**facts, "seconds": seconds}))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        stop_sessions()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
