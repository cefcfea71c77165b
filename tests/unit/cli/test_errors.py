"""Refused calls: the message, the exit status, and no other output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer

import deltalog
from deltalog import DeltaTable
from deltalog.cli import commands, views
from deltalog.errors import ClockDriftWarning
from tests.support.cli import Cli, Ran

READING = (
    "info", "files", "rows", "history", "resolve", "timeline", "enable-ict", "restore",
    "checkpoint", "compact", "cleanup", "vacuum", "optimize",
    "clone", "generate", "schema", "properties", "diff", "changes", "explain",
)  # fmt: skip


def arguments(command: str, table: Any) -> list[Any]:
    more = {"resolve": ["--timestamp-ms", "1"], "restore": ["--version", "0"], "clone": ["memory://clone"]}
    more |= {"diff": ["--from", "0"], "changes": ["--from", "0"]}
    return [command, table, *more.get(command, [])]


def error(ran: Ran, status: int = 1) -> Any:
    assert (ran.status, ran.out) == (status, "")
    (line,) = ran.err.splitlines()
    found = json.loads(line)
    assert list(found) == ["error", "code", "message"]
    return found


@pytest.mark.parametrize("command", READING)
def test_a_place_without_a_table(cli: Cli, tmp_path: Path, command: str) -> None:
    found = error(cli(*arguments(command, tmp_path), "--json"))
    assert (found["error"], found["code"]) == ("TableNotFoundError", "TABLE_NOT_FOUND")
    assert str(tmp_path) in found["message"]
    people = cli(*arguments(command, tmp_path))
    assert (people.status, people.out) == (1, "")
    assert people.err.startswith("error [TABLE_NOT_FOUND]: ")
    assert "Traceback" not in people.err


@pytest.mark.parametrize("table", ["", "s3://bucket/t", "nothing/here"])
def test_a_location_that_cannot_be_one(cli: Cli, table: str) -> None:
    found = error(cli("info", table, "--json"))
    assert issubclass(getattr(deltalog.errors, found["error"]), deltalog.DeltaLogError)


def test_a_file_is_no_table(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert error(cli("info", tmp_path / "file", "--json"))["error"] in ("TableNotFoundError", "StoreError")


@pytest.mark.parametrize("content", [b"", b"{", b"not json\n", b"[1]\n", b"\xff\xfe\n", b'{"commitInfo":null}\n'])
@pytest.mark.parametrize("command", READING)
def test_a_damaged_commit(cli: Cli, tmp_path: Path, content: bytes, command: str) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_bytes(content)
    found = error(cli(*arguments(command, tmp_path), "--json"))
    assert issubclass(getattr(deltalog.errors, found["error"]), deltalog.DeltaLogError)


@pytest.mark.parametrize(
    ("point", "name"),
    [
        (("--version", "99"), "VersionNotFoundError"),
        (("--timestamp-ms", "1"), "TimestampOutOfRangeError"),
        (("--timestamp", "2026-09-21T14:16:20"), "InvalidTimestampError"),
        (("--timestamp", "yesterday"), "InvalidTimestampError"),
    ],
)
@pytest.mark.parametrize("command", ["info", "files", "rows"])
def test_points_in_time_that_are_not_there(
    cli: Cli, late: Path, command: str, point: tuple[str, str], name: str
) -> None:
    assert error(cli(command, late, *point, "--json"))["error"] == name


@pytest.mark.parametrize(
    "wrong",
    [
        ["info"],
        ["no-such-command"],
        ["info", "t", "--no-such-option"],
        ["info", "t", "--version", "x"],
        ["info", "t", "--version", "-1"],
        ["info", "t", "--version", "1", "--timestamp-ms", "1"],
        ["info", "t", "--timestamp", "2026-01-01T00:00:00Z", "--timestamp-ms", "1"],
        ["history", "t", "--limit", "-1"],
        ["resolve", "t"],
        ["resolve", "t", "2026-01-01T00:00:00Z", "--timestamp-ms", "1"],
        ["resolve", "t", "--timestamp-ms", "1", "--before", "latest"],
        ["resolve", "t", "--timestamp-ms", "1", "--after", "earliest"],
    ],
)
def test_usage(cli: Cli, wrong: list[str]) -> None:
    found = error(cli(*wrong, "--json"), status=2)
    assert (found["error"], found["code"]) == ("UsageError", "USAGE")
    assert found["message"]
    people = cli(*wrong)
    assert (people.status, people.out) == (2, "")
    assert people.err.startswith("error [USAGE]: ")
    assert "--help" in people.err.splitlines()[-1]


def test_an_unknown_column_is_usage(cli: Cli, late: Path) -> None:
    found = error(cli("rows", late, "--columns", "id,nope", "--json"), status=2)
    assert "'nope'" in found["message"] and "id, what" in found["message"]


def test_no_command_is_help(cli: Cli) -> None:
    ran = cli()
    assert ran.status == 2
    for command in READING:
        assert command in ran.out


def commands_of(group: Any, *above: str) -> Iterator[tuple[str, ...]]:
    for name, each in group.commands.items():
        yield from commands_of(each, *above, name) if hasattr(each, "commands") else [(*above, name)]


COMMANDS = [*commands_of(typer.main.get_command(commands.app))]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_of_every_command_has_examples(cli: Cli, command: tuple[str, ...]) -> None:
    ran = cli(*command, "--help")
    assert ran.status == 0
    assert f"deltalog {' '.join(command)} " in ran.out.split("Examples", 1)[1].replace("\n", " \n")


def test_there_are_commands_in_groups() -> None:
    assert {("history",), ("serve",), ("txn", "start"), ("tables", "resync"), ("commit-table", "show")} <= {*COMMANDS}


def test_a_data_file_that_is_gone(cli: Cli, late: Path) -> None:
    for file in late.glob("*.parquet"):
        file.unlink()
    ran = cli("rows", late, "--json")
    assert json.loads(ran.err)["error"] == "InvalidDataFileError"
    assert ran.status == 1


@pytest.mark.parametrize("place", ["nowhere/page.html", "file/page.html", "x" * 300])
def test_a_page_that_cannot_be_written_is_named_as_it_was_given(
    cli: Cli, late: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(late.parent)
    Path("file").write_text("x")
    found = error(cli("timeline", late, "-o", place, "--json"))
    assert found["code"] == "OS_ERROR"
    assert re.fullmatch(rf"\[Errno \d+\] [A-Z][a-z ]+: '{place}'", found["message"])


def test_how_to_clamp_is_said_in_words_of_the_command_line(cli: Cli, late: Path) -> None:
    assert (
        "pass --before earliest to deltalog resolve"
        in error(cli("rows", late, "--timestamp-ms", 1, "--json"))["message"]
    )


@pytest.mark.parametrize(
    "wrong",
    [
        ["tables", "recover", "c.db", "--retention-days", "1e300"],
        ["txn", "start", "c.db", "--idle-timeout", "inf"],
        ["serve", "c.db", "--set", "limits.request_seconds=inf"],
        ["serve", "c.db", "--set", "recovery.every_seconds=inf"],
    ],
)
def test_times_beyond_all_sense_are_usage(
    cli: Cli, wrong: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert error(cli(*wrong, "--json"), status=2)["code"] == "USAGE"


@pytest.mark.parametrize(
    "option", ["--token-file nope", "--tls-cert nope --tls-key nope", "--tls-cert c --tls-key nope"]
)
def test_a_file_of_the_server_that_is_not_there_is_named(
    cli: Cli, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c").write_text("x")
    found = error(cli("serve", "c.db", *option.split(), "--port", "0", "--json"))
    assert (found["code"], found["message"]) == ("INVALID_CALL", "nope cannot be read: No such file or directory.")


def test_a_defect_is_one_line_too(cli: Cli, late: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(views, "info", broken)
    found = error(cli("info", late, "--json"))
    assert found["code"] == "INTERNAL_ERROR"
    assert found["message"].startswith("RuntimeError: boom")
    with pytest.raises(RuntimeError, match="boom"):
        cli("info", late, "--json", env={"DELTALOG_TRACEBACK": "1"})


def test_an_interrupt(cli: Cli, late: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(views, "info", interrupted)
    assert cli("info", late, "--json").status == 130


def test_a_permission_error(cli: Cli, late: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    found = error(cli("timeline", late, "-o", tmp_path / "taken" / "page.html", "--json"))
    assert found["code"] == "OS_ERROR"


def test_warnings_are_lines(cli: Cli, late: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(self: DeltaTable) -> Any:
        warnings.warn(ClockDriftWarning("the clock\x1b[2J is behind"), stacklevel=1)
        return original(self)

    original = DeltaTable.enable_in_commit_timestamps
    monkeypatch.setattr(DeltaTable, "enable_in_commit_timestamps", warned)
    ran = cli("enable-ict", late, "--json")
    assert ran.status == 0
    assert json.loads(ran.err) == {"warning": "ClockDriftWarning", "message": "the clock\x1b[2J is behind"}
    assert cli("enable-ict", late).err == "warning: the clock\\x1b[2J is behind\n"


# -------------------------------------------------------------------------------------- untrusted log content

HOSTILE = "\x1b[31mred\x07\r\nerror: forged\u202e\u2028[bold]x[/bold]\x9b2J"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A table whose log has terminal control sequences in every string field."""
    path = tmp_path / "hostile"
    data = pa.table({"a": [HOSTILE], "b": [1]})
    table = DeltaTable.create(path, data.schema, name=HOSTILE, description=HOSTILE, data=data)
    table.append(data, user_metadata=HOSTILE, txn=("app" + HOSTILE, 1))
    table.set_properties({"note": HOSTILE})
    commit = path / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    actions[0]["commitInfo"].update(
        {"operation": HOSTILE, "engineInfo": HOSTILE, "operationParameters": {HOSTILE: HOSTILE}}
    )
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


