"""The extras in pyproject.toml: the packages that they install, and a Python process that can import nothing else."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("program.py")
BASE = "base"
# Names in a distribution that are not those of modules, such as its metadata and its scripts.
_NO_MODULE = re.compile(r".*\.(dist-info|data|egg-info|pth)$|\.\.|__pycache__|bin")


def project() -> dict[str, Any]:
    """The dependency lists in pyproject.toml. tomllib is not used because Python 3.10 lacks it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    body = text[text.index("\ndependencies = [") : text.index("\n[project.scripts]")]
    lists = re.findall(r"^([\w-]+) = (\[.*?\])$", body, re.M | re.S)
    of_extras = {name: json.loads(re.sub(r",\s*\]", "]", listed)) for name, listed in lists}
    return {"dependencies": of_extras.pop("dependencies"), "extras": of_extras}


def extras() -> list[str]:
    """The extras for users, without those for tests and for the site."""
    return [BASE, *(name for name in project()["extras"] if not name.startswith(("test", "docs")))]


def requirement(extra: str) -> str:
    return "deltalog" if extra == BASE else f"deltalog[{extra}]"


def closure(wanted: str) -> tuple[set[str], list[str]]:
    """The distributions that pip would install for a requirement: those installed here, and those missing."""
    own, found, missing = project(), dict[tuple[str, str], None](), list[str]()
    pending = [Requirement(wanted)]
    while pending:
        each = pending.pop()
        name = _canonical(each.name)
        for extra in ("", *each.extras):
            if (name, extra) in found:
                continue
            found[name, extra] = None
            if name == "deltalog":
                texts = own["extras"][extra] if extra else own["dependencies"]
            else:
                try:
                    texts = importlib.metadata.requires(name) or []
                except importlib.metadata.PackageNotFoundError:
                    missing.append(name)
                    break
            for required in map(Requirement, texts):
                if required.marker is None or required.marker.evaluate({"extra": extra}):
                    pending.append(required)
    return {name for name, _ in found} - {*missing, "deltalog"}, missing


def modules_of(distributions: Iterable[str]) -> set[str]:
    """The top-level modules of distributions."""
    names = set[str]()
    for each in distributions:
        for file in importlib.metadata.files(each) or ():
            first = file.parts[0]
            if not _NO_MODULE.fullmatch(first) and (len(file.parts) > 1 or re.search(r"\.(py|so|pyd)$", first)):
                names.add(first.partition(".")[0])
    return names


def run_with(wanted: str, *command: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the program in a subprocess that can import only the packages that ``wanted`` installs."""
    found, missing = closure(wanted)
    assert not missing, f"{', '.join(missing)} is not installed"
    return run_program(sys.executable, "--only", ",".join(sorted(modules_of(found))), *command, seconds=seconds)


def run_program(
    python: str, *arguments: str, seconds: float = 300, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = [python, str(PROGRAM), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
