"""Makes the environments of engines, and says which engines there are.

An environment is made beside its place and renamed when its engine has read a table, so there is no environment that
works in part. pip and Maven find packages as their own configuration says.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from deltalog.conformance.environments import (
    DESCRIPTION,
    RECIPES,
    Recipe,
    cache_directory,
    description_of,
    environment_of,
    launch_in,
    missing_here,
    recipe_of,
)
from deltalog.conformance.line_server import calls_of
from deltalog.conformance.remote import NEEDS_POSIX, RemoteEngine
from deltalog.conformance.starting import self_check
from deltalog.errors import CallError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_SECONDS = 3_600
_MOST_SHOWN = 1_500
_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>deltalog</groupId><artifactId>engine</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies>
</project>
"""


def install(name: str, cache: Path | None = None, *, again: bool = False) -> dict[str, Any]:
    """Make the environment of an engine, if it does not exist or ``again`` is true. Returns its description: name,
    version, versions of the packages, calls, and size in bytes and time in seconds.

    Raises CallError if there is no such engine, it needs no environment, or its packages cannot be installed;
    AdapterError if its adapter does not work there. Then an environment that existed before is unchanged.
    """
    recipe = recipe_of(name)
    if not recipe.can_be_installed:
        raise CallError(f"the engine {name} has no environment of its own: it runs in that of deltalog.")
    directory = cache_directory(cache)
    directory.mkdir(parents=True, exist_ok=True)
    environment = environment_of(name, directory)
    with _locked(directory / f".{name}.lock"):
        found = None if again else description_of(environment)
        return found or _made(name, recipe, environment)


def installable() -> list[str]:
    """The engines that have an environment of their own, except those that run in the environment of the kit."""
    return [
        name
        for name, recipe in RECIPES.items()
        if recipe.can_be_installed and (recipe.here is None or missing_here(recipe))
    ]


def engines(cache: Path | None = None) -> list[dict[str, Any]]:
    """What is known about each engine: its name, whether it can run here, its version, where it runs, its calls, and
    how it is installed."""
    return [_known(name, recipe, cache_directory(cache)) for name, recipe in RECIPES.items()]


def _known(name: str, recipe: Recipe, cache: Path) -> dict[str, Any]:
    environment = environment_of(name, cache)
    found = description_of(environment) if recipe.can_be_installed else None
    known = {"name": name, "installed": False, "version": None, "where": None, "calls": list[str](), "why": None}
    if found is not None:
        return {
            **known,
            "installed": True,
            "version": found.get("version"),
            "where": str(environment),
            "calls": found.get("calls", []),
        }
    how = f"deltalog conformance install {name}" if recipe.can_be_installed else None
    missing = missing_here(recipe)
    if recipe.here is None or missing:
        why = how or f"it needs the packages {', '.join(missing)}"
        return {**known, "why": why}
    try:
        engine = _adapter_here(name)
    except CallError as error:
        return {**known, "why": error.message}
    return {
        **known,
        "installed": True,
        "version": engine.version,
        "where": "the environment of the kit",
        "calls": calls_of(engine),
    }


def _adapter_here(name: str) -> Any:
    """The class of an adapter, which is not called: a session of Spark would start."""
    place = RECIPES[name].adapter
    assert place is not None
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise CallError(f"its adapter cannot be imported here: {error}") from error


def _made(name: str, recipe: Recipe, environment: Path) -> dict[str, Any]:
    for left in environment.parent.glob(f".{environment.name}.*"):
        shutil.rmtree(left, ignore_errors=True)  # of an installation that was killed
    began_s = time.monotonic()
    made = Path(tempfile.mkdtemp(prefix=f".{environment.name}.", dir=environment.parent))
    try:
        if recipe.requirements:
            _install_packages(name, recipe.requirements, made)
        if recipe.jars:
            _copy_jars(name, recipe.jars, made / "jars")
        with RemoteEngine(launch_in(name, made)) as engine:
            self_check(engine)
            found: dict[str, Any] = {
                "engine": name,
                "version": engine.version,
                "environment": dict(engine.environment),
                "calls": list(engine.calls),
                "requirements": list(recipe.requirements),
                "jars": list(recipe.jars),
            }
        found |= {"bytes": _size(made), "seconds": round(time.monotonic() - began_s, 1)}
        (made / DESCRIPTION).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        if environment.exists():
            environment.rename(made / "replaced")
        made.rename(environment)
        shutil.rmtree(environment / "replaced", ignore_errors=True)
        return found
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _install_packages(name: str, requirements: Sequence[str], place: Path) -> None:
    """Make a virtual environment in ``place``. It can be moved: nothing in it is used that contains its path."""
    own_pip = importlib.util.find_spec("pip") is None
    try:
        venv.EnvBuilder(symlinks=True, with_pip=own_pip).create(place)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CallError(
            f"the engine {name} cannot be installed: no virtual environment can be made: {error}"
        ) from error
    python = str(place / "bin" / "python")
    pip = [python, "-m", "pip"] if own_pip else [sys.executable, "-m", "pip", "--python", python]
    options = ["--no-input", "--disable-pip-version-check", "--quiet", "--quiet"]
    _run(name, [*pip, "install", *options, *requirements], "pip")


def _copy_jars(name: str, coordinates: Sequence[str], place: Path) -> None:
    """Copy jars and what they need into a directory."""
    maven = shutil.which("mvn")
    if maven is None:
        raise CallError(f"the engine {name} cannot be installed: Maven (mvn) is not on the PATH.")
    assert all(map(_COORDINATES.fullmatch, coordinates)), coordinates
    parts = [tuple(map(escape, each.split(":"))) for each in coordinates]
    with tempfile.TemporaryDirectory(prefix="deltalog-maven-") as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_POM.format("".join(_DEPENDENCY.format(*each) for each in parts)), encoding="utf-8")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={place}", "-DincludeScope=runtime"]
        _run(name, [maven, "-B", "-q", "-f", str(pom), *goal], "Maven")
    if missing := [f"{each[1]}-{each[2]}.jar" for each in parts if not (place / f"{each[1]}-{each[2]}.jar").is_file()]:
        raise CallError(f"the engine {name} cannot be installed: Maven did not copy {', '.join(missing)}.")


def _run(name: str, command: Sequence[str], program: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CallError(f"the engine {name} cannot be installed: {program} cannot be run: {error}") from error
    if done.returncode:
        raise CallError(
            f"the engine {name} cannot be installed: {program} exited with status {done.returncode}. "
            f"Its last words: {last_words(done.stdout + done.stderr)}"
        )


def last_words(text: str) -> str:
    """The end of what a program printed, on one line, without the user names and passwords of URLs."""
    text = " ".join(re.sub(r"//[^/@\s]*@", "//…@", text).split())
    return text if len(text) <= _MOST_SHOWN else "…" + text[-_MOST_SHOWN:]


def _size(place: Path) -> int:
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(place) for name in names)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    if fcntl is None:
        raise CallError(NEEDS_POSIX)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
