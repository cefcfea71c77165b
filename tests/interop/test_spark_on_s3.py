"""delta-spark and spark_ext on tables in a bucket of a local S3 server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.s3 import Server

_ROOT = Path(__file__).resolve().parents[2]


def test_delta_spark_and_spark_ext_read_and_append_to_tables_of_each_other(ministack: Server) -> None:
    command = [sys.executable, "-m", "tests.interop.spark_on_s3", f"s3://{ministack.bucket()}/tables"]
    done = subprocess.run(
        command, input=json.dumps(ministack.options()), cwd=_ROOT, env=dict(os.environ),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    every = [[str(number), str(number % 3), str(number)] for number in range(20)]
    ours = sorted([*every, *every[:5], *every[18:]])
    assert found["rows"] == [[ours, ours], [sorted(every), sorted(every)]]
    assert found["versions"] == [0, 2, 1] and found["old"] == [20, 25]
    created, appended = found["in_commit_timestamps"]
    assert found["instants"][::2] == [created, appended]
    assert created < found["instants"][1] < appended
