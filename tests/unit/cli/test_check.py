"""``deltalog check``: output as readable text and as JSON, exit status, SARIF, repairs."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.doctor import damaged_tables as tables


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deltalog.cli.main", "check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def document(*arguments: object) -> tuple[int, Any]:
    done = run(*arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_healthy_table_exits_with_0(tmp_path: Path) -> None:
    tables.plain(tmp_path / "t")
    done = run(tmp_path / "t")
    assert done.returncode == 0 and "No findings." in done.stdout, done.stderr
    status, report = document(tmp_path / "t", "--deep")
    assert status == 0 and report["ok"] and report["examined"]["rows"] == 9


def test_an_error_exits_with_1_and_a_warning_with_0(tmp_path: Path) -> None:
    tables.timed(tmp_path / "t")
    tables.copied_earlier(3)(tmp_path / "t")
    done = run(tmp_path / "t")
    assert done.returncode == 1 and "ict-not-increasing" in done.stdout
    status, report = document(tmp_path / "t")
    assert status == 1 and report["counts"]["error"] >= 1
    [finding] = [each for each in report["findings"] if each["rule"] == "ict-not-increasing"]
    assert finding["version"] == 3 and finding["section"] == "writer-requirements-for-in-commit-timestamps"
    tables.plain(tmp_path / "u")
    tables.copy(f"{1:020d}.json", "99.json")(tmp_path / "u")
    assert run(tmp_path / "u").returncode == 0


def test_wrong_usage_exits_with_2(tmp_path: Path) -> None:
    assert run().returncode == 2
    assert run(tmp_path, "--dry-run").returncode == 2


def test_sarif(tmp_path: Path) -> None:
    tables.plain(tmp_path / "t")
    tables.data_file(tmp_path / "t").unlink()
    file = tmp_path / "findings.sarif"
    assert run(tmp_path / "t", "--sarif", file).returncode == 1
    log = json.loads(file.read_text())
    [one] = log["runs"]
    assert log["version"] == "2.1.0" and one["tool"]["driver"]["name"] == "deltalog"
    [result] = [each for each in one["results"] if each["ruleId"] == "data-file-missing"]
    assert (
        result["level"] == "error" and one["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "data-file-missing"
    )
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith(".parquet")


def test_repairs_are_shown_and_carried_out(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tables.timed_late(path)
    tables.configure(4, delta_inCommitTimestampEnablementTimestamp=None)(path)
    commits = len(list(tables.log(path).glob("*.json")))
    done = run(path, "--repair", "--dry-run")
    assert done.returncode == 1 and "Turn in-commit timestamps off and on again" in done.stdout
    assert len(list(tables.log(path).glob("*.json"))) == commits
    status, report = document(path, "--repair")
    assert status == 0 and report["ok"] and {each["error"] for each in report["repairs"]} == {None}
    assert len(list(tables.log(path).glob("*.json"))) == commits + 2


def test_a_repair_does_not_end_well_while_the_newest_commit_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tables.plain(path).flush()
    newest = max(tables.log(path).glob("*.json"))
    newest.unlink()
    before = {file: file.read_bytes() for file in tables.log(path).iterdir()}
    done = run(path, "--repair")
    assert done.returncode == 1 and "latest-commit-missing" in done.stdout
    assert "Nothing can be repaired" in done.stdout
    assert {file: file.read_bytes() for file in tables.log(path).iterdir()} == before


def on_a_terminal(*arguments: object) -> tuple[str, str]:
    """Standard output and standard error of a check whose standard error is a terminal."""
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "deltalog.cli.main", "check", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, text=True, env=environment) as process:
        os.close(end)
        output, _ = process.communicate(timeout=120)
    shown = b""
    with os.fdopen(terminal, "rb", buffering=0) as source, contextlib.suppress(OSError):  # EIO at the end
        while part := source.read(4096):
            shown += part
    return output, shown.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_progress_is_shown_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    tables.timed(tmp_path / "t")
    output, shown = on_a_terminal(tmp_path / "t")
    assert "No findings." in output and "Checked 3 of 3 footers" in shown
    output, shown = on_a_terminal(tmp_path / "t", "--json")
    assert json.loads(output)["ok"] and shown == ""
    done = run(tmp_path / "t")
    assert done.returncode == 0 and done.stderr == "" and "Checked" not in done.stdout


def test_control_characters_of_a_log_do_not_reach_the_terminal(tmp_path: Path) -> None:
    tables.plain(tmp_path / "t")
    tables.append_commit({"commitInfo": {}}, tables.add_line("\x1b[31mred.parquet"))(tmp_path / "t")
    assert "\x1b" not in run(tmp_path / "t").stdout
