"""Serves an adapter over the line protocol: requests on standard input, answers on standard output.

It runs in the engine's environment, which need not have deltalog's dependencies. pyarrow is imported only if the
adapter returns or gets Arrow.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import operator
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from deltalog.conformance import line_protocol, values
from deltalog.conformance.engine import Engine, NotSupported
from deltalog.conformance.line_protocol import shortened


def main(arguments: Sequence[str]) -> None:
    """Load the adapter ``module:Class``, greet, and answer requests until standard input ends."""
    parser = argparse.ArgumentParser(prog="bootstrap.py")
    parser.add_argument("adapter", help="module:Class")
    parser.add_argument("--path", action="append", default=[], help="a directory with modules")
    parser.add_argument("--package", action="append", default=[], help="a package whose version is reported")
    given = parser.parse_args(arguments)
    requests, answers = _own_streams()
    sys.path[:0] = given.path
    try:
        engine = load_adapter(given.adapter)
    except BaseException as error:  # BaseException, because a Rust panic is not an Exception
        _send(answers, {"protocol": line_protocol.PROTOCOL, "error": _described(error)})
        return
    _send(
        answers,
        line_protocol.hello(
            engine.name,
            engine.version,
            engine.lacks,
            calls_of(type(engine)),
            environment([*given.package, *engine.packages]),
        ),
    )
    serve(engine, requests, answers)


def load_adapter(place: str) -> Engine:
    """Import and create the adapter ``module:Class``. Raises what the import or the class raises, and TypeError if
    it is no adapter."""
    module, _, attribute = place.partition(":")
    engine = getattr(importlib.import_module(module), attribute)()
    if not isinstance(engine, Engine):
        raise TypeError(f"{place} is not a subclass of deltalog.conformance.Engine")
    return engine


def calls_of(kind: type[Engine]) -> list[str]:
    """The calls that an adapter implements."""
    return [name for name in line_protocol.CALLS if getattr(kind, name) is not getattr(Engine, name)]


def environment(packages: Iterable[str]) -> dict[str, str]:
    """The versions of Python and of the given packages that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def serve(engine: Engine, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer one request after the other."""
    server = _Server(engine)
    for line in requests:
        _send(answers, server.answer(json.loads(line)))


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """The standard streams under other numbers: what the engine or its child processes print must not mix with the
    answers, nor may they read the requests."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _send(answers: BinaryIO, document: Mapping[str, Any]) -> None:
    answers.write(json.dumps(document, default=operator.index).encode() + b"\n")
    answers.flush()


def _described(error: BaseException) -> str:
    return shortened(f"{type(error).__name__}: {_message(error)}")


def _message(error: BaseException) -> str:
    try:
        return shortened(str(error))
    except Exception as failure:
        return f"the message cannot be shown: {type(failure).__name__}"


class _Server:
    """The engine, and the engines that ``begin`` and ``of_catalog`` have returned, by number."""

    def __init__(self, engine: Engine) -> None:
        self._engines: dict[int | None, tuple[Engine, tuple[type[BaseException], ...]]] = {
            None: (engine, engine.refusals)
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        engine, refusals = self._engines[request.get("on")]
        answered: dict[str, Any] = {"id": request["id"]}
        try:
            answered.update(self._called(engine, refusals, request))
        except NotSupported as reason:
            answered[line_protocol.NOT_SUPPORTED] = _message(reason)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            kind = line_protocol.REFUSED if isinstance(error, refusals) else line_protocol.FAILED
            answered[kind] = {"type": type(error).__name__, "message": _message(error)}
        return answered

    def _called(
        self, engine: Engine, refusals: tuple[type[BaseException], ...], request: Mapping[str, Any]
    ) -> dict[str, Any]:
        call = request["call"]
        kind = line_protocol.CALLS[call]
        found = getattr(engine, call)(**_arguments(request["arguments"]))
        if kind == line_protocol.ROWS:
            return {kind: _written(found, request["into"])}
        if kind == line_protocol.ENGINE:
            number = len(self._engines)
            # A transaction is refused as the engine refuses; the engine of a catalog has refusals of its own.
            self._engines[number] = (found, refusals if call == "begin" else found.refusals)
            return {kind: number}
        if isinstance(found, Mapping):
            return {kind: {str(key): value for key, value in found.items()}}
        return {kind: found}


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the call, with the rows and the schema read from their files."""
    found = dict(given)
    if "rows" in found:
        found["rows"] = _ipc_file(found["rows"]["arrow"]).read_all()
    if "schema" in found:
        found["schema"] = _ipc_file(found["schema"]["arrow"]).schema
    return found


def _ipc_file(path: str) -> Any:
    import pyarrow.ipc

    return pyarrow.ipc.open_file(path)


def _written(found: Any, into: str) -> str:
    """Write rows to the file ``into``. Returns the form of the file, or that there are no rows."""
    if isinstance(found, (list, tuple)):
        if not found:
            return line_protocol.NONE
        Path(into).write_text(json.dumps(values.canonical_rows(found)), encoding="utf-8")
        return line_protocol.JSON
    if isinstance(found, Path):
        shutil.move(found, into)
        return line_protocol.PARQUET
    import pyarrow as pa

    table = found if isinstance(found, pa.Table) else pa.table(found)
    with pa.ipc.new_file(into, table.schema) as file:
        file.write_table(table)
    return line_protocol.ARROW
