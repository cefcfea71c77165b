"""The tree in docs/architecture.md lists every package, names no module that does not exist, and marks the pure
modules. New modules need not be added to this tree.

A line of the tree consists of one package, or of module names separated by two spaces; then three or more spaces; and
then a description. ``(pure)`` at the end of the description applies to all modules in the line, or to the whole
package.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The tree of the installed packages in docs/architecture.md, without the tests.
TREE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("```")[1].partition("\ntests/")[0]
_NAMES = re.compile(r"( *)(\w+(?:/|\.py)?(?:  \w+(?:\.py)?)*)(?: {3,}(\S.*))?")
_TEXT_COLUMN = 20  # a line indented at least this far continues the description above
_MARK = "(pure)"


def entries(tree: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The path of each module or package in the tree, and whether it is marked as pure."""
    lines: list[tuple[int, str, str]] = []
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent >= _TEXT_COLUMN:
            depth, names, text = lines.pop()
            lines.append((depth, names, f"{text} {line.strip()}"))
        elif line.strip():
            match = _NAMES.fullmatch(line)
            assert match, f"neither modules nor a package, or no three spaces before the description: {line!r}"
            lines.append((indent // 2, match[2], match[3] or ""))
    above: list[tuple[str, bool]] = []
    for depth, names, text in lines:
        del above[depth:]
        is_pure = text.endswith(_MARK) or any(marked for _, marked in above)
        for name in names.split():
            yield (*(package for package, _ in above), name.removesuffix("/").removesuffix(".py")), is_pure
        if names.endswith("/"):
            above.append((names.removesuffix("/"), is_pure))


@functools.cache
def modules(package: str) -> dict[tuple[str, ...], bool]:
    """The modules below a package, and whether their docstrings say "Pure."."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        if path.stem != "__init__":
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            found[path.relative_to(ROOT).with_suffix("").parts] = "Pure." in docstring
    return found


@pytest.mark.parametrize("package", ["deltalog", "spark_ext"])
def test_the_map_has_every_package_and_no_module_that_is_gone(package: str) -> None:
    drawn = {path for path, _ in entries(TREE) if path[0] == package}
    packages = {path[:depth] for path in modules(package) for depth in range(1, len(path))}
    assert packages - drawn == set(), "packages that are missing from the tree in docs/architecture.md"
    assert drawn - modules(package).keys() - packages == set(), (
        "in docs/architecture.md, but neither a module nor a package"
    )


def test_no_module_is_on_the_map_twice() -> None:
    paths = [path for path, _ in entries(TREE)]
    assert len(paths) == len(set(paths)), sorted(path for path in paths if paths.count(path) > 1)


@pytest.mark.parametrize("package", ["deltalog", "spark_ext"])
def test_the_map_marks_the_modules_whose_docstrings_say_pure(package: str) -> None:
    """Check the modules that the tree in docs/architecture.md lists, and all modules of the packages that it marks as
    pure."""
    found = modules(package)
    tree = dict(entries(TREE))
    marked = {path for path in found for depth in range(1, len(path) + 1) if tree.get(path[:depth])}
    assert marked - {path for path, is_pure in found.items() if is_pure} == set(), (
        "marked (pure), but their docstrings do not say Pure."
    )
    assert {path for path in tree.keys() & found.keys() if found[path]} - marked == set(), (
        "their docstrings say Pure., but they are not marked"
    )


def test_lines_are_read() -> None:
    tree = """
a/                     a package
  b  c                 two
                       of them (pure)
  d/   (pure)
    e
"""
    assert dict(entries(tree)) == {
        ("a",): False,
        ("a", "b"): True,
        ("a", "c"): True,
        ("a", "d"): True,
        ("a", "d", "e"): True,
    }
    with pytest.raises(AssertionError, match="no three spaces"):
        list(entries("a/\n  b  two words\n"))
