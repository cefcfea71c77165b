"""The quick benchmark run, checked for facts: complete rows, right answers, counted requests. No time is judged."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.plan import FLOOR, OURS, PEERS, plan
from tests.benchmarks.report import reach
from tests.benchmarks.run import ROOT
from tests.benchmarks.tables import TABLES, commit_times, obtain, restore

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON of a quick run without delta-spark, with what it printed and how it ended."""
    scratch = tmp_path_factory.mktemp("benchmarks")
    out = scratch / "out.json"
    command = [sys.executable, "-m", "tests.benchmarks", "--quick", "--peers", "deltalog,deltalake"]
    command += ["--tables", str(scratch / "tables"), "--json", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert out.exists(), done.stderr[-3000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return {**found, "printed": done.stdout, "code": done.returncode, "tables": scratch / "tables"}


def rows_of(outcome: dict[str, Any], system: str) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in outcome["rows"] if row["system"] == system}


def test_every_measurement_has_a_row_for_every_system(outcome: dict[str, Any]) -> None:
    assert outcome["failures"] == []
    wanted = {(m.key, s) for m in plan(quick=True) for s in m.tables if s != "delta-spark"}
    assert {(row["key"], row["system"]) for row in outcome["rows"]} == wanted
    for row in outcome["rows"]:
        assert row["first_s"] > 0 and row["warm_s"] > 0, row
    for measurement in plan(quick=True):
        assert measurement.title in outcome["printed"]


def test_every_answer_of_deltalog_is_right(outcome: dict[str, Any]) -> None:
    asked = [row for row in rows_of(outcome, OURS).values() if row["asked"]]
    assert len(asked) >= 5
    assert [(row["key"], row["example"]) for row in asked if row["wrong"]] == []


def test_a_copied_log_shows_who_goes_by_file_times(outcome: dict[str, Any]) -> None:
    (key,) = (m.key for m in plan(quick=True) if m.key.endswith("-copied"))
    theirs = rows_of(outcome, "deltalake")
    assert theirs[key]["wrong"] == theirs[key]["asked"] > 0
    assert theirs[key.removesuffix("-copied")]["wrong"] == 0


def test_resolving_reads_within_the_bound_after_one_listing(outcome: dict[str, Any]) -> None:
    resolving = {key: row for key, row in rows_of(outcome, OURS).items() if key.startswith("resolve:")}
    assert len(resolving) == 2
    for key, row in resolving.items():
        table, counts = TABLES[row["table"]], row["facts"]["resolving"]
        assert counts.get("full listings", 0) == 1 and counts.get("listings", 0) == 0, (key, counts)
        bound = math.ceil(math.log2(table.size)) + 2
        if not table.checksums:
            bound += table.size - 1 - max(table.checkpoint_versions())
        assert counts["commit reads"] <= bound, (key, counts)
    facts = [goal for goal in outcome["reach"] if not goal["timed"]]
    assert len(facts) >= 9 and all(goal["met"] for goal in facts)
    assert outcome["code"] == 0


def test_one_measurement_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.benchmarks.__main__ import main

    chosen = ["--quick", "--peers", "deltalog", "--only", "resolve:ict100", "--tables", str(tmp_path)]
    assert main(chosen) == 0
    assert "every answer right" in capsys.readouterr().out


def test_nothing_timed_is_judged_by_a_quick_run(outcome: dict[str, Any]) -> None:
    assert {goal["met"] for goal in outcome["reach"] if goal["timed"]} == {None}
    assert reach(plan(quick=True), [], True)


def test_measured_commits_are_taken_away_again(outcome: dict[str, Any]) -> None:
    for name in {m.tables[OURS] for m in plan(quick=True) if m.writes}:
        log = obtain(name, outcome["tables"]) / "_delta_log"
        assert len(list(log.glob("*.json"))) == TABLES[name].size
        restore(log.parent, TABLES[name].size)
        assert (log / "_last_checkpoint").exists() == TABLES[name].checkpoints


def test_the_plan_names_known_tables_and_systems() -> None:
    for quick in (True, False):
        for measurement in plan(quick):
            assert set(measurement.tables) <= {OURS, FLOOR, *PEERS}
            assert set(measurement.tables.values()) <= set(TABLES)


@pytest.mark.parametrize("size", [10, 100, 10_000])
def test_questions_have_one_right_answer(size: int) -> None:
    times = commit_times(size)
    assert all(later > earlier for earlier, later in itertools.pairwise(times))
    for question in TABLES[f"ict{size}" if size < 1000 else "ict10k"].questions():
        version = question["version"]
        assert times[version] <= question["timestamp_ms"] < times[version + 1]


def test_unknown_peers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.benchmarks.__main__ import main

    with pytest.raises(SystemExit):
        main(["--peers", "deltalog,other"])
    assert "unknown peers" in capsys.readouterr().err


def test_no_peer_is_imported_by_the_orchestrator() -> None:
    code = "import sys, tests.benchmarks.__main__; sys.exit('deltalake' in sys.modules or 'deltalog' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_root_is_the_checkout() -> None:
    assert (Path(ROOT) / "tests" / "benchmarks" / "plan.py").is_file()
