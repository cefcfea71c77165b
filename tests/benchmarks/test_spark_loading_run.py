from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.benchmarks.run import ROOT
from tests.benchmarks.spark_loading import ROWS


@pytest.mark.long
def test_every_system_loads_all_rows_and_deltalog_without_a_job() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.spark_loading", "40", "--repeats", "1", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    systems = {name: found[name] for name in ("deltalog", "delta-spark", "parquet")}
    assert {values["rows"] for values in systems.values()} == {40 * ROWS}
    assert systems["deltalog"]["jobs"] == 0
