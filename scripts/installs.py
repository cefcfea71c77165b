"""Installs deltalog as users do, from its wheel and the package index.

    python3 scripts/installs.py pythons [3.10 3.13 …]   on each Python, with the lowest and the newest dependencies
    python3 scripts/installs.py sizes                   writes docs/install-sizes.md

`pythons` makes the first calls (scripts/first_calls.py) in each environment. It uses each `python3.N` that is on the
PATH or below `~/.pyenv/versions`, and says which versions were not found. Needs hatchling and hatch-fancy-pypi-readme.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "install-sizes.md"
PROGRAM = ROOT / "scripts" / "first_calls.py"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
SIZED = {
    "deltalog": "read, write and maintain tables on a local disk",
    "deltalog[cli]": "the command `deltalog`",
    "deltalog[s3]": "tables on S3",
    "deltalog[server,cli]": "`deltalog serve` on a SQLite catalog",
    "deltalog[spark]": "`spark_ext`, with PySpark, which contains Spark's jars",
}
MIB = 1 << 20
# The first versions with wheels for a Python that is newer than the lower bounds in pyproject.toml.
FIRST_WHEELS = {("pyarrow", "3.14"): "22.0.0"}

HEAD = """\
# Sizes of installations

Written by `python3 scripts/installs.py sizes`; do not edit. The sizes are those of new environments after
`pip install`, without compiled Python files and pip: deltalog {version} on {system} with Python {python}.

| installed | for | packages | size | the largest |
| --- | --- | --- | --- | --- |
"""
# By directory and not by what packages list: a package that pip built from its source may list nothing.
SIZES_PROGRAM = """
import collections, importlib.metadata, json, os, site
[root, *_] = site.getsitepackages()
sizes = collections.Counter()
for folder, _, names in os.walk(root):
    if os.path.basename(folder) != "__pycache__":
        for name in names:
            top = os.path.relpath(os.path.join(folder, name), root).split(os.sep)[0]
            sizes[top.split(".")[0].split("-")[0]] += os.lstat(os.path.join(folder, name)).st_size
tools = {"pip", "setuptools"}  # what a new environment has
packages = {each.metadata["Name"] for each in importlib.metadata.distributions()} - tools
for name in tools | {"pkg_resources", "_distutils_hack"}:
    sizes.pop(name, None)
print(json.dumps([len(packages), sizes]))
"""


def main(arguments: list[str]) -> int:
    match arguments:
        case ["sizes"]:
            return write_sizes()
        case ["pythons", *wanted] if {*wanted} <= {*PYTHONS}:
            return try_pythons(wanted or PYTHONS)
    print(__doc__, file=sys.stderr)
    return 2


def try_pythons(wanted: Sequence[str]) -> int:
    """Print a line for each version of Python with the lowest and with the newest versions of the dependencies."""
    failed = False
    with tempfile.TemporaryDirectory() as place:
        wheel = built(Path(place))
        for name in wanted:
            interpreter = python_of(name)
            if interpreter is None:
                print(f"{name}: not found on this machine", flush=True)
                continue
            for which, constraints in (("lowest", lowest_versions(name)), ("newest", [])):
                started = time.monotonic()
                try:
                    with Environment(interpreter, wheel, "deltalog[cli]", constraints) as environment:
                        said = environment.run(str(PROGRAM))
                except subprocess.CalledProcessError as error:
                    said, failed = f"FAILED\n{error.stdout}{error.stderr}", True
                print(f"{name}, {which}: {said.strip()} ({time.monotonic() - started:.0f} s)", flush=True)
    return int(failed)


def write_sizes() -> int:
    rows = []
    with tempfile.TemporaryDirectory() as place:
        wheel = built(Path(place))
        for wanted, purpose in SIZED.items():
            with Environment(sys.executable, wheel, wanted) as environment:
                packages, sizes = json.loads(environment.run("-c", SIZES_PROGRAM))
            largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
            shown = ", ".join(f"{name} {megabytes(sizes[name])}" for name in largest)
            total = megabytes(sum(sizes.values()))
            rows.append(f"| `{wanted}` | {purpose} | {packages} | {total} | {shown} |\n")
            print(rows[-1], end="", flush=True)
    python = ".".join(map(str, sys.version_info[:2]))
    version = re.search(r"deltalog-(\d[^-]*)-", wheel.name)
    assert version is not None
    head = HEAD.format(system=f"{os.uname().sysname} {os.uname().machine}", python=python, version=version[1])
    PAGE.write_text(head + "".join(rows), encoding="utf-8")
    return 0


def lowest_versions(python: str) -> list[str]:
    """The constraints with which the dependencies have the lowest versions that pyproject.toml allows and that have
    wheels for this version of Python."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = re.findall(r"^(?:dependencies|cli) = \[(.*?)\]", text, re.M | re.S)
    found = [pair for each in lists for pair in re.findall(r'"([\w-]+)>=([\w.]+)', each)]
    return [f"{name}=={FIRST_WHEELS.get((name, python), version)}" for name, version in found]


def python_of(name: str) -> str | None:
    """The interpreter of a version of Python; None if there is none."""
    candidates = [shutil.which(f"python{name}"), *map(str, pyenv_pythons(name))]
    for candidate in filter(None, candidates):
        program = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([candidate, "-c", program], capture_output=True, text=True, check=False)
        if done.stdout.strip() == name:
            return candidate
    return None


def pyenv_pythons(name: str) -> Iterator[Path]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(root.glob(f"versions/{name}.*/bin/python"), reverse=True)


def built(place: Path) -> Path:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)], cwd=ROOT, check=True,
                   capture_output=True)  # fmt: skip
    [wheel] = place.glob("*.whl")
    return wheel


class Environment:
    """A new virtual environment with a wheel of deltalog. Raises CalledProcessError."""

    def __init__(self, python: str, wheel: Path, wanted: str, constraints: Sequence[str] = ()) -> None:
        self._place = tempfile.TemporaryDirectory()
        root = Path(self._place.name)
        self.bin = root / "venv" / ("Scripts" if os.name == "nt" else "bin")
        try:
            subprocess.run([python, "-m", "venv", str(root / "venv")], check=True, capture_output=True, text=True)
            file = root / "constraints.txt"
            file.write_text("\n".join(constraints), encoding="utf-8")
            options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--constraint", str(file)]
            self.run("-m", "pip", "install", *options, f"{wanted} @ {wheel.as_uri()}")
        except BaseException:
            self._place.cleanup()
            raise

    def run(self, *arguments: str) -> str:
        """What Python prints in the environment, in an empty directory."""
        with tempfile.TemporaryDirectory() as place:
            return subprocess.run(
                [str(self.bin / "python"), *arguments], cwd=place, check=True, capture_output=True, text=True
            ).stdout

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, *_: object) -> None:
        self._place.cleanup()


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.1f} MiB" if size_bytes < 10 * MIB else f"{size_bytes / MIB:.0f} MiB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
