"""The site builds without a warning and without a network, and has a page for everything that is public.

The build itself checks every link and every anchor, and fails if one leads nowhere.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers")
#: Attributes of elements by which a browser loads something.
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\s\"'>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; the extra docs needs Python 3.11")
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT, capture_output=True, text=True, timeout=500, check=False,
        # Every request to another machine would fail.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    assert "WARNING" not in done.stderr
    return place


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    loaded = {page.name: found for page in pages if (found := LOADED.findall(page.read_text(encoding="utf-8")))}
    assert {name: urls for name, urls in loaded.items() if any("canonical" not in url for url in urls)} == {}
    assert "https://" not in " ".join(re.findall(r"url\([^)]*\)", (site / "assets/site.css").read_text()))


def test_it_can_be_searched_without_a_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = ") and "in-commit timestamps" in index
    assert (site / "assets" / "iframe-worker.js").exists()
