"""The server's application in this process, which tests can call as any principal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltalog import TransactionManager
from deltalog.server.access.principals import Head, Identified, NotAuthenticatedError, Principal
from deltalog.server.app import App
from deltalog.server.unity.credentials import Rule, Vendor
from deltalog.server.unity.service import Service
from deltalog.transactions.unity.settings import UnitySettings
from tests.support.server.unity import ROOT, Response, Unity

ADMIN = Principal("root", is_admin=True)


class _AsSaid:
    """Trusts the header ``x-caller``, which names the principal."""

    def __init__(self) -> None:
        self.principals: dict[str, Principal] = {}

    async def identify(self, head: Head) -> Identified:
        found = self.principals.get(head.headers.get("x-caller", ""))
        if found is None:
            raise NotAuthenticatedError("Who are you?")
        return Identified(found)


class InProcess:
    """An application with a SQLite catalog and a warehouse. ``catalog``: the catalog of another InProcess, to act as a
    second server on it.
    """

    def __init__(self, place: Path, rules: list[Rule] | None = None) -> None:
        self.place = place
        self.manager = TransactionManager(str(place / "catalog.db"))
        self.tables = self.manager.unity_tables(UnitySettings("main", str(place / "warehouse")))
        self._who = _AsSaid()
        service = Service(self.tables, Vendor(rules or []), lambda table_id: None)
        self.app = App(self.manager, authenticator=self._who, unity=service, has_pages=True)
        self.grants = self.app.grants
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self.app.close()
        self._loop.close()
        self.manager.coordinator.close()

    def unity(self, principal: Principal = ADMIN) -> Unity:
        return _As(self, principal)

    def send(
        self, principal: Principal, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """The status, the body and the headers of a response. The body of a page is its text."""
        self._who.principals = {"it": principal}
        raw, _, query = path.partition("?")
        given = {"x-caller": "it", **(headers or {})}
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "raw_path": raw.encode(), "path": raw,
            "query_string": query.encode(), "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }  # fmt: skip
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        self._loop.run_until_complete(self.app(scope, receive, send))
        shown = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        received = sent[1]["body"]
        if shown.get("content-type", "").startswith("text/html"):
            return sent[0]["status"], received.decode(), shown
        return sent[0]["status"], json.loads(received) if received else None, shown

    def lake(self, principal: Principal, operation: str, body: Any) -> tuple[int, Any]:
        """The status and the body of a response to a call of Lake Formation."""
        status, received, _ = self.send(principal, "POST", f"/{operation}", body)
        return status, received


class _As(Unity):
    def __init__(self, server: InProcess, principal: Principal) -> None:
        self._server = server
        self._principal = principal

    def ask(self, method: str, path: str, body: Any = None) -> Response:
        status, received, _ = self._server.send(self._principal, method, f"{ROOT}{path}", body)
        return Response(status, received)
