"""The worker's measurements of writing: appends, concurrent writers, and commits of many actions.

Each measured run uses its own copy of the table, which is next to the original and therefore on the same disk. Times
are seconds per commit: the time of a run divided by its number of commits. At module level, this module imports only
the standard library.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_WARM_UP = 3
_TAG = re.compile(r"writer-\d+-commit-\d+")


def appends(system: Any, spec: dict[str, Any], clock: Any) -> list[Any]:
    """``amount`` batches through one handle, one after the other."""
    answers = []
    for _ in range(1 + spec["repeats"]):
        root = _copy(spec)
        handle, rows = system.open(root), system.rows()
        with clock:
            for number in range(spec["amount"]):
                system.append(handle, rows, _tag(0, number))
        clock.share(spec["amount"])
        clock.remember(system)
        answers.append(_judged(root, [_tag(0, number) for number in range(spec["amount"])]))
    return answers


def adds(system: Any, spec: dict[str, Any], clock: Any) -> list[Any]:
    """One commit of ``amount`` add actions, through an open handle."""
    from tests.benchmarks.tables import new_add

    answers = []
    given = system.adds([new_add(number) for number in range(spec["amount"])])
    for _ in range(1 + spec["repeats"]):
        root = _copy(spec)
        handle = system.open(root)
        with clock:
            system.commit_adds(handle, given)
        clock.remember(system)
        committed = sorted(_commits(root))[-1].read_bytes().count(b'{"add":')
        # A few large files are deleted, so that the next run reuses their memory pages, whose first use takes time.
        shutil.rmtree(root)
        answers.append({"right": {"adds": spec["amount"]}, "got": {"adds": committed}})
    return answers


def writers(system: Any, spec: dict[str, Any], clock: Any) -> list[Any]:
    """``writers`` processes that append to one table, ``amount`` batches in total. Before the clock starts, all of them
    are running and have appended to another table. Records the total wall time, and each writer's share."""
    answers = []
    for _ in range(1 + spec["repeats"]):
        root = _copy(spec)
        found = (_threads if spec["system"] == "delta-spark" else _processes)(system, spec, root)
        took_s = max(each["ended"] for each in found) - min(each["begun"] for each in found)
        clock.wall.append(took_s / spec["amount"])
        clock.cpu.append(sum(each["cpu_s"] for each in found) / spec["amount"])
        clock.first_mib = max(each["peak_mib"] for each in found)
        acknowledged = [tag for each in found for tag in each["acknowledged"]]
        answers.append(_judged(root, acknowledged, spec["amount"]))
        clock.details.append(_shares(found))
    return answers


def _shares(found: list[dict[str, Any]]) -> dict[str, float]:
    """Measures of fairness: the longest time that a commit took, and the commit rates of the fastest and the slowest
    writer."""
    rates = [len(each["acknowledged"]) / (each["ended"] - each["begun"]) for each in found]
    return {
        "longest commit, ms": max(max(each["seconds"]) for each in found) * 1000,
        "slowest writer, commits/s": min(rates),
        "fastest writer, commits/s": max(rates),
        "given up and repeated": sum(each["repeated"] for each in found),
    }


