"""ruff and mypy as tests, so that one command runs every check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]


def test_ruff_check() -> None:
    run("ruff", "check", ".")


def test_ruff_format() -> None:
    run("ruff", "format", "--check", "--exclude", "*.md", ".")


def test_mypy_strict() -> None:
    run("mypy")


def test_mypy_strict_of_the_scripts() -> None:
    run("mypy", "dev.py", "scripts")


def test_the_checks_find_something(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text("import os, sys\n\nx: int = 'a'\n")
    config = str(ROOT / "pyproject.toml")
    for command in (
        ["ruff", "check", "--no-cache", "--config", config, str(file)],
        ["ruff", "format", "--check", "--no-cache", "--config", config, str(file)],
    ):
        with pytest.raises(AssertionError, match=r"wrong\.py"):
            run(*command)
