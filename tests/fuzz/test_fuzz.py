"""Reading damaged tables raises only DeltaLogErrors, returns no wrong answer if the right one is known, does not crash
or hang, and does not exhaust memory.

Each target runs a fixed number of cases (``--long``: ten times as many) with seeds from DELTALOG_FUZZ_FIRST_SEED (0)
on; two targets run at a time; with DELTALOG_FUZZ_SECONDS, each target runs as many cases as fit in that time. A
failing case prints the command that repeats it; add its seed to seeds.txt.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.fuzz import runner, tables, targets, worker
from tests.fuzz.targets import TARGETS
from tests.fuzz.usage import observe

SECONDS = float(os.environ.get("DELTALOG_FUZZ_SECONDS", "0"))
CASES = 4
FIRST_SEED = int(os.environ.get("DELTALOG_FUZZ_FIRST_SEED", "0"))
SHAPES = {
    "commits": tables.plain,
    "classic": tables.classic,
    "multi-part": tables.multi_part,
    "v2 json": lambda: tables.v2("json"),
    "v2 parquet": lambda: tables.v2("parquet"),
    "v2 with a classic name": lambda: tables.v2("classic"),
    "compacted": tables.compacted,
    "checksum": lambda: tables.with_checksums(tables.plain()),
}


@pytest.fixture(scope="module")
def reports(is_long: bool) -> dict[str, runner.Report]:
    most = None if SECONDS else 10 * CASES if is_long else CASES
    with ThreadPoolExecutor(2) as pool:
        ran = list(pool.map(lambda target: runner.run(target, SECONDS or 1e9, FIRST_SEED, most), TARGETS))
    return {report.target: report for report in ran}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", TARGETS)
def test_no_damage_gets_through(target, reports, capsys):
    report = reports[target]
    with capsys.disabled():
        print(f"\n[fuzz] {str(report).splitlines()[0]}")
    assert not report.violations, str(report)
    # A run without cases would test nothing; therefore kept seeds are always run, even if the time is up.
    assert report.executions > len(runner.kept_seeds(target))
    assert report.outcomes["ok"] > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_tells_the_same_history(shape):
    """The checks assume that the results do not depend on the layout of the log."""
    assert observe(SHAPES[shape]()) == observe(tables.plain())


def test_a_seed_is_a_case():
    """The case of a seed is the same in every process, whatever the iteration order of sets."""
    code = (
        "from tests.fuzz.targets import TARGETS; import hashlib\n"
        "for t in TARGETS.values():\n"
        "    c = t.case(7); print(c.table, c.path, hashlib.md5(c.files[c.path]).hexdigest())"
    )
    prints = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=runner.ROOT, env=environment, capture_output=True, text=True, check=True
        )
        prints.add(done.stdout)
    assert len(prints) == 1 and len(prints.pop().splitlines()) == len(TARGETS)


def test_most_cases_are_damaged_and_no_two_alike():
    for target in TARGETS.values():
        cases = [target.case(seed) for seed in range(40)]
        sound = [target.tables[case.table]()[0][case.path] for case in cases]
        damaged = {
            case.files[case.path] for case, data in zip(cases, sound, strict=True) if case.files[case.path] != data
        }
        assert len(damaged) >= 25, target.name


# ------------------------------------------------------------------------------------- the harness can fail


def _mutant(monkeypatch, run):
    """Replace the fuzz target ``commit`` with a target that calls ``run`` for each case."""
    mutant = replace(TARGETS["commit"], judge=lambda case, outcomes: run(case))
    monkeypatch.setitem(TARGETS, "commit", mutant)


def test_a_foreign_exception_is_a_violation(monkeypatch):
    def wrong(case):
        raise KeyError("not ours")

    _mutant(monkeypatch, wrong)
    violation = worker.execute("commit", 3)["violation"]
    assert violation.startswith("python -m tests.fuzz --target commit --seed 3")
    assert "KeyError" in violation


def test_a_wrong_answer_is_a_violation(monkeypatch):
    _mutant(monkeypatch, lambda case: "silently wrong")
    assert "silently wrong" in worker.execute("commit", 3)["violation"]


def test_memory_is_watched(monkeypatch):
    _mutant(monkeypatch, lambda case: bytearray(os.urandom(1) * (600 << 20)) and None)
    assert "more memory" in worker.execute("commit", 3)["violation"]


WORKER = """
import json, os, sys, time
from tests.fuzz import worker
real = worker.execute
def execute(target, seed):
    if seed == 2:
        {deed}
    return real(target, seed)
worker.execute = execute
worker.work(**json.loads(sys.argv[1]))
"""


@pytest.mark.sampled(4)  # a crash; the hang takes 25 seconds
@pytest.mark.parametrize(
    ("deed", "says"),
    [("os.abort()", "died (-6)"), ("time.sleep(600)", "killed after 20 s of silence")],
    ids=["crash", "hang"],
)
@pytest.mark.parametrize("kept", [[], [2, 9]], ids=["new", "kept"])
def test_a_worker_that_dies_is_pinned_on_its_seed_and_replaced(deed, says, kept, monkeypatch):
    """After a seed fails, the remaining seeds still run."""
    monkeypatch.setattr(runner, "WORKER", ("-c", WORKER.format(deed=deed)))
    monkeypatch.setattr(runner, "MAX_WALL_SECONDS", 20.0)
    monkeypatch.setattr(runner, "kept_seeds", lambda target: kept)
    report = runner.run("hint", 60, first_seed=100 if kept else 0, most=4)
    assert report.executions == 4 + len(kept)
    assert len(report.violations) == 1
    assert says in report.violations[0] and "--target hint --seed 2\n" in report.violations[0]


def test_the_command_line(capsys):
    from tests.fuzz.__main__ import main

    assert main(["--target", "hint", "--seed", "1"]) == 0
    assert "--target hint --seed 1" in capsys.readouterr().out
    assert main(["--target", "hint", "--seconds", "0", "--first-seed", "5"]) == 0
    assert "0 violations" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_the_guided_run():
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--atheris", "--target", "hint", "--seconds", "2"],
        cwd=runner.ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hint: " in done.stdout and "executions" in done.stdout


def test_the_truth_is_not_empty():
    for target in TARGETS.values():
        for table in () if isinstance(target, targets.Entrances) else target.tables:  # expressions have no table
            assert targets.truth(target.name, table)["open"] == "="
