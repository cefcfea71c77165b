"""The tree in docs/architecture.md has every module, below its package, so that it can be trusted as the map."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TREE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("```")[1]
PACKAGES = ["", *sorted(path.parent.name for path in (ROOT / "deltalog").glob("*/__init__.py"))]


def section(package: str) -> str:
    """The lines of a package, up to the next one of the same depth."""
    if not package:
        return TREE
    found = re.search(rf"^  {package}/.*?(?=^ ? ?\w|\Z)", TREE, re.M | re.S)
    assert found, f"docs/architecture.md has no package {package}"
    return found[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_on_the_map(package: str) -> None:
    modules = {path.stem for path in (ROOT / "deltalog" / package).glob("**/*.py" if package else "*.py")} - {
        "__init__"
    }
    assert modules <= set(re.findall(r"\w+", section(package))), modules - set(re.findall(r"\w+", section(package)))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_line_of_the_map_is_there_twice(package: str) -> None:
    names = re.findall(r"^ {2,4}(\S+)", section(package), re.M)
    assert package == "" or len(names) == len(set(names)), names
