"""Helpers for the tests of the command line: a runner, a clock, and file times."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from deltalog import Environment
from deltalog.cli.commands import app

START = 1_790_000_000_000  # 2026-09-21T14:13:20Z
MINUTE = 60_000


@dataclass(frozen=True)
class Ran:
    """The output and exit status of a command."""

    status: int
    out: str
    err: str


# Before click 8.2, runners merge standard error into standard output by default.
_APART: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
Cli = Callable[..., Ran]


def run(*arguments: Any, env: dict[str, str] | None = None) -> Ran:
    """Run the command line in this process, without a terminal."""
    texts = [str(each) for each in arguments]
    result = CliRunner(**_APART).invoke(app.with_only(*texts[:1]), texts, env=env, catch_exceptions=False)
    return Ran(result.exit_code, result.stdout, result.stderr)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = START

    def environment(self) -> Environment:
        return Environment(clock_ms=lambda: self.now)


def set_file_time(table: Path, version: int, time_ms: int) -> None:
    """Set the modification time of a commit file, in milliseconds."""
    os.utime(table / "_delta_log" / f"{version:020d}.json", ns=(time_ms * 10**6, time_ms * 10**6))
