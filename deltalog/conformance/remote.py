"""An engine in a process of its own, which speaks the line protocol, as an ``Engine``.

The process runs code that the user trusts. What it writes is checked all the same, with bounded memory: an answer that
is no answer, or is out of turn, is a fault of the adapter, not of the engine.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.conformance import line_protocol, values
from deltalog.conformance.engine import Engine, NotSupported
from deltalog.errors import CallError
from deltalog.parquet.footers import READ_ERRORS, open_parquet
from deltalog.protocol.schema import StructType

# Longer than a JVM takes to start.
_START_SECONDS = 300.0
_END_SECONDS = 5.0
# For a process that has closed its standard output, and should exit by itself.
_EXIT_SECONDS = 5.0
_MAX_NAME = 200
_MAX_PATTERN = 2_000
_MAX_PACKAGES = 500
_MAX_SHOWN = 200
_MAX_ROWS_BYTES = 256 << 20
_MAX_LOG_BYTES = 16 << 20
_TAIL_BYTES = 2_000


NEEDS_POSIX = (
    "The conformance kit does not run on Windows: it waits for the pipes of engines' processes, and ends groups of "
    "processes. Run it on Linux or macOS, or in WSL."
)


class AdapterError(CallError):
    """The adapter of an engine does not work here: its process does not start, or does not keep to the line protocol.
    This is no failure of the engine, so it ends the run."""


class RemoteError(Exception):
    """An exception that was raised in the engine's process. ``kind``: the name of its class there."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class EngineRefusal(RemoteError):
    """An exception that is one of the engine's ``refusals``."""


class EngineFailure(RemoteError):
    """An exception that is none of the engine's ``refusals``."""


class EngineGone(Exception):
    """The process of the engine ended in the middle of a call, or was killed after the time limit."""


def error_text(error: BaseException) -> str:
    """The class and the message of an error, for a reason; the class as it was in the engine's process."""
    return f"{error.kind if isinstance(error, RemoteError) else type(error).__name__}: {error}"


@dataclass(frozen=True)
class Launch:
    """How the process of an engine is started. ``where``: the environment in which it runs, for people.
    ``variables``: environment variables that are set, or removed if they are None."""

    name: str
    command: Sequence[str]
    where: str
    variables: Mapping[str, str | None] = field(default_factory=dict)


