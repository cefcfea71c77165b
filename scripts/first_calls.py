"""The first calls of a user, in an environment into which deltalog[cli] was installed from its wheel. Prints the
versions.

Uses nothing of the repository, and refuses to run with a deltalog that is not installed.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow as pa

import deltalog
from deltalog import DeltaTable

SHOWN = ("pyarrow", "msgspec", "sqlglot", "typer")


def main() -> None:
    packages = Path(sysconfig.get_path("purelib"))
    assert Path(deltalog.__file__).is_relative_to(packages), deltalog.__file__
    assert (packages / "deltalog" / "py.typed").exists() and (packages / "spark_ext" / "py.typed").exists()

    events = DeltaTable.create("events", pa.schema([("id", pa.int64()), ("what", pa.string())]),
                               properties={"delta.enableInCommitTimestamps": "true"})  # fmt: skip
    first = events.append(pa.table({"id": [1, 2], "what": ["view", "click"]}))
    events.append(pa.Table.from_pylist([{"id": 3, "what": "buy"}]))
    assert DeltaTable.open("events").snapshot().scan().to_arrow().sort_by("id")["id"].to_pylist() == [1, 2, 3]
    assert events.snapshot(timestamp=first.timestamp_ms).version == 1
    events.delete("id = 1")
    assert events.snapshot().scan(where="what <> 'buy'").to_arrow()["id"].to_pylist() == [2]

    version = importlib.metadata.version("deltalog")
    command = Path(sysconfig.get_path("scripts")) / "deltalog"
    assert version in said(str(command), "--version")
    assert "3" in said(str(command), "info", "events")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in SHOWN)
    print(f"deltalog {version} on Python {sys.version.split()[0]} with {versions}: the first calls work")


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
