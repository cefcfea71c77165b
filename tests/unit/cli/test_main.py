"""The entry point, which works without the extra `cli`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from deltalog import __version__
from deltalog.cli.commands import app


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


@pytest.mark.parametrize("name", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_a_command_that_is_built_alone_is_the_same(name: str) -> None:
    alone = app.with_only(name)
    is_group = name in {group.name for group in app.registered_groups}
    assert sorted(get_command(alone).commands) == (sorted(get_command(app).commands) if is_group else [name])  # type: ignore[attr-defined]
    expected, found = (CliRunner().invoke(each, [name, "--help"]) for each in (app, alone))
    assert found.exit_code == 0 and found.output == expected.output


def test_a_command_that_does_not_exist_is_compared_with_all() -> None:
    done = deltalog("histroy", "events")
    assert done.returncode == 2 and "history" in done.stderr


def test_completion_knows_all_commands() -> None:
    code = "import os, sys; os.environ |= {'_DELTALOG_COMPLETE': 'complete_bash', 'COMP_WORDS': 'deltalog re', "
    code += "'COMP_CWORD': '1'}; sys.argv = ['deltalog']; from deltalog.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert {"resolve", "restore"} <= set(done.stdout.split()) and "history" not in done.stdout
