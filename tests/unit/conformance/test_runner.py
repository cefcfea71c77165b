"""The kit's runner: outcomes, engines that fail in every way, the command, the pytest plugin, exported files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import CallError, DeltaTable
from deltalog.conformance import (
    Case,
    Engine,
    NotSupported,
    all_cases,
    line_protocol,
    load_engine,
    remote,
    run,
    run_case,
    start_engine,
)
from deltalog.conformance.case import CATALOG_MANAGED, Clone, LatestVersion, Log, MayRefuse, Refused, Rows, Write
from deltalog.conformance.cases.common import Timeline, ids, minute
from deltalog.conformance.engines.deltalog import DeltalogEngine
from deltalog.conformance.export import export_cases
from deltalog.conformance.report import document, markdown, matrix
from deltalog.conformance.runner import rows_to_write
from deltalog.errors import PathExistsError
from deltalog.schema import variant_to_python

ROOT = Path(__file__).resolve().parents[3]
LATE = {case.id: case for case in all_cases() if case.id.startswith("ict-late-")}


def a_case(*steps: Any) -> Case:
    return Case("a-case", "reading", "A case", "actions", Timeline(at=(0, 1)), steps)


class Answers(Engine):
    """An engine that returns the given rows or raises the given error."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "step", "outcome", "reason"),
    [
        (ids(1), Rows(ids(1)), "passed", None),
        (list(reversed(ids(1))), Rows(ids(1)), "passed", None),
        (ids(0), Rows(ids(1)), "failed", "1 rows are missing"),
        (ids(2), Rows(ids(1)), "failed", "1 rows are unexpected"),
        ([*ids(1), {"id": 1}], Rows(ids(1)), "failed", "unexpected"),
        ([{"id": 0.0}, {"id": 1.0}], Rows(ids(1)), "failed", "missing"),
        (NotSupported("no rows"), Rows(ids(1)), "skipped", "no rows"),
        (ValueError("broken"), Rows(ids(1)), "failed", "ValueError: broken"),
        (ValueError("broken"), Refused(Rows(ids(1))), "passed", None),
        (ValueError("broken"), MayRefuse(Rows(ids(1))), "passed", None),
        (NotSupported("no rows"), Refused(Rows(ids(1))), "skipped", "no rows"),
        (ids(1), Refused(Rows(ids(1))), "failed", "did not refuse"),
        (ids(0), Refused(Rows(ids(1))), "failed", "missing"),
        (ids(0), MayRefuse(Rows(ids(1))), "failed", "missing"),
        (ValueError("Feature x is not supported"), Rows(ids(1)), "skipped", "lacks a table feature"),
        (ids(1), LatestVersion(1), "skipped", "latest version"),
        (ids(1), Rows(ids(1), at_us=1), "skipped", "microseconds"),
        (ids(1), Write("restore_to_time", at_ms=1), "skipped", "at a timestamp"),
        (ids(1), Clone(), "skipped", "cloning"),
    ],
)
def test_outcomes(found: Any, step: Any, outcome: str, reason: str | None, tmp_path: Path) -> None:
    engine = Answers(found)
    engine.lacks = "Feature . is not supported"
    result = run_case(engine, a_case(step), tmp_path)
    assert result.outcome == outcome
    assert result.reason is None if reason is None else reason in (result.reason or "")


EMPTY = b"\x01\x00\x00"


@pytest.mark.parametrize(
    ("found", "expected", "outcome"),
    [
        ({"metadata": EMPTY, "value": b"\x0c\x05"}, "5", "passed"),
        ({"metadata": EMPTY.hex(), "value": "0c05"}, "5", "passed"),
        ("5", "5", "passed"),
        ("5.0", "5", "failed"),
        ('{"b": 1.50, "a": [null]}', '{"a":[null],"b":1.5}', "passed"),
        ({"metadata": EMPTY, "value": b"\x00"}, "null", "passed"),
        (None, "null", "failed"),
        ({"metadata": EMPTY, "value": b"\x00"}, None, "failed"),
        ([{"metadata": EMPTY, "value": b"\x0c\x05"}], ["5"], "passed"),
        ([("k", {"metadata": EMPTY, "value": b"\x05x"})], [("k", '"x"')], "passed"),
    ],
)
def test_variants_are_compared_as_json(found: Any, expected: Any, outcome: str, tmp_path: Path) -> None:
    step = Rows([{"v": expected}], variants=["v"])
    assert run_case(Answers([{"v": found}]), a_case(step), tmp_path).outcome == outcome


