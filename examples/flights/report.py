"""The output of the example: text and tables while it runs, or with ``--json`` one document at the end."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from examples.flights.answers import Answer, Comparison, Month
from examples.flights.preparation import ARCHIVE, COPY, COPY_PAGE, PAGE, TABLE


class Report:
    """What the example prints."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._console = _console()
        self._explanations: dict[str, str] = {}
        self._begun = False

    def step(self, text: str) -> None:
        if self._begun:
            self._say(Text())
        self._begun = True
        self._say(Text(text, "bold"))

    def _say(self, *lines: Text) -> None:
        if not self.as_json:
            for line in lines:
                self._console.print(line, soft_wrap=True)

    def _show(self, table: Table) -> None:
        if self.as_json:
            return
        if self._console.is_terminal:
            self._console.print(table)
            return
        with self._console.capture() as captured:
            self._console.print(table)
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    @contextlib.contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """A progress bar on a terminal, otherwise a line. Yields a function to call after every step."""
        if self.as_json or not self._console.is_terminal:
            self.step(what)
            yield lambda: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as bar:  # the console's other output appears above the bar
            task = bar.add_task(what, total=total)
            yield lambda: bar.advance(task)

    def wrote(self, name: str, result: Any) -> None:
        size = f"{_count(result.num_rows, 'flight')}, {_count(result.num_files, 'file')}, {_size(result.num_bytes)}"
        self._say(Text(f"  version {result.version:>2}  {name:<10} {size}"))

    def enabled(self, version: int, timestamp_ms: int) -> None:
        self._say(Text(f"  version {version:>2}  in-commit timestamps on, {utc(timestamp_ms)}", "green"))

    def copied(self) -> None:
        self.step("Copying the table twice, byte by byte")
        self._say(
            Text(f"  {COPY:<18} every file time is the moment of copying, as after cp -r"),
            Text(f"  {ARCHIVE:<18} every file time is 2020-01-01, as from an archive with fixed dates"),
        )

    def answers(self, compared: Sequence[Comparison]) -> None:
        dates = sorted({utc(each.month.timestamp_ms)[:10] for each in compared})
        listing = Table(box=SIMPLE_HEAD, show_edge=False, header_style="bold", pad_edge=False, collapse_padding=True)
        listing.add_column("Month", no_wrap=True)
        listing.add_column("AS OF (UTC)", no_wrap=True)
        listing.add_column("Clock", no_wrap=True)
        for name in ("original", "copied", "unpacked"):
            listing.add_column(name, justify="right", no_wrap=True)
        previous = ""
        for each in compared:
            month = each.month
            if previous and previous != month.clock:
                listing.add_section()
            previous = month.clock
            moment = utc(month.timestamp_ms)
            clock = "in-commit" if month.clock == "in-commit" else "file time"
            cells = [month.name, moment[11:-1] if len(dates) == 1 else moment, clock]
            answers = (each.original, each.copied, each.unpacked)
            listing.add_row(*cells, *[_answer_cell(answer, month) for answer in answers])
        self.step(
            f"What was current when each month was committed, {' and '.join(dates)}: version and rows, counted by Spark"
        )
        self._show(listing)

    def explained(self, name: str, month: Month, text: str) -> None:
        self._explanations[name] = text
        self.step(f"Why: {month.name} in {name}")
        self._say(*[Text(f"  {line}") for line in text.split("\n")])

    def end(self, compared: Sequence[Comparison], enabled_at: int, path: Path, seconds: float) -> None:
        before = [each for each in compared if each.month.version < enabled_at]
        after = [each for each in compared if each.month.version >= enabled_at]
        kept = sum(each.copied.agrees(each.month) and each.unpacked.agrees(each.month) for each in after)
        refused = sum(each.copied.refusal is not None for each in before)
        wrong = sum(each.unpacked.version is not None and not each.unpacked.agrees(each.month) for each in before)
        if self.as_json:
            document = {
                "path": str(path.resolve()),
                "table": str((path / TABLE).resolve()),
                "enabled_at_version": enabled_at,
                "months": [asdict(each) for each in compared],
                "explanations": self._explanations,
                "timeline": [str((path / page).resolve()) for page in (PAGE, COPY_PAGE)],
                "seconds": round(seconds, 1),
            }
            print(json.dumps(document))
            return
        silent = (
            f"the unpacked archive silently returns another version's rows for {wrong}."
            if wrong
            else "the unpacked archive returns the right one by chance."
        )
        self._say(
            Text(),
            Text(
                f"Since the enablement: {kept} of {_count(len(after), 'month')} {'is' if len(after) == 1 else 'are'} "
                "found in both copies, row for row.",
                "green",
            ),
            Text(f"Before it, of {_count(len(before), 'month')}: the copy refuses {refused}, and {silent}", "yellow"),
            Text(),
            Text("See it:", "bold"),
            Text(f"  {path / PAGE}  the table's timeline; open it in a browser"),
            Text(f"  {path / COPY_PAGE}  the copy's"),
            Text(),
            Text("Continue:", "bold"),
            Text(f"  deltalog history {path / TABLE}"),
            Text(f"  deltalog resolve {path / COPY} {utc(after[0].month.timestamp_ms)}"),
            Text(f"That took {seconds:.0f} seconds."),
        )


def utc(timestamp_ms: int) -> str:
    """A UTC time with milliseconds, such as 2026-11-20T10:00:00.123Z."""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds") + "Z"


def _console() -> Console:
    """A console for standard output; only a terminal gets colours and wrapped lines."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 200
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    console.width = max(console.width, 80)  # rich drops table columns on a narrower console
    return console


def _answer_cell(answer: Answer, month: Month) -> Text:
    if answer.version is None:
        return Text("refused", "yellow")
    text = f"v{answer.version} {answer.rows or 0:>7,}"
    return Text(text + " ✓", "green") if answer.agrees(month) else Text(text + " ✗", "bold red")


def _count(number: int, one: str) -> str:
    """1 file, 2 files."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1000:.0f} kB" if num_bytes < 999_500 else f"{num_bytes / 1e6:.1f} MB"
