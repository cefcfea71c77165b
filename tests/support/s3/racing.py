"""Real processes that append to one table at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from deltalog import DeltaTable
from tests.support.core import ids, rows

_RACER = """
import sys, json
from deltalog import DeltaTable
from tests.support.core import rows
url, options, who, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
table = DeltaTable.open(url, **options)
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
for number in range(count):
    table.append(rows(who * 1000 + number))
"""


def race(url: str, options: dict[str, Any], processes: int, count: int) -> None:
    """Append from several processes at the same time, and check that each commit has its own version."""
    DeltaTable.create(url, rows(1).schema, **options)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, url, json.dumps(options), str(who + 1), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in range(processes)
    ]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.close()
    assert [process.wait(120) for process in started] == [0] * processes
    table = DeltaTable.open(url, **options)
    assert table.version == processes * count
    assert ids(table) == sorted((who + 1) * 1000 + number for who in range(processes) for number in range(count))
