"""Runs the Python code blocks of pages in docs/ with Spark: the blocks of a page in order, in one namespace.

On the pages of docs/start and docs/how-to, a block of text after such a block is what it prints.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import pages

_DOCS = Path(__file__).resolve().parents[2] / "docs"
STREAMING = _DOCS / "streaming.md"
REFERENCE = _DOCS / "spark-reference.md"
_PIPELINE = _DOCS / "spark.md"
CHANGING_ROWS = _DOCS / "changing-rows.md"
MAINTENANCE = _DOCS / "maintenance.md"
TASKS = [
    page
    for folder in pages.FOLDERS
    for page in sorted((_DOCS / folder).glob("*.md"))
    if any(block.language == "python" and block.mark == "spark" for block in pages.blocks(page))
]
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


def run_task(spark: Any, directory: Path, page: Path) -> int:
    """Run the blocks of a page of docs/start or docs/how-to, except the one that creates a session, and compare what
    they print with the page. Returns their number."""
    names: dict[str, Any] = {"spark": spark}
    printed, number = "", 0
    for block in pages.blocks(page):
        if block.language == "text" and block.follows == "python spark":
            difference = pages.differs(block.text.splitlines(), printed.splitlines(), str(directory))
            assert difference is None, f"{page.name}:{block.line}: {difference}"
        if block.mark != "spark" or "SparkSession.builder" in block.text:
            continue
        code = block.text.replace("/tmp/deltalog-spark", str(directory))
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile("\n" * (block.line - 1) + code, str(page), "exec"), names)
        printed = output.getvalue()
        number += 1
    return number


def run_pipeline(spark: Any, directory: Path, lake: str | None = None, store: Mapping[str, Any] | None = None) -> int:
    """Run the pipeline with its tables below ``lake``: a directory on the local disk, or a URL that is accessed with
    the storage options ``store``."""
    changed = {} if lake is None else {_LAKE: repr(lake), _STORE: f"store = {dict(store or {})!r}"}
    return run(spark, directory, _PIPELINE, changed)
