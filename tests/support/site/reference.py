"""Writes docs/reference: a page for each public module, with a directive of mkdocstrings for each public name.

``python -m tests.support.site.reference`` writes the pages. The site shows the docstrings in place of the directives.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

from deltalog.errors import DeltaLogError
from tests.support.public_names import HOMES

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"
#: Every public module whose names have a page, besides ``deltalog.errors``: docs/errors.md has its names.
MODULES = (*HOMES, "deltalog.testing", "deltalog.conformance", "deltalog.deltalake", "spark_ext")
#: Classes with so many members that each has a page of its own, by module.
OWN_PAGES = {"deltalog": ("DeltaTable", "TransactionManager"), "spark_ext": ("DeltaTable",)}
NOTE = "<!-- written by python -m tests.support.site.reference -->\n"
WHOLE_MODULE = "    options:\n      members: false\n      show_root_heading: false\n      show_root_toc_entry: false\n"


def pages() -> dict[str, str]:
    """The text of each page, by its file name."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(name)
        found[f"{name}.md"] = _module_page(name, module)
        for each in OWN_PAGES.get(name, ()):
            shown = _directive(f"{name}.{each}", getattr(module, each))
            found[f"{name}.{each}.md"] = f"# `{name}.{each}`\n\n{NOTE}\n{shown}"
    return found


def names_of(module: ModuleType) -> tuple[list[str], list[str], list[str]]:
    """The names of a public module: those with a directive, the error classes, and the public modules in it."""
    shown, errors, modules = list[str](), list[str](), list[str]()
    for name in module.__all__:
        value = getattr(module, name)
        is_error = inspect.isclass(value) and value.__module__ == "deltalog.errors"
        (modules if inspect.ismodule(value) else errors if is_error else shown).append(name)
    return shown, errors, modules


def _module_page(name: str, module: ModuleType) -> str:
    shown, errors, modules = names_of(module)
    own = OWN_PAGES.get(name, ())
    parts = [f"# `{name}`\n\n{NOTE}\n::: {name}\n{WHOLE_MODULE}"]
    if own:
        links = ", ".join(f"[`{each}`]({name}.{each}.md)" for each in own)
        parts.append(f"On pages of their own: {links}.\n")
    if modules:
        pages_of = {f"{name}.{each}": f"{name}.{each}.md" for each in modules} | {"deltalog.errors": "../errors.md"}
        links = ", ".join(f"[`{name}.{each}`]({pages_of[f'{name}.{each}']})" for each in modules)
        parts.append(f"Modules: {links}.\n")
    if errors:
        links = ", ".join(f"[`{each}`](../errors.md#{each.lower()})" for each in errors)
        parts.append(f"Errors: {links}.\n")
    parts += [_directive(f"{name}.{each}", getattr(module, each)) for each in shown if each not in own]
    return "\n".join(parts)


def _directive(identifier: str, value: object) -> str:
    """The directive for a name. An error has the members of its base, which the catalogue of errors describes."""
    is_error = inspect.isclass(value) and issubclass(value, DeltaLogError)
    return f"::: {identifier}\n" + "    options:\n      members: false\n" * is_error


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    texts = pages()
    for page in FOLDER.glob("*.md"):
        if page.name not in texts:
            page.unlink()
    for page_name, text in texts.items():
        (FOLDER / page_name).write_text(text, encoding="utf-8")
