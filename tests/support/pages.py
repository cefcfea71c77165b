"""Runs the examples of a page in docs/start or docs/how-to, in their order on the page, in one directory.

- ``python``: run in one namespace; ``python no-run`` and ``python spark`` are not run here.
- ``text`` after a block of Python: what that block prints.
- ``console``: lines that start with ``$ `` are commands, lines that start with ``> `` continue them, and the other
  lines are the output of the command above them. The commands of a page share one shell. A command whose status is not
  0 must be followed by ``$ echo $?``.
- ``sh``: a script that must succeed. ``console no-run <reason>`` and ``sh no-run <reason>`` are not run.
- any language with ``file=<name>``: written to that file.

Expected output is compared line by line. In it, … matches any text in a line, and a line … matches any lines. Ids,
times, sizes, durations and the width of columns may differ from those on the page. ``/data`` stands for the directory
of the page, the port 8750 for a free port, and 9000 for the port of the S3 service that ``run`` gets.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.M | re.S)
FOLDERS = ("start", "how-to")
SERVER_PORT, S3_PORT, PLACE = "8750", "9000", "/data"
_ARGUMENTS = "import sys; from tests.support.pages import Session as _Session; _page = _Session(sys.argv[1])\n"
_END = "@@@ status "
_MOST_SECONDS = 180
# What differs between two runs, and how it is written in a comparison.
_VARYING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", "<time>"),
    (r"\b1[78]\d{11}\b", "<milliseconds>"),
    (r"\b\d[\d,.]* (?:B|kB|KiB|MB|MiB|bytes)\b", "<size>"),
    (r"(?<![\w.])[+−-]?\d+(?:\.\d+)? (?:ms|s|h|d)\b", "<duration>"),
    (r"─+(?:\s+─+)*", "─"),
    (r"\s+", " "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block. ``line``: the line of its text. ``follows``: the fence of the block before it if only blank lines
    are between them, such as ``python``; else an empty string."""

    line: int
    language: str
    mark: str
    text: str
    follows: str

    @property
    def file(self) -> str | None:
        return self.mark.removeprefix("file=") if self.mark.startswith("file=") else None


@dataclass(frozen=True)
class Command:
    """A command of a ``console`` block and the lines that it prints."""

    text: str
    output: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        is_next = found and not text[end : match.start()].strip()
        follows = f"{found[-1].language} {found[-1].mark}".strip() if is_next else ""
        found.append(Block(text.count("\n", 0, match.start()) + 2, match[1], match[2].strip(), match[3], follows))
        end = match.end()
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a block. Raises ValueError if it begins with something else."""
    found: list[list[str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append([line[2:]])
        elif not found:
            raise ValueError(f"line {block.line}: a block of console begins with a command")
        elif line.startswith(">") and len(found[-1]) == 1:
            found[-1][0] += "\n" + line[2:]
        else:
            found[-1].append(line)
    return [Command(text, tuple(output)) for text, *output in found]


def program(page: Path) -> str:
    """A Python program that runs a page; its lines have the numbers that they have on the page. ``run`` says in which
    directory, and with which arguments."""
    source, line = _ARGUMENTS, 2
    for block in blocks(page):
        if block.file or block.language in ("console", "sh"):
            step = "" if block.mark.startswith("no-run") else f"_page.run({block.line})\n"
        elif block.language == "text" and block.follows == "python":
            step = f"_page.printed({block.line})\n"
        else:
            step = block.text if block.language == "python" and not block.mark else ""
        if step:
            source += "\n" * (block.line - line) + step
            line = block.line + step.count("\n")
    return source + "_page.end()\n"


def programs(page: Path) -> list[str]:
    """The programs that the commands of a page need."""
    scripts = _scripts(page)
    needed = [name for name in ("curl",) if any(re.search(rf"\b{name}\b", text) for text in scripts)]
    return ["bash", *needed] if scripts else []


def is_slow(page: Path) -> bool:
    """Whether a page has several commands or uses an S3 service."""
    return needs_s3(page) or len(re.findall(r"\bdeltalog \w", "".join(_scripts(page)))) > 1


def needs_s3(page: Path) -> bool:
    """Whether the examples of a page that are run use an S3 service."""
    return any("s3://" in block.text and not block.mark for block in blocks(page) if block.language == "python")


def run(
    page: Path, directory: Path, s3_port: int | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a page in a new directory below ``directory``, in a process of its own."""
    place, programs = directory / "place", directory / "bin"
    place.mkdir()
    programs.mkdir()
    for name, module in {"deltalog": "-m deltalog", "python": "", "python3": ""}.items():
        shim = programs / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        shim.chmod(0o755)
    file = directory / f"{page.stem}.py"
    ports = {SERVER_PORT: _free_port()} | ({} if s3_port is None else {S3_PORT: s3_port})
    file.write_text(_replaced(program(page), ports), encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UNITY_CATALOG", "DELTALOG_"))}
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    process = subprocess.Popen(
        [sys.executable, "-W", "error::DeprecationWarning", str(file), str(page.resolve()), json.dumps(ports)],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**kept, **own, **(environment or {})},
    )  # fmt: skip
    try:
        printed, errors = process.communicate(timeout=_MOST_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, printed, errors)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what a page has started


