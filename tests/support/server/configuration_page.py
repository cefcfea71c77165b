"""Writes docs/server-configuration.md from its text and the docstrings of the settings: ``python -m
tests.support.server.configuration_page``."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from pathlib import Path
from typing import Any

from deltalog.server.config import Config

PAGE = Path(__file__).parents[3] / "docs" / "server-configuration.md"
BEGIN, END = "<!-- sections: begin -->", "<!-- sections: end -->"
_TYPES = {str: "text", int: "integer", float: "number", bool: "true or false"}


def page() -> str:
    """The page with the current sections."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{sections()}{END}{rest.partition(END)[2]}"


def sections() -> str:
    hints = typing.get_type_hints(Config)
    return "".join(_section(f"[{each.name}]", kind_of(hints[each.name])) for each in dataclasses.fields(Config))


def kind_of(hint: Any) -> Any:
    """The dataclass in the type of a section."""
    return next(each for each in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(each))


def _section(title: str, kind: Any) -> str:
    hints = typing.get_type_hints(kind)
    meanings = meanings_of(kind)
    lines = [f"\n### {title}\n", "| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    below = ""
    for each in dataclasses.fields(kind):
        hint = hints[each.name]
        inner = next((part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part)), None)
        if inner is not None:
            brackets = "[{}]" if inner is hint else "[[{}]]"
            below += _section(brackets.format(f"{title.strip('[]')}.{each.name}"), inner)
            continue
        meaning = meanings[each.name].replace("``", "`").replace("|", "\\|")
        lines.append(f"| `{each.name}` | {_type(hint)} | {_default(each)} | {meaning} |")
    return "\n".join(lines) + "\n" + below


def meanings_of(settings: type) -> dict[str, str]:
    """The text about each field in the docstring of a dataclass. Raises StopIteration if a field is missing there."""
    names = [each.name for each in dataclasses.fields(settings)]
    mark = "|".join(names)
    found = {}
    for cls in settings.__mro__[:-1]:
        text = " ".join((cls.__doc__ or "").split())
        parts = re.split(rf"((?:``(?:{mark})``, )*``(?:{mark})``): ", text)
        for named, meaning in zip(parts[1::2], parts[2::2], strict=True):
            for name in re.findall(r"``(\w+)``", named):
                found[name] = meaning.strip()
    for name in names:
        if name not in found:
            found[name] = next(f"see ``{other}``." for other, meaning in found.items() if f"``{name}``" in meaning)
    return {name: found[name] for name in names}


def _type(hint: Any) -> str:
    if hint in _TYPES:
        return _TYPES[hint]
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{each}`" for each in parts)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _type(next(each for each in parts if each is not type(None)))
    if typing.get_origin(hint) is tuple:
        return f"list of {_type(parts[0])}"
    return "table"


def _default(found: dataclasses.Field[Any]) -> str:
    if found.default is dataclasses.MISSING and found.default_factory is dataclasses.MISSING:
        return "required"
    make: Any = found.default_factory
    value = make() if found.default is dataclasses.MISSING else found.default
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value}`" if isinstance(value, str) else f"{value:,}" if isinstance(value, (int, float)) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
