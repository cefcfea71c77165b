"""Public names have docstrings; a module that implements a part of the protocol cites the section of PROTOCOL.md."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import deltalog
import deltalog.protocol
from tests.support.protocol_sections import ANCHORS, named_in
from tests.support.public_names import HOMES


def modules() -> list[str]:
    found = [
        module.name
        for module in pkgutil.walk_packages(deltalog.__path__, "deltalog.")
        if not module.ispkg and not module.name.startswith(("deltalog.cli", "deltalog.testing"))
    ]
    return sorted(found)


def public_members(face: ModuleType) -> list[tuple[str, Any]]:
    """Every public class and function of the package, and every public method and property of its own classes."""
    found: list[tuple[str, Any]] = []
    for name in face.__all__:
        value = getattr(face, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        found.append((name, value))
        if not inspect.isclass(value):
            continue
        own = [each for each in reversed(value.__mro__) if each is value or value is deltalog.DeltaTable]
        for member, raw in {name: raw for each in own for name, raw in vars(each).items()}.items():
            if member.startswith("_"):
                continue
            raw = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
            if inspect.isfunction(raw) or isinstance(raw, property) or hasattr(raw, "func"):
                found.append((f"{name}.{member}", raw))
    return found


@pytest.mark.parametrize("face", ["deltalog", "spark_ext"])
def test_public_functions_and_methods_have_docstrings(face: str) -> None:
    if face == "spark_ext":
        pytest.importorskip("pyspark")
    homes = HOMES if face == "deltalog" else [face]
    members = [member for home in homes for member in public_members(importlib.import_module(home))]
    assert len(members) > (100 if face == "deltalog" else 5)
    without = [name for name, value in members if not (value.__doc__ or "").strip()]
    # Members that need no docstring: their names are self-explanatory, and the docstring of their class explains
    # everything else.
    plain = {name for name in without if name.rsplit(".", 1)[-1] in PLAIN}
    assert set(without) - plain == set()


PLAIN = frozenset(
    {"version", "protocol", "metadata", "partition_columns", "names", "txn_id", "operation", "to_json"}
    | {"operation_parameters", "operation_metrics", "user_metadata", "engine_info", "read_version", "totals"}
    | {"isolation_level", "is_blind_append"}
)


def source_of(name: str) -> str:
    """The source of a module, found without importing it, since packages of an extra may not be installed."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", modules())
def test_every_module_has_a_docstring(name: str) -> None:
    assert (ast.get_docstring(ast.parse(source_of(name))) or "").strip(), f"{name} has no docstring"


# The protocol does not specify Arrow, deltalog's limits, or how Spark declares char(n).
NOT_OF_THE_PROTOCOL = {"deltalog.protocol.arrow_types", "deltalog.protocol.limits", "deltalog.protocol.char_varchar"}


@pytest.mark.parametrize("name", [name for name in modules() if name.startswith("deltalog.protocol.")])
def test_every_module_of_the_spec_names_its_section(name: str) -> None:
    docstring = importlib.import_module(name).__doc__ or ""
    if name in NOT_OF_THE_PROTOCOL:
        assert "PROTOCOL.md" not in docstring
        return
    assert re.search(r"^Spec: PROTOCOL\.md#[a-z]", docstring, re.M), f"{name} names no section of PROTOCOL.md"


@pytest.mark.parametrize("name", modules())
def test_sections_that_are_named_exist(name: str) -> None:
    for anchor in named_in(source_of(name)):
        assert anchor in ANCHORS, f"{name}: PROTOCOL.md has no section #{anchor}"


def test_the_list_of_anchors_is_one() -> None:
    assert {"in-commit-timestamps", "action-reconciliation", "per-file-statistics", "json-checksum"} <= ANCHORS
    assert all(re.fullmatch(r"[a-z0-9_-]+", anchor) for anchor in ANCHORS)