class _Process:
    """A running process. ``errors``: the file of its standard error."""

    def __init__(self, launch: Launch, errors: IO[bytes]) -> None:
        if not hasattr(os, "killpg"):
            raise CallError(NEEDS_POSIX)
        wanted = {**os.environ, **launch.variables}
        self._popen = subprocess.Popen(
            [*launch.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={key: value for key, value in wanted.items() if value is not None},
            bufsize=0,
            start_new_session=True,  # so that its child processes can be killed with it
        )
        assert self._popen.stdout is not None
        self._out = self._popen.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._read = bytearray()

    def send(self, line: bytes) -> None:
        """Raises BrokenPipeError."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(line)

    def line(self, until: float) -> bytes:
        """The next line. ``until``: on the monotonic clock. Raises TimeoutError, EOFError, and ValueError with the
        start of a line that is too long."""
        searched = 0
        while (end := self._read.find(b"\n", searched)) < 0:
            searched = len(self._read)
            if searched > line_protocol.MAX_LINE_BYTES:
                raise ValueError(bytes(self._read[:_MAX_SHOWN]))
            if not self._selector.select(max(until - time.monotonic(), 0)):
                raise TimeoutError
            data = os.read(self._out, 1 << 16)
            if not data:
                raise EOFError
            self._read += data
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        return line

    def end(self, seconds: float) -> int:
        """Close the process's standard input so that it exits; kill it if it does not exit in time. Returns its exit
        status."""
        assert self._popen.stdin is not None and self._popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        try:
            status = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            status = self._popen.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # child processes that are left
        self._selector.close()
        self._popen.stdout.close()
        return status


class _Connection:
    """The process of an engine, which is started again if it has ended. ``generation``: counts the processes."""

    def __init__(self, launch: Launch, limit_seconds: float, start_seconds: float, log: Path | None) -> None:
        self.launch = launch
        self.limit_seconds = limit_seconds
        self.until: float | None = None
        self.generation = 0
        self._start_seconds = start_seconds
        self._process: _Process | None = None
        self._asked = 0
        self._files = Path(tempfile.mkdtemp(prefix="deltalog-engine-"))
        self._log: IO[bytes] = log.open("ab") if log else tempfile.TemporaryFile("a+b")  # noqa: SIM115 (see `close`)
        self._keeps_log = log is not None

    def close(self) -> None:
        self.end()
        self._log.close()
        shutil.rmtree(self._files, ignore_errors=True)

    def end(self, seconds: float = _END_SECONDS) -> int | None:
        process, self._process = self._process, None
        return None if process is None else process.end(seconds)

    def start(self) -> dict[str, Any] | None:
        """Start the process, unless it runs. Returns its hello, if it has just started. Raises AdapterError."""
        if self._process is not None:
            return None
        name = self.launch.name
        if not self._keeps_log and os.fstat(self._log.fileno()).st_size > _MAX_LOG_BYTES:
            os.ftruncate(self._log.fileno(), 0)
        try:
            self._process = _Process(self.launch, self._log)
        except OSError as error:
            raise AdapterError(f"the process of the engine {name} cannot be started: {error}") from error
        self.generation += 1
        try:
            line = self._process.line(time.monotonic() + self._start_seconds)
        except TimeoutError:
            self.end(0)
            raise AdapterError(
                f"the adapter of {name} does not work here: its process did not start within "
                f"{self._start_seconds:g} seconds.{self._last_words()}"
            ) from None
        except EOFError:
            status = self.end(_EXIT_SECONDS)
            raise AdapterError(
                f"the adapter of {name} does not work here: its process exited with status {status} before it was "
                f"ready.{self._last_words()}"
            ) from None
        except ValueError as error:
            raise self.violation("its first line is too long", error.args[0]) from None
        return self._greeting(line)

    def _greeting(self, line: bytes) -> dict[str, Any]:
        found = self._document(line)
        if found.get("protocol") != line_protocol.PROTOCOL:
            raise self.violation(f"its first line does not begin protocol {line_protocol.PROTOCOL}", line)
        if "error" in found:
            self.end()
            raise AdapterError(
                f"the engine {self.launch.name} cannot run here: {line_protocol.shortened(str(found['error']))}"
            )
        texts = [("engine", _MAX_NAME), ("version", _MAX_NAME), ("lacks", _MAX_PATTERN)]
        for key, most in texts:
            if not isinstance(found.setdefault(key, ""), str) or len(found[key]) > most:
                raise self.violation(f"{key} is no text of at most {most} characters", line)
        try:
            re.compile(found["lacks"])
        except re.error:
            raise self.violation("lacks is no regular expression", line) from None
        packages = found.setdefault("environment", {})
        if not isinstance(packages, dict) or len(packages) > _MAX_PACKAGES or not _are_texts(packages.values()):
            raise self.violation("environment is no object of versions", line)
        calls = found.setdefault("calls", [])
        if not isinstance(calls, list) or not _are_texts(calls):
            raise self.violation("calls is no list of calls", line)
        found["calls"] = [call for call in calls if call in line_protocol.CALLS]  # a newer engine may have others
        return found

    def ask(self, call: str, on: int | None, generation: int, arguments: Mapping[str, Any]) -> Any:
        """The successful answer to a call. Raises NotSupported, EngineRefusal, EngineFailure, EngineGone, and
        AdapterError."""
        if self._process is None and on is None:
            self.start()
        if self._process is None or (on is not None and generation != self.generation):
            raise EngineGone("the engine's process, which had an open transaction, has ended")
        self._asked += 1
        into = self._files / f"answer-{self._asked}"
        request = {"id": self._asked, "call": call, "arguments": self._sent(arguments), "into": str(into)}
        if on is not None:
            request["on"] = on
        try:
            return self._parsed(self._exchange(request), call, into)
        finally:
            for file in self._files.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()

    def _exchange(self, request: Mapping[str, Any]) -> bytes:
        assert self._process is not None
        until = time.monotonic() + self.limit_seconds if self.until is None else self.until
        try:
            self._process.send(json.dumps(request).encode() + b"\n")
            return self._process.line(until)
        except (BrokenPipeError, EOFError):
            status = self.end(_EXIT_SECONDS)
            raise EngineGone(f"the engine's process exited with status {status}") from None
        except TimeoutError:
            self.end(0)
            raise EngineGone(f"no outcome within {self.limit_seconds:g} seconds") from None
        except ValueError as error:
            what = f"an answer has more than {line_protocol.MAX_LINE_BYTES:,} bytes"
            raise self.violation(what, error.args[0]) from None
        except BaseException:  # the answer will come when nobody waits for it
            self.end(0)
            raise

    def _sent(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as JSON; rows and schemas are written to files."""
        found = dict(arguments)
        if "rows" in found:
            rows = found["rows"] if isinstance(found["rows"], pa.Table) else pa.table(found["rows"])
            found["rows"] = _write_rows(rows, self._files / f"rows-{self._asked}")
        if "schema" in found:
            schema = found["schema"]
            file = str(self._files / f"schema-{self._asked}.arrow")
            _write_ipc(file, schema, [])
            found["schema"] = {"arrow": file, "columns": _columns(schema)}
        return found

    def _parsed(self, line: bytes, call: str, into: Path) -> Any:
        answer = self._document(line)
        if type(answer.get("id")) is not int or answer["id"] != self._asked:
            raise self.violation(f"the answer to request {self._asked} has another id", line)
        kinds = [kind for kind in line_protocol.KINDS if kind in answer]
        if len(kinds) != 1:
            raise self.violation(f"an answer has one of {', '.join(line_protocol.KINDS)}", line)
        [kind] = kinds
        found = answer[kind]
        if kind == line_protocol.NOT_SUPPORTED and isinstance(found, str):
            raise NotSupported(line_protocol.shortened(found))
        if kind in (line_protocol.REFUSED, line_protocol.FAILED) and isinstance(found, dict):
            name, message = found.get("type"), found.get("message")
            if isinstance(name, str) and isinstance(message, str):
                raised = EngineRefusal if kind == line_protocol.REFUSED else EngineFailure
                raise raised(line_protocol.shortened(name, _MAX_NAME), line_protocol.shortened(message))
        elif kind == line_protocol.ROWS == line_protocol.CALLS[call]:
            return self._rows(found, into, line)
        elif kind == line_protocol.CALLS[call]:
            return self._value(call, found, line)
        raise self.violation(f"this is no answer to {call}", line)

    def _value(self, call: str, found: Any, line: bytes) -> Any:
        result = line_protocol.RESULTS[call]
        if result == "None":
            return None
        if result.startswith("Mapping"):
            if isinstance(found, dict) and all(
                re.fullmatch(r"\d{1,20}", key) and (value is None or type(value) is int) for key, value in found.items()
            ):
                return {int(key): value for key, value in found.items()}
        elif type(found) is int:
            return found
        raise self.violation(f"this is no answer to {call}", line)

    def _rows(self, form: Any, into: Path, line: bytes) -> Any:
        """The rows in the file of an answer: a table, or a list of objects. Raises EngineFailure if a file that is
        there cannot be read."""
        if form == line_protocol.NONE:
            return []
        if form not in (line_protocol.ARROW, line_protocol.PARQUET, line_protocol.JSON) or not into.is_file():
            raise self.violation("the file with the rows of the answer is missing", line)
        size = into.stat().st_size
        if size > _MAX_ROWS_BYTES:
            raise EngineFailure("TooManyRows", f"the rows take {size:,} bytes; at most {_MAX_ROWS_BYTES:,} are read")
        try:
            return _read_rows(form, into)
        except (*READ_ERRORS, RecursionError) as error:
            raise EngineFailure("UnreadableRows", f"the rows that were handed over cannot be read: {error}") from error

    def _document(self, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self.violation("a line is no JSON object", line)
        return found

    def violation(self, what: str, line: bytes) -> AdapterError:
        """The error for a line that the protocol does not allow. Ends the process, whose next lines mean nothing."""
        self.end(0)
        shown = line[:_MAX_SHOWN].decode("utf-8", "replace")
        return AdapterError(
            f"the adapter of {self.launch.name} does not keep to the line protocol: {what}. It wrote {shown!a}"
            + ("…" if len(line) > _MAX_SHOWN else "")
        )

    def _last_words(self) -> str:
        """The end of the process's standard error, as a sentence."""
        if self._keeps_log:
            return ""
        self._log.seek(max(self._log.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
        text = " ".join(self._log.read().decode("utf-8", "replace").split())
        return f" Its last words: {text[-500:]}" if text else ""


class _Calls(Engine):
    """The calls of an engine in a process; its methods are set below. ``on``: the number of a transaction or of the
    engine of a catalog."""

    refusals = (EngineRefusal,)

    def __init__(self, connection: _Connection, on: int | None = None) -> None:
        self._connection = connection
        self._on = on
        self._generation = connection.generation

    def _ask(self, call: str, arguments: Mapping[str, Any]) -> Any:
        found = self._connection.ask(call, self._on, self._generation, arguments)
        if line_protocol.CALLS[call] != line_protocol.ENGINE:
            return found
        engine = _Calls(self._connection, found)
        engine.name, engine.version, engine.lacks = self.name, self.version, self.lacks
        return engine


def _remote(name: str) -> Callable[..., Any]:
    """The method of ``_Calls`` for a call."""
    local = getattr(Engine, name)
    signature = inspect.signature(local)

    @functools.wraps(local)
    def call(self: _Calls, *given: Any, **named: Any) -> Any:
        bound = signature.bind(self, *given, **named)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        del arguments["self"]
        return self._ask(name, arguments)

    return call


for _name in line_protocol.CALLS:
    setattr(_Calls, _name, _remote(_name))


class RemoteEngine(_Calls):
    """An engine in a process of its own, a context manager: the process starts when the block is entered, and ends with
    it. A process that ends within the block is started again for the next case.

    ``limit_seconds``: the time limit per case, or per call outside of cases; a process that exceeds it is killed.
    ``log``: a file to which the process's standard error is appended. After the start, ``name``, ``version`` and
    ``lacks`` are those of the engine, ``environment`` has the versions of its packages, and ``calls`` the names of the
    calls that it implements; it is empty if the engine does not say.
    """

    def __init__(
        self,
        launch: Launch,
        limit_seconds: float = 120.0,
        *,
        start_seconds: float = _START_SECONDS,
        log: Path | None = None,
    ) -> None:
        super().__init__(_Connection(launch, limit_seconds, start_seconds, log))
        self.name = launch.name
        self.launch = launch
        self.environment: Mapping[str, str] = {}
        self.calls: Sequence[str] = ()

    def __enter__(self) -> RemoteEngine:
        """Raises AdapterError if the process does not start."""
        try:
            self._start()
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def _start(self) -> None:
        hello = self._connection.start()
        if hello is not None:
            self.name = hello.get("engine") or self.launch.name
            self.version, self.lacks = hello["version"], hello["lacks"]
            self.environment, self.calls = hello["environment"], tuple(hello["calls"])

    @contextlib.contextmanager
    def case(self) -> Iterator[None]:
        """The time limit of one case. The start of the process, if it has ended, does not count."""
        self._start()
        self._connection.until = time.monotonic() + self._connection.limit_seconds
        try:
            yield
        finally:
            self._connection.until = None


def case_limit(engine: Engine) -> contextlib.AbstractContextManager[None]:
    """The time limit of one case on an engine; an engine in this process has none."""
    return engine.case() if isinstance(engine, RemoteEngine) else contextlib.nullcontext()


def read_parquet(file: Path) -> pa.Table:
    """The rows of a Parquet file that an engine has handed over. Raises as ``open_parquet``."""
    with pa.OSFile(str(file)) as source, open_parquet(source) as opened:
        return opened.read()


def _are_texts(found: Any) -> bool:
    return all(isinstance(each, str) and len(each) <= _MAX_NAME for each in found)


def _columns(schema: pa.Schema) -> dict[str, Any]:
    """The type of each column, as in the schema of a table."""
    fields = json.loads(StructType.from_arrow(schema).to_json())["fields"]
    return {field["name"]: field["type"] for field in fields}


def _write_rows(rows: pa.Table, place: Path) -> dict[str, str]:
    """Write rows to a file of each form, except those that cannot hold them: Parquet has no empty structs."""
    files = {form: f"{place}.{form}" for form in (line_protocol.ARROW, line_protocol.PARQUET, line_protocol.JSON)}
    _write_ipc(files[line_protocol.ARROW], rows.schema, [rows])
    try:
        pq.write_table(rows, files[line_protocol.PARQUET])
    except pa.ArrowException:
        del files[line_protocol.PARQUET]
    try:
        listed = values.canonical_rows(rows.to_pylist())
    except TypeError:
        del files[line_protocol.JSON]
    else:
        Path(files[line_protocol.JSON]).write_text(json.dumps(listed), encoding="utf-8")
    return files


def _write_ipc(file: str, schema: pa.Schema, tables: Sequence[pa.Table]) -> None:
    with pa.ipc.new_file(file, schema) as writer:
        for table in tables:
            writer.write_table(table)


def _read_rows(form: str, file: Path) -> Any:
    if form == line_protocol.JSON:
        found = json.loads(file.read_bytes())
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise ValueError("the file is no JSON array of objects")
        return found
    if form == line_protocol.PARQUET:
        return read_parquet(file)
    with pa.OSFile(str(file)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source) as reader:
            table = reader.read_all()
    table.validate(full=True)
    return table
