"""Classes of a size that a reader can hold in the head, and imports that stand where a reader looks for them.

Each list of exceptions must shrink: an entry that is no longer needed fails the test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for package in ("deltalog", "spark_ext")
    for path in sorted((ROOT / package).rglob("*.py"))
}

MAX_PUBLIC_MEMBERS = 25
# A line of the docstring that begins so says why a class has more.
REASON = "Members: "

LARGE_CLASSES: set[str] = set()
# Modules that import others of deltalog inside functions, or for type checkers only, and why.
START = "each command imports what it needs, so that --help and --version answer at once"
EXTRA = "the module needs a package that is an extra"
LAZY_IMPORTS = {
    "deltalog/catalog/locate.py": "a program that opens no catalog imports none, and one of one kind not the other",
    "deltalog/cli/catalog.py": START,
    "deltalog/cli/commit_tables.py": START,
    "deltalog/cli/commands.py": START,
    "deltalog/cli/conformance.py": START,
    "deltalog/cli/copies.py": START,
    "deltalog/cli/inspection.py": START,
    "deltalog/cli/main.py": START,
    "deltalog/cli/options.py": START,
    "deltalog/cli/views.py": START,
    "deltalog/storage/s3/client.py": "botocore takes half a second to load, and most requests do without",
    "deltalog/storage/registry.py": "each kind of store, and the package that it needs, is imported when one is opened",
    "spark_ext/stream/registration.py": "PySpark 3.5 lacks what it imports",
}
TYPE_IMPORTS = {
    "deltalog/__init__.py": "public names are imported at their first use",
    "deltalog/catalog/locate.py": "a program that opens no catalog imports none",
    "deltalog/cli/catalog.py": START,
    "deltalog/cli/commit_tables.py": START,
    "deltalog/cli/commands.py": START,
    "deltalog/cli/conformance.py": START,
    "deltalog/cli/inspection.py": START,
    "deltalog/cli/options.py": START,
    "deltalog/cli/timeline.py": START,
    "deltalog/cli/views.py": START,
    "deltalog/storage/dynamodb/lease_commits.py": EXTRA,
    "deltalog/storage/registry.py": "each kind of store is imported when one is opened",
    "deltalog/storage/s3/client.py": "as above",
    "deltalog/storage/dynamodb/spark_log_store.py": EXTRA,
}


def public_members(node: ast.ClassDef) -> set[str]:
    """Names that a class defines itself: methods, properties and fields."""
    names = set[str]()
    for each in node.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(each.name)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            names.add(each.target.id)
        elif isinstance(each, ast.Assign):
            names.update(target.id for target in each.targets if isinstance(target, ast.Name))
    return {name for name in names if not name.startswith("_")}


def large_classes(name: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and len(public_members(node)) > MAX_PUBLIC_MEMBERS:
            lines = (ast.get_docstring(node) or "").splitlines()
            if not any(line.startswith(REASON) and len(line) > len(REASON) for line in lines):
                yield f"{name}:{node.name}"


def lazy_imports(tree: ast.Module) -> Iterator[str]:
    """Modules of deltalog and spark_ext that are imported inside functions."""
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from own_imports(function)


def type_imports(tree: ast.Module) -> Iterator[str]:
    """Modules of deltalog and spark_ext that are imported for type checkers only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).split(".")[-1] == "TYPE_CHECKING":
            yield from own_imports(node)


def own_imports(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        names = [each.module or ""] if isinstance(each, ast.ImportFrom) else []
        names += [alias.name for alias in each.names] if isinstance(each, ast.Import) else []
        yield from (name for name in names if name.split(".")[0] in ("deltalog", "spark_ext"))


def test_no_class_has_many_public_members_without_a_reason() -> None:
    assert {each for name, tree in TREES.items() for each in large_classes(name, tree)} == LARGE_CLASSES


def test_own_modules_are_imported_at_the_top() -> None:
    assert {name for name, tree in TREES.items() if [*lazy_imports(tree)]} == set(LAZY_IMPORTS)


def test_own_modules_are_not_imported_for_types_only() -> None:
    assert {name for name, tree in TREES.items() if [*type_imports(tree)]} == set(TYPE_IMPORTS)


def test_the_checks_find_something() -> None:
    fields = "\n".join(f"    f{n}: int" for n in range(26))
    for docstring, found in (('"""X."""', ["m:C"]), ('"""X.\n\n    Members: one for each letter.\n    """', [])):
        assert [*large_classes("m", ast.parse(f"class C:\n    {docstring}\n{fields}"))] == found
    lazy = ast.parse("import os\ndef f():\n    from deltalog import errors\n    import json")
    assert [*lazy_imports(lazy)] == ["deltalog"]
    typed = ast.parse("import typing\nif typing.TYPE_CHECKING:\n    import deltalog.table\n    import json")
    assert [*type_imports(typed)] == ["deltalog.table"]
