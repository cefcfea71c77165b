"""Tests of the temporary directories of killed processes; none of the tests needs a session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from spark_ext.session import scratch
from spark_ext.session.scratch import ScratchDirectory

pytest.importorskip("fcntl")
ROOT = Path(__file__).resolve().parents[2]
PREFIX = "deltalog-test-"
HOLDS_ONE = """
import sys, tempfile, time
from spark_ext.session.scratch import ScratchDirectory
tempfile.tempdir = sys.argv[1]
print(ScratchDirectory("deltalog-test-").path, flush=True)
time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files. This process has not yet searched it for leftover directories."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_searched", set())
    return tmp_path


def made_old(path: Path) -> None:
    hours_ago = time.time() - 7_200
    os.utime(path, (hours_ago, hours_ago))


def test_only_directories_of_processes_that_ended_are_removed(place: Path) -> None:
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLDS_ONE, str(place)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        killed, alive = (Path(holder.stdout.readline().strip()) for holder in holders if holder.stdout)
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        names = ["never-locked", "young", "file", "link"]
        never_locked, young, file, link = (place / f"{PREFIX}{name}" for name in names)
        never_locked.mkdir()
        young.mkdir()
        file.write_text("")
        (place / "another").mkdir()
        link.symlink_to(place / "another", target_is_directory=True)
        (place / "another" / "kept").write_text("")
        for path in (killed, alive, never_locked, file, place / "another"):
            made_old(path)
        made = ScratchDirectory(PREFIX)
        assert sorted(place.iterdir()) == sorted([alive, young, file, link, place / "another", Path(made.path)])
        assert (place / "another" / "kept").exists()
        made.remove()
        assert not os.path.exists(made.path)
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def test_they_are_looked_for_once_and_a_number_at_most(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_MAX_REMOVED", 3)
    for number in range(5):
        (place / f"{PREFIX}{number}").mkdir()
        made_old(place / f"{PREFIX}{number}")
    ScratchDirectory(PREFIX).remove()
    assert len(list(place.iterdir())) == 2
    ScratchDirectory(PREFIX).remove()
    assert len(list(place.iterdir())) == 2
