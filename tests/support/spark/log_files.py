"""Access to the files in `_delta_log` directories: commits, modification times, timestamps."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

_COMMIT = re.compile(r"^(\d{20})\.json$")


def commits(table: Path) -> dict[int, Path]:
    """The commit files, keyed by version, in ascending order."""
    found = {}
    for path in sorted((table / "_delta_log").iterdir()):
        match = _COMMIT.match(path.name)
        if match:
            found[int(match.group(1))] = path
    return found


def actions(commit: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines() if line.strip()]


def in_commit_timestamps(table: Path) -> dict[int, int | None]:
    """Each commit's `inCommitTimestamp`, taken from the first action of the commit without using deltalog."""
    return {
        version: actions(path)[0].get("commitInfo", {}).get("inCommitTimestamp")
        for version, path in commits(table).items()
    }


def drop_below(path: Path, version: int) -> None:
    """Delete the commits before a checkpoint with their `.crc` files (and Hadoop's `.crc` side files), as log cleanup
    does."""
    for file in list((path / "_delta_log").iterdir()):
        digits = re.match(r"\.?(\d{20})\.", file.name)
        if digits and int(digits.group(1)) < version:
            file.unlink()


def get_mtimes(table: Path) -> dict[str, int]:
    """The modification time in ms of each file in the log directory, keyed by name."""
    files = sorted(path for path in (table / "_delta_log").iterdir() if path.is_file())
    return {path.name: path.stat().st_mtime_ns // 1_000_000 for path in files}


def set_mtimes(table: Path, times: dict[str, int]) -> None:
    for name, ms in times.items():
        ns = ms * 1_000_000
        os.utime(table / "_delta_log" / name, ns=(ns, ns))
