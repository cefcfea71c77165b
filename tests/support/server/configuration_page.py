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
    """The page with the sections as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{sections()}{END}{rest.partition(END)[2]}"


def sections() -> str:
    return "".join(_section(each.name, getattr(Config(), each.name)) for each in dataclasses.fields(Config))


def _section(name: str, settings: Any) -> str:
    hints = typing.get_type_hints(type(settings))
    meanings = meanings_of(type(settings))
    lines = [f"\n### [{name}]\n", "| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for each in dataclasses.fields(settings):
        default = _default(getattr(settings, each.name))
        meaning = meanings[each.name].replace("``", "`").replace("|", "\\|")
        lines.append(f"| `{each.name}` | {_type(hints[each.name])} | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def meanings_of(settings: type) -> dict[str, str]:
    """What the docstring of a dataclass says about each field. Raises KeyError if it says nothing of one."""
    names = [each.name for each in dataclasses.fields(settings)]
    text = " ".join((settings.__doc__ or "").split())
    mark = "|".join(names)
    parts = re.split(rf"((?:``(?:{mark})``, )*``(?:{mark})``): ", text)
    found = {}
    for named, meaning in zip(parts[1::2], parts[2::2], strict=True):
        for name in re.findall(r"``(\w+)``", named):
            found[name] = meaning.strip()
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


def _default(value: Any) -> str:
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value}`" if isinstance(value, str) else f"{value:,}" if isinstance(value, (int, float)) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
