"""Imports are at the top of a module, and never inside ``if TYPE_CHECKING``. The test fails if a listed exception is no
longer needed.
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

# Modules that import other modules of deltalog inside functions, or for type checkers only, and why.
START = "each command imports what it needs, so that --help and --version answer at once"
EXTRA = "the module needs a package that is an extra"
LAZY_IMPORTS = {
    "deltalog/addresses.py": "a program that opens no catalog imports none",
    "deltalog/catalog/locate.py": "a program imports only the kind of catalog that it opens",
    "deltalog/cli/catalog.py": START,
    "deltalog/cli/catalog_versions.py": START,
    "deltalog/cli/commit_tables.py": START,
    "deltalog/cli/commands.py": START,
    "deltalog/cli/conformance.py": START,
    "deltalog/cli/copies.py": START,
    "deltalog/cli/grants.py": START,
    "deltalog/cli/inspection.py": START,
    "deltalog/cli/main.py": START,
    "deltalog/cli/options.py": START,
    "deltalog/cli/tokens.py": START,
    "deltalog/cli/ui.py": START,
    "deltalog/cli/views.py": START,
    "deltalog/doctor/catalog_state.py": "only the table of a Unity Catalog needs its module",
    "deltalog/server/observe/observation.py": EXTRA,
    "deltalog/storage/s3/client.py": "botocore takes half a second to load, and most requests do without",
    "deltalog/unity/http.py": EXTRA,
    "deltalog/unity/opening.py": EXTRA,
    "deltalog/storage/registry.py": "each kind of store, and the package that it needs, is imported when one is opened",
    "spark_ext/stream/registration.py": "PySpark 3.5 lacks the names that it imports",
}
TYPE_IMPORTS = {
    "deltalog/__init__.py": "public names are imported at their first use",
    "deltalog/catalog/__init__.py": "as above",
    "deltalog/conformance/__init__.py": "as above",
    "deltalog/storage/__init__.py": "as above",
    "deltalog/transactions/__init__.py": "as above",
    "deltalog/addresses.py": "a program that opens no catalog imports none",
    "deltalog/errors.py": "``import deltalog`` imports the errors and as little else as possible",
    "deltalog/catalog/locate.py": "a program imports only the kind of catalog that it opens",
    "deltalog/cli/catalog.py": START,
    "deltalog/cli/commit_tables.py": START,
    "deltalog/cli/commands.py": START,
    "deltalog/cli/conformance.py": START,
    "deltalog/cli/grants.py": START,
    "deltalog/cli/options.py": START,
    "deltalog/cli/tokens.py": START,
    "deltalog/cli/ui.py": START,
    "deltalog/cli/views.py": START,
    "deltalog/server/observe/observation.py": EXTRA,
    "deltalog/storage/dynamodb/lease_commits.py": EXTRA,
    "deltalog/storage/registry.py": "each kind of store is imported when one is opened",
    "deltalog/storage/s3/client.py": "as above",
    "deltalog/storage/dynamodb/spark_log_store.py": EXTRA,
    "deltalog/unity/http.py": EXTRA,
}


def lazy_imports(tree: ast.Module) -> Iterator[str]:
    """The modules of deltalog and spark_ext that are imported inside functions of a module."""
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from own_imports(function)


def type_imports(tree: ast.Module) -> Iterator[str]:
    """Modules of deltalog and spark_ext that are imported only for type checkers, and that ``lazy_modules`` does not
    import at run time either."""
    for node in type_checks(tree):
        lazy = set(modules_at_first_use(node).values())
        yield from (name for name in own_imports(node) if name not in {each.rpartition(".")[0] for each in lazy})


def type_checks(tree: ast.Module) -> Iterator[ast.If]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).split(".")[-1] == "TYPE_CHECKING":
            yield node


def modules_at_first_use(node: ast.If) -> dict[str, str]:
    """The arguments of ``lazy_modules`` in the ``else`` branch of ``if TYPE_CHECKING``: full names of modules, keyed by
    the name of the global variable."""
    found = dict[str, str]()
    for each in node.orelse:
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            call = each.value
            if ast.unparse(call.func) == "lazy_modules":
                full = [ast.literal_eval(argument) for argument in call.args[1:]]
                found |= {name.rpartition(".")[2]: name for name in full}
                found |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    return found


def modules_for_types(node: ast.If) -> dict[str, str]:
    """The imports in the body of ``if TYPE_CHECKING``: full names, keyed by the name of the global variable."""
    found = dict[str, str]()
    for each in node.body:
        if isinstance(each, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{each.module}.{alias.name}" for alias in each.names}
        elif isinstance(each, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in each.names}
    return found


def own_imports(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        names = [each.module or ""] if isinstance(each, ast.ImportFrom) else []
        names += [alias.name for alias in each.names] if isinstance(each, ast.Import) else []
        yield from (name for name in names if name.split(".")[0] in ("deltalog", "spark_ext"))


def test_own_modules_are_imported_at_the_top() -> None:
    assert {name for name, tree in TREES.items() if [*lazy_imports(tree)]} == set(LAZY_IMPORTS)


def test_own_modules_are_not_imported_for_types_only() -> None:
    assert {name for name, tree in TREES.items() if [*type_imports(tree)]} == set(TYPE_IMPORTS)


def test_type_checkers_see_the_modules_that_are_imported_at_their_first_use() -> None:
    different = {}
    for name, tree in TREES.items():
        for node in type_checks(tree):
            lazy, typed = modules_at_first_use(node), modules_for_types(node)
            if any(typed.get(alias) != full for alias, full in lazy.items()):
                different[name] = set(lazy.items()) - set(typed.items())
    assert different == {}


def test_modules_imported_at_their_first_use_are_not_imported_at_once_besides() -> None:
    """No module of deltalog is both declared as lazy and imported at once by the same module."""
    twice = set()
    for name, tree in TREES.items():
        lazy = {full for node in type_checks(tree) for full in modules_at_first_use(node).values()}
        at_once = {each.module for each in tree.body if isinstance(each, ast.ImportFrom)}
        twice |= {(name, full) for full in lazy & at_once}
    assert twice == set()


def test_the_checks_find_something() -> None:
    lazy = ast.parse("import os\ndef f():\n    from deltalog import errors\n    import json")
    assert [*lazy_imports(lazy)] == ["deltalog"]
    typed = ast.parse("import typing\nif typing.TYPE_CHECKING:\n    import deltalog.table\n    import json")
    assert [*type_imports(typed)] == ["deltalog.table"]
    at_first_use = ast.parse(
        "if TYPE_CHECKING:\n    from deltalog.rows import delete\n"
        "else:\n    lazy_modules(__name__, 'deltalog.rows.delete')"
    )
    assert [*type_imports(at_first_use)] == []
    [node] = type_checks(at_first_use)
    assert modules_at_first_use(node) == modules_for_types(node) == {"delete": "deltalog.rows.delete"}
