"""Measures the writing of checkpoints, in the worker process; each checkpoint is written to a fresh copy of the table's
log."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def checkpoints(system: Any, spec: dict[str, Any], clock: Any) -> list[Any]:
    """Open the table and write a checkpoint of its latest version; report the size of the checkpoint too."""
    answers: list[Any] = []
    begun = time.perf_counter()
    for number in range(1 + spec["repeats"]):
        if number and time.perf_counter() - begun > spec["budget_s"]:
            break
        with tempfile.TemporaryDirectory(dir=Path(spec["root"]).parent) as scratch:
            log = Path(shutil.copytree(Path(spec["root"]) / "_delta_log", Path(scratch) / "_delta_log"))
            before = {path for path in log.rglob("*") if path.is_file()}
            with clock:
                system.checkpoint(scratch)
            clock.remember(system)
            written = [path for path in log.rglob("*") if path.is_file() and path not in before]
            clock.details.append({"written_mib": sum(path.stat().st_size for path in written) / 2**20})
            files = [path for path in written if path.suffix == ".parquet"]
            answers.append({"right": spec["questions"][0]["right"], "got": {"files": sum(map(_adds_in, files))}})
    return answers


_COUNT = """
import sys, pyarrow.parquet as pq
print(sum(len(batch) - batch.flatten()[0].null_count
          for batch in (b.column("add") for b in pq.ParquetFile(sys.argv[1]).iter_batches(columns=["add.path"]))))
"""


def _adds_in(path: Path) -> int:
    """The number of add actions in a Parquet file of a checkpoint, counted by a separate process so that its memory is
    not measured."""
    done = subprocess.run([sys.executable, "-c", _COUNT, str(path)], capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout))
