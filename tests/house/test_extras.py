"""Each extra installs the packages that its modules need, and the environment of the quick tests installs the packages
that these tests need.

Each extra is tested in a child process that can import only the packages of this extra, even if this environment has
the packages of all extras.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.house.test_dev import dev  # noqa: F401  (a fixture)
from tests.support.extras import BASE, ROOT, closure, extras, modules_of, requirement, run_with
from tests.support.extras.program import CALLS, PROMISED, modules, needs_of

# Extras that the quick environment always installs. They are listed here so that the check is the same in every
# environment.
ALWAYS = {BASE, "cli", "server"}
QUICK = "deltalog[test-core]"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("extra", extras())
def test_an_extra_brings_what_its_modules_and_calls_need(extra: str) -> None:
    _, missing = closure(requirement(extra))
    if missing and extra not in ALWAYS:
        pytest.skip(f"{', '.join(missing)} not installed: python3 dev.py test --extras {extra}")
    done = run_with(requirement(extra), "both", extra)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ROOT / 'deltalog'}, {extra}: as promised" in done.stdout


def test_a_package_that_is_missing_is_noticed() -> None:
    """The child process cannot import other packages of this environment, such as pytest and the packages of the
    command line."""
    done = run_with("deltalog", "imports", "cli")
    assert done.returncode == 1 and "cli does not install typer" in done.stdout, done.stdout + done.stderr
    done = run_with("deltalog", "calls", "cli")
    assert done.returncode == 1 and "pip install 'deltalog[cli]'" in done.stdout, done.stdout + done.stderr
    done = run_with("deltalog", "collect", "tests/house/test_import_places.py")
    assert done.returncode == 1 and "No module named 'pytest'" in done.stderr


def test_a_module_needs_what_the_modules_that_it_imports_need() -> None:
    """A package that a module needs may also come with another extra: the packages for gs:// and az:// bring urllib3,
    but not botocore."""
    known, seen = set(modules()), 0
    for name in known:
        for other in imported_at_once(name) & known:
            assert set(needs_of(other)) <= set(needs_of(name)), f"{name} imports {other}"
            seen += bool(needs_of(other))
    assert seen > 20


def test_each_extra_has_promises() -> None:
    assert set(PROMISED) == set(CALLS) == set(extras())


@pytest.mark.long  # as in .github/workflows/tests.yml
def test_the_quick_tests_are_collected_with_what_they_install(dev) -> None:  # noqa: F811
    done = run_with(QUICK, "collect", *(suite for lane in dev.QUICK for suite in lane))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "urllib3" not in done.stderr


@pytest.mark.long  # takes 20 seconds; the same check as in .github/workflows/tests.yml
def test_mypy_needs_no_package_that_the_quick_tests_do_not_install() -> None:
    """mypy must not report that other imported packages are absent."""
    installed = modules_of(closure(QUICK)[0])
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [ignored] = re.findall(r"^module = \[([^\]]*)\]\nignore_missing_imports = true", pyproject, re.M)
    known = {
        *installed,
        *sys.stdlib_module_names,
        *re.findall(r'"(\w+)\.\*"', ignored),
        "deltalog",
        "spark_ext",
        "examples",
        "tests",
        "dev",
    }
    unknown = {
        (name, str(file.relative_to(ROOT)))
        for top in ("deltalog", "spark_ext", "examples", "tests")
        for file in (ROOT / top).rglob("*.py")
        for name in imported(file)
        if name not in known
    }
    assert unknown == set()


def imported_at_once(module: str) -> set[str]:
    """The modules that a module imports when it is itself imported, and the imported names that may also be modules."""
    place = ROOT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names = set[str]()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return names


def imported(file: Path) -> set[str]:
    """The top-level names of the packages that a file imports, at any place in the file."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names
