from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from tests.support.cli import MINUTE, Cli, Clock, run, set_file_time


@pytest.fixture
def cli() -> Cli:
    return run


@pytest.fixture
def late(tmp_path: Path) -> Path:
    """Five commits a minute apart, with in-commit timestamps enabled at version 2; each file time is 7 ms later than
    the clock showed when the commit was made.

    Version 0 creates the table, 1 appends 2 rows, 2 enables in-commit timestamps, 3 appends 3 rows, 4 overwrites with 1
    row.
    """
    clock, path = Clock(), tmp_path / "late"
    schema = pa.schema([("id", pa.int64()), ("what", pa.string())])
    table = DeltaTable.create(path, schema, environment=clock.environment())
    steps: list[Callable[[], Any]] = [
        lambda: table.append(pa.table({"id": [1, 2], "what": ["view", "click"]}), user_metadata="first"),
        table.enable_in_commit_timestamps,
        lambda: table.append(pa.table({"id": [3, 4, 5], "what": ["buy", None, "é"]})),
        lambda: table.overwrite(pa.table({"id": [9], "what": ["all"]})),
    ]
    set_file_time(path, 0, clock.now + 7)
    for version, step in enumerate(steps, start=1):
        clock.now += MINUTE
        step()
        set_file_time(path, version, clock.now + 7)
    return path
