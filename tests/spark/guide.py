"""Runs the Python code blocks of pages in docs/ with Spark: the blocks of a page in order, in one namespace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).resolve().parents[2] / "docs"
STREAMING = _DOCS / "streaming.md"
REFERENCE = _DOCS / "spark-reference.md"
_PIPELINE = _DOCS / "spark.md"
CHANGING_ROWS = _DOCS / "changing-rows.md"
MAINTENANCE = _DOCS / "maintenance.md"
_LAKE, _STORE = '"/tmp/deltalog-spark/lake"', "store = {}"


def run(spark: Any, directory: Path, page: Path = REFERENCE, changed: Mapping[str, str] | None = None) -> int:
    """Run the blocks of a page, except the one that creates a session. Returns their number. ``changed``: replacements
    in the text of the blocks; each text to be replaced must occur on the page."""
    text = page.read_text(encoding="utf-8")
    for old, new in (changed or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    blocks = re.findall(r"^```python spark\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    blocks = [block for block in blocks if "SparkSession.builder" not in block]
    names: dict[str, Any] = {"spark": spark}
    for block in blocks:
        exec(compile(block.replace("/tmp/deltalog-spark", str(directory)), str(page), "exec"), names)
    return len(blocks)


def run_pipeline(spark: Any, directory: Path, lake: str | None = None, store: Mapping[str, Any] | None = None) -> int:
    """Run the pipeline with its tables below ``lake``: a directory on the local disk, or a URL that is accessed with
    the storage options ``store``."""
    changed = {} if lake is None else {_LAKE: repr(lake), _STORE: f"store = {dict(store or {})!r}"}
    return run(spark, directory, _PIPELINE, changed)
