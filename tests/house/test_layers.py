"""import-linter enforces the layers of pyproject.toml."""

from __future__ import annotations

import ast
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
    """The contract of import-linter is effective: if two layers are swapped, import-linter reports the contract as
    broken."""
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
    # pyproject.toml is not parsed with tomllib, because Python 3.10 lacks it.
    return (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[[tool.importlinter.contracts]]")[1:]


def strings(contract: str, key: str) -> list[str]:
    found = re.search(rf"^{key} = \[(.*?)\]", contract, re.M | re.S)
    return re.findall(r'"([^"]+)"', found[1]) if found else []


def layered() -> dict[str, tuple[str, list[list[str]], list[str]]]:
    """For each package: the name of its contract, its layers from top to bottom, and the modules that need no layer."""
    found = {}
    for contract in contracts():
        if 'type = "layers"' in contract and re.search(r"^exhaustive = true$", contract, re.M):
            layers = [re.findall(r"[\w.]+", line) for line in strings(contract, "layers")]
            [name] = re.findall(r'^name = "(.*)"$', contract, re.M)
            for container in strings(contract, "containers"):
                found[container] = name, layers, strings(contract, "exhaustive_ignores")
    return found


def children(package: str, root: Path = ROOT) -> dict[str, set[str]]:
    """For each module and subpackage of a package: the modules of the package that it imports, under the names that the
    layers use."""
    folder = root / package.replace(".", "/")
    found = dict[str, set[str]]()
    for path in sorted(folder.iterdir()):
        files = [path] if path.suffix == ".py" and path.stem != "__init__" else []
        files = sorted(path.rglob("*.py")) if (path / "__init__.py").exists() else files
        if files:
            trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
            found[path.stem] = {name for tree in trees for name in imported(tree, package)} - {path.stem}
    return found


def imported(tree: ast.Module, package: str) -> set[str]:
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    inside = [name.removeprefix(f"{package}.").split(".") for name in names if name.startswith(f"{package}.")]
    return {part for parts in inside for part in (parts[0], ".".join(parts[:2]))}


def advice(module: str, imports: dict[str, set[str]], layers: list[list[str]]) -> str:
    """At which position of a layer contract to insert a module that has no layer: above the modules that it imports,
    below the modules that import it."""
    below = [number for number, line in enumerate(layers) if imports[module] & set(line)]
    above = [n for n, line in enumerate(layers) if any(module in imports.get(name.split(".")[0], ()) for name in line)]
    last, first = min(below, default=len(layers)), max(above, default=-1)
    if last <= first:
        return (
            f"it imports {' | '.join(layers[last])}, and is imported by that or by what is below: no layer can have it"
        )
    if last - first > 1:
        return f'add it to the line "{" | ".join(layers[last - 1])}"'
    return f'add a line "{module}" above the line "{" | ".join(layers[last])}"'


def test_every_package_has_layers() -> None:
    assert set(PACKAGES) - layered().keys() == set(), "give each package a contract of layers in pyproject.toml"


@pytest.mark.parametrize("package", layered())
def test_layers_name_every_module_of_their_package(package: str) -> None:
    name, layers, ignored = layered()[package]
    imports = children(package)
    named = {part for line in layers for each in line for part in (each, each.split(".")[0])}
    missing = [
        f'{package}.{module}: in pyproject.toml, under name = "{name}", {advice(module, imports, layers)}'
        for module in imports.keys() - named - set(ignored)
    ]
    assert not missing, "\n".join(missing)


def test_the_advice_is_a_line_where_the_module_may_stand() -> None:
    layers = [["writer"], ["reader", "schema"], ["rows"]]
    imports = {"writer": {"reader"}, "reader": {"rows"}, "schema": set[str](), "rows": set[str]()}
    assert advice("new", {**imports, "new": set()}, layers) == 'add it to the line "rows"'
    assert advice("new", {**imports, "new": {"rows"}}, layers) == 'add it to the line "reader | schema"'
    assert advice("new", {**imports, "new": {"writer"}}, layers) == 'add a line "new" above the line "writer"'
    between = {**imports, "reader": {"new"}, "new": {"rows"}}
    assert advice("new", between, layers) == 'add a line "new" above the line "rows"'
    assert "no layer can have it" in advice("new", {**imports, "rows": {"new"}, "new": {"writer"}}, layers)
