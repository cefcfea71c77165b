"""Helpers for tests of authentication: a server in this process, certificates, and an issuer of tokens."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from deltalog import TransactionManager
from deltalog.server.access.principals import Head
from deltalog.server.exchange import Exchange
from deltalog.server.serve import Server, Settings
from tests.support.server import running
from tests.support.waiting import until

START = "/StartTransaction"
CATALOGS = "/api/2.1/unity-catalog/catalogs"


@dataclass
class Serving:
    """A server in this process. ``exchanges``: the exchange of each request."""

    server: Server
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.server.url

    def ask(
        self,
        path: str = START,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        *,
        method: str = "POST",
        body: bytes = b"{}",
        context: ssl.SSLContext | None = None,
    ) -> tuple[int, Mapping[str, str], Any]:
        """Send a request; returns the status, the headers and the body of the response; the body is None if it is not
        JSON.
        """
        where = urllib.parse.urlsplit(self.url)
        assert where.hostname
        before = len(self.exchanges)
        connection: http.client.HTTPConnection
        if context is None:
            connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
        else:
            connection = http.client.HTTPSConnection(where.hostname, where.port, timeout=60, context=context)
        try:
            connection.putrequest(method, path)
            for name, value in headers.items() if isinstance(headers, Mapping) else headers or ():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
            found = json.loads(data) if answer.headers["content-type"] == "application/json" else None
            if found is not None:
                until(lambda: len(self.exchanges) > before)  # observers are told after the response is sent
            return answer.status, dict(answer.headers), found
        finally:
            connection.close()

    def last(self) -> Exchange:
        """The exchange of the last request, which another client has sent."""
        assert self.ask("/health", method="GET")[0] == 200  # the server calls observers in the order of the requests
        return [each for each in self.exchanges if each.path != "/health"][-1]

    def status(self, token: str | None = None, path: str = START, **more: Any) -> int:
        return self.ask(path, {} if token is None else bearer(token), **more)[0]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def head(headers: Mapping[str, str] | None = None, caller: str = "192.0.2.1", **more: Any) -> Head:
    return Head("POST", START, b"", headers or {}, caller=caller, **more)


@contextlib.contextmanager
def serving(catalog: Path | TransactionManager, settings: Settings | None = None) -> Iterator[Serving]:
    manager = catalog if isinstance(catalog, TransactionManager) else TransactionManager(str(catalog))
    exchanges: list[Exchange] = []
    made = Server(manager, settings or Settings())
    made._app._observers = (*made._app._observers, exchanges.append)
    with running(made):
        yield Serving(made, exchanges)


# ------------------------------------------------------------------------------------------------- OpenID Connect


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Ignore clients that disconnect."""


class Issuer:
    """An OpenID Connect issuer on this machine. ``answer``: called with the handler of each request; returns whether it
    has answered instead of the issuer. ``context``: the SSL context.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.keys: dict[str, Any] = {}
        self.more_keys: list[Any] = []
        self.requests: list[str] = []
        self.answer: Callable[[BaseHTTPRequestHandler], bool] = lambda handler: False
        self.document: dict[str, Any] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests.append(self.path)
                with contextlib.suppress(OSError):
                    if not issuer.answer(self):
                        issuer._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{self._server.server_address[1]}"
        self.rotate("first")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)

    def rotate(self, kid: str, *, keep: bool = False, key: Any = None) -> None:
        """Make a new key, which replaces the others or is added to them."""
        made = key or rsa_key(kid)
        self.keys = {**(self.keys if keep else {}), kid: made}

    def token(self, kid: str | None = None, *, algorithm: str = "RS256", headers: Any = None, **claims: Any) -> str:
        """A token with the newest key. A claim that is None is left out."""
        kid = kid or list(self.keys)[-1]
        now = int(time.time())
        every = {"iss": self.url, "aud": "deltalog", "sub": "alice", "exp": now + 300, "iat": now, **claims}
        given = {name: value for name, value in every.items() if value is not None}
        return jwt.encode(given, self.keys[kid], algorithm, headers={"kid": kid, **(headers or {})})

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.path == "/.well-known/openid-configuration":
            reply(handler, {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.document})
        elif handler.path == "/keys":
            reply(handler, {"keys": [*(jwk(key, kid) for kid, key in self.keys.items()), *self.more_keys]})
        else:
            reply(handler, {}, 404)


@functools.cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """A key that tests share, because generating one takes long."""
    return rsa.generate_private_key(65537, 2048)


def jwk(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    from jwt.algorithms import ECAlgorithm, RSAAlgorithm

    public = key.public_key()
    made = RSAAlgorithm.to_jwk(public) if isinstance(public, rsa.RSAPublicKey) else ECAlgorithm.to_jwk(public)
    return {**json.loads(made), "use": "sig", "key_ops": ["verify"], **({} if kid is None else {"kid": kid}), **more}


def reply(handler: BaseHTTPRequestHandler, document: Any, status: int = 200, headers: Any = None) -> None:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