def differs(expected: list[str], printed: list[str], place: str = PLACE) -> str | None:
    """What differs between the output on a page and the output of a run; None if nothing does."""
    pattern = ""
    for line in expected:
        wanted = re.escape(_normal(line, place)).replace("…", "[^\n]*")
        pattern += "(?:[^\n]*\n)*" if line.strip() == "…" else wanted + "\n"
    actual = "".join(_normal(line, place) + "\n" for line in printed)
    if re.fullmatch(pattern, actual):
        return None
    return "\n".join(["the page says:", *expected, "the run prints:", *printed])


class Session:
    """The steps of a running page that are not Python: files, commands, and the comparison of what Python prints."""

    def __init__(self, page: str) -> None:
        self._page, self._place = Path(page), os.getcwd()
        self._ports = json.loads(sys.argv[2])
        self._blocks = {block.line: block for block in blocks(self._page)}
        self._shell: subprocess.Popen[str] | None = None
        self._python = sys.stdout = io.StringIO()
        self._read = 0
        self._differences: list[str] = []
        atexit.register(self._close)

    def printed(self, line: int) -> None:
        """Compare what Python has printed since the last comparison with a block of text."""
        text = self._python.getvalue()
        self._compare(line, self._blocks[line].text.splitlines(), text[self._read :].splitlines())
        self._read = len(text)

    def run(self, line: int) -> None:
        """Write the file of a block, or run its commands."""
        self._read = len(self._python.getvalue())
        block = self._blocks[line]
        if block.file:
            Path(block.file).write_text(_replaced(block.text, self._ports), encoding="utf-8")
            return
        script = [Command(block.text, ("…",))] if block.language == "sh" else commands(block)
        for number, command in enumerate(script):
            status, printed = self._command(_replaced(command.text, self._ports))
            is_shown = script[number + 1 : number + 2] and script[number + 1].text == "echo $?"
            if status and not is_shown:
                raise AssertionError(
                    f"{self._page.name}:{line}: {command.text}\nstatus {status}\n" + "\n".join(printed)
                )
            self._compare(line, list(command.output), printed)

    def _command(self, text: str) -> tuple[int, list[str]]:
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["bash", "--noprofile", "--norc"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            assert self._shell.stdin is not None
            self._shell.stdin.write("trap 'kill $(jobs -p) 2> /dev/null' EXIT\n")
        assert self._shell.stdin is not None and self._shell.stdout is not None
        # The status is kept, so that the next command can print it.
        self._shell.stdin.write(f"{{ (exit ${{status:-0}})\n{text}\n}} < /dev/null; status=$?; echo '{_END}'$status\n")
        self._shell.stdin.flush()
        printed: list[str] = []
        for line in self._shell.stdout:
            before, end, status = line.rstrip("\n").partition(_END)
            if before or not end:
                printed.append(before)
            if end:
                return int(status), printed
        raise AssertionError(f"{self._page.name}: the shell ended\n{text}\n" + "\n".join(printed))

    def _compare(self, line: int, expected: list[str], printed: list[str]) -> None:
        names = {str(port): int(name) for name, port in self._ports.items()}
        shown = [_replaced(each, names) for each in printed]
        if difference := differs(expected, shown, self._place):
            self._differences.append(f"{self._page.name}:{line}: {difference}")

    def end(self) -> None:
        """Raise an error that contains everything that differed."""
        if self._differences:
            raise AssertionError("\n\n".join(self._differences))

    def _close(self) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            self._shell.stdin.close()
            self._shell.wait(timeout=20)


def _scripts(page: Path) -> list[str]:
    return [block.text for block in blocks(page) if block.language in ("console", "sh") and not block.mark]


def _normal(line: str, place: str) -> str:
    line = line.replace(place, PLACE)
    for pattern, written in _VARYING:
        line = re.sub(pattern, written, line)
    return line.strip()


def _replaced(text: str, ports: Mapping[str, int]) -> str:
    for name, port in ports.items():
        text = re.sub(rf"\b{name}\b", str(port), text)
    return text


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])