def test_rows_are_written_with_their_types() -> None:
    step = Write(
        "append", rows=[{"a": 1, "v": '{"x": [1]}'}, {"a": None, "v": None}], types={"a": "short"}, variants=["v"]
    )
    table = rows_to_write(step)
    assert table.schema.field("a").type == pa.int16()
    assert table.schema.field("v").metadata[b"ARROW:extension:name"] == b"arrow.parquet.variant"
    first, second = table["v"].to_pylist()
    assert variant_to_python(first) == {"x": [1]} and second is None


def test_an_error_that_is_no_refusal_fails(tmp_path: Path) -> None:
    engine = Answers(TypeError("a defect"))
    engine.refusals = (ValueError,)
    result = run_case(engine, a_case(Refused(Rows(ids(1)))), tmp_path)
    assert result.outcome == "failed" and "TypeError: a defect" in (result.reason or "")


def test_a_changed_commit_fails(tmp_path: Path) -> None:
    class Editing(DeltalogEngine):
        def append(self, path: str, rows: Any) -> None:
            super().append(path, rows)
            first = Path(path, "_delta_log", f"{0:020d}.json")
            first.write_text(first.read_text() + "\n")

    result = run_case(Editing(), a_case(Write("append", rows=[{"id": 9}])), tmp_path)
    assert result.outcome == "failed" and "was changed" in (result.reason or "")


def test_steps_after_a_clone_use_the_clone(tmp_path: Path) -> None:
    class Recording(DeltalogEngine):
        calls: list[str]

        def append(self, path: str, rows: Any) -> None:
            self.calls.append(path)
            super().append(path, rows)

    engine = Recording()
    engine.calls = []
    steps = (Clone(), Write("append", rows=[{"id": 9}]), Log("latest-version", value=1), Rows([*ids(1), {"id": 9}]))
    assert run_case(engine, a_case(*steps), tmp_path).outcome == "passed"
    assert engine.calls == [str(tmp_path / "clone")]
    assert DeltaTable.open(str(tmp_path / "table")).version == 1


def test_a_clone_that_changes_its_source_fails(tmp_path: Path) -> None:
    class Editing(DeltalogEngine):
        def clone(self, path: str, target: str, shallow: bool, version: int | None = None) -> None:
            super().clone(path, target, shallow, version)
            first = Path(path, "_delta_log", f"{0:020d}.json")
            first.write_text(first.read_text() + "\n")

    result = run_case(Editing(), a_case(Clone(shallow=True)), tmp_path)
    assert result.outcome == "failed" and "was changed" in (result.reason or "")


def test_a_panic_is_an_outcome(tmp_path: Path) -> None:
    class PanicException(BaseException):
        pass

    result = run_case(Answers(PanicException("index out of bounds")), a_case(Rows(ids(1))), tmp_path)
    assert result.outcome == "failed" and "PanicException" in (result.reason or "")


def test_each_case_has_a_directory_that_is_removed(tmp_path: Path) -> None:
    outcomes = list(run(load_engine("deltalog"), LATE.values(), tmp_path))
    assert [outcome.id for outcome in outcomes] == list(LATE) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["nowhere", "no.such.module:X", "deltalog.conformance:Nothing", "builtins:dict"])
def test_unknown_engines_are_refused(name: str) -> None:
    with pytest.raises(CallError):
        load_engine(name)


def test_a_program_is_not_loaded_into_this_process() -> None:
    with pytest.raises(CallError, match=r"`with start_engine\('command:venv/bin/python x\.py'\) as engine:`"):
        load_engine("command:venv/bin/python x.py")