def _each_share(spec: dict[str, Any]) -> list[int]:
    count, amount = spec["writers"], spec["amount"]
    return [amount // count + (number < amount % count) for number in range(count)]


def _threads(system: Any, spec: dict[str, Any], root: str) -> list[dict[str, Any]]:
    """delta-spark's log store for local disks is safe only within one JVM, so its writers are threads of one JVM."""
    _append_all(system, _copy(spec), 0, 1)
    with ThreadPoolExecutor(spec["writers"]) as pool:
        shares = enumerate(_each_share(spec))
        started = [pool.submit(_append_all, system, root, number, share) for number, share in shares]
        return [each.result() for each in started]


def _processes(system: Any, spec: dict[str, Any], root: str) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deltalog-bench-")))
        children = []
        for number, share in enumerate(_each_share(spec)):
            path = scratch / f"{number}.json"
            path.write_text(json.dumps({
                **spec, "call": "writer", "shared": root, "number": number, "amount": share, "requests": False,
            }))  # fmt: skip
            command = [sys.executable, "-m", "tests.benchmarks.worker", str(path)]
            child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            children.append((stack.enter_context(child), path.with_suffix(".out")))
        for child, _ in children:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                raise RuntimeError("a writer did not start")
        for child, _ in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child, _ in children:
            child.wait()
        return [json.loads(out.read_text())["answers"][0] for _, out in children]


def writer(system: Any, spec: dict[str, Any], clock: Any) -> list[Any]:
    """Run one of the processes of ``writers``."""
    _append_all(system, _copy(spec), spec["number"], _WARM_UP)
    with clock:
        found = _append_all(system, spec["shared"], spec["number"], spec["amount"], ready=_wait_for_the_others)
    clock.remember(system)
    return [found]


def _wait_for_the_others() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def _append_all(
    system: Any, root: str, writer: int, amount: int, ready: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Append ``amount`` batches to the table at ``root``, beginning when ``ready`` returns. Returns the outcome."""
    handle, rows = system.open(root), system.rows()
    ready()
    acknowledged, seconds, repeated = [], [], 0
    begun, cpu_s = time.monotonic(), time.process_time()
    for number in range(amount):
        tag, started = _tag(writer, number), time.monotonic()
        repeated += _until_acknowledged(system, handle, rows, tag)
        seconds.append(time.monotonic() - started)
        acknowledged.append(tag)
    return {
        "begun": begun, "ended": time.monotonic(), "seconds": seconds, "cpu_s": time.process_time() - cpu_s,
        "acknowledged": acknowledged, "repeated": repeated, "peak_mib": system.peak_mib(),
    }  # fmt: skip


def _until_acknowledged(system: Any, handle: Any, rows: Any, tag: str) -> int:
    """Append, and retry if the system gives up after lost races. Returns how often it did."""
    for number in range(100):
        try:
            system.append(handle, rows, tag)
        except system.gave_up:
            system.refresh(handle)
        else:
            return number
    raise RuntimeError(f"{tag} was given up 100 times")


def append_once(system: Any, spec: dict[str, Any], clock: Any) -> list[Any]:
    """Append one batch to a long log through an open handle; the measured system refreshes the handle itself."""
    handle, rows = system.open(spec["root"]), system.rows_of_log()
    for number in range(1 + spec["repeats"]):
        if number and sum(clock.wall) > spec["budget_s"]:
            break
        if number:
            system.refresh(handle)
        with clock:
            system.append(handle, rows, _tag(0, number))
        clock.remember(system)
    return []


def open_and_append(system: Any, spec: dict[str, Any], clock: Any) -> list[Any]:
    """Open a table with a long log and append one batch to it."""
    rows = system.rows_of_log()
    for number in range(1 + spec["repeats"]):
        if number and sum(clock.wall) > spec["budget_s"]:
            break
        with clock:
            system.append(system.open(spec["root"]), rows, _tag(0, number))
        clock.remember(system)
    return []


def requests_of_appends(spec: dict[str, Any]) -> dict[str, dict[str, int]]:
    """deltalog's requests to a remote store for an append on a warm handle: without other writers, and after another
    writer took the version."""
    from deltalog import DeltaTable
    from deltalog.storage.fs import LocalStore
    from deltalog.testing import CountingStore
    from tests.benchmarks.requests import by_kind
    from tests.benchmarks.tables import small_batch

    class Remote(LocalStore):
        is_remote = True

    copy = _copy(spec)
    store = CountingStore(Remote(copy))
    table, other = DeltaTable.open(store), DeltaTable.open(copy)
    # Derived files are written in the background after the commit; the requests for these files are counted too.
    table.append(small_batch())
    table.flush()
    with store.counted() as alone:
        table.append(small_batch())
        table.flush()
    other.append(small_batch())
    with store.counted() as contested:
        table.append(small_batch())
        table.flush()
    return {"append": by_kind(alone), "append after a lost race": by_kind(contested)}


CALLS = {
    "appends": appends, "adds": adds, "writers": writers, "writer": writer, "append": append_once,
    "open+append": open_and_append,
}  # fmt: skip


def _copy(spec: dict[str, Any]) -> str:
    """A copy of the table, for a separate run. The copy is deleted only after all measurements; see ``run.run``."""
    return str(shutil.copytree(spec["root"], Path(tempfile.mkdtemp(dir=spec["used"])) / "table"))


def _tag(writer: int, number: int) -> str:
    """A unique string that a commit records, so that the commit can be found later."""
    return f"writer-{writer}-commit-{number}"


def _commits(root: str) -> list[Path]:
    return [path for path in (Path(root) / "_delta_log").glob("*.json") if path.stem.isdecimal()]


def _judged(root: str, acknowledged: list[str], amount: int | None = None) -> dict[str, Any]:
    """Whether each acknowledged commit is in the log exactly once and the versions have no gap; the log files are read
    directly, not through one of the measured systems."""
    versions = sorted(_commits(root))
    found = Counter(tag for path in versions for tag in set(_TAG.findall(path.read_text())))
    got = {
        "acknowledged": len(acknowledged),
        "lost": sum(not found[tag] for tag in acknowledged),
        "doubled": sum(found[tag] > 1 for tag in acknowledged),
        "gaps": sum(int(path.stem) != number for number, path in enumerate(versions)),
    }
    right = {"acknowledged": len(acknowledged) if amount is None else amount, "lost": 0, "doubled": 0, "gaps": 0}
    return {"right": right, "got": got}