@pytest.mark.parametrize("command", ["info", "files", "rows", "history"])
def test_nothing_from_a_log_acts_on_a_terminal(cli: Cli, hostile: Path, command: str) -> None:
    ran = cli(command, hostile)
    assert ran.status == 0
    assert all(char.isprintable() or char == "\n" for char in ran.out)
    assert not any(line.startswith("error: forged") for line in ran.out.splitlines())
    if command != "files":
        shown = "".join(ran.out.split())
        assert "\\x1b[31mred\\x07" in shown and "[bold]x[/bold]" in shown and "\\u202e" in shown


@pytest.mark.parametrize("command", ["info", "files", "rows", "history"])
def test_json_is_ascii(cli: Cli, hostile: Path, command: str) -> None:
    ran = cli(command, hostile, "--json")
    assert ran.status == 0
    assert ran.out.isascii() and all(char.isprintable() or char == "\n" for char in ran.out)
    if command != "files":
        assert any(HOSTILE in each for line in ran.out.splitlines() for each in texts(json.loads(line)))


def texts(value: Any) -> list[str]:
    """Every string in a document."""
    if isinstance(value, dict):
        return [each for item in value.items() for each in texts(list(item))]
    if isinstance(value, list):
        return [each for item in value for each in texts(item)]
    return [value] if isinstance(value, str) else []


