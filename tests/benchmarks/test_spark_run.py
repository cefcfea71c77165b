from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.run import ROOT
from tests.benchmarks.spark.measurements import KEYS


@pytest.mark.long
def test_every_system_gives_the_answer_of_every_measurement(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.spark", "--quick", "--tables", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len([line for line in done.stdout.splitlines() if " met" in line]) == len(KEYS)


@pytest.mark.long
def test_memory_is_measured_in_a_session_for_each_system(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.spark", "--quick", "--tables", str(tmp_path)]
    command += ["--only", "changes:delete", "--heap", "1g"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if "delete of" in line)
    found = [int(number) for pair in re.findall(r" (\d+), Python (\d+) ", line) for number in pair]
    assert len(found) == 4 and all(10 < number < 2000 for number in found), line
