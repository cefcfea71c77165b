"""Runs one fresh Spark session, in which the systems alternate in making the calls of one measurement. Prints JSON."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

# The fields of a measurement that the parent process needs.
FACTS = ("title", "delta_factor", "near_parquet", "writes", "limit_s", "is_long")


def main(arguments: list[str]) -> int:
    from tests.benchmarks.sessions import with_delta_spark
    from tests.support.spark.session import stop_sessions

    parser = argparse.ArgumentParser()
    parser.add_argument("key")
    parser.add_argument("tables", type=Path)
    parser.add_argument("--repeats", type=int, required=True, help="counted calls of each system")
    parser.add_argument("--first", type=int, required=True, help="the number of the system that begins")
    parser.add_argument("--system", help="run only this system (default: all)")
    parser.add_argument("--heap", default="6g", help="the JVM's maximum heap (default: %(default)s)")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args(arguments)
    spark = with_delta_spark(**{"spark.driver.memory": chosen.heap})
    from tests.benchmarks.spark.measurements import measurement

    scratch = Path(tempfile.mkdtemp(prefix="deltalog-bench-"))
    try:
        measured = measurement(chosen.key, spark, chosen.tables, scratch, chosen.quick)
        systems = [system for system in measured.calls if chosen.system in (None, system)]
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
        jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
        print(
            json.dumps(
                {
                    **facts,
                    "seconds": seconds,
                    "systems": list(measured.calls),
                    "peak_mib": [_peak_mib(jvm), _peak_mib("self")],
                }
            )
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        stop_sessions()
    return 0


def _peak_mib(process: object) -> int | None:
    """The peak resident memory of a process so far, if the system reports it."""
    status = Path(f"/proc/{process}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
