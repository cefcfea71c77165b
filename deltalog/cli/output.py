"""Output of the commands: tables for people, JSON for scripts, errors on standard error.

Text from a log is untrusted: it reaches a terminal only through ``visible``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from deltalog.presentation.text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# Output to a file or a pipe is not wrapped.
_PLAIN_WIDTH = 200
_MIN_WIDTH = 80


def plain(text: str, style: str = "") -> Text:
    """Text for a table cell, escaped so that no part of it is interpreted as markup."""
    from rich.text import Text

    return Text(visible(text), style=style)


def to_json(value: Any) -> str:
    """One line of ASCII JSON, which is safe on any terminal and in any locale."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(", ", ": "))


class Output:
    """The output of a command, as JSON or as text for people."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, value: Any) -> None:
        """Write one JSON document on a line of its own."""
        sys.stdout.write(to_json(value) + "\n")

    def documents(self, values: Iterable[Any]) -> None:
        """JSON lines."""
        for value in values:
            self.document(value)

    def print(self, *renderables: Any) -> None:
        """Print text to standard output, with strings escaped."""
        for each in renderables:
            show(console_of(sys.stdout), each)

    def shown(self, limit: int | None, people: int = 20) -> int | None:
        """The number of items to show: ``limit`` if it is set (0 means all). If ``limit`` is not set: all items for
        JSON output, ``people`` items for text output."""
        if limit is None:
            return None if self.as_json else people
        return min(limit, sys.maxsize) or None

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A spinner on a terminal's standard error while the block runs."""
        if self.as_json or not (console := console_of(sys.stderr)).is_terminal:
            yield
            return
        with console.status(plain(what)):
            yield

    @contextlib.contextmanager
    def progress(self, first: str, verb: str) -> Iterator[Callable[[str, int, int], None]]:
        """Like ``working``, but with a bar for each step; the arguments of the yielded function are the step, the
        number done and the total."""
        if self.as_json or not (console := console_of(sys.stderr)).is_terminal:
            yield lambda what, done, of: None
            return
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(),
            TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=console, transient=True) as bar:
            step, task = "", bar.add_task(first, total=None)

            def report(what: str, done: int, of: int) -> None:
                nonlocal step, task
                text = visible(f"{verb} {done:,} of {of:,} {what}")
                if what != step:  # the remaining time of a step says nothing about the next
                    bar.remove_task(task)
                    step, task = what, bar.add_task(text, total=of)
                bar.update(task, description=text, completed=done, total=of)

            yield report


def show(console: Console, renderable: Any) -> None:
    """Print to a console with strings escaped. Lines are padded only on a terminal."""
    from rich.table import Table

    each = plain(renderable) if isinstance(renderable, str) else renderable
    lines = not isinstance(each, Table)
    if console.is_terminal or lines:
        console.print(each, soft_wrap=lines)
        return
    with console.capture() as captured:
        console.print(each)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def console_of(stream: Any) -> Console:
    """A console for a stream. Colours and line wrapping are used only on a terminal."""
    from rich.console import Console

    is_terminal = bool(getattr(stream, "isatty", lambda: False)())
    width = None if is_terminal or os.environ.get("COLUMNS") else _PLAIN_WIDTH
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
    # In narrower tables, columns would be cut off; the wrapped lines of a wider table show everything.
    console.width = max(console.width, _MIN_WIDTH)
    return console


def fits(table: Table) -> bool:
    """Whether a table fits on standard output without folding."""
    from rich.measure import Measurement

    console = console_of(sys.stdout)
    unbounded = console.options.update(max_width=1_000_000)
    return Measurement.get(console, unbounded, table).maximum <= console.width


def table_of(title: str | None = None) -> Table:
    """An empty output table, in the style that all commands use."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(
        title=None if title is None else plain(title, "bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        header_style="bold",
        pad_edge=False,
        collapse_padding=True,
    )


def facts_of(facts: Iterable[tuple[str, str | Text]]) -> Table:
    """A table of two columns: the names and the values."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(plain(name), plain(value) if isinstance(value, str) else value)
    return grid


# ------------------------------------------------------------------------------------------------- errors


def report_error(name: str, code: str, message: str, as_json: bool, hint: str | None = None) -> None:
    """One line of JSON, or text for people, on standard error."""
    if as_json:
        print(to_json({"error": name, "code": code, "message": message}), file=sys.stderr, flush=True)
        return
    from rich.text import Text

    first, *rest = message.split("\n")
    text = Text.assemble((f"error [{code}]", "bold red"), ": ", visible(first))
    # Continuation lines are indented, so that text from a log cannot imitate a separate message.
    text.append("".join(f"\n  {visible(line)}" for line in rest))
    console = console_of(sys.stderr)
    console.print(text, soft_wrap=True)
    if hint:
        console.print(plain(hint, "dim"), soft_wrap=True)


def report_warning(name: str, message: str, as_json: bool) -> None:
    """Like ``report_error``, but for a warning."""
    if as_json:
        print(to_json({"warning": name, "message": message}), file=sys.stderr, flush=True)
        return
    from rich.text import Text

    text = Text.assemble(("warning", "bold yellow"), ": ", visible(message))
    console_of(sys.stderr).print(text, soft_wrap=True)
