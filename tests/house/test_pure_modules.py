"""A module whose docstring says "Pure." may use no clock, disk, network, threads or randomness.

The docstrings decide which modules are checked: a module that says "Pure." may import only modules that say so too. A
function whose docstring says "Pure." may use only those names of other modules that are pure themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Modules of the standard library and of dependencies that are pure, that is, whose functions only compute results from
# their arguments.
ALLOWED = {
    *("__future__", "abc", "array", "base64", "binascii", "bisect", "collections", "contextlib", "copy", "dataclasses"),
    *("datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "itertools"),
    *("json", "math", "numbers", "operator", "re", "string", "struct", "textwrap", "types", "typing", "unicodedata"),
    *("urllib.parse", "zlib", "msgspec", "pyarrow", "pyarrow.compute", "pyroaring", "sqlglot", "typing_extensions"),
}
# Names that may be imported from modules that must otherwise not be imported: value types, and parsers of bytes.
ALLOWED_NAMES = {
    "sys": {"float_info", "maxsize"},
    "uuid": {"UUID"},
    "pyarrow.json": {"ParseOptions", "ReadOptions", "read_json"},
    "deltalog.lazy_names": {"lazy_modules"},
    "deltalog.storage.base": {"Entry", "EntryKind", "FileMeta", "PutOutcome", "WalkPart"},
}
# The names in deltalog.lazy_arrow, each with the module that it stands for.
LAZY_ARROW = {"pc": "pyarrow.compute", "pj": "pyarrow.json", "pq": "pyarrow.parquet"}
BUILTINS = {"open", "input", "print", "__import__", "breakpoint"}
# Names that access the clock or files although their modules are allowed.
ATTRIBUTES = {"utcnow", "today", "memory_map", "OSFile", "input_stream", "output_stream", "create_memory_map", "fs"}
# Modules whose docstring contains "Pure." although they are not pure. The test fails if an entry is no longer needed.
BROKEN: set[str] = set()


def modules(root: Path) -> dict[str, ast.Module]:
    """Every module of the package deltalog below a folder, by its dotted name."""
    found = {}
    for path in sorted((root / "deltalog").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def says_pure(node: ast.Module | ast.FunctionDef) -> bool:
    return "Pure." in (ast.get_docstring(node) or "")


def imported(tree: ast.Module) -> dict[str, tuple[str, str | None]]:
    """The origin of each imported name: a module, and the name imported from it."""
    found: dict[str, tuple[str, str | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name] = (each.name, None)
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                is_lazy = node.module == "deltalog.lazy_arrow"
                whole = (LAZY_ARROW[each.name], None) if is_lazy else (node.module or "", each.name)
                found[each.asname or each.name] = whole
    return found


def is_allowed(module: str, name: str | None, trees: dict[str, ast.Module]) -> bool:
    if name is not None and f"{module}.{name}" in trees:
        module, name = f"{module}.{name}", None
    if module in trees:
        return says_pure(trees[module]) or name in ALLOWED_NAMES.get(module, ())
    names = ALLOWED_NAMES.get(module)
    if names is not None:
        return name in names or name is None  # for a module imported as a whole, names are checked where they are used
    return module in ALLOWED or module.split(".")[0] in ALLOWED - {"pyarrow"}


def impurities(tree: ast.Module, trees: dict[str, ast.Module]) -> Iterator[str]:
    """The impure parts of a module whose docstring says "Pure."."""
    names = imported(tree)
    for module, name in names.values():
        if not is_allowed(module, name, trees):
            yield f"imports {name or ''} of {module}"
    yield from used(tree, names)


def used(node: ast.AST, names: dict[str, tuple[str, str | None]]) -> Iterator[str]:
    """The uses of impure builtins and attributes, which access files, the clock or the environment, each with its line
    number."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id in BUILTINS and each.id not in names:
            yield f"line {each.lineno}: {each.id}"
        if not isinstance(each, ast.Attribute):
            continue
        owner = names.get(each.value.id) if isinstance(each.value, ast.Name) else None
        if each.attr in ATTRIBUTES or (each.attr == "now" and "datetime" in ast.unparse(each.value)):
            yield f"line {each.lineno}: {ast.unparse(each)}"
        if owner is not None and owner[1] is None and each.attr not in ALLOWED_NAMES.get(owner[0], {each.attr}):
            yield f"line {each.lineno}: {ast.unparse(each)}"


