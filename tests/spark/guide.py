"""Runs the Python blocks of docs/spark.md, in their order, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def run(spark: Any, directory: Path) -> int:
    """The number of blocks run; the one that makes a session is left out."""
    blocks = re.findall(r"^```python spark\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    blocks = [block for block in blocks if "SparkSession.builder" not in block]
    names: dict[str, Any] = {"spark": spark}
    for block in blocks:
        exec(compile(block.replace("/tmp/deltalog-spark", str(directory)), str(GUIDE), "exec"), names)
    return len(blocks)