def test_errors_are_escaped(cli: Cli, tmp_path: Path) -> None:
    ran = cli("info", f"{tmp_path}/no\x1b[2J\nerror: forged")
    assert ran.status == 1
    assert "\x1b" not in ran.err and "\\x1b[2J" in ran.err
    assert not any(line.startswith("error: forged") for line in ran.err.splitlines())


# ------------------------------------------------------------------------------------------- real processes


def deltalog_process(*command: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deltalog.cli.main", *command], capture_output=True, text=True, timeout=120, **kwargs
    )


def test_a_process(late: Path) -> None:
    done = deltalog_process("history", str(late), "--limit", "1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["version"] == 4


def test_a_process_that_is_refused(tmp_path: Path) -> None:
    done = deltalog_process("info", str(tmp_path), "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads(done.stderr)["code"] == "TABLE_NOT_FOUND"
    assert deltalog_process("info").returncode == 2


def test_a_process_with_an_ascii_locale(late: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = deltalog_process("history", str(late), env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    data = pa.table({"n": list(range(200_000))})
    DeltaTable.create(tmp_path / "t", data.schema, data=data)
    command = [sys.executable, "-m", "deltalog.cli.main", "rows", str(tmp_path / "t"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline()) == {"n": 0}
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 1


def test_the_import_is_light() -> None:
    code = "import sys, deltalog.cli.commands; print([m for m in ('pyspark', 'spark_ext') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_are_listed_in_the_order_of_use() -> None:
    names = [command.name or command.callback.__name__ for command in commands.app.registered_commands]  # type: ignore[union-attr]
    shown, before = READING.index("enable-ict"), READING.index("clone")
    reading = [*READING[:shown], "ui", *READING[shown:before], "convert", *READING[before:]]
    assert names == [*reading, "check", "serve"]