def test_the_calls_of_a_case_are_those_that_it_makes(monkeypatch: pytest.MonkeyPatch, is_long: bool) -> None:
    made: list[str] = []
    ask = remote._Calls._ask

    def recording(self: remote._Calls, call: str, arguments: Any) -> Any:
        made.append(call)
        return ask(self, call, arguments)

    monkeypatch.setattr(remote._Calls, "_ask", recording)
    by_calls = {case.calls: case for case in all_cases() if case.area != CATALOG_MANAGED}
    with start_engine("deltalog") as engine:
        for calls, case in [*by_calls.items()][:: 1 if is_long else 3]:
            made.clear()
            [outcome] = run(engine, [case])
            assert (outcome.outcome, tuple(dict.fromkeys(made))) == ("passed", calls), case.id
    assert {call for calls in by_calls for call in calls} == set(line_protocol.CALLS) - {"of_catalog"}
    assert all(case.calls[0] == "of_catalog" for case in all_cases() if case.area == CATALOG_MANAGED)


# ------------------------------------------------------------------------------------------- the command


def carried_out(*arguments: str, status: int, cwd: Path | None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "deltalog.cli.main", "conformance", *arguments],
        capture_output=True, text=True, timeout=300, check=False, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done


def command(*arguments: str, status: int = 0, cwd: Path | None = None) -> str:
    """What the command writes to standard output."""
    return carried_out(*arguments, status=status, cwd=cwd).stdout


def test_the_command_runs_cases(tmp_path: Path) -> None:
    found = json.loads(command("run", "--engine", "deltalog", "--case", "ict-late-exact*", "--json"))
    assert found["engine"] == "deltalog" and found["summary"] == {"passed": 5, "failed": 0, "skipped": 0}
    assert found["environment"]["pyarrow"] == pa.__version__ and found["seconds"] > 0
    assert found["cases"][0] == {
        "id": "ict-late-exact-enablement", "area": "in-commit-timestamps", "outcome": "passed", "reason": None,
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(found))
    assert "| in-commit-timestamps | 5 of 5 |" in command("report", str(tmp_path / "run.json"))
    text = command("run", "--engine", "deltalog", "--case", "ict-late-exact-enablement")
    assert "1 passed, 0 failed, 0 skipped" in text


def test_the_command_fails_with_a_case() -> None:
    cases = ("--case", "ict-late-exact-enablement", "--case", "ict-late-exact-later")
    text = command("run", "--engine", "tests.support.conformance.awkward:Awkward", *cases, status=1, cwd=ROOT)
    text = " ".join(text.split())  # the reasons are wrapped to the width of the terminal
    assert "rows are unexpected" in text and "exited with status 7" in text and "0 of 2" in text


def test_the_command_ends_with_an_adapter_that_does_not_work() -> None:
    """No case has an outcome."""
    text = command("run", "--engine", "tests.support.conformance.awkward:Broken", "--json", status=1, cwd=ROOT)
    assert text == ""


def test_a_run_in_which_every_case_is_skipped_warns() -> None:
    """With the calls that the cases need. A run with an outcome does not warn."""
    awkward = ("run", "--engine", "tests.support.conformance.awkward:Awkward", "--case", "write-append")
    text = warnings_of(*awkward, "--case", "write-delete", "--json")
    assert json.loads(text) == {
        "warning": "NoCaseRun",
        "message": "No case passed or failed: 2 cases skipped, 1 for the reason: appending. "
        "These cases make calls that the adapter does not list: append (1), delete (1).",
    }
    assert warnings_of(*awkward, "--case", "ict-late-exact-enablement", status=1) == ""


def warnings_of(*arguments: str, status: int = 0) -> str:
    """What the command writes to standard error."""
    return carried_out(*arguments, status=status, cwd=ROOT).stderr


def test_the_command_lists_cases() -> None:
    found = json.loads(command("list", "--area", "in-commit-timestamps", "--json"))
    assert len(found["cases"]) >= 100 and {case["area"] for case in found["cases"]} == {"in-commit-timestamps"}
    calls = {case["id"]: case["calls"] for case in found["cases"]}
    assert calls["ict-late-exact-enablement"] == ["rows"] and ["append", "rows"] in calls.values()
    [line] = [each for each in command("list", "--case", "ict-late-*").splitlines() if "exact-enablement" in each]
    assert line.split()[0] == "ict-late-exact-enablement" and line.split()[2] == "rows"
    command("list", "--area", "nonsense", status=2)
    command("list", "--case", "nonsense", status=2)


# ---------------------------------------------------------------------------------------- reports and files


