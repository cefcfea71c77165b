"""Lines for commit files, used to damage several tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.doctor.damaged_tables import Line, commit, read

INFO: Line = {"commitInfo": {"operation": "WRITE", "timestamp": 1}}
NAME = f"{1:020d}"


def metadata_at(path: Path, **fields: Any) -> Line:
    """The metaData action of version 0, with changed fields."""
    body = next(line["metaData"] for line in read(commit(path, 0)) if "metaData" in line)
    return {"metaData": {**body, **fields}}


def protocol(**fields: Any) -> Line:
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, **fields}}
