"""Generates the table of members in docs/from-deltalake.md from the modules of ``deltalog.deltalake``, so that no
member can be missing.

``python -m tests.support.deltalake_page`` writes the table.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import deltalog.deltalake as door
from deltalog.deltalake import merging, table, transaction

PAGE = Path(__file__).parents[2] / "docs" / "from-deltalake.md"
BEGIN, END = "<!-- members: written by tests.support.deltalake_page -->\n", "<!-- end of members -->\n"
_FUNCTIONS = ("write_deltalake", "convert_to_deltalake", "rust_core_version", "init_tracing",
              "enable_nanosecond_timestamps", "install", "uninstall")  # fmt: skip
_CLASSES = (
    door.DeltaTable, merging.TableMerger, table.TableAlterer, table.TableOptimizer, door.QueryBuilder, door.Metadata,
    table.ProtocolVersions, door.Schema, door.Field, door.schema.PrimitiveType, door.schema.ArrayType,
    door.schema.MapType, door.schema.StructType, door.schema.VariantType, door.WriterProperties,
    door.ColumnProperties, door.BloomFilterProperties, door.CommitProperties, door.PostCommitHookProperties,
    door.Transaction, transaction.AddAction, transaction.RemoveAction, door.TableFeatures,
)  # fmt: skip
_ERRORS = tuple(getattr(door.exceptions, name) for name in door.exceptions.__all__)


def rendered(text: str) -> str:
    """The page ``text``, with the table between its markers replaced by the current table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{''.join(_lines())}{END}{after}"


def _lines() -> Iterator[str]:
    yield "\n| name | what it does here |\n| --- | --- |\n"
    for name in _FUNCTIONS:
        yield _row(f"{name}({_parameters(getattr(door, name))})", getattr(door, name))
    yield _row("create_table_with_add_actions(…)", transaction.create_table_with_add_actions)
    for found in _CLASSES:
        yield f"| **{found.__name__}** | {_first(found)} |\n"
        for name, member in sorted(_members(found)):
            call = f"({_parameters(member)})" if inspect.isroutine(member) else ""
            yield _row(f".{name}{call}", inspect.getattr_static(found, name))
    yield "| **deltalake.exceptions** | deltalog's errors as deltalake's; the cause has all attributes |\n"
    for error in _ERRORS:
        yield _row(error.__name__, error)
    yield "\n"


def _members(found: type) -> Iterator[tuple[str, object]]:
    for name, member in inspect.getmembers(found):
        own = any(name in vars(base) for base in found.__mro__ if base.__module__.startswith("deltalog.deltalake"))
        documented = inspect.isroutine(member) or isinstance(inspect.getattr_static(found, name), property)
        if own and documented and not name.startswith("_"):
            yield name, member


def _parameters(function: object) -> str:
    names = [
        f"{'*' if each.kind is each.VAR_POSITIONAL else ''}{each.name}"
        for each in inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        if each.name not in ("self", "args", "commit_properties", "post_commithook_properties")
    ]
    return ", ".join(names)


def _row(name: str, found: object) -> str:
    return f"| `{name}` | {_first(found)} |\n"


def _first(found: object) -> str:
    """The first sentence of a docstring, on one line."""
    target = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    text = " ".join((inspect.getdoc(target) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.:;]) (?=[A-Z`])", text, maxsplit=1)[0]
    return sentence.rstrip(".:;").replace("|", r"\|").replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
