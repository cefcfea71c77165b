"""The model of a Unity Catalog over HTTP, with answers that get lost."""

from __future__ import annotations

import enum
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from deltalog.unity import messages
from tests.support.unity.model import Model, Refused

_ROOT = f"{messages.ROOT}/delta/v1"
_TABLE = re.compile(rf"{_ROOT}/catalogs/([^/]+)/schemas/([^/]+)/tables/([^/]+)(/credentials|/rename|/metrics)?")
_SCHEMA = re.compile(rf"{_ROOT}/catalogs/([^/]+)/schemas/([^/]+)/(tables|staging-tables)")
_STAGING = re.compile(rf"{_ROOT}/staging-tables/([^/]+)/credentials")


class Fault(enum.Enum):
    """What happens to a request."""

    DROPPED = "the connection breaks before the server has read the request"
    LOST = "the server handles it, and the answer is lost"
    UNAVAILABLE = "503, and nothing happens"
    UNAVAILABLE_AFTER = "503, although the server has handled it"
    FAILED_AFTER = "500 CommitStateUnknownException, although the server has handled it"
    FAILED = "500 InternalServerErrorException, and nothing happens"
    THROTTLED = "429 TooManyRequestsException"
    HANGS = "the server handles it, and does not answer in time"


Faults = Callable[[str, str], "Fault | None"]


class UnityServer:
    """``requests``: every request so far, as method and path below the API's root."""

    def __init__(self, model: Model, token: str | None = None) -> None:
        self.model = model
        self.token = token
        self.faults: Faults = lambda method, path: None
        self.requests: list[tuple[str, str]] = []
        self.hang_seconds = 1.0
        self.authorizations = set[str | None]()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                owner._answer(self, self.rfile.read(length))

            do_GET = do_POST = do_DELETE = do_HEAD = _handle

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[UnityServer]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def of(self, method: str, part: str = "") -> int:
        """The number of requests so far whose path contains ``part``."""
        return sum(each == method and part in path for each, path in self.requests)

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        method, parts = handler.command, urllib.parse.urlsplit(handler.path)
        path = parts.path.removeprefix(messages.ROOT)
        self.requests.append((method, path))
        self.authorizations.add(handler.headers.get("authorization"))
        fault = self.faults(method, path)
        if fault is Fault.DROPPED:
            handler.close_connection = True
            return
        if fault in (Fault.UNAVAILABLE, Fault.FAILED, Fault.THROTTLED):
            return self._refuse(handler, *_REFUSALS[fault])
        try:
            if self.token is not None and handler.headers.get("authorization") != f"Bearer {self.token}":
                raise Refused(401, "NotAuthorizedException")
            with self.model.lock:
                found = self._call(method, parts.path, urllib.parse.parse_qs(parts.query), body)
        except Refused as refused:
            if fault is Fault.LOST:
                handler.close_connection = True
                return None
            return self._refuse(handler, refused.status, refused.error_type, refused.message)
        if fault is Fault.LOST:
            handler.close_connection = True
            return None
        if fault is Fault.HANGS:
            time.sleep(self.hang_seconds)
        if fault in (Fault.UNAVAILABLE_AFTER, Fault.FAILED_AFTER):
            return self._refuse(handler, *_REFUSALS[fault])
        data = b"" if found is None else msgspec.json.encode(found)
        return _send(handler, 204 if found is None else 200, data)

    def _refuse(self, handler: BaseHTTPRequestHandler, status: int, error_type: str, message: str = "") -> None:
        error = messages.ErrorBody(type=error_type, code=status, message=message)
        _send(handler, status, msgspec.json.encode(messages.ErrorResponse(error=error)))

    def _call(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> Any:
        model = self.model
        if path == f"{_ROOT}/config":
            return model.config(query["catalog"][0])
        if found := _STAGING.fullmatch(path):
            return model.staging_credentials(found[1])
        if found := _SCHEMA.fullmatch(path):
            catalog, schema = map(urllib.parse.unquote, (found[1], found[2]))
            if found[3] == "tables":
                return model.create_table(catalog, schema, msgspec.json.decode(body, type=messages.CreateTable))
            name = msgspec.json.decode(body, type=messages.CreateStagingTable).name
            return model.create_staging_table(catalog, schema, name)
        if not (found := _TABLE.fullmatch(path)):
            raise Refused(404, "NotFoundException", path)
        catalog, schema, name = (urllib.parse.unquote(found[number]) for number in (1, 2, 3))
        if found[4] == "/credentials":
            return model.table_credentials(catalog, schema, name, query["operation"][0])
        if found[4] == "/rename":
            new_name = msgspec.json.decode(body, type=messages.RenameTable).new_name
            return model.rename(catalog, schema, name, new_name)
        if found[4] == "/metrics":
            return None
        if method == "POST":
            return model.update(catalog, schema, name, msgspec.json.decode(body, type=messages.UpdateTable))
        if method == "DELETE":
            return model.delete(catalog, schema, name)
        loaded = model.load(catalog, schema, name)
        return None if method == "HEAD" else loaded


_REFUSALS = {
    Fault.UNAVAILABLE: (503, "ServiceUnavailableException"),
    Fault.UNAVAILABLE_AFTER: (503, "ServiceUnavailableException"),
    Fault.FAILED_AFTER: (500, "CommitStateUnknownException"),
    Fault.FAILED: (500, "InternalServerErrorException"),
    Fault.THROTTLED: (429, "TooManyRequestsException"),
}


def _send(handler: BaseHTTPRequestHandler, status: int, data: bytes) -> None:
    handler.send_response(status)
    if status != 204:
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(data)
