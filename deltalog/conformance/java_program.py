"""Starts adapters that are programs in Java. Their sources are part of the kit, and are compiled in the environment of
the engine, against its jars."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from deltalog.errors import CallError

_SOURCES = Path(__file__).with_name("engines")
_RELEASE = 17
# In a JVM that runs for minutes, the C2 compiler does not pay off.
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx768m", "-Duser.timezone=UTC")


def java_program(sources: str, main: str) -> Callable[[Path], list[str]]:
    """The command of a recipe: the program with the class ``main`` from the directory ``sources`` of the adapters. It
    is called with the directory of the environment, whose jars are in ``jars``; it compiles the program if that has not
    been done yet. It raises CallError if there is no JDK."""

    def command(environment: Path) -> list[str]:
        classpath = [str(_classes(_SOURCES / sources, environment)), str(environment / "jars" / "*")]
        return [_tool("java"), *_OPTIONS, "-cp", os.pathsep.join(classpath), main]

    return command


def _tool(name: str) -> str:
    """A command of the JDK of JAVA_HOME, or otherwise of the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=str(Path(home) / "bin")) if home else shutil.which(name)
    if found is None:
        where = f"below JAVA_HOME, {home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise CallError(f"an adapter in Java needs a JDK, version {_RELEASE} or newer; there is no {name} {where}.")
    return found


def _classes(directory: Path, environment: Path) -> Path:
    """The directory of the compiled program, below the environment. Its name changes with the sources."""
    sources = sorted(directory.glob("*.java"))
    digest = hashlib.sha256(b"\0".join(each.read_bytes() for each in sources)).hexdigest()[:12]
    target = environment / f"classes-{digest}"
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(dir=environment, prefix=".classes-") as made:
        out = Path(made) / "classes"
        compiler = [_tool("javac"), "--release", str(_RELEASE), "-encoding", "UTF-8", "-proc:none", "-nowarn"]
        done = subprocess.run(
            [*compiler, "-cp", str(environment / "jars" / "*"), "-d", str(out), *map(str, sources)],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise CallError(
                f"the adapter in {directory.name} cannot be compiled: {(done.stderr + done.stdout).strip()[:2000]}"
            )
        try:
            out.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process has made it
                raise
    return target
