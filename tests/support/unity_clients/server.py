"""`deltalog serve` as a Unity Catalog, in a process that can be killed and started again on the same port."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import deltalog
from tests.support.s3 import Proxy, Server, free_port, proxied

CATALOG = "main"
ROOT = "/api/2.1/unity-catalog"


class UnityServer:
    """A server of the catalog in ``place``, or at the URL ``catalog``; its log is in ``place``. ``options``: further
    options of `deltalog serve`. ``warehouse``: where the tables are; a directory in ``place`` by default. The server
    may read the logs of external tables in ``place / "elsewhere"``.
    """

    def __init__(
        self,
        place: Path,
        *options: str,
        env: Mapping[str, str] | None = None,
        warehouse: str | None = None,
        catalog: str | None = None,
    ) -> None:
        self.place = place
        self.catalog = catalog or place / "catalog.db"
        self.warehouse = warehouse or str(place / "warehouse")
        self.port = free_port()
        self._options = options
        if not any("credentials.rules_file" in each for each in options):
            rules = place / "credentials.json"
            place.mkdir(parents=True, exist_ok=True)
            rules.write_text(json.dumps([{"kind": "static", "prefix": str(place / "elsewhere"), "config": {}}]))
            self._options = (*options, f"--set=credentials.rules_file={rules}")
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.place / "server.log"

    def manager(self) -> deltalog.TransactionManager:
        """A manager of the same catalog, as in another process."""
        return deltalog.TransactionManager(str(self.catalog))

    def start(self) -> None:
        command = [
            *(sys.executable, "-m", "deltalog.cli.main", "serve", str(self.catalog), "--json"),
            *("--port", str(self.port), "--warehouse", self.warehouse, "--catalog-name", CATALOG),
            *self._options,
        ]
        with self.log.open("a") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=self._env)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server ended with status {self._process.wait(30)}: {self.log.read_text()[-3000:]}"
        assert json.loads(line)["url"] == self.url

    def kill(self) -> None:
        """End the process at once, in the middle of what it does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, bytes]:
        """Send a request without a client; ``path``: below the API's root. Returns the status, the body parsed as JSON
        (None if it is empty), and the raw body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, ROOT + path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content else None, content
        finally:
            connection.close()


@contextlib.contextmanager
def unity_server(
    place: Path, *options: str, env: Mapping[str, str] | None = None, warehouse: str | None = None
) -> Iterator[UnityServer]:
    """A started server, which is stopped at the end of the block."""
    server = UnityServer(place, *options, env=env, warehouse=warehouse)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def in_front_of(server: UnityServer) -> Iterator[tuple[Proxy, str]]:
    """A proxy in front of the server, and its URL."""
    with proxied(Server("deltalog", server.port)) as (proxy, through):
        yield proxy, f"http://127.0.0.1:{through.port}"