def test_a_report_has_a_line_for_each_row(tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        files.append(tmp_path / f"{name}.json")
        found = document(name, "1", "1.2", run(Answers(ids(5)), [a_case(Rows(ids(5)))]))
        files[-1].write_text(json.dumps(found))
    assert command("report", *map(str, files)).splitlines() == [
        "| area | one 1 | two 1 |", "| --- | --- | --- |", "| reading | 1 of 1 | 1 of 1 |", "| all | 1 of 1 | 1 of 1 |",
    ]  # fmt: skip


def test_the_matrix_counts_by_area() -> None:
    mine = document("mine", "1", "1.0", run(Answers(ids(5)), LATE.values()))
    rows = matrix([mine, document("other", "", "1.0", [])])
    assert rows[0] == ["area", "mine 1", "other"] and rows[1][0] == "in-commit-timestamps" and rows[-1][0] == "all"
    assert markdown(rows).startswith("| area | mine 1 | other |\n| --- | --- | --- |\n")
    assert sum(mine["summary"].values()) == len(LATE)


def test_exported_cases_need_nothing_else(tmp_path: Path) -> None:
    """The exported tables equal the tables that the cases build, and both forms of export contain the same rows."""
    chosen = [LATE["ict-late-exact-enablement"], LATE["ict-late-before-first"]]
    assert export_cases(tmp_path / "out", chosen) == 2
    index = json.loads((tmp_path / "out/index.json").read_text())
    assert [case["id"] for case in index["cases"]] == [case.id for case in chosen]
    place = tmp_path / "out/ict-late-exact-enablement"
    case = json.loads((place / "case.json").read_text())
    assert case["steps"] == [{"step": "rows", "expect": "expected_1", "at_ms": minute(10)}]
    for name, ms in json.loads((place / "file_times.json").read_text()).items():
        os.utime(place / "table" / name, (ms / 1000, ms / 1000))
    rows = DeltaTable.open(str(place / "table")).snapshot(timestamp=case["steps"][0]["at_ms"]).scan().to_arrow()
    assert sorted(rows.to_pylist(), key=str) == json.loads((place / "expected_1.json").read_text())
    assert pq.read_table(place / "expected_1.parquet").to_pylist() == ids(3)
    refused = json.loads((tmp_path / "out/ict-late-before-first/case.json").read_text())["steps"][0]
    assert refused["step"] == "refused" and refused["of"]["step"] == "rows"
    with pytest.raises(PathExistsError):
        export_cases(tmp_path / "out", chosen)


def test_an_export_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        export_cases(tmp_path / name, [case for case in all_cases() if "cleaned" in case.id])
    files = [path.relative_to(tmp_path / "one") for path in sorted((tmp_path / "one").rglob("*")) if path.is_file()]
    assert len(files) > 50
    assert [
        str(file) for file in files if (tmp_path / "one" / file).read_bytes() != (tmp_path / "two" / file).read_bytes()
    ] == []


def test_all_steps_have_a_form_in_json(tmp_path: Path) -> None:
    assert export_cases(tmp_path / "out", all_cases()) == len(all_cases())
    kinds = set()
    for file in (tmp_path / "out").glob("*/case.json"):
        for step in json.loads(file.read_text())["steps"]:
            kinds.add(step["step"])
    page = (ROOT / "docs/conformance-format.md").read_text(encoding="utf-8")
    assert [kind for kind in kinds if f"| `{kind}` |" not in page] == []


# ------------------------------------------------------------------------------------ the pytest plugin


def test_the_plugin_makes_a_test_of_each_case(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["deltalog.conformance.pytest_plugin"]\n')
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent("""
        import pytest
        from deltalog.conformance.engines.deltalog import DeltalogEngine

        class Mine(DeltalogEngine):
            def version_at(self, path, timestamp_ms):
                return 0

        @pytest.fixture(scope="session")
        def conformance_engine():
            return Mine()

        def test_conformance(conformance_case, conformance_engine, check_conformance):
            check_conformance(conformance_engine, conformance_case)
        """)
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--conformance-case", "ict-late-version-at-*",
         "--conformance-area", "in-commit-timestamps"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "5 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "PROTOCOL.md#recommendations-for-readers" in done.stdout
