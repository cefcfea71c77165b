"""Runs one target's cases in a separate process; each case is announced and then reported on standard output."""

from __future__ import annotations

import itertools
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.targets import TARGETS

# Limits per case. CPU time does not depend on other load on the machine.
MAX_CPU_SECONDS = 5.0
MAX_GROWTH_BYTES = 512 << 20
# The additional memory that the process may map after the start of the first case, so that a decompression bomb raises
# an error instead of exhausting memory.
MAX_MAPPED_BYTES = 2 << 30


def work(target: str, kept: Sequence[int], following: int, seconds: float, most: int | None) -> None:
    """Run all ``kept`` seeds, then the seeds from ``following`` on until ``seconds`` have passed or ``most`` cases have
    run."""
    import pyarrow as pa

    pa.set_cpu_count(2)
    pa.set_io_thread_count(2)
    TARGETS[target].run(TARGETS[target].case(0))  # runs imports and fills caches before the first measured case
    _limit_memory()
    for seed in kept:
        _run(target, seed)
    deadline = time.monotonic() + seconds
    for ran, seed in enumerate(itertools.count(following)):
        if time.monotonic() >= deadline or ran == most:
            return
        _run(target, seed)


def _run(target: str, seed: int) -> None:
    _say({"begin": seed})
    _say(execute(target, seed))


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def execute(target: str, seed: int) -> dict[str, Any]:
    """Run one case in this process. Returns the number of the case's ``outcomes`` by kind, the case's own ``kind``, and
    the ``violation`` as a string or None."""
    case = TARGETS[target].case(seed)
    cpu, peak = time.process_time(), _peak_bytes()
    outcomes: dict[str, str] = {}
    try:
        outcomes, wrong = TARGETS[target].run(case)
    except BaseException:
        wrong = traceback.format_exc(limit=-6)
    cpu, grown = time.process_time() - cpu, _peak_bytes() - peak
    if wrong is None and cpu > MAX_CPU_SECONDS:
        wrong = f"took {cpu:.1f} s of CPU time"
    if wrong is None and grown > MAX_GROWTH_BYTES:
        wrong = f"took {grown >> 20} MiB more memory"
    codes = ["ok" if answer.startswith("=") else answer for answer in outcomes.values()]
    violation = f"python -m tests.fuzz {case}\n{wrong}" if wrong else None
    return {"outcomes": Counter(codes), "kind": f"{case.table}: {' '.join(codes)}", "violation": violation}


def _peak_bytes() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _limit_memory() -> None:
    """If the system reports how much memory the process has mapped so far, limit how much more it may map."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    import resource

    mapped = int(statm.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MAX_MAPPED_BYTES,) * 2)


if __name__ == "__main__":
    work(**json.loads(sys.argv[1]))
