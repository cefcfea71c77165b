"""Starts engines, and checks that their adapters work here."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

from deltalog.conformance.case import FAILED, PASSED, READING, Case, LatestVersion, Rows, Step
from deltalog.conformance.cases.common import Timeline, ids
from deltalog.conformance.engine import Engine
from deltalog.conformance.environments import COMMAND, RECIPES, launch_of, recipe_of
from deltalog.conformance.remote import AdapterError, RemoteEngine
from deltalog.conformance.runner import run_case
from deltalog.errors import CallError

_LIMIT_SECONDS = 120.0


def load_engine(name: str) -> Engine:
    """Load the adapter of an engine into this process: the name of an engine of the kit, or ``module:Class``. Raises
    CallError if there is no such engine, if a package that it requires is not installed here, or if it runs only in a
    process of its own, which ``start_engine`` starts."""
    if name.startswith(COMMAND):
        raise CallError(
            f"{name} is a program, and cannot be loaded into this process: use start_engine, as in "
            f"`with start_engine({name!r}) as engine:`."
        )
    place = name if name not in RECIPES and ":" in name else recipe_of(name).adapter
    if place is None:
        raise CallError(f"the engine {name} runs only in a process of its own: use start_engine.")
    module, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise CallError(f"the engine {name} cannot be used here: {error}") from error
    except AttributeError as error:
        raise CallError(f"the module {module} has no {attribute}.") from error
    engine = found()
    if not isinstance(engine, Engine):
        raise CallError(f"{place} is not a subclass of deltalog.conformance.Engine.")
    return engine


def start_engine(
    name: str,
    limit_seconds: float = _LIMIT_SECONDS,
    *,
    cache: Path | None = None,
    log: Path | None = None,
    python: Path | None = None,
) -> RemoteEngine:
    """An engine in a process of its own, which starts when the block of the context manager is entered.

    ``name``: as for ``load_engine``, or ``command:`` and the command line of a program that speaks the line protocol.
    ``limit_seconds``: the time limit per case. ``cache``: the directory of the environments that ``deltalog conformance
    install`` has made. ``log``: a file for the standard error of the process. ``python``: the interpreter of the
    environment in which the adapter runs, 3.10 or newer; deltalog need not be installed there. Modules are found in
    that environment and in the current directory, not by PYTHONPATH. Raises CallError if there is no such engine, if it
    is not installed, or if ``python`` cannot start it.
    """
    return RemoteEngine(launch_of(name, cache, python), limit_seconds, log=log)


def self_check(engine: Engine) -> None:
    """Have an engine read a small plain table that every engine can read: 2 commits, 2 rows, the oldest protocol. An
    engine that implements neither ``rows`` nor ``latest_version`` is not checked. Raises AdapterError if it fails: then
    its adapter does not work here, and the outcomes of cases would say nothing about the engine."""
    steps: tuple[Step, ...] = (Rows(ids(1)), LatestVersion(1))
    for step in steps:
        case = Case("plain-table", READING, "A plain table", "actions", Timeline(at=(0, 1)), (step,))
        with tempfile.TemporaryDirectory(prefix="deltalog-conformance-", ignore_cleanup_errors=True) as place:
            outcome = run_case(engine, case, Path(place))
        if outcome.outcome == FAILED:
            raise AdapterError(
                f"the adapter of {engine.name} does not work here: a plain table cannot be read: {outcome.reason}"
            )
        if outcome.outcome == PASSED:
            return
