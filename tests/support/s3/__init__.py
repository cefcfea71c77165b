"""Real servers that implement S3, on free ports of 127.0.0.1, and a proxy that records and breaks requests."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import itertools
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from deltalog.storage.s3.store import S3Store

_NUMBERS = itertools.count(1)
_START_SECONDS = 60


@dataclass(frozen=True)
class Server:
    """A running server."""

    name: str
    port: int

    def options(self, **more: Any) -> dict[str, Any]:
        """Storage options for this server."""
        return {
            "key": "testing-key-id",
            "secret": "testing-secret-key",
            "endpoint_url": f"http://127.0.0.1:{self.port}",
            "client_kwargs": {"region_name": "us-east-1"},
            **more,
        }

    def environment(self) -> dict[str, str]:
        """Variables by which boto3 finds this server and its credentials."""
        return {
            "AWS_ACCESS_KEY_ID": "testing-key-id",
            "AWS_SECRET_ACCESS_KEY": "testing-secret-key",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    def bucket(self, name: str = "") -> str:
        """A new bucket of its own, or the bucket ``name``."""
        from deltalog.storage.s3.store import S3Store  # imported only here, because importing s3fs takes a second

        name = name or f"bucket-{os.getpid()}-{next(_NUMBERS)}"
        S3Store(f"s3://{name}", **self.options())._call("create", "", "create_bucket", with_key=False)
        return name

    def store(self, prefix: str = "a table", **options: Any) -> S3Store:
        """An empty store in a new bucket."""
        from deltalog.storage.s3.store import S3Store

        return S3Store(f"s3://{self.bucket()}/{prefix}", **self.options(**options))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(
    name: str, log: Path, command: Sequence[str] = (), *, cwd: Path | None = None, seconds: float = _START_SECONDS
) -> Iterator[Server]:
    """A server from the extra ``test``, which is stopped by its process id at the end of the block. ``command``
    replaces the default command of ``name``; ``seconds``: the time limit for starting."""
    port = free_port()
    program = command or [str(Path(sys.executable).parent / name)]
    arguments = ["-H", "127.0.0.1", "-p", str(port)] if name == "moto_server" else []
    environment = {**os.environ, "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*program, *arguments], stdout=output, stderr=output, env=environment, cwd=cwd or log.parent
        )
        try:
            _await(process, port, log, seconds)
            yield Server(name, port)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/")
            connection.getresponse().read()
            return
        except (OSError, http.client.HTTPException):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-3000:]}") from None
            time.sleep(0.05)


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("ministack", tmp_path_factory.mktemp("ministack") / "log") as server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("moto_server", tmp_path_factory.mktemp("moto") / "log") as server:
        yield server


# --------------------------------------------------------------------------------------------------- the proxy


@dataclass(frozen=True)
class Request:
    """A request as received on the connection."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def key(self) -> str:
        """Bucket and key, decoded as the server decodes them; for a listing, the bucket and the prefix."""
        path, _, query = self.target.partition("?")
        prefix = dict(urllib.parse.parse_qsl(query, keep_blank_values=True)).get("prefix", "")
        return urllib.parse.unquote(path).lstrip("/") + (f"/{prefix}" if prefix else "")


class Reset(Exception):
    """Raised by a rule: reset the connection without an answer."""


class Closed(Reset):
    """Raised by a rule: close the connection normally, without an answer."""


class CutShort(Exception):
    """A rule raises this exception to make the proxy send the headers of ``answer`` and half of its body, and then
    reset the connection."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("cut short")
        self.answer = answer


Answer = tuple[int, list[tuple[str, str]], bytes]
Rule = Callable[[Request, Callable[[], Answer]], Answer]


def pass_on(request: Request, forward: Callable[[], Answer]) -> Answer:
    return forward()


class Proxy:
    """Passes requests on to a server unchanged, with their signatures, and keeps them in ``requests``.

    ``rule`` is called with each request and returns the response; ``forward()`` sends the request to the server.
    """

    def __init__(self, server: Server | None) -> None:
        self.requests: list[Request] = []
        self.rule: Rule = pass_on
        self._server = server
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def handle_expect_100(self) -> bool:
                super().handle_expect_100()
                self.wfile.flush()
                return True

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.command, self.path, dict(self.headers.items()), body)
                proxy.requests.append(request)
                cut = False
                try:
                    status, headers, answer = proxy.rule(request, lambda: proxy._forward(server, request))
                except Reset as end:
                    self.reset(orderly=isinstance(end, Closed))
                    return
                except CutShort as short:
                    status, headers, answer = short.answer
                    cut = True
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                length = str(len(answer))
                if self.command == "HEAD":
                    length, answer = next((v for name, v in headers if name.lower() == "content-length"), "0"), b""
                self.send_header("Content-Length", length)
                self.end_headers()
                with contextlib.suppress(OSError):  # the client may have given up
                    self.wfile.write(answer[: len(answer) // 2] if cut else answer)
                    self.wfile.flush()
                if cut:
                    self.reset()

            def reset(self, *, orderly: bool = False) -> None:
                if orderly:
                    self.connection.shutdown(socket.SHUT_RDWR)
                else:
                    # With SO_LINGER set to 0, close() sends RST instead of FIN.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_one

            def log_message(self, *arguments: Any) -> None:
                return None

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                return None

        self._listener = Quiet(("127.0.0.1", 0), Handler)
        self.port = int(self._listener.server_address[1])
        self._thread = threading.Thread(target=self._listener.serve_forever, daemon=True)
        self._thread.start()

    def _forward(self, server: Server | None, request: Request) -> Answer:
        if server is None:
            return 404, [], b""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(request.body or None)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def send_half(self, request: Request) -> None:
        """Send the server the headers and half of the body of a request, then close the connection."""
        assert self._server is not None
        with socket.create_connection(("127.0.0.1", self._server.port), timeout=60) as connection:
            head = [f"{request.method} {request.target} HTTP/1.1", *(f"{k}: {v}" for k, v in request.headers.items())]
            connection.sendall("\r\n".join([*head, "", ""]).encode() + request.body[: len(request.body) // 2])

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[Request]]:
        """The requests made inside the block."""
        start = len(self.requests)
        made: list[Request] = []
        try:
            yield made
        finally:
            made += self.requests[start:]

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()


@contextlib.contextmanager
def proxied(server: Server) -> Iterator[tuple[Proxy, Server]]:
    """Start a proxy in front of a server; yields the proxy, and a server object with the proxy's address."""
    proxy = Proxy(server)
    try:
        yield proxy, Server(server.name, proxy.port)
    finally:
        proxy.close()


@pytest.fixture(scope="session")
def one_at_a_time(moto: Server) -> Iterator[Server]:
    """Send requests one after another, because moto, unlike S3 and DynamoDB, checks a condition and writes in two
    separate steps."""
    alone = threading.Lock()

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        with alone:
            return forward()

    with proxied(moto) as (proxy, through):
        proxy.rule = rule
        yield through
