"""The layers that pyproject.toml draws are checked by import-linter."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for top in ("deltalog", "spark_ext")
    for path in (ROOT / top).rglob("__init__.py")
)
# Packages whose inner layers do not name every module yet. An entry that is no longer needed fails the test.
WITHOUT_CONTRACT: set[str] = set()


@pytest.fixture
def lint_imports() -> list[str]:
    beside_python = Path(sys.executable).parent / "lint-imports"
    found = str(beside_python) if beside_python.exists() else shutil.which("lint-imports")
    assert found, "import-linter is not installed: install the extra `test`"
    return [found, "--no-cache"]


def test_every_module_imports_only_what_is_below_it(lint_imports: list[str]) -> None:
    done = subprocess.run(lint_imports, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


def test_a_broken_layer_is_noticed(lint_imports: list[str], tmp_path: Path) -> None:
    """The contract bites: with two layers changed about it is broken."""
    config = (ROOT / "pyproject.toml").read_text()
    changed = config.replace('    "read",\n    "log",\n', '    "log",\n    "read",\n')
    assert changed != config
    (tmp_path / "pyproject.toml").write_text(changed)
    done = subprocess.run(
        [*lint_imports, "--config", str(tmp_path / "pyproject.toml")],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode != 0, done.stdout + done.stderr
    assert "Layers of deltalog, each importing only what is below it BROKEN" in done.stdout


def contracts() -> list[str]:
    # Not by tomllib, which Python 3.10 does not have.
    return (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[[tool.importlinter.contracts]]")[1:]


def test_every_package_has_layers_that_name_each_of_its_modules() -> None:
    layered = {
        container
        for contract in contracts()
        if 'type = "layers"' in contract and re.search(r"^exhaustive = true$", contract, re.M)
        for listed in re.findall(r"^containers = \[(.*?)\]", contract, re.M | re.S)
        for container in re.findall(r'"([\w.]+)"', listed)
    }
    assert set(PACKAGES) - layered == WITHOUT_CONTRACT
