"""Writes docs/commands.md, the commands and their options, from the command line itself.

``python -m tests.support.site.commands`` writes the page.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from deltalog.cli.commands import app

PAGE = Path(__file__).resolve().parents[3] / "docs" / "commands.md"
HEAD = """# Commands and options

<!-- written by python -m tests.support.site.commands -->

Every command and option of `deltalog`, as `--help` shows them. [Command line](cli.md) shows what the commands print.

## What many commands take

"""
#: A parameter that means the same in at least this many commands is explained once.
_SHARED_BY = 6
_MARKUP = re.compile(r"\[/?(?:bold|dim|cyan|green|red|yellow|italic|i|b)\]")


def text() -> str:
    shared = _shared()
    sections = "".join(f"\n{part}\n" for part in _sections(get_command(app), "", shared))
    return f"{HEAD}{_table(shared)}\n{sections}"


def _shared() -> list[str]:
    """The rows of the parameters that many commands have, the most frequent first."""
    counts = collections.Counter(row for _, command in commands() for row in _rows(command))
    return [row for row, count in counts.most_common() if count >= _SHARED_BY]


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its full name: ``info``, ``tables list``."""
    yield from _commands(get_command(app), "")


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _sections(group: Any, prefix: str, shared: list[str]) -> Iterator[str]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield f"## {prefix}{name}\n\n{_help(command.help)}"
            for each, inner in _commands(command, f"{prefix}{name} "):
                yield _section("###", each, inner, shared)
        else:
            yield _section("##", f"{prefix}{name}", command, shared)


def _section(mark: str, name: str, command: Any, shared: list[str]) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    usage = " ".join(["deltalog", name, *(_metavar(each) for each in arguments), "[OPTIONS]"])
    parts = [f"{mark} {name}", _help(command.help), f"```text\n{usage}\n```"]
    rows = _rows(command)
    own = [row for row in rows if row not in shared]
    also = ", ".join(row.split(" | ")[0].removeprefix("| ") for row in rows if row in shared)
    parts += [_table(own) if own else "", f"Also {also}." if also else ""]
    examples = _examples(command.epilog)
    if examples:
        parts.append(f"```sh\n{examples}\n```")
    return "\n\n".join(part for part in parts if part)


def _rows(command: Any) -> list[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    return [*(_row(_metavar(each), each) for each in arguments), *map(_option_row, options(command))]


def _table(rows: list[str]) -> str:
    return "| Argument or option | Meaning |\n| --- | --- |\n" + "\n".join(rows)


def options(command: Any) -> list[Any]:
    """The options of a command that its help shows."""
    return [each for each in command.params if each.param_type_name == "option" and not each.hidden]


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _option_row(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    return _row(f"{names}{value}", option)


def _row(name: str, parameter: Any) -> str:
    said = " ".join((getattr(parameter, "help", None) or "").split())
    default = parameter.default
    if default is not None and not callable(default) and str(default) not in ("False", "True", "()", "[]", ""):
        said += f" Default: {default}."
    return f"| `{name}` | {_escaped(said)} |".replace("|  |", "| |")


def _escaped(cell: str) -> str:
    return _MARKUP.sub("", cell).replace("|", r"\|").replace("<", "&lt;").strip()


def _help(said: str | None) -> str:
    return _MARKUP.sub("", re.sub(r"\n[ \t]+", "\n", said or "")).replace("\b", "").replace("<", "&lt;").strip()


def _examples(epilog: str | None) -> str:
    lines = (_MARKUP.sub("", line).strip() for line in (epilog or "").splitlines())
    return "\n".join(line for line in lines if line.startswith("deltalog"))


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
