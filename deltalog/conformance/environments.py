"""How each engine is installed and started: in the environment of the kit, or in one of its own.

``deltalog conformance install ENGINE`` makes an environment, below a cache directory, from a recipe. So no engine's
dependencies meet those of another, or those of the kit. An engine that was installed so runs there; otherwise it runs
in the environment of the kit, if its packages are there.

To add an engine: write an adapter in ``deltalog.conformance.engines`` that imports only the standard library, the
engine, and ``deltalog.conformance.engine``; then add a recipe here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalog.conformance.java_program import java_program
from deltalog.conformance.remote import Launch
from deltalog.errors import CallError

CACHE_VARIABLE = "DELTALOG_CONFORMANCE_CACHE"
#: The file that describes an environment; an environment without it is incomplete.
DESCRIPTION = "environment.json"
#: What the command line of a program begins with, where the name of an engine is expected.
COMMAND = "command:"
_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
_ADAPTERS = "deltalog.conformance.engines"
# Variables with which Python would find packages of another environment.
_OTHER_PACKAGES: Mapping[str, str | None] = dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"))
_PYARROW = "pyarrow==26.0.1"


@dataclass(frozen=True)
class Recipe:
    """How an engine is installed and started.

    ``adapter``: ``module:Class``, which the line server serves. None if ``command`` starts a program that speaks the
    line protocol itself; it is called with the directory of the environment.
    ``requirements``: packages of Python for an environment of its own, with their versions. An adapter that takes or
    returns Arrow needs pyarrow there.
    ``jars``: coordinates of Maven, ``group:artifact:version``; these and what they need are put into ``jars/``.
    ``here``: the modules that the engine needs to run in the environment of the kit; None if it never runs there.
    ``packages``: the packages whose versions are reported; those of ``requirements`` are reported anyway.
    ``variables``: environment variables of the process.
    """

    adapter: str | None = None
    command: Callable[[Path], Sequence[str]] | None = None
    requirements: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    here: tuple[str, ...] | None = None
    packages: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def can_be_installed(self) -> bool:
        return bool(self.requirements or self.jars)

    @property
    def reported(self) -> list[str]:
        """The packages whose versions are reported."""
        names = [re.split(r"[\[=<>~! ;]", each, maxsplit=1)[0] for each in self.requirements]
        return list(dict.fromkeys([*names, *self.packages]))

    @property
    def digest(self) -> str:
        """Changes with everything that an environment is made from."""
        python = platform.python_version_tuple()[:2] if self.requirements else ()
        made_from = json.dumps([self.requirements, self.jars, python])
        return hashlib.sha256(made_from.encode()).hexdigest()[:12]


RECIPES: Mapping[str, Recipe] = {
    "deltalog": Recipe(
        adapter=f"{_ADAPTERS}.deltalog:DeltalogEngine",
        here=(),
        packages=("pyarrow",),
    ),
    "spark_ext": Recipe(
        adapter="spark_ext.conformance:SparkExtEngine",
        here=("pyspark",),
        packages=("pyarrow",),
    ),
    "delta-spark": Recipe(
        adapter="spark_ext.conformance:DeltaSparkEngine",
        here=("pyspark", "delta"),
        packages=("pyarrow",),
    ),
    "deltalake": Recipe(
        adapter=f"{_ADAPTERS}.deltalake:DeltalakeEngine",
        requirements=("deltalake==1.6.6", _PYARROW),
        here=("deltalake",),
    ),
    "polars": Recipe(
        adapter=f"{_ADAPTERS}.polars:PolarsEngine",
        requirements=("polars==2.1.0", "deltalake==1.6.6", _PYARROW),
        here=("polars", "deltalake"),
    ),
    "polars-deltalake": Recipe(
        adapter=f"{_ADAPTERS}.polars_deltalake:PolarsDeltalakeEngine",
        requirements=("polars-deltalake==1.3.2", "polars==2.1.0", _PYARROW),
    ),
    "kernel-rs": Recipe(
        adapter=f"{_ADAPTERS}.kernel_rs:KernelRsEngine",
        requirements=("delta-kernel-rust-sharing-wrapper==0.3.3", _PYARROW),
    ),
    "kernel-java": Recipe(
        command=java_program("kernel_java", "deltalog.conformance.kernel.Server"),
        jars=(
            "io.delta:delta-kernel-api:4.4.0",
            "io.delta:delta-kernel-defaults:4.4.0",
            # For tables of a Unity Catalog; the client's own requirements are left out by delta-storage.
            "io.delta:delta-kernel-unitycatalog:4.4.0",
            "io.unitycatalog:unitycatalog-client:0.6.0",
            "io.unitycatalog:unitycatalog-hadoop:0.6.0",
            *(f"com.fasterxml.jackson.core:jackson-{name}:2.17.0" for name in ("annotations", "core", "databind")),
            *(f"com.fasterxml.jackson.datatype:jackson-datatype-{name}:2.17.0" for name in ("jdk8", "jsr310")),
        ),
    ),
    "sail": Recipe(
        adapter=f"{_ADAPTERS}.sail:SailEngine",
        requirements=("pysail==0.7.2", "pyspark[connect]==4.1.1", _PYARROW),
    ),
    "duckdb": Recipe(
        adapter=f"{_ADAPTERS}.duckdb:DuckDBEngine",
        requirements=("duckdb==1.5.5", "duckdb-extension-delta==1.5.5", _PYARROW),
    ),
    "chdb": Recipe(
        adapter=f"{_ADAPTERS}.chdb:ChdbEngine",
        requirements=("chdb==4.4.0", "chdb-core==26.9.0", _PYARROW),
    ),
    "daft": Recipe(
        adapter=f"{_ADAPTERS}.daft:DaftEngine",
        requirements=("daft==0.7.26", "deltalake==1.6.6", "pyiceberg==0.12.0", "pyarrow==25.0.1"),
        variables={"DAFT_PROGRESS_BAR": "0", "DO_NOT_TRACK": "true"},
    ),
    "dask-deltatable": Recipe(
        adapter=f"{_ADAPTERS}.dask_deltatable:DaskDeltatableEngine",
        requirements=("dask-deltatable==0.4.0", _PYARROW),
        packages=("dask", "deltalake", "pandas"),
    ),
}
#: The engines for which the kit has adapters, in the order of the reports.
ENGINES = tuple(RECIPES)


def cache_directory(given: Path | None = None) -> Path:
    """The directory of the environments: ``given``, that of the variable DELTALOG_CONFORMANCE_CACHE, or
    ``~/.cache/deltalog/conformance``."""
    if given is None and (chosen := os.environ.get(CACHE_VARIABLE)):
        given = Path(chosen)
    return (given or Path("~/.cache/deltalog/conformance")).expanduser().absolute()


def recipe_of(name: str) -> Recipe:
    """Raises CallError if there is no such engine."""
    if name not in RECIPES:
        raise CallError(
            f"there is no engine {name!r}; use one of {', '.join(RECIPES)}, module:Class, or command:PROGRAM."
        )
    return RECIPES[name]


def environment_of(name: str, cache: Path) -> Path:
    """The directory of the environment of an engine, which need not exist."""
    return cache / f"{name}-{RECIPES[name].digest}"


def description_of(environment: Path) -> dict[str, Any] | None:
    """The description of an environment; None if it does not exist."""
    try:
        found = json.loads((environment / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def missing_here(recipe: Recipe) -> list[str]:
    """The modules without which an engine cannot run in the environment of the kit."""
    return [module for module in recipe.here or () if importlib.util.find_spec(module) is None]


def launch_of(name: str, cache: Path | None = None, python: Path | None = None) -> Launch:
    """How to start an engine: the name of an engine of the kit, ``module:Class`` from the current directory or the
    Python path, or ``command:`` and the command line of a program. ``python``: the interpreter of the environment in
    which an adapter runs. Raises CallError if there is no such engine, if it is not installed, or if ``python`` is
    given for a program or is a directory."""
    if python is not None:
        return _by_python(name, python)
    if name.startswith(COMMAND):
        command = shlex.split(name.removeprefix(COMMAND))
        if not command:
            raise CallError("command: is followed by the command line of a program.")
        return Launch(command[0], command, "the command")
    if name not in RECIPES and ":" in name:
        return _here(name, Recipe(adapter=name, packages=("pyarrow",)))
    recipe = recipe_of(name)
    environment = environment_of(name, cache_directory(cache))
    if recipe.can_be_installed and description_of(environment) is not None:
        return launch_in(name, environment)
    missing = missing_here(recipe)
    if recipe.here is None or missing:
        why = f"it needs the packages {', '.join(missing)}" if missing else "it needs an environment of its own"
        how = f" Run deltalog conformance install {name}." if recipe.can_be_installed else ""
        raise CallError(f"the engine {name} is not installed: {why}.{how}")
    return _here(name, recipe)


def launch_in(name: str, environment: Path) -> Launch:
    """How to start an engine in an environment of its own."""
    recipe = RECIPES[name]
    variables = {**_OTHER_PACKAGES, **recipe.variables}
    if recipe.command is not None:
        return Launch(name, recipe.command(environment), str(environment), variables)
    # Isolated: without the user's packages, and without the current directory.
    python = [str(environment / "bin" / "python"), "-I", "-X", "utf8"]
    return Launch(name, [*python, *_served(recipe)], str(environment), variables)


def _by_python(name: str, python: Path) -> Launch:
    """How to start an adapter in the environment of an interpreter, which need not have deltalog."""
    is_named = not name.startswith(COMMAND) and (name in RECIPES or ":" not in name)
    recipe = recipe_of(name) if is_named else Recipe(adapter=name, packages=("pyarrow",))
    if name.startswith(COMMAND) or recipe.adapter is None:
        raise CallError(f"{name} is a program, which no Python starts: name the interpreter in its command line.")
    python = python.expanduser()
    if python.is_dir():
        raise CallError(f"{python} is a directory: give the interpreter in it, such as {python / 'bin' / 'python'}.")
    # Not resolved: the interpreter of a virtual environment is a link, and Python finds the environment by its place.
    command = [str(python.absolute()), "-X", "utf8", *_served(recipe), "--path", os.getcwd()]
    return Launch(name, command, f"the environment of {python}", {**_OTHER_PACKAGES, **recipe.variables})


def _here(name: str, recipe: Recipe) -> Launch:
    command = [sys.executable, "-X", "utf8", *_served(recipe), "--path", os.getcwd()]
    return Launch(name, command, "the environment of the kit", recipe.variables)


def _served(recipe: Recipe) -> list[str]:
    assert recipe.adapter is not None
    return [str(_BOOTSTRAP), recipe.adapter, *(f"--package={name}" for name in recipe.reported)]
