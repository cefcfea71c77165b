"""In the quick benchmark run, every row of the report is complete, every answer is right, and the requests are counted.
No time is judged."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import writing
from tests.benchmarks.livefiles import PARTS, TAIL, FilesTable
from tests.benchmarks.plan import FLOOR, OURS, PEERS, plan
from tests.benchmarks.report import Row, is_right, most_reads, reach
from tests.benchmarks.run import ROOT
from tests.benchmarks.tables import TABLES, LogTable, commit_times, instants, obtain, restore

pytestmark = pytest.mark.timeout(300)


# The parameter is only used to attach the mark `long`: tests that use this fixture take a minute and a half, and run
# only with --long.
@pytest.fixture(scope="module", params=[pytest.param("quick", marks=pytest.mark.long)])
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON of a quick run without delta-spark, with its output and exit status."""
    scratch = tmp_path_factory.mktemp("benchmarks")
    out = scratch / "out.json"
    command = [sys.executable, "-m", "tests.benchmarks", "--quick", "--peers", "deltalog,deltalake"]
    command += ["--tables", str(scratch / "tables"), "--json", str(out), "--markdown", str(scratch / "out.md")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert out.exists(), done.stderr[-3000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return {
        **found,
        "printed": done.stdout,
        "code": done.returncode,
        "tables": scratch / "tables",
        "markdown": scratch / "out.md",
    }


def rows_of(outcome: dict[str, Any], system: str) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in outcome["rows"] if row["system"] == system}


def test_every_measurement_has_a_row_for_every_system(outcome: dict[str, Any]) -> None:
    assert outcome["failures"] == []
    wanted = {(m.key, s) for m in plan(quick=True) for s in m.tables if s != "delta-spark"}
    assert {(row["key"], row["system"]) for row in outcome["rows"]} == wanted
    for row in outcome["rows"]:
        assert row["first_s"] > 0 and row["warm_s"] > 0, row
    table = outcome["markdown"].read_text(encoding="utf-8")
    for measurement in plan(quick=True):
        assert measurement.title in outcome["printed"] and f"| {measurement.title} |" in table


def test_every_answer_of_deltalog_is_right(outcome: dict[str, Any]) -> None:
    asked = [row for row in rows_of(outcome, OURS).values() if row["asked"]]
    assert len(asked) == sum(m.in_runs or not m.writes for m in plan(quick=True))
    assert [(row["key"], row["example"]) for row in asked if row["wrong"]] == []


def test_a_copied_log_shows_who_goes_by_file_times(outcome: dict[str, Any]) -> None:
    (key,) = (m.key for m in plan(quick=True) if m.key.endswith("-copied"))
    theirs = rows_of(outcome, "deltalake")
    assert theirs[key]["wrong"] == theirs[key]["asked"] > 0
    assert [k for k, row in theirs.items() if row["wrong"]] == [key]  # all other answers are correct


def test_resolving_reads_within_the_bound_without_a_listing(outcome: dict[str, Any]) -> None:
    resolving = {key: row for key, row in rows_of(outcome, OURS).items() if key.startswith("resolve:")}
    assert len(resolving) == 2
    for key, row in resolving.items():
        table, counts = TABLES[row["table"]], row["requests"]["call"]
        assert isinstance(table, LogTable)
        assert "LIST" not in counts, (key, counts)
        bound = most_reads(table.size)
        if not table.checksums:
            bound += table.size - 1 - max(table.checkpoint_versions())
        assert counts["GET commit"] <= bound, (key, counts)
    facts = [goal for goal in outcome["reach"] if not goal["timed"]]
    assert len(facts) >= 20 and all(goal["met"] for goal in facts)
    assert outcome["code"] == 0


def test_requests_are_counted_for_every_call_that_reads(outcome: dict[str, Any]) -> None:
    opened = {
        key: [counts.get("open checkpoint", 0) for counts in row["requests"].values()]
        for key, row in rows_of(outcome, OURS).items()
        if row["requests"]
    }
    assert opened.keys() == {m.key for m in plan(quick=True) if m.counts_requests}
    assert opened["protocol:files2k"] == [0, 0] and opened["files:commits20"] == [0, 0]
    assert opened["protocol:files2k-nocrc"][0] > 0 == opened["protocol:files2k-nocrc"][1]
    assert opened["files:files2k-parts"][1] >= PARTS and opened["files:files2k-sidecars"][1] > PARTS


def test_appends_ask_for_no_more_than_they_must(outcome: dict[str, Any]) -> None:
    goals = [goal for goal in outcome["reach"] if "append" in goal["goal"] and "PUT" in goal["goal"]]
    assert len(goals) == 4 and all(goal["met"] for goal in goals), goals
    assert all("LIST" not in goal["found"] and "HEAD" not in goal["found"] for goal in goals)


def test_commits_of_writers_are_looked_for_in_the_log(tmp_path: Path) -> None:
    root = obtain("new", tmp_path)
    (root / "_delta_log" / f"{1:020d}.json").write_text('{"commitInfo":{"userMetadata":"writer-0-commit-0"}}\n')
    (root / "_delta_log" / f"{3:020d}.json").write_text('{"commitInfo":{"userMetadata":"writer-0-commit-0"}}\n')
    judged = writing._judged(str(root), ["writer-0-commit-0", "writer-0-commit-1"], 3)
    assert judged["got"] == {"acknowledged": 2, "lost": 1, "doubled": 1, "gaps": 1}
    assert judged["right"] == {"acknowledged": 3, "lost": 0, "doubled": 0, "gaps": 0}


def test_writers_share_one_table(outcome: dict[str, Any]) -> None:
    for system in (OURS, "deltalake"):
        (run,) = outcome["runs"]["writers:2"][system]
        assert len(run["details"]) == len(run["answers"]) > 1
        assert all(each["longest commit, ms"] > 0 for each in run["details"])
    assert "Commits per second" in outcome["printed"]


def test_memory_and_growth_are_told(outcome: dict[str, Any]) -> None:
    for row in outcome["rows"]:
        assert 10 < row["first_mib"] <= row["peak_mib"], row
    assert "files:files2k to files4k" in outcome["printed"] and "files:commits20 to commits40" in outcome["printed"]


@pytest.mark.long
def test_one_measurement_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.benchmarks.__main__ import main

    chosen = ["--quick", "--peers", "deltalog,deltalake", "--only", "resolve:ict100,commit:10"]
    assert main([*chosen, "--tables", str(tmp_path)]) == 0
    assert "every answer right" in capsys.readouterr().out


def row(key: str, system: str, first_s: float, warm_s: float, mib: float = 100.0) -> Row:
    return Row(
        key=key, title=key, system=system, table="", processes=1, start_s=0.0, first_s=first_s, first_cpu_s=0.0,
        warm_s=warm_s, warm_cpu_s=0.0, asked=1, wrong=0, example=None, first_mib=mib, peak_mib=mib, written_mib=0.0,
        requests=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("goal", "found", "met"),
    [
        ("files:files1m: at least 5x", [("deltalog", 1, 1), ("deltalake", 5, 6), ("delta-spark", 50, 50)], True),
        ("files:files1m: at least 5x", [("deltalog", 1, 1), ("deltalake", 5, 4.9)], False),
        ("files:files1m: at least 5x", [("deltalog", 1, 1), ("deltalake", 9, 9), ("delta-spark", 4, 9)], False),
        ("files:files1m: at least 5x", [("deltalog", 1, 1)], None),
        ("files:files1m: at most 1.3x", [("deltalog", 1.3, 1), ("floor", 1, 1)], True),
        ("files:files1m: at most 1.3x", [("deltalog", 1, 1.4), ("floor", 1, 1)], False),
        ("files:files1m: no more memory", [("deltalog", 1, 1, 99.0), ("deltalake", 9, 9)], True),
        ("files:files1m: no more memory", [("deltalog", 1, 1, 101.0), ("deltalake", 9, 9)], False),
        ("files:files250k to files1m: doubled", [("deltalog", 4.0, 4.0)], True),
        ("files:files250k to files1m: doubled", [("deltalog", 4.0, 5.0)], False),
    ],
)
def test_what_is_met(goal: str, found: list[tuple[Any, ...]], met: bool | None) -> None:
    smaller = [row("files:files250k", OURS, 1.0, 1.0), row("files:files500k", OURS, 2.0, 2.0)]
    judged = reach(plan(quick=False), [*smaller, *(row("files:files1m", *each) for each in found)], quick=False)
    (verdict,) = (each for each in judged if each.goal.startswith(goal))
    assert verdict.met is met, verdict


def test_nothing_timed_is_judged_by_a_quick_run(outcome: dict[str, Any]) -> None:
    assert {goal["met"] for goal in outcome["reach"] if goal["timed"]} == {None}
    assert reach(plan(quick=True), [], True)


def test_measured_commits_are_taken_away_again(outcome: dict[str, Any], tmp_path: Path) -> None:
    for name in {m.tables[OURS] for m in plan(quick=True) if m.writes and not m.in_runs}:
        table = TABLES[name]
        assert isinstance(table, LogTable)
        log = obtain(name, outcome["tables"]) / "_delta_log"
        assert len(list(log.glob("*.json"))) == table.size
        restore(log.parent, table.size, tmp_path)
        assert (log / "_last_checkpoint").exists() == table.checkpoints


def test_the_plan_names_known_tables_and_systems() -> None:
    for quick in (True, False):
        for measurement in plan(quick):
            assert set(measurement.tables) <= {OURS, FLOOR, *PEERS}
            assert set(measurement.tables.values()) <= set(TABLES)
            for table in measurement.tables.values():
                assert measurement.writes or TABLES[table].questions(measurement.call)


@pytest.mark.parametrize("size", [10, 100, 10_000])
def test_questions_have_one_right_answer(size: int) -> None:
    times = commit_times(size)
    assert all(later > earlier for earlier, later in itertools.pairwise(times))
    table = TABLES[f"ict{size}" if size < 1000 else "ict10k"]
    assert isinstance(table, LogTable)
    for question in instants(table.size):
        version = question["version"]
        assert times[version] <= question["timestamp_ms"] < times[version + 1]


@pytest.mark.parametrize("layout", ["classic", "parts", "sidecars", "deltalog", "commits"])
def test_a_table_of_files_holds_what_it_says(layout: str, tmp_path: Path) -> None:
    from deltalog import DeltaTable

    table = FilesTable("some", 500, layout)
    (tmp_path / "_delta_log").mkdir()
    table.write(tmp_path)
    snapshot = DeltaTable.open(tmp_path).snapshot()
    files = snapshot.files()
    records = [json.loads(text)["numRecords"] for text in files["stats"].to_pylist()]
    found = {"files": files.num_rows, "bytes": sum(files["size"].to_pylist()), "records": sum(records)}
    assert found == table.totals() and len(set(files["path"].to_pylist())) == 500
    assert (snapshot.num_files, snapshot.size_bytes) == (found["files"], found["bytes"])  # according to the .crc
    assert snapshot.version == table.last_version == (9 if layout == "commits" else 10 + TAIL)
    (prune,) = table.questions("prune")
    low, high = prune["ask"]
    assert snapshot.scan(where=f"id >= {low} AND id < {high}").files().num_rows == prune["right"]["files"] == 10


def test_a_table_of_changes_holds_what_it_says(tmp_path: Path) -> None:
    from deltalog import DeltaTable

    table = FilesTable("some", 100, "changes", checksums=False)
    (tmp_path / "_delta_log").mkdir()
    table.write(tmp_path)
    snapshot = DeltaTable.open(tmp_path).snapshot()
    files = snapshot.files()
    assert {"files": files.num_rows, "bytes": sum(files["size"].to_pylist())}.items() <= table.totals().items()
    assert files.num_rows == 67 and snapshot.version == table.last_version == 99
    assert snapshot.transaction_version("stream") == 99


@pytest.mark.parametrize(
    ("got", "right", "verdict"),
    [
        (3, 3, True),
        (3, 4, False),
        ({"files": 3}, {"files": 3, "bytes": 9}, True),
        ({"files": 3, "bytes": 8}, {"files": 3, "bytes": 9}, False),
        ({"rows": 3}, {"files": 3}, False),
        ({}, {"files": 3}, False),
        ("ValueError: refused", {"files": 3}, False),
    ],
)
def test_an_answer_is_right_in_all_that_it_tells(got: Any, right: Any, verdict: bool) -> None:
    assert is_right(got, right) is verdict


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