TREES = modules(ROOT)
PURE = [name for name, tree in TREES.items() if says_pure(tree)]
PROTOCOL = [name for name in TREES if name.startswith("deltalog.protocol.")]


def pure_functions(trees: dict[str, ast.Module]) -> list[tuple[str, ast.FunctionDef]]:
    return [
        (name, node)
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and says_pure(node)
    ]


@pytest.mark.parametrize("name", PURE)
def test_what_calls_itself_pure_is_pure(name: str) -> None:
    found = list(impurities(TREES[name], TREES))
    if name in BROKEN:
        assert found, f"{name} is pure now: take it off the list BROKEN"
        pytest.skip(f"known: {found}")
    assert found == [], f"{name} says that it is pure"


@pytest.mark.parametrize(("name", "node"), pure_functions(TREES), ids=lambda each: getattr(each, "name", str(each)))
def test_a_function_that_calls_itself_pure_uses_only_what_is(name: str, node: ast.FunctionDef) -> None:
    names = imported(TREES[name])
    of_body = {each.id for part in node.body for each in ast.walk(part) if isinstance(each, ast.Name)}
    taken = {each: names[each] for each in of_body & set(names)}
    assert [each for each, (module, what) in taken.items() if not is_allowed(module, what, TREES)] == []
    assert list(used(node, names)) == []


@pytest.mark.parametrize("name", PROTOCOL)
def test_the_protocol_is_pure(name: str) -> None:
    assert says_pure(TREES[name]), f"the docstring of {name} does not say Pure."


def test_deciders_are_pure() -> None:
    """The tests that inject faults are deterministic only if the modules that decide outcomes are pure, so their
    docstrings must keep saying "Pure."."""
    deciders = {"log.segment", "log.replay", "log.checksum", "commit.conflicts", "commit.validate", "catalog.records"}
    assert {f"deltalog.{each}" for each in deciders} <= set(PURE)
    assert set(PURE) >= BROKEN, "BROKEN names modules that do not say Pure."


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("import time", "imports  of time"),
        ("from random import random", "imports random of random"),
        ("from uuid import uuid4", "imports uuid4 of uuid"),
        ("import uuid\nX = uuid.uuid4()", "line 3: uuid.uuid4"),
        ("from pathlib import Path", "imports Path of pathlib"),
        ("import pyarrow.fs", "imports  of pyarrow.fs"),
        ("import pyarrow as pa\nX = pa.memory_map", "line 3: pa.memory_map"),
        ("import datetime\nX = datetime.datetime.now()", "line 3: datetime.datetime.now"),
        ("def f():\n    import threading", "imports  of threading"),
        ("X = open('a')", "line 2: open"),
        ("from deltalog.storage.base import LogStore", "imports LogStore of deltalog.storage.base"),
        ("from deltalog import impure", "imports impure of deltalog"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from deltalog.impure import X", "imports X of"),
    ],
)
def test_the_check_bites(line: str, says: str, tmp_path: Path) -> None:
    package = tmp_path / "deltalog"
    (package / "storage").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "storage/base.py").write_text("")
    (package / "impure.py").write_text("import time")
    (package / "rules.py").write_text(f'"""Rules. Pure."""\n{line}\n')
    trees = modules(tmp_path)
    assert "deltalog.rules" in trees
    found = list(impurities(trees["deltalog.rules"], trees))
    assert len(found) == 1 and found[0].startswith(says), found


def test_values_may_be_imported(tmp_path: Path) -> None:
    package = tmp_path / "deltalog"
    package.mkdir()
    (package / "other.py").write_text('"""Pure."""')
    (package / "rules.py").write_text(
        '"""Pure."""\nimport uuid\nfrom deltalog.other import X\nimport urllib.parse\nY = uuid.UUID\nZ = X.now\n'
    )
    trees = modules(tmp_path)
    assert list(impurities(trees["deltalog.rules"], trees)) == []
