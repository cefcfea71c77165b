"""A server in this process, with access to its logs and metrics."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalog import TransactionManager
from deltalog.server.serve import Server, Settings
from deltalog.transactions.unity.settings import UnitySettings
from tests.support.server import Served, running
from tests.support.server.unity import Unity
from tests.support.waiting import until


@dataclass(frozen=True)
class Observed:
    """A running server. ``place``: the directory of its catalog and its logs."""

    place: Path
    server: Server
    manager: TransactionManager
    token: str | None = None

    @property
    def served(self) -> Served:
        return Served(self.server.url, None)  # type: ignore[arg-type]

    @property
    def unity(self) -> Unity:
        return Unity(self.served, {} if self.token is None else {"Authorization": f"Bearer {self.token}"})

    def lines(self, name: str = "audit.log") -> list[dict[str, Any]]:
        """The lines of the audit log."""
        return [json.loads(line) for line in (self.place / name).read_text("ascii").splitlines()]

    def of(self, request_id: str) -> dict[str, Any]:
        """The line of a request in the audit log; there must be exactly one."""
        (found,) = [line for line in self.lines() if line.get("request_id") == request_id]
        return found

    def metrics(self, token: str | None = None) -> dict[str, float]:
        """The values of the metrics, by name with labels, once all requests are counted, which is after their
        responses."""
        until(lambda: self._scraped(token)["deltalog_server_requests_in_progress"] == 0)
        return self._scraped(token)

    def _scraped(self, token: str | None) -> dict[str, float]:
        request = urllib.request.Request(self.server.metrics_url or "")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        rows = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in rows}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Send a request; returns the status, the headers with names in lower case, and the body of the response.
        Underscores in the names of ``headers`` stand for dashes.
        """
        connection = self.served.connection()
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, data, given)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()


@contextlib.contextmanager
def observed(
    place: Path, *, token: str | None = None, manager: TransactionManager | None = None, **settings: Any
) -> Iterator[Observed]:
    """A server in a thread of this process, with a warehouse. ``settings``: fields of ``Settings``."""
    manager = manager or TransactionManager(str(place / "catalog.db"))
    unity = settings.pop("unity", None) or UnitySettings(warehouse=str(place / "warehouse"))
    server = Server(manager, Settings(token=token, unity=unity, **{"recover_seconds": 0, **settings}))
    with running(server):
        yield Observed(place, server, manager, token)
