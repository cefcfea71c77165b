"""Output of the commands: tables for people, JSON for scripts, errors on standard error.

Text from a log is untrusted: it reaches a terminal only through ``visible``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# Output to a file or a pipe is not wrapped.
_PLAIN_WIDTH = 200
_MIN_WIDTH = 80


def visible(text: str) -> str:
    """The text with control characters and bidirectional overrides escaped, for example as ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(char if _harmless(char) else char.encode("unicode_escape").decode() for char in text)


def _harmless(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


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


# ------------------------------------------------------------------------------------------------- numbers


def count(number: int) -> str:
    """12,345."""
    return f"{number:,}"


def plural(number: int, one: str) -> str:
    """1 file, 2 files."""
    return f"{count(number)} {one}" if number == 1 else f"{count(number)} {one}s"


def bytes_text(size: int) -> str:
    """1.4 MB, by powers of 1000."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 99.5 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("the loop returns")


def drift_text(drift_ms: int) -> str:
    """A signed duration in a suitable unit: +3 ms, −284.0 d."""
    sign = "−" if drift_ms < 0 else "+"
    size = abs(drift_ms)
    if size < 1000:
        return f"{sign}{size} ms" if size else "0 ms"
    for factor, unit, until in ((1000, "s", 120_000), (60_000, "min", 7_200_000), (3_600_000, "h", 172_800_000)):
        if size < until:
            return f"{sign}{size / factor:.1f} {unit}"
    return f"{sign}{size / 86_400_000:,.1f} d"


def span_text(span_ms: int) -> str:
    """A duration without sign."""
    return drift_text(abs(span_ms)).lstrip("+")


# ------------------------------------------------------------------------------------------ activity of commits

# Metric names of delta-spark, deltalake and deltalog, in order of preference.
_ACTIVITY: Mapping[str, tuple[str, ...]] = {
    "rows_added": ("numTargetRowsInserted", "numUpdatedRows", "numOutputRows", "num_added_rows", "num_inserted_rows"),
    "rows_removed": ("numTargetRowsDeleted", "numDeletedRows", "num_deleted_rows"),
    "files_added": (
        "numTargetFilesAdded",
        "numAddedFiles",
        "numRestoredFiles",
        "numFiles",
        "num_added_files",
        "numFilesAdded",
    ),
    "files_removed": ("numTargetFilesRemoved", "numRemovedFiles", "num_removed_files", "numFilesRemoved"),
    "bytes_added": ("numTargetBytesAdded", "numAddedBytes", "restoredFilesSize", "numOutputBytes"),
    "bytes_removed": ("numTargetBytesRemoved", "numRemovedBytes", "removedFilesSize"),
}
ACTIVITY = tuple(_ACTIVITY)


def activity(metrics: Mapping[str, Any]) -> dict[str, int | None]:
    """The rows, files and bytes that a commit added and removed according to its metrics; None if not recorded."""
    done = {
        name: next((n for key in keys if (n := _integer(metrics.get(key))) is not None), None)
        for name, keys in _ACTIVITY.items()
    }
    # The output rows of replaceWhere include rewritten rows.
    added, copied = done["rows_added"], _integer(metrics.get("numCopiedRows"))
    if added and copied and added == _integer(metrics.get("numOutputRows")):
        done["rows_added"] = max(added - copied, 0)
    return done


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return None


# Operations that delete the rows of the files that they remove. All other operations only rewrite files, or record the
# number of deleted rows.
_REMOVES_ROWS = re.compile(r"WRITE|DELETE|TRUNCATE|RESTORE|(CREATE OR )?REPLACE TABLE", re.A)


def removes_unknown_rows(metrics: Mapping[str, Any], operation: str | None) -> bool:
    """Whether a commit deleted rows but did not record how many."""
    done = activity(metrics)
    return bool(done["files_removed"] and done["rows_removed"] is None and _REMOVES_ROWS.match(operation or ""))


def activity_text(metrics: Mapping[str, Any], operation: str | None = None) -> str:
    """+27,004 rows, −? rows, +16 files, −2 files, 1.2 MB."""
    done = activity(metrics)
    parts = []
    for kind, one in (("rows", "row"), ("files", "file")):
        added, removed = done[f"{kind}_added"], done[f"{kind}_removed"]
        if added:
            parts.append(f"+{plural(added, one)}")
        if removed:
            parts.append(f"−{plural(removed, one)}")
        elif kind == "rows" and removes_unknown_rows(metrics, operation):
            parts.append("−? rows")
    if done["bytes_added"]:
        parts.append(bytes_text(done["bytes_added"]))
    return ", ".join(parts)
