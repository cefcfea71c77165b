"""The configuration in docs/server-access.md is one that the server accepts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deltalog.server import config

PAGE = Path(__file__).resolve().parents[4] / "docs" / "server-access.md"
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[0])
def test_the_examples_can_be_read(block: str, tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(block)
    found = config.read(config.parse(tmp_path / "server.toml"), "server.toml")
    sections = re.findall(r"^\[(\w+)\]", block, re.M)
    assert sections and all(getattr(found, each) for each in sections)
