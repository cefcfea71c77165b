"""The commands of docs/operations.md run in the order of the page, in one shell session, and print what the page shows.

In a block ``console``, lines that start with ``$ `` are commands, and lines that start with ``> `` continue them. The
other lines are excerpts of the output, in which … matches any text.
``console no-run <reason>`` is not run. ``toml file=<name>`` is written to a file.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deltalog.server import config

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs" / "operations.md"
FENCE = re.compile(r"^```(\w*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.M | re.S)
PLACE = "/srv/deltalog"
PROGRAMS = ("bash", "curl", "openssl", "sqlite3")
END = "@@@ "


@dataclass
class Block:
    """Commands and what they print. ``line``: its first line on the page."""

    line: int
    language: str
    mark: str
    text: str
    commands: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)


def blocks() -> list[Block]:
    page = PAGE.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(page):
        block = Block(page.count("\n", 0, match.start()) + 2, match[1], match[2].strip(), match[3])
        if block.language == "console":
            for line in block.text.splitlines():
                if line.startswith("$ "):
                    block.commands.append(line[2:])
                elif line.startswith(">") and block.commands and not block.output:
                    block.commands[-1] += "\n" + line[2:]
                else:
                    block.output.append(line)
        found.append(block)
    return found


def script(found: list[Block]) -> str:
    lines = ["set -euo pipefail", "trap 'jobs -p | xargs -r kill 2> kill.log || true' EXIT"]
    for block in found:
        if block.language == "toml" and block.mark.startswith("file="):
            lines += [f"cat > {block.mark.removeprefix('file=')} <<'@@TOML'", block.text.rstrip("\n"), "@@TOML"]
        elif block.language == "console" and not block.mark:
            lines += [*block.commands, f"echo; echo '{END}{block.line}'"]
    return "\n".join(lines) + "\n"


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


def pattern(line: str) -> re.Pattern[str]:
    words = [r"\s+".join(re.escape(word) for word in part.split()) for part in line.split("…")]
    return re.compile(".*".join(words))


def test_every_block_runs_or_says_why_it_does_not() -> None:
    found = blocks()
    for block in found:
        where = f"operations.md:{block.line}"
        assert block.language in ("console", "toml", "ini", "promql", "text", "mermaid"), where
        if block.language == "console":
            assert not block.mark or re.fullmatch(r"no-run \w.*", block.mark), where
            assert block.commands, where
    assert sum(1 for block in found if block.language == "console" and not block.mark) >= 10


def test_the_configurations_have_keys_that_exist(tmp_path: Path) -> None:
    found = [block for block in blocks() if block.language == "toml"]
    assert len(found) >= 2
    for block in found:
        file = tmp_path / "server.toml"
        file.write_text(block.text)
        config.read(config.parse(file), f"operations.md:{block.line}")


@pytest.mark.long  # starts twenty processes, and a server that drains
def test_the_commands_run(tmp_path: Path) -> None:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    place, programs = tmp_path / "place", tmp_path / "bin"
    place.mkdir()
    programs.mkdir()
    for name, command in {"deltalog": "-m deltalog", "python3": ""}.items():
        file = programs / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        file.chmod(0o755)
    found = blocks()
    text = script(found).replace(PLACE, str(place))
    ports = sorted(set(re.findall(r"\b(?:localhost|127\.0\.0\.1):(\d{4,5})\b|^port = (\d+)", text, re.M)))
    names = sorted({number for pair in ports for number in pair if number})
    for number, port in zip(names, free_ports(len(names)), strict=True):
        text = re.sub(rf"\b{number}\b", str(port), text)
    (tmp_path / "session.sh").write_text(text)
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("UNITY_CATALOG", "DELTALOG_SERVER"))
    }
    variables |= {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "120", "PS4": "$ "}
    done = subprocess.run(
        ["bash", "-x", str(tmp_path / "session.sh")], cwd=place, env=variables, text=True, timeout=550,
        capture_output=True, check=False,
    )  # fmt: skip
    log = place / "server.log"
    shown = f"{done.stdout[-3000:]}\n{done.stderr[-5000:]}\n{log.read_text()[-3000:] if log.exists() else ''}"
    assert done.returncode == 0, shown
    printed = dict(
        zip(
            re.findall(rf"^{END}(\d+)$", done.stdout, re.M),
            re.split(rf"^{END}\d+$", done.stdout, flags=re.M),
            strict=False,
        )
    )
    for block in found:
        for line in block.output if block.language == "console" and not block.mark else ():
            output = printed[str(block.line)].splitlines()
            wanted = pattern(line.replace(PLACE, str(place)))
            assert any(wanted.search(each) for each in output), f"operations.md:{block.line}: {line}\n{output}"
