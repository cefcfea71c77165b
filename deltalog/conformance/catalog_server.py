"""The server for the cases about tables of a Unity Catalog: a given one, or deltalog's own, started for the run."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from deltalog.conformance.engine import Engine
from deltalog.conformance.managed import ManagedTables
from deltalog.conformance.remote import RemoteEngine
from deltalog.errors import CallError

# The packages of the extra ``server``.
_NEEDED = ("uvicorn", "prometheus_client")
_TOKEN_VARIABLE = "UNITY_CATALOG_TOKEN"
_START_SECONDS = 120
_END_SECONDS = 60


@contextlib.contextmanager
def catalog_for(engine: Engine, url: str | None = None) -> Iterator[ManagedTables | None]:
    """The catalog on which an engine runs its cases about catalog-managed tables: at ``url``, with the token in the
    variable UNITY_CATALOG_TOKEN, or on deltalog's own server, on 127.0.0.1 with a temporary directory, until the end of
    the block. None if the engine does not use catalogs, or if no URL is given and the extra ``server`` is not
    installed. Raises CallError if the server does not start, and as ManagedTables."""
    if not uses_catalogs(engine):
        yield None
    elif url is not None:
        yield ManagedTables(url, os.environ.get(_TOKEN_VARIABLE))
    elif not all(map(importlib.util.find_spec, _NEEDED)):
        yield None
    else:
        with own_server() as served:
            yield ManagedTables(served)


def uses_catalogs(engine: Engine) -> bool:
    """Whether an adapter implements ``of_catalog``; true for one that does not say."""
    if isinstance(engine, RemoteEngine):
        return not engine.calls or "of_catalog" in engine.calls
    return type(engine).of_catalog is not Engine.of_catalog


@contextlib.contextmanager
def own_server() -> Iterator[str]:
    """``deltalog serve`` in a process, on a free port of 127.0.0.1; its catalog and its tables are in a temporary
    directory. Yields its URL. Raises CallError if it does not start."""
    with tempfile.TemporaryDirectory(prefix="deltalog-conformance-", ignore_cleanup_errors=True) as made:
        place = Path(made)
        # Without the recovery of tables in the background, which would publish commits between the steps of a case.
        options = ["--port", "0", "--warehouse", str(place / "lake"), "--set=recovery.every_seconds=0", "--json"]
        command = [sys.executable, "-m", "deltalog.cli.main", "serve", str(place / "catalog.db"), *options]
        with (place / "server.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            too_late = threading.Timer(_START_SECONDS, process.kill)
            too_late.daemon = True
            too_late.start()
            line = process.stdout.readline()
            too_late.cancel()
            if not line:
                words = " ".join((place / "server.log").read_text(encoding="utf-8", errors="replace").split())
                raise CallError(f"deltalog's server did not start for the cases on catalogs: {words[-500:]}")
            yield str(json.loads(line)["url"])
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
