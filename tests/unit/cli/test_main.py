"""The entry point, which works without the extra `cli`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deltalog import __version__


def deltalog(*arguments: str, missing: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that cannot import some modules."""
    code = f"import sys; sys.modules |= dict.fromkeys({missing!r}); from deltalog.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("missing", [("typer",), ("rich",), ("typer", "rich")])
def test_without_its_extra_the_command_names_it_in_one_line(missing: tuple[str, ...]) -> None:
    done = deltalog("info", "events", missing=missing)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "pip install 'deltalog[cli]'" in done.stderr
    assert all(name in done.stderr for name in missing)


def test_the_version_waits_for_no_dependency() -> None:
    done = deltalog("--version", missing=("typer", "rich", "click", "pyarrow", "msgspec", "sqlglot", "pyroaring"))
    assert (done.returncode, done.stdout) == (0, f"deltalog {__version__}\n")


def test_with_the_extra_the_commands_are_there() -> None:
    done = deltalog("--help")
    assert done.returncode == 0 and "history" in done.stdout
